// dataset_tokens.h: a dataset whose tokens are a tokenizer's: the text is tokenized once, when it is opened, and its
// ids lie in memory.
//
//     GX_TRY(gx_dataset_open(&d, "book.txt", 0.1, 256, err));
//     GX_TRY(gx_dataset_tokenize(&d, &tokenizer, 256, err));
//
// Each part, the one for training and the one that is held out, is one text to the tokenizer, as to Hugging Face's. It
// stands in the tokenizer's frame: behind <s>, say, where tokenizer.json puts that.
#ifndef GX_DATASET_TOKENS_H
#define GX_DATASET_TOKENS_H
#include "dataset.h"
#include "tokenizer.h"
GX_BEGIN

// d is open, and its tokens are bytes. Memory: 4 bytes per token; meanwhile that many for each byte of the larger part,
// and the part itself. "<s>" in the text is three characters, not a token. After an error d is as it was.
GxStatus gx_dataset_tokenize(GxDataset *d, const GxTokenizer *t, int64_t T, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_TOKENS_IMPLEMENTED)
#define GX_DATASET_TOKENS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// The tokens of a part in their frame, in *ids, which is as long as that; free() it.
static GxStatus gx__dataset_tokens_encode(const GxTokenizer *t, const char *text, int64_t bytes, int32_t **ids,
                                          int64_t *n, GxError *err)
{
    const int64_t frame = gx_tokenizer_frame_tokens(t, 1);
    int32_t *plain = (int32_t *)malloc((size_t)(gx_tokenizer_most(t, bytes) + 1) * sizeof *plain);
    *ids = NULL;
    if (!plain)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes: 4 bytes each are needed",
                       (long)bytes);
    GxStatus status = gx_tokenizer_encode(t, text, bytes, GX_SPECIAL_AS_TEXT, plain, n, err);
    if (status == GX_OK) *ids = (int32_t *)malloc((size_t)(*n + frame + 1) * sizeof **ids);
    if (status == GX_OK && !*ids) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)(*n + frame));
    const GxTokenTexts one = {plain, NULL, *n, 0};
    if (status == GX_OK) status = gx_tokenizer_join(t, &one, *n + frame, *ids, NULL, n, NULL, err);
    free(plain);
    if (status == GX_OK) return GX_OK;
    free(*ids);
    *ids = NULL;
    return status;
}

static GxStatus gx__dataset_tokens_part(const GxDataset *d, const GxTokens *part, const GxTokenizer *t, int32_t **ids,
                                        int64_t *n, GxError *err)
{
    char *text = (char *)malloc((size_t)part->n + 1);
    *ids = NULL;
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld bytes of %s", (long)part->n, d->path);
    GxStatus status = gx_dataset_read(d, part->begin, part->n, (unsigned char *)text, err);
    if (status == GX_OK) status = gx__dataset_tokens_encode(t, text, part->n, ids, n, err);
    free(text);
    return status;
}

GxStatus gx_dataset_tokenize(GxDataset *d, const GxTokenizer *t, int64_t T, GxError *err)
{
    const GxDataset before = *d;
    int32_t *held_out = NULL;
    int64_t n = 0, n_held_out = 0;
    GX_TRY(gx__dataset_tokens_part(d, &d->train_text, t, &d->ids, &n, err));
    GxStatus status = GX_OK;
    if (d->held_out_text.n > 0) status = gx__dataset_tokens_part(d, &d->held_out_text, t, &held_out, &n_held_out, err);
    int32_t *both = NULL;
    if (status == GX_OK) both = (int32_t *)realloc(d->ids, (size_t)(n + n_held_out + 1) * sizeof *both);
    if (status == GX_OK && !both)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)(n + n_held_out));
    if (both) d->ids = both;
    if (both && n_held_out) memcpy(both + n, held_out, (size_t)n_held_out * sizeof *both);
    d->train.n = d->held_out.begin = n, d->held_out.n = n_held_out;
    if (status == GX_OK) status = gx_dataset_check(d, T, err);
    free(held_out);
    if (status == GX_OK) return GX_OK;
    free(d->ids);
    *d = before;
    return status;
}
#endif
