// config_args.h: options on the command line: --key value, --key=value, --flag (a bool: true), lists as 3,1 or [3,1],
// --config file.json (wherever it stands, flags win over it), --help (config_help.h), --version.
//
// Of two equal flags the last counts, so that a script's own can be followed by its caller's (of texts, GX_FIELD_TEXTS,
// all count); so does the last of two --config, alone: the other file is not read. All else is refused by name: unknown
// flags ("did you mean"), values of another type (also of a flag that a later one replaces), rubbish behind a number,
// overflow, NaN, values out of range, bare words.
#ifndef GX_CONFIG_ARGS_H
#define GX_CONFIG_ARGS_H
#include "config.h"
GX_BEGIN

GxStatus gx_config_read_args(GxConfig *c, int argc, char **argv, GxError *err);
// Before any options are read: the value of the last --name value or --name=value; NULL: there is none.
const char *gx_config_argument(int argc, char **argv, const char *name);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_ARGS_IMPLEMENTED)
#define GX_CONFIG_ARGS_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "config_help.h"
#include "config_json.h"
#include "config_unknown.h"

static GxStatus gx__config_read_file(GxConfig *c, const char *path, GxError *err)
{
    if (snprintf(c->file, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--config: the path is longer than %d bytes", GX_PATH - 1);
    return gx_config_read_json(c, path, err);
}

// `value` is NULL if none was given.
static GxStatus gx__config_flag(GxConfig *c, int number, const GxField *o, void *target, const char *value,
                                GxError *err)
{
    char who[GX_CONFIG_NAME_CAP + 2], expected[200];
    GxFieldValue v;
    snprintf(who, sizeof who, "--%s", o->name);
    gx_field_expected(o, expected, sizeof expected);
    if (!value) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s needs a value: %s", who, expected);
    if (!gx_field_parse(o, value, &v) || !gx_field_allows(o, &v))
        return gx_field_refuse(o, who, "\"", value, GX_ERR_ARGUMENT, err);
    if (o->type != GX_FIELD_TEXTS || c->source[number] != GX_FROM_FLAG) gx_field_store(o, &v, target);
    else if (!gx_field_add_texts(o, &v, target)) return gx_field_refuse(o, who, "\"", value, GX_ERR_ARGUMENT, err);
    c->source[number] = GX_FROM_FLAG;
    return GX_OK;
}

// Is the argument behind a flag its value? What begins with -- is the next flag; only true and false belong to a bool.
static int gx__config_takes(const GxField *o, const char *next)
{
    int b;
    if (!next || !strncmp(next, "--", 2)) return 0;
    return !o || o->type != GX_FIELD_BOOL || gx_field_parse_bool(next, &b);
}

// next: the argument behind --help. A flag there is none of its words.
static GxStatus gx__config_ask_help(GxConfig *c, const char *next, GxError *err)
{
    char cut[GX_TEXT_VALUE];
    if (!next || next[0] == '-') return GX_OK;
    snprintf(c->help_about, sizeof c->help_about, "%s", next);
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++)
            if (gx_config_is_about(c, &c->group[g], i)) return GX_OK;
    c->help = 0;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--help %s: no option and no group of options has that in its name; --help all shows every option",
                   gx_text_cut(next, cut, sizeof cut));
}

// A word that is no option, behind another one, which may be an option that takes only true or false.
static GxStatus gx__config_refuse_word(const GxConfig *c, const char *before, const char *word, GxError *err)
{
    const GxField *o = NULL;
    void *target;
    char cut[GX_TEXT_VALUE];
    gx_text_cut(word, cut, sizeof cut);
    if (!strncmp(before, "--", 2) && gx_config_find(c, before + 2, &o, &target) >= 0 && o->type == GX_FIELD_BOOL)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is followed by \"%s\"; expected true or false, or the next option",
                       before, cut);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "\"%s\" is not an option: options are written --name value; --help lists them",
                   cut);
}

GxStatus gx_config_read_args(GxConfig *c, int argc, char **argv, GxError *err)
{
    const char *file = NULL; // of the last --config: read when all flags are known
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '='), *value = equals ? equals + 1 : NULL;
        const GxField *o = NULL;
        char name[GX_FIELD_TEXT], cut[GX_TEXT_VALUE];
        void *target = NULL;
        c->help = !strcmp(arg, "--help") || !strcmp(arg, "-h");
        c->version = !strcmp(arg, "--version");
        if (c->help) return gx__config_ask_help(c, i + 1 < argc ? argv[i + 1] : NULL, err);
        if (c->version) return GX_OK;
        if (strncmp(arg, "--", 2) || !arg[2]) return gx__config_refuse_word(c, i > 1 ? argv[i - 1] : "", arg, err);
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - arg - 2) : GX_FIELD_TEXT, arg + 2);
        int number = gx_config_find(c, name, &o, &target), is_config = !strcmp(name, "config");
        if (gx_config_is_reserved(name) && !is_config)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: --%s takes no value; leave out \"%s\"",
                           gx_text_cut(arg, cut, sizeof cut), name, equals);
        if (number < 0 && !is_config) return gx_config_refuse_unknown(c, "", "--", name, err);
        if (!value && gx__config_takes(o, i + 1 < argc ? argv[i + 1] : NULL)) value = argv[++i];
        if (!value && o && o->type == GX_FIELD_BOOL) value = "true";
        if (is_config && !value) return GX_FAIL(err, GX_ERR_ARGUMENT, "--config needs a value: a JSON file");
        if (is_config) file = value;
        else GX_TRY(gx__config_flag(c, number, o, target, value, err));
    }
    return file ? gx__config_read_file(c, file, err) : GX_OK;
}

const char *gx_config_argument(int argc, char **argv, const char *name)
{
    const char *last = NULL;
    const size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) || strncmp(argv[i] + 2, name, n)) continue;
        if (argv[i][2 + n] == '=') last = argv[i] + 3 + n;
        if (argv[i][2 + n] == 0 && i + 1 < argc && strncmp(argv[i + 1], "--", 2)) last = argv[i + 1];
    }
    return last;
}
#endif
