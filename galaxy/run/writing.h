// writing.h: generates the texts of a writer (writer.h): searches them for stop strings, and shows them while they are
// generated or at the end, optionally as lines of JSON.
#ifndef GX_WRITING_H
#define GX_WRITING_H
#include "writer.h"
GX_BEGIN

GxStatus gx_writer_run(GxWriter *w); // continues all prompts

// For conversation.h. begin_text, on rank 0: starts text b, whose prompt has been tokenized. write, on all ranks:
// generates all texts.
GxStatus gx_writer_begin_text(GxWriter *w, int64_t b);
GxStatus gx_writer_write(GxWriter *w);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WRITING_IMPLEMENTED)
#define GX_WRITING_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "launch.h"
#include "reporter.h"

// ---- showing text, on rank 0 ---------------------------------------------------------------------------------------

static void gx__writing_show(GxWriter *w, const char *text, int64_t bytes)
{
    const GxReporter *r = w->g->reporter;
    if (bytes > 0 && r && r->write) r->write(r->user, text);
}

static GxStatus gx__writing_keep(GxWriter *w, GxWrittenText *o, const char *text, int64_t bytes)
{
    char *grown = (char *)realloc(o->text, (size_t)(o->bytes + bytes) + 1);
    if (!grown) return GX_FAIL(&w->g->error, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)o->bytes);
    memcpy(grown + o->bytes, text, (size_t)bytes);
    o->text = grown, o->bytes += bytes;
    o->text[o->bytes] = 0;
    return GX_OK;
}

// 1: a stop string ends in the new bytes. Keeps as many bytes as the longest one has, less one, since one may begin
// there.
static int gx__writing_stops(GxWriter *w, GxWrittenText *o, const char *text, int64_t bytes)
{
    const int64_t most = w->longest_stop - 1, all = o->tail_bytes + bytes, keep = gx_min(most, all);
    char *joined = (char *)malloc((size_t)all + 1);
    int found = 0;
    if (!joined) GX_FAIL(&w->g->error, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)all);
    if (!joined) return 0;
    memcpy(joined, o->tail, (size_t)o->tail_bytes), memcpy(joined + o->tail_bytes, text, (size_t)bytes);
    for (int i = 0; i < w->n_stop && !found; i++)
        for (int64_t end = gx_max(w->stop_bytes[i], o->tail_bytes + 1); end <= all && !found; end++)
            found = !memcmp(joined + end - w->stop_bytes[i], w->stop[i], (size_t)w->stop_bytes[i]);
    memcpy(o->tail, joined + all - keep, (size_t)keep);
    o->tail_bytes = keep;
    free(joined);
    return found;
}

static GxTextEnd gx__writing_see(void *user, int column, const GxDecodedText *text)
{
    GxWriter *w = (GxWriter *)user;
    GxWrittenText *o = &w->out[column];
    const char *piece;
    int64_t bytes;
    if (gx_text_stream_next(&o->shown, text->ids, text->n, 0, &piece, &bytes, &w->g->error) != GX_OK)
        return GX_TEXT_GROWS;
    if (w->streams) gx__writing_show(w, piece, bytes);
    gx__writing_keep(w, o, piece, bytes);
    if (w->n_stop == 0 || gx_failed(w->g)) return GX_TEXT_GROWS;
    if (gx_text_stream_next(&o->matched, text->ids, text->n, 0, &piece, &bytes, &w->g->error) != GX_OK)
        return GX_TEXT_GROWS;
    return gx__writing_stops(w, o, piece, bytes) ? GX_TEXT_STRING : GX_TEXT_GROWS;
}

static int gx__writing_interrupted(void *user)
{
    const GxWriter *w = (const GxWriter *)user;
    return gx_stop_signal() != 0 || (w->interrupt && *w->interrupt);
}

GxStatus gx_writer_begin_text(GxWriter *w, int64_t b)
{
    GxWrittenText *o = &w->out[b];
    const GxDecodedText *t = &w->text[b];
    GxError *err = &w->g->error;
    const char *text;
    int64_t bytes;
    gx_text_stream_close(&o->shown), gx_text_stream_close(&o->matched);
    o->shown = gx_text_stream(&w->tokenizer, GX_SPECIAL_AS_TEXT, t->n);
    o->matched = gx_text_stream(&w->tokenizer, GX_SPECIAL_AS_TOKENS, t->n);
    o->bytes = o->tail_bytes = 0;
    GX_TRY(gx__writing_keep(w, o, "", 0));
    if (w->n_stop == 0) return GX_OK;
    free(o->tail);
    o->tail = (char *)malloc((size_t)w->longest_stop + 1);
    if (!o->tail) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text");
    GxTextStream prompt = gx_text_stream(&w->tokenizer, GX_SPECIAL_AS_TOKENS, 0); // a stop string may begin in it
    const GxStatus status = gx_text_stream_next(&prompt, t->ids, t->n, 1, &text, &bytes, err);
    const int64_t keep = gx_min(bytes, w->longest_stop - 1);
    if (status == GX_OK) memcpy(o->tail, text + bytes - keep, (size_t)keep), o->tail_bytes = keep;
    gx_text_stream_close(&prompt);
    return status;
}

// Shows what was held back.
static void gx__writing_end_text(GxWriter *w, int64_t b)
{
    const char *piece;
    int64_t bytes;
    if (gx_text_stream_next(&w->out[b].shown, w->text[b].ids, w->text[b].n, 1, &piece, &bytes, &w->g->error) != GX_OK)
        return;
    if (w->streams) gx__writing_show(w, piece, bytes);
    gx__writing_keep(w, &w->out[b], piece, bytes);
}

GxStatus gx_writer_write(GxWriter *w)
{
    GxContext *g = w->g;
    w->decode.user = w, w->decode.see = gx__writing_see, w->decode.interrupted = gx__writing_interrupted;
    w->decode.new_tokens = w->new_tokens;
    w->search.user = w, w->search.interrupted = gx__writing_interrupted;
    if (w->is_searched) gx_decode_beams(g, &w->decoder, &w->forward, w->text, w->prompts, &w->search);
    else gx_decode(g, &w->decoder, &w->forward, w->text, &w->decode);
    if (g->rank == 0 && w->decoder.is_unsound && !gx_failed(g))
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: the model's outputs are not finite, so no text can be written: weights of it are damaged, or its "
                "training has diverged",
                w->o->model);
    for (int64_t b = 0; b < w->texts && g->rank == 0 && !gx_failed(g); b++) gx__writing_end_text(w, b);
    return gx_status(g);
}

// ---- prompts -------------------------------------------------------------------------------------------------------

static GxStatus gx__writing_print_json(GxWriter *w, int64_t b)
{
    static const char *const ends[] = {"", "length", "eos", "stop", "signal"};
    const GxDecodedText *t = &w->text[b];
    GxError *err = &w->g->error;
    GxJson *line = gx_json_new_object(), *ids = gx_json_new_array();
    char *prompt = strndup(w->out[b].prompt, (size_t)w->out[b].prompt_bytes), *text = NULL;
    int64_t bytes;
    for (int64_t i = t->prompt; i < t->n; i++) gx_json_append(ids, gx_json_new_int(t->ids[i]), err);
    gx_json_set(line, "prompt", gx_json_new_string(prompt ? prompt : ""), err);
    gx_json_set(line, "text", gx_json_new_string(w->out[b].text), err);
    gx_json_set(line, "ids", ids, err);
    gx_json_set(line, "prompt_tokens", gx_json_new_int(t->prompt), err);
    gx_json_set(line, "new_tokens", gx_json_new_int(t->n - t->prompt), err);
    gx_json_set(line, "end", gx_json_new_string(ends[t->end]), err);
    if (w->search.options.num_beams > 1) gx_json_set(line, "score", gx_json_new_double(t->score), err);
    if (gx_error_code(err) == GX_OK && gx_json_dump(line, 0, &text, &bytes, err) == GX_OK) {
        gx__writing_show(w, text, bytes);
        gx__writing_show(w, "\n", 1);
    }
    free(text), free(prompt);
    gx_json_free(line);
    return gx_error_code(err);
}

static void gx__writing_print(GxWriter *w)
{
    char title[40];
    for (int64_t b = 0; b < w->texts && !gx_failed(w->g); b++) {
        if (w->text[b].end == GX_TEXT_GROWS) continue; // a search has found fewer texts
        if (w->o->json) {
            gx__writing_print_json(w, b);
            continue;
        }
        snprintf(title, sizeof title, "%s--- text %ld\n", b ? "\n" : "", (long)b + 1);
        if (!w->streams) {
            if (w->texts > 1) gx__writing_show(w, title, (int64_t)strlen(title));
            char *prompt = strndup(w->out[b].prompt, (size_t)w->out[b].prompt_bytes);
            if (w->o->echo && prompt) gx__writing_show(w, prompt, w->out[b].prompt_bytes);
            free(prompt);
            gx__writing_show(w, w->out[b].text, w->out[b].bytes);
        }
        gx__writing_show(w, "\n", 1);
    }
}

static void gx__writing_say_speed(const GxWriter *w)
{
    const GxDecodeTimes *t = &w->decoder.times;
    const int64_t decoded = gx_max(0, t->new_tokens - w->prompts); // the first token of each text came with its prompt
    gx_log(&w->g->log, GX_LOG_INFO,
           "prompts: %ld token%s in %.2f s, %.0f tokens/s; new: %ld token%s, after the first in %.2f s, %.1f tokens/s",
           (long)t->prompt_tokens, gx_text_s(t->prompt_tokens), t->prefill_seconds,
           (double)t->prompt_tokens / (t->prefill_seconds > 0 ? t->prefill_seconds : 1), (long)t->new_tokens,
           gx_text_s(t->new_tokens), t->decode_seconds,
           (double)decoded / (t->decode_seconds > 0 ? t->decode_seconds : 1));
}

GxStatus gx_writer_run(GxWriter *w)
{
    GxContext *g = w->g;
    if (w->done || gx_failed(g)) return gx_status(g);
    gx_catch_stop_signals();
    gx_stop_where_unread();
    w->streams = w->texts == 1 && !w->o->json && !w->is_searched;
    for (int64_t b = 0; b < w->texts && g->rank == 0 && !gx_failed(g); b++) gx_writer_begin_text(w, b);
    if (w->streams && w->o->echo && g->rank == 0) {
        char *prompt = strndup(w->out[0].prompt, (size_t)w->out[0].prompt_bytes);
        if (prompt) gx__writing_show(w, prompt, w->out[0].prompt_bytes);
        free(prompt);
    }
    GX_TRY(gx_writer_write(w));
    if (g->rank == 0) gx__writing_print(w);
    if (g->rank == 0) gx__writing_say_speed(w);
    return gx_status(g);
}
#endif
