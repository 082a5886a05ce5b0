// test/tuned.h: the shapes in which tuning methods are held to serial, and how.
#ifndef GX_TEST_TUNED_H
#define GX_TEST_TUNED_H
#include "subjects.h"

static const Layout shapes[] = {
    {.what = "2 ranks, accumulation", .dp = 1, .tp = 2, .micro = 2, .samples = {2}},
    {.what = "3 ranks, heads 1,3,2, columns 5,20,15, tokens 1,5,2",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {3},
     .heads = {1, 3, 2},
     .columns = {5, 20, 15},
     .sequence = {1, 5, 2}},
    {.what = "4 ranks, heads 1,1,3,1 on one K,V head, tokens 2,1,4,1",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .kv_heads = 1,
     .heads = {1, 1, 3, 1},
     .sequence = {2, 1, 4, 1}},
    {.what = "2 ranks, normed heads, tied", .dp = 1, .tp = 2, .micro = 1, .samples = {2}, .tied = 1, .normed = 1},
    {.what = "dp 2 x 2 ranks, heads 5,1, 3 and 1 samples, accumulation",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .heads = {5, 1},
     .columns = {33, 7},
     .sequence = {7, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const Layout data_parallel = {
    .what = "dp 3, 1, 3 and 2 samples, accumulation", .dp = 3, .tp = 1, .micro = 2, .samples = {1, 3, 2}};

__attribute__((unused)) static int tuned_side; // 1 + which of test_sides the models have; 0: none

// A serial model cannot be made so.
__attribute__((unused)) static void expect_no_model(const GxFamily *family, void *config, const GxMode *mode,
                                                    const GxModelOptions *o, const char *said)
{
    GxContext g = GX_ZERO;
    GxModel m;
    g.device = test_device();
    g.world = 1;
    gx_model_open(&g, &m, family, config, mode, o);
    CHECK(gx_failed(&g) && strstr(g.error.message, said), "\"%s\"", g.error.message);
    gx_model_close(&m);
}

// lora, bottleneck: which of test_loras, of test_bottlenecks; 0: none.
static void check_modes(const Layout *shape, const char *subject, int lora, int bottleneck, const GxMode *const *modes,
                        int n)
{
    Layout l = *shape;
    l.lora = lora, l.bottleneck = bottleneck, l.side = tuned_side;
    snprintf(l.what, sizeof l.what, "%s, %s %d, %.100s", subject,
             tuned_side ? "side network"
             : lora     ? "LoRA"
                        : "adapters",
             lora + bottleneck + tuned_side, shape->what);
    check_shape(&l, modes, n);
}

__attribute__((unused)) static void check_all(const char *subject, int lora, int bottleneck)
{
    for (int i = 0; i < SHAPES; i++) check_modes(&shapes[i], subject, lora, bottleneck, test_modes + 1, MODES - 1);
    check_modes(&data_parallel, subject, lora, bottleneck, test_modes, 1);
}

__attribute__((unused)) static void check_all_triples(int lora, int bottleneck)
{
    const GxMode *triple[TRIPLES];
    for (int i = 0; i < TRIPLES; i++) triple[i] = &test_triples[i];
    for (int i = 0; i < 2; i++) check_modes(&shapes[i], "LLaMA", lora, bottleneck, triple, TRIPLES);
}
__attribute__((unused)) static void check_quantized(const char *subject, GxQuantKind kind, int lora, int bottleneck)
{
    for (int i = 0; i <= SHAPES; i++) {
        Layout l = i < SHAPES ? shapes[i] : data_parallel;
        l.quantize = 1 + kind;
        check_modes(&l, subject, lora, bottleneck, i < SHAPES ? test_modes + 1 : test_modes,
                    i < SHAPES ? MODES - 1 : 1);
    }
}
#endif
