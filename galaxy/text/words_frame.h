// words_frame.h: reads the frame of texts (GxTokenFrame), "post_processor" in tokenizer.json:
//
//     TemplateProcessing     as the file has it
//     RobertaProcessing      <s> a </s>, or <s> a </s></s> b </s>, all of type 0; with the file's cls and sep
//     ByteLevel, none        a, or a b of the types 0 and 1
#ifndef GX_WORDS_FRAME_H
#define GX_WORDS_FRAME_H
#include "words_reading.h"
GX_BEGIN

GxStatus gx_words_read_frame(GxWordsReading *x); // for one text and for two, into x->t

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_FRAME_IMPLEMENTED)
#define GX_WORDS_FRAME_IMPLEMENTED
#include <string.h>
#include "../base/text.h"

static GxStatus gx__words_frame_part(GxWordsReading *x, GxTokenFrame *frame, int32_t id, int64_t type)
{
    if (frame->n == GX_FRAME_MOST)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing has more than %d parts", x->path,
                       GX_FRAME_MOST);
    frame->part[frame->n].id = id;
    frame->part[frame->n++].type = (int)(type != 0);
    return GX_OK;
}

// {"SpecialToken": {"id": "<s>", "type_id": 0}}: the ids of the token with that name
static GxStatus gx__words_frame_token(GxWordsReading *x, const GxJson *tokens, const char *name, int64_t type,
                                      GxTokenFrame *frame)
{
    GxJson *token = NULL, *ids = NULL;
    GX_TRY(gx_json_get_object(tokens, name, 1, &token, x->path, x->err));
    GX_TRY(gx_json_get_array(token, "ids", 1, &ids, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(ids); i++) {
        const int64_t id = gx_json_int(gx_json_at(ids, i));
        if (gx_json_type(gx_json_at(ids, i)) != GX_JSON_INT || id < 0 || id >= x->v->p->size || x->v->p->at[id] < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: TemplateProcessing's \"%.100s\" has an id that no piece has",
                           x->path, name);
        GX_TRY(gx__words_frame_part(x, frame, (int32_t)id, type));
    }
    return GX_OK;
}

static GxStatus gx__words_read_template(GxWordsReading *x, const GxJson *from, int two)
{
    GxTokenFrame *frame = &x->t->frame[two];
    GxJson *parts = NULL, *tokens = NULL;
    int a = 0, b = 0;
    GX_TRY(gx_json_get_array(from, two ? "pair" : "single", 1, &parts, x->path, x->err));
    GX_TRY(gx_json_get_object(from, "special_tokens", 1, &tokens, x->path, x->err));
    frame->n = 0;
    for (int64_t i = 0; i < gx_json_size(parts); i++) {
        const GxJson *part = gx_json_at(parts, i), *text = gx_json_get(part, "Sequence"),
                     *token = gx_json_get(part, "SpecialToken");
        const char *name = "";
        int64_t type = 0;
        GX_TRY(gx_json_get_string(text ? text : token, "id", 1, &name, x->path, x->err));
        GX_TRY(gx_json_get_int(text ? text : token, "type_id", 1, &type, x->path, x->err));
        if (type < 0 || type > 1 || (text && strcmp(name, "A") && strcmp(name, "B")))
            return GX_FAIL(
                x->err, GX_ERR_UNSUPPORTED,
                "%s: TemplateProcessing has \"%.40s\" of type %ld; supported: tokens, A and B, of the types 0 and 1",
                x->path, name, (long)type);
        if (!text) GX_TRY(gx__words_frame_token(x, tokens, name, type, frame));
        else GX_TRY(gx__words_frame_part(x, frame, *name == 'A' ? GX_FRAME_A : GX_FRAME_B, type));
        a += text && *name == 'A', b += text && *name == 'B';
    }
    if (a == 1 && b == two) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                   "%s: TemplateProcessing's \"%s\" has A %d times and B %d times; supported: each text once", x->path,
                   two ? "pair" : "single", a, b);
}

// ["</s>", 2], the member `key` of RobertaProcessing. `tokenizers` takes the id and ignores the name; here they must be
// one token's.
static GxStatus gx__words_read_named(GxWordsReading *x, const GxJson *from, const char *key, int32_t *id)
{
    GxJson *pair = NULL;
    char cut[GX_TEXT_VALUE];
    GX_TRY(gx_json_get_array(from, key, 1, &pair, x->path, x->err));
    const GxJson *name = gx_json_at(pair, 0), *number = gx_json_at(pair, 1);
    if (gx_json_size(pair) != 2 || gx_json_type(name) != GX_JSON_STRING || gx_json_type(number) != GX_JSON_INT)
        return GX_FAIL(x->err, GX_ERR_FORMAT,
                       "%s: RobertaProcessing's \"%s\" is an array of %ld, the first %s and the second %s; expected a "
                       "token and its id, such as [\"</s>\", 2]",
                       x->path, key, (long)gx_json_size(pair), gx_json_type_name(name), gx_json_type_name(number));
    const char *text = gx_json_string(name);
    *id = gx_words_id_of(x->v, text, (int64_t)strlen(text));
    gx_text_cut(text, cut, sizeof cut);
    if (*id < 0)
        return GX_FAIL(
            x->err, GX_ERR_FORMAT,
            "%s: RobertaProcessing's \"%s\" is \"%s\" with the id %ld, but the vocabulary has no such token; "
            "expected one of its tokens",
            x->path, key, cut, (long)gx_json_int(number));
    if (*id == gx_json_int(number)) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT,
                   "%s: RobertaProcessing's \"%s\" is \"%s\" with the id %ld; expected %ld, its id in the vocabulary",
                   x->path, key, cut, (long)gx_json_int(number), (long)*id);
}

// trim_offsets and add_prefix_space change only offsets. But they must be there: without them `tokenizers` reads the
// object as BertProcessing, whatever its type says, and frames a pair as <s> a </s> b </s>.
static GxStatus gx__words_read_roberta(GxWordsReading *x, const GxJson *from)
{
    int32_t cls = -1, sep = -1;
    int ignored;
    GX_TRY(gx_json_get_bool(from, "trim_offsets", 1, &ignored, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "add_prefix_space", 1, &ignored, x->path, x->err));
    GX_TRY(gx__words_read_named(x, from, "cls", &cls));
    GX_TRY(gx__words_read_named(x, from, "sep", &sep));
    const int32_t parts[] = {cls, GX_FRAME_A, sep, sep, GX_FRAME_B, sep};
    for (int two = 0; two < 2; two++) {
        x->t->frame[two].n = 0;
        for (int i = 0; i < (two ? 6 : 3); i++) GX_TRY(gx__words_frame_part(x, &x->t->frame[two], parts[i], 0));
    }
    return GX_OK;
}

static GxStatus gx__words_read_processor(GxWordsReading *x, const GxJson *from, int *frames)
{
    static const GxWordsComponent known[] = {
        {"ByteLevel", NULL}, {"TemplateProcessing", NULL}, {"RobertaProcessing", NULL}, {NULL, NULL}};
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    if (!strcmp(type, "ByteLevel")) return GX_OK; // changes only offsets
    const int is_template = !strcmp(type, "TemplateProcessing"), is_roberta = !strcmp(type, "RobertaProcessing");
    if ((is_template || is_roberta) && ++*frames > 1)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: the post_processor has %s behind another component that frames texts; supported: one of "
                       "TemplateProcessing and RobertaProcessing, once",
                       x->path, type);
    if (is_roberta) return gx__words_read_roberta(x, from);
    if (is_template) GX_TRY(gx__words_read_template(x, from, 0));
    if (is_template) return gx__words_read_template(x, from, 1);
    if (strcmp(type, "Sequence")) return gx_words_unknown_type(x, "post_processor", type, known);
    GX_TRY(gx_json_get_array(from, "processors", 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++) GX_TRY(gx__words_read_processor(x, gx_json_at(list, i), frames));
    return GX_OK;
}

GxStatus gx_words_read_frame(GxWordsReading *x)
{
    GxJson *from = NULL;
    int frames = 0;
    for (int two = 0; two < 2; two++) {
        GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_A, 0));
        if (two) GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_B, 1));
    }
    GX_TRY(gx_json_get_object(x->from->json, "post_processor", 0, &from, x->path, x->err));
    return from ? gx__words_read_processor(x, from, &frames) : GX_OK;
}
#endif
