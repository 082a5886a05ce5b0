"""Loads a BART, mBART or T5 that Galaxy saved, as a user of transformers would, and compares the targets that both write.

    python dev/ref/load_seq2seq.py DIR [--predictions FILE]
    python dev/ref/load_seq2seq.py DIR --make bart|mbart|mbart50|t5|t5_gated|mt5

DIR holds config.json, model.safetensors and a tokenizer.json. It is loaded by AutoModelForSeq2SeqLM, which must find all
that it has, use all that is there, and have every weight to the bit. FILE is what `train_bart --predict` or `train_t5
--predict` wrote (a "source" and a "target" in each line), without --source_prefix: transformers must write the same
targets for the same sources, by the same settings of generation, which are DIR's.

--make writes DIR: a model of random weights, saved by transformers, of a BART with RoBERTa's tokenizer of data/ref/bpe,
of T5s with the first of data/ref/unigram; t5_gated and mt5 have a head of their own. An mBART has a tokenizer of letters
and languages, which are behind texts, or before them as in mBART-50: it translates from en_XX to ro_RO.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file
from transformers import (AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration, MBart50Tokenizer, MBartConfig,
                          MBartForConditionalGeneration, MBartTokenizer, MT5Config, MT5ForConditionalGeneration, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from make_t5_refs import untie

REF = pathlib.Path("data/ref")
LANGUAGES = dict(src_lang="en_XX", tgt_lang="ro_RO")


def check(ok, message):
    if not ok:
        sys.exit(f"load_seq2seq.py: {message}")


def tokenizer_of(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def bart(size, config=BartConfig, model=BartForConditionalGeneration, start=2, **more):
    return model(config(
        vocab_size=size, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=3,
        encoder_ffn_dim=80, decoder_ffn_dim=96, max_position_embeddings=40, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=start, forced_eos_token_id=2, init_std=0.3, **more))


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
MBART = lambda size: bart(size, MBartConfig, MBartForConditionalGeneration, None, scale_embedding=True)
KINDS = {"bart": bart, "mbart": MBART, "mbart50": MBART, "t5": t5, "t5_gated": lambda size: t5(size, **GATED),
         "mt5": lambda size: t5(size, MT5Config, MT5ForConditionalGeneration, **GATED)}


def tokenizer_file(kind):
    if kind == "bart":
        return json.loads((REF / "bpe/roberta.json").read_text())
    pipeline = next(p for p in json.loads((REF / "unigram/pipelines.json").read_text()) if p["name"] == "t5")
    whole = json.loads((REF / f"unigram/{pipeline['base']}.json").read_text())
    return {**whole, **{key: value for key, value in pipeline.items() if key not in ("name", "base", "points", "texts", "ids")}}


def of_languages(kind):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(before + letter, -3.0 - i / 100) for before in ("", "\u2581") for i, letter in enumerate(letters)]
    if kind == "mbart50":  # which takes the place of three tokens with four of its own
        return MBart50Tokenizer(vocab=pieces[1:], **LANGUAGES)
    return MBartTokenizer(vocab=pieces, **LANGUAGES)


def set_language(model, kind, tokenizer):
    """As examples/pytorch/translation/run_translation.py of transformers does it."""
    language = tokenizer.convert_tokens_to_ids(LANGUAGES["tgt_lang"])
    model.generation_config.decoder_start_token_id = language if kind == "mbart" else 2
    model.generation_config.forced_bos_token_id = None if kind == "mbart" else language


def make(folder, kind):
    with_languages = of_languages(kind) if kind.startswith("mbart") else None
    tokenizer = None if with_languages else tokenizer_file(kind)
    torch.manual_seed(44)
    model = KINDS[kind](len(with_languages) if with_languages else len(tokenizer["model"]["vocab"]))
    if with_languages:
        set_language(model, kind, with_languages)
    beams = dict(num_beams=3, max_length=24, no_repeat_ngram_size=2, length_penalty=0.8, early_stopping=True)
    for name, value in beams.items():
        setattr(model.generation_config, name, value)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    if with_languages:
        with_languages.save_pretrained(folder)
    else:
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
    start, end = [model.config.bos_token_id] if model.config.model_type == "bart" else [], model.config.eos_token_id
    check(lines, f"{file}: is empty")
    for number, line in enumerate(lines, 1):
        # an mBART's tokenizer.json puts the end and the language around a text
        ids = tokenizer(line["source"])["input_ids"] if model.config.model_type == "mbart" else \
            [*start, *tokenizer(line["source"], add_special_tokens=False)["input_ids"], end]
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
