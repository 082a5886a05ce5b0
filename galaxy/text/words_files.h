// words_files.h: what stands around a model of words (words.h) in files: tokenizer.json, as Hugging Face's libraries
// have it. What is the model's own there: bpe_files.h, unigram_files.h; to open and use a tokenizer: tokenizer.h.
//
// What is read: the normalizers NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Strip, Prepend, Replace; the
// pre-tokenizers ByteLevel, Split (Isolated or Removed), WhitespaceSplit, Digits, Metaspace; the post-processors
// ByteLevel and TemplateProcessing; the decoders ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace; a Sequence
// of any of them, or null. Anything else is refused by name.
//
// gx_tokenizer_write writes the files again as they were, byte for byte; those of a tokenizer that was made here
// (bpe_train.h) as gx_json_dump has them.
#ifndef GX_WORDS_FILES_H
#define GX_WORDS_FILES_H
#include "tokenizer_config.h"
#include "words.h"
GX_BEGIN

enum { GX_WORDS_IDS = 1 << 24 }; // a piece's id is less

typedef struct { // a file that is being read
    GxTokenizer *t;
    GxWords *v;
    const GxTokenizerSource *from;
    const char *path;
    int is_made; // it was read from no file
    GxError *err;
} GxWordsReading;
// Fills model, p, unk, byte_fallback, content of x->v, which lies at the beginning of the kind's own struct.
typedef GxStatus (*GxWordsReadModel)(GxWordsReading *x, const GxJson *model);
GxStatus gx_words_refuse(GxWordsReading *x, const char *type, const char *key, const char *found, const char *built);

// A tokenizer whose kind has a struct of so many bytes. After an error nothing is open.
GxStatus gx_words_open(GxTokenizer *t, const GxTokenizerKind *kind, int64_t bytes, GxWordsReadModel read_model,
                       const GxTokenizerSource *from, int is_made, GxError *err);
// The functions of a GxTokenizerKind (tokenizer_kind.h).
void gx_words_close(GxTokenizer *t);
const char *gx_words_piece(const GxTokenizer *t, int32_t id, char room[8]);
int32_t gx_words_find(const GxTokenizer *t, const char *piece);
int gx_words_is_special(const GxTokenizer *t, int32_t id);
int gx_words_continues(const GxTokenizer *t, int32_t id);
GxStatus gx_words_write(const GxTokenizer *t, const char *folder, GxError *err);
void gx_words_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_FILES_IMPLEMENTED)
#define GX_WORDS_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__WORDS_CAP = 64 << 20, GX__WORDS_LONGEST = 1 << 16, GX__WORDS_FILES = 4 };
// Beside the first, which each has: those that lie there are kept.
static const char *const gx__words_files[GX__WORDS_FILES] = {"tokenizer.json", "tokenizer_config.json",
                                                             "special_tokens_map.json", "chat_template.jinja"};

// ---- steps ---------------------------------------------------------------------------------------------------------

static char *gx__words_copy(const char *text, int64_t n)
{
    char *copy = (char *)malloc((size_t)n + 1);
    if (copy) memcpy(copy, text, (size_t)n + 1);
    return copy;
}

static GxStatus gx__words_add_step(GxWordsReading *x, GxWordSteps *steps, GxWordStepKind kind, int64_t keeps,
                                   const char *text, const char *content)
{
    GxWordStep *s = &steps->step[steps->n];
    if (steps->n == GX_WORDS_STEPS)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: a sequence of more than %d steps", x->path, GX_WORDS_STEPS);
    steps->n++;
    s->kind = kind, s->keeps = keeps;
    if (text) s->text_n = (int64_t)strlen(text), s->text = gx__words_copy(text, s->text_n);
    if (content) s->content_n = (int64_t)strlen(content), s->content = gx__words_copy(content, s->content_n);
    if ((text && !s->text) || (content && !s->content))
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    return kind == GX_WORDS_SPLIT || kind == GX_WORDS_REPLACE_REGEX ? gx_regex_open(&s->regex, text, x->path, x->err)
                                                                    : GX_OK;
}

GxStatus gx_words_refuse(GxWordsReading *x, const char *type, const char *key, const char *found, const char *built)
{
    char cut[GX_TEXT_VALUE];
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: %s has %s \"%s\"; what is built: %s", x->path, type, key,
                   gx_text_cut(found, cut, sizeof cut), built);
}

// A string that may not be empty.
static GxStatus gx__words_get_text(GxWordsReading *x, const GxJson *from, const char *type, const char *key,
                                   const char **text)
{
    GX_TRY(gx_json_get_string(from, key, 1, text, x->path, x->err));
    if (**text) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the \"%s\" of %s is empty", x->path, key, type);
}

// {"String": " "} or {"Regex": "\\s+"}; *is_regex tells them apart.
static GxStatus gx__words_get_pattern(GxWordsReading *x, const GxJson *from, const char *type, const char **text,
                                      int *is_regex)
{
    GxJson *pattern = NULL;
    GX_TRY(gx_json_get_object(from, "pattern", 1, &pattern, x->path, x->err));
    *is_regex = gx_json_get(pattern, "Regex") != NULL;
    return gx__words_get_text(x, pattern, type, *is_regex ? "Regex" : "String", text);
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
    if (!gx_unicode_has_nfd()) return gx_unicode_nfc(none, 0, none, &n, x->err); // says it
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
    GX_TRY(gx__words_get_text(x, from, "Precompiled", "precompiled_charsmap", &text));
    GX_TRY(gx__words_add_step(x, steps, GX_WORDS_CHARSMAP, 0, text, NULL));
    GxWordStep *s = &steps->step[steps->n - 1];
    s->charsmap = (GxCharsmap *)calloc(1, sizeof *s->charsmap);
    if (!s->charsmap) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    return gx_charsmap_open(s->charsmap, text, x->path, x->err);
}

static GxStatus gx__words_read_prepend(GxWordsReading *x, const GxJson *from, GxWordSteps *steps)
{
    const char *text = "";
    GX_TRY(gx__words_get_text(x, from, "Prepend", "prepend", &text));
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

// text with a \ before each sign; free it.
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
    const int is_isolated = !strcmp(behavior, "Isolated"), keeps = is_isolated ? GX_WORDS_MATCHES | GX_WORDS_GAPS
                                                                   : invert    ? GX_WORDS_MATCHES
                                                                               : GX_WORDS_GAPS;
    if (!is_isolated && strcmp(behavior, "Removed"))
        return gx_words_refuse(x, "Split", "the behavior", behavior, "Isolated, Removed");
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

// Files of before 2024 have add_prefix_space alone.
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
    GX_TRY(gx__words_get_text(x, from, "Metaspace", "replacement", &text));
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
    GX_TRY(gx__words_get_text(x, from, "Strip", "content", &text));
    GX_TRY(gx_json_get_int(from, "start", 1, &start, x->path, x->err));
    GX_TRY(gx_json_get_int(from, "stop", 1, &stop, x->path, x->err));
    if (start < 0 || stop != 0)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: Strip has start %ld and stop %ld; what is built: 0 or more, and 0", x->path, (long)start,
                       (long)stop);
    return gx__words_add_step(x, steps, GX_WORDS_STRIP, start, text, NULL);
}

typedef struct {
    const char *type;
    GxStatus (*read)(GxWordsReading *x, const GxJson *from, GxWordSteps *steps);
} gx__WordsComponent;
static const gx__WordsComponent gx__words_normalizers[] = {{"NFC", gx__words_read_form},
                                                           {"NFD", gx__words_read_form},
                                                           {"NFKC", gx__words_read_form},
                                                           {"NFKD", gx__words_read_form},
                                                           {"Lowercase", gx__words_read_lowercase},
                                                           {"Precompiled", gx__words_read_charsmap},
                                                           {"Strip", gx__words_read_trim},
                                                           {"Prepend", gx__words_read_prepend},
                                                           {"Replace", gx__words_read_replace},
                                                           {NULL, NULL}};
static const gx__WordsComponent gx__words_pre_tokenizers[] = {
    {"ByteLevel", gx__words_read_byte_level},   {"Split", gx__words_read_split},
    {"WhitespaceSplit", gx__words_read_spaces}, {"Digits", gx__words_read_digits},
    {"Metaspace", gx__words_read_metaspace},    {NULL, NULL}};
static const gx__WordsComponent gx__words_decoders[] = {{"ByteLevel", gx__words_read_byte_characters},
                                                        {"Replace", gx__words_read_replace},
                                                        {"ByteFallback", gx__words_read_fallback},
                                                        {"Fuse", gx__words_read_fuse},
                                                        {"Strip", gx__words_read_strip},
                                                        {"Metaspace", gx__words_read_metaspace},
                                                        {NULL, NULL}};

static GxStatus gx__words_unknown_type(GxWordsReading *x, const char *what, const char *type,
                                       const gx__WordsComponent *known)
{
    char built[200] = "", cut[GX_TEXT_VALUE];
    for (; known->type; known++) snprintf(built + strlen(built), sizeof built - strlen(built), "%s, ", known->type);
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: the %s is of the type \"%s\"; what is built: %sSequence, null",
                   x->path, what, gx_text_cut(type, cut, sizeof cut), built);
}

// One component, or each of a sequence.
static GxStatus gx__words_read_steps(GxWordsReading *x, const char *what, const char *members, const GxJson *from,
                                     const gx__WordsComponent *known, GxWordSteps *steps)
{
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    for (const gx__WordsComponent *k = known; k->type; k++)
        if (!strcmp(k->type, type)) return k->read(x, from, steps);
    if (strcmp(type, "Sequence")) return gx__words_unknown_type(x, what, type, known);
    GX_TRY(gx_json_get_array(from, members, 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__words_read_steps(x, what, members, gx_json_at(list, i), known, steps));
    return GX_OK;
}

static GxStatus gx__words_read_row(GxWordsReading *x, const char *what, const char *members,
                                   const gx__WordsComponent *known, GxWordSteps *steps)
{
    GxJson *from = NULL;
    GX_TRY(gx_json_get_object(x->from->json, what, 0, &from, x->path, x->err));
    return from ? gx__words_read_steps(x, what, members, from, known, steps) : GX_OK;
}

// ---- added tokens --------------------------------------------------------------------------------------------------

static int32_t gx__words_any_of(const GxWords *v, const char *piece, int64_t bytes) // added ones, too
{
    for (int i = 0; i < v->added_n; i++)
        if (gx_pieces_is(v->p, v->added[i].id, piece, bytes)) return v->added[i].id;
    return gx_pieces_find(v->p, piece, bytes);
}
static int32_t gx__words_any(const GxWords *v, const char *piece)
{
    return gx__words_any_of(v, piece, (int64_t)strlen(piece));
}

// Its pattern is the content, normalised if it is; it is put behind the special ones, or behind all.
static GxStatus gx__words_keep_added(GxWordsReading *x, const GxWordAdded *how, const char *content, int64_t bytes)
{
    GxWords *v = x->v;
    const GxWordSteps none = GX_ZERO;
    GxWordBytes pattern = GX_ZERO;
    GxWordAdded token = *how;
    GxWordAdded *grown = (GxWordAdded *)realloc(v->added, (size_t)(v->added_n + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", content);
    v->added = grown;
    int moved;
    GxStatus status =
        gx_words_normalize(token.normalized ? &v->normalizer : &none, content, bytes, &pattern, &moved, x->err);
    if (status == GX_OK && pattern.n == 0)
        status = GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" is empty when it is normalised",
                         x->path, content);
    if (status != GX_OK) {
        gx__words_free(&pattern);
        return status;
    }
    token.pattern = pattern.p, token.bytes = pattern.n;
    int at = v->added_n++;
    for (; token.special && at > 0 && !v->added[at - 1].special; at--) v->added[at] = v->added[at - 1];
    v->added[at] = token;
    v->leads[token.normalized][(unsigned char)token.pattern[0]] = 1;
    v->p->flags[token.id] |=
        (unsigned char)((token.special ? GX_PIECE_SPECIAL : 0) | (token.normalized ? GX_PIECE_NORMALIZED : 0));
    return GX_OK;
}

static GxStatus gx__words_take_added(GxWordsReading *x, const GxJson *from, const char *content, int64_t bytes)
{
    GxWords *v = x->v;
    GxWordAdded token = GX_ZERO;
    int64_t id = -1;
    int single_word = 0;
    GX_TRY(gx_json_get_int(from, "id", 1, &id, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "single_word", 1, &single_word, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "lstrip", 1, &token.lstrip, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "rstrip", 1, &token.rstrip, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "normalized", 1, &token.normalized, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "special", 1, &token.special, x->path, x->err));
    if (single_word)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: the added token \"%.100s\" has single_word true; what is built: "
                       "false",
                       x->path, content);
    const int32_t known = gx__words_any_of(v, content, bytes);
    const int is_free = id >= 0 && id < GX_WORDS_IDS && (id >= v->p->size || v->p->at[id] < 0);
    if (known >= 0 ? known != id : !is_free)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" has the id %ld; %s", x->path, content,
                       (long)id,
                       known >= 0 ? "the vocabulary has another one for it" : "expected one that no other piece has");
    for (int i = 0; i < v->added_n; i++)
        if (v->added[i].id == id) return GX_OK; // said twice
    token.id = (int32_t)id;
    if (known < 0) GX_TRY(gx_pieces_add(v->p, token.id, content, bytes, 0, x->err));
    return gx__words_keep_added(x, &token, content, bytes);
}

static GxStatus gx__words_read_one_added(GxWordsReading *x, const GxJson *from)
{
    const char *said = "";
    GX_TRY(gx__words_get_text(x, from, "an added token", "content", &said));
    char *content = gx__words_copy(said, (int64_t)strlen(said));
    if (!content) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", said);
    const int64_t bytes = gx_json_spell_nuls(x->from->json, content);
    const GxStatus status = gx__words_take_added(x, from, content, bytes);
    free(content);
    return status;
}

static GxStatus gx__words_read_added(GxWordsReading *x)
{
    GxJson *list = NULL;
    GX_TRY(gx_json_get_array(x->from->json, "added_tokens", 0, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++) GX_TRY(gx__words_read_one_added(x, gx_json_at(list, i)));
    return GX_OK;
}

// ---- the frame -----------------------------------------------------------------------------------------------------

static GxStatus gx__words_frame_part(GxWordsReading *x, GxTokenFrame *frame, int32_t id, int64_t type)
{
    if (frame->n == GX_FRAME_MOST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing has more than %d parts", x->path,
                       GX_FRAME_MOST);
    frame->part[frame->n].id = id;
    frame->part[frame->n++].type = (int)(type != 0);
    return GX_OK;
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}}: the ids of the token of that name
static GxStatus gx__words_frame_token(GxWordsReading *x, const GxJson *tokens, const char *name, int64_t type,
                                      GxTokenFrame *frame)
{
    GxJson *token = NULL, *ids = NULL;
    GX_TRY(gx_json_get_object(tokens, name, 1, &token, x->path, x->err));
    GX_TRY(gx_json_get_array(token, "ids", 1, &ids, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(ids); i++) {
        const int64_t id = gx_json_int(gx_json_at(ids, i));
        if (gx_json_type(gx_json_at(ids, i)) != GX_JSON_INT || id < 0 || id >= x->v->p->size || x->v->p->at[id] < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: TemplateProcessing's \"%.100s\" has an id that no piece has",
                           x->path, name);
        GX_TRY(gx__words_frame_part(x, frame, (int32_t)id, type));
    }
    return GX_OK;
}

static GxStatus gx__words_read_template(GxWordsReading *x, const GxJson *from, int two)
{
    GxTokenFrame *frame = &x->t->frame[two];
    GxJson *parts = NULL, *tokens = NULL;
    int a = 0, b = 0;
    GX_TRY(gx_json_get_array(from, two ? "pair" : "single", 1, &parts, x->path, x->err));
    GX_TRY(gx_json_get_object(from, "special_tokens", 1, &tokens, x->path, x->err));
    frame->n = 0;
    for (int64_t i = 0; i < gx_json_size(parts); i++) {
        const GxJson *part = gx_json_at(parts, i), *text = gx_json_get(part, "Sequence"),
                     *token = gx_json_get(part, "SpecialToken");
        const char *name = "";
        int64_t type = 0;
        GX_TRY(gx_json_get_string(text ? text : token, "id", 1, &name, x->path, x->err));
        GX_TRY(gx_json_get_int(text ? text : token, "type_id", 1, &type, x->path, x->err));
        if (type < 0 || type > 1 || (text && strcmp(name, "A") && strcmp(name, "B")))
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                           "%s: TemplateProcessing has \"%.40s\" of type %ld; what is "
                           "built: tokens, A and B, of the types 0 and 1",
                           x->path, name, (long)type);
        if (!text) GX_TRY(gx__words_frame_token(x, tokens, name, type, frame));
        else GX_TRY(gx__words_frame_part(x, frame, *name == 'A' ? GX_FRAME_A : GX_FRAME_B, type));
        a += text && *name == 'A', b += text && *name == 'B';
    }
    if (a == 1 && b == two) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                   "%s: TemplateProcessing's \"%s\" has A %d times and B %d times; what is "
                   "built: each text once",
                   x->path, two ? "pair" : "single", a, b);
}

static GxStatus gx__words_read_processor(GxWordsReading *x, const GxJson *from, int *templates)
{
    static const gx__WordsComponent known[] = {{"ByteLevel", NULL}, {"TemplateProcessing", NULL}, {NULL, NULL}};
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    if (!strcmp(type, "ByteLevel")) return GX_OK; // changes offsets alone
    if (!strcmp(type, "TemplateProcessing")) {
        if (++*templates > 1)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing twice; what is built: once", x->path);
        GX_TRY(gx__words_read_template(x, from, 0));
        return gx__words_read_template(x, from, 1);
    }
    if (strcmp(type, "Sequence")) return gx__words_unknown_type(x, "post_processor", type, known);
    GX_TRY(gx_json_get_array(from, "processors", 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__words_read_processor(x, gx_json_at(list, i), templates));
    return GX_OK;
}

static GxStatus gx__words_read_frame(GxWordsReading *x)
{
    GxJson *from = NULL;
    int templates = 0;
    for (int two = 0; two < 2; two++) {
        GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_A, 0));
        if (two) GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_B, 1));
    }
    GX_TRY(gx_json_get_object(x->from->json, "post_processor", 0, &from, x->path, x->err));
    return from ? gx__words_read_processor(x, from, &templates) : GX_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

// Those tokens of tokenizer_config.json that are asked for by their role; texts are framed by the file's own template.
static GxStatus gx__words_read_roles(GxWordsReading *x)
{
    GxTokenizer *t = x->t;
    const struct {
        int32_t *id;
        const char *key;
    } known[] = {
        {&t->role[GX_TOKEN_PAD], "pad_token"}, {&t->role[GX_TOKEN_MASK], "mask_token"}, {&t->end, "eos_token"}};
    for (int i = 0; i < 3; i++) {
        const char *said = gx_tokenizer_config_token(x->from->config, known[i].key);
        if (said) *known[i].id = gx__words_any(x->v, said);
    }
    x->t->role[GX_TOKEN_UNK] = x->v->unk;
    return GX_OK;
}

static GxStatus gx__words_make_files(GxWordsReading *x)
{
    const GxJson *root[] = {x->from->json, x->from->config};
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_json_dump(root[i], 2, &x->v->file[i], &x->v->file_n[i], x->err));
        if (x->v->file_n[i] > GX__WORDS_CAP)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: %s would have %ld bytes; at most %d are read again",
                           x->path, gx__words_files[i], (long)x->v->file_n[i], GX__WORDS_CAP);
    }
    return GX_OK;
}

static GxStatus gx__words_read_files(GxWordsReading *x)
{
    char folder[GX_PATH], path[GX_PATH];
    gx_path_parent(folder, x->path);
    for (int i = 0; i < GX__WORDS_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__words_files[i], x->err));
        if (i == 3) GX_TRY(gx_tokenizer_template_path(path, folder, x->err));
        if (i > 0 && !gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(i ? path : x->path, GX__WORDS_CAP, &x->v->file[i], &x->v->file_n[i], x->err));
    }
    return GX_OK;
}

static uint64_t gx__words_hash_steps(uint64_t hash, const GxWordSteps *steps)
{
    for (int i = 0; i < steps->n; i++) {
        const GxWordStep *s = &steps->step[i];
        const int64_t numbers[] = {s->kind, s->keeps, s->text_n, s->content_n};
        hash = gx_hash(hash, numbers, sizeof numbers);
        if (s->text) hash = gx_hash(hash, s->text, s->text_n);
        if (s->content) hash = gx_hash(hash, s->content, s->content_n);
    }
    return hash;
}

// Of all that ids follow from.
static void gx__words_identify(GxWordsReading *x)
{
    const GxWords *v = x->v;
    const GxPieces *p = v->p;
    const int64_t settings[] = {v->added_n,       v->normalizer.n,  v->pre_tokenizer.n,
                                x->t->frame[0].n, x->t->frame[1].n, (int64_t)v->content};
    uint64_t hash = gx_hash(v->model->hash(v, GX_HASH_START), settings, sizeof settings);
    hash = gx__words_hash_steps(gx__words_hash_steps(hash, &v->normalizer), &v->pre_tokenizer);
    hash = gx_hash(hash, x->t->frame, sizeof x->t->frame);
    for (int i = 0; i < v->added_n; i++) {
        const GxWordAdded *a = &v->added[i];
        const int64_t token[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip};
        hash = gx_hash(hash, token, sizeof token);
    }
    for (int32_t id = 0; id < p->size; id++) {
        const char *piece = p->at[id] < 0 ? "" : p->text + p->at[id];
        const int64_t is_model = p->at[id] < 0 ? -1 : p->flags[id] & GX_PIECE_MODEL;
        hash = gx_hash(gx_hash(hash, &is_model, sizeof is_model), piece, gx_pieces_bytes(p, id) + 1);
    }
    snprintf(x->t->identity, sizeof x->t->identity, "%s-%ld-%016lx", v->model->name, (long)p->size,
             (unsigned long)hash);
}

static GxStatus gx__words_finish(GxWordsReading *x)
{
    x->t->vocab_size = x->v->p->size;
    x->t->longest = gx_words_longest(x->v);
    x->t->tokens_for_byte = gx_words_tokens_for_byte(x->v);
    if (x->t->longest > GX__WORDS_LONGEST || x->t->tokens_for_byte > GX__WORDS_LONGEST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: a byte may become %d tokens, and a token %d bytes of text; at most %d are built", x->path,
                       x->t->tokens_for_byte, x->t->longest, GX__WORDS_LONGEST);
    gx__words_identify(x);
    return GX_OK;
}

static GxStatus gx__words_read(GxWordsReading *x, GxWordsReadModel read_model)
{
    GxJson *model = NULL;
    GX_TRY(gx_json_get_object(x->from->json, "model", 1, &model, x->path, x->err));
    GX_TRY(read_model(x, model));
    GX_TRY(gx__words_read_row(x, "normalizer", "normalizers", gx__words_normalizers, &x->v->normalizer));
    GX_TRY(gx__words_read_row(x, "pre_tokenizer", "pretokenizers", gx__words_pre_tokenizers, &x->v->pre_tokenizer));
    GX_TRY(gx__words_read_row(x, "decoder", "decoders", gx__words_decoders, &x->v->decoder));
    x->v->has_decoder = gx_json_type(gx_json_get(x->from->json, "decoder")) == GX_JSON_OBJECT;
    GX_TRY(gx__words_read_added(x));
    GX_TRY(gx__words_read_frame(x));
    GX_TRY(gx__words_read_roles(x));
    GX_TRY(x->is_made ? gx__words_make_files(x) : gx__words_read_files(x));
    return gx__words_finish(x);
}

void gx_words_close(GxTokenizer *t)
{
    GxWords *v = (GxWords *)t->vocabulary;
    if (v) {
        for (int i = 0; i < v->added_n; i++) free(v->added[i].pattern);
        for (int i = 0; i < GX__WORDS_FILES; i++) free(v->file[i]);
        free(v->added);
        gx_words_steps_close(&v->normalizer);
        gx_words_steps_close(&v->pre_tokenizer);
        gx_words_steps_close(&v->decoder);
        if (v->model) v->model->close(v);
    }
    free(v);
    memset(t, 0, sizeof *t);
}

GxStatus gx_words_open(GxTokenizer *t, const GxTokenizerKind *kind, int64_t bytes, GxWordsReadModel read_model,
                       const GxTokenizerSource *from, int is_made, GxError *err)
{
    GxWordsReading x = GX_ZERO;
    memset(t, 0, sizeof *t);
    t->kind = kind;
    for (int i = 0; i < GX_TOKEN_ROLES; i++) t->role[i] = -1;
    t->end = -1;
    t->vocabulary = calloc(1, (size_t)bytes);
    x.t = t, x.v = (GxWords *)t->vocabulary, x.from = from, x.path = from->path, x.err = err, x.is_made = is_made;
    const GxStatus status =
        x.v ? gx__words_read(&x, read_model) : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    if (status != GX_OK) gx_words_close(t);
    return status;
}

// ---- the kind ------------------------------------------------------------------------------------------------------

GxStatus gx_words_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    static const char config[] = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n"; // where there is none
    const GxWords *v = (const GxWords *)t->vocabulary;
    char path[GX_PATH];
    for (int i = 0; i < GX__WORDS_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__words_files[i], err));
        if (v->file[i]) GX_TRY(gx_file_write(path, v->file[i], v->file_n[i], err));
        else if (i == 1) GX_TRY(gx_file_write(path, config, (int64_t)strlen(config), err));
    }
    return GX_OK;
}

const char *gx_words_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    return (void)room, gx_pieces_text(((const GxWords *)t->vocabulary)->p, id);
}
int32_t gx_words_find(const GxTokenizer *t, const char *piece)
{
    return gx__words_any((const GxWords *)t->vocabulary, piece);
}
int gx_words_is_special(const GxTokenizer *t, int32_t id)
{
    return (((const GxWords *)t->vocabulary)->p->flags[id] & GX_PIECE_SPECIAL) != 0;
}

// A piece of the model that begins with no space: neither with Ġ nor with ▁.
int gx_words_continues(const GxTokenizer *t, int32_t id)
{
    const GxPieces *p = ((const GxWords *)t->vocabulary)->p;
    const char *piece = gx_pieces_text(p, id);
    return piece && p->flags[id] == GX_PIECE_MODEL && strncmp(piece, "\xC4\xA0", 2) != 0 &&
           strncmp(piece, "\xE2\x96\x81", 3) != 0;
}

void gx_words_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE])
{
    const GxPieces *p = ((const GxWords *)a->vocabulary)->p, *q = ((const GxWords *)b->vocabulary)->p;
    gx_pieces_difference(p, q, "the same pieces, but other merges, scores, settings or added tokens", out,
                         GX_TOKENIZER_DIFFERENCE);
}
#endif
