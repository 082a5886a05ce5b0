// task/text_batch.h: for tasks on texts: batches [T,B] whose columns hold one text, or several without attention
// between them, then padding; the rows that have a loss; and which texts a column gets (packing).
//
//     static const GxTextLayout layout = {0, 1, {{1, 0}}, 0, 0};   // pad id 0; target 0: a label per column at most
//     bytes = gx_text_layout(&layout, b, block, host_copy);                // a task's `layout`
//
//     GxTextWriter w;                                              // a task's `fill`
//     gx_text_begin(&w, &layout, b, host_copy);                         // all padding, no row counts
//     for (c < b->B) {
//         gx_text_put(&w, c, 0, ids, types, n);                    // into column c, from position 0 on
//         gx_text_label(&w, 0, c, 0, label);                       // target 0: of row (position 0, column c)
//     }
//     gx_text_finish(&w);                                          // rows ascending: t*B + b
//
// A padding row has token pad, type 0, position 0 and document [0,0), which no query attends to. A target without rows
// has n = 0. Nothing is allocated. Putting more into a batch than its layout allows fails an assertion.
//
// GxTextPacking decides which texts a column gets. Each epoch has a pseudo-random order of all texts (gx_permute), and
// puts them one after another into columns of T tokens; a text that does not fit begins the next column (next-fit). So
// column number c of the whole training is a function of (seed, c) and the texts' lengths, on every rank and in every
// resumed run:
//
//     GX_TRY(gx_text_packing_open(&p, length, texts, T, 0, err));  // 0: as many texts in a column as fit
//     gx_text_packing_column(&p, seed, c, &text, &n);              // text[n]: their numbers, in order
//     gx_text_packing_close(&p);
//
// Texts may be pairs, of a source and a target, that go into a column of each: the next column begins if either does not
// fit (gx_text_packing_pair).
//
// Memory of a packing: 16 bytes per text. Asking for a column of another epoch computes the order of that epoch from
// the lengths (about 0.2 us per text), and also, since epochs may differ in their number of columns, of those between
// or, to go back, of all from the first on. With one text per column no order is computed.
#ifndef GX_TEXT_BATCH_H
#define GX_TEXT_BATCH_H
#include "../data/dataset.h"
#include "../model/rows.h"
GX_BEGIN

typedef struct {
    int64_t most;    // the most rows of one column that can have a loss
    int64_t outputs; // values of each row; 0: rows have labels; GX_TEXT_ROWS_ALONE: neither
} GxTextTarget;
enum { GX_TEXT_ROWS_ALONE = -1 };

typedef struct {
    int32_t pad; // the token of padding
    int targets;
    GxTextTarget target[GX_MAX_LOSSES];
    int32_t first_position; // the number of a text's first position
    int skips_padding; // 1: a text's tokens `first_position - 1`, its model's padding, have that position, and no other
} GxTextLayout;

typedef struct { // where a batch's arrays lie in its block, or in the block's host copy
    int32_t *tokens, *types, *positions, *documents;
    int32_t *rows[GX_MAX_LOSSES], *labels[GX_MAX_LOSSES]; // labels NULL: values, or neither
    float *values[GX_MAX_LOSSES];
} GxTextArrays;

// Sets a to where the arrays lie in `block` (NULL: all are NULL). Returns the block's bytes, a multiple of GX_ALIGN.
int64_t gx_text_arrays(const GxTextLayout *l, int64_t T, int64_t B, void *block, GxTextArrays *a);
// Like a task's `layout` (task.h): sets b's arrays, and n of each target to the most that is possible.
int64_t gx_text_layout(const GxTextLayout *l, GxBatch *b, void *block, void *host_copy);
// And behind them the outputs of the first target, [most, outputs], which only validations and samples read.
int64_t gx_text_layout_outputs(const GxTextLayout *l, GxBatch *b, void *block, void *host_copy, int64_t outputs,
                               GxDtype dtype);
// Like a task's `counts`: the number of rows of each target.
void gx_text_counts(const GxTextLayout *l, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);

// ---- writing a batch -----------------------------------------------------------------------------------------------

typedef struct {
    const GxTextLayout *l;
    GxBatch *b;
    GxTextArrays to; // the host copy's
} GxTextWriter;

void gx_text_begin(GxTextWriter *w, const GxTextLayout *l, GxBatch *b, void *host_copy);
// Writes a text of n tokens into a column from position `at` on, where there must be no text yet. types NULL: all 0.
void gx_text_put(GxTextWriter *w, int64_t column, int64_t at, const int32_t *ids, const int32_t *types, int64_t n);
// Adds row (position t, column) to a target, at most once: with a label, with values[outputs], or alone.
void gx_text_label(GxTextWriter *w, int target, int64_t column, int64_t t, int32_t label);
void gx_text_values(GxTextWriter *w, int target, int64_t column, int64_t t, const float *values); // NULL: alone
void gx_text_finish(GxTextWriter *w);

// ---- results -------------------------------------------------------------------------------------------------------

// Copies the logits of a target's rows to the host; *host grows as needed, and is the caller's to free.
void gx_text_fetch(GxContext *g, void **host, const GxTarget *t);
// The outputs of row i of that copy, in fp32; wide[outputs] is used if they are not.
const float *gx_text_output(const void *host, GxDtype dtype, int64_t i, int64_t outputs, float *wide);
int64_t gx_text_find_row(const GxTarget *t, int64_t row); // the index of row t*B + b among the target's; -1: none

// ---- texts into columns --------------------------------------------------------------------------------------------

typedef struct {
    const int32_t *length; // [texts], borrowed
    int64_t texts, T, most_texts;
    const int32_t *other_length; // of the other texts of pairs; NULL: there are none
    int64_t other_T;
    uint64_t seed;
    int64_t epoch; // the epoch whose order is in memory; -1: none
    int64_t first; // the number of its first column
    int64_t columns;
    int64_t *order; // [texts] the epoch's order of the texts
    int64_t *begin; // [columns + 1] index in `order` of each column's first text
} GxTextPacking;

// Texts of 1 to T tokens; length [texts] is borrowed until the packing is closed. most_texts: the most texts of a
// column; 1: no packing; 0: as many as fit.
GxStatus gx_text_packing_open(GxTextPacking *p, const int32_t *length, int64_t texts, int64_t T, int64_t most_texts,
                              GxError *err);
// Makes pairs of the texts of an open packing, before the first column is asked for: the other text of each has
// length[i] tokens, 1 to T; borrowed.
GxStatus gx_text_packing_pair(GxTextPacking *p, const int32_t *length, int64_t T, GxError *err);
void gx_text_packing_close(GxTextPacking *p); // accepts a struct of zeros
// Column number `column` of the training: (*text)[*n] are the numbers of its texts, valid until the next call.
void gx_text_packing_column(GxTextPacking *p, uint64_t seed, int64_t column, const int64_t **text, int64_t *n);
int64_t gx_text_packing_columns(GxTextPacking *p, uint64_t seed); // of the first epoch, which a validation has

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_BATCH_IMPLEMENTED)
#define GX_TEXT_BATCH_IMPLEMENTED
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "../base/dtype.h"
#include "../ops/memory.h"

// ---- where arrays lie ----------------------------------------------------------------------------------------------

// The next array of n elements of 4 bytes.
static void *gx__text_take(char *block, int64_t *bytes, int64_t n)
{
    void *here = block ? block + *bytes : NULL;
    *bytes += gx_round_up(4 * n, GX_ALIGN);
    return here;
}

int64_t gx_text_arrays(const GxTextLayout *l, int64_t T, int64_t B, void *block, GxTextArrays *a)
{
    char *base = (char *)block;
    int64_t bytes = 0;
    memset(a, 0, sizeof *a);
    a->tokens = (int32_t *)gx__text_take(base, &bytes, T * B);
    a->types = (int32_t *)gx__text_take(base, &bytes, T * B);
    a->positions = (int32_t *)gx__text_take(base, &bytes, T * B);
    a->documents = (int32_t *)gx__text_take(base, &bytes, 2 * T * B);
    for (int k = 0; k < l->targets; k++) {
        const int64_t most = l->target[k].most * B, outputs = l->target[k].outputs;
        a->rows[k] = (int32_t *)gx__text_take(base, &bytes, most);
        if (outputs == 0) a->labels[k] = (int32_t *)gx__text_take(base, &bytes, most);
        if (outputs > 0) a->values[k] = (float *)gx__text_take(base, &bytes, most * outputs);
    }
    return bytes;
}

int64_t gx_text_layout(const GxTextLayout *l, GxBatch *b, void *block, void *host_copy)
{
    GxTextArrays at, of_host;
    assert(l->targets <= GX_MAX_LOSSES);
    const int64_t bytes = gx_text_arrays(l, b->T, b->B, block, &at);
    gx_text_arrays(l, b->T, b->B, host_copy, &of_host);
    b->tokens = at.tokens, b->types = at.types, b->positions = at.positions, b->documents = at.documents;
    for (int k = 0; k < l->targets && k < GX_MAX_LOSSES; k++) {
        GxTarget *t = &b->target[k];
        t->rows = at.rows[k], t->rows_host = of_host.rows[k];
        t->labels = at.labels[k], t->labels_host = of_host.labels[k];
        t->values = at.values[k];
        t->n = t->most = l->target[k].most * b->B;
    }
    return bytes;
}

int64_t gx_text_layout_outputs(const GxTextLayout *l, GxBatch *b, void *block, void *host_copy, int64_t outputs,
                               GxDtype dtype)
{
    const int64_t bytes = gx_text_layout(l, b, block, host_copy);
    b->target[0].logits = gx_rows(block ? (char *)block + bytes : NULL, dtype, l->target[0].most * b->B, outputs);
    return bytes + gx_round_up(gx_rows_bytes(b->target[0].logits), GX_ALIGN);
}

void gx_text_counts(const GxTextLayout *l, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    for (int k = 0; k < l->targets; k++) count[k] += b->target[k].n;
}

// ---- writing a batch -----------------------------------------------------------------------------------------------

void gx_text_begin(GxTextWriter *w, const GxTextLayout *l, GxBatch *b, void *host_copy)
{
    const int64_t rows = b->T * b->B, bytes = gx_text_arrays(l, b->T, b->B, host_copy, &w->to);
    w->l = l, w->b = b;
    b->padding = rows;
    memset(host_copy, 0, (size_t)bytes);
    for (int64_t i = 0; i < rows; i++) w->to.tokens[i] = l->pad;
    for (int k = 0; k < l->targets; k++) b->target[k].n = 0;
}

void gx_text_put(GxTextWriter *w, int64_t column, int64_t at, const int32_t *ids, const int32_t *types, int64_t n)
{
    const int64_t B = w->b->B;
    const int32_t skipped = w->l->skips_padding ? w->l->first_position - 1 : -1;
    int32_t position = w->l->first_position;
    assert(column >= 0 && column < B && at >= 0 && n >= 0 && at + n <= w->b->T);
    w->b->padding -= n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (at + i) * B + column;
        assert(w->to.documents[2 * row + 1] == 0); // nothing is there yet
        w->to.tokens[row] = ids[i];
        w->to.types[row] = types ? types[i] : 0;
        w->to.positions[row] = ids[i] == skipped ? skipped : position++;
        w->to.documents[2 * row] = (int32_t)at;
        w->to.documents[2 * row + 1] = (int32_t)(at + n);
    }
}

static int64_t gx__text_row(GxTextWriter *w, int target, int64_t column, int64_t t)
{
    GxTarget *of = &w->b->target[target];
    assert(target < w->l->targets && of->n < w->l->target[target].most * w->b->B);
    w->to.rows[target][of->n] = (int32_t)(t * w->b->B + column);
    return of->n++;
}

void gx_text_label(GxTextWriter *w, int target, int64_t column, int64_t t, int32_t label)
{
    assert(w->to.labels[target]);
    w->to.labels[target][gx__text_row(w, target, column, t)] = label;
}

void gx_text_values(GxTextWriter *w, int target, int64_t column, int64_t t, const float *values)
{
    const int64_t i = gx__text_row(w, target, column, t), outputs = w->l->target[target].outputs;
    assert(outputs != 0 && (outputs > 0) == (values != NULL));
    if (values) memcpy(w->to.values[target] + i * outputs, values, (size_t)outputs * sizeof *values);
}

static void gx__text_swap(GxTextWriter *w, int k, int64_t i, int64_t j)
{
    int32_t *rows = w->to.rows[k], *labels = w->to.labels[k];
    float *values = w->to.values[k];
    const int64_t outputs = w->l->target[k].outputs;
    const int32_t row = rows[i];
    rows[i] = rows[j], rows[j] = row;
    if (labels) {
        const int32_t label = labels[i];
        labels[i] = labels[j], labels[j] = label;
    }
    for (int64_t v = 0; v < outputs; v++) {
        const float value = values[i * outputs + v];
        values[i * outputs + v] = values[j * outputs + v], values[j * outputs + v] = value;
    }
}

// In a heap with the largest row on top, moves element i down to its place among the first n.
static void gx__text_sink(GxTextWriter *w, int k, int64_t i, int64_t n)
{
    const int32_t *rows = w->to.rows[k];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && rows[child + 1] > rows[child]) child++;
        if (rows[i] >= rows[child]) return;
        gx__text_swap(w, k, i, child);
    }
}

// Texts are written column by column, but a target's rows must ascend by t*B + b: sorts them in place (heapsort).
void gx_text_finish(GxTextWriter *w)
{
    for (int k = 0; k < w->l->targets; k++) {
        const int64_t n = w->b->target[k].n;
        for (int64_t i = n / 2 - 1; i >= 0; i--) gx__text_sink(w, k, i, n);
        for (int64_t left = n - 1; left > 0; left--) {
            gx__text_swap(w, k, 0, left);
            gx__text_sink(w, k, 0, left);
        }
    }
}

// ---- results -------------------------------------------------------------------------------------------------------

void gx_text_fetch(GxContext *g, void **host, const GxTarget *t)
{
    const GxRows some = gx_some_rows(t->logits, 0, t->n);
    void *room = realloc(*host, (size_t)gx_max(1, gx_rows_bytes(t->logits)));
    if (room) *host = room;
    else GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the model's outputs");
    if (!gx_failed(g) && some.rows) gx_to_host(g, *host, some.data, gx_rows_bytes(some));
}

const float *gx_text_output(const void *host, GxDtype dtype, int64_t i, int64_t outputs, float *wide)
{
    const uint16_t *narrow = (const uint16_t *)host + i * outputs;
    if (dtype == GX_F32) return (const float *)host + i * outputs;
    for (int64_t v = 0; v < outputs; v++) wide[v] = gx_from_bf16(narrow[v]);
    return wide;
}

int64_t gx_text_find_row(const GxTarget *t, int64_t row)
{
    const int32_t *rows = gx_target_rows(t);
    int64_t low = 0, high = t->n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (rows[middle] < row) low = middle + 1;
        else high = middle;
    }
    return low < t->n && rows[low] == row ? low : -1;
}

// ---- texts into columns --------------------------------------------------------------------------------------------

static GxStatus gx__text_check_lengths(const int32_t *length, int64_t texts, int64_t T, GxError *err)
{
    for (int64_t i = 0; i < texts; i++)
        if (length[i] < 1 || length[i] > T)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "text %ld has %d tokens; a column holds from 1 to %ld", (long)i,
                           length[i], (long)T);
    return GX_OK;
}

GxStatus gx_text_packing_pair(GxTextPacking *p, const int32_t *length, int64_t T, GxError *err)
{
    p->other_length = length, p->other_T = T;
    return gx__text_check_lengths(length, p->texts, T, err);
}

GxStatus gx_text_packing_open(GxTextPacking *p, const int32_t *length, int64_t texts, int64_t T, int64_t most_texts,
                              GxError *err)
{
    memset(p, 0, sizeof *p);
    p->length = length, p->texts = texts, p->T = T, p->most_texts = most_texts > 0 ? most_texts : T;
    p->epoch = -1;
    if (texts < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "there is no text to put into columns");
    GX_TRY(gx__text_check_lengths(length, texts, T, err));
    const size_t room = p->most_texts == 1 ? 1 : (size_t)texts;
    p->order = (int64_t *)malloc(room * sizeof *p->order);
    p->begin = (int64_t *)malloc((room + 1) * sizeof *p->begin);
    if (p->order && p->begin) return GX_OK;
    gx_text_packing_close(p);
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the order of %ld texts", (long)texts);
}

void gx_text_packing_close(GxTextPacking *p)
{
    free(p->order);
    free(p->begin);
    memset(p, 0, sizeof *p);
}

// Next-fit, in the epoch's order.
static void gx__text_pack(GxTextPacking *p)
{
    int64_t tokens = 0, others = 0;
    p->columns = 0;
    for (int64_t i = 0; i < p->texts; i++) {
        const int64_t text = p->order[i] = gx_permute(p->seed, p->epoch, p->texts, i), n = p->length[text],
                      m = p->other_length ? p->other_length[text] : 0;
        const int has_most = i > 0 && i - p->begin[p->columns - 1] == p->most_texts,
                  is_full = tokens + n > p->T || (m && others + m > p->other_T) || has_most;
        if (i == 0 || is_full) p->begin[p->columns++] = i, tokens = others = 0;
        tokens += n, others += m;
    }
    p->begin[p->columns] = p->texts;
}

void gx_text_packing_column(GxTextPacking *p, uint64_t seed, int64_t column, const int64_t **text, int64_t *n)
{
    *text = p->order, *n = 1;
    if (p->most_texts == 1) {
        p->order[0] = gx_permute(seed, column / p->texts, p->texts, column % p->texts);
        return;
    }
    if (p->epoch < 0 || seed != p->seed || column < p->first) { // from the beginning
        p->seed = seed, p->epoch = 0, p->first = 0;
        gx__text_pack(p);
    }
    while (column >= p->first + p->columns) {
        p->first += p->columns, p->epoch++;
        gx__text_pack(p);
    }
    const int64_t *begin = &p->begin[column - p->first];
    *text = p->order + begin[0], *n = begin[1] - begin[0];
}

int64_t gx_text_packing_columns(GxTextPacking *p, uint64_t seed)
{
    const int64_t *text;
    int64_t n;
    if (p->most_texts == 1) return p->texts;
    gx_text_packing_column(p, seed, 0, &text, &n);
    return p->columns;
}
#endif
