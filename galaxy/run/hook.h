// hook.h: how tasks run a session's model: gx_runner_forward as a callback. Under context parallelism a batch of whole
// sequences, which a task has made for itself, is divided among the ranks of cp, and what the model writes for its
// targets is brought to all of them: a task sees nothing of it.
#ifndef GX_HOOK_H
#define GX_HOOK_H
#include "interpreter.h"
GX_BEGIN

GxForward gx_runner_hook(GxRunner *r); // the runner must outlive it

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_HOOK_IMPLEMENTED)
#define GX_HOOK_IMPLEMENTED
#include "../comm/comm.h"
#include "../model/cp.h"
#include "../ops/elementwise.h"
#include "../ops/memory.h"

// 1: the batch has whole sequences that the model has no memory for. The others, as those of a decoder with its cache,
// are computed by all ranks of cp.
static int gx__hook_divides(const GxModel *m, const GxBatch *b)
{
    return m->cp.n > 1 && !b->cp && !b->cache && b->T == gx_split_total(&m->cp.rows);
}

// This rank's numbers of an array with one per row.
static const int32_t *gx__hook_rows(GxContext *g, const GxBatch *mine, const int32_t *whole)
{
    const int64_t B = mine->B;
    if (!whole) return NULL;
    int32_t *rows = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * mine->T * B);
    for (int i = 0; i < mine->runs.n && rows; i++) {
        const GxRun *run = &mine->runs.run[i];
        gx_copy(g, rows + run->row * B, whole + run->position * B, 4 * run->length * B);
    }
    return rows;
}

// The rows of a target that this rank has. at: [t->n], in host memory: the place of each in the whole target.
static void gx__hook_target(GxContext *g, GxBatch *mine, int k, const GxTarget *whole, int64_t *at)
{
    GxTarget *t = &mine->target[k];
    const GxDtype dtype = whole->logits.dtype;
    const int32_t *rows = gx_target_rows(whole);
    int32_t *to = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * whole->n);
    int32_t *host = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, to, 4 * whole->n);
    if (gx_failed(g)) return;
    t->n = g->device->computes ? 0 : whole->n;
    for (int64_t i = 0; i < whole->n && g->device->computes; i++) {
        const int64_t row = gx_runs_row(&mine->runs, rows[i] / mine->B);
        if (row >= 0) host[t->n] = (int32_t)(row * mine->B + rows[i] % mine->B), at[t->n++] = i;
    }
    gx_to_device(g, to, host, 4 * t->n);
    t->rows = to, t->rows_host = host, t->most = whole->n;
    t->logits = gx_rows(NULL, dtype, whole->n, whole->logits.cols);
    t->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(t->logits));
    t->logits.rows = t->n;
}

// Every row is computed by one rank; to the zeros of the others its bits are added unchanged.
static void gx__hook_results(GxContext *g, const GxTarget *mine, const GxTarget *whole, const int64_t *at)
{
    const int64_t bytes = whole->logits.cols * gx_dtype_size(whole->logits.dtype);
    gx_zero(g, whole->logits.data, whole->n * bytes);
    for (int64_t i = 0; i < mine->n; i++)
        gx_copy(g, (char *)whole->logits.data + (g->device->computes ? at[i] : i) * bytes,
                (const char *)mine->logits.data + i * bytes, bytes);
    gx_at(g, -1, "results");
    gx_all_reduce(g, GX_AXIS_CP, GX_SUM, whole->logits.data, whole->n * whole->logits.cols, whole->logits.dtype);
}

static void gx__hook_run_divided(GxContext *g, GxRunner *r, const GxBatch *whole)
{
    GxBatch mine = *whole;
    const GxArenaMark mark = gx_arena_mark(g->arena), host_mark = gx_arena_mark(gx_host_arena(g));
    int64_t *at[GX_MAX_LOSSES] = GX_ZERO;
    mine.cp = &r->m->cp, mine.runs = gx_cp_runs(mine.cp, mine.cp->me), mine.T = gx_runs_rows(&mine.runs);
    mine.tokens = gx__hook_rows(g, &mine, whole->tokens), mine.types = gx__hook_rows(g, &mine, whole->types);
    mine.positions = gx__hook_rows(g, &mine, whole->positions);
    for (int k = 0; k < GX_MAX_LOSSES; k++) {
        const GxTarget *t = &whole->target[k];
        if (!t->logits.data || !t->rows) continue;
        at[k] = (int64_t *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, 8 * t->n);
        gx__hook_target(g, &mine, k, t, at[k]);
    }
    if (!gx_failed(g)) gx_runner_forward(g, r, &mine, NULL);
    for (int k = 0; k < GX_MAX_LOSSES; k++)
        if (at[k]) gx__hook_results(g, &mine.target[k], &whole->target[k], at[k]);
    gx_arena_release(gx_host_arena(g), host_mark);
    gx_arena_release(g->arena, mark);
}

static void gx__hook_run(GxContext *g, void *user, const GxBatch *b, double *loss)
{
    GxRunner *r = (GxRunner *)user;
    if (!gx__hook_divides(r->m, b)) gx_runner_forward(g, r, b, loss);
    else if (!loss) gx__hook_run_divided(g, r, b);
    else GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "losses of whole sequences are not computed under context parallelism");
}

GxForward gx_runner_hook(GxRunner *r)
{
    const GxForward f = {gx__hook_run, r, NULL, NULL};
    return f;
}
#endif
