// tokenizer.h: text to token ids and back: the common interface of all kinds of tokenizers.
//
//     bytes      a token's id is the value of its byte (byte_tokens.h). Needs no files and no training, takes any input
//     WordPiece  BERT's: words, split into the longest pieces that a vocabulary has (wordpiece.h)
//     BPE        GPT-2's, LLaMA's, Qwen's: characters or bytes, joined by a list of merges (bpe.h, words.h)
//     Unigram    T5's, XLM-R's: words, split into the most likely pieces (unigram.h, words.h)
//
// A tokenizer is opened from what Hugging Face's libraries read and write: a folder, or a file in it, tokenizer.json or
// vocab.txt. A tokenizer_config.json beside it names the special tokens (and for vocab.txt whether letters become
// lower-case). Text gets the same ids as from `tokenizers` 0.23. What is not supported is refused by name.
// gx_tokenizer_write saves a tokenizer so that `tokenizers` (Tokenizer.from_file) and transformers (AutoTokenizer) can
// load it.
//
//     GxTokenizer t;
//     GX_TRY(gx_tokenizer_open(&t, "bert-base-uncased", err));
//     int32_t ids[64];                                            // gx_tokenizer_most(&t, 5) is always enough
//     int64_t n;
//     GxStatus status = gx_tokenizer_encode(&t, "hello", 5, GX_SPECIAL_AS_TEXT, ids, &n, err);
//     …
//     gx_tokenizer_close(&t);
//
// A model gets its texts in a frame: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], or that of a BPE's post-processor, such
// as RoBERTa's <s> a </s></s> b </s>: gx_tokenizer_join. `truncation` and `padding` in tokenizer.json are ignored:
// gx_tokenizer_join truncates, callers pad.
//
// An open tokenizer is immutable: several threads may use it. Copies of the struct are the same tokenizer: close only
// one of them. A kind is a table of functions (GxTokenizerKind) in a file of its own, and its line in
// gx__tokenizer_kinds.
#ifndef GX_TOKENIZER_H
#define GX_TOKENIZER_H
#include "bpe_files.h"
#include "byt5.h"
#include "byte_tokens.h"
#include "tokenizer_config.h"
#include "tokenizer_kind.h"
#include "unigram_files.h"
#include "wordpiece_files.h"
GX_BEGIN

// GxTokenizer gx_tokenizer_bytes(void): bytes as tokens; needs no close (byte_tokens.h) path: a folder with
// tokenizer.json, or else with vocab.txt; or one of these files. After an error nothing is open.
GxStatus gx_tokenizer_open(GxTokenizer *t, const char *path, GxError *err);
void gx_tokenizer_close(GxTokenizer *t);

// "byte-256", "wordpiece-30522-0123456789abcdef": equal identities give equal ids; stored beside tokenised data.
const char *gx_tokenizer_identity(const GxTokenizer *t);
// ids[gx_tokenizer_most(t, bytes)]; *n: how many were written. No special tokens are added. Bytes that are not UTF-8
// count as U+FFFD (unicode.h), except where tokens are bytes.
GxStatus gx_tokenizer_encode(const GxTokenizer *t, const void *text, int64_t bytes, GxSpecialTokens special,
                             int32_t *ids, int64_t *n, GxError *err);
// For texts that come as lists of words, each encoded by itself: has a byte-level BPE put a space before a word, as a
// word within a text has it. Files that are written stay as they were. Returns 1 if that changes its ids.
int gx_tokenizer_take_words(GxTokenizer *t);
int64_t gx_tokenizer_most(const GxTokenizer *t, int64_t bytes); // the most tokens of a text of so many bytes
// The first place from `at` on where text[bytes] may be cut so that both parts, encoded separately, have the ids of the
// whole. It follows the end of a line, with ASCII characters on both sides: no white space before the line's end, a
// letter after it. Returns `bytes` if there is no such place, or this tokenizer allows none.
int64_t gx_tokenizer_cut(const GxTokenizer *t, const char *text, int64_t bytes, int64_t at);
// text[n * t->longest]; *bytes: how many were written, without a terminating 0.
GxStatus gx_tokenizer_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                             int64_t *bytes, GxError *err);
// The piece as in tokenizer.json, "##ing"; NULL: no token has this id. It is in the tokenizer's memory or in room[8]. A
// piece that contains U+0000 appears to end there; gx_tokenizer_decode returns it whole.
const char *gx_tokenizer_piece(const GxTokenizer *t, int32_t id, char room[8]);
int32_t gx_tokenizer_find(const GxTokenizer *t, const char *piece); // its id; -1: there is none
int gx_tokenizer_is_special(const GxTokenizer *t, int32_t id);      // [CLS] and the like
int gx_tokenizer_continues(const GxTokenizer *t, int32_t id);       // it continues the word of the previous token
// The bytes of the longest added token, special or not, that text[bytes] begins with; 0: none.
int64_t gx_tokenizer_added(const GxTokenizer *t, const char *text, int64_t bytes);

// Writes tokenizer.json, tokenizer_config.json and, if the kind has one, its vocabulary file (vocab.txt). Tokens that
// were added (tokenizer_add.h) are also written to the folder's added_tokens.json, if it has one.
GxStatus gx_tokenizer_write(const GxTokenizer *t, const char *folder, GxError *err);
// Fails unless the folder's tokenizer gives the same ids.
GxStatus gx_tokenizer_check(const GxTokenizer *t, const char *folder, GxError *err);

// ---- texts in their frame ------------------------------------------------------------------------------------------

typedef struct {          // one or two texts as ids, without special tokens
    const int32_t *a, *b; // b NULL: one text
    int64_t n_a, n_b;
} GxTokenTexts;

// How many tokens of each text to keep so that both together have at most `most`, like truncation "longest_first" of
// `tokenizers` and transformers: a text of at most half of `most` is kept whole; if both are longer, the shorter one (a
// if they are equal) gets half, rounded down, and the other the rest. With n_b 0 only a is truncated. Tokens are
// removed at the end. Returns 1 if anything is removed.
int gx_truncate_longest_first(int64_t *n_a, int64_t *n_b, int64_t most);
int gx_tokenizer_frame_tokens(const GxTokenizer *t, int texts); // the tokens added to one text or two; no frame: 0
int gx_tokenizer_frame_before(const GxTokenizer *t);            // those before a single text
// [CLS] a [SEP], types 0; with b: [CLS] a [SEP] of type 0, b [SEP] of type 1; or t->frame. Truncated by longest_first
// to max_length in total. ids[max_length], types[max_length] (NULL: not wanted); *n: how many were written; *cut:
// tokens were left out (NULL: not wanted).
GxStatus gx_tokenizer_join(const GxTokenizer *t, const GxTokenTexts *texts, int64_t max_length, int32_t *ids,
                           int32_t *types, int64_t *n, int *cut, GxError *err);
// Encodes one text and puts it into its frame; t->splits_special decides about special tokens in it. *all: the tokens
// of the text and its frame without truncation (NULL: not wanted).
GxStatus gx_tokenizer_encode_framed(const GxTokenizer *t, const void *text, int64_t bytes, int64_t max_length,
                                    int32_t *ids, int32_t *types, int64_t *n, int64_t *all, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_IMPLEMENTED)
#define GX_TOKENIZER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

enum { GX__TOKENIZER_ADDED = 100 };
static const GxTokenizerKind *const gx__tokenizer_kinds[] = {&gx_byte_tokens, &gx_wordpiece, &gx_bpe, &gx_unigram};
enum { GX__TOKENIZER_KINDS = sizeof gx__tokenizer_kinds / sizeof *gx__tokenizer_kinds };

// ---- opening -------------------------------------------------------------------------------------------------------

enum { GX__TOKENIZER_BYTES = 256 };

// The kind that a model belongs to; NULL: none. BPE with 256 pieces and without merges and added tokens is bytes as
// tokens.
static const GxTokenizerKind *gx__tokenizer_of(const GxJson *root, const GxJson *model, const char *type)
{
    const int has_more = gx_json_size(gx_json_get(model, "merges")) > 0 ||
                         gx_json_size(gx_json_get(root, "added_tokens")) > 0 ||
                         gx_json_size(gx_json_get(model, "vocab")) != GX__TOKENIZER_BYTES;
    if (!strcmp(type, gx_bpe.model_type) && has_more) return &gx_bpe;
    for (int i = 0; i < GX__TOKENIZER_KINDS; i++)
        if (!strcmp(gx__tokenizer_kinds[i]->model_type, type)) return gx__tokenizer_kinds[i];
    return NULL;
}

// The known members of the objects in a tokenizer.json, by their type. Any other member might change ids.
static const char *const gx__tokenizer_members[][2] = {
    {"", "version,truncation,padding,added_tokens,normalizer,pre_tokenizer,post_processor,decoder,model"},
    {"BPE", "type,dropout,unk_token,continuing_subword_prefix,end_of_word_suffix,fuse_unk,byte_fallback,"
            "ignore_merges,vocab,merges"},
    {"Unigram", "type,unk_id,vocab,byte_fallback"},
    {"WordPiece",
     "type,unk_token,continuing_subword_prefix,max_input_chars_per_word,vocab,prefix,cleanup"}, // a decoder
    {"BertNormalizer", "type,clean_text,handle_chinese_chars,strip_accents,lowercase"},
    {"NFC", "type"},
    {"NFD", "type"},
    {"NFKC", "type"},
    {"NFKD", "type"},
    {"Lowercase", "type"},
    {"Precompiled", "type,precompiled_charsmap"},
    {"Strip", "type,strip_left,strip_right,content,start,stop"}, // a normalizer; a decoder
    {"Prepend", "type,prepend"},
    {"Replace", "type,pattern,content"},
    {"BertPreTokenizer", "type"},
    {"ByteLevel", "type,add_prefix_space,trim_offsets,use_regex"},
    {"Split", "type,pattern,behavior,invert"},
    {"WhitespaceSplit", "type"},
    {"Digits", "type,individual_digits"},
    {"Metaspace", "type,replacement,str_rep,add_prefix_space,prepend_scheme,split"},
    {"ByteFallback", "type"},
    {"Fuse", "type"},
    {"TemplateProcessing", "type,single,pair,special_tokens"},
    {"RobertaProcessing", "type,sep,cls,trim_offsets,add_prefix_space"},
    {"Sequence", "type,normalizers,pretokenizers,decoders,processors"},
    {"added_tokens", "id,content,single_word,lstrip,rstrip,normalized,special"},
};

static GxStatus gx__tokenizer_check_members(const GxJson *object, const char *type, const char *path, GxError *err)
{
    const int types = (int)(sizeof gx__tokenizer_members / sizeof *gx__tokenizer_members);
    char cut[GX_TEXT_VALUE];
    int i = 0;
    while (i < types && strcmp(gx__tokenizer_members[i][0], type)) i++;
    for (GxJsonMember m = GX_ZERO; i < types && gx_json_type(object) == GX_JSON_OBJECT && gx_json_next(object, &m);) {
        const char *list = gx__tokenizer_members[i][1];
        GxTextItem item;
        int is_known = !strcmp(m.key, GX_JSON_NUL); // a mark of the JSON reader
        while (gx_text_next(&list, &item))
            is_known |= item.n == (int64_t)strlen(m.key) && !memcmp(item.at, m.key, (size_t)item.n);
        if (!is_known)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s%shas \"%s\", which is not known; supported: %s", path, type,
                           *type ? " " : "it ", gx_text_cut(m.key, cut, sizeof cut), gx__tokenizer_members[i][1]);
    }
    return GX_OK;
}

// Checks a component, and those of a sequence. (json.h bounds the depth.)
static GxStatus gx__tokenizer_check_component(const GxJson *object, const char *path, GxError *err)
{
    static const char *const lists[] = {"normalizers", "pretokenizers", "decoders", "processors"};
    GX_TRY(gx__tokenizer_check_members(object, gx_json_string(gx_json_get(object, "type")), path, err));
    for (int k = 0; k < 4; k++) {
        const GxJson *list = gx_json_get(object, lists[k]);
        for (int64_t i = 0; i < gx_json_size(list); i++)
            GX_TRY(gx__tokenizer_check_component(gx_json_at(list, i), path, err));
    }
    return GX_OK;
}

static GxStatus gx__tokenizer_check_document(const GxJson *root, const char *path, GxError *err)
{
    static const char *const components[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"};
    const GxJson *added = gx_json_get(root, "added_tokens");
    GX_TRY(gx__tokenizer_check_members(root, "", path, err));
    for (int i = 0; i < 5; i++) GX_TRY(gx__tokenizer_check_component(gx_json_get(root, components[i]), path, err));
    for (int64_t i = 0; i < gx_json_size(added); i++)
        GX_TRY(gx__tokenizer_check_members(gx_json_at(added, i), "added_tokens", path, err));
    return GX_OK;
}

static GxStatus gx__tokenizer_open_json(GxTokenizer *t, GxTokenizerSource *from, GxError *err)
{
    GxJson *root, *model = NULL;
    const char *type = "";
    char cut[GX_TEXT_VALUE];
    GX_TRY(gx_json_read_with(&root, from->path, GX_TOKENIZER_CAP, GX_JSON_NULS, err)); // pieces may contain U+0000
    GxStatus status = gx_json_get_object(root, "model", 1, &model, from->path, err);
    if (status == GX_OK) status = gx_json_get_string(model, "type", 1, &type, from->path, err);
    const GxTokenizerKind *kind = gx__tokenizer_of(root, model, type);
    from->json = root;
    if (status == GX_OK && !kind)
        status = GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: the model is \"%s\"; supported: WordPiece, BPE, Unigram",
                         from->path, gx_text_cut(type, cut, sizeof cut));
    if (status == GX_OK) status = kind->files.open(t, from, err);
    if (status == GX_OK) status = gx__tokenizer_check_document(root, from->path, err);
    gx_json_free(root);
    from->json = NULL;
    return status;
}

// The folder's tokenizer.json, or else the vocabulary file of a kind; "": it has neither.
static GxStatus gx__tokenizer_find_file(char file[GX_PATH], const char *folder, GxError *err)
{
    GX_TRY(gx_path_join(file, folder, "tokenizer.json", err));
    if (gx_path_is_file(file) || gx_path_is_broken(file)) return GX_OK; // broken: reported when it is opened
    for (int i = 0; i < GX__TOKENIZER_KINDS; i++) {
        if (!gx__tokenizer_kinds[i]->vocabulary) continue;
        GX_TRY(gx_path_join(file, folder, gx__tokenizer_kinds[i]->vocabulary, err));
        if (gx_path_is_file(file)) return GX_OK;
    }
    file[0] = 0;
    return GX_OK;
}

// A folder without a file of a kind: what transformers has in a class alone, which tokenizer_config.json names.
static GxStatus gx__tokenizer_open_class(GxTokenizer *t, const char *folder, GxError *err)
{
    GxJson *config = NULL;
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    const int is_byt5 = gx_byt5_is_named(config);
    GxStatus status = is_byt5 ? gx_byt5_open(t, config, folder, err) : GX_OK;
    gx_json_free(config);
    if (is_byt5) return status;
    return GX_FAIL(err, GX_ERR_IO, "%s holds no tokenizer: it has neither tokenizer.json nor vocab.txt", folder);
}

GxStatus gx_tokenizer_open(GxTokenizer *t, const char *path, GxError *err)
{
    char file[GX_PATH], folder[GX_PATH], config_path[GX_PATH], names_path[GX_PATH];
    GxJson *config = NULL;
    GxTokenizerSource from = {file, NULL, NULL, config_path, names_path};
    memset(t, 0, sizeof *t);
    if (gx_path_is_folder(path)) GX_TRY(gx__tokenizer_find_file(file, path, err));
    else if (snprintf(file, sizeof file, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    if (!file[0]) return gx__tokenizer_open_class(t, path, err);
    gx_path_parent(folder, file);
    GX_TRY(gx_path_join(config_path, folder, GX_TOKENIZER_CONFIG, err));
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    const size_t n = strlen(file);
    const int is_text = n > 4 && !strcmp(file + n - 4, ".txt");
    from.config = config;
    GxStatus status = gx_tokenizer_config_names_path(names_path, config, folder, err);
    if (status == GX_OK)
        status = is_text ? gx_wordpiece.files.open(t, &from, err) : gx__tokenizer_open_json(t, &from, err);
    if (status == GX_OK && config)
        status = gx_json_get_bool(config, "split_special_tokens", 0, &t->splits_special, config_path, err);
    if (status != GX_OK) gx_tokenizer_close(t);
    gx_json_free(config);
    return status;
}

void gx_tokenizer_close(GxTokenizer *t)
{
    if (t->kind) t->kind->files.close(t);
    memset(t, 0, sizeof *t);
}

// ---- what a kind does ----------------------------------------------------------------------------------------------

const char *gx_tokenizer_identity(const GxTokenizer *t) { return t->identity; }

GxStatus gx_tokenizer_encode(const GxTokenizer *t, const void *text, int64_t bytes, GxSpecialTokens special,
                             int32_t *ids, int64_t *n, GxError *err)
{
    *n = 0;
    return t->kind->texts.encode(t, (const char *)text, bytes, special, ids, n, err);
}

GxStatus gx_tokenizer_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                             int64_t *bytes, GxError *err)
{
    *bytes = 0;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "token %ld has the id %ld; the vocabulary ends at %d", (long)i,
                           (long)ids[i], t->vocab_size - 1);
    return t->kind->texts.decode(t, ids, n, special, text, bytes, err);
}

int64_t gx_tokenizer_most(const GxTokenizer *t, int64_t bytes) { return bytes * t->tokens_for_byte; }

int gx_tokenizer_take_words(GxTokenizer *t)
{
    GxWords *v = t->kind == &gx_bpe ? (GxWords *)t->vocabulary : NULL;
    if (!v || !gx_words_add_prefix(v)) return 0;
    t->tokens_for_byte = gx_words_tokens_for_byte(v);
    return 1;
}

int64_t gx_tokenizer_cut(const GxTokenizer *t, const char *text, int64_t bytes, int64_t at)
{
    if (!t->kind->texts.lines_are_apart(t)) return bytes;
    for (at = gx_max(at, 2); at < bytes; at++) {
        const char *end = (const char *)memchr(text + at - 1, '\n', (size_t)(bytes - at));
        if (!end) return bytes;
        at = end - text + 1;
        if (end[-1] > ' ' && end[-1] < 127 && gx_is_ascii_letter(end[1])) return at;
    }
    return bytes;
}

static int gx__tokenizer_has(const GxTokenizer *t, int32_t id) { return id >= 0 && id < t->vocab_size; }
const char *gx_tokenizer_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    return gx__tokenizer_has(t, id) ? t->kind->pieces.piece(t, id, room) : NULL;
}
int32_t gx_tokenizer_find(const GxTokenizer *t, const char *piece) { return t->kind->pieces.find(t, piece); }
int64_t gx_tokenizer_added(const GxTokenizer *t, const char *text, int64_t bytes)
{
    char piece[GX__TOKENIZER_ADDED + 1];
    const int is_of_words = t->kind == &gx_bpe || t->kind == &gx_unigram;
    const GxWords *v = is_of_words ? (const GxWords *)t->vocabulary : NULL;
    int64_t longest = 0;
    for (int i = 0; v && i < v->added_n; i++) {
        const GxWordAdded *a = &v->added[i];
        if (a->bytes > longest && a->bytes <= bytes && !memcmp(a->pattern, text, (size_t)a->bytes)) longest = a->bytes;
    }
    for (int64_t n = 1; !v && n <= bytes && n <= GX__TOKENIZER_ADDED; n++) {
        memcpy(piece, text, (size_t)n), piece[n] = 0;
        const int32_t id = gx_tokenizer_find(t, piece);
        if (id >= 0 && gx_tokenizer_is_special(t, id)) longest = n;
    }
    return longest;
}

int gx_tokenizer_is_special(const GxTokenizer *t, int32_t id)
{
    return gx__tokenizer_has(t, id) && t->kind->pieces.is_special(t, id);
}
int gx_tokenizer_continues(const GxTokenizer *t, int32_t id)
{
    return gx__tokenizer_has(t, id) && t->kind->pieces.continues(t, id);
}

// Writes to tokenizer_config.json whether special tokens in texts are treated as characters.
static GxStatus gx__tokenizer_write_special(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *config;
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    if (!config || gx_json_bool(gx_json_get(config, "split_special_tokens")) == t->splits_special) {
        gx_json_free(config);
        return GX_OK;
    }
    GxStatus status = gx_json_set(config, "split_special_tokens", gx_json_new_bool(t->splits_special), err);
    if (status == GX_OK) status = gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err);
    if (status == GX_OK) status = gx_json_write(config, path, err);
    gx_json_free(config);
    return status;
}

// Adds the tokens that were added here to added_tokens.json, if an older folder has it.
static GxStatus gx__tokenizer_write_added(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH], room[8];
    GxJson *added;
    GX_TRY(gx_path_join(path, folder, "added_tokens.json", err));
    if (!t->added_from || !gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read_object(&added, path, GX_TOKENIZER_CAP, GX_JSON_NULS, err));
    for (int32_t id = t->added_from; id < t->vocab_size; id++)
        gx_json_set(added, gx_tokenizer_piece(t, id, room), gx_json_new_int(id), err);
    if (!gx_error_code(err)) gx_json_write(added, path, err);
    gx_json_free(added);
    return gx_error_code(err);
}

GxStatus gx_tokenizer_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    GX_TRY(t->kind->files.write(t, folder, err));
    GX_TRY(gx__tokenizer_write_special(t, folder, err));
    return gx__tokenizer_write_added(t, folder, err);
}

GxStatus gx_tokenizer_check(const GxTokenizer *t, const char *folder, GxError *err)
{
    GxTokenizer other;
    char difference[GX_TOKENIZER_DIFFERENCE] = "another kind of tokenizer";
    if (t->kind->files.check) return t->kind->files.check(t, folder, err);
    GX_TRY(gx_tokenizer_open(&other, folder, err));
    const int same = !strcmp(t->identity, other.identity);
    if (other.kind == t->kind) t->kind->files.difference(t, &other, difference);
    gx_tokenizer_close(&other);
    if (same) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: its tokenizer gives other ids than this one: %s", folder, difference);
}

// ---- texts in their frame ------------------------------------------------------------------------------------------

int gx_truncate_longest_first(int64_t *n_a, int64_t *n_b, int64_t most)
{
    const int a_is_shorter = *n_a <= *n_b;
    int64_t shorter = gx_min(*n_a, *n_b), longer = gx_max(*n_a, *n_b);
    if (shorter + longer <= most) return 0;
    if (shorter > most / 2) shorter = most / 2;
    longer = most - shorter;
    *n_a = a_is_shorter ? shorter : longer;
    *n_b = a_is_shorter ? longer : shorter;
    return 1;
}

// The frame of one text or two. A tokenizer without a frame of its own gets one from its roles.
static GxStatus gx__tokenizer_frame(const GxTokenizer *t, int two, GxTokenFrame *frame, GxError *err)
{
    const int32_t cls = t->role[GX_TOKEN_CLS], sep = t->role[GX_TOKEN_SEP];
    const GxFramePart parts[] = {{cls, 0}, {GX_FRAME_A, 0}, {sep, 0}, {GX_FRAME_B, 1}, {sep, 1}};
    *frame = t->frame[two];
    if (frame->n > 0) return GX_OK;
    if (cls < 0 || sep < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the tokenizer %s has no %s to put between texts", t->identity,
                       cls < 0 ? "[CLS]" : "[SEP]");
    frame->n = two ? 5 : 3;
    memcpy(frame->part, parts, (size_t)frame->n * sizeof *parts);
    return GX_OK;
}

int gx_tokenizer_frame_tokens(const GxTokenizer *t, int texts)
{
    GxTokenFrame frame;
    GxError ignored = GX_ZERO;
    return gx__tokenizer_frame(t, texts == 2, &frame, &ignored) == GX_OK ? frame.n - texts : 0;
}

int gx_tokenizer_frame_before(const GxTokenizer *t)
{
    GxTokenFrame frame;
    GxError ignored = GX_ZERO;
    int i = 0;
    if (gx__tokenizer_frame(t, 0, &frame, &ignored) != GX_OK) return 0;
    while (i < frame.n && frame.part[i].id != GX_FRAME_A) i++;
    return i;
}

GxStatus gx_tokenizer_join(const GxTokenizer *t, const GxTokenTexts *texts, int64_t max_length, int32_t *ids,
                           int32_t *types, int64_t *n, int *cut, GxError *err)
{
    GxTokenFrame frame;
    int64_t n_a = texts->n_a, n_b = texts->b ? texts->n_b : 0;
    *n = 0;
    GX_TRY(gx__tokenizer_frame(t, texts->b != NULL, &frame, err));
    const int64_t tokens = frame.n - (texts->b ? 2 : 1);
    if (max_length < tokens)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "at most %ld tokens are allowed, but the special tokens around a text are already %ld",
                       (long)max_length, (long)tokens);
    const int is_cut = gx_truncate_longest_first(&n_a, &n_b, max_length - tokens);
    if (cut) *cut = is_cut;
    for (int i = 0; i < frame.n; i++) {
        const GxFramePart *part = &frame.part[i];
        const int32_t *from = part->id == GX_FRAME_A ? texts->a : part->id == GX_FRAME_B ? texts->b : &part->id;
        const int64_t many = part->id == GX_FRAME_A ? n_a : part->id == GX_FRAME_B ? n_b : 1;
        for (int64_t k = 0; k < many; k++, ++*n) {
            ids[*n] = from[k];
            if (types) types[*n] = part->type;
        }
    }
    return GX_OK;
}

GxStatus gx_tokenizer_encode_framed(const GxTokenizer *t, const void *text, int64_t bytes, int64_t max_length,
                                    int32_t *ids, int32_t *types, int64_t *n, int64_t *all, GxError *err)
{
    int32_t *plain = (int32_t *)malloc((size_t)(gx_tokenizer_most(t, bytes) + 1) * sizeof *plain);
    GxTokenTexts one = {plain, NULL, 0, 0};
    *n = 0;
    if (!plain) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    GxStatus status = gx_tokenizer_encode(t, text, bytes, gx_tokenizer_special(t), plain, &one.n_a, err);
    if (status == GX_OK) status = gx_tokenizer_join(t, &one, max_length, ids, types, n, NULL, err);
    if (all) *all = one.n_a + gx_tokenizer_frame_tokens(t, 1);
    free(plain);
    return status;
}
#endif
