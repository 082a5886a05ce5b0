// batch_cut.h: with context parallelism (model/cp.h), the part of a batch that a rank of cp has. A task fills whole
// sequences, the same on all ranks of cp; this rank's rows of them are then copied to the batch that is computed. So no
// task knows of it, labels are those of whole sequences, and nothing is sent.
//
//     bytes = layout(self, &b, block, host_copy);             // the task's, for the rows that this rank has
//     all = bytes + gx_batch_cut_lay(&b, block, bytes);       // behind them what belongs to whole sequences
//     ...
//     fill(g, self, &whole, whole_block, seed, err);          // in host memory
//     gx_batch_cut(&b, &whole, block, host_copy);             // writes the host copy of b
//
// A target without rows has a label per row; one with rows keeps those that this rank has. Not supported are targets
// with values or with texts (parts), whose rows do not stand alone (GxTaskBatches.stands_alone).
#ifndef GX_BATCH_CUT_H
#define GX_BATCH_CUT_H
#include "../model/cp.h"
GX_BEGIN

// Sets what b has of whole sequences, behind `used` bytes of its block; returns how many bytes that takes. b's T, B,
// runs and cp are set, and the task has laid it out. block NULL: only the bytes are wanted.
int64_t gx_batch_cut_lay(GxBatch *b, char *block, int64_t used);
// whole: filled, with all of its arrays in host memory. block: b's in the device's memory, host_copy in the host's.
void gx_batch_cut(GxBatch *b, const GxBatch *whole, const char *block, char *host_copy);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BATCH_CUT_IMPLEMENTED)
#define GX_BATCH_CUT_IMPLEMENTED
#include <assert.h>
#include <string.h>

// The next n numbers of 4 bytes.
static const int32_t *gx__batch_cut_take(char *block, int64_t *used, int64_t n)
{
    const int32_t *here = block ? (const int32_t *)(void *)(block + *used) : NULL;
    *used += gx_round_up(4 * n, GX_ALIGN);
    return here;
}

int64_t gx_batch_cut_lay(GxBatch *b, char *block, int64_t used)
{
    int64_t at = gx_round_up(used, GX_ALIGN);
    const int32_t *documents = gx__batch_cut_take(block, &at, 2 * gx_batch_positions(b) * b->B);
    b->row_of = gx__batch_cut_take(block, &at, b->T * b->B);
    if (b->documents) b->documents = documents;
    for (int k = 0; k < GX_MAX_LOSSES; k++) {
        GxTarget *t = &b->target[k];
        if (!t->most) continue; // without rows of its own
        t->most = gx_min(t->most, b->T * b->B), t->n = gx_min(t->n, t->most);
        t->row_of = gx__batch_cut_take(block, &at, t->most);
    }
    return at - used;
}

typedef struct {
    const GxBatch *b;
    const char *block;
    char *host_copy;
} gx__BatchCut;

// The host's copy of one of b's arrays.
static int32_t *gx__batch_cut_host(const gx__BatchCut *c, const int32_t *array)
{
    return (int32_t *)(void *)(c->host_copy + ((const char *)array - c->block));
}

// Copies a number per row.
static void gx__batch_cut_rows(const gx__BatchCut *c, const int32_t *to, const int32_t *from)
{
    const GxRuns *runs = &c->b->runs;
    const int64_t B = c->b->B;
    if (!to || !from) return;
    for (int i = 0; i < runs->n; i++)
        memcpy(gx__batch_cut_host(c, to) + runs->run[i].row * B, from + runs->run[i].position * B,
               (size_t)(4 * runs->run[i].length * B));
}

// Rows of a target ascend, and runs ascend in rows and positions alike, so the rows that are kept ascend, too.
static void gx__batch_cut_target(const gx__BatchCut *c, GxTarget *to, const GxTarget *from)
{
    const int32_t *rows = gx_target_rows(from), *labels = gx_target_labels(from);
    assert(!from->values && !from->parts && !from->weighing && !from->logits.data);
    to->right = from->right;
    if (!from->rows) {
        gx__batch_cut_rows(c, to->labels, labels);
        return;
    }
    to->n = 0;
    for (int64_t i = 0; i < from->n; i++) {
        const int64_t row = gx_runs_row(&c->b->runs, rows[i] / c->b->B);
        if (row < 0) continue;
        gx__batch_cut_host(c, to->rows)[to->n] = (int32_t)(row * c->b->B + rows[i] % c->b->B);
        gx__batch_cut_host(c, to->row_of)[to->n] = rows[i];
        if (labels) gx__batch_cut_host(c, to->labels)[to->n] = labels[i];
        to->n++;
    }
}

void gx_batch_cut(GxBatch *b, const GxBatch *whole, const char *block, char *host_copy)
{
    const gx__BatchCut c = {b, block, host_copy};
    int32_t *row_of = gx__batch_cut_host(&c, b->row_of);
    gx__batch_cut_rows(&c, b->tokens, whole->tokens);
    gx__batch_cut_rows(&c, b->types, whole->types);
    gx__batch_cut_rows(&c, b->positions, whole->positions);
    if (b->documents) memcpy(gx__batch_cut_host(&c, b->documents), whole->documents, (size_t)(8 * whole->T * whole->B));
    for (int64_t t = 0; t < b->T; t++)
        for (int64_t i = 0; i < b->B; i++) row_of[t * b->B + i] = (int32_t)(gx_runs_position(&b->runs, t) * b->B + i);
    for (int k = 0; k < GX_MAX_LOSSES; k++)
        if (whole->target[k].rows || whole->target[k].labels)
            gx__batch_cut_target(&c, &b->target[k], &whole->target[k]);
    b->padding = b->cp->me == 0 ? whole->padding : 0; // it is summed over all ranks
}
#endif
