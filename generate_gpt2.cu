// generate_gpt2.cu: generates text with a GPT-2, as generate_llama.cu does with a LLaMA: continues prompts, answers in
// a chat, or scores how likely given texts are. A text has at most as many tokens as the model has positions.
//
//     ./generate_gpt2 --model gpt2 --prompt "In the beginning" --max_new_tokens 200 --temperature 0.8
//     ./generate_gpt2 --model out/checkpoint-500 --prompt "And God said" --prompt "Then Moses" --num_beams 4
//     ./generate_gpt2 --model out/checkpoint-500 --score requests.jsonl     how likely texts are
#include "galaxy.h"

static int generate(GxContext *g, int argc, char **argv)
{
    GxWriter w = GX_ZERO;
    gx_writer_open(&w, g, &gx_gpt2, argc, argv); // options, folder, prompts, plan, memory, weights
    if (!gx_failed(g) && !w.done && w.o->score[0]) gx_writer_score(&w);
    else if (!gx_failed(g) && !w.done && w.o->chat) gx_writer_chat(&w);
    else if (!gx_failed(g)) gx_writer_run(&w);
    return gx_writer_close(&w);
}

int main(int argc, char **argv) { return gx_launch(generate, argc, argv); } // one call of generate per rank
