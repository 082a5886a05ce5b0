// wordpiece_files.h: reads and writes the files of WordPiece tokenizers, in the formats of Hugging Face's libraries:
// tokenizer.json, or vocab.txt (a piece per line) with tokenizer_config.json. The algorithm: wordpiece.h; to open and
// use one: tokenizer.h.
//
// tokenizer.json has to describe BERT's tokenizer: the normalizer BertNormalizer or null, the pre_tokenizer
// BertPreTokenizer, the model WordPiece with the prefix ##, the decoder WordPiece or null, and a post_processor that
// puts texts between [CLS] and [SEP], or null. Anything else is refused by name. If tokenizer_config.json and
// tokenizer.json differ about case and accents, the latter is used, as by `tokenizers`. For a vocab.txt the options are
// in tokenizer_config.json: do_lower_case (default true), strip_accents, tokenize_chinese_chars; of two equal lines the
// last one counts.
#ifndef GX_WORDPIECE_FILES_H
#define GX_WORDPIECE_FILES_H
#include "tokenizer_config.h"
#include "wordpiece.h"
GX_BEGIN

extern const GxTokenizerKind gx_wordpiece;

// By GxTokenRole: the token's usual name in a vocabulary, and its key in tokenizer_config.json.
typedef struct {
    const char *name, *key;
} GxTokenRoleNames;
extern const GxTokenRoleNames gx_wordpiece_roles[GX_TOKEN_ROLES];

// Makes a tokenizer from a vocabulary in memory, of which it takes ownership even if it fails. Roles whose usual names
// ([PAD], …) are in the vocabulary get their ids, and these become added tokens. `where` names it in messages.
GxStatus gx_wordpiece_open(GxTokenizer *t, GxWordPiece *v, const char *where, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDPIECE_FILES_IMPLEMENTED)
#define GX_WORDPIECE_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__WORDPIECE_CAP = 64 << 20, GX__WORDPIECE_MOST = 1 << 24 }; // bytes of vocab.txt; ids

const GxTokenRoleNames gx_wordpiece_roles[GX_TOKEN_ROLES] = {{"[PAD]", "pad_token"},
                                                             {"[UNK]", "unk_token"},
                                                             {"[CLS]", "cls_token"},
                                                             {"[SEP]", "sep_token"},
                                                             {"[MASK]", "mask_token"}};

// ---- a tokenizer of a vocabulary -----------------------------------------------------------------------------------

static int32_t gx__wordpiece_any_of(const GxWordPiece *v, const char *piece, int64_t bytes) // added ones, too
{
    for (int i = 0; i < v->added_n; i++)
        if (gx_pieces_is(&v->p, v->added[i].id, piece, bytes)) return v->added[i].id;
    return gx_pieces_find(&v->p, piece, bytes);
}
static int32_t gx__wordpiece_any(const GxWordPiece *v, const char *piece)
{
    return gx__wordpiece_any_of(v, piece, (int64_t)strlen(piece));
}

static int gx__wordpiece_has_nul(const GxWordPiece *v, int32_t id)
{
    return v->p.at[id] >= 0 && memchr(gx_pieces_text(&v->p, id), 0, (size_t)gx_pieces_bytes(&v->p, id)) != NULL;
}

static uint64_t gx__wordpiece_hash_int(uint64_t hash, int64_t value) { return gx_hash(hash, &value, sizeof value); }

// The identity: a hash of everything that affects ids.
static void gx__wordpiece_identify(GxTokenizer *t)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    const GxBertNormalizer *how = &v->normalizer;
    const int64_t settings[] = {
        how->clean_text, how->handle_chinese_chars, gx_bert_strips_accents(how), how->lowercase, v->max_word,
        v->added_n};
    uint64_t hash = gx_hash(GX_HASH_START, settings, sizeof settings);
    for (int i = 0; i < GX_TOKEN_ROLES; i++) hash = gx__wordpiece_hash_int(hash, t->role[i]);
    for (int i = 0; i < v->added_n; i++) {
        const GxAddedToken *a = &v->added[i];
        const int64_t token[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip};
        hash = gx_hash(hash, token, sizeof token);
    }
    for (int32_t id = 0; id < v->p.size; id++) {
        const char *piece = v->p.at[id] < 0 ? "" : v->p.text + v->p.at[id];
        hash = gx__wordpiece_hash_int(hash, v->p.at[id] < 0 ? -1 : v->p.flags[id] & GX_PIECE_MODEL);
        hash = gx_hash(hash, piece, gx_pieces_bytes(&v->p, id) + 1);
    }
    snprintf(t->identity, sizeof t->identity, "wordpiece-%ld-%016lx", (long)v->p.size, (unsigned long)hash);
}

static void gx__wordpiece_close(GxTokenizer *t)
{
    GxWordPiece *v = (GxWordPiece *)t->vocabulary;
    if (v) gx_wordpiece_close(v);
    free(v);
    memset(t, 0, sizeof *t);
}

// Completes a tokenizer whose vocabulary and roles are set.
static GxStatus gx__wordpiece_ready(GxTokenizer *t, const char *where, GxError *err)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    t->vocab_size = v->p.size;
    t->longest = t->tokens_for_byte = 1;
    for (int32_t id = 0; id < v->p.size; id++) t->longest = (int)gx_max(t->longest, 1 + gx_pieces_bytes(&v->p, id));
    for (int i = 0; i < v->added_n; i++) t->longest = (int)gx_max(t->longest, 1 + 4 * v->added[i].pattern.n);
    if (t->role[GX_TOKEN_UNK] < 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the vocabulary has no [UNK], which stands for unknown words", where);
    GX_TRY(gx_bert_check_unicode(&v->normalizer, err));
    gx__wordpiece_identify(t);
    return GX_OK;
}

static GxStatus gx__wordpiece_take(GxTokenizer *t, const GxWordPiece *v, GxError *err)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < GX_TOKEN_ROLES; i++) t->role[i] = -1;
    t->end = -1;
    t->vocabulary = malloc(sizeof *v);
    if (!t->vocabulary) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a tokenizer");
    memcpy(t->vocabulary, v, sizeof *v);
    t->kind = &gx_wordpiece;
    return GX_OK;
}

// Makes the token of a role an added token.
static GxStatus gx__wordpiece_set_role(GxTokenizer *t, int role, const char *name, const char *where, GxError *err)
{
    GxWordPiece *v = (GxWordPiece *)t->vocabulary;
    const int32_t id = t->role[role] = gx__wordpiece_any(v, name);
    GxAddedToken token = GX_ZERO;
    for (int i = 0; i < v->added_n; i++)
        if (v->added[i].id == id) return GX_OK;
    token.id = id, token.special = 1;
    return id < 0 ? GX_OK : gx_wordpiece_add_token(v, &token, where, err);
}

GxStatus gx_wordpiece_open(GxTokenizer *t, GxWordPiece *v, const char *where, GxError *err)
{
    GxStatus status = gx__wordpiece_take(t, v, err);
    if (status != GX_OK) {
        gx_wordpiece_close(v);
        return status;
    }
    memset(v, 0, sizeof *v);
    status = gx_pieces_index(&((GxWordPiece *)t->vocabulary)->p, err);
    for (int i = 0; i < GX_TOKEN_ROLES && status == GX_OK; i++)
        status = gx__wordpiece_set_role(t, i, gx_wordpiece_roles[i].name, where, err);
    if (status == GX_OK) status = gx__wordpiece_ready(t, where, err);
    if (status != GX_OK) gx__wordpiece_close(t);
    return status;
}

// ---- tokenizer.json: what is supported -----------------------------------------------------------------------------

// The type of a component must be one of `types`, which end with NULL. may_be_null: null is allowed. *out: the
// component, or NULL.
static GxStatus gx__wordpiece_component(const GxJson *root, const char *key, const char *const *types, int may_be_null,
                                        GxJson **out, const char *path, GxError *err)
{
    const char *type = "";
    char cut[GX_TEXT_VALUE], expected[120] = "";
    GX_TRY(gx_json_get_object(root, key, !may_be_null, out, path, err));
    if (!*out) return GX_OK;
    GX_TRY(gx_json_get_string(*out, "type", 1, &type, path, err));
    for (int i = 0; types[i]; i++) {
        if (!strcmp(types[i], type)) return GX_OK;
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s%s", i ? ", " : "", types[i]);
    }
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: the %s is of the type \"%s\"; supported: %s%s", path, key,
                   gx_text_cut(type, cut, sizeof cut), expected, may_be_null ? ", null" : "");
}

static GxStatus gx__wordpiece_read_normalizer(const GxJson *root, GxBertNormalizer *how, const char *path, GxError *err)
{
    static const char *const types[] = {"BertNormalizer", NULL};
    GxJson *from = NULL;
    memset(how, 0, sizeof *how);
    GX_TRY(gx__wordpiece_component(root, "normalizer", types, 1, &from, path, err));
    if (!from) return GX_OK;
    how->strip_accents = GX_ACCENTS_AS_LOWERCASE;
    GX_TRY(gx_json_get_bool(from, "clean_text", 1, &how->clean_text, path, err));
    GX_TRY(gx_json_get_bool(from, "handle_chinese_chars", 1, &how->handle_chinese_chars, path, err));
    GX_TRY(gx_json_get_bool(from, "strip_accents", 0, &how->strip_accents, path, err));
    return gx_json_get_bool(from, "lowercase", 1, &how->lowercase, path, err);
}

static GxStatus gx__wordpiece_read_decoder(const GxJson *root, GxWordPiece *v, const char *path, GxError *err)
{
    static const char *const types[] = {"WordPiece", NULL};
    GxJson *from = NULL;
    const char *prefix = "";
    GX_TRY(gx__wordpiece_component(root, "decoder", types, 1, &from, path, err));
    v->has_decoder = from != NULL;
    if (!from) return GX_OK;
    GX_TRY(gx_json_get_string(from, "prefix", 1, &prefix, path, err));
    if (strcmp(prefix, "##"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: the decoder's prefix is \"%.40s\"; supported: ##", path, prefix);
    return gx_json_get_bool(from, "cleanup", 1, &v->cleanup, path, err);
}

static GxStatus gx__wordpiece_read_vocab(const GxJson *root, const GxJson *vocab, GxWordPiece *v, const char *path,
                                         GxError *err)
{
    char cut[GX_TEXT_VALUE], found[GX_JSON_FOUND];
    if (gx_json_size(vocab) == 0) return GX_FAIL(err, GX_ERR_FORMAT, "%s: the vocabulary is empty", path);
    for (GxJsonMember m = GX_ZERO; gx_json_next(vocab, &m);) {
        const int64_t id = gx_json_int(m.value);
        gx_text_cut(m.key, cut, sizeof cut);
        if (gx_json_type(m.value) != GX_JSON_INT || id < 0 || id >= GX__WORDPIECE_MOST)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the id of \"%s\" is %s; expected an integer from 0 to %d", path,
                           cut, gx_json_found(m.value, found), GX__WORDPIECE_MOST - 1);
        if (id < v->p.size && v->p.at[id] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: \"%s\" has the id %ld, but another piece has it, too", path, cut,
                           (long)id);
        GX_TRY(gx_pieces_add_said(&v->p, (int32_t)id, root, m.key, gx_wordpiece_flags(m.key, GX_PIECE_MODEL), err));
    }
    return gx_pieces_index(&v->p, err);
}

static GxStatus gx__wordpiece_read_model(const GxJson *root, GxTokenizer *t, const char *path, GxError *err)
{
    GxWordPiece *v = (GxWordPiece *)t->vocabulary;
    GxJson *model = NULL, *vocab = NULL;
    const char *prefix = "", *unk = "";
    GX_TRY(gx_json_get_object(root, "model", 1, &model, path, err));
    GX_TRY(gx_json_get_string(model, "continuing_subword_prefix", 1, &prefix, path, err));
    GX_TRY(gx_json_get_string(model, "unk_token", 1, &unk, path, err));
    GX_TRY(gx_json_get_int(model, "max_input_chars_per_word", 1, &v->max_word, path, err));
    GX_TRY(gx_json_get_object(model, "vocab", 1, &vocab, path, err));
    if (strcmp(prefix, "##"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: continuing_subword_prefix is \"%.40s\"; supported: ##", path,
                       prefix);
    if (v->max_word < 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: max_input_chars_per_word is %ld; expected 0 or more", path,
                       (long)v->max_word);
    GX_TRY(gx__wordpiece_read_vocab(root, vocab, v, path, err));
    t->role[GX_TOKEN_UNK] = gx_pieces_find(&v->p, unk, (int64_t)strlen(unk));
    return GX_OK;
}

// An entry of added_tokens, or of tokenizer_config.json's added_tokens_decoder, in which the key is the id.
static GxStatus gx__wordpiece_take_added(GxWordPiece *v, const GxJson *from, const char *content, int64_t bytes,
                                         int64_t id, const char *path, GxError *err)
{
    GxAddedToken token = GX_ZERO;
    int single_word = 0;
    GX_TRY(gx_json_get_bool(from, "single_word", 1, &single_word, path, err));
    GX_TRY(gx_json_get_bool(from, "lstrip", 1, &token.lstrip, path, err));
    GX_TRY(gx_json_get_bool(from, "rstrip", 1, &token.rstrip, path, err));
    GX_TRY(gx_json_get_bool(from, "normalized", 1, &token.normalized, path, err));
    GX_TRY(gx_json_get_bool(from, "special", 1, &token.special, path, err));
    if (single_word)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: the added token \"%.100s\" has single_word true, which is not supported", path, content);
    if (!bytes) return GX_FAIL(err, GX_ERR_FORMAT, "%s: an added token is empty", path);
    const int32_t known = gx__wordpiece_any_of(v, content, bytes);
    if (known >= 0 ? known != id : id < v->p.size ? id < 0 || v->p.at[id] >= 0 : id >= GX__WORDPIECE_MOST)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" has the id %ld; %s", path, content, (long)id,
                       known >= 0 ? "the vocabulary has another one for it" : "expected an id that no other piece has");
    for (int i = 0; i < v->added_n; i++)
        if (v->added[i].id == id) return GX_OK; // listed twice
    token.id = (int32_t)id;
    if (known < 0) GX_TRY(gx_wordpiece_add(v, token.id, content, bytes, 0, err));
    return gx_wordpiece_add_token(v, &token, path, err);
}

static GxStatus gx__wordpiece_read_added(GxWordPiece *v, const GxJson *root, const GxJson *from, int64_t id,
                                         const char *path, GxError *err)
{
    const char *said = "";
    GX_TRY(gx_json_get_string(from, "content", 1, &said, path, err));
    char *content = (char *)malloc(strlen(said) + 1);
    if (!content) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", said);
    memcpy(content, said, strlen(said) + 1);
    const int64_t bytes = gx_json_spell_nuls(root, content);
    const GxStatus status = gx__wordpiece_take_added(v, from, content, bytes, id, path, err);
    free(content);
    return status;
}

static GxStatus gx__wordpiece_read_added_list(const GxJson *root, GxWordPiece *v, const char *path, GxError *err)
{
    GxJson *list = NULL;
    GX_TRY(gx_json_get_array(root, "added_tokens", 0, &list, path, err));
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        int64_t id = -1;
        GX_TRY(gx_json_get_int(gx_json_at(list, i), "id", 1, &id, path, err));
        GX_TRY(gx__wordpiece_read_added(v, root, gx_json_at(list, i), id, path, err));
    }
    return GX_OK;
}

// ---- roles, and the frame ------------------------------------------------------------------------------------------

// The name of a role's token: a string or {"content": "…"} in tokenizer_config.json; NULL if it is null there;
// otherwise the usual name.
static GxStatus gx__wordpiece_role_name(const GxTokenizerSource *from, int role, const char **name, int *is_said,
                                        GxError *err)
{
    const GxJson *said = gx_tokenizer_config_value(from->config, gx_wordpiece_roles[role].key);
    const GxJsonType type = gx_json_type(said);
    *is_said = type == GX_JSON_STRING;
    *name = *is_said ? gx_json_string(said) : type == GX_JSON_NULL ? NULL : gx_wordpiece_roles[role].name;
    if (type <= GX_JSON_NULL || *is_said) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: \"%s\" is %s; expected a string", from->names_path,
                   gx_wordpiece_roles[role].key, gx_json_type_name(said));
}

static GxStatus gx__wordpiece_read_roles(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    for (int i = 0; i < GX_TOKEN_ROLES; i++) {
        const char *name;
        int is_said;
        GX_TRY(gx__wordpiece_role_name(from, i, &name, &is_said, err));
        if (!name || (from->json && i == GX_TOKEN_UNK)) continue; // named by the model in tokenizer.json
        if (from->json) t->role[i] = gx__wordpiece_any(v, name);
        else GX_TRY(gx__wordpiece_set_role(t, i, name, from->path, err)); // a vocab.txt has no list of added tokens
        if (is_said && t->role[i] < 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the %s is \"%.100s\", which the vocabulary does not have",
                           from->names_path, gx_wordpiece_roles[i].key, name);
    }
    return GX_OK;
}

static const char gx__wordpiece_template[] =
    "{\"type\": \"TemplateProcessing\", \"single\": ["
    "{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
    "{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}], \"pair\": ["
    "{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
    "{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}, "
    "{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 1}}], \"special_tokens\": {}}";

static const char *gx__wordpiece_name(const GxTokenizer *t, int role)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    return t->role[role] < 0 ? gx_wordpiece_roles[role].name : v->p.text + v->p.at[t->role[role]];
}

// Replaces the usual names by those of the roles' tokens.
static GxStatus gx__wordpiece_rename(const GxTokenizer *t, GxJson *list, GxError *err)
{
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        GxJson *special = gx_json_get(gx_json_at(list, i), "SpecialToken");
        if (!special) continue;
        const int role = !strcmp(gx_json_string(gx_json_get(special, "id")), "[CLS]") ? GX_TOKEN_CLS : GX_TOKEN_SEP;
        GX_TRY(gx_json_set(special, "id", gx_json_new_string(gx__wordpiece_name(t, role)), err));
    }
    return GX_OK;
}

// {"[CLS]": {"id": "[CLS]", "ids": [101], "tokens": ["[CLS]"]}, …}
static GxStatus gx__wordpiece_put_frame_token(const GxTokenizer *t, GxJson *tokens, int role, GxError *err)
{
    const char *name = gx__wordpiece_name(t, role);
    GxJson *one = gx_json_new_object(), *ids = gx_json_new_array(), *names = gx_json_new_array();
    gx_json_append(ids, gx_json_new_int(t->role[role]), err);
    gx_json_append(names, gx_json_new_string(name), err);
    gx_json_set(one, "id", gx_json_new_string(name), err);
    gx_json_set(one, "ids", ids, err);
    gx_json_set(one, "tokens", names, err);
    gx_json_set(tokens, name, one, err);
    return gx_error_code(err);
}

// The post_processor that does what gx_tokenizer_join does; null if there are no such tokens.
static GxJson *gx__wordpiece_frame(const GxTokenizer *t, GxError *err)
{
    GxJson *frame = NULL;
    if (t->role[GX_TOKEN_CLS] < 0 || t->role[GX_TOKEN_SEP] < 0) return gx_json_new_null();
    gx_json_parse(&frame, gx__wordpiece_template, (int64_t)strlen(gx__wordpiece_template), "post_processor", err);
    gx__wordpiece_rename(t, gx_json_get(frame, "single"), err);
    gx__wordpiece_rename(t, gx_json_get(frame, "pair"), err);
    gx__wordpiece_put_frame_token(t, gx_json_get(frame, "special_tokens"), GX_TOKEN_CLS, err);
    gx__wordpiece_put_frame_token(t, gx_json_get(frame, "special_tokens"), GX_TOKEN_SEP, err);
    return frame;
}

static int gx__wordpiece_is_pair(const GxTokenizer *t, const GxJson *pair, int role) // ["[SEP]", 102]
{
    return gx_json_size(pair) == 2 && !strcmp(gx_json_string(gx_json_at(pair, 0)), gx__wordpiece_name(t, role)) &&
           gx_json_int(gx_json_at(pair, 1)) == t->role[role];
}

static GxStatus gx__wordpiece_check_frame(const GxTokenizer *t, const GxJson *root, const char *path, GxError *err)
{
    static const char *const types[] = {"TemplateProcessing", "BertProcessing", NULL};
    GxJson *theirs = NULL;
    GX_TRY(gx__wordpiece_component(root, "post_processor", types, 1, &theirs, path, err));
    if (!theirs) return GX_OK;
    GxJson *ours = gx__wordpiece_frame(t, err);
    const int equal = !strcmp(gx_json_string(gx_json_get(theirs, "type")), "BertProcessing")
                          ? gx__wordpiece_is_pair(t, gx_json_get(theirs, "cls"), GX_TOKEN_CLS) &&
                                gx__wordpiece_is_pair(t, gx_json_get(theirs, "sep"), GX_TOKEN_SEP)
                          : gx_tokenizer_json_equal(ours, theirs);
    gx_json_free(ours);
    if (equal) return gx_error_code(err);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: the post_processor is not BERT's, \"[CLS] A [SEP]\" of type 0 and \"B [SEP]\" of type 1, with "
                   "the tokens %s and %s; no other is supported",
                   path, gx__wordpiece_name(t, GX_TOKEN_CLS), gx__wordpiece_name(t, GX_TOKEN_SEP));
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__wordpiece_read_json(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    static const char *const types[] = {"BertPreTokenizer", NULL};
    GxWordPiece *v = (GxWordPiece *)t->vocabulary;
    GxJson *ignored;
    GX_TRY(gx__wordpiece_read_normalizer(from->json, &v->normalizer, from->path, err));
    GX_TRY(gx__wordpiece_component(from->json, "pre_tokenizer", types, 0, &ignored, from->path, err));
    GX_TRY(gx__wordpiece_read_decoder(from->json, v, from->path, err));
    GX_TRY(gx__wordpiece_read_model(from->json, t, from->path, err));
    GX_TRY(gx__wordpiece_read_added_list(from->json, v, from->path, err));
    GX_TRY(gx__wordpiece_read_roles(t, from, err));
    return gx__wordpiece_check_frame(t, from->json, from->path, err);
}

// One piece per line, without trailing white space.
static GxStatus gx__wordpiece_read_lines(GxWordPiece *v, const char *text, int64_t bytes, const char *path,
                                         GxError *err)
{
    int32_t id = 0;
    for (const char *line = text, *end = text + bytes; line < end; id++) {
        const char *stop = (const char *)memchr(line, '\n', (size_t)(end - line)), *kept = line;
        if (!stop) stop = end;
        for (const char *p = line; p < stop;) {
            uint32_t c;
            const int n = gx_unicode_decode(p, stop, &c);
            if (c == 0 || (c == GX_REPLACEMENT && (n != 3 || memcmp(p, "\xEF\xBF\xBD", 3)))) // not as it is
                return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: this is not UTF-8 text", path, (long)id + 1);
            p += n;
            if (!gx_unicode_is_space(c)) kept = p;
        }
        if (id == GX__WORDPIECE_MOST) return GX_FAIL(err, GX_ERR_FORMAT, "%s has more than %d lines", path, id);
        GX_TRY(gx_wordpiece_add(v, id, line, kept - line, GX_PIECE_MODEL, err));
        line = stop + (stop < end);
    }
    if (v->p.size == 0) return GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; expected a piece in each line", path);
    return gx_pieces_index(&v->p, err);
}

static GxStatus gx__wordpiece_read_settings(GxWordPiece *v, const GxTokenizerSource *from, GxError *err)
{
    int basic = 1;
    v->normalizer.clean_text = v->normalizer.handle_chinese_chars = v->normalizer.lowercase = 1;
    v->normalizer.strip_accents = GX_ACCENTS_AS_LOWERCASE;
    v->max_word = 100;
    v->has_decoder = v->cleanup = 1;
    if (!from->config) return GX_OK;
    GX_TRY(gx_json_get_bool(from->config, "do_lower_case", 0, &v->normalizer.lowercase, from->config_path, err));
    GX_TRY(gx_json_get_bool(from->config, "strip_accents", 0, &v->normalizer.strip_accents, from->config_path, err));
    GX_TRY(gx_json_get_bool(from->config, "tokenize_chinese_chars", 0, &v->normalizer.handle_chinese_chars,
                            from->config_path, err));
    GX_TRY(gx_json_get_bool(from->config, "do_basic_tokenize", 0, &basic, from->config_path, err));
    if (basic) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: do_basic_tokenize is false, which is not supported",
                   from->config_path);
}

static GxStatus gx__wordpiece_read_lines_file(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    GxWordPiece *v = (GxWordPiece *)t->vocabulary;
    const GxJson *added = gx_json_get(from->config, "added_tokens_decoder");
    char *text;
    int64_t bytes;
    GX_TRY(gx__wordpiece_read_settings(v, from, err));
    GX_TRY(gx_file_read(from->path, GX__WORDPIECE_CAP, &text, &bytes, err));
    const GxStatus status = gx__wordpiece_read_lines(v, text, bytes, from->path, err);
    free(text);
    GX_TRY(status);
    for (GxJsonMember m = GX_ZERO; gx_json_next(added, &m);)
        GX_TRY(gx__wordpiece_read_added(v, from->config, m.value, strtol(m.key, NULL, 10), from->config_path, err));
    GX_TRY(gx__wordpiece_read_roles(t, from, err));
    const int32_t unk = t->role[GX_TOKEN_UNK];
    if (unk >= 0 && !(v->p.flags[unk] & GX_PIECE_MODEL))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: the vocabulary has no %s, which stands for unknown words; it is not enough that %s has it "
                       "among its added tokens",
                       from->path, gx__wordpiece_name(t, GX_TOKEN_UNK), from->config_path);
    return GX_OK;
}

static GxStatus gx__wordpiece_open(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    const GxWordPiece empty = GX_ZERO;
    GX_TRY(gx__wordpiece_take(t, &empty, err));
    GxStatus status = from->json ? gx__wordpiece_read_json(t, from, err) : gx__wordpiece_read_lines_file(t, from, err);
    if (status == GX_OK) status = gx__wordpiece_ready(t, from->path, err);
    if (status != GX_OK) gx__wordpiece_close(t);
    return status;
}

// ---- writing -------------------------------------------------------------------------------------------------------

static const GxTokenizerMember gx__wordpiece_members[] = {{NULL, "version", "\"1.0\""},
                                                          {NULL, "truncation", "null"},
                                                          {NULL, "padding", "null"},
                                                          {NULL, "added_tokens", "[]"},
                                                          {NULL, "normalizer", "null"},
                                                          {NULL, "pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}"},
                                                          {NULL, "post_processor", "null"},
                                                          {NULL, "decoder", "null"},
                                                          {NULL, "model", "{}"},
                                                          {"model", "type", "\"WordPiece\""},
                                                          {"model", "unk_token", "null"},
                                                          {"model", "continuing_subword_prefix", "\"##\""},
                                                          {"model", "max_input_chars_per_word", "null"},
                                                          {"model", "vocab", "{}"}};

static GxJson *gx__wordpiece_accents(const GxBertNormalizer *how)
{
    return how->strip_accents == GX_ACCENTS_AS_LOWERCASE ? gx_json_new_null() : gx_json_new_bool(how->strip_accents);
}

static GxJson *gx__wordpiece_normalizer_json(const GxBertNormalizer *how, GxError *err)
{
    if (!how->clean_text && !how->handle_chinese_chars && !how->strip_accents && !how->lowercase)
        return gx_json_new_null();
    GxJson *out = gx_json_new_object();
    gx_json_set(out, "type", gx_json_new_string("BertNormalizer"), err);
    gx_json_set(out, "clean_text", gx_json_new_bool(how->clean_text), err);
    gx_json_set(out, "handle_chinese_chars", gx_json_new_bool(how->handle_chinese_chars), err);
    gx_json_set(out, "strip_accents", gx__wordpiece_accents(how), err);
    gx_json_set(out, "lowercase", gx_json_new_bool(how->lowercase), err);
    return out;
}

static GxJson *gx_wordpiece_decoder_json(const GxWordPiece *v, GxError *err)
{
    if (!v->has_decoder) return gx_json_new_null();
    GxJson *out = gx_json_new_object();
    gx_json_set(out, "type", gx_json_new_string("WordPiece"), err);
    gx_json_set(out, "prefix", gx_json_new_string("##"), err);
    gx_json_set(out, "cleanup", gx_json_new_bool(v->cleanup), err);
    return out;
}

static GxJson *gx__wordpiece_added_json(const GxWordPiece *v, const GxAddedToken *a, int with_id, GxError *err)
{
    GxJson *out = gx_json_new_object();
    const char *said;
    char *made;
    if (with_id) gx_json_set(out, "id", gx_json_new_int(a->id), err);
    gx_pieces_say(&v->p, a->id, &said, &made, err);
    gx_json_set(out, "content", gx_json_new_string(said), err);
    free(made);
    gx_json_set(out, "single_word", gx_json_new_bool(0), err);
    gx_json_set(out, "lstrip", gx_json_new_bool(a->lstrip), err);
    gx_json_set(out, "rstrip", gx_json_new_bool(a->rstrip), err);
    gx_json_set(out, "normalized", gx_json_new_bool(a->normalized), err);
    gx_json_set(out, "special", gx_json_new_bool(a->special), err);
    return out;
}

// In memory special tokens come first. The list in the file is ordered by ids, since `tokenizers` numbers those that
// the model does not have in the order of the list. The order within each of the two groups is kept.
static void gx__wordpiece_list_added(const GxWordPiece *v, GxJson *list, GxError *err)
{
    int special = 0, specials = 0, other;
    while (specials < v->added_n && v->added[specials].special) specials++;
    other = specials;
    while (special < specials || other < v->added_n) {
        const int is_special = other == v->added_n || (special < specials && v->added[special].id < v->added[other].id);
        const GxAddedToken *next = &v->added[is_special ? special++ : other++];
        gx_json_append(list, gx__wordpiece_added_json(v, next, 1, err), err);
    }
}

static GxJson *gx__wordpiece_json(const GxTokenizer *t, GxError *err)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    GxJson *root = gx_tokenizer_document(gx__wordpiece_members,
                                         (int)(sizeof gx__wordpiece_members / sizeof *gx__wordpiece_members), err);
    GxJson *model = gx_json_get(root, "model"), *vocab = gx_json_get(model, "vocab");
    gx__wordpiece_list_added(v, gx_json_get(root, "added_tokens"), err);
    gx_json_set(root, "normalizer", gx__wordpiece_normalizer_json(&v->normalizer, err), err);
    gx_json_set(root, "post_processor", gx__wordpiece_frame(t, err), err);
    gx_json_set(root, "decoder", gx_wordpiece_decoder_json(v, err), err);
    gx_json_set(model, "unk_token", gx_json_new_string(v->p.text + v->p.at[t->role[GX_TOKEN_UNK]]), err);
    gx_json_set(model, "max_input_chars_per_word", gx_json_new_int(v->max_word), err);
    for (int32_t id = 0; id < v->p.size; id++) {
        const char *said;
        char *made;
        if (!(v->p.flags[id] & GX_PIECE_MODEL)) continue;
        if (gx_pieces_say(&v->p, id, &said, &made, err) == GX_OK) gx_json_set(vocab, said, gx_json_new_int(id), err);
        free(made);
    }
    return root;
}

static GxJson *gx__wordpiece_config(const GxTokenizer *t, GxError *err)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    GxJson *root = gx_json_new_object(), *added = gx_json_new_object();
    gx_json_set(root, "tokenizer_class", gx_json_new_string("BertTokenizer"), err);
    gx_json_set(root, "do_lower_case", gx_json_new_bool(v->normalizer.lowercase), err);
    gx_json_set(root, "strip_accents", gx__wordpiece_accents(&v->normalizer), err);
    gx_json_set(root, "tokenize_chinese_chars", gx_json_new_bool(v->normalizer.handle_chinese_chars), err);
    gx_json_set(root, "clean_up_tokenization_spaces", gx_json_new_bool(0), err); // the decoder's cleanup decides
    for (int i = 0; i < GX_TOKEN_ROLES; i++)
        gx_json_set(root, gx_wordpiece_roles[i].key,
                    t->role[i] < 0 ? gx_json_new_null() : gx_json_new_string(gx__wordpiece_name(t, i)), err);
    for (int i = 0; i < v->added_n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%ld", (long)v->added[i].id);
        gx_json_set(added, id, gx__wordpiece_added_json(v, &v->added[i], 0, err), err);
    }
    gx_json_set(root, "added_tokens_decoder", added, err);
    return root;
}

// Writes the model's pieces as lines, by id. Writes no file if ids have gaps, or if reading the lines would not give
// the same pieces.
static GxStatus gx__wordpiece_write_lines(const GxWordPiece *v, const char *folder, GxError *err)
{
    char path[GX_PATH];
    int32_t n = 0, k = v->p.size;
    while (n < v->p.size && (v->p.flags[n] & GX_PIECE_MODEL)) n++;
    while (k > n && !(v->p.flags[k - 1] & GX_PIECE_MODEL)) k--;
    char *text = (char *)malloc((size_t)v->p.bytes + 1);
    int64_t bytes = 0;
    int fits = k == n;
    for (int32_t id = 0; id < n; id++) fits &= !gx__wordpiece_has_nul(v, id);
    GX_TRY(gx_path_join(path, folder, "vocab.txt", err));
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to write %s", path);
    for (int32_t id = 0; id < n; id++) {
        const char *piece = v->p.text + v->p.at[id];
        for (const char *p = piece, *end = piece + strlen(piece); p < end;) {
            uint32_t c;
            p += gx_unicode_decode(p, end, &c);
            fits &= c != '\n' && (p < end || !gx_unicode_is_space(c));
        }
        bytes += snprintf(text + bytes, (size_t)(v->p.bytes + 1 - bytes), "%s\n", piece);
    }
    const GxStatus status = fits ? gx_file_write(path, text, bytes, err) : GX_OK;
    free(text);
    return status;
}

static GxStatus gx__wordpiece_write(const GxTokenizer *t, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *json = gx__wordpiece_json(t, err), *config = gx__wordpiece_config(t, err);
    int has_nul = 0;
    for (int32_t id = 0; id < t->vocab_size && !has_nul; id++)
        has_nul = gx__wordpiece_has_nul((const GxWordPiece *)t->vocabulary, id);
    if (has_nul) gx_json_note_nuls(json, err), gx_json_note_nuls(config, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_path_join(path, folder, "tokenizer.json", err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    if (status == GX_OK) status = gx_path_join(path, folder, "tokenizer_config.json", err);
    if (status == GX_OK) status = gx_json_write(config, path, err);
    if (status == GX_OK) status = gx__wordpiece_write_lines((const GxWordPiece *)t->vocabulary, folder, err);
    gx_json_free(json);
    gx_json_free(config);
    return status;
}

// ---- looking -------------------------------------------------------------------------------------------------------

static const char *gx__wordpiece_piece(const GxTokenizer *t, int32_t id, char room[8])
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    (void)room;
    return v->p.at[id] < 0 ? NULL : v->p.text + v->p.at[id];
}
static int32_t gx__wordpiece_find_any(const GxTokenizer *t, const char *piece)
{
    return gx__wordpiece_any((const GxWordPiece *)t->vocabulary, piece);
}
static int gx__wordpiece_is_special(const GxTokenizer *t, int32_t id)
{
    return (((const GxWordPiece *)t->vocabulary)->p.flags[id] & GX_PIECE_SPECIAL) != 0;
}
static int gx__wordpiece_continues(const GxTokenizer *t, int32_t id)
{
    return (((const GxWordPiece *)t->vocabulary)->p.flags[id] & GX_PIECE_CONTINUES) != 0;
}

// A line's end separates words, and a character's result depends only on its own word. Only added tokens could match
// across lines.
static int gx__wordpiece_lines_are_apart(const GxTokenizer *t)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    int is_apart = 1;
    for (int i = 0; i < v->added_n; i++) {
        const GxAddedToken *a = &v->added[i];
        for (int64_t j = 0; j < a->pattern.n; j++) is_apart &= a->pattern.c[j] != '\n';
        is_apart &= !(a->lstrip && (a->pattern.c[0] >= 128 || gx_is_ascii_letter((char)a->pattern.c[0])));
    }
    return is_apart;
}

static void gx__wordpiece_difference(const GxTokenizer *a, const GxTokenizer *b, char out[GX_TOKENIZER_DIFFERENCE])
{
    gx_pieces_difference(&((const GxWordPiece *)a->vocabulary)->p, &((const GxWordPiece *)b->vocabulary)->p,
                         "the same pieces, but other settings or added tokens", out, GX_TOKENIZER_DIFFERENCE);
}

const GxTokenizerKind gx_wordpiece = {
    "WordPiece", // name
    "WordPiece", // model_type
    "vocab.txt", // vocabulary
    {
        // files
        gx__wordpiece_open,       // open
        gx__wordpiece_close,      // close
        gx__wordpiece_write,      // write
        gx__wordpiece_difference, // difference
        NULL,                     // check
    },
    {
        // texts
        gx_wordpiece_encode,           // encode
        gx_wordpiece_decode,           // decode
        gx__wordpiece_lines_are_apart, // lines_are_apart
    },
    {
        // pieces
        gx__wordpiece_piece,      // piece
        gx__wordpiece_find_any,   // find
        gx__wordpiece_is_special, // is_special
        gx__wordpiece_continues,  // continues
    },
};
#endif
