// model_labels.h: reads a model's labels from the config.json of a Hugging Face folder.
//
//     GxModelLabels m;
//     GX_TRY(gx_labels_read(&m, "bert-base-uncased", err));
//     if (m.is_classifier) …                                      // its head continues with m.labels, in their order
//     gx_model_labels_close(&m);
//
// They are written by each family (run/family_json.h).
#ifndef GX_MODEL_LABELS_H
#define GX_MODEL_LABELS_H
#include "../base/fields.h"
#include "../io/json.h"
#include "labels.h"
#include "../io/model_folder.h"
#include "../io/safetensors.h"
GX_BEGIN

typedef struct {
    GxLabels labels; // of id2label, in the order of their numbers; where there is none: LABEL_0, LABEL_1, …, so many as
                     // num_labels says, or two
    int is_said;     // config.json has id2label or num_labels
    // "regression", "single_label_classification", "multi_label_classification"; "": null or absent, which in
    // transformers means the first if there is one label, the second if labels are integers, otherwise the third
    char problem_type[GX_FIELD_TEXT];
    // architectures has ...ForSequenceClassification, ...ForTokenClassification: the folder has the weights of such a
    // head. Of an adapter with a head both are set, unless its task_type says which it is
    int is_classifier, is_token_classifier;
} GxModelLabels;

// Refused by name: numbers in id2label that are not 0 to n - 1, empty or duplicate names, a name with another number in
// label2id, a num_labels that is not their number, another problem_type.
GxStatus gx_labels_read(GxModelLabels *m, const char *folder, GxError *err);
// The same for the model in `folder` with the adapter in `adapter` ("": none). If the adapter contains a head for
// labels, whole or as factors, as saved by the package peft, there are as many labels as the head has outputs, with the
// names of the adapter's own config.json or of the model's, if that has as many, otherwise LABEL_0, LABEL_1, …
GxStatus gx_labels_read_adapted(GxModelLabels *m, const char *folder, const char *adapter, GxError *err);
void gx_model_labels_close(GxModelLabels *m); // also after an error

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LABELS_IMPLEMENTED)
#define GX_MODEL_LABELS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The names in id2label by their numbers, which are its keys: name[n].
static GxStatus gx__model_labels_names(const GxJson *id2label, const char **name, int n, const char *path, GxError *err)
{
    char cut[GX_TEXT_VALUE];
    for (GxJsonMember m = GX_ZERO; gx_json_next(id2label, &m);) {
        char *end;
        const long i = strtol(m.key, &end, 10);
        const int is_number = m.key[0] >= '0' && m.key[0] <= '9' && !*end;
        if (!is_number || i >= n || name[i])
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: id2label has the number \"%s\"; expected each number from 0 to %d once", path,
                           gx_text_cut(m.key, cut, sizeof cut), n - 1);
        if (gx_json_type(m.value) != GX_JSON_STRING)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: label %ld of id2label is %s; expected a string", path, i,
                           gx_json_type_name(m.value));
        name[i] = gx_json_string(m.value);
    }
    return GX_OK;
}

// label2id, if present, must give each name the same number as id2label. Names that are not in id2label are ignored:
// they are often forgotten when labels are renamed, and are not used here.
static GxStatus gx__model_labels_compare(const GxJson *json, const char *const *name, int n, const char *path,
                                         GxError *err)
{
    char cut[GX_TEXT_VALUE];
    for (GxJsonMember m = GX_ZERO; gx_json_next(gx_json_get(json, "label2id"), &m);)
        for (int i = 0; i < n && gx_json_type(m.value) == GX_JSON_INT; i++)
            if (!strcmp(m.key, name[i]) && gx_json_int(m.value) != i)
                return GX_FAIL(err, GX_ERR_FORMAT,
                               "%s: label2id gives \"%s\" the number %ld, but id2label gives it %d; make them the same",
                               path, gx_text_cut(m.key, cut, sizeof cut), (long)gx_json_int(m.value), i);
    return GX_OK;
}

// Without id2label: as many as num_labels says, or two.
static GxStatus gx__model_labels_numbered(GxModelLabels *m, int64_t n, GxLabelKind kind, const char *path, GxError *err)
{
    char(*text)[32] = (char(*)[32])calloc((size_t)n, sizeof *text);
    const char **name = (const char **)calloc((size_t)n, sizeof *name);
    GxStatus status = GX_OK;
    if (!text || !name) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld labels", (long)n);
    for (int64_t i = 0; i < n && status == GX_OK; i++) {
        snprintf(text[i], sizeof text[i], "LABEL_%d", (int)i);
        name[i] = text[i];
    }
    if (status == GX_OK) status = gx_labels_set(&m->labels, name, (int)n, kind, path, err);
    free(name);
    free(text);
    return status;
}

static GxStatus gx__model_labels_set(GxModelLabels *m, const GxJson *json, const GxJson *id2label, const char *path,
                                     GxError *err)
{
    const GxLabelKind kind = strcmp(m->problem_type, "multi_label_classification") ? GX_LABEL_CLASS : GX_LABEL_SEVERAL;
    int64_t n = id2label ? gx_json_size(id2label) : 2, number = n;
    GX_TRY(gx_json_get_int(json, "num_labels", 0, &number, path, err));
    if (!id2label) n = number;
    if (n < 1 || n > GX_LABELS_MOST)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s %ld labels; 1 to %d are possible", path,
                       id2label ? "id2label has" : "num_labels says", (long)n, GX_LABELS_MOST);
    if (number != n)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: num_labels is %ld, but the number of labels in id2label is %ld; make them the same", path,
                       (long)number, (long)n);
    if (!id2label) return gx__model_labels_numbered(m, n, kind, path, err);
    const char **name = (const char **)calloc((size_t)n, sizeof *name);
    if (!name) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld labels", (long)n);
    GxStatus status = gx__model_labels_names(id2label, name, (int)n, path, err);
    if (status == GX_OK) status = gx_labels_set(&m->labels, name, (int)n, kind, path, err);
    if (status == GX_OK) status = gx__model_labels_compare(json, name, (int)n, path, err);
    free(name);
    return status;
}

static GxStatus gx__model_labels_problem(GxModelLabels *m, const GxJson *json, const char *path, GxError *err)
{
    static const char *const problems[] = {"regression", "single_label_classification", "multi_label_classification"};
    const char *problem = "";
    char cut[GX_TEXT_VALUE];
    GX_TRY(gx_json_get_string(json, "problem_type", 0, &problem, path, err));
    snprintf(m->problem_type, sizeof m->problem_type, "%.60s", problem);
    if (!gx_json_string(gx_json_get(json, "problem_type"))[0]) return GX_OK;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (!strcmp(problem, problems[i])) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: problem_type is \"%s\"; expected %s, %s or %s", path,
                   gx_text_cut(problem, cut, sizeof cut), problems[0], problems[1], problems[2]);
}

static GxStatus gx__model_labels_take(GxModelLabels *m, const GxJson *json, const char *path, GxError *err)
{
    static const char *const endings[] = {"ForSequenceClassification", "ForTokenClassification"};
    int *const is_of[] = {&m->is_classifier, &m->is_token_classifier};
    GxJson *id2label = NULL, *label2id = NULL; // label2id is only compared with id2label
    const GxJson *list = gx_json_get(json, "architectures");
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const char *name = gx_json_string(gx_json_at(list, i));
        for (int k = 0; k < 2; k++) *is_of[k] |= gx_text_stem(name, endings[k]) > 0;
    }
    GX_TRY(gx__model_labels_problem(m, json, path, err));
    GX_TRY(gx_json_get_object(json, "id2label", 0, &id2label, path, err));
    GX_TRY(gx_json_get_object(json, "label2id", 0, &label2id, path, err));
    m->is_said = id2label != NULL || gx_json_type(gx_json_get(json, "num_labels")) > GX_JSON_NULL;
    return gx__model_labels_set(m, json, id2label, path, err);
}

GxStatus gx_labels_read(GxModelLabels *m, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    memset(m, 0, sizeof *m);
    GX_TRY(gx_model_config_path(path, folder, err));
    GX_TRY(gx_json_read_object(&json, path, 1 << 20, 0, err));
    const GxStatus status = gx__model_labels_take(m, json, path, err);
    gx_json_free(json);
    return status;
}

// Sets what the adapter's head is for, by the task_type of its adapter_config.json.
static void gx__model_labels_set_kind(GxModelLabels *m, const char *adapter)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GxError ignored = GX_ZERO; // whoever opens the adapter reports what is wrong with the file
    m->is_classifier = m->is_token_classifier = 1;
    if (gx_path_join(path, adapter, "adapter_config.json", &ignored) != GX_OK) return;
    if (gx_json_read_object(&json, path, 1 << 20, 0, &ignored) != GX_OK) return;
    const char *type = gx_json_string(gx_json_get(json, "task_type"));
    if (!strcmp(type, "SEQ_CLS")) m->is_token_classifier = 0;
    if (!strcmp(type, "TOKEN_CLS")) m->is_classifier = 0;
    gx_json_free(json);
}

// The outputs of the head for labels among the adapter's tensors; 0: there is none.
static GxStatus gx__model_labels_outputs(const char *adapter, int64_t *outputs, GxError *err)
{
    static const char *const names[] = {GX_PEFT_PREFIX "classifier.weight", GX_PEFT_PREFIX "score.weight",
                                        GX_PEFT_PREFIX "classifier.lora_B.weight",
                                        GX_PEFT_PREFIX "score.lora_B.weight"};
    GxSafetensors s;
    char path[GX_PATH];
    *outputs = 0;
    GX_TRY(gx_path_join(path, adapter, GX_ADAPTER_FILE, err));
    GX_TRY(gx_safetensors_open(&s, path, err));
    for (size_t i = 0; i < sizeof names / sizeof *names && !*outputs; i++) {
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, names[i]); // each of these has one row per label
        if (e && e->ndim == 2) *outputs = e->shape[0];
    }
    gx_safetensors_close(&s);
    if (*outputs <= GX_LABELS_MOST) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: its head has %ld outputs; 1 to %d labels are possible", path,
                   (long)*outputs, GX_LABELS_MOST);
}

GxStatus gx_labels_read_adapted(GxModelLabels *m, const char *folder, const char *adapter, GxError *err)
{
    char path[GX_PATH];
    int64_t outputs = 0;
    memset(m, 0, sizeof *m);
    if (adapter[0]) GX_TRY(gx__model_labels_outputs(adapter, &outputs, err));
    if (!outputs) return gx_labels_read(m, folder, err);
    GX_TRY(gx_model_config_path(path, adapter, err));
    const char *const from[] = {gx_path_is_file(path) ? adapter : "", folder};
    for (int i = 0; i < 2; i++) {
        if (!from[i][0]) continue;
        GX_TRY(gx_labels_read(m, from[i], err));
        gx__model_labels_set_kind(m, adapter);
        if (m->is_said && m->labels.n == outputs) return GX_OK;
        gx_model_labels_close(m);
    }
    memset(m, 0, sizeof *m);
    gx__model_labels_set_kind(m, adapter);
    return gx__model_labels_numbered(m, outputs, GX_LABEL_CLASS, adapter, err);
}

void gx_model_labels_close(GxModelLabels *m) { gx_labels_close(&m->labels); }
#endif
