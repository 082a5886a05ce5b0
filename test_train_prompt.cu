// test_train_prompt.cu: prompts in attention as users meet them: --tuning prompt in the training programs,
// generate_llama --adapter, folders of peft. See test/program.h. What prompts compute, test_prompt.cu shows.
#define BASE "--model base/checkpoint-8 --tuning prompt --prompt_len 4 "
#define V2   "--adapter_layers 2 --prompt_variant v2 "
#include "test/tuned_runs.h"

// ---- what is saved --------------------------------------------------------------------------------------------------

TEST(a_checkpoint_has_the_prompts_alone_as_peft_calls_them)
{
    char name[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir saved --max_steps 2 --prompt_layers 2"));
    CHECK(strstr(out(), "prompts: 4 rows in the attention of each of the last 2 layers"), "%s", out());
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 4, "%d tensors", s.n);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "base_model.model.model.layers.%d.self_attn.adaption_%s", i / 2,
                 i % 2 ? "prompt" : "gate");
        const GxSafetensorsEntry *t = gx_safetensors_find(&s, name);
        if (!CHECK(t != NULL, "there is no %s", name)) continue;
        if (i % 2)
            CHECK(t->ndim == 3 && t->shape[0] == 1 && t->shape[1] == 4 && t->shape[2] == 32, "%s: another shape", name);
        else CHECK(t->ndim == 1 && t->shape[0] == 1, "%s has another shape", name);
    }
    gx_safetensors_close(&s);
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/optimizer.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 4, "%d moments; two of each of 4 tensors are trained", s.n);
    gx_safetensors_close(&s);
    static const char *const said[] = {"\"ADAPTION_PROMPT\"",
                                       "\"adapter_len\": 4",
                                       "\"adapter_layers\": 2",
                                       "\"CAUSAL_LM\"",
                                       "\"target_modules\": \"self_attn\"",
                                       "/base/checkpoint-8\"",
                                       NULL},
                             *const unsaid[] = {"lora", "\"r\"", "modules_to_save", "reduction", NULL};
    check_adapter_folder("saved/checkpoint-2", said, unsaid);
}

// Of two layers the last has them by default; the first step leaves the model as it is.
TEST(a_training_begins_with_the_model_as_it_is)
{
    if (!make_base()) return;
    CHECK_RAN(run("--model base/checkpoint-8 --evaluate --max_eval_samples 0"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run(BASE "--output_dir closed --max_steps 1 --learning_rate 0 --max_eval_samples 0"));
    CHECK(strstr(out(), "of each of the last 1 layers"), "%s", out());
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the model's loss, %g", out(), loss);
    CHECK_RAN(run(BASE "--output_dir open --max_steps 30 --learning_rate 0.5 --max_eval_samples 0"));
    CHECK(loss > number_behind(out(), "validation loss "), "%s: no better than %g", out(), loss);
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"--adapter_layers 2",
                                       "--adapter_layers 2 --precision bf16 --save_dtype bf16 --recompute layer",
                                       "--adapter_layers 2 --optimizer sgd --trainable_modules norm",
                                       "--adapter_layers 2 --quantize nf4",
                                       V2 "--learning_rate 1e-3",
                                       V2 "--precision bf16 --save_dtype bf16 --recompute layer",
                                       V2 "--quantize nf4 --trainable_modules lm_head --optimizer sgd",
                                       NULL};
    check_resumed(ways);
}

TEST(layers_that_are_computed_again_change_no_bit_of_a_training) { check_recomputed("--prompt_layers 2"); }

TEST(weights_and_moments_survive_a_change_of_ranks_and_mode) { check_topologies(); }
TEST(every_mode_has_the_losses_of_serial) { check_every_mode("--prompt_layers 2"); }

TEST(a_base_that_was_changed_is_refused) { check_changed_base(); }
TEST(a_run_whose_adapter_config_was_changed_is_refused)
{
    check_changed_config(
        "s/\"adapter_len\": 4/\"adapter_len\": 5/",
        "says adapter_len 5, adapter_layers 1, prompt_variant v1, but this run's adapter has adapter_len 4, ");
}

// ---- an adapter to begin with ---------------------------------------------------------------------------------------

TEST(a_run_begins_with_prompts_as_they_were_saved)
{
    check_begun_with(60, "--learning_rate 0.5 --prompt_layers 2", 0, "");
}

TEST(text_is_written_with_prompts_which_no_model_can_take_in)
{
    if (!make_base()) return;
    CHECK_RAN(run("--output_dir better --max_steps 100 --learning_rate 2e-2"));
    CHECK_RAN(run("--model better/checkpoint-100 --tuning prompt --output_dir write --max_steps 30 --learning_rate 1 "
                  "--prompt_layers 2 --weight_decay 0"));
    check_written("better/checkpoint-100", "write/checkpoint-30 holds prompts (ADAPTION_PROMPT)",
                  "--max_new_tokens 200 --temperature 1 --seed 3");
}

// peft's own folder, on its own model: data/ref/prompt_mistral.
TEST(a_folder_of_peft_is_gone_on_with)
{
    GxSafetensors ours, theirs;
    GxError e = GX_ZERO;
    char path[2 * TEST_PATH];
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"micro_batch_size\": 2}";
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    shell("cp -r %s/data/ref/prompt_mistral mistral && sed -i "
          "'s:data/ref/prompt_mistral/base:mistral/base:' mistral/adapter_config.json",
          repository);
    CHECK_RAN(run(
        "--config no_sample.json --adapter mistral --train_data text.txt --tokenizer bytes --seq_len 16 --output_dir "
        "peft --max_steps 1 --learning_rate 0 --sample_tokens 0"));
    snprintf(path, sizeof path, "%s/data/ref/prompt_mistral/adapter_model.safetensors", repository);
    if (!CHECK(gx_safetensors_open(&ours, "peft/checkpoint-1/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    if (!CHECK(gx_safetensors_open(&theirs, path, &e) == GX_OK, "%s", e.message)) return;
    CHECK(ours.n == theirs.n && ours.n == 4, "%d tensors, and %d", ours.n, theirs.n);
    for (int i = 0; i < theirs.n; i++) {
        const GxSafetensorsEntry *t = &theirs.entry[i], *o = gx_safetensors_find(&ours, t->name);
        float a[256], b[256];
        if (!CHECK(o && o->elements == t->elements && t->elements <= 256 && o->ndim == t->ndim, "%s", t->name))
            continue;
        gx_safetensors_read(&theirs, t, 0, t->elements, a, &e), gx_safetensors_read(&ours, o, 0, t->elements, b, &e);
        CHECK(!memcmp(a, b, (size_t)t->elements * 4), "%s has other values", t->name);
    }
    gx_safetensors_close(&ours), gx_safetensors_close(&theirs);
}

// Of 2 * 4 * 32 numbers the mean square is 1, with a deviation of 0.09.
TEST(prompts_are_drawn_with_a_deviation_of_1)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    float rows[4 * 32];
    double squares = 0;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir drawn --max_steps 1 --learning_rate 0 --prompt_layers 2"));
    if (!CHECK(gx_safetensors_open(&s, "drawn/checkpoint-1/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    for (int i = 0; i < s.n; i++) {
        if (s.entry[i].elements != 4 * 32) continue;
        gx_safetensors_read(&s, &s.entry[i], 0, 4 * 32, rows, &e);
        for (int k = 0; k < 4 * 32; k++) squares += (double)rows[k] * rows[k] / (2 * 4 * 32);
    }
    gx_safetensors_close(&s);
    CHECK(fabs(squares - 1) < 5 * 0.09, "the mean square is %g", squares);
}

// ---- LLaMA-Adapter v2: scales, biases and norms besides -------------------------------------------------------------

// Of each of two layers 2 of prompts, 7 scales, 7 biases and 2 norms; and the last norm.
TEST(a_checkpoint_of_v2_has_scales_biases_and_norms_besides)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    static const char *const names[] = {"layers.0.self_attn.q_proj.adaption_scale",
                                        "layers.1.mlp.down_proj.adaption_bias", "layers.1.self_attn.adaption_gate",
                                        "layers.0.input_layernorm.weight", "norm.weight"},
                             *const said[] = {"\"GALAXY_PROMPT_V2\"", "\"adapter_len\": 4", "\"adapter_layers\": 2",
                                              "/base/checkpoint-8\"", NULL},
                             *const unsaid[] = {"ADAPTION_PROMPT", "target_modules", "lora", "norm", "reduction", NULL};
    if (!make_base()) return;
    CHECK_RAN(run(BASE V2 "--output_dir saved_v2 --max_steps 2"));
    CHECK(strstr(out(), "a scale and a bias of each linear of attention and MLP, and norms"), "%s", out());
    if (!CHECK(gx_safetensors_open(&s, "saved_v2/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s",
               e.message))
        return;
    CHECK(s.n == 2 * 18 + 1, "%d tensors", s.n);
    for (int i = 0; i < 5; i++) {
        char name[200];
        snprintf(name, sizeof name, "base_model.model.model.%s", names[i]);
        const GxSafetensorsEntry *t = gx_safetensors_find(&s, name);
        CHECK(t && t->ndim == 1 && t->shape[0] == (i == 2 ? 1 : 32), "no %s of that shape", name);
    }
    gx_safetensors_close(&s);
    if (!CHECK(gx_safetensors_open(&s, "saved_v2/checkpoint-2/optimizer.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * (2 * 18 + 1), "%d moments", s.n);
    gx_safetensors_close(&s);
    check_adapter_folder("saved_v2/checkpoint-2", said, unsaid);
}

TEST(a_training_of_v2_begins_with_the_model_as_it_is)
{
    if (!make_base()) return;
    CHECK_RAN(run("--model base/checkpoint-8 --evaluate --max_eval_samples 0"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run(BASE V2 "--output_dir closed_v2 --max_steps 1 --learning_rate 0 --max_eval_samples 0"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the model's loss, %g", out(), loss);
    CHECK_RAN(run(BASE V2 "--output_dir open_v2 --max_steps 30 --learning_rate 2e-2 --max_eval_samples 0"));
    CHECK(loss > number_behind(out(), "validation loss ") + 0.1, "%s: no better than %g", out(), loss);
}

TEST_UNSANITIZED(layers_of_v2_that_are_computed_again_change_no_bit_of_a_training)
{
    shell("rm -rf again0 again1 again2");
    check_recomputed(V2);
}

TEST_UNSANITIZED(weights_and_moments_of_v2_survive_a_change_of_ranks_and_mode)
{
    static const Topology cases[] = {
        {"v2_one_tp", "adamw", "train_llama", BASE V2, "train_llama", "--ranks 2 --mode tp", 0},
        {"v2_tp_galaxy", "adamw", "train_llama", BASE V2 "--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
         "train_llama", "--ranks 3 --mode galaxy", 0},
        {"v2_sp_one", "sgd", "train_llama", BASE V2 "--ranks 3 --mode sp", "train_llama", "", 0},
    };
    if (!make_base()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_topology(&cases[i]);
}

TEST_UNSANITIZED(every_mode_has_the_losses_of_serial_in_v2)
{
    shell("rm -rf alone many?");
    check_every_mode(V2);
}

TEST(a_run_begins_with_v2_as_it_was_saved)
{
    shell("rm -rf first second");
    check_begun_with(30, V2 "--learning_rate 2e-2", 0.1, "");
}

TEST(text_is_written_with_v2_and_a_conversation_takes_another_one)
{
    char train[TEST_PATH];
    snprintf(train, sizeof train, "%s", program);
    if (!make_base()) return;
    shell("rm -rf write merged");
    CHECK_RAN(run(BASE V2 "--output_dir write --max_steps 30 --learning_rate 2e-2"));
    check_written("base/checkpoint-8", "write/checkpoint-30 holds prompts and scales (GALAXY_PROMPT_V2)",
                  "--max_new_tokens 60 --temperature 1 --seed 3");
    CHECK_RAN(run(BASE V2 "--output_dir write2 --max_steps 30 --learning_rate 4e-2 --seed 2"));
    CHECK_RAN(run(BASE "--adapter_layers 2 --output_dir write1 --max_steps 1"));
    char *one = talk("--adapter write/checkpoint-30", "the\\n"),
         *two = talk("--adapter write2/checkpoint-30", "the\\n"),
         *other = talk("--adapter write/checkpoint-30", "/adapter write2/checkpoint-30\\nthe\\n"),
         *same = talk("--adapter write/checkpoint-30", "/adapter write1/checkpoint-1\\nthe\\n");
    CHECK(strstr(err(), "prompt_variant v1"), "%s", err());
    CHECK(strcmp(one, two) && !strcmp(two, other) && !strcmp(one, same), "%s\n%s\n%s\n%s", one, two, other, same);
    free(one), free(two), free(other), free(same);
    snprintf(program, sizeof program, "%s", train);
}

TEST(folders_of_v2_that_are_not_whole_and_those_of_v1_in_their_place_are_refused)
{
    static const Refusal cases[] = {
        {"--adapter v1/checkpoint-1 --prompt_variant v2", {"--prompt_variant differs from that of the adapter"}},
        {"--adapter v2/checkpoint-1 --prompt_variant v1", {"--prompt_variant differs from that of the adapter"}},
        {"--resume v2/checkpoint-1 --prompt_variant v1 --max_steps 4", {"--prompt_variant \"v2\"", "says \"v1\""}},
        {"--adapter scales --max_steps 1", {"has no tensor base_model.model.model.layers.0.input_layernorm.weight"}},
        {"--adapter less --max_steps 1", {"input_layernorm.weight, which is neither a tensor"}},
        {"--adapter key_v2 --max_steps 1",
         {"target_modules is ", "which is not supported: adapters of this type are in every layer"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--adapter_layers 2 --output_dir v1 --max_steps 1"));
    CHECK_RAN(run(BASE V2 "--output_dir v2 --max_steps 1"));
    shell("cp -r v1/checkpoint-1 scales && rm scales/manifest.json && cp v2/checkpoint-1/adapter_config.json scales");
    shell("cp -r v2/checkpoint-1 less && rm less/manifest.json && cp v1/checkpoint-1/adapter_config.json less");
    shell("cp -r v2/checkpoint-1 key_v2 && rm key_v2/manifest.json && sed -i 's/\"adapter_len\"/\"target_modules\": "
          "\"mlp\", "
          "\"adapter_len\"/' key_v2/adapter_config.json");
    CHECK_REFUSALS(cases);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

TEST(what_cannot_have_prompts_is_refused)
{
    static const Refusal cases[] = {
        {"--tuning prompt", {"--tuning prompt needs a pretrained model to adapt", "--model"}},
        {"--prompt_len 4 --model base/checkpoint-8", {"--prompt_len is an option for adapters", "--tuning prompt"}},
        {"--prompt_layers 1 --model base/checkpoint-8 --tuning lora",
         {"--prompt_layers is an option of --tuning prompt, but this run has --tuning lora"}},
        {BASE "--lora_dim 4", {"--lora_dim is an option of --tuning lora, but this run has --tuning prompt"}},
        {"--model base/checkpoint-8 --tuning prompt --prompt_len 0", {"from 1 to 65536"}},
        {BASE "--prompt_variant v3", {"--prompt_variant is \"v3\"; expected", "v1"}},
        {BASE "--prompt_layers 3", {"prompt_layers is 3; it can be at most the model's number of layers, which is 2"}},
        {BASE "--strict false", {"--strict false initializes some weights of --model"}},
        {BASE "--trainable_modules heads", {"\"heads\" matches no module of the model"}},
        {BASE "--trainable_modules v_proj", {"layers.1.self_attn.v_proj.weight cannot be a trainable module"}},
        {"--model refused/checkpoint-2", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--adapter refused/checkpoint-2 --prompt_len 5", {"--prompt_len differs from that of the adapter"}},
        {"--adapter refused/checkpoint-2 --tuning lora", {"--tuning differs from that of the adapter"}},
        {"--resume refused/checkpoint-2 --prompt_len 5 --max_steps 4", {"--prompt_len 4", "says 5"}},
        {"--resume refused/checkpoint-2 --tuning lora --max_steps 4", {"--tuning"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir refused --max_steps 2"));
    CHECK_REFUSALS(cases);
}

TEST(a_bert_is_refused)
{
    static const char model[] =
        "--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 "
        "--hidden_size 32 --intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 ";
    char train[TEST_PATH];
    GxError e = GX_ZERO;
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"micro_batch_size\": 2}";
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("train_bert")) return;
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    CHECK_RAN(run("%s --tokenizer words --output_dir bert --max_steps 2", model));
    CHECK(run("--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 --model "
              "bert/checkpoint-2 --tuning prompt --output_dir bert1 --max_steps 2") > 0,
          "it was taken");
    CHECK(strstr(err(), "prompts (LLaMA-Adapter) need a causal model") && strstr(err(), "bert is none"), "%s", err());
    snprintf(program, sizeof program, "%s", train);
}

TEST(a_file_of_prompts_that_are_another_models_is_refused_by_its_tensor)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir file --max_steps 2"));
    shell("cp -r file/checkpoint-2 wide && rm wide/manifest.json && sed -i 's/\"adapter_len\": 4/\"adapter_len\": 5/' "
          "wide/adapter_config.json");
    CHECK(run("--adapter wide --output_dir x1 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "adaption_prompt has the shape [1,4,32], but this model's has [1,5,32]"), "%s", err());
    shell("cp -r file/checkpoint-2 more && rm more/manifest.json && sed -i 's/\"adapter_layers\": 1/"
          "\"adapter_layers\": 2/' more/adapter_config.json");
    CHECK(run("--adapter more --output_dir x2 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "has no tensor base_model.model.model.layers.0.self_attn.adaption_gate"), "%s", err());
    shell("cp -r file/checkpoint-2 key && rm key/manifest.json && sed -i 's/\"adapter_len\"/\"scale\": 2, "
          "\"adapter_len\"/' key/adapter_config.json");
    CHECK_RAN(run("--adapter key --output_dir x3 --max_steps 1"));
    CHECK(strstr(err(), "key/adapter_config.json: scale is not known and not read"), "%s", err());
    shell("cp -r file/checkpoint-2 mlp && rm mlp/manifest.json && sed -i 's/\"self_attn\"/\"mlp\"/' "
          "mlp/adapter_config.json");
    CHECK(run("--adapter mlp --output_dir x4 --max_steps 1") > 0 && strstr(err(), "target_modules is \"mlp\""), "%s",
          err());
    CHECK_RAN(run(BASE "--output_dir named --max_steps 1 --trainable_modules model.norm"));
    shell("cp -r file/checkpoint-2 lost && rm lost/manifest.json && cp named/checkpoint-1/adapter_config.json lost");
    CHECK(run("--adapter lost --output_dir x7 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "has no tensor base_model.model.model.norm.weight, which the adapter needs"), "%s", err());
    shell("cp -r file/checkpoint-2 torn && printf x >> torn/adapter_model.safetensors");
    CHECK(run("--adapter torn --output_dir x5 --max_steps 1") > 0 && strstr(err(), "adapter_model.safetensors"), "%s",
          err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
