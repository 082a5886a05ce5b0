// blend.h: samples from one or more datasets, each with a share of them: a list of paths, and weights.
//
//     GxBlend b;
//     GX_TRY(gx_blend_open(&b, "code.tokens,books.jsonl", "0.7,0.3", &tokenizer, NULL, 0.1, 256, threads, log, err));
//     for (i…) status = gx_blend_sample(&b, seed, sample + i, 256, &to, NULL, err);
//     for (w < gx_blend_eval_samples(&b)) status = gx_blend_eval_sample(&b, w, 256, &to, err);
//     gx_blend_close(&b);
//
// A folder of llm.c's .bin files is as many sources, in the order of their names, which share its weight in proportion
// to their windows; those with "_val_" in their names are skipped.
//
// The source of a sample, and the sample's number in that source, are functions of its number and the weights: no state
// is kept. Of the first n samples the first source has n times its share, rounded to the nearest; of the rest the
// second one has its share of the rest; and so on. So source k = 0, 1, ... is never off its share of all by more than
// (k + 1) / 2 samples. Its own samples come in the order of dataset.h, in epochs of its own.
//
// Without weights each source has as many parts as its epoch has windows, so the epochs of all sources end together.
// Validation uses the held-out parts of all sources, interleaved likewise: the first k windows have of each source in
// proportion to its held-out part.
#ifndef GX_BLEND_H
#define GX_BLEND_H
#include "dataset_chat.h"
#include "dataset_tokens.h"
GX_BEGIN

enum { GX_BLEND_PARTS = 1 << 30 };

typedef struct {
    GxDataset *source; // [n]
    int *name;         // [n] the number of its path in the list
    int64_t *part;     // [n] its share of the samples, at least 1; the sum is at most GX_BLEND_PARTS
    int64_t *held_out; // [n] held-out windows; 0 without validation
    int n;
} GxBlend;

typedef struct { // where a sample is written: the token and the label of position t to [t * stride]
    int32_t *tokens;
    int32_t *labels;    // `ignored` for a token that the data's mask leaves out
    int32_t *documents; // [t * stride][2], as by gx_dataset_documents, which changes labels, too; NULL: not wanted
    int32_t ignored;
    int64_t stride;
} GxBlendSample;

// list: one path, or several separated by commas (an existing file with a comma in its name is one path). weights: as
// many numbers above 0, separated by commas, relative to their sum; "": none. Sources are opened by
// gx_dataset_open_any, conversations by gx_dataset_open_chat. chat NULL: records are texts.
GxStatus gx_blend_open(GxBlend *b, const char *list, const char *weights, const GxTokenizer *t,
                       const GxChatReading *chat, double validation_fraction, int64_t T, int threads,
                       const GxLogger *log, GxError *err);
void gx_blend_close(GxBlend *b); // accepts a struct of zeros
// 1: samples may contain several documents. 0 also if the data cannot be read.
int gx_blend_has_documents(const char *list);
int gx_blend_count_names(const char *list); // the number of paths; 0: one of them is empty

// The source of sample `index`, if sources have these parts; *at: the sample's number in this source.
int gx_blend_find(const int64_t *part, int n, int64_t index, int64_t *at);
// how many of the first `samples` are its own
int64_t gx_blend_share(const int64_t *part, int n, int source, int64_t samples);

// *padding, unless padding is NULL, is increased by the number of tokens that are padding.
GxStatus gx_blend_sample(const GxBlend *b, uint64_t seed, int64_t index, int64_t T, const GxBlendSample *to,
                         int64_t *padding, GxError *err);
int64_t gx_blend_eval_samples(const GxBlend *b); // of all held-out parts
GxStatus gx_blend_eval_sample(const GxBlend *b, int64_t window, int64_t T, const GxBlendSample *to, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BLEND_IMPLEMENTED)
#define GX_BLEND_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the source of a sample ----------------------------------------------------------------------------------------

// n * part / all, rounded to the nearest, halves up. 0 <= part <= all <= 2^30.
static int64_t gx__blend_part_of(int64_t n, int64_t part, int64_t all)
{
    return n / all * part + (2 * (n % all) * part + all) / (2 * all);
}

static int64_t gx__blend_sum(const int64_t *part, int n)
{
    int64_t sum = 0;
    for (int s = 0; s < n; s++) sum += part[s];
    return sum;
}

int gx_blend_find(const int64_t *part, int n, int64_t index, int64_t *at)
{
    int64_t all = gx__blend_sum(part, n);
    for (int s = 0; s < n - 1; s++) {
        const int64_t before = gx__blend_part_of(index, part[s], all);
        *at = before;
        if (gx__blend_part_of(index + 1, part[s], all) > before) return s;
        index -= before, all -= part[s];
    }
    *at = index;
    return n - 1;
}

int64_t gx_blend_share(const int64_t *part, int n, int source, int64_t samples)
{
    int64_t all = gx__blend_sum(part, n);
    for (int s = 0; s < source && all > 0; s++) samples -= gx__blend_part_of(samples, part[s], all), all -= part[s];
    return all > 0 ? gx__blend_part_of(samples, part[source], all) : 0; // all <= 0: nothing is left for it
}

// Converts weights above 0 to parts. is_exact: they are integers, and are kept if their sum allows it.
static void gx__blend_set_parts(int64_t *part, const double *weight, int n, int is_exact)
{
    double sum = 0;
    for (int s = 0; s < n; s++) sum += weight[s];
    for (int s = 0; s < n; s++) {
        const double scaled = weight[s] / sum * (GX_BLEND_PARTS - n); // - n: since small ones become 1
        part[s] = is_exact && sum <= GX_BLEND_PARTS ? (int64_t)weight[s] : gx_max(1, (int64_t)scaled);
    }
}

// ---- lists ---------------------------------------------------------------------------------------------------------

// Name i of the list, which may be empty; 0: there is none.
static int gx__blend_name(const char *list, int i, char name[GX_PATH])
{
    const int is_one = access(list, F_OK) == 0;
    const char *from = list;
    for (int k = 0; k < i; k++) {
        from = is_one ? NULL : strchr(from, ',');
        if (!from) return 0;
        from++;
    }
    const size_t n = is_one ? strlen(from) : strcspn(from, ",");
    const size_t fits = n < GX_PATH ? n : GX_PATH - 1; // a name that is too long is truncated, and then not found
    memcpy(name, from, fits), name[fits] = 0;
    return 1;
}

int gx_blend_count_names(const char *list)
{
    char name[GX_PATH];
    int n = 0;
    for (; gx__blend_name(list, n, name); n++)
        if (!name[0]) return 0;
    return n;
}

int gx_blend_has_documents(const char *list)
{
    char name[GX_PATH];
    int has = 0;
    for (int i = 0; gx__blend_name(list, i, name); i++) has |= gx_dataset_has_documents(name);
    return has;
}

static GxStatus gx__blend_read_weights(const char *weights, double *weight, int n, GxError *err)
{
    const char *p = weights;
    char cut[GX_TEXT_VALUE];
    int count = 1;
    for (const char *c = weights; *c; c++) count += *c == ',';
    if (count != n)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--train_data_weights: there %s %d weight%s (%s), but %d source%s of data; give one for each source",
            count == 1 ? "is" : "are", count, gx_text_s(count), gx_text_cut(weights, cut, sizeof cut), n, gx_text_s(n));
    for (int s = 0; s < n; s++) {
        char *end = NULL;
        // strtod would accept nan, inf, white space
        const int is_number = strspn(p, "+-0123456789.eE") == strcspn(p, ",");
        weight[s] = is_number ? strtod(p, &end) : 0;
        if (!end || end == p || (*end && *end != ',') || !(weight[s] >= 1e-9 && weight[s] <= 1e9))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--train_data_weights: weight %d of %s is not a number from 1e-9 to 1e9; to leave a source "
                           "out, remove it from --train_data",
                           s + 1, gx_text_cut(weights, cut, sizeof cut));
        p = end + 1;
    }
    return GX_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

typedef struct {
    GxBlend *b;
    int room;
    const GxTokenizer *t;
    const GxChatReading *chat;
    double validation_fraction;
    int64_t T;
    int threads;
    const GxLogger *log;
    GxError *err;
} gx__BlendOpening;

static GxStatus gx__blend_grow(gx__BlendOpening *x)
{
    GxBlend *b = x->b;
    const int room = 2 * x->room + 8;
    if (b->n < x->room) return GX_OK;
    void *source = realloc(b->source, (size_t)room * sizeof *b->source);
    if (source) b->source = (GxDataset *)source;
    void *name = realloc(b->name, (size_t)room * sizeof *b->name);
    if (name) b->name = (int *)name;
    void *part = realloc(b->part, (size_t)room * sizeof *b->part);
    if (part) b->part = (int64_t *)part;
    void *held_out = realloc(b->held_out, (size_t)room * sizeof *b->held_out);
    if (held_out) b->held_out = (int64_t *)held_out;
    if (!source || !name || !part || !held_out)
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %d sources of data", room);
    x->room = room;
    return GX_OK;
}

static int gx__blend_is_same(const char *a, const char *b) // 1: the same file or folder
{
    struct stat x, y;
    if (!strcmp(a, b)) return 1;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static GxStatus gx__blend_add(gx__BlendOpening *x, int name, const char *path)
{
    GxBlend *b = x->b;
    for (int s = 0; s < b->n; s++)
        if (gx__blend_is_same(b->source[s].path, path))
            return GX_FAIL(x->err, GX_ERR_ARGUMENT,
                           "%s is named twice%s%s; to take more samples from it, give it a larger weight", path,
                           strcmp(b->source[s].path, path) ? ", also as " : "",
                           strcmp(b->source[s].path, path) ? b->source[s].path : "");
    GX_TRY(gx__blend_grow(x));
    GxDataset *d = &b->source[b->n];
    if (x->chat && gx_dataset_is_chat(path, gx_chat_record_reading(x->chat), x->log))
        GX_TRY(gx_dataset_open_chat(d, path, x->t, x->chat, x->validation_fraction, x->T, x->threads, x->err));
    else
        GX_TRY(gx_dataset_open_any(d, path, gx_chat_record_reading(x->chat), x->t, x->validation_fraction, x->T,
                                   x->threads, x->log, x->err));
    if (d->fd >= 0 && d->file.joins) {
        const GxStatus status = gx_dataset_take_chats(d, x->t, x->chat, x->T, x->log, x->err);
        if (status != GX_OK) gx_dataset_close(d);
        GX_TRY(status);
    }
    b->name[b->n] = name, b->part[b->n] = 0;
    b->held_out[b->n++] = gx_dataset_held_out_samples(d, x->T);
    return GX_OK;
}

static GxStatus gx__blend_add_shards(gx__BlendOpening *x, int name, const char *path, const GxFolder *folder)
{
    char shard[GX_PATH];
    int taken = 0;
    for (int i = 0; i < folder->n; i++) {
        const char *file = folder->entry[i].name;
        if (gx_path_has_end(file, ".txt") || gx_path_has_end(file, ".jsonl") || gx_path_has_end(file, ".ndjson"))
            return GX_FAIL(
                x->err, GX_ERR_ARGUMENT,
                "the folder %s has both .bin files and texts (%s); put them into different folders, and name both",
                path, file);
        GX_TRY(gx_path_join(shard, path, file, x->err));
        if (!gx_path_has_end(file, ".bin")) continue;
        if (!gx_path_is_file(shard) && x->log)
            gx_log(x->log, GX_LOG_WARNING, "skipped: %s, which is %s", shard, gx_path_kind(shard));
        if (!gx_path_is_file(shard)) continue;
        if (strstr(file, "_val_") && x->log) gx_log(x->log, GX_LOG_INFO, "skipped because of its name: %s", shard);
        if (strstr(file, "_val_")) continue;
        GX_TRY(gx__blend_add(x, name, shard));
        if (!x->b->source[x->b->n - 1].file.is_bin)
            return GX_FAIL(x->err, GX_ERR_FORMAT,
                           "%s is not a .bin file of llm.c, as all files of such a folder have to be", shard);
        taken++;
    }
    return taken ? GX_OK
                 : GX_FAIL(x->err, GX_ERR_FORMAT,
                           "all .bin files in %s have _val_ in their names, so none is left to train on", path);
}

static GxStatus gx__blend_add_name(gx__BlendOpening *x, int name, const char *path)
{
    GxFolder folder;
    int shards = 0;
    if (!gx_path_is_folder(path)) return gx__blend_add(x, name, path);
    GX_TRY(gx_folder_list(&folder, path, x->err));
    for (int i = 0; i < folder.n; i++)
        shards += !folder.entry[i].is_folder && gx_path_has_end(folder.entry[i].name, ".bin");
    const GxStatus status = shards ? gx__blend_add_shards(x, name, path, &folder) : gx__blend_add(x, name, path);
    gx_folder_close(&folder);
    return status;
}

// Divides the weight of a name among its sources in proportion to their windows.
static GxStatus gx__blend_weigh(GxBlend *b, const char *list, const char *weights, int64_t T, GxError *err)
{
    const int names = gx_blend_count_names(list);
    double *weight = (double *)calloc((size_t)(names + b->n), sizeof *weight), *of = weight + names;
    GxStatus status = weight ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d weights", b->n);
    if (status == GX_OK && weights[0]) status = gx__blend_read_weights(weights, weight, names, err);
    for (int s = 0; s < b->n && status == GX_OK; s++) {
        double all = 0;
        for (int i = 0; i < b->n; i++)
            if (b->name[i] == b->name[s]) all += (double)gx_dataset_epoch_samples(&b->source[i], T);
        of[s] = (double)gx_dataset_epoch_samples(&b->source[s], T);
        if (weights[0]) of[s] *= weight[b->name[s]] / all;
    }
    if (status == GX_OK) gx__blend_set_parts(b->part, of, b->n, !weights[0]);
    free(weight);
    return status;
}

static GxStatus gx__blend_open(gx__BlendOpening *x, const char *list, const char *weights)
{
    GxBlend *b = x->b;
    char name[GX_PATH], cut[GX_TEXT_VALUE];
    if (gx_blend_count_names(list) == 0)
        return GX_FAIL(x->err, GX_ERR_ARGUMENT, "the list of data is \"%s\"; expected paths separated by commas",
                       gx_text_cut(list, cut, sizeof cut));
    for (int i = 0; gx__blend_name(list, i, name); i++) GX_TRY(gx__blend_add_name(x, i, name));
    if (b->n > 1 && gx_blend_eval_samples(b) > GX_BLEND_PARTS)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%ld windows of %ld tokens are held out from %d sources; at most %d are possible",
                       (long)gx_blend_eval_samples(b), (long)x->T, b->n, GX_BLEND_PARTS);
    return gx__blend_weigh(b, list, weights, x->T, x->err);
}

GxStatus gx_blend_open(GxBlend *b, const char *list, const char *weights, const GxTokenizer *t,
                       const GxChatReading *chat, double validation_fraction, int64_t T, int threads,
                       const GxLogger *log, GxError *err)
{
    gx__BlendOpening x = {b, 0, t, chat, validation_fraction, T, threads, log, err};
    memset(b, 0, sizeof *b);
    const GxStatus status = gx__blend_open(&x, list, weights);
    if (status != GX_OK) gx_blend_close(b);
    return status;
}

void gx_blend_close(GxBlend *b)
{
    for (int s = 0; s < b->n; s++) gx_dataset_close(&b->source[s]);
    free(b->source), free(b->name), free(b->part), free(b->held_out);
    memset(b, 0, sizeof *b);
}

// ---- samples -------------------------------------------------------------------------------------------------------

// at: the first token, counted in the whole source.
static GxStatus gx__blend_set_labels(const GxDataset *d, int64_t at, int64_t T, const GxBlendSample *to, GxError *err)
{
    if (to->documents) gx_dataset_documents(d, at, T, to->tokens, to->documents, to->labels, to->ignored, to->stride);
    return gx_dataset_mask(d, at, T, to->labels, to->ignored, to->stride, err);
}

static GxStatus gx__blend_set_packed(const GxDataset *d, const GxPacking *p, int64_t sample, int64_t T,
                                     const GxBlendSample *to, int64_t *padding, GxError *err)
{
    return gx_dataset_packed(d, p, sample, T, to->tokens, to->labels, to->documents, to->ignored, to->stride, padding,
                             err);
}

GxStatus gx_blend_sample(const GxBlend *b, uint64_t seed, int64_t index, int64_t T, const GxBlendSample *to,
                         int64_t *padding, GxError *err)
{
    int64_t number;
    const GxDataset *d = &b->source[gx_blend_find(b->part, b->n, index, &number)];
    if (d->packed.samples) {
        int64_t n = 0;
        GX_TRY(gx__blend_set_packed(d, &d->packed, gx_dataset_packed_number(d, seed, number), T, to, &n, err));
        if (padding) *padding += n;
        return GX_OK;
    }
    GX_TRY(gx_dataset_sample(d, seed, number, T, to->tokens, to->labels, to->stride, err));
    return gx__blend_set_labels(d, d->train.begin + gx_dataset_sample_start(&d->train, seed, number, T), T, to, err);
}

int64_t gx_blend_eval_samples(const GxBlend *b) { return gx__blend_sum(b->held_out, b->n); }

GxStatus gx_blend_eval_sample(const GxBlend *b, int64_t window, int64_t T, const GxBlendSample *to, GxError *err)
{
    int64_t number;
    const GxDataset *d = &b->source[gx_blend_find(b->held_out, b->n, window, &number)];
    if (d->packed.samples) return gx__blend_set_packed(d, &d->packed_held_out, number, T, to, NULL, err);
    GX_TRY(gx_dataset_eval_sample(d, number, T, to->tokens, to->labels, to->stride, err));
    return gx__blend_set_labels(d, d->held_out.begin + number * T, T, to, err);
}
#endif
