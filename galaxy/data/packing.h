// packing.h: packs whole texts of different lengths into samples of T tokens, into few samples, so that there is little
// padding.
//
// Best fit decreasing (Johnson 1974, "Fast algorithms for bin packing"): the longest text first, each into the fullest
// sample that has room for it, otherwise into a new one. Texts of equal length are taken in their order; of equally
// full samples, the one that has been so for the longest time. So the result depends on the lengths only.
//
//     GX_TRY(gx_packing_make(&p, length, texts, 512, err));
//     for (i = p.begin[s]; i < p.begin[s + 1]; i++) … text p.text[i] …                 // those of sample s
//     gx_packing_close(&p);
#ifndef GX_PACKING_H
#define GX_PACKING_H
#include "../base/status.h"
GX_BEGIN

typedef struct {
    int64_t samples;
    int64_t *text;  // [texts] numbers of texts
    int64_t *begin; // [samples + 1] where in `text` those of each sample begin
} GxPacking;

// length[texts]: 1 to T each. Memory: 24 bytes per text and per token of T, temporarily 40.
GxStatus gx_packing_make(GxPacking *p, const int64_t *length, int64_t texts, int64_t T, GxError *err);
void gx_packing_close(GxPacking *p); // accepts a struct of zeros

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PACKING_IMPLEMENTED)
#define GX_PACKING_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t length, number;
} gx__PackingText;

typedef struct {
    int64_t T;
    gx__PackingText *text; // [texts], the longest first
    int64_t *sample;       // [texts] by number: its sample
    int64_t *next;         // [texts] by sample: the next one with as much room; -1: none
    int64_t *first, *last; // [T + 1] by room: the first and last sample with that much; -1: none
    uint64_t *has;         // [T / 64 + 1] by room, one bit: 1: there are such samples
} gx__Packing;

static int gx__packing_compare(const void *a, const void *b) // longer ones first, equal ones in their order
{
    const gx__PackingText *x = (const gx__PackingText *)a, *y = (const gx__PackingText *)b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static void gx__packing_put(gx__Packing *x, int64_t sample, int64_t room)
{
    x->next[sample] = -1;
    if (x->first[room] < 0) x->first[room] = sample;
    else x->next[x->last[room]] = sample;
    x->last[room] = sample;
    x->has[room / 64] |= (uint64_t)1 << (room % 64);
}

// The smallest room of at least `length` that any sample has; -1: none.
static int64_t gx__packing_find(const gx__Packing *x, int64_t length)
{
    uint64_t word = x->has[length / 64] >> (length % 64) << (length % 64);
    for (int64_t i = length / 64; i <= x->T / 64; word = ++i <= x->T / 64 ? x->has[i] : 0)
        for (int bit = 0; word && bit < 64; bit++)
            if (word >> bit & 1) return 64 * i + bit;
    return -1;
}

// takes the sample that has had this room for the longest time
static int64_t gx__packing_take(gx__Packing *x, int64_t room)
{
    const int64_t sample = x->first[room];
    x->first[room] = x->next[sample];
    if (x->first[room] < 0) x->has[room / 64] &= ~((uint64_t)1 << (room % 64));
    return sample;
}

static int64_t gx__packing_fill(gx__Packing *x, int64_t texts)
{
    int64_t samples = 0;
    qsort(x->text, (size_t)texts, sizeof *x->text, gx__packing_compare);
    for (int64_t room = 0; room <= x->T; room++) x->first[room] = x->last[room] = -1;
    for (int64_t i = 0; i < texts; i++) {
        const gx__PackingText *text = &x->text[i];
        const int64_t room = gx__packing_find(x, text->length), had = room < 0 ? x->T : room,
                      sample = room < 0 ? samples++ : gx__packing_take(x, room);
        x->sample[text->number] = sample;
        gx__packing_put(x, sample, had - text->length);
    }
    return samples;
}

static void gx__packing_free(gx__Packing *x)
{
    free(x->text), free(x->sample), free(x->next), free(x->first), free(x->last), free(x->has);
}

GxStatus gx_packing_make(GxPacking *p, const int64_t *length, int64_t texts, int64_t T, GxError *err)
{
    const size_t n = (size_t)texts + 1, rooms = (size_t)T + 1;
    gx__Packing x = {T,
                     (gx__PackingText *)calloc(n, sizeof *x.text),
                     (int64_t *)calloc(n, sizeof *x.sample),
                     (int64_t *)calloc(n, sizeof *x.next),
                     (int64_t *)calloc(rooms, sizeof *x.first),
                     (int64_t *)calloc(rooms, sizeof *x.last),
                     (uint64_t *)calloc(rooms / 64 + 1, sizeof *x.has)};
    memset(p, 0, sizeof *p);
    p->text = (int64_t *)calloc(n, sizeof *p->text), p->begin = (int64_t *)calloc(n, sizeof *p->begin);
    if (!x.text || !x.sample || !x.next || !x.first || !x.last || !x.has || !p->text || !p->begin) {
        gx__packing_free(&x), gx_packing_close(p);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory to pack %ld texts", (long)texts);
    }
    for (int64_t i = 0; i < texts; i++) x.text[i].length = length[i], x.text[i].number = i;
    p->samples = gx__packing_fill(&x, texts);
    // counts per sample, then where each begins; each text, the longest first, goes to its sample's next place
    for (int64_t i = 0; i < texts; i++) p->begin[x.sample[i] + 1]++;
    for (int64_t s = 0; s < p->samples; s++) p->begin[s + 1] += p->begin[s], x.next[s] = p->begin[s];
    for (int64_t i = 0; i < texts; i++) p->text[x.next[x.sample[x.text[i].number]]++] = x.text[i].number;
    gx__packing_free(&x);
    return GX_OK;
}

void gx_packing_close(GxPacking *p)
{
    free(p->text), free(p->begin);
    memset(p, 0, sizeof *p);
}
#endif
