// options_table.h: the table of the options that all training programs share (options.h): their names, defaults, help
// texts and allowed values; and how a program adds them. Options that divide a model among ranks have tables of their
// own, in options_mode.h, options_mesh.h and options_lists.h.
#ifndef GX_OPTIONS_TABLE_H
#define GX_OPTIONS_TABLE_H
#include "../io/config.h"
#include "../model/mode.h"
#include "../parallel/steps_write.h"
#include "options.h"
GX_BEGIN

// Adds the options to a config. A program without a mode of its own (NULL) has --mode, --att, --con, --mlp, --ends and
// all lists; one with a mode has only the lists that this mode can use. A program with a schedule of its own (else
// NULL) has no --pipeline_schedule, and its --pp takes all ranks unless it is given; if the schedule is one of shards,
// it has neither stages nor --zero and --gathered_units, and its --dp_shard takes all ranks that --tp leaves. For
// options that a program does not have, the error message refers to train_<family>.
GxStatus gx_options_add(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const GxStepsSchedule *schedule,
                        const char *family, GxError *err);

// For programs that do not train: copies the fields with these names (NULL at the end), which are of a GxTrainOptions.
// Returns how many.
int gx_options_copy_fields(const char *const *names, GxField *fields);

// Checks resolved values against the ranges of their options, so that training_args.json can be read again.
GxStatus gx_options_check_sizes(const GxTrainOptions *o, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_TABLE_IMPLEMENTED)
#define GX_OPTIONS_TABLE_IMPLEMENTED
#include <stdio.h>
#include "options_lists.h"
#include "options_mesh.h"
#include "options_mode.h"
#include "other_names.h"
#include "tuning.h"

#define GX__OPTIONS_AT(field) offsetof(GxTrainOptions, field)
static const GxField gx__options_train_options[] = {
    {"seq_len", GX_FIELD_INT, GX__OPTIONS_AT(seq_len), "256", "tokens in a sample", "1..16777216"},
    {"micro_batch_size", GX_FIELD_INT, GX__OPTIONS_AT(micro_batch_size), "8",
     "samples per micro-batch of each copy of the model (a rank, or a tp group); 0: dp_batch_size_list says it",
     "0..16777216"},
    {"gradient_accumulation_steps", GX_FIELD_INT, GX__OPTIONS_AT(gradient_accumulation_steps), "1",
     "micro-batches per optimizer step", "1..32767"},
    {"global_batch_size", GX_FIELD_INT, GX__OPTIONS_AT(global_batch_size), "0",
     "samples per optimizer step on all ranks; 0: follows from the others", "0..1000000000000"},
    {"dp_batch_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(dp_batch_size_list), NULL,
     "samples per micro-batch of each data-parallel rank (or copy of the model on --pp x --tp ranks), for unequal "
     "machines: 3,1",
     "1..16777216"},
    {"max_steps", GX_FIELD_INT, GX__OPTIONS_AT(max_steps), "500", "optimizer steps", "1.."},
    {"num_train_epochs", GX_FIELD_DOUBLE, GX__OPTIONS_AT(num_train_epochs), "0",
     "instead of max_steps: how often all samples of the data are gone through, 3 or 0.5; the steps are rounded up. 0: "
     "max_steps says it",
     "0..1000000"},
    {"seed", GX_FIELD_INT, GX__OPTIONS_AT(seed), "1234", "of first weights, order of samples, generated text", "0.."},
    {"optimizer", GX_FIELD_STRING, GX__OPTIONS_AT(optimizer), "adamw", "how weights move", "adamw|sgd"},
    {"lr_scheduler_type", GX_FIELD_STRING, GX__OPTIONS_AT(lr_scheduler_type), "cosine", "how the learning rate moves",
     "constant|linear|cosine|wsd|wsd_sqrt|wsd_cosine"},
    {"learning_rate", GX_FIELD_DOUBLE, GX__OPTIONS_AT(learning_rate), "2e-3",
     "the largest; where it is not given and --model is, 2e-5, or 2e-4 with another --tuning; of --task dpo "
     "1e-6, or 1e-5",
     "0.."},
    {"min_lr_ratio", GX_FIELD_DOUBLE, GX__OPTIONS_AT(min_lr_ratio), "0.1", "the smallest, as a fraction of the largest",
     "0..1"},
    {"warmup_steps", GX_FIELD_INT, GX__OPTIONS_AT(warmup_steps), "20",
     "steps up to the largest rate; not more than max_steps, and where it is not given, than a fifth of them", "0.."},
    {"warmup_ratio", GX_FIELD_DOUBLE, GX__OPTIONS_AT(warmup_ratio), "0",
     "instead of warmup_steps: as a fraction of max_steps, rounded up; 0: warmup_steps says it", "0..1"},
    {"lr_decay_steps", GX_FIELD_INT, GX__OPTIONS_AT(lr_decay_steps), "100", "wsd: steps of decay at the end", "1.."},
    {"adam_beta1", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_beta1), "0.9", "decay of the first moment", "0..0.999999"},
    {"adam_beta2", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_beta2), "0.95", "decay of the second moment", "0..0.999999"},
    {"adam_epsilon", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_epsilon), "1e-8", "added to the root of the second moment",
     "0.."},
    {"weight_decay", GX_FIELD_DOUBLE, GX__OPTIONS_AT(weight_decay), "0.1", "on matrices, not on norms", "0.."},
    {"momentum", GX_FIELD_DOUBLE, GX__OPTIONS_AT(momentum), "0.9", "sgd: of the velocity; 0: none is kept",
     "0..0.999999"},
    {"max_grad_norm", GX_FIELD_DOUBLE, GX__OPTIONS_AT(max_grad_norm), "1",
     "gradients are scaled down to this global norm; 0: never", "0.."},
    {"logging_steps", GX_FIELD_INT, GX__OPTIONS_AT(logging_steps), "10", "steps between progress lines", "1.."},
    {"report_to", GX_FIELD_STRING, GX__OPTIONS_AT(report_to), "none",
     "who gets what log.jsonl gets: tensorboard: event files in output_dir/runs, for tensorboard --logdir; none", NULL},
    {"profile_steps", GX_FIELD_INT, GX__OPTIONS_AT(profile_steps), "0",
     "of so many steps, from the third on: a table of where rank 0's time goes, by operation", "0.."},
    {"eval_steps", GX_FIELD_INT, GX__OPTIONS_AT(eval_steps), "100", "steps between validations; 0: at the end only",
     "0.."},
    {"eval_windows", GX_FIELD_INT, GX__OPTIONS_AT(eval_windows), "-1",
     "held-out samples of a validation, of the last one, too; 0: all of them; -1: 64, but the last one, and "
     "--evaluate, "
     "take all",
     "-1.."},
    {"save_steps", GX_FIELD_INT, GX__OPTIONS_AT(save_steps), "0", "steps between checkpoints; 0: at the end only",
     "0.."},
    {"save_total_limit", GX_FIELD_INT, GX__OPTIONS_AT(save_total_limit), "2",
     "newest checkpoints that are kept, besides the best one; 0: all", "0.."},
    {"save_dtype", GX_FIELD_STRING, GX__OPTIONS_AT(save_dtype), "fp32",
     "of the weights in a checkpoint's model.safetensors; resuming loses no bit by it", "fp32|bf16|fp16"},
    {"max_shard_size", GX_FIELD_STRING, GX__OPTIONS_AT(max_shard_size), "5GB",
     "of a file of weights: a larger model's are in several, with an index; 500MB, 5GB; 0: one file", NULL},
    {"metric_for_best_model", GX_FIELD_STRING, GX__OPTIONS_AT(metric_for_best_model), "",
     "metric of the validations on the way that are compared; the best one's checkpoint is saved, and kept besides the "
     "newest. \"\": the loss, or of --task embedding mrr, where load_best_model_at_end or early_stopping_patience "
     "compare them",
     NULL},
    {"greater_is_better", GX_FIELD_STRING, GX__OPTIONS_AT(greater_is_better), "auto",
     "of this metric; auto: as the task says", "auto|true|false"},
    {"load_best_model_at_end", GX_FIELD_BOOL, GX__OPTIONS_AT(load_best_model_at_end), "false",
     "the last validation and the sample are of the best weights; their checkpoint is saved, and kept", NULL},
    {"early_stopping_patience", GX_FIELD_INT, GX__OPTIONS_AT(early_stopping_patience), "0",
     "validations in a row without a better metric that end the run; 0: it is not ended", "0.."},
    {"early_stopping_threshold", GX_FIELD_DOUBLE, GX__OPTIONS_AT(early_stopping_threshold), "0",
     "by how much more a metric must be better, to be better for that", "0.."},
    {"output_dir", GX_FIELD_PATH, GX__OPTIONS_AT(output_dir), "out", "folder of checkpoints, log.jsonl, loss.svg",
     NULL},
    {"model", GX_FIELD_PATH, GX__OPTIONS_AT(model), "",
     "Hugging Face folder to start from: its config.json and weights", NULL},
    {"strict", GX_FIELD_BOOL, GX__OPTIONS_AT(strict), "true",
     "weights of --model must match, by name and shape; false: what does not is left out or drawn, and told by name",
     NULL},
    {"ignore_mismatched_sizes", GX_FIELD_BOOL, GX__OPTIONS_AT(ignore_mismatched_sizes), "false",
     "where the model's head is for other labels than the data's: a new head, to be trained", NULL},
    {"add_tokens", GX_FIELD_PATH, GX__OPTIONS_AT(add_tokens), "",
     "file of tokens that the tokenizer is to have besides: one a line; or, named .json, a list of texts or of "
     "AddedToken objects (content, special, lstrip, rstrip, normalized), or {\"token\": id}. What it has already is "
     "left out. The embedding, and a head over tokens, get rows for them that are the mean of the others; where "
     "--model has more rows than tokens, they take those, as they are",
     NULL},
    {"resume", GX_FIELD_PATH, GX__OPTIONS_AT(resume), "",
     "go on with a run, with its options: auto: from the newest whole checkpoint in output_dir, if there is one; or "
     "from a checkpoint's folder",
     NULL},
    {"overwrite_output_dir", GX_FIELD_BOOL, GX__OPTIONS_AT(overwrite_output_dir), "false",
     "a new run replaces the one that is in output_dir", NULL},
    {"ranks", GX_FIELD_INT, GX__OPTIONS_AT(ranks), "1",
     "ranks, as threads of this process (under mpirun: leave it out)", "1..256"},
    {"world", GX_FIELD_INT, GX__OPTIONS_AT(world), "1",
     "ranks, as processes started by hand, each with its rank and the same init", "1..256"},
    {"rank", GX_FIELD_INT, GX__OPTIONS_AT(rank), "0", "which of them this process is", "0..255"},
    {"init", GX_FIELD_STRING, GX__OPTIONS_AT(init), "", "where they find each other: rank 0 listens at tcp://host:port",
     NULL},
    {"threads", GX_FIELD_INT, GX__OPTIONS_AT(threads), "0",
     "CPU threads of each rank; 0: the cores that it may use / ranks on this machine", "0..1024"},
    {"timeout", GX_FIELD_DOUBLE, GX__OPTIONS_AT(timeout), "600", "seconds to wait for another rank", "1.."},
    {"device", GX_FIELD_STRING, GX__OPTIONS_AT(device), "auto",
     "where it is computed; auto: what the program was built for", "auto|cpu|cuda"},
    {"device_comm", GX_FIELD_STRING, GX__OPTIONS_AT(device_comm), "auto",
     "cuda: who moves buffers of the cards; host: through the host's memory; auto: nccl where every rank has a card of "
     "its own",
     "auto|nccl|host"},
    {"precision", GX_FIELD_STRING, GX__OPTIONS_AT(precision), "fp32",
     "of weights and activations; masters, moments and gradients are fp32", "fp32|bf16"},
    {"tf32", GX_FIELD_BOOL, GX__OPTIONS_AT(tf32), "false",
     "cuda, fp32: matrix products may round their factors to TF32, 10 bits, which tensor cores multiply; attention "
     "stays in fp32",
     NULL},
    {"autotune", GX_FIELD_PATH, GX__OPTIONS_AT(autotune), "",
     "this file keeps which algorithm is the fastest for each shape of matrix product: one of cuBLASLt's, or on the "
     "CPU "
     "oneDNN's sgemm, its matmul, or Galaxy's own kernels; what it does not have, the first step times",
     NULL},
    {"cuda_graphs", GX_FIELD_BOOL, GX__OPTIONS_AT(cuda_graphs), "false",
     "cuda: the kernels of a micro-batch, or those between two collectives, are captured once, and launched as one",
     NULL},
    {"head_chunk", GX_FIELD_INT, GX__OPTIONS_AT(head_chunk), "512",
     "rows whose logits exist at once: memory against speed", "1..1000000000"},
    {"reduce_bucket", GX_FIELD_INT, GX__OPTIONS_AT(reduce_bucket), "0",
     "of several ranks: layers whose gradients are summed beside the backward of those below; 0: all, behind it. The "
     "result is the same to the bit",
     "0..100000"},
    {"recompute", GX_FIELD_STRING, GX__OPTIONS_AT(recompute), "none",
     "layer: keep the input of each layer alone, and compute the layer again before its backward: memory against time",
     "none|layer"},
    {"freeze", GX_FIELD_STRING, GX__OPTIONS_AT(freeze), "",
     "tensors that are not trained, by their names in the checkpoint: 'model.embed_tokens*,*.layers.?.*'; under bf16 "
     "they have no fp32 masters, and are saved as they are computed with: rounded",
     NULL},
    {"dry_run", GX_FIELD_BOOL, GX__OPTIONS_AT(dry_run), "false",
     "print the memory plan and the FLOPs, and stop: weights and data are not opened", NULL},
    {"evaluate", GX_FIELD_BOOL, GX__OPTIONS_AT(evaluate), "false",
     "validate the model of --resume or --model on all held-out samples, and stop; nothing is written", NULL},
    {"sample_only", GX_FIELD_BOOL, GX__OPTIONS_AT(sample_only), "false",
     "show what the model of --resume or --model writes, and stop; nothing is written", NULL},
};

static const GxField *gx__options_find(const char *name)
{
    const GxField *found = gx_field_find(GX_FIELDS(gx__options_train_options), name);
    if (!found) found = gx_options_list_field(name);
    return found ? found : gx_options_mesh_field(name);
}

int gx_options_copy_fields(const char *const *names, GxField *fields)
{
    int n = 0;
    for (; *names; names++) {
        const GxField *f = gx__options_find(*names);
        if (f) fields[n++] = *f;
    }
    return n;
}

GxStatus gx_options_add(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const GxStepsSchedule *schedule,
                        const char *family, GxError *err)
{
    static const char copies[] = "one copy of the model on several ranks";
    char program[32];
    snprintf(program, sizeof program, "train_%.24s", family);
    gx_config_set_hints(c, gx_other_names, gx_other_names_n);
    GX_TRY(gx_config_add(c, "training", GX_FIELDS(gx__options_train_options), o, err));
    GX_TRY(gx_tuning_add(c, &o->tuning, err));
    GX_TRY(gx_options_add_mode(c, o, mode, program, err));
    GX_TRY(gx_options_add_mesh(c, o, schedule, copies, program, err));
    return gx_options_add_lists(c, o, mode, copies, program, err);
}

GxStatus gx_options_check_sizes(const GxTrainOptions *o, GxError *err)
{
    char who[100], number[32];
    for (size_t i = 0; i < sizeof gx__options_train_options / sizeof *gx__options_train_options; i++) {
        const GxField *f = &gx__options_train_options[i];
        GxFieldValue v;
        if (f->type != GX_FIELD_INT) continue;
        v.i = *(const int64_t *)gx_field_in(f, o);
        if (gx_field_allows(f, &v)) continue;
        snprintf(who, sizeof who, "--global_batch_size %ld: %s", (long)o->global_batch_size, f->name);
        snprintf(number, sizeof number, "%ld", (long)v.i);
        return gx_field_refuse(f, who, "", number, GX_ERR_ARGUMENT, err);
    }
    return GX_OK;
}
#endif
