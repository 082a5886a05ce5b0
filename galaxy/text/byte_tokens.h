// byte_tokens.h: bytes as tokens: a token's id is the value of its byte. It needs no files and no training, takes any
// input, and 256 embedding rows are enough for a demonstration.
//
// It is written the way Hugging Face's libraries read it (tokenizers' Tokenizer.from_file, transformers'
// PreTrainedTokenizerFast): a byte-level BPE without merges, whose 256 entries stand in the order of the bytes. So a
// model trained here generates there, with the same ids for the same text. Any other BPE is refused.
#ifndef GX_BYTE_TOKENS_H
#define GX_BYTE_TOKENS_H
#include "tokenizer_kind.h"
GX_BEGIN

extern const GxTokenizerKind gx_byte_tokens;
GxTokenizer gx_tokenizer_bytes(void);

// The visible character that stands for a byte in byte-level BPE vocabularies (Radford et al. 2019, GPT-2,
// bytes_to_unicode): the byte's own character if it is printable in Latin-1, otherwise the next one from U+0100 on.
// Written to out[3] as UTF-8 with a terminating 0; returns its bytes, 1 or 2.
int gx_byte_character(int byte, char out[3]);
int gx_byte_of_character(uint32_t c); // the byte that it stands for; -1: none

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BYTE_TOKENS_IMPLEMENTED)
#define GX_BYTE_TOKENS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__BYTE_TOKENS_CAP = 64 << 20, GX__BYTE_TOKENS = 256 };

GxTokenizer gx_tokenizer_bytes(void)
{
    GxTokenizer t = GX_ZERO;
    t.kind = &gx_byte_tokens;
    t.vocab_size = GX__BYTE_TOKENS;
    t.longest = t.tokens_for_byte = 1;
    for (int i = 0; i < GX_TOKEN_ROLES; i++) t.role[i] = -1;
    t.end = -1;
    snprintf(t.identity, sizeof t.identity, "byte-256");
    return t;
}

// ---- text and ids --------------------------------------------------------------------------------------------------

static GxStatus gx__byte_tokens_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special,
                                       int32_t *ids, int64_t *n, GxError *err)
{
    (void)t, (void)special, (void)err;
    for (int64_t i = 0; i < bytes; i++) ids[i] = (unsigned char)text[i];
    *n = bytes;
    return GX_OK;
}

static GxStatus gx__byte_tokens_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special,
                                       char *text, int64_t *bytes, GxError *err)
{
    (void)t, (void)special, (void)err;
    for (int64_t i = 0; i < n; i++) text[i] = (char)ids[i];
    *bytes = n;
    return GX_OK;
}

// The bytes that are not printable: the first 33, 34 from 0x7F on, and 0xAD.
int gx_byte_character(int byte, char out[3])
{
    const int code = byte <= ' '    ? 0x100 + byte
                     : byte == 0xAD ? 0x143
                     : byte < 0x7F  ? byte
                     : byte <= 0xA0 ? 0x121 + byte - 0x7F
                                    : byte;
    const int n = code < 0x80 ? 1 : 2;
    out[0] = (char)(n == 1 ? code : 0xC0 | code >> 6);
    out[1] = (char)(n == 1 ? 0 : 0x80 | (code & 0x3F));
    out[2] = 0;
    return n;
}

int gx_byte_of_character(uint32_t c)
{
    if (c == 0x143) return 0xAD;
    if (c > 0x120 && c < 0x143) return (int)c - 0x121 + 0x7F;
    if (c >= 0x100 && c <= 0x120) return (int)c - 0x100;
    return (c > ' ' && c < 0x7F) || (c > 0xA0 && c < 0x100 && c != 0xAD) ? (int)c : -1;
}

static const char *gx__byte_tokens_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    (void)t;
    gx_byte_character(id, room);
    return room;
}

static int32_t gx__byte_tokens_find(const GxTokenizer *t, const char *piece)
{
    char room[8];
    for (int32_t id = 0; id < GX__BYTE_TOKENS; id++)
        if (!strcmp(piece, gx__byte_tokens_piece(t, id, room))) return id;
    return -1;
}

static int gx__byte_tokens_no(const GxTokenizer *t, int32_t id) { return (void)t, (void)id, 0; }

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

// The members of both documents; vocab is a placeholder for the 256 characters.
static const GxTokenizerMember gx__byte_tokens_members[] = {
    {NULL, "version", "\"1.0\""},
    {NULL, "truncation", "null"},
    {NULL, "padding", "null"},
    {NULL, "added_tokens", "[]"},
    {NULL, "normalizer", "null"},
    {NULL, "pre_tokenizer",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}"},
    {NULL, "post_processor", "null"},
    {NULL, "decoder",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}"},
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
static const GxTokenizerMember gx__byte_tokens_config_members[] = {
    {NULL, "tokenizer_class", "\"PreTrainedTokenizerFast\""},
    {NULL, "clean_up_tokenization_spaces", "false"}, // otherwise decoding would change "a ." to "a."
    {NULL, "model_input_names", "[\"input_ids\", \"attention_mask\"]"}};

static GxJson *gx__byte_tokens_document(GxError *err)
{
    return gx_tokenizer_document(gx__byte_tokens_members,
                                 (int)(sizeof gx__byte_tokens_members / sizeof *gx__byte_tokens_members), err);
}

static GxStatus gx__byte_tokens_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH], character[3];
    GxJson *root = gx__byte_tokens_document(err),
           *config = gx_tokenizer_document(gx__byte_tokens_config_members, 3, err),
           *vocab = gx_json_get(gx_json_get(root, "model"), "vocab");
    GxStatus status = gx_error_code(err);
    for (int i = 0; i < t->vocab_size && status == GX_OK; i++) {
        gx_byte_character(i, character);
        status = gx_json_set(vocab, character, gx_json_new_int(i), err);
    }
    if (status == GX_OK) status = gx_path_join(path, folder, "tokenizer.json", err);
    if (status == GX_OK) status = gx_json_write(root, path, err);
    if (status == GX_OK) status = gx_path_join(path, folder, "tokenizer_config.json", err);
    if (status == GX_OK) status = gx_json_write(config, path, err);
    gx_json_free(root);
    gx_json_free(config);
    return status;
}

// A post-processor template without special tokens adds none; transformers writes it when it saves our tokenizer again.
static int gx__byte_tokens_adds_nothing(const char *key, const GxJson *value)
{
    const GxJson *special = gx_json_get(value, "special_tokens");
    return !strcmp(key, "post_processor") && gx_json_type(special) == GX_JSON_OBJECT && gx_json_size(special) == 0;
}

// A member that is null in `ours` may be absent in `theirs`; trim_offsets and version do not affect ids.
static GxStatus gx__byte_tokens_compare(const GxJson *ours, const GxJson *theirs, const char *path, GxError *err)
{
    for (GxJsonMember m = GX_ZERO; gx_json_next(ours, &m);) {
        const GxJson *other = gx_json_get(theirs, m.key);
        int absent = !other && gx_json_type(m.value) == GX_JSON_NULL;
        if (absent || !strcmp(m.key, "trim_offsets") || !strcmp(m.key, "version") || !strcmp(m.key, "vocab") ||
            gx__byte_tokens_adds_nothing(m.key, other))
            continue;
        if (gx_json_type(m.value) == GX_JSON_OBJECT) GX_TRY(gx__byte_tokens_compare(m.value, other, path, err));
        else if (!gx_tokenizer_json_equal(m.value, other))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: \"%s\" is %s, unlike in this library's byte tokenizer, so it gives other tokens", path,
                           m.key, gx_json_type_name(other));
    }
    return GX_OK;
}

static GxStatus gx__byte_tokens_check_vocab(const GxTokenizer *t, const GxJson *vocab, const char *path, GxError *err)
{
    char character[3], found[GX_JSON_FOUND];
    if (gx_json_size(vocab) != t->vocab_size)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the vocabulary has %ld entries; the byte tokenizer has %d", path,
                       (long)gx_json_size(vocab), t->vocab_size);
    for (int i = 0; i < t->vocab_size; i++) {
        gx_byte_character(i, character);
        const GxJson *id = gx_json_get(vocab, character);
        if (gx_json_type(id) != GX_JSON_INT || gx_json_int(id) != i)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the entry %s is %s; expected the id %d", path, character,
                           gx_json_found(id, found), i);
    }
    return GX_OK;
}

static GxStatus gx__byte_tokens_same(const GxTokenizer *t, const GxJson *theirs, const char *path, GxError *err)
{
    GxJson *ours = gx__byte_tokens_document(err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx__byte_tokens_compare(ours, theirs, path, err);
    if (status == GX_OK)
        status = gx__byte_tokens_check_vocab(t, gx_json_get(gx_json_get(theirs, "model"), "vocab"), path, err);
    gx_json_free(ours);
    return status;
}

static GxStatus gx__byte_tokens_check(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *theirs;
    GX_TRY(gx_path_join(path, folder, "tokenizer.json", err));
    if (!gx_path_is_file(path))
        return GX_FAIL(err, GX_ERR_IO, "%s is missing, so it is not known which tokens the model was trained on", path);
    GX_TRY(gx_json_read(&theirs, path, GX__BYTE_TOKENS_CAP, err));
    GxStatus status = gx__byte_tokens_same(t, theirs, path, err);
    gx_json_free(theirs);
    return status;
}

static GxStatus gx__byte_tokens_open(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    *t = gx_tokenizer_bytes();
    return gx__byte_tokens_same(t, from->json, from->path, err);
}

static void gx__byte_tokens_close(GxTokenizer *t) { (void)t; }
static int gx__byte_tokens_lines_are_apart(const GxTokenizer *t) { return (void)t, 1; }

const GxTokenizerKind gx_byte_tokens = {
    "bytes", // name
    "BPE",   // model_type
    NULL,    // vocabulary
    {
        // files
        gx__byte_tokens_open,  // open
        gx__byte_tokens_close, // close
        gx__byte_tokens_write, // write
        NULL,                  // difference
        gx__byte_tokens_check, // check
    },
    {
        // texts
        gx__byte_tokens_encode,          // encode
        gx__byte_tokens_decode,          // decode
        gx__byte_tokens_lines_are_apart, // lines_are_apart
    },
    {
        // pieces
        gx__byte_tokens_piece, // piece
        gx__byte_tokens_find,  // find
        gx__byte_tokens_no,    // is_special
        gx__byte_tokens_no,    // continues
    },
};
#endif
