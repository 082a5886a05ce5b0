// model/lora.h: LoRA's tensors and computation. lora_targets.h says which linears have it, lora_merge.h merges it.
//
// For a linear y += s * (dropout(x) A^T) B^T, part by part if several matrices are packed. x A^T and dy B, r numbers a
// row each, are recomputed in the backward and not kept.
//
// A [r,in] has the columns of the base matrix W [out,in] and B [out,r] its rows, and each is split as W is. If W is
// split by rows, B is split with it and every rank has all of A; if W is split by columns, it is the other way round.
// The factor that every rank has whole is applied to rows that all ranks have, but together with the rank's own share
// of the other factor, so its gradient is a summand (layout.h, GX_USE_OWN_SHARE). The gradient of the split factor
// belongs to its rank only. If W is not split, neither A nor B is.
//
// The token embedding has LoRA only if the targets name it: y = W[id] + s * B A[:,id]. A [r,V] is initially zero and B
// [C,r] random, as in PEFT. A head, too, has LoRA only if it is named; B is split with W's rows of the vocabulary. If
// the head is tied to the embedding, each of them has its own factors, or has none and uses only W.
//
// The rest of the model is frozen (tuned.h).
//
// Matrices that are one in files (GxTensor.stack) have one A together, to whose gradient each part's product adds, and
// B's rows are cut as W's are.
//
// Names: W's module with ".lora_A.weight" and ".lora_B.weight" appended; for an embedding ".lora_embedding_A" and
// ".lora_embedding_B". PEFT's names are these with a prefix.
#ifndef GX_MODEL_LORA_H
#define GX_MODEL_LORA_H
#include "../ops/embedding.h"
#include "tuner.h"
GX_BEGIN

GxTuner gx_lora_tuner(void);

static inline int64_t gx_lora_rank(const GxModel *m, const GxTensor *w) // r of a matrix with LoRA
{
    return m->table.row[w->lora.index].global_shape[0]; // A is [r,in], or [r,V]
}
// The table row of a head that is tied to the token embedding, if one of the two has LoRA; -1: none.
int gx_lora_tied_head(const GxModel *m);

// For linear.h, for the parts of l with LoRA: y += s * (dropout(x) A^T) B^T; dx += its gradient; those of A and B.
void gx_lora_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x);
void gx_lora_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy);
void gx_lora_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x);

// For embed.h, for a token embedding with LoRA: out += s * h B^T, where row i of h is column `token i` of A [r,V]. The
// backward looks h up again. With TP a rank has A's columns for its own tokens, and h is 0 for other tokens. The
// padding token, whose row of the embedding gets no gradient, gets none in A either. e: the embedding's lookup.
void gx_lora_embed_forward(const GxPairView *v, const GxEmbedding *e, const int32_t *tokens, GxRows out);
void gx_lora_embed_backward_weight(const GxPairView *v, const GxEmbedding *e, const int32_t *tokens, GxRows dout);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LORA_IMPLEMENTED)
#define GX_MODEL_LORA_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "../ops/elementwise.h"
#include "../ops/linear.h"
#include "lora_targets.h"

static GxStatus gx__lora_check(GxModel *m, GxError *err)
{
    const GxLora *lora = &m->adapter.lora;
    GX_TRY(gx_check_size("LoRA's r", lora->r, 65536, err));
    if (!(lora->alpha >= 1e-6 && lora->alpha <= 1e6))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "LoRA's alpha is %g; it must be from 1e-6 to 1e6", lora->alpha);
    if (!(lora->dropout >= 0 && lora->dropout < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "LoRA's dropout is %g; it must be 0 or more and below 1",
                       (double)lora->dropout);
    return GX_OK;
}

int gx_lora_tied_head(const GxModel *m)
{
    for (int i = 0; i < m->table.n && m->embedding.index >= 0; i++) {
        const GxTensor *t = &m->table.row[i];
        if (!t->has_alias || t->alias.index != m->embedding.index) continue;
        if (t->has_lora || m->table.row[m->embedding.index].has_lora) return i;
    }
    return -1;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    int kept, at; // dimension `at` of the factor is the base's dimension `kept`, with its split; the other is r
    GxInit init;
    float init_std;
} gx__LoraFactor;

static GxTensorId gx__lora_factor(GxContext *g, GxModel *m, int base, gx__LoraFactor f, int64_t rank)
{
    const GxTensor *w = &m->table.row[base];
    GxTensor t = *w;
    const int r = 1 - f.at, is_split = w->parts != NULL, is_cut = is_split && w->split_dim == f.kept;
    // A of several matrices has their common name; each B has its own, and a common one in files
    const char *name = f.kept == 1 ? gx_tensor_file_name(w) : w->name;
    const int64_t module = gx_text_stem(name, ".weight");
    if (module + (int64_t)strlen(f.name) >= GX_NAME) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "the name of %s is too long to make the names of LoRA's matrices from it: at most %d characters", name,
                GX_NAME - (int)strlen(f.name) - 1);
        return gx_no_tensor();
    }
    snprintf(t.name, sizeof t.name, "%.*s%s", (int)module, name, f.name);
    t.role = GX_ROLE_LORA;
    t.is_added = 1;
    t.packed = t.has_lora = t.has_alias = t.is_vocabulary = t.is_transposed = 0, t.lora_scale = 0;
    t.stack[0] = 0, t.stack_first = t.stack_rows = 0;
    t.init = f.init, t.init_std = f.init_std;
    t.decay = 1;
    t.global_shape[f.at] = w->global_shape[f.kept], t.begin[f.at] = w->begin[f.kept], t.end[f.at] = w->end[f.kept];
    t.global_shape[r] = t.end[r] = rank, t.begin[r] = 0;
    t.split_dim = is_cut ? f.at : 0;
    if (is_split && !is_cut) {
        t.begin[f.at] = 0, t.end[f.at] = t.global_shape[f.at];
        t.parts = NULL, t.n_parts = t.split_axes = 0;
        t.sums_over_tp = gx_grad_sums_over_tp(GX_LAYOUT_FULL, GX_USE_OWN_SHARE);
    }
    return gx_table_add(&m->table, &t, &g->error);
}

// The factors of `parts` matrices from row `base` on, which share A if there are several: they are one in files
// (GxTensor.stack), and so are their Bs, which lie behind each other here, too.
static void gx__lora_add(GxContext *g, GxModel *m, int base, int parts, gx__LoraFactor a, gx__LoraFactor b)
{
    const GxLora *lora = &m->adapter.lora;
    int64_t r = lora->r;
    double alpha = lora->alpha;
    char module[GX_NAME];
    gx_lora_module(m, &m->table.row[base], module);
    if (lora->rank_pattern && lora->rank_pattern[0]) r = (int64_t)lora->value(lora->rank_pattern, module, (double)r);
    if (lora->alpha_pattern && lora->alpha_pattern[0]) alpha = lora->value(lora->alpha_pattern, module, alpha);
    const GxTensorId first = gx__lora_factor(g, m, base, a, r);
    for (int i = base; i < base + parts && !gx_failed(g); i++) {
        const GxTensorId own = gx__lora_factor(g, m, i, b, r);
        if (gx_failed(g)) return;
        GxTensor *w = &m->table.row[i], *factor = &m->table.row[own.index];
        w->has_lora = 1, w->lora = first, w->lora_b = own;
        w->lora_scale = alpha / (lora->is_scaled_by_root ? sqrt((double)r) : (double)r);
        if (!w->stack[0]) continue;
        snprintf(module, sizeof module, "%.*s%s", (int)gx_text_stem(w->stack, ".weight"), w->stack, b.name);
        memcpy(factor->stack, module, sizeof factor->stack);
        factor->stack_first = w->stack_first, factor->stack_rows = w->stack_rows;
        factor->packed = i > base;
    }
}

// A [r,in], B [out,r]
static void gx__lora_of_linear(GxContext *g, GxModel *m, const GxLinear *l, int by_default)
{
    for (int i = 0; i < l->parts && !gx_failed(g); i++) {
        const int base = l->first.index + i, is_stacked = m->table.row[base].stack[0] != 0;
        const double in = (double)m->table.row[base].global_shape[1];
        const gx__LoraFactor a = {".lora_A.weight", 1, 1, GX_INIT_UNIFORM, (float)(1 / sqrt(in))},
                             b = {".lora_B.weight", 0, 0, GX_INIT_ZEROS, 0};
        if (is_stacked && i > 0) return; // with the first
        if (gx_lora_is_target(m, &m->table.row[base], by_default))
            gx__lora_add(g, m, base, is_stacked ? l->parts : 1, a, b);
    }
}

// For W [V,C]: A [r,V], B [C,r]
static void gx__lora_of_embedding(GxContext *g, GxModel *m, int base)
{
    const gx__LoraFactor a = {".lora_embedding_A", 0, 1, GX_INIT_ZEROS, 0},
                         b = {".lora_embedding_B", 1, 0, GX_INIT_NORMAL, 1};
    if (gx_lora_is_target(m, &m->table.row[base], 0)) gx__lora_add(g, m, base, 1, a, b);
}

static void gx__lora_open(GxContext *g, GxModel *m, int unit, int number)
{
    (void)number;
    if (gx_failed(g)) return;
    for (int k = 0; k < gx_unit_spec(m, unit)->n_pairs; k++) {
        const GxPair pair = m->unit[unit].pair[k];
        const GxCoreKind core = gx_unit_spec(m, unit)->pair[k].core.kind;
        if (core == GX_CORE_EMBED) gx__lora_of_embedding(g, m, pair.matrix.index);
        gx__lora_of_linear(g, m, &pair.enter, 0);
        for (int i = 0; i < 2; i++) // attention and MLP have two linears, a head has one, other cores none
            gx__lora_of_linear(g, m, &pair.linear[i], core == GX_CORE_ATT || core == GX_CORE_MLP);
    }
}

static GxLinearShape gx__lora_added(GxLinearShape s, int accumulate)
{
    s.accumulate = accumulate;
    return s;
}

// ---- forward and backward of a linear's LoRA -----------------------------------------------------------------------

typedef struct {      // the LoRA of a part of a linear, or of several that share A, for some rows
    int first, parts; // their numbers in the linear
    GxTensorId a, b;
    int64_t column;         // the first part's first column of y
    GxDropout dropout;      // of x
    GxLinearShape down, up; // from x to r columns; from those to the parts' columns of y, times s
} GxLoraPart;

// 1: k or v of attention to an encoder's output, whose rows are the source's.
static int gx__lora_is_of_memory(const GxPairView *v, const GxTensor *w)
{
    const int number = (int)(w - v->m->table.row) - v->pair->linear[0].first.index; // q, k, v
    return v->spec->core.reads_memory && (number == 1 || number == 2);
}

// The dropout of A's input x. Which global rows and columns x has depends on whether the linear is before a core, in a
// head, which takes a chunk of its target's rows at a time, or in another core; with TP it may be only some columns.
static GxDropout gx__lora_dropout(const GxPass *p, const GxLinear *l, const GxTensor *w)
{
    const GxPairView v = gx_view(p, w->pair);
    const int is_enter = v.pair->enter.first.index == l->first.index, is_head = !is_enter && gx_view_is_head(&v);
    const int32_t *picked = is_head ? v.target->rows : NULL;
    GxDropout d = gx_view_dropout(&v, GX_DROPOUT_CON, p->m->adapter.lora.dropout);
    d.site = gx_random_site(GX_SITE_LORA, w->lora.index);
    if (is_enter && gx_entered_rows(&v)) gx_view_dropout_rows(&v, &d, gx_entered_rows(&v), 0);
    else if (is_head) gx_view_dropout_rows(&v, &d, picked ? picked + l->picked : NULL, l->picked);
    else if (gx__lora_is_of_memory(&v, w)) {
        d.T = v.b->source->T;
        gx_view_dropout_rows(&v, &d, NULL, gx_view_method(&v) == GX_METHOD_SP ? gx_memory_begin(&v) : 0);
    } else if (!is_enter)
        gx_view_dropout_rows(&v, &d, NULL, gx_view_method(&v) == GX_METHOD_SP ? gx_slice_begin(p) : 0);
    d.first_column = w->begin[1], d.columns = w->global_shape[1];
    return d;
}

static int64_t gx__lora_columns(const GxTensor *w) { return w->end[0] - w->begin[0]; } // of y

// Describes the LoRA of part i, and of those behind it that share its A, in *part. Returns 0 if the part has none; the
// next part to ask for is then i + 1, and otherwise part->first + part->parts.
static int gx__lora_part(GxPass *p, const GxLinear *l, int i, GxRows rows, GxLoraPart *part)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    part->first = i, part->parts = 1;
    if (!t[i].has_lora) return 0;
    part->a = t[i].lora, part->b = t[i].lora_b;
    part->column = 0;
    for (int before = 0; before < i; before++) part->column += gx__lora_columns(&t[before]);
    part->dropout = gx__lora_dropout(p, l, &t[i]);
    const int64_t r = gx_lora_rank(p->m, &t[i]);
    int64_t columns = gx__lora_columns(&t[i]);
    for (int more = i + 1; more < l->parts && t[more].has_lora && t[more].lora.index == part->a.index; more++)
        columns += gx__lora_columns(&t[more]), part->parts++;
    part->down = gx_linear_shape(rows.rows, l->in, r, rows.dtype);
    part->up = gx_linear_shape(rows.rows, r, columns, rows.dtype);
    part->up.y_stride = l->out;
    part->up.scale = (float)t[i].lora_scale;
    return 1;
}

// A's input, dropout(x).
static GxRows gx__lora_dropped(GxPass *p, const GxLoraPart *part, GxRows x)
{
    if (part->dropout.p == 0) return x;
    const GxRows dropped = gx_pass_rows(p, x.rows, x.cols);
    gx_dropout(p->g, dropped.data, x.data, x.rows, x.cols, &part->dropout, x.dtype);
    return dropped;
}

// h = x A^T
static GxRows gx__lora_down(GxPass *p, const GxLoraPart *part, GxRows x)
{
    const GxRows h = gx_pass_rows(p, x.rows, part->down.Out);
    gx_linear_forward(p->g, h.data, x.data, gx_store_weight(&p->m->store, part->a), NULL, &part->down);
    return h;
}

// dh = s * dy B, of the part's columns
static GxRows gx__lora_down_backward(GxPass *p, const GxLoraPart *part, GxRows dy)
{
    const GxRows dh = gx_pass_rows(p, dy.rows, part->down.Out);
    gx_linear_backward_input(p->g, dh.data, gx_rows_column(dy, part->column), gx_store_weight(&p->m->store, part->b),
                             &part->up);
    return dh;
}

void gx_lora_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x)
{
    GxLoraPart part = GX_ZERO;
    for (int i = 0; i < l->parts; i += part.parts) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, x, &part)) continue;
        const int before = gx_of_tensor(p->g, part.a.index + 1);
        const GxRows h = gx__lora_down(p, &part, gx__lora_dropped(p, &part, x));
        const GxLinearShape s = gx__lora_added(part.up, 1);
        gx_linear_forward(p->g, gx_rows_column(y, part.column), h.data, gx_store_weight(&p->m->store, part.b), NULL,
                          &s);
        gx_of_tensor(p->g, before);
        gx_arena_release(p->g->arena, mark);
    }
}

// dx += dh A, with the dropout mask of x
void gx_lora_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy)
{
    GxLoraPart part = GX_ZERO;
    for (int i = 0; i < l->parts; i += part.parts) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, dy, &part)) continue;
        const int before = gx_of_tensor(p->g, -(part.a.index + 1));
        const GxRows dh = gx__lora_down_backward(p, &part, dy),
                     own = part.dropout.p == 0 ? dx : gx_pass_rows(p, dx.rows, dx.cols);
        const GxLinearShape s = gx__lora_added(part.down, own.data == dx.data);
        gx_linear_backward_input(p->g, own.data, dh.data, gx_store_weight(&p->m->store, part.a), &s);
        if (own.data != dx.data) {
            gx_dropout(p->g, own.data, own.data, own.rows, own.cols, &part.dropout, own.dtype);
            gx_add(p->g, dx.data, dx.data, own.data, dx.rows * dx.cols, dx.dtype);
        }
        gx_of_tensor(p->g, before);
        gx_arena_release(p->g->arena, mark);
    }
}

// dB = s * dy^T h, of each part by itself: some may be frozen
static void gx__lora_backward_b(GxPass *p, const GxLinear *l, const GxLoraPart *part, GxRows dy, GxRows dropped)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    GxRows h = gx_no_rows();
    int64_t column = part->column;
    for (int i = part->first; i < part->first + part->parts; column += gx__lora_columns(&t[i]), i++) {
        int adds = 0;
        float *db = gx_store_grad(&p->m->store, t[i].lora_b, &adds);
        GxLinearShape up = gx__lora_added(part->up, adds);
        up.Out = gx__lora_columns(&t[i]);
        if (db && !h.data) h = gx__lora_down(p, part, dropped);
        if (db) gx_linear_backward_weight(p->g, db, NULL, gx_rows_column(dy, column), h.data, &up);
    }
}

// dA = dh^T x, and dB
void gx_lora_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x)
{
    GxLoraPart part = GX_ZERO;
    for (int i = 0; i < l->parts; i += part.parts) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, x, &part)) continue;
        const int before = gx_of_tensor(p->g, -(part.a.index + 1));
        int adds = 0;
        float *da = gx_store_grad(&p->m->store, part.a, &adds);
        const GxRows dropped = gx__lora_dropped(p, &part, x);
        const GxLinearShape down = gx__lora_added(part.down, adds);
        if (da)
            gx_linear_backward_weight(p->g, da, NULL, gx__lora_down_backward(p, &part, dy).data, dropped.data, &down);
        gx__lora_backward_b(p, l, &part, dy, dropped);
        gx_of_tensor(p->g, before);
        gx_arena_release(p->g->arena, mark);
    }
}

// ---- at work: of the token embedding -------------------------------------------------------------------------------

typedef struct {
    GxTensorId a, b;
    GxEmbedding lookup; // of A
    GxLinearShape up;   // between r columns and the embedding's, times s
} gx__LoraEmbedding;

static gx__LoraEmbedding gx__lora_embed(const GxPairView *v, const GxEmbedding *e, GxRows rows)
{
    const GxTensor *t = &v->m->table.row[v->pair->matrix.index];
    const int64_t r = gx_lora_rank(v->m, t);
    gx__LoraEmbedding lora;
    lora.a = t->lora, lora.b = t->lora_b;
    lora.lookup = *e;
    lora.lookup.C = r, lora.lookup.is_transposed = 1, lora.lookup.accumulate = 0;
    lora.up = gx_linear_shape(rows.rows, r, rows.cols, rows.dtype);
    lora.up.scale = (float)t->lora_scale;
    return lora;
}

// h[i,:] = A[:, token i]
static GxRows gx__lora_embed_down(const GxPairView *v, const gx__LoraEmbedding *lora, const int32_t *tokens,
                                  GxRows rows)
{
    const GxRows h = gx_pass_rows(v->p, rows.rows, lora->up.In);
    gx_embedding_forward(v->g, h.data, gx_store_weight(v->store, lora->a), tokens, &lora->lookup);
    return h;
}

// out += s * h B^T
void gx_lora_embed_forward(const GxPairView *v, const GxEmbedding *e, const int32_t *tokens, GxRows out)
{
    const GxArenaMark mark = gx_arena_mark(v->g->arena);
    gx__LoraEmbedding lora = gx__lora_embed(v, e, out);
    const int before = gx_of_tensor(v->g, lora.a.index + 1);
    const GxRows h = gx__lora_embed_down(v, &lora, tokens, out);
    lora.up.accumulate = 1;
    gx_linear_forward(v->g, out.data, h.data, gx_store_weight(v->store, lora.b), NULL, &lora.up);
    gx_of_tensor(v->g, before);
    gx_arena_release(v->g->arena, mark);
}

// dA[:,v] = sum of dh over the rows whose token is v, dh = s * dout B; dB = s * dout^T h
void gx_lora_embed_backward_weight(const GxPairView *v, const GxEmbedding *e, const int32_t *tokens, GxRows dout)
{
    const GxArenaMark mark = gx_arena_mark(v->g->arena);
    gx__LoraEmbedding lora = gx__lora_embed(v, e, dout);
    const int before = gx_of_tensor(v->g, -(lora.a.index + 1));
    float *da = gx_store_grad(v->store, lora.a, &lora.lookup.accumulate);
    if (da) {
        const GxRows dh = gx_pass_rows(v->p, dout.rows, lora.up.In);
        gx_linear_backward_input(v->g, dh.data, dout.data, gx_store_weight(v->store, lora.b), &lora.up);
        gx_embedding_backward(v->g, da, dh.data, tokens, &lora.lookup);
    }
    lora.lookup.accumulate = 0;
    float *db = gx_store_grad(v->store, lora.b, &lora.up.accumulate);
    if (db)
        gx_linear_backward_weight(v->g, db, NULL, dout.data, gx__lora_embed_down(v, &lora, tokens, dout).data,
                                  &lora.up);
    gx_of_tensor(v->g, before);
    gx_arena_release(v->g->arena, mark);
}

// ---- the method ----------------------------------------------------------------------------------------------------

static int gx__lora_is_on(const GxModel *m) { return m->adapter.lora.r != 0; }
static const char *gx__lora_trainable(const GxModel *m) { return m->adapter.lora.trainable; }

static int gx__lora_through(const GxModel *m, int row)
{
    const GxTensor *t = m->table.row;
    int other = -1;
    for (int i = 0; i < m->table.n && t[row].role == GX_ROLE_LORA; i++)
        if (t[i].has_lora && (row == t[i].lora.index || row == t[i].lora_b.index))
            other = row == t[i].lora.index ? t[i].lora_b.index : t[i].lora.index;
    return other;
}

GxTuner gx_lora_tuner(void)
{
    GxTuner t = GX_ZERO;
    t.name = "LoRA", t.is_on = gx__lora_is_on;
    t.check = gx__lora_check, t.open = gx__lora_open;
    t.trainable = gx__lora_trainable, t.check_trained = gx_lora_check_targets;
    t.through = gx__lora_through;
    return t;
}
#endif
