// task/target_writer.h: writes the targets of sources, by beam search (beam_search.h); with one beam always the
// likeliest token.
//
//     gx_target_writer_allocate(g, &w, &layout, &model, &options, S, texts);      // with a dry arena, then a real one
//     gx_target_writer_run(g, &w, &forward, source, length, n, target);
//
// The beams of all texts of a call are columns of one batch, and advance together; a target does not depend on the
// others, up to rounding. The encoder reads each source once: beam k of text i is column k*S + i, where S is the number
// of columns of the sources, so that all beams of a text read the same column of these. With a cache (kv_cache.h)
// sources are read once, and each token takes a pass over one row of each column; beams that live on follow others in
// the cache. Where the mode splits the sequence there is none, and each token takes a pass over sources and targets.
// All ranks write the same columns; rank 0 searches, and tells the others how their columns go on (beam_columns.h), and
// at the end what was found.
#ifndef GX_TARGET_WRITER_H
#define GX_TARGET_WRITER_H
#include "../model/kv_cache.h"
#include "beam_columns.h"
#include "source_batch.h"
#include "task.h"
GX_BEGIN

typedef struct {  // a target that was written
    int32_t *ids; // [max_length - 1], without the start token
    int64_t n;    // 0: there is none
    float score;  // of beams; one beam has none
} GxWrittenTarget;

typedef struct {
    const GxSourceLayout *l;
    GxBeamOptions options;
    int64_t texts;     // at once
    GxBatch b, source; // of texts * num_beams, and of texts columns
    int has_cache;
    GxKvCache cache;
    void *block, *host_copy;
    int64_t bytes;
    int32_t *rows, *rows_host; // [B]: whose logits are needed
    GxRows logits;             // [B, vocabulary]
    void *logits_host;
    int is_unsound; // 1: logits of the last run were not finite, so what it wrote means nothing
} GxTargetWriter;

// For at most `texts` sources of up to S tokens at once: as many as the model's batch has columns for. If it has fewer
// than there are beams, that is an error. Ranks whose batches differ must agree on w->texts.
void gx_target_writer_allocate(GxContext *g, GxTargetWriter *w, const GxSourceLayout *l, GxModel *m,
                               const GxBeamOptions *options, int64_t S, int64_t texts);
// Writes target[i * num_return_sequences + j], the j-th best of source i < n <= w->texts. Returns 0 if it was told to
// stop before all were complete, or has failed. On a device that does not compute it takes what memory it needs, once.
int gx_target_writer_run(GxContext *g, GxTargetWriter *w, const GxForward *forward, const int32_t *const *source,
                         const int32_t *length, int64_t n, GxWrittenTarget *target);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TARGET_WRITER_IMPLEMENTED)
#define GX_TARGET_WRITER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../base/dtype.h"
#include "../ops/memory.h"
#include "sampling.h"

void gx_target_writer_allocate(GxContext *g, GxTargetWriter *w, const GxSourceLayout *l, GxModel *m,
                               const GxBeamOptions *options, int64_t S, int64_t texts)
{
    const int64_t K = options->num_beams, T = options->max_length - 1;
    memset(w, 0, sizeof *w);
    if (K > m->max_B) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "--num_beams is %ld, but a batch has %ld column%s; use --micro_batch_size %ld or more, or fewer beams",
                (long)K, (long)m->max_B, gx_text_s(m->max_B), (long)K);
        return;
    }
    w->l = l, w->options = *options, w->texts = gx_min(texts, m->max_B / K);
    const int64_t B = w->texts * K;
    w->b.T = T, w->source.T = S, w->b.B = B, w->source.B = w->texts, w->b.source = &w->source;
    w->b.runs = gx_runs_one(T, 0), w->source.runs = gx_runs_one(S, 0);
    w->has_cache = gx_kv_cache_is_possible(m);
    if (w->has_cache) gx_kv_cache_allocate(g, &w->cache, m, T, B, NULL);
    w->bytes = gx_source_layout(l, &w->b, NULL, NULL);
    w->block = gx_scratch(g, GX_MEM_ACTIVATIONS, w->bytes);
    w->host_copy = gx_host_copy(g, GX_MEM_ACTIVATIONS, w->block, w->bytes);
    w->rows = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * B);
    w->rows_host = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, w->rows, 4 * B);
    w->logits = gx_rows(NULL, m->store.dtype, B, gx_model_vocab(m));
    w->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(w->logits));
    w->logits_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, w->logits.data, gx_rows_bytes(w->logits));
    if (!gx_failed(g)) gx_source_layout(l, &w->b, w->block, w->host_copy);
}

// Row t alone, which a cache leaves to be computed.
static GxBatch gx__target_row(const GxTargetWriter *w, int64_t t)
{
    GxBatch row = w->b;
    row.T = 1, row.runs = gx_runs_one(1, t), row.cache = &w->cache;
    row.tokens += t * row.B, row.positions += t * row.B;
    return row;
}

// One pass; the logits are those of position t of all columns. Of the block only its first part changes, the tokens.
static void gx__target_pass(GxContext *g, GxTargetWriter *w, const GxForward *forward, int64_t t)
{
    GxBatch b = w->has_cache ? gx__target_row(w, t) : w->b;
    GxTarget *to = &b.target[0];
    const int64_t first = w->has_cache ? 0 : t * b.B;
    for (int64_t i = 0; i < b.B && g->device->computes; i++) w->rows_host[i] = (int32_t)(first + i);
    gx_to_device(g, w->rows, w->rows_host, 4 * b.B);
    gx_to_device(g, w->block, w->host_copy, 4 * w->b.T * w->b.B);
    if (w->has_cache) gx_kv_cache_reach(g, &w->cache, t + 1);
    memset(to, 0, sizeof *to);
    to->rows = w->rows, to->rows_host = w->rows_host, to->n = to->most = b.B;
    to->logits = w->logits;
    forward->run(g, forward->user, &b, NULL);
    gx_kv_cache_set_source(&w->cache);
    gx_to_host(g, w->logits_host, w->logits.data, gx_rows_bytes(w->logits));
}

// ---- of all texts --------------------------------------------------------------------------------------------------

typedef struct {
    GxBeamSearch *search; // [texts], on rank 0
    float *logits;        // [vocabulary]
    int32_t *unknown;     // [T] padding: targets that are not known yet
    int32_t *row;         // [B]
    int64_t *from;        // [B]: the column that each follows; of those of a search as `next` says
    int64_t *found;       // [GX__TARGET_HEAD + T] for each result: its length, the bits of its score, its tokens
    GxBeamColumns next;
} GxTargetSearches;
enum { GX__TARGET_HEAD = 2 };

static void gx__target_close(GxTargetSearches *s, int64_t n)
{
    for (int64_t i = 0; i < n && s->search; i++) gx_beam_search_close(&s->search[i]);
    free(s->search), free(s->logits), free(s->unknown), free(s->row), free(s->from), free(s->found);
    gx_beam_columns_close(&s->next);
}

static int64_t gx__target_found(const GxTargetWriter *w, int64_t n)
{
    return n * w->options.num_return_sequences * (GX__TARGET_HEAD + w->b.T) + 1;
}

static void gx__target_open(GxContext *g, GxTargetWriter *w, GxTargetSearches *s, int64_t n)
{
    s->search = (GxBeamSearch *)calloc((size_t)gx_max(n, 1), sizeof *s->search);
    s->logits = (float *)malloc((size_t)w->logits.cols * sizeof *s->logits);
    s->unknown = (int32_t *)malloc((size_t)w->b.T * sizeof *s->unknown);
    s->row = (int32_t *)malloc((size_t)w->b.B * sizeof *s->row);
    s->from = (int64_t *)malloc((size_t)w->b.B * sizeof *s->from);
    s->found = (int64_t *)calloc((size_t)gx__target_found(w, n), sizeof *s->found);
    if (!s->search || !s->logits || !s->unknown || !s->row || !s->from || !s->found)
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory to write targets");
    if (!gx_failed(g)) gx_beam_columns_open(&s->next, n * w->options.num_beams, &g->error);
    for (int64_t t = 0; t < w->b.T && s->unknown; t++) s->unknown[t] = w->l->of[GX_OF_TARGET].pad;
    for (int64_t i = 0; i < n && g->rank == 0 && !gx_failed(g); i++) {
        if (gx_beam_search_open(&s->search[i], &w->options, w->logits.cols, &g->error) != GX_OK) break;
        gx_beam_search_begin(&s->search[i], &w->l->start, 1);
    }
}

static int64_t gx__target_column(const GxTargetWriter *w, int64_t text, int64_t beam)
{
    return beam * w->source.B + text;
}

// The sources, and for each beam a target that is only begun.
static void gx__target_begin(GxContext *g, GxTargetWriter *w, const GxTargetSearches *s, const int32_t *const *source,
                             const int32_t *length, int64_t n)
{
    const int64_t K = w->options.num_beams, T = w->b.T;
    GxSourceWriter writer;
    gx_source_begin(&writer, w->l, &w->b, w->host_copy);
    for (int64_t i = 0; i < n; i++) {
        gx_source_put_source(&writer, i, 0, source[i], length[i], 0, K * T);
        for (int64_t k = 0; k < K; k++)
            gx_source_put_target(&writer, gx__target_column(w, i, k), 0, s->unknown, T, 0, length[i]);
    }
    gx_source_finish(&writer);
    gx_to_device(g, w->block, w->host_copy, w->bytes);
    if (w->has_cache) gx_kv_cache_begin(g, &w->cache, NULL);
}

// Row `row` of the logits as fp32.
static void gx__target_logits(const GxTargetWriter *w, int64_t row, float *x)
{
    const int64_t V = w->logits.cols;
    if (w->logits.dtype == GX_F32) memcpy(x, (const float *)w->logits_host + row * V, (size_t)V * sizeof *x);
    else
        for (int64_t v = 0; v < V; v++) x[v] = gx_from_bf16(((const uint16_t *)w->logits_host)[row * V + v]);
}

// A text's beams, a token longer, on rank 0.
static void gx__target_advance(GxTargetWriter *w, GxTargetSearches *s, int64_t text)
{
    const int64_t K = w->options.num_beams;
    GxBeamSearch *search = &s->search[text];
    for (int64_t k = 0; k < K; k++) {
        gx__target_logits(w, gx__target_column(w, text, k), s->logits);
        w->is_unsound |= !gx_sampling_is_sound(s->logits, w->logits.cols);
        gx_beam_search_see(search, k, s->logits);
    }
    gx_beam_search_advance(search);
    if (!search->is_finished) gx_beam_columns_follow(&s->next, text * K, search);
}

// On all ranks: the columns have the tokens 0 to t of those that they follow, and then the next one.
static void gx__target_follow(GxTargetWriter *w, const GxTargetSearches *s, int64_t t)
{
    int32_t *tokens = (int32_t *)w->host_copy; // the target's, [T,B]
    const int64_t B = w->b.B, K = w->options.num_beams;
    for (int64_t b = 0; b < B; b++) s->from[b] = b;
    for (int64_t i = 0; i < s->next.columns; i++) // beam k of text i there
        s->from[gx__target_column(w, i / K, i % K)] = gx__target_column(w, i / K, s->next.from[i] % K);
    for (int64_t at = 0; at <= t; at++) {
        memcpy(s->row, tokens + at * B, (size_t)B * sizeof *s->row);
        for (int64_t b = 0; b < B; b++) tokens[at * B + b] = s->row[s->from[b]];
    }
    for (int64_t i = 0; i < s->next.columns && t + 1 < w->b.T; i++)
        if (s->next.token[i] >= 0) tokens[(t + 1) * B + gx__target_column(w, i / K, i % K)] = (int32_t)s->next.token[i];
}

// All searches, a token further than t. Returns how many go on.
static int64_t gx__target_step(GxContext *g, GxTargetWriter *w, GxTargetSearches *s, int64_t n, int64_t t)
{
    int64_t left = 0;
    gx_beam_columns_stay(&s->next);
    for (int64_t i = 0; i < n && g->rank == 0 && !gx_failed(g); i++) {
        if (s->search[i].is_finished) continue;
        gx__target_advance(w, s, i);
        left += !s->search[i].is_finished;
    }
    left = gx_beam_columns_pass(g, &s->next, left);
    if (left) gx__target_follow(w, s, t);
    if (left && w->has_cache) gx_kv_cache_follow(g, &w->cache, s->from, t + 1);
    return left;
}

static void gx__target_find(const GxTargetWriter *w, const GxBeamSearch *s, int64_t *found)
{
    const int64_t n = gx_beam_search_results(s);
    for (int64_t i = 0; i < gx_min(n, w->options.num_return_sequences); i++, found += GX__TARGET_HEAD + w->b.T) {
        const GxBeam *beam = gx_beam_search_result(s, i);
        found[0] = beam->n - 1;
        memcpy(&found[1], &beam->score, sizeof beam->score);
        for (int64_t k = 1; k < beam->n; k++) found[GX__TARGET_HEAD + k - 1] = beam->tokens[k];
    }
}

// On all ranks: what rank 0 has found.
static void gx__target_take(GxContext *g, GxTargetWriter *w, GxTargetSearches *s, int64_t n, GxWrittenTarget *target)
{
    const int64_t N = w->options.num_return_sequences, each = GX__TARGET_HEAD + w->b.T, all = gx__target_found(w, n);
    for (int64_t i = 0; i < n && g->rank == 0; i++) gx__target_find(w, &s->search[i], s->found + i * N * each);
    s->found[all - 1] = w->is_unsound;
    gx_at(g, -1, "beams");
    gx_broadcast(g, GX_AXIS_ALL, 0, s->found, all, GX_I64);
    w->is_unsound = s->found[all - 1] != 0;
    for (int64_t i = 0; i < n * N; i++) {
        const int64_t *found = s->found + i * each;
        target[i].n = found[0];
        memcpy(&target[i].score, &found[1], sizeof target[i].score);
        for (int64_t k = 0; k < found[0]; k++) target[i].ids[k] = (int32_t)found[GX__TARGET_HEAD + k];
    }
}

int gx_target_writer_run(GxContext *g, GxTargetWriter *w, const GxForward *forward, const int32_t *const *source,
                         const int32_t *length, int64_t n, GxWrittenTarget *target)
{
    GxTargetSearches s = GX_ZERO;
    int64_t left = n;
    w->is_unsound = 0;
    if (!g->device->computes) {
        gx__target_pass(g, w, forward, 0); // with the encoder
        gx__target_pass(g, w, forward, w->b.T - 1);
        return 0;
    }
    gx__target_open(g, w, &s, n);
    if (!gx_failed(g)) gx__target_begin(g, w, &s, source, length, n);
    for (int64_t t = 0; left && !gx_failed(g); t++) {
        gx__target_pass(g, w, forward, t);
        left = gx__target_step(g, w, &s, n, t);
        if (left && forward->stop && forward->stop(forward->stop_user)) break;
    }
    if (!left && !gx_failed(g)) gx__target_take(g, w, &s, n, target);
    gx__target_close(&s, n);
    return !left && !gx_failed(g);
}
#endif
