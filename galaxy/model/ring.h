// ring.h: attention under context parallelism (cp.h) by a ring (Liu et al. 2023, arXiv:2310.01889): keys and values go
// round the ranks of cp, and each rank attends to one rank's rows after the other. So no rank ever has the keys and
// values of all rows: memory for long sequences is that of a rank's own rows. Results are merged by their log-sum-exps,
// in the ranks' order of the ring, so that last bits differ from those of a gather.
//
// With n ranks, in step k a rank has the block of the rank that is k to its left. It sends it on to its right before it
// computes with it. In the backward keys and values go round again, and beside them, in fp32, the block's gradients, to
// which each rank adds; after n steps they are at home.
#ifndef GX_RING_H
#define GX_RING_H
#include "../ops/attention.h"
#include "cp.h"
GX_BEGIN

// a: of this rank's queries; its k_runs are set here. kv: keys and values of this rank's rows, side by side. o and lse
// as of gx_attention_forward.
void gx_ring_forward(GxPass *p, GxRows o, float *lse, GxRows q, GxRows kv, const GxAttention *a);
// dkv: of this rank's rows, of all ranks' queries.
void gx_ring_backward(GxPass *p, GxRows dq, GxRows dkv, GxRows d_o, GxRows o, const float *lse, GxRows q, GxRows kv,
                      const GxAttention *a);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RING_IMPLEMENTED)
#define GX_RING_IMPLEMENTED
#include "../comm/comm.h"
#include "sums.h"

typedef struct {
    GxPass *p;
    const GxCp *cp;
    GxAttention a;
    GxRows kv;         // the block that is here
    GxRows buffer[2];  // where blocks of others arrive
    int64_t of_values; // the column where values begin
} gx__Ring;

static int gx__ring_owner(const gx__Ring *r, int step) { return (r->cp->me - step % r->cp->n + r->cp->n) % r->cp->n; }

static int64_t gx__ring_rows(const gx__Ring *r, int step) // of the block that is here in this step
{
    return gx_split_part(&r->cp->rows, gx__ring_owner(r, step)) * r->p->b->B;
}

static int64_t gx__ring_most(const gx__Ring *r)
{
    int64_t most = 0;
    for (int k = 0; k < r->cp->n; k++) most = gx_max(most, gx__ring_rows(r, k));
    return most;
}

static gx__Ring gx__ring_begin(GxPass *p, GxRows kv, const GxAttention *a)
{
    gx__Ring r = GX_ZERO;
    r.p = p, r.cp = p->b->cp, r.a = *a, r.kv = kv, r.of_values = a->K * a->head_dim;
    for (int i = 0; i < 2; i++) r.buffer[i] = gx_pass_rows(p, gx__ring_most(&r), kv.cols);
    return r;
}

// Sends the rows of this step to the right, and receives those of the next step from the left.
static void gx__ring_turn(const gx__Ring *r, int step, void *from, void *to, int64_t cols, GxDtype dtype)
{
    const int n = r->cp->n, me = r->cp->me;
    const GxTransfer list[2] = {{(me + 1) % n, 1, 0, from, gx__ring_rows(r, step) * cols, dtype},
                                {(me + n - 1) % n, 0, 0, to, gx__ring_rows(r, step + 1) * cols, dtype}};
    gx_transfer(r->p->g, GX_AXIS_CP, list, 2);
}

// The keys and values of step `step`; those of the next one are on their way to `next` already. gone: none follow.
static GxRows gx__ring_block(gx__Ring *r, int step, GxRows *next)
{
    const GxRows here = gx_some_rows(r->kv, 0, gx__ring_rows(r, step));
    r->a.k_runs = gx_cp_runs(r->cp, gx__ring_owner(r, step));
    *next = r->buffer[step % 2];
    if (step + 1 < r->cp->n) gx__ring_turn(r, step, r->kv.data, next->data, r->kv.cols, r->kv.dtype);
    return here;
}

static float *gx__ring_floats(GxPass *p, int64_t n) { return (float *)gx_scratch(p->g, GX_MEM_ACTIVATIONS, 4 * n); }

void gx_ring_forward(GxPass *p, GxRows o, float *lse, GxRows q, GxRows kv, const GxAttention *a)
{
    GxContext *g = p->g;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    gx__Ring r = gx__ring_begin(p, kv, a);
    const GxRows part = gx_pass_rows(p, o.rows, o.cols);
    float *sum = gx__ring_floats(p, o.rows * o.cols), *part_lse = gx__ring_floats(p, o.rows * a->H);
    for (int k = 0; k < r.cp->n; k++) {
        GxRows next;
        const GxRows block = gx__ring_block(&r, k, &next);
        gx_attention_forward(g, part.data, k ? part_lse : lse, q.data, block.data, gx_rows_column(block, r.of_values),
                             &r.a);
        if (k) gx_attention_merge(g, sum, lse, part.data, part_lse, o.rows, a->H, a->head_dim, o.dtype);
        else gx_rows_add(g, sum, part, NULL, 1);
        r.kv = next;
    }
    gx_rows_round(g, o, sum);
    gx_arena_release(g->arena, mark);
}

void gx_ring_backward(GxPass *p, GxRows dq, GxRows dkv, GxRows d_o, GxRows o, const float *lse, GxRows q, GxRows kv,
                      const GxAttention *a)
{
    GxContext *g = p->g;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    gx__Ring r = gx__ring_begin(p, kv, a);
    const int64_t of_dq = dq.rows * dq.cols, of_block = gx__ring_most(&r) * kv.cols;
    const GxRows part_dq = gx_pass_rows(p, dq.rows, dq.cols), part = gx_pass_rows(p, gx__ring_most(&r), kv.cols);
    float *sum_dq = gx__ring_floats(p, of_dq), *wide = gx__ring_floats(p, gx_max(of_dq, of_block)),
          *sum[2] = {gx__ring_floats(p, of_block), gx__ring_floats(p, of_block)};
    for (int k = 0; k < r.cp->n; k++) {
        GxRows next;
        const GxRows block = gx__ring_block(&r, k, &next);
        gx_attention_backward(g, part_dq.data, part.data, gx_rows_column(part, r.of_values), d_o.data, o.data, lse,
                              q.data, block.data, gx_rows_column(block, r.of_values), &r.a);
        gx_rows_add(g, sum_dq, part_dq, wide, k == 0);
        gx_rows_add(g, sum[k % 2], gx_some_rows(part, 0, block.rows), wide, k == 0);
        gx__ring_turn(&r, k, sum[k % 2], sum[(k + 1) % 2], kv.cols, GX_F32);
        r.kv = next;
    }
    gx_rows_round(g, dq, sum_dq);
    gx_rows_round(g, dkv, sum[r.cp->n % 2]);
    gx_arena_release(g->arena, mark);
}
#endif
