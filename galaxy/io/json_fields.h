// json_fields.h: converts structs to JSON objects and back, by their tables of fields (base/fields.h).
//
//     GX_TRY(gx_json_get_fields(json, GX_FIELDS(fields), 1, &config, "config.json", err));   // all are required
//     GX_TRY(gx_json_set_fields(json, GX_FIELDS(fields), &config, err));
//
// A value of another type, or outside of its range, is an error that names the file, the key, the value and what was
// expected.
#ifndef GX_JSON_FIELDS_H
#define GX_JSON_FIELDS_H
#include "../base/fields.h"
#include "json.h"
GX_BEGIN

int gx_field_from_json(const GxField *f, const GxJson *json, GxFieldValue *v); // 1: it is a value of the field's type
// a new value from the field of the struct
GxJson *gx_field_to_json(const GxField *f, const void *source, GxError *err);

// Sets the field of a struct from a value (target NULL: only checks the value). Errors have this code, and name
// `where`, a path, and `key`.
GxStatus gx_json_take_field(const GxJson *value, const GxField *f, void *target, const char *where, GxStatus code,
                            GxError *err);

// Sets all fields from the members of an object with their names. Absent or null: the field is unchanged; an error only
// if `required`. Other members of the object are ignored.
GxStatus gx_json_get_fields(const GxJson *object, const GxField *f, int n, int required, void *target,
                            const char *where, GxError *err);
GxStatus gx_json_set_fields(GxJson *object, const GxField *f, int n, const void *source, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_JSON_FIELDS_IMPLEMENTED)
#define GX_JSON_FIELDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ["a", 2] as "a,2". A name with a comma is not possible.
static int gx__json_fields_join(const GxJson *list, char *text, size_t size)
{
    size_t at = 0;
    for (int64_t i = 0; i < gx_json_size(list) && at < size; i++) {
        const GxJson *value = gx_json_at(list, i);
        const char *name = gx_json_string(value);
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)gx_json_int(value));
        if (gx_json_type(value) == GX_JSON_INT) name = number;
        if (!name[0] || strchr(name, ',')) return 0;
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? "," : "", name);
    }
    return at < size;
}

// ["a", "b"], each after a mark.
static int gx__json_fields_texts(const GxField *f, const GxJson *list, GxFieldValue *v)
{
    GxField alone = *f;
    GxFieldValue one;
    alone.offset = 0;
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const GxJson *value = gx_json_at(list, i);
        if (gx_json_type(value) != GX_JSON_STRING || !gx_field_parse(f, gx_json_string(value), &one)) return 0;
        if (!gx_field_add_texts(&alone, &one, v)) return 0;
    }
    return 1;
}

static GxJson *gx__json_fields_list(const char *texts, GxError *err)
{
    GxJson *list = gx_json_new_array();
    const char *at = NULL, *text;
    for (int64_t n; (text = gx_field_next_text(texts, &at, &n)) != NULL;) {
        char *copy = (char *)malloc((size_t)n + 1);
        if (!copy) GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text");
        if (!copy) break;
        memcpy(copy, text, (size_t)n), copy[n] = 0;
        gx_json_append(list, gx_json_new_string(copy), err);
        free(copy);
    }
    return list;
}

int gx_field_from_json(const GxField *f, const GxJson *json, GxFieldValue *v)
{
    static const GxJsonType expected[] = {GX_JSON_INT,    GX_JSON_REAL,   GX_JSON_BOOL,   GX_JSON_STRING,
                                          GX_JSON_ARRAY,  GX_JSON_STRING, GX_JSON_STRING, GX_JSON_STRING,
                                          GX_JSON_STRING, GX_JSON_STRING};
    GxJsonType type = gx_json_type(json);
    memset(v, 0, sizeof *v);
    if (f->type == GX_FIELD_TEXTS && type == GX_JSON_ARRAY) return gx__json_fields_texts(f, json, v);
    if (f->type == GX_FIELD_NAMES && type == GX_JSON_ARRAY) return gx__json_fields_join(json, v->s, sizeof v->s);
    if (f->type == GX_FIELD_HASH && type == GX_JSON_INT) { // the format of earlier versions
        v->i = gx_json_int(json);
        return 1;
    }
    if (type != expected[f->type] && !(f->type == GX_FIELD_DOUBLE && type == GX_JSON_INT)) return 0;
    switch (f->type) {
    case GX_FIELD_INT: v->i = gx_json_int(json); return 1;
    case GX_FIELD_DOUBLE: v->d = gx_json_double(json); return 1;
    case GX_FIELD_BOOL: v->b = gx_json_bool(json); return 1;
    case GX_FIELD_STRING:
    case GX_FIELD_PATH:
    case GX_FIELD_LONG_TEXT:
    case GX_FIELD_TEXTS:
    case GX_FIELD_HASH:
    case GX_FIELD_NAMES: return gx_field_parse(f, gx_json_string(json), v);
    default: break;
    }
    if (gx_json_size(json) > GX_FIELD_LIST) return 0;
    v->list.n = (int)gx_json_size(json);
    for (int i = 0; i < v->list.n; i++) {
        v->list.v[i] = gx_json_int(gx_json_at(json, i));
        if (gx_json_type(gx_json_at(json, i)) != GX_JSON_INT) return 0;
    }
    return 1;
}

GxJson *gx_field_to_json(const GxField *f, const void *source, GxError *err)
{
    const void *field = gx_field_in(f, source);
    const GxIntList *list = (const GxIntList *)field;
    char hash[24];
    switch (f->type) {
    case GX_FIELD_INT: return gx_json_new_int(*(const int64_t *)field);
    case GX_FIELD_DOUBLE: return gx_json_new_double(*(const double *)field);
    case GX_FIELD_BOOL: return gx_json_new_bool(*(const int *)field);
    case GX_FIELD_STRING:
    case GX_FIELD_PATH:
    case GX_FIELD_LONG_TEXT:
    case GX_FIELD_NAMES: return gx_json_new_string((const char *)field);
    case GX_FIELD_HASH:
        snprintf(hash, sizeof hash, "0x%016llx", (unsigned long long)*(const int64_t *)field);
        return gx_json_new_string(hash);
    case GX_FIELD_TEXTS: return gx__json_fields_list((const char *)field, err);
    default: break;
    }
    GxJson *array = gx_json_new_array();
    for (int i = 0; i < list->n; i++) gx_json_append(array, gx_json_new_int(list->v[i]), err);
    return array;
}

static GxStatus gx__json_fields_refuse(const GxJson *value, const GxField *f, const char *where, GxStatus code,
                                       GxError *err)
{
    char who[GX_PATH + 80], *text; // a path and a name
    int64_t bytes;
    snprintf(who, sizeof who, "%s: %s", where, f->name);
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    gx_field_refuse(f, who, "", text, code, err); // JSON has quotation marks already
    free(text);
    return code;
}

GxStatus gx_json_take_field(const GxJson *value, const GxField *f, void *target, const char *where, GxStatus code,
                            GxError *err)
{
    GxFieldValue v;
    if (!gx_field_from_json(f, value, &v) || !gx_field_allows(f, &v))
        return gx__json_fields_refuse(value, f, where, code, err);
    if (target) gx_field_store(f, &v, target);
    return GX_OK;
}

GxStatus gx_json_get_fields(const GxJson *object, const GxField *f, int n, int required, void *target,
                            const char *where, GxError *err)
{
    char expected[200];
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object", where, gx_json_type_name(object));
    for (int i = 0; i < n; i++) {
        const GxJson *value = gx_json_get(object, f[i].name);
        gx_field_expected(&f[i], expected, sizeof expected);
        if (gx_json_type(value) > GX_JSON_NULL)
            GX_TRY(gx_json_take_field(value, &f[i], target, where, GX_ERR_FORMAT, err));
        else if (required)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is missing; expected %s", where, f[i].name, expected);
    }
    return GX_OK;
}

GxStatus gx_json_set_fields(GxJson *object, const GxField *f, int n, const void *source, GxError *err)
{
    for (int i = 0; i < n; i++) GX_TRY(gx_json_set(object, f[i].name, gx_field_to_json(&f[i], source, err), err));
    return GX_OK;
}
#endif
