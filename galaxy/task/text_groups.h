// task/text_groups.h: groups of texts (an anchor, its positive, perhaps a negative; or a single text) as tokens, and
// their packing into columns of a batch. All texts of a group are in the same column.
//
//     GX_TRY(gx_group_file_open(&file, "pairs.tsv", names, options, 0, NULL, err)); // names of up to three columns
//     GX_TRY(gx_text_groups_open(&s, &file, GX_TEXTS_TRAINING, 0.05, err));       // 95% of it, by a hash
//     GX_TRY(gx_text_groups_tokenize(&s, &tokenizer, 64, threads, err));   // at most 64 tokens of each text
//     GX_TRY(gx_text_groups_pack(&s, 128, 0, err));                        // into columns of 128
//     … s.text[k].ids[i] … text_batch.h …
//
// If a file is divided, a hash of the first column decides to which part a group goes, so that equal anchors are in the
// same part. Memory: the file, and 4 bytes per token.
#ifndef GX_TEXT_GROUPS_H
#define GX_TEXT_GROUPS_H
#include "labelled_texts.h"
#include "text_batch.h"
GX_BEGIN

enum { GX_GROUP_TEXTS = 3 };

typedef struct {
    GxTextFile column[GX_GROUP_TEXTS]; // the records' columns; the first owns the records
    int per;                           // texts of a group; 0: nothing is open
} GxGroupFile;
// name "": no such column; option: the one that names the column, or NULL. may_lack_third: the file may lack the third
// column. skip: counts bad records, which are left out; NULL: they are errors.
GxStatus gx_group_file_open(GxGroupFile *f, const char *path, const char *const name[GX_GROUP_TEXTS],
                            const char *const option[GX_GROUP_TEXTS], int may_lack_third, GxBadRecords *skip,
                            GxError *err);
void gx_group_file_close(GxGroupFile *f); // accepts a struct of zeros

typedef struct {
    GxTexts text[GX_GROUP_TEXTS]; // of the same records
    int per;
    int64_t n;       // groups
    int32_t *length; // [n] tokens of all of a group's texts
    GxTextPacking packing;
    int64_t columns; // of the first epoch
} GxTextGroups;

GxStatus gx_text_groups_open(GxTextGroups *s, const GxGroupFile *f, GxTextsPart part, double held_out, GxError *err);
void gx_text_groups_close(GxTextGroups *s); // accepts a struct of zeros
GxStatus gx_text_groups_tokenize(GxTextGroups *s, const GxTokenizer *tokenizer, int64_t most_tokens, int threads,
                                 GxError *err);
// most: the most groups of a column; 0: as many as fit.
GxStatus gx_text_groups_pack(GxTextGroups *s, int64_t T, int64_t most, GxError *err);
uint64_t gx_text_groups_hash(const GxTextGroups *s); // of all tokens
int64_t gx_text_groups_cut(const GxTextGroups *s);   // texts that had too many tokens

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_GROUPS_IMPLEMENTED)
#define GX_TEXT_GROUPS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

GxStatus gx_group_file_open(GxGroupFile *f, const char *path, const char *const name[GX_GROUP_TEXTS],
                            const char *const option[GX_GROUP_TEXTS], int may_lack_third, GxBadRecords *skip,
                            GxError *err)
{
    GxRecordColumn column[GX_GROUP_TEXTS];
    GxRecords records;
    int per = 0;
    memset(f, 0, sizeof *f), memset(column, 0, sizeof column);
    for (; per < GX_GROUP_TEXTS && name[per] && name[per][0]; per++) {
        column[per].name = name[per], column[per].is_label = 0, column[per].option = option[per];
        column[per].need = per == 2 && may_lack_third             ? GX_COLUMN_OPTIONAL
                           : per == 0 && !(name[1] && name[1][0]) ? GX_COLUMN_GIVEN // a single text may be white space
                                                                  : GX_COLUMN_REQUIRED;
    }
    GX_TRY(gx_records_open(&records, path, GX_RECORDS_BY_NAME, column, per, skip, err));
    if (per == GX_GROUP_TEXTS && !records.has[2]) per = 2;
    for (int k = 0; k < per; k++) {
        f->column[k].records = records;
        f->column[k].text = k, f->column[k].text2 = f->column[k].label = -1;
        f->column[k].group = 0; // the column that is hashed
    }
    f->per = per;
    return GX_OK;
}

void gx_group_file_close(GxGroupFile *f)
{
    if (f->per) gx_records_close(&f->column[0].records);
    memset(f, 0, sizeof *f);
}

GxStatus gx_text_groups_open(GxTextGroups *s, const GxGroupFile *f, GxTextsPart part, double held_out, GxError *err)
{
    memset(s, 0, sizeof *s);
    for (s->per = 0; s->per < f->per; s->per++)
        GX_TRY(gx_texts_open(&s->text[s->per], &f->column[s->per], part, held_out, err));
    s->n = s->text[0].n;
    return GX_OK;
}

void gx_text_groups_close(GxTextGroups *s)
{
    for (int k = 0; k < GX_GROUP_TEXTS; k++) gx_texts_close(&s->text[k]);
    gx_text_packing_close(&s->packing);
    free(s->length);
    memset(s, 0, sizeof *s);
}

GxStatus gx_text_groups_tokenize(GxTextGroups *s, const GxTokenizer *tokenizer, int64_t most_tokens, int threads,
                                 GxError *err)
{
    s->length = (int32_t *)calloc((size_t)s->n + 1, sizeof *s->length);
    if (!s->length) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lengths of %ld texts", (long)s->n);
    for (int k = 0; k < s->per; k++) {
        s->text[k].frames = 1;
        GX_TRY(gx_texts_tokenize(&s->text[k], tokenizer, most_tokens, threads, err));
        for (int64_t i = 0; i < s->n; i++) s->length[i] += s->text[k].length[i];
    }
    return GX_OK;
}

GxStatus gx_text_groups_pack(GxTextGroups *s, int64_t T, int64_t most, GxError *err)
{
    const int64_t *group;
    int64_t n;
    GX_TRY(gx_text_packing_open(&s->packing, s->length, s->n, T, most, err));
    gx_text_packing_column(&s->packing, 0, 0, &group, &n); // makes the order of the first epoch
    s->columns = most == 1 ? s->n : s->packing.columns;
    return GX_OK;
}

uint64_t gx_text_groups_hash(const GxTextGroups *s)
{
    uint64_t hash = GX_HASH_START;
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->per; k++) {
            const int32_t length = s->text[k].length[i];
            hash = gx_hash(hash, &length, sizeof length);
            hash = gx_hash(hash, s->text[k].ids[i], length * (int64_t)sizeof **s->text[k].ids);
        }
    return hash;
}

int64_t gx_text_groups_cut(const GxTextGroups *s)
{
    int64_t cut = 0;
    for (int k = 0; k < s->per; k++) cut += s->text[k].cut;
    return cut;
}
#endif
