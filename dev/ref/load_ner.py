"""Judges a folder of --task token_classification as transformers' run_ner would, and compares with what Galaxy said.

    python dev/ref/load_ner.py DIR DATA [--max_seq_length 128] [--label_all_tokens] [--log LOG] [--predictions FILE] [--save FOLDER]

DIR is loaded by AutoModelForTokenClassification and AutoTokenizer. DATA are JSON lines with "tokens" and "ner_tags" (names).
Words are tokenized with is_split_into_words, the label is on a word's first token (or on all), and -100 on others. Prints
loss, precision, recall, f1 (of seqeval, if it is installed, and of code here that follows conlleval) and accuracy. LOG is the
log.jsonl of a run whose last validation must say the same; FILE what --predict wrote, which must be the same labels.
FOLDER gets model and tokenizer as transformers saves them.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import sys

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

IGNORE, BATCH = -100, 16


def check(ok, message):
    if not ok:
        sys.exit(f"load_ner.py: {message}")


def entities(labels):
    """{(type, begin, end)} of a sentence, written from conlleval's description: a chunk ends where its tag is E or S, where B,
    S or O follow B or I, or where the type changes; it begins at B and S, where E or I follow E, S or O, and where the type
    changes."""
    found, begin, tag, kind = set(), 0, "O", "_"
    for i, label in enumerate([*labels, "O"]):
        now, of = label[0], label[1:].split("-", 1)[-1] or "_"
        if tag in "ES" or (tag in "BI" and now in "BSO") or (tag not in "O." and kind != of):
            found.add((kind, begin, i - 1))
        if now in "BS" or (now in "EI" and tag in "ESO") or (now not in "O." and kind != of):
            begin = i
        tag, kind = now, of
    return found


def scores(truth, guess):
    right = predicted = true = 0
    for t, g in zip(truth, guess):
        t, g = entities(t), entities(g)
        right, predicted, true = right + len(t & g), predicted + len(g), true + len(t)
    words = [a == b for t, g in zip(truth, guess) for a, b in zip(t, g)]
    ours = dict(precision=right / predicted if predicted else 0.0, recall=right / true if true else 0.0,
                f1=2 * right / (predicted + true) if predicted + true else 0.0, accuracy=sum(words) / len(words))
    try:
        from seqeval import metrics
    except ImportError:
        return ours, "without seqeval"
    theirs = dict(precision=metrics.precision_score(truth, guess), recall=metrics.recall_score(truth, guess),
                  f1=metrics.f1_score(truth, guess), accuracy=metrics.accuracy_score(truth, guess))
    for name, value in ours.items():
        check(abs(value - theirs[name]) < 1e-12, f"{name} is {value} here, {theirs[name]} in seqeval")
    return theirs, "as seqeval"


def inside(name, names):
    return "I-" + name[2:] if name.startswith("B-") and "I-" + name[2:] in names else name


def encode(tokenizer, row, ids, args):
    """(input_ids, labels, word of each token) of a sentence."""
    e = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=args.max_seq_length)
    words, labels, last = e.word_ids(), [], None
    for w in words:
        tag = None if w is None else row["ner_tags"][w]
        if w is None or (w == last and not args.label_all_tokens):
            labels.append(IGNORE)
        else:
            labels.append(ids[tag if w != last else inside(tag, ids)])
        last = w
    return e, labels, words


def evaluate(model, tokenizer, rows, args):
    """(loss, labels of the rows that count, the model's for them, the label of each word or None)."""
    ids, names = model.config.label2id, model.config.id2label
    loss = count = 0
    truth, guess, predictions = [], [], []
    with torch.no_grad():
        for row in rows:
            e, labels, words = encode(tokenizer, row, ids, args)
            inputs = {k: torch.tensor([v]) for k, v in e.items() if k in ("input_ids", "token_type_ids", "attention_mask")}
            logits = model(**inputs).logits[0]
            wanted = torch.tensor(labels)
            loss += torch.nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum").item()
            count += (wanted != IGNORE).sum().item()
            best = logits.argmax(-1).tolist()
            truth.append([names[l] for l in labels if l != IGNORE])
            guess.append([names[b] for b, l in zip(best, labels) if l != IGNORE])
            first = {}
            for k, w in enumerate(words):
                if w is not None:
                    first.setdefault(w, names[best[k]])
            predictions.append([first.get(w) for w in range(len(row["tokens"]))])
    return loss / count, truth, guess, predictions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("data", type=pathlib.Path, metavar="DATA")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--label_all_tokens", action="store_true")
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--predictions", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    args = parser.parse_args()
    model, report = AutoModelForTokenClassification.from_pretrained(args.folder, local_files_only=True, dtype=torch.float32,
                                                                    attn_implementation="eager", output_loading_info=True)
    check(not any(report.values()), f"{args.folder}: {report}")
    is_level = model.config.model_type == "roberta"  # as run_ner has it
    tokenizer = AutoTokenizer.from_pretrained(args.folder, local_files_only=True,
                                              **({"add_prefix_space": True} if is_level else {}))
    if args.save:
        model.save_pretrained(args.save)
        tokenizer.save_pretrained(args.save)
    rows = [json.loads(line) for line in args.data.read_text().splitlines()]
    loss, truth, guess, predictions = evaluate(model.eval(), tokenizer, rows, args)
    found, how = scores(truth, guess)
    found = {"loss": loss, **found}
    print(", ".join(f"{name} {value:.6f}" for name, value in found.items()))
    if args.log:
        last = [line for line in map(json.loads, args.log.read_text().splitlines()) if "eval_loss" in line][-1]
        for name, value in found.items():
            said, bound = last[f"eval_{name}"], 1e-5 if name == "loss" else 1e-9
            check(abs(said - value) <= bound, f"{name}: {said} in {args.log}, {value} here")
    if args.predictions:
        lines = [json.loads(line) for line in args.predictions.read_text().splitlines()]
        check(len(lines) == len(rows), f"{len(lines)} lines of predictions for {len(rows)} sentences")
        for i, (line, row) in enumerate(zip(lines, rows)):
            check(line == dict(tokens=row["tokens"], labels=predictions[i]), f"line {i + 1}: {line}, here {predictions[i]}")
    print(f"ok {type(model).__name__} of {model.num_parameters()} parameters, {len(rows)} sentences, {how}")


if __name__ == "__main__":
    main()
