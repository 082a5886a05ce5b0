#!/usr/bin/env python3
"""A training step of a BART and of a T5 beside transformers': rounds that take turns.

    make train_bart train_t5; $(dev/ref/venv.sh | tail -n 1) dev/bench/seq2seq.py [--rounds 3] [--steps 4] [--precision bf16]

Models of 23M and 22M parameters: 4 layers in each stack, width 384, 6 heads, 16,000 tokens. A step is forward, backward,
clipping to a gradient norm of 1 and AdamW, on 8 sources and 8 targets of 128 tokens each, none of them padding, with
dropout 0.1, on all cores. transformers is measured as installed and under torch.compile (which needs g++); bf16 is
autocast, as Galaxy's keeps fp32 masters. Prints medians of steps in milliseconds, how many times as fast Galaxy is, and
the peak of each process's memory.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

TEXTS, TOKENS, VOCAB, WIDTH, LAYERS, HEADS, FFN = 8, 128, 16000, 384, 4, 6, 1536
FAMILIES = ("bart", "t5")
THREADS = len(os.sched_getaffinity(0))
folder = pathlib.Path("build/bench-seq2seq")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="of a round, the first of which warms up; default 4")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--serve", choices=FAMILIES, help=argparse.SUPPRESS)  # transformers' process
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- Galaxy ----------------------------------------------------------------------------------------------------------

def write_data():
    """Texts that are longer than a column is, so that each is cut to its width."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(pathlib.Path("data/ref/bpe/roberta.json").read_text())
    words = "the quick brown fox jumps over a lazy dog and then it sleeps near an old river".split()
    line = lambda i: " ".join(words[(i * j * j + i + j) % len(words)] for j in range(2 * TOKENS))
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"{line(i)}\t{line(i + 7)}\n" for i in range(64)))


def galaxy(family, args):
    """Milliseconds of each step, and MB."""
    shape = {"bart": ["--encoder_layers", LAYERS, "--decoder_layers", LAYERS, "--encoder_attention_heads", HEADS, "--decoder_attention_heads",
                      HEADS, "--encoder_ffn_dim", FFN, "--decoder_ffn_dim", FFN, "--max_position_embeddings", TOKENS],
             "t5": ["--num_layers", LAYERS, "--num_decoder_layers", LAYERS, "--num_heads", HEADS, "--d_kv", WIDTH // HEADS, "--d_ff", FFN,
                    "--pad_token_id", 1, "--eos_token_id", 2, "--decoder_start_token_id", 1]}[family]
    out = folder / family
    more = ["--train_data", folder / "pairs.tsv", "--tokenizer", folder, "--vocab_size", VOCAB, "--d_model", WIDTH, "--seq_len", TOKENS,
            "--max_source_length", TOKENS, "--micro_batch_size", TEXTS, "--max_steps", args.steps, "--logging_steps", 1, "--sample_lines", 0,
            "--eval_steps", 0, "--save_steps", 0, "--validation_fraction", 0, "--precision", args.precision, "--output_dir", out,
            "--overwrite_output_dir", "true"]
    ran = subprocess.run([f"./train_{family}", *map(str, shape + more)], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    rates = [line["tokens_per_s"] for line in lines if "tokens_per_s" in line]
    assert not any(line.get("padding") for line in lines), "texts are not as long as their columns"
    return [1e3 * TEXTS * TOKENS * 2 / rate for rate in rates[1:]], int(re.search(r"peak memory ([0-9]+) MB", ran.stdout + ran.stderr)[1])


# ---- transformers, in a process of its own ---------------------------------------------------------------------------

def model_of(family):
    from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration
    if family == "bart":
        return BartForConditionalGeneration(BartConfig(
            vocab_size=VOCAB, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS, encoder_ffn_dim=FFN, decoder_ffn_dim=FFN, max_position_embeddings=TOKENS, dropout=0.1))
    return T5ForConditionalGeneration(T5Config(
        vocab_size=VOCAB, d_model=WIDTH, num_layers=LAYERS, num_decoder_layers=LAYERS, num_heads=HEADS, d_kv=WIDTH // HEADS, d_ff=FFN,
        dropout_rate=0.1, decoder_start_token_id=0))


def serve(args):
    """Answers each line of standard input with the milliseconds of a round's steps, and the memory so far."""
    import resource

    import torch
    from torch_llama import ADAMW
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    model = model_of(args.serve).train()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    sources, targets = torch.randint(4, VOCAB, (2, TEXTS, TOKENS))
    loss_of = lambda: model(input_ids=sources, labels=targets).loss
    if args.compile:
        loss_of = torch.compile(loss_of)

    def step():
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        return 1e3 * (time.perf_counter() - begun)

    for _ in range(3):
        step()
    print(sum(p.numel() for p in model.parameters()), flush=True)
    for _ in sys.stdin:
        ms = [step() for _ in range(args.steps)][1:]
        print(json.dumps([ms, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]), flush=True)


class Transformers:
    def __init__(self, family, args, compiled):
        more = ["--compile"] if compiled else []
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", family, "--steps", str(args.steps), "--precision", args.precision,
                                         *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.parameters = int(self.process.stdout.readline())

    def round(self):
        self.process.stdin.write("step\n"), self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main():
    args = arguments()
    if args.serve:
        return serve(args)
    write_data()
    for family in FAMILIES:
        ways = {"Galaxy": lambda: galaxy(family, args)}
        for name, compiled in (("transformers", False), ("transformers compiled", True)):
            other = Transformers(family, args, compiled)
            ways[name] = other.round
        times, memory = {way: [] for way in ways}, {}
        for _ in range(args.rounds):
            for way, run in ways.items():
                ms, memory[way] = run()
                times[way] += ms
        ours = statistics.median(times["Galaxy"])
        print(f"{family}, {other.parameters / 1e6:.1f}M parameters, {args.precision}, {THREADS} threads, {args.rounds} rounds")
        for way in ways:
            middle = statistics.median(times[way])
            print(f"    {way}: {middle:.0f} ms per step ({min(times[way]):.0f} to {max(times[way]):.0f}), {memory[way]} MB: {middle / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
