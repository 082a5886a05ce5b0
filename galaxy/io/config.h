// config.h: options as data. A program describes its options in tables of fields (base/fields.h); defaults, JSON files,
// command lines, --help and the resolved configuration that is saved beside a run all come from these tables.
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
// On the command line: --key value, --key=value, --flag (a bool: true), lists as 3,1 or [3,1], --config file.json
// (wherever it stands, flags win over it), --help, --version. --help shows the options that most people need, where the
// program names them, --help all every option, and --help WORD those with WORD in their names or their group's. Of two
// equal flags the last counts, so that a script's own can be followed by its caller's (of texts, GX_FIELD_TEXTS, all
// count); so does the last of two --config, alone: the other file is not read. In JSON: one flat object, the same
// names, JSON types; "_comment" is ignored. All else is refused by name: unknown keys ("did you mean"), a key twice in
// a file, values of another type (also of a flag that a later one replaces), rubbish behind a number, overflow, NaN,
// values out of range, bare words. Nothing is allocated; nothing needs to be closed. The tables and structs must
// outlive the GxConfig.
#ifndef GX_CONFIG_H
#define GX_CONFIG_H
#include "../base/text.h"
#include "json_fields.h"
#include <stdio.h>
GX_BEGIN

// Later ones win. GX_FROM_CHECKPOINT: of the run that is gone on with; what was not said now.
typedef enum { GX_FROM_DEFAULT = 0, GX_FROM_CHECKPOINT, GX_FROM_FILE, GX_FROM_FLAG } GxOptionSource;

enum { GX_CONFIG_GROUPS = 16, GX_CONFIG_OPTIONS = 512, GX_CONFIG_ELSEWHERE = 16, GX_CONFIG_ALIASES = 16 };
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
// A line of the short --help.
typedef struct {
    const char *title;  // what the options from here on are for; NULL: as the line before
    const char *option; // by its name; a program that does not have it leaves the line out
    const char *help;   // in fewer words than the option's own
} GxHelpLine;

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
GxStatus gx_config_read_json(GxConfig *c, const char *path, GxError *err); // what flags have set stays
GxStatus gx_config_read_args(GxConfig *c, int argc, char **argv, GxError *err);
// Before any options are read: the value of the last --name value or --name=value; NULL: there is none.
const char *gx_config_argument(int argc, char **argv, const char *name);
// Options of an earlier run, as gx_config_to_json gave them: those that neither flags nor a file have set take the
// values that they had then; what a file says just as it was then counts as not set. Left out are names in `without`
// (NULL at the end), and what this program does not have.
GxStatus gx_config_take(GxConfig *c, const GxJson *earlier, const char *const *without, const char *path, GxError *err);
// The names in `earlier` that are options neither of this program nor of others: "a, b"; "": there are none. size: at
// least 4; what does not fit ends with an ellipsis.
void gx_config_unknown(const GxConfig *c, const GxJson *earlier, char *names, size_t size);
// Back to its default, unless flags or a file have set it.
void gx_config_forget(GxConfig *c, const char *name);
// All options back to their defaults, whoever has set them, but those of these names (NULL at the end).
void gx_config_reset(GxConfig *c, const char *const *but);
// Who set it last; no such option: GX_FROM_DEFAULT.
GxOptionSource gx_config_source(const GxConfig *c, const char *name);
int gx_config_is_set(const GxConfig *c, const char *name); // by file or flag
// Edits from what was typed to a name that was probably meant, or begins with it; -1: it is not near.
int gx_typing_distance(const char *typed, const char *name);
// Lines of at most `width` columns: each option, what it is for, what it may be, its default; behind --help alone those
// of `common` instead, if there are any. Text before it (the usage) is the program's.
void gx_config_help(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width);
GxJson *gx_config_to_json(const GxConfig *c, GxError *err); // all options, resolved; NULL on failure; gx_json_free it
GxJson *gx_config_changed_to_json(const GxConfig *c, GxError *err); // those that have another value than their default
GxStatus gx_config_write_json(const GxConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_IMPLEMENTED)
#define GX_CONFIG_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

enum { GX__CONFIG_CAP = 1 << 20, GX__CONFIG_NAME_CAP = 64 };

void gx_config_open(GxConfig *c) { memset(c, 0, sizeof *c); }

// ---- the tables ----------------------------------------------------------------------------------------------------

// Number of the option of this name, or -1.
static int gx__config_find(const GxConfig *c, const char *name, const GxField **option, void **target)
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

static int gx__config_is_reserved(const char *name)
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
        if (gx__config_find(c, o->name, &other, &others) >= 0 || gx__config_is_reserved(o->name))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "the option %s is described twice", o->name);
        if (strlen(o->name) >= GX__CONFIG_NAME_CAP)
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
    if (c->aliases == GX_CONFIG_ALIASES || gx__config_find(c, name, &o, &target) >= 0 ||
        gx__config_find(c, option, &o, &target) < 0)
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
    int number = gx__config_find(c, name, &o, &target);
    return number < 0 ? GX_FROM_DEFAULT : (GxOptionSource)c->source[number];
}

int gx_config_is_set(const GxConfig *c, const char *name) { return gx_config_source(c, name) > GX_FROM_CHECKPOINT; }

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

int gx_typing_distance(const char *typed, const char *name)
{
    const int length = (int)strlen(typed);
    if (length >= GX__CONFIG_NAME_CAP || strlen(name) >= GX__CONFIG_NAME_CAP) return -1;
    int distance = gx__config_edit_distance(typed, name);
    if (length > 2 && !strncmp(name, typed, (size_t)length)) distance = (int)gx_min(distance, 2);
    return distance < 2 + length / 4 ? distance : -1;
}

// The option that was probably meant. NULL: none is near.
static const char *gx__config_nearest(const GxConfig *c, const char *typed)
{
    const char *best = NULL;
    int least = 0;
    for (int i = 0; i < c->meants; i++)
        if (!strcmp(c->meant[i].name, typed)) return c->meant[i].option;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const char *name = c->group[g].option[i].name;
            const int distance = gx_typing_distance(typed, name);
            if (distance < 0 || (best && distance >= least)) continue;
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

// All of them: "--task classification or --task embedding".
static void gx__config_all_programs(const GxConfig *c, const char *name, char *programs, size_t size)
{
    size_t at = 0;
    for (int e = 0; e < c->elsewheres; e++)
        for (int i = 0; i < c->elsewhere[e].n && at < size; i++)
            if (!strcmp(c->elsewhere[e].option[i].name, name))
                at += (size_t)snprintf(programs + at, size - at, "%s%s", at ? " or " : "", c->elsewhere[e].programs);
}

static const GxConfigHint *gx__config_hint(const GxConfig *c, const char *name) // NULL: there is none
{
    for (int i = 0; i < c->hints; i++) {
        const size_t n = strlen(c->hint[i].name), is_prefix = c->hint[i].name[n - 1] == '*';
        if (is_prefix ? !strncmp(c->hint[i].name, name, n - 1) : !strcmp(c->hint[i].name, name)) return &c->hint[i];
    }
    return NULL;
}

// Where the option of a hint is one of another task or program, that is said, too.
static GxStatus gx__config_explain(const GxConfig *c, const char *where, const char *dashes, const char *name,
                                   const GxConfigHint *h, GxError *err)
{
    const char *why = h->why ? h->why : "", *colon = h->why ? ": " : "";
    const GxField *o;
    void *target;
    char cut[GX_TEXT_VALUE], option[GX__CONFIG_NAME_CAP], of[340] = "";
    gx_text_cut(name, cut, sizeof cut);
    if (!h->use[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s%s%s; leave it out", where, dashes, cut, colon,
                       why);
    snprintf(option, sizeof option, "%.*s", (int)strcspn(h->use, " "), h->use);
    if (gx__config_find(c, option, &o, &target) < 0) {
        gx__config_all_programs(c, option, of + 4, sizeof of - 4);
        if (!of[4])
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s%s%s; leave it out", where, dashes, cut,
                           colon, why);
        memcpy(of, " of ", 4);
    }
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s; use %s%s%s%s%s", where, dashes, cut, dashes,
                   h->use, of, colon, why);
}

static GxStatus gx__config_unknown(const GxConfig *c, const char *where, const char *dashes, const char *name,
                                   GxError *err)
{
    const char *nearest = gx__config_nearest(c, name), *programs = gx__config_programs(c, name);
    char cut[GX_TEXT_VALUE], all[300];
    if (programs && programs[0] == '-') {
        gx__config_all_programs(c, name, all, sizeof all);
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%sthere is no option %s%s for this task; it belongs to %s: choose that, or leave the option out", where,
            dashes, name, all);
    }
    if (programs)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s in this program; use %s, or leave it out",
                       where, dashes, name, programs);
    const GxConfigHint *hint = gx__config_hint(c, name);
    if (hint) return gx__config_explain(c, where, dashes, name, hint, err);
    if (!nearest)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s; --help lists them all", where, dashes,
                       gx_text_cut(name, cut, sizeof cut));
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s; did you mean %s%s?", where, dashes,
                   gx_text_cut(name, cut, sizeof cut), dashes, nearest);
}

// ---- files ---------------------------------------------------------------------------------------------------------

static GxStatus gx__config_read_member(GxConfig *c, const char *path, const GxJsonMember *m, GxError *err)
{
    const GxField *o;
    void *target;
    char where[GX_PATH + 4];
    if (!strcmp(m->key, "_comment")) return GX_OK;
    snprintf(where, sizeof where, "%s: ", path);
    int number = gx__config_find(c, m->key, &o, &target);
    if (number < 0) return gx__config_unknown(c, where, "", m->key, err);
    const int flag_wins = c->source[number] == GX_FROM_FLAG; // the file's value must be sound all the same
    GX_TRY(gx_json_take_field(m->value, o, flag_wins ? NULL : target, path, GX_ERR_ARGUMENT, err));
    if (!flag_wins) c->source[number] = GX_FROM_FILE;
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
    for (int i = 0; status == GX_OK && i < c->aliases; i++)
        if (gx_json_get(root, c->alias[i].name) && gx_json_get(root, c->alias[i].option))
            status = GX_FAIL(err, GX_ERR_ARGUMENT, "%s has \"%s\" and \"%s\", which are one option; leave one out",
                             path, c->alias[i].name, c->alias[i].option);
    for (GxJsonMember m = GX_ZERO; status == GX_OK && gx_json_next(root, &m);)
        status = gx__config_read_member(c, path, &m, err);
    gx_json_free(root);
    return status;
}

static int gx__config_is_in(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (!strcmp(*names, name)) return 1;
    return 0;
}

static int gx__config_is_same(const GxField *o, const GxJson *value, const void *target)
{
    GxFieldValue v;
    GxField alone = *o;
    alone.offset = 0;
    return gx_field_from_json(o, value, &v) && gx_field_same(&alone, &v, gx_field_in(o, target));
}

GxStatus gx_config_take(GxConfig *c, const GxJson *earlier, const char *const *without, const char *path, GxError *err)
{
    if (gx_json_type(earlier) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object", path, gx_json_type_name(earlier));
    for (GxJsonMember m = GX_ZERO; gx_json_next(earlier, &m);) {
        const GxField *o;
        void *target;
        const int number = gx__config_find(c, m.key, &o, &target);
        if (number < 0 || gx__config_is_in(without, m.key)) continue;
        const int is_set = c->source[number] > GX_FROM_CHECKPOINT; // what was written then must be sound all the same
        GX_TRY(gx_json_take_field(m.value, o, is_set ? NULL : target, path, GX_ERR_FORMAT, err));
        if (!is_set || (c->source[number] == GX_FROM_FILE && gx__config_is_same(o, m.value, target)))
            c->source[number] = GX_FROM_CHECKPOINT; // a file that was given again has not changed it
    }
    return GX_OK;
}

void gx_config_unknown(const GxConfig *c, const GxJson *earlier, char *names, size_t size)
{
    size_t length = 0;
    names[0] = 0;
    for (GxJsonMember m = GX_ZERO; length < size && gx_json_next(earlier, &m);) {
        const GxField *o;
        void *target;
        if (gx__config_find(c, m.key, &o, &target) >= 0 || gx__config_programs(c, m.key)) continue;
        if (strcmp(m.key, "_comment"))
            length += (size_t)snprintf(names + length, size - length, "%s%s", length ? ", " : "", m.key);
    }
    if (length >= size) gx_text_mark_cut(names, size);
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
    const int number = gx__config_find(c, name, &o, &target);
    if (number >= 0 && c->source[number] <= GX_FROM_CHECKPOINT) gx__config_to_default(c, number, o, target);
}

void gx_config_reset(GxConfig *c, const char *const *but)
{
    for (int k = 0; k < c->groups; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *o = &c->group[k].option[i];
            if (!gx__config_is_in(but, o->name)) gx__config_to_default(c, c->group[k].first + i, o, c->group[k].target);
        }
}

GxJson *gx_config_to_json(const GxConfig *c, GxError *err)
{
    GxJson *root = gx_json_new_object();
    GxStatus status = GX_OK;
    for (int g = 0; g < c->groups && status == GX_OK; g++)
        status = gx_json_set_fields(root, c->group[g].option, c->group[g].n, c->group[g].target, err);
    if (status == GX_OK) return root;
    gx_json_free(root);
    return NULL;
}

static int gx__config_is_default(const GxField *f, const void *target, GxError *err)
{
    GxFieldValue v;
    void *usual = calloc(1, f->offset + gx_field_size(f)); // as much of the struct as the field needs
    memset(&v, 0, sizeof v);
    if (!usual) GX_FAIL(err, GX_ERR_MEMORY, "no memory for the option %s", f->name);
    if (f->default_text) gx_field_parse(f, f->default_text, &v); // sound: gx_config_add has looked
    if (usual) gx_field_store(f, &v, usual);
    const int is_same = usual && gx_field_same(f, usual, target);
    free(usual);
    return is_same;
}

GxJson *gx_config_changed_to_json(const GxConfig *c, GxError *err)
{
    GxJson *root = gx_json_new_object();
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const GxField *f = &c->group[g].option[i];
            if (!gx__config_is_default(f, c->group[g].target, err))
                gx_json_set_fields(root, f, 1, c->group[g].target, err);
        }
    if (gx_error_code(err) == GX_OK) return root;
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
    char who[GX__CONFIG_NAME_CAP + 2], expected[200];
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

static int gx__config_is_about(const GxConfig *c, const GxOptionGroup *g, int option) // what --help WORD shows
{
    const char *word = c->help_about;
    return !word[0] || !strcmp(word, "all") || strstr(g->title, word) || strstr(g->option[option].name, word);
}

// next: the argument behind --help. A flag there is none of its words.
static GxStatus gx__config_ask_help(GxConfig *c, const char *next, GxError *err)
{
    char cut[GX_TEXT_VALUE];
    if (!next || next[0] == '-') return GX_OK;
    snprintf(c->help_about, sizeof c->help_about, "%s", next);
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++)
            if (gx__config_is_about(c, &c->group[g], i)) return GX_OK;
    c->help = 0;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--help %s: no option and no group of options has that in its name; --help all shows every option",
                   gx_text_cut(next, cut, sizeof cut));
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
        if (strncmp(arg, "--", 2) || !arg[2])
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "\"%s\" is not an option: options are written --name value; --help lists them",
                           gx_text_cut(arg, cut, sizeof cut));
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - arg - 2) : GX_FIELD_TEXT, arg + 2);
        int number = gx__config_find(c, name, &o, &target), is_config = !strcmp(name, "config");
        if (gx__config_is_reserved(name) && !is_config)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: --%s takes no value; leave out \"%s\"",
                           gx_text_cut(arg, cut, sizeof cut), name, equals);
        if (number < 0 && !is_config) return gx__config_unknown(c, "", "--", name, err);
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

// ---- help ----------------------------------------------------------------------------------------------------------

static int gx__config_option_flag(const GxField *o, char *out, size_t size) // "--seq_len N"; its columns
{
    static const char *const kinds[] = {" N",    " X",           "",      " TEXT", " N,N,…",
                                        " PATH", " NAME,NAME,…", " TEXT", " TEXT", " HASH"};
    return gx_text_columns(out, snprintf(out, size, "--%s%s", o->name, kinds[o->type]));
}

// A flag, and behind it or below it, from column `at` on, what it is for; `more` goes on whole where it can.
static void gx__config_help_line(FILE *out, const char *flag, int at, int width, const char *help, const char *more)
{
    const int length = gx_text_columns(flag, (int64_t)strlen(flag));
    if (2 + length + 2 > at) fprintf(out, "  %s\n%*s", flag, at, "");
    else fprintf(out, "  %s%*s", flag, at - 2 - length, "");
    const int column = gx_text_wrap(out, help, NULL, at, at, width);
    gx_text_wrap(out, more, ";", column, at, width);
    fprintf(out, "\n");
}

// What the option may be, unless that is left out, and its default; `nothing`: where it has none.
static void gx__config_help_option(FILE *out, const GxField *o, const char *help, int says_expected,
                                   const char *nothing, int at, int width)
{
    char flag[GX__CONFIG_NAME_CAP + 16], expected[200] = "", more[200 + GX_FIELD_TEXT] = "";
    const char *standard = o->default_text && o->default_text[0] ? o->default_text : nothing;
    gx__config_option_flag(o, flag, sizeof flag);
    if (says_expected && o->allowed) gx_field_expected(o, expected, sizeof expected);
    if (expected[0] || standard)
        snprintf(more, sizeof more, " (%s%s%s%s)", expected, expected[0] && standard ? "; " : "",
                 standard ? "default: " : "", standard ? standard : "");
    gx__config_help_line(out, flag, at, width, help, more);
}

static int gx__config_help_column(const GxConfig *c, int width)
{
    char flag[GX__CONFIG_NAME_CAP + 16];
    int longest = (int)strlen("--config FILE");
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++)
            longest = (int)gx_max(longest, gx__config_option_flag(&c->group[g].option[i], flag, sizeof flag));
    return 4 + (int)gx_min(longest, width / 3); // a longer flag has a line of its own
}

static void gx__config_help_common(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width)
{
    const int at = gx__config_help_column(c, width);
    const char *title = NULL; // that is still to be written
    for (int i = 0; i < n; i++) {
        const GxField *o;
        void *target;
        if (common[i].title) title = common[i].title;
        if (gx__config_find(c, common[i].option, &o, &target) < 0) continue;
        if (title) fprintf(out, "%s%s\n", title == common[0].title ? "" : "\n", title);
        gx__config_help_option(out, o, common[i].help, o->type == GX_FIELD_STRING, NULL, at, width);
        title = NULL;
    }
    fprintf(out, "\n");
    gx__config_help_line(out, "--config FILE", at, width,
                         "read options from a JSON file; options on the command line win over it", "");
    gx__config_help_line(out, "--help all", at, width, "show every option; --help WORD: those with WORD in their names",
                         "");
}

void gx_config_help(const GxConfig *c, const GxHelpLine *common, int n, FILE *out, int width)
{
    const char *about = c->help_about;
    const int at = gx__config_help_column(c, width), is_whole = !about[0] || !strcmp(about, "all");
    if (!about[0] && n > 0) {
        gx__config_help_common(c, common, n, out, width);
        return;
    }
    if (is_whole) {
        gx__config_help_line(
            out, "--config FILE", at, width,
            "read options from a JSON file with the same names; options on the command line win over it", "");
        gx__config_help_line(out, "--help WORD", at, width,
                             "show the options with WORD in their names; all: every option", "");
        gx__config_help_line(out, "--version", at, width, "show what this program is, and what it was built with", "");
    }
    static const char *const nothing[] = {"0", "0", "false", "none", "none", "none", "none", "none", "none", "none"};
    const char *title = NULL;
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group[g].n; i++) {
            const GxField *o = &c->group[g].option[i];
            if (!gx__config_is_about(c, &c->group[g], i)) continue;
            if (!title || strcmp(title, c->group[g].title))
                fprintf(out, "%s%s\n", title || is_whole ? "\n" : "", c->group[g].title);
            title = c->group[g].title;
            gx__config_help_option(out, o, o->help, 1, nothing[o->type], at, width);
        }
}
#endif
