// test_costs.cu: what operations cost on a machine (plan/costs.h), and the machines themselves as data and as a file
// (plan/machines.h, plan/machines_file.h). Files are written below one temporary folder.
#include "galaxy/io/files.h"
#include "galaxy/plan/costs.h"
#include "galaxy/plan/machines.h"
#include "galaxy/plan/machines_file.h"
#include "test/test.h"

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in main, removed there

static const char *at(const char *name)
{
    static char path[GX_PATH];
    snprintf(path, GX_PATH, "%.600s/%.300s", root, name);
    return path;
}

static uint64_t random_state = 1;
static uint64_t random_bits(void) // splitmix64 (Steele et al. 2014)
{
    uint64_t x = random_state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}
static int random_below(int n) { return (int)(random_bits() % (uint64_t)n); }
static double random_unit(void) { return (double)(random_bits() >> 11) / 9007199254740992.0; }
static double random_log(double least, double most) { return least * pow(most / least, random_unit()); }
static double six_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.5e", x);
    return strtod(text, NULL);
}

static GxCostSample sample(const char *name, GxDims dims, double flops, double bytes, double seconds)
{
    GxCostSample s = GX_ZERO;
    snprintf(s.name, sizeof s.name, "%s", name);
    s.dims = dims, s.flops = flops, s.bytes = bytes, s.seconds = seconds;
    return s;
}

static GxEvent event(const GxCostSample *s)
{
    GxEvent e = GX_ZERO;
    e.kind = GX_EVENT_OP, e.name = s->name, e.dims = s->dims, e.flops = s->flops, e.bytes = (int64_t)s->bytes;
    return e;
}

static double seconds_of(const GxCost *cost, const GxCostSample *s)
{
    const GxEvent e = event(s);
    return gx_cost_seconds(cost, &e);
}

static int fits(GxCost *cost, const GxCostSample *s, int n)
{
    GxError err = GX_ZERO;
    return CHECK(gx_cost_fit(cost, s, n, &err) == GX_OK, "%s", err.message);
}

// A product as ops/linear.h records it.
static GxCostSample product(const char *name, int64_t R, int64_t in, int64_t out, double seconds)
{
    return sample(name, gx_dims(R, in, out, 0), 2.0 * (double)(R * in * out),
                  4.0 * (double)(R * in + in * out + R * out), seconds);
}

enum { SAMPLES = 60 };
static const char *const kinds[] = {"linear_forward", "linear_backward_input", "attention_forward", "adamw", "clip"};

static GxCostSample random_sample(void)
{
    const char *name = kinds[random_below(5)];
    const int64_t a = 1 + random_below(2000), b = 1 + random_below(2000), c = 1 + random_below(2000);
    if (!strcmp(name, "clip")) return sample(name, gx_dims(0, 0, 0, 0), 0, 0, random_log(1e-7, 1e-5));
    if (!strcmp(name, "adamw"))
        return sample(name, gx_dims(a * b, 0, 0, 0), 15.0 * (double)(a * b), 28.0 * (double)(a * b),
                      random_log(1e-5, 1));
    return product(name, a, b, c, random_log(1e-6, 10));
}

// ---- costs ---------------------------------------------------------------------------------------------------------

TEST(a_measured_shape_takes_exactly_what_was_measured)
{
    GxCostSample s[SAMPLES];
    for (int round = 0; round < 50; round++) {
        GxCost cost;
        const int n = 1 + random_below(SAMPLES);
        for (int i = 0; i < n; i++) s[i] = random_sample();
        for (int i = 1, clips = !strcmp(s[0].name, "clip"); i < n;
             i++) // one shape only: of several it takes the median
            if (!strcmp(s[i].name, "clip") && clips++) s[i] = product("other", i, 7, 9, 1e-3);
        if (!fits(&cost, s, n)) return;
        for (int i = 0; i < n; i++)
            CHECK(seconds_of(&cost, &s[i]) == s[i].seconds, "%s: %.17g, measured %.17g", s[i].name,
                  seconds_of(&cost, &s[i]), s[i].seconds);
        gx_cost_close(&cost);
    }
}

TEST(of_several_measurements_of_a_shape_the_median_counts)
{
    static const double seconds[] = {9, 1, 2, 100, 3};
    GxCostSample s[5];
    GxCost cost;
    for (int i = 0; i < 5; i++) s[i] = product("linear_forward", 8, 8, 8, seconds[i]);
    if (!fits(&cost, s, 5)) return;
    CHECK(cost.shapes == 1 && seconds_of(&cost, s) == 3, "%d shapes, %g s, expected 1 and 3", cost.shapes,
          seconds_of(&cost, s));
    gx_cost_close(&cost);
    if (!fits(&cost, s, 4)) return;
    CHECK(seconds_of(&cost, s) == 5.5, "%g s, expected 5.5, between 2 and 9", seconds_of(&cost, s));
    gx_cost_close(&cost);
}

// Two operations of equal dims may differ in what they read: an accumulating product also reads its result.
TEST(what_differs_in_dims_flops_or_bytes_is_a_shape_of_its_own)
{
    GxCostSample s[3];
    GxCost cost;
    for (int i = 0; i < 3; i++) s[i] = product("linear_forward", 8, 16, 32, 1 + i);
    s[1].bytes += 4 * 8 * 32, s[2].flops = 0;
    if (!fits(&cost, s, 3)) return;
    for (int i = 0; i < 3; i++)
        CHECK(seconds_of(&cost, &s[i]) == s[i].seconds, "shape %d: %g s, measured %g", i, seconds_of(&cost, &s[i]),
              s[i].seconds);
    gx_cost_close(&cost);
    for (int i = 0; i < 3; i++) s[i] = sample("copy", gx_dims(i, 5, 0, 0), 0, 8, 1 + i);
    if (!fits(&cost, s, 3)) return;
    for (int i = 0; i < 3; i++)
        CHECK(seconds_of(&cost, &s[i]) == s[i].seconds, "dimension %d: %g s", i, seconds_of(&cost, &s[i]));
    gx_cost_close(&cost);
}

TEST(the_order_of_the_samples_changes_no_bit)
{
    GxCostSample s[SAMPLES], asked[40];
    GxCost a, b;
    for (int i = 0; i < SAMPLES; i++) s[i] = random_sample();
    for (int i = 0; i < 40; i++) asked[i] = random_sample();
    if (!fits(&a, s, SAMPLES)) return;
    for (int i = SAMPLES - 1; i > 0; i--) {
        const int k = random_below(i + 1);
        const GxCostSample kept = s[i];
        s[i] = s[k], s[k] = kept;
    }
    if (!fits(&b, s, SAMPLES)) return;
    for (int i = 0; i < 40; i++)
        CHECK(seconds_of(&a, &asked[i]) == seconds_of(&b, &asked[i]), "%s: %g and %g s", asked[i].name,
              seconds_of(&a, &asked[i]), seconds_of(&b, &asked[i]));
    gx_cost_close(&a), gx_cost_close(&b);
}

// Every machine whose times are c0 + c1 FLOPs + c2 bytes is found again, with any of the three being 0. FLOPs and
// bytes are nearly proportional, which costs digits: half of double's 16 remain, at least.
TEST(a_machine_of_constant_rates_is_found_again)
{
    for (int set = 1; set < 8; set++)
        for (int round = 0; round < 20; round++) {
            GxCostSample s[12];
            GxCost cost;
            const double c[] = {set & 1 ? 1e-4 : 0, set & 2 ? 2e-11 : 0, set & 4 ? 1e-10 : 0};
            for (int i = 0; i < 12; i++) {
                s[i] =
                    product("linear_forward", 1 + random_below(500), 1 + random_below(500), 1 + random_below(500), 1);
                s[i].seconds = c[0] + c[1] * s[i].flops + c[2] * s[i].bytes;
            }
            if (!fits(&cost, s, 8)) return;
            for (int i = 0; i < 12; i++)
                CHECK(fabs(seconds_of(&cost, &s[i]) / s[i].seconds - 1) < 1e-7, "terms %d: %g s, expected %g", set,
                      seconds_of(&cost, &s[i]), s[i].seconds);
            gx_cost_close(&cost);
        }
}

// The minimum under c >= 0 is where no direction that is allowed leads down (Karush, Kuhn, Tucker): the derivative of
// the sum of squares is 0 in what is positive, and not negative in what is 0. Checked in relative coefficients, in
// which the derivatives are sums of n numbers about 1.
TEST(the_fit_is_the_least_relative_error_without_negative_coefficients)
{
    int zeros = 0, positive = 0;
    for (int round = 0; round < 400; round++) {
        GxCostSample s[10];
        GxCost cost;
        const int n = 3 + random_below(8);
        for (int i = 0; i < n; i++) {
            s[i] = product("linear_forward", 1 + random_below(99), 1 + random_below(99), 1 + random_below(99), 1);
            s[i].seconds = random_log(0.3, 3) * (1e-4 * random_unit() + 1e-9 * s[i].flops + 1e-8 * s[i].bytes);
        }
        if (!fits(&cost, s, n)) return;
        const double *c = cost.kind[0].c;
        double slope[3] = GX_ZERO, size[3] = GX_ZERO;
        for (int i = 0; i < n; i++) {
            const double term[] = {1 / s[i].seconds, s[i].flops / s[i].seconds, s[i].bytes / s[i].seconds};
            const double error = c[0] * term[0] + c[1] * term[1] + c[2] * term[2] - 1;
            for (int k = 0; k < 3; k++) slope[k] += error * term[k], size[k] += term[k] * term[k];
        }
        for (int k = 0; k < 3; k++) {
            const double down = slope[k] / sqrt(size[k]); // as if the column had length 1
            CHECK(c[k] >= 0, "coefficient %d is %g", k, c[k]);
            CHECK(c[k] > 0 ? fabs(down) < 1e-6 : down > -1e-6, "coefficient %d is %g, the derivative %g", k, c[k],
                  down);
            c[k] > 0 ? positive++ : zeros++;
        }
        gx_cost_close(&cost);
    }
    CHECK(zeros > 100 && positive > 100, "%d coefficients were 0, %d positive: the data tests one side only", zeros,
          positive);
}

TEST(whatever_was_measured_every_prediction_is_positive_and_finite)
{
    for (int round = 0; round < 200; round++) {
        GxCostSample s[SAMPLES], asked;
        GxCost cost;
        const int n = 1 + random_below(12);
        for (int i = 0; i < n; i++) {
            s[i] = random_sample();
            if (!random_below(4)) s[i].flops = 0;
            if (!random_below(4)) s[i].bytes = 0;
        }
        if (!fits(&cost, s, n)) return;
        for (int i = 0; i < 30; i++) {
            asked = random_sample();
            const double seconds = seconds_of(&cost, &asked);
            CHECK(seconds >= 0 && seconds < 1e12, "%s: %g s", asked.name, seconds);
            for (int k = 0; k < n; k++) CHECK(seconds_of(&cost, &s[k]) > 0, "%s takes no time", s[k].name);
        }
        gx_cost_close(&cost);
    }
}

TEST(one_shape_gives_a_rate)
{
    const GxCostSample s[] = {product("linear_forward", 100, 64, 64, 3e-3),
                              sample("copy", gx_dims(1000, 0, 0, 0), 0, 8e3, 2e-6),
                              sample("clip", gx_dims(0, 0, 0, 0), 0, 0, 5e-7)};
    GxCost cost;
    if (!fits(&cost, s, 3)) return;
    const GxCostSample twice = product("linear_forward", 200, 64, 64, 1);
    const GxCostSample longer = sample("copy", gx_dims(5000, 0, 0, 0), 0, 4e4, 1);
    const GxCostSample other = sample("clip", gx_dims(7, 0, 0, 0), 0, 0, 1);
    // a few roundings
    CHECK(fabs(seconds_of(&cost, &twice) / 6e-3 - 1) < 1e-14, "%g s", seconds_of(&cost, &twice));
    CHECK(fabs(seconds_of(&cost, &longer) / 1e-5 - 1) < 1e-14, "%g s", seconds_of(&cost, &longer));
    CHECK(fabs(seconds_of(&cost, &other) / 5e-7 - 1) < 1e-14, "%g s", seconds_of(&cost, &other));
    gx_cost_close(&cost);
}

// A machine of the kind that was measured: the rate of a product depends on the width C without any rule (31, 45, 60
// GFLOP/s at 1024, 512, 768), and falls with few columns and few rows: r N/(N + 48) R/(R + 30).
static double saturating(int64_t R, int64_t C, int64_t N)
{
    const double rate = C == 1024 ? 31e9 : C == 512 ? 45e9 : 60e9;
    return 3e-6 + 2.0 * (double)(R * C * N) / (rate * (double)N / (double)(N + 48) * (double)R / (double)(R + 30));
}

// What the nearest measured shape alone would say, by its rate.
static double by_nearest_rate(const GxCostSample *s, int n, const GxCostSample *asked)
{
    double least = INFINITY, seconds = 0;
    for (int i = 0; i < n; i++) {
        double distance = 0;
        for (int k = 0; k < 3; k++) distance += pow(log((double)s[i].dims.n[k] / (double)asked->dims.n[k]), 2);
        if (distance < least) least = distance, seconds = s[i].seconds * asked->flops / s[i].flops;
    }
    return seconds;
}

// Profiles as the planner takes them: all rows and columns, few rows, half of the columns, a twelfth of them. Such a
// machine takes N R + 48 R + 30 N + 1440, all times a constant; a fit has FLOPs, about N R, and bytes, about R + N, in
// which the two directions share a coefficient. So along each direction it follows to 1%, although the rate changes by
// 1.25 and 1.5. Where both are small, which no profile has, it errs by up to what 48 R and 30 N are of the whole: 5% is
// left where there are at least 128 rows and a third of the columns. A fifth profile, of that corner, mends it.
static double worst_of(int profiles, int64_t least_rows, int64_t least_part, double *mean, double *mean_nearest)
{
    static const int64_t widths[] = {1024, 512, 768}, rows[] = {512, 64, 512, 512, 64}, parts[] = {12, 12, 6, 1, 1};
    static const char name[] = "linear_backward_input";
    double sum = 0, worst = 0, sum_nearest = 0;
    int n = 0;
    for (int w = 0; w < 3; w++) {
        const int64_t C = widths[w];
        GxCostSample s[5];
        GxCost cost;
        for (int i = 0; i < profiles; i++)
            s[i] = product(name, rows[i], C, 192 * parts[i], saturating(rows[i], C, 192 * parts[i]));
        if (!fits(&cost, s, profiles)) return INFINITY;
        for (int64_t R = least_rows; R <= 512; R += 64)
            for (int64_t part = least_part; part <= 12; part++, n++) {
                const GxCostSample asked = product(name, R, C, 192 * part, saturating(R, C, 192 * part));
                const double error = fabs(seconds_of(&cost, &asked) / asked.seconds - 1);
                sum += error, worst = fmax(worst, error);
                sum_nearest += fabs(by_nearest_rate(s, profiles, &asked) / asked.seconds - 1);
            }
        gx_cost_close(&cost);
    }
    *mean = sum / n, *mean_nearest = sum_nearest / n;
    return worst;
}

TEST(shapes_between_the_measured_ones_of_a_saturating_machine_are_predicted)
{
    static const struct {
        int profiles;
        int64_t rows, part; // at least
        double worst, mean;
    } cases[] = {{4, 512, 1, 0.01, 0.005}, {4, 64, 12, 0.01, 0.005}, {4, 128, 4, 0.05, 0.02}, {5, 64, 1, 0.05, 0.01}};
    for (int i = 0; i < 4; i++) {
        double mean, nearest;
        const double worst = worst_of(cases[i].profiles, cases[i].rows, cases[i].part, &mean, &nearest);
        CHECK(worst < cases[i].worst && mean < cases[i].mean, "case %d: off by %.4f, on average %.4f", i, worst, mean);
        CHECK(mean < 0.3 * nearest, "case %d: off by %.4f on average, by the nearest rate alone by %.4f", i, mean,
              nearest);
    }
}

TEST(an_operation_that_was_never_measured_costs_time_and_is_named)
{
    const GxCostSample s[] = {product("linear_forward", 100, 100, 100, 2e-3),
                              sample("copy", gx_dims(1000, 0, 0, 0), 0, 8e3, 4e-6)};
    GxCost cost;
    if (!fits(&cost, s, 2)) return;
    CHECK(seconds_of(&cost, &s[0]) > 0 && !gx_cost_unknown(&cost), "%s", gx_cost_unknown(&cost));
    // 2e6 FLOPs take 2e-3 s; 8e3 bytes take 4e-6 s
    const GxCostSample computes = sample("attention_forward", gx_dims(9, 9, 9, 9), 1e7, 1e3, 1);
    const GxCostSample moves = sample("rope_forward", gx_dims(9, 9, 0, 0), 10, 1e6, 1);
    const GxCostSample neither = sample("clip", gx_dims(0, 0, 0, 0), 0, 0, 1);
    CHECK(fabs(seconds_of(&cost, &computes) / 1e-2 - 1) < 1e-14, "%g s", seconds_of(&cost, &computes));
    CHECK(fabs(seconds_of(&cost, &moves) / 5e-4 - 1) < 1e-14, "%g s", seconds_of(&cost, &moves));
    CHECK(seconds_of(&cost, &neither) == 4e-6, "%g s, expected the least of all", seconds_of(&cost, &neither));
    CHECK(gx_cost_unknown(&cost) && !strcmp(gx_cost_unknown(&cost), "attention_forward") && cost.unknown->times == 6,
          "%s, %ld times", gx_cost_unknown(&cost), (long)cost.unknown->times);
    gx_cost_close(&cost);
    // with products alone, bytes cost what they did there, and the other way round
    if (!fits(&cost, s, 1)) return;
    CHECK(fabs(seconds_of(&cost, &moves) / (1e6 * 2e-3 / 12e4) - 1) < 1e-14, "%g s", seconds_of(&cost, &moves));
    gx_cost_close(&cost);
    if (!fits(&cost, s + 1, 1)) return;
    CHECK(seconds_of(&cost, &computes) == 4e-6, "%g s", seconds_of(&cost, &computes));
    gx_cost_close(&cost);
}

TEST(a_scaled_machine_takes_so_many_times_as_long_and_a_collective_takes_nothing)
{
    const GxCostSample s[] = {product("linear_forward", 100, 100, 100, 2e-3)};
    const GxCostSample near = product("linear_forward", 50, 100, 100, 1), other = product("unknown", 50, 50, 50, 1);
    GxCost cost;
    if (!fits(&cost, s, 1)) return;
    const double before[] = {seconds_of(&cost, s), seconds_of(&cost, &near), seconds_of(&cost, &other)};
    gx_cost_scale(&cost, 2), gx_cost_scale(&cost, 4); // powers of 2: exact
    CHECK(seconds_of(&cost, s) == 8 * before[0] && seconds_of(&cost, &near) == 8 * before[1] &&
              seconds_of(&cost, &other) == 8 * before[2],
          "%g %g %g s", seconds_of(&cost, s), seconds_of(&cost, &near), seconds_of(&cost, &other));
    GxEvent e = event(s);
    e.kind = GX_EVENT_COLLECTIVE;
    CHECK(gx_cost_seconds(&cost, &e) == 0, "%g s", gx_cost_seconds(&cost, &e));
    gx_cost_close(&cost);
}

static void refuses_samples(const GxCostSample *s, int n, const char *part)
{
    GxError err = GX_ZERO;
    GxCost cost;
    const GxStatus status = gx_cost_fit(&cost, s, n, &err);
    CHECK(status != GX_OK && strstr(err.message, part) && !cost.shape && !cost.unknown,
          "status %s, \"%s\" does not hold \"%s\"", gx_status_name(status), err.message, part);
}

TEST(samples_that_cannot_be_are_refused)
{
    GxCostSample good = product("linear_forward", 1, 2, 3, 1e-3), s[2] = {good, good};
    refuses_samples(s, 0, "no operations");
    static const double bad[] = {0, -1, NAN, INFINITY, 1e300};
    for (int i = 0; i < 5; i++) {
        s[1] = good, s[1].seconds = bad[i];
        refuses_samples(s, 2, "linear_forward takes");
        if (i > 0) s[1] = good, s[1].flops = bad[i], refuses_samples(s, 2, "FLOPs; expected a number");
        if (i > 0) s[1] = good, s[1].bytes = bad[i], refuses_samples(s, 2, "bytes; expected a number");
    }
    s[1] = good, s[1].name[0] = 0, refuses_samples(s, 2, "without a name");
    s[1] = good, s[1].dims.n[3] = -5, refuses_samples(s, 2, "linear_forward has the dimension -5");
}

// ---- machines ------------------------------------------------------------------------------------------------------

static void random_text(char *out, int most)
{
    static const char *const pieces[] = {"node", "-", "7", " ", "\"", "\\", "ä", "機", "(", "/", "a", "\n"};
    out[0] = 0;
    for (int i = random_below(most); i >= 0; i--) strcat(out, pieces[random_below(12)]);
}

static GxMachinesLink random_link(void)
{
    const GxMachinesLink link = {six_digits(random_log(1e-7, 1e-1)), six_digits(random_log(1e5, 1e12))};
    return link;
}

static void random_machine(GxMachine *x, int number, GxError *err)
{
    const int n = 1 + random_below(20);
    random_text(x->name, 8), random_text(x->device, 20);
    snprintf(x->name + strlen(x->name), 16, "%d", number);
    x->threads = 1 + random_below(256), x->memory = (int64_t)random_log(1e6, 1e12);
    x->count = random_below(2) ? 1 : 1 + random_below(3000), x->per_host = random_below(2) ? 1 : 1 + random_below(16);
    if (random_below(2))
        x->step_seconds = six_digits(random_log(1e-4, 1e3)), x->step_spread = six_digits(random_unit());
    if (x->count > 1 && x->per_host > 1) x->same_host = random_link();
    for (int i = 0; i < n; i++) {
        GxCostSample s = random_sample();
        s.seconds = six_digits(s.seconds), s.flops *= random_below(2) ? 1 : 1.37;
        gx_machine_add(x, &s, 1, err);
    }
}

static void random_machines(GxMachines *m, GxError *err)
{
    static const char *const names[] = {"family", "hidden_size", "precision", "tuning", "seq_len"};
    static const char *const texts[] = {"llama", "768", "bf16", "lora r=8 \"all\"", "-1"};
    gx_machines_open(m, 1 + random_below(5), err);
    for (; m->widths < random_below(6); m->widths++) {
        snprintf(m->width[m->widths].name, GX_COST_NAME, "%s", names[m->widths]);
        snprintf(m->width[m->widths].text, GX_FIELD_TEXT, "%s", texts[random_below(5)]);
    }
    for (int i = 0; i < m->machines; i++) random_machine(&m->machine[i], i, err);
    for (int i = 0; i < m->machines * m->machines; i++) {
        const GxMachine *x = &m->machine[i / m->machines];
        if (i / m->machines != i % m->machines || x->count > x->per_host || random_below(2)) m->link[i] = random_link();
    }
    if (random_below(2)) m->together = six_digits(random_log(1, 10));
}

// Numbers by value, texts by letters; only operations are one block.
static int is_same_machine(const GxMachine *a, const GxMachine *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->device, b->device) && a->threads == b->threads &&
           a->memory == b->memory && a->count == b->count && a->per_host == b->per_host &&
           a->step_seconds == b->step_seconds && a->step_spread == b->step_spread &&
           !memcmp(&a->same_host, &b->same_host, sizeof a->same_host) && a->operations == b->operations &&
           !memcmp(a->operation, b->operation, (size_t)a->operations * sizeof *a->operation);
}

static int is_same(const GxMachines *a, const GxMachines *b)
{
    if (a->machines != b->machines || a->widths != b->widths || a->together != b->together) return 0;
    for (int i = 0; i < a->widths; i++)
        if (strcmp(a->width[i].name, b->width[i].name) || strcmp(a->width[i].text, b->width[i].text)) return 0;
    for (int i = 0; i < a->machines; i++)
        if (!is_same_machine(&a->machine[i], &b->machine[i])) return 0;
    return !memcmp(a->link, b->link, (size_t)a->machines * (size_t)a->machines * sizeof *a->link);
}

static char *contents(const char *path)
{
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes;
    CHECK(gx_file_read(path, 64 << 20, &text, &bytes, &err) == GX_OK, "%s", err.message);
    return text;
}

TEST(machines_that_are_written_and_read_are_the_same)
{
    for (int round = 0; round < (TEST_IS_SANITIZED ? 20 : 100); round++) {
        GxMachines m, again;
        GxError err = GX_ZERO;
        random_machines(&m, &err);
        gx_machines_write(&m, at("a.json"), &err);
        if (!CHECK(gx_machines_read(&again, at("a.json"), &err) == GX_OK, "round %d: %s", round, err.message)) return;
        CHECK(is_same(&m, &again), "round %d: the machines differ", round);
        char *first = contents(at("a.json"));
        gx_machines_write(&again, at("a.json"), &err);
        char *second = contents(at("a.json"));
        CHECK(first && second && !strcmp(first, second), "round %d: the files differ", round);
        free(first), free(second);
        gx_machines_close(&m), gx_machines_close(&again);
    }
}

TEST(numbers_that_were_measured_keep_6_digits)
{
    GxMachines m, again;
    GxError err = GX_ZERO;
    gx_machines_open(&m, 2, &err);
    const GxCostSample s = product("linear_forward", 123457, 98765, 4321, 0.0123456789);
    for (int i = 0; i < 2; i++) {
        snprintf(m.machine[i].name, GX_FIELD_TEXT, "m%d", i), m.machine[i].memory = 1;
        gx_machine_add(&m.machine[i], &s, 1, &err);
        m.link[1 + i].latency = 1.23456789e-5, m.link[1 + i].bandwidth = 123456789;
    }
    gx_machines_write(&m, at("a.json"), &err);
    if (!CHECK(gx_machines_read(&again, at("a.json"), &err) == GX_OK, "%s", err.message)) return;
    const GxCostSample *read = again.machine[1].operation;
    CHECK(read->seconds == 0.0123457 && again.link[1].latency == 1.23457e-5 && again.link[2].bandwidth == 123457000,
          "%.17g s, %.17g s, %.17g", read->seconds, again.link[1].latency, again.link[2].bandwidth);
    CHECK(read->flops == s.flops && read->bytes == s.bytes, "%.17g FLOPs, %.17g bytes", read->flops, read->bytes);
    gx_machines_close(&m), gx_machines_close(&again);
}

TEST(a_file_has_a_line_for_each_operation_and_link)
{
    static const char expected[] = "{\n"
                                   "  \"model\": {\n"
                                   "    \"family\": \"llama\",\n"
                                   "    \"hidden_size\": 768\n"
                                   "  },\n"
                                   "  \"machines\": [\n"
                                   "    {\n"
                                   "      \"name\": \"node\",\n"
                                   "      \"device\": \"NVIDIA H200\",\n"
                                   "      \"threads\": 1,\n"
                                   "      \"memory\": 140000000000,\n"
                                   "      \"count\": 1280,\n"
                                   "      \"per_host\": 8,\n"
                                   "      \"same_host\": {\"latency\": 5e-06, \"bandwidth\": 400000000000},\n"
                                   "      \"step_seconds\": 0.25,\n"
                                   "      \"operations\": [\n"
                                   "        [\"linear_forward\", [512, 768, 2304], 1811939328, 13369344, 0.0301],\n"
                                   "        [\"clip\", [], 0, 0, 1e-06]\n"
                                   "      ]\n"
                                   "    }\n"
                                   "  ],\n"
                                   "  \"links\": [\n"
                                   "    {\"from\": \"node\", \"to\": \"node\", \"latency\": 0.0002, "
                                   "\"bandwidth\": 50000000000}\n"
                                   "  ],\n"
                                   "  \"together\": 1\n"
                                   "}\n";
    const GxCostSample s[] = {product("linear_forward", 512, 768, 2304, 0.0301),
                              sample("clip", gx_dims(0, 0, 0, 0), 0, 0, 1e-6)};
    const GxMachinesWidth width[] = {{"family", "llama"}, {"hidden_size", "768"}};
    const GxMachinesLink near = {5e-6, 4e11}, far = {2e-4, 5e10};
    GxMachines m;
    GxError err = GX_ZERO;
    gx_machines_open(&m, 1, &err);
    GxMachine *node = m.machine;
    snprintf(node->name, GX_FIELD_TEXT, "node"), snprintf(node->device, GX_FIELD_TEXT, "NVIDIA H200");
    node->memory = 140000000000, node->count = 1280, node->per_host = 8, node->same_host = near;
    node->step_seconds = 0.25, m.link[0] = far, m.width[0] = width[0], m.width[1] = width[1], m.widths = 2;
    gx_machine_add(node, s, 2, &err);
    CHECK(gx_machines_write(&m, at("a.json"), &err) == GX_OK, "%s", err.message);
    char *text = contents(at("a.json"));
    CHECK(text && !strcmp(text, expected), "the file is\n%s", text);
    free(text);
    gx_machines_close(&m);
}

// The file that the refusals below change. Two machines on one host each, and a class of eight on four hosts.
static const char valid[] =
    "{\n"
    "  \"_comment\": \"by hand\",\n"
    "  \"model\": {\"family\": \"llama\", \"hidden_size\": 768},\n"
    "  \"machines\": [\n"
    "    {\n"
    "      \"name\": \"desk\", \"device\": \"cpu\", \"threads\": 8, \"memory\": 16000000000,\n"
    "      \"step_seconds\": 0.5, \"step_spread\": 0.02,\n"
    "      \"operations\": [\n"
    "        [\"linear_forward\", [512, 768, 2304], 1811939328, 13369344, 0.0301],\n"
    "        [\"clip\", [], 0, 0, 0.000001]\n"
    "      ]\n"
    "    },\n"
    "    {\"name\": \"laptop\", \"memory\": 8000000000, \"operations\": [[\"copy\", [9], 0, 72, 1e-7]]},\n"
    "    {\"name\": \"node\", \"memory\": 80000000000, \"count\": 8, \"per_host\": 2,\n"
    "     \"same_host\": {\"latency\": 2e-6, \"bandwidth\": 4e11},\n"
    "     \"operations\": [[\"copy\", [9], 0, 72, 1e-8]]}\n"
    "  ],\n"
    "  \"links\": [\n"
    "    {\"from\": \"desk\", \"to\": \"laptop\", \"latency\": 0.0001, \"bandwidth\": 12500000},\n"
    "    {\"from\": \"laptop\", \"to\": \"desk\", \"latency\": 0.0002, \"bandwidth\": 10000000},\n"
    "    {\"from\": \"desk\", \"to\": \"node\", \"latency\": 3e-4, \"bandwidth\": 1e8},\n"
    "    {\"from\": \"node\", \"to\": \"desk\", \"latency\": 4e-4, \"bandwidth\": 1e8},\n"
    "    {\"from\": \"laptop\", \"to\": \"node\", \"latency\": 5e-4, \"bandwidth\": 1e8},\n"
    "    {\"from\": \"node\", \"to\": \"laptop\", \"latency\": 6e-4, \"bandwidth\": 1e8},\n"
    "    {\"from\": \"node\", \"to\": \"node\", \"latency\": 7e-5, \"bandwidth\": 2e9}\n"
    "  ],\n"
    "  \"together\": 1.5\n"
    "}\n";

static GxStatus read_text(GxMachines *m, const char *text, int64_t bytes, GxError *err)
{
    FILE *f = fopen(at("machines.json"), "wb"); // gx_file_write would wait for the disk, thousands of times
    if (f) fwrite(text, 1, (size_t)bytes, f), fclose(f);
    return gx_machines_read(m, at("machines.json"), err);
}

TEST(a_file_written_by_hand_is_read)
{
    GxMachines m;
    GxError err = GX_ZERO;
    if (!CHECK(read_text(&m, valid, sizeof valid - 1, &err) == GX_OK, "%s", err.message)) return;
    const GxMachine *desk = &m.machine[0], *laptop = &m.machine[1], *node = &m.machine[2];
    CHECK(m.machines == 3 && m.widths == 2 && !strcmp(m.width[1].text, "768") && m.together == 1.5, "%d machines, %d",
          m.machines, m.widths);
    CHECK(desk->threads == 8 && desk->memory == 16000000000 && desk->operations == 2 && desk->step_seconds == 0.5,
          "desk");
    CHECK(desk->operation[0].dims.n[2] == 2304 && desk->operation[0].dims.n[3] == 0 &&
              desk->operation[0].seconds == 0.0301,
          "its operation");
    CHECK(laptop->threads == 1 && laptop->count == 1 && laptop->per_host == 1 && laptop->step_seconds == 0, "laptop");
    CHECK(node->count == 8 && node->per_host == 2 && node->same_host.bandwidth == 4e11, "node");
    gx_machines_close(&m);
}

TEST(links_of_ranks_are_those_of_their_machines)
{
    // ranks: 0 desk, 1 laptop, 2 to 9 node, two on each host
    static const struct {
        int from, to;
        double latency, bandwidth;
    } expected[] = {{0, 1, 1e-4, 1.25e7}, {1, 0, 2e-4, 1e7}, {0, 2, 3e-4, 1e8},  {9, 0, 4e-4, 1e8},
                    {1, 9, 5e-4, 1e8},    {5, 1, 6e-4, 1e8}, {2, 3, 2e-6, 4e11}, {3, 2, 2e-6, 4e11},
                    {3, 4, 7e-5, 2e9},    {9, 2, 7e-5, 2e9}, {8, 9, 2e-6, 4e11}};
    GxMachines m;
    GxError err = GX_ZERO;
    if (!CHECK(read_text(&m, valid, sizeof valid - 1, &err) == GX_OK, "%s", err.message)) return;
    CHECK(gx_machines_ranks(&m) == 10, "%d ranks", gx_machines_ranks(&m));
    for (int r = 0; r < 10; r++)
        CHECK(gx_machines_class_of(&m, r) == (r < 2 ? r : 2), "rank %d is in class %d", r, gx_machines_class_of(&m, r));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        double alpha, beta;
        gx_machines_link(&m, expected[i].from, expected[i].to, &alpha, &beta);
        CHECK(alpha == expected[i].latency && beta == 1 / expected[i].bandwidth, "%d to %d: %g s, %g s/byte",
              expected[i].from, expected[i].to, alpha, beta);
    }
    double alpha, beta;
    gx_machines_link(&m, 4, 4, &alpha, &beta);
    CHECK(alpha == 0 && beta == 0, "to itself: %g s, %g s/byte", alpha, beta);
    gx_machines_close(&m);
}

// ---- refusals ------------------------------------------------------------------------------------------------------

static const struct {
    const char *from, *to; // in `valid`
    const char *says;
} refusals[] = {
    // keys
    {"\"together\"", "\"togehter\"", "has \"togehter\"; did you mean \"together\"?"},
    {"\"together\"", "\"speed\"", "has \"speed\"; expected model,machines,links,together, or \"_comment\""},
    {"\"threads\": 8", "\"thread\": 8", "machine \"desk\" has \"thread\"; did you mean \"threads\"?"},
    {"{\"latency\": 2e-6,", "{\"latenzy\": 2e-6,",
     "machine \"node\": same_host has \"latenzy\"; did you mean \"latency\"?"},
    {"\"to\": \"desk\", \"latency\"", "\"to\": \"desk\", \"beta\"",
     "link 1 has \"beta\"; expected from,to,latency,bandwidth"},
    {"\"model\": {", "\"model\": {\"hidden_size\": 1, ", "duplicate object key"},
    {"\"model\": {\"family\": \"llama\", \"hidden_size\": 768},", "", "\"model\" is missing; expected an object"},
    {"\"links\"", "\"_links\"", "has \"_links\"; did you mean \"links\"?"},
    // machines
    {"\"name\": \"laptop\", ", "", "machine 1: name is missing"},
    {"\"name\": \"laptop\"", "\"name\": \"\"", "machine 1 has no name"},
    {"\"name\": \"laptop\"", "\"name\": \"desk\"", "machines 0 and 1 are both named \"desk\"; give each its own name"},
    {"\"name\": \"laptop\"", "\"name\": 7", "machine 1: name is 7; expected UTF-8 text"},
    {"\"count\": 8", "\"count\": 0", "machine \"node\": count is 0; expected an integer from 1 to 1000000"},
    {"\"count\": 8", "\"count\": -8", "count is -8; expected an integer from 1 to 1000000"},
    {"\"count\": 8", "\"count\": 8.5", "count is 8.5; expected an integer from 1"},
    {"\"count\": 8", "\"count\": \"8\"", "count is \"8\"; expected an integer from 1"},
    {"\"count\": 8", "\"count\": 999999", "the counts of all machines add up to 1000001; expected at most 1000000"},
    {"\"count\": 8", "\"count\": 99999999999999999999", "too big integer"},
    {"\"per_host\": 2", "\"per_host\": 0", "per_host is 0; expected an integer from 1"},
    {"\"threads\": 8", "\"threads\": 0", "machine \"desk\": threads is 0; expected an integer from 1"},
    {"\"memory\": 8000000000", "\"memory\": 0", "machine \"laptop\": memory is 0; expected an integer from 1"},
    {"\"memory\": 8000000000", "\"memory\": 8e9", "memory is 8000000000.0; expected an integer from 1"},
    {"\"memory\": 8000000000, ", "", "machine \"laptop\": memory is missing; expected an integer from 1"},
    {"\"step_seconds\": 0.5", "\"step_seconds\": -0.5", "step_seconds is -0.5; expected a number from 0"},
    {"\"step_spread\": 0.02", "\"step_spread\": 1e300", "step_spread is 1e+300; expected a number from 0"},
    {"\"count\": 8, \"per_host\": 2,\n     \"same_host\": {\"latency\": 2e-6, \"bandwidth\": 4e11}",
     "\"count\": 8, \"per_host\": 2",
     "machine \"node\": same_host is missing, the link between its 2 per host; add \"same_host\": {\"latency\""},
    {"{\"latency\": 2e-6, \"bandwidth\": 4e11}", "5", "\"same_host\" is an integer; expected an object"},
    {"{\"latency\": 2e-6, \"bandwidth\": 4e11}", "{\"latency\": 0, \"bandwidth\": 4e11}",
     "machine \"node\": same_host: latency is 0; expected a number from 1e-12"},
    {"{\"name\": \"laptop\", \"memory\": 8000000000, \"operations\": [[\"copy\", [9], 0, 72, 1e-7]]}", "3",
     "machine 1 is 3; expected an object"},
    // operations
    {"[[\"copy\", [9], 0, 72, 1e-7]]", "[]",
     "machine \"laptop\" has no operations; measure it, or copy those of an equal"},
    {", \"operations\": [[\"copy\", [9], 0, 72, 1e-7]]", "",
     "machine \"laptop\": \"operations\" is missing; expected an array"},
    {"[[\"copy\", [9], 0, 72, 1e-7]]", "7", "machine \"laptop\": \"operations\" is an integer; expected an array"},
    {"72, 1e-7]", "72, 0]",
     "machine \"laptop\": copy takes 0 seconds; expected a number from 1e-12 to 1e+09: measure it"},
    {"72, 1e-7]", "72, -1e-7]", "copy takes -1e-07 seconds"},
    {"72, 1e-7]", "72, 1e308]", "copy takes 1e+308 seconds"},
    {"72, 1e-7]", "72, NaN]", "invalid token"},
    {"72, 1e-7]", "72, 1e999]", "real number overflow"},
    {"72, 1e-7]", "72, null]",
     "operation 0 is [\"copy\",[9],0,72,null]; expected [\"NAME\", [up to 4 dimensions], FLOPs"},
    {"72, 1e-7]", "72]", "operation 0 is [\"copy\",[9],0,72]; expected"},
    {"0, 72, 1e-7]", "0, -72, 1e-7]", "machine \"laptop\": copy has -72 bytes; expected a number from 0"},
    {"0, 72, 1e-7]", "-1, 72, 1e-7]", "copy has -1 FLOPs; expected a number from 0"},
    {"[9], 0, 72, 1e-7]", "[-9], 0, 72, 1e-7]", "copy has the dimension -9; expected at least 0"},
    {"[9], 0, 72, 1e-7]", "[9.5], 0, 72, 1e-7]", "operation 0 is [\"copy\",[9.5],0,72,1e-07]"},
    {"[9], 0, 72, 1e-7]", "[1, 2, 3, 4, 5], 0, 72, 1e-7]", "operation 0 is [\"copy\",[1,2,3,4,5],0,72,1e-07]"},
    {"[9], 0, 72, 1e-7]", "9, 0, 72, 1e-7]", "operation 0 is [\"copy\",9,0,72,1e-07]"},
    {"[\"clip\", ", "[\"\", ", "machine \"desk\": an operation without a name"},
    {"[\"clip\", ", "[7, ", "machine \"desk\": operation 1 is [7,[],0,0,1e-06]"},
    {"[\"clip\", ", "[\"a_name_that_is_longer_than_any_operation_ever_had_it\", ", "a name of at most 47 bytes"},
    // links
    {"    {\"from\": \"laptop\", \"to\": \"node\", \"latency\": 5e-4, \"bandwidth\": 1e8},\n", "",
     "the link from \"laptop\" to \"node\" is missing; add {\"from\": \"laptop\", \"to\": \"node\", \"latency\": "
     "SECONDS"},
    {",\n    {\"from\": \"node\", \"to\": \"node\", \"latency\": 7e-5, \"bandwidth\": 2e9}", "",
     "the link from \"node\" to \"node\" is missing, that between two of them on different hosts; add"},
    {"\"from\": \"laptop\", \"to\": \"node\"", "\"from\": \"lapdog\", \"to\": \"node\"",
     "link 4 names the machine \"lapdog\", which is not there; expected one of \"desk\", \"laptop\", \"node\""},
    {"\"from\": \"laptop\", \"to\": \"node\"", "\"from\": \"laptop\"", "link 4: \"to\" is missing; expected a string"},
    {"\"from\": \"laptop\", \"to\": \"node\"", "\"from\": 1, \"to\": \"node\"",
     "link 4: \"from\" is an integer; expected a string"},
    {"\"from\": \"laptop\", \"to\": \"node\"", "\"from\": \"desk\", \"to\": \"node\"",
     "link 4 is a second one from \"desk\" to \"node\"; remove one of them"},
    {"\"latency\": 5e-4", "\"latency\": 0", "link 4: latency is 0; expected a number from 1e-12"},
    {"\"latency\": 5e-4", "\"latency\": -5e-4", "link 4: latency is -0.0005; expected a number from 1e-12"},
    {"\"latency\": 5e-4, ", "", "link 4: latency is missing; expected a number from 1e-12"},
    {"\"bandwidth\": 12500000", "\"bandwidth\": 0", "link 0: bandwidth is 0; expected a number from 1 "},
    {"\"bandwidth\": 12500000", "\"bandwidth\": -1", "link 0: bandwidth is -1; expected a number from 1 "},
    {"\"bandwidth\": 12500000", "\"bandwidth\": 1e308", "link 0: bandwidth is 1e+308; expected a number from 1 "},
    {"\"bandwidth\": 12500000", "\"bandwidth\": \"100 Mbit/s\"",
     "link 0: bandwidth is \"100 Mbit/s\"; expected a number"},
    {"\"together\": 1.5", "\"together\": 0", "together is 0; expected a number from 1"},
    // the model
    {"\"hidden_size\": 768", "\"hidden_size\": 768.5", "model: hidden_size is 768.5; expected an integer or a string"},
    {"\"hidden_size\": 768", "\"hidden_size\": [768]", "model: hidden_size is [768]; expected an integer or a string"},
    {"\"hidden_size\"", "\"a_width_whose_name_is_longer_than_any_that_there_has_ever_been\"",
     "is too long: expected a name of"},
};

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *place = strstr(text, from);
    char *out = (char *)malloc(strlen(text) + strlen(to) + 1);
    if (!out) abort();
    if (!CHECK(place != NULL, "%s is not in the text", from)) place = text + strlen(text), from = "";
    sprintf(out, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    return out;
}

static void refuses_text(const char *text, int64_t bytes, const char *part)
{
    GxMachines m;
    GxError err = GX_ZERO;
    const GxStatus status = read_text(&m, text, bytes, &err);
    CHECK(status != GX_OK && strstr(err.message, part) && strstr(err.message, "machines.json"),
          "status %s, \"%s\" does not hold \"%s\"", gx_status_name(status), err.message, part);
    CHECK(!m.machine && !m.link && !m.machines, "%s: something is left", part);
}

TEST(what_is_wrong_in_a_file_is_refused_by_name)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        char *text = replaced(valid, refusals[i].from, refusals[i].to);
        refuses_text(text, (int64_t)strlen(text), refusals[i].says);
        free(text);
    }
}

TEST(a_file_that_is_no_set_of_machines_is_refused)
{
    char deep[400], *many = (char *)malloc(1 << 16);
    memset(deep, '[', sizeof deep);
    refuses_text(deep, sizeof deep, "nested deeper than");
    refuses_text("", 0, ":1");
    refuses_text("[]", 2, "holds an array; expected an object");
    refuses_text("{\"model\": {}, \"machines\": []}", 29, "has 0 machines; expected from 1 to 256");
    refuses_text("{\"model\": {}, \"machines\": 5}", 28, "\"machines\" is an integer; expected an array");
    strcpy(many, "{\"model\": {}, \"machines\": [0");
    for (int i = 0; i < 256; i++) strcat(many, ",0");
    strcat(many, "]}");
    refuses_text(many, (int64_t)strlen(many), "has 257 machines; expected from 1 to 256: equal ones are one, with a");
    strcpy(many, "{\"machines\": [0], \"model\": {\"0\": 0");
    for (int i = 1; i < 40; i++) sprintf(many + strlen(many), ", \"%d\": 0", i);
    strcat(many, "}}");
    refuses_text(many, (int64_t)strlen(many), "model has more than 32 members");
    free(many);
    GxMachines m;
    GxError err = GX_ZERO;
    CHECK(gx_machines_read(&m, at("nothing.json"), &err) == GX_ERR_IO, "%s", err.message);
}

// What is not refused must be a set of machines that can be written and read again.
TEST(a_damaged_file_is_refused_or_read_and_never_crashes)
{
    int read = 0, refused = 0;
    char text[sizeof valid];
    for (int round = 0; round < 2000; round++) {
        GxMachines m, again;
        GxError err = GX_ZERO;
        int64_t bytes = sizeof valid - 1;
        memcpy(text, valid, sizeof valid);
        if (random_below(3) == 0) bytes = random_below((int)bytes);
        for (int flips = random_below(4); flips > 0 && bytes; flips--) {
            char *byte = &text[random_below((int)bytes)];
            *byte = random_below(2) ? (char)random_bits() : "0123456789-.e\"[]{},"[random_below(19)];
        }
        if (read_text(&m, text, bytes, &err) != GX_OK) {
            CHECK(err.message[0] && !m.machine, "refused without a message");
            refused++;
            continue;
        }
        if (read++ % 8) { // writing waits for the disk
            gx_machines_close(&m);
            continue;
        }
        CHECK(gx_machines_write(&m, at("a.json"), &err) == GX_OK &&
                  gx_machines_read(&again, at("a.json"), &err) == GX_OK,
              "%s", err.message);
        CHECK(again.machines == m.machines, "%d machines, then %d", m.machines, again.machines);
        gx_machines_close(&m), gx_machines_close(&again);
    }
    CHECK(read > 20 && refused > 500, "%d read, %d refused", read, refused);
}

TEST(a_set_that_could_not_be_read_is_not_written)
{
    GxMachines m;
    GxError err = GX_ZERO;
    if (!CHECK(read_text(&m, valid, sizeof valid - 1, &err) == GX_OK, "%s", err.message)) return;
    static const double bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        double *places[] = {&m.link[1].latency, &m.link[1].bandwidth, &m.machine[2].same_host.bandwidth,
                            &m.machine[0].operation[0].seconds, &m.together};
        for (int k = 0; k < 5; k++) {
            const double kept = *places[k];
            *places[k] = bad[i];
            CHECK(gx_machines_write(&m, at("b.json"), &err) == GX_ERR_FORMAT && !gx_path_is_file(at("b.json")),
                  "number %d as %g was written", k, bad[i]);
            gx_error_clear(&err);
            *places[k] = kept;
        }
    }
    m.machine[2].count = 0;
    CHECK(gx_machines_check(&m, "b.json", &err) == GX_ERR_FORMAT && strstr(err.message, "count is 0"), "%s",
          err.message);
    gx_error_clear(&err);
    gx_machines_close(&m);
    CHECK(gx_machines_check(&m, "b.json", &err) == GX_ERR_FORMAT && strstr(err.message, "no machines"), "%s",
          err.message);
}

TEST(another_model_than_the_measured_one_is_refused_by_the_first_width_that_differs)
{
    static const GxMachinesWidth same[] = {{"family", "llama"}, {"hidden_size", "768"}};
    static const GxMachinesWidth wider[] = {{"family", "llama"}, {"hidden_size", "1024"}, {"tuning", "lora"}};
    static const GxMachinesWidth tuned[] = {{"family", "llama"}, {"hidden_size", "768"}, {"tuning", "lora"}};
    static const struct {
        const GxMachinesWidth *width;
        int n;
        const char *says;
    } models[] = {{wider, 3, "f.json was measured for hidden_size 768, the model has 1024: measure again"},
                  {tuned, 3, "f.json does not say for which tuning it was measured, the model has lora: measure again"},
                  {same, 1, "f.json was measured for hidden_size 768, the model has none: measure again"}};
    GxMachines m;
    GxError err = GX_ZERO;
    if (!CHECK(read_text(&m, valid, sizeof valid - 1, &err) == GX_OK, "%s", err.message)) return;
    CHECK(gx_machines_check_model(&m, same, 2, "f.json", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) {
        const GxStatus status = gx_machines_check_model(&m, models[i].width, models[i].n, "f.json", &err);
        CHECK(status == GX_ERR_ARGUMENT && strstr(err.message, models[i].says), "\"%s\" does not hold \"%s\"",
              err.message, models[i].says);
        gx_error_clear(&err);
    }
    gx_machines_close(&m);
}

// ---- equal machines ------------------------------------------------------------------------------------------------

// Six measured machines: 0 and 1 equal, 2 of half the speed, 3, 4 and 5 equal to each other.
static void measured(GxMachines *m, GxError *err)
{
    static const double speed[] = {1, 1.02, 0.5, 2, 2.01, 1.99};
    gx_machines_open(m, 6, err);
    for (int i = 0; i < 6; i++) {
        GxMachine *x = &m->machine[i];
        snprintf(x->name, GX_FIELD_TEXT, "m%d", i), snprintf(x->device, GX_FIELD_TEXT, "cpu");
        x->memory = 1000 - i, x->step_seconds = 1 / speed[i], x->step_spread = 0.01 * i;
        const GxCostSample s[] = {product("linear_forward", 9, 9, 9, 1e-3 / speed[i]),
                                  product("copy", 9, 9, 9, 1e-4 / speed[i])};
        gx_machine_add(x, s, 2, err);
        for (int k = 0; k < 6; k++)
            if (k != i) m->link[6 * i + k].latency = 1e-4 + 1e-6 * i, m->link[6 * i + k].bandwidth = 1e8 + 1e6 * k;
    }
}

TEST(equal_machines_in_a_row_become_one_class_and_ranks_keep_their_numbers)
{
    static const int classes[] = {0, 0, 1, 2, 2, 2};
    GxMachines m;
    GxError err = GX_ZERO;
    measured(&m, &err);
    if (!CHECK(gx_machines_merge(&m, 0.03, 0.25, &err) == GX_OK, "%s", err.message)) return;
    CHECK(m.machines == 3 && gx_machines_ranks(&m) == 6, "%d classes, %d ranks", m.machines, gx_machines_ranks(&m));
    for (int r = 0; r < 6; r++)
        CHECK(gx_machines_class_of(&m, r) == classes[r], "rank %d is in class %d", r, gx_machines_class_of(&m, r));
    CHECK(gx_machines_check(&m, "merged", &err) == GX_OK, "%s", err.message);
    const GxMachine *last = &m.machine[2];
    const double mean = 1e-3 * (1 / 2.0 + 1 / 2.01 + 1 / 1.99) / 3;
    CHECK(!strcmp(last->name, "m3") && last->memory == 995 && last->count == 3, "%s, %ld, %ld", last->name,
          (long)last->memory, (long)last->count);
    CHECK(fabs(last->operation[0].seconds / mean - 1) < 1e-14, "%g s", last->operation[0].seconds); // a few roundings
    CHECK(fabs(last->step_seconds / (1e3 * mean) - 1) < 1e-14 && last->step_spread == 0.05, "%g s, %g",
          last->step_seconds, last->step_spread);
    double alpha, beta; // between 3, 4 and 5: the mean of the six; from there to 2: of the three
    gx_machines_link(&m, 3, 5, &alpha, &beta);
    CHECK(fabs(alpha / 1.04e-4 - 1) < 1e-14 && fabs(beta * 3 / (1 / 1.03e8 + 1 / 1.04e8 + 1 / 1.05e8) - 1) < 1e-14,
          "%.17g s, %.17g s/byte", alpha, beta);
    gx_machines_link(&m, 4, 2, &alpha, &beta);
    CHECK(fabs(alpha / 1.04e-4 - 1) < 1e-14 && fabs(beta * 1.02e8 - 1) < 1e-14, "%.17g s, %.17g s/byte", alpha, beta);
    gx_machines_link(&m, 2, 4, &alpha, &beta);
    CHECK(fabs(alpha / 1.02e-4 - 1) < 1e-14 && fabs(beta * 3 / (1 / 1.03e8 + 1 / 1.04e8 + 1 / 1.05e8) - 1) < 1e-14,
          "%.17g s, %.17g s/byte", alpha, beta);
    gx_machines_close(&m);
}

TEST(machines_that_differ_in_anything_stay_apart)
{
    for (int what = 0; what < 9; what++) {
        GxMachines m;
        GxError err = GX_ZERO;
        measured(&m, &err);
        GxMachine *b = &m.machine[1];
        if (what == 1) b->threads = 2;
        if (what == 2) strcpy(b->device, "gpu");
        if (what == 3) b->memory = 2000;
        if (what == 4) b->operation[0].seconds *= 1.1;
        if (what == 5) b->operation[1].dims.n[0]++;
        if (what == 6) m.link[6 * 1 + 4].latency *= 2;
        if (what == 7) m.link[6 * 4 + 1].bandwidth *= 2;
        if (what == 8) m.link[6 * 1 + 0].bandwidth *= 2;
        gx_machines_merge(&m, 0.03, 0.25, &err);
        CHECK((gx_machines_class_of(&m, 1) == 0) == (what == 0), "difference %d: rank 1 is in class %d", what,
              gx_machines_class_of(&m, 1));
        gx_machines_close(&m);
    }
}

// 3, 4 and 5 are alike, but the link within the last two is ten times as fast: a class has one link for all its pairs.
TEST(a_class_has_one_speed_within)
{
    GxMachines m;
    GxError err = GX_ZERO;
    measured(&m, &err);
    m.link[6 * 3 + 4].bandwidth = m.link[6 * 4 + 3].bandwidth = 1e9;
    gx_machines_merge(&m, 0.03, 0.25, &err);
    CHECK(gx_machines_class_of(&m, 3) != gx_machines_class_of(&m, 5), "ranks 3 and 5 share class %d",
          gx_machines_class_of(&m, 5));
    gx_machines_close(&m);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    if (gx_folder_make_temporary(root, "test_costs", &err) != GX_OK) return fprintf(stderr, "%s\n", err.message), 1;
    const int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) return fprintf(stderr, "%s\n", err.message), 1;
    return failed;
}
