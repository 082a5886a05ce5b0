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
// all lists; one with a mode has only the lists that this mode can use. A program with a schedule of its own (otherwise
// NULL) has no --pipeline_schedule, and its --pp takes all ranks unless it is given; if the schedule is one of shards,
// it has neither stages nor --zero and --gathered_units, and its --dp_shard takes all ranks that --tp leaves. For
// options that a program does not have, the error message refers to train_<family>.
GxStatus gx_options_add(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const GxStepsSchedule *schedule,
                        const char *family, GxError *err);

// For programs that do not train: copies the fields of GxTrainOptions with these names (NULL at the end). Returns how
// many.
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
     "samples in a micro-batch of each copy of the model (a copy is on one rank, or on a tp group); 0: as "
     "dp_batch_size_list says",
     "0..16777216"},
    {"gradient_accumulation_steps", GX_FIELD_INT, GX__OPTIONS_AT(gradient_accumulation_steps), "1",
     "micro-batches per optimizer step; with dp_samples_list each copy of the model has a number of its own",
     "1..32767"},
    {"global_batch_size", GX_FIELD_INT, GX__OPTIONS_AT(global_batch_size), "0",
     "samples per optimizer step, of all ranks together; 0: follows from the other batch options", "0..1000000000000"},
    {"dp_batch_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(dp_batch_size_list), NULL,
     "samples in a micro-batch of each data-parallel rank (or copy of the model on --pp x --tp ranks), such as 3,1 for "
     "unequal machines",
     "1..16777216"},
    {"dp_samples_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(dp_samples_list), NULL,
     "samples of each data-parallel rank (or copy of the model) in an optimizer step, such as 24,8 for unequal "
     "machines: each computes its own in as many micro-batches as it needs, of micro_batch_size samples or of its "
     "entry in dp_batch_size_list, the last one perhaps smaller; the sum is global_batch_size",
     "1..1000000000000"},
    {"rebalance", GX_FIELD_STRING, GX__OPTIONS_AT(rebalance), "auto",
     "auto: with dp_samples_list and several copies, move samples to the copies that have become faster, whenever that "
     "saves over 3% of the time; with plan=auto also make another plan at a checkpoint, if that saves over 10%. The "
     "losses then differ in rounding from those of a run without it. off: neither",
     "auto|off"},
    {"max_steps", GX_FIELD_INT, GX__OPTIONS_AT(max_steps), "500", "total number of optimizer steps", "1.."},
    {"num_train_epochs", GX_FIELD_DOUBLE, GX__OPTIONS_AT(num_train_epochs), "0",
     "passes over the training data, such as 3 or 0.5, instead of max_steps; rounded up to whole steps; 0: use "
     "max_steps",
     "0..1000000"},
    {"seed", GX_FIELD_INT, GX__OPTIONS_AT(seed), "1234",
     "seed of the random initial weights, the order of samples, and sampled text", "0.."},
    {"optimizer", GX_FIELD_STRING, GX__OPTIONS_AT(optimizer), "adamw", "optimizer that updates the weights",
     "adamw|sgd"},
    {"lr_scheduler_type", GX_FIELD_STRING, GX__OPTIONS_AT(lr_scheduler_type), "cosine", "schedule of the learning rate",
     "constant|linear|cosine|wsd|wsd_sqrt|wsd_cosine"},
    {"learning_rate", GX_FIELD_DOUBLE, GX__OPTIONS_AT(learning_rate), "2e-3",
     "largest learning rate; by default 2e-3 for a new model, 2e-5 with --model, 2e-4 with --model and another "
     "--tuning than full (9e-3 with prompt); with --task dpo 1e-6, or 1e-5 with another --tuning",
     "0.."},
    {"min_lr_ratio", GX_FIELD_DOUBLE, GX__OPTIONS_AT(min_lr_ratio), "0.1",
     "smallest learning rate, as a fraction of the largest", "0..1"},
    {"warmup_steps", GX_FIELD_INT, GX__OPTIONS_AT(warmup_steps), "20",
     "steps over which the learning rate rises to its largest value; at most max_steps, and by default at most a fifth "
     "of them",
     "0.."},
    {"warmup_ratio", GX_FIELD_DOUBLE, GX__OPTIONS_AT(warmup_ratio), "0",
     "warmup_steps as a fraction of max_steps, rounded up; 0: use warmup_steps", "0..1"},
    {"lr_decay_steps", GX_FIELD_INT, GX__OPTIONS_AT(lr_decay_steps), "100",
     "with a wsd schedule: steps at the end over which the learning rate decays", "1.."},
    {"adam_beta1", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_beta1), "0.9", "decay rate of Adam's first moment",
     "0..0.999999"},
    {"adam_beta2", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_beta2), "0.95", "decay rate of Adam's second moment",
     "0..0.999999"},
    {"adam_epsilon", GX_FIELD_DOUBLE, GX__OPTIONS_AT(adam_epsilon), "1e-8",
     "Adam's epsilon, added to the root of the second moment", "0.."},
    {"weight_decay", GX_FIELD_DOUBLE, GX__OPTIONS_AT(weight_decay), "0.1", "weight decay of matrices; norms have none",
     "0.."},
    {"momentum", GX_FIELD_DOUBLE, GX__OPTIONS_AT(momentum), "0.9",
     "momentum of sgd; 0: plain sgd, which keeps no velocity", "0..0.999999"},
    {"max_grad_norm", GX_FIELD_DOUBLE, GX__OPTIONS_AT(max_grad_norm), "1",
     "largest global norm of the gradients; larger ones are scaled down to it; 0: no clipping", "0.."},
    {"label_smoothing_factor", GX_FIELD_DOUBLE, GX__OPTIONS_AT(label_smoothing_factor), "0",
     "share of each label that is spread evenly over the vocabulary: the loss of a token is (1 - this) * -log p(label) "
     "plus this * the mean of -log p over all tokens. Validations have it, too, as in transformers: their loss, and "
     "what is computed from it, say nothing about how likely the text is",
     "0..1"},
    {"logging_steps", GX_FIELD_INT, GX__OPTIONS_AT(logging_steps), "10", "steps between progress lines", "1.."},
    {"report_to", GX_FIELD_STRING, GX__OPTIONS_AT(report_to), "none",
     "where else to log: tensorboard (event files in output_dir/runs, for tensorboard --logdir) or none; log.jsonl is "
     "always written",
     NULL},
    {"profile_steps", GX_FIELD_INT, GX__OPTIONS_AT(profile_steps), "0",
     "steps to profile, from the third on: a table shows where rank 0's time goes, by operation; 0: none", "0.."},
    {"profile_flops", GX_FIELD_INT, GX__OPTIONS_AT(profile_flops), "0",
     "steps to profile, from the third on, module by module: parameters, MACs, FLOPs, and the time that they take on "
     "all ranks; with dry_run the same without times; 0: none",
     "0.."},
    {"peak_tflops", GX_FIELD_DOUBLE, GX__OPTIONS_AT(peak_tflops), "0",
     "the most TFLOP/s that the device of a rank can compute, for profile_flops to show how much of it is used; 0: not "
     "known",
     "0.."},
    {"trace", GX_FIELD_PATH, GX__OPTIONS_AT(trace), "",
     "file for the operations, collectives and waits of some steps on all ranks, each with its time, in Chrome's trace "
     "event format (for Perfetto, or chrome://tracing)",
     NULL},
    {"trace_steps", GX_FIELD_INT, GX__OPTIONS_AT(trace_steps), "2", "steps in trace, from the third on", "1..1000"},
    {"plot_memory", GX_FIELD_PATH, GX__OPTIONS_AT(plot_memory), "",
     "file for a picture (SVG) of the memory that rank 0 needs in a step, by kind and action; also with dry_run", NULL},
    {"eval_steps", GX_FIELD_INT, GX__OPTIONS_AT(eval_steps), "100", "steps between validations; 0: at the end only",
     "0.."},
    {"max_eval_samples", GX_FIELD_INT, GX__OPTIONS_AT(max_eval_samples), "-1",
     "held-out samples in each validation, the last included; 0: all; -1: 64, but all in the last one and with "
     "--evaluate",
     "-1.."},
    {"save_steps", GX_FIELD_INT, GX__OPTIONS_AT(save_steps), "0", "steps between checkpoints; 0: at the end only",
     "0.."},
    {"save_total_limit", GX_FIELD_INT, GX__OPTIONS_AT(save_total_limit), "2",
     "how many of the newest checkpoints to keep in addition to the best one; 0: all", "0.."},
    {"save_dtype", GX_FIELD_STRING, GX__OPTIONS_AT(save_dtype), "fp32",
     "data type of the weights in a checkpoint's model.safetensors; resuming is exact with any of them",
     "fp32|bf16|fp16"},
    {"max_shard_size", GX_FIELD_STRING, GX__OPTIONS_AT(max_shard_size), "5GB",
     "largest size of a weight file, such as 500MB or 5GB; a larger model is saved in several files with an index; 0: "
     "always one file",
     NULL},
    {"metric_for_best_model", GX_FIELD_STRING, GX__OPTIONS_AT(metric_for_best_model), "",
     "metric by which validations during training are compared; the checkpoint of the best one is saved, and kept in "
     "addition to the newest. Empty: no comparison, unless load_best_model_at_end or early_stopping_patience needs "
     "one: then the loss (with --task embedding: mrr)",
     NULL},
    {"greater_is_better", GX_FIELD_STRING, GX__OPTIONS_AT(greater_is_better), "auto",
     "whether a larger value of metric_for_best_model is better; auto: the task decides", "auto|true|false"},
    {"load_best_model_at_end", GX_FIELD_BOOL, GX__OPTIONS_AT(load_best_model_at_end), "false",
     "use the best weights for the last validation and the sample; their checkpoint is saved and kept", NULL},
    {"early_stopping_patience", GX_FIELD_INT, GX__OPTIONS_AT(early_stopping_patience), "0",
     "end the run after this many validations in a row without a better metric; 0: never", "0.."},
    {"early_stopping_threshold", GX_FIELD_DOUBLE, GX__OPTIONS_AT(early_stopping_threshold), "0",
     "by how much a metric must beat the best so far to count as better for early_stopping_patience", "0.."},
    {"output_dir", GX_FIELD_PATH, GX__OPTIONS_AT(output_dir), "out", "folder for checkpoints, log.jsonl and loss.svg",
     NULL},
    {"model", GX_FIELD_PATH, GX__OPTIONS_AT(model), "",
     "Hugging Face folder to start from: its config.json and weights; empty: a new model with random weights", NULL},
    {"strict", GX_FIELD_BOOL, GX__OPTIONS_AT(strict), "true",
     "require that the weights of --model match the model by name and shape; false: those that do not are left out or "
     "initialized at random, and named in a warning",
     NULL},
    {"ignore_mismatched_sizes", GX_FIELD_BOOL, GX__OPTIONS_AT(ignore_mismatched_sizes), "false",
     "if the head of --model is for other labels than the data's, train a new head", NULL},
    {"add_tokens", GX_FIELD_PATH, GX__OPTIONS_AT(add_tokens), "",
     "file of tokens to add to the tokenizer: one per line, or, if it is named .json, a list of texts or of AddedToken "
     "objects (content, special, lstrip, rstrip, normalized), or {\"token\": id}; tokens that the tokenizer already "
     "has are skipped. The embedding, and a head over tokens, get rows for the new ones, each the mean of the existing "
     "rows; rows that --model has beyond its tokens are used first, unchanged",
     NULL},
    {"resume", GX_FIELD_PATH, GX__OPTIONS_AT(resume), "",
     "continue a run with its options; auto: from the newest complete checkpoint in output_dir, if there is one; "
     "FOLDER: from this checkpoint",
     NULL},
    {"overwrite_output_dir", GX_FIELD_BOOL, GX__OPTIONS_AT(overwrite_output_dir), "false",
     "let a new run replace the one in output_dir", NULL},
    {"ranks", GX_FIELD_INT, GX__OPTIONS_AT(ranks), "1",
     "number of ranks, as threads of this process (leave it out under mpirun)", "1..256"},
    {"world", GX_FIELD_INT, GX__OPTIONS_AT(world), "1",
     "number of ranks, as processes started by hand, each with its own --rank and the same --init", "1..256"},
    {"rank", GX_FIELD_INT, GX__OPTIONS_AT(rank), "0", "number of this process among them, starting at 0", "0..255"},
    {"init", GX_FIELD_STRING, GX__OPTIONS_AT(init), "",
     "address where the processes meet, tcp://host:port; rank 0 listens there", NULL},
    {"plan", GX_FIELD_PATH, GX__OPTIONS_AT(plan), "",
     "who computes what; auto: measure all ranks and the links between them, and find the assignment of layers and "
     "samples with the shortest step, which may leave out a slow machine; otherwise as in this plan.json, which auto "
     "has written",
     NULL},
    {"machines", GX_FIELD_PATH, GX__OPTIONS_AT(machines), "",
     "with --plan auto: take the speeds of machines and links from this machines.json, which --plan auto has written, "
     "instead of measuring them",
     NULL},
    {"simulate", GX_FIELD_PATH, GX__OPTIONS_AT(simulate), "",
     "predict a step on the machines of this machines.json, arranged as the other options say (--pp, --tp, --zero, "
     "...), "
     "and stop: where its time goes, memory, slow machines, failures, and a picture of the schedule; the machines need "
     "not be there",
     NULL},
    {"machines_count", GX_FIELD_INT, GX__OPTIONS_AT(machines_count), "0",
     "with --simulate: the number of machines, instead of the file's; 0: the file's", "0..1000000"},
    {"threads", GX_FIELD_INT, GX__OPTIONS_AT(threads), "0",
     "CPU threads of each rank; 0: the cores that the process may use, divided by the ranks on this machine",
     "0..1024"},
    {"timeout", GX_FIELD_DOUBLE, GX__OPTIONS_AT(timeout), "600", "seconds to wait for another rank before giving up",
     "1.."},
    {"device", GX_FIELD_STRING, GX__OPTIONS_AT(device), "auto",
     "device to compute on; auto: the one that the program was built for", "auto|cpu|cuda"},
    {"device_comm", GX_FIELD_STRING, GX__OPTIONS_AT(device_comm), "auto",
     "cuda: how buffers move between cards: nccl, or host (through the host's memory); auto: nccl if every rank has a "
     "card of its own",
     "auto|nccl|host"},
    {"precision", GX_FIELD_STRING, GX__OPTIONS_AT(precision), "fp32",
     "data type of weights and activations; master weights, moments and gradients are always fp32", "fp32|bf16"},
    {"tf32", GX_FIELD_BOOL, GX__OPTIONS_AT(tf32), "false",
     "cuda with fp32: round the inputs of matrix products to TF32 (10 bits of mantissa), so that tensor cores compute "
     "them; attention stays in fp32",
     NULL},
    {"autotune", GX_FIELD_PATH, GX__OPTIONS_AT(autotune), "",
     "file with the fastest algorithm for each shape of matrix product (one of cuBLASLt's, or on the CPU oneDNN's "
     "sgemm, its matmul, or Galaxy's own kernels); shapes that it lacks are timed in the first step, and added",
     NULL},
    {"cuda_graphs", GX_FIELD_BOOL, GX__OPTIONS_AT(cuda_graphs), "false",
     "cuda: capture the kernels of a micro-batch, or those between two collectives, once, and launch them as one CUDA "
     "graph",
     NULL},
    {"head_chunk", GX_FIELD_INT, GX__OPTIONS_AT(head_chunk), "512",
     "rows of logits computed at once; fewer need less memory and more time", "1..1000000000"},
    {"reduce_bucket", GX_FIELD_INT, GX__OPTIONS_AT(reduce_bucket), "0",
     "with several ranks: number of layers whose gradients are summed together, while the backward pass of the layers "
     "below runs; 0: all at once, after the backward pass. The result is bitwise the same",
     "0..100000"},
    {"overlap", GX_FIELD_BOOL, GX__OPTIONS_AT(overlap), "true",
     "with several ranks: communicate while computing, by a second thread of each rank where ranks have no cards of "
     "their own: weights are gathered before they are needed, gradients summed and rows of stages sent while others "
     "are computed; takes some memory. The result is bitwise the same",
     NULL},
    {"recompute", GX_FIELD_LONG_TEXT, GX__OPTIONS_AT(recompute), "none",
     "what is not kept, but computed again in the backward pass, which saves memory and takes time. none; layer: all "
     "but the input of each layer; mlp, att: what an MLP, or attention, keeps between its input and its result; "
     "att+mlp: both (these three not with --pipeline_schedule zb1p or zbv). Of some layers, numbered from 0, a "
     "decoder's "
     "behind its encoder's: layer:0-5,mlp:6,8-11; layers that are not named are kept. auto: none, or one of these of "
     "as few layers as fit "
     "into the memory, whichever takes the fewest FLOPs. The result is bitwise the same",
     NULL},
    {"memory_limit", GX_FIELD_STRING, GX__OPTIONS_AT(memory_limit), "0",
     "most memory that all ranks on a machine, or on a card if ranks compute on cards, may need together, such as "
     "8GB; 0: what is free there",
     NULL},
    {"offload", GX_FIELD_STRING, GX__OPTIONS_AT(offload), "none",
     "what of a rank's memory is kept in a file in --offload_dir, for models that are larger than the memory: none, or "
     "optimizer (moments, and the fp32 weights behind bf16), gradients, activations, parameters; several with commas. "
     "The result is bitwise the same",
     NULL},
    {"offload_dir", GX_FIELD_PATH, GX__OPTIONS_AT(offload_dir), "",
     "a folder on a fast disk for --offload; each machine has its own; the file in it has no name, and is gone when "
     "the run ends",
     NULL},
    {"freeze", GX_FIELD_STRING, GX__OPTIONS_AT(freeze), "",
     "tensors that are not trained, by their names in the checkpoint, such as 'model.embed_tokens*,*.layers.?.*'; with "
     "bf16 they have no fp32 master weights, and are saved as rounded to bf16",
     NULL},
    {"dry_run", GX_FIELD_BOOL, GX__OPTIONS_AT(dry_run), "false",
     "print the memory plan and the FLOPs, and stop; no weights or data are read", NULL},
    {"evaluate", GX_FIELD_BOOL, GX__OPTIONS_AT(evaluate), "false",
     "validate the model of --resume or --model on all held-out samples, and stop; no file is written", NULL},
    {"sample_only", GX_FIELD_BOOL, GX__OPTIONS_AT(sample_only), "false",
     "print a sample of what the model of --resume or --model writes, and stop; no file is written", NULL},
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
    GX_TRY(gx_config_add_alias(c, "eval_windows", "max_eval_samples", err)); // its name in version 0.1; goes with 0.3
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
