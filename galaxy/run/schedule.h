// schedule.h: the learning rate of a step.
//
// All schedules warm up over W steps by (step + 1)/W, then follow their factor over the progress p = (step + 1 - W -
// S)/D from 0 to 1, and lr = base * (floor + (1 - floor)*factor). S is 0 except for WSD (warmup, stable, decay; Hu et
// al. 2024, arXiv:2404.06395), whose factor stays 1 for S steps first. D is the rest of the run; for WSD it is given.
#ifndef GX_SCHEDULE_H
#define GX_SCHEDULE_H
#include "../base/status.h"
GX_BEGIN

typedef enum {
    GX_SCHEDULE_CONSTANT = 0,
    GX_SCHEDULE_LINEAR,
    GX_SCHEDULE_COSINE,
    GX_SCHEDULE_WSD_LINEAR,
    GX_SCHEDULE_WSD_SQRT,
    GX_SCHEDULE_WSD_COSINE,
    GX_SCHEDULES
} GxScheduleKind;
typedef struct {
    GxScheduleKind kind;
    double base, floor;    // largest rate; smallest as a fraction of it
    int64_t warmup, total; // steps
    int64_t decay;         // WSD: steps at the end
} GxSchedule;

// names: constant, linear, cosine, wsd (linear decay), wsd_sqrt, wsd_cosine
GxStatus gx_schedule_open(GxSchedule *s, const char *name, double base, double floor, int64_t warmup, int64_t decay,
                          int64_t total, GxError *err);
double gx_schedule_rate(const GxSchedule *s, int64_t step); // step: optimizer steps applied before this one

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SCHEDULE_IMPLEMENTED)
#define GX_SCHEDULE_IMPLEMENTED
#include <math.h>
#include <string.h>

GxStatus gx_schedule_open(GxSchedule *s, const char *name, double base, double floor, int64_t warmup, int64_t decay,
                          int64_t total, GxError *err)
{
    static const char *const names[GX_SCHEDULES] = {"constant", "linear", "cosine", "wsd", "wsd_sqrt", "wsd_cosine"};
    int kind = 0;
    while (kind < GX_SCHEDULES && strcmp(name, names[kind])) kind++;
    if (kind == GX_SCHEDULES)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "there is no schedule \"%s\"; expected constant, linear, cosine, wsd, wsd_sqrt or wsd_cosine",
                       name);
    int wsd = kind >= GX_SCHEDULE_WSD_LINEAR;
    if (warmup < 0 || warmup > total || (wsd && (decay < 1 || warmup + decay > total)))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "warmup_steps (%ld)%s do not fit into max_steps (%ld)", (long)warmup,
                       wsd ? " and lr_decay_steps, at least 1," : "", (long)total);
    GxSchedule made = {(GxScheduleKind)kind, base, floor, warmup, total, wsd ? decay : total - warmup};
    *s = made;
    return GX_OK;
}

static double gx__schedule_factor(GxScheduleKind kind, double p)
{
    switch (kind) {
    case GX_SCHEDULE_LINEAR:
    case GX_SCHEDULE_WSD_LINEAR: return 1 - p;
    case GX_SCHEDULE_COSINE:
    case GX_SCHEDULE_WSD_COSINE: return 0.5 * (1 + cos(3.14159265358979323846 * p));
    case GX_SCHEDULE_WSD_SQRT: return 1 - sqrt(p);
    default: return 1;
    }
}

double gx_schedule_rate(const GxSchedule *s, int64_t step)
{
    if (step < s->warmup) return s->base * (double)(step + 1) / (double)s->warmup;
    int64_t stable = s->total - s->warmup - s->decay;
    double p = s->decay > 0 ? (double)(step + 1 - s->warmup - stable) / (double)s->decay : 0;
    p = p < 0 ? 0 : p > 1 ? 1 : p;
    return s->base * (s->floor + (1 - s->floor) * gx__schedule_factor(s->kind, p));
}
#endif
