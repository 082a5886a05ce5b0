// measured_machines.h: measurements of ranks (measure.h) as machines.json (plan/machines.h), and back.
#ifndef GX_MEASURED_MACHINES_H
#define GX_MEASURED_MACHINES_H
#include "../plan/machines.h"
#include "measure.h"
GX_BEGIN

// Each rank becomes a machine. Close it.
GxStatus gx_machines_from_measured(GxMachines *machines, const GxMeasured *m, const GxSession *s, GxError *err);
// Each machine becomes as many ranks as it counts. Refuses machines that were measured for another model. Free it.
GxStatus gx_measured_from_machines(GxMeasured *m, const GxMachines *machines, const GxSession *s, const char *path,
                                   GxError *err);
// Keeps `n` ranks, in a new order: rank i is what rank[i] was, and its operations take slower[i] times as long.
GxStatus gx_measured_keep(GxMeasured *m, const int16_t *rank, const double *slower, int n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MEASURED_MACHINES_IMPLEMENTED)
#define GX_MEASURED_MACHINES_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The widths of a model that times depend on: fields of its configuration.
static const char *const gx__measured_widths[] = {"hidden_size", "num_attention_heads", "num_key_value_heads",
                                                  "head_dim",    "intermediate_size",   "vocab_size"};

static void gx__measured_add_width(GxMachinesWidth *width, int *n, const char *name, const char *text)
{
    snprintf(width[*n].name, sizeof width[*n].name, "%s", name);
    snprintf(width[(*n)++].text, sizeof width->text, "%.*s", (int)sizeof width->text - 1, text);
}

// The value of a width; that of heads, if the configuration leaves it to be computed.
static int64_t gx__measured_width(const GxSession *s, const char *name)
{
    const int64_t value = gx_run_model_int(s->run, name), heads = gx_run_model_int(s->run, "num_attention_heads");
    return value || strcmp(name, "head_dim") || !heads ? value : gx_run_model_int(s->run, "hidden_size") / heads;
}

// What times depend on besides the machine. width: [GX_MACHINES_WIDTHS]. Returns how many.
static int gx__measured_model(const GxSession *s, GxMachinesWidth *width)
{
    const GxTrainRun *r = s->run;
    char text[32];
    int n = 0;
    gx__measured_add_width(width, &n, "family", r->family->name);
    for (size_t i = 0; i < sizeof gx__measured_widths / sizeof *gx__measured_widths; i++) {
        const GxField *f = gx_family_field(r->family, gx__measured_widths[i]);
        if (!f || f->type != GX_FIELD_INT) continue;
        snprintf(text, sizeof text, "%ld", (long)gx__measured_width(s, gx__measured_widths[i]));
        gx__measured_add_width(width, &n, f->name, text);
    }
    snprintf(text, sizeof text, "%ld", (long)r->o.seq_len);
    gx__measured_add_width(width, &n, "seq_len", text);
    gx__measured_add_width(width, &n, "precision", r->o.precision);
    gx__measured_add_width(width, &n, "tuning", r->o.tuning.tuning);
    gx__measured_add_width(width, &n, "recompute", r->o.recompute);
    gx__measured_add_width(width, &n, "task", r->task->name);
    return n;
}

GxStatus gx_machines_from_measured(GxMachines *machines, const GxMeasured *m, const GxSession *s, GxError *err)
{
    const int n = m->ranks;
    GX_TRY(gx_machines_open(machines, n, err));
    machines->widths = gx__measured_model(s, machines->width), machines->together = m->together;
    for (int r = 0; r < n; r++) {
        const GxMeasuredRank *of = &m->rank[r];
        GxMachine *to = &machines->machine[r];
        snprintf(to->name, sizeof to->name, "%s", of->name);
        snprintf(to->device, sizeof to->device, "%s", of->device);
        to->threads = of->threads, to->memory = gx_max(of->memory, 1);
        to->step_seconds = of->step, to->step_spread = of->spread;
        GX_TRY(gx_machine_add(to, m->sample + of->first, (int)of->samples, err));
        for (int k = 0; k < n; k++) {
            if (k == r) continue;
            machines->link[r * n + k].latency = m->latency[r * n + k];
            machines->link[r * n + k].bandwidth = 1 / m->seconds_per_byte[r * n + k];
        }
    }
    return GX_OK;
}

static GxStatus gx__measured_allocate(GxMeasured *m, int ranks, int64_t samples, GxError *err)
{
    const size_t n = (size_t)ranks;
    memset(m, 0, sizeof *m);
    m->ranks = ranks;
    m->rank = (GxMeasuredRank *)calloc(n, sizeof *m->rank);
    m->sample = (GxCostSample *)malloc((size_t)(samples + 1) * sizeof *m->sample);
    m->latency = (double *)calloc(2 * n * n, sizeof *m->latency);
    if (!m->rank || !m->sample || !m->latency)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the measurements of %d ranks", ranks);
    m->seconds_per_byte = m->latency + n * n;
    return GX_OK;
}

GxStatus gx_measured_from_machines(GxMeasured *m, const GxMachines *machines, const GxSession *s, const char *path,
                                   GxError *err)
{
    GxMachinesWidth width[GX_MACHINES_WIDTHS];
    const int ranks = gx_machines_ranks(machines);
    int64_t samples = 0, first[GX_MACHINES_CLASSES];
    GX_TRY(gx_machines_check_model(machines, width, gx__measured_model(s, width), path, err));
    if (ranks > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s has %d ranks; a plan has at most %d (--simulate predicts larger ones)", path, ranks,
                       GX_MAX_PARTS);
    for (int c = 0; c < machines->machines; c++) first[c] = samples, samples += machines->machine[c].operations;
    GX_TRY(gx__measured_allocate(m, ranks, samples, err));
    m->together = machines->together;
    for (int c = 0; c < machines->machines; c++)
        memcpy(m->sample + first[c], machines->machine[c].operation,
               (size_t)machines->machine[c].operations * sizeof *m->sample);
    for (int r = 0; r < ranks; r++) {
        const int c = gx_machines_class_of(machines, r);
        const GxMachine *of = &machines->machine[c];
        GxMeasuredRank *to = &m->rank[r];
        snprintf(to->host, sizeof to->host, "%.90s", of->name);
        snprintf(to->name, sizeof to->name, "%.90s", of->name);
        snprintf(to->device, sizeof to->device, "%.90s", of->device);
        to->threads = of->threads, to->memory = of->memory, to->first = first[c], to->samples = of->operations;
        to->step = of->step_seconds, to->spread = of->step_spread;
        for (int k = 0; k < ranks; k++)
            gx_machines_link(machines, r, k, &m->latency[r * ranks + k], &m->seconds_per_byte[r * ranks + k]);
    }
    return GX_OK;
}

GxStatus gx_measured_keep(GxMeasured *m, const int16_t *rank, const double *slower, int n, GxError *err)
{
    GxMeasured kept;
    int64_t samples = 0, at = 0;
    for (int i = 0; i < n; i++) samples += m->rank[rank[i]].samples;
    if (gx__measured_allocate(&kept, n, samples, err) != GX_OK) {
        gx_measured_free(&kept);
        return gx_error_code(err);
    }
    kept.together = m->together;
    for (int i = 0; i < n; i++) {
        const GxMeasuredRank *from = &m->rank[rank[i]];
        GxMeasuredRank *to = &kept.rank[i];
        *to = *from;
        to->first = at, at += to->samples, to->step *= slower[i];
        for (int64_t k = 0; k < to->samples; k++) {
            kept.sample[to->first + k] = m->sample[from->first + k];
            kept.sample[to->first + k].seconds *= slower[i];
        }
        for (int j = 0; j < n; j++) {
            kept.latency[i * n + j] = m->latency[rank[i] * m->ranks + rank[j]];
            kept.seconds_per_byte[i * n + j] = m->seconds_per_byte[rank[i] * m->ranks + rank[j]];
        }
    }
    gx_measured_free(m);
    *m = kept;
    return GX_OK;
}
#endif
