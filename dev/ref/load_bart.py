"""Loads a BART or an mBART that Galaxy saved, as a user of transformers would, and compares the targets that both write.

    python dev/ref/load_bart.py DIR [--predictions FILE]
    python dev/ref/load_bart.py DIR --make bart|mbart|mbart50

DIR holds config.json, model.safetensors and a tokenizer.json. It is loaded as BartForConditionalGeneration (or MBart…), which must
find all that it has, use all that is there, and have every weight to the bit. FILE is what `train_bart --predict` wrote
(a "source" and a "target" in each line), without --source_prefix: transformers must write the same targets for the same
sources, by the same settings of generation, which are DIR's.

--make writes DIR: a model of random weights, saved by transformers with RoBERTa's tokenizer of data/ref/bpe; or an mBART with a
tokenizer of letters and languages, which are behind texts, or before them as in mBART-50. They are translated from en_XX to ro_RO.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file
from transformers import (AutoConfig, BartConfig, BartForConditionalGeneration, MBart50Tokenizer, MBartConfig,
                          MBartForConditionalGeneration, MBartTokenizer, PreTrainedTokenizerFast)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

TOKENIZER = pathlib.Path("data/ref/bpe/roberta.json")
SHARED = "model.shared.weight"
LANGUAGES = dict(src_lang="en_XX", tgt_lang="ro_RO")


def check(ok, message):
    if not ok:
        sys.exit(f"load_bart.py: {message}")


def tokenizer_of(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def of_languages(kind):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(before + letter, -3.0 - i / 100) for before in ("", "\u2581") for i, letter in enumerate(letters)]
    if kind == "mbart50":  # which takes the place of three tokens with four of its own
        return MBart50Tokenizer(vocab=pieces[1:], **LANGUAGES)
    return MBartTokenizer(vocab=pieces, **LANGUAGES)


def make(folder, kind):
    tokenizer = None if kind == "bart" else of_languages(kind)
    shape = dict(vocab_size=len(tokenizer) if tokenizer else len(json.loads(TOKENIZER.read_text())["model"]["vocab"]), d_model=48,
                 encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=3, encoder_ffn_dim=80,
                 decoder_ffn_dim=96, max_position_embeddings=40, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                 forced_eos_token_id=2, init_std=0.3)
    torch.manual_seed(44)
    model = MBartForConditionalGeneration(MBartConfig(**shape, scale_embedding=True)) if tokenizer else \
        BartForConditionalGeneration(BartConfig(**shape, decoder_start_token_id=2))
    if tokenizer:  # as examples/pytorch/translation/run_translation.py of transformers has it
        language = tokenizer.convert_tokens_to_ids(LANGUAGES["tgt_lang"])
        model.generation_config.decoder_start_token_id = language if kind == "mbart" else 2
        model.generation_config.forced_bos_token_id = None if kind == "mbart" else language
    beams = dict(num_beams=3, max_length=24, no_repeat_ngram_size=2, length_penalty=0.8, early_stopping=True)
    for name, value in beams.items():
        setattr(model.generation_config, name, value)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    if tokenizer:
        tokenizer.save_pretrained(folder)
    else:
        shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return f"{folder}: {sum(t.numel() for t in model.parameters())} parameters"


def load(folder):
    weights = load_file(folder / "model.safetensors")
    is_mbart = AutoConfig.from_pretrained(folder).model_type == "mbart"
    model, report = (MBartForConditionalGeneration if is_mbart else BartForConditionalGeneration).from_pretrained(
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
        # an mBART's tokenizer.json puts </s> and the language around a text
        ids = tokenizer(line["source"])["input_ids"] if model.config.model_type == "mbart" else \
            [start, *tokenizer(line["source"], add_special_tokens=False)["input_ids"], end]
        with torch.no_grad():
            written = model.generate(torch.tensor([ids]))[0].tolist()
        theirs = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        check(theirs == line["target"], f"{file}:{number}: transformers writes {theirs!r}, the file has {line['target']!r}")
    return f"{len(lines)} targets are those that transformers writes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--predictions", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--make", choices=["bart", "mbart", "mbart50"], help="writes DIR, a model of random weights")
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
