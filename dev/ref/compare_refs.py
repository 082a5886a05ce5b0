"""Compares two folders of reference dumps (make_refs.py and its neighbours), e.g. those of two machines.

    python dev/ref/compare_refs.py OLD NEW

Same files, tensors, shapes, dtypes; integers and texts exactly; floats within rounding: in tensors by the L2 norm of
the difference, in .jsonl each number. Prints the tensor that comes nearest to its bound; exits with 1 and names each difference.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file

OPS = 2e-6     # relative: float64 results rounded to fp32, from inputs that may differ in their last bit
MODELS = 2e-5  # relative, in each model's ref.safetensors, curve, runs.jsonl and log-likelihoods: fp32 sums in another order, through a few layers and ten steps
NUMBERS = 1e-12 # float64 results, in .jsonl: absolute below 1, relative above
SPREADS = 4    # AdamW runs may be this many times as far apart as runs that begin one ulp apart
MAXIMA = 1.5   # by how much the farthest of many numbers rounded in another order may be off otherwise
MAGNITUDE = 10 # spreads are maxima over a few random runs: only their order of magnitude is stable
# Fields that follow from the version of transformers alone.
VERSION_FIELDS = {"transformers_version"}


def norm(x):
    return float(np.linalg.norm(x.astype(np.float64).ravel()))


def scale(name, old):
    """The norm of what a tensor is compared with. A key's bias shifts all scores of a query alike, so its gradient is 0
    but for the roundings of the terms that cancel: these have the scale of the gradient of the key's weight."""
    term = name.replace("key.bias", "key.weight").replace("k_lin.bias", "k_lin.weight")
    return norm(old[term if "grad." in name else name])


def deviation(file, name, old, new):
    """(deviation / bound) of one tensor: above 1 it is a difference."""
    kind, _, rest = name.partition(".")
    if name == "adamw.spread" or kind.endswith("_spread"):
        # Below some roundings of what they are the spread of, spreads are chance.
        of = old["adamw.losses" if name == "adamw.spread" else name.replace("_spread", "", 1)]
        floor = MODELS / 10 * norm(of) / (of.size ** 0.5 if name == "adamw.spread" else 1)
        a, b = (np.maximum(t[name].astype(np.float64), floor) for t in (old, new))
        return float(np.abs(np.log(a / b)).max()) / np.log(MAGNITUDE)
    if name.startswith("bf16_distance."):
        # Sums of roundings, which fall otherwise on another CPU; the loss's is a single one, and may be next to nothing.
        floor = 2.0 ** -10 * norm(old["loss"]) if name.endswith(".loss") else 1e-6 * norm(old["grad." + name[14:]])
        a, b = (np.maximum(t[name].astype(np.float64), floor) for t in (old, new))
        return float(np.abs(np.log(a / b)).max()) / np.log(MAGNITUDE)
    if file.endswith("_curves.safetensors") and name.endswith(".bf16"):  # what is compared is how far the curve in bf16 is from that in fp32
        a, b = (norm(t[name] - t[name.replace(".bf16", ".fp32")]) for t in (old, new))
        return abs(float(np.log(a / b))) / np.log(MAGNITUDE)
    if ".max_error." in name:
        return abs(float(np.log(old[name][0] / new[name][0]))) / np.log(MAXIMA)
    a, b = old[name], new[name]
    if not np.issubdtype(a.dtype, np.floating):
        return 0.0 if np.array_equal(a, b) else np.inf
    infinite = np.isinf(a)  # a query that sees no key has a log-sum-exp of -inf
    if not np.array_equal(infinite, np.isinf(b)) or not np.array_equal(a[infinite], b[infinite]):
        return np.inf
    a, b = np.where(infinite, 0, a), np.where(infinite, 0, b)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    bound = (MODELS if file.endswith(("/ref.safetensors", "_curves.safetensors")) else OPS) * scale(name, old)
    if f"{kind}_spread.{rest}" in old:
        bound += SPREADS * float(old[f"{kind}_spread.{rest}"][0])
    elif name == "adamw.losses":
        bound += SPREADS * norm(old["adamw.spread"])
    distance = norm(a.astype(np.float64) - b)
    return distance / bound if bound else (np.inf if distance else 0.0)


def settings(path):
    values = json.loads(path.read_text())
    return {k: v for k, v in values.items() if k not in VERSION_FIELDS} if isinstance(values, dict) else values


def records(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def alike(a, b, bound):
    """Values of JSON: numbers within rounding, everything else equal."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y, bound) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k], bound) for k in a)
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a - b) <= bound * max(1, abs(a))
    return a == b


def main(old, new):
    differences, worst = [], (0.0, "nothing", "")

    def same(what, a, b):
        if a != b:
            differences.append(f"{what}: {a} before, {b} now")
        return a == b

    names = [sorted(str(p.relative_to(d)) for p in d.rglob("*") if p.is_file()) for d in (old, new)]
    if not names[0]:
        differences.append(f"{old}: holds no files")
    for file in sorted(set(names[0]) ^ set(names[1])):
        differences.append(f"{file}: only in {old if file in names[0] else new}")
    tensors = 0
    for file in sorted(set(names[0]) & set(names[1])):
        if file.endswith(".json"):
            same(file, settings(old / file), settings(new / file))
            continue
        if file.endswith(".jsonl"):
            a, b = records(old / file), records(new / file)
            same(f"{file}: lines", len(a), len(b))
            bound = MODELS if file.endswith(("/runs.jsonl", "likelihood.jsonl")) else NUMBERS
            differences += [f"{file}:{i}: {x} before, {y} now" for i, (x, y) in enumerate(zip(a, b), 1) if not alike(x, y, bound)]
            continue
        if file.endswith((".txt", ".gguf")):
            if (old / file).read_bytes() != (new / file).read_bytes():
                differences.append(f"{file}: other bytes (cmp {old / file} {new / file})")
            continue
        a, b = load_file(old / file), load_file(new / file)
        types = [{name: str(t.dtype) for name, t in tensors.items()} for tensors in (a, b)]
        a, b = ({name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in tensors.items()} for tensors in (a, b))
        for name in sorted(a.keys() ^ b.keys()):
            differences.append(f"{file} {name}: only in {old if name in a else new}")
        for name in sorted(a.keys() & b.keys()):
            tensors += 1
            if not same(f"{file} {name}", (a[name].shape, types[0][name]), (b[name].shape, types[1][name])):
                continue
            ratio = deviation(file, name, a, b)
            worst = max(worst, (ratio, file, name))
            if not ratio <= 1:
                differences.append(f"{file} {name}: {ratio:.3g} times its bound")
    for line in differences:
        print("DIFFERENT", line)
    print(f"{tensors} tensors, worst {worst[0]:.3g} of its bound: {worst[1]} {worst[2]}")
    return 1 if differences else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*map(pathlib.Path, sys.argv[1:])))
