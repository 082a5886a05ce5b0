// byt5.h: ByT5's tokens (Xue et al. 2022, arXiv:2105.13626): a byte's id is its value + 3, behind <pad>, </s> and <unk>;
// 125 sentinels follow, <extra_id_0> first. Its folders have no tokenizer.json: transformers' class ByT5Tokenizer knows
// all of this. Here it is a byte-level BPE without merges, and is saved as one: tokenizer.json gives others the same ids.
#ifndef GX_BYT5_H
#define GX_BYT5_H
#include "bpe_files.h"
GX_BEGIN

// 1: tokenizer_config.json (NULL: there is none) names transformers' class for these tokens.
int gx_byt5_is_named(const GxJson *config);
// config: tokenizer_config.json's root, or NULL. `where` names the tokenizer in messages.
GxStatus gx_byt5_open(GxTokenizer *t, const GxJson *config, const char *where, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BYT5_IMPLEMENTED)
#define GX_BYT5_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__BYT5_BYTES = 256, GX__BYT5_FIRST = 3, GX__BYT5_SENTINELS = 125 };

static const GxTokenizerMember gx__byt5_members[] = {
    {NULL, "version", "\"1.0\""},
    {NULL, "truncation", "null"},
    {NULL, "padding", "null"},
    {NULL, "added_tokens", "[]"},
    {NULL, "normalizer", "null"},
    {NULL, "pre_tokenizer",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}"},
    {NULL, "post_processor",
     "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
     "{\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": "
     "0}}, "
     "{\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}, "
     "{\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}], \"special_tokens\": {\"</s>\": {\"id\": \"</s>\", "
     "\"ids\": [1], \"tokens\": [\"</s>\"]}}}"},
    {NULL, "decoder",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}"},
    {NULL, "model", "{}"},
    {"model", "type", "\"BPE\""},
    {"model", "dropout", "null"},
    {"model", "unk_token", "null"},
    {"model", "continuing_subword_prefix", "null"},
    {"model", "end_of_word_suffix", "null"},
    {"model", "fuse_unk", "false"},
    {"model", "byte_fallback", "false"},
    {"model", "ignore_merges", "false"},
    {"model", "vocab", "{}"},
    {"model", "merges", "[]"}};
static const GxTokenizerMember gx__byt5_config_members[] = {
    {NULL, "tokenizer_class", "\"PreTrainedTokenizerFast\""},
    {NULL, "clean_up_tokenization_spaces", "false"},
    {NULL, "pad_token", "\"<pad>\""},
    {NULL, "eos_token", "\"</s>\""},
    {NULL, "unk_token", "\"<unk>\""},
    {NULL, "model_input_names", "[\"input_ids\", \"attention_mask\"]"}};

int gx_byt5_is_named(const GxJson *config)
{
    return !strcmp(gx_json_string(gx_json_get(config, "tokenizer_class")), "ByT5Tokenizer");
}

// A special token; strips: white space around it belongs to it.
static void gx__byt5_add(GxJson *added, GxJson *vocab, const char *content, int id, int strips, GxError *err)
{
    GxJson *token = gx_json_new_object();
    gx_json_set(token, "id", gx_json_new_int(id), err);
    gx_json_set(token, "content", gx_json_new_string(content), err);
    gx_json_set(token, "single_word", gx_json_new_bool(0), err);
    gx_json_set(token, "lstrip", gx_json_new_bool(strips), err);
    gx_json_set(token, "rstrip", gx_json_new_bool(strips), err);
    gx_json_set(token, "normalized", gx_json_new_bool(0), err);
    gx_json_set(token, "special", gx_json_new_bool(1), err);
    gx_json_append(added, token, err);
    gx_json_set(vocab, content, gx_json_new_int(id), err);
}

static GxJson *gx__byt5_document(GxError *err)
{
    static const char *const framing[GX__BYT5_FIRST] = {"<pad>", "</s>", "<unk>"};
    GxJson *root =
               gx_tokenizer_document(gx__byt5_members, (int)(sizeof gx__byt5_members / sizeof *gx__byt5_members), err),
           *added = gx_json_get(root, "added_tokens"), *vocab = gx_json_get(gx_json_get(root, "model"), "vocab");
    char piece[24];
    for (int i = 0; i < GX__BYT5_FIRST; i++) gx__byt5_add(added, vocab, framing[i], i, 1, err);
    for (int byte = 0; byte < GX__BYT5_BYTES; byte++) {
        gx_byte_character(byte, piece);
        gx_json_set(vocab, piece, gx_json_new_int(GX__BYT5_FIRST + byte), err);
    }
    for (int i = 0; i < GX__BYT5_SENTINELS; i++) {
        snprintf(piece, sizeof piece, "<extra_id_%d>", i);
        gx__byt5_add(added, vocab, piece, GX__BYT5_FIRST + GX__BYT5_BYTES + i, 0, err);
    }
    return root;
}

GxStatus gx_byt5_open(GxTokenizer *t, const GxJson *config, const char *where, GxError *err)
{
    const int n = (int)(sizeof gx__byt5_config_members / sizeof *gx__byt5_config_members);
    GxJson *root = gx__byt5_document(err), *ours = gx_tokenizer_document(gx__byt5_config_members, n, err);
    GxStatus status = gx_error_code(err);
    const int64_t extra = gx_json_int(gx_json_get(config, "extra_ids"));
    if (status == GX_OK && gx_json_get(config, "extra_ids") && extra != GX__BYT5_SENTINELS)
        status = GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: extra_ids is %ld; only %d is supported", where, (long)extra,
                         (int)GX__BYT5_SENTINELS);
    if (status == GX_OK) status = gx_bpe_make(t, root, ours, where, err);
    gx_json_free(root);
    gx_json_free(ours);
    return status;
}
#endif
