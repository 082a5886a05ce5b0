// typing.h: how near what somebody typed is to a name, for "did you mean".
#ifndef GX_TYPING_H
#define GX_TYPING_H
#include "../base/common.h"
GX_BEGIN

// Edits from what was typed to a name that was probably meant, or begins with it; -1: it is not near.
int gx_typing_distance(const char *typed, const char *name);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TYPING_IMPLEMENTED)
#define GX_TYPING_IMPLEMENTED
#include <string.h>

enum { GX__TYPING_CAP = 64 }; // longer ones are near to none

// Insertions, deletions and replacements that turn a into b (Levenshtein).
static int gx__typing_edits(const char *a, const char *b)
{
    int row[GX__TYPING_CAP + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = (int)gx_min(replaced, gx_min(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

int gx_typing_distance(const char *typed, const char *name)
{
    const int length = (int)strlen(typed);
    if (length >= GX__TYPING_CAP || strlen(name) >= GX__TYPING_CAP) return -1;
    int distance = gx__typing_edits(typed, name);
    if (length > 2 && !strncmp(name, typed, (size_t)length)) distance = (int)gx_min(distance, 2);
    return distance < 2 + length / 4 ? distance : -1;
}
#endif
