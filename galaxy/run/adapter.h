// adapter.h: reads and writes an adapter's folder, which has only what a tuning method adds to a model or trains of it,
// and none of the model's other weights. The format is that of the Python package peft, except for peft_types that peft
// does not know: bottleneck adapters, side networks and prompts with scales (LLaMA-Adapter v2).
//
//     adapter_config.json        the method, its hyperparameters and the path of the base model (run/peft.h)
//     adapter_model.safetensors  its tensors, named base_model.model. plus the model's name for them
#ifndef GX_ADAPTER_H
#define GX_ADAPTER_H
#include "adapter_kinds.h"
#include "../io/folder.h"
#include "../model/lora.h"
#include "../model/lora_targets.h"
#include "tensor_file.h"
GX_BEGIN

#define GX_ADAPTER_CONFIG "adapter_config.json"

// Selects the tensors of GX_ADAPTER_FILE. For a model with GX_HEAD_VECTORS their names are those of transformers' model
// without a head, as in peft.
GxTensorPart gx_adapter_part(const GxModel *m);
// 1: the folder has an adapter, but not the weights of a whole model.
int gx_path_is_adapter(const char *folder);
// Refuses an adapter's folder where that of a whole model is needed.
GxStatus gx_adapter_refuse_as_model(const char *folder, GxError *err);
// Writes adapter_config.json of a model with an adapter into `folder`. base: the folder of the base model's weights.
GxStatus gx_adapter_write_config(const GxModel *m, const char *base, const char *folder, GxError *err);
// Refuses a model whose adapter adapter_config.json could not describe. Call it before training begins.
GxStatus gx_adapter_check_names(const GxModel *m, GxError *err);
// Rank 0 reads the folder's adapter_config.json and broadcasts it; unknown keys are logged by the context's logger. The
// strings of *a point into *config.
GxStatus gx_adapter_read_config(GxContext *g, GxPeftConfig *config, GxAdapter *a, const char *folder);
// If the adapter's embedding has more tokens than the base's configuration, increases the number of tokens there.
void gx_adapter_grow(const GxPeftConfig *adapter, const GxFamily *family, void *config);
// Refuses a folder whose adapter has other hyperparameters than the model's, such as r, alpha or the reduction factor.
// m has an adapter. log: gets warnings about unknown keys.
GxStatus gx_adapter_check_config(const GxModel *m, const char *folder, const GxLogger *log, GxError *err);
// Warns of keys of rank_pattern and alpha_pattern and of exclude_modules that match no module. Like peft, this ignores
// them.
void gx_adapter_warn_unused(const GxModel *m, const GxLogger *log);
// How the base was kept by the run that trained the adapter, from the folder's training_args.json: *quantize 1 +
// GxQuantKind, or 0 if it was not quantized; and the type of the products. Returns 0 if the folder does not say; peft's
// never do.
int gx_adapter_run_said(const char *folder, int *quantize, GxDtype *products);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ADAPTER_IMPLEMENTED)
#define GX_ADAPTER_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/safetensors.h"

GxTensorPart gx_adapter_part(const GxModel *m)
{
    const GxTensorPart part = {GX_PEFT_PREFIX, GX_VALUES_WEIGHTS, GX_PART_ADAPTER, m->head.kind == GX_HEAD_VECTORS};
    return part;
}

int gx_path_is_adapter(const char *folder)
{
    return gx_folder_has(folder, GX_ADAPTER_CONFIG) && !gx_folder_has(folder, "model.safetensors") &&
           !gx_folder_has(folder, "model.safetensors.index.json");
}

// ---- which modules -------------------------------------------------------------------------------------------------

// The last `parts` components of a dotted module name: for "a.b" and 1, "b". NULL: it has fewer components.
static const char *gx__adapter_suffix(const char *module, int parts)
{
    const char *at = module + strlen(module);
    while (parts > 0 && at > module) {
        at--;
        while (at > module && at[-1] != '.') at--;
        parts--;
    }
    return parts ? NULL : at;
}

static void gx__adapter_module(const GxTensor *t, char module[GX_NAME])
{
    snprintf(module, GX_NAME, "%s", gx_tensor_file_name(t));
    char *dot = strrchr(module, '.');
    if (dot) *dot = 0;
}

// Which list of modules: the matrices with LoRA, which peft matches by whole components of their names, or the modules
// that are trained whole, which peft matches by any suffix of the name.
typedef enum { GX__ADAPTER_TARGETS = 0, GX__ADAPTER_WHOLE } gx__AdapterList;

static int gx__adapter_is_in(const GxTensor *t, gx__AdapterList list)
{
    if (list == GX__ADAPTER_TARGETS) return t->has_lora;
    // other norms follow from the method
    return t->is_adapter && !t->is_added && (t->role != GX_ROLE_NORM || t->is_named);
}

static int gx__adapter_could_be_in(const GxTensor *t, gx__AdapterList list)
{
    return !t->is_added && (list == GX__ADAPTER_WHOLE || t->ndim == 2);
}

static int gx__adapter_ends_with(const char *module, const char *suffix, gx__AdapterList list)
{
    const int64_t n = gx_text_stem(module, suffix);
    return n >= 0 && (list == GX__ADAPTER_WHOLE || n == 0 || module[n - 1] == '.');
}

// 1: every module that this suffix matches belongs in the list. 0: it also matches others. peft loads a model with
// GX_HEAD_VECTORS as transformers' model without a head, which has a pooler as well.
static int gx__adapter_is_exact(const GxModel *m, const char *suffix, gx__AdapterList list)
{
    const GxTable *t = &m->table;
    char module[GX_NAME];
    if (m->head.kind == GX_HEAD_VECTORS && gx__adapter_ends_with("pooler.dense", suffix, list)) return 0;
    for (int i = 0; i < t->n; i++) {
        if (!gx__adapter_could_be_in(&t->row[i], list) || gx__adapter_is_in(&t->row[i], list)) continue;
        gx__adapter_module(&t->row[i], module);
        if (gx__adapter_ends_with(module, suffix, list)) return 0;
    }
    return 1;
}

static int gx__adapter_is_listed(const char *list, const char *name)
{
    const size_t k = strlen(name);
    for (const char *p = list; *p; p += *p == ',') {
        const size_t n = strcspn(p, ",");
        if (n == k && !strncmp(p, name, n)) return 1;
        p += n;
    }
    return 0;
}

static GxStatus gx__adapter_add(char *list, size_t size, const char *name, GxError *err)
{
    const size_t n = strlen(list);
    if (gx__adapter_is_listed(list, name)) return GX_OK;
    if ((size_t)snprintf(list + n, size - n, "%s%s", n ? "," : "", name) < size - n) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "the names of the adapter's modules have more than %d characters in total; name fewer, or use a "
                   "shorter end that they share",
                   (int)size - 1);
}

// Writes the shortest suffixes that match these modules and no others: q_proj, or 0.self_attn.q_proj.
static GxStatus gx__adapter_names(const GxModel *m, gx__AdapterList which, char *list, size_t size, GxError *err)
{
    const GxTable *t = &m->table;
    char module[GX_NAME];
    list[0] = 0;
    for (int i = 0; i < t->n; i++) {
        if (!gx__adapter_is_in(&t->row[i], which)) continue;
        gx__adapter_module(&t->row[i], module);
        const char *suffix = NULL;
        for (int parts = 1; !suffix && gx__adapter_suffix(module, parts); parts++)
            if (gx__adapter_is_exact(m, gx__adapter_suffix(module, parts), which))
                suffix = gx__adapter_suffix(module, parts);
        GX_TRY(gx__adapter_add(list, size, suffix ? suffix : module, err));
    }
    return GX_OK;
}

GxStatus gx_adapter_check_names(const GxModel *m, GxError *err)
{
    char list[GX_PEFT_TARGETS];
    GX_TRY(gx__adapter_names(m, GX__ADAPTER_TARGETS, list, sizeof list, err));
    return gx__adapter_names(m, GX__ADAPTER_WHOLE, list, sizeof list, err);
}

// ---- adapter_config.json -------------------------------------------------------------------------------------------

// 1: a head for labels is trained whole; 0: it has LoRA factors.
static int gx__adapter_trains_head(const GxModel *m)
{
    int trains = 1;
    for (int i = 0; i < m->table.n; i++) trains &= m->table.row[i].role != GX_ROLE_HEAD || !m->table.row[i].has_lora;
    return trains;
}

static const char *gx__adapter_task_type(const GxModel *m)
{
    if (m->memory) return "SEQ_2_SEQ_LM";
    switch (m->head.kind) {
    case GX_HEAD_CAUSAL: return "CAUSAL_LM";
    // with SEQ_CLS peft would train the head whole
    case GX_HEAD_LABELS: return gx__adapter_trains_head(m) ? "SEQ_CLS" : "";
    case GX_HEAD_TOKEN_LABELS: return gx__adapter_trains_head(m) ? "TOKEN_CLS" : "";
    case GX_HEAD_VECTORS: return "FEATURE_EXTRACTION";
    default: return ""; // peft has no task type for masked language models
    }
}

GxStatus gx_adapter_write_config(const GxModel *m, const char *base, const char *folder, GxError *err)
{
    char path[GX_PATH];
    const GxAdapterKind *kind = gx_adapter_kind(&m->adapter); // a model with adapter tensors has one
    GxPeftConfig *c = (GxPeftConfig *)calloc(1, sizeof *c);
    if (!c) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    char *real = realpath(base, NULL); // an absolute path: peft may be started in another folder
    snprintf(c->type, sizeof c->type, "%s", kind->type);
    kind->write(c, &m->adapter);
    snprintf(c->task_type, sizeof c->task_type, "%s", gx__adapter_task_type(m));
    snprintf(c->base, sizeof c->base, "%s", real ? real : base);
    for (int i = 0; i < m->table.n; i++) c->fan_in_fan_out |= m->table.row[i].has_lora && m->table.row[i].is_transposed;
    free(real);
    GxStatus status = gx__adapter_names(m, GX__ADAPTER_TARGETS, c->targets, sizeof c->targets, err);
    if (status == GX_OK)
        status = gx__adapter_names(m, GX__ADAPTER_WHOLE, c->modules_to_save, sizeof c->modules_to_save, err);
    if (status == GX_OK) status = gx_path_join(path, folder, GX_ADAPTER_CONFIG, err);
    if (status == GX_OK) status = gx_peft_config_write(c, path, err);
    free(c);
    return status;
}

// The modules of token embeddings and of the heads over tokens, also those of a model without a head.
static const char *const gx__adapter_vocabulary[] = {"model.embed_tokens",
                                                     "lm_head",
                                                     "bert.embeddings.word_embeddings",
                                                     "embeddings.word_embeddings",
                                                     "cls.predictions.decoder",
                                                     "roberta.embeddings.word_embeddings",
                                                     "lm_head.decoder",
                                                     "transformer.wte"};

static int gx__adapter_saves(const GxPeftConfig *c, const char *module) // 1: modules_to_save names it
{
    const char *names = c->modules_to_save;
    GxTextItem name;
    char suffix[GX_NAME];
    while (gx_text_next(&names, &name)) {
        snprintf(suffix, sizeof suffix, "%.*s", (int)name.n, name.at);
        if (gx__adapter_ends_with(module, suffix, GX__ADAPTER_WHOLE)) return 1;
    }
    return 0;
}

// Finds a token embedding and heads that the file has whole. They are among the modules that are trained whole, even if
// adapter_config.json does not name them: peft saves them with any adapter of a model whose vocabulary was resized
// (save_embedding_layers), and with ensure_weight_tying the head of a tied embedding.
static GxStatus gx__adapter_find_vocabulary(GxPeftConfig *c, const char *folder, const GxLogger *log, GxError *err)
{
    const int most = sizeof gx__adapter_vocabulary / sizeof *gx__adapter_vocabulary;
    GxSafetensors s;
    char path[GX_PATH], name[GX_NAME];
    GX_TRY(gx_path_join(path, folder, GX_ADAPTER_FILE, err));
    if (!gx_path_is_file(path)) return GX_OK; // whoever needs it reports that it is missing
    GX_TRY(gx_safetensors_open(&s, path, err));
    for (int i = 0; i < most && !gx_error_code(err); i++) {
        snprintf(name, sizeof name, GX_PEFT_PREFIX "%s.weight", gx__adapter_vocabulary[i]);
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, name);
        if (!e || e->ndim != 2) continue;
        c->vocab = gx_max(c->vocab, e->shape[0]);
        if (gx__adapter_saves(c, gx__adapter_vocabulary[i])) continue;
        gx__adapter_add(c->modules_to_save, sizeof c->modules_to_save, gx__adapter_vocabulary[i], err);
        if (!c->ties)
            gx_log(log, GX_LOG_WARNING,
                   "%s holds all of %s, which modules_to_save in its " GX_ADAPTER_CONFIG
                   " does not name (peft saves it so if the vocabulary was resized): it is read from there, and "
                   "trained if the adapter is",
                   folder, gx__adapter_vocabulary[i]);
    }
    gx_safetensors_close(&s);
    return gx_error_code(err);
}

// If the folder has a manifest, its files are first checked against it.
static GxStatus gx__adapter_read_file(GxPeftConfig *config, const char *folder, const GxLogger *log, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, GX_MANIFEST, err));
    if (gx_path_is_file(path)) GX_TRY(gx_folder_verify(folder, 1, err));
    GX_TRY(gx_path_join(path, folder, GX_ADAPTER_CONFIG, err));
    GX_TRY(gx_peft_config_read(config, path, log, err));
    return gx__adapter_find_vocabulary(config, folder, log, err);
}

static void gx__adapter_from_config(GxAdapter *a, const GxPeftConfig *c)
{
    const GxAdapterKind *kind = gx_adapter_kind_of_config(c); // NULL if the file could not be read
    memset(a, 0, sizeof *a);
    if (kind) kind->read(a, c);
    a->is_read = 1;
}

GxStatus gx_adapter_read_config(GxContext *g, GxPeftConfig *config, GxAdapter *a, const char *folder)
{
    memset(config, 0, sizeof *config);
    gx_at(g, -1, "agree");
    if (g->rank == 0 && !gx_failed(g)) gx__adapter_read_file(config, folder, &g->log, &g->error);
    gx_broadcast(g, GX_AXIS_ALL, 0, config, sizeof *config, GX_U8); // on a failed context this tells the other ranks
    gx__adapter_from_config(a, config);
    return gx_status(g);
}

void gx_adapter_grow(const GxPeftConfig *adapter, const GxFamily *family, void *config)
{
    int64_t *vocab = family->vocab_size(config);
    *vocab = gx_max(*vocab, adapter->vocab);
}

GxStatus gx_adapter_refuse_as_model(const char *folder, GxError *err)
{
    GxError ignored = GX_ZERO; // whoever reads the configuration reports what is wrong with it
    if (!gx_path_is_adapter(folder)) return GX_OK;
    GxPeftConfig *c = (GxPeftConfig *)calloc(1, sizeof *c);
    const int is_read = c && gx__adapter_read_file(c, folder, &gx_silent, &ignored) == GX_OK;
    GX_FAIL(err, GX_ERR_ARGUMENT,
            "%s holds an adapter, not the model that it is for (%s); name that model with --model, and the adapter "
            "with --adapter",
            folder, is_read && c->base[0] ? c->base : "its " GX_ADAPTER_CONFIG " does not say which");
    free(c);
    return gx_error_code(err);
}

static GxStatus gx__adapter_check_numbers(const char *key, const char *folder, const char *said, const char *here,
                                          GxError *err)
{
    if (!strcmp(said, here ? here : "")) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s/" GX_ADAPTER_CONFIG " says the %s %.200s, but this run's adapter has %.200s",
                   folder, key, said[0] ? said : "{}", here && here[0] ? here : "{}");
}

GxStatus gx_adapter_check_config(const GxModel *m, const char *folder, const GxLogger *log, GxError *err)
{
    char said[GX_ADAPTER_TEXT] = "", here[GX_ADAPTER_TEXT];
    GxAdapter theirs;
    GxPeftConfig *c = (GxPeftConfig *)calloc(1, sizeof *c);
    if (!c) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    GxStatus status = gx__adapter_read_file(c, folder, log, err);
    gx__adapter_from_config(&theirs, c);
    gx_adapter_kind(&m->adapter)->say(&m->adapter, here);
    if (gx_adapter_kind(&theirs)) gx_adapter_kind(&theirs)->say(&theirs, said);
    if (status == GX_OK && strcmp(said, here))
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s/" GX_ADAPTER_CONFIG " says %s, but this run's adapter has %s", folder,
                         said, here);
    if (status == GX_OK)
        status = gx__adapter_check_numbers("rank_pattern", folder, c->rank_pattern, m->adapter.lora.rank_pattern, err);
    if (status == GX_OK)
        status =
            gx__adapter_check_numbers("alpha_pattern", folder, c->alpha_pattern, m->adapter.lora.alpha_pattern, err);
    free(c);
    return status;
}

static void gx__adapter_warn_numbers(const GxModel *m, const char *key, const char *numbers, const GxLogger *log)
{
    GxError ignored = GX_ZERO; // reported when the numbers were read
    GxJson *object;
    char module[GX_NAME];
    if (!numbers || gx_json_parse(&object, numbers, (int64_t)strlen(numbers), "", &ignored) != GX_OK) return;
    for (GxJsonMember one = GX_ZERO; gx_json_next(object, &one);) {
        int found = 0;
        for (int i = 0; i < m->table.n && !found; i++) {
            if (!m->table.row[i].has_lora) continue;
            gx_lora_module(m, &m->table.row[i], module);
            found = gx_module_pattern_ends(one.key, module);
        }
        if (!found)
            gx_log(log, GX_LOG_WARNING,
                   "%s: \"%.100s\" matches the end of no name of a module with LoRA, and is ignored", key, one.key);
    }
    gx_json_free(object);
}

void gx_adapter_warn_unused(const GxModel *m, const GxLogger *log)
{
    int excludes = 0;
    if (m->adapter.lora.r == 0) return;
    gx__adapter_warn_numbers(m, "rank_pattern", m->adapter.lora.rank_pattern, log);
    gx__adapter_warn_numbers(m, "alpha_pattern", m->adapter.lora.alpha_pattern, log);
    if (!m->adapter.lora.excluded || !m->adapter.lora.excluded[0]) return;
    for (int i = 0; i < m->table.n; i++)
        excludes |= !m->table.row[i].is_added && gx_lora_is_excluded(m, &m->table.row[i]);
    if (!excludes)
        gx_log(log, GX_LOG_WARNING, "exclude_modules: \"%.100s\" matches no module, so it excludes none",
               m->adapter.lora.excluded);
}

int gx_adapter_run_said(const char *folder, int *quantize, GxDtype *products)
{
    GxError ignored = GX_ZERO;
    GxJson *args;
    char path[GX_PATH];
    if (gx_path_join(path, folder, "training_args.json", &ignored) != GX_OK || !gx_path_is_file(path) ||
        gx_json_read(&args, path, 1 << 20, &ignored) != GX_OK)
        return 0;
    *quantize = gx_quantize_of(gx_json_string(gx_json_get(args, "quantize")));
    *products = strcmp(gx_json_string(gx_json_get(args, "precision")), "bf16") ? GX_F32 : GX_BF16;
    gx_json_free(args);
    return 1;
}
#endif
