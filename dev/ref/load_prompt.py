"""Lets peft load prompts (ADAPTION_PROMPT) that Galaxy saved, compares logits, and saves them again for Galaxy to read.

    python dev/ref/load_prompt.py DIR --logits FILE [--back OTHER]

DIR holds adapter_config.json and adapter_model.safetensors; the base is where base_model_name_or_path says.
FILE (safetensors) holds tokens [B,T] int32 and the logits [B,T,V] that Galaxy computed from them with the prompts.
OTHER: where peft saves what it has loaded; the tensors of prompts there must have the same names and bytes.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import pathlib
import sys

import torch
from peft import PeftConfig, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

BOUND = 1e-5  # relative L2: fp32 sums in another order


def check(ok, message):
    if not ok:
        sys.exit(f"load_prompt.py: {message}")


def apart(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--logits", required=True)
    parser.add_argument("--back", type=pathlib.Path)
    args = parser.parse_args()
    disable_progress_bar()
    config = PeftConfig.from_pretrained(args.folder)
    check(config.peft_type == "ADAPTION_PROMPT", f"{args.folder}: peft_type is {config.peft_type}")
    base = AutoModelForCausalLM.from_pretrained(config.base_model_name_or_path, local_files_only=True, dtype=torch.float32, attn_implementation="eager")
    dump, tensors = load_file(args.logits), load_file(args.folder / "adapter_model.safetensors")
    with torch.no_grad():
        plain = base(input_ids=dump["tokens"].long(), use_cache=False).logits
        model = PeftModel.from_pretrained(base, args.folder).eval()
        state = model.state_dict()
        for name, t in tensors.items():
            check(name in state and torch.equal(state[name], t), f"{args.folder}: peft did not take {name}")
        ours = model(input_ids=dump["tokens"].long(), use_cache=False).logits
    error, change = apart(dump["logits"], ours), apart(plain, ours)
    check(error <= BOUND, f"{args.logits}: logits are {error:.2g} away (relative L2), the bound is {BOUND:.0e}")
    check(change > 100 * BOUND, f"{args.folder}: without the prompts the logits are only {change:.2g} away: it shows nothing")
    if args.back:
        model.save_pretrained(args.back)
        again = load_file(args.back / "adapter_model.safetensors")
        check(all(n in tensors and torch.equal(tensors[n], t) for n, t in again.items()), f"{args.back}: other tensors")
        check(set(again) == {n for n in tensors if ".adaption_" in n}, f"{args.back}: {sorted(again)}")
    print(f"ok: {len(tensors)} tensors; logits {error:.2g} apart, without the prompts {change:.2g}")


if __name__ == "__main__":
    main()
