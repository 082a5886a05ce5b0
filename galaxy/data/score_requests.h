// score_requests.h: reads JSON lines as token sequences whose ends are to be scored by a language model. A line is one
// of these; other members are ignored:
//
//     {"prompt": "The sky is", "completion": " blue."}        the completion, given the prompt
//     {"context": "The sky is", "continuation": " blue."}     the same, by the names of lm-evaluation-harness
//     {"text": "All of this."}                                a whole text ("rolling")
//
// Tokens and windows are those of lm-evaluation-harness 0.4 (loglikelihood and loglikelihood_rolling of its model hf):
//
//   - White space at the end of a prompt is moved to the completion. Both are encoded together; as many tokens as the
//     prompt alone has are the prompt's and are replaced by its own, the rest are the completion's.
//   - Special tokens that are spelled out count as such, and prompt and completion are in the tokenizer's frame (<s>),
//     unless the prompt begins with the prefix token spelled out.
//   - The prefix token is the tokenizer's bos_token, or else its eos_token. It is the context of a text's first token
//     and of a completion with an empty prompt, unless the completion begins with it; then that one is the context.
//   - If a sequence is longer than the model's context (`most` tokens before the last one), its beginning is cut off. A
//     text is cut into windows of that many tokens, in which each token is scored once; the last window is filled up
//     with the tokens before it. A text has the tokenizer's frame, whose first token is scored, too.
//
//     GX_TRY(gx_score_requests_read(&r, "requests.jsonl", &tokenizer, "model", 2048, err));
//     … window i: r.ids[r.window[i].at …], of which the last `scored` count, of line r.window[i].line …
//     gx_score_requests_close(&r);
#ifndef GX_SCORE_REQUESTS_H
#define GX_SCORE_REQUESTS_H
#include "bad_lines.h"
#include "../text/chat_turn.h"
#include "../io/file_kind.h"
#include "../text/tokenizer.h"
#include "../text/tokenizer_config.h"
GX_BEGIN

typedef struct {
    int64_t at, n, scored; // tokens; the last `scored` of n
    int64_t line;          // from 0
} GxScorePart;

typedef struct {
    int64_t lines, windows, tokens;
    GxScorePart *window; // [windows]; those of a line are consecutive. An empty text has none
    int32_t *ids;        // [tokens]
    int64_t longest;     // the most tokens of a window without the last one, which is only a label
    int64_t cut;         // prompts whose beginning was cut off
    int64_t window_room, token_room;
} GxScoreRequests;

// most: the tokens of the model's context. folder: of the tokenizer; NULL: it has none. Errors name the line. The file
// must not exceed 1 GiB.
GxStatus gx_score_requests_read(GxScoreRequests *r, const char *path, const GxTokenizer *t, const char *folder,
                                int64_t most, GxError *err);
void gx_score_requests_close(GxScoreRequests *r); // accepts a struct of zeros

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SCORE_REQUESTS_IMPLEMENTED)
#define GX_SCORE_REQUESTS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

enum { GX__SCORE_CAP = 1 << 30 };

typedef struct {
    GxScoreRequests *r;
    const GxTokenizer *t;
    int32_t prefix;     // -1: the tokenizer has none
    const char *begins; // a text that begins with this gets no frame; NULL: none
    char room[8];
    int64_t most;
    const char *path;
    int64_t number; // of the line, from 1
} gx__ScoreReader;

// ---- windows -------------------------------------------------------------------------------------------------------

static GxStatus gx__score_grow(void **list, int64_t n, int64_t *room, size_t size, GxError *err)
{
    if (n <= *room) return GX_OK;
    const int64_t more = gx_max(n, 1024 + *room + *room / 2);
    void *grown = realloc(*list, (size_t)more * size);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens to score", (long)more);
    *list = grown, *room = more;
    return GX_OK;
}

// Adds a window of the next n tokens, which are in r->ids already.
static GxStatus gx__score_add_part(gx__ScoreReader *x, int64_t n, int64_t scored, GxError *err)
{
    GxScoreRequests *r = x->r;
    const GxScorePart w = {r->tokens, n, scored, x->number - 1};
    GX_TRY(gx__score_grow((void **)&r->window, r->windows + 1, &r->window_room, sizeof *r->window, err));
    r->window[r->windows++] = w;
    r->tokens += n, r->longest = gx_max(r->longest, n - 1);
    return GX_OK;
}

// Adds own[n], which are scored, after given[n_given].
static GxStatus gx__score_add_pair(gx__ScoreReader *x, const int32_t *given, int64_t n_given, const int32_t *own,
                                   int64_t n, GxError *err)
{
    const int64_t kept = gx_min(n_given, x->most + 1 - n), at = x->r->tokens;
    if (n < 1)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: the completion has no token of its own: prompt and completion together have no more "
                       "tokens than the prompt alone, %ld token%s",
                       x->path, (long)x->number, (long)n_given, gx_text_s(n_given));
    if (n > x->most)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the completion has %ld tokens, but the model sees only %ld at once",
                       x->path, (long)x->number, (long)n, (long)x->most);
    x->r->cut += kept < n_given;
    GX_TRY(gx__score_grow((void **)&x->r->ids, at + kept + n, &x->r->token_room, sizeof *x->r->ids, err));
    memcpy(x->r->ids + at, given + n_given - kept, (size_t)kept * sizeof *given);
    memcpy(x->r->ids + at + kept, own, (size_t)n * sizeof *own);
    return gx__score_add_part(x, kept + n, n, err);
}

// Adds all of ids[n]: the first window after the prefix token, the others after the preceding tokens.
static GxStatus gx__score_add_all(gx__ScoreReader *x, const int32_t *ids, int64_t n, GxError *err)
{
    const int64_t first = gx_min(n, x->most);
    if (n > 0) GX_TRY(gx__score_add_pair(x, &x->prefix, 1, ids, first, err));
    for (int64_t done = first, own; done < n; done += own) {
        own = gx_min(n - done, x->most);
        const int64_t given = x->most + 1 - own;
        GX_TRY(gx__score_add_pair(x, ids + done - given, given, ids + done, own, err));
    }
    return GX_OK;
}

// ---- a line --------------------------------------------------------------------------------------------------------

static GxStatus gx__score_need_prefix(const gx__ScoreReader *x, const char *what, GxError *err)
{
    if (x->prefix >= 0) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_FORMAT,
        "%s:%ld: %s, and the tokenizer %s has neither a bos_token nor an eos_token for the first token to follow",
        x->path, (long)x->number, what, x->t->identity);
}

// free(*ids); after an error it is NULL.
static GxStatus gx__score_encode(const gx__ScoreReader *x, const char *text, int frames, int32_t **ids, int64_t *n,
                                 GxError *err)
{
    const int64_t bytes = (int64_t)strlen(text), room = gx_tokenizer_most(x->t, bytes) + GX_FRAME_MOST;
    int32_t *plain = (int32_t *)malloc((size_t)(2 * room) * sizeof *plain);
    *ids = NULL, *n = 0;
    if (!plain) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes", (long)bytes);
    GxStatus status = gx_tokenizer_encode(x->t, text, bytes, GX_SPECIAL_AS_TOKENS, plain, n, err);
    const GxTokenTexts one = {plain, NULL, *n, 0};
    if (x->begins && !strncmp(text, x->begins, strlen(x->begins))) frames = 0;
    if (status == GX_OK && frames && x->t->frame[0].n > 0) {
        status = gx_tokenizer_join(x->t, &one, room, plain + room, NULL, n, NULL, err);
        memcpy(plain, plain + room, (size_t)*n * sizeof *plain);
    }
    if (status == GX_OK) *ids = plain;
    else free(plain);
    return status;
}

static GxStatus gx__score_alone(gx__ScoreReader *x, const char *completion, GxError *err)
{
    int32_t *ids;
    int64_t n;
    GX_TRY(gx__score_need_prefix(x, "the prompt is empty", err));
    GxStatus status = gx__score_encode(x, completion, 0, &ids, &n, err);
    const int has_prefix = status == GX_OK && n > 0 && ids[0] == x->prefix;
    if (status == GX_OK) status = gx__score_add_pair(x, &x->prefix, 1, ids + has_prefix, n - has_prefix, err);
    free(ids);
    return status;
}

static GxStatus gx__score_pair(gx__ScoreReader *x, const char *prompt, const char *completion, GxError *err)
{
    const size_t bytes = strlen(prompt) + strlen(completion) + 1;
    const int64_t given_bytes = (int64_t)strlen(prompt) - gx_chat_space_behind(prompt, (int64_t)strlen(prompt));
    int32_t *ids = NULL, *given = NULL;
    int64_t n, n_given;
    if (!prompt[0]) return gx__score_alone(x, completion, err);
    char *text = (char *)malloc(bytes);
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    snprintf(text, bytes, "%s%s", prompt, completion);
    GxStatus status = gx__score_encode(x, text, 1, &ids, &n, err);
    text[given_bytes] = 0;
    if (status == GX_OK) status = gx__score_encode(x, text, 1, &given, &n_given, err);
    if (status == GX_OK && n_given == 0)
        status = GX_FAIL(err, GX_ERR_FORMAT,
                         "%s:%ld: the prompt is only white space, which moves to the completion, and the tokenizer "
                         "puts nothing before it, so the first token would follow nothing; \"\" is an empty prompt",
                         x->path, (long)x->number);
    const int64_t own = status == GX_OK ? gx_max(0, n - n_given) : 0;
    if (status == GX_OK) status = gx__score_add_pair(x, given, n_given, ids + n - own, own, err);
    free(text), free(ids), free(given);
    return status;
}

static GxStatus gx__score_whole(gx__ScoreReader *x, const char *text, GxError *err)
{
    int32_t *ids;
    int64_t n;
    GX_TRY(gx__score_need_prefix(x, "it is a \"text\"", err));
    GxStatus status = gx__score_encode(x, text, 1, &ids, &n, err);
    if (status == GX_OK) status = gx__score_add_all(x, ids, n, err);
    free(ids);
    return status;
}

static GxStatus gx__score_string(const gx__ScoreReader *x, const GxJson *record, const char *member, const char **text,
                                 GxError *err)
{
    const GxJson *value = gx_json_get(record, member);
    *text = gx_json_string(value);
    if (gx_json_type(value) == GX_JSON_STRING) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is %s; expected a string", x->path, (long)x->number, member,
                   value ? gx_json_type_name(value) : "missing");
}

static GxStatus gx__score_record(gx__ScoreReader *x, const GxJson *record, GxError *err)
{
    static const char *const pairs[][2] = {{"prompt", "completion"}, {"context", "continuation"}};
    const int is_text = gx_json_get(record, "text") != NULL;
    const char *before, *behind;
    int has[2], pair;
    if (gx_json_type(record) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", x->path, (long)x->number,
                       gx_json_type_name(record));
    for (int i = 0; i < 2; i++) has[i] = gx_json_get(record, pairs[i][0]) || gx_json_get(record, pairs[i][1]);
    if (has[0] + has[1] + is_text != 1)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: the record has %s; expected \"prompt\" and \"completion\", or \"context\" and "
                       "\"continuation\", or only \"text\"",
                       x->path, (long)x->number, has[0] + has[1] + is_text ? "several of them" : "none of them");
    if (is_text) {
        GX_TRY(gx__score_string(x, record, "text", &before, err));
        return gx__score_whole(x, before, err);
    }
    pair = has[1];
    GX_TRY(gx__score_string(x, record, pairs[pair][0], &before, err));
    GX_TRY(gx__score_string(x, record, pairs[pair][1], &behind, err));
    return gx__score_pair(x, before, behind, err);
}

static GxStatus gx__score_line(gx__ScoreReader *x, const char *line, GxError *err)
{
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    if (gx_json_parse(&json, line, (int64_t)strlen(line), "", &e) != GX_OK) // ":1:12: ...", the position in this line
        return GX_FAIL(err, gx_error_code(&e), "%s:%ld%s", x->path, (long)x->number,
                       strncmp(e.message, ":1", 2) ? e.message : e.message + 2);
    const GxStatus status = gx__score_record(x, json, err);
    gx_json_free(json);
    return status;
}

// ---- the file ------------------------------------------------------------------------------------------------------

// text: all lines, whose ends become 0.
static GxStatus gx__score_lines(gx__ScoreReader *x, char *text, GxError *err)
{
    GxBadLines bad = GX_ZERO;
    for (x->number = 1; *text && gx_bad_lines_goes_on(&bad); x->number++) {
        char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
        GxError e = GX_ZERO;
        *end = 0;
        if (text[strspn(text, "\r")]) {
            if (gx__score_line(x, text, &e) != GX_OK && !gx_bad_lines_add(&bad, x->number, &e)) break;
            x->r->lines = x->number;
        } else if (next[strspn(next, "\r\n")]) {
            GX_FAIL(&e, GX_ERR_FORMAT, "%s:%ld: the line is empty, but others follow; remove it, or make it a record",
                    x->path, (long)x->number);
            if (!gx_bad_lines_add(&bad, x->number, &e)) break;
        }
        gx_bad_lines_pass(&bad, x->number, (int64_t)(end - text));
        text = next;
    }
    GX_TRY(gx_bad_lines_fail(&bad, 1, err));
    if (x->r->lines > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds no records; expected JSON lines with \"prompt\" and \"completion\"",
                   x->path);
}

// As in transformers: bos_token if the folder names one, else the token that the tokenizer puts before a text, else its
// eos_token.
static GxStatus gx__score_find_prefix(gx__ScoreReader *x, const char *folder, GxError *err)
{
    const GxTokenFrame *frame = &x->t->frame[0];
    GxJson *config = NULL;
    x->prefix = -1;
    if (folder) GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    const char *bos = gx_tokenizer_config_token(config, "bos_token");
    if (bos) x->prefix = gx_tokenizer_find(x->t, bos);
    if (x->prefix < 0 && !gx_json_get(config, "bos_token") && frame->n > 0) x->prefix = frame->part[0].id;
    if (x->prefix < 0) x->prefix = x->t->end;
    gx_json_free(config);
    x->begins = x->prefix >= 0 ? gx_tokenizer_piece(x->t, x->prefix, x->room) : NULL;
    return GX_OK;
}

GxStatus gx_score_requests_read(GxScoreRequests *r, const char *path, const GxTokenizer *t, const char *folder,
                                int64_t most, GxError *err)
{
    gx__ScoreReader x = GX_ZERO;
    GxTextPlace place = {path, 1, 0};
    char *text;
    int64_t bytes;
    memset(r, 0, sizeof *r);
    x.r = r, x.t = t, x.most = most, x.path = path;
    GX_TRY(gx__score_find_prefix(&x, folder, err));
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_LINES, err));
    GX_TRY(gx_file_read(path, GX__SCORE_CAP, &text, &bytes, err));
    GxStatus status = gx_text_check(&place, text, bytes, err);
    if (status == GX_OK) status = gx__score_lines(&x, text + (strncmp(text, "\xEF\xBB\xBF", 3) ? 0 : 3), err);
    free(text);
    if (status != GX_OK) gx_score_requests_close(r);
    return status;
}

void gx_score_requests_close(GxScoreRequests *r)
{
    free(r->window), free(r->ids);
    memset(r, 0, sizeof *r);
}
#endif
