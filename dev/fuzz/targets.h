// dev/fuzz/targets.h: what is fuzzed. A target makes sound cases, with the library itself, and runs a case: it hands
// the parts to the library as files or arguments, and asserts what holds whatever they are. A new target: the two
// functions, and its line in `targets` at the end.
//
// The working folder is a temporary one, on a disk in memory where there is one.
#ifndef FUZZ_TARGETS_H
#define FUZZ_TARGETS_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mutate.h"

enum { REFUSED = 0, ACCEPTED = 1 };
#define CORPUS "corpus/checkpoint-2" // of a tiny run, which was made before

// ---- what is asserted ----------------------------------------------------------------------------------------------

__attribute__((format(printf, 3, 4))) static void expect(int ok, int line, const char *format, ...)
{
    if (ok) return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fuzz: targets.h:%d: ", line);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    fflush(stderr);
    abort();
}
#define EXPECT(ok, ...) expect(!!(ok), __LINE__, __VA_ARGS__)

// What people read: UTF-8 (RFC 3629), not empty, no control characters but line ends and tabs.
static int is_readable(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (!*p) return 0;
    while (*p) {
        const int n = *p < 0x80 ? 1 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4;
        unsigned code = n == 1 ? *p : *p & (0xFF >> (n + 1));
        if ((*p >= 0x80 && *p < 0xC2) || *p > 0xF4) return 0;
        for (int i = 1; i < n; i++) {
            if ((p[i] & 0xC0) != 0x80) return 0;
            code = code << 6 | (p[i] & 0x3F);
        }
        if ((n == 3 && code < 0x800) || (n == 4 && code < 0x10000) || code > 0x10FFFF || code >> 11 == 0x1B) return 0;
        if ((code < 0x20 && code != '\n' && code != '\t') || code == 0x7F) return 0;
        p += n;
    }
    return 1;
}

// Of a call that failed: a message that can be read, and names what it is about. `names`: one of these words, NULL at
// the end; NULL: any.
static void expect_message(const GxError *e, const char *const *names)
{
    int named = !names;
    EXPECT(gx_error_code(e) > GX_OK && gx_error_code(e) <= GX_ERR_UNSUPPORTED, "the error has the code %d", e->code);
    EXPECT(memchr(e->message, 0, sizeof e->message), "the message has no end");
    EXPECT(is_readable(e->message), "the message is empty or not to be read: \"%s\"", e->message);
    for (int i = 0; names && names[i]; i++) named |= strstr(e->message, names[i]) != NULL;
    EXPECT(named, "the message names none of what it is about: %s", e->message);
}
static int refused(const GxError *e, const char *name)
{
    const char *const names[] = {name, NULL};
    expect_message(e, names);
    return REFUSED;
}

// Ranges and choices, read here and not by the library.
static int is_allowed(const GxField *f, const GxFieldValue *v)
{
    const char *dots = f->allowed ? strstr(f->allowed, "..") : NULL, *choice;
    const double low = dots && dots > f->allowed ? atof(f->allowed) : -INFINITY,
                 high = dots && dots[2] ? atof(dots + 2) : INFINITY;
    const size_t n = f->type == GX_FIELD_STRING ? strlen(v->s) : 0;
    if (!f->allowed) return 1;
    if (f->type == GX_FIELD_INT) return (double)v->i >= low && (double)v->i <= high;
    if (f->type == GX_FIELD_DOUBLE) return v->d >= low && v->d <= high;
    for (int i = 0; f->type == GX_FIELD_INT_LIST && i < v->list.n; i++)
        if ((double)v->list.v[i] < low || (double)v->list.v[i] > high) return 0;
    if (f->type != GX_FIELD_STRING) return 1;
    for (choice = f->allowed; choice; choice = strchr(choice, '|'), choice += choice != NULL)
        if (strcspn(choice, "|") == n && !strncmp(choice, v->s, n)) return 1;
    return 0;
}

static void expect_allowed(const GxField *f, int n, const void *source, const char *when)
{
    for (int i = 0; i < n; i++) {
        GxFieldValue v;
        memset(&v, 0, sizeof v);
        memcpy(&v, gx_field_in(&f[i], source), gx_field_size(&f[i]));
        if (f[i].type == GX_FIELD_INT_LIST) EXPECT(v.list.n >= 0 && v.list.n <= GX_FIELD_LIST, "%s", f[i].name);
        if (f[i].type == GX_FIELD_STRING) EXPECT(memchr(v.s, 0, sizeof v.s), "%s has no end", f[i].name);
        if (f[i].type == GX_FIELD_BOOL) EXPECT(v.b == 0 || v.b == 1, "%s is %d", f[i].name, v.b);
        if (f[i].type == GX_FIELD_DOUBLE) EXPECT(isfinite(v.d), "%s is %g", f[i].name, v.d);
        EXPECT(is_allowed(&f[i], &v), "%s is %ld, %s: its range is %s", f[i].name,
               f[i].type == GX_FIELD_INT ? (long)v.i : 0, when, f[i].allowed);
    }
}
static void expect_same(const GxField *f, int n, const void *a, const void *b, const char *when)
{
    for (int i = 0; i < n; i++) EXPECT(gx_field_same(&f[i], a, b), "%s is another one %s", f[i].name, when);
}

// ---- files ---------------------------------------------------------------------------------------------------------

static void put(const char *path, const void *bytes, int64_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    EXPECT(fd >= 0, "%s: %s", path, strerror(errno));
    EXPECT(write(fd, bytes, (size_t)n) == (ssize_t)n, "%s: %s", path, strerror(errno));
    close(fd);
}
static void put_part(const Case *c, const char *folder, const char *name)
{
    char path[GX_PATH];
    GxError e = GX_ZERO;
    const Bytes *b = case_part(c, name);
    EXPECT(gx_path_join(path, folder, name, &e) == GX_OK, "%s", e.message);
    put(path, b->p, b->n);
}

// A file of the corpus as a part.
static void take_part(Case *c, const char *path, const char *name)
{
    char *text;
    int64_t n;
    GxError e = GX_ZERO;
    if (gx_file_read(path, BYTES_MOST, &text, &n, &e) != GX_OK) {
        fprintf(stderr, "fuzz: %s\n", e.message);
        exit(2);
    }
    case_add(c, name, text, n);
    free(text);
}

static int one_file(Case *c, const char *path, const char *name)
{
    take_part(&c[0], path, name);
    return 1;
}

static double number_of(const Case *c, const char *part, int i) // the i-th; 0: there is none
{
    const char *p = case_part(c, part)->p;
    double x = 0;
    for (; i >= 0; i--) {
        char *end;
        x = strtod(p, &end);
        if (end == p) return 0;
        p = end;
    }
    return x;
}
static int64_t integer_of(const Case *c, const char *part, int i)
{
    const double x = number_of(c, part, i);
    return x >= 9e18 ? INT64_MAX : x <= -9e18 ? INT64_MIN : x != x ? 0 : (int64_t)x;
}

// ---- options -------------------------------------------------------------------------------------------------------

typedef struct {
    GxConfig config;
    GxTrainOptions o;
    GxCausalLm task;
    GxLlamaConfig model;
    GxMode mode;
    int has_mode; // the program's own
} Options;

static void options_open(Options *x, const char *mode)
{
    GxError e = GX_ZERO;
    GxMethods methods;
    memset(x, 0, sizeof *x);
    x->has_mode = gx_mode_methods(mode, &methods);
    if (x->has_mode) x->mode = gx_composed(mode, methods);
    gx_config_open(&x->config);
    gx_config_add(&x->config, gx_causal_lm.name, gx_causal_lm.options.fields, gx_causal_lm.options.n_fields, &x->task,
                  &e);
    gx_options_add(&x->config, &x->o, x->has_mode ? &x->mode : NULL, NULL, "llama", &e);
    gx_config_add(&x->config, "model", gx_llama.fields, gx_llama.n_fields, &x->model, &e);
    EXPECT(e.code == GX_OK, "the tables: %s", e.message);
}

static void options_expect_allowed(const Options *x, const char *when)
{
    for (int g = 0; g < x->config.groups; g++)
        expect_allowed(x->config.group[g].option, x->config.group[g].n, x->config.group[g].target, when);
}

// Written as training_args.json and read back, all options are the same.
static void options_read_back(const Options *x, const char *mode, Options *again, const char *when)
{
    GxError e = GX_ZERO;
    options_open(again, mode);
    EXPECT(gx_config_write_json(&x->config, "back.json", &e) == GX_OK, "%s: %s", when, e.message);
    EXPECT(gx_config_read_json(&again->config, "back.json", &e) == GX_OK, "%s, read back: %s", when, e.message);
    for (int g = 0; g < x->config.groups; g++)
        expect_same(x->config.group[g].option, x->config.group[g].n, x->config.group[g].target,
                    again->config.group[g].target, when);
}

static GxStatus options_resolve(Options *x, int world, GxError *e)
{
    GxSplit batch;
    if (!x->has_mode) GX_TRY(gx_options_resolve_mode(&x->o, &x->config, &x->mode, e));
    GX_TRY(gx_options_check_lists(&x->o, &x->mode, e));
    GX_TRY(gx_options_resolve_mesh(&x->o, &x->config, &x->mode, world, e));
    EXPECT(strlen(x->o.zero) == 1, "--zero is \"%s\" of %d ranks", x->o.zero, world);
    EXPECT(x->o.tp >= 1 && world % x->o.tp == 0, "tp %ld of %d ranks", (long)x->o.tp, world);
    GX_TRY(gx_options_resolve_batch(&x->o, &x->config, world / (int)x->o.tp, &batch, e));
    EXPECT(batch.n == world / x->o.tp &&
               (x->o.dp_samples_list.n > 0 ||
                gx_split_total(&batch) * x->o.gradient_accumulation_steps == x->o.global_batch_size),
           "%ld samples x %ld are not %ld", (long)gx_split_total(&batch), (long)x->o.gradient_accumulation_steps,
           (long)x->o.global_batch_size);
    return gx_llama.resolve(&x->model, e);
}

static void hear_log(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    EXPECT(is_readable(text), "what is logged cannot be read: \"%s\"", text);
}
static void hear_report(void *user, const char *text) { (void)user, (void)text; }

static int dry_run(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    g->log.write = hear_log;
    if (gx_trainer_open(&t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv) != GX_OK) expect_message(&g->error, NULL);
    else
        EXPECT(t.session.plan.arena > 0 && t.session.plan.comm >= 0 && t.session.plan.most >= t.session.plan.least &&
                   t.session.plan.flops > 0 && isfinite(t.session.plan.flops_all),
               "a plan of %ld bytes and %g FLOPs", (long)t.session.plan.arena, t.session.plan.flops);
    return gx_trainer_close(&t);
}

// What the programs do with the same words and --dry_run. Ranks are threads; lists of steps stay short.
static void options_plan(const Options *x, int argc, char **argv)
{
    static const char flag[] = "--dry_run";
    const int64_t actions = x->model.num_hidden_layers * x->o.gradient_accumulation_steps,
                  rows = x->o.global_batch_size / x->o.gradient_accumulation_steps * x->o.seq_len;
    if (rows > 1 << 18 || rows / x->o.head_chunk > 1 << 10) return; // sound, and a plan of many pieces
    if (argc > 1 && gx_hash(GX_HASH_START, argv[argc - 1], (int64_t)strlen(argv[argc - 1])) % 3)
        return; // they take long
    if (x->has_mode || x->o.world > 1 || x->o.rank || x->o.init[0] || x->o.ranks > 4 || actions > 500) return;
    if (gx_config_source(&x->config, "dry_run") == GX_FROM_FLAG && !x->o.dry_run) return;
    if (gx_config_source(&x->config, "dry_run") != GX_FROM_FLAG) argv[argc++] = (char *)flag;
    gx_launch(dry_run, argc, argv);
}

// What a message about options names: a flag, a file, or an option.
static const char *const *options_names(const Options *x)
{
    static const char *names[200];
    int n = 0;
    for (int g = 0; g < x->config.groups; g++)
        for (int i = 0; i < x->config.group[g].n && n < 190; i++) names[n++] = x->config.group[g].option[i].name;
    names[n++] = "--", names[n++] = "config.json", names[n++] = "flag", names[n++] = "cannot open";
    names[n++] = "a file", names[n++] = "head", names[n] = NULL;
    return names;
}

enum { ARGS_MOST = 200 };
static int options_words(const Case *c, char **argv, Bytes *copy)
{
    int argc = 1;
    const Bytes *args = case_part(c, "args");
    bytes_add(copy, args->p, args->n);
    argv[0] = (char *)"fuzz";
    for (int64_t at = 0; at < copy->n && argc < ARGS_MOST; at += (int64_t)strlen(copy->p + at) + 1)
        argv[argc++] = copy->p + at;
    return argc;
}

static int options_run(const Case *c)
{
    static Options x, again;
    const char *mode = case_part(c, "mode")->p;
    char *argv[ARGS_MOST + 2];
    Bytes words = GX_ZERO;
    GxError e = GX_ZERO;
    const int argc = options_words(c, argv, &words);
    put_part(c, ".", "config.json");
    options_open(&x, mode);
    GxStatus status = gx_config_read_args(&x.config, argc, argv, &e);
    options_expect_allowed(&x, "after reading");
    if (status == GX_OK && !x.config.help) {
        options_read_back(&x, mode, &again, "read back");
        const int world = (int)gx_max(x.o.ranks, x.o.world);
        status = options_resolve(&x, world, &e);
        if (status == GX_OK) {
            options_expect_allowed(&x, "when resolved");
            options_read_back(&x, mode, &again, "resolved and read back");
            EXPECT(options_resolve(&again, world, &e) == GX_OK, "training_args.json cannot be given back: %s",
                   e.message);
            for (int g = 0; g < x.config.groups; g++)
                expect_same(x.config.group[g].option, x.config.group[g].n, x.config.group[g].target,
                            again.config.group[g].target, "resolved twice");
        }
        if (status == GX_OK) options_plan(&x, argc, argv);
    }
    free(words.p);
    if (status != GX_OK) expect_message(&e, options_names(&x));
    return status == GX_OK;
}

static int options_make(Case *c)
{
    static const char *const lines[] = {
        "--config config.json",
        "",
        "--ranks 2 --mode tp",
        "--ranks 4 --mode galaxy --tp 2 --seq_len 64",
        "--ranks 2 --att tp --con sp --mlp sp --seq_scatter_list 160,96",
        "--ranks 2 --dp_batch_size_list 3,1",
        "--ranks 2 --dp_samples_list 5,3 --micro_batch_size 2 --rebalance off",
        "--config=config.json --global_batch_size 64 --micro_batch_size 4",
        "--ranks=2 --mode sp --ends tp --tp_vocab_size_list=[160,96]",
        "--precision bf16 --recompute layer --optimizer sgd --momentum 0",
        "--learning_rate 1e-3 --dry_run true --freeze model.embed*,*.layers.?.*",
        "--ranks 3 --mode tp --num_attention_heads 6 --num_key_value_heads 3 --tp_num_attention_heads_list 2,2,2",
        "--gradient_accumulation_steps 4 --global_batch_size 32 --tie_word_embeddings",
        "--config config.json --ranks 2",
        "--config config.json --mode tp",
        "--help"};
    const int n = (int)(sizeof lines / sizeof *lines);
    for (int i = 0; i < n; i++) {
        Bytes *args = case_text(&c[i], "args", lines[i]);
        for (int64_t k = 0; k < args->n; k++)
            if (args->p[k] == ' ') args->p[k] = 0;
        if (args->n) bytes_add(args, "", 1);
        take_part(&c[i], "corpus/training_args.json", "config.json");
        if (i % 4 == 3) case_text(&c[i], "mode", "");
    }
    case_text(&c[n - 1], "mode", "tp");
    return n;
}

// ---- config.json ---------------------------------------------------------------------------------------------------

static int model_run(const Case *c)
{
    GxLlamaConfig config, again;
    GxError e = GX_ZERO;
    put_part(c, ".", "config.json");
    memset(&config, 0, sizeof config), memset(&again, 0, sizeof again);
    if (gx_llama_config_read(&config, "config.json", &gx_silent, &e) != GX_OK) return refused(&e, "config.json");
    expect_allowed(gx_llama.fields, gx_llama.n_fields, &config, "after reading");
    EXPECT(gx_llama_config_write(&config, NULL, "back.json", &e) == GX_OK, "%s", e.message);
    EXPECT(gx_llama_config_read(&again, "back.json", &gx_silent, &e) == GX_OK, "read back: %s", e.message);
    expect_same(gx_llama.fields, gx_llama.n_fields, &config, &again, "read back");
    if (config.num_hidden_layers <= 100) {
        char *argv[] = {(char *)"fuzz",      (char *)"--model", (char *)".", (char *)"--dry_run",
                        (char *)"--seq_len", (char *)"8",       NULL};
        gx_launch(dry_run, 6, argv);
    }
    return ACCEPTED;
}
static int model_make(Case *c) { return one_file(c, CORPUS "/config.json", "config.json"); }

// ---- trainer_state.json, run.json ----------------------------------------------------------------------------------

static int state_run(const Case *c)
{
    GxTrainState s = GX_ZERO;
    GxCausalLm task = GX_ZERO;
    GxResume r = GX_ZERO;
    GxError e = GX_ZERO, other = GX_ZERO;
    put_part(c, ".", "trainer_state.json");
    put_part(c, ".", "run.json");
    GxRunInfo run = gx_run_read("."), again;
    const GxStatus status = gx_train_state_read("trainer_state.json", &s, &e);
    snprintf(r.folder, sizeof r.folder, ".");
    if (gx_resume_check_task(&r, &gx_causal_lm, &task, &other) != GX_OK) expect_message(&other, NULL);
    if (status != GX_OK) return refused(&e, "trainer_state.json");
    int n;
    const GxField *fields = gx_train_state_fields(&n);
    expect_allowed(fields, n, &s, "after reading");
    run.run = s.run;
    EXPECT(gx_run_write(".", &run, &e) == GX_OK, "run.json is not written");
    again = gx_run_read(".");
    EXPECT(again.run == run.run && again.world == run.world && again.returns_to == run.returns_to &&
               !strcmp(again.from, run.from),
           "run.json does not read back");
    return ACCEPTED;
}
static int state_make(Case *c)
{
    take_part(&c[0], CORPUS "/trainer_state.json", "trainer_state.json");
    take_part(&c[0], "corpus/run.json", "run.json");
    return 1;
}

// ---- safetensors ---------------------------------------------------------------------------------------------------

// Each tensor in every way: whole, its last element, none; what lies outside is refused.
static void safetensors_read_all(const GxSafetensors *s)
{
    for (int i = 0; i < s->n; i++) {
        const GxSafetensorsEntry *e = &s->entry[i];
        GxError err = GX_ZERO, outside = GX_ZERO;
        EXPECT(e->bytes == e->elements * e->dtype_size && e->file < s->files, "%s", e->name);
        char *raw = (char *)malloc((size_t)e->bytes); // of exactly its size
        float *floats = (float *)malloc((size_t)e->elements * sizeof *floats);
        EXPECT(gx_safetensors_find(s, e->name) == e, "%s is not found", e->name);
        EXPECT(gx_safetensors_read_raw(s, e, 0, e->elements, raw, &err) == GX_OK, "%s", err.message);
        if (gx_safetensors_read(s, e, 0, e->elements, floats, &err) != GX_OK) refused(&err, s->file[e->file].name);
        else if (e->elements)
            EXPECT(gx_safetensors_read(s, e, e->elements - 1, 1, floats, &err) == GX_OK, "%s", err.message);
        EXPECT(gx_safetensors_read_raw(s, e, e->elements, 1, raw, &outside) != GX_OK, "%s is read beyond its end",
               e->name);
        EXPECT(gx_safetensors_read_raw(s, e, -1, 1, raw, &outside) != GX_OK, "%s is read before its beginning",
               e->name);
        EXPECT(gx_safetensors_read_raw(s, e, 1, INT64_MAX, raw, &outside) != GX_OK, "%s is read beyond its end",
               e->name);
        free(raw);
        free(floats);
    }
}

static void safetensors_read_back(const GxSafetensors *s)
{
    GxSafetensorsEntry *list = (GxSafetensorsEntry *)calloc((size_t)s->n + 1, sizeof *list);
    GxSafetensorsWriter w;
    GxSafetensors again;
    GxError e = GX_ZERO;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].dtype >= 0) list[n++] = s->entry[i];
    EXPECT(gx_safetensors_create(&w, "back.safetensors", list, n, NULL, 0, &e) == GX_OK, "%s", e.message);
    for (int i = 0; i < n; i++) {
        char *raw = (char *)malloc((size_t)list[i].bytes + 1);
        gx_safetensors_read_raw(s, gx_safetensors_find(s, list[i].name), 0, list[i].elements, raw, &e);
        gx_safetensors_write(&w, list[i].name, 0, raw, list[i].elements, &e);
        free(raw);
    }
    EXPECT(gx_safetensors_finish(&w, &e) == GX_OK && e.code == GX_OK, "%s", e.message);
    EXPECT(gx_safetensors_open(&again, "back.safetensors", &e) == GX_OK, "read back: %s", e.message);
    EXPECT(again.n == n, "%d tensors were written, %d read back", n, again.n);
    for (int i = 0; i < n; i++) {
        const GxSafetensorsEntry *a = &list[i], *b = gx_safetensors_find(&again, a->name);
        EXPECT(b && b->dtype == a->dtype && b->ndim == a->ndim && b->bytes == a->bytes &&
                   !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape),
               "%s is another one read back", a->name);
        char *x = (char *)malloc((size_t)a->bytes + 1), *y = (char *)malloc((size_t)a->bytes + 1);
        gx_safetensors_read_raw(s, gx_safetensors_find(s, a->name), 0, a->elements, x, &e);
        gx_safetensors_read_raw(&again, b, 0, b->elements, y, &e);
        EXPECT(!memcmp(x, y, (size_t)a->bytes), "%s has other bytes read back", a->name);
        free(x);
        free(y);
    }
    gx_safetensors_close(&again);
    free(list);
}

static int safetensors_run(const Case *c)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    mkdir("weights", 0777);
    for (int i = 0; i < c->n; i++) put_part(c, "weights", c->part[i].name);
    const int opened = gx_safetensors_open(&s, "weights", &e) == GX_OK;
    if (opened) {
        safetensors_read_all(&s);
        safetensors_read_back(&s);
        gx_safetensors_close(&s);
    }
    for (int i = 0; i < c->n; i++) {
        char path[GX_PATH];
        snprintf(path, sizeof path, "weights/%s", c->part[i].name);
        unlink(path);
    }
    return opened ? ACCEPTED : refused(&e, "weights");
}

static void safetensors_write_small(const char *path, const char *prefix, int first, int n)
{
    static const int dtypes[] = {GX_F32, GX_BF16, GX_F16, GX_F64, GX_I64, GX_I32, GX_U8};
    GxSafetensorsEntry list[8] = GX_ZERO;
    GxSafetensorsWriter w;
    GxError e = GX_ZERO;
    const GxSafetensorsPair pair = {"made", "by hand"};
    for (int i = 0; i < n; i++) {
        GxSafetensorsEntry *x = &list[i];
        snprintf(x->name, sizeof x->name, "%s.%d", prefix, first + i);
        x->dtype = dtypes[(first + i) % 7], x->ndim = i % 4;
        for (int d = 0; d < x->ndim; d++) x->shape[d] = (first + d) % 4; // some are empty
    }
    gx_safetensors_create(&w, path, list, n, &pair, 1, &e);
    for (int i = 0; i < n; i++) {
        const char data[1024] = "some bytes that are numbers";
        const GxSafetensorsEntry *x = NULL;
        for (int k = 0; k < w.n; k++)
            if (!strcmp(w.entry[k].name, list[i].name)) x = &w.entry[k];
        if (x) gx_safetensors_write(&w, x->name, 0, data, x->elements, &e);
    }
    if (gx_safetensors_finish(&w, &e) != GX_OK) fprintf(stderr, "fuzz: %s\n", e.message), exit(2);
}

static int safetensors_make(Case *c)
{
    Bytes index = GX_ZERO;
    char line[100];
    safetensors_write_small("a.safetensors", "a", 0, 7);
    safetensors_write_small("b.safetensors", "b", 2, 5);
    take_part(&c[0], "a.safetensors", "model.safetensors");
    take_part(&c[1], "b.safetensors", "model.safetensors");
    take_part(&c[2], "a.safetensors", "a.safetensors");
    take_part(&c[2], "b.safetensors", "b.safetensors");
    bytes_text(&index, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int i = 0; i < 12; i++) {
        const int in_a = i < 7;
        snprintf(line, sizeof line, "%s\"%c.%d\": \"%c.safetensors\"", i ? ", " : "", in_a ? 'a' : 'b',
                 in_a ? i : i - 5, in_a ? 'a' : 'b');
        bytes_text(&index, line);
    }
    bytes_text(&index, "}}");
    case_add(&c[2], "model.safetensors.index.json", index.p, index.n);
    take_part(&c[3], CORPUS "/model.safetensors", "model.safetensors");
    free(index.p);
    return 4;
}

// ---- GGUF ----------------------------------------------------------------------------------------------------------

// Each key as everything that it could be; what is there can be read to its last byte.
static void gguf_read_keys(const GxGguf *g)
{
    for (int i = 0; i < g->keys; i++) {
        const GxGgufKey *k = &g->key[i];
        const char *name = g->text + k->name.at;
        const GxGgufKey *array = NULL;
        GxError e[5] = GX_ZERO;
        int64_t number, bytes, sum = 0;
        double real;
        int flag = 0, fits = 0;
        const char *text = "";
        if (strlen(name) != (size_t)k->name.bytes) continue;
        EXPECT(gx_gguf_key(g, name) == k, "the key %s is not found", name);
        fits += gx_gguf_get_int(g, name, 1, &number, &e[0]) == GX_OK;
        fits += gx_gguf_get_double(g, name, 1, &real, &e[1]) == GX_OK;
        fits += gx_gguf_get_bool(g, name, 1, &flag, &e[2]) == GX_OK;
        fits += gx_gguf_get_string(g, name, 1, &text, &e[3]) == GX_OK;
        EXPECT(fits <= 1 && (flag == 0 || flag == 1), "the key %s is %d things", name, fits);
        for (int n = 0; n < 4; n++)
            if (e[n].code) refused(&e[n], "fuzz.gguf");
        static const GxGgufKind kinds[] = {GX_GGUF_INT32, GX_GGUF_FLOAT32, GX_GGUF_STRING};
        for (int n = 0; n < 3; n++) {
            GxError ignored = GX_ZERO;
            if (gx_gguf_get_array(g, name, 1, kinds[n], &array, &ignored) != GX_OK) continue;
            for (int64_t j = 0; j < array->count; j++)
                if (n == 0) sum += gx_gguf_int_at(g, array, j) != 0;
                else if (n == 1) sum += gx_gguf_double_at(g, array, j) > 0;
                else text = gx_gguf_string_at(g, array, j, &bytes), sum += text[bytes]; // the 0 behind it
        }
        EXPECT(sum >= 0 && sum <= k->count, "the key %s", name);
    }
}

// As floats into a file of our own, which holds the same.
static void gguf_read_tensors(const GxGguf *g)
{
    GxGgufWriter w;
    GxGguf again;
    GxError e = GX_ZERO;
    int n = 0;
    gx_gguf_create(&w, "back.gguf", &e);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->tensors; i++) {
            const GxGgufTensor *t = &g->tensor[i];
            GxError why = GX_ZERO, outside = GX_ZERO;
            if (!t->name[0] || strlen(t->name) != (size_t)t->name_bytes || !t->ndim || t->elements > 1 << 20) continue;
            EXPECT(gx_gguf_find(g, t->name) == t, "%s is not found", t->name);
            float *x = (float *)malloc((size_t)t->elements * sizeof *x); // of exactly its size
            const int is_read = gx_gguf_read(g, t, 0, t->elements, x, &why) == GX_OK;
            if (!is_read) refused(&why, "fuzz.gguf");
            EXPECT(gx_gguf_read(g, t, t->elements, 1, x, &outside) != GX_OK, "%s is read beyond its end", t->name);
            if (is_read && pass == 0) gx_gguf_add(&w, t->name, GX_GGUF_F32, t->ndim, t->shape, &e), n++;
            if (is_read && pass == 1 && t->elements) gx_gguf_write(&w, t->name, x, t->elements, &e);
            free(x);
        }
    EXPECT(gx_gguf_finish(&w, &e) == GX_OK, "written: %s", e.message);
    EXPECT(gx_gguf_open(&again, "back.gguf", &e) == GX_OK, "read back: %s", e.message);
    EXPECT(again.tensors == n, "%d tensors were written, %d read back", n, again.tensors);
    for (int i = 0; i < again.tensors; i++) {
        const GxGgufTensor *a = &again.tensor[i], *b = gx_gguf_find(g, a->name);
        float *x = (float *)malloc((size_t)a->bytes + 1), *y = (float *)malloc((size_t)a->bytes + 1);
        EXPECT(b && a->ndim == b->ndim && a->elements == b->elements, "%s is another one read back", a->name);
        gx_gguf_read(&again, a, 0, a->elements, x, &e);
        gx_gguf_read(g, b, 0, a->elements, y, &e);
        EXPECT(!memcmp(x, y, (size_t)a->bytes), "%s has other values read back", a->name);
        free(x), free(y);
    }
    gx_gguf_close(&again);
}

static int gguf_run(const Case *c)
{
    GxGguf g;
    GxError e = GX_ZERO;
    put_part(c, ".", "fuzz.gguf");
    if (gx_gguf_open(&g, "fuzz.gguf", &e) != GX_OK) return refused(&e, "fuzz.gguf");
    gguf_read_keys(&g);
    gguf_read_tensors(&g);
    gx_gguf_close(&g);
    return ACCEPTED;
}

static void gguf_write_small(int i)
{
    static const int types[] = {GX_GGUF_F32, GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_Q8_0};
    static const char *const strings[] = {"<unk>", "a", "", "two words"};
    static const int32_t ints[] = {1, -1, 3};
    static const float floats[] = {0.5f, -1, 0, 2};
    const int64_t shape[] = {2, 64};
    float values[128];
    char name[32];
    GxGgufWriter w;
    GxError e = GX_ZERO;
    for (int k = 0; k < 128; k++) values[k] = (float)(k - 64);
    gx_gguf_create(&w, "made.gguf", &e);
    gx_gguf_set_string(&w, "general.architecture", "llama", &e);
    gx_gguf_set_int(&w, "general.alignment", 32, &e);
    gx_gguf_set_float(&w, "a.float", 0.5f, &e);
    gx_gguf_set_bool(&w, "a.bool", 1, &e);
    gx_gguf_set_strings(&w, "tokenizer.ggml.tokens", strings, 4, &e);
    gx_gguf_set_ints(&w, "a.ints", ints, 3, &e);
    gx_gguf_set_floats(&w, "a.floats", floats, 4, &e);
    for (int pass = 0; pass < 2; pass++)
        for (int t = 0; t < 4 * (i < 2); t++) {
            snprintf(name, sizeof name, "t%d.weight", t);
            if (pass) gx_gguf_write(&w, name, values, i ? 64 : 128, &e);
            else gx_gguf_add(&w, name, types[t], 2 - i, shape + i, &e);
        }
    if (gx_gguf_finish(&w, &e) != GX_OK) fprintf(stderr, "fuzz: %s\n", e.message), exit(2);
}

// Of types that the library does not write: F16 with as many bytes, then another type and shape in the header.
static void gguf_write_blocks(Case *c)
{
    static const int types[] = {GX_GGUF_Q4_0, GX_GGUF_Q4_1, GX_GGUF_Q4_K, GX_GGUF_Q6_K};
    float values[128];
    char name[32];
    GxGgufWriter w;
    GxError e = GX_ZERO;
    for (int k = 0; k < 128; k++) values[k] = (float)k / 16;
    gx_gguf_create(&w, "made.gguf", &e);
    for (int pass = 0; pass < 2; pass++)
        for (int t = 0; t < 4; t++) {
            const int64_t n = gx_gguf_type(types[t])->bytes / 2;
            snprintf(name, sizeof name, "t%d.weight", t);
            if (pass) gx_gguf_write(&w, name, values, n, &e);
            else gx_gguf_add(&w, name, GX_GGUF_F16, 1, &n, &e);
        }
    if (gx_gguf_finish(&w, &e) != GX_OK) fprintf(stderr, "fuzz: %s\n", e.message), exit(2);
    take_part(c, "made.gguf", "fuzz.gguf");
    char *p = c->part[0].bytes.p;
    for (int64_t at = 24, t = 0; t < 4; t++, at += 8 + 9 + 4 + 8 + 4 + 8) { // name, dimensions, shape, type, offset
        const int64_t n = gx_gguf_type(types[t])->elements;
        memcpy(p + at + 8 + 9 + 4, &n, 8);
        memcpy(p + at + 8 + 9 + 4 + 8, &types[t], 4);
    }
}

static int gguf_make(Case *c)
{
    for (int i = 0; i < 3; i++) {
        gguf_write_small(i);
        take_part(&c[i], "made.gguf", "fuzz.gguf");
    }
    gguf_write_blocks(&c[3]);
    return 4;
}

// A model of one layer with a tokenizer, into a folder that can be read again, or not at all.
static int gguf_model_run(const Case *c)
{
    GxError e = GX_ZERO, ignored = GX_ZERO;
    GxGgufSaid said;
    GxLlamaConfig config;
    GxSafetensors s;
    put_part(c, ".", "fuzz.gguf");
    mkdir("made", 0777);
    const int made = gx_gguf_import("fuzz.gguf", "made", GX_F32, &said, &gx_silent, &e) == GX_OK;
    if (made) {
        EXPECT(gx_llama_config_read(&config, "made/config.json", &gx_silent, &e) == GX_OK, "read back: %s", e.message);
        EXPECT(gx_safetensors_open(&s, "made", &e) == GX_OK, "read back: %s", e.message);
        EXPECT(s.n == said.tensors, "%d tensors were written, %d read back", said.tensors, s.n);
        gx_safetensors_close(&s);
        // a token's text or a number may be one that a file of ours cannot say
        if (gx_gguf_export("made", "back.gguf", GX_GGUF_F32, &said, &gx_silent, &e) != GX_OK) expect_message(&e, NULL);
        unlink("back.gguf");
    }
    EXPECT(gx_folder_remove("made", &ignored) == GX_OK, "%s", ignored.message);
    static const char *const names[] = {"fuzz.gguf", "made", NULL};
    if (!made) expect_message(&e, names);
    return made;
}

static void gguf_write_model(int is_llama)
{
    static const char *const counts[] = {"context_length", "embedding_length", "block_count", "feed_forward_length",
                                         "attention.head_count"};
    static const char *const names[] = {"token_embd.weight",     "output_norm.weight",       "blk.0.attn_norm.weight",
                                        "blk.0.ffn_norm.weight", "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
                                        "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
                                        "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",    "blk.0.attn_q.bias",
                                        "blk.0.attn_k.bias",     "blk.0.attn_v.bias"};
    static const char *const merges[] = {"a b", "ab c", "\xC4\xA0 a"};
    static const char *const tail[] = {"a",
                                       "b",
                                       "c",
                                       "ab",
                                       "abc",
                                       "\xC4\xA0",
                                       "\xC4\xA0"
                                       "a",
                                       "\xE2\x96\x81",
                                       "\xE2\x96\x81"
                                       "a",
                                       "<|end|>"};
    enum { BYTES = 259, N = BYTES + 10 };
    char text[N][16], name[64];
    const char *token[N];
    int32_t type[N];
    float score[N], values[N * 4] = GX_ZERO;
    GxGgufWriter w;
    GxError e = GX_ZERO;
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], i < 3 ? "<%d>" : "<0x%02X>", i < 3 ? i : (i - 3) & 255);
        token[i] = i < BYTES ? text[i] : tail[i - BYTES];
        type[i] = i < 3 ? 2 + (i > 0) : i < BYTES ? is_llama ? 6 : 1 : i < N - 1 ? 1 : 3, score[i] = (float)-i;
    }
    gx_gguf_create(&w, "made.gguf", &e);
    gx_gguf_set_string(&w, "general.architecture", is_llama ? "llama" : "qwen2", &e);
    for (int i = 0; i < 5; i++) {
        static const int64_t numbers[] = {64, 4, 1, 4, 2};
        snprintf(name, sizeof name, "%s.%s", is_llama ? "llama" : "qwen2", counts[i]);
        gx_gguf_set_int(&w, name, numbers[i], &e);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", is_llama ? "llama" : "qwen2");
    gx_gguf_set_float(&w, name, 1e-5f, &e);
    gx_gguf_set_string(&w, "tokenizer.ggml.model", is_llama ? "llama" : "gpt2", &e);
    if (!is_llama) gx_gguf_set_string(&w, "tokenizer.ggml.pre", "llama-bpe", &e);
    gx_gguf_set_int(&w, "tokenizer.ggml.bos_token_id", 1, &e);
    gx_gguf_set_int(&w, "tokenizer.ggml.eos_token_id", 2, &e);
    gx_gguf_set_strings(&w, "tokenizer.ggml.tokens", token, N, &e);
    gx_gguf_set_ints(&w, "tokenizer.ggml.token_type", type, N, &e);
    if (is_llama) gx_gguf_set_floats(&w, "tokenizer.ggml.scores", score, N, &e);
    else gx_gguf_set_strings(&w, "tokenizer.ggml.merges", merges, 3, &e);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < (is_llama ? 11 : 14); i++) {
            const int64_t shape[] = {i ? 4 : N, 4};
            const int ndim = i == 0 || (i > 3 && i < 11) ? 2 : 1;
            if (pass) gx_gguf_write(&w, names[i], values, shape[0] * (ndim > 1 ? 4 : 1), &e);
            else gx_gguf_add(&w, names[i], GX_GGUF_F32, ndim, shape, &e);
        }
    if (gx_gguf_finish(&w, &e) != GX_OK) fprintf(stderr, "fuzz: %s\n", e.message), exit(2);
}

static int gguf_model_make(Case *c)
{
    for (int i = 0; i < 2; i++) {
        gguf_write_model(i);
        take_part(&c[i], "made.gguf", "fuzz.gguf");
    }
    return 2;
}

// ---- text ----------------------------------------------------------------------------------------------------------

// Sample `index` of the training, or window `index` of what is held out, beside the bytes of the file.
static void text_sample(const Case *c, const GxDataset *d, int64_t index, int64_t T, int is_window)
{
    const unsigned char *text = (const unsigned char *)case_part(c, "text")->p;
    const uint64_t seed = (uint64_t)integer_of(c, "settings.numbers", 2);
    const GxTokens *tokens = is_window ? &d->held_out : &d->train;
    int32_t *in = (int32_t *)malloc((size_t)T * sizeof *in), *labels = (int32_t *)malloc((size_t)T * sizeof *labels);
    GxError e = GX_ZERO;
    if (is_window) gx_dataset_eval_sample(d, index, T, in, labels, 1, &e);
    else gx_dataset_sample(d, seed, index, T, in, labels, 1, &e);
    const int64_t start = is_window ? index * T : gx_dataset_sample_start(tokens, seed, index, T);
    EXPECT(e.code == GX_OK, "%s", e.message);
    EXPECT(start >= 0 && start + T < tokens->n, "sample %ld begins at %ld of %ld", (long)index, (long)start,
           (long)tokens->n);
    text += is_window ? d->train.n : 0;
    for (int64_t t = 0; t < T; t++)
        EXPECT(in[t] == text[start + t] && labels[t] == text[start + t + 1], "sample %ld, token %ld: %d and %d",
               (long)index, (long)t, (int)in[t], (int)labels[t]);
    free(in);
    free(labels);
}

static int text_run(const Case *c)
{
    const Bytes *text = case_part(c, "text");
    const int64_t T = integer_of(c, "settings.numbers", 0), index = integer_of(c, "settings.numbers", 3);
    const double fraction = number_of(c, "settings.numbers", 1);
    GxDataset d;
    GxError e = GX_ZERO;
    const char *const names[] = {"text.txt", "seq_len", "validation_fraction", NULL};
    put("text.txt", text->p, text->n);
    if (gx_dataset_open(&d, "text.txt", fraction, T, &e) != GX_OK) {
        expect_message(&e, names);
        return REFUSED;
    }
    EXPECT(d.train.n + d.held_out.n == text->n && d.train.n > T, "%ld and %ld of %ld bytes", (long)d.train.n,
           (long)d.held_out.n, (long)text->n);
    for (int i = 0; i < 3; i++) text_sample(c, &d, i, T, 0);
    if (index >= 0) text_sample(c, &d, index, T, 0);
    const int64_t windows = d.held_out.n ? gx_tokens_eval_samples(&d.held_out, T) : 0;
    if (windows) text_sample(c, &d, 0, T, 1);
    if (windows) text_sample(c, &d, windows - 1, T, 1);
    double bits = 0;
    if (gx_dataset_bigram_bits(&d, &bits, &e) != GX_OK) expect_message(&e, NULL);
    else EXPECT(bits > 0 && bits < 64, "a bigram model of %g bits per byte", bits);
    const int64_t epoch = gx_tokens_epoch_samples(&d.train, T);
    if (epoch <= 64 && index >= 0) { // an epoch visits each window once
        uint64_t seen = 0;
        for (int64_t i = 0; i < epoch; i++) seen |= UINT64_C(1) << gx_permute(1, index % 1000, epoch, i);
        EXPECT(seen == (epoch == 64 ? UINT64_MAX : (UINT64_C(1) << epoch) - 1), "an epoch of %ld windows", (long)epoch);
    }
    gx_dataset_close(&d);
    return ACCEPTED;
}

static int text_make(Case *c)
{
    static const char *const settings[] = {"8 0.1 1 5", "1 0 0 0", "64 0.5 7 1000000", "16 0.05 9 3"};
    for (int i = 0; i < 4; i++) {
        take_part(&c[i], "text.source", "text");
        bytes_splice(&c[i].part[0].bytes, 0, i * 700, NULL, 0);
        case_text(&c[i], "settings.numbers", settings[i]);
    }
    case_text(&c[4], "text", "ab\n");
    case_text(&c[4], "settings.numbers", "1 0 0 0");
    return 5;
}

// ---- tables --------------------------------------------------------------------------------------------------------

// All that can be read of a table, written anew with quotes around every field: b.
static int table_write(const Bytes *part, int is_tsv, Bytes *b, int *records)
{
    GxCsv c;
    GxError e = GX_ZERO;
    int64_t last = 0;
    char *text = (char *)malloc((size_t)part->n + 1); // of exactly its size
    memcpy(text, part->p, (size_t)part->n), text[part->n] = 0;
    GxStatus status = gx_csv_open(&c, "table", text, part->n, is_tsv, &e);
    for (*records = 0; status == GX_OK;) {
        const char *before = c.next;
        status = gx_csv_next(&c, &e);
        if (status == GX_OK && !c.fields) break;
        EXPECT(c.number > last && c.next > before && c.next <= c.end, "line %ld behind %ld", (long)c.number,
               (long)last);
        last = c.number;
        if (status != GX_OK) { // the others are read all the same
            refused(&e, "table");
            gx_error_clear(&e), status = GX_OK;
            continue;
        }
        for (int i = 0; i < c.fields; i++) {
            const char *field = c.field[i].text;
            EXPECT(field >= text && field + strlen(field) <= c.end, "field %d lies outside of the text", i);
            bytes_add(b, i ? ",\"" : "\"", i ? 2 : 1);
            for (; *field; field++) bytes_add(b, *field == '"' ? "\"\"" : field, *field == '"' ? 2 : 1);
            bytes_add(b, "\"", 1);
        }
        bytes_add(b, "\n", 1), ++*records;
    }
    if (status != GX_OK) refused(&e, "table");
    gx_csv_close(&c), free(text);
    return status == GX_OK;
}

static int table_open(const char *path)
{
    static const GxRecordColumn columns[] = {{"text", GX_COLUMN_REQUIRED, 0, "text_column"},
                                             {"label", GX_COLUMN_SPARSE, 1, "label_column"}};
    static GxBadRecords skip;
    GxRecords strict, lenient;
    GxError e = GX_ZERO, ignored = GX_ZERO;
    memset(&skip, 0, sizeof skip);
    const int opens = gx_records_open(&strict, path, GX_RECORDS_BY_NAME, columns, 2, NULL, &e) == GX_OK,
              opens_some = gx_records_open(&lenient, path, GX_RECORDS_BY_NAME, columns, 2, &skip, &ignored) == GX_OK;
    if (!opens) refused(&e, path);
    if (!opens_some) refused(&ignored, path);
    EXPECT(opens ? opens_some && lenient.n == strict.n && !skip.n : !opens_some || skip.n,
           "%ld records are left out, and %s", (long)skip.n, opens ? "none is wrong" : e.message);
    for (int64_t i = 0; opens && i < strict.n; i++)
        EXPECT(!strcmp(gx_record(&strict, i, 0), gx_record(&lenient, i, 0)) && gx_record_line(&strict, i) > 0,
               "record %ld is another one", (long)i);
    if (opens) gx_records_close(&strict);
    if (opens_some) gx_records_close(&lenient);
    return opens;
}

static int table_run(const Case *c)
{
    static const char *const names[] = {"table.csv", "table.tsv"};
    int accepted = 0;
    for (int k = 0; k < 2; k++) {
        Bytes once = GX_ZERO, twice = GX_ZERO;
        int records, again;
        put_part(c, ".", names[k]);
        accepted |= table_open(names[k]);
        const Bytes *part = case_part(c, names[k]);
        if (!part->n || !table_write(part, k, &once, &records)) continue;
        if (records) {
            EXPECT(table_write(&once, 0, &twice, &again) && again == records && twice.n == once.n &&
                       !memcmp(once.p, twice.p, (size_t)once.n),
                   "%d records, and %d when they are read again", records, again);
        }
        free(once.p), free(twice.p);
    }
    return accepted;
}

static int table_make(Case *c)
{
    static const char *const texts[][2] = {
        {"text,label\na,1\n\"b, \"\"c\"\"\nd\",2\n", "text\tlabel\na\t1\n\"b \"\"c\"\"\nd\"\t2\n"},
        {"\xEF\xBB\xBFtext;label\r\na;1\r\n", "text\tlabel\r\n\"a\"\t1\r\nb\t2"},
        {"label,x,text\n1,,\"\"\"a\"\"\"", "\"text\"\t\"label\"\n\"a\nb\"\t\n"}};
    for (int i = 0; i < 3; i++) case_text(&c[i], "table.csv", texts[i][0]), case_text(&c[i], "table.tsv", texts[i][1]);
    return 3;
}

// ---- corpora -------------------------------------------------------------------------------------------------------

// Every window of both parts: ids of the tokenizer, documents around their tokens.
static void corpus_windows(const GxDataset *d, const GxTokenizer *t, int64_t T)
{
    int32_t tokens[64], labels[64], documents[128];
    const GxTokens *parts[] = {&d->train, &d->held_out};
    for (int part = 0; part < 2; part++)
        for (int64_t w = 0; parts[part]->n && w < gx_min(gx_tokens_eval_samples(parts[part], T), 50); w++) {
            GxError e = GX_ZERO;
            const int64_t at = parts[part]->begin + w * T;
            GxStatus status = part ? gx_dataset_eval_sample(d, w, T, tokens, labels, 1, &e)
                                   : gx_dataset_sample(d, 1, w, T, tokens, labels, 1, &e);
            if (status == GX_OK) gx_dataset_documents(d, at, T, tokens, documents, labels, -100, 1);
            if (status == GX_OK) status = gx_dataset_mask(d, at, T, labels, -100, 1, &e);
            if (status != GX_OK) {
                const char *const names[] = {d->path, NULL};
                expect_message(&e, names);
                continue;
            }
            for (int64_t i = 0; i < T; i++) {
                EXPECT(tokens[i] >= 0 && tokens[i] < t->vocab_size, "token %d", tokens[i]);
                EXPECT(labels[i] == -100 || (labels[i] >= 0 && labels[i] < t->vocab_size), "label %d", labels[i]);
                EXPECT(documents[2 * i] <= i && documents[2 * i + 1] > i && documents[2 * i + 1] <= T,
                       "token %ld of %d to %d", (long)i, documents[2 * i], documents[2 * i + 1]);
            }
        }
}

static int corpus_open(const char *path, const GxTokenizer *t, double fraction, int64_t T)
{
    const char *const names[] = {path, "seq_len", "validation_fraction", NULL};
    GxDataset d;
    GxError e = GX_ZERO;
    if (gx_dataset_open_any(&d, path, NULL, t, fraction, T, 2, NULL, &e) != GX_OK) {
        expect_message(&e, names);
        return REFUSED;
    }
    const int is_text = d.file.tokens == 0; // another beginning: its bytes are the tokens
    EXPECT(d.train.n > T && (is_text || (d.train.n + d.held_out.n == d.file.tokens &&
                                         (d.file.is_bin || d.train_text.n + d.held_out_text.n == d.file.bytes))),
           "%ld and %ld of %ld tokens", (long)d.train.n, (long)d.held_out.n, (long)d.file.tokens);
    if (!is_text) corpus_windows(&d, t, T);
    gx_dataset_close(&d);
    return ACCEPTED;
}

// What is written a piece and a part at a time, and what a part's progress.json may say.
static void corpus_write_parts(const Case *c, const GxTokenizer *t, int64_t piece, const char *at_once)
{
    const GxCorpusWriting how = {.threads = 1, .piece = piece, .part = 20 * piece};
    GxCorpus all;
    GxError e = GX_ZERO;
    uint64_t hash[2] = {0, 1};
    int64_t n[2];
    unlink("pieces.tokens");
    EXPECT(gx_corpus_write("pieces.tokens", "corpus.jsonl", t, &how, &all, &e) == GX_OK, "%s", e.message);
    EXPECT(gx_file_hash(at_once, &hash[0], &n[0], &e) == GX_OK &&
               gx_file_hash("pieces.tokens", &hash[1], &n[1], &e) == GX_OK && hash[0] == hash[1],
           "pieces of %ld bytes give another file", (long)piece);
    unlink("pieces.tokens");
    mkdir("pieces.tokens.parts", 0777);
    put_part(c, "pieces.tokens.parts", "progress.json");
    if (gx_corpus_write("pieces.tokens", "corpus.jsonl", t, &how, &all, &e) != GX_OK) expect_message(&e, NULL);
    gx_error_clear(&e);
    if (gx_path_is_folder("pieces.tokens.parts")) gx_folder_remove("pieces.tokens.parts", &e);
}

// The file of tokens as one of version 1 or 2, whose contents no checksum stands before: so they are looked at.
static void corpus_write_older(const Case *c, const char *path)
{
    static unsigned char p[BYTES_MOST];
    const Bytes *b = case_part(c, "corpus.tokens");
    const int64_t n = b->n < 128 ? b->n : gx_max(128, b->n - 8); // a file so small has one checksum at its end
    memcpy(p, b->p, (size_t)n);
    if (b->n >= 128) p[8] = p[104] ? 2 : 1, memset(p + 104, 0, 24);
    put(path, p, n);
}

// Lines as a corpus, what is written of it, and a file of tokens as it may be.
static int corpus_run(const Case *c)
{
    static GxTokenizerKind not_bytes; // of bytes as tokens, but for its name
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxTokenizer words = bytes;
    const int64_t T = gx_max(1, gx_min(64, integer_of(c, "settings.numbers", 0)));
    const double fraction = number_of(c, "settings.numbers", 1);
    not_bytes = *bytes.kind, words.kind = &not_bytes, words.end = 10, words.frame[0].n = 2 * (int)(T % 2);
    words.frame[0].part[0].id = 13, words.frame[0].part[1].id = GX_FRAME_A;
    const int takes_part = fraction >= 0 && fraction < 1;
    GxCorpus corpus;
    GxError e = GX_ZERO;
    const char *const names[] = {"corpus.jsonl", NULL};
    put_part(c, ".", "corpus.jsonl"), put_part(c, ".", "corpus.tokens"), put_part(c, ".", "corpus.bin");
    int status = takes_part ? corpus_open("corpus.tokens", &bytes, fraction, T) : REFUSED;
    corpus_write_older(c, "older.tokens");
    if (takes_part && corpus_open("older.tokens", &bytes, fraction, T) == ACCEPTED) status = ACCEPTED;
    if (takes_part && corpus_open("corpus.bin", &words, fraction, T) == ACCEPTED) status = ACCEPTED;
    if (gx_corpus_open(&corpus, "corpus.jsonl", NULL, &bytes, 1, NULL, &e) != GX_OK) {
        expect_message(&e, names);
        return status;
    }
    unlink("written.tokens");
    static const unsigned char mask[BYTES_MOST / 8 + 1] = {0x5A, 0xFF, 0x80, 1};
    const int is_masked = T % 2 && corpus.file.tokens <= BYTES_MOST;
    EXPECT(gx_token_file_write("written.tokens", &corpus.file, corpus.ids, is_masked ? mask : NULL, &e) == GX_OK, "%s",
           e.message);
    const int from_lines = corpus_open("corpus.jsonl", &bytes, takes_part ? fraction : 0, T);
    EXPECT(from_lines == corpus_open("written.tokens", &bytes, takes_part ? fraction : 0, T),
           "lines %d, their file not", from_lines);
    gx_corpus_close(&corpus);
    if (T % 4 == 2) corpus_write_parts(c, &bytes, 1 + T % 40, "written.tokens"); // syncs files: it takes its time
    return from_lines == ACCEPTED ? ACCEPTED : status;
}

static void corpus_make_bin(Case *c, int is_wide)
{
    const int32_t header[256] = {is_wide ? 20240801 : 20240520, is_wide ? 7 : 1, 300};
    unsigned char ids[4 * 300] = {0};
    for (int i = 0; i < 300; i++)
        ids[(is_wide ? 4 : 2) * i] = i % 17 ? (unsigned char)(97 + i % 20) : (unsigned char)(10 + 3 * (i % 2));
    bytes_add(case_add(c, "corpus.bin", header, sizeof header), ids, is_wide ? 1200 : 600);
}

static int corpus_make(Case *c)
{
    static const char *const lines[] = {
        "{\"text\": \"The old gray cat.\"}\n{\"text\": \"sees a \\u00e9 tree\\nnear\"}\n",
        "{\"id\": 1, \"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"b b b b b b\"}\n"};
    static const char *const settings[] = {"8 0.1", "1 0", "3 0.4", "2 0.9"};
    static const unsigned char mask[200] = {0xA5, 0xFF, 0, 0x81, 7};
    for (int i = 0; i < 4; i++) {
        const GxTokenizer bytes = gx_tokenizer_bytes();
        GxCorpus corpus;
        GxError e = GX_ZERO;
        case_text(&c[i], "corpus.jsonl", lines[i % 2]);
        put_part(&c[i], ".", "corpus.jsonl");
        unlink("sound.tokens");
        EXPECT(gx_corpus_open(&corpus, "corpus.jsonl", NULL, &bytes, 1, NULL, &e) == GX_OK &&
                   gx_token_file_write("sound.tokens", &corpus.file, corpus.ids, i < 2 ? mask : NULL, &e) == GX_OK,
               "%s", e.message);
        gx_corpus_close(&corpus);
        take_part(&c[i], "sound.tokens", "corpus.tokens");
        corpus_make_bin(&c[i], i % 2);
        case_text(
            &c[i], "progress.json",
            "{\"version\": 1, \"around\": 0, \"texts\": 0, \"tokenizer\": \"byte-256\", \"parts\": 0, \"tokens\": "
            "0, \"documents\": 0, \"bytes\": 0, \"empty\": 0, \"file\": 0, \"at\": 0, \"line\": 0, \"records\": 0, "
            "\"has_text\": 0, \"empty_line\": 0}");
        case_text(&c[i], "settings.numbers", settings[i]);
    }
    return 4;
}

// ---- conversations -------------------------------------------------------------------------------------------------

// A packed sample: whole documents, padding behind them, labels that are the next tokens.
static void chat_sample(const GxDataset *d, const GxTokenizer *t, const GxPacking *p, int64_t number, int64_t T,
                        int64_t seen[2])
{
    int32_t tokens[512], labels[512], documents[1024];
    const GxBlendSample sample = {tokens, labels, documents, -100, 1};
    char *text;
    size_t bytes;
    GxError e = GX_ZERO;
    EXPECT(gx_dataset_packed(d, p, number, T, tokens, labels, documents, -100, 1, NULL, &e) == GX_OK, "%s", e.message);
    for (int64_t i = 0; i < T; i++) {
        const int is_padding = documents[2 * i + 1] == 0;
        EXPECT(tokens[i] >= 0 && tokens[i] < t->vocab_size, "token %d", tokens[i]);
        EXPECT(is_padding || (documents[2 * i] <= i && documents[2 * i + 1] > i && documents[2 * i + 1] <= T),
               "token %ld of %d to %d", (long)i, documents[2 * i], documents[2 * i + 1]);
        if (labels[i] != -100)
            EXPECT(!is_padding && i + 1 < documents[2 * i + 1] && labels[i] == tokens[i + 1], "token %ld: label %d",
                   (long)i, labels[i]);
        seen[0] += !is_padding, seen[1] += labels[i] != -100;
    }
    FILE *out = open_memstream(&text, &bytes);
    gx_show_sample(out, t, &sample, T, number);
    fclose(out);
    EXPECT(is_readable(text), "what is shown cannot be read");
    free(text);
}

// The same format as a template, which is executed: what it makes of a file is the same, or both refuse it.
static void chat_by_template(const char *name, const GxTokenizer *t, int64_t T, double fraction, const GxDataset *d)
{
    const GxChatFormat *f = NULL;
    GxJson *said = gx_json_new_object();
    GxDataset own;
    GxError e = GX_ZERO;
    char *jinja = NULL;
    gx_chat_jinja(gx_chat_format(name), &jinja, &e);
    gx_json_set(said, "template", gx_json_new_string(jinja), &e);
    gx_json_set(said, "where", gx_json_new_string("chat_template.jinja"), &e);
    gx_json_set(said, "variables", gx_json_new_object(), &e);
    EXPECT(gx_chat_open(&f, said, "", t, &e) == GX_OK, "%s", e.message);
    const GxChatReading how = {f, NULL, NULL};
    const GxStatus status = gx_dataset_open_chat(&own, "chats.jsonl", t, &how, fraction, T, 2, &e);
    // an answer of nothing but thoughts, or with the marks of them elsewhere, is found by no text
    EXPECT((status == GX_OK) == (d != NULL) || strstr(e.message, "chat_template"), "%s", e.message);
    if (status == GX_OK && d)
        EXPECT(own.file.tokens == d->file.tokens && own.chat.learned == d->chat.learned &&
                   !memcmp(own.ids, d->ids, (size_t)d->file.tokens * sizeof *d->ids) &&
                   !memcmp(own.is_learned, d->is_learned, (size_t)d->file.tokens),
               "%s: %ld of %ld tokens learned, by the template %ld of %ld", name, (long)d->chat.learned,
               (long)d->file.tokens, (long)own.chat.learned, (long)own.file.tokens);
    if (status == GX_OK) gx_dataset_close(&own);
    gx_chat_close(f), free(jinja), gx_json_free(said);
}

static int chat_run(const Case *c)
{
    static const char *const formats[] = {"chatml", "qwen3", "llama3.1", "llama2", "mistral-v3", ""};
    static GxTokenizerKind not_bytes; // of bytes as tokens, but for its name: with an end of a text, and a frame
    GxTokenizer t = gx_tokenizer_bytes();
    const int64_t T = gx_max(1, gx_min(512, integer_of(c, "settings.numbers", 0)));
    const double fraction = number_of(c, "settings.numbers", 1);
    const int64_t format = gx_max(0, gx_min(5, integer_of(c, "settings.numbers", 2)));
    const GxChatReading how = {gx_chat_format(formats[format]), NULL, NULL};
    GxDataset d;
    GxError e = GX_ZERO;
    int64_t seen[2] = {0, 0};
    const char *const names[] = {"chats.jsonl", NULL};
    not_bytes = *t.kind;
    if (!how.format) t.kind = &not_bytes, t.end = 10, t.frame[0].n = 2 * (int)(T % 2);
    t.frame[0].part[0].id = 13, t.frame[0].part[1].id = GX_FRAME_A;
    put_part(c, ".", "chats.jsonl");
    gx_dataset_is_chat("chats.jsonl", &gx_record_reading, NULL);
    const double held_out = fraction >= 0 && fraction < 1 ? fraction : 0;
    const int opens = gx_dataset_open_chat(&d, "chats.jsonl", &t, &how, held_out, T, 2, &e) == GX_OK;
    if (how.format) chat_by_template(formats[format], &t, T, held_out, opens ? &d : NULL);
    if (!opens) {
        expect_message(&e, names);
        return REFUSED;
    }
    for (int64_t s = 0; s < d.packed.samples; s++) chat_sample(&d, &t, &d.packed, s, T, seen);
    for (int64_t s = 0; s < d.packed_held_out.samples; s++) chat_sample(&d, &t, &d.packed_held_out, s, T, seen);
    EXPECT(seen[0] == d.file.tokens && seen[1] == d.chat.learned && seen[1] > 0 && seen[1] < seen[0],
           "%ld of %ld tokens, %ld of %ld learned", (long)seen[0], (long)d.file.tokens, (long)seen[1],
           (long)d.chat.learned);
    gx_dataset_close(&d);
    return ACCEPTED;
}

static int chat_make(Case *c)
{
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", "
        "\"text\": \"a\\u00e9\"}]}, {\"role\": \"assistant\", \"content\": \"<think>\\nb\\n</think>\\n\\nc\"}]}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}, "
        "{\"from\": "
        "\"human\", \"value\": \"<|im_end|>\"}, {\"from\": \"gpt\", \"value\": \"</s> d\"}, {\"from\": \"human\", "
        "\"value\": \"e\"}]}\n",
        "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\n",
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"}; // the last one of a tokenizer with an eos_token
    static const char *const settings[] = {"400 0 0", "300 0.3 1", "500 0.5 2", "200 0.2 3", "120 0 4", "301 0.1 5"};
    for (int i = 0; i < 6; i++) {
        char all[2000];
        snprintf(all, sizeof all, "%s%s%s", lines[i == 5 ? 2 : i % 3], lines[i == 5 ? 3 : (i + 1) % 3], lines[2]);
        case_text(&c[i], "chats.jsonl", all);
        case_text(&c[i], "settings.numbers", settings[i]);
    }
    return 6;
}

// ---- chat templates ------------------------------------------------------------------------------------------------

static int template_run(const Case *c)
{
    const Bytes *text = case_part(c, "chat_template.jinja"), *json = case_part(c, "variables.json");
    const char *const names[] = {"chat_template.jinja", "variables.json", NULL};
    GxTemplate *t = NULL;
    GxJson *variables = NULL;
    GxTemplateText x = GX_ZERO, again = GX_ZERO;
    GxError e = GX_ZERO;
    GxStatus status = gx_json_parse(&variables, json->p ? json->p : "", json->n, "variables.json", &e);
    if (status == GX_OK) status = gx_template_parse(&t, text->p ? text->p : "", text->n, "chat_template.jinja", &e);
    if (status == GX_OK) status = gx_template_render(t, variables, 1753531200, &x, &e);
    if (status == GX_OK) {
        int64_t at = 0;
        EXPECT(x.bytes >= 0 && !x.text[x.bytes], "the text has no end");
        for (int64_t i = 0, n; i < x.bytes; i += n)
            EXPECT((n = x.text[i] ? gx_utf8_bytes(x.text + i) : 1) > 0, "byte %ld is not UTF-8", (long)i);
        for (int i = 0; i < x.generations; i++, at = x.generated[i - 1].end)
            EXPECT(x.generated[i].begin >= at && x.generated[i].end >= x.generated[i].begin &&
                       x.generated[i].end <= x.bytes,
                   "generation %d of %ld to %ld, of %ld bytes", i, (long)x.generated[i].begin, (long)x.generated[i].end,
                   (long)x.bytes);
        EXPECT(!x.generations || gx_template_has_generation(t), "a generation that the template does not have");
        EXPECT(gx_template_render(t, variables, 1753531200, &again, &e) == GX_OK && again.bytes == x.bytes &&
                   !memcmp(again.text, x.text, (size_t)x.bytes),
               "the second text is another one");
    } else expect_message(&e, names);
    EXPECT(status == GX_OK || (!x.text && !x.generated), "a text is handed out with an error");
    gx_template_text_free(&x);
    gx_template_text_free(&again);
    gx_template_free(t);
    gx_json_free(variables);
    return status == GX_OK ? ACCEPTED : REFUSED;
}

static int template_make(Case *c)
{
    static const char *const text[] = {
        "{{- bos_token }}{% for m in messages %}\n"
        "{{- '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}",
        "{%- set ns = namespace(x='', n=0) %}{% macro f(a, b=2) %}{{ a }}{{ b * 2 }}{% endmacro %}\n"
        "{%- for m in messages[::-1] if m.role != 'system' %}{% set ns.x = ns.x ~ f(m.role[:2]) ~ loop.index %}\n"
        "{%- if loop.last %}{% break %}{% endif %}{% else %}{{ raise_exception('none') }}{% endfor %}{{ ns.x }}",
        "{% for m in messages %}{% generation %}{{ m['content'].split('a')[-1] }}{% endgeneration %}\n"
        "{% endfor %}{{ tools | tojson(indent=2) }}{{ messages | map(attribute='role') | unique | join(', ') }}",
        "{% set x | upper %} a {% endset %}{{ x }}{% for k, v in tools[0].items() %}{{ k }}={{ v if v is string else v "
        "| string | length }}{% endfor %}{{ strftime_now('%d %b %Y') }}{{ [3, 1.5, -2] | sort | list }}"};
    for (int i = 0; i < 4; i++) {
        case_text(&c[i], "chat_template.jinja", text[i]);
        case_text(&c[i], "variables.json",
                  "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
                  "\"content\": \"\u00e9 a\\n\"}], \"tools\": [{\"name\": \"f\", \"parameters\": "
                  "{\"x\": [1, null, 2.5, true]}}], \"bos_token\": \"<s>\", \"add_generation_prompt\": true}");
    }
    return 4;
}

// ---- blends --------------------------------------------------------------------------------------------------------

// Each source's samples one after the other, all within it.
static int blend_run(const Case *c)
{
    const GxTokenizer bytes = gx_tokenizer_bytes();
    const char *list = case_part(c, "list")->p, *weights = case_part(c, "weights")->p;
    const int64_t T = gx_max(1, gx_min(64, integer_of(c, "settings.numbers", 0))),
                  index = integer_of(c, "settings.numbers", 2);
    const double fraction = number_of(c, "settings.numbers", 1);
    int32_t in[64], labels[64], documents[128];
    const GxBlendSample to = {in, labels, documents, -100, 1};
    GxBlend b;
    GxError e = GX_ZERO;
    put_part(c, ".", "a.txt"), put_part(c, ".", "b.jsonl");
    gx_blend_has_documents(list);
    if (gx_blend_open(&b, list, weights, &bytes, NULL, fraction >= 0 && fraction < 1 ? fraction : 0, T, 1, NULL, &e) !=
        GX_OK) {
        expect_message(&e, NULL);
        return REFUSED;
    }
    int64_t next[8] = {0}, sum = 0;
    EXPECT(b.n >= 1 && b.n <= 8, "%d sources", b.n);
    for (int s = 0; s < b.n; s++) sum += b.part[s];
    EXPECT(sum <= GX_BLEND_PARTS, "%ld parts", (long)sum);
    for (int64_t i = 0; i < 40; i++) {
        int64_t number, far;
        const int s = gx_blend_find(b.part, b.n, i, &number);
        EXPECT(number == next[s]++ && gx_blend_share(b.part, b.n, s, i + 1) == next[s], "sample %ld", (long)i);
        if (index >= 0 && index < INT64_MAX - 40) gx_blend_find(b.part, b.n, index + i, &far);
        if (gx_blend_sample(&b, 3, index >= 0 && index < INT64_MAX - 40 ? index + i : i, T, &to, NULL, &e) != GX_OK)
            expect_message(&e, NULL), gx_error_clear(&e);
    }
    for (int64_t w = 0; w < gx_min(gx_blend_eval_samples(&b), 100); w++)
        EXPECT(gx_blend_eval_sample(&b, w, T, &to, &e) == GX_OK, "%s", e.message);
    gx_blend_close(&b);
    return ACCEPTED;
}

static int blend_make(Case *c)
{
    static const char *const lists[] = {"a.txt,b.jsonl", "b.jsonl", "b.jsonl,a.txt"};
    static const char *const weights[] = {"0.7,0.3", "2", ""};
    static const char *const settings[] = {"8 0.1 5", "1 0 1000000", "3 0.4 9223372036854775807"};
    for (int i = 0; i < 3; i++) {
        take_part(&c[i], "text.source", "a.txt");
        case_text(&c[i], "b.jsonl", "{\"text\": \"The old gray cat.\"}\n{\"text\": \"sees a \\u00e9 tree\\nnear\"}\n");
        case_text(&c[i], "list", lists[i]), case_text(&c[i], "weights", weights[i]);
        case_text(&c[i], "settings.numbers", settings[i]);
    }
    return 3;
}

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

static int tokenizer_run(const Case *c)
{
    const GxTokenizer t = gx_tokenizer_bytes();
    GxError e = GX_ZERO;
    put_part(c, ".", "tokenizer.json");
    return gx_tokenizer_check(&t, ".", &e) == GX_OK ? ACCEPTED : refused(&e, "tokenizer.json");
}
static int tokenizer_make(Case *c) { return one_file(c, CORPUS "/tokenizer.json", "tokenizer.json"); }

// ---- WordPiece -----------------------------------------------------------------------------------------------------

static const char wordpiece_text[] =
    "The caf\xC3\xA9 of [SEP] don't [MASK] \xE6\x97\xA5\xE6\x9C\xAC \xED\x95\x9C a\xCC\x81\xCC\xB4 <x> Abra"
    "cadabra, ABRA! \xC4\xB0 \xEF\xBF\xBD \xE2\x80\x8B";

// Ids within the vocabulary, no more than there may be; what they decode to fits; the same from what is written.
static void tokenizer_use(const GxTokenizer *t, const Bytes *text)
{
    GxTokenizer again;
    GxError e = GX_ZERO;
    int64_t n = 0, m = 0, bytes = 0;
    const int64_t most = gx_tokenizer_most(t, text->n);
    const size_t room = (size_t)most * sizeof(int32_t);
    int32_t *ids = (int32_t *)malloc(room), *others = (int32_t *)malloc(room);
    const GxSpecialTokens special = text->n % 2 ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS;
    const int has_room = (ids && others) || room == 0; // there is none for a long text where a byte may become many
    if (!has_room || gx_tokenizer_encode(t, text->p, text->n, special, ids, &n, &e) != GX_OK) {
        EXPECT(!has_room || (t->kind == &gx_unigram && t->role[GX_TOKEN_UNK] < 0), "%s", e.message);
        if (has_room) expect_message(&e, NULL); // of a character that it does not know
        free(ids), free(others);
        return;
    }
    EXPECT(n <= most, "%ld tokens of %ld bytes", (long)n, (long)text->n);
    for (int64_t i = 0; i < n; i++) EXPECT(ids[i] >= 0 && ids[i] < t->vocab_size, "the id %d", ids[i]);
    if (t->longest < 1 << 12) {
        char *back = (char *)malloc((size_t)n * (size_t)t->longest);
        EXPECT(gx_tokenizer_decode(t, ids, n, special, back, &bytes, &e) == GX_OK, "%s", e.message);
        EXPECT(bytes <= n * t->longest, "%ld bytes of %ld tokens", (long)bytes, (long)n);
        free(back);
    }
    mkdir("tokenizer", 0777);
    EXPECT(gx_tokenizer_write(t, "tokenizer", &e) == GX_OK, "%s", e.message);
    EXPECT(gx_tokenizer_open(&again, "tokenizer", &e) == GX_OK, "what is written: %s", e.message);
    EXPECT(!strcmp(t->identity, again.identity), "%s, and then %s", t->identity, again.identity);
    gx_tokenizer_encode(&again, text->p, text->n, special, others, &m, &e);
    EXPECT(n == m && !memcmp(ids, others, (size_t)n * sizeof *ids), "other ids");
    gx_tokenizer_close(&again);
    free(ids), free(others);
    unlink("tokenizer/tokenizer.json"), unlink("tokenizer/tokenizer_config.json"), unlink("tokenizer/vocab.txt");
}

static int wordpiece_run(const Case *c)
{
    static const char *const files[] = {"tokenizer.json", "vocab.txt", "tokenizer_config.json"};
    GxTokenizer t;
    GxError e = GX_ZERO;
    mkdir("wordpiece", 0777);
    for (int i = 0; i < 3; i++) {
        char path[GX_PATH];
        snprintf(path, sizeof path, "wordpiece/%s", files[i]);
        unlink(path);
        if (case_part(c, files[i])->n) put_part(c, "wordpiece", files[i]);
    }
    if (gx_tokenizer_open(&t, "wordpiece", &e) != GX_OK) return refused(&e, "wordpiece");
    tokenizer_use(&t, case_part(c, "text"));
    gx_tokenizer_close(&t);
    return ACCEPTED;
}

static int train_run(const Case *c)
{
    static const char *const file = "train.txt";
    GxTokenizer t;
    GxError e = GX_ZERO;
    GxWordPieceTraining how = gx_wordpiece_training(5 + (int64_t)((uint64_t)integer_of(c, "how.numbers", 0) % 2000));
    how.min_frequency = integer_of(c, "how.numbers", 1) % 5;
    how.limit_alphabet = (int64_t)((uint64_t)integer_of(c, "how.numbers", 2) % 100);
    how.normalizer.clean_text = integer_of(c, "how.numbers", 3) % 2 != 0;
    put_part(c, ".", file);
    if (gx_wordpiece_train(&t, &file, 1, &how, &e) != GX_OK) {
        const char *const names[] = {file, "vocab_size", NULL};
        expect_message(&e, names);
        return REFUSED;
    }
    tokenizer_use(&t, case_part(c, file));
    gx_tokenizer_close(&t);
    return ACCEPTED;
}

static int train_make(Case *c)
{
    for (int i = 0; i < 2; i++) {
        case_text(&c[i], "train.txt", wordpiece_text);
        case_text(&c[i], "how.numbers", i ? "1000 1 0 0" : "60 2 20 1");
    }
    case_text(&c[2], "train.txt", " ");
    case_text(&c[2], "how.numbers", "60 2 20 1");
    return 3;
}

static int train_bpe_run(const Case *c)
{
    static const char *const file = "train.txt";
    GxTokenizer t;
    GxError e = GX_ZERO;
    GxBpeTraining how = gx_bpe_training(200 + (int64_t)((uint64_t)integer_of(c, "how.numbers", 0) % 2000));
    how.min_frequency = integer_of(c, "how.numbers", 1) % 5;
    put_part(c, ".", file);
    if (gx_bpe_train(&t, &file, 1, &how, &e) != GX_OK) {
        const char *const names[] = {file, "vocab_size", NULL};
        expect_message(&e, names);
        return REFUSED;
    }
    tokenizer_use(&t, case_part(c, file));
    gx_tokenizer_close(&t);
    return ACCEPTED;
}

static int train_bpe_make(Case *c)
{
    static const char *const numbers[] = {"800 1", "100 2", "57 2"};
    for (int i = 0; i < 3; i++) {
        case_text(&c[i], "train.txt", wordpiece_text);
        case_text(&c[i], "how.numbers", numbers[i]);
    }
    return 3;
}

static int wordpiece_make(Case *c)
{
    static const char *const file = "wordpiece.source";
    const GxWordPieceTraining how = gx_wordpiece_training(70);
    GxTokenizer t;
    GxError e = GX_ZERO;
    put(file, wordpiece_text, (int64_t)strlen(wordpiece_text));
    mkdir("tokenizer", 0777);
    if (gx_wordpiece_train(&t, &file, 1, &how, &e) != GX_OK || gx_tokenizer_write(&t, "tokenizer", &e) != GX_OK) {
        fprintf(stderr, "fuzz: %s\n", e.message);
        exit(2);
    }
    gx_tokenizer_close(&t);
    for (int i = 0; i < 2; i++) {
        if (i == 0) take_part(&c[i], "tokenizer/tokenizer.json", "tokenizer.json");
        else take_part(&c[i], "tokenizer/vocab.txt", "vocab.txt");
        take_part(&c[i], "tokenizer/tokenizer_config.json", "tokenizer_config.json");
        case_text(&c[i], "text", wordpiece_text);
    }
    return 2;
}

// ---- BPE -----------------------------------------------------------------------------------------------------------

static const char bpe_text[] =
    "The <s> caf\xC3\xA9 ab abab  12345\n\n I'll e\xCC\x81 \xE6\x97\xA5\xE6\x9C\xAC \xE2\x96\x81 \xFF<x>";

static int bpe_run(const Case *c)
{
    GxTokenizer t;
    GxError e = GX_ZERO;
    put_part(c, ".", "tokenizer.json");
    if (gx_tokenizer_open(&t, "tokenizer.json", &e) != GX_OK) return refused(&e, "tokenizer.json");
    tokenizer_use(&t, case_part(c, "text"));
    gx_tokenizer_close(&t);
    return ACCEPTED;
}

// What GPT-2's, LLaMA-3's and Qwen's files have, and LLaMA-2's and Mistral's with RoBERTa's frame, with a vocabulary of
// a few pieces.
static int bpe_make(Case *c)
{
    static const char model[] =
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_"
        "merges\":"
        "false,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"a\":2,\"b\":3,\"ab\":4,\"\xC4\xA0\":5,\"\xC4\xA0"
        "ab\":6,\"\xE2\x96\x81\":7,\"\xE2\x96\x81"
        "a\":8,\"<0x0A>\":9,\"<0xFF>\":10},\"merges\":[\"a b\",[\"\xC4\xA0\",\"ab\"],\"\xE2\x96\x81 a\"]}}";
    static const char *const before[] = {
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":\"1\"},\"content\":\"ab\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'ll)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!"
        "\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Digits\",\"individual_digits\":true},"
        "{"
        "\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},",
        "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
        "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\",\"split\":true},\"decoder\":{\"type\":"
        "\"Sequence\","
        "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":"
        "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"};
    static const char *const frame[] = {
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}",
        "{\"type\":\"RobertaProcessing\",\"sep\":[\"<x>\",11],\"cls\":[\"<s>\",1],\"trim_offsets\":true,"
        "\"add_prefix_space\":false}"};
    for (int i = 0; i < 2; i++) {
        char document[4000];
        snprintf(
            document, sizeof document,
            "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,"
            "\"normalized\":false,\"special\":true},{\"id\":11,\"content\":\"<x>\",\"single_word\":false,\"lstrip\":"
            "false,\"rstrip\":false,\"normalized\":true,\"special\":false}],%s\"post_processor\":%s,%s",
            before[i], frame[i], model);
        case_text(&c[i], "tokenizer.json", document);
        case_text(&c[i], "text", bpe_text);
    }
    return 2;
}

// ---- Unigram -------------------------------------------------------------------------------------------------------

static const char unigram_text[] =
    "The </s> caf\xC3\xA9 e\xCC\x81 aab \xEF\xBC\xA1\xCC\x81 \x01 \r\n  x "
    "\xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\x95 \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xFF<x>\xEF\xB7\xBA";

static void add_base64(Bytes *out, const Bytes *from)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int64_t i = 0; i < from->n; i += 3) {
        const int64_t left = from->n - i;
        uint32_t bits = 0;
        for (int k = 0; k < 3; k++) bits = bits << 8 | (k < left ? (unsigned char)from->p[i + k] : 0);
        for (int k = 0; k < 4; k++) bytes_add(out, k > left ? "=" : &digits[bits >> (18 - 6 * k) & 63], 1);
    }
}

// "@MAP" in tokenizer.json stands for the charsmap, which is a part of its own: bytes that base64 would hide.
static int unigram_run(const Case *c)
{
    GxTokenizer t;
    GxError e = GX_ZERO;
    Bytes document = GX_ZERO;
    const Bytes *json = case_part(c, "tokenizer.json");
    const char *map = json->n ? strstr(json->p, "@MAP") : NULL;
    const int64_t before = map ? map - json->p : json->n;
    bytes_add(&document, json->p, before);
    if (map) add_base64(&document, case_part(c, "charsmap")), bytes_add(&document, map + 4, json->n - before - 4);
    put("tokenizer.json", document.p ? document.p : "", document.n);
    free(document.p);
    if (gx_tokenizer_open(&t, "tokenizer.json", &e) != GX_OK) return refused(&e, "tokenizer.json");
    tokenizer_use(&t, case_part(c, "text"));
    gx_tokenizer_close(&t);
    return ACCEPTED;
}

// A trie of 512 units: "e" + U+0301 becomes e with acute, wide A becomes A, U+0001 nothing.
static void unigram_charsmap(Case *c)
{
    static const struct {
        const char *key;
        int base[3]; // of what is behind each byte
        uint32_t text;
    } keys[] = {{"\x01", {256, 0, 0}, 0}, {"e\xCC\x81", {257, 258, 259}, 1}, {"\xEF\xBC\xA1", {260, 261, 262}, 4}};
    static const char texts[] = "\0\xC3\xA9\0A";
    uint32_t unit[512] = {0}, length = sizeof unit;
    for (int k = 0; k < 3; k++)
        for (int i = 0, at = 0; keys[k].key[i]; at = keys[k].base[i++]) {
            const int place = at ^ (unsigned char)keys[k].key[i], is_last = !keys[k].key[i + 1];
            unit[place] =
                (uint32_t)(place ^ keys[k].base[i]) << 10 | (uint32_t)is_last << 8 | (unsigned char)keys[k].key[i];
            if (is_last) unit[keys[k].base[i]] = 1u << 31 | keys[k].text;
        }
    Bytes *b = case_add(c, "charsmap", &length, 4);
    bytes_add(b, unit, sizeof unit);
    bytes_add(b, texts, sizeof texts);
}

// What T5's and XLM-R's files have, and what SentencePiece's models with bytes for unknown characters become.
static int unigram_make(Case *c)
{
    static const char *const documents[] = {
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"@"
        "MAP\"},"
        "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
        "\" {2,}\"},"
        "\"content\":\"\xE2\x96\x81\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\","
        "\"split\":true}]},"
        "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":"
        "true},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{"
        "\"SpecialToken\":"
        "{\"id\":\"</"
        "s>\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\","
        "\"type_id\":0}}],"
        "\"special_tokens\":{\"</"
        "s>\":{\"ids\":[1]}}},\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"byte_fallback\":false,\"vocab\":[[\"<pad>"
        "\",0.0],"
        "[\"</"
        "s>\",0.0],[\"<unk>\",0.0],[\"\xE2\x96\x81\",-2.0122928619384766],[\"a\",-3.5],[\"b\",-3.25],[\"aa\",-7],["
        "\"\xC3\xA9\",-9.5],"
        "[\"\xE2\x96\x81The\",-11.873998641967773]]}}",
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"},{\"type\":"
        "\"NFD\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\","
        "\"split\":false},\"decoder\":"
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},"
        "\"content\":\" \"},{\"type\":"
        "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
        "\",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"Unigram\","
        "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"</"
        "s>\",0],[\"<0xCC>\",0],[\"<0x81>\",0],[\"e\",-1e-3],[\"xe\",-3],[\"the\",-3]]}}"};
    for (int i = 0; i < 2; i++) {
        char document[4000];
        snprintf(
            document, sizeof document,
            "{\"added_tokens\":[{\"id\":1,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,"
            "\"normalized\":false,\"special\":true},{\"id\":20,\"content\":\"<x>\",\"single_word\":false,\"lstrip\":"
            "false,"
            "\"rstrip\":false,\"normalized\":true,\"special\":false}],%s",
            documents[i]);
        case_text(&c[i], "tokenizer.json", document);
        if (i == 0) unigram_charsmap(&c[i]);
        case_text(&c[i], "text", unigram_text);
    }
    return 2;
}

// ---- manifest.json -------------------------------------------------------------------------------------------------

static int folder_run(const Case *c)
{
    GxError e = GX_ZERO, sizes = GX_ZERO;
    mkdir("published", 0777);
    for (int i = 0; i < c->n; i++) put_part(c, "published", c->part[i].name);
    const int whole = gx_folder_verify("published", 1, &e) == GX_OK,
              as_large = gx_folder_verify("published", 0, &sizes) == GX_OK;
    EXPECT(!whole || as_large, "whole, but not of its sizes: %s", sizes.message);
    if (!as_large) refused(&sizes, "published");
    return whole ? ACCEPTED : refused(&e, "published");
}
static int folder_make(Case *c)
{
    take_part(&c[0], CORPUS "/config.json", "config.json");
    take_part(&c[0], CORPUS "/trainer_state.json", "trainer_state.json");
    take_part(&c[0], "published.source/manifest.json", "manifest.json");
    return 1;
}

// ---- folders of sentence-transformers ------------------------------------------------------------------------------

static const struct {
    const char *part, *file, *seed;
} sentence_files[] = {
    {"modules.json", "sentence/modules.json",
     "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"},{\"idx\":1,"
     "\"name\":"
     "\"1\",\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"},{\"idx\":2,\"name\":\"2\","
     "\"path\":"
     "\"2_Dense\",\"type\":\"sentence_transformers.models.Dense\"},{\"idx\":3,\"name\":\"3\",\"path\":\"3_Normalize\","
     "\"type\":\"sentence_transformers.base.modules.normalize.Normalize\"}]"},
    {"pooling.json", "sentence/1_Pooling/config.json",
     "{\"embedding_dimension\":3,\"pooling_mode\":\"cls\",\"include_prompt\":true}"},
    {"dense.json", "sentence/2_Dense/config.json",
     "{\"in_features\":3,\"out_features\":2,\"bias\":true,\"activation_function\":\"torch.nn.modules.activation.Tanh\","
     "\"module_input_name\":\"sentence_embedding\"}"},
    {"bert.json", "sentence/sentence_bert_config.json", "{\"max_seq_length\":7,\"do_lower_case\":false}"},
    {"prompts.json", "sentence/config_sentence_transformers.json",
     "{\"prompts\":{\"query\":\"query: \"},\"default_prompt_name\":\"query\",\"similarity_fn_name\":\"dot\"}"},
    {"config.json", "sentence/config.json", "{\"max_position_embeddings\":16}"},
    {"tokenizer_config.json", "sentence/tokenizer_config.json",
     "{\"model_max_length\":1000000000000000019884624838656,\"split_special_tokens\":true}"},
};
enum { SENTENCE_FILES = sizeof sentence_files / sizeof *sentence_files };

static void sentence_weights(void)
{
    const float w[6] = {1, 2, 3, 4, 5, 6};
    GxSafetensorsEntry e[2];
    GxSafetensorsWriter out;
    GxError err = GX_ZERO;
    memset(e, 0, sizeof e);
    strcpy(e[0].name, "linear.weight"), strcpy(e[1].name, "linear.bias");
    e[0].dtype = e[1].dtype = GX_F32, e[0].ndim = 2, e[1].ndim = 1;
    e[0].shape[0] = e[1].shape[0] = 2, e[0].shape[1] = 3;
    EXPECT(gx_safetensors_create(&out, "sentence/2_Dense/model.safetensors", e, 2, NULL, 0, &err) == GX_OK &&
               gx_safetensors_write_floats(&out, "linear.weight", 0, w, 6, &err) == GX_OK &&
               gx_safetensors_write_floats(&out, "linear.bias", 0, w, 2, &err) == GX_OK &&
               gx_safetensors_finish(&out, &err) == GX_OK,
           "%s", err.message);
}

static int sentence_run(const Case *c)
{
    GxSentenceModules m, again;
    GxError e = GX_ZERO;
    mkdir("sentence", 0777), mkdir("sentence/1_Pooling", 0777), mkdir("sentence/2_Dense", 0777), mkdir("made", 0777);
    for (int i = 0; i < SENTENCE_FILES; i++) {
        const Bytes *b = case_part(c, sentence_files[i].part);
        unlink(sentence_files[i].file);
        if (b->n) put(sentence_files[i].file, b->p, b->n);
    }
    sentence_weights();
    if (gx_sentence_modules_read(&m, "sentence", 0, &e) != GX_OK) return refused(&e, "sentence");
    EXPECT(gx_sentence_modules_write(&m, 3, m.most, "made", &e) == GX_OK, "%s", e.message);
    EXPECT(gx_sentence_modules_read(&again, "made", 0, &e) == GX_OK, "read back: %s", e.message);
    EXPECT((!m.pooling[0] || !strcmp(m.pooling, again.pooling)) && m.normalizes == again.normalizes &&
               m.most == again.most && !strcmp(m.prompt, again.prompt) && m.dense_n == again.dense_n,
           "reads back as another");
    for (int i = 0; i < m.dense_n; i++)
        EXPECT(m.dense[i].is_tanh == again.dense[i].is_tanh &&
                   !memcmp(m.dense[i].weight, again.dense[i].weight, 6 * sizeof(float)),
               "a Dense module reads back as another");
    gx_sentence_modules_close(&m), gx_sentence_modules_close(&again);
    return ACCEPTED;
}

static int sentence_make(Case *c)
{
    for (int i = 0; i < SENTENCE_FILES; i++) case_text(&c[0], sentence_files[i].part, sentence_files[i].seed);
    return 1;
}

// ---- log.jsonl -----------------------------------------------------------------------------------------------------

static void log_plot(void)
{
    char *svg;
    int64_t n;
    GxError e = GX_ZERO;
    if (gx_plot_loss("log.jsonl", "loss.svg", "a title", NULL, &e) != GX_OK) {
        refused(&e, "log.jsonl");
        return;
    }
    EXPECT(gx_file_read("loss.svg", INT64_C(64) << 20, &svg, &n, &e) == GX_OK, "%s", e.message);
    EXPECT(is_readable(svg) && !strstr(svg, "nan") && !strstr(svg, "inf"), "the picture cannot be drawn: %.2000s", svg);
    free(svg);
}

// Opened behind step `step`, its lines; what comes behind them goes apart. free() them.
static char *log_go_on(int64_t step, int64_t *n, GxError *e)
{
    GxRunLog log = GX_ZERO;
    int64_t apart = -1;
    char *text = NULL;
    if (gx_log_open(&log, "log.jsonl", step, (int)(step % 2), "apart/log.jsonl", &apart, e) != GX_OK) return NULL;
    EXPECT(apart >= 0, "%ld lines were set apart", (long)apart);
    EXPECT(gx_log_close(&log, e) == GX_OK && gx_file_read("log.jsonl", 2 * BYTES_MOST, &text, n, e) == GX_OK, "%s",
           e->message);
    return text;
}

static int log_run(const Case *c)
{
    const int64_t step = integer_of(c, "step.numbers", 0);
    GxError e = GX_ZERO;
    int64_t n, n_again;
    put_part(c, ".", "log.jsonl");
    unlink("apart/log.jsonl");
    log_plot();
    char *text = log_go_on(step, &n, &e);
    if (!text) return refused(&e, "log.jsonl");
    for (const char *at = text; *at;) { // what is kept is lines of steps up to this one
        GxJson *json = NULL;
        const size_t length = strcspn(at, "\n");
        EXPECT(gx_json_parse(&json, at, (int64_t)length, "log.jsonl", &e) == GX_OK, "%s", e.message);
        EXPECT(at[length] == '\n' && gx_json_int(gx_json_get(json, "step")) <= step, "kept: %.*s", (int)length, at);
        gx_json_free(json);
        at += length + 1;
    }
    char *again = log_go_on(step, &n_again, &e);
    EXPECT(again, "the second time: %s", e.message);
    EXPECT(n == n_again && !memcmp(text, again, (size_t)n), "the second time, %ld bytes of %ld are kept", (long)n_again,
           (long)n);
    free(text);
    free(again);
    return n > 0;
}

static int log_make(Case *c)
{
    take_part(&c[0], "corpus/log.jsonl", "log.jsonl");
    case_text(&c[0], "step.numbers", "2");
    case_text(&c[1], "log.jsonl",
              "{\"step\": 1, \"loss\": 5.5}\n{\"step\": 2, \"loss\": 5.25}\n{\"step\": 2, \"eval_loss\": 5.0}\n");
    case_text(&c[1], "step.numbers", "1");
    return 2;
}

// ---- training_args.json --------------------------------------------------------------------------------------------

static int args_run(const Case *c)
{
    static Options x;
    GxResume r = GX_ZERO;
    GxTrainState now = GX_ZERO;
    GxError e = GX_ZERO;
    put_part(c, ".", "training_args.json");
    options_open(&x, "");
    snprintf(r.args_path, sizeof r.args_path, "training_args.json");
    snprintf(r.folder, sizeof r.folder, ".");
    GxStatus status = gx_json_read(&r.args, r.args_path, 1 << 20, &e);
    if (status == GX_OK) status = gx_resume_take_options(&r, &gx_causal_lm, &x.config, &x.o, &e);
    options_expect_allowed(&x, "as taken from training_args.json");
    if (status == GX_OK) {
        r.state.world = 1, r.state.seed = x.o.seed, r.state.seq_len = x.o.seq_len;
        memcpy(r.state.optimizer, x.o.optimizer, sizeof r.state.optimizer);
        gx_resume_keep_layout(&r, &x.o, &x.config, "", 1);
        status = gx_resume_check(&r, &x.o, &e);
        if (status == GX_OK) status = gx_resume_check_steps(&r, &x.o, &e);
        char *changes = gx_resume_changes(&r, &x.config, &now, &e);
        const GxLogger log = {hear_log, NULL};
        gx_log(&log, GX_LOG_WARNING, "other options: %s", changes ? changes : "");
        free(changes);
        if (status == GX_OK) status = options_resolve(&x, 1, &e);
    }
    gx_resume_close(&r);
    if (status != GX_OK) expect_message(&e, NULL);
    return status == GX_OK;
}
static int args_make(Case *c) { return one_file(c, CORPUS "/training_args.json", "training_args.json"); }

// ---- what ranks exchange -------------------------------------------------------------------------------------------

static int agree_run(const Case *c)
{
    const char *first = case_part(c, "first.json")->p, *mine = case_part(c, "mine.json")->p;
    GxError e = GX_ZERO, self = GX_ZERO;
    const int same = gx_options_compare(first, mine, 1, &e) == GX_OK;
    if (gx_options_compare(mine, mine, 1, &self) != GX_OK) refused(&self, "options");
    const char *const names[] = {"rank", "options", NULL};
    if (!same) expect_message(&e, names);
    return same;
}

static int agree_make(Case *c)
{
    static Options x;
    GxError e = GX_ZERO;
    char *text;
    int64_t n;
    options_open(&x, "");
    gx_options_shared(&x.config, "galaxy, a program", gx_causal_lm.options.own, &text, &n, &e);
    for (int i = 0; i < 2; i++) {
        case_text(&c[i], "first.json", text);
        case_text(&c[i], "mine.json", i ? "{\"the program\":\"another\"}" : text);
    }
    free(text);
    return 2;
}

// ---- a checkpoint --------------------------------------------------------------------------------------------------

static int train_on(GxContext *g, int argc, char **argv)
{
    static const GxReporter silent = {hear_report, NULL, NULL};
    GxTrainer t = GX_ZERO;
    g->log.write = hear_log;
    g->reporter = &silent;
    gx_trainer_open(&t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_trainer_report(&t);
    }
    if (gx_failed(g)) expect_message(&g->error, NULL);
    return gx_trainer_close(&t);
}

static const char *const tiny_run[] = {"fuzz",
                                       "--train_data",
                                       "text.source",
                                       "--seq_len",
                                       "8",
                                       "--threads",
                                       "1",
                                       "--sample_tokens",
                                       "0",
                                       "--hidden_size",
                                       "8",
                                       "--intermediate_size",
                                       "8",
                                       "--num_hidden_layers",
                                       "1",
                                       "--num_attention_heads",
                                       "2",
                                       "--num_key_value_heads",
                                       "1",
                                       "--micro_batch_size",
                                       "2",
                                       "--logging_steps",
                                       "1",
                                       "--max_eval_samples",
                                       "2",
                                       "--validation_fraction",
                                       "0.05",
                                       "--timeout",
                                       "5"};
enum { TINY_WORDS = sizeof tiny_run / sizeof *tiny_run };

static int train_tiny(const char *output, const char *resume, const char *steps, const char *ranks)
{
    const char *argv[TINY_WORDS + 12];
    int argc = TINY_WORDS;
    memcpy(argv, tiny_run, sizeof tiny_run);
    argv[argc++] = "--output_dir", argv[argc++] = output;
    argv[argc++] = "--max_steps", argv[argc++] = steps;
    argv[argc++] = "--ranks", argv[argc++] = ranks;
    if (resume) argv[argc++] = "--resume", argv[argc++] = resume;
    argv[argc] = NULL;
    return gx_launch(train_on, argc, (char **)argv);
}

// The tiny run that all cases are made from: two steps, saved.
static int make_corpus(void)
{
    Bytes text = GX_ZERO;
    GxError e = GX_ZERO;
    char folder[GX_PATH];
    for (int i = 0; i < 60; i++) bytes_text(&text, "The old gray cat slowly sees a tall tree near the river.\n");
    put("text.source", text.p, text.n);
    free(text.p);
    if (train_tiny("corpus", NULL, "2", "1") != 0) return 0;
    Case c = GX_ZERO;
    take_part(&c, CORPUS "/config.json", "config.json");
    take_part(&c, CORPUS "/trainer_state.json", "trainer_state.json");
    if (gx_publish_begin("published.source", folder, &e) != GX_OK) return 0;
    for (int i = 0; i < c.n; i++) put_part(&c, folder, c.part[i].name);
    case_free(&c);
    return gx_publish_finish("published.source", &e) == GX_OK;
}

// Published anew, so that the manifest holds whatever the files are; then a run goes on from it for a step.
static int checkpoint_run(const Case *c)
{
    char temporary[GX_PATH];
    GxError e = GX_ZERO;
    GxLlamaConfig m;
    if (gx_path_is_folder("on")) gx_folder_remove("on", &e);
    gx_folder_make("on", &e);
    EXPECT(gx_publish_begin("on/checkpoint-2", temporary, &e) == GX_OK, "%s", e.message);
    for (int i = 0; i < c->n; i++)
        if (!ends_with(c->part[i].name, ".numbers")) put_part(c, temporary, c->part[i].name);
    EXPECT(gx_publish_finish("on/checkpoint-2", &e) == GX_OK, "%s", e.message);
    if (gx_llama_config_read(&m, "on/checkpoint-2/config.json", &gx_silent, &e) == GX_OK &&
        (m.vocab_size * m.hidden_size > 1 << 18 || m.intermediate_size > 4096 || m.num_hidden_layers > 16 ||
         m.head_dim * m.num_attention_heads > 4096))
        return REFUSED; // sound, and large
    const int status = train_tiny("on", "on/checkpoint-2", "3", integer_of(c, "ranks.numbers", 0) == 2 ? "2" : "1");
    if (status == 0) {
        GxError torn = GX_ZERO; // there is none, if it said to be further already
        EXPECT(!gx_path_is_folder("on/checkpoint-3") || gx_folder_verify("on/checkpoint-3", 1, &torn) == GX_OK, "%s",
               torn.message);
    }
    return status == 0;
}

static int checkpoint_make(Case *c)
{
    static const char *const files[] = {"config.json",        "model.safetensors",  "optimizer.safetensors",
                                        "trainer_state.json", "training_args.json", "tokenizer.json"};
    for (int i = 0; i < 2; i++) {
        for (int f = 0; f < 6; f++) {
            char path[GX_PATH];
            snprintf(path, sizeof path, CORPUS "/%s", files[f]);
            take_part(&c[i], path, files[f]);
        }
        case_text(&c[i], "ranks.numbers", i ? "2" : "1");
    }
    return 2;
}

// ---- all of them ---------------------------------------------------------------------------------------------------

enum { SEEDS_MOST = 16 };
typedef struct {
    const char *name, *what;
    int (*make)(Case *seeds);  // returns how many
    int (*run)(const Case *c); // ACCEPTED or REFUSED; a finding does not return
} Target;
static const Target targets[] = {
    {"options", "command lines and --config, resolved, given back, planned", options_make, options_run},
    {"model", "config.json, and a plan of it", model_make, model_run},
    {"state", "trainer_state.json and run.json", state_make, state_run},
    {"safetensors", "files and shards: opened, every tensor read, written anew", safetensors_make, safetensors_run},
    {"gguf", "GGUF files: opened, every key and tensor read, written anew", gguf_make, gguf_run},
    {"gguf_model", "GGUF files of models: into folders, and into files again", gguf_model_make, gguf_model_run},
    {"text", "texts as samples", text_make, text_run},
    {"tables", "CSV and TSV, as records and read again", table_make, table_run},
    {"corpus", "JSON lines and files of tokens as samples", corpus_make, corpus_run},
    {"chats", "JSON lines of conversations and instructions as samples", chat_make, chat_run},
    {"template", "chat templates and their variables", template_make, template_run},
    {"blend", "lists of data and their weights", blend_make, blend_run},
    {"tokenizer", "tokenizer.json", tokenizer_make, tokenizer_run},
    {"wordpiece", "WordPiece's files, and text", wordpiece_make, wordpiece_run},
    {"bpe", "tokenizer.json of BPE, and text", bpe_make, bpe_run},
    {"unigram", "tokenizer.json of Unigram, its charsmap, and text", unigram_make, unigram_run},
    {"train", "texts as vocabularies", train_make, train_run},
    {"train_bpe", "texts as vocabularies of BPE", train_bpe_make, train_bpe_run},
    {"folder", "manifest.json of a published folder", folder_make, folder_run},
    {"sentence", "files of sentence-transformers: read, and written anew", sentence_make, sentence_run},
    {"log", "log.jsonl: gone on with, and drawn", log_make, log_run},
    {"args", "training_args.json of a run that goes on", args_make, args_run},
    {"agree", "what ranks exchange at the start", agree_make, agree_run},
    {"checkpoint", "all files of a checkpoint, resumed and trained on", checkpoint_make, checkpoint_run},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static void learn_words(void)
{
    static Options x;
    static const char *const more[] = {"__metadata__",
                                       "\\u0000",
                                       "\\udbff\\udfff",
                                       "9223372036854775808",
                                       "metadata",
                                       "weight_map",
                                       "dtype",
                                       "shape",
                                       "data_offsets",
                                       "F32",
                                       "BF16",
                                       "I64",
                                       "F8_E4M3",
                                       "model_type",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "rope_type",
                                       "default",
                                       "mistral",
                                       "qwen3",
                                       "smollm3",
                                       "phi3",
                                       "gemma3_text",
                                       "query_pre_attn_scalar",
                                       "rope_local_base_freq",
                                       "sliding_window_pattern",
                                       "yarn",
                                       "no_rope_layers",
                                       "factor",
                                       "sliding_window",
                                       "use_sliding_window",
                                       "max_window_layers",
                                       "layer_types",
                                       "sliding_attention",
                                       "full_attention",
                                       "hidden_act",
                                       "silu",
                                       "files",
                                       "name",
                                       "bytes",
                                       "fnv1a64",
                                       "step",
                                       "loss",
                                       "eval_loss",
                                       "run",
                                       "adamw",
                                       "the program",
                                       "config",
                                       "help",
                                       "auto",
                                       "galaxy",
                                       "vocab",
                                       "merges",
                                       "model",
                                       "_comment",
                                       "partial_rotary_factor",
                                       "tp",
                                       "sp",
                                       "none",
                                       "galaxy2",
                                       "serial",
                                       "bf16",
                                       "sgd",
                                       "layer",
                                       "wsd",
                                       "cpu",
                                       "2",
                                       "4",
                                       "8",
                                       "64",
                                       "1,1",
                                       "3,1",
                                       "global_step",
                                       "applied_steps",
                                       "samples_seen",
                                       "text_hash",
                                       "tokenizer",
                                       "WordPiece",
                                       "BPE",
                                       "Unigram",
                                       "Precompiled",
                                       "WhitespaceSplit",
                                       "unk_id",
                                       "ByteLevel",
                                       "Metaspace",
                                       "Split",
                                       "Regex",
                                       "Replace",
                                       "NFC",
                                       "Sequence",
                                       "BertNormalizer",
                                       "added_tokens",
                                       "[SEP]",
                                       "##a",
                                       "special",
                                       "normalized",
                                       "attention_bias"};
    options_open(&x, "");
    for (int g = 0; g < x.config.groups; g++)
        for (int i = 0; i < x.config.group[g].n; i++) {
            know(x.config.group[g].option[i].name);
            if (options.n < 200) options.field[options.n++] = &x.config.group[g].option[i];
        }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) know(more[i]);
}
#endif
