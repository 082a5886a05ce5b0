// modules.h: the tree of a model's modules, and what a step costs in each of them: parameters, MACs, FLOPs, bytes,
// seconds. It is filled from a recorder's events (base/recorder.h): measured ones, or those of a dry run, which have no
// seconds.
//
//     GxModules t;
//     GX_TRY(gx_modules_open(&t, &model, "LlamaForCausalLM", err));
//     recorder.heard = ...                        // for every event: gx_modules_add(&t, e, times, seconds)
//     gx_modules_add_rest(&t, step_seconds);      // of all events and what is between them
//     gx_modules_gather(g, &t);                   // sums over children and ranks
//     gx_modules_close(&t);
//
// Modules are those of the tensors' names, which are Hugging Face's: model.layers.0.mlp.down_proj. Matrices that are
// multiplied as one share a row: "q_proj, k_proj, v_proj". Layers with the same modules, shapes and frozen tensors are
// one row, "layers.0-5". What has no tensor of its own (attention itself, RoPE, an activation, additions, collectives)
// has a row where the table of places says (gx__modules_of_unit); what belongs to no unit (sums of gradients, the
// optimizer) is beside the model, so that all rows together are the step.
//
// MACs are those of products (linears, attention): half of their FLOPs, as the recorder counts them, so causal
// attention is counted causal. Everything is what is computed, not what a formula says: frozen matrices have no weight
// gradient, and recomputation counts as such.
#ifndef GX_MODULES_H
#define GX_MODULES_H
#include "../model/model.h"
GX_BEGIN

// Of the loss and its gradient, which a head computes in one action, the products of the gradient are BACKWARD. REST:
// what no unit computes.
typedef enum { GX_PHASE_FORWARD = 0, GX_PHASE_BACKWARD, GX_PHASE_RECOMPUTE, GX_PHASE_REST, GX_PHASES } GxPhase;

typedef struct {
    double calls, flops, products; // products: the FLOPs of products
    double bytes, sent;            // read and written by operations; sent by collectives
    double seconds;
} GxModuleCost;

enum { GX_MODULE_NAME = 192 };
typedef struct {
    char name[GX_MODULE_NAME];   // "self_attn", "q_proj, k_proj, v_proj", "layers.0-5"
    int parent;                  // its row; -1: the step's
    int units;                   // of how many equal units; 0: it does not have their number in its name
    int group, first, last;      // of such a name: which units, and the last range of their numbers
    int64_t parameters, trained; // of the whole model, tied ones once; with those of the modules in it
    GxModuleCost cost[GX_PHASES];
    double least, most; // seconds of the ranks that compute something of it, by gx_modules_gather
} GxModule;

enum { GX_MODULES_STEP = 0, GX_MODULES_MODEL }; // the first two rows
typedef struct {
    const GxModel *m;
    GxModule *row; // a module's comes before those in it
    int n, capacity;
    int *of_tensor; // [tensors of the model's table]
    int *group;     // [units]: equal units have the same; the index of the first one
    int *of_unit;   // [units][GX_MAX_PAIRS][places]: rows for what has no tensor; -1: none
    int of_rest;    // the first row for what belongs to no unit
    int lost;       // 1: memory ran out
} GxModules;

// root: the model's name. m is borrowed.
GxStatus gx_modules_open(GxModules *t, const GxModel *m, const char *root, GxError *err);
void gx_modules_close(GxModules *t); // accepts a struct of zeros

int gx_modules_find(const GxModules *t, const GxEvent *e);      // the row that an event belongs to
GxPhase gx_modules_phase(const GxModules *t, const GxEvent *e); // of an event that belongs to an action of a list
void gx_modules_add(GxModules *t, const GxEvent *e, int64_t times, double seconds);
void gx_modules_add_rest(GxModules *t, double seconds); // of the whole step: what its events lack is "between"

// Adds what is in a module to the module. Then sums all over the ranks, which all call this together.
void gx_modules_gather(GxContext *g, GxModules *t);

GxModuleCost gx_module_total(const GxModule *r); // of all phases

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODULES_IMPLEMENTED)
#define GX_MODULES_IMPLEMENTED
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../comm/comm.h"
#include "../model/pass.h"
#include "../parallel/steps.h"

// ---- where things belong -------------------------------------------------------------------------------------------

// Parts of a pair where something happens; the first three are GxPassPart's.
enum { GX__MODULES_ENTER = GX_AT_NORM, GX__MODULES_CORE, GX__MODULES_CON, GX__MODULES_DOOR, GX__MODULES_SIDE };
enum { GX__MODULES_ANY = -1 };

// A module that a pair's tensors name.
typedef enum {
    GX__MODULES_AT_NORM,      // the norm before the core
    GX__MODULES_AT_NEXT_NORM, // that of the next pair
    GX__MODULES_AT_CON_NORM,  // CON's norm
    GX__MODULES_AT_MATRIX,    // the embedding
    GX__MODULES_AT_LINEAR,    // the module that has the core's first matrix
    GX__MODULES_AT_ENTER,     // the module that has the matrix before the core
    GX__MODULES_AT_UNIT,      // the module that has all of the unit's
    GX__MODULES_AT_MODEL
} gx__ModulesAt;

// Operations without a tensor: of this core, in this part of its pair, whose names begin with `name`. The first row
// that fits counts, and whose module exists. label: of a row in the module; NULL: the module itself.
static const struct {
    int core, part; // GxCoreKind
    const char *name;
    gx__ModulesAt at;
    const char *label;
} gx__modules_of_unit[] = {
    {GX__MODULES_ANY, GX__MODULES_ENTER, "rms_norm", GX__MODULES_AT_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_ENTER, "layer_norm", GX__MODULES_AT_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_ENTER, "gelu", GX__MODULES_AT_ENTER, "act_fn"},
    {GX__MODULES_ANY, GX__MODULES_ENTER, "tanh", GX__MODULES_AT_ENTER, "act_fn"},
    {GX__MODULES_ANY, GX__MODULES_ENTER, "dropout", GX__MODULES_AT_ENTER, "dropout"},
    {GX_CORE_ATT, GX__MODULES_ENTER, "", GX__MODULES_AT_UNIT, "residual"},
    {GX_CORE_MLP, GX__MODULES_ENTER, "", GX__MODULES_AT_UNIT, "residual"},
    {GX_CORE_MEMORY, GX__MODULES_ENTER, "", GX__MODULES_AT_MODEL, "memory"},
    {GX__MODULES_ANY, GX__MODULES_ENTER, "", GX__MODULES_AT_UNIT, "rows of the target"},
    {GX_CORE_ATT, GX__MODULES_CORE, "attention", GX__MODULES_AT_LINEAR, "attention"},
    {GX_CORE_ATT, GX__MODULES_CORE, "rope", GX__MODULES_AT_LINEAR, "rotary_emb"},
    {GX_CORE_MLP, GX__MODULES_CORE, "swiglu", GX__MODULES_AT_LINEAR, "act_fn"},
    {GX_CORE_MLP, GX__MODULES_CORE, "gelu", GX__MODULES_AT_LINEAR, "act_fn"},
    {GX_CORE_MLP, GX__MODULES_CORE, "geglu", GX__MODULES_AT_LINEAR, "act_fn"},
    {GX_CORE_EMBED, GX__MODULES_CORE, "embedding", GX__MODULES_AT_MATRIX, NULL},
    {GX_CORE_HEAD, GX__MODULES_CORE, "", GX__MODULES_AT_MODEL, "loss"},
    {GX_CORE_LABELS, GX__MODULES_CORE, "", GX__MODULES_AT_MODEL, "loss"},
    {GX_CORE_VECTORS, GX__MODULES_CORE, "", GX__MODULES_AT_MODEL, "vectors and loss"},
    {GX_CORE_MEMORY, GX__MODULES_CORE, "", GX__MODULES_AT_MODEL, "memory"},
    {GX__MODULES_ANY, GX__MODULES_CON, "add_rms_norm", GX__MODULES_AT_NEXT_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_CON, "rms_norm", GX__MODULES_AT_CON_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_CON, "residual", GX__MODULES_AT_CON_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_CON, "layer_norm", GX__MODULES_AT_CON_NORM, NULL},
    {GX__MODULES_ANY, GX__MODULES_CON, "dropout", GX__MODULES_AT_UNIT, "dropout"},
    {GX__MODULES_ANY, GX__MODULES_CON, "", GX__MODULES_AT_UNIT, "residual"},
    {GX__MODULES_ANY, GX__MODULES_DOOR, "", GX__MODULES_AT_UNIT, "communication"},
    {GX__MODULES_ANY, GX__MODULES_SIDE, "", GX__MODULES_AT_UNIT, "mix"},
    {GX__MODULES_ANY, GX__MODULES_CORE, "", GX__MODULES_AT_LINEAR, "other"},
    {GX__MODULES_ANY, GX__MODULES_CORE, "", GX__MODULES_AT_UNIT, "other"},
};
enum { GX__MODULES_PLACES = sizeof gx__modules_of_unit / sizeof *gx__modules_of_unit };

// What belongs to no pair, by its site. The last two rows: any other site; the time between operations.
static const struct {
    const char *site, *label;
} gx__modules_of_rest[] = {
    {"window", "labels counted"},
    {"gather", "weights gathered"},
    {"stage", "messages between stages"},
    {"side_cache", "side cache"},
    {"shared_grads", "gradients summed"},
    {"grads", "gradients summed"},
    {"tied", "gradients summed"},
    {"scatter", "gradients summed"},
    {"norm", "norm of the gradients"},
    {"loss", "norm of the gradients"},
    {"step", "optimizer"},
    {NULL, "other"},
    {NULL, "between operations"},
};
enum { GX__MODULES_RESTS = sizeof gx__modules_of_rest / sizeof *gx__modules_of_rest };

// Which part of which core's pair has this site. 0: it is no pair's.
static int gx__modules_part(const char *site, int *core, int *part)
{
    static const char *const side[] = {"side_down", "side_up"};
    *core = GX__MODULES_ANY, *part = GX__MODULES_SIDE;
    for (int i = 0; i < 2; i++)
        if (!strcmp(site, side[i])) return 1;
    for (*core = 0; *core < GX_CORE_KINDS; ++*core) {
        for (*part = GX__MODULES_ENTER; *part <= GX__MODULES_CON; ++*part)
            if (!strcmp(site, gx_site_name((GxCoreKind)*core, (GxPassPart)*part))) return 1;
        for (int door = GX_ENTRY; door <= GX_INSIDE; door++)
            if (!strcmp(site, gx_door_name((GxCoreKind)*core, (GxDoor)door))) return *part = GX__MODULES_DOOR, 1;
    }
    return 0;
}

// ---- the tree ------------------------------------------------------------------------------------------------------

static int gx__modules_new(GxModules *t, int parent, const char *name, int64_t bytes)
{
    if (t->n == t->capacity && !t->lost) {
        const int capacity = t->capacity ? 2 * t->capacity : 64;
        GxModule *grown = (GxModule *)realloc(t->row, (size_t)capacity * sizeof *grown);
        if (!grown) t->lost = 1;
        else t->row = grown, t->capacity = capacity;
    }
    if (t->lost) return 0;
    GxModule *r = &t->row[t->n];
    memset(r, 0, sizeof *r);
    snprintf(r->name, sizeof r->name, "%.*s", (int)bytes, name);
    r->parent = parent, r->group = r->last = -1;
    return t->n++;
}

// The row of this name in a module; a new one, if there is none. group: -1, or the units whose number follows.
static int gx__modules_child(GxModules *t, int parent, const char *name, int64_t bytes, int group)
{
    for (int i = parent + 1; i < t->n; i++) {
        const GxModule *r = &t->row[i];
        if (r->parent != parent || r->group != group || strncmp(r->name, name, (size_t)bytes)) continue;
        if (group >= 0 ? r->name[bytes] == '.' : !r->name[bytes]) return i;
    }
    const int made = gx__modules_new(t, parent, name, bytes);
    if (!t->lost) t->row[made].group = group;
    return made;
}

// Adds a unit's number to a name: "layers.0-2", then "layers.0-3", then "layers.0-3,5".
static void gx__modules_number(GxModule *r, int64_t bytes, int number)
{
    const size_t n = strlen(r->name);
    if (r->last == number) return; // another tensor of this unit
    r->units++;
    if (r->last < 0) snprintf(r->name + bytes, sizeof r->name - (size_t)bytes, ".%d", number), r->first = number;
    else if (number != r->last + 1) snprintf(r->name + n, sizeof r->name - n, ",%d", number), r->first = number;
    else {
        char *comma = strrchr(r->name, ','), *range = comma ? comma + 1 : r->name + bytes + 1;
        snprintf(range, sizeof r->name - (size_t)(range - r->name), "%d-%d", r->first, number);
    }
    r->last = number;
}

// 1: a part of a name that is a number; *number, and its length.
static int gx__modules_is_number(const char *part, int *number, size_t *length)
{
    *length = strspn(part, "0123456789");
    *number = *length && *length < 9 ? atoi(part) : 0;
    return *length && (part[*length] == '.' || !part[*length]);
}

// The row of a module of a unit, by its name (`bytes` of it), and those of the modules that it is in.
static int gx__modules_at(GxModules *t, int unit, const char *name, int64_t bytes)
{
    char path[2 * GX_NAME];
    int at = GX_MODULES_MODEL, number;
    size_t digits;
    snprintf(path, sizeof path, "%.*s", (int)bytes, name);
    for (const char *part = path; *part && !t->lost;) {
        const size_t n = strcspn(part, ".");
        const int has_number = part[n] && gx__modules_is_number(part + n + 1, &number, &digits);
        at = gx__modules_child(t, at, part, (int64_t)n, has_number ? t->group[unit] : -1);
        if (has_number && !t->lost) gx__modules_number(&t->row[at], (int64_t)n, number);
        part += n;
        if (has_number) part += 1 + digits;
        part += *part == '.';
    }
    return at;
}

// ---- units that are alike ------------------------------------------------------------------------------------------

// 1: the names are the same but for numbers.
static int gx__modules_same_name(const char *a, const char *b)
{
    while (*a || *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b))
            a += strspn(a, "0123456789"), b += strspn(b, "0123456789");
        else if (*a++ != *b++) return 0;
    }
    return 1;
}

static int gx__modules_same_tensor(const GxTensor *a, const GxTensor *b)
{
    int same = a->ndim == b->ndim && a->frozen == b->frozen && a->quantized == b->quantized &&
               a->has_alias == b->has_alias && a->has_lora == b->has_lora && gx__modules_same_name(a->name, b->name);
    for (int d = 0; d < a->ndim && same; d++) same = a->global_shape[d] == b->global_shape[d];
    return same;
}

static int gx__modules_same_unit(const GxModel *m, int a, int b)
{
    const GxUnit *x = &m->unit[a], *y = &m->unit[b];
    int same = x->kind == y->kind && x->rows == y->rows && x->has_side == y->has_side &&
               x->sliding_window == y->sliding_window && x->skips_rope == y->skips_rope &&
               x->local_rope == y->local_rope;
    for (int i = 0; i < x->rows && same; i++)
        same = gx__modules_same_tensor(&m->table.row[x->first_row + i], &m->table.row[y->first_row + i]);
    return same;
}

static void gx__modules_group(GxModules *t)
{
    for (int u = 0; u < t->m->units; u++) {
        t->group[u] = u;
        for (int first = 0; first < u && t->group[u] == u; first++)
            if (t->group[first] == first && gx__modules_same_unit(t->m, first, u)) t->group[u] = first;
    }
}

// ---- rows of tensors -----------------------------------------------------------------------------------------------

// The bytes of a tensor's name that are its module's: without ".weight" or ".bias", if it has one of them.
static int64_t gx__modules_stem(const GxTensor *w)
{
    const int64_t weight = gx_text_stem(w->name, ".weight"), bias = gx_text_stem(w->name, ".bias");
    return weight >= 0 ? weight : bias >= 0 ? bias : (int64_t)strlen(w->name);
}

static int64_t gx__modules_parent(const GxTensor *w) // of the module that has the tensor's; 0: the model has it
{
    int64_t n = gx__modules_stem(w) - 1;
    while (n > 0 && w->name[n] != '.') n--;
    return gx_max(n, 0);
}

// The name of a linear's row: those of its matrices, "q_proj, k_proj, v_proj".
static void gx__modules_linear_name(const GxTensor *w, int parts, const char *more, char *name, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < parts; i++) {
        const int64_t from = gx__modules_parent(&w[i]), skip = from + (w[i].name[from] == '.');
        n += (size_t)snprintf(name + n, size - n, "%s%.*s", i ? ", " : "", (int)(gx__modules_stem(&w[i]) - skip),
                              w[i].name + skip);
        if (n >= size) return;
    }
    snprintf(name + n, size - n, "%s", more);
}

static int gx__modules_linear_row(GxModules *t, int unit, const GxTensor *w, int parts, const char *more)
{
    char name[GX_MODULE_NAME];
    const int at = gx__modules_at(t, unit, w->name, gx__modules_parent(w));
    gx__modules_linear_name(w, parts, more, name, sizeof name);
    return gx__modules_child(t, at, name, (int64_t)strlen(name), -1);
}

static int gx__modules_has_lora(const GxTensor *w, int parts)
{
    int has = 0;
    for (int i = 0; i < parts; i++) has |= w[i].has_lora;
    return has;
}

// The row of a linear: for its matrices and biases, and their scales; that of its LoRA, if it has some.
static void gx__modules_open_linear(GxModules *t, int unit, const GxLinear *l)
{
    if (l->first.index < 0) return;
    const GxTensor *w = &t->m->table.row[l->first.index];
    const int row = gx__modules_linear_row(t, unit, w, l->parts, ""),
              lora = gx__modules_has_lora(w, l->parts) ? gx__modules_linear_row(t, unit, w, l->parts, " (LoRA)") : -1;
    for (int i = 0; i < l->parts; i++) {
        t->of_tensor[l->first.index + i] = row;
        if (l->bias.index >= 0) t->of_tensor[l->bias.index + i] = row;
        if (w[i].has_scale) t->of_tensor[w[i].scale.index] = t->of_tensor[w[i].added_bias.index] = row;
        if (w[i].has_lora) t->of_tensor[w[i].lora.index] = t->of_tensor[w[i].lora_b.index] = lora;
    }
}

static void gx__modules_open_tensor(GxModules *t, int i)
{
    const GxTensor *w = &t->m->table.row[i];
    if (t->of_tensor[i] >= 0) return;
    t->of_tensor[i] = gx__modules_at(t, w->unit, w->name, gx__modules_stem(w));
    if (!w->has_lora) return; // of the embedding: linears have rows already
    const int lora = gx__modules_linear_row(t, w->unit, w, 1, " (LoRA)");
    t->of_tensor[w->lora.index] = t->of_tensor[w->lora_b.index] = lora;
}

// ---- rows of what has no tensor ------------------------------------------------------------------------------------

// The bytes of the name of the module that has all tensors of the unit: "model.layers.3".
static int64_t gx__modules_common(const GxModel *m, int unit)
{
    const GxUnit *u = &m->unit[unit];
    const GxTensor *first = NULL;
    int64_t n = 0;
    for (int i = u->first_row; i < u->first_row + u->rows; i++) {
        const GxTensor *w = &m->table.row[i];
        if (w->is_added && gx_unit_spec(m, unit)->side == GX_SIDE_NONE) continue;
        int64_t same = 0, whole = 0; // whole: up to a dot of both
        if (!first) first = w, n = gx__modules_parent(w);
        for (; first->name[same] && first->name[same] == w->name[same] && same < n; same++)
            if (first->name[same] == '.') whole = same;
        n = same == n && w->name[n] == '.' ? n : whole;
    }
    return n;
}

// The module of a place: a row, or -1: the pair has none.
static int gx__modules_place(GxModules *t, int unit, int k, gx__ModulesAt at)
{
    const GxModel *m = t->m;
    const GxUnit *u = &m->unit[unit];
    const int n_pairs = gx_unit_spec(m, unit)->n_pairs;
    const GxPair *pair = &u->pair[k];
    int tensor = -1, holds = 0; // holds: the module that has the tensor's
    switch (at) {
    case GX__MODULES_AT_NORM: tensor = pair->norm.weight.index; break;
    case GX__MODULES_AT_NEXT_NORM: tensor = k + 1 < n_pairs ? pair[1].norm.weight.index : -1; break;
    case GX__MODULES_AT_CON_NORM: tensor = pair->con_norm.weight.index; break;
    case GX__MODULES_AT_MATRIX: tensor = pair->matrix.index; break;
    case GX__MODULES_AT_LINEAR: tensor = pair->linear[0].first.index, holds = 1; break;
    case GX__MODULES_AT_ENTER: tensor = pair->enter.first.index, holds = 1; break;
    case GX__MODULES_AT_UNIT:
        return u->rows ? gx__modules_at(t, unit, m->table.row[u->first_row].name, gx__modules_common(m, unit))
                       : GX_MODULES_MODEL;
    case GX__MODULES_AT_MODEL: return GX_MODULES_MODEL;
    }
    if (tensor < 0) return -1;
    if (!holds) return t->of_tensor[tensor];
    return gx__modules_at(t, unit, m->table.row[tensor].name, gx__modules_parent(&m->table.row[tensor]));
}

static int *gx__modules_slot(const GxModules *t, int unit, int k, int place)
{
    return &t->of_unit[((int64_t)unit * GX_MAX_PAIRS + k) * GX__MODULES_PLACES + place];
}

// The rows for a pair's operations in this part.
static void gx__modules_open_part(GxModules *t, int unit, int k, int part)
{
    const GxUnitSpec *spec = gx_unit_spec(t->m, unit);
    for (int i = 0; i < GX__MODULES_PLACES && !t->lost; i++) {
        const int core = gx__modules_of_unit[i].core;
        const char *label = gx__modules_of_unit[i].label;
        if (gx__modules_of_unit[i].part != part) continue;
        if (core != GX__MODULES_ANY && (k >= spec->n_pairs || core != (int)spec->pair[k].core.kind)) continue;
        const int at = gx__modules_place(t, unit, k, gx__modules_of_unit[i].at);
        if (at < 0) continue;
        *gx__modules_slot(t, unit, k, i) = label ? gx__modules_child(t, at, label, (int64_t)strlen(label), -1) : at;
    }
}

// A pair's rows, in the order in which it computes.
static void gx__modules_open_pair(GxModules *t, int unit, int k)
{
    const GxUnit *u = &t->m->unit[unit];
    const GxPair *pair = &u->pair[k];
    const GxTensorId early[] = {pair->norm.weight, pair->norm.bias, pair->qk_norm[0], pair->qk_norm[1], pair->matrix};
    for (size_t i = 0; i < sizeof early / sizeof *early; i++)
        if (early[i].index >= 0) gx__modules_open_tensor(t, early[i].index);
    gx__modules_open_linear(t, unit, &pair->enter);
    gx__modules_open_linear(t, unit, &pair->linear[0]);
    gx__modules_open_part(t, unit, k, GX__MODULES_CORE);
    gx__modules_open_linear(t, unit, &pair->linear[1]);
    for (int i = 0; i < 2; i++) gx__modules_open_linear(t, unit, &pair->adapter[i]);
    for (int i = u->first_row; i < u->first_row + u->rows; i++)
        if (t->m->table.row[i].pair == k) gx__modules_open_tensor(t, i);
}

static void gx__modules_open_unit(GxModules *t, int unit)
{
    const GxUnit *u = &t->m->unit[unit];
    const int n = gx_unit_spec(t->m, unit)->n_pairs;
    gx__modules_open_linear(t, unit, &u->down);
    for (int k = 0; k < n && !t->lost; k++) gx__modules_open_pair(t, unit, k);
    gx__modules_open_linear(t, unit, &u->up);
    for (int i = u->first_row; i < u->first_row + u->rows && !t->lost; i++) gx__modules_open_tensor(t, i);
    for (int k = 0; k < gx_max(n, 1) && !t->lost; k++) { // now that all of them have their modules
        gx__modules_open_part(t, unit, k, GX__MODULES_ENTER);
        gx__modules_open_part(t, unit, k, GX__MODULES_CON);
        gx__modules_open_part(t, unit, k, GX__MODULES_SIDE);
        gx__modules_open_part(t, unit, k, GX__MODULES_DOOR);
    }
}

static void gx__modules_count_parameters(GxModules *t)
{
    for (int i = 0; i < t->m->table.n && !t->lost; i++) {
        const GxTensor *w = &t->m->table.row[i];
        GxModule *r = &t->row[t->of_tensor[i]];
        if (w->has_alias) continue;
        r->parameters += gx_tensor_global_count(w);
        if (!w->frozen) r->trained += gx_tensor_global_count(w);
    }
}

GxStatus gx_modules_open(GxModules *t, const GxModel *m, const char *root, GxError *err)
{
    const int64_t places = (int64_t)m->units * GX_MAX_PAIRS * GX__MODULES_PLACES;
    memset(t, 0, sizeof *t);
    t->m = m;
    t->of_tensor = (int *)malloc((size_t)(m->table.n + 1) * sizeof *t->of_tensor);
    t->group = (int *)malloc((size_t)(m->units + 1) * sizeof *t->group);
    t->of_unit = (int *)malloc((size_t)(places + 1) * sizeof *t->of_unit);
    t->lost = !t->of_tensor || !t->group || !t->of_unit;
    for (int i = 0; i < m->table.n && !t->lost; i++) t->of_tensor[i] = -1;
    for (int64_t i = 0; i < places && !t->lost; i++) t->of_unit[i] = -1;
    gx__modules_new(t, -1, "step", 4);
    gx__modules_new(t, GX_MODULES_STEP, root, (int64_t)strlen(root));
    if (!t->lost) gx__modules_group(t);
    for (int u = 0; u < m->units && !t->lost; u++) gx__modules_open_unit(t, u);
    t->of_rest = t->n;
    for (int i = 0; i < GX__MODULES_RESTS; i++)
        gx__modules_new(t, GX_MODULES_STEP, gx__modules_of_rest[i].label,
                        (int64_t)strlen(gx__modules_of_rest[i].label));
    gx__modules_count_parameters(t);
    if (!t->lost) return GX_OK;
    gx_modules_close(t);
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of %d modules", m->table.n);
}

void gx_modules_close(GxModules *t)
{
    free(t->row), free(t->of_tensor), free(t->group), free(t->of_unit);
    memset(t, 0, sizeof *t);
}

// ---- events --------------------------------------------------------------------------------------------------------

// A row of a unit for an operation without a tensor; -1: it is none of a pair's.
static int gx__modules_find_in_unit(const GxModules *t, const GxEvent *e)
{
    int core, part;
    if (e->unit < 0 || e->unit >= t->m->units || e->pair < 0 || e->pair >= GX_MAX_PAIRS) return -1;
    if (!e->site || !gx__modules_part(e->site, &core, &part)) return -1;
    if (e->kind != GX_EVENT_OP) part = GX__MODULES_DOOR;
    else if (part == GX__MODULES_DOOR) part = GX__MODULES_CORE; // computed beside a collective
    const int n = gx_unit_spec(t->m, e->unit)->n_pairs, k = e->pair < n ? e->pair : 0;
    for (int i = 0; i < GX__MODULES_PLACES; i++) {
        const char *name = gx__modules_of_unit[i].name;
        const int row = *gx__modules_slot(t, e->unit, k, i);
        if (row >= 0 && gx__modules_of_unit[i].part == part && !strncmp(e->name, name, strlen(name))) return row;
    }
    return -1;
}

int gx_modules_find(const GxModules *t, const GxEvent *e)
{
    const int tensor = e->tensor < 0 ? -e->tensor : e->tensor;
    int i = 0;
    if (tensor && tensor <= t->m->table.n && e->kind == GX_EVENT_OP) return t->of_tensor[tensor - 1];
    const int row = gx__modules_find_in_unit(t, e);
    if (row >= 0) return row;
    while (gx__modules_of_rest[i].site && (!e->site || strcmp(e->site, gx__modules_of_rest[i].site))) i++;
    for (int same = 0; same < i; same++) // several sites share a row: the first one's
        if (!strcmp(gx__modules_of_rest[same].label, gx__modules_of_rest[i].label)) i = same;
    return t->of_rest + i;
}

static int gx__modules_begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

// A head computes its forward within its backward.
static int gx__modules_is_forward(const GxEvent *e)
{
    static const char *const losses[] = {"cross_entropy", "squared_error", "binary_cross_entropy"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (gx__modules_begins(e->name, losses[i])) return 1;
    return e->tensor >= 0 && gx_text_stem(e->name, "_forward") >= 0;
}

GxPhase gx_modules_phase(const GxModules *t, const GxEvent *e)
{
    const int is_unit = e->unit >= 0 && e->unit < t->m->units;
    switch (e->action - 1) {
    case GX_DO_FORWARD: return GX_PHASE_FORWARD;
    case GX_DO_RECOMPUTE: return GX_PHASE_RECOMPUTE;
    case GX_DO_WEIGHT: return GX_PHASE_BACKWARD;
    case GX_DO_BACKWARD:
        if (!is_unit || !gx_pair_is_head(&gx_unit_spec(t->m, e->unit)->pair[0])) return GX_PHASE_BACKWARD;
        return gx__modules_is_forward(e) ? GX_PHASE_FORWARD : GX_PHASE_BACKWARD;
    default: return GX_PHASE_REST;
    }
}

void gx_modules_add(GxModules *t, const GxEvent *e, int64_t times, double seconds)
{
    GxModuleCost *c = &t->row[gx_modules_find(t, e)].cost[gx_modules_phase(t, e)];
    const double n = (double)times;
    const int is_product = gx__modules_begins(e->name, "linear_") || gx__modules_begins(e->name, "attention_");
    c->calls += n, c->seconds += seconds;
    c->flops += n * e->flops;
    if (is_product) c->products += n * e->flops;
    if (e->kind == GX_EVENT_OP) c->bytes += n * (double)e->bytes;
    else c->sent += n * (double)e->bytes;
}

void gx_modules_add_rest(GxModules *t, double seconds)
{
    for (int i = 0; i < t->n; i++) seconds -= gx_module_total(&t->row[i]).seconds;
    t->row[t->of_rest + GX__MODULES_RESTS - 1].cost[GX_PHASE_REST].seconds += seconds;
}

// ---- sums ----------------------------------------------------------------------------------------------------------

typedef struct {
    GxModuleCost cost[GX_PHASES];
} gx__ModulesSum;
enum { GX__MODULES_SUM = sizeof(gx__ModulesSum) / sizeof(double) };

static void gx__modules_add_cost(GxModuleCost *to, const GxModuleCost *c)
{
    to->calls += c->calls, to->flops += c->flops, to->products += c->products;
    to->bytes += c->bytes, to->sent += c->sent, to->seconds += c->seconds;
}

GxModuleCost gx_module_total(const GxModule *r)
{
    GxModuleCost all = GX_ZERO;
    for (int k = 0; k < GX_PHASES; k++) gx__modules_add_cost(&all, &r->cost[k]);
    return all;
}

static void gx__modules_add_up(GxModules *t)
{
    for (int i = t->n - 1; i > 0; i--) {
        GxModule *to = &t->row[t->row[i].parent];
        to->parameters += t->row[i].parameters, to->trained += t->row[i].trained;
        for (int k = 0; k < GX_PHASES; k++) gx__modules_add_cost(&to->cost[k], &t->row[i].cost[k]);
    }
}

// all: [world][n]
static void gx__modules_sum_ranks(GxModules *t, const gx__ModulesSum *all, int world)
{
    for (int i = 0; i < t->n; i++) {
        GxModule *r = &t->row[i];
        memset(r->cost, 0, sizeof r->cost);
        r->least = DBL_MAX, r->most = 0;
        for (int rank = 0; rank < world; rank++) {
            const gx__ModulesSum *of = &all[(int64_t)rank * t->n + i];
            double calls = 0, seconds = 0;
            for (int k = 0; k < GX_PHASES; k++) {
                calls += of->cost[k].calls, seconds += of->cost[k].seconds;
                gx__modules_add_cost(&r->cost[k], &of->cost[k]);
            }
            if (calls == 0 && seconds == 0) continue;
            r->least = fmin(r->least, seconds), r->most = fmax(r->most, seconds);
        }
        if (r->least > r->most) r->least = 0;
    }
}

// By an all-gather, which needs no memory of the plan's.
void gx_modules_gather(GxContext *g, GxModules *t)
{
    const GxSplit ranks = gx_split_even(g->world, g->world);
    gx__modules_add_up(t);
    gx__ModulesSum *all = (gx__ModulesSum *)calloc((size_t)(g->world + 1) * (size_t)t->n, sizeof *all);
    if (!all) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the modules' times on %d ranks", g->world);
    gx__ModulesSum *mine = all ? all + (int64_t)g->world * t->n : NULL;
    for (int i = 0; i < t->n && all; i++) memcpy(mine[i].cost, t->row[i].cost, sizeof mine[i].cost);
    gx_at(g, -1, "modules");
    gx_all_gather(g, GX_AXIS_ALL, &ranks, all, mine, (int64_t)t->n * GX__MODULES_SUM, GX_F64);
    if (!gx_failed(g)) gx__modules_sum_ranks(t, all, g->world);
    free(all);
}
#endif
