// tokenizer_kind.h: a kind of tokenizer: a table of functions, defined in the kind's own file (byte_tokens.h,
// wordpiece_files.h) and called through tokenizer.h; and the types that these files share.
#ifndef GX_TOKENIZER_KIND_H
#define GX_TOKENIZER_KIND_H
#include "../io/json.h"
GX_BEGIN

typedef struct GxTokenizer GxTokenizer;

// The tokens that frame texts: [PAD], [UNK], [CLS], [SEP], [MASK], whatever they are called.
typedef enum { GX_TOKEN_PAD, GX_TOKEN_UNK, GX_TOKEN_CLS, GX_TOKEN_SEP, GX_TOKEN_MASK } GxTokenRole;
enum { GX_TOKENIZER_CAP = 64 << 20 }; // the most bytes of a tokenizer's file
enum { GX_TOKEN_ROLES = 5, GX_TOKENIZER_IDENTITY = 64, GX_TOKENIZER_DIFFERENCE = 240 };

// "[SEP]" in a text: the token, as in `tokenizers` by default, or five ordinary characters, so that a user's text
// cannot end a sentence. In decoding: written as text, or left out.
typedef enum { GX_SPECIAL_AS_TOKENS, GX_SPECIAL_AS_TEXT } GxSpecialTokens;

typedef struct {             // what a tokenizer is opened from
    const char *path;        // of tokenizer.json or the kind's own file
    const GxJson *json;      // tokenizer.json's root; NULL: the kind's own file
    const GxJson *config;    // tokenizer_config.json's; NULL: there is none
    const char *config_path; // for messages
    // for messages: the file that names special tokens, tokenizer_config.json or special_tokens_map.json
    const char *names_path;
} GxTokenizerSource;

// The table of a kind is filled in group by group, one line per member with its name as a comment.
typedef struct {                                                                   // reading and writing files
    GxStatus (*open)(GxTokenizer *t, const GxTokenizerSource *from, GxError *err); // after an error nothing is open
    void (*close)(GxTokenizer *t);
    GxStatus (*write)(const GxTokenizer *t, const char *folder, GxError *err);
    // difference: describes how two tokenizers with different identities differ. check: replaces the comparison of
    // identities.
    void (*difference)(const GxTokenizer *here, const GxTokenizer *there, char out[GX_TOKENIZER_DIFFERENCE]);
    GxStatus (*check)(const GxTokenizer *t, const char *folder, GxError *err);
} GxTokenizerFiles;

typedef struct { // texts
    GxStatus (*encode)(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                       int64_t *n, GxError *err);
    GxStatus (*decode)(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                       int64_t *bytes, GxError *err); // all ids must be in the vocabulary
    // 1: a text may be cut where gx_tokenizer_cut says, and both parts encoded separately.
    int (*lines_are_apart)(const GxTokenizer *t);
} GxTokenizerTexts;

typedef struct {                                                          // the vocabulary
    const char *(*piece)(const GxTokenizer *t, int32_t id, char room[8]); // NULL: no token has this id
    int32_t (*find)(const GxTokenizer *t, const char *piece);             // -1: there is none
    int (*is_special)(const GxTokenizer *t, int32_t id);
    int (*continues)(const GxTokenizer *t, int32_t id);
} GxTokenizerPieces;

typedef struct {
    const char *name;       // "WordPiece"
    const char *model_type; // tokenizer.json's model.type
    const char *vocabulary; // a file that it can also be opened from; NULL: none
    GxTokenizerFiles files;
    GxTokenizerTexts texts;
    GxTokenizerPieces pieces;
} GxTokenizerKind;

// The frame of a text: tokens, and the texts themselves, in order.
enum { GX_FRAME_A = -1, GX_FRAME_B = -2, GX_FRAME_MOST = 16 };
typedef struct {
    int32_t id; // or GX_FRAME_A, GX_FRAME_B
    int type;   // its token_type_id
} GxFramePart;
typedef struct {
    int n;
    GxFramePart part[GX_FRAME_MOST];
} GxTokenFrame;

struct GxTokenizer {
    const GxTokenizerKind *kind;
    void *vocabulary;             // the kind's own
    int vocab_size;               // ids are 0 to vocab_size - 1; an embedding may have more rows
    int longest;                  // the most bytes of decoded text per token
    int tokens_for_byte;          // the most tokens per byte of text
    int32_t role[GX_TOKEN_ROLES]; // ids by GxTokenRole; -1: it has none
    int32_t end;                  // the token that ends a text if several follow one another (eos_token); -1: none
    GxTokenFrame frame[2];        // for one text and for two; n 0: [CLS] a [SEP] b [SEP], if there are such roles
    int splits_special;           // special tokens in texts are treated as characters (split_special_tokens)
    int32_t added_from;           // ids from here on were added after the tokenizer was read (tokenizer_add.h); 0: none
    char identity[GX_TOKENIZER_IDENTITY];
};

// How special tokens in the texts of records are treated: by split_special_tokens in tokenizer_config.json, or by an
// option.
static inline GxSpecialTokens gx_tokenizer_special(const GxTokenizer *t)
{
    return t->splits_special ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS;
}

static inline int gx_is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// 1: the byte may belong to a letter, or to a mark that a normalizer composes with an ASCII letter before it.
static inline int gx_may_be_letter(char c) { return gx_is_ascii_letter(c) || (unsigned char)c >= 128; }

typedef struct {                     // one member of a document and its value, as JSON text
    const char *object, *key, *json; // object NULL: the root
} GxTokenizerMember;
GxJson *gx_tokenizer_document(const GxTokenizerMember *members, int n, GxError *err); // to be freed by gx_json_free
int gx_tokenizer_json_equal(const GxJson *a, const GxJson *b);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_KIND_IMPLEMENTED)
#define GX_TOKENIZER_KIND_IMPLEMENTED
#include <string.h>

GxJson *gx_tokenizer_document(const GxTokenizerMember *members, int n, GxError *err)
{
    GxJson *root = gx_json_new_object(), *value = NULL;
    for (int i = 0; i < n; i++) {
        const GxTokenizerMember *m = &members[i];
        gx_json_parse(&value, m->json, (int64_t)strlen(m->json), m->key, err);
        gx_json_set(m->object ? gx_json_get(root, m->object) : root, m->key, value, err);
    }
    return root;
}

int gx_tokenizer_json_equal(const GxJson *a, const GxJson *b)
{
    const GxJsonType type = gx_json_type(a);
    if (type != gx_json_type(b) || gx_json_size(a) != gx_json_size(b)) return 0;
    for (int64_t i = 0; type == GX_JSON_ARRAY && i < gx_json_size(a); i++)
        if (!gx_tokenizer_json_equal(gx_json_at(a, i), gx_json_at(b, i))) return 0;
    if (type == GX_JSON_OBJECT)
        for (GxJsonMember m = GX_ZERO; gx_json_next(a, &m);)
            if (!gx_tokenizer_json_equal(m.value, gx_json_get(b, m.key))) return 0;
    return !strcmp(gx_json_string(a), gx_json_string(b)) && gx_json_bool(a) == gx_json_bool(b) &&
           gx_json_int(a) == gx_json_int(b) && gx_json_double(a) == gx_json_double(b);
}
#endif
