// task/text_tokenizer.h: the WordPiece tokenizer of a task that puts texts between [CLS] and [SEP]: from the folder
// that an option names, or the model's own.
//
//     GX_TRY(gx_text_open_tokenizer(g, &t, options->tokenizer, setup));      // on every rank
//
// If both exist they must give the same ids, except that the option's may extend the model's (tokenizer_add.h). An
// adapter's folder with a tokenizer takes the place of the model's. All ranks must have the same tokenizer; rank 0
// sends the others the files of the model's own, and the list of tokens to be added. If setup->vocab is 0, it becomes
// the tokenizer's size; if it is smaller than that, it grows if setup->may_grow, and is an error otherwise.
#ifndef GX_TEXT_TOKENIZER_H
#define GX_TEXT_TOKENIZER_H
#include "../text/tokenizer_add.h"
#include "../text/tokenizer_keys.h"
#include "task.h"
#include "text_batch.h"
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
            "how the name of a special token in a text, such as [SEP], is read. true: as characters; false: as that "  \
            "token; auto: as tokenizer_config.json says, otherwise false",                                             \
            "auto|true|false"                                                                                          \
    }
void gx_text_split_special(GxTokenizer *t, const char *option);
// The option of tasks that learn from records.
#define GX_SKIP_BAD_RECORDS(offset)                                                                                    \
    {                                                                                                                  \
        "skip_bad_records", GX_FIELD_BOOL, offset, "false",                                                            \
            "leave bad records out, with a warning that counts them and says what is wrong with the first ten; "       \
            "false: a bad record is an error",                                                                         \
            NULL                                                                                                       \
    }

// Warnings by rank 0 about what makes a model worse: that most words of a text are [UNK]; that the model's pad_token_id
// differs from the tokenizer's (for a task's `allocate`; not on a device that does not compute).
typedef struct {
    int64_t words, unknown; // [UNK] among them
} GxTextWords;
void gx_text_count_words(GxTextWords *w, const GxTokenizer *t, const int32_t *ids, int64_t n); // adds those of a text
void gx_text_warn_of_unknown(GxContext *g, const GxTokenizer *t, const GxTextWords *w, const char *path);
void gx_text_warn_of_padding(GxContext *g, const GxTokenizer *t, const GxModel *m);

// For a task's `allocate`, once its layout has been set: the model's positions. Warns of padding; an error if the model
// has no types for the tokens of `texts` texts, 1 or 2.
void gx_text_fit_model(GxContext *g, GxTextLayout *l, const GxTokenizer *t, const GxModel *m, int texts);
const char *gx_text_frame_name(const GxTokenizer *t); // what is put around a text, for messages: "[CLS] and [SEP]"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_TOKENIZER_IMPLEMENTED)
#define GX_TEXT_TOKENIZER_IMPLEMENTED
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

// A file of a tokenizer, or the name of one that has none (a ByT5's).
static int gx__text_has_tokenizer(const char *folder)
{
    GxJson *config = NULL;
    GxError ignored = GX_ZERO; // a file that is wrong is none
    if (gx__text_has_file(folder, gx__text_files[0]) || gx__text_has_file(folder, gx__text_files[1])) return 1;
    const int is_named = gx_tokenizer_config_read(&config, folder, &ignored) == GX_OK && gx_byt5_is_named(config);
    gx_json_free(config);
    return is_named;
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

// Broadcasts what rank 0 has read.
static void gx__text_send(GxContext *g, const char *name, gx__TextFile *f)
{
    gx_broadcast(g, GX_AXIS_ALL, 0, &f->n, 1, GX_I64); // on a failed context this tells the other ranks
    if (gx_failed(g) || f->n < 0) return;
    if (g->rank) f->text = (char *)malloc((size_t)f->n + 1);
    if (!f->text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld bytes of %s", (long)f->n, name);
    if (f->n > 0 && !gx_failed(g)) gx_broadcast(g, GX_AXIS_ALL, 0, f->text, f->n, GX_U8);
    if (f->text && g->rank) f->text[f->n] = 0;
}

// Broadcasts a file of rank 0's folder.
static void gx__text_receive(GxContext *g, const char *folder, const char *name, gx__TextFile *f)
{
    f->text = NULL, f->n = -1;
    if (!gx_failed(g) && g->rank == 0) gx__text_read_file(folder, name, f, &g->error);
    gx__text_send(g, name, f);
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
    char folder[GX_PATH], path[GX_PATH];
    GxStatus status = GX_OK;
    GxError ignored = GX_ZERO;
    GX_TRY(gx_folder_make_temporary(folder, "galaxy-tokenizer", err));
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
                   other ? ", which is not read; transformers' AutoTokenizer saves it as tokenizer.json)" : "",
                   is_framed ? "" : "; --tokenizer bytes says that each byte is a token");
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
                       "rank %d: rank 0 has a --tokenizer, and this rank has none; give all ranks the same", g->rank);
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "there is no tokenizer: --tokenizer FOLDER names one; `./tokenize --train "
                   "data/bert/pretrain.txt --vocab_size 8000 --output_dir data/tokenizer` makes one from a text");
}

static GxStatus gx__text_check_roles(GxContext *g, const GxTokenizer *t, int is_framed)
{
    static const char *const names[GX_TOKEN_ROLES] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (int role = GX_TOKEN_CLS; role <= GX_TOKEN_SEP; role++)
        if (is_framed && t->role[role] < 0 && !gx_tokenizer_frame_tokens(t, 1))
            return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                           "the tokenizer %s has no token %s; texts are put between [CLS] and [SEP]: use a WordPiece "
                           "tokenizer, such as `./tokenize --train` makes, or one whose tokenizer.json says what is "
                           "put around texts, such as RoBERTa's",
                           t->identity, names[role]);
    return GX_OK;
}

// On rank 0, which has the model's folder: checks that an option's tokenizer gives the ids that the model's does; it
// may have more.
static GxStatus gx__text_check_ids(GxContext *g, const GxTokenizer *t, const char *model, const GxTaskSetup *setup)
{
    GxError other = GX_ZERO;
    GxTokenizer own;
    char difference[GX_TOKENIZER_DIFFERENCE];
    const int has_own = model[0] && gx__text_has_tokenizer(model);
    if (!has_own && setup->may_grow && t->vocab_size > setup->vocab)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the tokenizer (%s) has %d tokens, but the model in %s has %ld rows for them, and no tokenizer "
                       "of its own to see whether the first tokens are the same; give the tokenizer that the model was "
                       "trained with, and new tokens with --add_tokens",
                       t->identity, t->vocab_size, model, (long)setup->vocab);
    if (!has_own || gx_tokenizer_check(t, model, &other) == GX_OK) return GX_OK;
    GX_TRY(gx_tokenizer_open(&own, model, &g->error));
    const int is_longer = t->vocab_size > own.vocab_size,
              extends = is_longer && gx_tokenizer_extends(t, &own, difference);
    if (extends && setup->may_grow)
        gx_log(&g->log, GX_LOG_INFO, "the tokenizer's vocabulary is larger by %d than that of %s, whose ids it keeps",
               t->vocab_size - own.vocab_size, model);
    gx_tokenizer_close(&own);
    if (extends && setup->may_grow) return GX_OK;
    if (!is_longer || !setup->may_grow)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the model in %s has another tokenizer (%s); leave out --tokenizer to use the model's own",
                       model, other.message);
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "--tokenizer is neither that of the model in %s nor an extension of it (%s); leave it out to use "
                   "the model's own, to which --add_tokens FILE adds tokens",
                   model, difference);
}

// Logs what became of the list.
static void gx__text_say_added(GxContext *g, const char *path, const GxTokensAdded *said, int64_t rows)
{
    char known[100] = "", there[100] = "";
    const int64_t have = gx_max(0, gx_min(said->added, rows - said->first)); // rows of a padded embedding
    if (have) snprintf(there, sizeof there, "; the model has rows for %ld of them, which stay as they are", (long)have);
    if (said->known)
        snprintf(known, sizeof known, "; %ld %s there already, and stay%s as %s", (long)said->known,
                 said->known == 1 ? "is" : "are", said->known == 1 ? "s" : "", said->known == 1 ? "it is" : "they are");
    if (said->added)
        gx_log(&g->log, GX_LOG_INFO, "%s: %ld new token%s, with the ids %ld to %ld%s%s", path, (long)said->added,
               gx_text_s(said->added), (long)said->first, (long)(said->first + said->added - 1), known, there);
    else
        gx_log(&g->log, GX_LOG_WARNING, "%s: the tokenizer already has all %ld token%s; none is new", path,
               (long)said->known, gx_text_s(said->known));
}

static GxStatus gx__text_add_tokens(GxContext *g, GxTokenizer *t, GxTaskSetup *setup)
{
    const char *path = setup->add_tokens ? setup->add_tokens : "";
    int64_t adds = path[0] != 0; // on rank 0
    gx__TextFile file = {NULL, -1};
    char name[GX_PATH] = "";
    GxNewTokens list = GX_ZERO;
    GxTokensAdded said;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, &adds, 1, GX_I64);
    setup->has_added = path[0] || adds;
    if (gx_failed(g) || !adds) return gx_status(g);
    snprintf(name, sizeof name, "%s", path);
    gx_broadcast(g, GX_AXIS_ALL, 0, name, GX_PATH, GX_U8);
    if (g->rank == 0 && !gx_failed(g)) gx_file_read(name, GX_NEW_TOKENS_CAP, &file.text, &file.n, &g->error);
    gx__text_send(g, name, &file);
    if (!gx_failed(g) && gx_new_tokens_read(&list, file.text, file.n, name, &g->error) == GX_OK &&
        gx_tokenizer_add(t, &list, &said, &g->error) == GX_OK && g->rank == 0)
        gx__text_say_added(g, name, &said, setup->vocab);
    if (!gx_failed(g)) setup->added = said.added;
    gx_new_tokens_close(&list);
    free(file.text);
    return gx_status(g);
}

static GxStatus gx__text_fit_vocab(GxContext *g, const GxTokenizer *t, GxTaskSetup *setup)
{
    if (!setup->vocab || (setup->may_grow && setup->vocab < t->vocab_size)) setup->vocab = t->vocab_size;
    if (setup->vocab >= t->vocab_size) return GX_OK;
    if (setup->adapter && setup->adapter[0])
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the tokenizer (%s) has %d tokens, but the model of the adapter has %ld rows for them and does "
                       "not grow; merge the adapter first (./merge_adapter), and begin from that model",
                       t->identity, t->vocab_size, (long)setup->vocab);
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "vocab_size is %ld, but the tokenizer (%s) has %d tokens; it must be at least that, or 0: as many",
                   (long)setup->vocab, t->identity, t->vocab_size);
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
                   "rank %d: the tokenizer here is %s, but on rank 0 it is %s; all ranks need the same: copy rank 0's",
                   g->rank, t->identity, first);
}

// 1: the folder no longer exists, but the run is resumed, so its tokenizer is in the checkpoint.
static int gx__text_is_gone(GxContext *g, const char *folder, const GxTaskSetup *setup)
{
    const int is_gone = folder[0] && strcmp(folder, "bytes") && !gx_path_is_file(folder) &&
                        !gx_path_is_folder(folder) && setup->model[0] && !setup->starts_from_model &&
                        gx__text_has_tokenizer(setup->model);
    if (is_gone)
        gx_log(&g->log, GX_LOG_WARNING, "the tokenizer %s does not exist; that of %s is used", folder, setup->model);
    return is_gone;
}

static GxStatus gx__text_prepare(GxContext *g, GxTokenizer *t, const char *folder, const char *model,
                                 GxTaskSetup *setup, int is_framed)
{
    GX_TRY(gx__text_check_roles(g, t, is_framed));
    if (g->rank == 0 && folder[0]) GX_TRY(gx__text_check_ids(g, t, model, setup));
    if (g->rank == 0 && (folder[0] ? strcmp(folder, "bytes") != 0 : model[0] != 0))
        GX_TRY(gx_tokenizer_check_keys(t, folder[0] ? folder : model, &g->log, &g->error));
    return gx_status(g);
}

static GxStatus gx__text_open(GxContext *g, GxTokenizer *t, const char *folder, GxTaskSetup *setup, int is_framed)
{
    char model[GX_PATH] = "";
    const int is_adapters = setup->adapter && setup->adapter[0] && gx__text_has_tokenizer(setup->adapter);
    const char *from = is_adapters ? setup->adapter : setup->model;
    memset(t, 0, sizeof *t);
    if (snprintf(model, sizeof model, "%s", from) >= GX_PATH)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", model, GX_PATH - 1);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, model, GX_PATH, GX_U8);
    GX_TRY(gx_status(g));
    if (setup->keeps_tokenizer || gx__text_is_gone(g, folder, setup)) folder = "";
    gx__text_open_either(g, t, folder, model, is_framed);
    if (!gx_failed(g)) gx__text_prepare(g, t, folder, model, setup, is_framed);
    gx__text_add_tokens(g, t, setup); // on a failed context this tells the other ranks
    if (!gx_failed(g)) gx__text_fit_vocab(g, t, setup);
    if (!gx_failed(g)) gx__text_agree_on_tokenizer(g, t);
    if (gx_failed(g)) gx_tokenizer_close(t);
    return gx_status(g);
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
    gx_log(&g->log, GX_LOG_WARNING,
           "%s: %.0f%% of its words are [UNK], because the tokenizer (%s) has no pieces for them, and a model learns "
           "nothing from [UNK]; use a tokenizer trained on such texts (`./tokenize --train FILE` makes one)",
           path, 100 * (double)w->unknown / (double)w->words, t->identity);
}

const char *gx_text_frame_name(const GxTokenizer *t)
{
    return t->role[GX_TOKEN_CLS] >= 0 && t->role[GX_TOKEN_SEP] >= 0 ? "[CLS] and [SEP]" : "the tokenizer's frame";
}

void gx_text_fit_model(GxContext *g, GxTextLayout *l, const GxTokenizer *t, const GxModel *m, int texts)
{
    const GxConSpec *con = &m->kind[m->unit[0].kind].spec.pair[0].con;
    const int32_t plain[1] = {0};
    const GxTokenTexts both = {plain, texts == 2 ? plain : NULL, 0, 0};
    int32_t ids[GX_FRAME_MOST], types[GX_FRAME_MOST];
    int64_t n = 0;
    GxError ignored = GX_ZERO; // of a tokenizer without a frame
    l->first_position = (int32_t)con->first_position, l->skips_padding = con->skips_padding;
    gx_text_warn_of_padding(g, t, m);
    gx_tokenizer_join(t, &both, GX_FRAME_MOST, ids, types, &n, NULL, &ignored);
    for (int64_t i = 0; i < n && con->types > 0; i++)
        if (types[i] >= con->types && !gx_failed(g))
            GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                    "the tokenizer %s gives tokens of a second text the type %d, but the model has only %ld "
                    "(type_vocab_size); use a tokenizer whose tokens all have type 0, or a model with more types",
                    t->identity, types[i], (long)con->types);
}

void gx_text_warn_of_padding(GxContext *g, const GxTokenizer *t, const GxModel *m)
{
    const GxCoreSpec *embedding = &m->kind[m->unit[0].kind].spec.pair[0].core;
    const long model = (long)embedding->ignored, own = t->role[GX_TOKEN_PAD];
    if (g->rank || !g->device->computes || model < 0 || own < 0 || model == own) return;
    gx_log(&g->log, GX_LOG_WARNING,
           "the model's pad_token_id is %ld, but the tokenizer's padding has the id %ld: the model does not train the "
           "embedding of %ld, and programs that load a checkpoint pad with it; set pad_token_id to %ld (for a new "
           "model an option, else in its config.json), or use the tokenizer that the model was made for",
           model, own, model, own);
}
#endif
