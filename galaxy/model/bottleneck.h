// model/bottleneck.h: bottleneck adapters (Houlsby et al. 2019, arXiv:1902.00751): two small linears with a skip
// connection after the attention and after the MLP of each layer, before the result is added to the residual stream.
// The rest of the model is frozen (tuned.h).
//
//     a(z) = z + gelu(z Down^T + b) Up^T + c       Down [C/k, C], Up [C, C/k]; gelu with erf
//
// z is the core's result with its bias, summed over ranks: adapters are part of CON (con.h) and work on rows of CON's
// layout. Every rank therefore has them whole, and if each rank has its own rows, their gradients are summed over the
// tp group, like those of CON's norm.
//
// Initially a(z) is nearly z: Down is uniform in [-1/sqrt(C), 1/sqrt(C)], the usual choice for linears, Up is normal
// with a standard deviation of 1e-3, and the biases are 0. If the elements of z are about 1, those of z Down^T are
// about 0.6, after gelu about 0.35, and what is added is about 0.35e-3 sqrt(C/k): less than 0.01 for C/k up to 800. Up
// is not 0, because then Down would have no gradient.
//
// Names: the module of the core's last matrix, with its last component replaced by adapter_down or adapter_up:
// model.layers.0.self_attn.adapter_down.weight, bert.encoder.layer.0.output.adapter_up.bias.
//
// Memory: each pair keeps z [rows, C] and z Down^T + b [rows, C/k] for the backward.
#ifndef GX_MODEL_BOTTLENECK_H
#define GX_MODEL_BOTTLENECK_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN

GxTuner gx_bottleneck_tuner(void);

void gx_bottleneck_forward(const GxPairView *v, GxRows z); // z = a(z); keeps what the backward reads
// On entry d is the gradient of a(z); on return, with wants_input, that of z. Also adds the adapter tensors' gradients.
void gx_bottleneck_backward(const GxPairView *v, GxRows d, int wants_input);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_BOTTLENECK_IMPLEMENTED)
#define GX_MODEL_BOTTLENECK_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ops/activation.h"
#include "../ops/elementwise.h"

enum { GX__BOTTLENECK_DOWN = 0, GX__BOTTLENECK_UP };  // of a pair's adapter
enum { GX__BOTTLENECK_Z = 0, GX__BOTTLENECK_HIDDEN }; // in a slot
static const float gx__bottleneck_up_std = 1e-3f;

static GxStatus gx__bottleneck_check(GxModel *m, GxError *err)
{
    return gx_check_size("adapter_reduction_dim", m->adapter.bottleneck.reduction, 65536, err);
}

// ---- tensors -------------------------------------------------------------------------------------------------------

static GxTensorId gx__bottleneck_tensor(GxContext *g, GxModel *m, int unit, int k, const GxTensorUse *use)
{
    const GxTensorId id = gx_model_tensor(g, m, unit, k, use);
    if (id.index >= 0) m->table.row[id.index].is_added = 1;
    return id;
}

// A linear [out, in] with a bias.
static GxLinear gx__bottleneck_linear(GxContext *g, GxModel *m, int unit, int k, int number, const char *what,
                                      int64_t out, int64_t in)
{
    const GxCoreSpec *core = &gx_unit_spec(m, unit)->pair[k].core;
    const char *last = core->matrix[gx_core_last_matrix(core)], *dot = strrchr(last, '.');
    const int parent = dot ? (int)(dot + 1 - last) : 0;
    char name[GX_MODULE];
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    const GxTensorUse weight = gx_tensor_use(name, number, GX_ROLE_WEIGHT, out, in, con),
                      bias = gx_tensor_use(name, number, GX_ROLE_BIAS, out, 0, con);
    if ((size_t)snprintf(name, sizeof name, "%.*s%s", parent, last, what) >= sizeof name - 8) // room for the number
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "the name of %s is too long to make an adapter's name from it: at most %d characters", last,
                (int)sizeof name - 9);
    const GxTensorId w = gx__bottleneck_tensor(g, m, unit, k, &weight), b = gx__bottleneck_tensor(g, m, unit, k, &bias);
    return gx_model_linear(m, w, 1, b);
}

static void gx__bottleneck_open(GxContext *g, GxModel *m, int unit, int number)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    const int64_t C = u->width, reduction = m->adapter.bottleneck.reduction;
    for (int k = 0; k < u->n_pairs && !gx_failed(g); k++) {
        if (u->pair[k].con.kind != GX_CON_ADD) continue;
        if (C % reduction) {
            GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                    "adapter_reduction_dim is %ld; it must divide the model's width, which is %ld",
                    (long)reduction, (long)C);
            return;
        }
        GxLinear *l = m->unit[unit].pair[k].adapter;
        l[GX__BOTTLENECK_DOWN] = gx__bottleneck_linear(g, m, unit, k, number, "adapter_down", C / reduction, C);
        l[GX__BOTTLENECK_UP] = gx__bottleneck_linear(g, m, unit, k, number, "adapter_up", C, C / reduction);
        if (gx_failed(g)) return;
        GxTensor *down = &m->table.row[l[GX__BOTTLENECK_DOWN].first.index],
                 *up = &m->table.row[l[GX__BOTTLENECK_UP].first.index];
        down->init = GX_INIT_UNIFORM, down->init_std = (float)(1 / sqrt((double)C));
        up->init_std = gx__bottleneck_up_std;
    }
}

// ---- at work -------------------------------------------------------------------------------------------------------

static void gx__bottleneck_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t C = u->spec.width;
    (void)rows;
    if (u->spec.pair[k].con.kind != GX_CON_ADD) return;
    s->adapter[GX__BOTTLENECK_Z] = gx_slot_rows(l, l->con, C);
    s->adapter[GX__BOTTLENECK_HIDDEN] = gx_slot_rows(l, l->con, C / l->m->adapter.bottleneck.reduction);
}

void gx_bottleneck_forward(const GxPairView *v, GxRows z)
{
    const GxLinear *l = v->pair->adapter;
    const GxRows kept = v->slot->adapter[GX__BOTTLENECK_Z], hidden = v->slot->adapter[GX__BOTTLENECK_HIDDEN],
                 active = gx_pass_rows(v->p, hidden.rows, hidden.cols);
    const int before = gx_of_tensor(v->g, l[GX__BOTTLENECK_DOWN].first.index + 1);
    gx_copy(v->g, kept.data, z.data, gx_rows_bytes(z));
    gx_linear_apply(v->p, &l[GX__BOTTLENECK_DOWN], hidden, kept, 0);
    gx_gelu_forward(v->g, active.data, hidden.data, NULL, active.rows, active.cols, GX_GELU_ERF, active.dtype);
    gx_linear_apply(v->p, &l[GX__BOTTLENECK_UP], z, active, 1);
    gx_of_tensor(v->g, before);
}

// Overwrites the kept hidden rows with their gradient, and recomputes gelu of them.
void gx_bottleneck_backward(const GxPairView *v, GxRows d, int wants_input)
{
    const GxLinear *l = v->pair->adapter;
    const GxRows kept = v->slot->adapter[GX__BOTTLENECK_Z], hidden = v->slot->adapter[GX__BOTTLENECK_HIDDEN],
                 active = gx_pass_rows(v->p, hidden.rows, hidden.cols);
    const int before = gx_of_tensor(v->g, -(l[GX__BOTTLENECK_DOWN].first.index + 1));
    gx_linear_apply_backward_input(v->p, &l[GX__BOTTLENECK_UP], active, d, 0);
    gx_gelu_backward(v->g, hidden.data, active.data, active.data, hidden.data, NULL, active.rows, active.cols,
                     GX_GELU_ERF, active.dtype);
    gx_linear_apply_backward_weight(v->p, &l[GX__BOTTLENECK_UP], d, active);
    gx_linear_apply_backward_weight(v->p, &l[GX__BOTTLENECK_DOWN], hidden, kept);
    if (wants_input) gx_linear_apply_backward_input(v->p, &l[GX__BOTTLENECK_DOWN], d, hidden, 1);
    gx_of_tensor(v->g, before);
}

// ---- the method ----------------------------------------------------------------------------------------------------

static int gx__bottleneck_is_on(const GxModel *m) { return m->adapter.bottleneck.reduction != 0; }
static const char *gx__bottleneck_trainable(const GxModel *m) { return m->adapter.bottleneck.trainable; }

static int gx__bottleneck_needs_result(const GxModel *m, int unit, int k)
{
    return m->unit[unit].pair[k].adapter[0].first.index >= 0;
}

static int gx__bottleneck_through(const GxModel *m, int row)
{
    const GxTensor *t = &m->table.row[row];
    const GxLinear *l = m->unit[t->unit].pair[t->pair].adapter;
    return row == l[GX__BOTTLENECK_UP].first.index ? l[GX__BOTTLENECK_DOWN].first.index : -1;
}

// Up is initialized near 0.
static double gx__bottleneck_smallest(const GxModel *m, int row) { return 6 * (double)m->table.row[row].init_std; }

GxTuner gx_bottleneck_tuner(void)
{
    GxTuner t = GX_ZERO;
    t.name = "bottleneck adapters", t.is_on = gx__bottleneck_is_on;
    t.check = gx__bottleneck_check, t.open = gx__bottleneck_open;
    t.trainable = gx__bottleneck_trainable;
    t.through = gx__bottleneck_through, t.smallest = gx__bottleneck_smallest;
    t.layout = gx__bottleneck_layout, t.needs_result = gx__bottleneck_needs_result;
    return t;
}
#endif
