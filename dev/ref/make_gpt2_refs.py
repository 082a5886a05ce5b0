"""Makes the reference dumps of GPT-2, from PyTorch and transformers.

    python dev/ref/make_gpt2_refs.py [--out data/ref]

Writes folders NAME/{config.json, model.safetensors} as transformers saves them, and NAME/ref.safetensors: what those
models compute, in float32, with attn_implementation="eager".

    gpt2_odd        GPT2LMHeadModel: sizes that are no multiples of 4, heads of 7, an MLP of n_inner columns
    gpt2_inverse    an own head, relu, scores divided by the layer's number and not by the root of a head's size
    gpt2_dropout    every dropout on
    gpt2_packed     several texts in a sample, each of which transformers computes alone
    gpt2_cls3       GPT2ForSequenceClassification, of three labels; texts of different lengths

Keys of ref.safetensors. B samples, T positions, C n_embd, V vocab_size. Numbers are int32 or fp32; a scalar is [1].

    tokens, labels  [B,T]       labels: the next token, -100 in some rows; of gpt2_cls3 [B], and mask, rows: see below
    x.l             [B,T,C]     what enters layer l, and what leaves the last one, before ln_f (not of those with dropout)
    logits          [B,T,V]; of gpt2_cls3 [B,labels]
    loss            [1]         the mean over counted labels
    grad.NAME                   of the loss, by Galaxy's name of the parameter: as transformers', but c_attn is cut into
                                c_attn.q, c_attn.k and c_attn.v, and matrices are [out, in]; a tied weight is listed once
    grad_norm       [1]
    sgd.losses      [10]        ten steps of SGD on the batch, of lr sgd.lr, without momentum, decay, clipping: the loss
    sgd.NAME                    before each of them, and the weights after all, named as the gradients
    bf16_distance.loss, .NAME   [1] how far transformers is off in bf16, as in make_bert_refs.py (of gpt2_odd and gpt2_inverse)

With dropout: seed, step, first_sample, [1] each, as in make_bert_refs.py. Unit u is 0 for the embedding, then come the
layers. gpt2_packed: documents [B,T], a number for each text of a sample. The sites' numbers: 8u for what the embedding or attention adds, 8u + 2 for the MLP; one more for attention's
probabilities. Of gpt2_cls3: mask [B,T], 0 at padding, and rows [B], the position that a text's label is read from.
"""
import argparse
import copy
import pathlib
from types import SimpleNamespace

import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from make_bart_refs import steps_of_sgd
from make_bert_refs import NEIGHBOURS, Dropout, SITE_DROPOUT
from make_refs import IGNORE, keeper, save, seed

LR = 0.03
SHAPE = dict(vocab_size=37, n_positions=16, n_embd=21, n_layer=2, n_head=3, n_inner=29, bos_token_id=None, eos_token_id=None,
             resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


class Sites:
    """In place of torch.nn.functional.dropout: GPT-2 asks it in the order of the computation."""

    def __init__(self, config, dropout, T):
        c, self.dropout, self.T = config, dropout, T
        self.order = [(0, c.embd_pdrop)]
        for u in range(1, c.n_layer + 1):
            self.order += [(8 * u + 1, c.attn_pdrop), (8 * u, c.resid_pdrop), (8 * u + 2, c.resid_pdrop)]

    def __enter__(self):
        self.original, self.at = torch.nn.functional.dropout, 0
        torch.nn.functional.dropout = self.drop
        return self

    def __exit__(self, *_):
        torch.nn.functional.dropout = self.original
        assert self.at == len(self.order), (self.at, len(self.order))

    def drop(self, x, p=0.5, training=True, inplace=False):
        site, expected = self.order[self.at]
        self.at += 1
        assert p == expected and training, (site, p, expected)
        if x.ndim == 4:
            kept = self.dropout.of_probabilities(SITE_DROPOUT | site, p, x.shape[0], x.shape[1], self.T)
        else:
            kept = self.dropout.of_hidden(SITE_DROPOUT | site, p, *x.shape)
        p32 = torch.tensor(p, dtype=torch.float32)
        return x * (kept.float() * (1 / (1 - p32)))


def make_model(kind, config):
    """Weights larger than usual, so that no gradient drowns in rounding; no bias is 0, no gain 1."""
    config._attn_implementation = "eager"
    model = kind(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and name.endswith("weight")
            p.copy_(is_gain + (0.1 if p.ndim == 1 else 0.25) * torch.randn_like(p))
    return model.train()


def ours(tensors):
    """By Galaxy's names: c_attn in three parts, matrices of layers turned."""
    out = {}
    for name, t in tensors.items():
        is_turned = t.ndim == 2 and ".h." in name
        t = t.detach().t() if is_turned else t.detach()
        if ".c_attn." not in name:
            out[name] = t.contiguous().clone()
            continue
        module, end = name.rsplit(".", 1)
        for part, value in zip("qkv", t.chunk(3, 0)):
            out[f"{module}.{part}.{end}"] = value.contiguous().clone()
    return out


def hook(model, dump):
    keep, handles = keeper(dump), []
    for l, layer in enumerate(model.transformer.h):
        handles.append(layer.register_forward_pre_hook(lambda module, inputs, l=l: dump.__setitem__(f"x.{l}", inputs[0].detach().clone())))
        handles.append(layer.register_forward_hook(keep(f"x.{l + 1}")))
    return handles


def distances_in_bf16(start, compute):
    """The root of the mean square over models about a rounding to bf16 away: as make_bert_refs.py's."""
    squares = {}
    for _ in range(NEIGHBOURS):
        near = copy.deepcopy(start)
        with torch.no_grad():
            for p in near.parameters():
                p.mul_(1 + 2 ** -9 * torch.randn_like(p))
        found = []
        for dtype in (torch.float32, torch.bfloat16):
            for p in near.parameters():
                p.data, p.grad = p.data.to(dtype), None
            loss = compute(near)
            loss.backward()
            found.append(ours({n: p.grad.float() for n, p in near.named_parameters()}) | {"loss": loss.detach().float()})
        for n in found[0]:
            squares[n] = squares.get(n, 0) + (found[1][n] - found[0][n]).norm().double() ** 2
    return {f"bf16_distance.{n}": (s / NEIGHBOURS).sqrt().float() for n, s in squares.items()}


class Texts:
    """Calls the model with each text by itself, and joins what it gives, and what the hooks keep."""

    def __init__(self, model, tokens, number, dump):
        self.model, self.tokens, self.number, self.dump = model, tokens, number, dump

    def __call__(self):
        rows, kept = [], {}
        for row, number in zip(self.tokens, self.number):
            own = []
            for n in number.unique():
                own.append(self.model(input_ids=row[number == n][None]).logits)
                for key in [k for k in self.dump if k.startswith("x.")]:
                    kept.setdefault(key, []).append(self.dump.pop(key))
            rows.append(torch.cat(own, 1))
        for key, parts in kept.items():
            self.dump[key] = torch.cat(parts, 1).reshape(*self.tokens.shape, -1)
        return torch.cat(rows)


def case(name, out, B, T, lengths=None, texts=None, **kw):
    seed(name)
    kind = GPT2ForSequenceClassification if lengths else GPT2LMHeadModel
    config = GPT2Config(**{**SHAPE, **kw})
    model = make_model(kind, config)
    tokens = torch.randint(0, config.vocab_size - 1, (B, T))
    dump, given = {}, {}
    if lengths:
        mask = (torch.arange(T)[None] < torch.tensor(lengths)[:, None]).long()
        tokens = torch.where(mask == 1, tokens, config.pad_token_id)
        labels = torch.randint(0, config.num_labels, (B,))
        given = dict(attention_mask=mask)
        dump |= dict(mask=mask, rows=torch.tensor(lengths) - 1)
    else:
        labels = torch.roll(tokens, -1, 1)
        labels[:, -1] = IGNORE
        labels[0, 2] = IGNORE
    if texts:
        number = torch.tensor([sum(([i] * n for i, n in enumerate(row)), []) for row in texts])
        labels[:, :-1][number[:, :-1] != number[:, 1:]] = IGNORE
        dump["documents"] = number
    dump |= dict(tokens=tokens, labels=labels)
    has_dropout = config.resid_pdrop or config.embd_pdrop or config.attn_pdrop
    dropout = Dropout(1234567, 5, 3, T) if has_dropout else None
    if dropout:
        dump |= dict(seed=dropout.seed, step=dropout.step, first_sample=dropout.first_sample)

    def loss_of(logits):
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORE)

    def run():
        if texts:
            logits = Texts(model, tokens, number, dump)()
            return SimpleNamespace(loss=loss_of(logits), logits=logits)
        output = model(input_ids=tokens, labels=labels if lengths else None, **given)
        if not lengths:
            output.loss = loss_of(output.logits)
        return output

    def compute():
        if not dropout:
            return run()
        with Sites(config, dropout, T):
            return run()

    handles = [] if dropout else hook(model, dump)
    output = compute()
    for handle in handles:
        handle.remove()
    output.loss.backward()
    dump |= dict(logits=output.logits, loss=output.loss)
    grads = {n: p.grad for n, p in model.named_parameters()}
    dump["grad_norm"] = torch.stack([g.norm() for g in grads.values()]).norm()
    dump |= {f"grad.{n}": g for n, g in ours(grads).items()}
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    start = copy.deepcopy(model) if not dropout and not lengths and not texts else None
    steps = steps_of_sgd(model, compute, LR, dropout)
    dump |= {n: steps.pop(n) for n in ("sgd.losses", "sgd.lr")} | ours(steps)
    if start:
        dump |= distances_in_bf16(start, lambda near: loss_of(near(input_ids=tokens).logits.float()))
    save(folder / "ref.safetensors", dump)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="data/ref")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    disable_progress_bar()
    case("gpt2_odd", out, 3, 9)
    case("gpt2_inverse", out, 2, 8, n_layer=3, n_head=7, n_inner=None, activation_function="relu", tie_word_embeddings=False,
         scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False)
    case("gpt2_dropout", out, 2, 11, resid_pdrop=0.1, embd_pdrop=0.2, attn_pdrop=0.15, activation_function="gelu")
    case("gpt2_packed", out, 2, 12, texts=[(5, 3, 4), (1, 11)])
    case("gpt2_cls3", out, 3, 9, lengths=(9, 4, 6), num_labels=3, pad_token_id=36)


if __name__ == "__main__":
    main()
