// words_frame.h: reads the frame of texts (GxTokenFrame), "post_processor" in tokenizer.json.
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

static GxStatus gx__words_read_processor(GxWordsReading *x, const GxJson *from, int *templates)
{
    static const GxWordsComponent known[] = {{"ByteLevel", NULL}, {"TemplateProcessing", NULL}, {NULL, NULL}};
    const char *type = "";
    GxJson *list = NULL;
    GX_TRY(gx_json_get_string(from, "type", 1, &type, x->path, x->err));
    if (!strcmp(type, "ByteLevel")) return GX_OK; // changes only offsets
    if (!strcmp(type, "TemplateProcessing")) {
        if (++*templates > 1)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: TemplateProcessing twice; supported: once", x->path);
        GX_TRY(gx__words_read_template(x, from, 0));
        return gx__words_read_template(x, from, 1);
    }
    if (strcmp(type, "Sequence")) return gx_words_unknown_type(x, "post_processor", type, known);
    GX_TRY(gx_json_get_array(from, "processors", 1, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__words_read_processor(x, gx_json_at(list, i), templates));
    return GX_OK;
}

GxStatus gx_words_read_frame(GxWordsReading *x)
{
    GxJson *from = NULL;
    int templates = 0;
    for (int two = 0; two < 2; two++) {
        GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_A, 0));
        if (two) GX_TRY(gx__words_frame_part(x, &x->t->frame[two], GX_FRAME_B, 1));
    }
    GX_TRY(gx_json_get_object(x->from->json, "post_processor", 0, &from, x->path, x->err));
    return from ? gx__words_read_processor(x, from, &templates) : GX_OK;
}
#endif
