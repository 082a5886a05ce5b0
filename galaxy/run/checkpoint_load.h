// checkpoint_load.h: loads weights and optimizer state from folders: a checkpoint of this library, a model that Hugging
// Face's libraries saved, or an adapter's folder together with its base's. checkpoint.h says what a checkpoint
// contains.
//
//     a run that is resumed   gx_checkpoint_load_base (of an adapter), gx_checkpoint_load_weights,
//                             gx_checkpoint_load_state
//     a run that begins       gx_checkpoint_start_from, or gx_checkpoint_start_with_adapter
//     another adapter         gx_checkpoint_open_adapter, gx_checkpoint_load_adapter
//
// All ranks call these functions, unless a comment says otherwise; only rank 0 reads (tensor_load.h).
#ifndef GX_CHECKPOINT_LOAD_H
#define GX_CHECKPOINT_LOAD_H
#include "checkpoint.h"
#include "tensor_load.h"
GX_BEGIN

// Loads the weights of a checkpoint or of a Hugging Face folder into the model's buffers, on all ranks; a checkpoint's
// fp32 masters are preferred to its narrower weights. An error names each missing, unexpected or mismatched tensor. If
// the model has an adapter, only the adapter is loaded; the base weights are not changed.
void gx_checkpoint_load_weights(GxContext *g, GxModel *m, const char *folder);

enum { GX_LOADED_NAMES = 20 };
typedef struct {
    int n;                                    // how many tensors; `text` has the first GX_LOADED_NAMES names
    char text[GX_LOADED_NAMES * 2 * GX_NAME]; // "a, b", or "a, b, … (52 of them)"; "": none
} GxLoadedNames;
typedef struct GxWeightsLoaded { // on rank 0
    GxLoadedNames missing;       // initialised, because the folder does not have them
    GxLoadedNames unexpected;    // tensors of the folder that the model does not have
    GxLoadedNames mismatched;    // initialised, because the folder's have another shape
    GxLoadedNames reinitialised; // those of a head for other labels (GxHeadRequest.is_new)
} GxWeightsLoaded;
// Loads the weights that training starts from, from model.safetensors, in the type that they have there. The folder's
// model may have other heads: heads that this model does not have are skipped, and heads that the folder does not have
// are initialised with *seed (NULL: that is an error), unless its config.json says that it has them, which is an error.
// Without is_strict every tensor that does not match is initialised (seed is required), even if a head exists in part
// and whatever config.json says; it is an error if nothing matches at all. *hash: on rank 0, for a model with an
// adapter, the hash of the base weights that were read; the same weights of the same model have the same hash.
void gx_checkpoint_start_from(GxContext *g, GxModel *m, const char *folder, int is_strict, const uint64_t *seed,
                              GxWeightsHash *hash, GxWeightsLoaded *loaded);
// Loads the weights of a base model and of an adapter's folder. A tensor that is in neither is an error. Warns if the
// adapter's folder says that it was trained on other base weights. *hash: as above.
void gx_checkpoint_start_with_adapter(GxContext *g, GxModel *m, const char *folder, const char *adapter,
                                      GxWeightsHash *hash);
typedef struct { // on rank 0
    GxSafetensors file;
    GxTensorMatch match;
    int is_open;
    GxWeightsHash *hash; // of the base weights that are read; NULL: not wanted
} GxCheckpointFile;
// Replaces the model's adapter with another one; `folder` has the base. First gx_checkpoint_open_adapter checks on rank
// 0 that method, hyperparameters and tensors match; on an error nothing is open and nothing has changed. Then
// gx_checkpoint_load_adapter, on all ranks, loads from the file that rank 0 has opened, even if the folder has changed
// since, and closes it. Rank 0 passes the folders' names, and warns if the adapter was trained on a base with another
// hash. log: gets warnings about unknown keys of adapter_config.json.
GxStatus gx_checkpoint_open_adapter(GxCheckpointFile *w, const GxModel *m, const char *folder, const char *adapter,
                                    const GxLogger *log, GxError *err);
void gx_checkpoint_load_adapter(GxContext *g, GxModel *m, GxCheckpointFile *w, const char *folder, const char *adapter,
                                GxWeightsHash hash);
void gx_checkpoint_close_file(GxCheckpointFile *w);
// Loads the base weights of a model whose adapter gx_checkpoint_load_weights loads.
void gx_checkpoint_load_base(GxContext *g, GxModel *m, const char *folder, GxWeightsHash *hash);
// Loads the optimizer's moments, when a run is resumed.
void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, const char *folder);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHECKPOINT_LOAD_IMPLEMENTED)
#define GX_CHECKPOINT_LOAD_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "adapter_match.h"

// ---- weights -------------------------------------------------------------------------------------------------------

static GxMatching gx__checkpoint_load_adapter_matching(const GxModel *m)
{
    return m->head.kind == GX_HEAD_VECTORS ? GX_MATCH_BARE_ADAPTER : GX_MATCH_ADAPTER;
}

static int gx__checkpoint_load_is_adapter(GxMatching how)
{
    return how == GX_MATCH_ADAPTER || how == GX_MATCH_BARE_ADAPTER;
}

static GxStatus gx__checkpoint_load_open_file(const char *folder, GxMatching how, GxSafetensors *file, GxError *err)
{
    char path[GX_PATH];
    if (!gx__checkpoint_load_is_adapter(how)) {
        GX_TRY(gx_adapter_refuse_as_model(folder, err));
        return gx_safetensors_open(file, folder, err);
    }
    GX_TRY(gx_path_join(path, folder, GX_ADAPTER_FILE, err));
    return gx_safetensors_open(file, path, err);
}

// For GxTensorMatch.vocab: the number of rows in the folder's config.json, if the model has more; otherwise 0.
static int64_t gx__checkpoint_load_vocab(const GxModel *m, const char *folder)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GxError ignored = GX_ZERO; // whoever reads the configuration reports what is wrong with it
    if (gx_path_join(path, folder, "config.json", &ignored) != GX_OK || gx_json_read(&json, path, 1 << 20, &ignored))
        return 0;
    const int64_t rows = gx_json_int(gx_json_get(json, "vocab_size"));
    gx_json_free(json);
    return rows > 0 && rows < gx_model_vocab(m) ? rows : 0;
}

static void gx__checkpoint_load_open_weights(GxContext *g, const GxModel *m, const char *folder, GxMatching how,
                                             GxCheckpointFile *w)
{
    memset(w, 0, sizeof *w);
    gx_at(g, -1, "load");
    if (g->rank != 0) return;
    if (how == GX_MATCH_BODY || how == GX_MATCH_BASE || how == GX_MATCH_ANY)
        w->match.vocab = gx__checkpoint_load_vocab(m, folder);
    w->is_open = !gx_failed(g) && gx__checkpoint_load_open_file(folder, how, &w->file, &g->error) == GX_OK;
    if (!w->is_open) return;
    if (gx__checkpoint_load_is_adapter(how))
        gx_adapter_match(&w->match, &w->file, &m->table, m->family, how, folder, &g->error);
    else gx_tensor_match(&w->match, &w->file, &m->table, m->family, how, folder, &g->error);
}

static void gx__checkpoint_load_read_weights(GxContext *g, const GxModel *m, const char *folder, GxCheckpointFile *w,
                                             const GxTensorPart *part, const unsigned char *missing)
{
    if (g->rank == 0 && gx_failed(g)) gx_barrier(g, GX_AXIS_ALL); // the barrier tells the other ranks
    gx_tensor_file_load(g, w->is_open ? &w->file : NULL, &m->store, part, &w->match, missing, w->hash, folder);
    gx_checkpoint_close_file(w);
}

// Opens a checkpoint's fp32 masters, on rank 0; only there do tensor names matter. 0: there are none.
static int gx__checkpoint_load_open_masters(GxContext *g, const GxModel *m, const char *folder, GxSafetensors *file)
{
    const GxTensorPart part = gx_checkpoint_masters(m);
    char path[GX_PATH], name[GX_NAME + 32];
    int first = 0;
    if (g->rank != 0 || gx_failed(g)) return 0;
    gx_path_join(path, folder, "optimizer.safetensors", &g->error);
    if (gx_failed(g) || !gx_path_is_file(path) || gx_safetensors_open(file, path, &g->error) != GX_OK) return 0;
    while (part.of == GX_PART_ADAPTER && first + 1 < m->table.n && !m->table.row[first].is_adapter) first++;
    snprintf(name, sizeof name, "%s%s", part.prefix, m->table.row[first].name);
    if (gx_safetensors_find(file, name)) return 1;
    gx_safetensors_close(file);
    return 0;
}

// Tells all ranks which rows rank 0 found no values for. *missing: free() it.
static void gx__checkpoint_load_agree_on_missing(GxContext *g, const GxModel *m, const GxCheckpointFile *w,
                                                 unsigned char **missing)
{
    const int64_t rows = m->table.n;
    *missing = (unsigned char *)calloc((size_t)rows + 1, 1);
    if (!*missing) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a list of %ld tensors", (long)rows);
    else if (g->rank == 0 && !gx_failed(g)) memcpy(*missing, w->match.missing, (size_t)rows);
    gx_broadcast(g, GX_AXIS_ALL, 0, *missing, rows, GX_U8); // on a failed context this tells the other ranks
}

void gx_checkpoint_load_weights(GxContext *g, GxModel *m, const char *folder)
{
    const int is_adapter = gx_model_has_adapter(m);
    const GxTensorPart part = gx_checkpoint_masters(m), adapter = gx_adapter_part(m);
    GxCheckpointFile w;
    GxSafetensors masters;
    unsigned char *missing;
    gx__checkpoint_load_open_weights(g, m, folder, is_adapter ? gx__checkpoint_load_adapter_matching(m) : GX_MATCH_ALL,
                                     &w);
    gx__checkpoint_load_agree_on_missing(g, m, &w, &missing);
    if (!gx__checkpoint_load_open_masters(g, m, folder, &masters))
        gx__checkpoint_load_read_weights(g, m, folder, &w, is_adapter ? &adapter : &gx_checkpoint_weights, missing);
    else {
        gx_checkpoint_close_file(&w);
        gx_tensor_file_load(g, &masters, &m->store, &part, NULL, missing, NULL, folder);
        gx_safetensors_close(&masters);
    }
    free(missing);
}

// A tensor that the adapter does not train must be in the base: if it were initialised here, no file would have it.
static void gx__checkpoint_load_check_base(GxContext *g, const GxModel *m, const char *folder,
                                           const unsigned char *missing)
{
    for (int i = 0; i < m->table.n && gx_model_has_adapter(m) && !gx_failed(g); i++)
        if (missing[i] && !m->table.row[i].is_adapter && !m->table.row[i].has_alias)
            GX_FAIL(&g->error, GX_ERR_FORMAT,
                    "%s has no %s, which its adapter needs but would not save, because it is saved without its model; "
                    "name a model that has it, or train it whole, with --trainable_modules",
                    folder, m->table.row[i].name);
}

// *missing: the rows that the base does not have; free() it.
static void gx__checkpoint_load_read_base(GxContext *g, GxModel *m, const char *folder, GxWeightsHash *hash,
                                          unsigned char **missing)
{
    GxCheckpointFile w;
    hash->all = hash->body = GX_HASH_START;
    gx__checkpoint_load_open_weights(g, m, folder, GX_MATCH_BASE, &w);
    w.hash = hash;
    gx__checkpoint_load_agree_on_missing(g, m, &w, missing);
    gx__checkpoint_load_read_weights(g, m, folder, &w, &gx_checkpoint_weights, *missing);
}

void gx_checkpoint_load_base(GxContext *g, GxModel *m, const char *folder, GxWeightsHash *hash)
{
    unsigned char *missing;
    gx__checkpoint_load_read_base(g, m, folder, hash, &missing);
    if (!gx_failed(g)) gx__checkpoint_load_check_base(g, m, folder, missing);
    free(missing);
}

// Warns if the adapter was trained on a base that was quantized in another way than here.
static void gx__checkpoint_load_compare_quantized(GxContext *g, const GxModel *m, const char *adapter)
{
    GxDtype products;
    int now = 0, then;
    for (int i = 0; i < m->table.n && !now; i++) now = m->table.row[i].quantized;
    if (gx_adapter_run_said(adapter, &then, &products) && then != now)
        gx_log(&g->log, GX_LOG_WARNING,
               "the adapter %s was trained on a model with --quantize %s, but here it is %s: the weights of the model "
               "differ by rounding",
               adapter, gx_quantize_name(then), gx_quantize_name(now));
}

// 1: the folder's configuration names this model's architecture, so it has the same head.
static int gx__checkpoint_load_is_same_model(const GxModel *m, const char *folder, const char *configuration)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GxError ignored = GX_ZERO; // whoever reads the configuration reports what is wrong with it
    if (gx_path_join(path, folder, configuration, &ignored) != GX_OK || gx_json_read(&json, path, 1 << 20, &ignored))
        return 0;
    const char *name = gx_json_string(gx_json_at(gx_json_get(json, "architectures"), 0));
    const int same = !strcasecmp(name, m->family->architecture(m->config, &m->head));
    gx_json_free(json);
    return same;
}

// If the adapter was trained with another head, only the hash of the body can be compared.
static void gx__checkpoint_load_compare_base(GxContext *g, const GxModel *m, const char *folder, const char *adapter,
                                             GxWeightsHash now)
{
    GxTrainState then;
    GxError ignored = GX_ZERO; // peft's adapters have no such file
    char path[GX_PATH];
    memset(&then, 0, sizeof then);
    if (gx_path_join(path, adapter, "trainer_state.json", &ignored) != GX_OK || !gx_path_is_file(path) ||
        gx_train_state_read(path, &then, &ignored) != GX_OK)
        return;
    const int is_same = gx__checkpoint_load_is_same_model(m, adapter, GX_PEFT_MODEL_CONFIG);
    const uint64_t hash = is_same ? now.all : now.body, was = is_same ? then.base_hash.all : then.base_hash.body;
    if (!was || was == hash) return;
    gx_log(&g->log, GX_LOG_WARNING,
           "the weights of %s are not those that the adapter %s was trained on (their hash is 0x%016lx, and was "
           "0x%016lx)",
           folder, adapter, (unsigned long)hash, (unsigned long)was);
}

static GxStatus gx__checkpoint_load_check_copies(const GxModel *m, const char *folder, const char *adapter,
                                                 const GxSafetensors *file, const GxLogger *log, GxError *err)
{
    GxSafetensors base;
    GxTensorMatch match = GX_ZERO;
    if (!gx_adapter_match_has_copies(file)) return GX_OK;
    match.vocab = gx__checkpoint_load_vocab(m, folder);
    GX_TRY(gx__checkpoint_load_open_file(folder, GX_MATCH_BASE, &base, err));
    if (gx_tensor_match(&match, &base, &m->table, m->family, GX_MATCH_BASE, folder, err) == GX_OK)
        gx_adapter_match_check_copies(file, &base, &match, &m->table, m->family, adapter, log, err);
    gx_tensor_match_close(&match);
    gx_safetensors_close(&base);
    return gx_error_code(err);
}

void gx_checkpoint_start_with_adapter(GxContext *g, GxModel *m, const char *folder, const char *adapter,
                                      GxWeightsHash *hash)
{
    const GxTensorPart part = gx_adapter_part(m);
    GxCheckpointFile w;
    unsigned char *of_base, *of_adapter;
    gx__checkpoint_load_read_base(g, m, folder, hash, &of_base);
    if (g->rank == 0 && !gx_failed(g)) gx__checkpoint_load_compare_base(g, m, folder, adapter, *hash);
    if (g->rank == 0 && !gx_failed(g)) gx__checkpoint_load_compare_quantized(g, m, adapter);
    gx__checkpoint_load_open_weights(g, m, adapter, gx__checkpoint_load_adapter_matching(m), &w);
    if (w.is_open && !gx_failed(g)) gx__checkpoint_load_check_copies(m, folder, adapter, &w.file, &g->log, &g->error);
    for (int i = 0; i < m->table.n && g->rank == 0 && !gx_failed(g); i++)
        if (w.match.missing[i] && of_base[i] && !m->table.row[i].has_alias)
            GX_FAIL(&g->error, GX_ERR_FORMAT, "neither %s nor the adapter %s has the tensor %s", folder, adapter,
                    m->table.row[i].name);
    gx__checkpoint_load_agree_on_missing(g, m, &w, &of_adapter);
    gx__checkpoint_load_read_weights(g, m, adapter, &w, &part, of_adapter);
    free(of_base), free(of_adapter);
}

// Every tensor of the current adapter must be in the new one, or it would keep its old values.
static GxStatus gx__checkpoint_load_check_adapter_match(const GxModel *m, const GxTensorMatch *match,
                                                        const char *adapter, GxError *err)
{
    for (int i = 0; i < m->table.n; i++)
        if (m->table.row[i].is_adapter && !m->table.row[i].has_alias && match->missing[i])
            return GX_FAIL(err, GX_ERR_FORMAT, "the adapter %s has no tensor %s, which the adapter before it trained",
                           adapter, m->table.row[i].name);
    return GX_OK;
}

static GxStatus gx__checkpoint_load_open_adapter(GxCheckpointFile *w, const GxModel *m, const char *folder,
                                                 const char *adapter, const GxLogger *log, GxError *err)
{
    const GxMatching how = gx__checkpoint_load_adapter_matching(m);
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, adapter, GX_ADAPTER_FILE, err));
    GX_TRY(gx_safetensors_open_copy(&w->file, path, err));
    w->is_open = 1;
    GX_TRY(gx_adapter_check_config(m, adapter, log, err));
    GX_TRY(gx_adapter_match(&w->match, &w->file, &m->table, m->family, how, adapter, err));
    GX_TRY(gx_tensor_match_check(&w->match, &w->file, &m->table, adapter, err));
    GX_TRY(gx__checkpoint_load_check_adapter_match(m, &w->match, adapter, err));
    return gx__checkpoint_load_check_copies(m, folder, adapter, &w->file, log, err);
}

GxStatus gx_checkpoint_open_adapter(GxCheckpointFile *w, const GxModel *m, const char *folder, const char *adapter,
                                    const GxLogger *log, GxError *err)
{
    memset(w, 0, sizeof *w);
    if (gx__checkpoint_load_open_adapter(w, m, folder, adapter, log, err) != GX_OK) gx_checkpoint_close_file(w);
    return gx_error_code(err);
}

void gx_checkpoint_close_file(GxCheckpointFile *w)
{
    gx_tensor_match_close(&w->match);
    if (w->is_open) gx_safetensors_close(&w->file);
    w->is_open = 0;
}

void gx_checkpoint_load_adapter(GxContext *g, GxModel *m, GxCheckpointFile *w, const char *folder, const char *adapter,
                                GxWeightsHash hash)
{
    const GxTensorPart part = gx_adapter_part(m);
    unsigned char *missing;
    if (g->rank == 0) gx__checkpoint_load_compare_base(g, m, folder, adapter, hash);
    if (g->rank == 0) gx__checkpoint_load_compare_quantized(g, m, adapter);
    gx_at(g, -1, "load");
    gx__checkpoint_load_agree_on_missing(g, m, w, &missing);
    gx__checkpoint_load_read_weights(g, m, adapter, w, &part, missing);
    free(missing);
}

static void gx__checkpoint_load_add_name(GxLoadedNames *names, const char *format, ...) GX_PRINTF(2, 3);
static void gx__checkpoint_load_add_name(GxLoadedNames *names, const char *format, ...)
{
    const size_t n = strlen(names->text), size = sizeof names->text - 40; // with room for the end
    char name[2 * GX_NAME - 2];
    va_list args;
    va_start(args, format);
    gx_format_shortened(name, sizeof name, format, args);
    va_end(args);
    if (names->n++ < GX_LOADED_NAMES) snprintf(names->text + n, size - n, "%s%s", n ? ", " : "", name);
}

static void gx__checkpoint_load_end_names(GxLoadedNames *names)
{
    const size_t n = strlen(names->text);
    if (names->n > GX_LOADED_NAMES) snprintf(names->text + n, sizeof names->text - n, ", … (%d of them)", names->n);
}

static void gx__checkpoint_load_list_names(const GxModel *m, const GxCheckpointFile *w, GxWeightsLoaded *loaded)
{
    char theirs[GX_SHAPE_TEXT], ours[GX_SHAPE_TEXT];
    for (int i = 0; i < m->table.n; i++) {
        const GxTensor *row = &m->table.row[i];
        const int mismatched = w->match.mismatched[i];
        if (!w->match.missing[i] || row->is_added) continue; // no file is expected to have added tensors
        if (mismatched < 0) gx__checkpoint_load_add_name(&loaded->missing, "%s", row->name);
        else
            gx__checkpoint_load_add_name(
                &loaded->mismatched, "%s %s, which is %s there", row->name,
                gx_shape_text(row->global_shape, row->ndim, ours),
                gx_shape_text(w->file.entry[mismatched].shape, w->file.entry[mismatched].ndim, theirs));
    }
    for (int e = 0; e < w->file.n; e++)
        if (w->match.unexpected[e]) gx__checkpoint_load_add_name(&loaded->unexpected, "%s", w->file.entry[e].name);
    gx__checkpoint_load_end_names(&loaded->missing);
    gx__checkpoint_load_end_names(&loaded->mismatched);
    gx__checkpoint_load_end_names(&loaded->unexpected);
}

// Refuses a new head if nothing trains it, or if the folder's configuration says that it has this head.
static void gx__checkpoint_load_check_missing(GxContext *g, const GxModel *m, const char *folder, int may_init,
                                              const GxWeightsLoaded *loaded)
{
    if (gx_failed(g) || !loaded->missing.n) return;
    if (!may_init)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s has no %s: this head would be new, and shows nothing before it is trained", folder,
                loaded->missing.text);
    else if (gx__checkpoint_load_is_same_model(m, folder, "config.json"))
        GX_FAIL(&g->error, GX_ERR_FORMAT,
                "%s has no tensor %s, which this model needs, because its config.json says that it is a %s; --strict "
                "false initializes it at random",
                folder, loaded->missing.text, m->family->architecture(m->config, &m->head));
}

// Initialises the outputs of a head for labels again: the folder's are for other labels.
static void gx__checkpoint_load_reinit_head(const GxModel *m, GxCheckpointFile *w, GxWeightsLoaded *loaded)
{
    for (int u = 0; u < m->units; u++)
        for (int k = 0; k < gx_unit_spec(m, u)->n_pairs; k++) {
            const GxLinear *l = &m->unit[u].pair[k].linear[0];
            const int row[2] = {l->first.index, l->bias.index};
            for (int i = 0; i < 2 && gx_unit_spec(m, u)->pair[k].core.kind == GX_CORE_LABELS; i++) {
                if (row[i] < 0) continue;
                w->match.missing[row[i]] = 1;
                gx__checkpoint_load_add_name(&loaded->reinitialised, "%s", m->table.row[row[i]].name);
            }
        }
}

// All ranks have the same list of rows to initialise.
static void gx__checkpoint_load_init_missing(GxContext *g, GxModel *m, const unsigned char *missing, uint64_t seed)
{
    for (int i = 0; i < m->table.n && !gx_failed(g); i++)
        if (missing[i]) gx_model_init_tensor(g, m, i, seed);
}

void gx_checkpoint_start_from(GxContext *g, GxModel *m, const char *folder, int is_strict, const uint64_t *seed,
                              GxWeightsHash *hash, GxWeightsLoaded *loaded)
{
    GxCheckpointFile w;
    unsigned char *missing;
    memset(loaded, 0, sizeof *loaded);
    hash->all = hash->body = GX_HASH_START;
    gx__checkpoint_load_open_weights(g, m, folder, is_strict ? GX_MATCH_BODY : GX_MATCH_ANY, &w);
    const int has_match = g->rank == 0 && !gx_failed(g);
    if (has_match) gx__checkpoint_load_list_names(m, &w, loaded);
    if (has_match && is_strict) gx__checkpoint_load_check_missing(g, m, folder, seed != NULL, loaded);
    if (has_match && m->head.is_new && !gx_failed(g)) gx__checkpoint_load_reinit_head(m, &w, loaded);
    if (has_match && !gx_failed(g)) gx__checkpoint_load_check_base(g, m, folder, w.match.missing);
    w.hash = gx_model_has_adapter(m) ? hash : NULL; // only checkpoints of adapters have it
    gx__checkpoint_load_agree_on_missing(g, m, &w, &missing);
    gx__checkpoint_load_read_weights(g, m, folder, &w, &gx_checkpoint_weights, missing);
    if (seed && !gx_failed(g)) gx__checkpoint_load_init_missing(g, m, missing, *seed);
    free(missing);
}

// ---- what the optimizer keeps --------------------------------------------------------------------------------------

// Refuses a checkpoint without the optimizer state of a tensor that this run trains, but that was frozen then. with:
// the option that loads only the weights.
static GxStatus gx__checkpoint_load_check_state(const GxSafetensors *s, const GxTable *t, const GxTensorPart *part,
                                                int parts, const char *folder, const char *with, GxError *err)
{
    char name[GX_NAME + 32];
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n; i++) {
            if (t->row[i].frozen || t->row[i].has_alias) continue;
            snprintf(name, sizeof name, "%s%s", part[p].prefix, t->row[i].name);
            if (!gx_safetensors_find(s, name))
                return GX_FAIL(err, GX_ERR_ARGUMENT,
                               "%s was trained with %s frozen, but this run trains it; resume with the same --freeze, "
                               "or start from its weights with --%s",
                               folder, t->row[i].name, with);
        }
    return GX_OK;
}

static GxStatus gx__checkpoint_load_open_state(GxSafetensors *s, const char *path, const GxTable *t,
                                               const GxTensorPart *part, int parts, const char *folder,
                                               const char *with, GxError *err)
{
    if (!gx_path_is_file(path)) // the manifest does not name it, either
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s was trained with --momentum 0, but this run has momentum; resume with --momentum 0, or "
                       "start from its weights with --%s",
                       folder, with);
    GX_TRY(gx_safetensors_open(s, path, err));
    if (gx__checkpoint_load_check_state(s, t, part, parts, folder, with, err) != GX_OK) gx_safetensors_close(s);
    return gx_error_code(err);
}

void gx_checkpoint_load_state(GxContext *g, GxModel *m, const GxOptimizer *o, const char *folder)
{
    GxError *err = &g->error;
    GxSafetensors s;
    GxTensorPart part[2];
    char path[GX_PATH] = "";
    const int parts = gx_checkpoint_moments(o, part), reads = g->rank == 0;
    gx_at(g, -1, "load");
    if (reads) gx_path_join(path, folder, "optimizer.safetensors", err);
    const int open = reads && parts && !gx_failed(g) &&
                     gx__checkpoint_load_open_state(&s, path, &m->table, part, parts, folder,
                                                    gx_model_has_adapter(m) ? "adapter" : "model", err) == GX_OK;
    if (reads && gx_failed(g)) gx_barrier(g, GX_AXIS_ALL); // tells the other ranks
    for (int p = 0; p < parts && !gx_failed(g); p++)
        gx_tensor_file_load(g, open ? &s : NULL, &m->store, &part[p], NULL, NULL, NULL, path);
    if (open) gx_safetensors_close(&s);
}
#endif
