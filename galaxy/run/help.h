// help.h: the options that most people need, which --help without an argument shows; --help all shows every option
// (io/config_help.h). They are ordered by what a user wants to do. A program leaves out options that it does not have,
// such as those of other tasks and modes.
#ifndef GX_HELP_H
#define GX_HELP_H
#include "../io/config_help.h"
GX_BEGIN

// For programs that train, and for those that write text; *n: the number of lines.
const GxHelpLine *gx_help_training(int *n);
const GxHelpLine *gx_help_writing(int *n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_HELP_IMPLEMENTED)
#define GX_HELP_IMPLEMENTED

const GxHelpLine *gx_help_training(int *n)
{
    static const GxHelpLine lines[] = {
        {"what is trained", "task", "what the model is trained for; --task NAME --help shows the options of that task"},
        {NULL, "train_data", "file or folder to train on; docs/data.md says what it may hold"},
        {NULL, "validation_data", "data for validation; by default a part of train_data is held out"},
        {NULL, "tokenizer", "folder of the tokenizer; by default the model's own, or bytes"},
        {"the model", "model", "Hugging Face folder to start from; by default a new model, of this size:"},
        {NULL, "hidden_size",
         "width of the residual stream; for num_hidden_layers, num_attention_heads, … see --help model"},
        {NULL, "n_embd", "width of the residual stream; for n_layer, n_head, … see --help model"},
        {NULL, "d_model", "width of the residual stream; for the numbers of layers, heads, … see --help model"},
        {NULL, "tuning", "full: all weights; or a method such as lora; --help tuning shows the options of each"},
        {"training", "seq_len", "tokens in a sample"},
        {NULL, "micro_batch_size", "samples computed at once; larger values need more memory"},
        {NULL, "max_steps", "total number of optimizer steps"},
        {NULL, "learning_rate", "largest learning rate; 2e-5 with --model, 2e-4 with another --tuning than full"},
        {NULL, "precision", "data type of weights and activations"},
        {"output", "output_dir", "folder for checkpoints, log.jsonl and loss.svg"},
        {NULL, "resume", "auto: continue the run in output_dir, with its options"},
        {"several ranks or machines", "ranks",
         "number of ranks, as threads; leave it out with mpirun, srun or torchrun"},
        {NULL, "mode", "how ranks split the model; by default each has a copy (docs/modes.md)"},
        {NULL, "plan", "auto: measure all machines, and find who computes what (docs/unequal_machines.md)"},
        {"instead of training", "predict", "file of texts for which the model writes labels, or targets"},
        {NULL, "embed", "file of texts that the model turns into vectors"},
        {NULL, "dry_run", "print how much memory the training would take, and stop"},
    };
    *n = (int)(sizeof lines / sizeof *lines);
    return lines;
}

const GxHelpLine *gx_help_writing(int *n)
{
    static const GxHelpLine lines[] = {
        {"the model", "model", "Hugging Face folder, or a checkpoint of train_llama or train_gpt2"},
        {NULL, "adapter", "folder of an adapter (LoRA and others); it names its model"},
        {"a text", "prompt", "text to continue; several are continued side by side"},
        {NULL, "max_new_tokens", "most new tokens"},
        {NULL, "stop", "string that ends the text, such as '\\n'"},
        {NULL, "json", "print a line of JSON for each text"},
        {"a conversation", "chat", "answer lines from standard input"},
        {NULL, "system", "system prompt: what the model is told before the conversation"},
        {NULL, "chat_template", "chat template, if the model's folder has none"},
        {"how tokens are chosen", "temperature",
         "0: always the likeliest token; 1: sample as the model's probabilities say"},
        {NULL, "top_p", "sample from the likeliest tokens whose probabilities add up to p"},
        {NULL, "seed", "seed of the sampling"},
        {"the machine", "precision", "data type of weights, activations and the cache"},
        {NULL, "quantize", "keep weights in 4 or 8 bits, to save memory"},
        {NULL, "ranks", "number of ranks that share the model, as threads"},
    };
    *n = (int)(sizeof lines / sizeof *lines);
    return lines;
}
#endif
