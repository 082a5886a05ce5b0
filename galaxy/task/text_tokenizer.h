// task/text_tokenizer.h: the WordPiece tokenizer of a task that puts texts between [CLS] and [SEP]: from the folder
// that an option names, or else the model's own.
//
//     GX_TRY(gx_text_open_tokenizer(g, &t, options->tokenizer, setup));      // on every rank
//
// If both exist they must give the same ids. All ranks must have the same tokenizer; of the model's own, rank 0 sends
// its files to the others. If setup->vocab is 0, it becomes the tokenizer's size; if it is smaller than that, an error.
#ifndef GX_TEXT_TOKENIZER_H
#define GX_TEXT_TOKENIZER_H
#include "../io/tokenizer_keys.h"
#include "task.h"
GX_BEGIN

// folder: a folder, tokenizer.json or vocab.txt; "": the model's. After an error nothing is open.
GxStatus gx_text_open_tokenizer(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup);
// The same for families that do not put texts between [CLS] and [SEP] (setup->frames_texts is 0): the tokenizer need
// not have these tokens, and "bytes", or "" without a model, stands for bytes as tokens.
GxStatus gx_text_open_any_tokenizer(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup);

// The option of tasks whose texts are records: "[SEP]" in one is the token, as in transformers, or its characters.
#define GX_SPLIT_SPECIAL_TOKENS(offset)                                                                                \
    {                                                                                                                  \
        "split_special_tokens", GX_FIELD_STRING, offset, "auto",                                                       \
            "true: names of special tokens in a text, [SEP], are characters; false: they are the tokens; auto: as "    \
            "tokenizer_config.json says, else false",                                                                  \
            "auto|true|false"                                                                                          \
    }
void gx_text_split_special(GxTokenizer *t, const char *option);
// The option of tasks that learn from records.
#define GX_SKIP_BAD_RECORDS(offset)                                                                                    \
    {                                                                                                                  \
        "skip_bad_records", GX_FIELD_BOOL, offset, "false",                                                            \
            "records that are wrong are left out, and counted in a warning, which says of the first ten what is "      \
            "wrong; "                                                                                                  \
            "false: they are an error",                                                                                \
            NULL                                                                                                       \
    }

// Warnings by rank 0 about what makes a model worse: that most words of a text are [UNK]; that the model's pad_token_id
// differs from the tokenizer's (for a task's `take`; not on a device that does not compute).
typedef struct {
    int64_t words, unknown; // [UNK] among them
} GxTextWords;
void gx_text_count_words(GxTextWords *w, const GxTokenizer *t, const int32_t *ids, int64_t n); // adds those of a text
void gx_text_warn_of_unknown(GxContext *g, const GxTokenizer *t, const GxTextWords *w, const char *path);
void gx_text_warn_of_padding(GxContext *g, const GxTokenizer *t, const GxModel *m);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_TOKENIZER_IMPLEMENTED)
#define GX_TEXT_TOKENIZER_IMPLEMENTED
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"

// The files that a tokenizer is opened from, and those that belong to it.
enum { GX__TEXT_FILES = 5, GX__TEXT_FILE_CAP = 64 << 20 };
static const char *const gx__text_files[GX__TEXT_FILES] = {"tokenizer.json", "vocab.txt", "tokenizer_config.json",
                                                           "special_tokens_map.json", "chat_template.jinja"};

static int gx__text_has_file(const char *folder, const char *name)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO;
    return gx_path_join(path, folder, name, &ignored) == GX_OK && (gx_path_is_file(path) || gx_path_is_broken(path));
}

static int gx__text_has_tokenizer(const char *folder)
{
    return gx__text_has_file(folder, gx__text_files[0]) || gx__text_has_file(folder, gx__text_files[1]);
}

typedef struct {
    char *text; // free() it
    int64_t n;  // -1: there is none
} gx__TextFile;

static GxStatus gx__text_read_file(const char *folder, const char *name, gx__TextFile *f, GxError *err)
{
    char path[GX_PATH];
    f->text = NULL, f->n = -1;
    if (!gx__text_has_file(folder, name)) return GX_OK;
    GX_TRY(gx_path_join(path, folder, name, err));
    return gx_file_read(path, GX__TEXT_FILE_CAP, &f->text, &f->n, err);
}

// Broadcasts a file of rank 0's folder.
static void gx__text_receive(GxContext *g, const char *folder, const char *name, gx__TextFile *f)
{
    f->text = NULL, f->n = -1;
    if (!gx_failed(g) && g->rank == 0) gx__text_read_file(folder, name, f, &g->error);
    gx_broadcast(g, GX_AXIS_ALL, 0, &f->n, 1, GX_I64); // on a failed context this tells the other ranks
    if (gx_failed(g) || f->n < 0) return;
    if (g->rank) f->text = (char *)malloc((size_t)f->n + 1);
    if (!f->text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld bytes of %s", (long)f->n, name);
    if (f->n > 0) gx_broadcast(g, GX_AXIS_ALL, 0, f->text, f->n, GX_U8);
}

static int gx__text_is_here(const char *folder, const gx__TextFile file[GX__TEXT_FILES])
{
    int same = 1;
    for (int i = 0; i < GX__TEXT_FILES && same; i++) {
        gx__TextFile own;
        GxError ignored = GX_ZERO;
        same = gx__text_read_file(folder, gx__text_files[i], &own, &ignored) == GX_OK && own.n == file[i].n &&
               (own.n <= 0 || !memcmp(own.text, file[i].text, (size_t)own.n));
        free(own.text);
    }
    return same;
}

// Opens the tokenizer from files in memory, by writing them to a temporary folder.
static GxStatus gx__text_open_received(GxTokenizer *t, const gx__TextFile file[GX__TEXT_FILES], GxError *err)
{
    const char *parent = getenv("TMPDIR");
    char folder[GX_PATH], path[GX_PATH];
    GxStatus status = GX_OK;
    GxError ignored = GX_ZERO;
    GX_TRY(gx_path_join(folder, parent && parent[0] ? parent : "/tmp", "galaxy-tokenizer-XXXXXX", err));
    if (!mkdtemp(folder))
        return GX_FAIL(err, GX_ERR_IO, "cannot make the folder %s: %s; TMPDIR names another place", folder,
                       strerror(errno));
    for (int i = 0; i < GX__TEXT_FILES && status == GX_OK; i++) {
        if (file[i].n < 0) continue;
        status = gx_path_join(path, folder, gx__text_files[i], err);
        if (status == GX_OK) status = gx_file_write(path, file[i].text, file[i].n, err);
    }
    if (status == GX_OK) status = gx_tokenizer_open(t, folder, err);
    gx_folder_remove(folder, &ignored);
    return status;
}

// Opens the tokenizer of rank 0's folder on all ranks, whose machines need not have this folder.
static GxStatus gx__text_open_shared(GxContext *g, GxTokenizer *t, const char *folder)
{
    gx__TextFile file[GX__TEXT_FILES];
    for (int i = 0; i < GX__TEXT_FILES; i++) gx__text_receive(g, folder, gx__text_files[i], &file[i]);
    if (!gx_failed(g)) {
        if (gx__text_is_here(folder, file)) gx_tokenizer_open(t, folder, &g->error);
        else gx__text_open_received(t, file, &g->error);
    }
    for (int i = 0; i < GX__TEXT_FILES; i++) free(file[i].text);
    return gx_status(g);
}

// The error that rank 0's folder has no tokenizer; it names what the folder has instead.
static GxStatus gx__text_without_tokenizer(GxContext *g, const char *model, int is_framed)
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "merges.txt"};
    const char *other = NULL;
    for (int i = 0; i < 3 && !other; i++)
        if (gx__text_has_file(model, others[i])) other = others[i];
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "the model's folder %s has neither tokenizer.json nor vocab.txt%s%s%s; --tokenizer FOLDER names the "
                   "tokenizer that the model was trained with%s",
                   model, other ? " (it has " : "", other ? other : "",
                   other ? ", which is not read: transformers' AutoTokenizer saves it as tokenizer.json)" : "",
                   is_framed ? "" : "; --tokenizer bytes says that its tokens are bytes");
}

// folder: this rank's option; model: rank 0's folder, which this rank may not have.
static GxStatus gx__text_open_either(GxContext *g, GxTokenizer *t, const char *folder, const char *model, int is_framed)
{
    int64_t names_one = folder[0] != 0; // on rank 0: then all ranks need one
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, &names_one, 1, GX_I64);
    GX_TRY(gx_status(g));
    if (!names_one && model[0]) {
        if (g->rank == 0 && !gx__text_has_tokenizer(model)) gx__text_without_tokenizer(g, model, is_framed);
        return gx__text_open_shared(g, t, model);
    }
    if (!is_framed && (!strcmp(folder, "bytes") || (!names_one && !folder[0]))) {
        *t = gx_tokenizer_bytes();
        return GX_OK;
    }
    if (folder[0]) return gx_tokenizer_open(t, folder, &g->error);
    if (names_one)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "rank %d: rank 0 has a --tokenizer, and this rank has none: give it the same", g->rank);
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "there is no tokenizer: --tokenizer FOLDER names one; `./tokenize --train "
                   "data/bert/pretrain.txt --vocab_size 8000 --output_dir data/tokenizer` makes one from a text");
}

static GxStatus gx__text_check_tokenizer(GxContext *g, const GxTokenizer *t, const GxTaskSetup *setup, int is_framed)
{
    static const char *const names[GX_TOKEN_ROLES] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    GxError other = GX_ZERO;
    for (int role = GX_TOKEN_CLS; role <= GX_TOKEN_SEP; role++)
        if (is_framed && t->role[role] < 0)
            return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                           "the tokenizer %s has no token %s; texts stand between [CLS] and [SEP]: take a WordPiece "
                           "tokenizer, such as `./tokenize --train` makes",
                           t->identity, names[role]);
    if (setup->vocab < t->vocab_size)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "vocab_size is %ld; the tokenizer (%s) has %d tokens, so it must be at least that",
                       (long)setup->vocab, t->identity, t->vocab_size);
    if (!setup->model[0] || !gx__text_has_tokenizer(setup->model)) return GX_OK;
    if (gx_tokenizer_check(t, setup->model, &other) == GX_OK) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "the model in %s has another tokenizer (%s): leave --tokenizer out, and its own is taken",
                   setup->model, other.message);
}

static GxStatus gx__text_agree_on_tokenizer(GxContext *g, const GxTokenizer *t)
{
    char first[GX_TOKENIZER_IDENTITY] = GX_ZERO;
    memcpy(first, t->identity, sizeof first);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, sizeof first, GX_U8);
    GX_TRY(gx_status(g));
    if (!strcmp(first, t->identity)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: the tokenizer here is %s, on rank 0 it is %s; all ranks need the same: copy rank 0's",
                   g->rank, t->identity, first);
}

// 1: the folder no longer exists, but the run is resumed, so its tokenizer is in the checkpoint.
static int gx__text_is_gone(GxContext *g, const char *folder, const GxTaskSetup *setup)
{
    const int is_gone = folder[0] && strcmp(folder, "bytes") && !gx_path_is_file(folder) &&
                        !gx_path_is_folder(folder) && setup->model[0] && !setup->starts_from_model &&
                        gx__text_has_tokenizer(setup->model);
    if (is_gone)
        gx_log(&g->log, GX_LOG_WARNING, "the tokenizer %s is not there; that of %s is taken", folder, setup->model);
    return is_gone;
}

static GxStatus gx__text_open(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup, int is_framed)
{
    char model[GX_PATH] = "";
    memset(t, 0, sizeof *t);
    if (snprintf(model, sizeof model, "%s", setup->model) >= GX_PATH)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", model, GX_PATH - 1);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, model, GX_PATH, GX_U8);
    GX_TRY(gx_status(g));
    if (gx__text_is_gone(g, folder, setup)) folder = "";
    GxStatus status = gx__text_open_either(g, t, folder, model, is_framed);
    if (status == GX_OK && !setup->vocab) setup->vocab = t->vocab_size;
    if (status == GX_OK) status = gx__text_check_tokenizer(g, t, setup, is_framed);
    if (status == GX_OK && g->rank == 0 && (folder[0] ? strcmp(folder, "bytes") != 0 : model[0] != 0))
        gx_tokenizer_check_keys(t, folder[0] ? folder : model, &g->log, &g->error);
    if (status == GX_OK) status = gx__text_agree_on_tokenizer(g, t);
    if (status != GX_OK) gx_tokenizer_close(t);
    return status;
}

GxStatus gx_text_open_tokenizer(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup)
{
    return gx__text_open(g, t, folder, setup, 1);
}

GxStatus gx_text_open_any_tokenizer(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup)
{
    return gx__text_open(g, t, folder, setup, setup->frames_texts);
}

void gx_text_split_special(GxTokenizer *t, const char *option)
{
    if (strcmp(option, "auto")) t->splits_special = !strcmp(option, "true");
}

// ---- warnings ------------------------------------------------------------------------------------------------------

void gx_text_count_words(GxTextWords *w, const GxTokenizer *t, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int is_unknown = ids[i] == t->role[GX_TOKEN_UNK];
        w->unknown += is_unknown;
        w->words += is_unknown || !(gx_tokenizer_is_special(t, ids[i]) || gx_tokenizer_continues(t, ids[i]));
    }
}

void gx_text_warn_of_unknown(GxContext *g, const GxTokenizer *t, const GxTextWords *w, const char *path)
{
    if (g->rank || 2 * w->unknown <= w->words) return;
    gx_log(
        &g->log, GX_LOG_WARNING,
        "%s: %.0f%% of its words are [UNK]: the tokenizer (%s) has no pieces for them, and a model learns nothing of "
        "them; take a tokenizer of such texts (`./tokenize --train FILE` makes one)",
        path, 100 * (double)w->unknown / (double)w->words, t->identity);
}

void gx_text_warn_of_padding(GxContext *g, const GxTokenizer *t, const GxModel *m)
{
    const GxCoreSpec *embedding = &m->kind[m->unit[0].kind].spec.pair[0].core;
    const long model = (long)embedding->ignored, own = t->role[GX_TOKEN_PAD];
    if (g->rank || !g->device->computes || model < 0 || own < 0 || model == own) return;
    gx_log(
        &g->log, GX_LOG_WARNING,
        "the model's pad_token_id is %ld, and the tokenizer's padding has the id %ld: the model does not train the "
        "embedding of %ld, and others pad with it who load a checkpoint; set pad_token_id to %ld (an option of a new "
        "model; of another one in its config.json), or take the tokenizer that the model was made for",
        model, own, model, own);
}
#endif
