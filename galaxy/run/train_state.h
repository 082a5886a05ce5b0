// train_state.h: how far a run is, and what its next steps depend on: trainer_state.json of a checkpoint.
#ifndef GX_TRAIN_STATE_H
#define GX_TRAIN_STATE_H
#include "../base/fields.h"
#include "../task/task.h"
#include "tensor_load.h"
GX_BEGIN

typedef struct { // the best validation so far (best.h)
    double metric;
    int64_t step;                   // 0: none
    int64_t patience_counter;       // validations in a row without an improvement
    int64_t validated;              // the last step that was compared; 0: none was
    char checkpoint[GX_FIELD_TEXT]; // the folder with its weights, beside this one: "checkpoint-400"; "": not saved
} GxBest;

typedef struct {
    int64_t step, applied, samples; // windows started, optimizer steps applied, samples seen
    int64_t seed, seq_len;
    int64_t run;             // the number of the run that saved this checkpoint
    GxWeightsHash base_hash; // of the adapter's base weights as the run read them; 0: no adapter, or not known
    char optimizer[GX_FIELD_TEXT];
    // how it was computed: ranks, CPU threads of rank 0, and the mode: "ATT TP, CON None, MLP TP, ends TP"
    int64_t world, threads;
    char methods[GX_FIELD_TEXT];
    GxIntList dp_samples; // of each copy of the model in a window, with --dp_samples_list; n 0: without
    GxBest best;
} GxTrainState;

// Reads trainer_state.json. Refuses numbers that are out of range or contradict each other.
GxStatus gx_train_state_read(const char *path, GxTrainState *s, GxError *err);
// Writes it, with what identifies the task's data; task NULL: without that.
GxStatus gx_train_state_write(const char *path, const GxTrainState *s, const GxTask *task, const void *self,
                              GxError *err);
// The fields of GxTrainState, which ranks agree on.
const GxField *gx_train_state_fields(int *n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TRAIN_STATE_IMPLEMENTED)
#define GX_TRAIN_STATE_IMPLEMENTED
#include "../io/json.h"
#include "../io/json_fields.h"

#define GX__TRAIN_STATE_AT(field) offsetof(GxTrainState, field)
static const GxField gx__train_state_fields[] = {
    {"global_step", GX_FIELD_INT, GX__TRAIN_STATE_AT(step), NULL, "windows begun", "0..1000000000000000"},
    {"applied_steps", GX_FIELD_INT, GX__TRAIN_STATE_AT(applied), NULL, "optimizer steps applied",
     "0..1000000000000000"},
    {"samples_seen", GX_FIELD_INT, GX__TRAIN_STATE_AT(samples), NULL, "by all ranks", "0..1000000000000000000"},
    {"seed", GX_FIELD_INT, GX__TRAIN_STATE_AT(seed), NULL, "of the run", "0.."},
    {"seq_len", GX_FIELD_INT, GX__TRAIN_STATE_AT(seq_len), NULL, "tokens in a sample", "1..16777216"},
    {"run", GX_FIELD_INT, GX__TRAIN_STATE_AT(run), NULL, "which run this is a checkpoint of", "1.."},
    {"optimizer", GX_FIELD_STRING, GX__TRAIN_STATE_AT(optimizer), NULL, "whose state it is", "adamw|sgd"},
    {"world_size", GX_FIELD_INT, GX__TRAIN_STATE_AT(world), NULL, "ranks", "1..256"},
    {"threads", GX_FIELD_INT, GX__TRAIN_STATE_AT(threads), NULL, "CPU threads of rank 0", "1..1024"},
    {"methods", GX_FIELD_STRING, GX__TRAIN_STATE_AT(methods), NULL, "how the model was split", NULL},
    // with --dp_samples_list: where samples have moved to by then
    {"dp_samples", GX_FIELD_INT_LIST, GX__TRAIN_STATE_AT(dp_samples), NULL, "of each copy in a step",
     "1..1000000000000"},
    // for an adapter
    {"base_hash", GX_FIELD_HASH, GX__TRAIN_STATE_AT(base_hash.all), NULL, "of the weights that it is an adapter of",
     NULL},
    {"base_body_hash", GX_FIELD_HASH, GX__TRAIN_STATE_AT(base_hash.body), NULL, "of these, without the head's", NULL},
    // for a run that compares its validations: the next five
    {"best_metric", GX_FIELD_DOUBLE, GX__TRAIN_STATE_AT(best.metric), NULL, "of the best validation", NULL},
    {"best_global_step", GX_FIELD_INT, GX__TRAIN_STATE_AT(best.step), NULL, "when it was; 0: there is none",
     "0..1000000000000000"},
    {"best_model_checkpoint", GX_FIELD_STRING, GX__TRAIN_STATE_AT(best.checkpoint), NULL, "its weights", NULL},
    {"early_stopping_patience_counter", GX_FIELD_INT, GX__TRAIN_STATE_AT(best.patience_counter), NULL,
     "validations since one that was better", "0..1000000000000000"},
    {"last_validation_step", GX_FIELD_INT, GX__TRAIN_STATE_AT(best.validated), NULL, "that was compared",
     "0..1000000000000000"},
};
enum {
    GX__TRAIN_STATE_FIELDS = sizeof gx__train_state_fields / sizeof *gx__train_state_fields,
    GX__TRAIN_STATE_BEST = 5,
    GX__TRAIN_STATE_HASHES = 2, // of base weights: all, body
    GX__TRAIN_STATE_SAMPLES = 1,
    GX__TRAIN_STATE_SOMETIMES = GX__TRAIN_STATE_SAMPLES + GX__TRAIN_STATE_HASHES + GX__TRAIN_STATE_BEST,
    GX__TRAIN_STATE_ALWAYS = GX__TRAIN_STATE_FIELDS - GX__TRAIN_STATE_SOMETIMES
};

const GxField *gx_train_state_fields(int *n)
{
    *n = GX__TRAIN_STATE_FIELDS;
    return gx__train_state_fields;
}

GxStatus gx_train_state_write(const char *path, const GxTrainState *s, const GxTask *task, const void *self,
                              GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "galaxy_version", gx_json_new_string(GX_VERSION), err);
    gx_json_set_fields(json, gx__train_state_fields, GX__TRAIN_STATE_ALWAYS, s, err);
    const GxField *samples = gx__train_state_fields + GX__TRAIN_STATE_ALWAYS,
                  *others = samples + GX__TRAIN_STATE_SAMPLES;
    if (s->dp_samples.n) gx_json_set_fields(json, samples, GX__TRAIN_STATE_SAMPLES, s, err);
    if (s->base_hash.all) gx_json_set_fields(json, others, GX__TRAIN_STATE_HASHES, s, err);
    if (s->best.validated) gx_json_set_fields(json, others + GX__TRAIN_STATE_HASHES, GX__TRAIN_STATE_BEST, s, err);
    if (task) gx_json_set_fields(json, task->checkpoint.identity, task->checkpoint.n_identity, self, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

// Each window starts a step, which is applied or skipped, and has at least one sample.
static GxStatus gx__train_state_check(const GxTrainState *s, const char *path, GxError *err)
{
    if (s->applied > s->step)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: applied_steps is %ld; expected at most global_step, which is %ld", path,
                       (long)s->applied, (long)s->step);
    if (s->samples < s->step || (s->step == 0 && s->samples > 0))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: samples_seen is %ld, but global_step is %ld; expected %s", path,
                       (long)s->samples, (long)s->step, s->step ? "at least one sample in each step" : "none");
    if (s->best.validated > s->step || s->best.step > s->best.validated)
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "%s: best_global_step is %ld, last_validation_step %ld, global_step %ld; expected them in ascending order",
            path, (long)s->best.step, (long)s->best.validated, (long)s->step);
    return GX_OK;
}

GxStatus gx_train_state_read(const char *path, GxTrainState *s, GxError *err)
{
    GxJson *json;
    GX_TRY(gx_json_read(&json, path, 1 << 20, err));
    const GxField *others = gx__train_state_fields + GX__TRAIN_STATE_ALWAYS;
    GxStatus status = gx_json_get_fields(json, gx__train_state_fields, GX__TRAIN_STATE_ALWAYS, 1, s, path, err);
    if (status == GX_OK) status = gx_json_get_fields(json, others, GX__TRAIN_STATE_SOMETIMES, 0, s, path, err);
    gx_json_free(json);
    return status == GX_OK ? gx__train_state_check(s, path, err) : status;
}
#endif
