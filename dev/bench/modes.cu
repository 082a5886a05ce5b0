// modes.cu: one mode on some ranks: times training steps, and says what the plan says. dev/bench/modes.sh sets modes
// beside each other.
//
//   modes --mode serial --threads 2
//   modes --mode tp --ranks 2 --threads 1                                              ranks as threads of this process
//   mpirun -np 2 modes --mode galaxy --threads 1 --heads_list 4,2 --columns_list 512,256         as processes
//  modes --mode tp --ranks 2 --threads 1 --slow_rank 1 --slow 2  every operation of rank 1 takes twice its time
//
// Prints one line of words name=value per rank. ms: of a step; comm_ms: of it, inside collectives; memory and bytes in
// bytes, sent in a step by this rank: recorded, and computed_... from what the layouts demand (parallel/layout.h) and
// the tensor table, where parts are even. Lists count for modes that split what they share out.
#include "step.h"

typedef struct {
    char mode[GX_FIELD_TEXT];
    int64_t ranks, warmup, steps, slow_rank;
    double slow;
    GxIntList heads, columns, vocab, sequence;
} ModeOptions;
static const GxField mode_options[] = {
    {"mode", GX_FIELD_STRING, offsetof(ModeOptions, mode), "serial", "how the ranks share the work",
     "dp|" GX_MODE_NAMES},
    {"ranks", GX_FIELD_INT, offsetof(ModeOptions, ranks), "1", "as threads of this process", "1.."},
    {"warmup", GX_FIELD_INT, offsetof(ModeOptions, warmup), "2", "steps before the timed ones", "0.."},
    {"steps", GX_FIELD_INT, offsetof(ModeOptions, steps), "5", "timed steps", "1.."},
    {"heads_list", GX_FIELD_INT_LIST, offsetof(ModeOptions, heads), NULL, "query heads of each rank", "1.."},
    {"columns_list", GX_FIELD_INT_LIST, offsetof(ModeOptions, columns), NULL, "MLP columns of each rank", "1.."},
    {"vocab_list", GX_FIELD_INT_LIST, offsetof(ModeOptions, vocab), NULL, "rows of embedding and head of each rank",
     "1.."},
    {"sequence_list", GX_FIELD_INT_LIST, offsetof(ModeOptions, sequence), NULL, "tokens of a sample of each rank",
     "1.."},
    {"slow_rank", GX_FIELD_INT, offsetof(ModeOptions, slow_rank), "0", "the rank that is slow", "0.."},
    {"slow", GX_FIELD_DOUBLE, offsetof(ModeOptions, slow), "1", "how many times as long its operations take", "1.."},
};

// ---- bytes that a rank sends in a step -----------------------------------------------------------------------------

typedef struct {
    double stream, kv, head_loss, grads, rest; // stream: [T*B, C] at the cores' doors; kv: inside attention
} Bytes;

// What is sent at a site.
static double *bytes_at(Bytes *b, const char *site)
{
    for (int core = 0; core < GX_CORE_KINDS; core++)
        for (int door = GX_ENTRY; door <= GX_INSIDE; door++) {
            if (strcmp(site, gx_door_name((GxCoreKind)core, (GxDoor)door))) continue;
            return door != GX_INSIDE ? &b->stream : core == GX_CORE_HEAD ? &b->head_loss : &b->kv;
        }
    return !strcmp(site, "grads") || !strcmp(site, "shared_grads") ? &b->grads : &b->rest;
}

static Bytes recorded_bytes(const Step *t)
{
    Bytes b = GX_ZERO;
    for (int64_t i = 0; i < t->plan.n; i++) {
        const GxEvent *e = &t->plan.event[i];
        if (e->kind == GX_EVENT_COLLECTIVE) *bytes_at(&b, e->site) += (double)e->bytes;
    }
    return b;
}

// Of n ranks with even parts each sends one n-th. Rows are of the type that is computed in, the head's numbers fp32.
static void add_demands(const Step *t, const StepOptions *o, Bytes *b)
{
    const GxLlamaConfig *c = &t->config;
    const int64_t rows = o->seq * t->b.B;
    const GxDemandShape shape = {
        (int)c->num_hidden_layers, rows, c->hidden_size, rows, c->num_key_value_heads * c->head_dim, t->m.chunk};
    const int n = gx_demands(t->mode.methods, &shape, NULL, 0), ranks = t->m.members;
    const double narrow = gx_dtype_size(t->m.store.dtype) / 4.0;
    GxDemand *list = (GxDemand *)calloc((size_t)n + 1, sizeof *list);
    gx_demands(t->mode.methods, &shape, list, n);
    for (int i = 0; i < n && ranks > 1; i++) {
        double *sum = bytes_at(b, list[i].site);
        *sum += (double)gx_demand_bytes(&list[i], ranks) / ranks * (sum == &b->head_loss ? 1 : narrow);
    }
    free(list);
}

static Bytes computed_bytes(const Step *t, const StepOptions *o)
{
    Bytes b = GX_ZERO;
    add_demands(t, o, &b);
    for (int i = 0; i < t->m.table.n; i++) {
        const GxTensor *row = &t->m.table.row[i];
        const int sharers = gx_group_size(&t->g, GX_AXIS_LOSS | (row->sums_over_tp ? GX_AXIS_TP : 0));
        if (!row->has_alias) b.grads += 2.0 * 4 * (double)gx_tensor_count(row) * (sharers - 1) / sharers;
    }
    return b;
}

// ---- timing --------------------------------------------------------------------------------------------------------

typedef struct {
    double ms, comm_ms; // of a step, on average
} Times;

static Times time_steps(Step *t, int64_t warmup, int64_t steps)
{
    GxComm *comm = t->g.comm;
    Times times = GX_ZERO;
    for (int64_t i = 0; i < warmup; i++) step_run(t, &t->g); // first touches, kernels compiled by the library
    gx_barrier(&t->g, GX_AXIS_ALL);
    const double begin = gx_seconds(), inside = comm ? comm->seconds : 0;
    for (int64_t i = 0; i < steps; i++) step_run(t, &t->g);
    times.ms = (gx_seconds() - begin) / (double)steps * 1e3;
    if (comm) times.comm_ms = (comm->seconds - inside) / (double)steps * 1e3;
    return times;
}

static void print_line(Step *t, const ModeOptions *o, const StepOptions *s, Times times, int64_t process)
{
    char device[300];
    const Bytes sent = recorded_bytes(t), computed = computed_bytes(t, s);
    gx_cpu_describe(device, sizeof device);
    for (char *c = device; *c; c++) *c = *c == ' ' ? '_' : *c;
    printf("mode=%s engine=%s ranks=%d rank=%d threads=%d ms=%.3f comm_ms=%.3f loss=%.6f tokens=%ld gflop=%.3f "
           "arena=%ld comm_memory=%ld "
           "planned=%ld peak=%ld stream=%.0f computed_stream=%.0f kv=%.0f computed_kv=%.0f head_loss=%.0f "
           "computed_head_loss=%.0f grads=%.0f computed_grads=%.0f rest=%.0f precision=%s device=%s\n",
           o->mode, t->g.comm ? t->g.comm->engine->name : "none", t->g.world, t->g.rank, gx_threads(&t->g), times.ms,
           times.comm_ms, step_loss(t), (long)(s->batch * s->seq), t->plan.flops / 1e9, (long)t->arena.capacity,
           (long)t->memory_comm, (long)(t->arena.capacity + process), (long)gx_process_peak_memory(), sent.stream,
           computed.stream, sent.kv, computed.kv, sent.head_loss, computed.head_loss, sent.grads, computed.grads,
           sent.rest, s->precision, device);
    fflush(stdout);
}

// A slower machine: every operation takes so many times its time.
static double now(void *unused) { return (void)unused, gx_seconds(); }
static void stretch(void *slow, const GxEvent *e, double seconds)
{
    const double until = gx_seconds() + (*(const double *)slow - 1) * seconds;
    while (e->kind == GX_EVENT_OP && gx_seconds() < until) {}
}

static int run_mode(Step *t, const ModeOptions *o, const StepOptions *s, const GxLlamaConfig *config)
{
    GxContext *g = &t->g;
    const GxSplitLists lists = {{o->heads.v, o->heads.n},
                                {o->columns.v, o->columns.n},
                                {o->vocab.v, o->vocab.n},
                                {o->sequence.v, o->sequence.n}};
    GxMode mode;
    GX_CHECK(g, step_mode(strcmp(o->mode, "dp") ? o->mode : "serial", &mode, &g->error));
    const int tp = gx_methods_split(mode.methods) ? g->world : 1; // else the ranks are data-parallel
    g->threads = (int)s->threads;
    GxRecorder slow = GX_ZERO;
    slow.totals_only = 1, slow.clock = now, slow.timed = stretch, slow.user = (void *)&o->slow;
    const int64_t process = gx_plan_process_bytes((int)(o->ranks * s->threads)); // before the arena is there
    GX_CHECK(g, step_open(t, config, &mode, &lists, tp, s));
    if (o->slow > 1 && o->slow_rank == g->rank) g->recorder = &slow;
    const Times times = time_steps(t, o->warmup, o->steps);
    g->recorder = NULL;
    GX_CHECK(g, gx_status(g));
    print_line(t, o, s, times, process);
    return 0;
}

static int rank_main(GxContext *g, int argc, char **argv)
{
    Step *t = (Step *)calloc(1, sizeof *t);
    ModeOptions o;
    StepOptions s;
    GxLlamaConfig config = shape_default;
    GxConfig c;
    gx_config_open(&c);
    GX_CHECK(g, gx_config_add(&c, "mode", mode_options, sizeof mode_options / sizeof *mode_options, &o, &g->error));
    GX_CHECK(g, gx_config_add(&c, "step", step_options, sizeof step_options / sizeof *step_options, &s, &g->error));
    GX_CHECK(
        g, gx_config_add(&c, "shape", shape_options, sizeof shape_options / sizeof *shape_options, &config, &g->error));
    GX_CHECK(g, gx_config_read_args(&c, argc, argv, &g->error));
    if (c.help) return gx_config_help(&c, NULL, 0, stdout, 80), free(t), 0;
    t->g = *g;
    int status = run_mode(t, &o, &s, &config);
    g->error = t->g.error;
    step_close(t);
    free(t);
    return status;
}

int main(int argc, char **argv) { return gx_launch(rank_main, argc, argv); }
