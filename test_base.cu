// test_base.cu: status, arena, random numbers, tensor table, recorder, types; and the tests' own frame.
#include "galaxy/base/context.h"
#include "galaxy/base/dtype.h"
#include "galaxy/base/random.h"
#include "galaxy/base/tensors.h"
#include "test/test.h"
#include <sys/wait.h>
#include <unistd.h>

TEST(first_error_stays)
{
    GxError err = GX_ZERO;
    GX_FAIL(&err, GX_ERR_IO, "first %d", 1);
    GX_FAIL(&err, GX_ERR_MEMORY, "second");
    CHECK(gx_error_code(&err) == GX_ERR_IO && !strcmp(err.message, "first 1"), "code %d, message %s", err.code,
          err.message);
    gx_error_clear(&err);
    CHECK(gx_error_code(&err) == GX_OK, "code %d after clear", err.code);
}

// The known answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST(philox_gives_the_published_numbers)
{
    GxRandom4 zero = gx_philox(0, 0, 0, 0);
    CHECK(zero.w[0] == 0x6627e8d5 && zero.w[1] == 0xe169c58d && zero.w[2] == 0xbc57ac4c && zero.w[3] == 0x9b00dbd8,
          "%08x %08x %08x %08x", zero.w[0], zero.w[1], zero.w[2], zero.w[3]);
    GxRandom4 ones = gx_philox(~0ull, ~0ull, ~0u, ~0u);
    CHECK(ones.w[0] == 0x408f276d && ones.w[1] == 0x41c83b0e && ones.w[2] == 0xa20bc7c6 && ones.w[3] == 0x6d5451fd,
          "%08x %08x %08x %08x", ones.w[0], ones.w[1], ones.w[2], ones.w[3]);
    GxRandom4 pi = gx_philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x13198a2e, 0x03707344);
    CHECK(pi.w[0] == 0xd16cfe09 && pi.w[1] == 0x94fdcceb && pi.w[2] == 0x5001e420 && pi.w[3] == 0x24126ea1,
          "%08x %08x %08x %08x", pi.w[0], pi.w[1], pi.w[2], pi.w[3]);
}

TEST(normal_numbers_have_mean_0_and_variance_1)
{
    const int n = 100000;
    double sum = 0, squares = 0, products = 0;
    float before = gx_random_normal(7, 0, 0, 1);
    for (int i = 1; i <= n; i++) {
        float x = gx_random_normal(7, (uint64_t)i, 0, 1);
        sum += x;
        squares += (double)x * x;
        products += (double)x * before;
        before = x;
    }
    double sigma = 1 / sqrt(n); // standard deviation of each of the three means; 5 of them
    CHECK(fabs(sum / n) < 5 * sigma, "mean %g", sum / n);
    CHECK(fabs(squares / n - 1) < 5 * sqrt(2) * sigma, "variance %g", squares / n);
    CHECK(fabs(products / n) < 5 * sigma, "correlation of neighbours %g", products / n);
}

static void lay_out(GxArena *a, char *take[3])
{
    take[0] = (char *)gx_arena_take(a, GX_MEM_WEIGHTS, 100);
    GxArenaMark mark = gx_arena_mark(a);
    gx_arena_take(a, GX_MEM_WORKSPACE, 1000);
    gx_arena_release(a, mark);
    take[1] = (char *)gx_arena_take(a, GX_MEM_GRADS, 1);
    take[2] = (char *)gx_arena_take(a, GX_MEM_WORKSPACE, 64);
}

TEST(dry_arena_counts_what_the_real_one_needs)
{
    GxError err = GX_ZERO;
    GxArena dry, real;
    char *take[3];
    gx_arena_open_dry(&dry);
    lay_out(&dry, take);
    CHECK(dry.peak == 128 + 1024, "peak %ld", (long)dry.peak);
    CHECK(dry.kind_peak[GX_MEM_WORKSPACE] == 1024 && dry.kind_used[GX_MEM_WORKSPACE] == 64, "workspace %ld, %ld",
          (long)dry.kind_peak[GX_MEM_WORKSPACE], (long)dry.kind_used[GX_MEM_WORKSPACE]);
    CHECK(gx_arena_open(&real, dry.peak, &err) == GX_OK, "%s", err.message);
    lay_out(&real, take);
    CHECK(real.peak == dry.peak && !real.exhausted, "peak %ld of %ld", (long)real.peak, (long)dry.peak);
    for (int i = 0; i < 3; i++) CHECK((size_t)take[i] % GX_ALIGN == 0, "buffer %d at %p", i, (void *)take[i]);
    memset(take[0], 1, 100);
    CHECK(take[1] == take[0] + 128, "scratch was not given back");
    CHECK(gx_arena_take(&real, GX_MEM_GRADS, 1000) == NULL && real.exhausted, "a take beyond the capacity was given");
    gx_arena_close(&real);
}

static GxTensor tensor(const char *name, int unit, int64_t rows, int64_t cols)
{
    GxTensor t = GX_ZERO;
    snprintf(t.name, sizeof t.name, "%s", name);
    t.unit = unit;
    t.ndim = 2;
    t.global_shape[0] = t.end[0] = rows;
    t.global_shape[1] = t.end[1] = cols;
    t.init_std = 1;
    return t;
}

TEST(table_packs_aligns_and_aliases)
{
    GxError err = GX_ZERO;
    GxTable table = GX_ZERO;
    GxTensor q = tensor("q", 0, 3, 5), k = tensor("k", 0, 1, 5), o = tensor("o", 0, 5, 3),
             other = tensor("other", 1, 2, 2), head = tensor("head", 1, 3, 5);
    k.packed = 1;
    GxTensorId iq = gx_table_add(&table, &q, &err), ik = gx_table_add(&table, &k, &err),
               io = gx_table_add(&table, &o, &err);
    head.has_alias = 1;
    head.alias = iq;
    gx_table_add(&table, &other, &err);
    GxTensorId ih = gx_table_add(&table, &head, &err);
    CHECK(err.code == GX_OK, "%s", err.message);
    CHECK(table.row[ik.index].offset == 15, "packed at %ld", (long)table.row[ik.index].offset);
    CHECK(table.row[io.index].offset == 32, "aligned at %ld", (long)table.row[io.index].offset);
    CHECK(table.row[ih.index].offset == 0 && table.row[ih.index].unit == 0, "alias has storage of its own");
    CHECK(gx_table_offset(&table, 1) == 48 && gx_table_offset(&table, 2) == 64, "units end at %ld, %ld",
          (long)gx_table_offset(&table, 1), (long)gx_table_offset(&table, 2));
    CHECK(gx_table_find(&table, "o").index == io.index && gx_table_find(&table, "nope").index < 0, "find");
    CHECK(gx_table_add(&table, &q, &err).index < 0 && strstr(err.message, "twice"), "%s", err.message);
    gx_table_close(&table);
}

TEST(initial_values_do_not_depend_on_the_split)
{
    GxTensor whole = tensor("w", 0, 6, 10), part = whole;
    part.begin[0] = 2, part.end[0] = 5, part.begin[1] = 3, part.end[1] = 7;
    float all[60], mine[12];
    gx_tensor_init(&whole, 4, 99, 0, gx_tensor_count(&whole), all);
    gx_tensor_init(&part, 4, 99, 0, gx_tensor_count(&part), mine);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++) CHECK(mine[r * 4 + c] == all[(r + 2) * 10 + c + 3], "row %d, column %d", r, c);
}

TEST(recorder_sums_and_lists)
{
    GxRecorder rec = GX_ZERO;
    for (int i = 0; i < 3000; i++) {
        GxEvent op = GX_ZERO, comm = GX_ZERO;
        op.kind = GX_EVENT_OP, op.name = "op", op.site = "att", op.unit = i, op.bytes = 10, op.flops = 100;
        comm.kind = GX_EVENT_COLLECTIVE, comm.name = "all_reduce", comm.unit = i, comm.axes = 1, comm.bytes = 7;
        gx_recorder_add(&rec, &op);
        gx_recorder_add(&rec, &comm);
    }
    CHECK(rec.n == 6000 && rec.flops == 300000 && rec.bytes == 30000 && rec.comm_bytes == 21000, "%ld %ld", (long)rec.n,
          (long)rec.flops);
    CHECK(rec.event[5998].unit == 2999, "unit %d", rec.event[5998].unit);
    gx_recorder_close(&rec);
}

TEST(recorder_notes_a_wait_once_and_behind_its_start)
{
    GxRecorder rec = GX_ZERO;
    GxEvent start = GX_ZERO;
    start.kind = GX_EVENT_COLLECTIVE, start.name = "all_gather", start.bytes = 7;
    gx_recorder_wait(&rec, 1, "att", 3); // no start: it was recorded elsewhere
    start.ticket = 1, gx_recorder_add(&rec, &start);
    start.ticket = 0, gx_recorder_add(&rec, &start); // blocking
    start.ticket = 2, gx_recorder_add(&rec, &start);
    gx_recorder_wait(&rec, 0, "att", 3); // nothing to wait for
    for (int again = 0; again < 2; again++) gx_recorder_wait(&rec, 1, "att", 3), gx_recorder_wait(&rec, 2, "mlp", 4);
    CHECK(rec.n == 5 && rec.comm_bytes == 21, "%ld events, %ld bytes", (long)rec.n, (long)rec.comm_bytes);
    for (int i = 0; rec.n == 5 && i < 2; i++) {
        const GxEvent *e = &rec.event[3 + i];
        CHECK(e->kind == GX_EVENT_WAIT && e->ticket == 1 + i && e->unit == 3 + i && !strcmp(e->site, i ? "mlp" : "att"),
              "wait %d: ticket %ld at %s of unit %d", i, (long)e->ticket, e->site, e->unit);
    }
    gx_recorder_close(&rec);
}

// ---- test.h --------------------------------------------------------------------------------------------------------

static void checks_right(void) { CHECK(1, "never said"); }
static void checks_wrong(void) { CHECK(0, "seven is %d", 7); }
static void checks_nothing(void) {}
static void skips(void) { SKIP("no reason"); }
static void checks_right_and_skips(void)
{
    CHECK(1, "never said");
    SKIP("no reason");
}
static void checks_wrong_and_skips(void)
{
    CHECK(0, "eight is %d", 8);
    SKIP("no reason");
}

// These tests and no others, in a child process: what it prints, and its status.
static int run_tests(Test *tests, int n, char *text, size_t bytes)
{
    int ends[2], status = -1;
    size_t used = 0;
    ssize_t got;
    fflush(stdout);
    if (pipe(ends)) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        char *words[] = {(char *)"tests", NULL};
        for (int i = 0; i < n; i++) tests[i].next = i + 1 < n ? &tests[i + 1] : NULL;
        test_state.first = tests;
        dup2(ends[1], 1);
        status = test_main(1, words);
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + used, bytes - 1 - used)) > 0) used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    if (pid > 0) waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(tests_with_a_failed_check_or_none_fail_whatever_they_say_then)
{
    Test all[] = {{"right", checks_right, NULL},
                  {"wrong", checks_wrong, NULL},
                  {"nothing", checks_nothing, NULL},
                  {"skip", skips, NULL},
                  {"right_skip", checks_right_and_skips, NULL},
                  {"wrong_skip", checks_wrong_and_skips, NULL}};
    static const char *const lines[] = {"ok   right\n",
                                        ": seven is 7\n",
                                        "FAIL wrong\n",
                                        "FAIL nothing: it checked nothing\n",
                                        "skip skip: no reason\n",
                                        "skip right_skip: no reason\n",
                                        ": eight is 8\n",
                                        "FAIL wrong_skip\n",
                                        "\n1 passed, 3 failed, 2 skipped\n"};
    char text[2000];
    int status = run_tests(all, 6, text, sizeof text);
    CHECK(status == 1, "status %d of tests that fail", status);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(text, lines[i]), "no \"%s\" in: %s", lines[i], text);
    status = run_tests(&all[5], 1, text, sizeof text);
    CHECK(status == 1 && strstr(text, "0 passed, 1 failed, 0 skipped"), "status %d: %s", status, text);
    status = run_tests(&all[3], 2, text, sizeof text);
    CHECK(status == 0 && strstr(text, "0 passed, 0 failed, 2 skipped"), "status %d: %s", status, text);
}

// ---- types ---------------------------------------------------------------------------------------------------------

// Over all floats of one binade, and of others where the grid is the same but for its scale: a bf16 has 8 significant
// bits, so neighbours in [1,2) are 2^-7 apart, and the nearest is 2^-8 away at most: relative to the number, at most
// 2^-8/(1 + 2^-8), which a tie just above 1 reaches.
TEST(rounding_to_bf16_is_off_by_at_most_one_part_in_257)
{
    static const int exponents[] = {0, 1, -1, 100, -100};
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        double worst = 0, squares = 0;
        for (int i = 0; i < 1 << 23; i++) {
            const double x = ldexp(1 + (double)i / (1 << 23), exponents[e]);
            const double error = fabs((double)gx_from_bf16(gx_to_bf16((float)x)) - x) / x;
            worst = error > worst ? error : worst;
            squares += error * error;
        }
        CHECK(worst == 1.0 / 257, "2^%d: off by 1/%.9g at most, not by 1/257", exponents[e], 1 / worst);
        CHECK(worst <= ldexp(1, -8), "2^%d: off by more than 2^-8", exponents[e]);
        const double rms = sqrt(
            squares / (1 << 23)); // evenly spread: 2^-8/sqrt(3) of a number between 1 and 2, sqrt(1/2) on the average
        CHECK(fabs(rms / (ldexp(1, -8) / sqrt(6)) - 1) < 1e-3, "2^%d: %g off on the average of squares", exponents[e],
              rms);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
