// merge_adapter.cu: merges a LoRA adapter into its model and writes the merged model as a Hugging Face folder.
//
//     ./merge_adapter --adapter out/checkpoint-500 --output_dir merged
//     ./merge_adapter --adapter out/checkpoint-500 --output_dir merged --dequantize # after --quantize
//     ./merge_adapter --adapter out/checkpoint-500 --unmerge --model merged --output_dir model # the reverse
//
// The base model is the one that the adapter names, or that of --model: LLaMA, Mistral, Qwen2, Qwen3, SmolLM3,
// Phi-3, Gemma 3 or BERT, with any head. The folder appears only once it is complete; an existing one is not touched.
#include "galaxy.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char adapter[GX_PATH], model[GX_PATH], output_dir[GX_PATH], save_dtype[GX_FIELD_TEXT];
    int dequantize, unmerge;
} Options;

#define AT(field) offsetof(Options, field)
static const GxField options[] = {
    {"adapter", GX_FIELD_PATH, AT(adapter), "",
     "folder of the adapter, saved by peft, or by train_llama, train_bert or train_bart --tuning lora", NULL},
    {"model", GX_FIELD_PATH, AT(model), "",
     "model that the adapter is for; empty: the one that adapter_config.json names", NULL},
    {"output_dir", GX_FIELD_PATH, AT(output_dir), "", "folder to write; it must be empty, or not exist", NULL},
    {"save_dtype", GX_FIELD_STRING, AT(save_dtype), "fp32",
     "data type of the weights in model.safetensors; bf16 and fp16 round what is merged, and may lose a small adapter",
     "fp32|bf16|fp16"},
    {"dequantize", GX_FIELD_BOOL, AT(dequantize), "false",
     "for an adapter that was trained with --quantize, or on a bitsandbytes folder: merge it into the dequantized "
     "weights, on which it was trained, and not into the weights before quantization",
     NULL},
    {"unmerge", GX_FIELD_BOOL, AT(unmerge), "false",
     "take the adapter out of --model, into which it was merged (exact up to rounding)", NULL},
};

static void warn(void *user, GxLogLevel level, const char *text)
{
    (void)user;
    if (level == GX_LOG_WARNING) fprintf(stderr, "warning: %s\n", text);
}

static GxStatus merge(const Options *o, GxContext *g)
{
    GxMergeSaid said;
    GxClaim claim;
    GxError *err = &g->error;
    const GxDtype dtype = !strcmp(o->save_dtype, "bf16") ? GX_BF16 : !strcmp(o->save_dtype, "fp16") ? GX_F16 : GX_F32;
    GX_TRY(gx_check_one_process(err));
    if (!o->adapter[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--adapter is missing: the folder of the adapter");
    if (!o->output_dir[0]) return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_dir is missing: the folder to write");
    if (o->unmerge && !o->model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--unmerge needs --model: the folder into which the adapter was merged");
    GX_TRY(gx_output_check_place(o->output_dir, err));
    GX_TRY(gx_claim_folder(&claim, o->output_dir, err));
    const GxStatus status =
        gx_merge_adapter(g, o->adapter, o->model, claim.folder, dtype, o->unmerge ? -1 : 1, o->dequantize, &said);
    GX_TRY(gx_claim_publish(&claim, status, err));
    printf("%s: %s%s%s with%s the adapter %s in %d of its matrices; %ld parameters\n", o->output_dir, said.base,
           said.quantize ? ", as it is in " : "", said.quantize ? gx_quantize_name(said.quantize) : "",
           o->unmerge ? "out" : "", o->adapter, said.matrices, (long)said.parameters);
    return GX_OK;
}

static void print_help(const GxConfig *c)
{
    printf("usage: merge_adapter --adapter FOLDER --output_dir FOLDER [--option value ...]\n\n");
    gx_config_help(c, NULL, 0, stdout, 80);
}

int main(int argc, char **argv)
{
    static Options o;
    static GxConfig c;
    static GxContext g;
    g.log.write = warn;
    g.device = gx_device_cpu(), g.world = 1, g.threads = gx_cores(); // a GPU would gain nothing here
    signal(SIGXFSZ, SIG_IGN); // so that write fails at a file size limit, and the error names the file
    gx_config_open(&c);
    gx_config_add(&c, "merge_adapter", GX_FIELDS(options), &o, &g.error);
    if (gx_config_read_args(&c, argc, argv, &g.error) != GX_OK) {
    } else if (c.help) print_help(&c);
    else if (c.version) printf("galaxy %s\n", GX_VERSION);
    else merge(&o, &g);
    if (gx_failed(&g)) fprintf(stderr, "merge_adapter: %s\n", g.error.message);
    return gx_exit_status(gx_failed(&g));
}
