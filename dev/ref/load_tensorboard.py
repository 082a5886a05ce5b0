#!/usr/bin/env python3
"""Reads the event files of a run (--report_to tensorboard) with TensorBoard's own package, and holds them against
log.jsonl: every number of every line, each step once, nothing else, and the options as a text.

    pip install tensorboard
    dev/ref/load_tensorboard.py out      (tensorboard --logdir out shows the same)
"""
import glob
import json
import os
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

TAGS = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/learning_rate", "epoch": "train/epoch",
        "tokens_per_s": "train/tokens_per_second", "memory_mb": "train/memory_mb"}
ONLY_IN_LOG = {"step", "skipped", "gflops", "padding", "card_mb"}


def single(x):
    """x as fp32, as event files have it."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def near(a, b, key):
    digits = {"epoch": 6e-5, "memory_mb": 0.06}  # as log.jsonl rounds them
    return a == b or (a != a and b != b) or abs(a - b) <= digits.get(key, 1e-6 * abs(b))


def of_log(path):
    """{tag: {step: (value, key)}}; of two validations of one step the later one."""
    expected = {}
    for line in open(path):
        line = json.loads(line)
        if "step" not in line:
            continue
        is_eval = any(key.startswith("eval_") for key in line)
        counted = [key for key in line if key.startswith("eval_")][-1:]
        for key, value in line.items():
            if is_eval and (not key.startswith("eval_") or key in counted):
                continue
            group = "eval_best/" if "weights_of_step" in line else "eval/"
            tag = group + key[5:] if is_eval else TAGS.get(key, "train/" + key)
            if not is_eval and key in ONLY_IN_LOG:
                continue
            expected.setdefault(tag, {})[line["step"]] = (float("nan") if value is None else value, key)
    return expected


def main(run):
    folders = glob.glob(os.path.join(run, "runs", "*"))
    assert len(folders) == 1, f"{run}/runs has {len(folders)} folders; a run has one"
    expected = of_log(os.path.join(run, "log.jsonl"))
    old = event_accumulator.EventAccumulator(folders[0], size_guidance={"scalars": 0})
    old.Reload()
    new = plugin_event_accumulator.EventAccumulator(folders[0], size_guidance={"tensors": 0})
    new.Reload()
    scalars = set(old.Tags()["scalars"])
    assert scalars == set(expected), f"tags differ: {scalars ^ set(expected)}"
    n = 0
    for tag, steps in expected.items():
        found = old.Scalars(tag)
        at = sorted({event.step for event in found})
        assert at == sorted(steps), f"{tag}: steps {at}, and the log has {sorted(steps)}"
        for event in found:
            value, key = steps[event.step]
            same_step = [e.value for e in found if e.step == event.step]
            assert any(near(v, single(value), key) for v in same_step), f"{tag}, step {event.step}: {same_step}, {value}"
            n += 1
        assert [event.step for event in new.Tensors(tag)] == [event.step for event in found], tag
    text = new.Tensors("args/text_summary")[-1].tensor_proto.string_val[0].decode()
    options = json.loads(text)
    assert options == json.load(open(os.path.join(run, "training_args.json"))), "the options are others"
    print(f"{folders[0]}: {len(os.listdir(folders[0]))} files, {n} values of {len(expected)} tags, as in log.jsonl")


if __name__ == "__main__":
    main(sys.argv[1])
