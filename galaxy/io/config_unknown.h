// config_unknown.h: names that are no options of a program: what was probably meant, which program or task has the
// option, what it is called here where other programs have it.
#ifndef GX_CONFIG_UNKNOWN_H
#define GX_CONFIG_UNKNOWN_H
#include "config.h"
#include "json.h"
GX_BEGIN

// Refuses the name. where: what stands before the message, such as the file; dashes: "--" on the command line, else "".
GxStatus gx_config_refuse_unknown(const GxConfig *c, const char *where, const char *dashes, const char *name,
                                  GxError *err);
// The names in `earlier` that are options neither of this program nor of others: "a, b"; "": there are none. size: at
// least 4; what does not fit ends with an ellipsis.
void gx_config_unknown(const GxConfig *c, const GxJson *earlier, char *names, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFIG_UNKNOWN_IMPLEMENTED)
#define GX_CONFIG_UNKNOWN_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "typing.h"

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
    char cut[GX_TEXT_VALUE], option[GX_CONFIG_NAME_CAP], of[340] = "";
    gx_text_cut(name, cut, sizeof cut);
    if (!h->use[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s%s%s; leave it out", where, dashes, cut, colon,
                       why);
    snprintf(option, sizeof option, "%.*s", (int)strcspn(h->use, " "), h->use);
    if (gx_config_find(c, option, &o, &target) < 0) {
        gx__config_all_programs(c, option, of + 4, sizeof of - 4);
        if (!of[4])
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s%s%s; leave it out", where, dashes, cut,
                           colon, why);
        memcpy(of, " of ", 4);
    }
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%sthere is no option %s%s; here it is %s%s%s%s%s", where, dashes, cut, dashes,
                   h->use, of, colon, why);
}

GxStatus gx_config_refuse_unknown(const GxConfig *c, const char *where, const char *dashes, const char *name,
                                  GxError *err)
{
    const char *nearest = gx__config_nearest(c, name), *programs = gx__config_programs(c, name);
    char cut[GX_TEXT_VALUE], all[300];
    if (programs && programs[0] == '-') {
        gx__config_all_programs(c, name, all, sizeof all);
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%sthere is no option %s%s of this task; it is one of %s: choose that, or leave it out", where,
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

void gx_config_unknown(const GxConfig *c, const GxJson *earlier, char *names, size_t size)
{
    size_t length = 0;
    names[0] = 0;
    for (GxJsonMember m = GX_ZERO; length < size && gx_json_next(earlier, &m);) {
        const GxField *o;
        void *target;
        if (gx_config_find(c, m.key, &o, &target) >= 0 || gx__config_programs(c, m.key)) continue;
        if (strcmp(m.key, "_comment"))
            length += (size_t)snprintf(names + length, size - length, "%s%s", length ? ", " : "", m.key);
    }
    if (length >= size) gx_text_mark_cut(names, size);
}
#endif
