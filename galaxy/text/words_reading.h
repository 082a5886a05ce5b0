// words_reading.h: shared by the readers of tokenizer.json for a model of words (words_steps.h, words_added.h,
// words_frame.h, and the models' own): the file that is being read, and how unsupported features are refused.
#ifndef GX_WORDS_READING_H
#define GX_WORDS_READING_H
#include "words.h"
GX_BEGIN

typedef struct { // a file that is being read
    GxTokenizer *t;
    GxWords *v;
    const GxTokenizerSource *from;
    const char *path;
    int is_made; // it was not read from a file
    GxError *err;
} GxWordsReading;

typedef struct { // a component by its "type"
    const char *type;
    GxStatus (*read)(GxWordsReading *x, const GxJson *from, GxWordSteps *steps);
} GxWordsComponent;
// The error for an unsupported type. known: the supported ones, then one whose type is NULL.
GxStatus gx_words_unknown_type(GxWordsReading *x, const char *what, const char *type, const GxWordsComponent *known);
GxStatus gx_words_refuse(GxWordsReading *x, const char *type, const char *key, const char *found, const char *built);
// The member `key` of a component of this type: a string that must not be empty.
GxStatus gx_words_get_text(GxWordsReading *x, const GxJson *from, const char *type, const char *key, const char **text);
char *gx_words_copy(const char *text, int64_t n); // with a terminating 0; free() it

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_READING_IMPLEMENTED)
#define GX_WORDS_READING_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"

char *gx_words_copy(const char *text, int64_t n)
{
    char *copy = (char *)malloc((size_t)n + 1);
    if (copy) memcpy(copy, text, (size_t)n + 1);
    return copy;
}

GxStatus gx_words_refuse(GxWordsReading *x, const char *type, const char *key, const char *found, const char *built)
{
    char cut[GX_TEXT_VALUE];
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: %s has %s \"%s\"; supported: %s", x->path, type, key,
                   gx_text_cut(found, cut, sizeof cut), built);
}

GxStatus gx_words_get_text(GxWordsReading *x, const GxJson *from, const char *type, const char *key, const char **text)
{
    GX_TRY(gx_json_get_string(from, key, 1, text, x->path, x->err));
    if (**text) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the \"%s\" of %s is empty", x->path, key, type);
}

GxStatus gx_words_unknown_type(GxWordsReading *x, const char *what, const char *type, const GxWordsComponent *known)
{
    char built[200] = "", cut[GX_TEXT_VALUE];
    for (; known->type; known++) snprintf(built + strlen(built), sizeof built - strlen(built), "%s, ", known->type);
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: the %s is of the type \"%s\"; supported: %sSequence, null", x->path,
                   what, gx_text_cut(type, cut, sizeof cut), built);
}
#endif
