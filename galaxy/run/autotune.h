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
// results stay bitwise the same; it times nothing, and neither reads nor writes FILE. A table holds for one kind of
// card and one version of cuBLASLt, or for one kind of CPU, a version of oneDNN and a number of threads; elsewhere a
// warning says so, and the products are timed again.
//
// FILE is written behind the first step. What is there must be a table: anything else is refused before the run writes
// anything, and so is a place in a checkpoint or in the run's own folder. Shapes that another run has added meanwhile
// stay; of two runs that write in the same moment one counts.
#ifndef GX_AUTOTUNE_H
#define GX_AUTOTUNE_H
#include "options.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

// Refuses --autotune on a device that cannot do it. Call it before the plan is made.
GxStatus gx_autotune_check(const GxTrainOptions *o, const GxContext *g, GxError *err);
// Finds the table to begin with: reads it, on rank 0, and refuses what cannot be one, and ranks on which it would not
// hold. Call it before the run writes anything.
GxStatus gx_autotune_find(GxTrainer *t);
// All ranks take what was found. Call it before anything is computed that a resumed run computes again, and behind what
// a resumed run computes without a table.
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
#include "../ops/tuned.h"
#include "agree.h"
#include "output.h"
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

// Refuses a FILE that no table can be written to.
static GxStatus gx__autotune_check_file(const GxTrainOptions *o, GxError *err)
{
    const char *file = o->autotune;
    char folder[GX_PATH];
    if (gx_output_contains(o->output_dir, file))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--autotune %s lies in --output_dir %s; it is for other runs, too (each checkpoint keeps a copy): "
            "name a file elsewhere",
            file, o->output_dir);
    GX_TRY(gx_output_refuse_nested("--autotune", file, err));
    if (gx_path_is_folder(file))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--autotune %s is a folder; it must be a file, or the name of a new one",
                       file);
    if (!gx_path_is_file(file) && (access(file, F_OK) == 0 || gx_path_is_broken(file)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--autotune %s is no regular file; it must be a file, or the name of a new one", file);
    gx_path_parent(folder, file);
    if (!gx_path_is_folder(folder))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--autotune %s: there is no folder %s; make it first", file, folder);
    return GX_OK;
}

// The table in `path` becomes t->tuned: NULL where the file is empty, or for another device or library.
static GxStatus gx__autotune_read(GxTrainer *t, const char *path, GxError *err)
{
    GxContext *g = t->g;
    GxError why = GX_ZERO;
    char *text;
    int64_t bytes;
    GX_TRY(gx_file_read(path, GX__AUTOTUNE_MOST, &text, &bytes, err));
    GxStatus status = GX_ERR_UNSUPPORTED;
    if (bytes && (int64_t)strlen(text) < bytes) status = GX_FAIL(&why, GX_ERR_FORMAT, "it has a byte of value 0");
    else if (bytes) status = g->device->take_tuned(g, text, &why);
    g->device->tune(g, 0); // forgets it again: all ranks take it together
    if (status == GX_OK) {
        t->tuned = text;
        return GX_OK;
    }
    free(text);
    if (status != GX_ERR_UNSUPPORTED)
        return GX_FAIL(err, status,
                       "%s: %s; if it is a damaged table, remove it, and products are timed anew, else name another "
                       "file",
                       path, why.message);
    if (bytes && !gx_options_is_inference(&t->o))
        gx_log(&g->log, GX_LOG_WARNING, "%s is not for this device and library: %s; its choices are not taken", path,
               why.message);
    return GX_OK;
}

// On rank 0: the table of the checkpoint to resume, if it is for this device and library, else that of FILE.
static GxStatus gx__autotune_look(GxTrainer *t, GxError *err)
{
    char path[GX_PATH];
    if (t->resume.folder[0]) {
        GX_TRY(gx_path_join(path, t->resume.folder, GX_AUTOTUNE_FILE, err));
        if (gx_path_is_file(path)) GX_TRY(gx__autotune_read(t, path, err));
        t->tuned_is_kept = t->tuned != NULL;
    }
    if (gx_options_is_inference(&t->o)) return GX_OK;
    if (t->tuned_is_kept) {
        gx_log(&t->g->log, GX_LOG_INFO, "--autotune: algorithms of products are those of %s; %s is not needed", path,
               t->o.autotune);
        return GX_OK;
    }
    GX_TRY(gx__autotune_check_file(&t->o, err));
    return gx_path_is_file(t->o.autotune) ? gx__autotune_read(t, t->o.autotune, err) : GX_OK;
}

GxStatus gx_autotune_find(GxTrainer *t)
{
    GxContext *g = t->g;
    if (!t->o.autotune[0] || !g->device->tune || gx_failed(g)) return gx_status(g);
    gx_at(g, -1, "autotune");
    gx__autotune_check_ranks(g);
    if (!gx_failed(g) && gx_trainer_is_first(t)) gx__autotune_look(t, &g->error);
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    return gx_status(g);
}

GxStatus gx_autotune_open(GxTrainer *t)
{
    GxContext *g = t->g;
    int64_t bytes = 0, is_kept = t->tuned_is_kept;
    if (!t->o.autotune[0] || !g->device->tune || gx_failed(g)) return gx_status(g);
    gx_at(g, -1, "autotune");
    char *text = gx_agree_on_text(g, 0, t->tuned, t->tuned ? (int64_t)strlen(t->tuned) : 0, &bytes);
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_kept, 1, GX_I64);
    free(t->tuned);
    t->tuned = NULL;
    if (!gx_failed(g) && bytes && g->device->take_tuned(g, text, &g->error) == GX_OK)
        t->tuned = g->device->tuned_text(g);
    t->times_products = !gx_failed(g) && !gx_options_is_inference(&t->o) && !is_kept;
    if (t->times_products) g->device->tune(g, 1);
    free(text);
    return gx_status(g);
}

static int gx__autotune_lines(const char *text) // returns the number of products
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n - 1;
}

// Whether a table has a line for the product of this one.
static int gx__autotune_has(const char *table, const char *line)
{
    size_t key = strcspn(line, "\n"); // up to the last space: the product's; behind it is the algorithm
    while (key && line[key] != ' ') key--;
    for (; table; table = strchr(table, '\n'), table += table != NULL)
        if (!strncmp(table, line, key + 1)) return 1;
    return 0;
}

// The table with those products of another one for the same device and library that it lacks; NULL: no memory.
static char *gx__autotune_merge(const char *table, const char *other)
{
    char *merged = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&merged, &size);
    if (!out) return NULL;
    fputs(table, out);
    for (const char *line = strchr(other, '\n') + 1; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!gx__autotune_has(table, line)) fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
    if (fclose(out) == 0) return merged;
    free(merged);
    return NULL;
}

// Writes all ranks' choices into FILE, and what another run has added to it since this one began.
static GxStatus gx__autotune_write_file(const GxTrainer *t, const char *file, GxError *err)
{
    char *now = NULL;
    int64_t bytes = 0;
    const size_t header = strcspn(t->tuned, "\n") + 1;
    if (gx_path_is_file(file)) GX_TRY(gx_file_read(file, GX__AUTOTUNE_MOST, &now, &bytes, err));
    GxStatus status = GX_OK;
    if (bytes && strncmp(now, GX_TUNED, strlen(GX_TUNED)))
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s is no table any more and stays as it is", file);
    char *text = gx__autotune_merge(t->tuned, bytes && !strncmp(now, t->tuned, header) ? now : t->tuned);
    if (!text) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of products");
    if (status == GX_OK) status = gx_file_write(file, text, (int64_t)strlen(text), err);
    free(now);
    free(text);
    return status;
}

// On rank 0. If FILE cannot be written, a warning says so and the run goes on.
static void gx__autotune_write(const GxTrainer *t)
{
    GxError why = GX_ZERO;
    GxLogger *log = &t->g->log;
    const GxStatus written = gx__autotune_write_file(t, t->o.autotune, &why);
    const int shapes = gx__autotune_lines(t->tuned);
    if (written != GX_OK)
        gx_log(log, GX_LOG_WARNING,
               "--autotune: %d shapes of products have the algorithm that was fastest; %s; the choices are in this "
               "run's checkpoints alone",
               shapes, why.message);
    else if (shapes)
        gx_log(log, GX_LOG_INFO,
               "--autotune: %d shapes of products have the algorithm that was fastest: they are listed in %s", shapes,
               t->o.autotune);
    else gx_log(log, GX_LOG_INFO, "--autotune: each of this run's products can be computed in one way alone here");
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
