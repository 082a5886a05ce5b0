"""Makes the reference dumps of prompts in attention (LLaMA-Adapter, peft's ADAPTION_PROMPT).

    python dev/ref/make_prompt_refs.py [--out data/ref]

"llama" and "mistral" are of peft, on models of their own, prompt_NAME/base, since peft takes a model whose heads are together as wide
as itself alone. The others, on the models that make_refs.py has made, are of the formula, written here in PyTorch with hooks; of the
first two it is checked that the formula gives the same.

Writes folders prompt_NAME/{adapter_config.json, adapter_model.safetensors} as peft saves them, with gates that are not 0, and
prompt_NAME/ref.safetensors, in float32:

    tokens, labels  [B,T]   as in make_refs.py
    loss, logits            logits [B,T,V]
    grad.NAME               of prompts and gates: NAME is peft's in adapter_model.safetensors
    grad_norm       [1]     of all of them
    zero.grad.NAME          the same where all gates are 0
    sgd.losses      [10]    ten steps of SGD of lr 0.1 on the batch: the loss before each, and what is trained after all
    sgd.NAME
"""
import json
import math

import torch
from peft import AdaptionPromptConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from make_refs import loss_of, save, seed
from tuned_refs import gradients_of, out_folder, steps_of, text_of

PREFIX = "base_model.model."
BASES = {
    "llama": (LlamaForCausalLM, LlamaConfig(vocab_size=61, hidden_size=30, intermediate_size=23, num_hidden_layers=3, num_attention_heads=3,
                                            num_key_value_heads=1, initializer_range=0.2, max_position_embeddings=32, tie_word_embeddings=True)),
    "mistral": (MistralForCausalLM, MistralConfig(vocab_size=256, hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                                  initializer_range=0.2, max_position_embeddings=32, sliding_window=None, tie_word_embeddings=False)),
}
CASES = {  # name: base, batch, length, rows, layers
    "llama": ("prompt_llama/base", 3, 9, 5, 2),
    "mistral": ("prompt_mistral/base", 2, 7, 3, 2),
    "odd": ("llama_odd", 2, 7, 4, 1),
    "qwen2": ("llama_qwen2", 2, 9, 1, 2),
    "qwen3": ("llama_qwen3", 2, 8, 6, 2),
}


class Prompted(nn.Module):
    """Attention, and what its queries find in the prompt."""

    def __init__(self, attention, rows):
        super().__init__()
        self.model = attention
        self.adaption_prompt = nn.Parameter(torch.randn(1, rows, attention.q_proj.in_features))
        self.adaption_gate = nn.Parameter(torch.zeros(1))

    def heads(self, projection, x, norm):
        y = projection(x).unflatten(-1, (-1, self.model.head_dim))
        if norm and hasattr(self.model, norm):
            y = getattr(self.model, norm)(y)
        return y.transpose(-3, -2)  # [.., heads, rows, h]

    def found(self, hidden_states, position_embeddings):
        """Before the out projection, with the gate."""
        q, (cos, sin) = self.heads(self.model.q_proj, hidden_states, "q_norm"), (t.unsqueeze(1) for t in position_embeddings)
        a, b = q.chunk(2, -1)
        q = q * cos + torch.cat((-b, a), -1) * sin
        k, v = self.heads(self.model.k_proj, self.adaption_prompt, "k_norm"), self.heads(self.model.v_proj, self.adaption_prompt, None)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        found = (q @ k.transpose(-1, -2) / math.sqrt(self.model.head_dim)).softmax(-1) @ v
        return self.adaption_gate * found.transpose(1, 2).flatten(2)

    def forward(self, hidden_states, position_embeddings, **more):
        out, *rest = self.model(hidden_states=hidden_states, position_embeddings=position_embeddings, **more)
        return out + self.model.o_proj(self.found(hidden_states, position_embeddings)), *rest


def by_formula(model, rows, layers, kind=Prompted):
    model.requires_grad_(False)
    for layer in model.model.layers[-layers:]:
        layer.self_attn = kind(layer.self_attn, rows)
    return model


def trained(model):
    """By the names that peft's files have."""
    return {PREFIX + n.removeprefix(PREFIX): p for n, p in model.named_parameters() if p.requires_grad}


def make(out, name):
    base, B, T, rows, layers = CASES[name]
    seed("prompt_" + name)
    folder = out / f"prompt_{name}"
    folder.mkdir(exist_ok=True)
    if name in BASES:
        kind, config = BASES[name]
        kind(config).save_pretrained(out / base)
        (out / base / "generation_config.json").unlink(missing_ok=True)
    load = lambda: AutoModelForCausalLM.from_pretrained(out / base, attn_implementation="eager", dtype=torch.float32)
    if name in BASES:
        model = get_peft_model(load(), AdaptionPromptConfig(adapter_len=rows, adapter_layers=layers, task_type="CAUSAL_LM"))
    else:
        model = by_formula(load(), rows, layers)
    parameters = trained(model)
    assert len(parameters) == 2 * layers
    with torch.no_grad():
        for i, (n, p) in enumerate(sorted(parameters.items())):
            if n.endswith("gate"):
                p.fill_(0.7 - 0.3 * i)
    if name in BASES:
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        said = json.loads((folder / "adapter_config.json").read_text())
    else:
        save_file({n: p.detach().clone() for n, p in parameters.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        said = dict(adapter_layers=layers, adapter_len=rows, inference_mode=True, peft_type="ADAPTION_PROMPT", target_modules="self_attn", task_type="CAUSAL_LM")
    said["base_model_name_or_path"] = f"data/ref/{base}"  # wherever the dumps are made
    (folder / "adapter_config.json").write_text(json.dumps(said, indent=2) + "\n")

    tokens, labels = text_of(model.config.vocab_size, B, T)
    gates = {n: p.detach().clone() for n, p in parameters.items() if n.endswith("gate")}
    zero = gradients(model, tokens, labels, {n: 0 * g for n, g in gates.items()})[2]
    loss, logits, grads = gradients(model, tokens, labels, gates)
    if name in BASES:
        ours = by_formula(load(), rows, layers)
        with torch.no_grad():
            for n, p in trained(ours).items():
                p.copy_(parameters[n])
        for n, g in gradients(ours, tokens, labels, gates)[2].items():
            assert (g - grads[n]).norm() <= 1e-5 * grads[n].norm(), f"{name}: the formula has another gradient of {n}"
    dump = dict(tokens=tokens, labels=labels, loss=loss, logits=logits, **gradients_of(grads))
    dump.update({f"zero.grad.{n}": g for n, g in zero.items()})
    dump.update(steps_of(parameters, lambda: loss_of(model, tokens, labels)[0]))
    save(folder / "ref.safetensors", dump)


def gradients(model, tokens, labels, gates):
    model.zero_grad()
    parameters = trained(model)
    with torch.no_grad():
        for n, g in gates.items():
            parameters[n].copy_(g)
    loss, logits = loss_of(model, tokens, labels)
    loss.backward()
    return loss.detach(), logits.detach(), {n: p.grad.clone() for n, p in parameters.items()}


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for name in CASES:
        make(folder, name)
