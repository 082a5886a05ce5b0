// buffers.h: allocates the buffers of a run, and walks through a run on a device that does not compute, so that the
// plan can count its memory.
//
// Everything that takes memory in a run must be in one of the two: gx_buffers_allocate is called first on an arena that
// only counts, then on the real one; gx_buffers_dry_run also calls every function that takes scratch.
#ifndef GX_BUFFERS_H
#define GX_BUFFERS_H
#include "plan.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

// Takes everything that lives as long as the run from the context's arena: the step, weights, gradients, moments,
// batches, activations, and what the task needs.
void gx_buffers_allocate(GxTrainer *t, GxContext *g);
// The GxDryRun of a trainer: one window of micro-batches, the update, a validation, a sample, initial weights, loading
// and saving.
void gx_buffers_dry_run(GxPlan *p, GxContext *dry, void *trainer);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BUFFERS_IMPLEMENTED)
#define GX_BUFFERS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "side_cache.h"
#include "trainer.h"

// The window's micro-batches, then the validation's.
static void gx__buffers_allocate_batches(GxTrainer *t, GxContext *g)
{
    const int64_t n = t->o.gradient_accumulation_steps, all = gx_trainer_blocks(t);
    for (int64_t i = 0; i < n + t->evals; i++) {
        GxBatch *b = &t->batch[i];
        b->T = t->o.seq_len, b->B = gx_trainer_samples(t);
        b->runs = gx_runs_one(b->T, 0);
        for (int k = 0; k < GX_MAX_LOSSES && i >= n; k++) b->target[k].loss = t->eval_loss ? t->eval_loss + k : NULL;
    }
    t->block_bytes = t->task->layout(t->self, t->eval, NULL, NULL);
    t->blocks = (char *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, all * t->block_bytes);
    t->blocks_host = (char *)gx_host_copy(g, GX_MEM_ACTIVATIONS, t->blocks, all * t->block_bytes);
    if (gx_failed(g)) return;
    for (int64_t i = 0; i < n + t->evals; i++)
        t->task->layout(t->self, &t->batch[i], t->blocks + i % all * t->block_bytes, gx_trainer_host_block(t, i % all));
}

void gx_buffers_allocate(GxTrainer *t, GxContext *g)
{
    GxArena *a = g->arena;
    const int64_t T = t->o.seq_len, B = gx_trainer_samples(t);
    g->step = (GxStep *)gx_arena_allocate(a, GX_MEM_WORKSPACE, sizeof *g->step);
    t->eval_loss = (double *)gx_arena_allocate(a, GX_MEM_WORKSPACE, GX_MAX_LOSSES * sizeof(double));
    gx__buffers_allocate_batches(t, g);
    gx_runner_allocate(g, &t->runner, T, B, t->o.head_chunk);
    gx_side_cache_allocate(t, g);
    if (t->task->allocate) t->task->allocate(g, t->self, &t->model, T);
}

void gx_buffers_dry_run(GxPlan *p, GxContext *dry, void *trainer)
{
    GxTrainer *t = (GxTrainer *)trainer;
    const GxForward forward = gx_runner_hook(&t->runner);
    gx_buffers_allocate(t, dry);
    GxStep step = GX_ZERO;
    dry->step = &step; // the arena that only counts has no memory behind its pointers, so the step is a local
    gx_runner_train(dry, &t->runner, t->batch, NULL, NULL);
    p->sharded = (int)t->model.store.sharded;
    p->flops = dry->recorder->flops;
    p->comm_bytes = dry->recorder->comm_bytes;
    if (t->runner.cache) { // count again, as if the cache had all samples
        t->runner.plans_found = 1;
        gx_runner_train(dry, &t->runner, t->batch, NULL, NULL);
        t->runner.plans_found = 0;
        p->flops_kept = 2 * p->flops - dry->recorder->flops;
    }
    gx_runner_forward(dry, &t->runner, t->eval);
    if (gx_options_is_inference(&t->o)) p->flops = dry->recorder->flops, p->comm_bytes = dry->recorder->comm_bytes;
    if (t->task->prepare) t->task->prepare(dry, t->self, &forward);
    if (t->task->sample) free(t->task->sample(dry, t->self, &forward, 0));
    gx_model_init(dry, &t->model, 0);
    const int loads = t->resume.folder[0] ? 2 : t->o.model[0] ? 1 : 0;
    gx_tensor_file_plan(dry, &t->model.store, gx_tensor_file_has_part(t->g, &t->model.store), loads);
    dry->step = NULL;
}
#endif
