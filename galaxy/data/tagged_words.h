// tagged_words.h: files of sentences whose words have a label each, as for named entities and parts of speech.
//
//     {"tokens": ["Ada", "met", "Babbage"], "ner_tags": ["B-PER", "O", "B-PER"]}            JSON lines
//
//     Ada      NNP  B-PER                                                                   CoNLL's format
//     met      VBD  O
//     Babbage  NNP  B-PER
//
// JSON lines (.jsonl, .json, .ndjson): an object per line, with a list of words and a list of as many labels: names, or
// numbers that count the names of a list from 0. Other members are ignored. CoNLL's format (files of any other name): a
// line per word, whose first column is the word and whose last column is its label; columns are separated by tabs, or,
// in a line without tabs, by spaces. Empty lines separate sentences, and so do lines that begin with -DOCSTART-.
//
// Both: UTF-8 (a byte order mark at the beginning is skipped) without U+0000; a line ends with \n or \r\n. If labels may
// be absent, all sentences have them or none does.
//
//     GxTaggedWords t;
//     GX_TRY(gx_tagged_words_open(&t, "train.jsonl", &reading, err));
//     for (i < t.n) for (w = t.begin[i]; w < t.begin[i + 1]; w++) … gx_tagged_word(&t, w) … gx_tagged_label(&t, w) …
//     gx_tagged_words_close(&t);
//
// The whole file is read and checked when it is opened. An error names the file, the line, what was found and what was
// expected, and lists further wrong sentences (bad_lines.h); or they are left out. Memory: the file, its strings, and
// 16 bytes per word. It does not tokenize; what labels mean is up to the caller.
#ifndef GX_TAGGED_WORDS_H
#define GX_TAGGED_WORDS_H
#include "labels.h"
#include "../io/files.h"
GX_BEGIN

enum { GX_TAGGED_WORDS_CAP = 1 << 30, GX_TAGGED_COLUMN = 64 }; // bytes of a file; of a column's name
#define GX_TAGGED_LABELS "ner_tags, labels or tags"

typedef struct {
    const char *text;   // JSON lines: the member that has the words
    const char *label;  // the member that has the labels; "": the first of GX_TAGGED_LABELS that the file has
    int may_lack;       // labels may be absent
    GxBadRecords *skip; // counts wrong sentences, which are left out; NULL: they are errors
} GxTaggedReading;

typedef struct {
    int64_t n, words; // sentences; words of all of them
    int64_t *begin;   // [n + 1] each sentence's first word
    int64_t *line;    // [n] in which a sentence begins
    int64_t *word;    // [words] where in `text` each begins
    int64_t *label;   // [words] where in `text` its label begins; numbers: the label itself; has_labels 0: not set
    int has_labels, has_numbers;
    int is_lines; // 1: CoNLL's format, with a line per word
    int64_t bytes;
    uint64_t hash; // gx_hash of all bytes of the file
    char *text;
    char column[GX_TAGGED_COLUMN]; // the member that labels were read from
    char path[GX_PATH];
    int64_t capacity[3]; // of sentences, words and text
    int64_t text_n;
} GxTaggedWords;

GxStatus gx_tagged_words_open(GxTaggedWords *t, const char *path, const GxTaggedReading *reading, GxError *err);
void gx_tagged_words_close(GxTaggedWords *t); // accepts a struct of zeros

static inline const char *gx_tagged_word(const GxTaggedWords *t, int64_t w) { return t->text + t->word[w]; }
static inline const char *gx_tagged_label(const GxTaggedWords *t, int64_t w) // not of numbers
{
    return t->text + t->label[w];
}
static inline int64_t gx_tagged_count(const GxTaggedWords *t, int64_t i) { return t->begin[i + 1] - t->begin[i]; }
// The line of word w, which is in sentence i.
static inline int64_t gx_tagged_line(const GxTaggedWords *t, int64_t i, int64_t w)
{
    return t->line[i] + (t->is_lines ? w - t->begin[i] : 0);
}
int gx_tagged_is_json(const char *path); // 1: its name ends like that of JSON lines

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TAGGED_WORDS_IMPLEMENTED)
#define GX_TAGGED_WORDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/file_kind.h"
#include "../io/json.h"

int gx_tagged_is_json(const char *path)
{
    return gx_path_has_end(path, ".jsonl") || gx_path_has_end(path, ".json") || gx_path_has_end(path, ".ndjson");
}

void gx_tagged_words_close(GxTaggedWords *t)
{
    free(t->begin), free(t->line), free(t->word), free(t->label), free(t->text);
    memset(t, 0, sizeof *t);
}

// ---- what has been read --------------------------------------------------------------------------------------------

static GxStatus gx__tagged_grow(GxTaggedWords *t, void *array, int64_t capacity, int64_t size, GxError *err)
{
    void **at = (void **)array, *grown = realloc(*at, (size_t)(capacity * size));
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the words of %s", t->path);
    *at = grown;
    return GX_OK;
}

// Begins a sentence; t->words is the end of the last one.
static GxStatus gx__tagged_begin(GxTaggedWords *t, int64_t line, GxError *err)
{
    if (t->n + 1 >= t->capacity[0]) {
        const int64_t capacity = gx_max(1024, 2 * t->capacity[0]);
        GX_TRY(gx__tagged_grow(t, &t->begin, capacity, sizeof *t->begin, err));
        GX_TRY(gx__tagged_grow(t, &t->line, capacity, sizeof *t->line, err));
        t->capacity[0] = capacity;
    }
    t->line[t->n] = line, t->begin[t->n] = t->words;
    t->begin[++t->n] = t->words;
    return GX_OK;
}

static void gx__tagged_drop(GxTaggedWords *t) { t->words = t->begin[--t->n]; }

static GxStatus gx__tagged_put_text(GxTaggedWords *t, const char *text, int64_t bytes, int64_t *at, GxError *err)
{
    if (t->text_n + bytes + 1 > t->capacity[2]) {
        const int64_t capacity = t->text_n + bytes + 1 + t->capacity[2] / 2;
        GX_TRY(gx__tagged_grow(t, &t->text, capacity, 1, err));
        t->capacity[2] = capacity;
    }
    memcpy(t->text + t->text_n, text, (size_t)bytes);
    t->text[t->text_n + bytes] = 0;
    *at = t->text_n, t->text_n += bytes + 1;
    return GX_OK;
}

// Adds a word to the last sentence, without a label.
static GxStatus gx__tagged_put_word(GxTaggedWords *t, const char *word, int64_t bytes, GxError *err)
{
    if (t->words == t->capacity[1]) {
        const int64_t capacity = gx_max(4096, 2 * t->capacity[1]);
        GX_TRY(gx__tagged_grow(t, &t->word, capacity, sizeof *t->word, err));
        GX_TRY(gx__tagged_grow(t, &t->label, capacity, sizeof *t->label, err));
        t->capacity[1] = capacity;
    }
    t->label[t->words] = 0;
    GX_TRY(gx__tagged_put_text(t, word, bytes, &t->word[t->words], err));
    t->begin[t->n] = ++t->words;
    return GX_OK;
}

// The first sentence (in CoNLL's format its first word, which has not been added yet) decides whether the file has labels.
static GxStatus gx__tagged_check_has(GxTaggedWords *t, const GxTaggedReading *reading, int has, int64_t line,
                                     GxError *err)
{
    const int is_first = t->n == 1 && (!t->is_lines || !gx_tagged_count(t, 0));
    if (is_first && (has || reading->may_lack)) t->has_labels = has;
    if (has == t->has_labels && (has || reading->may_lack)) return GX_OK;
    if (!reading->may_lack || t->has_labels)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: there are no labels%s; expected one for each word", t->path,
                       (long)line, t->is_lines ? ", only one column" : "");
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s:%ld: there are labels here, but not in the sentences above; expected them in all or in none",
                   t->path, (long)line);
}

// ---- JSON lines ----------------------------------------------------------------------------------------------------

static GxStatus gx__tagged_json_words(GxTaggedWords *t, const GxJson *object, const GxTaggedReading *reading,
                                      int64_t number, GxError *err)
{
    const GxJson *list = gx_json_get(object, reading->text);
    if (gx_json_type(list) == GX_JSON_NONE)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: there is no \"%s\", the list of words; --text_column NAME names another member",
                       t->path, (long)number, reading->text);
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is %s; expected a list of words", t->path, (long)number,
                       reading->text, gx_json_type_name(list));
    if (!gx_json_size(list))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is empty; expected at least one word", t->path, (long)number,
                       reading->text);
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const GxJson *word = gx_json_at(list, i);
        if (gx_json_type(word) != GX_JSON_STRING)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: word %ld of \"%s\" is %s; expected a string", t->path,
                           (long)number, (long)i + 1, reading->text, gx_json_type_name(word));
        const char *text = gx_json_string(word);
        GX_TRY(gx__tagged_put_word(t, text, (int64_t)strlen(text), err));
    }
    return GX_OK;
}

// The list of labels; NULL: there is none. Which member has it is chosen by the first sentence that has labels.
static const GxJson *gx__tagged_json_column(GxTaggedWords *t, const GxJson *object, const GxTaggedReading *reading)
{
    static const char *const usual[] = {"ner_tags", "labels", "tags"};
    const GxJson *list = NULL;
    if (t->column[0] || reading->label[0]) list = gx_json_get(object, t->column[0] ? t->column : reading->label);
    for (int i = 0; i < 3 && !t->column[0] && !reading->label[0] && gx_json_type(list) <= GX_JSON_NULL; i++)
        list = gx_json_get(object, usual[i]);
    if (gx_json_type(list) <= GX_JSON_NULL) return NULL;
    for (int i = 0; i < 3 && !t->column[0] && !reading->label[0]; i++)
        if (gx_json_get(object, usual[i]) == list) snprintf(t->column, sizeof t->column, "%s", usual[i]);
    if (!t->column[0]) snprintf(t->column, sizeof t->column, "%s", reading->label);
    return list;
}

static GxStatus gx__tagged_json_label(GxTaggedWords *t, const GxJson *value, int64_t i, int64_t number, GxError *err)
{
    const GxJsonType type = gx_json_type(value);
    const int is_first = t->n == 1 && i == 0;
    const int64_t w = t->begin[t->n - 1] + i;
    if (type != GX_JSON_STRING && type != GX_JSON_INT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: label %ld of \"%s\" is %s; expected a name or an integer", t->path,
                       (long)number, (long)i + 1, t->column, gx_json_type_name(value));
    if (is_first) t->has_numbers = type == GX_JSON_INT;
    if (t->has_numbers != (type == GX_JSON_INT))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: label %ld of \"%s\" is a %s, but labels above are %ss; expected one kind", t->path,
                       (long)number, (long)i + 1, t->column, t->has_numbers ? "name" : "number",
                       t->has_numbers ? "number" : "name");
    if (t->has_numbers) t->label[w] = gx_json_int(value);
    if (t->has_numbers) return GX_OK;
    const char *name = gx_json_string(value);
    if (!name[strspn(name, " \t")] || strlen(name) > GX_LABEL_BYTES)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: label %ld of \"%s\" is blank, or longer than %d bytes", t->path,
                       (long)number, (long)i + 1, t->column, GX_LABEL_BYTES);
    return gx__tagged_put_text(t, name, (int64_t)strlen(name), &t->label[w], err);
}

static GxStatus gx__tagged_json_labels(GxTaggedWords *t, const GxJson *object, const GxTaggedReading *reading,
                                       int64_t number, GxError *err)
{
    const GxJson *list = gx__tagged_json_column(t, object, reading);
    const int64_t words = gx_tagged_count(t, t->n - 1);
    if (!list && !reading->may_lack)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: there is no %s%s%s, the list of labels; --label_column NAME names another member",
                       t->path, (long)number, t->column[0] || reading->label[0] ? "\"" : "",
                       t->column[0]        ? t->column
                       : reading->label[0] ? reading->label
                                           : GX_TAGGED_LABELS,
                       t->column[0] || reading->label[0] ? "\"" : "");
    GX_TRY(gx__tagged_check_has(t, reading, list != NULL, number, err));
    if (!list) return GX_OK;
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is %s; expected a list of labels", t->path, (long)number,
                       t->column, gx_json_type_name(list));
    if (gx_json_size(list) != words)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: \"%s\" has %ld word%s, but \"%s\" has %ld label%s; expected one for each word", t->path,
                       (long)number, reading->text, (long)words, gx_text_s(words), t->column, (long)gx_json_size(list),
                       gx_text_s(gx_json_size(list)));
    for (int64_t i = 0; i < words; i++) GX_TRY(gx__tagged_json_label(t, gx_json_at(list, i), i, number, err));
    return GX_OK;
}

// line[bytes], terminated by 0. Errors have the line's number in the file: "path:7:12: …".
static GxStatus gx__tagged_json_line(GxTaggedWords *t, const char *line, int64_t bytes, int64_t number,
                                     const GxTaggedReading *reading, GxError *err)
{
    static const char first[] = ":1";
    const size_t skip = sizeof first - 1;
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    GxStatus status = gx_json_parse(&json, line, bytes, "", &e);
    if (status != GX_OK)
        return GX_FAIL(err, status, "%s:%ld%s", t->path, (long)number,
                       strncmp(e.message, first, skip) ? e.message : e.message + skip);
    if (gx_json_type(json) != GX_JSON_OBJECT)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", t->path, (long)number,
                         gx_json_type_name(json));
    if (status == GX_OK) status = gx__tagged_json_words(t, json, reading, number, err);
    if (status == GX_OK) status = gx__tagged_json_labels(t, json, reading, number, err);
    gx_json_free(json);
    return status;
}

// ---- CoNLL's format ------------------------------------------------------------------------------------------------

// Adds the word of a line, its first column, and its label, the last one, to the last sentence.
static GxStatus gx__tagged_column_line(GxTaggedWords *t, const char *line, int64_t bytes, int64_t number,
                                       const GxTaggedReading *reading, GxError *err)
{
    const char *between = memchr(line, '\t', (size_t)bytes) ? "\t" : " ";
    const char *end = line + bytes;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t')) end--;
    while (line < end && (*line == ' ' || *line == '\t')) line++;
    const char *word_end = line, *label = end;
    while (word_end < end && *word_end != *between) word_end++;
    while (label > line && label[-1] != *between) label--;
    const int has = word_end < end;
    if (has && end - label > GX_LABEL_BYTES)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the label has %ld bytes; expected 1 to %d", t->path, (long)number,
                       (long)(end - label), GX_LABEL_BYTES);
    GX_TRY(gx__tagged_check_has(t, reading, has, number, err));
    GX_TRY(gx__tagged_put_word(t, line, word_end - line, err));
    if (!has) return GX_OK;
    return gx__tagged_put_text(t, label, end - label, &t->label[t->words - 1], err);
}

static int gx__tagged_is_between(const char *line, int64_t bytes) // 1: the line separates sentences
{
    int64_t at = 0;
    while (at < bytes && (line[at] == ' ' || line[at] == '\t')) at++;
    return at == bytes || !strncmp(line + at, "-DOCSTART-", 10);
}

// ---- a file --------------------------------------------------------------------------------------------------------

typedef struct {
    GxTaggedWords *t;
    const GxTaggedReading *reading;
    GxBadLines bad;
    int is_sound;    // 1: all of the file is valid text
    int is_open;     // CoNLL's format: the last sentence goes on
    int is_rejected; // it is wrong
} gx__TaggedReader;

// Leaves the last sentence out, which e says is wrong. 0: reading must end.
static int gx__tagged_reject(gx__TaggedReader *r, int64_t line, const GxError *e)
{
    gx__tagged_drop(r->t);
    return gx_bad_lines_add(&r->bad, line, e);
}

// A line, terminated by 0, of `bytes`. 0: reading must end.
static int gx__tagged_read_line(gx__TaggedReader *r, const char *line, int64_t bytes, int64_t number, int64_t byte,
                                GxError *err)
{
    GxTaggedWords *t = r->t;
    GxTextPlace place = {t->path, number, byte};
    GxError e = GX_ZERO;
    const int is_between = t->is_lines && gx__tagged_is_between(line, bytes);
    if (is_between || (!t->is_lines && !bytes)) return r->is_open = r->is_rejected = 0, 1;
    if (r->is_rejected) return 1;
    if (!r->is_open && gx__tagged_begin(t, number, err) != GX_OK) return 0;
    GxStatus status = r->is_sound ? GX_OK : gx_text_check(&place, line, bytes, &e);
    if (status == GX_OK)
        status = t->is_lines ? gx__tagged_column_line(t, line, bytes, number, r->reading, &e)
                             : gx__tagged_json_line(t, line, bytes, number, r->reading, &e);
    r->is_open = t->is_lines && status == GX_OK, r->is_rejected = t->is_lines && status != GX_OK;
    return status == GX_OK || gx__tagged_reject(r, number, &e);
}

static GxStatus gx__tagged_read(gx__TaggedReader *r, char *text, GxError *err)
{
    GxTaggedWords *t = r->t;
    GxTextPlace place = {t->path, 1, 0};
    GxError unsound = GX_ZERO, e = GX_ZERO;
    char *next = text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0), *const end = text + t->bytes;
    const GxStatus sound = gx_text_check(&place, text, t->bytes, &unsound);
    r->is_sound = sound == GX_OK;
    if (!r->is_sound && !r->bad.skip) return GX_FAIL(err, sound, "%s", unsound.message);
    for (int64_t number = 1; next < end && gx_bad_lines_goes_on(&r->bad); number++) {
        char *line = next, *stop = (char *)memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end, stop = stop ? stop : end;
        if (stop > line && stop[-1] == '\r') stop--;
        *stop = 0;
        if (!gx__tagged_read_line(r, line, stop - line, number, line - text, &e)) break;
        gx_bad_lines_pass(&r->bad, number, next - line);
    }
    GX_TRY(gx_bad_lines_fail(&r->bad, 1, err));
    if (gx_error_code(&e)) return GX_FAIL(err, gx_error_code(&e), "%s", e.message);
    if (t->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds no sentences%s%s", t->path,
                   r->bad.skip && r->bad.skip->n ? " that are right; the first that is wrong: " : "",
                   r->bad.skip && r->bad.skip->n ? r->bad.skip->why[0] : "");
}

GxStatus gx_tagged_words_open(GxTaggedWords *t, const char *path, const GxTaggedReading *reading, GxError *err)
{
    gx__TaggedReader r = GX_ZERO;
    char *text;
    memset(t, 0, sizeof *t);
    if (snprintf(t->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    if (strlen(reading->label) >= sizeof t->column)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--label_column is longer than %d bytes", GX_TAGGED_COLUMN - 1);
    t->is_lines = !gx_tagged_is_json(path);
    if (gx_path_has_end(path, ".csv"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: a table cannot have a label for each word of a sentence; expected JSON lines (.jsonl), or "
                       "a file with a word and its label in each line (CoNLL's format)",
                       path);
    GX_TRY(gx_file_check_kind(path, t->is_lines ? GX_FILE_AS_IT_IS : GX_FILE_AS_LINES, err));
    GX_TRY(gx_file_read(path, GX_TAGGED_WORDS_CAP, &text, &t->bytes, err));
    t->hash = gx_hash(GX_HASH_START, text, t->bytes);
    r.t = t, r.reading = reading, r.bad.skip = reading->skip;
    const GxStatus status = gx__tagged_read(&r, text, err);
    free(text);
    if (status != GX_OK) gx_tagged_words_close(t);
    return status;
}
#endif
