// task/dpo.h: direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290): a model learns which of two
// completions of a prompt is preferred.
//
//     ./train_llama --task dpo --model sft --train_data pairs.jsonl --tuning lora
//
//     logp(y) = sum of the log-probabilities of the tokens of y after the prompt, its end token included
//     h       = (logp - logp_ref)(chosen) - (logp - logp_ref)(rejected)
//     loss    = mean over pairs of -log(sigmoid(beta h))
//
// Pairs: data/pairs.h. A sample of seq_len tokens holds whole pairs, both texts of each, as many as fit (--pack_pairs
// false: one pair); attention does not cross texts. A pair is never divided among ranks or micro-batches, because the
// factor of a token's gradient depends on all four sums (logp and logp_ref of both texts) of its pair. So the head
// computes the losses of all rows before any gradient (model/head.h, target.weighing), and its logits twice; the rest
// of the model runs once, as in any training.
//
// The reference is the model at the start of the run, including an adapter that the run starts with (--adapter). A new
// adapter adds nothing at first, so the reference is then the base. logp_ref is computed once, before the first step,
// by a forward pass over all pairs, which takes as long as validating them. It is kept as one number per text and saved
// with checkpoints: a resumed run has the same bits, whatever has become of the original model. There is no dropout.
//
// The end of the file is held out. A validation has the loss and, with TRL's names, rewards/chosen and rewards/rejected
// (the mean over pairs of beta (logp - logp_ref)), rewards/margins (their difference) and rewards/accuracies (the
// fraction of pairs whose chosen text has the larger reward; equal ones do not count). log.jsonl also has those of the
// training.
//
// Each machine reads its own copy of the file, which must be identical: ranks compare a hash of its tokens.
#ifndef GX_DPO_H
#define GX_DPO_H
#include "../data/packing.h"
#include "../data/pairs.h"
#include "chat_format.h"
#include "show_data.h"
#include "task.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct { // sums over pairs
    double chosen, rejected, right, pairs;
} GxDpoRewards;

typedef struct {
    // options
    char train_data[GX_PATH], tokenizer_path[GX_PATH], chat_template[GX_PATH], chat_date[GX_CHAT_DATE];
    double validation_fraction, beta;
    int pack_pairs, skip_bad_records;
    int64_t show_data;
    // identity of the data, which a checkpoint keeps
    int64_t pairs_n, pairs_hash;
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxTokenizer tokenizer;
    GxTaskChat chat;
    GxRecordReading records;
    GxBadRecords skipped;
    GxPairs pairs;                   // those from pairs_n on are held out
    GxPacking train, held_out;       // which pairs each sample holds
    double *reference;               // [2 pairs.n] logp_ref: chosen, rejected, chosen, …
    int has_reference, is_reference; // logp_ref is known; the current forward computes it
    // batches
    int64_t T, samples, all_samples; // samples of a micro-batch: on this rank, and on all ranks
    GxWeighing weighing;
    double *sums; // [T * samples], at the row where a text begins: its logp, then the factor of its rows' gradients
    GxDpoRewards trained, validated;
    int counts;      // gx_counts_samples: this rank's pairs count in the metrics
    GxTaskBatch one; // the batch that computes the reference
} GxDpo;

extern const GxTask gx_dpo; // its self is a GxDpo

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DPO_IMPLEMENTED)
#define GX_DPO_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../comm/comm.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

#define GX__DPO_AT(field) offsetof(GxDpo, field)
static const GxField gx__dpo_options[] = {
    {"train_data", GX_FIELD_PATH, GX__DPO_AT(train_data), "",
     "preference pairs, .jsonl, .csv or .tsv: prompt, chosen and rejected are strings, or in .jsonl lists of messages; "
     "without a prompt, the common beginning of chosen and rejected is the prompt",
     NULL},
    GX_SKIP_BAD_RECORDS(GX__DPO_AT(skip_bad_records)),
    {"dpo_beta", GX_FIELD_DOUBLE, GX__DPO_AT(beta), "0.1",
     "DPO's beta, the penalty for moving away from the reference, which is the model at the start of the run; the "
     "larger, the closer the model stays to it",
     "0.000001..1000"},
    {"tokenizer", GX_FIELD_PATH, GX__DPO_AT(tokenizer_path), "",
     "folder with a tokenizer.json, or that file, or bytes (a token for each byte); empty: the model's own tokenizer, "
     "or bytes for a new model",
     NULL},
    {"chat_template", GX_FIELD_LONG_TEXT, GX__DPO_AT(chat_template), "auto",
     "format of the messages. auto: the chat template of the tokenizer's or the model's folder (it is executed); a "
     "file: the template in it; or one of " GX_CHAT_NAMES,
     NULL},
    GX_CHAT_DATE_OPTION(GX__DPO_AT(chat_date)),
    {"pack_pairs", GX_FIELD_BOOL, GX__DPO_AT(pack_pairs), "true",
     "put several pairs into a sample; they do not attend to each other", NULL},
    {"show_data", GX_FIELD_INT, GX__DPO_AT(show_data), "0",
     "print this many samples of the training data (the first ones in the order of --seed 1234), with the tokens "
     "trained on between ⟦ and ⟧",
     "0..1000000"},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__DPO_AT(validation_fraction), "0.05",
     "fraction of the pairs held out for validation, taken from the end; 0: none", "0..0.9"},
};
static const char *const gx__dpo_own[] = {"train_data", "tokenizer", NULL};
static const GxField gx__dpo_identity[] = {
    {"pairs", GX_FIELD_INT, GX__DPO_AT(pairs_n), NULL, "that are trained on", "0.."},
    {"pairs_hash", GX_FIELD_HASH, GX__DPO_AT(pairs_hash), NULL, "of their tokens, and of those that are held out",
     NULL},
    {"tokenizer", GX_FIELD_STRING, GX__DPO_AT(tokenizer_name), NULL, "which ids the texts have", NULL},
};
// A good learning rate for an adapter is about ten times that for the whole model (Schulman 2025, "LoRA without
// regret").
static const GxTaskDefaults gx__dpo_defaults = {1e-6, 1e-5, 1};

// ---- the file ------------------------------------------------------------------------------------------------------

static GxStatus gx__dpo_pack(const GxDpo *c, GxPacking *p, int64_t first, int64_t last, GxError *err)
{
    int64_t *length = (int64_t *)malloc((size_t)(last - first + 1) * sizeof *length);
    if (!length) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to pack %ld pairs", (long)(last - first));
    for (int64_t i = first; i < last; i++)
        length[i - first] = c->pack_pairs ? c->pairs.begin[2 * i + 2] - c->pairs.begin[2 * i] : c->T;
    const GxStatus status = gx_packing_make(p, length, last - first, c->T, err);
    for (int64_t i = 0; status == GX_OK && i < last - first; i++) p->text[i] += first;
    free(length);
    return status;
}

static GxStatus gx__dpo_divide(GxDpo *c, GxError *err)
{
    const int64_t n = c->pairs.n, held_out = (int64_t)ceil(c->validation_fraction * (double)n);
    if (held_out >= n)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %ld pair%s: none would be left to train on; give more, or --validation_fraction 0",
                       c->train_data, (long)n, gx_text_s(n));
    c->pairs_n = n - held_out;
    GX_TRY(gx__dpo_pack(c, &c->train, 0, c->pairs_n, err));
    return held_out ? gx__dpo_pack(c, &c->held_out, c->pairs_n, n, err) : GX_OK;
}

// ---- the reference in a folder -------------------------------------------------------------------------------------

#define GX__DPO_FILE "dpo_reference.tsv" // a line about the pairs, then one for each: logp_ref of chosen and rejected
enum { GX__DPO_CAP = 1 << 30 };

static void gx__dpo_first_line(const GxDpo *c, char line[120])
{
    snprintf(line, 120, "# pairs %ld, hash 0x%016lx\n", (long)c->pairs.n, (unsigned long)c->pairs_hash);
}

static GxStatus gx__dpo_write(const void *self, const char *folder, GxError *err)
{
    const GxDpo *c = (const GxDpo *)self;
    char path[GX_PATH], line[120], *text = NULL;
    size_t bytes = 0;
    GX_TRY(gx_tokenizer_write(&c->tokenizer, folder, err));
    GX_TRY(gx_chat_save(c->pairs.conversations ? c->chat.reading.format : NULL, &c->tokenizer, folder, err));
    if (!c->has_reference) return GX_OK;
    GX_TRY(gx_path_join(path, folder, GX__DPO_FILE, err));
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", path);
    gx__dpo_first_line(c, line);
    fputs(line, out);
    for (int64_t i = 0; i < c->pairs.n; i++)
        fprintf(out, "%.17g\t%.17g\n", c->reference[2 * i], c->reference[2 * i + 1]);
    const GxStatus status = fclose(out) == 0 ? gx_file_write(path, text, (int64_t)bytes, err)
                                             : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", path);
    free(text);
    return status;
}

// Reads logp_ref. *found: the file exists and is about these pairs.
static GxStatus gx__dpo_read_file(GxDpo *c, const char *path, int *found, GxError *err)
{
    char line[120], *text;
    int64_t bytes;
    gx__dpo_first_line(c, line);
    GX_TRY(gx_file_read(path, GX__DPO_CAP, &text, &bytes, err));
    char *at = text + strlen(line);
    *found = !strncmp(text, line, strlen(line));
    for (int64_t i = 0; i < 2 * c->pairs.n && *found && !gx_error_code(err); i++) {
        char *end;
        c->reference[i] = strtod(at, &end);
        if (end == at || *end != (i % 2 ? '\n' : '\t') || !isfinite(c->reference[i]))
            GX_FAIL(err, GX_ERR_FORMAT,
                    "%s: line %ld does not hold two numbers; the file is damaged: resume another checkpoint", path,
                    (long)(i / 2 + 2));
        at = end + 1;
    }
    free(text);
    return gx_error_code(err);
}

// Reads logp_ref from the checkpoint that is resumed or shown, and broadcasts it.
static GxStatus gx__dpo_read(GxContext *g, GxDpo *c, const GxTaskSetup *setup)
{
    char path[GX_PATH];
    int found = 0, is_resumed = !setup->starts_from_model && !setup->only_shows && setup->model[0];
    GxError *err = &g->error;
    if (g->rank == 0 && !setup->starts_from_model && setup->model[0] &&
        gx_path_join(path, setup->model, GX__DPO_FILE, err) == GX_OK && gx_path_is_file(path))
        gx__dpo_read_file(c, path, &found, err);
    if (g->rank == 0 && is_resumed && !found && !gx_failed(g))
        GX_FAIL(err, GX_ERR_ARGUMENT,
                "%s has the reference's log-probabilities (" GX__DPO_FILE
                ") for other pairs than those of %s: the file or seq_len was different; continue with those that it "
                "was trained on, or begin a new run with --model, or --adapter",
                setup->model, c->train_data);
    int64_t known = found;
    gx_at(g, -1, "reference");
    gx_broadcast(g, GX_AXIS_ALL, 0, &known, 1, GX_I64);
    if (known) gx_broadcast(g, GX_AXIS_ALL, 0, c->reference, 2 * c->pairs.n, GX_F64);
    c->has_reference = known != 0;
    return gx_status(g);
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__dpo_open_pairs(GxContext *g, GxDpo *c)
{
    const char *const what[] = {c->train_data};
    if (!c->train_data[0])
        return GX_FAIL(
            &g->error, GX_ERR_ARGUMENT,
            "--train_data is empty; expected a file of preference pairs: JSON lines with prompt, chosen and rejected");
    c->records = gx_record_reading, c->records.skip = c->skip_bad_records ? &c->skipped : NULL;
    c->chat.reading.records = &c->records;
    GX_TRY(gx_pairs_open(&c->pairs, c->train_data, &c->tokenizer, &c->chat.reading, c->T, gx_threads(g), &g->error));
    gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    c->pairs_hash = (int64_t)c->pairs.hash;
    GX_TRY(gx_task_agree(g, what, &c->pairs_hash, 1));
    c->reference = (double *)calloc(2 * (size_t)c->pairs.n, sizeof *c->reference);
    if (!c->reference) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld pairs", (long)c->pairs.n);
    return gx__dpo_divide(c, &g->error);
}

static void gx__dpo_weigh(void *user, const GxBatch *b, int is_training);

static GxStatus gx__dpo_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxDpo *c = (GxDpo *)self;
    if (setup->label_smoothing > 0)
        return GX_FAIL(
            &g->error, GX_ERR_ARGUMENT,
            "--label_smoothing_factor %g is for the loss of tokens; task dpo compares how likely whole answers "
            "are; leave it out",
            setup->label_smoothing);
    c->T = setup->seq_len, c->samples = setup->samples, c->all_samples = setup->all_samples;
    const size_t rows = (size_t)(c->T * c->samples);
    c->weighing.weigh = gx__dpo_weigh, c->weighing.user = c;
    c->weighing.losses = (float *)calloc(rows, sizeof(float));
    c->weighing.weights = (float *)calloc(rows, sizeof(float));
    c->sums = (double *)calloc(rows, sizeof(double));
    if (!c->weighing.losses || !c->weighing.weights || !c->sums)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld rows", (long)rows);
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    const GxTaskChatRequest request = {c->chat_template, c->tokenizer_path, c->chat_date};
    GX_TRY(gx_task_chat_open(g, &c->chat, &request, &c->tokenizer, setup));
    if (setup->is_dry) return GX_OK;
    GX_TRY(gx__dpo_open_pairs(g, c));
    setup->epoch_samples = c->train.samples;
    if (c->pairs.conversations) gx_task_chat_warn(g, &c->chat, c->pairs.lacks, c->pairs.conversations);
    else gx_task_chat_warn_of_texts(g, &c->chat, c->chat_template, "the pairs are texts, not conversations");
    if (!c->pairs.conversations && !c->chat.date_given) c->chat_date[0] = 0;
    GX_TRY(gx__dpo_read(g, c, setup));
    if (g->rank == 0 && setup->only_shows && !c->has_reference)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s has no " GX__DPO_FILE " of these pairs: the model is its own reference, and its loss log 2",
               setup->model);
    return GX_OK;
}

static void gx__dpo_close(void *self)
{
    GxDpo *c = (GxDpo *)self;
    free(c->weighing.losses), free(c->weighing.weights), free(c->sums), free(c->reference);
    gx_packing_close(&c->train), gx_packing_close(&c->held_out);
    gx_pairs_close(&c->pairs);
    gx_task_chat_close(&c->chat);
    gx_tokenizer_close(&c->tokenizer);
}

// ---- batches -------------------------------------------------------------------------------------------------------

// Tokens and labels [T,B], the begin and end of each token's text [T,B,2], and the number of its text [T,B]: 2 i is the
// chosen one of pair i, 2 i + 1 the rejected one, -1 padding.
static int64_t gx__dpo_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const int64_t rows = b->T * b->B, bytes = gx_task_layout_labels(self, b, block, host_copy);
    b->documents = block ? b->tokens + 2 * rows : NULL;
    b->target[0].weighing = &((const GxDpo *)self)->weighing;
    return bytes + 3 * rows * (int64_t)sizeof(int32_t);
}

typedef struct { // the host copy of a batch
    const int32_t *labels, *documents, *text;
    int64_t B, rows;
} gx__DpoHost;

static gx__DpoHost gx__dpo_host(const GxBatch *b)
{
    gx__DpoHost t;
    t.B = b->B, t.rows = b->T * b->B, t.labels = gx_target_labels(&b->target[0]);
    t.documents = t.labels + t.rows, t.text = t.documents + 2 * t.rows;
    return t;
}

// The row where the text of row r begins; and 1 if r itself is the first row of a pair.
static int64_t gx__dpo_begin(const gx__DpoHost *t, int64_t r) { return t->documents[2 * r] * t->B + r % t->B; }
static int gx__dpo_is_pair(const gx__DpoHost *t, int64_t r)
{
    return t->text[r] >= 0 && t->text[r] % 2 == 0 && gx__dpo_begin(t, r) == r;
}

static void gx__dpo_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const gx__DpoHost t = gx__dpo_host(b);
    (void)self;
    for (int64_t r = 0; r < t.rows; r++) count[0] += gx__dpo_is_pair(&t, r);
}

// Writes text k of pair i into a column, from position `at` on. Returns its length.
static int64_t gx__dpo_put(const GxDpo *c, int64_t i, int k, int64_t at, const GxBlendSample *to, int32_t *text)
{
    const int64_t begin = c->pairs.begin[2 * i + k], n = c->pairs.begin[2 * i + k + 1] - begin;
    for (int64_t t = 0; t < n; t++) {
        const int64_t row = (at + t) * to->stride;
        to->tokens[row] = c->pairs.ids[begin + t];
        to->labels[row] = t + 1 < n && t + 1 >= c->pairs.learned_from[i] ? c->pairs.ids[begin + t + 1] : to->ignored;
        to->documents[2 * row] = (int32_t)at, to->documents[2 * row + 1] = (int32_t)(at + n);
        text[row] = (int32_t)(2 * i + k);
    }
    return n;
}

// Fills a column with sample `number` of p, or with padding only (-1). Returns how much of it is padding.
static int64_t gx__dpo_fill_column(const GxDpo *c, const GxPacking *p, int64_t number, const GxBlendSample *to,
                                   int32_t *text)
{
    int64_t at = 0;
    for (int64_t i = number < 0 ? 0 : p->begin[number]; number >= 0 && i < p->begin[number + 1]; i++) {
        at += gx__dpo_put(c, p->text[i], 0, at, to, text);
        at += gx__dpo_put(c, p->text[i], 1, at, to, text);
    }
    for (int64_t t = at; t < c->T; t++) {
        const int64_t row = t * to->stride;
        to->tokens[row] = 0, to->labels[row] = to->ignored, text[row] = -1;
        to->documents[2 * row] = to->documents[2 * row + 1] = 0;
    }
    return c->T - at;
}

static int64_t gx__dpo_fill_sample(const GxDpo *c, const GxPacking *p, int64_t number, const GxBatch *b,
                                   void *host_copy, int64_t column)
{
    const int64_t rows = b->T * b->B;
    int32_t *tokens = (int32_t *)host_copy + column;
    const GxBlendSample to = {tokens, tokens + rows, (int32_t *)host_copy + 2 * rows + 2 * column, GX_IGNORE_INDEX,
                              b->B};
    return gx__dpo_fill_column(c, p, number, &to, tokens + 4 * rows);
}

// Which sample is number `index` of the training: each epoch has all samples in a pseudo-random order.
static int64_t gx__dpo_number(const GxDpo *c, uint64_t seed, int64_t index)
{
    const int64_t n = c->train.samples;
    return gx_permute(seed, index / n, n, index % n);
}

static GxStatus gx__dpo_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    const GxDpo *c = (const GxDpo *)self;
    (void)g, (void)err;
    b->padding = 0;
    for (int64_t i = 0; i < b->B; i++)
        b->padding += gx__dpo_fill_sample(c, &c->train, gx__dpo_number(c, seed, b->sample + i), b, host_copy, i);
    return GX_OK;
}

static int64_t gx__dpo_held_out(const void *self) { return ((const GxDpo *)self)->held_out.samples; }

static GxStatus gx__dpo_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                      GxError *err)
{
    const GxDpo *c = (const GxDpo *)self;
    (void)g, (void)err;
    for (int64_t i = 0; i < b->B; i++)
        gx__dpo_fill_sample(c, &c->held_out, b->sample + i < samples ? b->sample + i : -1, b, host_copy, i);
    return GX_OK;
}

// ---- the loss ------------------------------------------------------------------------------------------------------

// Sets c->sums, at the row where each text begins, to the text's logp.
static void gx__dpo_add_up(const GxDpo *c, const gx__DpoHost *t)
{
    memset(c->sums, 0, (size_t)t->rows * sizeof *c->sums);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->labels[r] != GX_IGNORE_INDEX) c->sums[gx__dpo_begin(t, r)] -= (double)c->weighing.losses[r];
}

// -log(sigmoid(x)), and its derivative
static double gx__dpo_loss(double x) { return x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x; }
static double gx__dpo_slope(double x) { return -1 / (1 + exp(x)); }

// Returns the loss of a pair whose texts begin at rows r and s, and replaces their logp in c->sums by the factors of
// their rows' losses (a row's loss is -log-probability of its label).
static double gx__dpo_pair(GxDpo *c, GxDpoRewards *sum, int64_t pair, int64_t r, int64_t s)
{
    const double chosen = c->beta * (c->sums[r] - c->reference[2 * pair]),
                 rejected = c->beta * (c->sums[s] - c->reference[2 * pair + 1]), x = chosen - rejected;
    sum->chosen += chosen, sum->rejected += rejected, sum->right += chosen > rejected, sum->pairs++;
    c->sums[r] = -c->beta * gx__dpo_slope(x), c->sums[s] = -c->sums[r];
    return gx__dpo_loss(x);
}

static void gx__dpo_keep_reference(GxDpo *c, const gx__DpoHost *t)
{
    for (int64_t r = 0; r < t->rows; r++)
        if (t->text[r] >= 0 && gx__dpo_begin(t, r) == r && c->counts) c->reference[t->text[r]] = c->sums[r];
    memset(c->weighing.losses, 0, (size_t)t->rows * sizeof(float));
    memset(c->weighing.weights, 0, (size_t)t->rows * sizeof(float));
}

static void gx__dpo_weigh(void *user, const GxBatch *b, int is_training)
{
    GxDpo *c = (GxDpo *)user;
    const gx__DpoHost t = gx__dpo_host(b);
    GxDpoRewards sum = GX_ZERO, *of = is_training ? &c->trained : &c->validated;
    gx__dpo_add_up(c, &t);
    if (c->is_reference) {
        gx__dpo_keep_reference(c, &t);
        return;
    }
    for (int64_t r = 0; r < t.rows; r++) {
        c->weighing.losses[r] = 0;
        if (gx__dpo_is_pair(&t, r)) // the rejected text follows the chosen one
            c->weighing.losses[r] =
                (float)gx__dpo_pair(c, &sum, t.text[r] / 2, r, t.documents[2 * r + 1] * t.B + r % t.B);
    }
    for (int64_t r = 0; r < t.rows; r++)
        c->weighing.weights[r] = t.labels[r] != GX_IGNORE_INDEX ? (float)c->sums[gx__dpo_begin(&t, r)] : 0;
    if (!c->counts) return;
    of->chosen += sum.chosen, of->rejected += sum.rejected, of->right += sum.right, of->pairs += sum.pairs;
}

// ---- the reference -------------------------------------------------------------------------------------------------

static void gx__dpo_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxDpo *c = (GxDpo *)self;
    (void)m;
    c->counts = gx_counts_samples(g);
    gx_task_batch_allocate(g, &c->one, T, c->samples, gx__dpo_layout, c);
}

static void gx__dpo_sum(GxContext *g, double *x, int64_t n)
{
    gx_at(g, -1, "reference");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, x, n, GX_F64);
}

// Runs the reference on all samples of p, distributed over the ranks. Returns 0 if it was stopped or failed.
static int gx__dpo_refer(GxContext *g, GxDpo *c, const GxPacking *p, const GxForward *forward)
{
    GxBatch *b = &c->one.b;
    int64_t first = 0, rank = gx_group_index(g, GX_AXIS_DP), before[GX_MAX_PARTS] = GX_ZERO;
    if (rank < GX_MAX_PARTS) before[rank] = c->samples;
    gx_at(g, -1, "reference");
    gx_all_reduce(g, GX_AXIS_DP, GX_SUM, before, gx_min(gx_group_size(g, GX_AXIS_DP), GX_MAX_PARTS), GX_I64);
    for (int64_t r = 0; r < rank && r < GX_MAX_PARTS; r++) first += before[r];
    for (int64_t row = 0; row < p->samples && !gx_failed(g); row += c->all_samples) {
        if (forward->stop && forward->stop(forward->stop_user)) return 0;
        for (int64_t i = 0; i < b->B; i++)
            gx__dpo_fill_sample(c, p, row + first + i < p->samples ? row + first + i : -1, b, c->one.host, i);
        gx_to_device(g, c->one.block, c->one.host, c->one.bytes);
        forward->run(g, forward->user, b, NULL);
    }
    return !gx_failed(g);
}

enum { GX__DPO_BLOCK = 1024 }; // numbers that are summed over the ranks at a time

static GxStatus gx__dpo_prepare(GxContext *g, void *self, const GxForward *forward)
{
    GxDpo *c = (GxDpo *)self;
    if (!g->device->computes) {
        double block[GX__DPO_BLOCK];
        forward->run(g, forward->user, &c->one.b, NULL);
        gx__dpo_sum(g, block, GX__DPO_BLOCK);
        return gx_status(g);
    }
    if (c->has_reference) return GX_OK;
    c->is_reference = 1;
    const int is_whole = gx__dpo_refer(g, c, &c->train, forward) && gx__dpo_refer(g, c, &c->held_out, forward);
    c->is_reference = 0;
    for (int64_t i = 0; is_whole && i < 2 * c->pairs.n && !gx_failed(g); i += GX__DPO_BLOCK)
        gx__dpo_sum(g, c->reference + i, gx_min(GX__DPO_BLOCK, 2 * c->pairs.n - i));
    c->has_reference = is_whole && !gx_failed(g);
    return gx_status(g);
}

// ---- metrics -------------------------------------------------------------------------------------------------------

static void gx__dpo_see(GxContext *g, void *self, const GxBatch *b)
{
    const GxDpoRewards none = GX_ZERO;
    (void)g;
    if (!b) ((GxDpo *)self)->validated = none;
}

// The metrics as means over the pairs of all ranks; sum NULL: only their names. Returns how many.
static int gx__dpo_rewards(GxContext *g, const GxDpoRewards *sum, GxMetric *metric)
{
    double x[4] = GX_ZERO;
    if (sum) x[0] = sum->chosen, x[1] = sum->rejected, x[2] = sum->right, x[3] = sum->pairs;
    if (sum) gx__dpo_sum(g, x, 4);
    for (int i = 0; i < 3; i++) x[i] /= x[3] > 0 ? x[3] : 1;
    const GxMetric rewards[] = {{"rewards/chosen", "reward of chosen %.4f", x[0], 0},
                                {"rewards/rejected", "of rejected %.4f", x[1], 0},
                                {"rewards/margins", "margin %.4f", x[0] - x[1], 1},
                                {"rewards/accuracies", "accuracy %.4f", x[2], 1}};
    memcpy(metric, rewards, sizeof rewards);
    return 4;
}

static int gx__dpo_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    const GxMetric loss = {"loss", "loss %.4f", gx_losses_mean(losses, 0), -1};
    metric[0] = loss;
    return 1 + gx__dpo_rewards(g, losses ? &((GxDpo *)self)->validated : NULL, metric + 1);
}

static int gx__dpo_progress(GxContext *g, void *self, GxMetric metric[GX_MAX_METRICS])
{
    GxDpo *c = (GxDpo *)self;
    const GxDpoRewards none = GX_ZERO;
    const int n = gx__dpo_rewards(g, &c->trained, metric);
    c->trained = none;
    return n;
}

// ---- for people ----------------------------------------------------------------------------------------------------

static void gx__dpo_show(const void *self, FILE *out)
{
    const GxDpo *c = (const GxDpo *)self;
    const int64_t T = c->T;
    int32_t *tokens = c->show_data ? (int32_t *)malloc((size_t)(5 * T) * sizeof *tokens) : NULL;
    if (tokens) fprintf(out, "of a sample's documents the first, third, … are chosen, the others rejected\n");
    for (int64_t i = 0; tokens && i < c->show_data; i++) {
        const GxBlendSample to = {tokens, tokens + T, tokens + 2 * T, GX_IGNORE_INDEX, 1};
        gx__dpo_fill_column(c, &c->train, gx__dpo_number(c, GX_SHOW_SEED, i), &to, tokens + 4 * T);
        gx_show_sample(out, &c->tokenizer, &to, T, i);
    }
    free(tokens);
}

static void gx__dpo_describe(const void *self, FILE *out)
{
    const GxDpo *c = (const GxDpo *)self;
    const GxPairs *p = &c->pairs;
    const int64_t samples = c->train.samples, tokens = p->begin[2 * c->pairs_n];
    fprintf(out, "data: %s: %ld preference pair%s", c->train_data, (long)p->records, gx_text_s(p->records));
    if (p->conversations && c->chat.reading.format) fprintf(out, ", format %s", gx_chat_name(c->chat.reading.format));
    fprintf(out, "; tokens: %s, %.1fk, %.1f%% of them learned; %ld sample%s of %ld tokens, %.1f%% full, of %.2f pair%s",
            c->tokenizer_name, (double)p->begin[2 * p->n] / 1e3, 100 * (double)p->learned / (double)p->begin[2 * p->n],
            (long)samples, gx_text_s(samples), (long)c->T, 100 * (double)tokens / (double)(samples * c->T),
            (double)c->pairs_n / (double)samples, c->pairs_n == samples ? "" : "s");
    if (p->n > c->pairs_n)
        fprintf(out, "; %ld pair%s held out", (long)(p->n - c->pairs_n), p->n - c->pairs_n == 1 ? " is" : "s are");
    fprintf(out, "\n");
    if (p->left_out)
        fprintf(out, "  %ld pair%s left out: both texts together are longer than a sample (--seq_len)\n",
                (long)p->left_out, p->left_out == 1 ? " is" : "s are");
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_dpo = {
    "dpo", // name
    {
        // options
        sizeof(GxDpo),              // size
        GX_FIELDS(gx__dpo_options), // fields, n_fields
        gx__dpo_own,                // own
        &gx__dpo_defaults,          // defaults
        NULL,                       // reading
    },
    {
        // loss
        1,               // n
        NULL,            // names
        "pairs",         // counted
        "nats per pair", // unit
        NULL,            // best_metric
    },
    {
        // data
        gx__dpo_open,     // open
        gx__dpo_close,    // close
        NULL,             // head
        gx__dpo_describe, // describe
        gx__dpo_show,     // show
        gx__dpo_prepare,  // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__dpo_identity), // identity, n_identity
        // elsewhere
        "on other pairs, or with another tokenizer, validation_fraction, chat template or --chat_date",
        gx__dpo_write, // write
        NULL,          // changed
    },
    {
        // batch
        gx__dpo_allocate,      // allocate
        gx__dpo_layout,        // layout
        gx__dpo_fill,          // fill
        gx__dpo_counts,        // counts
        gx__dpo_held_out,      // held_out
        gx__dpo_fill_held_out, // fill_held_out
        gx__dpo_see,           // see
        NULL,                  // stands_alone
    },
    {
        // metrics
        gx__dpo_metrics,  // compute
        gx__dpo_progress, // progress
        NULL,             // baseline
        NULL,             // lacks
        NULL,             // confusion
    },
    {
        // output
        NULL, // sample
        NULL, // predicts
        NULL, // predict
    },
};
#endif
