// modes.cu: one mode on some ranks: times training steps, and says what the plan says. dev/bench/modes.sh sets modes
// beside each other.
//
//   modes --mode serial --threads 2
//   modes --mode tp --ranks 2 --threads 1                                              ranks as threads of this process
//   mpirun -np 2 modes --mode galaxy --threads 1 --heads_list 4,2 --columns_list 512,256         as processes
//  modes --mode tp --ranks 2 --threads 1 --slow_rank 1 --slow 2  every operation of rank 1 takes twice its time
//
// Prints one line of words name=value per rank. ms: of a step; comm_ms: of it, inside collectives; memory and bytes in
// bytes, sent in a step by this rank: recorded, and computed_... from parallel/layout.h and the tensor table where
// parts are even.
#include "step.h"
#define GX_NO_MAIN
#include "train_llama.cu"
#include "train_llama_galaxy.cu"
#include "train_llama_tp.cu"

typedef struct {
    char mode[GX_FIELD_TEXT];
    int64_t ranks, warmup, steps, slow_rank;
    double slow;
    GxIntList heads, columns, vocab, sequence;
} ModeOptions;
static const GxField mode_options[] = {
    {"mode", GX_FIELD_STRING, offsetof(ModeOptions, mode), "serial", "how the ranks share the work",
     "serial|dp|tp|galaxy"},
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

static const struct {
    const char *name;
    const GxLlamaMode *mode;
    int is_split; // all ranks are one tp group; else they are data-parallel
} modes[] = {{"serial", &gx_llama_serial, 0},
             {"dp", &gx_llama_serial, 0},
             {"tp", &gx_llama_tp, 1},
             {"galaxy", &gx_llama_galaxy, 1}};

// ---- bytes that a rank sends in a step -----------------------------------------------------------------------------

typedef struct {
    double stream, head_loss, grads, rest;
} Bytes;

static int is_move(const char *site, const GxMove *moves, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(site, moves[i].site)) return 1;
    return 0;
}

// Moves of the stream [T*B, D], of a layer and at both ends of the model.
static int moves_of(const Step *t, GxMove moves[GX_LAYER_MOVES + 2])
{
    int n = gx_layer_moves(t->m.mode->split, moves);
    moves[n++] = gx_embedding_exit(t->m.mode->split);
    moves[n++] = gx_head_entry(t->m.mode->split);
    return n;
}

static Bytes recorded_bytes(const Step *t)
{
    GxMove moves[GX_LAYER_MOVES + 2];
    const int n = moves_of(t, moves);
    Bytes b = GX_ZERO;
    for (int64_t i = 0; i < t->plan.n; i++) {
        const GxEvent *e = &t->plan.event[i];
        if (e->kind != GX_EVENT_COLLECTIVE) continue;
        if (is_move(e->site, moves, n)) b.stream += (double)e->bytes;
        else if (!strcmp(e->site, "head_loss")) b.head_loss += (double)e->bytes;
        else if (!strcmp(e->site, "grads") || !strcmp(e->site, "shared_grads")) b.grads += (double)e->bytes;
        else b.rest += (double)e->bytes;
    }
    return b;
}

// Half a collective sends (n-1)/n of its buffer where parts are even. An all-reduce is two.
static Bytes computed_bytes(const Step *t, const StepOptions *o)
{
    const GxMode split = t->m.mode->split;
    const int n = gx_group_size(&t->g, GX_AXIS_TP);
    const double rows = (double)(o->seq * t->b.B), half = (double)(n - 1) / n * 4;
    const GxMove ends[2] = {gx_embedding_exit(split), gx_head_entry(split)};
    Bytes b = GX_ZERO;
    b.stream =
        half * rows * (double)t->m.config.hidden_size *
        (t->m.model.layers * gx_layer_halves(split, 0) + gx_move_halves(&ends[0], 0) + gx_move_halves(&ends[1], 0));
    b.head_loss = half * rows * 2 * 3; // per row a maximum and two sums
    for (int i = 0; i < t->m.model.table.n; i++) {
        const GxTensor *row = &t->m.model.table.row[i];
        const int sharers = gx_group_size(&t->g, row->reduce_axes);
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
           "planned=%ld peak=%ld stream=%.0f computed_stream=%.0f head_loss=%.0f computed_head_loss=%.0f grads=%.0f "
           "computed_grads=%.0f "
           "rest=%.0f device=%s\n",
           o->mode, t->g.comm ? t->g.comm->engine->name : "none", t->g.world, t->g.rank, gx_threads(&t->g), times.ms,
           times.comm_ms, step_loss(t), (long)(s->batch * s->seq), t->plan.flops / 1e9, (long)t->arena.capacity,
           (long)t->memory_comm, (long)(t->arena.capacity + process), (long)gx_process_peak_memory(), sent.stream,
           computed.stream, sent.head_loss, computed.head_loss, sent.grads, computed.grads, sent.rest, device);
    fflush(stdout);
}

static int run_mode(Step *t, const ModeOptions *o, const StepOptions *s, const GxLlamaConfig *config)
{
    GxContext *g = &t->g;
    const GxSplitLists lists = {{o->heads.v, o->heads.n},
                                {o->columns.v, o->columns.n},
                                {o->vocab.v, o->vocab.n},
                                {o->sequence.v, o->sequence.n}};
    int i = 0;
    while (strcmp(o->mode, modes[i].name)) i++;
    g->threads = (int)s->threads;
    t->watch.device = measuring_device();
    t->watch.slow = o->slow;
    if (o->slow > 1 && o->slow_rank == g->rank) g->device = &t->watch.device;
    const int64_t process = gx_plan_process_bytes((int)(o->ranks * s->threads)); // before the arena is there
    GX_CHECK(g, step_open(t, config, modes[i].mode, &lists, modes[i].is_split ? g->world : 1, s));
    const Times times = time_steps(t, o->warmup, o->steps);
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
    if (c.help) return gx_config_help(&c, stdout), free(t), 0;
    t->g = *g;
    int status = run_mode(t, &o, &s, &config);
    g->error = t->g.error;
    step_close(t);
    free(t);
    return status;
}

int main(int argc, char **argv) { return gx_launch(rank_main, argc, argv); }
