// test_train_lora.cu: adapters as users meet them: --tuning lora in the training programs, generate_llama --adapter,
// merge_adapter. See test/program.h. What LoRA computes, test_lora.cu shows; that the package peft reads these folders,
// dev/ref/load_lora.py.
#define BASE "--model base/checkpoint-8 --tuning lora --lora_dim 3 "
#include "test/tuned_runs.h"
#include "galaxy/cpu/cpu.h"
#include "galaxy/cpu/quantize.h"
#include "galaxy/io/bnb.h"
#include "galaxy/text/chat.h"
#include "galaxy/io/claim.h"
#include "galaxy/base/tensors.h"
#include "galaxy/run/module_pattern.h"
#include "galaxy/run/peft.h"

// The file's names, with ", " behind each; free() it.
static char *tensor_names(const char *path)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    char *names = (char *)calloc(1, 1 << 16);
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return names;
    for (int i = 0; i < s.n; i++) strcat(strcat(names, s.entry[i].name), ", ");
    gx_safetensors_close(&s);
    return names;
}

// ---- what is saved --------------------------------------------------------------------------------------------------

TEST(a_checkpoint_has_the_adapter_alone_with_the_names_of_peft)
{
    static const char *const parts[] = {"self_attn.q_proj", "mlp.down_proj"};
    char name[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir saved --max_steps 2 --lora_alpha 6 --target_modules q_proj,mlp.down_proj "
                       "--trainable_modules model.norm"));
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 2 * 2 + 1, "%d tensors", s.n);
    for (int layer = 0; layer < 2; layer++)
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "base_model.model.model.layers.%d.%s.lora_%c.weight", layer, parts[i / 2],
                     i % 2 ? 'B' : 'A');
            CHECK(gx_safetensors_find(&s, name), "there is no %s", name);
        }
    CHECK(gx_safetensors_find(&s, "base_model.model.model.norm.weight"), "the norm is not there");
    gx_safetensors_close(&s);
    static const char *const said[] = {"\"r\": 3",
                                       "\"lora_alpha\": 6.0",
                                       "\"lora_dropout\": 0.05,",
                                       "\"CAUSAL_LM\"",
                                       "[\"q_proj\", \"down_proj\"]",
                                       "[\"model.norm\"]",
                                       "/base/checkpoint-8\"",
                                       NULL},
                             *const unsaid[] = {NULL};
    check_adapter_folder("saved/checkpoint-2", said, unsaid);
}

TEST(targets_in_one_layer_are_told_from_those_of_others)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir layer --max_steps 1 --lora_target_modules model.layers.1.mlp.up_proj"));
    CHECK(file_contains("layer/checkpoint-1/adapter_config.json", "[\"1.mlp.up_proj\"]"), "another list of targets");
}

static int has_factors(const char *names, const char *module)
{
    char name[200];
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", module);
    return strstr(names, name) != NULL;
}

TEST(targets_are_a_list_with_blanks_or_a_pattern_or_all)
{
    static const struct {
        const char *flags;
        int factors; // of two layers' matrices
        const char *has, *has_not;
    } cases[] = {
        {"--target_modules .*\\.1\\..*[qv]_proj", 2, "model.layers.1.self_attn.q_proj",
         "model.layers.0.self_attn.q_proj"},
        {"--target_modules model\\.layers\\.\\d\\.mlp\\.(up|down)_proj", 4, "model.layers.0.mlp.up_proj",
         "model.layers.0.mlp.gate_proj"},
        {"--target_modules all-linear", 14, "model.layers.1.mlp.gate_proj", "lm_head"},
        {"--config blanks.json", 4, "model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.k_proj"},
        {"--config list.json", 4, "model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.k_proj"},
    };
    char *tiny = read_text("tiny.json"), line[4096];
    const char *more[] = {
        "\"target_modules\": \"q_proj,  v_proj \", \"trainable_modules\": \" model.norm, input_layernorm\"}",
        "\"target_modules\": [\"q_proj\", \"v_proj\"]}"};
    GxError e = GX_ZERO;
    if (!make_base() || !gx_regex_is_built()) return;
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%.*s, %s", (int)(strrchr(tiny, '}') - tiny), tiny, more[i]);
        gx_file_write(i ? "list.json" : "blanks.json", line, (int64_t)strlen(line), &e);
    }
    free(tiny);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_RAN(run(BASE "--output_dir chosen --overwrite_output_dir true --max_steps 1 %s", cases[i].flags));
        char *names = tensor_names("chosen/checkpoint-1/adapter_model.safetensors");
        int factors = 0;
        for (const char *at = names; (at = strstr(at, ".lora_A.")) != NULL; at++) factors++;
        CHECK(factors == cases[i].factors && has_factors(names, cases[i].has) && !has_factors(names, cases[i].has_not),
              "%s: %s", cases[i].flags, names);
        CHECK(i != 3 || (strstr(names, ".norm.weight") && strstr(names, ".input_layernorm.weight")), "%s", names);
        free(names);
    }
    CHECK_RAN(run(BASE "--output_dir chosen2 --max_steps 2 --save_steps 1 --target_modules .*\\.1\\..*[qv]_proj"));
    CHECK_RAN(run("--resume chosen2/checkpoint-1 --output_dir chosen3"));
    check_same_checkpoint("chosen2/checkpoint-2", "chosen3/checkpoint-2");
}

// ---- some modules have another rank, or none ------------------------------------------------------------------------

#define SOME                                                                                                           \
    "--target_modules q_proj,v_proj,down_proj,lm_head --exclude_modules 1.mlp.down_proj --use_rslora --rank_pattern "  \
    "q_proj=2,layers.1.self_attn.v_proj=7 --alpha_pattern {\"v_proj\":2.5,\"lm_head\":4} "

static void expect_shape(const char *folder, const char *module, int64_t r, int64_t width)
{
    char name[200], path[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    snprintf(name, sizeof name, GX_PEFT_PREFIX "%s.lora_A.weight", module);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *t = gx_safetensors_find(&s, name);
    if (r == 0) CHECK(!t, "%s is there", name);
    else
        CHECK(t && t->shape[0] == r && (!width || t->shape[1] == width), "%s: %ld rows", name,
              t ? (long)t->shape[0] : -1L);
    gx_safetensors_close(&s);
}

TEST(ranks_and_alphas_of_some_modules_are_trained_saved_and_read_again)
{
    static const char config[] = "some/checkpoint-6/adapter_config.json";
    static const char *const ways[] = {SOME "--lora_dropout 0.2", "--layers_to_transform 1 --rank_pattern q_proj=5",
                                       NULL};
    if (!make_base()) return;
    CHECK_RAN(run(BASE SOME "--output_dir some --max_steps 6 --learning_rate 1e-2"));
    CHECK(strstr(out(), "not 1.mlp.down_proj") && strstr(out(), "with the ranks"), "%s", out());
    expect_shape("some/checkpoint-6", "model.layers.0.self_attn.q_proj", 2, 0);
    expect_shape("some/checkpoint-6", "model.layers.1.self_attn.q_proj", 2, 0);
    expect_shape("some/checkpoint-6", "model.layers.0.self_attn.v_proj", 3, 0);
    expect_shape("some/checkpoint-6", "model.layers.1.self_attn.v_proj", 7, 0);
    expect_shape("some/checkpoint-6", "model.layers.0.mlp.down_proj", 3, 0);
    expect_shape("some/checkpoint-6", "model.layers.1.mlp.down_proj", 0, 0);
    CHECK(file_contains(config, "\"layers.1.self_attn.v_proj\": 7") && file_contains(config, "\"v_proj\": 2.5") &&
              file_contains(config, "\"lm_head\": 4") && file_contains(config, "\"0.mlp.down_proj\""),
          "another adapter_config.json");
    CHECK_RAN(run("--adapter some/checkpoint-6 --output_dir some2 --max_steps 1 --learning_rate 0"));
    CHECK(same_file("some/checkpoint-6/adapter_model.safetensors", "some2/checkpoint-1/adapter_model.safetensors"),
          "others");
    CHECK(same_file(config, "some2/checkpoint-1/adapter_config.json"), "another configuration");
    CHECK(run("--adapter some/checkpoint-6 --rank_pattern q_proj=2 --output_dir some3 --max_steps 1") > 0 &&
              strstr(err(), "--lora_rank_pattern differs from that of the adapter"),
          "%s", err());
    CHECK_RAN(run("--adapter some/checkpoint-6 --rank_pattern {\"q_proj\":2,\"layers.1.self_attn.v_proj\":7} "
                  "--output_dir some3 --max_steps 1"));
    CHECK(run("--resume some/checkpoint-6 --rank_pattern q_proj=2 --max_steps 7") > 0 &&
              strstr(err(), "--lora_rank_pattern"),
          "%s", err());
    check_resumed(ways);
    shell("rm -rf whole? part?"); // others have these names, too
}

TEST(layers_of_lora_are_an_option)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir layers --max_steps 1 --lora_layers_to_transform 1 --lora_layers_pattern layers"));
    expect_shape("layers/checkpoint-1", "model.layers.0.mlp.up_proj", 0, 0);
    expect_shape("layers/checkpoint-1", "model.layers.1.mlp.up_proj", 3, 0);
    CHECK(file_contains("layers/checkpoint-1/adapter_config.json", "\"1.mlp.up_proj\""), "others");
}

TEST(every_mode_has_the_losses_of_serial_with_ranks_that_differ)
{
    check_every_mode(SOME "--lora_dropout 0.1");
    shell("rm -rf alone many?");
}

TEST(a_model_that_took_in_ranks_that_differ_writes_the_text_of_the_adapter)
{
    char *text[3], train[TEST_PATH], line[3000];
    static const char *const models[] = {"--adapter write_some/checkpoint-30", "--model merged_some",
                                         "--model base/checkpoint-8"};
    if (!make_base()) return;
    snprintf(train, sizeof train, "%s", program);
    CHECK_RAN(run(BASE SOME "--output_dir write_some --max_steps 30 --learning_rate 2e-2"));
    if (!use_program("merge_adapter")) return;
    snprintf(line, sizeof line, "%s --adapter write_some/checkpoint-30 --output_dir merged_some", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    use_program("generate_llama");
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s %s --prompt the --max_new_tokens 40 --threads 1", program, models[i]);
        start_line(line, 0);
        CHECK_RAN(finish());
        text[i] = strdup(out());
    }
    CHECK(!strcmp(text[0], text[1]) && strcmp(text[0], text[2]), "%s\n%s\n%s", text[0], text[1], text[2]);
    for (int i = 0; i < 3; i++) free(text[i]);
    snprintf(program, sizeof program, "%s", train);
}

TEST(a_name_that_means_no_module_is_warned_of_and_numbers_that_cannot_be_are_refused)
{
    static const Refusal cases[] = {
        {BASE "--lora_rank_pattern q_proj=0", {"--lora_rank_pattern: q_proj is 0; expected a number from 1 to 65536"}},
        {BASE "--lora_rank_pattern q_proj=1.5", {"--lora_rank_pattern: q_proj is 1.5; expected an integer"}},
        {BASE "--lora_rank_pattern q_proj", {"--lora_rank_pattern has \"q_proj\"; expected the names of modules"}},
        {BASE "--lora_rank_pattern =4", {"--lora_rank_pattern has \"=4\""}},
        {BASE "--lora_rank_pattern q_proj=", {"--lora_rank_pattern has \"q_proj=\""}},
        {BASE "--lora_rank_pattern q_proj=4x", {"--lora_rank_pattern has \"q_proj=4x\""}},
        {BASE "--lora_rank_pattern {", {"--lora_rank_pattern"}},
        {BASE "--lora_alpha_pattern q_proj=0", {"--lora_alpha_pattern: q_proj is 0; expected a number from 1e-06"}},
        {BASE "--lora_layers_to_transform 2", {"layers_to_transform names layer 2, which the model does not have"}},
        {BASE "--lora_layers_to_transform 0 --lora_target_modules .*q_proj",
         {"--lora_layers_to_transform needs modules that are named by the ends of their names"}},
        {BASE "--lora_layers_pattern layers", {"--lora_layers_pattern says where the numbers"}},
        {BASE "--target_modules q_proj --lora_exclude_modules q_proj", {"no module is left for LoRA"}},
        {BASE "--lora_exclude_modules *q", {"--lora_exclude_modules"}},
        {"--lora_rank_pattern q_proj=4 --model base/checkpoint-8", {"--lora_rank_pattern is an option for adapters"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir warned --max_steps 1 --lora_rank_pattern q_proj=4,lm_head=2 --lora_alpha_pattern "
                       "k_pro=1,layers.5.self_attn.q_proj=2 --lora_exclude_modules q_projs"));
    CHECK(strstr(err(), "rank_pattern: \"lm_head\" matches the end of no name of a module with LoRA") &&
              strstr(err(), "alpha_pattern: \"k_pro\"") && strstr(err(), "\"layers.5.self_attn.q_proj\"") &&
              strstr(err(), "exclude_modules: \"q_projs\" matches no module") && !strstr(err(), "\"q_proj\""),
          "%s", err());
    if (gx_regex_is_built()) CHECK_REFUSALS(cases);
}

// As peft writes them where few ends would mean too much.
TEST(a_thousand_characters_of_whole_names_are_read)
{
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    char names[2000] = "", line[4000], *config;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir whole_names --max_steps 1"));
    for (int i = 0; i < 14; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s\"model.layers.%d.%s\"", i ? ", " : "", i / 7,
                 parts[i % 7]);
    config = read_text("whole_names/checkpoint-1/adapter_config.json");
    char *at = strstr(config, "[\"q_proj\""), *end = at ? strchr(at, ']') : NULL;
    if (CHECK(end != NULL && strlen(names) > 400, "%s", config)) {
        snprintf(line, sizeof line, "%.*s[%s%s", (int)(at - config), config, names, end);
        shell("cp -r whole_names/checkpoint-1 long && rm long/manifest.json");
        gx_file_write("long/adapter_config.json", line, (int64_t)strlen(line), &e);
        CHECK_RAN(run("--adapter long --output_dir long2 --max_steps 1 --learning_rate 0"));
        CHECK(same_file("long/adapter_model.safetensors", "long2/checkpoint-1/adapter_model.safetensors"), "others");
        CHECK_RAN(run("--resume long2/checkpoint-1 --evaluate"));
    }
    free(config);
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"--lora_dropout 0.3", "--precision bf16 --save_dtype bf16",
                                       "--optimizer sgd --use_rslora --trainable_modules norm", NULL};
    check_resumed(ways);
}

TEST(weights_and_moments_survive_a_change_of_ranks_and_mode) { check_topologies(); }
TEST(every_mode_has_the_losses_of_serial) { check_every_mode("--lora_dropout 0.1"); }

// ---- the embedding --------------------------------------------------------------------------------------------------

#define EMBEDDING "--target_modules embed_tokens,q_proj "

TEST(an_embedding_has_factors_with_the_names_of_peft)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE EMBEDDING "--output_dir embedded --max_steps 2"));
    if (!CHECK(gx_safetensors_open(&s, "embedded/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s",
               e.message))
        return;
    const GxSafetensorsEntry *a = gx_safetensors_find(&s, "base_model.model.model.embed_tokens.lora_embedding_A"),
                             *b = gx_safetensors_find(&s, "base_model.model.model.embed_tokens.lora_embedding_B");
    CHECK(s.n == 2 + 2 * 2 && a && b, "%d tensors", s.n);
    CHECK(a && b && a->shape[0] == 3 && a->shape[1] == 256 && b->shape[0] == 32 && b->shape[1] == 3, "other shapes");
    gx_safetensors_close(&s);
    CHECK(file_contains("embedded/checkpoint-2/adapter_config.json", "[\"embed_tokens\", \"q_proj\"]"),
          "other targets");
    CHECK(!strstr(err(), "tied"), "%s", err());
}

TEST(a_run_with_lora_on_the_embedding_goes_on_with_the_same_bits)
{
    static const char *const ways[] = {EMBEDDING, EMBEDDING "--precision bf16 --save_dtype bf16",
                                       "--target_modules embed_tokens --optimizer sgd --recompute layer", NULL};
    shell("rm -rf whole* part*"); // of other runs
    check_resumed(ways);
}

TEST_UNSANITIZED(every_mode_has_the_losses_of_serial_with_lora_on_the_embedding)
{
    shell("rm -rf alone many?"); // of other runs
    check_every_mode(EMBEDDING);
}

// The text that a folder's model writes; free() it.
static char *text_of(const char *flags) { return written(flags, "--max_new_tokens 40"); }

static int merge(const char *flags)
{
    char train[TEST_PATH], line[3000];
    int status = 127;
    snprintf(train, sizeof train, "%s", program);
    if (use_program("merge_adapter")) {
        snprintf(line, sizeof line, "%s %s", program, flags);
        start_line(line, 0);
        status = finish();
    }
    snprintf(program, sizeof program, "%s", train);
    return status;
}

// Where LoRA is on one of two that are tied the other stays as it is: merged, they are two. warning: what is said of it
// then. And out of that folder it is taken again.
static void check_merged(const char *targets, int is_tied, const char *warning)
{
    static const char *const models[] = {"--adapter bound_lora/checkpoint-30", "--model bound_merged",
                                         "--model bound/checkpoint-8", "--model bound_taken"};
    char flags[200];
    double loss[4];
    shell("rm -rf bound bound_lora bound_merged bound_taken");
    CHECK_RAN(run("--output_dir bound --max_steps 8 --learning_rate 2e-2 --tie_word_embeddings %s",
                  is_tied ? "true" : "false"));
    CHECK_RAN(run("--model bound/checkpoint-8 --tuning lora --lora_dim 3 %s --output_dir bound_lora --max_steps 30 "
                  "--learning_rate 8e-2",
                  targets));
    CHECK(is_tied && warning ? strstr(err(), warning) != NULL : !strstr(err(), "warning: LoRA is on"), "%s", err());
    CHECK_RAN(merge("--adapter bound_lora/checkpoint-30 --output_dir bound_merged"));
    CHECK(!strstr(err(), "warning"), "%s", err());
    check_whole("bound_merged");
    CHECK(file_contains("bound_merged/config.json", "\"tie_word_embeddings\": false"), "it is tied");
    char *names = tensor_names("bound_merged/model.safetensors");
    CHECK(strstr(names, "lm_head.weight, "), "%s", names);
    free(names);
    char *with = text_of("--adapter bound_lora/checkpoint-30"), *two, *merged = text_of("--model bound_merged");
    snprintf(flags, sizeof flags, "--adapter bound_lora/checkpoint-30 --ranks 2");
    two = text_of(flags);
    CHECK(!strcmp(with, merged) && !strcmp(with, two) && strlen(with) > 20, "three texts: %s\n%s\n%s", with, merged,
          two);
    free(with), free(two), free(merged);
    CHECK_RAN(merge("--adapter bound_lora/checkpoint-30 --unmerge --model bound_merged --output_dir bound_taken"));
    for (int i = 0; i < 4; i++) {
        CHECK_RAN(run("%s --evaluate --max_eval_samples 0", models[i]));
        loss[i] = number_behind(out(), "validation loss ");
    }
    CHECK(fabs(loss[0] - loss[1]) <= 1e-4 && fabs(loss[0] - loss[2]) > 0.05 && fabs(loss[2] - loss[3]) <= 1e-4,
          "%s: losses %g, %g, of the base %g and %g", targets, loss[0], loss[1], loss[2], loss[3]);
}

// The file's tensor as numbers; NULL: there is none. free() it.
static float *numbers_of(const GxSafetensors *s, const char *format, const char *name, int64_t shape[2])
{
    char whole[300];
    GxError e = GX_ZERO;
    snprintf(whole, sizeof whole, format, name);
    const GxSafetensorsEntry *entry = gx_safetensors_find(s, whole);
    if (!entry) return NULL;
    float *x = (float *)malloc((size_t)entry->elements * sizeof *x + 1);
    CHECK(gx_safetensors_read(s, entry, 0, entry->elements, x, &e) == GX_OK, "%s", e.message);
    shape[0] = entry->shape[0], shape[1] = entry->ndim > 1 ? entry->shape[1] : 1;
    return x;
}

// Of two that are tied one is trained whole, and in the adapter's file; the other stays the base's, and is in none.
static void check_whole_of_two(const char *module, const char *own, const char *other)
{
    GxSafetensors base, merged, adapter;
    GxError e = GX_ZERO;
    int64_t shape[2];
    double loss[3];
    char listed[100];
    shell("rm -rf whole2_merged whole2 whole2_on");
    CHECK_RAN(
        run("--model bound/checkpoint-8 --tuning lora --lora_dim 3 --target_modules q_proj --trainable_modules %s "
            "--output_dir whole2 --max_steps 6 --save_steps 3 --learning_rate 2e-2",
            module));
    CHECK(strstr(err(), "are tied (tie_word_embeddings), but the adapter trains ") && strstr(err(), "they become two"),
          "%s", err());
    snprintf(listed, sizeof listed, "\"modules_to_save\": [\"%s\"]", module);
    CHECK(file_contains("whole2/checkpoint-6/adapter_config.json", listed), "it does not say %s", listed);
    CHECK_RAN(run("--resume whole2/checkpoint-3 --output_dir whole2_on --ranks 1"));
    check_same_checkpoint("whole2/checkpoint-6", "whole2_on/checkpoint-6");
    CHECK_RAN(merge("--adapter whole2/checkpoint-6 --output_dir whole2_merged"));
    CHECK(file_contains("whole2_merged/config.json", "\"tie_word_embeddings\": false"), "it is tied");
    if (!CHECK(gx_safetensors_open(&base, "bound/checkpoint-8", &e) == GX_OK &&
                   gx_safetensors_open(&merged, "whole2_merged", &e) == GX_OK &&
                   gx_safetensors_open(&adapter, "whole2/checkpoint-6/adapter_model.safetensors", &e) == GX_OK,
               "%s", e.message))
        return;
    float *tied = numbers_of(&base, "%s", "model.embed_tokens.weight", shape),
          *same = numbers_of(&merged, "%s", other, shape), *its = numbers_of(&merged, "%s", own, shape),
          *saved = numbers_of(&adapter, GX_PEFT_PREFIX "%s", own, shape);
    const size_t bytes = (size_t)(shape[0] * shape[1]) * sizeof *tied;
    CHECK(tied && same && its && saved && !memcmp(tied, same, bytes) && memcmp(tied, its, bytes) &&
              !memcmp(its, saved, bytes),
          "%s is not the adapter's, or %s not the base's", own, other);
    free(tied), free(same), free(its), free(saved);
    gx_safetensors_close(&base), gx_safetensors_close(&merged), gx_safetensors_close(&adapter);
    static const char *const models[] = {"--adapter whole2/checkpoint-6", "--model whole2_merged",
                                         "--adapter whole2/checkpoint-6 --ranks 2 --mode tp"};
    for (int i = 0; i < 3; i++) {
        CHECK_RAN(run("%s --evaluate --max_eval_samples 0", models[i]));
        loss[i] = number_behind(out(), "validation loss ");
    }
    CHECK(fabs(loss[0] - loss[1]) <= 1e-4 && fabs(loss[0] - loss[2]) <= 1e-4, "%s: losses %g, merged %g, of ranks %g",
          module, loss[0], loss[1], loss[2]);
    char *with = text_of("--adapter whole2/checkpoint-6"), *without = text_of("--model whole2_merged");
    CHECK(!strcmp(with, without) && strlen(with) > 20, "two texts: %s\n%s", with, without);
    free(with), free(without);
}

// By ensure_weight_tying peft saves the head with the embedding, and has the embedding alone in the list. Where they
// are not tied it saves the embedding.
static void check_tied_by_peft(const char *flags, const char *listed)
{
    double loss[2];
    shell("rm -rf both_whole of_peft3");
    CHECK_RAN(run("%s --tuning lora --lora_dim 3 --target_modules q_proj --output_dir both_whole --max_steps 3 "
                  "--learning_rate 2e-2",
                  flags));
    CHECK(file_contains("both_whole/checkpoint-3/adapter_config.json", listed), "it does not say %s", listed);
    shell("mkdir of_peft3 && cp both_whole/checkpoint-3/adapter_* of_peft3 && "
          "sed -i 's/\"modules_to_save\": .*\\]/\"ensure_weight_tying\": true, \"modules_to_save\": "
          "[\"model.embed_tokens\"]/' of_peft3/adapter_config.json");
    for (int i = 0; i < 2; i++) {
        CHECK_RAN(run("--adapter %s --evaluate --max_eval_samples 0", i ? "of_peft3" : "both_whole/checkpoint-3"));
        loss[i] = number_behind(out(), "validation loss ");
    }
    CHECK(loss[0] == loss[1] && file_contains("of_peft3/adapter_config.json", "ensure_weight_tying"),
          "losses %g, with ensure_weight_tying %g", loss[0], loss[1]);
}

TEST(one_of_two_tied_matrices_is_trained_whole_and_the_other_stays)
{
    shell("rm -rf bound");
    CHECK_RAN(run("--output_dir bound --max_steps 8 --learning_rate 2e-2 --tie_word_embeddings true"));
    check_whole_of_two("embed_tokens", "model.embed_tokens.weight", "lm_head.weight");
    if (!is_brief()) check_whole_of_two("lm_head", "lm_head.weight", "model.embed_tokens.weight");
    check_tied_by_peft("--model bound/checkpoint-8 --trainable_modules embed_tokens,lm_head",
                       "\"modules_to_save\": [\"embed_tokens\", \"lm_head\"]");
    if (make_base())
        check_tied_by_peft("--model base/checkpoint-8 --trainable_modules embed_tokens",
                           "\"modules_to_save\": [\"embed_tokens\"]");
}

TEST(an_embedding_is_merged_and_a_head_that_is_tied_to_it_is_not)
{
    if (!is_brief()) check_merged(EMBEDDING, 0, NULL);
    check_merged(EMBEDDING, 1, "warning: LoRA is on model.embed_tokens.weight, to which the head is tied");
}

// A folder of peft's whose copy of a matrix is of `module`.
static void check_copy(const char *name, const char *module)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    char tensor[200], said[300];
    shell("mkdir -p data && ln -sfn %s/data/ref data/ref && rm -rf copied of_peft && cp -r data/ref/%s copied",
          repository, name);
    if (!CHECK(gx_safetensors_open(&s, "copied/adapter_model.safetensors", &e) == GX_OK, "%s", e.message)) return;
    snprintf(tensor, sizeof tensor, "base_model.model.%s.base_layer.weight", module);
    const GxSafetensorsEntry *copy = gx_safetensors_find(&s, tensor);
    const int64_t at = copy ? copy->offset + 4 * 100 : 0;
    gx_safetensors_close(&s);
    if (!CHECK(copy != NULL, "there is no copy")) return;
    CHECK_RAN(merge("--adapter copied --output_dir of_peft"));
    shell("printf '\\125' | dd of=copied/adapter_model.safetensors bs=1 seek=%ld conv=notrunc status=none",
          (long)at + 1);
    snprintf(said, sizeof said, "copied has %s, peft's copy of a matrix", tensor);
    CHECK(merge("--adapter copied --output_dir refused_copy") > 0 && strstr(err(), said) && !exists("refused_copy"),
          "%s", err());
}

// peft's files have a copy of the embedding and of the head: it has to be that of the model.
TEST(a_copy_of_a_matrix_in_a_file_of_peft_is_the_models_own)
{
    check_copy("lora_embed_tied", "model.embed_tokens");
    check_copy("lora_head", "lm_head");
    check_copy("lora_head_tied", "lm_head");
    check_copy("lora_head_both", "lm_head");
    check_copy("lora_head_both", "model.embed_tokens");
}

// ---- the head -------------------------------------------------------------------------------------------------------

#define HEAD "--target_modules lm_head,q_proj "

TEST(a_head_has_factors_with_the_names_of_peft)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE HEAD "--output_dir headed --max_steps 2"));
    if (!CHECK(gx_safetensors_open(&s, "headed/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    const GxSafetensorsEntry *a = gx_safetensors_find(&s, "base_model.model.lm_head.lora_A.weight"),
                             *b = gx_safetensors_find(&s, "base_model.model.lm_head.lora_B.weight");
    CHECK(s.n == 2 + 2 * 2 && a && b, "%d tensors", s.n);
    CHECK(a && b && a->shape[0] == 3 && a->shape[1] == 32 && b->shape[0] == 256 && b->shape[1] == 3, "other shapes");
    gx_safetensors_close(&s);
    CHECK(file_contains("headed/checkpoint-2/adapter_config.json", "[\"q_proj\", \"lm_head\"]") &&
              file_contains("headed/checkpoint-2/adapter_config.json", "\"CAUSAL_LM\""),
          "other targets");
    CHECK(!strstr(err(), "tied"), "%s", err());
    if (!gx_regex_is_built()) return;
    CHECK_RAN(run(BASE "--target_modules .*\\.q_proj|lm_head --output_dir headed2 --max_steps 2"));
    CHECK(same_file("headed/checkpoint-2/adapter_model.safetensors", "headed2/checkpoint-2/adapter_model.safetensors"),
          "another adapter by a regular expression");
}

// A head has factors where it is named alone.
TEST(no_head_is_among_all_linear)
{
    if (!make_base()) return;
    for (int i = 0; i < 2; i++) {
        CHECK_RAN(run(BASE "--output_dir linear%d --max_steps 1 %s", i, i ? "--target_modules all-linear" : ""));
        char *names = tensor_names(i ? "linear1/checkpoint-1/adapter_model.safetensors"
                                     : "linear0/checkpoint-1/adapter_model.safetensors");
        CHECK(has_factors(names, "model.layers.0.mlp.down_proj") && !strstr(names, "lm_head"), "%s", names);
        free(names);
    }
}

TEST(a_run_with_lora_on_the_head_goes_on_with_the_same_bits)
{
    static const char *const ways[] = {
        HEAD "--lora_dropout 0.3 --head_chunk 7", HEAD "--precision bf16 --save_dtype bf16",
        "--target_modules lm_head --optimizer sgd --recompute layer", HEAD "--quantize nf4", NULL};
    shell("rm -rf whole* part*"); // of other runs
    check_resumed(ways);
}

TEST_UNSANITIZED(every_mode_has_the_losses_of_serial_with_lora_on_the_head)
{
    shell("rm -rf alone many?"); // of other runs
    check_every_mode(HEAD "--lora_dropout 0.2 --head_chunk 20");
}

// Tied, it is the embedding that stays as it is; where both have factors, each has its own.
TEST(a_head_is_merged_and_an_embedding_that_it_is_tied_to_is_not)
{
    if (is_brief()) {
        check_merged("--target_modules lm_head,embed_tokens", 1, NULL);
        return;
    }
    check_merged(HEAD, 0, NULL);
    check_merged(HEAD, 1,
                 "warning: LoRA is on lm_head.weight, which is tied to the embedding (tie_word_embeddings): it changes "
                 "only the head");
    check_merged("--target_modules lm_head,embed_tokens", 1, NULL);
}

TEST(a_conversation_takes_another_adapter_of_the_head)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE HEAD "--output_dir head_one --max_steps 30 --learning_rate 2e-2"));
    CHECK_RAN(run(BASE HEAD "--output_dir head_two --max_steps 30 --learning_rate 8e-2 --seed 2"));
    CHECK_RAN(run(BASE "--target_modules q_proj --output_dir no_head --max_steps 1"));
    char *one = talk("--adapter head_one/checkpoint-30", "the\\n"),
         *two = talk("--adapter head_two/checkpoint-30", "the\\n"),
         *other = talk("--adapter head_one/checkpoint-30", "/adapter head_two/checkpoint-30\\nthe\\n");
    CHECK(strcmp(one, two) && !strcmp(two, other), "%s\n%s\n%s", one, two, other);
    free(other);
    other = talk("--adapter head_one/checkpoint-30", "/adapter no_head/checkpoint-1\\nthe\\n");
    CHECK(!strcmp(one, other) && strstr(err(), "lm_head.lora_A.weight, which the adapter needs"), "%s\n%s", other,
          err());
    free(one), free(two), free(other);
}

// ---- train_config ---------------------------------------------------------------------------------------------------

TEST(files_of_train_config_are_taken_with_a_model_and_a_text)
{
    static const char *const files[][2] = {
        {"full", "\"tuning\": \"full\""},         {"lora", "\"lora_dim\": 16"},
        {"qlora", "\"quantize\": \"nf4\""},       {"adapter", "\"tuning\": \"adapter\""},
        {"side", "\"side_reduction_factor\": 8"}, {"side_only", "\"tuning\": \"side_only\""},
        {"prompt", "\"prompt_len\": 10"}};
    char line[4000];
    if (!make_base()) return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(line, sizeof line,
                 "%s --config %s/train_config/llama/%s.json --model base/checkpoint-8 --train_data text.txt "
                 "--max_steps 1 --gradient_accumulation_steps 1 --seq_len 32 --output_dir config_%s",
                 program, repository, files[i][0], files[i][0]);
        start_line(line, 0);
        CHECK_RAN(finish());
        snprintf(line, sizeof line, "config_%s/training_args.json", files[i][0]);
        CHECK(file_contains(line, files[i][1]), "%s: no %s", line, files[i][1]);
    }
}

// One file serves every mode: that is the program's, or --mode's. The programs take turns.
TEST_UNSANITIZED(files_of_train_config_are_taken_by_the_program_of_every_mode)
{
    static const char *const programs[] = {"train_llama_tp", "train_llama_sp", "train_llama_galaxy",
                                           "train_llama_galaxy2"};
    static const char *const files[] = {"full", "lora", "qlora", "adapter", "side", "side_only", "prompt"};
    char line[4000];
    if (!make_base()) return;
    for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
        if (!use_program(programs[p])) return;
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            if (!test_long() && (p + i) % 4 != 0) continue;
            snprintf(line, sizeof line,
                     "%s --config %s/train_config/llama/%s.json --model base/checkpoint-8 --train_data text.txt "
                     "--ranks 2 --max_steps 1 --micro_batch_size 2 --gradient_accumulation_steps 1 --seq_len 32 "
                     "--max_eval_samples 1 --output_dir of_mode%d_%d",
                     program, repository, files[i], (int)p, (int)i);
            start_line(line, 0);
            CHECK_RAN(finish());
            CHECK(strstr(out(), programs[p] + strlen("train_llama_")), "%s, %s: %s", programs[p], files[i], out());
        }
    }
    use_program("train_llama");
}

// ---- a base in few bits --------------------------------------------------------------------------------------------

// However the matrices are cut, each has the bytes that it has on one rank.
TEST_UNSANITIZED(a_quantised_base_gives_every_mode_the_losses_of_serial)
{
    static const char *const ways[] = {"--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
                                       "--ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150", "--ranks 2 --tp 1"};
    char flags[400], dir[40];
    if (!make_base()) return;
    for (int kind = 0; kind < 2; kind++) {
        snprintf(flags, sizeof flags, BASE TUNED_STEPS "--quantize %s", kind ? "int8" : "nf4");
        CHECK_RAN(run("%s --output_dir few%d", flags, kind));
        snprintf(dir, sizeof dir, "few%d", kind);
        const Log serial = read_log(dir);
        for (int i = 0; i < 3; i++) {
            snprintf(dir, sizeof dir, "few%d_%d", kind, i);
            check_way(flags, dir, &serial, ways[i], i == 2 ? 2 : 1);
        }
    }
    CHECK_RAN(run(BASE TUNED_STEPS "--output_dir many_bits"));
    const Log nf4 = read_log("few0"), int8 = read_log("few1"), all = read_log("many_bits");
    const double off[2] = {fabs(nf4.loss[0] - all.loss[0]), fabs(int8.loss[0] - all.loss[0])};
    CHECK(off[0] > 0 && off[1] > 0 && off[1] < off[0] && off[0] < 0.1 * all.loss[0],
          "the losses of a base in 4 and in 8 bits are %g and %g from that of the base", off[0], off[1]);
}

// A folder as transformers saves it of a model that bitsandbytes quantised.
static void save_quantized(const char *from, const char *to, GxQuantKind kind)
{
    enum { MOST = 64 };
    static GxSafetensorsEntry entry[MOST * GX_BNB_ENTRIES];
    char path[TEST_PATH], text[4000], *config;
    GxSafetensors s;
    GxSafetensorsWriter to_file;
    GxQuantized w[MOST] = GX_ZERO;
    GxContext g = GX_ZERO;
    GxError *e = &g.error;
    int n = 0;
    g.device = gx_device_cpu(), g.threads = 1, g.world = 1;
    shell("cp -r %s %s && rm %s/manifest.json", from, to, to);
    snprintf(path, sizeof path, "%s/config.json", to);
    config = read_text(path);
    snprintf(text, sizeof text, "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", %s}, %s",
             kind == GX_INT8 ? "\"load_in_8bit\": true" : "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"",
             strchr(config, '{') + 1);
    gx_file_write(path, text, (int64_t)strlen(text), e);
    free(config);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    if (!CHECK(gx_safetensors_open(&s, path, e) == GX_OK && s.n <= MOST, "%s", e->message)) return;
    float *x[MOST] = {NULL};
    for (int i = 0; i < s.n; i++) {
        const GxSafetensorsEntry *old = &s.entry[i];
        x[i] = (float *)malloc((size_t)old->elements * 4 + 1);
        gx_safetensors_read(&s, old, 0, old->elements, x[i], e);
        if (!strstr(old->name, "_proj.")) {
            entry[n++] = *old;
            continue;
        }
        w[i] = gx_quantized(kind, old->shape[0], old->shape[1], NULL);
        const int64_t bytes = gx_quantized_bytes(&w[i]);
        w[i] = gx_quantized(kind, old->shape[0], old->shape[1],
                            aligned_alloc(GX_ALIGN, (size_t)gx_round_up(bytes, GX_ALIGN)));
        float *absmax = (float *)malloc((size_t)gx_quantized_blocks(&w[i]) * 4);
        gx_cpu_quantize(&g, &w[i], absmax, x[i]);
        n += gx_bnb_entries(entry + n, old->name, &w[i], GX_F32, e);
        free(absmax);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK(gx_safetensors_create(&to_file, path, entry, n, NULL, 0, e) == GX_OK, "%s", e->message);
    for (int i = 0; i < s.n && !gx_error_code(e); i++) {
        if (w[i].codes) gx_bnb_write(&to_file, s.entry[i].name, &w[i], GX_F32, e);
        else gx_safetensors_write_floats(&to_file, s.entry[i].name, 0, x[i], s.entry[i].elements, e);
        free(x[i]), free(w[i].codes);
    }
    CHECK(gx_safetensors_finish(&to_file, e) == GX_OK, "%s", e->message);
    gx_safetensors_close(&s);
}

// To the bit what is quantised as it is read; in modes, of which each kind takes others, and when a run goes on.
TEST(a_folder_that_is_quantised_already_is_the_model_that_is_quantised_as_it_is_read)
{
    static const char *const ways[] = {"--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
                                       "--ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150", "--ranks 2 --mode sp",
                                       "--ranks 2 --mode galaxy"};
    static const char *const names[] = {"nf4_plain", "nf4", "int8"};
    char flags[400], dir[40], file[2][100];
    if (!make_base()) return;
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++) {
        snprintf(dir, sizeof dir, "packed%d", kind);
        save_quantized("base/checkpoint-8", dir, (GxQuantKind)kind);
        CHECK_RAN(run(BASE TUNED_STEPS "--quantize %s --output_dir as_read%d", names[kind], kind));
        snprintf(flags, sizeof flags, "--model packed%d --tuning lora --lora_dim 3 " TUNED_STEPS "--quantize %s", kind,
                 names[kind]);
        CHECK_RAN(run("%s --save_steps 2 --output_dir as_it_is%d", flags, kind));
        CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
        snprintf(file[0], sizeof file[0], "as_read%d/checkpoint-4/adapter_model.safetensors", kind);
        snprintf(file[1], sizeof file[1], "as_it_is%d/checkpoint-4/adapter_model.safetensors", kind);
        CHECK(same_file(file[0], file[1]), "%s: another adapter", names[kind]);
        snprintf(dir, sizeof dir, "as_it_is%d", kind);
        const Log serial = read_log(dir);
        for (int i = 0; i < 4; i++) {
            if (!test_long() && i % GX_QUANT_KINDS != kind) continue;
            snprintf(dir, sizeof dir, "packed%d_%d", kind, i);
            check_way(flags, dir, &serial, ways[i], 1);
        }
        CHECK_RAN(run("--resume as_it_is%d/checkpoint-2 --output_dir on%d", kind, kind));
        snprintf(file[0], sizeof file[0], "as_it_is%d/checkpoint-4", kind);
        snprintf(file[1], sizeof file[1], "on%d/checkpoint-4", kind);
        check_same_checkpoint(file[0], file[1]);
    }
    char *one = written("--adapter as_read1/checkpoint-4 --quantize nf4", ""),
         *two = written("--adapter as_it_is1/checkpoint-4 --quantize nf4", ""),
         *more = written("--adapter as_it_is1/checkpoint-4 --quantize nf4 --ranks 2", "");
    CHECK(!strcmp(one, two) && !strcmp(one, more) && strlen(one) > 10, "three texts: %s\n%s\n%s", one, two, more);
    free(one), free(two), free(more);
    CHECK(run("--model packed1 --tuning lora --output_dir refused_bits") > 0 &&
              strstr(err(), "proj.weight quantized by bitsandbytes (nf4), but in this run it is not quantized") &&
              strstr(err(), "--quantize nf4 keeps"),
          "%s", err());
    CHECK(run("--model packed1 --tuning lora --quantize int8 --output_dir refused_bits") > 0 &&
              strstr(err(), "quantized by bitsandbytes (nf4), but in this run it is int8"),
          "%s", err());
    CHECK(run("--model packed0 --output_dir refused_bits") > 0 &&
              strstr(err(), "quantized by bitsandbytes (nf4_plain)"),
          "%s", err());
    CHECK(merge("--adapter as_it_is1/checkpoint-4 --output_dir refused_bits") > 0 &&
              strstr(err(), "quantized by bitsandbytes (nf4)"),
          "%s", err());
    CHECK_RAN(merge("--adapter as_it_is1/checkpoint-4 --model base/checkpoint-8 --output_dir into_numbers"));
    CHECK(strstr(err(), "are not those that the adapter") && strstr(err(), "with --quantize nf4"), "%s", err());
    shell("cd packed1 && truncate -s -8 model.safetensors");
    CHECK(run("--model packed1 --tuning lora --quantize nf4 --ranks 2 --output_dir refused_bits") > 0, "it was taken");
    CHECK(strstr(err(), "packed1/model.safetensors: "), "%s", err());
    CHECK(!exists("refused_bits/checkpoint-1"), "it was trained all the same");
}

TEST(a_run_on_a_quantised_base_goes_on_with_the_same_bits_and_with_no_other_base)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--quantize nf4 --output_dir bits --max_steps 4 --save_steps 2"));
    CHECK_RAN(run("--resume bits/checkpoint-2 --output_dir bits2"));
    check_same_checkpoint("bits/checkpoint-4", "bits2/checkpoint-4");
    CHECK_RAN(run("--resume bits/checkpoint-2 --output_dir bits3 --ranks 2 --mode tp"));
    CHECK(run("--resume bits/checkpoint-2 --output_dir bits4 --quantize int8") > 0 && strstr(err(), "quantize"), "%s",
          err());
    CHECK_RAN(run("--adapter bits/checkpoint-4 --quantize nf4 --evaluate"));
    char with[40];
    const char *at = strstr(out(), "validation loss ");
    snprintf(with, sizeof with, "%.24s", at ? at : "none");
    CHECK_RAN(run("--resume bits/checkpoint-4 --evaluate")); // quantised, as its run was
    CHECK(strstr(out(), with) && strstr(out(), "the model in nf4"), "not %s: %s", with, out());
}

TEST(ranks_write_the_same_text_with_a_quantised_model_and_merging_warns_of_it)
{
    char *text[2], train[TEST_PATH], line[3000];
    if (!make_base()) return;
    snprintf(train, sizeof train, "%s", program);
    CHECK_RAN(run(BASE "--quantize nf4 --output_dir few_bits --max_steps 2"));
    if (!use_program("generate_llama")) return;
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s --adapter few_bits/checkpoint-2 --quantize int8 --prompt the --threads 1%s",
                 program, i ? " --ranks 2" : "");
        start_line(line, 0);
        CHECK_RAN(finish());
        text[i] = strdup(out());
    }
    CHECK(!strcmp(text[0], text[1]) && strlen(text[0]) > 20, "two texts: %s\n%s", text[0], text[1]);
    free(text[0]), free(text[1]);
    use_program("merge_adapter");
    snprintf(line, sizeof line, "%s --adapter few_bits/checkpoint-2 --output_dir merged_bits", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    CHECK(strstr(err(), "was trained on a model with --quantize nf4, but here it is none") &&
              strstr(err(), "the merged model differs from the one that was trained"),
          "%s", err());
    check_whole("merged_bits");
    snprintf(program, sizeof program, "%s", train);
}

TEST(what_cannot_be_quantised_is_refused)
{
    if (!make_base()) return;
    CHECK(run("--model base/checkpoint-8 --quantize nf4 --output_dir refused") > 0 &&
              strstr(err(), "--quantize is an option for adapters, but --tuning full trains none"),
          "%s", err());
    CHECK(run(BASE "--quantize nf5 --output_dir refused") > 0 && strstr(err(), "int8"), "%s", err());
    shell("cp -r base/checkpoint-8 infinite && cd infinite && rm manifest.json");
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, "infinite/model.safetensors", &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *entry = gx_safetensors_find(&s, "model.layers.1.mlp.down_proj.weight");
    const int64_t at = entry->offset + 4 * (entry->shape[1] + 2);
    gx_safetensors_close(&s);
    shell("printf '\\000\\000\\200\\177' | dd of=infinite/model.safetensors bs=1 seek=%ld conv=notrunc status=none",
          (long)at);
    CHECK(run("--model infinite --tuning lora --quantize int8 --output_dir refused --ranks 2 --mode tp") > 0 &&
              strstr(err(), "model.layers.1.mlp.down_proj.weight has the value inf in row 1, column 2"),
          "%s", err());
    CHECK(!exists("refused/checkpoint-1"), "it was trained all the same");
}

TEST(a_base_that_was_moved_is_named_and_told_by_its_weights)
{
    if (!make_base()) return;
    shell("cp -r base/checkpoint-8 here && cp -r base/checkpoint-8 bad && cd bad && rm manifest.json && "
          "printf '\\125' | dd of=model.safetensors bs=1 seek=20001 conv=notrunc status=none");
    CHECK_RAN(run("--model here --tuning lora --output_dir moved --max_steps 4 --save_steps 2"));
    shell("mv here there && cp -r moved moved2 && rm -r moved2/checkpoint-4");
    CHECK(run("--resume moved/checkpoint-2 --output_dir moved3") > 0 &&
              strstr(err(), "is an adapter of the model here, but there is no such folder; name the folder of the "
                            "model with --model"),
          "%s", err());
    CHECK(run("--resume moved/checkpoint-2 --model bad --output_dir moved3") > 0 &&
              strstr(err(), "the weights of bad are not those"),
          "%s", err());
    CHECK_RAN(run("--resume moved/checkpoint-2 --model there --output_dir moved3"));
    check_same_checkpoint("moved/checkpoint-4", "moved3/checkpoint-4");
    CHECK_RAN(run("--resume auto --model there --output_dir moved2"));
    check_same_checkpoint("moved/checkpoint-4", "moved2/checkpoint-4");
    CHECK_RAN(run("--adapter moved/checkpoint-4 --model bad --evaluate"));
    CHECK(strstr(err(), "the weights of bad are not those that the adapter moved/checkpoint-4 was trained on"), "%s",
          err());
}

TEST(a_base_that_was_changed_is_refused) { check_changed_base(); }
TEST(a_run_whose_adapter_config_was_changed_is_refused)
{
    check_changed_config("s/\"r\": 3/\"r\": 4/", "says r 4, lora_alpha ");
    check_changed_config_of("--alpha_pattern q_proj=2", "s/\"q_proj\": 2/\"q_proj\": 3/",
                            "says the alpha_pattern {\"q_proj\":3}, but this run's adapter has {\"q_proj\":2}");
    check_changed_config_of("--rank_pattern q_proj=2", "s/\"q_proj\": 2/\"q_proj\": 3/", "says the rank_pattern");
}

// training_args.json of a run has what followed from its options, too.
TEST(a_run_that_begins_again_another_way_has_that_ways_defaults)
{
    static const struct {
        const char *flags, *rate, *alpha;
    } ways[] = {
        {"--tuning lora --lora_dim 4", "\"learning_rate\": 0.0002,", "\"lora_alpha\": 8.0,"},
        {"--lora_dim 2", "\"learning_rate\": 0.0002,", "\"lora_alpha\": 4.0,"},
        {"--lora_alpha 5", "\"learning_rate\": 0.0002,", "\"lora_alpha\": 5.0,"},
        {"--lora_dim 3", "\"learning_rate\": 0.0002,", "\"lora_alpha\": 5.0,"},
        {"--tuning full", "\"learning_rate\": 2e-05,", "\"tuning\": \"full\""},
        {"--learning_rate 1e-3", "\"learning_rate\": 0.001,", "\"tuning\": \"full\""},
        {"--tuning lora", "\"learning_rate\": 0.001,", "\"tuning\": \"lora\""},
    };
    if (!make_base()) return;
    CHECK_RAN(run("--model base/checkpoint-8 --output_dir again --max_steps 1"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -r again/checkpoint-1");
        CHECK_RAN(run("--resume auto --output_dir again %s", ways[i].flags));
        CHECK(file_contains("again/training_args.json", ways[i].rate) &&
                  file_contains("again/training_args.json", ways[i].alpha),
              "%s: not %s and %s", ways[i].flags, ways[i].rate, ways[i].alpha);
    }
}

TEST(a_torn_checkpoint_is_not_shown_as_what_the_run_began_with)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir torn_run --max_steps 2 --save_steps 1 --learning_rate 5e-2"));
    CHECK_RAN(run("--evaluate --resume torn_run/checkpoint-1"));
    const double loss = number_behind(out(), "validation loss ");
    shell("printf x >> torn_run/checkpoint-2/adapter_model.safetensors");
    CHECK_RAN(run("--evaluate --resume auto --output_dir torn_run"));
    CHECK(strstr(err(), "torn_run/checkpoint-2 is incomplete, and is skipped") &&
              loss == number_behind(out(), "validation loss "),
          "%s%s", out(), err());
    shell("printf x >> torn_run/checkpoint-1/adapter_model.safetensors");
    CHECK(run("--evaluate --resume auto --output_dir torn_run") > 0 &&
              strstr(err(), "the run in torn_run has no complete checkpoint to show"),
          "%s%s", out(), err());
}

// ---- an adapter to begin with ---------------------------------------------------------------------------------------

TEST(a_run_begins_with_an_adapter_as_it_was_saved)
{
    check_begun_with(20, "--learning_rate 2e-2", 0.01, "--lora_dropout 0");
}

TEST(an_adapter_brings_its_own_dropout_and_the_files_of_a_run_in_bf16_are_its_own)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir own --max_steps 2 --lora_dropout 0.25 --precision bf16 --save_dtype bf16"));
    if (!CHECK(gx_safetensors_open(&s, "own/checkpoint-2/optimizer.safetensors", &e) == GX_OK, "%s", e.message)) return;
    CHECK(s.n == 3 * 2 * 7 * 2, "%d tensors; a master and two moments of 28 factors are 84", s.n);
    gx_safetensors_close(&s);
    CHECK_RAN(run("--adapter own/checkpoint-2 --output_dir own2 --max_steps 1"));
    CHECK(strstr(out(), "LoRA: r 3, alpha 6, dropout 0.25,"), "%s", out());
}

TEST(norms_of_many_layers_are_named_by_what_they_end_with)
{
    CHECK_RAN(run("--config no_model.json --hidden_size 32 --intermediate_size 64 --num_attention_heads 4 "
                  "--num_key_value_heads 2 --num_hidden_layers 12 --output_dir deep --max_steps 1"));
    CHECK_RAN(run("--config no_model.json --model deep/checkpoint-1 --tuning lora --output_dir deep_lora --max_steps 1 "
                  "--trainable_modules input_layernorm"));
    CHECK(file_contains("deep_lora/checkpoint-1/adapter_config.json", "[\"input_layernorm\"]"), "other names");
}

TEST(a_merged_model_and_the_adapter_write_the_same_text)
{
    char *text[4];
    static const char *const models[] = {"--adapter write/checkpoint-30", "--adapter write/checkpoint-30 --ranks 2",
                                         "--model merged", "--model base/checkpoint-8"};
    char train[TEST_PATH], line[3000];
    if (!make_base()) return;
    snprintf(train, sizeof train, "%s", program);
    CHECK_RAN(run(BASE "--output_dir write --max_steps 30 --learning_rate 2e-2"));
    if (!use_program("merge_adapter")) return;
    snprintf(line, sizeof line, "%s --adapter write/checkpoint-30 --output_dir merged", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    check_whole("merged");
    use_program("generate_llama");
    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "%s %s --prompt the --max_new_tokens 40 --threads 1", program, models[i]);
        start_line(line, 0);
        CHECK_RAN(finish());
        text[i] = strdup(out());
    }
    use_program("merge_adapter");
    snprintf(line, sizeof line, "%s --adapter write/checkpoint-30 --model merged --output_dir merged_twice", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    CHECK(strstr(err(), "warning: the weights of merged are not those that the adapter"), "%s", err());
    GxClaim claim; // as another process that merges into the same folder
    GxError e = GX_ZERO;
    CHECK(gx_claim_folder(&claim, "merged_thrice", &e) == GX_OK, "%s", e.message);
    snprintf(line, sizeof line, "%s --adapter write/checkpoint-30 --output_dir merged_thrice", program);
    start_line(line, 0);
    CHECK(finish() != 0 && strstr(err(), "merged_thrice is being written by process"), "%s", err());
    CHECK(gx_claim_publish(&claim, GX_ERR_ARGUMENT, &e) != GX_OK && !exists("merged_thrice"), "something was made");
    snprintf(line, sizeof line, "env OMPI_COMM_WORLD_SIZE=2 %s --adapter write/checkpoint-30 --output_dir twice",
             program);
    start_line(line, 0);
    CHECK(finish() != 0 && strstr(err(), "one of 2 processes") && !exists("twice"), "%s", err());
    CHECK(!strcmp(text[0], text[1]) && !strcmp(text[0], text[2]), "three texts: %s\n%s\n%s", text[0], text[1], text[2]);
    CHECK(strcmp(text[0], text[3]), "the base writes the same: %s", text[3]);
    for (int i = 0; i < 4; i++) free(text[i]);
    snprintf(program, sizeof program, "%s", train);
}

// Of W'' = (W + d) - d, d = s * B A: each of the two sums is rounded, and d, a sum of r products and s, as often as it
// has terms and once more, each time it is made. What has no factors is as it was. Returns the largest share of that.
static double taken_out(const char *name, const float *w, const float *back, const int64_t shape[2],
                        const GxSafetensors *adapter, double scale)
{
    char module[GX_NAME];
    int64_t of_a[2] = {0, 0}, of_b[2] = {0, 0};
    const double u = 0x1p-24;
    double worst = 0;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    float *a = numbers_of(adapter, GX_PEFT_PREFIX "%s.lora_A.weight", module, of_a), *b;
    const int is_embedding = !a;
    if (is_embedding) a = numbers_of(adapter, GX_PEFT_PREFIX "%s.lora_embedding_A", module, of_a);
    b = numbers_of(adapter, is_embedding ? GX_PEFT_PREFIX "%s.lora_embedding_B" : GX_PEFT_PREFIX "%s.lora_B.weight",
                   module, of_b);
    for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
        const int64_t row = is_embedding ? i % shape[1] : i / shape[1],
                      col = is_embedding ? i / shape[1] : i % shape[1];
        double terms = 0;
        for (int64_t k = 0; a && b && k < of_a[0]; k++)
            terms += scale * fabs((double)b[row * of_a[0] + k] * a[k * of_a[1] + col]);
        const double bound = 2 * u * (fabs((double)w[i]) + 2 * terms + (double)(of_a[0] + 3) * terms) * 1.01,
                     off = fabs((double)back[i] - w[i]);
        worst = fmax(worst, off == 0 ? 0 : a ? off / bound : INFINITY);
    }
    free(a), free(b);
    return worst;
}

TEST(an_adapter_that_was_merged_is_taken_out_again_to_rounding)
{
    GxSafetensors s, back, adapter;
    GxError e = GX_ZERO;
    int changed = 0;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--target_modules embed_tokens,q_proj,down_proj --output_dir taken --max_steps 10 "
                       "--learning_rate 5e-2"));
    CHECK_RAN(merge("--adapter taken/checkpoint-10 --output_dir taken_in"));
    CHECK_RAN(merge("--adapter taken/checkpoint-10 --unmerge --model taken_in --output_dir taken_out"));
    CHECK(!err()[0] && strstr(out(), "taken_in without the adapter taken/checkpoint-10 in 5 of its matrices"), "%s%s",
          out(), err());
    check_whole("taken_out");
    if (!CHECK(gx_safetensors_open(&s, "base/checkpoint-8/model.safetensors", &e) == GX_OK &&
                   gx_safetensors_open(&back, "taken_out/model.safetensors", &e) == GX_OK &&
                   gx_safetensors_open(&adapter, "taken/checkpoint-10/adapter_model.safetensors", &e) == GX_OK,
               "%s", e.message))
        return;
    CHECK(s.n == back.n, "%d and %d tensors", s.n, back.n);
    for (int i = 0; i < s.n; i++) {
        int64_t shape[2] = {0, 0}, other[2] = {0, 0};
        float *w = numbers_of(&s, "%s", s.entry[i].name, shape), *x = numbers_of(&back, "%s", s.entry[i].name, other);
        if (!CHECK(w && x && shape[0] == other[0] && shape[1] == other[1], "%s", s.entry[i].name)) continue;
        const double share = taken_out(s.entry[i].name, w, x, shape, &adapter, 2);
        test_close_number(s.entry[i].name, 1 + share, 1, 1);
        changed += memcmp(w, x, (size_t)(shape[0] * shape[1]) * sizeof *w) != 0;
        free(w), free(x);
    }
    CHECK(changed > 0 && changed <= 5, "%d matrices are others: rounding shows in none, or in too many", changed);
    gx_safetensors_close(&s), gx_safetensors_close(&back), gx_safetensors_close(&adapter);
}

// The largest share of what rounding may do that W' is off from W + s B A: of a sum of r products, of s and of one sum;
// infinite where there are no factors and it is not W. name: of W.
static double merged_off(const char *name, const float *w, const float *x, const int64_t shape[2],
                         const GxSafetensors *adapter, double scale)
{
    char module[GX_NAME];
    int64_t of_a[2] = {0, 0}, of_b[2] = {0, 0};
    double worst = 0;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    float *a = numbers_of(adapter, GX_PEFT_PREFIX "%s.lora_A.weight", module, of_a),
          *b = numbers_of(adapter, GX_PEFT_PREFIX "%s.lora_B.weight", module, of_b);
    for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
        double sum = 0, terms = 0;
        for (int64_t k = 0; a && b && k < of_a[0]; k++) {
            const double term = scale * b[i / shape[1] * of_a[0] + k] * a[k * of_a[1] + i % shape[1]];
            sum += term, terms += fabs(term);
        }
        const double bound = 0x1p-24 * (fabs((double)w[i]) + (double)(of_a[0] + 4) * terms) * 1.01,
                     off = fabs(w[i] + sum - x[i]);
        worst = fmax(worst, off == 0 ? 0 : a ? off / bound : INFINITY);
    }
    free(a), free(b);
    return worst;
}

// The loss of the first step, before anything is changed, as the log has it.
static double first_loss(const char *flags)
{
    shell("rm -rf first_loss");
    CHECK_RAN(run("%s --max_steps 1 --output_dir first_loss", flags));
    return read_log("first_loss").loss[0];
}

// Q(W), as the run had it: quantised and, in the type of its products, numbers again; [rows,cols]. free() it.
static float *requantized(const float *w, const int64_t shape[2], GxQuantKind kind, GxDtype products)
{
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu(), g.threads = 1, g.world = 1;
    const int64_t n = shape[0] * shape[1];
    GxQuantized q = gx_quantized(kind, shape[0], shape[1], NULL);
    void *memory = aligned_alloc(GX_ALIGN, (size_t)gx_round_up(gx_quantized_bytes(&q), GX_ALIGN));
    q = gx_quantized(kind, shape[0], shape[1], memory);
    float *absmax = (float *)malloc((size_t)gx_quantized_blocks(&q) * 4), *x = (float *)malloc((size_t)n * 4);
    CHECK(gx_cpu_quantize(&g, &q, absmax, w) == GX_OK, "%s", g.error.message);
    gx_cpu_dequantize(&g, x, GX_F32, &q, 0, shape[0], 0, shape[1]);
    for (int64_t i = 0; i < n && products == GX_BF16; i++) x[i] = gx_from_bf16(gx_to_bf16(x[i]));
    free(absmax), free(memory);
    return x;
}

// Of a matrix W of the base, that `merged` has Q(W) + s B A: to the rounding of a sum of r products, of s and of two
// sums, and to the bit where there are no factors. What is not quantised is the base's.
static void check_dequantized(const char *merged, const char *adapter_file, GxQuantKind kind, GxDtype products)
{
    GxSafetensors s, m, adapter;
    GxError e = GX_ZERO;
    int quantized = 0;
    if (!CHECK(gx_safetensors_open(&s, "base/checkpoint-8/model.safetensors", &e) == GX_OK &&
                   gx_safetensors_open(&m, merged, &e) == GX_OK &&
                   gx_safetensors_open(&adapter, adapter_file, &e) == GX_OK,
               "%s", e.message))
        return;
    for (int i = 0; i < s.n; i++) {
        const char *name = s.entry[i].name;
        int64_t shape[2] = {0, 0}, other[2] = {0, 0};
        float *w = numbers_of(&s, "%s", name, shape), *x = numbers_of(&m, "%s", name, other), *q = NULL;
        if (strstr(name, "_proj.")) q = requantized(w, shape, kind, products), quantized++;
        const double worst = merged_off(name, q ? q : w, x, shape, &adapter, 2);
        CHECK(worst <= 1, "%s: %s is %g of what rounding may do from Q(W) + s B A", merged, name, worst);
        free(w), free(x), free(q);
    }
    CHECK(quantized == 14, "%d matrices are quantized", quantized);
    gx_safetensors_close(&s), gx_safetensors_close(&m), gx_safetensors_close(&adapter);
}

// Merged with --dequantize a model has the loss with which its adapter was trained, without it another one. The base
// may be in many files, or in bitsandbytes' bytes.
TEST(an_adapter_of_a_quantised_base_is_merged_into_what_it_was_trained_on)
{
    static const char *const names[] = {"nf4_plain", "nf4", "int8"};
    char flags[300], warning[100];
    if (!make_base()) return;
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++) {
        if (kind == GX_NF4 && is_brief()) continue;
        shell("rm -rf q_lora q_merged q_other");
        CHECK_RAN(run(BASE "--lora_dropout 0 --quantize %s --target_modules q_proj,down_proj --output_dir q_lora "
                           "--max_steps 6 --learning_rate 5e-2",
                      names[kind]));
        CHECK_RAN(merge("--adapter q_lora/checkpoint-6 --dequantize --output_dir q_merged"));
        CHECK(!err()[0] && strstr(out(), "base/checkpoint-8, as it is in ") && strstr(out(), names[kind]), "%s%s",
              out(), err());
        check_whole("q_merged");
        check_dequantized("q_merged/model.safetensors", "q_lora/checkpoint-6/adapter_model.safetensors",
                          (GxQuantKind)kind, GX_F32);
        CHECK_RAN(merge("--adapter q_lora/checkpoint-6 --output_dir q_other"));
        snprintf(warning, sizeof warning, "from before that rounding; --dequantize merges it into those");
        CHECK(strstr(err(), "warning: the merged model differs from the one that was trained") &&
                  strstr(err(), warning),
              "%s", err());
        snprintf(flags, sizeof flags, "--adapter q_lora/checkpoint-6 --quantize %s", names[kind]);
        const double trained = first_loss(flags), merged = first_loss("--model q_merged"),
                     other = first_loss("--model q_other");
        CHECK(fabs(trained - merged) <= 1e-6 * trained, "%s: a loss of %.9g was trained, merged it is %.9g",
              names[kind], trained, merged);
        CHECK(fabs(trained - other) > 1e-6 * trained && fabs(trained - other) > 8 * fabs(trained - merged),
              "%s: a loss of %.9g was trained, merged it is %.9g, without --dequantize %.9g", names[kind], trained,
              merged, other);
    }
}

TEST(a_quantised_base_in_many_files_or_of_bitsandbytes_is_dequantised_alike)
{
    if (!make_base()) return;
    shell("rm -rf q_files packed1");
    save_quantized("base/checkpoint-8", "packed1", GX_NF4_DOUBLED);
    CHECK_RAN(run("--model base/checkpoint-8 --learning_rate 0 --max_steps 1 --max_shard_size 30KB --output_dir "
                  "q_files"));
    CHECK(exists("q_files/checkpoint-1/model.safetensors.index.json"), "it is in one file");
    CHECK_RAN(run(BASE "--quantize nf4 --output_dir q_of --max_steps 4 --learning_rate 5e-2 --target_modules "
                       "q_proj,k_proj --trainable_modules 1.mlp.down_proj"));
    CHECK_RAN(merge("--adapter q_of/checkpoint-4 --dequantize --output_dir q_one"));
    CHECK_RAN(merge("--adapter q_of/checkpoint-4 --dequantize --output_dir q_many --model q_files/checkpoint-1"));
    CHECK(!err()[0] && same_file("q_one/model.safetensors", "q_many/model.safetensors"), "of many files: %s", err());
    // what was trained whole was in numbers, and stays as it was trained
    GxSafetensors one, adapter;
    GxError e = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&one, "q_one", &e) == GX_OK &&
                   gx_safetensors_open(&adapter, "q_of/checkpoint-4/adapter_model.safetensors", &e) == GX_OK,
               "%s", e.message))
        return;
    int64_t shape[2] = {0, 0};
    float *its = numbers_of(&one, "%s", "model.layers.1.mlp.down_proj.weight", shape),
          *trained = numbers_of(&adapter, GX_PEFT_PREFIX "%s", "model.layers.1.mlp.down_proj.weight", shape);
    CHECK(its && trained && !memcmp(its, trained, (size_t)(shape[0] * shape[1]) * sizeof *its),
          "what was trained whole was rounded");
    free(its), free(trained);
    gx_safetensors_close(&one), gx_safetensors_close(&adapter);
    CHECK_RAN(run("--model packed1 --tuning lora --lora_dim 3 --quantize nf4 --output_dir q_bnb --max_steps 2"));
    CHECK_RAN(run(BASE "--quantize nf4 --output_dir q_same --max_steps 2"));
    CHECK_RAN(merge("--adapter q_bnb/checkpoint-2 --dequantize --output_dir q_unpacked"));
    CHECK_RAN(merge("--adapter q_same/checkpoint-2 --dequantize --output_dir q_packed"));
    CHECK(same_file("q_unpacked/model.safetensors", "q_packed/model.safetensors"), "of bitsandbytes: other bits");
    CHECK(!file_contains("q_unpacked/config.json", "quantization_config"), "its config.json says that it is quantized");
    shell("cd q_bnb/checkpoint-2 && rm training_args.json trainer_state.json manifest.json"); // as peft's
    CHECK_RAN(merge("--adapter q_bnb/checkpoint-2 --dequantize --output_dir q_of_peft"));
    CHECK(same_file("q_unpacked/model.safetensors", "q_of_peft/model.safetensors"),
          "of an adapter of peft: other bits");
    CHECK(merge("--adapter q_bnb/checkpoint-2 --output_dir q_no") > 0 &&
              strstr(err(), "packed1 is quantized by bitsandbytes (nf4); say --dequantize"),
          "%s", err());
    CHECK(merge("--adapter q_bnb/checkpoint-2 --dequantize --model base/checkpoint-8 --output_dir q_no") > 0 &&
              strstr(err(), "nor the model's says how it was"),
          "%s", err());
    CHECK_RAN(run(BASE "--output_dir q_none --max_steps 1"));
    CHECK(merge("--adapter q_none/checkpoint-1 --dequantize --output_dir q_no") > 0 &&
              strstr(err(), "training_args.json says that it was not quantized; leave it out"),
          "%s", err());
    CHECK(merge("--adapter q_of/checkpoint-4 --dequantize --unmerge --model q_one --output_dir q_no") > 0 &&
              strstr(err(), "leave --dequantize out"),
          "%s", err());
    CHECK(!exists("q_no"), "something was written");
}

// Products of a run in bf16 have Q(W) in bf16: those are the numbers that it was trained on.
TEST(a_quantised_base_of_a_run_in_bf16_is_dequantised_to_bf16)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--quantize nf4 --precision bf16 --target_modules q_proj --output_dir q_bf16 --max_steps 2"));
    CHECK_RAN(merge("--adapter q_bf16/checkpoint-2 --dequantize --output_dir q_bf16_merged"));
    check_dequantized("q_bf16_merged/model.safetensors", "q_bf16/checkpoint-2/adapter_model.safetensors",
                      GX_NF4_DOUBLED, GX_BF16);
}

TEST(what_cannot_be_taken_out_again_is_refused_and_what_was_rounded_is_said)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir taken2 --max_steps 2"));
    CHECK_RAN(run(BASE "--output_dir taken3 --max_steps 2 --trainable_modules norm"));
    CHECK_RAN(merge("--adapter taken2/checkpoint-2 --output_dir taken2_in --save_dtype bf16"));
    CHECK_RAN(merge("--adapter taken2/checkpoint-2 --unmerge --model taken2_in --output_dir taken2_out"));
    CHECK(strstr(err(), "warning: the weights of taken2_in are in BF16, so the rounding when the adapter was merged "
                        "cannot be undone"),
          "%s", err());
    CHECK(merge("--adapter taken2/checkpoint-2 --unmerge --output_dir x") > 0 &&
              strstr(err(), "--unmerge needs --model"),
          "%s", err());
    CHECK(merge("--adapter taken2/checkpoint-2 --unmerge --model base/checkpoint-8 --output_dir x") > 0 &&
              strstr(err(), "base/checkpoint-8 is the model that the adapter taken2/checkpoint-2 was trained on"),
          "%s", err());
    CHECK_RAN(merge("--adapter taken3/checkpoint-2 --output_dir taken3_in"));
    CHECK(merge("--adapter taken3/checkpoint-2 --unmerge --model taken3_in --output_dir x") > 0 &&
              strstr(err(), "which was trained whole; its earlier values are in no file"),
          "%s", err());
    CHECK(!exists("x"), "something was written");
}

static void check_said(const char *flags, const char *lines, const char *as)
{
    char *text = talk(flags, lines);
    CHECK(!strcmp(text, as), "%s, %s: %s, expected %s", flags, lines, text, as);
    free(text);
}

// Of what the first adapter said the second one's cache has nothing: it goes on as from the text as a whole.
static void check_second_answer(const char *first)
{
    char line[TEST_PATH + 200], *text, *answer = strdup(first);
    GxError e = GX_ZERO;
    answer[strlen(answer) - 1] = 0;
    const GxChatTurn turns[] = {{GX_CHAT_USER, "the"}, {GX_CHAT_ASSISTANT, answer}, {GX_CHAT_USER, "and"}};
    if (!CHECK(gx_chat_text(gx_chat_format("llama2"), turns, 3, 1, &text, &e) == GX_OK, "%s", e.message)) return;
    gx_file_write("said.txt", text, (int64_t)strlen(text), &e);
    char *both = talk("--adapter one/checkpoint-30", "the\\n/adapter two/checkpoint-30\\nand\\n");
    use_program("generate_llama");
    snprintf(line, sizeof line, "%s --adapter two/checkpoint-30 --prompt_file said.txt --max_new_tokens 24 --threads 1",
             program);
    use_program("train_llama");
    start_line(line, 0);
    CHECK_RAN(finish());
    const size_t n = strlen(first), whole = strlen(out());
    CHECK(strlen(both) > n + 10 && whole >= strlen(both) - n && !strncmp(both, first, n) &&
              !strcmp(both + n, out() + whole - (strlen(both) - n)),
          "%s, but from the text %s", both, out());
    free(both), free(text), free(answer);
}

TEST(a_conversation_takes_another_adapter_in_the_place_of_its_own)
{
    char train[TEST_PATH];
    snprintf(train, sizeof train, "%s", program);
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir one --max_steps 30 --learning_rate 2e-2"));
    CHECK_RAN(run(BASE "--output_dir two --max_steps 30 --learning_rate 8e-2 --seed 2"));
    CHECK_RAN(run(BASE "--output_dir small --max_steps 1 --lora_dim 2"));
    CHECK_RAN(run(BASE "--output_dir fewer --max_steps 1 --lora_target_modules q_proj"));
    CHECK_RAN(run(BASE "--output_dir talk_more --max_steps 1 --trainable_modules norm"));
    CHECK_RAN(run(BASE "--output_dir louder --max_steps 1 --lora_alpha 9"));
    CHECK_RAN(run("--output_dir other_base --max_steps 8 --seed 5"));
    CHECK_RAN(run("--model other_base/checkpoint-8 --tuning lora --lora_dim 3 --output_dir foreign --max_steps 1"));
    shell("cp -r two/checkpoint-30 nan && printf '\\377\\377\\377\\377' | dd of=nan/adapter_model.safetensors bs=1 "
          "conv=notrunc "
          "status=none seek=$(($(stat -c %%s nan/adapter_model.safetensors) - 4))");
    if (!use_program("generate_llama")) return;
    use_program("train_llama");
    char *one = talk("--adapter one/checkpoint-30", "the\\n"), *two = talk("--adapter two/checkpoint-30", "the\\n");
    CHECK(strcmp(one, two), "two adapters say the same: %s", one);
    check_said("--adapter one/checkpoint-30", "/adapter two/checkpoint-30\\nthe\\n", two);
    check_said("--adapter one/checkpoint-30 --ranks 2", "/adapter  two/checkpoint-30\\r\\nthe\\n", two);
    check_said("--adapter one/checkpoint-30", "/adapter two/checkpoint-30\\n/adapter one/checkpoint-30\\nthe\\n", one);
    check_second_answer(one);
    check_said("--adapter one/checkpoint-30",
               "/adapter small/checkpoint-1\\n/adapter fewer/checkpoint-1\\n/adapter nowhere\\n/adapter\\n/adapter "
               "louder/checkpoint-1\\n"
               "/adapter nan  \\nthe\\n",
               one);
    CHECK(strstr(err(), "r 2") && strstr(err(), "fewer/checkpoint-1") && strstr(err(), "nowhere") &&
              strstr(err(), "expected /adapter and a folder") && strstr(err(), "lora_alpha 9") && strstr(err(), "nan"),
          "%s", err());
    free(talk("--adapter one/checkpoint-30", "/adapter foreign/checkpoint-1\\n/adapter two/checkpoint-30\\nthe\\n"));
    CHECK(strstr(err(), "are not those that the adapter foreign/checkpoint-1 was trained on") &&
              !strstr(err(), "that the adapter two/"),
          "%s", err());
    free(talk("--adapter talk_more/checkpoint-1", "/adapter one/checkpoint-30\\nthe\\n"));
    CHECK(strstr(err(), "input_layernorm.weight, which the adapter needs"), "%s", err());
    free(talk("--model base/checkpoint-8", "/adapter one/checkpoint-30\\nthe\\n"));
    CHECK(strstr(err(), "this model has none; start with --adapter"), "%s", err());
    free(one), free(two);
    snprintf(program, sizeof program, "%s", train);
}

// The adapter in `from`, with a copy of the base's embedding by a name of peft's, of which one value is another, into
// `to`.
static void write_with_copy(const char *from, const char *to, float more, GxDtype dtype, const char *name)
{
    enum { MOST = 64 };
    static float values[1 << 16];
    char path[TEST_PATH];
    GxSafetensors adapter, base;
    GxSafetensorsWriter w;
    GxError e = GX_ZERO;
    static GxSafetensorsEntry entry[MOST];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", from);
    if (!CHECK(gx_safetensors_open(&adapter, path, &e) == GX_OK && adapter.n < MOST &&
                   gx_safetensors_open(&base, "base/checkpoint-8", &e) == GX_OK,
               "%s", e.message))
        return;
    const int n = adapter.n;
    const GxSafetensorsEntry *own = gx_safetensors_find(&base, "model.embed_tokens.weight");
    memcpy(entry, adapter.entry, (size_t)n * sizeof *entry);
    entry[n] = *own;
    snprintf(entry[n].name, sizeof entry[n].name, GX_PEFT_PREFIX "model.%s", name);
    entry[n].dtype = (int)dtype, entry[n].dtype_size = (int)gx_dtype_size(dtype);
    shell("rm -rf %s && cp -r %s %s && rm %s/manifest.json", to, from, to, to);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", to);
    gx_safetensors_create(&w, path, entry, n + 1, NULL, 0, &e);
    for (int i = 0; i <= n && !gx_error_code(&e); i++) {
        gx_safetensors_read(i < n ? &adapter : &base, i < n ? &adapter.entry[i] : own, 0, entry[i].elements, values,
                            &e);
        if (i == n) values[100] += more;
        gx_safetensors_write_floats(&w, entry[i].name, 0, values, entry[i].elements, &e);
    }
    CHECK(gx_safetensors_finish(&w, &e) == GX_OK, "%s", e.message);
    gx_safetensors_abort(&w);
    gx_safetensors_close(&adapter), gx_safetensors_close(&base);
}

// Whatever is wrong with a folder: the error is said, and the conversation goes on with the adapter that it had.
TEST(a_conversation_goes_on_with_its_adapter_where_another_cannot_be_read)
{
    static const char *const wrong[] = {"spoilt", "cut", "short", "config", "pipe", "gone", "folder"};
    static const char *const why[] = {"base_layer.weight, peft's copy of a matrix",
                                      "it is cut off",
                                      "has 7 bytes; a safetensors file",
                                      "adapter_config.json",
                                      "not a regular file",
                                      "adapter_config.json",
                                      "is a folder; expected a file"};
    char train[TEST_PATH], line[200];
    snprintf(train, sizeof train, "%s", program);
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--target_modules embed_tokens,q_proj --output_dir mine --max_steps 8 --learning_rate 2e-2"));
    CHECK_RAN(run(BASE "--target_modules embed_tokens,q_proj --output_dir next --max_steps 8 --learning_rate 1e-5"));
    write_with_copy("next/checkpoint-8", "copied_base", 0, GX_F32, "embed_tokens.base_layer.weight");
    write_with_copy("next/checkpoint-8", "rounded_base", 0, GX_BF16, "embed_tokens.base_layer.weight");
    write_with_copy("next/checkpoint-8", "spoilt", 1, GX_F32, "embed_tokens.base_layer.weight");
    write_with_copy("next/checkpoint-8", "noted", 0, GX_F32, "layers.0.self_attn.q_proj.lora_velora_embed");
    shell("for f in cut short config pipe gone folder; do cp -r next/checkpoint-8 $f && rm $f/manifest.json; done && "
          "truncate -s -100 cut/adapter_model.safetensors && truncate -s 7 short/adapter_model.safetensors && "
          "echo [] > config/adapter_config.json && rm gone/adapter_config.json && "
          "rm pipe/*.safetensors && mkfifo pipe/adapter_model.safetensors && rm folder/adapter_model.safetensors && "
          "mkdir folder/adapter_model.safetensors");
    char *mine = talk("--adapter mine/checkpoint-8", "the\\n"), *next = talk("--adapter next/checkpoint-8", "the\\n");
    CHECK(strcmp(mine, next), "two adapters say the same: %s", mine);
    check_said("--adapter mine/checkpoint-8", "/adapter copied_base\\nthe\\n", next);
    CHECK(!strstr(err(), "rounded"), "%s", err());
    check_said("--adapter mine/checkpoint-8", "/adapter noted\\nthe\\n", next); // what VeLoRA keeps for its backward
    check_said("--adapter mine/checkpoint-8", "/adapter rounded_base\\nthe\\n", next);
    CHECK(strstr(err(), "embed_tokens.base_layer.weight, a copy of the base model's matrix, rounded to BF16: peft "
                        "computes with the copy"),
          "%s", err());
    for (int i = 0; i < 7; i++) {
        snprintf(line, sizeof line, "/adapter %s\\nthe\\n", wrong[i]);
        check_said(i % 2 ? "--adapter mine/checkpoint-8 --ranks 2" : "--adapter mine/checkpoint-8", line, mine);
        CHECK(strstr(err(), why[i]) && strstr(err(), "; the adapter here is still mine/checkpoint-8"), "%s: %s",
              wrong[i], err());
    }
    free(mine), free(next);
    snprintf(program, sizeof program, "%s", train);
}

TEST(samples_are_shown_alone_where_nothing_is_trained)
{
    if (!make_base()) return;
    CHECK_RAN(run("--model base/checkpoint-8 --sample_only --sample_tokens 0 --show_data 2 --output_dir shown"));
    CHECK(strstr(out(), "sample 1, document 1: ") && !strstr(out(), "sample 2, ") && strstr(out(), "⟦"), "%s", out());
    CHECK(!strstr(out(), "step     1") && !exists("shown"), "it has trained, or written: %s", out());
}

TEST(the_folder_of_an_adapter_is_refused_as_a_model_before_anything_is_said_of_it)
{
    char train[TEST_PATH], line[TEST_PATH + 100];
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir not_a_model --max_steps 1"));
    CHECK(run("--model not_a_model/checkpoint-1") > 0 && !child.bytes[0] && strstr(err(), "holds an adapter"), "%s",
          err());
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("generate_llama")) return;
    snprintf(line, sizeof line, "%s --model not_a_model/checkpoint-1 --prompt a", program);
    snprintf(program, sizeof program, "%s", train);
    start_line(line, 0);
    CHECK(finish() > 0 && !child.bytes[0] && !strstr(err(), "parameters") && strstr(err(), "holds an adapter"), "%s",
          err());
}

// ---- a head ---------------------------------------------------------------------------------------------------------

#define LABELS                                                                                                         \
    "--config no_sample.json --task classification --train_data labels.tsv --seq_len 32 --max_eval_samples 0 "
static void write_labels(void)
{
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1}";
    GxError e = GX_ZERO;
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    shell(
        "(printf 'text\\tlabel\\n'; for i in $(seq 60); do printf 'a cat %%d\\tcat\\na dog %%d\\tdog\\n' $i $i; done) "
        "> labels.tsv");
}

TEST(a_head_for_labels_is_trained_and_saved_with_the_adapter)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    write_labels();
    CHECK_RAN(run(BASE LABELS "--output_dir labels --max_steps 6 --save_steps 3"));
    if (!CHECK(gx_safetensors_open(&s, "labels/checkpoint-6/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(gx_safetensors_find(&s, "base_model.model.score.weight"), "the head is not there");
    gx_safetensors_close(&s);
    CHECK(file_contains("labels/checkpoint-6/adapter_config.json", "\"SEQ_CLS\"") &&
              file_contains("labels/checkpoint-6/adapter_config.json", "[\"score\"]"),
          "adapter_config.json does not say it");
    CHECK_RAN(run("--config no_sample.json --task classification --resume labels/checkpoint-3 --output_dir labels2"));
    check_same_checkpoint("labels/checkpoint-6", "labels2/checkpoint-6");
    CHECK_RAN(run("--config no_sample.json --task classification --resume labels/checkpoint-6 --evaluate"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run(LABELS "--adapter labels/checkpoint-6 --evaluate"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the loss that the resumed run has, %g", out(),
          loss);
    shell("sed 's/dog$/ant/' labels.tsv > others.tsv");
    CHECK(run("--config no_sample.json --task classification --train_data others.tsv --seq_len 32 "
              "--adapter labels/checkpoint-6 --evaluate") > 0 &&
              strstr(err(), "ant"),
          "labels that the adapter does not have were taken for its own: %s", err());
}

// As peft saves it: of the model there is no configuration, and the labels have no names. Its head is in no other file.
TEST(an_adapter_of_peft_brings_its_head_to_a_model_that_has_none)
{
    if (!make_base()) return;
    write_labels();
    CHECK_RAN(run(BASE LABELS "--output_dir own_head --max_steps 6 --learning_rate 5e-2"));
    shell("rm -rf of_peft2 named_peft2 head_merged *_head.jsonl && mkdir of_peft2 && "
          "cp own_head/checkpoint-6/adapter_* of_peft2 && cp -r of_peft2 named_peft2 && "
          "cp own_head/checkpoint-6/model_config.json named_peft2/config.json");
    shell("cut -f1 labels.tsv > texts.tsv");
    CHECK_RAN(run(LABELS "--adapter own_head/checkpoint-6 --predict texts.tsv --predictions own_head.jsonl"));
    CHECK_RAN(run(LABELS "--adapter of_peft2 --predict texts.tsv --predictions peft_head.jsonl"));
    CHECK_RAN(run(LABELS "--adapter named_peft2 --predict texts.tsv --predictions named_head.jsonl"));
    CHECK(same_file("own_head.jsonl", "named_head.jsonl"), "by other names, or other numbers");
    CHECK(file_contains("peft_head.jsonl", "LABEL_0") &&
              shell("sed 's/LABEL_0/cat/g; s/LABEL_1/dog/g' peft_head.jsonl | cmp -s - own_head.jsonl") == 0,
          "of an adapter without names: others");
    CHECK_RAN(run(LABELS "--adapter own_head/checkpoint-6 --evaluate"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run(LABELS "--adapter of_peft2 --evaluate"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the loss %g", out(), loss);
    CHECK_RAN(merge("--adapter of_peft2 --output_dir head_merged"));
    CHECK_RAN(run(LABELS "--model head_merged --evaluate"));
    CHECK(fabs(loss - number_behind(out(), "validation loss ")) < 1e-4, "merged: %s: not the loss %g", out(), loss);
}

#define SCORE "--model scores/checkpoint-2 --tuning lora --lora_dim 3 --target_modules score,q_proj "

static int has_few_labels;
static int make_few_labels(void)
{
    if (has_few_labels) return 1;
    write_labels();
    return has_few_labels = make_base() && CHECK(run(LABELS "--model base/checkpoint-8 --output_dir scores "
                                                            "--max_steps 2") == 0,
                                                 "%.300s", err());
}

// By SEQ_CLS peft would train it whole.
TEST(a_head_for_labels_has_factors_where_it_is_named)
{
    double loss[2];
    if (!make_few_labels()) return;
    CHECK_RAN(run(LABELS SCORE "--output_dir scored --max_steps 6 --save_steps 3 --learning_rate 2e-2"));
    char *names = tensor_names("scored/checkpoint-6/adapter_model.safetensors");
    CHECK(has_factors(names, "score") && !strstr(names, "score.weight"), "%s", names);
    free(names);
    CHECK(file_contains("scored/checkpoint-6/adapter_config.json", "[\"q_proj\", \"score\"]") &&
              file_contains("scored/checkpoint-6/adapter_config.json", "\"task_type\": null") &&
              file_contains("scored/checkpoint-6/adapter_config.json", "\"modules_to_save\": null"),
          "adapter_config.json does not say it");
    CHECK_RAN(run("--config no_sample.json --task classification --resume scored/checkpoint-3 --output_dir scored2"));
    check_same_checkpoint("scored/checkpoint-6", "scored2/checkpoint-6");
    CHECK_RAN(merge("--adapter scored/checkpoint-6 --output_dir scored_merged"));
    for (int i = 0; i < 2; i++) {
        CHECK_RAN(run(LABELS "%s --evaluate", i ? "--model scored_merged" : "--adapter scored/checkpoint-6"));
        loss[i] = number_behind(out(), "validation loss ");
    }
    CHECK(fabs(loss[0] - loss[1]) <= 1e-4, "the loss is %g, and merged %g", loss[0], loss[1]);
}

TEST(factors_of_a_head_for_labels_that_is_new_or_trained_whole_are_refused)
{
    static const Refusal cases[] = {
        {LABELS "--model base/checkpoint-8 --tuning lora --target_modules score,q_proj",
         {"base/checkpoint-8 has no score.weight", "train it whole, with --trainable_modules"}},
        {LABELS SCORE "--trainable_modules score",
         {"score.weight is to have LoRA and to be trained whole", "leave \"score\" out"}},
        {LABELS "--adapter both_lists",
         {"score.weight is to have LoRA and to be trained whole", "leave \"score\" out"}},
    };
    if (!make_few_labels()) return;
    CHECK_RAN(run(LABELS SCORE "--output_dir to_refuse --max_steps 1"));
    shell("cp -r to_refuse/checkpoint-1 both_lists && rm both_lists/manifest.json && "
          "sed -i 's/\"modules_to_save\": null/\"modules_to_save\": [\"classifier\", \"score\"]/' "
          "both_lists/adapter_config.json");
    CHECK_REFUSALS(cases);
}

// ---- BERT -----------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 1, 2))) static int run_bert(const char *format, ...)
{
    char flags[2000], line[4096], train[TEST_PATH];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(train, sizeof train, "%s", program);
    int status = 127;
    if (use_program("train_bert")) {
        snprintf(line, sizeof line, "%s --threads 1 --seq_len 32 %s", program, flags);
        start_line(line, 0);
        status = finish();
    }
    snprintf(program, sizeof program, "%s", train);
    return status;
}

static int has_bert;
static int make_bert(void)
{
    if (has_bert) return 1;
    shell("for i in $(seq 60); do printf 'the cat number %%d runs.\nit rains on day %%d.\n\n' $i $i; done > "
          "documents.txt; "
          "(printf 'anchor\tpositive\n'; for i in $(seq 60); do printf 'cats %%d run\tthe cat number %%d runs\n' $i "
          "$i; done) "
          "> pairs.tsv; (echo text; seq 8 | sed 's/^/the cat number /') > texts.tsv");
    return has_bert = CHECK(run_bert("--task masked_lm --hidden_size 32 --intermediate_size 48 --num_attention_heads 4 "
                                     "--num_hidden_layers 2 --max_position_embeddings 64 --train_data documents.txt "
                                     "--tokenizer %s/data/ref/wordpiece --max_steps 2 --output_dir bert",
                                     repository) == 0,
                            "%.300s", err());
}
#define PAIRS "--task embedding --model bert/checkpoint-2 --tuning lora --lora_dim 3 --train_data pairs.tsv "

// The base in `folder`, with another value in one tensor.
static void spoil_bert(const char *folder, const char *tensor)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, "bert/checkpoint-2", &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *t = gx_safetensors_find(&s, tensor);
    if (CHECK(t != NULL, "no %s", tensor))
        shell("cp -r bert/checkpoint-2 %s && rm %s/manifest.json && printf '\\125' | dd of=%s/model.safetensors bs=1 "
              "seek=%ld conv=notrunc status=none",
              folder, folder, folder, (long)t->offset + 5);
    gx_safetensors_close(&s);
}

// A base is the same beside another head: of its weights the head's alone have no part in it.
TEST(an_adapter_that_goes_on_with_another_task_is_warned_of_another_base_alone)
{
    static const char *const model[] = {"bert/checkpoint-2", "other_head", "other_body"};
    static const char *const task[] = {"--task masked_lm --train_data documents.txt",
                                       "--task embedding --train_data pairs.tsv"};
    static const int warned[2][3] = {{0, 1, 1}, {0, 0, 1}};
    if (!make_bert()) return;
    CHECK_RAN(run_bert("%s --model bert/checkpoint-2 --tuning lora --max_steps 1 --output_dir masks", task[0]));
    spoil_bert("other_head", "cls.predictions.transform.dense.weight");
    spoil_bert("other_body", "bert.encoder.layer.1.output.dense.weight");
    for (int i = 0; i < 6; i++) {
        CHECK_RAN(run_bert("%s --adapter masks/checkpoint-1 --model %s --max_steps 1 --output_dir onward%d",
                           task[i % 2], model[i / 2], i));
        const int is = strstr(err(), "are not those that the adapter masks/checkpoint-1 was trained on") != NULL;
        CHECK(is == warned[i % 2][i / 2], "%s, %s: %s", task[i % 2], model[i / 2], err());
    }
}

// transformers' AutoModel of a BERT has no "bert." before its names, and a pooler, which "dense" would mean, too.
TEST(an_adapter_of_vectors_has_the_names_of_a_model_without_a_head)
{
    if (!make_bert()) return;
    CHECK_RAN(run_bert(PAIRS "--output_dir vectors --max_steps 4 --save_steps 2 --learning_rate 2e-2"));
    char *names = tensor_names("vectors/checkpoint-4/adapter_model.safetensors");
    CHECK(strstr(names, "base_model.model.encoder.layer.1.output.dense.lora_B.weight, ") && !strstr(names, "bert."),
          "%s", names);
    free(names);
    CHECK(file_contains("vectors/checkpoint-4/adapter_config.json",
                        "[\"query\", \"key\", \"value\", \"output.dense\", \"intermediate.dense\"]"),
          "other targets");
    CHECK_RAN(run_bert("--task embedding --resume vectors/checkpoint-2 --output_dir vectors2"));
    check_same_checkpoint("vectors/checkpoint-4", "vectors2/checkpoint-4");
    CHECK_RAN(run_bert("--task embedding --resume vectors/checkpoint-4 --embed texts.tsv --embed_output resumed.npy"));
    CHECK_RAN(run_bert("--task embedding --adapter vectors/checkpoint-4 --embed texts.tsv --embed_output begun.npy"));
    CHECK_RAN(run_bert("--task embedding --model bert/checkpoint-2 --embed texts.tsv --embed_output base.npy"));
    CHECK(same_file("resumed.npy", "begun.npy") && !same_file("resumed.npy", "base.npy"), "other vectors");
    // with "bert." before its names
    CHECK_RAN(
        run_bert("--task masked_lm --model bert/checkpoint-2 --tuning lora --target_modules query --learning_rate "
                 "2e-2 --train_data documents.txt --max_steps 4 --output_dir tokens"));
    CHECK_RAN(run_bert("--task embedding --adapter tokens/checkpoint-4 --embed texts.tsv --embed_output tokens.npy"));
    CHECK(!same_file("tokens.npy", "base.npy"), "the adapter was not read");
}

TEST(a_layer_before_a_head_has_factors_where_it_is_asked_for)
{
    if (!make_bert()) return;
    CHECK_RAN(
        run_bert("--task masked_lm --model bert/checkpoint-2 --tuning lora --target_modules all-linear --train_data "
                 "documents.txt --max_steps 1 --output_dir transform"));
    char *names = tensor_names("transform/checkpoint-1/adapter_model.safetensors");
    CHECK(has_factors(names, "cls.predictions.transform.dense"), "%s", names);
    free(names);
}

// Sums in another order alone: what the merged model says differs in the last digits that are shown, at most.
TEST(a_merged_bert_says_what_its_adapter_says)
{
    static const struct {
        const char *name, *flags, *shown;
    } tasks[] = {
        {"labels", "--task classification --train_data animals.tsv --max_eval_samples 0", ""},
        {"masked", "--task masked_lm --train_data documents.txt --target_modules all-linear --max_eval_samples 0",
         "--task masked_lm --train_data documents.txt --max_eval_samples 0"},
        {"pairs", "--task masked_lm --nsp true --train_data documents.txt --max_eval_samples 0", ""},
        {"vectors", "--task embedding --train_data pairs.tsv --max_eval_samples 0", ""},
        {"decoder", "--task masked_lm --train_data documents.txt --target_modules decoder,query --max_eval_samples 0",
         "--task masked_lm --train_data documents.txt --max_eval_samples 0"},
        {"classifier",
         "--task classification --model animals/checkpoint-2 --train_data animals.tsv --target_modules "
         "classifier,query --max_eval_samples 0",
         "--task classification --train_data animals.tsv --max_eval_samples 0"},
        {"relationship",
         "--task masked_lm --nsp true --model followed/checkpoint-2 --train_data documents.txt "
         "--target_modules seq_relationship,query --max_eval_samples 0",
         "--task masked_lm --nsp true --train_data documents.txt --max_eval_samples 0"}};
    enum { TASKS = sizeof tasks / sizeof *tasks };
    char train[TEST_PATH], line[3000];
    double loss[2];
    if (!make_bert()) return;
    shell("(printf 'text\\tlabel\\n'; for i in $(seq 60); do printf 'a cat %%d\\tcat\\na dog %%d\\tdog\\na bird "
          "%%d\\tbird\\n' $i $i $i; done) > animals.tsv");
    CHECK_RAN(run_bert("--model bert/checkpoint-2 --task classification --train_data animals.tsv --max_eval_samples 0 "
                       "--max_steps 2 --output_dir animals"));
    CHECK_RAN(run_bert("--model bert/checkpoint-2 --task masked_lm --nsp true --train_data documents.txt "
                       "--max_eval_samples 0 --max_steps 2 --output_dir followed"));
    snprintf(train, sizeof train, "%s", program);
    for (int i = 0; i < TASKS; i += is_brief() ? 3 : 1) {
        const char *base = strstr(tasks[i].flags, "--model ") ? "" : "--model bert/checkpoint-2 ";
        const char *shown = tasks[i].shown[0] ? tasks[i].shown : tasks[i].flags;
        CHECK_RAN(run_bert("%s--tuning lora --lora_dim 3 --learning_rate 2e-2 --max_steps 20 --output_dir to_merge_%s "
                           "%s",
                           base, tasks[i].name, tasks[i].flags));
        if (!use_program("merge_adapter")) return;
        snprintf(line, sizeof line, "%s --adapter to_merge_%s/checkpoint-20 --output_dir merged_%s", program,
                 tasks[i].name, tasks[i].name);
        start_line(line, 0);
        CHECK_RAN(finish());
        snprintf(program, sizeof program, "%s", train);
        for (int is_merged = 0; is_merged < 2; is_merged++) {
            CHECK_RAN(run_bert(is_merged ? "--model merged_%s --evaluate %s"
                                         : "--adapter to_merge_%s/checkpoint-20 --evaluate %s",
                               tasks[i].name, shown));
            loss[is_merged] = number_behind(out(), "loss ");
        }
        CHECK(fabs(loss[0] - loss[1]) <= 1.01e-4, "%s: the loss is %g, and merged %g", tasks[i].name, loss[0], loss[1]);
    }
    CHECK(file_contains("merged_labels/config.json", "\"2\": \"dog\"") &&
              exists("merged_vectors/1_Pooling/config.json"),
          "names of labels, or the pooling, are not there");
    // as peft leaves it, which says nothing of labels
    shell("cp -r to_merge_labels/checkpoint-20 as_peft && cd as_peft && rm manifest.json model_config.json");
    use_program("merge_adapter");
    snprintf(line, sizeof line, "%s --adapter as_peft --output_dir merged_as_peft", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    snprintf(program, sizeof program, "%s", train);
    CHECK(file_contains("merged_as_peft/config.json", "\"2\": \"LABEL_2\"") &&
              same_file("merged_as_peft/model.safetensors", "merged_labels/model.safetensors"),
          "another model");
}

// ---- what is refused ------------------------------------------------------------------------------------------------

// The word 0x7fc00000 (NaN) or 0x7f800000 (infinity) in the place of the file's last value.
TEST(values_that_are_no_numbers_are_refused_with_their_tensor_and_file)
{
    static const char *const ways[] = {"", "--ranks 2 --mode tp", "--evaluate"};
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir finite --max_steps 2 --target_modules q_proj"));
    for (int is_inf = 0; is_inf < 2; is_inf++) {
        shell("rm -rf broken && cp -r finite/checkpoint-2 broken && cd broken && rm manifest.json && "
              "truncate -s -4 adapter_model.safetensors && printf '\\000\\000\\%s\\177' >> adapter_model.safetensors",
              is_inf ? "200" : "300");
        for (int i = 0; i < 3; i++) {
            CHECK(run("--adapter broken --output_dir broken2 --max_steps 1 %s", ways[i]) > 0, "%s: it was taken",
                  ways[i]);
            CHECK(strstr(err(), "broken/adapter_model.safetensors: value ") &&
                      strstr(err(), "of base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight is ") &&
                      strstr(err(), is_inf ? "inf" : "nan"),
                  "%s", err());
        }
    }
}

// A head of tokens that the model lacks would be drawn, frozen, and in no file.
TEST(what_an_adapter_needs_and_its_model_lacks_is_refused_or_trained)
{
    if (!make_base()) return;
    write_labels();
    CHECK_RAN(run(LABELS "--model base/checkpoint-8 --output_dir few_labels --max_steps 1"));
    CHECK(run("--model few_labels/checkpoint-1 --tuning lora --output_dir lacks --max_steps 2") > 0 &&
              strstr(err(), "few_labels/checkpoint-1 has no lm_head.weight, which its adapter needs"),
          "%s", err());
    CHECK_RAN(run("--model few_labels/checkpoint-1 --tuning lora --trainable_modules lm_head --output_dir has "
                  "--max_steps 4 --save_steps 2"));
    CHECK_RAN(run("--resume has/checkpoint-2 --output_dir has2"));
    check_same_checkpoint("has/checkpoint-4", "has2/checkpoint-4");
}

TEST(a_run_that_goes_on_has_its_own_adapter)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir goes_on --max_steps 2"));
    CHECK_RAN(run("--adapter goes_on/checkpoint-2 --output_dir goes_on2 --max_steps 4 --save_steps 2"));
    CHECK(run("--resume goes_on/checkpoint-2 --adapter goes_on2/checkpoint-4 --output_dir goes_on3") > 0 &&
              strstr(err(),
                     "--adapter is goes_on2/checkpoint-4, but the resumed run (goes_on/checkpoint-2) began without an "
                     "--adapter"),
          "%s", err());
    CHECK_RAN(
        run("--resume goes_on2/checkpoint-2 --adapter goes_on/checkpoint-2 --output_dir goes_on3")); // as it began
    check_same_checkpoint("goes_on2/checkpoint-4", "goes_on3/checkpoint-4");
}

TEST(what_cannot_be_adapted_is_refused)
{
    static const Refusal cases[] = {
        {"--tuning lora", {"--tuning lora needs a pretrained model to adapt", "--model"}},
        {"--tuning prefix", {"full|lora"}},
        {"--lora_dim 4 --model base/checkpoint-8", {"--lora_dim is an option for adapters", "--tuning lora"}},
        {"--r 4 --model base/checkpoint-8", {"--lora_dim is an option for adapters"}},
        {BASE "--lora_alpha 1e-7", {"LoRA's alpha is 1e-07"}},
        {BASE "--strict false", {"--strict false initializes some weights of --model"}},
        {BASE "--lora_target_modules 1.self_attn.q_proj --trainable_modules q_proj",
         {"is to have LoRA and to be trained"}},
        {"--adapter refused/checkpoint-2 --output_dir refused --overwrite_output_dir",
         {"--adapter refused/checkpoint-2 lies"}},
        {"--adapter refused/checkpoint-2 --output_dir base --overwrite_output_dir", {"base/checkpoint-8 lies in base"}},
        {"--resume refused/checkpoint-2 --lora_dim 5 --max_steps 4", {"with --adapter refused/checkpoint-2"}},
        {BASE "--lora_dim 0", {"--lora_dim is \"0\"; expected an integer from 1 to 65536"}},
        {BASE "--target_modules all-linear,lm_head",
         {"\"all-linear,lm_head\", but all-linear (all linear layers of attention and MLP) must be the only one"}},
        {BASE "--lora_target_modules q_proj,norm", {"\"norm\" matches no linear layer of attention or MLP, no head"}},
        {BASE "--trainable_modules heads", {"\"heads\" matches no module of the model"}},
        {"--model refused/checkpoint-2 --tuning lora", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--model refused/checkpoint-2", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--adapter base/checkpoint-8", {"adapter_config.json"}},
        {"--adapter refused/checkpoint-2 --lora_dim 5", {"--lora_dim differs from that of the adapter"}},
        {"--adapter refused/checkpoint-2 --tuning full", {"--tuning differs from that of the adapter"}},
        {"--resume refused/checkpoint-2 --lora_dim 5 --max_steps 4", {"--lora_dim 3", "says 5"}},
        {"--resume refused/checkpoint-2 --tuning full --max_steps 4",
         {"holds an adapter (--tuning lora)", "./merge_adapter --adapter refused/checkpoint-2"}},
        {"--resume base/checkpoint-8 --tuning lora --max_steps 9",
         {"holds a whole model (--tuning full)", "--model base/checkpoint-8 --tuning lora", "without --resume"}},
        {"--adapter refused", {"the newest is --adapter refused/checkpoint-2"}},
        {"--adapter some/lora", {"hf download some/lora --local-dir lora", "--adapter lora"}},
        {"--model some/hub-name.v2", {"there is no folder", "hf download some/hub-name.v2 --local-dir hub-name.v2"}},
        {"--model ./hub-name", {"there is no folder ./hub-name; --model needs one"}},
        {"--adapter of_hub", {"hf download some/base --local-dir base", "--model base"}},
        {"--lora_rank 4", {"did you mean --lora_dim?"}},
        {"--lora_r 4", {"did you mean --lora_dim?"}},
        {"--use_lora true", {"did you mean --tuning lora?"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir refused --max_steps 2"));
    shell("cp -r refused/checkpoint-2 of_hub && rm of_hub/manifest.json && "
          "sed -i 's|\"base_model_name_or_path\": \"[^\"]*\"|\"base_model_name_or_path\": \"some/base\"|' "
          "of_hub/adapter_config.json");
    CHECK_REFUSALS(cases);
}

TEST(what_is_merged_goes_to_no_place_of_a_checkpoint)
{
    static const char *const places[][2] = {
        {"places/checkpoint-9", "has the name of a checkpoint of the run in places"},
        {"./places/checkpoint-9/", "has the name of a checkpoint of the run in ./places"},
        {"places/checkpoint-2/merged", "when that checkpoint is removed, all in it is"},
        {"places/checkpoint-2", "places/checkpoint-2 already exists and is not empty: it has a manifest.json"},
    };
    char train[TEST_PATH], line[3000];
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir places --max_steps 2"));
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("merge_adapter")) return;
    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "%s --adapter places/checkpoint-2 --output_dir %s", program, places[i][0]);
        start_line(line, 0);
        CHECK(finish() > 0 && strstr(err(), places[i][1]), "%s: %s", places[i][0], err());
    }
    snprintf(line, sizeof line, "%s --adapter places --output_dir places_merged", program);
    start_line(line, 0);
    CHECK(finish() > 0 && strstr(err(), "the newest is --adapter places/checkpoint-2"), "%s", err());
    snprintf(program, sizeof program, "%s", train);
    check_whole("places/checkpoint-2");
}

// Both would wait for the other in different ways.
TEST(ranks_of_which_one_has_an_adapter_are_told_the_option)
{
    static const char *const pairs[][3] = {
        {"--adapter places/checkpoint-2", "--model base/checkpoint-8",
         "--adapter is \"a folder\" on rank 0 and not given"},
        {"--model base/checkpoint-8", "--adapter places/checkpoint-2",
         "--adapter is not given on rank 0 and \"a folder\""},
        {"--model base/checkpoint-8", "--model base/checkpoint-8 --evaluate", "--evaluate is false on rank 0 and true"},
        {"--model base/checkpoint-8 --evaluate", "--model base/checkpoint-8 --evaluate --seq_len 16",
         "--seq_len is 32 on rank 0 and 16 on rank 1"},
    };
    char line[4096];
    NEED_MPI();
    if (!make_base()) return;
    for (int i = 0; i < 4; i++) {
        snprintf(
            line, sizeof line,
            "mpirun -np 1 %s --config tiny.json --max_steps 2 --output_dir differ %s : -np 1 %s --config tiny.json "
            "--max_steps 2 --output_dir differ %s",
            program, pairs[i][0], program, pairs[i][1]);
        start_line(line, 0);
        const int status = finish_within(30);
        CHECK(status != 0 && status != TIMED_OUT && strstr(err(), pairs[i][2]), "status %d: %.400s", status, err());
    }
}

TEST(a_run_is_not_resumed_with_other_target_modules)
{
    static const char *const others[][2] = {
        {"--target_modules v_proj", "--lora_target_modules \"q_proj\", but this command says \"v_proj\""},
        {"--target_modules q_proj,v_proj", "\"q_proj\", but this command says \"q_proj,v_proj\""},
        {"--lora_target_modules all-linear", "\"q_proj\", but this command says \"all-linear\""}};
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir targets --max_steps 2 --target_modules q_proj"));
    for (int i = 0; i < 3; i++) {
        CHECK(run("--resume targets/checkpoint-2 --max_steps 3 %s", others[i][0]) > 0, "%s: it went on", others[i][0]);
        CHECK(strstr(err(), others[i][1]), "%s: %s", others[i][0], err());
    }
}

TEST(a_file_of_an_adapter_that_is_another_models_is_refused_by_its_tensor)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir file --max_steps 2 --target_modules q_proj"));
    shell("cp -r file/checkpoint-2 less && rm less/manifest.json && sed -i 's/\"q_proj\"/\"q_proj\", \"v_proj\"/' "
          "less/adapter_config.json");
    CHECK(run("--adapter less --output_dir x1 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "less has no tensor base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"), "%s",
          err());
    shell("cp -r file/checkpoint-2 more && rm more/manifest.json && sed -i 's/\"q_proj\"/\"v_proj\"/' "
          "more/adapter_config.json");
    CHECK(run("--adapter more --output_dir x2 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "q_proj.lora_A.weight, which is neither a tensor that its adapter_config.json names"), "%s",
          err());
    shell("cp -r file/checkpoint-2 wide && rm wide/manifest.json && sed -i 's/\"r\": 3/\"r\": 4/' "
          "wide/adapter_config.json");
    CHECK(run("--adapter wide --output_dir x3 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "has the shape [3,32], but this model's has [4,32]"), "%s", err());
    shell("cp -r file/checkpoint-2 torn && printf x >> torn/adapter_model.safetensors");
    CHECK(run("--adapter torn --output_dir x4 --max_steps 1") > 0 && strstr(err(), "adapter_model.safetensors"), "%s",
          err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
