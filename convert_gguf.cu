// convert_gguf.cu: converts a Hugging Face folder into a GGUF file, which llama.cpp runs, and a GGUF file into a
// folder; and a LoRA adapter's folder into a GGUF file, which llama.cpp applies to the model's.
//
//     ./convert_gguf --model out/checkpoint-500 --output_file model.gguf --outtype q8_0
//     ./convert_gguf --adapter lora/checkpoint-30 --output_file adapter.gguf
//     ./convert_gguf --gguf model.gguf --output_dir FOLDER --save_dtype bf16
//
// For LLaMA, Mistral (up to its sliding window), Qwen2 and Qwen3. The output appears only once it is complete; existing
// files are not touched.
#include "galaxy.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char model[GX_PATH], adapter[GX_PATH], output_file[GX_PATH], outtype[GX_FIELD_TEXT];
    char gguf[GX_PATH], output_dir[GX_PATH], save_dtype[GX_FIELD_TEXT];
} Options;

#define AT(field) offsetof(Options, field)
static const GxField exporting[] = {
    {"model", GX_FIELD_PATH, AT(model), "", "Hugging Face folder, or a checkpoint of train_llama", NULL},
    {"adapter", GX_FIELD_PATH, AT(adapter), "",
     "folder of a LoRA adapter, saved by peft or train_llama --tuning lora, to convert without its model (for "
     "llama-cli --lora); it names its model, unless --model does",
     NULL},
    {"output_file", GX_FIELD_PATH, AT(output_file), "", "GGUF file to write; it must not exist", NULL},
    {"outtype", GX_FIELD_STRING, AT(outtype), "f16",
     "type of matrices and embeddings; with q8_0, rows whose length is not a multiple of 32 are f16; norms are always "
     "f32. If it is not given, an adapter is f32",
     "f32|f16|bf16|q8_0"},
};
static const GxField importing[] = {
    {"gguf", GX_FIELD_PATH, AT(gguf), "",
     "GGUF file to convert back; supported types: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K", NULL},
    {"output_dir", GX_FIELD_PATH, AT(output_dir), "", "folder to write; it must be empty, or not exist", NULL},
    {"save_dtype", GX_FIELD_STRING, AT(save_dtype), "fp32", "data type of the weights in model.safetensors",
     "fp32|bf16|fp16"},
};

static void warn(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "convert_gguf: %s\n", text);
}
static const GxLogger to_stderr = {warn, NULL};

static int type_of(const char *name)
{
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    static const int types[] = {GX_GGUF_F32, GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_Q8_0};
    int i = 0;
    while (strcmp(names[i], name)) i++;
    return types[i];
}

static void say_f16(const Options *o, int tensors)
{
    if (tensors)
        printf("%d tensor%s f16: %s rows are not a multiple of the 32 values in a block of %s", tensors,
               tensors == 1 ? " is" : "s are", tensors == 1 ? "its" : "their", o->outtype);
}

static GxStatus export_adapter(const Options *o, const GxConfig *c, GxError *err)
{
    GxGgufAdapterSaid said;
    GxClaim claim;
    const int type = gx_config_is_set(c, "outtype") ? type_of(o->outtype) : GX_GGUF_F32;
    if (!o->output_file[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_file is missing: the GGUF file to write");
    GX_TRY(gx_output_check_adapter(o->adapter, err));
    GX_TRY(gx_claim_file(&claim, o->output_file, err));
    const GxStatus status = gx_gguf_export_adapter(o->adapter, o->model, o->output_file, type, &said, &to_stderr, err);
    gx_claim_end(&claim);
    GX_TRY(status);
    printf("%s: LoRA on %d matri%s of a %s, %ld parameters, alpha %g\n", o->output_file, said.matrices,
           said.matrices == 1 ? "x" : "ces", said.model, (long)said.parameters, said.alpha);
    if (said.folded)
        printf(
            "lora_b of %d of them is multiplied, because rank_pattern or alpha_pattern gives them a different alpha / "
            "r\n",
            said.folded);
    say_f16(o, said.as_f16);
    return GX_OK;
}

static GxStatus export_model(const Options *o, GxError *err)
{
    GxGgufSaid said;
    GxClaim claim;
    if (gx_path_is_adapter(o->model))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s holds an adapter, not a model; --adapter %s converts it without its model, and "
                       "./merge_adapter --adapter %s --output_dir FOLDER merges it into its model",
                       o->model, o->model, o->model);
    if (!o->output_file[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_file is missing: the GGUF file to write");
    GX_TRY(gx_claim_file(&claim, o->output_file, err));
    const GxStatus status = gx_gguf_export(o->model, o->output_file, type_of(o->outtype), &said, &to_stderr, err);
    gx_claim_end(&claim);
    GX_TRY(status);
    printf("%s: %s, %ld parameters in %d tensor%s; %s\n", o->output_file, said.model, (long)said.parameters,
           said.tensors, gx_text_s(said.tensors), said.tokenizer);
    say_f16(o, said.as_f16);
    return GX_OK;
}

static GxStatus import_model(const Options *o, GxError *err)
{
    GxGgufSaid said;
    GxClaim claim;
    const GxDtype dtype = !strcmp(o->save_dtype, "bf16") ? GX_BF16 : !strcmp(o->save_dtype, "fp16") ? GX_F16 : GX_F32;
    if (!o->output_dir[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_dir is missing: the folder to write");
    GX_TRY(gx_folder_need_empty(o->output_dir, err));
    GX_TRY(gx_gguf_check_import(o->gguf, err)); // before the folder is created
    GX_TRY(gx_claim_folder(&claim, o->output_dir, err));
    GX_TRY(gx_claim_publish(&claim, gx_gguf_import(o->gguf, claim.folder, dtype, &said, &to_stderr, err), err));
    printf("%s: %s, %ld parameters in %d tensor%s; %s\n", o->output_dir, said.model, (long)said.parameters,
           said.tensors, gx_text_s(said.tensors), said.tokenizer);
    return GX_OK;
}

static GxStatus run(const Options *o, const GxConfig *c, GxError *err)
{
    static const char *const belongs[][2] = {
        {"output_file", "model"}, {"outtype", "model"}, {"output_dir", "gguf"}, {"save_dtype", "gguf"}};
    GX_TRY(gx_check_one_process(err));
    const int exports = o->model[0] || o->adapter[0];
    if (exports == (o->gguf[0] != 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "expected one of --model FOLDER, --adapter FOLDER and --gguf FILE; see --help");
    for (int i = 0; i < 4; i++)
        if (gx_config_is_set(c, belongs[i][0]) && strcmp(belongs[i][1], exports ? "model" : "gguf"))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s is an option of --%s", belongs[i][0], belongs[i][1]);
    return o->adapter[0] ? export_adapter(o, c, err) : o->model[0] ? export_model(o, err) : import_model(o, err);
}

static void print_help(const GxConfig *c)
{
    printf("usage: convert_gguf --model FOLDER --output_file FILE [--option value ...]\n"
           "       convert_gguf --adapter FOLDER --output_file FILE [--option value ...]\n"
           "       convert_gguf --gguf FILE --output_dir FOLDER [--option value ...]\n\n");
    gx_config_help(c, NULL, 0, stdout, 80);
}

static GxStatus convert(int argc, char **argv, GxError *err)
{
    static Options o;
    static GxConfig c;
    gx_config_open(&c);
    gx_config_add(&c, "A folder into a GGUF file", GX_FIELDS(exporting), &o, err);
    gx_config_add(&c, "A GGUF file into a folder", GX_FIELDS(importing), &o, err);
    GX_TRY(gx_config_read_args(&c, argc, argv, err));
    if (c.help) print_help(&c);
    else if (c.version) printf("galaxy %s\n", GX_VERSION);
    else return run(&o, &c, err);
    return GX_OK;
}

#ifndef GX_NO_MAIN // test_convert_gguf.cu includes this file
int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    signal(SIGXFSZ, SIG_IGN); // so that write fails at a file size limit, and the error names the file
    convert(argc, argv, &err);
    if (err.code != GX_OK) fprintf(stderr, "convert_gguf: %s\n", err.message);
    return gx_exit_status(err.code != GX_OK);
}
#endif
