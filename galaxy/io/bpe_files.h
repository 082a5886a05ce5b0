// bpe_files.h: BPE tokenizers in files: tokenizer.json, as Hugging Face's libraries have it. The algorithm: bpe.h, what
// is before and behind it: bpe_text.h; to open and use one: tokenizer.h.
//
// What is read: the model BPE with merges as "a b" or ["a", "b"]; the normalizers NFC, Prepend, Replace; the
// pre-tokenizers ByteLevel, Split (Isolated or Removed), Digits, Metaspace; the post-processors ByteLevel and
// TemplateProcessing; the decoders ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace; a Sequence of any of them,
// or null. That is byte-level BPE (GPT-2, LLaMA-3, Qwen, SmolLM2, DeepSeek) and BPE with bytes for unknown characters
// (LLaMA-2, Mistral). Anything else is refused by name.
//
// gx_tokenizer_write writes the files again as they were, byte for byte; those of a tokenizer that was made here
// (bpe_train.h) as gx_json_dump has them.
#ifndef GX_BPE_FILES_H
#define GX_BPE_FILES_H
#include "bpe_text.h"
GX_BEGIN

extern const GxTokenizerKind gx_bpe;
// One that no file has: tokenizer.json's root and tokenizer_config.json's, which gx_tokenizer_write then writes.
// `where` names it in messages.
GxStatus gx_bpe_make(GxTokenizer *t, const GxJson *json, const GxJson *config, const char *where, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BPE_FILES_IMPLEMENTED)
#define GX_BPE_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__BPE_IDS = 1 << 24, GX__BPE_FILE_CAP = 64 << 20, GX__BPE_LONGEST = 1 << 16, GX__BPE_FILES = 4 };
// Beside the first, which each has: those that lie there are kept.
static const char *const gx__bpe_files[GX__BPE_FILES] = {"tokenizer.json", "tokenizer_config.json",
                                                         "special_tokens_map.json", "chat_template.jinja"};
static const char gx__bpe_words_of_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct { // a file that is being read
    GxTokenizer *t;
    GxBpeTokenizer *v;
    const GxTokenizerSource *from;
    const char *path;
    int is_made;     // it was read from no file
    uint64_t merges; // a hash of them
    GxError *err;
} gx__BpeReading;

// ---- steps ---------------------------------------------------------------------------------------------------------

static char *gx__bpe_copy(const char *text, int64_t n)
{
    char *copy = (char *)malloc((size_t)n + 1);
    if (copy) memcpy(copy, text, (size_t)n + 1);
    return copy;
}

static GxStatus gx__bpe_add_step(gx__BpeReading *x, GxBpeSteps *steps, GxBpeStepKind kind, int64_t keeps,
                                 const char *text, const char *content)
{
    GxBpeStep *s = &steps->step[steps->n];
    if (steps->n == GX_BPE_STEPS)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: a sequence of more than %d steps", x->path, GX_BPE_STEPS);
    steps->n++;
    s->kind = kind, s->keeps = keeps;
    if (text) s->text_n = (int64_t)strlen(text), s->text = gx__bpe_copy(text, s->text_n);
    if (content) s->content_n = (int64_t)strlen(content), s->content = gx__bpe_copy(content, s->content_n);
    if ((text && !s->text) || (content && !s->content))
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    return kind == GX_BPE_SPLIT ? gx_regex_open(&s->regex, text, x->path, x->err) : GX_OK;
}

static GxStatus gx__bpe_refuse(gx__BpeReading *x, const char *type, const char *key, const char *found,
                               const char *built)
{
    char cut[GX_TEXT_VALUE];
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: %s has %s \"%s\"; what is built: %s", x->path, type, key,
                   gx_text_cut(found, cut, sizeof cut), built);
}

// A string that may not be empty.
static GxStatus gx__bpe_get_text(gx__BpeReading *x, const GxJson *from, const char *type, const char *key,
                                 const char **text)
{
    GX_TRY(gx_json_get_string(from, key, 1, text, x->path, x->err));
    if (**text) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the \"%s\" of %s is empty", x->path, key, type);
}

// {"String": " "} or {"Regex": "\\s+"}; *is_regex tells them apart.
static GxStatus gx__bpe_get_pattern(gx__BpeReading *x, const GxJson *from, const char *type, const char **text,
                                    int *is_regex)
{
    GxJson *pattern = NULL;
    GX_TRY(gx_json_get_object(from, "pattern", 1, &pattern, x->path, x->err));
    *is_regex = gx_json_get(pattern, "Regex") != NULL;
    return gx__bpe_get_text(x, pattern, type, *is_regex ? "Regex" : "String", text);
}

static GxStatus gx__bpe_read_nfc(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    uint32_t none[GX_NFD_MOST];
    int64_t n;
    (void)from;
    if (!gx_unicode_has_nfd()) return gx_unicode_nfc(none, 0, none, &n, x->err); // says it
    return gx__bpe_add_step(x, steps, GX_BPE_NFC, 0, NULL, NULL);
}

static GxStatus gx__bpe_read_prepend(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    const char *text = "";
    GX_TRY(gx__bpe_get_text(x, from, "Prepend", "prepend", &text));
    return gx__bpe_add_step(x, steps, GX_BPE_PREPEND, 0, text, NULL);
}

static GxStatus gx__bpe_read_replace(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    const char *text = "", *content = "";
    int is_regex = 0;
    GX_TRY(gx__bpe_get_pattern(x, from, "Replace", &text, &is_regex));
    GX_TRY(gx_json_get_string(from, "content", 1, &content, x->path, x->err));
    if (is_regex) return gx__bpe_refuse(x, "Replace", "the Regex", text, "a String");
    return gx__bpe_add_step(x, steps, GX_BPE_REPLACE, 0, text, content);
}

// text with a \ before each sign; free it.
static char *gx__bpe_escape(const char *text)
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

static GxStatus gx__bpe_read_split(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    const char *text = "", *behavior = "";
    int is_regex = 0, invert = 0;
    GX_TRY(gx__bpe_get_pattern(x, from, "Split", &text, &is_regex));
    GX_TRY(gx_json_get_string(from, "behavior", 1, &behavior, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "invert", 1, &invert, x->path, x->err));
    const int is_isolated = !strcmp(behavior, "Isolated"), keeps = is_isolated ? GX_BPE_MATCHES | GX_BPE_GAPS
                                                                   : invert    ? GX_BPE_MATCHES
                                                                               : GX_BPE_GAPS;
    if (!is_isolated && strcmp(behavior, "Removed"))
        return gx__bpe_refuse(x, "Split", "the behavior", behavior, "Isolated, Removed");
    if (is_regex) return gx__bpe_add_step(x, steps, GX_BPE_SPLIT, keeps, text, NULL);
    char *escaped = gx__bpe_escape(text);
    if (!escaped) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a tokenizer");
    const GxStatus status = gx__bpe_add_step(x, steps, GX_BPE_SPLIT, keeps, escaped, NULL);
    free(escaped);
    return status;
}

static GxStatus gx__bpe_read_digits(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    int each = 0;
    GX_TRY(gx_json_get_bool(from, "individual_digits", 1, &each, x->path, x->err));
    return gx__bpe_add_step(x, steps, GX_BPE_DIGITS, each, NULL, NULL);
}

static GxStatus gx__bpe_read_byte_level(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    int has_prefix = 0, use_regex = 1;
    GX_TRY(gx_json_get_bool(from, "add_prefix_space", 1, &has_prefix, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "use_regex", 0, &use_regex, x->path, x->err));
    if (has_prefix) GX_TRY(gx__bpe_add_step(x, steps, GX_BPE_PREFIX, 0, NULL, NULL));
    if (use_regex)
        GX_TRY(gx__bpe_add_step(x, steps, GX_BPE_SPLIT, GX_BPE_MATCHES | GX_BPE_GAPS, gx__bpe_words_of_gpt2, NULL));
    return gx__bpe_add_step(x, steps, GX_BPE_BYTES, 0, NULL, NULL);
}

// Files of before 2024 have add_prefix_space alone.
static GxStatus gx__bpe_get_scheme(gx__BpeReading *x, const GxJson *from, int64_t *scheme)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name = NULL;
    int has_prefix = 1;
    GX_TRY(gx_json_get_bool(from, "add_prefix_space", 0, &has_prefix, x->path, x->err));
    GX_TRY(gx_json_get_string(from, "prepend_scheme", 0, &name, x->path, x->err));
    *scheme = has_prefix ? GX_BPE_ALWAYS : GX_BPE_NEVER;
    if (!name) return GX_OK;
    for (*scheme = 0; *scheme < 3; ++*scheme)
        if (!strcmp(name, names[*scheme])) break;
    if (*scheme == 3) return gx__bpe_refuse(x, "Metaspace", "the prepend_scheme", name, "always, first, never");
    if (has_prefix || *scheme == GX_BPE_NEVER) return GX_OK;
    return GX_FAIL(
        x->err, GX_ERR_FORMAT,
        "%s: Metaspace has the prepend_scheme \"%s\" and add_prefix_space false, which contradict each other", x->path,
        name);
}

static GxStatus gx__bpe_read_metaspace(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    const char *text = "";
    int64_t scheme = 0;
    int split = 1;
    GX_TRY(gx__bpe_get_text(x, from, "Metaspace", "replacement", &text));
    GX_TRY(gx__bpe_get_scheme(x, from, &scheme));
    GX_TRY(gx_json_get_bool(from, "split", 0, &split, x->path, x->err));
    GX_TRY(gx__bpe_add_step(x, steps, GX_BPE_METASPACE, scheme, text, NULL));
    return split && steps == &x->v->pre_tokenizer ? gx__bpe_add_step(x, steps, GX_BPE_BEFORE, 0, text, NULL) : GX_OK;
}

static GxStatus gx__bpe_read_bytes(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    return (void)from, gx__bpe_add_step(x, steps, GX_BPE_BYTES, 0, NULL, NULL);
}
static GxStatus gx__bpe_read_fallback(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    return (void)from, gx__bpe_add_step(x, steps, GX_BPE_BYTE_FALLBACK, 0, NULL, NULL);
}
static GxStatus gx__bpe_read_fuse(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    return (void)from, gx__bpe_add_step(x, steps, GX_BPE_FUSE, 0, NULL, NULL);
}

static GxStatus gx__bpe_read_strip(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps)
{
    const char *text = "";
    int64_t start = 0, stop = 0;
    GX_TRY(gx__bpe_get_text(x, from, "Strip", "content", &text));
    GX_TRY(gx_json_get_int(from, "start", 1, &start, x->path, x->err));
    GX_TRY(gx_json_get_int(from, "stop", 1, &stop, x->path, x->err));
    if (start < 0 || stop != 0)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: Strip has start %ld and stop %ld; what is built: 0 or more, and 0", x->path, (long)start,
                       (long)stop);
    return gx__bpe_add_step(x, steps, GX_BPE_STRIP, start, text, NULL);
}

typedef struct {
    const char *type;
    GxStatus (*read)(gx__BpeReading *x, const GxJson *from, GxBpeSteps *steps);
} gx__BpeComponent;
static const gx__BpeComponent gx__bpe_normalizers[] = {
    {"NFC", gx__bpe_read_nfc}, {"Prepend", gx__bpe_read_prepend}, {"Replace", gx__bpe_read_replace}, {NULL, NULL}};
static const gx__BpeComponent gx__bpe_pre_tokenizers[] = {{"ByteLevel", gx__bpe_read_byte_level},
                                                          {"Split", gx__bpe_read_split},
                                                          {"Digits", gx__bpe_read_digits},
                                                          {"Metaspace", gx__bpe_read_metaspace},
                                                          {NULL, NULL}};
static const gx__BpeComponent gx__bpe_decoders[] = {{"ByteLevel", gx__bpe_read_bytes},
                                                    {"Replace", gx__bpe_read_replace},
                                                    {"ByteFallback", gx__bpe_read_fallback},
                                                    {"Fuse", gx__bpe_read_fuse},
                                                    {"Strip", gx__bpe_read_strip},
                                                    {"Metaspace", gx__bpe_read_metaspace},
                                                    {NULL, NULL}};

static GxStatus gx__bpe_unknown_type(gx__BpeReading *x, const char *what, const char *type,
                                     const gx__BpeComponent *known)
{
    char built[200] = "", cut[GX_TEXT_VALUE];
    for (; known->type; known++) snprintf(built + strlen(built), sizeof built - strlen(built), "%s, ", known->type);
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: the %s is of the type \"%s\"; what is built: %sSequence, null",
                   x->path, what, gx_text_cut(type, cut, sizeof cut), built);
}

// One component, or each of a sequence.
static GxStatus gx__bpe_read_steps(gx__BpeReading *x, const char *what, const char *members, const GxJson *from,
                                   const gx__BpeComponent *known, GxBpeSteps *steps)
{
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    for (const gx__BpeComponent *k = known; k->type; k++)
        if (!strcmp(k->type, type)) return k->read(x, from, steps);
    if (strcmp(type, "Sequence")) return gx__bpe_unknown_type(x, what, type, known);
    GX_TRY(gx_json_get_array(from, members, 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__bpe_read_steps(x, what, members, gx_json_at(list, i), known, steps));
    return GX_OK;
}

static GxStatus gx__bpe_read_row(gx__BpeReading *x, const char *what, const char *members,
                                 const gx__BpeComponent *known, GxBpeSteps *steps)
{
    GxJson *from = NULL;
    GX_TRY(gx_json_get_object(x->from->json, what, 0, &from, x->path, x->err));
    return from ? gx__bpe_read_steps(x, what, members, from, known, steps) : GX_OK;
}

// ---- the model -----------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_read_vocab(gx__BpeReading *x, const GxJson *vocab)
{
    GxPieces *p = &x->v->model.p;
    char cut[GX_TEXT_VALUE];
    if (gx_json_size(vocab) == 0) return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the vocabulary is empty", x->path);
    for (GxJsonMember m = GX_ZERO; gx_json_next(vocab, &m);) {
        const int64_t id = gx_json_int(m.value);
        gx_text_cut(m.key, cut, sizeof cut);
        if (gx_json_type(m.value) != GX_JSON_INT || id < 0 || id >= GX__BPE_IDS)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the id of \"%s\" is %s; expected an integer from 0 to %d",
                           x->path, cut, gx_json_type_name(m.value), GX__BPE_IDS - 1);
        if (id < p->size && p->at[id] >= 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: \"%s\" has the id %ld, and so has another piece", x->path, cut,
                           (long)id);
        GX_TRY(gx_pieces_add(p, (int32_t)id, m.key, (int64_t)strlen(m.key), GX_PIECE_MODEL, x->err));
    }
    return gx_pieces_index(p, x->err);
}

// The two parts of a merge, "a b" or ["a", "b"].
static GxStatus gx__bpe_parts(gx__BpeReading *x, const GxJson *merge, int64_t i, const char *part[2], int64_t bytes[2])
{
    const char *text = gx_json_string(merge), *space = strchr(text, ' ');
    if (gx_json_type(merge) == GX_JSON_STRING && space && space > text && space[1] && !strchr(space + 1, ' ')) {
        part[0] = text, bytes[0] = space - text;
        part[1] = space + 1, bytes[1] = (int64_t)strlen(space + 1);
        return GX_OK;
    }
    for (int k = 0; k < 2; k++) part[k] = gx_json_string(gx_json_at(merge, k)), bytes[k] = (int64_t)strlen(part[k]);
    if (gx_json_type(merge) == GX_JSON_ARRAY && gx_json_size(merge) == 2 && bytes[0] > 0 && bytes[1] > 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: merge %ld is %s%s%.100s; expected \"a b\" or [\"a\", \"b\"]", x->path,
                   (long)i, gx_json_type_name(merge), *text ? " " : "", text);
}

static GxStatus gx__bpe_read_merge(gx__BpeReading *x, const GxJson *merge, int64_t i, GxBpeBytes *both)
{
    GxBpe *b = &x->v->model;
    const char *part[3];
    int64_t bytes[3];
    int32_t id[3];
    GX_TRY(gx__bpe_parts(x, merge, i, part, bytes));
    both->n = 0;
    GX_TRY(gx__bpe_put(both, part[0], bytes[0], x->err));
    GX_TRY(gx__bpe_put(both, part[1], bytes[1], x->err));
    part[2] = both->p, bytes[2] = both->n;
    for (int k = 0; k < 3; k++)
        if ((id[k] = gx_pieces_find(&b->p, part[k], bytes[k])) < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: merge %ld has \"%.*s\", which is no piece of the vocabulary",
                           x->path, (long)i, (int)gx_min(bytes[k], 100), part[k]);
    x->merges = gx_hash(x->merges, id, sizeof id);
    gx_bpe_merge(b, id[0], id[1], id[2]);
    return GX_OK;
}

static GxStatus gx__bpe_read_merges(gx__BpeReading *x, const GxJson *merges)
{
    GxBpeBytes both = GX_ZERO;
    const int64_t n = gx_json_size(merges);
    GxStatus status = gx_bpe_reserve(&x->v->model, n, x->err);
    for (int64_t i = 0; i < n && status == GX_OK; i++) status = gx__bpe_read_merge(x, gx_json_at(merges, i), i, &both);
    gx__bpe_free(&both);
    return status;
}

// What changes the ids and is not built, if it is there at all.
static GxStatus gx__bpe_check_model(gx__BpeReading *x, const GxJson *model)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    for (int i = 0; i < 2; i++) {
        const char *text = "";
        GX_TRY(gx_json_get_string(model, keys[i], 0, &text, x->path, x->err));
        if (*text) return gx__bpe_refuse(x, "BPE", keys[i], text, "none");
    }
    GX_TRY(gx_json_get_double(model, "dropout", 0, &dropout, x->path, x->err));
    if (dropout == 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: BPE has the dropout %g; what is built: null", x->path, dropout);
}

static GxStatus gx__bpe_read_model(gx__BpeReading *x)
{
    GxBpe *b = &x->v->model;
    GxJson *model = NULL, *vocab = NULL, *merges = NULL;
    const char *unk = NULL;
    GX_TRY(gx_json_get_object(x->from->json, "model", 1, &model, x->path, x->err));
    GX_TRY(gx__bpe_check_model(x, model));
    GX_TRY(gx_json_get_string(model, "unk_token", 0, &unk, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "fuse_unk", 0, &b->fuse_unk, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "byte_fallback", 0, &b->byte_fallback, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "ignore_merges", 0, &b->ignore_merges, x->path, x->err));
    GX_TRY(gx_json_get_object(model, "vocab", 1, &vocab, x->path, x->err));
    GX_TRY(gx_json_get_array(model, "merges", 1, &merges, x->path, x->err));
    GX_TRY(gx__bpe_read_vocab(x, vocab));
    GX_TRY(gx__bpe_read_merges(x, merges));
    gx_bpe_ready(b);
    b->unk = unk ? gx_pieces_find(&b->p, unk, (int64_t)strlen(unk)) : -1;
    if (!unk || b->unk >= 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the unk_token is \"%.100s\", which is no piece of the vocabulary",
                   x->path, unk);
}

// ---- added tokens --------------------------------------------------------------------------------------------------

static int32_t gx__bpe_any(const GxBpeTokenizer *v, const char *piece) // added ones, too
{
    for (int i = 0; i < v->added_n; i++)
        if (!strcmp(v->model.p.text + v->model.p.at[v->added[i].id], piece)) return v->added[i].id;
    return gx_pieces_find(&v->model.p, piece, (int64_t)strlen(piece));
}

// Its pattern is the content, normalised if it is; it is put behind the special ones, or behind all.
static GxStatus gx__bpe_keep_added(gx__BpeReading *x, const GxBpeAdded *how, const char *content)
{
    GxBpeTokenizer *v = x->v;
    const GxBpeSteps none = GX_ZERO;
    GxBpeBytes pattern = GX_ZERO;
    GxBpeAdded token = *how;
    GxBpeAdded *grown = (GxBpeAdded *)realloc(v->added, (size_t)(v->added_n + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", content);
    v->added = grown;
    GxStatus status = gx_bpe_normalize(token.normalized ? &v->normalizer : &none, content, (int64_t)strlen(content),
                                       &pattern, x->err);
    if (status == GX_OK && pattern.n == 0)
        status = GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" is empty when it is normalised",
                         x->path, content);
    if (status != GX_OK) {
        gx__bpe_free(&pattern);
        return status;
    }
    token.pattern = pattern.p, token.bytes = pattern.n;
    int at = v->added_n++;
    for (; token.special && at > 0 && !v->added[at - 1].special; at--) v->added[at] = v->added[at - 1];
    v->added[at] = token;
    v->leads[token.normalized][(unsigned char)token.pattern[0]] = 1;
    v->model.p.flags[token.id] |=
        (unsigned char)((token.special ? GX_PIECE_SPECIAL : 0) | (token.normalized ? GX_PIECE_NORMALIZED : 0));
    return GX_OK;
}

static GxStatus gx__bpe_read_one_added(gx__BpeReading *x, const GxJson *from)
{
    GxBpeTokenizer *v = x->v;
    GxBpeAdded token = GX_ZERO;
    const char *content = "";
    int64_t id = -1;
    int single_word = 0;
    GX_TRY(gx_json_get_int(from, "id", 1, &id, x->path, x->err));
    GX_TRY(gx__bpe_get_text(x, from, "an added token", "content", &content));
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
    const int32_t known = gx__bpe_any(v, content);
    const int is_free = id >= 0 && id < GX__BPE_IDS && (id >= v->model.p.size || v->model.p.at[id] < 0);
    if (known >= 0 ? known != id : !is_free)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" has the id %ld; %s", x->path, content,
                       (long)id,
                       known >= 0 ? "the vocabulary has another one for it" : "expected one that no other piece has");
    for (int i = 0; i < v->added_n; i++)
        if (v->added[i].id == id) return GX_OK; // said twice
    token.id = (int32_t)id;
    if (known < 0) GX_TRY(gx_pieces_add(&v->model.p, token.id, content, (int64_t)strlen(content), 0, x->err));
    return gx__bpe_keep_added(x, &token, content);
}

static GxStatus gx__bpe_read_added(gx__BpeReading *x)
{
    GxJson *list = NULL;
    GX_TRY(gx_json_get_array(x->from->json, "added_tokens", 0, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++) GX_TRY(gx__bpe_read_one_added(x, gx_json_at(list, i)));
    return GX_OK;
}

// ---- the frame -----------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_frame_part(gx__BpeReading *x, GxTokenFrame *frame, int32_t id, int64_t type)
{
    if (frame->n == GX_FRAME_MOST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing has more than %d parts", x->path,
                       GX_FRAME_MOST);
    frame->part[frame->n].id = id;
    frame->part[frame->n++].type = (int)(type != 0);
    return GX_OK;
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}}: the ids of the token of that name
static GxStatus gx__bpe_frame_token(gx__BpeReading *x, const GxJson *tokens, const char *name, int64_t type,
                                    GxTokenFrame *frame)
{
    GxJson *token = NULL, *ids = NULL;
    GX_TRY(gx_json_get_object(tokens, name, 1, &token, x->path, x->err));
    GX_TRY(gx_json_get_array(token, "ids", 1, &ids, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(ids); i++) {
        const int64_t id = gx_json_int(gx_json_at(ids, i));
        if (gx_json_type(gx_json_at(ids, i)) != GX_JSON_INT || id < 0 || id >= x->v->model.p.size ||
            x->v->model.p.at[id] < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: TemplateProcessing's \"%.100s\" has an id that no piece has",
                           x->path, name);
        GX_TRY(gx__bpe_frame_part(x, frame, (int32_t)id, type));
    }
    return GX_OK;
}

static GxStatus gx__bpe_read_template(gx__BpeReading *x, const GxJson *from, int two)
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
        if (!text) GX_TRY(gx__bpe_frame_token(x, tokens, name, type, frame));
        else GX_TRY(gx__bpe_frame_part(x, frame, *name == 'A' ? GX_FRAME_A : GX_FRAME_B, type));
        a += text && *name == 'A', b += text && *name == 'B';
    }
    if (a == 1 && b == two) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                   "%s: TemplateProcessing's \"%s\" has A %d times and B %d times; what is "
                   "built: each text once",
                   x->path, two ? "pair" : "single", a, b);
}

static GxStatus gx__bpe_read_processor(gx__BpeReading *x, const GxJson *from, int *templates)
{
    static const gx__BpeComponent known[] = {{"ByteLevel", NULL}, {"TemplateProcessing", NULL}, {NULL, NULL}};
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    if (!strcmp(type, "ByteLevel")) return GX_OK; // changes offsets alone
    if (!strcmp(type, "TemplateProcessing")) {
        if (++*templates > 1)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing twice; what is built: once", x->path);
        GX_TRY(gx__bpe_read_template(x, from, 0));
        return gx__bpe_read_template(x, from, 1);
    }
    if (strcmp(type, "Sequence")) return gx__bpe_unknown_type(x, "post_processor", type, known);
    GX_TRY(gx_json_get_array(from, "processors", 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++) GX_TRY(gx__bpe_read_processor(x, gx_json_at(list, i), templates));
    return GX_OK;
}

static GxStatus gx__bpe_read_frame(gx__BpeReading *x)
{
    GxJson *from = NULL;
    int templates = 0;
    for (int two = 0; two < 2; two++) {
        GX_TRY(gx__bpe_frame_part(x, &x->t->frame[two], GX_FRAME_A, 0));
        if (two) GX_TRY(gx__bpe_frame_part(x, &x->t->frame[two], GX_FRAME_B, 1));
    }
    GX_TRY(gx_json_get_object(x->from->json, "post_processor", 0, &from, x->path, x->err));
    return from ? gx__bpe_read_processor(x, from, &templates) : GX_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

// Those tokens of tokenizer_config.json that are asked for by their role; texts are framed by the file's own template.
static GxStatus gx__bpe_read_roles(gx__BpeReading *x)
{
    GxTokenizer *t = x->t;
    const struct {
        int32_t *id;
        const char *key;
    } known[] = {
        {&t->role[GX_TOKEN_PAD], "pad_token"}, {&t->role[GX_TOKEN_MASK], "mask_token"}, {&t->end, "eos_token"}};
    for (int i = 0; i < 3; i++) {
        const GxJson *said = gx_json_get(x->from->config, known[i].key);
        if (gx_json_type(said) == GX_JSON_OBJECT) said = gx_json_get(said, "content");
        if (gx_json_type(said) == GX_JSON_STRING) *known[i].id = gx__bpe_any(x->v, gx_json_string(said));
    }
    x->t->role[GX_TOKEN_UNK] = x->v->model.unk;
    return GX_OK;
}

static GxStatus gx__bpe_make_files(gx__BpeReading *x)
{
    const GxJson *root[] = {x->from->json, x->from->config};
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_json_dump(root[i], 2, &x->v->file[i], &x->v->file_n[i], x->err));
        if (x->v->file_n[i] > GX__BPE_FILE_CAP)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: %s would have %ld bytes; at most %d are read again",
                           x->path, gx__bpe_files[i], (long)x->v->file_n[i], GX__BPE_FILE_CAP);
    }
    return GX_OK;
}

static GxStatus gx__bpe_read_files(gx__BpeReading *x)
{
    char folder[GX_PATH], path[GX_PATH];
    gx__files_path_parent(folder, x->path);
    for (int i = 0; i < GX__BPE_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__bpe_files[i], x->err));
        if (i > 0 && !gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(i ? path : x->path, GX__BPE_FILE_CAP, &x->v->file[i], &x->v->file_n[i], x->err));
    }
    return GX_OK;
}

static uint64_t gx__bpe_hash_steps(uint64_t hash, const GxBpeSteps *steps)
{
    for (int i = 0; i < steps->n; i++) {
        const GxBpeStep *s = &steps->step[i];
        const int64_t numbers[] = {s->kind, s->keeps, s->text_n, s->content_n};
        hash = gx_hash(hash, numbers, sizeof numbers);
        if (s->text) hash = gx_hash(hash, s->text, s->text_n);
        if (s->content) hash = gx_hash(hash, s->content, s->content_n);
    }
    return hash;
}

// Of all that ids follow from.
static void gx__bpe_identify(gx__BpeReading *x)
{
    const GxBpeTokenizer *v = x->v;
    const GxBpe *b = &v->model;
    const int64_t settings[] = {b->merges,        b->unk,           b->fuse_unk,       b->byte_fallback,
                                b->ignore_merges, v->added_n,       v->normalizer.n,   v->pre_tokenizer.n,
                                x->t->frame[0].n, x->t->frame[1].n, (int64_t)x->merges};
    uint64_t hash = gx_hash(GX_HASH_START, settings, sizeof settings);
    hash = gx__bpe_hash_steps(gx__bpe_hash_steps(hash, &v->normalizer), &v->pre_tokenizer);
    hash = gx_hash(hash, x->t->frame, sizeof x->t->frame);
    for (int i = 0; i < v->added_n; i++) {
        const GxBpeAdded *a = &v->added[i];
        const int64_t token[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip};
        hash = gx_hash(hash, token, sizeof token);
    }
    for (int32_t id = 0; id < b->p.size; id++) {
        const char *piece = b->p.at[id] < 0 ? "" : b->p.text + b->p.at[id];
        const int64_t is_model = b->p.at[id] < 0 ? -1 : b->p.flags[id] & GX_PIECE_MODEL;
        hash = gx_hash(gx_hash(hash, &is_model, sizeof is_model), piece, (int64_t)strlen(piece) + 1);
    }
    snprintf(x->t->identity, sizeof x->t->identity, "bpe-%ld-%016lx", (long)b->p.size, (unsigned long)hash);
}

static GxStatus gx__bpe_finish(gx__BpeReading *x)
{
    x->t->vocab_size = x->v->model.p.size;
    x->t->longest = gx_bpe_longest(x->v);
    x->t->tokens_for_byte = gx_bpe_tokens_for_byte(x->v);
    if (x->t->longest > GX__BPE_LONGEST || x->t->tokens_for_byte > GX__BPE_LONGEST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: a byte may become %d tokens, and a token %d bytes of text; at most %d are built", x->path,
                       x->t->tokens_for_byte, x->t->longest, GX__BPE_LONGEST);
    gx__bpe_identify(x);
    return GX_OK;
}

static GxStatus gx__bpe_read(gx__BpeReading *x)
{
    GX_TRY(gx__bpe_read_model(x));
    GX_TRY(gx__bpe_read_row(x, "normalizer", "normalizers", gx__bpe_normalizers, &x->v->normalizer));
    GX_TRY(gx__bpe_read_row(x, "pre_tokenizer", "pretokenizers", gx__bpe_pre_tokenizers, &x->v->pre_tokenizer));
    GX_TRY(gx__bpe_read_row(x, "decoder", "decoders", gx__bpe_decoders, &x->v->decoder));
    x->v->has_decoder = gx_json_type(gx_json_get(x->from->json, "decoder")) == GX_JSON_OBJECT;
    GX_TRY(gx__bpe_read_added(x));
    GX_TRY(gx__bpe_read_frame(x));
    GX_TRY(gx__bpe_read_roles(x));
    GX_TRY(x->is_made ? gx__bpe_make_files(x) : gx__bpe_read_files(x));
    return gx__bpe_finish(x);
}

static void gx__bpe_close(GxTokenizer *t)
{
    GxBpeTokenizer *v = (GxBpeTokenizer *)t->vocabulary;
    if (v) {
        for (int i = 0; i < v->added_n; i++) free(v->added[i].pattern);
        for (int i = 0; i < GX__BPE_FILES; i++) free(v->file[i]);
        free(v->added);
        gx_bpe_steps_close(&v->normalizer);
        gx_bpe_steps_close(&v->pre_tokenizer);
        gx_bpe_steps_close(&v->decoder);
        gx_bpe_close(&v->model);
    }
    free(v);
    memset(t, 0, sizeof *t);
}

static GxStatus gx__bpe_open_from(GxTokenizer *t, const GxTokenizerSource *from, int is_made, GxError *err)
{
    gx__BpeReading x = GX_ZERO;
    memset(t, 0, sizeof *t);
    t->kind = &gx_bpe;
    for (int i = 0; i < GX_TOKEN_ROLES; i++) t->role[i] = -1;
    t->end = -1;
    t->vocabulary = calloc(1, sizeof(GxBpeTokenizer));
    x.t = t, x.v = (GxBpeTokenizer *)t->vocabulary, x.from = from, x.path = from->path, x.err = err;
    x.merges = GX_HASH_START, x.is_made = is_made;
    const GxStatus status = x.v ? gx__bpe_read(&x) : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    if (status != GX_OK) gx__bpe_close(t);
    return status;
}

static GxStatus gx__bpe_open(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    return gx__bpe_open_from(t, from, 0, err);
}

GxStatus gx_bpe_make(GxTokenizer *t, const GxJson *json, const GxJson *config, const char *where, GxError *err)
{
    const GxTokenizerSource from = {where, json, config, where};
    return gx__bpe_open_from(t, &from, 1, err);
}

// ---- the kind ------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    static const char config[] = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n"; // where there is none
    const GxBpeTokenizer *v = (const GxBpeTokenizer *)t->vocabulary;
    char path[GX_PATH];
    for (int i = 0; i < GX__BPE_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__bpe_files[i], err));
        if (v->file[i]) GX_TRY(gx_file_write(path, v->file[i], v->file_n[i], err));
        else if (i == 1) GX_TRY(gx_file_write(path, config, (int64_t)strlen(config), err));
    }
    return GX_OK;
}

static const char *gx__bpe_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    return (void)room, gx_pieces_text(&((const GxBpeTokenizer *)t->vocabulary)->model.p, id);
}
static int32_t gx__bpe_find_any(const GxTokenizer *t, const char *piece)
{
    return gx__bpe_any((const GxBpeTokenizer *)t->vocabulary, piece);
}
static int gx__bpe_is_special(const GxTokenizer *t, int32_t id)
{
    return (((const GxBpeTokenizer *)t->vocabulary)->model.p.flags[id] & GX_PIECE_SPECIAL) != 0;
}

// A piece of the model that begins with no space: neither with Ġ nor with ▁.
static int gx__bpe_continues(const GxTokenizer *t, int32_t id)
{
    const GxPieces *p = &((const GxBpeTokenizer *)t->vocabulary)->model.p;
    const char *piece = gx_pieces_text(p, id);
    return piece && p->flags[id] == GX_PIECE_MODEL && strncmp(piece, "\xC4\xA0", 2) != 0 &&
           strncmp(piece, "\xE2\x96\x81", 3) != 0;
}

static void gx__bpe_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE])
{
    const GxPieces *p = &((const GxBpeTokenizer *)a->vocabulary)->model.p,
                   *q = &((const GxBpeTokenizer *)b->vocabulary)->model.p;
    gx_pieces_difference(p, q, "the same pieces, but other merges, settings or added tokens", out,
                         GX_TOKENIZER_DIFFERENCE);
}

const GxTokenizerKind gx_bpe = {"BPE",
                                "BPE",
                                NULL,
                                gx__bpe_open,
                                gx__bpe_close,
                                gx_bpe_encode,
                                gx_bpe_decode,
                                gx__bpe_piece,
                                gx__bpe_find_any,
                                gx__bpe_is_special,
                                gx__bpe_continues,
                                gx__bpe_write,
                                gx__bpe_difference,
                                NULL};
#endif
