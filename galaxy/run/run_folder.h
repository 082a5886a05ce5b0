// run_folder.h: takes possession of the output folder for a training run: locks it, checks the room on the disk, sets
// apart what an earlier continuation wrote after the resumed step, and opens the log. Which folder belongs to which run
// is in output.h.
#ifndef GX_RUN_FOLDER_H
#define GX_RUN_FOLDER_H
#include "session.h"
GX_BEGIN

GxStatus gx_run_folder_open(GxSession *s); // on rank 0; after gx_session_load. Does nothing in a later session
// The most bytes that the run will need on the disk, including small things: copied source files, metadata, disk blocks
// and the log.
int64_t gx_run_folder_bytes(const GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_FOLDER_IMPLEMENTED)
#define GX_RUN_FOLDER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../io/config_json.h"
#include "best.h"
#include "checkpoint.h"
#include "output.h"
#include "report.h"

static GxStatus gx__run_folder_show_baseline(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxMetric baseline[GX_MAX_METRICS] = GX_ZERO;
    if (r->task->metrics.baseline) GX_TRY(r->task->metrics.baseline(r->self, baseline, &s->g->error));
    for (int i = 0; i < GX_MAX_METRICS && baseline[i].name; i++) {
        gx_report_baseline(s, &baseline[i]);
        GX_TRY(gx_baseline_log(&r->log, &baseline[i], &s->g->error));
    }
    return GX_OK;
}

// How many checkpoints will exist at once.
static int64_t gx__run_folder_planned_checkpoints(const GxTrainRun *r)
{
    const int64_t steps = gx_max(0, r->o.max_steps - r->at.step), every = r->o.save_steps, keep = r->o.save_total_limit,
                  best = gx_options_saves_best(&r->o) ? gx_ceil_div(steps, r->o.eval_steps) : 0,
                  all = (every ? gx_ceil_div(steps, every) : steps > 0) + best;
    return keep ? gx_min(all, keep + 1 + (best > 0)) : all; // a checkpoint is saved before an older one is removed
}

static int64_t gx__run_folder_checkpoint_bytes(const GxSession *s)
{
    return gx_checkpoint_bytes(&s->model, &s->optimizer, s->run->chosen.save_dtype);
}

static int64_t gx__run_folder_planned_bytes(const GxSession *s) // of the disk
{
    const int64_t bytes = gx__run_folder_checkpoint_bytes(s), count = gx__run_folder_planned_checkpoints(s->run);
    return count > INT64_MAX / 2 / gx_max(1, bytes) ? INT64_MAX / 2 : count * bytes;
}

int64_t gx_run_folder_bytes(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    int64_t files = 1 << 18;
    for (int i = 0; i < GX_SOURCE_FILES; i++) files += r->source.file[i].bytes;
    const int64_t count = gx__run_folder_planned_checkpoints(r), bytes = gx__run_folder_planned_bytes(s);
    if (count > INT64_MAX / 4 / files || bytes > INT64_MAX / 4) return INT64_MAX / 2;
    return bytes + count * files + (1 << 20);
}

// If the run continues in a folder other than its checkpoint's, run.json says where it came from, until the new folder
// has a checkpoint.
static GxStatus gx__run_folder_describe_run(const GxSession *s, GxRunInfo *r, GxError *err)
{
    memset(r, 0, sizeof *r);
    r->run = s->run->number, r->world = s->g->world, r->returns_to = -1;
    gx_best_describe(s->run, r);
    if (!s->run->resume.folder[0] || gx_output_contains(s->run->o.output_dir, s->run->resume.folder)) return GX_OK;
    char *from = realpath(s->run->resume.folder, NULL);
    const int fits = from && strlen(from) < sizeof r->from;
    if (fits) snprintf(r->from, sizeof r->from, "%s", from);
    free(from);
    return fits ? GX_OK : GX_FAIL(err, GX_ERR_IO, "cannot find out where %s is", s->run->resume.folder);
}

// Makes the folder this run's: what an earlier continuation wrote after the resumed step is moved to abandoned/.
static GxStatus gx__run_folder_claim_output(GxSession *s)
{
    GxTrainRun *r = s->run;
    const char *folder = r->o.output_dir;
    GxError *err = &s->g->error;
    char path[GX_PATH], abandoned[GX_PATH];
    GxRunInfo run;
    const int was_validated = r->best.validated == r->at.begun, // at the resumed step, during training
        evaluates_again = !gx_run_is_over(r) ? 0
                          : was_validated    ? 2
                                             : 1;
    int checkpoints = 0;
    int64_t lines = 0;
    GX_TRY(gx_path_join(abandoned, folder, GX_ABANDONED "/log.jsonl", err));
    GX_TRY(gx_path_join(r->log_path, folder, "log.jsonl", err));
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    GX_TRY(gx__run_folder_describe_run(s, &run, err));
    GX_TRY(gx_output_rewind(folder, &run, r->at.begun, &checkpoints, err));
    GX_TRY(gx_config_write_json(&r->config, path, err));
    GX_TRY(gx_log_open(&r->log, r->log_path, r->at.begun, evaluates_again, abandoned, &lines, err));
    gx_report_abandoned(s, checkpoints, lines);
    return GX_OK;
}

// All paths that the run may write must fit into GX_PATH, including the last checkpoint's.
static GxStatus gx__run_folder_check_output_length(const char *output_dir, GxError *err)
{
    static const char longest[] = "/checkpoint-999999999999999" GX_NEW_SUFFIX "/model-00001-of-00001.safetensors";
    const int most = GX_PATH - (int)sizeof longest;
    if ((int)strlen(output_dir) <= most) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_dir has %d bytes; with checkpoints and their files in it, %d fit",
                   (int)strlen(output_dir), most);
}

GxStatus gx_run_folder_open(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxError *err = &s->g->error;
    const char *folder = r->o.output_dir;
    if (!gx_session_is_first(s) || r->log.is_open) return GX_OK; // an earlier session has opened it
    GX_TRY(gx__run_folder_check_output_length(folder, err));
    GX_TRY(gx_folder_make(folder, err));
    GX_TRY(gx_output_lock(&r->lock, folder, err));
    GX_TRY(gx_output_refuse_conflicts(folder, r->o.overwrite_output_dir ? 0 : r->number, r->at.begun, r->o.max_steps,
                                      err));
    if (r->o.overwrite_output_dir) GX_TRY(gx_output_clear(folder, err));
    else GX_TRY(gx_output_refuse_used(folder, r->number, r->resume.is_home, err)); // again, under the lock
    GX_TRY(gx_output_check_space(folder, gx__run_folder_checkpoint_bytes(s), gx__run_folder_planned_checkpoints(r),
                                 &s->g->log, err));
    if (!r->number) r->number = gx_run_new_number();
    GX_TRY(gx__run_folder_claim_output(s));
    return gx__run_folder_show_baseline(s);
}
#endif
