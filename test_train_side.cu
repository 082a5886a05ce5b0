// test_train_side.cu: side networks as users meet them: --tuning side in the training programs, generate_llama
// --adapter. See test/program.h. What side networks compute, test_side.cu shows.
#define BASE            "--model base/checkpoint-8 --tuning side --side_reduction_factor 4 "
#define LORA            "--model base/checkpoint-8 --tuning lora "
#define TUNED_TRAINABLE "model.norm"
#include "test/tuned_runs.h"

// ---- what is saved --------------------------------------------------------------------------------------------------

TEST(a_checkpoint_has_the_side_network_alone_under_a_type_of_its_own)
{
    static const char *const names[] = {
        "side.down.0.weight", "side.down.0.bias", "side.down.2.weight", "side.gate.1.weight",
        "side.gate.2.weight", "side.up.weight",   "side.up.bias",       "side.model.layers.1.mlp.down_proj.weight",
        "model.norm.weight"};
    char name[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(
        BASE "--side_mix gated --add_bias_sampling --output_dir saved --max_steps 2 --trainable_modules model.norm"));
    CHECK(strstr(out(), "side network: width 8 beside 32, gated, with biases"), "%s", out());
    CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * (9 + 1) + 4 * 2 + 1, "%d tensors", s.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "base_model.model.%s", names[i]);
        CHECK(gx_safetensors_find(&s, name), "there is no %s", name);
    }
    gx_safetensors_close(&s);
    if (!CHECK(gx_safetensors_open(&s, "saved/checkpoint-2/optimizer.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 29, "%d moments; two of each of 29 tensors are trained", s.n);
    gx_safetensors_close(&s);
    static const char *const said[] = {"\"GALAXY_SIDE\"",
                                       "\"side_reduction_factor\": 4",
                                       "\"side_mix\": \"gated\"",
                                       "\"CAUSAL_LM\"",
                                       "\"add_bias_sampling\": true",
                                       "[\"model.norm\"]",
                                       "/base/checkpoint-8\"",
                                       NULL},
                             *const unsaid[] = {"lora", "\"r\"", "target_modules", "adapter_reduction_dim", NULL};
    check_adapter_folder("saved/checkpoint-2", said, unsaid);
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"", "--side_mix gated --precision bf16 --save_dtype bf16 --recompute layer",
                                       "--optimizer sgd --add_bias_sampling --gradient_accumulation_steps 2",
                                       "--quantize nf4", NULL};
    check_resumed(ways);
}

TEST(layers_that_are_computed_again_change_no_bit_of_a_training) { check_recomputed(""); }

TEST(weights_and_moments_survive_a_change_of_ranks_and_mode) { check_topologies(); }
TEST(every_mode_has_the_losses_of_serial) { check_every_mode("--side_mix gated --add_bias_sampling"); }

TEST(a_base_that_was_changed_is_refused) { check_changed_base(); }
TEST(a_run_whose_adapter_config_was_changed_is_refused)
{
    check_changed_config("s/\"side_reduction_factor\": 4/\"side_reduction_factor\": 2/",
                         "says side_reduction_factor 2, side_mix ");
}

// ---- a side network to begin with -----------------------------------------------------------------------------------

TEST(a_run_begins_with_a_side_network_as_it_was_saved) { check_begun_with(60, "--learning_rate 2e-2", 0.01, ""); }

TEST(text_is_written_with_a_side_network_which_no_model_can_take_in)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--side_mix gated --output_dir write --max_steps 30 --learning_rate 2e-2"));
    check_written("base/checkpoint-8", "write/checkpoint-30 holds a side network (GALAXY_SIDE)", "--max_new_tokens 40");
}

// ---- a head, a BERT -------------------------------------------------------------------------------------------------

// A BERT to tune, bert/checkpoint-4, with `program` as train_bert; 0: there is none.
static int make_bert(void)
{
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"micro_batch_size\": 2}";
    GxError e = GX_ZERO;
    if (!use_program("train_bert")) return 0;
    if (exists("bert/checkpoint-4")) return 1;
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    return CHECK(run("--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 --hidden_size "
                     "32 --intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 --tokenizer words "
                     "--output_dir bert --max_steps 4") == 0,
                 "%.300s", err());
}

TEST(a_bert_is_tuned_for_labels_saved_and_gone_on_with)
{
    static const char labels[] = "--config no_sample.json --task classification --train_data labels.tsv --seq_len 32 "
                                 "--max_eval_samples 0 ";
    char train[TEST_PATH];
    GxSafetensors s;
    GxError e = GX_ZERO;
    snprintf(train, sizeof train, "%s", program);
    if (!make_bert()) return;
    shell(
        "(printf 'text\\tlabel\\n'; for i in $(seq 60); do printf 'a cat %%d\\tcat\\na dog %%d\\tdog\\n' $i $i; done) "
        "> labels.tsv");
    CHECK_RAN(
        run("%s --model bert/checkpoint-4 --tuning side --output_dir bert1 --max_steps 6 --save_steps 3", labels));
    if (!CHECK(gx_safetensors_open(&s, "bert1/checkpoint-6/adapter_model.safetensors", &e) == GX_OK, "%s", e.message))
        return;
    CHECK(s.n == 2 * 16 + 4 + 4 && gx_safetensors_find(&s, "base_model.model.classifier.weight") &&
              gx_safetensors_find(&s, "base_model.model.side.bert.encoder.layer.1.output.LayerNorm.bias"),
          "%d tensors", s.n);
    gx_safetensors_close(&s);
    CHECK_RAN(run("--config no_sample.json --task classification --resume bert1/checkpoint-3 --output_dir bert2"));
    check_same_checkpoint("bert1/checkpoint-6", "bert2/checkpoint-6");
    CHECK_RAN(run("--config no_sample.json --task classification --resume bert1/checkpoint-6 --evaluate"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run("%s --adapter bert1/checkpoint-6 --evaluate --ranks 2 --mode galaxy", labels));
    const double other = number_behind(out(), "validation loss ");
    CHECK(fabs(loss - other) < 1e-4, "a loss of %g; the resumed run's is %g", other, loss);
    snprintf(program, sizeof program, "%s", train);
}

// Of a model without a head peft's names have no "bert."; those of a side network keep their "side.".
TEST(a_bert_is_tuned_for_vectors_saved_and_gone_on_with)
{
    static const char pairs[] = "--config no_sample.json --task embedding --train_data pairs.tsv --seq_len 16 "
                                "--max_eval_samples 0 --validation_fraction 0 --model bert/checkpoint-4 ";
    char train[TEST_PATH];
    snprintf(train, sizeof train, "%s", program);
    if (!make_bert()) return;
    shell("(printf 'anchor\\tpositive\\n'; for i in $(seq 40); do printf 'a cat %%d\\tcats %%d\\n' $i $i; done) > "
          "pairs.tsv");
    CHECK_RAN(run("%s --tuning side --output_dir vectors1 --max_steps 6 --save_steps 3", pairs));
    CHECK_RAN(run("--config no_sample.json --task embedding --resume vectors1/checkpoint-3 --output_dir vectors2"));
    check_same_checkpoint("vectors1/checkpoint-6", "vectors2/checkpoint-6");
    CHECK_RAN(run("%s --adapter vectors1/checkpoint-6 --output_dir vectors3 --max_steps 1 --learning_rate 0", pairs));
    CHECK(
        same_file("vectors1/checkpoint-6/adapter_model.safetensors", "vectors3/checkpoint-1/adapter_model.safetensors"),
        "with learning rate 0 the side network has changed");
    snprintf(program, sizeof program, "%s", train);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

TEST(what_cannot_have_a_side_network_is_refused)
{
    static const Refusal cases[] = {
        {"--tuning side", {"--tuning side needs a pretrained model to adapt", "--model"}},
        {"--side_mix gated --model base/checkpoint-8 --tuning lora",
         {"--side_mix is an option of --tuning side, but this run has --tuning lora"}},
        {"--add_bias_sampling --model base/checkpoint-8",
         {"--add_bias_sampling is an option for adapters", "--tuning side"}},
        {BASE "--side_mix mixed", {"plain|gated"}},
        {BASE "--lora_dim 4", {"--lora_dim is an option of --tuning lora, but this run has --tuning side"}},
        {BASE "--adapter_reduction_dim 4", {"--adapter_reduction_dim is an option of --tuning adapter"}},
        {"--model base/checkpoint-8 --tuning side --side_reduction_factor 5",
         {"side_reduction_factor is 5; it must divide the model's width (hidden_size), which is 32"}},
        {"--model base/checkpoint-8 --tuning side --side_reduction_factor 0", {"from 1 to 65536"}},
        {BASE "--trainable_modules input_layernorm",
         {"model.layers.0.input_layernorm.weight cannot be trained beside a side network"}},
        {"--model refused/checkpoint-2", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--adapter refused/checkpoint-2 --side_mix gated", {"--side_mix differs from that of the adapter"}},
        {"--resume refused/checkpoint-2 --side_reduction_factor 8 --max_steps 4",
         {"--side_reduction_factor 4", "says 8"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir refused --max_steps 2"));
    CHECK_REFUSALS(cases);
}

// With Up at 0 no gradient reaches a side network; so it is with the other of two factors, and with prompts.
TEST(what_is_frozen_at_0_where_gradients_come_through_is_refused_whatever_the_method)
{
    static const Refusal cases[] = {
        {BASE "--freeze side.up.weight", {"side.up.weight is frozen at 0, so side.down.0.weight", "--freeze"}},
        {BASE "--add_bias_sampling --side_mix gated --freeze side.up.weight,side.down.0*",
         {"side.up.weight is frozen at 0, so side.model.layers.0."}},
        {"--adapter young/checkpoint-1 --freeze side.up.weight", {"side.up.weight is frozen at 0"}},
        {LORA "--freeze *lora_B*", {"0.self_attn.q_proj.lora_B.weight is frozen at 0", "q_proj.lora_A.weight"}},
        {LORA "--ranks 2 --mode tp --precision bf16 --freeze *0.mlp.up_proj.lora_B*",
         {"up_proj.lora_B.weight is frozen at 0"}},
        {LORA "--target_modules embed_tokens --freeze *embedding_A --trainable_modules norm",
         {"lora_embedding_A is frozen at 0, so", "lora_embedding_B"}},
        {"--model base/checkpoint-8 --tuning prompt --freeze *gate",
         {"adaption_gate is frozen at 0, so", "adaption_prompt"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir young --max_steps 1 --learning_rate 0"));
    CHECK_REFUSALS(cases);
    CHECK(run(LORA "--ranks 3 --freeze *lora_B*") > 0 && !strstr(err(), "rank 1") && !strstr(err(), "rank 2"),
          "what all ranks find is told by the first: %s", err());
}

TEST(what_is_frozen_elsewhere_trains_the_rest)
{
    static const char *const ways[] = {"--adapter grown/checkpoint-4 --freeze side.up.weight",
                                       BASE "--trainable_modules model.norm --freeze side.*",
                                       BASE "--side_mix gated --freeze *gate*", LORA "--freeze *lora_A*",
                                       "--model base/checkpoint-8 --tuning adapter --freeze *adapter_down*"};
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir grown --max_steps 4 --learning_rate 1e-2"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK_RAN(run("%s --output_dir rest%zu --max_steps 2", ways[i], i));
        CHECK(!strstr(err(), "is frozen"), "%s: %s", ways[i], err());
    }
    CHECK_RAN(run("--model base/checkpoint-8 --tuning adapter --freeze *adapter_up* --output_dir small --max_steps 1"));
    CHECK(strstr(err(), "0.self_attn.adapter_up.weight is frozen at its small random initial values (at most 0.00"),
          "%s", err());
}

// A folder as PEFT's are, without a manifest, in which a tensor's elements are 0 from the first on: so many of n parts.
static void zero(const char *from, const char *folder, const char *tensor, int parts, int n)
{
    char path[TEST_PATH], name[200];
    GxSafetensors s;
    GxError e = GX_ZERO;
    int64_t bytes = 0;
    int fd = -1;
    shell("mkdir -p %s && cp %s/adapter_* %s", folder, from, folder);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    snprintf(name, sizeof name, "base_model.model.%s", tensor);
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *at = gx_safetensors_find(&s, name);
    if (CHECK(at, "no %s", name)) {
        char *zeros = (char *)calloc((size_t)at->bytes, 1);
        bytes = at->bytes * parts / n, fd = open(path, O_WRONLY);
        CHECK(fd >= 0 && gx_file_write_at(fd, path, zeros, bytes, at->offset, &e) == GX_OK, "%s", e.message);
        close(fd), free(zeros);
    }
    gx_safetensors_close(&s);
}

// Rank 0's part of B may be 0 where rank 1's is not; and a tensor at 0 is told before one that is small.
TEST(a_tensor_is_frozen_at_0_where_all_ranks_parts_of_it_are)
{
    static const char flags[] = "--adapter zeroed --ranks 2 --mode tp --freeze *0.self_attn.q_proj.lora_B*";
    static const char factor[] = "model.layers.0.self_attn.q_proj.lora_B.weight";
    if (!make_base()) return;
    CHECK_RAN(run(LORA "--output_dir factors --max_steps 4 --learning_rate 1e-2"));
    zero("factors/checkpoint-4", "zeroed", factor, 1, 2);
    CHECK_RAN(run("%s --output_dir half --max_steps 1", flags));
    zero("factors/checkpoint-4", "zeroed", factor, 1, 1);
    CHECK(run("%s --output_dir none --max_steps 1", flags) > 0, "a factor at 0 is taken");
    CHECK(strstr(err(), "q_proj.lora_B.weight is frozen at 0"), "%s", err());
    CHECK_RAN(run("--model base/checkpoint-8 --tuning adapter --output_dir grown_up --max_steps 1 --learning_rate 0"));
    zero("grown_up/checkpoint-1", "zeroed_up", "model.layers.1.self_attn.adapter_up.weight", 1, 1);
    CHECK(run("--adapter zeroed_up --freeze *adapter_up* --output_dir none --max_steps 1") > 0, "Up at 0 is taken");
    CHECK(strstr(err(), "1.self_attn.adapter_up.weight is frozen at 0"), "%s", err());
}

TEST(a_folder_of_another_side_network_is_refused)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir file --max_steps 2"));
    shell("cp -r file/checkpoint-2 wide && rm wide/manifest.json && sed -i 's/\"side_reduction_factor\": 4/"
          "\"side_reduction_factor\": 2/' wide/adapter_config.json");
    CHECK(run("--adapter wide --output_dir x1 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "has the shape") && strstr(err(), "side."), "%s", err());
    shell("cp -r file/checkpoint-2 gate && rm gate/manifest.json && sed -i 's/\"plain\"/\"gated\"/' "
          "gate/adapter_config.json");
    CHECK(run("--adapter gate --output_dir x2 --max_steps 1") > 0 && strstr(err(), "side.gate"), "%s", err());
    shell("cp -r file/checkpoint-2 key && rm key/manifest.json && sed -i 's/\"side_mix\"/\"scale\": 2, \"side_mix\"/' "
          "key/adapter_config.json");
    CHECK_RAN(run("--adapter key --output_dir x3 --max_steps 1"));
    CHECK(strstr(err(), "key/adapter_config.json: scale is not known and not read"), "%s", err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
