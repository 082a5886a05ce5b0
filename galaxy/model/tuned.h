// model/tuned.h: which tensors are trained and which are frozen by a tuning method that adds tensors to a model
// (lora.h, bottleneck.h, side.h, prompt.h). It trains:
//     - the added tensors
//     - the modules that the user wants trained whole
//     - all norms, if the method says so (scale.h)
//     - a head for labels, which is new with its task, and its pooler
// These make up the adapter (GxTensor.is_adapter); all others are frozen.
//
// The name of a module to be trained whole stands for every module that ends with it: a linear or a norm, or a module
// that contains some, such as "mlp".
//
// If the head is tied to the token embedding (tie_word_embeddings) and one of the two is trained whole, they are
// separated: that one belongs to the adapter and the other to the model, as in peft. Files still have one tensor for
// both (GxTensor.copies).
#ifndef GX_MODEL_TUNED_H
#define GX_MODEL_TUNED_H
#include "model.h"
GX_BEGIN

// Freezes what the model's tuning method does not train. An error if a name matches no module.
GxStatus gx_tuned_freeze(GxModel *m, GxError *err);
// The table row of a head that is tied to the token embedding, if one of the two is trained whole; -1: none.
int gx_tuned_tied_head(const GxModel *m);
// Call it after the weights are loaded. An error if an adapter tensor that is frozen at 0 stops the gradient of a
// trained one; a warning if it is frozen at its small initial values.
GxStatus gx_tuned_check_frozen(GxContext *g, const GxModel *m);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_TUNED_IMPLEMENTED)
#define GX_MODEL_TUNED_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../comm/comm.h"
#include "../ops/memory.h"
#include "../parallel/values.h"
#include "tuner.h"

static const char *gx__tuned_trainable(const GxModel *m)
{
    return m->tuners && m->tuner[0].trainable ? m->tuner[0].trainable(m) : NULL;
}

// 1: the tuning method trains this tensor, which is the model's own.
static int gx__tuned_is_trained(const GxModel *m, const GxTensor *t)
{
    int is = 0;
    for (int i = 0; i < m->tuners; i++) is |= m->tuner[i].trains && m->tuner[i].trains(m, t);
    return is;
}

// 1: it is the bias of the matrix in the row before, which has LoRA: PEFT's adapters do not contain biases of linears.
static int gx__tuned_is_bias(const GxModel *m, int row)
{
    return row > 0 && m->table.row[row].role == GX_ROLE_BIAS && m->table.row[row - 1].has_lora;
}

// The length of the module's name: of "model.norm" in "model.norm.weight".
static int64_t gx__tuned_module(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot - name : 0;
}

// 1: the name of its module, or of one that contains it, ends with `name`.
static int gx__tuned_ends_with(const GxTensor *t, const char *name, int64_t n)
{
    const char *whole = gx_tensor_file_name(t);
    if (t->is_added || n == 0) return 0;
    for (int64_t end = gx__tuned_module(whole); end >= n; end--)
        if (whole[end] == '.' && !strncmp(whole + end - n, name, (size_t)n)) return 1;
    return 0;
}

static int gx__tuned_is_trainable(const GxModel *m, const GxTensor *t)
{
    const char *names = gx__tuned_trainable(m);
    GxTextItem name;
    while (gx_text_next(&names, &name))
        if (gx__tuned_ends_with(t, name.at, name.n)) return 1;
    return 0;
}

int gx_tuned_tied_head(const GxModel *m)
{
    for (int i = 0; i < m->table.n && m->embedding.index >= 0; i++) {
        const GxTensor *t = &m->table.row[i];
        if (t->has_alias && t->alias.index == m->embedding.index &&
            (t->is_named || m->table.row[m->embedding.index].is_named))
            return i;
    }
    return -1;
}

// Checks one name, of n characters, in the list of trainable modules.
static GxStatus gx__tuned_check_name(const GxModel *m, const char *name, int n, GxError *err)
{
    int found = 0;
    for (int i = 0; i < m->table.n; i++) {
        const GxTensor *t = &m->table.row[i];
        if (!gx__tuned_ends_with(t, name, n)) continue;
        found++;
        if (t->has_alias && t->alias.index != m->embedding.index)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "the trainable module \"%.*s\" contains %s, which is another name of %s here and cannot be "
                           "trained apart from it; leave it out",
                           n, name, t->name, m->table.row[t->alias.index].name);
        if (t->has_lora)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s is to have LoRA and to be trained whole; leave \"%.*s\" out of one of the two lists",
                           t->name, n, name);
    }
    if (found || m->adapter.is_read) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the trainable module \"%.*s\" matches no module of the model; their names are like %s", n, name,
                   m->table.row[0].name);
}

static GxStatus gx__tuned_check_trainable(const GxModel *m, GxError *err)
{
    const char *names = gx__tuned_trainable(m);
    GxTextItem name;
    while (gx_text_next(&names, &name)) GX_TRY(gx__tuned_check_name(m, name.at, (int)name.n, err));
    return GX_OK;
}

static int gx__tuned_is_adapter(const GxModel *m, int row)
{
    const GxTensor *t = &m->table.row[row];
    const int is_of_labels = gx_unit_spec(m, t->unit)->pair[t->pair].core.kind == GX_CORE_LABELS;
    if (gx__tuned_is_trained(m, t)) return 1;
    if (t->is_added || gx__tuned_is_trainable(m, t)) return 1;
    return is_of_labels && t->role != GX_ROLE_NORM && !t->has_lora && !gx__tuned_is_bias(m, row);
}

GxStatus gx_tuned_freeze(GxModel *m, GxError *err)
{
    if (!gx_model_has_adapter(m)) return GX_OK;
    for (int i = 0; i < m->table.n; i++) {
        GxTensor *t = &m->table.row[i];
        t->is_named = gx__tuned_is_trainable(m, t);
        t->is_adapter = gx__tuned_is_adapter(m, i);
        t->frozen = t->has_alias ? m->table.row[t->alias.index].frozen : !t->is_adapter; // under all its names
    }
    for (int i = 0; i < m->tuners; i++)
        if (m->tuner[i].check_trained) GX_TRY(m->tuner[i].check_trained(m, err));
    return gx__tuned_check_trainable(m, err);
}

// ---- adapter tensors that --freeze freezes -------------------------------------------------------------------------

// A trained tensor whose gradient has this tensor as a factor, and so is 0 if this tensor is 0; -1: none.
static int gx__tuned_through(const GxModel *m, int row)
{
    const int other = m->tuners && m->tuner[0].through ? m->tuner[0].through(m, row) : -1;
    return other >= 0 && !m->table.row[other].frozen ? other : -1;
}

// The largest absolute value in this rank's part of the tensor; 0 on a device that does not compute.
static double gx__tuned_largest(GxContext *g, const GxModel *m, int row)
{
    GxArena *host = gx_host_arena(g);
    const int64_t count = gx_tensor_count(&m->table.row[row]);
    double largest = 0;
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(g->arena), host_mark = gx_arena_mark(host);
        float *values = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, row, first, n);
        float *host_copy = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n);
        gx_to_host(g, host_copy, values, 4 * n);
        for (int64_t i = 0; i < n && !gx_failed(g); i++) largest = fmax(largest, fabs((double)host_copy[i]));
        gx_arena_release(host, host_mark);
        gx_arena_release(g->arena, mark);
    }
    return largest;
}

// A tensor whose absolute values are at most this still has its small initial values.
static double gx__tuned_small(const GxModel *m, int row)
{
    return m->tuners && m->tuner[0].smallest ? m->tuner[0].smallest(m, row) : 0;
}

static void gx__tuned_tell_frozen(GxContext *g, const GxModel *m, int row, double largest)
{
    const GxTensor *t = &m->table.row[row], *through = &m->table.row[gx__tuned_through(m, row)];
    if (largest == 0)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s is frozen at 0, so %s, whose gradient passes through it, would never learn; take %s out of "
                "--freeze, or freeze both",
                t->name, through->name, t->name);
    else
        gx_log(&g->log, GX_LOG_WARNING,
               "%s is frozen at its small random initial values (at most %.2g), so what %s learns would have almost no "
               "effect; take it out of --freeze",
               t->name, largest, through->name);
}

// 1: a frozen adapter tensor that is a factor of a trained one's gradient.
static int gx__tuned_is_passed(const GxModel *m, int row)
{
    const GxTensor *t = &m->table.row[row];
    return t->frozen && t->is_adapter && gx__tuned_through(m, row) >= 0;
}

GxStatus gx_tuned_check_frozen(GxContext *g, const GxModel *m)
{
    double *largest = (double *)calloc((size_t)m->table.n + 1, sizeof *largest);
    int worst = -1; // the one to report: the first that is 0, otherwise the first that is small
    if (!largest) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %d tensors", m->table.n);
    for (int i = 0; i < m->table.n && !gx_failed(g); i++)
        if (gx__tuned_is_passed(m, i) && gx_store_has(&m->store, i)) largest[i] = gx__tuned_largest(g, m, i);
    gx_at(g, -1, "frozen");
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, largest, m->table.n, GX_F64); // in a failed context: tells the other ranks
    for (int i = 0; i < m->table.n && !gx_failed(g); i++) {
        if (!gx__tuned_is_passed(m, i) || largest[i] > gx__tuned_small(m, i)) continue;
        if (worst < 0 || (largest[worst] > 0 && largest[i] == 0)) worst = i;
    }
    if (worst >= 0 && g->rank == 0) gx__tuned_tell_frozen(g, m, worst, largest[worst]);
    if (worst >= 0) gx_barrier(g, GX_AXIS_ALL); // in a failed context: tells the other ranks
    free(largest);
    return gx_status(g);
}
#endif
