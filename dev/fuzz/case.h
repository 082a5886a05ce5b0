// dev/fuzz/case.h: what a fuzzer hands to the library: a case, a few named parts (files, a command line), and the
// random numbers that it is made from. A case is a function of (target, seed, its number) alone.
//
// A saved case is text where its parts are: "part NAME BYTES\n", the bytes, "\n", for each part.
#ifndef FUZZ_CASE_H
#define FUZZ_CASE_H
#include "../../galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- random numbers ------------------------------------------------------------------------------------------------

typedef struct {
    uint64_t state;
} Random;

static uint64_t draw(Random *r) // splitmix64: Steele, Lea & Flood 2014
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static int64_t below(Random *r, int64_t n) { return n > 0 ? (int64_t)(draw(r) % (uint64_t)n) : 0; } // [0, n)
static int one_in(Random *r, int64_t n) { return below(r, n) == 0; }
#define PICK(r, list) (list)[below((r), (int64_t)(sizeof(list) / sizeof *(list)))]

// ---- bytes ---------------------------------------------------------------------------------------------------------

typedef struct {
    char *p; // p[n] == 0
    int64_t n, capacity;
} Bytes;
enum { BYTES_MOST = 1 << 20 }; // of a part: mutations that would make it larger do nothing

static void bytes_reserve(Bytes *b, int64_t n)
{
    if (n < b->capacity) return;
    b->capacity = 2 * n + 64;
    b->p = (char *)realloc(b->p, (size_t)b->capacity);
}

static void bytes_add(Bytes *b, const void *p, int64_t n) // p may not be a part of b
{
    if (b->n + n > BYTES_MOST) return;
    bytes_reserve(b, b->n + n);
    if (n) memcpy(b->p + b->n, p, (size_t)n);
    b->n += n;
    b->p[b->n] = 0;
}
static void bytes_text(Bytes *b, const char *text) { bytes_add(b, text, (int64_t)strlen(text)); }

static void bytes_repeat(Bytes *b, const char *text, int64_t times)
{
    const int64_t n = (int64_t)strlen(text), from = b->n;
    if (n == 0 || times < 1 || b->n + n * times > BYTES_MOST) return;
    bytes_reserve(b, b->n + n * times);
    for (int64_t i = 0; i < n * times; i++) b->p[from + i] = text[i % n];
    b->n += n * times;
    b->p[b->n] = 0;
}

// Replaces [at, at + cut) by n new bytes, which may be a part of b.
static void bytes_splice(Bytes *b, int64_t at, int64_t cut, const void *with, int64_t n)
{
    if (b->n - cut + n > BYTES_MOST) return;
    char *copy = (char *)malloc((size_t)n + 1);
    if (n) memcpy(copy, with, (size_t)n);
    bytes_reserve(b, b->n - cut + n);
    memmove(b->p + at + n, b->p + at + cut, (size_t)(b->n - at - cut));
    if (n) memcpy(b->p + at, copy, (size_t)n);
    b->n += n - cut;
    b->p[b->n] = 0;
    free(copy);
}

// ---- cases ---------------------------------------------------------------------------------------------------------

enum { PARTS_MOST = 8, PART_NAME = 64 };
typedef struct {
    char name[PART_NAME];
    Bytes bytes;
} Part;
typedef struct {
    Part part[PARTS_MOST];
    int n;
} Case;

static void case_free(Case *c)
{
    for (int i = 0; i < c->n; i++) free(c->part[i].bytes.p);
    memset(c, 0, sizeof *c);
}

static Bytes *case_add(Case *c, const char *name, const void *bytes, int64_t n)
{
    if (c->n == PARTS_MOST) abort();
    Part *part = &c->part[c->n++];
    snprintf(part->name, sizeof part->name, "%s", name);
    bytes_add(&part->bytes, bytes, n);
    return &part->bytes;
}
static Bytes *case_text(Case *c, const char *name, const char *text)
{
    return case_add(c, name, text, (int64_t)strlen(text));
}

static const Bytes *case_part(const Case *c, const char *name) // of no bytes, if it is not there
{
    static const Bytes none = {(char *)"", 0, 0};
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->part[i].name, name)) return &c->part[i].bytes;
    return &none;
}

static Case case_copy(const Case *c)
{
    Case copy = GX_ZERO;
    for (int i = 0; i < c->n; i++) case_add(&copy, c->part[i].name, c->part[i].bytes.p, c->part[i].bytes.n);
    return copy;
}

static Bytes case_write(const Case *c)
{
    Bytes out = GX_ZERO;
    char line[PART_NAME + 40];
    for (int i = 0; i < c->n; i++) {
        snprintf(line, sizeof line, "part %s %ld\n", c->part[i].name, (long)c->part[i].bytes.n);
        bytes_text(&out, line);
        bytes_add(&out, c->part[i].bytes.p, c->part[i].bytes.n);
        bytes_text(&out, "\n");
    }
    return out;
}

static int case_read(Case *c, const char *text, int64_t bytes) // 0: it is no case
{
    memset(c, 0, sizeof *c);
    for (int64_t at = 0; at < bytes;) {
        char name[PART_NAME];
        long n = -1;
        int header = 0;
        if (c->n == PARTS_MOST || sscanf(text + at, "part %63s %ld%n", name, &n, &header) != 2 || n < 0 ||
            n > bytes - at - header - 1)
            return 0;
        case_add(c, name, text + at + header + 1, n);
        at += header + 1 + n + 1;
    }
    return c->n > 0;
}
#endif
