// write_options.h: the options of programs that write text (writer.h): prompts, sampling, beams, texts to
// score, conversations. Options about ranks and devices are those of training programs (options_table.h).
#ifndef GX_WRITE_OPTIONS_H
#define GX_WRITE_OPTIONS_H
#include "../text/chat_find.h"
#include "options.h"
GX_BEGIN

typedef struct {
    char model[GX_PATH], adapter[GX_PATH], prompt[GX_FIELD_NAMES_TEXT], prompt_file[GX_PATH], stop[GX_FIELD_NAMES_TEXT];
    char score[GX_PATH], output_file[GX_PATH];
    int64_t max_length, max_new_tokens, min_new_tokens, top_k, seed, context, prefill_rows;
    int64_t num_beams, num_return_sequences, no_repeat_ngram_size;
    double temperature, top_p, min_p, repetition_penalty, length_penalty;
    char early_stopping[GX_FIELD_TEXT];
    int strict, echo, json, chat, thinking;
    char chat_template[GX_PATH], chat_date[GX_FIELD_TEXT], system[GX_PATH], mode[GX_FIELD_TEXT],
        precision[GX_FIELD_TEXT];
    char quantize[GX_FIELD_TEXT];
    GxTrainOptions machine; // ranks, devices and lists, as in training programs
} GxWriteOptions;

enum { GX_WRITE_FIELDS = 20 };
// Adds the tables to a config; fields: room for one of them, which must outlive the config.
GxStatus gx_write_options_add(GxConfig *c, GxWriteOptions *o, GxField fields[GX_WRITE_FIELDS], GxError *err);
// Refuses options that cannot be combined.
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
     "Hugging Face folder with config.json, weights, tokenizer.json and generation_config.json", NULL},
    {"adapter", GX_FIELD_PATH, GX__WRITE_AT(adapter), "",
     "folder of an adapter, saved by peft (LoRA) or by train_llama --tuning; it names its --model", NULL},
    {"strict", GX_FIELD_BOOL, GX__WRITE_AT(strict), "true",
     "require that the weights match the model by name and shape; false: those that do not are left out or initialized "
     "at random, and named in a warning",
     NULL},
    {"prompt", GX_FIELD_TEXTS, GX__WRITE_AT(prompt), NULL,
     "text that the model continues; may be given several times to continue several texts side by side", NULL},
    {"prompt_file", GX_FIELD_PATH, GX__WRITE_AT(prompt_file), "", "file whose whole text is one more prompt", NULL},
    {"max_new_tokens", GX_FIELD_INT, GX__WRITE_AT(max_new_tokens), "128",
     "most new tokens for each text or answer; if it is not given, generation_config.json may set it", "1..16777216"},
    {"stop", GX_FIELD_TEXTS, GX__WRITE_AT(stop), NULL,
     "end a text as soon as it contains this string, after the token that completes it; may be given several times",
     NULL},
    {"echo", GX_FIELD_BOOL, GX__WRITE_AT(echo), "false", "print the prompt before what follows it", NULL},
    {"json", GX_FIELD_BOOL, GX__WRITE_AT(json), "false",
     "print a line of JSON for each text: prompt, text, ids, token counts, and why it ended", NULL},
};
static const GxField gx__write_sampling_options[] = {
    {"temperature", GX_FIELD_DOUBLE, GX__WRITE_AT(temperature), "0",
     "temperature of sampling; 0: always the likeliest token. If this, top_k, top_p or min_p is not given, "
     "generation_config.json sets it if its do_sample is true",
     "0..1000000"},
    {"top_k", GX_FIELD_INT, GX__WRITE_AT(top_k), "50", "sample from the k likeliest tokens; 0: from all", "0.."},
    {"top_p", GX_FIELD_DOUBLE, GX__WRITE_AT(top_p), "1",
     "of these, sample from the likeliest whose probabilities add up to p; 1: from all of them", "0..1"},
    {"min_p", GX_FIELD_DOUBLE, GX__WRITE_AT(min_p), "0",
     "of these, sample from those at least min_p times as probable as the likeliest; 0: from all of them", "0..1"},
    {"repetition_penalty", GX_FIELD_DOUBLE, GX__WRITE_AT(repetition_penalty), "1",
     "divide the logits of tokens that the text already has by this, or multiply them if they are negative; also "
     "without sampling; 1: off. If it is not given, generation_config.json sets it",
     "0.001..1000"},
    {"seed", GX_FIELD_INT, GX__WRITE_AT(seed), "1234", "seed of the sampling", "0.."},
};
static const GxField gx__write_search_options[] = {
    {"num_beams", GX_FIELD_INT, GX__WRITE_AT(num_beams), "1",
     "continue each prompt by a search with so many beams, for the likeliest text as a whole; 1: no beams. This and "
     "the "
     "next five, if they are not given, are set by generation_config.json, unless tokens are drawn",
     "1..256"},
    {"num_return_sequences", GX_FIELD_INT, GX__WRITE_AT(num_return_sequences), "1",
     "texts that are written for each prompt, the best first; at most as many as there are beams", "1..256"},
    {"length_penalty", GX_FIELD_DOUBLE, GX__WRITE_AT(length_penalty), "1",
     "with beams: scores are divided by (number of new tokens)^this, so larger values favor longer texts",
     "-1000..1000"},
    {"early_stopping", GX_FIELD_STRING, GX__WRITE_AT(early_stopping), "false",
     "with beams: when a search ends. true: with num_beams complete texts; false: when no better one is likely; never: "
     "when no better one is possible",
     "false|true|never"},
    {"no_repeat_ngram_size", GX_FIELD_INT, GX__WRITE_AT(no_repeat_ngram_size), "0",
     "no sequence of so many tokens occurs twice in a text, its prompt included; 0: any may; also with one beam",
     "0.."},
    {"min_new_tokens", GX_FIELD_INT, GX__WRITE_AT(min_new_tokens), "0",
     "fewest new tokens of a text before its end; also with one beam", "0..16777216"},
};
static const GxField gx__write_score_options[] = {
    {"score", GX_FIELD_PATH, GX__WRITE_AT(score), "",
     "file of JSON lines whose log-likelihoods are computed instead of writing text: prompt and completion (or context "
     "and continuation), of which the completion is scored, or text, which is scored whole",
     NULL},
    {"output_file", GX_FIELD_PATH, GX__WRITE_AT(output_file), "",
     "new file for the results of --score: a line of JSON with loglikelihood, tokens and is_greedy for each line; "
     "empty: standard output",
     NULL},
    {"max_length", GX_FIELD_INT, GX__WRITE_AT(max_length), "0",
     "most tokens that the model sees at once with --score; longer texts lose their beginning; 0: as many as the model "
     "has positions",
     "0..16777216"},
};
static const GxField gx__write_chat_options[] = {
    {"chat", GX_FIELD_BOOL, GX__WRITE_AT(chat), "false",
     "hold a conversation: read lines from standard input and answer them, until it ends", NULL},
    {"chat_template", GX_FIELD_LONG_TEXT, GX__WRITE_AT(chat_template), "auto",
     "chat template of the model. auto: that of its folder, or of --adapter (it is executed); a file: the template in "
     "it; or one of " GX_CHAT_NAMES,
     NULL},
    {"chat_date", GX_FIELD_STRING, GX__WRITE_AT(chat_date), "",
     "the date, YYYY-MM-DD, for a chat template that writes today's date; empty: today, or the template's own date",
     NULL},
    {"system", GX_FIELD_LONG_TEXT, GX__WRITE_AT(system), "",
     "system prompt: what the model is told before the conversation", NULL},
    {"thinking", GX_FIELD_BOOL, GX__WRITE_AT(thinking), "true",
     "let answers begin with thinking (enable_thinking, for chat templates that have it, and qwen3); if it is not "
     "given, the template decides",
     NULL},
    {"context", GX_FIELD_INT, GX__WRITE_AT(context), "4096",
     "most tokens of a conversation that the model sees; the oldest turns are forgotten", "16..16777216"},
};
static const GxField gx__write_machine_options[] = {
    {"mode", GX_FIELD_STRING, GX__WRITE_AT(mode), "auto",
     "how ranks split the model; only tp (and serial, on one rank) is supported. auto: tp if there are several ranks",
     "auto|" GX_MODE_NAMES},
    {"precision", GX_FIELD_STRING, GX__WRITE_AT(precision), "fp32", "data type of weights, activations and the cache",
     "fp32|bf16"},
    {"quantize", GX_FIELD_STRING, GX__WRITE_AT(quantize), GX_NOT_QUANTIZED,
     "keep the attention and MLP matrices in " GX_QUANTIZE_HELP, GX_QUANTIZE_NAMES},
    {"prefill_rows", GX_FIELD_INT, GX__WRITE_AT(prefill_rows), "512",
     "number of prompt tokens computed at once; more are faster and take more memory", "1..1000000000"},
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
    GX_TRY(gx_config_add(c, "sampling", GX_FIELDS(gx__write_sampling_options), o, err));
    GX_TRY(gx_config_add(c, "beam search", GX_FIELDS(gx__write_search_options), o, err));
    GX_TRY(gx_config_add(c, "scoring", GX_FIELDS(gx__write_score_options), o, err));
    GX_TRY(gx_config_add(c, "conversation", GX_FIELDS(gx__write_chat_options), o, err));
    GX_TRY(gx_config_add(c, "machine", GX_FIELDS(gx__write_machine_options), o, err));
    return gx_config_add(c, "machine", fields, gx_options_copy_fields(gx__write_picked, fields), &o->machine, err);
}

// Refuses options of a table that were given but belong to another use of the program, except for those in `but`.
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
    const char *why = "changes nothing with --score;";
    if (!o->score[0])
        return gx__write_refuse(c, GX_FIELDS(gx__write_score_options), score,
                                "is an option of --score, which is not given; give it, or", err);
    GX_TRY(gx__write_refuse(c, GX_FIELDS(gx__write_text_options), text, why, err));
    GX_TRY(gx__write_refuse(c, GX_FIELDS(gx__write_sampling_options), none, why, err));
    GX_TRY(gx__write_refuse(c, GX_FIELDS(gx__write_search_options), none, why, err));
    return gx__write_refuse(c, GX_FIELDS(gx__write_chat_options), none, why, err);
}

// What depends on the folder's generation_config.json is checked when it has been read (writer.h).
static GxStatus gx__write_check_search(const GxWriteOptions *o, const GxConfig *c, GxError *err)
{
    static const char *const none[] = {NULL};
    if (o->chat)
        return gx__write_refuse(c, GX_FIELDS(gx__write_search_options), none,
                                "is an option for prompts, and --chat is a conversation;", err);
    return GX_OK;
}

GxStatus gx_write_options_check(const GxWriteOptions *o, const GxConfig *c, GxError *err)
{
    const int has_prompts = o->prompt[0] || o->prompt_file[0];
    if (!o->model[0] && !o->adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--model is missing: the folder of a model, such as a checkpoint of train_llama or train_gpt2");
    if (o->adapter[0] && !o->strict)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--strict false initializes what does not match at random, which makes an adapter useless; leave it out");
    if ((o->chat != 0) + has_prompts + (o->score[0] != 0) != 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "expected one of --prompt TEXT or --prompt_file FILE, --chat, and --score FILE; see --help");
    GX_TRY(gx__write_check_scoring(o, c, err));
    GX_TRY(gx__write_check_search(o, c, err));
    if (o->chat && (o->json || o->echo))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is an option for prompts, and --chat is a conversation; leave one of them out",
                       o->json ? "json" : "echo");
    for (size_t i = 0; !o->chat && i < sizeof gx__write_chat_options / sizeof *gx__write_chat_options; i++) {
        const char *name = gx__write_chat_options[i].name;
        if (strcmp(name, "chat") && gx_config_is_set(c, name))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--%s is an option of --chat, which is not given; give it, or leave out --%s", name, name);
    }
    return GX_OK;
}
#endif
