// model/tuned.h: what a tuning method that adds tensors to a model (lora.h, bottleneck.h, side.h, prompt.h) trains:
// these, the modules that are to be trained whole besides, norms, where the method says so (scale.h), heads of labels,
// which are new with their task, and what pools the text for them. All else is frozen. What is trained is the adapter:
// GxTensor.is_adapter.
#ifndef GX_MODEL_TUNED_H
#define GX_MODEL_TUNED_H
#include "model.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_TUNED_IMPLEMENTED)
#define GX_MODEL_TUNED_IMPLEMENTED
#include <string.h>

static const char *gx__tuned_trainable(const GxModel *m)
{
    if (m->side.reduction > 0) return m->side.trainable;
    if (m->prompt.len > 0) return m->prompt.trainable;
    return m->lora.r > 0 ? m->lora.trainable : m->bottleneck.trainable;
}

// The bias of the matrix in the row before: PEFT's adapters have none of linears.
static int gx__tuned_is_bias(const GxModel *m, int row)
{
    return row > 0 && m->table.row[row].role == GX_ROLE_BIAS && m->table.row[row - 1].has_lora;
}

// Of "model.norm.weight" and "score.bias": what is before the last dot.
static int64_t gx__tuned_module(const GxTensor *t)
{
    const char *dot = strrchr(t->name, '.');
    return dot ? dot - t->name : 0;
}

static int gx__tuned_ends_with(const GxTensor *t, const char *name, int64_t n)
{
    const int64_t module = gx__tuned_module(t);
    return !t->is_added && n <= module && !strncmp(t->name + module - n, name, (size_t)n);
}

static int gx__tuned_is_trainable(const GxModel *m, const GxTensor *t)
{
    for (const char *p = gx__tuned_trainable(m); p && *p; p += *p == ',') {
        const int64_t n = (int64_t)strcspn(p, ",");
        if (gx__tuned_ends_with(t, p, n)) return 1;
        p += n;
    }
    return 0;
}

static int gx__tuned_is_tied(const GxModel *m, const GxTensor *t)
{
    int tied = t->has_alias;
    for (int i = 0; i < m->table.n; i++)
        tied |= m->table.row[i].has_alias && &m->table.row[m->table.row[i].alias.index] == t;
    return tied;
}

// Of one name in the list: it has n characters.
static GxStatus gx__tuned_check_name(const GxModel *m, const char *name, int n, GxError *err)
{
    int found = 0;
    for (int i = 0; i < m->table.n; i++) {
        const GxTensor *t = &m->table.row[i];
        if (!gx__tuned_ends_with(t, name, n)) continue;
        found++;
        if (gx__tuned_is_tied(m, t))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "the trainable module \"%.*s\" is tied to another (tie_word_embeddings), which a file of an "
                           "adapter cannot say; leave it out",
                           n, name);
        if (t->has_lora)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s is to have LoRA and to be trained whole: leave \"%.*s\" out of one of the two lists",
                           t->name, n, name);
    }
    if (found || m->lora.is_of_peft) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the trainable module \"%.*s\" is none of the model's; they are called like %s", n, name,
                   m->table.row[0].name);
}

static GxStatus gx__tuned_check_trainable(const GxModel *m, GxError *err)
{
    for (const char *p = gx__tuned_trainable(m); p && *p; p += *p == ',') {
        const int n = (int)strcspn(p, ",");
        GX_TRY(gx__tuned_check_name(m, p, n, err));
        p += n;
    }
    return GX_OK;
}

static int gx__tuned_is_adapter(const GxModel *m, int row)
{
    const GxTensor *t = &m->table.row[row];
    const int is_of_labels = gx_unit_spec(m, t->unit)->pair[t->pair].core.kind == GX_CORE_LABELS;
    if (m->prompt.is_v2 && t->role == GX_ROLE_NORM) return 1;
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
        t->frozen = !t->is_adapter;
    }
    GX_TRY(gx_lora_check_targets(m, err));
    GX_TRY(gx_prompt_check_frozen(m, err));
    return gx__tuned_check_trainable(m, err);
}
#endif
