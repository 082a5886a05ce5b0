// words_files.h: reads and writes the files of tokenizers of words (words.h): tokenizer.json in the format of Hugging
// Face's libraries. The models' own parts: bpe_files.h, unigram_files.h; to open and use a tokenizer: tokenizer.h.
//
// Supported are the normalizers NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Strip, Prepend, Replace; the
// pre-tokenizers ByteLevel, Split (Isolated, Removed or MergedWithPrevious), WhitespaceSplit, Digits, Metaspace; the
// post-processors ByteLevel, TemplateProcessing and RobertaProcessing; the decoders ByteLevel, Replace, ByteFallback,
// Fuse, Strip, Metaspace; a Sequence of any of them, or null. Anything else is refused by name.
//
// gx_tokenizer_write writes the files as they were read, byte for byte; those of a tokenizer that was made here
// (data/bpe_train.h) in the format of gx_json_dump.
#ifndef GX_WORDS_FILES_H
#define GX_WORDS_FILES_H
#include "tokenizer_config.h"
#include "words.h"
#include "words_added.h"
#include "words_decode.h"
#include "words_encode.h"
#include "words_reading.h"
GX_BEGIN

// Fills in model, p, unk, byte_fallback and content of x->v, which is the first member of the kind's own struct.
typedef GxStatus (*GxWordsReadModel)(GxWordsReading *x, const GxJson *model);
// Opens a tokenizer; bytes: the size of its kind's own struct. After an error nothing is open.
GxStatus gx_words_open(GxTokenizer *t, const GxTokenizerKind *kind, int64_t bytes, GxWordsReadModel read_model,
                       const GxTokenizerSource *from, int is_made, GxError *err);
// The functions of a GxTokenizerKind (tokenizer_kind.h).
void gx_words_close(GxTokenizer *t);
const char *gx_words_piece(const GxTokenizer *t, int32_t id, char room[8]);
int32_t gx_words_find(const GxTokenizer *t, const char *piece);
int gx_words_is_special(const GxTokenizer *t, int32_t id);
int gx_words_continues(const GxTokenizer *t, int32_t id);
GxStatus gx_words_write(const GxTokenizer *t, const char *folder, GxError *err);
void gx_words_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_FILES_IMPLEMENTED)
#define GX_WORDS_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "words_frame.h"
#include "words_steps.h"

enum { GX__WORDS_CAP = 64 << 20, GX__WORDS_LONGEST = 1 << 16, GX__WORDS_FILES = 4 };
// The files that are kept: the first, which every tokenizer has, and those of the others that exist.
static const char *const gx__words_files[GX__WORDS_FILES] = {"tokenizer.json", "tokenizer_config.json",
                                                             "special_tokens_map.json", "chat_template.jinja"};

// The special token of this name; -1: there is none.
static int32_t gx__words_special(const GxWords *v, const char *name)
{
    const int32_t id = gx_words_id_of(v, name, (int64_t)strlen(name));
    return id >= 0 && v->p->flags[id] & GX_PIECE_SPECIAL ? id : -1;
}

// Reads the tokens in tokenizer_config.json that callers ask for by role; the frame of texts comes from the file's own
// template. The first files of RoBERTa, XLM-R and BART name none: transformers' classes know these names.
static GxStatus gx__words_read_roles(GxWordsReading *x)
{
    GxTokenizer *t = x->t;
    const struct {
        int32_t *id;
        const char *key;
    } known[] = {
        {&t->role[GX_TOKEN_PAD], "pad_token"}, {&t->role[GX_TOKEN_MASK], "mask_token"}, {&t->end, "eos_token"}};
    for (int i = 0; i < 3; i++) {
        const char *said = gx_tokenizer_config_token(x->from->config, known[i].key);
        if (said) *known[i].id = gx_words_id_of(x->v, said, (int64_t)strlen(said));
    }
    if (t->role[GX_TOKEN_MASK] < 0) t->role[GX_TOKEN_MASK] = gx__words_special(x->v, "<mask>");
    if (t->role[GX_TOKEN_PAD] < 0 && t->role[GX_TOKEN_MASK] >= 0)
        t->role[GX_TOKEN_PAD] = gx__words_special(x->v, "<pad>");
    t->role[GX_TOKEN_UNK] = x->v->unk;
    return GX_OK;
}

static GxStatus gx__words_make_files(GxWordsReading *x)
{
    const GxJson *root[] = {x->from->json, x->from->config};
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_json_dump(root[i], 2, &x->v->file[i], &x->v->file_n[i], x->err));
        if (x->v->file_n[i] > GX__WORDS_CAP)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                           "%s: %s would have %ld bytes, but at most %d could be read again", x->path,
                           gx__words_files[i], (long)x->v->file_n[i], GX__WORDS_CAP);
    }
    return GX_OK;
}

static GxStatus gx__words_read_files(GxWordsReading *x)
{
    char folder[GX_PATH], path[GX_PATH];
    gx_path_parent(folder, x->path);
    for (int i = 0; i < GX__WORDS_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__words_files[i], x->err));
        if (i == 3) GX_TRY(gx_tokenizer_template_path(path, folder, x->err));
        if (i > 0 && !gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(i ? path : x->path, GX__WORDS_CAP, &x->v->file[i], &x->v->file_n[i], x->err));
    }
    return GX_OK;
}

static uint64_t gx__words_hash_steps(uint64_t hash, const GxWordSteps *steps)
{
    for (int i = 0; i < steps->n; i++) {
        const GxWordStep *s = &steps->step[i];
        const int64_t numbers[] = {s->kind, s->keeps, s->text_n, s->content_n};
        hash = gx_hash(hash, numbers, sizeof numbers);
        if (s->text) hash = gx_hash(hash, s->text, s->text_n);
        if (s->content) hash = gx_hash(hash, s->content, s->content_n);
    }
    return hash;
}

// The identity: a hash of everything that affects ids.
static void gx__words_identify(GxWordsReading *x)
{
    const GxWords *v = x->v;
    const GxPieces *p = v->p;
    const int64_t settings[] = {v->added_n,       v->normalizer.n,  v->pre_tokenizer.n,
                                x->t->frame[0].n, x->t->frame[1].n, (int64_t)v->content};
    uint64_t hash = gx_hash(v->model->hash(v, GX_HASH_START), settings, sizeof settings);
    hash = gx__words_hash_steps(gx__words_hash_steps(hash, &v->normalizer), &v->pre_tokenizer);
    hash = gx_hash(hash, x->t->frame, sizeof x->t->frame);
    for (int i = 0; i < v->added_n; i++) {
        const GxWordAdded *a = &v->added[i];
        const int64_t token[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip};
        hash = gx_hash(hash, token, sizeof token);
    }
    for (int32_t id = 0; id < p->size; id++) {
        const char *piece = p->at[id] < 0 ? "" : p->text + p->at[id];
        const int64_t is_model = p->at[id] < 0 ? -1 : p->flags[id] & GX_PIECE_MODEL;
        hash = gx_hash(gx_hash(hash, &is_model, sizeof is_model), piece, gx_pieces_bytes(p, id) + 1);
    }
    snprintf(x->t->identity, sizeof x->t->identity, "%s-%ld-%016lx", v->model->name, (long)p->size,
             (unsigned long)hash);
}

static GxStatus gx__words_finish(GxWordsReading *x)
{
    x->t->vocab_size = x->v->p->size;
    x->t->longest = gx_words_longest(x->v);
    x->t->tokens_for_byte = gx_words_tokens_for_byte(x->v);
    if (x->t->longest > GX__WORDS_LONGEST || x->t->tokens_for_byte > GX__WORDS_LONGEST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: a byte may become %d tokens, and a token %d bytes of text; at most %d are supported",
                       x->path, x->t->tokens_for_byte, x->t->longest, GX__WORDS_LONGEST);
    gx__words_identify(x);
    return GX_OK;
}

static GxStatus gx__words_read(GxWordsReading *x, GxWordsReadModel read_model)
{
    GxJson *model = NULL;
    GX_TRY(gx_json_get_object(x->from->json, "model", 1, &model, x->path, x->err));
    GX_TRY(read_model(x, model));
    GX_TRY(gx_words_read_steps(x));
    GX_TRY(gx_words_read_added(x));
    GX_TRY(gx_words_read_frame(x));
    GX_TRY(gx__words_read_roles(x));
    GX_TRY(x->is_made ? gx__words_make_files(x) : gx__words_read_files(x));
    return gx__words_finish(x);
}

void gx_words_close(GxTokenizer *t)
{
    GxWords *v = (GxWords *)t->vocabulary;
    if (v) {
        for (int i = 0; i < v->added_n; i++) free(v->added[i].pattern);
        for (int i = 0; i < GX__WORDS_FILES; i++) free(v->file[i]);
        free(v->added);
        gx_words_steps_close(&v->normalizer);
        gx_words_steps_close(&v->pre_tokenizer);
        gx_words_steps_close(&v->decoder);
        if (v->model) v->model->close(v);
    }
    free(v);
    memset(t, 0, sizeof *t);
}

GxStatus gx_words_open(GxTokenizer *t, const GxTokenizerKind *kind, int64_t bytes, GxWordsReadModel read_model,
                       const GxTokenizerSource *from, int is_made, GxError *err)
{
    GxWordsReading x = GX_ZERO;
    memset(t, 0, sizeof *t);
    t->kind = kind;
    for (int i = 0; i < GX_TOKEN_ROLES; i++) t->role[i] = -1;
    t->end = -1;
    t->vocabulary = calloc(1, (size_t)bytes);
    x.t = t, x.v = (GxWords *)t->vocabulary, x.from = from, x.path = from->path, x.err = err, x.is_made = is_made;
    const GxStatus status =
        x.v ? gx__words_read(&x, read_model) : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    if (status != GX_OK) gx_words_close(t);
    return status;
}

// ---- the kind ------------------------------------------------------------------------------------------------------

GxStatus gx_words_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    // used if there is no such file; the second with the tokens that gx__words_read_roles has found by their names
    static const char *const configs[] = {"{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
                                          "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                          "  \"pad_token\": \"<pad>\",\n  \"mask_token\": \"<mask>\"\n}\n"};
    const GxWords *v = (const GxWords *)t->vocabulary;
    const int32_t pad = gx__words_special(v, "<pad>"), mask = gx__words_special(v, "<mask>");
    const char *config =
        configs[pad >= 0 && mask >= 0 && t->role[GX_TOKEN_PAD] == pad && t->role[GX_TOKEN_MASK] == mask];
    char path[GX_PATH];
    for (int i = 0; i < GX__WORDS_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__words_files[i], err));
        if (v->file[i]) GX_TRY(gx_file_write(path, v->file[i], v->file_n[i], err));
        else if (i == 1) GX_TRY(gx_file_write(path, config, (int64_t)strlen(config), err));
    }
    return GX_OK;
}

const char *gx_words_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    return (void)room, gx_pieces_text(((const GxWords *)t->vocabulary)->p, id);
}
int32_t gx_words_find(const GxTokenizer *t, const char *piece)
{
    return gx_words_id_of((const GxWords *)t->vocabulary, piece, (int64_t)strlen(piece));
}
int gx_words_is_special(const GxTokenizer *t, int32_t id)
{
    return (((const GxWords *)t->vocabulary)->p->flags[id] & GX_PIECE_SPECIAL) != 0;
}

// 1: a piece of the model that does not begin with a space, that is, with neither Ġ nor ▁.
int gx_words_continues(const GxTokenizer *t, int32_t id)
{
    const GxPieces *p = ((const GxWords *)t->vocabulary)->p;
    const char *piece = gx_pieces_text(p, id);
    return piece && p->flags[id] == GX_PIECE_MODEL && strncmp(piece, "\xC4\xA0", 2) != 0 &&
           strncmp(piece, "\xE2\x96\x81", 3) != 0;
}

void gx_words_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE])
{
    const GxPieces *p = ((const GxWords *)a->vocabulary)->p, *q = ((const GxWords *)b->vocabulary)->p;
    gx_pieces_difference(p, q, "the same pieces, but other merges, scores, settings or added tokens", out,
                         GX_TOKENIZER_DIFFERENCE);
}
#endif
