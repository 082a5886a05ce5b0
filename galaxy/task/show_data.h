// task/show_data.h: prints samples for people: the text of their tokens, and which of these are learned.
//
//     sample 0, document 1: 31 tokens, 6 of them learned
//     <|im_start|>user
//     Hello<|im_end|>
//     <|im_start|>assistant
//     ⟦Hello.<|im_end|>⟧
//
// A token is learned if it is the label of the token before it. Apart from the brackets, the text of the tokens is
// printed, with special tokens written out. A character of several tokens, of which not all are learned, is printed
// with the last of them. Control characters, invalid UTF-8, and brackets of the text itself are printed byte by byte,
// like \x1B. Time: tokens times changes between learned and not learned.
#ifndef GX_SHOW_DATA_H
#define GX_SHOW_DATA_H
#include "../data/blend.h"
#include "../text/tokenizer.h"
GX_BEGIN

enum { GX_SHOW_SEED = 1234 }; // the default of --seed: samples are shown in the order that it gives

// The text of ids[n], with special tokens written out, and a 0 behind it; free() it. NULL: an error.
char *gx_show_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, int64_t *bytes, GxError *err);
// Prints a text; invalid UTF-8, control characters and the two brackets byte by byte.
void gx_show_text(FILE *out, const char *text, int64_t bytes);
// s has stride 1 and T tokens. If tokens cannot be decoded, prints that instead.
void gx_show_sample(FILE *out, const GxTokenizer *t, const GxBlendSample *s, int64_t T, int64_t number);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SHOW_DATA_IMPLEMENTED)
#define GX_SHOW_DATA_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../text/unicode.h"

void gx_show_text(FILE *out, const char *text, int64_t bytes)
{
    for (const char *p = text, *end = text + bytes; p < end;) {
        uint32_t c;
        const int n = gx_unicode_decode(p, end, &c),
                  is_cut = c == GX_REPLACEMENT && (n != 3 || memcmp(p, "\xEF\xBF\xBD", 3)),
                  is_control = (c < ' ' && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0),
                  is_bracket = c == 0x27E6 || c == 0x27E7;
        for (int i = 0; i < n; i++)
            fprintf(out, is_cut || is_control || is_bracket ? "\\x%02X" : "%c", (unsigned char)p[i]);
        p += n;
    }
}

char *gx_show_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, int64_t *bytes, GxError *err)
{
    char *text = (char *)malloc((size_t)(n * t->longest) + 1);
    if (!text) GX_FAIL(err, GX_ERR_MEMORY, "no memory for the text of %ld tokens", (long)n);
    else if (gx_tokenizer_decode(t, ids, n, GX_SPECIAL_AS_TOKENS, text, bytes, err) == GX_OK) {
        text[*bytes] = 0;
        return text;
    }
    free(text);
    return NULL;
}

// Where the text of ids[n] ends in text[bytes], that of these and more tokens: at the first difference, or, if that is
// within a character, before the character.
static int64_t gx__show_end(const GxTokenizer *t, const int32_t *ids, int64_t n, const char *text, int64_t bytes,
                            GxError *err)
{
    int64_t length = 0, same = 0;
    char *part = gx_show_decode(t, ids, n, &length, err);
    while (part && same < length && same < bytes && part[same] == text[same]) same++;
    free(part);
    for (int64_t back = 1; back < 4 && back <= same && same < bytes; back++) {
        uint32_t c;
        const int whole = gx_unicode_decode(text + same - back, text + bytes, &c);
        if (whole > back) return same - back;
    }
    return same;
}

// Prints ids[n]; is_learned [n] marks those that are learned.
static GxStatus gx__show_tokens(FILE *out, const GxTokenizer *t, const int32_t *ids, const unsigned char *is_learned,
                                int64_t n, GxError *err)
{
    int64_t bytes = 0, shown = 0;
    char *text = gx_show_decode(t, ids, n, &bytes, err);
    for (int64_t i = 0, behind; text && i < n && gx_error_code(err) == GX_OK; i = behind) {
        for (behind = i + 1; behind < n && is_learned[behind] == is_learned[i];) behind++;
        const int64_t end = behind < n ? gx_max(shown, gx__show_end(t, ids, behind, text, bytes, err)) : bytes;
        if (is_learned[i]) fputs("⟦", out);
        gx_show_text(out, text + shown, end - shown);
        if (is_learned[i]) fputs("⟧", out);
        shown = end;
    }
    free(text);
    fputc('\n', out);
    return gx_error_code(err);
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
