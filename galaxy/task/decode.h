// task/decode.h: generates the continuations of several texts at once, with a KV cache: the prompts are run through the
// model once (prefill), then one token per text at a time (decoding).
//
// Texts are columns of the batch and advance together, so shorter prompts have padding before them, which attention
// ignores (model/kv_cache.h). A text's continuation does not depend on the other texts, up to rounding. All ranks run
// the same columns; rank 0 samples the tokens, decides when a text ends, and tells the others. The cache takes memory
// for the texts' total length; a finished text takes no more of it.
//
//     gx_decoder_allocate(g, &d, &model, T, B, chunk, first);       // before gx_runner_allocate(g, …)
//     gx_decode(g, &d, &forward, text, B, &plan);                  // text[b] has its prompt
//
// A conversation reuses the cache: if a single text begins like that of the previous call, gx_decode runs only the new
// part.
#ifndef GX_DECODE_H
#define GX_DECODE_H
#include "../model/kv_cache.h"
#include "sampling.h"
#include "task.h"
GX_BEGIN

typedef enum { GX_TEXT_GROWS = 0, GX_TEXT_LENGTH, GX_TEXT_TOKEN, GX_TEXT_STRING, GX_TEXT_SIGNAL } GxTextEnd;

typedef struct {  // of one text
    int32_t *ids; // [prompt + new_tokens], the caller's; n of them are set, the first `prompt` by the caller
    int64_t n, prompt;
    GxTextEnd end; // why it has ended
    float score;   // of beams (decode_beams.h)
} GxDecodedText;

typedef struct {
    GxSampling sampling;
    int64_t new_tokens;  // of each text, at most
    const int32_t *stop; // [stops] tokens that end a text, and stay in it
    int n_stop;
    // Called on rank 0 after each new token of text `column`; says whether the token ends the text. NULL: none does.
    GxTextEnd (*see)(void *user, int column, const GxDecodedText *text);
    void *user;
    int (*interrupted)(void *user); // on rank 0, between tokens: 1: all texts end. NULL: never
} GxDecodePlan;

typedef struct {                            // of one call
    int64_t prompt_tokens, new_tokens;      // run through the model, without padding; sampled
    double prefill_seconds, decode_seconds; // the first token of each text belongs to the prefill
} GxDecodeTimes;

typedef struct {
    int64_t T, B, chunk; // positions of the cache; columns; positions that are run at once
    GxKvCache cache;
    int32_t *tokens, *tokens_host;       // [chunk,B]
    int32_t *documents, *documents_host; // [T*B][2]
    int32_t *rows, *rows_host;           // [B]: the rows whose logits are needed
    GxRows logits;                       // [B,V]
    void *logits_host;
    float *wide;   // [B,V] in fp32
    uint8_t *seen; // [B,V]: 1: the text has this token (for the repetition penalty)
    int32_t *fed;  // [T]: the tokens of a single text that are in the cache
    int64_t n_fed;
    GxDecodeTimes times;
    int is_unsound; // on rank 0: 1: logits of the last call were not finite, so that its texts ended there
} GxDecoder;

// Allocates: call it twice, first with a dry arena, then with the real one. T: positions of the longest prompt and its
// new tokens; first [B]: the earliest position at which each column's text begins; NULL: 0.
void gx_decoder_allocate(GxContext *g, GxDecoder *d, GxModel *m, int64_t T, int64_t B, int64_t chunk,
                         const int64_t *first);
// For a plan, on a device that does not compute: runs everything that takes memory once.
void gx_decoder_plan(GxContext *g, GxDecoder *d, const GxForward *forward);

// Column b's text begins at position first[b]; what lies before it is padding. first NULL: 0.
void gx_decoder_begin(GxContext *g, GxDecoder *d, const int64_t *first);
static inline void gx_decoder_forget(GxDecoder *d) { d->n_fed = 0; } // after the weights have changed
// Runs tokens [n,B] at positions [position, position + n). Returns the logits [B,V] of the last position, in host
// memory owned by d; NULL: wants_logits is 0, or an error.
float *gx_decoder_run(GxContext *g, GxDecoder *d, const GxForward *forward, const int32_t *tokens, int64_t position,
                      int64_t n, int wants_logits);

// Runs the prompts of text [d->B], each with at least one token, of which there will be `new_tokens` more. Returns the
// logits of their last tokens as gx_decoder_run does; NULL: new_tokens is 0, or an error.
float *gx_decoder_prefill(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text,
                          int64_t new_tokens);
// Continues text [d->B], each with at least one token; the same on every rank.
void gx_decode(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text, const GxDecodePlan *plan);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DECODE_IMPLEMENTED)
#define GX_DECODE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../ops/memory.h"

// ---- memory --------------------------------------------------------------------------------------------------------

static int32_t *gx__decode_ints(GxContext *g, int64_t n, int32_t **host_copy)
{
    int32_t *x = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * n);
    *host_copy = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, x, 4 * n);
    return x;
}

void gx_decoder_allocate(GxContext *g, GxDecoder *d, GxModel *m, int64_t T, int64_t B, int64_t chunk,
                         const int64_t *first)
{
    const int64_t V = gx_model_vocab(m);
    GxArena *host = gx_host_arena(g);
    memset(d, 0, sizeof *d);
    d->T = T, d->B = B, d->chunk = gx_min(T, chunk);
    gx_kv_cache_allocate(g, &d->cache, m, T, B, first);
    d->tokens = gx__decode_ints(g, d->chunk * B, &d->tokens_host);
    d->documents = gx__decode_ints(g, 2 * T * B, &d->documents_host);
    d->rows = gx__decode_ints(g, B, &d->rows_host);
    d->logits = gx_rows(NULL, m->store.dtype, B, V);
    d->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(d->logits));
    d->logits_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, d->logits.data, gx_rows_bytes(d->logits));
    d->wide = d->logits.dtype == GX_F32 ? (float *)d->logits_host
                                        : (float *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 4 * B * V);
    d->seen = (uint8_t *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, B * V);
    d->fed = (int32_t *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 4 * T);
}

void gx_decoder_plan(GxContext *g, GxDecoder *d, const GxForward *forward)
{
    gx_decoder_run(g, d, forward, NULL, d->T - d->chunk, d->chunk, 1);
    gx_decoder_run(g, d, forward, NULL, d->T - 1, 1, 1);
}

// ---- one run -------------------------------------------------------------------------------------------------------

void gx_decoder_begin(GxContext *g, GxDecoder *d, const int64_t *first)
{
    if (gx_failed(g)) return;
    d->n_fed = 0;
    gx_kv_cache_begin(g, &d->cache, first);
    for (int64_t t = 0; t < d->T && g->device->computes; t++)
        for (int64_t b = 0; b < d->B; b++) {
            const int64_t begin = first ? first[b] : 0;
            int32_t *document = d->documents_host + 2 * (t * d->B + b);
            document[0] = t < begin ? (int32_t)t : (int32_t)begin, document[1] = t < begin ? (int32_t)t : (int32_t)d->T;
        }
    gx_to_device(g, d->documents, d->documents_host, 8 * d->T * d->B);
}

float *gx_decoder_run(GxContext *g, GxDecoder *d, const GxForward *forward, const int32_t *tokens, int64_t position,
                      int64_t n, int wants_logits)
{
    GxBatch b = GX_ZERO;
    if (gx_failed(g)) return NULL;
    if (n < 1 || n > d->chunk || position < 0 || position + n > d->T) {
        GX_FAIL(
            &g->error, GX_ERR_ARGUMENT,
            "%ld tokens from position %ld on are too many: memory was allocated for up to %ld at once, and %ld in all",
            (long)n, (long)position, (long)d->chunk, (long)d->T);
        return NULL;
    }
    for (int64_t i = 0; i < d->B && g->device->computes; i++) d->rows_host[i] = (int32_t)((n - 1) * d->B + i);
    if (g->device->computes) memcpy(d->tokens_host, tokens, (size_t)(4 * n * d->B));
    gx_kv_cache_reach(g, &d->cache, position + n);
    gx_to_device(g, d->tokens, d->tokens_host, 4 * n * d->B);
    gx_to_device(g, d->rows, d->rows_host, 4 * d->B);
    b.tokens = d->tokens, b.documents = d->documents, b.cache = &d->cache;
    b.T = n, b.B = d->B, b.runs = gx_runs_one(n, position);
    b.target[0].rows = d->rows, b.target[0].rows_host = d->rows_host;
    b.target[0].n = wants_logits ? d->B : 0, b.target[0].most = d->B;
    if (wants_logits) b.target[0].logits = d->logits;
    forward->run(g, forward->user, &b, NULL);
    if (!wants_logits) return NULL;
    gx_to_host(g, d->logits_host, d->logits.data, gx_rows_bytes(d->logits));
    if (gx_failed(g) || !g->device->computes) return NULL;
    const uint16_t *narrow = (const uint16_t *)d->logits_host;
    for (int64_t i = 0; d->logits.dtype != GX_F32 && i < d->logits.rows * d->logits.cols; i++)
        d->wide[i] = gx_from_bf16(narrow[i]);
    return d->wide;
}

// ---- texts ---------------------------------------------------------------------------------------------------------

static int64_t gx__decode_longest(const GxDecodedText *text, int64_t B)
{
    int64_t most = 0;
    for (int64_t b = 0; b < B; b++) most = gx_max(most, text[b].n);
    return most;
}

// The token of a column's text at a position; texts are right-aligned to end at `longest`.
static int32_t gx__decode_token(const GxDecodedText *text, int64_t longest, int64_t position)
{
    const int64_t at = position - (longest - text->n);
    return at < 0 ? 0 : text->ids[at];
}

// How many tokens of a single text need not be run, since the cache has them. The last token is run in any case, for
// its logits.
static int64_t gx__decode_kept(const GxDecoder *d, const GxDecodedText *text)
{
    int64_t n = 0;
    while (n < d->n_fed && n + 1 < text->n && d->fed[n] == text->ids[n]) n++;
    return n;
}

static float *gx__decode_run_prompts(GxContext *g, GxDecoder *d, const GxForward *forward, const GxDecodedText *text,
                                     int64_t longest)
{
    int64_t *first = (int64_t *)malloc((size_t)d->B * sizeof *first);
    int32_t *block = (int32_t *)malloc((size_t)(d->chunk * d->B) * sizeof *block);
    float *logits = NULL;
    if (!first || !block) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld prompts", (long)d->B);
    int64_t from = d->B == 1 && !gx_failed(g) ? gx__decode_kept(d, text) : 0;
    for (int64_t b = 0; b < d->B && !gx_failed(g); b++) {
        first[b] = longest - text[b].n;
        d->times.prompt_tokens += text[b].n - (d->B == 1 ? from : 0);
    }
    if (from == 0) gx_decoder_begin(g, d, first);
    for (int64_t at = from; at < longest && !gx_failed(g); at += d->chunk) {
        const int64_t n = gx_min(d->chunk, longest - at);
        for (int64_t i = 0; i < n * d->B; i++) block[i] = gx__decode_token(&text[i % d->B], longest, at + i / d->B);
        logits = gx_decoder_run(g, d, forward, block, at, n, at + n == longest);
    }
    if (d->B == 1 && !gx_failed(g)) memcpy(d->fed, text->ids, (size_t)text->n * sizeof *d->fed), d->n_fed = text->n;
    free(first), free(block);
    return gx_failed(g) ? NULL : logits;
}

static void gx__decode_see_prompts(GxContext *g, GxDecoder *d, GxDecodedText *text, int64_t new_tokens)
{
    const int64_t V = d->logits.cols;
    memset(d->seen, 0, (size_t)(d->B * V));
    for (int64_t b = 0; b < d->B; b++) {
        GxDecodedText *t = &text[b];
        t->prompt = t->n, t->end = new_tokens > 0 ? GX_TEXT_GROWS : GX_TEXT_LENGTH;
        for (int64_t i = 0; i < t->n; i++) {
            if (t->ids[i] < 0 || t->ids[i] >= V) {
                GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                        "token %ld of text %ld is %d; the model's vocabulary ends at %ld: the tokenizer belongs to "
                        "another model",
                        (long)i, (long)b, (int)t->ids[i], (long)V - 1);
                return;
            }
            d->seen[b * V + t->ids[i]] = 1;
        }
        if (t->n < 1)
            GX_FAIL(&g->error, GX_ERR_ARGUMENT, "text %ld has no tokens; a prompt needs at least one", (long)b);
        if (gx_failed(g)) return;
    }
}

float *gx_decoder_prefill(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text, int64_t new_tokens)
{
    const int64_t longest = gx__decode_longest(text, d->B);
    if (!gx_failed(g)) gx__decode_see_prompts(g, d, text, new_tokens);
    if (!gx_failed(g) && longest + new_tokens > d->T)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a prompt of %ld tokens and %ld new ones are too many: memory was allocated for %ld in all",
                (long)longest, (long)new_tokens, (long)d->T);
    return gx_failed(g) || new_tokens < 1 ? NULL : gx__decode_run_prompts(g, d, forward, text, longest);
}

// ---- sampling ------------------------------------------------------------------------------------------------------

// Rank 0 samples the next token of each text that has not ended, and broadcasts it. next [2*B]: token and GxTextEnd.
static void gx__decode_sample(GxContext *g, GxDecoder *d, float *logits, GxDecodedText *text, const GxDecodePlan *plan,
                              int64_t *next)
{
    const int64_t V = d->logits.cols, known = plan->sampling.vocab ? gx_min(plan->sampling.vocab, V) : V;
    const int is_over = g->rank == 0 && plan->interrupted && plan->interrupted(plan->user);
    for (int64_t b = 0; b < d->B && g->rank == 0 && !gx_failed(g); b++) {
        GxDecodedText *t = &text[b];
        next[2 * b] = -1, next[2 * b + 1] = t->end;
        if (t->end) continue;
        d->is_unsound |= !gx_sampling_is_sound(logits + b * V, V);
        if (is_over || d->is_unsound) {
            next[2 * b + 1] = GX_TEXT_SIGNAL;
            continue;
        }
        gx_sampling_penalize(logits + b * V, d->seen + b * V, known, plan->sampling.repetition_penalty);
        const int32_t id = gx_sample_token(logits + b * V, known, &plan->sampling, b << 40 | t->n);
        t->ids[t->n] = id;
        t->n++; // for plan->see; undone below, where all ranks append the token
        GxTextEnd end = t->n - t->prompt >= plan->new_tokens ? GX_TEXT_LENGTH : GX_TEXT_GROWS;
        if (plan->see) {
            const GxTextEnd seen = plan->see(plan->user, (int)b, t);
            if (seen) end = seen;
        }
        for (int i = 0; i < plan->n_stop; i++)
            if (plan->stop[i] == id) end = GX_TEXT_TOKEN;
        t->n--;
        next[2 * b] = id, next[2 * b + 1] = end;
    }
    gx_at(g, -1, "tokens");
    gx_broadcast(g, GX_AXIS_ALL, 0, next, 2 * d->B, GX_I64);
    for (int64_t b = 0; b < d->B && !gx_failed(g); b++) {
        if (next[2 * b] >= 0) {
            text[b].ids[text[b].n++] = (int32_t)next[2 * b];
            d->seen[b * V + next[2 * b]] = 1;
            d->times.new_tokens++;
        }
        text[b].end = (GxTextEnd)next[2 * b + 1];
        if (text[b].end && d->B > 1) gx_kv_cache_end(&d->cache, b); // a single text may be continued by the next call
    }
}

static int gx__decode_grows(const GxDecodedText *text, int64_t B)
{
    int some = 0;
    for (int64_t b = 0; b < B; b++) some |= text[b].end == GX_TEXT_GROWS;
    return some;
}

void gx_decode(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text, const GxDecodePlan *plan)
{
    const GxDecodeTimes none = GX_ZERO;
    const int64_t longest = gx__decode_longest(text, d->B);
    int64_t *next = (int64_t *)calloc((size_t)(2 * d->B), sizeof *next);
    int32_t *tokens = (int32_t *)calloc((size_t)d->B, sizeof *tokens);
    double begun = gx_seconds();
    d->times = none, d->is_unsound = 0;
    if (!next || !tokens) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld texts", (long)d->B);
    float *logits = gx_decoder_prefill(g, d, forward, text, plan->new_tokens);
    if (!gx_failed(g) && gx__decode_grows(text, d->B)) {
        gx__decode_sample(g, d, logits, text, plan, next);
        d->times.prefill_seconds = gx_seconds() - begun;
        begun = gx_seconds();
        for (int64_t at = longest; gx__decode_grows(text, d->B) && !gx_failed(g); at++) {
            for (int64_t b = 0; b < d->B; b++) tokens[b] = next[2 * b] >= 0 ? (int32_t)next[2 * b] : 0;
            logits = gx_decoder_run(g, d, forward, tokens, at, 1, 1);
            if (d->B == 1) d->fed[d->n_fed++] = tokens[0];
            gx__decode_sample(g, d, logits, text, plan, next);
        }
        d->times.decode_seconds = gx_seconds() - begun;
    }
    free(next), free(tokens);
}
#endif
