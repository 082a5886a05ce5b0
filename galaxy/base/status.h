// base/status.h: errors.
//
// A function that can fail returns a GxStatus and fills in a GxError. The first error stays, later ones are dropped (a
// context's error is sticky). Nothing here prints or exits. A message says what was found, what was expected, and what
// to do. It is UTF-8 without control characters, whatever the file or flag that it quotes contains. If it is too long,
// for example because of a path of thousands of bytes, its beginning and end are kept.
//
//     if (T < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "seq_len is %ld; it must be at least 1", T);
//     GX_TRY(gx_safetensors_open(&file, path, err));
#ifndef GX_STATUS_H
#define GX_STATUS_H
#include <stdarg.h>
#include "common.h"
#include "text.h"
GX_BEGIN

typedef enum {
    GX_OK = 0,
    GX_ERR_ARGUMENT,   // a flag, a config value, a size that does not fit
    GX_ERR_MEMORY,     // not enough of it
    GX_ERR_IO,         // the system refused: files, disks
    GX_ERR_FORMAT,     // a file's contents are not what they should be
    GX_ERR_DEVICE,     // a device or a library on it
    GX_ERR_COMM,       // a rank died, stalled, or does something else than the others
    GX_ERR_UNSUPPORTED // valid, but not supported by this program: a dtype, an option, a missing library
} GxStatus;

typedef struct {
    int code;    // a GxStatus; written last, so that a thread that sees it set also sees the rest
    int claimed; // 1: a thread is writing, or has written, the error
    int line;
    const char *file;
    char message[600]; // a longer one is shortened
} GxError;

GxStatus gx_error_set(GxError *err, GxStatus code, const char *file, int line, const char *format, ...) GX_PRINTF(5, 6);
GxStatus gx_error_code(const GxError *err); // safe while other threads may set it
void gx_error_clear(GxError *err);
const char *gx_status_name(GxStatus code);

// Writes the formatted text to out[size], size >= 8. If it does not fit, "…" replaces a part of its middle: the first
// third stays, and the end. No UTF-8 character is split.
void gx_format_shortened(char *out, size_t size, const char *format, va_list args);

#define GX_FAIL(err, code, ...) gx_error_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)
#define GX_TRY(call)                                                                                                   \
    do {                                                                                                               \
        GxStatus gx__status = (call);                                                                                  \
        if (gx__status != GX_OK) return gx__status;                                                                    \
    } while (0)

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STATUS_IMPLEMENTED)
#define GX_STATUS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__STATUS_TEXT = 3 * GX_PATH }; // the longest: two paths, and words

static int gx__status_inside_character(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

void gx_format_shortened(char *out, size_t size, const char *format, va_list args)
{
    static const char dots[] = "…";
    char whole[GX__STATUS_TEXT];
    vsnprintf(whole, sizeof whole, format, args);
    const size_t n = strlen(whole);
    if (n < size) {
        memcpy(out, whole, n + 1);
        return;
    }
    size_t head = size / 3, tail = n - (size - sizeof dots - head); // the tail begins there
    while (head > 0 && gx__status_inside_character(whole[head])) head--;
    while (tail < n && gx__status_inside_character(whole[tail])) tail++;
    memcpy(out, whole, head);
    memcpy(out + head, dots, sizeof dots - 1);
    memcpy(out + head + sizeof dots - 1, whole + tail, n - tail + 1);
}

GxStatus gx_error_set(GxError *err, GxStatus code, const char *file, int line, const char *format, ...)
{
    int nobody = 0;
    if (!__atomic_compare_exchange_n(&err->claimed, &nobody, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return code;
    va_list args;
    va_start(args, format);
    gx_format_shortened(err->message, sizeof err->message, format, args);
    va_end(args);
    gx_text_clean(err->message);
    err->file = file;
    err->line = line;
    __atomic_store_n(&err->code, (int)code, __ATOMIC_RELEASE);
    return code;
}

GxStatus gx_error_code(const GxError *err) { return (GxStatus)__atomic_load_n(&err->code, __ATOMIC_ACQUIRE); }

void gx_error_clear(GxError *err) { memset(err, 0, sizeof *err); }

const char *gx_status_name(GxStatus code)
{
    static const char *const names[] = {"ok",         "bad argument", "out of memory",       "input/output error",
                                        "bad format", "device error", "communication error", "unsupported"};
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown status";
}
#endif
