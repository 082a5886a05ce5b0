// task/show_data.h: prints samples for people: the text of their tokens, and which of these are learned.
//
//     sample 0, document 1: 31 tokens, 6 of them learned
//     <|im_start|>user
//     Hello<|im_end|>
//     <|im_start|>assistant
//     ⟦Hello.<|im_end|>⟧
//
// A token is learned if the token before it has it as its label. Special tokens are written out; control characters are
// written like \x1B.
#ifndef GX_SHOW_DATA_H
#define GX_SHOW_DATA_H
#include "../io/blend.h"
#include "../io/text_stream.h"
GX_BEGIN

enum { GX_SHOW_SEED = 1234 }; // the default of --seed: samples are shown in the order that it gives

// s: of stride 1, T tokens. If tokens cannot be decoded, prints that instead.
void gx_show_sample(FILE *out, const GxTokenizer *t, const GxBlendSample *s, int64_t T, int64_t number);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SHOW_DATA_IMPLEMENTED)
#define GX_SHOW_DATA_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

static void gx__show_text(FILE *out, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        if (c == 0xC2 && next >= 0x80 && next < 0xA0) fprintf(out, "\\x%02X", next), i++; // U+0080 to U+009F
        else if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7F) fprintf(out, "\\x%02X", c);
        else fputc(c, out);
    }
}

// Prints ids[n]; is_learned [n] marks those that are learned.
static GxStatus gx__show_tokens(FILE *out, const GxTokenizer *t, const int32_t *ids, const unsigned char *is_learned,
                                int64_t n, GxError *err)
{
    GxTextStream stream = gx_text_stream(t, GX_SPECIAL_AS_TOKENS, 0);
    GxStatus status = GX_OK;
    for (int64_t i = 0, behind; i < n && status == GX_OK; i = behind) {
        const char *text;
        int64_t bytes;
        for (behind = i + 1; behind < n && is_learned[behind] == is_learned[i];) behind++;
        if (is_learned[i]) fputs("⟦", out);
        status = gx_text_stream_next(&stream, ids, behind, behind == n, &text, &bytes, err);
        if (status == GX_OK) gx__show_text(out, text, bytes);
        if (is_learned[i]) fputs("⟧", out);
    }
    gx_text_stream_close(&stream);
    fputc('\n', out);
    return status;
}

// Prints tokens [begin, end) of a sample, and the label of the last one. ids, is_learned: scratch of T + 1.
static void gx__show_document(FILE *out, const GxTokenizer *t, const GxBlendSample *s, int64_t begin, int64_t end,
                              int32_t *ids, unsigned char *is_learned)
{
    GxError e = GX_ZERO;
    const int more = s->labels[end - 1] != s->ignored;
    int64_t learned = 0;
    for (int64_t i = begin; i < end + more; i++) {
        ids[i - begin] = i < end ? s->tokens[i] : s->labels[i - 1];
        is_learned[i - begin] = i > begin && s->labels[i - 1] != s->ignored;
        learned += is_learned[i - begin];
    }
    fprintf(out, "%ld token%s, %ld of them learned\n", (long)(end + more - begin), gx_text_s(end + more - begin),
            (long)learned);
    if (gx__show_tokens(out, t, ids, is_learned, end + more - begin, &e) != GX_OK) fprintf(out, "%s\n", e.message);
}

void gx_show_sample(FILE *out, const GxTokenizer *t, const GxBlendSample *s, int64_t T, int64_t number)
{
    int32_t *ids = (int32_t *)malloc((size_t)(T + 1) * sizeof *ids);
    unsigned char *is_learned = (unsigned char *)malloc((size_t)T + 1);
    int64_t padding = 0, documents = 0;
    for (int64_t i = 0, end; ids && is_learned && i < T; i = end) {
        const int64_t ends = s->documents ? s->documents[2 * i + 1] : T;
        end = ends > i ? ends : i + 1;
        padding += ends <= i;
        if (ends <= i) continue;
        fprintf(out, "sample %ld, document %ld: ", (long)number, (long)++documents);
        gx__show_document(out, t, s, i, end, ids, is_learned);
    }
    if (padding) fprintf(out, "sample %ld: %ld token%s of padding\n", (long)number, (long)padding, gx_text_s(padding));
    free(ids), free(is_learned);
}
#endif
