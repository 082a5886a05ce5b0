// options.h: the options that all training programs share: their table, and what their words mean (GxChosen). What
// follows from them: options_mode.h, options_batch.h, options_mesh.h, epochs.h. (The options of a task, such as its
// data, are in task/; those of tuning are in tuning.h.)
#ifndef GX_OPTIONS_H
#define GX_OPTIONS_H
#include "../base/partition.h"
#include "../io/config.h"
#include "../model/mode.h"
#include "../parallel/steps_write.h"
#include "optimizer.h"
#include "other_names.h"
#include "tuning.h"
GX_BEGIN

typedef struct {
    int64_t seq_len;
    // batch: global_batch_size = gradient_accumulation_steps * (micro_batch_size * copies of the model, or the sum of
    // dp_batch_size_list)
    int64_t micro_batch_size, gradient_accumulation_steps, global_batch_size;
    GxIntList dp_batch_size_list;
    // optimization
    int64_t max_steps, seed;
    double num_train_epochs; // above 0: max_steps follows from it (epochs.h)
    char optimizer[GX_FIELD_TEXT], lr_scheduler_type[GX_FIELD_TEXT];
    double learning_rate, min_lr_ratio;
    int64_t warmup_steps, lr_decay_steps;
    double warmup_ratio; // above 0: warmup_steps follows from it
    double adam_beta1, adam_beta2, adam_epsilon, weight_decay, momentum, max_grad_norm;
    // what is logged and saved
    int64_t logging_steps, profile_steps, eval_steps, eval_windows, save_steps, save_total_limit;
    char report_to[GX_FIELD_TEXT];
    char save_dtype[GX_FIELD_TEXT], max_shard_size[GX_FIELD_TEXT];
    // which validation is the best, and what that decides
    char metric_for_best_model[GX_FIELD_TEXT], greater_is_better[GX_FIELD_TEXT];
    int load_best_model_at_end;
    int64_t early_stopping_patience;
    double early_stopping_threshold;
    char output_dir[GX_PATH], model[GX_PATH], resume[GX_PATH], add_tokens[GX_PATH];
    // the mode, unless the program has one of its own; how it splits the model among the ranks of a tp group
    char mode[GX_FIELD_TEXT], att[GX_FIELD_TEXT], con[GX_FIELD_TEXT], mlp[GX_FIELD_TEXT], ends[GX_FIELD_TEXT];
    int64_t tp, pp, dp_shard, dp_replicate;
    char zero[GX_FIELD_TEXT]; // what the ranks of dp_shard share: GxSharded as a number, by gx_options_resolve_mesh
    GxIntList dp_shard_list;
    int shard_grads_in_window;
    int64_t gathered_units;
    GxIntList stage_num_hidden_layers_list;
    char pipeline_schedule[GX_FIELD_TEXT]; // "": the program's own schedule says it
    GxIntList tp_num_attention_heads_list, tp_intermediate_size_list, tp_vocab_size_list, seq_scatter_list;
    // the machine
    int64_t ranks, world, rank, threads;
    char init[GX_FIELD_TEXT];
    double timeout;
    char device[GX_FIELD_TEXT], device_comm[GX_FIELD_TEXT], precision[GX_FIELD_TEXT];
    int tf32, cuda_graphs;
    char autotune[GX_PATH];
    int64_t head_chunk;
    int64_t reduce_bucket;
    char recompute[GX_FIELD_TEXT], freeze[GX_FIELD_TEXT];
    GxTuningOptions tuning;
    int dry_run, evaluate, sample_only, overwrite_output_dir, strict, ignore_mismatched_sizes;
    const char *predicts; // the name of the task's option that asks for predictions (task/task.h); NULL: not asked for
} GxTrainOptions;

// What the options' words mean. Everything behind the reading of the options goes by this, not by their texts.
typedef enum { GX_SIDE_CACHE_NONE = 0, GX_SIDE_CACHE_DISK, GX_SIDE_CACHE_MEMORY } GxSideCachePlace;
typedef struct {
    GxDtype dtype, save_dtype; // --precision, --save_dtype
    GxTuningMethod tuning;
    GxSideCachePlace side_cache;
    GxOptimizerKind optimizer;
    GxSharded sharded;     // --zero
    int order;             // GxStepsOrder of the program's own schedule, or of --pipeline_schedule
    int recomputes_layers; // --recompute layer
    int better;            // --greater_is_better: +1: larger is better; -1: smaller is; 0: as the task says
    int resumes_auto;      // --resume auto
} GxChosen;
// Call it when the options are resolved. schedule: the program's own; NULL: none.
GxChosen gx_options_choose(const GxTrainOptions *o, const GxStepsSchedule *schedule);
static inline GxDtype gx_options_dtype(const char *name) // "fp32", "bf16", "fp16"
{
    return !strcmp(name, "bf16") ? GX_BF16 : !strcmp(name, "fp16") ? GX_F16 : GX_F32;
}

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

// 1: the program validates, samples or predicts, and trains nothing.
int gx_options_is_inference(const GxTrainOptions *o);
int gx_options_embeds(const GxTrainOptions *o); // 1: it writes vectors of texts
// Which of --report_to's names are there. Refuses others.
GxStatus gx_options_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err);

// Held-out samples of a validation on the way (is_last 0), or of the one that a run ends with; 0: all.
int64_t gx_options_eval_windows(const GxTrainOptions *o, int is_last);

// The value of max_shard_size in bytes: a number followed by KB, MB, GB (10^3, 10^6, 10^9) or nothing; 0: one file.
GxStatus gx_options_shard_bytes(const GxTrainOptions *o, int64_t *bytes, GxError *err);

// Refuses a list for something that the mode does not split.
GxStatus gx_options_check_lists(const GxTrainOptions *o, const GxMode *mode, GxError *err);

// Checks resolved values against the ranges of their options, so that training_args.json can be read again.
GxStatus gx_options_check_sizes(const GxTrainOptions *o, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIONS_IMPLEMENTED)
#define GX_OPTIONS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__OPTIONS_EVAL_WINDOWS = 64 }; // of --eval_windows -1

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
#define GX__OPTIONS_STAGES                                                                                             \
    "stages of a pipeline, among which the ranks are divided: each has some of the layers, the first the embedding, "  \
    "the last the head; micro-batches (--gradient_accumulation_steps, four for each stage or more) follow each other"
static const GxField gx__options_tp_options[] = {
    {"tp", GX_FIELD_INT, GX__OPTIONS_AT(tp), "0",
     "ranks that share each layer; the others are stages (--pp) and data-parallel copies. 0: all that stages leave, if "
     "the mode splits anything",
     "0..256"},
};
static const GxField gx__options_stage_options[] = {
    {"pp", GX_FIELD_INT, GX__OPTIONS_AT(pp), "1", GX__OPTIONS_STAGES, "1..256"},
    {"pipeline_schedule", GX_FIELD_STRING, GX__OPTIONS_AT(pipeline_schedule), "1f1b",
     "order of a pipeline's micro-batches: 1f1b; gpipe, all forwards first; zb1p, 1f1b whose weights' gradients fill "
     "the gaps; two stages on each rank: interleaved, and zbv, whose second ones go back, so that the first rank has "
     "the head, too. The result is the same",
     "1f1b|gpipe|interleaved|zb1p|zbv"},
};
// Of a program with a schedule of its own.
static const GxField gx__options_own_stage_options[] = {
    {"pp", GX_FIELD_INT, GX__OPTIONS_AT(pp), "0", GX__OPTIONS_STAGES ". 0: all ranks, or all that --tp leaves",
     "0..256"},
};
static const GxField gx__options_layer_options[] = {
    {"stage_num_hidden_layers_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(stage_num_hidden_layers_list), NULL,
     "layers of each stage, for unequal machines: 20,12. With two stages on each rank: of the ranks' first stages, "
     "then "
     "of the second ones, in the order of the layers",
     "1..65536"},
};
static const GxField gx__options_shard_options[] = {
    {"zero", GX_FIELD_STRING, GX__OPTIONS_AT(zero), "auto",
     "what data-parallel ranks share, each having a part, instead of each having all of it: 1 the optimizer's state; 2 "
     "gradients, too; 3 weights, too (FSDP); 0 nothing. auto: 3 with --dp_shard or --dp_shard_list, else 0. "
     "The result is the same, but for rounding where there are copies (--dp_replicate)",
     "auto|0|1|2|3"},
    {"dp_shard", GX_FIELD_INT, GX__OPTIONS_AT(dp_shard), "0",
     "data-parallel ranks that share what --zero says; where there are more, each further group of as many is a copy "
     "(HSDP). 0: all, if --zero is not 0; -1: all",
     "-1..256"},
    {"dp_replicate", GX_FIELD_INT, GX__OPTIONS_AT(dp_replicate), "0",
     "such groups, each of which has the whole model; 0: as many as --dp_shard leaves ranks for", "0..256"},
    {"dp_shard_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(dp_shard_list), NULL,
     "the share of each rank of --dp_shard, for unequal memories: 3,1", "1..65536"},
    {"shard_grads_in_window", GX_FIELD_BOOL, GX__OPTIONS_AT(shard_grads_in_window), "false",
     "with --zero 2 or 3: gradients are summed and shared out behind each micro-batch, not only behind a step's last: "
     "less memory, more communication",
     NULL},
    {"gathered_units", GX_FIELD_INT, GX__OPTIONS_AT(gathered_units), "0",
     "with --zero 3: so many units (the embedding, a layer, the head) are whole on a rank at once, at most; more take "
     "more memory and spare communication. 0: two, or three where the head is the embedding's",
     "0..4096"},
};
// Of a program whose schedule shards everything.
static const GxField gx__options_own_shard_options[] = {
    {"tp", GX_FIELD_INT, GX__OPTIONS_AT(tp), "1", "ranks that share each layer in another way, as the mode says",
     "1..256"},
    {"dp_shard", GX_FIELD_INT, GX__OPTIONS_AT(dp_shard), "0",
     "ranks that share every unit, the embedding, layers, the head; where there are more, as many again are a copy "
     "(HSDP). 0 or -1: all that --tp leaves",
     "-1..256"},
    {"dp_replicate", GX_FIELD_INT, GX__OPTIONS_AT(dp_replicate), "0",
     "such groups, each of which has the whole model; 0: as many as --dp_shard leaves ranks for", "0..256"},
    {"shard_grads_in_window", GX_FIELD_BOOL, GX__OPTIONS_AT(shard_grads_in_window), "false",
     "gradients are summed and shared out behind each micro-batch, not only behind a step's last: less memory, more "
     "communication",
     NULL},
};
static const struct {
    GxField field;
    const char *what; // what the list splits
    const char *how;  // what a mode must have to use it
} gx__options_lists[] = {
    {{"tp_num_attention_heads_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(tp_num_attention_heads_list), NULL,
      "query heads of each rank of a tp group, for unequal machines: 4,2", "1..65536"},
     "attention's heads",
     "ATT by TP"},
    {{"tp_intermediate_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(tp_intermediate_size_list), NULL,
      "MLP columns of each: 320,192", "1..4194304"},
     "the MLP's columns",
     "MLP by TP"},
    {{"tp_vocab_size_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(tp_vocab_size_list), NULL,
      "rows of embedding and head of each: 160,96", "1..16777216"},
     "the vocabulary",
     "the ends by TP"},
    {{"seq_scatter_list", GX_FIELD_INT_LIST, GX__OPTIONS_AT(seq_scatter_list), NULL,
      "tokens of a sample of each, where a block is split by the sequence: 160,96", "1..16777216"},
     "the sequence",
     "a block by SP"},
};
enum { GX__OPTIONS_LISTS = sizeof gx__options_lists / sizeof *gx__options_lists };
static const GxField gx__options_mode_options[] = {
    {"mode", GX_FIELD_STRING, GX__OPTIONS_AT(mode), "serial", "how one copy of the model is split over ranks",
     GX_MODE_NAMES},
    {"att", GX_FIELD_STRING, GX__OPTIONS_AT(att), "auto",
     "instead of a mode: attention, split by heads (tp) or by the sequence (sp); auto: as --mode says, or none",
     "auto|none|tp|sp"},
    {"con", GX_FIELD_STRING, GX__OPTIONS_AT(con), "auto",
     "what joins attention and MLP to the stream, split by the sequence; auto: as --mode says, or none",
     "auto|none|sp"},
    {"mlp", GX_FIELD_STRING, GX__OPTIONS_AT(mlp), "auto",
     "the MLP, split by columns or by the sequence; auto: as --mode says, or none", "auto|none|tp|sp"},
    {"ends", GX_FIELD_STRING, GX__OPTIONS_AT(ends), "auto",
     "embedding and head, split by the vocabulary or by the sequence; auto: as suits the others", "auto|none|tp|sp"},
};

static int gx__options_list_applies(GxMethods m, int list) // 1: these methods split what the list is for
{
    const int splits[GX__OPTIONS_LISTS] = {m.att == GX_METHOD_TP, m.mlp == GX_METHOD_TP, m.ends == GX_METHOD_TP,
                                           gx_methods_have(m, GX_METHOD_SP)};
    return splits[list];
}

static const GxField *gx__options_find(const char *name)
{
    const GxField *found = gx_field_find(GX_FIELDS(gx__options_train_options), name);
    for (int i = 0; i < GX__OPTIONS_LISTS && !found; i++) found = gx_field_find(&gx__options_lists[i].field, 1, name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_tp_options), name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_stage_options), name);
    if (!found) found = gx_field_find(GX_FIELDS(gx__options_layer_options), name);
    return found ? found : gx_field_find(GX_FIELDS(gx__options_shard_options), name);
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

static GxStatus gx__options_add_stages(GxConfig *c, GxTrainOptions *o, const GxStepsSchedule *schedule,
                                       const char *title, const char *program, GxError *err)
{
    const GxField *order = gx_field_find(GX_FIELDS(gx__options_stage_options), "pipeline_schedule");
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_tp_options), o, err));
    if (schedule) {
        GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_own_stage_options), o, err));
        GX_TRY(gx_config_add_elsewhere(c, order, 1, program, err));
        o->pipeline_schedule[0] = 0; // since no option sets it
    } else GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_stage_options), o, err));
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_layer_options), o, err));
    return gx_config_add(c, title, GX_FIELDS(gx__options_shard_options), o, err);
}

// Of a program whose schedule shards everything, on one stage.
static GxStatus gx__options_add_own_shards(GxConfig *c, GxTrainOptions *o, const char *title, const char *program,
                                           GxError *err)
{
    static const char *const elsewhere[] = {"pp", "pipeline_schedule", "stage_num_hidden_layers_list", "zero",
                                            "gathered_units"};
    GX_TRY(gx_config_add(c, title, GX_FIELDS(gx__options_own_shard_options), o, err));
    GX_TRY(gx_config_add(c, title, gx__options_find("dp_shard_list"), 1, o, err));
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        GX_TRY(gx_config_add_elsewhere(c, gx__options_find(elsewhere[i]), 1, program, err));
    o->pp = 1, o->pipeline_schedule[0] = 0; // since no option sets them
    snprintf(o->zero, sizeof o->zero, "3");
    return GX_OK;
}

GxStatus gx_options_add(GxConfig *c, GxTrainOptions *o, const GxMode *mode, const GxStepsSchedule *schedule,
                        const char *family, GxError *err)
{
    static const char copies[] = "one copy of the model on several ranks";
    char program[32], other[80];
    snprintf(program, sizeof program, "train_%.24s", family);
    gx_config_set_hints(c, gx_other_names, gx_other_names_n);
    GX_TRY(gx_config_add(c, "training", GX_FIELDS(gx__options_train_options), o, err));
    GX_TRY(gx_tuning_add(c, &o->tuning, err));
    if (mode) GX_TRY(gx_config_add_elsewhere(c, GX_FIELDS(gx__options_mode_options), program, err));
    else GX_TRY(gx_config_add(c, "mode", GX_FIELDS(gx__options_mode_options), o, err));
    if (schedule && schedule->has_shards) GX_TRY(gx__options_add_own_shards(c, o, copies, program, err));
    else GX_TRY(gx__options_add_stages(c, o, schedule, copies, program, err));
    for (int i = 0; i < GX__OPTIONS_LISTS; i++) {
        const GxField *list = &gx__options_lists[i].field;
        if (!mode || gx__options_list_applies(mode->methods, i)) {
            GX_TRY(gx_config_add(c, copies, list, 1, o, err));
            continue;
        }
        snprintf(other, sizeof other, "%s with a mode that has %s", program, gx__options_lists[i].how);
        memset(gx_field_at(list, o), 0, gx_field_size(list)); // since no option sets it
        GX_TRY(gx_config_add_elsewhere(c, list, 1, other, err));
    }
    return GX_OK;
}

int gx_options_is_inference(const GxTrainOptions *o) { return o->evaluate || o->sample_only || o->predicts; }
int gx_options_embeds(const GxTrainOptions *o) { return o->predicts && !strcmp(o->predicts, "embed"); }

GxChosen gx_options_choose(const GxTrainOptions *o, const GxStepsSchedule *schedule)
{
    GxChosen c = GX_ZERO;
    const char *cache = o->tuning.side_cache, *better = o->greater_is_better;
    c.dtype = gx_options_dtype(o->precision), c.save_dtype = gx_options_dtype(o->save_dtype);
    c.tuning = gx_tuning_method(o->tuning.tuning);
    c.side_cache = !strcmp(cache, "memory") ? GX_SIDE_CACHE_MEMORY
                   : !strcmp(cache, "disk") ? GX_SIDE_CACHE_DISK
                                            : GX_SIDE_CACHE_NONE;
    c.optimizer = !strcmp(o->optimizer, "sgd") ? GX_OPTIMIZER_SGD : GX_OPTIMIZER_ADAMW;
    c.sharded = (GxSharded)atoi(o->zero);
    c.order = schedule ? schedule->order : GX_ORDER_1F1B;
    for (int i = 0; i < GX_ORDERS && !schedule; i++)
        if (!strcmp(gx_order_info(i)->name, o->pipeline_schedule)) c.order = i;
    c.recomputes_layers = !strcmp(o->recompute, "layer");
    c.better = !strcmp(better, "auto") ? 0 : !strcmp(better, "true") ? 1 : -1;
    c.resumes_auto = !strcmp(o->resume, "auto");
    return c;
}

GxStatus gx_options_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err)
{
    char name[GX_FIELD_TEXT];
    int names = 0, none = 0;
    *tensorboard = 0;
    for (const char *from = o->report_to; from; from = strchr(from, ','), from = from ? from + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(from, ","), from);
        const int is_none = !strcmp(name, "none"), is_tensorboard = !strcmp(name, "tensorboard");
        if (!is_none && !is_tensorboard)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--report_to is \"%s\", and there is nothing called \"%s\" to report to; expected none, or "
                           "tensorboard (log.jsonl is always written)",
                           o->report_to, name);
        names++, none += is_none, *tensorboard |= is_tensorboard;
    }
    if (none && names > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--report_to is \"%s\", and none stands alone; leave it out",
                       o->report_to);
    return GX_OK;
}

int64_t gx_options_eval_windows(const GxTrainOptions *o, int is_last)
{
    return o->eval_windows >= 0 ? o->eval_windows : is_last ? 0 : GX__OPTIONS_EVAL_WINDOWS;
}

GxStatus gx_options_shard_bytes(const GxTrainOptions *o, int64_t *bytes, GxError *err)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    char *end = NULL;
    const double number = strtod(o->max_shard_size, &end);
    *bytes = -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end > o->max_shard_size && !strcmp(end, units[i].name) && number >= 0 && number * units[i].bytes < 1e18)
            *bytes = (int64_t)(number * units[i].bytes);
    if (*bytes >= 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--max_shard_size is \"%s\"; expected a size such as 500MB or 5GB, or 0",
                   o->max_shard_size);
}

GxStatus gx_options_check_lists(const GxTrainOptions *o, const GxMode *mode, GxError *err)
{
    for (int i = 0; i < GX__OPTIONS_LISTS; i++) {
        const GxIntList *list = (const GxIntList *)gx_field_in(&gx__options_lists[i].field, o);
        if (list->n && !gx__options_list_applies(mode->methods, i))
            return GX_FAIL(
                err, GX_ERR_ARGUMENT, "--%s: mode %s does not split %s; leave it out, or take a mode with %s",
                gx__options_lists[i].field.name, mode->name, gx__options_lists[i].what, gx__options_lists[i].how);
    }
    return GX_OK;
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
