"""Puts bottleneck adapters that Galaxy saved into a model of transformers, and checks what is in their folder.

    python dev/ref/load_bottleneck.py DIR --logits FILE

DIR holds adapter_config.json and adapter_model.safetensors; the base is where base_model_name_or_path says. The file has
down and up of each attention and MLP, and what modules_to_save names; peft refuses the folder, as docs/tuning.md says.
FILE (safetensors) holds tokens [B,T] int32 and the logits [B,T,V] that Galaxy computed from them with the adapters.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import sys

import torch
from peft import PeftConfig
from safetensors.torch import load_file
from torch.nn.functional import gelu, linear
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

BOUND = 1e-5  # relative L2: fp32 sums in another order
PREFIX = "base_model.model."


def check(ok, message):
    if not ok:
        sys.exit(f"load_bottleneck.py: {message}")


def apart(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def is_refused(folder):
    try:
        PeftConfig.from_pretrained(folder)
    except KeyError as e:
        return "GALAXY_BOTTLENECK" in str(e)
    return False


def adapt(model, tensors, reduction):
    """Hooks behind o_proj and down_proj; takes out of `tensors` what they use."""
    for name, module in list(model.named_modules()):
        if not name.endswith(("self_attn.o_proj", "mlp.down_proj")):
            continue
        parent = name.rpartition(".")[0]
        down, b, up, c = (tensors.pop(f"{PREFIX}{parent}.adapter_{n}") for n in ("down.weight", "down.bias", "up.weight", "up.bias"))
        check(down.shape[0] * reduction == module.out_features, f"{parent}: {down.shape[0]} rows inside, of {module.out_features}")
        module.register_forward_hook(lambda _, __, z, down=down, b=b, up=up, c=c: z + linear(gelu(linear(z, down, b)), up, c))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--logits", required=True)
    args = parser.parse_args()
    disable_progress_bar()
    config = json.loads((args.folder / "adapter_config.json").read_text())
    check(config["peft_type"] == "GALAXY_BOTTLENECK" and is_refused(args.folder), f"{args.folder}: peft takes it for one of its own")
    model = AutoModelForCausalLM.from_pretrained(config["base_model_name_or_path"], local_files_only=True, dtype=torch.float32, attn_implementation="eager")
    dump, tensors = load_file(args.logits), load_file(args.folder / "adapter_model.safetensors")
    with torch.no_grad():
        plain = model(input_ids=dump["tokens"].long(), use_cache=False).logits
        count = len(tensors)
        adapt(model, tensors, config["adapter_reduction_dim"])
        for name, p in model.named_parameters():
            if PREFIX + name in tensors:
                check(name.rpartition(".")[0].endswith(tuple(config["modules_to_save"] or ())), f"{name} is not in modules_to_save")
                p.copy_(tensors.pop(PREFIX + name))
        check(not tensors, f"{args.folder}: {sorted(tensors)} are nobody's")
        ours = model(input_ids=dump["tokens"].long(), use_cache=False).logits
    error, change = apart(dump["logits"], ours), apart(plain, ours)
    check(error <= BOUND, f"{args.logits}: logits are {error:.2g} away (relative L2), the bound is {BOUND:.0e}")
    check(change > 100 * BOUND, f"{args.folder}: without the adapters the logits are only {change:.2g} away: it shows nothing")
    print(f"ok: {count} tensors; logits {error:.2g} apart, without the adapters {change:.2g}")


if __name__ == "__main__":
    main()
