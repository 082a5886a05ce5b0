#!/usr/bin/env python3
"""How long 1 GB of weights takes into memory: Galaxy into a model's buffers, safetensors' load_file, and transformers'
from_pretrained, in turns, from the system's cache (the file was just written). Galaxy begins as a process of its own,
whose memory the system has to clear first, and then reads once more, into memory that it has; the others' memory is that
of a process which has read before.

    $(dev/ref/venv.sh | tail -n 1) dev/bench/load.py [fp32|bf16]

Prints each one's median and GB of the file per second. load_file maps the file: each tensor is then copied once, since
the pages are read only then.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils.logging import disable_progress_bar

ROUNDS = 5
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}[sys.argv[1] if len(sys.argv) > 1 else "fp32"]
LAYERS = 12 if DTYPE == torch.float32 else 26
CONFIG = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=LAYERS, num_attention_heads=16,
              num_key_value_heads=8, vocab_size=32000, max_position_embeddings=2048)


def make(folder):
    config = LlamaConfig(**CONFIG, dtype=DTYPE, bos_token_id=None, eos_token_id=None)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    with torch.device("meta"):
        names = {n: p.shape for n, p in AutoModelForCausalLM.from_config(config).named_parameters()}
    tensors = {n: torch.randn(shape).to(DTYPE) for n, shape in names.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return sum(t.numel() * t.element_size() for t in tensors.values())


def by_galaxy(folder):
    lines = subprocess.run([GALAXY, folder, "2"], check=True, capture_output=True, text=True).stdout
    new, again = (json.loads(line)["seconds"] for line in lines.splitlines())
    return {"galaxy, a new process": new, "galaxy, into memory that it has": again}


def by_load_file(folder):
    begun = time.perf_counter()
    tensors = {n: t.clone() for n, t in load_file(folder / "model.safetensors").items()}
    assert tensors
    return {"safetensors' load_file, copied": time.perf_counter() - begun}


def by_transformers(folder):
    begun = time.perf_counter()
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return {"transformers' from_pretrained (fp32)": time.perf_counter() - begun}


O = subprocess.run(["make", "-s", "print-folder"], check=True, capture_output=True, text=True).stdout.strip()
GALAXY = f"{O}/load"
subprocess.run(["make", "-s", GALAXY], check=True)
disable_progress_bar()
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    size = make(folder)
    seconds = {}
    for _ in range(ROUNDS):
        for way in (by_galaxy, by_load_file, by_transformers):
            for name, taken in way(folder).items():
                seconds.setdefault(name, []).append(taken)
    for way, times in seconds.items():
        median = statistics.median(times)
        print(f"{way}: {median:.2f} s, {size / 1e9 / median:.2f} GB/s ({size / 1e9:.2f} GB of {DTYPE})")
