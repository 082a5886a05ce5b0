#!/usr/bin/env python3
"""How fast a text becomes tokens on one thread and on two: ./tokenize beside Hugging Face's `tokenizers`, encode_batch over
the text's lines, in turns, by the clock on the wall.

    make tokenize demo-chat; $(dev/ref/venv.sh | tail -n 1) dev/bench/tokenize.py [FOLDER]

FOLDER: build/demo-chat/SmolLM2-135M-Instruct, for its tokenizer.json. The text is data/text.txt eight times, in records of JSONL of a hundred lines each (text
files, which are one text each, are taken one after the other). What both write or return is ids; Galaxy's time is that of the program as a whole, which reads and writes files, theirs that of the
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
    texts = pathlib.Path(scratch) / "texts.jsonl"
    lines = pathlib.Path(TEXT).read_text().splitlines(keepends=True) * 8
    texts.write_text("".join(json.dumps({"text": "".join(lines[i:i + 100])}) + "\n" for i in range(0, len(lines), 100)))

    def ours(threads):
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
            for name, way in (("Galaxy", ours), ("tokenizers", theirs)):
                best[name, threads] = min(way(threads), best.get((name, threads), 1e9))
print(f"{mb:.1f} MB\n\n| threads | Galaxy, MB/s | tokenizers, MB/s | Galaxy is faster by |\n|---|---|---|---|")
for threads in (1, 2):
    a, b = mb / best["Galaxy", threads], mb / best["tokenizers", threads]
    print(f"| {threads} | {a:.1f} | {b:.1f} | {a / b:.1f} |")
