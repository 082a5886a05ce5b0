// test_bert_run.cu: BERT and RoBERTa as a program: their config.json, the names of their tensors in files, heads that a
// folder has and has not, and which task is run (--task); what the tasks of a RoBERTa put into its batches.
#define GX_NO_MAIN
#include "train_bert.cu"
#include "test/said.h"
#include <sys/stat.h>
#include <unistd.h>

// ---- a task whose head is an option --------------------------------------------------------------------------------

// Sample i is T tokens drawn by (seed, i). Target 0: every token itself, or a class or numbers of each text; target 1:
// whether its first token is odd.
enum { MOST = 8 };
typedef struct {
    char head[GX_FIELD_TEXT], loss[GX_FIELD_TEXT]; // options
    int64_t labels;
    GxHeadRequest request;
} Stub;
static const char *const label_names[MOST] = {"noun", "verb", "a \"quoted\" one", "ü", "e", "f", "g", "h"};

static const GxField stub_options[] = {
    {"head", GX_FIELD_STRING, offsetof(Stub, head), "masked", "of the model", "masked|pairs|labels|unnamed|vectors"},
    {"loss", GX_FIELD_STRING, offsetof(Stub, loss), "one", "of labels", "one|numbers|several"},
    {"labels", GX_FIELD_INT, offsetof(Stub, labels), "3", "outputs", "1..8"},
};
static const GxField guess_options[] = {
    {"head", GX_FIELD_STRING, offsetof(Stub, head), "labels", "of the model", "labels"},
    {"loss", GX_FIELD_STRING, offsetof(Stub, loss), "one", "of labels", "one|numbers|several"},
    {"labels", GX_FIELD_INT, offsetof(Stub, labels), "2", "outputs", "1..8"},
    {"guesses", GX_FIELD_INT, offsetof(Stub, request), "1", "of this task alone", "1.."},
};

static GxStatus stub_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    Stub *s = (Stub *)self;
    const GxHeadRequest none = GX_ZERO;
    (void)g;
    s->request = none;
    if (!setup->vocab) setup->vocab = 61;
    s->request.kind = GX_HEAD_LABELS;
    if (!strcmp(s->head, "masked") || !strcmp(s->head, "pairs")) s->request.kind = GX_HEAD_MASKED;
    if (!strcmp(s->head, "vectors")) s->request.kind = GX_HEAD_VECTORS;
    s->request.with_pairs = !strcmp(s->head, "pairs");
    s->request.labels = s->labels, s->request.label_name = strcmp(s->head, "unnamed") ? label_names : NULL;
    if (!strcmp(s->loss, "numbers")) s->request.loss = GX_SQUARED_ERROR;
    if (!strcmp(s->loss, "several")) s->request.loss = GX_BINARY_CROSS_ENTROPY;
    return GX_OK;
}

static void stub_close(void *self) { (void)self; }
static const GxHeadRequest *stub_head(const void *self) { return &((const Stub *)self)->request; }
static void stub_describe(const void *self, FILE *out) { fprintf(out, "data: a %s\n", ((const Stub *)self)->head); }

// tokens, their types and positions [T,B]; documents [T,B,2]; labels of target 0 [T,B]; of texts: the rows of their
// first tokens [B], labels [B], values [B,8]
static int64_t stub_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const Stub *s = (const Stub *)self;
    const int64_t rows = b->T * b->B;
    int32_t *at = (int32_t *)block, *host = (int32_t *)host_copy;
    const int text = s->request.kind == GX_HEAD_LABELS ? 0 : 1;
    b->tokens = at;
    b->types = block ? at + rows : NULL;
    b->positions = block ? at + 2 * rows : NULL;
    b->target[0].labels = block ? at + 3 * rows : NULL;
    b->target[0].labels_host = host_copy ? host + 3 * rows : NULL;
    b->target[text].rows = block ? at + 4 * rows : NULL;
    b->target[text].rows_host = host_copy ? host + 4 * rows : NULL;
    b->target[text].n = b->B;
    b->target[text].labels = block ? at + 4 * rows + b->B : NULL;
    b->target[text].labels_host = host_copy ? host + 4 * rows + b->B : NULL;
    b->target[text].values = block ? (const float *)(at + 4 * rows + 2 * b->B) : NULL;
    return (4 * rows + (2 + MOST) * b->B) * (int64_t)sizeof(int32_t);
}

static GxStatus stub_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    const Stub *s = (const Stub *)self;
    const int64_t rows = b->T * b->B;
    int32_t *tokens = (int32_t *)host_copy, *firsts = tokens + 4 * rows;
    float *values = (float *)(firsts + 2 * b->B);
    (void)g, (void)err;
    for (int64_t i = 0; i < b->B; i++) {
        for (int64_t t = 0; t < b->T; t++) {
            const GxRandom4 r = gx_philox(seed, (uint64_t)(b->sample + i), (uint32_t)t, 98);
            const int64_t row = t * b->B + i;
            tokens[row] = tokens[3 * rows + row] = 1 + (int32_t)(r.w[0] % 20);
            tokens[rows + row] = 0, tokens[2 * rows + row] = (int32_t)t;
        }
        firsts[i] = (int32_t)i;
        firsts[b->B + i] = tokens[i] % (s->request.kind == GX_HEAD_LABELS ? (int32_t)s->labels : 2);
        for (int64_t k = 0; k < s->labels; k++) values[i * s->labels + k] = (float)((tokens[i] >> k) & 1);
    }
    return GX_OK;
}

static int64_t stub_held_out(const void *self)
{
    (void)self;
    return 0;
}

static GxStatus stub_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples, GxError *err)
{
    (void)samples;
    return stub_fill(g, self, b, host_copy, 1 << 20, err);
}

static void stub_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const Stub *s = (const Stub *)self;
    if (s->request.kind == GX_HEAD_MASKED) count[0] += b->T * b->B, count[1] += s->request.with_pairs * b->B;
    else count[0] += s->request.loss == GX_CROSS_ENTROPY ? b->B : b->B * s->labels;
}

static int stub_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    (void)g, (void)self;
    metric[0].name = "loss", metric[0].format = "loss %.4f", metric[0].value = gx_losses_mean(losses, 0);
    return 1;
}

static GxTask stub, guess;
static GxFamily family; // BERT with these two
static const GxTask *const list[] = {&stub, &guess, NULL};
static const GxTask *program_task = &stub;

__attribute__((constructor)) static void make_tasks(void)
{
    stub.name = "stub", stub.options.size = sizeof(Stub), stub.loss.n = 2, stub.loss.counted = "tokens";
    stub.options.fields = stub_options, stub.options.n_fields = sizeof stub_options / sizeof *stub_options;
    stub.data.open = stub_open, stub.data.close = stub_close, stub.data.head = stub_head,
    stub.data.describe = stub_describe;
    stub.batch.layout = stub_layout, stub.batch.fill = stub_fill, stub.batch.held_out = stub_held_out;
    stub.batch.fill_held_out = stub_fill_held_out, stub.batch.counts = stub_counts, stub.metrics.compute = stub_metrics;
    guess = stub;
    guess.name = "guess", guess.loss.n = 1;
    guess.options.fields = guess_options, guess.options.n_fields = sizeof guess_options / sizeof *guess_options;
    family = gx_bert;
    family.tasks = list;
}

// ---- a program -----------------------------------------------------------------------------------------------------

static const GxFamily *program_family = &family;
static int train_rank(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    g->reporter = &reporter;
    g->log.write = hear_log;
    return gx_train(g, program_family, program_task, NULL, argc, argv);
}

static char folder[] = "/tmp/galaxy_test_bert_run_XXXXXX";

static const char *path_of(const char *name) // good for the next 8 calls
{
    static char paths[8][GX_PATH];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, GX_PATH, "%s/%s", folder, name);
    return path;
}

#define TINY "--hidden_size 12 --intermediate_size 21 --num_hidden_layers 2 --num_attention_heads 3 --vocab_size 61 "

// Exit status of a run in folder/<name>. A word that begins with @ lies in the folder.
static int run_line(const char *name, const char *flags)
{
    char line[4000], *argv[80] = {(char *)"train_bert"}, *own[80];
    int argc = 1, owned = 0;
    memset(&said, 0, sizeof said);
    snprintf(line, sizeof line, "--output_dir @%s %s", name, flags);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word[0] == '@' ? (own[owned++] = strdup(path_of(word + 1))) : word;
    const int status = gx_launch(train_rank, argc, argv);
    while (owned) free(own[--owned]);
    return status;
}

// One step that changes nothing.
static int run(const char *name, const char *more)
{
    char line[4000];
    snprintf(line, sizeof line, "--seq_len 8 --micro_batch_size 2 --max_steps 1 --threads 1 --learning_rate 0 %s",
             more);
    return run_line(name, line);
}

static char *read_text(const char *path)
{
    char *text = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    return gx_file_read(path, 1 << 20, &text, &bytes, &err) == GX_OK ? text : (char *)calloc(1, 1);
}

static void copy_file(const char *from, const char *to)
{
    char *bytes = NULL;
    int64_t n = 0;
    GxError err = GX_ZERO;
    CHECK(gx_file_read(from, 1 << 24, &bytes, &n, &err) == GX_OK && gx_file_write(to, bytes, n, &err) == GX_OK, "%s",
          err.message);
    free(bytes);
}

// ---- folders of models ---------------------------------------------------------------------------------------------

#define PRETRAIN "data/ref/bert_pretrain"

// folder/<name>: the configuration of `from` with other words in the place of some, and a file of weights (NULL: its
// own).
static void make_model(const char *name, const char *from, const char *weights, const char *words, const char *others)
{
    char path[GX_PATH], *text, changed[4000] = "";
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%s/config.json", from);
    text = read_text(path);
    const char *at = words ? strstr(text, words) : NULL;
    if (words && CHECK(at, "no %s in %s", words, path))
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, others, at + strlen(words));
    else snprintf(changed, sizeof changed, "%s", text);
    free(text);
    mkdir(path_of(name), 0777);
    snprintf(path, sizeof path, "%s/config.json", path_of(name));
    CHECK(gx_file_write(path, changed, (int64_t)strlen(changed), &err) == GX_OK, "%s", err.message);
    char source[GX_PATH];
    snprintf(source, sizeof source, "%s/model.safetensors", from);
    snprintf(path, sizeof path, "%s/model.safetensors", path_of(name));
    copy_file(weights ? weights : source, path);
}

// The weights of folder/<name> again: without the tensors of one pattern, and one of them once more by another name.
static void change_weights(const char *name, const char *without, const char *one, const char *again)
{
    enum { TENSORS = 100 };
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxSafetensorsEntry entry[TENSORS];
    const GxSafetensorsEntry *from[TENSORS];
    char path[GX_PATH];
    GxError err = GX_ZERO;
    int n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", path_of(name));
    if (!CHECK(gx_safetensors_open(&s, path, &err) == GX_OK, "%s", err.message)) return;
    for (int i = 0; i < s.n && n < TENSORS - 1; i++) {
        if (one && !strcmp(s.entry[i].name, one)) {
            from[n] = &s.entry[i], entry[n] = s.entry[i];
            snprintf(entry[n++].name, sizeof entry[0].name, "%s", again);
        }
        if (without && gx_name_matches(s.entry[i].name, without)) continue;
        from[n] = &s.entry[i], entry[n] = s.entry[i], n++;
    }
    CHECK(gx_safetensors_create(&w, path, entry, n, NULL, 0, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < n; i++) {
        float *values = (float *)malloc((size_t)entry[i].elements * 4);
        gx_safetensors_read(&s, from[i], 0, entry[i].elements, values, &err);
        gx_safetensors_write_floats(&w, entry[i].name, 0, values, entry[i].elements, &err);
        free(values);
    }
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message);
    gx_safetensors_close(&s);
}

// How many tensors of folder a are in b with the same shape and bits, and how many are not there. Names: a's patterns.
static int same_tensors(const char *a, const char *b, const char *names, int *other)
{
    GxSafetensors x, y;
    GxError err = GX_ZERO;
    int same = 0;
    *other = 0;
    if (!CHECK(gx_safetensors_open(&x, a, &err) == GX_OK, "%s", err.message)) return -1;
    if (!CHECK(gx_safetensors_open(&y, b, &err) == GX_OK, "%s", err.message)) return -1;
    for (int i = 0; i < x.n; i++) {
        const GxSafetensorsEntry *e = &x.entry[i], *f = gx_safetensors_find(&y, e->name);
        char whole[GX_SAFETENSORS_NAME + 8];
        snprintf(whole, sizeof whole, "bert.%s", e->name);
        if (!f) f = gx_safetensors_find(&y, whole); // of a BertModel
        if (!gx_name_matches(e->name, names)) continue;
        char *p = (char *)calloc(1, (size_t)e->bytes), *q = (char *)calloc(1, (size_t)e->bytes);
        const int is_same = f && f->bytes == e->bytes && f->ndim == e->ndim &&
                            !memcmp(f->shape, e->shape, sizeof e->shape[0] * (size_t)e->ndim) &&
                            gx_safetensors_read_raw(&x, e, 0, e->elements, p, &err) == GX_OK &&
                            gx_safetensors_read_raw(&y, f, 0, f->elements, q, &err) == GX_OK &&
                            !memcmp(p, q, (size_t)e->bytes);
        same += is_same, *other += !is_same;
        free(p), free(q);
    }
    gx_safetensors_close(&x), gx_safetensors_close(&y);
    return same;
}

static int count_tensors(const char *in)
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, in, &err) == GX_OK, "%s", err.message)) return -1;
    const int n = s.n;
    gx_safetensors_close(&s);
    return n;
}

// folder/<name>'s checkpoint has exactly these tensors of `of`, to the bit.
static void check_same(const char *name, const char *of, const char *names)
{
    char saved[GX_PATH];
    int other, n;
    snprintf(saved, sizeof saved, "%s/checkpoint-1", path_of(name));
    n = same_tensors(of, saved, names, &other);
    CHECK(n > 0 && other == 0, "%s: of %s %d are the same, %d are not", name, of, n, other);
}

static void unwrap(char *text) // lines, and what they are indented by, become spaces
{
    char *to = text;
    for (const char *c = text; *c; c++)
        if (!strchr(" \n", *c)) *to++ = *c;
        else if (to > text && to[-1] != ' ') *to++ = ' ';
    *to = 0;
}

static void check_says(const char *what, const char *text, const char *const *words)
{
    for (; *words; words++) CHECK(strstr(text, *words), "%s: no \"%s\" in: %s", what, *words, text);
}

// ---- config.json ---------------------------------------------------------------------------------------------------

// Of a file with this text, whose name ends up in path.
static GxStatus read_config_json(GxBertConfig *c, const char *text, char path[GX_PATH], GxError *err)
{
    snprintf(path, GX_PATH, "%s", path_of("config.json"));
    GX_TRY(gx_file_write(path, text, (int64_t)strlen(text), err));
    return gx_bert_config_read(c, path, &gx_silent, err);
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    const GxBertConfig all[] = {
        {97, 48, 80, 3, 6, 77, 4, 5, "gelu_new", 0.25, 0.5, 0.75, 1, 0.5, 0, "bert"}, // none of them the default
        {97, 48, 80, 3, 6, 77, 4, -1, "gelu", 0, 0, -1, 1e-12, 0.02, 1, "bert"},
        {97, 48, 80, 3, 6, 77, 1, 5, "gelu", 0, 0, 0.5, 1e-5, 0.02, 1, "roberta"},
        {97, 48, 80, 3, 6, 77, 1, 1, "gelu", 0, 0, -1, 1e-5, 0.02, 1, "xlm-roberta"},
        {97, 48, 80, 3, 6, 77, 2, -1, "gelu_new", 0.25, 0.5, 0.75, 1e-12, 0.5, 0, "distilbert"}};
    for (int i = 0; i < 5; i++) {
        GxBertConfig back = GX_ZERO;
        GxError err = GX_ZERO;
        const char *path = path_of("config.json");
        CHECK(gx_bert_config_write(&all[i], NULL, path, &err) == GX_OK &&
                  gx_bert_config_read(&back, path, &gx_silent, &err) == GX_OK,
              "%s", err.message);
        for (int f = 0; f < gx_bert.n_fields; f++)
            CHECK(gx_field_same(&gx_bert.fields[f], &all[i], &back), "%s is not what it was", gx_bert.fields[f].name);
        char *text = read_text(path);
        static const char *const lines[5][12] = {
            {"\"architectures\": [\"BertForMaskedLM\"]", "\"model_type\": \"bert\"", "\"torch_dtype\": \"float32\"",
             "\"layer_norm_eps\": 1.0", "\"classifier_dropout\": 0.75", "\"tie_word_embeddings\": false", NULL},
            {"\"classifier_dropout\": null", "\"pad_token_id\": null", "\"hidden_dropout_prob\": 0.0",
             "\"layer_norm_eps\": 1e-12", NULL},
            {"\"architectures\": [\"RobertaForMaskedLM\"]", "\"model_type\": \"roberta\"", "\"pad_token_id\": 5", NULL},
            {"\"architectures\": [\"XLMRobertaForMaskedLM\"]", "\"model_type\": \"xlm-roberta\"", NULL},
            {"\"architectures\": [\"DistilBertForMaskedLM\"]", "\"model_type\": \"distilbert\"", "\"dim\": 48",
             "\"hidden_dim\": 80", "\"n_layers\": 3", "\"n_heads\": 6", "\"activation\": \"gelu_new\"",
             "\"dropout\": 0.25", "\"attention_dropout\": 0.5", "\"seq_classif_dropout\": 0.75",
             "\"pad_token_id\": null", NULL}};
        check_says("config.json", text, lines[i]);
        CHECK(!strstr(text, "id2label") && !strstr(text, "problem_type"), "labels of a model without: %s", text);
        free(text);
    }
}

TEST(what_a_config_json_leaves_out_is_what_transformers_takes_for_it)
{
    // as BertConfig, RobertaConfig, XLMRobertaConfig and DistilBertConfig of transformers 4.57 and 5.23 do
    const GxBertConfig of[] = {
        {30522, 768, 3072, 12, 12, 512, 2, 0, "gelu", 0.1, 0.1, -1, 1e-12, 0.02, 1, "bert"},
        {50265, 768, 3072, 12, 12, 512, 2, 1, "gelu", 0.1, 0.1, -1, 1e-12, 0.02, 1, "roberta"},
        {30522, 768, 3072, 12, 12, 512, 2, 1, "gelu", 0.1, 0.1, -1, 1e-12, 0.02, 1, "xlm-roberta"},
        {30522, 768, 3072, 6, 12, 512, 2, 0, "gelu", 0.1, 0.1, 0.2, 1e-12, 0.02, 1, "distilbert"}};
    static const char *const texts[] = {
        "{\"model_type\": \"bert\"}",
        "{\"model_type\": \"bert\", \"architectures\": null, \"classifier_dropout\": null, \"pruned_heads\": {}, "
        "\"is_decoder\": false, \"position_embedding_type\": \"absolute\", \"chunk_size_feed_forward\": 7, "
        "\"use_cache\": true, \"gradient_checkpointing\": false, \"transformers_version\": \"4.6.0.dev0\"}",
        "{\"model_type\": \"roberta\"}", "{\"model_type\": \"xlm-roberta\", \"bos_token_id\": 0, \"eos_token_id\": 2}",
        "{\"model_type\": \"distilbert\", \"sinusoidal_pos_embds\": true, \"tie_weights_\": true, \"qa_dropout\": "
        "0.1}"};
    for (int t = 0; t < 5; t++) {
        const GxBertConfig expected = of[t < 2 ? 0 : t - 1];
        GxBertConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char path[GX_PATH];
        if (!CHECK(read_config_json(&c, texts[t], path, &err) == GX_OK, "%s", err.message)) continue;
        for (int i = 0; i < gx_bert.n_fields; i++)
            CHECK(gx_field_same(&gx_bert.fields[i], &c, &expected), "%s: another default", gx_bert.fields[i].name);
    }
}

TEST(a_config_json_that_asks_for_something_else_or_in_another_type_is_refused_by_file_and_key)
{
    static const struct {
        const char *more, *says; // says: behind the file's name
    } bad[] = {
        {"\"model_type\": 7", "model_type is 7; expected one of \"bert\", \"roberta\", \"xlm-roberta\""},
        {"\"model_type\": \"deberta\"", "model_type is \"deberta\"; expected one of \"bert\""},
        {"\"model_type\": \"roberta\", \"pad_token_id\": null",
         "a roberta needs a pad_token_id, with whose number its positions begin, but it is -1 (none)"},
        {"\"model_type\": \"xlm-roberta\", \"pad_token_id\": 5, \"max_position_embeddings\": 6",
         "max_position_embeddings is 6, but the positions of a xlm-roberta begin with pad_token_id + 1, which is 6"},
        {"\"model_type\": \"roberta\", \"architectures\": [\"BertForMaskedLM\"]",
         "architectures is [\"BertForMaskedLM\"]; expected RobertaForMaskedLM, RobertaForSequenceClassification, "},
        {"\"model_type\": \"llama\"", "model_type is \"llama\"; here a model of type \"bert\", \"roberta\", "
                                      "\"xlm-roberta\", \"distilbert\" is expected (train_llama"},
        {"\"model_type\": \"distilbert\", \"activation\": \"relu\"",
         "activation is \"relu\"; expected one of gelu|gelu_new"},
        {"\"model_type\": \"distilbert\", \"dim\": 13", "is not a multiple of"},
        {"\"model_type\": \"distilbert\", \"architectures\": [\"DistilBertForQuestionAnswering\"]",
         "expected DistilBertForMaskedLM, DistilBertForSequenceClassification, DistilBertForTokenClassification, "},
        {"\"hidden_size\": 13", "hidden_size (13) is not a multiple of num_attention_heads"},
        {"\"is_decoder\": true", "is_decoder is true; only false is supported"},
        {"\"add_cross_attention\": true", "add_cross_attention is true; only false is supported"},
        {"\"position_embedding_type\": \"relative_key\"",
         "position_embedding_type is \"relative_key\"; only \"absolute\" is supported"},
        {"\"pruned_heads\": {\"1\": [0]}", "pruned_heads is {\"1\":[0]}; only {} is supported"},
        {"\"quantization_config\": {\"bits\": 4}", "has the quant_method \"\"; only that of bitsandbytes is supported"},
        {"\"quantization_config\": {\"load_in_4bit\": true}",
         "has the bnb_4bit_quant_type \"fp4\"; only nf4 is supported"},
        {"\"hidden_act\": \"relu\"", "hidden_act is \"relu\"; expected one of gelu|gelu_new"},
        {"\"hidden_act\": null", "hidden_act is null; expected one of gelu"},
        {"\"hidden_dropout_prob\": 1", "hidden_dropout_prob is 1; it must be at least 0 and below 1"},
        {"\"attention_probs_dropout_prob\": -0.1", "attention_probs_dropout_prob is -0.1; expected a number from 0"},
        {"\"classifier_dropout\": -1", "classifier_dropout is -1; expected a number from 0 to 1"},
        {"\"classifier_dropout\": \"0\"", "classifier_dropout is \"0\"; expected a number"},
        {"\"pad_token_id\": -1", "pad_token_id is -1; expected an integer, at least 0"},
        {"\"pad_token_id\": 30522",
         "pad_token_id is 30522; it must be -1 (none) or an id of the vocabulary, which ends at 30521"},
        {"\"vocab_size\": 0", "vocab_size is 0; it must be from 1"},
        {"\"vocab_size\": null", "vocab_size is null; expected an integer"},
        {"\"layer_norm_eps\": 0", "layer_norm_eps is 0; expected a number"},
        {"\"tie_word_embeddings\": 1", "tie_word_embeddings is 1; expected true or false"},
        {"\"architectures\": [\"BertForQuestionAnswering\"]",
         "architectures is [\"BertForQuestionAnswering\"]; expected BertForMaskedLM, "
         "BertForSequenceClassification, BertForTokenClassification, "},
        {"\"architectures\": [\"BertLMHeadModel\"]", "architectures is [\"BertLMHeadModel\"]; expected"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int is_type = !strncmp(bad[i].more, "\"model_type", 11);
        GxBertConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[500], path[GX_PATH];
        snprintf(text, sizeof text, "{%s%s}", is_type ? "" : "\"model_type\": \"bert\", ", bad[i].more);
        const GxStatus status = read_config_json(&c, text, path, &err);
        CHECK(status != GX_OK && !strncmp(err.message, path, strlen(path)) && strstr(err.message, bad[i].says),
              "%s: %s", bad[i].more, status == GX_OK ? "it was taken" : err.message);
    }
    GxBertConfig c = GX_ZERO;
    GxError err = GX_ZERO;
    char path[GX_PATH];
    CHECK(read_config_json(&c, "[1]", path, &err) == GX_ERR_FORMAT && strstr(err.message, "expected an object"), "%s",
          err.message);
    gx_error_clear(&err);
    CHECK(read_config_json(&c, "{}", path, &err) == GX_ERR_UNSUPPORTED && strstr(err.message, "model_type is missing"),
          "%s", err.message);
}

TEST(a_config_json_names_the_head_its_labels_and_their_loss)
{
    static const struct {
        const char *flags;
        const char *lines[6];
    } heads[] = {
        {"--head masked", {"\"architectures\": [\"BertForMaskedLM\"]", NULL}},
        {"--head pairs", {"\"architectures\": [\"BertForPreTraining\"]", NULL}},
        {"--head labels --labels 3",
         {"[\"BertForSequenceClassification\"]",
          "\"0\": \"noun\",\n    \"1\": \"verb\",\n    \"2\": \"a \\\"quoted\\\" one\"", "\"verb\": 1",
          "\"problem_type\": \"single_label_classification\"", NULL}},
        {"--head labels --labels 1 --loss numbers", {"\"0\": \"noun\"\n", "\"problem_type\": \"regression\"", NULL}},
        {"--head labels --labels 5 --loss several", {"\"problem_type\": \"multi_label_classification\"", NULL}},
        {"--head unnamed --labels 2", {"\"0\": \"LABEL_0\"", "\"LABEL_1\": 1", NULL}},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char name[20], flags[300], path[GX_PATH];
        snprintf(name, sizeof name, "head%d", (int)i);
        snprintf(flags, sizeof flags, TINY "%s", heads[i].flags);
        if (!CHECK(run(name, flags) == 0 && !said.log[0], "%s: %s", heads[i].flags, said.log)) continue;
        snprintf(path, sizeof path, "%s/checkpoint-1/config.json", path_of(name));
        char *text = read_text(path);
        check_says(heads[i].flags, text, heads[i].lines);
        free(text);
    }
    GxModelLabels m;
    GxError err = GX_ZERO;
    CHECK(gx_labels_read(&m, path_of("head2/checkpoint-1"), &err) == GX_OK, "%s", err.message);
    CHECK(m.labels.n == 3 && !strcmp(m.labels.name[2], "a \"quoted\" one") && m.is_classifier && m.is_said &&
              !strcmp(m.problem_type, "single_label_classification"),
          "%d labels, %s", m.labels.n, m.problem_type);
    gx_model_labels_close(&m);
}

TEST(labels_are_read_in_the_order_of_their_numbers)
{
    static const struct {
        const char *json, *says; // says: the labels, or the error
        int is_classifier;
        const char *problem;
    } cases[] = {
        {"{}", "LABEL_0 LABEL_1", 0, ""},
        {"{\"architectures\": [\"BertForMaskedLM\"], \"id2label\": null, \"problem_type\": null}", "LABEL_0 LABEL_1", 0,
         ""},
        {"{\"architectures\": [\"LlamaForSequenceClassification\"], \"id2label\": {\"1\": \"b\", \"10\": \"k\", \"2\": "
         "\"c\", \"0\": \"a\", \"3\": \"d\", \"4\": \"e\", \"5\": \"f\", \"6\": \"g\", \"7\": \"h\", \"8\": \"i\", "
         "\"9\": \"j\"}, \"problem_type\": \"multi_label_classification\"}",
         "a b c d e f g h i j k", 1, "multi_label_classification"},
        {"{\"id2label\": {\"0\": \"a\", \"2\": \"b\"}}",
         "id2label has the number \"2\"; expected each number from 0 to 1 once", 0, NULL},
        {"{\"id2label\": {\"0\": \"a\", \"00\": \"b\"}}", "the number \"00\"", 0, NULL},
        {"{\"id2label\": {\"x\": \"a\"}}", "the number \"x\"", 0, NULL},
        {"{\"id2label\": {\"0\": 3}}", "label 0 of id2label is an integer; expected a string", 0, NULL},
        {"{\"id2label\": {}}", "id2label has 0 labels; 1 to 1000 are possible", 0, NULL},
        {"{\"id2label\": {\"0\": \"a\", \"1\": \"a\"}}", "", 0, NULL},
        {"{\"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"label2id\": {\"b\": 0, \"a\": 1}}",
         "label2id gives \"b\" the number 0, but id2label gives it 1; make them the same", 0, NULL},
        {"{\"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}, \"label2id\": {\"b\": 1, \"x\": 0}}", "a b c", 0,
         ""},
        {"{\"id2label\": [\"a\"]}", "an array; expected an object", 0, NULL},
        {"{\"problem_type\": \"ranking\"}", "problem_type is \"ranking\"; expected regression, single", 0, NULL},
        {"[]", "holds an array; expected an object", 0, NULL},
    };
    mkdir(path_of("labels"), 0777);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxModelLabels m;
        GxError err = GX_ZERO;
        char names[200] = "";
        gx_file_write(path_of("labels/config.json"), cases[i].json, (int64_t)strlen(cases[i].json), &err);
        const GxStatus status = gx_labels_read(&m, path_of("labels"), &err);
        for (int k = 0; status == GX_OK && k < m.labels.n; k++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", k ? " " : "", m.labels.name[k]);
        if (!cases[i].problem)
            CHECK(status != GX_OK && strstr(err.message, cases[i].says), "%s: %s", cases[i].json, err.message);
        else
            CHECK(status == GX_OK && !strcmp(names, cases[i].says) && m.is_classifier == cases[i].is_classifier &&
                      !strcmp(m.problem_type, cases[i].problem) && m.is_said == (m.labels.n > 2),
                  "%s: %s, \"%s\", %s", cases[i].json, names, m.problem_type, err.message);
        gx_model_labels_close(&m);
    }
}

TEST(labels_of_the_folder_that_it_began_from_are_not_those_of_another_head)
{
    make_model("labelled", "data/ref/bert_cls3", NULL, "{", "{\"num_labels\": 3,");
    CHECK(run("unlabelled", "--head masked --model @labelled") == 0, "%s", said.log);
    char *text = read_text(path_of("unlabelled/checkpoint-1/config.json"));
    CHECK(strstr(text, "BertForMaskedLM") && !strstr(text, "num_labels") && !strstr(text, "id2label") &&
              !strstr(text, "problem_type"),
          "%s", text);
    free(text);
}

// ---- the size of a checkpoint --------------------------------------------------------------------------------------

static int64_t tensor_bytes(const char *name) // of a file, or an empty one where there is none
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    int64_t bytes = 0;
    if (!gx_path_is_file(path_of(name))) return 0;
    if (!CHECK(gx_safetensors_open(&s, path_of(name), &err) == GX_OK, "%s", err.message)) return 0;
    for (int e = 0; e < s.n; e++) bytes += s.entry[e].bytes;
    gx_safetensors_close(&s);
    return bytes;
}

TEST(the_bytes_of_a_checkpoint_are_known_before_it_is_saved)
{
    static const struct {
        const char *dtype, *flags;
        GxDtype type;
        GxOptimizerKind kind;
    } all[] = {{"fp32", "", GX_F32, GX_OPTIMIZER_ADAMW},
               {"bf16", "", GX_BF16, GX_OPTIMIZER_ADAMW},
               {"bf16", "--optimizer sgd --momentum 0", GX_BF16, GX_OPTIMIZER_SGD},
               {"fp32", "--optimizer sgd --momentum 0", GX_F32, GX_OPTIMIZER_SGD}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char flags[300], name[40], weights[100], state[100];
        GxContext g = GX_ZERO;
        GxBertConfig config = GX_ZERO;
        GxModel m;
        GxOptimizer o = GX_ZERO;
        GxHeadRequest head = GX_ZERO;
        GxModelOptions options = GX_ZERO;
        const GxMode mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
        snprintf(name, sizeof name, "sized_%d", (int)i);
        snprintf(flags, sizeof flags, "--head masked --model " PRETRAIN " --save_dtype %s %s", all[i].dtype,
                 all[i].flags);
        CHECK(run(name, flags) == 0, "%s", said.log);
        g.device = gx_device_cpu(), g.world = 1, o.kind = all[i].kind;
        head.kind = GX_HEAD_MASKED, options.head = &head;
        CHECK(gx_bert_config_read(&config, PRETRAIN "/config.json", &gx_silent, &g.error) == GX_OK &&
                  gx_model_open(&g, &m, &gx_bert, &config, &mode, &options) == GX_OK,
              "%s", g.error.message);
        snprintf(weights, sizeof weights, "%s/checkpoint-1/model.safetensors", name);
        snprintf(state, sizeof state, "%s/checkpoint-1/optimizer.safetensors", name);
        const int64_t saved = tensor_bytes(weights) + tensor_bytes(state),
                      known = gx_checkpoint_bytes(&m, &o, all[i].type);
        CHECK(saved == known && saved > 0, "%s %s: %ld bytes are saved, %ld were known", all[i].dtype, all[i].flags,
              (long)saved, (long)known);
        gx_model_close(&m);
    }
}

TEST(a_file_of_weights_is_as_large_as_it_may_be)
{
    CHECK(run("shard_none", "--head masked --model " PRETRAIN) == 0, "%s", said.log);
    const int64_t all = tensor_bytes("shard_none/checkpoint-1/model.safetensors");
    for (int less = 0; less < 2; less++) {
        char flags[200], name[40];
        snprintf(name, sizeof name, "shard_%d", less);
        snprintf(flags, sizeof flags, "--head masked --model " PRETRAIN " --max_shard_size %ld", (long)all - less);
        CHECK(run(name, flags) == 0, "%s", said.log);
        snprintf(flags, sizeof flags, "%s/checkpoint-1/model.safetensors%s", name, less ? ".index.json" : "");
        CHECK(gx_path_is_file(path_of(flags)), "%ld bytes of at most %ld: no %s", (long)all, (long)all - less, flags);
    }
}

// ---- names ---------------------------------------------------------------------------------------------------------

TEST(what_is_loaded_is_saved_to_the_bit)
{
    static const struct {
        const char *from, *flags;
    } all[] = {{"bert_pretrain", "--head pairs"},
               {"bert_mlm", "--head masked"},
               {"bert_mlm_dropout", "--head masked"},
               {"bert_cls1", "--head labels --labels 1 --loss numbers"},
               {"bert_cls3", "--head labels --labels 3"},
               {"bert_cls3_dropout", "--head labels --labels 3 --ranks 2 --mode tp --tp 2"},
               {"bert_cls5", "--head labels --labels 5 --loss several"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char flags[300], name[40], from[100];
        snprintf(from, sizeof from, "data/ref/%s", all[i].from);
        snprintf(name, sizeof name, "again_%s", all[i].from);
        snprintf(flags, sizeof flags, "--model %s %s", from, all[i].flags);
        if (!CHECK(run(name, flags) == 0 && !said.log[0], "%s: %s", from, said.log)) continue;
        CHECK(!strstr(said.out, "newly initialized, not in") && !strstr(said.out, "not needed"), "%s", said.out);
        check_same(name, from, "*");
        char saved[GX_PATH];
        snprintf(saved, sizeof saved, "%s/checkpoint-1", path_of(name));
        CHECK(count_tensors(saved) == count_tensors(from), "%s: %d tensors are saved", from, count_tensors(saved));
    }
}

TEST(files_with_older_names_or_with_tied_tensors_twice_are_the_same_model)
{
    static const char *const variants[] = {"no_prefix", "gamma_beta", "duplicates"};
    for (int i = 0; i < 3; i++) {
        char weights[100], flags[200], name[40];
        snprintf(weights, sizeof weights, "data/ref/bert_variants/%s.safetensors", variants[i]);
        snprintf(name, sizeof name, "v_%s", variants[i]);
        snprintf(flags, sizeof flags, "--head pairs --model @%s", variants[i]);
        make_model(variants[i], PRETRAIN, weights, NULL, NULL);
        if (!CHECK(run(name, flags) == 0 && !said.log[0], "%s: %s", variants[i], said.log)) continue;
        check_same(name, PRETRAIN, "*");
    }
    // of two names that are tied, the file has the other one alone
    make_model("decoder_alone", PRETRAIN, NULL, NULL, NULL);
    change_weights("decoder_alone", "cls.predictions.bias", "cls.predictions.bias", "cls.predictions.decoder.bias");
    CHECK(run("v_alone", "--head pairs --model @decoder_alone") == 0, "%s", said.log);
    check_same("v_alone", PRETRAIN, "*");
}

// transformers 5 adds cls.predictions.decoder.bias to the logits of an untied head, and has cls.predictions.bias as
// well, which it does not read. Both are saved, or it would draw one anew.
TEST(an_untied_head_has_the_decoders_bias_and_is_saved_with_both_names)
{
    static const struct {
        const char *weights, *flags;
    } all[] = {{"data/ref/bert_variants/decoder_bias.safetensors", ""}, // the two differ
               {"data/ref/bert_variants/decoder_bias.safetensors", " --ranks 2 --mode tp"},
               {NULL, ""}}; // the other name alone
    for (int i = 0; i < 3; i++) {
        char flags[200], from[40], name[40], saved[GX_PATH];
        GxSafetensors s;
        GxError err = GX_ZERO;
        float one[61], other[61];
        int others;
        snprintf(from, sizeof from, "untied_%d", i), snprintf(name, sizeof name, "v_untied_%d", i);
        make_model(from, PRETRAIN, all[i].weights, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        change_weights(from, NULL, "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
        snprintf(flags, sizeof flags, "--head pairs --model @%s%s", from, all[i].flags);
        if (!CHECK(run(name, flags) == 0 && !said.log[0], "%s: %s", name, said.log)) continue;
        snprintf(saved, sizeof saved, "%s/checkpoint-1", path_of(name));
        same_tensors(path_of(from), saved, "*", &others);
        CHECK(others == (i < 2) &&
                  same_tensors(path_of(from), saved, "cls.predictions.decoder.*", &others) == 2 - i / 2,
              "%s: %d are not the same", name, others);
        if (!CHECK(gx_safetensors_open(&s, saved, &err) == GX_OK, "%s", err.message)) continue;
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, "cls.predictions.bias"),
                                 *f = gx_safetensors_find(&s, "cls.predictions.decoder.bias");
        if (CHECK(e && f, "%s: one name alone", name)) {
            gx_safetensors_read(&s, e, 0, 61, one, &err), gx_safetensors_read(&s, f, 0, 61, other, &err);
            CHECK(!memcmp(one, other, sizeof one) && one[0] != 0, "%s: two values", name);
        }
        gx_safetensors_close(&s);
    }
}

TEST(files_that_contradict_themselves_or_the_model_are_refused_by_name)
{
    static const struct {
        const char *variant, *without, *one, *again, *flags; // of PRETRAIN
        const char *says[4];
    } bad[] = {
        {"decoder_bias",
         NULL,
         NULL,
         NULL,
         "--head pairs",
         {"cls.predictions.decoder.bias and cls.predictions.bias are two names of one tensor", "differ", NULL}},
        {"decoder_weight",
         NULL,
         NULL,
         NULL,
         "--head masked",
         {"config.json ties cls.predictions.decoder.weight", NULL}},
        {NULL,
         NULL,
         "bert.embeddings.LayerNorm.weight",
         "embeddings.LayerNorm.gamma",
         "--head pairs",
         {"bert.embeddings.LayerNorm.weight and embeddings.LayerNorm.gamma", "two names of one tensor", NULL}},
        {NULL,
         "bert.encoder.layer.1.output.dense.bias",
         NULL,
         NULL,
         "--head pairs",
         {"has no tensor bert.encoder.layer.1.output.dense.bias", NULL}},
        {NULL,
         NULL,
         "bert.embeddings.LayerNorm.weight",
         "bert.embeddings.other.weight",
         "--head pairs",
         {"holds 1 tensor that this model does not have: bert.embeddings.other.weight", NULL}},
        {NULL,
         NULL,
         "cls.predictions.bias",
         "cls.predictions.other",
         "--head pairs",
         {"1 tensor that this model does not have: cls.predictions.other", NULL}},
        {NULL,
         NULL,
         "cls.predictions.bias",
         "cls.other.bias",
         "--head labels",
         {"1 tensor that this model does not have: cls.other.bias", NULL}},
        {NULL,
         "cls.seq_relationship.bias",
         NULL,
         NULL,
         "--head pairs",
         {"only part of a head: cls.seq_relationship.weight, but not cls.seq_relationship.bias", NULL}},
        {NULL,
         "cls.predictions.transform.*",
         NULL,
         NULL,
         "--head masked",
         {"only part of a head: cls.predictions.bias, but not cls.predictions.transform", NULL}},
        {NULL,
         "bert.pooler.dense.weight",
         NULL,
         NULL,
         "--head labels",
         {"only part of a head: bert.pooler.dense.bias, but not bert.pooler.dense.weight", NULL}},
        {NULL,
         "bert.pooler.*,cls.*",
         NULL,
         NULL,
         "--head pairs", // config.json says that it is one
         {"has no tensor", "cls.predictions.bias", "its config.json says that it is a BertForPreTraining", NULL}},
        {NULL,
         "cls.predictions.*",
         NULL,
         NULL,
         "--head masked --evaluate",
         {"has no cls.predictions", "shows nothing before it is trained", NULL}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char weights[100], flags[200];
        snprintf(weights, sizeof weights, "data/ref/bert_variants/%s.safetensors", bad[i].variant);
        make_model("bad", PRETRAIN, bad[i].variant ? weights : NULL, NULL, NULL);
        if (bad[i].without || bad[i].one) change_weights("bad", bad[i].without, bad[i].one, bad[i].again);
        for (int ranks = 1; ranks <= 2; ranks++) { // all ranks end
            snprintf(flags, sizeof flags, "%s --model @bad --ranks %d --timeout 20", bad[i].flags, ranks);
            CHECK(run("bad_out", flags) == 1, "%s: it was taken", flags);
            check_says(flags, said.log, bad[i].says);
        }
    }
}

// ---- heads ---------------------------------------------------------------------------------------------------------

TEST(a_head_that_the_folder_does_not_have_is_drawn_and_said)
{
    static const char *const
        labels[] = {"newly initialized, not in data/ref/bert_pretrain: classifier.weight, classifier.bias not needed",
                    "not needed from data/ref/bert_pretrain: cls.predictions.bias, ", NULL},
        *const pairs[] = {"newly initialized, not in", "bert.pooler.dense.weight, bert.pooler.dense.bias",
                          "cls.seq_relationship.weight", NULL};
    char again[200];
    CHECK(run("labels", "--head labels --model " PRETRAIN) == 0 && !said.log[0], "%s", said.log);
    unwrap(said.out);
    check_says("labels", said.out, labels);
    check_same("labels", PRETRAIN, "bert.*");
    CHECK(run("drawn", TINY "--head labels --intermediate_size 7") == 0, "%s", said.log);
    snprintf(again, sizeof again, "%s/checkpoint-1", path_of("drawn"));
    check_same("labels", again, "classifier.*"); // as in a model that begins: of the seed, and of no other tensor
    CHECK(run("labels2", "--ranks 2 --mode sp --head labels --model " PRETRAIN) == 0, "%s", said.log);
    snprintf(again, sizeof again, "%s/checkpoint-1", path_of("labels"));
    check_same("labels2", again, "*");
    CHECK(run("other", "--seed 5 --head labels --model " PRETRAIN) == 0, "%s", said.log);
    int other, same;
    same = same_tensors(again, path_of("other/checkpoint-1"), "classifier.weight", &other);
    CHECK(same == 0 && other == 1, "another seed draws the same");
    CHECK(run("pairs", "--head pairs --model data/ref/bert_mlm") == 0, "%s", said.log);
    unwrap(said.out);
    check_says("pairs", said.out, pairs);
    check_same("pairs", "data/ref/bert_mlm", "*");
    CHECK(run("bare", "--head masked --model data/ref/bert_embed") == 0 && strstr(said.out, "cls.predictions.bias"),
          "%s %s", said.log, said.out);
    check_same("bare", "data/ref/bert_embed", "*");
    CHECK(run("wide", "--head labels --labels 4 --model data/ref/bert_cls3") == 1 &&
              strstr(said.log, "classifier.weight has the shape [3,18], but this model's has [4,18]; --strict false"),
          "%s", said.log);
}

// ---- what does not match (--strict false) --------------------------------------------------------------------------

// Of layer 1 its output and of a head a part are missing, one tensor is of no model, and the MLP has another width.
static void make_other_model(const char *name)
{
    make_model(name, PRETRAIN, NULL, "\"intermediate_size\": 21", "\"intermediate_size\": 20");
    change_weights(name, "bert.encoder.layer.1.output.*,cls.seq_relationship.bias", "bert.pooler.dense.bias",
                   "bert.other.bias");
}

#define MISSING   "bert.encoder.layer.1.output.*,cls.seq_relationship.bias"
#define MISSHAPEN "bert.encoder.layer.*.intermediate.dense.*,bert.encoder.layer.0.output.dense.weight"

TEST(without_strict_what_matches_is_taken_and_all_else_is_drawn_as_in_a_new_model_and_told_by_name)
{
    static const char *const
        modes[] = {"tp", "sp", "galaxy", "galaxy2"},
        *const strict[] = {"only part of a head: cls.seq_relationship.weight, but not cls.seq_relationship.bias",
                           "--strict false loads what matches, and initializes the rest at random", NULL},
        *const told[] = {"bert.encoder.layer.1.output.dense.weight, cls.seq_relationship.bias newly initialized, of",
                         "newly initialized, of another shape in",
                         "bert.encoder.layer.1.intermediate.dense.weight [20,12], which is [21,12] there",
                         "bert.encoder.layer.0.output.dense.weight [12,20], which is [12,21] there",
                         "/loose: bert.other.bias",
                         NULL};
    char begun[GX_PATH], saved[GX_PATH], flags[200], others[2000] = "";
    make_other_model("loose");
    CHECK(run("x", "--head pairs --model @loose") == 1, "%s", said.out);
    check_says("strict", said.log, strict);
    if (!CHECK(run("loosely", "--head pairs --model @loose --strict 0") == 0 && !said.log[0], "%s", said.log)) return;
    unwrap(said.out);
    check_says("told", said.out, told);
    // the file's, to the bit
    GxSafetensors s;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&s, path_of("loose"), &err) == GX_OK, "%s", err.message);
    for (int e = 0; e < s.n; e++) {
        const char *name = s.entry[e].name;
        if (!gx_name_matches(name, MISSHAPEN) && strcmp(name, "bert.other.bias"))
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s", others[0] ? "," : "", name);
    }
    gx_safetensors_close(&s);
    check_same("loosely", path_of("loose"), others);
    // the others, as a model that begins has them
    CHECK(run("fresh", TINY "--intermediate_size 20 --head pairs --max_position_embeddings 13") == 0, "%s", said.log);
    snprintf(begun, sizeof begun, "%s/checkpoint-1", path_of("fresh"));
    check_same("loosely", begun, MISSING);
    check_same("loosely", begun, MISSHAPEN);
    snprintf(saved, sizeof saved, "%s/checkpoint-1", path_of("loosely"));
    for (int i = 0; i < 4; i++) {
        snprintf(flags, sizeof flags, "--head pairs --model @loose --strict 0 --ranks 2 --mode %s", modes[i]);
        CHECK(run(modes[i], flags) == 0, "%s: %s", flags, said.log);
        check_same(modes[i], saved, "*");
    }
    CHECK(run("shown", "--head pairs --model @loose --strict 0 --evaluate") == 0, "%s", said.log);
}

TEST(without_strict_a_long_list_of_names_is_cut_with_their_number)
{
    make_model("few", PRETRAIN, NULL, NULL, NULL);
    change_weights("few", "bert.encoder.*", NULL, NULL);
    CHECK(run("few_out", "--head pairs --model @few --strict false") == 0, "%s", said.log);
    unwrap(said.out);
    const char *new_ones = strstr(said.out, "newly initialized, not in"),
               *last = new_ones ? strstr(new_ones, "(32 of them)") : NULL;
    int names = 0;
    for (const char *at = new_ones; last && (at = strstr(at, "bert.encoder.layer.")) && at < last; at++) names++;
    CHECK(last && names == 20, "%d names: %s", names, said.out);
}

TEST(without_strict_a_tied_tensor_is_taken_by_either_name_and_one_of_another_shape_is_passed_over)
{
    make_model("tied", PRETRAIN, NULL, NULL, NULL);
    change_weights("tied", "cls.predictions.bias", "bert.pooler.dense.bias", "cls.predictions.decoder.bias"); // [12]
    CHECK(run("tied_out", "--head pairs --model @tied --strict false") == 0, "%s", said.log);
    unwrap(said.out);
    CHECK(strstr(said.out, "tied: cls.predictions.bias") && strstr(said.out, "tied: cls.predictions.decoder.bias"),
          "%s", said.out);
    make_model("host_copy", PRETRAIN, NULL, NULL, NULL);
    change_weights("host_copy", NULL, "bert.pooler.dense.bias", "cls.predictions.decoder.bias");
    CHECK(run("twin_out", "--head pairs --model @host_copy --strict false") == 0, "%s", said.log);
    check_same("twin_out", PRETRAIN, "*");
    unwrap(said.out);
    CHECK(strstr(said.out, "host_copy: cls.predictions.decoder.bias") && !strstr(said.out, "new, "), "%s", said.out);
}

TEST(without_strict_there_are_errors_still)
{
    static const struct {
        const char *without, *one, *again, *flags, *says;
    } bad[] = {
        {"*", "bert.pooler.dense.bias", "bert.other.bias", "--head pairs --strict 0 --model @bad",
         "has nothing that matches this model by name and shape: it has 1 tensors, the first of them bert.other.bias"},
        {NULL, "bert.pooler.dense.bias", "bert.encoder.layer.0.attention.self.key.lora_A.weight",
         "--head pairs --strict 0 --model @bad",
         "self.key.lora_A.weight, which belongs to a LoRA, and is not supported"},
        {NULL, "bert.embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma", "--head pairs --strict 0 --model @bad",
         "two names of one tensor"},
        {NULL, NULL, NULL, "--strict 0", "--strict false is for the weights of --model, which is not given"},
        {NULL, NULL, NULL, "--strict 0 --resume auto", "a resumed checkpoint must always match"},
    };
    char flags[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            make_model("bad", PRETRAIN, NULL, NULL, NULL);
            if (bad[i].one) change_weights("bad", bad[i].without, bad[i].one, bad[i].again);
            snprintf(flags, sizeof flags, "%s --ranks %d --timeout 20", bad[i].flags, ranks);
            CHECK(run("bad_out", flags) == 1 && strstr(said.log, bad[i].says), "%s: %s", flags, said.log);
        }
    // what was begun so goes on as a whole
    make_other_model("loose");
    CHECK(run("goes_on", "--head pairs --strict 0 --model @loose") == 0, "%s", said.log);
    CHECK(run("goes_on", "--head pairs --resume auto --max_steps 2") == 0 && !said.log[0], "%s", said.log);
    CHECK(run("goes_on", "--head labels --resume auto --max_steps 3") == 1 &&
              strstr(said.log, "that this model does not have: "),
          "%s", said.log);
}

TEST(a_checkpoint_that_is_resumed_has_all_of_its_model)
{
    CHECK(run("run", TINY "--head masked") == 0, "%s", said.log);
    CHECK(run("run", TINY "--resume auto --max_steps 2 --head labels") == 1 &&
              strstr(said.log, "that this model does not have: ") && strstr(said.log, "cls.predictions.bias"),
          "%s", said.log);
    CHECK(run("run", "--resume auto --max_steps 2") == 0 && !said.log[0], "%s", said.log);
}

TEST(a_folder_of_another_family_is_refused_with_both_names)
{
    CHECK(run("x", "--model data/ref/llama_odd") == 1 &&
              strstr(said.log,
                     "data/ref/llama_odd/config.json: model_type is \"llama\"; here a model of type \"bert\", ") &&
              strstr(said.log, "is expected (train_llama trains this one)"),
          "%s", said.log);
    program_family = &gx_llama;
    const int status = run("x", "--model " PRETRAIN);
    program_family = &family;
    CHECK(status == 1 && strstr(said.log, "model_type is \"bert\"") && strstr(said.log, "(train_bert trains this one)"),
          "%s", said.log);
}

TEST(a_llama_with_labels_is_loaded_saved_and_begun_from_a_language_model)
{
    static const char *const lines[] = {"[\"LlamaForSequenceClassification\"]", "\"0\": \"LABEL_0\"",
                                        "\"pad_token_id\": 0", "\"problem_type\": \"single_label_classification\"",
                                        NULL},
                             *const begun[] = {"newly initialized, not in data/ref/llama_gqa: score.weight ",
                                               "not needed from", "lm_head.weight", NULL};
    GxFamily llama = gx_llama;
    llama.tasks = list;
    program_family = &llama;
    CHECK(run("score", "--head unnamed --model data/ref/llama_score") == 0 && !said.log[0], "%s", said.log);
    check_same("score", "data/ref/llama_score", "*");
    char *text = read_text(path_of("score/checkpoint-1/config.json"));
    check_says("config.json", text, lines);
    free(text);
    CHECK(run("begun", "--head labels --model data/ref/llama_gqa") == 0 && !said.log[0], "%s", said.log);
    unwrap(said.out);
    check_says("begun", said.out, begun);
    check_same("begun", "data/ref/llama_gqa", "model.*");
    program_family = &family;
}

// ---- the task ------------------------------------------------------------------------------------------------------

static void write_config(const char *name, const char *json)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(path_of(name), json, (int64_t)strlen(json), &err) == GX_OK, "%s", err.message);
}

TEST(a_flag_or_a_file_says_which_task_it_is)
{
    write_config("guess.json", "{\"task\": \"guess\", \"labels\": 4}");
    write_config("stub.json", "{\"task\": \"stub\"}");
    static const struct {
        const char *flags, *task;
    } good[] = {{"", "stub"},
                {"--task guess", "guess"},
                {"--task=guess", "guess"},
                {"--task guess --task stub", "stub"},
                {"--config @guess.json", "guess"},
                {"--config @guess.json --task stub", "stub"},
                {"--task guess --config @stub.json", "guess"},
                {"--config @guess.json --config @stub.json", "stub"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char name[20], flags[300], words[60];
        snprintf(name, sizeof name, "task%d", (int)i);
        snprintf(flags, sizeof flags, TINY "%s", good[i].flags);
        if (!CHECK(run(name, flags) == 0 && !said.log[0], "%s: %s", good[i].flags, said.log)) continue;
        snprintf(words, sizeof words, "%s/training_args.json", name);
        char *args = read_text(path_of(words));
        snprintf(words, sizeof words, "\"task\": \"%s\"", good[i].task);
        CHECK(strstr(args, words), "%s: no %s in %s", good[i].flags, words, args);
        CHECK(!strstr(args, "\"guesses\"") == !strcmp(good[i].task, "stub"), "%s: %s", good[i].flags, args);
        free(args);
    }
}

TEST(another_task_than_there_are_is_refused_with_the_list)
{
    write_config("wrong.json", "{\"task\": \"gues\"}");
    write_config("number.json", "{\"task\": 3}");
    static const struct {
        const char *flags, *says;
    } bad[] = {
        {"--task gess", "--task is \"gess\"; did you mean guess? The tasks of train_bert are: stub, guess"},
        {"--task causal_lm", "--task is \"causal_lm\"; the tasks of train_bert are: stub, guess"},
        {"--task", "--task needs a value"},
        {"--task --max_steps 3", "--task needs a value"},
        {"--config @wrong.json", "wrong.json: task is \"gues\"; did you mean guess?"},
        {"--config @number.json", "task is 3; expected one of stub|guess"},
        {"--config @not_there.json", "not_there.json"},
        {"--guesses 3", "there is no option --guesses for this task; it belongs to --task guess: choose that, or leave "
                        "the option out"},
        {"--task guess --head masked", "--head is \"masked\"; expected "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(run("x", bad[i].flags) == 1 && strstr(said.log, bad[i].says), "%s: %s", bad[i].flags, said.log);
}

TEST(help_shows_the_options_of_the_task_and_names_the_others)
{
    CHECK(run("x", "--help all") == 0 && strstr(said.out, "--task TEXT") && strstr(said.out, "stub|guess") &&
              strstr(said.out, "\nstub\n") && !strstr(said.out, "--guesses") && strstr(said.out, "--layer_norm_eps"),
          "%s", said.out);
    CHECK(run("x", "--task guess --help all") == 0 && strstr(said.out, "--guesses") && strstr(said.out, "\nguess\n") &&
              strstr(said.out, "default: stub"),
          "%s", said.out);
}

TEST(a_run_goes_on_as_its_own_task)
{
    CHECK(run("mine", TINY "--task guess") == 0, "%s", said.log);
    CHECK(run("mine", "--resume auto --max_steps 2") == 1 &&
              strstr(said.log, "belongs to task guess, but this command has task stub") &&
              strstr(said.log, "continue it with --task guess"),
          "%s", said.log);
    CHECK(run("mine", "--resume auto --max_steps 2 --task guess") == 0 && !said.log[0], "%s", said.log);
    CHECK(run("from", "--task stub --head masked --model @mine/checkpoint-2") == 0, "%s",
          said.log); // its weights alone
    GxFamily one = gx_bert;
    const GxTask *const alone[] = {&stub, NULL};
    one.tasks = alone;
    program_family = &one;
    const int status = run("mine", "--resume auto --max_steps 3");
    program_family = &family;
    CHECK(status == 1 && strstr(said.log, "belongs to task guess, which train_bert does not have"), "%s", said.log);
}

TEST(a_task_that_is_not_in_the_list_is_the_programs_own)
{
    GxTask own = stub;
    own.name = "own";
    program_task = &own;
    const int status = run("own", TINY), refused = run("x", "--task guess");
    program_task = &stub;
    CHECK(status == 0 && refused == 1 && strstr(said.log, "no option --task"), "%s", said.log);
    char *args = read_text(path_of("own/training_args.json"));
    CHECK(args[0] && !strstr(args, "\"task\""), "%s", args);
    free(args);
    program_task = NULL;
    const int none = run("x", "");
    program_task = &stub;
    CHECK(none == 1 && strstr(said.log, "train_bert has no task"), "%s", said.log);
}

// ---- RoBERTa -------------------------------------------------------------------------------------------------------

// What its tasks put into batches, of which every number is looked at. Tokens of data/ref/bpe/roberta.json: <s> 0,
// <pad> 1, </s> 2, <unk> 3, <mask> 460.
static struct {
    int64_t texts, pads, masks, seconds, labels; // pads: within a text; seconds: texts with </s></s> in them
} found;

static void look_at_text(const GxTextArrays *a, const GxBatch *b, int64_t column, int64_t begin, int64_t end,
                         int is_plain)
{
    int32_t position = 2;
    for (int64_t t = begin; t < end; t++) {
        const int64_t row = t * b->B + column;
        const int32_t id = a->tokens[row], expected = id == 1 ? 1 : position++;
        CHECK(a->positions[row] == expected, "token %d of a text has position %d, not %d", (int)(t - begin),
              a->positions[row], expected);
        CHECK(a->types[row] == 0, "type %d", a->types[row]);
        found.pads += id == 1, found.masks += id == 460;
        found.seconds += is_plain && t + 1 < end && id == 2 && a->tokens[row + b->B] == 2;
    }
    CHECK(a->tokens[begin * b->B + column] == 0 && a->tokens[(end - 1) * b->B + column] == 2, "a text from %d to %d",
          a->tokens[begin * b->B + column], a->tokens[(end - 1) * b->B + column]);
    found.texts++;
}

// is_plain: no token was replaced, and the rows of labels are the texts' first ones.
static void look_at(const GxTextLayout *l, const GxBatch *b, void *host_copy, int is_plain)
{
    GxTextArrays a;
    gx_text_arrays(l, b->T, b->B, host_copy, &a);
    for (int64_t column = 0; column < b->B; column++)
        for (int64_t t = 0, end; t < b->T; t = end) {
            const int64_t row = t * b->B + column;
            end = gx_max(t + 1, a.documents[2 * row + 1]);
            if (a.documents[2 * row + 1]) look_at_text(&a, b, column, t, end, is_plain);
            else CHECK(a.tokens[row] == 1, "padding is %d", a.tokens[row]);
        }
    for (int64_t i = 0; i < b->target[0].n; i++, found.labels++) {
        const int64_t row = a.rows[0][i], t = row / b->B, begin = a.documents[2 * row], end = a.documents[2 * row + 1];
        const int32_t label = a.labels[0][i];
        if (is_plain) CHECK(t == begin, "a label at %d of a text", (int)(t - begin));
        else
            CHECK(t > begin && t < end - 1 && label > 3 && label != 460, "label %d at %d of %d", label,
                  (int)(t - begin), (int)(end - begin));
    }
}

static GxStatus fill_masks(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GX_TRY(gx_masked_lm.batch.fill(g, self, b, host_copy, seed, err));
    look_at(&((GxMaskedLm *)self)->layout, b, host_copy, 0);
    return GX_OK;
}
static GxStatus fill_texts(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GX_TRY(gx_classification.batch.fill(g, self, b, host_copy, seed, err));
    look_at(&((GxClassification *)self)->layout, b, host_copy, 1);
    return GX_OK;
}

static int run_roberta(const char *name, const char *more)
{
    static GxFamily watched;
    static GxTask masks, texts;
    static const GxTask *const tasks[] = {&masks, &texts, &gx_embedding_task, NULL};
    char line[3000];
    masks = gx_masked_lm, texts = gx_classification, watched = gx_bert;
    masks.batch.fill = fill_masks, texts.batch.fill = fill_texts, watched.tasks = tasks;
    memset(&found, 0, sizeof found);
    program_family = &watched, program_task = &masks;
    snprintf(line, sizeof line, "--micro_batch_size 4 --threads 1 --learning_rate 3e-3 %s", more);
    const int status = run_line(name, line);
    program_family = &family, program_task = &stub;
    return status;
}

#define NEW_ROBERTA                                                                                                    \
    "--model_type roberta --pad_token_id 1 --type_vocab_size 1 --max_position_embeddings 34 --hidden_size 24 "         \
    "--intermediate_size 40 --num_hidden_layers 2 --num_attention_heads 2 --tokenizer @roberta --seq_len 32 "
#define NO_SHOW "--sample_lines 0 "

// The tokenizer, a text, pairs that follow each other or do not, and anchors with positives.
static void write_roberta_data(void)
{
    static const char *const of[] = {"the house", "a river", "my friend", "your hat", "an old song", "the rain"},
                             *const does[] = {"sings", "is red", "goes away", "was here", "will not stay"};
    char text[8000] = "", pairs[8000] = "text\ttext2\tlabel\n", anchors[8000] = "anchor\tpositive\n";
    for (int i = 0; i < 60; i++) {
        const char *a = of[i % 6], *b = does[i % 5], *c = does[i * 7 / 3 % 5];
        char *const to[] = {text + strlen(text), pairs + strlen(pairs), anchors + strlen(anchors)};
        sprintf(to[0], "%s %s.\n%s", a, b, i % 4 == 3 ? "\n" : "");
        sprintf(to[1], "%s %d\t%s\t%s\n", a, i, b, i % 5 < 2 ? "yes" : "no");
        sprintf(to[2], "%s %s %d\t%s %s\n", a, b, i, a, c);
    }
    GxError err = GX_ZERO;
    mkdir(path_of("roberta"), 0755);
    copy_file("data/ref/bpe/roberta.json", path_of("roberta/tokenizer.json"));
    CHECK(gx_file_write(path_of("text.txt"), text, (int64_t)strlen(text), &err) == GX_OK &&
              gx_file_write(path_of("pairs.tsv"), pairs, (int64_t)strlen(pairs), &err) == GX_OK &&
              gx_file_write(path_of("anchors.tsv"), anchors, (int64_t)strlen(anchors), &err) == GX_OK,
          "%s", err.message);
}

static int file_has(const char *path, const char *words)
{
    char *bytes = NULL;
    int64_t n = 0;
    GxError err = GX_ZERO;
    CHECK(gx_file_read(path, 1 << 24, &bytes, &n, &err) == GX_OK, "%s", err.message);
    const int64_t many = (int64_t)strlen(words);
    int has = 0;
    for (int64_t i = 0; i + many <= n && !has; i++) has = !memcmp(bytes + i, words, (size_t)many);
    free(bytes);
    return has;
}

TEST(a_roberta_learns_masked_tokens_and_labels_of_pairs_and_is_loaded_again)
{
    write_roberta_data();
    CHECK(run_roberta("masks", NEW_ROBERTA "--train_data @text.txt --max_steps 30 --mlm_probability 0.3") == 0, "%s",
          said.log);
    CHECK(found.texts > 100 && found.pads > 0 && found.masks > 100 && found.labels > 100, "%ld texts, %ld pads, %ld",
          (long)found.texts, (long)found.pads, (long)found.labels);
    CHECK(strstr(said.out, "masked   ") && strstr(said.out, "<mask>") && !strstr(said.out, "<s>") &&
              !strstr(said.out, "</s>\n"),
          "%s", said.out);
    const char *config = path_of("masks/checkpoint-30/config.json"),
               *weights = path_of("masks/checkpoint-30/model.safetensors");
    CHECK(file_has(config, "RobertaForMaskedLM") &&
              file_has(weights, "roberta.embeddings.position_embeddings.weight") &&
              file_has(weights, "\"lm_head.layer_norm.bias\"") && file_has(weights, "\"lm_head.bias\"") &&
              !file_has(weights, "lm_head.decoder") && !file_has(weights, "\"bert."),
          "names in the checkpoint");
    CHECK(run_roberta("masks", "--resume auto --max_steps 31 --train_data @text.txt --seq_len 32 --mlm_probability 0.3 "
                               "--tokenizer @roberta " NO_SHOW) == 0,
          "%s", said.log);
    CHECK(file_has(path_of("masks/checkpoint-30/tokenizer_config.json"), "\"mask_token\": \"<mask>\""), "no mask");
    const char *pairs = "--task classification --train_data @pairs.tsv --seq_len 32 --model @%s --max_steps %d";
    char line[300];
    snprintf(line, sizeof line, pairs, "masks/checkpoint-30", 30);
    CHECK(run_roberta("roberta_pairs", line) == 0, "%s", said.log);
    CHECK(found.texts > 100 && found.seconds == found.texts && found.labels == found.texts && !found.pads,
          "%ld texts, %ld of them pairs", (long)found.texts, (long)found.seconds);
    CHECK(strstr(said.log, "classifier.out_proj") || strstr(said.out, "classifier.out_proj"), "%s%s", said.log,
          said.out);
    CHECK(file_has(path_of("roberta_pairs/checkpoint-30/config.json"), "RobertaForSequenceClassification") &&
              file_has(path_of("roberta_pairs/checkpoint-30/model.safetensors"), "\"classifier.out_proj.weight\"") &&
              !file_has(path_of("roberta_pairs/checkpoint-30/model.safetensors"), "lm_head"),
          "names in the checkpoint");
    CHECK(run_roberta("roberta_lora", "--tuning lora --train_data @text.txt --seq_len 32 --model @masks/checkpoint-30 "
                                      "--max_steps 2 " NO_SHOW) == 0,
          "%s", said.log);
    snprintf(line, sizeof line, "--tuning lora --task classification --train_data @pairs.tsv --seq_len 32 --model @%s",
             "masks/checkpoint-30");
    CHECK(run_roberta("x", line) == 1 &&
              strstr(said.log, "an adapter (--tuning) of a model of type roberta with a head for labels"),
          "%s", said.log);
    CHECK(run_roberta("x",
                      "--task classification --model @roberta_pairs/checkpoint-30 --seq_len 32 --predict @pairs.tsv "
                      "--predictions @predicted.jsonl") == 0 &&
              strstr(said.out, "accuracy"),
          "%s%s", said.out, said.log);
}

// Names lose their first word, as in files of a model without a head; the header keeps its length.
static void cut_names(const char *path)
{
    char *bytes = NULL;
    int64_t n = 0;
    GxError err = GX_ZERO;
    CHECK(gx_file_read(path, 1 << 24, &bytes, &n, &err) == GX_OK, "%s", err.message);
    for (int64_t i = 0; i + 9 <= n; i++)
        if (!memcmp(bytes + i, "\"roberta.", 9)) memcpy(bytes + i, "        \"", 9);
    CHECK(gx_file_write(path, bytes, n, &err) == GX_OK, "%s", err.message);
    free(bytes);
}

TEST(vectors_of_a_roberta_are_saved_and_loaded_under_both_names)
{
    write_roberta_data();
    CHECK(run_roberta("vectors", NEW_ROBERTA "--task embedding --train_data @anchors.tsv --max_steps 2") == 0, "%s",
          said.log);
    CHECK(file_has(path_of("vectors/checkpoint-2/config.json"), "\"RobertaModel\""), "another model");
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        if (is_cut)
            cut_names(path_of("vectors/checkpoint-2/model.safetensors")),
                unlink(path_of("vectors/checkpoint-2/manifest.json"));
        CHECK(file_has(path_of("vectors/checkpoint-2/model.safetensors"), "\"embeddings.word") == is_cut, "names");
        CHECK(run_roberta(is_cut ? "cut" : "whole", "--task classification --train_data @pairs.tsv --seq_len 32 "
                                                    "--model @vectors/checkpoint-2 --max_steps 1") == 0,
              "%s", said.log);
    }
}

TEST(a_roberta_of_sentence_transformers_cuts_texts_where_its_positions_end)
{
    static const struct {
        const char *config;
        int64_t most;
    } cases[] = {{"{\"model_type\": \"roberta\", \"max_position_embeddings\": 514}", 512},
                 {"{\"model_type\": \"xlm-roberta\", \"pad_token_id\": 3, \"max_position_embeddings\": 20}", 16},
                 {"{\"model_type\": \"bert\", \"pad_token_id\": 3, \"max_position_embeddings\": 20}", 20}};
    mkdir(path_of("sentences"), 0755);
    write_config("sentences/modules.json", "[]");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        int64_t most = 0;
        write_config("sentences/config.json", cases[i].config);
        CHECK(gx_sentence_most(path_of("sentences"), &most, &err) == GX_OK && most == cases[i].most, "%ld: %s",
              (long)most, err.message);
    }
}

TEST(what_a_roberta_cannot_do_is_refused_by_name)
{
    static const struct {
        const char *flags, *says;
    } bad[] = {
        {NEW_ROBERTA "--train_data @text.txt --nsp true --validation_fraction 0.3",
         "a model of type roberta has no head for pairs of texts"},
        {NEW_ROBERTA "--train_data @text.txt --pad_token_id -1", "a roberta needs a pad_token_id"},
        {NEW_ROBERTA "--train_data @text.txt --seq_len 33", "a sequence of 33 tokens is longer than the 32 positions"},
        {NEW_ROBERTA "--train_data @text.txt --seq_len 3",
         "--seq_len is 3; the tokenizer's frame and two tokens of text need at least 4"},
        {NEW_ROBERTA "--task classification --train_data @pairs.tsv --seq_len 5",
         "with the tokenizer's frame around it a pair of texts needs at least 6"},
        {NEW_ROBERTA "--task classification --train_data @pairs.tsv --tokenizer data/ref/wordpiece",
         "gives tokens of a second text the type 1, but the model has only 1 (type_vocab_size)"},
        {NEW_ROBERTA "--task embedding --train_data @anchors.tsv --seq_len 5",
         "a sample holds 2 texts in the tokenizer's frame, so it must be at least 6"},
    };
    write_roberta_data();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(run_roberta("x", bad[i].flags) == 1 && strstr(said.log, bad[i].says), "%s: %s", bad[i].flags, said.log);
}

int main(int argc, char **argv)
{
    char command[100];
    if (!mkdtemp(folder)) return 1;
    const int status = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (!getenv("GX_TEST_KEEP") && system(command) != 0) return 1;
    if (getenv("GX_TEST_KEEP")) printf("%s\n", folder);
    return status;
}
