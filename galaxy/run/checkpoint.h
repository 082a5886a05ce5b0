// checkpoint.h: weights, optimizer state and position of a run as a folder that Hugging Face's libraries load and this
// program resumes from.
//
//     out/checkpoint-500/
//         config.json model.safetensors, and the task's: tokenizer.json tokenizer_config.json  what others read
//         optimizer.safetensors trainer_state.json training_args.json manifest.json          what a resume needs
//
// The folder is published as a whole (io/folder.h). Nothing in it depends on how many ranks there were, or on how they
// shared the model out. Rank 0 writes and reads (tensor_file.h); all ranks meet again once the files are synced and
// hashed.
#ifndef GX_CHECKPOINT_H
#define GX_CHECKPOINT_H
#include "../io/config.h"
#include "../io/folder.h"
#include "../task/task.h"
#include "tensor_file.h"
#include "optimizer.h"
GX_BEGIN

typedef struct {
    int64_t step, applied, samples; // windows begun, optimizer steps applied, samples seen
    int64_t seed, seq_len;
    int64_t run; // which run this is a checkpoint of
    char optimizer[GX_FIELD_TEXT];
    // how it was computed: ranks, CPU threads of rank 0, "ATT TP, CON None, MLP TP, ends TP"
    int64_t world, threads;
    char methods[GX_FIELD_TEXT];
} GxTrainState;

// trainer_state.json. Refused are numbers out of their ranges, and such as cannot be of one run.
GxStatus gx_train_state_read(const char *path, GxTrainState *s, GxError *err);

// On all ranks. `args` is the resolved configuration (lent). task NULL: without files and identity of one. What the
// disk does not take is no error of the context, but of `disk`, on all ranks alike (its message is rank 0's): what was
// there before is there still, and it may be tried again.
void gx_checkpoint_save(GxContext *g, const char *folder, const GxModel *m, const GxOptimizer *o, const GxTask *task,
                        const void *self, const GxTrainState *state, const GxConfig *args, GxError *disk);
// Bytes of the tensors of a checkpoint.
int64_t gx_checkpoint_bytes(const GxModel *m, const GxOptimizer *o);

// Weights of a Hugging Face folder into the model's buffers, on all ranks. Every missing, unknown or misshapen tensor
// is named.
void gx_checkpoint_load_weights(GxContext *g, GxModel *m, const char *folder);
// What the optimizer keeps, for a resume.
void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, const char *folder);

// The fields of GxTrainState, on which ranks agree.
const GxField *gx_train_state_fields(int *n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHECKPOINT_IMPLEMENTED)
#define GX_CHECKPOINT_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- trainer_state.json --------------------------------------------------------------------------------------------

#define GX__CHECKPOINT_AT(field) offsetof(GxTrainState, field)
static const GxField gx__checkpoint_state[] = {
    {"global_step", GX_FIELD_INT, GX__CHECKPOINT_AT(step), NULL, "windows begun", "0..1000000000000000"},
    {"applied_steps", GX_FIELD_INT, GX__CHECKPOINT_AT(applied), NULL, "optimizer steps applied", "0..1000000000000000"},
    {"samples_seen", GX_FIELD_INT, GX__CHECKPOINT_AT(samples), NULL, "by all ranks", "0..1000000000000000000"},
    {"seed", GX_FIELD_INT, GX__CHECKPOINT_AT(seed), NULL, "of the run", "0.."},
    {"seq_len", GX_FIELD_INT, GX__CHECKPOINT_AT(seq_len), NULL, "tokens in a sample", "1..16777216"},
    {"run", GX_FIELD_INT, GX__CHECKPOINT_AT(run), NULL, "which run this is a checkpoint of", "1.."},
    {"optimizer", GX_FIELD_STRING, GX__CHECKPOINT_AT(optimizer), NULL, "whose state it is", "adamw|sgd"},
    {"world_size", GX_FIELD_INT, GX__CHECKPOINT_AT(world), NULL, "ranks", "1..256"},
    {"threads", GX_FIELD_INT, GX__CHECKPOINT_AT(threads), NULL, "CPU threads of rank 0", "1..1024"},
    {"methods", GX_FIELD_STRING, GX__CHECKPOINT_AT(methods), NULL, "how the model was split", NULL},
};

const GxField *gx_train_state_fields(int *n)
{
    *n = (int)(sizeof gx__checkpoint_state / sizeof *gx__checkpoint_state);
    return gx__checkpoint_state;
}

static GxStatus gx__checkpoint_write_state(const char *path, const GxTrainState *s, const GxTask *task,
                                           const void *self, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "galaxy_version", gx_json_new_string(GX_VERSION), err);
    gx_json_set_fields(json, GX_FIELDS(gx__checkpoint_state), s, err);
    if (task) gx_json_set_fields(json, task->identity, task->n_identity, self, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

// Every window begins a step, which is applied or skipped, and sees a sample at least.
static GxStatus gx__checkpoint_check_numbers(const GxTrainState *s, const char *path, GxError *err)
{
    if (s->applied > s->step)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: applied_steps is %ld; expected at most global_step, which is %ld", path,
                       (long)s->applied, (long)s->step);
    if (s->samples < s->step || (s->step == 0 && s->samples > 0))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: samples_seen is %ld; %ld steps see %s", path, (long)s->samples,
                       (long)s->step, s->step ? "at least one each" : "none");
    return GX_OK;
}

GxStatus gx_train_state_read(const char *path, GxTrainState *s, GxError *err)
{
    GxJson *json;
    GX_TRY(gx_json_read(&json, path, 1 << 20, err));
    GxStatus status = gx_json_get_fields(json, GX_FIELDS(gx__checkpoint_state), 1, s, path, err);
    gx_json_free(json);
    return status == GX_OK ? gx__checkpoint_check_numbers(s, path, err) : status;
}

// What the optimizer keeps of each trained tensor.
static int gx__checkpoint_state_parts(const GxOptimizer *o, GxTensorPart part[2])
{
    const int adamw = o->kind == GX_OPTIMIZER_ADAMW;
    const GxTensorPart first = {adamw ? "exp_avg." : "momentum_buffer.", GX_VALUES_MOMENT_1},
                       second = {"exp_avg_sq.", GX_VALUES_MOMENT_2};
    part[0] = first, part[1] = second;
    return gx_optimizer_moments(o);
}

// ---- the folder ----------------------------------------------------------------------------------------------------

// What rank 0 alone has to write, all but the tensors.
static GxStatus gx__checkpoint_write_texts(const char *folder, const GxModel *m, const GxTask *task, const void *self,
                                           const GxTrainState *state, const GxConfig *args, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(m->family->write_config(m->config, path, err));
    if (task && task->write) GX_TRY(task->write(self, folder, err));
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    GX_TRY(gx_config_write_json(args, path, err));
    GX_TRY(gx_path_join(path, folder, "trainer_state.json", err));
    return gx__checkpoint_write_state(path, state, task, self, err);
}

// Texts of the task's identity for model.safetensors: "galaxy_tokenizer": "byte-256". Returns how many.
enum { GX__CHECKPOINT_PAIRS = 4, GX__CHECKPOINT_KEY = 64 };
static int gx__checkpoint_pairs(const GxTask *task, const void *self, char key[][GX__CHECKPOINT_KEY],
                                GxSafetensorsPair *pair)
{
    int n = 0;
    for (int i = 0; task && i < task->n_identity && n < GX__CHECKPOINT_PAIRS; i++) {
        const GxField *f = &task->identity[i];
        if (f->type != GX_FIELD_STRING) continue;
        snprintf(key[n], GX__CHECKPOINT_KEY, "galaxy_%.50s", f->name);
        pair[n].key = key[n], pair[n].value = (const char *)gx_field_in(f, self);
        n++;
    }
    return n;
}

int64_t gx_checkpoint_bytes(const GxModel *m, const GxOptimizer *o)
{
    return 4 * (gx_table_parameters(&m->table) + gx_optimizer_moments(o) * gx_table_trained(&m->table));
}

// What happened to rank 0's disk is known to all.
static void gx__checkpoint_agree_on_disk(GxContext *g, GxError *disk)
{
    int64_t code = gx_error_code(disk);
    gx_broadcast(g, GX_AXIS_ALL, 0, &code, 1, GX_I64);
    if (code && !gx_failed(g)) GX_FAIL(disk, (GxStatus)code, "rank 0 could not save");
}

void gx_checkpoint_save(GxContext *g, const char *folder, const GxModel *m, const GxOptimizer *o, const GxTask *task,
                        const void *self, const GxTrainState *state, const GxConfig *args, GxError *disk)
{
    char temporary[GX_PATH] = "", path[GX_PATH] = "";
    GxTensorPart weights = {"", GX_VALUES_WEIGHTS}, part[2];
    char key[GX__CHECKPOINT_PAIRS][GX__CHECKPOINT_KEY];
    GxSafetensorsPair pair[GX__CHECKPOINT_PAIRS];
    const int pairs = gx__checkpoint_pairs(task, self, key, pair);
    const int parts = gx__checkpoint_state_parts(o, part), writes = g->rank == 0;
    gx_at(g, -1, "save");
    if (writes && gx_publish_begin(folder, temporary, disk) == GX_OK)
        gx__checkpoint_write_texts(temporary, m, task, self, state, args, disk);
    if (writes && !gx_error_code(disk)) gx_path_join(path, temporary, "model.safetensors", disk);
    if (!gx_failed(g)) gx_tensor_file_save(g, path, &m->store, &weights, 1, pair, pairs, disk);
    if (writes && !gx_error_code(disk)) gx_path_join(path, temporary, "optimizer.safetensors", disk);
    if (!gx_failed(g) && parts) gx_tensor_file_save(g, path, &m->store, part, parts, NULL, 0, disk);
    if (writes && !gx_failed(g) && !gx_error_code(disk)) gx_publish_finish(folder, disk);
    gx__checkpoint_agree_on_disk(g, disk); // of a context that has failed: tells the others
    if ((!gx_failed(g) && !gx_error_code(disk)) || !temporary[0]) return;
    GxError ignored = GX_ZERO; // the first error is the one to tell; this only frees the disk
    gx_folder_remove(temporary, &ignored);
}

void gx_checkpoint_load_weights(GxContext *g, GxModel *m, const char *folder)
{
    GxSafetensors s;
    const GxTensorPart weights = {"", GX_VALUES_WEIGHTS};
    const int reads = g->rank == 0, open = reads && gx_safetensors_open(&s, folder, &g->error) == GX_OK;
    gx_at(g, -1, "load");
    if (open) gx_tensor_file_check(&s, &m->table, folder, &g->error);
    if (reads && gx_failed(g)) gx_barrier(g, GX_AXIS_ALL); // tells the others
    gx_tensor_file_load(g, open ? &s : NULL, &m->store, &weights, folder);
    if (open) gx_safetensors_close(&s);
}

// What this run's optimizer needs and that one did not keep: of tensors that were frozen, and of SGD without momentum.
static GxStatus gx__checkpoint_check_state(const GxSafetensors *s, const GxTable *t, const GxTensorPart *part,
                                           int parts, const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n; i++) {
            if (t->row[i].frozen || t->row[i].has_alias) continue;
            snprintf(name, sizeof name, "%s%s", part[p].prefix, t->row[i].name);
            if (!gx_safetensors_find(s, name))
                return GX_FAIL(err, GX_ERR_ARGUMENT,
                               "%s was trained with %s frozen, and this run trains it; resume with the same --freeze, "
                               "or take its weights alone with --model",
                               folder, t->row[i].name);
        }
    return GX_OK;
}

static GxStatus gx__checkpoint_open_state(GxSafetensors *s, const char *path, const GxTable *t,
                                          const GxTensorPart *part, int parts, const char *folder, GxError *err)
{
    if (!gx_path_is_file(path)) // the manifest does not name it, either
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s was trained with --momentum 0, and this run has momentum; resume with --momentum 0, or take "
                       "its weights alone with --model",
                       folder);
    GX_TRY(gx_safetensors_open(s, path, err));
    if (gx__checkpoint_check_state(s, t, part, parts, folder, err) != GX_OK) gx_safetensors_close(s);
    return gx_error_code(err);
}

void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, const char *folder)
{
    GxError *err = &g->error;
    GxSafetensors s;
    GxTensorPart part[2];
    char path[GX_PATH] = "";
    const int parts = gx__checkpoint_state_parts(o, part), reads = g->rank == 0;
    gx_at(g, -1, "load");
    if (reads) gx_path_join(path, folder, "optimizer.safetensors", err);
    const int open = reads && parts && !gx_failed(g) &&
                     gx__checkpoint_open_state(&s, path, &m->table, part, parts, folder, err) == GX_OK;
    if (reads && gx_failed(g)) gx_barrier(g, GX_AXIS_ALL); // tells the others
    for (int p = 0; p < parts && !gx_failed(g); p++)
        gx_tensor_file_load(g, open ? &s : NULL, &m->store, &part[p], path);
    if (open) gx_safetensors_close(&s);
}
#endif
