"""Makes the reference dumps of LoRA from PEFT, on the models that make_refs.py has made.

    python dev/ref/make_lora_refs.py [--out data/ref]

Writes folders lora_NAME/{adapter_config.json, adapter_model.safetensors} as PEFT saves them, with factors B that are not 0, and
lora_NAME/ref.safetensors, in float32:

    tokens, labels  [B,T]   as in make_refs.py
    loss, logits            of the base with LoRA; logits [B,T,V]
    grad.NAME               of each factor: NAME is PEFT's in adapter_model.safetensors
    grad_norm       [1]     of all of them
    sgd.losses      [10]    ten steps of SGD of lr 0.1 on the batch: the loss before each, and the factors after all
    sgd.NAME
"""
import json

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from make_refs import loss_of, save, seed
from tuned_refs import gradients_of, out_folder, steps_of, text_of

CASES = {  # name: base, batch, length, configuration
    "gqa": ("gqa", 3, 10, dict(r=4, lora_alpha=6, target_modules="all-linear")),
    "odd": ("odd", 2, 7, dict(r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    "qwen2": ("qwen2", 2, 9, dict(r=1, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "model.layers.1.mlp.up_proj"])),
}


def trained(model):
    """The factors by the names that PEFT's files have."""
    return {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}


def make(out, name):
    base, B, T, config = CASES[name]
    seed("lora_" + name)
    base = AutoModelForCausalLM.from_pretrained(out / f"llama_{base}", attn_implementation="eager", dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **config))
    with torch.no_grad():
        for p in trained(model).values():
            p.copy_(0.2 * torch.randn_like(p))
    folder = out / f"lora_{name}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    said = json.loads((folder / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = f"data/ref/llama_{CASES[name][0]}"  # wherever the dumps are made
    if isinstance(said["target_modules"], list):
        said["target_modules"].sort()  # a set, whose order changes
    (folder / "adapter_config.json").write_text(json.dumps(said, indent=2) + "\n")

    tokens, labels = text_of(base.config.vocab_size, B, T)
    loss, logits = loss_of(model, tokens, labels)
    loss.backward()
    grads = {n: p.grad.clone() for n, p in trained(model).items()}
    dump = dict(tokens=tokens, labels=labels, loss=loss, logits=logits, **gradients_of(grads))
    dump.update(steps_of(trained(model), lambda: loss_of(model, tokens, labels)[0]))
    save(folder / "ref.safetensors", dump)


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for name in CASES:
        make(folder, name)
