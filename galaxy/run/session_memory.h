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
// Fills micro-batch i of s->batch, and copies it to the device. fill: writes the host's copy of b, errors to
// s->run->data_error. With cp b is a batch of whole sequences, of which this rank gets its rows.
typedef void GxSessionFill(GxSession *s, GxBatch *b, void *host_copy, void *user);
void gx_session_fill(GxSession *s, int64_t i, GxSessionFill *fill, void *user);
// Called by all ranks: makes s->plan, of a window of micro-batches, the update, a validation, a sample, initial
// weights, loading and saving.
GxStatus gx_session_plan(GxSession *s);
// Takes everything that lives as long as the session from g's arena: the step, weights, gradients, moments, batches,
// activations, and what the task needs.
void gx_session_allocate(GxSession *s, GxContext *g);
GxStatus gx_session_refuse_too_large(const GxSession *s, GxError *err); // if the plan does not fit
// Called by all ranks together: the first rank whose plan does not fit; -1: there is none. most: bytes that the fullest
// machine or card would need.
int gx_session_too_large(GxSession *s, double *most);
// Opens the arenas that were planned, and allocates. An error if they do not fit.
GxStatus gx_session_open_memory(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_MEMORY_IMPLEMENTED)
#define GX_SESSION_MEMORY_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "batch_cut.h"
#include "hook.h"
#include "tensor_file.h"

// Micro-batch i of s->batch, with arrays in its block.
static void gx__session_memory_lay(GxSession *s, int64_t i)
{
    const int64_t at = i % gx_session_blocks(s);
    char *block = s->blocks + at * s->block_bytes;
    GxBatch *b = &s->batch[i], *source = b->source;
    if (source) source->B = b->B, source->window_sample = b->window_sample;
    const int64_t bytes = s->run->task->batch.layout(s->run->self, b, block, gx_session_host_block(s, at));
    if (b->cp) gx_batch_cut_lay(b, block, bytes);
}

// The bytes of a block; with cp also whole sequences in the host's memory, of which a batch has a part.
static void gx__session_memory_measure_block(GxSession *s, GxContext *g)
{
    const GxTrainRun *r = s->run;
    GxBatch whole = *s->eval;
    s->block_bytes = r->task->batch.layout(r->self, s->eval, NULL, NULL);
    if (!s->eval->cp) return;
    s->block_bytes += gx_batch_cut_lay(s->eval, NULL, s->block_bytes);
    whole.T = r->o.seq_len, whole.cp = NULL, whole.runs = gx_runs_one(whole.T, 0);
    s->whole = (char *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS,
                                        r->task->batch.layout(r->self, &whole, NULL, NULL));
}

void gx_session_fill(GxSession *s, int64_t i, GxSessionFill *fill, void *user)
{
    GxTrainRun *r = s->run;
    const int64_t at = i % gx_session_blocks(s);
    char *block = s->blocks + at * s->block_bytes, *host = (char *)gx_session_host_block(s, at);
    GxBatch *b = &s->batch[i], whole = *b;
    if (!b->cp) fill(s, b, host, user);
    else {
        whole.T = r->o.seq_len, whole.cp = NULL, whole.row_of = NULL, whole.runs = gx_runs_one(whole.T, 0);
        r->task->batch.layout(r->self, &whole, s->whole, s->whole);
        fill(s, &whole, s->whole, user);
        if (!gx_error_code(&r->data_error)) gx_batch_cut(b, &whole, block, host);
    }
    gx_to_device(s->g, block, host, s->block_bytes);
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
    const int64_t n = gx_session_micro_most(s), all = gx_session_blocks(s);
    for (int64_t i = 0; i < n + s->evals; i++) {
        GxBatch *b = &s->batch[i];
        b->T = gx_session_rows(s), b->B = gx_session_samples(s);
        b->cp = s->model.cp.n > 1 ? &s->model.cp : NULL;
        b->runs = b->cp ? gx_cp_runs(b->cp, b->cp->me) : gx_runs_one(b->T, 0);
        b->number = (int)i, b->window_sample = 0;
        if (!s->model.memory) continue;
        b->source = &s->batch[n + s->evals + i];
        b->source->T = s->model.max_source_T, b->source->B = b->B, b->source->number = b->number;
        b->source->runs = gx_runs_one(b->source->T, 0);
    }
    gx__session_memory_measure_block(s, g);
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
    gx_runner_allocate(g, &s->runner, gx_session_rows(s), B, r->o.head_chunk);
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
    s->batch = (GxBatch *)calloc(2 * (size_t)(n + s->evals), sizeof *s->batch);
    if (!s->batch) return GX_FAIL(&s->g->error, GX_ERR_MEMORY, "no memory for %ld micro-batches", (long)n + s->evals);
    s->eval = s->batch + n;
    const int ranks_here = s->run->o.ranks > 1 ? s->g->world : 1; // without those that a plan leaves out
    // of several plans, what the first one found: the others would count what planning left behind
    const int64_t process = s->plan.process;
    memset(&s->plan, 0, sizeof s->plan);
    s->plan.process = process;
    s->plan.in_file = s->run->chosen.offloaded, s->plan.limit = s->run->memory_limit;
    if (s->plan.in_file && !s->g->device->shares_host_memory)
        return GX_FAIL(
            &s->g->error, GX_ERR_UNSUPPORTED,
            "--offload %s is for ranks that compute on the CPU; on cards say --recompute layer, --zero 3, or "
            "--pp for less memory",
            s->run->o.offload);
    return gx_plan_make(&s->plan, s->g, &s->run->comm_arena, ranks_here, gx__session_memory_dry_run, s);
}

GxStatus gx_session_refuse_too_large(const GxSession *s, GxError *err)
{
    return gx_plan_refuse_too_large(&s->plan, gx_session_samples(s), &s->run->o.dp_batch_size_list, err);
}

int gx_session_too_large(GxSession *s, double *most)
{
    GxContext *g = s->g;
    GxError refused = GX_ZERO;
    const GxSplit ranks = gx_split_even(g->world, g->world);
    double all[2 * GX_MAX_PARTS] = GX_ZERO, mine[2] = GX_ZERO;
    int first = -1;
    mine[0] = gx_session_refuse_too_large(s, &refused) != GX_OK;
    mine[1] = (double)(s->plan.is_apart ? s->plan.card.bytes : s->plan.machine.bytes);
    *most = 0;
    gx_at(g, -1, "plan");
    gx_all_gather(g, GX_AXIS_ALL, &ranks, all, mine, 2, GX_F64); // a gather needs no scratch
    for (int r = g->world - 1; r >= 0; r--) {
        if (all[2 * r]) first = r;
        *most = all[2 * r + 1] > *most ? all[2 * r + 1] : *most;
    }
    return first;
}

GxStatus gx_session_open_memory(GxSession *s)
{
    GxContext *g = s->g;
    GX_TRY(gx_session_refuse_too_large(s, &g->error));
    GX_TRY(gx_arenas_open(g, &s->arena, &s->host_arena, s->plan.arena, s->plan.host));
    if (s->plan.in_file)
        GX_TRY(
            gx_arena_offload(&s->arena, s->run->o.offload_dir, s->plan.in_file, gx_plan_in_file(&s->plan), &g->error));
    // the driver may not allocate a card's memory for a rank while another rank's collective waits for that rank
    if (g->comm && g->comm->device_engine) gx_barrier(g, GX_AXIS_ALL);
    gx_session_allocate(s, g);
    return gx_status(g);
}
#endif
