"""Loads a T5 that Galaxy saved, as a user of transformers would, and compares the targets that both write.

    python dev/ref/load_t5.py DIR [--predictions FILE]
    python dev/ref/load_t5.py DIR --make t5|t5_gated|mt5

DIR holds config.json, model.safetensors and a tokenizer.json. It is loaded by AutoModelForSeq2SeqLM, which must find all
that it has, use all that is there, and have every weight to the bit. FILE is what `train_t5 --predict` wrote (a "source"
and a "target" in each line), without --source_prefix: transformers must write the same targets for the same sources, by
the same settings of generation, which are DIR's.

--make writes DIR: a model of random weights, saved by transformers, with the first tokenizer of data/ref/unigram. t5_gated
and mt5 have a head of their own.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import (AutoModelForSeq2SeqLM, MT5Config, MT5ForConditionalGeneration, PreTrainedTokenizerFast, T5Config,
                          T5ForConditionalGeneration)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from make_t5_refs import untie

REF = pathlib.Path("data/ref")


def check(ok, message):
    if not ok:
        sys.exit(f"load_t5.py: {message}")


def tokenizer_of(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def t5(size, config=T5Config, model=T5ForConditionalGeneration, **more):
    made = model(config(
        vocab_size=size, d_model=48, d_kv=10, d_ff=80, num_layers=3, num_decoder_layers=2, num_heads=4, pad_token_id=0,
        eos_token_id=1, decoder_start_token_id=0, relative_attention_num_buckets=16, relative_attention_max_distance=20, **more))
    if more:
        untie(made)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.ndim == 2:
                p.copy_(0.3 * torch.randn_like(p) * (3 if "shared" in name else 1))
    return made


GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
KINDS = {"t5": t5, "t5_gated": lambda size: t5(size, **GATED),
         "mt5": lambda size: t5(size, MT5Config, MT5ForConditionalGeneration, **GATED)}


def tokenizer_file():
    pipeline = next(p for p in json.loads((REF / "unigram/pipelines.json").read_text()) if p["name"] == "t5")
    whole = json.loads((REF / f"unigram/{pipeline['base']}.json").read_text())
    return {**whole, **{key: value for key, value in pipeline.items() if key not in ("name", "base", "points", "texts", "ids")}}


def make(folder, kind):
    tokenizer = tokenizer_file()
    torch.manual_seed(44)
    model = KINDS[kind](len(tokenizer["model"]["vocab"]))
    beams = dict(num_beams=3, max_length=24, no_repeat_ngram_size=2, length_penalty=0.8, early_stopping=True)
    for name, value in beams.items():
        setattr(model.generation_config, name, value)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    return f"{folder}: {sum(t.numel() for t in model.parameters())} parameters"


def load(folder):
    weights = load_file(folder / "model.safetensors")
    model, report = AutoModelForSeq2SeqLM.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what, names in report.items():
        check(not names, f"{folder}: {what}: {sorted(map(str, names))}")
    own = model.state_dict()
    for name, t in weights.items():
        check(name in own, f"{folder}: transformers has no {name}")
        check(torch.equal(own[name], t.float()), f"{folder}: {name} is not the file's")
    table = next(t for name, t in own.items() if name.endswith("shared.weight"))
    is_tied = torch.equal(table, own["lm_head.weight"])
    check(is_tied == ("lm_head.weight" not in weights), f"{folder}: the head is {'' if is_tied else 'not '}the embedding")
    return model.eval()


def compare(folder, model, file):
    tokenizer, lines = tokenizer_of(folder), [json.loads(line) for line in file.read_text().split("\n") if line]
    end = model.config.eos_token_id
    check(lines, f"{file}: is empty")
    for number, line in enumerate(lines, 1):
        ids = [*tokenizer(line["source"], add_special_tokens=False)["input_ids"], end]
        with torch.no_grad():
            written = model.generate(torch.tensor([ids]))[0].tolist()
        theirs = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        check(theirs == line["target"], f"{file}:{number}: transformers writes {theirs!r}, the file has {line['target']!r}")
    return f"{len(lines)} targets are those that transformers writes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--predictions", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--make", choices=KINDS, help="writes DIR, a model of random weights")
    args = parser.parse_args()
    disable_progress_bar()
    set_verbosity_error()  # what is missing is checked here
    if args.make:
        print("ok", make(args.folder, args.make))
        return
    model = load(args.folder)
    said = [f"{args.folder}: {sum(t.numel() for t in model.parameters())} parameters"]
    if args.predictions:
        said.append(compare(args.folder, model, args.predictions))
    print("ok", ", ".join(said))


if __name__ == "__main__":
    main()
