"""Lets llama.cpp run a GGUF file that convert_gguf made of a folder, beside transformers, which runs the folder.

    pip install llama-cpp-python==0.3.36
    python dev/ref/load_llama_cpp.py FOLDER FILE [--texts FILE]

The logits of the first 20 positions are the same, within the bound of the file's type (llama.cpp rounds what it multiplies to
that, too), and each line of the texts gets the same ids. Not a part of `make refs`:
llama.cpp takes some ten minutes to compile. Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader
from llama_cpp import Llama
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

# Relative L2: fp32 sums in another order; of F16 and BF16 a little more than twice their largest rounding.
LOGITS_BOUND = {"F32": 1e-5, "F16": 1e-3, "BF16": 9e-3, "Q8_0": 3e-2}
TOKENS = 20
TEXTS = ["don't  1234 ½ é 中文字", "  x \t\n\n y", "\u3000 İIı ſ's", "Größe <s> </s> <|im_start|>user", ""]


def check(ok, message):
    if not ok:
        sys.exit(f"load_llama_cpp.py: {message}")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("folder", type=pathlib.Path)
    a.add_argument("file", type=pathlib.Path)
    a.add_argument("--texts", type=pathlib.Path, default="README.md")
    a = a.parse_args()
    disable_progress_bar(), set_verbosity_error()
    # fp32 throughout: no flash attention, a cache of fp32
    ours = Llama(str(a.file), n_ctx=2 * TOKENS, n_batch=2 * TOKENS, logits_all=True, verbose=False, flash_attn_type=0, type_k=0, type_v=0)
    theirs = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [(7 * i + 3) % theirs.config.vocab_size for i in range(TOKENS)]
    ours.eval(ids)
    with torch.no_grad():
        want = theirs(torch.tensor([ids])).logits[0].double().numpy()
    error = float(np.linalg.norm(np.array(ours.scores[:TOKENS], np.float64) - want) / np.linalg.norm(want))
    kind = next(t.tensor_type.name for t in GGUFReader(a.file).tensors if t.name == "token_embd.weight")
    check(kind in LOGITS_BOUND, f"embeddings are {kind}, for which there is no bound")
    check(error <= LOGITS_BOUND[kind], f"logits are {error:.2g} away (relative L2), the bound of {kind} is {LOGITS_BOUND[kind]:.0e}")
    said = [f"logits {error:.2g} apart"]
    if (a.folder / "tokenizer.json").exists():
        tokenizer, texts = Tokenizer.from_file(str(a.folder / "tokenizer.json")), TEXTS + a.texts.read_text().split("\n")
        for text in texts:
            for special in (False, True):
                ids = ours.tokenize(text.encode(), add_bos=special, special=True)
                check(ids == tokenizer.encode(text, add_special_tokens=special).ids, f"{text!r}: llama.cpp has the ids {ids}")
        said.append(f"the same ids for {len(texts)} texts")
    print(f"ok {a.file}: {', '.join(said)}")


if __name__ == "__main__":
    main()
