// draw_modes.cu: a picture of each mode, drawn from what the recorder notes of one training step: draw_modes FOLDER
// writes serial.svg and one for every mode of the list (model/mode.h).
//
// The step runs on the device `none`, once for each rank of two, and once for one rank alone, whose work is the whole
// that shares refer to. Nothing here knows a mode: boxes, their shares, collectives, their kinds and bytes, and the
// layout of the rows between them all come from the events.
//
// How events become a picture
// - Neighbours of one place (unit, site) are a box; copies are none. Collectives of the stream stand between boxes;
//   small ones are told in a line below, and so are the sums over gradients.
// - Where a box goes on between a collective's start and its wait, both halves are one box, and the collective is
//   dashed. Where it goes on behind the wait, the collective stands between two boxes: it is inside a core.
// - The largest box of the last unit is the turn: what is before it is forward, what is behind it backward, drawn from
//   right to left below. Both rows share their columns where they share their sites.
// - Rows are PARTIAL before a sum and SEQ where they are scattered or not gathered yet, or where the embedding has made
//   no more; elsewhere they are as the collective before left them. What moves inside a core leaves the stream as it
//   is.
// - Layers are alike (this is checked): one is shown.
#include "dev/bench/step.h"

enum { MAX_ITEMS = 64, MAX_RANKS = 4 };
enum {
    LEFT = 66,
    BOX_W = 92,
    BAR_W = 40,
    GAP = 16,
    LANE_H = 86,
    LANE_GAP = 12,
    ROW_TOP = 116,
    ROW_GAP = 82,
    RIGHT = 44,
    INSET = 6
};

// ---- from events to a chain of boxes and collectives ---------------------------------------------------------------

typedef struct {
    int is_collective, is_inside, unit; // is_inside: of a collective, inside a core
    const char *site, *name;            // name: of a collective
    int64_t ticket;                     // of one that is under way
    int64_t rows;                       // of a box's first operation
    double flops, bytes;                // a box: read and written; a collective: sent by this rank
    double meanwhile;                   // FLOPs of the block that goes on while the collective is under way
} Item;
typedef struct {
    Item item[MAX_ITEMS], small[MAX_ITEMS]; // small: told in a line, all of a site together
    int n, smalls, turn;
    double sent; // in the whole step
} Chain;

static int same_place(const Item *a, int unit, const char *site) { return a->unit == unit && !strcmp(a->site, site); }

// Of a core: its own site, or that of what is agreed on inside it. NULL: none, the update's for example.
static const char *box_site(const char *site)
{
    for (int core = 0; core < GX_CORE_KINDS; core++) {
        const char *name = gx_core_name((GxCoreKind)core);
        if (!strcmp(site, gx_door_name((GxCoreKind)core, GX_INSIDE))) return name;
        if (!strncmp(site, name, strlen(name))) return site;
    }
    return NULL;
}

static void add_small(Chain *c, const GxEvent *e)
{
    int i = 0;
    while (i < c->smalls && (strcmp(c->small[i].site, e->site) || strcmp(c->small[i].name, e->name))) i++;
    if (i == MAX_ITEMS) return;
    if (i == c->smalls) {
        Item fresh = GX_ZERO;
        fresh.is_collective = 1, fresh.unit = e->unit, fresh.site = e->site, fresh.name = e->name;
        c->small[c->smalls++] = fresh;
    }
    c->small[i].bytes += (double)e->bytes;
}

static Item item_of(const GxEvent *e)
{
    Item i = GX_ZERO;
    i.is_collective = e->kind == GX_EVENT_COLLECTIVE;
    i.unit = e->unit, i.name = e->name, i.site = i.is_collective ? e->site : box_site(e->site);
    i.is_inside = i.is_collective && strcmp(box_site(e->site), e->site);
    i.ticket = e->ticket;
    i.rows = i.is_collective ? 0 : e->dims.n[0];
    i.flops = e->flops, i.bytes = (double)e->bytes;
    return i;
}

static void end_collective(Chain *c, int64_t ticket)
{
    for (int i = 0; i < c->n; i++)
        if (c->item[i].ticket == ticket) c->item[i].ticket = 0;
}

static void add_event(Chain *c, const GxEvent *e, double small)
{
    Item *last = c->n ? &c->item[c->n - 1] : NULL, *before = c->n > 1 ? last - 1 : NULL;
    if (!box_site(e->site) || !strcmp(e->name, "copy")) return;
    const Item fresh = item_of(e);
    if (fresh.is_collective && fresh.bytes < small) {
        add_small(c, e);
    } else if (!fresh.is_collective && last && last->ticket && before && same_place(before, fresh.unit, fresh.site)) {
        before->flops += e->flops, before->bytes += (double)e->bytes, last->meanwhile += e->flops;
    } else if (!fresh.is_collective && last && !last->is_collective && same_place(last, fresh.unit, fresh.site)) {
        last->flops += e->flops, last->bytes += (double)e->bytes;
    } else if (c->n < MAX_ITEMS) {
        c->item[c->n++] = fresh;
    }
}

// Units: 0 the embedding, 1 the layer that is shown, `last` the head; -1 what is around the model.
static Chain chain_of(const GxRecorder *r, int last)
{
    Chain c = GX_ZERO;
    double largest = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (r->event[i].kind == GX_EVENT_COLLECTIVE && r->event[i].unit >= 0 && (double)r->event[i].bytes > largest)
            largest = (double)r->event[i].bytes;
    for (int64_t i = 0; i < r->n; i++) {
        const GxEvent *e = &r->event[i];
        if (e->kind == GX_EVENT_WAIT) end_collective(&c, e->ticket);
        else if (e->unit == 0 || e->unit == 1 || e->unit == last) add_event(&c, e, largest / 20);
        else if (e->unit < 0 && e->kind == GX_EVENT_COLLECTIVE) add_small(&c, e);
    }
    for (int i = 0; i < c.n; i++)
        if (c.item[i].unit == last && c.item[i].flops > c.item[c.turn].flops) c.turn = i;
    c.sent = (double)r->comm_bytes;
    return c;
}

// 1: every layer did what the first did.
static int layers_are_alike(const GxRecorder *r, int layers)
{
    for (int l = 2; l <= layers; l++) {
        int64_t i = 0, k = 0;
        for (;;) {
            while (i < r->n && r->event[i].unit != 1) i++;
            while (k < r->n && r->event[k].unit != l) k++;
            if (i == r->n || k == r->n) break;
            const GxEvent *a = &r->event[i++], *b = &r->event[k++];
            if (strcmp(a->name, b->name) || strcmp(a->site, b->site) || a->bytes != b->bytes || a->flops != b->flops)
                return 0;
        }
        if (i != r->n || k != r->n) return 0;
    }
    return 1;
}

// ---- what a chain says about shares and layouts --------------------------------------------------------------------

typedef struct {
    const char *mode;
    Chain rank[MAX_RANKS], whole; // of each rank; of one rank alone
    int ranks, layers;
    int64_t rows; // of the batch
    int column[MAX_ITEMS], columns, is_bar[MAX_ITEMS], x[MAX_ITEMS + 1], first,
        last; // x: of columns; first, last: those of the layer
} Picture;

typedef struct {
    double begin, end;
} Share; // of a lane's height

static int is_backward(const Chain *c, int i) { return i > c->turn; }

// All that is done at one place, forward or backward: of a core that a collective cuts in two, both halves.
static double work_at(const Chain *c, const Item *place, int backward)
{
    double flops = 0, bytes = 0;
    for (int k = 0; k < c->n; k++) {
        const Item *a = &c->item[k];
        if (a->is_collective || !same_place(a, place->unit, place->site) || is_backward(c, k) != backward) continue;
        flops += a->flops, bytes += a->bytes;
    }
    return flops > 0 ? flops : bytes;
}

// A rank's share of a block's work, behind those of the ranks before it; where all do everything, all of it.
static double work_of(const Picture *p, int rank, int i)
{
    const Item *a = &p->rank[rank].item[i];
    const int backward = is_backward(&p->rank[rank], i);
    const double whole = work_at(&p->whole, a, backward);
    return whole > 0 ? work_at(&p->rank[rank], a, backward) / whole : 1;
}

// Where a block is shared out, its boxes are as tall as the ranks' parts of what they do there; of a core that is cut
// in two, each half by itself.
static Share share_of(const Picture *p, int rank, int i)
{
    Share s = {0, 1};
    double all = 0, work = 0, before = 0;
    for (int r = 0; r < p->ranks; r++) all += work_of(p, r, i);
    if (all > 1.01 || p->ranks == 1) return s;
    for (int r = 0; r < p->ranks; r++) {
        const Item *a = &p->rank[r].item[i];
        const double own = a->flops > 0 ? a->flops : a->bytes;
        work += own, before += r < rank ? own : 0;
        if (r == rank) s.end = own;
    }
    s.begin = before / work, s.end = s.begin + s.end / work;
    return s;
}

// Of the stream's collectives.
static int is_kind(const Item *i, const char *kind)
{
    return i->is_collective && !i->is_inside && !strcmp(i->name, kind);
}

// The layout of the rows between items i and i + 1.
static GxLayout layout_behind(const Picture *p, int i)
{
    const Chain *c = &p->rank[0];
    GxLayout layout = c->item[0].rows < p->rows ? GX_LAYOUT_SEQ : GX_LAYOUT_FULL;
    for (int k = 0; k <= i; k++) {
        const Item *a = &c->item[k], *b = k + 1 < c->n ? &c->item[k + 1] : a;
        if (is_kind(b, "all_reduce") || is_kind(b, "reduce_scatter")) layout = GX_LAYOUT_PARTIAL;
        else if (is_kind(b, "all_gather") || is_kind(a, "reduce_scatter")) layout = GX_LAYOUT_SEQ;
        else if (a->is_collective && !a->is_inside) layout = GX_LAYOUT_FULL;
    }
    return layout;
}

// A rank's slice: the embedding makes it, a gather sends it to all others, a scatter sends all others' slices.
static Share slice_of(const Picture *p, int rank, int i)
{
    while (i > 0 && !is_kind(&p->rank[0].item[i], "all_gather") && !is_kind(&p->rank[0].item[i], "reduce_scatter")) i--;
    const int scatter = is_kind(&p->rank[0].item[i], "reduce_scatter");
    if (i == 0) {
        Share s = {0, (double)p->rank[rank].item[0].rows / (double)p->rows};
        for (int r = 0; r < rank; r++) s.begin += (double)p->rank[r].item[0].rows / (double)p->rows;
        s.end += s.begin;
        return s;
    }
    double all = 0, own[MAX_RANKS];
    Share s = {0, 0};
    for (int r = 0; r < p->ranks; r++) all += p->rank[r].item[i].bytes;
    for (int r = 0; r < p->ranks; r++)
        own[r] = scatter ? 1 - p->rank[r].item[i].bytes * (p->ranks - 1) / all : p->rank[r].item[i].bytes / all;
    for (int r = 0; r < rank; r++) s.begin += own[r];
    s.end = s.begin + own[rank];
    return s;
}

// ---- columns -------------------------------------------------------------------------------------------------------

static int comes_later(const Chain *c, int k, const Item *what) // among backward items, seen from left to right
{
    for (; k > c->turn; k--)
        if (same_place(&c->item[k], what->unit, what->site)) return 1;
    return 0;
}

static int comes_later_forward(const Chain *c, int k, const Item *what)
{
    for (; k <= c->turn; k++)
        if (same_place(&c->item[k], what->unit, what->site)) return 1;
    return 0;
}

// Two boxes between the same collectives, one forward and one backward, of which the other row has none: the addition
// with the norm behind it, the norm's gradient.
static int face_each_other(const Chain *c, int f, int b)
{
    const Item *forward = &c->item[f], *backward = &c->item[b];
    return !forward->is_collective && !backward->is_collective && f != c->turn && !comes_later(c, b, forward) &&
           !comes_later_forward(c, f, backward);
}

// Forward from left to right and backward from right to left, merged by site.
static void set_columns(Picture *p)
{
    const Chain *c = &p->rank[0];
    int f = 0, b = c->n - 1;
    p->columns = 0;
    while (f <= c->turn || b > c->turn) {
        const Item *forward = f <= c->turn ? &c->item[f] : NULL, *backward = b > c->turn ? &c->item[b] : NULL;
        const int both = forward && backward &&
                         (same_place(forward, backward->unit, backward->site) || face_each_other(c, f, b)),
                  allocate_backward = both || (backward && (!forward || f == c->turn || comes_later(c, b, forward)));
        const Item *item = allocate_backward ? backward : forward;
        p->is_bar[p->columns] = item->is_collective;
        if (item->unit == 1) p->last = p->columns;
        if (allocate_backward) p->column[b--] = p->columns;
        if (!allocate_backward || both) p->column[f++] = p->columns;
        p->columns++;
    }
    p->first = p->column[0];
    for (int i = 0; i < c->n; i++)
        if (c->item[i].unit == 1 && (p->first == p->column[0] || p->column[i] < p->first)) p->first = p->column[i];
    p->x[0] = LEFT;
    for (int k = 0; k < p->columns; k++) p->x[k + 1] = p->x[k] + (p->is_bar[k] ? BAR_W : BOX_W) + GAP;
}

// ---- drawing -------------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *fill, *stroke;
} kinds[] = {{"all_reduce", "#fbe3cc", "#c2660c"},
             {"all_gather", "#d5e7f7", "#1f6fb2"},
             {"reduce_scatter", "#d6efdf", "#1d8a4e"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const char *name)
{
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(kinds[k].name, name)) return k;
    return 0;
}

static int row_height(const Picture *p) { return p->ranks * (LANE_H + LANE_GAP) - LANE_GAP; }
static int row_y(const Picture *p, int backward) { return ROW_TOP + backward * (row_height(p) + ROW_GAP); }
static int lane_y(const Picture *p, int backward, int rank) { return row_y(p, backward) + rank * (LANE_H + LANE_GAP); }
static int column_end(const Picture *p, int column) { return p->x[column + 1] - GAP; }

static double tall(double share) { return share * (int)LANE_H; }

static const char *work_text(const Item *i, char text[40])
{
    if (i->flops >= 1e8) snprintf(text, 40, "%.2f GFLOP", i->flops / 1e9);
    else if (i->flops > 0) snprintf(text, 40, "%.1f MFLOP", i->flops / 1e6);
    else snprintf(text, 40, "%.1f MB", i->bytes / 1e6);
    return text;
}

static const char *bytes_text(double bytes, char text[40])
{
    if (bytes >= 1e5) snprintf(text, 40, "%.2f MB", bytes / 1e6);
    else if (bytes >= 1e3) snprintf(text, 40, "%.1f KB", bytes / 1e3);
    else snprintf(text, 40, "%.0f bytes", bytes);
    return text;
}

static void draw_box(const Picture *p, FILE *out, int rank, int i)
{
    const Item *item = &p->rank[rank].item[i];
    const int x = p->x[p->column[i]], y = lane_y(p, is_backward(&p->rank[0], i), rank);
    const Share s = share_of(p, rank, i);
    const double top = y + tall(s.begin), height = tall(s.end - s.begin), middle = top + height / 2;
    char text[40];
    if (s.end - s.begin < 0.99)
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"none\" stroke=\"#b8bfcc\" "
                "stroke-dasharray=\"3 3\"/>\n",
                x, y, BOX_W, LANE_H);
    fprintf(out,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"5\" fill=\"#fff7dc\" stroke=\"#8a7a3a\"/>\n",
            x, top, BOX_W, height);
    work_text(item, text);
    if (height < 36) { // one line
        fprintf(out,
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\" fill=\"#444\"><tspan "
                "font-weight=\"bold\" fill=\"#222\">%s</tspan> %s</text>\n",
                x + BOX_W / 2, middle + 4, item->site, text);
        return;
    }
    fprintf(out,
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"13\" font-weight=\"bold\" "
            "fill=\"#222\">%s</text>\n",
            x + BOX_W / 2, middle - 2, item->site);
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\" fill=\"#444\">%s</text>\n",
            x + BOX_W / 2, middle + 13, text);
}

// Over all lanes: a collective is one event of all ranks.
static void draw_bar(const Picture *p, FILE *out, int i)
{
    const Item *item = &p->rank[0].item[i];
    const int x = p->x[p->column[i]], y = row_y(p, is_backward(&p->rank[0], i)) - 4, height = row_height(p) + 8,
              k = kind_of(item->name);
    char text[40], more[40], all[100];
    snprintf(all, sizeof all, "%s", bytes_text(item->bytes, text));
    for (int r = 1; r < p->ranks; r++)
        if (p->rank[r].item[i].bytes != item->bytes) snprintf(all, sizeof all, "%s, ...", text);
    if (item->meanwhile > 0) {
        Item rest = *item;
        rest.flops = item->meanwhile;
        snprintf(all + strlen(all), sizeof all - strlen(all), " beside %s", work_text(&rest, more));
    }
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" stroke=\"%s\" "
            "stroke-width=\"1.5\"%s/>\n",
            x, y, BAR_W, height, kinds[k].fill, kinds[k].stroke,
            item->meanwhile > 0 ? " stroke-dasharray=\"5 3\"" : "");
    fprintf(out,
            "<g transform=\"translate(%d %d) rotate(-90)\" text-anchor=\"middle\" fill=\"%s\"><text y=\"-4\" "
            "font-size=\"12\" "
            "font-weight=\"bold\">%s</text><text y=\"11\" font-size=\"11\">%s</text></g>\n",
            x + BAR_W / 2, y + height / 2, kinds[k].stroke, item->name, all);
    const int word = (int)strcspn(item->site, "_"); // "att_entry" goes in two lines
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\" fill=\"%s\">%.*s<tspan x=\"%d\" "
            "dy=\"12\">%s</tspan></text>\n",
            x + BAR_W / 2, y - 17, kinds[k].stroke, word, item->site, x + BAR_W / 2,
            item->site + word + (item->site[word] == '_'));
}

static void draw_rows(FILE *out, int x, int width, double y, double height, GxLayout layout)
{
    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height,
            layout == GX_LAYOUT_PARTIAL ? "url(#partial)" : "#c9d6ee");
}

// The rows on their way from item i to the next, in every lane.
static void draw_stream(const Picture *p, FILE *out, int i)
{
    const Chain *c = &p->rank[0];
    const int backward = i >= c->turn, a = p->column[i], b = p->column[i + 1], begin = column_end(p, backward ? b : a),
              end = i == c->turn ? column_end(p, a) + RIGHT / 2 - 3 : p->x[backward ? a : b];
    const GxLayout layout = layout_behind(p, i);
    for (int r = 0; r < p->ranks; r++) {
        const Share whole = {0, 1}, s = layout == GX_LAYOUT_SEQ ? slice_of(p, r, i) : whole;
        const double y = lane_y(p, backward, r) + tall(s.begin) + (int)INSET,
                     height = tall(s.end - s.begin) - 2 * (int)INSET;
        draw_rows(out, begin, end - begin, y, height, layout);
        fprintf(out,
                "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\" font-size=\"9\" "
                "fill=\"#44557a\">%s</text>\n",
                (begin + end) / 2.0 + 3, y + height / 2, gx_layout_name(layout));
    }
}

static void draw_frame(const Picture *p, FILE *out, int width, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" "
            "font-size=\"12\">\n<defs><pattern id=\"partial\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#eef2fa\"/><rect width=\"2.5\" "
            "height=\"6\" "
            "fill=\"#b5c4e2\"/></pattern></defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    const int x = p->x[p->first] - GAP / 2, y = ROW_TOP - 62, end = column_end(p, p->last) + GAP / 2;
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#f7f8fa\" stroke=\"#d5d9e0\"/>\n<text "
            "x=\"%d\" y=\"%d\" "
            "text-anchor=\"middle\" fill=\"#555\">a layer (%d alike)</text>\n",
            x, y, end - x, row_y(p, 1) + row_height(p) + 14 - y, (x + end) / 2, y + 16, p->layers);
    for (int b = 0; b < 2; b++)
        for (int r = 0; r < p->ranks; r++)
            fprintf(out, "<text x=\"12\" y=\"%d\" fill=\"#222\">rank %d</text>\n", lane_y(p, b, r) + LANE_H / 2 + 4, r);
    fprintf(out, "<text x=\"12\" y=\"%d\" fill=\"#222\" font-weight=\"bold\">forward &#8594;</text>\n", ROW_TOP - 24);
    fprintf(out, "<text x=\"12\" y=\"%d\" fill=\"#222\" font-weight=\"bold\">backward &#8592;</text>\n",
            row_y(p, 1) - 24);
    const int turn = column_end(p, p->column[p->rank[0].turn]), from = ROW_TOP + row_height(p) / 2,
              to = row_y(p, 1) + row_height(p) / 2;
    fprintf(out,
            "<path d=\"M%d %dh%dV%dh-8\" fill=\"none\" stroke=\"#44557a\" stroke-width=\"2\"/><path d=\"M%d %dl9 "
            "-5v10z\" fill=\"#44557a\"/>\n",
            turn + 2, from, RIGHT - 14, to, turn + RIGHT / 2 - 2, to);
}

static int draw_legend(const Picture *p, FILE *out, int y)
{
    const Chain *c = &p->rank[0];
    int x = LEFT, uses[KINDS] = {0}, dashed = 0, inside = 0, layouts[3] = {0}, shares = 0;
    char text[40];
    for (int i = 0; i < c->n; i++) {
        const Share s = share_of(p, 0, i);
        if (c->item[i].is_collective) uses[kind_of(c->item[i].name)]++;
        else shares |= s.end - s.begin < 0.99;
        dashed |= c->item[i].meanwhile > 0;
        inside |= c->item[i].is_inside;
        layouts[layout_behind(p, i)] = 1;
    }
    static const char *const meaning[] = {"FULL: every rank has all rows", "SEQ: its slice of the rows",
                                          "PARTIAL: a summand of all rows"};
    for (int l = 0; l < 3; l++) {
        if (!layouts[l]) continue;
        draw_rows(out, x, 22, y - 11, l == GX_LAYOUT_SEQ ? 7 : 14, (GxLayout)l);
        fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#444\">%s</text>\n", x + 28, y, meaning[l]);
        x += 50 + 6 * (int)strlen(meaning[l]) + 14;
    }
    for (int k = 0; k < KINDS; k++) {
        if (!uses[k]) continue;
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\" stroke=\"%s\"/><text x=\"%d\" "
                "y=\"%d\" "
                "fill=\"#444\">%s</text>\n",
                x, y - 11, kinds[k].fill, kinds[k].stroke, x + 20, y, kinds[k].name);
        x += 40 + 7 * (int)strlen(kinds[k].name);
    }
    x = LEFT, y += 22;
    fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#444\">%s%s%s%s</text>\n", x, y,
            shares ? "A box is as tall as the rank's share of the block's work. " : "A box is a block, with its work. ",
            dashed ? "Dashed collectives are under way while the block before them goes on. " : "",
            inside ? "Inside attention keys and values are moved, or their gradients. " : "",
            c->sent > 0 ? "Bytes are those that one rank sends." : "");
    y += 20;
    fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#444\">", x, y);
    for (int i = 0; i < c->smalls; i++)
        fprintf(out, "%s%s at %s %s", i ? ", " : "Not drawn: ", c->small[i].name, c->small[i].site,
                bytes_text(c->small[i].bytes, text));
    fprintf(out, "%s</text>\n", c->smalls ? "." : "");
    y += c->smalls ? 20 : 0;
    fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#444\">", x, y);
    if (c->sent > 0)
        fprintf(out, "In the whole step of %d layers rank 0 sends %s.", p->layers, bytes_text(c->sent, text));
    else fprintf(out, "Nothing is sent.");
    fprintf(out, "</text>\n");
    return y;
}

static GxStatus draw(Picture *p, const GxLlamaConfig *config, const StepOptions *o, const char *path, GxError *err)
{
    const Chain *c = &p->rank[0];
    char *text = NULL;
    size_t bytes = 0;
    set_columns(p);
    const int width = column_end(p, p->columns - 1) + RIGHT,
              height = row_y(p, 1) + row_height(p) + (c->smalls ? 122 : 102);
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to draw %s", path);
    draw_frame(p, out, width, height);
    fprintf(out,
            "<text x=\"12\" y=\"26\" font-size=\"17\" fill=\"#222\"><tspan font-weight=\"bold\">%s</tspan>: one "
            "training step of a LLaMA "
            "on %d rank%s</text>\n",
            p->mode, p->ranks, p->ranks > 1 ? "s" : "");
    fprintf(out,
            "<text x=\"12\" y=\"46\" fill=\"#555\">hidden %ld, %ld heads (%ld key, value), MLP %ld, vocabulary %ld; "
            "%ld rows</text>\n",
            (long)config->hidden_size, (long)config->num_attention_heads, (long)config->num_key_value_heads,
            (long)config->intermediate_size, (long)config->vocab_size, (long)(o->batch * o->seq));
    for (int i = 0; i + 1 < c->n; i++) draw_stream(p, out, i);
    for (int i = 0; i < c->n; i++) {
        if (c->item[i].is_collective) draw_bar(p, out, i);
        for (int r = 0; r < p->ranks && !c->item[i].is_collective; r++) draw_box(p, out, r, i);
    }
    draw_legend(p, out, row_y(p, 1) + row_height(p) + 42);
    fprintf(out, "</svg>\n");
    fclose(out);
    GxStatus status = gx_file_write(path, text, (int64_t)bytes, err);
    free(text);
    return status;
}

// ---- recording -----------------------------------------------------------------------------------------------------

static GxStatus record(Chain *c, const GxLlamaConfig *config, const char *mode, const StepOptions *o, int rank,
                       int world, GxError *err)
{
    Step *t = (Step *)calloc(1, sizeof *t);
    int64_t bytes, host_bytes;
    GxMode composed;
    if (!t) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a step");
    t->g.rank = rank, t->g.world = world;
    GxStatus status = step_mode(mode, &composed, &t->g.error);
    if (status == GX_OK) status = step_plan(t, config, &composed, NULL, world, o, &bytes, &host_bytes);
    if (status != GX_OK) *err = t->g.error;
    else if (!layers_are_alike(&t->plan, t->m.units - 2))
        status = GX_FAIL(err, GX_ERR_UNSUPPORTED, "layers differ: one cannot stand for all");
    else *c = chain_of(&t->plan, t->m.units - 1);
    step_close(t);
    free(t);
    return status;
}

static GxStatus draw_mode(const char *mode, int ranks, const char *folder, GxError *err)
{
    GxLlamaConfig config = GX_ZERO;
    StepOptions o = GX_ZERO;
    config.vocab_size = 32000, config.hidden_size = 288, config.intermediate_size = 768, config.num_hidden_layers = 2;
    config.num_attention_heads = 6, config.num_key_value_heads = 2, config.max_position_embeddings = 1 << 20;
    config.rms_norm_eps = 1e-5, config.rope_theta = 10000, config.initializer_range = 0.02, config.pad_token_id = -1;
    o.batch = 4, o.seq = 256, o.head_chunk = 1024, o.threads = 1;
    snprintf(o.precision, sizeof o.precision, "fp32"), snprintf(o.recompute, sizeof o.recompute, "none");
    static Picture p;
    char path[GX_PATH], name[64];
    memset(&p, 0, sizeof p);
    p.mode = mode, p.ranks = ranks, p.layers = (int)config.num_hidden_layers, p.rows = o.batch * o.seq;
    GX_TRY(record(&p.whole, &config, mode, &o, 0, 1, err));
    for (int r = 0; r < ranks; r++) GX_TRY(record(&p.rank[r], &config, mode, &o, r, ranks, err));
    snprintf(name, sizeof name, "%s.svg", mode);
    GX_TRY(gx_path_join(path, folder, name, err));
    return draw(&p, &config, &o, path, err);
}

int main(int argc, char **argv)
{
#define DRAW_NAME(name, att, con, mlp) #name,
    static const char *const modes[] = {GX_MODES(DRAW_NAME)};
    GxError err = GX_ZERO;
    if (argc != 2) return fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
    GxStatus status = gx_folder_make(argv[1], &err);
    if (status == GX_OK) status = draw_mode("serial", 1, argv[1], &err);
    for (size_t i = 0; i < sizeof modes / sizeof *modes && status == GX_OK; i++)
        status = draw_mode(modes[i], 2, argv[1], &err);
    if (status != GX_OK) fprintf(stderr, "error: %s\n", err.message);
    return status != GX_OK;
}
