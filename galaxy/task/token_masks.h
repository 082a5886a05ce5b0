// task/token_masks.h: which tokens of a text a masked language model is to find again, and what stands in their places.
//
// (Devlin et al. 2018, section 3.1.) Of the tokens that are not special (and [UNK] is) each counts with a probability,
// as in transformers; of those that count 80% become [MASK], 10% a random token of the whole vocabulary, 10% stay as
// they are. All is drawn from (seed, number of the sample, position).
//
// With whole words a word counts or does not with all its pieces, that is, with the tokens that begin with ## behind
// it; what becomes of each piece is drawn for it alone, as in BERT's original code. (transformers 5 masks pieces whose
// places in the text touch, punctuation among them, and always by [MASK].)
//
// So that memory can be planned, no more than gx_mask_most tokens of a sample count: beyond 6 standard deviations.
#ifndef GX_TOKEN_MASKS_H
#define GX_TOKEN_MASKS_H
#include "../base/random.h"
#include "../io/tokenizer.h"
GX_BEGIN

typedef struct { // what becomes of tokens
    double probability;
    int whole_words;
    const GxTokenizer *tokenizer;
    uint64_t seed;
    uint32_t site;
} GxMasking;

// Masks tokens[n] of sample number `sample`, the first of which has the position `at`: those that count, at most
// `most`, get their labels, which are what they were; all others GX_IGNORE_INDEX. Returns how many count.
int64_t gx_mask_tokens(const GxMasking *m, int64_t sample, int64_t at, int32_t *tokens, int32_t *labels, int64_t n,
                       int64_t most);
int64_t gx_mask_most(int64_t T, double probability); // tokens of T that count, at most

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

// What a token that counts becomes.
static int32_t gx__mask_replace(const GxMasking *m, int32_t token, GxRandom4 r)
{
    const double what = gx__mask_uniform(r.w[1]);
    const uint64_t bits = (uint64_t)r.w[2] << 32 | r.w[3];
    if (what < 0.8) return m->tokenizer->role[GX_TOKEN_MASK];
    return what < 0.9 ? (int32_t)(bits % (uint64_t)m->tokenizer->vocab_size) : token;
}

static GxRandom4 gx__mask_draw(const GxMasking *m, int64_t sample, int64_t position)
{
    return gx_philox(m->seed, (uint64_t)sample, (uint32_t)position, m->site);
}

// Tokens of the word that begins with tokens[0]; without whole words: 1.
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
        const double drawn = gx__mask_uniform(gx__mask_draw(m, sample, at + i).w[0]);
        if (is_special || drawn >= m->probability || count + pieces > most) continue;
        for (int64_t j = i; j < i + pieces; j++) {
            labels[j] = tokens[j];
            tokens[j] = gx__mask_replace(m, tokens[j], gx__mask_draw(m, sample, at + j));
        }
        count += pieces;
    }
    return count;
}
#endif
