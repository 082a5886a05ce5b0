// ops/tuned.h: the table of --autotune as text (run/autotune.h): a first line that says which device and library its
// choices hold for, then a line for each matrix product, which its device writes and reads.
#ifndef GX_OPS_TUNED_H
#define GX_OPS_TUNED_H
#include "../base/context.h"
GX_BEGIN

enum { GX_TUNED_HEADER = 400 };      // bytes of a first line
#define GX_TUNED "galaxy autotune 1" // what it begins with

// Passes each line after the first one to `take`, which returns 0 for a line that it would write differently.
// GX_ERR_FORMAT: it did, or the text is not a table; GX_ERR_UNSUPPORTED: the table is for something other than
// `header`.
GxStatus gx_tuned_read(GxContext *g, const char *text, const char *header, int (*take)(GxContext *, const char *line),
                       GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPS_TUNED_IMPLEMENTED)
#define GX_OPS_TUNED_IMPLEMENTED
#include <string.h>

GxStatus gx_tuned_read(GxContext *g, const char *text, const char *header, int (*take)(GxContext *, const char *line),
                       GxError *err)
{
    const int length = (int)strcspn(text, "\n"), name = (int)strlen("galaxy autotune "),
              digits = length > name ? (int)strspn(text + name, "0123456789") : 0;
    if (strncmp(text, GX_TUNED, (size_t)name) || !digits || strncmp(text + name + digits, ", ", 2) || !text[length])
        return GX_FAIL(err, GX_ERR_FORMAT, "it begins with \"%.*s\"; expected a line of \"" GX_TUNED ", ...\"",
                       length < 40 ? length : 40, text);
    if (length != (int)strlen(header) || strncmp(text, header, (size_t)length))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "it says \"%.*s\", and this is \"%s\"", length < 300 ? length : 300,
                       text, header);
    int number = 2;
    for (const char *at = text + length; at[0] && at[1]; at += 1 + strcspn(at + 1, "\n"), number++)
        if (!take(g, at + 1)) return GX_FAIL(err, GX_ERR_FORMAT, "line %d is not a product with its algorithm", number);
    return GX_OK;
}
#endif
