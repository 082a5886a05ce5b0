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

typedef struct { // 1 + which of test_loras and so on of test/parallel.h; 0: none
    const char *subject;
    int lora, bottleneck, side, prompt, quantize; // quantize: 1 + GxQuantKind
} Tuned;

static Layout tuned_layout(Tuned t, const Layout *shape)
{
    Layout l = *shape;
    l.lora = t.lora, l.bottleneck = t.bottleneck, l.side = t.side, l.prompt = t.prompt, l.quantize = t.quantize;
    snprintf(l.what, sizeof l.what, "%s, %s %d%s, %.100s", t.subject,
             t.side     ? "side network"
             : t.lora   ? "LoRA"
             : t.prompt ? "prompts"
                        : "adapters",
             t.lora + t.bottleneck + t.prompt + t.side, t.quantize ? " on quantized matrices" : "", shape->what);
    return l;
}

// Number `which` of `of` cases that are alike: all shapes, where it is the only one, else one of them; data parallelism
// is the last. In every mode: those that a diagonal has beside the shape.
static void check_tuned(Tuned t, int which, int of)
{
    for (int i = 0; i <= SHAPES; i++) {
        const Layout l = tuned_layout(t, i < SHAPES ? &shapes[i] : &data_parallel);
        if (of > 1 && !test_diagonal(0, which, of, i, SHAPES + 1)) continue;
        if (i < SHAPES) check_diagonal(which, &l, i, SHAPES, test_modes + 1, MODES - 1);
        else check_shape(&l, test_modes, 1);
    }
}

// In the first two shapes: each in a sixth of the triples.
static void check_all_triples(Tuned t)
{
    const GxMode *triple[TRIPLES];
    for (int i = 0; i < TRIPLES; i++) triple[i] = &test_triples[i];
    for (int i = 0; i < 2; i++) {
        const Layout l = tuned_layout(t, &shapes[i]);
        check_diagonal(t.lora + t.bottleneck + t.side + t.prompt, &l, i, 6, triple, TRIPLES);
    }
}
#endif
