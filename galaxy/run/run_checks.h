// run_checks.h: refuses invalid options of a run before anything large is opened: folders that must not be overwritten,
// options that contradict the device, the task or the method of tuning. Each message says what to do.
#ifndef GX_RUN_CHECKS_H
#define GX_RUN_CHECKS_H
#include "run.h"
GX_BEGIN

// On rank 0, before the model is opened: refuses an output folder that this run must not write to, and a damaged
// checkpoint.
GxStatus gx_run_check_output(const GxTrainRun *r, GxError *err);
// Refuses to overwrite a folder that this run takes its weights from.
GxStatus gx_run_check_overwrite(const GxTrainRun *r, GxError *err);
// Checks the base model of a resumed adapter, which may have moved.
void gx_run_check_base(const GxTrainRun *r, GxError *err);
// Refuses options about --model's weights that do not work with an adapter, which is saved without them, and dropout if
// the task has none; otherwise sets it to 0.
GxStatus gx_run_check_tuning(GxTrainRun *r, GxError *err);
// Refuses --tf32 unless the run computes products in fp32 on a card, --cuda_graphs on a device that has no graphs, and
// --autotune on one that has only one way to compute products.
GxStatus gx_run_check_tf32(const GxTrainRun *r, const GxDevice *device, GxError *err);
// Refuses what a model with an encoder and a decoder does not have: plans, which count one stack of layers, stages of
// different sizes, and schedules that put weight gradients off.
GxStatus gx_run_check_encoder(const GxTrainRun *r, GxError *err);
GxStatus gx_run_check_graphs(const GxTrainRun *r, const GxMode *mode, const GxDevice *device, GxError *err);
GxStatus gx_run_check_autotune(const GxTrainRun *r, const GxDevice *device, GxError *err);
// Refuses --dp_samples_list where copies of the model communicate, or keep records, micro-batch by micro-batch.
// shares: ranks of dp_shard.
GxStatus gx_run_check_samples(const GxTrainRun *r, int shares, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_CHECKS_IMPLEMENTED)
#define GX_RUN_CHECKS_IMPLEMENTED
#include <string.h>
#include "../ops/device.h"
#include "output.h"

GxStatus gx_run_check_output(const GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    if (!r->resume.folder[0] && o->model[0]) GX_TRY(gx_output_check_model(o->model, err));
    if (!r->resume.folder[0] && o->model[0]) GX_TRY(gx_adapter_refuse_as_model(o->model, err));
    if (o->dry_run || gx_options_is_inference(o)) return GX_OK;
    if (o->overwrite_output_dir) return GX_OK;
    return gx_output_refuse_used(o->output_dir, r->resume.state.run, r->resume.is_home, err);
}

GxStatus gx_run_check_overwrite(const GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    const char *const from[] = {o->model, o->tuning.adapter}, *const name[] = {"model", "adapter"};
    for (int i = 0; i < 2 && o->overwrite_output_dir && !o->dry_run && !gx_options_is_inference(o); i++)
        if (from[i][0] && gx_output_contains(o->output_dir, from[i]))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--%s %s lies in %s, which --overwrite_output_dir would empty before anything new is saved; "
                           "choose another --output_dir",
                           name[i], from[i], o->output_dir);
    return GX_OK;
}

void gx_run_check_base(const GxTrainRun *r, GxError *err)
{
    GxError gone = GX_ZERO;
    if (!r->resume.folder[0] || !r->resume.state.base_hash.all ||
        gx_output_check_exists(r->o.model, "model", &gone) == GX_OK)
        return;
    GX_FAIL(err, GX_ERR_ARGUMENT,
            "%s is an adapter of the model %s, but there is no such folder; name the folder of the model with --model",
            r->resume.folder, r->o.model);
}

static GxStatus gx__run_checks_dropout(GxTrainRun *r, GxError *err)
{
    if (!r->task->options.defaults || !r->task->options.defaults->without_dropout) return GX_OK;
    if (gx_config_source(&r->config, "lora_dropout") == GX_FROM_FLAG && r->o.tuning.lora_dropout > 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--lora_dropout is %g, but --task %s needs 0: with dropout, the texts that it compares would be "
                       "computed with different random masks; leave it out",
                       r->o.tuning.lora_dropout, r->task->name);
    r->o.tuning.lora_dropout = 0;
    return GX_OK;
}

GxStatus gx_run_check_tuning(GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    if (!gx_tuning_has_adapter(&o->tuning)) return GX_OK;
    GX_TRY(gx__run_checks_dropout(r, err));
    if (!o->strict)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--strict false initializes some weights of --model at random, but the adapter's folder does "
                       "not contain them, so nobody could load it; leave one of them out");
    if (o->ignore_mismatched_sizes && o->tuning.adapter[0])
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--ignore_mismatched_sizes makes a new head, but the adapter %s has its own; leave one of them out",
            o->tuning.adapter);
    return gx_error_code(err);
}

GxStatus gx_run_check_tf32(const GxTrainRun *r, const GxDevice *device, GxError *err)
{
    const char *name = device->name;
    if (!r->o.tf32 || (!strcmp(name, "cuda") && gx_options_dtype(r->o.precision) == GX_F32)) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "--tf32 needs fp32 on a card, but this run is on the device %s in %s; leave it out, or say --tf32 false", name,
        r->o.precision);
}

GxStatus gx_run_check_encoder(const GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    const char *asks = o->plan[0]                              ? "--plan"
                       : o->machines[0]                        ? "--machines"
                       : o->simulate[0]                        ? "--simulate"
                       : o->stage_tp_list.n                    ? "--stage_tp_list"
                       : !strcmp(o->pipeline_schedule, "zb1p") ? "--pipeline_schedule zb1p"
                       : !strcmp(o->pipeline_schedule, "zbv")  ? "--pipeline_schedule zbv"
                                                               : NULL;
    if (!r->family->frame || !asks) return GX_OK;
    if (!strncmp(asks, "--pipeline", strlen("--pipeline")))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s of a %s, which has an encoder and a decoder, is not supported yet; use 1f1b, gpipe or "
                       "interleaved",
                       asks, r->family->name);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s of a %s, which has an encoder and a decoder, is not supported yet; leave it out, and divide the "
                   "model with --mode, --pp or --zero",
                   asks, r->family->name);
}

GxStatus gx_run_check_graphs(const GxTrainRun *r, const GxMode *mode, const GxDevice *device, GxError *err)
{
    const int is_ring = r->o.cp > 1 && !strcmp(r->o.cp_method, "ring");
    if (!r->o.cuda_graphs || gx_options_is_inference(&r->o)) return GX_OK;
    if (!device->graph_begin)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--cuda_graphs needs a card, but this run is on the device %s; leave it out, or say "
                       "--cuda_graphs false if the resumed run or a --config file sets it",
                       device->name);
    if (is_ring || mode->is_tiled)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--cuda_graphs captures what lies between collectives, but %s sends messages inside layers; "
                       "leave it out, or %s",
                       is_ring ? "--cp_method ring" : "this program, whose collectives go by tiles,",
                       is_ring ? "say --cp_method gather" : "use the program without _tiled");
    return GX_OK;
}

GxStatus gx_run_check_autotune(const GxTrainRun *r, const GxDevice *device, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    if (!o->autotune[0] || device->tune || gx_options_is_inference(o)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--autotune chooses among ways to compute a matrix product, but on the device %s this program has "
                   "only one%s; leave it out, or say --autotune \"\"",
                   device->name, strcmp(device->name, "cpu") ? "" : " (a build with oneDNN has others)");
}

GxStatus gx_run_check_samples(const GxTrainRun *r, int shares, GxError *err)
{
    static const char own[] = "--dp_samples_list gives each copy of the model a number of micro-batches of its own";
    const GxTrainOptions *o = &r->o;
    if (r->chosen.sharded == GX_SHARDS_WEIGHTS && shares > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s, but with --zero 3 ranks gather weights from each other in each micro-batch; use --zero 2, "
                       "or --dp_batch_size_list instead",
                       own);
    if (o->shard_grads_in_window)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s, but with --shard_grads_in_window ranks sum gradients in each micro-batch; leave out "
                       "--shard_grads_in_window, or use --dp_batch_size_list instead",
                       own);
    if (r->chosen.tuning == GX_TUNING_SIDE_ONLY)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s, but the cache of --tuning side_only needs the same samples on each rank in every epoch; use "
            "--tuning side, or --dp_batch_size_list instead",
            own);
    return GX_OK;
}
#endif
