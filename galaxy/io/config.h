// config.h: options as data. A program describes its options in tables of fields (base/fields.h). From these tables
// come the defaults, what is read from command lines (config_args.h) and JSON files (config_json.h), --help
// (config_help.h), and the resolved configuration that is saved beside a run (config_json.h).
//
//     typedef struct { int64_t seq_len; double learning_rate; char precision[GX_FIELD_TEXT]; } Options;
//     static const GxField table[] = {
//         {"seq_len", GX_FIELD_INT, offsetof(Options, seq_len), "256", "tokens in a sample", "1.."},
//         {"learning_rate", GX_FIELD_DOUBLE, offsetof(Options, learning_rate), "3e-4", "of the largest step", "0.."},
//         {"precision", GX_FIELD_STRING, offsetof(Options, precision), "fp32", "of the activations", "fp32|bf16|fp16"},
//     };
//     Options o;
//     GxConfig c;
//     gx_config_open(&c);
//     GX_TRY(gx_config_add(&c, "Training", GX_FIELDS(table), &o, err)); // o holds the defaults
//     GX_TRY(gx_config_read_args(&c, argc, argv, err));                 // o holds what the user said
//     if (c.help) gx_config_help(&c, NULL, 0, stdout, 80);
//
// What is no option is refused by name (config_unknown.h), and so is a value that an option does not allow. Nothing is
// allocated; nothing needs to be closed. The tables and structs must outlive the GxConfig.
#ifndef GX_CONFIG_H
#define GX_CONFIG_H
#include "../base/fields.h"
#include "../base/status.h"
GX_BEGIN

// Later ones win. GX_FROM_CHECKPOINT: of the run that is gone on with; what was not said now.
typedef enum { GX_FROM_DEFAULT = 0, GX_FROM_CHECKPOINT, GX_FROM_FILE, GX_FROM_FLAG } GxOptionSource;

enum {
    GX_CONFIG_GROUPS = 16,
    GX_CONFIG_OPTIONS = 512,
    GX_CONFIG_ELSEWHERE = 16,
    GX_CONFIG_ALIASES = 16,
    GX_CONFIG_NAME_CAP = 64 // bytes of an option's name, with the terminating 0
};
typedef struct {
    const char *title;
    const GxField *option;
    int n, first; // its options are numbers first to first + n - 1 of the config
    void *target; // the struct that they fill
} GxOptionGroup;
typedef struct {
    const GxField *option;
    int n;
    char programs[80]; // "train_llama"
} GxOptionElsewhere;
typedef struct {      // what another program calls something, for the message about an unknown option
    const char *name; // "fp16"; "hub_*": every name that begins so
    const char *use;  // the option that does the same here, and perhaps its value: "precision bf16"; "": there is none
    const char *why;  // more about it; NULL: nothing. Where there is no option, why not
} GxConfigHint;
typedef struct {
    GxOptionGroup group[GX_CONFIG_GROUPS];
    GxOptionElsewhere elsewhere[GX_CONFIG_ELSEWHERE];
    struct {
        const char *name, *option;
    } alias[GX_CONFIG_ALIASES];
    struct {
        const char *name, *option;
    } meant[GX_CONFIG_ALIASES];
    const GxConfigHint *hint; // [hints]
    int groups, options, elsewheres, aliases, meants, hints;
    unsigned char source[GX_CONFIG_OPTIONS]; // GxOptionSource
    int help, version;                       // --help or -h, --version was given: print it and stop
    char help_about[GX_FIELD_TEXT];          // the word behind --help; "": none
    char file[GX_PATH];                      // of --config; "": none
} GxConfig;

void gx_config_open(GxConfig *c);
// Adds a table and sets its options to their defaults. --help shows tables of one title, one behind the other, as one.
GxStatus gx_config_add(GxConfig *c, const char *title, const GxField *options, int n, void *target, GxError *err);
// A table that this program does not have, and other programs do, or another choice of this one's ("--task embedding"):
// its options are refused with their names ("use train_llama, or leave it out"), which may have 79 bytes.
GxStatus gx_config_add_elsewhere(GxConfig *c, const GxField *options, int n, const char *programs, GxError *err);
// Another name under which an option may be given; it is shown and saved under its own. Both are lent.
GxStatus gx_config_add_alias(GxConfig *c, const char *name, const char *option, GxError *err);
// A name that is no option, and is too far from the one that is meant to be told from typing alone. Both are lent.
GxStatus gx_config_add_meant(GxConfig *c, const char *name, const char *option, GxError *err);
// Names that users of other programs may try; the table is lent. An option of one of these names is not affected.
void gx_config_set_hints(GxConfig *c, const GxConfigHint *hint, int n);
// Back to its default, unless flags or a file have set it.
void gx_config_forget(GxConfig *c, const char *name);
// All options back to their defaults, whoever has set them, but those of these names (NULL at the end).
void gx_config_reset(GxConfig *c, const char *const *but);
// Who set it last; no such option: GX_FROM_DEFAULT.
GxOptionSource gx_config_source(const GxConfig *c, const char *name);
int gx_config_is_set(const GxConfig *c, const char *name); // by file or flag

// For the other headers of this name, config_*.h.
// Number of the option of this name, or -1.
int gx_config_find(const GxConfig *c, const char *name, const GxField **option, void **target);
int gx_config_is_reserved(const char *name);                     // 1: a flag of every program: config, help, version
int gx_config_is_in(const char *const *names, const char *name); // names: NULL at the end; NULL: none

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_IMPLEMENTED)
#define GX_CONFIG_IMPLEMENTED
#include <stdio.h>
#include <string.h>

void gx_config_open(GxConfig *c) { memset(c, 0, sizeof *c); }

int gx_config_find(const GxConfig *c, const char *name, const GxField **option, void **target)
{
    for (int i = 0; i < c->aliases; i++)
        if (!strcmp(c->alias[i].name, name)) name = c->alias[i].option;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const GxField *o = &c->group[g].option[i];
            if (strcmp(o->name, name)) continue;
            *option = o;
            *target = c->group[g].target;
            return c->group[g].first + i;
        }
    return -1;
}

int gx_config_is_reserved(const char *name)
{
    return !strcmp(name, "config") || !strcmp(name, "help") || !strcmp(name, "version");
}

GxStatus gx_config_add(GxConfig *c, const char *title, const GxField *options, int n, void *target, GxError *err)
{
    if (c->groups == GX_CONFIG_GROUPS || c->options + n > GX_CONFIG_OPTIONS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the options \"%s\" do not fit: at most %d groups and %d options", title,
                       GX_CONFIG_GROUPS, GX_CONFIG_OPTIONS);
    GxOptionGroup group = {title, options, 0, c->options, target};
    GxOptionGroup *added = &c->group[c->groups++];
    *added = group;
    for (int i = 0; i < n; i++) {
        const GxField *o = &options[i], *other;
        void *others;
        GxFieldValue v;
        memset(&v, 0, sizeof v);
        if (gx_config_find(c, o->name, &other, &others) >= 0 || gx_config_is_reserved(o->name))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "the option %s is described twice", o->name);
        if (strlen(o->name) >= GX_CONFIG_NAME_CAP)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "the option %s has too long a name", o->name);
        if (o->default_text && (!gx_field_parse(o, o->default_text, &v) || !gx_field_allows(o, &v)))
            return gx_field_refuse(o, o->name, "\"", o->default_text, GX_ERR_ARGUMENT, err);
        gx_field_store(o, &v, target);
        added->n++;
        c->options++;
    }
    return GX_OK;
}

GxStatus gx_config_add_alias(GxConfig *c, const char *name, const char *option, GxError *err)
{
    const GxField *o;
    void *target;
    if (c->aliases == GX_CONFIG_ALIASES || gx_config_find(c, name, &o, &target) >= 0 ||
        gx_config_find(c, option, &o, &target) < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s cannot be another name of the option %s", name, option);
    c->alias[c->aliases].name = name, c->alias[c->aliases].option = option;
    c->aliases++;
    return GX_OK;
}

GxStatus gx_config_add_meant(GxConfig *c, const char *name, const char *option, GxError *err)
{
    if (c->meants == GX_CONFIG_ALIASES)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "no room for %s, meant as %s", name, option);
    c->meant[c->meants].name = name, c->meant[c->meants].option = option;
    c->meants++;
    return GX_OK;
}

void gx_config_set_hints(GxConfig *c, const GxConfigHint *hint, int n) { c->hint = hint, c->hints = n; }

GxStatus gx_config_add_elsewhere(GxConfig *c, const GxField *options, int n, const char *programs, GxError *err)
{
    if (c->elsewheres == GX_CONFIG_ELSEWHERE)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the options of %s do not fit: at most %d tables of other programs",
                       programs, GX_CONFIG_ELSEWHERE);
    GxOptionElsewhere *added = &c->elsewhere[c->elsewheres++];
    added->option = options, added->n = n;
    snprintf(added->programs, sizeof added->programs, "%s", programs);
    return GX_OK;
}

GxOptionSource gx_config_source(const GxConfig *c, const char *name)
{
    const GxField *o;
    void *target;
    int number = gx_config_find(c, name, &o, &target);
    return number < 0 ? GX_FROM_DEFAULT : (GxOptionSource)c->source[number];
}

int gx_config_is_set(const GxConfig *c, const char *name) { return gx_config_source(c, name) > GX_FROM_CHECKPOINT; }

int gx_config_is_in(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (!strcmp(*names, name)) return 1;
    return 0;
}

static void gx__config_to_default(GxConfig *c, int number, const GxField *o, void *target)
{
    GxFieldValue v;
    memset(&v, 0, sizeof v);
    if (o->default_text) gx_field_parse(o, o->default_text, &v); // sound: gx_config_add has looked
    gx_field_store(o, &v, target);
    c->source[number] = GX_FROM_DEFAULT;
}

void gx_config_forget(GxConfig *c, const char *name)
{
    const GxField *o;
    void *target;
    const int number = gx_config_find(c, name, &o, &target);
    if (number >= 0 && c->source[number] <= GX_FROM_CHECKPOINT) gx__config_to_default(c, number, o, target);
}

void gx_config_reset(GxConfig *c, const char *const *but)
{
    for (int k = 0; k < c->groups; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *o = &c->group[k].option[i];
            if (!gx_config_is_in(but, o->name)) gx__config_to_default(c, c->group[k].first + i, o, c->group[k].target);
        }
}
#endif
