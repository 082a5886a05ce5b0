// llama_step.cu: times whole training steps of a LLaMA on random tokens: forward, backward, clipping, AdamW.
// dev/bench/bench.sh sets it beside PyTorch, dev/cuda/visit.sh on a card.
//
//   llama_step                       20 steps, then one line of JSON
//  llama_step --serve  waits for lines "step K": runs K steps, answers with one line of JSON each; ends at end of input
//  llama_step --profile  also where a step's time goes, operation by operation, and the matrix products' time alone
#include "step.h"

typedef struct {
    int64_t steps, warmup;
    int serve, profile, autotune;
} BenchOptions;
static const GxField bench_options[] = {
    {"steps", GX_FIELD_INT, offsetof(BenchOptions, steps), "20", "timed steps", "1.."},
    {"warmup", GX_FIELD_INT, offsetof(BenchOptions, warmup), "3", "steps before them", "1.."},
    {"serve", GX_FIELD_BOOL, offsetof(BenchOptions, serve), "false", "steps on request", NULL},
    {"profile", GX_FIELD_BOOL, offsetof(BenchOptions, profile), "false", "where the time goes", NULL},
    {"autotune", GX_FIELD_BOOL, offsetof(BenchOptions, autotune), "false",
     "matrix products by the algorithms that are the fastest in a step before the others", NULL},
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median and best of n steps, in seconds. profile: NULL, or where they are added.
static void time_steps(Step *t, int64_t n, GxProfile *profile, double *median, double *best)
{
    double *seconds = (double *)calloc((size_t)n, sizeof *seconds);
    for (int64_t i = 0; i < n; i++) {
        double start = gx_seconds();
        if (profile) gx_profile_begin(profile);
        step_run(t, &t->g);
        gx_device_wait(&t->g);
        if (profile) gx_profile_end(profile);
        seconds[i] = gx_seconds() - start;
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *median = seconds[n / 2];
    *best = seconds[0];
    free(seconds);
}

// Of a device with memory of its own: device_mb, what the program took of it in one piece for all its buffers;
// card_used_mb, what is in use there by the end, by whomever.
static void print_device_memory(const Step *t)
{
    int64_t free_bytes, all_bytes;
    if (!t->g.device->memory) return;
    t->g.device->memory(&t->g, &free_bytes, &all_bytes);
    printf("\"device_mb\": %.0f, \"card_used_mb\": %.0f, ", (double)t->arena.capacity / 1e6,
           (double)(all_bytes - free_bytes) / 1e6);
}

// As a run with --autotune FILE does behind its first step (run/autotune.h).
static void tune_products(Step *t)
{
    const GxDevice *d = t->g.device;
    double median, best;
    if (!d->tune) {
        GX_FAIL(&t->g.error, GX_ERR_ARGUMENT, "--autotune: the device %s has one way to compute products alone",
                d->name);
        return;
    }
    d->tune(&t->g, 1);
    time_steps(t, 1, NULL, &median, &best);
    char *tuned = d->tuned_text(&t->g);
    d->tune(&t->g, 0);
    if (tuned) d->take_tuned(&t->g, tuned, &t->g.error);
    else GX_FAIL(&t->g.error, GX_ERR_MEMORY, "no memory for a table of products");
    free(tuned);
}

static void print_json(Step *t, const BenchOptions *b, const StepOptions *o, double median, double best)
{
    char device[300];
    double tokens = (double)(o->batch * o->seq);
    const int is_profiled = b->profile && !b->serve;
    t->g.device->describe(device, sizeof device);
    printf("{\"variant\": \"galaxy%s%s%s\", \"precision\": \"%s\", \"parameters\": %ld, \"tokens_per_s\": %.0f, "
           "\"best_tokens_per_s\": %.0f, "
           "\"ms\": %.2f, \"best_ms\": %.2f, \"gflops\": %.1f, \"gflop_per_step\": %.2f, \"peak_rss_mb\": %.0f, "
           "\"arena_mb\": %.0f, ",
           is_profiled ? ", operation by operation" : "",
           !is_profiled && o->cuda_graphs && gx_graphs_are_possible(&t->g) ? ", by CUDA graphs" : "",
           b->autotune ? ", autotune" : "", o->tf32 ? "tf32" : o->precision, (long)gx_table_parameters(&t->m.table),
           tokens / median, tokens / best, median * 1e3, best * 1e3, t->plan.flops / median / 1e9, t->plan.flops / 1e9,
           (double)gx_process_peak_memory() / 1e6, (double)t->arena.peak / 1e6);
    print_device_memory(t);
    printf("\"loss\": %.5f, \"threads\": %ld, \"device\": \"%s\"}\n", step_loss(t), (long)o->threads, device);
    fflush(stdout);
}

static void *some_values(int64_t n, int period, GxDtype type)
{
    void *x = calloc((size_t)n, (size_t)gx_dtype_size(type));
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)(i % period) * 0.01f;
        if (type == GX_BF16) ((uint16_t *)x)[i] = gx_to_bf16(value);
        else ((float *)x)[i] = value;
    }
    return x;
}

// The step's matrix products by themselves, each over buffers of its own size, the best of five: the library alone.
static double products_alone(const Step *t, const StepOptions *o, double *flops)
{
    const GxLlamaConfig *c = &t->config;
    const GxDtype type = t->m.store.dtype;
    const int64_t D = c->hidden_size, h = c->head_dim, R = o->batch * o->seq, chunk = gx_min(R, o->head_chunk);
    const struct {
        int64_t R, In, Out, times;
    } shape[] = {
        {R, D, (c->num_attention_heads + 2 * c->num_key_value_heads) * h, c->num_hidden_layers},
        {R, c->num_attention_heads * h, D, c->num_hidden_layers},
        {R, D, 2 * c->intermediate_size, c->num_hidden_layers},
        {R, c->intermediate_size, D, c->num_hidden_layers},
        {chunk, D, c->vocab_size, R / chunk},
    };
    double sum = 0;
    *flops = 0;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const int64_t r = shape[i].R, in = shape[i].In, out = shape[i].Out;
        void *x = some_values(r * in, 13, type), *w = some_values(in * out, 17, type),
             *y = some_values(r * out, 11, type);
        float *dw = (float *)calloc((size_t)(in * out), 4);
        GxGemm p[3] = {{0, 1, r, out, in, 1, 0, x, w, in, in, y, out, type, type},
                       {0, 0, r, in, out, 1, 0, y, w, out, in, x, in, type, type},
                       {1, 0, out, in, r, 1, 0, y, x, out, in, dw, in, type, GX_F32}};
        for (int k = 0; k < 3; k++) {
            GxError err = GX_ZERO;
            double best = 1e9;
            for (int repeat = 0; repeat < 6; repeat++) {
                double start = gx_seconds();
                gx_cpu_gemm(&p[k], (int)o->threads, &err);
                best = gx_seconds() - start < best ? gx_seconds() - start : best;
            }
            printf("  %-3s %5ld x %5ld x %5ld  x %ld: %8.3f ms  %6.1f GFLOP/s\n",
                   k == 0   ? "fwd"
                   : k == 1 ? "dx"
                            : "dw",
                   (long)r, (long)in, (long)out, (long)shape[i].times, best * 1e3,
                   2.0 * (double)(r * in * out) / best / 1e9);
            sum += best * (double)shape[i].times;
            *flops += 2.0 * (double)(r * in * out * shape[i].times);
        }
        free(x), free(w), free(y), free(dw);
    }
    return sum;
}

static void print_profile(const Step *t, const StepOptions *o, const GxProfile *p)
{
    double flops, products = 0;
    gx_profile_print(p, stdout);
    if (t->g.device != gx_device_cpu()) return; // the library that products are measured in is the CPU's
    for (int i = 0; i < p->n; i++)
        if (!strncmp(p->row[i].name, "linear_", 7)) products += p->row[i].seconds / (double)p->steps;
    const double alone = products_alone(t, o, &flops);
    printf("  the matrix products alone: %.2f ms, %.1f GFLOP/s; in the step %.2f ms, %.1f GFLOP/s\n", alone * 1e3,
           flops / alone / 1e9, products * 1e3, flops / products / 1e9);
}

int main(int argc, char **argv)
{
    static Step t;
    static GxProfile profile;
    StepOptions s;
    BenchOptions o;
    GxLlamaConfig config = shape_default;
    GxConfig c;
    char line[100];
    long k;
    double median, best;
    GxMode serial;
    gx_config_open(&c);
    GX_CHECK(&t.g, gx_config_add(&c, "benchmark", bench_options, sizeof bench_options / sizeof *bench_options, &o,
                                 &t.g.error));
    GX_CHECK(&t.g, gx_config_add(&c, "step", step_options, sizeof step_options / sizeof *step_options, &s, &t.g.error));
    GX_CHECK(&t.g, gx_config_add(&c, "shape", shape_options, sizeof shape_options / sizeof *shape_options, &config,
                                 &t.g.error));
    if (gx_config_read_args(&c, argc, argv, &t.g.error) != GX_OK) {
        fprintf(stderr, "error: %s\n", t.g.error.message);
        return 1;
    }
    if (c.help) return gx_config_help(&c, NULL, 0, stdout, 80), 0;
    t.g.device = gx_default_device();
    t.g.threads = (int)s.threads;
    t.g.world = 1;
    if (step_mode("serial", &serial, &t.g.error) != GX_OK || step_open(&t, &config, &serial, NULL, 1, &s) != GX_OK) {
        fprintf(stderr, "error: %s\n", t.g.error.message);
        return 1;
    }
    if (o.autotune) tune_products(&t);
    time_steps(&t, o.warmup, NULL, &median, &best); // first touches, kernels compiled by the library
    gx_profile_open(&profile, &t.g);
    if (o.serve) {
        while (fgets(line, sizeof line, stdin))
            if (sscanf(line, "step %ld", &k) == 1 && k > 0)
                time_steps(&t, k, NULL, &median, &best), print_json(&t, &o, &s, median, best);
    } else {
        time_steps(&t, o.steps, o.profile ? &profile : NULL, &median, &best);
        print_json(&t, &o, &s, median, best);
        if (o.profile) print_profile(&t, &s, &profile);
    }
    const int failed = gx_failed(&t.g);
    if (failed) fprintf(stderr, "error: %s\n", t.g.error.message);
    step_close(&t);
    return failed;
}
