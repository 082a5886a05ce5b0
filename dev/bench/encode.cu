// encode.cu: how fast a tokenizer encodes a text: the whole text in one call, on one thread; MB per second of
// the processor's time, and ids.
// dev/bench/encode.py runs it beside Hugging Face's `tokenizers`.
//
//     build/.../encode TOKENIZER TEXT SECONDS
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes, n = 0;
    if (argc != 4) return fprintf(stderr, "encode TOKENIZER TEXT SECONDS\n"), 1;
    if (gx_tokenizer_open(&t, argv[1], &err) != GX_OK || gx_file_read(argv[2], 1 << 30, &text, &bytes, &err) != GX_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    int32_t *ids = (int32_t *)malloc((size_t)gx_tokenizer_most(&t, bytes) * sizeof *ids);
    double best = 1e30;
    for (const double begun = gx_seconds(); ids && gx_seconds() - begun < atof(argv[3]);) {
        const clock_t from = clock();
        if (gx_tokenizer_encode(&t, text, bytes, GX_SPECIAL_AS_TEXT, ids, &n, &err) != GX_OK)
            return fprintf(stderr, "%s\n", err.message), 1;
        const double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
        if (seconds < best) best = seconds;
    }
    printf("%.3f %ld %016lx\n", (double)bytes / best / 1e6, (long)n,
           (unsigned long)gx_hash(GX_HASH_START, ids, n * (int64_t)sizeof *ids));
    free(ids), free(text);
    gx_tokenizer_close(&t);
    return 0;
}
