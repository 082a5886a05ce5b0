// test.h: what every test program uses: named tests, checks that show both values, one function for every tolerance.
//
//     TEST(rms_norm_of_zeros_is_zero) { CHECK(y[0] == 0, "y[0] is %g", y[0]); }
//     int main(int argc, char **argv) { return test_main(argc, argv); }
//
//     ./test_ops          runs all
//     ./test_ops norm     runs those with "norm" in their name
//     GX_TEST_SHARE=1/3   of the tests that are not named by an argument, those whose number i has i % 3 == 1; a test
//                         of many alike cases may ask test_share for each of them instead, or test_share_if_named
//     GX_TEST_LONG=1      everything that a test knows, where without it a choice is enough (`make test-long`)
//     GX_TEST_TIMES=1     before each result: the seconds of CPU, in user and in system mode, that the test and the
//                         children it waited for have taken
// A test ends as ok, FAIL or skip (with the reason). The last line is "N passed, N failed, N skipped". A test without a
// CHECK fails, and so does one with a failed CHECK that is then skipped.
#ifndef GX_TEST_H
#define GX_TEST_H
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// Sanitizers look at memory and at threads, not at numbers: less of the same is enough for them.
#if defined(TEST_IS_SANITIZED) // by hand, to see what the tests leave out then
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_IS_SANITIZED 1
#else
#define TEST_IS_SANITIZED 0
#endif

typedef struct Test {
    const char *name;
    void (*run)(void);
    int is_unsanitized; // 1: left out where what it runs is sanitized (test/program.h)
    struct Test *next;
} Test;
static struct {
    Test *first, **last;
    int checks, failures; // of the running test
    double worst;         // largest error/bound of the running test; < 0: none was compared
    char skip[200];
} test_state = {NULL, &test_state.first, 0, 0, -1, ""};

static void test_add(Test *t)
{
    *test_state.last = t;
    test_state.last = &t->next;
}

#define TEST_ENTRY(test_name, is_unsanitized)                                                                          \
    static void test_name(void);                                                                                       \
    static Test test_name##_entry = {#test_name, test_name, is_unsanitized, NULL};                                     \
    __attribute__((constructor)) static void test_name##_add(void) { test_add(&test_name##_entry); }                   \
    static void test_name(void)
#define TEST(test_name) TEST_ENTRY(test_name, 0)

__attribute__((format(printf, 4, 5))) static int test_check(int ok, const char *file, int line, const char *format, ...)
{
    __atomic_add_fetch(&test_state.checks, 1, __ATOMIC_RELAXED); // tests may check from several threads
    if (ok) return 1;
    if (__atomic_add_fetch(&test_state.failures, 1, __ATOMIC_RELAXED) <= 10) {
        printf("    %s:%d: ", file, line);
        va_list args;
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    return 0;
}
#define CHECK(ok, ...) test_check(!!(ok), __FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        snprintf(test_state.skip, sizeof test_state.skip, __VA_ARGS__);                                                \
        return;                                                                                                        \
    } while (0)

// The bound on every numerical error. A sum of n rounded terms in fp32 has a relative error that grows as sqrt(n)*u
// with u = eps/2, the errors being as good as independent; lambda = 8 of their standard deviations are never met by
// chance (Higham & Mary 2019, "A new approach to probabilistic rounding error analysis", section 2). `depth` is the
// length of the longest chain of roundings: of one reduction for an operation, of all reductions passed through for a
// model.
__attribute__((unused)) static double test_bound(double depth)
{
    return 8 * (FLT_EPSILON / 2) * sqrt(depth < 1 ? 1 : depth);
}

// ||a - ref|| / max(||ref||, floor) as a multiple of the bound. `floor` is the scale of a quantity that may be zero in
// theory.
__attribute__((unused)) static double test_ratio(const float *a, const double *ref, long n, double bound, double floor)
{
    double error = 0, scale = 0;
    for (long i = 0; i < n; i++) {
        error += ((double)a[i] - ref[i]) * ((double)a[i] - ref[i]);
        scale += ref[i] * ref[i];
    }
    error = sqrt(error);
    scale = fmax(sqrt(scale), floor);
    if (isnan(error)) return INFINITY;
    return scale > 0 ? error / scale / bound : error > 0 ? INFINITY : 0;
}

// The same against 1; the largest ratio of a test is printed beside its name.
__attribute__((unused)) static int test_close(const char *what, const float *a, const double *ref, long n, double bound,
                                              double floor)
{
    double ratio = test_ratio(a, ref, n, bound, floor);
    if (ratio > test_state.worst) test_state.worst = ratio;
    return CHECK(ratio <= 1, "%s: relative error %.3g is above the bound %.3g", what, ratio * bound, bound);
}
__attribute__((unused)) static int test_close_f(const char *what, const float *a, const float *ref, long n,
                                                double bound, double floor)
{
    double *r = (double *)malloc((size_t)(n + 1) * sizeof *r);
    for (long i = 0; i < n; i++) r[i] = ref[i];
    int ok = test_close(what, a, r, n, bound, floor);
    free(r);
    return ok;
}

__attribute__((unused)) static int test_close_number(const char *what, double a, double ref, double bound)
{
    float x = (float)a;
    return test_close(what, &x, &ref, 1, bound, 0);
}

// Seconds of CPU in user and in system mode so far, of this process and of the children that it waited for.
static void test_cpu(double seconds[2])
{
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    seconds[0] = (double)(own.ru_utime.tv_sec + children.ru_utime.tv_sec) +
                 1e-6 * (double)(own.ru_utime.tv_usec + children.ru_utime.tv_usec);
    seconds[1] = (double)(own.ru_stime.tv_sec + children.ru_stime.tv_sec) +
                 1e-6 * (double)(own.ru_stime.tv_usec + children.ru_stime.tv_usec);
}

// Whether GX_TEST_SHARE has the case of this number.
static int test_share(long i)
{
    long which = 0, of = 1;
    const char *share = getenv("GX_TEST_SHARE");
    if (share && share[0] && (sscanf(share, "%ld/%ld", &which, &of) != 2 || of < 1 || which < 0 || which >= of)) {
        fprintf(stderr, "GX_TEST_SHARE is \"%s\"; it is K/N, with K from 0 to N - 1\n", share);
        exit(2);
    }
    return i % of == which;
}
// The same for cases of tests that an argument names; of those that none names, GX_TEST_SHARE has chosen already.
static int test_is_named;
__attribute__((unused)) static int test_share_if_named(long i) { return !test_is_named || test_share(i); }
__attribute__((unused)) static int test_long(void)
{
    const char *text = getenv("GX_TEST_LONG");
    return text && text[0] && strcmp(text, "0") != 0;
}

static int test_main(int argc, char **argv)
{
    const char *times = getenv("GX_TEST_TIMES");
    double before[2], after[2];
    long number = 0;
    int passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_is_named = argc > 1;
    for (Test *t = test_state.first; t; t = t->next) {
        int wanted = argc < 2 && test_share(number++);
        for (int i = 1; i < argc; i++) wanted |= strstr(t->name, argv[i]) != NULL;
        if (!wanted) continue;
        test_state.checks = test_state.failures = 0;
        test_state.worst = -1;
        test_state.skip[0] = 0;
        test_cpu(before);
        t->run();
        test_cpu(after);
        if (times && times[0]) printf("%7.3f %7.3f ", after[0] - before[0], after[1] - before[1]);
        if (test_state.failures || !(test_state.checks || test_state.skip[0])) {
            printf("FAIL %s%s\n", t->name, test_state.checks ? "" : ": it checked nothing");
            failed++;
        } else if (test_state.skip[0]) {
            printf("skip %s: %s\n", t->name, test_state.skip);
            skipped++;
        } else {
            if (test_state.worst >= 0) printf("ok   %-64s error/bound %.3f\n", t->name, test_state.worst);
            else printf("ok   %s\n", t->name);
            passed++;
        }
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
#endif
