// session_agree.h: the ranks of a session find each other, and agree on what to run: from which checkpoint, with which
// options, with which model, arranged in which mesh. Options that only one rank has are refused by name.
#ifndef GX_SESSION_AGREE_H
#define GX_SESSION_AGREE_H
#include "session.h"
GX_BEGIN

// Opens the communicator, with memory of its own, since the ranks must agree before there is a plan; then resolves the
// options, including those of a resumed run, and the model's configuration. If ranks have had a session of this run
// before (rank 0 must be one of them), all continue from the run's last checkpoint (gx_run_rejoin). Until
// gx_session_arrange, all ranks are data-parallel.
GxStatus gx_session_agree(GxSession *s);
// Arranges the ranks in the mesh that the options say.
GxStatus gx_session_arrange(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_AGREE_IMPLEMENTED)
#define GX_SESSION_AGREE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../text/sentence_modules.h"
#include "agree.h"
#include "epochs.h"
#include "machine.h"
#include "options_lists.h"
#include "options_mesh.h"
#include "options_mode.h"
#include "output.h"
#include "recompute.h"
#include "run_checks.h"

// What rank 0, if it has had a session of this run, tells the others: that they continue from its last checkpoint, and
// how far the run is. In one struct, so that it is one message.
typedef struct {
    int64_t sessions;
    GxPosition at;
    char folder[GX_PATH];
} gx__SessionAgreeRejoin;

static GxStatus gx__session_agree_rejoin(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    gx__SessionAgreeRejoin said = GX_ZERO;
    said.sessions = r->sessions, said.at = r->at;
    if (r->sessions && gx_session_is_first(s)) gx_checkpoint_path(said.folder, r->o.output_dir, r->at.saved, &g->error);
    gx_at(g, -1, "rejoin");
    gx_broadcast(g, GX_AXIS_ALL, 0, &said, sizeof said, GX_U8);
    GX_TRY(gx_status(g));
    if (!said.sessions) return GX_OK;
    r->sessions = (int)said.sessions, r->at = said.at; // the same on all ranks
    return gx_run_rejoin(r, said.folder, &g->error);
}

static const char *gx__session_agree_folder(const GxTrainRun *r) // of --adapter or --model
{
    return r->o.tuning.adapter[0] ? r->o.tuning.adapter : r->o.model;
}

// The options that the model of gx__session_agree_folder was trained with, from the file path[GX_PATH], which is set;
// NULL: not known, or this is not the first rank. gx_json_free() it.
static GxJson *gx__session_agree_trained_with(const GxSession *s, char *path)
{
    const char *folder = gx__session_agree_folder(s->run);
    GxJson *args = NULL;
    GxError ignored = GX_ZERO;
    if (!gx_session_is_first(s) || !folder[0] || gx_path_join(path, folder, "training_args.json", &ignored) != GX_OK ||
        !gx_path_is_file(path) || gx_json_read(&args, path, 1 << 20, &ignored) != GX_OK)
        return NULL;
    return args;
}

// Without training, the sequence length defaults to what the model was trained with, if its folder says so; for vectors
// of texts, to the length at which sentence-transformers would truncate them.
static GxStatus gx__session_agree_resolve_length(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError ignored = GX_ZERO;
    char path[GX_PATH];
    static const char *const names[] = {"the default of --seq_len", "seq_len in the model's training_args.json",
                                        "what the model's folder says (max_seq_length, else model_max_length)"};
    int64_t length[2] = {0, 0}; // and the number of its name
    const int is_default = gx_config_source(&r->config, "seq_len") == GX_FROM_DEFAULT;
    if (is_default) r->seq_len_is = names[0];
    const char *folder = gx__session_agree_folder(r);
    if (!gx_options_is_inference(&r->o) || r->resume.folder[0]) return GX_OK;
    GxJson *args = gx__session_agree_trained_with(s, path);
    const GxJson *said = gx_json_get(args, "seq_len");
    if (gx_json_type(said) == GX_JSON_INT) length[0] = gx_json_int(said), length[1] = 1;
    gx_json_free(args);
    if (gx_session_is_first(s) && folder[0] && gx_options_embeds(&r->o)) {
        int64_t most = 0;
        // the task says what is wrong
        if (gx_sentence_most(folder, &most, &ignored) == GX_OK && most) length[0] = most, length[1] = 2;
    }
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, length, 2, GX_I64);
    if (length[0] > 0 && length[0] <= 16777216 && is_default)
        r->o.seq_len = length[0], r->seq_len_is = names[length[1]];
    return gx_status(g);
}

// Without training, options of the task that say how texts are read default to what the model was trained with.
static GxStatus gx__session_agree_resolve_reading(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    const char *const *names = r->task->options.reading;
    const char *folder = gx__session_agree_folder(r);
    char said[2048] = "", path[GX_PATH] = "", *text = NULL;
    GxJson *some = NULL;
    GxError ignored = GX_ZERO;
    if (!names || !gx_options_is_inference(&r->o) || r->resume.folder[0] || !folder[0]) return GX_OK;
    GxJson *args = gx__session_agree_trained_with(s, path);
    if (args) {
        int64_t bytes = 0;
        some = gx_json_new_object();
        for (int i = 0; names[i]; i++)
            if (gx_json_get(args, names[i]))
                gx_json_set(some, names[i], gx_json_copy(gx_json_get(args, names[i])), &ignored);
        if (gx_json_dump(some, 0, &text, &bytes, &ignored) == GX_OK && bytes < (int64_t)sizeof said)
            snprintf(said, sizeof said, "%s", text);
        free(text), gx_json_free(args), gx_json_free(some);
    }
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, said, sizeof said, GX_U8);
    GX_TRY(gx_status(g));
    if (!said[0]) return GX_OK;
    GX_TRY(gx_json_parse(&some, said, (int64_t)strlen(said), folder, &g->error));
    const GxStatus status = gx_config_take(&r->config, some, NULL, path[0] ? path : folder, &g->error);
    gx_json_free(some);
    return status;
}

// Reads the method, the hyperparameters and the base's folder from the adapter that training starts from.
static GxStatus gx__session_agree_read_adapter(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxAdapter adapter;
    if (!r->o.tuning.adapter[0] || r->resume.folder[0]) return GX_OK;
    GxPeftConfig *c = (GxPeftConfig *)calloc(1, sizeof *c);
    if (!c) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a configuration");
    if (gx_session_is_first(s)) gx_output_check_adapter(r->o.tuning.adapter, &g->error);
    if (gx_adapter_read_config(g, c, &adapter, r->o.tuning.adapter) == GX_OK) {
        gx_tuning_take(&r->o.tuning, &r->config, c, &g->error);
        r->vocab_of_adapter = c->vocab;
        if (!r->o.model[0]) snprintf(r->o.model, sizeof r->o.model, "%s", c->base);
        if (gx_session_is_first(s)) gx_output_check_exists(r->o.model, "model", &g->error);
        if (gx_session_is_first(s) && c->freezes_b && !gx_options_is_inference(&r->o) && !r->o.freeze[0])
            gx_log(&g->log, GX_LOG_WARNING,
                   "the adapter %s was trained with lora_B frozen (init_lora_weights \"mica\"), but now both matrices "
                   "are trained; --freeze '*.lora_B.*' keeps lora_B as it is",
                   r->o.tuning.adapter);
    }
    free(c);
    return gx_status(g);
}

// Decides the mode, from the options given now and those that a resumed run was started with.
static GxStatus gx__session_agree_resolve_mode(GxSession *s)
{
    GxTrainRun *r = s->run;
    char methods[60];
    GxError *err = &s->g->error;
    s->mode = r->program_mode;
    if (!s->mode) {
        GX_TRY(gx_options_resolve_mode(&r->o, &r->config, &s->composed, err));
        s->mode = &s->composed;
    }
    gx_methods_text(s->mode->methods, methods, sizeof methods);
    gx_resume_keep_layout(&r->resume, &r->o, &r->config, methods, s->g->world);
    GX_TRY(gx_options_bytes("max_shard_size", r->o.max_shard_size, &r->shard_bytes, err));
    return gx_options_check_lists(&r->o, s->mode, err);
}

static GxStatus gx__session_agree_find_run(GxSession *s)
{
    GxContext *g = s->g;
    GxTrainRun *r = s->run;
    GxError *err = &g->error;
    GxResume *resume = &r->resume;
    GxTrainOptions *o = &r->o;
    const int is_first = gx_session_is_first(s), read_only = o->dry_run || gx_options_is_inference(o);
    int tensorboard;
    GX_TRY(gx_agree_on_start(g, &r->config, o->predicts));
    GX_TRY(gx_resume_find(g, resume, o, &r->config, read_only, &r->lock));
    if (is_first) gx_run_check_output(r, err);
    GX_TRY(gx_resume_check_choice(resume, r->family, r->task, err));
    if (is_first) gx_resume_check_model(resume, o, err);
    if (is_first) gx_resume_warn_of_unknown(resume, &r->config, &g->log);
    GX_TRY(gx_resume_take_options(resume, r->task, &r->config, o, err));
    GX_TRY(gx_epochs_choose(o, &r->config, err));
    GX_TRY(gx_options_report_to(o, &tensorboard, err));
    GX_TRY(gx_offload_check(o, &r->config, err));
    GX_TRY(gx_options_bytes("memory_limit", o->memory_limit, &r->memory_limit, err));
    GX_TRY(gx_run_check_encoder(r, err));
    GX_TRY(gx_resume_check_tuning(resume, o, err));
    GX_TRY(gx_run_check_tf32(r, g->device, err));
    g->tf32 = o->tf32;
    GX_TRY(gx_run_check_autotune(r, g->device, err));
    if (is_first) gx_run_check_base(r, err);
    if (gx_options_is_inference(o) && resume->args && !resume->folder[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the run in %s has no complete checkpoint to show; --model or --adapter, without --resume, "
                       "shows what it began with",
                       o->output_dir);
    GX_TRY(gx__session_agree_read_adapter(s));
    GX_TRY(gx_tuning_resolve(&o->tuning, &r->config, o->model, err));
    if (is_first) gx_run_check_overwrite(r, err);
    GX_TRY(gx_run_check_tuning(r, err));
    if (gx_options_is_inference(o) && !resume->folder[0] && !o->model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "there is no checkpoint in %s to show", o->output_dir);
    GX_TRY(gx__session_agree_resolve_length(s));
    GX_TRY(gx__session_agree_resolve_reading(s));
    return gx__session_agree_resolve_mode(s);
}

static GxStatus gx__session_agree_read_model(GxSession *s)
{
    GxTrainRun *r = s->run;
    char folder[GX_PATH] = "";
    snprintf(folder, sizeof folder, "%s", r->resume.folder[0] ? r->resume.folder : r->o.model);
    GX_TRY(gx_agree_on_model(s->g, &r->config, r->family, r->model_config, folder));
    if (r->resume.folder[0] || !r->o.model[0]) return GX_OK;
    int64_t *vocab = r->family->vocab_size(r->model_config);
    r->vocab_of_model = *vocab;
    *vocab = gx_max(*vocab, r->vocab_of_adapter);
    return GX_OK;
}

// The ranks find each other, and agree on what to run.
GxStatus gx_session_agree(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError *err = &g->error;
    GxTrainOptions *o = &r->o;
    int dims[GX_MESH_AXES] = {1, 1, -1, 1, 1};
    if (g->world > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "there are %d ranks, but at most %d are possible", g->world,
                       GX_MAX_PARTS);
    // until the ranks have agreed on the arrangement, all are data-parallel
    GX_TRY(gx_mesh_open(&s->mesh, dims, g->rank, g->world, err));
    g->mesh = &s->mesh;
    GX_TRY(gx_open_comm(g, &r->comm_arena, o->timeout));
    GX_TRY(gx__session_agree_rejoin(s));
    GX_TRY(gx__session_agree_find_run(s));
    GX_TRY(gx_agree_on_options(g, &r->config, r->family, r->task, s->mode));
    if (g->comm && !o->overlap) g->comm->no_background = 1;
    if (!gx_options_is_inference(o)) GX_TRY(gx_resume_check(&r->resume, o, err));
    GX_TRY(gx__session_agree_read_model(s));
    return gx_recompute_check(r, err);
}

GxStatus gx_session_arrange(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError *err = &g->error;
    GxTrainOptions *o = &r->o;
    GX_TRY(gx_options_resolve_mesh(o, &r->config, s->mode, g->world, err));
    r->chosen = gx_options_choose(o, r->program_schedule);
    GX_TRY(gx_run_check_graphs(r, s->mode, g->device, err));
    GX_TRY(gx_options_open_mesh(o, &s->mesh, g->rank, g->world, err));
    if (gx_order_info(r->chosen.order)->is_v) s->mesh.head = 0;
    return gx_open_device_comm(g, o->device_comm);
}
#endif
