// base/tensors.h: the tensor table: one row per parameter. Initialisation, optimizer, sharding, checkpoints, tests and
// the memory plan all read this table; there is no second list of parameters. Code holds typed handles (GxTensorId)
// instead of names or row numbers.
//
// A row has the tensor's whole (global) shape, this rank's box of it, and, if the tensor is split in one dimension, the
// parts of all members of the group that it is split among. Parts may overlap (a K,V head that two ranks use):
// gradients are summed where they overlap, and the lowest member owns the overlap for the norm and for checkpoints.
// A unit is what is gathered, sent or recomputed together: the embedding, a layer, the head. A `packed` row follows the
// row before without a gap in memory: q, k, v are three tensors in files, but one matrix for a GEMM. A row with an
// alias has no storage: it is another name for the tensor that it refers to (tied weights). Where tensors are in memory
// is described in store.h.
//
//     GxTensor t = GX_ZERO;
//     snprintf(t.name, sizeof t.name, "model.norm.weight");
//     t.ndim = 1; t.global_shape[0] = t.end[0] = 288; t.unit = 7; t.init = GX_INIT_ONES;
//     GxTensorId norm = gx_table_add(&table, &t, &err);
#ifndef GX_TENSORS_H
#define GX_TENSORS_H
#include "dtype.h"
#include "quantized.h"
#include "status.h"
GX_BEGIN

enum { GX_MAX_DIMS = 4, GX_NAME = 128 };
typedef enum { GX_ROLE_WEIGHT = 0, GX_ROLE_BIAS, GX_ROLE_NORM, GX_ROLE_EMBEDDING, GX_ROLE_HEAD, GX_ROLE_LORA } GxRole;
// init_std is NORMAL's standard deviation, and UNIFORM's bound: [-init_std, init_std).
typedef enum { GX_INIT_NORMAL = 0, GX_INIT_ZEROS, GX_INIT_ONES, GX_INIT_UNIFORM } GxInit;
typedef struct {
    int64_t begin, end;
} GxRange; // [begin, end)
static inline int64_t gx_range_count(GxRange r) { return r.end > r.begin ? r.end - r.begin : 0; }
static inline GxRange gx_range_common(GxRange a, GxRange b) // what both have; empty, but never negative: nothing
{
    GxRange r = {gx_max(a.begin, b.begin), gx_min(a.end, b.end)};
    r.end = gx_max(r.begin, r.end);
    return r;
}

typedef struct {
    int index;
} GxTensorId; // index < 0: no such tensor (a linear without bias)

typedef struct {
    char name[GX_NAME]; // as in the Hugging Face file
    GxDtype dtype;
    GxRole role;
    int ndim, unit;
    int pair; // its number in the unit
    int64_t global_shape[GX_MAX_DIMS];
    int64_t begin[GX_MAX_DIMS], end[GX_MAX_DIMS]; // this rank's box: [begin, end) in each dimension
    int is_vocabulary;                            // 1: dimension 0 is that of the tokens, and no adapter added it
    int packed;                                   // 1: follows the row before without a gap
    // In files of weights this tensor and its neighbours are one, stacked by rows: the name of that one, this one's first
    // row in it, and how many rows it has. "": the tensor is in files under its own name
    char stack[GX_NAME];
    int64_t stack_first, stack_rows;
    int is_transposed; // 1: in files of weights this matrix, or the whole stack, is [columns, rows]
    int has_alias;     // 1: shares the storage of `alias`
    GxTensorId alias;
    // An alias whose values are written to files, too, for other programs that look for them; they are not read back
    int is_saved;
    // 1 + the row that this one's values are read from where a file ties them (here they are not tied); 0: none
    int copies;
    GxInit init;
    float init_std;
    int decay;    // weight decay applies
    int has_lora; // a matrix W with LoRA: `lora` is A, which stacked matrices share, and `lora_b` is B (model/lora.h)
    GxTensorId lora, lora_b;
    double lora_scale;            // what B A is multiplied by
    int has_scale;                // a matrix W whose outputs have a scale and an added bias (model/scale.h)
    GxTensorId scale, added_bias; // those of packed matrices are consecutive rows
    int is_added;                 // by a tuning method: not part of the base model or its files
    int is_named;                 // part of the base model, and trained because the user named its module
    int is_adapter;   // part of the adapter: added or trained by a tuning method, and saved separately from the base
    int frozen;       // no gradient, no optimizer state
    int quantized;    // 1 + GxQuantKind: a frozen, quantised matrix; 0: not quantised
    int sums_over_tp; // 1: its gradient is summed over tp, too: derived from the layouts where the tensor is used
    // For a split tensor (parts is not NULL): the dimension, the mesh axes, and the part of each member of the group;
    // begin and end in that dimension are this rank's part. Parts ascend in member order; only in dimension 0 may they
    // overlap. In a ragged mesh a tensor that one group splits is split in all, so that all agree on how it is moved: a
    // group of one has one part. The array is borrowed.
    int split_dim, split_axes, n_parts;
    const GxRange *parts;
} GxTensor;

// The name that the tensor has in files of weights, perhaps together with others.
static inline const char *gx_tensor_file_name(const GxTensor *t) { return t->stack[0] ? t->stack : t->name; }

typedef struct {
    GxTensor *row;
    int n, capacity;
    int units; // 0 to units - 1
} GxTable;

// On failure the index is -1 and err is set.
GxTensorId gx_table_add(GxTable *t, const GxTensor *row, GxError *err);
GxTensorId gx_table_find(const GxTable *t, const char *name); // index -1: none. For files and tests
void gx_table_close(GxTable *t);

// Marks all tensors whose names match one of the patterns (as a shell's: * and ?, separated by commas) as frozen.
// Returns their number; a pattern that matches nothing is an error.
int gx_table_freeze(GxTable *t, const char *patterns, GxError *err);
// 1: the name matches one of these patterns.
int gx_name_matches(const char *name, const char *patterns);
int64_t gx_tensor_count(const GxTensor *t); // elements of this rank's box
int64_t gx_tensor_global_count(const GxTensor *t);
int64_t gx_table_parameters(const GxTable *t);          // elements of the whole model, tied ones once
int64_t gx_table_trained(const GxTable *t);             // those that are not frozen
GxRange gx_tensor_owned(const GxTensor *t, int member); // a split tensor: the part of `member` that no lower member has

// This rank's elements of a tensor, in C order: element i of the box is element gx_tensor_global_index(t, i) of the
// whole.
int64_t gx_tensor_global_index(const GxTensor *t, int64_t i);

// Draws initial values of elements [first, first + n) of the box. Each is a function of (seed, the tensor's name, the
// element's global index): the same in every topology, whatever other tensors the model has.
void gx_tensor_init(const GxTensor *t, uint64_t seed, int64_t first, int64_t n, float *values);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSORS_IMPLEMENTED)
#define GX_TENSORS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "random.h"
#include "text.h"

static GxStatus gx__table_parts_check(const GxTensor *t, GxError *err)
{
    const int d = t->split_dim;
    int is_mine = 0,
        covered = t->n_parts > 0 && t->parts[0].begin == 0 && t->parts[t->n_parts - 1].end == t->global_shape[d];
    for (int r = 0; r < t->n_parts; r++) {
        const GxRange *p = &t->parts[r];
        is_mine |= p->begin == t->begin[d] && p->end == t->end[d];
        if (gx_range_count(*p) == 0) covered = 0;
        if (r > 0 &&
            (p->begin < p[-1].begin || p->end < p[-1].end || p->begin > p[-1].end || (d > 0 && p->begin < p[-1].end)))
            covered = 0;
    }
    if (covered && is_mine) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "tensor %s: the %d parts of dimension %d must cover 0 to %ld in ascending order without gaps, "
                   "without overlaps (except in dimension 0), and include this rank's part [%ld, %ld)",
                   t->name, t->n_parts, d, (long)t->global_shape[d], (long)t->begin[d], (long)t->end[d]);
}

static GxStatus gx__table_check(const GxTable *t, const GxTensor *row, GxError *err)
{
    if (row->ndim < 1 || row->ndim > GX_MAX_DIMS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %s has %d dimensions; 1 to %d can be held", row->name, row->ndim,
                       GX_MAX_DIMS);
    for (int d = 0; d < row->ndim; d++)
        if (row->begin[d] < 0 || row->begin[d] >= row->end[d] || row->end[d] > row->global_shape[d])
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "tensor %s: the part [%ld, %ld) of dimension %d is empty or not inside its %ld elements",
                           row->name, (long)row->begin[d], (long)row->end[d], d, (long)row->global_shape[d]);
    if (row->parts) GX_TRY(gx__table_parts_check(row, err));
    if (gx_table_find(t, row->name).index >= 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %s was added twice", row->name);
    if (row->has_alias && (row->alias.index < 0 || row->alias.index >= t->n))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %s is an alias of one that is not in the table", row->name);
    if (row->packed && (t->n == 0 || t->row[t->n - 1].unit != row->unit))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %s cannot be packed: the row before is of another unit",
                       row->name);
    if (row->unit < 0 || (row->unit < t->units - 1 && !row->has_alias)) // a unit may have no tensors
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "tensor %s of unit %d comes after unit %d; units are added in ascending order", row->name,
                       row->unit, t->units - 1);
    return GX_OK;
}

// Makes room for one more row. Returns 0 if there is no memory; the table then stays as it is.
static int gx__table_grow(GxTable *t)
{
    if (t->n < t->capacity) return 1;
    int capacity = t->capacity ? 2 * t->capacity : 32;
    GxTensor *grown = (GxTensor *)realloc(t->row, (size_t)capacity * sizeof *grown);
    if (!grown) return 0;
    t->row = grown;
    t->capacity = capacity;
    return 1;
}

GxTensorId gx_table_add(GxTable *t, const GxTensor *row, GxError *err)
{
    GxTensorId id = {-1};
    if (gx__table_check(t, row, err) != GX_OK) return id;
    if (!gx__table_grow(t)) {
        GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of %d tensors", t->n + 1);
        return id;
    }
    if (row->unit >= t->units) t->units = row->unit + 1;
    t->row[t->n] = *row;
    id.index = t->n++;
    return id;
}

GxTensorId gx_table_find(const GxTable *t, const char *name)
{
    GxTensorId id = {-1};
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->row[i].name, name)) id.index = i;
    return id;
}

void gx_table_close(GxTable *t)
{
    free(t->row);
    memset(t, 0, sizeof *t);
}

// Returns whether `name` matches a pattern of n characters: ? is any character, * any number of them.
static int gx__table_matches(const char *pattern, int64_t n, const char *name)
{
    if (n == 0) return *name == 0;
    if (*pattern == '*')
        return gx__table_matches(pattern + 1, n - 1, name) || (*name && gx__table_matches(pattern, n, name + 1));
    return *name && (*pattern == '?' || *pattern == *name) && gx__table_matches(pattern + 1, n - 1, name + 1);
}

int gx_name_matches(const char *name, const char *patterns)
{
    GxTextItem pattern;
    while (gx_text_next(&patterns, &pattern))
        if (gx__table_matches(pattern.at, pattern.n, name)) return 1;
    return 0;
}

// A tensor is frozen under all its names, or under none.
static void gx__table_freeze_tied(GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].has_alias && t->row[i].frozen) t->row[t->row[i].alias.index].frozen = 1;
    for (int i = 0; i < t->n; i++)
        if (t->row[i].has_alias) t->row[i].frozen = t->row[t->row[i].alias.index].frozen;
}

int gx_table_freeze(GxTable *t, const char *patterns, GxError *err)
{
    GxTextItem pattern;
    int frozen = 0;
    while (gx_text_next(&patterns, &pattern)) {
        int found = 0;
        for (int i = 0; i < t->n; i++)
            if (gx__table_matches(pattern.at, pattern.n, t->row[i].name)) t->row[i].frozen = 1, found++;
        if (!found)
            GX_FAIL(err, GX_ERR_ARGUMENT,
                    "no tensor is called \"%.*s\"; names are like %s (* stands for anything, ? for one character)",
                    (int)pattern.n, pattern.at, t->n ? t->row[t->n / 2].name : "");
    }
    gx__table_freeze_tied(t);
    for (int i = 0; i < t->n; i++) frozen += t->row[i].frozen;
    return frozen;
}

int64_t gx_tensor_count(const GxTensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->end[d] - t->begin[d];
    return n;
}

int64_t gx_tensor_global_count(const GxTensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->global_shape[d];
    return n;
}

int64_t gx_table_parameters(const GxTable *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].has_alias) n += gx_tensor_global_count(&t->row[i]);
    return n;
}

int64_t gx_table_trained(const GxTable *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].has_alias && !t->row[i].frozen) n += gx_tensor_global_count(&t->row[i]);
    return n;
}

GxRange gx_tensor_owned(const GxTensor *t, int member)
{
    GxRange r = t->parts[member];
    for (int lower = 0; lower < member; lower++) r.begin = gx_max(r.begin, t->parts[lower].end);
    return r;
}

int64_t gx_tensor_global_index(const GxTensor *t, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        int64_t extent = t->end[d] - t->begin[d];
        index += (t->begin[d] + i % extent) * stride;
        stride *= t->global_shape[d];
        i /= extent;
    }
    return index;
}

void gx_tensor_init(const GxTensor *t, uint64_t seed, int64_t first, int64_t n, float *values)
{
    const uint64_t name = gx_hash(GX_HASH_START, t->name, (int64_t)strlen(t->name));
    const uint32_t step = (uint32_t)(name >> 24), site = gx_random_site(GX_SITE_INIT, (int64_t)(name & 0xFFFFFF));
    GX_OMP(parallel for)
    for (int64_t i = 0; i < n; i++) {
        const uint64_t index = (uint64_t)gx_tensor_global_index(t, first + i);
        switch (t->init) {
        case GX_INIT_ONES: values[i] = 1; break;
        case GX_INIT_ZEROS: values[i] = 0; break;
        case GX_INIT_UNIFORM: values[i] = t->init_std * (2 * gx_random_uniform(seed, index, step, site) - 1); break;
        default: values[i] = t->init_std * gx_random_normal(seed, index, step, site);
        }
    }
}
#endif
