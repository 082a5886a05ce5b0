// test_steps.cu: lists of actions: what is generated, what the checker accepts and refuses, where rows lie.
//
// What a list computes is known apart from the library: test/toy_steps.h.
#include "galaxy/parallel/steps_check.h"
#include "galaxy/parallel/steps_make.h"
#include "galaxy/parallel/steps_place.h"
#include "test/test.h"
#include "test/toy_steps.h"

// Of lists that are tried by the hundreds, every so many.
enum { APART = TEST_IS_SANITIZED ? 5 : 1 };

// ---- does a list do a step? ----------------------------------------------------------------------------------------

// A forward that does not keep its slot, and a head's backward, have one while they run.
static int has_slot_of_its_own(const GxStepsSpec *p, const GxAction *a)
{
    if (a->what == GX_DO_BACKWARD) return a->unit == p->units - 1;
    return a->what == GX_DO_FORWARD && a->keep != GX_KEEP_SLOT;
}

// Slots and bytes that are alive while action i runs: those before it and those after it; a gradient made in place
// once.
static void measure(Machine *m, const Machine *before, int i)
{
    const GxStepsSpec *p = &m->s->spec;
    const GxAction *a = &m->s->action[i];
    int64_t bytes = 0;
    int slots = 0;
    for (int u = 0; u < p->units; u++) {
        if (m->whole_at[u] >= 0 && (m->whole[u].is_there || before->whole[u].is_there)) bytes += m->bytes->weights[u];
        if (m->grads_at[u] >= 0 && (m->grads[u].is_there || before->grads[u].is_there)) bytes += m->bytes->grads[u];
        for (int b = 0; b < p->micro_batches; b++) {
            slots += m->slot[u][b].is_there || before->slot[u][b].is_there;
            if (m->slot[u][b].is_there || before->slot[u][b].is_there) bytes += m->bytes->slot[u];
            if (m->x[u][b].is_there || before->x[u][b].is_there) bytes += m->bytes->x[u];
            if (m->dx[u][b].is_there || before->dx[u][b].is_there) bytes += m->bytes->x[u];
        }
    }
    if (a->what == GX_DO_BACKWARD && a->unit + 1 < p->units && m->dx[a->unit][a->micro_batch].is_there &&
        m->bytes->x[a->unit] == m->bytes->x[a->unit + 1])
        bytes -= m->bytes->x[a->unit];
    if (has_slot_of_its_own(p, a)) slots++, bytes += m->bytes->slot[a->unit];
    m->most_slots = (int)gx_max(m->most_slots, slots);
    m->most = gx_max(m->most, bytes);
}

static int goes_well(Machine *m, const GxSteps *s, const GxStepsBytes *bytes, int is_late)
{
    static Machine before;
    uint64_t w[UNITS];
    start(m, s, bytes, is_late);
    for (int u = 0; u < s->spec.units; u++) w[u] = initial_weight(u);
    for (int i = 0; i < s->n; i++) {
        if (bytes) before = *m;
        run_or_start(m, i);
        if (bytes) measure(m, &before, i);
    }
    const uint64_t loss = plain_step(&s->spec, w);
    if (loss != m->loss) wrong(m, (int)gx_max(s->n - 1, 0), "another loss than plain loops");
    look_at_the_end(m, w);
    free(m->memory);
    return !m->wrong;
}

// 1: the list does what the plain loops do, and leaves nothing behind, whether what has a ticket happens when it is
// started or when it is waited for. With bytes: in its placement.
static Machine machine;
static int does_a_step(const GxSteps *s, const GxStepsBytes *bytes)
{
    return goes_well(&machine, s, bytes, 1) && (s->tickets == 0 || goes_well(&machine, s, bytes, 0));
}

// ---- many specifications -------------------------------------------------------------------------------------------

enum { SPECS = 4 * 3 * 2 * 2 * 3 * 2 * 6 * 4 + 24 };
static const uint8_t frozen_below[UNITS] = {1, 1}, frozen_inside[UNITS] = {0, 1, 0}, frozen_ends[UNITS] = {1};

// Specification number k of all; 0: there is no such one.
static int spec_at(int k, GxStepsSpec *p)
{
    static uint8_t all_but_head[UNITS], every_other[UNITS];
    memset(p, 0, sizeof *p);
    if (k >= SPECS - 24) {
        k -= SPECS - 24;
        p->kind = GX_STEPS_FORWARD;
        p->units = 2 + k % 4, p->micro_batches = 1 + k / 4 % 3, p->order = k / 12;
        return 1;
    }
    const int sizes[] = {4, 3, 2, 2, 3, 2, 6, 4};
    int at[8];
    for (int i = 0; i < 8; i++) at[i] = k % sizes[i], k /= sizes[i];
    p->units = 2 + at[0];
    p->micro_batches = 1 + at[1];
    p->order = at[2];
    p->recomputes_layers = at[3];
    p->defers_weights = at[4] > 0;
    p->weight_reads_x = at[4] == 2;
    p->is_tied = at[5];
    memset(all_but_head, 1, sizeof all_but_head);
    all_but_head[p->units - 1] = 0;
    for (int u = 0; u < UNITS; u++) every_other[u] = u % 2 == 0 && u < p->units - 1;
    const uint8_t *const frozen[] = {NULL, frozen_below, frozen_inside, frozen_ends, all_but_head, every_other};
    p->frozen = frozen[at[6]];
    p->bypassed = at[6] == 5 ? every_other : NULL;
    p->reduce_axes = at[7] ? 6 : 0;
    p->bucket = at[7] ? at[7] - 1 : 0, p->starts_sums = at[7] == 2 || (at[7] == 3 && p->micro_batches == 2);
    p->count_axes = 31, p->agree_axes = 14;
    // every fourth has an encoder
    if (k % 4 == 1 && p->units > 4 && !p->defers_weights && !p->bypassed) p->memory = 1 + k / 4 % (p->units - 4);
    return gx_steps_lowest(p) < p->units;
}

static void make(GxSteps *s, const GxStepsSpec *p)
{
    GxError err = GX_ZERO;
    CHECK(gx_steps_make(s, p, &err) == GX_OK, "%s", err.message);
}

static const char *text_of(const GxSteps *s)
{
    static char text[1 << 16];
    gx_steps_print(s, text, sizeof text);
    return text;
}

static GxStepsSpec simple(int layers, int micro_batches)
{
    GxStepsSpec p = GX_ZERO;
    p.units = layers + 2;
    p.micro_batches = micro_batches;
    return p;
}

static void expect_text(const GxStepsSpec *p, const char *expected)
{
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    make(&s, p);
    CHECK(!strcmp(text_of(&s), expected), "found\n%s, expected\n%s", text_of(&s), expected);
    CHECK(gx_steps_check(&s, &err) == GX_OK, "%s", err.message);
    gx_steps_close(&s);
}

// ---- what is generated ---------------------------------------------------------------------------------------------

TEST(the_serial_list)
{
    GxStepsSpec p = simple(2, 1);
    expect_text(&p, "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3");
}

TEST(orders_of_a_window)
{
    GxStepsSpec p = simple(1, 2);
    expect_text(&p, "COUNT F0.0 F1.0 B2.0 B1.0 B0.0 F0.1 F1.1 B2.1 B1.1 B0.1 NORM0-2 AGREE STEP0-2");
    p.order = GX_ORDER_GPIPE;
    expect_text(&p, "COUNT F0.0 F1.0 F0.1 F1.1 B2.0 B1.0 B0.0 B2.1 B1.1 B0.1 NORM0-2 AGREE STEP0-2");
    p.order = GX_ORDER_1F1B;
    p.defers_weights = 1;
    expect_text(&p, "COUNT F0.0 F1.0 B2.0 b1.0 B0.0 F0.1 F1.1 B2.1 b1.1 B0.1 W1.0 W1.1 NORM0-2 AGREE STEP0-2");
}

// Units: an embedding, a layer, the end of the encoder; an embedding, two layers, the head.
TEST(a_list_of_an_encoder_and_a_decoder)
{
    GxStepsSpec p = GX_ZERO;
    p.units = 7, p.micro_batches = 1, p.memory = 2;
    expect_text(&p, "COUNT F0 F1 F2 F3 F4 F5 B6 B5 B4 B3 B2 B1 B0 NORM0-6 AGREE STEP0-6");
    p.recomputes_layers = 1, p.is_tied = 1;
    expect_text(&p, "COUNT F0 F1 F2 F3 F4 F5 B6 R5 B5 R4 B4 B3 B2 R1 B1 B0 NORM0-6 AGREE STEP0-6");
    static const uint8_t encoder[] = {1, 1, 1, 0, 0, 0, 0};
    p.recomputes_layers = 0, p.frozen = encoder;
    expect_text(&p, "COUNT F0 F1 F2 F3 F4 F5 B6 B5 B4 B3 NORM3-6 AGREE STEP3-6");
    p.memory = 4;
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    CHECK(gx_steps_make(&s, &p, &err) == GX_ERR_ARGUMENT && strstr(err.message, "must be an embedding, a layer"), "%s",
          err.message);
    gx_error_clear(&err);
    p.memory = 2, p.defers_weights = 1;
    CHECK(gx_steps_make(&s, &p, &err) == GX_ERR_UNSUPPORTED && strstr(err.message, "an encoder"), "%s", err.message);
}

TEST(layers_are_computed_again_before_their_backward)
{
    GxStepsSpec p = simple(2, 1);
    GxSteps s = GX_ZERO;
    p.recomputes_layers = 1;
    expect_text(&p, "COUNT F0 F1 F2 B3 R2 B2 R1 B1 B0 NORM0-3 AGREE STEP0-3");
    make(&s, &p);
    CHECK(s.action[1].keep == GX_KEEP_SLOT && s.action[2].keep == GX_KEEP_INPUT && s.action[3].keep == GX_KEEP_INPUT,
          "F0, F1, F2 keep %d, %d, %d", s.action[1].keep, s.action[2].keep, s.action[3].keep);
    gx_steps_close(&s);
    const uint8_t recomputed[UNITS] = {1, 0, 1, 1}; // embedding and head never are
    p.recomputed = recomputed;
    expect_text(&p, "COUNT F0 F1 F2 B3 R2 B2 B1 B0 NORM0-3 AGREE STEP0-3");
    make(&s, &p);
    CHECK(s.action[2].keep == GX_KEEP_SLOT && s.action[3].keep == GX_KEEP_INPUT, "F1, F2 keep %d, %d", s.action[2].keep,
          s.action[3].keep);
    CHECK(s.spec.recomputed != recomputed && !memcmp(s.spec.recomputed, recomputed, 4), "it has no copy");
    gx_steps_close(&s);
    p.recomputes_layers = 0;
    expect_text(&p, "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3");
}

TEST(nothing_is_done_below_the_lowest_trained_unit)
{
    GxStepsSpec p = simple(2, 1);
    GxSteps s = GX_ZERO;
    uint8_t frozen[UNITS] = {1, 1, 0, 0};
    p.frozen = frozen;
    expect_text(&p, "COUNT F0 F1 F2 B3 B2 NORM2-3 AGREE STEP2-3");
    make(&s, &p);
    CHECK(s.action[1].keep == GX_KEEP_NOTHING && s.action[2].keep == GX_KEEP_NOTHING &&
              s.action[3].keep == GX_KEEP_SLOT,
          "F0, F1, F2 keep %d, %d, %d", s.action[1].keep, s.action[2].keep, s.action[3].keep);
    gx_steps_close(&s);
    frozen[2] = 1;
    expect_text(&p, "COUNT F0 F1 F2 B3 NORM3 AGREE STEP3");
    uint8_t inside[UNITS] = {0, 1, 0, 1};
    p.frozen = inside;
    p.defers_weights = 1; // a frozen layer has no weight half
    expect_text(&p, "COUNT F0 F1 F2 B3 b2 B1 B0 W2 NORM0 NORM2 AGREE STEP0 STEP2");
}

// Layers of a side network between those of a model, which keep nothing.
TEST(gradients_pass_by_what_has_no_backward)
{
    GxStepsSpec p = simple(5, 1);
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    const uint8_t beside[UNITS] = {1, 0, 1, 0, 1, 0, 1}; // the head is frozen, too, and has its backward
    const uint8_t bypassed[UNITS] = {1, 0, 1, 0, 1, 0, 0};
    p.frozen = beside, p.bypassed = bypassed;
    expect_text(&p, "COUNT F0 F1 F2 F3 F4 F5 B6 B5 B3 B1 NORM1 NORM3 NORM5 AGREE STEP1 STEP3 STEP5");
    make(&s, &p);
    for (int u = 0; u < 6; u++)
        CHECK(s.action[1 + u].keep == (u % 2 ? GX_KEEP_SLOT : GX_KEEP_NOTHING), "F%d keeps %d", u,
              s.action[1 + u].keep);
    s.action[9].unit = 4; // B4 in the place of B3
    CHECK(gx_steps_check(&s, &err) == GX_ERR_ARGUMENT && strstr(err.message, "action 9 (B4 of micro-batch 0)"), "%s",
          err.message);
    gx_steps_close(&s);
}

TEST(gradients_are_summed_in_buckets_behind_their_last_contribution)
{
    GxStepsSpec p = simple(2, 2);
    p.reduce_axes = 6;
    expect_text(&p,
                "COUNT F0.0 F1.0 F2.0 B3.0 B2.0 B1.0 B0.0 F0.1 F1.1 F2.1 B3.1 B2.1 B1.1 B0.1 REDUCE0-3 NORM0-3 AGREE "
                "STEP0-3");
    p.bucket = 2;
    expect_text(&p, "COUNT F0.0 F1.0 F2.0 B3.0 B2.0 B1.0 B0.0 F0.1 F1.1 F2.1 B3.1 B2.1 REDUCE2-3 B1.1 B0.1 REDUCE0-1 "
                    "NORM0-3 AGREE STEP0-3");
    p.micro_batches = 1;
    p.defers_weights = 1;
    p.bucket = 1;
    expect_text(&p, "COUNT F0 F1 F2 B3 REDUCE3 b2 b1 B0 REDUCE0 W2 REDUCE2 W1 REDUCE1 NORM0-3 AGREE STEP0-3");
    const uint8_t frozen[UNITS] = {0, 1, 1, 0}; // tied: unit 0's waits for the head's and its own
    p.frozen = frozen, p.is_tied = 1, p.bucket = 3;
    expect_text(&p, "COUNT F0 F1 F2 B3 REDUCE3 B2 B1 B0 REDUCE0 NORM0 NORM3 AGREE STEP0 STEP3");
}

TEST(sums_that_are_started_are_waited_for_two_later_and_before_the_norm)
{
    GxStepsSpec p = simple(3, 1);
    p.reduce_axes = 6, p.starts_sums = 1;
    expect_text(&p, "COUNT F0 F1 F2 F3 B4 B3 B2 B1 B0 REDUCE0-4~0 WAIT0 NORM0-4 AGREE STEP0-4");
    p.bucket = 2;
    expect_text(&p, "COUNT F0 F1 F2 F3 B4 B3 REDUCE3-4~0 B2 B1 REDUCE1-2~1 B0 WAIT0 REDUCE0~0 WAIT1 WAIT0 NORM0-4 "
                    "AGREE STEP0-4");
    p.bucket = 1;
    expect_text(&p, "COUNT F0 F1 F2 F3 B4 REDUCE4~0 B3 REDUCE3~1 B2 WAIT0 REDUCE2~0 B1 WAIT1 REDUCE1~1 B0 WAIT0 "
                    "REDUCE0~0 WAIT1 WAIT0 NORM0-4 AGREE STEP0-4");
    p.reduce_axes = 0;
    expect_text(&p, "COUNT F0 F1 F2 F3 B4 B3 B2 B1 B0 NORM0-4 AGREE STEP0-4");
}

// "uses weights 1, adds gradients 1, ...": what is not of a micro-batch.
static const char *effects_of(const GxStepsSpec *p, const GxAction *a)
{
    static const char *const verbs[] = {"uses", "adds", "changes", "makes", "ends"};
    static char text[300];
    GxEffect e[GX_EFFECTS];
    const int n = gx_action_effects(p, a, e);
    int at = 0;
    text[0] = 0;
    for (int k = 0; k < n; k++)
        if (e[k].micro_batch < 0)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s%s %s %d", at ? ", " : "", verbs[e[k].verb],
                           gx_object_name(e[k].object), e[k].unit);
    return text;
}

TEST(half_a_backward_adds_gradients_and_lora_is_read_by_what_reads_no_other_matrix)
{
    static const struct {
        int what, unit, half, has_lora;
        const char *says;
    } cases[] = {
        {GX_DO_BACKWARD, 0, 0, 0, "adds gradients 0"},
        {GX_DO_BACKWARD, 0, 0, 1, "uses weights 0, adds gradients 0"},
        {GX_DO_BACKWARD, 1, GX_HALF_NONE, 0, "uses weights 1, adds gradients 1"},
        {GX_DO_BACKWARD, 1, GX_HALF_INPUT, 0, "uses weights 1, adds gradients 1"},
        {GX_DO_WEIGHT, 1, GX_HALF_INPUT, 0, "adds gradients 1"},
        {GX_DO_WEIGHT, 1, GX_HALF_INPUT, 1, "uses weights 1, adds gradients 1"},
        {GX_DO_BACKWARD, 3, 0, 0,
         "uses weights 0, uses weights 3, uses counts -1, adds gradients 3, adds gradients 0"}, // tied
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxStepsSpec p = simple(2, 1);
        GxAction a;
        memset(&a, 0, sizeof a);
        p.is_tied = 1, p.has_lora = p.embedding_reads = cases[k].has_lora;
        a.what = (int8_t)cases[k].what, a.unit = (int16_t)cases[k].unit, a.half = (int8_t)cases[k].half;
        CHECK(!strcmp(effects_of(&p, &a), cases[k].says), "case %u: %s", k, effects_of(&p, &a));
    }
}

TEST(evaluation_has_forwards_only)
{
    GxStepsSpec p = simple(1, 2);
    GxSteps s = GX_ZERO;
    p.kind = GX_STEPS_FORWARD;
    expect_text(&p, "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1");
    make(&s, &p);
    for (int i = 0; i < s.n; i++) CHECK(s.action[i].keep == GX_KEEP_NOTHING, "action %d keeps %d", i, s.action[i].keep);
    gx_steps_close(&s);
}

TEST(text_that_does_not_fit_is_cut_and_measured)
{
    GxStepsSpec p = simple(2, 1);
    GxSteps s = GX_ZERO;
    make(&s, &p);
    const char *whole = "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3";
    for (size_t size = 0; size < 60; size++) {
        char text[64];
        memset(text, '#', sizeof text);
        const int n = gx_steps_print(&s, text, size);
        CHECK(n == (int)strlen(whole), "size %d: length %d", (int)size, n);
        CHECK(size == 0 ||
                  (strlen(text) == (size_t)gx_min((int64_t)size - 1, n) && !strncmp(text, whole, strlen(text))),
              "size %d: %s", (int)size, text);
        CHECK(text[size] == '#', "written behind %d bytes", (int)size);
    }
    gx_steps_close(&s);
}

TEST(specifications_that_cannot_be_are_refused)
{
    static const uint8_t all[4] = {1, 1, 1, 1};
    GxStepsSpec p[9];
    const char *words[9] = {"1 units",
                            "0 micro-batches",
                            "rank 1 of a pipeline of 1 ranks",
                            "nothing says which units are in which of the 2 stages of order 1f1b",
                            "order",
                            "frozen",
                            "bucket",
                            "axes",
                            "unit 1 is trained, or the head: gradients cannot pass it by"};
    for (int i = 0; i < 9; i++) p[i] = simple(2, 1);
    p[0].units = 1, p[1].micro_batches = 0, p[2].rank = 1, p[3].ranks = 2, p[4].order = 9;
    p[5].frozen = all, p[6].bucket = -1, p[7].reduce_axes = 256;
    static const uint8_t first[4] = {1}, second[4] = {0, 1};
    p[8].frozen = first, p[8].bypassed = second;
    for (int i = 0; i < 9; i++) {
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        CHECK(gx_steps_make(&s, &p[i], &err) == GX_ERR_ARGUMENT && strstr(err.message, words[i]), "%d: %d %s", i,
              err.code, err.message);
        gx_steps_close(&s);
    }
}

// ---- sizes ---------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t x[UNITS + 1], slot[UNITS + 1], weights[UNITS + 1], grads[UNITS + 1];
    GxStepsBytes bytes;
} Sizes;

static void set_sizes(Sizes *z)
{
    z->bytes.x = z->x;
    z->bytes.dx = NULL;
    z->bytes.slot = z->slot;
    z->bytes.weights = z->weights;
    z->bytes.grads = z->grads;
}

// A model as they are: the stream has one width, all layers one slot, the embedding's is small.
static void sizes_of_a_model(Sizes *z, int units)
{
    const int64_t x = 64 * (1 + random_below(100)), slot = 64 * (1 + random_below(1500));
    set_sizes(z);
    for (int u = 0; u <= units; u++) z->x[u] = x, z->slot[u] = u == 0 ? 64 * random_below(50) : slot;
}

// Every unit has its own.
static void sizes_at_random(Sizes *z, int units)
{
    set_sizes(z);
    for (int u = 0; u <= units; u++) z->x[u] = 64 * random_below(200), z->slot[u] = 64 * random_below(1000);
}

// Of whole weights, and of their gradients.
static void weigh_at_random(Sizes *z, int units)
{
    for (int u = 0; u < units; u++) z->weights[u] = 64 * random_below(1000), z->grads[u] = 64 * random_below(1000);
}

// ---- what lists compute, and the checker ---------------------------------------------------------------------------

TEST(every_generated_list_is_accepted_and_does_what_plain_loops_do)
{
    int n = 0;
    for (int k = 0; k < SPECS; k++) {
        GxStepsSpec p;
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        if (!spec_at(k, &p)) continue;
        make(&s, &p);
        CHECK(gx_steps_check(&s, &err) == GX_OK, "list %d, %s: %s", k, text_of(&s), err.message);
        CHECK(does_a_step(&s, NULL), "list %d, %s: %s", k, text_of(&s), machine.why);
        gx_steps_close(&s);
        n++;
    }
    printf("    %d lists\n", n);
}

// In memory, too: whole weights and gradients are where they are read and added to.
static void try_shards(int k, int sharded, int n[4])
{
    GxStepsSpec p;
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    Sizes z;
    if (!spec_at(k, &p)) return;
    shard_at_random(&p, sharded);
    sizes_at_random(&z, p.units), weigh_at_random(&z, p.units);
    make(&s, &p);
    CHECK(gx_steps_place(&s, &z.bytes, &err) == GX_OK, "list %d, %s: %s", k, text_of(&s), err.message);
    CHECK(gx_steps_check_place(&s, &z.bytes, &err) == GX_OK, "list %d, %s: %s", k, text_of(&s), err.message);
    CHECK(does_a_step(&s, &z.bytes), "list %d, %s: %s", k, text_of(&s), machine.why);
    // here what is started and waited for later is there at one of the two only
    CHECK(s.tickets ? machine.most <= s.most : machine.most == s.most,
          "list %d, %s: %ld bytes at the worst moment, the list says %ld", k, text_of(&s), (long)machine.most,
          (long)s.most);
    gx_steps_close(&s);
    n[sharded]++;
}

TEST(every_list_of_shards_is_accepted_and_does_what_plain_loops_do)
{
    int n[4] = {0};
    random_state = 13;
    for (int k = 0; k < SPECS; k += APART) try_shards(k, k / APART % 4, n);
    printf("    %d lists without, %d with shards of moments, %d of gradients, %d of weights\n", n[0], n[1], n[2], n[3]);
}

typedef struct {
    long tried, accepted, too_strict; // too_strict: refused, though it does what the plain loops do
} Tally;

static void try_mutant(const GxStepsSpec *p, const GxAction *action, int n, const char *what, Tally *tally)
{
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    GxError ignored = GX_ZERO;
    if (gx_steps_open(&s, p, action, n, &ignored) != GX_OK) return;
    const int accepted = gx_steps_check(&s, &err) == GX_OK;
    const int right = accepted || random_below(8) == 0 ? does_a_step(&s, NULL) : 0;
    CHECK(!accepted || right, "%s was accepted: %s: %s", what, text_of(&s), machine.why);
    CHECK(accepted || !strncmp(err.message, "action ", 7) || !strncmp(err.message, "the end of the list", 19), "%s: %s",
          what, err.message);
    tally->tried++;
    tally->accepted += accepted;
    tally->too_strict += !accepted && right;
    gx_steps_close(&s);
}

static void try_fields(const GxStepsSpec *p, GxAction *a, int n, int i, Tally *tally)
{
    const GxAction was = a[i];
    const int what = was.what, talks = what == GX_DO_COUNT || what == GX_DO_AGREE || what == GX_DO_REDUCE;
    const int shares = what == GX_DO_GATHER || what == GX_DO_SCATTER;
    for (int k = 0; k < 10; k++) { // fields that the action has
        const int has[10] = {
            was.unit >= 0,        was.unit >= 0,         was.micro_batch >= 0,
            was.micro_batch >= 0, what == GX_DO_FORWARD, what == GX_DO_BACKWARD || what == GX_DO_WEIGHT,
            talks || shares,      what == GX_DO_REDUCE,  talks || shares || what == GX_DO_WAIT,
            what == GX_DO_REDUCE};
        if (!has[k]) continue;
        a[i] = was;
        if (k == 0) a[i].unit++;
        if (k == 1) a[i].unit--;
        if (k == 2) a[i].micro_batch++;
        if (k == 3) a[i].micro_batch--;
        if (k == 4) a[i].keep = (int8_t)((a[i].keep + 1) % 3);
        if (k == 5) a[i].half = (int8_t)((a[i].half + 1) % 3);
        if (k == 6) a[i].axes = (int8_t)(a[i].axes ^ 2);
        if (k == 7) a[i].count++;
        if (k == 8) a[i].ticket++;
        if (k == 9) a[i].object = (int8_t)(a[i].object == GX_OBJECT_GRADS ? GX_OBJECT_SHARD : GX_OBJECT_GRADS);
        try_mutant(p, a, n, "a list with another field", tally);
    }
    a[i] = was;
}

// Behind action `to`, before which it stands now, or before it.
static void move(GxAction *a, int from, int to)
{
    const GxAction moved = a[from];
    if (from < to) memmove(a + from, a + from + 1, (size_t)(to - from) * sizeof *a);
    else memmove(a + to + 1, a + to, (size_t)(from - to) * sizeof *a);
    a[to] = moved;
}

enum { DELETED, DOUBLED, NEIGHBOURS, SWAPPED, FIELD, MOVED, KINDS };
static void try_mutants(const GxSteps *s, Tally tally[KINDS])
{
    static GxAction a[ACTIONS];
    for (int i = 0; i < s->n; i++) {
        const size_t rest = (size_t)(s->n - i);
        memcpy(a, s->action, (size_t)s->n * sizeof *a);
        memmove(a + i, a + i + 1, (rest - 1) * sizeof *a);
        try_mutant(&s->spec, a, s->n - 1, "a list without an action", &tally[DELETED]);

        memcpy(a, s->action, (size_t)s->n * sizeof *a);
        memmove(a + i + 1, s->action + i, rest * sizeof *a);
        try_mutant(&s->spec, a, s->n + 1, "a list with an action twice", &tally[DOUBLED]);

        const int at = random_below(s->n);
        memcpy(a, s->action, (size_t)s->n * sizeof *a);
        if (i + 1 < s->n) {
            a[i] = s->action[i + 1], a[i + 1] = s->action[i];
            try_mutant(&s->spec, a, s->n, "a list with two neighbours swapped", &tally[NEIGHBOURS]);
            a[i] = s->action[i], a[i + 1] = s->action[i + 1];
        }
        const GxAction other = a[at];
        a[at] = a[i], a[i] = other;
        try_mutant(&s->spec, a, s->n, "a list with two actions swapped", &tally[SWAPPED]);
        memcpy(a, s->action, (size_t)s->n * sizeof *a);
        try_fields(&s->spec, a, s->n, i, &tally[FIELD]);
        move(a, i, random_below(s->n));
        try_mutant(&s->spec, a, s->n, "a list with an action elsewhere", &tally[MOVED]);
    }
}

static void print_tally(const char *what, const Tally *t)
{
    printf("    %-20s %7ld tried, %5ld accepted, all equivalent; of an eighth of the refused %ld were, too\n", what,
           t->tried, t->accepted, t->too_strict);
}

static void print_tallies(const Tally tally[KINDS])
{
    static const char *const what[KINDS] = {"deleted", "doubled",       "neighbours swapped",
                                            "swapped", "another field", "elsewhere"};
    for (int i = 0; i < KINDS; i++) print_tally(what[i], &tally[i]);
    CHECK(tally[DELETED].accepted == 0, "%ld lists without one of their actions were accepted",
          tally[DELETED].accepted);
    CHECK(tally[DOUBLED].accepted == 0, "%ld lists with an action twice were accepted", tally[DOUBLED].accepted);
}

// The same list with tickets: COUNT is waited for before the first head, a sum before the first norm of its bucket.
static void start_what_can_be_started(GxSteps *to, const GxSteps *s)
{
    static GxAction a[ACTIONS];
    int n = 0, tickets = 0, open[GX_TICKETS];
    for (int i = 0; i < s->n; i++) {
        GxAction now = s->action[i];
        const int is_head = now.what == GX_DO_BACKWARD && now.unit == s->spec.units - 1;
        for (int t = 0; t < tickets; t++) {
            const GxAction *under_way = open[t] >= 0 ? &s->action[open[t]] : NULL;
            if (!under_way || (under_way->what == GX_DO_COUNT ? !is_head
                                                              : now.what != GX_DO_NORM || now.unit < under_way->unit ||
                                                                    now.unit >= under_way->unit + under_way->count))
                continue;
            memset(&a[n], 0, sizeof a[n]);
            a[n].what = GX_DO_WAIT, a[n].unit = a[n].micro_batch = a[n].peer = a[n].after = -1;
            a[n++].ticket = (int8_t)t;
            open[t] = -1;
        }
        if (now.what == GX_DO_COUNT || now.what == GX_DO_REDUCE) {
            open[tickets] = i;
            now.ticket = (int8_t)tickets++;
        }
        a[n++] = now;
    }
    GxError err = GX_ZERO;
    CHECK(gx_steps_open(to, &s->spec, a, n, &err) == GX_OK, "%s", err.message);
}

TEST(sums_under_way_are_waited_for)
{
    GxStepsSpec p = simple(1, 1);
    GxSteps s = GX_ZERO, started = GX_ZERO;
    GxError err = GX_ZERO;
    p.reduce_axes = 6, p.bucket = 2;
    make(&s, &p);
    start_what_can_be_started(&started, &s);
    const char *expected = "COUNT~0 F0 F1 WAIT0 B2 B1 REDUCE1-2~1 B0 REDUCE0~2 WAIT2 NORM0 WAIT1 NORM1-2 AGREE STEP0-2";
    CHECK(!strcmp(text_of(&started), expected), "found\n%s, expected\n%s", text_of(&started), expected);
    CHECK(gx_steps_check(&started, &err) == GX_OK && started.tickets == 3, "%s; tickets %d", err.message,
          started.tickets);
    memmove(&started.action[11], &started.action[12], (size_t)(--started.n - 11) * sizeof *started.action); // WAIT1
    CHECK(gx_steps_check(&started, &err) == GX_ERR_ARGUMENT &&
              !strcmp(err.message,
                      "action 11 (NORM1): action 6 is still at the gradients of unit 1: WAIT1 must come before"),
          "%s", err.message);
    gx_steps_close(&s);
    gx_steps_close(&started);
}

TEST(a_broken_list_is_refused_and_one_that_is_accepted_is_equivalent)
{
    Tally tally[KINDS];
    memset(tally, 0, sizeof tally);
    random_state = 7;
    for (int k = 0; k < SPECS; k++) {
        GxStepsSpec p;
        GxSteps s = GX_ZERO, started = GX_ZERO;
        if ((k % (11 * APART) && k < SPECS - 24) || !spec_at(k, &p)) continue;
        make(&s, &p);
        GxError err = GX_ZERO;
        if (p.starts_sums) make(&started, &p); // so it has tickets already
        else start_what_can_be_started(&started, &s);
        CHECK(gx_steps_check(&started, &err) == GX_OK, "%s: %s", text_of(&started), err.message);
        CHECK(does_a_step(&started, NULL), "%s: %s", text_of(&started), machine.why);
        try_mutants(&s, tally);
        try_mutants(&started, tally);
        gx_steps_close(&s);
        gx_steps_close(&started);
    }
    print_tallies(tally);
}

// ---- broken lists of shards ----------------------------------------------------------------------------------------

// The last action before i that is this of the unit; -1: there is none.
static int before(const GxSteps *s, int i, int what, int unit)
{
    for (i--; i >= 0 && !(s->action[i].what == what && s->action[i].unit == unit); i--) {}
    return i;
}

enum { FREE_EARLY, GATHER_LATE, GATHER_EARLY, SCATTER_EARLY, SCATTER_AGAIN, BROKEN };

// What goes wrong most easily, at action i.
static void break_shards(const GxSteps *s, int i, Tally tally[BROKEN])
{
    static GxAction a[ACTIONS];
    const GxStepsSpec *p = &s->spec;
    const int what = s->action[i].what, u = s->action[i].unit, step = before(s, i, GX_DO_STEP, u);
    const int gather = before(s, i, GX_DO_GATHER, u), b = before(s, i, GX_DO_BACKWARD, u);
    const int is_last = before(s, s->n, GX_DO_SCATTER, u) == i; // a gradient may go to its shard in pieces
    memcpy(a, s->action, (size_t)s->n * sizeof *a);
    if (what == GX_DO_FREE) {
        move(a, i, gather + 1);
        try_mutant(p, a, s->n, "a FREE before its weights were read", &tally[FREE_EARLY]);
    } else if (what == GX_DO_GATHER && step >= 0) {
        move(a, i, step);
        try_mutant(p, a, s->n, "a GATHER of old weights", &tally[GATHER_EARLY]);
    } else if (what == GX_DO_GATHER) {
        int from = i; // the GATHER, or, if it was started, its WAIT
        while (a[i].ticket >= 0 && !(a[from].what == GX_DO_WAIT && a[from].ticket == a[i].ticket)) from++;
        int use = from + 1;
        while (a[use].what > GX_DO_WEIGHT) use++;
        move(a, from, use);
        try_mutant(p, a, s->n, "a GATHER behind the first that reads", &tally[GATHER_LATE]);
    } else if (what == GX_DO_SCATTER) {
        move(a, i, b);
        if (is_last) try_mutant(p, a, s->n, "a SCATTER before the last backward", &tally[SCATTER_EARLY]);
        memcpy(a, s->action, (size_t)s->n * sizeof *a);
        a[s->n] = a[i], move(a, s->n, b);
        try_mutant(p, a, s->n + 1, "one SCATTER more", &tally[SCATTER_AGAIN]);
    }
}

TEST(a_broken_list_of_shards_is_refused_and_one_that_is_accepted_is_equivalent)
{
    static const char *const what[BROKEN] = {"FREE too early", "GATHER too late", "GATHER before STEP",
                                             "SCATTER too early", "SCATTER once more"};
    Tally tally[KINDS], broken[BROKEN];
    memset(tally, 0, sizeof tally), memset(broken, 0, sizeof broken);
    random_state = 17;
    for (int k = 0; k < SPECS; k += 31 * APART) {
        GxStepsSpec p;
        GxSteps s = GX_ZERO;
        if (!spec_at(k, &p)) continue;
        shard_at_random(&p, 1 + random_below(3));
        make(&s, &p);
        try_mutants(&s, tally);
        for (int i = 0; i < s.n; i++) break_shards(&s, i, broken);
        gx_steps_close(&s);
    }
    print_tallies(tally);
    for (int i = 0; i < BROKEN; i++) {
        print_tally(what[i], &broken[i]);
        CHECK(broken[i].tried > 0 && broken[i].accepted == 0, "%s: %ld of %ld accepted", what[i], broken[i].accepted,
              broken[i].tried);
    }
}

// ---- what shards cost ----------------------------------------------------------------------------------------------

static int count_of(const GxSteps *s, int what)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->action[i].what == what;
    return n;
}

// Of units whose object there is at once, by the table of effects.
static int most_at_once(const GxSteps *s, int object)
{
    GxEffect e[GX_EFFECTS];
    int is_there[UNITS] = {0}, n = 0, most = 0;
    for (int i = 0; i < s->n; i++) {
        const int effects = gx_action_effects(&s->spec, &s->action[i], e);
        for (int k = 0; k < effects; k++) {
            if (e[k].object != object) continue;
            n += (e[k].verb != GX_ENDS) - is_there[e[k].unit];
            is_there[e[k].unit] = e[k].verb != GX_ENDS;
            most = (int)gx_max(most, n);
        }
    }
    return most;
}

static GxStepsSpec shards(int layers, int micro_batches, int sharded, int gathered, int is_tied)
{
    GxStepsSpec p = simple(layers, micro_batches);
    p.sharded = sharded, p.shard_axes = 8, p.gathered = gathered, p.is_tied = is_tied;
    return p;
}

// Forwards read L + 1 units' weights and backwards L + 1, the head's and the layers'; at each turn between them K - 1
// are whole still. A head that shares a tensor reads two units: one gather more. If all fit, each is gathered once.
TEST(gathers_are_as_many_as_the_formula_says)
{
    for (int tied = 0; tied < 2; tied++)
        for (int layers = 1; layers <= 8; layers++)
            for (int m = 1; m <= 6; m++)
                for (int most = 1 + tied; most <= layers + 4; most++) {
                    const GxStepsSpec p = shards(layers, m, 3, most, tied);
                    GxSteps s = GX_ZERO;
                    make(&s, &p);
                    const int turns = 2 * m - 1, all = layers + 2;
                    const int expected = most < all ? m * (2 * layers + 2) - turns * (most - 1) + tied : all;
                    CHECK(count_of(&s, GX_DO_GATHER) == expected,
                          "%d layers, %d micro-batches, %d whole, tied %d: %d gathers, not %d", layers, m, most, tied,
                          count_of(&s, GX_DO_GATHER), expected);
                    CHECK(count_of(&s, GX_DO_FREE) == expected, "%d are freed", count_of(&s, GX_DO_FREE));
                    const int at_once = (int)gx_min(most, all - (m == 1 && !tied)); // then nothing reads F0's again
                    CHECK(most_at_once(&s, GX_OBJECT_WEIGHTS) == at_once,
                          "%d layers, %d micro-batches, tied %d: %d whole at once, not %d", layers, m, tied,
                          most_at_once(&s, GX_OBJECT_WEIGHTS), at_once);
                    gx_steps_close(&s);
                }
}

// Scattered once in a window, gradients of all units wait for its last micro-batch; in each, for none. The embedding's
// begin with the head's where these share a tensor.
TEST(whole_gradients_and_scatters_are_as_many_as_the_formula_says)
{
    enum { LAYERS = 4 };
    for (int k = 0; k < 24; k++) {
        const int tied = k % 2, each = k / 2 % 2, m = 1 + k / 4 % 3, sharded = 2 + k / 12;
        GxStepsSpec p = shards(LAYERS, m, sharded, 2, tied);
        GxSteps s = GX_ZERO;
        p.scatters_each = each;
        make(&s, &p);
        const int at_once = m > 1 && !each ? LAYERS + 2 : 1 + tied, scatters = (LAYERS + 2) * (each ? m : 1);
        CHECK(most_at_once(&s, GX_OBJECT_GRADS) == at_once,
              "tied %d, each %d, %d micro-batches: gradients of %d units at once, not %d", tied, each, m,
              most_at_once(&s, GX_OBJECT_GRADS), at_once);
        CHECK(count_of(&s, GX_DO_SCATTER) == scatters, "tied %d, each %d, %d micro-batches: %d are scattered, not %d",
              tied, each, m, count_of(&s, GX_DO_SCATTER), scatters);
        gx_steps_close(&s);
    }
}

TEST(lists_of_shards)
{
    GxStepsSpec p = shards(2, 1, 1, 0, 0);
    p.reduce_axes = 4;
    expect_text(&p, "COUNT F0 F1 F2 B3 B2 B1 B0 SCATTER3 REDUCE:shard:3 SCATTER2 REDUCE:shard:2 SCATTER1 "
                    "REDUCE:shard:1 SCATTER0 REDUCE:shard:0 NORM0-3 AGREE STEP0-3 GATHER0 GATHER1 GATHER2 GATHER3");
    p = shards(1, 2, 2, 0, 1);
    expect_text(&p, "COUNT F0.0 F1.0 B2.0 B1.0 B0.0 F0.1 F1.1 B2.1 SCATTER2 B1.1 SCATTER1 B0.1 SCATTER0 NORM0-2 AGREE "
                    "STEP0-2 GATHER0 GATHER1 GATHER2");
    p.scatters_each = 1;
    expect_text(&p, "COUNT F0.0 F1.0 B2.0 SCATTER2 B1.0 SCATTER1 B0.0 SCATTER0 F0.1 F1.1 B2.1 SCATTER2 B1.1 SCATTER1 "
                    "B0.1 SCATTER0 NORM0-2 AGREE STEP0-2 GATHER0 GATHER1 GATHER2");
    p = shards(2, 1, 3, 2, 0);
    expect_text(&p, "COUNT GATHER0 F0 FREE0 GATHER1 F1 FREE1 GATHER2 F2 GATHER3 B3 FREE3 SCATTER3 B2 FREE2 SCATTER2 "
                    "GATHER1 B1 FREE1 SCATTER1 B0 SCATTER0 NORM0-3 AGREE STEP0-3");
    p.kind = GX_STEPS_FORWARD, p.gathered = 1;
    expect_text(&p, "GATHER0 F0 FREE0 GATHER1 F1 FREE1 GATHER2 F2 FREE2 GATHER3 F3 FREE3");
}

// Prefetched with room for two; scattered beside the units below; gathered after its own step. Sums of shards wait for
// the next scatter. What finds no room, or nothing to run beside, stays blocking.
TEST(lists_of_shards_that_overlap)
{
    GxStepsSpec p = shards(2, 1, 1, 0, 0);
    p.overlaps = GX_OVERLAPS_SHARDS;
    expect_text(&p, "COUNT F0 F1 F2 B3 SCATTER3~0 B2 WAIT0 SCATTER2~0 B1 WAIT0 SCATTER1~0 B0 WAIT0 SCATTER0 NORM0-3 "
                    "AGREE STEP0 GATHER0~0 STEP1 GATHER1~1 STEP2 WAIT0 GATHER2~0 STEP3 WAIT1 GATHER3 WAIT0");
    p = shards(2, 1, 2, 0, 0);
    p.overlaps = GX_OVERLAPS_SHARDS, p.reduce_axes = 4;
    expect_text(&p, "COUNT F0 F1 F2 B3 SCATTER3~0 B2 WAIT0 REDUCE:shard:3 SCATTER2~0 B1 WAIT0 REDUCE:shard:2 "
                    "SCATTER1~0 B0 WAIT0 REDUCE:shard:1 SCATTER0 REDUCE:shard:0 NORM0-3 AGREE STEP0 GATHER0~0 STEP1 "
                    "GATHER1~1 STEP2 WAIT0 GATHER2~0 STEP3 WAIT1 GATHER3 WAIT0");
    p = shards(2, 2, 3, 2, 0);
    p.overlaps = GX_OVERLAPS_SHARDS, p.scatters_each = 1;
    expect_text(
        &p,
        "COUNT GATHER0 GATHER1~0 F0.0 FREE0 WAIT0 GATHER2~0 F1.0 FREE1 WAIT0 GATHER3~0 F2.0 WAIT0 B3.0 FREE3 "
        "SCATTER3~0 GATHER1~1 B2.0 FREE2 WAIT0 SCATTER2~0 WAIT1 B1.0 WAIT0 SCATTER1~0 GATHER0~1 B0.0 WAIT0 SCATTER0~0 "
        "WAIT1 F0.1 FREE0 GATHER2~1 F1.1 FREE1 WAIT1 GATHER3~1 F2.1 WAIT1 WAIT0 B3.1 FREE3 SCATTER3~0 GATHER1~1 B2.1 "
        "FREE2 WAIT0 SCATTER2~0 WAIT1 B1.1 FREE1 WAIT0 SCATTER1~0 B0.1 WAIT0 SCATTER0 NORM0-3 AGREE STEP0-3");
    p = shards(2, 1, 3, 1, 0);
    p.overlaps = GX_OVERLAPS_SHARDS;
    expect_text(
        &p, "COUNT GATHER0 F0 FREE0 GATHER1 F1 FREE1 GATHER2 F2 FREE2 GATHER3 B3 FREE3 SCATTER3~0 GATHER2~1 WAIT1 B2 "
            "FREE2 WAIT0 SCATTER2~0 GATHER1~1 WAIT1 B1 FREE1 WAIT0 SCATTER1~0 B0 WAIT0 SCATTER0 NORM0-3 AGREE STEP0-3");
}

// ---- messages ------------------------------------------------------------------------------------------------------

static void expect_message(const GxStepsSpec *p, const GxAction *a, int n, GxStatus code, const char *says)
{
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    CHECK(gx_steps_open(&s, p, a, n, &err) == GX_OK, "%s", err.message);
    CHECK(gx_steps_check(&s, &err) == code && !strcmp(err.message, says), "%s: found\n%s, expected\n%s", text_of(&s),
          err.message, says);
    gx_steps_close(&s);
}

static int find(const GxSteps *s, int what, int unit, int micro_batch)
{
    for (int i = 0; i < s->n; i++)
        if (s->action[i].what == what && s->action[i].unit == unit && s->action[i].micro_batch == micro_batch) return i;
    CHECK(0, "the list has no action %d of unit %d, micro-batch %d", what, unit, micro_batch);
    return 0;
}

TEST(a_message_names_the_action_and_what_it_lacks)
{
    static const struct {
        int what, unit, micro_batch;
        const char *without, *twice;
    } cases[] = {
        {GX_DO_COUNT, -1, -1,
         "action 0 (F0 of micro-batch 0): COUNT is the first action of a training list, on all ranks",
         "action 1 (COUNT): COUNT is the first action of a training list, on all ranks"},
        {GX_DO_FORWARD, 1, 1,
         "action 9 (F2 of micro-batch 1): it needs x of unit 2, micro-batch 1: F1 must come before",
         "action 10 (F1 of micro-batch 1): it was done already: action 9"},
        {GX_DO_BACKWARD, 3, 1,
         "action 11 (B2 of micro-batch 1): it needs dx of unit 3, micro-batch 1: B3 must come before",
         "action 12 (B3 of micro-batch 1): it was done already: action 11"},
        {GX_DO_BACKWARD, 0, 0,
         "action 14 (REDUCE0-3): the gradients of unit 0 have 1 of 2 contributions: every B0 (of a half, its W0) must "
         "come "
         "before",
         "action 8 (B0 of micro-batch 0): it was done already: action 7"},
        {GX_DO_REDUCE, 0, -1,
         "action 15 (NORM0): the gradients of unit 0 are summed over axes 0 of 6: REDUCE must come before",
         "action 16 (REDUCE0-3): the gradients of unit 0 are summed over axes 6 already"},
        {GX_DO_NORM, 2, -1, "action 19 (AGREE): it needs the sums of squares of unit 2: NORM2 must come before",
         "action 19 (NORM2): it was done already: action 18"},
        {GX_DO_AGREE, -1, -1, "action 20 (STEP0): it needs the clip coefficient: AGREE must come before",
         "action 21 (AGREE): it makes the clip coefficient, which action 20 (AGREE) has made already"},
        {GX_DO_STEP, 3, -1, "the end of the list: there was no STEP3",
         "action 25 (STEP3): it was done already: action 24"},
    };
    static GxAction a[ACTIONS];
    GxStepsSpec p = simple(2, 2);
    GxSteps s = GX_ZERO;
    p.reduce_axes = 6;
    make(&s, &p);
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int i = find(&s, cases[k].what, cases[k].unit, cases[k].micro_batch);
        memcpy(a, s.action, (size_t)i * sizeof *a);
        memcpy(a + i, s.action + i + 1, (size_t)(s.n - i - 1) * sizeof *a);
        expect_message(&p, a, s.n - 1, GX_ERR_ARGUMENT, cases[k].without);
        memcpy(a + i + 1, s.action + i, (size_t)(s.n - i) * sizeof *a);
        a[i] = s.action[i];
        expect_message(&p, a, s.n + 1, GX_ERR_ARGUMENT, cases[k].twice);
    }
    gx_steps_close(&s);
}

typedef struct {
    int what, unit, to; // to: DELETE, TWICE, or the place where it goes
    const char *says;
} ShardMistake;
enum { DELETE = -1, TWICE = -2 };

static void expect_mistakes(const GxStepsSpec *p, const ShardMistake *mistake, int n)
{
    static GxAction a[ACTIONS];
    GxSteps s = GX_ZERO;
    make(&s, p);
    for (int k = 0; k < n; k++) {
        const ShardMistake *m = &mistake[k];
        int i = 0;
        while (i < s.n - 1 && !(s.action[i].what == m->what && s.action[i].unit == m->unit)) i++;
        memcpy(a, s.action, (size_t)s.n * sizeof *a);
        a[s.n] = a[i];
        if (m->to == DELETE) move(a, i, s.n);
        else move(a, m->to == TWICE ? s.n : i, m->to == TWICE ? i : m->to);
        expect_message(p, a, s.n - (m->to == DELETE) + (m->to == TWICE), GX_ERR_ARGUMENT, m->says);
    }
    gx_steps_close(&s);
}

TEST(a_message_says_what_is_wrong_with_whole_weights)
{
    static const ShardMistake sharded[] = {
        {GX_DO_GATHER, 1, DELETE,
         "action 4 (F1 of micro-batch 0): it needs the whole weights of unit 1: GATHER1 must come before"},
        {GX_DO_GATHER, 1, TWICE,
         "action 5 (GATHER1): it makes the whole weights of unit 1, which action 4 (GATHER1) has made already"},
        {GX_DO_FREE, 0, 2,
         "action 3 (F0 of micro-batch 0): it needs the whole weights of unit 0, which action 2 (FREE0) has ended"},
        {GX_DO_FREE, 2, DELETE,
         "action 20 (STEP2): the whole weights of unit 2 are there, and it would make them old: FREE2 must come "
         "before"},
        {GX_DO_FREE, 1, TWICE,
         "action 12 (FREE1): it needs the whole weights of unit 1, which action 11 (FREE1) has ended"},
    };
    static const ShardMistake moments[] = {
        {GX_DO_GATHER, 1, DELETE,
         "the end of the list: the whole weights of unit 1 are not there, as they were at the start: GATHER1 is "
         "missing"},
        {GX_DO_GATHER, 1, 12,
         "action 12 (GATHER1): the whole weights of unit 1 are there, and not old: STEP1 must come before"},
    };
    static const ShardMistake evaluation[] = {
        {GX_DO_FREE, 2, DELETE,
         "the end of the list: the whole weights of unit 2 are there, and were not at the start: FREE2 is missing"},
    };
    GxStepsSpec p = shards(1, 1, 3, 2, 0); // COUNT GATHER0 F0 FREE0 GATHER1 F1 GATHER2 B2 FREE2 SCATTER2 B1 FREE1 ...
    expect_mistakes(&p, sharded, 5);
    p.kind = GX_STEPS_FORWARD;
    expect_mistakes(&p, evaluation, 1);
    p = shards(1, 1, 1, 0, 0); // COUNT F0 F1 B2 B1 B0 SCATTER2 SCATTER1 SCATTER0 NORM0-2 AGREE STEP0-2 GATHER0-2
    expect_mistakes(&p, moments, 2);
}

TEST(a_message_says_what_is_wrong_with_gradients_and_their_shards)
{
    static const ShardMistake once[] = {
        {GX_DO_SCATTER, 1, DELETE,
         "action 12 (REDUCE:shard:1): it needs the shard of unit 1's gradients: SCATTER1 must come before"},
        {GX_DO_SCATTER, 1, TWICE, "action 13 (SCATTER1): it was done already: action 12"},
        {GX_DO_SCATTER, 1, 8,
         "action 8 (SCATTER1): the gradients of unit 1 have 1 of 2 contributions: every B1 (of a half, its W1) must "
         "come before"},
        {GX_DO_SCATTER, 1, 1, "action 1 (SCATTER1): it needs the gradients of unit 1: B1 or W1 must come before"},
        {GX_DO_REDUCE, 1, DELETE,
         "action 17 (NORM1): the gradients of unit 1 are summed over axes 0 of 4: REDUCE must come before"},
        {GX_DO_REDUCE, 1, TWICE, "action 14 (REDUCE:shard:1): the gradients of unit 1 are summed over axes 4 already"},
        {GX_DO_NORM, 1, 8, "action 8 (NORM1): it needs the shard of unit 1's gradients: SCATTER1 must come before"},
    };
    static const ShardMistake each[] = {
        {GX_DO_SCATTER, 1, DELETE,
         "action 15 (REDUCE:shard:1): 1 of 2 SCATTER1 have come: one must come after each micro-batch"},
        {GX_DO_REDUCE, 1, 8,
         "action 8 (REDUCE:shard:1): the shard of unit 1's gradients has 1 of 2 contributions: SCATTER1 must come "
         "after the last"},
    };
    // COUNT F0.0 F1.0 B2.0 B1.0 B0.0 F0.1 F1.1 B2.1 SCATTER2 REDUCE:shard:2 B1.1 SCATTER1 REDUCE:shard:1 B0.1 ...
    GxStepsSpec p = shards(1, 2, 2, 0, 0);
    p.reduce_axes = 4;
    expect_mistakes(&p, once, 7);
    p.scatters_each = 1; // ... B1.0 SCATTER1 B0.0 SCATTER0 F0.1 F1.1 B2.1 SCATTER2 REDUCE:shard:2 B1.1 SCATTER1 ...
    expect_mistakes(&p, each, 2);
}

TEST(what_is_not_of_this_kind_of_shards_is_refused)
{
    static const struct {
        int sharded, what, unit, object, axes, count, ticket;
        GxStatus code;
        const char *says;
    } cases[] = {
        // in place of SCATTER1
        {1, GX_DO_FREE, 1, 0, 8, 0, -1, GX_ERR_ARGUMENT, "action 7 (FREE1): whole weights stay in this list"},
        {2, GX_DO_SCATTER, 1, 0, 4, 0, -1, GX_ERR_ARGUMENT, "action 5 (SCATTER1): its axes are 4; they must be 8"},
        {2, GX_DO_SCATTER, 1, 0, 8, 0, 0, GX_ERR_ARGUMENT,
         "action 5 (SCATTER1~0): it needs the gradients of unit 1: B1 or W1 must come before"},
        {2, GX_DO_REDUCE, 1, GX_OBJECT_GRADS, 4, 1, -1, GX_ERR_ARGUMENT,
         "action 5 (REDUCE1): ranks share units in this list: SCATTER sums their gradients, and REDUCE the shards of "
         "these"},
        {2, GX_DO_REDUCE, 0, GX_OBJECT_SHARD, 4, 2, -1, GX_ERR_UNSUPPORTED,
         "action 5 (REDUCE:shard:0-1): sums of several units' shards at once, or of shards with a ticket, cannot be "
         "checked yet"},
        {2, GX_DO_REDUCE, 1, GX_OBJECT_SHARD, 4, 1, 0, GX_ERR_UNSUPPORTED,
         "action 5 (REDUCE:shard:1~0): sums of several units' shards at once, or of shards with a ticket, cannot be "
         "checked yet"},
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxStepsSpec p = shards(1, 1, cases[k].sharded, 0, 0); // COUNT F0 F1 B2 SCATTER2 B1 SCATTER1 B0 SCATTER0 ...
        GxSteps s = GX_ZERO;
        p.reduce_axes = 4;
        make(&s, &p);
        GxAction *a = &s.action[cases[k].sharded == 1 ? 7 : 5];
        a->what = (int8_t)cases[k].what, a->unit = (int16_t)cases[k].unit, a->object = (int8_t)cases[k].object;
        a->axes = (int8_t)cases[k].axes, a->count = (int16_t)cases[k].count, a->ticket = (int8_t)cases[k].ticket;
        a->micro_batch = -1;
        expect_message(&p, s.action, s.n, cases[k].code, cases[k].says);
        gx_steps_close(&s);
    }
}

TEST(shards_that_cannot_be_are_refused)
{
    static const struct {
        int sharded, gathered, is_tied, each, starts;
        const char *says;
    } cases[] = {
        {4, 1, 0, 0, 0, "sharded is 4 over axes 8; it is 0 to 3"},
        {3, 0, 0, 0, 0, "0 units' weights may be whole at once"},
        {3, 1, 1, 0, 0, "1 units' weights may be whole at once; it must be at least 1, and 2 where units "},
        {1, 1, 0, 1, 0, "gradients are scattered in each micro-batch, and are not sharded"},
        {2, 1, 0, 0, 1, "sums of shards cannot be started and waited for later"},
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxStepsSpec p = shards(1, 1, cases[k].sharded, cases[k].gathered, cases[k].is_tied);
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        p.scatters_each = cases[k].each, p.starts_sums = cases[k].starts;
        CHECK(gx_steps_make(&s, &p, &err) != GX_OK && strstr(err.message, cases[k].says), "%u: %s", k, err.message);
        gx_steps_close(&s);
    }
}

TEST(a_message_says_what_was_ended_kept_or_made_twice)
{
    GxStepsSpec p = simple(2, 1);
    GxSteps s = GX_ZERO;
    make(&s, &p);
    GxAction *f1 = &s.action[find(&s, GX_DO_FORWARD, 1, 0)];
    f1->keep = GX_KEEP_NOTHING;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 6 (B1 of micro-batch 0): it needs the slot of unit 1, micro-batch 0: F1 that keeps it, or "
                   "R1 must come before");
    f1->keep = GX_KEEP_SLOT;
    GxAction *f0 = &s.action[find(&s, GX_DO_FORWARD, 0, 0)], was = *f0;
    *f0 = *f1, *f1 = was; // a use before its forward
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 1 (F1 of micro-batch 0): it needs x of unit 1, micro-batch 0: F0 must come before");
    gx_steps_close(&s);

    p.recomputes_layers = 1; // COUNT F0 F1 F2 B3 R2 B2 R1 B1 B0
    make(&s, &p);
    s.action[find(&s, GX_DO_FORWARD, 2, 0)].keep = GX_KEEP_SLOT;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 5 (R2 of micro-batch 0): it makes the slot of unit 2, micro-batch 0, which action 3 (F2 of "
                   "micro-batch 0) has made already");
    s.action[find(&s, GX_DO_FORWARD, 2, 0)].keep = GX_KEEP_NOTHING;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 5 (R2 of micro-batch 0): it needs x of unit 2, micro-batch 0, which action 3 (F2 of "
                   "micro-batch 0) has ended");
    gx_steps_close(&s);

    uint8_t frozen[4] = {1, 1, 0, 0};
    p = simple(2, 1);
    p.frozen = frozen;
    make(&s, &p);
    s.action[find(&s, GX_DO_FORWARD, 1, 0)].keep = GX_KEEP_SLOT; // below what is trained nobody gives it up
    expect_message(
        &p, s.action, s.n, GX_ERR_ARGUMENT,
        "the end of the list: nothing has ended x of unit 1, micro-batch 0, which action 1 (F0 of micro-batch 0) made");
    s.action[find(&s, GX_DO_FORWARD, 1, 0)].keep = GX_KEEP_NOTHING;
    s.action[find(&s, GX_DO_NORM, 2, -1)].unit = 1;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 6 (NORM1): unit 1 is frozen: it has no gradients");
    gx_steps_close(&s);
}

TEST(fields_that_do_not_fit_are_refused)
{
    static GxAction a[ACTIONS];
    GxStepsSpec p = simple(1, 1);
    GxSteps s = GX_ZERO;
    p.reduce_axes = 6, p.count_axes = 31, p.bucket = 2; // COUNT F0 F1 B2 B1 REDUCE1-2 B0 REDUCE0 NORM0-2 AGREE STEP0-2
    make(&s, &p);
    const GxAction count = s.action[0], f0 = s.action[1], f1 = s.action[2], b2 = s.action[3], b0 = s.action[6];
    const GxAction reduce = s.action[7];
    s.action[0].axes = 14;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 0 (COUNT): its axes are 14; they must be 31");
    s.action[0] = count;
    s.action[7].axes = 7;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 7 (REDUCE0): its axes are 7; gradients are summed over 6");
    s.action[7] = reduce;
    s.action[5].ticket = s.action[7].ticket = 0;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 7 (REDUCE0~0): ticket 0 is still open: action 5 has it");
    s.action[7].ticket = 16;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 7 (REDUCE0~16): its ticket is 16; tickets are 0 to 15");
    s.action[5].ticket = s.action[7].ticket = -1;
    s.action[1].ticket = 0;
    expect_message(
        &p, s.action, s.n, GX_ERR_ARGUMENT,
        "action 1 (F0~0 of micro-batch 0): it has ticket 0; only what communicates is started and waited for");
    s.action[1] = f0;
    s.action[2].unit = 3;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 2 (F3 of micro-batch 0): 1 units from unit 3 on; units are 0 to 2");
    s.action[2] = f1;
    s.action[2].keep = 3;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 2 (F1 of micro-batch 0): keep is 3; it is 0 to 2");
    s.action[2] = f1;
    s.action[4].half = 3;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT,
                   "action 4 (b1 of micro-batch 0): half is 3; of B it is 0 to 2, of W what its B has");
    s.action[4].half = GX_HALF_NONE;

    memcpy(a, s.action, 7 * sizeof *a); // an embedding's weight half, put off and done
    memcpy(a + 7, s.action + 6, (size_t)(s.n - 6) * sizeof *a);
    a[6].half = a[7].half = GX_HALF_INPUT;
    a[7].what = GX_DO_WEIGHT;
    expect_message(
        &p, a, s.n + 1, GX_ERR_ARGUMENT,
        "action 6 (b0 of micro-batch 0): unit 0 has no weight half of its own: it is the embedding, the head, "
        "or frozen");
    a[6] = b0, a[6].what = GX_DO_FORWARD, a[6].unit = 2, a[6].keep = GX_KEEP_INPUT;
    memcpy(a + 3, a + 6, sizeof *a), a[4] = b2, a[5] = s.action[4], a[6] = s.action[5], a[7] = b0;
    expect_message(&p, a, s.n + 1, GX_ERR_ARGUMENT,
                   "action 3 (F2 of micro-batch 0): a head in training computes its forward in B2");
    gx_steps_close(&s);

    p.kind = GX_STEPS_FORWARD;
    make(&s, &p);
    memcpy(a + 1, s.action, (size_t)s.n * sizeof *a);
    a[0] = count;
    expect_message(&p, a, s.n + 1, GX_ERR_ARGUMENT,
                   "action 0 (COUNT): a list of evaluation or generation has forwards only");
    gx_steps_close(&s);
}

// Whether a B leaves its matrices to a W is the specification's to say, by which slots are laid and gradients deferred
// (run/interpreter.h); so is whether a W reads x.
TEST(halves_that_do_not_fit_the_specification_are_refused)
{
    for (int k = 0; k < 3; k++) {
        GxStepsSpec p = simple(2, 1);
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        p.defers_weights = k != 2, p.weight_reads_x = k == 0;
        make(&s, &p);
        for (int i = 0; i < s.n && k == 0; i++) // W reads x, which B has given up
            if (s.action[i].half == GX_HALF_INPUT_X) s.action[i].half = GX_HALF_INPUT;
        if (k == 1) s.spec.defers_weights = 0; // B computes all, and W again
        if (k == 2) s.spec.defers_weights = 1; // B leaves to W what no W computes
        CHECK(gx_steps_check(&s, &err) != GX_OK, "%d was accepted", k);
        gx_steps_close(&s);
    }
}

TEST(actions_that_cannot_be_checked_yet_are_refused_by_name)
{
    static const struct {
        int what, object;
        GxStatus code;
        const char *says;
    } cases[] = {
        {GX_DO_GATHER, 0, GX_ERR_ARGUMENT, "action 1 (GATHER1): no ranks share units in this list"},
        {GX_DO_FREE, 0, GX_ERR_ARGUMENT, "action 1 (FREE1): whole weights stay in this list"},
        {GX_DO_SCATTER, 0, GX_ERR_ARGUMENT, "action 1 (SCATTER1): no ranks share units in this list"},
        {GX_DO_REDUCE, GX_OBJECT_SHARD, GX_ERR_ARGUMENT,
         "action 1 (REDUCE:shard:1): no ranks share units in this list"},
        {GX_DO_REDUCE, GX_OBJECT_X, GX_ERR_UNSUPPORTED,
         "action 1 (REDUCE:x:1): sums with one peer, and of what is no gradient, cannot be checked yet"},
        {GX_DO_SPILL, GX_OBJECT_X, GX_ERR_UNSUPPORTED,
         "action 1 (SPILL:x:1 of micro-batch 0): offloaded rows cannot be checked yet"},
        {GX_DO_FETCH, GX_OBJECT_X, GX_ERR_UNSUPPORTED,
         "action 1 (FETCH:x:1 of micro-batch 0): offloaded rows cannot be checked yet"},
    };
    GxStepsSpec p = simple(1, 1);
    GxSteps s = GX_ZERO;
    make(&s, &p);
    const GxAction was = s.action[1];
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        s.action[1].what = (int8_t)cases[k].what;
        s.action[1].object = (int8_t)cases[k].object;
        s.action[1].unit = s.action[1].count = 1;
        expect_message(&p, s.action, s.n, cases[k].code, cases[k].says);
    }
    s.action[1] = was;
    s.action[1].after = 3;
    expect_message(&p, s.action, s.n, GX_ERR_UNSUPPORTED,
                   "action 1 (F0 of micro-batch 0): chains (`after`) cannot be checked yet");
    s.action[1] = was;
    s.action[s.n - 1].at = GX_AT_HOST;
    expect_message(&p, s.action, s.n, GX_ERR_UNSUPPORTED,
                   "action 12 (STEP2): an optimizer on the host cannot be checked yet");
    s.action[1].what = 99;
    expect_message(&p, s.action, s.n, GX_ERR_ARGUMENT, "action 1: what is 99; it is 0 to 17");
    gx_steps_close(&s);
}

// ---- places --------------------------------------------------------------------------------------------------------

static GxStepsSpec random_spec(void)
{
    static uint8_t frozen[UNITS], recomputed[UNITS], shares[UNITS];
    GxStepsSpec p = GX_ZERO;
    p.units = 2 + random_below(16);
    p.micro_batches = 1 + random_below(MICRO_BATCHES);
    p.kind = random_below(8) == 0 ? GX_STEPS_FORWARD : GX_STEPS_TRAIN;
    p.order = random_below(2), p.recomputes_layers = random_below(2), p.defers_weights = random_below(2);
    p.weight_reads_x = random_below(2), p.is_tied = random_below(2);
    if (p.units > 4 && !p.defers_weights) p.memory = random_below(p.units - 3);
    for (int u = 0; u < p.units; u++) frozen[u] = (uint8_t)(random_below(4) == 0);
    frozen[p.units - 1] = 0;
    p.frozen = random_below(2) ? frozen : NULL;
    for (int u = 0; u < p.units; u++) recomputed[u] = (uint8_t)random_below(2);
    p.recomputed = random_below(2) ? recomputed : NULL;
    for (int u = 0; u < p.units; u++) shares[u] = u && random_state >> (20 + u) & 1;
    p.shares = random_state >> 40 & 1 ? shares : NULL;
    return p;
}

static double worst_ratio(void (*sizes)(Sizes *, int), int lists, int *above)
{
    double worst = 0;
    random_state = 11;
    for (int k = 0; k < lists; k++) {
        GxStepsSpec p = random_spec();
        GxSteps s = GX_ZERO;
        GxError err = GX_ZERO;
        Sizes z;
        sizes(&z, p.units);
        make(&s, &p);
        CHECK(gx_steps_place(&s, &z.bytes, &err) == GX_OK, "%s", err.message);
        CHECK(gx_steps_check_place(&s, &z.bytes, &err) == GX_OK, "%s", err.message);
        CHECK(does_a_step(&s, &z.bytes), "%s: %s", text_of(&s), machine.why);
        CHECK(machine.most == s.most, "%ld bytes at the worst moment, the list says %ld", (long)machine.most,
              (long)s.most);
        CHECK(s.bytes >= s.most, "%ld bytes for %ld", (long)s.bytes, (long)s.most);
        if (s.most) worst = fmax(worst, (double)s.bytes / (double)s.most);
        *above += s.bytes > 1.035 * (double)s.most;
        gx_steps_close(&s);
    }
    return worst;
}

TEST(rows_keep_what_was_written_and_need_little_more_than_the_worst_moment)
{
    int above = 0, above_any = 0;
    const double model = worst_ratio(sizes_of_a_model, 1000 / APART, &above),
                 any = worst_ratio(sizes_at_random, 600 / APART, &above_any);
    printf("    region / worst moment: %.4f for sizes as models have them, %.4f for any\n", model, any);
    printf("    above 1.035: %d of %d and %d of %d lists\n", above, 1000 / APART, above_any, 600 / APART);
    CHECK(above <= 1 && model <= 1.06, "%d of %d lists need more than 1.035 of their worst moment, up to %.4f", above,
          1000 / APART, model);
}

static void place(GxSteps *s, const GxStepsSpec *p, const Sizes *z)
{
    GxError err = GX_ZERO;
    make(s, p);
    CHECK(gx_steps_place(s, &z->bytes, &err) == GX_OK, "%s", err.message);
    CHECK(gx_steps_check_place(s, &z->bytes, &err) == GX_OK, "%s", err.message);
    CHECK(does_a_step(s, &z->bytes), "%s", machine.why);
}

static void same_sizes(Sizes *z, int units, int64_t x, int64_t slot)
{
    set_sizes(z);
    for (int u = 0; u <= units; u++) z->x[u] = x, z->slot[u] = slot;
}

// The embedding and each layer have a slot per micro-batch under way, the head one while it runs; R makes one at a
// time, besides the embedding's, and so does a forward that keeps none.
TEST(slots_and_bytes_that_are_alive)
{
    enum { LAYERS = 6, M = 4, X = 64, SLOT = 640 };
    static const struct {
        int order, recomputes, kind, slots;
    } cases[] = {{GX_ORDER_1F1B, 0, GX_STEPS_TRAIN, LAYERS + 2},
                 {GX_ORDER_GPIPE, 0, GX_STEPS_TRAIN, M * (LAYERS + 1) + 1},
                 {GX_ORDER_1F1B, 1, GX_STEPS_TRAIN, 2},
                 {GX_ORDER_GPIPE, 1, GX_STEPS_TRAIN, M + 1},
                 {GX_ORDER_1F1B, 0, GX_STEPS_FORWARD, 1}};
    Sizes z;
    int64_t bytes[5];
    same_sizes(&z, LAYERS + 2, X, SLOT);
    for (int k = 0; k < 5; k++) {
        GxStepsSpec p = simple(LAYERS, M);
        GxSteps s = GX_ZERO;
        p.order = cases[k].order, p.recomputes_layers = cases[k].recomputes, p.kind = cases[k].kind;
        place(&s, &p, &z);
        CHECK(machine.most_slots == cases[k].slots, "case %d: %d slots, expected %d", k, machine.most_slots,
              cases[k].slots);
        bytes[k] = s.bytes;
        gx_steps_close(&s);
    }
    // all slots and x(1) to x(L+1) while the head makes dx(L+1); of evaluation two neighbouring x and a slot
    CHECK(bytes[0] == (LAYERS + 1) * (SLOT + X) + SLOT + X, "1F1B: %ld bytes", (long)bytes[0]);
    // x(1) to x(L+1), the head's dx and slot beside the embedding's
    CHECK(bytes[2] == 2 * SLOT + (LAYERS + 1) * X + X, "recomputed: %ld bytes", (long)bytes[2]);
    CHECK(bytes[3] < bytes[1], "recomputed GPipe: %ld bytes of %ld", (long)bytes[3], (long)bytes[1]);
    CHECK(bytes[4] == 2 * X + SLOT, "evaluation: %ld bytes", (long)bytes[4]);
}

TEST(the_operands_of_each_action)
{
    GxStepsSpec p = simple(2, 3);
    GxSteps s = GX_ZERO;
    Sizes z;
    same_sizes(&z, 4, 100, 1000); // rounded up to 64 bytes
    z.slot[0] = 0;
    place(&s, &p, &z);
    char *base = (char *)64;
    for (int b = 0; b < 3; b++) {
        const GxOperands *f0 = &s.operands[find(&s, GX_DO_FORWARD, 0, b)],
                         *f1 = &s.operands[find(&s, GX_DO_FORWARD, 1, b)],
                         *b3 = &s.operands[find(&s, GX_DO_BACKWARD, 3, b)],
                         *b2 = &s.operands[find(&s, GX_DO_BACKWARD, 2, b)],
                         *b1 = &s.operands[find(&s, GX_DO_BACKWARD, 1, b)],
                         *b0 = &s.operands[find(&s, GX_DO_BACKWARD, 0, b)];
        CHECK(gx_steps_at(&s, base, f0->x) == NULL, "an embedding has no x");
        CHECK(f0->y == f1->x && f1->y >= 0 && f1->slot >= 0, "F1's x is %d, F0 made %d", f1->x, f0->y);
        CHECK(b1->x == f1->x && b1->slot == f1->slot && b0->slot == f0->slot, "B1 has slot %d, F1 made %d", b1->slot,
              f1->slot);
        CHECK(b3->dy < 0 && b3->slot >= 0 && b3->dx >= 0 && b0->dx < 0 && b0->x < 0, "the head, the embedding");
        CHECK(b2->dy == b3->dx && b2->dx == b2->dy && b1->dx == b2->dx && b0->dy == b1->dx, "dx is not made in place");
        CHECK((char *)gx_steps_at(&s, base, f1->slot) == base + s.buffer[f1->slot].offset, "address");
    }
    CHECK(s.n_buffers == 8, "%d buffers: three x, two slots of layers, the head's, one that is empty, a dx",
          s.n_buffers);
    for (int i = 0; i < s.n_buffers; i++)
        CHECK(s.buffer[i].offset % 64 == 0, "buffer %d at %ld", i, (long)s.buffer[i].offset);
    gx_steps_close(&s);

    z.x[2] = 200; // another size: not in place
    place(&s, &p, &z);
    const GxOperands *b2 = &s.operands[find(&s, GX_DO_BACKWARD, 2, 0)];
    CHECK(b2->dx != b2->dy, "dx of %ld bytes over %ld", (long)z.x[2], (long)z.x[3]);
    gx_steps_close(&s);
}

// A placement with one buffer moved, or one operand changed, is refused; where it is not, nothing is overwritten.
TEST(a_broken_placement_is_refused)
{
    long tried = 0, refused = 0;
    random_state = 3;
    for (int k = 0; k < 100 / APART; k++) {
        GxStepsSpec p = random_spec();
        GxSteps s = GX_ZERO;
        Sizes z;
        if (k % 2) shard_at_random(&p, 2 + random_below(2));
        sizes_of_a_model(&z, p.units), weigh_at_random(&z, p.units);
        place(&s, &p, &z);
        for (int i = 0; i < 50 && s.n_buffers; i++) {
            GxError err = GX_ZERO;
            GxBuffer *b = &s.buffer[random_below(s.n_buffers)], was = *b;
            GxOperands *o = &s.operands[random_below(s.n)], had = *o;
            if (i % 10 == 4) b->bytes -= 64;
            if (i % 10 == 9)
                o->grads = (int16_t)random_below(s.n_buffers), o->tied = (int16_t)random_below(s.n_buffers);
            if (i % 10 == 9) o->weights = (int16_t)random_below(s.n_buffers);
            if (i % 5 == 0) b->offset += 64 * (random_below(20) - 10);
            if (i % 5 == 1) b->offset = s.buffer[random_below(s.n_buffers)].offset;
            if (i % 5 == 2) o->x = (int16_t)random_below(s.n_buffers);
            if (i % 5 == 3) o->slot = (int16_t)random_below(s.n_buffers), o->dy = (int16_t)random_below(s.n_buffers);
            const int accepted = gx_steps_check_place(&s, &z.bytes, &err) == GX_OK;
            CHECK(!accepted || does_a_step(&s, &z.bytes), "accepted: %s", machine.why);
            CHECK(accepted || !strncmp(err.message, "action ", 7), "%s", err.message);
            tried++, refused += !accepted;
            *b = was, *o = had;
        }
        gx_steps_close(&s);
    }
    printf("    %ld of %ld refused\n", refused, tried);
    CHECK(refused > tried / 2, "%ld of %ld refused", refused, tried);
}

TEST(lists_that_are_wrong_and_too_many_buffers_are_refused)
{
    GxStepsSpec p = simple(2, 1);
    GxSteps s = GX_ZERO;
    GxError err = GX_ZERO;
    static Sizes z;
    same_sizes(&z, 4, 64, 64);
    make(&s, &p);
    s.action[2].unit = 2; // F2 instead of F1
    CHECK(gx_steps_place(&s, &z.bytes, &err) == GX_ERR_ARGUMENT && strstr(err.message, "F2 of micro-batch 0"), "%s",
          err.message);
    gx_steps_close(&s);
    p = simple(20, 800);
    p.order = GX_ORDER_GPIPE;
    same_sizes(&z, 22, 64, 64);
    gx_error_clear(&err);
    make(&s, &p);
    CHECK(gx_steps_place(&s, &z.bytes, &err) == GX_ERR_UNSUPPORTED && strstr(err.message, "buffers"), "%s",
          err.message);
    gx_steps_close(&s);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
