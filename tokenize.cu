// tokenize.cu: trains a WordPiece or BPE tokenizer on texts, converts texts into token files for training, or shows how
// a tokenizer (WordPiece, BPE, Unigram, bytes) splits a text.
//
//     ./tokenize --train a.txt,b.txt --vocab_size 8000 --output_dir data/tokenizer
//     ./tokenize --train texts,b.jsonl --type bpe --vocab_size 8000 --output_dir data/tokenizer    like GPT-2's
//     ./tokenize --tokenizer SmolLM2-135M --corpus texts --output_file texts.tokens    then: --train_data texts.tokens
//     ./tokenize --tokenizer SmolLM2-135M-Instruct --corpus chats.jsonl --seq_len 1024 --output_file chats.tokens
//     ./tokenize --tokenizer data/tokenizer --text "An example."     one line of JSON: {"ids": [...], "pieces": [...]}
//     ./tokenize --tokenizer data/tokenizer --file lines.txt         one for each line of the file
//
// The folder has tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt, which Hugging Face's tokenizers
// and transformers also load. It appears only once it is complete; a folder that is not empty is not touched.
#include "galaxy.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    char train[GX_PATH], type[GX_FIELD_TEXT], output_dir[GX_PATH], strip_accents[GX_FIELD_TEXT];
    int64_t vocab_size, min_frequency, limit_alphabet;
    int lowercase, handle_chinese_chars, clean_text;
    char tokenizer[GX_PATH], text[GX_PATH], file[GX_PATH];
    int add_special_tokens;
    char split_special_tokens[GX_FIELD_TEXT];
    int64_t max_length;
    char corpus[GX_PATH], output_file[GX_PATH], chat_template[GX_PATH], chat_date[GX_FIELD_TEXT];
    int64_t threads, seq_len;
} Options;

#define AT(field) offsetof(Options, field)
static const GxField training[] = {
    {"train", GX_FIELD_PATH, AT(train), "",
     "texts to train a vocabulary on: A or A,B,...: text files; .jsonl, .csv or .tsv files with a \"text\" in each "
     "record, or with conversations; or folders of .txt and .jsonl files",
     NULL},
    {"type", GX_FIELD_STRING, AT(type), "wordpiece", "wordpiece: as BERT; bpe: on bytes, as GPT-2", "wordpiece|bpe"},
    {"output_dir", GX_FIELD_PATH, AT(output_dir), "", "folder to write the new tokenizer to", NULL},
    {"vocab_size", GX_FIELD_INT, AT(vocab_size), "30000",
     "size of the vocabulary, at least the special tokens and characters (bpe: 258); smaller if no pair is frequent "
     "enough",
     "6..16777216"},
    {"min_frequency", GX_FIELD_INT, AT(min_frequency), "2", "how often a pair must occur to become a piece", "1.."},
};
static const GxField training_wordpiece[] = {
    {"limit_alphabet", GX_FIELD_INT, AT(limit_alphabet), "1000",
     "how many different characters to keep, the most frequent ones; 0: all", "0.."},
    {"lowercase", GX_FIELD_BOOL, AT(lowercase), "true", "convert letters to lower case", NULL},
    {"strip_accents", GX_FIELD_STRING, AT(strip_accents), "auto",
     "remove accents; auto: if letters are converted to lower case", "auto|true|false"},
    {"handle_chinese_chars", GX_FIELD_BOOL, AT(handle_chinese_chars), "true", "make each Chinese character a word",
     NULL},
    {"clean_text", GX_FIELD_BOOL, AT(clean_text), "true", "remove control characters", NULL},
};
static const GxField files_of_tokens[] = {
    {"tokenizer", GX_FIELD_PATH, AT(tokenizer), "", "folder of a tokenizer, its tokenizer.json or vocab.txt, or bytes",
     NULL},
    {"corpus", GX_FIELD_PATH, AT(corpus), "",
     "texts to turn into tokens: a text file; .jsonl, .csv or .tsv with a \"text\" in each record; a folder of .txt "
     "and .jsonl files; or a file of conversations, instructions or prompts, as train_llama's --train_data",
     NULL},
    {"output_file", GX_FIELD_PATH, AT(output_file), "",
     "file of tokens to write, for the --train_data of the trainers; if the program is interrupted, the same command "
     "continues",
     NULL},
    {"chat_template", GX_FIELD_LONG_TEXT, AT(chat_template), "auto",
     "format of conversations. auto: the chat template of the tokenizer's folder (it is executed), or, for "
     "instructions without one, Alpaca's format; a file: the template in it; or one of " GX_CHAT_NAMES,
     NULL},
    {"chat_date", GX_FIELD_STRING, AT(chat_date), "",
     "the date, YYYY-MM-DD, for a chat template that writes today's date; empty: today", NULL},
    {"seq_len", GX_FIELD_INT, AT(seq_len), "256",
     "for conversations: tokens in a sample, the same as for train_llama; longer conversations lose their last turns",
     "1..16777216"},
    {"threads", GX_FIELD_INT, AT(threads), "0", "CPU threads; 0: as many as there are processors", "0..1024"},
};
static const GxField showing[] = {
    {"text", GX_FIELD_LONG_TEXT, AT(text), "", "text whose tokens to show", NULL},
    {"file", GX_FIELD_PATH, AT(file), "", "file or pipe of up to 64 MB; shows the tokens of each line", NULL},
    {"add_special_tokens", GX_FIELD_BOOL, AT(add_special_tokens), "false",
     "add the special tokens around a text, such as [CLS] and [SEP], or <s>", NULL},
    {"max_length", GX_FIELD_INT, AT(max_length), "0", "most tokens of a text, special tokens included; 0: all",
     "0..1000000"},
    GX_SPLIT_SPECIAL_TOKENS(AT(split_special_tokens)),
};

static void log_line(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", text);
}
static const GxLogger to_stderr = {log_line, NULL};

// ---- training ------------------------------------------------------------------------------------------------------

static int split_names(char *list, const char **name, int most) // at commas; 0: too many, or an empty one
{
    int n = 0;
    for (char *p = list; p; n++) {
        char *comma = strchr(p, ',');
        if (n == most || *p == 0 || *p == ',') return 0;
        name[n] = p;
        if (comma) *comma++ = 0;
        p = comma;
    }
    return n;
}

static GxStatus train_wordpiece(GxTokenizer *t, const char *const *name, int n, const Options *o, GxError *err)
{
    GxWordPieceTraining how = gx_wordpiece_training(o->vocab_size);
    int64_t too_long = 0;
    how.log = &to_stderr;
    how.min_frequency = o->min_frequency, how.limit_alphabet = o->limit_alphabet;
    how.normalizer.clean_text = o->clean_text, how.normalizer.handle_chinese_chars = o->handle_chinese_chars;
    how.normalizer.lowercase = o->lowercase;
    if (strcmp(o->strip_accents, "auto")) how.normalizer.strip_accents = !strcmp(o->strip_accents, "true");
    how.too_long = &too_long;
    GX_TRY(gx_wordpiece_train(t, name, n, &how, err));
    if (too_long)
        fprintf(stderr, "tokenize: left out %ld word%s of more than %ld characters, which become [UNK]\n",
                (long)too_long, gx_text_s(too_long), (long)how.max_word);
    return GX_OK;
}

static GxStatus train_bpe(GxTokenizer *t, const char *const *name, int n, const Options *o, GxError *err)
{
    GxBpeTraining how = gx_bpe_training(o->vocab_size);
    how.min_frequency = o->min_frequency, how.log = &to_stderr;
    return gx_bpe_train(t, name, n, &how, err);
}

static GxStatus train_into(const Options *o, const char *folder, GxError *err)
{
    enum { MOST = 1000 };
    char list[GX_PATH];
    const char *name[MOST];
    GxTokenizer t;
    snprintf(list, sizeof list, "%s", o->train);
    const int n = split_names(list, name, MOST);
    if (n == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--train is \"%s\"; expected names of files separated by commas",
                       o->train);
    const double begun = gx_seconds();
    GX_TRY((!strcmp(o->type, "bpe") ? train_bpe : train_wordpiece)(&t, name, n, o, err));
    const GxStatus status = gx_tokenizer_write(&t, folder, err);
    if (status == GX_OK)
        printf("%s: %d piece%s in %.1f s, %s\n", o->output_dir, t.vocab_size, gx_text_s(t.vocab_size),
               gx_seconds() - begun, gx_tokenizer_identity(&t));
    gx_tokenizer_close(&t);
    return status;
}

// BPE does not normalize a text, so the options of WordPiece's normalizer do not apply to it.
static GxStatus check_type(const Options *o, const GxConfig *c, GxError *err)
{
    if (strcmp(o->type, "bpe")) return GX_OK;
    for (size_t i = 0; i < sizeof training_wordpiece / sizeof *training_wordpiece; i++) {
        const char *option = training_wordpiece[i].name;
        if (gx_config_is_set(c, option))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s%s is only for WordPiece; leave it out, or --type bpe", option,
                           gx_config_source(c, option) == GX_FROM_FILE ? " (in the --config file)" : "");
    }
    return GX_OK;
}

static GxStatus train(const Options *o, const GxConfig *c, GxError *err)
{
    GxClaim claim;
    GX_TRY(check_type(o, c, err));
    if (!o->output_dir[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_dir is missing: the folder to write the tokenizer to");
    GX_TRY(gx_claim_folder(&claim, o->output_dir, err));
    return gx_claim_publish(&claim, train_into(o, claim.folder, err), err);
}

// ---- files of tokens -----------------------------------------------------------------------------------------------

// A line that is rewritten in place, at most a few times a second.
typedef struct {
    double begun, said;
    int64_t before; // tokens at the first call, more than 0 if an earlier run is continued; -1: no call yet
    int shown;
} Progress;

static void show_progress(void *user, int64_t done, int64_t bytes, int64_t tokens)
{
    Progress *p = (Progress *)user;
    const double now = gx_seconds();
    if (p->before < 0) p->before = tokens, p->begun = now;
    const double seconds = now - p->begun;
    if (now - p->said < 0.2 && done < bytes) return;
    p->said = now, p->shown = 1;
    fprintf(stderr, "\r%.1f of %.1f MB (%.1f%%), %.2f million tokens, %.2f million a second   ", (double)done / 1e6,
            (double)bytes / 1e6, bytes > 0 ? 100 * (double)done / (double)bytes : 100.0, (double)tokens / 1e6,
            seconds > 0 ? (double)(tokens - p->before) / 1e6 / seconds : 0.0);
    fflush(stderr);
}

typedef struct {
    GxChatReading reading;
    GxError lacks;
    char date[GX_FIELD_TEXT];
} Chats;

// Sets how conversations are read, like task/chat_format.h for training. The caller closes reading.format.
static GxStatus open_chats(const Options *o, const GxTokenizer *t, Chats *c, GxError *err)
{
    char folder[GX_PATH] = "";
    const char *const folders[] = {folder};
    const int is_asked = !gx_chat_is_auto(o->chat_template);
    GxJson *said = NULL;
    memset(c, 0, sizeof *c);
    GX_TRY(gx_chat_check_date(o->chat_date, err));
    if (gx_path_is_folder(o->tokenizer)) snprintf(folder, sizeof folder, "%s", o->tokenizer);
    else if (gx_path_is_file(o->tokenizer)) gx_path_parent(folder, o->tokenizer);
    snprintf(c->date, sizeof c->date, "%s", o->chat_date);
    gx_chat_find(&said, o->chat_template, folders, 1, &c->lacks);
    if (said) gx_chat_open(&c->reading.format, said, c->date, t, &c->lacks);
    if (c->reading.format && gx_chat_dates(c->reading.format) && !c->date[0]) { // the same day for all
        const time_t now = time(NULL);
        struct tm day;
        if (localtime_r(&now, &day)) strftime(c->date, sizeof c->date, "%Y-%m-%d", &day);
        gx_chat_close(c->reading.format);
        gx_chat_open(&c->reading.format, said, c->date, t, &c->lacks);
    }
    gx_json_free(said);
    const GxStatus lacks = gx_error_code(&c->lacks);
    if (lacks != GX_OK && is_asked) return GX_FAIL(err, lacks, "%s", c->lacks.message);
    if (lacks != GX_OK) c->reading.lacks = c->lacks.message;
    if (o->chat_date[0] && !(c->reading.format && gx_chat_dates(c->reading.format)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--chat_date changes nothing: %s does not write today's date; leave it out",
                       c->reading.format ? gx_chat_name(c->reading.format) : "what instructions become");
    if (!(c->reading.format && gx_chat_dates(c->reading.format))) c->date[0] = 0;
    return GX_OK;
}

static void say_count(int64_t n, const char *one, const char *several, const char *what)
{
    if (n > 0) fprintf(stderr, "tokenize: %ld %s %s\n", (long)n, n == 1 ? one : several, what);
}

// How much of a file of conversations is trained on, and how it was read.
static void say_learned(const GxTokenFile *f, const Chats *c, int64_t seq_len)
{
    const GxDatasetChat *chat = &f->chats.counts;
    printf(", %.1f%% of them learned", 100 * (double)chat->learned / (double)f->tokens);
    if (chat->texts)
        printf("; %ld prompt%s with completion%s", (long)chat->texts, gx_text_s(chat->texts), gx_text_s(chat->texts));
    if (chat->n > chat->texts)
        printf("; %ld conversation%s, format %s", (long)(chat->n - chat->texts), gx_text_s(chat->n - chat->texts),
               c->reading.format ? gx_chat_name(c->reading.format) : "alpaca");
    printf("; --seq_len %ld", (long)seq_len);
}

static void say_chats(const Chats *c, const GxDatasetChat *chat)
{
    const GxChatFormat *f = c->reading.format;
    say_count(chat->shortened, "conversation is", "conversations are",
              "longer than a sample (--seq_len): their last turns are left out");
    say_count(chat->left_out, "answer is", "answers are",
              "left out: too long for a sample (--seq_len), together with what is answered");
    say_count(chat->unanswered, "conversation ends", "conversations end", "with a user's turn, which is left out");
    if (!f) return;
    if (!gx_chat_end(f)[0])
        fprintf(stderr, "tokenize: %s writes nothing after an answer, so the model will not learn to end one\n",
                gx_chat_name(f));
    say_count(chat->lacks[GX_CHAT_LACKS_SYSTEM], "conversation lacks", "conversations lack",
              "what the system says: the chat template leaves it out");
    say_count(chat->lacks[GX_CHAT_LACKS_USER], "conversation lacks", "conversations lack",
              "what the user says: the chat template leaves it out");
    say_count(chat->lacks[GX_CHAT_LACKS_END], "conversation lacks", "conversations lack",
              "the token that ends an answer in what is learned");
}

static GxStatus check_corpus(const Options *o, GxError *err)
{
    if (!o->output_file[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_file is missing: the file to write the tokens to");
    if (strchr(o->corpus, ',') && access(o->corpus, F_OK) != 0)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--corpus %s: expected one file or folder, and there is none of this name; to use several texts, make a "
            "file of tokens of each, which --train_data accepts as a list, or put them into one folder",
            o->corpus);
    return GX_OK;
}

// An error if an option for conversations is given although there are no conversations.
static GxStatus check_texts(const Options *o, const GxConfig *c, GxError *err)
{
    static const char *const names[] = {"chat_template", "chat_date", "seq_len"};
    for (int i = 0; i < 3; i++)
        if (gx_config_source(c, names[i]) == GX_FROM_FLAG)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "--%s is for conversations, but %s holds texts (or its first record has a \"text\"); leave it out",
                names[i], o->corpus);
    return GX_OK;
}

static GxStatus write_corpus(const Options *o, const GxConfig *c, const GxTokenizer *t, GxError *err)
{
    Progress p = {0, 0, -1, 0};
    GxCorpusWriting how = GX_ZERO;
    GxCorpus all;
    GxClaim claim;
    Chats chats;
    char size[GX_TEXT_SIZE];
    GX_TRY(check_corpus(o, err));
    GX_TRY(gx_claim_file(&claim, o->output_file, err));
    how.threads = o->threads ? (int)o->threads : gx_threads_for(NULL), how.log = &to_stderr;
    if (isatty(2)) how.progress = show_progress, how.user = &p;
    const int is_chat = gx_dataset_is_chat(o->corpus, &gx_record_reading, &to_stderr);
    GxStatus status = is_chat ? open_chats(o, t, &chats, err) : check_texts(o, c, err);
    if (is_chat) how.chats = &chats.reading, how.seq_len = o->seq_len, how.date = chats.date;
    char parts[GX_PATH + 8];
    snprintf(parts, sizeof parts, "%s" GX_CORPUS_PARTS, o->output_file);
    const int goes_on = gx_path_is_folder(parts);
    const double begun = gx_seconds();
    if (status == GX_OK) status = gx_corpus_write(o->output_file, o->corpus, t, &how, &all, err);
    else memset(&all, 0, sizeof all);
    const double seconds = gx_seconds() - begun;
    gx_claim_end(&claim);
    if (p.shown) fprintf(stderr, "\n");
    if (all.empty)
        fprintf(stderr, "tokenize: left out %ld text%s\n", (long)all.empty,
                all.empty == 1 ? " that is empty" : "s that are empty");
    if (status == GX_OK && is_chat) say_chats(&chats, &all.file.chats.counts);
    if (status == GX_OK)
        printf("%s: %ld document%s, %s of text, %ld token%s of %s", o->output_file, (long)all.file.documents,
               gx_text_s(all.file.documents), gx_text_size(all.file.bytes, size), (long)all.file.tokens,
               gx_text_s(all.file.tokens), gx_tokenizer_identity(t));
    if (status == GX_OK && is_chat) say_learned(&all.file, &chats, o->seq_len);
    if (status == GX_OK && goes_on) printf("; the rest in %.1f s\n", seconds);
    else if (status == GX_OK) printf(" in %.1f s (%.1f MB/s)\n", seconds, (double)all.file.bytes / 1e6 / seconds);
    if (is_chat) gx_chat_close(chats.reading.format);
    return status;
}

// ---- showing -------------------------------------------------------------------------------------------------------

static GxStatus print_ids(const GxTokenizer *t, const int32_t *ids, int64_t n, GxError *err)
{
    GxJson *line = gx_json_new_object(), *list = gx_json_new_array(), *pieces = gx_json_new_array();
    char room[8], *text = NULL;
    int64_t bytes;
    for (int64_t i = 0; i < n; i++) {
        const char *piece = gx_tokenizer_piece(t, ids[i], room);
        gx_json_append(list, gx_json_new_int(ids[i]), err);
        gx_json_append(pieces, gx_json_new_string(piece ? piece : ""), err);
    }
    gx_json_set(line, "ids", list, err);
    gx_json_set(line, "pieces", pieces, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_dump(line, 0, &text, &bytes, err);
    if (status == GX_OK) printf("%s\n", text); // write errors are reported at the end
    free(text);
    gx_json_free(line);
    return status;
}

static GxStatus show(const Options *o, const GxTokenizer *t, const char *text, int64_t bytes, GxError *err)
{
    const int64_t most = gx_tokenizer_most(t, bytes) + 1;
    int32_t *ids = (int32_t *)malloc((size_t)(2 * most + GX_FRAME_MOST) * sizeof *ids), *framed = ids + most;
    int64_t n;
    if (!ids) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    GxStatus status = gx_tokenizer_encode(t, text, bytes, gx_tokenizer_special(t), ids, &n, err);
    const GxTokenTexts one = {ids, NULL, n, 0};
    if (status == GX_OK && o->add_special_tokens)
        status = gx_tokenizer_join(t, &one, o->max_length ? o->max_length : n + gx_tokenizer_frame_tokens(t, 1), framed,
                                   NULL, &n, NULL, err);
    else if (o->max_length) n = gx_min(n, o->max_length);
    if (status == GX_OK) status = print_ids(t, o->add_special_tokens ? framed : ids, n, err);
    free(ids);
    return status;
}

enum { MOST_OF_A_LINE = 64 << 20 };

typedef struct {
    const char *path;
    FILE *file;
    char *text;
    int64_t n, room, number; // n: bytes, without the newline; number: counted from 1
} Line;

// Opens a file, a pipe (including /dev/stdin) or a terminal. Other devices may be endless.
static GxStatus open_lines(Line *l, const char *path, GxError *err)
{
    const char *kind = gx_path_kind(path);
    memset(l, 0, sizeof *l);
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_IT_IS, err));
    l->path = path, l->file = fopen(path, "r");
    if (!l->file) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    if (strcmp(kind, "a folder") && (strcmp(kind, "a device") || isatty(fileno(l->file)))) return GX_OK;
    fclose(l->file);
    return GX_FAIL(err, GX_ERR_IO, "--file %s is %s; expected a text file, or a pipe", path, kind);
}

// *is_there 0: there is no further line.
static GxStatus next_line(Line *l, int *is_there, GxError *err)
{
    int c;
    l->n = 0, l->number++;
    while ((c = getc_unlocked(l->file)) != EOF && c != '\n') {
        if (l->n == MOST_OF_A_LINE)
            return GX_FAIL(err, GX_ERR_FORMAT, "--file %s: line %ld has more than %d bytes", l->path, (long)l->number,
                           MOST_OF_A_LINE);
        if (l->n == l->room) {
            char *grown = (char *)realloc(l->text, (size_t)(l->room = 2 * l->room + 1000));
            if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for line %ld of %s", (long)l->number, l->path);
            l->text = grown;
        }
        l->text[l->n++] = (char)c;
    }
    *is_there = c != EOF || l->n > 0;
    if (ferror(l->file)) return GX_FAIL(err, GX_ERR_IO, "cannot read %s: %s", l->path, strerror(errno));
    return GX_OK;
}

static GxStatus show_file(const Options *o, const GxTokenizer *t, GxError *err)
{
    Line l;
    int is_there = 1;
    GX_TRY(open_lines(&l, o->file, err));
    GxStatus status = next_line(&l, &is_there, err);
    if (status == GX_OK)
        status = gx_file_check_head(l.path, l.n ? l.text : "", l.n, GX_FILE_AS_IT_IS, err); // for a pipe
    while (status == GX_OK && is_there && !ferror(stdout)) {
        status = show(o, t, l.n ? l.text : "", l.n, err);
        if (status == GX_OK) status = next_line(&l, &is_there, err);
    }
    free(l.text);
    fclose(l.file);
    return status;
}

// An error if an option is given that only has an effect in another use of this program.
static GxStatus check_use(const Options *o, const GxConfig *c, GxError *err)
{
    const int use = o->train[0] ? 0 : o->corpus[0] ? 1 : 2;
    static const char *const name[] = {"--train", "--corpus", "--text or --file"};
    static const struct {
        const GxField *option;
        int n, uses; // one bit per use
    } tables[] = {{GX_FIELDS(training), 1 << 0},
                  {GX_FIELDS(training_wordpiece), 1 << 0},
                  {GX_FIELDS(files_of_tokens), 1 << 1},
                  {GX_FIELDS(showing), 1 << 2}};
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (int i = 0; i < tables[k].n; i++) {
            const char *option = tables[k].option[i].name;
            int of = 0;
            if (!strcmp(option, "tokenizer") || tables[k].uses >> use & 1 || !gx_config_is_set(c, option)) continue;
            while (!(tables[k].uses >> of & 1)) of++;
            if (!strcmp(option, "corpus") || !strcmp(option, "text") || !strcmp(option, "file"))
                return GX_FAIL(err, GX_ERR_ARGUMENT, "expected one of %s and --%s; see --help", name[use], option);
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s belongs to %s, but this is %s; leave one of them out", option,
                           name[of], name[use]);
        }
    return GX_OK;
}

static GxStatus open_tokenizer(GxTokenizer *t, const char *path, GxError *err)
{
    GX_TRY(gx_tokenizer_open(t, path, err));
    const GxStatus status = gx_tokenizer_check_keys(t, path, &to_stderr, err);
    if (status != GX_OK) gx_tokenizer_close(t);
    return status;
}

static GxStatus run(const Options *o, const GxConfig *c, GxError *err)
{
    GxTokenizer t;
    const int has_text = gx_config_is_set(c, "text");
    GX_TRY(gx_check_one_process(err));
    if (!o->train[0] == !o->tokenizer[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "expected one of --train FILES and --tokenizer FOLDER; see --help");
    if (o->train[0]) GX_TRY(check_use(o, c, err));
    if (o->train[0]) return train(o, c, err);
    if (o->corpus[0] && (has_text || o->file[0]))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "expected one of --corpus, --text and --file; see --help");
    if (!o->corpus[0] && has_text == (o->file[0] != 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "expected one of --corpus TEXTS, --text TEXT and --file FILE; see --help");
    GX_TRY(check_use(o, c, err));
    if (!strcmp(o->tokenizer, "bytes")) t = gx_tokenizer_bytes();
    else GX_TRY(open_tokenizer(&t, o->tokenizer, err));
    gx_text_split_special(&t, o->split_special_tokens);
    const GxStatus status = o->corpus[0] ? write_corpus(o, c, &t, err)
                            : has_text   ? show(o, &t, o->text, (int64_t)strlen(o->text), err)
                                         : show_file(o, &t, err);
    gx_tokenizer_close(&t);
    return status;
}

#ifndef GX_NO_MAIN // test_tokenizer.cu includes this file
static void print_version(void)
{
    printf("galaxy %s, utf8proc %s, PCRE2 %s\n", GX_VERSION, gx_unicode_version(), gx_regex_is_built() ? "yes" : "no");
}

static void print_help(const GxConfig *c)
{
    printf("usage: tokenize --train FILE,FILE,... --output_dir FOLDER [--option value ...]\n"
           "       tokenize --tokenizer FOLDER --corpus TEXTS --output_file FILE [...]\n"
           "       tokenize --tokenizer FOLDER --text TEXT | --file FILE [...]\n\n");
    gx_config_help(c, NULL, 0, stdout, 80);
}

int main(int argc, char **argv)
{
    static Options o;
    static GxConfig c;
    GxError err = GX_ZERO;
    signal(SIGXFSZ, SIG_IGN); // so that write fails at a file size limit, and the error names the file
    gx_config_open(&c);
    gx_config_add(&c, "Training a vocabulary", GX_FIELDS(training), &o, &err);
    gx_config_add(&c, "Training a vocabulary: WordPiece", GX_FIELDS(training_wordpiece), &o, &err);
    gx_config_add(&c, "Files of tokens", GX_FIELDS(files_of_tokens), &o, &err);
    gx_config_add(&c, "Showing tokens", GX_FIELDS(showing), &o, &err);
    gx_config_add_alias(&c, "plain_text", "split_special_tokens", &err);
    gx_config_read_args(&c, argc, argv, &err);
    const int is_read = err.code == GX_OK;
    if (is_read && c.help) print_help(&c);
    else if (is_read && c.version) print_version();
    else if (is_read) run(&o, &c, &err);
    if (err.code != GX_OK) fprintf(stderr, "tokenize: %s\n", err.message);
    return gx_exit_status(err.code != GX_OK);
}
#endif
