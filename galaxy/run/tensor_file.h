// tensor_file.h: the tensors of a store into a safetensors file and back: weights, or what the optimizer keeps of them.
//
// A file holds each tensor whole, however the ranks share it out. Rank 0 writes, and gets what it does not have from
// the others of its tp group; it also reads, piece by piece, and broadcasts: no disk is shared. All ranks meet after
// each tensor that was written: a file may take longer than a rank waits for another one.
#ifndef GX_TENSOR_FILE_H
#define GX_TENSOR_FILE_H
#include "../parallel/boxes.h"
#include "../parallel/values.h"
#include "../comm/comm.h"
#include "../io/safetensors.h"
#include "../model/model.h"
GX_BEGIN

// Tensors stand in the file as prefix + name: "" weights, "exp_avg." the first moment.
typedef struct {
    const char *prefix;
    GxValues values;
} GxTensorPart;

// On all ranks. The file is path, on rank 0; others may pass "". What the disk does not take is an error of `disk`, on
// rank 0, not of the context: ranks go on to the end together, and nothing is written any more.
void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorPart *part, int parts,
                         const GxSafetensorsPair *metadata, int pairs, GxError *disk);
// 1: this rank has a part of what is saved: it is of rank 0's tp group.
int gx_tensor_file_has_part(const GxContext *g);

// Which tensor of a file of weights is which of a model's. On rank 0.
typedef struct {
    int *entry;           // [rows of the table] the file's; -1: it has none
    unsigned char *drawn; // [rows] 1: of a head that the file does not have
    unsigned char *left;  // [the file's tensors] 1: of a head that the model does not have
} GxTensorMatch;

// By the family's names. A tensor that the file does not have, or that this model does not have, is an error with its
// name; so are two with the same name, a tied one with other values than those that it is tied to, and a part of a
// head. Whole heads may differ if `other_heads`. Close it, also after an error.
GxStatus gx_tensor_file_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                              int other_heads, const char *folder, GxError *err);
void gx_tensor_file_match_close(GxTensorMatch *match);

// On all ranks; s is the open file on rank 0, NULL on the others. A missing or misshapen tensor is named. `match`: of
// weights, on rank 0; NULL: names are the table's. Rows that are drawn stay as they are.
void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *drawn, const char *folder);

// Takes the scratch of saving and loading from a dry arena, and gives it back.
void gx_tensor_file_plan(GxContext *g, const GxStore *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_FILE_IMPLEMENTED)
#define GX_TENSOR_FILE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static GxStatus gx__tensor_file_create(GxSafetensorsWriter *w, const char *path, const GxStore *s,
                                       const GxTensorPart *part, int parts, const GxSafetensorsPair *metadata,
                                       int pairs, GxError *err)
{
    const GxTable *t = s->table;
    int n = 0;
    GxSafetensorsEntry *e = (GxSafetensorsEntry *)calloc((size_t)(t->n * parts + 1), sizeof *e);
    if (!e) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * parts);
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n; i++) {
            const GxTensor *row = &t->row[i];
            if (!gx_values_exist(s, part[p].values, i)) continue;
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

// What lies nowhere in fp32 (frozen, in bf16) is widened chunk by chunk.
static void gx__tensor_file_save_whole(GxContext *g, GxSafetensorsWriter *w, const char *name, const GxStore *s,
                                       GxValues what, int row, GxError *disk)
{
    GxArena *a = gx_host_arena(g);
    const int64_t count = gx_tensor_count(&s->table->row[row]);
    for (int64_t first = 0; first < count && !gx_failed(g) && !gx_error_code(disk); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = gx_values_read(g, s, what, row, first, n);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values, 4 * n);
        gx_to_host(g, twin, values, 4 * n);
        if (!gx_failed(g)) gx_safetensors_write_floats(w, name, first, twin, n, disk);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
    }
}

int gx_tensor_file_has_part(const GxContext *g) { return gx_group_index(g, GX_AXIS_ALL & ~GX_AXIS_TP) == 0; }

// w NULL: a rank that only hands over what rank 0 does not have.
static void gx__tensor_file_save_tensor(GxContext *g, GxSafetensorsWriter *w, const GxStore *s,
                                        const GxTensorPart *part, int i, void *scratch, GxError *disk)
{
    char name[GX_NAME + 32];
    const GxTensor *t = &s->table->row[i];
    snprintf(name, sizeof name, "%s%s", part->prefix, t->name);
    if (!t->parts) {
        if (w) gx__tensor_file_save_whole(g, w, name, s, part->values, i, disk);
        return;
    }
    const GxArenaMark place = gx_arena_mark(g->arena);
    const float *values = gx_values_read(g, s, part->values, i, 0, gx_tensor_count(t));
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0] && !gx_failed(g); first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        const float *whole = gx_box_gather(g, t, values, first, rows, scratch);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx_safetensors_write_floats(w, name, first * row, whole, rows * row, disk);
    }
    gx_arena_release(g->arena, place);
}

static void *gx__tensor_file_boxes_scratch(GxContext *g, const GxTable *t)
{
    const int64_t bytes = gx_boxes_scratch(t);
    return bytes ? gx_take_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, bytes) : NULL;
}

void gx_tensor_file_plan(GxContext *g, const GxStore *s)
{
    const GxTable *t = s->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    int64_t most = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].parts) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    gx__tensor_file_boxes_scratch(g, t);
    gx_host_twin(g, GX_MEM_WORKSPACE, a->base, 4 * most);
    for (int i = 0; i < t->n; i++) {
        const GxArenaMark values = gx_arena_mark(g->arena);
        const int64_t count = gx_tensor_count(&t->row[i]);
        if (gx_values_exist(s, GX_VALUES_WEIGHTS, i))
            gx_values_write(g, s, GX_VALUES_WEIGHTS, i, 0, t->row[i].parts ? count : gx_min(GX_STAGE, count));
        gx_arena_release(g->arena, values);
    }
    gx_arena_release(a, mark);
}

void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorPart *part, int parts,
                         const GxSafetensorsPair *metadata, int pairs, GxError *disk)
{
    const GxTable *t = s->table;
    GxSafetensorsWriter w = GX_ZERO;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int writes = g->rank == 0, has_part = gx_tensor_file_has_part(g);
    void *scratch = has_part ? gx__tensor_file_boxes_scratch(g, t) : NULL;
    const int is_open = writes && !gx_error_code(disk) &&
                        gx__tensor_file_create(&w, path, s, part, parts, metadata, pairs, disk) == GX_OK;
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < t->n && !gx_failed(g); i++) {
            if (!gx_values_exist(s, part[p].values, i)) continue;
            if (has_part) gx__tensor_file_save_tensor(g, is_open ? &w : NULL, s, &part[p], i, scratch, disk);
            gx_barrier(g, GX_AXIS_ALL);
        }
    if (is_open && !gx_failed(g) && !gx_error_code(disk)) gx_safetensors_finish(&w, disk);
    else if (is_open) gx_safetensors_abort(&w);
    gx_barrier(g, GX_AXIS_ALL);
    gx_arena_release(a, mark);
}

static GxStatus gx__tensor_file_check_shape(const GxSafetensorsEntry *e, const GxTensor *row, const char *folder,
                                            GxError *err)
{
    int same = e->ndim == row->ndim;
    for (int d = 0; same && d < row->ndim; d++) same = e->shape[d] == row->global_shape[d];
    if (same) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: tensor %s has %d dimensions, the first of %ld; this model's has %d, the first of %ld", folder,
                   e->name, e->ndim, (long)(e->ndim ? e->shape[0] : 0), row->ndim, (long)row->global_shape[0]);
}

static GxStatus gx__tensor_file_lacks(const GxSafetensors *s, const char *name, const char *folder, GxError *err)
{
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has no tensor %s, which this model needs (it has %d tensors; is it of another model?)", folder,
                   name, s->n);
}

// Of row i, by the match or by its own name behind the part's prefix.
static GxStatus gx__tensor_file_find_tensor(const GxSafetensorsEntry **entry, const GxSafetensors *s,
                                            const GxTensorMatch *match, const GxTable *t, int i, const char *prefix,
                                            const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, t->row[i].name);
    if (match) *entry = match->entry[i] < 0 ? NULL : &s->entry[match->entry[i]];
    else *entry = gx_safetensors_find(s, name);
    return *entry ? gx__tensor_file_check_shape(*entry, &t->row[i], folder, err)
                  : gx__tensor_file_lacks(s, name, folder, err);
}

static void gx__tensor_file_load_whole(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                       const GxStore *store, GxValues what, int row)
{
    GxArena *a = gx_host_arena(g);
    const int64_t count = gx_tensor_count(&store->table->row[row]);
    for (int64_t first = 0; first < count; first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = gx_values_write(g, store, what, row, first, n);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values, 4 * n);
        if (s && !gx_failed(g)) gx_safetensors_read(s, e, first, n, twin, &g->error);
        gx_broadcast(g, GX_AXIS_ALL, 0, twin, n, GX_F32); // of a context that has failed: tells the others
        gx_to_device(g, values, twin, 4 * n);
        gx_values_written(g, store, what, row, first, n, values);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
        if (gx_failed(g)) return;
    }
}

static void gx__tensor_file_load_boxes(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                       const GxTensor *t, float *values, void *scratch)
{
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        if (s && !gx_failed(g)) gx_safetensors_read(s, e, first * row, rows * row, (float *)scratch, &g->error);
        gx_broadcast(g, GX_AXIS_ALL, 0, scratch, rows * row, GX_F32); // of a context that has failed: tells the others
        if (gx_failed(g)) return;
        gx_box_take(g, t, values, first, rows, scratch);
    }
}

// Rank 0 reads, everybody gets it: a whole tensor into its place, of a cut one each rank its box. e NULL: not rank 0,
// or an error.
static void gx__tensor_file_load_tensor(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                        const GxStore *store, const GxTensorPart *part, int i, void *scratch)
{
    const GxTensor *t = &store->table->row[i];
    if (!t->parts) {
        gx__tensor_file_load_whole(g, s, e, store, part->values, i);
        return;
    }
    const GxArenaMark place = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t);
    float *values = gx_values_write(g, store, part->values, i, 0, n);
    gx__tensor_file_load_boxes(g, s, e, t, values, scratch);
    gx_values_written(g, store, part->values, i, 0, n, values);
    gx_arena_release(g->arena, place);
}

void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *drawn, const char *folder)
{
    const GxTable *t = store->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    void *scratch = gx__tensor_file_boxes_scratch(g, t);
    for (int i = 0; i < t->n && !gx_failed(g); i++) {
        const GxSafetensorsEntry *e = NULL;
        if (!gx_values_exist(store, part->values, i) || (drawn && drawn[i])) continue;
        if (s) gx__tensor_file_find_tensor(&e, s, match, t, i, part->prefix, folder, &g->error);
        gx__tensor_file_load_tensor(g, s, e, store, part, i, scratch);
    }
    gx_arena_release(a, mark);
}

// ---- which tensor is which -----------------------------------------------------------------------------------------

// The number of the row that the file's tensor is; -1: of none; -2: nothing that is needed.
static int gx__tensor_file_row(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME] = "";
    if (!family->tensor_name) return gx_table_find(t, in_file).index;
    if (strlen(in_file) + 16 > GX_NAME) return -1; // no name of a table, and room for a prefix
    return family->tensor_name(in_file, name) ? gx_table_find(t, name).index : -2;
}

static GxStatus gx__tensor_file_match_rows(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                           const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        const int row = gx__tensor_file_row(t, family, s->entry[e].name);
        match->left[e] = row == -1;
        if (row < 0) continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s and %s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
    }
    for (int i = 0; i < t->n; i++) { // of two names that are tied a file may have either
        if (!t->row[i].has_alias || match->entry[i] < 0 || match->entry[t->row[i].alias.index] >= 0) continue;
        match->entry[t->row[i].alias.index] = match->entry[i];
        match->entry[i] = -1;
    }
    return GX_OK;
}

// The family's name of a tensor that this model does not have.
static void gx__tensor_file_name(const GxFamily *family, const char *in_file, char name[GX_NAME])
{
    snprintf(name, GX_NAME, "%.127s", in_file);
    if (family->tensor_name && strlen(in_file) + 16 <= GX_NAME) family->tensor_name(in_file, name);
}

// One head of the family's: its pattern has n characters.
typedef struct {
    char pattern[GX_NAME];
    int rows, found, absent; // of the model: rows of it; the last that the file has, and has not; -1: none
} gx__TensorHead;

static const char *gx__tensor_file_next_head(const char *heads, gx__TensorHead *h)
{
    const int n = (int)strcspn(heads, ",");
    snprintf(h->pattern, sizeof h->pattern, "%.*s", n, heads);
    h->rows = 0, h->found = h->absent = -1;
    return heads + n + (heads[n] == ',');
}

static void gx__tensor_file_count_head(const GxTensorMatch *match, const GxTable *t, gx__TensorHead *h)
{
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias || !gx_name_matches(t->row[i].name, h->pattern)) continue;
        h->rows++;
        if (match->entry[i] >= 0) h->found = i;
        else h->absent = i;
    }
}

// A head that the file does not have at all is drawn; what the model has nothing of is left out.
static GxStatus gx__tensor_file_match_head(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                           const GxFamily *family, const gx__TensorHead *h, const char *folder,
                                           GxError *err)
{
    char name[GX_NAME];
    if (h->found >= 0 && h->absent >= 0)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has a part of a head: %s, but not %s; all of it must be there, or nothing", folder,
                       t->row[h->found].name, t->row[h->absent].name);
    for (int i = 0; i < t->n && h->found < 0; i++)
        if (!t->row[i].has_alias && gx_name_matches(t->row[i].name, h->pattern)) match->drawn[i] = 1;
    for (int e = 0; e < s->n && !h->rows; e++) {
        if (match->left[e] != 1) continue; // it is the model's
        gx__tensor_file_name(family, s->entry[e].name, name);
        if (gx_name_matches(name, h->pattern)) match->left[e] = 2;
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_match_heads(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const GxFamily *family, const char *folder, GxError *err)
{
    gx__TensorHead h;
    for (const char *heads = family->heads; heads && *heads;) {
        heads = gx__tensor_file_next_head(heads, &h);
        gx__tensor_file_count_head(match, t, &h);
        GX_TRY(gx__tensor_file_match_head(match, s, t, family, &h, folder, err));
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_refuse_unknown(const GxTensorMatch *match, const GxSafetensors *s, const char *folder,
                                               GxError *err)
{
    char names[300] = "";
    int unknown = 0;
    for (int e = 0; e < s->n; e++) {
        if (match->left[e] != 1) continue;
        if (unknown++ < 3)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.80s", unknown > 1 ? ", " : "",
                     s->entry[e].name);
    }
    if (!unknown) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %d tensor%s that this model does not have: %s%s", folder, unknown,
                   unknown == 1 ? "" : "s", names, unknown > 3 ? ", ..." : "");
}

// A tied tensor may stand in the file under both its names: then they have to be the same.
static GxStatus gx__tensor_file_check_alias(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, int i,
                                            const char *folder, GxError *err)
{
    enum { BLOCK = 4096 };
    float own[BLOCK], other[BLOCK];
    const GxTensor *row = &t->row[i], *to = &t->row[row->alias.index];
    const GxSafetensorsEntry *e, *tied;
    GX_TRY(gx__tensor_file_find_tensor(&e, s, match, t, i, "", folder, err));
    GX_TRY(gx__tensor_file_find_tensor(&tied, s, match, t, row->alias.index, "", folder, err));
    for (int64_t first = 0; first < e->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - first);
        GX_TRY(gx_safetensors_read(s, e, first, n, own, err));
        GX_TRY(gx_safetensors_read(s, tied, first, n, other, err));
        if (!memcmp(own, other, (size_t)n * sizeof *own)) continue;
        if (row->role == GX_ROLE_BIAS)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: %s and %s are two names of one tensor, but their values differ; "
                           "remove the one that is not meant",
                           folder, row->name, to->name);
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: config.json ties %s to the embedding, but the file has other values for it; set "
                       "tie_word_embeddings to false",
                       folder, row->name);
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_check_match(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const char *folder, GxError *err)
{
    GX_TRY(gx__tensor_file_refuse_unknown(match, s, folder, err));
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias && match->entry[i] >= 0)
            GX_TRY(gx__tensor_file_check_alias(match, s, t, i, folder, err));
        if (!t->row[i].has_alias && match->entry[i] < 0 && !match->drawn[i])
            return gx__tensor_file_lacks(s, t->row[i].name, folder, err);
    }
    return GX_OK;
}

GxStatus gx_tensor_file_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                              int other_heads, const char *folder, GxError *err)
{
    match->entry = (int *)malloc((size_t)(t->n + 1) * sizeof *match->entry);
    match->drawn = (unsigned char *)calloc((size_t)t->n + 1, 1);
    match->left = (unsigned char *)calloc((size_t)s->n + 1, 1);
    if (!match->entry || !match->drawn || !match->left)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n + s->n);
    for (int i = 0; i < t->n; i++) match->entry[i] = -1;
    GX_TRY(gx__tensor_file_match_rows(match, s, t, family, folder, err));
    if (other_heads) GX_TRY(gx__tensor_file_match_heads(match, s, t, family, folder, err));
    return gx__tensor_file_check_match(match, s, t, folder, err);
}

void gx_tensor_file_match_close(GxTensorMatch *match)
{
    free(match->entry);
    free(match->drawn);
    free(match->left);
    memset(match, 0, sizeof *match);
}
#endif
