"""Makes the reference dumps of bottleneck adapters with PyTorch, on the models that make_refs.py and make_bert_refs.py have made.

    python dev/ref/make_bottleneck_refs.py [--out data/ref]

Nobody's file format has such adapters: they hang in forward hooks, behind o_proj and down_proj of a LLaMA (of a Gemma 3 before the norms of what these give), behind the last matrices of
a BERT's attention and MLP, where these have their biases, and dropout and the addition have not been yet. Writes
bottleneck_BASE/ref.safetensors, of the batch of BASE/ref.safetensors, in float32:

    adapter.NAME            weights and biases, none of them 0: NAME is Galaxy's
    loss                    with them
    grad.NAME               of each, and of what else is trained: the BERT's pooler and classifier, and the matrices, with
                            their biases, behind which its adapters are
    grad_norm       [1]     of all of them
    sgd.losses      [10]    ten steps of SGD of lr 0.1 on the batch: the loss before each, and what is trained after all
    sgd.NAME
"""
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from make_bert_refs import entropy, inputs_of
from make_refs import loss_of, save, seed
from tuned_refs import gradients_of, out_folder, steps_of

CASES = {"llama_odd": 3, "llama_gqa": 16, "llama_gemma3_biased": 4, "bert_cls3": 2}  # base: reduction
LAST = ("self_attn.o_proj", "mlp.down_proj", "attention.output.dense", "output.dense")  # behind which there is one


class Adapter(torch.nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.down, self.up = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.2 * torch.randn_like(p))

    def forward(self, x):
        return x + self.up(torch.nn.functional.gelu(self.down(x)))


def adapt(model, reduction):
    """Freezes the model but for a head of labels, what pools for it, and a BERT's last matrices; the trained tensors by Galaxy's names."""
    trained = {}
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith(("classifier.", "bert.pooler.")) or ".output.dense." in name
        if p.requires_grad:
            trained[name] = p
    for name, module in list(model.named_modules()):
        if ".layer" not in name or not name.endswith(LAST):
            continue
        adapter = Adapter(module.out_features, module.out_features // reduction)
        module.register_forward_hook(lambda _, __, out, adapter=adapter: adapter(out))
        parent = name.rpartition(".")[0]
        for part, linear in (("adapter_down", adapter.down), ("adapter_up", adapter.up)):
            trained[f"{parent}.{part}.weight"], trained[f"{parent}.{part}.bias"] = linear.weight, linear.bias
    return trained


def make(out, base):
    is_bert = base.startswith("bert")
    seed("bottleneck_" + base)
    kind = AutoModelForSequenceClassification if is_bert else AutoModelForCausalLM
    model = kind.from_pretrained(out / base, attn_implementation="eager", dtype=torch.float32).eval()  # without dropout
    trained = adapt(model, CASES[base])
    batch = {n: t.long() for n, t in load_file(out / base / "ref.safetensors").items() if n in ("tokens", "types", "mask", "labels")}

    def loss():
        if is_bert:
            return entropy(model(**inputs_of(batch)).logits, batch["labels"])
        return loss_of(model, batch["tokens"], batch["labels"])[0]

    dump = {f"adapter.{n}": p.detach().clone() for n, p in trained.items() if ".adapter_" in n}
    first = loss()
    first.backward()
    grads = {n: p.grad.clone() for n, p in trained.items()}
    dump.update(loss=first.detach(), **gradients_of(grads))
    dump.update(steps_of(trained, loss))
    (out / f"bottleneck_{base}").mkdir(exist_ok=True)
    save(out / f"bottleneck_{base}" / "ref.safetensors", dump)


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for base in CASES:
        make(folder, base)
