// task_choice.h: chooses the task that a program runs. A family has a list of tasks (GxFamily.tasks). A program has one
// of them as its default, and --task, or "task" in the file of --config, chooses another. Each task adds options of its
// own, so it is chosen before the options are read. A program whose task is not in its family's list has no --task.
#ifndef GX_TASK_CHOICE_H
#define GX_TASK_CHOICE_H
#include "../io/config.h"
#include "../task/task.h"
GX_BEGIN

typedef struct {
    char name[GX_FIELD_TEXT];             // the option's value
    char names[GX_FIELD_TEXT], help[300]; // "masked_lm|classification"; the help text of --task
    GxField field;
} GxTaskChoice;

// *task: before, the program's default; after, the task that is asked for.
GxStatus gx_task_choose(GxTaskChoice *c, const GxFamily *family, const GxTask **task, int argc, char **argv,
                        GxError *err);
// Adds --task and the task's options to the config; both are used as long as the config is, so `choice` must live as
// long. Options of the other tasks are refused with the name of their task.
GxStatus gx_task_add_options(GxTaskChoice *choice, GxConfig *c, const GxFamily *family, const GxTask *task, void *self,
                             GxError *err);
// The task of this name in the family's list; NULL: there is none.
const GxTask *gx_task_find(const GxFamily *family, const char *name);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TASK_CHOICE_IMPLEMENTED)
#define GX_TASK_CHOICE_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../io/config_args.h"
#include "../io/json.h"
#include "../io/typing.h"

const GxTask *gx_task_find(const GxFamily *family, const char *name)
{
    for (const GxTask *const *t = family->tasks; t && *t; t++)
        if (!strcmp((*t)->name, name)) return *t;
    return NULL;
}

static void gx__task_choice_names(const GxFamily *family, const char *between, char *text, size_t size)
{
    size_t length = 0;
    text[0] = 0;
    for (const GxTask *const *t = family->tasks; t && *t && length < size; t++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", length ? between : "", (*t)->name);
}

static GxStatus gx__task_choice_unknown(const GxFamily *family, const char *where, const char *name, GxError *err)
{
    char names[200], cut[GX_TEXT_VALUE];
    const char *nearest = NULL;
    int least = 0;
    for (const GxTask *const *t = family->tasks; *t; t++) {
        const int distance = gx_typing_distance(name, (*t)->name);
        if (distance < 0 || (nearest && distance >= least)) continue;
        least = distance;
        nearest = (*t)->name;
    }
    gx__task_choice_names(family, ", ", names, sizeof names);
    gx_text_cut(name, cut, sizeof cut);
    if (nearest)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is \"%s\"; did you mean %s? The tasks of train_%s are: %s", where, cut,
                       nearest, family->name, names);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is \"%s\"; the tasks of train_%s are: %s", where, cut, family->name,
                   names);
}

// Other mistakes in the file are reported when its options are read.
static GxStatus gx__task_choice_read_file(const GxFamily *family, const GxTask **task, const char *path, GxError *err)
{
    GxJson *json = NULL;
    GxError ignored = GX_ZERO;
    char where[GX_PATH + 10];
    GxStatus status = GX_OK;
    if (gx_json_read(&json, path, 1 << 20, &ignored) != GX_OK) return GX_OK;
    const GxJson *value = gx_json_get(json, "task");
    const GxTask *found = gx_task_find(family, gx_json_string(value));
    snprintf(where, sizeof where, "%s: task", path);
    if (found) *task = found;
    else if (gx_json_type(value) == GX_JSON_STRING)
        status = gx__task_choice_unknown(family, where, gx_json_string(value), err);
    gx_json_free(json);
    return status;
}

GxStatus gx_task_choose(GxTaskChoice *c, const GxFamily *family, const GxTask **task, int argc, char **argv,
                        GxError *err)
{
    memset(c, 0, sizeof *c);
    if (!*task) return GX_FAIL(err, GX_ERR_UNSUPPORTED, "train_%s has no task yet", family->name);
    if (gx_task_find(family, (*task)->name) != *task) return GX_OK;
    const char *flag = gx_config_argument(argc, argv, "task"), *file = gx_config_argument(argc, argv, "config");
    const GxTask *usual = *task;
    if (flag && !(*task = gx_task_find(family, flag))) {
        *task = usual;
        return gx__task_choice_unknown(family, "--task", flag, err);
    }
    if (!flag && file) GX_TRY(gx__task_choice_read_file(family, task, file, err));
    gx__task_choice_names(family, "|", c->names, sizeof c->names);
    snprintf(c->help, sizeof c->help, "what it is trained for%s",
             family->tasks[1]
                 ? "; what stands here are its options, and those of another one with --task NAME --help all"
                 : "");
    c->field.name = "task", c->field.type = GX_FIELD_STRING, c->field.offset = offsetof(GxTaskChoice, name);
    c->field.default_text = usual->name, c->field.help = c->help, c->field.allowed = c->names;
    return GX_OK;
}

GxStatus gx_task_add_options(GxTaskChoice *choice, GxConfig *c, const GxFamily *family, const GxTask *task, void *self,
                             GxError *err)
{
    char other[80];
    if (choice->field.name) GX_TRY(gx_config_add(c, "task", &choice->field, 1, choice, err));
    GX_TRY(gx_config_add(c, task->name, task->options.fields, task->options.n_fields, self, err));
    for (const GxTask *const *t = choice->field.name ? family->tasks : NULL; t && *t; t++) {
        if (*t == task) continue;
        snprintf(other, sizeof other, "--task %.60s", (*t)->name);
        GX_TRY(gx_config_add_elsewhere(c, (*t)->options.fields, (*t)->options.n_fields, other, err));
    }
    return GX_OK;
}
#endif
