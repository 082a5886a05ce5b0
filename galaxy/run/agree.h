// agree.h: what the ranks of a run agree on before there is a plan: that they run the same program with the same
// options, the checkpoint to resume, the model's configuration, the text.
//
// No disk is shared: rank 0 looks for the checkpoint and reads the model's config.json, and the others are told. Each
// machine has a text of its own, which must be the same.
#ifndef GX_AGREE_H
#define GX_AGREE_H
#include "../io/config.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

GxStatus gx_agree_on_options(GxTrainer *t); // and on the program
GxStatus gx_agree_on_model(GxTrainer *t);   // t->resume, t->model_config
GxStatus gx_agree_on_text(GxTrainer *t);    // t->text_hash

// What all ranks must have alike, as a line of JSON (free() it): all options but threads and paths, which are each
// machine's own; of --model and --resume, whether they are given.
GxStatus gx_options_shared(const GxConfig *c, char **text, int64_t *bytes, GxError *err);
// Refuses this rank's line where it is not rank 0's, with the first option that differs and both values.
GxStatus gx_options_compare(const char *first, const char *mine, int rank, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_AGREE_IMPLEMENTED)
#define GX_AGREE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "output.h"
#include "trainer.h"

// ---- options -------------------------------------------------------------------------------------------------------

GxStatus gx_options_shared(const GxConfig *c, char **text, int64_t *bytes, GxError *err)
{
    static const char *const own[] = {"threads", "ranks",  "world",      "rank",
                                      "init",    "device", "train_data", "output_dir"},
                             *const folders[] = {"model", "resume"};
    GxJson *json = gx_config_to_json(c, err);
    if (!json) return gx_error_code(err);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) gx_json_remove(json, own[i]);
    GxStatus status = GX_OK;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && status == GX_OK; i++) {
        const char *path = gx_json_string(gx_json_get(json, folders[i]));
        if (strcmp(path, "auto"))
            status = gx_json_set(json, folders[i], path[0] ? gx_json_new_string("a folder") : gx_json_new_null(), err);
    }
    if (status == GX_OK) status = gx_json_dump(json, 0, text, bytes, err);
    gx_json_free(json);
    return status;
}

// free() it; NULL: no memory.
static char *gx__agree_value_text(const GxJson *value, GxError *err)
{
    char *text = NULL;
    int64_t bytes;
    if (gx_json_type(value) <= GX_JSON_NULL) return strdup("not given");
    return gx_json_dump(value, 0, &text, &bytes, err) == GX_OK ? text : NULL;
}

static GxStatus gx__agree_compare_option(const GxJsonMember *first, const GxJson *mine, int rank, GxError *err)
{
    char *theirs = gx__agree_value_text(first->value, err), *ours = gx__agree_value_text(mine, err);
    GxStatus status = theirs && ours ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to compare the ranks' options");
    if (status == GX_OK && strcmp(theirs, ours))
        status = GX_FAIL(err, GX_ERR_COMM,
                         "--%s is %.100s on rank 0 and %.100s on rank %d; only threads, device and paths may differ",
                         first->key, theirs, ours, rank);
    free(theirs);
    free(ours);
    return status;
}

GxStatus gx_options_compare(const char *first, const char *mine, int rank, GxError *err)
{
    GxJson *a = NULL, *b = NULL;
    GxStatus status = gx_json_parse(&a, first, (int64_t)strlen(first), "the options of rank 0", err);
    if (status == GX_OK) status = gx_json_parse(&b, mine, (int64_t)strlen(mine), "the options", err);
    for (GxJsonMember m = GX_ZERO; status == GX_OK && gx_json_next(a, &m);)
        status = gx__agree_compare_option(&m, gx_json_get(b, m.key), rank, err);
    gx_json_free(a);
    gx_json_free(b);
    return status;
}
// The program is the family and what the mode splits.
static uint64_t gx__agree_program_hash(const GxTrainer *t)
{
    const int split[3] = {t->split.att, t->split.con, t->split.mlp};
    return gx_hash(gx_hash(GX_HASH_START, t->family->name, (int64_t)strlen(t->family->name)), split, sizeof split);
}

GxStatus gx_agree_on_options(GxTrainer *t)
{
    GxContext *g = t->g;
    char *mine;
    int64_t bytes;
    GX_TRY(gx_options_shared(&t->config, &mine, &bytes, &g->error));
    int64_t agreed[2] = {(int64_t)gx__agree_program_hash(t), bytes};
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, agreed, 2, GX_I64);
    if (!gx_failed(g) && (uint64_t)agreed[0] != gx__agree_program_hash(t))
        GX_FAIL(&g->error, GX_ERR_COMM, "rank %d was started with another program than rank 0", g->rank);
    char *first = (char *)calloc((size_t)agreed[1] + 1, 1);
    if (!first) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the options of rank 0");
    if (first && g->rank == 0) memcpy(first, mine, (size_t)bytes);
    gx_broadcast(g, GX_AXIS_ALL, 0, first, agreed[1], GX_U8); // of a context that has failed: tells the others
    if (!gx_failed(g)) gx_options_compare(first, mine, g->rank, &g->error);
    free(first);
    free(mine);
    return gx_status(g);
}

// ---- the checkpoint to resume, the model, the text -----------------------------------------------------------------

// What the user sets of a model whose config.json is read must agree with that file; where nothing was set, the file
// decides.
static GxStatus gx__agree_model_config_from(GxTrainer *t, const char *folder, GxError *err)
{
    char path[GX_PATH];
    void *wanted = malloc(t->family->config_size);
    if (!wanted) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    memcpy(wanted, t->model_config, t->family->config_size);
    GxStatus status = gx_path_join(path, folder, "config.json", err);
    if (status == GX_OK) status = t->family->read_config(t->model_config, path, err);
    for (int i = 0; i < t->family->n_options && status == GX_OK; i++) {
        const GxOption *o = &t->family->options[i];
        const char *a = (const char *)wanted + o->offset, *b = (const char *)t->model_config + o->offset;
        size_t size = o->type == GX_OPTION_BOOL ? sizeof(int) : 8;
        int automatic =
            o->type == GX_OPTION_INT && *(const int64_t *)a == 0; // 0: the default, which the file may spell out
        if (gx_config_is_set(&t->config, o->name) && !automatic && memcmp(a, b, size))
            status = GX_FAIL(err, GX_ERR_ARGUMENT,
                             "%s is set to something else than in %s, whose model is to be loaded; leave it out",
                             o->name, path);
    }
    free(wanted);
    return status;
}

// --resume auto becomes the folder that it stands for, or nothing.
static GxStatus gx__agree_find_resume(GxTrainer *t)
{
    if (strcmp(t->o.resume, "auto")) {
        snprintf(t->resume, sizeof t->resume, "%s", t->o.resume);
        return GX_OK;
    }
    if (!t->o.dry_run && gx_path_is_folder(t->o.output_dir))
        GX_TRY(gx_output_lock(&t->lock, t->o.output_dir, &t->g->error));
    return gx_checkpoint_newest(t->o.output_dir, gx_run_read(t->o.output_dir), t->resume, &t->g->log, &t->g->error);
}

// No disk is shared: rank 0 looks for the checkpoint and reads the model's config.json; the others are told.
GxStatus gx_agree_on_model(GxTrainer *t)
{
    GxContext *g = t->g;
    if (gx_trainer_is_first(t)) {
        const char *folder = t->o.model;
        if (gx__agree_find_resume(t) == GX_OK && t->resume[0]) folder = t->resume;
        if (!gx_failed(g) && folder[0]) gx__agree_model_config_from(t, folder, &g->error);
    }
    gx_broadcast(g, GX_AXIS_ALL, 0, t->resume, sizeof t->resume, GX_U8);
    gx_broadcast(g, GX_AXIS_ALL, 0, t->model_config, (int64_t)t->family->config_size, GX_U8);
    return gx_status(g);
}

// Each machine has a text of its own, and it must be the same: size and the hash of its two ends.
GxStatus gx_agree_on_text(GxTrainer *t)
{
    GxContext *g = t->g;
    const char *text = (const char *)t->data.map;
    const int64_t n = t->data.map_bytes, end = gx_min(n, 1 << 20);
    int64_t mine[2] = {n, (int64_t)gx_hash(gx_hash(GX_HASH_START, text, end), text + n - end, end)},
            first[2] = {mine[0], mine[1]};
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, 2, GX_I64);
    GX_TRY(gx_status(g));
    t->text_hash = first[1];
    if (!memcmp(mine, first, sizeof mine)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: %s is another text here (%ld bytes) than on rank 0 (%ld bytes); all ranks need the same",
                   g->rank, t->o.train_data, (long)n, (long)first[0]);
}
#endif
