// tokenizer.h: text to token ids and back. So far one kind: bytes, where a token's id is the value of its byte. It
// needs no files and no training, takes any input, and 256 embedding rows are enough for a demonstration.
//
// gx_tokenizer_write saves it the way Hugging Face's libraries read it (tokenizers' Tokenizer.from_file, transformers'
// PreTrainedTokenizerFast): a byte-level BPE without merges, whose 256 entries stand in the order of the bytes. So a
// model trained here generates there, with the same ids for the same text.
//
//     GxTokenizer t = gx_tokenizer_bytes();
//     int32_t ids[5];
//     int64_t n = gx_tokenizer_encode(&t, "hello", 5, ids);
//     GX_TRY(gx_tokenizer_write(&t, "model_folder", err));
#ifndef GX_TOKENIZER_H
#define GX_TOKENIZER_H
#include "json.h"
GX_BEGIN

typedef enum { GX_TOKENIZER_BYTES = 0 } GxTokenizerKind;
typedef struct {
    GxTokenizerKind kind;
    int vocab_size;
} GxTokenizer;

GxTokenizer gx_tokenizer_bytes(void);
// "byte-256": equal identities give equal ids; stored beside tokenised data.
const char *gx_tokenizer_identity(const GxTokenizer *t);
// ids[bytes]. Returns how many were written.
int64_t gx_tokenizer_encode(const GxTokenizer *t, const void *text, int64_t bytes, int32_t *ids);
// text[n]; no 0 behind it.
GxStatus gx_tokenizer_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, char *text, GxError *err);
// Writes tokenizer.json and tokenizer_config.json.
GxStatus gx_tokenizer_write(const GxTokenizer *t, const char *folder, GxError *err);
// The folder's tokenizer.json gives the same ids.
GxStatus gx_tokenizer_check(const GxTokenizer *t, const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_IMPLEMENTED)
#define GX_TOKENIZER_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__TOKENIZER_CAP = 64 << 20 };

GxTokenizer gx_tokenizer_bytes(void)
{
    GxTokenizer t = {GX_TOKENIZER_BYTES, 256};
    return t;
}

const char *gx_tokenizer_identity(const GxTokenizer *t)
{
    return t->kind == GX_TOKENIZER_BYTES && t->vocab_size == 256 ? "byte-256" : "unknown";
}

int64_t gx_tokenizer_encode(const GxTokenizer *t, const void *text, int64_t bytes, int32_t *ids)
{
    const unsigned char *p = (const unsigned char *)text;
    (void)t;
    for (int64_t i = 0; i < bytes; i++) ids[i] = p[i];
    return bytes;
}

GxStatus gx_tokenizer_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, char *text, GxError *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "token %ld has the id %ld; the vocabulary ends at %d", (long)i,
                           (long)ids[i], t->vocab_size - 1);
        text[i] = (char)ids[i];
    }
    return GX_OK;
}

// The visible character that stands for a byte in byte-level BPE vocabularies (Radford et al. 2019, GPT-2,
// bytes_to_unicode): itself where Latin-1 has a printable one, else the next from U+0100 on. In UTF-8, into out[3].
static void gx__tokenizer_byte_character(int byte, char *out)
{
    int code = byte, next = 256;
    for (int b = 0; b <= byte; b++) {
        int printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        code = printable ? b : next++;
    }
    if (code < 0x80) snprintf(out, 3, "%c", code);
    else snprintf(out, 3, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 0x3F));
}

// One member of each document and its value, as JSON text; VOCAB stands for the 256 characters.
typedef struct {
    const char *object, *key, *json;
} gx__TokenizerTokenizerMember;
static const gx__TokenizerTokenizerMember gx__tokenizer_members[] = {
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
static const gx__TokenizerTokenizerMember gx__tokenizer_config_members[] = {
    {NULL, "tokenizer_class", "\"PreTrainedTokenizerFast\""},
    {NULL, "clean_up_tokenization_spaces", "false"}, // or decoding would change "a ." to "a."
    {NULL, "model_input_names", "[\"input_ids\", \"attention_mask\"]"}};

static GxJson *gx__tokenizer_document(const gx__TokenizerTokenizerMember *members, int n, GxError *err)
{
    GxJson *root = gx_json_new_object(), *value = NULL;
    for (int i = 0; i < n; i++) {
        const gx__TokenizerTokenizerMember *m = &members[i];
        gx_json_parse(&value, m->json, (int64_t)strlen(m->json), m->key, err);
        gx_json_set(m->object ? gx_json_get(root, m->object) : root, m->key, value, err);
    }
    return root;
}

GxStatus gx_tokenizer_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH], character[3];
    GxJson *root = gx__tokenizer_document(gx__tokenizer_members,
                                          (int)(sizeof gx__tokenizer_members / sizeof *gx__tokenizer_members), err);
    GxJson *config = gx__tokenizer_document(gx__tokenizer_config_members, 3, err),
           *vocab = gx_json_get(gx_json_get(root, "model"), "vocab");
    GxStatus status = gx_error_code(err);
    for (int i = 0; i < t->vocab_size && status == GX_OK; i++) {
        gx__tokenizer_byte_character(i, character);
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

static int gx__tokenizer_json_equal(const GxJson *a, const GxJson *b)
{
    GxJsonType type = gx_json_type(a);
    if (type != gx_json_type(b) || gx_json_size(a) != gx_json_size(b)) return 0;
    if (type == GX_JSON_STRING) return !strcmp(gx_json_string(a), gx_json_string(b));
    if (type == GX_JSON_BOOL) return gx_json_bool(a) == gx_json_bool(b);
    return type == GX_JSON_NULL || gx_json_size(a) == 0; // what the table holds besides: null and empty lists
}

// A template that knows no special tokens adds none; transformers writes it when it saves our tokenizer again.
static int gx__tokenizer_adds_nothing(const char *key, const GxJson *value)
{
    const GxJson *special = gx_json_get(value, "special_tokens");
    return !strcmp(key, "post_processor") && gx_json_type(special) == GX_JSON_OBJECT && gx_json_size(special) == 0;
}

// A member that is null in ours may be absent; trim_offsets and version change no ids.
static GxStatus gx__tokenizer_compare(const GxJson *ours, const GxJson *theirs, const char *path, GxError *err)
{
    for (GxJsonMember m = GX_ZERO; gx_json_next(ours, &m);) {
        const GxJson *other = gx_json_get(theirs, m.key);
        int absent = !other && gx_json_type(m.value) == GX_JSON_NULL;
        if (absent || !strcmp(m.key, "trim_offsets") || !strcmp(m.key, "version") || !strcmp(m.key, "vocab") ||
            gx__tokenizer_adds_nothing(m.key, other))
            continue;
        if (gx_json_type(m.value) == GX_JSON_OBJECT) GX_TRY(gx__tokenizer_compare(m.value, other, path, err));
        else if (!gx__tokenizer_json_equal(m.value, other))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: \"%s\" is %s, other than in the byte tokenizer of this library: it gives other tokens",
                           path, m.key, gx_json_type_name(other));
    }
    return GX_OK;
}

static GxStatus gx__tokenizer_check_vocab(const GxTokenizer *t, const GxJson *vocab, const char *path, GxError *err)
{
    char character[3];
    if (gx_json_size(vocab) != t->vocab_size)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the vocabulary has %ld entries; the byte tokenizer has %d", path,
                       (long)gx_json_size(vocab), t->vocab_size);
    for (int i = 0; i < t->vocab_size; i++) {
        gx__tokenizer_byte_character(i, character);
        const GxJson *id = gx_json_get(vocab, character);
        if (gx_json_type(id) != GX_JSON_INT || gx_json_int(id) != i)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the entry %s is %s; expected the id %d", path, character,
                           gx_json_type_name(id), i);
    }
    return GX_OK;
}

GxStatus gx_tokenizer_check(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *theirs;
    GX_TRY(gx_path_join(path, folder, "tokenizer.json", err));
    if (!gx_path_is_file(path))
        return GX_FAIL(err, GX_ERR_IO, "%s is missing: it is not known which tokens the model was trained on", path);
    GX_TRY(gx_json_read(&theirs, path, GX__TOKENIZER_CAP, err));
    GxJson *ours = gx__tokenizer_document(gx__tokenizer_members,
                                          (int)(sizeof gx__tokenizer_members / sizeof *gx__tokenizer_members), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx__tokenizer_compare(ours, theirs, path, err);
    if (status == GX_OK)
        status = gx__tokenizer_check_vocab(t, gx_json_get(gx_json_get(theirs, "model"), "vocab"), path, err);
    gx_json_free(theirs);
    gx_json_free(ours);
    return status;
}
#endif
