"""Makes the reference dumps that Galaxy's tests compare with, from PyTorch and transformers.

    python dev/ref/make_refs.py [--out data/ref]

Writes  ops.safetensors                                    single operations, forward and backward
        attention_bf16.safetensors                         attention on bf16 numbers, and how far PyTorch is off in bf16
        rope.safetensors                                   tables of RoPE's scalings
        llama_<name>/{config.json, model.safetensors}      small LLaMAs, as transformers saves them
        llama_<name>/ref.safetensors                       what those models compute
        llama_curves.safetensors                           their losses and norms over ten steps, in fp32 and in bf16 with weights of fp32 behind it

Everything is fp32 or int32, but for the bf16 inputs of attention_bf16; a scalar has the shape [1].
Operations: the inputs are fp32 values, the results are computed from them in float64 and then stored
as fp32, so a deviation is the library's own. Models: float32, where bf16 is not named, by transformers itself with attn_implementation="eager".
A second run on the same machine gives the same bytes; compare_refs.py judges other machines' runs.
"""
import argparse
import copy
import itertools
import json
import math
import pathlib
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils.logging import disable_progress_bar

IGNORE = -100  # the label of a position that has no loss


def seed(name):
    """Every operation and model has a stream of its own: adding one leaves the others as they are."""
    torch.manual_seed(zlib.crc32(name.encode()))


def save(path, tensors):
    out = {}
    for name, t in tensors.items():
        t = torch.as_tensor(t).detach()
        if t.dtype not in (torch.bfloat16, torch.uint8):
            t = t.to(torch.float32 if t.is_floating_point() else torch.int32)
        out[name] = t.reshape(t.shape or (1,)).contiguous().clone()
    save_file(out, path, metadata={"format": "pt"})


# ---------------------------------------------------------------------------------- operations

def normal(*shape, std=1.0, mean=0.0):
    """fp32 values, held in float64: what the library reads is what the reference computes from."""
    return (mean + std * torch.randn(*shape)).to(torch.float32).double()


def scalar(x):
    """The fp32 number nearest to x, as a Python float."""
    return torch.tensor(x, dtype=torch.float32).item()


def backward(outputs, inputs):
    """Gradients of sum(output · upstream) over the (output, upstream) pairs, one per input."""
    return torch.autograd.grad(sum((y * dy).sum() for y, dy in outputs), inputs)


def leaf(*shape, **kw):
    return normal(*shape, **kw).requires_grad_()


def rms_norm(offset=0):
    """With an offset the weights are w + offset, as in Gemma."""
    x, w, eps = leaf(7, 33), leaf(33, mean=1.0 - offset, std=0.2), scalar(1e-5)
    rstd = (x.square().mean(-1) + eps).rsqrt()  # [7]
    y = x * rstd[:, None] * (w + offset)
    dy = normal(7, 33)
    dx, dw = backward([(y, dy)], [x, w])
    return dict(x=x, w=w, eps=eps, y=y, rstd=rstd, dy=dy, dx=dx, dw=dw)


def add_rms_norm(offset=0):
    """sum = x + a, y = norm(sum)·(w + offset). Upstream: dy, and dsum from the residual stream's later users.
    dx holds both paths; da is the same tensor."""
    x, a, w, eps = leaf(7, 33), normal(7, 33), leaf(33, mean=1.0 - offset, std=0.2), scalar(1e-5)
    total = x + a
    rstd = (total.square().mean(-1) + eps).rsqrt()
    y = total * rstd[:, None] * (w + offset)
    dy, dsum = normal(7, 33), normal(7, 33)
    dx, dw = backward([(y, dy), (total, dsum)], [x, w])
    return dict(x=x, a=a, w=w, eps=eps, sum=total, y=y, rstd=rstd, dy=dy, dsum=dsum, dx=dx, dw=dw)


def head_norm(offset=0):
    """x [rows,heads,h], w [h]: each head is normed by itself, all by the same weight."""
    x, w, eps = leaf(7, 3, 10), leaf(10, mean=1.0 - offset, std=0.2), scalar(1e-5)
    rstd = (x.square().mean(-1) + eps).rsqrt()  # [7,3]
    y = x * rstd[..., None] * (w + offset)
    dy = normal(7, 3, 10)
    dx, dw = backward([(y, dy)], [x, w])
    return dict(x=x, w=w, eps=eps, y=y, rstd=rstd, dy=dy, dx=dx, dw=dw)


def columns():
    """y = s (x + b): the columns of a sum, scaled."""
    x, s, b = leaf(5, 7), leaf(7, mean=1.0, std=0.5), leaf(7)
    y = s * (x + b)
    dy = normal(5, 7)
    dx, ds, db = backward([(y, dy)], [x, s, b])
    return dict(x=x, s=s, b=b, y=y, dy=dy, dx=dx, ds=ds, db=db)


def linear():
    x, w, b = leaf(5, 13), leaf(9, 13), leaf(9)
    y = F.linear(x, w, b)
    dy = normal(5, 9)
    dx, dw, db = backward([(y, dy)], [x, w, b])
    return dict(x=x, w=w, b=b, y=y, dy=dy, dx=dx, dw=dw, db=db)


def rope():
    """x [B,T,heads,h]; row t has position first + t; the pair (i, i + h/2) turns by position·theta^(-2i/h)."""
    B, T, H, h = 2, 6, 3, 8
    first, theta = 4, scalar(10000.0)
    x = leaf(B, T, H, h)
    angle = torch.arange(first, first + T).double()[:, None] * theta ** (-torch.arange(0, h, 2).double() / h)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]  # [T,1,h/2]
    lo, hi = x.split(h // 2, dim=-1)
    y = torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], dim=-1)
    dy = normal(B, T, H, h)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, theta=theta, position=torch.tensor(first), y=y, dy=dy, dx=dx)


def attention(Tq=9, Tk=9, causal=True):
    """q [B,Tq,H,h], k and v [B,Tk,K,h]; query head i reads kv head i / (H/K). The queries are the last
    Tq of the Tk positions: causal row t sees the keys 0 .. Tk - Tq + t. lse is [B,Tq,H], natural
    logarithm of the sum of exp(q·k/√h)."""
    B, H, K, h = 2, 6, 2, 10
    q, k, v = leaf(B, Tq, H, h), leaf(B, Tk, K, h), leaf(B, Tk, K, h)
    scores = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(H // K, 2)) / math.sqrt(h)
    if causal:
        seen = torch.ones(Tq, Tk, dtype=torch.bool).tril(Tk - Tq)
        scores = scores.masked_fill(~seen, -math.inf)
    o = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v.repeat_interleave(H // K, 2))
    do = normal(B, Tq, H, h)
    dq, dk, dv = backward([(o, do)], [q, k, v])
    return dict(q=q, k=k, v=v, o=o, lse=scores.logsumexp(-1).transpose(1, 2), do=do, dq=dq, dk=dk, dv=dv)


def philox(seed, block, step, site):
    """Philox4x32-10 (Salmon et al. 2011): the four words of a counter (block: 64 bits, step, site) under a key of 64 bits."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    c = [block & 0xFFFFFFFF, block >> 32, step, site]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def positions(Tk):
    """Of the whole sequence: one more than the keys where those are a multiple of 4, as in the tests."""
    return Tk if Tk % 4 else Tk + 1


def attention_keep(p, B, H, Tq, Tk):
    """[B,H,Tq,Tk], 0 or 1/(1 - p), by the numbering of galaxy/ops/dropout.h. The constants are those of the tests: seed, step,
    site (purpose 4, number 7), the number of the first sample, heads of the model, number of the first head."""
    seed, step, site, first_sample, heads, head_first = 0x123456789ABCDEF, 9, 4 << 24 | 7, 5, H + 5, 3
    T, p = positions(Tk), scalar(p)
    width = (T + 3) // 4 * 4
    keep = torch.zeros(B, H, Tq, Tk, dtype=torch.float64)
    for b, head, t in itertools.product(range(B), range(H), range(Tq)):
        row = (((first_sample + b) * heads + head_first + head) * T + Tk - Tq + t) * width
        words = [w for j in range(0, Tk, 4) for w in philox(seed, (row + j) // 4, step, site)][:Tk]
        keep[b, head, t] = torch.tensor([w >= p * 2**32 for w in words]) / (1 - p)
    return keep


def attention_documents(lengths, B, T):
    """[B,T,2]: begin and end of each row's document, from the documents' lengths, number b on in sample b, of padding negative."""
    documents = torch.zeros(B, T, 2, dtype=torch.int64)
    for b in range(B):
        begin = 0
        for i in range(len(lengths)):
            length = lengths[(b + i) % len(lengths)]
            end = min(begin + abs(length), T)
            documents[b, begin:end] = torch.tensor([begin, end if length > 0 else begin])
            begin = end
    return documents


def attention_seen(Tq, Tk, causal, documents=None, window=0):
    """[B or 1, 1, Tq, Tk]: which keys a query sees; the queries are the last Tq of the Tk positions. Of a window the query itself
    is one."""
    seen = torch.ones(1, 1, Tq, Tk, dtype=torch.bool)
    if causal:
        seen = seen.tril(Tk - Tq)
    if window:
        seen = seen.triu(Tk - Tq - window + 1)
    if documents is not None:
        begin, end = documents[:, Tk - Tq:Tk, None].unbind(-1)  # [B,Tq,1]
        key = torch.arange(Tk)
        seen = seen & ((begin <= key) & (key < end))[:, None]
    return seen


def attention_packed(causal=False, lengths=None, dropout=0.0, window=0, reach=0, scale=0.0):
    """Block-diagonal attention: a query sees its document, of that its window, and nothing where it is padding (o = 0, lse = -inf);
    and the probabilities times a mask that is given. q [B,T,H,h], k and v [B,T,K,h] as in attention(). With a reach, a bias
    [2*reach+1,H] of the distances from -reach to reach, whose ends are for all farther ones."""
    B, T, H, K, h = 2, 9, 4, 2, 6
    q, k, v = leaf(B, T, H, h), leaf(B, T, K, h), leaf(B, T, K, h)
    bias = leaf(2 * reach + 1, H) if reach else None
    documents = attention_documents(lengths, B, T) if lengths else None
    seen = attention_seen(T, T, causal, documents, window)
    scores = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(H // K, 2)) * (scale or 1 / math.sqrt(h))
    if reach:
        distance = torch.arange(T) - torch.arange(T)[:, None]
        scores = scores + bias[distance.clamp(-reach, reach) + reach].permute(2, 0, 1)
    scores = scores.masked_fill(~seen, -math.inf)
    lse = scores.logsumexp(-1)
    p = scores.masked_fill(~seen.any(-1, keepdim=True), 0).softmax(-1) * seen
    if dropout:
        p = p * attention_keep(dropout, B, H, T, T)
    o = torch.einsum("bhts,bshd->bthd", p, v.repeat_interleave(H // K, 2))
    do = normal(B, T, H, h)
    dq, dk, dv, *dbias = backward([(o, do)], [q, k, v] + ([bias] if reach else []))
    out = dict(q=q, k=k, v=v, o=o, lse=lse.transpose(1, 2), do=do, dq=dq, dk=dk, dv=dv)
    if reach:
        out |= dict(bias=bias, dbias=dbias[0])
    return out | (dict(documents=documents.transpose(0, 1)) if lengths else {})  # [T,B,2], as the library has them


def swiglu():
    gate, up = leaf(5, 11), leaf(5, 11)
    y = F.silu(gate) * up
    dy = normal(5, 11)
    dgate, dup = backward([(y, dy)], [gate, up])
    return dict(gate=gate, up=up, y=y, dy=dy, dgate=dgate, dup=dup)


def cross_entropy(smoothing=0.0):
    """loss_sum is the sum over the rows that have a label; dlogits the gradient of loss_sum / count."""
    logits, labels = leaf(6, 17, std=2.0), torch.randint(0, 17, (6,))
    labels[1] = labels[4] = IGNORE
    losses = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)
    count = (labels != IGNORE).sum()
    dlogits, = torch.autograd.grad(losses.sum() / count, [logits])
    return dict(logits=logits, labels=labels, losses=losses, loss_sum=losses.sum(), count=count, dlogits=dlogits)


def embedding():
    table, ids = leaf(13, 5), torch.tensor([3, 0, 12, 3, 7, 3, 0, 9])
    y = F.embedding(ids, table)
    dy = normal(8, 5)
    dtable, = backward([(y, dy)], [table])
    return dict(table=table, ids=ids, y=y, dy=dy, dtable=dtable)


def turned_embedding():
    """The table lies by columns."""
    table, ids = leaf(5, 13), torch.tensor([3, 0, 12, 3, 7, 3, 0, 9])
    y = F.embedding(ids, table.T)
    dy = normal(8, 5)
    dtable, = backward([(y, dy)], [table])
    return dict(table=table, ids=ids, y=y, dy=dy, dtable=dtable)


def layer_norm():
    x, w, b, eps = leaf(7, 33, mean=2.0), leaf(33, mean=1.0, std=0.2), leaf(33), scalar(1e-5)
    y = F.layer_norm(x, (33,), w, b, eps)
    dy = normal(7, 33)
    dx, dw, db = backward([(y, dy)], [x, w, b])
    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + eps).rsqrt()
    return dict(x=x, w=w, b=b, eps=eps, y=y, mean=mean, rstd=rstd, dy=dy, dx=dx, dw=dw, db=db)


def kept(rows, C, p, T, B):
    """Which elements of the rows t*B + b of a batch dropout keeps, as galaxy/ops/dropout.h numbers them."""
    seed_, step, site, first_sample = 0x123456789ABCDEF0, 7, 4 << 24 | 5, 12345678901
    mask = torch.zeros(len(rows), C, dtype=torch.float64)
    for r, row in enumerate(rows):
        for c in range(C):
            number = ((first_sample + row % B) * T + row // B) * (-(-C // 4) * 4) + c
            words = philox(seed_, number // 4, step, site)
            mask[r, c] = words[number % 4] >= p * 2 ** 32
    return mask


DROPOUT = dict(p=0.25, T=4, B=3)  # of rows 7*r % 12 of a batch [T,B]


def dropout():
    x, rows = leaf(8, 21), [7 * r % 12 for r in range(8)]
    y = x * kept(rows, 21, **DROPOUT) / (1 - DROPOUT["p"])
    dy = normal(8, 21)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, rows=torch.tensor(rows), y=y, dy=dy, dx=dx)


def residual():
    x, out, bias, w, b, eps = leaf(8, 21), leaf(8, 21), leaf(21), leaf(21, mean=1.0, std=0.2), leaf(21), scalar(1e-5)
    rows = [7 * r % 12 for r in range(8)]
    total = x + (out + bias) * kept(rows, 21, **DROPOUT) / (1 - DROPOUT["p"])
    y = F.layer_norm(total, (21,), w, b, eps)
    dy = normal(8, 21)
    dx, dout, dbias, dw, db = backward([(y, dy)], [x, out, bias, w, b])
    mean, rstd = total.mean(-1), (total.var(-1, correction=0) + eps).rsqrt()
    return dict(x=x, out=out, bias=bias, w=w, b=b, eps=eps, rows=torch.tensor(rows), sum=total, y=y, mean=mean,
                rstd=rstd, dy=dy, dx=dx, dout=dout, dbias=dbias, dw=dw, db=db)


def gelu(approximate):
    x, bias = leaf(5, 11, std=2.0), normal(11)
    y = F.gelu(x + bias, approximate=approximate)
    dy = normal(5, 11)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, bias=bias, y=y, dy=dy, dx=dx)


def geglu(approximate):
    gate, up = leaf(5, 11, std=2.0), leaf(5, 11)
    y = F.gelu(gate, approximate=approximate) * up
    dy = normal(5, 11)
    dgate, dup = backward([(y, dy)], [gate, up])
    return dict(gate=gate, up=up, y=y, dy=dy, dgate=dgate, dup=dup)


def relu():
    x = leaf(5, 11)
    y = x.relu()
    dy = normal(5, 11)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, y=y, dy=dy, dx=dx)


def tanh():
    x = leaf(5, 11)
    y = x.tanh()
    dy = normal(5, 11)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, y=y, dy=dy, dx=dx)


def gate():
    """y = mu a + (1 - mu) b, mu = sigmoid(gate / 0.7)."""
    a, b, g = leaf(5, 11), leaf(5, 11), leaf(1)
    mu = torch.sigmoid(g / scalar(0.7))
    y = mu * a + (1 - mu) * b
    dy = normal(5, 11)
    da, db, dg = backward([(y, dy)], [a, b, g])
    return dict(a=a, b=b, gate=g, y=y, dy=dy, da=da, db=db, dgate=dg)


def picked_rows():
    """y[i] = x[rows[i] - 3]."""
    x, rows = leaf(11, 7), torch.tensor([13, 4, 3, 9, 6])
    y = F.embedding(rows - 3, x)
    dy = normal(5, 7)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, rows=rows, y=y, dy=dy, dx=dx)


def mean_rows():
    """x is the matrix of rows t*B + b; parts: (b, begin, end). The last part is empty."""
    T, B, C = 6, 3, 7
    x, parts = leaf(T * B, C), torch.tensor([[0, 0, 3], [1, 2, 6], [2, 1, 2], [0, 3, 5], [1, 0, 0]])
    whole = x.reshape(T, B, C)
    y = torch.stack([whole[begin:end, b].mean(0) if end > begin else 0 * whole[0, b] for b, begin, end in parts])
    dy = normal(5, C)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, parts=parts, y=y, dy=dy, dx=dx)


def normalized_rows():
    x, eps = leaf(6, 9), scalar(1e-5)
    y = F.normalize(x, dim=-1, eps=eps)
    dy = normal(6, 9)
    dx, = backward([(y, dy)], [x])
    return dict(x=x, eps=eps, y=y, norm=x.norm(dim=-1).clamp_min(eps), dy=dy, dx=dx)


def loss_with_targets(loss):
    """dlogits is the gradient of the sum of all rows' losses over the number of rows."""
    logits, targets = leaf(6, 7, std=2.0), torch.rand(6, 7).double()
    targets[:, ::3] = (targets[:, ::3] > 0.5).double()
    losses = loss(logits, targets, reduction="none").sum(-1)
    dlogits, = torch.autograd.grad(losses.sum() / scalar(6.0), [logits])
    return dict(logits=logits, targets=targets, losses=losses, dlogits=dlogits)


def optimizer_step(optimizer, w, g, state, **hyper):
    """One step of a torch optimizer on a copy of w, from the given state; (new w, new state)."""
    p = torch.nn.Parameter(w.clone())
    p.grad = g.clone()
    opt = optimizer([p], foreach=False, **hyper)
    opt.state[p].update({k: v.clone() for k, v in state.items()})
    opt.step()
    return p, opt.state[p]


def adamw():
    """w1, m1, v1: the first step, from zero moments. w7, m7, v7: step 7, from the moments m and v."""
    w, g, m = normal(37), normal(37, std=0.1), normal(37, std=0.05)
    v = normal(37, std=0.1).square().float().double()
    lr, beta1, beta2, eps, decay = map(scalar, (1e-2, 0.9, 0.95, 1e-8, 0.1))
    hyper = dict(lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    out = dict(w=w, g=g, m=m, v=v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=decay)
    for t, (m0, v0) in ((1, (0 * m, 0 * v)), (7, (m, v))):
        state = dict(step=torch.tensor(t - 1.0), exp_avg=m0, exp_avg_sq=v0)
        p, state = optimizer_step(torch.optim.AdamW, w, g, state, **hyper)
        out.update({f"w{t}": p, f"m{t}": state["exp_avg"], f"v{t}": state["exp_avg_sq"]})
    return out


def sgd():
    """A later step of torch's SGD: buf1 = momentum·buf + g, w1 = w - lr·buf1."""
    w, g, buf = normal(37), normal(37), normal(37)
    lr, momentum = scalar(0.1), scalar(0.9)
    p, state = optimizer_step(torch.optim.SGD, w, g, dict(momentum_buffer=buf), lr=lr, momentum=momentum)
    return dict(w=w, g=g, buf=buf, lr=lr, momentum=momentum, w1=p, buf1=state["momentum_buffer"])


def schedule():
    """lr/base for the steps 0..39. 5 steps of warm-up, (step+1)/5, which the floor leaves alone; then
    floor + (1-floor)·factor(progress), progress = (step+1-warm-up-stable)/decay, 0 while stable."""
    warmup, total = 5, 40
    kinds = {  # name: stable steps, floor, factor
        "constant": (0, 0.0, lambda p: 1.0),
        "linear": (0, 0.0, lambda p: 1 - p),
        "cosine": (0, 0.1, lambda p: 0.5 * (1 + math.cos(math.pi * p))),
        "wsd_linear": (20, 0.0, lambda p: 1 - p),
        "wsd_sqrt": (20, 0.0, lambda p: 1 - math.sqrt(p)),
    }

    def at(step, stable, floor, factor):
        if step < warmup:
            return (step + 1) / warmup
        progress = max(0, step + 1 - warmup - stable) / (total - warmup - stable)
        return floor + (1 - floor) * factor(progress)

    return {name: torch.tensor([at(step, *kind) for step in range(total)], dtype=torch.float64)
            for name, kind in kinds.items()}


OPS = {
    "rms_norm": rms_norm, "add_rms_norm": add_rms_norm, "head_norm": head_norm,
    "rms_norm_offset": lambda: rms_norm(1), "add_rms_norm_offset": lambda: add_rms_norm(1), "head_norm_offset": lambda: head_norm(1),
    "linear": linear, "rope": rope, "attention": attention,
    "attention_full": lambda: attention(Tq=5, Tk=8, causal=False),
    "attention_offset": lambda: attention(Tq=5, Tk=8),
    "attention_documents": lambda: attention_packed(lengths=(4, 3)),
    "attention_documents_causal": lambda: attention_packed(causal=True, lengths=(2, -1, 5)),
    "attention_dropout": lambda: attention_packed(dropout=0.3),
    "attention_documents_dropout": lambda: attention_packed(lengths=(1, -2, 6), dropout=0.3),
    "attention_window_1": lambda: attention_packed(causal=True, window=1),
    "attention_window_7": lambda: attention_packed(causal=True, window=7),
    "attention_window_8": lambda: attention_packed(causal=True, window=8),
    "attention_window_9": lambda: attention_packed(causal=True, window=9),
    "attention_window_documents": lambda: attention_packed(causal=True, lengths=(2, -1, 6), window=3),
    "attention_window_dropout": lambda: attention_packed(causal=True, dropout=0.3, window=4),
    "attention_bias": lambda: attention_packed(reach=3, scale=1),
    "attention_bias_causal": lambda: attention_packed(causal=True, dropout=0.3, reach=3),
    "swiglu": swiglu, "cross_entropy": cross_entropy,
    "smoothed_cross_entropy": lambda: cross_entropy(smoothing=0.125),
    "embedding": embedding, "turned_embedding": turned_embedding,
    "adamw": adamw, "sgd": sgd, "schedule": schedule,
    "layer_norm": layer_norm, "dropout": dropout, "residual": residual,
    "gelu": lambda: gelu("none"), "gelu_tanh": lambda: gelu("tanh"), "tanh": tanh,
    "geglu": lambda: geglu("none"), "geglu_tanh": lambda: geglu("tanh"), "relu": relu, "gate": gate, "columns": columns,
    "picked_rows": picked_rows, "mean_rows": mean_rows, "normalized_rows": normalized_rows,
    "squared_error": lambda: loss_with_targets(F.mse_loss),
    "binary_cross_entropy": lambda: loss_with_targets(F.binary_cross_entropy_with_logits),
}


def make_ops(out):
    tensors = {}
    for op, make in OPS.items():
        seed(op)
        tensors.update({f"{op}.{name}": t for name, t in make().items()})
    save(out / "ops.safetensors", tensors)


# ---------------------------------------------------------------------- attention in bf16

ATTENTION_BF16 = {  # name: B, Tq, Tk, H, K, h, causal, lengths of documents, dropout[, window]
    "odd": (2, 37, 37, 4, 2, 14, True, None, 0),
    "odd_full": (1, 37, 130, 3, 1, 14, False, None, 0),
    "64": (1, 37, 37, 2, 2, 64, True, None, 0),
    "64_gqa": (1, 130, 130, 2, 1, 64, True, None, 0),
    "128_gqa_full": (1, 37, 37, 2, 1, 128, False, None, 0),
    "128": (1, 130, 130, 1, 1, 128, True, None, 0),
    "96": (1, 70, 70, 2, 1, 96, True, None, 0),
    "documents": (2, 70, 70, 2, 2, 64, False, (33, 20, -4), 0),
    "dropout": (1, 37, 70, 2, 1, 64, False, None, 0.1),
    "documents_dropout": (2, 70, 70, 2, 2, 14, False, (33, 20, -4), 0.1),
    "window": (1, 130, 130, 2, 1, 64, True, None, 0, 45),
    "window_128": (1, 37, 130, 2, 1, 128, True, None, 0, 70),
    "window_odd": (2, 70, 70, 2, 2, 14, True, (33, 20, -4), 0.1, 9),
}
SAMPLED = 7  # every how many-th number of the truth is kept: to see that another computation of all of it is the same


def plain_attention(q, k, v, do, seen, keep=None):
    """softmax(q k^T / sqrt(h) + mask) v and its gradients as one writes them down: every step is rounded to the inputs' type."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    heads_first = [x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2))]
    scores = heads_first[0] @ heads_first[1].transpose(-1, -2) * (1 / math.sqrt(q.shape[3]))
    some = seen.any(-1, keepdim=True)  # what sees nothing, padding, has probabilities of 0
    p = scores.masked_fill(~seen & some, -math.inf).softmax(-1) * some
    if keep is not None:
        p = p * keep.to(p.dtype)
    o = (p @ heads_first[2]).transpose(1, 2)
    return dict(zip(("o", "dq", "dk", "dv"), (o, *torch.autograd.grad(o, [q, k, v], do))))


def make_attention_bf16(out):
    """q, do [B,Tq,H,h] and k, v [B,Tk,K,h] in bf16; truth.X: every SAMPLED-th number of o, dq, dk, dv in float64 from them;
    max_error.X: how far the farthest number of plain_attention in bf16 lies from the truth."""
    tensors = {}
    for name, (B, Tq, Tk, H, K, h, causal, lengths, dropout, *window) in ATTENTION_BF16.items():
        seed("attention_bf16." + name)
        q, k, v, do = (torch.randn(B, T, heads, h, dtype=torch.float64).bfloat16() for T, heads in ((Tq, H), (Tk, K), (Tk, K), (Tq, H)))
        seen = attention_seen(Tq, Tk, causal, attention_documents(lengths, B, Tk) if lengths else None, *window)
        keep = attention_keep(dropout, B, H, Tq, Tk) if dropout else None
        truth = plain_attention(q.double(), k.double(), v.double(), do.double(), seen, keep)
        narrow = plain_attention(q, k, v, do, seen, keep)
        tensors.update({f"{name}.{n}": t for n, t in dict(q=q, k=k, v=v, do=do).items()})
        tensors.update({f"{name}.truth.{n}": t.flatten()[::SAMPLED] for n, t in truth.items()})
        tensors.update({f"{name}.max_error.{n}": (narrow[n].double() - t).abs().max() for n, t in truth.items()})
    save(out / "attention_bf16.safetensors", tensors)


# ------------------------------------------------------------------------------------- scaled RoPE

ROPES = {  # name: head_dim, RoPE's object of a config.json
    "default": (12, dict(rope_type="default", rope_theta=100.0)),
    "linear": (12, dict(rope_type="linear", rope_theta=100.0, factor=2.5)),
    "dynamic": (12, dict(rope_type="dynamic", rope_theta=100.0, factor=3.0)),
    "llama3": (16, dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
                        original_max_position_embeddings=32)),
    "yarn": (16, dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=24)),
    "yarn_longest": (16, dict(rope_type="yarn", rope_theta=1000.0, factor=4.0)),  # of max_position_embeddings
    "yarn_turns": (20, dict(rope_type="yarn", rope_theta=300.0, factor=3.0, original_max_position_embeddings=40, beta_fast=5.5,
                            beta_slow=0.5, truncate=False)),
    "yarn_one_pair": (4, dict(rope_type="yarn", rope_theta=1000.0, factor=8.0, original_max_position_embeddings=4)),  # 0 and 0
    "yarn_attention": (12, dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=24,
                                attention_factor=0.75, mscale=2.0, mscale_all_dim=0.5)),
    "yarn_mscale": (12, dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=24, mscale=0.7,
                             mscale_all_dim=1.2)),
    "yarn_mscale_alone": (12, dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=24, mscale=0.7)),
    "yarn_factor_1": (12, dict(rope_type="yarn", rope_theta=1000.0, factor=1.0, original_max_position_embeddings=64)),
}
POSITIONS = 64  # as many as these models have


def make_ropes(out):
    """NAME.cosine and NAME.sine [POSITIONS, head_dim/2]; NAME.config is the text of the config.json."""
    tensors = {}
    for name, (head_dim, rope) in ROPES.items():
        sizes = dict(vocab_size=8, hidden_size=2 * head_dim, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                     max_position_embeddings=POSITIONS)
        text = json.dumps(dict(model_type="llama", **sizes, rope_parameters=rope))
        tensors[f"{name}.config"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        tables = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=dict(rope)))(torch.zeros(1), torch.arange(POSITIONS)[None])
        for table, values in zip(("cosine", "sine"), tables):
            tensors[f"{name}.{table}"] = values[0, :, :head_dim // 2].contiguous().clone()
    save(out / "rope.safetensors", tensors)


# -------------------------------------------------------------------------------------- models

MODELS = {  # name: batch, length, configuration; its classes are LLaMA's, or those of CLASSES
    "gqa": (3, 10, dict(hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
                        vocab_size=97, num_hidden_layers=2, tie_word_embeddings=False)),
    "odd": (2, 7, dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=3, head_dim=14,  # not 30/3
                       intermediate_size=44, vocab_size=61, num_hidden_layers=3, tie_word_embeddings=True,
                       rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "one": (1, 5, dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40,
                       vocab_size=53, num_hidden_layers=1, tie_word_embeddings=False)),
    "scaled": (2, 40, dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40,
                           vocab_size=53, num_hidden_layers=1, tie_word_embeddings=True, rope_parameters=dict(
                               rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,  # waves of all kinds
                               high_freq_factor=3.0, original_max_position_embeddings=32))),
    "mistral": (2, 6, dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=6, intermediate_size=36,
                           vocab_size=47, num_hidden_layers=1, tie_word_embeddings=False, sliding_window=6)),
    "mistral_window": (2, 17, dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=6, intermediate_size=36,
                                   vocab_size=47, num_hidden_layers=2, tie_word_embeddings=False, sliding_window=5)),
    "qwen2_window": (2, 17, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=36, vocab_size=47,
                                 num_hidden_layers=3, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                                 max_window_layers=2)),
    "qwen3_window": (2, 17, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=36,
                                 vocab_size=47, num_hidden_layers=3, tie_word_embeddings=True, use_sliding_window=True,
                                 sliding_window=7, max_window_layers=1,  # of which layer_types takes no notice
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "qwen2": (2, 9, dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=44,
                         vocab_size=59, num_hidden_layers=2, tie_word_embeddings=True)),
    "qwen3": (2, 8, dict(hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=44,  # not 28/4
                         vocab_size=59, num_hidden_layers=2, tie_word_embeddings=False,
                         rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3_tied": (2, 7, dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=14, intermediate_size=36,
                              vocab_size=53, num_hidden_layers=1, tie_word_embeddings=True, rms_norm_eps=1e-5)),
    "smollm3": (2, 9, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=36, vocab_size=47,
                           num_hidden_layers=2, no_rope_layer_interval=2, bos_token_id=None, eos_token_id=None,
                           pad_token_id=None)),
    "smollm3_window": (2, 17, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=1, intermediate_size=36, vocab_size=47,
                                   num_hidden_layers=3, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
                                   pad_token_id=None, use_sliding_window=True,
                                   sliding_window=5, no_rope_layers=[0, 1, 0])),
    "biased": (2, 12, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=36, vocab_size=47,
                          num_hidden_layers=2, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "qwen3_biased": (2, 8, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=36,
                                vocab_size=47, num_hidden_layers=1, tie_word_embeddings=True, attention_bias=True)),
    "phi3": (2, 9, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=36, vocab_size=47,
                        num_hidden_layers=2, bos_token_id=None, eos_token_id=None, pad_token_id=None, sliding_window=5)),
    "gemma3": (2, 17, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=36,  # not 24/4
                           vocab_size=47, num_hidden_layers=3, sliding_window=5, query_pre_attn_scalar=12, bos_token_id=None,
                           eos_token_id=None, pad_token_id=0, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                           rope_parameters=dict(full_attention=dict(rope_type="linear", factor=4.0, rope_theta=500.0),
                                                sliding_attention=dict(rope_type="default", rope_theta=20.0)))),
    "gemma3_biased": (2, 12, dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=6, intermediate_size=40,
                                  vocab_size=53, num_hidden_layers=2, sliding_window=4, sliding_window_pattern=2, attention_bias=True, query_pre_attn_scalar=6,
                                  bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)),
    "yarn": (2, 40, dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40, vocab_size=53,
                         num_hidden_layers=1, tie_word_embeddings=True, rope_parameters=dict(
                             rope_type="yarn", rope_theta=500.0, factor=4.0, beta_fast=4.0, original_max_position_embeddings=32))),
}
CLASSES = {"mistral": (MistralConfig, MistralForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
           "qwen3": (Qwen3Config, Qwen3ForCausalLM), "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
           "phi3": (Phi3Config, Phi3ForCausalLM), "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM)}  # by what the name begins with
STEPS = 10        # of each optimizer
PERTURBED = 4     # AdamW runs from weights one ulp away
CURVES = 4        # of each model and precision


def loss_of(model, tokens, labels):
    logits = model(input_ids=tokens, use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORE), logits


def weights(model):
    """Copies by name; a tied head is listed once, as the embedding."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def parts(model, values):
    """The same with the matrices that a Phi-3 has stacked under names of their own, as Galaxy has them."""
    c, out = model.config, {}
    h = c.hidden_size // c.num_attention_heads
    stacks = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    sizes = {"q_proj": c.num_attention_heads * h, "k_proj": c.num_key_value_heads * h, "v_proj": c.num_key_value_heads * h,
             "gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
    for name, value in values.items():
        stack = name.split(".")[-2]
        names = stacks.get(stack, ())
        out.update(zip((name.replace(stack, n) for n in names), value.split([sizes[n] for n in names])) if names else {name: value})
    return out


def set_weights(model, values):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(values[name])


def gradients_in_bf16(model, twin, tokens, labels):
    """The loss of the twin, whose weights are those of the model rounded to bf16; its gradients become the model's."""
    set_weights(twin, weights(model))
    twin.zero_grad()
    loss, _ = loss_of(twin, tokens, labels)
    loss.backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        p.grad = q.grad.float()
    return loss


def train(model, start, tokens, labels, optimizer, max_norm=math.inf, in_bf16=False):
    """STEPS steps on one batch from the weights `start`: (loss before each step, final weights, norm of each step's gradients)."""
    set_weights(model, start)
    opt = optimizer(model)
    twin = copy.deepcopy(model).bfloat16() if in_bf16 else None
    losses, norms = [], []
    for _ in range(STEPS):
        opt.zero_grad()
        if twin:
            loss = gradients_in_bf16(model, twin, tokens, labels)
        else:
            loss, _ = loss_of(model, tokens, labels)
            loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=False))
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses), weights(model), torch.stack(norms)


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)


def decayed_adamw(model):
    """Decay on matrices (embedding and head too), not on norms."""
    groups = [dict(params=[p for p in model.parameters() if (p.ndim == 2) == matrix], weight_decay=0.1 * matrix)
              for matrix in (True, False)]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=False)


def one_ulp_away(values):
    """Every weight moved to one of its two neighbours, at random."""
    return {name: torch.nextafter(w, torch.where(torch.rand_like(w) < 0.5, -math.inf, math.inf))
            for name, w in values.items()}


def keeper(dump):
    """keep(name, is_input=False): a hook that keeps what a module returns (takes: is_input), or the first of several."""
    def keep(name, is_input=False):
        def hook(module, inputs, output):
            kept = inputs[0] if is_input else output
            dump[name] = (kept[0] if isinstance(kept, tuple) else kept).detach().clone()
        return hook
    return keep


def hook_activations(model, dump):
    """x.l enters layer l (x.L leaves the last one), h1/h2 leave the norms before its two blocks, att/mlp the blocks, before
    the residual sums (in a Gemma 3 before the norms that precede those)."""
    keep = keeper(dump)
    handles = [model.model.embed_tokens.register_forward_hook(keep("x.0"))]
    for l, layer in enumerate(model.model.layers):
        handles += [module.register_forward_hook(keep(f"{name}.{l + (name == 'x')}")) for name, module in (
            ("h1", layer.input_layernorm), ("att", layer.self_attn),
            ("h2", getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)),
            ("mlp", layer.mlp), ("x", layer))]
    return handles


def distances_in_bf16(model, start, tokens, labels, grads, loss):
    """How far the model's loss and gradients in bf16 are from those in fp32: what rounding alone does to a plain computation."""
    set_weights(model, start)
    model.zero_grad()
    model.bfloat16()
    narrow, _ = loss_of(model, tokens, labels)
    narrow.backward()
    ours, theirs = parts(model, {n: p.grad.float() for n, p in model.named_parameters()}), parts(model, grads)
    dump = {f"bf16_distance.{n}": (g - theirs[n]).norm() for n, g in ours.items()}
    dump["bf16_distance.loss"] = (narrow.detach() - loss.detach()).abs()
    model.float()
    return dump


def curves(model, start, tokens, labels):
    """[CURVES,2,STEPS]: losses and norms of AdamW's steps, clipped. In curve i every token is the i-th behind it in the vocabulary."""
    V = model.config.vocab_size
    batches = [((tokens + i) % V, torch.where(labels == IGNORE, IGNORE, (labels + i) % V)) for i in range(CURVES)]
    return {name: torch.stack([torch.stack(train(model, start, *batch, decayed_adamw, 1.0, in_bf16)[::2]) for batch in batches])
            for name, in_bf16 in (("fp32", False), ("bf16", True))}


def make_llama(out, name):
    """Returns the model's curves."""
    B, T, config = MODELS[name]
    seed(name)
    make_config, make_model = CLASSES.get(name.split("_")[0], (LlamaConfig, LlamaForCausalLM))
    model = make_model(make_config(attn_implementation="eager", max_position_embeddings=64, **config))
    with torch.no_grad():  # larger than the usual 0.02, so that no gradient drowns in rounding
        for n, p in model.named_parameters():
            is_one = p.ndim == 1 and not n.endswith("bias") and not name.startswith("gemma3")  # whose norms add 1 themselves
            p.copy_(is_one + (0.1 if p.ndim == 1 else 0.08) * torch.randn_like(p))
    model.save_pretrained(out / f"llama_{name}")
    start = weights(model)

    stream = torch.randint(0, model.config.vocab_size, (B, T + 1))
    tokens, labels = stream[:, :-1].contiguous(), stream[:, 1:].clone()  # labels[t]: the target of position t
    labels[0, 1] = labels[-1, T - 1] = IGNORE
    dump = dict(tokens=tokens, labels=labels)

    handles = hook_activations(model, dump)
    loss, logits = loss_of(model, tokens, labels)
    loss.backward()
    for handle in handles:
        handle.remove()
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    dump.update(logits=logits, loss=loss, grad_norm=torch.stack([g.norm() for g in grads.values()]).norm())
    dump.update({f"grad.{n}": g for n, g in parts(model, grads).items()})

    dump["sgd.losses"], end, _ = train(model, start, tokens, labels, plain_sgd)
    dump.update({f"sgd.{n}": w for n, w in parts(model, end).items()})

    # AdamW divides a gradient by its own size, so rounding noise in a gradient near zero becomes a
    # step of lr: how far runs drift apart that begin one ulp apart is what another program may differ by.
    losses, end, _ = train(model, start, tokens, labels, decayed_adamw)
    others = [train(model, one_ulp_away(start), tokens, labels, decayed_adamw) for _ in range(PERTURBED)]
    dump["adamw.losses"] = losses
    dump["adamw.spread"] = torch.stack([(other - losses).abs() for other, _, _ in others]).amax(0)
    ends = [parts(model, other) for _, other, _ in others]
    for n, w in parts(model, end).items():
        dump[f"adamw.{n}"] = w
        dump[f"adamw_spread.{n}"] = torch.stack([(other[n] - w).norm() for other in ends]).amax()
    dump.update(distances_in_bf16(model, start, tokens, labels, grads, loss))
    save(out / f"llama_{name}" / "ref.safetensors", dump)
    return {f"{name}.{precision}": c for precision, c in curves(model, start, tokens, labels).items()}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "data" / "ref")
    out = parser.parse_args().out
    disable_progress_bar()
    torch.set_num_threads(1)  # the order of a sum must not depend on the number of cores
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)
    make_ops(out)
    make_attention_bf16(out)
    make_ropes(out)
    save(out / "llama_curves.safetensors", {name: c for model in MODELS for name, c in make_llama(out, model).items()})
    files = sorted(p for p in out.rglob("*") if p.is_file())
    for p in files:
        print(f"{p.stat().st_size:8d} {p.relative_to(out)}")
    print(f"{sum(p.stat().st_size for p in files):8d} bytes in {out}")


if __name__ == "__main__":
    main()
