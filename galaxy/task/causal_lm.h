// task/causal_lm.h: causal language modeling: predicting the next token of plain text.
//
// Data: a text file, JSON lines, a table (CSV, TSV), a folder of texts and JSON lines, a file of tokens, or several of
// these with weights (data/blend.h). The end of each is held out for validation. JSON lines may also be conversations,
// and both JSON lines and tables may hold instructions, or prompts with their completions (data/chat_records.h). Then
// only the assistant's turns are learned, in the format of the model's chat template or of --chat_template
// (data/dataset_chat.h), or only the completions.
// Tokens: those of the tokenizer that an option names, otherwise of the model's; without either, bytes. Attention does
// not cross documents that share a sample (--separate_documents).
// Metrics: the loss per token, and bits per byte of the text, which are comparable across tokenizers. The baseline is a
// bigram model of the text's bytes. At the end the model writes a text.
//
// Each machine reads its own copy of the texts, which must be identical: ranks compare their sizes and a hash of all
// bytes.
#ifndef GX_CAUSAL_LM_H
#define GX_CAUSAL_LM_H
#include "../data/blend.h"
#include "../data/dataset_hash.h"
#include "chat_format.h"
#include "generate.h"
#include "show_data.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH], train_data_weights[GX_FIELD_TEXT];
    double validation_fraction;
    int separate_documents;
    char text_column[GX_FIELD_TEXT], prompt_column[GX_FIELD_TEXT], completion_column[GX_FIELD_TEXT];
    int skip_bad_records;
    char tokenizer_path[GX_PATH];
    char chat_template[GX_PATH], chat_date[GX_CHAT_DATE];
    int64_t show_data;
    int64_t sample_tokens;
    char sample_prompt[GX_FIELD_TEXT];
    double temperature;
    int64_t top_k;
    // identity of the data, which a checkpoint keeps
    int64_t text_bytes, text_hash; // bytes of the training parts; a hash of all texts and of their weights
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxTokenizer tokenizer;
    GxTaskChat chat; // how conversations are read
    GxRecordReading records;
    GxBadRecords skipped;
    GxColumnsUsed columns_used;
    int has_chats;
    GxBlend data;
    GxGenerator generator;
    int64_t seq_len, run_samples;
    int has_documents; // 1: samples may hold several documents, which do not see each other
} GxCausalLm;

extern const GxTask gx_causal_lm; // its self is a GxCausalLm

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CAUSAL_LM_IMPLEMENTED)
#define GX_CAUSAL_LM_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../base/text.h"
#include "../comm/comm.h"
#include "../ops/loss.h"

#define GX__CAUSAL_LM_AT(field) offsetof(GxCausalLm, field)
static const GxField gx__causal_lm_options[] = {
    {"train_data", GX_FIELD_PATH, GX__CAUSAL_LM_AT(train_data), "data/text.txt",
     "what to train on: a text file; records (.jsonl, .csv or .tsv) with the fields text, or instruction, input and "
     "output, or prompt and completion; conversations (.jsonl) with messages or conversations; a folder of .txt and "
     ".jsonl files; a file of tokens (from ./tokenize, or a .bin file of llm.c) or a folder of .bin files; or several "
     "of these: A,B,... (`make data` makes the default file)",
     NULL},
    {"train_data_weights", GX_FIELD_STRING, GX__CAUSAL_LM_AT(train_data_weights), "",
     "with several train_data: share of the samples that comes from each, such as 0.7,0.3 (only the ratio counts); "
     "empty: in proportion to their sizes",
     NULL},
    {"text_column", GX_FIELD_STRING, GX__CAUSAL_LM_AT(text_column), "text",
     "column (in JSON: key) of a record that holds its text", NULL},
    {"prompt_column", GX_FIELD_STRING, GX__CAUSAL_LM_AT(prompt_column), "prompt",
     "column (in JSON: key) of a record that holds its prompt, which the completion follows", NULL},
    {"completion_column", GX_FIELD_STRING, GX__CAUSAL_LM_AT(completion_column), "completion",
     "column (in JSON: key) of a record that holds its completion; all of it is trained on", NULL},
    GX_SKIP_BAD_RECORDS(GX__CAUSAL_LM_AT(skip_bad_records)),
    {"tokenizer", GX_FIELD_PATH, GX__CAUSAL_LM_AT(tokenizer_path), "",
     "folder with a tokenizer.json, or that file, or bytes (a token for each byte); empty: the model's own tokenizer, "
     "or bytes for a new model",
     NULL},
    {"chat_template", GX_FIELD_LONG_TEXT, GX__CAUSAL_LM_AT(chat_template), "auto",
     "format of conversations, of which only what the assistant says is trained on. auto: the chat template of the "
     "tokenizer's or the model's folder (it is executed), or, for instructions without one, Alpaca's format; a file: "
     "the template in it; or one of " GX_CHAT_NAMES,
     NULL},
    GX_CHAT_DATE_OPTION(GX__CAUSAL_LM_AT(chat_date)),
    {"show_data", GX_FIELD_INT, GX__CAUSAL_LM_AT(show_data), "0",
     "print this many samples of the training data (the first ones in the order of --seed 1234), with the tokens "
     "trained on between ⟦ and ⟧; to see them without training: --model FOLDER --sample_only --sample_tokens 0",
     "0..1000000"},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(validation_fraction), "0.05",
     "fraction of the data held out for validation: the end of each text, or its last documents", "0..0.9"},
    {"separate_documents", GX_FIELD_BOOL, GX__CAUSAL_LM_AT(separate_documents), "true",
     "documents that share a sample do not attend to each other, and the last token of one does not predict the first "
     "of the next",
     NULL},
    {"sample_tokens", GX_FIELD_INT, GX__CAUSAL_LM_AT(sample_tokens), "300",
     "tokens of the sample that the model writes at the end of training; 0: no sample", "0..1000000000"},
    {"sample_prompt", GX_FIELD_STRING, GX__CAUSAL_LM_AT(sample_prompt), "In the beginning",
     "text that this sample continues", NULL},
    {"temperature", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(temperature), "0.8",
     "sampling temperature of this sample; 0: always the likeliest token", "0.."},
    {"top_k", GX_FIELD_INT, GX__CAUSAL_LM_AT(top_k), "50", "sample from the k likeliest tokens; 0: from all", "0.."},
};
static const char *const gx__causal_lm_own[] = {"train_data", "tokenizer", NULL};
static const GxField gx__causal_lm_identity[] = {
    {"text_bytes", GX_FIELD_INT, GX__CAUSAL_LM_AT(text_bytes), NULL, "of the training part", "0.."},
    {"text_hash", GX_FIELD_HASH, GX__CAUSAL_LM_AT(text_hash), NULL, "of the text", NULL},
    {"tokenizer", GX_FIELD_STRING, GX__CAUSAL_LM_AT(tokenizer_name), NULL, "which ids the text has", NULL},
};

// ---- the text ------------------------------------------------------------------------------------------------------

static GxStatus gx__causal_lm_differs(GxContext *g, const GxDataset *d, const int64_t mine[2], const int64_t first[2])
{
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: %s is a different text here (%ld bytes, hash %016lx) than on rank 0 (%ld bytes, hash "
                   "%016lx); all ranks need the same one: copy rank 0's",
                   g->rank, d->path, (long)mine[0], (unsigned long)mine[1], (long)first[0], (unsigned long)first[1]);
}

// Checks that this rank's copy of one source is rank 0's. *hash: rank 0's.
static GxStatus gx__causal_lm_agree_on(GxContext *g, const GxDataset *d, uint64_t *hash)
{
    int64_t mine[2] = {d->bytes, 0}, first[2];
    if (d->fd < 0) *hash = gx_dataset_ids_hash(d);
    else gx_dataset_hash(d, gx_threads(g), hash, &g->error);
    first[0] = mine[0], first[1] = mine[1] = (int64_t)*hash;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, 2, GX_I64);
    GX_TRY(gx_status(g));
    *hash = (uint64_t)first[1];
    return memcmp(mine, first, sizeof mine) ? gx__causal_lm_differs(g, d, mine, first) : GX_OK;
}

static GxStatus gx__causal_lm_agree(GxContext *g, GxCausalLm *c)
{
    const GxBlend *b = &c->data;
    int64_t n = b->n;
    uint64_t all = GX_HASH_START;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, &n, 1, GX_I64);
    GX_TRY(gx_status(g));
    if (n != b->n)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "rank %d: --train_data %s has %d source%s of data, but rank 0's has %ld; all ranks need the "
                       "same data: copy rank 0's",
                       g->rank, c->train_data, b->n, gx_text_s(b->n), (long)n);
    c->text_bytes = 0;
    for (int s = 0; s < b->n; s++) {
        uint64_t hash = 0;
        GX_TRY(gx__causal_lm_agree_on(g, &b->source[s], &hash));
        c->text_bytes += b->source[s].train_text.n;
        c->text_hash = (int64_t)hash;
        all = gx_hash(gx_hash(all, &hash, sizeof hash), &b->part[s], sizeof b->part[s]);
    }
    if (b->n > 1) c->text_hash = (int64_t)all;
    return GX_OK;
}

// Sets how records are read, from the options.
static GxStatus gx__causal_lm_name_columns(GxCausalLm *c, GxError *err)
{
    const GxRecordReading r = {c->text_column, c->prompt_column, c->completion_column,
                               c->skip_bad_records ? &c->skipped : NULL, &c->columns_used};
    c->records = r, c->chat.reading.records = &c->records;
    if (!r.text[0] || !r.prompt[0] || !r.completion[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s_column is empty; expected the name of a column",
                       !r.text[0]     ? "text"
                       : !r.prompt[0] ? "prompt"
                                      : "completion");
    if (!strcmp(r.prompt, r.completion))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--prompt_column and --completion_column are both \"%s\"; expected two different columns",
                       r.prompt);
    return GX_OK;
}

static GxStatus gx__causal_lm_open_text(GxContext *g, GxCausalLm *c, const GxTaskSetup *setup)
{
    GX_TRY(gx__causal_lm_name_columns(c, &g->error));
    if (access(c->train_data, F_OK) != 0 && errno == ENOENT && !strchr(c->train_data, ','))
        return GX_FAIL(&g->error, GX_ERR_IO,
                       "cannot open %s: %s; `make data` makes data/text.txt, the default, and --train_data FILE names "
                       "another text",
                       c->train_data, strerror(ENOENT));
    GX_TRY(gx_blend_open(&c->data, c->train_data, c->train_data_weights, &c->tokenizer, &c->chat.reading,
                         c->validation_fraction, setup->seq_len, gx_threads(g), g->rank ? NULL : &g->log, &g->error));
    gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    GX_TRY(gx_record_reading_check(&c->records, c->train_data, &g->error));
    return gx__causal_lm_agree(g, c);
}

static void gx__causal_lm_warn_of_chats(GxContext *g, const GxCausalLm *c)
{
    int64_t lacks[GX_CHAT_LACKS] = {0}, n = 0;
    for (int i = 0; i < c->data.n; i++) {
        n += c->data.source[i].chat.n - c->data.source[i].chat.texts;
        for (int k = 0; k < GX_CHAT_LACKS; k++) lacks[k] += c->data.source[i].chat.lacks[k];
    }
    gx_task_chat_warn(g, &c->chat, lacks, n);
}

static GxStatus gx__causal_lm_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxCausalLm *c = (GxCausalLm *)self;
    c->seq_len = setup->seq_len, c->run_samples = setup->run_samples;
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    const GxTaskChatRequest request = {c->chat_template, c->tokenizer_path, c->chat_date};
    GX_TRY(gx_task_chat_open(g, &c->chat, &request, &c->tokenizer, setup));
    c->has_documents = c->separate_documents && gx_blend_has_documents(c->train_data);
    if (setup->is_dry) return GX_OK;
    GX_TRY(gx__causal_lm_open_text(g, c, setup));
    for (int i = 0; i < c->data.n; i++) {
        c->has_chats |= c->data.source[i].chat.n > c->data.source[i].chat.texts;
        setup->epoch_samples += gx_dataset_epoch_samples(&c->data.source[i], c->seq_len);
    }
    if (setup->epochs > 0) c->run_samples = (int64_t)ceil(setup->epochs * (double)setup->epoch_samples);
    if (c->has_chats) gx__causal_lm_warn_of_chats(g, c);
    else gx_task_chat_warn_of_texts(g, &c->chat, c->chat_template, "the training data are texts, not conversations");
    if (!c->has_chats && !c->chat.date_given) c->chat_date[0] = 0; // or a resumed run would take it for given
    return GX_OK;
}

static void gx__causal_lm_close(void *self)
{
    GxCausalLm *c = (GxCausalLm *)self;
    gx_blend_close(&c->data);
    gx_task_chat_close(&c->chat);
    gx_tokenizer_close(&c->tokenizer);
}

// The origin of a text, from the file <text>.source beside it; "" if there is none.
static void gx__causal_lm_source(const char *text, char source[200])
{
    char path[GX_PATH];
    const int fits = snprintf(path, sizeof path, "%s.source", text) < GX_PATH;
    GxError ignored = GX_ZERO;
    int64_t bytes = 0;
    int fd;
    memset(source, 0, 200);
    if (!fits || gx_file_open(path, &fd, &bytes, &ignored) != GX_OK) return;
    if (gx_file_read_at(fd, path, source, gx_min(bytes, 199), 0, &ignored) != GX_OK) source[0] = 0;
    close(fd);
    source[strcspn(source, "\n")] = 0;
}

static void gx__causal_lm_describe_marks(const GxCausalLm *c, const GxTokenFile *f, FILE *out)
{
    char room[8];
    const char *begins = gx_tokenizer_piece(&c->tokenizer, f->begins, room),
               *ends = gx_tokenizer_piece(&c->tokenizer, f->ends, room);
    if (f->begins >= 0 && begins) fprintf(out, "; documents begin with %s", begins);
    if (f->ends >= 0 && ends) fprintf(out, "%s end with %s", f->begins >= 0 ? " and" : "; documents", ends);
    if (f->begins < 0 && f->ends < 0) fprintf(out, "; without documents: the tokenizer has no token for their ends");
}

static void gx__causal_lm_describe_text(const GxCausalLm *c, const GxDataset *d, FILE *out)
{
    char source[200], all[GX_TEXT_SIZE], last[GX_TEXT_SIZE];
    gx__causal_lm_source(d->path, source);
    fprintf(out, "%s%s%s", d->path, source[0] ? ": " : "", source);
    if (!d->file.is_bin) // a file of tokens does not say how long the text was
        fprintf(out, ", %s, the last %s held out", gx_text_size(d->train_text.n + d->held_out_text.n, all),
                gx_text_size(d->held_out_text.n, last));
    fprintf(out, "; tokens: ");
    if (!d->ids && !d->file.tokens) fprintf(out, "bytes");
    else
        fprintf(out, "%s, %.1fk for training, %.1fk held out", c->tokenizer_name, (double)d->train.n / 1e3,
                (double)d->held_out.n / 1e3);
    if (d->file.documents) fprintf(out, "; %ld document%s", (long)d->file.documents, gx_text_s(d->file.documents));
    if (d->file.has_mask) fprintf(out, "; a mask says which tokens are learned");
    if (d->file.is_bin) gx__causal_lm_describe_marks(c, &d->file, out);
    fprintf(out, "\n");
}

static void gx__causal_lm_count(FILE *out, int64_t n, const char *one, const char *several, const char *what)
{
    if (n > 0) fprintf(out, "  %ld %s %s\n", (long)n, n == 1 ? one : several, what);
}

static void gx__causal_lm_describe_chat(const GxCausalLm *c, const GxDataset *d, FILE *out)
{
    const GxDatasetChat *chat = &d->chat;
    const int64_t T = c->seq_len, samples = d->packed.samples, held_out = d->packed_held_out.samples;
    const int64_t texts = chat->texts, chats = chat->n - texts;
    fprintf(out, "%s: ", d->path);
    if (texts) fprintf(out, "%ld prompt%s with completions", (long)texts, gx_text_s(texts));
    if (chats)
        fprintf(out, "%s%ld conversation%s, format %s", texts ? ", and " : "", (long)chats, gx_text_s(chats),
                c->chat.reading.format ? gx_chat_name(c->chat.reading.format) : "alpaca");
    fprintf(out, "; tokens: %s, %.1fk, %.1f%% of them learned; ", c->tokenizer_name, (double)d->file.tokens / 1e3,
            100 * (double)chat->learned / (double)d->file.tokens);
    fprintf(out, "%ld sample%s of %ld token%s, %.1f%% full", (long)samples, gx_text_s(samples), (long)T, gx_text_s(T),
            100 * (double)d->train.n / (double)(samples * T));
    if (held_out) fprintf(out, ", and %ld held out", (long)held_out);
    fprintf(out, "\n");
    gx__causal_lm_count(out, chat->shortened, "conversation is", "conversations are",
                        "longer than a sample: its last turns are left out");
    gx__causal_lm_count(out, chat->left_out, "answer is", "answers are",
                        "left out: too long for a sample (--seq_len), together with what is answered");
    gx__causal_lm_count(out, chat->unanswered, "conversation ends", "conversations end",
                        "with a user's turn, which is left out");
    const char *ends = c->chat.reading.format ? gx_chat_end(c->chat.reading.format) : "";
    const int32_t end = ends[0] ? gx_tokenizer_find(&c->tokenizer, ends) : -1;
    if (chats && end >= 0 && end != c->tokenizer.end)
        fprintf(
            out,
            "  answers end with %s, which is not the tokenizer's eos_token: generation_config.json of what is saved "
            "has its id, %ld, among eos_token_id\n",
            ends, (long)end);
}

// Prints training samples as the model gets them, in the order of --seed's default; another seed has another order.
static void gx__causal_lm_show(const void *self, FILE *out)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    const int64_t T = c->seq_len;
    int32_t *tokens = c->show_data ? (int32_t *)malloc((size_t)(4 * T) * sizeof *tokens) : NULL;
    for (int64_t i = 0, number; tokens && i < c->show_data; i++) {
        GxError e = GX_ZERO;
        const int s = gx_blend_find(c->data.part, c->data.n, i, &number),
                  has_documents = c->has_documents || c->data.source[s].packed.samples; // documents say what is padding
        const GxBlendSample to = {tokens, tokens + T, has_documents ? tokens + 2 * T : NULL, GX_IGNORE_INDEX, 1};
        if (gx_blend_sample(&c->data, GX_SHOW_SEED, i, T, &to, NULL, &e) == GX_OK)
            gx_show_sample(out, &c->tokenizer, &to, T, i);
        else fprintf(out, "sample %ld: %s\n", (long)i, e.message);
    }
    free(tokens);
}

// Prints which texts there are, and if there are several, how much the run takes from each.
static void gx__causal_lm_describe(const void *self, FILE *out)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    const GxBlend *b = &c->data;
    const int64_t T = c->seq_len;
    int64_t all = 0;
    for (int s = 0; s < b->n; s++) all += b->part[s];
    for (int s = 0; s < b->n; s++) {
        const int64_t windows = gx_dataset_epoch_samples(&b->source[s], T),
                      samples = gx_blend_share(b->part, b->n, s, c->run_samples);
        fprintf(out, "data: ");
        if (b->source[s].packed.samples) gx__causal_lm_describe_chat(c, &b->source[s], out);
        else gx__causal_lm_describe_text(c, &b->source[s], out);
        if (b->n == 1) continue;
        fprintf(out, "  %.2f%% of all samples; %ld window%s of %ld token%s", 100 * (double)b->part[s] / (double)all,
                (long)windows, gx_text_s(windows), (long)T, gx_text_s(T));
        if (c->run_samples) fprintf(out, ", which the run sees %.2f times", (double)samples / (double)windows);
        fprintf(out, "\n");
    }
}

static GxStatus gx__causal_lm_write(const void *self, const char *folder, GxError *err)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    GX_TRY(gx_tokenizer_write(&c->tokenizer, folder, err));
    return gx_chat_save(c->has_chats ? c->chat.reading.format : NULL, &c->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

// Tokens and labels [T,B]; if samples may hold several documents, also the begin and end of each token's document
// [T,B,2].
static int64_t gx__causal_lm_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    const int64_t rows = b->T * b->B, bytes = gx_task_layout_labels(self, b, block, host_copy);
    if (!c->has_documents) return bytes;
    b->documents = block ? b->tokens + 2 * rows : NULL;
    return bytes + 2 * rows * (int64_t)sizeof(int32_t);
}

// Where the arrays of column i are in the host copy.
static GxBlendSample gx__causal_lm_column(const GxCausalLm *c, const GxBatch *b, void *host_copy, int64_t i)
{
    const int64_t rows = b->T * b->B;
    int32_t *tokens = (int32_t *)host_copy + i;
    const GxBlendSample to = {tokens, tokens + rows, c->has_documents ? tokens + 2 * rows + i : NULL, GX_IGNORE_INDEX,
                              b->B};
    return to;
}

static GxStatus gx__causal_lm_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    (void)g;
    b->padding = 0;
    for (int64_t i = 0; i < b->B; i++) {
        const GxBlendSample to = gx__causal_lm_column(c, b, host_copy, i);
        GX_TRY(gx_blend_sample(&c->data, seed, b->sample + i, b->T, &to, &b->padding, err));
    }
    return GX_OK;
}

static int64_t gx__causal_lm_held_out(const void *self)
{
    return gx_blend_eval_samples(&((const GxCausalLm *)self)->data);
}

static GxStatus gx__causal_lm_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                            GxError *err)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    (void)g;
    for (int64_t i = 0; i < b->B; i++) {
        const int64_t w = b->sample + i;
        const GxBlendSample to = gx__causal_lm_column(c, b, host_copy, i);
        GX_TRY(gx_blend_eval_sample(&c->data, w < samples ? w : 0, b->T, &to, err));
        for (int64_t t = 0; w >= samples && t < b->T; t++) to.labels[t * b->B] = GX_IGNORE_INDEX;
    }
    return GX_OK;
}

static int gx__causal_lm_stands_alone(const void *self) { return (void)self, 1; }

static const char *gx__causal_lm_changed(const void *self)
{
    const GxBlend *b = &((const GxCausalLm *)self)->data;
    for (int s = 0; s < b->n; s++)
        if (gx_dataset_changed(&b->source[s])) return b->source[s].path;
    return NULL;
}

// ---- metrics -------------------------------------------------------------------------------------------------------

// Over all held-out parts.
static double gx__causal_lm_tokens_per_byte(const GxBlend *b)
{
    double tokens = 0, bytes = 0;
    for (int s = 0; s < b->n; s++)
        tokens += (double)b->source[s].held_out.n, bytes += (double)b->source[s].held_out_text.n;
    return bytes > 0 ? tokens / bytes : 1;
}

static const char *gx__causal_lm_lacks(const void *self, const char *metric)
{
    const GxBlend *b = &((const GxCausalLm *)self)->data;
    for (int s = 0; s < b->n && !strcmp(metric, "bits_per_byte"); s++) {
        if (b->source[s].file.is_bin)
            return "needs texts whose number of bytes is known, and that of .bin files is not";
        if (b->source[s].file.has_mask)
            return "needs texts of which every token is trained on: how many bytes the tokens of a mask have is not "
                   "known";
    }
    return NULL;
}

static int gx__causal_lm_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    const double loss = losses && losses->count[0] == 0 ? NAN : gx_losses_mean(losses, 0),
                 tokens_per_byte = gx__causal_lm_tokens_per_byte(&((const GxCausalLm *)self)->data);
    const GxMetric nats = {"loss", "loss %.4f", loss, -1},
                   bits = {"bits_per_byte", "%.3f bits per byte", loss / log(2.0) * tokens_per_byte, -1};
    (void)g;
    metric[0] = nats, metric[1] = bits;
    return gx__causal_lm_lacks(self, bits.name) ? 1 : 2;
}

static GxStatus gx__causal_lm_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxBlend *b = &((const GxCausalLm *)self)->data;
    const GxDataset *d = b->n == 1 ? &b->source[0] : NULL;
    const GxMetric none = {NULL, NULL, 0, 0},
                   bigram = {"bigram_bits_per_byte",
                             "a bigram model of this text has %.3f bits per byte on the held-out part", 0, 0};
    *metric = !d || d->file.tokens || d->held_out_text.n < 2 ? none : bigram; // only for a single text
    return metric->name ? gx_dataset_bigram_bits(d, &metric->value, err) : GX_OK;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

static void gx__causal_lm_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxCausalLm *c = (GxCausalLm *)self;
    if (c->sample_tokens) gx_generator_allocate(g, &c->generator, m, T);
}

// Writes the tokens that the tokenizer puts before a text, then the prompt's, to ids[]; *n: how many. If there are none
// at all, a newline's.
static GxStatus gx__causal_lm_prompt(const GxCausalLm *c, int32_t *ids, int64_t *n, GxError *err)
{
    const GxTokenizer *t = &c->tokenizer;
    const GxTokenFrame *frame = &t->frame[0];
    int64_t before = 0, prompt = 0;
    while (before < frame->n && frame->part[before].id >= 0) ids[before] = frame->part[before].id, before++;
    const char *text = c->sample_prompt[0] || before ? c->sample_prompt : "\n";
    GX_TRY(gx_tokenizer_encode(t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TEXT, ids + before, &prompt, err));
    *n = before + prompt;
    return GX_OK;
}

// Writes the prompt and `more` tokens that continue it to ids[], and their text, ending with 0, to text[].
static void gx__causal_lm_go_on(GxContext *g, GxCausalLm *c, const GxForward *forward, uint64_t seed, int64_t more,
                                int32_t *ids, char *text)
{
    const GxSampling sampling = {c->temperature, c->top_k, seed, c->tokenizer.vocab_size, 0, 0, 0};
    int64_t n = 0, bytes = 0;
    gx__causal_lm_prompt(c, ids, &n, &g->error);
    if (!gx_failed(g)) n = gx_generate(g, forward, &c->generator, ids, n, n + more, &sampling);
    if (!gx_failed(g)) gx_tokenizer_decode(&c->tokenizer, ids, n, GX_SPECIAL_AS_TEXT, text, &bytes, &g->error);
    text[bytes] = 0;
}

static char *gx__causal_lm_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxCausalLm *c = (GxCausalLm *)self;
    const int64_t more = g->device->computes ? c->sample_tokens : 1, // for a plan: one takes as much memory as all
        room = gx_tokenizer_most(&c->tokenizer, (int64_t)strlen(c->sample_prompt) + 1) + GX_FRAME_MOST + more;
    if (c->sample_tokens == 0) return NULL;
    int32_t *ids = (int32_t *)malloc((size_t)room * sizeof *ids);
    char *text = (char *)malloc((size_t)(room * c->tokenizer.longest) + 1);
    if (!ids || !text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample of %ld tokens", (long)more);
    else gx__causal_lm_go_on(g, c, forward, seed, more, ids, text);
    free(ids);
    if (!gx_failed(g)) return text;
    free(text);
    return NULL;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_causal_lm = {
    "causal_lm", // name
    {
        // options
        sizeof(GxCausalLm),               // size
        GX_FIELDS(gx__causal_lm_options), // fields, n_fields
        gx__causal_lm_own,                // own
        NULL,                             // defaults
        NULL,                             // reading
    },
    {
        // loss
        1,                // n
        NULL,             // names
        "tokens",         // counted
        "nats per token", // unit
        NULL,             // best_metric
    },
    {
        // data
        gx__causal_lm_open,     // open
        gx__causal_lm_close,    // close
        NULL,                   // head
        gx__causal_lm_describe, // describe
        gx__causal_lm_show,     // show
        NULL,                   // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__causal_lm_identity), // identity, n_identity
        // elsewhere
        "on another text, or with other --train_data_weights or another validation_fraction (or, for conversations, "
        "another chat template or --chat_date)",
        gx__causal_lm_write,   // write
        gx__causal_lm_changed, // changed
    },
    {
        // batch
        gx__causal_lm_allocate,      // allocate
        gx__causal_lm_layout,        // layout
        gx__causal_lm_fill,          // fill
        gx_task_count_labels,        // counts
        gx__causal_lm_held_out,      // held_out
        gx__causal_lm_fill_held_out, // fill_held_out
        NULL,                        // see
        gx__causal_lm_stands_alone,  // stands_alone
    },
    {
        // metrics
        gx__causal_lm_metrics,  // compute
        NULL,                   // progress
        gx__causal_lm_baseline, // baseline
        gx__causal_lm_lacks,    // lacks
        NULL,                   // confusion
    },
    {
        // output
        gx__causal_lm_sample, // sample
        NULL,                 // predicts
        NULL,                 // predict
    },
};
#endif
