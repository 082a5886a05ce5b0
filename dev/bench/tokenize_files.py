#!/usr/bin/env python3
"""How fast text becomes tokens on one thread and on two: ./tokenize on records of JSONL, on a folder of text files and on one text, beside
Hugging Face's `tokenizers`, encode_batch over the text's lines, in turns, by the clock on the wall.

    make tokenize demo-chat; $(dev/ref/venv.sh | tail -n 1) dev/bench/tokenize_files.py [FOLDER]

FOLDER: build/demo-chat/SmolLM2-135M-Instruct, for its tokenizer.json. The text is data/text.txt eight times: in records of JSONL of a hundred lines each, in eight
files, in one. What both write or return is ids; Galaxy's time is that of the program as a whole, which reads and writes files, theirs that of the
call alone. The best of three rounds.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

if "--theirs" in sys.argv:
    from tokenizers import Tokenizer
    lines = pathlib.Path(sys.argv[-1]).read_text().splitlines(keepends=True) * 8
    t = Tokenizer.from_file(sys.argv[-2])
    start = time.perf_counter()
    t.encode_batch(lines, add_special_tokens=False)
    print(time.perf_counter() - start)
    sys.exit()

folder = sys.argv[1] if len(sys.argv) > 1 else "build/demo-chat/SmolLM2-135M-Instruct"
TEXT, ROUNDS = "data/text.txt", 3
mb = 8 * pathlib.Path(TEXT).stat().st_size / 1e6
with tempfile.TemporaryDirectory() as scratch:
    folder_of = pathlib.Path(scratch)
    ways = {"records": folder_of / "texts.jsonl", "eight files": folder_of / "texts", "one text": folder_of / "text.txt"}
    lines = pathlib.Path(TEXT).read_text().splitlines(keepends=True) * 8
    ways["eight files"].mkdir()
    for i in range(8):
        (ways["eight files"] / f"{i}.txt").write_text(pathlib.Path(TEXT).read_text())
    ways["one text"].write_text(pathlib.Path(TEXT).read_text() * 8)
    ways["records"].write_text("".join(json.dumps({"text": "".join(lines[i:i + 100])}) + "\n" for i in range(0, len(lines), 100)))

    def ours(threads, texts):
        out = pathlib.Path(scratch) / "out.tokens"
        out.unlink(missing_ok=True)
        start = time.perf_counter()
        subprocess.run(["./tokenize", "--tokenizer", folder, "--corpus", str(texts), "--output_file", str(out), "--threads", str(threads)],
                       check=True, capture_output=True)
        return time.perf_counter() - start

    def theirs(threads):
        said = subprocess.run([sys.executable, __file__, "--theirs", f"{folder}/tokenizer.json", TEXT], check=True, capture_output=True, text=True,
                              env=dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true"))
        return float(said.stdout)

    best = {}
    for _ in range(ROUNDS):
        for threads in (1, 2):
            for name, texts in ways.items():
                best[name, threads] = min(ours(threads, texts), best.get((name, threads), 1e9))
            best["tokenizers", threads] = min(theirs(threads), best.get(("tokenizers", threads), 1e9))
print(f"{mb:.1f} MB\n\n| threads | " + " | ".join(f"{name}, MB/s" for name in ways) + " | tokenizers, MB/s | records are faster by |\n" + "|---" * (len(ways) + 3) + "|")
for threads in (1, 2):
    rate = {name: mb / best[name, threads] for name in (*ways, "tokenizers")}
    print(f"| {threads} | " + " | ".join(f"{rate[name]:.1f}" for name in rate) + f" | {rate['records'] / rate['tokenizers']:.1f} |")
