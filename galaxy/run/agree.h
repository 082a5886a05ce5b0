// agree.h: what the ranks of a run agree on before the memory plan is made: that they run the same program with the
// same options, which checkpoint to resume, and the model's configuration. (Ranks agree on the data in the task:
// task/task.h.)
//
// No shared disk is needed: rank 0 looks for the checkpoint, reads the model's config.json and broadcasts both. A rank
// that differs from rank 0 fails, with an error that states both values; the communicator tells the others.
#ifndef GX_AGREE_H
#define GX_AGREE_H
#include "../comm/comm.h"
#include "../io/config.h"
#include "../io/files.h"
#include "../io/model_folder.h"
#include "../task/task.h"
#include "source_folder.h"
GX_BEGIN

// Broadcast the fields of rank 0's struct, or its path, to all ranks.
void gx_agree_on_fields(GxContext *g, const GxField *f, int n, void *target);
void gx_agree_on_path(GxContext *g, char path[GX_PATH]);
// Broadcasts rank `root`'s bytes. Returns them with a terminating 0 in a new buffer on every rank (free() it) and their
// number in *bytes. NULL: out of memory, or the context has failed.
char *gx_agree_on_text(GxContext *g, int root, const char *mine, int64_t my_bytes, int64_t *bytes);
// Broadcasts rank 0's document, which may be NULL; the other ranks get a new one. `name`: what errors call it.
void gx_agree_on_json(GxContext *g, GxJson **json, const char *name);

// Called before a checkpoint is looked for: compares the options that decide what the ranks then do together
// (--adapter, --resume, and those that ask for a validation, a sample or predictions without training). predicts: the
// option that asks for predictions; NULL: none.
GxStatus gx_agree_on_start(GxContext *g, const GxConfig *c, const char *predicts);
// Refuses a rank whose program or options are not rank 0's.
GxStatus gx_agree_on_options(GxContext *g, const GxConfig *c, const GxFamily *family, const GxTask *task,
                             const GxMode *mode);

// The same for another kind of program, which the text `program` identifies. own: further options that may differ
// between ranks, besides those of each machine; NULL: none.
GxStatus gx_agree_on_program(GxContext *g, const GxConfig *c, const char *program, const char *const *own);

// Agrees on the model's configuration: that of config.json in rank 0's `folder`, or, if that is "", that of the
// options. An option that was set must agree with the file.
GxStatus gx_agree_on_model(GxContext *g, const GxConfig *c, const GxFamily *family, void *config, char folder[GX_PATH]);

// Writes everything that must be the same on all ranks as one line of JSON (free() it): the program, and all options
// except threads, paths and the task's `own` ones, which each machine may set differently. For --model, --adapter,
// --resume, --autotune, --trace and --machines it contains only whether they are given.
GxStatus gx_options_shared(const GxConfig *c, const char *program, const char *const *own, char **text, int64_t *bytes,
                           GxError *err);
// Refuses the line of this rank if it differs from rank 0's; the error names the first option that differs (or that
// only one of them has), with both values.
GxStatus gx_options_compare(const char *first, const char *mine, int rank, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_AGREE_IMPLEMENTED)
#define GX_AGREE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/config_json.h"
#include "../io/json_fields.h"

void gx_agree_on_fields(GxContext *g, const GxField *f, int n, void *target)
{
    const int64_t bytes = gx_fields_bytes(f, n);
    char *packed = (char *)malloc((size_t)bytes);
    if (!packed) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a message of %ld bytes", (long)bytes);
    else gx_fields_pack(f, n, target, packed);
    gx_broadcast(g, GX_AXIS_ALL, 0, packed, bytes, GX_U8); // on a failed context this tells the other ranks
    if (!gx_failed(g)) gx_fields_unpack(f, n, target, packed);
    free(packed);
}

void gx_agree_on_path(GxContext *g, char path[GX_PATH]) { gx_broadcast(g, GX_AXIS_ALL, 0, path, GX_PATH, GX_U8); }

char *gx_agree_on_text(GxContext *g, int root, const char *mine, int64_t my_bytes, int64_t *bytes)
{
    *bytes = my_bytes;
    gx_broadcast(g, GX_AXIS_ALL, root, bytes, 1, GX_I64);
    char *text = gx_failed(g) ? NULL : (char *)calloc((size_t)*bytes + 1, 1);
    if (!text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a text of rank %d", root);
    if (text && g->rank == root && my_bytes) memcpy(text, mine, (size_t)my_bytes);
    if (*bytes) // on a failed context this tells the other ranks
        gx_broadcast(g, GX_AXIS_ALL, root, text, *bytes, GX_U8);
    return text;
}

void gx_agree_on_json(GxContext *g, GxJson **json, const char *name)
{
    char *mine = NULL;
    int64_t bytes = 0, first_bytes = 0;
    if (g->rank == 0 && *json && !gx_failed(g)) gx_json_dump(*json, 0, &mine, &bytes, &g->error);
    char *first = gx_agree_on_text(g, 0, mine, bytes, &first_bytes);
    if (g->rank != 0 && first_bytes && !gx_failed(g)) gx_json_parse(json, first, first_bytes, name, &g->error);
    free(first);
    free(mine);
}

// ---- options -------------------------------------------------------------------------------------------------------

#define GX__AGREE_PROGRAM "the program" // stored beside the options, none of which has a space in its name

GxStatus gx_options_shared(const GxConfig *c, const char *program, const char *const *own, char **text, int64_t *bytes,
                           GxError *err)
{
    static const char *const machines[] = {"threads",     "ranks",        "world",      "rank",
                                           "init",        "device",       "output_dir", "side_cache_dir",
                                           "offload_dir", "memory_limit", "add_tokens", "plot_memory"};
    static const char *const files[] = {"autotune", "trace", "machines"};        // only rank 0 opens these
    static const char *const folders[] = {"model", "adapter", "resume", "plan"}; // or "auto"
    GxJson *json = gx_config_to_json(c, err);
    if (!json) return gx_error_code(err);
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) gx_json_remove(json, machines[i]);
    for (int i = 0; own && own[i]; i++) gx_json_remove(json, own[i]);
    GxStatus status = gx_json_set(json, GX__AGREE_PROGRAM, gx_json_new_string(program), err);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && status == GX_OK; i++) {
        const char *path = gx_json_string(gx_json_get(json, folders[i]));
        if (strcmp(path, "auto"))
            status = gx_json_set(json, folders[i], path[0] ? gx_json_new_string("a folder") : gx_json_new_null(), err);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files && status == GX_OK; i++) { // only rank 0 opens them
        const int is_given = gx_json_string(gx_json_get(json, files[i]))[0] != 0;
        status = gx_json_set(json, files[i], is_given ? gx_json_new_string("a file") : gx_json_new_null(), err);
    }
    if (status == GX_OK) status = gx_json_dump(json, 0, text, bytes, err);
    gx_json_free(json);
    return status;
}

// "32", or "not given", as new text: free() it. NULL: out of memory.
static char *gx__agree_value_text(const GxJson *value, GxError *err)
{
    char *text = NULL;
    int64_t bytes;
    if (gx_json_type(value) <= GX_JSON_NULL) return strdup("not given");
    return gx_json_dump(value, 0, &text, &bytes, err) == GX_OK ? text : NULL;
}

static GxStatus gx__agree_compare(const char *key, const GxJson *first, const GxJson *mine, int rank, GxError *err)
{
    char a[154], b[154]; // the program's text fits
    const int is_program = !strcmp(key, GX__AGREE_PROGRAM);
    char *theirs = gx__agree_value_text(first, err), *ours = gx__agree_value_text(mine, err);
    GxStatus status = theirs && ours ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to compare the ranks' options");
    if (status == GX_OK && strcmp(theirs, ours))
        status =
            GX_FAIL(err, GX_ERR_COMM, "%s%.60s is %s on rank 0 and %s on rank %d; %s", is_program ? "" : "--", key,
                    gx_text_cut(theirs, a, sizeof a), gx_text_cut(ours, b, sizeof b), rank,
                    is_program ? "all ranks need the same" : "only threads, device, memory limit and paths may differ");
    free(theirs);
    free(ours);
    return status;
}

GxStatus gx_options_compare(const char *first, const char *mine, int rank, GxError *err)
{
    GxJson *a = NULL, *b = NULL;
    GxStatus status = gx_json_parse(&a, first, (int64_t)strlen(first), "the options of rank 0", err);
    if (status == GX_OK) status = gx_json_parse(&b, mine, (int64_t)strlen(mine), "the options", err);
    if (status == GX_OK) // compared first, since another program has other options
        status = gx__agree_compare(GX__AGREE_PROGRAM, gx_json_get(a, GX__AGREE_PROGRAM),
                                   gx_json_get(b, GX__AGREE_PROGRAM), rank, err);
    for (GxJsonMember m = GX_ZERO; status == GX_OK && gx_json_next(a, &m);)
        status = gx__agree_compare(m.key, m.value, gx_json_get(b, m.key), rank, err);
    for (GxJsonMember m = GX_ZERO; status == GX_OK && gx_json_next(b, &m);) // options that only this rank has
        status = gx__agree_compare(m.key, gx_json_get(a, m.key), m.value, rank, err);
    gx_json_free(a);
    gx_json_free(b);
    return status;
}

// The program as text: "galaxy 0.1.0, causal_lm, llama (ATT TP, CON SP, MLP TP, ends TP)"
static void gx__agree_program_text(const GxFamily *family, const GxTask *task, const GxMode *mode, char text[200])
{
    char methods[60];
    gx_methods_text(mode->methods, methods, sizeof methods);
    snprintf(text, 200, "galaxy %s, %.50s, %.50s (%s%s)", GX_VERSION, task->name, family->name, methods,
             mode->is_tiled ? ", by tiles" : "");
}

static void gx__agree_compare_texts(GxContext *g, const char *mine, int64_t bytes)
{
    int64_t first_bytes;
    gx_at(g, -1, "agree");
    char *first = gx_agree_on_text(g, 0, mine, bytes, &first_bytes);
    if (!gx_failed(g)) gx_options_compare(first, mine, g->rank, &g->error);
    free(first);
}

GxStatus gx_agree_on_start(GxContext *g, const GxConfig *c, const char *predicts)
{
    static const char *const folders[] = {"adapter", "resume"}, *const flags[] = {"evaluate", "sample_only", "dry_run"};
    GxError *err = &g->error;
    GxJson *all = gx_config_to_json(c, err), *json = gx_json_new_object();
    char *mine = NULL;
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && all; i++) {
        const char *path = gx_json_string(gx_json_get(all, folders[i]));
        if (path[0]) gx_json_set(json, folders[i], gx_json_new_string(strcmp(path, "auto") ? "a folder" : path), err);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags && all; i++)
        gx_json_set(json, flags[i], gx_json_new_bool(gx_json_bool(gx_json_get(all, flags[i]))), err);
    if (predicts) gx_json_set(json, predicts, gx_json_new_string("given"), err);
    if (all && !gx_failed(g)) gx_json_dump(json, 0, &mine, &bytes, err);
    gx__agree_compare_texts(g, mine, bytes); // on a failed context this tells the other ranks
    free(mine);
    gx_json_free(all), gx_json_free(json);
    return gx_status(g);
}

GxStatus gx_agree_on_options(GxContext *g, const GxConfig *c, const GxFamily *family, const GxTask *task,
                             const GxMode *mode)
{
    char program[200];
    gx__agree_program_text(family, task, mode, program);
    return gx_agree_on_program(g, c, program, task->options.own);
}

GxStatus gx_agree_on_program(GxContext *g, const GxConfig *c, const char *program, const char *const *own)
{
    char *mine;
    int64_t bytes;
    GX_TRY(gx_options_shared(c, program, own, &mine, &bytes, &g->error));
    gx__agree_compare_texts(g, mine, bytes);
    free(mine);
    return gx_status(g);
}

// ---- the model -----------------------------------------------------------------------------------------------------

// If config.json was read, an option that the user set must agree with it. Options that were not set are not compared.
static GxStatus gx__agree_check_set(const GxConfig *c, const GxField *f, const void *set, const void *file,
                                    const char *path, GxError *err)
{
    const int automatic = f->type == GX_FIELD_INT && *(const int64_t *)gx_field_in(f, set) == 0 &&
                          !strstr(f->name, "_token_id"); // 0: whatever the file has
    if (!gx_config_is_set(c, f->name) || automatic || gx_field_same(f, set, file)) return GX_OK;
    GxJson *a = gx_field_to_json(f, set, err), *b = gx_field_to_json(f, file, err);
    char *ours = gx__agree_value_text(a, err), *theirs = gx__agree_value_text(b, err), cut[2][GX_TEXT_VALUE];
    if (ours && theirs)
        GX_FAIL(err, GX_ERR_ARGUMENT, "--%s is %s, but the model to load has %s in its %s; leave out --%s", f->name,
                gx_text_cut(ours, cut[0], sizeof cut[0]), gx_text_cut(theirs, cut[1], sizeof cut[1]), path, f->name);
    else GX_FAIL(err, GX_ERR_MEMORY, "no memory to compare options");
    free(ours);
    free(theirs);
    gx_json_free(a);
    gx_json_free(b);
    return gx_error_code(err);
}

GxStatus gx_agree_on_model(GxContext *g, const GxConfig *c, const GxFamily *family, void *config, char folder[GX_PATH])
{
    char path[GX_PATH] = "";
    GxError *err = &g->error;
    void *set = malloc(family->config_size);
    if (!set) GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    else memcpy(set, config, family->config_size);
    gx_agree_on_path(g, folder);
    if (folder[0] && !gx_failed(g)) gx_model_config_path(path, folder, err);
    if (folder[0] && !gx_failed(g) && g->rank == 0) {
        family->read_config(config, path, &g->log, err);
        gx_source_folder_warn(folder, &g->log);
    }
    gx_agree_on_fields(g, family->fields, family->n_fields, config);
    for (int i = 0; i < family->n_fields && folder[0] && !gx_failed(g); i++)
        gx__agree_check_set(c, &family->fields[i], set, config, path, err);
    free(set);
    return gx_status(g);
}
#endif
