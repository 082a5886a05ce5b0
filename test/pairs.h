// test/pairs.h: few rows of options that meet every pair of them. Nearly all faults of programs with many options show
// where two of them meet (Kuhn, Wallace & Gallo 2004), so that a few hundred rows find what a product of millions
// would.
//
//     static const PairsFactor factors[] = {{"mode", 3, modes}, {"dtype", 2, dtypes}};
//     static int allows(const int *row) { return !(row[0] == SERIAL && row[1] == BF16); } // -1: not chosen yet
//     const PairsSpec spec = {factors, 2, allows, 1};
//     pairs_make(&spec, &pairs); // pairs.row[i][k]: the value of factor k in row i
//
// Rows are made one after the other: of several candidates, which each begin with a pair that is not met yet and take
// factor by factor the value that meets most, the best stays (AETG: Cohen et al. 1997). The same seed makes the same
// rows.
#ifndef GX_TEST_PAIRS_H
#define GX_TEST_PAIRS_H
#include <stdint.h>
#include <string.h>

enum { PAIRS_FACTORS = 20, PAIRS_VALUES = 24, PAIRS_ROWS = 600, PAIRS_CANDIDATES = 10 };

typedef struct {
    const char *name;
    int n; // values
    const char *const *value;
} PairsFactor;

typedef struct {
    const PairsFactor *factor;
    int n;
    int (*allows)(const int *row); // 0: something of the row is forbidden, whatever is chosen besides. NULL: nothing is
    uint64_t seed;
} PairsSpec;

typedef struct {
    int rows, pairs, forbidden; // pairs: that are met; forbidden: that no row can have
    int row[PAIRS_ROWS][PAIRS_FACTORS];
} Pairs;

// What is not met yet, of values x, y of factors a < b; and how much of it there is.
typedef struct {
    uint8_t open[PAIRS_FACTORS][PAIRS_VALUES][PAIRS_FACTORS][PAIRS_VALUES];
    int left;
    uint64_t random;
} PairsState;

static uint32_t pairs_draw(PairsState *s, int n) // below n, by SplitMix64 (Steele et al. 2014)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 32) % (uint32_t)n;
}

// 1: what is not chosen yet can be chosen so that nothing is forbidden.
static int pairs_can_be(const PairsSpec *spec, const int *row)
{
    int tried[PAIRS_FACTORS], k = 0;
    if (!spec->allows) return 1;
    if (!spec->allows(row)) return 0;
    memcpy(tried, row, (size_t)spec->n * sizeof *row);
    while (k < spec->n && tried[k] >= 0) k++;
    for (int v = 0; k < spec->n && v < spec->factor[k].n; v++) {
        tried[k] = v;
        if (pairs_can_be(spec, tried)) return 1;
    }
    return k == spec->n;
}

static int pairs_is_allowed(const PairsSpec *spec, int a, int x, int b, int y)
{
    int row[PAIRS_FACTORS];
    for (int k = 0; k < spec->n; k++) row[k] = -1;
    row[a] = x, row[b] = y;
    return pairs_can_be(spec, row);
}

static uint8_t *pairs_open(PairsState *s, int a, int x, int b, int y)
{
    return a < b ? &s->open[a][x][b][y] : &s->open[b][y][a][x];
}

// How many pairs value v of factor k meets with what is chosen.
static int pairs_gain(PairsState *s, const PairsSpec *spec, const int *row, int k, int v)
{
    int gain = 0;
    for (int j = 0; j < spec->n; j++)
        if (j != k && row[j] >= 0) gain += *pairs_open(s, k, v, j, row[j]);
    return gain;
}

// Of the values that can be: one that meets most.
static int pairs_choose(PairsState *s, const PairsSpec *spec, int *row, int k)
{
    int best = -1, most = -1, drawn = 0;
    for (int v = 0; v < spec->factor[k].n; v++) {
        const int gain = pairs_gain(s, spec, row, k, v), as_good = gain == most;
        if (gain < most) continue;
        row[k] = v;
        if (!pairs_can_be(spec, row)) continue;
        drawn = as_good ? drawn + 1 : 1;
        if (!as_good || !pairs_draw(s, drawn)) best = v;
        most = gain;
    }
    row[k] = best;
    return most;
}

// The first two: a pair that is not met yet, of those behind a place that is drawn.
static int pairs_begin(PairsState *s, const PairsSpec *spec, int *row)
{
    const int first = (int)pairs_draw(s, spec->n * PAIRS_VALUES);
    for (int k = 0; k < spec->n; k++) row[k] = -1;
    for (int i = 0; i < spec->n * PAIRS_VALUES; i++) {
        const int at = (first + i) % (spec->n * PAIRS_VALUES), a = at / PAIRS_VALUES, x = at % PAIRS_VALUES;
        for (int b = a + 1; b < spec->n && x < spec->factor[a].n; b++)
            for (int y = 0; y < spec->factor[b].n; y++)
                if (s->open[a][x][b][y]) {
                    row[a] = x, row[b] = y;
                    return 1;
                }
    }
    return 0;
}

static int pairs_candidate(PairsState *s, const PairsSpec *spec, int *row)
{
    int order[PAIRS_FACTORS], gain = pairs_begin(s, spec, row);
    for (int k = 0; k < spec->n; k++) {
        const int at = (int)pairs_draw(s, k + 1);
        order[k] = order[at], order[at] = k;
    }
    for (int k = 0; k < spec->n; k++)
        if (row[order[k]] < 0) gain += pairs_choose(s, spec, row, order[k]);
    return gain;
}

static void pairs_meet(PairsState *s, const PairsSpec *spec, const int *row)
{
    for (int a = 0; a < spec->n; a++)
        for (int b = a + 1; b < spec->n; b++) {
            uint8_t *open = &s->open[a][row[a]][b][row[b]];
            s->left -= *open, *open = 0;
        }
}

// 1: all pairs that can be are met; 0: there is no room for as many rows, or for the factors.
static int pairs_make(const PairsSpec *spec, Pairs *pairs)
{
    static PairsState state;
    PairsState *s = &state;
    memset(s, 0, sizeof *s), memset(pairs, 0, sizeof *pairs);
    s->random = spec->seed;
    if (spec->n > PAIRS_FACTORS) return 0;
    for (int k = 0; k < spec->n; k++)
        if (spec->factor[k].n > PAIRS_VALUES) return 0;
    for (int a = 0; a < spec->n; a++)
        for (int b = a + 1; b < spec->n; b++)
            for (int x = 0; x < spec->factor[a].n; x++)
                for (int y = 0; y < spec->factor[b].n; y++) {
                    s->open[a][x][b][y] = (uint8_t)pairs_is_allowed(spec, a, x, b, y);
                    s->left += s->open[a][x][b][y], pairs->forbidden += !s->open[a][x][b][y];
                }
    pairs->pairs = s->left;
    while (s->left && pairs->rows < PAIRS_ROWS) {
        int row[PAIRS_FACTORS], most = -1;
        for (int i = 0; i < PAIRS_CANDIDATES; i++) {
            const int gain = pairs_candidate(s, spec, row);
            if (gain > most) memcpy(pairs->row[pairs->rows], row, sizeof row), most = gain;
        }
        pairs_meet(s, spec, pairs->row[pairs->rows++]);
    }
    return !s->left;
}
#endif
