// tokenizer_add.h: gives a tokenizer tokens that its vocabulary does not have: <|im_start|>, <tool>, words of a domain.
//
//     GxNewTokens list;
//     GxTokensAdded said;
//     GX_TRY(gx_new_tokens_read(&list, text, bytes, "tokens.txt", err));  // the text of a file of that name
//     GxStatus status = gx_tokenizer_add(&t, &list, &said, err);          // t is a new tokenizer now
//     gx_new_tokens_close(&list);
//
// A file whose name ends with .json has one of these forms:
//     ["<tool>", …]                        as for transformers' add_tokens(["<tool>"]): not special, normalized
//     [{"content": "<tool>", …}, …]        transformers' AddedToken: special, lstrip, rstrip, normalized, single_word,
//                                          all false by default, except normalized, whose default is the
//                                          opposite of special; an id, as in tokenizer.json, must be the one it gets
//     {"<tool>": 32000, …}                 added_tokens.json: each token must get its id
// Any other file has one token per line, with the meaning of ["<tool>", …]; empty lines are ignored.
//
// New tokens get the ids after those of the tokenizer, in the order of the list. A token that the tokenizer already
// has, as an added token or a piece of its model, is not changed. Refused are U+0000, which `tokenizers` cannot
// express, and single_word, which is not supported here. Texts without the new tokens keep their ids.
//
// The tokenizer is written to a temporary folder under TMPDIR, the tokens are inserted into its files (tokenizer.json,
// and tokenizer_config.json and special_tokens_map.json if they have such lists), and it is opened again. So
// transformers and `tokenizers` read the same tokens from the files that gx_tokenizer_write then writes.
#ifndef GX_TOKENIZER_ADD_H
#define GX_TOKENIZER_ADD_H
#include "tokenizer.h"
GX_BEGIN

typedef struct {
    char *content;
    int special, normalized, lstrip, rstrip;
    int64_t id; // -1: not given
} GxNewToken;
typedef struct {
    GxNewToken *token;
    int64_t n, capacity;
    const char *path; // as given
} GxNewTokens;
typedef struct {
    int64_t added, known; // known: those that existed already, or occurred twice
    int32_t first;        // id of the first one that was added
} GxTokensAdded;

enum { GX_NEW_TOKENS_CAP = 64 << 20 }; // bytes of a file

// path must stay valid until gx_new_tokens_close, which is to be called after an error, too.
GxStatus gx_new_tokens_read(GxNewTokens *list, const char *text, int64_t bytes, const char *path, GxError *err);
void gx_new_tokens_close(GxNewTokens *list);
// After an error t is unchanged.
GxStatus gx_tokenizer_add(GxTokenizer *t, const GxNewTokens *list, GxTokensAdded *said, GxError *err);
// 1: each id of `base` has the same piece in t, and t has more. Otherwise `difference` says what differs.
int gx_tokenizer_extends(const GxTokenizer *t, const GxTokenizer *base, char difference[GX_TOKENIZER_DIFFERENCE]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_ADD_IMPLEMENTED)
#define GX_TOKENIZER_ADD_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the list ------------------------------------------------------------------------------------------------------

void gx_new_tokens_close(GxNewTokens *list)
{
    for (int64_t i = 0; i < list->n; i++) free(list->token[i].content);
    free(list->token);
    memset(list, 0, sizeof *list);
}

// content: n bytes, not terminated. The other fields of *token are used as they are.
static GxStatus gx__new_tokens_put(GxNewTokens *list, GxNewToken token, const char *content, int64_t n, GxError *err)
{
    if (list->n == list->capacity) {
        const int64_t capacity = gx_max(16, 2 * list->capacity);
        GxNewToken *grown = (GxNewToken *)realloc(list->token, (size_t)capacity * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)capacity);
        list->token = grown, list->capacity = capacity;
    }
    token.content = (char *)malloc((size_t)n + 1);
    if (!token.content) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a token of %ld bytes", (long)n);
    memcpy(token.content, content, (size_t)n);
    token.content[n] = 0;
    list->token[list->n++] = token;
    return GX_OK;
}

static GxNewToken gx__new_tokens_plain(void)
{
    const GxNewToken plain = {NULL, 0, 1, 0, 0, -1};
    return plain;
}

static int gx__new_tokens_is_blank(const char *text, int64_t n)
{
    const char *end = text + n;
    uint32_t c = ' ';
    for (const char *p = text; p < end && gx_unicode_is_space(c);) p += gx_unicode_decode(p, end, &c);
    return gx_unicode_is_space(c);
}

static int gx__new_tokens_is_text(const char *content) // 1: valid UTF-8
{
    GxJson *text = gx_json_new_string(content);
    gx_json_free(text);
    return text != NULL;
}

static GxStatus gx__new_tokens_read_lines(GxNewTokens *list, const char *text, int64_t bytes, GxError *err)
{
    const char *const bom = "\xEF\xBB\xBF";
    const char *p = text + (bytes >= 3 && !memcmp(text, bom, 3) ? 3 : 0), *const end = text + bytes;
    for (long line = 1; p < end; line++) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p)), *next = stop ? stop + 1 : end;
        const int64_t whole = gx_max(0, (stop ? stop : end) - p), n = whole - (whole > 0 && p[whole - 1] == '\r');
        if (n > 0 && memchr(p, 0, (size_t)n))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s, line %ld: it has a byte of value 0, which no token can have",
                           list->path, line);
        if (n > 0 && gx__new_tokens_is_blank(p, n))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s, line %ld: there is only white space; remove the line, or, if that is the token, write "
                           "the list as JSON",
                           list->path, line);
        if (n > 0) GX_TRY(gx__new_tokens_put(list, gx__new_tokens_plain(), p, n, err));
        if (n > 0 && !gx__new_tokens_is_text(list->token[list->n - 1].content))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s, line %ld: it is not UTF-8 text", list->path, line);
        p = next;
    }
    return GX_OK;
}

static GxStatus gx__new_tokens_read_object(GxNewTokens *list, const GxJson *from, int64_t at, GxError *err)
{
    static const char *const keys[] = {"content", "special", "lstrip",      "rstrip", "normalized",
                                       "id",      "__type",  "single_word", NULL};
    const char *content = "";
    char where[GX_PATH + 40], cut[GX_TEXT_VALUE];
    int single_word = 0;
    GxNewToken token = gx__new_tokens_plain();
    snprintf(where, sizeof where, "%s: token %ld", list->path, (long)at);
    for (GxJsonMember m = GX_ZERO; gx_json_next(from, &m);) {
        int k = 0;
        while (keys[k] && strcmp(keys[k], m.key)) k++;
        if (!keys[k])
            return GX_FAIL(
                err, GX_ERR_FORMAT,
                "%s has \"%s\"; expected content, and optionally special, lstrip, rstrip, normalized, single_word, id",
                where, gx_text_cut(m.key, cut, sizeof cut));
    }
    GX_TRY(gx_json_get_string(from, "content", 1, &content, where, err));
    GX_TRY(gx_json_get_bool(from, "special", 0, &token.special, where, err));
    token.normalized = !token.special;
    GX_TRY(gx_json_get_bool(from, "normalized", 0, &token.normalized, where, err));
    GX_TRY(gx_json_get_bool(from, "lstrip", 0, &token.lstrip, where, err));
    GX_TRY(gx_json_get_bool(from, "rstrip", 0, &token.rstrip, where, err));
    GX_TRY(gx_json_get_bool(from, "single_word", 0, &single_word, where, err));
    GX_TRY(gx_json_get_int(from, "id", 0, &token.id, where, err));
    if (single_word)
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s, \"%s\", has single_word true, which is not supported; leave it out, or remove the token from the list",
            where, gx_text_cut(content, cut, sizeof cut));
    return gx__new_tokens_put(list, token, content, (int64_t)strlen(content), err);
}

static int gx__new_tokens_by_id(const void *a, const void *b)
{
    const int64_t p = ((const GxNewToken *)a)->id, q = ((const GxNewToken *)b)->id;
    return (p > q) - (p < q);
}

static GxStatus gx__new_tokens_read_json(GxNewTokens *list, const GxJson *root, GxError *err)
{
    char found[GX_JSON_FOUND], cut[GX_TEXT_VALUE];
    for (int64_t i = 0; gx_json_type(root) == GX_JSON_ARRAY && i < gx_json_size(root); i++) {
        const GxJson *one = gx_json_at(root, i);
        const char *content = gx_json_string(one);
        if (gx_json_type(one) == GX_JSON_OBJECT) GX_TRY(gx__new_tokens_read_object(list, one, i, err));
        else if (gx_json_type(one) == GX_JSON_STRING)
            GX_TRY(gx__new_tokens_put(list, gx__new_tokens_plain(), content, (int64_t)strlen(content), err));
        else
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: token %ld is %s; expected a text, or an object with its content (AddedToken)",
                           list->path, (long)i, gx_json_found(one, found));
    }
    for (GxJsonMember m = GX_ZERO; gx_json_type(root) == GX_JSON_OBJECT && gx_json_next(root, &m);) {
        GxNewToken token = gx__new_tokens_plain();
        token.id = gx_json_int(m.value);
        if (gx_json_type(m.value) != GX_JSON_INT || token.id < 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: \"%s\" is %s; an object gives each token its id, as added_tokens.json does; expected "
                           "that, or a list of texts or of AddedToken objects",
                           list->path, gx_text_cut(m.key, cut, sizeof cut), gx_json_found(m.value, found));
        GX_TRY(gx__new_tokens_put(list, token, m.key, (int64_t)strlen(m.key), err));
    }
    if (gx_json_type(root) == GX_JSON_OBJECT && list->n)
        qsort(list->token, (size_t)list->n, sizeof *list->token, gx__new_tokens_by_id);
    if (gx_json_type(root) == GX_JSON_ARRAY || gx_json_type(root) == GX_JSON_OBJECT) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s is %s; expected a list of texts or of AddedToken objects, or {\"token\": id, …}", list->path,
                   gx_json_found(root, found));
}

GxStatus gx_new_tokens_read(GxNewTokens *list, const char *text, int64_t bytes, const char *path, GxError *err)
{
    GxJson *root = NULL;
    GxError ignored = GX_ZERO;
    memset(list, 0, sizeof *list);
    list->path = path;
    if (gx_path_has_end(path, ".json")) {
        GX_TRY(gx_json_parse(&root, text, bytes, path, err));
        gx__new_tokens_read_json(list, root, err);
    } else if (gx_json_parse(&root, text, bytes, path, &ignored) == GX_OK && gx_json_type(root) >= GX_JSON_ARRAY)
        GX_FAIL(err, GX_ERR_FORMAT,
                "%s is JSON, but would be read as lines with a token each; give it a name that ends with .json", path);
    else gx__new_tokens_read_lines(list, text, bytes, err);
    gx_json_free(root);
    for (int64_t i = 0; i < list->n && !gx_error_code(err); i++)
        if (!list->token[i].content[0]) GX_FAIL(err, GX_ERR_FORMAT, "%s: token %ld is empty", path, (long)i);
    if (!list->n && !gx_error_code(err)) GX_FAIL(err, GX_ERR_FORMAT, "%s has no tokens", path);
    return gx_error_code(err);
}

// ---- the files -----------------------------------------------------------------------------------------------------

// The tokens of the list that are to be added, in their order, as another list that borrows their contents.
static GxStatus gx__tokenizer_add_choose(const GxTokenizer *t, const GxNewTokens *list, GxNewTokens *chosen,
                                         GxTokensAdded *said, GxError *err)
{
    GxPieces seen = GX_ZERO; // of the list
    char cut[GX_TEXT_VALUE];
    said->added = said->known = 0, said->first = t->vocab_size;
    chosen->token = (GxNewToken *)malloc((size_t)list->n * sizeof *chosen->token);
    GxStatus status = chosen->token ? gx_pieces_index(&seen, err)
                                    : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)list->n);
    for (int64_t i = 0; i < list->n && status == GX_OK; i++) {
        const GxNewToken *token = &list->token[i];
        const int64_t bytes = (int64_t)strlen(token->content);
        const int32_t there = gx_tokenizer_find(t, token->content),
                      twice = gx_pieces_find(&seen, token->content, bytes);
        const int64_t id = there >= 0 ? there : t->vocab_size + (twice >= 0 ? twice : chosen->n);
        if (token->id >= 0 && token->id != id)
            status = GX_FAIL(err, GX_ERR_ARGUMENT,
                             "%s: \"%s\" is given the id %ld, but %s %ld: new tokens get the next ids of the tokenizer "
                             "(%s), in their order; leave the id out, or correct it",
                             list->path, gx_text_cut(token->content, cut, sizeof cut), (long)token->id,
                             there >= 0 ? "the tokenizer has it as" : "it would get", (long)id, t->identity);
        if (there >= 0 || twice >= 0) {
            said->known++;
            continue;
        }
        if (status == GX_OK)
            status = gx_pieces_add(&seen, (int32_t)chosen->n, token->content, bytes, GX_PIECE_MODEL, err);
        if (status == GX_OK) status = gx_pieces_enter(&seen, (int32_t)chosen->n, err);
        chosen->token[chosen->n++] = *token;
    }
    gx_pieces_close(&seen);
    said->added = chosen->n;
    return status;
}

static GxJson *gx__tokenizer_add_object(const GxNewToken *token, int64_t id, GxError *err) // id -1: without an id
{
    GxJson *out = gx_json_new_object();
    if (id >= 0) gx_json_set(out, "id", gx_json_new_int(id), err);
    gx_json_set(out, "content", gx_json_new_string(token->content), err);
    gx_json_set(out, "single_word", gx_json_new_bool(0), err);
    gx_json_set(out, "lstrip", gx_json_new_bool(token->lstrip), err);
    gx_json_set(out, "rstrip", gx_json_new_bool(token->rstrip), err);
    gx_json_set(out, "normalized", gx_json_new_bool(token->normalized), err);
    gx_json_set(out, "special", gx_json_new_bool(token->special), err);
    return out;
}

// Changes a file of the folder, if it exists, by `edit`, which returns how many values it has inserted.
typedef int64_t (*gx__TokenizerEdit)(GxJson *root, const GxNewTokens *list, int32_t first, GxError *err);
static GxStatus gx__tokenizer_add_edit(const char *folder, const char *name, gx__TokenizerEdit edit,
                                       const GxNewTokens *list, int32_t first, GxError *err)
{
    char path[GX_PATH];
    GxJson *root;
    GX_TRY(gx_path_join(path, folder, name, err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read_object(&root, path, GX_TOKENIZER_CAP, GX_JSON_BIG_INTEGERS | GX_JSON_NULS, err));
    const int64_t edits = edit(root, list, first, err);
    if (edits && !gx_error_code(err)) gx_json_write(root, path, err);
    gx_json_free(root);
    return gx_error_code(err);
}

static int64_t gx__tokenizer_add_to_document(GxJson *root, const GxNewTokens *list, int32_t first, GxError *err)
{
    if (gx_json_type(gx_json_get(root, "added_tokens")) != GX_JSON_ARRAY)
        gx_json_set(root, "added_tokens", gx_json_new_array(), err);
    for (int64_t i = 0; i < list->n; i++)
        gx_json_append(gx_json_get(root, "added_tokens"), gx__tokenizer_add_object(&list->token[i], first + i, err),
                       err);
    return list->n;
}

// Inserts special tokens into a list of names, if the file has one.
static int64_t gx__tokenizer_add_names(GxJson *names, const GxNewTokens *list, GxError *err)
{
    int64_t edits = 0;
    for (int64_t i = 0; gx_json_type(names) == GX_JSON_ARRAY && i < list->n; i++) {
        const GxNewToken *token = &list->token[i];
        const int is_plain = !token->lstrip && !token->rstrip && !token->normalized;
        if (token->special && is_plain) gx_json_append(names, gx_json_new_string(token->content), err), edits++;
    }
    return edits;
}

static int64_t gx__tokenizer_add_to_config(GxJson *root, const GxNewTokens *list, int32_t first, GxError *err)
{
    GxJson *decoder = gx_json_get(root, "added_tokens_decoder");
    char id[24];
    for (int64_t i = 0; gx_json_type(decoder) == GX_JSON_OBJECT && i < list->n; i++) {
        snprintf(id, sizeof id, "%ld", (long)(first + i));
        gx_json_set(decoder, id, gx__tokenizer_add_object(&list->token[i], -1, err), err);
    }
    return gx__tokenizer_add_names(gx_json_get(root, "additional_special_tokens"), list, err) +
           gx__tokenizer_add_names(gx_json_get(root, "extra_special_tokens"), list, err) + gx_json_size(decoder);
}

static int64_t gx__tokenizer_add_to_map(GxJson *root, const GxNewTokens *list, int32_t first, GxError *err)
{
    return (void)first, gx__tokenizer_add_names(gx_json_get(root, "additional_special_tokens"), list, err);
}

// ---- adding --------------------------------------------------------------------------------------------------------

static GxStatus gx__tokenizer_add_in(const GxTokenizer *t, GxTokenizer *grown, const GxNewTokens *list,
                                     const char *folder, GxError *err)
{
    const int32_t first = t->vocab_size;
    GX_TRY(gx_tokenizer_write(t, folder, err));
    GX_TRY(gx__tokenizer_add_edit(folder, "tokenizer.json", gx__tokenizer_add_to_document, list, first, err));
    GX_TRY(gx__tokenizer_add_edit(folder, GX_TOKENIZER_CONFIG, gx__tokenizer_add_to_config, list, first, err));
    GX_TRY(gx__tokenizer_add_edit(folder, "special_tokens_map.json", gx__tokenizer_add_to_map, list, first, err));
    return gx_tokenizer_open(grown, folder, err);
}

// Names the file of the tokens in the error, since the user does not know the temporary folder.
static GxStatus gx__tokenizer_add_explain(const GxNewTokens *list, const char *folder, GxError *err)
{
    GxError told = GX_ZERO;
    const int64_t n = (int64_t)strlen(folder);
    const char *at = strstr(err->message, folder);
    GX_FAIL(&told, gx_error_code(err), "%s: its tokens cannot be added to the tokenizer: %s", list->path,
            at == err->message && at[n] == '/' ? at + n + 1 : err->message);
    *err = told;
    return gx_error_code(err);
}

// `tokenizers` gives new tokens ids that begin at the number of existing ones, so ids must have no gaps.
static GxStatus gx__tokenizer_add_check_gaps(const GxTokenizer *t, const GxNewTokens *list, GxError *err)
{
    char room[8];
    for (int32_t id = 0; id < t->vocab_size; id++)
        if (!gx_tokenizer_piece(t, id, room))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: tokens cannot be added to a tokenizer (%s) that has no piece for one of its ids, %ld: "
                           "the `tokenizers` library would give them other ids",
                           list->path, t->identity, (long)id);
    return GX_OK;
}

GxStatus gx_tokenizer_add(GxTokenizer *t, const GxNewTokens *list, GxTokensAdded *said, GxError *err)
{
    GxNewTokens chosen = GX_ZERO;
    GxTokenizer grown = GX_ZERO;
    GxError ignored = GX_ZERO;
    char folder[GX_PATH];
    chosen.path = list->path;
    GxStatus status = gx__tokenizer_add_choose(t, list, &chosen, said, err);
    if (status == GX_OK && chosen.n) status = gx__tokenizer_add_check_gaps(t, list, err);
    if (status == GX_OK && chosen.n) status = gx_folder_make_temporary(folder, "galaxy-tokenizer", err);
    if (status == GX_OK && chosen.n) {
        status = gx__tokenizer_add_in(t, &grown, &chosen, folder, err);
        if (status != GX_OK) status = gx__tokenizer_add_explain(list, folder, err);
        gx_folder_remove(folder, &ignored);
    }
    if (status == GX_OK && chosen.n) {
        grown.added_from = t->vocab_size;
        gx_tokenizer_close(t);
        *t = grown;
    }
    free(chosen.token);
    return status;
}

int gx_tokenizer_extends(const GxTokenizer *t, const GxTokenizer *base, char difference[GX_TOKENIZER_DIFFERENCE])
{
    char room[2][8];
    difference[0] = 0;
    if (t->vocab_size <= base->vocab_size)
        snprintf(difference, GX_TOKENIZER_DIFFERENCE, "it has %ld pieces, the other %ld", (long)t->vocab_size,
                 (long)base->vocab_size);
    for (int32_t id = 0; id < base->vocab_size && !difference[0]; id++) {
        const char *a = gx_tokenizer_piece(t, id, room[0]), *b = gx_tokenizer_piece(base, id, room[1]);
        if (a && b ? strcmp(a, b) : a != b)
            snprintf(difference, GX_TOKENIZER_DIFFERENCE, "the id %ld is \"%.60s\" in it and \"%.60s\" in the other",
                     (long)id, a ? a : "no piece", b ? b : "no piece");
    }
    return !difference[0];
}
#endif
