#!/usr/bin/env python3
"""How fast targets of 16 sources are written: train_bart --predict beside transformers' generate, in turns.

    make train_bart; $(dev/ref/venv.sh | tail -n 1) dev/bench/targets.py [ROUNDS]

A BART of random weights with 44M parameters, sources of 32 tokens at most, targets of 60 to 64, by 1 and by 4 beams, on
all cores in fp32. Models are loaded before; Galaxy's time is what the program says. Prints medians, their ratio, and on how many targets the two agree.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

THREADS = len(os.sched_getaffinity(0))
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

TEXTS, LEAST, MOST = 16, 60, 65  # targets' tokens count the start token
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
folder = pathlib.Path("build/bench-targets")
torch.set_num_threads(THREADS)
disable_progress_bar(), set_verbosity_error()


def make():
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = pathlib.Path("data/ref/bpe/roberta.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer)
    config = BartConfig(vocab_size=len(json.loads(tokenizer)["model"]["vocab"]), d_model=512, encoder_layers=6,
                        decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
                        decoder_ffn_dim=2048, max_position_embeddings=128, init_std=0.05)
    torch.manual_seed(1)
    model = BartForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    sources = pathlib.Path("data/ref/wordpiece/expected.txt").read_text().replace('"', "").split("\n")
    sources = [s.split("\t")[-1][:30].strip() for s in sources if s.strip()]
    sources = [s for s in sources if s][:TEXTS]
    (folder / "sources.tsv").write_text("source\n" + "\n".join(sources) + "\n")
    return model, sources


def by_galaxy(beams):
    out = folder / "targets.jsonl"
    out.unlink(missing_ok=True)
    said = subprocess.run(["./train_bart", "--model", folder, "--predict", folder / "sources.tsv", "--predictions", out,
                    "--seq_len", str(MOST - 1), "--max_source_length", "32", "--min_length", str(LEAST), "--num_beams",
                    str(beams), "--micro_batch_size", str(TEXTS * beams), "--forced_eos_token_id", "-1"],
                          check=True, capture_output=True, text=True)
    seconds = float(re.search(r"targets written in ([0-9.]+) s", said.stdout + said.stderr)[1])
    return seconds, [json.loads(line)["target"] for line in out.read_text().splitlines()]


def by_transformers(model, ids, mask, decode, beams):
    begun = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=mask, num_beams=beams, do_sample=False, min_length=LEAST, max_length=MOST,
                             forced_eos_token_id=None)
    return time.perf_counter() - begun, [decode(row) for row in out.tolist()]


def main():
    model, sources = make()
    model.generation_config.forced_eos_token_id = None
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    texts = [[0, *tokenizer(s, add_special_tokens=False)["input_ids"][:30], 2] for s in sources]
    longest = max(map(len, texts))
    ids = torch.tensor([t + [1] * (longest - len(t)) for t in texts])
    mask = (torch.arange(longest)[None] < torch.tensor([len(t) for t in texts])[:, None]).long()

    def decode(row):
        return tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters, {THREADS} threads, {rounds} rounds")
    for beams in (1, 4):
        ours, theirs = [], []
        for _ in range(rounds):
            seconds, written = by_galaxy(beams)
            ours.append(seconds)
            seconds, expected = by_transformers(model, ids, mask, decode, beams)
            theirs.append(seconds)
        a, b = statistics.median(ours), statistics.median(theirs)
        same = sum(x == y for x, y in zip(written, expected))
        print(f"{beams} beams: Galaxy {a:.2f} s, transformers {b:.2f} s, ratio {b / a:.2f}; {same} of {TEXTS} targets agree")


if __name__ == "__main__":
    main()
