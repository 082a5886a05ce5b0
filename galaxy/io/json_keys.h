// json_keys.h: reports which members of a JSON file are not supported. Every reader of a file that other programs write
// has a table of the keys of such files. A member that would change the result and is not supported is an error or a
// warning that names it. Unknown members are named, too: nothing in a file is ignored silently.
//
//     static const GxJsonKey keys[] = {
//         {"hidden_size", GX_KEY_READ, NULL},                                  // the reader uses it
//         {"use_cache", GX_KEY_HARMLESS, "how transformers generates, not what"},
//         {"logit_scale", GX_KEY_REFUSED, "logits would be scaled"},           // null, false, 0, "", [], {} are fine
//         {"pretraining_tp=1", GX_KEY_REFUSED, "matrices would be cut"},       // only null and 1 are fine
//         {"num_beams=1", GX_KEY_NAMED, "no beams are searched"},              // like REFUSED, but a warning
//     };
//     GX_TRY(gx_json_check_keys(json, keys, sizeof keys / sizeof *keys, path, log, err));
//
// Members are not checked recursively: an object in a file has its own table. Values of keys that are read are checked
// by their reader (json_fields.h).
#ifndef GX_JSON_KEYS_H
#define GX_JSON_KEYS_H
#include "../base/log.h"
#include "json.h"
GX_BEGIN

typedef enum {
    GX_KEY_READ,     // used by the reader
    GX_KEY_HARMLESS, // not read; `why` says why that changes nothing
    GX_KEY_REFUSED,  // a value that requests something is an error
    GX_KEY_NAMED     // … is a warning
} GxJsonKeyKind;
// name: "KEY", or "KEY=VALUE" or "KEY=VALUE|VALUE" with the values, as JSON, that request nothing (numbers compare as
// numbers; null requests nothing either). Without values, null, false, 0, "", [] and {} request nothing. "*END", in the
// last row: all keys with this ending. why: what the value would change, as the end of a message: "/x/config.json:
// logit_scale is 0.5, which is not supported: WHY".
typedef struct {
    const char *name;
    GxJsonKeyKind kind;
    const char *why; // NULL for GX_KEY_READ
} GxJsonKey;
typedef struct { // all known keys of a file, or of an object in it
    const GxJsonKey *key;
    int n;
} GxJsonKeys;

// Errors: GX_ERR_UNSUPPORTED for the first refused member. Warnings: one line for each GX_KEY_NAMED member, and one for
// all unknown keys. where: the file. log: gets the warnings. NULL is an error (GX_ERR_ARGUMENT), since warnings would
// be lost; ranks that leave them to rank 0 pass gx_silent. A value that is not an object has no keys.
GxStatus gx_json_check_keys(const GxJson *object, const GxJsonKey *key, int n, const char *where, const GxLogger *log,
                            GxError *err);
// The row of a key; NULL: there is none.
const GxJsonKey *gx_json_find_key(const GxJsonKey *key, int n, const char *name);
int gx_json_asks(const GxJsonKey *key, const GxJson *value); // 1: the value requests something, by the row
// 1: the value equals the JSON text[n]. Numbers compare as numbers.
int gx_json_is(const GxJson *value, const char *text, size_t n);

#define GX_KEYS(rows) (rows), (int)(sizeof(rows) / sizeof *(rows)) // arguments, or the members of a GxJsonKeys

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_JSON_KEYS_IMPLEMENTED)
#define GX_JSON_KEYS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__JSON_KEYS_TOLD = 8 }; // the most unknown keys that a warning names

const GxJsonKey *gx_json_find_key(const GxJsonKey *key, int n, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < n; i++) {
        const char *end = key[i].name + 1;
        if (key[i].name[0] == '*' && length > strlen(end) && !strcmp(name + length - strlen(end), end)) return &key[i];
        if (!strncmp(key[i].name, name, length) && (!key[i].name[length] || key[i].name[length] == '=')) return &key[i];
    }
    return NULL;
}

static int gx__json_keys_is_empty(const GxJson *value)
{
    switch (gx_json_type(value)) {
    case GX_JSON_BOOL: return !gx_json_bool(value);
    case GX_JSON_INT:
    case GX_JSON_REAL: return gx_json_double(value) == 0;
    case GX_JSON_STRING: return !gx_json_string(value)[0];
    case GX_JSON_ARRAY:
    case GX_JSON_OBJECT: return gx_json_size(value) == 0;
    default: return 1;
    }
}

int gx_json_is(const GxJson *value, const char *text, size_t n)
{
    char *own = NULL, *end = NULL;
    int64_t bytes = 0;
    GxError ignored = GX_ZERO;
    const int is_number = gx_json_type(value) == GX_JSON_INT || gx_json_type(value) == GX_JSON_REAL;
    const double number = strtod(text, &end);
    if (is_number && end == text + n) return gx_json_double(value) == number;
    if (gx_json_dump(value, 0, &own, &bytes, &ignored) != GX_OK) return 0;
    const int is = (size_t)bytes == n && !memcmp(own, text, n);
    free(own);
    return is;
}

int gx_json_asks(const GxJsonKey *key, const GxJson *value)
{
    const char *nothing = strchr(key->name, '=');
    if (gx_json_type(value) <= GX_JSON_NULL) return 0;
    if (!nothing) return !gx__json_keys_is_empty(value);
    for (const char *at = nothing; *at; at += 1 + strcspn(at + 1, "|"))
        if (gx_json_is(value, at + 1, strcspn(at + 1, "|"))) return 0;
    return 1;
}

static GxStatus gx__json_keys_check(const GxJsonKey *key, const GxJsonMember *m, const char *where, const GxLogger *log,
                                    GxError *err)
{
    char *text, cut[GX_TEXT_VALUE];
    int64_t bytes;
    if (key->kind != GX_KEY_REFUSED && key->kind != GX_KEY_NAMED) return GX_OK;
    if (!gx_json_asks(key, m->value)) return GX_OK;
    GX_TRY(gx_json_dump(m->value, 0, &text, &bytes, err));
    gx_text_cut(text, cut, sizeof cut);
    free(text);
    if (key->kind == GX_KEY_REFUSED)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is %s, which is not supported: %s", where, m->key, cut,
                       key->why);
    gx_log(log, GX_LOG_WARNING, "%s: %s is %s, which is ignored: %s", where, m->key, cut, key->why);
    return GX_OK;
}

static void gx__json_keys_add(char *names, size_t size, const char *name, int before)
{
    char cut[64];
    const size_t n = strlen(names);
    if (before < GX__JSON_KEYS_TOLD)
        snprintf(names + n, size - n, "%s%s", before ? ", " : "", gx_text_cut(name, cut, sizeof cut));
}

GxStatus gx_json_check_keys(const GxJson *object, const GxJsonKey *key, int n, const char *where, const GxLogger *log,
                            GxError *err)
{
    char names[GX__JSON_KEYS_TOLD * 70] = "";
    int unknown = 0;
    if (!log) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: there is no logger to name what is not read", where);
    for (GxJsonMember m = GX_ZERO; gx_json_type(object) == GX_JSON_OBJECT && gx_json_next(object, &m);) {
        const GxJsonKey *row = gx_json_find_key(key, n, m.key);
        if (!strcmp(m.key, GX_JSON_NUL)) continue; // the reader's mark (json.h)
        if (row) GX_TRY(gx__json_keys_check(row, &m, where, log, err));
        else gx__json_keys_add(names, sizeof names, m.key, unknown++);
    }
    if (unknown == 1)
        gx_log(log, GX_LOG_WARNING, "%s: %s is not known and not read; if it changes the model, results differ", where,
               names);
    if (unknown > 1)
        gx_log(log, GX_LOG_WARNING,
               "%s: %d keys are not known and not read: %s%s; if one of them changes the model, results differ", where,
               unknown, names, unknown > GX__JSON_KEYS_TOLD ? ", …" : "");
    return GX_OK;
}
#endif
