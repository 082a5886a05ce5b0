"""Loads an adapter that Galaxy saved, as a user of peft would, and checks what is in it.

    python dev/ref/load_lora.py DIR --logits FILE [--merged DIR]
    python dev/ref/load_lora.py DIR --vectors FILE.npy --texts FILE [--merged DIR]
    python dev/ref/load_lora.py DIR --kind AutoModelForMaskedLM --merged DIR

DIR holds adapter_config.json and adapter_model.safetensors; the base is where base_model_name_or_path says. Its tensors
are those that peft itself would save of it, to the name, the shape and the bit.
FILE (safetensors) holds tokens [B,T] int32 and the logits [B,T,V] that Galaxy computed from them with the adapter.
FILE.npy holds what `train_bert --task embedding --embed` made with the adapter of FILE's lines (behind a header): the means of their tokens' vectors,
of length 1; the model is AutoModel's then.
--merged: a folder of the base into which Galaxy merged the adapter: its weights are those that peft merges, to rounding.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import sys
import warnings

import numpy
import torch
import transformers
from peft import PeftModel
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoTokenizer
from transformers.utils.logging import disable_progress_bar

BOUND = 1e-5  # relative L2: fp32 sums in another order


TIED = ("lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


def check(ok, message):
    if not ok:
        sys.exit(f"load_lora.py: {message}")


def apart(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def from_logits(args):
    """What Galaxy computed, what that is called, and how a model computes it."""
    dump = load_file(args.logits)
    return dump["logits"], "logits", lambda model: model(input_ids=dump["tokens"].long(), use_cache=False).logits


def from_vectors(args):
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    lines = args.texts.read_text().splitlines()[1:]

    def vector(model, text):
        rows = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        return torch.nn.functional.normalize(rows.mean(0), dim=0)

    return torch.from_numpy(numpy.load(args.vectors)), "vectors", lambda model: torch.stack([vector(model, line) for line in lines])


def labels_of(folder):
    file = load_file(folder / "adapter_model.safetensors")
    return len(next(file[n] for n in ("base_model.model.classifier.weight", "base_model.model.classifier.lora_B.weight") if n in file))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--logits")
    parser.add_argument("--vectors")
    parser.add_argument("--kind", default="AutoModelForCausalLM", help="transformers' class, where nothing is computed")
    parser.add_argument("--texts", type=pathlib.Path)
    parser.add_argument("--merged", type=pathlib.Path)
    args = parser.parse_args()
    disable_progress_bar()
    base = json.loads((args.folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    with warnings.catch_warnings(record=True) as said:  # peft only warns of tensors that are missing
        warnings.simplefilter("always")
        more = dict(num_labels=labels_of(args.folder)) if "Classification" in (args.kind or "") else {}
        kind = "AutoModel" if args.vectors else args.kind
        model = getattr(transformers, kind).from_pretrained(base, **more, local_files_only=True, dtype=torch.float32, attn_implementation="eager")
        model = PeftModel.from_pretrained(model, args.folder).eval()
    said = [str(w.message) for w in said if "missing" in str(w.message) or "unexpected" in str(w.message)]
    check(not said, f"{args.folder}: {said}")
    file = load_file(args.folder / "adapter_model.safetensors")
    theirs = get_peft_model_state_dict(model, save_embedding_layers=any(".base_layer." in n for n in file))  # a copy that only peft's own have
    check(set(file) == set(theirs), f"{args.folder}: peft would save {sorted(set(theirs) ^ set(file))} otherwise")
    for name, tensor in file.items():
        check(torch.equal(tensor.float(), theirs[name].float()), f"{args.folder}: peft has other values of {name}")
    said = f"ok: {len(file)} tensors"
    if args.logits or args.vectors:
        dump, name, compute = from_vectors(args) if args.vectors else from_logits(args)
        with torch.no_grad():
            ours = compute(model)
            with model.disable_adapter():
                plain = compute(model)
        error, change = apart(dump, ours), apart(plain, ours)
        check(error <= BOUND, f"{name} are {error:.2g} away (relative L2), the bound is {BOUND:.0e}")
        check(change > 100 * BOUND, f"{args.folder}: without the adapter they are only {change:.2g} away: it shows nothing")
        said += f"; {name} {error:.2g} apart, without the adapter {change:.2g}"
    if args.merged:
        merged = model.merge_and_unload().state_dict()
        own = load_file(args.merged / "model.safetensors")
        if args.vectors:  # of which Galaxy has no pooler
            own = {n.removeprefix("bert."): t for n, t in own.items()}
        names = set(own) ^ {n for n in merged if n in own or n not in TIED and not (args.vectors and n.startswith("pooler."))}
        check(not names, f"{args.merged}: other tensors than peft's: {sorted(names)}")
        worst = max(apart(t, merged[n]) for n, t in own.items())
        check(worst <= BOUND, f"{args.merged}: a merged tensor is {worst:.2g} away")
        said += f"; merged {worst:.2g} apart"
    print(said)


if __name__ == "__main__":
    main()
