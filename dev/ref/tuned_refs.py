"""What the makers of reference dumps of tuning methods share: where they write, and what they say of a step and of ten."""
import argparse
import pathlib

import torch

from make_refs import IGNORE, STEPS


def out_folder(doc):
    """--out, with what makes two runs give the same numbers."""
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "data" / "ref")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return parser.parse_args().out


def text_of(vocab, B, T):
    """Tokens and labels [B,T], of which two do not count."""
    stream = torch.randint(0, vocab, (B, T + 1))
    tokens, labels = stream[:, :-1].contiguous(), stream[:, 1:].clone()
    labels[0, 1] = labels[-1, T - 1] = IGNORE
    return tokens, labels


def gradients_of(grads):
    """grad.NAME, and the norm of all."""
    return {"grad_norm": torch.stack([g.norm() for g in grads.values()]).norm(), **{f"grad.{n}": g for n, g in grads.items()}}


def steps_of(trained, loss, before=lambda step: None):
    """Ten steps of SGD of lr 0.1: the loss before each, and what is trained after all. before(k) is called before step k."""
    optimizer, losses = torch.optim.SGD(trained.values(), lr=0.1, foreach=False), []
    for k in range(STEPS):
        before(k)
        optimizer.zero_grad()
        now = loss()
        now.backward()
        optimizer.step()
        losses.append(now.detach())
    return {"sgd.losses": torch.stack(losses), **{f"sgd.{n}": p.detach() for n, p in trained.items()}}
