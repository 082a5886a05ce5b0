// model/lora.h: LoRA: which linears have it, its tensors, and merging. What it computes is in linear.h and embed.h.
//
// A [r,in] has the columns of the base matrix W [out,in] and B [out,r] its rows, and each is split as W is. If W is
// split by rows, B is split with it and every rank has all of A; if W is split by columns, it is the other way round.
// The factor that every rank has whole is applied to rows that all ranks have, but together with the rank's own share
// of the other factor: so its gradient is a summand (layout.h, GX_USE_OWN_SHARE). The gradient of the split factor is
// the rank's own. If W is not split, neither is A or B.
//
// The token embedding has LoRA only if the targets name it: y = W[id] + s * B A[:,id] (embed.h), with A [r,V] zero and
// B [C,r] drawn initially, as in PEFT. A head also has it only if named; B is split with W's rows of the vocabulary. If
// the head is tied to the embedding, each has factors of its own, or none and then uses W alone.
//
// The rest of the model is frozen (tuned.h).
//
// Names: W's module with ".lora_A.weight" and ".lora_B.weight" appended; for an embedding ".lora_embedding_A" and
// ".lora_embedding_B". PEFT's names are these with a prefix.
#ifndef GX_MODEL_LORA_H
#define GX_MODEL_LORA_H
#include "model.h"
GX_BEGIN

static inline int64_t gx_lora_rank(const GxModel *m, const GxTensor *w) // r of a matrix with LoRA
{
    return m->table.row[w->lora.index].global_shape[0]; // A is [r,in], or [r,V]
}

// The module of a matrix, by the name that peft knows it by: for GX_HEAD_VECTORS that in transformers' model without a
// head.
void gx_lora_module(const GxModel *m, const GxTensor *t, char module[GX_NAME]);
int gx_lora_is_excluded(const GxModel *m, const GxTensor *t); // by GxLora.excluded

// sign 1: W += s * B A; sign -1: W -= s * B A; for the matrices, or parts of them, that this rank has. In bf16 the
// result is rounded, so subtracting does not restore the exact bits of W. A quantised W stays as it is: its values are
// read (parallel/values.h), and gx_lora_add adds to them.
void gx_lora_merge(GxContext *g, GxModel *m, int sign);
// w [rows,in] += s * B A, of the matrix's rows [first, first + rows); w: fp32, in the device's memory. Of a matrix
// without factors: nothing. The matrix is that of a linear, and whole on this rank.
void gx_lora_add(GxContext *g, const GxModel *m, int row, int64_t first, int64_t rows, float *w);
// For a plan: takes the scratch of gx_lora_merge and of a quantised matrix's rows, at most GX_STAGE elements or one row
// of it in fp32 and in a narrower type, and releases it.
void gx_lora_merge_plan(GxContext *g, const GxModel *m);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LORA_IMPLEMENTED)
#define GX_MODEL_LORA_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../base/text.h"
#include "../ops/embedding.h"
#include "../ops/linear.h"
#include "../ops/memory.h"
#include "../parallel/values.h"

int gx_lora_tied_head(const GxModel *m)
{
    for (int i = 0; i < m->table.n && m->embedding.index >= 0; i++) {
        const GxTensor *t = &m->table.row[i];
        if (!t->has_alias || t->alias.index != m->embedding.index) continue;
        return t->has_lora || m->table.row[m->embedding.index].has_lora ? i : -1;
    }
    return -1;
}

GxStatus gx_lora_check(const GxLora *lora, GxError *err)
{
    if (lora->r) GX_TRY(gx_check_size("LoRA's r", lora->r, 65536, err));
    if (lora->r > 0 && !(lora->alpha >= 1e-6 && lora->alpha <= 1e6))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "LoRA's alpha is %g; it must be from 1e-6 to 1e6", lora->alpha);
    if (lora->r > 0 && !(lora->dropout >= 0 && lora->dropout < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "LoRA's dropout is %g; it must be 0 or more and below 1",
                       (double)lora->dropout);
    return GX_OK;
}

// ---- targets -------------------------------------------------------------------------------------------------------

// 1: `name` is the module's whole name, or its last components after a dot.
static int gx__lora_is_called(const char *module, int64_t n, const char *name, int64_t name_n)
{
    if (name_n > n || strncmp(module + n - name_n, name, (size_t)name_n)) return 0;
    return n == name_n || module[n - name_n - 1] == '.';
}

static int64_t gx__lora_module(const GxTensor *t) { return (int64_t)strlen(t->name) - (int64_t)strlen(".weight"); }

static int gx__lora_is_listed(const char *module, int64_t n, const char *names)
{
    GxTextItem name;
    while (gx_text_next(&names, &name))
        if (gx__lora_is_called(module, n, name.at, name.n)) return 1;
    return 0;
}

static int gx__lora_is_all_linear(const GxLora *lora)
{
    return lora->targets && !strcasecmp(lora->targets, "all-linear");
}

void gx_lora_module(const GxModel *m, const GxTensor *t, char module[GX_NAME])
{
    const char *dot = m->head.kind == GX_HEAD_VECTORS ? strchr(t->name, '.') : NULL, *name = dot ? dot + 1 : t->name;
    snprintf(module, GX_NAME, "%.*s", (int)(t->name + gx__lora_module(t) - name), name);
}

static int gx__lora_is_found(const GxModel *m, const GxTensor *t)
{
    char module[GX_NAME];
    gx_lora_module(m, t, module);
    return m->lora.finds(m->lora.targets, module);
}

int gx_lora_is_excluded(const GxModel *m, const GxTensor *t)
{
    const GxLora *lora = &m->lora;
    char module[GX_NAME];
    if (!lora->excluded || !lora->excluded[0]) return 0;
    if (!lora->excludes) return gx__lora_is_listed(t->name, gx__lora_module(t), lora->excluded);
    gx_lora_module(m, t, module);
    return lora->excludes(lora->excluded, module);
}

// The number in a module's name that stands behind another component: "lists" says which, if it is not empty. -1: none
static int64_t gx__lora_layer(const char *module, const char *lists)
{
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.')) {
        const size_t digits = strspn(dot + 1, "0123456789");
        if (!digits || dot[1 + digits] != '.') continue;
        const char *names = lists;
        if (!lists || !lists[0]) return atoll(dot + 1);
        for (GxTextItem name; gx_text_next(&names, &name);)
            if (gx__lora_is_called(module, dot - module, name.at, name.n)) return atoll(dot + 1);
    }
    return -1;
}

static int gx__lora_is_in_layers(const GxModel *m, const GxTensor *t)
{
    const GxLora *lora = &m->lora;
    const char *names = lora->targets;
    char module[GX_NAME];
    if (!lora->layers || !lora->layers->n) return 1;
    gx_lora_module(m, t, module);
    for (GxTextItem name; gx_text_next(&names, &name);)
        if (name.n == (int64_t)strlen(module) && !strncmp(module, name.at, (size_t)name.n)) return 1;
    const int64_t layer = gx__lora_layer(module, lora->lists);
    int is_in = 0;
    for (int i = 0; i < lora->layers->n; i++) is_in |= layer == lora->layers->v[i];
    return is_in;
}

// 1: excluded and layers leave it.
static int gx__lora_stays(const GxModel *m, const GxTensor *t)
{
    return !gx_lora_is_excluded(m, t) && (m->lora.finds || gx__lora_is_in_layers(m, t));
}

static int gx__lora_is_meant(const GxModel *m, const GxTensor *t, int by_default)
{
    const GxLora *lora = &m->lora;
    if (!lora->targets || !lora->targets[0]) return by_default;
    if (gx__lora_is_all_linear(lora)) return t->role != GX_ROLE_EMBEDDING && t->role != GX_ROLE_HEAD;
    return lora->finds ? gx__lora_is_found(m, t) : gx__lora_is_listed(t->name, gx__lora_module(t), lora->targets);
}

static int gx__lora_is_target(const GxModel *m, const GxTensor *t, int by_default)
{
    return gx__lora_is_meant(m, t, by_default) && gx__lora_stays(m, t);
}

static int gx__lora_is_matrix(const GxTensor *t)
{
    const char *dot = strrchr(t->name, '.');
    return t->role != GX_ROLE_LORA && dot && !strcmp(dot, ".weight");
}

// The pattern must match at least one module, and only modules that can have factors.
static GxStatus gx__lora_check_pattern(const GxModel *m, GxError *err)
{
    int found = 0;
    for (int i = 0; i < m->table.n; i++) {
        const GxTensor *t = &m->table.row[i];
        found += t->has_lora;
        if (t->has_lora || !gx__lora_is_matrix(t) || !gx__lora_is_found(m, t) || gx_lora_is_excluded(m, t)) continue;
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "LoRA's targets, the regular expression \"%.200s\", also match %.*s, which cannot have LoRA: it must "
            "be a linear of attention or MLP, of a head or before one, or the token embedding",
            m->lora.targets, (int)gx__lora_module(t), t->name);
    }
    if (found) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "LoRA's targets, the regular expression \"%.200s\", match no module of the model; it has to match a "
                   "whole name, such as %s without .weight",
                   m->lora.targets, m->table.row[m->unit[1].pair[0].linear[0].first.index].name);
}

// 1: the name means this matrix, which has LoRA, or would have it if it were not excluded or in another layer.
static int gx__lora_names(const GxModel *m, const GxTensor *t, GxTextItem name)
{
    const int could = t->role == GX_ROLE_WEIGHT || t->role == GX_ROLE_HEAD || t == &m->table.row[m->embedding.index];
    return (t->has_lora || (could && gx__lora_is_matrix(t) && !gx__lora_stays(m, t))) &&
           gx__lora_is_called(t->name, gx__lora_module(t), name.at, name.n);
}

// All layers are there, and something has LoRA.
static GxStatus gx__lora_check_narrowed(const GxModel *m, GxError *err)
{
    const GxIntList *layers = m->lora.layers;
    int found = 0;
    for (int k = 0; layers && k < layers->n && !m->lora.is_of_peft; k++) {
        for (int i = found = 0; i < m->table.n && !found; i++)
            found = gx__lora_layer(m->table.row[i].name, m->lora.lists) == layers->v[k];
        if (!found)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "layers_to_transform has %ld, and the model has no such layer",
                           (long)layers->v[k]);
    }
    for (int i = found = 0; i < m->table.n; i++) found += m->table.row[i].has_lora;
    if (found) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "no module has LoRA: exclude_modules and layers_to_transform leave none of the targets%s%.200s",
                   m->lora.targets && m->lora.targets[0] ? ", " : "", m->lora.targets ? m->lora.targets : "");
}

GxStatus gx_lora_check_targets(const GxModel *m, GxError *err)
{
    if (m->lora.r == 0) return GX_OK;
    if (m->lora.finds) return gx__lora_check_pattern(m, err);
    const char *targets = gx__lora_is_all_linear(&m->lora) ? NULL : m->lora.targets;
    GxTextItem name;
    while (gx_text_next(&targets, &name)) {
        int found = 0;
        if (name.n == 10 && !strncasecmp(name.at, "all-linear", 10))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "LoRA's targets, \"%.200s\", name others beside all-linear, which stands alone for all "
                           "linears of attention and MLP; name these, like %s, one by one",
                           m->lora.targets, m->table.row[m->unit[1].pair[0].linear[0].first.index].name);
        for (int i = 0; i < m->table.n && !found; i++) found = gx__lora_names(m, &m->table.row[i], name);
        if (!found)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "LoRA's target \"%.*s\" matches no linear of attention or MLP, none of a head or before one, "
                "and not the token embedding; names in %s are like %s, %s",
                (int)name.n, name.at, m->family->name, m->table.row[m->unit[1].pair[0].linear[0].first.index].name,
                m->table.row[m->embedding.index].name);
    }
    return gx__lora_check_narrowed(m, err);
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
    const int64_t module = gx__lora_module(w);
    if (module + (int64_t)strlen(f.name) >= GX_NAME) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "the name of %s is too long for LoRA's factors: %d characters", t.name,
                GX_NAME - (int)strlen(f.name) - 1);
        return gx_no_tensor();
    }
    snprintf(t.name + module, sizeof t.name - (size_t)module, "%s", f.name);
    t.role = GX_ROLE_LORA;
    t.is_added = 1;
    t.packed = t.has_lora = t.has_alias = t.is_vocabulary = 0, t.lora_scale = 0;
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

static void gx__lora_add(GxContext *g, GxModel *m, int base, gx__LoraFactor a, gx__LoraFactor b)
{
    const GxLora *lora = &m->lora;
    int64_t r = lora->r;
    double alpha = lora->alpha;
    char module[GX_NAME];
    gx_lora_module(m, &m->table.row[base], module);
    if (lora->rank_pattern && lora->rank_pattern[0]) r = (int64_t)lora->value(lora->rank_pattern, module, (double)r);
    if (lora->alpha_pattern && lora->alpha_pattern[0]) alpha = lora->value(lora->alpha_pattern, module, alpha);
    const GxTensorId first = gx__lora_factor(g, m, base, a, r);
    gx__lora_factor(g, m, base, b, r);
    m->table.row[base].has_lora = 1, m->table.row[base].lora = first;
    m->table.row[base].lora_scale = alpha / (lora->is_scaled_by_root ? sqrt((double)r) : (double)r);
}

// A [r,in], B [out,r]
static void gx__lora_of_linear(GxContext *g, GxModel *m, const GxLinear *l, int by_default)
{
    for (int i = 0; i < l->parts && !gx_failed(g); i++) {
        const int base = l->first.index + i;
        const double in = (double)m->table.row[base].global_shape[1];
        const gx__LoraFactor a = {".lora_A.weight", 1, 1, GX_INIT_UNIFORM, (float)(1 / sqrt(in))},
                             b = {".lora_B.weight", 0, 0, GX_INIT_ZEROS, 0};
        if (gx__lora_is_target(m, &m->table.row[base], by_default)) gx__lora_add(g, m, base, a, b);
    }
}

// Of W [V,C]: A [r,V], B [C,r]
static void gx__lora_of_embedding(GxContext *g, GxModel *m, int base)
{
    const gx__LoraFactor a = {".lora_embedding_A", 0, 1, GX_INIT_ZEROS, 0},
                         b = {".lora_embedding_B", 1, 0, GX_INIT_NORMAL, 1};
    if (gx__lora_is_target(m, &m->table.row[base], 0)) gx__lora_add(g, m, base, a, b);
}

void gx_lora_open(GxContext *g, GxModel *m, int unit)
{
    if (m->lora.r == 0 || gx_failed(g)) return;
    for (int k = 0; k < gx_unit_spec(m, unit)->n_pairs; k++) {
        const GxPair pair = m->unit[unit].pair[k];
        const GxCoreKind core = gx_unit_spec(m, unit)->pair[k].core.kind;
        if (core == GX_CORE_EMBED) gx__lora_of_embedding(g, m, pair.matrix.index);
        gx__lora_of_linear(g, m, &pair.enter, 0);
        for (int i = 0; i < 2; i++) // attention and MLP have two linears, a head has one, other cores none
            gx__lora_of_linear(g, m, &pair.linear[i], core == GX_CORE_ATT || core == GX_CORE_MLP);
    }
}

// B^T [r,C], of B [C,r]: its columns as rows.
static float *gx__lora_transposed(GxContext *g, const GxTensor *b, const float *values)
{
    const int64_t r = b->global_shape[1], C = b->global_shape[0];
    float *rows = (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * r * C);
    int32_t *ids = (int32_t *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * r);
    GxEmbedding e = gx_embedding_shape(r, C, r, GX_F32);
    e.is_transposed = 1;
    for (int64_t i = 0; i < r && !gx_failed(g); i++) {
        const int32_t id = (int32_t)i;
        gx_to_device(g, ids + i, &id, sizeof id);
    }
    if (!gx_failed(g) && values) gx_embedding_forward(g, rows, values, ids, &e);
    return rows;
}

static void gx__lora_plan_embedding(GxContext *g, const GxModel *m)
{
    const GxArenaMark mark = gx_arena_mark(g->arena);
    if (m->embedding.index < 0 || !m->table.row[m->embedding.index].has_lora) return;
    gx__lora_transposed(g, &m->table.row[m->table.row[m->embedding.index].lora.index + 1], NULL);
    gx_arena_release(g->arena, mark);
}

void gx_lora_merge_plan(GxContext *g, const GxModel *m)
{
    const GxArenaMark mark = gx_arena_mark(g->arena);
    int64_t most = 0;
    for (int i = 0; i < m->table.n; i++)
        if (m->table.row[i].quantized)
            most = gx_max(most, gx_min(gx_tensor_count(&m->table.row[i]),
                                       gx_max(GX_STAGE, m->table.row[i].end[1] - m->table.row[i].begin[1])));
    if (most) gx_scratch(g, GX_MEM_WORKSPACE, 4 * most), gx_scratch(g, GX_MEM_WORKSPACE, 2 * most);
    gx_arena_release(g->arena, mark);
    gx__lora_plan_embedding(g, m);
}

// dx = s * dy w of a linear is s * B A, for dy = B [out,r] and w = A [r,in]; dw = s * dy^T x is s * A^T B^T, for dy = A
// [r,V] and x = B^T [r,C].
static void gx__lora_merge_row(GxContext *g, GxModel *m, int row, int sign)
{
    const GxTensor *t = &m->table.row[row], *a = &m->table.row[t->lora.index];
    const GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t), in = t->end[1] - t->begin[1], r = gx_lora_rank(m, t);
    const float scale = (float)sign * (float)t->lora_scale;
    GxLinearShape s = gx_linear_shape(t->end[0] - t->begin[0], in, r, GX_F32);
    s.accumulate = 1, s.scale = scale;
    float *w = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, row, 0, n),
          *x = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index, 0, gx_tensor_count(a)),
          *y = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index + 1, 0, gx_tensor_count(a + 1));
    if (t->role == GX_ROLE_EMBEDDING) {
        const float *rows = gx__lora_transposed(g, a + 1, y);
        s = gx_linear_shape(r, in, t->end[0] - t->begin[0], GX_F32);
        s.accumulate = 1, s.scale = scale;
        if (!gx_failed(g)) gx_linear_backward_weight(g, w, NULL, x, rows, &s);
    } else if (!gx_failed(g)) gx_linear_backward_input(g, w, y, x, &s);
    gx_values_written(g, &m->store, GX_VALUES_WEIGHTS, row, 0, n, w);
    gx_arena_release(g->arena, mark);
}

void gx_lora_merge(GxContext *g, GxModel *m, int sign)
{
    for (int i = 0; i < m->table.n && !gx_failed(g); i++)
        if (m->table.row[i].has_lora && !m->table.row[i].quantized && gx_store_has(&m->store, i))
            gx__lora_merge_row(g, m, i, sign);
}

void gx_lora_add(GxContext *g, const GxModel *m, int row, int64_t first, int64_t rows, float *w)
{
    const GxTensor *t = &m->table.row[row];
    if (!t->has_lora) return;
    const GxTensor *a = &m->table.row[t->lora.index];
    const GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t r = gx_lora_rank(m, t);
    GxLinearShape s = gx_linear_shape(rows, t->global_shape[1], r, GX_F32);
    s.accumulate = 1, s.scale = (float)t->lora_scale;
    const float *x = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index, 0, gx_tensor_count(a)),
                *y = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index + 1, 0, gx_tensor_count(a + 1));
    if (!gx_failed(g)) gx_linear_backward_input(g, w, y + first * r, x, &s);
    gx_arena_release(g->arena, mark);
}
#endif
