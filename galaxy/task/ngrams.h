// task/ngrams.h: what two texts have in common: words as numbers, and how many n-grams (runs of n words or characters)
// occur in both. The metrics of texts count with it (rouge.h, bleu.h, chrf.h).
//
//     GxWordList w = GX_ZERO;
//     GX_TRY(gx_word_list_add(&w, "the", 3, err));                // a text's words one by one, then the other's
//     GX_TRY(gx_word_list_number(&w, &id, err));                  // id[w.n]: equal words have equal numbers
//     GX_TRY(gx_ngrams_count(id, a, w.n - a, 4, count, err)); // of the first a words, and of the others
//
// Nothing is hashed, so no two n-grams are ever taken for one another. Counting takes O(orders n log n) for n words.
#ifndef GX_NGRAMS_H
#define GX_NGRAMS_H
#include "../base/status.h"
GX_BEGIN

typedef struct { // words of two texts, in a row; gx_word_list_close
    char *text;  // their bytes
    int64_t bytes, text_capacity;
    int64_t *end; // [n] where each ends in `text`
    int64_t n, capacity;
} GxWordList;
GxStatus gx_word_list_add(GxWordList *w, const char *word, int64_t bytes, GxError *err);
GxStatus gx_word_list_number(const GxWordList *w, int32_t **id, GxError *err); // *id [n], to be freed
void gx_word_list_close(GxWordList *w);                                        // accepts a struct of zeros

typedef struct {    // n-grams of one order
    int64_t of[2];  // in the first text, in the second
    int64_t common; // each as often as in the text that has it less often
} GxNgrams;
// Counts the n-grams of orders 1 to `orders` in a text of n[0] numbers and one of n[1] that follows it. Numbers are
// from 0 on. count[orders].
GxStatus gx_ngrams_count(const int32_t *id, int64_t n_first, int64_t n_second, int orders, GxNgrams *count,
                         GxError *err);
// The length of the longest sequence of numbers that is in both texts in this order, with gaps. O(n_first n_second).
GxStatus gx_longest_common(const int32_t *id, int64_t n_first, int64_t n_second, int64_t *length, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NGRAMS_IMPLEMENTED)
#define GX_NGRAMS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- words ---------------------------------------------------------------------------------------------------------

// Room for n elements of `size` bytes; the contents are kept.
static GxStatus gx__ngrams_reserve(void **x, int64_t *capacity, int64_t n, size_t size, GxError *err)
{
    if (n <= *capacity) return GX_OK;
    const int64_t more = gx_max(2 * *capacity, gx_max(n, 64));
    void *grown = realloc(*x, (size_t)more * size);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld words or bytes", (long)n);
    *x = grown, *capacity = more;
    return GX_OK;
}

GxStatus gx_word_list_add(GxWordList *w, const char *word, int64_t bytes, GxError *err)
{
    void *text = w->text, *end = w->end;
    GxStatus status = gx__ngrams_reserve(&text, &w->text_capacity, w->bytes + bytes, 1, err);
    w->text = (char *)text;
    if (status == GX_OK) status = gx__ngrams_reserve(&end, &w->capacity, w->n + 1, sizeof *w->end, err);
    w->end = (int64_t *)end;
    if (status != GX_OK) return status;
    memcpy(w->text + w->bytes, word, (size_t)bytes);
    w->bytes += bytes;
    w->end[w->n++] = w->bytes;
    return GX_OK;
}

void gx_word_list_close(GxWordList *w)
{
    const GxWordList none = GX_ZERO;
    free(w->text), free(w->end);
    *w = none;
}

typedef struct {
    const char *text;
    int64_t bytes, index;
} gx__WordListItem;

static int gx__word_list_compare(const void *a, const void *b)
{
    const gx__WordListItem *x = (const gx__WordListItem *)a, *y = (const gx__WordListItem *)b;
    const int first = memcmp(x->text, y->text, (size_t)gx_min(x->bytes, y->bytes));
    return first ? first : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

GxStatus gx_word_list_number(const GxWordList *w, int32_t **id, GxError *err)
{
    gx__WordListItem *word = (gx__WordListItem *)malloc((size_t)gx_max(w->n, 1) * sizeof *word);
    int32_t *number = (int32_t *)malloc((size_t)gx_max(w->n, 1) * sizeof *number);
    if (!word || !number) {
        free(word), free(number);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld words", (long)w->n);
    }
    for (int64_t i = 0, begin = 0; i < w->n; begin = w->end[i++])
        word[i].text = w->text + begin, word[i].bytes = w->end[i] - begin, word[i].index = i;
    qsort(word, (size_t)w->n, sizeof *word, gx__word_list_compare);
    for (int64_t i = 0, n = 0; i < w->n; i++) {
        n += i && gx__word_list_compare(&word[i - 1], &word[i]);
        number[word[i].index] = (int32_t)n;
    }
    free(word);
    *id = number;
    return GX_OK;
}

// ---- n-grams -------------------------------------------------------------------------------------------------------

typedef struct {
    uint64_t gram; // the number of its first n - 1 words, and its last word
    int64_t index; // where it begins
} gx__Ngram;

static int gx__ngrams_compare(const void *a, const void *b)
{
    const uint64_t x = ((const gx__Ngram *)a)->gram, y = ((const gx__Ngram *)b)->gram;
    return (x > y) - (x < y);
}

// The n-grams of one text: appends them, each as the number that its first n - 1 words have and its last word.
static int64_t gx__ngrams_gather(gx__Ngram *gram, const int32_t *id, const int32_t *shorter, int64_t begin, int64_t end,
                                 int n)
{
    int64_t grams = 0;
    for (int64_t i = begin; i + n <= end; i++, grams++) {
        gram[grams].gram = (n > 1 ? (uint64_t)(uint32_t)shorter[i] << 32 : 0) | (uint32_t)id[i + n - 1];
        gram[grams].index = i;
    }
    return grams;
}

// Sorts them, counts, and replaces the numbers of shorter n-grams by those of these.
static void gx__ngrams_number(gx__Ngram *gram, int64_t grams, int32_t *shorter, int64_t n_first, GxNgrams *count)
{
    qsort(gram, (size_t)grams, sizeof *gram, gx__ngrams_compare);
    for (int64_t begin = 0, end, number = 0; begin < grams; begin = end, number++) {
        int64_t of[2] = {0, 0};
        for (end = begin; end < grams && gram[end].gram == gram[begin].gram; end++) {
            of[gram[end].index >= n_first]++;
            shorter[gram[end].index] = (int32_t)number;
        }
        count->of[0] += of[0], count->of[1] += of[1], count->common += gx_min(of[0], of[1]);
    }
}

GxStatus gx_ngrams_count(const int32_t *id, int64_t n_first, int64_t n_second, int orders, GxNgrams *count,
                         GxError *err)
{
    const int64_t n = n_first + n_second;
    gx__Ngram *gram = (gx__Ngram *)malloc((size_t)gx_max(n, 1) * sizeof *gram);
    int32_t *shorter = (int32_t *)malloc((size_t)gx_max(n, 1) * sizeof *shorter);
    memset(count, 0, (size_t)orders * sizeof *count);
    const int has_memory = gram && shorter;
    for (int k = 1; k <= orders && has_memory; k++) {
        const int64_t first = gx__ngrams_gather(gram, id, shorter, 0, n_first, k);
        const int64_t all = first + gx__ngrams_gather(gram + first, id, shorter, n_first, n, k);
        gx__ngrams_number(gram, all, shorter, n_first, &count[k - 1]);
    }
    free(gram), free(shorter);
    return has_memory ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to compare texts of %ld words", (long)n);
}

GxStatus gx_longest_common(const int32_t *id, int64_t n_first, int64_t n_second, int64_t *length, GxError *err)
{
    // [n_second + 1]: of the first text up to the current word, and of so many words of the second
    int32_t *longest = (int32_t *)calloc((size_t)n_second + 1, sizeof *longest);
    const int32_t *second = id + n_first;
    if (!longest) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to compare texts of %ld words", (long)n_second);
    for (int64_t i = 0; i < n_first; i++)
        for (int64_t j = 0, diagonal = 0; j < n_second; j++) {
            const int32_t above = longest[j + 1];
            longest[j + 1] = id[i] == second[j] ? (int32_t)diagonal + 1 : (int32_t)gx_max(above, longest[j]);
            diagonal = above;
        }
    *length = longest[n_second];
    free(longest);
    return GX_OK;
}
#endif
