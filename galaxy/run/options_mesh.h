// options_mesh.h: the arrangement of ranks: how many share a layer (--tp), are stages (--pp), share weights, gradients
// or the optimizer's state (--zero, --dp_shard), or are replicas.
#ifndef GX_OPTIONS_MESH_H
#define GX_OPTIONS_MESH_H
#include "options.h"
GX_BEGIN

// Resolves how many of the `world` ranks share a layer, and the number of stages, and checks the options about stages
// and about what data-parallel ranks share. Refuses numbers whose product does not divide `world`, and names those that
// do.
GxStatus gx_options_resolve_mesh(GxTrainOptions *o, const GxConfig *c, const GxMode *mode, int world, GxError *err);
// The dimensions of the mesh (base/mesh.h), after gx_options_resolve_mesh. dims: [GX_MESH_AXES].
void gx_options_mesh(const GxTrainOptions *o, int world, int *dims);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_MESH_IMPLEMENTED)
#define GX_OPTIONS_MESH_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "1, 2, 3 or 6"
static void gx__options_mesh_divisors_text(int n, char *text, size_t size)
{
    int length = 0;
    for (int d = 1; d <= n && length < (int)size; d++)
        if (n % d == 0)
            length += snprintf(text + length, size - (size_t)length, "%s%d", d == 1 ? "" : d == n ? " or " : ", ", d);
}

// Refuses a number, of ranks or stages, that does not divide the ranks, and names those that do.
static GxStatus gx__options_mesh_check_divides(const char *option, int64_t number, int ranks, const char *of,
                                               GxError *err)
{
    char divisors[200]; // at most 20 divisors, for up to 256 ranks
    if (ranks % number == 0) return GX_OK;
    gx__options_mesh_divisors_text(ranks, divisors, sizeof divisors);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s %ld does not divide %d rank%s%s; use %s", option, (long)number, ranks,
                   ranks == 1 ? "" : "s", of, divisors);
}

static int gx__options_mesh_chunks(const GxTrainOptions *o) // stages of a rank
{
    int chunks = 1;
    for (int i = 0; i < GX_ORDERS; i++)
        if (!strcmp(gx_order_info(i)->name, o->pipeline_schedule)) chunks = gx_order_info(i)->chunks;
    return chunks;
}

// The ranks divide into stages, and what is said of stages has some.
static GxStatus gx__options_mesh_check_stages(const GxTrainOptions *o, int world, GxError *err)
{
    const int listed = o->stage_num_hidden_layers_list.n, chunks = o->pp > 1 ? gx__options_mesh_chunks(o) : 1;
    if (listed && listed != chunks * o->pp)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "stage_num_hidden_layers_list has %d entr%s, and --pp %ld makes %ld stage%s%s: say one for each "
                       "of them, or leave the list out",
                       listed, listed == 1 ? "y" : "ies", (long)o->pp, (long)(chunks * o->pp),
                       chunks * o->pp == 1 ? "" : "s", chunks > 1 ? ", two on each rank" : "");
    if (o->pp == 1 && o->pipeline_schedule[0] && strcmp(o->pipeline_schedule, "1f1b"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--pipeline_schedule %s is about stages, and --pp is 1: say --pp 2 or more, or leave it out",
                       o->pipeline_schedule);
    return gx__options_mesh_check_divides("pp", o->pp, world, "", err);
}

static GxStatus gx__options_mesh_check_zero(const GxTrainOptions *o, const GxConfig *c, GxError *err)
{
    const int zero = atoi(o->zero);
    const char *of = o->dp_shard > 1 || o->dp_shard == -1 ? "dp_shard"
                     : o->dp_shard_list.n                 ? "dp_shard_list"
                     : o->dp_replicate > 1                ? "dp_replicate"
                                                          : NULL;
    if (of && zero == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is about ranks that share what --zero says, and --zero is 0, nothing: say --zero 1, 2 or "
                       "3, or leave out --%s",
                       of, of);
    if (o->shard_grads_in_window && zero < 2)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--shard_grads_in_window is about gradients that ranks share, and with --zero %d each has all of "
            "them: say --zero 2 or 3, or leave it out",
            zero);
    if (o->gathered_units && zero != 3)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--gathered_units is about weights that ranks share, and with --zero %d each has all of them: "
                       "say --zero 3, or leave it out",
                       zero);
    if (zero && o->reduce_bucket && gx_config_is_set(c, "reduce_bucket"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--reduce_bucket sums the gradients of several layers at once, and with --zero %d those of each "
                       "are shared out by themselves: leave out one of the two",
                       zero);
    return GX_OK;
}

static GxStatus gx__options_mesh_check_shard_list(const GxTrainOptions *o, GxError *err)
{
    const int listed = o->dp_shard_list.n;
    if (!listed || listed == o->dp_shard) return GX_OK;
    if (o->dp_shard == 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "dp_shard_list has %d entries, and each data-parallel rank has everything (--dp_shard 1): leave "
                       "the list out",
                       listed);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "dp_shard_list has %d entr%s, and %ld ranks share (--dp_shard): say one for each of them, or leave "
                   "the list out",
                   listed, listed == 1 ? "y" : "ies", (long)o->dp_shard);
}

// Of the copies of the model that stages and tp leave: which share, and which are copies of these.
static GxStatus gx__options_mesh_resolve_shards(GxTrainOptions *o, const GxConfig *c, int copies, int world,
                                                GxError *err)
{
    const int is_said = o->dp_shard > 1 || o->dp_shard == -1 || o->dp_shard_list.n;
    char left[80] = ""; // why the copies are fewer than the ranks
    if (copies != world)
        snprintf(left, sizeof left, ", which --pp %ld and --tp %ld leave of %d", (long)o->pp, (long)o->tp, world);
    if (!strcmp(o->zero, "auto")) snprintf(o->zero, sizeof o->zero, "%d", is_said ? 3 : 0);
    GX_TRY(gx__options_mesh_check_zero(o, c, err));
    if (!atoi(o->zero)) { // what a file of this run says then goes with any number of ranks, and with any --zero
        o->dp_shard = o->dp_replicate = 0;
        return GX_OK;
    }
    if (o->dp_replicate) GX_TRY(gx__options_mesh_check_divides("dp_replicate", o->dp_replicate, copies, left, err));
    if (o->dp_shard < 1) o->dp_shard = copies / gx_max(o->dp_replicate, 1);
    GX_TRY(gx__options_mesh_check_divides("dp_shard", o->dp_shard, copies, left, err));
    if (o->dp_replicate && o->dp_replicate * o->dp_shard != copies)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--dp_replicate %ld x --dp_shard %ld are %ld ranks, and there are %d%s; leave out one of the two",
            (long)o->dp_replicate, (long)o->dp_shard, (long)(o->dp_replicate * o->dp_shard), copies, left);
    return gx__options_mesh_check_shard_list(o, err);
}

GxStatus gx_options_resolve_mesh(GxTrainOptions *o, const GxConfig *c, const GxMode *mode, int world, GxError *err)
{
    const int is_split = gx_methods_split(mode->methods);
    if (!is_split && o->tp > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--tp %ld: mode %s splits nothing among ranks; leave out --tp, or take another mode",
                       (long)o->tp, mode->name);
    if (!o->pp) o->pp = gx_max(world / gx_max(o->tp, 1), 1);
    GX_TRY(gx__options_mesh_check_stages(o, world, err));
    const int of_stage = world / (int)o->pp;
    if (!o->tp) o->tp = is_split ? of_stage : 1;
    GX_TRY(gx__options_mesh_check_divides("tp", o->tp, of_stage, o->pp > 1 ? " of a stage" : "", err));
    return gx__options_mesh_resolve_shards(o, c, of_stage / (int)o->tp, world, err);
}

void gx_options_mesh(const GxTrainOptions *o, int world, int *dims)
{
    const int copies = world / (int)(o->pp * o->tp), shards = atoi(o->zero) ? (int)o->dp_shard : 1;
    dims[0] = (int)o->pp, dims[1] = copies / shards, dims[2] = shards, dims[3] = 1, dims[4] = (int)o->tp;
}
#endif
