"""Makes the references of text generation from transformers: what tiny models write, greedily, and what its filters leave of logits.

    python dev/ref/make_generate.py [--out data/ref]

Writes  generate_<name>/{config.json, model.safetensors}   tiny models: llama (grouped heads), mistral, qwen2, qwen3;
                                                           mistral and qwen3 with windows that slide, too; smollm3,
                                                           whose first layer has a window and no RoPE; phi3; gemma3,
                                                           whose first layer has a window and a RoPE of its own; a
                                                           llama with YaRN; a gpt2
        generate_<name>/ref.safetensors                    prompts of different lengths and what `generate` makes of them
        sampling.safetensors                               hashes of the tokens that filters leave of 1,000 rows of logits

Prompts lie one behind the other, lengths beside them. Every greedy choice must be clear: the largest logit is well above the
second, or another seed is taken. Rows of logits are not stored: both sides make them of whole numbers, without a rounding.
"""
import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          SmolLM3Config, SmolLM3ForCausalLM)
from transformers.generation.logits_process import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                                                    TopKLogitsWarper, TopPLogitsWarper)
from transformers.utils.logging import disable_progress_bar

LENGTHS = (1, 7, 4)   # of the prompts of a batch
NEW = 24              # tokens
MARGIN = 1e-3         # by which the largest logit is above the second, at least
SHAPE = dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=64, initializer_range=0.3, bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=61, n_positions=64, n_embd=21, n_inner=40, n_layer=2, n_head=3, initializer_range=0.3, bos_token_id=None,
            eos_token_id=None, scale_attn_by_inverse_layer_idx=True)
MODELS = {"llama": (LlamaConfig, LlamaForCausalLM, dict(head_dim=8)),
          "mistral": (MistralConfig, MistralForCausalLM, dict(head_dim=4, sliding_window=None)),
          "mistral_window": (MistralConfig, MistralForCausalLM, dict(head_dim=4, sliding_window=5)),
          "qwen3_window": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=10, use_sliding_window=True, sliding_window=6,
                                                               layer_types=["sliding_attention", "full_attention"])),
          "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
          "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=10)),
          "smollm3": (SmolLM3Config, SmolLM3ForCausalLM, dict(no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6)),
          "phi3": (Phi3Config, Phi3ForCausalLM, dict(sliding_window=6)),
          "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, dict(
              head_dim=10, query_pre_attn_scalar=14, sliding_window=5, sliding_window_pattern=2, tie_word_embeddings=False, rope_parameters=dict(
                  full_attention=dict(rope_type="linear", factor=4.0, rope_theta=500.0),
                  sliding_attention=dict(rope_type="default", rope_theta=20.0)))),
          "yarn": (LlamaConfig, LlamaForCausalLM, dict(head_dim=8, rope_parameters=dict(
              rope_type="yarn", rope_theta=500.0, factor=4.0, beta_fast=4.0, original_max_position_embeddings=16))),
          "gpt2": (GPT2Config, GPT2LMHeadModel, GPT2)}


def greedy(model, prompts, **kwargs):
    """New tokens of each prompt, the batch padded on the left; and the least margin of all choices."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True, output_logits=True,
                         **kwargs)
    top = torch.stack(out.logits).topk(2).values
    return out.sequences[:, longest:], float((top[..., 0] - top[..., 1]).min()), torch.stack(out.logits)


def model_reference(name, out):
    config, kind, more = MODELS[name]
    for seed in range(100):
        torch.manual_seed(seed)
        model = kind(config(**(more if more is GPT2 else {**SHAPE, **more}))).eval()
        for key, p in model.named_parameters():  # so that all biases and norms matter
            if p.ndim == 1:
                torch.nn.init.normal_(p, 0.0 if key.endswith("bias") or name == "gemma3" else 1.0, 0.2)
        prompts = [torch.randint(1, SHAPE["vocab_size"], (n,)).tolist() for n in LENGTHS]
        new, margin, logits = greedy(model, prompts, pad_token_id=0)
        again, margin_again, _ = greedy(model, prompts, pad_token_id=0, repetition_penalty=1.3)
        if min(margin, margin_again) > MARGIN and any(len(set(row.tolist())) > 6 for row in new):
            break
    else:
        raise SystemExit(f"{name}: no seed gives clear choices")
    folder = out / f"generate_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    flat = [t for p in prompts for t in p]
    save_file({"prompts": torch.tensor(flat, dtype=torch.int32), "lengths": torch.tensor(LENGTHS, dtype=torch.int32),
               "greedy": new.to(torch.int32).contiguous(), "greedy_penalty_1.3": again.to(torch.int32).contiguous(),
               "logits": logits[:4].float().contiguous()},  # [4 tokens, prompts, vocabulary]
              folder / "ref.safetensors", metadata={"format": "pt"})
    print(f"{name}: seed {seed}, least margin {margin:.2g}")


# ---------------------------------------------------------------------------------- filters

VOCAB, ROWS = 300, 1000


def mix(x):
    """A hash of 32 bits, of whole numbers alone."""
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def row_logits(row):
    """Between -16 and 16, sums of four uniform numbers: multiples of 2^-13 that a float holds."""
    values = []
    for v in range(VOCAB):
        total = sum(mix((row * VOCAB + v) * 4 + k) & 0xFFFF for k in range(4)) - 2 * 0xFFFF
        values.append(total / 8192)
    return torch.tensor(values, dtype=torch.float32)


def row_settings(row):
    """temperature, top_k, top_p, min_p, repetition_penalty, and the tokens that the text has."""
    pick = lambda number, values: values[mix(row * 16 + number + 0x51ED2700) % len(values)]
    seen = [mix(row * 64 + i + 0x2545F491) % VOCAB for i in range(pick(5, (0, 3, 40)))]
    return (pick(0, (0.5, 1.0, 1.25, 3.0)), pick(1, (0, 1, 7, 50)), pick(2, (1.0, 0.9, 0.5, 0.95)), pick(3, (0.0, 0.05, 0.3)),
            pick(4, (1.0, 1.2, 0.8)), seen)


def filtered(row):
    temperature, top_k, top_p, min_p, penalty, seen = row_settings(row)
    ids, scores = torch.tensor([seen], dtype=torch.long), row_logits(row)[None]
    if penalty != 1.0 and seen:
        scores = RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    if temperature != 1.0:
        scores = TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k:
        scores = TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(ids, scores)
    return MinPLogitsWarper(min_p)(ids, scores)[0]


def sampling_reference(out):
    hashes, counts = [], []
    for row in range(ROWS):
        scores = filtered(row)
        kept = [v for v in range(VOCAB) if scores[v] > -float("inf")]
        h = 2166136261
        for v in kept:
            h = (h ^ v) * 16777619 & 0xFFFFFFFF
        hashes.append(h - (1 << 32) if h >> 31 else h)
        counts.append(len(kept))
    first = torch.stack([filtered(row) for row in range(8)])
    save_file({"kept_hash": torch.tensor(hashes, dtype=torch.int32), "kept_count": torch.tensor(counts, dtype=torch.int32),
               "rows": first.contiguous()}, out / "sampling.safetensors", metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/ref"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    disable_progress_bar()
    torch.set_num_threads(1)
    for name in MODELS:
        model_reference(name, out)
    sampling_reference(out)


if __name__ == "__main__":
    main()
