// task/labelled_texts.h: reads files of texts, or pairs of texts, with labels (data/records.h) as tokens and targets: a
// class, several classes, or a number.
//
//     GxTextFile f;
//     GX_TRY(gx_text_file_open(&f, "train.tsv", &columns, GX_PROBLEM_SINGLE, 0, NULL, err));
//     GX_TRY(gx_labels_make(&labels, &f.records, f.label, GX_LABEL_CLASS, err));
//     GX_TRY(gx_texts_open(&t, &f, GX_TEXTS_TRAINING, 0.05, err));       // 95% of it, by a hash
//     GX_TRY(gx_texts_label(&t, GX_PROBLEM_SINGLE, &labels, NULL, err));
//     GX_TRY(gx_texts_tokenize(&t, &tokenizer, 128, threads, err));
//     … t.ids[i][0 .. t.length[i]) … t.label[i] …
//
// If a file is divided into training and held-out texts, a hash of the record's texts, or of its group if it has one,
// decides where it goes. So equal texts are never in both parts, groups stay together, and the order of records does
// not matter.
// Tokens: the tokenizer's frame (text/tokenizer.h), such as [CLS] a [SEP] b [SEP], if it has [CLS] and [SEP] or
// `frames` says so; otherwise a, a newline, b. Texts of more than T tokens are truncated by longest_first and counted.
// Everything is read and tokenized at the beginning; errors name file and line. Memory: the file, and 4 bytes per
// token.
#ifndef GX_LABELLED_TEXTS_H
#define GX_LABELLED_TEXTS_H
#include "../data/labels.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef enum { GX_PROBLEM_UNKNOWN = 0, GX_PROBLEM_SINGLE, GX_PROBLEM_MULTI, GX_PROBLEM_REGRESSION } GxProblem;
#define GX_PROBLEM_NAMES "single_label_classification|multi_label_classification|regression"
const char *gx_problem_name(GxProblem p); // the value of config.json's problem_type; unknown: "auto"
// GX_PROBLEM_UNKNOWN: no problem has this name
GxProblem gx_problem_find(const char *name);

typedef struct {
    const char *text, *text2, *label, *group; // names; text2, group "": there is none
} GxTextColumns;
typedef struct {
    GxRecords records;
    int text, text2, label, group; // numbers of columns; -1: the file has none
    int has_unread_pair; // 1: it has a column "text_pair", transformers' name for a second text, which is not read
} GxTextFile;
// The file may lack column text2 if it has its default name, "text2". may_lack_labels: labels may be missing, and
// so may the group's column. skip: counts bad records, which are left out; NULL: they are errors.
GxStatus gx_text_file_open(GxTextFile *f, const char *path, const GxTextColumns *columns, GxProblem problem,
                           int may_lack_labels, GxBadRecords *skip, GxError *err);
void gx_text_file_close(GxTextFile *f);
// The problem that the labels suggest: regression if all are numbers and at least one has a point or an exponent;
// otherwise classification.
GxProblem gx_text_file_problem(const GxTextFile *f);
int gx_text_file_has_numbers(const GxTextFile *f); // 1: all labels are numbers

typedef enum { GX_TEXTS_ALL, GX_TEXTS_TRAINING, GX_TEXTS_HELD_OUT } GxTextsPart;
typedef struct {
    const GxTextFile *file;
    const char *prompt; // is put before each text; NULL: nothing
    int frames;         // 1: texts are put in the tokenizer's frame, also in one without [CLS] and [SEP]
    int64_t n;
    int64_t *record;      // [n] the text's record in the file
    int32_t **ids;        // [n] its tokens
    int32_t *length;      // [n]
    int32_t *second;      // [n] index of its first token of type 1 (a second text's); equal to length: it has none
    int32_t *label;       // [n] SINGLE; else NULL
    unsigned char *has;   // [n][labels] MULTI; else NULL
    float *number;        // [n] REGRESSION; else NULL
    int64_t *count;       // [labels] number of texts with each label
    int64_t cut, longest; // number of truncated texts; tokens of the longest text
} GxTexts;

GxStatus gx_texts_open(GxTexts *t, const GxTextFile *f, GxTextsPart part, double held_out, GxError *err);
void gx_texts_close(GxTexts *t); // accepts a struct of zeros
// skip: counts the texts whose label is none of these, which are left out; NULL: they are errors.
GxStatus gx_texts_label(GxTexts *t, GxProblem problem, const GxLabels *labels, GxBadRecords *skip, GxError *err);
GxStatus gx_texts_tokenize(GxTexts *t, const GxTokenizer *tokenizer, int64_t T, int threads, GxError *err);
static inline int64_t gx_texts_line(const GxTexts *t, int64_t i)
{
    return gx_record_line(&t->file->records, t->record[i]);
}
static inline const char *gx_texts_field(const GxTexts *t, int64_t i, int column) // column -1: ""
{
    return column < 0 ? "" : gx_record(&t->file->records, t->record[i], column);
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LABELLED_TEXTS_IMPLEMENTED)
#define GX_LABELLED_TEXTS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../base/random.h"

static const char *const gx__texts_problems[] = {"auto", "single_label_classification", "multi_label_classification",
                                                 "regression"};

const char *gx_problem_name(GxProblem p) { return gx__texts_problems[p]; }

GxProblem gx_problem_find(const char *name)
{
    for (int p = 1; p < 4; p++)
        if (!strcmp(name, gx__texts_problems[p])) return (GxProblem)p;
    return GX_PROBLEM_UNKNOWN;
}

// ---- files ---------------------------------------------------------------------------------------------------------

static int gx__texts_column(GxRecordColumn *column, int *n, const char *name, GxColumnNeed need, int is_label,
                            const char *option)
{
    if (!name[0]) return -1;
    column[*n].name = name, column[*n].need = need, column[*n].is_label = is_label, column[*n].option = option;
    return (*n)++;
}

// An error if two of text, text2 and label are the same column. The group may be one of the texts.
static GxStatus gx__texts_check_columns(const GxTextColumns *c, GxError *err)
{
    const struct {
        const char *flag[2], *name[2];
    } apart[] = {{{"text_column", "label_column"}, {c->text, c->label}},
                 {{"text_column", "text2_column"}, {c->text, c->text2}},
                 {{"text2_column", "label_column"}, {c->text2, c->label}},
                 {{"group_column", "label_column"}, {c->group, c->label}}};
    if (!c->text[0] || !c->label[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--text_column or --label_column is empty; expected the name of a column");
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (!strcmp(apart[i].name[0], apart[i].name[1]))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s and --%s are both \"%s\"; expected two different columns%s",
                           apart[i].flag[0], apart[i].flag[1], apart[i].name[0],
                           apart[i].name[0] == c->text2 || apart[i].name[1] == c->text2
                               ? ", or --text2_column '' if texts are single"
                               : "");
    return GX_OK;
}

GxStatus gx_text_file_open(GxTextFile *f, const char *path, const GxTextColumns *columns, GxProblem problem,
                           int may_lack_labels, GxBadRecords *skip, GxError *err)
{
    const int several = problem == GX_PROBLEM_MULTI; // several labels, or none
    const GxColumnNeed label = may_lack_labels ? several ? GX_COLUMN_SPARSE : GX_COLUMN_OPTIONAL
                               : several       ? GX_COLUMN_GIVEN
                                               : GX_COLUMN_REQUIRED;
    const char *const names[] = {columns->text, columns->text2, columns->label, columns->group};
    GxRecordColumn column[5];
    int n = 0, pair = 1;
    memset(f, 0, sizeof *f);
    GX_TRY(gx__texts_check_columns(columns, err));
    f->text = gx__texts_column(column, &n, columns->text, GX_COLUMN_REQUIRED, 0, "text_column");
    f->text2 =
        gx__texts_column(column, &n, columns->text2,
                         strcmp(columns->text2, "text2") ? GX_COLUMN_REQUIRED : GX_COLUMN_OPTIONAL, 0, "text2_column");
    f->label = gx__texts_column(column, &n, columns->label, label, several ? GX_COLUMN_SEVERAL : 1, "label_column");
    f->group = gx__texts_column(column, &n, columns->group, may_lack_labels ? GX_COLUMN_OPTIONAL : GX_COLUMN_REQUIRED,
                                1, "group_column");
    for (int i = 0; i < 4; i++) pair &= strcmp(names[i], "text_pair") != 0;
    pair = pair ? gx__texts_column(column, &n, "text_pair", GX_COLUMN_SPARSE, GX_COLUMN_SEVERAL, NULL) : -1;
    GX_TRY(gx_records_open(&f->records, path, GX_RECORDS_BY_NAME, column, n, skip, err));
    if (f->text2 >= 0 && !f->records.has[f->text2]) f->text2 = -1;
    f->has_unread_pair = pair >= 0 && f->records.has[pair] && f->text2 < 0;
    if (f->group >= 0 && !f->records.has[f->group]) f->group = -1;
    GxStatus status = GX_OK;
    if (f->records.has[f->label]) {
        if (skip)
            status = gx_labels_leave_out(&f->records, f->label, several ? GX_LABEL_SEVERAL : GX_LABEL_CLASS, skip, err);
    } else {
        f->label = -1;
        if (!may_lack_labels)
            status = GX_FAIL(err, GX_ERR_FORMAT,
                             "%s: there is no column \"%s\" with labels; --label_column NAME names another one", path,
                             columns->label);
    }
    if (status != GX_OK) gx_text_file_close(f);
    return status;
}

void gx_text_file_close(GxTextFile *f)
{
    gx_records_close(&f->records);
    memset(f, 0, sizeof *f);
}

int gx_text_file_has_numbers(const GxTextFile *f)
{
    for (int64_t i = 0; i < f->records.n; i++)
        if (!gx_label_is_number(&f->records, i, f->label)) return 0;
    return 1;
}

GxProblem gx_text_file_problem(const GxTextFile *f)
{
    int has_point = 0;
    for (int64_t i = 0; i < f->records.n; i++) {
        const char *label = gx_record(&f->records, i, f->label);
        has_point |= label[strcspn(label, ".eE")] != 0;
    }
    return has_point && gx_text_file_has_numbers(f) ? GX_PROBLEM_REGRESSION : GX_PROBLEM_SINGLE;
}

// ---- parts ---------------------------------------------------------------------------------------------------------

// A pseudo-random number in [0, 1), the hash of the record's texts or group.
static double gx__texts_place(const GxTextFile *f, int64_t i)
{
    const int first = f->group >= 0 ? f->group : f->text, second = f->group >= 0 ? -1 : f->text2;
    const char *a = gx_record(&f->records, i, first), *b = second < 0 ? "" : gx_record(&f->records, i, second);
    uint64_t hash = gx_hash(GX_HASH_START, a, (int64_t)strlen(a) + 1);
    hash = gx_hash(hash, b, (int64_t)strlen(b));
    return (double)gx_random_uniform(hash, 0, 0, gx_random_site(GX_SITE_SHUFFLE, 2));
}

GxStatus gx_texts_open(GxTexts *t, const GxTextFile *f, GxTextsPart part, double held_out, GxError *err)
{
    memset(t, 0, sizeof *t);
    t->file = f;
    t->record = (int64_t *)malloc((size_t)f->records.n * sizeof *t->record);
    if (!t->record) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld texts", (long)f->records.n);
    for (int64_t i = 0; i < f->records.n; i++) {
        const GxTextsPart of = gx__texts_place(f, i) < held_out ? GX_TEXTS_HELD_OUT : GX_TEXTS_TRAINING;
        if (part == GX_TEXTS_ALL || part == of) t->record[t->n++] = i;
    }
    if (t->n > 0) return GX_OK;
    gx_texts_close(t);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: of %ld record%s none is %s with --validation_fraction %g; give more records, another fraction, "
                   "or a file with --validation_data",
                   f->records.path, (long)f->records.n, gx_text_s(f->records.n),
                   part == GX_TEXTS_HELD_OUT ? "held out for validation" : "left for training", held_out);
}

void gx_texts_close(GxTexts *t)
{
    for (int64_t i = 0; i < t->n && t->ids; i++) free(t->ids[i]);
    free(t->record), free(t->ids), free(t->length), free(t->second);
    free(t->label), free(t->has), free(t->number), free(t->count);
    memset(t, 0, sizeof *t);
}

// ---- labels --------------------------------------------------------------------------------------------------------

static GxStatus gx__texts_label_one(GxTexts *t, int64_t i, const GxLabels *labels, GxError *err)
{
    const GxRecords *r = &t->file->records;
    const int column = t->file->label;
    if (t->number) {
        double number = 0;
        GX_TRY(gx_label_number(r, t->record[i], column, &number, err));
        t->number[i] = (float)number;
    } else if (t->label) {
        int class_ = 0;
        GX_TRY(gx_label_class(labels, r, t->record[i], column, &class_, err));
        t->label[i] = class_, t->count[class_]++;
    } else {
        unsigned char *has = t->has + i * labels->n;
        GX_TRY(gx_label_classes(labels, r, t->record[i], column, has, err));
        for (int c = 0; c < labels->n; c++) t->count[c] += has[c];
    }
    return GX_OK;
}

GxStatus gx_texts_label(GxTexts *t, GxProblem problem, const GxLabels *labels, GxBadRecords *skip, GxError *err)
{
    const int64_t all = t->n, first = gx_texts_line(t, 0), skipped = skip ? skip->n : 0;
    const size_t n = (size_t)t->n, classes = problem == GX_PROBLEM_REGRESSION ? 1 : (size_t)labels->n;
    t->count = (int64_t *)calloc(classes, sizeof *t->count);
    if (problem == GX_PROBLEM_SINGLE) t->label = (int32_t *)malloc(n * sizeof *t->label);
    if (problem == GX_PROBLEM_MULTI) t->has = (unsigned char *)malloc(n * classes);
    if (problem == GX_PROBLEM_REGRESSION) t->number = (float *)malloc(n * sizeof *t->number);
    if (!t->count || !(t->label || t->has || t->number))
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the labels of %ld texts", (long)t->n);
    GxBadLines bad = GX_ZERO;
    bad.skip = skip, t->n = 0;
    for (int64_t i = 0, goes_on = 1; i < all && goes_on && gx_bad_lines_goes_on(&bad); i++) {
        GxError e = GX_ZERO;
        t->record[t->n] = t->record[i]; // closes the gaps that records left out
        const int64_t line = gx_texts_line(t, t->n);
        if (gx__texts_label_one(t, t->n, labels, &e) == GX_OK) t->n++;
        else goes_on = gx_bad_lines_add(&bad, line, &e);
        gx_bad_lines_pass(&bad, line, 0);
    }
    GX_TRY(gx_bad_lines_fail(&bad, first, err));
    if (t->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: all labels are wrong, so no record is left; the first: %s",
                   t->file->records.path, skip->why[gx_min(skipped, GX_BAD_RECORDS - 1)]);
}

// ---- tokens --------------------------------------------------------------------------------------------------------

static int gx__texts_are_framed(const GxTexts *t, const GxTokenizer *tokenizer)
{
    return t->frames || (tokenizer->role[GX_TOKEN_CLS] >= 0 && tokenizer->role[GX_TOKEN_SEP] >= 0);
}

// How many tokens are put around one text or two.
static int64_t gx__texts_frame(const GxTexts *t, const GxTokenizer *tokenizer)
{
    return gx__texts_are_framed(t, tokenizer) ? gx_tokenizer_frame_tokens(tokenizer, t->file->text2 >= 0 ? 2 : 1) : 0;
}

// Tokenizes the prompt and the text that follows it as one text.
static GxStatus gx__texts_encode_prompted(const GxTexts *t, const char *a, const GxTokenizer *tokenizer, int32_t *room,
                                          int64_t *n, GxError *err)
{
    const size_t before = t->prompt ? strlen(t->prompt) : 0, bytes = strlen(a);
    if (!before)
        return gx_tokenizer_encode(tokenizer, a, (int64_t)bytes, gx_tokenizer_special(tokenizer), room, n, err);
    char *both = (char *)malloc(before + bytes + 1);
    if (!both) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)(before + bytes));
    memcpy(both, t->prompt, before), memcpy(both + before, a, bytes + 1);
    const GxStatus status =
        gx_tokenizer_encode(tokenizer, both, (int64_t)(before + bytes), gx_tokenizer_special(tokenizer), room, n, err);
    free(both);
    return status;
}

// Writes the tokens of both texts into `room`. Without a frame, b begins with a newline.
static GxStatus gx__texts_encode(const GxTexts *t, int64_t i, const GxTokenizer *tokenizer, int32_t *room,
                                 GxTokenTexts *both, GxError *err)
{
    const char *a = gx_texts_field(t, i, t->file->text), *b = gx_texts_field(t, i, t->file->text2);
    int64_t between = 0;
    memset(both, 0, sizeof *both);
    GX_TRY(gx__texts_encode_prompted(t, a, tokenizer, room, &both->n_a, err));
    both->a = room;
    if (t->file->text2 < 0) return GX_OK;
    both->b = room += both->n_a;
    if (!gx__texts_are_framed(t, tokenizer))
        GX_TRY(gx_tokenizer_encode(tokenizer, "\n", 1, gx_tokenizer_special(tokenizer), room, &between, err));
    GX_TRY(gx_tokenizer_encode(tokenizer, b, (int64_t)strlen(b), gx_tokenizer_special(tokenizer), room + between,
                               &both->n_b, err));
    both->n_b += between;
    return GX_OK;
}

// Joins the texts in their frame, n tokens, as text i.
static GxStatus gx__texts_join(GxTexts *t, int64_t i, const GxTokenizer *tokenizer, int64_t T, const GxTokenTexts *both,
                               int64_t n, GxError *err)
{
    int32_t *types = (int32_t *)malloc((size_t)n * sizeof *types);
    if (!types) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the types of %ld tokens", (long)n);
    GxStatus status = gx_tokenizer_join(tokenizer, both, T, t->ids[i], types, &n, NULL, err);
    int64_t at = 0;
    while (at < n && types[at] == 0) at++;
    t->second[i] = (int32_t)at;
    for (; at < n && status == GX_OK; at++)
        if (types[at] == 0)
            status = GX_FAIL(err, GX_ERR_UNSUPPORTED,
                             "the tokenizer %s puts a token of type 0 behind one of type 1; supported: those of type 1 "
                             "come last",
                             tokenizer->identity);
    free(types);
    return status;
}

static GxStatus gx__texts_keep(GxTexts *t, int64_t i, const GxTokenizer *tokenizer, int64_t T, GxTokenTexts *both,
                               GxError *err)
{
    const int64_t frame = gx__texts_frame(t, tokenizer), all = both->n_a + both->n_b + frame, n = gx_min(all, T);
    if (all == 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the text has no tokens; expected some text", t->file->records.path,
                       (long)gx_texts_line(t, i));
    t->ids[i] = (int32_t *)malloc((size_t)n * sizeof **t->ids);
    if (!t->ids[i]) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld texts", (long)t->n);
    t->length[i] = (int32_t)n;
    if (gx__texts_are_framed(t, tokenizer)) return gx__texts_join(t, i, tokenizer, T, both, n, err);
    gx_truncate_longest_first(&both->n_a, &both->n_b, T);
    t->second[i] = (int32_t)(both->b ? both->n_a : n);
    memcpy(t->ids[i], both->a, (size_t)both->n_a * sizeof **t->ids);
    if (both->n_b) memcpy(t->ids[i] + both->n_a, both->b, (size_t)both->n_b * sizeof **t->ids);
    return GX_OK;
}

// Returns the number of tokens before truncation; -1: an error.
static int64_t gx__texts_tokenize_one(GxTexts *t, int64_t i, const GxTokenizer *tokenizer, int64_t T, GxError *err)
{
    const size_t bytes = strlen(gx_texts_field(t, i, t->file->text)) + strlen(gx_texts_field(t, i, t->file->text2)) +
                         (t->prompt ? strlen(t->prompt) : 0) + 1;
    int32_t *room = (int32_t *)malloc((size_t)gx_tokenizer_most(tokenizer, (int64_t)bytes + 1) * sizeof *room);
    GxTokenTexts both;
    if (!room) {
        GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes", (long)bytes);
        return -1;
    }
    GxStatus status = gx__texts_encode(t, i, tokenizer, room, &both, err);
    const int64_t all = status == GX_OK ? both.n_a + both.n_b + gx__texts_frame(t, tokenizer) : -1;
    if (status == GX_OK) status = gx__texts_keep(t, i, tokenizer, T, &both, err);
    free(room);
    return status == GX_OK ? all : -1;
}

GxStatus gx_texts_tokenize(GxTexts *t, const GxTokenizer *tokenizer, int64_t T, int threads, GxError *err)
{
    const size_t n = (size_t)t->n;
    int64_t cut = 0, longest = 0;
    const int team = threads > 0 ? threads : 1;
    (void)team; // unused without OpenMP
    t->ids = (int32_t **)calloc(n, sizeof *t->ids);
    t->length = (int32_t *)calloc(n, sizeof *t->length);
    t->second = (int32_t *)calloc(n, sizeof *t->second);
    if (!t->ids || !t->length || !t->second)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld texts", (long)t->n);
    GX_OMP(parallel for schedule(dynamic, 256) num_threads(team) reduction(+ : cut) reduction(max : longest))
    for (int64_t i = 0; i < t->n; i++) {
        if (gx_error_code(err)) continue;
        const int64_t tokens = gx__texts_tokenize_one(t, i, tokenizer, T, err);
        cut += tokens > T;
        longest = gx_max(longest, tokens);
    }
    t->cut = cut, t->longest = longest;
    return gx_error_code(err);
}
#endif
