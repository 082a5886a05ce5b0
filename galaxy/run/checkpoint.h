// checkpoint.h: weights, optimizer state and position of a run as a folder that Hugging Face's libraries load and this
// program resumes from.
//
//     out/checkpoint-500/  config.json model.safetensors tokenizer.json tokenizer_config.json          what others read
//                          optimizer.safetensors trainer_state.json training_args.json manifest.json    what a resume
//                          needs
//
// The folder is published as a whole (io/folder.h): a torn one is recognised, and passed over in favour of the newest
// whole one. Nothing in it depends on how many ranks there were, or on how they shared the model out. Rank 0 writes,
// and gets what it does not have from the others of its group; it also reads, tensor by tensor, and broadcasts: no disk
// is shared. All ranks meet after each tensor that was written, and once the files are synced and hashed: a checkpoint
// as a whole may take longer than a rank waits for another one.
#ifndef GX_CHECKPOINT_H
#define GX_CHECKPOINT_H
#include "../parallel/boxes.h"
#include "../comm/comm.h"
#include "../io/folder.h"
#include "../io/safetensors.h"
#include "../io/tokenizer.h"
#include "family.h"
#include "window.h"
GX_BEGIN

typedef struct {
    int64_t step, applied, samples; // windows begun, optimizer steps applied, samples seen
    int64_t seed;
    int64_t text_bytes, text_hash; // bytes of the training part of the text; a hash of the text
    int64_t seq_len;
    int64_t run; // which run this is a checkpoint of
    char optimizer[32];
} GxTrainState;

// A folder may hold checkpoints of several runs, one begun after the other. run.json says which run was begun last:
// `--resume auto` means that one.
int64_t gx_run_draw(void); // a number that no other run has; never 0
GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err);
int64_t gx_run_read(const char *output_dir); // 0: there is none

GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t step,
                            GxError *err); // output_dir/checkpoint-<step>

// On all ranks. `args` is the resolved configuration (lent).
void gx_checkpoint_save(GxContext *g, const char *folder, const GxFamily *family, const GxModel *m,
                        const GxOptimizer *o, const GxTokenizer *tokenizer, const GxTrainState *state,
                        const GxConfig *args);
int gx_checkpoint_has_part(const GxContext *g); // 1: this rank has a part of what is saved (it is of rank 0's tp group)
void gx_checkpoint_plan(
    GxContext *g, const GxModel *m); // takes the scratch of saving and loading from a dry arena, and gives it back

// Weights of a Hugging Face folder into the model's buffers, on all ranks. Every missing, unknown or misshapen tensor
// is named.
void gx_checkpoint_load_weights(GxContext *g, GxModel *m, float *weights, const char *folder);
// The rest, for a resume. The folder's manifest must hold.
void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, GxTrainState *state, const char *folder);

// Before a run looks for checkpoints or writes one, and while no other writes here: finishes or removes what killed
// runs left half done.
GxStatus gx_checkpoint_sweep(const char *output_dir, GxError *err);
// A run that begins with step `begun` may save at any step up to `last` (a signal can ask for it): refuses what is in
// the way, be it another run's checkpoint or not ours at all. Checkpoints of this run, from steps that it does again,
// may be replaced.
GxStatus gx_checkpoint_refuse_others(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err);

// The newest checkpoint-N of this run in output_dir whose manifest holds; "" if there is none. Torn ones are passed
// over, with a warning, and so are those of other runs. run 0: of any.
GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err);
// Of this run's checkpoints up to `newest`, which was just saved, all but the last `keep` are removed. What is not ours
// (no manifest), of another run, or has a larger number (the run went on from an older checkpoint) is left alone.
GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHECKPOINT_IMPLEMENTED)
#define GX_CHECKPOINT_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- tensors of a file: one list for weights and optimizer state ---------------------------------------------------

typedef struct {
    const char *prefix;
    float *values;
} GxStatePart; // "" weights; "exp_avg." first moment, ...

static int gx__checkpoint_state_parts(const GxOptimizer *o, GxStatePart part[2])
{
    int n = 0;
    const int adamw = o->kind == GX_OPTIMIZER_ADAMW;
    if (o->first) {
        GxStatePart p = {adamw ? "exp_avg." : "momentum_buffer.", o->first};
        part[n++] = p;
    }
    if (adamw) {
        GxStatePart p = {"exp_avg_sq.", o->second};
        part[n++] = p;
    }
    return n;
}

static GxStatus gx__checkpoint_create_tensors(GxSafetensorsWriter *w, const char *path, const GxTable *t,
                                              const GxStatePart *part, int parts, const GxSafetensorsPair *metadata,
                                              int pairs, GxError *err)
{
    int n = 0;
    GxSafetensorsEntry *e = (GxSafetensorsEntry *)calloc((size_t)(t->n * parts + 1), sizeof *e);
    if (!e) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * parts);
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n; i++) {
            const GxTensor *row = &t->row[i];
            if (row->has_alias) continue;
            snprintf(e[n].name, sizeof e[n].name, "%s%s", part[p].prefix, row->name);
            e[n].dtype = GX_F32;
            e[n].ndim = row->ndim;
            memcpy(e[n].shape, row->global_shape, sizeof row->global_shape);
            n++;
        }
    GxStatus status = gx_safetensors_create(w, path, e, n, metadata, pairs, err);
    free(e);
    return status;
}

static void gx__checkpoint_save_whole(GxContext *g, GxSafetensorsWriter *w, const char *name, const float *values,
                                      int64_t count)
{
    GxArena *a = gx_host_arena(g);
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(a);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, (void *)(values + first), 4 * n);
        gx_to_host(g, twin, values + first, 4 * n);
        if (!gx_failed(g)) gx_safetensors_write_floats(w, name, first, twin, n, &g->error);
        gx_arena_release(a, mark);
    }
}

int gx_checkpoint_has_part(const GxContext *g) { return gx_group_index(g, GX_AXIS_ALL & ~GX_AXIS_TP) == 0; }

// w NULL: a rank that only hands over what rank 0 does not have.
static void gx__checkpoint_save_tensor(GxContext *g, GxSafetensorsWriter *w, const char *prefix, const GxTensor *t,
                                       const float *values, void *scratch)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, t->name);
    if (!t->parts) {
        if (w) gx__checkpoint_save_whole(g, w, name, values, gx_tensor_count(t));
        return;
    }
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0] && !gx_failed(g); first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        const float *whole = gx_box_gather(g, t, values, first, rows, scratch);
        if (w && !gx_failed(g)) gx_safetensors_write_floats(w, name, first * row, whole, rows * row, &g->error);
    }
}

static void *gx__checkpoint_boxes_scratch(GxContext *g, const GxTable *t)
{
    const int64_t bytes = gx_boxes_scratch(t);
    return bytes ? gx_take_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, bytes) : NULL;
}

void gx_checkpoint_plan(GxContext *g, const GxModel *m)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    int64_t most = 0;
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].parts) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&m->table.row[i])));
    gx__checkpoint_boxes_scratch(g, &m->table);
    gx_host_twin(g, GX_MEM_WORKSPACE, a->base, 4 * most);
    gx_arena_release(a, mark);
}

static void gx__checkpoint_save_tensors(GxContext *g, const char *path, const GxTable *t, const GxStatePart *part,
                                        int parts, const GxSafetensorsPair *metadata, int pairs)
{
    GxSafetensorsWriter w = GX_ZERO;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int writes = g->rank == 0, has_part = gx_checkpoint_has_part(g);
    void *scratch = has_part ? gx__checkpoint_boxes_scratch(g, t) : NULL;
    if (writes && gx__checkpoint_create_tensors(&w, path, t, part, parts, metadata, pairs, &g->error) != GX_OK) return;
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n && !gx_failed(g); i++) {
            if (t->row[i].has_alias) continue;
            if (has_part)
                gx__checkpoint_save_tensor(g, writes ? &w : NULL, part[p].prefix, &t->row[i],
                                           part[p].values + gx_table_flat(t, i), scratch);
            gx_barrier(g, GX_AXIS_ALL);
        }
    if (writes && !gx_failed(g)) gx_safetensors_finish(&w, &g->error);
    else if (writes) gx_safetensors_abort(&w);
    gx_barrier(g, GX_AXIS_ALL);
    gx_arena_release(a, mark);
}

static GxStatus gx__checkpoint_find_tensor(const GxSafetensorsEntry **entry, const GxSafetensors *s,
                                           const GxTensor *row, const char *prefix, const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, row->name);
    const GxSafetensorsEntry *e = *entry = gx_safetensors_find(s, name);
    if (!e)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has no tensor %s, which this model needs (it has %d tensors; is it of another model?)",
                       folder, name, s->n);
    int same = e->ndim == row->ndim;
    for (int d = 0; same && d < row->ndim; d++) same = e->shape[d] == row->global_shape[d];
    if (same) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: tensor %s has %d dimensions, the first of %ld; this model's has %d, the first of %ld", folder,
                   name, e->ndim, (long)(e->ndim ? e->shape[0] : 0), row->ndim, (long)row->global_shape[0]);
}

// A tied head may stand in the file all the same: then it has to be what it is tied to.
static GxStatus gx__checkpoint_check_alias(const GxSafetensors *s, const GxTable *t, const GxTensor *row,
                                           const char *folder, GxError *err)
{
    enum { BLOCK = 4096 };
    float own[BLOCK], other[BLOCK];
    const GxSafetensorsEntry *e = gx_safetensors_find(s, row->name), *tied;
    if (!e) return GX_OK;
    GX_TRY(gx__checkpoint_find_tensor(&e, s, row, "", folder, err));
    GX_TRY(gx__checkpoint_find_tensor(&tied, s, &t->row[row->alias.index], "", folder, err));
    for (int64_t i = 0; i < e->elements; i += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - i);
        GX_TRY(gx_safetensors_read(s, e, i, n, own, err));
        GX_TRY(gx_safetensors_read(s, tied, i, n, other, err));
        if (memcmp(own, other, (size_t)n * sizeof *own))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: config.json ties %s to the embedding, but the file has other values for it; set "
                           "tie_word_embeddings to false",
                           folder, row->name);
    }
    return GX_OK;
}

static void gx__checkpoint_load_whole(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e, float *values,
                                      int64_t count)
{
    GxArena *a = gx_host_arena(g);
    for (int64_t first = 0; first < count; first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(a);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values + first, 4 * n);
        if (s && !gx_failed(g)) gx_safetensors_read(s, e, first, n, twin, &g->error);
        gx_broadcast(g, GX_AXIS_ALL, 0, twin, n, GX_F32); // of a context that has failed: tells the others
        gx_to_device(g, values + first, twin, 4 * n);
        gx_arena_release(a, mark);
        if (gx_failed(g)) return;
    }
}

// Rank 0 reads, everybody gets it: a whole tensor into its place, of a cut one each rank its box. s NULL: not rank 0.
static void gx__checkpoint_load_tensor(GxContext *g, const GxSafetensors *s, const GxTensor *t, const char *prefix,
                                       float *values, const char *folder, void *scratch)
{
    const GxSafetensorsEntry *e = NULL;
    if (s) gx__checkpoint_find_tensor(&e, s, t, prefix, folder, &g->error);
    if (!t->parts) {
        gx__checkpoint_load_whole(g, s, e, values, gx_tensor_count(t));
        return;
    }
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        if (s && !gx_failed(g)) gx_safetensors_read(s, e, first * row, rows * row, (float *)scratch, &g->error);
        gx_broadcast(g, GX_AXIS_ALL, 0, scratch, rows * row, GX_F32); // of a context that has failed: tells the others
        if (gx_failed(g)) return;
        gx_box_take(g, t, values, first, rows, scratch);
    }
}

static void gx__checkpoint_load_tensors(GxContext *g, const GxSafetensors *s, const GxTable *t, const char *prefix,
                                        float *values, const char *folder)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    void *scratch = gx__checkpoint_boxes_scratch(g, t);
    for (int i = 0; i < t->n && !gx_failed(g); i++)
        if (!t->row[i].has_alias)
            gx__checkpoint_load_tensor(g, s, &t->row[i], prefix, values + gx_table_flat(t, i), folder, scratch);
    gx_arena_release(a, mark);
}

static GxStatus gx__checkpoint_refuse_unknown(const GxSafetensors *s, const GxTable *t, const char *folder,
                                              GxError *err)
{
    char names[300] = "";
    int unknown = 0;
    for (int i = 0; i < s->n; i++) {
        const char *name = s->entry[i].name;
        if (gx_table_find(t, name).index >= 0 || strstr(name, "rotary_emb.inv_freq")) continue;
        if (unknown++ < 3)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.80s", unknown > 1 ? ", " : "", name);
    }
    if (!unknown) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %d tensor%s that this model does not have: %s%s", folder, unknown,
                   unknown == 1 ? "" : "s", names, unknown > 3 ? ", ..." : "");
}

// ---- trainer_state.json --------------------------------------------------------------------------------------------

static GxStatus gx__checkpoint_write_state(const char *path, const GxTrainState *s, const GxTokenizer *tokenizer,
                                           GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "galaxy_version", gx_json_new_string(GX_VERSION), err);
    gx_json_set(json, "global_step", gx_json_new_int(s->step), err);
    gx_json_set(json, "applied_steps", gx_json_new_int(s->applied), err);
    gx_json_set(json, "samples_seen", gx_json_new_int(s->samples), err);
    gx_json_set(json, "seed", gx_json_new_int(s->seed), err);
    gx_json_set(json, "text_bytes", gx_json_new_int(s->text_bytes), err);
    gx_json_set(json, "text_hash", gx_json_new_int(s->text_hash), err);
    gx_json_set(json, "seq_len", gx_json_new_int(s->seq_len), err);
    gx_json_set(json, "run", gx_json_new_int(s->run), err);
    gx_json_set(json, "optimizer", gx_json_new_string(s->optimizer), err);
    gx_json_set(json, "tokenizer", gx_json_new_string(gx_tokenizer_identity(tokenizer)), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__checkpoint_read_state(const char *path, GxTrainState *s, GxError *err)
{
    GxJson *json;
    const char *optimizer = "";
    GX_TRY(gx_json_read(&json, path, 1 << 20, err));
    GxStatus status = gx_json_get_int(json, "global_step", 1, &s->step, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "applied_steps", 1, &s->applied, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "samples_seen", 1, &s->samples, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "seed", 1, &s->seed, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "text_bytes", 1, &s->text_bytes, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "text_hash", 1, &s->text_hash, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "seq_len", 1, &s->seq_len, path, err);
    if (status == GX_OK) status = gx_json_get_int(json, "run", 1, &s->run, path, err);
    if (status == GX_OK) status = gx_json_get_string(json, "optimizer", 1, &optimizer, path, err);
    snprintf(s->optimizer, sizeof s->optimizer, "%s", optimizer);
    gx_json_free(json);
    return status;
}

// ---- the folder ----------------------------------------------------------------------------------------------------

// What rank 0 alone has to write, all but the tensors.
static GxStatus gx__checkpoint_write_texts(const char *folder, const GxFamily *family, const GxModel *m,
                                           const GxTokenizer *tokenizer, const GxTrainState *state,
                                           const GxConfig *args, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(family->write_config(m, path, err));
    GX_TRY(gx_tokenizer_write(tokenizer, folder, err));
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    GX_TRY(gx_config_write_json(args, path, err));
    GX_TRY(gx_path_join(path, folder, "trainer_state.json", err));
    return gx__checkpoint_write_state(path, state, tokenizer, err);
}

void gx_checkpoint_save(GxContext *g, const char *folder, const GxFamily *family, const GxModel *m,
                        const GxOptimizer *o, const GxTokenizer *tokenizer, const GxTrainState *state,
                        const GxConfig *args)
{
    char temporary[GX_PATH] = "", path[GX_PATH] = "";
    GxError *err = &g->error;
    GxStatePart weights = {"", o->weights}, part[2];
    GxSafetensorsPair identity = {"galaxy_tokenizer", gx_tokenizer_identity(tokenizer)};
    const int parts = gx__checkpoint_state_parts(o, part), writes = g->rank == 0;
    gx_at(g, -1, "save");
    if (writes && gx_publish_begin(folder, temporary, err) == GX_OK)
        gx__checkpoint_write_texts(temporary, family, m, tokenizer, state, args, err);
    if (writes && !gx_failed(g)) gx_path_join(path, temporary, "model.safetensors", err);
    if (!gx_failed(g)) gx__checkpoint_save_tensors(g, path, &m->table, &weights, 1, &identity, 1);
    if (writes && !gx_failed(g)) gx_path_join(path, temporary, "optimizer.safetensors", err);
    if (!gx_failed(g) && parts) gx__checkpoint_save_tensors(g, path, &m->table, part, parts, NULL, 0);
    if (writes && !gx_failed(g)) gx_publish_finish(folder, err);
    gx_barrier(g, GX_AXIS_ALL); // of a context that has failed: tells the others
    if (!gx_failed(g) || !temporary[0]) return;
    GxError ignored = GX_ZERO; // the first error is the one to tell; this only frees the disk
    gx_folder_remove(temporary, &ignored);
}

void gx_checkpoint_load_weights(GxContext *g, GxModel *m, float *weights, const char *folder)
{
    GxSafetensors s;
    const int reads = g->rank == 0, open = reads && gx_safetensors_open(&s, folder, &g->error) == GX_OK;
    gx_at(g, -1, "load");
    if (open) gx__checkpoint_refuse_unknown(&s, &m->table, folder, &g->error);
    for (int i = 0; open && i < m->table.n && !gx_failed(g); i++)
        if (m->table.row[i].has_alias) gx__checkpoint_check_alias(&s, &m->table, &m->table.row[i], folder, &g->error);
    if (reads && gx_failed(g)) gx_barrier(g, GX_AXIS_ALL); // tells the others
    gx__checkpoint_load_tensors(g, open ? &s : NULL, &m->table, "", weights, folder);
    if (open) gx_safetensors_close(&s);
}

static GxStatus gx__checkpoint_read_resume(const GxOptimizer *o, GxTrainState *state, const char *folder, GxError *err)
{
    char path[GX_PATH], wanted[32];
    snprintf(wanted, sizeof wanted, "%s", o->kind == GX_OPTIMIZER_ADAMW ? "adamw" : "sgd");
    GX_TRY(gx_folder_verify(folder, 1, err));
    GX_TRY(gx_path_join(path, folder, "trainer_state.json", err));
    GX_TRY(gx__checkpoint_read_state(path, state, err));
    if (!strcmp(state->optimizer, wanted)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s was trained with %s, this run asks for %s; resume with --optimizer %s, or take its weights "
                   "alone with --model",
                   folder, state->optimizer, wanted, state->optimizer);
}

void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, GxTrainState *state, const char *folder)
{
    GxError *err = &g->error;
    GxSafetensors s;
    GxStatePart part[2];
    char path[GX_PATH] = "";
    const int parts = gx__checkpoint_state_parts(o, part), reads = g->rank == 0;
    int64_t numbers[8] = {0};
    gx_at(g, -1, "load");
    if (reads && gx__checkpoint_read_resume(o, state, folder, err) == GX_OK &&
        gx_path_join(path, folder, "optimizer.safetensors", err) == GX_OK) {
        int64_t have[8] = {state->step,       state->applied,   state->samples, state->seed,
                           state->text_bytes, state->text_hash, state->seq_len, state->run};
        memcpy(numbers, have, sizeof numbers);
    }
    const int open = reads && parts && !gx_failed(g) && gx_safetensors_open(&s, path, err) == GX_OK;
    gx_broadcast(g, GX_AXIS_ALL, 0, numbers, 8, GX_I64);
    for (int p = 0; p < parts; p++)
        gx__checkpoint_load_tensors(g, open ? &s : NULL, &m->table, part[p].prefix, part[p].values, path);
    if (open) gx_safetensors_close(&s);
    state->step = numbers[0], state->applied = numbers[1], state->samples = numbers[2], state->seed = numbers[3],
    state->text_bytes = numbers[4];
    state->text_hash = numbers[5], state->seq_len = numbers[6], state->run = numbers[7];
}

// ---- which run it is -----------------------------------------------------------------------------------------------

int64_t gx_run_draw(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t words[3] = {t.tv_sec, t.tv_nsec, getpid()};
    return (int64_t)(gx_hash(GX_HASH_START, words, sizeof words) >> 1) | 1;
}

GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, output_dir, "run.json", err));
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "run", gx_json_new_int(run), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

int64_t gx_run_read(const char *output_dir)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // unreadable: as if it were not there
    GxJson *json = NULL;
    int64_t run = 0;
    if (gx_path_join(path, output_dir, "run.json", &ignored) != GX_OK ||
        gx_json_read(&json, path, 1 << 16, &ignored) != GX_OK)
        return 0;
    gx_json_get_int(json, "run", 0, &run, path, &ignored);
    gx_json_free(json);
    return run;
}

// ---- which folders there are ---------------------------------------------------------------------------------------

// N of "checkpoint-N" as gx_checkpoint_path writes it, or -1.
static int64_t gx__checkpoint_number(const char *name)
{
    const char *digits = name + strlen("checkpoint-");
    if (strncmp(name, "checkpoint-", strlen("checkpoint-")) || !*digits || strlen(digits) > 15 ||
        digits[strspn(digits, "0123456789")] || (digits[0] == '0' && digits[1]))
        return -1;
    return strtoll(digits, NULL, 10);
}

// The checkpoint with the largest number below `below`; its number, or -1.
static int64_t gx__checkpoint_before(const GxFolder *list, int64_t below)
{
    int64_t best = -1;
    for (int i = 0; i < list->n; i++) {
        int64_t n = list->entry[i].is_folder ? gx__checkpoint_number(list->entry[i].name) : -1;
        if (n < below && n > best) best = n;
    }
    return best;
}

GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t number, GxError *err)
{
    char name[40];
    snprintf(name, sizeof name, "checkpoint-%ld", (long)number);
    return gx_path_join(path, output_dir, name, err);
}

// The number of the checkpoint that "checkpoint-N.gx-old" or the like was to be, or -1.
static int64_t gx__checkpoint_leftover_number(const char *name)
{
    static const char *const suffixes[] = {GX_NEW_SUFFIX, GX_OLD_SUFFIX};
    char stem[GX_FILE_NAME];
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(name), suffix = strlen(suffixes[i]);
        if (n <= suffix || strcmp(name + n - suffix, suffixes[i])) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(n - suffix), name);
        return gx__checkpoint_number(stem);
    }
    return -1;
}

GxStatus gx_checkpoint_sweep(const char *output_dir, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__checkpoint_leftover_number(list.entry[i].name);
        if (n < 0) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_publish_recover(path, err);
    }
    gx_folder_close(&list);
    return status;
}

static int gx__checkpoint_is_of(const char *folder, int64_t run)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // a state that cannot be read is of no run
    GxTrainState s = GX_ZERO;
    if (run == 0) return 1;
    return gx_path_join(path, folder, "trainer_state.json", &ignored) == GX_OK &&
           gx__checkpoint_read_state(path, &s, &ignored) == GX_OK && s.run == run;
}

static GxStatus gx__checkpoint_refuse_other(const char *path, int64_t run, int64_t step, GxError *err)
{
    char manifest[GX_PATH];
    GX_TRY(gx_path_join(manifest, path, GX_MANIFEST, err));
    if (!gx_folder_is_ours(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is where step %ld may have to be saved, but it is no folder with a %s: it was not written "
                       "by this program, or not "
                       "to the end; move it away or remove it, or choose another --output_dir",
                       path, (long)step, GX_MANIFEST);
    if (!gx_path_is_file(manifest) || gx__checkpoint_is_of(path, run)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s is a checkpoint of another run, in whose place this one may have to save step %ld; go on with "
                   "the earlier run "
                   "(--resume auto), choose another --output_dir, or move that checkpoint away or remove it",
                   path, (long)step);
}

GxStatus gx_checkpoint_refuse_others(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__checkpoint_number(list.entry[i].name);
        if (n <= begun || n > last) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx__checkpoint_refuse_other(path, run, n, err);
    }
    gx_folder_close(&list);
    return status;
}

GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err)
{
    GxFolder list;
    newest[0] = 0;
    if (!gx_path_is_folder(output_dir)) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    for (int64_t n = gx__checkpoint_before(&list, INT64_MAX); n >= 0 && status == GX_OK;
         n = gx__checkpoint_before(&list, n)) {
        GxError torn = GX_ZERO;
        status = gx_checkpoint_path(newest, output_dir, n, err);
        if (status != GX_OK) break;
        const int whole = gx_folder_verify(newest, 1, &torn) == GX_OK;
        if (whole && gx__checkpoint_is_of(newest, run)) break;
        if (whole)
            gx_log(log, GX_LOG_WARNING, "%s is of another run than the one that was begun last in %s, passing it over",
                   newest, output_dir);
        else gx_log(log, GX_LOG_WARNING, "%s is not whole, passing it over: %s", newest, torn.message);
        newest[0] = 0;
    }
    gx_folder_close(&list);
    return status;
}

GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, GxError *err)
{
    GxFolder list;
    if (keep <= 0) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    int64_t kept = 0;
    for (int64_t n = gx__checkpoint_before(&list, newest + 1); n >= 0 && status == GX_OK;
         n = gx__checkpoint_before(&list, n)) {
        char path[GX_PATH], manifest[GX_PATH];
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_path_join(manifest, path, GX_MANIFEST, err);
        if (status != GX_OK || !gx_path_is_file(manifest) || !gx__checkpoint_is_of(path, run)) continue;
        if (++kept > keep) status = gx_publish_remove(path, err);
    }
    gx_folder_close(&list);
    return status;
}
#endif
