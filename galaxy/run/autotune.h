// autotune.h: --autotune FILE selects the fastest algorithm for each shape of matrix product: among cuBLASLt's on a
// card, and among oneDNN's functions and Galaxy's own kernels on the CPU (cpu/tune.h). The device times products and
// stores the choices (ops/device.h: tune); this header decides when that happens and makes the ranks agree.
//
// In the first step each rank times its own shapes of products independently, so that no rank waits for one that has
// other shapes; the step's results are those of the default algorithms. After that step the ranks merge their tables:
// if two ranks chose differently for the same shape, the lower rank's choice is used. From then on all ranks compute
// with the same table. Shapes that come up later use the default algorithms.
//
// The table is saved in FILE, which later runs read before their first step and add their shapes to, and in every
// checkpoint. A resumed run takes its checkpoint's table, even if other algorithms would be faster now, so that its
// results stay bitwise the same; it times nothing, and neither reads nor writes FILE. A table is valid for one kind of
// card and one version of cuBLASLt, or for one kind of CPU, one version of oneDNN and one number of threads; elsewhere
// a warning says so, and the products are timed again.
//
// FILE is written after the first step. An existing file must be a table: anything else is refused before the run
// writes anything, and so is a path in a checkpoint or in the run's own folder. Shapes that another run has added
// meanwhile are kept; if two runs write at the same moment, one of them wins.
#ifndef GX_AUTOTUNE_H
#define GX_AUTOTUNE_H
#include "session.h"
GX_BEGIN

// A watcher: applies the table that was found (gx_prepare comes before it and never uses a table), times products in
// the first step, and merges the ranks' tables after it.
GxStatus gx_autotune_watch(GxTrainRun *r, GxError *err);
// Finds the initial table: reads it on rank 0, and refuses files that cannot be one, and ranks for which it is not
// valid. Call it before the run writes anything.
GxStatus gx_autotune_find(GxSession *s);

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

enum { GX__AUTOTUNE_MOST = 1 << 20 }; // largest size of a table, in bytes

typedef struct {
    int times; // this step times the algorithms
} gx__Autotune;

// Other devices or libraries would give other bits for the same product.
static GxStatus gx__autotune_check_ranks(GxContext *g)
{
    int64_t bytes;
    char *mine = g->device->tuned_text(g); // it has no shapes yet
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

// Refuses a FILE to which no table can be written.
static GxStatus gx__autotune_check_file(const GxTrainOptions *o, GxError *err)
{
    const char *file = o->autotune;
    char folder[GX_PATH];
    if (gx_output_contains(o->output_dir, file))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--autotune %s lies in --output_dir %s, but it is for other runs, too (each checkpoint keeps a "
                       "copy); name a file elsewhere",
                       file, o->output_dir);
    GX_TRY(gx_output_refuse_nested("--autotune", file, err));
    if (gx_path_is_folder(file))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--autotune %s is a folder; expected a file, or the name of a new one",
                       file);
    if (!gx_path_is_file(file) && (access(file, F_OK) == 0 || gx_path_is_broken(file)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--autotune %s is not a regular file; expected a file, or the name of a new one", file);
    gx_path_parent(folder, file);
    if (!gx_path_is_folder(folder))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--autotune %s: the folder %s does not exist; make it first", file,
                       folder);
    return GX_OK;
}

// The table in `path` becomes run->tuned: NULL if the file is empty, or for another device or library.
static GxStatus gx__autotune_read(GxSession *s, const char *path, GxError *err)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError why = GX_ZERO;
    char *text;
    int64_t bytes;
    GX_TRY(gx_file_read(path, GX__AUTOTUNE_MOST, &text, &bytes, err));
    GxStatus status = GX_ERR_UNSUPPORTED;
    if (bytes && (int64_t)strlen(text) < bytes) status = GX_FAIL(&why, GX_ERR_FORMAT, "it has a byte of value 0");
    else if (bytes) status = g->device->take_tuned(g, text, &why);
    g->device->tune(g, 0); // forgets it again: later all ranks take it together
    if (status == GX_OK) {
        r->tuned = text;
        return GX_OK;
    }
    free(text);
    if (status != GX_ERR_UNSUPPORTED)
        return GX_FAIL(
            err, status,
            "%s: %s; if it is a damaged table, remove it, and the products are timed again; otherwise name another "
            "file",
            path, why.message);
    if (bytes && !gx_options_is_inference(&r->o))
        gx_log(&g->log, GX_LOG_WARNING, "%s is for another device or library: %s; its choices are not used", path,
               why.message);
    return GX_OK;
}

// On rank 0: the table of the checkpoint to resume, if it is for this device and library, otherwise FILE's.
static GxStatus gx__autotune_look(GxSession *s, GxError *err)
{
    GxTrainRun *r = s->run;
    char path[GX_PATH];
    if (r->resume.folder[0]) {
        GX_TRY(gx_path_join(path, r->resume.folder, GX_AUTOTUNE_FILE, err));
        if (gx_path_is_file(path)) GX_TRY(gx__autotune_read(s, path, err));
        r->tuned_is_kept = r->tuned != NULL;
    }
    if (gx_options_is_inference(&r->o)) return GX_OK;
    if (r->tuned_is_kept) {
        gx_log(&s->g->log, GX_LOG_INFO, "--autotune: the algorithms of products come from %s; %s is not needed", path,
               r->o.autotune);
        return GX_OK;
    }
    GX_TRY(gx__autotune_check_file(&r->o, err));
    return gx_path_is_file(r->o.autotune) ? gx__autotune_read(s, r->o.autotune, err) : GX_OK;
}

GxStatus gx_autotune_find(GxSession *s)
{
    GxContext *g = s->g;
    if (!s->run->o.autotune[0] || !g->device->tune || gx_failed(g)) return gx_status(g);
    gx_at(g, -1, "autotune");
    free(s->run->tuned); // an earlier session's
    s->run->tuned = NULL, s->run->tuned_is_kept = 0;
    gx__autotune_check_ranks(g);
    if (!gx_failed(g) && gx_session_is_first(s)) gx__autotune_look(s, &g->error);
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    return gx_status(g);
}

// All ranks take the table that was found, before anything is computed that a resumed run must repeat with it.
static void gx__autotune_opened(void *self, GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    gx__Autotune *a = (gx__Autotune *)self;
    int64_t bytes = 0, is_kept = r->tuned_is_kept;
    if (!r->o.autotune[0] || !g->device->tune || gx_failed(g)) return;
    gx_at(g, -1, "autotune");
    char *text = gx_agree_on_text(g, 0, r->tuned, r->tuned ? (int64_t)strlen(r->tuned) : 0, &bytes);
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_kept, 1, GX_I64);
    free(r->tuned);
    r->tuned = NULL;
    if (!gx_failed(g) && bytes && g->device->take_tuned(g, text, &g->error) == GX_OK)
        r->tuned = g->device->tuned_text(g);
    a->times = !gx_failed(g) && !gx_options_is_inference(&r->o) && !is_kept;
    if (a->times) g->device->tune(g, 1);
    free(text);
}

static int gx__autotune_lines(const char *text) // returns the number of products
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n - 1;
}

// 1: the table has a line for the product of `line`.
static int gx__autotune_has(const char *table, const char *line)
{
    size_t key = strcspn(line, "\n"); // the product is up to the last space, the algorithm after it
    while (key && line[key] != ' ') key--;
    for (; table; table = strchr(table, '\n'), table += table != NULL)
        if (!strncmp(table, line, key + 1)) return 1;
    return 0;
}

// Returns the table with those products added that only `other` has, which is for the same device and library. NULL:
// out of memory.
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

// Writes all ranks' choices to FILE, and keeps what another run has added to it since this one began.
static GxStatus gx__autotune_write_file(const GxTrainRun *r, const char *file, GxError *err)
{
    char *now = NULL;
    int64_t bytes = 0;
    const size_t header = strcspn(r->tuned, "\n") + 1;
    if (gx_path_is_file(file)) GX_TRY(gx_file_read(file, GX__AUTOTUNE_MOST, &now, &bytes, err));
    GxStatus status = GX_OK;
    if (bytes && strncmp(now, GX_TUNED, strlen(GX_TUNED)))
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s is no longer a table, and is left as it is", file);
    char *text = gx__autotune_merge(r->tuned, bytes && !strncmp(now, r->tuned, header) ? now : r->tuned);
    if (!text) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of products");
    if (status == GX_OK) status = gx_file_write(file, text, (int64_t)strlen(text), err);
    free(now);
    free(text);
    return status;
}

// On rank 0. If FILE cannot be written, a warning says so and the run goes on.
static void gx__autotune_write(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxError why = GX_ZERO;
    GxLogger *log = &s->g->log;
    const GxStatus written = gx__autotune_write_file(r, r->o.autotune, &why);
    const int shapes = gx__autotune_lines(r->tuned);
    if (written != GX_OK)
        gx_log(log, GX_LOG_WARNING,
               "--autotune: the fastest algorithms for %d shapes of products were chosen; %s; the choices are stored "
               "only in this run's checkpoints",
               shapes, why.message);
    else if (shapes)
        gx_log(log, GX_LOG_INFO,
               "--autotune: the fastest algorithms for %d shapes of products were chosen: they are listed in %s",
               shapes, r->o.autotune);
    else gx_log(log, GX_LOG_INFO, "--autotune: each of this run's products can be computed in only one way here");
}

// After a step: merges the ranks' tables, if products were timed in it.
static void gx__autotune_stepped(void *self, GxSession *s)
{
    GxContext *g = s->g;
    gx__Autotune *a = (gx__Autotune *)self;
    int64_t bytes;
    if (!a->times) return;
    a->times = 0;
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
    free(s->run->tuned);
    s->run->tuned = gx_failed(g) ? NULL : g->device->tuned_text(g);
    if (s->run->tuned && gx_session_is_first(s)) gx__autotune_write(s);
}

GxStatus gx_autotune_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__Autotune), err);
    if (w) w->opened = gx__autotune_opened, w->stepped = gx__autotune_stepped;
    return gx_error_code(err);
}
#endif
