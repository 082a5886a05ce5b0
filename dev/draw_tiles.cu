// draw_tiles.cu: a layer's forward in Galaxy's mode, and the same by tiles (model/tiles.h), as rank 0 of three has it:
// draw_tiles FOLDER writes galaxy_tiled.svg.
//
// What happens, and in which order, are the events that the recorder notes of a training step of each source on the device
// `none`. Times are those of a rank that computes RATE FLOP/s and whose link carries LINK bytes/s, where ranks are equal: an
// operation takes its FLOPs; a message leaves when the link is free, and the one from the other side arrives at the same
// time; a wait lasts until then.
#include "dev/bench/step.h"
#include <math.h>

enum { RANKS = 3, LEFT = 88, TOP = 64, LANE = 30, ROW = 2 * LANE + 34, WIDTH = 900, RIGHT = 60 };
static const double RATE = 60e9, LINK = 0.5e9;
enum { MOST = 4096 };

typedef struct {
    int is_message;
    const char *site, *name;
    double begin, end;
} Bar;
typedef struct {
    Bar bar[MOST];
    int n;
    double end, link, computed;
    double arrives[MOST]; // by ticket
} Line;

static void add_bar(Line *l, const GxEvent *e, double begin, double end)
{
    if (end <= begin || l->n == MOST) return;
    const Bar b = {e->kind == GX_EVENT_COLLECTIVE, e->site, e->name, begin, end};
    l->bar[l->n++] = b;
}

// The forward of unit 1.
static void replay(Line *l, const GxRecorder *r)
{
    memset(l, 0, sizeof *l);
    for (int64_t i = 0; i < r->n; i++) {
        const GxEvent *e = &r->event[i];
        if (e->unit != 1 || e->action != GX_DO_FORWARD + 1) continue;
        if (e->kind == GX_EVENT_WAIT) l->end = fmax(l->end, l->arrives[e->ticket % MOST]);
        else if (e->kind == GX_EVENT_OP) {
            add_bar(l, e, l->end, l->end + e->flops / RATE);
            l->end += e->flops / RATE, l->computed += e->flops / RATE;
        } else {
            const double begin = fmax(l->end, l->link), seconds = (double)e->bytes / LINK;
            add_bar(l, e, begin, begin + seconds);
            if (seconds > 0) l->link = begin + seconds;
            if (e->ticket) l->arrives[e->ticket % MOST] = fmax(l->link, l->arrives[e->ticket % MOST]);
            else l->end = l->link;
        }
    }
}

static GxStatus record(Line *l, const GxMode *mode, GxError *err)
{
    GxLlamaConfig config = GX_ZERO;
    StepOptions o = GX_ZERO;
    int64_t bytes, host_bytes;
    Step *t = (Step *)calloc(1, sizeof *t);
    if (!t) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a step");
    config.vocab_size = 32000, config.hidden_size = 512, config.intermediate_size = 1376, config.num_hidden_layers = 2;
    config.num_attention_heads = 6, config.num_key_value_heads = 3, config.head_dim = 64;
    config.max_position_embeddings = 1 << 20, config.rms_norm_eps = 1e-5, config.rope_theta = 10000;
    config.initializer_range = 0.02, config.pad_token_id = -1;
    o.batch = 2, o.seq = 384, o.head_chunk = 1024, o.threads = 1;
    snprintf(o.precision, sizeof o.precision, "fp32"), snprintf(o.recompute, sizeof o.recompute, "none");
    t->g.rank = 0, t->g.world = RANKS;
    const GxStatus status = step_plan(t, &config, mode, NULL, RANKS, &o, &bytes, &host_bytes);
    if (status == GX_OK) replay(l, &t->plan);
    else *err = t->g.error;
    step_close(t);
    free(t);
    return status;
}

static const char *colour(const Bar *b)
{
    if (b->is_message) return strstr(b->site, "entry") ? "#f4a259" : "#bc4b51";
    return !strcmp(b->site, "att") ? "#5b8e7d" : !strcmp(b->site, "mlp") ? "#4a7fb5" : "#b8b8b8";
}

static void draw_line(FILE *f, const Line *l, int row, const char *name, double scale)
{
    const int y = TOP + row * ROW;
    fprintf(f, "<text x=\"8\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y - 8, name);
    fprintf(f, "<text x=\"8\" y=\"%d\">products</text>\n<text x=\"8\" y=\"%d\">link</text>\n", y + 19, y + LANE + 19);
    for (int i = 0; i < l->n; i++) {
        const Bar *b = &l->bar[i];
        fprintf(f,
                "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\" stroke=\"white\" "
                "stroke-width=\"0.6\"/>\n",
                LEFT + b->begin * scale, y + (b->is_message ? LANE : 0), (b->end - b->begin) * scale, LANE - 4,
                colour(b));
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.1f ms</text>\n", LEFT + l->end * scale + 5, y + 19, 1e3 * l->end);
}

static void draw_legend(FILE *f, int y)
{
    static const char *const words[][2] = {{"#5b8e7d", "attention"},
                                           {"#4a7fb5", "MLP"},
                                           {"#b8b8b8", "norms, CON, sums"},
                                           {"#f4a259", "gather (entry)"},
                                           {"#bc4b51", "scatter (exit)"}};
    for (int i = 0; i < 5; i++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                LEFT + 150 * i, y, words[i][0], LEFT + 150 * i + 17, y + 11, words[i][1]);
}

static GxStatus draw(const Line *whole, const Line *tiled, const char *path, GxError *err)
{
    const double scale = WIDTH / fmax(whole->end, tiled->end);
    FILE *f = fopen(path, "w");
    if (!f) return GX_FAIL(err, GX_ERR_IO, "%s cannot be written", path);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            LEFT + WIDTH + RIGHT, TOP + 2 * ROW + 16);
    fprintf(f,
            "<text x=\"8\" y=\"22\" font-size=\"14\">A layer's forward on rank 0 of %d, which computes %.0f GFLOP/s "
            "and has a "
            "link of %.0f Gbit/s; products alone take %.1f ms</text>\n",
            RANKS, RATE / 1e9, 8 * LINK / 1e9, 1e3 * whole->computed);
    draw_line(f, whole, 0, "train_galaxy.cu", scale);
    draw_line(f, tiled, 1, "train_galaxy_tiled.cu", scale);
    draw_legend(f, TOP + 2 * ROW - 8);
    fprintf(f, "</svg>\n");
    if (fclose(f)) return GX_FAIL(err, GX_ERR_IO, "%s cannot be written", path);
    return GX_OK;
}

int main(int argc, char **argv)
{
    static Line whole, tiled;
    GxError err = GX_ZERO;
    char path[GX_PATH];
    if (argc != 2) return fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
    GxStatus status = gx_folder_make(argv[1], &err);
    if (status == GX_OK) status = gx_path_join(path, argv[1], "galaxy_tiled.svg", &err);
    if (status == GX_OK) status = record(&whole, &gx_galaxy, &err);
    if (status == GX_OK) status = record(&tiled, &gx_galaxy_tiled, &err);
    if (status == GX_OK) status = draw(&whole, &tiled, path, &err);
    if (status != GX_OK) fprintf(stderr, "error: %s\n", err.message);
    return status != GX_OK;
}
