// base/log.h: the logger. The library itself never prints: it calls the logger of its context, if there is one.
//
//     static void to_stderr(void *user, GxLogLevel level, const char *text) { fprintf(stderr, "%s\n", text); }
//     GxLogger log = {to_stderr, NULL};
//     gx_log(&log, GX_LOG_WARNING, "%d threads on %d cores", 8, 2);
#ifndef GX_LOG_H
#define GX_LOG_H
#include "status.h"
GX_BEGIN

typedef enum { GX_LOG_INFO = 0, GX_LOG_WARNING, GX_LOG_ERROR } GxLogLevel;
typedef struct {
    void (*write)(void *user, GxLogLevel level, const char *text); // one line, no newline at its end; NULL: silence
    void *user;
} GxLogger;

// A logger that writes nothing: for functions that must be given a logger although another rank reports the same.
extern const GxLogger gx_silent;
void gx_log(const GxLogger *logger, GxLogLevel level, const char *format, ...)
    GX_PRINTF(3, 4); // longer than 4095 bytes: shortened (gx_format_shortened)

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LOG_IMPLEMENTED)
#define GX_LOG_IMPLEMENTED
const GxLogger gx_silent = {NULL, NULL};

void gx_log(const GxLogger *logger, GxLogLevel level, const char *format, ...)
{
    if (!logger || !logger->write) return;
    char text[4096];
    va_list args;
    va_start(args, format);
    gx_format_shortened(text, sizeof text, format, args);
    va_end(args);
    gx_text_clean(text);
    logger->write(logger->user, level, text);
}
#endif
