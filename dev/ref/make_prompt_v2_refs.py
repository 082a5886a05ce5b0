"""Makes the reference dumps of LLaMA-Adapter v2: prompts in attention, a scale and a bias of each linear of attention and MLP, and norms.

    python dev/ref/make_prompt_v2_refs.py [--out data/ref]

All are of the formula, y = s (x W^T + b0 + b), written here in PyTorch around the formula of prompts in make_prompt_refs.py, on models that
make_refs.py and make_prompt_refs.py have made (their folders are read where --out has them).

Writes folders prompt_v2_NAME/{adapter_config.json, adapter_model.safetensors}, as Galaxy saves them, with gates that are not 0, scales that are not
1, one of each linear 0, and biases that are not 0, and prompt_v2_NAME/ref.safetensors as in make_prompt_refs.py, but for zero.grad.NAME.
"""
import json

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

from make_prompt_refs import PREFIX, Prompted, by_formula
from make_refs import loss_of, save, seed
from tuned_refs import gradients_of, out_folder, steps_of, text_of

CASES = {  # name: base, batch, length, rows, layers
    "llama": ("prompt_llama/base", 3, 9, 5, 2),  # tied
    "odd": ("llama_odd", 2, 7, 4, 1),
    "qwen2": ("llama_qwen2", 2, 9, 1, 2),
    "qwen3": ("llama_qwen3", 2, 8, 6, 2),
}


class Scaled(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.adaption_scale = nn.Parameter(torch.ones(linear.out_features))
        self.adaption_bias = nn.Parameter(torch.zeros(linear.out_features))

    def forward(self, x):
        return self.adaption_scale * (self.linear(x) + self.adaption_bias)


class PromptedOnce(Prompted):
    """What is found goes through the out projection, which has a bias now, together with attention's own result."""

    def forward(self, hidden_states, position_embeddings, **more):
        found = self.found(hidden_states, position_embeddings)
        with self.model.o_proj.register_forward_pre_hook(lambda module, x: (x[0] + found,)):
            return self.model(hidden_states=hidden_states, position_embeddings=position_embeddings, **more)


def v2(model):
    for layer in model.model.layers:
        for parent in [m for m in layer.modules() if not isinstance(m, Scaled)]:
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Scaled(child))
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.weight.requires_grad_(True)
    return model


def trained(model):
    """By the names that Galaxy's files have."""
    return {PREFIX + n.replace(".self_attn.model.", ".self_attn."): p for n, p in model.named_parameters() if p.requires_grad}


def draw(parameters):
    with torch.no_grad():
        for i, (n, p) in enumerate(sorted(parameters.items())):
            if n.endswith("gate"):
                p.fill_(0.7 - 0.01 * i)
            elif n.endswith("scale"):
                p.copy_(1 + 0.3 * torch.randn_like(p))
                p[i % p.numel()] = 0
            elif n.endswith("bias"):
                p.copy_(0.2 * torch.randn_like(p))
            elif not n.endswith("prompt"):
                p.mul_(1 + 0.1 * torch.randn_like(p))


def make(out, name):
    base, B, T, rows, layers = CASES[name]
    seed("prompt_v2_" + name)
    folder = out / f"prompt_v2_{name}"
    folder.mkdir(exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(out / base, attn_implementation="eager", dtype=torch.float32)
    model = v2(by_formula(model, rows, layers, PromptedOnce))
    parameters, all_layers = trained(model), len(model.model.layers)
    norms = sum(n.endswith("norm.weight") for n in parameters)
    assert len(parameters) == 2 * layers + 14 * all_layers + norms
    draw(parameters)
    save_file({n: p.detach().clone() for n, p in parameters.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    said = dict(peft_type="GALAXY_PROMPT_V2", task_type="CAUSAL_LM", base_model_name_or_path=f"data/ref/{base}", adapter_len=rows, adapter_layers=layers,
                inference_mode=True)
    (folder / "adapter_config.json").write_text(json.dumps(said, indent=2) + "\n")
    tokens, labels = text_of(model.config.vocab_size, B, T)
    loss, logits = loss_of(model, tokens, labels)
    loss.backward()
    dump = dict(tokens=tokens, labels=labels, loss=loss.detach(), logits=logits.detach(), **gradients_of({n: p.grad.clone() for n, p in parameters.items()}))
    dump.update(steps_of(parameters, lambda: loss_of(model, tokens, labels)[0]))
    save(folder / "ref.safetensors", dump)


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for name in CASES:
        make(folder, name)
