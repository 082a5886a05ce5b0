// task/text_noise.h: damages texts, for models that learn to write the text (denoising) or what is missing in it.
//
// Spans (T5; Raffel et al. 2020, section 3.1.4). Of a text of L tokens n = round(density * L) are noise, in
// k = round(min(n, L - n) / mean length) spans, both at least 1; halves are rounded to even. Noise and the rest are
// each cut into k parts, every way with the same probability, and alternate: kept, noise, kept, noise, ... In the
// source a sentinel, another one for each, stands for a span. The target has each sentinel and its span:
//
//     text     a b c d e f g h        k = 2; kept 2, 1; noise 3, 2
//     source   a b <0> f <1>
//     target   <0> c d e <1> g h
//
// Infilling (BART; Lewis et al. 2019, section 2.2, in the form of its authors' code, fairseq). First the sentences of
// the text get a random order. A sentence ends behind the first full stop of a row of these; the last token counts as
// one. Then ceil(ratio * L) tokens, in fp32, are to be masked. Lengths of spans are drawn from a Poisson distribution
// until they sum to that; the last one is cut. For each length but 0 another random token becomes the mask, and as many
// tokens behind it as the span is longer are lost, up to the text's end; also where other spans begin. For each length
// 0 a mask is inserted anywhere, but no more than the text has lost tokens: a source is never longer than its text.
//
// Random numbers are a function of (seed, number of the sample, how many were drawn for it). What is drawn and what
// becomes of a text are apart, so that each can be tested.
#ifndef GX_TEXT_NOISE_H
#define GX_TEXT_NOISE_H
#include "../base/status.h"
#include "../base/random.h"
GX_BEGIN

typedef struct { // random numbers of a sample, one after another; gx_noise_draws
    uint64_t seed;
    int64_t sample;
    uint32_t site, drawn;
    GxRandom4 random; // of which the next ones are
} GxNoiseDraws;
GxNoiseDraws gx_noise_draws(uint64_t seed, int64_t sample, uint32_t site);
int64_t gx_noise_below(GxNoiseDraws *d, int64_t n); // 0 to n - 1
// The first k of a random order of 0 to n - 1 become the first k of chosen[n], which then has them all.
void gx_noise_choose(GxNoiseDraws *d, int64_t n, int64_t k, int32_t *chosen);

// ---- spans ---------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t tokens, noise, spans;
} GxSpanCounts;
// Of a text of at least 2 tokens; density in (0, 1), mean_length at least 1.
GxSpanCounts gx_span_counts(int64_t tokens, double density, double mean_length);
static inline int64_t gx_span_source(GxSpanCounts c) { return c.tokens - c.noise + c.spans; } // tokens of a source
static inline int64_t gx_span_target(GxSpanCounts c) { return c.noise + c.spans; }            // of a target
// The longest text whose source has at most `source` tokens, which is at least 2.
GxSpanCounts gx_span_longest(int64_t source, double density, double mean_length);

// Cuts `total` into length[parts], each at least 1.
void gx_noise_parts(GxNoiseDraws *d, int64_t total, int64_t parts, int32_t *length);
// kept[spans], noise[spans]: lengths; together those of the text.
void gx_noise_spans(const int32_t *text, const int32_t *kept, const int32_t *noise, int64_t spans,
                    const int32_t *sentinel, int32_t *source, int32_t *target);

// ---- infilling -----------------------------------------------------------------------------------------------------

enum { GX_NOISE_LENGTHS = 128 };
typedef struct {
    int n;
    double below[GX_NOISE_LENGTHS]; // [n] the probability of a length of at most i
} GxSpanLengths;
// A Poisson distribution that ends with the first length that is less likely than 1e-7; mean at most 16.
void gx_span_lengths(GxSpanLengths *l, double mean);

// Where the sentences of text[n] end: end[n]. Returns their number. Tokens behind the last end are no sentence.
int64_t gx_noise_sentences(const int32_t *text, int64_t n, int32_t full_stop, int32_t *end);
// order[n]: ceil(ratio * n) random ones of 0 to n - 1 change places. room[2 * n].
void gx_noise_order(GxNoiseDraws *d, int64_t n, double ratio, int32_t *order, int32_t *room);
void gx_noise_reorder(const int32_t *text, int64_t n, const int32_t *end, int64_t sentences, const int32_t *order,
                      int32_t *reordered);

int64_t gx_noise_masked(int64_t n, double ratio); // how many of n tokens are masked
// The lengths of spans that `masked` tokens are covered with: length[masked], all above 0. Returns their number;
// *inserted: how many times 0 was drawn.
int64_t gx_noise_lengths(GxNoiseDraws *d, const GxSpanLengths *l, int64_t masked, int32_t *length, int64_t *inserted);
// Spans of length[spans] from token start[spans] on, which are distinct, become masks. Returns what text[n] has left.
// is_lost[n]: scratch.
int64_t gx_noise_mask(int32_t *text, int64_t n, const int32_t *start, const int32_t *length, int64_t spans,
                      int32_t mask, unsigned char *is_lost);
// Inserts `masks` masks, which become tokens place[masks] of text[n + masks]; distinct. is_mask[n + masks]: scratch.
void gx_noise_insert(int32_t *text, int64_t n, const int32_t *place, int64_t masks, int32_t mask,
                     unsigned char *is_mask);

typedef struct {
    double mask_ratio, permute_ratio; // of tokens, of sentences
    GxSpanLengths lengths;
    int32_t mask, full_stop;
} GxInfilling;
typedef struct { // scratch for a text of n tokens; gx_noise_room_open
    int32_t *a, *b, *c;
    unsigned char *flag; // [n]
} GxNoiseRoom;
GxStatus gx_noise_room_open(GxNoiseRoom *r, int64_t n, GxError *err);
void gx_noise_room_close(GxNoiseRoom *r); // accepts a struct of zeros
// All of it: source[n] of text[n]. Returns the number of its tokens.
int64_t gx_noise_infill(GxNoiseDraws *d, const GxInfilling *how, const int32_t *text, int64_t n, int32_t *source,
                        GxNoiseRoom *room);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_NOISE_IMPLEMENTED)
#define GX_TEXT_NOISE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

GxNoiseDraws gx_noise_draws(uint64_t seed, int64_t sample, uint32_t site)
{
    GxNoiseDraws d = GX_ZERO;
    d.seed = seed, d.sample = sample, d.site = site;
    return d;
}

static uint32_t gx__noise_bits(GxNoiseDraws *d)
{
    const uint32_t word = d->drawn % 4;
    if (word == 0) d->random = gx_philox(d->seed, (uint64_t)d->sample, d->drawn / 4, d->site);
    d->drawn++;
    return d->random.w[word];
}

int64_t gx_noise_below(GxNoiseDraws *d, int64_t n)
{
    return (int64_t)((uint64_t)gx__noise_bits(d) * (uint64_t)n >> 32);
}

void gx_noise_choose(GxNoiseDraws *d, int64_t n, int64_t k, int32_t *chosen)
{
    for (int64_t i = 0; i < n; i++) chosen[i] = (int32_t)i;
    for (int64_t i = 0; i < k; i++) {
        const int64_t j = i + gx_noise_below(d, n - i);
        const int32_t other = chosen[j];
        chosen[j] = chosen[i], chosen[i] = other;
    }
}

// ---- spans ---------------------------------------------------------------------------------------------------------

GxSpanCounts gx_span_counts(int64_t tokens, double density, double mean_length)
{
    GxSpanCounts c = GX_ZERO;
    c.tokens = tokens;
    c.noise = gx_min(gx_max((int64_t)rint((double)tokens * density), 1), tokens - 1);
    c.spans = gx_max((int64_t)rint((double)gx_min(c.noise, tokens - c.noise) / mean_length), 1);
    return c;
}

GxSpanCounts gx_span_longest(int64_t source, double density, double mean_length)
{
    GxSpanCounts c = gx_span_counts(2, density, mean_length), next = c;
    while (gx_span_source(next) <= source) {
        c = next;
        next = gx_span_counts(c.tokens + 1, density, mean_length);
    }
    return c;
}

// Each of the `total` - 1 places between two items is as likely to be one of the parts' ends.
void gx_noise_parts(GxNoiseDraws *d, int64_t total, int64_t parts, int32_t *length)
{
    int64_t part = 0, begin = 0;
    for (int64_t at = 1; at < total && part < parts - 1; at++) {
        if (gx_noise_below(d, total - at) >= parts - 1 - part) continue;
        length[part++] = (int32_t)(at - begin);
        begin = at;
    }
    length[part] = (int32_t)(total - begin);
}

void gx_noise_spans(const int32_t *text, const int32_t *kept, const int32_t *noise, int64_t spans,
                    const int32_t *sentinel, int32_t *source, int32_t *target)
{
    for (int64_t i = 0; i < spans; i++) {
        memcpy(source, text, (size_t)kept[i] * sizeof *text);
        source += kept[i], text += kept[i];
        *source++ = *target++ = sentinel[i];
        memcpy(target, text, (size_t)noise[i] * sizeof *text);
        target += noise[i], text += noise[i];
    }
}

// ---- sentences -----------------------------------------------------------------------------------------------------

int64_t gx_noise_sentences(const int32_t *text, int64_t n, int32_t full_stop, int32_t *end)
{
    int64_t sentences = 0;
    int before = 0; // the token before is a full stop
    for (int64_t i = 0; i < n; i++) {
        const int is_stop = text[i] == full_stop || i == n - 1;
        if (is_stop && !before) end[sentences++] = (int32_t)(i + 1);
        before = is_stop;
    }
    return sentences;
}

void gx_noise_order(GxNoiseDraws *d, int64_t n, double ratio, int32_t *order, int32_t *room)
{
    const int64_t moved = gx_min((int64_t)ceil((double)n * ratio), n);
    int32_t *which = room, *to = room + n;
    gx_noise_choose(d, n, moved, which);
    gx_noise_choose(d, moved, moved, to);
    for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
    for (int64_t i = 0; i < moved; i++) order[which[i]] = which[to[i]];
}

void gx_noise_reorder(const int32_t *text, int64_t n, const int32_t *end, int64_t sentences, const int32_t *order,
                      int32_t *reordered)
{
    int64_t at = 0;
    for (int64_t i = 0; i < sentences; i++) {
        const int32_t begin = order[i] > 0 ? end[order[i] - 1] : 0, tokens = end[order[i]] - begin;
        memcpy(reordered + at, text + begin, (size_t)tokens * sizeof *text);
        at += tokens;
    }
    memcpy(reordered + at, text + at, (size_t)(n - at) * sizeof *text); // behind the last end
}

// ---- masks ---------------------------------------------------------------------------------------------------------

void gx_span_lengths(GxSpanLengths *l, double mean)
{
    double p = exp(-mean), last, sum = 0;
    l->n = 0;
    do {
        sum += p;
        l->below[l->n++] = sum;
        last = p;
        p *= mean / l->n;
    } while (l->n < GX_NOISE_LENGTHS && last >= 1e-7);
    for (int i = 0; i < l->n; i++) l->below[i] /= sum;
}

int64_t gx_noise_masked(int64_t n, double ratio) { return gx_min((int64_t)ceilf((float)ratio * (float)n), n); }

static int32_t gx__noise_length(GxNoiseDraws *d, const GxSpanLengths *l)
{
    const double u = (double)gx__noise_bits(d) * 0x1p-32;
    int i = 0;
    while (i < l->n - 1 && u >= l->below[i]) i++;
    return i;
}

int64_t gx_noise_lengths(GxNoiseDraws *d, const GxSpanLengths *l, int64_t masked, int32_t *length, int64_t *inserted)
{
    int64_t spans = 0, covered = 0;
    *inserted = 0;
    while (covered < masked) {
        const int32_t drawn = gx__noise_length(d, l);
        if (drawn == 0) ++*inserted;
        else length[spans++] = (int32_t)gx_min(drawn, masked - covered);
        covered += drawn;
    }
    return spans;
}

int64_t gx_noise_mask(int32_t *text, int64_t n, const int32_t *start, const int32_t *length, int64_t spans,
                      int32_t mask, unsigned char *is_lost)
{
    int64_t left = 0;
    memset(is_lost, 0, (size_t)n);
    for (int64_t i = 0; i < spans; i++) {
        text[start[i]] = mask;
        for (int64_t t = start[i] + 1; t < n && t < start[i] + length[i]; t++) is_lost[t] = 1;
    }
    for (int64_t t = 0; t < n; t++)
        if (!is_lost[t]) text[left++] = text[t];
    return left;
}

void gx_noise_insert(int32_t *text, int64_t n, const int32_t *place, int64_t masks, int32_t mask,
                     unsigned char *is_mask)
{
    memset(is_mask, 0, (size_t)(n + masks));
    for (int64_t i = 0; i < masks; i++) is_mask[place[i]] = 1;
    for (int64_t t = n + masks - 1, from = n; t >= 0; t--) text[t] = is_mask[t] ? mask : text[--from];
}

GxStatus gx_noise_room_open(GxNoiseRoom *r, int64_t n, GxError *err)
{
    r->a = (int32_t *)malloc(4 * (size_t)n * sizeof *r->a); // b has 2 n
    r->flag = (unsigned char *)malloc((size_t)n);
    if (!r->a || !r->flag) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld tokens", (long)n);
    r->c = r->a + n, r->b = r->c + n;
    return GX_OK;
}

void gx_noise_room_close(GxNoiseRoom *r)
{
    free(r->a);
    free(r->flag);
    memset(r, 0, sizeof *r);
}

int64_t gx_noise_infill(GxNoiseDraws *d, const GxInfilling *how, const int32_t *text, int64_t n, int32_t *source,
                        GxNoiseRoom *room)
{
    const int64_t masked = gx_noise_masked(n, how->mask_ratio);
    int64_t inserted;
    if (how->permute_ratio > 0) {
        const int64_t sentences = gx_noise_sentences(text, n, how->full_stop, room->a);
        gx_noise_order(d, sentences, how->permute_ratio, room->c, room->b);
        gx_noise_reorder(text, n, room->a, sentences, room->c, source);
    } else memcpy(source, text, (size_t)n * sizeof *text);
    const int64_t spans = gx_noise_lengths(d, &how->lengths, masked, room->a, &inserted);
    gx_noise_choose(d, n, spans, room->c);
    const int64_t left = gx_noise_mask(source, n, room->c, room->a, spans, how->mask, room->flag);
    inserted = gx_min(inserted, n - left);
    gx_noise_choose(d, left + inserted, inserted, room->c);
    gx_noise_insert(source, left, room->c, inserted, how->mask, room->flag);
    return left + inserted;
}
#endif
