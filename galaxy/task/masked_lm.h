// task/masked_lm.h: BERT's pre-training: predicting the masked tokens of plain text, and with --nsp also whether the
// second of two texts follows the first (next sentence prediction).
//
//     ./train_bert --task masked_lm --train_data data/bert/pretrain.txt --tokenizer data/tokenizer
//
// The text (sentences.h) has a sentence per line and empty lines between documents; whole documents at its end are held
// out.
//
// A sample is a column of the batch. It holds as many texts as fit, without attention between them (text_batch.h;
// --packing false: one). A text is [CLS] ... [SEP], or what else the tokenizer puts around a text, with as many
// consecutive sentences of a document as fit. With --nsp a sample is one pair [CLS] A [SEP] B [SEP], made as in BERT's
// original code, anew in each epoch.
//
// Masks (token_masks.h) are a function of (seed, number of the sample, position), so each pass over the text masks
// other tokens. Memory is planned for the most tokens that can be masked in a column.
//
// Held-out texts have the same masks and pairs in every validation. The loss is the sum of two means: over the masked
// tokens, and over the pairs, of a window. accuracy and nsp_accuracy are the fractions of masked tokens and of pairs
// that are predicted correctly. The baseline is the loss of predicting each token by its frequency.
//
// Each machine reads its own copy of text and tokenizer, which must be identical: ranks compare hashes of both.
#ifndef GX_MASKED_LM_H
#define GX_MASKED_LM_H
#include "sentence_file.h"
#include "task.h"
#include "text_batch.h"
#include "text_tokenizer.h"
#include "token_masks.h"
GX_BEGIN

typedef struct { // the texts of a part, for training or held out
    GxSentenceList list;
    GxTextPacking packed; // without nsp: the list's texts in columns
    int32_t *length;      // [list.n] tokens of each text, for `packed`
    GxPairing pairing;    // with nsp
    int64_t epoch;        // the one whose pairs are in the list; -1: none
    int64_t first;        // the number of its first sample
    int64_t samples;      // of the held-out part
} GxMaskedLmPart;

typedef struct {             // buffers of the sample
    void *block, *host_copy; // of a batch of one column
    GxRows logits;           // [GX_MASKED_LM_SHOWN, vocabulary]
    void *logits_host;
} GxMaskedLmShow;

typedef struct {
    // options
    char train_data[GX_PATH], tokenizer_folder[GX_PATH], split_special_tokens[GX_FIELD_TEXT];
    double validation_fraction, mlm_probability, short_seq_probability;
    int whole_word_mask, nsp, packing;
    int64_t sample_lines;
    // identity of the data, which a checkpoint keeps besides some of the options
    GxSentenceFile file;
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxHeadRequest head;
    GxTokenizer tokenizer;
    GxTextLayout layout;
    int64_t seq_len;
    GxMaskedLmPart train, held_out;
    int32_t *ids, *types, *labels; // [seq_len] of the text that is being written
    // of the sample, and of a validation
    GxMaskedLmShow show;
    GxRows pairs; // [samples of a batch, 2]: outputs of target 1
    void *pairs_host;
    int64_t right, right_pairs, pairs_judged; // this rank's: correct masked tokens, correct pairs, all pairs
    int has_warned;                           // about a validation without masks
} GxMaskedLm;

extern const GxTask gx_masked_lm; // its self is a GxMaskedLm

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MASKED_LM_IMPLEMENTED)
#define GX_MASKED_LM_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../ops/elementwise.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

enum { GX_MASKED_LM_SHOWN = 8 };                          // masks of a line that a sample shows
enum { GX__MASKED_LM_HELD_OUT_SEED = 20181011 };          // of its masks and pairs
enum { GX__MASKED_LM_TRAIN = 0, GX__MASKED_LM_VALIDATE }; // numbers of sites

#define GX__MASKED_LM_AT(field) offsetof(GxMaskedLm, field)
static const GxField gx__masked_lm_options[] = {
    {"train_data", GX_FIELD_PATH, GX__MASKED_LM_AT(train_data), "data/bert/pretrain.txt",
     "text file: a sentence per line, empty lines between documents (`make data-bert` makes the default file)", NULL},
    {"tokenizer", GX_FIELD_PATH, GX__MASKED_LM_AT(tokenizer_folder), "",
     "folder of a tokenizer that frames texts, such as a WordPiece one (./tokenize --train makes one); empty: the "
     "model's",
     NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__MASKED_LM_AT(split_special_tokens)),
    {"validation_fraction", GX_FIELD_DOUBLE, GX__MASKED_LM_AT(validation_fraction), "0.05",
     "fraction of the text held out for validation (its last documents)", "0..0.9"},
    {"mlm_probability", GX_FIELD_DOUBLE, GX__MASKED_LM_AT(mlm_probability), "0.15",
     "probability that a token is masked", "0..1"},
    {"whole_word_mask", GX_FIELD_BOOL, GX__MASKED_LM_AT(whole_word_mask), "false",
     "mask all pieces of a word or none of them", NULL},
    {"packing", GX_FIELD_BOOL, GX__MASKED_LM_AT(packing), "true",
     "put several short texts into a sample (only without --nsp)", NULL},
    {"nsp", GX_FIELD_BOOL, GX__MASKED_LM_AT(nsp), "false",
     "also train next-sentence prediction, on pairs of texts: does the second follow the first?", NULL},
    {"short_seq_probability", GX_FIELD_DOUBLE, GX__MASKED_LM_AT(short_seq_probability), "0.1",
     "with --nsp: probability that a pair is made shorter than seq_len allows", "0..1"},
    {"sample_lines", GX_FIELD_INT, GX__MASKED_LM_AT(sample_lines), "3",
     "number of held-out texts shown at the end with the model's predictions; 0: none", "0..1000"},
};
static const char *const gx__masked_lm_losses[] = {"mlm_loss", "nsp_loss"};
static const char *const gx__masked_lm_own[] = {"train_data", "tokenizer", NULL};
static const GxField gx__masked_lm_identity[] = {
    {"text_hash", GX_FIELD_HASH, GX__MASKED_LM_AT(file.hash), NULL, "of the text", NULL},
    {"train_tokens", GX_FIELD_INT, GX__MASKED_LM_AT(file.train_tokens), NULL, "of the training part", "0.."},
    {"tokenizer", GX_FIELD_STRING, GX__MASKED_LM_AT(tokenizer_name), NULL, "which ids the text has", NULL},
    {"mlm_probability", GX_FIELD_DOUBLE, GX__MASKED_LM_AT(mlm_probability), NULL, "probability that a token is masked",
     "0..1"},
    {"short_seq_probability", GX_FIELD_DOUBLE, GX__MASKED_LM_AT(short_seq_probability), NULL, "of a pair", "0..1"},
    {"whole_word_mask", GX_FIELD_BOOL, GX__MASKED_LM_AT(whole_word_mask), NULL, "of words, not of pieces", NULL},
    {"packing", GX_FIELD_BOOL, GX__MASKED_LM_AT(packing), NULL, "several texts in a sample", NULL},
    {"nsp", GX_FIELD_BOOL, GX__MASKED_LM_AT(nsp), NULL, "pairs of texts", NULL},
};

// ---- opening -------------------------------------------------------------------------------------------------------

static int64_t gx__masked_lm_frame_tokens(const GxMaskedLm *c)
{
    return gx_tokenizer_frame_tokens(&c->tokenizer, c->nsp ? 2 : 1);
}
static int64_t gx__masked_lm_room(const GxMaskedLm *c)
{
    return c->seq_len - gx__masked_lm_frame_tokens(c);
} // of words

static GxStatus gx__masked_lm_check(GxContext *g, const GxMaskedLm *c, const GxTaskSetup *setup)
{
    static const char *const of_bert[] = {"[CLS] and [SEP] with two tokens of text between them",
                                          "[CLS] and two texts, each with [SEP] after it,"},
                             *const of_others[] = {"the tokenizer's frame and two tokens of text",
                                                   "the tokenizer's frame and two texts"};
    const char *const *what = *gx_text_frame_name(&c->tokenizer) == '[' ? of_bert : of_others;
    if (c->tokenizer.role[GX_TOKEN_MASK] < 0)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the tokenizer %s has no token [MASK], which masked tokens become; `./tokenize --train` makes "
                       "one that has it",
                       c->tokenizer_name);
    if (gx__masked_lm_room(c) < 2)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s is %ld; %s need at least %ld; use a larger one",
                       gx_task_length_name(setup), (long)c->seq_len, what[c->nsp],
                       (long)(gx__masked_lm_frame_tokens(c) + 2));
    if (c->mlm_probability <= 0)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "mlm_probability is 0, so no token would ever be masked; it must be above 0");
    return GX_OK;
}

// Sets head and layout, which a dry run needs, too.
static void gx__masked_lm_set_up(GxMaskedLm *c)
{
    c->head.kind = GX_HEAD_MASKED, c->head.with_pairs = c->nsp;
    c->layout.pad = (int32_t)gx_max(0, c->tokenizer.role[GX_TOKEN_PAD]);
    c->layout.targets = c->nsp ? 2 : 1;
    c->layout.target[0].most = gx_mask_most(c->seq_len, c->mlm_probability);
    c->layout.target[1].most = 1;
    c->train.epoch = -1;
    c->train.pairing.most = gx__masked_lm_room(c);
    c->train.pairing.short_probability = c->short_seq_probability;
    c->held_out.pairing = c->train.pairing;
    c->held_out.pairing.seed = GX__MASKED_LM_HELD_OUT_SEED;
}

static GxStatus gx__masked_lm_read(GxContext *g, GxMaskedLm *c)
{
    GX_TRY(gx_sentence_file_open(g, &c->file, c->train_data, &c->tokenizer, gx__masked_lm_room(c)));
    if (c->nsp && c->file.sentences.documents < 2)
        return GX_FAIL(&g->error, GX_ERR_FORMAT,
                       "%s is one document, but --nsp needs several to take sentences from that do not follow: put "
                       "empty lines between documents, or leave out --nsp",
                       c->train_data);
    return gx_sentence_file_divide(g, &c->file, &c->tokenizer, c->validation_fraction);
}

// With nsp: makes the held-out pairs. Those of the training are made when their epoch begins.
static GxStatus gx__masked_lm_pair_up(GxContext *g, GxMaskedLm *c)
{
    const GxSentences *s = &c->file.sentences;
    const int64_t held_out = s->documents - s->train_documents;
    if (s->train_documents < 2 || held_out == 1)
        return GX_FAIL(&g->error, GX_ERR_FORMAT,
                       "%s has %ld document%s, of which --validation_fraction %g holds out %ld; --nsp needs at least "
                       "two in each part to take sentences from that do not follow: put more empty lines between "
                       "documents, or use another --validation_fraction (0: none)",
                       c->train_data, (long)s->documents, gx_text_s(s->documents), c->validation_fraction,
                       (long)held_out);
    if (!held_out) return GX_OK;
    return gx_sentences_pairs(s, s->train_documents, s->documents, &c->held_out.pairing, &c->held_out.list, &g->error);
}

// Without nsp: makes the texts of documents [first, last), and packs them into columns.
static GxStatus gx__masked_lm_pack(GxContext *g, const GxMaskedLm *c, GxMaskedLmPart *part, int64_t first, int64_t last)
{
    const GxSentences *s = &c->file.sentences;
    GxSentenceList *list = &part->list;
    if (first == last) return GX_OK;
    GX_TRY(gx_sentences_blocks(s, first, last, gx__masked_lm_room(c), list, &g->error));
    part->length = (int32_t *)malloc((size_t)list->n * sizeof *part->length);
    if (!part->length)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the lengths of %ld texts", (long)list->n);
    const int32_t frame = (int32_t)gx__masked_lm_frame_tokens(c);
    for (int64_t i = 0; i < list->n; i++)
        part->length[i] = (int32_t)gx_sentences_length(s, list->text[i].a, list->text[i].a_n) + frame;
    return gx_text_packing_open(&part->packed, part->length, list->n, c->seq_len, c->packing ? 0 : 1, &g->error);
}

static GxStatus gx__masked_lm_lay_out(GxContext *g, GxMaskedLm *c)
{
    const GxSentences *s = &c->file.sentences;
    GxMaskedLmPart *held_out = &c->held_out;
    if (c->nsp) {
        GX_TRY(gx__masked_lm_pair_up(g, c));
        held_out->samples = held_out->list.n;
        return GX_OK;
    }
    GX_TRY(gx__masked_lm_pack(g, c, &c->train, 0, s->train_documents));
    GX_TRY(gx__masked_lm_pack(g, c, held_out, s->train_documents, s->documents));
    if (held_out->list.n) held_out->samples = gx_text_packing_columns(&held_out->packed, GX__MASKED_LM_HELD_OUT_SEED);
    return GX_OK;
}

// Makes the pairs of the epoch that sample `number` belongs to.
static GxStatus gx__masked_lm_turn_to(GxMaskedLm *c, uint64_t seed, int64_t number, GxError *err)
{
    GxMaskedLmPart *p = &c->train;
    if (p->epoch < 0 || seed != p->pairing.seed || number < p->first) p->epoch = -1, p->first = 0, p->list.n = 0;
    p->pairing.seed = seed;
    while (p->epoch < 0 || number >= p->first + p->list.n) {
        p->first += p->list.n;
        p->pairing.epoch = (uint64_t)++p->epoch;
        GX_TRY(
            gx_sentences_pairs(&c->file.sentences, 0, c->file.sentences.train_documents, &p->pairing, &p->list, err));
    }
    return GX_OK;
}

static GxStatus gx__masked_lm_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    c->seq_len = setup->seq_len;
    if (setup->repeats_epoch)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "--tuning side_only needs the same samples in each epoch, but --task masked_lm masks other "
                       "tokens each time; use --tuning side");
    GX_TRY(gx_text_open_tokenizer(g, &c->tokenizer, c->tokenizer_folder, setup));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    GX_TRY(gx__masked_lm_check(g, c, setup));
    gx__masked_lm_set_up(c);
    if (setup->is_dry) return GX_OK;
    c->ids = (int32_t *)malloc(3 * (size_t)c->seq_len * sizeof *c->ids);
    if (!c->ids) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a text of %ld tokens", (long)c->seq_len);
    c->types = c->ids + c->seq_len, c->labels = c->types + c->seq_len;
    GX_TRY(gx__masked_lm_read(g, c));
    GX_TRY(gx__masked_lm_lay_out(g, c));
    if (setup->only_shows) return GX_OK;
    if (c->nsp) GX_TRY(gx__masked_lm_turn_to(c, setup->seed, 0, &g->error));
    setup->epoch_samples = c->nsp ? c->train.list.n : gx_text_packing_columns(&c->train.packed, setup->seed);
    return GX_OK;
}

static void gx__masked_lm_close(void *self)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    GxMaskedLmPart *const parts[] = {&c->train, &c->held_out};
    for (int i = 0; i < 2; i++) {
        gx_text_packing_close(&parts[i]->packed);
        gx_sentence_list_close(&parts[i]->list);
        free(parts[i]->length);
        parts[i]->length = NULL;
    }
    gx_sentence_file_close(&c->file);
    gx_tokenizer_close(&c->tokenizer);
    free(c->ids);
    c->ids = NULL;
}

static const GxHeadRequest *gx__masked_lm_head(const void *self) { return &((const GxMaskedLm *)self)->head; }

// Prints the text's path, and its origin, from the file <text>.source beside it.
static void gx__masked_lm_describe(const void *self, FILE *out)
{
    const GxMaskedLm *c = (const GxMaskedLm *)self;
    gx_sentence_file_describe(&c->file, &c->tokenizer, out);
}

static GxStatus gx__masked_lm_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxMaskedLm *)self)->tokenizer, folder, err);
}

// Which of two pairs of sentences it is depends on the first row, behind a dropout of its own.
static int gx__masked_lm_stands_alone(const void *self) { return !((const GxMaskedLm *)self)->nsp; }

static const char *gx__masked_lm_changed(const void *self)
{
    return gx_sentence_file_changed(&((const GxMaskedLm *)self)->file);
}

// ---- samples -------------------------------------------------------------------------------------------------------

// Writes the text with [CLS] and [SEP] into c->ids and c->types. pairing: how pair number i is truncated. Returns the
// number of tokens.
static int64_t gx__masked_lm_frame(GxMaskedLm *c, const GxSentenceText *text, const GxPairing *pairing, int64_t i)
{
    const GxSentences *s = &c->file.sentences;
    int64_t a = s->begin[text->a], a_n = gx_sentences_length(s, text->a, text->a_n), b = s->begin[text->b], b_n = 0,
            n = 0;
    if (text->b_n) b_n = gx_sentences_length(s, text->b, text->b_n);
    if (pairing) gx_sentences_cut_pair(pairing, i, &a, &a_n, &b, &b_n);
    const GxTokenTexts both = {s->token + a, text->b_n ? s->token + b : NULL, a_n, b_n};
    GxError ignored = GX_ZERO; // cannot fail: special tokens and lengths have been checked
    gx_tokenizer_join(&c->tokenizer, &both, c->seq_len, c->ids, c->types, &n, NULL, &ignored);
    return n;
}

typedef struct { // the sample that is being written
    GxMasking masking;
    int64_t number, column, at, left; // at: the next position; left: how many more tokens may be masked
} gx__MaskedLmSample;

static gx__MaskedLmSample gx__masked_lm_sample_of(const GxMaskedLm *c, int site, uint64_t seed, int64_t number,
                                                  int64_t column)
{
    gx__MaskedLmSample s = GX_ZERO;
    s.masking.probability = c->mlm_probability, s.masking.whole_words = c->whole_word_mask;
    s.masking.tokenizer = &c->tokenizer;
    s.masking.seed = seed, s.masking.site = gx_random_site(GX_SITE_MASK, site);
    s.number = number, s.column = column;
    s.left = c->layout.target[0].most;
    return s;
}

// Masks the text c->ids[n], and appends it to the column.
static void gx__masked_lm_put(GxMaskedLm *c, GxTextWriter *w, gx__MaskedLmSample *s, int64_t n)
{
    s->left -= gx_mask_tokens(&s->masking, s->number, s->at, c->ids, c->labels, n, s->left);
    gx_text_put(w, s->column, s->at, c->ids, c->types, n);
    for (int64_t i = 0; i < n; i++)
        if (c->labels[i] != GX_IGNORE_INDEX) gx_text_label(w, 0, s->column, s->at + i, c->labels[i]);
    s->at += n;
}

static void gx__masked_lm_put_packed(GxMaskedLm *c, GxMaskedLmPart *part, GxTextWriter *w, gx__MaskedLmSample *s)
{
    const int64_t *text;
    int64_t n;
    gx_text_packing_column(&part->packed, s->masking.seed, s->number, &text, &n);
    for (int64_t i = 0; i < n; i++)
        gx__masked_lm_put(c, w, s, gx__masked_lm_frame(c, &part->list.text[text[i]], NULL, 0));
}

// Appends the sample's pair; part's list must be that of the sample's epoch.
static void gx__masked_lm_put_pair(GxMaskedLm *c, const GxMaskedLmPart *part, GxTextWriter *w, gx__MaskedLmSample *s)
{
    const GxPairing *how = &part->pairing;
    const int64_t k = gx_permute(how->seed, (int64_t)how->epoch, part->list.n, s->number - part->first);
    gx__masked_lm_put(c, w, s, gx__masked_lm_frame(c, &part->list.text[k], how, k));
    gx_text_label(w, 1, s->column, 0, part->list.text[k].label);
}

static GxStatus gx__masked_lm_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    GxTextWriter w;
    (void)g;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t i = 0; i < b->B; i++) {
        gx__MaskedLmSample s = gx__masked_lm_sample_of(c, GX__MASKED_LM_TRAIN, seed, b->sample + i, i);
        if (c->nsp) GX_TRY(gx__masked_lm_turn_to(c, seed, s.number, err));
        if (c->nsp) gx__masked_lm_put_pair(c, &c->train, &w, &s);
        else gx__masked_lm_put_packed(c, &c->train, &w, &s);
    }
    gx_text_finish(&w);
    return GX_OK;
}

static int64_t gx__masked_lm_held_out(const void *self)
{
    const GxMaskedLm *c = (const GxMaskedLm *)self;
    return c->held_out.samples;
}

// Held-out samples come in a pseudo-random order, so that a part of them represents all.
static GxStatus gx__masked_lm_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                            GxError *err)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    GxTextWriter w;
    (void)g, (void)err;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t i = 0; i < b->B && b->sample + i < samples; i++) {
        gx__MaskedLmSample s =
            gx__masked_lm_sample_of(c, GX__MASKED_LM_VALIDATE, GX__MASKED_LM_HELD_OUT_SEED, b->sample + i, i);
        if (c->nsp) gx__masked_lm_put_pair(c, &c->held_out, &w, &s);
        else gx__masked_lm_put_packed(c, &c->held_out, &w, &s);
    }
    gx_text_finish(&w);
    b->target[0].right = &c->right;
    if (!c->nsp) return GX_OK;
    b->target[1].logits = c->pairs;
    b->target[1].logits.rows = b->target[1].n;
    return GX_OK;
}

static int64_t gx__masked_lm_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    return gx_text_layout(&((const GxMaskedLm *)self)->layout, b, block, host_copy);
}

static void gx__masked_lm_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    gx_text_counts(&((const GxMaskedLm *)self)->layout, b, count);
}

// ---- metrics -------------------------------------------------------------------------------------------------------

static float gx__masked_lm_value(GxRows x, const void *host_copy, int64_t i)
{
    return x.dtype == GX_F32 ? ((const float *)host_copy)[i] : gx_from_bf16(((const uint16_t *)host_copy)[i]);
}

// Counts the correctly predicted pairs.
static void gx__masked_lm_see(GxContext *g, void *self, const GxBatch *b)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    if (!b) c->right = c->right_pairs = c->pairs_judged = 0;
    if (!b || !c->nsp) return;
    const GxTarget *t = &b->target[1];
    gx_to_host(g, c->pairs_host, t->logits.data, gx_rows_bytes(t->logits));
    if (gx_failed(g) || !gx_counts_samples(g) || !g->device->computes) return;
    for (int64_t i = 0; i < t->n; i++) {
        const float follows = gx__masked_lm_value(t->logits, c->pairs_host, 2 * i),
                    does_not = gx__masked_lm_value(t->logits, c->pairs_host, 2 * i + 1);
        c->right_pairs += (does_not > follows) == gx_target_labels(t)[i];
        c->pairs_judged++;
    }
}

// Warns about a validation in which no token was masked: it has no metrics, and cannot be the best one.
static void gx__masked_lm_warn_of_none(GxContext *g, GxMaskedLm *c)
{
    if (c->has_warned || g->rank) return;
    c->has_warned = 1;
    gx_log(
        &g->log, GX_LOG_WARNING,
        "a validation has no masked token, so its loss and accuracy are unknown: it has too few tokens for "
        "--mlm_probability %g; hold out more of the text (--validation_fraction), or increase --max_eval_samples (0: "
        "all samples)",
        c->mlm_probability);
}

static int gx__masked_lm_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    const int64_t tokens = losses ? losses->count[0] : 0;
    const double masked = tokens ? gx_losses_mean(losses, 0) : NAN, pairs = losses ? gx_losses_mean(losses, 1) : 0;
    int64_t seen[3] = {c->right, c->right_pairs, c->pairs_judged};
    int n = 0;
    gx_at(g, -1, "evaluate");
    if (losses) gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, seen, 3, GX_I64);
    if (losses && !tokens) gx__masked_lm_warn_of_none(g, c);
    const GxMetric loss = {"loss", "loss %.4f", masked + pairs, -1}, mlm = {"mlm_loss", "of tokens %.4f", masked, -1},
                   perplexity = {"perplexity", "perplexity %.2f", exp(masked), -1},
                   accuracy = {"accuracy", "accuracy %.4f", tokens ? (double)seen[0] / (double)tokens : NAN, 1},
                   nsp = {"nsp_loss", "of pairs %.4f", pairs, -1},
                   right = {"nsp_accuracy", "%.3f of pairs right", (double)seen[1] / (double)gx_max(1, seen[2]), 1};
    metric[n++] = loss;
    if (c->nsp) metric[n++] = mlm;
    metric[n++] = perplexity;
    metric[n++] = accuracy;
    if (c->nsp) metric[n++] = nsp, metric[n++] = right;
    return n;
}

static const char *gx__masked_lm_lacks(const void *self, const char *metric)
{
    static const char *const pairs[] = {"mlm_loss", "nsp_loss", "nsp_accuracy"};
    (void)self;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(metric, pairs[i])) return "needs --nsp true";
    return NULL;
}

// The loss of predicting each held-out token by its frequency in the training part: the mean of -log((count + 1) /
// (tokens + vocabulary)).
static GxStatus gx__masked_lm_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxMaskedLm *c = (const GxMaskedLm *)self;
    const GxMetric none = {NULL, NULL, 0, 0},
                   unigram = {"unigram_loss", "by token frequency alone: loss %.4f on the held-out part", 0, 0};
    const int32_t *token = c->file.sentences.token;
    const int64_t train = c->file.train_tokens, V = c->tokenizer.vocab_size;
    double sum = 0;
    int64_t all = 0, judged = 0;
    *metric = c->held_out.samples ? unigram : none;
    if (!metric->name) return GX_OK;
    int64_t *count = (int64_t *)calloc((size_t)V, sizeof *count);
    if (!count) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the counts of %ld tokens", (long)V);
    for (int64_t i = 0; i < train; i++)
        if (!gx_tokenizer_is_special(&c->tokenizer, token[i])) count[token[i]]++, all++;
    for (int64_t i = train; i < c->file.sentences.tokens; i++) {
        if (gx_tokenizer_is_special(&c->tokenizer, token[i])) continue;
        sum -= log((double)(count[token[i]] + 1) / (double)(all + V)), judged++;
    }
    free(count);
    metric->value = sum / (double)gx_max(1, judged);
    return GX_OK;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

static GxTextLayout gx__masked_lm_show_layout(const GxMaskedLm *c)
{
    GxTextLayout l = c->layout;
    l.target[0].most = GX_MASKED_LM_SHOWN;
    return l;
}

static void gx__masked_lm_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    GxMaskedLmShow *s = &c->show;
    const GxTextLayout l = gx__masked_lm_show_layout(c);
    GxTextArrays at;
    const int64_t bytes = gx_text_arrays(&l, T, 1, NULL, &at);
    const GxDtype dtype = m->store.dtype;
    gx_text_fit_model(g, &c->layout, &c->tokenizer, m, c->nsp ? 2 : 1);
    if (c->nsp) {
        c->pairs = gx_rows(NULL, dtype, m->max_B, 2);
        c->pairs.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(c->pairs));
        c->pairs_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, c->pairs.data, gx_rows_bytes(c->pairs));
    }
    if (!c->sample_lines) return;
    s->block = gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
    s->host_copy = gx_host_copy(g, GX_MEM_ACTIVATIONS, s->block, bytes);
    s->logits = gx_rows(NULL, dtype, GX_MASKED_LM_SHOWN, gx_model_vocab(m));
    s->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(s->logits));
    s->logits_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, s->logits.data, gx_rows_bytes(s->logits));
}

// Replaces the masked tokens of ids, b's only column, with the model's likeliest ones.
static void gx__masked_lm_guess(GxContext *g, GxMaskedLm *c, const GxForward *forward, const GxTextLayout *l,
                                GxBatch *b, int32_t *ids)
{
    const GxMaskedLmShow *s = &c->show;
    const int64_t V = s->logits.cols;
    GxTextArrays at;
    b->target[0].labels = NULL; // only outputs are needed, no loss
    b->target[1].labels = NULL;
    b->target[0].logits = gx_some_rows(s->logits, 0, b->target[0].n);
    gx_to_device(g, s->block, s->host_copy, gx_text_arrays(l, b->T, b->B, NULL, &at));
    forward->run(g, forward->user, b, NULL);
    gx_to_host(g, s->logits_host, s->logits.data, gx_rows_bytes(b->target[0].logits));
    if (gx_failed(g) || !g->device->computes) return;
    for (int64_t i = 0; i < b->target[0].n; i++) {
        int64_t best = 0;
        for (int64_t v = 1; v < c->tokenizer.vocab_size; v++)
            if (gx__masked_lm_value(s->logits, s->logits_host, i * V + v) >
                gx__masked_lm_value(s->logits, s->logits_host, i * V + best))
                best = v;
        ids[gx_target_rows(&b->target[0])[i]] = (int32_t)best;
    }
}

// Writes the first held-out sentence from *at on that has a masked token as b's only column, with [CLS] and [SEP].
// c->labels: the original tokens. Returns the number of tokens; 0: there is no such sentence.
static int64_t gx__masked_lm_show_line(GxMaskedLm *c, const GxTextLayout *l, GxBatch *b, int64_t *at)
{
    gx__MaskedLmSample s = gx__masked_lm_sample_of(c, GX__MASKED_LM_VALIDATE, GX__MASKED_LM_HELD_OUT_SEED, 0, 0);
    GxTextWriter w;
    int64_t n = 0, masks = 0;
    for (; masks == 0 && *at < c->file.sentences.sentences; ++*at) {
        const GxSentenceText line = {*at, 0, 1, 0, 0};
        n = gx__masked_lm_frame(c, &line, NULL, 0);
        masks = gx_mask_tokens(&s.masking, *at, 0, c->ids, c->labels, n, GX_MASKED_LM_SHOWN);
    }
    gx_text_begin(&w, l, b, c->show.host_copy);
    for (int64_t i = 0; i < n; i++) {
        if (c->labels[i] == GX_IGNORE_INDEX) continue;
        gx_text_label(&w, 0, 0, i, c->labels[i]);
        c->ids[i] = c->tokenizer.role[GX_TOKEN_MASK]; // never a random or unchanged token: readers see what was masked
    }
    gx_text_put(&w, 0, 0, c->ids, NULL, n);
    gx_text_finish(&w);
    return masks ? n : 0;
}

// Prints a line such as "  text     in the beginning\n", without the frame.
static void gx__masked_lm_say(GxContext *g, const GxMaskedLm *c, FILE *out, const char *what, const int32_t *ids,
                              int64_t n)
{
    const int64_t words = n - gx_tokenizer_frame_tokens(&c->tokenizer, 1);
    int64_t bytes = 0;
    char *text = (char *)malloc((size_t)(n * c->tokenizer.longest));
    if (!text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld tokens of text", (long)n);
    else
        gx_tokenizer_decode(&c->tokenizer, ids + gx_tokenizer_frame_before(&c->tokenizer), words, GX_SPECIAL_AS_TOKENS,
                            text, &bytes, &g->error);
    fprintf(out, "  %-8s %.*s\n", what, (int)bytes, text ? text : "");
    free(text);
}

static void gx__masked_lm_show(GxContext *g, GxMaskedLm *c, const GxForward *forward, FILE *out)
{
    const GxTextLayout l = gx__masked_lm_show_layout(c);
    const GxSentences *s = &c->file.sentences;
    const int64_t first = s->document[s->train_documents], all = s->sentences - first;
    for (int64_t line = 0, at = first; line < c->sample_lines && !gx_failed(g); line++) {
        GxBatch b = GX_ZERO;
        if (forward->stop && forward->stop(forward->stop_user)) return;
        b.T = c->seq_len, b.B = 1, b.runs = gx_runs_one(b.T, 0);
        gx_text_layout(&l, &b, c->show.block, c->show.host_copy);
        at = gx_max(at, first + line * all / c->sample_lines);
        const int64_t n = gx__masked_lm_show_line(c, &l, &b, &at);
        if (n == 0) return;
        gx__masked_lm_say(g, c, out, "masked", c->ids, n);
        gx__masked_lm_guess(g, c, forward, &l, &b, c->ids);
        gx__masked_lm_say(g, c, out, "filled", c->ids, n);
        for (int64_t i = 0; i < n; i++)
            if (c->labels[i] != GX_IGNORE_INDEX) c->ids[i] = c->labels[i];
        gx__masked_lm_say(g, c, out, "was", c->ids, n);
    }
}

// For a plan: takes the memory of the sample and of a validation's outputs. Reads no array.
static void gx__masked_lm_dry_run(GxContext *g, GxMaskedLm *c, const GxForward *forward)
{
    const GxTextLayout l = gx__masked_lm_show_layout(c);
    GxBatch b = GX_ZERO;
    b.T = c->seq_len, b.runs = gx_runs_one(b.T, 0);
    if (c->sample_lines) {
        b.B = 1;
        gx_text_layout(&l, &b, c->show.block, c->show.host_copy);
        gx__masked_lm_guess(g, c, forward, &l, &b, NULL);
    }
    if (!c->nsp) return;
    b.B = c->pairs.rows;
    gx_text_layout(&c->layout, &b, c->pairs.data, c->pairs.data);
    b.target[0].labels = b.target[1].labels = NULL;
    b.target[0].logits = gx_no_rows(), b.target[1].logits = c->pairs;
    forward->run(g, forward->user, &b, NULL);
}

static char *gx__masked_lm_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxMaskedLm *c = (GxMaskedLm *)self;
    char *text = NULL;
    size_t bytes;
    (void)seed;
    if (!g->device->computes) gx__masked_lm_dry_run(g, c, forward);
    if (!g->device->computes || c->sample_lines == 0 || c->held_out.samples == 0) return NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample of %ld lines", (long)c->sample_lines);
    else gx__masked_lm_show(g, c, forward, out);
    if (out) fclose(out);
    if (!gx_failed(g)) return text;
    free(text);
    return NULL;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_masked_lm = {
    "masked_lm", // name
    {
        // options
        sizeof(GxMaskedLm),               // size
        GX_FIELDS(gx__masked_lm_options), // fields, n_fields
        gx__masked_lm_own,                // own
        NULL,                             // defaults
        NULL,                             // reading
    },
    {
        // loss
        2,                    // n
        gx__masked_lm_losses, // names
        "tokens",             // counted
        "nats",               // unit
        NULL,                 // best_metric
    },
    {
        // data
        gx__masked_lm_open,     // open
        gx__masked_lm_close,    // close
        gx__masked_lm_head,     // head
        gx__masked_lm_describe, // describe
        NULL,                   // show
        NULL,                   // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__masked_lm_identity), // identity, n_identity
        // elsewhere
        "on another text, with another tokenizer, or with other masks",
        gx__masked_lm_write,   // write
        gx__masked_lm_changed, // changed
    },
    {
        // batch
        gx__masked_lm_allocate,      // allocate
        gx__masked_lm_layout,        // layout
        gx__masked_lm_fill,          // fill
        gx__masked_lm_counts,        // counts
        gx__masked_lm_held_out,      // held_out
        gx__masked_lm_fill_held_out, // fill_held_out
        gx__masked_lm_see,           // see
        gx__masked_lm_stands_alone,  // stands_alone
    },
    {
        // metrics
        gx__masked_lm_metrics,  // compute
        NULL,                   // progress
        gx__masked_lm_baseline, // baseline
        gx__masked_lm_lacks,    // lacks
        NULL,                   // confusion
    },
    {
        // output
        gx__masked_lm_sample, // sample
        NULL,                 // predicts
        NULL,                 // predict
    },
};
#endif
