// train.c: a training loop of Galaxy's operations. A small neural language model (Bengio et al. 2003) learns sequences
// of digits, each the sum of the two before it, modulo 10, and then writes one.
//   cc -O2 examples/train.c -I. -lm -lpthread && ./a.out
#define GALAXY_IMPLEMENTATION
#include "galaxy.h"
#include <stdio.h>

enum { V = 10, C = 16, F = 64, R = V * V }; // digits, numbers for each, hidden features, rows of a batch: all pairs
enum { EMBED = 0, UP = EMBED + V * C, DOWN = UP + F * 2 * C, N = DOWN + V * F }; // where matrices begin; all weights
static GxArena arena;

static float *take(int64_t n) { return (float *)gx_arena_allocate(&arena, GX_MEM_ACTIVATIONS, n * 4); }

int main(void)
{
    // A rank's context: where to compute, the memory, and the numbers that change with each step
    GxStep step = GX_ZERO;
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu(), g.arena = &arena, g.step = &step;
    if (gx_arena_open(&arena, 1 << 20, &g.error) != GX_OK) return fprintf(stderr, "%s\n", g.error.message), 1;

    // Tensors: weights, their gradients and AdamW's moments, all matrices one behind the other; activations; gradients
    float *w = take(N), *dw = take(N), *m = take(N), *v = take(N);
    float *x = take(R * 2 * C), *h = take(R * F), *a = take(R * F), *logits = take(R * V), *losses = take(R);
    float *dlogits = take(R * V), *da = take(R * F), *dx = take(R * 2 * C);
    for (int i = 0; i < N; i++) w[i] = 0.2f * gx_random_normal(1, (uint64_t)i, 0, 0);

    int32_t ids[R][2], labels[R]; // data: row 10*p + q holds the pair (p, q) and what follows it
    for (int r = 0; r < R; r++) ids[r][0] = r / V, ids[r][1] = r % V, labels[r] = (r / V + r % V) % V;
    step.labels[0] = R; // what gradients and the loss are divided by

    const GxEmbedding embed = gx_embedding_shape(2 * R, C, V, GX_F32); // [2R,C]: two digits side by side are [R,2C]
    const GxLinearShape up = gx_linear_shape(R, 2 * C, F, GX_F32), down = gx_linear_shape(R, F, V, GX_F32);
    const GxAdamW adamw = {0.9f, 0.99f, 1e-8f, 0.01f}; // beta1, beta2, eps, weight_decay
    const GxSumPart all = {0, N, 0};                   // of the gradients: the global norm is over all of them
    const GxSumParts parts = {&all, 1, N, gx_ceil_div(N, GX_SQUARES_BLOCK)};
    GxUpdate update = GX_ZERO;
    update.w = w, update.m = m, update.v = v, update.grad = dw, update.n = N;

    for (int s = 1; s <= 100; s++) {
        // forward: logits = gelu(x up^T) down^T; outputs come first, then inputs, then sizes
        gx_embedding_forward(&g, x, w + EMBED, ids[0], &embed);
        gx_linear_forward(&g, h, x, w + UP, NULL, &up);
        gx_gelu_forward(&g, a, h, NULL, R, F, GX_GELU_ERF, GX_F32);
        gx_linear_forward(&g, logits, a, w + DOWN, NULL, &down);
        gx_cross_entropy(&g, losses, dlogits, logits, labels, R, V, step.labels, NULL, 0, GX_F32);
        gx_sum(&g, step.loss_sum, losses, R, 0);
        // backward: the same from the last line to the first; a linear has gradients of its weights and of its input
        gx_linear_backward_weight(&g, dw + DOWN, NULL, dlogits, a, &down);
        gx_linear_backward_input(&g, da, dlogits, w + DOWN, &down);
        gx_gelu_backward(&g, da, NULL, da, h, NULL, R, F, GX_GELU_ERF, GX_F32);
        gx_linear_backward_weight(&g, dw + UP, NULL, da, x, &up);
        gx_linear_backward_input(&g, dx, da, w + UP, &up);
        gx_embedding_backward(&g, dw + EMBED, dx, ids[0], &embed);
        // update: gradients are clipped to a norm of 1
        step.lr = 0.01f;
        gx_sum_squares(&g, &step.sum_squares, dw, &parts, 0);
        gx_clip(&g, 1);
        gx_adamw(&g, &update, &adamw);
        if (gx_failed(&g)) return fprintf(stderr, "%s\n", g.error.message), 1; // the first error; nothing ran after it
        if (s == 1 || s % 10 == 0) printf("step %3d   loss %.4f\n", s, gx_step_loss(&step));
    }

    for (int i = 0, p = 1, q = 1; i < 20; i++) { // the most probable digit behind the last two, again and again
        const float *l = logits + (10 * p + q) * V;
        int best = 0;
        for (int d = 1; d < V; d++) best = l[d] > l[best] ? d : best;
        printf("%d%s", p, i < 19 ? " " : "\n");
        p = q, q = best;
    }
    gx_arena_close(&arena);
    return 0;
}
