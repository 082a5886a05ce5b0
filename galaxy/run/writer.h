// writer.h: a program that generates text: it reads a Hugging Face folder and prompts, and writes the model's
// continuations. It does so in this order, in these files:
//
//     options       flags and --config; --help and --version end here
//     ranks         machine.h, agree.h: one copy of the model, split over all of them with TP
//     the folder    config.json; on rank 0 the tokenizer, generation_config.json and the prompts
//     plan          plan.h: memory for the KV cache of all texts and everything else; --dry_run ends here
//     memory, weights
//     texts         writing.h; or a conversation (conversation.h); or how likely texts are (scoring.h)
//
// The reporter gets the generated text and nothing else; messages go to the logger. Only rank 0 needs the folder and
// the prompts.
#ifndef GX_WRITER_H
#define GX_WRITER_H
#include "checkpoint_load.h"
#include "help.h"
#include "../io/claim.h"
#include "../io/file_kind.h"
#include "../io/generation_config.h"
#include "../data/score_requests.h"
#include "../text/text_stream.h"
#include "../text/tokenizer_keys.h"
#include "../task/decode_beams.h"
#include "../task/likelihood.h"
#include "interpreter.h"
#include "plan.h"
#include "write_options.h"
GX_BEGIN

enum { GX_WRITER_TEXTS = 256 };

typedef struct { // on rank 0: a text that is being generated
    const char *prompt;
    int64_t prompt_bytes;
    GxTextStream shown, matched; // the text without special tokens, to be shown; with them, to find stop strings
    char *text;                  // what has been shown so far
    int64_t bytes;
    char *tail; // the last bytes of `matched`, one less than the longest stop string has, since one may begin there
    int64_t tail_bytes;
} GxWrittenText;

typedef struct {
    GxContext *g;
    const GxFamily *family;
    GxConfig config;
    GxField picked[GX_WRITE_FIELDS];
    GxWriteOptions *o;
    void *model_config;
    int done; // 1: nothing is generated (--help, --version, --dry_run)
    GxMesh mesh;
    GxArena arena, host_arena, comm_arena;
    GxPlan plan;
    GxMode mode;
    GxModel model;
    GxPeftConfig adapter; // of --adapter
    GxAdapter tuned;
    GxOptimizer optimizer;
    GxWeightsHash base_hash; // of the weights that --adapter is applied to
    GxRunner runner;
    GxForward forward;
    GxDecoder decoder;
    GxLikelihood likelihood;  // of --score
    GxScoreRequests requests; // of --score: windows and tokens on all ranks, everything else on rank 0
    // on rank 0
    GxClaim claim; // of --output_file
    GxTokenizer tokenizer;
    GxGenerationConfig generation;
    const GxChatFormat *format;
    char *file; // contents of --prompt_file
    const char *stop[GX_WRITER_TEXTS];
    int64_t stop_bytes[GX_WRITER_TEXTS], longest_stop;
    int n_stop;
    GxWrittenText *out;      // [texts]
    int streams;             // 1: text is shown while it is generated
    volatile int *interrupt; // in a conversation: not 0 once the user has interrupted the answer
    // on all ranks
    int64_t prompts, texts, positions, new_tokens; // of each prompt as many texts; positions of the longest one; tokens
                                                   // to generate
    GxDecodedText *text;                           // [texts], ids [positions]
    GxDecodePlan decode;
    int is_searched;   // 1: texts are found by a search, without or with beams; otherwise both of their numbers are 1
    GxBeamPlan search; // on rank 0; on others num_beams and num_return_sequences
    int32_t stop_token[GX_STOP_TOKENS + 1];
} GxWriter;

GxStatus gx_writer_open(GxWriter *w, GxContext *g, const GxFamily *family, int argc, char **argv);
int gx_writer_close(GxWriter *w); // also after an error, which it logs; returns the exit status

// On rank 0: tokenizes a text to w->text[0]; frames 1: in the tokenizer's frame. *n: the number of tokens. Returns 0
// after an error, or if there are more than `most`, and then changes nothing.
int gx_writer_fits(GxWriter *w, const char *text, int64_t bytes, int frames, int64_t most, int64_t *n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WRITER_IMPLEMENTED)
#define GX_WRITER_IMPLEMENTED
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../io/config_args.h"
#include "../io/config_help.h"
#include "../model/mode.h"
#include "hook.h"
#include "agree.h"
#include "checkpoint_load.h"
#include "help.h"
#include "launch.h"
#include "machine.h"
#include "options_chosen.h"
#include "output.h"
#include "processors.h"
#include "reporter.h"

// ---- options -------------------------------------------------------------------------------------------------------

static GxStatus gx__writer_say_help(GxWriter *w, const char *program)
{
    GxReport r;
    int n;
    const GxHelpLine *common = gx_help_writing(&n);
    gx_report_begin(&r, w->g);
    if (r.out && w->config.help) {
        if (!w->config.help_about[0])
            fprintf(r.out,
                    "usage: %s --model FOLDER --prompt TEXT [--option value ...]\n"
                    "       %s --model FOLDER --chat [--option value ...]\n\n",
                    program, program);
        gx_config_help(&w->config, common, n, r.out, gx_report_columns(w->g));
    } else if (r.out)
        fprintf(r.out, "galaxy %s for device %s, utf8proc %s, PCRE2 %s\n", GX_VERSION, w->g->device->name,
                gx_unicode_version(), gx_regex_is_built() ? "yes" : "no");
    gx_report_end(&r, w->g);
    w->done = 1;
    return gx_status(w->g);
}

static GxStatus gx__writer_read_options(GxWriter *w, int argc, char **argv)
{
    GxError *err = &w->g->error;
    w->o = (GxWriteOptions *)calloc(1, sizeof *w->o);
    w->model_config = calloc(1, w->family->config_size);
    if (!w->o || !w->model_config) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the options");
    gx_config_open(&w->config);
    GX_TRY(gx_write_options_add(&w->config, w->o, w->picked, err));
    GX_TRY(gx_config_read_args(&w->config, argc, argv, err));
    if (w->config.help || w->config.version) return gx__writer_say_help(w, argv[0]);
    if (w->o->machine.threads) w->g->threads = (int)w->o->machine.threads;
    GX_TRY(gx_threads_take(gx_threads(w->g), err));
    GX_TRY(gx_choose_device(w->g, w->o->machine.device));
    return gx_write_options_check(w->o, &w->config, &w->g->error);
}

// ---- ranks ---------------------------------------------------------------------------------------------------------

// One copy of the model, split over all ranks.
static GxStatus gx__writer_choose_mode(GxWriter *w)
{
    const int world = w->g->world;
    const char *name = w->o->mode;
    const int64_t tp = w->o->machine.tp;
    GxMethods methods = gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE);
    GxError *err = &w->g->error;
    if (!strcmp(name, "auto")) name = world > 1 ? "tp" : "serial";
    gx_mode_methods(name, &methods);
    if (strcmp(name, "tp") && strcmp(name, "serial"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--mode %s splits the sequence, but text is written token by token, from a cache; use --mode tp",
                       name);
    if (!strcmp(name, "serial") && world > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--mode serial on %d ranks would need several copies of the model, which is not supported; "
                       "--mode tp shares one",
                       world);
    if (tp && tp != world)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--tp %ld on %d rank%s: here all ranks share one copy of the model; leave out --tp, or start "
                       "%ld ranks (--ranks %ld)",
                       (long)tp, world, world > 1 ? "s" : "", (long)tp, (long)tp);
    if (!strcmp(name, "tp") && world == 1)
        gx_log(&w->g->log, GX_LOG_WARNING,
               "mode tp splits the model among ranks, but there is only one, so it is computed as without a mode; "
               "--ranks N, or mpirun, starts more");
    w->mode = gx_composed(strcmp(name, "tp") ? "serial" : "tp", methods);
    return GX_OK;
}

static GxStatus gx__writer_meet(GxWriter *w)
{
    GxContext *g = w->g;
    static const char *const own[] = {"prompt_file", NULL};
    const int dims[GX_MESH_AXES] = {1, 1, 1, 1, g->world};
    const int waits =
        w->o->chat && gx_config_source(&w->config, "timeout") == GX_FROM_DEFAULT; // a person who types may take long
    char program[100];
    if (g->world > GX_MAX_PARTS)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "there are %d ranks, but at most %d are possible", g->world,
                       GX_MAX_PARTS);
    GX_TRY(gx__writer_choose_mode(w));
    GX_TRY(gx_mesh_open(&w->mesh, dims, g->rank, g->world, &g->error));
    g->mesh = &w->mesh;
    GX_TRY(gx_open_comm(g, &w->comm_arena, waits ? 30 * 86400.0 : w->o->machine.timeout));
    snprintf(program, sizeof program, "galaxy %s, writer, %.50s", GX_VERSION, w->family->name);
    GX_TRY(gx_agree_on_program(g, &w->config, program, own));
    return gx_open_device_comm(g, w->o->machine.device_comm);
}

// ---- the folder ----------------------------------------------------------------------------------------------------

static GxStatus gx__writer_read_adapter(GxWriter *w)
{
    GxWriteOptions *o = w->o;
    if (!o->adapter[0]) return GX_OK;
    if (w->g->rank == 0) gx_output_check_adapter(o->adapter, &w->g->error);
    GX_TRY(gx_adapter_read_config(w->g, &w->adapter, &w->tuned, o->adapter));
    if (!o->model[0]) snprintf(o->model, sizeof o->model, "%s", w->adapter.base);
    if (o->model[0]) return GX_OK;
    return GX_FAIL(&w->g->error, GX_ERR_ARGUMENT,
                   "%s does not say which model it is an adapter of; name that model's folder with --model",
                   o->adapter);
}

static GxStatus gx__writer_open_model(GxWriter *w)
{
    GxContext *g = w->g;
    const GxTrainOptions *m = &w->o->machine;
    const GxSplitLists lists = {{m->tp_num_attention_heads_list.v, m->tp_num_attention_heads_list.n},
                                {m->tp_intermediate_size_list.v, m->tp_intermediate_size_list.n},
                                {m->tp_vocab_size_list.v, m->tp_vocab_size_list.n},
                                {NULL, 0}};
    GxModelOptions options = GX_ZERO;
    GxRunnerSpec runner = GX_ZERO;
    char folder[GX_PATH];
    GX_TRY(gx__writer_read_adapter(w));
    snprintf(folder, sizeof folder, "%s", w->o->model);
    if (g->rank == 0) gx_output_check_model(folder, &g->error);
    if (g->rank == 0) gx_adapter_refuse_as_model(folder, &g->error);
    GX_TRY(gx_agree_on_model(g, &w->config, w->family, w->model_config, folder));
    gx_adapter_grow(&w->adapter, w->family, w->model_config);
    runner.forward_only = 1;
    options.lists = &lists, options.freeze = "*";
    options.adapter = w->tuned;
    options.quantize = gx_quantize_of(w->o->quantize);
    options.dtype = gx_options_dtype(w->o->precision);
    GX_TRY(gx_model_open(g, &w->model, w->family, w->model_config, &w->mode, &options));
    GX_TRY(gx_runner_open(g, &w->runner, &w->model, &w->optimizer, &runner));
    w->forward = gx_runner_hook(&w->runner);
    return GX_OK;
}

static GxStatus gx__writer_open_tokenizer(GxWriter *w)
{
    GxContext *g = w->g;
    const char *adapter = w->o->adapter, *folder = w->o->model;
    char json[GX_PATH], text[GX_PATH];
    // an adapter brings its own, which may have more tokens than the model's
    if (adapter[0] && (gx_folder_has(adapter, "tokenizer.json") || gx_folder_has(adapter, "vocab.txt")))
        folder = adapter;
    GX_TRY(gx_path_join(json, folder, "tokenizer.json", &g->error));
    GX_TRY(gx_path_join(text, folder, "vocab.txt", &g->error));
    if (gx_path_is_file(json) || gx_path_is_broken(json) || gx_path_is_file(text)) {
        GX_TRY(gx_tokenizer_open(&w->tokenizer, folder, &g->error));
        GX_TRY(gx_tokenizer_check_keys(&w->tokenizer, folder, g->rank ? &gx_silent : &g->log, &g->error));
    } else {
        w->tokenizer = gx_tokenizer_bytes();
        gx_log(&g->log, GX_LOG_WARNING, "%s has no tokenizer.json: each byte is a token", folder);
    }
    if (w->tokenizer.vocab_size <= gx_model_vocab(&w->model)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "%s: the tokenizer (%s) has %d tokens, but the model's vocabulary has %ld, so they do not belong "
                   "together; use a folder that training with this tokenizer saved (--add_tokens)",
                   folder, gx_tokenizer_identity(&w->tokenizer), w->tokenizer.vocab_size,
                   (long)gx_model_vocab(&w->model));
}

// Options that were not given are those of the folder's generation_config.json.
static GxStatus gx__writer_choose_sampling(GxWriter *w)
{
    static const char *const drawing[] = {"top_k", "top_p", "min_p", "seed"};
    GxWriteOptions *o = w->o;
    GxGenerationConfig *c = &w->generation;
    const GxConfig *set = &w->config;
    GxSampling *s = &w->decode.sampling;
    GX_TRY(gx_generation_config_read(c, o->model, gx_config_is_set(set, "max_new_tokens"), &w->g->log, &w->g->error));
    if (c->samples && !gx_config_is_set(set, "temperature")) o->temperature = c->temperature;
    if (c->samples && !gx_config_is_set(set, "top_k")) o->top_k = c->top_k;
    if (c->samples && !gx_config_is_set(set, "top_p")) o->top_p = c->top_p;
    if (c->samples && !gx_config_is_set(set, "min_p")) o->min_p = c->min_p;
    if (!gx_config_is_set(set, "repetition_penalty")) o->repetition_penalty = c->repetition_penalty;
    if (c->max_new_tokens && !gx_config_is_set(set, "max_new_tokens")) o->max_new_tokens = c->max_new_tokens;
    for (size_t i = 0; o->temperature == 0 && i < sizeof drawing / sizeof *drawing; i++)
        if (gx_config_source(set, drawing[i]) == GX_FROM_FLAG)
            gx_log(&w->g->log, GX_LOG_WARNING,
                   "--%s changes nothing if --temperature is 0, which chooses the likeliest token; set that, or leave "
                   "this out",
                   drawing[i]);
    s->temperature = o->temperature, s->top_k = o->top_k, s->seed = (uint64_t)o->seed;
    s->top_p = o->top_p > 0 ? o->top_p : 1e-30; // 0: only the most likely token
    s->min_p = o->min_p, s->repetition_penalty = o->repetition_penalty;
    s->vocab = w->tokenizer.vocab_size;
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] >= gx_model_vocab(&w->model))
            gx_log(&w->g->log, GX_LOG_WARNING,
                   "%s: eos_token_id has %d, which is not an id of the vocabulary's %ld tokens, so no text can end "
                   "with it",
                   o->model, (int)c->stop[i], (long)gx_model_vocab(&w->model));
    memcpy(w->stop_token, c->stop, sizeof c->stop);
    w->decode.stop = w->stop_token, w->decode.n_stop = c->n_stop;
    return GX_OK;
}

// ---- searches ------------------------------------------------------------------------------------------------------

// The option of a search that asks for something; NULL: none does, so there is none.
static const char *gx__writer_asks_for_search(const GxWriteOptions *o)
{
    return o->num_beams > 1          ? "num_beams"
           : o->no_repeat_ngram_size ? "no_repeat_ngram_size"
           : o->min_new_tokens       ? "min_new_tokens"
                                     : NULL;
}

// Options of a search that were not given are those of generation_config.json, unless tokens are drawn.
static void gx__writer_take_search(GxWriter *w)
{
    GxWriteOptions *o = w->o;
    const GxGenerationConfig *c = &w->generation;
    const GxConfig *set = &w->config;
    const int file_asks = c->num_beams > 1 || c->no_repeat_ngram_size || c->min_new_tokens;
    const int draws = o->temperature != 0 && !gx__writer_asks_for_search(o);
    if (o->chat || draws) {
        if (file_asks || c->num_return_sequences > 1)
            gx_log(&w->g->log, GX_LOG_WARNING,
                   "%s: generation_config.json asks for a search (num_beams, num_return_sequences, "
                   "no_repeat_ngram_size or min_new_tokens), which is ignored: %s",
                   o->model, o->chat ? "answers of a conversation are not searched" : "tokens are drawn");
        return;
    }
    if (!gx_config_is_set(set, "num_beams")) o->num_beams = c->num_beams;
    if (!gx_config_is_set(set, "num_return_sequences")) o->num_return_sequences = c->num_return_sequences;
    if (!gx_config_is_set(set, "no_repeat_ngram_size")) o->no_repeat_ngram_size = c->no_repeat_ngram_size;
    if (!gx_config_is_set(set, "min_new_tokens")) o->min_new_tokens = c->min_new_tokens;
    if (!gx_config_is_set(set, "length_penalty")) o->length_penalty = c->length_penalty;
    w->search.options.early_stopping = c->early_stopping;
}

static GxStatus gx__writer_check_search(GxWriter *w)
{
    GxWriteOptions *o = w->o;
    GxError *err = &w->g->error;
    const char *asks = gx__writer_asks_for_search(o);
    static const char *const of_beams[] = {"length_penalty", "early_stopping"};
    if (o->num_return_sequences > o->num_beams)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--num_return_sequences is %ld, but a prompt has %ld beam%s; use --num_beams %ld or more, or, to "
            "draw several texts, give --prompt several times",
            (long)o->num_return_sequences, (long)o->num_beams, gx_text_s(o->num_beams), (long)o->num_return_sequences);
    for (int i = 0; i < 2 && o->num_beams == 1; i++)
        if (gx_config_source(&w->config, of_beams[i]) == GX_FROM_FLAG)
            gx_log(&w->g->log, GX_LOG_WARNING, "--%s changes nothing without beams; set --num_beams, or leave this out",
                   of_beams[i]);
    if (!asks) return GX_OK;
    if (o->temperature != 0 && gx_config_is_set(&w->config, "temperature"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--temperature %g draws tokens, and %s searches for the likeliest text; leave one of them out",
                       o->temperature, asks);
    if (o->temperature != 0)
        gx_log(&w->g->log, GX_LOG_WARNING,
               "%s: do_sample of generation_config.json is ignored: --%s searches for the likeliest text, and draws no "
               "tokens",
               o->model, asks);
    if (w->n_stop)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "--stop ends a text while it is written, and a search (%s) knows a text only at its end; leave "
                       "out --stop, or set %s to %d",
                       asks, asks, !strcmp(asks, "num_beams"));
    if (w->prompts * o->num_beams > GX_WRITER_TEXTS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%ld prompt%s of %ld beams are more than %d texts at once",
                       (long)w->prompts, gx_text_s(w->prompts), (long)o->num_beams, GX_WRITER_TEXTS);
    return GX_OK;
}

// After the prompts have been measured.
static GxStatus gx__writer_choose_search(GxWriter *w)
{
    const GxWriteOptions *o = w->o;
    GxBeamOptions *s = &w->search.options;
    gx__writer_take_search(w);
    GX_TRY(gx__writer_check_search(w));
    w->is_searched = gx__writer_asks_for_search(o) != NULL;
    s->num_beams = o->num_beams, s->num_return_sequences = o->num_return_sequences;
    s->length_penalty = o->length_penalty, s->repetition_penalty = o->repetition_penalty;
    s->no_repeat_ngram_size = o->no_repeat_ngram_size;
    s->min_length = o->min_new_tokens, s->max_length = w->new_tokens;
    if (gx_config_is_set(&w->config, "early_stopping")) gx_beam_stopping_of(o->early_stopping, &s->early_stopping);
    s->forced_bos = s->forced_eos = -1;
    memcpy(s->end, w->stop_token, sizeof s->end);
    s->ends = w->decode.n_stop;
    w->search.vocab = w->decode.sampling.vocab;
    if (s->min_length <= s->max_length) return GX_OK;
    if (gx_config_is_set(&w->config, "min_new_tokens"))
        return GX_FAIL(&w->g->error, GX_ERR_ARGUMENT,
                       "--min_new_tokens is %ld, more than the %ld new tokens that a text may have",
                       (long)s->min_length, (long)s->max_length);
    gx_log(&w->g->log, GX_LOG_WARNING,
           "%s: generation_config.json asks for %ld new tokens at least, but there may be %ld: each text has as many",
           o->model, (long)s->min_length, (long)s->max_length);
    return GX_OK;
}

static GxStatus gx__writer_take_stops(GxWriter *w)
{
    const char *at = NULL, *text;
    for (int64_t n; (text = gx_field_next_text(w->o->stop, &at, &n)) != NULL;) {
        if (n == 0) return GX_FAIL(&w->g->error, GX_ERR_ARGUMENT, "--stop \"\" would end every text at once");
        if (w->n_stop == GX_WRITER_TEXTS)
            return GX_FAIL(&w->g->error, GX_ERR_UNSUPPORTED, "--stop is given more than %d times", GX_WRITER_TEXTS);
        w->stop[w->n_stop] = text, w->stop_bytes[w->n_stop++] = n;
        w->longest_stop = gx_max(w->longest_stop, n);
    }
    return GX_OK;
}

// ---- prompts, on rank 0 --------------------------------------------------------------------------------------------

static GxStatus gx__writer_read_file(GxWriter *w, int64_t *bytes)
{
    GxError *err = &w->g->error;
    GX_TRY(gx_file_check_kind(w->o->prompt_file, GX_FILE_AS_IT_IS, err));
    GX_TRY(gx_file_read(w->o->prompt_file, 64 << 20, &w->file, bytes, err));
    for (int64_t i = 0, n; i < *bytes; i += n) {
        n = w->file[i] ? gx_utf8_bytes(w->file + i) : 0;
        if (!n) return GX_FAIL(err, GX_ERR_FORMAT, "%s: byte %ld is not UTF-8 text", w->o->prompt_file, (long)i);
    }
    return GX_OK;
}

static GxStatus gx__writer_take_prompts(GxWriter *w)
{
    const char *at = NULL, *text;
    int64_t n;
    w->prompts = 0;
    w->out = (GxWrittenText *)calloc(GX_WRITER_TEXTS, sizeof *w->out);
    if (!w->out) return GX_FAIL(&w->g->error, GX_ERR_MEMORY, "no memory for the texts");
    while ((text = gx_field_next_text(w->o->prompt, &at, &n)) != NULL) {
        if (w->prompts == GX_WRITER_TEXTS)
            return GX_FAIL(&w->g->error, GX_ERR_UNSUPPORTED, "more than %d prompts are given", GX_WRITER_TEXTS);
        w->out[w->prompts].prompt = text, w->out[w->prompts++].prompt_bytes = n;
    }
    if (w->o->prompt_file[0]) {
        if (w->prompts == GX_WRITER_TEXTS)
            return GX_FAIL(&w->g->error, GX_ERR_UNSUPPORTED, "more than %d prompts are given", GX_WRITER_TEXTS);
        GX_TRY(gx__writer_read_file(w, &n));
        w->out[w->prompts].prompt = w->file, w->out[w->prompts++].prompt_bytes = n;
    }
    return GX_OK;
}

// The ids of a text, in a buffer that the caller frees, also after an error. Names of special tokens in the text become
// these tokens. frames 1: with the tokens that the tokenizer puts around a text.
static GxStatus gx__writer_encode(GxWriter *w, const char *text, int64_t bytes, int frames, int32_t **ids, int64_t *n)
{
    const GxTokenizer *t = &w->tokenizer;
    const int64_t most = gx_tokenizer_most(t, bytes) + 1;
    GxError *err = &w->g->error;
    *ids = (int32_t *)malloc((size_t)(2 * most + GX_FRAME_MOST) * sizeof **ids);
    if (!*ids) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    int32_t *plain = *ids + most + GX_FRAME_MOST;
    GX_TRY(gx_tokenizer_encode(t, text, bytes, GX_SPECIAL_AS_TOKENS, plain, n, err));
    const GxTokenTexts one = {plain, NULL, *n, 0};
    if (frames && t->frame[0].n > 0)
        return gx_tokenizer_join(t, &one, *n + gx_tokenizer_frame_tokens(t, 1), *ids, NULL, n, NULL, err);
    memmove(*ids, plain, (size_t)*n * sizeof **ids);
    return GX_OK;
}

int gx_writer_fits(GxWriter *w, const char *text, int64_t bytes, int frames, int64_t most, int64_t *n)
{
    int32_t *ids = NULL;
    const GxStatus status = gx__writer_encode(w, text, bytes, frames, &ids, n);
    const int fits = status == GX_OK && *n <= most;
    if (fits) memcpy(w->text[0].ids, ids, (size_t)*n * sizeof *ids), w->text[0].n = *n;
    free(ids);
    return fits;
}

// ---- sizes ---------------------------------------------------------------------------------------------------------

static int64_t gx__writer_limit(const GxWriter *w) // the longest text, in positions, that the model can have
{
    return w->model.max_positions ? w->model.max_positions : INT64_MAX;
}

// Tokenizes the prompts and finds how long the longest text will be. No text is longer than the model's positions.
static GxStatus gx__writer_measure(GxWriter *w, int32_t **ids, int64_t *n)
{
    const int64_t limit = gx__writer_limit(w);
    int64_t longest = 0;
    for (int64_t b = 0; b < w->prompts; b++) {
        GX_TRY(gx__writer_encode(w, w->out[b].prompt, w->out[b].prompt_bytes, 1, &ids[b], &n[b]));
        if (n[b] == 0)
            return GX_FAIL(&w->g->error, GX_ERR_ARGUMENT,
                           "prompt %ld is empty, and the tokenizer puts nothing before it, so the model has no token "
                           "to continue from",
                           (long)b + 1);
        longest = gx_max(longest, n[b]);
    }
    if (longest >= limit)
        return GX_FAIL(&w->g->error, GX_ERR_ARGUMENT,
                       "the longest prompt has %ld token%s, but the model has room for %ld (%s), of which at least one "
                       "must be new",
                       (long)longest, gx_text_s(longest), (long)limit, gx_model_positions_name(&w->model));
    w->new_tokens = gx_min(w->o->max_new_tokens, limit - longest);
    if (w->new_tokens < w->o->max_new_tokens && gx_config_is_set(&w->config, "max_new_tokens"))
        gx_log(&w->g->log, GX_LOG_WARNING,
               "the longest prompt has %ld token%s, so there is room for %ld new one%s, not %ld: the model has %ld "
               "positions (%s)",
               (long)longest, gx_text_s(longest), (long)w->new_tokens, gx_text_s(w->new_tokens),
               (long)w->o->max_new_tokens, (long)limit, gx_model_positions_name(&w->model));
    w->positions = longest + w->new_tokens;
    return GX_OK;
}

// Opens the format, and warns of options that change nothing in it.
static GxStatus gx__writer_open_format(GxWriter *w)
{
    const GxWriteOptions *o = w->o;
    GxError *err = &w->g->error;
    const char *const folders[] = {o->adapter, o->model}; // an adapter may have taught the model another one
    GxJson *said;
    GX_TRY(gx_chat_find(&said, o->chat_template, folders, 2, err));
    if (!said)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: there is no chat template: neither chat_template.jinja nor chat_template in "
                       "tokenizer_config.json; --chat_template accepts a template file, or one of %s",
                       o->model, GX_CHAT_NAMES);
    gx_chat_open(&w->format, said, o->chat_date, &w->tokenizer, err);
    gx_json_free(said);
    GX_TRY(gx_error_code(err));
    if (gx_config_is_set(&w->config, "thinking") && !gx_chat_thinks(w->format))
        gx_log(&w->g->log, GX_LOG_WARNING, "--thinking changes nothing: the format %s does not support it",
               gx_chat_name(w->format));
    if (o->chat_date[0] && !gx_chat_dates(w->format))
        gx_log(&w->g->log, GX_LOG_WARNING, "--chat_date changes nothing: the format %s does not write today's date",
               gx_chat_name(w->format));
    return GX_OK;
}

static GxStatus gx__writer_open_chat(GxWriter *w)
{
    GxWriteOptions *o = w->o;
    GxError *err = &w->g->error;
    GX_TRY(gx__writer_open_format(w));
    const char *said = gx_chat_end(w->format);
    const int32_t end = said[0] ? gx_tokenizer_find(&w->tokenizer, said) : -1;
    if (end >= 0) w->stop_token[w->decode.n_stop++] = end;
    else if (!said[0])
        gx_log(&w->g->log, GX_LOG_WARNING, "%s writes nothing after an answer, so it is not known where an answer ends",
               gx_chat_name(w->format));
    else
        gx_log(&w->g->log, GX_LOG_WARNING, "the tokenizer has no token %s, which ends the answers of the format %s",
               said, gx_chat_name(w->format));
    w->out = (GxWrittenText *)calloc(1, sizeof *w->out);
    if (!w->out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text");
    w->prompts = 1;
    w->positions = gx_min(o->context, gx__writer_limit(w));
    w->new_tokens = o->max_new_tokens;
    return GX_OK;
}

// The texts of each prompt, which begin with it. ids, on rank 0, and n: of the prompts.
static void gx__writer_begin_texts(GxWriter *w, int32_t *const *ids, const int64_t *n)
{
    GxContext *g = w->g;
    const int64_t R = w->search.options.num_return_sequences;
    w->texts = w->prompts * R;
    w->text = (GxDecodedText *)calloc((size_t)w->texts, sizeof *w->text);
    if (!w->text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the texts");
    for (int64_t b = 0; b < w->texts && !gx_failed(g); b++) {
        const int64_t prompt = b / R;
        w->text[b].ids = (int32_t *)malloc((size_t)w->positions * sizeof *w->text[b].ids);
        if (!w->text[b].ids) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the texts");
        w->text[b].n = n[prompt];
        if (ids[prompt] && !gx_failed(g)) memcpy(w->text[b].ids, ids[prompt], (size_t)n[prompt] * sizeof **ids);
        if (n[prompt]) gx_broadcast(g, GX_AXIS_ALL, 0, w->text[b].ids, 4 * n[prompt], GX_U8);
    }
    for (int64_t b = w->texts - 1; b >= 0 && g->rank == 0 && !gx_failed(g); b--) w->out[b] = w->out[b / R];
}

// Rank 0 reads the folder and the prompts; then all ranks get the prompts and the sizes that memory depends on.
static GxStatus gx__writer_open_texts(GxWriter *w)
{
    enum { SIZES = 6 };
    GxContext *g = w->g;
    GxBeamOptions *s = &w->search.options;
    int32_t *ids[GX_WRITER_TEXTS] = {NULL};
    int64_t n[GX_WRITER_TEXTS + SIZES] = {0}, *size = n + GX_WRITER_TEXTS;
    if (g->rank == 0) {
        GxStatus status = gx__writer_open_tokenizer(w);
        if (status == GX_OK) status = gx__writer_choose_sampling(w);
        if (status == GX_OK) status = gx__writer_take_stops(w);
        if (status == GX_OK && w->o->chat) status = gx__writer_open_chat(w);
        if (status == GX_OK && !w->o->chat) status = gx__writer_take_prompts(w);
        if (status == GX_OK && !w->o->chat) status = gx__writer_measure(w, ids, n);
        if (status == GX_OK) status = gx__writer_choose_search(w);
    }
    size[0] = w->prompts, size[1] = w->positions, size[2] = w->new_tokens;
    size[3] = w->is_searched, size[4] = s->num_beams, size[5] = s->num_return_sequences;
    gx_at(g, -1, "prompts");
    gx_broadcast(g, GX_AXIS_ALL, 0, n, GX_WRITER_TEXTS + SIZES, GX_I64); // on a failed context this tells the others
    w->prompts = size[0], w->positions = size[1], w->new_tokens = size[2];
    w->is_searched = (int)size[3], s->num_beams = size[4], s->num_return_sequences = size[5];
    s->max_length = w->new_tokens;
    if (!gx_failed(g)) gx__writer_begin_texts(w, ids, n);
    for (int b = 0; b < GX_WRITER_TEXTS; b++) free(ids[b]);
    return gx_status(g);
}

// ---- texts to score ------------------------------------------------------------------------------------------------

// Reads the file of --score, on rank 0.
static GxStatus gx__writer_read_requests(GxWriter *w)
{
    GxWriteOptions *o = w->o;
    GxError *err = &w->g->error;
    const int64_t has = gx__writer_limit(w), most = o->max_length ? o->max_length : gx_min(has, INT32_MAX / 8);
    if (most > has)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--max_length %ld is more than the %ld positions that the model has (%s)",
                       (long)most, (long)has, gx_model_positions_name(&w->model));
    if (o->output_file[0]) GX_TRY(gx_claim_file(&w->claim, o->output_file, err));
    GX_TRY(gx__writer_open_tokenizer(w));
    GX_TRY(gx_score_requests_read(&w->requests, o->score, &w->tokenizer, o->model, most, err));
    for (int64_t i = 0; i < w->requests.tokens; i++)
        if (w->requests.ids[i] >= gx_model_vocab(&w->model))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "token %d is not an id of the model's %ld tokens: the tokenizer belongs to another model",
                           (int)w->requests.ids[i], (long)gx_model_vocab(&w->model));
    if (w->requests.cut)
        gx_log(&w->g->log, GX_LOG_WARNING,
               "%s: %ld prompt%s, with %s, longer than the %ld tokens that the model sees: the beginning is cut off",
               o->score, (long)w->requests.cut, w->requests.cut == 1 ? " is" : "s are",
               w->requests.cut == 1 ? "its completion" : "their completions", (long)most);
    return GX_OK;
}

// Rank 0 reads the file; all ranks get windows and tokens.
static GxStatus gx__writer_open_requests(GxWriter *w)
{
    GxContext *g = w->g;
    GxScoreRequests *r = &w->requests;
    if (g->rank == 0) gx__writer_read_requests(w);
    int64_t n[4] = {r->lines, r->windows, r->tokens, r->longest};
    gx_at(g, -1, "requests");
    gx_broadcast(g, GX_AXIS_ALL, 0, n, 4, GX_I64); // on a failed context this tells the other ranks
    GX_TRY(gx_status(g));
    r->lines = n[0], r->windows = n[1], r->tokens = n[2], r->longest = n[3];
    if (g->rank > 0) {
        r->window = (GxScorePart *)calloc((size_t)r->windows + 1, sizeof *r->window);
        r->ids = (int32_t *)calloc((size_t)r->tokens + 1, sizeof *r->ids);
        if (!r->window || !r->ids) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld tokens", (long)r->tokens);
    }
    if (r->windows) gx_broadcast(g, GX_AXIS_ALL, 0, r->window, r->windows * (int64_t)sizeof *r->window, GX_U8);
    if (r->tokens) gx_broadcast(g, GX_AXIS_ALL, 0, r->ids, 4 * r->tokens, GX_U8);
    // as many texts as fit --prefill_rows share a pass, and no fewer positions than the longest has
    const int64_t rows = gx_min(gx_min(r->tokens, w->o->prefill_rows), gx__writer_limit(w));
    w->texts = r->lines, w->positions = gx_max(1, gx_max(r->longest, rows));
    return gx_status(g);
}

// ---- memory --------------------------------------------------------------------------------------------------------

static void gx__writer_allocate(GxWriter *w, GxContext *g)
{
    if (w->o->score[0]) {
        const int64_t chunk = gx_max(1, gx_min(w->positions, w->o->prefill_rows / 4)); // rows with logits at a time
        gx_likelihood_allocate(g, &w->likelihood, w->positions);
        gx_runner_allocate(g, &w->runner, w->positions, 1, chunk);
        return;
    }
    const int64_t K = w->search.options.num_beams, R = w->search.options.num_return_sequences, B = w->prompts * K;
    const int64_t chunk = gx_max(1, gx_min(w->positions, w->o->prefill_rows / B)),
                  longest = w->positions - w->new_tokens;
    int64_t first[GX_WRITER_TEXTS];
    for (int64_t b = 0; b < B; b++) first[b] = w->prompts > 1 ? longest - w->text[b / K * R].n : 0;
    gx_decoder_allocate(g, &w->decoder, &w->model, w->positions, B, chunk, first);
    gx_runner_allocate(g, &w->runner, w->decoder.chunk, B, B);
}

static void gx__writer_dry_run(GxPlan *p, GxContext *dry, void *writer)
{
    GxWriter *w = (GxWriter *)writer;
    gx__writer_allocate(w, dry);
    if (w->o->score[0]) gx_likelihood_plan(dry, &w->likelihood, &w->forward);
    else gx_decoder_plan(dry, &w->decoder, &w->forward);
    p->flops = dry->recorder->flops, p->comm_bytes = dry->recorder->comm_bytes;
    gx_tensor_file_plan(dry, &w->model.store, 1, 1);
}

// Describes the texts, and the cache's memory.
static void gx__writer_describe_texts(const GxWriter *w, char out[200], int with_pages)
{
    const GxScoreRequests *r = &w->requests;
    const double cache = (double)gx_kv_cache_bytes(&w->decoder.cache) / 1e6;
    char beams[40] = "";
    if (w->search.options.num_beams > 1)
        snprintf(beams, sizeof beams, " by %ld beams", (long)w->search.options.num_beams);
    if (w->o->score[0])
        snprintf(out, 200, "%ld line%s to score, %ld token%s, up to %ld in a text; %ld at once", (long)r->lines,
                 gx_text_s(r->lines), (long)r->tokens, gx_text_s(r->tokens), (long)r->longest + 1, (long)w->positions);
    else if (!with_pages)
        snprintf(out, 200, "%ld text%s%s of up to %ld tokens, cache %.1f MB", (long)w->texts, w->texts > 1 ? "s" : "",
                 beams, (long)w->positions, cache);
    else
        snprintf(
            out, 200,
            "%ld text%s%s of up to %ld tokens, %ld position%s at once; cache of keys and values %.1f MB per rank, in "
            "pages of %d positions: %ld",
            (long)w->texts, w->texts > 1 ? "s" : "", beams, (long)w->positions, (long)w->decoder.chunk,
            gx_text_s(w->decoder.chunk), cache, GX_PAGE, (long)w->decoder.cache.pages);
}

static GxStatus gx__writer_refuse_too_large(const GxWriter *w)
{
    const GxPlan *p = &w->plan;
    const GxPlanPlace *place = p->card.has && p->card.bytes > p->card.has ? &p->card : &p->machine;
    char cache[100] = "";
    if (place->has == 0 || place->bytes <= place->has) return GX_OK;
    if (!w->o->score[0])
        snprintf(cache, sizeof cache, ", the cache of %ld pages of %d positions %.1f MB", (long)w->decoder.cache.pages,
                 GX_PAGE, (double)gx_kv_cache_bytes(&w->decoder.cache) / 1e6);
    return GX_FAIL(&w->g->error, GX_ERR_MEMORY,
                   "the plan needs %.1f MB, but there are %.1f MB left %s; weights take %.1f MB of this rank%s; to "
                   "need less, use %s, --precision bf16, or more ranks",
                   (double)place->bytes / 1e6, (double)place->has / 1e6,
                   place == &p->card ? "on this rank's card" : "on this machine", (double)p->kind[GX_MEM_WEIGHTS] / 1e6,
                   cache, w->o->score[0] ? "a smaller --prefill_rows or --max_length" : "fewer or shorter texts");
}

static void gx__writer_say_plan(GxWriter *w)
{
    GxContext *g = w->g;
    GxReport r;
    char texts[200];
    const double parameters = (double)gx_table_parameters(&w->model.table) / 1e6;
    gx__writer_describe_texts(w, texts, w->o->machine.dry_run);
    if (!w->o->machine.dry_run && g->rank == 0)
        gx_log(&g->log, GX_LOG_INFO, "%s of %.2fM parameters, %s, %s on %d rank%s; %s, memory of a rank %.1f MB",
               w->family->name, parameters, w->o->precision, w->mode.name, g->world, g->world > 1 ? "s" : "", texts,
               (double)gx_plan_arena(&w->plan) / 1e6);
    if (!w->o->machine.dry_run) return;
    gx_report_begin(&r, g);
    if (r.out) {
        fprintf(r.out, "model: %s, mode %s on %d rank%s, %.2fM parameters, %s\n%s\n", w->family->name, w->mode.name,
                g->world, g->world > 1 ? "s" : "", parameters, w->o->precision, texts);
        gx_plan_print(r.out, &w->plan);
    }
    gx_report_end(&r, g);
}

static void gx__writer_warn_of_weights(const GxWriter *w, const GxWeightsLoaded *loaded)
{
    const GxLogger *log = &w->g->log;
    if (loaded->missing.n)
        gx_log(log, GX_LOG_WARNING, "newly initialized, not in %s: %s", w->o->model, loaded->missing.text);
    if (loaded->mismatched.n)
        gx_log(log, GX_LOG_WARNING, "newly initialized, of another shape in %s: %s", w->o->model,
               loaded->mismatched.text);
    if (loaded->unexpected.n && !w->o->strict)
        gx_log(log, GX_LOG_WARNING, "not needed from %s: %s", w->o->model, loaded->unexpected.text);
}

static GxStatus gx__writer_open_memory(GxWriter *w)
{
    GxContext *g = w->g;
    GxWeightsLoaded loaded;
    const uint64_t seed = (uint64_t)w->o->seed;
    GX_TRY(gx_arenas_open(g, &w->arena, &w->host_arena, w->plan.arena, w->plan.host));
    gx__writer_allocate(w, g);
    GX_TRY(gx_status(g));
    GxWeightsHash hash;
    if (w->o->adapter[0]) {
        gx_checkpoint_start_with_adapter(g, &w->model, w->o->model, w->o->adapter, &w->base_hash);
        return gx_status(g);
    }
    gx_checkpoint_start_from(g, &w->model, w->o->model, w->o->strict, w->o->strict ? NULL : &seed, &hash, &loaded);
    if (g->rank == 0 && !gx_failed(g)) gx__writer_warn_of_weights(w, &loaded);
    return gx_status(g);
}

GxStatus gx_writer_open(GxWriter *w, GxContext *g, const GxFamily *family, int argc, char **argv)
{
    memset(w, 0, sizeof *w);
    w->g = g, w->family = family;
    GX_TRY(gx__writer_read_options(w, argc, argv));
    if (w->done) return GX_OK;
    GX_TRY(gx_open_device(g, w->o->machine.dry_run));
    GX_TRY(gx__writer_meet(w));
    GX_TRY(gx__writer_open_model(w));
    GX_TRY(w->o->score[0] ? gx__writer_open_requests(w) : gx__writer_open_texts(w));
    GX_TRY(gx_plan_make(&w->plan, g, &w->comm_arena, w->o->machine.ranks > 1 ? (int)w->o->machine.ranks : 1,
                        gx__writer_dry_run, w));
    gx__writer_say_plan(w);
    if (w->o->machine.dry_run) w->done = 1;
    if (w->done) return gx_status(g);
    GX_TRY(gx__writer_refuse_too_large(w));
    GX_TRY(gx__writer_open_memory(w));
    return gx_status(g);
}

int gx_writer_close(GxWriter *w)
{
    GxContext *g = w->g;
    const int status = gx_failed(g) ? gx_print_error(g) : gx_stop_signal() ? 128 + gx_stop_signal() : 0;
    if (g->comm && g->comm->is_open) gx_comm_close(g);
    for (int64_t b = 0; b < w->texts && w->text; b++) free(w->text[b].ids);
    for (int64_t b = 0; b < w->texts && w->out; b++) {
        gx_text_stream_close(&w->out[b].shown), gx_text_stream_close(&w->out[b].matched);
        free(w->out[b].text), free(w->out[b].tail);
    }
    free(w->text), free(w->out), free(w->file);
    gx_score_requests_close(&w->requests);
    gx_claim_end(&w->claim);
    gx_chat_close(w->format);
    gx_tokenizer_close(&w->tokenizer);
    gx_runner_close(&w->runner);
    gx_model_close(&w->model);
    gx_arenas_close(g, &w->arena, &w->host_arena);
    gx_arena_close(&w->comm_arena);
    gx_device_close(g);
    free(w->model_config), free(w->o);
    return status;
}
#endif
