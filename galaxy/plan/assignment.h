// plan/assignment.h: the assignment of a training to unequal machines, as data: which ranks share which layers, how much
// of them each rank has, and how many samples of a window each copy of the model takes.
//
// A copy of the model is a row of stages; the ranks of a stage (a tp group) share its layers. With three ranks, two of
// which share the first stage:
//
//     GxAssignment a = GX_ZERO;
//     a.ranks = 3, a.copies = 1, a.stages = 2;
//     a.stage[0].layers = 9, a.stage[1].layers = 3;           // of copy 0; stages stand in the order of (copy, stage)
//     a.place[0].stage = 0, a.place[1].stage = 0, a.place[2].stage = 1;
//     a.copy[0].samples = 32, a.copy[0].micro_batch = 2;
//     GX_TRY(gx_assignment_check(&a, 12, 32, err));
//
// The planner's search (search.h) makes one; plan_file.h writes and reads it.
#ifndef GX_ASSIGNMENT_H
#define GX_ASSIGNMENT_H
#include "../base/partition.h"
GX_BEGIN

enum { GX_ASSIGNED_RANKS = 256 }; // the most

typedef struct {
    int16_t stage; // index in GxAssignment.stage; -1: the rank is left out
    // Its share of a layer: query heads, columns of the MLP; of the vocabulary; its rows of a sample where rows are
    // split. 0 in a stage of one rank: all.
    int64_t heads, columns, vocab, rows;
} GxAssignmentPlace;

typedef struct {
    int16_t copy;   // of the model
    int16_t layers; // at least 1. The first stage of a copy also has the embedding, the last one the head
    int16_t warm;   // forwards before the first backward, beyond those of 1F1B: more hide slow links, and need memory
} GxAssignmentStage;

typedef struct {
    int64_t samples;     // of a window
    int64_t micro_batch; // the most samples that it computes at once
} GxAssignmentCopy;

typedef struct {
    int ranks, copies, stages;                  // stages: of all copies
    GxAssignmentPlace place[GX_ASSIGNED_RANKS]; // [ranks]
    GxAssignmentStage stage[GX_ASSIGNED_RANKS]; // [stages]: by copy, then from the embedding to the head
    GxAssignmentCopy copy[GX_ASSIGNED_RANKS];   // [copies]
} GxAssignment;

// An error, which names what is wrong, unless all stages have ranks and layers, the layers of each copy add up to
// `layers`, and the samples of all copies to `samples`. layers or samples 0: not checked.
GxStatus gx_assignment_check(const GxAssignment *a, int layers, int64_t samples, GxError *err);

int gx_assignment_first(const GxAssignment *a, int copy);  // the index of the copy's first stage
int gx_assignment_stages(const GxAssignment *a, int copy); // how many it has
// The ranks of a stage, in order. Returns how many; fills `ranks` (room for GX_ASSIGNED_RANKS, or NULL).
int gx_assignment_group(const GxAssignment *a, int stage, int16_t *ranks);
// Exchanges the numbers of copies 0 and `copy`, which have equally many stages.
void gx_assignment_swap(GxAssignment *a, int copy);
// Micro-batches of a copy's window.
static inline int gx_assignment_micro_batches(const GxAssignment *a, int copy)
{
    return (int)gx_ceil_div(a->copy[copy].samples, gx_max(a->copy[copy].micro_batch, 1));
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ASSIGNMENT_IMPLEMENTED)
#define GX_ASSIGNMENT_IMPLEMENTED

int gx_assignment_first(const GxAssignment *a, int copy)
{
    int first = 0;
    while (first < a->stages && a->stage[first].copy != copy) first++;
    return first;
}

int gx_assignment_stages(const GxAssignment *a, int copy)
{
    int n = 0;
    for (int s = 0; s < a->stages; s++) n += a->stage[s].copy == copy;
    return n;
}

int gx_assignment_group(const GxAssignment *a, int stage, int16_t *ranks)
{
    int n = 0;
    for (int r = 0; r < a->ranks; r++) {
        if (a->place[r].stage != stage) continue;
        if (ranks) ranks[n] = (int16_t)r;
        n++;
    }
    return n;
}

void gx_assignment_swap(GxAssignment *a, int copy)
{
    const int stages = gx_assignment_stages(a, 0), first = gx_assignment_first(a, copy);
    const GxAssignmentCopy c = a->copy[0];
    if (!copy) return;
    a->copy[0] = a->copy[copy], a->copy[copy] = c;
    for (int k = 0; k < stages; k++) {
        GxAssignmentStage *x = &a->stage[k], *y = &a->stage[first + k];
        const int16_t layers = x->layers, warm = x->warm;
        x->layers = y->layers, x->warm = y->warm, y->layers = layers, y->warm = warm;
    }
    for (int r = 0; r < a->ranks; r++) {
        int16_t *stage = &a->place[r].stage;
        if (*stage >= 0 && *stage < stages) *stage = (int16_t)(*stage + first);
        else if (*stage >= first && *stage < first + stages) *stage = (int16_t)(*stage - first);
    }
}

static GxStatus gx__assignment_check_copy(const GxAssignment *a, int copy, int layers, GxError *err)
{
    const int first = gx_assignment_first(a, copy), n = gx_assignment_stages(a, copy);
    int sum = 0;
    if (!n) return GX_FAIL(err, GX_ERR_ARGUMENT, "copy %d has no stage", copy);
    if (a->copy[copy].samples < 1 || a->copy[copy].micro_batch < 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "copy %d has %ld samples, in micro-batches of up to %ld; expected at least 1 of both", copy,
                       (long)a->copy[copy].samples, (long)a->copy[copy].micro_batch);
    for (int s = first; s < first + n; s++) {
        if (a->stage[s].copy != copy || a->stage[s].layers < 1 || !gx_assignment_group(a, s, NULL))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "stage %d, of copy %d, has %d layers and %d ranks; expected at least 1 of both", s,
                           a->stage[s].copy, a->stage[s].layers, gx_assignment_group(a, s, NULL));
        sum += a->stage[s].layers;
    }
    if (!layers || sum == layers) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the stages of copy %d have %d layers together; the model has %d", copy, sum,
                   layers);
}

GxStatus gx_assignment_check(const GxAssignment *a, int layers, int64_t samples, GxError *err)
{
    int64_t sum = 0;
    if (a->ranks < 1 || a->ranks > GX_ASSIGNED_RANKS || a->copies < 1 || a->stages < a->copies || a->stages > a->ranks)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%d ranks in %d stages of %d copies; expected 1 to %d ranks, and at least one for each stage of each copy",
            a->ranks, a->stages, a->copies, GX_ASSIGNED_RANKS);
    for (int r = 0; r < a->ranks; r++)
        if (a->place[r].stage < -1 || a->place[r].stage >= a->stages)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d is in stage %d of %d", r, a->place[r].stage, a->stages);
    for (int c = 0; c < a->copies; c++) {
        GX_TRY(gx__assignment_check_copy(a, c, layers, err));
        sum += a->copy[c].samples;
    }
    if (!samples || sum == samples) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the copies have %ld samples together; a step has %ld", (long)sum,
                   (long)samples);
}
#endif
