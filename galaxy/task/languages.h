// task/languages.h: the languages of sources and targets, whose tokens an mBART's texts have. `tokenizers` has them as
//
//     X </s> en_XX     mBART: the decoder first reads the target's language
//     en_XX X </s>     mBART-50: it first reads </s>, and then writes the language
//
// Which of the two it is follows from what the tokenizer puts around a text. What a decoder reads first, or must write
// first, is saved with the model, so that transformers' generate() writes in this language.
#ifndef GX_LANGUAGES_H
#define GX_LANGUAGES_H
#include "../base/fields.h"
#include "../model/model.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef struct {
    char source[GX_FIELD_TEXT], target[GX_FIELD_TEXT]; // tokens; "": not given
} GxLanguages;

// clang-format off
#define GX_LANGUAGE_OPTIONS(at)                                                                                        \
    {"source_lang", GX_FIELD_STRING, (at) + offsetof(GxLanguages, source), "",                                         \
     "the language of the sources of an mBART: a token of its tokenizer, such as en_XX", NULL},                        \
    {"target_lang", GX_FIELD_STRING, (at) + offsetof(GxLanguages, target), "",                                         \
     "the language of the targets of an mBART: a token of its tokenizer, such as ro_RO", NULL}
// clang-format on

// Completes the frame of a family with languages. Refuses languages that are missing, or are no tokens, and, for other
// families, any.
GxStatus gx_languages_resolve(GxTextFrame *f, const GxLanguages *l, const GxTokenizer *t, GxError *err);
// Writes how targets begin to the folder's generation_config.json or, if it has none, to its config.json, if it has one.
GxStatus gx_languages_write(const GxTextFrame *f, const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LANGUAGES_IMPLEMENTED)
#define GX_LANGUAGES_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "../base/text.h"
#include "../io/json.h"

enum { GX__LANGUAGES_NAMED = 5, GX__LANGUAGES_TEXT = 100, GX__LANGUAGES_CAP = 1 << 20 };

// As mBART's codes are: two or three small letters, _, two capitals.
static int gx__languages_is_code(const char *piece)
{
    const size_t small = piece ? strspn(piece, "abcdefghijklmnopqrstuvwxyz") : 0;
    if (small < 2 || small > 3 || piece[small] != '_') return 0;
    return strspn(piece + small + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 2 && !piece[small + 3];
}

// Lists some of the tokenizer's codes: of those that begin as `name` does, if there are any, otherwise of all.
static void gx__languages_list(const GxTokenizer *t, const char *name, char text[GX__LANGUAGES_TEXT])
{
    char room[8];
    int n = 0;
    text[0] = 0;
    for (int is_any = strlen(name) < 2; is_any < 2 && !n; is_any++)
        for (int32_t id = 0; id < t->vocab_size; id++) {
            const char *piece = gx_tokenizer_piece(t, id, room);
            if (!gx__languages_is_code(piece) || (!is_any && strncasecmp(piece, name, 2))) continue;
            const size_t at = strlen(text);
            if (n++ < GX__LANGUAGES_NAMED) snprintf(text + at, GX__LANGUAGES_TEXT - at, "%s%s", at ? ", " : "", piece);
        }
    if (n > GX__LANGUAGES_NAMED)
        snprintf(text + strlen(text), GX__LANGUAGES_TEXT - strlen(text), " and %d more", n - GX__LANGUAGES_NAMED);
    if (!n) snprintf(text, GX__LANGUAGES_TEXT, "none such as en_XX, which --add_tokens can add");
}

static GxStatus gx__languages_find(int32_t *id, const char *option, const char *name, const GxTokenizer *t,
                                   GxError *err)
{
    char list[GX__LANGUAGES_TEXT], cut[GX_TEXT_VALUE];
    *id = name[0] ? gx_tokenizer_find(t, name) : -1;
    if (*id >= 0) return GX_OK;
    gx__languages_list(t, name, list);
    if (!name[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is missing: texts of an mBART have the token of their language; the tokenizer (%s) has %s",
                       option, t->identity, list);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s is \"%s\", which is no token of the tokenizer (%s); it has %s", option,
                   gx_text_cut(name, cut, 40), t->identity, list);
}

GxStatus gx_languages_resolve(GxTextFrame *f, const GxLanguages *l, const GxTokenizer *t, GxError *err)
{
    char room[8];
    if (!f->has_languages && (l->source[0] || l->target[0]))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is given, but of the models with an encoder and a decoder only an mBART has tokens of "
                       "languages; leave it out, or say it with --source_prefix",
                       l->source[0] ? "source_lang" : "target_lang");
    if (!f->has_languages) return GX_OK;
    GX_TRY(gx__languages_find(&f->language[0], "source_lang", l->source, t, err));
    GX_TRY(gx__languages_find(&f->language[1], "target_lang", l->target, t, err));
    const int32_t first = t->frame[0].n > 0 ? t->frame[0].part[0].id : -1;
    f->language_first = first >= 0 && gx__languages_is_code(gx_tokenizer_piece(t, first, room));
    f->start = f->language_first ? f->end : f->language[1];
    return GX_OK;
}

GxStatus gx_languages_write(const GxTextFrame *f, const char *folder, GxError *err)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    char path[GX_PATH];
    GxJson *json = NULL;
    for (int i = 0; i < 2 && f->has_languages && !json; i++) {
        GX_TRY(gx_path_join(path, folder, files[i], err));
        if (gx_path_is_file(path)) GX_TRY(gx_json_read(&json, path, GX__LANGUAGES_CAP, err));
    }
    if (!json) return GX_OK;
    gx_json_set(json, "decoder_start_token_id", gx_json_new_int(f->start), err);
    if (f->language_first) gx_json_set(json, "forced_bos_token_id", gx_json_new_int(f->language[1]), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}
#endif
