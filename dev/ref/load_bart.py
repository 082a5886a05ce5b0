"""Loads a BART that Galaxy saved, as a user of transformers would, and compares the targets that both write.

    python dev/ref/load_bart.py DIR [--predictions FILE]
    python dev/ref/load_bart.py DIR --make

DIR holds config.json, model.safetensors and a tokenizer.json. It is loaded as BartForConditionalGeneration, which must
find all that it has, use all that is there, and have every weight to the bit. FILE is what `train_bart --predict` wrote
(a "source" and a "target" in each line), without --source_prefix: transformers must write the same targets for the same
sources, by the same settings of generation, which are DIR's.

--make writes DIR: a model of random weights, saved by transformers with RoBERTa's tokenizer of data/ref/bpe.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

TOKENIZER = pathlib.Path("data/ref/bpe/roberta.json")
SHARED = "model.shared.weight"


def check(ok, message):
    if not ok:
        sys.exit(f"load_bart.py: {message}")


def tokenizer_of(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def make(folder):
    size = len(json.loads(TOKENIZER.read_text())["model"]["vocab"])
    config = BartConfig(vocab_size=size, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
                        decoder_attention_heads=3, encoder_ffn_dim=80, decoder_ffn_dim=96, max_position_embeddings=40,
                        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
                        forced_eos_token_id=2, init_std=0.3)
    torch.manual_seed(44)
    model = BartForConditionalGeneration(config)
    beams = dict(num_beams=3, max_length=24, no_repeat_ngram_size=2, length_penalty=0.8, early_stopping=True)
    for name, value in beams.items():
        setattr(model.generation_config, name, value)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return f"{folder}: {sum(t.numel() for t in model.parameters())} parameters"


def load(folder):
    weights = load_file(folder / "model.safetensors")
    model, report = BartForConditionalGeneration.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what, names in report.items():
        check(not names, f"{folder}: {what}: {sorted(map(str, names))}")
    own = model.state_dict()
    for name, t in weights.items():
        check(name in own, f"{folder}: transformers has no {name}")
        check(torch.equal(own[name], t.float()), f"{folder}: {name} is not the file's")
    check(SHARED in own and torch.equal(own[SHARED], own["lm_head.weight"]), f"{folder}: the head is not the embedding")
    return model.eval()


def compare(folder, model, file):
    tokenizer, lines = tokenizer_of(folder), [json.loads(line) for line in file.read_text().splitlines()]
    start, end = model.config.bos_token_id, model.config.eos_token_id
    check(lines, f"{file}: is empty")
    for number, line in enumerate(lines, 1):
        ids = [start, *tokenizer(line["source"], add_special_tokens=False)["input_ids"], end]
        with torch.no_grad():
            written = model.generate(torch.tensor([ids]))[0].tolist()
        theirs = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        check(theirs == line["target"], f"{file}:{number}: transformers writes {theirs!r}, the file has {line['target']!r}")
    return f"{len(lines)} targets are those that transformers writes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--predictions", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--make", action="store_true", help="writes DIR, a model of random weights")
    args = parser.parse_args()
    disable_progress_bar()
    set_verbosity_error()  # what is missing is checked here
    if args.make:
        print("ok", make(args.folder))
        return
    model = load(args.folder)
    said = [f"{args.folder}: {sum(t.numel() for t in model.parameters())} parameters"]
    if args.predictions:
        said.append(compare(args.folder, model, args.predictions))
    print("ok", ", ".join(said))


if __name__ == "__main__":
    main()
