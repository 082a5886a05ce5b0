// test_keys.cu: what is in a file of another program and is not honoured is said. For every reader of a file: a key that
// nobody knows is named in one warning, one that asks for what is not built is an error or a named warning, and those
// that change nothing are passed over in silence.
#define _GNU_SOURCE
#include "galaxy.h"
#include "test/test.h"
#include <unistd.h>

static char root[200];
static struct {
    char log[8000];
} said; // since it was emptied, a line for each warning

static void hear(void *user, GxLogLevel level, const char *text)
{
    const size_t have = strlen(said.log);
    (void)user;
    CHECK(level == GX_LOG_WARNING, "level %d: %s", level, text);
    snprintf(said.log + have, sizeof said.log - have, "%s\n", text);
}
static const GxLogger heard = {hear, NULL};

// ---- the checker ---------------------------------------------------------------------------------------------------

static const GxJsonKey rows[] = {
    {"size", GX_KEY_READ, NULL},
    {"use_cache", GX_KEY_HARMLESS, "speed alone"},
    {"scale", GX_KEY_REFUSED, "logits would be scaled"},
    {"parts=1", GX_KEY_REFUSED, "matrices would be cut"},
    {"act=\"silu\"", GX_KEY_REFUSED, "the MLP would be another"},
    {"beams=1", GX_KEY_NAMED, "no beams are searched"},
};

static GxStatus check(const char *text, GxError *err)
{
    GxJson *json;
    memset(err, 0, sizeof *err), said.log[0] = 0;
    GX_TRY(gx_json_parse(&json, text, (int64_t)strlen(text), "here", err));
    const GxStatus status = gx_json_check_keys(json, GX_KEYS(rows), "a/file.json", &heard, err);
    gx_json_free(json);
    return status;
}

TEST(keys_are_read_harmless_refused_named_or_unknown)
{
    static const struct {
        const char *text, *error, *warning; // NULL: none
    } cases[] = {
        {"{}", NULL, NULL},
        {"{\"size\": 3, \"use_cache\": true}", NULL, NULL},
        {"{\"scale\": null}", NULL, NULL},
        {"{\"scale\": false}", NULL, NULL},
        {"{\"scale\": 0.0}", NULL, NULL},
        {"{\"scale\": \"\"}", NULL, NULL},
        {"{\"scale\": []}", NULL, NULL},
        {"{\"scale\": {}}", NULL, NULL},
        {"{\"scale\": 0.5}", "a/file.json: scale is 0.5, which is not built: logits would be scaled", NULL},
        {"{\"scale\": {\"a\": 0}}", "scale is {\"a\":0}, which", NULL},
        {"{\"parts\": 1}", NULL, NULL},
        {"{\"parts\": 1.0}", NULL, NULL},
        {"{\"parts\": null}", NULL, NULL},
        {"{\"parts\": 0}", "parts is 0, which is not built: matrices would be cut", NULL},
        {"{\"parts\": true}", "parts is true", NULL},
        {"{\"act\": \"silu\"}", NULL, NULL},
        {"{\"act\": \"gelu\"}", "act is \"gelu\", which is not built: the MLP would be another", NULL},
        {"{\"beams\": 4}", NULL, "a/file.json: beams is 4, which is not honoured: no beams are searched\n"},
        {"{\"beams\": 1}", NULL, NULL},
        {"{\"siz\": 1}", NULL,
         "a/file.json: siz is not known here and not read; if it changes the model, results differ\n"},
        {"{\"size_of\": 1, \"x\": null}", NULL,
         "a/file.json: 2 keys are not known here and not read: size_of, x; if one of them changes the model, results "
         "differ\n"},
        {"{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}", NULL,
         "a/file.json: 9 keys are not known here and not read: 1, 2, 3, 4, 5, 6, 7, 8, …; if one of them changes the "
         "model, results differ\n"},
        {"[1]", NULL, NULL},
    };
    GxError err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const GxStatus status = check(cases[i].text, &err);
        CHECK(status == (cases[i].error ? GX_ERR_UNSUPPORTED : GX_OK), "%s: %d, %s", cases[i].text, status,
              err.message);
        if (cases[i].error) CHECK(strstr(err.message, cases[i].error) != NULL, "%s: %s", cases[i].text, err.message);
        CHECK(!strcmp(said.log, cases[i].warning ? cases[i].warning : ""), "%s: %s", cases[i].text, said.log);
    }
}

TEST(what_is_said_of_a_hostile_file_is_cut_and_nobody_may_be_told_nothing)
{
    enum { LONG = 5000 };
    static char text[3 * LONG];
    GxError err;
    GxJson *json;
    snprintf(text, sizeof text, "{\"%0*d\": 1, \"scale\": \"%0*d\"}", LONG, 7, LONG, 8);
    CHECK(check(text, &err) == GX_ERR_UNSUPPORTED && strlen(err.message) < 300, "%s", err.message);
    snprintf(text, sizeof text, "{\"%0*d\": 1}", LONG, 7);
    CHECK(check(text, &err) == GX_OK && strlen(said.log) < 300 && strstr(said.log, "000…"), "%s", said.log);
    CHECK(gx_json_parse(&json, "{}", 2, "here", &err) == GX_OK, "%s", err.message);
    CHECK(gx_json_check_keys(json, GX_KEYS(rows), "a/file.json", NULL, &err) == GX_ERR_ARGUMENT &&
              strstr(err.message, "no logger"),
          "%s", err.message);
    gx_json_free(json);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.150s/test_keys.XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    const int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    return failed;
}
