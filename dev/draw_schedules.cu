// draw_schedules.cu: a picture of each order of a pipeline, drawn from the lists of its ranks: draw_schedules FOLDER
// writes gpipe.svg, 1f1b.svg and so on. Of an order that is spelled out in a source (GX_SCHEDULES), the lists are those
// that the source writes. Besides, fsdp.svg: which units are whole, and when, on a rank that shares all of them.
//
// A row is a rank, and time goes from left to right. Boxes are the lists' F, B and W of layers, a layer to a stage; a
// box begins as soon as its rank has done the one before, and what it needs has been computed: these are the times
// after which lists are made (GxTimeline). F, b and W take 1 each, a whole B 2, messages and the ends nothing. Of the
// first micro-batch the messages are drawn, too. Slots are counted in the list.
#include "galaxy.h"
#include <stdlib.h>

enum { DRAW_RANKS = 4, DRAW_MICRO_BATCHES = 8, DRAW_STAGES = 2 * DRAW_RANKS };
enum { DRAW_LEFT = 66, DRAW_TOP = 66, DRAW_LANE = 34, DRAW_GAP = 12, DRAW_RIGHT = 70, DRAW_FORWARD = 26 };

typedef struct {
    GxStepsSpec spec;
    int16_t stage[DRAW_STAGES + 1];
    GxSteps rank[DRAW_RANKS];
    GxTimeline time;
    int chunks; // stages of a rank
} SchedulePicture;

// ---- what is drawn -------------------------------------------------------------------------------------------------

// A layer to each stage; the embedding is the first one's, too, the head the last one's.
static void picture_cut(SchedulePicture *p, int order)
{
    memset(p, 0, sizeof *p);
    p->chunks = gx_order_info(order)->chunks;
    const int stages = p->chunks * DRAW_RANKS;
    for (int s = 1; s < stages; s++) p->stage[s] = (int16_t)(s + 1);
    p->stage[stages] = (int16_t)(stages + 2);
    p->spec.units = stages + 2, p->spec.ranks = DRAW_RANKS, p->spec.stage = p->stage;
    p->spec.order = order, p->spec.micro_batches = DRAW_MICRO_BATCHES;
    p->spec.defers_weights = gx_order_info(order)->has_halves;
}

static const GxStepsSchedule *picture_source(int order) // NULL: the order is not spelled out
{
#define DRAW_SOURCE(name) &gx_##name,
    static const GxStepsSchedule *const sources[] = {GX_SCHEDULES(DRAW_SOURCE)};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (sources[i]->order == order && !sources[i]->has_shards) return sources[i];
    return NULL;
}

static GxStatus picture_open(SchedulePicture *p, int order, GxError *err)
{
    const GxStepsSchedule *source = picture_source(order);
    picture_cut(p, order);
    for (int r = 0; r < DRAW_RANKS; r++) {
        p->spec.rank = r;
        if (source) GX_TRY(gx_steps_write(&p->rank[r], source, &p->spec, err));
        else GX_TRY(gx_steps_make(&p->rank[r], &p->spec, err));
    }
    GX_TRY(gx_steps_check_ranks(p->rank, DRAW_RANKS, err));
    return gx_timeline_make(&p->time, &p->spec, err);
}

static void picture_close(SchedulePicture *p)
{
    for (int r = 0; r < DRAW_RANKS; r++) gx_steps_close(&p->rank[r]);
    gx_timeline_close(&p->time);
}

static int is_box(const SchedulePicture *p, const GxAction *a)
{
    const int is_work = a->what == GX_DO_FORWARD || a->what == GX_DO_BACKWARD || a->what == GX_DO_WEIGHT;
    return is_work && a->unit > 0 && a->unit < p->spec.units - 1;
}

typedef struct {
    int64_t begin, end;
} Span;

static Span span_of(const SchedulePicture *p, int what, int unit, int micro_batch)
{
    const GxWork work = {(int16_t)what, (int16_t)(unit - 1), (int16_t)micro_batch};
    const Span s = {gx_timeline_start(&p->time, &work), gx_timeline_end(&p->time, what, unit - 1, micro_batch)};
    return s;
}

// Most slots of layers that a rank has at once: from F until the backward, or its weight half, has been computed.
static int most_slots_of(const SchedulePicture *p, int rank)
{
    int n = 0, most = 0;
    for (int i = 0; i < p->rank[rank].n; i++) {
        const GxAction *a = &p->rank[rank].action[i];
        if (!is_box(p, a)) continue;
        n += a->what == GX_DO_FORWARD;
        most = (int)gx_max(most, n);
        n -= a->what == GX_DO_WEIGHT || (a->what == GX_DO_BACKWARD && a->half == GX_HALF_NONE);
    }
    return most;
}

// How long a rank computes; -1: boxes of its list are not one behind the other.
static int64_t work_of(const SchedulePicture *p, int rank)
{
    int64_t work = 0, now = 0;
    for (int i = 0; i < p->rank[rank].n; i++) {
        const GxAction *a = &p->rank[rank].action[i];
        if (!is_box(p, a)) continue;
        const Span s = span_of(p, a->what, a->unit, a->micro_batch);
        if (s.begin < now) return -1;
        now = s.end, work += s.end - s.begin;
    }
    return work;
}

// ---- drawing -------------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *stroke, *fill[2]; // fill: of a rank's first stage, of its second
} box_kinds[] = {{"forward", "#1f6fb2", {"#d5e7f7", "#8cbce6"}},
                 {"backward", "#1d8a4e", {"#d6efdf", "#86cda1"}},
                 {"backward, the input's half", "#1d8a4e", {"#d6efdf", "#86cda1"}},
                 {"backward, the weights' half", "#c2660c", {"#fbe3cc", "#f0b47a"}}};
enum { BOX_KINDS = sizeof box_kinds / sizeof *box_kinds };

static int box_kind(const GxAction *a)
{
    if (a->what == GX_DO_FORWARD) return 0;
    if (a->what == GX_DO_WEIGHT) return 3;
    return a->half == GX_HALF_NONE ? 1 : 2;
}

static int box_chunk(const GxAction *a) { return a->unit > DRAW_RANKS; }

// A rank's forward has one width in all pictures: a stage that is half as long has half of it.
static double x_of(const SchedulePicture *p, int64_t time)
{
    return DRAW_LEFT + (double)time * DRAW_FORWARD / p->chunks;
}
static int lane_of(int rank) { return DRAW_TOP + rank * (DRAW_LANE + DRAW_GAP); }

static void draw_box(const SchedulePicture *p, FILE *out, int rank, const GxAction *a)
{
    const Span s = span_of(p, a->what, a->unit, a->micro_batch);
    const int kind = box_kind(a), y = lane_of(rank);
    const double x = x_of(p, s.begin), width = x_of(p, s.end) - x;
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\" stroke=\"%s\" "
            "stroke-width=\"%s\"/>\n",
            x + 0.5, y, width - 1, DRAW_LANE, box_kinds[kind].fill[box_chunk(a)], box_kinds[kind].stroke,
            a->micro_batch ? "0.8" : "1.8");
    fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#222\"%s>%d</text>\n", x + width / 2,
            y + DRAW_LANE / 2 + 4, a->micro_batch ? "" : " font-weight=\"bold\"", a->micro_batch);
}

// From the box that makes what is sent to the one that takes it.
static void draw_message(const SchedulePicture *p, FILE *out, int rank, const GxAction *a)
{
    const int is_x = a->object == GX_OBJECT_X, what = is_x ? GX_DO_FORWARD : GX_DO_BACKWARD;
    const Span from = span_of(p, what, is_x ? a->unit - 1 : a->unit, a->micro_batch),
               to = span_of(p, what, is_x ? a->unit : a->unit - 1, a->micro_batch);
    const int down = a->peer > rank, y = lane_of(rank) + (down ? DRAW_LANE : 0),
              end = lane_of(a->peer) + (down ? 0 : DRAW_LANE);
    fprintf(out,
            "<path d=\"M%.1f %dL%.1f %d\" stroke=\"#333\" stroke-width=\"1.3\" fill=\"none\" "
            "marker-end=\"url(#arrow)\"/>\n",
            x_of(p, from.end) - 2.5, y, x_of(p, to.begin) + 2.5, end);
}

static void draw_lane(const SchedulePicture *p, FILE *out, int rank)
{
    const int y = lane_of(rank), slots = most_slots_of(p, rank);
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"url(#waits)\"/>\n<text x=\"12\" y=\"%d\" "
            "fill=\"#222\">rank %d</text>\n<text x=\"%.1f\" y=\"%d\" fill=\"#444\">%d slot%s</text>\n",
            DRAW_LEFT, y, x_of(p, p->time.span) - DRAW_LEFT, DRAW_LANE, y + DRAW_LANE / 2 + 4, rank,
            x_of(p, p->time.span) + 10, y + DRAW_LANE / 2 + 4, slots, slots == 1 ? "" : "s");
    for (int i = 0; i < p->rank[rank].n; i++)
        if (is_box(p, &p->rank[rank].action[i])) draw_box(p, out, rank, &p->rank[rank].action[i]);
}

static void draw_axis(const SchedulePicture *p, FILE *out, int y)
{
    const int step = 3 * p->chunks;
    fprintf(out, "<path d=\"M%d %dH%.1f\" stroke=\"#888\"/>\n", DRAW_LEFT, y, x_of(p, p->time.span));
    for (int64_t t = 0; t <= p->time.span; t += step)
        fprintf(out,
                "<path d=\"M%.1f %dv5\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
                "font-size=\"11\" fill=\"#555\">%ld</text>\n",
                x_of(p, t), y, x_of(p, t), y + 18, (long)t);
}

static void draw_key(FILE *out, double *x, int y, const char *fill, const char *stroke, const char *text)
{
    fprintf(out,
            "<rect x=\"%.0f\" y=\"%d\" width=\"16\" height=\"14\" rx=\"2\" fill=\"%s\" stroke=\"%s\"/><text x=\"%.0f\" "
            "y=\"%d\" fill=\"#444\">%s</text>\n",
            *x, y - 11, fill, stroke, *x + 22, y, text);
    *x += 46 + 6.2 * (double)strlen(text);
}

static void draw_keys(const SchedulePicture *p, FILE *out, int y)
{
    double x = DRAW_LEFT;
    int uses[BOX_KINDS] = {0};
    for (int i = 0; i < p->rank[0].n; i++)
        if (is_box(p, &p->rank[0].action[i])) uses[box_kind(&p->rank[0].action[i])] = 1;
    for (int k = 0; k < BOX_KINDS; k++)
        if (uses[k]) draw_key(out, &x, y, box_kinds[k].fill[0], box_kinds[k].stroke, box_kinds[k].name);
    draw_key(out, &x, y, "url(#waits)", "#ccc", "the rank waits");
    y += 22;
    fprintf(
        out,
        "<text x=\"%d\" y=\"%d\" fill=\"#444\">The number in a box is its micro-batch's; arrows are the messages of "
        "micro-batch 0.</text>\n",
        DRAW_LEFT, y);
    if (p->chunks > 1)
        fprintf(out,
                "<text x=\"%d\" y=\"%d\" fill=\"#444\">Darker boxes are of the rank's second stage; a slot is of a "
                "stage.</text>\n",
                DRAW_LEFT, y + 20);
}

static void draw_open(FILE *out, int width, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<defs><pattern id=\"waits\" width=\"6\" height=\"6\" "
            "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" "
            "fill=\"#f7f7f9\"/><rect width=\"1.5\" height=\"6\" fill=\"#d8d8de\"/></pattern><marker id=\"arrow\" "
            "viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" orient=\"auto\"><path "
            "d=\"M0 0L8 4L0 8z\" fill=\"#333\"/></marker></defs>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n",
            width, height, width, height);
}

static void draw_head(const SchedulePicture *p, FILE *out, int64_t work)
{
    const char *name = gx_order_info(p->spec.order)->name;
    const int64_t waits = p->time.span - work;
    fprintf(out,
            "<text x=\"12\" y=\"26\" font-size=\"17\" fill=\"#222\"><tspan font-weight=\"bold\">%s</tspan>: a training "
            "step of %d micro-batches on %d ranks</text>\n",
            name, DRAW_MICRO_BATCHES, DRAW_RANKS);
    fprintf(out,
            "<text x=\"12\" y=\"46\" fill=\"#555\">It takes %ld forwards of a stage%s: each rank computes for %ld and "
            "waits for %ld, %.0f%% of the time</text>\n",
            (long)p->time.span, p->chunks > 1 ? ", which is half of a rank's layers" : "", (long)work, (long)waits,
            100.0 * (double)waits / (double)p->time.span);
}

// *text: the picture, in memory that the caller frees; NULL after an error.
static GxStatus draw_schedule(int order, char **text, GxError *err)
{
    SchedulePicture p;
    size_t bytes = 0;
    int64_t work = 0;
    *text = NULL;
    GxStatus status = picture_open(&p, order, err);
    for (int r = 0; r < DRAW_RANKS && status == GX_OK; r++) {
        const int64_t of_rank = work_of(&p, r);
        if (of_rank < 0 || (r && of_rank != work))
            status = GX_FAIL(err, GX_ERR_ARGUMENT, "order %s: rank %d's list is not in the order of its times",
                             gx_order_info(order)->name, r);
        work = of_rank;
    }
    FILE *out = status == GX_OK ? open_memstream(text, &bytes) : NULL;
    if (status == GX_OK && !out) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for a picture");
    if (out) {
        const int below = lane_of(DRAW_RANKS) - DRAW_GAP;
        draw_open(out, (int)x_of(&p, p.time.span) + DRAW_RIGHT, below + (p.chunks > 1 ? 102 : 82));
        draw_head(&p, out, work);
        for (int r = 0; r < DRAW_RANKS; r++) draw_lane(&p, out, r);
        for (int r = 0; r < DRAW_RANKS; r++)
            for (int i = 0; i < p.rank[r].n; i++)
                if (p.rank[r].action[i].what == GX_DO_SEND && p.rank[r].action[i].micro_batch == 0)
                    draw_message(&p, out, r, &p.rank[r].action[i]);
        draw_axis(&p, out, below + 8);
        draw_keys(&p, out, below + 50);
        fprintf(out, "</svg>\n");
        fclose(out);
    }
    picture_close(&p);
    return status;
}

// ---- a rank that shares everything ---------------------------------------------------------------------------------
// Above, what it does: it computes, or exchanges parts of a unit with the other ranks. Below, a row for each unit: bars
// say when its weights are whole there, from GATHER to FREE, and its gradients, from B to SCATTER; a line all along is
// the part that it has always. Lengths are those of units that are alike.

enum { SHARDS_LAYERS = 3, SHARDS_UNITS = SHARDS_LAYERS + 2, SHARDS_MICRO_BATCHES = 2 };
enum { SHARDS_LEFT = 96, SHARDS_TICK = 12, SHARDS_ROW = 24, SHARDS_ROWS_TOP = DRAW_TOP + 2 * (DRAW_LANE + DRAW_GAP) };

typedef struct {
    int lane, length; // 0: it computes, 1: it talks; in ticks, of a layer
    const char *name, *stroke, *fill[SHARDS_MICRO_BATCHES];
} ShardsBox;

static const ShardsBox *shards_box(int what) // NULL: it takes no time
{
    static const ShardsBox forward = {0, 2, "forward", "#1f6fb2", {"#d5e7f7", "#8cbce6"}},
                           backward = {0, 4, "backward", "#1d8a4e", {"#d6efdf", "#86cda1"}},
                           gather = {1, 1, "GATHER", "#6b4fa0", {"#e4dcf3", "#e4dcf3"}},
                           scatter = {1, 1, "SCATTER", "#c2660c", {"#fbe3cc", "#fbe3cc"}},
                           step = {0, 1, "optimizer step", "#777", {"#e8e8ec", "#e8e8ec"}};
    return what == GX_DO_FORWARD    ? &forward
           : what == GX_DO_BACKWARD ? &backward
           : what == GX_DO_GATHER   ? &gather
           : what == GX_DO_SCATTER  ? &scatter
           : what == GX_DO_STEP     ? &step
                                    : NULL;
}

// An embedding's forward and backward are short.
static int shards_length(const GxAction *a)
{
    const ShardsBox *box = shards_box(a->what);
    return !box ? 0 : a->unit ? box->length : 1;
}

static int shards_x(int time) { return SHARDS_LEFT + SHARDS_TICK * time; }
static int shards_y(int unit) { return SHARDS_ROWS_TOP + (SHARDS_UNITS - 1 - unit) * SHARDS_ROW; }

static void draw_shards_box(FILE *out, const GxAction *a, int time)
{
    const ShardsBox *box = shards_box(a->what);
    const int y = DRAW_TOP + box->lane * (DRAW_LANE + DRAW_GAP / 2), width = SHARDS_TICK * shards_length(a);
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" fill=\"%s\" stroke=\"%s\" "
            "stroke-width=\"0.8\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#222\" "
            "font-size=\"11\">%d</text>\n",
            shards_x(time) + 0.5, y, width - 1, DRAW_LANE, box->fill[a->micro_batch == 1], box->stroke,
            shards_x(time) + width / 2.0, y + DRAW_LANE / 2 + 4, a->unit);
}

// what: GX_DO_GATHER: of whole weights, GX_DO_SCATTER: of whole gradients
static void draw_shards_life(FILE *out, int what, int unit, int begin, int end)
{
    const ShardsBox *box = shards_box(what);
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"8\" fill=\"%s\" stroke=\"%s\"/>\n", shards_x(begin),
            shards_y(unit) + (what == GX_DO_GATHER ? 1 : 11), SHARDS_TICK * (end - begin), box->fill[0], box->stroke);
}

// Boxes and lives, in the order of the list.
static void draw_shards_list(FILE *out, const GxSteps *s)
{
    int time = 0, weights[SHARDS_UNITS], grads[SHARDS_UNITS];
    for (int u = 0; u < SHARDS_UNITS; u++) weights[u] = grads[u] = -1;
    for (int i = 0; i < s->n; i++) {
        const GxAction *a = &s->action[i];
        const int u = a->unit, end = time + shards_length(a);
        if (shards_box(a->what)) draw_shards_box(out, a, time);
        if (a->what == GX_DO_GATHER) weights[u] = time;
        if (a->what == GX_DO_BACKWARD && grads[u] < 0) grads[u] = time;
        if (a->what == GX_DO_FREE) draw_shards_life(out, GX_DO_GATHER, u, weights[u], time);
        if (a->what == GX_DO_SCATTER) draw_shards_life(out, GX_DO_SCATTER, u, grads[u], end), grads[u] = -1;
        time = end;
    }
}

static void draw_shards_rows(FILE *out, int span)
{
    static const char *const lane[2] = {"computes", "exchanges"};
    for (int k = 0; k < 2; k++)
        fprintf(out, "<text x=\"12\" y=\"%d\" fill=\"#222\">%s</text>\n",
                DRAW_TOP + k * (DRAW_LANE + DRAW_GAP / 2) + DRAW_LANE / 2 + 4, lane[k]);
    for (int u = 0; u < SHARDS_UNITS; u++) {
        const char *name = u == 0 ? "embedding" : u <= SHARDS_LAYERS ? "layer" : "head";
        fprintf(out,
                "<text x=\"12\" y=\"%d\" fill=\"#222\">%s %d</text><path d=\"M%d %dH%d\" stroke=\"#999\" "
                "stroke-dasharray=\"2 3\"/>\n",
                shards_y(u) + 14, name, u, SHARDS_LEFT, shards_y(u) + 10, shards_x(span));
    }
}

static void draw_shards_keys(FILE *out, int y)
{
    static const int whats[] = {GX_DO_FORWARD, GX_DO_BACKWARD, GX_DO_GATHER, GX_DO_SCATTER, GX_DO_STEP};
    double x = SHARDS_LEFT;
    for (int k = 0; k < 5; k++) {
        const ShardsBox *box = shards_box(whats[k]);
        draw_key(out, &x, y, box->fill[0], box->stroke, box->name);
    }
    fprintf(
        out,
        "<text x=\"%d\" y=\"%d\" fill=\"#444\">The number in a box is its unit's; darker boxes are of "
        "micro-batch 1.</text>\n<text x=\"%d\" y=\"%d\" fill=\"#444\">Bars of a unit: above, its weights are whole, "
        "from GATHER to FREE; below, its gradients, up to SCATTER; dotted: the rank has 1/n of both.</text>\n",
        SHARDS_LEFT, y + 22, SHARDS_LEFT, y + 42);
}

static int count_of(const GxSteps *s, int what)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->action[i].what == what;
    return n;
}

static int most_whole(const GxSteps *s) // units whose weights are, at once
{
    int n = 0, most = 0;
    for (int i = 0; i < s->n; i++) {
        n += (s->action[i].what == GX_DO_GATHER) - (s->action[i].what == GX_DO_FREE);
        most = (int)gx_max(most, n);
    }
    return most;
}

static void draw_shards_head(FILE *out, const GxSteps *s)
{
    fprintf(
        out,
        "<text x=\"12\" y=\"26\" font-size=\"17\" fill=\"#222\"><tspan font-weight=\"bold\">fsdp</tspan>: a training "
        "step of %d micro-batches on one of n ranks</text>\n<text x=\"12\" y=\"46\" fill=\"#555\">Weights of at most "
        "%d of %d "
        "units are whole at once; %d GATHERs, %d SCATTERs</text>\n",
        s->spec.micro_batches, most_whole(s), s->spec.units, count_of(s, GX_DO_GATHER), count_of(s, GX_DO_SCATTER));
}

static GxStatus draw_shards(char **text, GxError *err)
{
    GxSteps s;
    GxStepsSpec spec = GX_ZERO;
    size_t bytes = 0;
    int span = 0;
    *text = NULL;
    spec.units = SHARDS_UNITS, spec.micro_batches = SHARDS_MICRO_BATCHES;
    spec.sharded = GX_SHARDS_WEIGHTS, spec.shard_axes = GX_AXIS_FSDP, spec.gathered = 1;
    GX_TRY(gx_steps_write(&s, &gx_fsdp, &spec, err));
    for (int i = 0; i < s.n; i++) span += shards_length(&s.action[i]);
    FILE *out = open_memstream(text, &bytes);
    if (out) {
        const int below = shards_y(0) + SHARDS_ROW;
        draw_open(out, shards_x(span) + 24, below + 82);
        draw_shards_head(out, &s);
        draw_shards_rows(out, span);
        draw_shards_list(out, &s);
        draw_shards_keys(out, below + 26);
        fprintf(out, "</svg>\n");
        fclose(out);
    }
    gx_steps_close(&s);
    return out ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a picture");
}

static GxStatus write_picture(const char *folder, const char *of, const char *text, GxError *err)
{
    char path[GX_PATH], name[64];
    snprintf(name, sizeof name, "%s.svg", of);
    GX_TRY(gx_path_join(path, folder, name, err));
    return gx_file_write(path, text, (int64_t)strlen(text), err);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    if (argc != 2) return fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
    GxStatus status = gx_folder_make(argv[1], &err);
    for (int k = 0; k <= GX_ORDERS && status == GX_OK; k++) {
        char *text = NULL;
        status = k < GX_ORDERS ? draw_schedule(k, &text, &err) : draw_shards(&text, &err);
        if (status == GX_OK)
            status = write_picture(argv[1], k < GX_ORDERS ? gx_order_info(k)->name : gx_fsdp.name, text, &err);
        free(text);
    }
    if (status != GX_OK) fprintf(stderr, "error: %s\n", err.message);
    return status != GX_OK;
}
