// task/decode_beams.h: continues prompts by beam search (beam_search.h): not a token drawn at a time (decode.h), but the
// likeliest of the texts that a search finds.
//
// A text's beams are columns of the batch, side by side; beams that live on follow others in the KV cache. All prompts
// advance together; a result does not depend on the other prompts, up to rounding. All ranks run the same columns; rank
// 0 searches, and tells the others how their columns go on.
//
//     gx_decoder_allocate(g, &d, &model, T, texts * num_beams, chunk, first);
//     gx_decode_beams(g, &d, &forward, text, texts, &plan); // text[i * num_return_sequences] has prompt i
#ifndef GX_DECODE_BEAMS_H
#define GX_DECODE_BEAMS_H
#include "beam_columns.h"
#include "decode.h"
GX_BEGIN

typedef struct {
    GxBeamOptions options;          // lengths count new tokens alone, and max_length is at least 1; nothing is forced
    int64_t vocab;                  // tokens from here on are not chosen; 0: all may be
    int (*interrupted)(void *user); // on rank 0, between tokens: 1: the searches end with what they have. NULL: never
    void *user;
} GxBeamPlan;

// text [n * num_return_sequences]: results of prompt i, the best first, from i * num_return_sequences on. The first has
// the prompt; on rank 0 all of them get prompt, new tokens, score and end, and ids have room for them. A result that
// there is not has end GX_TEXT_GROWS. d->B is n * num_beams.
void gx_decode_beams(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text, int64_t n,
                     const GxBeamPlan *plan);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DECODE_BEAMS_IMPLEMENTED)
#define GX_DECODE_BEAMS_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const GxBeamPlan *plan;
    int64_t n;             // texts
    GxBeamSearch *search;  // [n], on rank 0
    GxDecodedText *column; // [columns]: the prompts, each in the columns of its beams
    int32_t *token;        // [columns]
    GxBeamColumns next;
} GxDecodeBeams;

static GxDecodedText *gx__beams_of(GxDecodedText *text, const GxDecodeBeams *s, int64_t i)
{
    return text + i * s->plan->options.num_return_sequences;
}

static void gx__beams_close(GxDecodeBeams *s)
{
    for (int64_t i = 0; i < s->n && s->search; i++) gx_beam_search_close(&s->search[i]);
    free(s->search), free(s->column), free(s->token);
    gx_beam_columns_close(&s->next);
}

static void gx__beams_open(GxContext *g, GxDecodeBeams *s, const GxDecoder *d, GxDecodedText *text)
{
    const int64_t K = s->plan->options.num_beams;
    if (d->B != s->n * K) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%ld beams of %ld prompts in %ld columns; expected one for each beam",
                (long)K, (long)s->n, (long)d->B);
        return;
    }
    s->search = (GxBeamSearch *)calloc((size_t)s->n, sizeof *s->search);
    s->column = (GxDecodedText *)calloc((size_t)d->B, sizeof *s->column);
    s->token = (int32_t *)calloc((size_t)d->B, sizeof *s->token);
    if (!s->search || !s->column || !s->token) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld beams", (long)d->B);
    if (gx_failed(g) || gx_beam_columns_open(&s->next, d->B, &g->error) != GX_OK) return;
    for (int64_t b = 0; b < d->B; b++) s->column[b] = *gx__beams_of(text, s, b / K);
}

static int64_t gx__beams_longest(const GxDecodeBeams *s)
{
    int64_t most = 0;
    for (int64_t i = 0; i < s->n; i++) most = gx_max(most, s->column[i * s->plan->options.num_beams].n);
    return most;
}

// The prompts have been checked by now.
static void gx__beams_begin(GxContext *g, GxDecodeBeams *s, const GxDecoder *d)
{
    for (int64_t i = 0; i < s->n && g->rank == 0 && !gx_failed(g); i++) {
        const GxDecodedText *prompt = &s->column[i * s->plan->options.num_beams];
        GxBeamOptions o = s->plan->options;
        o.min_length += prompt->n, o.max_length += prompt->n;
        if (gx_beam_search_open(&s->search[i], &o, d->logits.cols, &g->error) != GX_OK) break;
        gx_beam_search_begin(&s->search[i], prompt->ids, prompt->n);
    }
}

// A search's beams, a token longer, on rank 0.
static void gx__beams_advance(GxDecodeBeams *s, GxDecoder *d, float *logits, int64_t i)
{
    const int64_t K = s->plan->options.num_beams, V = d->logits.cols;
    GxBeamSearch *search = &s->search[i];
    for (int64_t k = 0; k < K; k++) {
        float *x = logits + (i * K + k) * V;
        d->is_unsound |= !gx_sampling_is_sound(x, V);
        for (int64_t v = s->plan->vocab ? s->plan->vocab : V; v < V; v++) x[v] = -INFINITY;
        gx_beam_search_see(search, k, x);
    }
    gx_beam_search_advance(search);
    if (!search->is_finished) gx_beam_columns_follow(&s->next, i * K, search);
}

// All searches, a token further; on all ranks the tokens of their columns, and whom these follow. Returns how many
// searches go on.
static int64_t gx__beams_step(GxContext *g, GxDecodeBeams *s, GxDecoder *d, float *logits)
{
    const int is_over = g->rank == 0 && s->plan->interrupted && s->plan->interrupted(s->plan->user);
    int64_t left = 0;
    gx_beam_columns_stay(&s->next);
    for (int64_t i = 0; i < s->n && g->rank == 0 && !gx_failed(g) && !is_over && !d->is_unsound; i++) {
        if (s->search[i].is_finished) continue;
        gx__beams_advance(s, d, logits, i);
        left += !s->search[i].is_finished && !d->is_unsound;
        d->times.new_tokens++;
    }
    left = gx_beam_columns_pass(g, &s->next, left);
    for (int64_t b = 0; b < d->B && !gx_failed(g); b++) {
        s->token[b] = (int32_t)gx_max(0, s->next.token[b]);
        if (s->next.token[b] < 0) gx_kv_cache_end(&d->cache, b);
    }
    return left;
}

static void gx__beams_take(const GxDecodeBeams *s, GxDecodedText *text, int64_t i)
{
    const GxBeamOptions *o = &s->plan->options;
    const GxBeamSearch *search = &s->search[i];
    const int64_t prompt = s->column[i * o->num_beams].n, results = gx_beam_search_results(search);
    for (int64_t k = 0; k < o->num_return_sequences; k++) {
        GxDecodedText *t = &text[k];
        const GxBeam *beam = k < results ? gx_beam_search_result(search, k) : gx_beam_search_live(search, 0);
        memcpy(t->ids, beam->tokens, (size_t)beam->n * sizeof *t->ids);
        t->prompt = prompt, t->n = k < results ? beam->n : prompt, t->score = k < results ? beam->score : 0;
        t->end = gx_beam_ends(o, t->ids[t->n - 1]) ? GX_TEXT_TOKEN : GX_TEXT_LENGTH;
        if (!search->is_finished) t->end = GX_TEXT_SIGNAL;
        if (k >= results) t->end = GX_TEXT_GROWS;
    }
}

void gx_decode_beams(GxContext *g, GxDecoder *d, const GxForward *forward, GxDecodedText *text, int64_t n,
                     const GxBeamPlan *plan)
{
    const GxDecodeTimes none = GX_ZERO;
    GxDecodeBeams s = GX_ZERO;
    double begun = gx_seconds();
    s.plan = plan, s.n = n, d->times = none, d->is_unsound = 0;
    gx__beams_open(g, &s, d, text);
    float *logits = gx_failed(g) ? NULL : gx_decoder_prefill(g, d, forward, s.column, plan->options.max_length);
    gx__beams_begin(g, &s, d);
    if (!gx_failed(g)) {
        const int64_t longest = gx__beams_longest(&s);
        int64_t left = gx__beams_step(g, &s, d, logits);
        d->times.prompt_tokens /= plan->options.num_beams;
        d->times.prefill_seconds = gx_seconds() - begun;
        begun = gx_seconds();
        for (int64_t at = longest; left && !gx_failed(g); at++) {
            gx_kv_cache_follow(g, &d->cache, s.next.from, at);
            logits = gx_decoder_run(g, d, forward, s.token, at, 1, 1);
            left = gx__beams_step(g, &s, d, logits);
        }
        d->times.decode_seconds = gx_seconds() - begun;
    }
    for (int64_t i = 0; i < n && g->rank == 0 && !gx_failed(g); i++) gx__beams_take(&s, gx__beams_of(text, &s, i), i);
    gx__beams_close(&s);
}
#endif
