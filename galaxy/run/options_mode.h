// options_mode.h: the options that select a mode, by name or block by block (--att, --con, --mlp, --ends), and the mode
// that they select.
#ifndef GX_OPTIONS_MODE_H
#define GX_OPTIONS_MODE_H
#include "../io/config.h"
#include "../model/mode.h"
#include "options.h"
GX_BEGIN

// Adds the options to a config. A program with a mode of its own (otherwise NULL) does not have them; the error message
// refers to `program`.
GxStatus gx_options_add_mode(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const char *program, GxError *err);

// The mode that these options select, by name or block by block. If a flag and a file contradict each other, the flag
// is used, and what the file set is reset.
GxStatus gx_options_resolve_mode(GxTrainOptions *o, const GxConfig *c, GxMode *mode, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_MODE_IMPLEMENTED)
#define GX_OPTIONS_MODE_IMPLEMENTED
#include <stdio.h>
#include <string.h>

#define GX__OPTIONS_MODE_AT(field) offsetof(GxTrainOptions, field)
static const GxField gx__options_mode_fields[] = {
    {"mode", GX_FIELD_STRING, GX__OPTIONS_MODE_AT(mode), "serial",
     "how the ranks of a tp group split the model (docs/modes.md)", GX_MODE_NAMES},
    {"att", GX_FIELD_STRING, GX__OPTIONS_MODE_AT(att), "auto",
     "how attention is split, instead of --mode: by heads (tp) or by the sequence (sp); auto: as --mode says, or none",
     "auto|none|tp|sp"},
    {"con", GX_FIELD_STRING, GX__OPTIONS_MODE_AT(con), "auto",
     "how CON, which adds the results of attention and MLP to the residual stream, is split: by the sequence (sp); "
     "auto: as --mode says, or none",
     "auto|none|sp"},
    {"mlp", GX_FIELD_STRING, GX__OPTIONS_MODE_AT(mlp), "auto",
     "how the MLP is split: by columns (tp) or by the sequence (sp); auto: as --mode says, or none", "auto|none|tp|sp"},
    {"ends", GX_FIELD_STRING, GX__OPTIONS_MODE_AT(ends), "auto",
     "how embedding and head are split: by the vocabulary (tp) or by the sequence (sp); auto: to suit the others",
     "auto|none|tp|sp"},
};

GxStatus gx_options_add_mode(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const char *program, GxError *err)
{
    if (mode) return gx_config_add_elsewhere(c, GX_FIELDS(gx__options_mode_fields), program, err);
    return gx_config_add(c, "mode", GX_FIELDS(gx__options_mode_fields), o, err);
}

static GxMethod gx__options_mode_method(const char *text) // auto: none
{
    return !strcmp(text, "tp") ? GX_METHOD_TP : !strcmp(text, "sp") ? GX_METHOD_SP : GX_METHOD_NONE;
}

// training_args.json always has a mode, at least "serial", which contradicts --att, --con and --mlp only if it is a
// flag.
static int gx__options_mode_mode_is_given(const GxTrainOptions *o, const GxConfig *c)
{
    return strcmp(o->mode, "serial") || gx_config_source(c, "mode") == GX_FROM_FLAG;
}

static int gx__options_mode_blocks_are_given(const GxTrainOptions *o)
{
    return strcmp(o->att, "auto") || strcmp(o->con, "auto") || strcmp(o->mlp, "auto");
}

// If both a mode and single blocks are set, keeps those that were given as flags and resets the others.
static GxStatus gx__options_mode_choose_mode(GxTrainOptions *o, const GxConfig *c, GxError *err)
{
    const int mode_by_flag = gx_config_source(c, "mode") == GX_FROM_FLAG,
              blocks_by_flag = gx_config_source(c, "att") == GX_FROM_FLAG ||
                               gx_config_source(c, "con") == GX_FROM_FLAG || gx_config_source(c, "mlp") == GX_FROM_FLAG;
    if (!gx__options_mode_blocks_are_given(o) || !gx__options_mode_mode_is_given(o, c)) return GX_OK;
    if (mode_by_flag == blocks_by_flag)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--mode %s already says how every block is split; leave it out, or leave out --att, --con and --mlp",
            o->mode);
    if (blocks_by_flag) snprintf(o->mode, sizeof o->mode, "serial");
    else
        snprintf(o->att, sizeof o->att, "auto"), snprintf(o->con, sizeof o->con, "auto"),
            snprintf(o->mlp, sizeof o->mlp, "auto");
    return GX_OK;
}

GxStatus gx_options_resolve_mode(GxTrainOptions *o, const GxConfig *c, GxMode *mode, GxError *err)
{
    GxMethods m;
    GX_TRY(gx__options_mode_choose_mode(o, c, err));
    const int by_blocks = gx__options_mode_blocks_are_given(o), by_ends = strcmp(o->ends, "auto") != 0;
    if (by_blocks)
        m = gx_methods(gx__options_mode_method(o->att), gx__options_mode_method(o->con),
                       gx__options_mode_method(o->mlp));
    else gx_mode_methods(o->mode, &m); // cannot fail: the option allows no other names
    if (by_ends) m.ends = gx__options_mode_method(o->ends);
    GX_TRY(gx_methods_check(m, err));
    *mode = gx_composed(by_blocks || by_ends ? "composed" : o->mode, m);
    return GX_OK;
}
#endif
