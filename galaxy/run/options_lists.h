// options_lists.h: the lists that divide a layer unevenly among unequal ranks of a tp group: attention's heads, the
// MLP's columns, the vocabulary, the sequence. Which of them can be used follows from the mode.
#ifndef GX_OPTIONS_LISTS_H
#define GX_OPTIONS_LISTS_H
#include "../io/config.h"
#include "../model/mode.h"
#include "options.h"
GX_BEGIN

// Adds the lists to a config. A program with a mode of its own (otherwise NULL) has only those that this mode can use;
// for the others the error message refers to `program`.
GxStatus gx_options_add_lists(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const char *title,
                              const char *program, GxError *err);
const GxField *gx_options_list_field(const char *name); // NULL: there is no such list

// Refuses a list for something that the mode does not split.
GxStatus gx_options_check_lists(const GxTrainOptions *o, const GxMode *mode, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_LISTS_IMPLEMENTED)
#define GX_OPTIONS_LISTS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

#define GX__OPTIONS_LISTS_AT(field) offsetof(GxTrainOptions, field)
static const struct {
    GxField field;
    const char *what; // what the list splits
    const char *how;  // what a mode must have to use it
} gx__options_lists[] = {
    {{"tp_num_attention_heads_list", GX_FIELD_INT_LIST, GX__OPTIONS_LISTS_AT(tp_num_attention_heads_list), NULL,
      "query heads of each rank of a tp group, or of all stages in order, such as 4,2 for unequal machines",
      "1..65536"},
     "attention's heads",
     "ATT by TP"},
    {{"tp_intermediate_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_LISTS_AT(tp_intermediate_size_list), NULL,
      "MLP columns of each rank of a tp group, or of all stages in order, such as 320,192", "1..4194304"},
     "the MLP's columns",
     "MLP by TP"},
    {{"tp_vocab_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_LISTS_AT(tp_vocab_size_list), NULL,
      "rows of embedding and head of each rank of a tp group, or of all stages in order, such as 160,96",
      "1..16777216"},
     "the vocabulary",
     "the ends by TP"},
    {{"seq_scatter_list", GX_FIELD_INT_LIST, GX__OPTIONS_LISTS_AT(seq_scatter_list), NULL,
      "tokens of a sample of each rank of a tp group, or of all stages in order, if a block is split by the sequence, "
      "such "
      "as 160,96",
      "1..16777216"},
     "the sequence",
     "a block by SP"},
};
enum { GX__OPTIONS_LISTS = sizeof gx__options_lists / sizeof *gx__options_lists };

static int gx__options_list_applies(GxMethods m, int list) // 1: these methods split what the list is for
{
    const int splits[GX__OPTIONS_LISTS] = {m.att == GX_METHOD_TP, m.mlp == GX_METHOD_TP, m.ends == GX_METHOD_TP,
                                           gx_methods_have(m, GX_METHOD_SP)};
    return splits[list];
}

const GxField *gx_options_list_field(const char *name)
{
    const GxField *found = NULL;
    for (int i = 0; i < GX__OPTIONS_LISTS && !found; i++) found = gx_field_find(&gx__options_lists[i].field, 1, name);
    return found;
}

GxStatus gx_options_add_lists(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const char *title,
                              const char *program, GxError *err)
{
    char other[80];
    for (int i = 0; i < GX__OPTIONS_LISTS; i++) {
        const GxField *list = &gx__options_lists[i].field;
        if (!mode || gx__options_list_applies(mode->methods, i)) {
            GX_TRY(gx_config_add(c, title, list, 1, o, err));
            continue;
        }
        snprintf(other, sizeof other, "%s with a mode that has %s", program, gx__options_lists[i].how);
        memset(gx_field_at(list, o), 0, gx_field_size(list)); // since no option sets it
        GX_TRY(gx_config_add_elsewhere(c, list, 1, other, err));
    }
    return GX_OK;
}

GxStatus gx_options_check_lists(const GxTrainOptions *o, const GxMode *mode, GxError *err)
{
    for (int i = 0; i < GX__OPTIONS_LISTS; i++) {
        const GxIntList *list = (const GxIntList *)gx_field_in(&gx__options_lists[i].field, o);
        if (list->n && !gx__options_list_applies(mode->methods, i))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s: mode %s does not split %s; leave it out, or use a mode with %s",
                           gx__options_lists[i].field.name, mode->name, gx__options_lists[i].what,
                           gx__options_lists[i].how);
    }
    return GX_OK;
}
#endif
