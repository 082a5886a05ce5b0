// costs.cu: how well plan/costs.h predicts steps of shapes that were not measured: times a model with all and with a
// part of its samples, heads, columns and vocabulary, fits the times of four of these shapes, operation by operation,
// and predicts the others.
//
//   costs --hidden 384 --heads 12 --kv 12 --ffn 1152 --vocab 4608 --layers 1 --batch 4 --seq 64 --threads 1
//       --rounds 41 --clock cpu
//
// The shapes take turns, a step each. The machine may be shared, so that every step is scaled by what a reference step
// took before and after it; on a busy one --clock cpu and one thread. A shape's time is that of a step without a
// recorder: the median of the rounds.
#include "step.h"
#include <math.h>
#include <time.h>

enum { TWELFTHS = 12 };
typedef struct {
    const char *name;
    int64_t halvings; // of the batch; 99: one sample
    int64_t twelfths; // of heads, columns, vocabulary
} Shape;
// The first four are what a planner measures; the others are predicted.
static const Shape shapes[] = {
    {"b, full", 0, 12},   {"1, full", 99, 12}, {"b, half", 0, 6},   {"b, 1/12", 0, 1},  {"1, 1/12", 99, 1},
    {"b, 11/12", 0, 11},  {"b, 5/6", 0, 10},   {"b, 2/3", 0, 8},    {"b, 1/3", 0, 4},   {"b, 1/6", 0, 2},
    {"b/2, full", 1, 12}, {"b/2, 2/3", 1, 8},  {"b/2, half", 1, 6}, {"b/2, 1/3", 1, 4}, {"b/4, full", 2, 12},
    {"b/4, half", 2, 6},  {"1, half", 99, 6},  {"1, 1/6", 99, 2},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, PROFILES = 4, REFERENCE = 8, ROUNDS_MOST = 100 };
static const int pairs[][2] = {{7, 8}, {6, 9}, {5, 3}, {11, 13}, {0, 2}, {10, 12}}; // of ranks of a layer: 2:1, 5:1
enum { PAIRS = sizeof pairs / sizeof *pairs };

typedef struct {
    int64_t rounds;
    char clock[GX_FIELD_TEXT];
} CostOptions;
static const GxField cost_options[] = {
    {"rounds", GX_FIELD_INT, offsetof(CostOptions, rounds), "9", "steps of each shape, of each kind", "1..100"},
    {"clock", GX_FIELD_STRING, offsetof(CostOptions, clock), "wall", "cpu: seconds of the process's CPU", "wall|cpu"},
};

typedef struct {
    Step step;
    GxRecorder recorder;
    GxCostSample *sample; // [samples]: of all rounds
    int samples, capacity, begin[ROUNDS_MOST + 1];
    double seconds[ROUNDS_MOST], recorded[ROUNDS_MOST]; // of a step, without and with the recorder
    double reference[ROUNDS_MOST];                      // of a reference step, before and after on average
} Run;

// ---- measuring -----------------------------------------------------------------------------------------------------

static int counts_cpu;
static double now(void *run)
{
    struct timespec t;
    gx_device_wait(&((Run *)run)->step.g);
    if (!counts_cpu) return gx_seconds();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep(void *run, const GxEvent *e, double seconds)
{
    Run *r = (Run *)run;
    if (r->samples == r->capacity) {
        r->capacity = 2 * r->capacity + 1024;
        r->sample = (GxCostSample *)realloc(r->sample, (size_t)r->capacity * sizeof *r->sample);
    }
    GxCostSample *s = &r->sample[r->samples++];
    memset(s, 0, sizeof *s);
    snprintf(s->name, sizeof s->name, "%s", e->name);
    s->dims = e->dims, s->flops = e->flops, s->bytes = (double)e->bytes, s->seconds = fmax(seconds, 1e-9);
}

static double timed_step(Run *r, GxRecorder *recorder)
{
    GxContext *g = &r->step.g;
    const double begin = now(r);
    g->recorder = recorder;
    step_run(&r->step, g);
    if (recorder) gx_recorder_settle(recorder);
    g->recorder = NULL;
    return now(r) - begin;
}

static GxStatus open_run(Run *r, const Shape *shape, const GxContext *g, const GxLlamaConfig *config,
                         const StepOptions *options)
{
    const GxMode serial = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    GxLlamaConfig part = *config;
    StepOptions o = *options;
    int64_t *widths[] = {&part.num_attention_heads, &part.num_key_value_heads, &part.intermediate_size,
                         &part.vocab_size};
    part.head_dim = config->head_dim ? config->head_dim : config->hidden_size / config->num_attention_heads;
    for (int i = 0; i < 4; i++) *widths[i] = gx_max(1, *widths[i] * shape->twelfths / TWELFTHS);
    for (int64_t i = 0; i < shape->halvings && o.batch > 1; i++) o.batch = gx_max(1, o.batch / 2);
    r->step.g = *g;
    r->step.g.threads = (int)o.threads;
    r->recorder.totals_only = 1;
    r->recorder.clock = now, r->recorder.timed = keep, r->recorder.user = r;
    return step_open(&r->step, &part, &serial, NULL, 1, &o);
}

static void measure(Run *run, int64_t rounds)
{
    for (int s = 0; s < SHAPES; s++)
        for (int i = 0; i < 2; i++) timed_step(&run[s], NULL); // first touches, kernels compiled by the library
    double before = timed_step(&run[REFERENCE], NULL), after;
    for (int64_t i = 0; i < rounds; i++)
        for (int s = 0; s < SHAPES; s++, before = after) {
            run[s].begin[i] = run[s].samples;
            for (int k = 0; k < 2; k++) // in turns: the second one finds more in the caches
                if (i % 2 == k) run[s].recorded[i] = timed_step(&run[s], &run[s].recorder);
                else run[s].seconds[i] = timed_step(&run[s], NULL);
            run[s].begin[i + 1] = run[s].samples;
            after = timed_step(&run[REFERENCE], NULL);
            run[s].reference[i] = (before + after) / 2;
        }
}

// ---- medians -------------------------------------------------------------------------------------------------------

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int64_t n)
{
    double sorted[ROUNDS_MOST];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static void scale_rounds(Run *run, int64_t rounds)
{
    const double usual = median(run[REFERENCE].reference, rounds);
    double least = usual, most = usual;
    for (int s = 0; s < SHAPES; s++)
        for (int64_t i = 0; i < rounds; i++) {
            const double factor = usual / run[s].reference[i];
            least = fmin(least, run[s].reference[i]), most = fmax(most, run[s].reference[i]);
            run[s].seconds[i] *= factor, run[s].recorded[i] *= factor;
            for (int k = run[s].begin[i]; k < run[s].begin[i + 1]; k++) run[s].sample[k].seconds *= factor;
        }
    printf("reference step: %.2f ms, from %.2f to %.2f of that\n", usual * 1e3, least / usual, most / usual);
}

// ---- predictions ---------------------------------------------------------------------------------------------------

static GxStatus predict(const Run *run, int profiles, double *seconds, GxError *err)
{
    GxCost cost;
    int n = 0;
    for (int s = 0; s < profiles; s++) n += run[s].samples;
    GxCostSample *all = (GxCostSample *)malloc((size_t)n * sizeof *all);
    n = 0;
    for (int s = 0; s < profiles; n += run[s++].samples)
        memcpy(all + n, run[s].sample, (size_t)run[s].samples * sizeof *all);
    const GxStatus status = gx_cost_fit(&cost, all, n, err);
    free(all);
    GX_TRY(status);
    for (int s = 0; s < SHAPES; s++) {
        seconds[s] = 0;
        for (int64_t i = 0; i < run[s].step.plan.n; i++)
            seconds[s] += gx_cost_seconds(&cost, &run[s].step.plan.event[i]);
    }
    if (gx_cost_unknown(&cost)) printf("never measured: %s\n", gx_cost_unknown(&cost));
    gx_cost_close(&cost);
    return GX_OK;
}

static void print_errors(int profiles, const double *predicted, const double *measured)
{
    double sum = 0, worst = 0, ratio_sum = 0, ratio_worst = 0;
    for (int s = PROFILES; s < SHAPES; s++) {
        const double error = fabs(predicted[s] / measured[s] - 1);
        sum += error, worst = fmax(worst, error);
    }
    for (int p = 0; p < PAIRS; p++) {
        const int a = pairs[p][0], b = pairs[p][1];
        const double error = fabs(predicted[a] / predicted[b] / (measured[a] / measured[b]) - 1);
        ratio_sum += error, ratio_worst = fmax(ratio_worst, error);
    }
    printf("%d profile%s: other shapes' steps mean %.1f%%, worst %.1f%%; ratios of ranks mean %.1f%%, worst %.1f%%\n",
           profiles, gx_text_s(profiles), 100 * sum / (int)(SHAPES - PROFILES), 100 * worst,
           100 * ratio_sum / (int)PAIRS, 100 * ratio_worst);
}

static GxStatus report(const Run *run, int64_t rounds, GxError *err)
{
    double measured[SHAPES], recorded[SHAPES], predicted[PROFILES + 1][SHAPES];
    for (int s = 0; s < SHAPES; s++)
        measured[s] = median(run[s].seconds, rounds), recorded[s] = median(run[s].recorded, rounds);
    for (int n = 1; n <= PROFILES; n++) GX_TRY(predict(run, n, predicted[n], err));
    printf("%-10s %8s %9s   predicted from 1, 2, 3, 4 profiles, over measured\n", "shape", "ms", "recorded");
    for (int s = 0; s < SHAPES; s++) {
        printf("%-10s %8.2f %9.3f  ", shapes[s].name, measured[s] * 1e3, recorded[s] / measured[s]);
        for (int n = 1; n <= PROFILES; n++) printf(" %6.3f", predicted[n][s] / measured[s]);
        printf("\n");
    }
    for (int n = 1; n <= PROFILES; n++) print_errors(n, predicted[n], measured);
    return GX_OK;
}

static int rank_main(GxContext *g, int argc, char **argv)
{
    Run *run = (Run *)calloc(SHAPES, sizeof *run);
    CostOptions o;
    StepOptions s;
    GxLlamaConfig config = shape_default;
    GxConfig c;
    gx_config_open(&c);
    GX_CHECK(g, gx_config_add(&c, "costs", GX_FIELDS(cost_options), &o, &g->error));
    GX_CHECK(g, gx_config_add(&c, "step", GX_FIELDS(step_options), &s, &g->error));
    GX_CHECK(g, gx_config_add(&c, "shape", GX_FIELDS(shape_options), &config, &g->error));
    GX_CHECK(g, gx_config_read_args(&c, argc, argv, &g->error));
    if (c.help) return gx_config_help(&c, NULL, 0, stdout, 80), free(run), 0;
    counts_cpu = !strcmp(o.clock, "cpu");
    for (int i = 0; i < SHAPES; i++) GX_CHECK(g, open_run(&run[i], &shapes[i], g, &config, &s));
    measure(run, o.rounds);
    scale_rounds(run, o.rounds);
    GX_CHECK(g, report(run, o.rounds, &g->error));
    for (int i = 0; i < SHAPES; i++) step_close(&run[i].step), free(run[i].sample);
    free(run);
    return 0;
}

int main(int argc, char **argv) { return gx_launch(rank_main, argc, argv); }
