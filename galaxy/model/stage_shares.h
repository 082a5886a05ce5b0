// stage_shares.h: how the tp group of any stage of a pipeline splits what the user's lists are for: its own part of a
// list, the rows of a batch that each of its ranks has, the rows of the vocabulary. What ranks must know of each other
// to send something from stage to stage (parallel/stage_messages.h).
//
// A list has an entry for each rank of a tp group, which all groups then use, or one for each rank of a copy of the
// model, stage by stage; the entries of each group add up to the whole.
#ifndef GX_STAGE_SHARES_H
#define GX_STAGE_SHARES_H
#include "unit.h"
GX_BEGIN

// Splits a total as this rank's group does. In a pipeline whose groups differ all of them are checked, so that all ranks
// say the same about a list that is wrong. name: of the list; even: what is said of a total that is too small, NULL: the
// list's name.
GxStatus gx_stage_split(GxContext *g, GxSplit *s, const char *name, const char *even, const GxPartList *list,
                        int64_t total);
// The part of a list that the group with index `pp` in pp uses.
GxPartList gx_stage_list(const GxContext *g, const GxPartList *list, int pp);

// The rows of what enters a unit that each rank of that group has: all of them, or slices if CON is split by SP. Of an
// encoder's output each rank has slices only if attention is split by SP, too. An error if there are fewer tokens than
// ranks.
GxShares gx_stage_rows(GxContext *g, const GxModel *m, int unit, int pp, const GxBatch *b);
// The rows of the vocabulary that each of them has, if embedding and head are split by TP; otherwise all on each.
GxShares gx_stage_vocab(GxContext *g, const GxModel *m, int pp);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STAGE_SHARES_IMPLEMENTED)
#define GX_STAGE_SHARES_IMPLEMENTED
#include <stdio.h>
#include "../parallel/stage_messages.h"

// The ranks of a copy of the model, and those of its groups before this one.
static int gx__stage_shares_before(const GxContext *g, int pp)
{
    int n = 0;
    for (int i = 0; i < pp; i++) n += gx_mesh_width(g->mesh, i);
    return n;
}

static int gx__stage_shares_width(const GxContext *g, int pp) { return g->mesh ? gx_mesh_width(g->mesh, pp) : 1; }

// 1: the list has an entry for each rank of a copy.
static int gx__stage_shares_is_own(const GxContext *g, const GxPartList *list)
{
    const int stages = gx_group_size(g, GX_AXIS_PP);
    return stages > 1 && list->n && list->n == gx__stage_shares_before(g, stages);
}

GxPartList gx_stage_list(const GxContext *g, const GxPartList *list, int pp)
{
    GxPartList of = *list;
    if (!gx__stage_shares_is_own(g, list)) return of;
    of.part += gx__stage_shares_before(g, pp), of.n = gx__stage_shares_width(g, pp);
    return of;
}

static GxStatus gx__stage_shares_refuse(GxContext *g, const char *name, const GxPartList *list)
{
    char widths[120] = "";
    const int stages = gx_group_size(g, GX_AXIS_PP), ranks = gx__stage_shares_before(g, stages);
    size_t used = 0;
    for (int i = 0; i < stages && used < 100; i++)
        used +=
            (size_t)snprintf(widths + used, sizeof widths - used, "%s%d", i ? "+" : "", gx__stage_shares_width(g, i));
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "%s has %d entr%s, but the stages have %s ranks; give one for each of the %d, stage by stage: those "
                   "of each stage add up to the whole",
                   name, list->n, list->n == 1 ? "y" : "ies", widths, ranks);
}

GxStatus gx_stage_split(GxContext *g, GxSplit *s, const char *name, const char *even, const GxPartList *list,
                        int64_t total)
{
    const int stages = gx_group_size(g, GX_AXIS_PP), mine = gx_group_index(g, GX_AXIS_PP),
              is_own = gx__stage_shares_is_own(g, list), differ = is_own || gx_is_ragged(g);
    char of_stage[120];
    GxSplit any;
    if (gx_is_ragged(g) && list->n && !is_own) return gx__stage_shares_refuse(g, name, list);
    for (int i = 0; i < stages; i++) {
        const GxPartList of = gx_stage_list(g, list, i);
        if (i != mine && !differ) continue;
        snprintf(of_stage, sizeof of_stage, "%s", list->n || !even ? name : even);
        if (differ && list->n) snprintf(of_stage, sizeof of_stage, "%s of stage %d", name, i);
        GX_TRY(gx_split_list(i == mine ? s : &any, of_stage, of.n ? of.part : NULL, of.n, total,
                             gx__stage_shares_width(g, i), &g->error));
    }
    return GX_OK;
}

// What the group's list makes of a total; the model has been opened with it, so it is a valid one.
static GxShares gx__stage_shares_of(GxContext *g, const GxPartList *list, int pp, int64_t planned, int64_t total,
                                    int64_t each)
{
    const GxPartList of = gx_stage_list(g, list, pp);
    const int width = gx__stage_shares_width(g, pp);
    GxSplit s;
    if (total < width) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%ld tokens for the %d ranks of stage %d, which split them", (long)total,
                width, pp);
        return gx_shares_each(total * each, width, 0);
    }
    if (gx_split_list(&s, "a list", of.n ? of.part : NULL, of.n, planned, width, &g->error) != GX_OK)
        return gx_shares_each(total * each, width, 0);
    if (total != planned) s = gx_split_like(&s, total);
    return gx_shares_of(&s, 0, each);
}

// 1: `me` is this rank's index in tp.
static GxShares gx__stage_shares_place(const GxContext *g, GxShares s, int pp)
{
    s.me = pp == gx_group_index(g, GX_AXIS_PP) ? gx_group_index(g, GX_AXIS_TP) : 0;
    return s;
}

GxShares gx_stage_rows(GxContext *g, const GxModel *m, int unit, int pp, const GxBatch *b)
{
    const GxMethods *by = &m->mode->methods;
    const int is_memory = m->memory && unit == m->memory + 1,
              is_cut = by->con == GX_METHOD_SP && (!is_memory || by->att == GX_METHOD_SP);
    const int64_t T = gx_entering_batch(m, unit, b)->T, B = gx_entering_batch(m, unit, b)->B;
    return gx__stage_shares_place(g,
                                  is_cut ? gx__stage_shares_of(g, &m->lists.sequence, pp, m->max_T, T, B)
                                         : gx_shares_each(T * B, gx__stage_shares_width(g, pp), 0),
                                  pp);
}

GxShares gx_stage_vocab(GxContext *g, const GxModel *m, int pp)
{
    const int64_t V = gx_model_vocab(m);
    const int is_cut = m->mode->methods.ends == GX_METHOD_TP;
    return gx__stage_shares_place(g,
                                  is_cut ? gx__stage_shares_of(g, &m->lists.vocab, pp, V, V, 1)
                                         : gx_shares_each(V, gx__stage_shares_width(g, pp), 0),
                                  pp);
}
#endif
