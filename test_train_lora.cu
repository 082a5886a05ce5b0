// test_train_lora.cu: adapters as users meet them: --tuning lora in the training programs, generate_llama --adapter,
// merge_adapter. See test/program.h. What LoRA computes, test_lora.cu shows; that the package peft reads these folders,
// dev/ref/load_lora.py.
#include "test/program.h"

// A model to adapt, of whose training the tests know nothing: base/checkpoint-8, and what begins with it.
#define BASE "--model base/checkpoint-8 --tuning lora --lora_dim 3 "
static int has_base;
static int make_base(void)
{
    if (has_base) return 1;
    return has_base = CHECK(run("--output_dir base --max_steps 8 --learning_rate 2e-2") == 0, "%.300s", err());
}

static int file_contains(const char *path, const char *words)
{
    char *text = read_text(path);
    const int found = strstr(text, words) != NULL;
    free(text);
    return found;
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
    check_whole("saved/checkpoint-2");
    CHECK(!exists("saved/checkpoint-2/model.safetensors") && !exists("saved/checkpoint-2/config.json"),
          "transformers would take the folder for a model's");
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
                                       "/base/checkpoint-8\""};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CHECK(file_contains("saved/checkpoint-2/adapter_config.json", said[i]), "adapter_config.json lacks %s",
              said[i]);
}

TEST(targets_in_one_layer_are_told_from_those_of_others)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir layer --max_steps 1 --lora_target_modules model.layers.1.mlp.up_proj"));
    CHECK(file_contains("layer/checkpoint-1/adapter_config.json", "[\"1.mlp.up_proj\"]"), "another list of targets");
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"--lora_dropout 0.3", "--precision bf16 --save_dtype bf16",
                                       "--optimizer sgd --use_rslora --trainable_modules norm"};
    char whole[60], part[60];
    if (!make_base()) return;
    for (int i = 0; i < 3; i++) {
        CHECK_RAN(run(BASE "--output_dir whole%d --max_steps 6 --save_steps 3 %s", i, ways[i]));
        CHECK_RAN(run("--resume whole%d/checkpoint-3 --output_dir part%d", i, i));
        snprintf(whole, sizeof whole, "whole%d/checkpoint-6", i);
        snprintf(part, sizeof part, "part%d/checkpoint-6", i);
        check_same_checkpoint(whole, part);
        CHECK(exists("part0/checkpoint-6/adapter_model.safetensors"), "no adapter was saved");
    }
}

TEST(weights_and_moments_survive_a_change_of_ranks_and_mode)
{
    static const Topology cases[] = {
        {"one_tp", "adamw", "train_llama", BASE, "train_llama", "--ranks 2 --mode tp", 0},
        {"tp_galaxy", "adamw", "train_llama", BASE "--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
         "train_llama", "--ranks 3 --mode galaxy", 0},
        {"sp_one", "sgd", "train_llama", BASE "--ranks 3 --mode sp --trainable_modules norm", "train_llama", "", 0},
        {"dp_mpi", "adamw", "train_llama", BASE "--ranks 2", "train_llama", "--mode galaxy2", 2},
    };
    if (!make_base()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!cases[i].mpi || has_mpi) check_topology(&cases[i]);
}

TEST(every_mode_has_the_losses_of_serial)
{
    static const char *const ways[] = {
        "--ranks 2 --mode tp",     "--ranks 3 --mode sp --seq_scatter_list 8,4,20",
        "--ranks 2 --mode galaxy", "--ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150",
        "--ranks 2 --tp 1",        "--ranks 4 --mode tp --tp 2"};
    static const char flags[] = BASE "--max_steps 4 --optimizer sgd --learning_rate 0.5 --lora_dropout 0.1 "
                                     "--micro_batch_size 4 --gradient_accumulation_steps 1";
    char dir[40];
    if (!make_base()) return;
    CHECK_RAN(run("%s --output_dir alone", flags));
    const Log serial = read_log("alone");
    for (int i = 0; i < 6; i++) {
        snprintf(dir, sizeof dir, "many%d", i);
        CHECK_RAN(run("%s --output_dir %s %s %s", flags, dir, ways[i],
                      i == 4   ? "--micro_batch_size 2"
                      : i == 5 ? "--micro_batch_size 2"
                               : ""));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
        const Log l = read_log(dir);
        CHECK(l.steps == 4 && serial.steps == 4, "%s: %d and %d steps", ways[i], l.steps, serial.steps);
        check_close_series(ways[i], l.loss, serial.loss, 4, 1);
        check_close_series(ways[i], l.grad_norm, serial.grad_norm, 4, 1);
    }
}

// ---- train_config ---------------------------------------------------------------------------------------------------

TEST(files_of_train_config_are_taken_with_a_model_and_a_text)
{
    static const char *const files[][2] = {{"full", "tuning=\"full\""},
                                           {"lora", "lora_dim=16"},
                                           {"qlora", "quantize=\"nf4\""},
                                           {"adapter", "tuning=\"adapter\""}};
    char line[4000];
    if (!make_base()) return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(line, sizeof line,
                 "%s --config %s/train_config/llama/%s.json --model base/checkpoint-8 --train_data text.txt "
                 "--max_steps 1 --gradient_accumulation_steps 1 --seq_len 32 --output_dir config_%s",
                 program, repository, files[i][0], files[i][0]);
        start_line(line, 0);
        CHECK_RAN(finish());
        CHECK(strstr(out(), files[i][1]), "%s: no %s: %s", files[i][0], files[i][1], out());
    }
}

// ---- a base in few bits
// ----------------------------------------------------------------------------------------------

// However the matrices are cut, each has the bytes that it has on one rank.
TEST(a_quantised_base_gives_every_mode_the_losses_of_serial)
{
    static const char *const ways[] = {"--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
                                       "--ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150", "--ranks 2 --tp 1"};
    char flags[400], dir[40];
    if (!make_base()) return;
    for (int kind = 0; kind < 2; kind++) {
        snprintf(flags, sizeof flags,
                 BASE "--quantize %s --max_steps 4 --optimizer sgd --learning_rate 0.5 --micro_batch_size 4 "
                      "--gradient_accumulation_steps 1",
                 kind ? "int8" : "nf4");
        CHECK_RAN(run("%s --output_dir few%d", flags, kind));
        snprintf(dir, sizeof dir, "few%d", kind);
        const Log serial = read_log(dir);
        for (int i = 0; i < 3; i++) {
            snprintf(dir, sizeof dir, "few%d_%d", kind, i);
            CHECK_RAN(run("%s --output_dir %s %s %s", flags, dir, ways[i], i == 2 ? "--micro_batch_size 2" : ""));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
            const Log l = read_log(dir);
            CHECK(l.steps == 4 && serial.steps == 4, "%s: %d and %d steps", ways[i], l.steps, serial.steps);
            check_close_series(ways[i], l.loss, serial.loss, 4, 1);
            check_close_series(ways[i], l.grad_norm, serial.grad_norm, 4, 1);
        }
    }
    CHECK_RAN(run(BASE "--max_steps 4 --optimizer sgd --learning_rate 0.5 --micro_batch_size 4 "
                       "--gradient_accumulation_steps 1 --output_dir many_bits"));
    const Log nf4 = read_log("few0"), int8 = read_log("few1"), all = read_log("many_bits");
    const double off[2] = {fabs(nf4.loss[0] - all.loss[0]), fabs(int8.loss[0] - all.loss[0])};
    CHECK(off[0] > 0 && off[1] > 0 && off[1] < off[0] && off[0] < 0.1 * all.loss[0],
          "the losses of a base in 4 and in 8 bits are %g and %g from that of the base", off[0], off[1]);
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
    CHECK(strstr(err(), "was trained on") && strstr(err(), "in nf4; it is merged into"), "%s", err());
    check_whole("merged_bits");
    snprintf(program, sizeof program, "%s", train);
}

TEST(what_cannot_be_quantised_is_refused)
{
    if (!make_base()) return;
    CHECK(run("--model base/checkpoint-8 --quantize nf4 --output_dir refused") > 0 &&
              strstr(err(), "--quantize is about an adapter, and --tuning full trains none"),
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
              strstr(err(), "model.layers.1.mlp.down_proj.weight has inf in row 1, column 2"),
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

TEST(a_base_that_was_changed_is_refused)
{
    if (!make_base()) return;
    shell("cp -r base/checkpoint-8 other");
    CHECK_RAN(run("--model other --tuning lora --output_dir changed --max_steps 2"));
    shell("rm -rf other && cp -r base/checkpoint-8 other && cd other && "
          "printf '\\125' | dd of=model.safetensors bs=1 seek=20001 conv=notrunc status=none && rm manifest.json");
    CHECK(run("--resume changed/checkpoint-2 --max_steps 3 --output_dir changed2") > 0, "it went on");
    CHECK(strstr(err(), "the weights of other are not those that changed/checkpoint-2 was trained on"), "%s", err());
    shell("rm -rf other");
    CHECK(run("--resume changed/checkpoint-2 --max_steps 3 --output_dir changed2") > 0 && strstr(err(), "other"), "%s",
          err());
}

// ---- an adapter to begin with ---------------------------------------------------------------------------------------

TEST(a_run_begins_with_an_adapter_as_it_was_saved)
{
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir first --max_steps 20 --learning_rate 2e-2"));
    const Log first = read_log("first");
    CHECK_RAN(run("--adapter first/checkpoint-20 --evaluate --eval_windows 0"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run("--resume first/checkpoint-20 --evaluate --eval_windows 0"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the loss of the adapter, %g", out(), loss);
    CHECK_RAN(run("--model base/checkpoint-8 --evaluate --eval_windows 0"));
    CHECK(loss < number_behind(out(), "validation loss ") - 0.01, "%s: without it, not worse than %g", out(), loss);
    CHECK(first.steps == 20, "%d steps", first.steps);
    CHECK_RAN(
        run("--adapter first/checkpoint-20 --output_dir second --max_steps 1 --learning_rate 0 --lora_dropout 0"));
    CHECK(same_file("first/checkpoint-20/adapter_model.safetensors", "second/checkpoint-1/adapter_model.safetensors"),
          "with learning rate 0 the adapter has changed");
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
    CHECK(!strcmp(text[0], text[1]) && !strcmp(text[0], text[2]), "three texts: %s\n%s\n%s", text[0], text[1], text[2]);
    CHECK(strcmp(text[0], text[3]), "the base writes the same: %s", text[3]);
    for (int i = 0; i < 4; i++) free(text[i]);
    snprintf(program, sizeof program, "%s", train);
}

// ---- a head ---------------------------------------------------------------------------------------------------------

TEST(a_head_for_labels_is_trained_and_saved_with_the_adapter)
{
#define LABELS "--config no_sample.json --task classification --train_data labels.tsv --seq_len 32 --eval_windows 0 "
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

// ---- what is refused
// -------------------------------------------------------------------------------------------------

TEST(what_cannot_be_adapted_is_refused)
{
    static const Refusal cases[] = {
        {"--tuning lora", {"--tuning lora adapts a model that has learned", "--model"}},
        {"--tuning prefix", {"full|lora"}},
        {"--lora_dim 4 --model base/checkpoint-8", {"--lora_dim is about an adapter", "--tuning lora"}},
        {"--r 4 --model base/checkpoint-8", {"--lora_dim is about an adapter"}},
        {BASE "--lora_alpha 1e-7", {"LoRA's alpha is 1e-07"}},
        {BASE "--strict false", {"--strict false draws weights of --model"}},
        {BASE "--lora_target_modules 1.self_attn.q_proj --trainable_modules q_proj",
         {"is to have LoRA and to be trained"}},
        {"--adapter refused/checkpoint-2 --output_dir refused --overwrite_output_dir",
         {"--adapter refused/checkpoint-2 lies"}},
        {"--adapter refused/checkpoint-2 --output_dir base --overwrite_output_dir", {"base/checkpoint-8 lies in base"}},
        {"--resume refused/checkpoint-2 --lora_dim 5 --max_steps 4", {"with --adapter refused/checkpoint-2"}},
        {BASE "--lora_dim 0", {"--lora_dim is \"0\"; expected an integer from 1 to 65536"}},
        {BASE "--lora_target_modules q_proj,lm_head", {"\"lm_head\" is no linear of attention or MLP"}},
        {BASE "--trainable_modules heads", {"\"heads\" is none of the model's"}},
        {"--model refused/checkpoint-2 --tuning lora", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--model refused/checkpoint-2", {"holds an adapter", "base/checkpoint-8", "--adapter"}},
        {"--adapter base/checkpoint-8", {"adapter_config.json"}},
        {"--adapter refused/checkpoint-2 --lora_dim 5", {"--lora_dim is another than that of the adapter"}},
        {"--adapter refused/checkpoint-2 --tuning full", {"--tuning is another than that of the adapter"}},
        {"--resume refused/checkpoint-2 --lora_dim 5 --max_steps 4", {"--lora_dim 3", "says 5"}},
        {"--resume refused/checkpoint-2 --tuning full --max_steps 4", {"--tuning"}},
        {"--resume base/checkpoint-8 --tuning lora --max_steps 9", {"--tuning"}},
    };
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir refused --max_steps 2"));
    CHECK_REFUSALS(cases);
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
    CHECK(strstr(err(), "q_proj.lora_A.weight, which is none of the tensors that its adapter_config.json says"), "%s",
          err());
    shell("cp -r file/checkpoint-2 wide && rm wide/manifest.json && sed -i 's/\"r\": 3/\"r\": 4/' "
          "wide/adapter_config.json");
    CHECK(run("--adapter wide --output_dir x3 --max_steps 1") > 0, "it was taken");
    CHECK(strstr(err(), "has the shape [3,32]; this model's has [4,32]"), "%s", err());
    shell("cp -r file/checkpoint-2 torn && printf x >> torn/adapter_model.safetensors");
    CHECK(run("--adapter torn --output_dir x4 --max_steps 1") > 0 && strstr(err(), "adapter_model.safetensors"), "%s",
          err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
