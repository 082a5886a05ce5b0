// bad_lines.h: reports which records of a file of lines are wrong: the first one in full, the next ones by their lines,
// and how many there are.
//
//     GxBadLines bad = GX_ZERO;
//     for (…each line, as long as gx_bad_lines_goes_on(&bad)…) {
//         GxError e = GX_ZERO;
//         if (read(line, &e) != GX_OK && !gx_bad_lines_add(&bad, number, &e)) break;     // nothing of the line
//         gx_bad_lines_pass(&bad, number, bytes_of_the_line);
//     }
//     GX_TRY(gx_bad_lines_fail(&bad, 1, err));
//
// After the first wrong record only a few thousand lines are checked, not all of a large file: enough to tell a single
// mistake from one that is everywhere.
//
// With bad.skip wrong records are not errors (--skip_bad_records): they are left out, the whole file is read, and skip
// counts them and keeps the messages of the first ten, which gx_bad_records_warn logs. Errors that are not a record's
// fault remain errors.
#ifndef GX_BAD_LINES_H
#define GX_BAD_LINES_H
#include "../base/log.h"
#include "../base/status.h"
GX_BEGIN

enum { GX_BAD_LINES = 5, GX_BAD_LINES_LOOK = 10000, GX_BAD_LINES_BYTES = 1 << 24 }; // after the first one: lines, bytes
enum { GX_BAD_RECORDS = 10 };                                                       // whose messages are kept

typedef struct { // records that are left out, of one file or several
    int64_t n;
    char why[GX_BAD_RECORDS][sizeof((GxError *)0)->message]; // the messages of the first ones, with file and line
} GxBadRecords;

typedef struct {
    GxBadRecords *skip; // NULL: wrong records are errors
    int64_t n, line[GX_BAD_LINES];
    int64_t last;         // the last line that was checked
    int64_t lines, bytes; // after the first one
    GxError first;
} GxBadLines;

// 0: e is not a record's fault (but that of memory, a disk, an option): reading must end, and e is the error if it is
// the first.
int gx_bad_lines_add(GxBadLines *b, int64_t line, const GxError *e);
void gx_bad_lines_pass(GxBadLines *b, int64_t line, int64_t bytes); // the line has been checked
int gx_bad_lines_goes_on(const GxBadLines *b);
// GX_OK if no record is wrong. first: the line that reading began with.
GxStatus gx_bad_lines_fail(const GxBadLines *b, int64_t first, GxError *err);
// Logs what was left out, if anything: one line, and one for each of the first ten. b and log may be NULL.
void gx_bad_records_warn(const GxBadRecords *b, const GxLogger *log);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BAD_LINES_IMPLEMENTED)
#define GX_BAD_LINES_IMPLEMENTED
#include <stdio.h>
#include <string.h>

int gx_bad_lines_add(GxBadLines *b, int64_t line, const GxError *e)
{
    const int is_of_line = e->code == GX_ERR_FORMAT || e->code == GX_ERR_UNSUPPORTED;
    if (b->skip && is_of_line) {
        if (b->skip->n < GX_BAD_RECORDS) memcpy(b->skip->why[b->skip->n], e->message, sizeof e->message);
        b->skip->n++;
        return 1;
    }
    if (b->n == 0) b->first = *e;
    if (!is_of_line && b->n > 0) return 0;
    if (b->n < GX_BAD_LINES) b->line[b->n] = line;
    b->n++;
    return is_of_line;
}

void gx_bad_lines_pass(GxBadLines *b, int64_t line, int64_t bytes)
{
    b->last = line;
    if (b->n > 0) b->lines++, b->bytes += bytes;
}

int gx_bad_lines_goes_on(const GxBadLines *b)
{
    return b->lines <= GX_BAD_LINES_LOOK && b->bytes <= GX_BAD_LINES_BYTES;
}

GxStatus gx_bad_lines_fail(const GxBadLines *b, int64_t first, GxError *err)
{
    char lines[GX_BAD_LINES * 22 + 16] = "";
    if (b->n == 0) return GX_OK;
    if (b->n == 1) return GX_FAIL(err, (GxStatus)b->first.code, "%s", b->first.message);
    for (int i = 0; i < GX_BAD_LINES && i < b->n; i++) {
        const size_t n = strlen(lines);
        snprintf(lines + n, sizeof lines - n, "%s%ld", i ? ", " : "", (long)b->line[i]);
    }
    return GX_FAIL(err, (GxStatus)b->first.code, "%s (%ld of the records in lines %ld to %ld are wrong: lines %s%s)",
                   b->first.message, (long)b->n, (long)first, (long)b->last, lines,
                   b->n > GX_BAD_LINES ? " and others" : "");
}

void gx_bad_records_warn(const GxBadRecords *b, const GxLogger *log)
{
    if (!b || !b->n || !log) return;
    gx_log(log, GX_LOG_WARNING, "%ld record%s left out (--skip_bad_records), because %s wrong%s:", (long)b->n,
           b->n == 1 ? " is" : "s are", b->n == 1 ? "it is" : "they are",
           b->n > GX_BAD_RECORDS ? "; the first ones:" : "");
    for (int i = 0; i < GX_BAD_RECORDS && i < b->n; i++) gx_log(log, GX_LOG_WARNING, "  %s", b->why[i]);
}
#endif
