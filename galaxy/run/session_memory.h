// session_memory.h: the memory of a session: the plan, which is counted by walking through the run on a device that
// does not compute, and the buffers, taken exactly as planned.
//
// Everything that takes memory in a run must be in one of the two: gx_session_allocate is called first on an arena that
// only counts, then on the real one; the dry run of gx_session_plan also calls every function that takes scratch.
#ifndef GX_SESSION_MEMORY_H
#define GX_SESSION_MEMORY_H
#include "session.h"
GX_BEGIN

// Sets the shapes of the window's micro-batches, and the places of their arrays in their blocks; again after s->window
// has changed.
void gx_session_lay_window(GxSession *s);
// Called by all ranks: makes s->plan, of a window of micro-batches, the update, a validation, a sample, initial
// weights, loading and saving.
GxStatus gx_session_plan(GxSession *s);
// Takes everything that lives as long as the session from g's arena: the step, weights, gradients, moments, batches,
// activations, and what the task needs.
void gx_session_allocate(GxSession *s, GxContext *g);
// Opens the arenas that were planned, and allocates. An error if they do not fit.
GxStatus gx_session_open_memory(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_MEMORY_IMPLEMENTED)
#define GX_SESSION_MEMORY_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "tensor_file.h"

// Micro-batch i of s->batch, with arrays in its block.
static void gx__session_memory_lay(GxSession *s, int64_t i)
{
    const int64_t at = i % gx_session_blocks(s);
    s->run->task->batch.layout(s->run->self, &s->batch[i], s->blocks + at * s->block_bytes,
                               gx_session_host_block(s, at));
}

// full: as if each micro-batch had the most samples, for the plan of memory.
static void gx__session_memory_lay_window(GxSession *s, int full)
{
    for (int64_t i = 0; i < gx_session_micro_batches(s); i++) {
        const GxRange samples = gx_session_range(s, i);
        s->batch[i].B = full ? gx_session_samples(s) : gx_range_count(samples);
        s->batch[i].window_sample = samples.begin - gx_session_range(s, 0).begin;
        gx__session_memory_lay(s, i);
    }
}

void gx_session_lay_window(GxSession *s) { gx__session_memory_lay_window(s, 0); }

// The window's micro-batches, as many as there can be, then the validation's.
static void gx__session_memory_allocate_batches(GxSession *s, GxContext *g)
{
    GxTrainRun *r = s->run;
    const int64_t n = gx_session_micro_most(s), all = gx_session_blocks(s);
    for (int64_t i = 0; i < n + s->evals; i++) {
        GxBatch *b = &s->batch[i];
        b->T = r->o.seq_len, b->B = gx_session_samples(s);
        b->runs = gx_runs_one(b->T, 0);
        b->number = (int)i, b->window_sample = 0;
    }
    s->block_bytes = r->task->batch.layout(r->self, s->eval, NULL, NULL);
    s->blocks = (char *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, all * s->block_bytes);
    s->blocks_host = (char *)gx_host_copy(g, GX_MEM_ACTIVATIONS, s->blocks, all * s->block_bytes);
    if (gx_failed(g)) return;
    gx_session_lay_window(s);
    for (int64_t i = n; i < n + s->evals; i++) gx__session_memory_lay(s, i);
}

void gx_session_allocate(GxSession *s, GxContext *g)
{
    GxTrainRun *r = s->run;
    GxArena *a = g->arena;
    const int64_t T = r->o.seq_len, B = gx_session_samples(s);
    g->step = (GxStep *)gx_arena_allocate(a, GX_MEM_WORKSPACE, sizeof *g->step);
    s->eval_loss = (double *)gx_arena_allocate(a, GX_MEM_WORKSPACE, GX_MAX_LOSSES * sizeof(double));
    gx__session_memory_allocate_batches(s, g);
    gx_runner_allocate(g, &s->runner, T, B, r->o.head_chunk);
    if (s->extra.allocate) s->extra.allocate(s->extra.self, s, g);
    if (r->task->batch.allocate) r->task->batch.allocate(g, r->self, &s->model, T);
}

// What a window takes at most, and what the window that the run begins with computes and sends.
static void gx__session_memory_dry_window(GxPlan *p, GxContext *dry, GxSession *s)
{
    if (s->window.is_own) {
        gx__session_memory_lay_window(s, 1);
        gx_runner_train(dry, &s->runner, s->batch, NULL, NULL);
        dry->recorder->flops = 0, dry->recorder->comm_bytes = 0;
        gx_session_lay_window(s);
    }
    gx_watchers_rehearse(&s->run->watchers, s, dry);
    gx_runner_train(dry, &s->runner, s->batch, NULL, NULL);
    gx_watchers_rehearsed(&s->run->watchers, s, dry);
    p->flops = dry->recorder->flops;
    p->comm_bytes = dry->recorder->comm_bytes;
}

static void gx__session_memory_dry_run(GxPlan *p, GxContext *dry, void *session)
{
    GxSession *s = (GxSession *)session;
    GxTrainRun *r = s->run;
    const GxForward forward = gx_runner_hook(&s->runner);
    gx_session_allocate(s, dry);
    GxStep step = GX_ZERO;
    dry->step = &step; // the arena that only counts has no memory behind its pointers, so the step is a local
    gx__session_memory_dry_window(p, dry, s);
    p->sharded = (int)s->model.store.sharded;
    if (s->runner.cache) { // count again, as if the cache had all samples
        s->runner.plans_found = 1;
        gx_runner_train(dry, &s->runner, s->batch, NULL, NULL);
        s->runner.plans_found = 0;
        p->flops_kept = 2 * p->flops - dry->recorder->flops;
    }
    gx_runner_forward(dry, &s->runner, s->eval, s->eval_loss);
    if (gx_options_is_inference(&r->o)) p->flops = dry->recorder->flops, p->comm_bytes = dry->recorder->comm_bytes;
    if (r->task->data.prepare) r->task->data.prepare(dry, r->self, &forward);
    if (r->task->output.sample) free(r->task->output.sample(dry, r->self, &forward, 0));
    gx_model_init(dry, &s->model, 0);
    const int loads = r->resume.folder[0] ? 2 : r->o.model[0] ? 1 : 0;
    gx_tensor_file_plan(dry, &s->model.store, gx_tensor_file_has_part(s->g, &s->model.store), loads);
    dry->step = NULL;
}

GxStatus gx_session_plan(GxSession *s)
{
    const int64_t n = gx_session_micro_most(s);
    s->batch = (GxBatch *)calloc((size_t)(n + s->evals), sizeof *s->batch);
    if (!s->batch) return GX_FAIL(&s->g->error, GX_ERR_MEMORY, "no memory for %ld micro-batches", (long)n + s->evals);
    s->eval = s->batch + n;
    const int ranks_here = s->run->o.ranks > 1 ? (int)s->run->o.ranks : 1;
    return gx_plan_make(&s->plan, s->g, &s->comm_arena, ranks_here, gx__session_memory_dry_run, s);
}

GxStatus gx_session_open_memory(GxSession *s)
{
    GxContext *g = s->g;
    GX_TRY(gx_plan_refuse_too_large(&s->plan, gx_session_samples(s), &s->run->o.dp_batch_size_list, &g->error));
    GX_TRY(gx_arenas_open(g, &s->arena, &s->host_arena, s->plan.arena, s->plan.host));
    // the driver may not allocate a card's memory for a rank while another rank's collective waits for that rank
    if (g->comm && g->comm->device_engine) gx_barrier(g, GX_AXIS_ALL);
    gx_session_allocate(s, g);
    return gx_status(g);
}
#endif
