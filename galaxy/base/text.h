// base/text.h: formats text for people: its width in columns, shortening with an ellipsis, wrapping into lines.
//
//     char cut[24];
//     gx_text_cut(path, cut, sizeof cut);             // "/data/very/long/nam…"
//     gx_text_wrap(out, help, NULL, 0, 4, 80);        // lines of at most 80 columns, all but the first behind 4 spaces
//     while (gx_text_next(&list, &item)) …            // of "q_proj,v_proj" first 6 characters, then 6
//
// Text is UTF-8. Every character counts as one column, although those of East Asian scripts take two on a terminal.
#ifndef GX_TEXT_H
#define GX_TEXT_H
#include "common.h"
#include <stdio.h>
GX_BEGIN

int gx_text_columns(const char *text, int64_t bytes); // of its first `bytes` bytes

// Copies the text to out[size]. If it does not fit, as many whole characters as there is room for, and an ellipsis.
// Returns out. size: at least 4.
const char *gx_text_cut(const char *text, char *out, size_t size);
// Replaces the last characters of a text that snprintf has cut to text[size] by an ellipsis.
void gx_text_mark_cut(char *text, size_t size);
enum { GX_TEXT_VALUE = 104 }; // bytes of a buffer for a user's value in a message: 100 for the value, then an ellipsis

// A number of bytes, in powers of 1000: "812 bytes", "20.5 KB", "1.2 MB", "3.4 GB". Returns out.
enum { GX_TEXT_SIZE = 32 };
const char *gx_text_size(int64_t bytes, char out[GX_TEXT_SIZE]);

const char *gx_text_grouped(double x, char out[40]);                         // x >= 0; "17,800"
static inline const char *gx_text_s(int64_t n) { return n == 1 ? "" : "s"; } // the plural's s: "%ld sample%s"

// Writes a text, without a newline at its end, to a line that already has `column` columns. Lines longer than `width`
// columns are wrapped, and those that follow are indented by `indent` spaces. behind: NULL: lines may break at any
// space, and after the | of a choice like "a|b|c"; otherwise, where possible, only at spaces that follow one of these
// characters, so that phrases stay whole. A word that is longer than a line, such as a path, is not broken. Returns the
// columns of the last line.
int gx_text_wrap(FILE *out, const char *text, const char *behind, int column, int indent, int width);

// Iterates over the items of a list that is separated by commas: returns the next item, and moves *list past it. No
// item follows a comma at the end. Returns 0 if nothing is left or *list is NULL.
typedef struct {
    const char *at; // not terminated: n bytes
    int64_t n;
} GxTextItem;
int gx_text_next(const char **list, GxTextItem *item);

int gx_text_is_among(const char *text, const char *choices); // 1: it is one of "a|b|c". choices may be NULL: none
// The number of bytes before this ending: 5 for "model.norm" and ".norm". -1: the text does not end with it.
int64_t gx_text_stem(const char *text, const char *end);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_IMPLEMENTED)
#define GX_TEXT_IMPLEMENTED
#include <string.h>

// 1: the byte continues a character.
static int gx__text_continues(char byte) { return ((unsigned char)byte & 0xC0) == 0x80; }

int gx_text_columns(const char *text, int64_t bytes)
{
    int columns = 0;
    for (int64_t i = 0; i < bytes; i++) columns += !gx__text_continues(text[i]);
    return columns;
}

int gx_text_next(const char **list, GxTextItem *item)
{
    if (!*list || !**list) return 0;
    item->at = *list, item->n = (int64_t)strcspn(*list, ",");
    *list += item->n + (item->at[item->n] == ',');
    return 1;
}

int gx_text_is_among(const char *text, const char *choices)
{
    const size_t n = strlen(text);
    for (const char *p = choices; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (!strncmp(p, text, n) && (p[n] == '|' || p[n] == 0)) return 1;
    return 0;
}

int64_t gx_text_stem(const char *text, const char *end)
{
    const int64_t n = (int64_t)strlen(text) - (int64_t)strlen(end);
    return n >= 0 && !strcmp(text + n, end) ? n : -1;
}

const char *gx_text_grouped(double x, char out[40])
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", x);
    int length = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[length++] = ',';
        out[length++] = digits[i];
    }
    out[length] = 0;
    return out;
}

const char *gx_text_size(int64_t bytes, char out[GX_TEXT_SIZE])
{
    static const char *const units[] = {"KB", "MB", "GB"};
    double x = (double)bytes / 1e3;
    int i = 0;
    for (; i < 2 && x >= 999.95; i++) x /= 1e3; // 999.95 is written as 1000.0
    if (bytes < 1000) snprintf(out, GX_TEXT_SIZE, "%ld byte%s", (long)bytes, bytes == 1 ? "" : "s");
    else snprintf(out, GX_TEXT_SIZE, "%.1f %s", x, units[i]);
    return out;
}

void gx_text_mark_cut(char *text, size_t size)
{
    static const char ellipsis[] = "…";
    size_t n = size - sizeof ellipsis;
    while (n > 0 && gx__text_continues(text[n])) n--;
    memcpy(text + n, ellipsis, sizeof ellipsis);
}

const char *gx_text_cut(const char *text, char *out, size_t size)
{
    const size_t n = strlen(text), fits = n < size ? n : size - 1;
    memcpy(out, text, fits);
    out[fits] = 0;
    if (fits < n) gx_text_mark_cut(out, size);
    return out;
}

// The number of bytes up to the first place where a line may break.
static size_t gx__text_piece(const char *text, const char *behind)
{
    size_t n = strcspn(text, " ");
    if (!behind) return gx_min((int64_t)n, (int64_t)(strcspn(text, "|") + strspn(text + strcspn(text, "|"), "|")));
    while (text[n] && !strchr(behind, text[n - 1])) n += 1 + strcspn(text + n + 1, " ");
    return n;
}

int gx_text_wrap(FILE *out, const char *text, const char *behind, int column, int indent, int width)
{
    // The end of a phrase that is longer than a line: before it, lines may break at any space
    const char *loose = text;
    for (int begun = column > indent; *text; begun = 1) {
        const size_t spaces = strspn(text, " ");
        const char *piece = text + spaces;
        size_t n = *piece ? gx__text_piece(piece, piece < loose ? NULL : behind) : 0;
        if (piece >= loose && gx_text_columns(piece, (int64_t)n) > width - indent)
            loose = piece + n, n = gx__text_piece(piece, NULL);
        const int columns = gx_text_columns(piece, (int64_t)n);
        if (column + (int)spaces + columns <= width || !begun) column += fprintf(out, "%*s", (int)spaces, "") + columns;
        else column = fprintf(out, "\n%*s", indent, "") - 1 + columns;
        fwrite(piece, 1, n, out);
        text = piece + n;
    }
    return column;
}
#endif
