// options_batch.h: micro-batch, accumulation steps and global batch, or the samples of each copy of the model: derives
// them from those that the user gave, and checks that they fit together.
#ifndef GX_OPTIONS_BATCH_H
#define GX_OPTIONS_BATCH_H
#include "../base/partition.h"
#include "../io/config.h"
#include "options.h"
GX_BEGIN

// Resolves micro-batch, accumulation steps and global batch from those that the user gave. *batch: the samples of each
// copy of the model in a micro-batch. A global batch from a checkpoint is kept, and the others are adapted to it.
// Refuses numbers whose product is wrong; the error shows the equation. With dp_samples_list the global batch is its
// sum, and accumulation steps are refused.
GxStatus gx_options_resolve_batch(GxTrainOptions *o, const GxConfig *c, int copies, GxSplit *batch, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_BATCH_IMPLEMENTED)
#define GX_OPTIONS_BATCH_IMPLEMENTED
#include <stdio.h>
#include "options_table.h"
#include "window.h"

// The most tokens in a micro-batch of all ranks, so that sizes in bytes fit into 64 bits and planning is quick.
enum { GX__OPTIONS_BATCH_TOKENS_MOST = 1 << 30 };

static int64_t gx__options_batch_list_sum(const GxIntList *list)
{
    int64_t sum = 0;
    for (int i = 0; i < list->n; i++) sum += list->v[i];
    return sum;
}

// For a resumed run: what is given now counts, the global batch is kept, and the others follow from it. The micro-batch
// becomes the largest one, up to the earlier one, that divides the global batch.
static void gx__options_batch_keep_global_batch(GxTrainOptions *o, const GxConfig *c, int copies)
{
    const int given_list = gx_config_is_set(c, "dp_batch_size_list"),
              given_micro = gx_config_is_set(c, "micro_batch_size") || given_list,
              given_accumulation = gx_config_is_set(c, "gradient_accumulation_steps");
    if (given_micro && !given_list) o->dp_batch_size_list.n = 0;
    if (given_micro && given_accumulation) {
        o->global_batch_size = 0;
        return;
    }
    const int64_t global = o->global_batch_size, list = gx__options_batch_list_sum(&o->dp_batch_size_list),
                  product = o->gradient_accumulation_steps * (list ? list : o->micro_batch_size * copies);
    if (given_micro || given_accumulation || product == global || list || global % copies || o->micro_batch_size == 0)
        return;
    while (global % (o->micro_batch_size * copies)) o->micro_batch_size--;
    o->gradient_accumulation_steps = global / (o->micro_batch_size * copies);
}

// Sets the samples that each copy of the model takes of a micro-batch: from the list, from micro_batch_size, or from
// the global batch and the accumulation steps if these are given.
static GxStatus gx__options_batch_resolve_micro_batch(GxTrainOptions *o, const GxConfig *c, int copies, GxSplit *batch,
                                                      GxError *err)
{
    const GxIntList *list = &o->dp_batch_size_list;
    const int micro_is_given = gx_config_is_set(c, "micro_batch_size");
    if (list->n && !micro_is_given) o->micro_batch_size = 0; // so that training_args.json can be read again
    if (list->n && o->micro_batch_size)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "micro_batch_size and dp_batch_size_list are both given; leave out micro_batch_size, since the "
                       "list says how many samples each rank takes");
    if (!list->n && o->micro_batch_size == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "micro_batch_size is 0 and there is no dp_batch_size_list; set one of them");
    if (list->n && list->n != copies)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "dp_batch_size_list has %d %s for %d %s of the model (%ld rank%s each: --pp x --tp); give the "
                       "samples of each copy",
                       list->n, list->n == 1 ? "entry" : "entries", copies, copies == 1 ? "copy" : "copies",
                       (long)(gx_max(o->pp, 1) * gx_max(o->tp, 1)), o->pp > 1 || o->tp > 1 ? "s" : "");
    if (list->n)
        return gx_split_list(batch, "dp_batch_size_list", list->v, list->n, gx__options_batch_list_sum(list), copies,
                             err);
    const int64_t unit = o->gradient_accumulation_steps * copies;
    if (o->global_batch_size && gx_config_is_set(c, "gradient_accumulation_steps") && !micro_is_given &&
        !o->dp_samples_list.n && o->global_batch_size % unit == 0)
        o->micro_batch_size = o->global_batch_size / unit; // the third follows from the two
    *batch = gx_split_even(o->micro_batch_size * copies, copies);
    return GX_OK;
}

// Proposes a division of the global batch among the copies, with no more samples in each than a micro-batch has now:
// "; --micro_batch_size 2 divides it", "; --dp_batch_size_list 2,2,1,1 divides it unequally"; "": there is none.
static void gx__options_batch_propose_list(const GxTrainOptions *o, const GxConfig *c, int copies, char text[160])
{
    const int given = gx_config_is_set(c, "gradient_accumulation_steps"), most_copies = 16;
    const int64_t global = o->global_batch_size, first = given ? o->gradient_accumulation_steps : 1,
                  last = given ? first : global / copies;
    int64_t steps = first, each = 0;
    text[0] = 0;
    if (o->dp_batch_size_list.n || copies > most_copies || global < copies) return;
    for (; steps <= last; steps++) {
        each = global % steps ? 0 : global / steps;
        if (each >= copies && gx_ceil_div(each, copies) <= gx_max(o->micro_batch_size, 1)) break;
    }
    if (steps > last || each >= 1000000) return;
    const int is_equal = each % copies == 0;
    int n = is_equal ? snprintf(text, 160, "; --micro_batch_size %ld", (long)(each / copies))
                     : snprintf(text, 160, "; --dp_batch_size_list ");
    for (int i = 0; i < copies && !is_equal; i++)
        n += snprintf(text + n, 160 - (size_t)n, "%s%ld", i ? "," : "", (long)(each / copies + (i < each % copies)));
    if (steps > 1 && !given)
        n += snprintf(text + n, 160 - (size_t)n, " --gradient_accumulation_steps %ld", (long)steps);
    snprintf(text + n, 160 - (size_t)n, " divides it%s%s", is_equal ? "" : " unequally",
             !is_equal && gx_config_is_set(c, "micro_batch_size") ? ", without --micro_batch_size" : "");
}

// Refuses a global batch that is not the product of the others, and names the nearest ones that are.
static GxStatus gx__options_batch_refuse_product(const GxTrainOptions *o, const GxConfig *c, int copies,
                                                 int64_t per_micro, GxError *err)
{
    const int has_list = o->dp_batch_size_list.n > 0, micro_is_given = gx_config_is_set(c, "micro_batch_size");
    const int64_t steps = o->gradient_accumulation_steps,
                  unit = !gx_config_is_set(c, "gradient_accumulation_steps") ? per_micro
                         : has_list || micro_is_given                        ? steps * per_micro
                                                                             : steps * copies,
                  below = o->global_batch_size / unit * unit;
    const char *with = has_list || unit == steps * copies ? "" : "with this micro-batch ";
    char nearest[120], list[160];
    gx__options_batch_propose_list(o, c, copies, list);
    if (below)
        snprintf(nearest, sizeof nearest, "%sthe nearest that fit are %ld and %ld", with, (long)below,
                 (long)(below + unit));
    else snprintf(nearest, sizeof nearest, "%sthe smallest that fits is %ld", with, (long)unit);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "global_batch_size %ld is not gradient_accumulation_steps %ld x %ld samples per micro-batch "
                   "(%s%ld x %d %s) = %ld; %s%s",
                   (long)o->global_batch_size, (long)steps, (long)per_micro,
                   has_list ? "the list's sum; about " : "micro_batch_size ", (long)(per_micro / copies), copies,
                   copies == 1 ? "copy" : "copies", (long)(steps * per_micro), nearest, list);
}

// Refuses a dp_samples_list that does not go with the copies or with other options.
static GxStatus gx__options_batch_check_samples(const GxTrainOptions *o, const GxConfig *c, int copies, GxError *err)
{
    const GxIntList *list = &o->dp_samples_list;
    const int64_t sum = gx__options_batch_list_sum(list);
    const int says_steps = gx_config_source(c, "gradient_accumulation_steps") == GX_FROM_FLAG ||
                           (gx_config_is_set(c, "gradient_accumulation_steps") && o->gradient_accumulation_steps != 1);
    if (list->n != copies)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "dp_samples_list has %d %s for %d %s of the model (%ld rank%s each: --pp x --tp); give the "
                       "samples of each copy in a step",
                       list->n, list->n == 1 ? "entry" : "entries", copies, copies == 1 ? "copy" : "copies",
                       (long)(gx_max(o->pp, 1) * gx_max(o->tp, 1)), o->pp > 1 || o->tp > 1 ? "s" : "");
    if (says_steps)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "gradient_accumulation_steps and dp_samples_list are both given; leave out "
                       "gradient_accumulation_steps: each copy has as many micro-batches as its samples need");
    if (o->global_batch_size && o->global_batch_size != sum)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "global_batch_size %ld is not the sum of dp_samples_list, %ld; leave out global_batch_size, or "
                       "change the list",
                       (long)o->global_batch_size, (long)sum);
    return GX_OK;
}

static GxStatus gx__options_batch_resolve_samples(GxTrainOptions *o, const GxConfig *c, int copies,
                                                  const GxSplit *batch, GxError *err)
{
    const GxIntList *list = &o->dp_samples_list;
    if (gx_config_source(c, "global_batch_size") == GX_FROM_CHECKPOINT && gx_config_is_set(c, "dp_samples_list"))
        o->global_batch_size = 0;
    GX_TRY(gx__options_batch_check_samples(o, c, copies, err));
    for (int r = 0; r < copies; r++) {
        const int64_t micro_batches = gx_ceil_div(list->v[r], gx_split_part(batch, r));
        if (micro_batches > GX_MICRO_BATCHES_MOST)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "dp_samples_list has %ld samples for copy %d, which are %ld micro-batches of %ld; at most %d "
                "are possible: increase micro_batch_size",
                (long)list->v[r], r, (long)micro_batches, (long)gx_split_part(batch, r), (int)GX_MICRO_BATCHES_MOST);
    }
    o->global_batch_size = gx__options_batch_list_sum(list);
    o->gradient_accumulation_steps = 1; // so that training_args.json can be read again
    return GX_OK;
}

GxStatus gx_options_resolve_batch(GxTrainOptions *o, const GxConfig *c, int copies, GxSplit *batch, GxError *err)
{
    const int from_checkpoint = gx_config_source(c, "dp_samples_list") == GX_FROM_CHECKPOINT;
    if (from_checkpoint && gx_config_is_set(c, "gradient_accumulation_steps")) o->dp_samples_list.n = 0;
    const int has_samples = o->dp_samples_list.n > 0;
    if (gx_config_source(c, "global_batch_size") == GX_FROM_CHECKPOINT && !has_samples)
        gx__options_batch_keep_global_batch(o, c, copies);
    GX_TRY(gx__options_batch_resolve_micro_batch(o, c, copies, batch, err));
    if (has_samples) GX_TRY(gx__options_batch_resolve_samples(o, c, copies, batch, err));
    const int64_t per_micro = gx_split_total(batch);
    if (!has_samples && o->global_batch_size && !gx_config_is_set(c, "gradient_accumulation_steps") &&
        o->global_batch_size % per_micro == 0)
        o->gradient_accumulation_steps = o->global_batch_size / per_micro;
    const int64_t product = has_samples ? o->global_batch_size : o->gradient_accumulation_steps * per_micro;
    if (o->global_batch_size && product != o->global_batch_size)
        return gx__options_batch_refuse_product(o, c, copies, per_micro, err);
    if (per_micro > GX__OPTIONS_BATCH_TOKENS_MOST / o->seq_len)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a micro-batch of %ld samples x seq_len %ld is %.0f tokens; at most %ld are possible: decrease "
                       "micro_batch_size or seq_len",
                       (long)per_micro, (long)o->seq_len, (double)per_micro * (double)o->seq_len,
                       (long)GX__OPTIONS_BATCH_TOKENS_MOST);
    o->global_batch_size = product;
    return gx_options_check_sizes(o, err);
}
#endif
