// steps.h: a training step as a list of actions, one list per rank, at the grain of a unit.
//
// Units are the embedding (0), the layers (1 to L) and the head (L + 1). Two layers, one micro-batch:
//
//     COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3
//
// If the model has an encoder, units 0 to `memory` are its embedding, its layers and its end; then come the decoder's
// embedding, which has no input, its layers and the head. What enters the decoder's embedding is the memory: an object
// that all of the decoder's layers read, and to whose gradient all of them add. In a pipeline each rank that has some
// of these layers has it once per micro-batch: stages hand it on, and its gradient, as added up so far, back.
//
// F is a unit's forward, B its backward; in training a head has only a B, which also computes its loss. Generators
// (steps_make.h) decide what a step consists of: micro-batches, recomputation, frozen units, weights' gradients that
// are computed later, sums over ranks; and in a pipeline, whose ranks have some of the units each, its order
// (steps_order.h) and the messages between stages. A list is checked before it runs (steps_check.h), and a pipeline's
// lists together (steps_ranks.h); its rows get their places in memory (steps_place.h), and one small interpreter runs
// it (run/interpreter.h). Nothing in a list depends on data: the skip flag, the clip coefficient and the number of
// labels lie in the device's memory.
//
//     GxStepsSpec spec = GX_ZERO;
//     spec.units = layers + 2, spec.micro_batches = 4;
//     GxSteps s = GX_ZERO;
//     GX_TRY(gx_steps_make(&s, &spec, err));         // the list
//     GX_TRY(gx_steps_check(&s, err));               // every action's inputs exist, and nothing is left over
//     GX_TRY(gx_steps_place(&s, &bytes, err));       // s.bytes of the arena, an offset for each of its rows
//     for (int i = 0; i < s.n; i++) {                // s.action[i] on the rows of s.operands[i]: gx_steps_at
//         ...
//     }
//     gx_steps_close(&s);
//
// If ranks share units (shards.h), SCATTER sums a unit's gradients and leaves each rank its part, and GATHER makes the
// whole weights: after STEP, or, if weights are sharded, before their uses, until FREE.
//
// Not generated yet: lists with offloaded rows. Their actions are in the structure and in the table of effects, and the
// interpreter refuses them by name.
//
// Memory: one block of the host's per list, allocated when the list is made.
#ifndef GX_STEPS_H
#define GX_STEPS_H
#include "../base/store.h"
GX_BEGIN

// ---- actions -------------------------------------------------------------------------------------------------------

typedef enum {
    GX_DO_FORWARD = 0, // F
    GX_DO_RECOMPUTE,   // R: the forward again, only to fill the slot
    GX_DO_BACKWARD,    // B
    GX_DO_WEIGHT,      // W: the weight gradients that B has deferred
    GX_DO_SEND,
    GX_DO_RECV,
    GX_DO_GATHER, // complete weights from the shards
    GX_DO_FREE,
    GX_DO_SCATTER, // complete gradients into shards
    GX_DO_REDUCE,  // gradients summed in place
    GX_DO_TIE,     // gradients of a tensor that another stage has, too: both stages add the two
    GX_DO_SPILL,   // device -> host
    GX_DO_FETCH,   // host -> device
    GX_DO_COUNT,   // labels of the window, and the stop flag: what all ranks agree on before the first head
    GX_DO_NORM,    // sums of squares of a unit's gradients
    GX_DO_AGREE,   // sums of squares and loss over all ranks: gives norm, clip coefficient, skip flag
    GX_DO_STEP,    // the optimizer, on a unit
    GX_DO_WAIT,
    GX_DOS
} GxDo;

// What actions use, make and end. An action's `object` is one of the first seven.
typedef enum {
    GX_OBJECT_NONE = 0,
    GX_OBJECT_X,        // rows of (unit, micro-batch): the unit's input. Its forward writes the next unit's input
    GX_OBJECT_DX,       // rows of (unit, micro-batch): the gradient of that input
    GX_OBJECT_SLOT,     // of (unit, micro-batch): what the backward needs from the forward
    GX_OBJECT_TOKEN,    // of (unit, micro-batch): no data, records only that an action has run
    GX_OBJECT_GRADS,    // of a unit: whole
    GX_OBJECT_SHARD,    // of a unit: this rank's part of its gradients
    GX_OBJECT_MOMENTS,  // of a unit
    GX_OBJECT_DEFERRED, // of (unit, micro-batch): what B left in the slot for W
    GX_OBJECT_WEIGHTS,  // of a unit: whole
    GX_OBJECT_SUMS,     // of a unit: the sums of squares of its gradients, by blocks
    GX_OBJECT_COUNTS,   // of the window
    GX_OBJECT_CLIP,     // of the window: norm, clip coefficient, skip
    GX_OBJECT_NAMED,    // in the table of effects only: the action's `object`
    GX_OBJECT_COPY,     // in the table of effects only: that object's copy on the host
    GX_OBJECTS
} GxObject;

typedef enum {
    GX_KEEP_NOTHING = 0, // F frees its input; the slot exists only during the action
    GX_KEEP_INPUT,       // F keeps its input, not the slot; R makes one before B
    GX_KEEP_SLOT
} GxKeep;
typedef enum {
    GX_HALF_NONE = 0, // B computes all gradients
    GX_HALF_INPUT,    // B without the gradients of matrices; W computes them from the slot
    GX_HALF_INPUT_X   // the same, but W also reads x, which is kept until then
} GxHalf;
typedef enum { GX_TIE_ADDS = 0, GX_TIE_TAKES } GxTie; // both ranks get the sum of the two; the higher gets the lower's
typedef enum { GX_AT_DEVICE = 0, GX_AT_HOST } GxAt;

typedef struct {
    int16_t unit, micro_batch; // -1: none
    int16_t peer;              // SEND, RECV, TIE: the other rank of the pipeline
    // REDUCE: how many neighbouring units from `unit` on (a bucket). SEND, RECV that overlap with others: the message's
    // number among those of its two ranks, from 1 to GX_STEPS_NUMBERS and again; 0: messages do not overlap. TIE: which
    // tensor, as GxStepsSpec.shares has them
    int16_t count;
    int8_t what;          // GxDo
    int8_t object;        // GxObject, of SEND, RECV, REDUCE, SPILL, FETCH
    int8_t axes;          // of the mesh, of an action that communicates
    int8_t keep;          // GxKeep, of F
    int8_t half;          // GxHalf, of B, and of the W that goes with it. TIE: GxTie
    int8_t at;            // GxAt, of STEP
    int8_t ticket, after; // ticket -1: blocking. after: the ticket that this action's stream waits for; -1: none
} GxAction;
typedef char GxActionHas16Bytes[sizeof(GxAction) == 16 ? 1 : -1];

// ---- lists ---------------------------------------------------------------------------------------------------------

typedef enum { GX_STEPS_TRAIN = 0, GX_STEPS_FORWARD } GxStepsKind; // forward: evaluation, generation
// The order in which a rank computes its micro-batches: steps_order.h. On one rank: F and B of one micro-batch after
// another, or (GPIPE) all forwards, then all backwards.
typedef enum {
    GX_ORDER_1F1B = 0,
    GX_ORDER_GPIPE,
    GX_ORDER_INTERLEAVED,
    GX_ORDER_ZB1P,
    GX_ORDER_ZBV,
    GX_ORDERS
} GxStepsOrder;

// What a list is made from. If all fields but units and micro_batches are 0, the list is the serial step of one rank.
typedef struct {
    int units;            // of the model, L + 2: unit 0 is the embedding, the last one the head
    int ranks, rank;      // of a pipeline, and this rank's number in it; 0, 0: one rank has all units
    const int16_t *stage; // [gx_steps_stages + 1]: stage s has units [stage[s], stage[s + 1]). NULL: one stage
    int kind;             // GxStepsKind
    int micro_batches;
    int order; // GxStepsOrder
    // [ranks]: orders 1f1b and zb1p: how many forwards a rank is ahead beyond those of the order: its first backward
    // comes later, so messages have more time, and it keeps as many slots more. 0 or more; more than the rank before
    // has is slow, and can be 1 at most. NULL: none
    const int16_t *warm;
    int recomputes_layers;     // layers keep their inputs only, and are computed again before their backwards
    const uint8_t *recomputed; // [units]: 1: recomputes_layers is for this layer. NULL: for all layers
    int defers_weights;        // the layers' weight gradients are deferred to the end of the window
    int weight_reads_x;        // deferred weight gradients read the unit's input (norms after the cores)
    // Units share tensors with unit 0. Each rank that has such units has each of these tensors once, and its gradient,
    // in the lowest of them (gx_steps_holder).
    int is_tied;
    // [units], if is_tied: the number of the tensor of unit 0's that the unit has, 1 to GX_STEPS_SHARED; 0: none. NULL:
    // the head has number 1, and so has a decoder's embedding
    const uint8_t *shares;
    int frozen_shares;     // a bit, 1 << number, for each of these tensors that is frozen. All are if unit 0 is
    int memory;            // the unit that ends an encoder; 0: there is none
    int has_lora;          // deferred weight gradients read LoRA's factors
    int embedding_reads;   // the embedding's backward reads weights, such as a norm's or LoRA's
    const uint8_t *frozen; // [units]: 1: nothing of the unit is trained. NULL: all units are trained
    // [units]: 1: the unit is frozen and has no backward, wherever it is: gradients bypass it, as they bypass the
    // backbone beside a side network. NULL: none is bypassed
    const uint8_t *bypassed;
    int count_axes;  // COUNT's
    int reduce_axes; // the axes that gradients are summed over; 0: none
    int agree_axes;  // AGREE's
    // What is sharded (GxSharded), each value including those before it: 1 the optimizer's state, 2 gradients, 3
    // weights. Then SCATTER and GATHER over shard_axes replace REDUCE, and REDUCE sums shards over reduce_axes.
    int sharded, shard_axes;
    int scatters_each; // SCATTER after each micro-batch, not only after the window's last one
    int gathered;      // sharded weights: the most units whose weights are whole at once; at least 1, if tied 2
    int bucket;        // units whose gradients are summed in one REDUCE; 0: all
    int starts_sums; // REDUCEs are started, and waited for before a third would be in flight, and before the first NORM
    int overlaps;    // GX_OVERLAPS_...: what is started ahead, and waited for later (steps_overlap.h)
} GxStepsSpec;
enum { GX_STEPS_SHARED = 3 };                              // GxStepsSpec.shares
enum { GX__STEPS_WEIGHTS_SHARDED = 3 };                    // GxStepsSpec.sharded
enum { GX_OVERLAPS_SHARDS = 1, GX_OVERLAPS_MESSAGES = 2 }; // GATHER and SCATTER; SEND and RECV
// SUMS: REDUCEs that a list has in flight at once: tickets 0 and 1. TICKETS: of a list that was made. NUMBERS: more
// messages than two ranks ever have in flight
enum { GX_STEPS_SUMS = 2, GX_STEPS_TICKETS = 8, GX_STEPS_NUMBERS = 60 };

typedef struct {
    int64_t offset, bytes; // in the list's region of the arena
} GxBuffer;

// The buffers of an action's rows, as indices of GxSteps.buffer; -1: none. F's y is the next unit's x, B's dy the next
// unit's dx. dx may be dy's buffer: the backward then works in place.
typedef struct {
    int16_t x, y, dx, dy, slot;
    int16_t weights;         // of GATHER, which makes them
    int16_t grads, tied;     // whole gradients of the unit, and of the one that holds a tensor that it shares
    int16_t memory, dmemory; // of a decoder's layer: what its encoder has made, and its gradient
} GxOperands;

// The most buffers that an action makes: a head's backward makes its slot, dx, its gradients and those of unit 0.
enum { GX__STEPS_MAKES = 4 };

typedef struct {
    GxAction *action;
    int n;            // actions
    int tickets;      // tickets are numbered 0 to tickets - 1
    GxStepsSpec spec; // stage, warm, recomputed, frozen and bypassed are copies

    GxOperands *operands; // [n], by gx_steps_place
    GxBuffer *buffer;     // [n_buffers]
    int n_buffers;
    int64_t bytes; // of the region
    int64_t most;  // the most bytes alive at any time: no placement needs less
    void *memory;
} GxSteps;

void gx_steps_close(GxSteps *s); // also of one that is all zeros

// The address of rows in the list's region, which begins at `base`. NULL: the action has no such rows.
static inline void *gx_steps_at(const GxSteps *s, void *base, int buffer)
{
    return buffer < 0 ? NULL : (char *)base + s->buffer[buffer].offset;
}

// ---- stages --------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name; // "1f1b"
    int chunks;       // stages of a rank
    int is_v;         // 1: rank r of n has stages r and 2n - 1 - r, in a V. 0: r and n + r
    int has_halves;   // 1: the order contains deferred weight gradients
    int by_ranks;     // the number of micro-batches must be a multiple of the number of ranks
    int has_warm;     // 1: GxStepsSpec.warm applies
} GxOrderInfo;
const GxOrderInfo *gx_order_info(int order); // GxStepsOrder

int gx_steps_stages(const GxStepsSpec *spec);
int gx_steps_rank_of(const GxStepsSpec *spec, int stage);
int gx_steps_stage_at(const GxStepsSpec *spec, int rank, int chunk);
// The stage that has the unit; its units are [gx_steps_begin, gx_steps_end).
int gx_steps_stage_of(const GxStepsSpec *spec, int unit);
int gx_steps_begin(const GxStepsSpec *spec, int stage);
int gx_steps_end(const GxStepsSpec *spec, int stage);
int gx_steps_is_mine(const GxStepsSpec *spec, int unit); // of this rank's stages
// The units of a rank of a pipeline; stage: as GxStepsSpec's.
GxUnits gx_steps_units(int order, int ranks, int rank, const int16_t *stage);

// The unit behind an encoder: its decoder's embedding. What enters it is the memory. -1: there is none.
static inline int gx_steps_behind_encoder(const GxStepsSpec *spec) { return spec->memory ? spec->memory + 1 : -1; }

typedef struct {
    int from, to; // ranks
    int made_by;  // the stage whose forward, or backward, makes what is sent
} GxStepsMessage;
// The message with a unit's input x into a stage, or with its gradient dx out of it. The stage is the unit's own; but
// the memory goes to each stage that has layers that read it, and its gradient comes from each. Returns 0 if there is
// none: the input is made on the stage's rank, or is there already, or has no gradient.
int gx_steps_message(const GxStepsSpec *spec, int object, int unit, int stage, GxStepsMessage *message);

// The unit that has, on a rank, the tensor of this number that units share; -1: the rank has none.
int gx_steps_holder(const GxStepsSpec *spec, int rank, int number);
// The unit that has, on a unit's rank, the tensor that it shares; -1: it has that itself, or shares none.
int gx_steps_held_by(const GxStepsSpec *spec, int unit);
// 1: a unit of this rank has a tensor that another one of its units holds.
int gx_steps_is_tied_here(const GxStepsSpec *spec);
// The TIEs by which the ranks that have the tensor of this number get the sum of their gradients, of this rank, in
// their order. Returns how many there are, 0 to GX_STEPS_TIES: with ranks a < b < c, b and c add theirs, then a and b,
// and c takes b's.
enum { GX_STEPS_TIES = 4 };
int gx_steps_ties(const GxStepsSpec *spec, int number, GxAction tie[GX_STEPS_TIES]);
int gx_steps_is_tied_apart(const GxStepsSpec *spec, int unit); // 1: it holds a tensor that has TIEs

// The lowest unit that has something trained; spec->units: none. Units below it have no backward.
int gx_steps_lowest(const GxStepsSpec *spec);
int gx_steps_is_trained(const GxStepsSpec *spec, int unit);
int gx_steps_has_backward(const GxStepsSpec *spec, int unit);
// The next unit above this one that has a backward: the gradient of its input is the gradient of this unit's output.
int gx_steps_above(const GxStepsSpec *spec, int unit);

// ---- effects -------------------------------------------------------------------------------------------------------

typedef enum {
    GX_USES = 0, // must be there
    GX_ADDS,     // a contribution to gradients: written if absent, else added to
    GX_CHANGES,  // must be there; no other action may access it meanwhile
    GX_MAKES,    // must not be there
    GX_ENDS      // must be there; is gone afterwards
} GxVerb;
typedef struct {
    int verb, object;
    int unit, count; // units [unit, unit + count); -1, 1: not of a unit
    int micro_batch; // -1: not of a micro-batch
} GxEffect;
enum { GX_EFFECTS = 20 };

// The effects of an action, in their order: uses, adds and changes, makes, ends. Returns their number.
int gx_action_effects(const GxStepsSpec *spec, const GxAction *a, GxEffect effect[GX_EFFECTS]);

// ---- text ----------------------------------------------------------------------------------------------------------

const char *gx_object_name(int object); // "x", "slot", "gradients"
// "B3 of micro-batch 1", "REDUCE0-3"; a backward that defers its weight gradients is "b3". Truncated if it does not
// fit.
const char *gx_action_name(const GxAction *a, char text[48]);
// What gx_steps_print writes for the actions that run together from the i-th on: "B3.1", "REDUCE0-3", "NORM0-3".
const char *gx_steps_word(const GxSteps *s, int i, char text[64]);

// The whole list in one line: "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3"; with several micro-batches, "F0.1" is
// unit 0's of micro-batch 1. Neighbouring NORMs and STEPs are written together. An action that starts ticket 1 is
// "REDUCE0-3~1", its wait "WAIT1"; a message to rank 2 is "SEND:x:5>2", one from it "RECV:dx:5<2", a sum of two ranks
// "TIE0<>2". Returns the length of the whole text, as snprintf does.
int gx_steps_print(const GxSteps *s, char *text, size_t size);

// The number of NORMs (or STEPs) of consecutive units, without a ticket, from action i on: they can be done together.
// At least 1.
int gx_steps_run(const GxSteps *s, int i);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_IMPLEMENTED)
#define GX_STEPS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gx_steps_is_trained(const GxStepsSpec *spec, int unit) { return !spec->frozen || !spec->frozen[unit]; }

int gx_steps_lowest(const GxStepsSpec *spec)
{
    int unit = 0;
    while (unit < spec->units && !gx_steps_is_trained(spec, unit)) unit++;
    return unit;
}

int gx_steps_has_backward(const GxStepsSpec *spec, int unit)
{
    return unit >= gx_steps_lowest(spec) && !(spec->bypassed && spec->bypassed[unit]);
}

int gx_steps_above(const GxStepsSpec *spec, int unit)
{
    const int lowest = gx_steps_lowest(spec);
    unit = (int)gx_max(unit + 1, lowest);
    while (unit < spec->units && spec->bypassed && spec->bypassed[unit]) unit++;
    return unit;
}

// ---- stages --------------------------------------------------------------------------------------------------------

const GxOrderInfo *gx_order_info(int order)
{
    static const GxOrderInfo orders[GX_ORDERS] = {
        {"1f1b", 1, 0, 0, 0, 1}, {"gpipe", 1, 0, 0, 0, 0}, {"interleaved", 2, 0, 0, 1, 0},
        {"zb1p", 1, 0, 1, 0, 1}, {"zbv", 2, 1, 1, 0, 0},
    };
    return &orders[order];
}

static int gx__steps_ranks(const GxStepsSpec *spec) { return (int)gx_max(spec->ranks, 1); }

int gx_steps_stages(const GxStepsSpec *spec)
{
    return spec->stage ? gx__steps_ranks(spec) * gx_order_info(spec->order)->chunks : 1;
}

int gx_steps_stage_at(const GxStepsSpec *spec, int rank, int chunk)
{
    const int ranks = gx__steps_ranks(spec);
    if (!chunk) return rank;
    return gx_order_info(spec->order)->is_v ? 2 * ranks - 1 - rank : chunk * ranks + rank;
}

int gx_steps_rank_of(const GxStepsSpec *spec, int stage)
{
    const int ranks = gx__steps_ranks(spec);
    if (stage < ranks) return stage;
    return gx_order_info(spec->order)->is_v ? 2 * ranks - 1 - stage : stage % ranks;
}

GxUnits gx_steps_units(int order, int ranks, int rank, const int16_t *stage)
{
    GxStepsSpec spec = GX_ZERO;
    GxUnits u = GX_ZERO;
    spec.order = order, spec.ranks = ranks, spec.stage = stage;
    for (u.n = 0; u.n < gx_order_info(order)->chunks; u.n++) {
        const int s = gx_steps_stage_at(&spec, rank, u.n);
        u.begin[u.n] = stage[s], u.end[u.n] = stage[s + 1];
    }
    return u;
}

int gx_steps_begin(const GxStepsSpec *spec, int stage) { return spec->stage ? spec->stage[stage] : 0; }
int gx_steps_end(const GxStepsSpec *spec, int stage) { return spec->stage ? spec->stage[stage + 1] : spec->units; }

int gx_steps_stage_of(const GxStepsSpec *spec, int unit)
{
    int stage = 0;
    while (unit >= gx_steps_end(spec, stage)) stage++;
    return stage;
}

int gx_steps_is_mine(const GxStepsSpec *spec, int unit)
{
    return gx_steps_rank_of(spec, gx_steps_stage_of(spec, unit)) == spec->rank;
}

// 1: something of the unit is trained on this rank.
static int gx__steps_trains(const GxStepsSpec *spec, int unit)
{
    return gx_steps_is_trained(spec, unit) && gx_steps_is_mine(spec, unit);
}

// The highest unit below this one that has a backward, which gets the gradient of this one's input; -1: none.
static int gx__steps_below(const GxStepsSpec *spec, int unit)
{
    do unit--;
    while (unit >= 0 && !gx_steps_has_backward(spec, unit));
    return unit;
}

static int gx__steps_rank_of_unit(const GxStepsSpec *p, int unit)
{
    return gx_steps_rank_of(p, gx_steps_stage_of(p, unit));
}

// The first and the last stage that receive a unit's input, each from the one before: the unit's own. Of the memory,
// that of the first layer that reads it, which gets it from the encoder's, and that of the last one.
static int gx__steps_first_stage(const GxStepsSpec *p, int unit)
{
    return gx_steps_stage_of(p, unit == gx_steps_behind_encoder(p) ? unit + 1 : unit);
}
static int gx__steps_last_stage(const GxStepsSpec *p, int unit)
{
    return gx_steps_stage_of(p, unit == gx_steps_behind_encoder(p) ? p->units - 2 : unit);
}

// 1: the memory is on a stage's rank before that stage's turn comes.
static int gx__steps_has_memory(const GxStepsSpec *p, int stage)
{
    const int rank = gx_steps_rank_of(p, stage);
    int has = gx__steps_rank_of_unit(p, p->memory) == rank;
    for (int s = gx__steps_first_stage(p, p->memory + 1); s < stage; s++) has |= gx_steps_rank_of(p, s) == rank;
    return has;
}

int gx_steps_message(const GxStepsSpec *spec, int object, int unit, int stage, GxStepsMessage *message)
{
    const int is_x = object == GX_OBJECT_X, other = is_x ? unit - 1 : gx__steps_below(spec, unit);
    if ((!is_x && object != GX_OBJECT_DX) || unit < 1 || unit >= spec->units || other < 0) return 0;
    if (!is_x && (spec->kind == GX_STEPS_FORWARD || !gx_steps_has_backward(spec, unit))) return 0;
    const int first = gx__steps_first_stage(spec, unit);
    if (stage < first || stage > gx__steps_last_stage(spec, unit)) return 0;
    if (is_x && unit == gx_steps_behind_encoder(spec) && gx__steps_has_memory(spec, stage)) return 0;
    const int before = stage == first ? gx_steps_stage_of(spec, other) : stage - 1,
              rank = gx_steps_rank_of(spec, stage), other_rank = gx_steps_rank_of(spec, before);
    message->made_by = is_x ? before : stage;
    message->from = is_x ? other_rank : rank, message->to = is_x ? rank : other_rank;
    return rank != other_rank;
}

// ---- tensors that units share --------------------------------------------------------------------------------------

// The number of the tensor of unit 0's that a unit behind it has; 0: none.
static int gx__steps_shared(const GxStepsSpec *p, int unit)
{
    if (!p->is_tied || unit < 1) return 0;
    return p->shares ? p->shares[unit] : unit == p->units - 1 || unit == gx_steps_behind_encoder(p);
}

static int gx__steps_has_shared(const GxStepsSpec *p, int unit, int number) // unit 0 has all
{
    return unit == 0 ? p->is_tied : gx__steps_shared(p, unit) == number;
}

static int gx__steps_trains_shared(const GxStepsSpec *p, int number)
{
    return gx_steps_is_trained(p, 0) && !(p->frozen_shares >> number & 1);
}

int gx_steps_holder(const GxStepsSpec *spec, int rank, int number)
{
    for (int chunk = 0; chunk < gx_steps_stages(spec) / gx__steps_ranks(spec); chunk++) {
        const int stage = gx_steps_stage_at(spec, rank, chunk), end = gx_steps_end(spec, stage);
        for (int u = gx_steps_begin(spec, stage); u < end; u++)
            if (gx__steps_has_shared(spec, u, number)) return u;
    }
    return -1;
}

int gx_steps_held_by(const GxStepsSpec *p, int unit)
{
    const int number = gx__steps_shared(p, unit),
              holder = number ? gx_steps_holder(p, gx__steps_rank_of_unit(p, unit), number) : unit;
    return holder == unit ? -1 : holder;
}

int gx_steps_is_tied_here(const GxStepsSpec *spec)
{
    for (int u = 1; u < spec->units && spec->is_tied; u++)
        if (gx_steps_is_mine(spec, u) && gx_steps_held_by(spec, u) >= 0) return 1;
    return 0;
}

// The next rank in this direction that has the tensor; -1: none.
static int gx__steps_tied_rank(const GxStepsSpec *p, int number, int rank, int direction)
{
    for (rank += direction; rank >= 0 && rank < gx__steps_ranks(p); rank += direction)
        if (gx_steps_holder(p, rank, number) >= 0) return rank;
    return -1;
}

int gx_steps_ties(const GxStepsSpec *spec, int number, GxAction tie[GX_STEPS_TIES])
{
    const int holder = spec->is_tied ? gx_steps_holder(spec, spec->rank, number) : -1;
    if (holder < 0 || spec->kind == GX_STEPS_FORWARD || !gx__steps_trains_shared(spec, number)) return 0;
    const int before = gx__steps_tied_rank(spec, number, spec->rank, -1),
              behind = gx__steps_tied_rank(spec, number, spec->rank, 1),
              is_second = before >= 0 && gx__steps_tied_rank(spec, number, before, -1) < 0;
    const int peer[GX_STEPS_TIES] = {behind, before, is_second ? -1 : before, before < 0 ? -1 : behind};
    int n = 0;
    for (int i = 0; i < GX_STEPS_TIES; i++) {
        if (peer[i] < 0) continue;
        GxAction *a = &tie[n++];
        memset(a, 0, sizeof *a);
        a->what = GX_DO_TIE, a->unit = (int16_t)holder, a->peer = (int16_t)peer[i], a->count = (int16_t)number;
        a->half = i < 2 ? GX_TIE_ADDS : GX_TIE_TAKES;
        a->micro_batch = a->ticket = a->after = -1;
    }
    return n;
}

int gx_steps_is_tied_apart(const GxStepsSpec *spec, int unit)
{
    GxAction tie[GX_STEPS_TIES];
    for (int number = 1; number <= GX_STEPS_SHARED; number++)
        if (gx_steps_ties(spec, number, tie) && tie[0].unit == unit) return 1;
    return 0;
}

static int gx__steps_has_input(const GxStepsSpec *p, int unit)
{
    return unit > 0 && unit != gx_steps_behind_encoder(p);
}
static int gx__steps_is_layer(const GxStepsSpec *p, int unit)
{
    return unit < p->units - 1 && gx__steps_has_input(p, unit) && !(p->memory && unit == p->memory);
}
static int gx__steps_reads_memory(const GxStepsSpec *p, int unit)
{
    return p->memory && unit > p->memory && gx__steps_is_layer(p, unit);
}

static int gx__steps_is_message(const GxAction *a) { return a->what == GX_DO_SEND || a->what == GX_DO_RECV; }

// Of this rank's layers that read the memory, the lowest from unit `from` on, and the highest; -1: there is none.
static int gx__steps_lowest_reader(const GxStepsSpec *p, int from)
{
    int u = (int)gx_max(from, gx_steps_behind_encoder(p) + 1);
    while (u < p->units - 1 && !gx_steps_is_mine(p, u)) u++;
    return u < p->units - 1 ? u : -1;
}
static int gx__steps_highest_reader(const GxStepsSpec *p)
{
    int u = p->units - 2;
    while (u > gx_steps_behind_encoder(p) && !gx_steps_is_mine(p, u)) u--;
    return u > gx_steps_behind_encoder(p) ? u : -1;
}

// The last message by which this rank hands the memory on. Returns 0 if there is none.
static int gx__steps_last_handing(const GxStepsSpec *p, GxStepsMessage *message)
{
    for (int s = gx_steps_stages(p) - 1; s > 0; s--)
        if (gx_steps_message(p, GX_OBJECT_X, gx_steps_behind_encoder(p), s, message) && message->from == p->rank)
            return 1;
    return 0;
}

// 1: after this action nothing of its micro-batch reads the memory on this rank any more: its last backward that does,
// or, if there is none, what comes last in the forward, that of its highest layer or a message.
static int gx__steps_ends_memory(const GxStepsSpec *p, const GxAction *a)
{
    GxStepsMessage handed;
    const int is_send = a->what == GX_DO_SEND && a->object == GX_OBJECT_X && a->unit == gx_steps_behind_encoder(p);
    if (!p->memory || (!is_send && (gx__steps_is_message(a) || !gx__steps_reads_memory(p, a->unit)))) return 0;
    const int last = p->kind == GX_STEPS_TRAIN ? gx__steps_lowest_reader(p, gx_steps_lowest(p)) : -1;
    if (last >= 0) return a->what == GX_DO_BACKWARD && a->unit == last;
    const int highest = gx__steps_highest_reader(p);
    if (gx__steps_last_handing(p, &handed) && (highest < 0 || handed.made_by >= gx_steps_stage_of(p, highest)))
        return is_send && a->peer == handed.to;
    return a->what == GX_DO_FORWARD && a->unit == highest;
}

// Heads and embeddings never defer their weight gradients, and a frozen unit has none.
static int gx__steps_half(const GxStepsSpec *p, int unit)
{
    if (!p->defers_weights || !gx__steps_is_layer(p, unit) || !gx_steps_is_trained(p, unit)) return GX_HALF_NONE;
    return p->weight_reads_x ? GX_HALF_INPUT_X : GX_HALF_INPUT;
}

// 1: after this action a micro-batch has contributed to its unit's gradients: after B, or, if B has deferred them,
// after W.
static int gx__steps_completes(const GxAction *a)
{
    return a->what == GX_DO_WEIGHT || (a->what == GX_DO_BACKWARD && a->half == GX_HALF_NONE);
}

// Gradients that another rank adds to are scattered after it has, at the end of the window.
static int gx__steps_scatters_each(const GxStepsSpec *p, int unit)
{
    return p->scatters_each && !gx_steps_is_tied_apart(p, unit);
}

void gx_steps_close(GxSteps *s)
{
    free(s->memory);
    memset(s, 0, sizeof *s);
}

// ---- what actions are ----------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    int by_unit, by_micro_batch;
} GxDoInfo;

static const GxDoInfo gx__steps_do[GX_DOS] = {
    {"F", 1, 1},      {"R", 1, 1},     {"B", 1, 1},       {"W", 1, 1},      {"SEND", 1, 1}, {"RECV", 1, 1},
    {"GATHER", 1, 0}, {"FREE", 1, 0},  {"SCATTER", 1, 0}, {"REDUCE", 1, 0}, {"TIE", 1, 0},  {"SPILL", 1, 1},
    {"FETCH", 1, 1},  {"COUNT", 0, 0}, {"NORM", 1, 0},    {"AGREE", 0, 0},  {"STEP", 1, 0}, {"WAIT", 0, 0},
};

const char *gx_object_name(int object)
{
    static const char *const names[GX_OBJECTS] = {"nothing",
                                                  "x",
                                                  "dx",
                                                  "slot",
                                                  "token",
                                                  "gradients",
                                                  "shard",
                                                  "moments",
                                                  "deferred weight half",
                                                  "weights",
                                                  "sums of squares",
                                                  "counts",
                                                  "clip coefficient",
                                                  "named object",
                                                  "copy on the host"};
    return (unsigned)object < GX_OBJECTS ? names[object] : "?";
}

// ---- the table of effects ------------------------------------------------------------------------------------------
// Which rows of it apply to an action depends on the unit and on the action's fields: all conditions must hold.

enum {
    GX__STEPS_IF_X = 1,         // the unit has an input: it is not the embedding
    GX__STEPS_IF_Y = 2,         // the unit has an output: it is not the head
    GX__STEPS_IF_HEAD = 4,      // it has none
    GX__STEPS_IF_SLOT_GOES = 8, // F keeps nothing, or only its input
    GX__STEPS_IF_KEEPS_NOTHING = 16,
    GX__STEPS_IF_WHOLE = 32,    // B with its weight gradients
    GX__STEPS_IF_HALF = 64,     // B without them
    GX__STEPS_IF_X_STAYS = 128, // W reads x
    GX__STEPS_IF_X_GOES = 256,
    GX__STEPS_IF_ABOVE = 512, // something below the unit is trained
    GX__STEPS_IF_TRAINED = 1024,
    GX__STEPS_IF_TIED = 2048, // the unit has a tensor that another unit of this rank holds
    GX__STEPS_IF_LORA = 4096,
    GX__STEPS_IF_READS = 8192,         // the backward reads weights: in every unit but some embeddings
    GX__STEPS_IF_TIED_WEIGHTS = 16384, // the unit reads that unit's weights
    GX__STEPS_IF_SHARDED = 32768,
    GX__STEPS_IF_WHOLE_GRADS = 65536,   // not sharded
    GX__STEPS_IF_STALE = 131072,        // sharded, but whole weights are kept: a step makes them stale
    GX__STEPS_IF_MEMORY = 262144,       // the unit reads an encoder's output
    GX__STEPS_IF_MEMORY_BACK = 524288,  // and something in the encoder is trained
    GX__STEPS_IF_MEMORY_GOES = 1048576, // and this is the last action that reads it
    GX__STEPS_IF_SENT_GOES = 2097152    // what is sent is not needed here any more
};
typedef enum {
    GX__STEPS_HERE = 0,
    GX__STEPS_ABOVE,
    GX__STEPS_ABOVE_BACK, // the next one above that has a backward
    GX__STEPS_BUCKET,
    GX__STEPS_HOLDER, // of the tensor that the unit shares
    GX__STEPS_BEHIND_ENCODER,
    GX__STEPS_ALL_UNITS,
    GX__STEPS_WINDOW
} GxEffectPlace;
typedef struct {
    int16_t what, verb, object, place; // GxDo, GxVerb, GxObject, GxEffectPlace
    int when;                          // GX__STEPS_IF_...
} GxEffectRow;

// clang-format off
static const GxEffectRow gx__steps_effects[] = {
    // F: weights (of a head that shares its matrix the embedding's first), x(u) -> x(u+1), slot. A slot that is not
    // kept is scratch: it ends with the action.
    {GX_DO_FORWARD,   GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_HOLDER,     GX__STEPS_IF_TIED_WEIGHTS},
    {GX_DO_FORWARD,   GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     0},
    {GX_DO_FORWARD,   GX_USES,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X},
    {GX_DO_FORWARD,   GX_USES,    GX_OBJECT_X,       GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY},
    {GX_DO_FORWARD,   GX_MAKES,   GX_OBJECT_X,       GX__STEPS_ABOVE,      GX__STEPS_IF_Y},
    {GX_DO_FORWARD,   GX_MAKES,   GX_OBJECT_SLOT,    GX__STEPS_HERE,       0},
    {GX_DO_FORWARD,   GX_ENDS,    GX_OBJECT_SLOT,    GX__STEPS_HERE,       GX__STEPS_IF_SLOT_GOES},
    {GX_DO_FORWARD,   GX_ENDS,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X | GX__STEPS_IF_KEEPS_NOTHING},
    {GX_DO_FORWARD,   GX_ENDS,    GX_OBJECT_X,       GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY_GOES},
    // R: weights, x(u) -> slot
    {GX_DO_RECOMPUTE, GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     0},
    {GX_DO_RECOMPUTE, GX_USES,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X},
    {GX_DO_RECOMPUTE, GX_USES,    GX_OBJECT_X,       GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY},
    {GX_DO_RECOMPUTE, GX_MAKES,   GX_OBJECT_SLOT,    GX__STEPS_HERE,       0},
    // B: weights, slot, x(u), dx(u+1) -> dx(u), gradients; if weight gradients are deferred, only those that are not of
    // matrices. A head computes its loss and its gradient in one action.
    {GX_DO_RECOMPUTE, GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_HOLDER,     GX__STEPS_IF_TIED_WEIGHTS},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_HOLDER,     GX__STEPS_IF_TIED_WEIGHTS},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     GX__STEPS_IF_READS},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_COUNTS,  GX__STEPS_WINDOW,     GX__STEPS_IF_HEAD},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_SLOT,    GX__STEPS_HERE,       GX__STEPS_IF_Y},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_X,       GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY},
    {GX_DO_BACKWARD,  GX_USES,    GX_OBJECT_DX,      GX__STEPS_ABOVE_BACK, GX__STEPS_IF_Y},
    {GX_DO_BACKWARD,  GX_ADDS,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     GX__STEPS_IF_TRAINED},
    {GX_DO_BACKWARD,  GX_ADDS,    GX_OBJECT_GRADS,   GX__STEPS_HOLDER,     GX__STEPS_IF_TIED},
    {GX_DO_BACKWARD,  GX_ADDS,    GX_OBJECT_DX,      GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY_BACK},
    {GX_DO_BACKWARD,  GX_MAKES,   GX_OBJECT_SLOT,    GX__STEPS_HERE,       GX__STEPS_IF_HEAD},
    {GX_DO_BACKWARD,  GX_MAKES,   GX_OBJECT_DX,      GX__STEPS_HERE,       GX__STEPS_IF_ABOVE},
    {GX_DO_BACKWARD,  GX_MAKES,   GX_OBJECT_DEFERRED, GX__STEPS_HERE,       GX__STEPS_IF_HALF},
    {GX_DO_BACKWARD,  GX_ENDS,    GX_OBJECT_SLOT,    GX__STEPS_HERE,       GX__STEPS_IF_WHOLE},
    {GX_DO_BACKWARD,  GX_ENDS,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X | GX__STEPS_IF_X_GOES},
    {GX_DO_BACKWARD,  GX_ENDS,    GX_OBJECT_X,       GX__STEPS_BEHIND_ENCODER, GX__STEPS_IF_MEMORY_GOES},
    {GX_DO_BACKWARD,  GX_ENDS,    GX_OBJECT_DX,      GX__STEPS_ABOVE_BACK, GX__STEPS_IF_Y},
    // W: slot (and x) -> gradients of matrices. The only weights that it reads are LoRA's: A's gradient needs B, B's
    // needs A.
    {GX_DO_WEIGHT,    GX_USES,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     GX__STEPS_IF_LORA},
    {GX_DO_WEIGHT,    GX_USES,    GX_OBJECT_DEFERRED, GX__STEPS_HERE,       0},
    {GX_DO_WEIGHT,    GX_USES,    GX_OBJECT_SLOT,    GX__STEPS_HERE,       0},
    {GX_DO_WEIGHT,    GX_USES,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X | GX__STEPS_IF_X_STAYS},
    {GX_DO_WEIGHT,    GX_ADDS,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     GX__STEPS_IF_TRAINED},
    {GX_DO_WEIGHT,    GX_ENDS,    GX_OBJECT_DEFERRED, GX__STEPS_HERE,       0},
    {GX_DO_WEIGHT,    GX_ENDS,    GX_OBJECT_SLOT,    GX__STEPS_HERE,       0},
    {GX_DO_WEIGHT,    GX_ENDS,    GX_OBJECT_X,       GX__STEPS_HERE,       GX__STEPS_IF_X | GX__STEPS_IF_X_STAYS},
    // between stages: by the unit whose input it is
    {GX_DO_SEND,      GX_USES,    GX_OBJECT_NAMED,   GX__STEPS_HERE,       0},
    {GX_DO_SEND,      GX_ENDS,    GX_OBJECT_NAMED,   GX__STEPS_HERE,       GX__STEPS_IF_SENT_GOES},
    {GX_DO_RECV,      GX_MAKES,   GX_OBJECT_NAMED,   GX__STEPS_HERE,       0},
    // shards: those of weights always exist. A step changes them; whole weights that are kept are then stale.
    {GX_DO_GATHER,    GX_MAKES,   GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     0},
    {GX_DO_FREE,      GX_ENDS,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     0},
    {GX_DO_SCATTER,   GX_USES,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     0},
    {GX_DO_SCATTER,   GX_ADDS,    GX_OBJECT_SHARD,   GX__STEPS_BUCKET,     0},
    {GX_DO_SCATTER,   GX_ENDS,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     0},
    {GX_DO_REDUCE,    GX_CHANGES, GX_OBJECT_NAMED,   GX__STEPS_BUCKET,     0},
    {GX_DO_TIE,       GX_CHANGES, GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     0},
    // offload
    {GX_DO_SPILL,     GX_USES,    GX_OBJECT_NAMED,   GX__STEPS_HERE,       0},
    {GX_DO_SPILL,     GX_MAKES,   GX_OBJECT_COPY,    GX__STEPS_HERE,       0},
    {GX_DO_SPILL,     GX_ENDS,    GX_OBJECT_NAMED,   GX__STEPS_HERE,       0},
    {GX_DO_FETCH,     GX_USES,    GX_OBJECT_COPY,    GX__STEPS_HERE,       0},
    {GX_DO_FETCH,     GX_MAKES,   GX_OBJECT_NAMED,   GX__STEPS_HERE,       0},
    {GX_DO_FETCH,     GX_ENDS,    GX_OBJECT_COPY,    GX__STEPS_HERE,       0},
    // the window
    {GX_DO_COUNT,     GX_MAKES,   GX_OBJECT_COUNTS,  GX__STEPS_WINDOW,     0},
    {GX_DO_NORM,      GX_USES,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     GX__STEPS_IF_WHOLE_GRADS},
    {GX_DO_NORM,      GX_USES,    GX_OBJECT_SHARD,   GX__STEPS_BUCKET,     GX__STEPS_IF_SHARDED},
    {GX_DO_NORM,      GX_MAKES,   GX_OBJECT_SUMS,    GX__STEPS_BUCKET,     0},
    {GX_DO_AGREE,     GX_USES,    GX_OBJECT_SUMS,    GX__STEPS_ALL_UNITS,  0},
    {GX_DO_AGREE,     GX_MAKES,   GX_OBJECT_CLIP,    GX__STEPS_WINDOW,     0},
    {GX_DO_STEP,      GX_USES,    GX_OBJECT_CLIP,    GX__STEPS_WINDOW,     0},
    {GX_DO_STEP,      GX_CHANGES, GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     GX__STEPS_IF_WHOLE_GRADS},
    {GX_DO_STEP,      GX_USES,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     GX__STEPS_IF_WHOLE_GRADS},
    {GX_DO_STEP,      GX_USES,    GX_OBJECT_SHARD,   GX__STEPS_BUCKET,     GX__STEPS_IF_SHARDED},
    {GX_DO_STEP,      GX_ENDS,    GX_OBJECT_WEIGHTS, GX__STEPS_BUCKET,     GX__STEPS_IF_STALE},
    {GX_DO_STEP,      GX_ENDS,    GX_OBJECT_GRADS,   GX__STEPS_BUCKET,     GX__STEPS_IF_WHOLE_GRADS},
    {GX_DO_STEP,      GX_ENDS,    GX_OBJECT_SHARD,   GX__STEPS_BUCKET,     GX__STEPS_IF_SHARDED},
};
// clang-format on

static int gx__steps_conditions(const GxStepsSpec *spec, const GxAction *a)
{
    const int u = a->unit, head = spec->units - 1;
    int when = 0;
    if (u < 0 || u > head) return when; // of the window
    const int is_tied = gx_steps_held_by(spec, u) >= 0,
              is_memory = u == gx_steps_behind_encoder(spec) && a->object == GX_OBJECT_X; // of a message
    when |= gx__steps_has_input(spec, u) ? GX__STEPS_IF_X : 0;
    when |= u < head ? GX__STEPS_IF_Y : GX__STEPS_IF_HEAD;
    when |= a->keep != GX_KEEP_SLOT ? GX__STEPS_IF_SLOT_GOES : 0;
    when |= a->keep == GX_KEEP_NOTHING ? GX__STEPS_IF_KEEPS_NOTHING : 0;
    when |= a->half == GX_HALF_NONE ? GX__STEPS_IF_WHOLE : GX__STEPS_IF_HALF;
    when |= a->half == GX_HALF_INPUT_X ? GX__STEPS_IF_X_STAYS : GX__STEPS_IF_X_GOES;
    when |= u > gx_steps_lowest(spec) && gx__steps_has_input(spec, u) ? GX__STEPS_IF_ABOVE : 0;
    when |= gx_steps_is_trained(spec, u) ? GX__STEPS_IF_TRAINED : 0;
    when |= is_tied && gx__steps_trains_shared(spec, gx__steps_shared(spec, u)) ? GX__STEPS_IF_TIED : 0;
    when |= gx__steps_reads_memory(spec, u) ? GX__STEPS_IF_MEMORY : 0;
    when |= gx__steps_reads_memory(spec, u) && gx_steps_has_backward(spec, spec->memory) ? GX__STEPS_IF_MEMORY_BACK : 0;
    when |= gx__steps_ends_memory(spec, a) ? GX__STEPS_IF_MEMORY_GOES : 0;
    when |= !is_memory || gx__steps_ends_memory(spec, a) ? GX__STEPS_IF_SENT_GOES : 0;
    when |= spec->has_lora ? GX__STEPS_IF_LORA : 0;
    when |= u > 0 || spec->embedding_reads ? GX__STEPS_IF_READS : 0;
    when |= is_tied ? GX__STEPS_IF_TIED_WEIGHTS : 0;
    when |= spec->sharded ? GX__STEPS_IF_SHARDED : GX__STEPS_IF_WHOLE_GRADS;
    when |= spec->sharded == 1 || spec->sharded == 2 ? GX__STEPS_IF_STALE : 0;
    return when;
}

static GxEffect gx__steps_effect(const GxStepsSpec *spec, const GxAction *a, const GxEffectRow *row)
{
    GxEffect e = {row->verb, row->object == GX_OBJECT_NAMED ? a->object : row->object, a->unit, 1, -1};
    switch (row->place) {
    case GX__STEPS_HERE: e.micro_batch = a->micro_batch; break;
    case GX__STEPS_ABOVE: e.unit = a->unit + 1, e.micro_batch = a->micro_batch; break;
    case GX__STEPS_ABOVE_BACK: e.unit = gx_steps_above(spec, a->unit), e.micro_batch = a->micro_batch; break;
    case GX__STEPS_BUCKET: e.count = a->what == GX_DO_REDUCE ? a->count : 1; break;
    case GX__STEPS_HOLDER: e.unit = gx_steps_held_by(spec, a->unit); break;
    case GX__STEPS_BEHIND_ENCODER: e.unit = gx_steps_behind_encoder(spec), e.micro_batch = a->micro_batch; break;
    case GX__STEPS_ALL_UNITS: e.unit = 0, e.count = spec->units; break;
    default: e.unit = -1; break;
    }
    return e;
}

int gx_action_effects(const GxStepsSpec *spec, const GxAction *a, GxEffect effect[GX_EFFECTS])
{
    const int when = gx__steps_conditions(spec, a);
    int n = 0;
    for (unsigned i = 0; i < sizeof gx__steps_effects / sizeof *gx__steps_effects; i++) {
        const GxEffectRow *row = &gx__steps_effects[i];
        if (row->what == a->what && !(row->when & ~when)) effect[n++] = gx__steps_effect(spec, a, row);
    }
    return n;
}

// ---- text ----------------------------------------------------------------------------------------------------------

static int gx__steps_word(const GxAction *a, int with_micro_batch, char *text, size_t size)
{
    const int known = (unsigned)a->what < GX_DOS, is_half = a->what == GX_DO_BACKWARD && a->half != GX_HALF_NONE;
    const GxDoInfo none = {"?", 1, 1}, *info = known ? &gx__steps_do[a->what] : &none;
    const int names_object = a->object && !(a->what == GX_DO_REDUCE && a->object == GX_OBJECT_GRADS);
    char object[40] = "", unit[16] = "", bucket[16] = "", micro_batch[16] = "", ticket[16] = "", peer[16] = "";
    if (names_object) snprintf(object, sizeof object, ":%s:", gx_object_name(a->object));
    if (info->by_unit) snprintf(unit, sizeof unit, "%d", a->unit);
    if (a->what == GX_DO_REDUCE && a->count > 1) snprintf(bucket, sizeof bucket, "-%d", a->unit + a->count - 1);
    if (info->by_micro_batch && with_micro_batch) snprintf(micro_batch, sizeof micro_batch, ".%d", a->micro_batch);
    if (a->ticket >= 0) snprintf(ticket, sizeof ticket, a->what == GX_DO_WAIT ? "%d" : "~%d", a->ticket);
    if (gx__steps_is_message(a)) snprintf(peer, sizeof peer, "%c%d", a->what == GX_DO_SEND ? '>' : '<', a->peer);
    if (a->what == GX_DO_TIE) snprintf(peer, sizeof peer, "%s%d", a->half == GX_TIE_ADDS ? "<>" : "=", a->peer);
    return snprintf(text, size, "%s%s%s%s%s%s%s", is_half ? "b" : info->name, object, unit, bucket, micro_batch, peer,
                    ticket);
}

const char *gx_action_name(const GxAction *a, char text[48])
{
    int n = gx__steps_word(a, 0, text, 48);
    if (n < 48 && (unsigned)a->what < GX_DOS && gx__steps_do[a->what].by_micro_batch)
        snprintf(text + n, (size_t)(48 - n), " of micro-batch %d", a->micro_batch);
    return text;
}

int gx_steps_run(const GxSteps *s, int i)
{
    const GxAction *a = s->action + i;
    int n = 1;
    while ((a->what == GX_DO_NORM || a->what == GX_DO_STEP) && i + n < s->n && a[n].what == a->what &&
           a[n].unit == a->unit + n && a[n].ticket < 0)
        n++;
    return n;
}

const char *gx_steps_word(const GxSteps *s, int i, char text[64])
{
    const int run = gx_steps_run(s, i), n = gx__steps_word(&s->action[i], s->spec.micro_batches > 1, text, 64);
    if (run > 1 && n < 64) snprintf(text + n, (size_t)(64 - n), "-%d", s->action[i + run - 1].unit);
    return text;
}

int gx_steps_print(const GxSteps *s, char *text, size_t size)
{
    size_t at = 0;
    if (size) text[0] = 0;
    for (int i = 0, run; i < s->n; i += run) {
        char word[64];
        run = gx_steps_run(s, i);
        const int n = snprintf(at < size ? text + at : NULL, at < size ? size - at : 0, "%s%s", i ? " " : "",
                               gx_steps_word(s, i, word));
        at += (size_t)n;
    }
    return (int)at;
}
#endif
