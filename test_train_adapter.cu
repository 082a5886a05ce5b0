// test_train_adapter.cu: bottleneck adapters as users meet them: --tuning adapter in the training programs,
// generate_llama --adapter. See test/program.h. What adapters compute, test_bottleneck.cu shows.
#define BASE "--model base/checkpoint-8 --tuning adapter --adapter_reduction_dim 8 "
#include "test/tuned_runs.h"

// ---- what is saved --------------------------------------------------------------------------------------------------

TEST(a_checkpoint_has_the_adapters_alone_under_a_type_of_its_own)
{
    static const char *const modules[] = {"self_attn", "mlp"}, *const kinds[] = {"weight", "bias"};
    char name[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir saved --max_steps 2 --trainable_modules model.norm"));
    CHECK(strstr(out(), "adapters: width 32, 4 inside"), "%s", out());
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 2 * 2 * 2 + 1, "%d tensors", s.n);
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "base_model.model.model.layers.%d.%s.adapter_%s.%s", i / 8, modules[i / 4 % 2],
                 i / 2 % 2 ? "up" : "down", kinds[i % 2]);
        const GxSafetensorsEntry *t = gx_safetensors_find(&s, name);
        if (!CHECK(t != NULL, "there is no %s", name)) continue;
        CHECK(t->ndim == (i % 2 ? 1 : 2) && t->shape[0] == (i / 2 % 2 ? 32 : 4), "%s has another shape", name);
    }
    CHECK(gx_safetensors_find(&s, "base_model.model.model.norm.weight"), "the norm is not there");
    gx_safetensors_close(&s);
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/optimizer.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 17, "%d moments; two of each of 17 tensors are trained", s.n);
    gx_safetensors_close(&s);
    static const char *const said[] = {"\"GALAXY_BOTTLENECK\"", "\"adapter_reduction_dim\": 8", "\"CAUSAL_LM\"",
                                       "[\"model.norm\"]",      "/base/checkpoint-8\"",         NULL},
                             *const unsaid[] = {"lora", "\"r\"", "target_modules", NULL};
    check_adapter_folder("saved/checkpoint-2", said, unsaid);
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"", "--precision bf16 --save_dtype bf16 --recompute layer",
                                       "--optimizer sgd --trainable_modules norm", "--quantize nf4", NULL};
    check_resumed(ways);
}

TEST(layers_that_are_computed_again_change_no_bit_of_a_training) { check_recomputed(""); }

TEST(weights_and_moments_survive_a_change_of_ranks_and_mode) { check_topologies(); }
TEST(every_mode_has_the_losses_of_serial) { check_every_mode(""); }

TEST(a_base_that_was_changed_is_refused) { check_changed_base(); }
TEST(a_run_whose_adapter_config_was_changed_is_refused)
{
    check_changed_config("s/\"adapter_reduction_dim\": 8/\"adapter_reduction_dim\": 4/",
                         "says adapter_reduction_dim 4, but this run's adapter has adapter_reduction_dim 8");
}

// ---- an adapter to begin with ---------------------------------------------------------------------------------------

TEST(a_run_begins_with_an_adapter_as_it_was_saved) { check_begun_with(60, "--learning_rate 5e-2", 0.01, ""); }

TEST(text_is_written_with_an_adapter_which_no_model_can_take_in)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir write --max_steps 30 --learning_rate 2e-2"));
    check_written("base/checkpoint-8", "write/checkpoint-30 holds bottleneck adapters (GALAXY_BOTTLENECK)",
                  "--max_new_tokens 40");
}

// ---- a head, a BERT -------------------------------------------------------------------------------------------------

TEST(a_head_for_labels_is_trained_and_saved_with_the_adapters)
{
#define LABELS                                                                                                         \
    "--config no_sample.json --task classification --train_data labels.tsv --seq_len 32 --max_eval_samples 0 "
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1}";
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    shell(
        "(printf 'text\\tlabel\\n'; for i in $(seq 60); do printf 'a cat %%d\\tcat\\na dog %%d\\tdog\\n' $i $i; done) "
        "> labels.tsv");
    CHECK_RAN(run(BASE LABELS "--output_dir labels --max_steps 6 --save_steps 3"));
    if (!CHECK(gx_safetensors_open(&s, "labels/checkpoint-6/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(gx_safetensors_find(&s, "base_model.model.score.weight"), "the head is not there");
    gx_safetensors_close(&s);
    CHECK(file_contains("labels/checkpoint-6/adapter_config.json", "[\"score\"]"),
          "adapter_config.json does not say it");
    CHECK_RAN(run("--config no_sample.json --task classification --resume labels/checkpoint-3 --output_dir labels2"));
    check_same_checkpoint("labels/checkpoint-6", "labels2/checkpoint-6");
    CHECK_RAN(run("--config no_sample.json --task classification --resume labels/checkpoint-6 --evaluate"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run(LABELS "--adapter labels/checkpoint-6 --evaluate"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the loss that the resumed run has, %g", out(),
          loss);
}

TEST(a_bert_is_adapted_saved_and_gone_on_with)
{
    static const char model[] =
        "--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 "
        "--hidden_size 32 --intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 ";
    char train[TEST_PATH];
    GxSafetensors s;
    GxError e = GX_ZERO;
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"micro_batch_size\": 2}";
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("train_bert")) return;
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    CHECK_RAN(run("%s --tokenizer words --output_dir bert --max_steps 4", model));
    CHECK_RAN(run("--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 --model "
                  "bert/checkpoint-4 --tuning adapter --output_dir bert1 --max_steps 6 --save_steps 3"));
    if (!CHECK(gx_safetensors_open(&s, "bert1/checkpoint-6/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 16 &&
              gx_safetensors_find(&s, "base_model.model.bert.encoder.layer.1.attention.output.adapter_down.weight"),
          "%d tensors", s.n);
    gx_safetensors_close(&s);
    CHECK_RAN(run("--config no_sample.json --resume bert1/checkpoint-3 --output_dir bert2"));
    check_same_checkpoint("bert1/checkpoint-6", "bert2/checkpoint-6");
    CHECK_RAN(run("--config no_sample.json --resume bert1/checkpoint-3 --output_dir bert3 --ranks 2 --mode tp"));
    snprintf(program, sizeof program, "%s", train);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

TEST(what_cannot_be_adapted_is_refused)
{
    static const Refusal cases[] = {
        {"--tuning adapter", {"--tuning adapter needs a pretrained model to adapt", "--model"}},
        {"--tuning prefix", {"full|lora|adapter"}},
        {"--adapter_reduction_dim 4 --model base/checkpoint-8",
         {"--adapter_reduction_dim is an option for adapters", "--tuning adapter"}},
        {"--adapter_reduction_dim 4 --model base/checkpoint-8 --tuning lora",
         {"--adapter_reduction_dim is an option of --tuning adapter, but this run has --tuning lora"}},
        {BASE "--lora_dim 4", {"--lora_dim is an option of --tuning lora, but this run has --tuning adapter"}},
        {BASE "--use_rslora", {"--use_rslora is an option of --tuning lora"}},
        {"--model base/checkpoint-8 --tuning adapter --adapter_reduction_dim 5",
         {"adapter_reduction_dim is 5; it must divide the model's width, which is 32"}},
        {"--model base/checkpoint-8 --tuning adapter --adapter_reduction_dim 64", {"the model's width, which is 32"}},
        {"--model base/checkpoint-8 --tuning adapter --adapter_reduction_dim 0", {"from 1 to 65536"}},
        {BASE "--strict false", {"--strict false initializes some weights of --model"}},
        {BASE "--trainable_modules heads", {"\"heads\" matches no module of the model"}},
        {BASE "--trainable_modules model.norm,,lm_head", {"the trainable module \"\" matches no module of the model"}},
        {"--model refused/checkpoint-2", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--model text.txt", {"text.txt is a file, but --model needs the folder"}},
        {"--model a.gguf", {"./convert_gguf --gguf a.gguf --output_dir FOLDER makes one from it"}},
        {"--adapter refused/checkpoint-2 --adapter_reduction_dim 16",
         {"--adapter_reduction_dim differs from that of the adapter"}},
        {"--adapter refused/checkpoint-2 --tuning lora", {"--tuning differs from that of the adapter"}},
        {"--resume refused/checkpoint-2 --adapter_reduction_dim 16 --max_steps 4",
         {"--adapter_reduction_dim 8", "says 16"}},
        {"--resume refused/checkpoint-2 --tuning lora --max_steps 4", {"--tuning"}},
        {"--resume base/checkpoint-8 --tuning adapter --max_steps 9", {"--tuning"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir refused --max_steps 2"));
    shell("printf GGUF > a.gguf");
    CHECK_REFUSALS(cases);
}

TEST(a_file_of_adapters_that_are_another_models_is_refused_by_its_tensor)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir file --max_steps 2"));
    shell("cp -r file/checkpoint-2 wide && rm wide/manifest.json && sed -i 's/\"adapter_reduction_dim\": 8/"
          "\"adapter_reduction_dim\": 4/' wide/adapter_config.json");
    CHECK(run("--adapter wide --output_dir x1 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "adapter_down.weight has the shape [4,32], but this model's has [8,32]"), "%s", err());
    shell("cp -r file/checkpoint-2 key && rm key/manifest.json && sed -i 's/\"adapter_reduction_dim\"/\"scale\": 2, "
          "\"adapter_reduction_dim\"/' key/adapter_config.json");
    CHECK_RAN(run("--adapter key --output_dir x2 --max_steps 1"));
    CHECK(strstr(err(), "key/adapter_config.json: scale is not known and not read"), "%s", err());
    shell("cp -r file/checkpoint-2 none && rm none/manifest.json && sed -i 's/\"adapter_reduction_dim\": 8/"
          "\"adapter_reduction_dim\": null/' none/adapter_config.json");
    CHECK(run("--adapter none --output_dir x3 --max_steps 1") > 0 && strstr(err(), "adapter_reduction_dim"), "%s",
          err());
    shell("cp -r file/checkpoint-2 torn && printf x >> torn/adapter_model.safetensors");
    CHECK(run("--adapter torn --output_dir x4 --max_steps 1") > 0 && strstr(err(), "adapter_model.safetensors"), "%s",
          err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
