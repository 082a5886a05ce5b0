// bpe_train.h: trains a byte-level BPE like GPT-2's on text (Radford et al. 2019; Sennrich et al. 2016): repeatedly,
// the most frequent pair of neighbouring pieces becomes one piece.
//
//     static const char *const files[] = {"a.txt", "b.jsonl"};   // or folders: train_texts.h
//     GxBpeTraining how = gx_bpe_training(30000);
//     GxTokenizer t;
//     GX_TRY(gx_bpe_train(&t, files, 2, &how, err));
//     GX_TRY(gx_tokenizer_write(&t, "folder", err));
//
// The vocabulary is <|endoftext|>; the characters of the 256 bytes (gx_byte_character) by their code points; then the
// merged pieces in their order. Words are the matches of GPT-2's regular expression in each line separately, including
// its line feed; a word includes the space before it. Of equally frequent pairs the one with the smaller ids comes
// first.
//
// Vocabulary and merges equal those that `tokenizers` 0.23 makes from the same files by BpeTrainer (with these special
// tokens, initial_alphabet ByteLevel.alphabet()) after ByteLevel(add_prefix_space=False). Unlike there, these are
// errors: a vocab_size without room for a merge, texts in which no pair is frequent enough (a BPE needs merges), a
// piece that tokenizer.h could not open again (more than 65536 bytes), a byte of value 0. Text that is not UTF-8 is an
// error in both; here it names file and line.
//
// It needs PCRE2 (regex.h). Memory: the distinct words and their pairs (merge_train.h), and a line of the text
// (train_texts.h). 10 MB
// of English take a few seconds.
#ifndef GX_BPE_TRAIN_H
#define GX_BPE_TRAIN_H
#include "../text/bpe_files.h"
#include "../text/byte_tokens.h"
#include "train_texts.h"
GX_BEGIN

enum { GX_BPE_TRAIN_LEAST = 258, GX_BPE_TRAIN_MOST = 1 << 20 }; // pieces
typedef struct {
    int64_t vocab_size;    // GX_BPE_TRAIN_LEAST to _MOST; the result has fewer if no more pairs are frequent enough
    int64_t min_frequency; // the least frequency of a merged pair
    const GxLogger *log;   // for warnings about the files; NULL: silence
} GxBpeTraining;
GxBpeTraining gx_bpe_training(int64_t vocab_size); // min_frequency 2

// tokenizer_config.json names <|endoftext|> as eos_token, bos_token, pad_token and unk_token.
GxStatus gx_bpe_train(GxTokenizer *t, const char *const *files, int n, const GxBpeTraining *how, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BPE_TRAIN_IMPLEMENTED)
#define GX_BPE_TRAIN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

static const char gx__bpe_train_end[] = "<|endoftext|>";

typedef struct {
    int32_t a, b;
} gx__BpeTrainMerge;
typedef struct {
    const GxBpeTraining *how;
    GxMergeTraining m;
    GxPieces p;
    uint32_t byte[256]; // the ids of the bytes' characters
    GxRegex *words;
    GxRegexRoom room;
    uint32_t *symbol; // of one word
    int64_t symbol_room;
    gx__BpeTrainMerge *merge;
    int64_t merges, merge_room;
    char *piece; // on its way
    int64_t piece_room;
    GxError *err;
} gx__BpeTraining;

GxBpeTraining gx_bpe_training(int64_t vocab_size)
{
    const GxBpeTraining how = {vocab_size, 2, NULL};
    return how;
}

// ---- words ---------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_train_word(gx__BpeTraining *x, const char *word, int64_t n)
{
    GX_TRY(gx_train_grow(&x->symbol, n, &x->symbol_room, sizeof *x->symbol, x->err));
    for (int64_t i = 0; i < n; i++) x->symbol[i] = x->byte[(unsigned char)word[i]];
    return gx_train_count_word(&x->m, x->symbol, n);
}

// Counts the words of a line. Each character is in one of the regular expression's matches.
static GxStatus gx__bpe_train_line(gx__BpeTraining *x, const char *line, int64_t n)
{
    for (int64_t at = 0, start, end; at < n; at = end) {
        GX_TRY(gx_regex_find(x->words, &x->room, line, n, at, &start, &end, x->err));
        if (start < 0) break;
        GX_TRY(gx__bpe_train_word(x, line + start, end - start));
    }
    return GX_OK;
}

static GxStatus gx__bpe_train_take(void *user, const char *text, int64_t bytes, GxError *err)
{
    (void)err; // the error is in x
    for (const char *line = text, *end = text + bytes, *next; line < end; line = next) {
        const char *feed = (const char *)memchr(line, '\n', (size_t)(end - line));
        next = feed ? feed + 1 : end;
        GX_TRY(gx__bpe_train_line((gx__BpeTraining *)user, line, next - line));
    }
    return GX_OK;
}

// ---- pieces --------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_train_alphabet(gx__BpeTraining *x)
{
    char character[3];
    GX_TRY(gx_pieces_add(&x->p, 0, gx__bpe_train_end, (int64_t)strlen(gx__bpe_train_end), GX_PIECE_MODEL, x->err));
    for (uint32_t c = 0; c < GX_BPE_NEAR; c++) {
        const int byte = gx_byte_of_character(c);
        if (byte < 0) continue;
        x->byte[byte] = (uint32_t)x->p.size;
        GX_TRY(gx_pieces_add(&x->p, x->p.size, character, gx_byte_character(byte, character), GX_PIECE_MODEL, x->err));
    }
    return GX_OK;
}

// No piece is made twice: at any time equal byte sequences between two ends of pieces are split equally, whatever
// surrounds them, so the first merge that makes one of them a piece does so everywhere.
static GxStatus gx__bpe_train_join(void *user, int32_t a, int32_t b, int32_t *both)
{
    gx__BpeTraining *x = (gx__BpeTraining *)user;
    const gx__BpeTrainMerge merge = {a, b};
    const int64_t n = (int64_t)strlen(x->p.text + x->p.at[a]), m = (int64_t)strlen(x->p.text + x->p.at[b]);
    GX_TRY(gx_train_grow(&x->piece, n + m, &x->piece_room, 1, x->err));
    GX_TRY(gx_train_grow(&x->merge, x->merges + 1, &x->merge_room, sizeof *x->merge, x->err));
    memcpy(x->piece, x->p.text + x->p.at[a], (size_t)n);
    memcpy(x->piece + n, x->p.text + x->p.at[b], (size_t)m);
    x->merge[x->merges++] = merge;
    *both = x->p.size;
    return gx_pieces_add(&x->p, *both, x->piece, n + m, GX_PIECE_MODEL, x->err);
}

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

// The members of GPT-2's files; vocab and merges are empty here.
static const GxTokenizerMember gx__bpe_train_members[] = {
    {NULL, "version", "\"1.0\""},
    {NULL, "truncation", "null"},
    {NULL, "padding", "null"},
    {NULL, "added_tokens",
     "[{\"id\": 0, \"content\": \"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
     "\"normalized\": false, \"special\": true}]"},
    {NULL, "normalizer", "null"},
    {NULL, "pre_tokenizer",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}"},
    {NULL, "post_processor",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, \"use_regex\": true}"},
    {NULL, "decoder",
     "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}"},
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
static const GxTokenizerMember gx__bpe_train_config_members[] = {
    {NULL, "tokenizer_class", "\"PreTrainedTokenizerFast\""},
    {NULL, "add_prefix_space", "false"},
    {NULL, "clean_up_tokenization_spaces", "false"}, // otherwise decoding would change "a ." to "a."
    {NULL, "bos_token", "\"<|endoftext|>\""},
    {NULL, "eos_token", "\"<|endoftext|>\""},
    {NULL, "pad_token", "\"<|endoftext|>\""},
    {NULL, "unk_token", "\"<|endoftext|>\""},
    {NULL, "model_input_names", "[\"input_ids\", \"attention_mask\"]"}};

static GxStatus gx__bpe_train_fill(const gx__BpeTraining *x, GxJson *model)
{
    GxJson *vocab = gx_json_get(model, "vocab"), *merges = gx_json_get(model, "merges");
    GxStatus status = GX_OK;
    for (int32_t id = 0; id < x->p.size && status == GX_OK; id++)
        status = gx_json_set(vocab, gx_pieces_text(&x->p, id), gx_json_new_int(id), x->err);
    for (int64_t i = 0; i < x->merges && status == GX_OK; i++) {
        GxJson *pair = gx_json_new_array();
        gx_json_append(pair, gx_json_new_string(gx_pieces_text(&x->p, x->merge[i].a)), x->err);
        gx_json_append(pair, gx_json_new_string(gx_pieces_text(&x->p, x->merge[i].b)), x->err);
        status = gx_json_append(merges, pair, x->err);
    }
    return status;
}

static GxStatus gx__bpe_train_make(const gx__BpeTraining *x, GxTokenizer *t, const char *where)
{
    enum { MEMBERS = sizeof gx__bpe_train_members / sizeof *gx__bpe_train_members };
    enum { CONFIG_MEMBERS = sizeof gx__bpe_train_config_members / sizeof *gx__bpe_train_config_members };
    GxJson *root = gx_tokenizer_document(gx__bpe_train_members, MEMBERS, x->err),
           *config = gx_tokenizer_document(gx__bpe_train_config_members, CONFIG_MEMBERS, x->err);
    GxStatus status = gx_error_code(x->err);
    if (status == GX_OK) status = gx__bpe_train_fill(x, gx_json_get(root, "model"));
    if (status == GX_OK) status = gx_bpe_make(t, root, config, where, x->err);
    gx_json_free(root);
    gx_json_free(config);
    return status;
}

// ---- all of it -----------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_train_all(gx__BpeTraining *x, const char *const *files, int n)
{
    const GxTrainText text = {"\n", gx__bpe_train_take, x};
    const int64_t size = x->how->vocab_size;
    if (size < GX_BPE_TRAIN_LEAST || size > GX_BPE_TRAIN_MOST)
        return GX_FAIL(x->err, GX_ERR_ARGUMENT,
                       "vocab_size is %ld; expected %d to %d: %s, 256 bytes, and the pieces merged from them",
                       (long)size, GX_BPE_TRAIN_LEAST, GX_BPE_TRAIN_MOST, gx__bpe_train_end);
    GX_TRY(gx_regex_open(&x->words, gx_words_of_gpt2, files[0], x->err));
    GX_TRY(gx__bpe_train_alphabet(x));
    for (int i = 0; i < n; i++) GX_TRY(gx_train_texts_read(&text, files[i], x->how->log, x->err));
    GX_TRY(gx_train_merge(&x->m));
    if (x->merges > 0) return GX_OK;
    return GX_FAIL(
        x->err, GX_ERR_FORMAT,
        "no two bytes stand next to each other in the words of %s%s at least %ld time%s, so there is nothing to merge",
        files[0], n > 1 ? ", …" : "", (long)x->how->min_frequency, gx_text_s(x->how->min_frequency));
}

GxStatus gx_bpe_train(GxTokenizer *t, const char *const *files, int n, const GxBpeTraining *how, GxError *err)
{
    gx__BpeTraining x = GX_ZERO;
    memset(t, 0, sizeof *t);
    x.how = how, x.err = x.m.err = err;
    x.m.pieces = &x.p, x.m.vocab_size = how->vocab_size, x.m.min_frequency = how->min_frequency;
    x.m.join = gx__bpe_train_join, x.m.user = &x;
    GxStatus status = gx__bpe_train_all(&x, files, n);
    if (status == GX_OK) status = gx__bpe_train_make(&x, t, files[0]);
    gx_pieces_close(&x.p);
    gx_train_close(&x.m);
    gx_regex_room_close(&x.room);
    gx_regex_close(x.words);
    free(x.symbol), free(x.merge), free(x.piece);
    return status;
}
#endif
