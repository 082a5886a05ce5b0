// plan/machines.h: what a set of machines can do, as data and as the file machines.json: how long they took for the
// operations of one model, how much memory they have, and how fast the links between them are.
//
//     GxMachines m;
//     GX_TRY(gx_machines_read(&m, "machines.json", err));
//     GX_TRY(gx_machines_check_model(&m, width, n, "machines.json", err));     // measured for this model?
//     gx_cost_fit(&cost, m.machine[c].operation, m.machine[c].operations, err) // plan/costs.h
//     gx_machines_link(&m, 0, 3, &alpha, &beta);
//     gx_machines_close(&m);
//
// The file is written by who measures, and may be edited, or written by hand for machines that are not there:
//
//     {
//       "model": {"family": "llama", "hidden_size": 768},
//       "machines": [
//         {
//           "name": "node",
//           "device": "NVIDIA H100",
//           "memory": 80000000000,
//           "count": 1280,
//           "per_host": 8,
//           "same_host": {"latency": 0.000005, "bandwidth": 400000000000},
//           "operations": [
//             ["linear_forward", [512, 768, 2304], 1811939328, 13369344, 0.0301]
//           ]
//         }
//       ],
//       "links": [
//         {"from": "node", "to": "node", "latency": 0.00002, "bandwidth": 50000000000}
//       ]
//     }
//
// An operation: its name, its dimensions, FLOPs, bytes read and written, seconds. Memory is in bytes, latency in
// seconds, bandwidth in bytes per second. "threads", "count" and "per_host" are 1 if they are left out, and "together"
// is, too: by how much every link is slower while all pairs of machines use theirs, through one switch. "_comment" may
// stand anywhere. Every pair of machines needs a link in each direction; one from a machine to itself, if there are
// several of its kind, is that between two of them on different hosts. What is wrong in a file is refused by name.
//
// Equal machines are a class: one entry, with a count. Ranks are numbered by class, in order of the file; within a
// class the first per_host ranks share a host.
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

// Reads a file; after an error nothing needs to be closed. Writes one: seconds, latencies and bandwidths with 6 digits.
GxStatus gx_machines_read(GxMachines *m, const char *path, GxError *err);
GxStatus gx_machines_write(const GxMachines *m, const char *path, GxError *err);
// What both require; where: the file, for messages.
GxStatus gx_machines_check(const GxMachines *m, const char *where, GxError *err);
// Refuses a model of other widths than those that were measured, by the first that differs.
GxStatus gx_machines_check_model(const GxMachines *m, const GxMachinesWidth *width, int n, const char *where,
                                 GxError *err);

int gx_machines_ranks(const GxMachines *m);
int gx_machines_class_of(const GxMachines *m, int rank);
// The link between two ranks: bytes take alpha + bytes * beta seconds. From a rank to itself: no time.
void gx_machines_link(const GxMachines *m, int from_rank, int to_rank, double *alpha, double *beta);

// Neighboring classes become one where device and threads are equal, memory and the sum of the times of the same
// operations differ by a factor of at most 1 + times, and latencies and bandwidths of their links by 1 + links: 0.03 and
// 0.25 are usual. The first of them gives its name, the least its memory; times are means. Ranks keep their numbers.
GxStatus gx_machines_merge(GxMachines *m, double times, double links, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MACHINES_IMPLEMENTED)
#define GX_MACHINES_IMPLEMENTED
#include "../io/json.h"
#include "../io/json_fields.h"
#include "../io/typing.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__MACHINES_FILE = 64 << 20, GX__MACHINES_WHERE = GX_PATH + GX_FIELD_TEXT + 64 };

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

static GxStatus gx__machines_check_fields(const GxField *f, int n, const void *source, const char *where, GxError *err)
{
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

static GxStatus gx__machines_check_machine(const GxMachine *machine, int number, const char *path, GxError *err)
{
    char where[GX__MACHINES_WHERE];
    if (!machine->name[0])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: machine %d has no name; expected that of its host", path, number);
    snprintf(where, sizeof where, "%s: machine \"%s\"", path, machine->name);
    GX_TRY(gx__machines_check_fields(GX_FIELDS(gx__machines_required), machine, where, err));
    GX_TRY(gx__machines_check_fields(GX_FIELDS(gx__machines_optional), machine, where, err));
    if (machine->operations < 1)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has no operations; measure it, or copy those of an equal machine",
                       where);
    for (int i = 0; i < machine->operations; i++) GX_TRY(gx_cost_check(&machine->operation[i], where, err));
    return GX_OK;
}

static int gx__machines_is_absent(const GxMachinesLink *link) { return link->latency == 0 && link->bandwidth == 0; }

static GxStatus gx__machines_check_link(const GxMachines *m, int from, int to, const char *path, GxError *err)
{
    const GxMachine *a = &m->machine[from], *b = &m->machine[to];
    const GxMachinesLink *link = gx__machines_link_at(m, from, to);
    const int is_needed = from != to || a->count > a->per_host;
    char where[GX__MACHINES_WHERE + GX_FIELD_TEXT];
    snprintf(where, sizeof where, "%s: the link from \"%s\" to \"%s\"", path, a->name, b->name);
    if (!gx__machines_is_absent(link))
        return gx__machines_check_fields(GX_FIELDS(gx__machines_link_fields), link, where, err);
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
    if (!gx__machines_is_absent(&machine->same_host))
        return gx__machines_check_fields(GX_FIELDS(gx__machines_link_fields), &machine->same_host, where, err);
    if (gx_min(machine->count, machine->per_host) < 2) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s is missing, the link between its %ld per host; add \"same_host\": {\"latency\": SECONDS, "
                   "\"bandwidth\": BYTES_PER_SECOND}",
                   where, (long)machine->per_host);
}

static GxStatus gx__machines_check_names(const GxMachines *m, const char *path, GxError *err)
{
    for (int a = 0; a < m->machines; a++)
        for (int b = 0; b < a; b++)
            if (!strcmp(m->machine[a].name, m->machine[b].name))
                return GX_FAIL(
                    err, GX_ERR_FORMAT,
                    "%s: machines %d and %d are both named \"%s\"; give each its own name, or equal ones one "
                    "entry with a \"count\"",
                    path, b, a, m->machine[a].name);
    return GX_OK;
}

GxStatus gx_machines_check(const GxMachines *m, const char *where, GxError *err)
{
    int64_t ranks = 0;
    if (m->machines < 1) return GX_FAIL(err, GX_ERR_FORMAT, "%s has no machines; expected at least one", where);
    for (int i = 0; i < m->machines; i++) {
        GX_TRY(gx__machines_check_machine(&m->machine[i], i, where, err));
        ranks += m->machine[i].count;
    }
    if (ranks > GX_MACHINES_RANKS)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the counts of all machines add up to %ld; expected at most %d", where,
                       (long)ranks, GX_MACHINES_RANKS);
    GX_TRY(gx__machines_check_names(m, where, err));
    for (int from = 0; from < m->machines; from++) {
        GX_TRY(gx__machines_check_host(&m->machine[from], where, err));
        for (int to = 0; to < m->machines; to++) GX_TRY(gx__machines_check_link(m, from, to, where, err));
    }
    return gx__machines_check_fields(GX_FIELDS(gx__machines_set_fields), m, where, err);
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

// ---- reading -------------------------------------------------------------------------------------------------------

// Refuses members that are not among the keys, "a,b,c".
static GxStatus gx__machines_check_keys(const GxJson *object, const char *keys, const char *where, GxError *err)
{
    for (GxJsonMember k = GX_ZERO; gx_json_next(object, &k);) {
        char nearest[GX_COST_NAME] = "", cut[GX_TEXT_VALUE];
        int least = 0, is_known = !strcmp(k.key, "_comment");
        GxTextItem item;
        for (const char *list = keys; gx_text_next(&list, &item);) {
            char name[GX_COST_NAME];
            snprintf(name, sizeof name, "%.*s", (int)item.n, item.at);
            is_known |= !strcmp(k.key, name);
            const int distance = gx_typing_distance(k.key, name);
            if (distance < 0 || (nearest[0] && distance >= least)) continue;
            least = distance;
            memcpy(nearest, name, sizeof nearest);
        }
        if (is_known) continue;
        gx_text_cut(k.key, cut, sizeof cut);
        if (nearest[0]) return GX_FAIL(err, GX_ERR_FORMAT, "%s has \"%s\"; did you mean \"%s\"?", where, cut, nearest);
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has \"%s\"; expected %s, or \"_comment\"", where, cut, keys);
    }
    return GX_OK;
}

static GxStatus gx__machines_refuse(const GxJson *value, const char *where, const char *expected, GxError *err)
{
    char *text, cut[GX_TEXT_VALUE];
    int64_t bytes;
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    gx_text_cut(text, cut, sizeof cut);
    free(text);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s is %s; expected %s", where, cut, expected);
}

static GxStatus gx__machines_read_model(GxMachines *m, const GxJson *model, const char *path, GxError *err)
{
    for (GxJsonMember k = GX_ZERO; gx_json_next(model, &k);) {
        GxMachinesWidth *w = &m->width[m->widths];
        char where[GX__MACHINES_WHERE];
        if (!strcmp(k.key, "_comment")) continue;
        snprintf(where, sizeof where, "%s: model: %.100s", path, k.key);
        if (m->widths == GX_MACHINES_WIDTHS)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: model has more than %d members", path, GX_MACHINES_WIDTHS);
        const int is_text = gx_json_type(k.value) == GX_JSON_STRING;
        if (!is_text && gx_json_type(k.value) != GX_JSON_INT)
            return gx__machines_refuse(k.value, where, "an integer or a string", err);
        const int name = snprintf(w->name, sizeof w->name, "%s", k.key);
        const int text = is_text ? snprintf(w->text, sizeof w->text, "%s", gx_json_string(k.value))
                                 : snprintf(w->text, sizeof w->text, "%lld", (long long)gx_json_int(k.value));
        if (name >= (int)sizeof w->name || text >= (int)sizeof w->text)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s is too long: expected a name of at most %d bytes, a value of %d",
                           where, (int)sizeof w->name - 1, (int)sizeof w->text - 1);
        m->widths++;
    }
    return GX_OK;
}

static int gx__machines_is_number(const GxJson *value)
{
    return gx_json_type(value) == GX_JSON_INT || gx_json_type(value) == GX_JSON_REAL;
}

// 1: ["linear_forward", [512, 768, 2304], 1811939328, 13369344, 0.0301]
static int gx__machines_take_operation(GxCostSample *s, const GxJson *row)
{
    const GxJson *name = gx_json_at(row, 0), *dims = gx_json_at(row, 1);
    double *number[] = {&s->flops, &s->bytes, &s->seconds};
    memset(s, 0, sizeof *s);
    if (gx_json_type(row) != GX_JSON_ARRAY || gx_json_size(row) != 5 || gx_json_type(name) != GX_JSON_STRING ||
        gx_json_type(dims) != GX_JSON_ARRAY || gx_json_size(dims) > 4)
        return 0;
    if (snprintf(s->name, sizeof s->name, "%s", gx_json_string(name)) >= (int)sizeof s->name) return 0;
    for (int i = 0; i < gx_json_size(dims); i++) {
        s->dims.n[i] = gx_json_int(gx_json_at(dims, i));
        if (gx_json_type(gx_json_at(dims, i)) != GX_JSON_INT) return 0;
    }
    for (int i = 0; i < 3; i++) {
        *number[i] = gx_json_double(gx_json_at(row, 2 + i));
        if (!gx__machines_is_number(gx_json_at(row, 2 + i))) return 0;
    }
    return 1;
}

static GxStatus gx__machines_read_operations(GxMachine *machine, const GxJson *list, const char *where, GxError *err)
{
    const int64_t n = gx_json_size(list);
    if (n) machine->operation = (GxCostSample *)malloc((size_t)n * sizeof *machine->operation);
    if (n && !machine->operation) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld operations", (long)n);
    for (int64_t i = 0; i < n; i++, machine->operations++) {
        char which[GX__MACHINES_WHERE + 64];
        if (gx__machines_take_operation(&machine->operation[i], gx_json_at(list, i))) continue;
        snprintf(which, sizeof which, "%s: operation %ld", where, (long)i);
        return gx__machines_refuse(
            gx_json_at(list, i), which,
            "[\"NAME\", [up to 4 dimensions], FLOPs, bytes, seconds], with a name of at most 47 bytes", err);
    }
    return GX_OK;
}

static GxStatus gx__machines_read_link(GxMachinesLink *link, const GxJson *json, const char *where, GxError *err)
{
    return gx_json_get_fields(json, GX_FIELDS(gx__machines_link_fields), 1, link, where, err);
}

static GxStatus gx__machines_read_machine(GxMachine *machine, const GxJson *json, int number, const char *path,
                                          GxError *err)
{
    static const char keys[] =
        "name,device,threads,memory,count,per_host,same_host,step_seconds,step_spread,operations";
    char where[GX__MACHINES_WHERE], on_host[GX__MACHINES_WHERE + 64];
    GxJson *operations, *same_host;
    snprintf(where, sizeof where, "%s: machine %d", path, number);
    if (gx_json_type(json) != GX_JSON_OBJECT) return gx__machines_refuse(json, where, "an object", err);
    if (gx_json_type(gx_json_get(json, "name")) == GX_JSON_STRING)
        snprintf(where, sizeof where, "%s: machine \"%.255s\"", path, gx_json_string(gx_json_get(json, "name")));
    GX_TRY(gx__machines_check_keys(json, keys, where, err));
    GX_TRY(gx_json_get_fields(json, GX_FIELDS(gx__machines_required), 1, machine, where, err));
    GX_TRY(gx_json_get_fields(json, GX_FIELDS(gx__machines_optional), 0, machine, where, err));
    GX_TRY(gx_json_get_object(json, "same_host", 0, &same_host, where, err));
    snprintf(on_host, sizeof on_host, "%s: same_host", where);
    if (same_host) {
        GX_TRY(gx__machines_check_keys(same_host, "latency,bandwidth", on_host, err));
        GX_TRY(gx__machines_read_link(&machine->same_host, same_host, on_host, err));
    }
    GX_TRY(gx_json_get_array(json, "operations", 1, &operations, where, err));
    return gx__machines_read_operations(machine, operations, where, err);
}

// The machine of this name; -1: an error, which names those that there are.
static int gx__machines_named(const GxMachines *m, const char *name, const char *where, GxError *err)
{
    char cut[GX_TEXT_VALUE], known[200];
    size_t length = 0;
    for (int i = 0; i < m->machines; i++)
        if (!strcmp(m->machine[i].name, name)) return i;
    for (int i = 0; i < m->machines && length < sizeof known; i++)
        length +=
            (size_t)snprintf(known + length, sizeof known - length, "%s\"%s\"", i ? ", " : "", m->machine[i].name);
    if (length >= sizeof known) gx_text_mark_cut(known, sizeof known);
    GX_FAIL(err, GX_ERR_FORMAT, "%s names the machine \"%s\", which is not there; expected one of %s", where,
            gx_text_cut(name, cut, sizeof cut), known);
    return -1;
}

static GxStatus gx__machines_take_link(GxMachines *m, const GxJson *json, const char *where, GxError *err)
{
    const char *end[2];
    int index[2];
    if (gx_json_type(json) != GX_JSON_OBJECT) return gx__machines_refuse(json, where, "an object", err);
    GX_TRY(gx__machines_check_keys(json, "from,to,latency,bandwidth", where, err));
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_json_get_string(json, i ? "to" : "from", 1, &end[i], where, err));
        index[i] = gx__machines_named(m, end[i], where, err);
        if (index[i] < 0) return gx_error_code(err);
    }
    GxMachinesLink *link = gx__machines_link_at(m, index[0], index[1]);
    if (!gx__machines_is_absent(link))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is a second one from \"%s\" to \"%s\"; remove one of them", where,
                       end[0], end[1]);
    return gx__machines_read_link(link, json, where, err);
}

static GxStatus gx__machines_take(GxMachines *m, const GxJson *json, const char *path, GxError *err)
{
    GxJson *model, *machines, *links;
    char where[GX__MACHINES_WHERE];
    GX_TRY(gx__machines_check_keys(json, "model,machines,links,together", path, err));
    GX_TRY(gx_json_get_object(json, "model", 1, &model, path, err));
    GX_TRY(gx_json_get_array(json, "machines", 1, &machines, path, err));
    GX_TRY(gx_json_get_array(json, "links", 0, &links, path, err));
    const int64_t n = gx_json_size(machines);
    if (n < 1 || n > GX_MACHINES_CLASSES)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %ld machines; expected from 1 to %d: equal ones are one, with a \"count\"", path,
                       (long)n, GX_MACHINES_CLASSES);
    GX_TRY(gx_machines_open(m, (int)n, err));
    GX_TRY(gx_json_get_fields(json, GX_FIELDS(gx__machines_set_fields), 0, m, path, err));
    GX_TRY(gx__machines_read_model(m, model, path, err));
    for (int i = 0; i < n; i++)
        GX_TRY(gx__machines_read_machine(&m->machine[i], gx_json_at(machines, i), i, path, err));
    GX_TRY(gx__machines_check_names(m, path, err)); // before links name them
    for (int64_t i = 0; i < gx_json_size(links); i++) {
        snprintf(where, sizeof where, "%s: link %ld", path, (long)i);
        GX_TRY(gx__machines_take_link(m, gx_json_at(links, i), where, err));
    }
    return gx_machines_check(m, path, err);
}

GxStatus gx_machines_read(GxMachines *m, const char *path, GxError *err)
{
    GxJson *json;
    memset(m, 0, sizeof *m);
    GX_TRY(gx_json_read_object(&json, path, GX__MACHINES_FILE, 0, err));
    const GxStatus status = gx__machines_take(m, json, path, err);
    gx_json_free(json);
    if (status != GX_OK) gx_machines_close(m);
    return status;
}

// ---- writing -------------------------------------------------------------------------------------------------------

// One operation and one link per line, which gx_json_write would spread over many.
typedef struct {
    FILE *out;
    GxError *err;
} GxMachinesText;

static void gx__machines_put_string(GxMachinesText *t, const char *string)
{
    GxJson *json = gx_json_new_string(string);
    char *text;
    int64_t bytes;
    if (gx_json_dump(json, 0, &text, &bytes, t->err) == GX_OK) fputs(text, t->out);
    free(text);
    gx_json_free(json);
}

static void gx__machines_put_number(GxMachinesText *t, double x)
{
    char text[32];
    if (x == floor(x) && fabs(x) < 1e15) snprintf(text, sizeof text, "%.0f", x);
    else gx_format_double(text, x);
    fputs(text, t->out);
}

static double gx__machines_6_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.5e", x);
    return strtod(text, NULL);
}

static void gx__machines_put_link(GxMachinesText *t, const GxMachinesLink *link)
{
    fputs("\"latency\": ", t->out);
    gx__machines_put_number(t, gx__machines_6_digits(link->latency));
    fputs(", \"bandwidth\": ", t->out);
    gx__machines_put_number(t, gx__machines_6_digits(link->bandwidth));
}

static void gx__machines_put_operation(GxMachinesText *t, const GxCostSample *s)
{
    int dims = 4;
    const double number[] = {s->flops, s->bytes, gx__machines_6_digits(s->seconds)};
    while (dims > 0 && !s->dims.n[dims - 1]) dims--;
    fputs("        [", t->out);
    gx__machines_put_string(t, s->name);
    fputs(", [", t->out);
    for (int i = 0; i < dims; i++) fprintf(t->out, "%s%lld", i ? ", " : "", (long long)s->dims.n[i]);
    fputs("]", t->out);
    for (int i = 0; i < 3; i++) {
        fputs(", ", t->out);
        gx__machines_put_number(t, number[i]);
    }
    fputs("]", t->out);
}

static void gx__machines_put_machine(GxMachinesText *t, const GxMachine *machine)
{
    const double step[] = {machine->step_seconds, machine->step_spread};
    fputs("    {\n      \"name\": ", t->out);
    gx__machines_put_string(t, machine->name);
    fputs(",\n      \"device\": ", t->out);
    gx__machines_put_string(t, machine->device);
    fprintf(t->out, ",\n      \"threads\": %lld,\n      \"memory\": %lld,\n      \"count\": %lld,\n",
            (long long)machine->threads, (long long)machine->memory, (long long)machine->count);
    if (machine->per_host != 1) fprintf(t->out, "      \"per_host\": %lld,\n", (long long)machine->per_host);
    if (!gx__machines_is_absent(&machine->same_host)) {
        fputs("      \"same_host\": {", t->out);
        gx__machines_put_link(t, &machine->same_host);
        fputs("},\n", t->out);
    }
    for (int i = 0; i < 2; i++) {
        if (!(step[i] > 0)) continue;
        fprintf(t->out, "      \"%s\": ", i ? "step_spread" : "step_seconds");
        gx__machines_put_number(t, gx__machines_6_digits(step[i]));
        fputs(",\n", t->out);
    }
    fputs("      \"operations\": [", t->out);
    for (int i = 0; i < machine->operations; i++) {
        fputs(i ? ",\n" : "\n", t->out);
        gx__machines_put_operation(t, &machine->operation[i]);
    }
    fputs("\n      ]\n    }", t->out);
}

static void gx__machines_put_width(GxMachinesText *t, const GxMachinesWidth *width)
{
    char number[24];
    gx__machines_put_string(t, width->name);
    fputs(": ", t->out);
    snprintf(number, sizeof number, "%lld", strtoll(width->text, NULL, 10));
    if (!strcmp(number, width->text)) fputs(number, t->out);
    else gx__machines_put_string(t, width->text);
}

static void gx__machines_put(GxMachinesText *t, const GxMachines *m)
{
    int links = 0;
    fputs("{\n  \"model\": {", t->out);
    for (int i = 0; i < m->widths; i++) {
        fputs(i ? ",\n    " : "\n    ", t->out);
        gx__machines_put_width(t, &m->width[i]);
    }
    fputs(m->widths ? "\n  },\n  \"machines\": [" : "},\n  \"machines\": [", t->out);
    for (int i = 0; i < m->machines; i++) {
        fputs(i ? ",\n" : "\n", t->out);
        gx__machines_put_machine(t, &m->machine[i]);
    }
    fputs("\n  ],\n  \"links\": [", t->out);
    for (int i = 0; i < m->machines * m->machines; i++) {
        if (gx__machines_is_absent(&m->link[i])) continue;
        fputs(links++ ? ",\n    {\"from\": " : "\n    {\"from\": ", t->out);
        gx__machines_put_string(t, m->machine[i / m->machines].name);
        fputs(", \"to\": ", t->out);
        gx__machines_put_string(t, m->machine[i % m->machines].name);
        fputs(", ", t->out);
        gx__machines_put_link(t, &m->link[i]);
        fputs("}", t->out);
    }
    fputs(links ? "\n  ],\n  \"together\": " : "],\n  \"together\": ", t->out);
    gx__machines_put_number(t, gx__machines_6_digits(m->together));
    fputs("\n}\n", t->out);
}

GxStatus gx_machines_write(const GxMachines *m, const char *path, GxError *err)
{
    GX_TRY(gx_machines_check(m, path, err));
    char *text = NULL;
    size_t bytes = 0;
    GxMachinesText t = {open_memstream(&text, &bytes), err};
    if (t.out) gx__machines_put(&t, m);
    const int failed = !t.out || fclose(t.out) != 0;
    if (failed) GX_FAIL(err, GX_ERR_MEMORY, "no memory to write %s", path);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_file_write(path, text, (int64_t)bytes, err);
    free(text);
    return status;
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
