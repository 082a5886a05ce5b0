// generate_llama.cu: generates text with a LLaMA, Mistral, Qwen2, Qwen3, SmolLM3, Phi-3 or Gemma 3: continues prompts
// or answers in a chat. It can also score how likely given texts are.
//
//     ./generate_llama --model out/checkpoint-500 --prompt "In the beginning" --max_new_tokens 200 --temperature 0.8
//     ./generate_llama --model out/checkpoint-500 --prompt "And God said" --prompt "Then Moses" --json
//     ./generate_llama --model Qwen2.5-0.5B-Instruct --chat
//     ./generate_llama --model out/checkpoint-500 --prompt "And it came" --ranks 2 --tp 2
//     ./generate_llama --model out/checkpoint-500 --score requests.jsonl     how likely texts are
//
// The prompts run through the model once; their keys and values stay in a KV cache (model/kv_cache.h), so each new
// token costs only its own forward. Several ranks split the model with TP.
#include "galaxy.h"

static int generate(GxContext *g, int argc, char **argv)
{
    GxWriter w = GX_ZERO;
    gx_writer_open(&w, g, &gx_llama, argc, argv); // options, folder, prompts, plan, memory, weights
    if (!gx_failed(g) && !w.done && w.o->score[0]) gx_writer_score(&w);
    else if (!gx_failed(g) && !w.done && w.o->chat) gx_writer_chat(&w);
    else if (!gx_failed(g)) gx_writer_run(&w);
    return gx_writer_close(&w);
}

int main(int argc, char **argv) { return gx_launch(generate, argc, argv); } // one call of generate per rank
