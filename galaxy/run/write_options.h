// write_options.h: the options of programs that write text (writer.h): prompts, sampling, texts to score,
// conversations. Options about ranks and devices are those of training programs (options_table.h).
#ifndef GX_WRITE_OPTIONS_H
#define GX_WRITE_OPTIONS_H
#include "../text/chat_find.h"
#include "options.h"
GX_BEGIN

typedef struct {
    char model[GX_PATH], adapter[GX_PATH], prompt[GX_FIELD_NAMES_TEXT], prompt_file[GX_PATH], stop[GX_FIELD_NAMES_TEXT];
    char score[GX_PATH], output_file[GX_PATH];
    int64_t max_length, max_new_tokens, top_k, seed, context, prefill_rows;
    double temperature, top_p, min_p, repetition_penalty;
    int strict, echo, json, chat, thinking;
    char chat_template[GX_PATH], chat_date[GX_FIELD_TEXT], system[GX_PATH], mode[GX_FIELD_TEXT],
        precision[GX_FIELD_TEXT];
    char quantize[GX_FIELD_TEXT];
    GxTrainOptions machine; // ranks, devices and lists, as in training programs
} GxWriteOptions;

enum { GX_WRITE_FIELDS = 20 };
// Adds the tables to a config; fields: room for one of them, which must outlive the config.
GxStatus gx_write_options_add(GxConfig *c, GxWriteOptions *o, GxField fields[GX_WRITE_FIELDS], GxError *err);
// which options can be combined
GxStatus gx_write_options_check(const GxWriteOptions *o, const GxConfig *c, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WRITE_OPTIONS_IMPLEMENTED)
#define GX_WRITE_OPTIONS_IMPLEMENTED
#include <string.h>
#include "options_table.h"

#define GX__WRITE_AT(field) offsetof(GxWriteOptions, field)
static const GxField gx__write_text_options[] = {
    {"model", GX_FIELD_PATH, GX__WRITE_AT(model), "",
     "Hugging Face folder: config.json, weights, tokenizer.json, generation_config.json", NULL},
    {"adapter", GX_FIELD_PATH, GX__WRITE_AT(adapter), "",
     "folder of an adapter of this model, as peft (LoRA) or train_llama --tuning saved it; it says "
     "where --model "
     "is",
     NULL},
    {"strict", GX_FIELD_BOOL, GX__WRITE_AT(strict), "true",
     "weights must match the model, by name and shape; false: what does not is left out or drawn, and told by name",
     NULL},
    {"prompt", GX_FIELD_TEXTS, GX__WRITE_AT(prompt), NULL,
     "what the model goes on from; given several times: several texts, which are written side by side", NULL},
    {"prompt_file", GX_FIELD_PATH, GX__WRITE_AT(prompt_file), "", "one more prompt: all of this file", NULL},
    {"max_new_tokens", GX_FIELD_INT, GX__WRITE_AT(max_new_tokens), "128",
     "of each text, or answer; generation_config.json may say another number", "1..16777216"},
    {"stop", GX_FIELD_TEXTS, GX__WRITE_AT(stop), NULL,
     "a text ends behind the token with which this is in it; may be given several times", NULL},
    {"echo", GX_FIELD_BOOL, GX__WRITE_AT(echo), "false", "the prompt is written before what follows it", NULL},
    {"json", GX_FIELD_BOOL, GX__WRITE_AT(json), "false",
     "a line of JSON for each text: prompt, text, ids, numbers of tokens, why it ended", NULL},
};
static const GxField gx__write_sampling_options[] = {
    {"temperature", GX_FIELD_DOUBLE, GX__WRITE_AT(temperature), "0",
     "0: the likeliest token. What is not given, of this and the next four, generation_config.json says where its "
     "do_sample is true",
     "0..1000000"},
    {"top_k", GX_FIELD_INT, GX__WRITE_AT(top_k), "50", "drawn are the k likeliest tokens; 0: all", "0.."},
    {"top_p", GX_FIELD_DOUBLE, GX__WRITE_AT(top_p), "1",
     "of these the likeliest, until their probabilities are p together", "0..1"},
    {"min_p", GX_FIELD_DOUBLE, GX__WRITE_AT(min_p), "0",
     "of these those that are at least min_p times as likely as the likeliest", "0..1"},
    {"repetition_penalty", GX_FIELD_DOUBLE, GX__WRITE_AT(repetition_penalty), "1",
     "logits of tokens that the text has are divided by it, or multiplied where they are below 0; without drawing, too",
     "0.001..1000"},
    {"seed", GX_FIELD_INT, GX__WRITE_AT(seed), "1234", "of what is drawn", "0.."},
};
static const GxField gx__write_score_options[] = {
    {"score", GX_FIELD_PATH, GX__WRITE_AT(score), "",
     "nothing is written, but told how likely texts are: a file of JSON lines with prompt and completion (or context "
     "and continuation), of which the completion is scored, or with a text, which is as a whole",
     NULL},
    {"output_file", GX_FIELD_PATH, GX__WRITE_AT(output_file), "",
     "a new file for the results: a line of JSON for each of --score's, with loglikelihood, tokens and is_greedy; "
     "nothing: the standard output",
     NULL},
    {"max_length", GX_FIELD_INT, GX__WRITE_AT(max_length), "0",
     "tokens that the model sees at once when it scores; what is longer is cut off from the left. 0: as many as it has "
     "positions",
     "0..16777216"},
};
static const GxField gx__write_chat_options[] = {
    {"chat", GX_FIELD_BOOL, GX__WRITE_AT(chat), "false",
     "a conversation: lines of the standard input are answered, until it ends", NULL},
    {"chat_template", GX_FIELD_LONG_TEXT, GX__WRITE_AT(chat_template), "auto",
     "how the model was taught to talk; auto: the chat template of its folder, or of --adapter, which is executed; a "
     "file: the template in it; or one of " GX_CHAT_NAMES,
     NULL},
    {"chat_date", GX_FIELD_STRING, GX__WRITE_AT(chat_date), "",
     "the day, YYYY-MM-DD, that a chat template which says the date takes for today", NULL},
    {"system", GX_FIELD_LONG_TEXT, GX__WRITE_AT(system), "", "what the model is told before the conversation", NULL},
    {"thinking", GX_FIELD_BOOL, GX__WRITE_AT(thinking), "true",
     "answers begin with thoughts: enable_thinking, of a chat template that has it, and of qwen3; not given: as the "
     "template has it",
     NULL},
    {"context", GX_FIELD_INT, GX__WRITE_AT(context), "4096",
     "tokens of a conversation that the model sees; what is older is forgotten", "16..16777216"},
};
static const GxField gx__write_machine_options[] = {
    {"mode", GX_FIELD_STRING, GX__WRITE_AT(mode), "auto",
     "how the model is split over ranks; tp alone is built for this. auto: tp, if there are several",
     "auto|" GX_MODE_NAMES},
    {"precision", GX_FIELD_STRING, GX__WRITE_AT(precision), "fp32", "of weights, activations and the cache",
     "fp32|bf16"},
    {"quantize", GX_FIELD_STRING, GX__WRITE_AT(quantize), GX_NOT_QUANTIZED,
     "matrices of attention and MLP are kept in " GX_QUANTIZE_HELP, GX_QUANTIZE_NAMES},
    {"prefill_rows", GX_FIELD_INT, GX__WRITE_AT(prefill_rows), "512",
     "tokens of prompts that are run at once: memory against speed", "1..1000000000"},
};
static const char *const gx__write_picked[] = {"tp",
                                               "tp_num_attention_heads_list",
                                               "tp_intermediate_size_list",
                                               "tp_vocab_size_list",
                                               "ranks",
                                               "world",
                                               "rank",
                                               "init",
                                               "threads",
                                               "timeout",
                                               "device",
                                               "device_comm",
                                               "dry_run",
                                               NULL};

GxStatus gx_write_options_add(GxConfig *c, GxWriteOptions *o, GxField fields[GX_WRITE_FIELDS], GxError *err)
{
    GX_TRY(gx_config_add(c, "text", GX_FIELDS(gx__write_text_options), o, err));
    GX_TRY(gx_config_add(c, "drawing", GX_FIELDS(gx__write_sampling_options), o, err));
    GX_TRY(gx_config_add(c, "scoring", GX_FIELDS(gx__write_score_options), o, err));
    GX_TRY(gx_config_add(c, "conversation", GX_FIELDS(gx__write_chat_options), o, err));
    GX_TRY(gx_config_add(c, "machine", GX_FIELDS(gx__write_machine_options), o, err));
    return gx_config_add(c, "machine", fields, gx_options_copy_fields(gx__write_picked, fields), &o->machine, err);
}

// What was given, of a table, belongs to another use of the program. but: not these.
static GxStatus gx__write_refuse(const GxConfig *c, const GxField *field, int n, const char *const *but,
                                 const char *why, GxError *err)
{
    for (int i = 0; i < n; i++) {
        int is_fine = !gx_config_is_set(c, field[i].name);
        for (const char *const *b = but; *b && !is_fine; b++) is_fine = !strcmp(*b, field[i].name);
        if (!is_fine) return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s %s leave out --%s", field[i].name, why, field[i].name);
    }
    return GX_OK;
}

static GxStatus gx__write_check_scoring(const GxWriteOptions *o, const GxConfig *c, GxError *err)
{
    static const char *const score[] = {"score", NULL}, *const none[] = {NULL}, *const text[] = {"model",
                                                                                                 "adapter",
                                                                                                 "strict",
                                                                                                 "prompt",
                                                                                                 "prompt_file",
                                                                                                 NULL};
    const char *why = "changes nothing where texts are scored (--score);";
    if (!o->score[0])
        return gx__write_refuse(c, GX_FIELDS(gx__write_score_options), score,
                                "belongs to --score, which is not given; give it, or", err);
    GX_TRY(gx__write_refuse(c, GX_FIELDS(gx__write_text_options), text, why, err));
    GX_TRY(gx__write_refuse(c, GX_FIELDS(gx__write_sampling_options), none, why, err));
    return gx__write_refuse(c, GX_FIELDS(gx__write_chat_options), none, why, err);
}

GxStatus gx_write_options_check(const GxWriteOptions *o, const GxConfig *c, GxError *err)
{
    const int has_prompts = o->prompt[0] || o->prompt_file[0];
    if (!o->model[0] && !o->adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--model is missing: the folder of a model, such as a checkpoint that train_llama saved");
    if (o->adapter[0] && !o->strict)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--strict false draws what does not match, which an adapter is of no use with; leave it out");
    if ((o->chat != 0) + has_prompts + (o->score[0] != 0) != 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "expected --prompt TEXT or --prompt_file FILE, or --chat, or --score FILE, one of them; see "
                       "--help");
    GX_TRY(gx__write_check_scoring(o, c, err));
    if (o->chat && (o->json || o->echo))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is about prompts, and --chat is a conversation; leave one of them out",
                       o->json ? "json" : "echo");
    for (size_t i = 0; !o->chat && i < sizeof gx__write_chat_options / sizeof *gx__write_chat_options; i++) {
        const char *name = gx__write_chat_options[i].name;
        if (strcmp(name, "chat") && gx_config_is_set(c, name))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--%s belongs to --chat, which is not given; give it, or leave out --%s", name, name);
    }
    return GX_OK;
}
#endif
