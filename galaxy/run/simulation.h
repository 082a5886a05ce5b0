// simulation.h: --simulate FILE: predicts a step of this training on the machines of a machines.json, which may be
// thousands, and ends. Nothing is measured or trained, and the machines need not be there.
//
//     ./train_llama --simulate machines.json --machines_count 1280 --pp 8 --mode tp --tp 8 --global_batch_size 2048
//
// The mesh is that of the options, on as many ranks as the file counts. Units take what the run's own code would do on
// the machines' measured operations (estimate.h), and need the memory that it would take (stage_walk.h); the rest is
// plan/simulate.h. The picture of the schedule goes to simulation.svg in the output folder.
#ifndef GX_SIMULATION_H
#define GX_SIMULATION_H
#include "session.h"
GX_BEGIN

// Does nothing without --simulate; otherwise sets run->done. Called after gx_session_agree.
GxStatus gx_simulation_run(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATION_IMPLEMENTED)
#define GX_SIMULATION_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../io/files.h"
#include "../plan/simulate_print.h"
#include "estimate.h"
#include "measured_machines.h"
#include "options_mesh.h"
#include "reporter.h"
#include "session_data.h"

// ---- the mesh ------------------------------------------------------------------------------------------------------

static GxStatus gx__simulation_count(GxSession *s, GxMachines *m)
{
    const int64_t count = s->run->o.machines_count;
    if (!count) return GX_OK;
    if (m->machines > 1)
        return GX_FAIL(
            &s->g->error, GX_ERR_ARGUMENT,
            "--machines_count is for a file with one kind of machine, but %s has %d; say each one's count in "
            "the file",
            s->run->o.simulate, m->machines);
    m->machine[0].count = count;
    return gx_machines_check(m, s->run->o.simulate, &s->g->error);
}

// Samples and micro-batches of a step, for so many copies of the model.
static GxStatus gx__simulation_batch(GxSession *s, int64_t copies, int64_t *micro_batch, int64_t *steps)
{
    const GxTrainOptions *o = &s->run->o;
    *micro_batch = gx_max(o->micro_batch_size, 1), *steps = o->gradient_accumulation_steps;
    if (!o->global_batch_size) return GX_OK;
    *steps = o->global_batch_size / (*micro_batch * copies);
    if (*steps >= 1 && *steps <= INT16_MAX && *steps * *micro_batch * copies == o->global_batch_size) return GX_OK;
    return GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                   "--global_batch_size %ld is no multiple of micro_batch_size %ld x %ld copies of the model",
                   (long)o->global_batch_size, (long)*micro_batch, (long)copies);
}

// ---- units ---------------------------------------------------------------------------------------------------------

static void gx__simulation_add_bytes(GxSimulatedUnit *u, const int64_t *more, const int64_t *less)
{
    u->weight_bytes = fmax(0, (double)(more[GX_MEM_WEIGHTS] - less[GX_MEM_WEIGHTS]));
    u->grad_bytes = fmax(0, (double)(more[GX_MEM_GRADS] - less[GX_MEM_GRADS]));
    u->moment_bytes = fmax(0, (double)(more[GX_MEM_OPTIMIZER] - less[GX_MEM_OPTIMIZER]));
    u->slot = fmax(0, (double)(more[GX_MEM_ACTIVATIONS] - less[GX_MEM_ACTIVATIONS]) - u->x);
}

// The memory of each kind of unit on the first rank of a group, from stages that differ by one.
static GxStatus gx__simulation_memory(GxSession *s, GxSimulationSpec *p, GxStageShape shape)
{
    GxStageNeeds both, two, first, last;
    int64_t layer[GX_MEM_KINDS];
    GxError *err = &s->g->error;
    GX_TRY(gx_stage_walk_once(s, &shape, NULL, &both, err));
    shape.layers = 2;
    GX_TRY(gx_stage_walk_once(s, &shape, NULL, &two, err));
    shape.layers = 1, shape.has_head = 0;
    GX_TRY(gx_stage_walk_once(s, &shape, NULL, &first, err));
    shape.has_embedding = 0, shape.has_head = 1;
    GX_TRY(gx_stage_walk_once(s, &shape, NULL, &last, err));
    for (int k = 0; k < GX_MEM_KINDS; k++) layer[k] = two.kind[k] - both.kind[k];
    gx__simulation_add_bytes(&p->unit[GX_SIMULATED_LAYER], two.kind, both.kind);
    gx__simulation_add_bytes(&p->unit[GX_SIMULATED_EMBEDDING], first.kind, layer);
    gx__simulation_add_bytes(&p->unit[GX_SIMULATED_HEAD], last.kind, layer);
    return GX_OK;
}

// Of a unit: what a stage with it takes longer than one without.
static void gx__simulation_unit(GxSimulatedUnit *u, const GxStageCost *with, const GxStageCost *without)
{
    u->forward = fmax(with->forward - without->forward, 0), u->backward = fmax(with->backward - without->backward, 0);
    u->step = fmax(with->step - without->step, 0);
}

static GxStatus gx__simulation_seconds(GxEstimate *e, GxSimulationSpec *p, int64_t micro_batch, GxError *err)
{
    int16_t rank[GX_ASSIGNED_RANKS];
    GxStageRequest q = GX_ZERO;
    GxStageCost one = GX_ZERO, two = GX_ZERO, both = GX_ZERO; // layers; one with both ends
    for (int i = 0; i < p->tp; i++) rank[i] = (int16_t)i;
    q.rank = rank, q.n = p->tp, q.layers = 1, q.alive = 1, q.micro_batch = micro_batch;
    q.has_embed = 1; // rank 0 is only in first stages
    GX_TRY(gx_estimate_stage(e, &one, &q, err));
    if (!isfinite(one.forward))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--tp %d: a layer cannot be shared by so many ranks", p->tp);
    q.layers = 2;
    GX_TRY(gx_estimate_stage(e, &two, &q, err));
    q.layers = 1, q.has_head = 1;
    GX_TRY(gx_estimate_stage(e, &both, &q, err));
    for (int kind = 0; kind < GX_SIMULATED_KINDS; kind++)
        p->unit[kind].x = gx_estimate_message(e) * (double)micro_batch;
    GxSimulatedUnit *layer = &p->unit[GX_SIMULATED_LAYER];
    gx__simulation_unit(layer, &two, &one);
    gx__simulation_unit(&p->unit[GX_SIMULATED_HEAD], &both, &one);
    GxStageCost of_layer = GX_ZERO;
    of_layer.forward = layer->forward, of_layer.backward = layer->backward, of_layer.step = layer->step;
    gx__simulation_unit(&p->unit[GX_SIMULATED_EMBEDDING], &one, &of_layer);
    layer->weights = 0.5 * layer->backward; // of equal products, one of two
    layer->recompute = layer->forward;
    return GX_OK;
}

// ---- all of it -----------------------------------------------------------------------------------------------------

// How much slower than the first kind of machine each kind is, by its own operations: factor [kinds].
static GxStatus gx__simulation_factors(GxSession *s, const GxMachines *machines, int64_t micro_batch, double *factor)
{
    GxMachines each = *machines;
    GxMeasured m = GX_ZERO;
    GxEstimate e = GX_ZERO;
    GxError *err = &s->g->error;
    GxStageRequest q = GX_ZERO;
    GxStageCost cost = GX_ZERO;
    each.machine = (GxMachine *)malloc((size_t)machines->machines * sizeof *each.machine);
    if (!each.machine) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d kinds of machines", machines->machines);
    memcpy(each.machine, machines->machine, (size_t)machines->machines * sizeof *each.machine);
    for (int c = 0; c < each.machines; c++) each.machine[c].count = 1;
    GxStatus status = gx_measured_from_machines(&m, &each, s, s->run->o.simulate, err);
    if (status == GX_OK) status = gx_estimate_open(&e, s, s->mode, &m, micro_batch, err);
    q.n = 1, q.layers = 1, q.alive = 1, q.has_embed = q.has_head = 1, q.micro_batch = micro_batch;
    for (int16_t c = 0; c < each.machines && status == GX_OK; c++) {
        q.rank = &c;
        status = gx_estimate_stage(&e, &cost, &q, err);
        factor[c] = (cost.forward + cost.backward) / (c ? factor[0] : 1);
    }
    factor[0] = 1;
    if (status == GX_OK) gx_estimate_warn(&e);
    gx_estimate_close(&e);
    gx_measured_free(&m);
    free(each.machine);
    return status;
}

// Of the slowest machine that a place in the pipeline has.
static void gx__simulation_slowness(const GxMachines *m, int64_t ranks, int pp, const double *factor, double *slowness)
{
    int64_t begin = 0;
    for (int r = 0; r < pp; r++) slowness[r] = 0;
    for (int c = 0; c < m->machines; c++) {
        const int64_t end = begin + m->machine[c].count;
        for (int64_t r = begin * pp / ranks; r <= (end - 1) * pp / ranks; r++)
            slowness[r] = fmax(slowness[r], factor[c]);
        begin = end;
    }
}

static void gx__simulation_links(const GxMachines *m, GxSimulationSpec *p)
{
    const GxMachinesLink *within = &m->machine[0].same_host, *between = &m->link[0];
    p->ranks_per_host = (int)m->machine[0].per_host;
    if (within->bandwidth > 0) p->within.latency = within->latency, p->within.per_byte = 1 / within->bandwidth;
    for (int i = 0; i < m->machines * m->machines; i++) // the slowest of the file
        if (m->link[i].bandwidth > 0 && (between->bandwidth <= 0 || m->link[i].bandwidth < between->bandwidth))
            between = &m->link[i];
    if (between->bandwidth > 0) {
        p->between.latency = between->latency, p->between.per_byte = m->together / between->bandwidth;
        if (p->ranks_per_host < 2) p->within = p->between;
    }
}

// The mesh, and the window.
static GxStatus gx__simulation_mesh(GxSession *s, GxSimulationSpec *p, int64_t ranks, int64_t *micro_batch)
{
    GxTrainRun *r = s->run;
    GxTrainOptions *o = &r->o;
    GxError *err = &s->g->error;
    int64_t steps;
    GX_TRY(gx_options_resolve_mesh(o, &r->config, s->mode, (int)ranks, err));
    r->chosen = gx_options_choose(o, r->program_schedule);
    if (o->stage_tp_list.n || o->stage_num_hidden_layers_list.n || o->stage_warm_list.n || o->dp_samples_list.n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--simulate divides layers and samples evenly; leave out --stage_tp_list, "
                       "--stage_num_hidden_layers_list, --stage_warm_list and --dp_samples_list");
    p->tp = (int)gx_max(o->tp, 1);
    const int64_t copies = ranks / (o->pp * p->tp);
    p->dp_shard = r->chosen.sharded ? (int)o->dp_shard : 1, p->dp_replicate = (int)(copies / p->dp_shard);
    GX_TRY(gx__simulation_batch(s, copies, micro_batch, &steps));
    p->steps.units = (int)gx_run_layers(r) + 2;
    p->steps.ranks = (int)o->pp, p->steps.order = r->chosen.order, p->steps.micro_batches = (int)steps;
    p->steps.recomputes_layers = (r->chosen.again[0] & GX_AGAIN_LAYER) != 0, p->steps.sharded = r->chosen.sharded;
    p->steps.scatters_each = o->shard_grads_in_window && steps > 1,
    p->steps.gathered = (int)gx_max(o->gathered_units, 2);
    p->steps.bucket = (int)o->reduce_bucket, p->steps.starts_sums = o->overlap && o->reduce_bucket > 0;
    p->overlaps = o->overlap;
    p->tokens = (double)(*micro_batch * o->seq_len);
    p->failures.save = 10, p->failures.restart = 600;
    return GX_OK;
}

static GxStatus gx__simulation_report(GxSession *s, const GxSimulationSpec *p)
{
    GxContext *g = s->g;
    GxSimulation sim = GX_ZERO;
    GxReport report;
    char path[GX_PATH];
    if (gx_simulate(&sim, p, &g->error) == GX_OK) {
        gx_report_begin(&report, g);
        if (report.out) gx_simulation_print(report.out, p, &sim);
        gx_report_end_as_is(&report, g);
        if (gx_folder_make(s->run->o.output_dir, &g->error) == GX_OK &&
            gx_path_join(path, s->run->o.output_dir, "simulation.svg", &g->error) == GX_OK) {
            FILE *f = fopen(path, "w");
            if (f) gx_simulation_draw(f, &sim, 0);
            if (!f || fclose(f)) GX_FAIL(&g->error, GX_ERR_IO, "cannot write %s", path);
            else gx_report(g, "schedule: %s\n", path);
        }
    }
    gx_simulation_close(&sim);
    return gx_status(g);
}

// The machines of a group, which are all of the first kind.
static GxStatus gx__simulation_group(GxMeasured *m, const GxMachines *machines, const GxSession *s, int tp,
                                     GxError *err)
{
    GxMachines few = *machines;
    GxMachine one = machines->machine[0];
    one.count = tp;
    few.machine = &one, few.machines = 1;
    return gx_measured_from_machines(m, &few, s, s->run->o.simulate, err);
}

static GxStatus gx__simulation_of(GxSession *s, const GxMachines *machines)
{
    GxError *err = &s->g->error;
    GxMeasured m = GX_ZERO;
    GxEstimate estimate = GX_ZERO;
    GxSimulationSpec p = GX_ZERO;
    int64_t micro_batch = 1;
    const int64_t ranks = gx_machines_ranks(machines);
    GX_TRY(gx__simulation_mesh(s, &p, ranks, &micro_batch));
    double factor[GX_MACHINES_CLASSES], *slowness = (double *)calloc((size_t)p.steps.ranks, sizeof *slowness);
    if (!slowness) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to predict %d stages", p.steps.ranks);
    gx__simulation_links(machines, &p);
    p.slowness = slowness, p.rank_jitter = machines->machine[0].step_spread;
    GxStageShape shape = gx_stage_shape(s->mode, micro_batch);
    shape.ranks = p.tp;
    GxStatus status = gx__simulation_factors(s, machines, micro_batch, factor);
    if (status == GX_OK) gx__simulation_slowness(machines, ranks, p.steps.ranks, factor, slowness);
    if (status == GX_OK) status = gx__simulation_group(&m, machines, s, p.tp, err);
    if (status == GX_OK) status = gx_estimate_open(&estimate, s, s->mode, &m, micro_batch, err);
    if (status == GX_OK) status = gx__simulation_seconds(&estimate, &p, micro_batch, err);
    if (status == GX_OK) status = gx__simulation_memory(s, &p, shape);
    if (status == GX_OK) status = gx__simulation_report(s, &p);
    gx_estimate_close(&estimate);
    gx_measured_free(&m);
    free(slowness);
    return status;
}

// Refuses what a prediction could not honour.
static GxStatus gx__simulation_check(const GxSession *s)
{
    const GxTrainOptions *o = &s->run->o;
    GxError *err = &s->g->error;
    if (s->g->world > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--simulate predicts a training, which one process does; it was started with %d ranks",
                       s->g->world);
    const char *const ignored[][2] = {
        {"plan", o->plan}, {"machines", o->machines}, {"trace", o->trace}, {"plot_memory", o->plot_memory}};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (ignored[i][1][0])
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--simulate computes nothing that --%s could be for; leave it out",
                           ignored[i][0]);
    if (o->cp > 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "--simulate does not predict --cp; leave one of them out");
    if (o->profile_flops)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--simulate computes nothing that --profile_flops could be for; --dry_run counts FLOPs");
    return GX_OK;
}

GxStatus gx_simulation_run(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxMachines machines = GX_ZERO;
    if (!r->o.simulate[0]) return GX_OK;
    GX_TRY(gx__simulation_check(s));
    GX_TRY(gx_session_open_samples(s, 1));
    GX_TRY(gx_machines_read(&machines, r->o.simulate, &g->error));
    GxStatus status = gx__simulation_count(s, &machines);
    if (status == GX_OK) status = gx__simulation_of(s, &machines);
    gx_machines_close(&machines);
    r->done = 1;
    return status;
}
#endif
