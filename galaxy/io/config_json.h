// config_json.h: options in JSON files: read from --config, taken from an earlier run, written beside a run. A file is
// one flat object, with the names of the options and JSON's types; "_comment" is ignored. All else is refused by name:
// unknown keys ("did you mean"), a key twice, values of another type or out of range (also where a flag replaces them).
#ifndef GX_CONFIG_JSON_H
#define GX_CONFIG_JSON_H
#include "config.h"
#include "json.h"
GX_BEGIN

GxStatus gx_config_read_json(GxConfig *c, const char *path, GxError *err); // what flags have set stays
// Options of an earlier run, as gx_config_to_json gave them: those that neither flags nor a file have set take the
// values that they had then; what a file says just as it was then counts as not set. Left out are names in `without`
// (NULL at the end), and what this program does not have.
GxStatus gx_config_take(GxConfig *c, const GxJson *earlier, const char *const *without, const char *path, GxError *err);
// What an earlier run has of the option of this name, or of an alias of it. NULL: nothing.
const GxJson *gx_config_in_json(const GxConfig *c, const GxJson *earlier, const char *name);
GxJson *gx_config_to_json(const GxConfig *c, GxError *err); // all options, resolved; NULL on failure; gx_json_free it
GxJson *gx_config_changed_to_json(const GxConfig *c, GxError *err); // those that have another value than their default
GxStatus gx_config_write_json(const GxConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_JSON_IMPLEMENTED)
#define GX_CONFIG_JSON_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "config_unknown.h"
#include "json_fields.h"

enum { GX__CONFIG_CAP = 1 << 20 };

static GxStatus gx__config_read_member(GxConfig *c, const char *path, const GxJsonMember *m, GxError *err)
{
    const GxField *o;
    void *target;
    char where[GX_PATH + 4];
    if (!strcmp(m->key, "_comment")) return GX_OK;
    snprintf(where, sizeof where, "%s: ", path);
    int number = gx_config_find(c, m->key, &o, &target);
    if (number < 0) return gx_config_refuse_unknown(c, where, "", m->key, err);
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
        const int number = gx_config_find(c, m.key, &o, &target);
        if (number < 0 || gx_config_is_in(without, m.key)) continue;
        const int is_set = c->source[number] > GX_FROM_CHECKPOINT; // what was written then must be sound all the same
        GX_TRY(gx_json_take_field(m.value, o, is_set ? NULL : target, path, GX_ERR_FORMAT, err));
        if (!is_set || (c->source[number] == GX_FROM_FILE && gx__config_is_same(o, m.value, target)))
            c->source[number] = GX_FROM_CHECKPOINT; // a file that was given again has not changed it
    }
    return GX_OK;
}

// What an earlier run has of the option of this name, or of an alias of it. NULL: nothing.
const GxJson *gx_config_in_json(const GxConfig *c, const GxJson *earlier, const char *name);
const GxJson *gx_config_in_json(const GxConfig *c, const GxJson *earlier, const char *name)
{
    const GxJson *value = gx_json_get(earlier, name);
    for (int i = 0; !value && i < c->aliases; i++)
        if (!strcmp(c->alias[i].option, name)) value = gx_json_get(earlier, c->alias[i].name);
    return value;
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
#endif
