// options_mesh.h: the arrangement of ranks: how many share a layer (--tp), share each sequence (--cp), are stages (--pp),
// share weights, gradients or the optimizer's state (--zero, --dp_shard), or are replicas.
#ifndef GX_OPTIONS_MESH_H
#define GX_OPTIONS_MESH_H
#include "../base/mesh.h"
#include "../io/config.h"
#include "../model/mode.h"
#include "../parallel/steps_write.h"
#include "options.h"
GX_BEGIN

// Adds the options to a config. A program with a schedule of its own (otherwise NULL) does not have all of them
// (gx_options_add of options_table.h); for the others the error message refers to `program`.
GxStatus gx_options_add_mesh(GxConfig *c, GxTrainOptions *o, const GxStepsSchedule *schedule, const char *title,
                             const char *program, GxError *err);
const GxField *gx_options_mesh_field(const char *name); // NULL: there is no such option

// Resolves how many of the `world` ranks share a layer, and the number of stages, and checks the options about stages
// and about what data-parallel ranks share. Refuses numbers whose product does not divide `world`, and names those that
// do.
GxStatus gx_options_resolve_mesh(GxTrainOptions *o, const GxConfig *c, const GxMode *mode, int world, GxError *err);
// The mesh (base/mesh.h) of a rank, after gx_options_resolve_mesh.
GxStatus gx_options_open_mesh(const GxTrainOptions *o, GxMesh *m, int rank, int world, GxError *err);
// "2", or for stages of different sizes "2,1": how many ranks share a layer.
void gx_options_tp_text(const GxTrainOptions *o, char *text, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_MESH_IMPLEMENTED)
#define GX_OPTIONS_MESH_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the options ---------------------------------------------------------------------------------------------------

#define GX__OPTIONS_MESH_AT(field) offsetof(GxTrainOptions, field)
#define GX__OPTIONS_MESH_STAGES                                                                                        \
    "number of pipeline stages, among which the ranks are divided: each has some layers, the first also the "          \
    "embedding, the last also the head, and a decoder's embedding is with its first layer; micro-batches pass "        \
    "through "                                                                                                         \
    "them one after another (use at least four per stage: --gradient_accumulation_steps)"
static const GxField gx__options_mesh_tp[] = {
    {"tp", GX_FIELD_INT, GX__OPTIONS_MESH_AT(tp), "0",
     "ranks that share each layer (a tp group); the others are pipeline stages (--pp) and data-parallel copies; 0: all "
     "that --pp leaves, if the mode splits anything",
     "0..256"},
};
static const GxField gx__options_mesh_stages[] = {
    {"pp", GX_FIELD_INT, GX__OPTIONS_MESH_AT(pp), "1", GX__OPTIONS_MESH_STAGES, "1..256"},
    {"pipeline_schedule", GX_FIELD_STRING, GX__OPTIONS_MESH_AT(pipeline_schedule), "1f1b",
     "order of a pipeline's micro-batches: 1f1b; gpipe: all forwards first; zb1p: 1f1b with weight gradients in its "
     "gaps; with two stages on each rank: interleaved, or zbv, whose second stages run in the reverse order, so that "
     "the first rank also has the head. The result is the same. Of models with an encoder and a decoder not zb1p, zbv",
     "1f1b|gpipe|interleaved|zb1p|zbv"},
};
// For a program with a schedule of its own.
static const GxField gx__options_mesh_own_stages[] = {
    {"pp", GX_FIELD_INT, GX__OPTIONS_MESH_AT(pp), "0",
     GX__OPTIONS_MESH_STAGES ". 0: all ranks, or all that --tp leaves", "0..256"},
};
static const GxField gx__options_mesh_layers[] = {
    {"stage_num_hidden_layers_list", GX_FIELD_INT_LIST, GX__OPTIONS_MESH_AT(stage_num_hidden_layers_list), NULL,
     "layers of each stage, such as 20,12 for unequal machines; with two stages on each rank: those of the ranks' "
     "first stages, then of their second ones, in the order of the layers; a decoder's layers follow its encoder's",
     "1..65536"},
    {"stage_warm_list", GX_FIELD_INT_LIST, GX__OPTIONS_MESH_AT(stage_warm_list), NULL,
     "micro-batches that each stage computes forward before its first backward, beyond those of 1F1B, such as 1,0: on "
     "slow links messages then move while stages compute; each needs memory for its activations",
     "0..32767"},
    {"stage_tp_list", GX_FIELD_INT_LIST, GX__OPTIONS_MESH_AT(stage_tp_list), NULL,
     "ranks that share the layers of each stage, such as 2,1 for three machines, instead of --pp and --tp: stages may "
     "have different sizes, with one copy of the model; the lists of heads, columns, vocabulary and sequence then have "
     "an entry for each rank, stage by stage",
     "1..256"},
};
static const GxField gx__options_mesh_cp[] = {
    {"cp", GX_FIELD_INT, GX__OPTIONS_MESH_AT(cp), "1",
     "ranks that share each sequence (context parallelism): each has some of its rows, and inside attention the keys "
     "and values of all; for long sequences, with any mode",
     "1..256"},
    {"cp_method", GX_FIELD_STRING, GX__OPTIONS_MESH_AT(cp_method), "gather",
     "how the ranks of --cp attend to each other's rows; gather: the keys and values of all rows are brought together "
     "on "
     "each; ring: they go round, so a rank has those of one other at a time, which needs less memory and more messages",
     "gather|ring"},
    {"cp_list", GX_FIELD_INT_LIST, GX__OPTIONS_MESH_AT(cp_list), NULL,
     "rows of a sequence of each rank of --cp, such as 768,256 for unequal machines; their sum is --seq_len", "1.."},
    {"cp_zigzags", GX_FIELD_INT, GX__OPTIONS_MESH_AT(cp_zigzags), "0",
     "blocks of a sequence of each of which every rank of --cp has a piece from the front and one from the back, which "
     "balances causal attention; 0: 1, or 4 if several documents share a sequence",
     "0..8"},
};
static const GxField gx__options_mesh_shards[] = {
    {"zero", GX_FIELD_STRING, GX__OPTIONS_MESH_AT(zero), "auto",
     "what is sharded among data-parallel ranks, so that each holds a part of it: 1: the optimizer's state; 2: also "
     "gradients; 3: also weights (FSDP); 0: nothing; auto: 3 with --dp_shard or --dp_shard_list, otherwise 0. The "
     "result is the same, except for rounding if there are copies (--dp_replicate)",
     "auto|0|1|2|3"},
    {"dp_shard", GX_FIELD_INT, GX__OPTIONS_MESH_AT(dp_shard), "0",
     "number of data-parallel ranks among which --zero shards; if there are more, each further group of this size has "
     "a copy (HSDP); 0: all ranks if --zero is not 0; -1: all ranks",
     "-1..256"},
    {"dp_replicate", GX_FIELD_INT, GX__OPTIONS_MESH_AT(dp_replicate), "0",
     "groups of --dp_shard ranks, each with a whole copy of the model; 0: as many as there are ranks for", "0..256"},
    {"dp_shard_list", GX_FIELD_INT_LIST, GX__OPTIONS_MESH_AT(dp_shard_list), NULL,
     "share of each rank of --dp_shard, such as 3,1 for unequal memory", "1..65536"},
    {"shard_grads_in_window", GX_FIELD_BOOL, GX__OPTIONS_MESH_AT(shard_grads_in_window), "false",
     "with --zero 2 or 3: reduce-scatter gradients after each micro-batch, not only after a step's last; needs less "
     "memory and more communication",
     NULL},
    {"gathered_units", GX_FIELD_INT, GX__OPTIONS_MESH_AT(gathered_units), "0",
     "with --zero 3: most units (embedding, layers, head) whose gathered weights a rank holds at once; more need more "
     "memory and less communication; 0: two, or three where units of a stage share tensors, such as a tied head",
     "0..4096"},
};
// For a program whose schedule shards everything.
static const GxField gx__options_mesh_own_shards[] = {
    {"tp", GX_FIELD_INT, GX__OPTIONS_MESH_AT(tp), "1",
     "number of ranks that share each layer as the mode splits it (tensor or sequence parallelism)", "1..256"},
    {"dp_shard", GX_FIELD_INT, GX__OPTIONS_MESH_AT(dp_shard), "0",
     "number of ranks among which each unit (embedding, layers, head) is sharded; if there are more, each further "
     "group of this size has a copy (HSDP); 0 or -1: all that --tp leaves",
     "-1..256"},
    {"dp_replicate", GX_FIELD_INT, GX__OPTIONS_MESH_AT(dp_replicate), "0",
     "groups of --dp_shard ranks, each with a whole copy of the model; 0: as many as there are ranks for", "0..256"},
    {"shard_grads_in_window", GX_FIELD_BOOL, GX__OPTIONS_MESH_AT(shard_grads_in_window), "false",
     "reduce-scatter gradients after each micro-batch, not only after a step's last; needs less memory and more "
     "communication",
     NULL},
};

const GxField *gx_options_mesh_field(const char *name)
{
    const GxField *found = gx_field_find(GX_FIELDS(gx__options_mesh_tp), name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_mesh_stages), name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_mesh_layers), name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_mesh_cp), name);
    return found ? found : gx_field_find(GX_FIELDS(gx__options_mesh_shards), name);
}

static GxStatus gx__options_mesh_add_stages(GxConfig *c, GxTrainOptions *o, const GxStepsSchedule *schedule,
                                            const char *title, const char *program, GxError *err)
{
    const GxField *order = gx_field_find(GX_FIELDS(gx__options_mesh_stages), "pipeline_schedule");
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_tp), o, err));
    if (schedule) {
        GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_own_stages), o, err));
        GX_TRY(gx_config_add_elsewhere(c, order, 1, program, err));
        o->pipeline_schedule[0] = 0; // since no option sets it
    } else GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_stages), o, err));
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_layers), o, err));
    return gx_config_add(c, title, GX_FIELDS(gx__options_mesh_shards), o, err);
}

// Adds the options of a program whose schedule shards everything, on one stage.
static GxStatus gx__options_mesh_add_own_shards(GxConfig *c, GxTrainOptions *o, const char *title, const char *program,
                                                GxError *err)
{
    static const char *const elsewhere[] = {
        "pp",   "pipeline_schedule", "stage_num_hidden_layers_list", "stage_warm_list", "stage_tp_list",
        "zero", "gathered_units"};
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_own_shards), o, err));
    GX_TRY(gx_config_add(c, title, gx_options_mesh_field("dp_shard_list"), 1, o, err));
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        GX_TRY(gx_config_add_elsewhere(c, gx_options_mesh_field(elsewhere[i]), 1, program, err));
    o->pp = 1, o->pipeline_schedule[0] = 0; // since no option sets them
    snprintf(o->zero, sizeof o->zero, "3");
    return GX_OK;
}

GxStatus gx_options_add_mesh(GxConfig *c, GxTrainOptions *o, const GxStepsSchedule *schedule, const char *title,
                             const char *program, GxError *err)
{
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_mesh_cp), o, err));
    if (schedule && schedule->has_shards) return gx__options_mesh_add_own_shards(c, o, title, program, err);
    return gx__options_mesh_add_stages(c, o, schedule, title, program, err);
}

// ---- what they say -------------------------------------------------------------------------------------------------

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

// Checks that the ranks divide into stages, and that options about stages fit their number.
static GxStatus gx__options_mesh_check_stages(const GxTrainOptions *o, int world, GxError *err)
{
    const int listed = o->stage_num_hidden_layers_list.n, chunks = o->pp > 1 ? gx__options_mesh_chunks(o) : 1;
    if (listed && listed != chunks * o->pp)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "stage_num_hidden_layers_list has %d entr%s, but --pp %ld makes %ld stage%s%s; give the layers "
                       "of each stage, or leave the list out",
                       listed, listed == 1 ? "y" : "ies", (long)o->pp, (long)(chunks * o->pp),
                       chunks * o->pp == 1 ? "" : "s", chunks > 1 ? ", two on each rank" : "");
    if (o->stage_warm_list.n && o->stage_warm_list.n != o->pp)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "stage_warm_list has %d entr%s, but --pp %ld makes %ld stage%s; give one for each stage, or leave "
            "the list out",
            o->stage_warm_list.n, o->stage_warm_list.n == 1 ? "y" : "ies", (long)o->pp, (long)o->pp,
            o->pp == 1 ? "" : "s");
    if (o->pp == 1 && o->pipeline_schedule[0] && strcmp(o->pipeline_schedule, "1f1b"))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--pipeline_schedule %s needs several stages, but --pp is 1; say --pp 2 or more, or leave it out",
            o->pipeline_schedule);
    return gx__options_mesh_check_divides("pp", o->pp, world, "", err);
}

// The rows of a sequence.
static GxStatus gx__options_mesh_check_cp(const GxTrainOptions *o, GxError *err)
{
    const GxIntList *list = &o->cp_list;
    int64_t sum = 0;
    for (int i = 0; i < list->n; i++) sum += list->v[i];
    if (o->cp == 1 && (list->n > 1 || o->cp_zigzags))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--cp_%s divides a sequence among the ranks of --cp, which is 1; say --cp 2 or more, or leave it "
            "out",
            list->n > 1 ? "list" : "zigzags");
    if (list->n && list->n != o->cp)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "cp_list has %d entr%s, but --cp %ld ranks share a sequence; give the rows of each, or leave the "
            "list out",
            list->n, list->n == 1 ? "y" : "ies", (long)o->cp);
    if (list->n && sum != o->seq_len)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "cp_list has %ld rows together, but a sequence has %ld (--seq_len)",
                       (long)sum, (long)o->seq_len);
    if (o->cp > o->seq_len)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--cp %ld: a sequence has %ld token%s (--seq_len), fewer than there are ranks "
                       "to share it; use a smaller --cp",
                       (long)o->cp, (long)o->seq_len, gx_text_s(o->seq_len));
    return GX_OK;
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
                       "--%s is for sharding, but --zero is 0 (nothing is sharded); say --zero 1, 2 or 3, or leave out "
                       "--%s",
                       of, of);
    if (o->shard_grads_in_window && zero < 2)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--shard_grads_in_window is for sharded gradients, but with --zero %d each rank has all of "
                       "them; say --zero 2 or 3, or leave it out",
                       zero);
    if (o->gathered_units && zero != 3)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--gathered_units is for sharded weights, but with --zero %d each rank has all of them; say "
                       "--zero 3, or leave it out",
                       zero);
    if (zero && o->reduce_bucket && gx_config_is_set(c, "reduce_bucket"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--reduce_bucket sums the gradients of several layers together, but with --zero %d those of "
                       "each layer are reduce-scattered separately; leave out one of the two",
                       zero);
    return GX_OK;
}

static GxStatus gx__options_mesh_check_shard_list(const GxTrainOptions *o, GxError *err)
{
    const int listed = o->dp_shard_list.n;
    if (!listed || listed == o->dp_shard) return GX_OK;
    if (o->dp_shard == 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "dp_shard_list lists %d ranks, but each data-parallel rank has everything (--dp_shard 1); leave "
                       "the list out",
                       listed);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "dp_shard_list has %d entr%s, but the model is sharded among %ld ranks (--dp_shard); give the share "
                   "of each rank, or leave the list out",
                   listed, listed == 1 ? "y" : "ies", (long)o->dp_shard);
}

// Resolves how many of the copies of the model that pp and tp leave share, and how many are replicas of these.
static GxStatus gx__options_mesh_resolve_shards(GxTrainOptions *o, const GxConfig *c, int copies, int world,
                                                GxError *err)
{
    const int is_said = o->dp_shard > 1 || o->dp_shard == -1 || o->dp_shard_list.n;
    char left[120] = "", cp[30] = ""; // why the copies are fewer than the ranks
    if (o->cp > 1) snprintf(cp, sizeof cp, ", --cp %ld", (long)o->cp);
    if (copies != world)
        snprintf(left, sizeof left, ", which --pp %ld%s and --tp %ld leave of %d", (long)o->pp, cp, (long)o->tp, world);
    if (!strcmp(o->zero, "auto")) snprintf(o->zero, sizeof o->zero, "%d", is_said ? 3 : 0);
    GX_TRY(gx__options_mesh_check_zero(o, c, err));
    if (!atoi(o->zero)) { // so that training_args.json goes with any number of ranks, and with any --zero
        o->dp_shard = o->dp_replicate = 0;
        return GX_OK;
    }
    if (o->dp_replicate) GX_TRY(gx__options_mesh_check_divides("dp_replicate", o->dp_replicate, copies, left, err));
    if (o->dp_shard < 1) o->dp_shard = copies / gx_max(o->dp_replicate, 1);
    GX_TRY(gx__options_mesh_check_divides("dp_shard", o->dp_shard, copies, left, err));
    if (o->dp_replicate && o->dp_replicate * o->dp_shard != copies)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--dp_replicate %ld x --dp_shard %ld makes %ld ranks, but there are %d%s; leave out one of the two",
            (long)o->dp_replicate, (long)o->dp_shard, (long)(o->dp_replicate * o->dp_shard), copies, left);
    return gx__options_mesh_check_shard_list(o, err);
}

// ---- stages of different sizes -------------------------------------------------------------------------------------

static int gx__options_mesh_is_ragged(const GxTrainOptions *o)
{
    const GxIntList *list = &o->stage_tp_list;
    for (int i = 1; i < list->n; i++)
        if (list->v[i] != list->v[0]) return 1;
    return 0;
}

void gx_options_tp_text(const GxTrainOptions *o, char *text, size_t size)
{
    const GxIntList *list = &o->stage_tp_list;
    int n = snprintf(text, size, "%ld", (long)(list->n ? list->v[0] : o->tp));
    for (int i = 1; i < list->n && gx__options_mesh_is_ragged(o) && n < (int)size; i++)
        n += snprintf(text + n, size - (size_t)n, ",%ld", (long)list->v[i]);
}

// What says that ranks share something that needs several copies of the model; NULL: nothing does.
static const char *gx__options_mesh_copies_option(const GxTrainOptions *o)
{
    const int zero = atoi(o->zero); // of "auto" 0
    return zero                                   ? "zero"
           : o->dp_shard > 1 || o->dp_shard == -1 ? "dp_shard"
           : o->dp_replicate > 1                  ? "dp_replicate"
           : o->dp_shard_list.n                   ? "dp_shard_list"
           : o->dp_batch_size_list.n > 1          ? "dp_batch_size_list"
                                                  : NULL;
}

// Stages of different sizes: what then does not go together.
static GxStatus gx__options_mesh_check_ragged(const GxTrainOptions *o, const GxMode *mode, const char *text,
                                              GxError *err)
{
    const char *copies = gx__options_mesh_copies_option(o);
    if (o->cp > 1)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "--cp %ld: stages of different sizes (--stage_tp_list %s) do not share sequences; leave out one "
                       "of the two",
                       (long)o->cp, text);
    if (!gx_methods_split(mode->methods))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--stage_tp_list %s: mode %s splits nothing among the ranks of a stage; use another mode, or "
                       "--pp",
                       text, mode->name);
    if (gx__options_mesh_chunks(o) > 1)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "--pipeline_schedule %s puts two stages on each rank, which stages of different sizes "
                       "(--stage_tp_list %s) do not support; use 1f1b, gpipe or zb1p",
                       o->pipeline_schedule, text);
    if (copies)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "--%s is about several copies of the model, but stages of different sizes (--stage_tp_list %s) "
                       "have one; leave out one of the two",
                       copies, text);
    return GX_OK;
}

// Takes the number of stages, and of ranks in each if it is the same in all, from --stage_tp_list.
static GxStatus gx__options_mesh_resolve_widths(GxTrainOptions *o, const GxConfig *c, const GxMode *mode, int world,
                                                GxError *err)
{
    const GxIntList *list = &o->stage_tp_list;
    const int is_ragged = gx__options_mesh_is_ragged(o);
    int64_t sum = 0;
    char text[120] = "";
    for (int i = 0; i < list->n; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%ld", i ? "," : "", (long)list->v[i]);
        sum += list->v[i];
    }
    if (sum != world)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--stage_tp_list %s has %ld ranks, but there are %d; every rank is in one stage", text,
                       (long)sum, world);
    if (gx_config_is_set(c, "pp") && o->pp && o->pp != list->n)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--pp %ld, but --stage_tp_list %s has %d stage%s; leave out --pp",
                       (long)o->pp, text, list->n, list->n == 1 ? "" : "s");
    if (o->tp && (is_ragged ? gx_config_is_set(c, "tp") : o->tp != list->v[0]))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--tp %ld, but --stage_tp_list %s says how many ranks share the layers of each stage; leave out "
                       "--tp",
                       (long)o->tp, text);
    o->pp = list->n, o->tp = is_ragged ? 0 : list->v[0];
    if (!is_ragged) return GX_OK;
    GX_TRY(gx__options_mesh_check_ragged(o, mode, text, err));
    snprintf(o->zero, sizeof o->zero, "0");
    o->dp_shard = o->dp_replicate = 0;
    return gx__options_mesh_check_stages(o, (int)o->pp, err);
}

GxStatus gx_options_resolve_mesh(GxTrainOptions *o, const GxConfig *c, const GxMode *mode, int world, GxError *err)
{
    const int is_split = gx_methods_split(mode->methods);
    if (o->stage_tp_list.n) GX_TRY(gx__options_mesh_resolve_widths(o, c, mode, world, err));
    if (gx__options_mesh_is_ragged(o)) return GX_OK;
    if (!is_split && o->tp > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--tp %ld: mode %s splits nothing among ranks; leave out --tp, or use another mode", (long)o->tp,
                       mode->name);
    if (!o->pp) o->pp = gx_max(world / (gx_max(o->tp, 1) * o->cp), 1);
    GX_TRY(gx__options_mesh_check_stages(o, world, err));
    const int of_stage = world / (int)o->pp;
    GX_TRY(gx__options_mesh_check_divides("cp", o->cp, of_stage, o->pp > 1 ? " of a stage" : "", err));
    GX_TRY(gx__options_mesh_check_cp(o, err));
    const int with_rows = of_stage / (int)o->cp; // ranks of a stage that have the same rows
    if (!o->tp) o->tp = is_split ? with_rows : 1;
    GX_TRY(gx__options_mesh_check_divides("tp", o->tp, with_rows,
                                          o->cp > 1   ? " with the same rows of a sequence"
                                          : o->pp > 1 ? " of a stage"
                                                      : "",
                                          err));
    return gx__options_mesh_resolve_shards(o, c, with_rows / (int)o->tp, world, err);
}

GxStatus gx_options_open_mesh(const GxTrainOptions *o, GxMesh *m, int rank, int world, GxError *err)
{
    int width[GX_FIELD_LIST];
    for (int i = 0; i < o->stage_tp_list.n; i++) width[i] = (int)o->stage_tp_list.v[i];
    if (gx__options_mesh_is_ragged(o)) return gx_mesh_open_stages(m, width, o->stage_tp_list.n, rank, world, err);
    const int copies = world / (int)(o->pp * o->cp * o->tp), shards = atoi(o->zero) ? (int)o->dp_shard : 1;
    const int dims[GX_MESH_AXES] = {(int)o->pp, copies / shards, shards, (int)o->cp, (int)o->tp};
    return gx_mesh_open(m, dims, rank, world, err);
}
#endif
