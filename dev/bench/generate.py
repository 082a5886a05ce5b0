#!/usr/bin/env python3
"""How fast one text is written, greedily: generate_llama beside transformers' generate, and llama.cpp where
llama-cpp-python is installed, in turns, on the same model and threads.

    make generate_llama demo-chat; $(dev/ref/venv.sh | tail -n 1) dev/bench/generate.py [FOLDER] [F32.gguf] [BF16.gguf]

FOLDER: build/demo-chat/SmolLM2-135M-Instruct (134.5M parameters). Prints tokens per second of what is new, medians of ROUNDS,
and the floor: the weights have to be read once per token. llama.cpp runs the GGUF files that are named.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import time

THREADS = len(os.sched_getaffinity(0))
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

PROMPT, NEW, ROUNDS = "The history of the city begins", 64, 5
folder = sys.argv[1] if len(sys.argv) > 1 else "build/demo-chat/SmolLM2-135M-Instruct"
files = dict(zip(("fp32", "bf16"), sys.argv[2:]))
ids = Tokenizer.from_file(f"{folder}/tokenizer.json").encode(PROMPT, add_special_tokens=False).ids
torch.set_num_threads(THREADS)
disable_progress_bar(), set_verbosity_error()


def by_galaxy(precision):
    said = subprocess.run(["./generate_llama", "--model", folder, "--prompt", PROMPT, "--max_new_tokens", str(NEW), "--temperature", "0",
                           "--precision", precision, "--json"], check=True, capture_output=True, text=True)
    return float(re.search(r"after the first in [0-9.]+ s, ([0-9.]+) tokens/s", said.stderr)[1]), json.loads(said.stdout)["ids"]


models = {p: AutoModelForCausalLM.from_pretrained(folder, dtype=d).eval() for p, d in (("fp32", torch.float32), ("bf16", torch.bfloat16))}


def by_transformers(precision):
    """The first token, with the prompt, is timed by itself and taken off."""
    times, out = [], None
    for new in (1, NEW):
        begun = time.perf_counter()
        out = models[precision].generate(torch.tensor([ids]), max_new_tokens=new, do_sample=False, pad_token_id=0)
        times.append(time.perf_counter() - begun)
    written = out[0, len(ids):].tolist()
    return (len(written) - 1) / (times[1] - times[0]), written


llamas = {}
if files:
    from llama_cpp import Llama
    llamas = {p: Llama(f, n_ctx=128, n_threads=THREADS, verbose=False) for p, f in files.items()}


def by_llama_cpp(precision):
    model, written = llamas[precision], []
    model.reset(), model.eval(ids)
    begun = time.perf_counter()
    for _ in range(NEW - 1):
        written.append(model.sample(temp=0.0))
        model.eval(written[-1:])
    return (NEW - 1) / (time.perf_counter() - begun), written


for precision in ("fp32", "bf16"):
    ways = {"galaxy": by_galaxy, "transformers": by_transformers, **({"llama.cpp": by_llama_cpp} if precision in llamas else {})}
    speed = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, function in ways.items():
            speed[way].append(function(precision)[0])
    galaxy = statistics.median(speed["galaxy"])
    for way, of in speed.items():
        print(f"{precision} {way}: {statistics.median(of):.1f} tokens/s; galaxy has {galaxy / statistics.median(of):.2f} of it")
