// config.h: options as data. A program describes its options in tables (name, type, place in a struct, default, help);
// defaults, JSON files, command lines, --help and the resolved config that is saved beside a run all come from these
// tables.
//
//     typedef struct { int64_t seq_len; double learning_rate; char precision[GX_OPTION_TEXT]; } Options;
//     static const GxOption table[] = {
//         {"seq_len", GX_OPTION_INT, offsetof(Options, seq_len), "256", "tokens in a sample", "1.."},
//         {"learning_rate", GX_OPTION_DOUBLE, offsetof(Options, learning_rate), "3e-4", "of the largest step", "0.."},
//         {"precision", GX_OPTION_STRING, offsetof(Options, precision), "fp32", "of activations", "fp32|bf16|fp16"},
//     };
//     Options o;
//     GxConfig c;
//     gx_config_open(&c);
//     GX_TRY(gx_config_add(&c, "Training", table, 3, &o, err));      // o holds the defaults
//     GX_TRY(gx_config_read_args(&c, argc, argv, err));              // o holds what the user said
//     if (c.help) gx_config_help(&c, stdout);
//
// On the command line: --key value, --key=value, --flag (a bool: true), lists as 3,1 or [3,1], --config file.json
// (wherever it stands, flags win over it), --help. In JSON: one flat object, the same names, JSON types; "_comment" is
// ignored. All else is refused by name: unknown keys ("did you mean"), a flag given twice, values of another type,
// rubbish behind a number, overflow, NaN, values out of range, bare words.
// Nothing is allocated; nothing needs to be closed. The tables and structs must outlive the GxConfig.
#ifndef GX_CONFIG_H
#define GX_CONFIG_H
#include "json.h"
#include <stdio.h>
GX_BEGIN

enum { GX_OPTION_TEXT = 256, GX_OPTION_LIST = 256 };
typedef struct {
    int n;
    int64_t v[GX_OPTION_LIST];
} GxIntList;

typedef enum {
    GX_OPTION_INT,     // int64_t
    GX_OPTION_DOUBLE,  // double, finite
    GX_OPTION_BOOL,    // int, 0 or 1
    GX_OPTION_STRING,  // char[GX_OPTION_TEXT]
    GX_OPTION_INT_LIST // GxIntList
} GxOptionType;

typedef struct {
    const char *name; // long, with_underscores
    GxOptionType type;
    size_t offset;            // offsetof(the struct, the field)
    const char *default_text; // as on the command line; NULL: 0, false, "", no elements
    const char *help;
    // NULL: anything; strings: "a|b|c"; numbers, and each of a list: "1..", "..5", "0..1", ends included.
    const char *allowed;
} GxOption;

typedef enum { GX_FROM_DEFAULT = 0, GX_FROM_FILE, GX_FROM_FLAG } GxOptionSource;

enum { GX_CONFIG_GROUPS = 8, GX_CONFIG_OPTIONS = 512, GX_CONFIG_ELSEWHERE = 8 };
typedef struct {
    const char *title;
    const GxOption *option;
    int n, first; // its options are numbers first to first + n - 1 of the config
    void *target; // the struct that they fill
} GxOptionGroup;
typedef struct {
    const GxOption *option;
    int n;
    const char *programs; // "train_llama_tp or train_llama_galaxy"
} GxOptionElsewhere;
typedef struct {
    GxOptionGroup group[GX_CONFIG_GROUPS];
    GxOptionElsewhere elsewhere[GX_CONFIG_ELSEWHERE];
    int groups, options, elsewheres;
    unsigned char source[GX_CONFIG_OPTIONS]; // GxOptionSource
    int help;                                // --help or -h was given: print it and stop
    char file[GX_PATH];                      // of --config; "": none
} GxConfig;

void gx_config_open(GxConfig *c);
// Adds a table and sets its options to their defaults.
GxStatus gx_config_add(GxConfig *c, const char *title, const GxOption *options, int n, void *target, GxError *err);
// A table that this program does not have, and other programs do: its options are refused with their names.
GxStatus gx_config_add_elsewhere(GxConfig *c, const GxOption *options, int n, const char *programs, GxError *err);
GxStatus gx_config_read_json(GxConfig *c, const char *path, GxError *err); // what flags have set stays
GxStatus gx_config_read_args(GxConfig *c, int argc, char **argv, GxError *err);
// Who set it last; no such option: GX_FROM_DEFAULT.
GxOptionSource gx_config_source(const GxConfig *c, const char *name);
int gx_config_is_set(const GxConfig *c, const char *name); // by file or flag
void gx_config_help(const GxConfig *c, FILE *out);
GxJson *gx_config_to_json(const GxConfig *c, GxError *err); // all options, resolved; NULL on failure; gx_json_free it
GxStatus gx_config_write_json(const GxConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_IMPLEMENTED)
#define GX_CONFIG_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GX__CONFIG_CAP = 1 << 20, GX__CONFIG_NAME_CAP = 64 };

typedef union { // a value before it is stored
    int64_t i;
    double d;
    int b;
    char s[GX_OPTION_TEXT];
    GxIntList list;
} gx__ConfigOptionValue;

void gx_config_open(GxConfig *c) { memset(c, 0, sizeof *c); }

// ---- values --------------------------------------------------------------------------------------------------------

static int gx__config_parse_int(const char *text, int64_t *out)
{
    char *end;
    if (strspn(text, "+-0123456789") != strlen(text)) return 0; // strtoll would skip white space
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

static int gx__config_parse_double(const char *text, double *out)
{
    char *end;
    if (strspn(text, "+-0123456789.eE") != strlen(text)) return 0; // strtod would take nan, inf and hexadecimals
    *out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*out);
}

static int gx__config_parse_bool(const char *text, int *out)
{
    *out = !strcmp(text, "true") || !strcmp(text, "1");
    return *out || !strcmp(text, "false") || !strcmp(text, "0");
}

// UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
static int gx__config_is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        int more = *p < 0x80                 ? 0
                   : *p >= 0xC2 && *p < 0xE0 ? 1
                   : *p >= 0xE0 && *p < 0xF0 ? 2
                   : *p >= 0xF0 && *p < 0xF5 ? 3
                                             : -1;
        if (more < 0) return 0;
        if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) || (*p == 0xF0 && p[1] < 0x90) ||
            (*p == 0xF4 && p[1] > 0x8F))
            return 0;
        for (p++; more > 0; more--, p++)
            if ((*p & 0xC0) != 0x80) return 0;
    }
    return 1;
}

static int gx__config_parse_string(const char *text, char *out)
{
    return gx__config_is_utf8(text) && snprintf(out, GX_OPTION_TEXT, "%s", text) < GX_OPTION_TEXT;
}

// "3,1", "[3, 1]", "[]" or "".
static int gx__config_parse_list(const char *text, GxIntList *out)
{
    char copy[GX_OPTION_LIST * 24], *p = copy;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return 0;
    if (*p == '[') {
        size_t n = strlen(p);
        if (p[n - 1] != ']') return 0;
        p[n - 1] = 0;
        p++;
    }
    out->n = 0;
    while (*p) {
        size_t n = strcspn(p, ",");
        int last = p[n] == 0;
        p[n] = 0;
        if (*p == ' ' && out->n > 0) p++, n--;
        if (out->n == GX_OPTION_LIST || !gx__config_parse_int(p, &out->v[out->n])) return 0;
        out->n++;
        p += n + !last;
        if (!last && !*p) return 0; // a comma at the end
    }
    return 1;
}

static int gx__config_option_parse(const GxOption *o, const char *text, gx__ConfigOptionValue *v)
{
    memset(v, 0, sizeof *v);
    switch (o->type) {
    case GX_OPTION_INT: return gx__config_parse_int(text, &v->i);
    case GX_OPTION_DOUBLE: return gx__config_parse_double(text, &v->d);
    case GX_OPTION_BOOL: return gx__config_parse_bool(text, &v->b);
    case GX_OPTION_STRING: return gx__config_parse_string(text, v->s);
    case GX_OPTION_INT_LIST: return gx__config_parse_list(text, &v->list);
    default: return 0;
    }
}

static int gx__config_option_from_json(const GxOption *o, const GxJson *json, gx__ConfigOptionValue *v)
{
    static const GxJsonType expected[] = {GX_JSON_INT, GX_JSON_REAL, GX_JSON_BOOL, GX_JSON_STRING, GX_JSON_ARRAY};
    GxJsonType type = gx_json_type(json);
    memset(v, 0, sizeof *v);
    if (type != expected[o->type] && !(o->type == GX_OPTION_DOUBLE && type == GX_JSON_INT)) return 0;
    switch (o->type) {
    case GX_OPTION_INT: v->i = gx_json_int(json); return 1;
    case GX_OPTION_DOUBLE: v->d = gx_json_double(json); return 1;
    case GX_OPTION_BOOL: v->b = gx_json_bool(json); return 1;
    case GX_OPTION_STRING: return gx__config_parse_string(gx_json_string(json), v->s);
    default: break;
    }
    if (gx_json_size(json) > GX_OPTION_LIST) return 0;
    v->list.n = (int)gx_json_size(json);
    for (int i = 0; i < v->list.n; i++) {
        v->list.v[i] = gx_json_int(gx_json_at(json, i));
        if (gx_json_type(gx_json_at(json, i)) != GX_JSON_INT) return 0;
    }
    return 1;
}

static GxJson *gx__config_option_to_json(const GxOption *o, const void *field, GxError *err)
{
    const GxIntList *list = (const GxIntList *)field;
    switch (o->type) {
    case GX_OPTION_INT: return gx_json_new_int(*(const int64_t *)field);
    case GX_OPTION_DOUBLE: return gx_json_new_double(*(const double *)field);
    case GX_OPTION_BOOL: return gx_json_new_bool(*(const int *)field);
    case GX_OPTION_STRING: return gx_json_new_string((const char *)field);
    default: break;
    }
    GxJson *array = gx_json_new_array();
    for (int i = 0; i < list->n; i++) gx_json_append(array, gx_json_new_int(list->v[i]), err);
    return array;
}

// "1..", "..5", "0..1"
static void gx__config_option_range(const GxOption *o, double *low, double *high)
{
    const char *dots = o->allowed ? strstr(o->allowed, "..") : NULL;
    char left[32];
    *low = -INFINITY;
    *high = INFINITY;
    if (!dots) return;
    snprintf(left, sizeof left, "%.*s", (int)(dots - o->allowed), o->allowed);
    if (left[0]) *low = strtod(left, NULL);
    if (dots[2]) *high = strtod(dots + 2, NULL);
}

static int gx__config_is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (!strncmp(p, text, n) && (p[n] == '|' || p[n] == 0)) return 1;
    return 0;
}

static int gx__config_option_allows(const GxOption *o, const gx__ConfigOptionValue *v)
{
    double low, high;
    if (!o->allowed || o->type == GX_OPTION_BOOL) return 1;
    if (o->type == GX_OPTION_STRING) return gx__config_is_choice(o->allowed, v->s);
    gx__config_option_range(o, &low, &high);
    if (o->type == GX_OPTION_INT) return (double)v->i >= low && (double)v->i <= high;
    if (o->type == GX_OPTION_DOUBLE) return v->d >= low && v->d <= high;
    for (int i = 0; i < v->list.n; i++)
        if ((double)v->list.v[i] < low || (double)v->list.v[i] > high) return 0;
    return 1;
}

static void gx__config_option_store(const GxOption *o, const gx__ConfigOptionValue *v, void *field)
{
    static const size_t sizes[] = {sizeof(int64_t), sizeof(double), sizeof(int), GX_OPTION_TEXT, sizeof(GxIntList)};
    memcpy(field, v, sizes[o->type]);
}

// "an integer, at least 1"
static void gx__config_option_expected(const GxOption *o, char *out, size_t size)
{
    static const char *const kinds[] = {"an integer", "a number", "true or false", "UTF-8 text of at most 255 bytes",
                                        "at most 256 integers, such as 3,1"};
    double low, high;
    gx__config_option_range(o, &low, &high);
    if (o->type == GX_OPTION_STRING && o->allowed) snprintf(out, size, "one of %s", o->allowed);
    else if (low > -INFINITY && high < INFINITY)
        snprintf(out, size, "%s from %.15g to %.15g", kinds[o->type], low, high);
    else if (low > -INFINITY) snprintf(out, size, "%s, at least %.15g", kinds[o->type], low);
    else if (high < INFINITY) snprintf(out, size, "%s, at most %.15g", kinds[o->type], high);
    else snprintf(out, size, "%s", kinds[o->type]);
}

static GxStatus gx__config_option_refuse(const GxOption *o, const char *who, const char *quote, const char *value,
                                         GxError *err)
{
    char expected[200];
    gx__config_option_expected(o, expected, sizeof expected);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %s%.100s%s; expected %s", who, quote, value, quote, expected);
}

// ---- the tables ----------------------------------------------------------------------------------------------------

// Number of the option of this name, or -1.
static int gx__config_find(const GxConfig *c, const char *name, const GxOption **option, void **field)
{
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const GxOption *o = &c->group[g].option[i];
            if (strcmp(o->name, name)) continue;
            *option = o;
            *field = (char *)c->group[g].target + o->offset;
            return c->group[g].first + i;
        }
    return -1;
}

GxStatus gx_config_add(GxConfig *c, const char *title, const GxOption *options, int n, void *target, GxError *err)
{
    if (c->groups == GX_CONFIG_GROUPS || c->options + n > GX_CONFIG_OPTIONS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the options \"%s\" do not fit: at most %d groups and %d options", title,
                       GX_CONFIG_GROUPS, GX_CONFIG_OPTIONS);
    GxOptionGroup group = {title, options, 0, c->options, target};
    GxOptionGroup *added = &c->group[c->groups++];
    *added = group;
    for (int i = 0; i < n; i++) {
        const GxOption *o = &options[i], *other;
        void *field;
        gx__ConfigOptionValue v;
        memset(&v, 0, sizeof v);
        if (gx__config_find(c, o->name, &other, &field) >= 0 || !strcmp(o->name, "config") || !strcmp(o->name, "help"))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "the option %s is described twice", o->name);
        if (strlen(o->name) >= GX__CONFIG_NAME_CAP)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "the option %s has too long a name", o->name);
        if (o->default_text && (!gx__config_option_parse(o, o->default_text, &v) || !gx__config_option_allows(o, &v)))
            return gx__config_option_refuse(o, o->name, "\"", o->default_text, err);
        gx__config_option_store(o, &v, (char *)target + o->offset);
        added->n++;
        c->options++;
    }
    return GX_OK;
}

GxStatus gx_config_add_elsewhere(GxConfig *c, const GxOption *options, int n, const char *programs, GxError *err)
{
    if (c->elsewheres == GX_CONFIG_ELSEWHERE)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the options of %s do not fit: at most %d tables of other programs",
                       programs, GX_CONFIG_ELSEWHERE);
    const GxOptionElsewhere added = {options, n, programs};
    c->elsewhere[c->elsewheres++] = added;
    return GX_OK;
}

GxOptionSource gx_config_source(const GxConfig *c, const char *name)
{
    const GxOption *o;
    void *field;
    int number = gx__config_find(c, name, &o, &field);
    return number < 0 ? GX_FROM_DEFAULT : (GxOptionSource)c->source[number];
}

int gx_config_is_set(const GxConfig *c, const char *name) { return gx_config_source(c, name) != GX_FROM_DEFAULT; }

// Insertions, deletions and replacements that turn a into b (Levenshtein).
static int gx__config_edit_distance(const char *a, const char *b)
{
    int row[GX__CONFIG_NAME_CAP + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = (int)gx_min(replaced, gx_min(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

// The option that was probably meant: few edits away, or beginning with what was typed. NULL: none is near.
static const char *gx__config_nearest(const GxConfig *c, const char *typed)
{
    const char *best = NULL;
    int length = (int)strlen(typed), least = 2 + length / 4;
    if (length >= GX__CONFIG_NAME_CAP) return NULL;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const char *name = c->group[g].option[i].name;
            int distance = gx__config_edit_distance(typed, name);
            if (length > 2 && !strncmp(name, typed, (size_t)length)) distance = (int)gx_min(distance, 2);
            if (distance >= least) continue;
            least = distance;
            best = name;
        }
    return best;
}

static const char *gx__config_programs(const GxConfig *c, const char *name) // that have this option; NULL: none
{
    for (int e = 0; e < c->elsewheres; e++)
        for (int i = 0; i < c->elsewhere[e].n; i++)
            if (!strcmp(c->elsewhere[e].option[i].name, name)) return c->elsewhere[e].programs;
    return NULL;
}

static GxStatus gx__config_unknown(const GxConfig *c, const char *where, const char *dashes, const char *name,
                                   GxError *err)
{
    const char *nearest = gx__config_nearest(c, name), *programs = gx__config_programs(c, name);
    if (programs)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s in this program; use %s, or leave it out",
                       where, dashes, name, programs);
    if (!nearest)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%.100s; --help lists them all", where, dashes,
                       name);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%.100s; did you mean %s%s?", where, dashes, name,
                   dashes, nearest);
}

// ---- files ---------------------------------------------------------------------------------------------------------

static GxStatus gx__config_read_member(GxConfig *c, const char *path, const GxJsonMember *m, GxError *err)
{
    const GxOption *o;
    void *field;
    gx__ConfigOptionValue v;
    char where[GX_PATH + 80]; // a path and a name
    if (!strcmp(m->key, "_comment")) return GX_OK;
    snprintf(where, sizeof where, "%s: ", path);
    int number = gx__config_find(c, m->key, &o, &field);
    if (number < 0) return gx__config_unknown(c, where, "", m->key, err);
    if (!gx__config_option_from_json(o, m->value, &v) || !gx__config_option_allows(o, &v)) {
        char *text;
        int64_t bytes;
        snprintf(where, sizeof where, "%s: %s", path, o->name);
        GX_TRY(gx_json_dump(m->value, 0, &text, &bytes, err));
        gx__config_option_refuse(o, where, "", text, err); // JSON brings its own quotation marks
        free(text);
        return GX_ERR_ARGUMENT;
    }
    if (c->source[number] == GX_FROM_FLAG) return GX_OK;
    gx__config_option_store(o, &v, field);
    c->source[number] = GX_FROM_FILE;
    return GX_OK;
}

GxStatus gx_config_read_json(GxConfig *c, const char *path, GxError *err)
{
    GxJson *root;
    GX_TRY(gx_json_read(&root, path, GX__CONFIG_CAP, err));
    GxStatus status = GX_OK;
    if (gx_json_type(root) != GX_JSON_OBJECT)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object {\"option\": value, …}", path,
                         gx_json_type_name(root));
    for (GxJsonMember m = GX_ZERO; status == GX_OK && gx_json_next(root, &m);)
        status = gx__config_read_member(c, path, &m, err);
    gx_json_free(root);
    return status;
}

GxJson *gx_config_to_json(const GxConfig *c, GxError *err)
{
    GxJson *root = gx_json_new_object();
    GxStatus status = GX_OK;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n && status == GX_OK; i++) {
            const GxOption *o = &c->group[g].option[i];
            status = gx_json_set(root, o->name,
                                 gx__config_option_to_json(o, (const char *)c->group[g].target + o->offset, err), err);
        }
    if (status == GX_OK) return root;
    gx_json_free(root);
    return NULL;
}

GxStatus gx_config_write_json(const GxConfig *c, const char *path, GxError *err)
{
    GxJson *root = gx_config_to_json(c, err);
    if (!root) return gx_error_code(err);
    GxStatus status = gx_json_write(root, path, err);
    gx_json_free(root);
    return status;
}

// ---- the command line ----------------------------------------------------------------------------------------------

static GxStatus gx__config_file_flag(GxConfig *c, const char *value, GxError *err)
{
    if (!value) return GX_FAIL(err, GX_ERR_ARGUMENT, "--config needs a value: a JSON file");
    if (c->file[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--config is given twice");
    if (snprintf(c->file, GX_PATH, "%s", value) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--config: the path is longer than %d bytes", GX_PATH - 1);
    return gx_config_read_json(c, value, err);
}

// `value` is NULL if none was given.
static GxStatus gx__config_flag(GxConfig *c, int number, const GxOption *o, void *field, const char *value,
                                GxError *err)
{
    char who[GX__CONFIG_NAME_CAP + 2], expected[200];
    gx__ConfigOptionValue v;
    snprintf(who, sizeof who, "--%s", o->name);
    gx__config_option_expected(o, expected, sizeof expected);
    if (c->source[number] == GX_FROM_FLAG) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is given twice", who);
    if (!value) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s needs a value: %s", who, expected);
    if (!gx__config_option_parse(o, value, &v) || !gx__config_option_allows(o, &v))
        return gx__config_option_refuse(o, who, "\"", value, err);
    gx__config_option_store(o, &v, field);
    c->source[number] = GX_FROM_FLAG;
    return GX_OK;
}

// Is the argument behind a flag its value? What begins with -- is the next flag; only true and false belong to a bool.
static int gx__config_takes(const GxOption *o, const char *next)
{
    int b;
    if (!next || !strncmp(next, "--", 2)) return 0;
    return !o || o->type != GX_OPTION_BOOL || gx__config_parse_bool(next, &b);
}

GxStatus gx_config_read_args(GxConfig *c, int argc, char **argv, GxError *err)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '='), *value = equals ? equals + 1 : NULL;
        const GxOption *o = NULL;
        char name[GX_OPTION_TEXT];
        void *field = NULL;
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            c->help = 1;
            return GX_OK;
        }
        if (strncmp(arg, "--", 2) || !arg[2])
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "\"%.100s\" is not a flag: options are written --name value; --help lists them", arg);
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - arg - 2) : GX_OPTION_TEXT, arg + 2);
        int number = gx__config_find(c, name, &o, &field), is_config = !strcmp(name, "config");
        if (number < 0 && !is_config) return gx__config_unknown(c, "", "--", name, err);
        if (!value && gx__config_takes(o, i + 1 < argc ? argv[i + 1] : NULL)) value = argv[++i];
        if (!value && o && o->type == GX_OPTION_BOOL) value = "true";
        if (is_config) GX_TRY(gx__config_file_flag(c, value, err));
        else GX_TRY(gx__config_flag(c, number, o, field, value, err));
    }
    return GX_OK;
}

// ---- help ----------------------------------------------------------------------------------------------------------

static int gx__config_option_flag(const GxOption *o, char *out, size_t size) // "--seq_len N"; its length
{
    static const char *const kinds[] = {" N", " X", "", " TEXT", " N,N,…"};
    int length = snprintf(out, size, "--%s%s", o->name, kinds[o->type]);
    return o->type == GX_OPTION_INT_LIST ? length - 2 : length; // … is three bytes and one column
}

void gx_config_help(const GxConfig *c, FILE *out)
{
    static const char *const nothing[] = {"0", "0", "false", "none", "none"};
    char flag[GX__CONFIG_NAME_CAP + 16], expected[200];
    int width = (int)strlen("--config FILE");
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++)
            width = (int)gx_max(width, gx__config_option_flag(&c->group[g].option[i], flag, sizeof flag));
    fprintf(out, "  %-*s  options from a JSON file with the same names; flags win over it\n", width, "--config FILE");
    fprintf(out, "  %-*s  this text\n", width, "--help");
    for (int g = 0; g < c->groups; g++) {
        fprintf(out, "\n%s\n", c->group[g].title);
        for (int i = 0; i < c->group[g].n; i++) {
            const GxOption *o = &c->group[g].option[i];
            int length = gx__config_option_flag(o, flag, sizeof flag);
            gx__config_option_expected(o, expected, sizeof expected);
            fprintf(out, "  %s%*s  %s (", flag, width - length, "", o->help);
            if (o->allowed) fprintf(out, "%s; ", expected);
            fprintf(out, "default: %s)\n", o->default_text && o->default_text[0] ? o->default_text : nothing[o->type]);
        }
    }
}
#endif
