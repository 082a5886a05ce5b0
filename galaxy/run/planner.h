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
// While the run goes on, replan.h may make another plan, under which it goes on in another session.
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
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../io/files.h"
#include "measured_machines.h"
#include "planner_search.h"
#include "reporter.h"
#include "session_agree.h"
#include "session_data.h"

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
    if (r->o.cp > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--plan does not divide sequences among ranks; leave out --plan or --cp");
    for (int i = 0; gx__planner_decides[i]; i++)
        if (gx_config_is_set(&r->config, gx__planner_decides[i]))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--plan decides --%s; leave one of them out", gx__planner_decides[i]);
    return GX_OK;
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

// Keeps what operations take on this rank.
static GxStatus gx__planner_keep_sample(GxSession *s, const GxCostSample *sample, int64_t n)
{
    GxTrainRun *r = s->run;
    const size_t bytes = (size_t)n * sizeof *sample;
    r->plan_sample = (GxCostSample *)malloc(bytes);
    if (!r->plan_sample) return GX_FAIL(&s->g->error, GX_ERR_MEMORY, "no memory for the measurements of a rank");
    if (sample) memcpy(r->plan_sample, sample, bytes);
    r->plan_samples = (int)n;
    return GX_OK;
}

typedef struct {                // what a rank is told of the machine that --machines has for it
    char machine[GX_PLAN_NAME]; // "": one of several that are alike
    int64_t samples, threads;
} gx__PlannerTold;

// 1: the host's own name, or that of another rank on it (gx_plan_machine_name).
static int gx__planner_is_named(const char *host, const char *machine)
{
    const size_t n = strlen(host);
    return !strncmp(machine, host, n) && (!machine[n] || (machine[n] == '-' && machine[n + 1]));
}

// A file may describe machines as they should be, so what differs is a warning.
static void gx__planner_warn_of_machine(const GxSession *s, const gx__PlannerTold *told)
{
    const GxContext *g = s->g;
    char host[GX_PLAN_NAME];
    gx_measure_host(host, sizeof host);
    if (told->machine[0] && !gx__planner_is_named(host, told->machine))
        gx_log(&g->log, GX_LOG_WARNING,
               "the machine of rank %d in --machines is %s, but it was started on %s; the speeds in the file are taken "
               "as this one's",
               g->rank, told->machine, host);
    if (told->threads && told->threads != gx_threads(g))
        gx_log(&g->log, GX_LOG_WARNING,
               "the machine of rank %d in --machines was measured with %ld thread%s, but it has %d now (--threads); "
               "its speed will be another one",
               g->rank, (long)told->threads, gx_text_s(told->threads), gx_threads(g));
}

// Tells each rank what operations take on it, by the file that rank 0 has read.
static void gx__planner_hand_out(GxSession *s, const GxMeasured *m)
{
    GxContext *g = s->g;
    GxTrainRun *r = s->run;
    gx__PlannerTold told[GX_MAX_PARTS];
    memset(told, 0, sizeof told);
    for (int k = 0; k < g->world && gx_session_is_first(s) && !gx_failed(g); k++) {
        const int is_one = r->machines.machine[gx_machines_class_of(&r->machines, k)].count == 1;
        told[k].samples = m->rank[k].samples, told[k].threads = m->rank[k].threads;
        if (is_one) snprintf(told[k].machine, GX_PLAN_NAME, "%s", m->rank[k].name);
    }
    gx_broadcast(g, GX_AXIS_ALL, 0, told, g->world * (int64_t)sizeof *told, GX_U8);
    const int64_t n = told[g->rank].samples;
    if (!gx_failed(g)) gx__planner_keep_sample(s, gx_session_is_first(s) ? m->sample + m->rank[0].first : NULL, n);
    for (int k = 1; k < g->world && gx_session_is_first(s); k++)
        gx_send(g, GX_AXIS_ALL, k, m->sample + m->rank[k].first, told[k].samples * (int64_t)sizeof *m->sample, GX_U8);
    if (!gx_session_is_first(s)) gx_recv(g, GX_AXIS_ALL, 0, r->plan_sample, n * (int64_t)sizeof *m->sample, GX_U8);
    if (!gx_failed(g)) gx__planner_warn_of_machine(s, &told[g->rank]);
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
    if (!*is_elsewhere) gx__planner_hand_out(s, m);
    if (!*is_elsewhere || r->o.dry_run) return gx_status(g);
    return GX_FAIL(
        &g->error, GX_ERR_ARGUMENT,
        "--machines %s has other machines than the %d rank%s of this run; plan_split, or --dry_run, plans for "
        "machines that are not there",
        path, g->world, g->world == 1 ? "" : "s");
}

// Where the run will write, so that a folder that it may not have is an error before the time of measuring.
static void gx__planner_check_folder(const GxSession *s)
{
    const char *folder = s->run->o.output_dir;
    if (gx_folder_make(folder, &s->g->error) == GX_OK && access(folder, W_OK | X_OK) != 0)
        GX_FAIL(&s->g->error, GX_ERR_IO, "cannot write in %s: %s", folder, strerror(errno));
}

static GxStatus gx__planner_measure(GxSession *s, GxMeasured *m, const GxMode *mode)
{
    GxContext *g = s->g;
    GxTrainRun *r = s->run;
    if (gx_session_is_first(s)) gx__planner_check_folder(s);
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    GX_TRY(gx_status(g));
    const int64_t most = gx_planner_micro_most(s);
    gx_report(g, "measuring %d rank%s, for up to %d seconds\n", g->world, g->world == 1 ? "" : "s",
              GX_MEASURE_SECONDS + GX_MEASURE_LINK_SECONDS);
    GX_TRY(gx_measure(m, s, mode, gx_min(GX_PLANNER_MICRO_BATCH, most), most));
    const GxMeasuredRank *me = &m->rank[g->rank];
    GX_TRY(gx__planner_keep_sample(s, m->sample + me->first, me->samples));
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
    const GxMode mode = gx_planner_mode(s);
    gx_machines_close(&s->run->machines); // an earlier session's
    free(s->run->plan_sample);
    s->run->plan_sample = NULL, s->run->plan_samples = 0;
    gx__planner_open_data(s, &data);
    if (!gx_failed(g) && s->run->o.machines[0]) gx__planner_read_machines(s, &m, is_elsewhere);
    else if (!gx_failed(g)) gx__planner_measure(s, &m, &mode);
    if (!gx_failed(g) && gx_session_is_first(s)) gx_planner_search(p, s, &mode, &m, &g->error);
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
    const int layers = (int)gx_run_layers(s->run);
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

// The ranks of a plan in its order, by their numbers in it. Returns how many; 0, with an error: it cannot be executed.
static int gx__planner_ranks(const GxSplitPlan *p, const int16_t *found, int16_t *order, GxError *err)
{
    const int n = gx__planner_order(&p->a, order);
    if (!n)
        GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "the plan's copies of the model differ; with several copies, all have the same stages, layers, warm and "
            "shares, and all stages as many ranks");
    else if (found[order[0]] != 0)
        GX_FAIL(err, GX_ERR_UNSUPPORTED,
                "the plan does not begin with rank 0, which has the files; rank 0 must be the first of the first stage "
                "of its first copy");
    return gx_error_code(err) ? 0 : n;
}

// Sets the options, and goes on with the ranks of the plan in its order.
static GxStatus gx__planner_apply(GxSession *s, const GxSplitPlan *p, const int16_t *found, int16_t *order, int n)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxRunPlace place[GX_MAX_PARTS];
    gx__planner_set(&r->o, &p->a);
    GX_TRY(gx__planner_choose_mode(s, p));
    for (int i = 0; i < n; i++) {
        const int16_t planned = order[i];
        order[i] = found[planned];
        place[i] = r->place[order[i]], place[i].planned = planned;
    }
    memcpy(r->place, place, (size_t)n * sizeof *place);
    gx_comm_keep(g, order, n);
    r->done = !g->world;
    return GX_OK;
}

// Before there is a plan.
static void gx__planner_place(GxTrainRun *r, int ranks)
{
    for (int i = 0; i < ranks; i++) r->place[i].planned = r->place[i].machine = (int16_t)i, r->place[i].slower = 1;
}

GxStatus gx_planner_run(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    int16_t found[GX_ASSIGNED_RANKS], order[GX_ASSIGNED_RANKS];
    int64_t is_elsewhere = 0;
    if (r->o.machines[0] && strcmp(r->o.plan, "auto"))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "--machines %s is what --plan auto plans with; give --plan auto, or leave out --machines",
                       r->o.machines);
    if (!r->o.plan[0]) return GX_OK;
    GX_TRY(gx__planner_check(s));
    const int is_next = r->next_plan != NULL;
    free(r->plan);
    r->plan = is_next ? r->next_plan : (GxSplitPlan *)calloc(1, sizeof *r->plan), r->next_plan = NULL;
    if (!r->plan) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a plan");
    for (int i = 0; i < GX_ASSIGNED_RANKS; i++) found[i] = (int16_t)i;
    if (!is_next) {
        gx__planner_place(r, g->world);
        GX_TRY(strcmp(r->o.plan, "auto") ? gx__planner_read(s, r->plan, found)
                                         : gx__planner_make(s, r->plan, &is_elsewhere));
    }
    const int n = is_elsewhere ? 0 : gx__planner_ranks(r->plan, found, order, &g->error);
    if (!gx_failed(g)) gx__planner_show(s, r->plan);
    if (!gx_failed(g) && is_elsewhere) r->done = 1;
    return gx_failed(g) || is_elsewhere ? gx_status(g) : gx__planner_apply(s, r->plan, found, order, n);
}
#endif
