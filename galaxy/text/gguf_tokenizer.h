// gguf_tokenizer.h: converts tokenizers between Hugging Face's files and the keys of a GGUF file (tokenizer.ggml.…).
//
//     GxTokenizerKeys k = GX_ZERO;
//     GX_TRY(gx_tokenizer_keys_from_folder(&k, "SmolLM2-135M", rows_of_the_embedding, -1, log, err));
//     GX_TRY(gx_tokenizer_keys_write(&k, &writer, err));                   // between gx_gguf_create and gx_gguf_write
//     …
//     GX_TRY(gx_tokenizer_keys_from_gguf(&k, &gguf, rows, err));
//     GX_TRY(gx_tokenizer_keys_to_folder(&k, "a_folder", 2048, err));      // tokenizer.json, tokenizer_config.json, …
//     gx_tokenizer_keys_close(&k);
//
// GGUF can express two kinds; anything else is refused by name:
//     gpt2     byte-level BPE: pieces and merges. The way text is split into words has a name, `pre`; supported:
//              gpt-2, smollm, llama-bpe, qwen2.
//     llama    BPE with bytes for unknown characters, as trained by SentencePiece: pieces with scores, and no merges:
//              the pair whose joined piece has the highest score is merged first, whatever its two parts are. So the
//              merges of a tokenizer.json must be all pairs that form a piece, piece by piece. In the other direction
//              merges are made from scores as transformers makes them.
// Bytes as tokens (byte_tokens.h) are written as gpt2 without merges, for which words do not matter. llama.cpp assumes
// that every such tokenizer has an end-of-text token, and takes 11 for it, the vertical tab. A folder without a
// tokenizer becomes a file without one ("none").
//
// The file has a token for each row of the embedding; rows without one get [PAD7], of type unused, which is not written
// back to a folder. For added tokens a file has their text and whether they are special; those with lstrip or rstrip
// are refused. ▁ is put before a text and after each added token (add_space_prefix), as in LLaMA-2's file.
#ifndef GX_GGUF_TOKENIZER_H
#define GX_GGUF_TOKENIZER_H
#include "chat_find.h"
#include "../io/gguf.h"
#include "tokenizer_keys.h"
GX_BEGIN

enum { GX_GGUF_TOKENIZER_SAID = 160 };
typedef enum {
    GX_TOKEN_TYPE_NORMAL = 1,
    GX_TOKEN_TYPE_UNKNOWN,
    GX_TOKEN_TYPE_CONTROL,
    GX_TOKEN_TYPE_USER,
    GX_TOKEN_TYPE_UNUSED,
    GX_TOKEN_TYPE_BYTE
} GxTokenType;

typedef struct {
    const char *model; // gpt2, llama, none; NULL: not set
    const char *pre;   // of gpt2
    char **token;      // [n]
    int32_t *type;     // [n] GX_TOKEN_TYPE_…
    float *score;      // [n] of llama
    int64_t n;
    char **merge; // [merges] of gpt2: "a b"
    int64_t merges;
    int32_t bos, eos, unk, pad; // -1: there is none
    // read from a GGUF file: the end of a turn and of a message, which also end a text; -1: none
    int32_t eot, eom;
    int add_bos, add_eos, add_space_prefix;
    char *chat_template; // NULL: none
    GxError no_template; // why the template of a folder is not supported
    int64_t filled;      // tokens that were made for rows without one
} GxTokenizerKeys;

// rows: of the embedding. pad: the id of the padding if the tokenizer's files name none; -1: none. log: gets warnings
// about keys that are not read (tokenizer_keys.h).
GxStatus gx_tokenizer_keys_from_folder(GxTokenizerKeys *k, const char *folder, int64_t rows, int64_t pad,
                                       const GxLogger *log, GxError *err);
GxStatus gx_tokenizer_keys_write(const GxTokenizerKeys *k, GxGgufWriter *w, GxError *err);
GxStatus gx_tokenizer_keys_from_gguf(GxTokenizerKeys *k, const GxGguf *g, int64_t rows, GxError *err);
GxStatus gx_tokenizer_keys_to_folder(const GxTokenizerKeys *k, const char *folder, int64_t max_length, GxError *err);
void gx_tokenizer_keys_say(const GxTokenizerKeys *k, char out[GX_GGUF_TOKENIZER_SAID]); // a description for people
void gx_tokenizer_keys_close(GxTokenizerKeys *k);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_TOKENIZER_IMPLEMENTED)
#define GX_GGUF_TOKENIZER_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- known ways to split words -------------------------------------------------------------------------------------

typedef struct {
    const char *name;  // tokenizer.ggml.pre
    const char *words; // the regular expression; NULL: GPT-2's
    int has_nfc, has_digits, ignore_merges, add_bos;
} gx__KeysPre;
static const gx__KeysPre gx__keys_pres[] = {{"gpt-2", NULL, 0, 0, 0, 0},
                                            {"smollm", NULL, 0, 1, 0, 0},
                                            {"llama-bpe", gx_words_of_llama3, 0, 0, 1, 1},
                                            {"qwen2", gx_words_of_qwen2, 1, 0, 0, 0}};
enum { GX__KEYS_PRES = sizeof gx__keys_pres / sizeof *gx__keys_pres, GX__KEYS_LONGEST = 1024 };

static const gx__KeysPre *gx__keys_pre(const char *name)
{
    for (int i = 0; i < GX__KEYS_PRES; i++)
        if (!strcmp(gx__keys_pres[i].name, name)) return &gx__keys_pres[i];
    return NULL;
}

static const char *gx__keys_pre_names(char out[100])
{
    out[0] = 0;
    for (int i = 0; i < GX__KEYS_PRES; i++)
        snprintf(out + strlen(out), 100 - strlen(out), "%s%s", i ? ", " : "", gx__keys_pres[i].name);
    return out;
}

static int gx__keys_is_pre(const gx__KeysPre *pre, const GxBpeTokenizer *b)
{
    const GxWords *v = &b->words;
    const GxWordStep *s = v->pre_tokenizer.step;
    int n = 0;
    if (v->normalizer.n != pre->has_nfc || (pre->has_nfc && v->normalizer.step[0].kind != GX_WORDS_NFC)) return 0;
    if (b->model.ignore_merges != pre->ignore_merges || v->pre_tokenizer.n != 2 + pre->has_digits) return 0;
    if (pre->has_digits && (s[n].kind != GX_WORDS_DIGITS || s[n++].keeps != 1)) return 0;
    return s[n].kind == GX_WORDS_SPLIT && s[n].keeps == (GX_WORDS_MATCHES | GX_WORDS_GAPS) &&
           !strcmp(s[n].text, pre->words ? pre->words : gx_words_of_gpt2) && s[n + 1].kind == GX_WORDS_BYTES;
}

// ---- lists of texts ------------------------------------------------------------------------------------------------

static GxStatus gx__keys_copy(char **out, const char *text, int64_t n, GxError *err)
{
    *out = (char *)malloc((size_t)n + 1);
    if (!*out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    memcpy(*out, text, (size_t)n);
    (*out)[n] = 0;
    return GX_OK;
}

static GxStatus gx__keys_reserve(GxTokenizerKeys *k, int64_t tokens, int64_t merges, int has_scores, GxError *err)
{
    k->token = (char **)calloc((size_t)tokens + 1, sizeof *k->token);
    k->type = (int32_t *)calloc((size_t)tokens + 1, sizeof *k->type);
    k->merge = (char **)calloc((size_t)merges + 1, sizeof *k->merge);
    if (has_scores) k->score = (float *)calloc((size_t)tokens + 1, sizeof *k->score);
    if (!k->token || !k->type || !k->merge || (has_scores && !k->score))
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer of %ld tokens", (long)tokens);
    k->n = tokens, k->merges = merges;
    return GX_OK;
}

void gx_tokenizer_keys_close(GxTokenizerKeys *k)
{
    for (int64_t i = 0; i < k->n; i++) free(k->token[i]);
    for (int64_t i = 0; i < k->merges; i++) free(k->merge[i]);
    free(k->token), free(k->type), free(k->score), free(k->merge), free(k->chat_template);
    memset(k, 0, sizeof *k);
}

void gx_tokenizer_keys_say(const GxTokenizerKeys *k, char out[GX_GGUF_TOKENIZER_SAID])
{
    snprintf(out, GX_GGUF_TOKENIZER_SAID, "no tokenizer");
    if (!k->n) return;
    snprintf(out, GX_GGUF_TOKENIZER_SAID, "%s tokenizer%s%s of %ld tokens", k->model, k->pre ? ", " : "",
             k->pre ? k->pre : "", (long)(k->n - k->filled));
    if (k->model && !strcmp(k->model, "gpt2") && !k->merges)
        snprintf(
            out, GX_GGUF_TOKENIZER_SAID,
            "bytes as tokens: a gpt2 tokenizer without merges; llama.cpp ends texts at token 11, the vertical tab");
}

// ---- from a folder -------------------------------------------------------------------------------------------------

typedef struct {
    GxTokenizerKeys *k;
    GxTokenizer t;
    const GxBpeTokenizer *v;
    GxJson *config, *model_config; // tokenizer_config.json, config.json; NULL: none
    const char *folder;
    int64_t rows; // of the embedding
    GxError *err;
} gx__KeysFrom;

// Adds "[PAD7]" for an id without a token.
static GxStatus gx__keys_fill(gx__KeysFrom *x, int64_t id)
{
    char name[32];
    const int n = snprintf(name, sizeof name, "[PAD%ld]", (long)id);
    if (gx_tokenizer_find(&x->t, name) >= 0)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: row %ld of the embedding has no token, and its stand-in %s already is a token", x->folder,
                       (long)id, name);
    x->k->type[id] = GX_TOKEN_TYPE_UNUSED;
    x->k->filled++;
    return gx__keys_copy(&x->k->token[id], name, n, x->err);
}

static GxStatus gx__keys_take_tokens(gx__KeysFrom *x)
{
    GxTokenizerKeys *k = x->k;
    char room[8];
    for (int64_t id = 0; id < k->n; id++) {
        const char *piece = gx_tokenizer_piece(&x->t, (int32_t)id, room);
        k->type[id] = GX_TOKEN_TYPE_NORMAL;
        GX_TRY(piece ? gx__keys_copy(&k->token[id], piece, (int64_t)strlen(piece), x->err) : gx__keys_fill(x, id));
    }
    if (!x->v) return GX_OK;
    for (int b = 0; b < 256 && x->v->model.byte_fallback; b++)
        if (x->v->model.byte[b] >= 0) k->type[x->v->model.byte[b]] = GX_TOKEN_TYPE_BYTE;
    for (int i = 0; i < x->v->words.added_n; i++) {
        const GxWordAdded *a = &x->v->words.added[i];
        if (a->lstrip || a->rstrip)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                           "%s: the token \"%.100s\" also takes the spaces around it (lstrip, rstrip), which a GGUF "
                           "file cannot express",
                           x->folder, k->token[a->id]);
        k->type[a->id] = a->special ? GX_TOKEN_TYPE_CONTROL : GX_TOKEN_TYPE_USER;
    }
    if (x->v->model.unk >= 0) k->type[x->v->model.unk] = GX_TOKEN_TYPE_UNKNOWN;
    return GX_OK;
}

// The id of a token that tokenizer_config.json names, or whose id (in a list, the first) is in config.json; -1:
// neither.
static int32_t gx__keys_role(const gx__KeysFrom *x, const char *name, const char *number)
{
    const GxJson *id = gx_json_get(x->model_config, number);
    const char *said = gx_tokenizer_config_token(x->config, name);
    const int32_t found = said ? gx_tokenizer_find(&x->t, said) : -1;
    if (found >= 0) return found;
    if (gx_json_type(id) == GX_JSON_ARRAY) id = gx_json_at(id, 0);
    return gx_json_type(id) == GX_JSON_INT && gx_json_int(id) >= 0 && gx_json_int(id) < x->rows
               ? (int32_t)gx_json_int(id)
               : -1;
}

// The tokens before and after a text.
static GxStatus gx__keys_take_frame(gx__KeysFrom *x)
{
    const GxTokenFrame *f = &x->t.frame[0];
    GxTokenizerKeys *k = x->k;
    int at = 0;
    k->bos = gx__keys_role(x, "bos_token", "bos_token_id");
    k->eos = gx__keys_role(x, "eos_token", "eos_token_id");
    if (!x->v) return GX_OK;
    while (at < f->n && f->part[at].id != GX_FRAME_A) at++;
    if (at > 1 || f->n - at - 1 > 1)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: a text gets %d tokens before it and %d after it; a GGUF file can express at most one each",
                       x->folder, at, f->n - at - 1);
    k->add_bos = at == 1, k->add_eos = f->n - at - 1 == 1;
    if (k->add_bos) k->bos = f->part[0].id;
    if (k->add_eos) k->eos = f->part[at + 1].id;
    return GX_OK;
}

static GxStatus gx__keys_take_template(gx__KeysFrom *x)
{
    GxJson *said;
    if (x->v && x->v->words.file[3])
        return gx__keys_copy(&x->k->chat_template, x->v->words.file[3], x->v->words.file_n[3], x->err);
    GxStatus status = gx_chat_find(&said, "auto", &x->folder, 1, &x->k->no_template);
    const char *text = status == GX_OK ? gx_json_string(gx_json_get(said, "template")) : "";
    status = text[0] ? gx__keys_copy(&x->k->chat_template, text, (int64_t)strlen(text), x->err) : GX_OK;
    gx_json_free(said);
    return status;
}

// A merge as tokenizer.json has it, "a b" or ["a", "b"], as "a b"; *left: bytes of a.
static GxStatus gx__keys_merge_text(const GxJson *merge, char **out, int64_t *left, GxError *err)
{
    const char *text = gx_json_string(merge), *a = gx_json_string(gx_json_at(merge, 0)),
               *b = gx_json_string(gx_json_at(merge, 1));
    *left = (int64_t)strcspn(text, " ");
    if (*text) return gx__keys_copy(out, text, (int64_t)strlen(text), err);
    *left = (int64_t)strlen(a);
    GX_TRY(gx__keys_copy(out, "", 0, err));
    char *grown = (char *)realloc(*out, strlen(a) + strlen(b) + 2);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    *out = grown;
    snprintf(grown, strlen(a) + strlen(b) + 2, "%s %s", a, b);
    return GX_OK;
}

static GxStatus gx__keys_take_gpt2(gx__KeysFrom *x, const GxJson *merges)
{
    GxTokenizerKeys *k = x->k;
    char names[100];
    int64_t left;
    for (int i = 0; i < GX__KEYS_PRES && !k->pre; i++)
        if (gx__keys_is_pre(&gx__keys_pres[i], x->v)) k->pre = gx__keys_pres[i].name;
    if (!k->pre)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: GGUF files have no name for the normalizer, pre-tokenizer and ignore_merges of its "
                       "tokenizer.json together; known: %s",
                       x->folder, gx__keys_pre_names(names));
    for (int64_t i = 0; i < k->merges; i++)
        GX_TRY(gx__keys_merge_text(gx_json_at(merges, i), &k->merge[i], &left, x->err));
    return GX_OK;
}

static int gx__keys_is_step(const GxWordSteps *s, int i, GxWordStepKind kind, const char *text)
{
    return i < s->n && s->step[i].kind == kind && !strcmp(s->step[i].text, text);
}

// ▁ for spaces and before the text, set by the normalizer or the pre-tokenizer.
static GxStatus gx__keys_take_spaces(gx__KeysFrom *x)
{
    static const char space[] = "\xE2\x96\x81";
    const GxWordSteps *n = &x->v->words.normalizer, *p = &x->v->words.pre_tokenizer;
    const int prepends = gx__keys_is_step(n, 0, GX_WORDS_PREPEND, space);
    x->k->add_space_prefix = prepends;
    if (n->n == 1 + prepends && p->n == 0 && gx__keys_is_step(n, prepends, GX_WORDS_REPLACE, " ") &&
        !strcmp(n->step[prepends].content, space))
        return GX_OK;
    if (n->n == 0 && gx__keys_is_step(p, 0, GX_WORDS_METASPACE, space) &&
        (p->n == 1 || (p->n == 2 && gx__keys_is_step(p, 1, GX_WORDS_BEFORE, space)))) {
        x->k->add_space_prefix = p->step[0].keeps != GX_WORDS_NEVER;
        return GX_OK;
    }
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                   "%s: the normalizer and pre-tokenizer of its tokenizer.json do more than write \xE2\x96\x81 for "
                   "spaces, which a llama tokenizer in a GGUF file cannot express",
                   x->folder);
}

// Moves *cut to the next place that divides the piece into two pieces; 0: there is none. hash: of piece[*cut],
// initially GX_HASH_START.
static int gx__keys_next_cut(const GxPieces *p, const char *piece, int64_t bytes, int64_t *cut, uint64_t *hash)
{
    while (*cut + 1 < bytes) {
        *hash = gx_hash(*hash, piece + *cut, 1), ++*cut;
        if (((unsigned char)piece[*cut] & 0xC0) != 0x80 && gx_pieces_at_hash(p, *hash, piece, *cut) >= 0 &&
            gx_pieces_find(p, piece + *cut, bytes - *cut) >= 0)
            return 1;
    }
    return 0;
}

// The number of ways to divide a piece into two pieces.
static int32_t gx__keys_splits(const GxPieces *p, const char *piece)
{
    uint64_t hash = GX_HASH_START;
    int64_t cut = 0;
    int32_t ways = 0;
    while (gx__keys_next_cut(p, piece, (int64_t)strlen(piece), &cut, &hash)) ways++;
    return ways;
}

// Limits the length of pieces: all divisions are tried, which takes time quadratic in the length.
static GxStatus gx__keys_check_length_of(const char *piece, const char *where, GxError *err)
{
    if (strlen(piece) <= GX__KEYS_LONGEST) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: a token of a llama tokenizer has %ld bytes; at most %d are supported",
                   where, (long)strlen(piece), GX__KEYS_LONGEST);
}

// rank[id]: the place, among all pieces, of the merges that form this one; ways[id]: the number of these merges.
static GxStatus gx__keys_rank(gx__KeysFrom *x, const GxJson *merges, int32_t *rank, int32_t *ways, int32_t *pieces)
{
    const GxPieces *p = &x->v->model.p;
    int32_t last = -1;
    for (int64_t i = 0; i < gx_json_size(merges); i++) {
        char *text = NULL;
        int64_t left;
        GX_TRY(gx__keys_merge_text(gx_json_at(merges, i), &text, &left, x->err));
        memmove(text + left, text + left + 1, strlen(text + left)); // removes the space
        const int32_t id = gx_pieces_find(p, text, (int64_t)strlen(text));
        if (id != last && ways[id])
            GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                    "%s: the merges that make \"%.100s\" are not next to each other; a GGUF file has a score for each "
                    "piece, not for each merge",
                    x->folder, text);
        free(text);
        GX_TRY(gx_error_code(x->err));
        if (id != last) rank[id] = (*pieces)++;
        ways[id]++, last = id;
    }
    return GX_OK;
}

// Scores: 0, -1, -2, … for the pieces that merges form, in the order of the merges; lower ones for the others.
static GxStatus gx__keys_take_scores(gx__KeysFrom *x, const int32_t *rank, const int32_t *ways, int32_t pieces)
{
    GxTokenizerKeys *k = x->k;
    for (int64_t id = 0; id < k->n; id++) {
        if (k->type[id] != GX_TOKEN_TYPE_NORMAL) continue;
        GX_TRY(gx__keys_check_length_of(k->token[id], x->folder, x->err));
        if (ways[id] != gx__keys_splits(&x->v->model.p, k->token[id]))
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                           "%s: \"%.100s\" can be put together from two pieces in %d ways, and merges do so in %d; a "
                           "tokenizer of SentencePiece, as GGUF's llama is, merges all of them",
                           x->folder, k->token[id], gx__keys_splits(&x->v->model.p, k->token[id]), ways[id]);
        k->score[id] = -(float)(ways[id] ? rank[id] : pieces++);
    }
    return GX_OK;
}

static GxStatus gx__keys_take_llama(gx__KeysFrom *x, const GxJson *merges)
{
    int32_t *rank = (int32_t *)calloc(2 * (size_t)x->k->n, sizeof *rank), pieces = 0;
    GxStatus status = gx__keys_take_spaces(x);
    if (status == GX_OK && !rank) status = GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    for (int b = 0; b < 256 && status == GX_OK; b++)
        if (x->v->model.byte[b] < 0)
            status =
                GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                        "%s: the token <0x%02X> is missing; a llama tokenizer must have all such tokens", x->folder, b);
    if (status == GX_OK) status = gx__keys_rank(x, merges, rank, rank + x->k->n, &pieces);
    if (status == GX_OK) status = gx__keys_take_scores(x, rank, rank + x->k->n, pieces);
    free(rank);
    return status;
}

static GxStatus gx__keys_take_kind(gx__KeysFrom *x)
{
    GxTokenizerKeys *k = x->k;
    const int is_bytes = x->t.kind == &gx_byte_tokens;
    GxJson *root = NULL;
    if (!is_bytes && x->t.kind != &gx_bpe)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: a tokenizer of the kind %s; the GGUF file of this model needs BPE", x->folder,
                       x->t.kind->name);
    if (x->t.vocab_size > x->rows)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the tokenizer has %d tokens, but the embedding has %ld rows",
                       x->folder, x->t.vocab_size, (long)x->rows);
    x->v = is_bytes ? NULL : (const GxBpeTokenizer *)x->t.vocabulary;
    const int is_llama = x->v && x->v->model.byte_fallback;
    k->model = is_llama ? "llama" : "gpt2";
    if (x->v) GX_TRY(gx_json_parse(&root, x->v->words.file[0], x->v->words.file_n[0], x->folder, x->err));
    const GxJson *merges = gx_json_get(gx_json_get(root, "model"), "merges");
    GxStatus status = gx__keys_reserve(k, x->rows, is_llama ? 0 : gx_json_size(merges), is_llama, x->err);
    if (status == GX_OK) status = gx__keys_take_tokens(x);
    if (status == GX_OK && is_llama) status = gx__keys_take_llama(x, merges);
    if (status == GX_OK && x->v && !is_llama) status = gx__keys_take_gpt2(x, merges);
    if (is_bytes) k->pre = "gpt-2";
    gx_json_free(root);
    return status;
}

static GxStatus gx__keys_take_folder(gx__KeysFrom *x, int64_t pad)
{
    GX_TRY(gx__keys_take_kind(x));
    GX_TRY(gx__keys_take_frame(x));
    GX_TRY(gx__keys_take_template(x));
    x->k->unk = x->v ? x->v->model.unk : -1;
    x->k->pad = x->t.role[GX_TOKEN_PAD] >= 0 ? x->t.role[GX_TOKEN_PAD] : (int32_t)pad;
    return GX_OK;
}

GxStatus gx_tokenizer_keys_from_folder(GxTokenizerKeys *k, const char *folder, int64_t rows, int64_t pad,
                                       const GxLogger *log, GxError *err)
{
    char path[GX_PATH], config[GX_PATH];
    gx__KeysFrom x = GX_ZERO;
    memset(k, 0, sizeof *k);
    k->model = "none", k->bos = k->eos = k->unk = k->eot = k->eom = -1, k->pad = (int32_t)pad;
    x.k = k, x.folder = folder, x.rows = rows, x.err = err;
    GX_TRY(gx_path_join(path, folder, "tokenizer.json", err));
    GX_TRY(gx_path_join(config, folder, "config.json", err));
    if (gx_path_is_file(config)) GX_TRY(gx_json_read(&x.model_config, config, 1 << 20, err));
    const int is_there = gx_path_is_file(path);
    GxStatus status = is_there ? gx_tokenizer_open(&x.t, path, err) : GX_OK;
    if (status == GX_OK && is_there) status = gx_tokenizer_check_keys(&x.t, folder, log, err);
    if (status == GX_OK && is_there) status = gx_tokenizer_config_read(&x.config, folder, err);
    if (status == GX_OK && is_there) status = gx__keys_take_folder(&x, pad);
    if (status == GX_OK && !is_there)
        k->bos = gx__keys_role(&x, "bos_token", "bos_token_id"),
        k->eos = gx__keys_role(&x, "eos_token", "eos_token_id");
    gx_json_free(x.config);
    gx_json_free(x.model_config);
    gx_tokenizer_close(&x.t);
    return status;
}

// ---- into a GGUF file ----------------------------------------------------------------------------------------------

GxStatus gx_tokenizer_keys_write(const GxTokenizerKeys *k, GxGgufWriter *w, GxError *err)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", k->bos},
               {"tokenizer.ggml.eos_token_id", k->eos},
               {"tokenizer.ggml.unknown_token_id", k->unk},
               {"tokenizer.ggml.padding_token_id", k->pad}};
    gx_gguf_set_string(w, "tokenizer.ggml.model", k->model, err);
    for (int i = 0; i < 4; i++)
        if (ids[i].id >= 0) gx_gguf_set_int(w, ids[i].name, ids[i].id, err);
    if (!k->n) return gx_error_code(err);
    if (k->pre) gx_gguf_set_string(w, "tokenizer.ggml.pre", k->pre, err);
    gx_gguf_set_strings(w, "tokenizer.ggml.tokens", (const char *const *)k->token, k->n, err);
    gx_gguf_set_ints(w, "tokenizer.ggml.token_type", k->type, k->n, err);
    if (k->score) gx_gguf_set_floats(w, "tokenizer.ggml.scores", k->score, k->n, err);
    else gx_gguf_set_strings(w, "tokenizer.ggml.merges", (const char *const *)k->merge, k->merges, err);
    gx_gguf_set_bool(w, "tokenizer.ggml.add_bos_token", k->add_bos, err);
    gx_gguf_set_bool(w, "tokenizer.ggml.add_eos_token", k->add_eos, err);
    if (k->score) gx_gguf_set_bool(w, "tokenizer.ggml.add_space_prefix", k->add_space_prefix, err);
    if (k->chat_template) gx_gguf_set_string(w, "tokenizer.chat_template", k->chat_template, err);
    return gx_error_code(err);
}

// ---- from a GGUF file ----------------------------------------------------------------------------------------------

static GxStatus gx__keys_take_text(char **out, const GxGguf *g, const GxGgufKey *key, int64_t i, GxError *err)
{
    int64_t bytes;
    const char *text = gx_gguf_string_at(g, key, i, &bytes);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = text[at] ? gx_utf8_bytes(text + at) : 0;
        if (n == 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: item %ld of %s is not UTF-8, or has a byte of value 0", g->path,
                           (long)i, g->text + key->name.at);
    }
    return gx__keys_copy(out, text, bytes, err);
}

static GxStatus gx__keys_take_id(const GxGguf *g, const char *name, int64_t rows, int32_t *id, GxError *err)
{
    int64_t found = *id;
    GX_TRY(gx_gguf_get_int(g, name, 0, &found, err));
    if (found >= rows)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %ld; there are %ld tokens", g->path, name, (long)found,
                       (long)rows);
    *id = found < 0 ? -1 : (int32_t)found;
    return GX_OK;
}

static GxStatus gx__keys_check_length(const GxGguf *g, const GxGgufKey *k, int64_t rows, GxError *err)
{
    if (!k || k->count == rows) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has %ld items; expected %ld, one for each row of token_embd.weight",
                   g->path, g->text + k->name.at, (long)k->count, (long)rows);
}

// Refuses equal texts, which would become one token.
static GxStatus gx__keys_check_twice(const GxTokenizerKeys *k, const char *path, GxError *err)
{
    GxPieces p = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < k->n && status == GX_OK; i++)
        status = gx_pieces_add(&p, (int32_t)i, k->token[i], (int64_t)strlen(k->token[i]), GX_PIECE_MODEL, err);
    if (status == GX_OK) status = gx_pieces_index(&p, err);
    for (int64_t i = 0; i < k->n && status == GX_OK; i++)
        if (p.at[i] < 0)
            status = GX_FAIL(err, GX_ERR_FORMAT, "%s: token %ld, \"%.100s\", occurs twice", path, (long)i, k->token[i]);
    gx_pieces_close(&p);
    return status;
}

static GxStatus gx__keys_take_lists(GxTokenizerKeys *k, const GxGguf *g, int64_t rows, GxError *err)
{
    const GxGgufKey *tokens = NULL, *types = NULL, *scores = NULL, *merges = NULL;
    const int is_llama = !strcmp(k->model, "llama");
    GX_TRY(gx_gguf_get_array(g, "tokenizer.ggml.tokens", 1, GX_GGUF_STRING, &tokens, err));
    GX_TRY(gx_gguf_get_array(g, "tokenizer.ggml.token_type", 0, GX_GGUF_INT32, &types, err));
    GX_TRY(gx_gguf_get_array(g, "tokenizer.ggml.scores", is_llama, GX_GGUF_FLOAT32, &scores, err));
    GX_TRY(gx_gguf_get_array(g, "tokenizer.ggml.merges", !is_llama, GX_GGUF_STRING, &merges, err));
    GX_TRY(gx__keys_check_length(g, tokens, rows, err));
    GX_TRY(gx__keys_check_length(g, types, rows, err));
    if (is_llama) GX_TRY(gx__keys_check_length(g, scores, rows, err));
    GX_TRY(gx__keys_reserve(k, rows, is_llama ? 0 : merges->count, is_llama, err));
    for (int64_t i = 0; i < rows; i++) {
        char fill[32];
        GX_TRY(gx__keys_take_text(&k->token[i], g, tokens, i, err));
        k->type[i] = types ? (int32_t)gx_gguf_int_at(g, types, i) : GX_TOKEN_TYPE_NORMAL;
        if (is_llama) GX_TRY(gx__keys_check_length_of(k->token[i], g->path, err));
        if (is_llama) k->score[i] = (float)gx_gguf_double_at(g, scores, i);
        if (is_llama && !(k->score[i] == k->score[i]))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the score of token %ld is not a number", g->path, (long)i);
        snprintf(fill, sizeof fill, "[PAD%ld]", (long)i);
        k->filled += k->type[i] == GX_TOKEN_TYPE_UNUSED && !strcmp(k->token[i], fill);
    }
    for (int64_t i = 0; i < k->merges; i++) GX_TRY(gx__keys_take_text(&k->merge[i], g, merges, i, err));
    return gx__keys_check_twice(k, g->path, err);
}

static GxStatus gx__keys_take_model(GxTokenizerKeys *k, const GxGguf *g, GxError *err)
{
    const char *model = "", *pre = "default";
    char cut[GX_TEXT_VALUE], names[100];
    GX_TRY(gx_gguf_get_string(g, "tokenizer.ggml.model", 1, &model, err));
    k->model = !strcmp(model, "gpt2")    ? "gpt2"
               : !strcmp(model, "llama") ? "llama"
               : !strcmp(model, "none")  ? "none"
                                         : NULL;
    if (!k->model)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: the tokenizer is \"%s\"; supported: gpt2, llama, none", g->path,
                       gx_text_cut(model, cut, sizeof cut));
    k->add_bos = k->add_space_prefix = !strcmp(k->model, "llama");
    if (k->add_bos) k->bos = 1, k->eos = 2, k->unk = 0;
    if (strcmp(k->model, "gpt2")) return GX_OK;
    GX_TRY(gx_gguf_get_string(g, "tokenizer.ggml.pre", 0, &pre, err));
    if (!gx__keys_pre(pre))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tokenizer.ggml.pre is \"%s\"; known: %s", g->path,
                       gx_text_cut(pre, cut, sizeof cut), gx__keys_pre_names(names));
    k->pre = gx__keys_pre(pre)->name;
    k->add_bos = gx__keys_pre(pre)->add_bos;
    return GX_OK;
}

GxStatus gx_tokenizer_keys_from_gguf(GxTokenizerKeys *k, const GxGguf *g, int64_t rows, GxError *err)
{
    const char *template_text = NULL;
    memset(k, 0, sizeof *k);
    k->bos = k->eos = k->unk = k->pad = k->eot = k->eom = -1;
    if (rows < 1 || rows > 1 << 24)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: token_embd.weight has %ld rows; 1 to %d are read", g->path, (long)rows,
                       1 << 24);
    GX_TRY(gx__keys_take_model(k, g, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.bos_token_id", rows, &k->bos, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.eos_token_id", rows, &k->eos, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.eot_token_id", rows, &k->eot, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.eom_token_id", rows, &k->eom, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.unknown_token_id", rows, &k->unk, err));
    GX_TRY(gx__keys_take_id(g, "tokenizer.ggml.padding_token_id", rows, &k->pad, err));
    if (!strcmp(k->model, "none")) return GX_OK;
    GX_TRY(gx_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", 0, &k->add_bos, err));
    GX_TRY(gx_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", 0, &k->add_eos, err));
    GX_TRY(gx_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", 0, &k->add_space_prefix, err));
    GX_TRY(gx_gguf_get_string(g, "tokenizer.chat_template", 0, &template_text, err));
    if (template_text) GX_TRY(gx__keys_copy(&k->chat_template, template_text, (int64_t)strlen(template_text), err));
    if ((k->add_bos && k->bos < 0) || (k->add_eos && k->eos < 0))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: texts get a %s token, but there is no tokenizer.ggml.%s_token_id",
                       g->path, k->add_bos && k->bos < 0 ? "bos" : "eos", k->add_bos && k->bos < 0 ? "bos" : "eos");
    return gx__keys_take_lists(k, g, rows, err);
}

// ---- into a folder -------------------------------------------------------------------------------------------------

static int gx__keys_is_fill(const GxTokenizerKeys *k, int64_t id)
{
    char fill[32];
    snprintf(fill, sizeof fill, "[PAD%ld]", (long)id);
    return k->type[id] == GX_TOKEN_TYPE_UNUSED && !strcmp(k->token[id], fill);
}

// Bytes as tokens: the 256 characters that stand for bytes in the order of the bytes, no merges.
static int gx__keys_is_bytes(const GxTokenizerKeys *k)
{
    int same = !strcmp(k->model, "gpt2") && k->merges == 0 && k->n >= 256;
    for (int b = 0; b < 256 && same; b++) {
        char character[3];
        gx_byte_character(b, character);
        same = !strcmp(k->token[b], character);
    }
    for (int64_t i = 256; i < k->n && same; i++) same = gx__keys_is_fill(k, i);
    return same;
}

typedef struct { // two pieces that form one
    float score;
    int32_t id, left, right; // id: the piece; left, right: characters of the two
    int64_t cut;             // bytes of the left one
} gx__KeysPair;

// The order in which transformers sorts them: descending by score, then by the length of the left piece, then of the
// right one.
static int gx__keys_by_score(const void *a, const void *b)
{
    const gx__KeysPair *x = (const gx__KeysPair *)a, *y = (const gx__KeysPair *)b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left > y->left ? -1 : 1;
    if (x->right != y->right) return x->right > y->right ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static GxStatus gx__keys_add_pairs(const GxTokenizerKeys *k, const GxPieces *p, int32_t id, gx__KeysPair **pair,
                                   int64_t *n, int64_t *room, GxError *err)
{
    const char *piece = k->token[id];
    const int64_t bytes = (int64_t)strlen(piece);
    uint64_t hash = GX_HASH_START;
    for (int64_t i = 0; gx__keys_next_cut(p, piece, bytes, &i, &hash);) {
        if (*n == *room) {
            *room = 2 * *room + 1024;
            gx__KeysPair *grown = (gx__KeysPair *)realloc(*pair, (size_t)*room * sizeof *grown);
            if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld merges", (long)*room);
            *pair = grown;
        }
        gx__KeysPair *one = &(*pair)[(*n)++];
        one->score = k->score[id], one->id = id, one->cut = i;
        one->left = gx_text_columns(piece, i), one->right = gx_text_columns(piece + i, bytes - i);
    }
    return GX_OK;
}

static GxStatus gx__keys_put_pairs(const GxTokenizerKeys *k, GxJson *merges, const GxPieces *p, GxError *err)
{
    gx__KeysPair *pair = NULL;
    int64_t n = 0, room = 0;
    GxStatus status = GX_OK;
    for (int64_t id = 0; id < k->n && status == GX_OK; id++)
        if (k->type[id] == GX_TOKEN_TYPE_NORMAL) status = gx__keys_add_pairs(k, p, (int32_t)id, &pair, &n, &room, err);
    if (n > 1) qsort(pair, (size_t)n, sizeof *pair, gx__keys_by_score);
    for (int64_t i = 0; i < n && status == GX_OK; i++) {
        const char *piece = k->token[pair[i].id];
        char *text = (char *)malloc(strlen(piece) + 2);
        if (!text) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
        if (text) snprintf(text, strlen(piece) + 2, "%.*s %s", (int)pair[i].cut, piece, piece + pair[i].cut);
        if (text) status = gx_json_append(merges, gx_json_new_string(text), err);
        free(text);
    }
    free(pair);
    return status;
}

static GxStatus gx__keys_put_merges(const GxTokenizerKeys *k, GxJson *merges, GxError *err)
{
    GxPieces p = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < k->merges && status == GX_OK; i++)
        status = gx_json_append(merges, gx_json_new_string(k->merge[i]), err);
    if (!k->score) return status;
    for (int64_t i = 0; i < k->n && status == GX_OK; i++)
        if (!gx__keys_is_fill(k, i))
            status = gx_pieces_add(&p, (int32_t)i, k->token[i], (int64_t)strlen(k->token[i]), GX_PIECE_MODEL, err);
    if (status == GX_OK) status = gx_pieces_index(&p, err);
    if (status == GX_OK) status = gx__keys_put_pairs(k, merges, &p, err);
    gx_pieces_close(&p);
    return status;
}

static GxStatus gx__keys_put_model(const GxTokenizerKeys *k, GxJson *root, GxError *err)
{
    GxJson *model = gx_json_new_object(), *vocab = gx_json_new_object(), *merges = gx_json_new_array();
    const int is_llama = k->score != NULL;
    gx_json_set(root, "model", model, err);
    gx_json_set(model, "type", gx_json_new_string("BPE"), err);
    gx_json_set(model, "dropout", gx_json_new_null(), err);
    gx_json_set(model, "unk_token", is_llama && k->unk >= 0 ? gx_json_new_string(k->token[k->unk]) : gx_json_new_null(),
                err);
    gx_json_set(model, "continuing_subword_prefix", gx_json_new_null(), err);
    gx_json_set(model, "end_of_word_suffix", gx_json_new_null(), err);
    gx_json_set(model, "fuse_unk", gx_json_new_bool(is_llama), err);
    gx_json_set(model, "byte_fallback", gx_json_new_bool(is_llama), err);
    gx_json_set(model, "ignore_merges", gx_json_new_bool(k->pre && gx__keys_pre(k->pre)->ignore_merges), err);
    gx_json_set(model, "vocab", vocab, err);
    gx_json_set(model, "merges", merges, err);
    for (int64_t i = 0; i < k->n && gx_error_code(err) == GX_OK; i++)
        if (!gx__keys_is_fill(k, i)) gx_json_set(vocab, k->token[i], gx_json_new_int(i), err);
    GX_TRY(gx_error_code(err));
    return gx__keys_put_merges(k, merges, err);
}

static int gx__keys_is_role(const GxTokenizerKeys *k, int64_t id)
{
    return id == k->bos || id == k->eos || id == k->pad || (k->score && id == k->unk);
}

static GxStatus gx__keys_put_added(const GxTokenizerKeys *k, GxJson *root, GxError *err)
{
    static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
    GxJson *added = gx_json_new_array();
    gx_json_set(root, "added_tokens", added, err);
    for (int64_t i = 0; i < k->n && gx_error_code(err) == GX_OK; i++) {
        const int is_special =
            k->type[i] == GX_TOKEN_TYPE_CONTROL || k->type[i] == GX_TOKEN_TYPE_UNKNOWN || gx__keys_is_role(k, i);
        if ((!is_special && k->type[i] != GX_TOKEN_TYPE_USER) || !k->token[i][0]) continue;
        GxJson *token = gx_json_new_object();
        gx_json_append(added, token, err);
        gx_json_set(token, "id", gx_json_new_int(i), err);
        gx_json_set(token, "content", gx_json_new_string(k->token[i]), err);
        for (int n = 0; n < 4; n++) gx_json_set(token, no[n], gx_json_new_bool(0), err);
        gx_json_set(token, "special", gx_json_new_bool(is_special), err);
    }
    return gx_error_code(err);
}

// Parses a component from JSON text, in which %s is replaced.
static GxJson *gx__keys_json(const char *text, GxError *err)
{
    GxJson *out = NULL;
    gx_json_parse(&out, text, (int64_t)strlen(text), "a tokenizer", err);
    return out;
}

static void gx__keys_put_byte_level(const gx__KeysPre *pre, GxJson *root, GxError *err)
{
    static const char level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                                "\"use_regex\":true}";
    static const char split[] = "{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\",\"invert\":false}";
    GxJson *sequence = gx__keys_json("{\"type\":\"Sequence\",\"pretokenizers\":[]}", err),
           *bytes = gx__keys_json(level, err);
    GxJson *list = gx_json_get(sequence, "pretokenizers");
    gx_json_set(root, "normalizer", pre->has_nfc ? gx__keys_json("{\"type\":\"NFC\"}", err) : gx_json_new_null(), err);
    if (pre->has_digits)
        gx_json_append(list, gx__keys_json("{\"type\":\"Digits\",\"individual_digits\":true}", err), err);
    if (pre->words) {
        GxJson *one = gx__keys_json(split, err);
        gx_json_set(gx_json_get(one, "pattern"), "Regex", gx_json_new_string(pre->words), err);
        gx_json_append(list, one, err);
        gx_json_set(bytes, "use_regex", gx_json_new_bool(0), err);
    }
    gx_json_append(list, bytes, err);
    gx_json_set(root, "pre_tokenizer", sequence, err);
    gx_json_set(root, "decoder", gx__keys_json(level, err), err);
}

static void gx__keys_put_spaces(int add_space_prefix, GxJson *root, GxError *err)
{
    static const char normalizer[] = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
                                     "\"\xE2\x96\x81\"},{\"type\":\"Replace\","
                                     "\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}";
    static const char plain[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}";
    static const char decoder[] = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                                  "\"\xE2\x96\x81\"},\"content\":\" \"},"
                                  "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}";
    GxJson *back = gx__keys_json(decoder, err);
    if (add_space_prefix)
        gx_json_append(gx_json_get(back, "decoders"),
                       gx__keys_json("{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", err), err);
    gx_json_set(root, "normalizer", gx__keys_json(add_space_prefix ? normalizer : plain, err), err);
    gx_json_set(root, "pre_tokenizer", gx_json_new_null(), err);
    gx_json_set(root, "decoder", back, err);
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
static void gx__keys_put_part(GxJson *list, const char *what, const char *id, int type, GxError *err)
{
    GxJson *part = gx_json_new_object(), *inner = gx_json_new_object();
    gx_json_set(inner, "id", gx_json_new_string(id), err);
    gx_json_set(inner, "type_id", gx_json_new_int(type), err);
    gx_json_set(part, what, inner, err);
    gx_json_append(list, part, err);
}

static void gx__keys_put_frame(const GxTokenizerKeys *k, GxJson *root, GxError *err)
{
    const int32_t ids[] = {k->add_bos ? k->bos : -1, k->add_eos ? k->eos : -1};
    GxJson *out =
               gx__keys_json("{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[],\"special_tokens\":{}}", err),
           *tokens = gx_json_get(out, "special_tokens");
    for (int text = 0; text < 3; text++) { // a single text; the two of a pair
        GxJson *list = gx_json_get(out, text ? "pair" : "single");
        const int type = text == 2;
        if (ids[0] >= 0) gx__keys_put_part(list, "SpecialToken", k->token[ids[0]], type, err);
        gx__keys_put_part(list, "Sequence", type ? "B" : "A", type, err);
        if (ids[1] >= 0) gx__keys_put_part(list, "SpecialToken", k->token[ids[1]], type, err);
    }
    for (int i = 0; i < 2; i++) {
        if (ids[i] < 0) continue;
        GxJson *one = gx_json_new_object(), *list = gx_json_new_array(), *names = gx_json_new_array();
        gx_json_append(list, gx_json_new_int(ids[i]), err);
        gx_json_append(names, gx_json_new_string(k->token[ids[i]]), err);
        gx_json_set(one, "id", gx_json_new_string(k->token[ids[i]]), err);
        gx_json_set(one, "ids", list, err);
        gx_json_set(one, "tokens", names, err);
        gx_json_set(tokens, k->token[ids[i]], one, err);
    }
    gx_json_set(root, "post_processor", out, err);
}

static GxStatus gx__keys_put_document(const GxTokenizerKeys *k, GxJson *root, GxError *err)
{
    gx_json_set(root, "version", gx_json_new_string("1.0"), err);
    gx_json_set(root, "truncation", gx_json_new_null(), err);
    gx_json_set(root, "padding", gx_json_new_null(), err);
    GX_TRY(gx__keys_put_added(k, root, err));
    if (k->score) gx__keys_put_spaces(k->add_space_prefix, root, err);
    else gx__keys_put_byte_level(gx__keys_pre(k->pre), root, err);
    if (k->add_bos || k->add_eos) gx__keys_put_frame(k, root, err);
    else gx_json_set(root, "post_processor", gx_json_new_null(), err);
    GX_TRY(gx_error_code(err));
    return gx__keys_put_model(k, root, err);
}

static GxStatus gx__keys_put_config(const GxTokenizerKeys *k, GxJson *root, int64_t max_length, GxError *err)
{
    const struct {
        const char *name;
        int32_t id;
    } roles[] = {{"bos_token", k->bos}, {"eos_token", k->eos}, {"unk_token", k->unk}, {"pad_token", k->pad}};
    gx_json_set(root, "tokenizer_class", gx_json_new_string("PreTrainedTokenizerFast"), err);
    gx_json_set(root, "clean_up_tokenization_spaces", gx_json_new_bool(0), err);
    gx_json_set(root, "model_max_length", gx_json_new_int(max_length), err);
    for (int i = 0; i < 4; i++)
        if (roles[i].id >= 0) gx_json_set(root, roles[i].name, gx_json_new_string(k->token[roles[i].id]), err);
    return gx_error_code(err);
}

GxStatus gx_tokenizer_keys_to_folder(const GxTokenizerKeys *k, const char *folder, int64_t max_length, GxError *err)
{
    char path[2][GX_PATH];
    GxTokenizer t = gx_tokenizer_bytes();
    if (!k->n) return GX_OK;
    if (gx__keys_is_bytes(k)) return gx_tokenizer_write(&t, folder, err);
    GX_TRY(gx_path_join(path[0], folder, "tokenizer.json", err));
    GX_TRY(gx_path_join(path[1], folder, "tokenizer_config.json", err));
    GxJson *root = gx_json_new_object(), *config = gx_json_new_object();
    GxStatus status = gx__keys_put_document(k, root, err);
    if (status == GX_OK) status = gx_json_write(root, path[0], err);
    if (status == GX_OK) status = gx__keys_put_config(k, config, max_length, err);
    if (status == GX_OK) status = gx_json_write(config, path[1], err);
    gx_json_free(root);
    gx_json_free(config);
    if (status == GX_OK && k->chat_template) {
        status = gx_path_join(path[1], folder, "chat_template.jinja", err);
        if (status == GX_OK) status = gx_file_write(path[1], k->chat_template, (int64_t)strlen(k->chat_template), err);
    }
    if (status == GX_OK) status = gx_tokenizer_open(&t, folder, err); // finds errors in it now
    if (status == GX_OK) gx_tokenizer_close(&t);
    return status;
}
#endif
