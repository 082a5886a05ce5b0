// checkpoint.h: saves weights, optimizer state and position of a run as a folder that Hugging Face's libraries load and
// that a run resumes from.
//
//     out/checkpoint-500/
//         config.json model.safetensors, and the task's: tokenizer.json tokenizer_config.json  what others read
//         optimizer.safetensors trainer_state.json training_args.json manifest.json          what a resume needs
//         autotune.txt                                                        with --autotune: algorithms of products
//
// Weights saved in a type narrower than fp32 are also in optimizer.safetensors, in fp32, as "master." + name: a resumed
// run is bitwise the same whatever the type.
//
// A checkpoint of a model with an adapter contains only the adapter, in peft's format (adapter.h), and no
// model.safetensors. base_model_name_or_path says where the base model is, and trainer_state.json has the hash of its
// weights.
//
// trainer_state.json also has the best validation so far. The folder appears as a whole, under its name, once all files
// are complete (io/folder.h). Its contents do not depend on the number of ranks or on how they split the model. Rank 0
// writes and reads (tensor_file.h); all ranks wait until the files are synced and hashed. This header saves;
// checkpoint_load.h loads.
#ifndef GX_CHECKPOINT_H
#define GX_CHECKPOINT_H
#include "../io/config.h"
#include "../io/folder.h"
#include "../plan/split_plan.h"
#include "../task/task.h"
#include "adapter.h"
#include "source_folder.h"
#include "tensor_save.h"
#include "train_state.h"
#include "tuning.h"
#include "optimizer.h"
GX_BEGIN

#define GX_AUTOTUNE_FILE "autotune.txt"

typedef struct { // all pointers are borrowed
    const GxModel *m;
    const GxOptimizer *o;
    const GxTask *task; // NULL: no files and no identity of a task are written
    const void *self;
    const GxTrainState *state;
    const GxConfig *args;         // the resolved configuration
    const GxSourceFolder *source; // on rank 0; NULL: none
    const char *base;             // on rank 0, for an adapter: the folder of its base model
    GxDtype dtype;                // of the weights: F32, BF16, F16
    int64_t shard_bytes;          // largest size of a file of weights; 0: one file
    const GxSplitPlan *plan;      // which rank computes what (planner.h); NULL: there is none
    const char *tuned;            // table of matrix product algorithms (autotune.h); NULL: none
} GxCheckpoint;
// Called on all ranks. A failure to write does not fail the context: it is reported in `disk` on all ranks (with the
// full message on rank 0), an earlier checkpoint of that name is still there, and saving may be tried again. If a
// weight does not fit into F16, the weights are saved in fp32, with a warning.
void gx_checkpoint_save(GxContext *g, const char *folder, const GxCheckpoint *c, GxError *disk);
// Writes config.json and the source's other files (source_folder.h) into `folder`. source NULL: none.
GxStatus gx_checkpoint_write_config(const GxModel *m, const GxSourceFolder *source, GxDtype dtype, const char *folder,
                                    GxError *err);
// The size in bytes of the tensors of a checkpoint.
int64_t gx_checkpoint_bytes(const GxModel *m, const GxOptimizer *o, GxDtype dtype);

// The tensors in a checkpoint's files, for saving and loading. gx_checkpoint_weights: those in model.safetensors.
// gx_checkpoint_masters: in optimizer.safetensors, the fp32 masters of weights that are saved in a narrower type.
// gx_checkpoint_moments: in the same file, the optimizer's moments; returns how many moments a trained tensor has.
extern const GxTensorPart gx_checkpoint_weights;
GxTensorPart gx_checkpoint_masters(const GxModel *m);
int gx_checkpoint_moments(const GxOptimizer *o, GxTensorPart part[2]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHECKPOINT_IMPLEMENTED)
#define GX_CHECKPOINT_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../io/config_json.h"

// ---- which tensors -------------------------------------------------------------------------------------------------

const GxTensorPart gx_checkpoint_weights = {"", GX_VALUES_WEIGHTS, GX_PART_ALL, 0}; // in model.safetensors

GxTensorPart gx_checkpoint_masters(const GxModel *m)
{
    const GxTensorPart part = {"master.", GX_VALUES_WEIGHTS, gx_model_has_adapter(m) ? GX_PART_ADAPTER : GX_PART_ALL,
                               0};
    return part;
}

int gx_checkpoint_moments(const GxOptimizer *o, GxTensorPart part[2])
{
    const int adamw = o->kind == GX_OPTIMIZER_ADAMW;
    const GxTensorPart first = {adamw ? "exp_avg." : "momentum_buffer.", GX_VALUES_MOMENT_1, GX_PART_ALL, 0},
                       second = {"exp_avg_sq.", GX_VALUES_MOMENT_2, GX_PART_ALL, 0};
    part[0] = first, part[1] = second;
    return gx_optimizer_moments(o);
}

// ---- the folder ----------------------------------------------------------------------------------------------------

GxStatus gx_checkpoint_write_config(const GxModel *m, const GxSourceFolder *source, GxDtype dtype, const char *folder,
                                    GxError *err)
{
    static const GxSourceFolder none = GX_ZERO;
    const char *name = dtype == GX_BF16 ? "bfloat16" : dtype == GX_F16 ? "float16" : "float32";
    char path[GX_PATH];
    GxJson *json;
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(m->family->write_config(m->config, &m->head, path, err));
    GX_TRY(gx_json_read(&json, path, 1 << 20, err));
    GxStatus status = gx_json_set(json, "torch_dtype", gx_json_new_string(name), err);
    if (status == GX_OK) status = gx_source_folder_write(source ? source : &none, json, folder, err);
    gx_json_free(json);
    return status;
}

// Turns a folder with a model's config.json into the folder of an adapter for that model.
static GxStatus gx__checkpoint_make_adapter(const char *folder, const GxCheckpoint *c, GxError *err)
{
    char path[GX_PATH], other[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(gx_path_join(other, folder, GX_PEFT_MODEL_CONFIG, err));
    if (rename(path, other) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot rename %s to %s", path, other);
    return gx_adapter_write_config(c->m, c->base, folder, err);
}

// Writes everything but the tensors, on rank 0.
static GxStatus gx__checkpoint_write_texts(const char *folder, const GxCheckpoint *c, GxDtype dtype, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_checkpoint_write_config(c->m, c->source, dtype, folder, err));
    if (gx_model_has_adapter(c->m)) GX_TRY(gx__checkpoint_make_adapter(folder, c, err));
    if (c->task && c->task->checkpoint.write) GX_TRY(c->task->checkpoint.write(c->self, folder, err));
    if (c->plan) GX_TRY(gx_path_join(path, folder, GX_PLAN_FILE, err));
    if (c->plan) GX_TRY(gx_split_plan_write(c->plan, path, err));
    if (c->tuned) GX_TRY(gx_path_join(path, folder, GX_AUTOTUNE_FILE, err));
    if (c->tuned) GX_TRY(gx_file_write(path, c->tuned, (int64_t)strlen(c->tuned), err));
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    GX_TRY(gx_config_write_json(c->args, path, err));
    GX_TRY(gx_path_join(path, folder, "trainer_state.json", err));
    return gx_train_state_write(path, c->state, c->task, c->self, err);
}

// The strings of the task's identity, as metadata of model.safetensors: "galaxy_tokenizer": "byte-256". Returns how
// many.
enum { GX__CHECKPOINT_PAIRS = 4, GX__CHECKPOINT_KEY = 64 };
static int gx__checkpoint_metadata(const GxTask *task, const void *self, char key[][GX__CHECKPOINT_KEY],
                                   GxSafetensorsPair *pair)
{
    int n = 0;
    for (int i = 0; task && i < task->checkpoint.n_identity && n < GX__CHECKPOINT_PAIRS; i++) {
        const GxField *f = &task->checkpoint.identity[i];
        if (f->type != GX_FIELD_STRING) continue;
        snprintf(key[n], GX__CHECKPOINT_KEY, "galaxy_%.50s", f->name);
        pair[n].key = key[n], pair[n].value = (const char *)gx_field_in(f, self);
        n++;
    }
    return n;
}

int64_t gx_checkpoint_bytes(const GxModel *m, const GxOptimizer *o, GxDtype dtype)
{
    const int64_t weights = (int64_t)gx_dtype_size(dtype) + (dtype == GX_F32 ? 0 : 4);
    int64_t n = gx_model_has_adapter(m) ? gx_table_trained(&m->table) : gx_table_parameters(&m->table);
    for (int i = 0; i < m->table.n && !gx_model_has_adapter(m); i++)
        if (m->table.row[i].is_saved) n += gx_tensor_global_count(&m->table.row[i]);
    return weights * n + 4 * gx_optimizer_moments(o) * gx_table_trained(&m->table);
}

// Tells all ranks whether rank 0 could write, and if not, why, so that the first error to be read states the reason.
static void gx__checkpoint_agree_on_disk(GxContext *g, GxError *disk)
{
    int64_t code = gx_error_code(disk);
    gx_broadcast(g, GX_AXIS_ALL, 0, &code, 1, GX_I64);
    if (!code || gx_failed(g)) return;
    char why[sizeof disk->message] = "";
    if (g->rank == 0) snprintf(why, sizeof why, "%s", disk->message);
    gx_broadcast(g, GX_AXIS_ALL, 0, why, sizeof why, GX_U8);
    if (g->rank != 0 && !gx_failed(g)) GX_FAIL(disk, (GxStatus)code, "%s", why);
}

static void gx__checkpoint_save_as(GxContext *g, const char *folder, const GxCheckpoint *c, GxDtype dtype,
                                   GxError *disk)
{
    char temporary[GX_PATH] = "", path[GX_PATH] = "";
    char key[GX__CHECKPOINT_PAIRS][GX__CHECKPOINT_KEY];
    GxSafetensorsPair pair[GX__CHECKPOINT_PAIRS];
    GxTensorPart part[3];
    const int writes = g->rank == 0, pairs = gx__checkpoint_metadata(c->task, c->self, key, pair);
    int parts = gx_checkpoint_moments(c->o, part);
    const int is_adapter = gx_model_has_adapter(c->m);
    const GxTensorPart adapter_part = gx_adapter_part(c->m);
    if (dtype != GX_F32) part[parts++] = gx_checkpoint_masters(c->m);
    const GxTensorSaving whole = {&gx_checkpoint_weights, 1, pair, pairs, dtype, c->shard_bytes, NULL, NULL},
                         adapter = {&adapter_part, 1, pair, pairs, dtype, 0, NULL, NULL},
                         state = {part, parts, NULL, 0, GX_F32, 0, NULL, NULL};
    if (writes && gx_publish_begin(folder, temporary, disk) == GX_OK)
        gx__checkpoint_write_texts(temporary, c, dtype, disk);
    if (writes && !gx_error_code(disk))
        gx_path_join(path, temporary, is_adapter ? GX_ADAPTER_FILE : "model.safetensors", disk);
    if (!gx_failed(g)) gx_tensor_file_save(g, path, &c->m->store, is_adapter ? &adapter : &whole, disk);
    if (writes && !gx_error_code(disk)) gx_path_join(path, temporary, "optimizer.safetensors", disk);
    if (!gx_failed(g) && parts) gx_tensor_file_save(g, path, &c->m->store, &state, disk);
    if (writes && !gx_failed(g) && !gx_error_code(disk)) gx_publish_finish(folder, disk);
    gx__checkpoint_agree_on_disk(g, disk); // on a failed context this tells the other ranks
    if ((!gx_failed(g) && !gx_error_code(disk)) || !temporary[0]) return;
    GxError ignored = GX_ZERO; // the first error is the one to report; this only frees disk space
    gx_folder_remove(temporary, &ignored);
}

void gx_checkpoint_save(GxContext *g, const char *folder, const GxCheckpoint *c, GxError *disk)
{
    gx_at(g, -1, "save");
    gx__checkpoint_save_as(g, folder, c, c->dtype, disk);
    if (gx_failed(g) || c->dtype != GX_F16 || gx_error_code(disk) != GX_ERR_UNSUPPORTED) return;
    if (g->rank == 0)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s; the weights are saved in fp32 instead (--save_dtype bf16 has fp32's range)", disk->message);
    gx_error_clear(disk);
    gx__checkpoint_save_as(g, folder, c, GX_F32, disk);
}
#endif
