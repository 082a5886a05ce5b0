#!/usr/bin/env python3
"""Writes data/ref/quant/expected.safetensors: matrices, and what the formulas of NF4 (plain and with doubled scales) and
int8 make of them, as bitsandbytes stores it, written here in fp32 operations of PyTorch, each rounded; and the tables.
Some of them again in bnb.safetensors, by the names and with the JSON that bitsandbytes gives them. test_quantize.cu
compares with both, bit for bit. Beside that folder go bnb_nf4 (doubled scales), bnb_nf4_plain and bnb_int8, models as transformers saves them quantised by bitsandbytes, made from llama_odd, with
ref.safetensors: tokens, labels [B,T] and the loss [1] of a model with the values that the codes stand for. bitsandbytes itself is not asked: its code for CPUs dequantises some
widths wrongly, and looks some doubled scales up wrongly.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_quant_refs.py --out data/ref/quant
"""
import argparse
import json
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

NF4 = torch.tensor([-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
                    0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0])
BLOCK, GROUP = 64, 256


def scale_values():
    """0, 1, and the middles of 1, 2, 4 ... 64 equal parts of [0.1, 1], times 10^-6 ... 1, with both signs."""
    x = [torch.tensor([0.0, 1.0])]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2 ** i + 1, dtype=torch.float32)
        positive = 10.0 ** (i - 6) * ((ends[:-1] + ends[1:]) / 2)
        x += [positive, -positive]
    return torch.cat(x).sort().values


D = scale_values()


def in_blocks(x, size):
    """[blocks, size], the last one filled with zeros."""
    blocks = -(-x.numel() // size)
    padded = torch.zeros(blocks * size)
    padded[:x.numel()] = x
    return padded.view(blocks, size)


def nearest(table, x):
    """How many midpoints between neighbours of the table are below x."""
    return torch.searchsorted((table[:-1] + table[1:]) / 2, x.contiguous(), right=False)


def blockwise(x, size, table):
    """Codes of x, and the largest magnitude of each block."""
    parts = in_blocks(x, size)
    most = parts.abs().amax(1)
    codes = nearest(table, parts * (1 / most.clamp(min=1e-38))[:, None]).flatten()
    return codes[:x.numel()], most


def values(codes, table, scales, size):
    return table[codes] * scales.repeat_interleave(size)[:codes.numel()]


def quantise(w):
    """What is stored, and the values that it stands for."""
    n = w.numel()
    codes, absmax = blockwise(w.flatten(), BLOCK, NF4)
    even = torch.cat([codes, nearest(NF4, torch.zeros(n % 2))])
    offset = absmax.double().mean().float()
    scale_codes, nested = blockwise(absmax - offset, GROUP, D)
    doubled = values(scale_codes, D, nested, GROUP) + offset
    row = w.abs().amax(1)
    int8 = torch.round(w * (127 / row.clamp(min=1e-36))[:, None]).to(torch.int8)
    return {"nf4": (even[::2] << 4 | even[1::2]).to(torch.uint8), "absmax": absmax, "scale_codes": scale_codes.to(torch.uint8),
            "nested_absmax": nested, "offset": offset.reshape(1), "int8": int8, "SCB": row,
            "nf4.values": values(codes, NF4, absmax, BLOCK).view(w.shape),
            "nf4_doubled.values": values(codes, NF4, doubled, BLOCK).view(w.shape),
            "int8.values": int8.float() * row[:, None] * (torch.tensor(1.0) / 127)}


def matrices():
    draw = torch.Generator().manual_seed(7)

    def normal(rows, cols, scale=0.02):
        return scale * torch.randn((rows, cols), generator=draw)
    zeros = normal(5, 130)
    zeros[1] = zeros[2] = 0  # the blocks 3 and 4 have no other number
    zeros[4, 5:] = -0.0
    sizes = normal(4, 192) * 10.0 ** torch.randint(-30, 30, (4, 192), generator=draw)
    sizes[0, :64] *= 1e-25  # below 1e-38 in part, and as a whole
    sizes[1, 64:128] = 1e-42 * torch.randint(-9, 9, (64,), generator=draw)
    ties = torch.zeros((3, 64))
    ties[0, :15] = (NF4[:-1] + NF4[1:]) / 2  # a is 1
    ties[0, 15] = 1
    ties[1] = torch.arange(64) - 31.5  # of int8: a is 127
    ties[1, 0] = 127
    ties[2, :31] = torch.nextafter(ties[0, :31], torch.tensor(2.0))
    ties[2, 15] = -1
    middles = (D[:-1] + D[1:]) / 2
    middles = middles[(middles > 0.3) & ((1 + middles) - 1 == middles)][::4]  # 1 + m and 1 - m are exact
    scale_ties = torch.zeros((2 + 2 * len(middles), 64))
    scale_ties[:, 7] = torch.cat([torch.tensor([0.0, 2.0]), 1 + middles, 1 - middles])  # o and A are 1
    return {"scale_ties": scale_ties, "one": normal(1, 1), "short": normal(5, 7), "odd": normal(33, 65), "block": normal(2, 64), "wide": normal(3, 200, 5.0),
            "zeros": zeros, "sizes": sizes, "ties": ties, "bf16": normal(12, 48).bfloat16().float(),
            "groups": normal(131, 127) * torch.rand((131, 1), generator=draw)}  # 260 blocks


def as_bitsandbytes(name, w, kind, dtype, storage=torch.uint8):
    q = quantise(w)
    if kind == "int8":
        return {f"{name}.weight": q["int8"], f"{name}.SCB": q["SCB"], f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8)}
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": dtype, "shape": list(w.shape)}
    parts = {"": q["nf4"].view(storage)[:, None], ".quant_map": NF4, ".absmax": q["absmax"]}
    if kind == "nf4_doubled":
        state |= {"nested_blocksize": GROUP, "nested_dtype": "float32", "nested_offset": q["offset"].item()}
        parts |= {".absmax": q["scale_codes"], ".nested_absmax": q["nested_absmax"], ".nested_quant_map": D}
    parts[".quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return {f"{name}.weight{part}": x.clone() for part, x in parts.items()}


MODELS = {"bnb_nf4": "nf4_doubled", "bnb_nf4_plain": "nf4", "bnb_int8": "int8"}


def make_model(base, folder, kind):
    os.makedirs(folder, exist_ok=True)
    stored, meant = {}, {}
    for name, w in load_file(os.path.join(base, "model.safetensors")).items():
        if "_proj." in name:
            stored |= as_bitsandbytes(name.removesuffix(".weight"), w, kind, "float32")
            meant[name] = quantise(w)[kind + ".values"]
        else:
            stored[name] = meant[name] = w
    save_file(stored, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(base, "config.json")) as f:
        config = json.load(f)
    four = {"load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": kind == "nf4_doubled"}
    config["quantization_config"] = {"quant_method": "bitsandbytes", **({"load_in_4bit": False, "load_in_8bit": True} if kind == "int8" else four)}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    model = LlamaForCausalLM.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
    model.load_state_dict(meant, strict=False)
    stream = torch.randint(0, model.config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(11))
    tokens, labels = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1), labels.flatten())
    save_file({"tokens": tokens.int(), "labels": labels.int(), "loss": loss.reshape(1)}, os.path.join(folder, "ref.safetensors"))


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--out", default="data/ref/quant")
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    tensors = {"table.nf4": NF4, "table.scales": D}
    for name, w in matrices().items():
        tensors[f"{name}.w"] = w
        for part, x in quantise(w).items():
            if name != "groups" or part in ("nf4", "absmax", "scale_codes", "nested_absmax", "offset", "nf4_doubled.values"):
                tensors[f"{name}.{part}"] = x.contiguous()
    save_file(tensors, os.path.join(a.out, "expected.safetensors"))
    for name, kind in MODELS.items():
        make_model(os.path.join(os.path.dirname(a.out), "llama_odd"), os.path.join(os.path.dirname(a.out), name), kind)
    w = matrices()
    save_file(as_bitsandbytes("layers.0.q_proj", w["odd"], "nf4", "float32") | as_bitsandbytes("layers.0.k_proj", w["zeros"], "nf4_doubled", "bfloat16")
              | as_bitsandbytes("layers.0.v_proj", w["short"], "int8", None) | {"layers.0.norm.weight": torch.ones(7)}
              | as_bitsandbytes("layers.0.o_proj", w["bf16"], "nf4_doubled", "float16", torch.bfloat16), os.path.join(a.out, "bnb.safetensors"))


if __name__ == "__main__":
    main()
