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
        {"what it learns", "task", "what the model is trained for; --task NAME --help shows the options of that task"},
        {NULL, "train_data", "a file or a folder to learn from; docs/data.md says what it may hold"},
        {NULL, "validation_data", "held-out data; without it a part of train_data is held out"},
        {NULL, "tokenizer", "a folder that says how text becomes tokens; without it the model's own, or bytes"},
        {"the model", "model", "a Hugging Face folder to start from; without it a new model, of this size:"},
        {NULL, "hidden_size", "width; also --num_hidden_layers, --num_attention_heads, …: --help model"},
        {NULL, "tuning", "what is trained of it; --help tuning shows the options of each"},
        {"training", "seq_len", "tokens in a sample"},
        {NULL, "micro_batch_size", "samples that are computed at once: more need more memory"},
        {NULL, "max_steps", "steps"},
        {NULL, "learning_rate", "the largest; 2e-5 where there is a --model, 2e-4 with another --tuning"},
        {NULL, "precision", "of weights and activations"},
        {"what is kept", "output_dir", "a folder for checkpoints, log.jsonl and loss.svg"},
        {NULL, "resume", "auto: go on with the run in output_dir, with its options"},
        {"several machines, or ranks of one", "ranks", "ranks as threads; with mpirun, srun or torchrun leave it out"},
        {NULL, "mode", "how ranks split the model; without it each has a copy (docs/modes.md)"},
        {NULL, "dp_batch_size_list", "samples of each rank's micro-batch, for unequal machines: 3,1"},
        {"and instead of training", "predict", "a file whose texts get labels from the model"},
        {NULL, "embed", "a file whose texts get vectors from the model"},
        {NULL, "dry_run", "print how much memory it would take, and stop"},
    };
    *n = (int)(sizeof lines / sizeof *lines);
    return lines;
}

const GxHelpLine *gx_help_writing(int *n)
{
    static const GxHelpLine lines[] = {
        {"the model", "model", "a Hugging Face folder, or a checkpoint of train_llama"},
        {NULL, "adapter", "a folder with an adapter (LoRA and others); it names its model"},
        {"a text", "prompt", "what the text begins with; several are continued side by side"},
        {NULL, "max_new_tokens", "tokens to write"},
        {NULL, "stop", "a text that ends it, such as '\\n'"},
        {NULL, "json", "a line of JSON for each text"},
        {"a conversation", "chat", "lines of the standard input are answered"},
        {NULL, "system", "what the model is told before the conversation"},
        {NULL, "chat_template", "how the model was taught to talk, if its folder does not say"},
        {"how tokens are chosen", "temperature", "0: always the likeliest; 1: as the model has them"},
        {NULL, "top_p", "of the likeliest, until their probabilities sum to p"},
        {NULL, "seed", "of what is sampled"},
        {"the machine", "precision", "of weights, activations and the cache"},
        {NULL, "quantize", "weights in 4 or 8 bits, for less memory"},
        {NULL, "ranks", "ranks as threads, which share the model"},
    };
    *n = (int)(sizeof lines / sizeof *lines);
    return lines;
}
#endif
