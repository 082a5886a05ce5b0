// test_writer.cu: the program that writes text, as its users meet it: prompts, stops, drawing as the folder says,
// ranks, conversations, signals, refusals; and its parts: formats of conversations against transformers'
// apply_chat_template (dumps of dev/ref/make_chat.py), tokens as text on the way, generation_config.json, options that
// are given several times.
#include "test/ranks.h" // first: it wants more of the system

#include "galaxy.h"

// ---- conversations as text -----------------------------------------------------------------------------------------

enum { TURNS = 8 };

static GxChatRole role_of(const char *name)
{
    return !strcmp(name, "system") ? GX_CHAT_SYSTEM : !strcmp(name, "user") ? GX_CHAT_USER : GX_CHAT_ASSISTANT;
}

// template 1: f executes a template, which transformers was not told whether to think, unless it was to not think.
static void check_case(const GxChatFormat *f, int is_template, const GxJson *c, int number)
{
    const GxJson *turns = gx_json_get(c, "turns");
    GxChatTurn turn[TURNS];
    GxError e = GX_ZERO;
    char *text = NULL;
    const int n = (int)gx_json_size(turns), thinks = gx_json_bool(gx_json_get(c, "thinking"));
    for (int i = 0; i < n; i++) {
        turn[i].role = role_of(gx_json_string(gx_json_at(gx_json_at(turns, i), 0)));
        turn[i].text = gx_json_string(gx_json_at(gx_json_at(turns, i), 1));
    }
    CHECK(gx_chat_text(f, turn, n, is_template && thinks ? -1 : thinks, &text, &e) == GX_OK, "%s", e.message);
    const char *expected = gx_json_string(gx_json_get(c, "text"));
    CHECK(text && !strcmp(text, expected), "%s, case %d:\n%s\ntransformers':\n%s", gx_chat_name(f), number, text,
          expected);
    free(text);
}

static void check_cases(const GxChatFormat *f, int is_template, const GxJson *cases)
{
    for (int64_t i = 0; i < gx_json_size(cases); i++) check_case(f, is_template, gx_json_at(cases, i), (int)i);
}

static void check_template(const char *name, const char *jinja, const GxJson *cases)
{
    static const GxTokenizer *bytes;
    static GxTokenizer room;
    const GxChatFormat *f = NULL;
    GxError e = GX_ZERO;
    char where[100];
    if (!bytes) room = gx_tokenizer_bytes(), bytes = &room;
    GxJson *said = gx_json_new_object(), *variables = gx_json_new_object();
    snprintf(where, sizeof where, "the template of %s", name);
    gx_json_set(said, "template", gx_json_new_string(jinja), &e);
    gx_json_set(said, "where", gx_json_new_string(where), &e);
    gx_json_set(variables, "bos_token", gx_json_new_string(strncmp(name, "llama3", 6) ? "<s>" : "<|begin_of_text|>"),
                &e);
    gx_json_set(variables, "eos_token", gx_json_new_string("</s>"), &e);
    gx_json_set(said, "variables", variables, &e);
    if (CHECK(gx_chat_open(&f, said, "", bytes, &e) == GX_OK, "%s: %s", name, e.message)) {
        CHECK(!strcmp(gx_chat_end(f), gx_chat_end(gx_chat_format(name))), "%s ends with %s", where, gx_chat_end(f));
        CHECK(gx_chat_thinks(f) == !strcmp(name, "qwen3") && !gx_chat_dates(f), "%s", name);
        check_cases(f, 1, cases);
    }
    gx_chat_close(f), gx_json_free(said);
}

// By its name, by the template that transformers had, and by that which is written of the name.
static int check_format(const GxJson *line)
{
    const char *name = gx_json_string(gx_json_get(line, "name"));
    const GxChatFormat *f = gx_chat_format(name);
    const GxJson *cases = gx_json_get(line, "cases");
    char *jinja = NULL;
    GxError e = GX_ZERO;
    if (!CHECK(f && !strcmp(gx_chat_name(f), name), "there is no %s", name)) return 0;
    check_cases(f, 0, cases);
    check_template(name, gx_json_string(gx_json_get(line, "template")), cases);
    CHECK(gx_chat_jinja(f, &jinja, &e) == GX_OK, "%s", e.message);
    if (jinja) check_template(name, jinja, cases);
    free(jinja);
    return gx_json_size(cases) >= 5;
}

TEST(conversations_are_the_texts_that_transformers_makes_of_them)
{
    char path[TEST_PATH + 40];
    snprintf(path, sizeof path, "%s/data/ref/chat.jsonl", repository);
    char *text = read_text(path), *save = NULL;
    int formats = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        GxJson *json = NULL;
        GxError e = GX_ZERO;
        if (!CHECK(gx_json_parse(&json, line, (int64_t)strlen(line), path, &e) == GX_OK, "%s", e.message)) continue;
        formats += check_format(json);
        gx_json_free(json);
    }
    int names = 1;
    for (const char *p = GX_CHAT_NAMES; *p; p++) names += *p == '|';
    CHECK(formats == names, "%d of %d formats are in %s", formats, names, path);
    free(text);
}

// chat_template.jinja before tokenizer_config.json, there a template, or several with names, and before
// training_args.json; of two folders the first that says one, and the special tokens of the first that has some.
TEST(a_folder_says_its_format_in_any_of_four_places)
{
    static const char tools[] = "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"x\"}]}",
                      several[] = "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"x\"}, {\"name\": "
                                  "\"default\", \"template\": \"B\"}], \"model_max_length\": "
                                  "1000000000000000019884624838656}";
    static const struct {
        const char *choice, *jinja, *config, *args, *text, *name; // text, name: what is found
        const char *says;                                         // the error
    } list[] = {
        {"auto", "A", "{\"chat_template\": \"B\"}", "{\"chat_template\": \"chatml\"}", "A", "", NULL},
        {"auto", NULL, "{\"chat_template\": \"B\"}", "{\"chat_template\": \"chatml\"}", "B", "", NULL},
        {"auto", NULL, several, NULL, "B", "", NULL},
        {"auto", NULL, "{\"chat_template\": null}", "{\"chat_template\": \"chatml\"}", "", "chatml", NULL},
        {"auto", NULL, NULL, "{\"chat_template\": \"auto\"}", NULL, NULL, NULL},
        {"auto", NULL, NULL, NULL, NULL, NULL, NULL},
        {"llama2", "A", NULL, NULL, "", "llama2", NULL},
        {"chat/chat_template.jinja", "A", NULL, NULL, "A", "", NULL},
        {"auto", NULL, tools, NULL, NULL, NULL, "has 1 template, but none with the name \"default\""},
        {"auto", NULL, "{\"chat_template\": {\"default\": \"B\", \"x\": \"y\"}}", NULL, "B", "", NULL},
        {"chat/tokenizer_config.json", NULL, "{\"chat_template\": \"B\"}", NULL, NULL, NULL,
         "is a JSON file; expected a Jinja template"},
        {"chat/chat_template.jinja", "{\"chat_template\": \"B\"}", NULL, NULL, NULL, NULL, "is a JSON file"},
        {"auto", NULL, "{\"chat_template\": 7}", NULL, NULL, NULL, "chat_template is an integer; expected a text"},
        {"llama5", "A", NULL, NULL, NULL, NULL, "is \"llama5\", which is neither the name of a format nor a file"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        static const char *const folders[] = {"", "chat", "more"};
        const char *const files[] = {list[i].jinja, list[i].config, list[i].args};
        static const char *const names[] = {"chat/chat_template.jinja", "chat/tokenizer_config.json",
                                            "chat/training_args.json"};
        GxError e = GX_ZERO;
        GxJson *said;
        shell("rm -rf chat more && mkdir chat more");
        shell("echo '{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": null, \"pad_token\": null, "
              "\"image_token\": \"<i>\", \"add_bos_token\": true, "
              "\"extra_special_tokens\": {\"sound\": {\"content\": \"<s>\"}}, "
              "\"tokenizer_class\": \"LlamaTokenizerFast\"}' >more/tokenizer_config.json");
        shell("echo '{\"bos_token\": \"<x>\", \"pad_token\": \"<p>\"}' >more/special_tokens_map.json");
        for (int k = 0; k < 3; k++)
            if (files[k]) gx_file_write(names[k], files[k], (int64_t)strlen(files[k]), &e);
        const GxStatus status = gx_chat_find(&said, list[i].choice, folders, 3, &e);
        CHECK(list[i].says ? status != GX_OK && !said && strstr(e.message, list[i].says) : status == GX_OK,
              "folder %d: %s", (int)i, e.message);
        CHECK(!list[i].text || (!strcmp(gx_json_string(gx_json_get(said, "template")), list[i].text) &&
                                !strcmp(gx_json_string(gx_json_get(said, "name")), list[i].name)),
              "folder %d: %s", (int)i, gx_json_string(gx_json_get(said, "template")));
        CHECK(list[i].text || !said, "folder %d says something", (int)i);
        const GxJson *tokens = gx_json_get(said, "variables");
        if (said && !list[i].config)
            CHECK(gx_json_size(tokens) == 5 && !strcmp(gx_json_string(gx_json_get(tokens, "image_token")), "<i>") &&
                      !strcmp(gx_json_string(gx_json_get(tokens, "sound")), "<s>") &&
                      !strcmp(gx_json_string(gx_json_get(tokens, "unk_token")), "<unk>") &&
                      !strcmp(gx_json_string(gx_json_get(tokens, "bos_token")), "<x>") &&
                      !strcmp(gx_json_string(gx_json_get(tokens, "pad_token")), "<p>"),
                  "folder %d: %ld tokens: %s, %s, %s", (int)i, (long)gx_json_size(tokens),
                  gx_json_string(gx_json_get(tokens, "unk_token")), gx_json_string(gx_json_get(tokens, "bos_token")),
                  gx_json_string(gx_json_get(tokens, "pad_token")));
        gx_json_free(said);
    }
}

TEST(turns_that_do_not_alternate_are_refused)
{
    const GxChatTurn turns[] = {
        {GX_CHAT_SYSTEM, "s"}, {GX_CHAT_USER, "u"}, {GX_CHAT_ASSISTANT, "a"}, {GX_CHAT_ASSISTANT, "a"}};
    static const struct {
        int first, n;
        const char *says;
    } list[] = {{0, 4, "turn 3 of a conversation is not the user's"},
                {2, 1, "turn 0 of a conversation is not the user's"},
                {0, 3, "a conversation of 3 turns does not end with the user's"},
                {0, 1, "a conversation of 1 turns does not end with the user's"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxError e = GX_ZERO;
        char *text;
        gx_chat_text(gx_chat_format("chatml"), turns + list[i].first, list[i].n, 0, &text, &e);
        CHECK(e.code == GX_ERR_ARGUMENT && strstr(e.message, list[i].says) && !text, "%s", e.message);
    }
}

// ---- tokens as text ------------------------------------------------------------------------------------------------

// All tokens of a text one by one: pieces are whole characters, and together the text.
static void check_stream(const GxTokenizer *t, const char *text, int64_t n, const char *expected)
{
    int32_t ids[200];
    char shown[400] = "";
    int64_t tokens, bytes;
    const char *piece;
    GxError e = GX_ZERO;
    GxTextStream s = gx_text_stream(t, GX_SPECIAL_AS_TEXT, 0);
    gx_tokenizer_encode(t, text, n, GX_SPECIAL_AS_TEXT, ids, &tokens, &e);
    for (int64_t i = 1; i <= tokens + 1; i++) {
        CHECK(gx_text_stream_next(&s, ids, gx_min(i, tokens), i > tokens, &piece, &bytes, &e) == GX_OK, "%s",
              e.message);
        for (const char *p = piece; *p; p += gx_max(1, gx_utf8_bytes(p)))
            CHECK((unsigned char)*p < 0x80 || gx_utf8_bytes(p), "\"%s\" is not whole", piece);
        strcat(shown, piece);
    }
    CHECK(!strcmp(shown, expected), "\"%s\", expected \"%s\"", shown, expected);
    gx_text_stream_close(&s);
}

TEST(text_comes_in_whole_characters)
{
    const GxTokenizer bytes = gx_tokenizer_bytes();
    static const char text[] = "a \xC3\xA9t\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80.";
    check_stream(&bytes, text, (int64_t)strlen(text), text);
    check_stream(&bytes, "a\xC3", 2, "a\xEF\xBF\xBD");             // cut at the end
    check_stream(&bytes, "\xE2\x82\x41z", 4, "\xEF\xBF\xBD\x41z"); // no character
    check_stream(&bytes, "a\0z", 3, "a\xEF\xBF\xBDz");
    check_stream(&bytes, "\xFF\x80x", 3, "\xEF\xBF\xBD\xEF\xBF\xBDx"); // bytes that begin none
    static const char *const files[] = {"byte_level", "byte_fallback"};
    for (int i = 0; i < 2; i++) {
        char path[TEST_PATH + 60], whole[400];
        int32_t ids[200];
        int64_t n, m;
        GxTokenizer t;
        GxError e = GX_ZERO;
        snprintf(path, sizeof path, "%s/data/ref/bpe/%s.json", repository, files[i]);
        if (!CHECK(gx_tokenizer_open(&t, path, &e) == GX_OK, "%s", e.message)) continue;
        gx_tokenizer_encode(&t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TEXT, ids, &n, &e);
        gx_tokenizer_decode(&t, ids, n, GX_SPECIAL_AS_TEXT, whole, &m, &e);
        whole[m] = 0;
        check_stream(&t, text, (int64_t)strlen(text), whole);
        gx_tokenizer_close(&t);
    }
}

// ---- generation_config.json ----------------------------------------------------------------------------------------

static GxStatus read_generation(GxGenerationConfig *c, const char *generation, const char *config, GxError *e)
{
    GxError ignored = GX_ZERO;
    shell("rm -rf generation && mkdir generation");
    if (generation)
        gx_file_write("generation/generation_config.json", generation, (int64_t)strlen(generation), &ignored);
    if (config) gx_file_write("generation/config.json", config, (int64_t)strlen(config), &ignored);
    return gx_generation_config_read(c, "generation", 0, &gx_silent, e);
}

TEST(generation_config_is_read_key_by_key)
{
    GxGenerationConfig c;
    GxError e = GX_ZERO;
    read_generation(&c, NULL, NULL, &e);
    CHECK(e.code == GX_OK && !c.has_file && c.top_k == 50 && c.temperature == 1 && c.top_p == 1 && c.n_stop == 0,
          "nothing: %s", e.message);
    read_generation(&c, NULL, "{\"eos_token_id\": [7, 9]}", &e);
    CHECK(e.code == GX_OK && c.n_stop == 2 && c.stop[0] == 7 && c.stop[1] == 9, "of config.json: %s", e.message);
    read_generation(&c,
                    "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": null, "
                    "\"repetition_penalty\": 1.1, \"eos_token_id\": 3, \"num_beams\": 4, \"typical_p\": 1.0, "
                    "\"num_return_sequences\": 2, \"length_penalty\": 0.5, \"no_repeat_ngram_size\": 3, "
                    "\"early_stopping\": \"never\", \"min_new_tokens\": 6, "
                    "\"max_new_tokens\": 77, \"transformers_version\": \"5\"}",
                    "{\"eos_token_id\": 9}", &e);
    CHECK(e.code == GX_OK && c.samples && c.temperature == 0.6 && c.top_k == 20 && c.top_p == 0.95 && c.min_p == 0 &&
              c.repetition_penalty == 1.1 && c.n_stop == 1 && c.stop[0] == 3 && c.max_new_tokens == 77,
          "%s", e.message);
    CHECK(c.num_beams == 4 && c.num_return_sequences == 2 && c.length_penalty == 0.5 && c.no_repeat_ngram_size == 3 &&
              c.early_stopping == GX_EARLY_STOPPING_NEVER && c.min_new_tokens == 6,
          "of a search");
    read_generation(&c, "{\"early_stopping\": \"soon\"}", NULL, &e);
    CHECK(e.code == GX_ERR_FORMAT && strstr(e.message, "early_stopping is"), "%s", e.message);
    memset(&e, 0, sizeof e);
    read_generation(&c, "{\"temperature\": \"hot\"}", NULL, &e);
    CHECK(e.code == GX_ERR_FORMAT && strstr(e.message, "temperature is \"hot\""), "%s", e.message);
    memset(&e, 0, sizeof e);
    read_generation(&c, "{\"eos_token_id\": [1, \"x\"]}", NULL, &e);
    CHECK(e.code == GX_ERR_FORMAT && strstr(e.message, "eos_token_id is"), "%s", e.message);
    memset(&e, 0, sizeof e);
    read_generation(&c, "[1]", NULL, &e);
    CHECK(e.code == GX_ERR_FORMAT && strstr(e.message, "expected an object"), "%s", e.message);
}

// ---- options that are given several times --------------------------------------------------------------------------

TEST(texts_as_options_add_up_on_the_command_line_and_are_a_list_in_json)
{
    typedef struct {
        char text[GX_FIELD_NAMES_TEXT];
    } Options;
    static Options o;
    static const GxField table[] = {{"text", GX_FIELD_TEXTS, offsetof(Options, text), NULL, "of any length", NULL}};
    static GxConfig c;
    GxError e = GX_ZERO;
    char *argv[] = {"program", "--text", "one, two", "--text=", "--text", "three"},
         *file[] = {"program", "--config", "texts.json"};
    static const char *const expected[] = {"one, two", "", "three"};
    gx_config_open(&c);
    gx_config_add(&c, "texts", GX_FIELDS(table), &o, &e);
    CHECK(o.text[0] == 0, "a default");
    gx_config_read_args(&c, 6, argv, &e);
    const char *at = NULL, *text;
    int64_t n, i = 0;
    while ((text = gx_field_next_text(o.text, &at, &n)) != NULL && i < 3)
        CHECK(n == (int64_t)strlen(expected[i]) && !strncmp(text, expected[i], (size_t)n), "text %ld is %s", (long)i,
              text),
            i++;
    CHECK(i == 3 && !text && e.code == GX_OK, "%ld texts; %s", (long)i, e.message);
    GxJson *json = gx_config_to_json(&c, &e), *list = gx_json_get(json, "text");
    CHECK(gx_json_size(list) == 3 && !strcmp(gx_json_string(gx_json_at(list, 2)), "three"), "in JSON: %ld",
          (long)gx_json_size(list));
    gx_json_write(json, "texts.json", &e);
    gx_json_free(json);
    memset(&o, 0, sizeof o);
    gx_config_open(&c);
    gx_config_add(&c, "texts", GX_FIELDS(table), &o, &e);
    gx_config_read_args(&c, 3, file, &e);
    CHECK(!strcmp(o.text, "\x1Fone, two\x1F\x1Fthree") && e.code == GX_OK, "from JSON: %s; %s", o.text, e.message);
    char *marked[] = {"program", "--text",
                      "a\x1F"
                      "b"};
    gx_config_read_args(&c, 3, marked, &e);
    CHECK(e.code == GX_ERR_ARGUMENT && strstr(e.message, "--text is"), "%s", e.message);
}

// ---- the program ---------------------------------------------------------------------------------------------------

// The tiny LLaMA of test_generate, whose greedy tokens are far from ties, with a tokenizer of a letter for each token.
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!~"; // and ⏎, ~~
enum { LETTERS = sizeof letters - 1, MODEL_V = 61 };

static void make_model(const char *to)
{
    char json[6000];
    size_t n = 0;
    GxError e = GX_ZERO;
    shell("rm -rf %s && cp -r %s/data/ref/generate_llama %s && rm %s/ref.safetensors", to, repository, to, to);
    n += (size_t)snprintf(
        json, sizeof json,
        "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 59, \"content\": \"<|im_start|>\", "
        "\"special\": true, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false}, {\"id\": 60, \"content\": \"<|im_end|>\", \"special\": true, "
        "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}], "
        "\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
        "\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", \"merges\": [[\"~\", \"~\"]], "
        "\"unk_token\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {\"~~\": 57, "
        "\"\\n\": 58");
    for (int i = 0; i < LETTERS - 1; i++)
        n += (size_t)snprintf(json + n, sizeof json - n, ", \"%c\": %d", letters[i], i);
    snprintf(json + n, sizeof json - n, ", \"~\": 56}}}");
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", to);
    CHECK(gx_file_write(path, json, (int64_t)strlen(json), &e) == GX_OK, "%s", e.message);
}

// What the reference wrote, as text; and its prompts.
typedef struct {
    char prompt[3][60], text[3][60];
    int32_t ids[3][24];
} Expected;

static Expected read_expected(void)
{
    Expected x;
    char path[TEST_PATH + 60];
    GxSafetensors f;
    GxError e = GX_ZERO;
    int32_t lengths[3] = {0}, prompts[60] = {0};
    memset(&x, 0, sizeof x);
    snprintf(path, sizeof path, "%s/data/ref/generate_llama/ref.safetensors", repository);
    if (!CHECK(gx_safetensors_open(&f, path, &e) == GX_OK, "%s", e.message)) return x;
    gx_safetensors_read_raw(&f, gx_safetensors_find(&f, "lengths"), 0, 3, lengths, &e);
    const GxSafetensorsEntry *p = gx_safetensors_find(&f, "prompts");
    gx_safetensors_read_raw(&f, p, 0, p->elements, prompts, &e);
    gx_safetensors_read_raw(&f, gx_safetensors_find(&f, "greedy"), 0, 72, x.ids, &e);
    gx_safetensors_close(&f);
    GxTokenizer t;
    if (!CHECK(gx_tokenizer_open(&t, "model", &e) == GX_OK, "%s", e.message)) return x;
    int64_t bytes;
    for (int b = 0, at = 0; b < 3; at += lengths[b], b++) {
        gx_tokenizer_decode(&t, prompts + at, lengths[b], GX_SPECIAL_AS_TOKENS, x.prompt[b], &bytes, &e);
        gx_tokenizer_decode(&t, x.ids[b], 24, GX_SPECIAL_AS_TEXT, x.text[b], &bytes, &e);
    }
    gx_tokenizer_close(&t);
    return x;
}

static int has_program(void)
{
    char path[TEST_PATH];
    snprintf(path, sizeof path, "%s", program);
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "generate_llama");
    return access(path, X_OK) == 0;
}

// The program with the flags of a configuration file, so that prompts may have spaces, and more.
static int write_text(const char *more)
{
    char line[3000];
    use_program("generate_llama");
    snprintf(line, sizeof line, "%s --model model --config prompts.json %s", program, more);
    start_line(line, 0);
    const int status = finish();
    use_program("train_llama");
    return status;
}

static void set_prompts_and_stop(const Expected *x, int n, const char *stop)
{
    GxJson *json = gx_json_new_object(), *list = gx_json_new_array();
    GxError e = GX_ZERO;
    for (int b = 0; b < n; b++) gx_json_append(list, gx_json_new_string(x->prompt[b]), &e);
    gx_json_set(json, "prompt", list, &e);
    if (stop) gx_json_set(json, "stop", gx_json_new_string(stop), &e);
    gx_json_write(json, "prompts.json", &e);
    gx_json_free(json);
}

static void set_prompts(const Expected *x, int n) { set_prompts_and_stop(x, n, NULL); }

static void check_lines(const Expected *x, const char *what)
{
    char *copy = strdup(out()), *save = NULL;
    int b = 0;
    for (char *line = strtok_r(copy, "\n", &save); line && b < 3; line = strtok_r(NULL, "\n", &save), b++) {
        GxJson *json = NULL;
        GxError e = GX_ZERO;
        if (!CHECK(gx_json_parse(&json, line, (int64_t)strlen(line), "a line", &e) == GX_OK, "%s", e.message)) continue;
        const GxJson *ids = gx_json_get(json, "ids");
        int wrong = gx_json_size(ids) != 24;
        for (int i = 0; i < 24 && !wrong; i++) wrong = gx_json_int(gx_json_at(ids, i)) != x->ids[b][i];
        CHECK(!wrong && !strcmp(gx_json_string(gx_json_get(json, "text")), x->text[b]) &&
                  !strcmp(gx_json_string(gx_json_get(json, "end")), "length"),
              "%s, text %d: %s", what, b, line);
        gx_json_free(json);
    }
    CHECK(b == 3, "%s: %d lines: %s%s", what, b, out(), err());
    free(copy);
}

TEST(the_program_writes_what_transformers_writes_on_any_number_of_ranks)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    static const char *const ways[] = {"", "--ranks 2 --tp 2", "--ranks 3 --mode tp", "--prefill_rows 2",
                                       "--ranks 2 --tp_num_attention_heads_list 4,2 --tp_vocab_size_list 40,21"};
    set_prompts(&x, 3);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[300];
        snprintf(more, sizeof more, "--max_new_tokens 24 --json %s", ways[i]);
        CHECK_RAN(write_text(more));
        check_lines(&x, ways[i]);
        CHECK(strstr(err(), "tokens/s"), "%s", err());
    }
    set_prompts(&x, 1);
    CHECK_RAN(write_text("--max_new_tokens 24"));
    CHECK(!strncmp(out(), x.text[0], strlen(x.text[0])) && out()[strlen(x.text[0])] == '\n', "%s", out());
    CHECK_RAN(write_text("--max_new_tokens 24 --echo"));
    CHECK(!strncmp(out(), x.prompt[0], strlen(x.prompt[0])) && strstr(out(), x.text[0]), "%s", out());
    CHECK_RAN(write_text("--max_new_tokens 24 --dry_run"));
    CHECK(strstr(out(), "cache of keys and values") && strstr(out(), "memory plan"), "%s", out());
}

// Ranks that are processes: rank 0 alone has the folder; the others are told, and write but that they are there.
TEST(ranks_that_are_processes_need_no_folder_but_rank_0s)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    set_prompts(&x, 3);
    use_program("generate_llama");
    start_ranks(BY_HAND, 2, "--model model --config prompts.json --max_new_tokens 24 --json", "--model nowhere");
    CHECK(finish() == 0, "status %d", child.status);
    for (int b = 0; b < 3; b++) says(0, x.text[b]);
    char *other = read_text("rank1.txt");
    CHECK(!strcmp(other, "rank 1: connected to the other rank; rank 0 prints what happens\n"), "rank 1 says %s", other);
    free(other);
    start_ranks(BY_HAND, 2, "--model model --config prompts.json --json", "--max_new_tokens 3");
    CHECK(finish() > 0, "other options on rank 1 are no error");
    says(1, "--max_new_tokens is 128 on rank 0 and 3 on rank 1");
    use_program("train_llama");
}

// A stop string ends a text behind the token that completes it, also where it begins in the prompt; eos tokens
// likewise.
TEST(texts_end_where_they_are_told_to)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    char expected[80];
    GxError e = GX_ZERO;
    enum { AT = 5 }; // of the second text; the token before is a special one, which is not shown
    const char stop[] = {x.text[1][AT], x.text[1][AT + 1], 0},
               across[] = {x.prompt[1][strlen(x.prompt[1]) - 1], x.text[1][0], 0};
    set_prompts_and_stop(&x, 2, stop);
    CHECK_RAN(write_text("--max_new_tokens 24 --json"));
    snprintf(expected, sizeof expected, "\"text\":\"%.*s\"", (int)(strstr(x.text[1], stop) - x.text[1]) + 2, x.text[1]);
    CHECK(strstr(out(), expected) && strstr(out(), "\"end\":\"stop\""), "%s is not in %s", expected, out());
    CHECK(strstr(out(), x.text[0]) && strstr(out(), "\"end\":\"length\""), "the first text: %s", out());
    set_prompts_and_stop(&x, 2, across);
    CHECK_RAN(write_text("--max_new_tokens 24 --json"));
    snprintf(expected, sizeof expected, "\"text\":\"%c\"", x.text[1][0]);
    CHECK(strstr(out(), expected) && strstr(out(), "\"end\":\"stop\""), "%s is not in %s", expected, out());
    set_prompts_and_stop(&x, 2, "<|im_end|>"); // a special token, which is not shown
    CHECK_RAN(write_text("--max_new_tokens 24 --json"));
    CHECK(strstr(out(), "\"end\":\"stop\""), "%s", out());
    set_prompts(&x, 2);
    char config[100];
    snprintf(config, sizeof config, "{\"eos_token_id\": [60, %d]}", x.ids[1][5]);
    gx_file_write("model/generation_config.json", config, (int64_t)strlen(config), &e);
    CHECK_RAN(write_text("--max_new_tokens 24 --json"));
    CHECK(strstr(out(), "\"end\":\"eos\""), "%s", out());
    gx_file_write("model/generation_config.json", "{\"max_new_tokens\": 5}", 21, &e);
    CHECK_RAN(write_text("--json"));
    CHECK(strstr(out(), "\"new_tokens\":5"), "%s", out());
}

TEST(drawing_is_as_the_folder_says_and_as_flags_say_before_that)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    static const char config[] = "{\"do_sample\": true, \"temperature\": 1.5, \"top_k\": 0, \"num_beams\": 3}";
    GxError e = GX_ZERO;
    set_prompts(&x, 1);
    gx_file_write("model/generation_config.json", config, (int64_t)strlen(config), &e);
    CHECK_RAN(write_text("--max_new_tokens 24"));
    CHECK(!strstr(out(), x.text[0]) && strstr(err(), "asks for a search (num_beams") &&
              strstr(err(), "which is ignored: tokens are drawn"),
          "it is greedy: %s%s", out(), err());
    char *drawn = strdup(out());
    CHECK_RAN(write_text("--max_new_tokens 24 --ranks 2"));
    CHECK(!strcmp(drawn, out()), "two ranks draw others: %s%s", drawn, out());
    CHECK_RAN(write_text("--max_new_tokens 24 --seed 5"));
    CHECK(strcmp(drawn, out()), "the seed changes nothing: %s", drawn);
    CHECK_RAN(write_text("--max_new_tokens 24 --top_k 1"));
    CHECK(strstr(out(), x.text[0]), "the likeliest of one: %s", out());
    CHECK_RAN(write_text("--max_new_tokens 24 --temperature 0 --num_beams 1"));
    CHECK(strstr(out(), x.text[0]) && !strstr(err(), "changes nothing"), "temperature 0: %s%s", out(), err());
    CHECK_RAN(write_text("--max_new_tokens 3 --temperature 0 --num_beams 1 --top_k 3 --min_p 0.5 --mode tp"));
    CHECK(strstr(err(), "--top_k changes nothing if --temperature is 0") && strstr(err(), "--min_p changes nothing") &&
              !strstr(err(), "--top_p") && strstr(err(), "mode tp splits the model among ranks, but there is only one"),
          "%s", err());
    gx_file_write("model/generation_config.json", "{\"temperature\": 1.5}", 20, &e);
    CHECK_RAN(write_text("--max_new_tokens 24"));
    CHECK(strstr(out(), x.text[0]), "temperature alone stays greedy: %s", out());
    free(drawn);
}

// A value of each line of --json, as text.
static void value_of_lines(const char *key, char *to, size_t size)
{
    char *copy = strdup(out()), *save = NULL;
    to[0] = 0;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *at = strstr(line, key);
        const size_t n = strlen(to);
        if (at) snprintf(to + n, size - n, "%.*s;", (int)strcspn(at + strlen(key), ",}"), at + strlen(key));
    }
    free(copy);
}

// What beams find is shown in test_generate; here, that the program asks for what its flags and the folder say.
TEST(prompts_are_searched_as_flags_and_the_folder_say)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    GxError e = GX_ZERO;
    char text[400], score[400], again[400];
    double last = 0;
    int n = 0;
    set_prompts(&x, 2);
    CHECK_RAN(write_text("--max_new_tokens 12 --json --num_beams 4 --num_return_sequences 3"));
    value_of_lines("\"text\":", text, sizeof text), value_of_lines("\"score\":", score, sizeof score);
    for (const char *at = score; *at; at += strcspn(at, ";") + 1, n++) {
        CHECK(n % 3 == 0 || atof(at) <= last, "scores: %s", score);
        last = atof(at);
    }
    CHECK(n == 6 && !strstr(err(), "warning"), "%d texts: %s%s", n, out(), err());
    static const char config[] = "{\"num_beams\": 4, \"num_return_sequences\": 3, \"max_new_tokens\": 12}";
    gx_file_write("model/generation_config.json", config, (int64_t)strlen(config), &e);
    CHECK_RAN(write_text("--json --ranks 2"));
    value_of_lines("\"text\":", again, sizeof again);
    CHECK(!strcmp(text, again) && strlen(text) > 30, "the folder's: %s, not %s", again, text);
    CHECK_RAN(write_text("--json --length_penalty -5 --early_stopping true"));
    value_of_lines("\"score\":", again, sizeof again);
    CHECK(strcmp(score, again), "a length penalty changes nothing: %s", again);
    CHECK_RAN(write_text("--num_beams 1 --num_return_sequences 1 --echo"));
    CHECK(strstr(out(), x.prompt[0]) && strncmp(out(), x.text[0], 12), "%s", out());
    static const char drawing[] = "{\"do_sample\": true, \"max_new_tokens\": 12}";
    gx_file_write("model/generation_config.json", drawing, (int64_t)strlen(drawing), &e);
    CHECK_RAN(write_text("--json --num_beams 4 --num_return_sequences 3"));
    value_of_lines("\"text\":", again, sizeof again);
    CHECK(!strcmp(text, again) && strstr(err(), "do_sample of generation_config.json is ignored: --num_beams"),
          "%s, not %s; %s", again, text, err());
    CHECK_RAN(write_text("--json --temperature 0 --no_repeat_ngram_size 1"));
    CHECK(strstr(out(), "\"new_tokens\":12") && !strstr(out(), "score"), "without beams: %s", out());
    CHECK_RAN(write_text("--max_new_tokens 2 --length_penalty 2 --temperature 0"));
    CHECK(strstr(err(), "--length_penalty changes nothing without beams"), "%s", err());
}

TEST(what_cannot_be_written_is_refused)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    GxError e = GX_ZERO;
    set_prompts(&x, 1);
    static const struct {
        const char *more, *says;
    } list[] = {
        {"--mode sp --ranks 2", "--mode sp splits the sequence"},
        {"--mode galaxy2", "--mode galaxy2 splits the sequence"},
        {"--mode serial --ranks 2", "several copies of the model, which is not supported"},
        {"--ranks 2 --tp 1", "--tp 1 on 2 ranks: here all ranks share one copy"},
        {"--tp 2", "or start 2 ranks (--ranks 2)"},
        {"--prompt_file nowhere.txt", "nowhere.txt"},
        {"--prompt_file long.txt", "but the model has room for 64 (max_position"},
        {"--prompt_file gz.txt", "gz.txt is compressed with gzip, judging by its first bytes; expected text in UTF-8"},
        {"--prompt_file no_utf8.txt", "no_utf8.txt: byte 2 is not UTF-8 text"},
        {"--prompt=", "prompt 1 is empty"},
        {"--stop=", "--stop \"\" would end every text at once"},
        {"--chat", "expected one of --prompt TEXT or --prompt_file FILE, --chat, and --score FILE"},
        {"--system x", "--system is an option of --chat"},
        {"--chat_template auto", "--chat_template is an option of --chat"},
        {"--thinking true", "--thinking is an option of --chat, which is not given; give it, or leave out"},
        {"--context 4096", "--context is an option of --chat"},
        {"--model nowhere", "there is no folder nowhere"},
        {"--max_new_token 3", "did you mean --max_new_tokens?"},
        {"--num_beams 2 --temperature 0.5", "--temperature 0.5 draws tokens, and num_beams searches"},
        {"--num_beams 2 --stop x", "--stop ends a text while it is written"},
        {"--no_repeat_ngram_size 2 --stop x", "or set no_repeat_ngram_size to 0"},
        {"--num_return_sequences 2", "but a prompt has 1 beam; use --num_beams 2 or more"},
        {"--num_beams 200 --prompt a --prompt b", "2 prompts of 200 beams are more than 256 texts at once"},
        {"--min_new_tokens 6 --max_new_tokens 5", "--min_new_tokens is 6, more than the 5 new tokens"},
        {"--device cuda", "build it again with make DEVICE=cuda"}};
    shell("head -c 100 /dev/zero | tr '\\0' a > long.txt; printf 'ab\\377' > no_utf8.txt; printf '\\037\\213\\010ab' > "
          "gz.txt");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!strcmp(list[i].more, "--prompt=")) gx_file_write("prompts.json", "{}", 2, &e);
        else set_prompts(&x, 1);
        const int status = write_text(list[i].more);
        CHECK(status == 1 && strstr(err(), list[i].says) && !out()[0], "%s: status %d, %s%s", list[i].more, status,
              out(), err());
    }
    // weights that are no numbers: of the last ones, with beams and without
    for (int beams = 0; beams < 2; beams++) {
        make_model("model");
        shell("cd model && n=$(stat -c %%s model.safetensors) && printf '\\377\\377\\377\\177' | dd "
              "of=model.safetensors bs=1 "
              "seek=$((n - 4)) conv=notrunc status=none");
        const int failed = write_text(beams ? "--num_beams 2" : "");
        CHECK(failed == 1 && strstr(err(), "model: the model's outputs are not finite, so no text can be written"),
              "status %d, %s%s", failed, out(), err());
    }
    make_model("model");
    shell("rm model/tokenizer.json");
    int status = write_text("");
    CHECK(status == 1 && strstr(err(), "each byte is a token") &&
              strstr(err(), "has 256 tokens, but the model's vocabulary has 61"),
          "%s", err());
    status = write_text("--max_new_tokens 5");
    CHECK(status == 1, "%s", err());
}

TEST(weights_that_do_not_match_are_drawn_where_that_is_asked_for_and_told)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_model("model");
    const Expected x = read_expected();
    set_prompts(&x, 1);
    shell("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' model/config.json");
    CHECK(write_text("") == 1 && strstr(err(), "has no tensor model.layers.2.") &&
              strstr(err(), "--strict false loads what matches, and initializes the rest at random"),
          "%s", err());
    CHECK_RAN(write_text("--strict 0 --max_new_tokens 24"));
    CHECK(strstr(err(), "newly initialized, not in model: model.layers.2.") && !strstr(err(), "not needed"), "%s",
          err());
    char *once = strdup(out());
    CHECK_RAN(write_text("--strict 0 --max_new_tokens 24 --ranks 2"));
    CHECK(!strcmp(once, out()), "on one rank: %s, on two: %s", once, out());
    CHECK_RAN(write_text("--strict 0 --max_new_tokens 24 --seed 5"));
    CHECK(strcmp(once, out()), "another seed draws the same weights");
    free(once);
    shell("sed -i 's/\"num_hidden_layers\": 3/\"num_hidden_layers\": 1/' model/config.json");
    CHECK_RAN(write_text("--strict 0 --max_new_tokens 24"));
    CHECK(strstr(err(), "not needed from model: model.layers.1.") && !strstr(err(), "drawn"), "%s", err());
}

// A model whose positions do not end soon, so that there is something to interrupt.
static void make_long_model(const char *more)
{
    make_model("model");
    shell("sed -i 's/\"max_position_embeddings\": 64/\"max_position_embeddings\": 200000/' model/config.json");
    GxError e = GX_ZERO;
    gx_file_write("model/generation_config.json", more, (int64_t)strlen(more), &e);
}

TEST(a_signal_ends_a_text_cleanly)
{
    static const int signals[] = {SIGINT, SIGHUP};
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    char line[TEST_PATH + 200];
    make_long_model("{}");
    use_program("generate_llama");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s --model model --prompt abc --max_new_tokens 100000", program);
        start_line(line, 0);
        for (double until = now() + LIMIT; now() < until && child.bytes[0] < 20;) allocate_outputs(50);
        kill(child.pid, signals[i]);
        const int status = finish();
        CHECK(status == 128 + signals[i] && child.bytes[0] >= 20 && strstr(err(), "tokens/s"), "status %d: %s", status,
              err());
    }
    use_program("train_llama");
}

// As any program that SIGPIPE ends: silently, at once, by 141. Training goes on to its checkpoint first.
TEST(a_reader_that_goes_away_ends_every_program_alike)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    static const struct {
        const char *name, *options, *reader;
    } list[] = {{"generate_llama", "--help", "true"},
                {"generate_llama", "--model model --prompt abc --max_new_tokens 150000", "head -c 20"},
                {"generate_llama", "--model model --prompt abc --max_new_tokens 150000 --ranks 2", "head -c 20"},
                {"generate_llama",
                 "--model model --chat --chat_template llama2 --max_new_tokens 100000 --context 150000", "head -c 20"},
                {"train_llama", "--help", "true"},
                {"train_llama", "--version", "true"},
                {"tokenize", "--help", "true"},
                {"tokenize", "--tokenizer model --file lines.txt", "head -n 1"},
                {"convert_gguf", "--help", "true"},
                {"convert_gguf", "--model model_one --output_file one.gguf", "true"}};
    char line[TEST_PATH + 600];
    GxError e = GX_ZERO;
    make_long_model("{}");
    shell("rm -rf model_one && cp -r %s/data/ref/llama_one model_one", repository);
    shell("yes 'abc def' | head -n 40000 > lines.txt");
    for (int ignored = 0; ignored < 2; ignored++) // by whoever started it
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
            use_program(list[i].name);
            snprintf(line, sizeof line,
                     "rm -f one.gguf; %s { printf 'abc\\n'; sleep 0.2; } | (sleep 0.3; exec %s %s) | %s >/dev/null\n"
                     "exit ${PIPESTATUS[1]}\n",
                     ignored ? "trap '' PIPE;" : "", program, list[i].options, list[i].reader);
            use_program("train_llama");
            gx_file_write("pipe.sh", line, (int64_t)strlen(line), &e);
            start_line("bash pipe.sh", 0);
            const int status = finish();
            CHECK(status == 141 && !strstr(err(), "rror"), "%s %s | %s: status %d: %s", list[i].name, list[i].options,
                  list[i].reader, status, err());
        }
}

TEST(options_that_take_a_text_say_so)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    char line[TEST_PATH + 100];
    static const char *const list[][2] = {{"generate_llama", "--system TEXT"}, {"generate_llama", "--prompt TEXT"},
                                          {"generate_llama", "--stop TEXT"},   {"generate_llama", "--model PATH"},
                                          {"tokenize", "--text TEXT"},         {"tokenize", "--file PATH"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        use_program(list[i][0]);
        snprintf(line, sizeof line, "%s --help all", program);
        use_program("train_llama");
        start_line(line, 0);
        CHECK(finish() == 0 && strstr(out(), list[i][1]), "%s: no %s", list[i][0], list[i][1]);
    }
}

TEST(the_help_of_every_tool_says_how_it_is_called_and_fits_80_columns)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    static const char *const list[] = {"tokenize", "convert_gguf", "merge_adapter"};
    char line[TEST_PATH + 100], usage[80];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        use_program(list[i]);
        snprintf(line, sizeof line, "%s --help", program);
        use_program("train_llama");
        start_line(line, 0);
        snprintf(usage, sizeof usage, "usage: %s --", list[i]);
        CHECK(finish() == 0 && strstr(out(), usage) == out(), "%s: %s", list[i], out());
        for (const char *l = out(), *end; *l; l = *end ? end + 1 : end) {
            end = l + strcspn(l, "\n");
            const int columns = gx_text_columns(l, end - l);
            CHECK(columns <= 80, "%s: %d columns: %.*s", list[i], columns, (int)(end - l), l);
        }
    }
}

static void talk(const char *input, const char *more)
{
    char script[TEST_PATH + 500];
    GxError e = GX_ZERO;
    use_program("generate_llama");
    snprintf(script, sizeof script, "printf '%s' | exec %s --model model --chat %s\n", input, program, more);
    use_program("train_llama");
    gx_file_write("talk.sh", script, (int64_t)strlen(script), &e);
    start_line("bash talk.sh", 0);
}

TEST(lines_are_answered_until_the_input_ends)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    static const char jinja[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if "
        "add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const char refuses[] = "{% for m in messages %}{% if m.content == 'abc' %}{{ raise_exception('no abc here') "
                                  "}}{% endif %}{{ m.content }}<|im_end|>{% endfor %}";
    static const char drops[] = "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}<|im_end|>{% endif "
                                "%}{% endfor %}";
    static const char own_system[] =
        "{{ '<|im_start|>system\\nbe<|im_end|>\\n' }}{% for m in messages %}<|im_start|>{{ "
        "m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
        "%}<|im_start|>assistant\n{% endif %}";
    GxError e = GX_ZERO;
    make_long_model("{}");
    talk("abc\\n\\ndef\\n", "--max_new_tokens 12");
    CHECK(finish() == 1 && strstr(err(), "there is no chat template"), "%s", err());
    gx_file_write("model/chat_template.jinja", jinja, (int64_t)strlen(jinja), &e);
    for (int ranks = 1; ranks <= 2; ranks++) {
        char more[100];
        snprintf(more, sizeof more, "--max_new_tokens 12 --ranks %d --system be", ranks);
        talk("abc\\n\\ndef\\n", more);
        CHECK_RAN(finish());
        int lines = 0;
        for (const char *p = out(); *p; p++) lines += *p == '\n';
        CHECK(lines >= 2 && strstr(err(), "format model/chat_template.jinja"), "%d ranks: %s%s", ranks, out(), err());
    }
    char *once = strdup(out());
    // the template is executed, whose system turn is this one
    gx_file_write("model/chat_template.jinja", own_system, (int64_t)strlen(own_system), &e);
    talk("abc\\ndef\\n", "--max_new_tokens 12 --thinking false --chat_date 2024-02-29");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()), "%s, told it: %s", out(), once);
    CHECK(strstr(err(), "--thinking changes nothing") && strstr(err(), "--chat_date changes nothing"), "%s", err());
    gx_file_write("model/chat_template.jinja", jinja, (int64_t)strlen(jinja), &e);
    talk("abc\\n\\ndef\\n", "--max_new_tokens 12 --system be --prefill_rows 3");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()), "one rank: %s, two: %s", out(), once);
    // lines of white space are passed over, as empty ones are
    talk("abc\\n  \\n\\t \\r\\ndef\\n", "--max_new_tokens 12 --system be");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()), "%s, without blank lines: %s", out(), once);
    // a line that cannot be answered is passed over
    talk("abc\\n\\377\\ndef\\n", "--max_new_tokens 12 --system be");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()) && strstr(err(), "the input is not UTF-8 text"), "%s, without it: %s%s", out(), once,
          err());
    free(once);
    char lines[500] = "";
    for (int i = 0; i < 60; i++) strcat(lines, "q7 Zx, ");
    strcat(lines, "\\nabc\\n");
    talk(lines, "--max_new_tokens 12 --context 200");
    CHECK_RAN(finish());
    CHECK(strchr(out(), '\n') && strstr(err(), "say less at once"), "%s%s", out(), err());
    talk("abc\\ndef\\nghi\\n", "--max_new_tokens 12 --context 60");
    CHECK_RAN(finish());
    CHECK(strstr(err(), "oldest turns are forgotten"), "%s", err());
    // what it does not know is named with its line
    gx_file_write("model/chat_template.jinja", "a\n{{ messages | frobnicate }}", 29, &e);
    talk("abc\\n", "");
    CHECK(finish() == 1 && strstr(err(), "model/chat_template.jinja:2") && strstr(err(), "frobnicate"), "%s", err());
    // what it refuses is told, and the next line is read
    gx_file_write("model/chat_template.jinja", refuses, (int64_t)strlen(refuses), &e);
    talk("abc\\ndef\\n", "--max_new_tokens 12");
    CHECK_RAN(finish());
    CHECK(strstr(err(), "no abc here") && strstr(err(), "does not write") == NULL, "%s%s", out(), err());
    // what it leaves out is told once
    gx_file_write("model/chat_template.jinja", drops, (int64_t)strlen(drops), &e);
    talk("abc\\ndef\\n", "--max_new_tokens 4 --system be");
    CHECK_RAN(finish());
    const char *told = strstr(err(), "does not write all that the system says");
    CHECK(told && !strstr(told + 1, "does not write"), "%s%s", out(), err());
}

// In the format in which the adapter was trained: its chat_template.jinja, or where an older one has none, the name
// that training_args.json has; the base has another, or none.
TEST(an_adapter_talks_in_the_format_that_it_was_taught)
{
    static const char record[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"abc\"}, {\"role\": "
                                 "\"assistant\", \"content\": \"def\"}]}\n",
                      other[] = "{% for m in messages %}{{ m.content }}.{% endfor %}";
    char line[TEST_PATH + 300];
    GxError e = GX_ZERO;
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_long_model("{}");
    gx_file_write("chats.jsonl", record, (int64_t)strlen(record), &e);
    snprintf(line, sizeof line,
             "%s --model model --tuning lora --lora_dim 2 --train_data chats.jsonl --chat_template chatml --seq_len 64 "
             "--validation_fraction 0 --max_steps 1 --micro_batch_size 1 --sample_tokens 0 --threads 1 --output_dir "
             "taught --overwrite_output_dir true",
             program);
    start_line(line, 0);
    CHECK_RAN(finish());
    talk("abc\\n", "--max_new_tokens 4 --chat_template chatml --adapter taught/checkpoint-1");
    CHECK_RAN(finish());
    char *once = strdup(out());
    gx_file_write("model/chat_template.jinja", other, (int64_t)strlen(other), &e);
    talk("abc\\n", "--max_new_tokens 4 --adapter taught/checkpoint-1");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()) && strstr(err(), "format taught/checkpoint-1/chat_template.jinja"), "%s%s", out(),
          err());
    shell("rm taught/checkpoint-1/chat_template.jinja taught/checkpoint-1/manifest.json");
    talk("abc\\n", "--max_new_tokens 4 --adapter taught/checkpoint-1");
    CHECK_RAN(finish());
    CHECK(!strcmp(once, out()) && strstr(err(), "format chatml"), "%s%s", out(), err());
    shell("sed -i 's/\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\"/"
          "                                 \"base_model.model.score.weight\"/' "
          "taught/checkpoint-1/adapter_model.safetensors");
    talk("abc\\n", "--max_new_tokens 4 --adapter taught/checkpoint-1");
    CHECK(finish() != 0 && strstr(err(), "score.weight, so it is an adapter for classification"), "%s%s", out(), err());
    free(once);
}

TEST(an_interrupt_ends_an_answer_and_not_the_conversation)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_long_model("{}");
    talk("abc\\ndef\\n", "--chat_template llama2 --max_new_tokens 90000 --context 100000");
    CHECK(wait_to_say("Ctrl-C ends"), "%s", err());
    size_t before = 0;
    for (int answer = 0; answer < 2; answer++) {
        for (double until = now() + LIMIT; now() < until && child.bytes[0] < before + 30;) allocate_outputs(50);
        before = child.bytes[0] + 200; // surely of the next answer
        kill(-child.pid, SIGINT);
        for (double until = now() + 1; answer == 0 && now() < until;) allocate_outputs(50);
    }
    const int status = finish();
    CHECK(status == 0, "status %d: %s", status, err());
}

// ---- texts to score ------------------------------------------------------------------------------------------------

// The tokenizer names its special tokens; has_frame: <|im_start|> stands before a text.
static void make_scored_model(const char *name, int has_frame)
{
    static const char config[] = "{\"bos_token\": \"<|im_start|>\", \"eos_token\": \"<|im_end|>\"}";
    GxError e = GX_ZERO;
    make_model("scored");
    shell("cp %s/data/ref/generate_%s/config.json %s/data/ref/generate_%s/model.safetensors scored", repository, name,
          repository, name);
    CHECK(gx_file_write("scored/tokenizer_config.json", config, sizeof config - 1, &e) == GX_OK, "%s", e.message);
    if (has_frame)
        shell("sed -i 's/\"post_processor\": null/\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
              "[{\"SpecialToken\": {\"id\": \"<|im_start|>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
              "\"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
              "\"B\", \"type_id\": 1}}], \"special_tokens\": {\"<|im_start|>\": {\"id\": \"<|im_start|>\", \"ids\": "
              "[59], \"tokens\": [\"<|im_start|>\"]}}}/' scored/tokenizer.json");
}

static int run_score(const char *more)
{
    char line[TEST_PATH + 1000];
    use_program("generate_llama");
    snprintf(line, sizeof line, "%s %.900s", program, more);
    start_line(line, 0);
    const int status = finish();
    use_program("train_llama");
    return status;
}

typedef struct { // lines of data/ref/likelihood.jsonl, of one model, frame and max_length
    GxJson *line[200];
    int n;
} Requests;

static int read_requests(Requests *x, FILE *from, GxJson **next)
{
    static char text[4000];
    GxError e = GX_ZERO;
    FILE *out = fopen("requests.jsonl", "w");
    x->n = 0;
    while (*next || fgets(text, sizeof text, from)) {
        char *request;
        int64_t bytes;
        if (!*next && !CHECK(gx_json_parse(next, text, (int64_t)strlen(text), "a line", &e) == GX_OK, "%s", e.message))
            break;
        const GxJson *first = x->n ? x->line[0] : *next;
        if (strcmp(gx_json_string(gx_json_get(first, "model")), gx_json_string(gx_json_get(*next, "model"))) ||
            gx_json_bool(gx_json_get(first, "frame")) != gx_json_bool(gx_json_get(*next, "frame")) ||
            gx_json_int(gx_json_get(first, "max_length")) != gx_json_int(gx_json_get(*next, "max_length")) ||
            x->n == 200)
            break;
        gx_json_dump(gx_json_get(*next, "request"), 0, &request, &bytes, &e);
        fprintf(out, "%s\n", request);
        free(request);
        x->line[x->n++] = *next, *next = NULL;
    }
    fclose(out);
    return x->n;
}

static double number_of(const GxJson *json, const char *key)
{
    double x = NAN;
    GxError e = GX_ZERO;
    gx_json_get_double(json, key, 1, &x, "a result", &e);
    return x;
}

// A log-probability is the difference of a logit and of the logarithm of a sum of their exponentials. A logit of these
// models, which is below 10, has passed through reductions of some 400 terms together.
static void check_scores(const Requests *x, const char *lines, const char *what)
{
    char *copy = strdup(lines), *save = NULL;
    int i = 0;
    for (char *line = strtok_r(copy, "\n", &save); line && i < x->n; line = strtok_r(NULL, "\n", &save), i++) {
        const GxJson *expected = x->line[i];
        GxJson *found = NULL;
        GxError e = GX_ZERO;
        if (!CHECK(gx_json_parse(&found, line, (int64_t)strlen(line), "a line", &e) == GX_OK, "%s", e.message)) break;
        const int64_t tokens = gx_json_int(gx_json_get(expected, "tokens"));
        const double bound = (double)tokens * 2 * test_bound(400) * 10,
                     off = fabs(number_of(found, "loglikelihood") - number_of(expected, "loglikelihood"));
        CHECK(off <= bound && gx_json_int(gx_json_get(found, "tokens")) == tokens &&
                  gx_json_bool(gx_json_get(found, "is_greedy")) == gx_json_bool(gx_json_get(expected, "is_greedy")),
              "%s, line %d: %s; expected %g within %g, %ld tokens", what, i, line, number_of(expected, "loglikelihood"),
              bound, (long)tokens);
        gx_json_free(found);
    }
    CHECK(i == x->n, "%s: %d of %d lines: %s", what, i, x->n, err());
    free(copy);
}

TEST(completions_and_texts_are_scored_as_transformers_and_the_evaluation_harness_do_it)
{
    static const char *const ways[] = {"", "--ranks 2 --tp 2", "--ranks 3 --tp_vocab_size_list 30,11,20",
                                       "--prefill_rows 1", "--output_file scores.jsonl"};
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    char path[TEST_PATH + 60], more[300];
    Requests x;
    GxJson *next = NULL;
    int groups = 0;
    snprintf(path, sizeof path, "%s/data/ref/likelihood.jsonl", repository);
    FILE *from = fopen(path, "r");
    if (!CHECK(from, "there is no %s", path)) return;
    for (; read_requests(&x, from, &next) > 0; groups++) {
        const char *name = gx_json_string(gx_json_get(x.line[0], "model"));
        const int has_frame = gx_json_bool(gx_json_get(x.line[0], "frame")), is_llama = !strcmp(name, "llama");
        make_scored_model(name, has_frame);
        for (size_t i = 0; i < (is_llama && !has_frame ? sizeof ways / sizeof *ways : 1); i++) {
            snprintf(more, sizeof more, "--model scored --score requests.jsonl --max_length %ld %s",
                     (long)gx_json_int(gx_json_get(x.line[0], "max_length")), ways[i]);
            const int status = run_score(more), to_file = strstr(ways[i], "output_file") != NULL;
            CHECK(status == 0, "%s, %s: %s", name, ways[i], err());
            char *lines = to_file ? read_text("scores.jsonl") : strdup(out());
            CHECK(!to_file || !out()[0], "%s", out());
            check_scores(&x, lines, more);
            free(lines);
        }
        remove("scores.jsonl");
        for (int i = 0; i < x.n; i++) gx_json_free(x.line[i]);
    }
    fclose(from);
    CHECK(groups == 12, "%d groups", groups);
}

static void check_greedy(const char *how, const char *prompt, int expected)
{
    GxError e = GX_ZERO;
    GxJson *said = NULL, *request = gx_json_new_object();
    char more[300], *line = NULL;
    int64_t bytes;
    snprintf(more, sizeof more, "%s --prompt %s --max_new_tokens 6 --json", how, prompt);
    if (expected) CHECK_RAN(run_score(more));
    if (expected &&
        CHECK(gx_json_parse(&said, out(), (int64_t)strlen(out()), "a line", &e) == GX_OK, "%s", e.message)) {
        gx_json_set(request, "prompt", gx_json_new_string(prompt), &e);
        gx_json_set(request, "completion", gx_json_new_string(gx_json_string(gx_json_get(said, "text"))), &e);
        gx_json_dump(request, 0, &line, &bytes, &e);
        gx_file_write("requests.jsonl", line, bytes, &e);
    }
    gx_json_free(said), gx_json_free(request), free(line);
    snprintf(more, sizeof more, "%s --score requests.jsonl", how);
    CHECK_RAN(run_score(more));
    CHECK(strstr(out(), expected ? "\"is_greedy\":true" : "\"is_greedy\":false"), "%s: %s", how, out());
}

// What a model writes greedily is greedy when it is scored, with whatever makes the model another one.
TEST(scores_are_those_of_the_model_that_writes)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_scored_model("llama", 0);
    shell("echo 'abcdefghijklmnopqrstuvwxyz' > letters.txt && for i in 1 2 3 4 5 6; do cat letters.txt letters.txt > "
          "more.txt; mv more.txt letters.txt; done");
    char line[TEST_PATH + 300];
    // until it says the alphabet in the tokens that the tokenizer makes of it: others would be read back differently
    snprintf(line, sizeof line,
             "%s --model scored --tuning lora --learning_rate 0.03 --max_steps 80 --train_data letters.txt "
             "--seq_len 16 --sample_tokens 0 --output_dir scored_lora --overwrite_output_dir true",
             program);
    start_line(line, 0);
    CHECK_RAN(finish());
    check_greedy("--model scored", "abc", 1);
    check_greedy("--adapter scored_lora/checkpoint-80", "abc", 1);
    check_greedy("--model scored", "abc", 0); // of what the adapter says
    check_greedy("--model scored --precision bf16", "abc", 1);
    check_greedy("--model scored --quantize nf4", "abc", 1);
}

static void refuses_to_score(const char *line, const char *more, const char *said)
{
    char flags[300];
    GxError e = GX_ZERO;
    gx_file_write("requests.jsonl", line, (int64_t)strlen(line), &e);
    snprintf(flags, sizeof flags, "--model scored --score requests.jsonl %s", more);
    CHECK(run_score(flags) == 1 && strstr(err(), said) && !out()[0], "%s: %s%s", said, out(), err());
}

TEST(what_cannot_be_scored_is_an_error_with_its_line)
{
    if (!has_program()) SKIP("there is no generate_llama beside %.120s", program);
    make_scored_model("llama", 0);
    static const char good[] = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    refuses_to_score("", "", "requests.jsonl holds no records");
    refuses_to_score("{\"text\": \"a\"}\n{\"text\": 3}\n", "", "requests.jsonl:2: \"text\" is an integer");
    refuses_to_score("{\"prompt\": \"a\"}\n", "", "requests.jsonl:1: \"completion\" is missing");
    refuses_to_score("{\"prompt\": \"a\", \"continuation\": \"b\"}\n", "", ":1: the record has several of them");
    refuses_to_score("{\"text\": \"a\", \"completion\": \"b\"}\n", "", ":1: the record has several of them");
    refuses_to_score("{\"label\": \"a\"}\n", "", "requests.jsonl:1: the record has none of them");
    refuses_to_score("[1]\n", "", "requests.jsonl:1: the line is an array");
    refuses_to_score("{\"text\": \"a\"\n", "", "requests.jsonl:1:");
    refuses_to_score("{\"text\": \"a\"}\n\n{\"text\": \"a\"}", "", "requests.jsonl:2: the line is empty");
    refuses_to_score("{\"prompt\": \"a\", \"completion\": \"\"}\n", "", ":1: the completion has no token of its own");
    refuses_to_score("{\"prompt\": \"a~\", \"completion\": \"~\"}\n", "",
                     "no more tokens than the prompt alone, 2 tokens");
    refuses_to_score("{\"prompt\": \" \", \"completion\": \"b\"}\n", "", ":1: the prompt is only white space");
    refuses_to_score("{\"prompt\": \"a\", \"completion\": \"bcd\"}\n", "--max_length 2",
                     "the model sees only 2 at once");
    refuses_to_score(good, "--max_length 65", "more than the 64 positions");
    refuses_to_score(good, "--output_file requests.jsonl", "already exists");
    refuses_to_score(good, "--prompt x", "and --score FILE; see --help");
    refuses_to_score(good, "--temperature 1", "--temperature changes nothing with --score");
    refuses_to_score(good, "--json", "--json changes nothing with --score");
    refuses_to_score(good, "--system x", "--system changes nothing with --score");
    CHECK(run_score("--model scored --prompt x --max_length 3") == 1 &&
              strstr(err(), "--max_length is an option of --score"),
          "%s", err());
    shell("rm scored/tokenizer_config.json");
    refuses_to_score("{\"text\": \"a\"}\n", "", "neither a bos_token nor an eos_token");
    refuses_to_score("{\"prompt\": \"\", \"completion\": \"b\"}\n", "", ":1: the prompt is empty, and the tokenizer");
    make_scored_model("llama", 0);
    GxError e = GX_ZERO;
    static const char last[] = "{\"prompt\": \"abcdef\", \"completion\": \"gh\"}";
    gx_file_write("requests.jsonl", last, sizeof last - 1, &e);
    CHECK_RAN(run_score("--model scored --score requests.jsonl --max_length 4"));
    CHECK(strstr(err(), "1 prompt is, with its completion, longer than the 4 tokens"), "%s", err());
    CHECK_RAN(run_score("--model scored --score requests.jsonl --dry_run"));
    CHECK(strstr(out(), "1 line to score, 8 tokens") && strstr(out(), "memory plan"), "%s", out());
}

int main(int argc, char **argv)
{
    setenv("COLUMNS", "1000", 1); // no line is wrapped
    return program_main(argc, argv);
}
