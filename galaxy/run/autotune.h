// autotune.h: --autotune FILE: selects the fastest algorithm for each shape of matrix product: on a card one of
// cuBLASLt's, on the CPU a function of oneDNN or Galaxy's own kernels (cpu/tune.h). How products are timed and how the
// choices are stored is the device's business (ops/device.h: tune); this header decides when it happens and makes the
// ranks agree.
//
// In the first step each rank times its own shapes of products, by itself, so that no rank waits for one that has other
// shapes; the step's results are those of the default algorithms. After that step the ranks merge their tables: where
// two ranks chose differently for the same shape, the lower rank's choice counts. From then on all ranks compute by the
// same table. Shapes that come up later use the default algorithms.
//
// The table is saved in FILE, which later runs read before their first step and add their shapes to, and in every
// checkpoint. A resumed run takes its checkpoint's table, even if other algorithms would be faster now, so that its
// results stay bitwise the same. A table holds for one kind of card and one version of cuBLASLt, or for one kind of
// CPU, a version of oneDNN and a number of threads; elsewhere a warning says so, and the products are timed again.
//
// FILE is written behind the first step, unless the choices are a checkpoint's. What is there must be a table: anything
// else is refused before the run writes anything.
#ifndef GX_AUTOTUNE_H
#define GX_AUTOTUNE_H
#include "options.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

// Refuses --autotune on a device that cannot do it. Call it before the plan is made.
GxStatus gx_autotune_check(const GxTrainOptions *o, const GxContext *g, GxError *err);
// Refuses an existing table that cannot be read. Call it before the run writes anything.
GxStatus gx_autotune_check_table(const GxTrainer *t);
// Loads the existing table, if there is one. Call it before anything is computed that a resumed run computes again.
GxStatus gx_autotune_open(GxTrainer *t);
void gx_autotune_agree(GxTrainer *t); // after a step: merges the ranks' tables, if products were timed in it

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_AUTOTUNE_IMPLEMENTED)
#define GX_AUTOTUNE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agree.h"
#include "trainer.h"

enum { GX__AUTOTUNE_MOST = 1 << 20 }; // largest size of a table, in bytes

GxStatus gx_autotune_check(const GxTrainOptions *o, const GxContext *g, GxError *err)
{
    if (!o->autotune[0] || g->device->tune || gx_options_is_inference(o)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--autotune chooses among ways to compute a matrix product; on the device %s this program has one "
                   "alone%s: leave it out, or say --autotune \"\"",
                   g->device->name, strcmp(g->device->name, "cpu") ? "" : " (a build with oneDNN has others)");
}

// Other devices or libraries would give other bits for the same product.
static GxStatus gx__autotune_check_ranks(GxContext *g)
{
    int64_t bytes;
    char *mine = g->device->tuned_text(g); // which has no shapes yet
    if (!mine) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a table of products");
    char *first = gx_agree_on_text(g, 0, mine, mine ? (int64_t)strlen(mine) : 0, &bytes);
    if (!gx_failed(g) && strcmp(first, mine))
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "--autotune needs the same device, library and threads on all ranks: rank 0 has \"%.*s\", rank %d "
                "\"%.*s\"; leave it out",
                (int)strcspn(first, "\n"), first, g->rank, (int)strcspn(mine, "\n"), mine);
    free(first);
    free(mine);
    return gx_status(g);
}

// The table that rank 0 found.
typedef struct {
    char *text; // NULL: none; free() it
    int64_t bytes, is_checkpoint;
} gx__AutotuneTable;

// Refuses a FILE that no table can be written to.
static GxStatus gx__autotune_check_file(const char *file, GxError *err)
{
    if (gx_path_is_folder(file))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--autotune %s is a folder; it must be a file, or the name of a new one",
                       file);
    if (!gx_path_is_file(file) && (access(file, F_OK) == 0 || gx_path_is_broken(file)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--autotune %s is no regular file; it must be a file, or the name of a new one", file);
    return GX_OK;
}

// The table in `path`: *text is NULL where the file is empty, or for another device or library.
static GxStatus gx__autotune_load(const GxTrainer *t, const char *path, int is_told, gx__AutotuneTable *table,
                                  GxError *err)
{
    GxContext *g = t->g;
    GxError why = GX_ZERO;
    GX_TRY(gx_file_read(path, GX__AUTOTUNE_MOST, &table->text, &table->bytes, err));
    const GxStatus status = table->bytes ? g->device->take_tuned(g, table->text, &why) : GX_ERR_UNSUPPORTED;
    g->device->tune(g, 0); // forgets it again: all ranks take it together
    if (status == GX_OK) return GX_OK;
    if (status == GX_ERR_UNSUPPORTED && table->bytes && is_told)
        gx_log(&g->log, GX_LOG_WARNING, "%s is not for this device and library: %s; its choices are not taken", path,
               why.message);
    free(table->text);
    table->text = NULL, table->bytes = 0;
    if (status == GX_ERR_UNSUPPORTED) return GX_OK;
    return GX_FAIL(err, status,
                   "%s: %s; if it is a damaged table, remove it, and products are timed anew, else name another file",
                   path, why.message);
}

// On rank 0: the table of the checkpoint to resume, if it is for this device and library, else that of FILE. is_told: a
// table that is not is warned of.
static GxStatus gx__autotune_find(const GxTrainer *t, int is_told, gx__AutotuneTable *table, GxError *err)
{
    char path[GX_PATH];
    gx__AutotuneTable file = GX_ZERO;
    GX_TRY(gx__autotune_check_file(t->o.autotune, err));
    if (t->resume.folder[0]) {
        GX_TRY(gx_path_join(path, t->resume.folder, GX_AUTOTUNE_FILE, err));
        if (gx_path_is_file(path)) GX_TRY(gx__autotune_load(t, path, is_told, table, err));
        table->is_checkpoint = table->text != NULL;
    }
    // looked at in any case: it may be written
    const GxStatus status = gx_path_is_file(t->o.autotune)
                                ? gx__autotune_load(t, t->o.autotune, is_told && !table->text, &file, err)
                                : GX_OK;
    if (table->text || status != GX_OK) free(file.text);
    else *table = file;
    return status;
}

GxStatus gx_autotune_check_table(const GxTrainer *t)
{
    GxContext *g = t->g;
    gx__AutotuneTable table = GX_ZERO;
    if (!t->o.autotune[0] || !g->device->tune || !gx_trainer_is_first(t) || gx_failed(g)) return gx_status(g);
    gx__autotune_find(t, 0, &table, &g->error);
    free(table.text);
    return gx_status(g);
}

GxStatus gx_autotune_open(GxTrainer *t)
{
    GxContext *g = t->g;
    gx__AutotuneTable table = GX_ZERO;
    int64_t bytes = 0;
    if (!t->o.autotune[0] || !g->device->tune || gx_failed(g)) return gx_status(g);
    gx_at(g, -1, "autotune");
    GX_TRY(gx__autotune_check_ranks(g));
    if (gx_trainer_is_first(t)) gx__autotune_find(t, 1, &table, &g->error);
    char *text = gx_agree_on_text(g, 0, table.text, table.bytes, &bytes); // on a failed context this tells the others
    gx_broadcast(g, GX_AXIS_ALL, 0, &table.is_checkpoint, 1, GX_I64);
    if (!gx_failed(g) && bytes && g->device->take_tuned(g, text, &g->error) == GX_OK)
        t->tuned = g->device->tuned_text(g);
    t->times_products = !gx_failed(g) && !gx_options_is_inference(&t->o) && !table.is_checkpoint;
    if (t->times_products) g->device->tune(g, 1);
    free(text);
    free(table.text);
    return gx_status(g);
}

static int gx__autotune_lines(const char *text) // returns the number of products
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n - 1;
}

// Writes the merged table into FILE, on rank 0. If that fails, a warning says so and the run goes on.
static void gx__autotune_write(GxTrainer *t)
{
    GxError disk = GX_ZERO;
    GxLogger *log = &t->g->log;
    char *file = realpath(t->o.autotune, NULL); // where a link leads to; NULL: there is no such file yet
    const GxStatus written = gx_file_write(file ? file : t->o.autotune, t->tuned, (int64_t)strlen(t->tuned), &disk);
    const int shapes = gx__autotune_lines(t->tuned);
    if (written == GX_OK)
        gx_log(log, GX_LOG_INFO,
               "--autotune: %d shapes of products have the algorithm that was fastest: they are listed in %s", shapes,
               t->o.autotune);
    else
        gx_log(log, GX_LOG_WARNING,
               "--autotune: %d shapes of products have the algorithm that was fastest; %s; the choices are in this "
               "run's checkpoints alone",
               shapes, disk.message);
    free(file);
}

void gx_autotune_agree(GxTrainer *t)
{
    GxContext *g = t->g;
    int64_t bytes;
    if (!t->times_products) return;
    t->times_products = 0;
    gx_at(g, -1, "autotune");
    char *mine = gx_failed(g) ? NULL : g->device->tuned_text(g);
    if (!mine && !gx_failed(g)) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a table of products");
    if (!gx_failed(g)) g->device->tune(g, 0);
    for (int r = 0; r < g->world; r++) { // on a failed context this tells the other ranks
        char *text = gx_agree_on_text(g, r, mine, mine ? (int64_t)strlen(mine) : 0, &bytes);
        if (!gx_failed(g)) g->device->take_tuned(g, text, &g->error);
        free(text);
    }
    free(mine);
    free(t->tuned);
    t->tuned = gx_failed(g) ? NULL : g->device->tuned_text(g);
    if (t->tuned && gx_trainer_is_first(t)) gx__autotune_write(t);
}
#endif
