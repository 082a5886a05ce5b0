// test_report.cu: what a run is told and what it shows: how long it is, in epochs or steps; what other trainers call an
// option; event files for TensorBoard; how far a validation is; samples of the data. See test/program.h.
#include "test/program.h"
#include "galaxy.h"
#include <sys/resource.h>

// ---- epochs ---------------------------------------------------------------------------------------------------------

typedef struct {
    GxConfig c;
    GxTrainOptions o;
    GxError err;
} Told;
static Told told;

// The options of this line of words, perhaps with a file before it.
static GxStatus tell(const char *line)
{
    static char words[400];
    char *argv[40] = {(char *)"program"};
    memset(&told, 0, sizeof told);
    snprintf(words, sizeof words, "%s", line);
    const int argc = 1 + cut_words(words, argv + 1, 39);
    gx_config_open(&told.c);
    GX_TRY(gx_options_add(&told.c, &told.o, NULL, NULL, "llama", &told.err));
    GX_TRY(gx_config_read_args(&told.c, argc, argv, &told.err));
    told.o.global_batch_size = 10;
    return gx_epochs_choose(&told.o, &told.c, &told.err);
}

static char heard[1000];
static void hear(void *user, GxLogLevel level, const char *message)
{
    (void)user, (void)level;
    snprintf(heard, sizeof heard, "%s", message);
}
static const GxLogger logger = {hear, NULL};

TEST(epochs_are_steps_rounded_up_and_a_ratio_of_them_is_the_warm_up)
{
    static const struct {
        const char *line;
        int64_t samples, step, seen, steps, warmup;
    } list[] = {
        {"--num_train_epochs 3", 100, 0, 0, 30, 6},
        {"--num_train_epochs 0.5", 101, 0, 0, 6, 1},
        {"--num_train_epochs 1.1", 1000, 0, 0, 110, 20},
        {"--num_train_epochs 0.001", 10, 0, 0, 1, 0},
        {"--num_train_epochs 3 --warmup_ratio 0.1", 101, 0, 0, 31, 4},
        {"--max_steps 7", 100, 0, 0, 7, 1},
        {"--max_steps 7 --warmup_ratio 1", 100, 0, 0, 7, 7},
        {"--num_train_epochs 2 --warmup_steps 3", 100, 0, 0, 20, 3},
        {"--num_train_epochs 0 --max_steps 9", 100, 0, 0, 9, 1},
        {"--num_train_epochs 3", 100, 12, 60, 36, 7}, // the first 12 steps were of 5 samples
        {"--num_train_epochs 1", 100, 10, 100, 10, 2},
        {"--num_train_epochs 1", 95, 10, 100, 10, 2},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxEpochsBegun begun = {list[i].step, list[i].seen};
        CHECK(tell(list[i].line) == GX_OK &&
                  gx_epochs_resolve(&told.o, &told.c, list[i].samples, begun, NULL, &told.err) == GX_OK,
              "%s: %s", list[i].line, told.err.message);
        CHECK(told.o.max_steps == list[i].steps && told.o.warmup_steps == list[i].warmup,
              "%s: %ld steps, %ld of them %s", list[i].line, (long)told.o.max_steps, (long)told.o.warmup_steps,
              "of warm-up");
    }
    const GxEpochsBegun none = {0, 0};
    CHECK(tell("--num_train_epochs 3") == GX_OK &&
              gx_epochs_resolve(&told.o, &told.c, 0, none, NULL, &told.err) == GX_ERR_UNSUPPORTED &&
              strstr(told.err.message, "use --max_steps"),
          "a task without epochs: %s", told.err.message);
    CHECK(tell("--num_train_epochs 1000000") == GX_OK &&
              gx_epochs_resolve(&told.o, &told.c, INT64_MAX / 2, none, NULL, &told.err) == GX_ERR_ARGUMENT,
          "too many steps: %s", told.err.message);
}

TEST(of_steps_and_epochs_the_flag_counts_both_are_an_error_and_a_file_with_both_goes_by_epochs)
{
    const GxEpochsBegun none = {0, 0};
    CHECK(tell("--num_train_epochs 3 --max_steps 7") == GX_ERR_ARGUMENT &&
              strstr(told.err.message, "--max_steps and --num_train_epochs are both given"),
          "%s", told.err.message);
    CHECK(tell("--warmup_steps 3 --warmup_ratio 0.5") == GX_ERR_ARGUMENT &&
              strstr(told.err.message, "--warmup_steps and --warmup_ratio are both given"),
          "%s", told.err.message);
    shell(
        "echo '{\"max_steps\": 8, \"warmup_steps\": 2}' > steps.json; echo '{\"num_train_epochs\": 3}' > epochs.json");
    shell("echo '{\"max_steps\": 8, \"num_train_epochs\": 3, \"warmup_steps\": 2, \"warmup_ratio\": 0.5}' > both.json");
    shell("echo '{\"max_steps\": 30, \"num_train_epochs\": 3}' > same.json");
    static const struct {
        const char *line;
        int64_t steps, warmup;
        const char *said; // "": nothing
    } list[] = {
        {"--config steps.json --num_train_epochs 2", 20, 2, ""},
        {"--config epochs.json --max_steps 7", 7, 1, ""},
        {"--config epochs.json --num_train_epochs 1", 10, 2, ""},
        {"--config both.json --max_steps 9 --warmup_steps 4", 9, 4, ""},
        {"--config both.json", 30, 15, "both.json has \"warmup_steps\": 2 and \"warmup_ratio\": 0.5, which is 15"},
        {"--config both.json --warmup_steps 1", 30, 1, "\"max_steps\": 8 and \"num_train_epochs\": 3, which is 30"},
        {"--config same.json", 30, 6, ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        heard[0] = 0;
        CHECK(tell(list[i].line) == GX_OK &&
                  gx_epochs_resolve(&told.o, &told.c, 100, none, &logger, &told.err) == GX_OK,
              "%s: %s", list[i].line, told.err.message);
        CHECK(told.o.max_steps == list[i].steps && told.o.warmup_steps == list[i].warmup,
              "%s: %ld steps, %ld of warm-up", list[i].line, (long)told.o.max_steps, (long)told.o.warmup_steps);
        CHECK(list[i].said[0] ? strstr(heard, list[i].said) != NULL : !heard[0], "%s: it said %s", list[i].line, heard);
    }
}

// 60000 bytes less 5% are 1780 windows of 32 tokens, of which 5 steps are 0.0225.
TEST(a_run_of_epochs_says_its_steps_goes_on_with_them_and_can_be_made_longer)
{
    CHECK_RAN(run("--output_dir ep --num_train_epochs 0.02 --warmup_ratio 0.5 --save_steps 2"));
    CHECK(strstr(out(), "0.02 epochs = 5 steps of 8 samples"), "%s", out());
    CHECK(exists("ep/checkpoint-5"), "it ended elsewhere: %s", out());
    char *log = read_text("ep/log.jsonl");
    CHECK(strstr(log, "\"lr\": 0.00066666666") && strstr(log, "{\"step\": 5, \"loss\": ") &&
              strstr(log, "\"epoch\": 0.0225,"),
          "warm-up of 3 steps, epochs: %s", log);
    free(log);
    start("--resume ep/checkpoint-4 --output_dir ep");
    CHECK_RAN(finish());
    CHECK(strstr(out(), "0.02 epochs = 5 steps") && !strstr(out(), "changed since then"), "%s", out());
    CHECK_RAN(run("--resume auto --output_dir ep --num_train_epochs 0.03 --ranks 2 --global_batch_size 16"));
    // 40 samples seen of 1780 * 0.03 = 53.4; one step of 16 more
    CHECK(strstr(out(), "0.03 epochs = 6 steps of 16 samples") && strstr(out(), "max_steps 5 -> 6"), "%s", out());
    CHECK_RAN(run("--resume auto --output_dir ep --max_steps 7 --ranks 2"));
    CHECK(strstr(out(), "num_train_epochs 0.03 -> 0.0") && strstr(out(), "\n7 steps of 16 samples"), "%s", out());
    CHECK(run("--resume auto --output_dir ep --num_train_epochs 0.01 --ranks 2") != 0 &&
              strstr(err(), "is of step 7, and max_steps is") && strstr(err(), "use a larger --num_train_epochs"),
          "%s", err());
    CHECK_RAN(run("--num_train_epochs 2 --dry_run"));
    CHECK(strstr(out(), "\n2 epochs of 8 samples"), "%s", out());
}

TEST(an_epoch_of_several_sources_is_as_many_samples_as_they_have_together_whatever_their_weights)
{
    shell("head -c 3000 text.txt > few.txt; head -c 9000 text.txt | tail -c 6000 > more.txt");
    // 93 - 1 and 187 - 1 windows of 32; of 278 samples of an epoch (8 in a step) 35 steps
    CHECK_RAN(
        run("--output_dir blend --train_data few.txt,more.txt --train_data_weights 0.5,0.5 --validation_fraction 0 "
            "--num_train_epochs 1"));
    CHECK(strstr(out(), "1 epoch = 35 steps of 8 samples"), "%s", out());
    CHECK_RAN(run("--output_dir blend2 --train_data few.txt,more.txt --validation_fraction 0 --num_train_epochs 1"));
    CHECK(strstr(out(), "1 epoch = 35 steps of 8 samples") && strstr(out(), "which the run sees 1.0"), "%s", out());
}

// An epoch of columns with a text each, or a pair of sentences, has 40 samples; the last step goes
// beyond it. Packed, it has fewer.
TEST(each_task_knows_how_many_samples_an_epoch_has)
{
    static const struct {
        const char *flags;
        int samples; // 0: fewer than 40
    } list[] = {
        {"--task classification --train_data labels40.tsv --pack_texts false", 40},
        {"--task classification --train_data labels40.tsv", 0},
        {"--task embedding --train_data pairs40.tsv --pack_texts false", 40},
        {"--task embedding --train_data pairs40.tsv", 0},
        {"--task masked_lm --train_data documents40.txt --packing false", 40},
        {"--task masked_lm --train_data documents40.txt", 0},
        {"--task masked_lm --train_data documents40.txt --nsp true", 40},
    };
    char line[3000];
    FILE *labels = fopen("labels40.tsv", "w"), *pairs = fopen("pairs40.tsv", "w"),
         *documents = fopen("documents40.txt", "w");
    fprintf(labels, "text\tlabel\n"), fprintf(pairs, "anchor\tpositive\n");
    for (int k = 0; k < 40; k++) {
        fprintf(labels, "the earth %d and so on\t%d\n", k, k % 2);
        fprintf(pairs, "the earth %d\tthe heaven %d\n", k, k);
        fprintf(documents, "and the earth %d was without form.\n\n", k);
    }
    fclose(labels), fclose(pairs), fclose(documents);
    if (!use_program("train_bert")) return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(line, sizeof line,
                 "%s --threads 1 --hidden_size 32 --intermediate_size 64 --num_hidden_layers 1 --num_attention_heads 2 "
                 "--seq_len 64 --validation_fraction 0 --num_train_epochs 1 --micro_batch_size 3 --tokenizer "
                 "%s/data/ref/wordpiece --overwrite_output_dir --output_dir task%d %s",
                 program, repository, (int)i, list[i].flags);
        start_line(line, 0);
        CHECK_RAN(finish());
        const int steps = (int)number_behind(out(), "1 epoch = ");
        CHECK(list[i].samples ? steps == (list[i].samples + 2) / 3 : steps > 0 && steps < 14, "%s: %d steps: %s",
              list[i].flags, steps, out());
    }
    use_program("train_llama");
}

// ---- what others call it --------------------------------------------------------------------------------------------

static const GxFamily *const families[] = {&gx_llama, &gx_bert, &gx_bart, &gx_t5, &gx_gpt2};

// The field of this name in any program of any task. NULL: there is none.
static const GxField *find_option(const char *name)
{
    static GxConfig c;
    static GxTrainOptions o;
    static GxLlamaConfig llama; // larger than either family's
    static char self[1 << 20], model[1 << 16];
    GxError e = GX_ZERO;
    (void)llama;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const GxTask *const *t = families[f]->tasks; *t; t++) {
            if ((*t)->options.size > sizeof self || families[f]->config_size > sizeof model) continue;
            gx_config_open(&c);
            if (gx_config_add(&c, "task", (*t)->options.fields, (*t)->options.n_fields, self, &e) != GX_OK ||
                gx_options_add(&c, &o, NULL, NULL, families[f]->name, &e) != GX_OK ||
                gx_config_add(&c, "model", families[f]->fields, families[f]->n_fields, model, &e) != GX_OK)
                continue;
            for (int g = 0; g < c.groups; g++) {
                const GxField *found = gx_field_find(c.group[g].option, c.group[g].n, name);
                if (found) return found;
            }
        }
    return NULL;
}

static int is_reserved(const char *name)
{
    return !strcmp(name, "task") || !strcmp(name, "config") || !strcmp(name, "help");
}

// Every --name in this text is an option.
static void check_names(const char *of, const char *text)
{
    char name[80];
    for (const char *at = text ? strstr(text, "--") : NULL; at; at = strstr(at + 2, "--")) {
        snprintf(name, sizeof name, "%.*s", (int)strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789_"), at + 2);
        CHECK(is_reserved(name) || !strcmp(name, "local") || find_option(name), "%s: there is no --%s", of, name);
    }
}

TEST(what_is_said_of_other_names_are_options_that_exist_with_values_that_they_have)
{
    for (int i = 0; i < gx_other_names_n; i++) {
        const GxConfigHint *h = &gx_other_names[i];
        char option[80];
        GxFieldValue *v = (GxFieldValue *)calloc(1, sizeof *v);
        snprintf(option, sizeof option, "%.*s", (int)strcspn(h->use, " "), h->use);
        const GxField *f = option[0] ? find_option(option) : NULL;
        const char *value = strchr(h->use, ' ');
        CHECK(!option[0] || f || is_reserved(option), "%s: there is no option %s", h->name, option);
        CHECK(!value || (f && gx_field_parse(f, value + 1, v) && gx_field_allows(f, v)), "%s: %s", h->name, h->use);
        CHECK(h->use[0] || h->why, "%s: neither an option nor a reason", h->name);
        check_names(h->name, h->why);
        for (int k = 0; k < i; k++) CHECK(strcmp(gx_other_names[k].name, h->name), "%s stands twice", h->name);
        free(v);
    }
}

TEST(an_option_of_another_trainer_is_refused_with_its_name_here)
{
    static const Refusal cases[] = {
        {"--output_dir x --per_device_train_batch_size 4",
         {"there is no option --per_device_train_batch_size; use --micro_batch_size"}},
        {"--output_dir x --fp16", {"--fp16; use --precision bf16: fp16 is not supported for computing"}},
        {"--output_dir x --dataloader_num_workers 3",
         {"no option --dataloader_num_workers: data are mapped", "leave it out"}},
        {"--output_dir x --beta 0.1", {"no option --beta; use --dpo_beta of --task dpo"}},
        {"--output_dir x --hub_token y", {"no option --hub_token: nothing is sent"}},
        {"--output_dir x --packing", {"no option --packing: texts and conversations are always packed"}},
        {"--output_dir x --learning_rat 1", {"did you mean --learning_rate?"}},
    };
    CHECK_REFUSALS(cases);
    shell("echo '{\"gradient_checkpointing\": true}' > hf.json");
    const Refusal of_file = {"--output_dir x --config hf.json",
                             {"hf.json: there is no option gradient_checkpointing; use recompute layer"}};
    check_refusals(&of_file, 1);
}

// ---- event files ----------------------------------------------------------------------------------------------------

TEST(crc32c_is_that_of_rfc_3720)
{
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    for (int i = 0; i < 32; i++) ones[i] = 0xFF, up[i] = (unsigned char)i, down[i] = (unsigned char)(31 - i);
    CHECK(gx_crc32c(zeros, 32) == 0x8A9136AA && gx_crc32c(ones, 32) == 0x62A8AB43 && gx_crc32c(up, 32) == 0x46DD794E &&
              gx_crc32c(down, 32) == 0x113FDB5C && gx_crc32c("123456789", 9) == 0xE3069283 && gx_crc32c("", 0) == 0,
          "sums differ");
    CHECK(gx_crc32c_mask(0) == 0xA282EAD8 &&
              gx_crc32c_mask(0xE3069283) == ((0xE3069283u >> 15 | 0xE3069283u << 17) + 0xA282EAD8u),
          "the mask");
}

// A reader of its own: by the formats alone.
typedef struct {
    int64_t step;
    int start;        // SessionLog START
    char version[20]; // of file_version
    int n;            // scalars
    char tag[30][60], text[4000];
    float value[30];
} Event;

static uint64_t read_varint(const unsigned char **p)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char byte = *(*p)++;
        x |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return x;
    }
}

static uint64_t read_little(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

typedef struct {
    int field;
    uint64_t number;           // of a varint, or of fixed bytes
    const unsigned char *data; // of bytes
    int64_t n;
} Field;
static int next_field(const unsigned char **p, const unsigned char *end, Field *f)
{
    if (*p >= end) return 0;
    const uint64_t key = read_varint(p);
    memset(f, 0, sizeof *f);
    f->field = (int)(key >> 3);
    if ((key & 7) == 0) f->number = read_varint(p);
    if ((key & 7) == 1) f->number = read_little(*p, 8), *p += 8;
    if ((key & 7) == 5) f->number = read_little(*p, 4), *p += 4;
    if ((key & 7) == 2) f->n = (int64_t)read_varint(p), f->data = *p, *p += f->n;
    return CHECK(*p <= end, "field %d goes beyond its message", f->field);
}

static void read_value(Event *e, const unsigned char *p, const unsigned char *end)
{
    Field f, inner;
    int is_scalar = 0, is_text = 0;
    while (next_field(&p, end, &f)) {
        if (f.field == 1) snprintf(e->tag[e->n], 60, "%.*s", (int)f.n, (const char *)f.data);
        if (f.field == 2) {
            const uint32_t bits = (uint32_t)f.number;
            memcpy(&e->value[e->n], &bits, 4), is_scalar = 1;
        }
        const unsigned char *q = f.data;
        if (f.field == 8)
            while (next_field(&q, f.data + f.n, &inner)) {
                CHECK(inner.field != 1 || inner.number == 7, "a tensor of another type: %d", (int)inner.number);
                if (inner.field == 8) snprintf(e->text, sizeof e->text, "%.*s", (int)inner.n, (const char *)inner.data);
            }
        if (f.field == 9) is_text = f.n == 8 && !memcmp(f.data, "\x0A\x06\x0A\x04text", 8);
    }
    CHECK(is_scalar || is_text, "a value that is neither scalar nor text: %s", e->tag[e->n]);
    e->n++;
}

static void read_event(Event *e, const unsigned char *p, const unsigned char *end)
{
    Field f, inner;
    memset(e, 0, sizeof *e);
    while (next_field(&p, end, &f)) {
        const unsigned char *q = f.data;
        double time;
        memcpy(&time, &f.number, 8);
        if (f.field == 1) CHECK(time > 1.6e9 && time < 1e10, "a time of %g", time);
        if (f.field == 2) e->step = (int64_t)f.number;
        if (f.field == 3) snprintf(e->version, sizeof e->version, "%.*s", (int)f.n, (const char *)f.data);
        while (f.field == 5 && next_field(&q, f.data + f.n, &inner)) read_value(e, inner.data, inner.data + inner.n);
        while (f.field == 7 && next_field(&q, f.data + f.n, &inner)) e->start = inner.field == 1 && inner.number == 1;
    }
}

// Reads the records of a file; *torn: bytes behind the last whole one.
static int read_events(const char *path, Event *event, int most, int64_t *torn)
{
    char *text = NULL;
    int64_t bytes = 0;
    GxError e = GX_ZERO;
    int n = 0;
    CHECK(gx_file_read(path, 1 << 24, &text, &bytes, &e) == GX_OK, "%s", e.message);
    const unsigned char *p = (const unsigned char *)text, *end = p + bytes;
    while (end - p >= 16 && n < most) {
        const int64_t length = (int64_t)read_little(p, 8);
        if (length > end - p - 16) break;
        CHECK(read_little(p + 8, 4) == gx_crc32c_mask(gx_crc32c(p, 8)) &&
                  read_little(p + 12 + length, 4) == gx_crc32c_mask(gx_crc32c(p + 12, length)),
              "%s: record %d has another sum", path, n);
        read_event(&event[n++], p + 12, p + 12 + length);
        p += 16 + length;
    }
    *torn = end - p;
    free(text);
    return n;
}
static Event event[60];

TEST(an_event_file_reads_back_as_it_was_written)
{
    GxEventFile f = GX_ZERO, second = GX_ZERO;
    GxError e = GX_ZERO;
    int64_t torn = 0;
    const GxEventScalar scalars[] = {{"train/loss", 1.5}, {"train/grad_norm", NAN}, {"train/learning_rate", 1e-3}};
    CHECK(gx_event_scalars(&f, 1, scalars, 3, &e) == GX_OK, "of no file: %s", e.message);
    CHECK(gx_event_file_open(&f, "events/runs", &e) == GX_OK && gx_event_start(&f, 1, &e) == GX_OK &&
              gx_event_scalars(&f, 300, scalars, 3, &e) == GX_OK &&
              gx_event_text(&f, 0, "args/text_summary", "some text", 9, &e) == GX_OK &&
              gx_event_scalars(&f, (int64_t)1 << 40, scalars, 1, &e) == GX_OK,
          "%s", e.message);
    CHECK(gx_event_file_open(&second, "events/runs", &e) == GX_OK && gx_event_start(&second, 301, &e) == GX_OK, "%s",
          e.message);
    gx_event_file_close(&second);
    CHECK(read_events(f.path, event, 60, &torn) == 5 && torn == 0, "%ld bytes behind the last record", (long)torn);
    CHECK(!strcmp(event[0].version, "brain.Event:2") && event[0].step == 0, "%s", event[0].version);
    CHECK(event[1].start && event[1].step == 1 && event[1].n == 0, "no start");
    CHECK(event[2].n == 3 && event[2].step == 300 && !strcmp(event[2].tag[0], "train/loss") &&
              event[2].value[0] == 1.5f && isnan(event[2].value[1]) &&
              !strcmp(event[2].tag[2], "train/learning_rate") && event[2].value[2] == 1e-3f,
          "%d scalars of step %ld", event[2].n, (long)event[2].step);
    CHECK(event[3].n == 1 && !strcmp(event[3].tag[0], "args/text_summary") && !strcmp(event[3].text, "some text"),
          "%s: %s", event[3].tag[0], event[3].text);
    CHECK(event[4].step == (int64_t)1 << 40 && event[4].n == 1, "step %ld", (long)event[4].step);
    // the second one stands beside it, and behind it in order
    CHECK(strcmp(second.path, f.path) > 0 && strrchr(second.path, '/') - second.path == strrchr(f.path, '/') - f.path &&
              !strncmp(second.path, f.path, (size_t)(strrchr(f.path, '/') - f.path)),
          "%s and %s", f.path, second.path);
    CHECK(read_events(second.path, event, 60, &torn) == 2 && event[1].start && event[1].step == 301, "the second");
    shell("touch events/runs/mine; for d in events/runs/*_*; do touch $d/events.out.tfevents.1.other; done; mkdir "
          "events/runs/other; touch "
          "events/runs/other/x");
    gx_event_file_close(&f);
    CHECK(gx_event_files_remove("events/runs", &e) == GX_OK && !exists(f.path) && !exists(second.path), "%s",
          e.message);
    CHECK(
        shell("test -e events/runs/mine && test -e events/runs/other/x && ls events/runs/*/events.out.tfevents.1.other "
              ">/dev/null && test $(find events -type f | wc -l) = 3") == 0,
        "other files are gone");
}

TEST(a_record_that_the_disk_does_not_take_is_taken_back_and_the_next_one_is_whole)
{
    GxEventFile f = GX_ZERO;
    GxError e = GX_ZERO;
    int64_t torn = 0;
    struct rlimit before, small;
    const GxEventScalar loss = {"train/loss", 1.5};
    CHECK(gx_event_file_open(&f, "full/runs", &e) == GX_OK && gx_event_scalars(&f, 1, &loss, 1, &e) == GX_OK, "%s",
          e.message);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before), small = before, small.rlim_cur = (rlim_t)f.bytes + 10;
    setrlimit(RLIMIT_FSIZE, &small);
    const GxStatus status = gx_event_scalars(&f, 2, &loss, 1, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(status == GX_ERR_IO && read_events(f.path, event, 60, &torn) == 2 && torn == 0, "%s, and %ld bytes stay",
          e.message, (long)torn);
    gx_error_clear(&e);
    CHECK(gx_event_scalars(&f, 3, &loss, 1, &e) == GX_OK && read_events(f.path, event, 60, &torn) == 3 && torn == 0 &&
              event[2].step == 3,
          "%s", e.message);
    gx_event_file_close(&f);
}

// All event files of a run, in the order of their names.
static int read_runs(const char *output_dir, int *files)
{
    char list[4000], *path[20];
    int64_t torn = 0;
    int n = 0;
    shell("ls -d %s/runs/*/* > list.txt", output_dir);
    char *text = read_text("list.txt");
    snprintf(list, sizeof list, "%s", text);
    free(text);
    for (char *c = list; *c; c++)
        if (*c == '\n') *c = ' ';
    *files = cut_words(list, path, 20);
    for (int i = 0; i < *files; i++) {
        n += read_events(path[i], event + n, 60 - n, &torn);
        CHECK(torn == 0, "%s: %ld bytes are torn", path[i], (long)torn);
    }
    return n;
}

static const Event *find_event(int n, int64_t step, const char *tag, float *value)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < event[i].n; k++)
            if (event[i].step == step && !strcmp(event[i].tag[k], tag)) return *value = event[i].value[k], &event[i];
    return NULL;
}

TEST(what_log_jsonl_gets_tensorboard_gets_and_a_run_that_goes_on_says_what_is_void)
{
    int files;
    float value = 0;
    CHECK_RAN(run("--output_dir board --max_steps 4 --save_steps 2 --save_total_limit 0 --eval_steps 2 --ranks 2 "
                  "--report_to tensorboard"));
    int n = read_runs("board", &files);
    CHECK(files == 1 && n == 3 + 4 + 2, "%d events in %d files", n, files); // version, start, text; steps; validations
    const Log log = read_log("board");
    for (int i = 0; i < log.steps; i++) {
        CHECK(find_event(n, i + 1, "train/loss", &value) && fabs(value - log.loss[i]) < 1e-6 * log.loss[i],
              "step %d: %g", i + 1, (double)value);
        CHECK(find_event(n, i + 1, "train/grad_norm", &value) &&
                  fabs(value - log.grad_norm[i]) < 1e-6 * log.grad_norm[i],
              "step %d: %g", i + 1, (double)value);
        CHECK(find_event(n, i + 1, "train/learning_rate", &value) && find_event(n, i + 1, "train/epoch", &value) &&
                  find_event(n, i + 1, "train/tokens_per_second", &value),
              "step %d lacks one", i + 1);
    }
    CHECK(find_event(n, 4, "eval/bits_per_byte", &value) && fabs(value - log.bits) < 1e-5 &&
              find_event(n, 2, "eval/loss", &value),
          "validations: %g", (double)value);
    CHECK(event[1].start && event[1].step == 1 && strstr(event[2].text, "    {\n      \"task\": \"causal_lm\""), "%s",
          event[2].text);
    CHECK_RAN(run("--resume board/checkpoint-2 --max_steps 3 --ranks 2")); // report_to is the run's
    n = read_runs("board", &files);
    CHECK(files == 2 && n == 9 + 3 + 1 + 1 && event[10].start && event[10].step == 3 && event[12].step == 3,
          "%d events in %d files", n, files);
    CHECK_RAN(run("--output_dir board --max_steps 2 --overwrite_output_dir"));
    CHECK(!exists("board/runs"), "the files of the run before are there");
    static const Refusal cases[] = {
        {"--output_dir x --report_to wandb", {"but \"wandb\" is not supported; expected tensorboard, or none"}},
        {"--output_dir x --report_to none,tensorboard", {"none cannot be combined with others"}},
        {"--output_dir x --report_to tensorboard,", {"but \"\" is not supported"}},
    };
    CHECK_REFUSALS(cases);
    CHECK(!exists("x"), "a refused run has a folder");
}

TEST(a_run_whose_event_file_cannot_grow_is_warned_once_and_goes_on)
{
    // a limit that log.jsonl and the checkpoint's files stay below, and the options as a text do
    CHECK_RAN(run("--output_dir bounded --max_steps 3 --report_to tensorboard --logging_steps 1"));
    GxTensorboard b = GX_ZERO;
    GxProgress p = GX_ZERO;
    GxError e = GX_ZERO;
    p.step = 1, p.loss = 2;
    CHECK(gx_event_file_open(&b.file, "bounded2/runs", &e) == GX_OK, "%s", e.message);
    close(b.file.fd), b.file.fd = open("/dev/full", O_WRONLY);
    heard[0] = 0;
    gx_tensorboard_progress(&b, &p, &logger);
    CHECK(strstr(heard, "the training continues") && strstr(heard, "log.jsonl has them"), "%s", heard);
    heard[0] = 0;
    gx_tensorboard_progress(&b, &p, &logger);
    CHECK(!heard[0], "it said it twice: %s", heard);
    gx_event_file_close(&b.file);
}

// ---- how far it is --------------------------------------------------------------------------------------------------

static void take(void *user, const char *text)
{
    (void)user, snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s", text);
}

TEST(what_takes_long_says_how_far_it_is_and_what_does_not_says_nothing)
{
    GxContext g = GX_ZERO;
    const GxReporter reporter = {take, NULL, NULL};
    g.reporter = &reporter;
    heard[0] = 0;
    GxWatch w = gx_watch(&g, "validation", "samples", 5000);
    CHECK(w.every == 5, "every %g seconds", w.every);
    gx_watch_done(&w, 100);
    CHECK(!heard[0], "at once: %s", heard);
    w.began -= 30, w.said -= 30;
    gx_watch_done(&w, 1250);
    CHECK(!strcmp(heard, "validation: 1,250 of 5,000 samples, 25%, 1m30s left\n"), "%s", heard);
    heard[0] = 0;
    gx_watch_done(&w, 1300);
    w.said -= 30;
    gx_watch_done(&w, 5000);
    CHECK(!heard[0], "again at once, or at the end: %s", heard);
    g.rank = 1;
    gx_watch_done(&w, 1300);
    CHECK(!heard[0], "of another rank: %s", heard);
}

TEST(a_dry_run_says_that_it_shows_no_data)
{
    CHECK_RAN(run("--output_dir dry --dry_run --show_data 2 --max_steps 1"));
    CHECK(strstr(err(), "--show_data shows nothing in a dry run"), "%s", err());
    CHECK_RAN(run("--output_dir dry --dry_run --max_steps 1"));
    CHECK(!strstr(err(), "--show_data"), "%s", err());
}

TEST(so_little_that_is_held_out_is_a_warning)
{
    shell("head -c 800 text.txt > little.txt");
    CHECK_RAN(run("--output_dir one --max_steps 1 --train_data little.txt"));
    CHECK(strstr(err(), "one sample is all that is held out") &&
              strstr(err(), "a larger --validation_fraction holds out more"),
          "%s", err());
    CHECK_RAN(run("--output_dir some --max_steps 1 --train_data little.txt --validation_fraction 0.1"));
    CHECK(strstr(err(), "2 samples are all that is held out"), "%s", err());
    CHECK_RAN(run("--output_dir more --max_steps 1 --train_data little.txt --validation_fraction 0.2"));
    CHECK(!strstr(err(), "all that is held out"), "%s", err());
}

// ---- samples of the data --------------------------------------------------------------------------------------------

// What it prints of bytes, of which those with a 1 are learned.
static char *show(const char *text, const char *learned)
{
    const int64_t T = (int64_t)strlen(text);
    int32_t tokens[100], labels[100];
    char *out_text = NULL;
    size_t n;
    GxTokenizer t;
    for (int64_t i = 0; i < T; i++) {
        tokens[i] = (unsigned char)text[i];
        labels[i] = i + 1 < T && learned[i + 1] == '1' ? (unsigned char)text[i + 1] : -100;
    }
    const GxBlendSample s = {tokens, labels, NULL, -100, 1};
    t = gx_tokenizer_bytes();
    FILE *f = open_memstream(&out_text, &n);
    gx_show_sample(f, &t, &s, T, 0);
    fclose(f);
    return out_text;
}

TEST(brackets_stand_where_what_is_learned_begins_and_ends_and_the_rest_is_the_text)
{
    static const struct {
        const char *text, *learned, *shown;
    } list[] = {
        {"a b c", "00110", "2 of them learned\na ⟦b ⟧c\n"},
        {"abc", "011", "a⟦bc⟧\n"},
        {"\xC3\xA9t\xC3\xA9", "00011", "ét⟦é⟧\n"},
        {"\xC3\xA9t\xC3\xA9", "01100", "⟦ét⟧é\n"}, // a character stands with its last token
        {"x\xC3\xA9y", "0011", "x⟦éy⟧\n"},         // and what is before it does not
        {"ab\xC3\xA9z", "01100", "a⟦b⟧éz\n"},
        {"a\xE2\x9F\xA6z", "00000", "a\\xE2\\x9F\\xA6z\n"}, // a bracket of the text
        {"a\xFF\x1B\n\tz", "000000", "a\\xFF\\x1B\n\tz\n"},
        {"a\xE6\x97", "000", "a\\xE6\\x97\n"},
        {"\xEF\xBF\xBD!", "0000", "\xEF\xBF\xBD!\n"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *shown = show(list[i].text, list[i].learned);
        CHECK(strstr(shown, list[i].shown), "case %d: %s", (int)i, shown);
        free(shown);
    }
}

int main(int argc, char **argv) { return program_main(argc, argv); }
