// model/lora_targets.h: which linears have LoRA (lora.h), by lists of names or by patterns, as in peft (tuning_spec.h,
// GxLora).
#ifndef GX_LORA_TARGETS_H
#define GX_LORA_TARGETS_H
#include "model.h"
GX_BEGIN

// 1: the matrix has LoRA. by_default: the result if no target is named.
int gx_lora_is_target(const GxModel *m, const GxTensor *t, int by_default);
int gx_lora_is_excluded(const GxModel *m, const GxTensor *t); // by GxLora.excluded
// The name that peft has for a matrix's module: for GX_HEAD_VECTORS the one in transformers' model without a head.
void gx_lora_module(const GxModel *m, const GxTensor *t, char module[GX_NAME]);
// An error if a target matches nothing. Called when all tensors are there.
GxStatus gx_lora_check_targets(const GxModel *m, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LORA_TARGETS_IMPLEMENTED)
#define GX_LORA_TARGETS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../base/text.h"

// 1: `name` is the module's whole name, or the last components of it.
static int gx__lora_is_called(const char *module, int64_t n, const char *name, int64_t name_n)
{
    if (name_n > n || strncmp(module + n - name_n, name, (size_t)name_n)) return 0;
    return n == name_n || module[n - name_n - 1] == '.';
}

// The name by which peft knows a matrix, and the length of its module's.
static const char *gx__lora_name(const GxTensor *t) { return gx_tensor_file_name(t); }
static int64_t gx__lora_module(const GxTensor *t)
{
    return (int64_t)strlen(gx__lora_name(t)) - (int64_t)strlen(".weight");
}

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
    const char *whole = gx__lora_name(t), *dot = m->head.kind == GX_HEAD_VECTORS ? strchr(whole, '.') : NULL,
               *name = dot ? dot + 1 : whole;
    snprintf(module, GX_NAME, "%.*s", (int)(whole + gx__lora_module(t) - name), name);
}

static int gx__lora_is_found(const GxModel *m, const GxTensor *t)
{
    char module[GX_NAME];
    gx_lora_module(m, t, module);
    return m->adapter.lora.finds(m->adapter.lora.targets, module);
}

int gx_lora_is_excluded(const GxModel *m, const GxTensor *t)
{
    const GxLora *lora = &m->adapter.lora;
    char module[GX_NAME];
    if (!lora->excluded || !lora->excluded[0]) return 0;
    if (!lora->excludes) return gx__lora_is_listed(gx__lora_name(t), gx__lora_module(t), lora->excluded);
    gx_lora_module(m, t, module);
    return lora->excludes(lora->excluded, module);
}

// The layer number in a module's name: the number after one of the components in `lists`, or if that is empty, the
// first number. -1: none.
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
    const GxLora *lora = &m->adapter.lora;
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

// 1: neither `excluded` nor `layers` removes it from the targets.
static int gx__lora_stays(const GxModel *m, const GxTensor *t)
{
    return !gx_lora_is_excluded(m, t) && (m->adapter.lora.finds || gx__lora_is_in_layers(m, t));
}

static int gx__lora_is_meant(const GxModel *m, const GxTensor *t, int by_default)
{
    const GxLora *lora = &m->adapter.lora;
    if (!lora->targets || !lora->targets[0]) return by_default;
    if (gx__lora_is_all_linear(lora)) return t->role != GX_ROLE_EMBEDDING && t->role != GX_ROLE_HEAD;
    return lora->finds ? gx__lora_is_found(m, t)
                       : gx__lora_is_listed(gx__lora_name(t), gx__lora_module(t), lora->targets);
}

int gx_lora_is_target(const GxModel *m, const GxTensor *t, int by_default)
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
            "the regular expression for LoRA's targets, \"%.200s\", also matches %.*s, which cannot have LoRA; it may "
            "match linear layers of attention and MLP, heads, the layer before a head, and the token embedding",
            m->adapter.lora.targets, (int)gx__lora_module(t), gx__lora_name(t));
    }
    if (found) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the regular expression for LoRA's targets, \"%.200s\", matches no module of the model; it has to "
                   "match a whole name, such as %s without .weight",
                   m->adapter.lora.targets, gx__lora_name(&m->table.row[m->unit[1].pair[0].linear[0].first.index]));
}

// 1: the name matches this matrix, which has LoRA, or would have it if it were not excluded or in another layer.
static int gx__lora_names(const GxModel *m, const GxTensor *t, GxTextItem name)
{
    const int could = t->role == GX_ROLE_WEIGHT || t->role == GX_ROLE_HEAD || t == &m->table.row[m->embedding.index];
    return (t->has_lora || (could && gx__lora_is_matrix(t) && !gx__lora_stays(m, t))) &&
           gx__lora_is_called(gx__lora_name(t), gx__lora_module(t), name.at, name.n);
}

// An error if a listed layer does not exist, or if nothing has LoRA.
static GxStatus gx__lora_check_narrowed(const GxModel *m, GxError *err)
{
    const GxIntList *layers = m->adapter.lora.layers;
    int found = 0;
    for (int k = 0; layers && k < layers->n && !m->adapter.is_read; k++) {
        for (int i = found = 0; i < m->table.n && !found; i++)
            found = gx__lora_layer(m->table.row[i].name, m->adapter.lora.lists) == layers->v[k];
        if (!found)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "layers_to_transform names layer %ld, which the model does not have",
                           (long)layers->v[k]);
    }
    for (int i = found = 0; i < m->table.n; i++) found += m->table.row[i].has_lora;
    if (found) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "no module is left for LoRA: exclude_modules and layers_to_transform exclude all of the targets%s%.200s",
        m->adapter.lora.targets && m->adapter.lora.targets[0] ? ", " : "",
        m->adapter.lora.targets ? m->adapter.lora.targets : "");
}

// The table of tokens of a model with an encoder is used in three places, under three names.
static GxStatus gx__lora_check_shared(const GxModel *m, GxError *err)
{
    for (int i = 0; i < m->table.n && m->memory; i++) {
        const GxTensor *t = &m->table.row[i];
        if (t->has_lora && (i == m->embedding.index || t->has_alias))
            return GX_FAIL(
                err, GX_ERR_UNSUPPORTED,
                "LoRA of %s is not supported, since encoder, decoder and head share it; leave it out of the targets",
                t->name);
    }
    return GX_OK;
}

GxStatus gx_lora_check_targets(const GxModel *m, GxError *err)
{
    GX_TRY(gx__lora_check_shared(m, err));
    if (m->adapter.lora.finds) return gx__lora_check_pattern(m, err);
    const char *targets = gx__lora_is_all_linear(&m->adapter.lora) ? NULL : m->adapter.lora.targets;
    GxTextItem name;
    while (gx_text_next(&targets, &name)) {
        int found = 0;
        if (name.n == 10 && !strncasecmp(name.at, "all-linear", 10))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "LoRA's targets are \"%.200s\", but all-linear (all linear layers of attention and MLP) "
                           "must be the only one; to have other modules too, name each one, such as %s",
                           m->adapter.lora.targets,
                           gx__lora_name(&m->table.row[m->unit[1].pair[0].linear[0].first.index]));
        for (int i = 0; i < m->table.n && !found; i++) found = gx__lora_names(m, &m->table.row[i], name);
        if (!found)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "LoRA's target \"%.*s\" matches no linear layer of attention or MLP, no head, no layer "
                           "before a head, and not the token embedding; names in %s are like %s, %s",
                           (int)name.n, name.at, m->family->name,
                           gx__lora_name(&m->table.row[m->unit[1].pair[0].linear[0].first.index]),
                           m->table.row[m->embedding.index].name);
    }
    return gx__lora_check_narrowed(m, err);
}
#endif
