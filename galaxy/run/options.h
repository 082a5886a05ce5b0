// options.h: the options that all training programs share, as one struct. Their names, defaults and help are in
// options_table.h, the meaning of their values is in options_chosen.h; what follows from them is in options_mode.h,
// options_lists.h, options_mesh.h, options_batch.h and epochs.h. (The options of a task, such as its data, are in
// task/; those of tuning are in tuning.h.)
#ifndef GX_OPTIONS_H
#define GX_OPTIONS_H
#include "../base/fields.h"
#include "tuning.h"
GX_BEGIN

typedef struct {
    int64_t seq_len;
    // batch: global_batch_size = gradient_accumulation_steps * (micro_batch_size * copies of the model, or the sum of
    // dp_batch_size_list), or the sum of dp_samples_list
    int64_t micro_batch_size, gradient_accumulation_steps, global_batch_size;
    GxIntList dp_batch_size_list, dp_samples_list;
    char rebalance[GX_FIELD_TEXT];
    // optimization
    int64_t max_steps, seed;
    double num_train_epochs; // above 0: max_steps follows from it (epochs.h)
    char optimizer[GX_FIELD_TEXT], lr_scheduler_type[GX_FIELD_TEXT];
    double learning_rate, min_lr_ratio;
    int64_t warmup_steps, lr_decay_steps;
    double warmup_ratio; // above 0: warmup_steps follows from it
    double adam_beta1, adam_beta2, adam_epsilon, weight_decay, momentum, max_grad_norm, label_smoothing_factor;
    // what is logged and saved
    int64_t logging_steps, profile_steps, eval_steps, max_eval_samples, save_steps, save_total_limit;
    char report_to[GX_FIELD_TEXT];
    // what is measured
    int64_t profile_flops, trace_steps;
    double peak_tflops;
    char trace[GX_PATH], plot_memory[GX_PATH];
    char save_dtype[GX_FIELD_TEXT], max_shard_size[GX_FIELD_TEXT];
    // which validation is the best, and what that decides
    char metric_for_best_model[GX_FIELD_TEXT], greater_is_better[GX_FIELD_TEXT];
    int load_best_model_at_end;
    int64_t early_stopping_patience;
    double early_stopping_threshold;
    char output_dir[GX_PATH], model[GX_PATH], resume[GX_PATH], add_tokens[GX_PATH];
    // the mode, unless the program has one of its own; how it splits the model among the ranks of a tp group
    char mode[GX_FIELD_TEXT], att[GX_FIELD_TEXT], con[GX_FIELD_TEXT], mlp[GX_FIELD_TEXT], ends[GX_FIELD_TEXT];
    int64_t tp, pp, dp_shard, dp_replicate, cp, cp_zigzags;
    GxIntList cp_list;
    char cp_method[GX_FIELD_TEXT];
    char zero[GX_FIELD_TEXT]; // what the ranks of dp_shard share: GxSharded as a number, by gx_options_resolve_mesh
    GxIntList dp_shard_list;
    int shard_grads_in_window;
    int64_t gathered_units;
    GxIntList stage_num_hidden_layers_list, stage_warm_list, stage_tp_list;
    char pipeline_schedule[GX_FIELD_TEXT]; // "": the program has a schedule of its own
    GxIntList tp_num_attention_heads_list, tp_intermediate_size_list, tp_vocab_size_list, seq_scatter_list;
    char plan[GX_PATH], machines[GX_PATH]; // planner.h
    char simulate[GX_PATH];                // simulation.h
    int64_t machines_count;
    // the machine
    int64_t ranks, world, rank, threads;
    char init[GX_FIELD_TEXT];
    double timeout;
    char device[GX_FIELD_TEXT], device_comm[GX_FIELD_TEXT], precision[GX_FIELD_TEXT];
    int tf32, cuda_graphs;
    char autotune[GX_PATH];
    int64_t head_chunk;
    int64_t reduce_bucket;
    int overlap;
    char recompute[GX_PATH], memory_limit[GX_FIELD_TEXT], freeze[GX_FIELD_TEXT];
    char offload[GX_FIELD_TEXT], offload_dir[GX_PATH];
    GxTuningOptions tuning;
    int dry_run, evaluate, sample_only, overwrite_output_dir, strict, ignore_mismatched_sizes;
    const char *predicts; // the name of the task's option that asks for predictions (task/task.h); NULL: not asked for
} GxTrainOptions;

GX_END
#endif
