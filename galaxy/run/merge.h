// merge.h: merges an adapter into its base model, W' = W + s * B A, and writes a folder with a plain model.
//
//     GX_TRY(gx_merge_adapter(g, "out/checkpoint-500", "", temporary, GX_F32, 1, 0, &said)); // an adapter's folder
//
// It also does the reverse, W = W' - s * B A, from a folder into which the adapter was merged. In fp32 this restores W
// up to rounding: twice that of W', and twice that of the sum of r products. What was rounded to a narrower type, at
// either time, stays rounded; a tensor that was trained whole cannot be restored.
//
// An adapter that was trained on a quantized base (QLoRA) has been fitted to the quantized matrices. With `dequantize`
// it is merged into these: the base is quantized as in the run, and each matrix is written as Q(W) + s * B A, where
// Q(W) are the dequantized values that products used, in the type of the run's --precision. In memory the base stays
// quantized; it is dequantized as it is written. Without `dequantize` the merged model differs from the trained one,
// and there is a warning.
//
// The folder gets the adapter's tokenizer, if it has one. If the adapter has an embedding of more tokens than the base
// (--add_tokens; peft with a resized vocabulary), so has the merged model.
//
// If LoRA is on an embedding to which the head is tied, or on that head, the folder has both matrices and says
// tie_word_embeddings false. Runs on one rank. The folder is like a checkpoint's, without the files for resuming. The
// adapter's tensors decide which head the model has: labels, if the adapter has their matrix or factors of it;
// GX_HEAD_VECTORS, for a BERT whose names are those without a head; otherwise tokens.
#ifndef GX_MERGE_H
#define GX_MERGE_H
#include "inference.h"
GX_BEGIN

typedef struct { // for messages
    int matrices;
    int64_t parameters;
    int quantize; // 1 + GxQuantKind of the base that it was merged into; 0: not quantized
    char base[GX_PATH];
} GxMergeSaid;

// Writes to `folder`, which must exist and be empty. base: the model's folder; "": the one that the adapter names.
// dtype: of the weights: F32, BF16, F16. sign -1: base is a merged model, and the adapter is subtracted from it.
// dequantize 1: merges into the base as it was quantized in the adapter's run, according to the folder's
// training_args.json or otherwise the base's folder, if bitsandbytes wrote it; GX_ERR_ARGUMENT if it was not quantized,
// or sign is -1.
GxStatus gx_merge_adapter(GxContext *g, const char *adapter, const char *base, const char *folder, GxDtype dtype,
                          int sign, int dequantize, GxMergeSaid *said);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MERGE_IMPLEMENTED)
#define GX_MERGE_IMPLEMENTED
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../text/chat_find.h"
#include "../text/chat_save.h"
#include "../data/model_labels.h"
#include "../text/sentence_modules.h"
#include "adapter_kinds.h"
#include "bart_family.h"
#include "gpt2_family.h"
#include "t5_family.h"
#include "bert_family.h"
#include "llama_family.h"

// ---- what it is an adapter of --------------------------------------------------------------------------------------

typedef struct {
    GxPeftConfig config;
    char base[GX_PATH];
    const GxFamily *family;
    GxHeadRequest head;
    GxModelLabels labels; // for a head of labels; `head` points to its names
    int quantize;         // how the base is kept: 1 + GxQuantKind; 0: not quantized
    GxDtype products;     // the type of the products with it in training
    const GxModel *m;     // while it is written
} gx__Merge;

// The first tensor of the adapter whose module name begins with this; NULL: there is none.
static const GxSafetensorsEntry *gx__merge_find(const GxSafetensors *s, const char *module)
{
    for (int i = 0; i < s->n; i++)
        if (!strncmp(s->entry[i].name, GX_PEFT_PREFIX, strlen(GX_PEFT_PREFIX)) &&
            !strncmp(s->entry[i].name + strlen(GX_PEFT_PREFIX), module, strlen(module)))
            return &s->entry[i];
    return NULL;
}

// Reads the names of the labels from the adapter's folder or, if it has none, from the base's.
static GxStatus gx__merge_read_labels(gx__Merge *m, const char *adapter, int64_t outputs, int is_of_tokens,
                                      GxError *err)
{
    static const char *const problems[] = {"single_label_classification", "regression", "multi_label_classification"};
    char path[GX_PATH];
    GX_TRY(gx_model_config_path(path, adapter, err));
    GX_TRY(gx_labels_read(&m->labels, gx_path_is_file(path) ? adapter : m->base, err));
    const int is_named = m->labels.is_said && m->labels.labels.n == outputs;
    m->head.kind = is_of_tokens ? GX_HEAD_TOKEN_LABELS : GX_HEAD_LABELS, m->head.labels = outputs;
    m->head.label_name = is_named ? m->labels.labels.name : NULL;
    if (is_of_tokens) return GX_OK;
    m->head.loss = outputs == 1 ? GX_SQUARED_ERROR : GX_CROSS_ENTROPY;
    for (int i = 0; i < 3; i++)
        if (!strcmp(m->labels.problem_type, problems[i])) m->head.loss = (GxLossKind)i;
    return GX_OK;
}

static GxStatus gx__merge_choose_head(gx__Merge *m, const char *adapter, const GxSafetensors *s,
                                      const char *architecture, GxError *err)
{
    const int is_bert = m->family == &gx_bert;
    const GxSafetensorsEntry *whole = gx__merge_find(s, is_bert ? "classifier.weight" : "score.weight"),
                             *factor = gx__merge_find(s, is_bert ? "classifier.lora_B." : "score.lora_B."),
                             *labels = whole ? whole : factor; // either has one row per label
    m->head.kind = is_bert ? GX_HEAD_MASKED : GX_HEAD_CAUSAL;
    const int is_of_tokens = !strcmp(m->config.task_type, "TOKEN_CLS") ||
                             (!m->config.task_type[0] && gx_text_stem(architecture, "ForTokenClassification") > 0);
    if (labels) return gx__merge_read_labels(m, adapter, labels->shape[0], is_of_tokens, err);
    if (!is_bert) return GX_OK;
    if (!strcmp(m->config.task_type, "FEATURE_EXTRACTION") ||
        (!gx__merge_find(s, "bert.") && !gx__merge_find(s, "cls.") && !gx__merge_find(s, "roberta.") &&
         !gx__merge_find(s, "lm_head.") && !gx__merge_find(s, "distilbert.") && !gx__merge_find(s, "vocab_")))
        m->head.kind = GX_HEAD_VECTORS;
    else m->head.with_pairs = !strcmp(architecture, "BertForPreTraining") || gx__merge_find(s, "cls.seq_relationship.");
    return GX_OK;
}

static GxStatus gx__merge_choose(GxContext *g, gx__Merge *m, const char *adapter, const char *base)
{
    const GxLogger log = g->log;
    GxError *err = &g->error;
    GxJson *json;
    GxSafetensors s;
    GxAdapter said;
    char path[GX_PATH];
    GX_TRY(gx_output_check_adapter(adapter, err));
    g->log = gx_silent; // it is read again when the model is opened, and logged then
    gx_adapter_read_config(g, &m->config, &said, adapter);
    g->log = log;
    GX_TRY(gx_status(g));
    const GxAdapterKind *kind = gx_adapter_kind(&said);
    if (kind->unmerged)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s holds %s (%s), %s; use the adapter with --adapter", adapter,
                       kind->contents, kind->type, kind->unmerged);
    snprintf(m->base, sizeof m->base, "%s", base[0] ? base : m->config.base);
    if (!m->base[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s does not say which model it is an adapter of; name that model with --model", adapter);
    GX_TRY(gx_output_check_model(m->base, err));
    GX_TRY(gx_adapter_refuse_as_model(m->base, err));
    GX_TRY(gx_path_join(path, adapter, GX_ADAPTER_FILE, err));
    GX_TRY(gx_safetensors_open(&s, path, err));
    GxStatus status = gx_path_join(path, m->base, "config.json", err);
    if (status == GX_OK) status = gx_json_read(&json, path, 1 << 20, err);
    if (status == GX_OK) {
        const char *architecture = gx_json_string(gx_json_at(gx_json_get(json, "architectures"), 0));
        const char *type = gx_json_string(gx_json_get(json, "model_type"));
        m->family = gx_text_stem(type, "bert") >= 0 || strstr(type, "roberta") ? &gx_bert
                    : !strcmp(type, "bart") || !strcmp(type, "mbart")          ? &gx_bart
                    : !strcmp(type, "t5") || !strcmp(type, "mt5")              ? &gx_t5
                    : !strcmp(type, "gpt2")                                    ? &gx_gpt2
                                                                               : &gx_llama;
        status = gx__merge_choose_head(m, adapter, &s, architecture, err);
        gx_json_free(json);
    }
    gx_safetensors_close(&s);
    return status;
}

// ---- a base that was quantized -------------------------------------------------------------------------------------

// How bitsandbytes quantized the folder, as its first quantized matrix says; matrices of another kind are refused when
// they are loaded. *products: the type that its values had before, to which bitsandbytes rounds what it dequantizes.
static GxStatus gx__merge_base_said(const char *base, int *quantize, GxDtype *products, GxError *err)
{
    GxSafetensors s;
    GxBnbMatrix m = GX_ZERO;
    *quantize = 0;
    GX_TRY(gx_safetensors_open(&s, base, err));
    for (int i = 0; i < s.n && !m.is_quantized && !gx_error_code(err); i++)
        if (!gx_bnb_is_part(&s, s.entry[i].name)) gx_bnb_find(&s, s.entry[i].name, &m, err);
    gx_safetensors_close(&s);
    if (m.is_quantized) *quantize = 1 + (int)m.kind, *products = m.dtype;
    return gx_error_code(err);
}

static GxStatus gx__merge_check_bits(gx__Merge *m, const char *adapter, int sign, int dequantize, const GxLogger *log,
                                     GxError *err)
{
    int in_base = 0, in_run = 0;
    GxDtype of_base = GX_F32, of_run = GX_F32;
    GX_TRY(gx__merge_base_said(m->base, &in_base, &of_base, err));
    const int is_said = gx_adapter_run_said(adapter, &in_run, &of_run);
    if (sign < 0 && dequantize)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--unmerge takes the adapter out of a model that is not quantized, whatever it was merged into; "
                       "leave --dequantize out");
    if (sign < 0 && in_base)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is quantized by bitsandbytes (%s), but --unmerge needs a folder that ./merge_adapter wrote",
                       m->base, gx_quantize_name(in_base));
    if (!dequantize && in_base)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is quantized by bitsandbytes (%s); say --dequantize to merge into the numbers that it "
                       "stands for, or name the model in fp32, bf16 or fp16 with --model",
                       m->base, gx_quantize_name(in_base));
    if (!dequantize && in_run && sign > 0)
        gx_log(log, GX_LOG_WARNING,
               "the merged model differs from the one that was trained: the adapter %s was trained on %s in %s, but is "
               "merged into the weights from before that rounding; --dequantize merges it into those that it was "
               "trained on",
               adapter, m->base, gx_quantize_name(in_run));
    if (!dequantize) return GX_OK;
    m->quantize = is_said ? in_run : in_base, m->products = is_said ? of_run : of_base;
    if (m->quantize) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--dequantize merges into a model as it was quantized in training, but %s; leave it out%s",
                   is_said
                       ? "the adapter's training_args.json says that it was not quantized"
                       : "neither the adapter's folder (training_args.json) nor the model's says how it was quantized",
                   is_said ? "" : ", or name the bitsandbytes folder that it was trained on with --model");
}

// Rounds the rows as the run's products did, and adds the adapter.
static void gx__merge_change(GxContext *g, const void *merge, int row, int64_t first, int64_t rows, float *w)
{
    const gx__Merge *m = (const gx__Merge *)merge;
    const int64_t n = rows * m->m->table.row[row].global_shape[1];
    if (m->products != GX_F32) {
        const GxArenaMark mark = gx_arena_mark(g->arena);
        void *narrow = gx_scratch(g, GX_MEM_WORKSPACE, gx_dtype_size(m->products) * n);
        gx_convert(g, narrow, m->products, w, GX_F32, n);
        gx_convert(g, w, GX_F32, narrow, m->products, n);
        gx_arena_release(g->arena, mark);
    }
    gx_lora_add(g, m->m, row, first, rows, w);
}

// ---- the folder ----------------------------------------------------------------------------------------------------

// Copied byte for byte: the tokenizer (source_folder.h has the base's other files).
static const char *const gx__merge_tokenizer[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.txt", NULL};
static GxStatus gx__merge_copy(const char *const *files, const char *from, const char *to, GxError *err)
{
    char path[GX_PATH], *text = NULL;
    int64_t bytes;
    for (int i = 0; files[i]; i++) {
        GX_TRY(gx_path_join(path, from, files[i], err));
        if (!strcmp(files[i], "chat_template.jinja")) GX_TRY(gx_tokenizer_template_path(path, from, err));
        if (!gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(path, 256 << 20, &text, &bytes, err));
        GxStatus status = gx_path_join(path, to, files[i], err);
        if (status == GX_OK) status = gx_file_write(path, text, bytes, err);
        free(text);
        GX_TRY(status);
    }
    return GX_OK;
}

// An adapter that has a tokenizer was trained with that one, which may have more tokens than the base's. The base's
// added_tokens.json, an older list of tokens, does not belong to it.
static GxStatus gx__merge_copy_tokenizer(const char *adapter, const char *base, const char *folder, GxError *err)
{
    static const char *const older[] = {"added_tokens.json", NULL};
    char path[GX_PATH];
    const int is_adapters = gx_folder_has(adapter, "tokenizer.json") || gx_folder_has(adapter, "vocab.txt");
    GX_TRY(gx__merge_copy(gx__merge_tokenizer, is_adapters ? adapter : base, folder, err));
    if (!is_adapters) return GX_OK;
    GX_TRY(gx_path_join(path, folder, older[0], err));
    if (unlink(path) != 0 && errno != ENOENT)
        return GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    return gx__merge_copy(older, adapter, folder, err);
}

// The folder of an adapter that was trained on conversations has their format, and the tokens that end a text.
static GxStatus gx__merge_copy_chat(const char *adapter, const char *folder, GxError *err)
{
    static const char *const files[] = {"generation_config.json", NULL};
    char path[GX_PATH], *jinja;
    int64_t bytes;
    GX_TRY(gx__merge_copy(files, adapter, folder, err));
    GX_TRY(gx_path_join(path, adapter, "chat_template.jinja", err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_file_read(path, GX_CHAT_TEMPLATE_CAP, &jinja, &bytes, err));
    const GxStatus status = gx_chat_save_jinja(jinja, folder, err);
    free(jinja);
    return status;
}

// For an adapter of an embedding model: what sentence-transformers reads, with a Dense module's weights.
static GxStatus gx__merge_write_modules(const GxModel *m, const char *adapter, const char *folder, GxError *err)
{
    GxSentenceModules modules;
    GX_TRY(gx_sentence_modules_read(&modules, adapter, 0, err));
    const GxStatus status =
        modules.has_modules ? gx_sentence_modules_write(&modules, gx_model_width(m), modules.most, folder, err) : GX_OK;
    gx_sentence_modules_close(&modules);
    return status;
}

// The base's config.json says that the head is tied, which no longer holds.
static GxStatus gx__merge_untie(const GxModel *m, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    int copies = 0;
    for (int i = 0; i < m->table.n; i++) copies += m->table.row[i].copies != 0;
    if (!copies) return GX_OK;
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(gx_json_read(&json, path, 1 << 20, err));
    GxStatus status = gx_json_set(json, "tie_word_embeddings", gx_json_new_bool(0), err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__merge_write(GxContext *g, const GxInference *s, gx__Merge *m, const char *adapter, const char *base,
                                const char *folder, GxDtype dtype, int sign)
{
    const GxTensorPart part = {"", GX_VALUES_WEIGHTS, GX_PART_WHOLE, 0};
    const GxTensorSaving how = {&part, 1, NULL, 0, dtype, (int64_t)5e9, gx__merge_change, m};
    GxSourceFolder source;
    GxError *err = &g->error;
    char path[GX_PATH];
    m->m = &s->model;
    GX_TRY(gx_source_folder_open(&source, base, err));
    gx_json_remove(source.config, "quantization_config"); // the weights are written dequantized
    GxStatus status = gx_checkpoint_write_config(&s->model, &source, dtype, folder, err);
    gx_source_folder_close(&source);
    GX_TRY(status);
    GX_TRY(gx__merge_untie(&s->model, folder, err));
    GX_TRY(gx__merge_copy_tokenizer(sign > 0 ? adapter : base, base, folder, err));
    if (sign > 0) GX_TRY(gx__merge_copy_chat(adapter, folder, err));
    if (s->head.kind == GX_HEAD_VECTORS) GX_TRY(gx__merge_write_modules(&s->model, adapter, folder, err));
    GX_TRY(gx_path_join(path, folder, "model.safetensors", err));
    gx_tensor_file_save(g, path, &s->model.store, &how, err);
    return gx_error_code(err);
}

// ---- the other way -------------------------------------------------------------------------------------------------

// Warns that what was rounded when the adapter was merged is lost.
static void gx__unmerge_warn(const GxSafetensors *s, const char *folder, const GxLogger *log)
{
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].dtype != GX_F32) {
            gx_log(log, GX_LOG_WARNING,
                   "the weights of %s are in %s, so the rounding when the adapter was merged cannot be undone", folder,
                   s->entry[i].dtype_name);
            return;
        }
}

// Refuses an adapter with tensors that were trained whole, whose earlier values no file has. Warns of rounded weights.
static GxStatus gx__unmerge_check(GxContext *g, const GxInference *s, const char *adapter, const char *merged)
{
    const GxTable *t = &s->model.table;
    GxSafetensors file;
    for (int i = 0; i < t->n; i++)
        if (t->row[i].is_adapter && !t->row[i].is_added && !t->row[i].has_alias)
            return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                           "the adapter %s has %s, which was trained whole; its earlier values are in no file, so it "
                           "cannot be taken out of %s",
                           adapter, t->row[i].name, merged);
    GX_TRY(gx_safetensors_open(&file, merged, &g->error));
    gx__unmerge_warn(&file, merged, &g->log);
    gx_safetensors_close(&file);
    return GX_OK;
}

// Refuses the adapter's own base: nothing was merged into it.
static GxStatus gx__unmerge_check_base(GxContext *g, const GxInference *s, const char *adapter, const char *merged)
{
    GxTrainState then;
    char path[GX_PATH];
    memset(&then, 0, sizeof then);
    GX_TRY(gx_path_join(path, adapter, "trainer_state.json", &g->error));
    if (!gx_path_is_file(path)) return GX_OK; // peft's adapters have no such file
    GX_TRY(gx_train_state_read(path, &then, &g->error));
    if (!then.base_hash.all || then.base_hash.all != s->base_hash.all) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "%s is the model that the adapter %s was trained on, not one into which it was merged; name a "
                   "folder that ./merge_adapter wrote",
                   merged, adapter);
}

static GxStatus gx__merge_load(GxContext *g, GxInference *s, const char *adapter, const char *base, int sign)
{
    const GxLogger log = g->log;
    GxBatch batch = GX_ZERO; // one token, for the sizes; it is never computed
    batch.T = batch.B = 1, batch.runs = gx_runs_one(1, 0);
    if (sign < 0) GX_TRY(gx__unmerge_check(g, s, adapter, base));
    if (sign < 0) g->log = gx_silent; // no warning that the weights are not those that the adapter was trained on
    gx_inference_load(g, s, adapter, &batch);
    g->log = log;
    GX_TRY(gx_status(g));
    return sign < 0 ? gx__unmerge_check_base(g, s, adapter, base) : GX_OK;
}

static GxStatus gx__merge_run(GxContext *g, GxInference *s, gx__Merge *m, const char *adapter, const char *base,
                              const char *folder, GxDtype dtype, int sign, int dequantize, GxMergeSaid *said)
{
    GX_TRY(gx__merge_choose(g, m, adapter, base));
    GX_TRY(gx__merge_check_bits(m, adapter, sign, dequantize, &g->log, &g->error));
    GX_TRY(gx_inference_open_merging(g, s, m->family, adapter, m->base, &m->head, m->quantize));
    GX_TRY(gx__merge_load(g, s, adapter, m->base, sign));
    gx_lora_merge(g, &s->model, sign);
    for (int i = 0; i < s->model.table.n; i++) // of those that are one in files the first
        said->matrices += s->model.table.row[i].has_lora && !s->model.table.row[i].stack_first;
    for (int i = 0; i < s->model.table.n; i++)
        if (!s->model.table.row[i].is_added && !s->model.table.row[i].has_alias)
            said->parameters += gx_tensor_global_count(&s->model.table.row[i]);
    snprintf(said->base, sizeof said->base, "%s", s->adapter.base);
    said->quantize = m->quantize;
    GX_TRY(gx_status(g));
    return gx__merge_write(g, s, m, adapter, s->adapter.base, folder, dtype, sign);
}

GxStatus gx_merge_adapter(GxContext *g, const char *adapter, const char *base, const char *folder, GxDtype dtype,
                          int sign, int dequantize, GxMergeSaid *said)
{
    memset(said, 0, sizeof *said);
    GxInference *s = (GxInference *)calloc(1, sizeof *s);
    gx__Merge *m = (gx__Merge *)calloc(1, sizeof *m);
    if (!s || !m) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a model");
    else {
        gx__merge_run(g, s, m, adapter, base, folder, dtype, sign, dequantize, said);
        gx_inference_close(s);
        gx_model_labels_close(&m->labels);
    }
    free(s), free(m);
    return gx_status(g);
}
#endif
