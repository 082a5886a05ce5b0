// test_pipeline.cu: the lists of a pipeline's ranks: do they compute what one rank computes, whatever its order and its
// stages; do messages pair; are published formulas kept; and is what is broken refused?
#include "galaxy/parallel/steps_make.h"
#include "galaxy/parallel/steps_place.h"
#include "galaxy/parallel/steps_ranks.h"
#include "test/test.h"
#include "test/toy_steps.h"

enum { RANKS = 5, STAGES = 2 * RANKS, SPECS = TEST_IS_SANITIZED ? 400 : 2000 };

// ---- many pipelines ------------------------------------------------------------------------------------------------

typedef struct {
    GxStepsSpec spec;
    int16_t stage[STAGES + 1];
    uint8_t frozen[UNITS], bypassed[UNITS], shares[UNITS];
    int16_t warm[RANKS];
} Pipeline;

// Stages of one unit at least, cut anywhere.
static void cut(Pipeline *p, int ranks, int order, int more_units)
{
    const int stages = ranks * gx_order_info(order)->chunks;
    p->spec.units = (int)gx_max(2, stages + more_units);
    p->spec.ranks = ranks, p->spec.order = order, p->spec.stage = p->stage;
    p->stage[stages] = (int16_t)p->spec.units;
    for (int s = 1; s < stages; s++) { // between the one before and what the others need
        const int room = p->spec.units - (stages - s) - p->stage[s - 1];
        p->stage[s] = (int16_t)(p->stage[s - 1] + 1 + random_below(room));
    }
}

static void freeze_at_random(Pipeline *p)
{
    GxStepsSpec *s = &p->spec;
    const int head = s->units - 1, lowest = random_below(s->units), kind = random_below(4);
    if (!kind) return;
    for (int u = 0; u < s->units; u++)
        p->frozen[u] = (uint8_t)(kind == 1 ? u < lowest : u != lowest && random_below(3) == 0);
    s->frozen = p->frozen;
    if (kind < 3) return;
    for (int u = 0; u < head; u++) p->bypassed[u] = p->frozen[u] = (uint8_t)(u % 2 == 0 || u == 0); // a side network
    p->frozen[head] = (uint8_t)random_below(2);
    if (head < 2) p->frozen[head] = 0;
    s->bypassed = p->bypassed;
}

// Some forwards ahead, as many as a rank can have: 1 more than the rank before.
static void warm_at_random(Pipeline *p)
{
    for (int r = 0; r < p->spec.ranks; r++) p->warm[r] = (int16_t)random_below(r ? p->warm[r - 1] + 2 : 4);
    p->spec.warm = p->warm;
}

static void at_random(Pipeline *p)
{
    memset(p, 0, sizeof *p);
    GxStepsSpec *s = &p->spec;
    const int order = random_below(GX_ORDERS), ranks = 1 + random_below(RANKS);
    cut(p, ranks, order, random_below(5));
    s->kind = random_below(8) == 0 ? GX_STEPS_FORWARD : GX_STEPS_TRAIN;
    s->micro_batches = gx_order_info(order)->by_ranks ? ranks : 1 + random_below(MICRO_BATCHES);
    s->defers_weights = gx_order_info(order)->has_halves || random_below(3) == 0;
    s->weight_reads_x = random_below(2), s->recomputes_layers = random_below(2);
    s->count_axes = 31, s->agree_axes = 31, s->reduce_axes = random_below(2) ? 6 : 0;
    s->bucket = random_below(4), s->starts_sums = random_below(2);
    freeze_at_random(p);
    if (!s->defers_weights && !s->bypassed && s->units > 4 && random_below(2))
        s->memory = 1 + random_below(s->units - 4);
    s->is_tied = random_below(2);
    for (int u = 1; u < s->units; u++) p->shares[u] = random_below(3) == 0;
    if (random_below(2)) s->shares = p->shares;
    for (s->rank = 0; s->rank < ranks; s->rank++) // a copy is trained if the tensor is
        if (holds_copy(s) >= 0 && p->frozen[0] != p->frozen[holds_copy(s)]) s->is_tied = 0;
    s->rank = 0;
    shard_at_random(s, random_below(4));
    s->overlaps = random_below(4);
    if (gx_order_info(order)->has_warm && random_below(2)) warm_at_random(p);
}

static void open_lists(GxSteps *s, const GxStepsSpec *spec)
{
    GxStepsSpec p = *spec;
    for (p.rank = 0; p.rank < spec->ranks; p.rank++) {
        GxError err = GX_ZERO;
        CHECK(gx_steps_make(&s[p.rank], &p, &err) == GX_OK, "%s", err.message);
    }
}

static void close_lists(GxSteps *s, int ranks)
{
    for (int r = 0; r < ranks; r++) gx_steps_close(&s[r]);
}

static const char *text_of(const GxSteps *s)
{
    static char text[1 << 16];
    gx_steps_print(s, text, sizeof text);
    return text;
}

// ---- ranks together ------------------------------------------------------------------------------------------------
// A message passes as late as it can: when both ranks are at it, or have started it and one of them waits for it. Where
// it will arrive is spoilt as early as it can be: when its rank comes there. What was sent is there until it is waited
// for.

typedef struct {
    Machine m[RANKS];
    int at[RANKS], is_posted[RANKS], n;
    int started[RANKS][GX_TICKETS], has_passed[RANKS][GX_TICKETS]; // started: 1 + the message's action; 0: none
} Ranks;

static Cell *rows_of(Machine *m, int i, int *buffer)
{
    const GxAction *a = &m->s->action[i];
    const int is_x = a->object == GX_OBJECT_X;
    *buffer = is_x ? m->s->operands[i].x : m->s->operands[i].dx;
    return is_x ? &m->x[a->unit][a->micro_batch] : &m->dx[a->unit][a->micro_batch];
}

// 1: b, of a's peer, is the other end of this message of `rank`.
static int is_other_end(const GxAction *a, int rank, const GxAction *b)
{
    if (a->what == GX_DO_TIE) return b->what == GX_DO_TIE && b->peer == rank;
    return (b->what == GX_DO_SEND || b->what == GX_DO_RECV) && b->peer == rank && b->what != a->what &&
           b->object == a->object && b->unit == a->unit && b->micro_batch == a->micro_batch && b->count == a->count;
}

// 1: the other rank is at the other end of this message.
static int is_met(const Ranks *r, int rank)
{
    const GxAction *a = &r->m[rank].s->action[r->at[rank]];
    return r->is_posted[a->peer] && is_other_end(a, rank, &r->m[a->peer].s->action[r->at[a->peer]]);
}

// The peer's action at the other end of message i, if it has come to it; -1: it has not. *ticket: of what it has
// started; -1: it is at it.
static int other_end(const Ranks *r, int rank, int i, int *ticket)
{
    const GxAction *a = &r->m[rank].s->action[i];
    const GxSteps *s = r->m[a->peer].s;
    for (*ticket = GX_TICKETS - 1; *ticket >= 0; --*ticket) {
        const int j = r->started[a->peer][*ticket] - 1;
        if (j >= 0 && !r->has_passed[a->peer][*ticket] && is_other_end(a, rank, &s->action[j])) return j;
    }
    return r->is_posted[a->peer] && is_other_end(a, rank, &s->action[r->at[a->peer]]) ? r->at[a->peer] : -1;
}

// A sender gives it up that does not wait for it later, or, of a memory, read it.
static void give_up_sent(Ranks *r, int rank, int i)
{
    int buffer;
    const GxSteps *s = r->m[rank].s;
    Cell *x = rows_of(&r->m[rank], i, &buffer);
    if (s->action[i].what == GX_DO_SEND && (!takes_memory(&s->spec, &s->action[i]) || ends_memory(s, i)))
        give_up(&r->m[rank], x, buffer);
}

// Message i of a rank passes, if the other end is there. Returns 0 if it is not.
static int pass(Ranks *r, int rank, int i)
{
    int ticket, out, in;
    const int j = other_end(r, rank, i, &ticket), peer = r->m[rank].s->action[i].peer,
              sends = r->m[rank].s->action[i].what == GX_DO_SEND;
    if (j < 0) return 0;
    Machine *from = &r->m[sends ? rank : peer], *to = &r->m[sends ? peer : rank];
    const int sent = sends ? i : j, received = sends ? j : i;
    Cell *x = rows_of(from, sent, &out), *y = rows_of(to, received, &in);
    x->is_there = 1; // of a started one, the list has ended it
    const uint64_t value = get(from, sent, x, out, from->bytes ? from->s->buffer[out].bytes : 0, "nothing to send");
    put(to, received, y, in, value, "it is there already");
    if (ticket >= 0) r->has_passed[peer][ticket] = 1;
    else give_up_sent(r, peer, j), r->is_posted[peer] = 0, r->at[peer]++;
    return 1;
}

// The gradient of unit 0's weight, or of a copy of it.
static Cell *of_shared(Machine *m) { return is_mine(&m->s->spec, 0) ? &m->grads[0] : &m->copy; }

// Both ranks have what both have added to unit 0's weight; or the higher one has what the lower one has.
static int tie(Ranks *r, int rank)
{
    const int comes = !r->is_posted[rank], peer = r->m[rank].s->action[r->at[rank]].peer,
              first = (int)gx_min(peer, rank), last = (int)gx_max(peer, rank);
    r->is_posted[rank] = 1;
    if (!is_met(r, rank)) return comes;
    Machine *a = &r->m[first], *b = &r->m[last];
    const int takes = a->s->action[r->at[first]].half == GX_TIE_TAKES;
    if (a->s->action[r->at[first]].half != b->s->action[r->at[last]].half)
        wrong(a, r->at[first], "another kind of TIE");
    if (is_mine(&a->s->spec, 0)) gradients(a, r->at[first], 0);
    const uint64_t low = get(a, r->at[first], of_shared(a), NOT_ROWS, 0, "no gradient of the shared tensor"),
                   high = get(b, r->at[last], of_shared(b), NOT_ROWS, 0, "no gradient of the copy"),
                   sum = takes ? low : low + high;
    of_shared(a)->value = of_shared(b)->value = sum;
    if (is_mine(&a->s->spec, 0) && a->memory && grads_are_rows(&a->s->spec))
        fill(a, a->s->operands[r->at[first]].grads, sum);
    r->at[first]++, r->at[last]++;
    r->is_posted[first] = r->is_posted[last] = 0;
    return 1;
}

// Returns 0 if nothing has changed.
static int go_on_with_message(Ranks *r, int rank)
{
    Machine *m = &r->m[rank];
    const int i = r->at[rank], comes = !r->is_posted[rank], ticket = m->s->action[i].ticket;
    int buffer;
    Cell *x = rows_of(m, i, &buffer);
    if (comes && m->s->action[i].what == GX_DO_SEND && !x->is_there) wrong(m, i, "nothing to send");
    if (comes && m->memory && m->s->action[i].what == GX_DO_RECV) fill(m, buffer, 0xabababababababab);
    if (ticket >= 0) {
        if (r->started[rank][ticket]) wrong(m, i, "the ticket is open");
        r->started[rank][ticket] = i + 1, r->has_passed[rank][ticket] = 0;
        r->at[rank]++;
        return 1;
    }
    r->is_posted[rank] = 1;
    if (!pass(r, rank, i)) return comes;
    give_up_sent(r, rank, i);
    r->is_posted[rank] = 0, r->at[rank]++;
    return 1;
}

// Waits for a message. Returns 0 if nothing has changed.
static int wait_for_message(Ranks *r, int rank)
{
    const int ticket = r->m[rank].s->action[r->at[rank]].ticket, i = r->started[rank][ticket] - 1;
    if (!r->has_passed[rank][ticket] && !pass(r, rank, i)) return 0;
    give_up_sent(r, rank, i);
    r->started[rank][ticket] = 0, r->at[rank]++;
    return 1;
}

static int is_agreed(const GxAction *a) { return a->what == GX_DO_COUNT || a->what == GX_DO_AGREE; }

static int agree(Ranks *r)
{
    uint64_t clip = 0;
    for (int k = 0; k < r->n; k++)
        if (r->at[k] >= r->m[k].s->n || !is_agreed(&r->m[k].s->action[r->at[k]])) return 0;
    for (int k = 0; k < r->n; k++)
        if (r->m[k].s->action[r->at[k]].what == GX_DO_AGREE) clip += part_of_clip(&r->m[k], r->at[k]);
    for (int k = 0; k < r->n; k++) {
        run_action(&r->m[k], r->at[k]);
        if (r->m[k].s->action[r->at[k]].what == GX_DO_AGREE) r->m[k].clip.value = clip;
        r->at[k]++;
    }
    return 1;
}

static int go_on(Ranks *r, int rank)
{
    Machine *m = &r->m[rank];
    int changes = 0;
    while (r->at[rank] < m->s->n && !m->wrong) {
        const GxAction *a = &m->s->action[r->at[rank]];
        if (is_agreed(a)) break;
        const int waits = a->what == GX_DO_WAIT && r->started[rank][a->ticket];
        if (a->what == GX_DO_SEND || a->what == GX_DO_RECV || a->what == GX_DO_TIE || waits) {
            const int at = r->at[rank];
            changes |= waits                  ? wait_for_message(r, rank)
                       : a->what == GX_DO_TIE ? tie(r, rank)
                                              : go_on_with_message(r, rank);
            if (r->at[rank] == at) break;
        } else run_or_start(m, r->at[rank]++), changes = 1;
    }
    return changes;
}

// What is wrong at the end, if nothing was before.
static void compare(Ranks *r, const uint64_t *w, uint64_t loss)
{
    uint64_t found = 0;
    for (int k = 0; k < r->n; k++) {
        Machine *m = &r->m[k];
        found += m->loss;
        if (r->at[k] < m->s->n) wrong(m, r->at[k], "it waits for ever");
        if (holds_copy(&m->s->spec) >= 0 && w[0] != m->w[0])
            wrong(m, m->s->n - 1, "another tied weight than plain loops");
        if (m->copy.is_there) wrong(m, m->s->n - 1, "a gradient of a copy is left");
        look_at_the_end(m, w);
    }
    if (found != loss) wrong(&r->m[0], r->m[0].s->n - 1, "another loss than plain loops");
}

static Ranks together;

// NULL: the lists do what plain loops do. bytes: in their placements.
static const char *goes_wrong(const GxSteps *s, int ranks, const GxStepsBytes *bytes)
{
    Ranks *r = &together;
    uint64_t w[UNITS];
    const char *why = NULL;
    memset(r, 0, sizeof *r);
    r->n = ranks;
    for (int u = 0; u < s->spec.units; u++) w[u] = initial_weight(u);
    for (int k = 0; k < ranks; k++) start(&r->m[k], &s[k], bytes, 1);
    const uint64_t loss = plain_step(&s->spec, w);
    for (int changes = 1; changes;) {
        changes = 0;
        for (int k = 0; k < ranks; k++) changes |= go_on(r, k);
        changes |= agree(r);
    }
    compare(r, w, loss);
    for (int k = 0; k < ranks; k++) {
        if (r->m[k].wrong && !why) why = r->m[k].why;
        free(r->m[k].memory);
    }
    return why;
}

// ---- what lists are ------------------------------------------------------------------------------------------------

static Pipeline simple(int order, int ranks, int micro_batches)
{
    Pipeline p; // a layer in each stage, and the ends
    memset(&p, 0, sizeof p);
    const int stages = ranks * gx_order_info(order)->chunks;
    p.spec.units = stages + 2, p.spec.ranks = ranks, p.spec.order = order, p.spec.micro_batches = micro_batches;
    for (int s = 1; s < stages; s++) p.stage[s] = (int16_t)(s + 1);
    p.stage[stages] = (int16_t)p.spec.units;
    p.spec.defers_weights = gx_order_info(order)->has_halves;
    return p;
}

TEST(the_lists_of_two_ranks)
{
    static const struct {
        int order;
        const char *rank[2];
    } cases[] = {
        {GX_ORDER_1F1B,
         {"COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 B1.0 B0.0 RECV:dx:2.1<1 B1.1 B0.1 "
          "NORM0-1 AGREE STEP0-1",
          "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 B3.0 B2.0 SEND:dx:2.0>0 F2.1 B3.1 B2.1 SEND:dx:2.1>0 NORM2-3 AGREE "
          "STEP2-3"}},
        {GX_ORDER_GPIPE,
         {"COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 B1.0 B0.0 RECV:dx:2.1<1 B1.1 B0.1 "
          "NORM0-1 AGREE STEP0-1",
          "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 F2.1 B3.0 B2.0 SEND:dx:2.0>0 B3.1 B2.1 SEND:dx:2.1>0 NORM2-3 AGREE "
          "STEP2-3"}},
        {GX_ORDER_ZB1P,
         {"COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 b1.0 B0.0 W1.0 RECV:dx:2.1<1 b1.1 B0.1 "
          "W1.1 NORM0-1 AGREE STEP0-1",
          "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 B3.0 b2.0 SEND:dx:2.0>0 F2.1 B3.1 b2.1 SEND:dx:2.1>0 W2.0 W2.1 "
          "NORM2-3 AGREE STEP2-3"}},
        {GX_ORDER_ZBV, // whose last rank has stages 1 and 2, between which nothing is sent
         {"COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:x:4.0<1 F4.0 B5.0 b4.0 RECV:x:4.1<1 "
          "SEND:dx:4.0>1 W4.0 F4.1 B5.1 b4.1 RECV:dx:2.0<1 SEND:dx:4.1>1 W4.1 b1.0 B0.0 RECV:dx:2.1<1 W1.0 b1.1 B0.1 "
          "W1.1 NORM0-1 NORM4-5 AGREE STEP0-1 STEP4-5",
          "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 F3.0 SEND:x:4.0>0 F2.1 F3.1 SEND:x:4.1>0 RECV:dx:4.0<0 b3.0 W3.0 "
          "b2.0 SEND:dx:2.0>0 RECV:dx:4.1<0 b3.1 b2.1 SEND:dx:2.1>0 W2.0 W3.1 W2.1 NORM2-3 AGREE STEP2-3"}},
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxSteps s[2];
        Pipeline p = simple(cases[k].order, 2, 2);
        p.spec.stage = p.stage;
        open_lists(s, &p.spec);
        for (int r = 0; r < 2; r++)
            CHECK(!strcmp(text_of(&s[r]), cases[k].rank[r]), "%s, rank %d: found\n%s, expected\n%s",
                  gx_order_info(cases[k].order)->name, r, text_of(&s[r]), cases[k].rank[r]);
        close_lists(s, 2);
    }
}

static void expect_list(const Pipeline *p, int rank, const char *expected)
{
    GxSteps s;
    GxStepsSpec spec = p->spec;
    GxError err = GX_ZERO;
    spec.stage = p->stage, spec.rank = rank;
    CHECK(gx_steps_make(&s, &spec, &err) == GX_OK, "%s", err.message);
    CHECK(!strcmp(text_of(&s), expected), "rank %d: found\n%s, expected\n%s", rank, text_of(&s), expected);
    gx_steps_close(&s);
}

// Messages that overlap: received before the work before them, waited for after the work after them.
TEST(the_lists_of_two_ranks_whose_messages_overlap)
{
    Pipeline p = simple(GX_ORDER_1F1B, 2, 3);
    p.spec.overlaps = GX_OVERLAPS_MESSAGES;
    expect_list(&p, 0,
                "COUNT F0.0 F1.0 SEND:x:2.0>1~0 RECV:dx:2.0<1~1 F0.1 F1.1 SEND:x:2.1>1~2 WAIT0 WAIT1 B1.0 B0.0 WAIT2 "
                "RECV:dx:2.1<1~0 F0.2 F1.2 SEND:x:2.2>1~1 WAIT0 RECV:dx:2.2<1~0 B1.1 B0.1 WAIT1 WAIT0 B1.2 B0.2 "
                "NORM0-1 AGREE STEP0-1");
    expect_list(&p, 1,
                "COUNT RECV:x:2.0<0 RECV:x:2.1<0~0 F2.0 B3.0 B2.0 SEND:dx:2.0>0~1 WAIT0 F2.1 WAIT1 RECV:x:2.2<0~0 B3.1 "
                "B2.1 SEND:dx:2.1>0~1 WAIT0 F2.2 WAIT1 B3.2 B2.2 SEND:dx:2.2>0 NORM2-3 AGREE STEP2-3");
}

// As many gradients as there are forwards ahead are waited for at the end, one after another.
TEST(forwards_ahead_come_before_the_first_backward)
{
    int16_t warm[2] = {1, 0};
    Pipeline p = simple(GX_ORDER_1F1B, 2, 3);
    p.spec.warm = warm;
    expect_list(&p, 0,
                "COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 F0.2 F1.2 SEND:x:2.2>1 RECV:dx:2.0<1 B1.0 B0.0 "
                "RECV:dx:2.1<1 B1.1 B0.1 RECV:dx:2.2<1 B1.2 B0.2 NORM0-1 AGREE STEP0-1");
    expect_list(
        &p, 1,
        "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 B3.0 B2.0 RECV:x:2.2<0 SEND:dx:2.0>0 F2.1 B3.1 B2.1 SEND:dx:2.1>0 "
        "F2.2 B3.2 B2.2 SEND:dx:2.2>0 NORM2-3 AGREE STEP2-3");
    static const uint8_t frozen[4] = {1, 0, 1, 0};
    GxSteps s;
    GxError err = GX_ZERO;
    p.spec.stage = p.stage, p.spec.frozen = frozen;
    CHECK(gx_steps_make(&s, &p.spec, &err) == GX_OK, "%s", err.message);
    warm[0] = 5; // the list has copies of all of its arrays
    CHECK(s.spec.warm[0] == 1 && s.spec.warm[1] == 0 && !memcmp(s.spec.frozen, frozen, 4) && s.spec.stage[1] == 2,
          "warm %d %d", s.spec.warm[0], s.spec.warm[1]);
    gx_steps_close(&s);
}

// Of any number of them, whatever the order asks of a training step.
TEST(evaluation_fills_a_chunk_with_as_many_micro_batches_as_there_are_ranks)
{
    Pipeline p = simple(GX_ORDER_INTERLEAVED, 2, 3);
    p.spec.kind = GX_STEPS_FORWARD;
    expect_list(&p, 0,
                "F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:x:3.0<1 F3.0 RECV:x:3.1<1 SEND:x:4.0>1 F3.1 "
                "SEND:x:4.1>1 F0.2 F1.2 SEND:x:2.2>1 RECV:x:3.2<1 F3.2 SEND:x:4.2>1");
}

TEST(a_sum_of_gradients_names_units_of_its_rank)
{
    Pipeline p = simple(GX_ORDER_1F1B, 2, 1);
    p.spec.reduce_axes = 6;
    expect_list(&p, 0, "COUNT F0 F1 SEND:x:2>1 RECV:dx:2<1 B1 B0 REDUCE0-1 NORM0-1 AGREE STEP0-1");
    expect_list(&p, 1, "COUNT RECV:x:2<0 F2 B3 B2 SEND:dx:2>0 REDUCE2-3 NORM2-3 AGREE STEP2-3");
}

// Both stages add up what they have of the matrix behind everything else; its units' sums stand behind that, and what
// is scattered in each micro-batch is, of these units, scattered once.
TEST(a_tensor_of_two_stages_is_added_up_before_it_is_summed)
{
    static const uint8_t frozen[4] = {1, 0, 0, 1};
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.is_tied = 1, p.spec.reduce_axes = 6, p.spec.bucket = 1;
    expect_list(
        &p, 0,
        "COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 B1.0 B0.0 RECV:dx:2.1<1 B1.1 REDUCE1 "
        "B0.1 TIE0<>1 REDUCE0 NORM0-1 AGREE STEP0-1");
    expect_list(&p, 1,
                "COUNT RECV:x:2.0<0 F2.0 RECV:x:2.1<0 B3.0 B2.0 SEND:dx:2.0>0 F2.1 B3.1 B2.1 SEND:dx:2.1>0 REDUCE2 "
                "TIE3<>0 REDUCE3 NORM2-3 AGREE STEP2-3");
    p.spec.reduce_axes = 0, p.spec.shard_axes = 4, p.spec.sharded = 2, p.spec.scatters_each = 1;
    expect_list(&p, 0,
                "COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 B1.0 SCATTER1 B0.0 RECV:dx:2.1<1 "
                "B1.1 SCATTER1 B0.1 TIE0<>1 SCATTER0 NORM0-1 AGREE STEP0-1 GATHER0 GATHER1");
    p.spec.sharded = p.spec.scatters_each = 0, p.spec.frozen = frozen;
    expect_list(&p, 0,
                "COUNT F0.0 F1.0 SEND:x:2.0>1 F0.1 F1.1 SEND:x:2.1>1 RECV:dx:2.0<1 B1.0 RECV:dx:2.1<1 B1.1 NORM1 AGREE "
                "STEP1");
}

// An encoder of one layer and a decoder of two, a layer in each stage: the second one has the memory until its layer's
// backward, and hands it on with what its layer makes; its gradient comes back with that of the stream. Three ranks add
// up what they have of the table of tokens.
TEST(stages_hand_the_memory_on)
{
    Pipeline p;
    memset(&p, 0, sizeof p);
    p.spec.units = 7, p.spec.ranks = 3, p.spec.micro_batches = 1, p.spec.memory = 2, p.spec.is_tied = 1;
    p.stage[1] = 3, p.stage[2] = 5, p.stage[3] = 7;
    expect_list(&p, 0, "COUNT F0 F1 F2 SEND:x:3>1 RECV:dx:3<1 B2 B1 B0 TIE0<>1 NORM0-2 AGREE STEP0-2");
    expect_list(
        &p, 1,
        "COUNT RECV:x:3<0 F3 F4 SEND:x:3>2 SEND:x:5>2 RECV:dx:3<2 RECV:dx:5<2 B4 B3 SEND:dx:3>0 TIE3<>2 TIE3<>0 "
        "TIE3=2 NORM3-4 AGREE STEP3-4");
    expect_list(&p, 2,
                "COUNT RECV:x:3<1 RECV:x:5<1 F5 B6 B5 SEND:dx:3>1 SEND:dx:5>1 TIE6<>1 TIE6=1 NORM5-6 AGREE STEP5-6");
    p.spec.kind = GX_STEPS_FORWARD; // the last one that needs it ends it
    expect_list(&p, 1, "RECV:x:3<0 F3 F4 SEND:x:3>2 SEND:x:5>2");
    static const uint8_t encoder[7] = {1, 1, 1, 0, 0, 0, 0};
    p.spec.kind = GX_STEPS_TRAIN, p.spec.frozen = encoder, p.spec.is_tied = 0;
    expect_list(&p, 1, "COUNT RECV:x:3<0 F3 F4 SEND:x:3>2 SEND:x:5>2 RECV:dx:5<2 B4 B3 NORM3-4 AGREE STEP3-4");
}

// The memory and its gradient are under way beside others.
TEST(the_memory_is_under_way_while_stages_compute)
{
    Pipeline p;
    memset(&p, 0, sizeof p);
    p.spec.units = 7, p.spec.ranks = 3, p.spec.micro_batches = 2, p.spec.memory = 2;
    p.spec.overlaps = GX_OVERLAPS_MESSAGES;
    p.stage[1] = 3, p.stage[2] = 5, p.stage[3] = 7;
    expect_list(
        &p, 1,
        "COUNT RECV:x:3.0<0~0 RECV:x:3.1<0~1 F3.0 WAIT0 F4.0 SEND:x:3.0>2~0 SEND:x:5.0>2~2 RECV:dx:3.0<2~3 "
        "RECV:dx:5.0<2~4 F3.1 WAIT1 F4.1 SEND:x:3.1>2~1 SEND:x:5.1>2~5 WAIT0 WAIT2 WAIT3 WAIT4 RECV:dx:3.1<2~0 "
        "RECV:dx:5.1<2~2 B4.0 B3.0 SEND:dx:3.0>0~3 WAIT1 WAIT5 WAIT0 WAIT2 B4.1 B3.1 SEND:dx:3.1>0 WAIT3 NORM3-4 "
        "AGREE STEP3-4");
    p.spec.stage = p.stage;
    GxSteps s[3];
    GxError err = GX_ZERO;
    open_lists(s, &p.spec);
    // the second stage's message of micro-batch 0 is still sent when its layer's backward ends the memory
    int wait = 0, sent = 0, last = 0;
    while (s[1].action[sent].what != GX_DO_SEND) sent++;
    for (wait = sent; s[1].action[wait].what != GX_DO_WAIT || s[1].action[wait].ticket != s[1].action[sent].ticket;)
        wait++;
    for (last = wait; s[1].action[last].what != GX_DO_BACKWARD || s[1].action[last].unit != 4;) last++;
    GxAction moved = s[1].action[wait];
    moved.ticket = s[1].action[sent].ticket = 9; // which nothing has
    for (int i = wait; i < last; i++) s[1].action[i] = s[1].action[i + 1];
    s[1].action[last] = moved;
    CHECK(gx_steps_check(&s[1], &err) != GX_OK && strstr(err.message, "is still at x of unit 3"), "%s", err.message);
    close_lists(s, 3);
}

// Each TIE once, in their order, of the right kind.
TEST(ties_that_are_wrong_are_refused)
{
    static const char *const says[] = {"the 3 TIEs of tensor 1 have been done", "TIE3=2 comes first",
                                       "TIE3<>2 comes first", "unit 3 holds no trained tensor 2",
                                       "TIE3=2 must come before"};
    Pipeline p;
    memset(&p, 0, sizeof p);
    p.spec.units = 7, p.spec.ranks = 3, p.spec.micro_batches = 1, p.spec.memory = 2, p.spec.is_tied = 1,
    p.spec.rank = 1;
    p.stage[1] = 3, p.stage[2] = 5, p.stage[3] = 7, p.spec.stage = p.stage;
    for (int k = 0; k < 5; k++) {
        GxSteps made, s;
        GxError err = GX_ZERO;
        GxAction a[ACTIONS];
        int first = 0, n;
        CHECK(gx_steps_make(&made, &p.spec, &err) == GX_OK, "%s", err.message);
        memcpy(a, made.action, (size_t)made.n * sizeof *a), n = made.n;
        while (a[first].what != GX_DO_TIE) first++;
        if (k == 0)
            memmove(a + first + 4, a + first + 3, (size_t)(n++ - first - 3) * sizeof *a), a[first + 3] = a[first + 2];
        if (k == 1) a[first + 2].half = GX_TIE_ADDS;
        if (k == 2) a[first].half = GX_TIE_TAKES;
        if (k == 3) a[first].count = 2;
        if (k == 4) memmove(a + first + 2, a + first + 3, (size_t)(--n - first - 2) * sizeof *a);
        CHECK(gx_steps_open(&s, &p.spec, a, n, &err) == GX_OK, "%s", err.message);
        CHECK(gx_steps_check(&s, &err) != GX_OK && strstr(err.message, says[k]), "%d: %s", k, err.message);
        gx_steps_close(&s), gx_steps_close(&made);
    }
    static const uint8_t shares[7] = {0, 0, 0, 4, 0, 0, 1};
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    p.spec.shares = shares;
    CHECK(gx_steps_make(&s, &p.spec, &err) == GX_ERR_UNSUPPORTED && strstr(err.message, "at most 3 can be shared"),
          "%s", err.message);
}

// A layer whose stage has unit 0 adds to its tensor; the first one of another stage, which has a copy, gets what the
// others there add. Each of two tensors is added up by those that have it.
TEST(layers_share_tensors_of_the_first_unit)
{
    static const uint8_t shares[7] = {0, 2, 0, 1, 3, 3, 1};
    Pipeline p;
    GxSteps s;
    memset(&p, 0, sizeof p);
    p.spec.units = 7, p.spec.ranks = 2, p.spec.micro_batches = 1, p.spec.memory = 2, p.spec.is_tied = 1;
    p.spec.shares = shares, p.stage[1] = 3, p.stage[2] = 7;
    expect_list(&p, 0, "COUNT F0 F1 F2 SEND:x:3>1 RECV:dx:3<1 B2 B1 B0 TIE0<>1 TIE0<>1 NORM0-2 AGREE STEP0-2");
    expect_list(&p, 1, "COUNT RECV:x:3<0 F3 F4 F5 B6 B5 B4 B3 SEND:dx:3>0 TIE3<>0 TIE4<>0 NORM3-6 AGREE STEP3-6");
    p.spec.frozen_shares = 1 << 3;
    expect_list(&p, 0, "COUNT F0 F1 F2 SEND:x:3>1 RECV:dx:3<1 B2 B1 B0 TIE0<>1 NORM0-2 AGREE STEP0-2");
    p.spec.frozen_shares = 0, p.spec.sharded = 3, p.spec.shard_axes = 8, p.spec.gathered = 2, p.spec.rank = 1;
    p.spec.stage = p.stage;
    GxError err = GX_ZERO;
    CHECK(gx_steps_make(&s, &p.spec, &err) == GX_OK && gx_steps_check(&s, &err) == GX_OK, "%s", err.message);
    CHECK(strstr(text_of(&s), "GATHER4 F4 GATHER5 F5 FREE4 FREE5 GATHER3 GATHER6 B6"), "found\n%s", text_of(&s));
    gx_steps_close(&s);
}

// A gradient passes stages by in which nothing has a backward, and comes to none below the lowest trained unit; what is
// below keeps nothing and ends with its messages. A stage that trains nothing has no NORM and no STEP.
TEST(messages_go_where_there_is_a_backward)
{
    static const uint8_t frozen[5] = {0, 1, 1, 1, 0}, bypassed[5] = {0, 0, 1, 0, 0}, below[5] = {1, 1, 1, 0, 1};
    static const char *const beside[3] = {"COUNT F0 F1 SEND:x:2>1 RECV:dx:3<2 B1 B0 NORM0 AGREE STEP0",
                                          "COUNT RECV:x:2<0 F2 SEND:x:3>2 AGREE",
                                          "COUNT RECV:x:3<1 F3 B4 B3 SEND:dx:3>0 NORM4 AGREE STEP4"};
    static const char *const lowest[3] = {"COUNT F0 F1 SEND:x:2>1 AGREE", "COUNT RECV:x:2<0 F2 SEND:x:3>2 AGREE",
                                          "COUNT RECV:x:3<1 F3 B4 B3 NORM3 AGREE STEP3"};
    for (int k = 0; k < 2; k++) {
        GxSteps s[3];
        Pipeline p = simple(GX_ORDER_1F1B, 3, 1);
        p.spec.stage = p.stage;
        p.spec.frozen = k ? below : frozen, p.spec.bypassed = k ? NULL : bypassed;
        open_lists(s, &p.spec);
        for (int r = 0; r < 3; r++) {
            const char *expected = k ? lowest[r] : beside[r];
            CHECK(!strcmp(text_of(&s[r]), expected), "rank %d: found\n%s, expected\n%s", r, text_of(&s[r]), expected);
        }
        const char *why = goes_wrong(s, 3, NULL);
        CHECK(!why, "%s", why);
        close_lists(s, 3);
    }
}

// ---- what lists compute --------------------------------------------------------------------------------------------

TEST(every_pipeline_computes_what_plain_loops_do)
{
    int n[4] = {0};
    random_state = 11;
    for (int k = 0; k < SPECS; k++) {
        Pipeline p;
        GxSteps s[RANKS];
        GxError err = GX_ZERO;
        int64_t x[UNITS], slot[UNITS], weights[UNITS], grads[UNITS];
        at_random(&p);
        p.spec.stage = p.stage;
        if (gx_steps_lowest(&p.spec) == p.spec.units) continue;
        for (int u = 0; u < UNITS; u++) x[u] = random_below(3) ? 256 : 64, slot[u] = 64 * random_below(9);
        for (int u = 0; u < UNITS; u++) weights[u] = 64 * random_below(5), grads[u] = 64 * random_below(5);
        const GxStepsBytes bytes = {x, NULL, slot, weights, grads};
        open_lists(s, &p.spec);
        CHECK(gx_steps_check_ranks(s, p.spec.ranks, &err) == GX_OK, "%d: %s: %s", k, text_of(s), err.message);
        const char *why = goes_wrong(s, p.spec.ranks, NULL);
        CHECK(!why, "%d, %s of %d ranks: %s", k, gx_order_info(p.spec.order)->name, p.spec.ranks, why);
        for (int r = 0; r < p.spec.ranks; r++) {
            CHECK(gx_steps_place(&s[r], &bytes, &err) == GX_OK, "%d: rank %d: %s", k, r, err.message);
            CHECK(gx_steps_check_place(&s[r], &bytes, &err) == GX_OK, "%d: rank %d: %s", k, r, err.message);
        }
        why = goes_wrong(s, p.spec.ranks, &bytes);
        CHECK(!why, "%d, %s of %d ranks, in memory: %s", k, gx_order_info(p.spec.order)->name, p.spec.ranks, why);
        close_lists(s, p.spec.ranks);
        n[p.spec.sharded]++;
    }
    printf("    %d pipelines; %d with shards: %d, %d, %d\n", n[0], n[1] + n[2] + n[3], n[1], n[2], n[3]);
}

// Tens of thousands of lives that follow one another without a pause: micro-batches take no longer each than in a small
// window, and hardly more memory.
TEST(windows_of_thousands_of_micro_batches_are_placed)
{
    static const int64_t x[6] = {64, 256, 256, 256, 256, 256}, slot[6] = {0, 1024, 960, 1024, 1024, 4096},
                         weights[6] = {4096, 512, 512, 512, 4096, 0}, grads[6] = {8192, 1024, 1024, 1024, 8192, 0};
    static const struct {
        int order, sharded, each;
    } cases[] = {{GX_ORDER_1F1B, 0, 0}, {GX_ORDER_ZB1P, 0, 0}, {GX_ORDER_1F1B, 3, 0}, {GX_ORDER_ZB1P, 3, 1}};
    const GxStepsBytes bytes = {x, NULL, slot, weights, grads};
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxSteps s[3];
        GxError err = GX_ZERO;
        Pipeline p = simple(cases[k].order, 3, 12000);
        p.spec.stage = p.stage, p.spec.units = 5;
        p.spec.sharded = cases[k].sharded, p.spec.shard_axes = 8, p.spec.gathered = 1;
        p.spec.scatters_each = cases[k].each;
        open_lists(s, &p.spec);
        for (int r = 0; r < 3; r++) {
            CHECK(gx_steps_place(&s[r], &bytes, &err) == GX_OK, "%s", err.message);
            CHECK(gx_steps_check_place(&s[r], &bytes, &err) == GX_OK, "%s", err.message);
            CHECK((double)s[r].bytes <= 1.07 * (double)s[r].most,
                  "case %u, rank %d: %ld bytes, of which %ld are alive at once", k, r, (long)s[r].bytes,
                  (long)s[r].most);
        }
        close_lists(s, 3);
    }
}

// ---- published formulas --------------------------------------------------------------------------------------------

// A layer's F, b and W take 1 each.
static double cost(const void *user, const GxStepsSpec *p, const GxAction *a)
{
    (void)user;
    if (a->unit <= 0 || a->unit >= p->units - 1 || a->what > GX_DO_WEIGHT) return 0;
    return a->what == GX_DO_BACKWARD && a->half == GX_HALF_NONE ? 2 : 1;
}

// The list of m forwards, one after the other.
static void repeat(GxSteps *s, const GxSteps *one, int m)
{
    GxAction action[16 * 8];
    GxStepsSpec spec = one->spec;
    GxError err = GX_ZERO;
    for (int i = 0; i < m * one->n; i++)
        action[i] = one->action[i % one->n], action[i].micro_batch = (int16_t)(i / one->n);
    spec.micro_batches = m;
    CHECK(gx_steps_open(s, &spec, action, m * one->n, &err) == GX_OK, "%s", err.message);
}

// So a validation of m batches on n stages takes n - 1 forwards longer than m forwards on one.
TEST(forwards_that_follow_each_other_wait_for_the_stages_once)
{
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int m = 1; m <= 16; m++) {
            GxSteps one[RANKS], s[RANKS];
            GxError err = GX_ZERO;
            double span = 0;
            Pipeline p = simple(GX_ORDER_1F1B, ranks, 1);
            p.spec.kind = GX_STEPS_FORWARD, p.spec.stage = p.stage;
            open_lists(one, &p.spec);
            for (int r = 0; r < ranks; r++) repeat(&s[r], &one[r], m);
            CHECK(gx_steps_check_ranks(s, ranks, &err) == GX_OK, "%s", err.message);
            CHECK(gx_steps_time(s, ranks, cost, NULL, NULL, &span, &err) == GX_OK, "%s", err.message);
            CHECK(span == m + ranks - 1, "%d ranks, %d micro-batches: %g", ranks, m, span);
            close_lists(s, ranks), close_lists(one, ranks);
        }
}

// Slots of layers that a rank has at once.
static int most_slots(const GxSteps *s)
{
    int n = 0, most = 0;
    for (int i = 0; i < s->n; i++) {
        const GxAction *a = &s->action[i];
        if (a->unit <= 0 || a->unit >= s->spec.units - 1) continue;
        n += a->what == GX_DO_FORWARD;
        most = (int)gx_max(most, n);
        n -= a->what == GX_DO_WEIGHT || (a->what == GX_DO_BACKWARD && a->half == GX_HALF_NONE);
    }
    return most;
}

static int expected_slots(int order, int p, int m, int r)
{
    switch (order) {
    case GX_ORDER_GPIPE: return m;
    case GX_ORDER_1F1B: return (int)gx_min(p - r, m);
    case GX_ORDER_INTERLEAVED: return (int)gx_min(2 * (p - r - 1) + p + 1, 2 * m);
    case GX_ORDER_ZB1P: return (int)gx_min(p, m);
    default: return 2 * p;
    }
}

TEST(times_and_slots_are_those_of_the_formulas)
{
    for (int order = 0; order < GX_ORDERS; order++)
        for (int ranks = 1; ranks <= RANKS; ranks++)
            for (int m = ranks; m <= 16; m++) {
                const GxOrderInfo *info = gx_order_info(order);
                if ((info->by_ranks && m % ranks) || (order == GX_ORDER_ZBV && m < 2 * ranks - 1)) continue;
                GxSteps s[RANKS];
                GxTimeline t;
                GxError err = GX_ZERO;
                double span = 0;
                Pipeline p = simple(order, ranks, m);
                p.spec.stage = p.stage;
                open_lists(s, &p.spec);
                CHECK(gx_timeline_make(&t, &p.spec, &err) == GX_OK, "%s", err.message);
                CHECK(gx_steps_time(s, ranks, cost, NULL, NULL, &span, &err) == GX_OK, "%s", err.message);
                const int work = 3 * m * info->chunks, bubble = (info->has_halves ? 1 : 3) * (ranks - 1);
                CHECK(t.span == work + bubble, "%s of %d ranks, %d micro-batches: %ld, not %d + %d", info->name, ranks,
                      m, (long)t.span, work, bubble);
                // Ranks that wait for each other at every message lose nothing by it, but in interleaved, where a rank
                // sends to one that is in the middle of a backward.
                CHECK(order == GX_ORDER_INTERLEAVED ? span >= (double)t.span && span <= 1.31 * (double)t.span
                                                    : span == (double)t.span,
                      "%s of %d ranks, %d micro-batches: %g where messages block, not %ld", info->name, ranks, m, span,
                      (long)t.span);
                gx_timeline_close(&t);
                for (int r = 0; r < ranks; r++) {
                    const int expected = expected_slots(order, ranks, m, r);
                    CHECK(most_slots(&s[r]) == expected, "%s of %d ranks, %d micro-batches, rank %d: %d slots, not %d",
                          info->name, ranks, m, r, most_slots(&s[r]), expected);
                }
                close_lists(s, ranks);
            }
}

// A rank with more forwards ahead keeps as many slots more. Where nobody waits for messages, equal stages are as fast,
// if no rank has more than the one before, and the last one has none.
TEST(forwards_ahead_keep_slots_and_cost_no_time)
{
    random_state = 23;
    for (int k = 0; k < SPECS / 2; k++) {
        const int is_zb = k % 2, ranks = 1 + random_below(RANKS), m = ranks + random_below(17 - ranks);
        GxSteps s[RANKS];
        GxError err = GX_ZERO;
        GxTimeline t;
        Pipeline p = simple(is_zb ? GX_ORDER_ZB1P : GX_ORDER_1F1B, ranks, m);
        p.spec.stage = p.stage;
        warm_at_random(&p);
        open_lists(s, &p.spec);
        CHECK(gx_steps_check_ranks(s, ranks, &err) == GX_OK, "%s", err.message);
        CHECK(gx_timeline_make(&t, &p.spec, &err) == GX_OK, "%s", err.message);
        for (int r = 0; r < ranks; r++) {
            const int expected = (int)gx_min(ranks - (is_zb ? 0 : r) + p.warm[r], m);
            CHECK(most_slots(&s[r]) == expected, "%s of %d ranks, %d micro-batches, rank %d, warm %d: %d slots, not %d",
                  gx_order_info(p.spec.order)->name, ranks, m, r, p.warm[r], most_slots(&s[r]), expected);
        }
        int falls = !p.warm[ranks - 1];
        for (int r = 1; r < ranks; r++) falls &= p.warm[r] <= p.warm[r - 1];
        CHECK(!falls || t.span == 3 * m + (is_zb ? 1 : 3) * (ranks - 1), "%s of %d ranks, %d micro-batches: %ld",
              gx_order_info(p.spec.order)->name, ranks, m, (long)t.span);
        gx_timeline_close(&t);
        close_lists(s, ranks);
    }
}

// Four layers in each of a pipeline's ranks, whose units' weights are sharded; the ends with the first and the last.
static Pipeline of_four_layers(int order, int micro_batches, int gathered)
{
    enum { PIPE = 4 };
    Pipeline p = simple(order, PIPE, micro_batches);
    const int stages = PIPE * gx_order_info(order)->chunks, layers = 4 * PIPE / stages;
    for (int s = 1; s < stages; s++) p.stage[s] = (int16_t)(1 + s * layers);
    p.stage[stages] = (int16_t)(p.spec.units = 4 * PIPE + 2);
    p.spec.sharded = 3, p.spec.shard_axes = 8, p.spec.gathered = gathered;
    return p;
}

static int gathers_of(const GxSteps *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->action[i].what == GX_DO_GATHER;
    return n;
}

// How many there would be if a unit gave its place up that was read longest ago; this needs no look ahead.
static int gathers_if_the_oldest_goes(const GxSteps *s, int most)
{
    int whole[UNITS], n = 0, gathers = 0; // the one that was read last is last
    for (int i = 0; i < s->n; i++) {
        const GxAction *a = &s->action[i];
        int k = 0;
        if (a->what > GX_DO_BACKWARD || (a->what == GX_DO_BACKWARD && a->unit == 0)) continue;
        while (k < n && whole[k] != a->unit) k++;
        gathers += k == n;
        if (k == n && n < most) n++;
        else if (k == n) k = 0;
        for (; k + 1 < n; k++) whole[k] = whole[k + 1];
        whole[n - 1] = a->unit;
    }
    return gathers;
}

// One whole unit saves its gather where a forward and a backward meet; more save more there, and where forwards follow
// one another: two of 1F1B save 1 or 2 at each of both. If all fit, each is gathered once.
TEST(gathers_of_a_pipeline)
{
    static const struct {
        int most, gathers[4], oldest[4];
    } cases[] = {{1, {67, 53, 51, 65}, {67, 53, 51, 65}},
                 {2, {50, 36, 34, 50}, {58, 42, 38, 50}},
                 {4, {16, 4, 4, 20}, {28, 4, 4, 20}},
                 {5, {5, 4, 4, 5}, {5, 4, 4, 5}}};
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxSteps s[4];
        Pipeline p = of_four_layers(GX_ORDER_1F1B, 8, cases[k].most);
        p.spec.stage = p.stage;
        open_lists(s, &p.spec);
        for (int r = 0; r < 4; r++) {
            const int gathers = gathers_of(&s[r]), oldest = gathers_if_the_oldest_goes(&s[r], cases[k].most);
            CHECK(gathers == cases[k].gathers[r] && oldest == cases[k].oldest[r],
                  "%d whole, rank %d: %d gathers, if the oldest goes %d; not %d and %d", cases[k].most, r, gathers,
                  oldest, cases[k].gathers[r], cases[k].oldest[r]);
        }
        close_lists(s, 4);
    }
    for (int order = 0; order < GX_ORDERS; order++)
        for (int most = 1; most <= 6; most++) {
            GxSteps s[4];
            Pipeline p = of_four_layers(order, 8, most);
            p.spec.stage = p.stage;
            open_lists(s, &p.spec);
            for (int r = 0; r < 4; r++)
                CHECK(gathers_of(&s[r]) <= gathers_if_the_oldest_goes(&s[r], most), "%s, %d whole, rank %d: %d gathers",
                      gx_order_info(order)->name, most, r, gathers_of(&s[r]));
            close_lists(s, 4);
        }
}

// Steps take longest on rank 0.
static double cost_of_steps(const void *user, const GxStepsSpec *p, const GxAction *a)
{
    return cost(user, p, a) + (a->what == GX_DO_STEP && p->rank == 0 ? 5 : 0);
}

TEST(times_are_those_at_which_actions_end)
{
    GxSteps s[2];
    GxError err = GX_ZERO;
    double end[2][40] = {{0}}, *const ends[2] = {end[0], end[1]}, span;
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.stage = p.stage;
    open_lists(s, &p.spec);
    CHECK(gx_steps_time(s, 2, cost, NULL, ends, &span, &err) == GX_OK, "%s", err.message);
    CHECK(span == 9, "%g", span);
    for (int i = 0; i + 1 < s[0].n; i++) CHECK(end[0][i] <= end[0][i + 1], "action %d ends after the next one", i);
    CHECK(end[0][2] == 1 && end[1][2] == 2, "F1.0 ends at %g, F2.0 at %g", end[0][2], end[1][2]);
    CHECK(end[0][s[0].n - 1] == 9 && end[1][s[1].n - 1] == 9, "the last actions end at %g and %g", end[0][s[0].n - 1],
          end[1][s[1].n - 1]);
    CHECK(gx_steps_time(s, 2, cost_of_steps, NULL, ends, &span, &err) == GX_OK, "%s", err.message);
    CHECK(span == 19 && end[1][s[1].n - 1] == 9, "%g, rank 1 until %g", span, end[1][s[1].n - 1]);
    close_lists(s, 2);
}

// A message to rank 1 takes 3, one to rank 0 5; adding up the matrix of both 7.
static double cost_of_messages(const void *user, const GxStepsSpec *p, const GxAction *a)
{
    if (a->what == GX_DO_SEND) return a->peer ? 3 : 5;
    if (a->what == GX_DO_RECV || (a->what == GX_DO_TIE && p->rank != 0)) return 1000;
    return a->what == GX_DO_TIE ? 7 : cost(user, p, a);
}

TEST(both_ranks_are_in_a_message_until_it_ends)
{
    GxSteps s[2];
    GxError err = GX_ZERO;
    double end[2][40] = {{0}}, *const ends[2] = {end[0], end[1]}, span;
    Pipeline p = simple(GX_ORDER_1F1B, 2, 1);
    p.spec.stage = p.stage, p.spec.is_tied = 1;
    open_lists(s, &p.spec);
    CHECK(gx_steps_time(s, 2, cost_of_messages, NULL, ends, &span, &err) == GX_OK, "%s", err.message);
    // COUNT F0 F1 SEND RECV B1 B0 TIE, and COUNT RECV F2 B3 B2 SEND TIE
    const double expected[2][8] = {{0, 0, 1, 4, 12, 14, 14, 21}, {0, 4, 5, 5, 7, 12, 21}};
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 8 - r; i++)
            CHECK(end[r][i] == expected[r][i], "rank %d, action %d ends at %g, not %g", r, i, end[r][i],
                  expected[r][i]);
    CHECK(span == 21, "%g", span);
    close_lists(s, 2);
}

// ---- what is broken ------------------------------------------------------------------------------------------------

typedef struct {
    long tried, accepted;
} Tally;

// Rank r does something else.
static void try_mutant(const GxSteps *s, int r, const GxAction *action, int n, const char *what, Tally *tally)
{
    GxSteps list[RANKS];
    GxError err = GX_ZERO;
    memcpy(list, s, (size_t)s->spec.ranks * sizeof *list);
    if (gx_steps_open(&list[r], &s[r].spec, action, n, &err) != GX_OK) return;
    const int accepted = gx_steps_check_ranks(list, s->spec.ranks, &err) == GX_OK;
    const char *why = accepted ? goes_wrong(list, s->spec.ranks, NULL) : NULL;
    CHECK(!why, "%s was accepted: rank %d: %s: %s", what, r, text_of(&list[r]), why ? why : "");
    CHECK(accepted || !strncmp(err.message, "rank ", 5) || !strncmp(err.message, "messages from rank ", 19), "%s",
          err.message);
    tally->tried++, tally->accepted += accepted;
    gx_steps_close(&list[r]);
}

static void try_mutants(const GxSteps *s, int r, Tally tally[4])
{
    static GxAction a[ACTIONS];
    const int n = s[r].n;
    for (int i = 0; i < n; i++) {
        const size_t rest = (size_t)(n - i);
        memcpy(a, s[r].action, (size_t)n * sizeof *a);
        memmove(a + i, a + i + 1, (rest - 1) * sizeof *a);
        try_mutant(s, r, a, n - 1, "a list without an action", &tally[0]);
        memcpy(a, s[r].action, (size_t)n * sizeof *a);
        if (i + 1 < n) {
            a[i] = s[r].action[i + 1], a[i + 1] = s[r].action[i];
            try_mutant(s, r, a, n, "a list with two neighbours swapped", &tally[1]);
            a[i] = s[r].action[i], a[i + 1] = s[r].action[i + 1];
        }
        const int to = random_below(n); // moved
        const GxAction moved = a[i];
        memmove(a + i, a + i + 1, (rest - 1) * sizeof *a);
        memmove(a + to + 1, a + to, (size_t)(n - 1 - to) * sizeof *a);
        a[to] = moved;
        try_mutant(s, r, a, n, "a list with an action elsewhere", &tally[2]);
        memcpy(a, s[r].action, (size_t)n * sizeof *a);
        for (int k = 0; k < 4 && (a[i].what == GX_DO_SEND || a[i].what == GX_DO_RECV || a[i].what == GX_DO_TIE); k++) {
            a[i] = s[r].action[i];
            if (k == 0) a[i].peer = (int16_t)((a[i].peer + 1) % s->spec.ranks);
            if (k == 1) a[i].unit++;
            if (k == 2) a[i].micro_batch = (int16_t)((a[i].micro_batch + 1) % s->spec.micro_batches);
            if (k == 3) a[i].object = (int8_t)(a[i].object == GX_OBJECT_X ? GX_OBJECT_DX : GX_OBJECT_X);
            if (memcmp(&a[i], &s[r].action[i], sizeof *a)) try_mutant(s, r, a, n, "another message", &tally[3]);
        }
    }
}

TEST(a_broken_pipeline_is_refused_and_one_that_is_accepted_is_equivalent)
{
    static const char *const what[4] = {"deleted", "neighbours swapped", "elsewhere", "another message"};
    Tally tally[4];
    memset(tally, 0, sizeof tally);
    random_state = 5;
    for (int k = 0; k < SPECS / 40; k++) {
        Pipeline p;
        GxSteps s[RANKS];
        at_random(&p);
        p.spec.stage = p.stage;
        if (gx_steps_lowest(&p.spec) == p.spec.units) continue;
        open_lists(s, &p.spec);
        for (int r = 0; r < p.spec.ranks; r++) try_mutants(s, r, tally);
        close_lists(s, p.spec.ranks);
    }
    for (int i = 0; i < 4; i++)
        printf("    %-20s %6ld tried, %5ld accepted, all equivalent\n", what[i], tally[i].tried, tally[i].accepted);
    CHECK(tally[0].accepted == 0, "%ld lists without one of their actions were accepted", tally[0].accepted);
    CHECK(tally[3].accepted == 0, "%ld lists with another message were accepted", tally[3].accepted);
}

static void expect_refusal(const GxSteps *s, const char *says)
{
    GxError err = GX_ZERO;
    CHECK(gx_steps_check_ranks(s, s->spec.ranks, &err) != GX_OK && !strcmp(err.message, says),
          "found\n%s, expected\n%s", err.message, says);
}

static void move(GxSteps *s, int from, int to)
{
    const GxAction a = s->action[from];
    memmove(s->action + from, s->action + from + 1, (size_t)(s->n - 1 - from) * sizeof a);
    memmove(s->action + to + 1, s->action + to, (size_t)(s->n - 1 - to) * sizeof a);
    s->action[to] = a;
}

TEST(a_refusal_names_rank_action_and_what_it_waits_for)
{
    GxSteps s[2];
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.stage = p.stage;
    open_lists(s, &p.spec);
    move(&s[0], 7, 1); // RECV:dx:2.0 before F0.0
    expect_refusal(s, "rank 0, at action 1 (RECV:dx:2<1 of micro-batch 0), waits for rank 1, which is at action 1 "
                      "(RECV:x:2<0 of micro-batch 0) and does not go on");
    move(&s[0], 1, 7);
    move(&s[1], 3, 1); // RECV:x:2.1 before RECV:x:2.0
    expect_refusal(s,
                   "messages from rank 0 to rank 1: action 3 (SEND:x:2>1 of micro-batch 0) of the one meets action 1 "
                   "(RECV:x:2<0 of micro-batch 1) of the other");
    move(&s[1], 1, 3);
    GxAction *send = &s[0].action[3];
    send->peer = 0;
    expect_refusal(s, "rank 0: action 3 (SEND:x:2>0 of micro-batch 0): it goes from rank 0 to rank 1");
    send->peer = 1, send->unit = 1;
    expect_refusal(s, "rank 0: action 3 (SEND:x:1>1 of micro-batch 0): no x of unit 1 goes from one rank to another");
    send->unit = 2;
    s[0].action[2].unit = 2; // F2
    expect_refusal(s, "rank 0: action 2 (F2 of micro-batch 0): unit 2 is rank 1's, and this is rank 0");
    s[0].action[2].unit = 1;
    move(&s[1], 1, 2); // F2.0 before its x has come
    expect_refusal(s, "rank 1: action 1 (F2 of micro-batch 0): it needs x of unit 2, micro-batch 0: RECV:x:2 must come "
                      "before");
    move(&s[1], 2, 1);
    move(&s[0], 7, 4); // RECV:dx:2.0 behind SEND:x:2.0, which passes
    expect_refusal(s, "rank 0, at action 4 (RECV:dx:2<1 of micro-batch 0), waits for rank 1, which is at action 3 "
                      "(RECV:x:2<0 of micro-batch 1) and does not go on");
    move(&s[0], 4, 7);
    move(&s[0], 3, 2); // SEND:x:2.0 before F1.0
    expect_refusal(s, "rank 0: action 2 (SEND:x:2>1 of micro-batch 0): it needs x of unit 2, micro-batch 0: F1 must "
                      "come before");
    move(&s[0], 2, 3);
    GxAction *recv = &s[1].action[1];
    recv->what = GX_DO_SEND, recv->peer = 1; // to itself
    expect_refusal(s, "rank 1: action 1 (SEND:x:2>1 of micro-batch 0): it goes from rank 0 to rank 1");
    recv->what = GX_DO_RECV, recv->peer = 0;
    move(&s[1], 10, s[1].n - 1), s[1].n--; // no SEND:dx:2.1
    expect_refusal(s, "rank 1: the end of the list: nothing has ended dx of unit 2, micro-batch 1, which action 9 (B2 "
                      "of micro-batch 1) made");
    s[1].n++, move(&s[1], s[1].n - 1, 10);
    GxError err = GX_ZERO;
    CHECK(gx_steps_check_ranks(s, 1, &err) != GX_OK &&
              !strcmp(err.message, "list 0 is that of rank 0 of 2; there are 1 lists"),
          "%s", err.message);
    s[1].spec.rank = 0;
    expect_refusal(s, "list 1 is that of rank 0 of 2; there are 2 lists");
    s[1].spec.rank = 1;
    s[1].action[12].what = GX_DO_COUNT; // in place of NORM3
    expect_refusal(s, "rank 1: action 12 (COUNT): COUNT is the first action of a training list, on all ranks");
    close_lists(s, 2);
}

TEST(what_two_ranks_add_up_is_refused_if_one_does_not_come_or_another_does)
{
    static const struct {
        int unit, peer;
        const char *says;
    } cases[] = {
        {0, 0, "rank 0: action 13 (TIE0<>0): TIE0<>1 comes first"},
        {1, 1, "rank 0: action 13 (TIE1<>1): unit 1 holds no trained tensor 1 that another rank has, too"},
        {3, 1, "rank 0: action 13 (TIE3<>1): unit 3 is rank 1's, and this is rank 0"},
    };
    GxSteps s[2];
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.stage = p.stage, p.spec.is_tied = 1;
    open_lists(s, &p.spec);
    GxAction *tie = &s[0].action[13];
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        tie->unit = (int16_t)cases[k].unit, tie->peer = (int16_t)cases[k].peer;
        expect_refusal(s, cases[k].says);
    }
    tie->unit = 0, tie->peer = 1;
    move(&s[0], 13, 12); // before the last B0
    expect_refusal(s, "rank 0: action 12 (TIE0<>1): the gradients of unit 0 have 1 of 2 contributions: every B0 (of a "
                      "half, its W0) must come before");
    move(&s[0], 12, 15); // behind the norm
    expect_refusal(s, "rank 0: action 13 (NORM0): the gradients of unit 0 lack those of rank 1, which has a tensor of "
                      "it, too: TIE0<>1 must come before");
    close_lists(s, 2);
}

// In a run a rank's first NORM waits for the sum of the ranks before it (gx_grads_receive_squares), and these have
// theirs when they have got all gradients.
TEST(a_message_behind_a_norm_is_refused)
{
    GxSteps s[2];
    GxError err = GX_ZERO;
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.stage = p.stage;
    open_lists(s, &p.spec);
    move(&s[1], 10, 12); // SEND:dx:2.1 behind NORM2-3
    CHECK(gx_steps_check_ranks(s, 2, &err) != GX_OK, "accepted: %s", text_of(&s[1]));
    close_lists(s, 2);
}

TEST(a_rank_that_trains_nothing_agrees_all_the_same)
{
    static const uint8_t frozen[5] = {1, 1, 1, 0, 1};
    GxSteps s[3];
    GxError err = GX_ZERO;
    Pipeline p = simple(GX_ORDER_1F1B, 3, 1);
    p.spec.stage = p.stage, p.spec.frozen = frozen;
    open_lists(s, &p.spec);
    s[0].n--; // no AGREE
    CHECK(gx_steps_check(&s[0], &err) != GX_OK, "accepted: %s", text_of(&s[0]));
    close_lists(s, 3);
}

TEST(ranks_agree_over_the_same_axes)
{
    GxSteps s[2];
    GxError err = GX_ZERO;
    Pipeline p = simple(GX_ORDER_1F1B, 2, 2);
    p.spec.stage = p.stage;
    open_lists(s, &p.spec);
    for (int i = 0; i < s[1].n; i++)
        if (s[1].action[i].what == GX_DO_AGREE) s[1].action[i].axes = s[1].spec.agree_axes = 16;
    CHECK(gx_steps_check_ranks(s, 2, &err) != GX_OK, "accepted: AGREE over axes 0 and 16");
    close_lists(s, 2);
}

TEST(forwards_ahead_that_cannot_be_are_refused)
{
    static const struct {
        int order, micro_batches;
        int16_t warm[3];
        const char *says; // NULL: the list is made
    } cases[] = {
        {GX_ORDER_GPIPE,
         4,
         {0, 1, 0},
         "order gpipe with 1 forwards ahead (warm) on rank 1; only 1f1b and zb1p can have them"},
        {GX_ORDER_GPIPE, 4, {0, 0, 0}, NULL},
        {GX_ORDER_1F1B, 4, {1, 0, -1}, "rank 2 has -1 forwards ahead (warm); it must be 0 or more"},
        {GX_ORDER_ZB1P,
         9,
         {1, 3, 0},
         "rank 1 has 3 forwards ahead (warm), and rank 0, which has 1, would wait for it for ever; it can have 2"},
        {GX_ORDER_ZB1P, 9, {1, 2, 3}, NULL},
        {GX_ORDER_1F1B, 4, {1, 9, 7}, NULL}, // more than there are micro-batches
        {GX_ORDER_1F1B,
         5,
         {1, 9, 7},
         "rank 1 has 9 forwards ahead (warm), and rank 0, which has 1, would wait for it for ever; it can have 2"},
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxSteps s;
        GxError err = GX_ZERO;
        Pipeline p = simple(cases[k].order, 3, cases[k].micro_batches);
        p.spec.stage = p.stage, p.spec.warm = cases[k].warm;
        const int is_made = gx_steps_make(&s, &p.spec, &err) == GX_OK;
        CHECK(is_made ? !cases[k].says : cases[k].says && !strcmp(err.message, cases[k].says), "%u: %s", k,
              err.message);
        gx_steps_close(&s);
        p.spec.kind = GX_STEPS_FORWARD; // which has no backwards that could wait
        CHECK(gx_steps_make(&s, &p.spec, &err) == GX_OK, "%u: %s", k, err.message);
        gx_steps_close(&s);
    }
}

TEST(pipelines_that_cannot_be_are_refused)
{
    static const struct {
        int order, ranks, micro_batches, of_rank, defers, is_tied; // tied: and the head alone is frozen
        int16_t stage[5];
        GxStatus code;
        const char *says;
    } cases[] = {
        {GX_ORDER_1F1B, 2, 2, 2, 0, 0, {0, 2, 4}, GX_ERR_ARGUMENT, "rank 2 of a pipeline of 2 ranks"},
        {GX_ORDER_1F1B, 2, 2, 0, 0, 0, {0, 4, 4}, GX_ERR_ARGUMENT, "stage 1 of 2 has no unit: [4, 4)"},
        {GX_ORDER_1F1B,
         2,
         2,
         0,
         0,
         0,
         {0, 2, 3},
         GX_ERR_ARGUMENT,
         "the 2 stages have units 0 to 2; they must be 0 to 3"},
        {GX_ORDER_1F1B,
         2,
         2,
         0,
         0,
         0,
         {1, 2, 4},
         GX_ERR_ARGUMENT,
         "the 2 stages have units 1 to 3; they must be 0 to 3"},
        {GX_ORDER_INTERLEAVED,
         2,
         3,
         0,
         0,
         0,
         {0, 1, 2, 3, 4},
         GX_ERR_ARGUMENT,
         "3 micro-batches on 2 ranks; order interleaved needs a multiple of the number of ranks"},
        {GX_ORDER_ZB1P,
         2,
         2,
         0,
         0,
         0,
         {0, 2, 4},
         GX_ERR_ARGUMENT,
         "order zb1p computes weight halves apart, and they are not deferred"},
        {GX_ORDER_1F1B,
         2,
         2,
         0,
         0,
         1,
         {0, 2, 4},
         GX_ERR_ARGUMENT,
         "units 0 and 3 share a tensor, and one of the two is trained and the other is not"},
    };
    static const uint8_t frozen[4] = {0, 0, 0, 1};
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxStepsSpec p = GX_ZERO;
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        p.units = 4, p.order = cases[k].order, p.ranks = cases[k].ranks, p.rank = cases[k].of_rank;
        p.micro_batches = cases[k].micro_batches, p.defers_weights = cases[k].defers, p.is_tied = cases[k].is_tied;
        p.stage = cases[k].stage, p.frozen = p.is_tied ? frozen : NULL;
        CHECK(gx_steps_make(&s, &p, &err) == cases[k].code && !strcmp(err.message, cases[k].says), "%u: %d %s", k,
              err.code, err.message);
        gx_steps_close(&s);
    }
    for (int ranks = 1; ranks <= 2; ranks++) {
        GxStepsSpec p = GX_ZERO;
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        p.units = 4, p.micro_batches = 2, p.ranks = ranks, p.order = ranks == 1 ? GX_ORDER_INTERLEAVED : GX_ORDER_1F1B;
        CHECK(gx_steps_make(&s, &p, &err) == GX_ERR_ARGUMENT &&
                  strstr(err.message, "nothing says which units are in which of the 2 stages"),
              "%d ranks: %s", ranks, err.message);
        gx_steps_close(&s);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
