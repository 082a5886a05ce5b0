// test_keys.cu: what is in a file of another program and is ignored is said. For every reader of a file: a key
// that nobody knows is named in one warning, one that asks for what is not supported is an error or a named warning,
// and those that change nothing are passed over in silence.
#define _GNU_SOURCE
#include "galaxy.h"
#include "test/test.h"
#include <sys/stat.h>
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

static int lines(const char *text)
{
    int n = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) n++;
    return n;
}

// ---- the checker ---------------------------------------------------------------------------------------------------

static const GxJsonKey rows[] = {
    {"size", GX_KEY_READ, NULL},
    {"use_cache", GX_KEY_HARMLESS, "speed alone"},
    {"scale", GX_KEY_REFUSED, "logits would be scaled"},
    {"parts=1", GX_KEY_REFUSED, "matrices would be cut"},
    {"act=\"silu\"|\"swish\"", GX_KEY_REFUSED, "the MLP would be another"},
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
        {"{\"scale\": 0.5}", "a/file.json: scale is 0.5, which is not supported: logits would be scaled", NULL},
        {"{\"scale\": {\"a\": 0}}", "scale is {\"a\":0}, which", NULL},
        {"{\"parts\": 1}", NULL, NULL},
        {"{\"parts\": 1.0}", NULL, NULL},
        {"{\"parts\": null}", NULL, NULL},
        {"{\"parts\": 0}", "parts is 0, which is not supported: matrices would be cut", NULL},
        {"{\"parts\": true}", "parts is true", NULL},
        {"{\"act\": \"silu\"}", NULL, NULL},
        {"{\"act\": \"swish\"}", NULL, NULL},
        {"{\"act\": \"silu\\\"|\\\"swish\"}", "act is", NULL},
        {"{\"act\": \"gelu\"}", "act is \"gelu\", which is not supported: the MLP would be another", NULL},
        {"{\"beams\": 4}", NULL, "a/file.json: beams is 4, which is ignored: no beams are searched\n"},
        {"{\"beams\": 1}", NULL, NULL},
        {"{\"siz\": 1}", NULL, "a/file.json: siz is not known and not read; if it changes the model, results differ\n"},
        {"{\"size_of\": 1, \"x\": null}", NULL,
         "a/file.json: 2 keys are not known and not read: size_of, x; if one of them changes the model, results "
         "differ\n"},
        {"{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}", NULL,
         "a/file.json: 9 keys are not known and not read: 1, 2, 3, 4, 5, 6, 7, 8, …; if one of them changes the model, "
         "results differ\n"},
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

// ---- the readers ---------------------------------------------------------------------------------------------------

typedef struct {
    const char *name, *file;
    const char *fine;   // a file of which nothing is said; in an object of it keys are tried, "" or its name
    const char *object; // "": in the file itself
    GxStatus (*read)(GxError *err);
    const GxJsonKeys *keys[3]; // of which the first that has a key says what becomes of it
} Reader;

static const char *at(const char *name)
{
    static char path[2][GX_PATH];
    static int turn;
    turn = !turn;
    snprintf(path[turn], GX_PATH, "%s/%s", root, name);
    return path[turn];
}

static GxStatus read_llama(GxError *err)
{
    GxLlamaConfig c;
    GxModelLabels labels = GX_ZERO;
    GX_TRY(gx_llama_config_read(&c, at("config.json"), &heard, err));
    const GxStatus status = gx_labels_read(&labels, root, err);
    gx_model_labels_close(&labels);
    return status;
}

static GxStatus read_bert(GxError *err)
{
    GxBertConfig c;
    GxModelLabels labels = GX_ZERO;
    GX_TRY(gx_bert_config_read(&c, at("config.json"), &heard, err));
    const GxStatus status = gx_labels_read(&labels, root, err);
    gx_model_labels_close(&labels);
    return status;
}

static GxStatus read_bart(GxError *err)
{
    GxBartConfig c;
    return gx_bart_config_read(&c, at("config.json"), &heard, err);
}

static GxStatus read_t5(GxError *err)
{
    GxT5Config c;
    return gx_t5_config_read(&c, at("config.json"), &heard, err);
}

static GxStatus read_gpt2(GxError *err)
{
    GxGpt2Config c;
    GxModelLabels labels = GX_ZERO;
    GX_TRY(gx_gpt2_config_read(&c, at("config.json"), &heard, err));
    const GxStatus status = gx_labels_read(&labels, root, err);
    gx_model_labels_close(&labels);
    return status;
}

static int has_length; // the command says --max_new_tokens
static GxStatus read_generation(GxError *err)
{
    GxGenerationConfig c;
    return gx_generation_config_read(&c, root, has_length, &heard, err);
}

#define SIZES                                                                                                          \
    "\"vocab_size\": 40, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1, "                    \
    "\"num_attention_heads\": 2, "
#define QWEN                                                                                                           \
    "{" SIZES "\"model_type\": \"qwen3\", \"num_key_value_heads\": 1, \"head_dim\": 4, \"use_sliding_window\": true, " \
    "\"sliding_window\": 4, \"max_window_layers\": 0"
#define GEMMA3                                                                                                         \
    "{" SIZES "\"model_type\": \"gemma3_text\", \"num_key_value_heads\": 1, \"head_dim\": 4, \"sliding_window\": 4"
static const Reader readers[] = {
    {"a Qwen3's config.json", "config.json", QWEN "}", "", read_llama, {&gx_llama_keys, &gx_family_keys, NULL}},
    {"RoPE's object of transformers 4",
     "config.json",
     QWEN ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
          "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
     "rope_scaling",
     read_llama,
     {&gx_llama_rope_keys, NULL, NULL}},
    {"RoPE's object of transformers 5",
     "config.json",
     QWEN ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
          "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192, \"rope_theta\": 10000.0}}",
     "rope_parameters",
     read_llama,
     {&gx_llama_rope_keys, NULL, NULL}},
    {"quantization_config",
     "config.json",
     QWEN ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
          "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}}",
     "quantization_config",
     read_llama,
     {&gx_bnb_config_keys, NULL, NULL}},
    {"a BERT's config.json",
     "config.json",
     "{" SIZES "\"model_type\": \"bert\"}",
     "",
     read_bert,
     {&gx_bert_keys, &gx_family_keys, NULL}},
    {"generation_config.json",
     "generation_config.json",
     "{\"do_sample\": true}",
     "",
     read_generation,
     {&gx_generation_keys, NULL, NULL}},
    {"a BART's config.json",
     "config.json",
     "{\"model_type\": \"bart\", \"vocab_size\": 40, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1}",
     "",
     read_bart,
     {&gx_bart_keys, &gx_bart_norm_keys[0], &gx_family_keys}},
    {"an mBART's config.json",
     "config.json",
     "{\"model_type\": \"mbart\", \"vocab_size\": 40, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1}",
     "",
     read_bart,
     {&gx_bart_keys, &gx_bart_norm_keys[1], &gx_family_keys}},
    {"a RoBERTa's config.json",
     "config.json",
     "{" SIZES "\"model_type\": \"roberta\"}",
     "",
     read_bert,
     {&gx_bert_keys, &gx_family_keys, NULL}},
    {"a T5's config.json",
     "config.json",
     "{\"model_type\": \"t5\", \"vocab_size\": 40, \"d_model\": 16, \"num_layers\": 1, \"decoder_start_token_id\": 0}",
     "",
     read_t5,
     {&gx_t5_keys, &gx_family_keys, NULL}},
    {"RoPE's object of YaRN",
     "config.json",
     QWEN ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": "
          "8192, \"rope_theta\": 10000.0, \"beta_fast\": 32, \"beta_slow\": 1, \"attention_factor\": 1.2, "
          "\"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"truncate\": false}}",
     "rope_parameters",
     read_llama,
     {&gx_llama_rope_keys, NULL, NULL}},
    {"a SmolLM3's config.json",
     "config.json",
     "{" SIZES "\"model_type\": \"smollm3\", \"num_key_value_heads\": 1, \"pad_token_id\": 2, \"no_rope_layers\": [1], "
     "\"no_rope_layer_interval\": 4, \"max_window_layers\": 28, \"use_sliding_window\": true, \"sliding_window\": 4}",
     "",
     read_llama,
     {&gx_llama_keys, &gx_family_keys, NULL}},
    {"a Gemma 3's config.json", "config.json", GEMMA3 "}", "", read_llama, {&gx_llama_keys, &gx_family_keys, NULL}},
    {"a Gemma 3's RoPE of transformers 5",
     "config.json",
     GEMMA3 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": "
            "1000000.0}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}}}",
     "rope_parameters",
     read_llama,
     {&gx_llama_ropes_keys, NULL, NULL}},
    {"a DistilBERT's config.json",
     "config.json",
     "{\"model_type\": \"distilbert\", \"vocab_size\": 40, \"dim\": 16, \"n_layers\": 1, \"n_heads\": 2}",
     "",
     read_bert,
     {&gx_distilbert_keys, &gx_family_keys, NULL}},
    {"a GPT-2's config.json",
     "config.json",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 40, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2}",
     "",
     read_gpt2,
     {&gx_gpt2_keys, &gx_family_keys, NULL}},
    {"a GPT-2's config.json with other families' names",
     "config.json",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 40, \"hidden_size\": 8, \"num_hidden_layers\": 1, "
     "\"num_attention_heads\": 2, \"max_position_embeddings\": 16}",
     "",
     read_gpt2,
     {&gx_gpt2_keys, NULL, NULL}},
};
enum { READERS = sizeof readers / sizeof *readers };

// Reads the file with one more member, or another value of one; key NULL: as it is.
static GxStatus try_key(const Reader *r, const char *key, const char *value, GxError *err)
{
    GxJson *json, *more = NULL;
    memset(err, 0, sizeof *err), said.log[0] = 0;
    gx_json_parse(&json, r->fine, (int64_t)strlen(r->fine), "fine", err);
    if (key) gx_json_parse(&more, value, (int64_t)strlen(value), "value", err);
    if (key) gx_json_set(r->object[0] ? gx_json_get(json, r->object) : json, key, more, err);
    gx_json_write(json, at(r->file), err);
    gx_json_free(json);
    CHECK(err->code == GX_OK, "%s: %s", r->name, err->message);
    const GxStatus status = r->read(err);
    remove(at(r->file));
    return status;
}

static void expect_silence(const Reader *r, const char *key, const char *value)
{
    GxError err;
    CHECK(try_key(r, key, value, &err) == GX_OK && !said.log[0], "%s: %s: %s is not skipped: %s%s", r->name,
          key ? key : "as it is", value, err.message, said.log);
}

TEST(a_key_that_nobody_knows_is_named_once)
{
    GxError err;
    for (int i = 0; i < READERS; i++) {
        expect_silence(&readers[i], NULL, "");
        CHECK(try_key(&readers[i], "quite_new", "0.5", &err) == GX_OK && lines(said.log) == 1 &&
                  strstr(said.log, readers[i].file) && strstr(said.log, "quite_new is not known and not read"),
              "%s: %s%s", readers[i].name, err.message, said.log);
    }
}

// The value that asks for nothing, of those behind a row's =; 0: there are no more.
static int next_value(const char **at, char value[100])
{
    if (!**at) return 0;
    const size_t n = strcspn(*at + 1, "|");
    snprintf(value, 100, "%.*s", (int)n, *at + 1);
    *at += 1 + n;
    return 1;
}

static void check_said(const Reader *r, const GxJsonKey *row, const char *key)
{
    GxError err;
    char value[100], nothing[] = "null";
    const char *values = strchr(row->name, '=');
    const GxStatus status = try_key(r, key, "12345", &err);
    if (row->kind == GX_KEY_REFUSED)
        CHECK(status == GX_ERR_UNSUPPORTED && strstr(err.message, key) && strstr(err.message, "12345"),
              "%s: %s is not refused: %s", r->name, key, err.message);
    else
        CHECK(status == GX_OK && lines(said.log) == 1 && strstr(said.log, key) && strstr(said.log, row->why),
              "%s: %s is not named once: %s%s", r->name, key, err.message, said.log);
    expect_silence(r, key, nothing);
    if (!values) expect_silence(r, key, "false"), expect_silence(r, key, "0"), expect_silence(r, key, "[]");
    while (values && next_value(&values, value)) expect_silence(r, key, value);
}

// Values of another type than the reader takes are errors that name the key: so it is read.
static void check_read(const Reader *r, const char *key)
{
    static const char *const values[] = {"{\"x\": [1]}", "[[1]]", "\"\\u00e4\"", "12345", "-1"};
    GxError err;
    int refused = 0;
    for (int i = 0; i < 5; i++) refused += try_key(r, key, values[i], &err) != GX_OK && strstr(err.message, key);
    CHECK(refused > 0, "%s: %s is not looked at", r->name, key);
}

TEST(what_the_table_of_a_file_says_of_a_key_is_what_becomes_of_it)
{
    char key[100];
    for (int i = 0; i < READERS; i++)
        for (int t = 0; t < 3 && readers[i].keys[t]; t++)
            for (int k = 0; k < readers[i].keys[t]->n; k++) {
                const GxJsonKey *row = &readers[i].keys[t]->key[k];
                snprintf(key, sizeof key, "%.*s", (int)strcspn(row->name, "="), row->name);
                if (t && gx_json_find_key(readers[i].keys[0]->key, readers[i].keys[0]->n, key)) continue;
                if (row->kind == GX_KEY_READ) check_read(&readers[i], key);
                else if (row->kind == GX_KEY_HARMLESS) expect_silence(&readers[i], key, "12345");
                else check_said(&readers[i], row, key);
                if (row->kind != GX_KEY_READ)
                    CHECK(row->why && row->why[0], "%s: %s has no reason", readers[i].name, key);
                CHECK(gx_json_find_key(readers[i].keys[t]->key, readers[i].keys[t]->n, key) == row,
                      "%s: %s has two rows", readers[i].name, key);
            }
}

// What libraries write themselves has nothing to be named: transformers 5's folders, and some of others as they are
// found.
TEST(of_configurations_as_libraries_write_them_nothing_is_said)
{
    static const char *const found[] = {
        "{" SIZES "\"model_type\": \"llama\", \"_name_or_path\": \"x\", \"architectures\": [\"LlamaForCausalLM\"], "
        "\"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", \"pretraining_tp\": 2, \"rope_scaling\": "
        "null, \"torch_dtype\": \"float16\", \"use_cache\": true, \"temperature\": 0.6, \"max_length\": 4096, "
        "\"max_sequence_length\": 2048, \"is_llama_config\": true, \"rope_interleaved\": false, "
        "\"transformers.js_config\": {\"kv_cache_dtype\": \"fp16\"}, \"unsloth_version\": \"2024.9\"}",
        "{" SIZES "\"_name_or_path\": \"Phi-3-mini-4k-instruct\", \"architectures\": [\"Phi3ForCausalLM\"], "
        "\"attention_bias\": false, "
        "\"attention_dropout\": 0.0, \"bos_token_id\": 1, \"embd_pdrop\": 0.0, \"eos_token_id\": 32, \"model_type\": "
        "\"phi3\", \"original_max_position_embeddings\": 4096, \"pad_token_id\": 20, \"resid_pdrop\": 0.0, "
        "\"rope_scaling\": null, \"rope_theta\": 10000.0, \"sliding_window\": 2047, \"use_cache\": true}",
        "{" SIZES
        "\"model_type\": \"smollm3\", \"num_key_value_heads\": 1, \"bos_token_id\": null, \"eos_token_id\": 12, "
        "\"layer_types\": [\"full_attention\"], \"max_window_layers\": 28, \"no_rope_layer_interval\": 4, "
        "\"no_rope_layers\": [1], \"pad_token_id\": 4, \"pretraining_tp\": 2, \"rope_scaling\": null, "
        "\"rope_theta\": 5000000.0, \"sliding_window\": null, \"use_cache\": false, \"use_sliding_window\": false}",
        "{" SIZES
        "\"model_type\": \"gemma3_text\", \"architectures\": [\"Gemma3ForCausalLM\"], \"attention_bias\": false, "
        "\"attention_dropout\": 0.0, \"attn_logit_softcapping\": null, \"bos_token_id\": 2, \"cache_implementation\": "
        "\"hybrid\", \"eos_token_id\": [1, 16], \"final_logit_softcapping\": null, \"head_dim\": 256, "
        "\"hidden_activation\": \"gelu_pytorch_tanh\", \"num_key_value_heads\": 1, \"pad_token_id\": 0, "
        "\"query_pre_attn_scalar\": 256, \"rms_norm_eps\": 1e-06, \"rope_local_base_freq\": 10000, \"rope_scaling\": "
        "null, \"rope_theta\": 1000000, \"sliding_window\": 512, \"sliding_window_pattern\": 6, \"torch_dtype\": "
        "\"bfloat16\", \"use_cache\": true}",
        "{" SIZES "\"model_type\": \"gemma3_text\", \"_sliding_window_pattern\": 6, \"num_key_value_heads\": 1, "
        "\"layer_types\": [\"sliding_attention\"], \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
        "\"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, \"use_bidirectional_attention\": false}",
        "{" SIZES
        "\"model_type\": \"qwen2\", \"num_key_value_heads\": 1, \"use_mrope\": false, \"use_sliding_window\": "
        "false, \"sliding_window\": 4096, \"max_window_layers\": 21, \"attention_dropout\": 0.0, \"rope_theta\": 1e6}",
        "{" SIZES "\"model_type\": \"bert\", \"directionality\": \"bidi\", \"gradient_checkpointing\": false, "
        "\"pooler_fc_size\": 768, \"pooler_type\": \"first_token_transform\", \"position_embedding_type\": "
        "\"absolute\", \"output_past\": true, \"layer_norm_eps\": 1e-12, \"finetuning_task\": \"sst-2\"}",
        "{" SIZES "\"model_type\": \"roberta\", \"architectures\": [\"RobertaForMaskedLM\"], \"bos_token_id\": 0, "
        "\"eos_token_id\": 2, \"pad_token_id\": 1, \"layer_norm_eps\": 1e-05, \"max_position_embeddings\": 514, "
        "\"type_vocab_size\": 1, \"initializer_range\": 0.02}",
        "{" SIZES "\"model_type\": \"xlm-roberta\", \"architectures\": [\"XLMRobertaForMaskedLM\"], "
        "\"bos_token_id\": 0, \"eos_token_id\": 2, \"pad_token_id\": 1, \"output_past\": true, \"use_cache\": true, "
        "\"position_embedding_type\": \"absolute\", \"max_position_embeddings\": 514, \"type_vocab_size\": 1}",
        "{\"model_type\": \"distilbert\", \"activation\": \"gelu\", \"architectures\": [\"DistilBertForMaskedLM\"], "
        "\"attention_dropout\": 0.1, \"dim\": 768, \"dropout\": 0.1, \"hidden_dim\": 3072, \"initializer_range\": "
        "0.02, \"max_position_embeddings\": 512, \"n_heads\": 12, \"n_layers\": 6, \"output_past\": true, "
        "\"pad_token_id\": 0, \"qa_dropout\": 0.1, \"seq_classif_dropout\": 0.2, \"sinusoidal_pos_embds\": false, "
        "\"tie_weights_\": true, \"transformers_version\": \"4.10.0.dev0\", \"vocab_size\": 30522}",
        "{\"model_type\": \"bart\", \"architectures\": [\"BartModel\"], \"vocab_size\": 40, \"d_model\": 16, "
        "\"add_bias_logits\": false, \"add_final_layer_norm\": false, \"classif_dropout\": 0.1, "
        "\"normalize_before\": false, \"normalize_embedding\": true, \"num_hidden_layers\": 6, "
        "\"gradient_checkpointing\": false, \"early_stopping\": true, \"num_beams\": 4, "
        "\"no_repeat_ngram_size\": 3, \"forced_bos_token_id\": 0, \"forced_eos_token_id\": 2, "
        "\"task_specific_params\": {\"summarization\": {\"length_penalty\": 1.0, \"max_length\": 128}}}",
        "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"architectures\": "
        "[\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": "
        "50256, \"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"n_ctx\": 1024, \"n_embd\": 768, "
        "\"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, \"n_special\": 0, \"predict_special_tokens\": true, "
        "\"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1, "
        "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary_use_proj\": true, "
        "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}}, \"vocab_size\": "
        "50257, \"_num_labels\": 1, \"id2label\": {\"0\": \"LABEL_0\"}, \"label2id\": {\"LABEL_0\": 0}}",
        "{\"model_type\": \"t5\", \"architectures\": [\"T5WithLMHeadModel\"], \"d_ff\": 2048, \"d_kv\": 64, "
        "\"d_model\": 512, \"decoder_start_token_id\": 0, \"dropout_rate\": 0.1, \"eos_token_id\": 1, "
        "\"initializer_factor\": 1.0, \"is_encoder_decoder\": true, \"layer_norm_epsilon\": 1e-06, \"n_positions\": "
        "512, \"num_heads\": 8, \"num_layers\": 6, \"output_past\": true, \"pad_token_id\": 0, "
        "\"relative_attention_num_buckets\": 32, \"task_specific_params\": {}, \"vocab_size\": 32128}",
        "{\"model_type\": \"mt5\", \"architectures\": [\"MT5ForConditionalGeneration\"], \"d_ff\": 1024, \"d_kv\": 64, "
        "\"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false, \"tokenizer_class\": "
        "\"T5Tokenizer\", \"num_decoder_layers\": 8, \"num_layers\": 8}",
        "{\"model_type\": \"mbart\", \"architectures\": [\"MBartForConditionalGeneration\"], \"vocab_size\": 40, "
        "\"d_model\": 16, \"_num_labels\": 3, \"add_bias_logits\": false, \"add_final_layer_norm\": true, "
        "\"classif_dropout\": 0.0, \"normalize_before\": true, \"normalize_embedding\": true, \"num_hidden_layers\": "
        "12, \"scale_embedding\": true, \"static_position_embeddings\": false, \"output_past\": true, "
        "\"max_length\": 1024, \"num_beams\": 5, \"activation_function\": \"relu\", \"forced_eos_token_id\": 2, "
        "\"tokenizer_class\": \"MBart50Tokenizer\", \"task_specific_params\": {\"translation_en_to_ro\": "
        "{\"decoder_start_token_id\": 33}}}"};
    enum { FOUND = sizeof found / sizeof *found };
    GxFolder list = GX_ZERO;
    GxError err = GX_ZERO;
    int read = 0;
    CHECK(gx_folder_list(&list, "data/ref", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < list.n + FOUND; i++) {
        char path[GX_PATH];
        GxLlamaConfig llama;
        GxBertConfig bert;
        GxBartConfig bart;
        GxT5Config t5;
        GxGpt2Config gpt2;
        said.log[0] = 0;
        if (i >= list.n) gx_file_write(at("config.json"), found[i - list.n], (int64_t)strlen(found[i - list.n]), &err);
        snprintf(path, sizeof path, "%s", i < list.n ? "" : at("config.json"));
        if (i < list.n) snprintf(path, sizeof path, "data/ref/%.100s/config.json", list.entry[i].name);
        if (!gx_path_is_file(path)) continue;
        char *text;
        int64_t bytes;
        if (!CHECK(gx_file_read(path, 1 << 20, &text, &bytes, &err) == GX_OK, "%s", err.message)) continue;
        const int is_bert = strstr(text, "\"bert\"") || strstr(text, "roberta\"") || strstr(text, "\"distilbert\""),
                  is_bart = !!strstr(text, "bart\""), is_t5 = !!strstr(text, "t5\""),
                  is_gpt2 = !!strstr(text, "\"gpt2\"");
        const int with_weights = is_t5 && i < list.n; // which say that the head is not tied
        const GxStatus status = is_bert   ? gx_bert_config_read(&bert, path, &heard, &err)
                                : is_bart ? gx_bart_config_read(&bart, path, &heard, &err)
                                : is_gpt2 ? gx_gpt2_config_read(&gpt2, path, &heard, &err)
                                : is_t5   ? gx_t5_config_read(&t5, path, with_weights ? &gx_silent : &heard, &err)
                                          : gx_llama_config_read(&llama, path, &heard, &err);
        free(text);
        CHECK(status == GX_OK && !said.log[0], "%s: %s%s", path, err.message, said.log);
        read++;
    }
    CHECK(read > 30, "%d configurations were read", read);
    gx_folder_close(&list);
    remove(at("config.json"));
}

TEST(of_generation_config_json_is_named_and_config_json_alone_what_is_not_looked_at)
{
    static const Reader model = {
        "config.json for generation", "config.json", "{\"eos_token_id\": 3}", "", read_generation, {NULL, NULL, NULL}};
    GxError err;
    expect_silence(&model, NULL, "");
    expect_silence(&model, "num_beams", "1");
    expect_silence(&model, "use_cache", "true");
    CHECK(try_key(&model, "temperature", "0.5", &err) == GX_OK && lines(said.log) == 1 &&
              strstr(said.log, "temperature is an option of generation, and is ignored"),
          "%s%s", err.message, said.log);
    CHECK(try_key(&readers[5], "max_length", "4096", &err) == GX_OK && strstr(said.log, "max_length is 4096"), "%s",
          said.log);
    Reader both = readers[5];
    both.fine = "{\"max_new_tokens\": 7}";
    expect_silence(&both, "max_length", "4096"); // which max_new_tokens overrules
    has_length = 1;
    expect_silence(&readers[5], "max_length", "4096");
    has_length = 0;
}

TEST(of_a_config_json_that_spells_out_defaults_of_generation_nothing_is_said)
{
    static const Reader usual = {
        "config.json with defaults",
        "config.json",
        "{\"temperature\": 1.0, \"top_k\": 50, \"top_p\": 1.0, \"repetition_penalty\": 1.0, \"do_sample\": false}",
        "",
        read_generation,
        {NULL, NULL, NULL}};
    GxError err;
    expect_silence(&usual, "max_length", "20");
    CHECK(try_key(&usual, "max_length", "21", &err) == GX_OK &&
              strstr(said.log, ": max_length is an option of generation"),
          "%s", said.log);
}

TEST(numbers_of_tokens_are_numbers_and_of_the_vocabulary)
{
    static const char *const cases[][3] = {
        {"eos_token_id", "39", NULL},
        {"eos_token_id", "null", NULL},
        {"eos_token_id", "[0, 39]", NULL},
        {"eos_token_id", "40", "eos_token_id has 40, which is not an id of the vocabulary's 40 tokens"},
        {"eos_token_id", "[1, 99999]", "eos_token_id has 99999"},
        {"bos_token_id", "-1", "bos_token_id has -1"},
        {"eos_token_id", "\"2\"", "eos_token_id is a string"},
        {"eos_token_id", "[1, 2.5]", "eos_token_id is "},
        {"bos_token_id", "[1]", "bos_token_id is an array"},
    };
    GxError err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const GxStatus status = try_key(&readers[0], cases[i][0], cases[i][1], &err);
        CHECK(status == (i < 6 ? GX_OK : GX_ERR_FORMAT), "%s %s: %s", cases[i][0], cases[i][1], err.message);
        CHECK(lines(said.log) == (i >= 3 && i < 6), "%s %s: %s", cases[i][0], cases[i][1], said.log);
        CHECK(!cases[i][2] || strstr(i < 6 ? said.log : err.message, cases[i][2]), "%s %s: %s%s", cases[i][0],
              cases[i][1], err.message, said.log);
    }
    CHECK(try_key(&readers[5], "bos_token_id", "\"2\"", &err) == GX_ERR_FORMAT, "generation_config.json: it was taken");
}

TEST(a_pointer_of_git_lfs_is_no_file)
{
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
    GxError err = GX_ZERO;
    GxSafetensors s;
    GxTokenizer t;
    gx_file_write(at("model.safetensors"), text, (int64_t)strlen(text), &err);
    CHECK(gx_safetensors_open(&s, at("model.safetensors"), &err) == GX_ERR_FORMAT &&
              strstr(err.message, "is a Git LFS pointer and not the file itself"),
          "%s", err.message);
    remove(at("model.safetensors"));
    memset(&err, 0, sizeof err);
    gx_file_write(at("tokenizer.json"), text, (int64_t)strlen(text), &err);
    CHECK(gx_tokenizer_open(&t, root, &err) == GX_ERR_FORMAT && strstr(err.message, "is a Git LFS pointer"), "%s",
          err.message);
    remove(at("tokenizer.json"));
}

TEST(num_labels_says_how_many_labels_there_are_where_id2label_does_not)
{
    GxModelLabels m;
    GxError err = GX_ZERO;
    char text[100];
    for (int n = 1; n <= 3; n++) {
        snprintf(text, sizeof text, "{\"num_labels\": %d}", n);
        gx_file_write(at("config.json"), text, (int64_t)strlen(text), &err);
        CHECK(gx_labels_read(&m, root, &err) == GX_OK && m.labels.n == n, "%d: %d, %s", n, m.labels.n, err.message);
        gx_model_labels_close(&m);
    }
    snprintf(text, sizeof text, "{\"num_labels\": 3, \"id2label\": {\"0\": \"a\", \"1\": \"b\"}}");
    gx_file_write(at("config.json"), text, (int64_t)strlen(text), &err);
    CHECK(gx_labels_read(&m, root, &err) == GX_ERR_FORMAT &&
              strstr(err.message, "num_labels is 3, but the number of labels in id2label is 2"),
          "%s", err.message);
    gx_model_labels_close(&m);
    remove(at("config.json"));
}

// ---- tokenizers ----------------------------------------------------------------------------------------------------

#define SPECIAL(id, text)                                                                                              \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"                \
    "\"normalized\":false,\"special\":true}"
static const char pieces[] =
    "{\"version\":\"1.0\",\"truncation\":{\"max_length\":8},\"padding\":null,\"added_tokens\":"
    "[" SPECIAL(0, "[PAD]") "," SPECIAL(1, "[UNK]") "," SPECIAL(2, "[CLS]") "," SPECIAL(3, "[SEP]") "," SPECIAL(
        4, "[MASK]") "],"
                     "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_"
                     "text\":true,\"handle_chinese_chars\":true,"
                     "\"strip_accents\":null,\"lowercase\":true},\"pre_"
                     "tokenizer\":{\"type\":\"BertPreTokenizer\"},"
                     "\"post_processor\":null,\"decoder\":{\"type\":"
                     "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
                     "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"["
                     "UNK]\",\"continuing_subword_prefix\":\"##\","
                     "\"max_input_chars_per_word\":100,\"vocab\":{\"[PAD]\":"
                     "0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"[MASK]\":4,"
                     "\"a\":5}}}";

static GxStatus read_tokenizer(GxError *err)
{
    GxTokenizer t;
    GxError ignored = GX_ZERO;
    if (!gx_path_is_file(at("tokenizer.json")))
        gx_file_write(at("tokenizer.json"), pieces, (int64_t)strlen(pieces), &ignored);
    GX_TRY(gx_tokenizer_open(&t, root, err));
    const GxStatus status = gx_tokenizer_check_keys(&t, root, &heard, err);
    gx_tokenizer_close(&t);
    remove(at("tokenizer.json"));
    return status;
}

TEST(what_tokenizer_config_json_asks_for_beside_tokenizer_json_is_named)
{
    static const Reader config = {"tokenizer_config.json",
                                  "tokenizer_config.json",
                                  "{\"pad_token\": \"[PAD]\", \"added_tokens_decoder\": {}}",
                                  "",
                                  read_tokenizer,
                                  {&gx_tokenizer_config_keys, NULL, NULL}};
    static const char *const cases[][3] = {
        // key, value; what is said, NULL: nothing
        {"do_lower_case", "true", NULL},
        {"do_lower_case", "false",
         "do_lower_case is false, which is ignored: the normalizer of tokenizer.json has true"},
        {"strip_accents", "null", NULL},
        {"strip_accents", "true", NULL},
        {"strip_accents", "false", "strip_accents is false"},
        {"tokenize_chinese_chars", "false", "tokenize_chinese_chars is false"},
        {"additional_special_tokens", "[\"[MASK]\", {\"content\": \"[CLS]\"}]", NULL},
        {"additional_special_tokens", "[\"<new>\"]",
         "additional_special_tokens has \"<new>\", which is not a special token"},
        {"image_token", "\"[MASK]\"", NULL},
        {"image_token", "{\"content\": \"<i>\"}", "image_token has \"<i>\", which is not a special token"},
        {"extra_special_tokens", "{\"image_token\": \"<i>\"}", "extra_special_tokens has \"<i>\""},
        {"unk_token", "\"[UNK]\"", NULL},
        {"unk_token", "\"[MASK]\"",
         "unk_token is \"[MASK]\", which is ignored: the model of tokenizer.json has \"[UNK]\""},
        {"pad_token", "\"a\"", "pad_token has \"a\", which is not a special token"},
        {"bos_token", "{\"content\": \"a\"}", "bos_token has \"a\", which is not a special token"},
        {"added_tokens_decoder", "{\"5\": {\"content\": \"a\"}}", NULL},
        {"added_tokens_decoder", "{\"6\": {\"content\": \"b\"}}",
         "has \"b\" with the id 6, which tokenizer.json does not"},
        {"tokenizer_class", "\"BertTokenizerFast\"", NULL},
        {"tokenizer_class", "\"TokenizersBackend\"", NULL},
        {"tokenizer_class", "\"Qwen2TokenizerFast\"",
         "tokenizer_class is Qwen2TokenizerFast, whose model is BPE, which is ignored: tokenizer.json has WordPiece"},
        {"quite_new", "1", "tokenizer_config.json: quite_new is not known and not read"},
        {"model_max_length", "1000000000000000000", NULL}};
    GxError err;
    char key[100];
    expect_silence(&config, NULL, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const GxStatus status = try_key(&config, cases[i][0], cases[i][1], &err);
        CHECK(status == GX_OK && lines(said.log) == (cases[i][2] != NULL) &&
                  (!cases[i][2] || strstr(said.log, cases[i][2])),
              "%s %s: %s%s", cases[i][0], cases[i][1], err.message, said.log);
    }
    for (int k = 0; k < gx_tokenizer_config_keys.n; k++) {
        const GxJsonKey *row = &gx_tokenizer_config_keys.key[k];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(row->name, "="), row->name);
        if (row->kind == GX_KEY_HARMLESS) expect_silence(&config, key, "12345");
        if (row->kind == GX_KEY_NAMED) check_said(&config, row, key);
    }
}

static void tell_of_folder(GxError *err)
{
    GxTokenizer t = GX_ZERO;
    memset(err, 0, sizeof *err), said.log[0] = 0;
    if (gx_tokenizer_open(&t, root, err) == GX_OK) gx_tokenizer_check_keys(&t, root, &heard, err);
    gx_tokenizer_close(&t);
}

TEST(contradictions_to_tokenizer_json_are_told_of_the_file_that_has_them)
{
    static const char level[] =
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\"normalizer\":null,\"pre_"
        "tokenizer\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
        "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
        "\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}}";
    static const char map[] = "{\"eos_token\": \"<none>\"}", pad[] = "{\"pad_token\": \"<none>\"}",
                      added[] = "{\"[MASK]\": 4, \"<more>\": 9}";
    static const char *const prefix[] = {"{\"add_prefix_space\": false}", "{\"add_prefix_space\": true}"};
    GxError err = GX_ZERO;
    gx_file_write(at("tokenizer.json"), pieces, (int64_t)strlen(pieces), &err);
    gx_file_write(at("special_tokens_map.json"), map, (int64_t)strlen(map), &err);
    tell_of_folder(&err);
    CHECK(lines(said.log) == 1 && strstr(said.log, "special_tokens_map.json: eos_token has \"<none>\""), "%s%s",
          err.message, said.log);
    gx_file_write(at("special_tokens_map.json"), pad, (int64_t)strlen(pad), &err);
    tell_of_folder(&err);
    CHECK(err.code == GX_ERR_FORMAT && strstr(err.message, "special_tokens_map.json: the pad_token is \"<none>\""),
          "%s", err.message);
    remove(at("special_tokens_map.json"));
    gx_file_write(at("added_tokens.json"), added, (int64_t)strlen(added), &err);
    tell_of_folder(&err);
    CHECK(lines(said.log) == 1 && strstr(said.log, "added_tokens.json has \"<more>\" with the id 9"), "%s%s",
          err.message, said.log);
    remove(at("added_tokens.json"));
    gx_file_write(at("tokenizer.json"), level, (int64_t)strlen(level), &err);
    for (int i = 0; i < 2; i++) {
        gx_file_write(at("tokenizer_config.json"), prefix[i], (int64_t)strlen(prefix[i]), &err);
        tell_of_folder(&err);
        CHECK(err.code == GX_OK && lines(said.log) == i &&
                  (!i || strstr(said.log, "add_prefix_space is true, which is ignored")),
              "%s: %s%s", prefix[i], err.message, said.log);
    }
    remove(at("tokenizer.json")), remove(at("tokenizer_config.json"));
}

TEST(older_folders_name_their_tokens_in_special_tokens_map_json)
{
    static const char map[] = "{\"eos_token\": \"[SEP]\", \"pad_token\": {\"content\": \"[MASK]\"}}";
    static const char *const configs[] = {"{\"pad_token\": \"[PAD]\"}", NULL,
                                          "{\"pad_token\": \"[PAD]\", \"added_tokens_decoder\": {}}"};
    static const int32_t pad[] = {4, 4, 0};
    for (int i = 0; i < 3; i++) {
        GxError err = GX_ZERO;
        GxTokenizer t = GX_ZERO;
        gx_file_write(at("tokenizer.json"), pieces, (int64_t)strlen(pieces), &err);
        gx_file_write(at("special_tokens_map.json"), map, (int64_t)strlen(map), &err);
        if (configs[i]) gx_file_write(at("tokenizer_config.json"), configs[i], (int64_t)strlen(configs[i]), &err);
        CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK && t.role[GX_TOKEN_PAD] == pad[i], "case %d: %d, %s", i,
              t.role[GX_TOKEN_PAD], err.message);
        gx_tokenizer_close(&t);
        remove(at("tokenizer.json")), remove(at("special_tokens_map.json")), remove(at("tokenizer_config.json"));
    }
}

TEST(an_object_of_tokenizer_json_that_has_more_than_is_known_is_refused)
{
    static const struct {
        const char *place, *more, *said; // behind `place` stands `more`
    } cases[] = {
        {"\"version\":\"1.0\",", "\"new\":1,", "it has \"new\", which is not known; supported: version,truncation"},
        {"\"type\":\"BertNormalizer\",", "\"new\":1,", "BertNormalizer has \"new\""},
        {"\"decoder\":{\"type\":\"WordPiece\",", "\"new\":1,", "WordPiece has \"new\""},
        {"\"max_input_chars_per_word\":100,", "\"new\":1,", "WordPiece has \"new\""},
        {"\"added_tokens\":[{", "\"new\":1,", "added_tokens has \"new\""},
    };
    char text[4000];
    GxError err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = strstr(pieces, cases[i].place), *end = found + strlen(cases[i].place);
        memset(&err, 0, sizeof err);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(end - pieces), pieces, cases[i].more, end);
        gx_file_write(at("tokenizer.json"), text, (int64_t)strlen(text), &err);
        CHECK(read_tokenizer(&err) == GX_ERR_UNSUPPORTED && strstr(err.message, cases[i].said), "%s: %s",
              cases[i].place, err.message);
        remove(at("tokenizer.json"));
    }
}

// ---- records -------------------------------------------------------------------------------------------------------

TEST(members_of_conversations_that_would_change_what_is_learned_are_refused)
{
    static const char *const record[] = {"tools", "functions", "system", "history", "images", "chat_template_kwargs",
                                         "audio", "documents"},
                             *const turn[] = {"tool_calls", "function_call", "reasoning_content",
                                              "reasoning",  "thinking",      "weight",
                                              "train",      "training"};
    char line[400];
    for (int i = 0; i < 16; i++)
        for (int is_empty = 0; is_empty < 2; is_empty++) {
            GxChatRecord r;
            GxError err = GX_ZERO;
            const char *name = i < 8 ? record[i] : turn[i - 8], *value = is_empty ? "null" : "[1]";
            snprintf(line, sizeof line,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                     "\"b\"%s%s%s%s}]%s%s%s%s, \"id\": 7}",
                     i < 8 ? "" : ", \"", i < 8 ? "" : name, i < 8 ? "" : "\": ", i < 8 ? "" : value,
                     i < 8 ? ", \"" : "", i < 8 ? name : "", i < 8 ? "\": " : "", i < 8 ? value : "");
            const GxStatus status = gx_chat_record_read(&r, line, &gx_record_reading, "chats.jsonl", 7, &err);
            CHECK(is_empty ? status == GX_OK : status == GX_ERR_UNSUPPORTED && strstr(err.message, name) != NULL,
                  "%s: %s", line, err.message);
            if (status == GX_OK) gx_chat_record_close(&r);
        }
}

// ---- a folder ------------------------------------------------------------------------------------------------------

TEST(weights_and_adapters_that_are_left_out_are_named)
{
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json", "adapter_config.json"};
    static const struct {
        int has; // a bit for each file
        const char *said;
    } cases[] = {{0, NULL},
                 {1, NULL},
                 {2, NULL},
                 {4, NULL},
                 {3, "the files that the second names are ignored"},
                 {5, "the adapter is ignored here"},
                 {6, "the adapter is ignored here"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        GxError err = GX_ZERO;
        said.log[0] = 0;
        for (int i = 0; i < 3; i++)
            if (cases[c].has >> i & 1) gx_file_write(at(files[i]), "{}", 2, &err);
        gx_source_folder_warn(root, &heard);
        CHECK(lines(said.log) == (cases[c].said != NULL) && (!cases[c].said || strstr(said.log, cases[c].said)),
              "case %d: %s%s", (int)c, err.message, said.log);
        for (int i = 0; i < 3; i++) remove(at(files[i]));
    }
    GxError err = GX_ZERO; // chat templates: one is read, others are left out
    said.log[0] = 0;
    mkdir(at("additional_chat_templates"), 0777);
    gx_file_write(at("additional_chat_templates/default.jinja"), "D", 1, &err);
    gx_source_folder_warn(root, &heard);
    CHECK(!said.log[0], "%s", said.log);
    gx_file_write(at("additional_chat_templates/tool_use.jinja"), "T", 1, &err);
    gx_source_folder_warn(root, &heard);
    CHECK(lines(said.log) == 1 && strstr(said.log, "additional_chat_templates has 1 file besides default.jinja"), "%s",
          said.log);
    remove(at("additional_chat_templates/default.jinja")), remove(at("additional_chat_templates/tool_use.jinja"));
    rmdir(at("additional_chat_templates"));
}

// ---- our own files --------------------------------------------------------------------------------------------------

TEST(a_checkpoint_of_a_newer_version_is_not_gone_on_with)
{
    static GxResume r;
    static const GxField identity = {"text_kind", GX_FIELD_INT, 0, NULL, "of the text", NULL};
    static const char *const states[] = {
        "{\"galaxy_version\": \"9.9\", \"global_step\": 3, \"text_kind\": 7}",
        "{\"galaxy_version\": \"9.9\", \"text_kind\": 7, \"moments_are_shifted\": true}"};
    GxTask task = GX_ZERO;
    int64_t self = 7;
    task.name = "a task", task.options.size = sizeof self, task.checkpoint.identity = &identity,
    task.checkpoint.n_identity = 1;
    snprintf(r.folder, sizeof r.folder, "%s", root);
    for (int i = 0; i < 2; i++) {
        GxError err = GX_ZERO;
        gx_file_write(at("trainer_state.json"), states[i], (int64_t)strlen(states[i]), &err);
        const GxStatus status = gx_resume_check_task(&r, &task, &self, &err);
        if (i == 0) CHECK(status == GX_OK, "%s", err.message);
        else
            CHECK(status == GX_ERR_UNSUPPORTED && strstr(err.message, "has \"moments_are_shifted\"") &&
                      strstr(err.message, "continue with the version that wrote it (9.9)"),
                  "%s", err.message);
        remove(at("trainer_state.json"));
    }
}

TEST(a_run_of_a_newer_version_is_no_run_here_and_its_key_is_the_reason)
{
    GxRunInfo run = GX_ZERO;
    GxError err = GX_ZERO, why = GX_ZERO;
    GxJson *json = NULL;
    run.run = 77, run.world = 1, run.returns_to = -1;
    CHECK(gx_run_write(root, &run, &err) == GX_OK && gx_run_read_or_why(root, &why).run == 77, "%s%s", err.message,
          why.message);
    gx_json_read(&json, at("run.json"), 10000, &err);
    gx_json_set(json, "is_moving_to", gx_json_new_string("elsewhere"), &err);
    gx_json_write(json, at("run.json"), &err);
    gx_json_free(json);
    CHECK(gx_run_read_or_why(root, &why).run == 0 && strstr(why.message, "run.json has \"is_moving_to\""), "%s",
          why.message);
    remove(at("run.json"));
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
