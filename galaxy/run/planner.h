// planner.h: --plan: finds out which rank computes what, before a run's data and model are opened for training.
//
//     --plan auto      measures all ranks and the links between them (measure.h), and searches for the assignment of
//                      layers, shares of layers and samples with the shortest step (plan/search.h)
//     --plan FILE      takes the assignment of a plan.json, which --plan auto has written, or a person has changed
//
// Either way the plan is printed as a table (plan/split_plan.h), the options that it decides are set as if they had been
// given (--pp, --tp, their lists, the samples of each copy of the model), and ranks that it leaves out end. The others
// are renumbered in the order of the plan; rank 0, which reads and writes the files, stays rank 0.
//
// Called between gx_session_agree and gx_session_arrange (session_agree.h), by all ranks.
#ifndef GX_PLANNER_H
#define GX_PLANNER_H
#include "../plan/split_plan.h"
#include "session.h"
GX_BEGIN

// Does nothing without --plan. On a rank that is left out, sets run->done.
GxStatus gx_planner_run(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLANNER_IMPLEMENTED)
#define GX_PLANNER_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../io/files.h"
#include "../plan/search.h"
#include "estimate.h"
#include "measured_machines.h"
#include "reporter.h"
#include "session_agree.h"
#include "session_data.h"

enum {
    GX__PLANNER_MICRO_BATCH = 8, // samples that are measured
    GX__PLANNER_MOST = 32,       // of a micro-batch
    GX__PLANNER_BUDGET = 600,    // groupings of more than six ranks that are looked at
    GX__PLANNER_KINDS = GX_PLAN_REGULAR | GX_PLAN_PIPELINE
};

// ---- what is asked for ---------------------------------------------------------------------------------------------

// clang-format off
// The options that a plan decides.
static const char *const gx__planner_decides[] = {
    "tp", "pp", "stage_tp_list", "stage_num_hidden_layers_list", "stage_warm_list", "pipeline_schedule",
    "tp_num_attention_heads_list", "tp_intermediate_size_list", "tp_vocab_size_list", "seq_scatter_list",
    "zero", "dp_shard", "dp_shard_list", "dp_replicate",
    "dp_batch_size_list", "dp_samples_list", "gradient_accumulation_steps", NULL};
// clang-format on

static GxStatus gx__planner_check(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxError *err = &s->g->error;
    if (gx_options_is_inference(&r->o))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--plan is for training, but this command trains nothing; leave it out");
    if (r->program_schedule)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--plan chooses a schedule, but this program has its own; use train_%s",
                       r->family->name);
    if (r->chosen.tuning == GX_TUNING_SIDE_ONLY)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--plan gives ranks different numbers of samples, which --tuning side_only cannot have; leave "
                       "out --plan, or use --tuning side");
    for (int i = 0; gx__planner_decides[i]; i++)
        if (gx_config_is_set(&r->config, gx__planner_decides[i]))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--plan decides --%s; leave one of them out", gx__planner_decides[i]);
    return GX_OK;
}

// Samples of a step: as given, or what equal ranks would take.
static int64_t gx__planner_samples(const GxSession *s)
{
    const GxTrainOptions *o = &s->run->o;
    return o->global_batch_size ? o->global_batch_size : gx_max(o->micro_batch_size, 1) * s->g->world;
}

// Samples of the largest micro-batch that a plan may have.
static int64_t gx__planner_micro_most(const GxSession *s)
{
    const int64_t given = gx_config_is_set(&s->run->config, "micro_batch_size") ? s->run->o.micro_batch_size : 0;
    return gx_min(given ? given : (int64_t)GX__PLANNER_MOST, gx__planner_samples(s));
}

// ---- data for measurements -----------------------------------------------------------------------------------------

typedef struct {
    void *self; // the task's, as it was before its data were opened
    int64_t vocab;
} gx__PlannerData;

// Opens the data as a rank that takes one sample at a time.
static GxStatus gx__planner_open_data(GxSession *s, gx__PlannerData *d)
{
    GxTrainRun *r = s->run;
    d->self = malloc(r->task->options.size);
    d->vocab = *r->family->vocab_size(r->model_config);
    if (!d->self) return GX_FAIL(&s->g->error, GX_ERR_MEMORY, "no memory for the options of a task");
    memcpy(d->self, r->self, r->task->options.size);
    return gx_session_open_samples(s, r->o.machines[0] != 0);
}

static void gx__planner_close_data(GxSession *s, gx__PlannerData *d)
{
    GxTrainRun *r = s->run;
    if (d->self) {
        r->task->data.close(r->self);
        memcpy(r->self, d->self, r->task->options.size);
        *r->family->vocab_size(r->model_config) = d->vocab;
    }
    free(d->self);
}

// ---- --plan auto ---------------------------------------------------------------------------------------------------

typedef struct { // what rank 0 searches with
    GxSplitPlan *plan;
    const GxSession *s;
    const GxMode *mode;
    const GxMeasured *m;
    GxEstimate estimate;
    double *per_byte; // [ranks][ranks]: seconds, while all links are used
    int *klass;       // [ranks]
} gx__Planner;

// Ranks with the same operations, memory and threads are of a class.
static void gx__planner_classes(gx__Planner *p)
{
    const GxMeasured *m = p->m;
    for (int r = 0; r < m->ranks; r++) {
        p->klass[r] = r;
        for (int k = r - 1; k > 0; k--) { // rank 0 is like no other (estimate.h)
            const GxMeasuredRank *a = &m->rank[r], *b = &m->rank[k];
            if (a->first == b->first && a->samples == b->samples && a->memory == b->memory) p->klass[r] = p->klass[k];
        }
    }
}

static void gx__planner_problem(GxPlanProblem *problem, gx__Planner *p)
{
    const GxTrainRun *r = p->s->run;
    const GxMeasured *m = p->m;
    memset(problem, 0, sizeof *problem);
    problem->ranks = m->ranks, problem->layers = (int)gx_run_model_int(r, "num_hidden_layers"),
    problem->samples = gx__planner_samples(p->s);
    problem->micro_most = gx__planner_micro_most(p->s);
    problem->latency = m->latency, problem->seconds_per_byte = p->per_byte, problem->klass = p->klass;
    problem->x_bytes = gx_estimate_message(&p->estimate);
    problem->first_rank_stays = 1, problem->same_lists = 1;
    problem->kinds = GX__PLANNER_KINDS, problem->budget = m->ranks > 6 ? GX__PLANNER_BUDGET : 0;
    problem->stage = gx_estimate_stage, problem->parts = gx_estimate_parts, problem->user = &p->estimate;
}

// Samples per second of a rank that computes all of the model.
static GxStatus gx__planner_alone(gx__Planner *p, int16_t rank, int64_t micro_batch, double *speed, GxError *err)
{
    GxStageRequest q = GX_ZERO;
    GxStageCost cost = GX_ZERO;
    q.rank = &rank, q.n = 1, q.layers = p->plan->layers, q.has_embed = q.has_head = q.alive = 1;
    q.micro_batch = micro_batch;
    GX_TRY(gx_estimate_stage(&p->estimate, &cost, &q, err));
    *speed = (double)micro_batch / (cost.forward + cost.backward);
    return GX_OK;
}

// What is expected of each rank: how much of the time it computes, and its memory; and of all: how long a step would
// take if nothing were lost.
static GxStatus gx__planner_expect(gx__Planner *p, const GxPlanProblem *problem, GxError *err)
{
    const GxAssignment *a = &p->plan->a;
    double speed = 0;
    int64_t needs[GX_ASSIGNED_RANKS];
    GxMembers members;
    gx_assignment_members(&members, a);
    for (int stage = 0; stage < a->stages; stage++) {
        const GxStageRequest q = gx_stage_request(problem, a, &members, stage);
        const double samples = (double)a->copy[a->stage[stage].copy].samples;
        GxStageCost cost = GX_ZERO;
        GX_TRY(gx_estimate_memory(&p->estimate, needs, &q, err));
        GX_TRY(gx_estimate_stage(&p->estimate, &cost, &q, err));
        for (int i = 0; i < q.n; i++) {
            GxSplitPlanRank *of = &p->plan->rank[q.rank[i]];
            double alone;
            GX_TRY(gx__planner_alone(p, q.rank[i], q.micro_batch, &alone, err));
            speed += alone;
            of->needs = needs[i], of->has = p->m->rank[q.rank[i]].memory;
            of->busy = (cost.forward + cost.backward) * samples / (double)q.micro_batch / p->plan->seconds;
            of->busy = fmin(of->busy, 1), of->is_tight = of->has - of->needs < of->needs / 10;
        }
    }
    p->plan->ideal = (double)p->plan->samples / speed;
    return GX_OK;
}

static void gx__planner_take(GxSplitPlan *p, const GxSearchResult *found, const GxPlanProblem *problem)
{
    const GxAssignmentCost *c = &found->cost;
    p->layers = problem->layers, p->samples = problem->samples;
    p->seconds = c->seconds, p->bubble = c->bubble, p->messages = c->messages, p->sums = c->sums;
    p->with_all = 0;
    for (int r = 0; r < problem->ranks; r++)
        if (p->a.place[r].stage < 0 && isfinite(found->with[r])) p->with_all = fmax(p->with_all, found->with[r]);
}

// Rank 0 searches; the plan has the ranks' numbers as they were started.
static GxStatus gx__planner_search_with(gx__Planner *p, GxError *err)
{
    GxPlanProblem problem;
    GxSearchResult *found = (GxSearchResult *)calloc(1, sizeof *found);
    GxStatus status = found ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a search");
    if (status == GX_OK) status = gx_estimate_open(&p->estimate, p->s, p->mode, p->m, GX__PLANNER_MICRO_BATCH, err);
    if (status == GX_OK) {
        gx__planner_classes(p);
        gx__planner_problem(&problem, p);
        status = gx_search(&p->plan->a, found, &problem, (uint64_t)p->s->run->o.seed, err);
    }
    if (status == GX_OK) {
        const int16_t stage = p->plan->a.place[0].stage; // of rank 0
        gx_assignment_swap(&p->plan->a, stage >= 0 ? p->plan->a.stage[stage].copy : 0);
        gx__planner_take(p->plan, found, &problem);
        snprintf(p->plan->mode, sizeof p->plan->mode, "%s", p->mode->name);
        for (int r = 0; r < p->m->ranks; r++) memcpy(p->plan->rank[r].machine, p->m->rank[r].name, GX_PLAN_NAME);
        status = gx__planner_expect(p, &problem, err);
    }
    free(found);
    if (status == GX_OK) gx_estimate_warn(&p->estimate);
    gx_estimate_close(&p->estimate);
    return status;
}

static GxStatus gx__planner_search(GxSplitPlan *plan, const GxSession *s, const GxMode *mode, const GxMeasured *m)
{
    GxError *err = &s->g->error;
    const int64_t n = m->ranks;
    gx__Planner p = GX_ZERO;
    p.plan = plan, p.s = s, p.mode = mode, p.m = m;
    p.per_byte = (double *)malloc((size_t)(n * n) * sizeof *p.per_byte);
    p.klass = (int *)malloc((size_t)n * sizeof *p.klass);
    GxStatus status =
        p.per_byte && p.klass ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan %ld ranks", (long)n);
    for (int64_t i = 0; i < n * n && status == GX_OK; i++) p.per_byte[i] = m->seconds_per_byte[i] * m->together;
    if (status == GX_OK) status = gx__planner_search_with(&p, err);
    free(p.per_byte);
    free(p.klass);
    return status;
}

// The mode of groups: as the options say, or tp.
static GxMode gx__planner_mode(const GxSession *s)
{
    if (gx_methods_split(s->mode->methods)) return *s->mode;
    return gx_composed("tp", gx_methods(GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP));
}

// --machines: rank 0 reads what others measured. is_elsewhere: the machines are not those of this run.
static GxStatus gx__planner_read_machines(GxSession *s, GxMeasured *m, int64_t *is_elsewhere)
{
    GxContext *g = s->g;
    GxTrainRun *r = s->run;
    const char *path = r->o.machines;
    if (gx_session_is_first(s) && gx_machines_read(&r->machines, path, &g->error) == GX_OK)
        gx_measured_from_machines(m, &r->machines, s, path, &g->error);
    *is_elsewhere = m->ranks != g->world;
    gx_broadcast(g, GX_AXIS_ALL, 0, is_elsewhere, 1, GX_I64);
    GX_TRY(gx_status(g));
    if (!*is_elsewhere || r->o.dry_run) return GX_OK;
    return GX_FAIL(
        &g->error, GX_ERR_ARGUMENT,
        "--machines %s has other machines than the %d rank%s of this run; plan_split, or --dry_run, plans for "
        "machines that are not there",
        path, g->world, g->world == 1 ? "" : "s");
}

static GxStatus gx__planner_measure(GxSession *s, GxMeasured *m, const GxMode *mode)
{
    GxContext *g = s->g;
    GxTrainRun *r = s->run;
    const int64_t most = gx__planner_micro_most(s);
    gx_report(g, "measuring %d rank%s, for up to %d seconds\n", g->world, g->world == 1 ? "" : "s",
              GX_MEASURE_SECONDS + GX_MEASURE_LINK_SECONDS);
    GX_TRY(gx_measure(m, s, mode, gx_min(GX__PLANNER_MICRO_BATCH, most), most));
    const GxMeasuredRank *me = &m->rank[g->rank];
    r->plan_sample = (GxCostSample *)malloc((size_t)me->samples * sizeof *r->plan_sample);
    if (!r->plan_sample) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the measurements of a rank");
    memcpy(r->plan_sample, m->sample + me->first, (size_t)me->samples * sizeof *r->plan_sample);
    r->plan_samples = (int)me->samples;
    for (int k = 0; k < g->world && gx_session_is_first(s); k++)
        if (m->rank[k].spread > 0.1)
            gx_log(&g->log, GX_LOG_WARNING,
                   "the times of rank %d (%s) scatter by %.0f%%, though they were measured for twice as long: other "
                   "programs "
                   "may use the machine, and the plan is as uncertain",
                   k, m->rank[k].name, 100 * m->rank[k].spread);
    return gx_session_is_first(s) ? gx_machines_from_measured(&r->machines, m, s, &g->error) : GX_OK;
}

static GxStatus gx__planner_make(GxSession *s, GxSplitPlan *p, int64_t *is_elsewhere)
{
    GxContext *g = s->g;
    GxMeasured m = GX_ZERO;
    gx__PlannerData data = GX_ZERO;
    const GxMode mode = gx__planner_mode(s);
    gx_machines_close(&s->run->machines); // an earlier session's
    free(s->run->plan_sample);
    s->run->plan_sample = NULL, s->run->plan_samples = 0;
    gx__planner_open_data(s, &data);
    if (!gx_failed(g) && s->run->o.machines[0]) gx__planner_read_machines(s, &m, is_elsewhere);
    else if (!gx_failed(g)) gx__planner_measure(s, &m, &mode);
    if (!gx_failed(g) && gx_session_is_first(s)) gx__planner_search(p, s, &mode, &m);
    gx_broadcast(g, GX_AXIS_ALL, 0, p, sizeof *p, GX_U8); // on a failed context this tells the other ranks
    gx__planner_close_data(s, &data);
    gx_measured_free(&m);
    return gx_status(g);
}

// ---- --plan FILE ---------------------------------------------------------------------------------------------------

// found[r]: the rank, as it was started, that is rank r of the plan.
static GxStatus gx__planner_read(GxSession *s, GxSplitPlan *p, int16_t *found)
{
    GxContext *g = s->g;
    const GxSplit one_each = gx_split_even(g->world, g->world);
    char mine[GX_PLAN_NAME] = "",
         (*machine)[GX_PLAN_NAME] = (char(*)[GX_PLAN_NAME])calloc((size_t)g->world, sizeof *machine);
    if (!machine) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the names of %d machines", g->world);
    if (gx_session_is_first(s) && !gx_failed(g)) gx_split_plan_read(p, s->run->o.plan, &g->error);
    gx_measure_host(mine, sizeof mine);
    gx_all_gather(g, GX_AXIS_ALL, &one_each, machine, mine, GX_PLAN_NAME, GX_U8);
    gx_broadcast(g, GX_AXIS_ALL, 0, p, sizeof *p, GX_U8);
    if (!gx_failed(g)) gx_split_plan_find(p, (const char(*)[GX_PLAN_NAME])machine, g->world, found, &g->error);
    free(machine);
    GX_TRY(gx_status(g));
    const int layers = (int)gx_run_model_int(s->run, "num_hidden_layers");
    if (p->layers != layers)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the plan %s is for %d layers, but the model has %d; make another "
                       "plan (--plan auto)",
                       s->run->o.plan, p->layers, layers);
    if (s->run->o.global_batch_size && p->samples != s->run->o.global_batch_size)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the plan %s is for steps of %ld samples, but --global_batch_size is %ld; make another plan "
                       "(--plan auto), or leave that out",
                       s->run->o.plan, (long)p->samples, (long)s->run->o.global_batch_size);
    return GX_OK;
}

// ---- the options that follow ---------------------------------------------------------------------------------------

// 1: both stages have the same layers, and as many ranks with the same shares.
static int gx__planner_is_alike(const GxAssignment *a, int stage, int other)
{
    const GxAssignmentStage *x = &a->stage[stage], *y = &a->stage[other];
    int16_t rank[GX_ASSIGNED_RANKS], of_other[GX_ASSIGNED_RANKS];
    const int n = gx_assignment_group(a, stage, rank);
    int is_alike = gx_assignment_group(a, other, of_other) == n && x->layers == y->layers && x->warm == y->warm;
    for (int i = 0; i < n && is_alike; i++) {
        const GxAssignmentPlace *p = &a->place[rank[i]], *q = &a->place[of_other[i]];
        is_alike = p->heads == q->heads && p->columns == q->columns && p->vocab == q->vocab && p->rows == q->rows;
    }
    return is_alike;
}

// The ranks in the order of a mesh: stage by stage, in it copy by copy. Returns how many; 0: copies differ.
static int gx__planner_order(const GxAssignment *a, int16_t *order)
{
    const int stages = gx_assignment_stages(a, 0), width = gx_assignment_group(a, 0, NULL);
    int n = 0;
    for (int c = 1; c < a->copies; c++)
        if (gx_assignment_stages(a, c) != stages) return 0;
    for (int k = 0; k < stages; k++)
        for (int c = 0; c < a->copies; c++) {
            const int stage = gx_assignment_first(a, c) + k;
            if (!gx__planner_is_alike(a, stage, k) || (a->copies > 1 && gx_assignment_group(a, k, NULL) != width))
                return 0;
            n += gx_assignment_group(a, stage, order + n);
        }
    return n;
}

// A share of each rank of the first copy, stage by stage, or of one group if all groups have the same. is_all: of each
// rank in any case.
static void gx__planner_list(GxIntList *list, const GxAssignment *a, int is_all, size_t share)
{
    const int stages = gx_assignment_stages(a, 0);
    int16_t rank[GX_ASSIGNED_RANKS];
    int64_t total = 0;
    int is_alike = 1, width = 1;
    list->n = 0;
    for (int k = 0; k < stages; k++) {
        int64_t sum = 0;
        width = gx_assignment_group(a, k, rank);
        for (int i = 0; i < width; i++, list->n++) {
            list->v[list->n] = *(const int64_t *)((const char *)&a->place[rank[i]] + share);
            is_alike &= list->v[list->n] == list->v[list->n % gx_assignment_group(a, 0, NULL)];
            sum += list->v[list->n];
        }
        total = gx_max(total, sum);
    }
    for (int i = 0; i < list->n; i++)
        if (!list->v[i]) list->v[i] = total; // a rank that has its stage to itself
    if (!total) list->n = 0;
    else if (is_alike && !is_all) list->n = width;
}

// The options that an assignment stands for.
static void gx__planner_set(GxTrainOptions *o, const GxAssignment *a)
{
    const int stages = gx_assignment_stages(a, 0), width = gx_assignment_group(a, 0, NULL);
    int same_micro = 1, has_warm = 0, is_ragged = 0;
    o->pp = stages, o->tp = width;
    for (int k = 0; k < stages; k++) {
        o->stage_num_hidden_layers_list.v[k] = a->stage[k].layers, o->stage_warm_list.v[k] = a->stage[k].warm;
        o->stage_tp_list.v[k] = gx_assignment_group(a, k, NULL);
        has_warm |= a->stage[k].warm, is_ragged |= o->stage_tp_list.v[k] != width;
    }
    o->stage_tp_list.n = is_ragged ? stages : 0;
    if (is_ragged) o->pp = 1, o->tp = 0; // the list says both
    o->stage_num_hidden_layers_list.n = stages > 1 ? stages : 0, o->stage_warm_list.n = has_warm ? stages : 0;
    gx__planner_list(&o->tp_num_attention_heads_list, a, is_ragged, offsetof(GxAssignmentPlace, heads));
    gx__planner_list(&o->tp_intermediate_size_list, a, is_ragged, offsetof(GxAssignmentPlace, columns));
    gx__planner_list(&o->tp_vocab_size_list, a, is_ragged, offsetof(GxAssignmentPlace, vocab));
    gx__planner_list(&o->seq_scatter_list, a, is_ragged, offsetof(GxAssignmentPlace, rows));
    o->dp_samples_list.n = a->copies, o->global_batch_size = 0;
    for (int c = 0; c < a->copies; c++) {
        same_micro &= a->copy[c].micro_batch == a->copy[0].micro_batch;
        o->dp_batch_size_list.v[c] = a->copy[c].micro_batch, o->dp_samples_list.v[c] = a->copy[c].samples;
    }
    o->micro_batch_size = same_micro ? a->copy[0].micro_batch : 0;
    o->dp_batch_size_list.n = same_micro ? 0 : a->copies;
}

static GxStatus gx__planner_write(GxSession *s, const GxSplitPlan *p)
{
    const GxTrainRun *r = s->run;
    GxError *err = &s->g->error;
    char path[GX_PATH];
    GX_TRY(gx_folder_make(r->o.output_dir, err));
    GX_TRY(gx_path_join(path, r->o.output_dir, GX_PLAN_FILE, err));
    GX_TRY(gx_split_plan_write(p, path, err));
    gx_report(s->g, "plan: %s\n", path);
    if (!r->machines.machines || r->o.machines[0]) return GX_OK;
    GX_TRY(gx_path_join(path, r->o.output_dir, GX_MACHINES_FILE, err));
    GX_TRY(gx_machines_write(&r->machines, path, err));
    gx_report(s->g, "what was measured: %s\n", path);
    return GX_OK;
}

// Prints the plan; a dry run also writes it, since no run will.
static void gx__planner_show(GxSession *s, const GxSplitPlan *p)
{
    GxReport report;
    gx_report_begin(&report, s->g);
    if (report.out) gx_split_plan_print(report.out, p);
    gx_report_end_as_is(&report, s->g);
    if (s->run->o.dry_run && gx_session_is_first(s)) gx__planner_write(s, p);
}

// The mode of the plan, if ranks share layers: the run's own, or, if that splits nothing, the one that the plan names.
static GxStatus gx__planner_choose_mode(GxSession *s, const GxSplitPlan *p)
{
    GxError *err = &s->g->error;
    GxMethods methods;
    int most = 1;
    for (int k = 0; k < p->a.stages; k++) most = (int)gx_max(most, gx_assignment_group(&p->a, k, NULL));
    const int is_known = gx_mode_methods(p->mode, &methods);
    if (most == 1 && (is_known || !strcmp(s->mode->name, p->mode))) return GX_OK;
    if (is_known && gx_methods_split(s->mode->methods)) {
        if (!strcmp(s->mode->name, p->mode)) return GX_OK;
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the plan splits layers by mode %s, but this run has mode %s; leave out --mode, or make another "
                       "plan (--plan auto)",
                       p->mode, s->mode->name);
    }
    if (!is_known)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the plan splits layers by mode \"%s\", which is none of " GX_MODE_NAMES "; if it was made with "
                       "--att, --con, --mlp or --ends, say the same again",
                       p->mode);
    snprintf(s->run->o.mode, sizeof s->run->o.mode, "%s", p->mode);
    s->composed = gx_composed(s->run->o.mode, methods), s->mode = &s->composed;
    return GX_OK;
}

// Sets the options, and goes on with the ranks of the plan in its order.
static GxStatus gx__planner_apply(GxSession *s, const GxSplitPlan *p, const int16_t *found)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    int16_t order[GX_ASSIGNED_RANKS];
    const int n = gx__planner_order(&p->a, order);
    if (!n)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "the plan's copies of the model differ; with several copies, all have the same stages, layers, "
                       "warm and shares, and all stages as many ranks");
    gx__planner_set(&r->o, &p->a);
    GX_TRY(gx__planner_choose_mode(s, p));
    for (int i = 0; i < n; i++) order[i] = found[order[i]];
    if (order[0] != 0)
        return GX_FAIL(
            &g->error, GX_ERR_UNSUPPORTED,
            "the plan does not begin with rank 0, which has the files; rank 0 must be the first of the first "
            "stage of its first copy");
    gx_comm_keep(g, order, n);
    r->done = !g->world;
    return GX_OK;
}

GxStatus gx_planner_run(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    int16_t found[GX_ASSIGNED_RANKS];
    int64_t is_elsewhere = 0;
    if (r->o.machines[0] && strcmp(r->o.plan, "auto"))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "--machines %s is what --plan auto plans with; give --plan auto, or leave out --machines",
                       r->o.machines);
    if (!r->o.plan[0]) return GX_OK;
    GX_TRY(gx__planner_check(s));
    free(r->plan);
    r->plan = (GxSplitPlan *)calloc(1, sizeof *r->plan);
    if (!r->plan) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a plan");
    for (int i = 0; i < GX_ASSIGNED_RANKS; i++) found[i] = (int16_t)i;
    GX_TRY(strcmp(r->o.plan, "auto") ? gx__planner_read(s, r->plan, found)
                                     : gx__planner_make(s, r->plan, &is_elsewhere));
    gx__planner_show(s, r->plan);
    if (!gx_failed(g) && is_elsewhere) r->done = 1;
    return gx_failed(g) || is_elsewhere ? gx_status(g) : gx__planner_apply(s, r->plan, found);
}
#endif
