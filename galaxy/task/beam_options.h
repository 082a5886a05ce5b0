// task/beam_options.h: how targets are searched (beam_search.h): the options of a task, and where one is not given,
// what the model's folder says. As in transformers, generation_config.json counts alone if it is there; otherwise the
// keys of config.json that older files have. Where neither says anything: one beam, nothing forced, as long as
// --seq_len allows.
//
//     GX_BEAM_OPTIONS(offsetof(Task, beams)),                             // rows of the task's table, of a GxBeamFlags
//     GX_TRY(gx_beam_options_resolve(g, &options, &task->beams, setup));  // on all ranks
//
// Lengths count the start token. Keys of the folder that would change the targets and are not supported are warnings.
#ifndef GX_BEAM_OPTIONS_H
#define GX_BEAM_OPTIONS_H
#include "beam_search.h"
#include "task.h"
GX_BEGIN

typedef struct { // options as they are given, or their defaults, which stand for what the folder says
    int64_t num_beams, num_return_sequences, min_length, max_length, no_repeat_ngram_size, forced_bos, forced_eos;
    double repetition_penalty;
    char length_penalty[GX_FIELD_TEXT], early_stopping[GX_FIELD_TEXT];
} GxBeamFlags;

// clang-format off
#define GX_BEAM_OPTIONS(at)                                                                                            \
    {"num_beams", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, num_beams), "0",                                          \
     "beams of the search for a target; 1: always the likeliest token; 0: as the model's folder says, otherwise 1",    \
     "0..1024"},                                                                                                       \
    {"num_return_sequences", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, num_return_sequences), "0",                    \
     "targets that --predict writes for each source, the best first; 0: as the model's folder says, otherwise 1",      \
     "0..1024"},                                                                                                       \
    {"length_penalty", GX_FIELD_STRING, (at) + offsetof(GxBeamFlags, length_penalty), "auto",                          \
     "with beams: scores are divided by length^this, so larger values favor longer targets; auto: as the model's "     \
     "folder says, otherwise 1",                                                                                       \
     NULL},                                                                                                            \
    {"early_stopping", GX_FIELD_STRING, (at) + offsetof(GxBeamFlags, early_stopping), "auto",                          \
     "with beams: when a search ends. true: with num_beams complete targets; false: when no better one is likely; "    \
     "never: when no better one is possible; auto: as the model's folder says, otherwise false",                       \
     "auto|false|true|never"},                                                                                         \
    {"min_length", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, min_length), "-1",                                       \
     "fewest tokens of a target, its start token included, before its end; -1: as the model's folder says, "           \
     "otherwise 0",                                                                                                    \
     "-1.."},                                                                                                          \
    {"max_length", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, max_length), "0",                                        \
     "most tokens of a target, its start token included; 0: as the model's folder says, otherwise one more than "      \
     "--seq_len",                                                                                                      \
     "0.."},                                                                                                           \
    {"no_repeat_ngram_size", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, no_repeat_ngram_size), "-1",                   \
     "no sequence of so many tokens occurs twice in a target; 0: any may; -1: as the model's folder says, otherwise 0",\
     "-1.."},                                                                                                          \
    {"repetition_penalty", GX_FIELD_DOUBLE, (at) + offsetof(GxBeamFlags, repetition_penalty), "0",                     \
     "divide the logits of tokens that a target already has by this, or multiply them if they are negative; 1: off; "  \
     "0: as the model's folder says, otherwise 1",                                                                     \
     "0..1000"},                                                                                                       \
    {"forced_bos_token_id", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, forced_bos), "-2",                              \
     "id of the token after the start token; -1: any; -2: as the model's folder says, otherwise any", "-2.."},        \
    {"forced_eos_token_id", GX_FIELD_INT, (at) + offsetof(GxBeamFlags, forced_eos), "-2",                              \
     "id of the last token of a target of max_length; -1: any; -2: as the model's folder says, otherwise any",         \
     "-2.."}
// clang-format on

// setup->vocab, frame and seq_len are known. Ranks other than 0 get rank 0's.
GxStatus gx_beam_options_resolve(GxContext *g, GxBeamOptions *o, const GxBeamFlags *flags, const GxTaskSetup *setup);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BEAM_OPTIONS_IMPLEMENTED)
#define GX_BEAM_OPTIONS_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../comm/comm.h"
#include "../io/json_fields.h"

// ---- what the folder says ------------------------------------------------------------------------------------------

typedef struct {
    GxBeamOptions o; // max_length 0: not given
    char path[GX_PATH];
    int64_t forced_bos, forced_eos, start, max_new_tokens, min_new_tokens; // -1: not given
} GxBeamFile;

#define GX__BEAM_AT(field) offsetof(GxBeamFile, field)
static const GxField gx__beam_fields[] = {
    {"num_beams", GX_FIELD_INT, GX__BEAM_AT(o.num_beams), NULL, "", "1..1024"},
    {"num_return_sequences", GX_FIELD_INT, GX__BEAM_AT(o.num_return_sequences), NULL, "", "1..1024"},
    {"length_penalty", GX_FIELD_DOUBLE, GX__BEAM_AT(o.length_penalty), NULL, "", NULL},
    {"min_length", GX_FIELD_INT, GX__BEAM_AT(o.min_length), NULL, "", "0.."},
    {"max_length", GX_FIELD_INT, GX__BEAM_AT(o.max_length), NULL, "", "1.."},
    {"min_new_tokens", GX_FIELD_INT, GX__BEAM_AT(min_new_tokens), NULL, "", "0..16777216"},
    {"max_new_tokens", GX_FIELD_INT, GX__BEAM_AT(max_new_tokens), NULL, "", "1..16777216"},
    {"no_repeat_ngram_size", GX_FIELD_INT, GX__BEAM_AT(o.no_repeat_ngram_size), NULL, "", "0.."},
    {"repetition_penalty", GX_FIELD_DOUBLE, GX__BEAM_AT(o.repetition_penalty), NULL, "", "1e-3..1e3"},
    {"forced_bos_token_id", GX_FIELD_INT, GX__BEAM_AT(forced_bos), NULL, "", "0.."},
    {"forced_eos_token_id", GX_FIELD_INT, GX__BEAM_AT(forced_eos), NULL, "", "0.."},
    {"decoder_start_token_id", GX_FIELD_INT, GX__BEAM_AT(start), NULL, "", "0.."},
};

// In front of gx_generation_keys, which are those of texts without an encoder.
#define GX__BEAM_SAMPLING "of sampling, which do_sample asks for"
static const GxJsonKey gx__beam_keys[] = {
    {"num_beams", GX_KEY_READ, NULL},
    {"num_return_sequences", GX_KEY_READ, NULL},
    {"length_penalty", GX_KEY_READ, NULL},
    {"early_stopping", GX_KEY_READ, NULL},
    {"min_length", GX_KEY_READ, NULL},
    {"max_length", GX_KEY_READ, NULL},
    {"min_new_tokens", GX_KEY_READ, NULL},
    {"max_new_tokens", GX_KEY_READ, NULL},
    {"no_repeat_ngram_size", GX_KEY_READ, NULL},
    {"repetition_penalty", GX_KEY_READ, NULL},
    {"forced_bos_token_id", GX_KEY_READ, NULL},
    {"forced_eos_token_id", GX_KEY_READ, NULL},
    {"decoder_start_token_id", GX_KEY_READ, NULL},
    {"eos_token_id", GX_KEY_READ, NULL},
    {"do_sample", GX_KEY_NAMED, "targets are searched, and not sampled"},
    {"temperature", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"top_k", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"top_p", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"min_p", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"typical_p", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"top_h", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"epsilon_cutoff", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"eta_cutoff", GX_KEY_HARMLESS, GX__BEAM_SAMPLING},
    {"num_beam_groups=1", GX_KEY_NAMED, "beams are not in groups"},
    {"diversity_penalty", GX_KEY_NAMED, "beams are not in groups"},
    {"renormalize_logits", GX_KEY_NAMED, "what the processors of beams leave is not normalized again"},
};
enum { GX__BEAM_KEYS = sizeof gx__beam_keys / sizeof *gx__beam_keys, GX__BEAM_KEYS_MOST = 128 };

// Names what is not supported: in generation_config.json also what is not known; in config.json only keys of
// generation.
static GxStatus gx__beam_check_keys(const GxBeamFile *f, const GxJson *json, int has_file, const GxLogger *log,
                                    GxError *err)
{
    GxJsonKey all[GX__BEAM_KEYS_MOST]; // of rows with the same name the first one counts
    const int n = GX__BEAM_KEYS + gx_generation_keys.n;
    if (n > GX__BEAM_KEYS_MOST) return GX_FAIL(err, GX_ERR_ARGUMENT, "%d keys of generation have no room", n);
    memcpy(all, gx__beam_keys, sizeof gx__beam_keys);
    memcpy(all + GX__BEAM_KEYS, gx_generation_keys.key, (size_t)gx_generation_keys.n * sizeof *all);
    if (has_file) return gx_json_check_keys(json, all, n, f->path, log, err);
    GxJson *own = gx_json_new_object();
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);)
        if (gx_json_find_key(all, n, m.key)) gx_json_set(own, m.key, gx_json_copy(m.value), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_check_keys(own, all, n, f->path, log, err);
    gx_json_free(own);
    return status;
}

static GxStatus gx__beam_read(GxBeamFile *f, const GxTaskSetup *setup, const GxLogger *log, GxError *err)
{
    GxJson *json;
    int has_file;
    GX_TRY(gx_generation_config_open(&json, f->path, setup->model, &has_file, err));
    if (!json) return GX_OK;
    GxStatus status = gx_json_get_fields(json, GX_FIELDS(gx__beam_fields), 0, f, f->path, err);
    if (status == GX_OK) status = gx_generation_config_stopping(&f->o.early_stopping, json, f->path, err);
    if (status == GX_OK) status = gx_generation_check_ids(json, setup->vocab, f->path, log, err);
    if (status == GX_OK) status = gx_generation_config_stops(f->o.end, &f->o.ends, json, f->path, err);
    if (status == GX_OK) status = gx__beam_check_keys(f, json, has_file, log, err);
    gx_json_free(json);
    if (status == GX_OK && f->start >= 0 && f->start != setup->frame->start)
        gx_log(log, GX_LOG_WARNING, "%s: decoder_start_token_id is %ld, which is ignored: targets begin with %s, %ld",
               f->path, (long)f->start, setup->frame->has_languages ? "what --target_lang asks for" : "the model's",
               (long)setup->frame->start);
    if (f->max_new_tokens >= 0) f->o.max_length = 1 + f->max_new_tokens; // has precedence in transformers, too
    if (f->min_new_tokens >= 0) f->o.min_length = 1 + f->min_new_tokens;
    return status;
}

// ---- options -------------------------------------------------------------------------------------------------------

static GxStatus gx__beam_take_penalty(GxBeamOptions *o, const GxBeamFlags *flags, GxError *err)
{
    static const GxField number = {"length_penalty", GX_FIELD_DOUBLE, 0, NULL, "", "-1000..1000"};
    GxFieldValue v;
    if (!strcmp(flags->length_penalty, "auto")) return GX_OK;
    if (!gx_field_parse(&number, flags->length_penalty, &v) || !gx_field_allows(&number, &v))
        return gx_field_refuse(&number, "--length_penalty", "\"", flags->length_penalty, GX_ERR_ARGUMENT, err);
    o->length_penalty = v.d;
    return GX_OK;
}

// Targets that begin with their language are to begin with that of --target_lang.
static void gx__beam_take_language(GxBeamFile *f, const GxTaskSetup *setup, const GxLogger *log)
{
    const GxTextFrame *frame = setup->frame;
    if (!frame->has_languages || !frame->language_first) return;
    if (f->forced_bos >= 0 && f->forced_bos != frame->language[1])
        gx_log(log, GX_LOG_WARNING,
               "%s: forced_bos_token_id is %ld, which is ignored: targets begin with the language of --target_lang, "
               "%ld",
               f->path, (long)f->forced_bos, (long)frame->language[1]);
    f->forced_bos = frame->language[1];
}

// Options that are given take the place of the folder's.
static GxStatus gx__beam_take_flags(GxBeamFile *f, const GxBeamFlags *flags, GxError *err)
{
    GxBeamOptions *o = &f->o;
    if (flags->num_beams) o->num_beams = flags->num_beams;
    if (flags->num_return_sequences) o->num_return_sequences = flags->num_return_sequences;
    if (flags->min_length >= 0) o->min_length = flags->min_length;
    if (flags->max_length) o->max_length = flags->max_length;
    if (flags->no_repeat_ngram_size >= 0) o->no_repeat_ngram_size = flags->no_repeat_ngram_size;
    if (flags->repetition_penalty != 0) o->repetition_penalty = flags->repetition_penalty;
    if (flags->forced_bos > -2) f->forced_bos = flags->forced_bos;
    if (flags->forced_eos > -2) f->forced_eos = flags->forced_eos;
    gx_beam_stopping_of(flags->early_stopping, &o->early_stopping);
    return gx__beam_take_penalty(o, flags, err);
}

static GxStatus gx__beam_take_forced(GxBeamFile *f, const GxTaskSetup *setup, GxError *err)
{
    const struct {
        const char *name;
        int64_t id;
        int32_t *to;
    } of[] = {{"forced_bos_token_id", f->forced_bos, &f->o.forced_bos},
              {"forced_eos_token_id", f->forced_eos, &f->o.forced_eos}};
    for (int i = 0; i < 2; i++) {
        if (of[i].id >= setup->vocab)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s is %ld, but the vocabulary ends at %ld; --%s -1 forces no token there", of[i].name,
                           (long)of[i].id, (long)setup->vocab - 1, of[i].name);
        *of[i].to = (int32_t)of[i].id;
    }
    return GX_OK;
}

// A batch has room for seq_len tokens behind the start token.
static GxStatus gx__beam_take_lengths(GxBeamFile *f, const GxBeamFlags *flags, const GxTaskSetup *setup,
                                      const GxLogger *log, GxError *err)
{
    GxBeamOptions *o = &f->o;
    const int64_t most = setup->seq_len + 1;
    const char *length = gx_task_length_name(setup);
    if (flags->max_length == 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--max_length is 1, which is the start token alone; at least 2 are needed");
    if (flags->max_length > most)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--max_length is %ld, but %s %ld leaves room for %ld tokens, the start token included; set %s "
                       "to at least %ld",
                       (long)flags->max_length, length, (long)setup->seq_len, (long)most, length,
                       (long)flags->max_length - 1);
    if (o->max_length > most || o->max_length == 1)
        gx_log(log, GX_LOG_WARNING,
               "%s: targets may have %ld tokens, the start token included, but %s %ld leaves room for %ld: longer ones "
               "end there",
               f->path, (long)o->max_length, length, (long)setup->seq_len, (long)most);
    if (o->max_length < 2 || o->max_length > most) o->max_length = most;
    if (flags->min_length > o->max_length)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--min_length is %ld, more than the %ld tokens that a target may have",
                       (long)flags->min_length, (long)o->max_length);
    if (o->min_length > o->max_length)
        gx_log(log, GX_LOG_WARNING,
               "%s: targets must have %ld tokens, and may have %ld: each is as long as possible; --min_length and "
               "--max_length say otherwise",
               f->path, (long)o->min_length, (long)o->max_length);
    return GX_OK;
}

static GxStatus gx__beam_choose(GxBeamFile *f, const GxBeamFlags *flags, const GxTaskSetup *setup, const GxLogger *log,
                                GxError *err)
{
    GxBeamOptions *o = &f->o;
    memset(f, 0, sizeof *f);
    o->num_beams = o->num_return_sequences = 1, o->length_penalty = o->repetition_penalty = 1;
    f->forced_bos = f->forced_eos = f->start = f->max_new_tokens = f->min_new_tokens = -1;
    o->end[0] = setup->frame->end, o->ends = 1;
    if (setup->model && setup->model[0]) GX_TRY(gx__beam_read(f, setup, log, err));
    gx__beam_take_language(f, setup, log);
    GX_TRY(gx__beam_take_flags(f, flags, err));
    GX_TRY(gx__beam_take_forced(f, setup, err));
    if (o->repetition_penalty < 1e-3)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--repetition_penalty is %g; expected 1, which is none, or 0.001 to 1000",
                       o->repetition_penalty);
    if (o->num_return_sequences > o->num_beams)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--num_return_sequences is %ld, but only %ld beam%s searched; use --num_beams %ld or more",
                       (long)o->num_return_sequences, (long)o->num_beams, o->num_beams == 1 ? " is" : "s are",
                       (long)o->num_return_sequences);
    return gx__beam_take_lengths(f, flags, setup, log, err);
}

GxStatus gx_beam_options_resolve(GxContext *g, GxBeamOptions *o, const GxBeamFlags *flags, const GxTaskSetup *setup)
{
    GxBeamFile f;
    memset(&f, 0, sizeof f);
    if (g->rank == 0) gx__beam_choose(&f, flags, setup, &g->log, &g->error);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, &f.o, (int64_t)sizeof f.o, GX_U8); // on a failed context this tells the other ranks
    *o = f.o;
    return gx_status(g);
}
#endif
