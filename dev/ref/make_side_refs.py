"""Makes the reference dumps of side networks with PyTorch, on the models that make_refs.py and make_bert_refs.py have made.

    python dev/ref/make_side_refs.py [--out data/ref]

Of the model what comes out of its embedding and of each layer is taken by hooks, without a gradient; beside it layers of the same
kind, narrower: a LLaMA's are transformers' own, a BERT's are written out here, since transformers has none whose heads are wider
than a share of the width. Writes side_CASE/ref.safetensors, of the batch of BASE/ref.safetensors, in float32:

    adapter.NAME            of the side network, none of it 0: NAME is Galaxy's
    loss                    with it
    grad.NAME               of all of that, and of a BERT's pooler and classifier
    grad_norm       [1]     of all of them
    terms.NAME      [1]     of a gate, whose gradient is a sum that may cancel: the norm of its terms
    sgd.losses      [10]    ten steps of SGD of lr 0.1 on the batch: the loss before each, and what is trained after all
    sgd.NAME
"""

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaModel

from make_bert_refs import entropy, inputs_of
from make_refs import save, seed
from tuned_refs import gradients_of, out_folder, steps_of

CASES = {  # base, reduction, is gated, has biases
    "llama_odd": ("llama_odd", 3, False, False),
    "llama_gqa": ("llama_gqa", 8, True, True),
    "bert_cls3": ("bert_cls3", 2, False, False),
    "bert_cls3_gated": ("bert_cls3", 2, True, True),
}
TEMPERATURE = 0.1
MASKED = torch.finfo(torch.float32).min


def part(n, reduction):
    return -(-n // reduction)


def head_size(h, reduction):
    return part(part(h, reduction), 2) * 2


class LlamaSide(torch.nn.Module):
    """The layers, and what they are called with: positions, and a mask by which nobody sees what follows."""
    def __init__(self, c, reduction):
        super().__init__()
        side = LlamaConfig(
            vocab_size=2, hidden_size=c.num_attention_heads, intermediate_size=part(c.intermediate_size, reduction),
            num_hidden_layers=c.num_hidden_layers, num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_key_value_heads, head_dim=head_size(c.head_dim, reduction), rms_norm_eps=c.rms_norm_eps,
            rope_parameters=c.rope_parameters, attn_implementation="eager")
        side.hidden_size = c.hidden_size // reduction  # which need not be a multiple of the heads: these have a size of their own
        self.model = LlamaModel(side)
        del self.model.embed_tokens, self.model.norm

    def layer(self, i, x, mask):
        T = x.shape[1]
        where = self.model.rotary_emb(x, torch.arange(T)[None])
        causal = torch.full((T, T), MASKED).triu(1)[None, None]
        out = self.model.layers[i](x, attention_mask=causal, position_embeddings=where)
        return out[0] if isinstance(out, tuple) else out

    def names(self):
        return {f"side.model.{n}": p for n, p in self.model.named_parameters()}


class BertLayer(torch.nn.Module):
    def __init__(self, c, reduction):
        super().__init__()
        C, F_, Q = c.hidden_size // reduction, part(c.intermediate_size, reduction), \
            c.num_attention_heads * head_size(c.hidden_size // c.num_attention_heads, reduction)
        self.heads, self.eps = c.num_attention_heads, c.layer_norm_eps
        shapes = {"attention.self.query": (Q, C), "attention.self.key": (Q, C), "attention.self.value": (Q, C),
                  "attention.output.dense": (C, Q), "attention.output.LayerNorm": (C,), "intermediate.dense": (F_, C),
                  "output.dense": (C, F_), "output.LayerNorm": (C,)}
        self.of = {}
        for name, shape in shapes.items():
            self.of[name] = torch.nn.Parameter(torch.zeros(shape)), torch.nn.Parameter(torch.zeros(shape[0]))

    def linear(self, name, x):
        return F.linear(x, *self.of[name])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], *self.of[name], self.eps)

    def forward(self, x, mask):
        B, T, _ = x.shape
        q, k, v = (self.linear(f"attention.self.{n}", x).view(B, T, self.heads, -1).transpose(1, 2) for n in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        p = scores.masked_fill(mask[:, None, None] == 0, MASKED).softmax(-1)
        o = (p @ v).transpose(1, 2).flatten(2)
        x = self.norm("attention.output.LayerNorm", x + self.linear("attention.output.dense", o))
        return self.norm("output.LayerNorm", x + self.linear("output.dense", F.gelu(self.linear("intermediate.dense", x))))


class BertSide(torch.nn.Module):
    def __init__(self, c, reduction):
        super().__init__()
        self.layers = [BertLayer(c, reduction) for _ in range(c.num_hidden_layers)]

    def layer(self, i, x, mask):
        return self.layers[i](x, mask)

    def names(self):
        return {f"side.bert.encoder.layer.{i}.{n}.{kind}": p for i, layer in enumerate(self.layers)
                for n, both in layer.of.items() for kind, p in zip(("weight", "bias"), both)}


class Side:
    def __init__(self, config, is_bert, reduction, is_gated, has_bias):
        C, N = config.hidden_size, config.num_hidden_layers
        self.N = N
        self.side = (BertSide if is_bert else LlamaSide)(config, reduction)
        self.down = [torch.nn.Linear(C, C // reduction, bias=has_bias) for _ in range(N + 1)]
        self.up = torch.nn.Linear(C // reduction, C, bias=has_bias)
        self.gate = [torch.nn.Parameter(torch.zeros(1)) for _ in range(N)] if is_gated else []
        self.names = self.side.names()
        for n, linear in [*((f"side.down.{i}", d) for i, d in enumerate(self.down)), ("side.up", self.up)]:
            self.names.update({f"{n}.{k}": p for k, p in linear.named_parameters()})
        self.names.update({f"side.gate.{i + 1}.weight": g for i, g in enumerate(self.gate)})
        with torch.no_grad():
            for name, p in self.names.items():
                is_norm = "norm" in name.lower() and name.endswith("weight")
                p.copy_((1 if is_norm else 0) + (0.05 if "gate" in name else 0.2) * torch.randn_like(p))

    def __call__(self, h, mask):
        self.mixes = []  # of each layer
        s = self.down[0](h[0])
        for i in range(self.N):
            d = self.down[i + 1](h[i + 1])
            mu = torch.sigmoid(self.gate[i] / TEMPERATURE) if self.gate else None
            mixed = d + s if mu is None else mu * d + (1 - mu) * s
            mixed.retain_grad()
            self.mixes.append((mixed, d - s, mu))
            s = self.side.layer(i, mixed, mask)
        return h[-1] + self.up(s)


def make(out, case):
    base, reduction, is_gated, has_bias = CASES[case]
    is_bert = base.startswith("bert")
    seed("side_" + case)
    kind = AutoModelForSequenceClassification if is_bert else AutoModelForCausalLM
    model = kind.from_pretrained(out / base, attn_implementation="eager", dtype=torch.float32).eval()
    side = Side(model.config, is_bert, reduction, is_gated, has_bias)
    trained = dict(side.names)
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith(("classifier.", "bert.pooler."))
        if p.requires_grad:
            trained[name] = p
    batch = {n: t.long() for n, t in load_file(out / base / "ref.safetensors").items() if n in ("tokens", "types", "mask", "labels")}
    layers, h = model.bert.encoder.layer if is_bert else model.model.layers, []
    layers[0].register_forward_pre_hook(lambda _, inputs: h.append(inputs[0]))
    for layer in layers:
        layer.register_forward_hook(lambda _, __, x: h.append(x[0] if isinstance(x, tuple) else x))
    with torch.no_grad():
        model(**(inputs_of(batch) if is_bert else dict(input_ids=batch["tokens"], use_cache=False)))

    def loss():
        x = side(h, batch.get("mask"))
        if is_bert:
            return entropy(model.classifier(model.bert.pooler(x)), batch["labels"])
        return entropy(model.lm_head(model.model.norm(x)), batch["labels"])

    dump = {f"adapter.{n}": p.detach().clone() for n, p in side.names.items()}
    first = loss()
    first.backward()
    grads = {n: p.grad.clone() for n, p in trained.items()}
    for i, (mixed, difference, mu) in enumerate(side.mixes if is_gated else ()):
        terms = mixed.grad * difference * mu * (1 - mu) / TEMPERATURE
        dump[f"terms.side.gate.{i + 1}.weight"] = terms.norm()
    dump.update(loss=first.detach(), **gradients_of(grads))
    dump.update(steps_of(trained, loss))
    print(f"{case}: {len(trained)} tensors, loss {dump['sgd.losses'][0]:.4f} to {dump['sgd.losses'][-1]:.4f}")
    (out / f"side_{case}").mkdir(exist_ok=True)
    save(out / f"side_{case}" / "ref.safetensors", dump)


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for case in CASES:
        make(folder, case)
