// words_steps.h: reads the steps between a text and its words (words.h), tokenizer.json's components "normalizer",
// "pre_tokenizer" and "decoder". Adding one takes a function that reads it, and its line in a table below.
#ifndef GX_WORDS_STEPS_H
#define GX_WORDS_STEPS_H
#include "words_reading.h"
GX_BEGIN

GxStatus gx_words_read_steps(GxWordsReading *x); // all three, into x->v

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_STEPS_IMPLEMENTED)
#define GX_WORDS_STEPS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"

static GxStatus gx__words_add_step(GxWordsReading *x, GxWordSteps *steps, GxWordStepKind kind, int64_t keeps,
                                   const char *text, const char *content)
{
    GxWordStep *s = &steps->step[steps->n];
    if (steps->n == GX_WORDS_STEPS)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: a sequence of more than %d steps", x->path, GX_WORDS_STEPS);
    steps->n++;
    s->kind = kind, s->keeps = keeps;
    if (text) s->text_n = (int64_t)strlen(text), s->text = gx_words_copy(text, s->text_n);
    if (content) s->content_n = (int64_t)strlen(content), s->content = gx_words_copy(content, s->content_n);
    if ((text && !s->text) || (content && !s->content))
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    return kind == GX_WORDS_SPLIT || kind == GX_WORDS_REPLACE_REGEX ? gx_regex_open(&s->regex, text, x->path, x->err)
                                                                    : GX_OK;
}

// {"String": " "} or {"Regex": "\\s+"}; *is_regex tells them apart.
static GxStatus gx__words_get_pattern(GxWordsReading *x, const GxJson *from, const char *type, const char **text,
                                      int *is_regex)
{
    GxJson *pattern = NULL;
    GX_TRY(gx_json_get_object(from, "pattern", 1, &pattern, x->path, x->err));
    *is_regex = gx_json_get(pattern, "Regex") != NULL;
    return gx_words_get_text(x, pattern, type, *is_regex ? "Regex" : "String", text);
}

// A normal form.
static GxStatus gx__words_read_form(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    static const struct {
        const char *type;
        GxWordStepKind kind;
    } forms[] = {{"NFC", GX_WORDS_NFC}, {"NFD", GX_WORDS_NFD}, {"NFKC", GX_WORDS_NFKC}, {"NFKD", GX_WORDS_NFKD}};
    uint32_t none[GX_NFD_MOST];
    int64_t n;
    int i = 0;
    while (strcmp(forms[i].type, gx_json_string(gx_json_get(from, "type")))) i++;
    if (!gx_unicode_has_nfd()) return gx_unicode_nfc(none, 0, none, &n, x->err); // reports the error
    return gx__words_add_step(x, steps, forms[i].kind, 0, NULL, NULL);
}

static GxStatus gx__words_read_lowercase(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    return (void)from, gx__words_add_step(x, steps, GX_WORDS_LOWERCASE, 0, NULL, NULL);
}

static GxStatus gx__words_read_trim(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    int left = 0, right = 0;
    GX_TRY(gx_json_get_bool(from, "strip_left", 1, &left, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "strip_right", 1, &right, x->path, x->err));
    return gx__words_add_step(x, steps, GX_WORDS_TRIM, (left ? GX_WORDS_LEFT : 0) | (right ? GX_WORDS_RIGHT : 0), NULL,
                              NULL);
}

static GxStatus gx__words_read_charsmap(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "";
    GX_TRY(gx_words_get_text(x, from, "Precompiled", "precompiled_charsmap", &text));
    GX_TRY(gx__words_add_step(x, steps, GX_WORDS_CHARSMAP, 0, text, NULL));
    GxWordStep *s = &steps->step[steps->n - 1];
    s->charsmap = (GxCharsmap *)calloc(1, sizeof *s->charsmap);
    if (!s->charsmap) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    return gx_charsmap_open(s->charsmap, text, x->path, x->err);
}

static GxStatus gx__words_read_prepend(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "";
    GX_TRY(gx_words_get_text(x, from, "Prepend", "prepend", &text));
    return gx__words_add_step(x, steps, GX_WORDS_PREPEND, 0, text, NULL);
}

static GxStatus gx__words_read_replace(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "", *content = "";
    int is_regex = 0;
    GX_TRY(gx__words_get_pattern(x, from, "Replace", &text, &is_regex));
    GX_TRY(gx_json_get_string(from, "content", 1, &content, x->path, x->err));
    if (is_regex && steps != &x->v->normalizer)
        return gx_words_refuse(x, "Replace", "the Regex", text, "a String; in the normalizer a Regex, too");
    if (is_regex) return gx__words_add_step(x, steps, GX_WORDS_REPLACE_REGEX, 0, text, content);
    return gx__words_add_step(x, steps, GX_WORDS_REPLACE, 0, text, content);
}

// The text with a \ before each sign; to be freed.
static char *gx__words_escape(const char *text)
{
    char *out = (char *)malloc(2 * strlen(text) + 1), *end = out;
    for (const char *p = text; out && *p; p++) {
        const int is_sign =
            *p > ' ' && *p < 0x7F && !(*p >= '0' && *p <= '9') && !((*p | 32) >= 'a' && (*p | 32) <= 'z');
        if (is_sign) *end++ = '\\';
        *end++ = *p;
    }
    if (out) *end = 0;
    return out;
}

static GxStatus gx__words_read_split(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "", *behavior = "";
    int is_regex = 0, invert = 0;
    GX_TRY(gx__words_get_pattern(x, from, "Split", &text, &is_regex));
    GX_TRY(gx_json_get_string(from, "behavior", 1, &behavior, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "invert", 1, &invert, x->path, x->err));
    const int is_isolated = !strcmp(behavior, "Isolated");
    int keeps = is_isolated ? GX_WORDS_MATCHES | GX_WORDS_GAPS : invert ? GX_WORDS_MATCHES : GX_WORDS_GAPS;
    const int is_joined = !strcmp(behavior, "MergedWithPrevious");
    if (is_joined && invert)
        return gx_words_refuse(x, "Split", "the behavior", "MergedWithPrevious, inverted", "not inverted");
    if (is_joined) keeps = GX_WORDS_JOINED;
    else if (!is_isolated && strcmp(behavior, "Removed"))
        return gx_words_refuse(x, "Split", "the behavior", behavior, "Isolated, Removed, MergedWithPrevious");
    if (is_regex) return gx__words_add_step(x, steps, GX_WORDS_SPLIT, keeps, text, NULL);
    char *escaped = gx__words_escape(text);
    if (!escaped) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    const GxStatus status = gx__words_add_step(x, steps, GX_WORDS_SPLIT, keeps, escaped, NULL);
    free(escaped);
    return status;
}

static GxStatus gx__words_read_spaces(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    return (void)from, gx__words_add_step(x, steps, GX_WORDS_SPACES, 0, NULL, NULL);
}

static GxStatus gx__words_read_digits(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    int each = 0;
    GX_TRY(gx_json_get_bool(from, "individual_digits", 1, &each, x->path, x->err));
    return gx__words_add_step(x, steps, GX_WORDS_DIGITS, each, NULL, NULL);
}

static GxStatus gx__words_read_byte_level(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    int has_prefix = 0, use_regex = 1;
    GX_TRY(gx_json_get_bool(from, "add_prefix_space", 1, &has_prefix, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "use_regex", 0, &use_regex, x->path, x->err));
    if (has_prefix) GX_TRY(gx__words_add_step(x, steps, GX_WORDS_PREFIX, 0, NULL, NULL));
    if (use_regex)
        GX_TRY(gx__words_add_step(x, steps, GX_WORDS_SPLIT, GX_WORDS_MATCHES | GX_WORDS_GAPS, gx_words_of_gpt2, NULL));
    return gx__words_add_step(x, steps, GX_WORDS_BYTES, 0, NULL, NULL);
}

// Files from before 2024 have only add_prefix_space.
static GxStatus gx__words_get_scheme(GxWordsReading *x, const GxJson *from, int64_t *scheme)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name = NULL;
    int has_prefix = 1;
    GX_TRY(gx_json_get_bool(from, "add_prefix_space", 0, &has_prefix, x->path, x->err));
    GX_TRY(gx_json_get_string(from, "prepend_scheme", 0, &name, x->path, x->err));
    *scheme = has_prefix ? GX_WORDS_ALWAYS : GX_WORDS_NEVER;
    if (!name) return GX_OK;
    for (*scheme = 0; *scheme < 3; ++*scheme)
        if (!strcmp(name, names[*scheme])) break;
    if (*scheme == 3) return gx_words_refuse(x, "Metaspace", "the prepend_scheme", name, "always, first, never");
    if (has_prefix || *scheme == GX_WORDS_NEVER) return GX_OK;
    return GX_FAIL(
        x->err, GX_ERR_FORMAT,
        "%s: Metaspace has the prepend_scheme \"%s\" and add_prefix_space false, which contradict each other", x->path,
        name);
}

static GxStatus gx__words_read_metaspace(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "";
    int64_t scheme = 0;
    int split = 1;
    GX_TRY(gx_words_get_text(x, from, "Metaspace", "replacement", &text));
    GX_TRY(gx__words_get_scheme(x, from, &scheme));
    GX_TRY(gx_json_get_bool(from, "split", 0, &split, x->path, x->err));
    GX_TRY(gx__words_add_step(x, steps, GX_WORDS_METASPACE, scheme, text, NULL));
    return split && steps == &x->v->pre_tokenizer ? gx__words_add_step(x, steps, GX_WORDS_BEFORE, 0, text, NULL)
                                                  : GX_OK;
}

static GxStatus gx__words_read_byte_characters(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    return (void)from, gx__words_add_step(x, steps, GX_WORDS_BYTES, 0, NULL, NULL);
}
static GxStatus gx__words_read_fallback(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    return (void)from, gx__words_add_step(x, steps, GX_WORDS_BYTE_FALLBACK, 0, NULL, NULL);
}
static GxStatus gx__words_read_fuse(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    return (void)from, gx__words_add_step(x, steps, GX_WORDS_FUSE, 0, NULL, NULL);
}

static GxStatus gx__words_read_strip(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "";
    int64_t start = 0, stop = 0;
    GX_TRY(gx_words_get_text(x, from, "Strip", "content", &text));
    GX_TRY(gx_json_get_int(from, "start", 1, &start, x->path, x->err));
    GX_TRY(gx_json_get_int(from, "stop", 1, &stop, x->path, x->err));
    if (start < 0 || stop != 0)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: Strip has start %ld and stop %ld; supported: 0 or more, and 0",
                       x->path, (long)start, (long)stop);
    return gx__words_add_step(x, steps, GX_WORDS_STRIP, start, text, NULL);
}

static const GxWordsComponent gx__words_normalizers[] = {{"NFC", gx__words_read_form},
                                                         {"NFD", gx__words_read_form},
                                                         {"NFKC", gx__words_read_form},
                                                         {"NFKD", gx__words_read_form},
                                                         {"Lowercase", gx__words_read_lowercase},
                                                         {"Precompiled", gx__words_read_charsmap},
                                                         {"Strip", gx__words_read_trim},
                                                         {"Prepend", gx__words_read_prepend},
                                                         {"Replace", gx__words_read_replace},
                                                         {NULL, NULL}};
static const GxWordsComponent gx__words_pre_tokenizers[] = {
    {"ByteLevel", gx__words_read_byte_level},   {"Split", gx__words_read_split},
    {"WhitespaceSplit", gx__words_read_spaces}, {"Digits", gx__words_read_digits},
    {"Metaspace", gx__words_read_metaspace},    {NULL, NULL}};
static const GxWordsComponent gx__words_decoders[] = {{"ByteLevel", gx__words_read_byte_characters},
                                                      {"Replace", gx__words_read_replace},
                                                      {"ByteFallback", gx__words_read_fallback},
                                                      {"Fuse", gx__words_read_fuse},
                                                      {"Strip", gx__words_read_strip},
                                                      {"Metaspace", gx__words_read_metaspace},
                                                      {NULL, NULL}};

// One component, or each of a sequence.
static GxStatus gx__words_read_steps(GxWordsReading *x, const char *what, const char *members, const GxJson *from,
                                     const GxWordsComponent *known, GxWordSteps *steps)
{
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    for (const GxWordsComponent *k = known; k->type; k++)
        if (!strcmp(k->type, type)) return k->read(x, from, steps);
    if (strcmp(type, "Sequence")) return gx_words_unknown_type(x, what, type, known);
    GX_TRY(gx_json_get_array(from, members, 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__words_read_steps(x, what, members, gx_json_at(list, i), known, steps));
    return GX_OK;
}

static GxStatus gx__words_read_row(GxWordsReading *x, const char *what, const char *members,
                                   const GxWordsComponent *known, GxWordSteps *steps)
{
    GxJson *from = NULL;
    GX_TRY(gx_json_get_object(x->from->json, what, 0, &from, x->path, x->err));
    return from ? gx__words_read_steps(x, what, members, from, known, steps) : GX_OK;
}

GxStatus gx_words_read_steps(GxWordsReading *x)
{
    GxWords *v = x->v;
    GX_TRY(gx__words_read_row(x, "normalizer", "normalizers", gx__words_normalizers, &v->normalizer));
    GX_TRY(gx__words_read_row(x, "pre_tokenizer", "pretokenizers", gx__words_pre_tokenizers, &v->pre_tokenizer));
    GX_TRY(gx__words_read_row(x, "decoder", "decoders", gx__words_decoders, &v->decoder));
    v->has_decoder = gx_json_type(gx_json_get(x->from->json, "decoder")) == GX_JSON_OBJECT;
    return GX_OK;
}
#endif
