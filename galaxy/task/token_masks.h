// task/token_masks.h: chooses the tokens that a masked language model has to predict, and what replaces them.
//
// (Devlin et al. 2018, section 3.1.) Each token that is not special ([UNK] counts as special) is selected with a given
// probability, as in transformers. Of the selected tokens 80% become [MASK], 10% a random token of the whole
// vocabulary, and 10% stay as they are. The random numbers are a function of (seed, number of the sample, position).
//
// With whole words, a word (a token and the ## tokens that follow it) is selected as a whole; what replaces each of its
// tokens is drawn separately, as in BERT's original code. (transformers 5 treats adjacent tokens without a space
// between them, punctuation included, as a word, and always replaces them with [MASK].)
//
// So that memory can be planned, at most gx_mask_most tokens of a sample are selected: 6 standard deviations more than
// the mean.
#ifndef GX_TOKEN_MASKS_H
#define GX_TOKEN_MASKS_H
#include "../base/random.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef struct { // how tokens are masked
    double probability;
    int whole_words;
    const GxTokenizer *tokenizer;
    uint64_t seed;
    uint32_t site;
} GxMasking;

// Masks tokens[n] of sample number `sample`, which begin at position `at`. At most `most` are selected: their labels
// are the original tokens; all other labels are GX_IGNORE_INDEX. Returns how many are selected.
int64_t gx_mask_tokens(const GxMasking *m, int64_t sample, int64_t at, int32_t *tokens, int32_t *labels, int64_t n,
                       int64_t most);
int64_t gx_mask_most(int64_t T, double probability); // the most tokens of T that are selected

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKEN_MASKS_IMPLEMENTED)
#define GX_TOKEN_MASKS_IMPLEMENTED
#include <math.h>
#include "../ops/loss.h"

int64_t gx_mask_most(int64_t T, double probability)
{
    const double mean = probability * (double)T, deviation = sqrt(mean * (1 - probability));
    return gx_min(T, (int64_t)ceil(mean + 6 * deviation) + 1);
}

static double gx__mask_uniform(uint32_t bits) { return (double)bits * 0x1p-32; } // in [0, 1)

// What replaces a selected token.
static int32_t gx__mask_replace(const GxMasking *m, int32_t token, GxRandom4 r)
{
    const double what = gx__mask_uniform(r.w[1]);
    const uint64_t bits = (uint64_t)r.w[2] << 32 | r.w[3];
    if (what < 0.8) return m->tokenizer->role[GX_TOKEN_MASK];
    return what < 0.9 ? (int32_t)(bits % (uint64_t)m->tokenizer->vocab_size) : token;
}

static GxRandom4 gx__mask_sample(const GxMasking *m, int64_t sample, int64_t position)
{
    return gx_philox(m->seed, (uint64_t)sample, (uint32_t)position, m->site);
}

// The number of tokens of the word that begins with tokens[0]; without whole words: 1.
static int64_t gx__mask_word(const GxMasking *m, const int32_t *tokens, int64_t n)
{
    int64_t pieces = 1;
    while (m->whole_words && pieces < n && gx_tokenizer_continues(m->tokenizer, tokens[pieces])) pieces++;
    return pieces;
}

int64_t gx_mask_tokens(const GxMasking *m, int64_t sample, int64_t at, int32_t *tokens, int32_t *labels, int64_t n,
                       int64_t most)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) labels[i] = GX_IGNORE_INDEX;
    for (int64_t i = 0, pieces; i < n; i += pieces) {
        const int is_special = gx_tokenizer_is_special(m->tokenizer, tokens[i]);
        pieces = is_special ? 1 : gx__mask_word(m, tokens + i, n - i);
        const double drawn = gx__mask_uniform(gx__mask_sample(m, sample, at + i).w[0]);
        if (is_special || drawn >= m->probability || count + pieces > most) continue;
        for (int64_t j = i; j < i + pieces; j++) {
            labels[j] = tokens[j];
            tokens[j] = gx__mask_replace(m, tokens[j], gx__mask_sample(m, sample, at + j));
        }
        count += pieces;
    }
    return count;
}
#endif
