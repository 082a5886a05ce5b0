// model/build.h: makes a model: its units and their tensors, from a family's description, a mode and a tuning method;
// its constants; and its initial weights.
//
//     GX_TRY(gx_model_open(&g, &m, &gx_llama, &config, &gx_tp, NULL));    // table and places; no memory
//     gx_model_allocate(&g, &m, T, B, 512);                               // constants, from the arena
//
// Opening a model fails with an error that names what its description asks for and no operation supports.
#ifndef GX_BUILD_H
#define GX_BUILD_H
#include "model.h"
GX_BEGIN

typedef struct {               // zero: defaults
    const GxSplitLists *lists; // NULL: even
    const char *freeze;        // patterns of names; NULL: everything is trained
    GxDtype dtype;             // of weights and activations; masters, moments and gradients are fp32
    GxUnits units;             // those of this rank
    const GxHeadRequest *head; // NULL: a causal language model
    // What is trained instead of the model: everything else is then frozen, except heads for labels. Its strings are
    // borrowed
    GxAdapter adapter;
    // 1 + GxQuantKind: quantizes the frozen matrices of attention and MLP; packed ones (q, k, v; gate, up) only if all
    // parts are frozen. An error if no matrix qualifies. 0: no quantization
    int quantize;
    // 1: LoRA is to be merged, so a tied head gets its own matrix if it or the embedding has LoRA; the configuration
    // then says that it is not tied
    int unties_lora;
    GxSharded sharded;            // what the ranks of dp_shard share; the context then has its mesh
    const GxPartList *shard_list; // their shares; NULL: even
    const uint8_t *again; // [layers]: GxUnit's, a decoder's behind its encoder's; NULL: nothing is computed again
    const GxCp *cp;       // which rows of a sequence each rank of cp has; NULL: all
} GxModelOptions;

// config and mode are borrowed until gx_model_close, which must also be called after an error. A head that is tied to
// the token embedding is untied if an adapter contains one of the two whole (tuned.h).
GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options);
void gx_model_close(GxModel *m);

// For a family's `describe`. gx_model_kind adds a kind of unit; gx_model_unit adds the next unit of a kind, with
// `number` in its tensors' names.
int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec);
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number);
// Adds an embedding, layers and a head, as most families have them; with a side network also its units between them.
void gx_model_chain(GxContext *g, GxModel *m, const GxUnitSpec *embed, const GxUnitSpec *layer, int64_t layers,
                    const GxUnitSpec *head);

// Makes the core of a head for the next token one for labels of a whole text, which are read from its last token, if the
// task asks for that. Fails if the task asks for another head. what: the family in the error's text, "a LLaMA".
void gx_model_choose_head(GxContext *g, const GxModel *m, GxCoreSpec *core, const char *what);

// Allocates the constants for batches of up to T x B. Call it twice: with a dry arena, then with the real one.
void gx_model_allocate(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk);

// Initializes the weights. Each value depends on its tensor's name and its global index, so all topologies get the
// same. Quantized matrices are not initialized: they come from a file.
void gx_model_init(GxContext *g, GxModel *m, uint64_t seed);
// The same for this rank's part of one tensor that is not quantized. Does nothing if the rank has neither it nor a
// copy.
void gx_model_init_tensor(GxContext *g, const GxModel *m, int row, uint64_t seed);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BUILD_IMPLEMENTED)
#define GX_BUILD_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ops/memory.h"
#include "../parallel/values.h"
#include "con.h"
#include "cores.h"
#include "enter.h"
#include "lora.h"
#include "relative.h"
#include "side.h"
#include "stage_shares.h"
#include "tuned.h"
#include "tuners.h"
#include "unit_tensors.h"

// ---- what is not supported -----------------------------------------------------------------------------------------

static void gx__model_refuse(GxContext *g, const GxModel *m, const GxUnitSpec *u)
{
    for (int k = 0; k < u->n_pairs; k++) {
        const GxPairSpec *s = &u->pair[k];
        const int is_add = s->con.kind == GX_CON_ADD;
        const struct {
            int is_asked;
            const char *what;
        } missing[] = {
            {s->con.norms_result && (s->con.has_norm || s->con.dropout > 0 || !is_add),
             "a norm of the core's result in a CON with dropout, with another norm, or without an addition"},
            {is_add && s->con.has_norm && k + 1 < u->n_pairs && u->pair[k + 1].enter.kind == GX_ENTER_NORM,
             "a norm after CON with a norm before the next core"},
            {s->core.kind == GX_CORE_ATT && s->core.relative.buckets && m->cp.n > 1,
             "biases by distance with context parallelism"},
            {s->core.reads_memory && m->cp.n > 1, "attention to an encoder's output with context parallelism"},
            {s->core.reads_memory && s->core.has_qk_norm, "norms of heads that attend to an encoder's output"},
            {s->core.reads_memory && s->core.rope.theta > 0, "RoPE in attention to an encoder's output"},
        };
        for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
            if (missing[i].is_asked)
                GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "unit \"%s\", pair %d (%s) asks for %s, which is not supported",
                        u->name, k, gx_core_name(s->core.kind), missing[i].what);
    }
}

// ---- shares --------------------------------------------------------------------------------------------------------

// In a ragged mesh what is split is so on all ranks, a group of one among them.
static GxShares gx__model_shares(const GxModel *m, const GxSplit *s, int64_t elements)
{
    GxShares shares = gx_shares_of(s, m->member, elements);
    shares.is_split = m->widest > 1;
    return shares;
}

static GxStatus gx__model_split_heads(GxContext *g, const GxModel *m, GxUnitKind *u, const GxCoreSpec *c)
{
    GxSplit s;
    u->heads = gx_shares_whole(c->heads);
    u->q = gx_shares_whole(c->heads * c->head_dim);
    u->kv = gx_shares_whole(c->kv_heads * c->head_dim);
    if (m->mode->methods.att != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_stage_split(g, &s, "tp_num_attention_heads_list", NULL, &m->lists.heads, c->heads));
    u->heads = gx__model_shares(m, &s, 1);
    u->q = gx__model_shares(m, &s, c->head_dim);
    GX_TRY(gx_shares_kv(&u->kv, &u->q_first, &s, c->kv_heads, m->member, c->head_dim, &g->error));
    u->kv.is_split = u->q.is_split;
    return GX_OK;
}

// Splits a side layer's MLP in the proportions of the list of the model's columns.
static GxStatus gx__model_split_side_columns(GxContext *g, const GxModel *m, GxUnitKind *u, int64_t columns)
{
    const GxPartList *list = &m->lists.columns, mine = gx_stage_list(g, list, gx_group_index(g, GX_AXIS_PP));
    int64_t total = 0;
    GxSplit s;
    u->columns = gx_shares_whole(columns);
    if (m->mode->methods.mlp != GX_METHOD_TP) return GX_OK;
    if (columns < m->widest)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the MLP of the side network has %ld columns, fewer than the %d ranks among which they are "
                       "split; use a smaller side_reduction_factor",
                       (long)columns, m->widest);
    for (int i = 0; i < mine.n; i++) total += mine.part[i];
    GX_TRY(gx_stage_split(g, &s, "tp_intermediate_size_list", NULL, list, list->n ? total : columns));
    s = gx_split_like(&s, columns);
    u->columns = gx__model_shares(m, &s, 1);
    return GX_OK;
}

// Splits a count: with TP as the list says, or evenly without a list; otherwise every rank has all of it.
static GxStatus gx__model_split_count(GxContext *g, const GxModel *m, GxShares *shares, GxMethod method,
                                      const char *list_name, const GxPartList *list, int64_t count)
{
    GxSplit s;
    *shares = gx_shares_whole(count);
    if (method != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_stage_split(g, &s, list_name, NULL, list, count));
    *shares = gx__model_shares(m, &s, 1);
    return GX_OK;
}

static GxStatus gx__model_split(GxContext *g, const GxModel *m, GxUnitKind *u)
{
    const GxMethods *by = &m->mode->methods;
    for (int k = 0; k < u->spec.n_pairs; k++) {
        const GxCoreSpec *c = &u->spec.pair[k].core;
        if (c->kind == GX_CORE_ATT || c->relative.buckets) GX_TRY(gx__model_split_heads(g, m, u, c));
        if (c->kind == GX_CORE_ATT) continue;
        if (c->kind == GX_CORE_MLP && u->spec.side) GX_TRY(gx__model_split_side_columns(g, m, u, c->columns));
        else if (c->kind == GX_CORE_MLP)
            GX_TRY(gx__model_split_count(g, m, &u->columns, by->mlp, "tp_intermediate_size_list", &m->lists.columns,
                                         c->columns));
        else if (c->kind == GX_CORE_EMBED || c->kind == GX_CORE_HEAD)
            GX_TRY(gx__model_split_count(g, m, &u->vocab, by->ends, "tp_vocab_size_list", &m->lists.vocab, c->vocab));
    }
    return GX_OK;
}

// ---- units ---------------------------------------------------------------------------------------------------------

int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec)
{
    gx__model_refuse(g, m, spec);
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

static GxPair gx__model_no_tensors(void)
{
    GxPair p = GX_ZERO;
    const GxTensorId none = gx_no_tensor();
    const GxLinear nothing = {none, 0, 0, 0, none, NULL, 0};
    p.norm.weight = p.norm.bias = p.con_norm.weight = p.con_norm.bias = none;
    p.qk_norm[0] = p.qk_norm[1] = p.prompt = p.gate = none;
    p.matrix = p.con_bias = p.positions = p.types = p.relative = none;
    p.enter = p.linear[0] = p.linear[1] = p.adapter[0] = p.adapter[1] = nothing;
    return p;
}

// Notes that the matrices of a linear, or its biases, are one in files.
static void gx__model_stack(GxModel *m, GxTensorId first, int parts, const char *name, int number)
{
    char module[GX_MODULE];
    int64_t rows = 0;
    snprintf(module, sizeof module, name, number);
    for (int i = 0; i < parts; i++) {
        GxTensor *t = &m->table.row[first.index + i];
        snprintf(t->stack, sizeof t->stack, "%s.%s", module, t->role == GX_ROLE_BIAS ? "bias" : "weight");
        t->stack_first = rows;
        rows += t->global_shape[0];
    }
    for (int i = 0; i < parts; i++) m->table.row[first.index + i].stack_rows = rows;
}

// How the tensors of a core's linears are in files, if not each under its own name, row by row.
static void gx__model_set_files(GxModel *m, int unit, int k, int number)
{
    const GxCoreSpec *c = &gx_unit_spec(m, unit)->pair[k].core;
    for (int i = 0; i < 2; i++) {
        const GxLinear *l = &m->unit[unit].pair[k].linear[i];
        if (i == 0 && c->stack) gx__model_stack(m, l->first, l->parts, c->stack, number);
        if (i == 0 && c->stack && l->bias.index >= 0) gx__model_stack(m, l->bias, l->parts, c->stack, number);
        for (int part = 0; part < l->parts; part++)
            m->table.row[l->first.index + part].is_transposed = c->is_transposed;
    }
}

// Norms come first: the optimizer treats them all alike and updates adjacent tensors in one call.
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number)
{
    if (gx_failed(g) || !gx__model_grow(g, m)) return;
    const int unit = m->units++;
    const GxUnitSpec *u = &m->kind[kind].spec;
    GxUnit *made = &m->unit[unit];
    memset(made, 0, sizeof *made);
    made->gate = gx_no_tensor();
    made->kind = kind, made->number = number;
    made->first_row = m->table.n;
    if (unit > 0) {
        const GxSidePlace before = gx_unit_spec(m, unit - 1)->side;
        made->has_side = before == GX_SIDE_NONE ? made[-1].has_side : before != GX_SIDE_LAST;
    }
    for (int k = 0; k < u->n_pairs; k++) {
        made->pair[k] = gx__model_no_tensors();
        gx_enter_open(g, m, unit, k, number);
        gx_con_open(g, m, unit, k, number);
    }
    for (int k = 0; k < u->n_pairs; k++) {
        gx_core_open(g, m, unit, k, number);
        if (!gx_failed(g) && u->side == GX_SIDE_NONE) gx__model_set_files(m, unit, k, number);
    }
    for (int i = 0; i < m->tuners; i++)
        if (m->tuner[i].open) m->tuner[i].open(g, m, unit, number);
    m->unit[unit].rows = m->table.n - m->unit[unit].first_row;
}

void gx_model_chain(GxContext *g, GxModel *m, const GxUnitSpec *embed, const GxUnitSpec *layer, int64_t layers,
                    const GxUnitSpec *head)
{
    const int has_side = m->adapter.side.reduction > 0;
    GxUnitSpec embed_spec = *embed, layer_spec = *layer;
    int side[GX_SIDE_PLACES] = GX_ZERO;
    if (has_side) gx_side_still(&embed_spec), gx_side_still(&layer_spec);
    const int embed_kind = gx_model_kind(g, m, &embed_spec), layer_kind = gx_model_kind(g, m, &layer_spec),
              head_kind = gx_model_kind(g, m, head);
    for (int place = GX_SIDE_FIRST; has_side && place < GX_SIDE_PLACES; place++) {
        const GxUnitSpec spec = gx_side_unit(g, m, layer, (GxSidePlace)place);
        side[place] = gx_model_kind(g, m, &spec);
    }
    gx_model_unit(g, m, embed_kind, 0);
    if (has_side) gx_model_unit(g, m, side[GX_SIDE_FIRST], 0);
    for (int l = 0; l < layers; l++) {
        gx_model_unit(g, m, layer_kind, l);
        if (has_side) gx_model_unit(g, m, side[l + 1 < layers ? GX_SIDE_LAYER : GX_SIDE_LAST], l);
    }
    gx_model_unit(g, m, head_kind, 0);
}

void gx_model_choose_head(GxContext *g, const GxModel *m, GxCoreSpec *core, const char *what)
{
    const GxHeadRequest *request = &m->head;
    if (request->kind == GX_HEAD_CAUSAL) return;
    if (request->kind != GX_HEAD_LABELS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s has a head for the next token or for labels; this task asks for %s",
                what, gx_head_name(request->kind));
    core->kind = GX_CORE_LABELS, core->vocab = request->labels, core->loss = request->loss, core->is_tied = 0;
    core->matrix[0] = "score";
}

static int gx__model_quantize_linear(GxModel *m, const GxLinear *l, int kind)
{
    GxTensor *t = &m->table.row[l->first.index];
    for (int i = 0; i < l->parts; i++)
        if (!t[i].frozen || t[i].is_adapter) return 0; // an adapter's file has them unquantized
    for (int i = 0; i < l->parts; i++) t[i].quantized = kind;
    return l->parts;
}

static GxStatus gx__model_quantize(GxModel *m, int kind, GxError *err)
{
    int n = 0;
    for (int i = 0; kind && i < m->units; i++)
        for (int k = 0; k < gx_unit_spec(m, i)->n_pairs; k++)
            for (int j = 0; j < 2; j++) {
                const GxLinear *l = &m->unit[i].pair[k].linear[j];
                const GxCoreKind core = gx_unit_spec(m, i)->pair[k].core.kind;
                if (core == GX_CORE_ATT || core == GX_CORE_MLP) n += gx__model_quantize_linear(m, l, kind);
            }
    if (n || !kind) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "nothing to quantize: no matrix of attention or MLP is frozen (q, k and v are packed in one, and so are gate "
        "and up; all parts of a pack must be frozen): freeze some (--freeze), or train an adapter (--tuning lora)");
}

// The memory and what embeds the target are no layers.
static void gx__model_mark_again(GxModel *m, const uint8_t *again)
{
    for (int u = 1; u < gx_min(m->units - 1, GX_MAX_UNITS); u++) { // more units are refused later
        const int encoder_layers = m->memory && u > m->memory ? m->memory - 1 : 0;
        if (!m->memory || (u != m->memory && u != m->memory + 1))
            m->unit[u].again = again[encoder_layers + m->unit[u].number];
    }
}

static GxStatus gx__model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                               const GxModelOptions *options)
{
    const GxModelOptions none = GX_ZERO, *o = options ? options : &none;
    memset(m, 0, sizeof *m);
    m->family = family, m->config = config, m->mode = mode;
    m->members = gx_group_size(g, GX_AXIS_TP), m->member = gx_group_index(g, GX_AXIS_TP);
    m->widest = g->mesh ? gx_mesh_widest(g->mesh) : 1;
    m->embedding.index = m->relative[0].index = m->relative[1].index = -1;
    if (o->lists) m->lists = *o->lists;
    if (o->cp) m->cp = *o->cp;
    if (o->head) m->head = *o->head;
    m->adapter = o->adapter;
    GX_TRY(gx_methods_check(mode->methods, &g->error));
    GX_TRY(family->resolve(config, &g->error));
    GX_TRY(gx_tuners_open(m, &g->error));
    m->kind = (GxUnitKind *)calloc(GX_MAX_KINDS, sizeof *m->kind);
    if (!m->kind) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the kinds of a model's units");
    family->describe(g, m);
    GX_TRY(gx_status(g));
    if (o->again) gx__model_mark_again(m, o->again);
    GX_TRY(gx_tuned_freeze(m, &g->error));
    if (o->freeze && o->freeze[0]) gx_table_freeze(&m->table, o->freeze, &g->error);
    GX_TRY(gx_status(g));
    GX_TRY(gx__model_quantize(m, o->quantize, &g->error));
    m->table.units = m->units; // a head for vectors has no tensor to count it by
    GX_TRY(gx_store_open(&m->store, &m->table, o->units, o->dtype, &g->error));
    return gx_shards_open(g, &m->store, o->sharded, o->shard_list);
}

// The configuration's flag that says whether the head is tied; NULL: it has none.
static int *gx__model_tie(const GxFamily *family, void *config)
{
    const GxField *f = gx_field_find(family->fields, family->n_fields, "tie_word_embeddings");
    return f ? (int *)gx_field_at(f, config) : NULL;
}

// If the head has to be untied, the model is opened a second time. Both tables have the same rows.
GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options)
{
    GX_TRY(gx__model_open(g, m, family, config, mode, options));
    int tied = gx_tuned_tied_head(m), *tie = gx__model_tie(family, config);
    const int embedding = m->embedding.index, is_tuned = tied >= 0;
    if (tied < 0 && options && options->unties_lora) tied = gx_lora_tied_head(m);
    if (tied >= 0 && (!tie || m->memory))
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "%s alone is to be trained, but encoder, decoder and head of this %s share it; leave it out",
                       m->table.row[tied].name, family->name);
    if (tied < 0) return GX_OK;
    gx_model_close(m);
    const int was = *tie;
    *tie = 0;
    const GxStatus status = gx__model_open(g, m, family, config, mode, options);
    if (is_tuned) *tie = was; // the configuration still describes the model's folder
    if (status == GX_OK) m->table.row[tied].copies = 1 + embedding;
    return status;
}

void gx_model_close(GxModel *m)
{
    gx_store_close(&m->store);
    gx_table_close(&m->table);
    free(m->kind);
    free(m->unit);
    free(m->tuner);
    memset(m, 0, sizeof *m);
}

// ---- constants -----------------------------------------------------------------------------------------------------

// The first attention with RoPE, or with local_rope, or NULL. All attentions of the backbone use the same RoPE, and so
// do all of a side network.
static const GxCoreSpec *gx__model_rotary(const GxModel *m, int is_side, int is_local)
{
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            const GxRope *r = is_local ? &c->local_rope : &c->rope;
            if (is_side == (m->kind[i].spec.side != GX_SIDE_NONE) && c->kind == GX_CORE_ATT && r->theta > 0) return c;
        }
    return NULL;
}

static void gx__model_allocate_rope(GxContext *g, GxRopeTable *table, const GxCoreSpec *c, int is_local, int64_t T)
{
    const int64_t bytes = c ? 4 * T * (c->head_dim / 2) : 0;
    table->cosine = table->sine = NULL;
    if (!c) return;
    table->cosine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
    table->sine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
    GxArena *host = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(host);
    float *cosine = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, table->cosine, bytes);
    float *sine = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, table->sine, bytes);
    if (cosine && sine && g->device->computes)
        gx_rope_table(cosine, sine, T, c->head_dim, is_local ? &c->local_rope : &c->rope);
    gx_to_device(g, table->cosine, cosine, bytes);
    gx_to_device(g, table->sine, sine, bytes);
    gx_arena_release(host, mark);
}

void gx_model_allocate(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk)
{
    const int is_split = gx_methods_have(m->mode->methods, GX_METHOD_SP);
    const int64_t whole = m->cp.n > 1 ? gx_split_total(&m->cp.rows) : T, positions = gx_max(whole, m->cached);
    if (gx_failed(g)) return;
    if (m->max_positions && positions > m->max_positions) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a sequence of %ld tokens is longer than the %ld positions that the model has for texts (%s)%s%s%s",
                (long)positions, (long)m->max_positions, gx_model_positions_name(m),
                whole > m->max_positions ? "; set --seq_len to at most that, or --" : "",
                whole > m->max_positions ? gx_model_positions_name(m) : "",
                whole > m->max_positions ? " of a new model to more" : "");
        return;
    }
    if (m->memory && !m->max_source_T) m->max_source_T = T;
    if (m->max_positions && m->max_source_T > m->max_positions) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a source of %ld tokens is longer than the model's max_position_embeddings (%ld); set "
                "--max_source_length to at most that, or --max_position_embeddings of a new model to more",
                (long)m->max_source_T, (long)m->max_positions);
        return;
    }
    if (is_split && m->memory && m->max_source_T < m->members) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a source of %ld tokens cannot be split among %d ranks, since each needs at least 1; use a larger "
                "--max_source_length, or at most %ld rank%s",
                (long)m->max_source_T, m->members, (long)m->max_source_T, gx_text_s(m->max_source_T));
        return;
    }
    m->sequence = gx_split_even(T, 1);
    if (is_split && gx_stage_split(g, &m->sequence, "seq_scatter_list", "seq_len", &m->lists.sequence, whole) != GX_OK)
        return;
    for (int r = 0; r < m->cp.n && is_split; r++) // the same on all ranks
        if (gx_split_part(&m->cp.rows, r) < m->sequence.n) {
            GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                    "seq_len: rank %d of cp has %ld of %ld rows, which cannot be split among the %d ranks of tp; use "
                    "longer sequences, another --cp_list or fewer ranks",
                    r, (long)gx_split_part(&m->cp.rows, r), (long)whole, m->sequence.n);
            return;
        }
    if (is_split && T != whole) m->sequence = gx_split_like(&m->sequence, T); // as they divide whole sequences
    m->max_T = T, m->max_B = B, m->chunk = gx_min(T * B, chunk);
    for (int is_side = 0; is_side < 2; is_side++)
        for (int is_local = 0; is_local < 2; is_local++)
            gx__model_allocate_rope(g, &m->rope[is_side][is_local], gx__model_rotary(m, is_side, is_local), is_local,
                                    positions);
    gx_relative_allocate(g, m);
}

// ---- initial weights -----------------------------------------------------------------------------------------------

void gx_model_init_tensor(GxContext *g, const GxModel *m, int row, uint64_t seed)
{
    const GxTensor *t = &m->table.row[row];
    GxArena *host = gx_host_arena(g);
    const int64_t count = gx_tensor_count(t);
    const int here = gx_store_holder(&m->store, row);
    if (here < 0) return;
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(g->arena), host_mark = gx_arena_mark(host);
        float *values = gx_values_write(g, &m->store, GX_VALUES_WEIGHTS, here, first, n);
        float *host_copy = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n);
        if (host_copy && g->device->computes) gx_tensor_init(t, seed, first, n, host_copy);
        gx_to_device(g, values, host_copy, 4 * n);
        gx_values_written(g, &m->store, GX_VALUES_WEIGHTS, here, first, n, values);
        gx_arena_release(host, host_mark);
        gx_arena_release(g->arena, mark);
        if (!g->device->computes) return; // a plan needs one piece only: no later one takes more memory
    }
}

void gx_model_init(GxContext *g, GxModel *m, uint64_t seed)
{
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].has_alias && !m->table.row[i].quantized) gx_model_init_tensor(g, m, i, seed);
}
#endif
