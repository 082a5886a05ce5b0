// resume.h: resumes a run: finds the checkpoint, takes over its options, and checks what must not have changed.
//
// A run's options are in its checkpoints (training_args.json). A resumed run takes them over; options given now
// override them, and every difference is reported. A difference that would make it another run is refused: another
// seed, text or tokenizer, other samples (seq_len), another optimizer or one with other state. (To start a new run with
// only the weights, use --model checkpoint-N.) Options about where the run is computed are not taken over: ranks,
// threads, devices, folders.
//
// The global batch size stays the same for any number of ranks: samples are numbered, and only the accumulation steps
// change. The split of the model (lists, tp) is kept if the number of ranks is the same.
//
//     gx_resume_find           rank 0 searches, and tells the others
//     gx_resume_check_choice   its task and family are those of the program
//     gx_resume_check_model    --model, if given, is the model that the run began from
//     gx_resume_take_options   takes over the options that are not given now
//     gx_resume_keep_layout    ... except the layout, if ranks, mode or schedule differ, or with --tp, --pp, --stage_tp_list, --zero
//     gx_resume_check          what must be the same is the same
//     gx_resume_check_steps    ... and there are as many steps as it has done
//     gx_resume_check_task     ... also in the task's data, once they are open
//     gx_resume_changes        what differs, in words
#ifndef GX_RESUME_H
#define GX_RESUME_H
#include "checkpoint.h"
#include "options.h"
#include "schedule.h"
#include "task_choice.h"
GX_BEGIN

typedef struct {
    char folder[GX_PATH]; // the checkpoint; "": a new run, or one that starts over
    GxTrainState state;   // of the checkpoint; for a run that starts over only its number
    GxJson *args;         // the run's options so far; NULL: a new run
    char args_path[GX_PATH];
    int is_home; // 1: the folder lies in output_dir, or the run in output_dir was resumed from it
} GxResume;

// Finds the checkpoint that o->resume (auto, a folder or "") means. Called on all ranks; rank 0 may set o->output_dir
// to the checkpoint's folder. *lock: see gx_output_lock. read_only: does not lock or tidy up the folder.
GxStatus gx_resume_find(GxContext *g, GxResume *r, GxTrainOptions *o, const GxConfig *c, int read_only, int *lock);
void gx_resume_close(GxResume *r);
// Names of the options that are always those of this command, never of the run; NULL at the end.
const char *const *gx_resume_local_options(void);

// The task decides which options exist, so it is not taken over: the program must have been called with the same one.
GxStatus gx_resume_check_choice(const GxResume *r, const GxFamily *family, const GxTask *task, GxError *err);
// A checkpoint has its own model: --model must be the one that the run began from, or absent. On rank 0.
GxStatus gx_resume_check_model(const GxResume *r, const GxTrainOptions *o, GxError *err);
// Refuses --tuning of another kind than the checkpoint's: a whole model or an adapter.
GxStatus gx_resume_check_tuning(const GxResume *r, const GxTrainOptions *o, GxError *err);
// o: the struct that c fills. For a run that starts over, defaults that depend on --tuning or --lora_dim are set again.
GxStatus gx_resume_take_options(const GxResume *r, const GxTask *task, GxConfig *c, GxTrainOptions *o, GxError *err);
void gx_resume_warn_of_unknown(const GxResume *r, const GxConfig *c, const GxLogger *log); // of the run
void gx_resume_keep_layout(const GxResume *r, const GxTrainOptions *o, GxConfig *c, const char *methods, int world);
GxStatus gx_resume_check(const GxResume *r, const GxTrainOptions *o, GxError *err);
GxStatus gx_resume_check_steps(const GxResume *r, const GxTrainOptions *o, GxError *err); // once max_steps is known
GxStatus gx_resume_check_task(const GxResume *r, const GxTask *task, const void *self, GxError *err); // on rank 0

// The learning rates of the run's last step and, with its options then, of its next one. Returns 0 if they are unknown,
// as for a run that starts over.
int gx_resume_rates(const GxResume *r, double *before, double *next);

// Describes the differences: "learning_rate 0.001 -> 0.002, ranks 2 -> 1"; "": none. free() it; NULL: out of memory.
char *gx_resume_changes(const GxResume *r, const GxConfig *c, const GxTrainState *now, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RESUME_IMPLEMENTED)
#define GX_RESUME_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/config_json.h"
#include "../io/config_unknown.h"
#include "agree.h"
#include "options_chosen.h"
#include "output.h"

// ---- which checkpoint ----------------------------------------------------------------------------------------------

// The folder that contains the checkpoint: as given if the path names it, otherwise resolved ("." and links do not name
// it).
static GxStatus gx__resume_parent(char parent[GX_PATH], const char *folder, GxError *err)
{
    char *real = realpath(folder, NULL), *given = strndup(folder, (size_t)gx_path_length(folder));
    if (!real || !given) {
        free(real);
        free(given);
        return GX_FAIL(err, GX_ERR_IO, "cannot find out where %s is", folder);
    }
    const char *a = strrchr(given, '/'), *b = strrchr(real, '/');
    const int is_named = !strcmp(a ? a + 1 : given, b + 1);
    gx_path_parent(parent, is_named ? given : real);
    free(real);
    free(given);
    return GX_OK;
}

static int gx__resume_is_same_folder(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    const int same = x && y && !strcmp(x, y);
    free(x);
    free(y);
    return same;
}

static GxStatus gx__resume_read_args(GxResume *r, const char *folder, GxError *err)
{
    GX_TRY(gx_path_join(r->args_path, folder, "training_args.json", err));
    return gx_json_read(&r->args, r->args_path, 1 << 20, err);
}

// Checks that the checkpoint's own files agree with each other.
static GxStatus gx__resume_read_state(GxResume *r, GxError *err)
{
    char path[GX_PATH];
    const int64_t number = gx_checkpoint_number(r->folder);
    GX_TRY(gx_path_join(path, r->folder, "trainer_state.json", err));
    GX_TRY(gx_train_state_read(path, &r->state, err));
    if (number >= 0 && number != r->state.step)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: global_step is %ld, but the folder is named checkpoint-%ld", path,
                       (long)r->state.step, (long)number);
    GX_TRY(gx__resume_read_args(r, r->folder, err));
    const struct {
        const char *name;
        int64_t state;
    } same[] = {{"seed", r->state.seed}, {"seq_len", r->state.seq_len}};
    for (int i = 0; i < 2; i++) {
        const GxJson *then = gx_json_get(r->args, same[i].name);
        if (gx_json_type(then) != GX_JSON_INT || gx_json_int(then) != same[i].state)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %ld, but %s says otherwise", path, same[i].name,
                           (long)same[i].state, r->args_path);
    }
    return GX_OK;
}

// A run without a checkpoint starts over, with the same number.
static GxStatus gx__resume_start_over(GxContext *g, GxResume *r, const GxTrainOptions *o, const GxRunInfo *there)
{
    char path[GX_PATH], near[GX_PATH];
    const char *output_dir = o->output_dir;
    r->state.run = there->run;
    r->state.world = there->world;
    GX_TRY(gx_path_join(path, output_dir, "training_args.json", &g->error));
    const int is_said = gx_options_is_inference(o); // otherwise reported at the start (notes.h)
    if (is_said && r->state.run)
        gx_log(&g->log, GX_LOG_WARNING, "--resume auto: the run in %s has no checkpoint to continue from", output_dir);
    else if (is_said) {
        const int is_near = gx_run_find_near(output_dir, near);
        gx_log(&g->log, GX_LOG_WARNING, "--resume auto: there is nothing to resume in %s%s%s", output_dir,
               is_near ? "; there is a run in --output_dir " : "", is_near ? near : "");
    }
    return r->state.run && gx_path_is_file(path) ? gx__resume_read_args(r, output_dir, &g->error) : GX_OK;
}

// If only trainer_state.json is missing, the error says what the other files can still be used for.
static GxStatus gx__resume_check_state(const char *folder, GxError *err)
{
    char path[GX_PATH], manifest[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "trainer_state.json", err));
    GX_TRY(gx_path_join(manifest, folder, GX_MANIFEST, err));
    if (gx_path_is_file(path) || !gx_path_is_file(manifest)) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_FORMAT,
        "there is no %s, which says how far the run was, so it cannot be resumed from there; use an earlier "
        "checkpoint, or begin a new run from its weights: remove %s, which names the missing file, and say --model %s",
        path, manifest, folder);
}

static GxStatus gx__resume_check_folder(const GxResume *r, GxError *err)
{
    GxError torn = GX_ZERO;
    if (!gx_path_is_folder(r->folder))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "there is no folder %s; --resume needs auto, or the folder of a checkpoint", r->folder);
    if (gx_run_read(r->folder).run)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is the folder of a run; name a checkpoint in it, or continue the run with --resume auto "
                       "--output_dir %s",
                       r->folder, r->folder);
    GX_TRY(gx__resume_check_state(r->folder, err));
    if (gx_folder_verify(r->folder, 1, &torn) == GX_OK) return GX_OK;
    return GX_FAIL(err, gx_error_code(&torn),
                   "%s; use another checkpoint of the run, as --resume auto does, which skips incomplete ones",
                   torn.message);
}

// Finds the newest checkpoint, or, if the run has none in this folder, the one that it was resumed from.
static GxStatus gx__resume_find_newest(GxContext *g, GxResume *r, const GxTrainOptions *o, const GxRunInfo *there)
{
    GX_TRY(gx_checkpoint_newest(o->output_dir, there->run, r->folder, &g->log, &g->error));
    r->is_home = 1;
    if (r->folder[0] || !there->from[0]) return GX_OK;
    snprintf(r->folder, sizeof r->folder, "%s", there->from);
    return gx__resume_check_folder(r, &g->error);
}

static GxStatus gx__resume_find(GxContext *g, GxResume *r, GxTrainOptions *o, const GxConfig *c, int read_only,
                                int *lock)
{
    GxError *err = &g->error;
    const int is_auto = !strcmp(o->resume, "auto");
    char parent[GX_PATH];
    if (!o->resume[0]) return GX_OK;
    if (is_auto) {
        if (!read_only && gx_path_is_folder(o->output_dir)) GX_TRY(gx_output_lock(lock, o->output_dir, err));
        const GxRunInfo there = gx_run_read(o->output_dir);
        GX_TRY(gx__resume_find_newest(g, r, o, &there));
        if (!r->folder[0]) return gx__resume_start_over(g, r, o, &there);
    } else {
        snprintf(r->folder, sizeof r->folder, "%s", o->resume);
        GX_TRY(gx__resume_check_folder(r, err));
        GX_TRY(gx__resume_parent(parent, r->folder, err));
        const char *name = strrchr(parent, '/');
        const int is_abandoned = !strcmp(name ? name + 1 : parent, GX_ABANDONED);
        if (is_abandoned && !gx_config_is_set(c, "output_dir"))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s was set aside by a later course of its run; to continue from it, give it a folder of "
                           "its own with --output_dir",
                           r->folder);
        if (!gx_config_is_set(c, "output_dir")) // it continues in its own folder
            snprintf(o->output_dir, sizeof o->output_dir, "%s", parent);
        r->is_home = !is_abandoned && gx__resume_is_same_folder(parent, o->output_dir);
    }
    return gx__resume_read_state(r, err);
}

GxStatus gx_resume_find(GxContext *g, GxResume *r, GxTrainOptions *o, const GxConfig *c, int read_only, int *lock)
{
    int n;
    const GxField *state = gx_train_state_fields(&n);
    memset(r, 0, sizeof *r);
    gx_at(g, -1, "resume");
    if (g->rank == 0) gx__resume_find(g, r, o, c, read_only, lock);
    gx_agree_on_path(g, r->folder);
    gx_agree_on_fields(g, state, n, &r->state);
    gx_agree_on_path(g, r->args_path);
    gx_agree_on_json(g, &r->args, r->args_path);
    return gx_status(g);
}

void gx_resume_close(GxResume *r)
{
    gx_json_free(r->args);
    r->args = NULL;
}

// ---- its options ---------------------------------------------------------------------------------------------------

// Options that are always those of this command, never of the run.
static const char *const gx__resume_local_options[] = {"ranks",
                                                       "world",
                                                       "rank",
                                                       "init",
                                                       "threads",
                                                       "timeout",
                                                       "device",
                                                       "device_comm",
                                                       "output_dir",
                                                       "resume",
                                                       "dry_run",
                                                       "evaluate",
                                                       "sample_only",
                                                       "profile_steps",
                                                       "profile_flops",
                                                       "peak_tflops",
                                                       "trace",
                                                       "trace_steps",
                                                       "plot_memory",
                                                       "plan",
                                                       "machines",
                                                       "overwrite_output_dir",
                                                       NULL};
const char *const *gx_resume_local_options(void) { return gx__resume_local_options; }

// The option with which a new run starts from the checkpoint's weights.
static const char *gx__resume_weights_option(const GxResume *r) { return r->state.base_hash.all ? "adapter" : "model"; }

GxStatus gx_resume_check_choice(const GxResume *r, const GxFamily *family, const GxTask *task, GxError *err)
{
    const char *then = gx_json_string(gx_json_get(r->args, "task")), *from = r->folder[0] ? r->folder : r->args_path;
    char cut[GX_TEXT_VALUE];
    if (!then[0] || !strcmp(then, task->name)) return GX_OK; // older runs had no choice of task
    gx_text_cut(then, cut, sizeof cut);
    if (gx_task_find(family, then))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s belongs to task %s, but this command has task %s, so it would not be the same run; continue "
                       "it with --task %s, or begin a new run from its weights with --%s",
                       from, cut, task->name, cut, gx__resume_weights_option(r));
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s belongs to task %s, which train_%s does not have; continue it with the program that trained it",
                   from, cut, family->name);
}

static const char *gx__resume_model(const GxResume *r) { return gx_json_string(gx_json_get(r->args, "model")); }

GxStatus gx_resume_check_model(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    const char *then = gx__resume_model(r), *adapter = gx_json_string(gx_json_get(r->args, "adapter"));
    if (r->folder[0] && o->tuning.adapter[0] && strcmp(o->tuning.adapter, adapter) &&
        !(adapter[0] && gx__resume_is_same_folder(o->tuning.adapter, adapter)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--adapter is %s, but the resumed run (%s) began %s%s, and a checkpoint has its own adapter; "
                       "leave out --adapter, or begin a new run from it in another --output_dir",
                       o->tuning.adapter, r->folder, adapter[0] ? "with " : "without an --adapter", adapter);
    if (!r->folder[0] || !o->model[0] || !strcmp(o->model, then)) return GX_OK;
    if (r->state.base_hash.all) return GX_OK; // for adapters the hash of the weights tells whether the base is the same
    if (then[0] && gx__resume_is_same_folder(o->model, then)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--model is %s, but the resumed run (%s) began %s%s, and a checkpoint has its own model; leave out "
                   "--model, or begin a new run from that model in another --output_dir",
                   o->model, r->folder, then[0] ? "from " : "without a --model", then);
}

// training_args.json has all options, also those that nobody set. An option equal to the default of the run's old
// method counts as not set.
static void gx__resume_forget_resolved(const GxResume *r, const GxTask *task, GxConfig *c, const GxTrainOptions *o)
{
    const char *said = gx_json_string(gx_json_get(r->args, "tuning")), *then = said[0] ? said : "full";
    const double rate = gx_json_double(gx_json_get(r->args, "learning_rate")),
                 alpha = gx_json_double(gx_json_get(r->args, "lora_alpha"));
    if (gx__resume_model(r)[0] && strcmp(then, o->tuning.tuning) &&
        rate == gx_tuning_rate(task, gx_tuning_method(then)))
        gx_config_forget(c, "learning_rate");
    if (alpha == gx_tuning_alpha(gx_json_int(gx_json_get(r->args, "lora_dim")))) gx_config_forget(c, "lora_alpha");
}

GxStatus gx_resume_take_options(const GxResume *r, const GxTask *task, GxConfig *c, GxTrainOptions *o, GxError *err)
{
    if (!r->args) return GX_OK;
    GX_TRY(gx_config_take(c, r->args, gx__resume_local_options, r->args_path, err));
    if (!r->folder[0]) gx__resume_forget_resolved(r, task, c, o);
    if (r->folder[0] && !(r->state.base_hash.all && o->model[0]))
        snprintf(o->model, sizeof o->model, "%s", gx__resume_model(r)); // spelled as the run had it
    return GX_OK;
}

void gx_resume_warn_of_unknown(const GxResume *r, const GxConfig *c, const GxLogger *log)
{
    char names[400];
    gx_config_unknown(c, r->args, names, sizeof names);
    if (names[0])
        gx_log(log, GX_LOG_WARNING,
               "%s says %s, which this program does not know (perhaps another version wrote it), and ignores",
               r->args_path, names);
}

static int gx__resume_are_set(const GxConfig *c, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gx_config_is_set(c, names[i])) return 1;
    return 0;
}

static void gx__resume_forget(GxConfig *c, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) gx_config_forget(c, names[i]);
}

// Stages and shares may also differ without an option: a program with a schedule of its own decides on them itself.
void gx_resume_keep_layout(const GxResume *r, const GxTrainOptions *o, GxConfig *c, const char *methods, int world)
{
    static const char *const moves[] = {"tp", "pp", "stage_tp_list", "cp"}; // say that a rank computes something else
    static const char *const mesh[] = {"tp",
                                       "pp",
                                       "stage_num_hidden_layers_list",
                                       "stage_tp_list",
                                       "pipeline_schedule",
                                       "cp",
                                       "cp_list",
                                       "cp_zigzags",
                                       "cp_method",
                                       "tp_num_attention_heads_list",
                                       "tp_intermediate_size_list",
                                       "tp_vocab_size_list",
                                       "seq_scatter_list",
                                       "dp_batch_size_list",
                                       "dp_samples_list"};
    static const char *const shards[] = {"dp_shard", "dp_replicate", "dp_shard_list"};
    // These are kept: any number of ranks can share what was shared, and a large model may not fit otherwise.
    static const char *const shares[] = {"zero", "shard_grads_in_window", "gathered_units"};
    const GxJson *pp = gx_json_get(r->args, "pp"), *zero = gx_json_get(r->args, "zero");
    const int shares_other = (zero && strcmp(gx_json_string(zero), o->zero)) || gx_config_is_set(c, "zero") ||
                             gx_config_is_set(c, "dp_shard"),
              is_moved = r->state.world != world || (r->folder[0] && strcmp(r->state.methods, methods)) ||
                         (pp ? gx_json_int(pp) : 1) != o->pp ||
                         gx__resume_are_set(c, moves, sizeof moves / sizeof *moves);
    if (!r->args || (!is_moved && !shares_other && !gx_config_is_set(c, "dp_replicate"))) return;
    gx__resume_forget(c, shards, sizeof shards / sizeof *shards);
    if (shares_other) gx__resume_forget(c, shares, sizeof shares / sizeof *shares);
    if (!is_moved) return;
    gx__resume_forget(c, mesh, sizeof mesh / sizeof *mesh);
    if (o->micro_batch_size == 0) gx_config_forget(c, "micro_batch_size"); // it came from dp_batch_size_list
}

// ---- what must be the same -----------------------------------------------------------------------------------------

static GxStatus gx__resume_refuse(const GxResume *r, const char *name, const char *then, const char *now, GxError *err)
{
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s was trained with --%s %s, but this command says %s, so it would not be the same run; leave out "
                   "--%s, or begin a new run from its weights with --%s %s",
                   r->folder, name, then, now, name, gx__resume_weights_option(r), r->folder);
}

static GxStatus gx__resume_check_int(const GxResume *r, const char *name, int64_t then, int64_t now, GxError *err)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%ld", (long)then);
    snprintf(b, sizeof b, "%ld", (long)now);
    return then == now ? GX_OK : gx__resume_refuse(r, name, a, b, err);
}

// Without momentum SGD has no velocity, so momentum can be neither added nor removed in the middle of a run.
static GxStatus gx__resume_check_momentum(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    char a[40], b[40];
    const double then = gx_json_double(gx_json_get(r->args, "momentum"));
    if (strcmp(o->optimizer, "sgd") || (then == 0) == (o->momentum == 0)) return GX_OK;
    snprintf(a, sizeof a, "%.15g", then);
    snprintf(b, sizeof b, "%.15g", o->momentum);
    return gx__resume_refuse(r, "momentum", a, b, err);
}

GxStatus gx_resume_check_tuning(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    const char *said = gx_json_string(gx_json_get(r->args, "tuning")), *then = said[0] ? said : "full",
               *now = o->tuning.tuning;
    if (!r->folder[0] || !strcmp(then, now)) return GX_OK;
    if (gx_tuning_is_sides(gx_tuning_method(then)) && gx_tuning_is_sides(gx_tuning_method(now))) return GX_OK;
    if (!strcmp(then, "full"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s holds a whole model (--tuning full), but this command says --tuning %s, which makes it a "
                       "new run; say --model %s --tuning %s, with an --output_dir of its own and without --resume",
                       r->folder, now, r->folder, now);
    if (strcmp(then, "lora"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s holds an adapter (--tuning %s), but this command says --tuning %s, which makes it a new "
                       "run; leave out --tuning to continue with the adapter",
                       r->folder, then, now);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s holds an adapter (--tuning lora), but this command says --tuning %s, which makes it a new run; "
                   "leave out --tuning to continue with the adapter, or merge it (./merge_adapter --adapter %s "
                   "--output_dir MERGED) and say --model MERGED",
                   r->folder, now, r->folder);
}

static GxStatus gx__resume_check_adapter(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    GxTuningOptions *then = (GxTuningOptions *)malloc(sizeof *then);
    if (!then) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for options");
    const GxField *f = gx_tuning_differs(&o->tuning, r->args, then, err);
    if (!f || gx_error_code(err)) {
        free(then);
        return gx_error_code(err);
    }
    GxJson *a = gx_field_to_json(f, then, err), *b = gx_field_to_json(f, &o->tuning, err);
    char *theirs = NULL, *ours = NULL;
    int64_t bytes;
    if (gx_json_dump(a, 0, &theirs, &bytes, err) == GX_OK && gx_json_dump(b, 0, &ours, &bytes, err) == GX_OK)
        gx__resume_refuse(r, f->name, theirs, ours, err);
    free(theirs), free(ours);
    gx_json_free(a), gx_json_free(b);
    free(then);
    return gx_error_code(err);
}

// Refuses another --add_tokens: the checkpoint has the tokens that the run added, and its model their rows.
static GxStatus gx__resume_check_tokens(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    const char *then = gx_json_string(gx_json_get(r->args, "add_tokens"));
    return strcmp(then, o->add_tokens) ? gx__resume_refuse(r, "add_tokens", then[0] ? then : "\"\"", o->add_tokens, err)
                                       : GX_OK;
}

GxStatus gx_resume_check(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    if (!r->folder[0]) return GX_OK;
    GX_TRY(gx__resume_check_int(r, "seed", r->state.seed, o->seed, err));
    GX_TRY(gx__resume_check_int(r, "seq_len", r->state.seq_len, o->seq_len, err));
    if (strcmp(r->state.optimizer, o->optimizer))
        return gx__resume_refuse(r, "optimizer", r->state.optimizer, o->optimizer, err);
    GX_TRY(gx__resume_check_adapter(r, o, err));
    GX_TRY(gx__resume_check_tokens(r, o, err));
    return gx__resume_check_momentum(r, o, err);
}

GxStatus gx_resume_check_steps(const GxResume *r, const GxTrainOptions *o, GxError *err)
{
    char epochs[80] = "";
    if (!r->folder[0] || r->state.step <= o->max_steps) return GX_OK;
    if (o->num_train_epochs > 0) snprintf(epochs, sizeof epochs, " by --num_train_epochs %g", o->num_train_epochs);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s is of step %ld, and max_steps is %ld%s, so there is nothing to train; use a larger %s, or an "
                   "earlier checkpoint",
                   r->folder, (long)r->state.step, (long)o->max_steps, epochs,
                   epochs[0] ? "--num_train_epochs" : "--max_steps");
}

// Compares the task's identity with the checkpoint's, field by field.
static GxStatus gx__resume_compare_identity(const GxResume *r, const GxTask *task, const void *self, const void *theirs,
                                            GxError *err)
{
    for (int i = 0; i < task->checkpoint.n_identity; i++) {
        const GxField *f = &task->checkpoint.identity[i];
        char values[80] = "";
        if (gx_field_same(f, theirs, self)) continue;
        if (f->type == GX_FIELD_INT)
            snprintf(values, sizeof values, ": %ld then, %ld now", (long)*(const int64_t *)gx_field_in(f, theirs),
                     (long)*(const int64_t *)gx_field_in(f, self));
        if (f->type == GX_FIELD_HASH)
            snprintf(values, sizeof values, ": 0x%016lx then, 0x%016lx now",
                     (unsigned long)*(const uint64_t *)gx_field_in(f, theirs),
                     (unsigned long)*(const uint64_t *)gx_field_in(f, self));
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s was trained %s (its %s differs%s), so it would not be the same run; use what it was trained "
                       "on (%s names it), or begin a new run from its weights with --%s %s",
                       r->folder, task->checkpoint.elsewhere, f->name, values, r->args_path,
                       gx__resume_weights_option(r), r->folder);
    }
    return GX_OK;
}

// Refuses members of a newer version: they may be state that has to be continued, too.
static GxStatus gx__resume_check_members(const GxJson *state, const GxTask *task, const char *path, GxError *err)
{
    char cut[GX_TEXT_VALUE], version[GX_TEXT_VALUE];
    int n;
    const GxField *fields = gx_train_state_fields(&n);
    for (GxJsonMember m = GX_ZERO; gx_json_next(state, &m);)
        if (strcmp(m.key, "galaxy_version") && !gx_field_find(fields, n, m.key) &&
            !gx_field_find(task->checkpoint.identity, task->checkpoint.n_identity, m.key))
            return GX_FAIL(
                err, GX_ERR_UNSUPPORTED,
                "%s has \"%s\", which this version does not know; continue with the version that wrote it (%s)", path,
                gx_text_cut(m.key, cut, sizeof cut),
                gx_text_cut(gx_json_string(gx_json_get(state, "galaxy_version")), version, sizeof version));
    return GX_OK;
}

GxStatus gx_resume_check_task(const GxResume *r, const GxTask *task, const void *self, GxError *err)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    if (!r->folder[0]) return GX_OK;
    void *theirs = calloc(1, task->options.size);
    if (!theirs) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the state of a task");
    GxStatus status = gx_path_join(path, r->folder, "trainer_state.json", err);
    if (status == GX_OK) status = gx_json_read(&json, path, 1 << 20, err);
    if (status == GX_OK)
        status = gx_json_get_fields(json, task->checkpoint.identity, task->checkpoint.n_identity, 1, theirs, path, err);
    if (status == GX_OK) status = gx__resume_compare_identity(r, task, self, theirs, err);
    if (status == GX_OK) status = gx__resume_check_members(json, task, path, err);
    gx_json_free(json);
    free(theirs);
    return status;
}

int gx_resume_rates(const GxResume *r, double *before, double *next)
{
    GxSchedule then;
    GxError ignored = GX_ZERO;
    const int64_t step = r->state.applied;
    const GxJson *args = r->args;
    if (!r->folder[0] || step < 1) return 0;
    if (gx_schedule_open(
            &then, gx_json_string(gx_json_get(args, "lr_scheduler_type")),
            gx_json_double(gx_json_get(args, "learning_rate")), gx_json_double(gx_json_get(args, "min_lr_ratio")),
            gx_json_int(gx_json_get(args, "warmup_steps")), gx_json_int(gx_json_get(args, "lr_decay_steps")),
            gx_json_int(gx_json_get(args, "max_steps")), &ignored) != GX_OK)
        return 0;
    *before = gx_schedule_rate(&then, step - 1), *next = gx_schedule_rate(&then, step);
    return 1;
}

// ---- what differs --------------------------------------------------------------------------------------------------

static void gx__resume_add(FILE *out, const char *name, const char *then, const char *now)
{
    fprintf(out, "%s%s %s -> %s", ftell(out) > 0 ? ", " : "", name, then, now);
}

static GxStatus gx__resume_add_option(FILE *out, const char *name, const GxJson *then, const GxJson *now, GxError *err)
{
    char *a = NULL, *b = NULL;
    int64_t bytes;
    GxStatus status = gx_json_dump(then, 0, &a, &bytes, err);
    if (status == GX_OK) status = gx_json_dump(now, 0, &b, &bytes, err);
    if (status == GX_OK && strcmp(a, b)) gx__resume_add(out, name, a, b);
    free(a);
    free(b);
    return status;
}

static void gx__resume_add_number(FILE *out, const char *name, int64_t then, int64_t now)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%ld", (long)then);
    snprintf(b, sizeof b, "%ld", (long)now);
    if (then != now) gx__resume_add(out, name, a, b);
}

static int gx__resume_is_local(const char *name)
{
    for (int i = 0; gx__resume_local_options[i]; i++)
        if (!strcmp(gx__resume_local_options[i], name)) return 1;
    return 0;
}

char *gx_resume_changes(const GxResume *r, const GxConfig *c, const GxTrainState *now, GxError *err)
{
    char *text = NULL;
    size_t bytes = 0;
    GxJson *json = gx_config_to_json(c, err);
    FILE *out = json ? open_memstream(&text, &bytes) : NULL;
    for (GxJsonMember m = GX_ZERO; out && gx_json_next(json, &m);) {
        const GxJson *then = gx_json_get(r->args, m.key);
        if (then && !gx__resume_is_local(m.key)) gx__resume_add_option(out, m.key, then, m.value, err);
    }
    if (out && r->folder[0]) {
        gx__resume_add_number(out, "ranks", r->state.world, now->world);
        gx__resume_add_number(out, "threads", r->state.threads, now->threads);
        if (strcmp(r->state.methods, now->methods)) gx__resume_add(out, "split", r->state.methods, now->methods);
    }
    if (out) fclose(out);
    gx_json_free(json);
    return text;
}
#endif
