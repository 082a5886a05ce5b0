"""Loads a folder that Galaxy saved, as a user of transformers would, and checks what is in it.

    python dev/ref/load_checkpoint.py DIR [--logits FILE]

DIR holds config.json and model.safetensors (or shards), and may hold a tokenizer.json of bytes.
FILE (safetensors) holds tokens [B,T] int32 and the logits [B,T,V] that Galaxy computed from them.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

TEXT = "In the beginning é"
LOGITS_BOUND = 1e-5  # relative L2: fp32 sums in another order


def check(ok, message):
    if not ok:
        sys.exit(f"load_checkpoint.py: {message}")


def load_model(folder):
    """The model in fp32; every name in the file is used and every weight comes from the file."""
    # transformers would make up missing weights at random: only the loading report tells.
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for kind, names in report.items():
        check(not names, f"{folder}: {kind}: {sorted(map(str, names))}")
    return model.eval()


def compare_logits(model, file):
    theirs = load_file(file)
    for name in ("tokens", "logits"):
        check(name in theirs, f"{file}: has no tensor '{name}', only {sorted(theirs)}")
    want_shape = (*theirs["tokens"].shape, model.config.vocab_size)
    check(tuple(theirs["logits"].shape) == want_shape,
          f"{file}: logits are {tuple(theirs['logits'].shape)}, expected {want_shape}")
    with torch.no_grad():
        ours = model(input_ids=theirs["tokens"].long(), use_cache=False).logits.double()
    error = ((theirs["logits"].double() - ours).norm() / ours.norm()).item()
    check(error <= LOGITS_BOUND, f"{file}: logits are {error:.2g} away (relative L2), the bound is {LOGITS_BOUND:.0e}")
    return f"logits {error:.2g} apart"


def check_tokenizer(folder):
    """A tokenizer of bytes: the ids are the UTF-8 bytes, and they decode to the text."""
    # Without tokenizer_config.json AutoTokenizer would guess a class from config.json's model_type,
    # and that class brings a pipeline of its own instead of the file's.
    if (folder / "tokenizer_config.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    else:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids, want = tokenizer.encode(TEXT, add_special_tokens=False), list(TEXT.encode())
    check(ids == want, f"{folder}: encodes {TEXT!r} as {ids}, expected its bytes {want}")
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    check(text == TEXT, f"{folder}: decodes the bytes of {TEXT!r} as {text!r}")
    return f"tokenizer of {len(tokenizer)} ({type(tokenizer).__name__})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--logits", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    disable_progress_bar()
    check((args.folder / "config.json").is_file(), f"{args.folder}: no config.json")
    model = load_model(args.folder)
    said = [f"{type(model).__name__} of {sum(p.numel() for p in model.parameters())} parameters"]
    if args.logits:
        said.append(compare_logits(model, args.logits))
    if (args.folder / "tokenizer.json").exists():
        said.append(check_tokenizer(args.folder))
    print("ok", ", ".join(said))


if __name__ == "__main__":
    main()
