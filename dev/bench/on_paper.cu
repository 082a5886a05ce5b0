// on_paper.cu: how long a training step of a LLaMA takes at least on cards that need not be here, by what its
// operations move and compute. Computes nothing, and needs no GPU.
//
//   on_paper --precision bf16 --batch 8 --seq 1024 --layers 12          a table in Markdown
//
// An operation takes the longer of two: its bytes at the memory's bandwidth, its FLOPs at the peak of what computes
// them. Bytes and FLOPs are those of the operations' contracts, as a dry run records them: attention's backward counts
// the scores once, though kernels compute them twice. In bf16 matrix products and attention are counted at the tensor
// cores' peak with fp32 sums, dense; in fp32 all is counted at the CUDA cores', without TF32. What lies between
// kernels, launches and waiting, is not counted, so no card gets there: of the peaks an H100 reached 0.89 by a copy and
// 0.76 by a product of large matrices (docs/kernels.md).
#include "step.h"

// The makers' figures: data sheets of H100 SXM, H200 SXM and A100 80 GB SXM; GeForce RTX 4090 (Ada architecture paper,
// appendix A); Jetson AGX Orin 64 GB (its technical brief, the GPU alone).
typedef struct {
    const char *name;
    double gb_per_s, tensor_tflops, fp32_tflops;
} Card;
static const Card cards[] = {
    {"H100", 3352, 989.4, 66.9},     {"H200", 4800, 989.4, 66.9}, {"A100", 2039, 312.0, 19.5},
    {"RTX 4090", 1008, 165.2, 82.6}, {"Orin", 204.8, 42.5, 5.3},
};
enum { CARDS = sizeof cards / sizeof *cards, ROWS = 64 };

typedef struct {
    double memory, products, attention;
} Shares;
static const GxField share_options[] = {
    {"of_memory", GX_FIELD_DOUBLE, offsetof(Shares, memory), "1", "of the memory's bandwidth that is reached",
     "0.01..1"},
    {"of_products", GX_FIELD_DOUBLE, offsetof(Shares, products), "1", "of the peak, by matrix products", "0.01..1"},
    {"of_attention", GX_FIELD_DOUBLE, offsetof(Shares, attention), "1", "of the peak, by attention", "0.01..1"},
};

typedef struct { // operations of a name
    const char *name;
    int64_t times;
    double bytes, flops, ms[CARDS];
} Row;

static int is_of(const GxEvent *e, const char *kind) { return !strncmp(e->name, kind, strlen(kind)); }

static double milliseconds(const GxEvent *e, const Card *card, int is_bf16, const Shares *reached)
{
    const int is_product = is_of(e, "linear_"), is_attention = is_of(e, "attention_");
    const double peak = is_bf16 && (is_product || is_attention) ? card->tensor_tflops : card->fp32_tflops,
                 share = is_product     ? reached->products
                         : is_attention ? reached->attention
                                        : 1,
                 moved = (double)e->bytes / (card->gb_per_s * reached->memory) / 1e6,
                 computed = e->flops / (peak * share) / 1e9;
    return moved > computed ? moved : computed;
}

// Every operation of the plan goes into its row, and into the sum; returns how many rows there are, 0: too many.
static int sum_up(const GxRecorder *plan, int is_bf16, const Shares *reached, Row row[ROWS], Row *sum)
{
    int n = 0;
    for (int64_t i = 0; i < plan->n; i++) {
        const GxEvent *e = &plan->event[i];
        int r = 0;
        if (e->kind != GX_EVENT_OP) continue;
        while (r < n && strcmp(row[r].name, e->name)) r++;
        if (r == ROWS) return 0;
        if (r == n) row[n++].name = e->name;
        Row *const to[] = {&row[r], sum};
        for (int k = 0; k < 2; k++) {
            to[k]->times++, to[k]->bytes += (double)e->bytes, to[k]->flops += e->flops;
            for (int c = 0; c < CARDS; c++) to[k]->ms[c] += milliseconds(e, &cards[c], is_bf16, reached);
        }
    }
    return n;
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const Row *)a)->ms[0], y = ((const Row *)b)->ms[0];
    return (x < y) - (x > y);
}

static void print_row(const Row *r)
{
    printf("| %s | %ld | %.2f | %.0f |", r->name, (long)r->times, r->bytes / 1e9, r->flops / 1e9);
    for (int c = 0; c < CARDS; c++) printf(" %.2f |", r->ms[c]);
    printf("\n");
}

static int print_table(const Step *t, const StepOptions *o, const Shares *reached)
{
    Row row[ROWS] = GX_ZERO, sum = GX_ZERO;
    const int n = sum_up(&t->plan, !strcmp(o->precision, "bf16"), reached, row, &sum);
    if (n == 0 || t->plan.lost) return fprintf(stderr, "error: the plan has no operations, or too many kinds\n"), 1;
    printf("%.1fM parameters, %ld x %ld tokens, %s, AdamW; milliseconds with %g of the memory's bandwidth, %g of the "
           "peak in products, %g in attention\n\n",
           (double)gx_table_parameters(&t->m.table) / 1e6, (long)o->batch, (long)o->seq, o->precision, reached->memory,
           reached->products, reached->attention);
    printf("| operation | times | GB | GFLOP |");
    for (int c = 0; c < CARDS; c++) printf(" %s |", cards[c].name);
    printf("\n|---|---|---|---|");
    for (int c = 0; c < CARDS; c++) printf("---|");
    printf("\n");
    qsort(row, (size_t)n, sizeof *row, by_time);
    for (int i = 0; i < n; i++) print_row(&row[i]);
    sum.name = "all";
    print_row(&sum);
    return 0;
}

int main(int argc, char **argv)
{
    static Step t;
    StepOptions s;
    Shares reached;
    GxLlamaConfig config = shape_default;
    GxConfig c;
    GxMode serial;
    GxError *err = &t.g.error;
    int64_t bytes, host;
    gx_config_open(&c);
    GX_CHECK(&t.g,
             gx_config_add(&c, "reached", share_options, sizeof share_options / sizeof *share_options, &reached, err));
    GX_CHECK(&t.g, gx_config_add(&c, "step", step_options, sizeof step_options / sizeof *step_options, &s, err));
    GX_CHECK(&t.g,
             gx_config_add(&c, "shape", shape_options, sizeof shape_options / sizeof *shape_options, &config, err));
    if (gx_config_read_args(&c, argc, argv, err) != GX_OK) return fprintf(stderr, "error: %s\n", err->message), 1;
    if (c.help) return gx_config_help(&c, NULL, 0, stdout, 80), 0;
    t.g.device = gx_default_device();
    t.g.threads = 1, t.g.world = 1;
    if (step_mode("serial", &serial, err) != GX_OK || step_plan(&t, &config, &serial, NULL, 1, &s, &bytes, &host))
        return fprintf(stderr, "error: %s\n", err->message), 1;
    const int failed = print_table(&t, &s, &reached);
    step_close(&t);
    return failed;
}
