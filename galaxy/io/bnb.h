// bnb.h: quantised matrices (base/quantized.h) in safetensors files, as the Python package bitsandbytes stores them.
// For a matrix X.weight [rows,cols] with n elements the file has
//
//     int8   X.weight                        I8 [rows,cols]
//            X.SCB                           F32 [rows]
//            X.weight_format                 U8 []           0: row by row
//     NF4    X.weight                        U8 [ceil(n/2),1]
//            .quant_map                      F32 [16]
//            .absmax                         F32 [blocks]    doubled: U8
//            .nested_quant_map               F32 [256]       doubled only
//            .nested_absmax                  F32 [groups]    doubled only
//            .quant_state.bitsandbytes__nf4  U8: JSON with the shape, the type of the values, the offset
//
// where a name that begins with a point follows X.weight.
//
//     GxBnbMatrix m;
//     GX_TRY(gx_bnb_find(&file, "model.layers.0.mlp.up_proj.weight", &m, err));
//     if (m.is_quantized) {
//         GxQuantized w = gx_quantized(m.kind, m.rows, m.cols, memory);     // of the host
//         GX_TRY(gx_bnb_read(&file, name, &w, err));
//     }
//
// Supported are blocks of 64 with scales in groups of 256, and the values of quantized.h; other sizes, other values and
// fp4 are refused by name, and so are scales that are not finite.
#ifndef GX_BNB_H
#define GX_BNB_H
#include "../base/quantized.h"
#include "json_keys.h"
#include "safetensors.h"
GX_BEGIN

typedef struct {
    int is_quantized; // 0: X.weight is an ordinary tensor, or not in the file; the other fields are not set
    GxQuantKind kind;
    int64_t rows, cols;
    GxDtype dtype; // of the values before: F32, BF16 or F16; F32 for int8, for which the file does not say
    float offset;  // of doubled scales
} GxBnbMatrix;

// name: X.weight
GxStatus gx_bnb_find(const GxSafetensors *s, const char *name, GxBnbMatrix *m, GxError *err);
// Reads the parts of a matrix to the host's memory. w must have the kind and the shape that were found.
GxStatus gx_bnb_read(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err);

// The same in pieces: everything but the codes; and the codes of elements [first, first + n), where `first` must be the
// first element of a byte.
GxStatus gx_bnb_read_scales(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err);
GxStatus gx_bnb_read_codes(const GxSafetensors *s, const char *name, const GxQuantized *w, int64_t first, int64_t n,
                           uint8_t *codes, GxError *err);
// 1: `name` is a part of a matrix in the file, such as X.weight.absmax or X.SCB, and not the matrix itself.
int gx_bnb_is_part(const GxSafetensors *s, const char *name);
// Checks the quantization_config of config.json: GX_OK if it is missing or null, or describes what is supported here;
// the tensors then tell which matrices are quantised.
GxStatus gx_bnb_check_config(const GxJson *config, const char *path, const GxLogger *log, GxError *err);
extern const GxJsonKeys gx_bnb_config_keys;

enum { GX_BNB_ENTRIES = 6 };
// The entries of a matrix for gx_safetensors_create. Returns their number; 0: an error. w must be in host memory: with
// doubled scales the offset is written as text, whose length is needed here.
int gx_bnb_entries(GxSafetensorsEntry entry[GX_BNB_ENTRIES], const char *name, const GxQuantized *w, GxDtype dtype,
                   GxError *err);
GxStatus gx_bnb_write(GxSafetensorsWriter *to, const char *name, const GxQuantized *w, GxDtype dtype, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BNB_IMPLEMENTED)
#define GX_BNB_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__BNB_STATE = 4096 }; // bytes of the JSON of a matrix
#define GX__BNB_STATE_NAME ".quant_state.bitsandbytes__nf4"

static const struct {
    GxDtype type;
    const char *name; // in PyTorch
} gx__bnb_types[] = {{GX_F32, "float32"}, {GX_BF16, "bfloat16"}, {GX_F16, "float16"}};

static int gx__bnb_type_named(const char *name) // -1: no such type
{
    for (size_t i = 0; i < sizeof gx__bnb_types / sizeof *gx__bnb_types; i++)
        if (!strcmp(name, gx__bnb_types[i].name)) return gx__bnb_types[i].type;
    return -1;
}
static const char *gx__bnb_type_name(GxDtype type) // NULL: values of this type are not quantised
{
    for (size_t i = 0; i < sizeof gx__bnb_types / sizeof *gx__bnb_types; i++)
        if (type == gx__bnb_types[i].type) return gx__bnb_types[i].name;
    return NULL;
}

// X.SCB and X.weight_format replace the last part of X.weight, all others are appended to it.
static void gx__bnb_name(char out[GX_SAFETENSORS_NAME], const char *name, const char *part)
{
    const int beside = !strcmp(part, ".SCB") || !strcmp(part, ".weight_format");
    const int64_t stem = beside ? gx_text_stem(name, ".weight") : -1;
    snprintf(out, GX_SAFETENSORS_NAME, "%.*s%s", (int)(stem > 0 ? stem : (int64_t)strlen(name)), name, part);
}
static const GxSafetensorsEntry *gx__bnb_part(const GxSafetensors *s, const char *name, const char *part)
{
    char whole[GX_SAFETENSORS_NAME];
    gx__bnb_name(whole, name, part);
    return gx_safetensors_find(s, whole);
}

// ---- in ------------------------------------------------------------------------------------------------------------

static const GxJsonKey gx__bnb_state_keys[] = {
    {"quant_type", GX_KEY_READ, NULL},    {"blocksize", GX_KEY_READ, NULL},        {"dtype", GX_KEY_READ, NULL},
    {"shape", GX_KEY_READ, NULL},         {"nested_blocksize", GX_KEY_READ, NULL}, {"nested_dtype", GX_KEY_READ, NULL},
    {"nested_offset", GX_KEY_READ, NULL},
};

static GxStatus gx__bnb_state_take(const GxJson *json, const char *where, GxBnbMatrix *m, GxError *err)
{
    int64_t block = 0, group = GX_SCALE_BLOCK;
    const char *type = "", *dtype = "", *nested = "float32";
    GxJson *shape = NULL;
    double offset = 0;
    m->kind = gx_json_get(json, "nested_blocksize") ? GX_NF4_DOUBLED : GX_NF4;
    GX_TRY(gx_json_get_string(json, "quant_type", 1, &type, where, err));
    GX_TRY(gx_json_get_int(json, "blocksize", 1, &block, where, err));
    GX_TRY(gx_json_get_string(json, "dtype", 1, &dtype, where, err));
    GX_TRY(gx_json_get_array(json, "shape", 1, &shape, where, err));
    GX_TRY(gx_json_get_int(json, "nested_blocksize", 0, &group, where, err));
    GX_TRY(gx_json_get_string(json, "nested_dtype", 0, &nested, where, err));
    GX_TRY(gx_json_get_double(json, "nested_offset", m->kind == GX_NF4_DOUBLED, &offset, where, err));
    if (strcmp(type, "nf4") || block != GX_NF4_BLOCK || group != GX_SCALE_BLOCK || strcmp(nested, "float32"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: quant_type %.20s in blocks of %ld, scales in groups of %ld of %.20s; only nf4 in blocks of "
                       "64 and groups of 256 of float32 is supported",
                       where, type, (long)block, (long)group, nested);
    if (gx__bnb_type_named(dtype) < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: dtype is \"%.20s\"; expected float32, bfloat16 or float16", where,
                       dtype);
    m->dtype = (GxDtype)gx__bnb_type_named(dtype);
    m->rows = gx_json_int(gx_json_at(shape, 0)), m->cols = gx_json_int(gx_json_at(shape, 1));
    if (gx_json_size(shape) != 2 || m->rows < 1 || m->cols < 1 || m->rows > INT64_MAX / 8 / m->cols)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: shape is not that of a matrix", where);
    if (!isfinite((float)offset))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: nested_offset is %g, which is not an fp32 number", where, offset);
    for (GxJsonMember k = GX_ZERO; gx_json_next(json, &k);)
        if (!gx_json_find_key(GX_KEYS(gx__bnb_state_keys), k.key))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s has \"%.60s\", which is not known, and without which the weights might be wrong", where,
                           k.key);
    m->offset = (float)offset;
    return GX_OK;
}

static GxStatus gx__bnb_state_read(const GxSafetensors *s, const GxSafetensorsEntry *state, GxBnbMatrix *m,
                                   GxError *err)
{
    char text[GX__BNB_STATE];
    GxJson *json;
    if (state->bytes > (int64_t)sizeof text || state->dtype != GX_U8)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes of type %s; expected at most %d of type U8", state->name,
                       (long)state->bytes, state->dtype_name, (int)sizeof text);
    GX_TRY(gx_safetensors_read_raw(s, state, 0, state->elements, text, err));
    GX_TRY(gx_json_parse(&json, text, state->bytes, state->name, err));
    const GxStatus status = gx__bnb_state_take(json, state->name, m, err);
    gx_json_free(json);
    return status;
}

GxStatus gx_bnb_find(const GxSafetensors *s, const char *name, GxBnbMatrix *m, GxError *err)
{
    const GxSafetensorsEntry *state = gx__bnb_part(s, name, GX__BNB_STATE_NAME), *w = gx_safetensors_find(s, name);
    memset(m, 0, sizeof *m);
    if (gx__bnb_part(s, name, ".quant_state.bitsandbytes__fp4"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s is quantized to fp4, which is not supported; nf4 and int8 are",
                       name);
    m->is_quantized = w && (state || gx__bnb_part(s, name, ".SCB"));
    if (!m->is_quantized) return GX_OK;
    if (state) return gx__bnb_state_read(s, state, m, err);
    if (w->dtype != GX_I8 || w->ndim != 2 || w->shape[0] < 1 || w->shape[1] < 1)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is not a matrix of type I8, as its SCB requires", name);
    m->kind = GX_INT8, m->rows = w->shape[0], m->cols = w->shape[1];
    return GX_OK;
}

// Reads all bytes of a part, which must have this type and this size.
static GxStatus gx__bnb_take(const GxSafetensors *s, const char *name, const char *part, GxDtype type, int64_t bytes,
                             void *to, GxError *err)
{
    char whole[GX_SAFETENSORS_NAME];
    gx__bnb_name(whole, name, part);
    const GxSafetensorsEntry *e = gx_safetensors_find(s, whole);
    if (!e) return GX_FAIL(err, GX_ERR_FORMAT, "%s is missing, without which %s cannot be read", whole, name);
    if (e->dtype != (int)type || e->bytes != bytes)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes of type %s; expected %ld of type %s", whole,
                       (long)e->bytes, e->dtype_name, (long)bytes, gx_dtype_name(type));
    return gx_safetensors_read_raw(s, e, 0, e->elements, to, err);
}
static GxStatus gx__bnb_same_table(const GxSafetensors *s, const char *name, const char *part, const float *table,
                                   int64_t n, GxError *err)
{
    float theirs[256];
    GX_TRY(gx__bnb_take(s, name, part, GX_F32, 4 * n, theirs, err));
    for (int64_t i = 0; i < n; i++)
        if (theirs[i] != table[i])
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s%s: code %ld stands for %.9g; only %.9g is supported", name,
                           part, (long)i, (double)theirs[i], (double)table[i]);
    return GX_OK;
}

static GxStatus gx__bnb_check_codes(const GxSafetensorsEntry *e, const char *name, const GxQuantized *w, GxError *err)
{
    const int64_t bytes = gx_quantized_code_bytes(w);
    if (e && e->bytes == bytes && (w->kind != GX_INT8 || e->dtype == GX_I8)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes of type %s; expected %ld of type %s", name,
                   e ? (long)e->bytes : 0, e ? e->dtype_name : "none", (long)bytes, w->kind == GX_INT8 ? "I8" : "U8");
}

static GxStatus gx__bnb_read_nf4(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err)
{
    const int64_t scales = 4 * gx_quantized_scales(w);
    GX_TRY(gx__bnb_same_table(s, name, ".quant_map", gx_nf4_values, 16, err));
    GX_TRY(gx__bnb_check_codes(gx_safetensors_find(s, name), name, w, err));
    if (w->kind == GX_NF4) return gx__bnb_take(s, name, ".absmax", GX_F32, scales, w->scales, err);
    GX_TRY(gx__bnb_same_table(s, name, ".nested_quant_map", gx_scale_values, 256, err));
    GX_TRY(gx__bnb_take(s, name, ".absmax", GX_U8, gx_quantized_blocks(w), w->scale_codes, err));
    return gx__bnb_take(s, name, ".nested_absmax", GX_F32, scales, w->scales, err);
}
static GxStatus gx__bnb_read_int8(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err)
{
    unsigned char format = 0; // the default if it is missing
    if (gx__bnb_part(s, name, ".weight_format"))
        GX_TRY(gx__bnb_take(s, name, ".weight_format", GX_U8, 1, &format, err));
    if (format != 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s has weight_format %d; only 0, rows one after another, is supported",
                       name, format);
    GX_TRY(gx__bnb_check_codes(gx_safetensors_find(s, name), name, w, err));
    return gx__bnb_take(s, name, ".SCB", GX_F32, 4 * w->rows, w->scales, err);
}

GxStatus gx_bnb_read_codes(const GxSafetensors *s, const char *name, const GxQuantized *w, int64_t first, int64_t n,
                           uint8_t *codes, GxError *err)
{
    const int is_int8 = w->kind == GX_INT8;
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    GX_TRY(gx__bnb_check_codes(e, name, w, err));
    const int64_t from = is_int8 ? first : first / 2, bytes = is_int8 ? n : gx_ceil_div(n, 2),
                  size = e->bytes / e->elements; // NF4: any type with as many bytes
    if (from % size || bytes % size)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is of type %s, of which codes [%ld, %ld) are not a whole number", name,
                       e->dtype_name, (long)first, (long)(first + n));
    return gx_safetensors_read_raw(s, e, from / size, bytes / size, codes, err);
}

GxStatus gx_bnb_read_scales(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err)
{
    GxBnbMatrix m;
    GX_TRY(gx_bnb_find(s, name, &m, err));
    if (!m.is_quantized || m.kind != w->kind || m.rows != w->rows || m.cols != w->cols)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is not a quantized matrix of %ld x %ld and this kind", name,
                       (long)w->rows, (long)w->cols);
    GX_TRY(w->kind == GX_INT8 ? gx__bnb_read_int8(s, name, w, err) : gx__bnb_read_nf4(s, name, w, err));
    if (w->kind == GX_NF4_DOUBLED) *w->offset = m.offset;
    for (int64_t i = 0; i < gx_quantized_scales(w); i++)
        if (!isfinite(w->scales[i]))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: scale %ld is %g; expected a finite number", name, (long)i,
                           (double)w->scales[i]);
    return GX_OK;
}

GxStatus gx_bnb_read(const GxSafetensors *s, const char *name, const GxQuantized *w, GxError *err)
{
    GX_TRY(gx_bnb_read_scales(s, name, w, err));
    return gx_bnb_read_codes(s, name, w, 0, w->rows * w->cols, w->codes, err);
}

int gx_bnb_is_part(const GxSafetensors *s, const char *name)
{
    static const char *const behind[] = {".quant_map", ".absmax", ".nested_absmax", ".nested_quant_map",
                                         GX__BNB_STATE_NAME},
                             *const beside[] = {".SCB", ".weight_format"};
    char whole[GX_SAFETENSORS_NAME];
    const size_t kinds[2] = {sizeof behind / sizeof *behind, sizeof beside / sizeof *beside};
    for (int is_beside = 0; is_beside < 2; is_beside++)
        for (size_t i = 0; i < kinds[is_beside]; i++) {
            const char *part = is_beside ? beside[i] : behind[i];
            const int64_t n = gx_text_stem(name, part);
            if (n <= 0) continue;
            if (snprintf(whole, sizeof whole, "%.*s%s", (int)n, name, is_beside ? ".weight" : "") < (int)sizeof whole &&
                gx_safetensors_find(s, whole))
                return 1;
        }
    return 0;
}

// What the tensors themselves say is read from them.
static const GxJsonKey gx__bnb_config_keys[] = {
    {"quant_method", GX_KEY_READ, NULL},
    {"load_in_4bit", GX_KEY_READ, NULL},
    {"load_in_8bit", GX_KEY_READ, NULL},
    {"_load_in_4bit", GX_KEY_HARMLESS, "as load_in_4bit"},
    {"_load_in_8bit", GX_KEY_HARMLESS, "as load_in_8bit"},
    {"bnb_4bit_quant_type", GX_KEY_READ, NULL},
    {"bnb_4bit_compute_dtype", GX_KEY_HARMLESS, "--precision says in what is computed"},
    {"bnb_4bit_quant_storage", GX_KEY_HARMLESS, "the tensors have a type"},
    {"bnb_4bit_use_double_quant", GX_KEY_HARMLESS, "the tensors say it"},
    {"llm_int8_skip_modules", GX_KEY_HARMLESS, "the tensors say which are quantized"},
    {"llm_int8_threshold", GX_KEY_HARMLESS, "activations are not quantized, so none is too large for it"},
    {"llm_int8_has_fp16_weight", GX_KEY_HARMLESS, "the tensors have a type"},
    {"llm_int8_enable_fp32_cpu_offload", GX_KEY_HARMLESS, "where transformers keeps weights"},
};
const GxJsonKeys gx_bnb_config_keys = {GX_KEYS(gx__bnb_config_keys)};

GxStatus gx_bnb_check_config(const GxJson *config, const char *path, const GxLogger *log, GxError *err)
{
    char where[GX_PATH + 24];
    const char *method = gx_json_string(gx_json_get(config, "quant_method")),
               *type = gx_json_string(gx_json_get(config, "bnb_4bit_quant_type"));
    int is_4 = 0, is_8 = 0;
    snprintf(where, sizeof where, "%s: quantization_config", path);
    if (gx_json_type(config) <= GX_JSON_NULL) return GX_OK;
    if (gx_json_type(config) == GX_JSON_OBJECT) {
        GX_TRY(gx_json_get_bool(config, "load_in_4bit", 0, &is_4, where, err));
        GX_TRY(gx_json_get_bool(config, "load_in_8bit", 0, &is_8, where, err));
    }
    if (gx_json_type(config) != GX_JSON_OBJECT || (strcmp(method, "bitsandbytes") && (method[0] || (!is_4 && !is_8))))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: quantization_config has the quant_method \"%.40s\"; only that of bitsandbytes is supported",
                       path, method);
    if (is_4 && strcmp(type, "nf4"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: quantization_config has the bnb_4bit_quant_type \"%.40s\"; only nf4 is supported", path,
                       type[0] ? type : "fp4");
    if (is_4 && is_8)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has both load_in_4bit and load_in_8bit; expected one of them", where);
    if (is_4 || is_8) return gx_json_check_keys(config, GX_KEYS(gx__bnb_config_keys), where, log, err);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: quantization_config has neither load_in_4bit nor load_in_8bit; expected one of them", path);
}

// ---- out -----------------------------------------------------------------------------------------------------------

// The JSON of a matrix of NF4; free(*text)
static GxStatus gx__bnb_state_text(const GxQuantized *w, GxDtype dtype, char **text, int64_t *bytes, GxError *err)
{
    const char *type = gx__bnb_type_name(dtype);
    GxJson *json = gx_json_new_object(), *shape = gx_json_new_array();
    *text = NULL;
    gx_json_append(shape, gx_json_new_int(w->rows), err);
    gx_json_append(shape, gx_json_new_int(w->cols), err);
    gx_json_set(json, "quant_type", gx_json_new_string("nf4"), err);
    gx_json_set(json, "blocksize", gx_json_new_int(GX_NF4_BLOCK), err);
    gx_json_set(json, "dtype", gx_json_new_string(type ? type : ""), err);
    gx_json_set(json, "shape", shape, err);
    if (w->kind == GX_NF4_DOUBLED) {
        gx_json_set(json, "nested_blocksize", gx_json_new_int(GX_SCALE_BLOCK), err);
        gx_json_set(json, "nested_dtype", gx_json_new_string("float32"), err);
        gx_json_set(json, "nested_offset", gx_json_new_double(*w->offset), err);
    }
    if (!type)
        GX_FAIL(err, GX_ERR_ARGUMENT, "values of type %s are not quantized; F32, BF16 and F16 are",
                gx_dtype_name(dtype));
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_dump(json, 0, text, bytes, err);
    gx_json_free(json);
    return status;
}

// shape: if the second number is 0, one dimension; if both are, a scalar
static int gx__bnb_entry(GxSafetensorsEntry *entry, int n, const char *name, const char *part, GxDtype type,
                         int64_t first, int64_t second)
{
    GxSafetensorsEntry *e = &entry[n];
    memset(e, 0, sizeof *e);
    gx__bnb_name(e->name, name, part);
    e->dtype = type;
    e->ndim = first ? second ? 2 : 1 : 0;
    e->shape[0] = first, e->shape[1] = second;
    return n + 1;
}

int gx_bnb_entries(GxSafetensorsEntry entry[GX_BNB_ENTRIES], const char *name, const GxQuantized *w, GxDtype dtype,
                   GxError *err)
{
    const int64_t blocks = gx_quantized_blocks(w), scales = gx_quantized_scales(w);
    char *text;
    int64_t bytes = 0;
    int n = 0;
    if (strlen(name) + sizeof GX__BNB_STATE_NAME > GX_SAFETENSORS_NAME) {
        GX_FAIL(err, GX_ERR_ARGUMENT, "the name %.40s... is too long for the parts of a quantized matrix", name);
        return 0;
    }
    if (w->kind == GX_INT8) {
        n = gx__bnb_entry(entry, n, name, "", GX_I8, w->rows, w->cols);
        n = gx__bnb_entry(entry, n, name, ".SCB", GX_F32, w->rows, 0);
        return gx__bnb_entry(entry, n, name, ".weight_format", GX_U8, 0, 0);
    }
    if (gx__bnb_state_text(w, dtype, &text, &bytes, err)) return 0;
    free(text);
    n = gx__bnb_entry(entry, n, name, "", GX_U8, gx_quantized_code_bytes(w), 1);
    n = gx__bnb_entry(entry, n, name, ".quant_map", GX_F32, 16, 0);
    n = gx__bnb_entry(entry, n, name, ".absmax", w->kind == GX_NF4 ? GX_F32 : GX_U8, blocks, 0);
    n = gx__bnb_entry(entry, n, name, GX__BNB_STATE_NAME, GX_U8, bytes, 0);
    if (w->kind == GX_NF4) return n;
    n = gx__bnb_entry(entry, n, name, ".nested_absmax", GX_F32, scales, 0);
    return gx__bnb_entry(entry, n, name, ".nested_quant_map", GX_F32, 256, 0);
}

static GxStatus gx__bnb_put(GxSafetensorsWriter *to, const char *name, const char *part, const void *data,
                            int64_t count, GxError *err)
{
    char whole[GX_SAFETENSORS_NAME];
    gx__bnb_name(whole, name, part);
    return gx_safetensors_write(to, whole, 0, data, count, err);
}

GxStatus gx_bnb_write(GxSafetensorsWriter *to, const char *name, const GxQuantized *w, GxDtype dtype, GxError *err)
{
    static const unsigned char rows = 0;
    const int64_t scales = gx_quantized_scales(w);
    char *text;
    int64_t bytes = 0;
    GX_TRY(gx__bnb_put(to, name, "", w->codes, gx_quantized_code_bytes(w), err));
    if (w->kind == GX_INT8) {
        GX_TRY(gx__bnb_put(to, name, ".SCB", w->scales, scales, err));
        return gx__bnb_put(to, name, ".weight_format", &rows, 1, err);
    }
    GX_TRY(gx__bnb_state_text(w, dtype, &text, &bytes, err));
    const GxStatus status = gx__bnb_put(to, name, GX__BNB_STATE_NAME, text, bytes, err);
    free(text);
    if (status != GX_OK) return status;
    GX_TRY(gx__bnb_put(to, name, ".quant_map", gx_nf4_values, 16, err));
    if (w->kind == GX_NF4) return gx__bnb_put(to, name, ".absmax", w->scales, scales, err);
    GX_TRY(gx__bnb_put(to, name, ".absmax", w->scale_codes, gx_quantized_blocks(w), err));
    GX_TRY(gx__bnb_put(to, name, ".nested_absmax", w->scales, scales, err));
    return gx__bnb_put(to, name, ".nested_quant_map", gx_scale_values, 256, err);
}
#endif
