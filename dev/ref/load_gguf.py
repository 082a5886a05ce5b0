"""Checks a GGUF file that convert_gguf made of a folder, and the folder that it made of the file again.

    python dev/ref/load_gguf.py FOLDER FILE [--back FOLDER]

FILE: the package `gguf` reads the weights of FOLDER in it, in llama.cpp's order, rounded as the package itself rounds
them; transformers computes from it the logits that it computes from these weights, where it reads all of the file; its
tokenizer gives the ids of FOLDER's. --back: the weights are the file's, and so are the ids.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import pathlib
import sys

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type, GGUFReader, quants
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

LOGITS_BOUND = 1e-5  # relative L2: fp32 sums in another order
TEXTS = ["In the beginning", " Größe  1234,5\n\n\tif (x) {}", "don't WE'LL ½ é e\u0301 中文字 \U0001f600", "<s> </s> <|end|> <|im_start|>user", "", " ", "a" * 50]
NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
         "v_proj": "attn_v", "o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "gate_proj": "ffn_gate",
         "up_proj": "ffn_up", "down_proj": "ffn_down", "lm_head": "output"}


def check(ok, message):
    if not ok:
        sys.exit(f"load_gguf.py: {message}")


def field(reader, name, default=None):
    return reader.fields[name].contents() if name in reader.fields else default


def name_of(name):
    parts = name.split(".")
    layer = f"blk.{parts[2]}." if name.startswith("model.layers.") else ""
    return f"{layer}{NAMES[parts[-2]]}.{parts[-1]}"


def permuted(x, heads):
    """Rows of a head: first halves and second halves alternate."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def check_weights(folder, reader, config):
    weights = {k: v.float().numpy() for k, v in load_file(folder / "model.safetensors").items() if "rotary_emb" not in k}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    tensors = {t.name: t for t in reader.tensors}
    freqs = tensors.pop("rope_freqs.weight", None)
    check({name_of(k) for k in weights} == set(tensors), f"other tensors: {sorted({name_of(k) for k in weights} ^ set(tensors))}")
    for name, x in weights.items():
        t = tensors[name_of(name)]
        if field(reader, "general.architecture") == "llama" and ("q_proj" in name or "k_proj" in name):
            x = permuted(x, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        check(list(reversed(t.shape)) == list(x.shape), f"{t.name}: has the shape {t.shape}, expected {x.shape}")
        check(x.ndim > 1 or t.tensor_type == Type.F32, f"{t.name}: a vector is {t.tensor_type.name}")
        with np.errstate(divide="ignore"):
            want = quants.dequantize(quants.quantize(x, t.tensor_type), t.tensor_type)
        check(np.array_equal(quants.dequantize(t.data, t.tensor_type).reshape(x.shape), want.reshape(x.shape)), f"{t.name}: other values")
    if freqs is not None:  # what transformers divides by
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].double().numpy()
        head = config.head_dim or config.hidden_size // config.num_attention_heads
        plain = config.rope_parameters["rope_theta"] ** -(np.arange(0, head, 2) / head)
        check(np.allclose(freqs.data, plain / scaled, rtol=1e-4), "rope_freqs.weight: other factors")
    return freqs is not None, {t.tensor_type for t in tensors.values()} == {Type.F32}


def logits(*where, **how):
    model = AutoModelForCausalLM.from_pretrained(*where, local_files_only=True, dtype=torch.float32, attn_implementation="eager", **how).eval()
    tokens = torch.arange(24).reshape(2, 12) * 7 % model.config.vocab_size
    with torch.no_grad():
        return model(input_ids=tokens, use_cache=False).logits.double()


def distance(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def ids(tokenizer, special):
    return [tokenizer.encode(text, add_special_tokens=special).ids for text in TEXTS]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("folder", type=pathlib.Path)
    a.add_argument("file", type=pathlib.Path)
    a.add_argument("--back", type=pathlib.Path)
    a = a.parse_args()
    disable_progress_bar(), set_verbosity_error()
    reader, config, said = GGUFReader(a.file), AutoConfig.from_pretrained(a.folder), []
    scaled, exact = check_weights(a.folder, reader, config)
    said.append(f"{len(reader.tensors)} tensors")
    head = getattr(config, "head_dim", None)
    if exact and not scaled and head in (None, config.hidden_size // config.num_attention_heads):
        error = distance(logits(str(a.file.parent), gguf_file=a.file.name), logits(a.folder))
        check(error <= LOGITS_BOUND, f"transformers' logits from {a.file} are {error:.2g} away from those of {a.folder}")
        said.append(f"transformers' logits {error:.2g} apart")
    tokenizer = a.folder / "tokenizer.json"
    if tokenizer.exists():
        t = Tokenizer.from_file(str(tokenizer))
        tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
        check(all(tokens[i] == p for p, i in t.get_vocab().items()), "other tokens")
        check(len(tokens) == len(types) == config.vocab_size and len(set(tokens)) == len(tokens), f"{len(tokens)} tokens, {len(types)} types")
        said.append(f"{len(tokens)} tokens")
    if a.back:
        back, now = load_file(a.back / "model.safetensors"), load_file(a.folder / "model.safetensors")
        if exact:
            check(all(torch.equal(now[k].float(), back[k].float()) for k in back), f"{a.back}: other weights")
            error = distance(logits(a.back), logits(a.folder))
            check(error <= LOGITS_BOUND, f"transformers' logits from {a.back} are {error:.2g} away from those of {a.folder}")
            said.append(f"back: logits {error:.2g} apart")
        if tokenizer.exists():
            other = Tokenizer.from_file(str(a.back / "tokenizer.json"))
            for special in (False, True):
                check(ids(t, special) == ids(other, special), f"{a.back}: its tokenizer gives other ids")
            check([t.decode(i) for i in ids(t, False)] == [other.decode(i) for i in ids(t, False)], f"{a.back}: its tokenizer decodes otherwise")
            said.append("the same ids")
    print(f"ok {a.file}: {', '.join(said)}")


if __name__ == "__main__":
    main()
