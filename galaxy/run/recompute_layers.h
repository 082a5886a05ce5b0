// recompute_layers.h: what --recompute says as text, and what it means: for each layer, what of it is computed again
// (GX_AGAIN_..., model/model.h).
//
//     none, att, mlp, att+mlp, layer     of all layers
//     layer:0-5,mlp:6,8-11               of layers 0 to 5 all but their inputs, of 6 and 8 to 11 the MLPs; nothing of 7
//
// Layers are numbered from 0, as in the names of tensors; those of a decoder follow those of its encoder. A number
// without a part before it has that of the number before.
#ifndef GX_RECOMPUTE_LAYERS_H
#define GX_RECOMPUTE_LAYERS_H
#include "../model/model.h"
GX_BEGIN

// again: [GX_MAX_UNITS], by the layer's number; all 0 for none, and for auto, which is chosen later (recompute.h).
// layers: of the model; a text that names others is refused, as are layers that are named twice.
GxStatus gx_recompute_read(const char *text, int64_t layers, uint8_t *again, GxError *err);
// The shortest text that means this. Returns `text`.
const char *gx_recompute_write(const uint8_t *again, int64_t layers, char *text, size_t size);
static inline int gx_recompute_is_list(const char *text) { return strchr(text, ':') != NULL; }
static inline int gx_recompute_has(const uint8_t *again, int parts) // 1: some layer has one of these parts
{
    int has = 0;
    for (int l = 0; l < GX_MAX_UNITS; l++) has |= (again[l] & parts) != 0;
    return has;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECOMPUTE_LAYERS_IMPLEMENTED)
#define GX_RECOMPUTE_LAYERS_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../base/text.h"

static const struct {
    const char *name;
    int again;
} gx__recompute_parts[] = {
    {"att", GX_AGAIN_ATT}, {"mlp", GX_AGAIN_MLP}, {"att+mlp", GX_AGAIN_ATT | GX_AGAIN_MLP}, {"layer", GX_AGAIN_LAYER}};
enum { GX__RECOMPUTE_PARTS = sizeof gx__recompute_parts / sizeof *gx__recompute_parts };

static int gx__recompute_part(const char *name, size_t n) // 0: there is none of this name
{
    int again = 0;
    for (int i = 0; i < GX__RECOMPUTE_PARTS; i++)
        if (strlen(gx__recompute_parts[i].name) == n && !strncmp(gx__recompute_parts[i].name, name, n))
            again = gx__recompute_parts[i].again;
    return again;
}

static int64_t gx__recompute_number(const char **at) // -1: there is none
{
    int64_t n = -1;
    for (; **at >= '0' && **at <= '9'; ++*at) n = gx_min(10 * gx_max(n, 0) + (**at - '0'), INT32_MAX);
    return n;
}

typedef struct {
    const char *text; // as the user gave it
    int part;         // of the entry before, or of this one; 0: none yet
    int64_t layers;
    uint8_t *again;
    GxError *err;
} gx__RecomputeReader;

static GX_PRINTF(2, 3) GxStatus gx__recompute_refuse(const gx__RecomputeReader *r, const char *format, ...)
{
    char why[300], cut[GX_TEXT_VALUE];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return GX_FAIL(r->err, GX_ERR_ARGUMENT, "--recompute is \"%s\"%s", gx_text_cut(r->text, cut, sizeof cut), why);
}

// One of the texts between commas: "layer:0-5", "mlp:6", "8-11".
static GxStatus gx__recompute_entry(gx__RecomputeReader *r, const char *entry, size_t n)
{
    const char *colon = (const char *)memchr(entry, ':', n), *at = colon ? colon + 1 : entry;
    char said[GX_TEXT_VALUE], whole[GX_TEXT_VALUE];
    snprintf(whole, sizeof whole, "%.*s", (int)gx_min((int64_t)n, GX_TEXT_VALUE), entry);
    gx_text_cut(whole, said, sizeof said);
    if (colon) r->part = gx__recompute_part(entry, (size_t)(colon - entry));
    if (colon && !r->part)
        return gx__recompute_refuse(
            r, ", but \"%s\" begins with no part of a layer; these are att, mlp, att+mlp, layer", said);
    const int64_t first = gx__recompute_number(&at);
    int64_t last = first;
    if (first >= 0 && *at == '-') at++, last = gx__recompute_number(&at);
    if (first < 0 || last < 0 || at != entry + n)
        return gx__recompute_refuse(
            r, ", but \"%s\" names no layers; expected a part and its layers, such as layer:0-5 or mlp:6,8-11", said);
    if (!r->part)
        return gx__recompute_refuse(
            r, ", but does not say what of layer %ld is computed again; expected a part before it, such as layer:%s",
            (long)first, said);
    if (last < first)
        return gx__recompute_refuse(r, ", but %ld-%ld is backwards; say %ld-%ld", (long)first, (long)last, (long)last,
                                    (long)first);
    if (last >= r->layers)
        return gx__recompute_refuse(r, ", but the model has no layer %ld; its layers are 0 to %ld", (long)last,
                                    (long)r->layers - 1);
    for (int64_t l = first; l <= last; l++) {
        if (r->again[l])
            return gx__recompute_refuse(r, ", but names layer %ld twice; name it once, with all its parts (att+mlp)",
                                        (long)l);
        r->again[l] = (uint8_t)r->part;
    }
    return GX_OK;
}

GxStatus gx_recompute_read(const char *text, int64_t layers, uint8_t *again, GxError *err)
{
    gx__RecomputeReader r = {text, 0, gx_min(layers, GX_MAX_UNITS), again, err};
    const int all = gx__recompute_part(text, strlen(text));
    memset(again, all, GX_MAX_UNITS);
    if (all || !strcmp(text, "none") || !strcmp(text, "auto")) return GX_OK;
    if (!gx_recompute_is_list(text))
        return gx__recompute_refuse(&r, "; expected one of none|att|mlp|att+mlp|layer|auto, or what is computed again "
                                        "of which layers, such as layer:0-5,mlp:6-11");
    for (const char *at = text; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        GX_TRY(gx__recompute_entry(&r, at, strcspn(at, ",")));
    return GX_OK;
}

static const char *gx__recompute_name(int again)
{
    const char *name = "none";
    for (int i = 0; i < GX__RECOMPUTE_PARTS; i++)
        if (gx__recompute_parts[i].again == again) name = gx__recompute_parts[i].name;
    return name;
}

const char *gx_recompute_write(const uint8_t *again, int64_t layers, char *text, size_t size)
{
    int n = 0, part = 0, is_one = 1;
    for (int64_t l = 1; l < layers; l++) is_one &= again[l] == again[0];
    snprintf(text, size, "%s", gx__recompute_name(again[0]));
    for (int64_t l = 0, end; l < layers && !is_one && n < (int)size; l = end) {
        for (end = l + 1; end < layers && again[end] == again[l];) end++;
        if (!again[l]) continue;
        n += snprintf(text + n, size - (size_t)n, "%s%s%s%ld", n ? "," : "",
                      again[l] == part ? "" : gx__recompute_name(again[l]), again[l] == part ? "" : ":", (long)l);
        if (end > l + 1 && n < (int)size) n += snprintf(text + n, size - (size_t)n, "-%ld", (long)end - 1);
        part = again[l];
    }
    return text;
}
#endif
