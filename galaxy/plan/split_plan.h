// plan/split_plan.h: a plan: an assignment of a training to machines (assignment.h) with their names, and what is
// expected of it: the file plan.json, and the table that people read.
//
//     rank machine          stage layers heads columns samples  busy      memory  limited by
//        0 desk             1/2     0-19    32   11008  2 x 12   97%  21.3/23.0 GB computing
//        1 laptop           2/2    20-31    32   11008  2 x 12   91%  14.8/15.2 GB memory
//        - old              left out: with it 1.04 times as long
//     a window of 32 samples takes 3.21 s; it would take 2.98 s if nothing were lost to messages (2%), ...
//
// plan.json can be edited, and used again with the same machines (--plan plan.json): copies of the model, their stages,
// and each stage's ranks:
//
//     {"format": "galaxy plan", "version": 1, "layers": 12, "samples": 32, "mode": "tp",
//      "copies": [{"samples": 32, "micro_batch": 2,
//                  "stages": [{"layers": 9, "warm": 0, "ranks": [{"machine": "desk", "rank": 0, "heads": 0, ...}]},
//                             {"layers": 3, "warm": 0, "ranks": [{"machine": "laptop", "rank": 1, "heads": 0, ...}]}]}],
//      "left_out": [{"machine": "old", "rank": 2}]}
#ifndef GX_SPLIT_PLAN_H
#define GX_SPLIT_PLAN_H
#include "../base/fields.h"
#include "assignment.h"
#include <stdio.h>
GX_BEGIN

#define GX_PLAN_FILE "plan.json"

enum { GX_PLAN_NAME = 96 };

typedef struct {                // what is expected of a rank
    char machine[GX_PLAN_NAME]; // its host's name
    double busy;                // share of the window that it computes
    int64_t needs, has;         // bytes of memory; 0: not known
    int is_tight;               // 1: memory decides what it gets; 0: its speed does
} GxSplitPlanRank;

typedef struct {
    GxAssignment a;
    int layers;
    int64_t samples;               // of a window
    char mode[GX_FIELD_TEXT];      // of the groups: "tp"
    double seconds;                // of a window; 0: not known
    double ideal;                  // if the machines lost nothing: all work over the sum of their speeds
    double bubble, messages, sums; // seconds lost to each
    double with_all;               // of a window in which nobody is left out; 0: nobody is
    GxSplitPlanRank rank[GX_ASSIGNED_RANKS];
} GxSplitPlan;

GxStatus gx_split_plan_write(const GxSplitPlan *p, const char *path, GxError *err);
// Refuses, by name, what is missing, unknown or contradictory.
GxStatus gx_split_plan_read(GxSplitPlan *p, const char *path, GxError *err);
void gx_split_plan_print(FILE *out, const GxSplitPlan *p);

// The name of a rank's machine: its host's; of the second rank on a host "host-1", of the third "host-2". host: of each
// rank, up to this one.
void gx_plan_machine_name(const char (*host)[GX_PLAN_NAME], int rank, char name[GX_PLAN_NAME]);

// Finds the ranks of a plan among those that have been started: rank r of the plan is rank found[r] of these, which is
// on the machine that the plan names. An error names a machine that is missing, or one that the plan does not know.
// host: [ranks].
GxStatus gx_split_plan_find(const GxSplitPlan *p, const char (*host)[GX_PLAN_NAME], int ranks, int16_t *found,
                            GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SPLIT_PLAN_IMPLEMENTED)
#define GX_SPLIT_PLAN_IMPLEMENTED
#include <string.h>
#include "../io/json.h"

enum { GX__SPLIT_PLAN_VERSION = 1, GX__SPLIT_PLAN_LAYERS = 1022 };

// ---- writing -------------------------------------------------------------------------------------------------------

// The shares of a rank, in the file and in memory.
static const struct {
    const char *name;
    size_t offset;
} gx__split_plan_shares[] = {{"heads", offsetof(GxAssignmentPlace, heads)},
                             {"columns", offsetof(GxAssignmentPlace, columns)},
                             {"vocab", offsetof(GxAssignmentPlace, vocab)},
                             {"rows", offsetof(GxAssignmentPlace, rows)}};
enum { GX__SPLIT_PLAN_SHARES = sizeof gx__split_plan_shares / sizeof *gx__split_plan_shares };

static int64_t *gx__split_plan_share(const GxAssignmentPlace *place, int i)
{
    return (int64_t *)(void *)((char *)(uintptr_t)place + gx__split_plan_shares[i].offset);
}

static GxJson *gx__split_plan_rank_json(const GxSplitPlan *p, int r, GxError *err)
{
    GxJson *rank = gx_json_new_object();
    gx_json_set(rank, "machine", gx_json_new_string(p->rank[r].machine), err);
    gx_json_set(rank, "rank", gx_json_new_int(r), err);
    for (int i = 0; i < GX__SPLIT_PLAN_SHARES && p->a.place[r].stage >= 0; i++) {
        const int64_t share = *gx__split_plan_share(&p->a.place[r], i);
        if (share) gx_json_set(rank, gx__split_plan_shares[i].name, gx_json_new_int(share), err);
    }
    return rank;
}

static GxJson *gx__split_plan_stage_json(const GxSplitPlan *p, int stage, GxError *err)
{
    GxJson *json = gx_json_new_object(), *ranks = gx_json_new_array();
    int16_t rank[GX_ASSIGNED_RANKS];
    const int n = gx_assignment_group(&p->a, stage, rank);
    gx_json_set(json, "layers", gx_json_new_int(p->a.stage[stage].layers), err);
    gx_json_set(json, "warm", gx_json_new_int(p->a.stage[stage].warm), err);
    for (int i = 0; i < n; i++) gx_json_append(ranks, gx__split_plan_rank_json(p, rank[i], err), err);
    gx_json_set(json, "ranks", ranks, err);
    return json;
}

static GxJson *gx__split_plan_copy_json(const GxSplitPlan *p, int copy, GxError *err)
{
    GxJson *json = gx_json_new_object(), *stages = gx_json_new_array();
    const int first = gx_assignment_first(&p->a, copy), n = gx_assignment_stages(&p->a, copy);
    gx_json_set(json, "samples", gx_json_new_int(p->a.copy[copy].samples), err);
    gx_json_set(json, "micro_batch", gx_json_new_int(p->a.copy[copy].micro_batch), err);
    for (int s = first; s < first + n; s++) gx_json_append(stages, gx__split_plan_stage_json(p, s, err), err);
    gx_json_set(json, "stages", stages, err);
    return json;
}

GxStatus gx_split_plan_write(const GxSplitPlan *p, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object(), *copies = gx_json_new_array(), *left = gx_json_new_array();
    gx_json_set(json, "format", gx_json_new_string("galaxy plan"), err);
    gx_json_set(json, "version", gx_json_new_int(GX__SPLIT_PLAN_VERSION), err);
    gx_json_set(json, "layers", gx_json_new_int(p->layers), err);
    gx_json_set(json, "samples", gx_json_new_int(p->samples), err);
    gx_json_set(json, "mode", gx_json_new_string(p->mode), err);
    if (p->seconds > 0) gx_json_set(json, "window_seconds", gx_json_new_double(p->seconds), err);
    for (int c = 0; c < p->a.copies; c++) gx_json_append(copies, gx__split_plan_copy_json(p, c, err), err);
    gx_json_set(json, "copies", copies, err);
    for (int r = 0; r < p->a.ranks; r++)
        if (p->a.place[r].stage < 0) gx_json_append(left, gx__split_plan_rank_json(p, r, err), err);
    gx_json_set(json, "left_out", left, err);
    if (gx_error_code(err) == GX_OK) gx_json_write(json, path, err);
    gx_json_free(json);
    return gx_error_code(err);
}

// ---- reading -------------------------------------------------------------------------------------------------------

typedef struct { // what a kind of object may have
    const char *what;
    const char *const *keys; // then NULL
} gx__SplitPlanKind;
static const char *const gx__split_plan_top[] = {"format",         "version", "layers",   "samples", "mode",
                                                 "window_seconds", "copies",  "left_out", NULL};
static const char *const gx__split_plan_copy[] = {"samples", "micro_batch", "stages", NULL};
static const char *const gx__split_plan_stage[] = {"layers", "warm", "ranks", NULL};
static const char *const gx__split_plan_rank[] = {"machine", "rank", "heads", "columns", "vocab", "rows", NULL};

static GxStatus gx__split_plan_check_keys(const GxJson *object, const char *const *keys, const char *where,
                                          GxError *err)
{
    GxJsonMember m = GX_ZERO;
    char list[200] = "";
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is %s; expected an object", where, gx_json_type_name(object));
    for (int i = 0; keys[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", keys[i]);
    while (gx_json_next(object, &m)) {
        int is_known = 0;
        for (int i = 0; keys[i]; i++) is_known |= !strcmp(m.key, keys[i]);
        if (!is_known) return GX_FAIL(err, GX_ERR_FORMAT, "%s has \"%.40s\"; it may have %s", where, m.key, list);
    }
    return GX_OK;
}

// A whole number within its limits. required 0: absent is 0.
static GxStatus gx__split_plan_int(const GxJson *object, const char *key, int required, int64_t least, int64_t most,
                                   int64_t *out, const char *where, GxError *err)
{
    *out = 0;
    GX_TRY(gx_json_get_int(object, key, required, out, where, err));
    if (!required && *out == 0) return GX_OK;
    if (*out >= least && *out <= most) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %ld; expected %ld to %ld", where, key, (long)*out, (long)least,
                   (long)most);
}

static GxStatus gx__split_plan_read_rank(GxSplitPlan *p, const GxJson *json, int stage, const char *where, GxError *err)
{
    const char *machine = NULL;
    int64_t r, share;
    GX_TRY(gx__split_plan_check_keys(json, gx__split_plan_rank, where, err));
    GX_TRY(gx_json_get_string(json, "machine", 1, &machine, where, err));
    GX_TRY(gx__split_plan_int(json, "rank", 1, 0, GX_ASSIGNED_RANKS - 1, &r, where, err));
    if (p->rank[r].machine[0])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: rank %ld is there twice; each rank has one place", where, (long)r);
    for (int k = 0; k < GX_ASSIGNED_RANKS; k++)
        if (!strcmp(p->rank[k].machine, machine) && machine[0])
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: the machine %s is there twice; each rank has a name of its own, such as %s-1 for the "
                           "second rank on a host",
                           where, machine, machine);
    if (!machine[0] || strlen(machine) >= GX_PLAN_NAME)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the name of a machine has %d characters; expected 1 to %d", where,
                       (int)strlen(machine), GX_PLAN_NAME - 1);
    snprintf(p->rank[r].machine, GX_PLAN_NAME, "%s", machine);
    p->a.place[r].stage = (int16_t)stage;
    p->a.ranks = (int)gx_max(p->a.ranks, r + 1);
    for (int i = 0; i < GX__SPLIT_PLAN_SHARES; i++) {
        GX_TRY(gx__split_plan_int(json, gx__split_plan_shares[i].name, 0, 1, INT64_C(1) << 40, &share, where, err));
        *gx__split_plan_share(&p->a.place[r], i) = share;
    }
    return GX_OK;
}

static GxStatus gx__split_plan_read_stage(GxSplitPlan *p, const GxJson *json, const char *path, GxError *err)
{
    GxJson *ranks = NULL;
    GxAssignmentStage *stage = &p->a.stage[p->a.stages];
    int64_t layers, warm;
    char where[GX_PATH + 80];
    snprintf(where, sizeof where, "%.*s: stage %d", GX_PATH, path, p->a.stages);
    GX_TRY(gx__split_plan_check_keys(json, gx__split_plan_stage, where, err));
    GX_TRY(gx__split_plan_int(json, "layers", 1, 1, GX__SPLIT_PLAN_LAYERS, &layers, where, err));
    GX_TRY(gx__split_plan_int(json, "warm", 0, 0, 32767, &warm, where, err));
    GX_TRY(gx_json_get_array(json, "ranks", 1, &ranks, where, err));
    stage->copy = (int16_t)p->a.copies, stage->layers = (int16_t)layers, stage->warm = (int16_t)warm;
    for (int64_t i = 0; i < gx_json_size(ranks); i++)
        GX_TRY(gx__split_plan_read_rank(p, gx_json_at(ranks, i), p->a.stages, where, err));
    p->a.stages++;
    return GX_OK;
}

static GxStatus gx__split_plan_read_copy(GxSplitPlan *p, const GxJson *json, const char *path, GxError *err)
{
    GxJson *stages = NULL;
    GxAssignmentCopy *copy = &p->a.copy[p->a.copies];
    char where[GX_PATH + 80];
    snprintf(where, sizeof where, "%.*s: copy %d", GX_PATH, path, p->a.copies);
    GX_TRY(gx__split_plan_check_keys(json, gx__split_plan_copy, where, err));
    GX_TRY(gx__split_plan_int(json, "samples", 1, 1, INT64_C(1) << 40, &copy->samples, where, err));
    GX_TRY(gx__split_plan_int(json, "micro_batch", 1, 1, 1 << 24, &copy->micro_batch, where, err));
    GX_TRY(gx_json_get_array(json, "stages", 1, &stages, where, err));
    if (p->a.stages + gx_json_size(stages) > GX_ASSIGNED_RANKS)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: more than %d stages in all", where, GX_ASSIGNED_RANKS);
    for (int64_t i = 0; i < gx_json_size(stages); i++)
        GX_TRY(gx__split_plan_read_stage(p, gx_json_at(stages, i), path, err));
    p->a.copies++;
    return GX_OK;
}

static GxStatus gx__split_plan_read_all(GxSplitPlan *p, const GxJson *json, const char *path, GxError *err)
{
    GxJson *copies = NULL, *left = NULL;
    const char *format = NULL, *mode = NULL;
    int64_t version, layers;
    GX_TRY(gx__split_plan_check_keys(json, gx__split_plan_top, path, err));
    GX_TRY(gx_json_get_string(json, "format", 1, &format, path, err));
    if (strcmp(format, "galaxy plan"))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the format is \"%.40s\"; expected \"galaxy plan\" (a plan.json)", path,
                       format);
    GX_TRY(gx__split_plan_int(json, "version", 1, GX__SPLIT_PLAN_VERSION, GX__SPLIT_PLAN_VERSION, &version, path, err));
    GX_TRY(gx__split_plan_int(json, "layers", 1, 1, GX__SPLIT_PLAN_LAYERS, &layers, path, err));
    GX_TRY(gx__split_plan_int(json, "samples", 1, 1, INT64_C(1) << 40, &p->samples, path, err));
    GX_TRY(gx_json_get_string(json, "mode", 1, &mode, path, err));
    GX_TRY(gx_json_get_double(json, "window_seconds", 0, &p->seconds, path, err));
    GX_TRY(gx_json_get_array(json, "copies", 1, &copies, path, err));
    GX_TRY(gx_json_get_array(json, "left_out", 0, &left, path, err));
    snprintf(p->mode, sizeof p->mode, "%s", mode);
    p->layers = (int)layers;
    if (gx_json_size(copies) > GX_ASSIGNED_RANKS)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld copies of the model; at most %d are possible", path,
                       (long)gx_json_size(copies), GX_ASSIGNED_RANKS);
    for (int64_t i = 0; i < gx_json_size(copies); i++)
        GX_TRY(gx__split_plan_read_copy(p, gx_json_at(copies, i), path, err));
    for (int64_t i = 0; i < gx_json_size(left); i++)
        GX_TRY(gx__split_plan_read_rank(p, gx_json_at(left, i), -1, path, err));
    for (int r = 0; r < p->a.ranks; r++)
        if (!p->rank[r].machine[0])
            return GX_FAIL(err, GX_ERR_FORMAT, "%s has a rank %d, but none with number %d; ranks count from 0", path,
                           p->a.ranks - 1, r);
    GxError wrong = GX_ZERO;
    if (gx_assignment_check(&p->a, p->layers, p->samples, &wrong) != GX_OK)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s", path, wrong.message);
    return GX_OK;
}

GxStatus gx_split_plan_read(GxSplitPlan *p, const char *path, GxError *err)
{
    GxJson *json = NULL;
    memset(p, 0, sizeof *p);
    for (int r = 0; r < GX_ASSIGNED_RANKS; r++) p->a.place[r].stage = -1;
    GX_TRY(gx_json_read(&json, path, 8 << 20, err));
    const GxStatus status = gx__split_plan_read_all(p, json, path, err);
    gx_json_free(json);
    return status;
}

// ---- which ranks ---------------------------------------------------------------------------------------------------

void gx_plan_machine_name(const char (*host)[GX_PLAN_NAME], int rank, char name[GX_PLAN_NAME])
{
    int before = 0;
    for (int r = 0; r < rank; r++) before += !strcmp(host[r], host[rank]);
    if (before) snprintf(name, GX_PLAN_NAME, "%.*s-%d", GX_PLAN_NAME - 12, host[rank], before);
    else snprintf(name, GX_PLAN_NAME, "%s", host[rank]);
}

GxStatus gx_split_plan_find(const GxSplitPlan *p, const char (*host)[GX_PLAN_NAME], int ranks, int16_t *found,
                            GxError *err)
{
    char name[GX_PLAN_NAME];
    if (ranks > GX_ASSIGNED_RANKS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%d ranks; a plan has at most %d", ranks, GX_ASSIGNED_RANKS);
    for (int r = 0; r < p->a.ranks; r++) found[r] = -1;
    for (int at = 0; at < ranks; at++) {
        int r = 0;
        gx_plan_machine_name(host, at, name);
        while (r < p->a.ranks && strcmp(p->rank[r].machine, name)) r++;
        if (r == p->a.ranks)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "rank %d was started on the machine %s, which the plan does not have; leave it out, or make "
                           "another plan (--plan auto)",
                           at, name);
        found[r] = (int16_t)at;
    }
    for (int r = 0; r < p->a.ranks; r++)
        if (found[r] < 0 && p->a.place[r].stage >= 0)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "the plan needs a rank on the machine %s, where none was started; start one there, or make "
                           "another plan (--plan auto)",
                           p->rank[r].machine);
    return GX_OK;
}

// ---- for people ----------------------------------------------------------------------------------------------------

static void gx__split_plan_print_rank(FILE *out, const GxSplitPlan *p, int r, int width)
{
    const GxAssignmentPlace *place = &p->a.place[r];
    const GxSplitPlanRank *rank = &p->rank[r];
    const GxAssignmentStage *stage = &p->a.stage[place->stage];
    const int first = gx_assignment_first(&p->a, stage->copy), stages = gx_assignment_stages(&p->a, stage->copy);
    const GxAssignmentCopy *copy = &p->a.copy[stage->copy];
    char layers[32], at[32], heads[24] = "all", columns[24] = "all", samples[48], memory[48] = "";
    int begin = 0;
    for (int s = first; s < place->stage; s++) begin += p->a.stage[s].layers;
    snprintf(layers, sizeof layers, "%d-%d", begin, begin + stage->layers - 1);
    snprintf(at, sizeof at, "%d/%d", place->stage - first + 1, stages);
    if (place->heads) snprintf(heads, sizeof heads, "%ld", (long)place->heads);
    if (place->columns) snprintf(columns, sizeof columns, "%ld", (long)place->columns);
    snprintf(samples, sizeof samples, "%ld by %ld", (long)copy->samples, (long)copy->micro_batch);
    if (rank->needs)
        snprintf(memory, sizeof memory, "%.1f/%.1f GB", (double)rank->needs / 1e9, (double)rank->has / 1e9);
    fprintf(out, "%4d %-*s", r, width, rank->machine);
    if (p->a.copies > 1) fprintf(out, " %4d", stage->copy);
    fprintf(out, " %5s %7s %5s %7s %9s", at, layers, heads, columns, samples);
    if (rank->busy > 0)
        fprintf(out, " %4.0f%% %14s  %s", 100 * rank->busy, memory, rank->is_tight ? "memory" : "speed");
    fputc('\n', out);
}

void gx_split_plan_print(FILE *out, const GxSplitPlan *p)
{
    int width = 7, has_figures = 0; // a plan that was read has only its seconds
    for (int r = 0; r < p->a.ranks; r++) {
        width = (int)gx_max(width, (int64_t)strlen(p->rank[r].machine));
        has_figures |= p->rank[r].busy > 0;
    }
    fprintf(out, "%4s %-*s", "rank", width, "machine");
    if (p->a.copies > 1) fprintf(out, " %4s", "copy");
    fprintf(out, " %5s %7s %5s %7s %9s%s\n", "stage", "layers", "heads", "columns", "samples",
            has_figures ? "  busy         memory  limited by" : "");
    for (int r = 0; r < p->a.ranks; r++)
        if (p->a.place[r].stage >= 0) gx__split_plan_print_rank(out, p, r, width);
    for (int r = 0; r < p->a.ranks; r++)
        if (p->a.place[r].stage < 0) fprintf(out, "   - %-*s left out\n", width, p->rank[r].machine);
    if (p->seconds <= 0) return;
    if (p->with_all > p->seconds)
        fprintf(out, "with all machines a step would take %.2f times as long\n", p->with_all / p->seconds);
    fprintf(out, "a step of %ld sample%s takes about %.3g s", (long)p->samples, p->samples == 1 ? "" : "s", p->seconds);
    if (p->ideal > 0) fprintf(out, ", %.0f%% of what the machines could do together", 100 * p->ideal / p->seconds);
    else fprintf(out, ", says the plan");
    const struct {
        const char *name;
        double seconds;
    } lost[] = {{"waiting for other stages", p->bubble},
                {"messages between stages", p->messages},
                {"sums of gradients", p->sums}};
    int named = 0;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        if (lost[i].seconds < 0.005 * p->seconds) continue;
        fprintf(out, "%s%s %.0f%%", named ? ", " : "; lost to: ", lost[i].name, 100 * lost[i].seconds / p->seconds);
        named = 1;
    }
    fputc('\n', out);
}
#endif
