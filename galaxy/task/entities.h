// task/entities.h: how many named entities of a text were found: precision, recall and F1, as the package seqeval counts
// by default (Nakayama 2018), which follows conlleval of CoNLL-2000 (Tjong Kim Sang & Buchholz 2000).
//
// A label is a tag, its first character, and a type behind it: B-PER begins a person, I-PER goes on with it, E-PER ends
// it, S-PER is one of a single word; O is none. An entity is a run of words of one type. It begins at B and S, and also
// where I or E of a type follow O, another type, or an entity that has ended: so IOB1 and IOB2 count the same. It has
// been found if begin, end and type are those of an entity of the truth.
//
//     GxEntityTags tags;
//     GxEntityCounts counts = GX_ZERO;
//     GX_TRY(gx_entity_tags_open(&tags, names, n, err));
//     for (…each text…) gx_entities_count(&counts, &tags, truth, predicted, words);
//     gx_entity_f1(&counts);
//     gx_entity_tags_close(&tags);
//
// Counts are sums over texts. Where there is nothing to divide by, a score is 0, as in seqeval.
#ifndef GX_ENTITIES_H
#define GX_ENTITIES_H
#include "../base/status.h"
GX_BEGIN

typedef struct {
    int n;
    char *tag;     // [n] its first character; beyond ASCII: 0
    int32_t *type; // [n] equal for labels of the same type
} GxEntityTags;
typedef struct {
    int64_t right, predicted, truth; // entities
} GxEntityCounts;

GxStatus gx_entity_tags_open(GxEntityTags *t, const char *const *name, int n, GxError *err);
void gx_entity_tags_close(GxEntityTags *t); // accepts a struct of zeros
// 1: the name is O, or begins with B-, I-, E- or S-, as labels of entities do.
int gx_entity_is_label(const char *name);
// Adds the entities of a text: the labels of its words in truth[n] and predicted[n].
void gx_entities_count(GxEntityCounts *counts, const GxEntityTags *t, const int32_t *truth, const int32_t *predicted,
                       int64_t n);
double gx_entity_precision(const GxEntityCounts *c);
double gx_entity_recall(const GxEntityCounts *c);
double gx_entity_f1(const GxEntityCounts *c);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ENTITIES_IMPLEMENTED)
#define GX_ENTITIES_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- labels --------------------------------------------------------------------------------------------------------

int gx_entity_is_label(const char *name)
{
    return !strcmp(name, "O") || (name[0] && strchr("BIES", name[0]) && name[1] == '-');
}

// "PER" of "B-PER", behind the first character and a hyphen after it; without a hyphen all that follows; of "O" "_".
static const char *gx__entity_type(const char *name)
{
    const char *behind = name + (name[0] != 0);
    while ((*behind & 0xC0) == 0x80) behind++; // the first character has several bytes
    const char *hyphen = strchr(behind, '-');
    const char *type = hyphen ? hyphen + 1 : behind;
    return *type ? type : "_";
}

GxStatus gx_entity_tags_open(GxEntityTags *t, const char *const *name, int n, GxError *err)
{
    memset(t, 0, sizeof *t);
    t->n = n;
    t->tag = (char *)calloc((size_t)n + 1, 1);
    t->type = (int32_t *)calloc((size_t)n + 1, sizeof *t->type);
    if (!t->tag || !t->type) {
        gx_entity_tags_close(t);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d labels", n);
    }
    for (int i = 0; i < n; i++) {
        t->tag[i] = (char)((unsigned char)name[i][0] < 0x80 ? name[i][0] : 0);
        while (strcmp(gx__entity_type(name[t->type[i]]), gx__entity_type(name[i])) != 0)
            t->type[i]++; // i at the latest
    }
    // label n: before and behind a text
    t->tag[n] = 'O';
    while (t->type[n] < n && strcmp(gx__entity_type(name[t->type[n]]), "_") != 0) t->type[n]++;
    return GX_OK;
}

void gx_entity_tags_close(GxEntityTags *t)
{
    free(t->tag), free(t->type);
    memset(t, 0, sizeof *t);
}

// ---- entities ------------------------------------------------------------------------------------------------------

static int gx__entity_is_inside(char tag) { return tag != 'O' && tag != '.'; }

// 1: an entity that label `a` is in ends before label b.
static int gx__entity_ends(const GxEntityTags *t, int32_t a, int32_t b)
{
    const char tag = t->tag[a], next = t->tag[b];
    if (tag == 'E' || tag == 'S') return 1;
    if ((tag == 'B' || tag == 'I') && (next == 'B' || next == 'S' || next == 'O')) return 1;
    return gx__entity_is_inside(tag) && t->type[a] != t->type[b];
}

// 1: an entity begins with label b, which follows label `a`.
static int gx__entity_begins(const GxEntityTags *t, int32_t a, int32_t b)
{
    const char tag = t->tag[a], next = t->tag[b];
    if (next == 'B' || next == 'S') return 1;
    if ((next == 'E' || next == 'I') && (tag == 'E' || tag == 'S' || tag == 'O')) return 1;
    return gx__entity_is_inside(next) && t->type[a] != t->type[b];
}

void gx_entities_count(GxEntityCounts *counts, const GxEntityTags *t, const int32_t *truth, const int32_t *predicted,
                       int64_t n)
{
    const int32_t *const labels[2] = {truth, predicted};
    int64_t *const found[2] = {&counts->truth, &counts->predicted};
    int64_t begin[2] = {0, 0};
    for (int64_t i = 0; i <= n; i++) {
        int ends[2];
        int64_t began[2];
        for (int k = 0; k < 2; k++) {
            const int32_t last = i > 0 ? labels[k][i - 1] : t->n, here = i < n ? labels[k][i] : t->n;
            ends[k] = gx__entity_ends(t, last, here), began[k] = begin[k];
            *found[k] += ends[k];
            if (gx__entity_begins(t, last, here)) begin[k] = i;
        }
        counts->right +=
            ends[0] && ends[1] && began[0] == began[1] && t->type[truth[i - 1]] == t->type[predicted[i - 1]];
    }
}

static double gx__entity_share(int64_t right, int64_t of) { return of ? (double)right / (double)of : 0; }
double gx_entity_precision(const GxEntityCounts *c) { return gx__entity_share(c->right, c->predicted); }
double gx_entity_recall(const GxEntityCounts *c) { return gx__entity_share(c->right, c->truth); }
double gx_entity_f1(const GxEntityCounts *c) { return gx__entity_share(2 * c->right, c->predicted + c->truth); }
#endif
