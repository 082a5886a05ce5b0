// test/toy_steps.h: what a list of actions computes, apart from the library: a toy model in integers, whose plain loops
// stand beside an interpreter of lists that knows by itself what each action reads, writes and gives up. Sums of
// integers do not depend on their order, so two lists are equivalent exactly when the weights after them are the same.
#ifndef TEST_TOY_STEPS_H
#define TEST_TOY_STEPS_H
#include "../galaxy/parallel/steps_check.h"
#include "test.h"

enum { UNITS = 24, MICRO_BATCHES = 8, ACTIONS = 4096, RANKS_PER_AXIS = 3 };

static uint64_t random_state = 1;
static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
static int random_below(int n) { return (int)(random_next() >> 33) % n; }

// ---- the toy model -------------------------------------------------------------------------------------------------

static uint64_t mix(uint64_t what, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = what * 0x9e3779b97f4a7c15u + 1;
    h = (h ^ a) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 31) ^ b) * 0xc4ceb9fe1a85ec53u;
    h = (h ^ (h >> 29) ^ c) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

static uint64_t initial_weight(int u) { return mix(1, (uint64_t)u, 0, 0); }
static uint64_t forward(int u, uint64_t w, uint64_t x, int mb) { return mix(2, w, x, (uint64_t)(u ? 0 : mb)); }
static uint64_t saved(uint64_t w, uint64_t x) { return mix(3, w, x, 0); }
static uint64_t head_weight(uint64_t w, uint64_t table, int tied) { return tied ? mix(4, w, table, 0) : w; }
static uint64_t head_loss(uint64_t w, uint64_t x, uint64_t counts) { return mix(5, w, x, counts); }
static uint64_t head_dx(uint64_t w, uint64_t x, uint64_t counts) { return mix(6, w, x, counts); }
static uint64_t head_grad(uint64_t w, uint64_t x, uint64_t counts) { return mix(7, w, x, counts); }
static uint64_t tied_grad(uint64_t w, uint64_t x, uint64_t counts) { return mix(8, w, x, counts); }
static uint64_t backward(uint64_t w, uint64_t slot, uint64_t x, uint64_t dy)
{
    return mix(9, mix(9, w, slot, x), dy, 0);
}
// Of matrices, and of what is none. w: weights, where they are read, else 0.
static uint64_t unit_grad(uint64_t w, uint64_t slot, uint64_t x, uint64_t dy)
{
    return mix(10, mix(9, w, slot, x), dy, 0);
}
static uint64_t small_grad(uint64_t w, uint64_t slot, uint64_t x, uint64_t dy)
{
    return mix(13, mix(9, w, slot, x), dy, 0);
}
// Of a decoder's layer: what it reads, with the memory; and its share of the memory's gradient.
static uint64_t with_memory(uint64_t x, uint64_t memory) { return mix(14, x, memory, 0); }
static uint64_t memory_dx(uint64_t slot, uint64_t dy) { return mix(15, slot, dy, 0); }
static uint64_t norm_of(uint64_t grads) { return mix(11, grads, 0, 0); }
static uint64_t stepped(uint64_t w, uint64_t grads, uint64_t clip) { return mix(12, w, grads, clip); }
static uint64_t reduced(uint64_t grads, int axes)
{
    for (int bit = 1; bit < 128; bit <<= 1) grads *= axes & bit ? RANKS_PER_AXIS : 1;
    return grads;
}

// What a backward, and in it the gradients of matrices, read weights for.
static int small_reads(const GxStepsSpec *p, int u) { return u > 0 || p->embedding_reads; }
static int unit_reads(const GxStepsSpec *p, int u) { return u > 0 ? p->has_lora : p->embedding_reads; }
static int is_frozen(const GxStepsSpec *p, int u) { return p->frozen && p->frozen[u]; }
// Of a model with an encoder: the decoder's embedding, which has no input, and the layers behind it.
static int behind(const GxStepsSpec *p) { return p->memory ? p->memory + 1 : -1; }
static int has_input(const GxStepsSpec *p, int u) { return u > 0 && u != behind(p); }
static int reads_memory(const GxStepsSpec *p, int u) { return p->memory && u > behind(p) && u < p->units - 1; }
static int trains_below(const GxStepsSpec *p, int u) // something below unit u
{
    int trains = 0;
    for (int below = 0; below < u; below++) trains |= !is_frozen(p, below);
    return trains;
}
// Where a unit is in a pipeline: stages go round the ranks, or (zbv) down and up again.
static int is_mine(const GxStepsSpec *p, int u)
{
    int s = 0;
    if (!p->stage || p->ranks < 2) return 1;
    while (u >= p->stage[s + 1]) s++;
    if (s >= p->ranks) s = p->order == GX_ORDER_ZBV ? 2 * p->ranks - 1 - s : s - p->ranks;
    return s == p->rank;
}
static int shares(const GxStepsSpec *p, int u) // a tensor of unit 0's
{
    return p->is_tied && (p->shares ? p->shares[u] : u == p->units - 1 || u == behind(p));
}
// Where the rank has no unit 0: the unit that has a copy of that tensor, the lowest of those that share it; -1: none.
static int holds_copy(const GxStepsSpec *p)
{
    for (int u = 1; u < p->units && !is_mine(p, 0); u++)
        if (is_mine(p, u) && shares(p, u)) return u;
    return -1;
}
static int is_bypassed(const GxStepsSpec *p, int u) { return p->bypassed && p->bypassed[u]; }
static int above(const GxStepsSpec *p, int u) // whose input's gradient is that of u's output
{
    for (u++; is_bypassed(p, u); u++) {}
    return u;
}

// A step in plain loops: weights afterwards; of forward lists the sum of what the head makes.
static uint64_t plain_step(const GxStepsSpec *p, uint64_t *w)
{
    const int head = p->units - 1, tied = shares(p, head);
    uint64_t grads[UNITS] = {0}, loss = 0, clip = 0;
    for (int i = 0; i < p->micro_batches; i++) {
        uint64_t x[UNITS + 1] = {0}, read[UNITS] = {0}, of_memory = 0; // read: x, with the memory
        const uint64_t *memory = &x[gx_max(behind(p), 0)];
        for (int u = 0; u < head; u++) {
            if (has_input(p, u)) read[u] = reads_memory(p, u) ? with_memory(x[u], *memory) : x[u];
            x[u + 1] = forward(u, u && shares(p, u) ? head_weight(w[u], w[0], 1) : w[u], read[u], i);
        }
        const uint64_t wh = head_weight(w[head], w[0], tied);
        if (p->kind == GX_STEPS_FORWARD) {
            loss += forward(head, wh, x[head], i);
            continue;
        }
        uint64_t dy = head_dx(wh, x[head], 77);
        loss += head_loss(wh, x[head], 77);
        grads[head] += head_grad(wh, x[head], 77);
        if (tied) grads[0] += tied_grad(wh, x[head], 77);
        for (int u = head - 1; u >= 0; u--) {
            if (is_bypassed(p, u)) continue;
            const uint64_t own = u && shares(p, u) ? head_weight(w[u], w[0], 1) : w[u], slot = saved(own, read[u]),
                           in = has_input(p, u) ? x[u] : 0, also = reads_memory(p, u) ? *memory : 0;
            if (u == p->memory && p->memory) dy = of_memory;
            if (reads_memory(p, u)) of_memory += memory_dx(slot, dy);
            if (u && shares(p, u)) grads[0] += tied_grad(small_reads(p, u) ? own : 0, slot, dy);
            grads[u] += unit_grad(unit_reads(p, u) ? w[u] : 0, slot, (p->weight_reads_x ? in : 0) + also, dy);
            grads[u] += small_grad(small_reads(p, u) ? own : 0, slot, in, dy);
            dy = backward(own, slot, in, dy);
        }
    }
    if (p->kind == GX_STEPS_FORWARD) return loss;
    for (int u = 0; u < p->units; u++) {
        grads[u] = reduced(reduced(grads[u], p->sharded ? p->shard_axes : 0), p->reduce_axes);
        if (!is_frozen(p, u)) clip += norm_of(grads[u]) * (uint64_t)(u + 1);
    }
    clip += loss;
    for (int u = 0; u < p->units; u++)
        if (!is_frozen(p, u)) w[u] = stepped(w[u], grads[u], clip);
    return loss;
}

// ---- the interpreter -----------------------------------------------------------------------------------------------
// A cell holds a value or nothing. With `memory`, rows also lie where the placement says: written in every byte, read
// back in every byte, and spoilt when they are given up. So do whole weights that GATHER makes, and whole gradients,
// where these are sharded. Of ranks that share units this is one; its shard of weights stands for all of them, and the
// others add to gradients what this one does.

typedef struct {
    int is_there;
    uint64_t value;
} Cell;
typedef struct {
    const GxSteps *s;
    const GxStepsBytes *bytes;
    char *memory;
    int wrong;
    char why[200];
    uint64_t w[UNITS], loss; // w: what STEP changes
    Cell whole[UNITS];       // weights, as they are read: old ones, if nothing has gathered them behind a STEP
    Cell shard[UNITS];       // of gradients
    // Where another unit has a copy of unit 0's weight, which is w[0] here: as it is read, and its gradient
    uint64_t whole_copy;
    Cell copy;
    int whole_at[UNITS], grads_at[UNITS]; // buffers; NOT_ROWS: elsewhere
    Cell x[UNITS + 1][MICRO_BATCHES], dx[UNITS + 1][MICRO_BATCHES], slot[UNITS][MICRO_BATCHES];
    Cell late[UNITS][MICRO_BATCHES]; // dy that a weight half put off still needs; it lies in the slot
    Cell grads[UNITS], sums[UNITS], counts, clip;
    int is_late;           // what a ticket is started with happens when it is waited for, else when it is started
    int open[GX_TICKETS];  // 1 + the action under way
    int slots, most_slots; // alive
    int64_t most;          // bytes at the worst moment
} Machine;

enum { NOT_ROWS = -2 }; // in place of a buffer

static int is_sharded(const GxStepsSpec *p) { return p->sharded > 0; }
static int weights_are_sharded(const GxStepsSpec *p) { return p->sharded == 3; }
static int grads_are_rows(const GxStepsSpec *p) { return p->sharded >= 2; }

static void start(Machine *m, const GxSteps *s, const GxStepsBytes *bytes, int is_late)
{
    memset(m, 0, sizeof *m);
    m->s = s, m->bytes = bytes, m->is_late = is_late;
    if (bytes) m->memory = (char *)malloc((size_t)s->bytes + 1);
    for (int u = 0; u < s->spec.units; u++) {
        m->w[u] = m->whole[u].value = initial_weight(u);
        m->whole[u].is_there = is_mine(&s->spec, u) && !weights_are_sharded(&s->spec);
        m->whole_at[u] = m->grads_at[u] = NOT_ROWS;
    }
    m->whole_copy = m->w[0];
}

static void wrong(Machine *m, int i, const char *what)
{
    char name[48];
    if (!m->wrong)
        snprintf(m->why, sizeof m->why, "action %d (%s): %s", i, gx_action_name(&m->s->action[i], name), what);
    m->wrong = 1;
}

static void fill(Machine *m, int buffer, uint64_t value)
{
    const GxBuffer *b = &m->s->buffer[buffer];
    for (int64_t k = 0; k < b->bytes; k += 8) memcpy(m->memory + b->offset + k, &value, 8);
}

static uint64_t get(Machine *m, int i, const Cell *c, int buffer, int64_t bytes, const char *what)
{
    if (!c->is_there) wrong(m, i, what);
    if (m->memory && buffer == NOT_ROWS) return c->value;
    if (m->memory && buffer == -1) wrong(m, i, "rows without a buffer");
    if (m->memory && buffer >= 0 && m->s->buffer[buffer].bytes < bytes) wrong(m, i, "a buffer is too small");
    for (int64_t k = 0; m->memory && buffer >= 0 && k < bytes; k += 8)
        if (memcmp(m->memory + m->s->buffer[buffer].offset + k, &c->value, 8)) wrong(m, i, "rows were overwritten");
    return c->value;
}

static void put(Machine *m, int i, Cell *c, int buffer, uint64_t value, const char *what)
{
    if (c->is_there) wrong(m, i, what);
    c->is_there = 1;
    c->value = value;
    if (m->memory && buffer == -1) wrong(m, i, "rows without a buffer");
    if (m->memory && buffer >= 0) fill(m, buffer, value);
}

static void give_up(Machine *m, Cell *c, int buffer)
{
    c->is_there = 0;
    if (m->memory && buffer >= 0) fill(m, buffer, 0xdeadbeefdeadbeefu);
}

static uint64_t weights(Machine *m, int i, int u)
{
    const int at = m->whole_at[u], is_rows = m->bytes && at != NOT_ROWS;
    return get(m, i, &m->whole[u], at, is_rows ? m->bytes->weights[u] : 0, "no whole weights");
}

static uint64_t gradients(Machine *m, int i, int u)
{
    const int at = m->grads_at[u], is_rows = m->bytes && at != NOT_ROWS;
    return get(m, i, &m->grads[u], at, is_rows ? m->bytes->grads[u] : 0, "no gradients");
}

// Of units that share a tensor of unit 0's, that one, too: whole, where it lies.
static uint64_t weights_of(Machine *m, int i, int u)
{
    const GxStepsSpec *p = &m->s->spec;
    const uint64_t w = weights(m, i, u);
    if (!u || !shares(p, u)) return w;
    const uint64_t lies_in = weights(m, i, is_mine(p, 0) ? 0 : holds_copy(p));
    return head_weight(w, is_mine(p, 0) ? lies_in : m->whole_copy, 1);
}

static uint64_t memory_of(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const int at = behind(p), b = m->s->action[i].micro_batch;
    if (!reads_memory(p, m->s->action[i].unit)) return 0;
    return get(m, i, &m->x[at][b], m->s->operands[i].memory, m->bytes ? m->bytes->x[at] : 0, "no memory");
}

static int takes_memory(const GxStepsSpec *p, const GxAction *a) // computes with it, or sends it on
{
    if (a->what == GX_DO_SEND) return p->memory && a->object == GX_OBJECT_X && a->unit == behind(p);
    return a->what <= GX_DO_BACKWARD && reads_memory(p, a->unit);
}

// The last action of its micro-batch that takes the memory.
static int ends_memory(const GxSteps *s, int i)
{
    const GxAction *a = s->action;
    if (!takes_memory(&s->spec, &a[i])) return 0;
    for (int k = i + 1; k < s->n; k++)
        if (a[k].micro_batch == a[i].micro_batch && takes_memory(&s->spec, &a[k])) return 0;
    return 1;
}

static void give_up_memory(Machine *m, int i)
{
    const GxAction *a = &m->s->action[i];
    if (ends_memory(m->s, i)) give_up(m, &m->x[behind(&m->s->spec)][a->micro_batch], m->s->operands[i].memory);
}

// A contribution to gradients, which begins them if there are none.
static void add(Machine *m, int i, int u, int buffer, uint64_t value)
{
    Cell *c = &m->grads[u];
    m->grads_at[u] = grads_are_rows(&m->s->spec) ? buffer : NOT_ROWS;
    if (c->is_there) value += gradients(m, i, u);
    c->is_there = 0;
    put(m, i, c, m->grads_at[u], value, "gradients twice");
}

// What a unit adds to the gradient of the tensor that it shares.
static void add_shared(Machine *m, int i, uint64_t value)
{
    const GxStepsSpec *p = &m->s->spec;
    const int u = m->s->action[i].unit, copy = holds_copy(p);
    if (is_frozen(p, 0)) return;
    if (is_mine(p, 0)) {
        add(m, i, 0, m->s->operands[i].tied, value);
        return;
    }
    if (copy != u) add(m, i, copy, m->s->operands[i].tied, 0); // it lies among that unit's gradients
    m->copy.value = (m->copy.is_there ? m->copy.value : 0) + value, m->copy.is_there = 1;
}

static void run_backward(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const GxAction *a = &m->s->action[i];
    const GxOperands *o = &m->s->operands[i];
    const int u = a->unit, b = a->micro_batch, head = p->units - 1;
    const int has_dx = trains_below(p, u) && u != behind(p);
    const uint64_t x = has_input(p, u) ? get(m, i, &m->x[u][b], o->x, m->bytes ? m->bytes->x[u] : 0, "no x") : 0;
    if (u == head) {
        const int tied = shares(p, head);
        const uint64_t w = weights_of(m, i, head), counts = get(m, i, &m->counts, NOT_ROWS, 0, "no counts");
        m->loss += head_loss(w, x, counts);
        if (!is_frozen(p, u)) add(m, i, u, o->grads, head_grad(w, x, counts));
        if (tied) add_shared(m, i, tied_grad(w, x, counts));
        if (has_dx) put(m, i, &m->dx[u][b], o->dx, head_dx(w, x, counts), "dx twice");
        give_up(m, &m->x[u][b], o->x);
        return;
    }
    const int from = above(p, u);
    const uint64_t slot = get(m, i, &m->slot[u][b], o->slot, m->bytes ? m->bytes->slot[u] : 0, "no slot"),
                   dy = get(m, i, &m->dx[from][b], o->dy, m->bytes ? m->bytes->x[from] : 0, "no dy");
    const uint64_t w = small_reads(p, u) ? weights_of(m, i, u) : 0, memory = memory_of(m, i);
    give_up(m, &m->dx[from][b], o->dy);
    if (reads_memory(p, u) && trains_below(p, p->memory + 1)) {
        Cell *c = &m->dx[behind(p)][b];
        uint64_t share = memory_dx(slot, dy);
        if (c->is_there) share += get(m, i, c, o->dmemory, m->bytes ? m->bytes->x[behind(p)] : 0, "no gradient");
        c->is_there = 0;
        put(m, i, c, o->dmemory, share, "the memory's gradient twice");
    }
    if (u && shares(p, u)) add_shared(m, i, tied_grad(w, slot, dy));
    if (has_dx) put(m, i, &m->dx[u][b], o->dx, backward(w, slot, x, dy), "dx twice");
    if (!is_frozen(p, u)) add(m, i, u, o->grads, small_grad(w, slot, x, dy));
    if (a->half != GX_HALF_NONE) {
        put(m, i, &m->late[u][b], NOT_ROWS, dy, "put off twice");
        if (u && a->half == GX_HALF_INPUT) give_up(m, &m->x[u][b], o->x);
        return;
    }
    if (!is_frozen(p, u))
        add(m, i, u, o->grads,
            unit_grad(unit_reads(p, u) ? weights(m, i, u) : 0, slot, (p->weight_reads_x ? x : 0) + memory, dy));
    give_up(m, &m->slot[u][b], o->slot);
    if (has_input(p, u)) give_up(m, &m->x[u][b], o->x);
    give_up_memory(m, i);
}

static void run_weight(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const GxAction *a = &m->s->action[i];
    const GxOperands *o = &m->s->operands[i];
    const int u = a->unit, b = a->micro_batch;
    if (u == p->units - 1) {
        wrong(m, i, "a head has no W");
        return;
    }
    const uint64_t dy = get(m, i, &m->late[u][b], NOT_ROWS, 0, "nothing put off"),
                   slot = get(m, i, &m->slot[u][b], o->slot, m->bytes ? m->bytes->slot[u] : 0, "no slot");
    const uint64_t x = p->weight_reads_x && u ? get(m, i, &m->x[u][b], o->x, m->bytes ? m->bytes->x[u] : 0, "no x") : 0;
    const uint64_t w = unit_reads(p, u) ? weights(m, i, u) : 0;
    if (!is_frozen(p, u)) add(m, i, u, o->grads, unit_grad(w, slot, x, dy));
    m->late[u][b].is_there = 0;
    give_up(m, &m->slot[u][b], o->slot);
    if (u && a->half == GX_HALF_INPUT_X) give_up(m, &m->x[u][b], o->x);
}

static void run_forward(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const GxAction *a = &m->s->action[i];
    const GxOperands *o = &m->s->operands[i];
    const int u = a->unit, b = a->micro_batch, head = p->units - 1;
    const int memory = reads_memory(p, u);
    uint64_t x = has_input(p, u) ? get(m, i, &m->x[u][b], o->x, m->bytes ? m->bytes->x[u] : 0, "no x") : 0;
    const uint64_t w = weights_of(m, i, u);
    if (memory) x = with_memory(x, memory_of(m, i));
    if (a->what == GX_DO_FORWARD && u == head) m->loss += forward(u, w, x, b);
    if (a->what == GX_DO_FORWARD && u < head) put(m, i, &m->x[u + 1][b], o->y, forward(u, w, x, b), "y twice");
    put(m, i, &m->slot[u][b], o->slot, saved(w, x), "slot twice");
    if (a->what == GX_DO_FORWARD && a->keep != GX_KEEP_SLOT) give_up(m, &m->slot[u][b], o->slot);
    if (a->what == GX_DO_FORWARD && a->keep == GX_KEEP_NOTHING && has_input(p, u)) give_up(m, &m->x[u][b], o->x);
    if (a->what == GX_DO_FORWARD) give_up_memory(m, i);
}

// What this rank adds to what all agree on.
static uint64_t part_of_clip(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    uint64_t clip = m->loss;
    for (int k = 0; k < p->units; k++)
        if (!is_frozen(p, k) && is_mine(p, k))
            clip += get(m, i, &m->sums[k], NOT_ROWS, 0, "no norm") * (uint64_t)(k + 1);
    return clip;
}

static void run_gather(Machine *m, int i)
{
    const int u = m->s->action[i].unit, is_rows = weights_are_sharded(&m->s->spec);
    if (!is_rows) m->whole[u].is_there = 0; // it goes over the old ones
    m->whole_at[u] = is_rows ? m->s->operands[i].weights : NOT_ROWS;
    put(m, i, &m->whole[u], m->whole_at[u], m->w[u], "whole weights twice");
    if (u == holds_copy(&m->s->spec)) m->whole_copy = m->w[0];
}

static void run_scatter(Machine *m, int i)
{
    const GxAction *a = &m->s->action[i];
    Cell *shard = &m->shard[a->unit];
    const uint64_t whole = gradients(m, i, a->unit);
    shard->value = (shard->is_there ? shard->value : 0) + reduced(whole, a->axes);
    shard->is_there = 1;
    give_up(m, &m->grads[a->unit], m->grads_at[a->unit]);
    if (a->unit == holds_copy(&m->s->spec)) m->copy.value = reduced(m->copy.value, a->axes);
}

static void run_reduce(Machine *m, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const GxAction *a = &m->s->action[i];
    for (int k = a->unit; k < a->unit + a->count; k++) {
        Cell *c = a->object == GX_OBJECT_SHARD ? &m->shard[k] : &m->grads[k];
        if (is_frozen(p, k) || !is_mine(p, k)) continue;
        c->value = reduced(get(m, i, c, NOT_ROWS, 0, "nothing to sum"), a->axes);
        if (k == holds_copy(p)) m->copy.value = reduced(m->copy.value, a->axes);
    }
}

// What the norm and the step are of.
static Cell *summed(Machine *m, int u) { return is_sharded(&m->s->spec) ? &m->shard[u] : &m->grads[u]; }

static void run_step(Machine *m, int i)
{
    const int u = m->s->action[i].unit;
    Cell *grads = summed(m, u);
    const uint64_t g = get(m, i, grads, NOT_ROWS, 0, "no gradients");
    m->w[u] = stepped(m->w[u], g, get(m, i, &m->clip, NOT_ROWS, 0, "no clip"));
    if (!is_sharded(&m->s->spec)) m->whole[u].value = m->w[u];
    grads->is_there = 0;
    if (u != holds_copy(&m->s->spec) || !m->copy.is_there) return;
    m->w[0] = stepped(m->w[0], m->copy.value, m->clip.value);
    if (!is_sharded(&m->s->spec)) m->whole_copy = m->w[0];
    m->copy.is_there = 0;
}

static void run_action(Machine *m, int i)
{
    const GxAction *a = &m->s->action[i];
    const int u = a->unit;
    switch (a->what) {
    case GX_DO_FORWARD:
    case GX_DO_RECOMPUTE: run_forward(m, i); break;
    case GX_DO_BACKWARD: run_backward(m, i); break;
    case GX_DO_WEIGHT: run_weight(m, i); break;
    case GX_DO_GATHER: run_gather(m, i); break;
    case GX_DO_FREE:
        weights(m, i, u);
        give_up(m, &m->whole[u], m->whole_at[u]);
        break;
    case GX_DO_SCATTER: run_scatter(m, i); break;
    case GX_DO_REDUCE: run_reduce(m, i); break;
    case GX_DO_COUNT: put(m, i, &m->counts, NOT_ROWS, 77, "counts twice"); break;
    case GX_DO_NORM:
        put(m, i, &m->sums[u], NOT_ROWS, norm_of(get(m, i, summed(m, u), NOT_ROWS, 0, "no gradients")), "norm twice");
        break;
    case GX_DO_AGREE: put(m, i, &m->clip, NOT_ROWS, part_of_clip(m, i), "agreed twice"); break;
    case GX_DO_STEP: run_step(m, i); break;
    case GX_DO_WAIT: break; // here everything is done when it is started
    default: wrong(m, i, "no such action here"); break;
    }
}

static void run_or_start(Machine *m, int i)
{
    const GxAction *a = &m->s->action[i];
    const int t = a->ticket, is_wait = a->what == GX_DO_WAIT, units = a->what == GX_DO_REDUCE ? a->count : 1;
    if (a->unit + units > m->s->spec.units || a->micro_batch >= m->s->spec.micro_batches || a->unit < -1 ||
        (a->unit < 0 && !is_wait && a->what != GX_DO_COUNT && a->what != GX_DO_AGREE) || a->micro_batch < -1 ||
        (a->micro_batch < 0 && a->what <= GX_DO_WEIGHT)) {
        wrong(m, i, "no such unit or micro-batch");
        return;
    }
    if (t >= 0 && (m->open[t] == 0) == is_wait) wrong(m, i, is_wait ? "nothing to wait for" : "the ticket is open");
    if (is_wait && m->is_late && m->open[t]) run_action(m, m->open[t] - 1);
    if (!is_wait && !(t >= 0 && m->is_late)) run_action(m, i);
    if (t >= 0) m->open[t] = is_wait ? 0 : i + 1;
}

static int is_left(const Machine *m, int u)
{
    int is = m->grads[u].is_there || m->shard[u].is_there;
    for (int b = 0; b < m->s->spec.micro_batches; b++)
        is |= m->x[u][b].is_there || m->dx[u][b].is_there || m->slot[u][b].is_there || m->late[u][b].is_there;
    return is;
}

// Behind the list. w: the weights of plain loops. Another list may follow: nothing is left, weights are whole where
// they were, and new.
static void look_at_the_end(Machine *m, const uint64_t *w)
{
    const GxStepsSpec *p = &m->s->spec;
    const int last = (int)gx_max(m->s->n - 1, 0);
    for (int u = 0; u < p->units; u++) {
        const int is_whole = is_mine(p, u) && !weights_are_sharded(p);
        if (is_mine(p, u) && w[u] != m->w[u]) wrong(m, last, "other weights than plain loops");
        if (is_left(m, u)) wrong(m, last, "something is left");
        if (m->whole[u].is_there != is_whole) wrong(m, last, "weights are whole, or not, as they were not before");
        if (is_whole && m->whole[u].value != w[u]) wrong(m, last, "whole weights are old");
    }
    for (int t = 0; t < GX_TICKETS; t++)
        if (m->open[t]) wrong(m, m->open[t] - 1, "nobody waits for it");
}

// ---- shards --------------------------------------------------------------------------------------------------------

// Of a specification that has all else: in every way, none among them, and what reads weights.
static void shard_at_random(GxStepsSpec *p, int sharded)
{
    const int many = random_below(2) ? 3 : p->units + 1;
    p->has_lora = random_below(2), p->embedding_reads = random_below(2);
    p->sharded = sharded;
    if (!sharded) return;
    p->shard_axes = 8 + 16 * random_below(2), p->reduce_axes = random_below(2) ? 4 : 0;
    p->bucket = p->starts_sums = 0;
    p->scatters_each = sharded > 1 && random_below(2);
    p->gathered = 1 + (p->is_tied != 0) + random_below(many);
    p->overlaps = random_below(2) ? GX_OVERLAPS_SHARDS : 0;
}
#endif
