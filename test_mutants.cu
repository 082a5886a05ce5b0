// test_mutants.cu: would the tests of modes notice a collective that is wrong? Each one of a training window is broken
// in every way that fits it, and the broken run has to differ from serial by ten times the bound that a sound one keeps
// (test/parallel.h). Nobody lists the places: they come from a recording of the sound run, and what tensors need comes
// from their table.
//
// The linker wraps the collectives (--wrap): every call of one by models, gradients and windows, which are objects of
// their own, passes here, and the library has no hook for it; calls within the collectives' own object do not. A
// mutation hits all ranks alike, so that nothing hangs, and in every window the same call: one micro-batch's. What it
// does is done to the result of the sound collective, since the others wait for this rank's part.
//
//     GX_TEST_SHARE=0/2 ./test_mutants no_mutant     half of the mutants of every layout
#define TEST_STEPS 1 // of SGD, and one of AdamW: a mutant is in the first gradient already
#include "galaxy.h"
GxStatus mutant_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                           const GxModelOptions *options);
#define gx_model_open mutant_model_open
#include "test/subjects.h"
#undef gx_model_open

// What the linker calls the function that was wrapped, and the one that is called in its place.
#define REAL(name)   __real_##name
#define MUTANT(name) __wrap_##name
#define WRAPPED(type, name, ...)                                                                                       \
    type REAL(name)(__VA_ARGS__);                                                                                      \
    type MUTANT(name)(__VA_ARGS__);
WRAPPED(void, gx_all_reduce, GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
WRAPPED(GxTicket, gx_all_reduce_start, GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
WRAPPED(void, gx_all_gather, GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine, int64_t row,
        GxDtype dtype)
WRAPPED(GxTicket, gx_all_gather_start, GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
        int64_t row, GxDtype dtype)
WRAPPED(void, gx_reduce_scatter, GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
        int64_t row, GxDtype dtype)
WRAPPED(GxTicket, gx_reduce_scatter_start, GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
        int64_t row, GxDtype dtype)
WRAPPED(void, gx_transfer, GxContext *g, int axes, const GxTransfer *list, int n)
WRAPPED(void, gx_send, GxContext *g, int axes, int to, const void *x, int64_t n, GxDtype dtype)
WRAPPED(void, gx_recv, GxContext *g, int axes, int from, void *x, int64_t n, GxDtype dtype)
WRAPPED(void, gx_broadcast, GxContext *g, int axes, int root, void *x, int64_t n, GxDtype dtype)
WRAPPED(GxRange, gx_tensor_owned, const GxTensor *t, int member)
WRAPPED(int, gx_group_index, const GxContext *g, int axes)
WRAPPED(int, gx_counts_samples, const GxContext *g)

// ---- mutants -------------------------------------------------------------------------------------------------------

typedef struct { // a call in a window: the nth that has all of this
    const char *name, *site;
    int unit, axes, nth;
    GxReduce reduce;
    int in_place; // a reduce-scatter into its own rows of the summand
    int events;   // in the recorder: a list of transfers has one for each
    int has_none; // a member's rows are none
} Call;

typedef enum {
    SOUND = 0,
    SKIPPED,      // nothing is communicated
    DOUBLED,      // a sum is taken twice
    SWAPPED,      // rows arrive in others' places
    STALE,        // one rank's rows do not arrive; a scatter's sum is not written
    ADDED_BY_ALL, // all ranks but the first add a constant to their summand: a bias that every rank adds instead of one
    LEFT_OUT,     // a tensor's row in the table does not ask for its sum over tp
    OVERLAP_COUNTED,     // what several ranks hold of a tensor is counted by all of them in the norm
    REPLICAS_COUNTED,    // everything is
    LABELS_COUNTED_TWICE // every rank of a tp group counts the labels that all of them have
} Mutation;
static const char *const mutation_names[] = {"sound",
                                             "skipped",
                                             "doubled",
                                             "swapped",
                                             "stale",
                                             "a constant added by all ranks",
                                             "sum left out",
                                             "overlap counted twice in the norm",
                                             "replicas counted in the norm",
                                             "labels counted by every rank"};

typedef struct {
    Mutation kind;
    int of_call; // SKIPPED to ADDED_BY_ALL: number among the hunt's calls, -1: of none
    Call call;
    char tensor[GX_NAME]; // LEFT_OUT, OVERLAP_COUNTED: of which tensor
} Mutant;

enum { MOST_CALLS = 200 };
typedef struct {
    Call call[MOST_CALLS];
    int n;
} Calls;

static Mutant mutant; // of this run, on all its ranks
static int changed;   // a rank has other bits than without it
static Calls *calls;  // [ranks]: what the ranks call in their first window; NULL: not wanted

typedef enum { OPENING = 0, COUNTING_LABELS, WORKING } Phase; // of a window
static __thread struct {
    Phase phase;
    int windows; // begun
    int seen;    // calls in this window like the mutant's
} self;          // of a rank, which is a thread

static int same_place(const Call *a, const Call *b)
{
    return a->name == b->name && !strcmp(a->site, b->site) && a->unit == b->unit && a->axes == b->axes &&
           a->reduce == b->reduce;
}

static void note(Calls *c, Call call)
{
    call.nth = 0;
    for (int i = 0; i < c->n; i++) call.nth += same_place(&c->call[i], &call);
    if (CHECK(c->n < MOST_CALLS, "more than %d calls", MOST_CALLS)) c->call[c->n++] = call;
}

static void keep_phase(const char *site)
{
    if (!strcmp(site, "window")) self.phase = WORKING, self.seen = 0, self.windows++;
    if (!strcmp(site, "loss")) self.phase = COUNTING_LABELS;
}

static Call call_of(const GxContext *g, const char *name, int axes, GxReduce reduce)
{
    const Call c = {name, g->site, g->unit, gx_mesh_axes(g->mesh, axes), 0, reduce, 0, 1, 0};
    return c;
}

// What is to be done to this call. Groups of one and dry runs communicate nothing.
static Mutation meet(const GxContext *g, Call call)
{
    if (!g->device->computes || !g->comm || gx_failed(g)) return SOUND;
    keep_phase(g->site);
    if (!call.axes || !strcmp(g->site, TEST_SITE)) return SOUND;
    if (calls && self.windows == 1) note(&calls[g->rank], call);
    if (!mutant.call.name || !same_place(&call, &mutant.call)) return SOUND;
    return self.seen++ == mutant.call.nth ? mutant.kind : SOUND;
}

static const char all_reduce[] = "all_reduce", all_gather[] = "all_gather", reduce_scatter[] = "reduce_scatter",
                  transfer[] = "transfer", message[] = "message", broadcast[] = "broadcast";

// ---- what mutations do to data -------------------------------------------------------------------------------------

static char *copy_of(const void *x, int64_t bytes)
{
    char *copy = (char *)malloc((size_t)bytes + 1);
    memcpy(copy, x, (size_t)bytes);
    return copy;
}

static void note_change(const void *x, const void *sound, int64_t bytes)
{
    if (memcmp(x, sound, (size_t)bytes)) __atomic_store_n(&changed, 1, __ATOMIC_RELAXED);
}

static void double_all(void *x, int64_t n, GxDtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == GX_F32) ((float *)x)[i] *= 2;
        else if (dtype == GX_F64) ((double *)x)[i] *= 2;
        else ((int64_t *)x)[i] *= 2;
}

// To every second column: a norm of whole rows would not see what all of them have in common.
static void add_constant(const GxContext *g, int axes, float *x, int64_t n)
{
    double squares = 0;
    if (REAL(gx_group_index)(g, axes) == 0) return;
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (int64_t i = 0; i < n; i += 2) x[i] += (float)sqrt(squares / (double)n);
}

static void mutate_all_reduce(Mutation m, GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
{
    const int64_t bytes = n * gx_dtype_size(dtype);
    char *before = copy_of(x, bytes);
    REAL(gx_all_reduce)(g, axes, reduce, x, n, dtype);
    char *sound = copy_of(x, bytes);
    if (m == SKIPPED || m == ADDED_BY_ALL) memcpy(x, before, (size_t)bytes);
    if (m == DOUBLED) double_all(x, n, dtype);
    if (m == ADDED_BY_ALL) {
        add_constant(g, axes, (float *)x, n);
        REAL(gx_all_reduce)(g, axes, reduce, x, n, dtype);
    }
    note_change(x, sound, bytes);
    free(before);
    free(sound);
}

typedef struct { // rows of a split, in bytes
    int64_t begin, bytes;
} Part;

static Part part_of(const GxSplit *rows, int member, int64_t row_bytes)
{
    Part p = {rows->begin[member] * row_bytes, gx_split_part(rows, member) * row_bytes};
    return p;
}

static void mutate_all_gather(Mutation m, GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
                              int64_t row, GxDtype dtype)
{
    const int64_t size = row * gx_dtype_size(dtype), bytes = gx_split_total(rows) * size;
    const int me = REAL(gx_group_index)(g, axes);
    char *x = (char *)full, *before = copy_of(full, bytes);
    REAL(gx_all_gather)(g, axes, rows, full, mine, row, dtype);
    char *sound = copy_of(full, bytes);
    for (int r = 0; r < rows->n; r++) { // what does not arrive is what was there before
        const Part p = part_of(rows, r, size);
        if (r != me && (m == SKIPPED || (m == STALE && r == 0))) memcpy(x + p.begin, before + p.begin, (size_t)p.bytes);
    }
    if (m == SWAPPED) {
        const Part a = part_of(rows, 0, size), b = part_of(rows, 1, size);
        memcpy(x + a.begin, sound + b.begin, (size_t)gx_min(a.bytes, b.bytes));
        memcpy(x + b.begin, sound + a.begin, (size_t)gx_min(a.bytes, b.bytes));
    }
    note_change(full, sound, bytes);
    free(before);
    free(sound);
}

static void mutate_reduce_scatter(Mutation m, GxContext *g, int axes, const GxSplit *rows, void *mine,
                                  const void *partial, int64_t row, GxDtype dtype)
{
    const int64_t size = row * gx_dtype_size(dtype), bytes = gx_split_total(rows) * size;
    const int me = REAL(gx_group_index)(g, axes);
    const Part own = part_of(rows, me, size), next = part_of(rows, (me + 1) % rows->n, size);
    char *before = copy_of(mine, own.bytes), *summand = copy_of(partial, bytes);
    REAL(gx_reduce_scatter)(g, axes, rows, mine, partial, row, dtype);
    char *sound = copy_of(mine, own.bytes);
    if (m == SKIPPED) memcpy(mine, summand + own.begin, (size_t)own.bytes);
    if (m == STALE) memcpy(mine, before, (size_t)own.bytes);
    if (m == DOUBLED) double_all(mine, own.bytes / gx_dtype_size(dtype), dtype);
    if (m == SWAPPED) {
        REAL(gx_all_gather)(g, axes, rows, summand, sound, row, dtype);
        memcpy(mine, summand + next.begin, (size_t)gx_min(own.bytes, next.bytes));
    }
    if (m == ADDED_BY_ALL) {
        add_constant(g, axes, (float *)summand, bytes / 4);
        REAL(gx_reduce_scatter)(g, axes, rows, mine, summand, row, dtype);
    }
    note_change(mine, sound, own.bytes);
    free(before);
    free(summand);
    free(sound);
}

// ---- calls that pass by --------------------------------------------------------------------------------------------

static int has_none(const GxSplit *rows)
{
    for (int r = 0; r < rows->n; r++)
        if (!gx_split_part(rows, r)) return 1;
    return 0;
}

static Call gather_of(const GxContext *g, int axes, const GxSplit *rows)
{
    Call c = call_of(g, all_gather, axes, GX_SUM);
    c.has_none = has_none(rows);
    return c;
}

void MUTANT(gx_all_reduce)(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
{
    const Mutation m = meet(g, call_of(g, all_reduce, axes, reduce));
    if (m == SOUND) REAL(gx_all_reduce)(g, axes, reduce, x, n, dtype);
    else mutate_all_reduce(m, g, axes, reduce, x, n, dtype);
}

GxTicket MUTANT(gx_all_reduce_start)(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
{
    const Mutation m = meet(g, call_of(g, all_reduce, axes, reduce));
    GxTicket done = GX_ZERO;
    if (m == SOUND) return REAL(gx_all_reduce_start)(g, axes, reduce, x, n, dtype);
    mutate_all_reduce(m, g, axes, reduce, x, n, dtype);
    return done;
}

void MUTANT(gx_all_gather)(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine, int64_t row,
                           GxDtype dtype)
{
    const Mutation m = meet(g, gather_of(g, axes, rows));
    if (m == SOUND) REAL(gx_all_gather)(g, axes, rows, full, mine, row, dtype);
    else mutate_all_gather(m, g, axes, rows, full, mine, row, dtype);
}

GxTicket MUTANT(gx_all_gather_start)(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
                                     int64_t row, GxDtype dtype)
{
    const Mutation m = meet(g, gather_of(g, axes, rows));
    GxTicket done = GX_ZERO;
    if (m == SOUND) return REAL(gx_all_gather_start)(g, axes, rows, full, mine, row, dtype);
    mutate_all_gather(m, g, axes, rows, full, mine, row, dtype);
    return done;
}

static Call scatter_of(const GxContext *g, int axes, const GxSplit *rows, const void *mine, const void *partial,
                       int64_t row, GxDtype dtype)
{
    Call c = call_of(g, reduce_scatter, axes, GX_SUM);
    c.has_none = has_none(rows);
    c.in_place =
        mine == (const char *)partial + rows->begin[REAL(gx_group_index)(g, axes)] * row * gx_dtype_size(dtype);
    return c;
}

void MUTANT(gx_reduce_scatter)(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                               int64_t row, GxDtype dtype)
{
    const Mutation m = meet(g, scatter_of(g, axes, rows, mine, partial, row, dtype));
    if (m == SOUND) REAL(gx_reduce_scatter)(g, axes, rows, mine, partial, row, dtype);
    else mutate_reduce_scatter(m, g, axes, rows, mine, partial, row, dtype);
}

GxTicket MUTANT(gx_reduce_scatter_start)(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                                         int64_t row, GxDtype dtype)
{
    const Mutation m = meet(g, scatter_of(g, axes, rows, mine, partial, row, dtype));
    GxTicket done = GX_ZERO;
    if (m == SOUND) return REAL(gx_reduce_scatter_start)(g, axes, rows, mine, partial, row, dtype);
    mutate_reduce_scatter(m, g, axes, rows, mine, partial, row, dtype);
    return done;
}

void MUTANT(gx_transfer)(GxContext *g, int axes, const GxTransfer *list, int n)
{
    Call call = call_of(g, transfer, axes, GX_SUM);
    call.events = n;
    const Mutation m = meet(g, call);
    REAL(gx_transfer)(g, axes, list, n);
    for (int i = 0; m != SOUND && i < n; i++) {
        const int64_t bytes = list[i].n * gx_dtype_size(list[i].dtype);
        if (list[i].is_send) continue;
        char *sound = copy_of(list[i].data, bytes);
        if (m == SKIPPED) memset(list[i].data, 0, (size_t)bytes);
        if (m == DOUBLED) double_all(list[i].data, list[i].n, list[i].dtype);
        note_change(list[i].data, sound, bytes);
        free(sound);
    }
}

// What has arrived, where `before` was, which this frees.
static void mutate_received(Mutation m, void *x, char *before, int64_t n, GxDtype dtype)
{
    const int64_t bytes = n * gx_dtype_size(dtype);
    char *sound = copy_of(x, bytes);
    if (m == SKIPPED) memcpy(x, before, (size_t)bytes);
    if (m == DOUBLED) double_all(x, n, dtype);
    if (m != SOUND) note_change(x, sound, bytes);
    free(before), free(sound);
}

// Of the sender's call and of the receiver's, which are one place, the receiver's is broken.
void MUTANT(gx_send)(GxContext *g, int axes, int to, const void *x, int64_t n, GxDtype dtype)
{
    meet(g, call_of(g, message, axes, GX_SUM));
    REAL(gx_send)(g, axes, to, x, n, dtype);
}

void MUTANT(gx_recv)(GxContext *g, int axes, int from, void *x, int64_t n, GxDtype dtype)
{
    const Mutation m = meet(g, call_of(g, message, axes, GX_SUM));
    char *before = copy_of(x, n * gx_dtype_size(dtype));
    REAL(gx_recv)(g, axes, from, x, n, dtype);
    mutate_received(m, x, before, n, dtype);
}

void MUTANT(gx_broadcast)(GxContext *g, int axes, int root, void *x, int64_t n, GxDtype dtype)
{
    const Mutation m = meet(g, call_of(g, broadcast, axes, GX_SUM));
    char *before = copy_of(x, n * gx_dtype_size(dtype));
    REAL(gx_broadcast)(g, axes, root, x, n, dtype);
    mutate_received(m, x, before, n, dtype);
}

// ---- what tensors need, and who counts -----------------------------------------------------------------------------

GxRange MUTANT(gx_tensor_owned)(const GxTensor *t, int member)
{
    return mutant.kind == OVERLAP_COUNTED && !strcmp(t->name, mutant.tensor) ? t->parts[member]
                                                                             : REAL(gx_tensor_owned)(t, member);
}

// A rank that counts a tensor in the norm is the first of its tp group.
int MUTANT(gx_group_index)(const GxContext *g, int axes)
{
    const int is_first = mutant.kind == REPLICAS_COUNTED && g->site && !strcmp(g->site, "norm");
    return is_first && g->device->computes ? 0 : REAL(gx_group_index)(g, axes);
}

int MUTANT(gx_counts_samples)(const GxContext *g)
{
    const int all_count = mutant.kind == LABELS_COUNTED_TWICE && self.phase == COUNTING_LABELS;
    return (all_count && g->device->computes) || REAL(gx_counts_samples)(g);
}

// The table is changed before memory is planned: other neighbours go in one sum.
GxStatus mutant_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                           const GxModelOptions *options)
{
    self.phase = OPENING;
    GX_TRY(gx_model_open(g, m, family, config, mode, options));
    self.phase = COUNTING_LABELS;
    if (mutant.kind == LEFT_OUT) m->table.row[gx_table_find(&m->table, mutant.tensor).index].sums_over_tp = 0;
    return GX_OK;
}

// ---- all mutants of a layout ---------------------------------------------------------------------------------------

enum { MOST_MUTANTS = 1000 };
typedef struct {
    const Layout *layout;
    Result serial;
    Calls calls;          // of all ranks, each once
    int bred[MOST_CALLS]; // mutants of each
    Mutant list[MOST_MUTANTS];
    int n, tried;
    Worst least; // the one that was hardest to see
} Hunt;

static void breed(Hunt *h, Mutation kind, int call, const GxTensor *t)
{
    if (!CHECK(h->n < MOST_MUTANTS, "more than %d mutants", MOST_MUTANTS)) return;
    Mutant *m = &h->list[h->n++];
    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->of_call = call;
    if (call >= 0) m->call = h->calls.call[call], h->bred[call]++;
    if (t) snprintf(m->tensor, sizeof m->tensor, "%s", t->name);
}

// Is it a sum that makes rows of summands? There a bias would be added.
static int sums_rows(GxMethods methods, const Call *c)
{
    for (int core = 0; core < GX_CORE_KINDS; core++) {
        const GxMove exit = gx_core_exit(gx_methods_of(methods, (GxCoreKind)core), methods.con);
        if (!strcmp(gx_door_name((GxCoreKind)core, GX_EXIT), c->site) && exit.from == GX_LAYOUT_PARTIAL &&
            !strcmp(gx_move_name(exit.move.forward), c->name))
            return 1;
    }
    return 0;
}

// Doubling a maximum is no mutant: all ranks subtract the same other number from a row's logits, and the loss does not
// depend on which. A sum that is scattered into its own summand's place is not stale when it is not written, but
// skipped.
static int fits(Mutation kind, const Call *c, GxMethods methods)
{
    if (c->name == broadcast && kind != SKIPPED) return 0;
    const int gathers = c->name == all_gather, scatters = c->name == reduce_scatter, is_max = c->reduce == GX_MAX;
    switch (kind) {
    case SKIPPED: return 1;
    case DOUBLED: return !gathers && !is_max;
    case SWAPPED: return (gathers || scatters) && !c->has_none;
    case STALE: return (gathers && !c->has_none) || (scatters && !c->in_place);
    default: return sums_rows(methods, c);
    }
}

static void breed_all(Hunt *h, const GxStore *s)
{
    const GxTable *table = s->table;
    const int has_tp = h->layout->tp > 1;
    for (int i = 0; i < h->calls.n; i++)
        for (int kind = SKIPPED; kind <= ADDED_BY_ALL; kind++)
            if (fits((Mutation)kind, &h->calls.call[i], h->layout->mode->methods)) breed(h, (Mutation)kind, i, NULL);
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        // a key bias's gradient is 0, and what is frozen has none
        if (t->has_alias || t->frozen || strstr(t->name, "key.bias")) continue;
        // what tp ranks share, too, has one sum, whatever the row says
        if (has_tp && t->sums_over_tp && !(gx_shards_axes(s, t->unit) & GX_AXIS_TP)) breed(h, LEFT_OUT, -1, t);
        int overlaps = 0;
        for (int r = 0; t->parts && r < t->n_parts; r++)
            overlaps |= gx_range_count(gx_tensor_owned(t, r)) < gx_range_count(t->parts[r]);
        if (overlaps) breed(h, OVERLAP_COUNTED, -1, t);
    }
    if (has_tp) breed(h, REPLICAS_COUNTED, -1, NULL);
    if (has_tp) breed(h, LABELS_COUNTED_TWICE, -1, NULL);
}

static const char *mutant_name(const Mutant *m, char text[300])
{
    const Call *c = &m->call;
    char buffer[64];
    if (m->of_call >= 0)
        snprintf(text, 300, "%s%s over %s at %s of unit %d, call %d: %s", c->name, c->reduce == GX_MAX ? " (max)" : "",
                 gx_axes_name(c->axes, buffer), c->site, c->unit, c->nth, mutation_names[m->kind]);
    else snprintf(text, 300, "%s%s%s", m->tensor, m->tensor[0] ? ": " : "", mutation_names[m->kind]);
    return text;
}

static int is_seen(const Worst *w) { return !(w->ratio < 10); } // not a number is seen, too

static Worst run_mutant(const Hunt *h, const Mutant *m, int sgd_alone)
{
    Rank rank[MAX_RANKS];
    mutant = *m;
    changed = 0;
    test_sgd_alone = sgd_alone;
    run_ranks(h->layout, rank);
    const Worst w = compare_ranks(h->layout, rank, &h->serial);
    free_ranks(h->layout, rank);
    memset(&mutant, 0, sizeof mutant);
    test_sgd_alone = 0;
    return w;
}

// What is seen in the steps of SGD is seen; of what is not, the whole run follows.
static Worst hunt_mutant(const Hunt *h, const Mutant *m)
{
    const Worst w = run_mutant(h, m, 1);
    return is_seen(&w) ? w : run_mutant(h, m, 0);
}

// Takes over those calls of a rank that no other has made. Every collective that the recorder has must have passed
// here.
static void take_calls(Hunt *h, const Calls *of_rank, const GxRecorder *rec, int rank)
{
    int events = 0, recorded = 0;
    for (int64_t i = 0; i < rec->n; i++) recorded += rec->event[i].kind == GX_EVENT_COLLECTIVE;
    for (int i = 0; i < of_rank->n; i++) {
        const Call *c = &of_rank->call[i];
        int known = 0;
        for (int k = 0; k < h->calls.n; k++)
            known |= same_place(&h->calls.call[k], c) && h->calls.call[k].nth == c->nth;
        if (!known && CHECK(h->calls.n < MOST_CALLS, "more than %d calls", MOST_CALLS))
            h->calls.call[h->calls.n++] = *c;
        events += c->events;
    }
    CHECK(events == recorded, "%s: rank %d: %d collectives were recorded, %d passed here", h->layout->what, rank,
          recorded, events);
}

static void record_sound_run(Hunt *h)
{
    static Calls list[MAX_RANKS];
    const Layout *l = h->layout;
    Rank rank[MAX_RANKS];
    memset(list, 0, sizeof list);
    calls = list;
    run_ranks(l, rank);
    calls = NULL;
    const Worst w = compare_ranks(l, rank, &h->serial);
    CHECK(w.ratio <= 1, "%s: the sound run: %s: %g times the bound", l->what, w.what, w.ratio);
    for (int r = 0; r < ranks_of(l); r++) take_calls(h, &list[r], &rank[r].result.window, r);
    breed_all(h, &rank[0].result.model->m.store);
    free_ranks(l, rank);
}

static void judge(Hunt *h, const Mutant *m, const Worst *w)
{
    const char *what = h->layout->what;
    char text[300];
    CHECK(strncmp(w->what, "error:", 6), "%s: %s: it should compute something wrong, not fail: %s", what,
          mutant_name(m, text), w->what);
    CHECK(m->of_call < 0 || changed, "%s: %s: no rank has other bits: it is no mutant", what, mutant_name(m, text));
    CHECK(is_seen(w), "%s: %s survives: %s is off by only %g times the bound", what, mutant_name(m, text), w->what,
          w->ratio);
    if (w->ratio >= h->least.ratio) return;
    h->least.ratio = w->ratio;
    snprintf(h->least.what, sizeof h->least.what, "%.199s", mutant_name(m, text));
}

// A sanitizer looks at memory, not at numbers: a mutant takes the library where the sound run of its layout has been,
// with other numbers. Some of them show it what the mutations themselves do. A share is drawn, since the kinds of
// mutants take turns.
static int is_tried(int i)
{
    static uint64_t number; // of all mutants of all layouts
    const uint32_t drawn = gx_random_bits(7, number++, 0, 0);
    return TEST_IS_SANITIZED && !test_long() ? i % 9 == 0 : test_share((long)drawn);
}

static void hunt(const Layout *l)
{
    static Hunt h;
    memset(&h, 0, sizeof h);
    h.layout = l;
    h.least.ratio = INFINITY;
    run_serial(l, &h.serial);
    record_sound_run(&h);
    for (int i = 0; i < h.n; i++) {
        if (!is_tried(i)) continue;
        const Worst w = hunt_mutant(&h, &h.list[i]);
        judge(&h, &h.list[i], &w);
        h.tried++;
    }
    for (int i = 0; i < h.calls.n; i++)
        CHECK(h.bred[i], "%s: there is no mutant of %s at %s of unit %d, call %d", l->what, h.calls.call[i].name,
              h.calls.call[i].site, h.calls.call[i].unit, h.calls.call[i].nth);
    printf("     %s: %d calls, %d of %d mutants; hardest to see, at %.3g times the bound: %s\n", l->what, h.calls.n,
           h.tried, h.n, h.least.ratio, h.least.what);
    free_result(&h.serial);
}

// ---- which layouts -------------------------------------------------------------------------------------------------

static void hunt_in_every_mode(const Layout *shape)
{
    for (int i = 1; i < MODES; i++) {
        const Layout l = test_layout(test_modes[i], shape);
        hunt(&l);
    }
}

// Where cores are by SP and CON is not, only norms and biases of CON need the gradients of other ranks' rows, and with
// LoRA these are frozen: the gathers are then for nobody, and not missed. With adapters, of a core that is
// frozen, and computed whole, where CON is by SP, nobody uses other ranks' rows, or in a causal attention those before.
// So it is with an MLP beside a side network.
static int gathers_for_nobody(const Layout *shape, GxMethods m)
{
    const int has_whole_core = m.att == GX_METHOD_NONE || m.mlp == GX_METHOD_NONE;
    if (shape->bottleneck) return m.con == GX_METHOD_SP && has_whole_core;
    if (shape->side) return m.con == GX_METHOD_SP && m.mlp == GX_METHOD_NONE;
    return shape->lora && m.att == GX_METHOD_SP && m.con == GX_METHOD_NONE && m.mlp == GX_METHOD_SP;
}

static void hunt_in_every_triple(const Layout *shape)
{
    for (int i = 0; i < TRIPLES; i++) {
        if (gathers_for_nobody(shape, test_triples[i].methods)) continue;
        const Layout l = test_layout(&test_triples[i], shape);
        hunt(&l);
    }
}

// Norms behind CON, biases, dropout, picked rows: a BERT's masked tokens with pairs of texts; then labels, of the BERT,
// or of a LLaMA where attention is by SP: in a BERT's last layer nobody but rank 0 needs rank 0's first tokens.
static void hunt_picked_rows(const Layout *shape)
{
    for (int i = 1; i < MODES; i++) {
        const Layout l = test_layout(test_modes[i], shape);
        test_subject = &pretraining;
        hunt(&l);
        test_subject = test_modes[i]->methods.att == GX_METHOD_SP ? &scores : &labels;
        hunt(&l);
    }
    test_subject = NULL;
}

// ---- stages, and ranks that share units ----------------------------------------------------------------------------

// One unit is whole at a time. Each micro-batch's gradients are scattered where they may be.
static void hunt_in_a_mesh(Layout l, int pp, int sharded, int each)
{
    static const int16_t stages[2][3] = {{0, 4}, {0, 2, 4}};
    // a head's norm, of ones as the layers' are, is not all that one of the two has of it
    static const int64_t shares[] = {5, 1};
    l.pp = pp;
    test_request.shares.part = shares, test_request.shares.n = sharded == 3 ? 2 : 0;
    test_request.sharded = (GxSharded)sharded, test_request.spec.gathered_units = 1;
    test_request.spec.shard_grads_in_window = each;
    test_request.spec.stage = pp > 1 ? stages[1] : NULL;
    hunt(&l);
    memset(&test_request, 0, sizeof test_request);
}

TEST(no_mutant_of_stages_and_of_ranks_that_share_survives)
{
    static const Layout two = {.what = "2 ranks that share",
                               .mode = &test_serial,
                               .dp = 2,
                               .tp = 1,
                               .micro = 1,
                               .samples = {2, 1},
                               .wide = 1},
                        one = {.what = "2 stages", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 2, .samples = {2}},
                        both = {.what = "2 stages x 2 ranks that share",
                                .mode = &test_serial,
                                .dp = 2,
                                .tp = 1,
                                .micro = 1,
                                .samples = {1, 2}},
                        sp = {.what = "2 ranks that share x tp 2, sp",
                              .mode = &gx_sp,
                              .dp = 2,
                              .tp = 2,
                              .micro = 1,
                              .samples = {1, 2}};
    hunt_in_a_mesh(one, 2, 0, 0);
    for (int sharded = 1; sharded <= 3; sharded++) hunt_in_a_mesh(two, 1, sharded, 0);
    hunt_in_a_mesh(both, 2, 3, 0);
    hunt_in_a_mesh(sp, 1, 3, 0);
}

#define HUNT(test_name, hunter, ...)                                                                                   \
    TEST(test_name)                                                                                                    \
    {                                                                                                                  \
        static const Layout shape = {__VA_ARGS__};                                                                     \
        hunter(&shape);                                                                                                \
    }
HUNT(no_mutant_of_data_parallelism_survives, hunt, .what = "dp 2, 3 and 1 samples", .mode = &test_serial, .dp = 2,
     .tp = 1, .micro = 1, .samples = {3, 1})
HUNT(no_mutant_of_data_parallelism_tied_with_accumulation_survives, hunt, .what = "dp 3, tied, accumulation",
     .mode = &test_serial, .dp = 3, .tp = 1, .micro = 2, .samples = {1, 2, 1}, .tied = 1)
HUNT(no_mutant_of_a_mode_survives, hunt_in_every_mode, .what = "2 ranks, a shared K,V head", .dp = 1, .tp = 2,
     .micro = 1, .samples = {2})
HUNT(no_mutant_of_a_mode_tied_with_accumulation_survives, hunt_in_every_mode, .what = "2 ranks, tied, accumulation",
     .dp = 1, .tp = 2, .micro = 2, .samples = {2}, .heads = {4, 2}, .columns = {30, 10}, .sequence = {3, 5}, .tied = 1)
HUNT(no_mutant_of_an_uneven_mode_survives, hunt_in_every_mode, .what = "3 ranks, heads 1,3,2, tokens 1,5,2", .dp = 1,
     .tp = 3, .micro = 1, .samples = {2}, .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2})
HUNT(no_mutant_of_a_kv_head_that_all_share_survives, hunt, .what = "tp, 3 ranks, heads 1,3,2 on one K,V head",
     .mode = &gx_tp, .dp = 1, .tp = 3, .micro = 1, .samples = {2}, .kv_heads = 1, .heads = {1, 3, 2})
HUNT(no_mutant_of_norms_of_heads_in_a_mode_survives, hunt_in_every_mode, .what = "3 ranks, normed heads 1,3,2", .dp = 1,
     .tp = 3, .micro = 1, .samples = {2}, .heads = {1, 3, 2}, .sequence = {1, 5, 2}, .normed = 1)
HUNT(no_mutant_of_data_parallelism_times_a_mode_survives, hunt_in_every_mode,
     .what = "dp 2 x 2 ranks, heads 5,1, tokens 7,1", .dp = 2, .tp = 2, .micro = 1, .samples = {1, 2}, .heads = {5, 1},
     .columns = {33, 7}, .sequence = {7, 1})
HUNT(no_mutant_of_a_triple_of_methods_survives, hunt_in_every_triple, .what = "2 ranks, heads 1,5, tokens 3,5", .dp = 1,
     .tp = 2, .micro = 1, .samples = {2}, .heads = {1, 5}, .columns = {7, 33}, .sequence = {3, 5})
HUNT(no_mutant_of_lora_in_a_mode_survives, hunt_in_every_mode, .what = "LoRA, 3 ranks, heads 1,3,2, tokens 1,5,2",
     .dp = 1, .tp = 3, .micro = 1, .samples = {2}, .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2},
     .lora = 1)
HUNT(no_mutant_of_lora_in_a_triple_of_methods_survives, hunt_in_every_triple, .what = "LoRA, 2 ranks, heads 1,5",
     .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .heads = {1, 5}, .columns = {7, 33}, .sequence = {3, 5}, .lora = 1)
HUNT(no_mutant_of_lora_of_a_head_in_a_mode_survives, hunt_in_every_mode,
     .what = "LoRA of the head, 3 ranks, heads 1,3,2, tokens 1,5,2", .dp = 1, .tp = 3, .micro = 1, .samples = {2},
     .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2}, .lora = 8)
HUNT(no_mutant_of_adapters_in_a_mode_survives, hunt_in_every_mode, .what = "adapters, 3 ranks, tokens 1,5,2", .dp = 1,
     .tp = 3, .micro = 1, .samples = {2}, .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2},
     .bottleneck = 1)
HUNT(no_mutant_of_adapters_in_a_triple_of_methods_survives, hunt_in_every_triple,
     .what = "adapters, 2 ranks, heads 1,5", .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .heads = {1, 5},
     .columns = {7, 33}, .sequence = {3, 5}, .bottleneck = 1)
// The gradients of its keys are too small for one that two ranks count to show in the norm: no K,V head is shared here.
HUNT(no_mutant_of_side_networks_in_a_mode_survives, hunt_in_every_mode, .what = "side network, 3 ranks, tokens 1,5,2",
     .dp = 1, .tp = 3, .micro = 1, .samples = {2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2}, .side = 2)
HUNT(no_mutant_of_side_networks_in_a_triple_of_methods_survives, hunt_in_every_triple,
     .what = "side network, 2 ranks, heads 2,4", .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .heads = {2, 4},
     .columns = {7, 33}, .sequence = {3, 5}, .side = 1)
HUNT(no_mutant_of_prompts_in_a_mode_survives, hunt_in_every_mode, .what = "prompts, 3 ranks, heads 1,3,2, tokens 1,5,2",
     .dp = 1, .tp = 3, .micro = 1, .samples = {2}, .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2},
     .prompt = 1)
// As of side networks, the gradients of keys are small: no K,V head is shared here.
HUNT(no_mutant_of_scales_survives, hunt, .what = "scales, galaxy, 3 ranks, tokens 1,5,2", .mode = &gx_galaxy, .dp = 1,
     .tp = 3, .micro = 1, .samples = {2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2}, .prompt = 4)
HUNT(no_mutant_of_picked_rows_in_a_mode_survives, hunt_picked_rows,
     .what = "picked rows, 3 ranks, heads 1,3,2, tokens 1,5,2", .dp = 1, .tp = 3, .micro = 1, .samples = {3},
     .heads = {1, 3, 2}, .columns = {5, 20, 15}, .sequence = {1, 5, 2}, .tied = 1)

// Ranks that wait sleep, whatever this program is started with: thousands of runs beside other programs would burn
// their cores.
int main(int argc, char **argv)
{
    setenv("OMP_WAIT_POLICY", "passive", 1);
    return test_main(argc, argv);
}
