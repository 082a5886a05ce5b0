// setup.h: the order in which a training run is opened. What happens at each point has a room of its own:
//
//     options       options.h     flags and --config; --help ends here
//     communicator                with memory of its own, since the ranks have to agree before there is a plan
//     agreement     agree.h       options, the checkpoint to resume (output.h), the model's configuration
//     the task      task/         its data, on which ranks agree, too
//     plan          plan.h        from a step on the device `none` (buffers.h); --dry_run ends here
//     memory        buffers.h     the arena, exactly as planned
//     weights       checkpoint.h  drawn, loaded or resumed
//     output        output.h      the folder: locked, and what stands in the way refused
#ifndef GX_SETUP_H
#define GX_SETUP_H
#include "trainer.h"
GX_BEGIN

GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SETUP_IMPLEMENTED)
#define GX_SETUP_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../cpu/cpu.h"
#include "../comm/nccl.h"
#include "agree.h"
#include "buffers.h"
#include "launch.h"
#include "output.h"
#include "processors.h"
#include "report.h"

// ---- options --------------------------------------------------------------------------------------------------------

static GxStatus gx__setup_choose_device(GxTrainer *t)
{
    GxContext *g = t->g;
    if (!strcmp(t->o.device, "cpu")) g->device = gx_device_cpu();
    if (!strcmp(t->o.device, "auto") || !strcmp(t->o.device, g->device->name)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "--device %s: this program was built for %s; rebuild it with make DEVICE=%s", t->o.device,
                   g->device->name, t->o.device);
}

static GxStatus gx__setup_read_options(GxTrainer *t, int argc, char **argv)
{
    GxError *err = &t->g->error;
    t->model_config = calloc(1, t->family->config_size);
    t->self = calloc(1, t->task->size);
    if (!t->model_config || !t->self) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    gx_config_open(&t->config);
    GX_TRY(gx_config_add(&t->config, t->task->name, t->task->fields, t->task->n_fields, t->self, err));
    GX_TRY(gx_options_add(&t->config, &t->o, t->mode, err));
    GX_TRY(gx_config_add(&t->config, "model", t->family->fields, t->family->n_fields, t->model_config, err));
    GX_TRY(gx_config_read_args(&t->config, argc, argv, err));
    if (t->config.help) {
        gx_report_help(t, argv[0]);
        t->done = 1;
        return GX_OK;
    }
    if (t->o.threads) t->g->threads = (int)t->o.threads;
    if (!t->mode) {
        GX_TRY(gx_options_resolve_mode(&t->o, &t->config, &t->composed, err));
        t->mode = &t->composed;
    }
    GX_TRY(gx_options_check_lists(&t->o, t->mode, err));
    GX_TRY(gx__setup_choose_device(t));
    if (t->o.model[0] && t->o.resume[0] && strcmp(t->o.resume, "auto"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--model and --resume both name a folder; a checkpoint that is resumed brings its model along");
    return GX_OK;
}

// ---- devices and ranks ----------------------------------------------------------------------------------------------

// The communicator's memory comes before the plan, which needs what the ranks agree on; it is counted with it.
static GxStatus gx__setup_open_comm(GxTrainer *t)
{
    GxContext *g = t->g, dry = *t->g;
    GxComm *comm = g->comm, nobody = GX_ZERO;
    GxArena counting;
    if (!comm) return GX_OK;
    comm->timeout = t->o.timeout;
    nobody.rank = g->rank, nobody.world = g->world, nobody.local_ranks = comm->local_ranks;
    gx_arena_open_dry(&counting);
    dry.host = &counting;
    GX_TRY(gx_comm_open(&dry, &nobody));
    GX_TRY(gx_arena_open(&t->comm_arena, counting.peak, &g->error));
    g->host = &t->comm_arena;
    g->comm = NULL;
    return gx_comm_open(g, comm);
}

// A plan needs no card.
static GxStatus gx__setup_open_device(GxTrainer *t)
{
    GxContext *g = t->g;
    const GxError none = GX_ZERO;
    if (gx_device_open(g) == GX_OK || !t->o.dry_run || g->error.code != GX_ERR_DEVICE) return gx_status(g);
    g->error = none; // the first line says why there is no card
    gx_device_close(g);
    return GX_OK;
}

// 1: every rank has a card, and no other rank has it.
static int gx__setup_has_own_cards(GxContext *g)
{
    const uint64_t mine = gx_plan_card(g);
    uint64_t all[GX_MAX_PARTS];
    const GxSplit ranks = gx_split_even(g->world, g->world);
    gx_at(g, -1, "cards");
    gx_all_gather(g, GX_AXIS_ALL, &ranks, all, &mine, 1, GX_I64);
    for (int a = 0; a < g->world && !gx_failed(g); a++)
        for (int b = 0; b <= a; b++)
            if (all[a] == 0 || (b < a && all[a] == all[b])) return 0;
    return !gx_failed(g);
}

// Of a dry run without a card, which calls none of its functions.
static const GxDeviceEngine gx__setup_planned_nccl = {"nccl", NULL, NULL, NULL};

// Who moves buffers of the cards. All ranks choose the same, also where some are on cards and some are not.
static GxStatus gx__setup_open_device_comm(GxTrainer *t)
{
    GxContext *g = t->g;
    const int wanted = !strcmp(t->o.device_comm, "nccl");
    if (wanted && !g->device->card)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "--device_comm nccl moves buffers of the device cuda; rank %d is on %s%s", g->rank,
                       g->device->name,
                       gx_default_device()->card ? "" : ", for which it was built: rebuild it with make DEVICE=cuda");
    if (g->world == 1 || !strcmp(t->o.device_comm, "host")) return GX_OK;
    const int own_cards = gx__setup_has_own_cards(g);
    if (gx_failed(g) || !(wanted || own_cards)) return gx_status(g);
    if (!gx_plan_card(g)) g->comm->device_engine = &gx__setup_planned_nccl;
#ifdef GX_WITH_CUDA
    else gx_nccl_open(g);
#endif
    return gx_status(g);
}

// ---- the parts ------------------------------------------------------------------------------------------------------

// --resume auto becomes the folder that it stands for, or nothing.
static GxStatus gx__setup_find_resume(GxTrainer *t)
{
    if (strcmp(t->o.resume, "auto")) {
        snprintf(t->resume, sizeof t->resume, "%s", t->o.resume);
        return GX_OK;
    }
    if (!t->o.dry_run && gx_path_is_folder(t->o.output_dir))
        GX_TRY(gx_output_lock(&t->lock, t->o.output_dir, &t->g->error));
    return gx_checkpoint_newest(t->o.output_dir, gx_run_read(t->o.output_dir), t->resume, &t->g->log, &t->g->error);
}

static GxStatus gx__setup_choose_model(GxTrainer *t)
{
    char folder[GX_PATH] = "";
    if (gx_trainer_is_first(t)) gx__setup_find_resume(t);
    gx_agree_on_path(t->g, t->resume);
    snprintf(folder, sizeof folder, "%s", t->resume[0] ? t->resume : t->o.model);
    return gx_agree_on_model(t->g, &t->config, t->family, t->model_config, folder);
}

static GxStatus gx__setup_open_parts(GxTrainer *t)
{
    GxContext *g = t->g;
    GxError *err = &g->error;
    GxTrainOptions *o = &t->o;
    int dims[GX_MESH_AXES] = {1, 1, -1, 1, 1};
    GxModelOptions options = GX_ZERO;
    GxRunnerSpec runner = GX_ZERO;
    GxTaskSetup task = GX_ZERO;
    const GxSplitLists lists = {{o->tp_num_attention_heads_list.v, o->tp_num_attention_heads_list.n},
                                {o->tp_intermediate_size_list.v, o->tp_intermediate_size_list.n},
                                {o->tp_vocab_size_list.v, o->tp_vocab_size_list.n},
                                {o->seq_scatter_list.v, o->seq_scatter_list.n}};
    if (g->world > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%d ranks; at most %d are possible", g->world, GX_MAX_PARTS);
    // how the ranks are arranged is one of the things to agree on: until then all are data-parallel
    GX_TRY(gx_mesh_open(&t->mesh, dims, g->rank, g->world, err));
    g->mesh = &t->mesh;
    GX_TRY(gx__setup_open_comm(t));
    GX_TRY(gx_agree_on_options(g, &t->config, t->family, t->task, t->mode->methods));
    GX_TRY(gx__setup_choose_model(t));
    GX_TRY(gx_options_resolve_tp(o, t->mode, g->world, err));
    dims[4] = (int)o->tp;
    GX_TRY(gx_mesh_open(&t->mesh, dims, g->rank, g->world, err));
    GX_TRY(gx__setup_open_device_comm(t));
    GX_TRY(gx_options_resolve_batch(o, &t->config, gx_mesh_size(&t->mesh, GX_AXIS_DP), &t->batch_split, err));
    if (!gx_config_is_set(&t->config, "warmup_steps")) o->warmup_steps = gx_min(o->warmup_steps, o->max_steps / 5);
    GX_TRY(gx_schedule_open(&t->schedule, o->lr_scheduler_type, o->learning_rate, o->min_lr_ratio, o->warmup_steps,
                            o->lr_decay_steps, o->max_steps, err));
    runner.micro_batches = (int)o->gradient_accumulation_steps;
    runner.recomputes_layers = !strcmp(o->recompute, "layer");
    runner.counts = t->task->counts, runner.task = t->self;
    options.lists = &lists;
    options.dtype = strcmp(o->precision, "bf16") ? GX_F32 : GX_BF16;
    options.freeze = o->freeze;
    GX_TRY(gx_model_open(g, &t->model, t->family, t->model_config, t->mode, &options));
    GX_TRY(gx_runner_open(g, &t->runner, &t->model, &t->optimizer, &runner));
    task.vocab = gx_model_vocab(&t->model), task.seq_len = o->seq_len, task.is_dry = o->dry_run;
    return t->task->open(g, t->self, &task);
}

static void gx__setup_optimizer_init(GxTrainer *t)
{
    GxOptimizer *o = &t->optimizer;
    GxAdamW adamw = {(float)t->o.adam_beta1, (float)t->o.adam_beta2, (float)t->o.adam_epsilon,
                     (float)t->o.weight_decay};
    GxSgd sgd = {(float)t->o.momentum, (float)t->o.weight_decay};
    o->kind = !strcmp(t->o.optimizer, "sgd") ? GX_OPTIMIZER_SGD : GX_OPTIMIZER_ADAMW;
    o->adamw = adamw;
    o->sgd = sgd;
    o->max_grad_norm = t->o.max_grad_norm;
}

// ---- weights and the output folder ----------------------------------------------------------------------------------

static GxStatus gx__setup_warn_of_other_samples(GxTrainer *t, int64_t seq_len)
{
    char words[200] = "with another";
    int same;
    if (t->task->elsewhere) snprintf(words, sizeof words, "%s or", t->task->elsewhere);
    GX_TRY(gx_checkpoint_compare(&same, t->resume, t->task, t->self, &t->g->error));
    if (!same || seq_len != t->o.seq_len)
        gx_log(&t->g->log, GX_LOG_WARNING, "%s was trained %s seq_len: its samples will not go on where they stopped",
               t->resume, words);
    return GX_OK;
}

// --resume brings weights, moments and position; all else is what this command says, forgotten or meant.
static GxStatus gx__setup_warn_of_other_options(GxTrainer *t)
{
    char changed[2000];
    GX_TRY(gx_checkpoint_compare_options(changed, sizeof changed, t->resume, &t->config, &t->g->error));
    if (changed[0]) gx_log(&t->g->log, GX_LOG_WARNING, "%s was trained with other options: %s", t->resume, changed);
    return GX_OK;
}

static GxStatus gx__setup_resume(GxTrainer *t)
{
    GxContext *g = t->g;
    GxTrainState s = GX_ZERO;
    gx_checkpoint_load_weights(g, &t->model, t->resume);
    gx_checkpoint_load_state(g, &t->model, &t->optimizer, &s, t->resume);
    GX_TRY(gx_status(g));
    if (s.seed != t->o.seed && gx_config_is_set(&t->config, "seed"))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "%s was trained with seed %ld; with another one it would not be the same run: leave out --seed, "
                       "or start a new run from its weights with --model",
                       t->resume, (long)s.seed);
    t->o.seed = s.seed;
    if (gx_trainer_is_first(t)) GX_TRY(gx__setup_warn_of_other_samples(t, s.seq_len));
    if (gx_trainer_is_first(t)) GX_TRY(gx__setup_warn_of_other_options(t));
    t->run = s.run;
    t->step = t->begun = s.step;
    t->samples = s.samples;
    t->seen.applied = s.applied;
    gx_to_device(g, g->step, &t->seen, sizeof t->seen);
    t->saved = s.step;
    gx_report_resumed(t);
    if (gx_trainer_is_first(t) && s.step >= t->o.max_steps)
        gx_log(&g->log, GX_LOG_WARNING, "that is all of max_steps (%ld) already: there is nothing to train",
               (long)t->o.max_steps);
    return GX_OK;
}

static GxStatus gx__setup_set_weights(GxTrainer *t)
{
    if (t->resume[0]) GX_TRY(gx__setup_resume(t));
    else if (t->o.model[0]) gx_checkpoint_load_weights(t->g, &t->model, t->o.model);
    else gx_model_init(t->g, &t->model, (uint64_t)t->o.seed);
    return gx_status(t->g);
}

static GxStatus gx__setup_show_baseline(GxTrainer *t)
{
    GxMetric baseline = GX_ZERO;
    if (t->task->baseline) GX_TRY(t->task->baseline(t->self, &baseline, &t->g->error));
    if (!baseline.name) return GX_OK;
    gx_report_baseline(t, &baseline);
    return gx_baseline_log(t->log, t->log_path, &baseline, &t->g->error);
}

static GxStatus gx__setup_open_output(GxTrainer *t)
{
    char path[GX_PATH];
    GxError *err = &t->g->error;
    if (!gx_trainer_is_first(t)) return GX_OK;
    GX_TRY(gx_folder_make(t->o.output_dir, err));
    GX_TRY(gx_output_lock(&t->lock, t->o.output_dir, err));
    if (!t->run) t->run = gx_run_draw();
    GX_TRY(gx_checkpoint_refuse_others(t->o.output_dir, t->run, t->begun, t->o.max_steps, err));
    GX_TRY(gx_run_write(t->o.output_dir, t->run, err));
    GX_TRY(gx_path_join(path, t->o.output_dir, "training_args.json", err));
    GX_TRY(gx_config_write_json(&t->config, path, err));
    GX_TRY(gx_path_join(t->log_path, t->o.output_dir, "log.jsonl", err));
    if (t->step == 0 && gx_path_is_file(t->log_path))
        gx_log(&t->g->log, GX_LOG_WARNING,
               "%s of an earlier run is overwritten; --resume auto would have continued that run", t->log_path);
    GX_TRY(gx_log_open(&t->log, t->log_path, t->step, err));
    return gx__setup_show_baseline(t);
}

static GxStatus gx__setup_open_memory(GxTrainer *t)
{
    GxContext *g = t->g;
    GX_TRY(gx_arenas_open(g, &t->arena, &t->host_arena, t->plan.arena, t->plan.host));
    gx_buffers_take(t, g);
    return gx_status(g);
}

GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv)
{
    memset(t, 0, sizeof *t);
    t->g = g;
    t->lock = -1;
    t->family = family;
    t->task = task;
    t->mode = mode;
    if (task->losses != 1)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "task %s has %d losses; models with one are built", task->name,
                       task->losses);
    GX_TRY(gx__setup_read_options(t, argc, argv));
    if (t->done) return GX_OK;
    t->is_seen = 1; // nothing has happened yet
    GX_TRY(gx__setup_open_device(t));
    GX_TRY(gx__setup_open_parts(t));
    t->batch = (GxBatch *)calloc((size_t)t->o.gradient_accumulation_steps, sizeof *t->batch);
    if (!t->batch)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld micro-batches",
                       (long)t->o.gradient_accumulation_steps);
    gx__setup_optimizer_init(t);
    GX_TRY(gx_plan_make(&t->plan, g, &t->comm_arena, t->o.ranks > 1 ? (int)t->o.ranks : 1, gx_buffers_dry_run, t));
    gx_report_start(t);
    if (t->o.dry_run) {
        t->done = 1;
        return GX_OK;
    }
    if (gx_trainer_is_first(t)) gx_warn_cores(&g->log, gx_threads(g), g->comm ? g->comm->local_ranks : 1);
    if (gx_trainer_is_first(t)) gx_warn_waiting(&g->log, gx_threads(g));
    GX_TRY(gx_plan_refuse_too_large(&t->plan, gx_trainer_samples(t), &t->o.dp_batch_size_list, &g->error));
    GX_TRY(gx__setup_open_memory(t));
    GX_TRY(gx__setup_set_weights(t));
    GX_TRY(gx__setup_open_output(t));
    gx_catch_stop_signals(); // before, there is nothing to save
    t->interval_start = gx_seconds();
    return gx_status(g);
}
#endif
