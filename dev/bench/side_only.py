#!/usr/bin/env python3
"""A side network's epochs: what a step takes in the first, in which the model is run, and in the second, which reads what was kept.

    make train_llama demo-chat; dev/bench/side_only.py [FOLDER] [--batch 2] [--seq 256] [--steps 12] [--precision fp32] [--rounds 1]

FOLDER: build/demo-chat/SmolLM2-135M-Instruct. The text is cut to as many bytes as make an epoch of about STEPS steps, and the run is of three times as many, once
with --side_cache disk, once with memory, once with none, which computes in each epoch. Seconds per step are the mean over an epoch, as the program says them; the first
epoch has the slow first step in it. Prints a table in Markdown, and whether all ended with the same bits.
"""
import argparse
import filecmp
import pathlib
import re
import statistics
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="build/demo-chat/SmolLM2-135M-Instruct")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq", type=int, default=256)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--precision", default="fp32")
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("--bytes_per_token", type=float, default=4.2, help="of the text; 1 where tokens are bytes")
parser.add_argument("--text", default="data/text.txt")
parser.add_argument("--train_llama", default="./train_llama")
args = parser.parse_args()
here = pathlib.Path("build/bench-side-only")
here.mkdir(parents=True, exist_ok=True)


def run(steps, cache, bytes_of_text):
    text, out = here / "text.txt", here / cache
    text.write_text(pathlib.Path(args.text).read_text()[:bytes_of_text])
    said = subprocess.run([args.train_llama, "--model", args.folder, "--tuning", "side_only", "--side_cache", cache, "--train_data", str(text), "--seq_len", str(args.seq),
                           "--micro_batch_size", str(args.batch), "--gradient_accumulation_steps", "1", "--max_steps", str(steps), "--precision", args.precision,
                           "--learning_rate", "1e-3", "--validation_fraction", "0", "--sample_tokens", "0", "--overwrite_output_dir", "--output_dir", str(out)],
                          check=True, capture_output=True, text=True).stdout
    said = re.sub(r"\n\s+", " ", said)  # long lines are wrapped
    epochs = {int(e): (int(n), float(s), rest) for e, n, s, rest in re.findall(r"side cache, epoch (\d+): (\d+) steps? of ([0-9.]+) s: (.*)", said)}
    size = re.search(r"side cache: ([0-9.]+) MB a sample, (\d+) samples[^:]*: ([0-9.]+) MB", said)
    peak = float(re.search(r"peak memory ([0-9]+) MB", said)[1])
    return epochs, size, peak, next(out.glob("checkpoint-*")) / "adapter_model.safetensors"


results = {cache: [run(3 * args.steps, cache, int(args.bytes_per_token * args.batch * args.seq * args.steps)) for _ in range(args.rounds)] for cache in ("disk", "memory", "none")}
print(f"{args.folder}, {args.precision}, {args.batch} x {args.seq} tokens, medians of {args.rounds} rounds\n")
print("| --side_cache | epoch 1, s a step | epoch 2, s a step | of epoch 1 | steps | MB a sample | MB | peak memory, MB |\n|---|---|---|---|---|---|---|---|")
for cache, got in results.items():
    first, second = (statistics.median(g[0][e][1] for g in got) for e in (1, 2))
    size = got[0][1]
    print(f"| {cache} | {first:.3f} | {second:.3f} | {second / first:.2f} | {got[0][0][1][0]} + {got[0][0][2][0]} | {size[1] if size else ''} | {size[3] if size else ''} | "
          f"{statistics.median(g[2] for g in got):.0f} |")
same = all(filecmp.cmp(results["none"][0][3], got[0][3], shallow=False) for got in results.values())
print(f"\nthe side networks are {'the same, bit for bit' if same else 'NOT the same'}")
