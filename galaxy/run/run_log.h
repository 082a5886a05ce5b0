// run_log.h: log.jsonl, a run's figures for programs to read: a line of JSON for each line of progress, and for each
// validation. (For people: report.h.)
#ifndef GX_RUN_LOG_H
#define GX_RUN_LOG_H
#include "../io/json.h"
#include "../io/files.h"
#include "metrics.h"
GX_BEGIN

// log.jsonl, to which whole lines are appended. If a line cannot be written, the function returns GX_ERR_IO and the
// line is kept in memory; it is written with the next line or by gx_log_sync. The function may be called again.
typedef struct {
    int is_open, fd;
    char path[GX_PATH];
    int64_t bytes; // size of the lines in the file
    char *waiting; // lines that are not written yet
    int64_t waiting_bytes, waiting_room;
} GxRunLog;

// Opens the log to continue after step `step`: later lines, which a run wrote before it was resumed from an earlier
// step, are appended to the file `apart` (its folder is made), after a line {"left_at_step": step}; *set_apart: their
// number. evaluates_again 1: removes the validations of that step, too; 2: keeps the first of them, which is due by
// --eval_steps.
GxStatus gx_log_open(GxRunLog *l, const char *path, int64_t step, int evaluates_again, const char *apart,
                     int64_t *set_apart, GxError *err);
GxStatus gx_log_sync(GxRunLog *l, GxError *err);  // writes waiting lines and syncs the file
GxStatus gx_log_close(GxRunLog *l, GxError *err); // tries to write once more; closed even if that fails

GxStatus gx_progress_log(GxRunLog *l, const GxProgress *p, GxError *err);
// Appends {"step": 3, "eval_loss": 1.5, "eval_bits_per_byte": 2.164, "eval_tokens": 2048, "epoch": 0.5}: means over
// `count` of what is `counted`. With the weights of another step: {"step": 3, "weights_of_step": 2, "eval_loss": ...
// epoch 0: unknown, and left out.
GxStatus gx_evaluation_log(GxRunLog *l, int64_t step, double epoch, int64_t weights_of, const GxMetric *metric, int n,
                           int64_t count, const char *counted, GxError *err);
GxStatus gx_baseline_log(GxRunLog *l, const GxMetric *metric, GxError *err);
// Appends {"step": 40, "dp_samples": [28, 4], "seconds_per_sample": [0.1, 0.72]}: of each of n copies of the model, from
// the next step on; what a sample took before.
GxStatus gx_samples_log(GxRunLog *l, int64_t step, const int64_t *samples, const double *seconds, int n, GxError *err);

// Finds the validation with the smallest value of `name` ("loss") before step `step` in the log; best->step -1: none.
typedef struct {
    int64_t step, count; // count: number of samples or tokens in the mean; 0: unknown
    double value;
} GxBestEvaluation;
GxStatus gx_log_best(const char *path, const char *name, const char *counted, int64_t step, GxBestEvaluation *best,
                     GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_LOG_IMPLEMENTED)
#define GX_RUN_LOG_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__RUN_LOG_CAP = 1 << 30 };

static const char *gx__run_log_number(double x, char text[40]) // JSON has no NaN, so it becomes null
{
    if (isfinite(x)) snprintf(text, 40, "%.9g", x);
    else snprintf(text, 40, "null");
    if (isfinite(x) && !strpbrk(text, ".e")) strcat(text, ".0");
    return text;
}

static GxStatus gx__run_log_keep_line(GxRunLog *l, const char *line, int64_t n, GxError *err)
{
    if (l->waiting_bytes + n > l->waiting_room) {
        const int64_t room = 2 * (l->waiting_bytes + n);
        char *grown = (char *)realloc(l->waiting, (size_t)room);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lines of %s", l->path);
        l->waiting = grown, l->waiting_room = room;
    }
    memcpy(l->waiting + l->waiting_bytes, line, (size_t)n);
    l->waiting_bytes += n;
    return GX_OK;
}

// Writes all waiting lines or none: no partial line stays in the file.
static GxStatus gx__run_log_write(GxRunLog *l, GxError *err)
{
    if (gx_file_write_at(l->fd, l->path, l->waiting, l->waiting_bytes, l->bytes, err) != GX_OK) {
        if (ftruncate(l->fd, (off_t)l->bytes) != 0)
            return gx_error_code(err); // a partial line is skipped when the log is read
        return gx_error_code(err);
    }
    l->bytes += l->waiting_bytes;
    l->waiting_bytes = 0;
    return GX_OK;
}

static GxStatus gx__run_log_line(GxRunLog *l, const char *line, GxError *err)
{
    if (!l->is_open) return GX_OK;
    GX_TRY(gx__run_log_keep_line(l, line, (int64_t)strlen(line), err));
    return gx__run_log_write(l, err);
}

GxStatus gx_log_sync(GxRunLog *l, GxError *err)
{
    if (!l->is_open) return GX_OK;
    if (l->waiting_bytes) GX_TRY(gx__run_log_write(l, err));
    if (fsync(l->fd) == 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO, "cannot sync %s: %s", l->path, strerror(errno));
}

GxStatus gx_log_close(GxRunLog *l, GxError *err)
{
    if (!l->is_open) return GX_OK;
    const GxStatus status = l->waiting_bytes ? gx__run_log_write(l, err) : GX_OK;
    close(l->fd);
    free(l->waiting);
    memset(l, 0, sizeof *l);
    return status;
}

GxStatus gx_progress_log(GxRunLog *l, const GxProgress *p, GxError *err)
{
    char card[40] = "", padding[40] = "", epoch[40] = "", each[120 * (GX_MAX_LOSSES + GX_MAX_METRICS)] = "", n[5][40],
         line[sizeof each + 600];
    for (int k = 0; k < p->losses && p->loss_names; k++) {
        const size_t end = strlen(each);
        snprintf(each + end, sizeof each - end, ", \"%.60s\": %s", p->loss_names[k],
                 gx__run_log_number(p->each[k], n[0]));
    }
    for (int k = 0; k < p->metrics; k++) {
        const size_t end = strlen(each);
        snprintf(each + end, sizeof each - end, ", \"%.60s\": %s", p->metric[k].name,
                 gx__run_log_number(p->metric[k].value, n[0]));
    }
    if (p->padding > 0) snprintf(padding, sizeof padding, ", \"padding\": %.4f", p->padding);
    if (p->epoch > 0) snprintf(epoch, sizeof epoch, ", \"epoch\": %.4f", p->epoch);
    if (p->card_mb > 0) snprintf(card, sizeof card, ", \"card_mb\": %.1f", p->card_mb);
    snprintf(line, sizeof line,
             "{\"step\": %ld, \"loss\": %s%s, \"grad_norm\": %s, \"lr\": %s%s, \"tokens_per_s\": %s%s, "
             "\"gflops\": %s, \"memory_mb\": %.1f%s, \"skipped\": %s}\n",
             (long)p->step, gx__run_log_number(p->loss, n[0]), each, gx__run_log_number(p->grad_norm, n[1]),
             gx__run_log_number(p->lr, n[2]), epoch, gx__run_log_number(p->tokens_per_s, n[3]), padding,
             gx__run_log_number(p->gflops, n[4]), p->memory_mb, card, p->skipped ? "true" : "false");
    return gx__run_log_line(l, line, err);
}

GxStatus gx_evaluation_log(GxRunLog *l, int64_t step, double epoch, int64_t weights_of, const GxMetric *metric, int n,
                           int64_t count, const char *counted, GxError *err)
{
    char line[128 * (GX_MAX_METRICS + 2)], number[40];
    int length = snprintf(line, sizeof line, "{\"step\": %ld", (long)step);
    if (weights_of != step)
        length += snprintf(line + length, sizeof line - (size_t)length, ", \"weights_of_step\": %ld", (long)weights_of);
    for (int i = 0; i < n; i++)
        length += snprintf(line + length, sizeof line - (size_t)length, ", \"eval_%.60s\": %s", metric[i].name,
                           gx__run_log_number(metric[i].value, number));
    length += snprintf(line + length, sizeof line - (size_t)length, ", \"eval_%.60s\": %ld", counted, (long)count);
    if (epoch > 0) length += snprintf(line + length, sizeof line - (size_t)length, ", \"epoch\": %.4f", epoch);
    snprintf(line + length, sizeof line - (size_t)length, "}\n");
    return gx__run_log_line(l, line, err);
}

GxStatus gx_baseline_log(GxRunLog *l, const GxMetric *metric, GxError *err)
{
    char line[128], number[40];
    snprintf(line, sizeof line, "{\"%.60s\": %s}\n", metric->name, gx__run_log_number(metric->value, number));
    return gx__run_log_line(l, line, err);
}

GxStatus gx_samples_log(GxRunLog *l, int64_t step, const int64_t *samples, const double *seconds, int n, GxError *err)
{
    enum { EACH = 64 };
    char number[40];
    const size_t size = (size_t)(n + 2) * EACH;
    char *line = (char *)malloc(size);
    if (!line) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a line of %s", l->path);
    int at = snprintf(line, size, "{\"step\": %ld, \"dp_samples\": [", (long)step);
    for (int i = 0; i < n; i++) at += snprintf(line + at, size - (size_t)at, "%s%ld", i ? ", " : "", (long)samples[i]);
    at += snprintf(line + at, size - (size_t)at, "], \"seconds_per_sample\": [");
    for (int i = 0; i < n; i++)
        at += snprintf(line + at, size - (size_t)at, "%s%s", i ? ", " : "", gx__run_log_number(seconds[i], number));
    snprintf(line + at, size - (size_t)at, "]}\n");
    const GxStatus status = gx__run_log_line(l, line, err);
    free(line);
    return status;
}

// 1: {"bigram_bits_per_byte": 3.2}: a baseline, which a run logs again at every start.
static int gx__run_log_is_baseline(const GxJson *line)
{
    GxJsonMember m = GX_ZERO;
    return gx_json_type(line) == GX_JSON_OBJECT && gx_json_size(line) == 1 && gx_json_next(line, &m) &&
           gx_json_type(m.value) == GX_JSON_REAL;
}

static int gx__run_log_is_evaluation(const GxJson *line)
{
    for (GxJsonMember m = GX_ZERO; gx_json_next(line, &m);)
        if (!strncmp(m.key, "eval_", 5)) return 1;
    return 0;
}

// Moves the lines of `text` up to step `step` to its beginning, and copies later ones into `apart`, which has room for
// all. Baselines, which have no step, are dropped, since every start logs them again; partial lines are set apart.
typedef struct {
    int64_t kept, apart, lines; // bytes kept; bytes and number of lines that are set apart
} gx__RunLogCut;
static gx__RunLogCut gx__run_log_cut(char *text, int64_t bytes, int64_t step, int evaluates_again, char *apart,
                                     const char *path)
{
    gx__RunLogCut cut = GX_ZERO;
    int evaluations = 0; // of step `step`
    for (int64_t at = 0; at < bytes;) {
        const char *end = (const char *)memchr(text + at, '\n', (size_t)(bytes - at));
        const int64_t n = end ? end - (text + at) + 1 : bytes - at;
        GxError ignored = GX_ZERO; // a partial line
        GxJson *json = NULL;
        const int parsed = end && gx_json_parse(&json, text + at, n - 1, path, &ignored) == GX_OK;
        const GxJson *number = gx_json_get(json, "step");
        const int64_t of = gx_json_type(number) == GX_JSON_INT ? gx_json_int(number) : INT64_MAX;
        const int again =
            evaluates_again && of == step && gx__run_log_is_evaluation(json) && ++evaluations >= evaluates_again;
        if (parsed && of <= step && !again) {
            memmove(text + cut.kept, text + at, (size_t)n);
            cut.kept += n;
        } else if (!parsed || (!again && !gx__run_log_is_baseline(json))) {
            memcpy(apart + cut.apart, text + at, (size_t)n);
            cut.apart += n, cut.lines++;
            if (!end) apart[cut.apart++] = '\n';
        }
        gx_json_free(json);
        at += n;
    }
    return cut;
}

static GxStatus gx__run_log_append(const char *path, const char *text, int64_t bytes, int64_t step, GxError *err)
{
    char folder[GX_PATH], line[60];
    gx_path_parent(folder, path);
    GX_TRY(gx_folder_make(folder, err));
    GX_TRY(gx_file_check_output(path, err));
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    const int64_t end = fd < 0 ? 0 : (int64_t)lseek(fd, 0, SEEK_END);
    if (fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    const int n = snprintf(line, sizeof line, "{\"left_at_step\": %ld}\n", (long)step);
    GxStatus status = gx_file_write_at(fd, path, line, n, end, err);
    if (status == GX_OK) status = gx_file_write_at(fd, path, text, bytes, end + n, err);
    close(fd);
    return status == GX_OK ? gx_file_sync(path, err) : status;
}

// The copies are written first: if the process is killed in between, the lines are in both files but none is lost.
static GxStatus gx__run_log_return(const char *path, int64_t step, int evaluates_again, const char *apart_path,
                                   int64_t *set_apart, int64_t *kept, GxError *err)
{
    char *text = NULL;
    int64_t bytes = 0;
    *kept = *set_apart = 0;
    if (gx_path_is_file(path)) GX_TRY(gx_file_read(path, GX__RUN_LOG_CAP, &text, &bytes, err));
    char *apart = (char *)malloc((size_t)bytes + 1);
    GxStatus status = apart ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lines of %s", path);
    if (status == GX_OK) {
        const gx__RunLogCut cut = gx__run_log_cut(text, bytes, step, evaluates_again, apart, path);
        if (cut.lines) status = gx__run_log_append(apart_path, apart, cut.apart, step, err);
        if (status == GX_OK) status = gx_file_write(path, text ? text : "", cut.kept, err);
        *kept = cut.kept, *set_apart = cut.lines;
    }
    free(text);
    free(apart);
    return status;
}

GxStatus gx_log_open(GxRunLog *l, const char *path, int64_t step, int evaluates_again, const char *apart,
                     int64_t *set_apart, GxError *err)
{
    memset(l, 0, sizeof *l);
    GX_TRY(gx__run_log_return(path, step, evaluates_again, apart, set_apart, &l->bytes, err));
    snprintf(l->path, sizeof l->path, "%s", path);
    l->fd = open(path, O_WRONLY | O_CLOEXEC);
    l->is_open = l->fd >= 0;
    return l->is_open ? GX_OK : GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
}

static void gx__run_log_better(const GxJson *line, const char *name, const char *counted, int64_t before,
                               GxBestEvaluation *best)
{
    char key[80], count[80];
    snprintf(key, sizeof key, "eval_%.60s", name);
    snprintf(count, sizeof count, "eval_%.60s", counted);
    const GxJson *value = gx_json_get(line, key);
    const int64_t step = gx_json_int(gx_json_get(line, "step"));
    if (gx_json_type(value) != GX_JSON_REAL || step >= before) return;
    if (best->step >= 0 && gx_json_double(value) >= best->value) return;
    best->step = step, best->value = gx_json_double(value), best->count = gx_json_int(gx_json_get(line, count));
}

GxStatus gx_log_best(const char *path, const char *name, const char *counted, int64_t step, GxBestEvaluation *best,
                     GxError *err)
{
    char *text;
    int64_t bytes;
    best->step = -1;
    GX_TRY(gx_file_read(path, GX__RUN_LOG_CAP, &text, &bytes, err));
    for (char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        GxError ignored = GX_ZERO; // a malformed line is skipped
        GxJson *json = NULL;
        if (gx_json_parse(&json, line, (int64_t)n, path, &ignored) == GX_OK)
            gx__run_log_better(json, name, counted, step, best);
        gx_json_free(json);
        line += n + (line[n] == '\n');
    }
    free(text);
    return GX_OK;
}
#endif
