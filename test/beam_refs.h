// test/beam_refs.h: references of beam search (data/ref, of dev/ref/make_beams.py): what transformers writes with a tiny
// model, for each of many searches and each of TEXTS sources or prompts.
//
//     static BeamReference r;
//     if (!beam_reference_read(&r, "bart_beams_one")) return;
//     GxBeamOptions o = beam_reference_search(&r, i, end);
//     check_beam(name, rank, &r, i, text, k, at, from, ids, n, score); // result `at` of all, whose tokens are at `from`
#ifndef GX_TEST_BEAM_REFS_H
#define GX_TEST_BEAM_REFS_H
#include "test.h"
#include <math.h>

enum { MOST_TOKENS = 14, TEXTS = 5, SOURCES = 32, MOST_BEAMS = 5, MOST_RESULTS = MOST_BEAMS * TEXTS };
enum { OPTIONS = 11, MOST_SEARCHES = 80 }; // numbers of a search

typedef struct {
    int32_t flat[SOURCES * TEXTS], length[TEXTS];
    const int32_t *source[TEXTS];
    int64_t longest, searches, results;
    float options[MOST_SEARCHES][OPTIONS], score[MOST_SEARCHES * MOST_RESULTS];
    uint8_t count[MOST_SEARCHES * MOST_RESULTS], tokens[MOST_SEARCHES * MOST_RESULTS * MOST_TOKENS];
} BeamReference;

static int64_t beam_reference_raw(GxSafetensors *f, const char *name, void *out, size_t room)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(f, name);
    if (!CHECK(e && (size_t)(e->elements * e->dtype_size) <= room, "%s is not there, or too long", name)) return 0;
    CHECK(gx_safetensors_read_raw(f, e, 0, e->elements, out, &err) == GX_OK, "%s", err.message);
    return e->elements;
}

static int beam_reference_read(BeamReference *r, const char *name)
{
    char path[200];
    GxSafetensors f;
    GxError err = GX_ZERO;
    memset(r, 0, sizeof *r);
    snprintf(path, sizeof path, "data/ref/%s/ref.safetensors", name);
    if (!CHECK(gx_safetensors_open(&f, path, &err) == GX_OK, "%s", err.message)) return 0;
    beam_reference_raw(&f, "source", r->flat, sizeof r->flat);
    CHECK(beam_reference_raw(&f, "lengths", r->length, sizeof r->length) == TEXTS, "other texts");
    r->searches = beam_reference_raw(&f, "options", r->options, sizeof r->options) / OPTIONS;
    r->results = beam_reference_raw(&f, "counts", r->count, sizeof r->count);
    CHECK(beam_reference_raw(&f, "scores", r->score, sizeof r->score) == r->results, "not a score for each result");
    beam_reference_raw(&f, "tokens", r->tokens, sizeof r->tokens);
    gx_safetensors_close(&f);
    const int32_t *at = r->flat;
    for (int i = 0; i < TEXTS; at += r->length[i], i++)
        r->source[i] = at, r->longest = gx_max(r->longest, r->length[i]);
    return 1;
}

// Its options; end: what the model ends a text with.
static GxBeamOptions beam_reference_search(const BeamReference *r, int64_t i, int32_t end)
{
    const float *x = r->options[i]; // in the order of make_beams.py's OPTIONS
    GxBeamOptions o = GX_ZERO;
    o.num_beams = (int64_t)x[0], o.num_return_sequences = (int64_t)x[1];
    o.length_penalty = x[2] == 0.7f ? 0.7 : x[2] == -0.3f ? -0.3 : x[2];
    o.early_stopping = (GxEarlyStopping)(int)x[3];
    o.no_repeat_ngram_size = (int64_t)x[4], o.min_length = (int64_t)x[5], o.max_length = (int64_t)x[6];
    o.forced_bos = (int32_t)x[7], o.forced_eos = (int32_t)x[8], o.repetition_penalty = x[9];
    o.end[0] = end, o.end[1] = (int32_t)x[10], o.ends = x[10] < 0 ? 1 : 2;
    return o;
}

// 1: as transformers has it. A score is a sum of up to 13 logarithms, each of logits that went through up to 5 layers
// of 12 columns: 1e-4 of it is far above its roundings, and below what another candidate or another length makes of it.
static int check_beam(const char *name, int rank, const BeamReference *r, int64_t s, int text, int64_t k, int64_t at,
                      int64_t from, const int32_t *ids, int64_t n, float got)
{
    const float *x = r->options[s], score = r->score[at];
    char what[300];
    snprintf(what, sizeof what,
             "%s, rank %d, search %ld (beams %g, penalty %g, stopping %g, ngrams %g, lengths %g to %g, forced %g %g, "
             "repetition %g), text %d, result %ld",
             name, rank, (long)s, x[0], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], text, (long)k);
    if (!CHECK(n == r->count[at], "%s: %ld tokens, transformers' %d", what, (long)n, r->count[at])) return 0;
    for (int64_t i = 0; i < n; i++)
        if (!CHECK(ids[i] == r->tokens[from + i], "%s: token %ld is %d, transformers' %d", what, (long)i, ids[i],
                   r->tokens[from + i]))
            return 0;
    return CHECK(fabsf(got - score) <= 1e-4f * fabsf(score), "%s: score %.7g, transformers' %.7g", what, got, score);
}
#endif
