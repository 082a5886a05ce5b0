// plan/machines.h: what a set of machines can do, as data: how long they took for the operations of one model, how much
// memory they have, and how fast the links between them are. plan/machines_file.h reads and writes it: machines.json.
//
//     GxMachines m;
//     GX_TRY(gx_machines_read(&m, "machines.json", err));
//     GX_TRY(gx_machines_check_model(&m, width, n, "machines.json", err));     // measured for this model?
//     gx_cost_fit(&cost, m.machine[c].operation, m.machine[c].operations, err) // plan/costs.h
//     gx_machines_link(&m, 0, 3, &alpha, &beta);
//     gx_machines_close(&m);
//
// Equal machines are a class: one entry, with a count. Ranks are numbered by class, in order; within a class the first
// per_host ranks share a host, then the next ones. Every pair of classes has a link in each direction; one from a class
// to itself, if it has machines on several hosts, is that between two of them.
#ifndef GX_MACHINES_H
#define GX_MACHINES_H
#include "../base/fields.h"
#include "costs.h"
GX_BEGIN

#define GX_MACHINES_FILE "machines.json"

enum { GX_MACHINES_CLASSES = 256, GX_MACHINES_RANKS = 1000000, GX_MACHINES_WIDTHS = 32 }; // the most

typedef struct { // of the model: hidden_size 768, precision bf16
    char name[GX_COST_NAME], text[GX_FIELD_TEXT];
} GxMachinesWidth;

typedef struct {
    double latency, bandwidth; // s, bytes/s; 0, 0: there is none
} GxMachinesLink;

typedef struct {                                     // a class of equal machines; each is one rank
    char name[GX_FIELD_TEXT], device[GX_FIELD_TEXT]; // of the host; "cpu, 8 threads of ...", a card's name
    int64_t threads, memory, count, per_host;        // memory: bytes that training may use
    double step_seconds, step_spread; // of a whole step of the model, and its relative spread; 0: not measured
    GxMachinesLink same_host;         // between two that share a host
    GxCostSample *operation;          // [operations]; one may be there several times
    int operations;
} GxMachine;

typedef struct {
    GxMachinesWidth width[GX_MACHINES_WIDTHS]; // [widths]: the model that was measured
    int widths, machines;
    GxMachine *machine;   // [machines]
    GxMachinesLink *link; // [machines][machines]: from, to
    double together;      // how many times slower links are while all are used; 1: not at all
} GxMachines;

// A set of this many classes, each a single machine of one thread, with nothing else known. Close it.
GxStatus gx_machines_open(GxMachines *m, int machines, GxError *err);
void gx_machines_close(GxMachines *m);
// Adds n measured operations to a machine.
GxStatus gx_machine_add(GxMachine *machine, const GxCostSample *operation, int n, GxError *err);

// What a set must have, to be used or written. where: what messages begin with, such as the file.
GxStatus gx_machines_check(const GxMachines *m, const char *where, GxError *err);
GxStatus gx_machines_check_names(const GxMachines *m, const char *where,
                                 GxError *err); // of it: all are there, none twice
// Refuses a model of other widths than those that were measured, by the first that differs.
GxStatus gx_machines_check_model(const GxMachines *m, const GxMachinesWidth *width, int n, const char *where,
                                 GxError *err);

// The numbers and texts of a machine, required and optional ones, of a link and of a set, with their ranges.
typedef enum { GX_MACHINES_REQUIRED = 0, GX_MACHINES_OPTIONAL, GX_MACHINES_OF_LINK, GX_MACHINES_OF_SET } GxMachinesPart;
const GxField *gx_machines_fields(GxMachinesPart part, int *n);

static inline int gx_machines_has_link(const GxMachinesLink *link)
{
    return link->latency != 0 || link->bandwidth != 0;
}
int gx_machines_ranks(const GxMachines *m);
int gx_machines_class_of(const GxMachines *m, int rank);
// The link between two ranks: bytes take alpha + bytes * beta seconds. From a rank to itself: no time.
void gx_machines_link(const GxMachines *m, int from_rank, int to_rank, double *alpha, double *beta);

// Neighboring classes become one where device and threads are equal, memory and the sum of the times of the same
// operations differ by a factor of at most 1 + times, and latencies and bandwidths of their links by 1 + links: 0.03,
// 0.25 are usual. The first of them gives its name, the least its memory; times are means. Ranks keep their numbers.
GxStatus gx_machines_merge(GxMachines *m, double times, double links, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MACHINES_IMPLEMENTED)
#define GX_MACHINES_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__MACHINES_WHERE = GX_PATH + GX_FIELD_TEXT + 64 };

#define GX__MACHINES_AT(field) offsetof(GxMachine, field)
static const GxField gx__machines_required[] = {
    {"name", GX_FIELD_STRING, GX__MACHINES_AT(name), NULL, "of the host", NULL},
    {"memory", GX_FIELD_INT, GX__MACHINES_AT(memory), NULL, "bytes that training may use", "1..1000000000000000000"},
};
static const GxField gx__machines_optional[] = {
    {"device", GX_FIELD_STRING, GX__MACHINES_AT(device), NULL, "what computes", NULL},
    {"threads", GX_FIELD_INT, GX__MACHINES_AT(threads), NULL, "of the CPU", "1..1000000"},
    {"count", GX_FIELD_INT, GX__MACHINES_AT(count), NULL, "of such machines", "1..1000000"},
    {"per_host", GX_FIELD_INT, GX__MACHINES_AT(per_host), NULL, "of them that share a host", "1..1000000"},
    {"step_seconds", GX_FIELD_DOUBLE, GX__MACHINES_AT(step_seconds), NULL, "of a whole step", "0..1e9"},
    {"step_spread", GX_FIELD_DOUBLE, GX__MACHINES_AT(step_spread), NULL, "of that, as a part of it", "0..1e9"},
};
static const GxField gx__machines_link_fields[] = {
    {"latency", GX_FIELD_DOUBLE, offsetof(GxMachinesLink, latency), NULL, "seconds", "1e-12..1e6"},
    {"bandwidth", GX_FIELD_DOUBLE, offsetof(GxMachinesLink, bandwidth), NULL, "bytes per second", "1..1e18"},
};
static const GxField gx__machines_set_fields[] = {
    {"together", GX_FIELD_DOUBLE, offsetof(GxMachines, together), NULL, "how many times slower", "1..1e6"},
};

const GxField *gx_machines_fields(GxMachinesPart part, int *n)
{
    static const struct {
        const GxField *field;
        int n;
    } parts[] = {{GX_FIELDS(gx__machines_required)},
                 {GX_FIELDS(gx__machines_optional)},
                 {GX_FIELDS(gx__machines_link_fields)},
                 {GX_FIELDS(gx__machines_set_fields)}};
    *n = parts[part].n;
    return parts[part].field;
}

// ---- in memory -----------------------------------------------------------------------------------------------------

GxStatus gx_machines_open(GxMachines *m, int machines, GxError *err)
{
    memset(m, 0, sizeof *m);
    if (machines < 1 || machines > GX_MACHINES_CLASSES)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%d classes of machines; expected from 1 to %d", machines,
                       GX_MACHINES_CLASSES);
    m->machine = (GxMachine *)calloc((size_t)machines, sizeof *m->machine);
    m->link = (GxMachinesLink *)calloc((size_t)machines * (size_t)machines, sizeof *m->link);
    m->machines = m->machine ? machines : 0, m->together = 1;
    for (int i = 0; i < m->machines; i++) m->machine[i].threads = m->machine[i].count = m->machine[i].per_host = 1;
    if (m->machine && m->link) return GX_OK;
    gx_machines_close(m);
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d machines", machines);
}

void gx_machines_close(GxMachines *m)
{
    for (int i = 0; i < m->machines; i++) free(m->machine[i].operation);
    free(m->machine), free(m->link);
    memset(m, 0, sizeof *m);
}

GxStatus gx_machine_add(GxMachine *machine, const GxCostSample *operation, int n, GxError *err)
{
    const size_t before = (size_t)machine->operations, added = (size_t)gx_max(n, 0);
    if (!added) return GX_OK;
    GxCostSample *grown = (GxCostSample *)realloc(machine->operation, (before + added) * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld operations", (long)(before + added));
    memcpy(grown + before, operation, added * sizeof *grown);
    machine->operation = grown, machine->operations += n;
    return GX_OK;
}

int gx_machines_ranks(const GxMachines *m)
{
    int64_t ranks = 0;
    for (int i = 0; i < m->machines; i++) ranks += m->machine[i].count;
    return (int)ranks;
}

// *within: which of its class the rank is.
static int gx__machines_find_rank(const GxMachines *m, int rank, int64_t *within)
{
    int i = 0;
    for (*within = rank; i < m->machines - 1 && *within >= m->machine[i].count; i++) *within -= m->machine[i].count;
    return i;
}

int gx_machines_class_of(const GxMachines *m, int rank)
{
    int64_t within;
    return gx__machines_find_rank(m, rank, &within);
}

static GxMachinesLink *gx__machines_link_at(const GxMachines *m, int from, int to)
{
    return &m->link[from * m->machines + to];
}

void gx_machines_link(const GxMachines *m, int from_rank, int to_rank, double *alpha, double *beta)
{
    int64_t i, j;
    const int from = gx__machines_find_rank(m, from_rank, &i), to = gx__machines_find_rank(m, to_rank, &j);
    const GxMachine *machine = &m->machine[from];
    const int is_on_host = from == to && i / machine->per_host == j / machine->per_host;
    const GxMachinesLink *link = is_on_host ? &machine->same_host : gx__machines_link_at(m, from, to);
    *alpha = *beta = 0;
    if (from_rank != to_rank) *alpha = link->latency, *beta = 1 / link->bandwidth;
}

// ---- what must hold ------------------------------------------------------------------------------------------------

static GxStatus gx__machines_check_fields(GxMachinesPart part, const void *source, const char *where, GxError *err)
{
    int n;
    const GxField *f = gx_machines_fields(part, &n);
    GxFieldValue v;
    for (int i = 0; i < n; i++) {
        char who[GX__MACHINES_WHERE + 64], text[32];
        memcpy(&v, gx_field_in(&f[i], source), gx_field_size(&f[i]));
        if (gx_field_allows(&f[i], &v)) continue;
        if (f[i].type == GX_FIELD_INT) snprintf(text, sizeof text, "%ld", (long)v.i);
        else snprintf(text, sizeof text, "%g", v.d);
        snprintf(who, sizeof who, "%s: %s", where, f[i].name);
        return gx_field_refuse(&f[i], who, "", text, GX_ERR_FORMAT, err);
    }
    return GX_OK;
}

static GxStatus gx__machines_check_machine(const GxMachine *machine, const char *path, GxError *err)
{
    char where[GX__MACHINES_WHERE];
    snprintf(where, sizeof where, "%s: machine \"%s\"", path, machine->name);
    GX_TRY(gx__machines_check_fields(GX_MACHINES_REQUIRED, machine, where, err));
    GX_TRY(gx__machines_check_fields(GX_MACHINES_OPTIONAL, machine, where, err));
    if (machine->operations < 1)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has no operations; measure it, or copy those of an equal machine",
                       where);
    for (int i = 0; i < machine->operations; i++) GX_TRY(gx_cost_check(&machine->operation[i], where, err));
    return GX_OK;
}

static GxStatus gx__machines_check_link(const GxMachines *m, int from, int to, const char *path, GxError *err)
{
    const GxMachine *a = &m->machine[from], *b = &m->machine[to];
    const GxMachinesLink *link = gx__machines_link_at(m, from, to);
    const int is_needed = from != to || a->count > a->per_host;
    char where[GX__MACHINES_WHERE + GX_FIELD_TEXT];
    snprintf(where, sizeof where, "%s: the link from \"%s\" to \"%s\"", path, a->name, b->name);
    if (gx_machines_has_link(link)) return gx__machines_check_fields(GX_MACHINES_OF_LINK, link, where, err);
    if (!is_needed) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s is missing%s; add {\"from\": \"%s\", \"to\": \"%s\", \"latency\": SECONDS, \"bandwidth\": "
                   "BYTES_PER_SECOND} to \"links\"",
                   where, from == to ? ", that between two of them on different hosts" : "", a->name, b->name);
}

static GxStatus gx__machines_check_host(const GxMachine *machine, const char *path, GxError *err)
{
    char where[GX__MACHINES_WHERE];
    snprintf(where, sizeof where, "%s: machine \"%s\": same_host", path, machine->name);
    if (gx_machines_has_link(&machine->same_host))
        return gx__machines_check_fields(GX_MACHINES_OF_LINK, &machine->same_host, where, err);
    if (gx_min(machine->count, machine->per_host) < 2) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s is missing, the link between its %ld per host; add \"same_host\": {\"latency\": SECONDS, "
                   "\"bandwidth\": BYTES_PER_SECOND}",
                   where, (long)machine->per_host);
}

GxStatus gx_machines_check_names(const GxMachines *m, const char *where, GxError *err)
{
    for (int a = 0; a < m->machines; a++) {
        if (!m->machine[a].name[0])
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: machine %d has no name; expected that of its host", where, a);
        for (int b = 0; b < a; b++)
            if (!strcmp(m->machine[a].name, m->machine[b].name))
                return GX_FAIL(
                    err, GX_ERR_FORMAT,
                    "%s: machines %d and %d are both named \"%s\"; give each its own name, or equal ones one "
                    "entry with a \"count\"",
                    where, b, a, m->machine[a].name);
    }
    return GX_OK;
}

GxStatus gx_machines_check(const GxMachines *m, const char *where, GxError *err)
{
    int64_t ranks = 0;
    if (m->machines < 1) return GX_FAIL(err, GX_ERR_FORMAT, "%s has no machines; expected at least one", where);
    GX_TRY(gx_machines_check_names(m, where, err));
    for (int i = 0; i < m->machines; i++) {
        GX_TRY(gx__machines_check_machine(&m->machine[i], where, err));
        ranks += m->machine[i].count;
    }
    if (ranks > GX_MACHINES_RANKS)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the counts of all machines add up to %ld; expected at most %d", where,
                       (long)ranks, GX_MACHINES_RANKS);
    for (int from = 0; from < m->machines; from++) {
        GX_TRY(gx__machines_check_host(&m->machine[from], where, err));
        for (int to = 0; to < m->machines; to++) GX_TRY(gx__machines_check_link(m, from, to, where, err));
    }
    return gx__machines_check_fields(GX_MACHINES_OF_SET, m, where, err);
}

static const GxMachinesWidth *gx__machines_width(const GxMachinesWidth *width, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(width[i].name, name)) return &width[i];
    return NULL;
}

GxStatus gx_machines_check_model(const GxMachines *m, const GxMachinesWidth *width, int n, const char *where,
                                 GxError *err)
{
    static const char again[] = "measure again, with this model and these options";
    for (int i = 0; i < n; i++) {
        const GxMachinesWidth *measured = gx__machines_width(m->width, m->widths, width[i].name);
        if (!measured)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s does not say for which %s it was measured, the model has %s: %s",
                           where, width[i].name, width[i].text, again);
        if (strcmp(measured->text, width[i].text))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s was measured for %s %s, the model has %s: %s", where,
                           width[i].name, measured->text, width[i].text, again);
    }
    for (int i = 0; i < m->widths; i++)
        if (!gx__machines_width(width, n, m->width[i].name))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s was measured for %s %s, the model has none: %s", where,
                           m->width[i].name, m->width[i].text, again);
    return GX_OK;
}

// ---- equal machines ------------------------------------------------------------------------------------------------

static int gx__machines_is_near(double a, double b, double within) { return fmax(a, b) <= (1 + within) * fmin(a, b); }

static int gx__machines_links_near(const GxMachinesLink *a, const GxMachinesLink *b, double within)
{
    return gx__machines_is_near(a->latency, b->latency, within) &&
           gx__machines_is_near(a->bandwidth, b->bandwidth, within);
}

// The same operations in the same order, and about the same time for all of them.
static int gx__machines_times_near(const GxMachine *a, const GxMachine *b, double within)
{
    double sum[2] = GX_ZERO;
    if (a->operations != b->operations) return 0;
    for (int i = 0; i < a->operations; i++) {
        const GxCostSample *x = &a->operation[i], *y = &b->operation[i];
        if (strcmp(x->name, y->name) || memcmp(&x->dims, &y->dims, sizeof x->dims) || x->flops != y->flops ||
            x->bytes != y->bytes)
            return 0;
        sum[0] += x->seconds, sum[1] += y->seconds;
    }
    return gx__machines_is_near(sum[0], sum[1], within);
}

// 1: the two have such links to all others, and between them such as a class of several has within.
static int gx__machines_reach_alike(const GxMachines *m, int a, int b, double within)
{
    const GxMachinesLink *between = gx__machines_link_at(m, a, b);
    for (int k = 0; k < m->machines; k++) {
        if (k == a || k == b) continue;
        if (!gx__machines_links_near(gx__machines_link_at(m, a, k), gx__machines_link_at(m, b, k), within) ||
            !gx__machines_links_near(gx__machines_link_at(m, k, a), gx__machines_link_at(m, k, b), within))
            return 0;
    }
    return gx__machines_links_near(between, gx__machines_link_at(m, b, a), within) &&
           (m->machine[a].count == 1 || gx__machines_links_near(between, gx__machines_link_at(m, a, a), within)) &&
           (m->machine[b].count == 1 || gx__machines_links_near(between, gx__machines_link_at(m, b, b), within));
}

static int gx__machines_are_equal(const GxMachines *m, int a, int b, double times, double links)
{
    const GxMachine *x = &m->machine[a], *y = &m->machine[b];
    return x->per_host == 1 && y->per_host == 1 && x->threads == y->threads && !strcmp(x->device, y->device) &&
           gx__machines_is_near((double)x->memory, (double)y->memory, times) && gx__machines_times_near(x, y, times) &&
           gx__machines_reach_alike(m, a, b, links);
}

// The mean of n links, by weight: of latencies, and of seconds per byte.
static GxMachinesLink gx__machines_mean(const GxMachinesLink *const *link, const int64_t *weight, int n)
{
    double sum = 0, latency = 0, per_byte = 0;
    for (int i = 0; i < n; i++) {
        if (!weight[i]) continue;
        const double w = (double)weight[i];
        sum += w, latency += w * link[i]->latency, per_byte += w / link[i]->bandwidth;
    }
    const GxMachinesLink mean = {latency / sum, sum / per_byte};
    return mean;
}

static void gx__machines_join_links(GxMachines *m, int a, int b)
{
    const int64_t x = m->machine[a].count, y = m->machine[b].count;
    const int64_t sides[] = {x, y}, pairs[] = {x * (x - 1), x * y, y * x, y * (y - 1)};
    const GxMachinesLink *within[] = {gx__machines_link_at(m, a, a), gx__machines_link_at(m, a, b),
                                      gx__machines_link_at(m, b, a), gx__machines_link_at(m, b, b)};
    const GxMachinesLink own = gx__machines_mean(within, pairs, 4);
    for (int k = 0; k < m->machines; k++) {
        if (k == a || k == b) continue;
        const GxMachinesLink *to[] = {gx__machines_link_at(m, a, k), gx__machines_link_at(m, b, k)};
        const GxMachinesLink *from[] = {gx__machines_link_at(m, k, a), gx__machines_link_at(m, k, b)};
        *gx__machines_link_at(m, a, k) = gx__machines_mean(to, sides, 2);
        *gx__machines_link_at(m, k, a) = gx__machines_mean(from, sides, 2);
    }
    *gx__machines_link_at(m, a, a) = own;
}

static void gx__machines_remove(GxMachines *m, int gone)
{
    const int n = m->machines;
    GxMachinesLink *kept = m->link;
    for (int i = 0; i < n * n; i++)
        if (i / n != gone && i % n != gone) *kept++ = m->link[i];
    free(m->machine[gone].operation);
    memmove(&m->machine[gone], &m->machine[gone + 1], (size_t)(n - 1 - gone) * sizeof *m->machine);
    m->machines--;
}

static void gx__machines_join(GxMachines *m, int a, int b)
{
    GxMachine *x = &m->machine[a], *y = &m->machine[b];
    const double part = (double)y->count / (double)(x->count + y->count);
    for (int i = 0; i < x->operations; i++)
        x->operation[i].seconds += part * (y->operation[i].seconds - x->operation[i].seconds);
    const int is_timed = x->step_seconds > 0 && y->step_seconds > 0;
    x->step_seconds = is_timed ? x->step_seconds + part * (y->step_seconds - x->step_seconds) : 0;
    x->step_spread = is_timed ? fmax(x->step_spread, y->step_spread) : 0;
    x->memory = gx_min(x->memory, y->memory);
    gx__machines_join_links(m, a, b);
    x->count += y->count;
    gx__machines_remove(m, b);
}

GxStatus gx_machines_merge(GxMachines *m, double times, double links, GxError *err)
{
    GX_TRY(gx_machines_check(m, "a set of machines", err));
    for (int i = 0; i + 1 < m->machines;)
        if (gx__machines_are_equal(m, i, i + 1, times, links)) gx__machines_join(m, i, i + 1);
        else i++;
    return GX_OK;
}
#endif
