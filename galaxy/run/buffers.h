// buffers.h: the buffers of a run, and the run's own path without computing, by which the plan counts them.
//
// What takes memory anywhere in a run has its line in both: gx_buffers_take is called on an arena that only counts,
// then on the real one; gx_buffers_dry_run also calls all that takes scratch.
#ifndef GX_BUFFERS_H
#define GX_BUFFERS_H
#include "plan.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

// Everything that lives as long as the run, from the context's arena: the step, weights, gradients, moments, batches,
// activations, the generator.
void gx_buffers_take(GxTrainer *t, GxContext *g);
// A GxDryRun of a trainer: one window, the update, a validation, a token, first weights, loading and saving.
void gx_buffers_dry_run(GxPlan *p, GxContext *dry, void *trainer);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BUFFERS_IMPLEMENTED)
#define GX_BUFFERS_IMPLEMENTED
#include <string.h>
#include "trainer.h"

static void gx__buffers_take_batch(GxTrainer *t, GxBatch *b, int64_t number)
{
    int64_t rows = t->o.seq_len * gx_trainer_samples(t);
    b->T = t->o.seq_len;
    b->B = gx_trainer_samples(t);
    b->runs = gx_runs_one(b->T, 0);
    b->tokens = t->tokens + 2 * number * rows;
    b->labels = b->tokens + rows;
    b->labels_twin = t->tokens_twin + (2 * number + 1) * rows;
}

void gx_buffers_take(GxTrainer *t, GxContext *g)
{
    GxArena *a = g->arena;
    const int64_t T = t->o.seq_len, B = gx_trainer_samples(t);
    const int64_t tokens = 8 * T * B * (t->o.gradient_accumulation_steps + 1); // bytes
    g->step = (GxStep *)gx_arena_take(a, GX_MEM_WORKSPACE, sizeof *g->step);
    t->eval_loss = (double *)gx_arena_take(a, GX_MEM_WORKSPACE, sizeof(double));
    t->tokens = (int32_t *)gx_arena_take(a, GX_MEM_ACTIVATIONS, tokens);
    t->tokens_twin = (int32_t *)gx_host_twin(g, GX_MEM_ACTIVATIONS, t->tokens, tokens);
    for (int64_t i = 0; i < t->o.gradient_accumulation_steps; i++) gx__buffers_take_batch(t, &t->batch[i], i);
    gx__buffers_take_batch(t, &t->eval, t->o.gradient_accumulation_steps);
    t->eval.loss = t->eval_loss;
    gx_runner_take(g, &t->runner, T, B, t->o.head_chunk);
    gx_generator_take(g, &t->generator, T, gx_model_vocab(&t->model), t->model.store.dtype);
}

void gx_buffers_dry_run(GxPlan *p, GxContext *dry, void *trainer)
{
    GxTrainer *t = (GxTrainer *)trainer;
    GxSampling sampling = GX_ZERO;
    int32_t token[2] = {0, 0};
    gx_buffers_take(t, dry);
    GxStep step = GX_ZERO;
    dry->step = &step; // what the arena gave must not be touched; this may be
    gx_runner_train(dry, &t->runner, t->batch, NULL, NULL);
    p->flops = dry->recorder->flops;
    p->comm_bytes = dry->recorder->comm_bytes;
    gx_runner_forward(dry, &t->runner, &t->eval);
    gx_generate(dry, &t->runner, &t->generator, token, 1, 2, &sampling);
    gx_model_init(dry, &t->model, 0);
    if (gx_tensor_file_has_part(t->g) || t->resume[0] || t->o.model[0]) gx_tensor_file_plan(dry, &t->model.store);
    dry->step = NULL;
}
#endif
