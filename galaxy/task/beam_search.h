// task/beam_search.h: beam search, as transformers' generate() has it (version 5, without sampling), for one text. It
// knows no model: the caller hands in the logits of the token behind each live beam, and gets the beams' tokens.
//
//     gx_beam_search_open(&s, &options, V, err);
//     gx_beam_search_begin(&s, prompt, n);                   // each beam is the prompt, or the start token alone
//     while (!s.is_finished) {
//         for (int64_t k = 0; k < options.num_beams; k++)
//             gx_beam_search_see(&s, k, logits);             // those behind gx_beam_search_live(&s, k)
//         gx_beam_search_advance(&s);                        // a token longer
//     }
//     for (int64_t i = 0; i < gx_beam_search_results(&s); i++) use(gx_beam_search_result(&s, i)); // the best first
//     gx_beam_search_close(&s);
//
// With one beam the likeliest token is always taken; the result then has no score.
//
// With K beams of n tokens each, the score of a candidate is that of its beam and the logarithm of its token's
// probability. Of the K V candidates the best C = K max(2, 1 + number of ends) are kept. A candidate is complete if its
// token is an end, or if it has max_length tokens. The K best that are not complete live on; those among the first K
// that are complete are divided by (their tokens behind the prompt)^length_penalty, and the K best of all so far are
// kept. The text is finished when no live beam can be better than the worst of K complete ones (early_stopping true: as
// soon as there are K; never: if it can still be better with max_length tokens).
//
// Before that the logits (one beam), or the logarithms of probabilities (several, which are not normalized again), pass
//
//     repetition_penalty      of each token that the beam has, once: x < 0 ? x * penalty : x / penalty
//     no_repeat_ngram_size    no token that would complete as many tokens that the beam has already
//     min_length              no end before the beam has so many tokens
//     forced_bos, forced_eos  behind the start; as the last token of max_length: only this one, with a 0
//
// in this order. All lengths count the prompt, or the start token. If no token is left anywhere, the result is a beam that is not
// complete. Scores are fp32, as transformers'; of equal candidates the first one counts.
#ifndef GX_BEAM_SEARCH_H
#define GX_BEAM_SEARCH_H
#include "../io/generation_config.h"
GX_BEGIN

typedef struct {
    int64_t num_beams, num_return_sequences; // at least 1, at most num_beams
    int64_t min_length, max_length;          // tokens, with the prompt or start token; max_length at least 2
    int64_t no_repeat_ngram_size;            // 0: anything may be repeated
    double length_penalty, repetition_penalty;
    GxEarlyStopping early_stopping;
    int32_t forced_bos, forced_eos; // -1: none
    int32_t end[GX_STOP_TOKENS];    // tokens that end a text
    int ends;
} GxBeamOptions;

typedef struct {
    int32_t *tokens; // [max_length], the prompt first
    int64_t n;       // 0: there is no such beam
    int64_t from;    // the live beam, before the last token, that it continues
    float score;
} GxBeam;
typedef struct {
    int64_t beam;
    int32_t token;
    float score;
} GxBeamCandidate;

typedef struct {
    GxBeamOptions o;
    int64_t V, C, prompt; // prompt: its tokens
    int is_finished;
    int64_t candidates;         // so far
    GxBeam *live, *next, *done; // [num_beams]; done: by falling score
    GxBeamCandidate *candidate; // [C], by falling score
    uint8_t *seen;              // [V], zero
    void *block;                // of all of these
} GxBeamSearch;

// V: tokens of the vocabulary. GX_ERR_MEMORY
GxStatus gx_beam_search_open(GxBeamSearch *s, const GxBeamOptions *o, int64_t V, GxError *err);
void gx_beam_search_close(GxBeamSearch *s); // accepts a struct of zeros
// prompt [n], n at least 1 and below max_length. It is copied.
void gx_beam_search_begin(GxBeamSearch *s, const int32_t *prompt, int64_t n);
static inline const GxBeam *gx_beam_search_live(const GxBeamSearch *s, int64_t k) { return &s->live[k]; }
// logits [V], of the token behind live beam k, which are overwritten. Once for each beam, in their order.
void gx_beam_search_see(GxBeamSearch *s, int64_t k, float *logits);
void gx_beam_search_advance(GxBeamSearch *s);
int64_t gx_beam_search_results(const GxBeamSearch *s); // at least 1, at most num_return_sequences
const GxBeam *gx_beam_search_result(const GxBeamSearch *s, int64_t i);
int gx_beam_ends(const GxBeamOptions *o, int32_t token);         // 1: it is one of the ends
void gx_beam_stopping_of(const char *name, GxEarlyStopping *to); // false, true or never; another one changes nothing

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BEAM_SEARCH_IMPLEMENTED)
#define GX_BEAM_SEARCH_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "sampling.h"

#define GX__BEAM_NOWHERE (-1e9f) // the score of a beam that is not there

GxStatus gx_beam_search_open(GxBeamSearch *s, const GxBeamOptions *o, int64_t V, GxError *err)
{
    memset(s, 0, sizeof *s);
    s->o = *o, s->V = V, s->C = o->num_beams * gx_max(2, 1 + o->ends);
    const size_t K = (size_t)o->num_beams, L = (size_t)o->max_length, C = (size_t)s->C;
    GxBeam **const beams[] = {&s->live, &s->next, &s->done};
    s->block = calloc(1, 3 * K * sizeof(GxBeam) + C * sizeof *s->candidate + 3 * K * L * sizeof(int32_t) + (size_t)V);
    if (!s->block) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld beams", (long)K);
    GxBeam *beam = (GxBeam *)s->block;
    s->candidate = (GxBeamCandidate *)(void *)(beam + 3 * K);
    int32_t *tokens = (int32_t *)(void *)(s->candidate + C);
    for (size_t i = 0; i < 3 * K; i++) beam[i].tokens = tokens + i * L;
    for (size_t i = 0; i < 3; i++) *beams[i] = beam + i * K;
    s->seen = (uint8_t *)(tokens + 3 * K * L);
    return GX_OK;
}

void gx_beam_search_close(GxBeamSearch *s)
{
    free(s->block);
    memset(s, 0, sizeof *s);
}

void gx_beam_search_begin(GxBeamSearch *s, const int32_t *prompt, int64_t n)
{
    s->is_finished = 0, s->candidates = 0, s->prompt = n;
    for (int64_t k = 0; k < s->o.num_beams; k++) {
        memcpy(s->live[k].tokens, prompt, (size_t)n * sizeof *prompt), s->live[k].n = n;
        s->live[k].score = k ? GX__BEAM_NOWHERE : 0; // the same beams: one of them counts
        s->done[k].n = 0, s->done[k].score = GX__BEAM_NOWHERE;
    }
}

void gx_beam_stopping_of(const char *name, GxEarlyStopping *to)
{
    static const char *const names[] = {"false", "true", "never"}; // in the order of GxEarlyStopping
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) *to = (GxEarlyStopping)i;
}

int gx_beam_ends(const GxBeamOptions *o, int32_t token)
{
    for (int i = 0; i < o->ends; i++)
        if (o->end[i] == token) return 1;
    return 0;
}

// ---- what may follow -----------------------------------------------------------------------------------------------

static void gx__beam_penalize(GxBeamSearch *s, const GxBeam *b, float *x)
{
    if (s->o.repetition_penalty == 1) return;
    for (int64_t i = 0; i < b->n; i++)
        if (b->tokens[i] < s->V) s->seen[b->tokens[i]] = 1;
    gx_sampling_penalize(x, s->seen, s->V, s->o.repetition_penalty);
    for (int64_t i = 0; i < b->n; i++)
        if (b->tokens[i] < s->V) s->seen[b->tokens[i]] = 0;
}

static void gx__beam_ban_ngrams(const GxBeamSearch *s, const GxBeam *b, float *x)
{
    const int64_t N = s->o.no_repeat_ngram_size;
    if (N == 0) return;
    const int32_t *last = b->tokens + b->n - (N - 1); // what the next token would follow
    for (int64_t i = 0; i + N <= b->n; i++)
        if (!memcmp(b->tokens + i, last, (size_t)(N - 1) * sizeof *last) && b->tokens[i + N - 1] < s->V)
            x[b->tokens[i + N - 1]] = -INFINITY;
}

static void gx__beam_force(const GxBeamSearch *s, int32_t token, float *x)
{
    if (token < 0) return;
    for (int64_t v = 0; v < s->V; v++) x[v] = -INFINITY;
    x[token] = 0;
}

static void gx__beam_process(GxBeamSearch *s, const GxBeam *b, float *x)
{
    gx__beam_penalize(s, b, x);
    gx__beam_ban_ngrams(s, b, x);
    for (int i = 0; i < s->o.ends && b->n < s->o.min_length; i++)
        if (s->o.end[i] < s->V) x[s->o.end[i]] = -INFINITY;
    if (b->n == 1) gx__beam_force(s, s->o.forced_bos, x);
    if (b->n == s->o.max_length - 1) gx__beam_force(s, s->o.forced_eos, x);
}

// ---- candidates ----------------------------------------------------------------------------------------------------

// x - log(sum(exp(x)))
static void gx__beam_log_softmax(float *x, int64_t V)
{
    float top = x[0];
    double sum = 0;
    for (int64_t v = 1; v < V; v++) top = x[v] > top ? x[v] : top;
    for (int64_t v = 0; v < V; v++) sum += expf(x[v] - top);
    const float log_sum = (float)log(sum);
    for (int64_t v = 0; v < V; v++) x[v] = x[v] - top - log_sum;
}

// Into the `most` best, of which there are n; returns how many there are then.
static int64_t gx__beam_insert(GxBeamCandidate *best, int64_t n, int64_t most, GxBeamCandidate c)
{
    if (n == most && !(c.score > best[n - 1].score)) return n;
    int64_t at = n < most ? n : most - 1;
    for (; at > 0 && c.score > best[at - 1].score; at--) best[at] = best[at - 1];
    best[at] = c;
    return n < most ? n + 1 : n;
}

void gx_beam_search_see(GxBeamSearch *s, int64_t k, float *logits)
{
    const int is_greedy = s->o.num_beams == 1;
    if (!is_greedy) gx__beam_log_softmax(logits, s->V);
    gx__beam_process(s, &s->live[k], logits);
    for (int64_t v = 0; v < s->V; v++) {
        const GxBeamCandidate c = {k, (int32_t)v, logits[v] + s->live[k].score};
        s->candidates = gx__beam_insert(s->candidate, s->candidates, is_greedy ? 1 : s->C, c);
    }
}

// ---- a token longer ------------------------------------------------------------------------------------------------

static void gx__beam_extend(const GxBeamSearch *s, GxBeam *b, const GxBeamCandidate *c, float score)
{
    const GxBeam *from = &s->live[c->beam];
    memmove(b->tokens, from->tokens, (size_t)from->n * sizeof *b->tokens); // greedily a beam extends itself
    b->tokens[from->n] = c->token, b->n = from->n + 1, b->from = c->beam, b->score = score;
}

// A score by length; n: tokens, with the prompt, which does not count.
static float gx__beam_by_length(const GxBeamSearch *s, float score, int64_t n)
{
    return score / (float)pow((double)(n - s->prompt), s->o.length_penalty);
}

static int gx__beam_is_complete(const GxBeamSearch *s, const GxBeamCandidate *c)
{
    return gx_beam_ends(&s->o, c->token) || s->live[c->beam].n + 1 == s->o.max_length;
}

static int gx__beam_all_done(const GxBeamSearch *s) { return s->done[s->o.num_beams - 1].n > 0; }

// Among the best that are complete.
static void gx__beam_keep(GxBeamSearch *s, const GxBeamCandidate *c)
{
    const int64_t K = s->o.num_beams;
    const float score = gx__beam_by_length(s, c->score, s->live[c->beam].n + 1);
    if (!(score > s->done[K - 1].score)) return;
    const GxBeam last = s->done[K - 1]; // its tokens are given up
    int64_t at = K - 1;
    for (; at > 0 && score > s->done[at - 1].score; at--) s->done[at] = s->done[at - 1];
    s->done[at] = last;
    gx__beam_extend(s, &s->done[at], c, score);
}

// The best of those that are not complete; complete ones only where there are no others.
static void gx__beam_live_on(GxBeamSearch *s)
{
    const int64_t K = s->o.num_beams;
    GxBeam *next = s->next;
    int64_t n = 0;
    for (int64_t i = 0; i < s->candidates; i++) {
        GxBeamCandidate c = s->candidate[i];
        if (gx__beam_is_complete(s, &c)) c.score += GX__BEAM_NOWHERE;
        // candidate[0 .. n) is not needed any more
        n = gx__beam_insert(s->candidate, n, K, c);
    }
    for (int64_t k = 0; k < K; k++) gx__beam_extend(s, &next[k], &s->candidate[k], s->candidate[k].score);
    s->next = s->live, s->live = next;
}

static int gx__beam_can_be_better(const GxBeamSearch *s)
{
    const int is_never = s->o.early_stopping == GX_EARLY_STOPPING_NEVER && s->o.length_penalty > 0;
    const int64_t n = is_never ? s->o.max_length : s->live[0].n;
    return gx__beam_by_length(s, s->live[0].score, n) > s->done[s->o.num_beams - 1].score;
}

void gx_beam_search_advance(GxBeamSearch *s)
{
    const int64_t K = s->o.num_beams;
    const int stops_early = s->o.early_stopping == GX_EARLY_STOPPING_TRUE;
    int complete = 0;
    for (int64_t i = 0; i < s->candidates; i++) complete += gx__beam_is_complete(s, &s->candidate[i]);
    const int all_complete = complete == s->candidates;
    if (K == 1) {
        gx__beam_extend(s, &s->live[0], &s->candidate[0], 0);
        s->is_finished = all_complete, s->candidates = 0;
        return;
    }
    for (int64_t i = 0; i < K; i++)
        if (gx__beam_is_complete(s, &s->candidate[i])) gx__beam_keep(s, &s->candidate[i]);
    gx__beam_live_on(s);
    s->candidates = 0;
    s->is_finished = all_complete || (stops_early && gx__beam_all_done(s)) || !gx__beam_can_be_better(s);
}

int64_t gx_beam_search_results(const GxBeamSearch *s)
{
    int64_t n = 0;
    while (n < s->o.num_return_sequences && s->done[n].n) n++;
    return n ? n : 1;
}

const GxBeam *gx_beam_search_result(const GxBeamSearch *s, int64_t i)
{
    return s->done[i].n ? &s->done[i] : &s->live[i];
}
#endif
