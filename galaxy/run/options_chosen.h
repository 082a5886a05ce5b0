// options_chosen.h: what the values of a training's options (options.h) mean: words as enums (GxChosen), sizes as
// bytes, names in a list as flags.
#ifndef GX_OPTIONS_CHOSEN_H
#define GX_OPTIONS_CHOSEN_H
#include "../parallel/steps_write.h"
#include "offload.h"
#include "optimizer.h"
#include "options.h"
#include "recompute_layers.h"
GX_BEGIN

// What the options' words mean. Once the options are read, the program goes by this, not by their text.
typedef enum { GX_SIDE_CACHE_NONE = 0, GX_SIDE_CACHE_DISK, GX_SIDE_CACHE_MEMORY } GxSideCachePlace;
typedef struct {
    GxDtype dtype, save_dtype; // --precision, --save_dtype
    GxTuningMethod tuning;
    GxSideCachePlace side_cache;
    GxOptimizerKind optimizer;
    GxSharded sharded;           // --zero
    int order;                   // GxStepsOrder of the program's own schedule, or of --pipeline_schedule
    uint8_t again[GX_MAX_UNITS]; // --recompute: [layers]: what is computed again (recompute_layers.h)
    int offloaded;               // --offload: a mask of 1 << GxMemoryKind
    int better;                  // --greater_is_better: +1: larger is better; -1: smaller is; 0: as the task says
    int resumes_auto;            // --resume auto
} GxChosen;
// Call it when the options are resolved. schedule: the program's own; NULL: none.
GxChosen gx_options_choose(const GxTrainOptions *o, const GxStepsSchedule *schedule);
static inline GxDtype gx_options_dtype(const char *name) // "fp32", "bf16", "fp16"
{
    return !strcmp(name, "bf16") ? GX_BF16 : !strcmp(name, "fp16") ? GX_F16 : GX_F32;
}

// 1: the program validates, samples or predicts, and trains nothing.
int gx_options_is_inference(const GxTrainOptions *o);
int gx_options_embeds(const GxTrainOptions *o);     // 1: it writes vectors of texts
int gx_options_saves_best(const GxTrainOptions *o); // 1: the checkpoint of the best validation is saved and kept
// 1: samples move between the copies of the model while the run goes on (rebalance.h).
int gx_options_rebalances(const GxTrainOptions *o, int copies);
// Which names --report_to lists. Refuses unknown names.
GxStatus gx_options_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err);

// Held-out samples of a validation during training (is_last 0), or of the one that a run ends with; 0: all.
int64_t gx_options_eval_samples(const GxTrainOptions *o, int is_last);

// The text of an option that is a size, in bytes: a number followed by KB, MB, GB (10^3, 10^6, 10^9) or nothing.
GxStatus gx_options_bytes(const char *option, const char *text, int64_t *bytes, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_CHOSEN_IMPLEMENTED)
#define GX_OPTIONS_CHOSEN_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__OPTIONS_EVAL_SAMPLES = 64 }; // of --max_eval_samples -1

int gx_options_is_inference(const GxTrainOptions *o) { return o->evaluate || o->sample_only || o->predicts; }
int gx_options_saves_best(const GxTrainOptions *o) { return o->load_best_model_at_end || o->metric_for_best_model[0]; }
int gx_options_rebalances(const GxTrainOptions *o, int copies)
{
    return o->dp_samples_list.n && copies > 1 && strcmp(o->rebalance, "off") != 0;
}
int gx_options_embeds(const GxTrainOptions *o) { return o->predicts && !strcmp(o->predicts, "embed"); }

GxChosen gx_options_choose(const GxTrainOptions *o, const GxStepsSchedule *schedule)
{
    GxChosen c = GX_ZERO;
    GxError checked = GX_ZERO; // gx_recompute_check reports it
    const char *cache = o->tuning.side_cache, *better = o->greater_is_better;
    c.dtype = gx_options_dtype(o->precision), c.save_dtype = gx_options_dtype(o->save_dtype);
    c.tuning = gx_tuning_method(o->tuning.tuning);
    c.side_cache = !strcmp(cache, "memory") ? GX_SIDE_CACHE_MEMORY
                   : !strcmp(cache, "disk") ? GX_SIDE_CACHE_DISK
                                            : GX_SIDE_CACHE_NONE;
    c.optimizer = !strcmp(o->optimizer, "sgd") ? GX_OPTIMIZER_SGD : GX_OPTIMIZER_ADAMW;
    c.sharded = (GxSharded)atoi(o->zero);
    c.order = schedule ? schedule->order : GX_ORDER_1F1B;
    for (int i = 0; i < GX_ORDERS && !schedule; i++)
        if (!strcmp(gx_order_info(i)->name, o->pipeline_schedule)) c.order = i;
    gx_recompute_read(o->recompute, GX_MAX_UNITS, c.again, &checked);
    c.offloaded = gx_offload_kinds(o->offload, NULL);
    c.better = !strcmp(better, "auto") ? 0 : !strcmp(better, "true") ? 1 : -1;
    c.resumes_auto = !strcmp(o->resume, "auto");
    return c;
}

GxStatus gx_options_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err)
{
    char name[GX_FIELD_TEXT];
    int names = 0, none = 0;
    *tensorboard = 0;
    for (const char *from = o->report_to; from; from = strchr(from, ','), from = from ? from + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(from, ","), from);
        const int is_none = !strcmp(name, "none"), is_tensorboard = !strcmp(name, "tensorboard");
        if (!is_none && !is_tensorboard)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--report_to is \"%s\", but \"%s\" is not supported; expected tensorboard, or none "
                           "(log.jsonl is always written)",
                           o->report_to, name);
        names++, none += is_none, *tensorboard |= is_tensorboard;
    }
    if (none && names > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--report_to is \"%s\", but none cannot be combined with others; leave none out", o->report_to);
    return GX_OK;
}

int64_t gx_options_eval_samples(const GxTrainOptions *o, int is_last)
{
    return o->max_eval_samples >= 0 ? o->max_eval_samples : is_last ? 0 : GX__OPTIONS_EVAL_SAMPLES;
}

GxStatus gx_options_bytes(const char *option, const char *text, int64_t *bytes, GxError *err)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    char *end = NULL;
    const double number = strtod(text, &end);
    const int is_decimal = strspn(text, "0123456789.") > 0 && !strpbrk(text, "xX");
    *bytes = -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (is_decimal && !strcmp(end, units[i].name) && number * units[i].bytes < 1e18 &&
            (number == 0 || number * units[i].bytes >= 1))
            *bytes = (int64_t)(number * units[i].bytes);
    if (*bytes >= 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s is \"%s\"; expected a size such as 500MB or 5GB (in KB, MB or GB), or 0",
                   option, text);
}
#endif
