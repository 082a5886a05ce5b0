// run/interpreter.h: runs lists of actions (parallel/steps.h) on a model: a training step, a validation, logits.
//
// A GxRunner holds what a rank needs for that: the model and its store, the optimizer, the lists, and one region of
// memory that all lists share, for rows (the stream between units) and slots (what a unit keeps for its backward).
// Memory that is needed only while an action runs is scratch.
//
//     GX_TRY(gx_runner_open(g, &r, &model, &optimizer, &spec));       // makes and checks the lists
//     gx_runner_allocate(g, &r, T, B, chunk);                         // takes all memory from the arena
//     gx_runner_train(g, &r, batch, labels, &stop);                   // a window of micro-batches, and the update
//     gx_runner_forward(g, &r, &batch, loss);                         // adds its losses to loss[]
//     gx_runner_evaluate(g, &r, batch, n, loss);                      // the same for n batches
//
// A window is the data of one optimizer step: all micro-batches of all ranks. A loss of the window is the sum of the
// losses of its labels, divided by the number of labels that count in the whole window. That number is therefore summed
// over the ranks first (COUNT), and gradients are then summed, not averaged, over ranks and micro-batches.
#ifndef GX_INTERPRETER_H
#define GX_INTERPRETER_H
#include "../model/build.h"
#include "../model/kv_cache.h"
#include "../model/side.h"
#include "../model/stage_shares.h"
#include "../model/unit.h"
#include "../parallel/grads.h"
#include "../parallel/steps.h"
#include "../parallel/steps_write.h"
#include "../task/task.h"
#include "graphs.h"
#include "optimizer.h"
GX_BEGIN

// Without a pipeline: a cache that keeps the outputs of the frozen layers that a side network reads from one epoch to
// the next (side_cache.h). A layer whose output has been kept is not computed. Layers are numbered from 0.
typedef struct {
    // Called before the first layer of a micro-batch. Returns 1 if the outputs of all layers have been kept; all ranks
    // of a tp group return the same.
    int (*find)(GxContext *g, void *user, const GxBatch *b);
    void (*read)(GxContext *g, void *user, const GxBatch *b, int layer, GxRows x);  // writes x
    void (*write)(GxContext *g, void *user, const GxBatch *b, int layer, GxRows x); // keeps x, just computed
    void *user;
} GxUnitCache;

typedef struct {       // zero: defaults
    int micro_batches; // in a window, on this rank; 0: one
    // The most that gx_runner_take may set later: memory is planned for them, but in an order that keeps all
    // micro-batches at once (gpipe). 0: as micro_batches
    int most_micro_batches;
    int order;          // GxStepsOrder
    int defers_weights; // deferred weight gradients: those of layers are computed at the end of the window
    int bucket;         // units whose gradients are summed over the ranks at once; 0: all
    int starts_sums;    // a bucket's sum runs while the units below compute their backward
    // Shards are gathered and scattered, and stages exchange messages, while units compute. Messages in a device's
    // memory are not: there the rank's operations and messages would wait for each other.
    int overlaps;
    int forward_only; // no training: neither a list nor memory for it
    // For a pipeline (the mesh's axis pp), as in GxStepsSpec: a rank has the units of its stages (gx_steps_units), with
    // which its model was opened (GxModelOptions). Borrowed until gx_runner_open returns. NULL: one rank
    const int16_t *stage;
    // [ranks of the pipeline]: forwards ahead, beyond those of 1F1B. NULL: none; borrowed likewise
    const int16_t *warm;
    // If the ranks of dp_shard shard the model's store (gx_shards_open). shard_grads_in_window: gradients are scattered
    // in each micro-batch, which needs less memory and more communication, instead of once in a window. gathered_units:
    // if weights are sharded, how many units' weights are whole at once; 0: two, or one with a schedule that has
    // shards, and one more if the head shares a tensor with the embedding.
    int shard_grads_in_window, gathered_units;
    int keeps_graphs; // in training, what a micro-batch computes is captured and launched as graphs (graphs.h)
    // The task counts the labels that losses are divided by. NULL: target 0's labels that are not GX_IGNORE_INDEX
    void (*counts)(const void *task, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);
    const void *task;                // its self
    const GxUnitCache *cache;        // borrowed. NULL: none
    const GxStepsSchedule *schedule; // writes the training list. NULL: the generators make it
} GxRunnerSpec;

// What has a ticket of the list.
typedef struct {
    const GxAction *action; // NULL: it was left out (gx__interpreter_times)
    GxGradsSum sum;         // of REDUCE
    GxGather gather;        // of GATHER
    GxTicket scatter;       // of SCATTER
    int adds;               // SCATTER: to what the shard has
    GxTicket message[2];    // of SEND, RECV: of the stream, and of the side network's
} GxRunTicket;

typedef struct {
    GxModel *m;
    const GxOptimizer *o;
    GxSteps train, forward; // forward: one micro-batch
    GxGradsParts counted;   // the parts of gradients that this rank adds to the norm
    void (*counts)(const void *task, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);
    const void *task;
    const GxUnitCache *cache;
    GxGraphs *graphs;       // NULL: none are kept
    int plans_found;        // on a device that does not compute: assume that all outputs have been kept
    int is_found, found_of; // whether the outputs of micro-batch number found_of have been kept
    const GxStepsSchedule *schedule;
    int most_micro_batches;
    void *region;
    int64_t region_bytes, region_rows; // region_rows: the part of it that counts as activations, not as communication
    int64_t T, B;                      // of the largest batch
    int64_t *bytes;    // [5][units]: sizes of x, dx, slots, weights, gradients; used only in gx_runner_allocate
    GxLossSums losses; // of the batches that are running
    // the current window
    const GxBatch *batch;
    int64_t labels[GX_MAX_LOSSES];
    int stop;
    int took_over;         // how many of this rank's stages have received the sum of squares of the stages before
    uint8_t *is_scattered; // [units]: its shard has gradients of this window
    GxRunTicket ticket[GX_STEPS_TICKETS]; // what has been started
    float *shard_room; // of the sum of a unit's shard, which is then added to what is there; NULL: it is not needed
    // How long this rank has computed the micro-batches of the last window, in seconds, without what it spent in
    // collectives and messages. is_timed: it is measured; the host then waits for the device after the last of them.
    int is_timed;
    double worked;
} GxRunner;

// m and o must outlive the runner. Close it with gx_runner_close, also after an error.
GxStatus gx_runner_open(GxContext *g, GxRunner *r, GxModel *m, const GxOptimizer *o, const GxRunnerSpec *spec);
void gx_runner_close(GxRunner *r);

// Another number of micro-batches, at least 1, between two windows: makes the list and places it in the region. *list
// is all zero, with a status of GX_OK, if it does not fit there. A list that is not taken is closed with
// gx_steps_close. Ranks of one pipeline take the same number, others may differ.
GxStatus gx_runner_make(GxContext *g, const GxRunner *r, int micro_batches, GxSteps *list);
void gx_runner_take(GxContext *g, GxRunner *r, GxSteps *list); // from the next window on

// Allocates all memory for batches of up to T tokens x B columns from the context's arena; a head computes `chunk` rows
// at a time. Called twice: with an arena that only counts, then with the real one.
void gx_runner_allocate(GxContext *g, GxRunner *r, int64_t T, int64_t B, int64_t chunk);

// Trains on one window: counts labels, runs the micro-batches, reduces gradients and loss over the ranks, clips, and
// applies the optimizer. The caller sets step->lr; step->loss_sum and step->labels are the window's afterwards;
// step->skip says that gradients were not finite, and that nothing was changed. labels [GX_MAX_LOSSES] (or NULL) gets
// the numbers of labels that counted. If *stop is set on any rank, it is set on all, and the window ends before
// anything is computed.
void gx_runner_train(GxContext *g, GxRunner *r, const GxBatch *batch, int64_t *labels, int *stop);

// Runs a batch forward: writes the results that its targets ask for, and adds its losses to loss [GX_MAX_LOSSES] in the
// device's memory (NULL: they are not wanted); in a pipeline the rank that has the head (gx_has_head) gets the losses,
// and it and the first rank get the results.
void gx_runner_forward(GxContext *g, GxRunner *r, const GxBatch *b, double *loss);

// The same for n batches, in this order. In a pipeline they are in flight at the same time, so that no stage waits for
// the last one: each batch needs its own memory, also for its results, which arrive when all batches have passed.
void gx_runner_evaluate(GxContext *g, GxRunner *r, const GxBatch *batch, int n, double *loss);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_INTERPRETER_IMPLEMENTED)
#define GX_INTERPRETER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../ops/elementwise.h"
#include "../comm/device_buffers.h"
#include "../ops/loss.h"
#include "../ops/memory.h"
#include "../parallel/steps_check.h"
#include "../parallel/steps_make.h"
#include "../parallel/steps_place.h"
#include "../parallel/steps_ranks.h"

// ---- lists ---------------------------------------------------------------------------------------------------------

// schedule NULL: the generators make the list
static GxStatus gx__interpreter_make(GxSteps *s, const GxStepsSchedule *schedule, const GxStepsSpec *spec, GxError *err)
{
    GX_TRY(schedule ? gx_steps_write(s, schedule, spec, err) : gx_steps_make(s, spec, err));
    if (s->tickets <= GX_STEPS_TICKETS) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a list with %d operations under way at once; %d are the most", s->tickets,
                   (int)GX_STEPS_TICKETS);
}

// The tensors of unit 0's that other units have, too: their number, and their rows.
static int gx__interpreter_shared(const GxModel *m, int row[GX_STEPS_SHARED + 1])
{
    const GxTensor *t = m->table.row;
    int n = 0;
    for (int i = 0; i < m->table.n; i++) {
        const int of = t[i].has_alias ? t[i].alias.index : i;
        int k = 0;
        if (t[of].unit != 0 || t[i].unit == 0) continue;
        while (k < n && row[k] != of) k++;
        if (k == n && n <= GX_STEPS_SHARED) row[n++] = of;
    }
    return n;
}

// shares [GX_MAX_UNITS]: the tensor that the unit has of them, from 1 on; 0: none.
static GxStatus gx__interpreter_share(const GxModel *m, GxStepsSpec *s, uint8_t *shares, GxError *err)
{
    const GxTensor *t = m->table.row;
    int row[GX_STEPS_SHARED + 1];
    const int n = gx__interpreter_shared(m, row);
    if (n > GX_STEPS_SHARED)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "more than %d tensors of the embedding's unit, such as %s, are also others'", GX_STEPS_SHARED,
                       t[row[n - 1]].name);
    memset(shares, 0, GX_MAX_UNITS);
    for (int i = 0; i < m->table.n; i++)
        for (int k = 0; k < n && t[i].has_alias; k++)
            if (t[i].alias.index == row[k] && t[i].unit != 0) shares[t[i].unit] = (uint8_t)(k + 1);
    for (int k = 0; k < n; k++) s->frozen_shares |= t[row[k]].frozen << (k + 1);
    s->is_tied = n > 0, s->shares = shares;
    return GX_OK;
}

// 1: no tensor of the unit is trained, whichever rank has it.
static int gx__interpreter_is_frozen(const GxModel *m, int unit)
{
    int trained = 0;
    for (int i = 0; i < m->table.n; i++) trained |= m->table.row[i].unit == unit && !m->table.row[i].frozen;
    return !trained;
}

static int gx__interpreter_has_lora(const GxModel *m)
{
    int has_lora = 0;
    for (int i = 0; i < m->table.n; i++) has_lora |= m->table.row[i].has_lora || m->table.row[i].has_scale;
    return has_lora;
}

// The embedding's backward does not read its table, but it reads a norm's weights or LoRA's.
static int gx__interpreter_embedding_reads(const GxModel *m)
{
    int reads = 0;
    for (int i = 0; i < m->table.n; i++)
        reads |= m->table.row[i].unit == 0 && m->table.row[i].role != GX_ROLE_EMBEDDING;
    return reads;
}

// 1: there is a core whose input is the stream itself, so that its weight gradients need the stream.
static int gx__interpreter_reads_x(const GxModel *m)
{
    for (int u = 0; u < m->units; u++) {
        const GxPairSpec *first = &gx_unit_spec(m, u)->pair[0];
        if (first->enter.kind == GX_ENTER_NOTHING && first->con.kind == GX_CON_ADD) return 1;
    }
    return 0;
}

// Makes and checks this rank's list; in a pipeline it is checked together with those of the other ranks.
static GxStatus gx__interpreter_make_pipeline(GxSteps *s, const GxStepsSchedule *schedule, const GxStepsSpec *spec,
                                              GxError *err)
{
    if (spec->ranks < 2) {
        GX_TRY(gx__interpreter_make(s, schedule, spec, err));
        return gx_steps_check(s, err);
    }
    GxSteps *all = (GxSteps *)calloc((size_t)spec->ranks, sizeof *all);
    if (!all) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lists of %d ranks", spec->ranks);
    GxStatus status = GX_OK;
    GxStepsSpec of_rank = *spec;
    for (of_rank.rank = 0; of_rank.rank < spec->ranks && status == GX_OK; of_rank.rank++)
        status = gx__interpreter_make(&all[of_rank.rank], schedule, &of_rank, err);
    if (status == GX_OK) status = gx_steps_check_ranks(all, spec->ranks, err);
    *s = all[spec->rank];
    memset(&all[spec->rank], 0, sizeof *all);
    for (int k = 0; k < spec->ranks; k++) gx_steps_close(&all[k]);
    free(all);
    return status;
}

static GxStatus gx__interpreter_check_stages(GxContext *g, const GxModel *m, const GxStepsSpec *s,
                                             const GxUnitCache *cache)
{
    const GxPartList *heads = &m->lists.heads;
    if (s->ranks < 2) return GX_OK;
    if (m->memory && gx_is_ragged(g))
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "stages of different sizes, of a model with an encoder and a decoder");
    if (m->relative[0].index >= 0 && heads->n > gx_group_size(g, GX_AXIS_TP))
        return GX_FAIL(
            &g->error, GX_ERR_UNSUPPORTED,
            "--tp_num_attention_heads_list has %d entries, for each stage its own: stages share the tables of "
            "positions, and must split heads alike; give %d entries, which are those of each stage",
            heads->n, gx_group_size(g, GX_AXIS_TP));
    if (!s->stage)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a pipeline of %d ranks, and nothing says which units each has",
                       s->ranks);
    if (cache)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "a cache of layers' outputs on %d stages: ranks ask for all layers at once", s->ranks);
    if (s->stage[gx_steps_stages(s)] != m->units)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "the stages have %d units, and the model %d",
                       s->stage[gx_steps_stages(s)], m->units);
    if (gx_steps_rank_of(s, gx_steps_stages(s) - 1) != gx_head_index(g))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "rank %d of the pipeline has the head, and the mesh says rank %d",
                       gx_steps_rank_of(s, gx_steps_stages(s) - 1), gx_head_index(g));
    for (int u = 0; u < m->units; u++)
        if (gx_units_have(&m->store.units, u) != gx_steps_is_mine(s, u))
            return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "unit %d of the model is %s, and rank %d of the pipeline's", u,
                           gx_units_have(&m->store.units, u) ? "here" : "not here",
                           gx_steps_rank_of(s, gx_steps_stage_of(s, u)));
    return GX_OK;
}

// 1: on some rank of the pipeline units share a tensor, so that all ranks say the same.
static int gx__interpreter_is_tied(const GxStepsSpec *s)
{
    GxStepsSpec of_rank = *s;
    int is_tied = 0;
    for (of_rank.rank = 0; of_rank.rank < gx_max(s->ranks, 1); of_rank.rank++)
        is_tied |= gx_steps_is_tied_here(&of_rank);
    return is_tied;
}

static GxStatus gx__interpreter_shard(GxContext *g, GxStepsSpec *s, const GxModel *m, const GxRunnerSpec *spec)
{
    const int is_tied = gx__interpreter_is_tied(s);
    if (m->store.sharded == GX_SHARDS_WEIGHTS && is_tied && spec->gathered_units == 1)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "--gathered_units 1: units of a stage share tensors, such as a head the embedding's, and the "
                       "unit that has them must be whole beside another one; say 2 or more, or leave it out");
    s->sharded = m->store.sharded, s->shard_axes = GX_AXIS_FSDP;
    s->reduce_axes = gx_group_size(g, GX_AXIS_DP_REPLICATE) > 1 ? GX_AXIS_DP_REPLICATE : 0;
    s->scatters_each = spec->shard_grads_in_window;
    const int at_once = spec->schedule && spec->schedule->has_shards ? 1 : 2;
    s->gathered = spec->gathered_units ? spec->gathered_units : at_once + is_tied;
    s->starts_sums = 0;
    return GX_OK;
}

GxStatus gx_runner_open(GxContext *g, GxRunner *r, GxModel *m, const GxOptimizer *o, const GxRunnerSpec *spec)
{
    GxStepsSpec s = GX_ZERO;
    uint8_t frozen[GX_MAX_UNITS], bypassed[GX_MAX_UNITS], recomputed[GX_MAX_UNITS], shares[GX_MAX_UNITS];
    memset(r, 0, sizeof *r);
    r->m = m, r->o = o, r->schedule = spec->schedule;
    r->most_micro_batches = (int)gx_max(spec->most_micro_batches, gx_max(spec->micro_batches, 1));
    r->counts = spec->counts ? spec->counts : gx_task_count_labels, r->task = spec->task;
    r->cache = spec->cache;
    if (m->units > GX_MAX_UNITS)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "a model of %d units (layers, side layers, embedding, head); at most %d are possible", m->units,
                       GX_MAX_UNITS);
    for (int u = 0; u < m->units; u++)
        frozen[u] = (uint8_t)gx__interpreter_is_frozen(m, u), bypassed[u] = (uint8_t)gx_side_is_beside(m, u),
        recomputed[u] = (m->unit[u].again & GX_AGAIN_LAYER) != 0, s.recomputes_layers |= recomputed[u];
    s.units = m->units, s.micro_batches = (int)gx_max(spec->micro_batches, 1);
    s.order = spec->order, s.defers_weights = spec->defers_weights;
    s.memory = m->memory;
    s.has_lora = gx__interpreter_has_lora(m);
    s.weight_reads_x = gx__interpreter_reads_x(m);
    s.embedding_reads = gx__interpreter_embedding_reads(m);
    GX_TRY(gx__interpreter_share(m, &s, shares, &g->error));
    s.frozen = frozen, s.bypassed = bypassed, s.recomputed = recomputed;
    s.count_axes = GX_AXIS_ALL, s.agree_axes = GX_AXIS_ALL, s.reduce_axes = g->world > 1 ? GX_AXIS_ALL : 0;
    s.bucket = spec->bucket, s.starts_sums = spec->starts_sums;
    if (spec->overlaps) s.overlaps = GX_OVERLAPS_SHARDS;
    if (spec->overlaps && g->device->shares_host_memory) s.overlaps |= GX_OVERLAPS_MESSAGES;
    s.ranks = gx_group_size(g, GX_AXIS_PP), s.rank = gx_group_index(g, GX_AXIS_PP);
    s.stage = s.ranks > 1 ? spec->stage : NULL, s.warm = s.ranks > 1 ? spec->warm : NULL;
    GX_TRY(gx__interpreter_check_stages(g, m, &s, spec->cache));
    if (m->store.sharded) GX_TRY(gx__interpreter_shard(g, &s, m, spec));
    if (!spec->forward_only && gx_steps_lowest(&s) == m->units)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "every tensor of the model is frozen, so there is nothing to train");
    if (!spec->forward_only) GX_TRY(gx__interpreter_make_pipeline(&r->train, spec->schedule, &s, &g->error));
    s.kind = GX_STEPS_FORWARD, s.micro_batches = 1, s.warm = NULL;
    if (gx_order_info(s.order)->chunks == 1) s.order = GX_ORDER_1F1B;
    s.recomputes_layers = s.defers_weights = s.scatters_each = 0;
    GX_TRY(gx__interpreter_make_pipeline(&r->forward, NULL, &s, &g->error));
    r->bytes = (int64_t *)calloc(5 * (size_t)m->units, sizeof *r->bytes);
    r->is_scattered = (uint8_t *)calloc((size_t)m->units, 1);
    if (!r->bytes || !r->is_scattered)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the sizes of %d units", m->units);
    if (spec->keeps_graphs && r->train.n) GX_TRY(gx_graphs_open(&r->graphs, &m->store, &g->error));
    return gx_grads_parts_open(&r->counted, &m->table, &g->error);
}

void gx_runner_close(GxRunner *r)
{
    gx_steps_close(&r->train);
    gx_steps_close(&r->forward);
    gx_grads_parts_close(&r->counted);
    gx_graphs_close(r->graphs);
    free(r->bytes);
    free(r->is_scattered);
    memset(r, 0, sizeof *r);
}

// ---- memory --------------------------------------------------------------------------------------------------------

// 1: the unit has deferred weight gradients, so its slot keeps what they are computed from.
static int gx__interpreter_defers(const GxSteps *s, int unit)
{
    return s->spec.defers_weights && unit > 0 && unit < s->spec.units - 1 && gx_steps_is_trained(&s->spec, unit);
}

// wholes 0: as if the whole weights and gradients of sharded units took no room.
static int64_t gx__interpreter_place(GxContext *g, const GxRunner *r, GxSteps *s, int64_t T, int64_t B, int wholes)
{
    const int units = r->m->units;
    const GxStore *store = &r->m->store;
    GxBatch source = GX_ZERO, b = GX_ZERO; // the largest
    source.T = r->m->max_source_T, b.T = T, source.B = b.B = B, b.source = &source;
    GxStepsBytes bytes = {r->bytes, r->bytes + units, r->bytes + 2 * units, r->bytes + 3 * units, r->bytes + 4 * units};
    for (int u = 0; u < units; u++) {
        const int64_t entering = gx_entering_batch(r->m, u, &b)->T, own = gx_unit_batch(r->m, u, &b)->T;
        r->bytes[u] = gx_state_bytes(r->m, u, entering, B);
        r->bytes[units + u] = gx_gradient_bytes(r->m, u, entering, B);
        r->bytes[2 * units + u] = gx_slot_bytes(r->m, u, own, B, gx__interpreter_defers(s, u));
        r->bytes[3 * units + u] = wholes ? gx_shards_weights_bytes(store, u) : 0;
        r->bytes[4 * units + u] = wholes ? gx_shards_grads_bytes(store, u) : 0;
    }
    return gx_steps_place(s, &bytes, &g->error) == GX_OK ? s->bytes : 0;
}

// The window of another number of micro-batches that may follow and needs the most memory. Orders but gpipe keep a few
// micro-batches of a window at once, so that longer windows need no more: at most three for each stage. 0: none needs
// more than the one that there is.
static int gx__interpreter_longest(const GxRunner *r)
{
    const GxStepsSpec *s = &r->train.spec;
    const int ranks = (int)gx_max(s->ranks, 1), n = (int)gx_min(r->most_micro_batches, 4 * ranks + 4);
    if (!r->train.n || s->order == GX_ORDER_GPIPE || gx_order_info(s->order)->by_ranks) return 0;
    return n > s->micro_batches ? n : 0;
}

static int64_t gx__interpreter_region(GxContext *g, GxRunner *r, int64_t T, int64_t B, int wholes)
{
    const int64_t forward = gx__interpreter_place(g, r, &r->forward, T, B, wholes),
                  train = r->train.n ? gx__interpreter_place(g, r, &r->train, T, B, wholes) : 0;
    const int longest = gx__interpreter_longest(r);
    GxStepsSpec spec = r->train.spec;
    GxSteps list = GX_ZERO;
    if (!longest || gx_failed(g)) return gx_max(forward, train);
    spec.micro_batches = longest;
    gx__interpreter_make(&list, r->schedule, &spec, &g->error);
    const int64_t most = gx_failed(g) ? 0 : gx__interpreter_place(g, r, &list, T, B, wholes);
    gx_steps_close(&list);
    return gx_max(gx_max(forward, train), most);
}

GxStatus gx_runner_make(GxContext *g, const GxRunner *r, int micro_batches, GxSteps *list)
{
    GxStepsSpec spec = r->train.spec;
    memset(list, 0, sizeof *list);
    spec.micro_batches = micro_batches;
    gx__interpreter_make_pipeline(list, r->schedule, &spec, &g->error);
    const int64_t bytes = gx_failed(g) ? 0 : gx__interpreter_place(g, r, list, r->T, r->B, 1);
    if (gx_failed(g) || bytes > r->region_bytes) gx_steps_close(list);
    return gx_status(g);
}

void gx_runner_take(GxContext *g, GxRunner *r, GxSteps *list)
{
    if (r->graphs) { // they were captured with the places of the list before
        gx_comm_device_wait(g);
        gx_graphs_close(r->graphs);
        r->graphs = NULL;
        gx_graphs_open(&r->graphs, &r->m->store, &g->error);
    }
    gx_steps_close(&r->train);
    r->train = *list;
    memset(list, 0, sizeof *list);
}

// The largest shard of a unit, if sums that are started are added to what shards have. A rank whose shards are empty
// joins the sums, too.
static int64_t gx__interpreter_shard_room(const GxRunner *r)
{
    int64_t most = GX_ALIGN;
    if (!r->train.n || !r->train.spec.scatters_each || !(r->train.spec.overlaps & GX_OVERLAPS_SHARDS)) return 0;
    for (int u = 0; u < r->m->units; u++)
        if (gx_units_have(&r->m->store.units, u)) most = gx_max(most, gx_grads_shard_bytes(&r->m->store, u));
    return most;
}

void gx_runner_allocate(GxContext *g, GxRunner *r, int64_t T, int64_t B, int64_t chunk)
{
    gx_model_allocate(g, r->m, T, B, chunk);
    if (gx_failed(g)) return;
    r->T = T, r->B = B;
    gx_store_allocate(g, &r->m->store, gx_optimizer_moments(r->o));
    if (r->train.n) gx_grads_parts_allocate(g, &r->counted, &r->m->store);
    const int is_shared = r->m->store.sharded > GX_SHARDS_OPTIMIZER;
    const int64_t rows = is_shared ? gx_round_up(gx__interpreter_region(g, r, T, B, 0), GX_ALIGN) : INT64_MAX;
    r->region_bytes = gx__interpreter_region(g, r, T, B, 1);
    r->region_rows = gx_min(rows, r->region_bytes);
    r->region = gx_scratch(g, GX_MEM_ACTIVATIONS, r->region_rows);
    if (r->region_bytes > rows) gx_scratch(g, GX_MEM_COMM, r->region_bytes - rows); // directly after it: one region
    const int64_t room = gx__interpreter_shard_room(r);
    r->shard_room = room ? (float *)gx_scratch(g, GX_MEM_COMM, room) : NULL;
}

// ---- actions -------------------------------------------------------------------------------------------------------

// The stream that enters a unit, and its gradient, in the region.
static GxState gx__interpreter_x(const GxRunner *r, const GxSteps *s, const GxBatch *b, int unit, int buffer)
{
    void *data = gx_steps_at(s, r->region, buffer);
    const GxBatch *of = data ? gx_entering_batch(r->m, unit, b) : b;
    return gx_state_at(r->m, unit, of->T, of->B, data);
}
static GxState gx__interpreter_dx(const GxRunner *r, const GxSteps *s, const GxBatch *b, int unit, int buffer)
{
    void *data = gx_steps_at(s, r->region, buffer);
    const GxBatch *of = data ? gx_entering_batch(r->m, unit, b) : b;
    return gx_gradient_at(r->m, unit, of->T, of->B, data);
}

// The layer's number if the action computes the output of a layer that a cache may keep; otherwise -1.
static int gx__interpreter_layer(const GxRunner *r, const GxSteps *s, const GxAction *a)
{
    const uint8_t *bypassed = s->spec.bypassed;
    int layer = 0;
    if (!r->cache || s->spec.kind != GX_STEPS_TRAIN || a->what != GX_DO_FORWARD || !a->unit || !bypassed[a->unit])
        return -1;
    for (int u = 1; u < a->unit; u++) layer += bypassed[u];
    return layer;
}

// Returns 1 if the layer's output had been kept; then it is in y.
static int gx__interpreter_find(GxContext *g, GxRunner *r, const GxAction *a, const GxBatch *b, int layer, GxState y,
                                GxState in)
{
    const GxUnitCache *c = r->cache;
    if (!g->device->computes) r->is_found = r->plans_found;
    else if (layer == 0 || r->found_of != a->micro_batch) r->is_found = c->find(g, c->user, b);
    r->found_of = a->micro_batch;
    if (!r->is_found || gx_failed(g)) return r->is_found;
    gx_at(g, a->unit, "side_cache");
    if (g->device->computes) c->read(g, c->user, b, layer, y.x);
    gx_unit_pass_through(g, y, in);
    return 1;
}

// Tells the store where the whole gradients are that the action adds to.
static void gx__interpreter_put_grads(GxRunner *r, const GxSteps *s, int i)
{
    const GxOperands *at = &s->operands[i];
    if (at->grads >= 0) gx_shards_put_grads(&r->m->store, s->action[i].unit, gx_steps_at(s, r->region, at->grads));
    if (at->tied >= 0)
        gx_shards_put_grads(&r->m->store, gx_steps_held_by(&s->spec, s->action[i].unit),
                            gx_steps_at(s, r->region, at->tied));
}

// Runs F, R, B or W (forward, recompute, backward, weights' gradients) of a unit.
static void gx__interpreter_unit(GxContext *g, GxRunner *r, const GxSteps *s, int i, const GxBatch *b)
{
    const GxAction *a = &s->action[i];
    const GxOperands *at = &s->operands[i];
    const int above = gx_steps_above(&s->spec, a->unit);
    if (gx_kv_cache_skips(r->m, a->unit, b)) return;
    const GxState y = gx__interpreter_x(r, s, b, a->unit + 1, at->y), dy = gx__interpreter_dx(r, s, b, above, at->dy);
    GxState in = gx__interpreter_x(r, s, b, a->unit, at->x), dx = gx__interpreter_dx(r, s, b, a->unit, at->dx);
    if (at->memory >= 0) in.memory = gx__interpreter_x(r, s, b, r->m->memory + 1, at->memory).memory;
    if (at->dmemory >= 0) dx.memory = gx__interpreter_dx(r, s, b, r->m->memory + 1, at->dmemory).memory;
    const int layer = gx__interpreter_layer(r, s, a);
    gx__interpreter_put_grads(r, s, i);
    GxSlot slot;
    GxPass p = GX_ZERO;
    if (layer >= 0 && gx__interpreter_find(g, r, a, b, layer, y, in)) return;
    p.g = g, p.m = r->m, p.b = gx_unit_batch(r->m, a->unit, b), p.slot = &slot, p.unit = a->unit;
    p.writes_memory = a->unit == r->m->units - 2; // in a backward, the first of those that read it
    p.is_training = s->spec.kind == GX_STEPS_TRAIN, p.losses = r->losses;
    p.defers_weights = gx__interpreter_defers(s, a->unit);
    gx_slot_layout(&p, gx_steps_at(s, r->region, at->slot));
    if (!gx_failed(g)) {
        if (a->what == GX_DO_FORWARD || a->what == GX_DO_RECOMPUTE) gx_unit_forward(&p, y, in);
        else if (a->what == GX_DO_BACKWARD) gx_unit_backward(&p, dx, dy, in);
        else gx_unit_weight(&p, in);
    }
    if (layer >= 0 && g->device->computes && !gx_failed(g)) r->cache->write(g, r->cache->user, b, layer, y.x);
}

// ---- graphs --------------------------------------------------------------------------------------------------------

static int gx__interpreter_is_head(const GxRunner *r, int unit)
{
    return gx_pair_is_head(&gx_unit_spec(r->m, unit)->pair[0]);
}

// 1: the action can be part of a graph. F, R, B and W can, unless they need the host (for a side cache's outputs, or to
// weigh rows by their losses) or depend on a number that changes from batch to batch (a head's number of rows).
static int gx__interpreter_is_captured(const GxRunner *r, const GxSteps *s, const GxAction *a, const GxBatch *batch)
{
    const int is_unit =
        a->what == GX_DO_FORWARD || a->what == GX_DO_RECOMPUTE || a->what == GX_DO_BACKWARD || a->what == GX_DO_WEIGHT;
    if (!is_unit || gx__interpreter_layer(r, s, a) >= 0) return 0;
    if (!gx__interpreter_is_head(r, a->unit)) return 1;
    const GxUnitSpec *head = gx_unit_spec(r->m, a->unit);
    for (int k = 0; k < head->n_pairs; k++) {
        const GxTarget *t = &batch[a->micro_batch].target[head->pair[k].core.target];
        if (t->rows || t->parts || t->weighing) return 0;
    }
    return 1;
}

// How many actions, from the i-th on, are captured together: consecutive ones of one micro-batch. 0: the i-th is not
// captured.
static int gx__interpreter_graph(const GxContext *g, const GxRunner *r, const GxSteps *s, int i, const GxBatch *batch)
{
    const GxAction *a = &s->action[i];
    int n = 0;
    if (!r->graphs || s->spec.kind != GX_STEPS_TRAIN || !gx_graphs_are_possible(g)) return 0;
    while (i + n < s->n && gx__interpreter_is_captured(r, s, &a[n], batch) && a[n].micro_batch == a->micro_batch) n++;
    return n;
}

typedef struct {
    GxRunner *r;
    const GxSteps *s;
    const GxBatch *b;
    int first, n;
} GxRunActions;

static void gx__interpreter_work(GxContext *g, void *actions)
{
    const GxRunActions *w = (const GxRunActions *)actions;
    for (int i = 0; i < w->n && !gx_failed(g); i++) gx__interpreter_unit(g, w->r, w->s, w->first + i, w->b);
}

static void gx__interpreter_launch(GxContext *g, GxRunner *r, const GxSteps *s, int first, int n, const GxBatch *b)
{
    GxRunActions work = {r, s, b, first, n};
    GxGraphKey key;
    int has_head = 0;
    memset(&key, 0, sizeof key);
    key.first = first, key.n = n, key.scratch = g->arena->used;
    memcpy(&key.batch, b, sizeof key.batch);
    for (int i = 0; i < n; i++) has_head |= gx__interpreter_is_head(r, s->action[first + i].unit);
    if (!has_head) memset(key.batch.target, 0, sizeof key.batch.target);
    if (b->source) memcpy(&key.source, b->source, sizeof key.source), key.batch.source = NULL;
    memset(key.source.target, 0, sizeof key.source.target);
    // the work is the same for other samples and numbers of padded rows
    key.batch.sample = key.batch.padding = key.source.sample = key.source.padding = 0;
    for (int i = 0; i < n; i++) gx__interpreter_put_grads(r, s, first + i); // a launched graph does not do this
    gx_graphs_run(g, r->graphs, &key, gx__interpreter_work, &work);
}

// ---- what is recorded ----------------------------------------------------------------------------------------------

// How often the recorder counts an action. If nothing is computed and only totals are recorded, all micro-batches but
// the first (which writes gradients that the others add to) and the last (among whose actions the sums over ranks
// begin) are alike: the second stands for all of them, and the others are left out (0).
static int gx__interpreter_times(const GxContext *g, const GxSteps *s, const GxAction *a)
{
    const int alike = s->spec.micro_batches - 2;
    if (g->device->computes || !g->recorder || !g->recorder->totals_only) return 1;
    if (a->micro_batch < 1 || a->micro_batch > alike) return 1;
    return a->micro_batch == 1 ? alike : 0;
}

// ---- messages ------------------------------------------------------------------------------------------------------

// What is started is in a channel of its own (GxTransfer.channel), of the side network in another one.
static GxTicket gx__interpreter_pass_rows(GxContext *g, const GxAction *a, int is_side, GxRows x, const GxShares *mine,
                                          const GxShares *theirs)
{
    const int is_send = a->what == GX_DO_SEND, channel = a->count + (is_side ? GX_CHANNELS / 2 : 0);
    const GxTicket none = GX_ZERO;
    if (x.data && a->ticket >= 0)
        return gx_stage_transfer_start(g, a->peer, is_send, channel, x.data, x.cols, x.dtype, mine, theirs);
    if (x.data) gx_stage_transfer(g, a->peer, is_send, channel, x.data, x.cols, x.dtype, mine, theirs);
    return none;
}

// Sends to, or receives from, another stage the state that enters a unit, or its gradient.
static void gx__interpreter_message(GxContext *g, GxRunner *r, const GxSteps *s, int i, const GxBatch *b)
{
    const GxAction *a = &s->action[i];
    const GxOperands *at = &s->operands[i];
    const GxState x = a->object == GX_OBJECT_X ? gx__interpreter_x(r, s, b, a->unit, at->x)
                                               : gx__interpreter_dx(r, s, b, a->unit, at->dx);
    const GxShares mine = gx_stage_rows(g, r->m, a->unit, gx_group_index(g, GX_AXIS_PP), b),
                   theirs = gx_stage_rows(g, r->m, a->unit, a->peer, b);
    GxTicket message[2];
    if (gx_kv_cache_skips(r->m, a->unit - 1, b)) return; // what the encoder has made is in the cache
    gx_at(g, a->unit, "stage");
    message[0] = gx__interpreter_pass_rows(g, a, 0, x.memory.data ? x.memory : x.x, &mine, &theirs);
    message[1] = gx__interpreter_pass_rows(g, a, 1, x.side, &mine, &theirs);
    if (a->ticket >= 0) memcpy(r->ticket[a->ticket].message, message, sizeof message);
}

// ---- a list --------------------------------------------------------------------------------------------------------

// Sums over all ranks what the window's losses are divided by, and whether a rank wants to stop; resets the sums of
// the step before.
static void gx__interpreter_count(GxContext *g, GxRunner *r, const GxSteps *s)
{
    const int is_counted = g->device->computes && gx_counts_samples(g);
    int64_t count[GX_MAX_LOSSES] = GX_ZERO;
    for (int i = 0; i < s->spec.micro_batches && is_counted; i++) r->counts(r->task, &r->batch[i], count);
    int64_t agreed[GX_MAX_LOSSES + 1];
    memcpy(agreed, count, sizeof count);
    agreed[GX_MAX_LOSSES] = r->stop;
    gx_at(g, -1, "window");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, agreed, GX_MAX_LOSSES + 1, GX_I64);
    memcpy(r->labels, agreed, sizeof r->labels);
    r->stop = agreed[GX_MAX_LOSSES] > 0, r->took_over = 0;
    memset(r->is_scattered, 0, (size_t)r->m->units);
    gx_to_device(g, g->step->labels, agreed, sizeof r->labels);
    gx_zero(g, &g->step->sum_squares, sizeof g->step->sum_squares + sizeof g->step->loss_sum);
    gx_grads_begin(g, &r->counted);
    gx_store_begin_window(&r->m->store);
}

// The sum of squares goes from stage to stage: this rank's stage number `chunk` passes it on.
static void gx__interpreter_send_squares(GxContext *g, const GxStepsSpec *p, int chunk)
{
    const int next = gx_steps_stage_at(p, p->rank, chunk) + 1;
    if (next < gx_steps_stages(p) && gx_steps_rank_of(p, next) != p->rank)
        gx_grads_send_squares(g, gx_steps_rank_of(p, next));
}

// Receives the sum of squares before this rank's stage number `chunk` adds its own.
static void gx__interpreter_receive_squares(GxContext *g, GxRunner *r, int chunk)
{
    const GxStepsSpec *p = &r->train.spec;
    for (; r->took_over <= chunk; r->took_over++) {
        const int stage = gx_steps_stage_at(p, p->rank, r->took_over);
        if (r->took_over) gx__interpreter_send_squares(g, p, r->took_over - 1);
        if (stage && gx_steps_rank_of(p, stage - 1) != p->rank)
            gx_grads_receive_squares(g, gx_steps_rank_of(p, stage - 1));
    }
}

// Which of this rank's stages has the unit.
static int gx__interpreter_chunk(const GxStepsSpec *p, int unit)
{
    int chunk = 0;
    while (gx_steps_stage_at(p, p->rank, chunk) != gx_steps_stage_of(p, unit)) chunk++;
    return chunk;
}

static void gx__interpreter_agree(GxContext *g, GxRunner *r)
{
    const GxStepsSpec *p = &r->train.spec;
    const GxStore *s = &r->m->store;
    const int chunks = p->stage ? gx_order_info(p->order)->chunks : 1;
    for (int k = 0; k < chunks; k++) {
        const int stage = gx_steps_stage_at(p, p->rank, k), first = gx_steps_begin(p, stage);
        gx__interpreter_receive_squares(g, r, k);
        if (s->sharded) gx_grads_add_shards(g, s, &r->counted, first, gx_steps_end(p, stage) - first);
    }
    gx__interpreter_send_squares(g, p, chunks - 1);
    gx_grads_agree(g, gx_steps_rank_of(p, gx_steps_stages(p) - 1));
    gx_at(g, -1, "loss");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, g->step->loss_sum, GX_MAX_LOSSES, GX_F64);
    gx_clip(g, r->o->max_grad_norm);
}

static void gx__interpreter_gather(GxContext *g, GxRunner *r, const GxSteps *s, int i)
{
    const GxAction *a = &s->action[i];
    void *into = gx_steps_at(s, r->region, s->operands[i].weights);
    if (a->ticket < 0) gx_shards_gather(g, &r->m->store, a->unit, into);
    else gx_shards_gather_start(g, &r->m->store, a->unit, into, &r->ticket[a->ticket].gather);
}

static void gx__interpreter_scatter(GxContext *g, GxRunner *r, const GxAction *a)
{
    const int adds = r->is_scattered[a->unit];
    if (a->ticket < 0) gx_grads_scatter(g, &r->m->store, a->unit, adds);
    else {
        GxRunTicket *t = &r->ticket[a->ticket];
        t->adds = adds;
        t->scatter = gx_grads_scatter_start(g, &r->m->store, a->unit, adds, r->shard_room);
    }
    r->is_scattered[a->unit] = 1;
}

static void gx__interpreter_wait(GxContext *g, GxRunner *r, const GxAction *a)
{
    GxRunTicket *t = &r->ticket[a->ticket];
    if (!t->action) return;
    const int unit = t->action->unit;
    switch (t->action->what) {
    case GX_DO_GATHER: gx_shards_gather_wait(g, unit, &t->gather); break;
    case GX_DO_SCATTER: gx_grads_scatter_wait(g, &r->m->store, unit, t->adds, r->shard_room, t->scatter); break;
    case GX_DO_SEND:
    case GX_DO_RECV:
        gx_at(g, unit, "stage");
        for (int k = 0; k < 2; k++) gx_wait(g, t->message[k]);
        break;
    default: gx_grads_wait(g, &t->sum); break;
    }
}

static void gx__interpreter_tie(GxContext *g, GxRunner *r, const GxAction *a)
{
    int row[GX_STEPS_SHARED + 1];
    const GxShares vocab = gx_stage_vocab(g, r->m, a->peer);
    gx__interpreter_shared(r->m, row);
    gx_grads_tie(g, &r->m->store, row[a->count - 1], a->peer, a->half == GX_TIE_TAKES, &vocab);
}

static void gx__interpreter_reduce(GxContext *g, GxRunner *r, const GxAction *a)
{
    if (a->object == GX_OBJECT_SHARD) gx_grads_reduce_shard(g, &r->m->store, a->unit);
    else if (a->ticket < 0) gx_grads_reduce(g, &r->m->store, a->unit, a->count);
    else gx_grads_start(g, &r->m->store, a->unit, a->count, &r->ticket[a->ticket].sum);
}

// Measures a window's work, from the list's beginning to the end of its last F, R, B or W.
typedef struct {
    int last; // the number of that action; -1: nothing is measured
    double begin, comm;
} gx__InterpreterClock;

static double gx__interpreter_comm(const GxContext *g) { return g->comm ? g->comm->seconds : 0; }

static gx__InterpreterClock gx__interpreter_clock(const GxContext *g, const GxRunner *r, const GxSteps *s)
{
    gx__InterpreterClock c = {-1, gx_seconds(), gx__interpreter_comm(g)};
    if (!r->is_timed || s->spec.kind != GX_STEPS_TRAIN || !g->device->computes) return c;
    for (c.last = s->n - 1; c.last >= 0 && s->action[c.last].what > GX_DO_WEIGHT;) c.last--;
    return c;
}

static void gx__interpreter_worked(GxContext *g, GxRunner *r, gx__InterpreterClock *c)
{
    gx_device_wait(g);
    r->worked = gx_seconds() - c->begin - (gx__interpreter_comm(g) - c->comm);
    c->last = -1;
}

static void gx__interpreter_run(GxContext *g, GxRunner *r, const GxSteps *s, const GxBatch *batch)
{
    gx__InterpreterClock clock = gx__interpreter_clock(g, r, s);
    for (int i = 0, run = 1; i < s->n && !gx_failed(g); i += run) {
        const GxAction *a = &s->action[i];
        const int times = gx__interpreter_times(g, s, a);
        run = 1;
        if (clock.last >= 0 && i > clock.last) gx__interpreter_worked(g, r, &clock);
        if (a->ticket >= 0 && a->what != GX_DO_WAIT) r->ticket[a->ticket].action = times ? a : NULL;
        if (!times) continue;
        if (g->recorder) gx_recorder_act(g->recorder, a->what + 1, a->micro_batch, i, times);
        run = gx__interpreter_graph(g, r, s, i, batch);
        if (run) {
            gx__interpreter_launch(g, r, s, i, run, &batch[a->micro_batch]);
            continue;
        }
        run = 1;
        switch (a->what) {
        case GX_DO_FORWARD:
        case GX_DO_RECOMPUTE:
        case GX_DO_BACKWARD:
        case GX_DO_WEIGHT: gx__interpreter_unit(g, r, s, i, &batch[a->micro_batch]); break;
        case GX_DO_COUNT:
            gx__interpreter_count(g, r, s);
            if (r->stop) i = s->n;
            break;
        case GX_DO_SEND:
        case GX_DO_RECV: gx__interpreter_message(g, r, s, i, &batch[a->micro_batch]); break;
        case GX_DO_GATHER: gx__interpreter_gather(g, r, s, i); break;
        case GX_DO_FREE: gx_shards_free(&r->m->store, a->unit); break;
        case GX_DO_SCATTER: gx__interpreter_scatter(g, r, a); break;
        case GX_DO_REDUCE: gx__interpreter_reduce(g, r, a); break;
        case GX_DO_TIE: gx__interpreter_tie(g, r, a); break;
        case GX_DO_WAIT: gx__interpreter_wait(g, r, a); break;
        case GX_DO_NORM: // neighbouring units together: two launches for all of their tensors
            run = gx_steps_run(s, i);
            if (!r->m->store.sharded) gx__interpreter_receive_squares(g, r, gx__interpreter_chunk(&s->spec, a->unit));
            gx_grads_sum_squares(g, &r->m->store, &r->counted, a->unit, run);
            break;
        case GX_DO_AGREE: gx__interpreter_agree(g, r); break;
        case GX_DO_STEP:
            gx_at(g, a->unit, "step");
            gx_optimizer_step(g, &r->m->store, r->o, a->unit);
            break;
        default: {
            char name[48];
            GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "action %d of the list (%s) is not supported", i,
                    gx_action_name(a, name));
        }
        }
    }
    if (g->recorder) gx_recorder_act(g->recorder, 0, 0, s->n, 1);
}

// 1: each batch has a source, if the model has an encoder.
static int gx__interpreter_has_sources(GxContext *g, const GxRunner *r, const GxBatch *batch, int n, int is_training)
{
    for (int i = 0; i < n && r->m->memory; i++) {
        const GxBatch *s = batch[i].source;
        if (s && s->B > 0 && (is_training ? s->B == batch[i].B : batch[i].B % s->B == 0)) continue;
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "batch %d has %s; the model has an encoder, which reads a source of as many columns as the batch%s", i,
                s ? "a source of another number of columns" : "no source",
                is_training ? "" : ", or of fewer, of which that is a multiple");
        return 0;
    }
    return 1;
}

void gx_runner_train(GxContext *g, GxRunner *r, const GxBatch *batch, int64_t *labels, int *stop)
{
    if (!gx__interpreter_has_sources(g, r, batch, r->train.spec.micro_batches, 1)) return;
    r->batch = batch;
    r->losses.count = g->step->labels, r->losses.sum = g->step->loss_sum;
    r->stop = stop ? *stop : 0;
    gx__interpreter_run(g, r, &r->train, batch);
    if (labels) memcpy(labels, r->labels, sizeof r->labels);
    if (stop) *stop = r->stop;
}

// In a pipeline, sends what heads wrote from the ranks that have them to the first ones, of which one shows it.
static void gx__interpreter_pass_results(GxContext *g, const GxBatch *b)
{
    const int me = gx_group_index(g, GX_AXIS_PP), has = gx_head_index(g);
    if (has == 0 || (me && me != has)) return;
    gx_at(g, -1, "results");
    for (int k = 0; k < GX_MAX_LOSSES; k++) {
        const GxTarget *t = &b->target[k];
        const int64_t rows = gx_min(t->logits.rows, t->n);
        if (!t->logits.data || rows < 1) continue;
        const GxShares mine = gx_shares_each(rows, gx_group_size(g, GX_AXIS_TP), gx_group_index(g, GX_AXIS_TP)),
                       theirs = gx_shares_each(rows, gx_mesh_width(g->mesh, has - me), 0);
        gx_stage_transfer(g, has - me, me == has, 0, t->logits.data, t->logits.cols, t->logits.dtype, &mine, &theirs);
    }
}

void gx_runner_forward(GxContext *g, GxRunner *r, const GxBatch *b, double *loss)
{
    gx_runner_evaluate(g, r, b, 1, loss);
}

// A stage begins a batch as soon as it has sent the one before, since only results come back.
void gx_runner_evaluate(GxContext *g, GxRunner *r, const GxBatch *batch, int n, double *loss)
{
    r->losses.count = NULL, r->losses.sum = loss;
    if (!gx__interpreter_has_sources(g, r, batch, n, 0)) return;
    for (int i = 0; i < n; i++) gx__interpreter_run(g, r, &r->forward, &batch[i]);
    for (int i = 0; i < n; i++) gx__interpreter_pass_results(g, &batch[i]);
}
#endif
