// steps.h: a training step as a list of actions, one list per rank, at the grain of a unit.
//
// Units are the embedding (0), the layers (1 to L) and the head (L + 1). Two layers, one micro-batch:
//
//     COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3
//
// F is a unit's forward, B its backward; a head in training has B alone, which computes its loss, too. How a step is
// composed is decided where lists are made (steps_make.h): micro-batches, recomputation, frozen units, weight halves
// put off, sums of gradients. A list is checked before it runs (steps_check.h), its rows get their places in memory
// (steps_place.h), and one small interpreter runs it. Nothing in a list depends on data: whether a step is skipped, the
// clip coefficient and the number of labels lie in the device's memory.
//
//     GxStepsSpec spec = GX_ZERO;
//     spec.units = layers + 2, spec.micro_batches = 4;
//     GxSteps s = GX_ZERO;
//     GX_TRY(gx_steps_make(&s, &spec, err));         // the list
//     GX_TRY(gx_steps_check(&s, err));               // every action finds what it uses, at the end all is as before
//     GX_TRY(gx_steps_place(&s, &bytes, err));       // s.bytes of the arena, an offset for each of its rows
//     for (int i = 0; i < s.n; i++) {                // s.action[i] on the rows of s.operands[i]: gx_steps_at
//         ...
//     }
//     gx_steps_close(&s);
//
// What it does not do yet: lists of pipeline stages, of sharded weights and of offloaded rows. Their actions are in the
// structure and in the table of effects, and are refused by name.
//
// Memory: one block of the host per list, taken when it is made.
#ifndef GX_STEPS_H
#define GX_STEPS_H
#include "../base/status.h"
GX_BEGIN

// ---- actions -------------------------------------------------------------------------------------------------------

typedef enum {
    GX_DO_FORWARD = 0, // F
    GX_DO_RECOMPUTE,   // R: forward again, for the slot alone
    GX_DO_BACKWARD,    // B
    GX_DO_WEIGHT,      // W: the weight halves that B put off
    GX_DO_SEND,
    GX_DO_RECV,
    GX_DO_GATHER, // whole weights from the shards
    GX_DO_FREE,
    GX_DO_SCATTER, // whole gradients into shards
    GX_DO_REDUCE,  // gradients summed in place
    GX_DO_SPILL,   // device -> host
    GX_DO_FETCH,   // host -> device
    GX_DO_COUNT,   // labels of the window, and the stop flag: what all ranks agree on before the first head
    GX_DO_NORM,    // sums of squares of a unit's gradients
    GX_DO_AGREE,   // the sums and the loss of all ranks: norm, clip coefficient, skip
    GX_DO_STEP,    // the optimizer, on a unit
    GX_DO_WAIT,
    GX_DOS
} GxDo;

// What actions use, make and end. The first seven are also what `object` of an action names.
typedef enum {
    GX_OBJECT_NONE = 0,
    GX_OBJECT_X,       // rows of (unit, micro-batch): the unit's input; what its forward writes is the next unit's
    GX_OBJECT_DX,      // rows of (unit, micro-batch): the gradient of that input
    GX_OBJECT_SLOT,    // of (unit, micro-batch): what the backward needs of the forward
    GX_OBJECT_TOKEN,   // of (unit, micro-batch): no rows, just that it happened
    GX_OBJECT_GRADS,   // of a unit: whole
    GX_OBJECT_SHARD,   // of a unit: this rank's part of its gradients
    GX_OBJECT_MOMENTS, // of a unit
    GX_OBJECT_PUT_OFF, // of (unit, micro-batch): what an input half left in the slot for W
    GX_OBJECT_WEIGHTS, // of a unit: whole
    GX_OBJECT_SUMS,    // of a unit: the sums of squares of its gradients, by blocks
    GX_OBJECT_COUNTS,  // of the window
    GX_OBJECT_CLIP,    // of the window: norm, clip coefficient, skip
    GX_OBJECT_NAMED,   // in the table of effects: what the action's `object` names
    GX_OBJECT_COPY,    // in the table of effects: its copy on the host
    GX_OBJECTS
} GxObject;

typedef enum {
    GX_KEEP_NOTHING = 0, // F ends its input; the slot is scratch
    GX_KEEP_INPUT,       // the slot is scratch; R makes one before B
    GX_KEEP_SLOT
} GxKeep;
typedef enum {
    GX_HALF_NONE = 0, // B is whole
    GX_HALF_INPUT,    // B without gradients of weights, which W computes from the slot
    GX_HALF_INPUT_X   // the same where W reads x, too: x stays until then
} GxHalf;
typedef enum { GX_AT_DEVICE = 0, GX_AT_HOST } GxAt;

typedef struct {
    int16_t unit, micro_batch; // -1: none
    int16_t peer;              // SEND, RECV: the other rank
    int16_t count;             // REDUCE: how many neighbouring units from `unit` on (a bucket)
    int8_t what;               // GxDo
    int8_t object;             // GxObject, of SEND, RECV, REDUCE, SPILL, FETCH
    int8_t axes;               // of the mesh, where ranks talk
    int8_t keep;               // GxKeep, of F
    int8_t half;               // GxHalf, of B, and of the W that goes with it
    int8_t at;                 // GxAt, of STEP
    int8_t ticket, after;      // -1: blocking, nothing. after: a ticket for which this action's stream waits
    int16_t made[3];           // buffers of what it makes, by gx_steps_place: y or dx, the slot; -1: none
    int16_t spare;             // 0
} GxAction;
typedef char GxActionHas24Bytes[sizeof(GxAction) == 24 ? 1 : -1];

// ---- lists ---------------------------------------------------------------------------------------------------------

typedef enum { GX_STEPS_TRAIN = 0, GX_STEPS_FORWARD } GxStepsKind; // forward: evaluation, generation
typedef enum {
    GX_ORDER_1F1B = 0, // F, B of one micro-batch after the other
    GX_ORDER_GPIPE     // all forwards, then all backwards
} GxStepsOrder;

// What a list is made from; zeros are the serial step of one rank.
typedef struct {
    int units;       // of the model, L + 2: unit 0 is the embedding, the last one the head
    int first, last; // this rank's units [first, last); last 0: all
    int kind;        // GxStepsKind
    int micro_batches;
    int order;             // GxStepsOrder
    int recomputes_layers; // the layers keep their inputs, and are computed again before their backwards
    int puts_off_weights;  // weight halves of layers come at the end of the window
    int weight_reads_x;    // they read the unit's input (norms behind the cores)
    int is_tied;           // head and embedding share a tensor, whose gradient is in unit 0's
    const uint8_t *frozen; // [units]: 1: nothing of the unit is trained. NULL: all units are trained
    int count_axes;        // COUNT's
    int reduce_axes;       // over which gradients are summed; 0: they are not
    int agree_axes;        // AGREE's
    int bucket;            // units whose gradients are summed in one REDUCE; 0: all
} GxStepsSpec;

typedef struct {
    int64_t offset, bytes; // in the region of the arena that is the list's
} GxBuffer;

// The buffers of an action's rows, numbers of GxSteps.buffer; -1: it has none. y of F is x of the next unit, dy of B
// its dx. dx may be dy's buffer: the backward then turns the one into the other in place.
typedef struct {
    int16_t x, y, dx, dy, slot;
} GxOperands;

typedef struct {
    GxAction *action;
    int n;            // actions
    int tickets;      // that are open at once, at most
    GxStepsSpec spec; // last is set; frozen is a copy

    GxOperands *operands; // [n], by gx_steps_place
    GxBuffer *buffer;     // [n_buffers]
    int n_buffers;
    int64_t bytes; // of the region
    int64_t most;  // bytes of what is alive at the worst moment: no placement needs less
    void *memory;
} GxSteps;

void gx_steps_close(GxSteps *s); // also of one that is all zeros

// The rows' address; base: the list's region. NULL: the action has no such rows.
static inline void *gx_steps_at(const GxSteps *s, void *base, int buffer)
{
    return buffer < 0 ? NULL : (char *)base + s->buffer[buffer].offset;
}

// The lowest unit of which something is trained; spec->units: none. Below it there is no backward.
int gx_steps_lowest(const GxStepsSpec *spec);
int gx_steps_is_trained(const GxStepsSpec *spec, int unit);

// ---- effects -------------------------------------------------------------------------------------------------------

typedef enum {
    GX_USES = 0, // must be there
    GX_ADDS,     // a contribution to gradients: written if absent, else added to
    GX_CHANGES,  // must be there; nobody else may touch it meanwhile
    GX_MAKES,    // must not be there
    GX_ENDS      // must be there; is not afterwards
} GxVerb;
typedef struct {
    int verb, object;
    int unit, count; // units [unit, unit + count); -1, 1: not of a unit
    int micro_batch; // -1: not of a micro-batch
} GxEffect;
enum { GX_EFFECTS = 16 };

// What an action does, in the order in which it does: uses, adds and changes, makes, ends. Returns how many.
int gx_action_effects(const GxStepsSpec *spec, const GxAction *a, GxEffect effect[GX_EFFECTS]);

// ---- text ----------------------------------------------------------------------------------------------------------

const char *gx_object_name(int object); // "x", "slot", "gradients"
// "B3 of micro-batch 1", "REDUCE0-3"; an input half is "b3". Cut where it does not fit.
const char *gx_action_name(const GxAction *a, char text[48]);

// The whole list in one line: "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3"; of several micro-batches "F0.1" is
// unit 0's of micro-batch 1. Neighbouring NORMs and STEPs are written together. Returns the length of the whole text,
// as snprintf does.
int gx_steps_print(const GxSteps *s, char *text, size_t size);

GX_END
#endif
