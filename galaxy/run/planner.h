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
#include <stdlib.h>
#include <string.h>
#include "../io/files.h"
#include "measure.h"
#include "reporter.h"
#include "session_agree.h"
#include "session_data.h"
#include "stage_costs.h"

enum { GX__PLANNER_MICRO_BATCH = 8, GX__PLANNER_MOST = 64 }; // samples: that are measured; of a micro-batch

// ---- what is asked for ---------------------------------------------------------------------------------------------

// The options that a plan decides.
static const char *const gx__planner_decides[] = {"tp",
                                                  "pp",
                                                  "stage_num_hidden_layers_list",
                                                  "tp_num_attention_heads_list",
                                                  "zero",
                                                  "dp_shard",
                                                  "tp_intermediate_size_list",
                                                  "tp_vocab_size_list",
                                                  "dp_shard_list",
                                                  "dp_replicate",
                                                  "seq_scatter_list",
                                                  "dp_batch_size_list",
                                                  "dp_samples_list",
                                                  "gradient_accumulation_steps",
                                                  "pipeline_schedule",
                                                  NULL};

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

static int gx__planner_layers(const GxSession *s)
{
    const GxField *f = gx_field_find(s->run->family->fields, s->run->family->n_fields, "num_hidden_layers");
    return f ? (int)*(const int64_t *)gx_field_in(f, s->run->model_config) : 1;
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
    s->batch_split = gx_split_even(s->g->world, s->g->world);
    return gx_session_open_samples(s);
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

static void gx__planner_problem(GxSearchProblem *problem, const GxSession *s, GxStageCosts *costs)
{
    const GxTrainOptions *o = &s->run->o;
    const GxMeasured *m = costs->m;
    memset(problem, 0, sizeof *problem);
    problem->ranks = m->ranks, problem->layers = gx__planner_layers(s);
    problem->samples = gx__planner_samples(s);
    problem->micro_most = gx_config_is_set(&s->run->config, "micro_batch_size") && o->micro_batch_size
                              ? o->micro_batch_size
                              : gx_min(GX__PLANNER_MOST, problem->samples);
    problem->latency = m->latency, problem->seconds_per_byte = m->seconds_per_byte;
    problem->stage = gx_stage_costs_answer, problem->user = costs;
}

// Rank 0 searches; the plan has the ranks' numbers as they were started.
static GxStatus gx__planner_search(GxSplitPlan *p, const GxSession *s, const GxMode *mode, const GxMeasured *m)
{
    GxError *err = &s->g->error;
    GxStageCosts costs;
    GxSearchProblem problem;
    GxSearchResult result;
    GxStatus status = gx_stage_costs_open(&costs, s, mode, m, GX__PLANNER_MICRO_BATCH, err);
    if (status == GX_OK) {
        gx__planner_problem(&problem, s, &costs);
        status = gx_search(&p->a, &result, &problem, (uint64_t)s->run->o.seed, err);
    }
    if (status == GX_OK) {
        p->layers = problem.layers, p->samples = problem.samples;
        snprintf(p->mode, sizeof p->mode, "%s", mode->name);
        p->seconds = result.seconds;
        for (int r = 0; r < m->ranks; r++) snprintf(p->rank[r].machine, GX_PLAN_NAME, "%s", m->rank[r].host);
    }
    gx_stage_costs_close(&costs);
    return status;
}

// The mode of groups: as the options say, or tp.
static GxMode gx__planner_mode(const GxSession *s)
{
    if (gx_methods_split(s->mode->methods)) return *s->mode;
    return gx_composed("tp", gx_methods(GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP));
}

static GxStatus gx__planner_make(GxSession *s, GxSplitPlan *p)
{
    GxContext *g = s->g;
    gx__PlannerData data = GX_ZERO;
    GxMeasured m = GX_ZERO;
    const GxMode mode = gx__planner_mode(s);
    gx_report(g, "measuring %d rank%s, for up to %d seconds\n", g->world, g->world == 1 ? "" : "s",
              GX_MEASURE_SECONDS + GX_MEASURE_LINK_SECONDS);
    if (gx__planner_open_data(s, &data) == GX_OK) gx_measure(&m, s, &mode, GX__PLANNER_MICRO_BATCH);
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
    if (p->layers != gx__planner_layers(s))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the plan %s is for %d layers, but the model has %d; make another "
                       "plan (--plan auto)",
                       s->run->o.plan, p->layers, gx__planner_layers(s));
    if (s->run->o.global_batch_size && p->samples != s->run->o.global_batch_size)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the plan %s is for steps of %ld samples, but --global_batch_size is %ld; make another plan "
                       "(--plan auto), or leave that out",
                       s->run->o.plan, (long)p->samples, (long)s->run->o.global_batch_size);
    return GX_OK;
}

// ---- the options that follow ---------------------------------------------------------------------------------------

// The ranks in the order of a mesh: stage by stage, in it copy by copy. *regular: all copies have the same stages.
static int gx__planner_order(const GxAssignment *a, int16_t *order, int *regular)
{
    const int stages = gx_assignment_stages(a, 0), width = gx_assignment_group(a, 0, NULL);
    int n = 0;
    *regular = 1;
    for (int c = 0; c < a->copies; c++) *regular &= gx_assignment_stages(a, c) == stages;
    for (int k = 0; k < stages; k++)
        for (int c = 0; c < a->copies && *regular; c++) {
            const int stage = gx_assignment_first(a, c) + k;
            const int ranks = gx_assignment_group(a, stage, order + n);
            *regular &= (ranks == width || a->copies == 1) && a->stage[stage].layers == a->stage[k].layers;
            n += ranks;
        }
    return n;
}

// A list of all ranks, or of one group if all groups have the same.
static void gx__planner_list(GxIntList *list, const GxAssignment *a, const int16_t *order, int n, int width,
                             size_t share)
{
    int is_alike = 1;
    list->n = 0;
    for (int i = 0; i < n; i++) {
        list->v[i] = *(const int64_t *)((const char *)&a->place[order[i]] + share);
        is_alike &= list->v[i] == list->v[i % width];
    }
    if (list->v[0]) list->n = is_alike ? width : n;
}

static GxStatus gx__planner_set(GxTrainOptions *o, const GxAssignment *a, const int16_t *order, int n, GxError *err)
{
    const int stages = gx_assignment_stages(a, 0), width = gx_assignment_group(a, 0, NULL), of_copy = n / a->copies;
    int is_even = 1, same_micro = 1;
    o->pp = stages, o->tp = width;
    for (int k = 0; k < stages; k++) o->stage_num_hidden_layers_list.v[k] = a->stage[k].layers;
    o->stage_num_hidden_layers_list.n = stages > 1 ? stages : 0;
    for (int k = 1; k < stages; k++)
        if (gx_assignment_group(a, k, NULL) != width)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a plan whose stages have different numbers of ranks");
    gx__planner_list(&o->tp_num_attention_heads_list, a, order, of_copy, width, offsetof(GxAssignmentPlace, heads));
    gx__planner_list(&o->tp_intermediate_size_list, a, order, of_copy, width, offsetof(GxAssignmentPlace, columns));
    gx__planner_list(&o->tp_vocab_size_list, a, order, of_copy, width, offsetof(GxAssignmentPlace, vocab));
    gx__planner_list(&o->seq_scatter_list, a, order, of_copy, width, offsetof(GxAssignmentPlace, rows));
    for (int c = 0; c < a->copies; c++) {
        const GxAssignmentCopy *copy = &a->copy[c];
        is_even &= copy->samples % copy->micro_batch == 0, same_micro &= copy->micro_batch == a->copy[0].micro_batch;
        o->dp_batch_size_list.v[c] = copy->micro_batch;
    }
    o->micro_batch_size = same_micro ? a->copy[0].micro_batch : 0;
    o->dp_batch_size_list.n = same_micro ? 0 : a->copies;
    (void)is_even;
    return GX_OK;
}

GxStatus gx_planner_run(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    int16_t found[GX_ASSIGNED_RANKS], order[GX_ASSIGNED_RANKS];
    int regular;
    if (!r->o.plan[0]) return GX_OK;
    GX_TRY(gx__planner_check(s));
    GxSplitPlan *p = (GxSplitPlan *)calloc(1, sizeof *p);
    if (!p) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a plan");
    for (int i = 0; i < GX_ASSIGNED_RANKS; i++) found[i] = (int16_t)i;
    const GxStatus status = strcmp(r->o.plan, "auto") ? gx__planner_read(s, p, found) : gx__planner_make(s, p);
    if (status == GX_OK) {
        const int n = gx__planner_order(&p->a, order, &regular);
        GxReport report;
        gx_report_begin(&report, g);
        if (report.out) gx_split_plan_print(report.out, p);
        gx_report_end_as_is(&report, g);
        gx__planner_set(&r->o, &p->a, order, n, &g->error);
        for (int i = 0; i < n; i++) order[i] = found[order[i]];
        gx_comm_keep(g, order, n);
        r->done = !g->world;
    }
    free(p);
    return gx_status(g);
}
#endif
