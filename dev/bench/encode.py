#!/usr/bin/env python3
"""How fast tokenizers encode the first megabyte of data/text.txt on one thread: Galaxy beside Hugging Face's `tokenizers`
in one run, in turns.

    $(dev/ref/venv.sh | tail -n 1) dev/bench/encode.py [TOKENIZER.json ...]

Without arguments: BPE tokenizers of 8,000 pieces, trained on the text, in the pipelines of data/ref/bpe/pipelines.json, and
a Unigram of 8,000 in T5's (data/ref/unigram/pipelines.json).
Each library encodes the whole text in one call, as often as fits into two seconds, and theirs also line by line, where
its cache of words helps most; the best of three rounds counts, by the processor's time: what else runs on the machine changes little.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXT, BYTES, SECONDS, ROUNDS = "data/text.txt", 1000000, 2, 3
PIPELINES = {"gpt2": "byte_level", "llama3": "byte_level", "qwen": "byte_level", "mistral": "byte_fallback",
             "llama2": "byte_fallback"}


def trained(base, text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if base == "byte_level" else pre_tokenizers.Metaspace()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if base == "byte_level" else []
    first = ["<|end|>"] if base == "byte_level" else ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    t.train_from_iterator(text.splitlines(), trainers.BpeTrainer(
        vocab_size=8000, initial_alphabet=alphabet, special_tokens=first, show_progress=False))
    return json.loads(t.to_str())["model"]


def files(folder, text):
    pipelines = {p["name"]: p for p in json.load(open("data/ref/bpe/pipelines.json"))}
    for base in ("byte_level", "byte_fallback"):
        model = trained(base, text)
        for name in (n for n, b in PIPELINES.items() if b == base):
            p = pipelines[name]
            document = {"version": "1.0", "added_tokens": [], "truncation": None, "padding": None, "model": {
                **model, **p.get("model", {}), "byte_fallback": base == "byte_fallback",
                "unk_token": "<unk>" if base == "byte_fallback" else None}}
            for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
                document[key] = p.get(key)
            path = os.path.join(folder, name + ".json")
            json.dump(document, open(path, "w"))
            yield name, path


def unigram_file(folder, text):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(text.splitlines(), trainers.UnigramTrainer(
        vocab_size=8000, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    p = next(p for p in json.load(open("data/ref/unigram/pipelines.json")) if p["name"] == "t5")
    document = {"version": "1.0", "added_tokens": [], "truncation": None, "padding": None, "model": json.loads(t.to_str())["model"]}
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        document[key] = p.get(key)
    path = os.path.join(folder, "t5.json")
    json.dump(document, open(path, "w"))
    yield "t5", path


def theirs(path, text):
    t = Tokenizer.from_file(path)
    best, begun = 1e30, time.process_time()
    while time.process_time() - begun < SECONDS:
        start = time.process_time()
        n = len(t.encode(text, add_special_tokens=False).ids)
        best = min(best, time.process_time() - start)
    lines = text.splitlines(keepends=True)
    start = time.process_time()
    for line in lines:
        t.encode(line, add_special_tokens=False)
    return len(text.encode()) / best / 1e6, n, len(text.encode()) / (time.process_time() - start) / 1e6


def ours(program, path, file):
    rate, n, _ = subprocess.run([program, path, file, str(SECONDS)], capture_output=True, check=True, text=True).stdout.split()
    return float(rate), int(n)


def main():
    folder = subprocess.run(["make", "-s", "print-folder"], capture_output=True, check=True, text=True).stdout.strip()
    program = os.path.join(folder, "encode")
    subprocess.run(["make", "--no-print-directory", "-s", program], check=True)
    text = open(TEXT, newline="").read(BYTES)
    with tempfile.TemporaryDirectory() as temporary:
        file = os.path.join(temporary, "text")
        open(file, "w", newline="").write(text)
        pairs = [(p, p) for p in sys.argv[1:]] or [*files(temporary, text), *unigram_file(temporary, text)]
        print(f"{'':12} {'Galaxy':>8} {'tokenizers':>10} {'by lines':>9}   MB/s")
        for name, path in pairs:
            rounds = [(ours(program, path, file), theirs(path, text)) for _ in range(ROUNDS)]
            assert all(o[1] == t[1] for o, t in rounds), rounds
            print(f"{name[-12:]:12} {max(o[0] for o, _ in rounds):8.1f} {max(t[0] for _, t in rounds):10.1f} "
                  f"{max(t[2] for _, t in rounds):9.1f}", flush=True)


if __name__ == "__main__":
    main()
