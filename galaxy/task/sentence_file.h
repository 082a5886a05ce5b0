// task/sentence_file.h: opens the plain text of a pre-training (sentences.h) on every rank, and says what is wrong with
// it.
//
//     GX_TRY(gx_sentence_file_open(g, &f, path, &tokenizer, most));
//     GX_TRY(gx_sentence_file_divide(g, &f, &tokenizer, 0.05));
//     … f.sentences …
//     gx_sentence_file_close(&f);
//
// Each rank reads its own copy, which must be identical: ranks compare hashes of them.
#ifndef GX_SENTENCE_FILE_H
#define GX_SENTENCE_FILE_H
#include "sentences.h"
#include "task.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    GxDataset data;
    GxSentences sentences;
    int64_t hash;         // of the text
    int64_t train_tokens; // of the training part
    int64_t most;         // tokens of a sentence, of which longer ones keep the first
} GxSentenceFile;

// All ranks call both. gx_sentence_file_close accepts a struct of zeros.
GxStatus gx_sentence_file_open(GxContext *g, GxSentenceFile *f, const char *path, const GxTokenizer *tokenizer,
                               int64_t most);
// Holds out documents at the end, and warns, on rank 0, of sentences that were cut and of a text of unknown words.
GxStatus gx_sentence_file_divide(GxContext *g, GxSentenceFile *f, const GxTokenizer *tokenizer,
                                 double validation_fraction);
void gx_sentence_file_close(GxSentenceFile *f);
// Prints a line: path, sentences, documents, tokens.
void gx_sentence_file_describe(const GxSentenceFile *f, const GxTokenizer *tokenizer, FILE *out);
// The path if the file has changed since it was opened; NULL: it has not.
const char *gx_sentence_file_changed(const GxSentenceFile *f);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SENTENCE_FILE_IMPLEMENTED)
#define GX_SENTENCE_FILE_IMPLEMENTED
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../data/dataset_hash.h"
#include "../io/file_kind.h"

static GxStatus gx__sentence_file_agree(GxContext *g, GxSentenceFile *f)
{
    int64_t mine[2] = {f->data.bytes, 0}, first[2];
    uint64_t hash = 0;
    gx_dataset_hash(&f->data, gx_threads(g), &hash, &g->error);
    first[0] = mine[0], first[1] = mine[1] = (int64_t)hash;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, 2, GX_I64);
    GX_TRY(gx_status(g));
    f->hash = first[1];
    if (!memcmp(mine, first, sizeof mine)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: %s is a different text here (%ld bytes, hash %016lx) than on rank 0 (%ld bytes, hash "
                   "%016lx); all ranks need the same one: copy rank 0's",
                   g->rank, f->data.path, (long)mine[0], (unsigned long)mine[1], (long)first[0],
                   (unsigned long)first[1]);
}

GxStatus gx_sentence_file_open(GxContext *g, GxSentenceFile *f, const char *path, const GxTokenizer *tokenizer,
                               int64_t most)
{
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return GX_FAIL(&g->error, GX_ERR_IO,
                       "cannot open %s: %s; `make data-bert` makes data/bert/pretrain.txt, the default, and "
                       "--train_data FILE names another text",
                       path, strerror(ENOENT));
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_TEXT, &g->error));
    GX_TRY(gx_dataset_open(&f->data, path, 0, 1, &g->error));
    if (g->rank == 0) gx_file_warn_of_kind(path, 0, &g->log);
    GX_TRY(gx__sentence_file_agree(g, f));
    f->most = most;
    return gx_sentences_open(&f->sentences, &f->data, tokenizer, most, gx_threads(g), g->rank == 0 ? &g->log : NULL,
                             &g->error);
}

GxStatus gx_sentence_file_divide(GxContext *g, GxSentenceFile *f, const GxTokenizer *tokenizer,
                                 double validation_fraction)
{
    GxSentences *s = &f->sentences;
    GxTextWords words = GX_ZERO;
    GX_TRY(gx_sentences_divide(s, f->data.path, validation_fraction, &g->error));
    f->train_tokens = s->begin[s->document[s->train_documents]];
    gx_text_count_words(&words, tokenizer, s->token, s->tokens);
    gx_text_warn_of_unknown(g, tokenizer, &words, f->data.path);
    if (s->cut && g->rank == 0)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s: %ld of %ld sentence%s %s more than the %ld tokens that a text has room for, the first in line %ld: "
               "%s left out",
               f->data.path, (long)s->cut, (long)s->sentences, gx_text_s(s->sentences), s->cut == 1 ? "has" : "have",
               (long)f->most, (long)s->first_cut, s->cut == 1 ? "its end is" : "their ends are");
    return GX_OK;
}

void gx_sentence_file_close(GxSentenceFile *f)
{
    gx_sentences_close(&f->sentences);
    gx_dataset_close(&f->data);
}

void gx_sentence_file_describe(const GxSentenceFile *f, const GxTokenizer *tokenizer, FILE *out)
{
    const GxSentences *s = &f->sentences;
    fprintf(out,
            "data: %s, %ld sentence%s in %ld document%s, the last %ld held out; %.2f million tokens: %s, %d of them\n",
            f->data.path, (long)s->sentences, gx_text_s(s->sentences), (long)s->documents, gx_text_s(s->documents),
            (long)(s->documents - s->train_documents), (double)s->tokens / 1e6, gx_tokenizer_identity(tokenizer),
            tokenizer->vocab_size);
}

const char *gx_sentence_file_changed(const GxSentenceFile *f)
{
    return gx_dataset_changed(&f->data) ? f->data.path : NULL;
}
#endif
