// other_names.h: options of other trainers (Hugging Face's TrainingArguments, example scripts, TRL and PEFT, litgpt,
// torchtune, nanoGPT and llm.c) that do not exist here, each with the option that does the same, or the reason why
// there is none. The message about an unknown option, from a flag or a file, contains it.
//
//     error: there is no option --per_device_train_batch_size; here it is --micro_batch_size
//     error: there is no option --hub_token: nothing is sent to a hub; …; leave it out
//
// They are not accepted as aliases: the same number may mean something else there (warmup_steps below 1, a learning
// rate per card), and a run with options that are only partly understood is worse than an error.
#ifndef GX_OTHER_NAMES_H
#define GX_OTHER_NAMES_H
#include "../io/config.h"
GX_BEGIN

extern const GxConfigHint gx_other_names[]; // gx_other_names_n of them
extern const int gx_other_names_n;

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OTHER_NAMES_IMPLEMENTED)
#define GX_OTHER_NAMES_IMPLEMENTED

#define GX__OTHER_PRECISION "fp32 master weights are always kept, and no loss scale is needed"
#define GX__OTHER_STEPS     "--logging_steps, --eval_steps and --save_steps say how often, in steps"
#define GX__OTHER_READING   "data are mapped into memory, without loader processes"
#define GX__OTHER_HUB       "nothing is sent to a hub; `hf upload NAME FOLDER` sends a checkpoint"
#define GX__OTHER_LOG       "log.jsonl has all that is measured, and the terminal gets a line every --logging_steps"
#define GX__OTHER_COMPILE   "nothing is compiled at run time"
#define GX__OTHER_TASK      "the program trains, and validates at the end; with --evaluate it only validates"
#define GX__OTHER_ATTENTION "attention never writes its scores to memory, as in FlashAttention"
#define GX__OTHER_TRUST     "code in a model's folder is never run"
const GxConfigHint gx_other_names[] = {
    // batches
    {"per_device_train_batch_size", "micro_batch_size", NULL},
    {"per_gpu_train_batch_size", "micro_batch_size", NULL},
    {"per_device_eval_batch_size", "micro_batch_size", "a validation's batches are as large as those of training"},
    {"per_gpu_eval_batch_size", "micro_batch_size", "a validation's batches are as large as those of training"},
    {"train_batch_size", "global_batch_size", "of all ranks together"},
    {"total_batch_size", "global_batch_size", "in samples, not in tokens"},
    {"batch_size", "micro_batch_size", NULL},
    {"eval_accumulation_steps", "", "a validation keeps sums, and no logits that would have to be moved"},
    {"auto_find_batch_size", "dry_run", "it prints the memory that a --micro_batch_size needs, without training"},
    {"grad_accum", "gradient_accumulation_steps", NULL},
    {"accumulate_grad_batches", "gradient_accumulation_steps", NULL},
    // length of the run
    {"epochs", "num_train_epochs", NULL},
    {"num_epochs", "num_train_epochs", NULL},
    {"max_epochs", "num_train_epochs", NULL},
    {"num_iterations", "max_steps", NULL},
    {"max_iters", "max_steps", NULL},
    {"max_steps_per_epoch", "max_steps", "steps of the whole run"},
    {"max_train_steps", "max_steps", NULL},
    {"warmup_iters", "warmup_steps", NULL},
    {"lr_warmup_steps", "warmup_steps", NULL},
    {"num_warmup_steps", "warmup_steps", NULL},
    // the optimizer
    {"optim", "optimizer", "adamw or sgd"},
    {"optim_args", "", "use --adam_beta1, --adam_beta2, --adam_epsilon and --momentum"},
    {"lr", "learning_rate", NULL},
    {"min_lr", "min_lr_ratio", "a fraction of the learning rate"},
    {"learning_rate_decay_frac", "min_lr_ratio", NULL},
    {"decay_lr", "lr_scheduler_type constant", "for none"},
    {"lr_decay_iters", "max_steps", "the learning rate decays up to the last step"},
    {"lr_scheduler", "lr_scheduler_type", NULL},
    {"lr_scheduler_kwargs", "min_lr_ratio", "for the smallest rate; --lr_decay_steps for the decay of wsd"},
    {"beta1", "adam_beta1", NULL},
    {"beta2", "adam_beta2", NULL},
    {"adam_beta", "adam_beta1", "and --adam_beta2"},
    {"adam_eps", "adam_epsilon", NULL},
    {"eps", "adam_epsilon", NULL},
    {"wd", "weight_decay", NULL},
    {"grad_clip", "max_grad_norm", NULL},
    {"gradient_clip_val", "max_grad_norm", NULL},
    {"clip_grad_norm", "max_grad_norm", NULL},
    {"max_norm", "max_grad_norm", NULL},
    {"label_smoothing_factor", "", "labels are not smoothed"},
    {"neftune_noise_alpha", "", "no noise is added to embeddings"},
    {"adafactor", "", "there are --optimizer adamw and sgd"},
    {"dropout", "", "a causal model has no dropout; a BERT has --hidden_dropout_prob, and LoRA --lora_dropout"},
    // precision and memory
    {"bf16", "precision bf16", GX__OTHER_PRECISION},
    {"fp16", "precision bf16", "fp16 is not supported for computing; " GX__OTHER_PRECISION},
    {"half_precision_backend", "precision bf16", GX__OTHER_PRECISION},
    {"fp16_opt_level", "precision bf16", GX__OTHER_PRECISION},
    {"bf16_full_eval", "precision bf16", "validations are computed as the training is"},
    {"fp16_full_eval", "precision bf16", "validations are computed as the training is"},
    {"dtype", "precision", "fp32 or bf16"},
    {"torch_dtype", "precision", "fp32 or bf16"},
    {"mixed_precision", "precision bf16", GX__OTHER_PRECISION},
    {"gradient_checkpointing", "recompute layer", NULL},
    {"gradient_checkpointing_kwargs", "recompute layer", NULL},
    {"activation_checkpointing", "recompute layer", NULL},
    {"enable_activation_checkpointing", "recompute layer", NULL},
    {"activation_checkpointing_kwargs", "recompute layer", NULL},
    {"activation_offloading", "recompute layer", "activations are recomputed, not moved to the host"},
    {"torch_compile*", "", GX__OTHER_COMPILE},
    {"compile", "", GX__OTHER_COMPILE},
    {"attn_implementation", "", GX__OTHER_ATTENTION},
    {"flash", "", GX__OTHER_ATTENTION},
    {"use_flash_attn", "", GX__OTHER_ATTENTION},
    {"use_liger_kernel", "", "the head never holds all logits at once: --head_chunk says how many rows"},
    {"low_cpu_mem_usage", "", "weights are always read from their files into their places"},
    // several ranks
    {"fsdp", "zero 3", NULL},
    {"fsdp_*", "zero 3", NULL},
    {"use_fsdp", "zero 3", NULL},
    {"deepspeed*", "zero", "1, 2 or 3, as in DeepSpeed's stages"},
    {"zero_stage", "zero", NULL},
    {"tensor_parallel_size", "tp", "with a --mode that splits a layer: tp, sp, galaxy"},
    {"pipeline_parallel_size", "pp", NULL},
    {"tensor_parallel_dim", "tp", "with a --mode that splits a layer: tp, sp, galaxy"},
    {"data_parallel_shard_dim", "dp_shard", NULL},
    {"data_parallel_replicate_dim", "dp_replicate", NULL},
    {"devices", "ranks", "threads of one process; mpirun -n N starts processes instead"},
    {"nproc_per_node", "ranks", "threads of one process; mpirun -n N starts processes instead"},
    {"local_rank", "", "MPI or torchrun sets it in the environment; without them use --rank and --world"},
    {"ddp_timeout", "timeout", NULL},
    {"ddp_bucket_cap_mb", "reduce_bucket", "in layers"},
    {"ddp_*", "", "gradients are summed by fixed rules, with the same bits for any engine"},
    {"use_cpu", "device cpu", NULL},
    {"no_cuda", "device cpu", NULL},
    // logs and checkpoints
    {"logging_dir", "report_to tensorboard", "its files are in output_dir/runs"},
    {"tensorboard", "report_to tensorboard", NULL},
    {"log_interval", "logging_steps", NULL},
    {"log_every_n_steps", "logging_steps", NULL},
    {"logging_strategy", "logging_steps", "in steps"},
    {"logging_first_step", "", "the first step is always logged"},
    {"log_level*", "", GX__OTHER_LOG},
    {"disable_tqdm", "", GX__OTHER_LOG},
    {"run_name", "output_dir", "its name is the run's"},
    {"wandb*", "", GX__OTHER_LOG "; --report_to tensorboard writes its files"},
    {"evaluation_strategy", "eval_steps", "in steps; 0: at the end only"},
    {"eval_strategy", "eval_steps", "in steps; 0: at the end only"},
    {"eval_interval", "eval_steps", NULL},
    {"val_loss_every", "eval_steps", NULL},
    {"eval_iters", "max_eval_samples", "in samples"},
    {"val_max_steps", "max_eval_samples", "in samples"},
    {"eval_on_start", "evaluate", "it is a separate run before the training"},
    {"eval_delay", "", GX__OTHER_STEPS},
    {"save_strategy", "save_steps", "in steps; 0: at the end only"},
    {"save_interval", "save_steps", NULL},
    {"save_safetensors", "", "weights are always saved as safetensors"},
    {"save_only_model", "", "a checkpoint always has what resuming needs; --model reads only its weights"},
    {"out_dir", "output_dir", NULL},
    {"resume_from_checkpoint", "resume", "auto, or a checkpoint's folder"},
    {"init_from", "model", "a folder; --resume continues a run"},
    {"ignore_data_skip", "", "a resumed run finds its samples by number, without reading those before"},
    {"push_to_hub*", "", GX__OTHER_HUB},
    {"hub_*", "", GX__OTHER_HUB},
    {"do_train", "", GX__OTHER_TASK},
    {"do_eval", "evaluate",
     "it validates a model and trains nothing; after a training the held-out samples are always validated"},
    {"do_predict", "predict", NULL},
    {"inference_only", "sample_only", NULL},
    {"sample_every", "sample_tokens",
     "a sample is always written at the end; ./generate_llama writes from any checkpoint"},
    {"data_seed", "seed", NULL},
    {"full_determinism", "", "a run always gives the same bits for the same number of threads"},
    // the model and its data
    {"model_name_or_path", "model", "a folder"},
    {"model_id", "model", "a folder"},
    {"checkpoint_dir", "model", "a folder"},
    {"config_name", "model", "the folder of --model has config.json; for a new model set the options of the model"},
    {"tokenizer_name", "tokenizer", NULL},
    {"tokenizer_name_or_path", "tokenizer", NULL},
    {"tokenizer_dir", "tokenizer", NULL},
    {"trust_remote_code", "", GX__OTHER_TRUST},
    {"dataset_name", "train_data", "a file; download data sets of a hub first"},
    {"dataset", "train_data", "a file; download data sets of a hub first"},
    {"data", "train_data", NULL},
    {"data_dir", "train_data", "a folder of .txt and .jsonl, or files: A,B"},
    {"train_file", "train_data", NULL},
    {"input_bin", "train_data", NULL},
    {"validation_file", "validation_data", "other tasks hold out --validation_fraction"},
    {"input_val_bin", "validation_fraction", "the end of --train_data is held out"},
    {"validation_split_percentage", "validation_fraction", "of 1"},
    {"val_split_fraction", "validation_fraction", NULL},
    {"block_size", "seq_len", NULL},
    {"max_length", "seq_len", NULL},
    {"max_seq_length", "seq_len", NULL},
    {"max_seq_len", "seq_len", NULL},
    {"sequence_length", "seq_len", NULL},
    {"seq_length", "seq_len", NULL},
    {"model_max_length", "seq_len", NULL},
    {"cutoff_len", "seq_len", NULL},
    {"max_prompt_length", "seq_len", "prompt and answer together"},
    {"packing", "", "texts and conversations are always packed into samples"},
    {"train_on_inputs", "", "in conversations what the assistant says is learned, in texts everything"},
    {"assistant_only_loss", "", "in conversations exactly what the assistant says is learned"},
    {"completion_only_loss", "", "in conversations exactly what the assistant says is learned"},
    {"dataset_text_field", "", "the text is \"text\" in each line of a .jsonl file"},
    {"dataset_num_proc", "threads", NULL},
    {"preprocessing_num_workers", "threads", NULL},
    {"dataloader_*", "", GX__OTHER_READING},
    {"num_workers", "", GX__OTHER_READING},
    {"remove_unused_columns", "", "of a record only what the task needs is read"},
    {"group_by_length", "", "texts of any length are packed into samples"},
    {"shuffle", "", "--seed determines the order of samples, another one in each epoch"},
    {"n_layer", "num_hidden_layers", NULL},
    {"n_head", "num_attention_heads", NULL},
    {"n_embd", "hidden_size", NULL},
    // tuning
    {"use_peft", "tuning lora", NULL},
    {"lora_modules_to_save", "trainable_modules", NULL},
    {"lora_task_type", "task", NULL},
    {"adapter_name_or_path", "adapter", NULL},
    {"finetuning_type", "tuning", NULL},
    {"load_in_4bit", "quantize nf4", NULL},
    {"load_in_8bit", "quantize int8", NULL},
    {"bnb_4bit_*", "quantize nf4", NULL},
    {"beta", "dpo_beta", NULL},
    {"precompute_ref_log_probs", "",
     "the log-probabilities of the reference are always computed once, before the first step"},
};
const int gx_other_names_n = (int)(sizeof gx_other_names / sizeof *gx_other_names);
#endif
