// plan/machines_file.h: machines.json: reads and writes a set of machines (plan/machines.h).
//
// The file is written by who measures, and may be edited, or written by hand for machines that are not there:
//
//     {
//       "model": {"family": "llama", "hidden_size": 768},
//       "machines": [
//         {
//           "name": "node",
//           "device": "NVIDIA H200",
//           "memory": 140000000000,
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
// seconds, bandwidth in bytes per second. What is left out: "threads", "count" and "per_host" are 1; so is "together",
// by how much every link is slower while all pairs of machines use theirs, through one switch; "step_seconds" and
// "step_spread", a whole step of the model and its relative spread, are not known. "_comment" may stand in every
// object, and is not kept. What is wrong is refused by name: nothing in the file is ignored silently.
#ifndef GX_MACHINES_FILE_H
#define GX_MACHINES_FILE_H
#include "machines.h"
GX_BEGIN

// After an error nothing needs to be closed.
GxStatus gx_machines_read(GxMachines *m, const char *path, GxError *err);
// Seconds, latencies and bandwidths get 6 digits, all else is exact.
GxStatus gx_machines_write(const GxMachines *m, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MACHINES_FILE_IMPLEMENTED)
#define GX_MACHINES_FILE_IMPLEMENTED
#include "../io/json.h"
#include "../io/json_fields.h"
#include "../io/typing.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__MACHINES_FILE_CAP = 64 << 20, GX__MACHINES_FILE_WHERE = GX_PATH + GX_FIELD_TEXT + 64 };

// ---- reading -------------------------------------------------------------------------------------------------------

// Refuses members that are not among the keys, "a,b,c".
static GxStatus gx__machines_file_check_keys(const GxJson *object, const char *keys, const char *where, GxError *err)
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

static GxStatus gx__machines_file_refuse(const GxJson *value, const char *where, const char *expected, GxError *err)
{
    char *text, cut[GX_TEXT_VALUE];
    int64_t bytes;
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    gx_text_cut(text, cut, sizeof cut);
    free(text);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s is %s; expected %s", where, cut, expected);
}

static GxStatus gx__machines_file_read_model(GxMachines *m, const GxJson *model, const char *path, GxError *err)
{
    for (GxJsonMember k = GX_ZERO; gx_json_next(model, &k);) {
        GxMachinesWidth *w = &m->width[m->widths];
        char where[GX__MACHINES_FILE_WHERE];
        if (!strcmp(k.key, "_comment")) continue;
        snprintf(where, sizeof where, "%s: model: %.100s", path, k.key);
        if (m->widths == GX_MACHINES_WIDTHS)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: model has more than %d members", path, GX_MACHINES_WIDTHS);
        const int is_text = gx_json_type(k.value) == GX_JSON_STRING;
        if (!is_text && gx_json_type(k.value) != GX_JSON_INT)
            return gx__machines_file_refuse(k.value, where, "an integer or a string", err);
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

static GxStatus gx__machines_file_fields(const GxJson *json, GxMachinesPart part, void *target, const char *where,
                                         GxError *err)
{
    int n;
    const GxField *field = gx_machines_fields(part, &n);
    const int required = part == GX_MACHINES_REQUIRED || part == GX_MACHINES_OF_LINK;
    return gx_json_get_fields(json, field, n, required, target, where, err);
}

static int gx__machines_file_is_number(const GxJson *value)
{
    return gx_json_type(value) == GX_JSON_INT || gx_json_type(value) == GX_JSON_REAL;
}

// 1: ["linear_forward", [512, 768, 2304], 1811939328, 13369344, 0.0301]
static int gx__machines_file_take_operation(GxCostSample *s, const GxJson *row)
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
        if (!gx__machines_file_is_number(gx_json_at(row, 2 + i))) return 0;
    }
    return 1;
}

static GxStatus gx__machines_file_read_operations(GxMachine *machine, const GxJson *list, const char *where,
                                                  GxError *err)
{
    const int64_t n = gx_json_size(list);
    if (n) machine->operation = (GxCostSample *)malloc((size_t)n * sizeof *machine->operation);
    if (n && !machine->operation) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld operations", (long)n);
    for (int64_t i = 0; i < n; i++, machine->operations++) {
        char which[GX__MACHINES_FILE_WHERE + 64];
        if (gx__machines_file_take_operation(&machine->operation[i], gx_json_at(list, i))) continue;
        snprintf(which, sizeof which, "%s: operation %ld", where, (long)i);
        return gx__machines_file_refuse(
            gx_json_at(list, i), which,
            "[\"NAME\", [up to 4 dimensions], FLOPs, bytes, seconds], with a name of at most 47 bytes", err);
    }
    return GX_OK;
}

static GxStatus gx__machines_file_read_link(GxMachinesLink *link, const GxJson *json, const char *where, GxError *err)
{
    return gx__machines_file_fields(json, GX_MACHINES_OF_LINK, link, where, err);
}

static GxStatus gx__machines_file_read_machine(GxMachine *machine, const GxJson *json, int number, const char *path,
                                               GxError *err)
{
    static const char keys[] =
        "name,device,threads,memory,count,per_host,same_host,step_seconds,step_spread,operations";
    char where[GX__MACHINES_FILE_WHERE], on_host[GX__MACHINES_FILE_WHERE + 64];
    GxJson *operations, *same_host = NULL;
    snprintf(where, sizeof where, "%s: machine %d", path, number);
    if (gx_json_type(json) != GX_JSON_OBJECT) return gx__machines_file_refuse(json, where, "an object", err);
    if (gx_json_type(gx_json_get(json, "name")) == GX_JSON_STRING)
        snprintf(where, sizeof where, "%s: machine \"%.255s\"", path, gx_json_string(gx_json_get(json, "name")));
    GX_TRY(gx__machines_file_check_keys(json, keys, where, err));
    GX_TRY(gx__machines_file_fields(json, GX_MACHINES_REQUIRED, machine, where, err));
    GX_TRY(gx__machines_file_fields(json, GX_MACHINES_OPTIONAL, machine, where, err));
    GX_TRY(gx_json_get_object(json, "same_host", 0, &same_host, where, err));
    snprintf(on_host, sizeof on_host, "%s: same_host", where);
    if (same_host) {
        GX_TRY(gx__machines_file_check_keys(same_host, "latency,bandwidth", on_host, err));
        GX_TRY(gx__machines_file_read_link(&machine->same_host, same_host, on_host, err));
    }
    GX_TRY(gx_json_get_array(json, "operations", 1, &operations, where, err));
    return gx__machines_file_read_operations(machine, operations, where, err);
}

// The machine of this name; -1: an error, which names those that there are.
static int gx__machines_file_named(const GxMachines *m, const char *name, const char *where, GxError *err)
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

static GxStatus gx__machines_file_take_link(GxMachines *m, const GxJson *json, const char *where, GxError *err)
{
    const char *end[2];
    int index[2];
    if (gx_json_type(json) != GX_JSON_OBJECT) return gx__machines_file_refuse(json, where, "an object", err);
    GX_TRY(gx__machines_file_check_keys(json, "from,to,latency,bandwidth", where, err));
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_json_get_string(json, i ? "to" : "from", 1, &end[i], where, err));
        index[i] = gx__machines_file_named(m, end[i], where, err);
        if (index[i] < 0) return gx_error_code(err);
    }
    GxMachinesLink *link = &m->link[index[0] * m->machines + index[1]];
    if (gx_machines_has_link(link))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is a second one from \"%s\" to \"%s\"; remove one of them", where,
                       end[0], end[1]);
    return gx__machines_file_read_link(link, json, where, err);
}

static GxStatus gx__machines_file_take(GxMachines *m, const GxJson *json, const char *path, GxError *err)
{
    GxJson *model, *machines, *links = NULL;
    char where[GX__MACHINES_FILE_WHERE];
    GX_TRY(gx__machines_file_check_keys(json, "model,machines,links,together", path, err));
    GX_TRY(gx_json_get_object(json, "model", 1, &model, path, err));
    GX_TRY(gx_json_get_array(json, "machines", 1, &machines, path, err));
    GX_TRY(gx_json_get_array(json, "links", 0, &links, path, err));
    const int64_t n = gx_json_size(machines);
    if (n < 1 || n > GX_MACHINES_CLASSES)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %ld machines; expected from 1 to %d: equal ones are one, with a \"count\"", path,
                       (long)n, GX_MACHINES_CLASSES);
    GX_TRY(gx_machines_open(m, (int)n, err));
    GX_TRY(gx__machines_file_fields(json, GX_MACHINES_OF_SET, m, path, err));
    GX_TRY(gx__machines_file_read_model(m, model, path, err));
    for (int i = 0; i < n; i++)
        GX_TRY(gx__machines_file_read_machine(&m->machine[i], gx_json_at(machines, i), i, path, err));
    GX_TRY(gx_machines_check_names(m, path, err)); // before links name them
    for (int64_t i = 0; i < gx_json_size(links); i++) {
        snprintf(where, sizeof where, "%s: link %ld", path, (long)i);
        GX_TRY(gx__machines_file_take_link(m, gx_json_at(links, i), where, err));
    }
    return gx_machines_check(m, path, err);
}

GxStatus gx_machines_read(GxMachines *m, const char *path, GxError *err)
{
    GxJson *json;
    memset(m, 0, sizeof *m);
    GX_TRY(gx_json_read_object(&json, path, GX__MACHINES_FILE_CAP, 0, err));
    const GxStatus status = gx__machines_file_take(m, json, path, err);
    gx_json_free(json);
    if (status != GX_OK) gx_machines_close(m);
    return status;
}

// ---- writing -------------------------------------------------------------------------------------------------------

// One operation and one link per line, which gx_json_write would spread over many.
typedef struct {
    FILE *out;
    GxError *err;
} GxMachinesFileText;

static void gx__machines_file_put_string(GxMachinesFileText *t, const char *string)
{
    GxJson *json = gx_json_new_string(string);
    char *text;
    int64_t bytes;
    if (gx_json_dump(json, 0, &text, &bytes, t->err) == GX_OK) fputs(text, t->out);
    free(text);
    gx_json_free(json);
}

static void gx__machines_file_put_number(GxMachinesFileText *t, double x)
{
    char text[32];
    if (x == floor(x) && fabs(x) < 1e15) snprintf(text, sizeof text, "%.0f", x);
    else gx_format_double(text, x);
    fputs(text, t->out);
}

static double gx__machines_file_6_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.5e", x);
    return strtod(text, NULL);
}

static void gx__machines_file_put_link(GxMachinesFileText *t, const GxMachinesLink *link)
{
    fputs("\"latency\": ", t->out);
    gx__machines_file_put_number(t, gx__machines_file_6_digits(link->latency));
    fputs(", \"bandwidth\": ", t->out);
    gx__machines_file_put_number(t, gx__machines_file_6_digits(link->bandwidth));
}

static void gx__machines_file_put_operation(GxMachinesFileText *t, const GxCostSample *s)
{
    int dims = 4;
    const double number[] = {s->flops, s->bytes, gx__machines_file_6_digits(s->seconds)};
    while (dims > 0 && !s->dims.n[dims - 1]) dims--;
    fputs("        [", t->out);
    gx__machines_file_put_string(t, s->name);
    fputs(", [", t->out);
    for (int i = 0; i < dims; i++) fprintf(t->out, "%s%lld", i ? ", " : "", (long long)s->dims.n[i]);
    fputs("]", t->out);
    for (int i = 0; i < 3; i++) {
        fputs(", ", t->out);
        gx__machines_file_put_number(t, number[i]);
    }
    fputs("]", t->out);
}

static void gx__machines_file_put_machine(GxMachinesFileText *t, const GxMachine *machine)
{
    const double step[] = {machine->step_seconds, machine->step_spread};
    fputs("    {\n      \"name\": ", t->out);
    gx__machines_file_put_string(t, machine->name);
    fputs(",\n      \"device\": ", t->out);
    gx__machines_file_put_string(t, machine->device);
    fprintf(t->out, ",\n      \"threads\": %lld,\n      \"memory\": %lld,\n      \"count\": %lld,\n",
            (long long)machine->threads, (long long)machine->memory, (long long)machine->count);
    if (machine->per_host != 1) fprintf(t->out, "      \"per_host\": %lld,\n", (long long)machine->per_host);
    if (gx_machines_has_link(&machine->same_host)) {
        fputs("      \"same_host\": {", t->out);
        gx__machines_file_put_link(t, &machine->same_host);
        fputs("},\n", t->out);
    }
    for (int i = 0; i < 2; i++) {
        if (!(step[i] > 0)) continue;
        fprintf(t->out, "      \"%s\": ", i ? "step_spread" : "step_seconds");
        gx__machines_file_put_number(t, gx__machines_file_6_digits(step[i]));
        fputs(",\n", t->out);
    }
    fputs("      \"operations\": [", t->out);
    for (int i = 0; i < machine->operations; i++) {
        fputs(i ? ",\n" : "\n", t->out);
        gx__machines_file_put_operation(t, &machine->operation[i]);
    }
    fputs("\n      ]\n    }", t->out);
}

static void gx__machines_file_put_width(GxMachinesFileText *t, const GxMachinesWidth *width)
{
    char number[24];
    gx__machines_file_put_string(t, width->name);
    fputs(": ", t->out);
    snprintf(number, sizeof number, "%lld", strtoll(width->text, NULL, 10));
    if (!strcmp(number, width->text)) fputs(number, t->out);
    else gx__machines_file_put_string(t, width->text);
}

static void gx__machines_file_put(GxMachinesFileText *t, const GxMachines *m)
{
    int links = 0;
    fputs("{\n  \"model\": {", t->out);
    for (int i = 0; i < m->widths; i++) {
        fputs(i ? ",\n    " : "\n    ", t->out);
        gx__machines_file_put_width(t, &m->width[i]);
    }
    fputs(m->widths ? "\n  },\n  \"machines\": [" : "},\n  \"machines\": [", t->out);
    for (int i = 0; i < m->machines; i++) {
        fputs(i ? ",\n" : "\n", t->out);
        gx__machines_file_put_machine(t, &m->machine[i]);
    }
    fputs("\n  ],\n  \"links\": [", t->out);
    for (int i = 0; i < m->machines * m->machines; i++) {
        if (!gx_machines_has_link(&m->link[i])) continue;
        fputs(links++ ? ",\n    {\"from\": " : "\n    {\"from\": ", t->out);
        gx__machines_file_put_string(t, m->machine[i / m->machines].name);
        fputs(", \"to\": ", t->out);
        gx__machines_file_put_string(t, m->machine[i % m->machines].name);
        fputs(", ", t->out);
        gx__machines_file_put_link(t, &m->link[i]);
        fputs("}", t->out);
    }
    fputs(links ? "\n  ],\n  \"together\": " : "],\n  \"together\": ", t->out);
    gx__machines_file_put_number(t, gx__machines_file_6_digits(m->together));
    fputs("\n}\n", t->out);
}

GxStatus gx_machines_write(const GxMachines *m, const char *path, GxError *err)
{
    GX_TRY(gx_machines_check(m, path, err));
    char *text = NULL;
    size_t bytes = 0;
    GxMachinesFileText t = {open_memstream(&text, &bytes), err};
    if (t.out) gx__machines_file_put(&t, m);
    const int failed = !t.out || fclose(t.out) != 0;
    if (failed) GX_FAIL(err, GX_ERR_MEMORY, "no memory to write %s", path);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_file_write(path, text, (int64_t)bytes, err);
    free(text);
    return status;
}
#endif
