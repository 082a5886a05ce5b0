#!/usr/bin/env python3
"""Full training, LoRA, also on a quantised model, adapters, a side network and prompts of one model on one text: Galaxy beside transformers with peft, memory, time of a step, loss.

    make train_llama demo-chat; $(dev/ref/venv.sh | tail -n 1) dev/bench/tuning.py [FOLDER] [--batch 2] [--seq 256] [--steps 20] [--rank 16] [--only Galaxy]

FOLDER: build/demo-chat/SmolLM2-135M-Instruct (134.5M parameters). LoRA is on all matrices of attention and MLP, fp32, AdamW, the same batch and length.
Each way runs in a process of its own, one after the other, in ROUNDS turns; of the times of steps, without the first two, the median is taken, of these the
median over the turns. Memory: the peak of the process, and of Python what is above the process once all is imported. Prints a table in Markdown.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="build/demo-chat/SmolLM2-135M-Instruct")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq", type=int, default=256)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rank", type=int, default=16)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--text", default="data/text.txt")
parser.add_argument("--only", default="", help="ways whose names have this in them")
parser.add_argument("--way", help="one of transformers' ways, in this process: full, lora, lora-compiled")
args = parser.parse_args()
THREADS = len(os.sched_getaffinity(0))
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def by_transformers(way):
    """Prints a line of JSON: seconds of each step, MB."""
    import torch
    from peft import LoraConfig, get_peft_model
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(THREADS)
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    model.config.use_cache = False
    if way != "full":
        model = get_peft_model(model, LoraConfig(r=args.rank, lora_alpha=2 * args.rank, lora_dropout=0.05, target_modules=LINEARS, task_type="CAUSAL_LM"))
    model.train()
    ids = Tokenizer.from_file(f"{args.folder}/tokenizer.json").encode(open(args.text).read(600000), add_special_tokens=False).ids
    step = torch.compile(model) if way.endswith("compiled") else model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds, n = [], args.batch * args.seq
    for i in range(args.steps):
        begun = time.perf_counter()
        at = i * n % (len(ids) - n)
        x = torch.tensor(ids[at:at + n]).view(args.batch, args.seq)
        loss = step(input_ids=x, labels=x).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": statistics.median(seconds[2:]), "mb": peak / 1e3, "own_mb": (peak - imported) / 1e3}))


def run_transformers(way):
    own = [sys.executable, __file__, args.folder, "--way", way] + [w for k in ("batch", "seq", "steps", "rank") for w in (f"--{k}", str(getattr(args, k)))]
    said = subprocess.run(own + ["--text", args.text], check=True, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(THREADS)))
    return json.loads(said.stdout.splitlines()[-1])


def run_galaxy(tuning, more=()):
    out = pathlib.Path("build/bench-tuning/" + "-".join((tuning, *more)).replace("--", ""))
    subprocess_flags = ["./train_llama", "--model", args.folder, "--tuning", tuning, "--train_data", args.text, "--seq_len", str(args.seq), "--micro_batch_size",
                        str(args.batch), "--max_steps", str(args.steps), "--logging_steps", "1", "--max_eval_samples", "8", "--sample_tokens", "0",
                        "--validation_fraction", "0.02", "--overwrite_output_dir", "--output_dir", str(out), *more]
    if tuning == "lora":
        subprocess_flags += ["--lora_dim", str(args.rank)]
    said = subprocess.run(subprocess_flags, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    rates = [line["tokens_per_s"] / (1 - line.get("padding", 0)) for line in lines if "tokens_per_s" in line]  # of all rows
    trained = re.search(r"([0-9.]+)M parameters(?:, ([0-9.]+)M of them trained)?", said.stdout)
    checkpoint = next(out.glob("checkpoint-*"))
    weights = max(checkpoint.glob("*model*.safetensors"), key=lambda p: p.stat().st_size)
    peak, planned = re.search(r"peak memory ([0-9]+) MB, planned ([0-9]+) MB", said.stdout).groups()
    return {"seconds": args.batch * args.seq / statistics.median(rates[2:]), "mb": float(peak), "planned": float(planned), "file": weights.stat().st_size / 1e6,
            "share": 100 * float(trained[2] or trained[1]) / float(trained[1]), "loss": [line["eval_loss"] for line in lines if "eval_loss" in line][-1]}


if args.way:
    by_transformers(args.way)
    sys.exit()
ways = {"Galaxy, full": lambda: run_galaxy("full"), "Galaxy, LoRA": lambda: run_galaxy("lora"),
        "Galaxy, LoRA, --recompute layer": lambda: run_galaxy("lora", ("--recompute", "layer")),
        "Galaxy, LoRA on NF4": lambda: run_galaxy("lora", ("--quantize", "nf4")), "Galaxy, LoRA on int8": lambda: run_galaxy("lora", ("--quantize", "int8")),
        "Galaxy, adapters": lambda: run_galaxy("adapter"), "Galaxy, side network": lambda: run_galaxy("side"),
        "Galaxy, prompts": lambda: run_galaxy("prompt"),
        "transformers, full": lambda: run_transformers("full"),
        "peft, LoRA": lambda: run_transformers("lora"), "peft, LoRA, compiled": lambda: run_transformers("lora-compiled")}
ways = {name: way for name, way in ways.items() if args.only in name}
results = {name: [] for name in ways}
for _ in range(args.rounds):
    for name, way in ways.items():
        results[name].append(way())
print(f"{args.folder}, {args.batch} x {args.seq} tokens, {args.steps} steps, r {args.rank}, {THREADS} threads, medians of {args.rounds} rounds\n")
print("| | trained | planned, MB | peak, MB | above the imports, MB | ms a step | file, MB | loss |\n|---|---|---|---|---|---|---|---|")
for name, got in results.items():
    middle = {key: statistics.median(g[key] for g in got) for key in got[0]}
    cell = lambda key, form: form % middle[key] if key in middle else ""
    print(f"| {name} | {cell('share', '%.2f%%')} | {cell('planned', '%.0f')} | {cell('mb', '%.0f')} | {cell('own_mb', '%.0f')} | {1e3 * middle['seconds']:.0f} | "
          f"{cell('file', '%.1f')} | {cell('loss', '%.3f')} |")
