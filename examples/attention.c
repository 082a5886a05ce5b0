// attention.c: one operation of Galaxy in a program of its own: causal attention over 5 tokens, 2 heads of 4.
//   cc examples/attention.c -I. -lm -lpthread && ./a.out
#define GALAXY_IMPLEMENTATION
#include "galaxy.h"
#include <stdio.h>

int main(void)
{
    enum { T = 5, H = 2, h = 4 };
    float q[T * H * h], o[T * H * h], lse[T * H];
    for (int i = 0; i < T * H * h; i++) q[i] = gx_random_normal(1, (uint64_t)i, 0, 0);
    GxArena arena = GX_ZERO;
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu();
    g.arena = &arena;
    if (gx_arena_open(&arena, 1 << 20, &g.error) != GX_OK) return 1;
    GxAttention a = GX_ZERO;
    a.B = 1, a.H = a.K = H, a.head_dim = h;
    a.q_runs = a.k_runs = gx_runs_one(T, 0);
    a.q_stride = a.kv_stride = a.o_stride = H * h;
    a.causal = 1;
    gx_attention_forward(&g, o, lse, q, q, q, &a); // outputs, inputs, sizes
    if (gx_failed(&g)) return fprintf(stderr, "%s\n", g.error.message), 1;
    for (int t = 0; t < T; t++) printf("%8.4f %8.4f   log-sum-exp %.4f\n", o[t * H * h], o[t * H * h + 1], lse[t * H]);
    gx_arena_close(&arena);
    return 0;
}
