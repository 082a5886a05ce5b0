// model.h: a model as data: units, each a list of (core, CON) pairs, described; the mode that says how they are split
// over the ranks of a tp group; and from both the table of tensors with every rank's box in them.
//
// A layer is two pairs, (ATT, CON) and (MLP, CON); the embedding is a pair without a stream that enters, a head one
// without a stream that leaves. A pair is y = CON(x, core(enter(x))): enter is the norm before a core, or nothing; CON
// joins the core's result to the stream. A family (llama.h) is a configuration, names and such descriptions; what cores
// and CON compute is in att.h, mlp.h, embed.h, head.h and con.h, and knows of no family.
//
//     GX_TRY(gx_model_open(&g, &m, &gx_llama, &config, &gx_tp, NULL));    // table and places; no memory
//     gx_model_take(&g, &m, T, B, 512);                                   // constants, from the arena
//
// Descriptions that no operation serves yet are refused by name when the model is opened.
#ifndef GX_MODEL_H
#define GX_MODEL_H
#include "../base/fields.h"
#include "../base/partition.h"
#include "../base/store.h"
#include "../parallel/layout.h"
#include "rows.h"
GX_BEGIN

enum { GX_MAX_PAIRS = 3, GX_MAX_MATRICES = 4, GX_MAX_KINDS = 4, GX_MAX_UNITS = 1024 };
typedef struct GxPass GxPass;
typedef struct GxModel GxModel;

// ---- descriptions --------------------------------------------------------------------------------------------------

typedef enum { GX_RMS_NORM = 0, GX_LAYER_NORM } GxNormKind;
typedef enum { GX_ENTER_NOTHING = 0, GX_ENTER_NORM } GxEnterKind; // norms behind CON | before cores, the final norm
typedef enum { GX_CON_NOTHING = 0, GX_CON_ADD, GX_CON_EMBED } GxConKind; // head | layers | embedding
typedef enum { GX_SWIGLU = 0, GX_GELU } GxActivation;

typedef struct {
    GxEnterKind kind;
    GxNormKind norm;
    float eps;
} GxEnterSpec;
typedef struct {
    GxCoreKind kind;
    int has_bias;
    float dropout;                     // of the probabilities
    int64_t heads, kv_heads, head_dim; // ATT
    int is_causal, has_qk_norm, reads_memory;
    double rope_theta;       // 0: no rotary positions
    GxActivation activation; // MLP
    int64_t columns;
    int64_t vocab; // EMBED, HEAD: rows of the vocabulary
    int is_tied;   // HEAD: its matrix is the embedding's
} GxCoreSpec;
typedef struct {
    GxConKind kind;
    int has_bias, has_norm;
    float dropout;
} GxConSpec;
typedef struct {
    GxEnterSpec enter;
    GxCoreSpec core;
    GxConSpec con;
    // Names as in Hugging Face's files; %d is the unit's number among its kind. ATT: q, k, v, o; MLP: gate, up, down;
    // EMBED, HEAD: the vocabulary's matrix.
    const char *norm, *matrix[GX_MAX_MATRICES];
} GxPairSpec;
typedef struct {
    const char *name; // "embed", "layer", "head"
    int64_t width;    // C
    float init_std;
    int n_pairs;
    GxPairSpec pair[GX_MAX_PAIRS];
} GxUnitSpec;

typedef struct { // a family
    const char *name;
    const GxField *fields; // of its configuration: flags, config.json, what ranks agree on
    int n_fields;
    size_t config_size;
    GxStatus (*resolve)(void *config, GxError *err); // fills in defaults, refuses what cannot be
    void (*describe)(GxContext *g, GxModel *m);      // by gx_model_kind and gx_model_unit; errors stay in g
    int64_t (*vocab_size)(const void *config);
    GxStatus (*read_config)(void *config, const char *path, GxError *err); // config.json of a Hugging Face folder
    GxStatus (*write_config)(const void *config, const char *path, GxError *err);
    // Says of a resolved configuration what others will not load of it, before it is trained. NULL: they load all.
    void (*warn)(const void *config, const GxLogger *log);
} GxFamily;

// A mode: what is split how, and what happens to ONE pair. The whole of train_tp.cu and its siblings.
typedef struct {
    const char *name;
    GxMethods methods;
    void (*pair_forward)(GxPass *p, int k, GxRows y, GxRows x);
    void (*pair_backward)(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x); // dx may be dy
} GxMode;

// ---- a model -------------------------------------------------------------------------------------------------------

typedef struct { // matrices that lie behind each other and are multiplied as one: q, k, v; gate, up
    GxTensorId first;
    int parts;
    int64_t in, out; // this rank's
} GxLinear;
typedef struct { // where a pair's tensors are
    GxTensorId norm, matrix;
    GxLinear linear[2];
} GxPair;
typedef struct {
    int kind;
    GxPair pair[GX_MAX_PAIRS];
} GxUnit;
typedef struct { // units of one description, and who has which of its heads, columns and rows of the vocabulary
    GxUnitSpec spec;
    GxShares q, kv, columns, vocab;
    int64_t q_first; // number of this rank's first query head among those that share its first K,V head
} GxUnitKind;

struct GxModel {
    const GxFamily *family;
    const void *config;
    const GxMode *mode;
    GxSplitLists lists; // as the user gave them
    GxTable table;
    GxStore store;
    GxUnitKind *kind; // [GX_MAX_KINDS]
    int kinds;
    GxUnit *unit; // [units]
    int units, units_capacity;
    int members, member;         // ranks of the tp group; this one's place in it
    GxSplit sequence;            // [T] of the largest batch, where anything is by SP
    int64_t max_T, max_B, chunk; // largest batch; rows of the head whose logits exist at once
    int64_t max_positions;       // 0: any
    float *cosine, *sine;        // [max_T, head_dim/2]; NULL: no rotary positions
    GxTensorId embedding;
};

typedef struct {               // zero: defaults
    const GxSplitLists *lists; // NULL: even
    const char *freeze;        // patterns of names; NULL: everything is trained
    GxDtype dtype;             // of weights and activations; masters, moments and gradients are fp32
    int first_unit, last_unit; // this rank's units [first, last); 0, 0: all
} GxModelOptions;

// config and mode are lent. Close it with gx_model_close, also after an error.
GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options);
void gx_model_close(GxModel *m);

// For describe: a kind of unit; the next unit of it, whose number in names is `number`.
int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec);
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number);

static inline const GxUnitSpec *gx_unit_spec(const GxModel *m, int unit) { return &m->kind[m->unit[unit].kind].spec; }
static inline int64_t gx_model_width(const GxModel *m) { return gx_unit_spec(m, 0)->width; }
static inline int64_t gx_model_vocab(const GxModel *m) { return m->family->vocab_size(m->config); }

// Takes constants for batches of up to T x B from the arena (twice: on a dry one, then on the real one).
void gx_model_take(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk);

// Draws the first weights, by name and global index: the same in every topology.
void gx_model_init(GxContext *g, GxModel *m, uint64_t seed);

// A tensor of a unit and the place where it is used; for what kinds of cores open.
typedef struct {
    const char *name; // a format for the unit's number
    int number;
    GxRole role;
    int64_t shape[2];            // [1] is 0: one dimension
    const GxShares *rows, *cols; // who has which of them; NULL: all have all
    GxLayout layout;             // of the rows of activations that meet it
    int packed;
    int alias; // 1 + the row whose other name it is; 0: none
} GxTensorUse;
GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, const GxTensorUse *use);
GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts);
void gx_core_open(GxContext *g, GxModel *m, int unit, int k, int number); // the tensors of pair k's core; cores.h

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_IMPLEMENTED)
#define GX_MODEL_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ops/memory.h"
#include "../parallel/values.h"

// ---- what is not built ---------------------------------------------------------------------------------------------

static void gx__model_refuse(GxContext *g, const GxUnitSpec *u)
{
    for (int k = 0; k < u->n_pairs; k++) {
        const GxPairSpec *s = &u->pair[k];
        const int is_att = s->core.kind == GX_CORE_ATT;
        const struct {
            int is_asked;
            const char *what;
        } missing[] = {
            {s->enter.kind == GX_ENTER_NORM && s->enter.norm == GX_LAYER_NORM, "layer norm"},
            {s->con.has_norm, "a norm behind CON"},
            {s->con.has_bias || s->core.has_bias, "biases"},
            {s->con.dropout > 0 || s->core.dropout > 0, "dropout"},
            {s->core.kind == GX_CORE_MLP && s->core.activation != GX_SWIGLU, "an activation other than SwiGLU"},
            {s->core.has_qk_norm, "norms of q and k"},
            {s->core.reads_memory, "attention to an encoder's output"},
            {is_att && !s->core.is_causal, "attention that is not causal"},
            {is_att && s->core.rope_theta <= 0, "attention without rotary positions"},
        };
        for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
            if (missing[i].is_asked)
                GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "unit \"%s\", pair %d (%s) asks for %s, which is not built",
                        u->name, k, gx_core_name(s->core.kind), missing[i].what);
    }
}

// ---- shares --------------------------------------------------------------------------------------------------------

static GxStatus gx__model_split_heads(GxContext *g, const GxModel *m, GxUnitKind *u, const GxCoreSpec *c)
{
    const GxPartList *list = &m->lists.heads;
    GxSplit s;
    u->q = gx_shares_whole(c->heads * c->head_dim);
    u->kv = gx_shares_whole(c->kv_heads * c->head_dim);
    if (m->mode->methods.att != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_split_list(&s, "tp_num_attention_heads_list", list->n ? list->part : NULL, list->n, c->heads, m->members,
                         &g->error));
    u->q = gx_shares_of(&s, m->member, c->head_dim);
    return gx_shares_kv(&u->kv, &u->q_first, &s, c->kv_heads, m->member, c->head_dim, &g->error);
}

// Who has what of one count: by TP the list's or an even part, else everything.
static GxStatus gx__model_split_count(GxContext *g, const GxModel *m, GxShares *shares, GxMethod method,
                                      const char *list_name, const GxPartList *list, int64_t count)
{
    GxSplit s;
    *shares = gx_shares_whole(count);
    if (method != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_split_list(&s, list_name, list->n ? list->part : NULL, list->n, count, m->members, &g->error));
    *shares = gx_shares_of(&s, m->member, 1);
    return GX_OK;
}

static GxStatus gx__model_split(GxContext *g, const GxModel *m, GxUnitKind *u)
{
    const GxMethods *by = &m->mode->methods;
    for (int k = 0; k < u->spec.n_pairs; k++) {
        const GxCoreSpec *c = &u->spec.pair[k].core;
        if (c->kind == GX_CORE_ATT) GX_TRY(gx__model_split_heads(g, m, u, c));
        else if (c->kind == GX_CORE_MLP)
            GX_TRY(gx__model_split_count(g, m, &u->columns, by->mlp, "tp_intermediate_size_list", &m->lists.columns,
                                         c->columns));
        else GX_TRY(gx__model_split_count(g, m, &u->vocab, by->ends, "tp_vocab_size_list", &m->lists.vocab, c->vocab));
    }
    return GX_OK;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

static int gx__model_reduce_axes(const GxTensorUse *use)
{
    const int is_split = (use->rows && use->rows->n > 1) || (use->cols && use->cols->n > 1);
    return GX_AXIS_LOSS | // other ranks of the loss see other rows of the batch
           gx_grad_tp(use->layout, is_split ? GX_USE_SPLIT : GX_USE_WHOLE);
}

GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, const GxTensorUse *use)
{
    GxTensor t = GX_ZERO;
    const GxTensorId none = {-1};
    if (gx_failed(g)) return none;
    snprintf(t.name, sizeof t.name, use->name, use->number);
    t.role = use->role;
    t.unit = unit;
    t.packed = use->packed;
    t.ndim = use->shape[1] ? 2 : 1;
    t.init = use->role == GX_ROLE_NORM ? GX_INIT_ONES : GX_INIT_NORMAL;
    t.init_std = gx_unit_spec(m, unit)->init_std;
    t.decay = use->role != GX_ROLE_NORM;
    t.reduce_axes = gx__model_reduce_axes(use);
    const GxShares *shares[2] = {use->rows, use->cols};
    for (int d = 0; d < t.ndim; d++) {
        const GxShares *s = shares[d];
        t.global_shape[d] = t.end[d] = use->shape[d];
        if (!s || s->n == 1) continue;
        t.begin[d] = gx_share_mine(s).begin, t.end[d] = gx_share_mine(s).end;
        t.split_dim = d, t.split_axes = GX_AXIS_TP, t.n_parts = s->n, t.parts = s->part;
    }
    t.has_alias = use->alias != 0;
    t.alias.index = use->alias - 1;
    if (use->alias && t.reduce_axes != m->table.row[t.alias.index].reduce_axes) { // both uses add to one gradient
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "mode %s: the gradient of %s is summed over other ranks than that of %s, to which it is tied",
                m->mode->name, t.name, m->table.row[t.alias.index].name);
        return none;
    }
    return gx_table_add(&m->table, &t, &g->error);
}

GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts)
{
    GxLinear l = {first, parts, 0, 0};
    if (first.index < 0) return l;
    const GxTensor *w = &m->table.row[first.index];
    l.in = w->end[1] - w->begin[1];
    for (int i = 0; i < parts && first.index + i < m->table.n; i++) l.out += w[i].end[0] - w[i].begin[0];
    return l;
}

int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec)
{
    gx__model_refuse(g, spec);
    if (m->kinds == GX_MAX_KINDS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "more than %d kinds of units in a model", GX_MAX_KINDS);
    if (gx_failed(g)) return 0;
    m->kind[m->kinds].spec = *spec;
    gx__model_split(g, m, &m->kind[m->kinds]);
    return m->kinds++;
}

static int gx__model_grow(GxContext *g, GxModel *m)
{
    if (m->units < m->units_capacity) return 1;
    const int capacity = m->units_capacity ? 2 * m->units_capacity : 16;
    GxUnit *grown = (GxUnit *)realloc(m->unit, (size_t)capacity * sizeof *grown);
    if (!grown) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a model of %d units", m->units + 1);
    if (!grown) return 0;
    m->unit = grown;
    m->units_capacity = capacity;
    return 1;
}

// Norms come first: the optimizer treats them alike, and neighbours go in one call.
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number)
{
    if (gx_failed(g) || !gx__model_grow(g, m)) return;
    const int unit = m->units++;
    const GxUnitSpec *u = &m->kind[kind].spec;
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    GxUnit *made = &m->unit[unit];
    memset(made, 0, sizeof *made);
    made->kind = kind;
    for (int k = 0; k < u->n_pairs; k++) {
        const GxTensorUse norm = {u->pair[k].norm, number, GX_ROLE_NORM, {u->width, 0}, NULL, NULL, con, 0, 0};
        if (u->pair[k].enter.kind == GX_ENTER_NORM) made->pair[k].norm = gx_model_tensor(g, m, unit, &norm);
    }
    for (int k = 0; k < u->n_pairs; k++) gx_core_open(g, m, unit, k, number);
}

GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options)
{
    const GxModelOptions none = GX_ZERO, *o = options ? options : &none;
    memset(m, 0, sizeof *m);
    m->family = family, m->config = config, m->mode = mode;
    m->members = gx_group_size(g, GX_AXIS_TP), m->member = gx_group_index(g, GX_AXIS_TP);
    m->embedding.index = -1;
    if (o->lists) m->lists = *o->lists;
    GX_TRY(gx_methods_check(mode->methods, &g->error));
    GX_TRY(family->resolve(config, &g->error));
    m->kind = (GxUnitKind *)calloc(GX_MAX_KINDS, sizeof *m->kind);
    if (!m->kind) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the kinds of a model's units");
    family->describe(g, m);
    GX_TRY(gx_status(g));
    if (o->freeze && o->freeze[0]) gx_table_freeze(&m->table, o->freeze, &g->error);
    GX_TRY(gx_status(g));
    const int last = o->last_unit ? o->last_unit : m->units;
    return gx_store_open(&m->store, &m->table, o->first_unit, last, o->dtype, &g->error);
}

void gx_model_close(GxModel *m)
{
    gx_store_close(&m->store);
    gx_table_close(&m->table);
    free(m->kind);
    free(m->unit);
    memset(m, 0, sizeof *m);
}

// ---- constants -----------------------------------------------------------------------------------------------------

// What the first attention asks for: all of a model rotate alike.
static const GxCoreSpec *gx__model_rotary(const GxModel *m)
{
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            if (c->kind == GX_CORE_ATT && c->rope_theta > 0) return c;
        }
    return NULL;
}

static void gx__model_fill_rope(GxContext *g, GxModel *m, const GxCoreSpec *c, int64_t T)
{
    const int64_t bytes = 4 * T * (c->head_dim / 2);
    GxArena *host = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(host);
    float *cosine = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, m->cosine, bytes);
    float *sine = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, m->sine, bytes);
    if (cosine && sine && g->device->computes) gx_rope_table(cosine, sine, T, c->head_dim, c->rope_theta);
    gx_to_device(g, m->cosine, cosine, bytes);
    gx_to_device(g, m->sine, sine, bytes);
    gx_arena_release(host, mark);
}

void gx_model_take(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk)
{
    const GxCoreSpec *rotary = gx__model_rotary(m);
    const GxPartList *list = &m->lists.sequence;
    const int is_split = gx_methods_have(m->mode->methods, GX_METHOD_SP);
    if (gx_failed(g)) return;
    if (m->max_positions && T > m->max_positions) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a sequence of %ld tokens is longer than the model's max_position_embeddings (%ld)", (long)T,
                (long)m->max_positions);
        return;
    }
    if (gx_split_list(&m->sequence, "seq_scatter_list", is_split && list->n ? list->part : NULL, list->n, T,
                      is_split ? m->members : 1, &g->error) != GX_OK)
        return;
    m->max_T = T, m->max_B = B, m->chunk = gx_min(T * B, chunk);
    m->cosine = m->sine = NULL;
    if (!rotary) return;
    m->cosine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * T * (rotary->head_dim / 2));
    m->sine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * T * (rotary->head_dim / 2));
    gx__model_fill_rope(g, m, rotary, T);
}

// ---- first weights -------------------------------------------------------------------------------------------------

static void gx__model_init_tensor(GxContext *g, const GxModel *m, int row, uint64_t seed)
{
    const GxTensor *t = &m->table.row[row];
    GxArena *host = gx_host_arena(g);
    const int64_t count = gx_tensor_count(t);
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(g->arena), host_mark = gx_arena_mark(host);
        float *values = gx_values_write(g, &m->store, GX_VALUES_WEIGHTS, row, first, n);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values, 4 * n);
        if (twin && g->device->computes) gx_tensor_init(t, seed, first, n, twin);
        gx_to_device(g, values, twin, 4 * n);
        gx_values_written(g, &m->store, GX_VALUES_WEIGHTS, row, first, n, values);
        gx_arena_release(host, host_mark);
        gx_arena_release(g->arena, mark);
        if (!g->device->computes) return; // the others take no more
    }
}

void gx_model_init(GxContext *g, GxModel *m, uint64_t seed)
{
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].has_alias && gx_store_has(&m->store, i)) gx__model_init_tensor(g, m, i, seed);
}
#endif
