"""Loads a BERT, a RoBERTa, an XLM-R or a DistilBERT that Galaxy saved, as a user of transformers would, and checks what is in it.

    python dev/ref/load_bert.py DIR [--logits FILE] [--ids "1 17 4 2"]

DIR holds config.json and model.safetensors (or shards), and may hold a tokenizer. It is loaded as BertForPreTraining,
BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification and BertModel (Roberta..., XLMRoberta...,
DistilBert...: without the first). What
config.json's architectures names must find all that it has, and use all that is there; the others may lack a head that
DIR has not, or leave one that they have not, but whole; and every weight is the file's, to the bit.

FILE (safetensors) holds what Galaxy computed: tokens [B,T], if need be types and mask [B,T], all int32, and one or more
of logits ([B,T,V], or [B,labels] of a classification, [B,T,labels] of tokens), next_sentence_logits [B,2], pooled [B,C], x.L [B,T,C] (what
leaves the last of L layers); the dumps of make_bert_refs.py are such files. Rows of padding are not compared.
--ids prints these outputs for one text.

Prints a last line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import (AutoTokenizer, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification,
                          BertForTokenClassification, BertModel, DistilBertForMaskedLM,
                          DistilBertForSequenceClassification, DistilBertForTokenClassification, DistilBertModel,
                          PreTrainedTokenizerFast, RobertaForMaskedLM, RobertaForSequenceClassification,
                          RobertaForTokenClassification, RobertaModel, XLMRobertaForMaskedLM,
                          XLMRobertaForSequenceClassification, XLMRobertaForTokenClassification, XLMRobertaModel)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

BOUND = 1e-5  # relative L2: fp32 sums in another order
TEXTS = ("In the beginning was the Word.", "Crème brûlée, naïvely – 北京 don't!", "[MASK] a[SEP]b  \t\n",
         "x" * 120 + " é")
# The parts of a BERT, by what their tensors' names begin with, once "bert." or "roberta." is cut off.
PARTS = {"embeddings": "encoder", "encoder": "encoder", "pooler": "pooler", "cls.predictions": "predictions",
         "cls.seq_relationship": "next sentence", "classifier": "classifier", "lm_head": "predictions",
         "transformer": "encoder", "vocab_transform": "predictions", "vocab_layer_norm": "predictions",
         "vocab_projector": "predictions", "pre_classifier": "classifier"}
CLASSES = {
    "bert": {BertForPreTraining: {"encoder", "pooler", "predictions", "next sentence"},
             BertForMaskedLM: {"encoder", "predictions"},
             BertForSequenceClassification: {"encoder", "pooler", "classifier"},
             BertForTokenClassification: {"encoder", "classifier"},
             BertModel: {"encoder", "pooler"}},
    "roberta": {RobertaForMaskedLM: {"encoder", "predictions"},
                RobertaForSequenceClassification: {"encoder", "classifier"},
                RobertaForTokenClassification: {"encoder", "classifier"},
                RobertaModel: {"encoder", "pooler"}},
    "xlm-roberta": {XLMRobertaForMaskedLM: {"encoder", "predictions"},
                    XLMRobertaForSequenceClassification: {"encoder", "classifier"},
                    XLMRobertaForTokenClassification: {"encoder", "classifier"},
                    XLMRobertaModel: {"encoder", "pooler"}},
    "distilbert": {DistilBertForMaskedLM: {"encoder", "predictions"},
                   DistilBertForSequenceClassification: {"encoder", "classifier"},
                   DistilBertForTokenClassification: {"encoder", "classifier"},
                   DistilBertModel: {"encoder"}},
}

BASES = {BertModel, RobertaModel, XLMRobertaModel}
LABELS = ("ForSequenceClassification", "ForTokenClassification")  # of which a folder has one or the other


def check(ok, message):
    if not ok:
        sys.exit(f"load_bert.py: {message}")


def plain(name):
    return name.removeprefix("bert.").removeprefix("roberta.").removeprefix("distilbert.")


def part_of(name):
    found = [part for begin, part in PARTS.items() if plain(name).startswith(begin + ".")]
    check(found, f"{name}: a tensor that no BERT has")
    return found[0]


def read_weights(folder):
    """{name without "bert." or "roberta.": tensor} of all files."""
    index = folder / "model.safetensors.index.json"
    names = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
    weights = {plain(n): t for name in sorted(names) for n, t in load_file(folder / name).items()}
    is_tied = json.loads((folder / "config.json").read_text()).get("tie_word_embeddings", True)
    tied = {f"{head}.decoder.{what}" for head in ("cls.predictions", "lm_head") for what in ("weight", "bias")}
    tied.add("vocab_projector.weight")
    check(not is_tied or not tied & set(weights),
          f"{folder}: has the decoder's weight or bias, which are tied: transformers does not save them")
    return weights


def load_as(kind, folder, weights, is_own):
    """A model in fp32. transformers makes missing weights up at random: only its report tells."""
    model, report = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32,
                                         attn_implementation="eager", output_loading_info=True)
    there, has = {part_of(n) for n in weights}, CLASSES[kind.config_class.model_type][kind]
    # A folder of embeddings has no pooler, and BertModel without one cannot be asked for here.
    lacks = has - there if not is_own else {"pooler"} - there if kind in BASES else set()
    may = {"missing_keys": lacks, "unexpected_keys": set() if is_own else there - has}
    for what, names in report.items():
        wrong = [n for n in sorted(map(str, names)) if part_of(n) not in may.get(what, set())]
        check(not wrong, f"{folder} as {kind.__name__}: {what}: {wrong}")
    own = {plain(n) for n in report["unexpected_keys"]} | set(map(plain, model.state_dict()))
    check(set(weights) <= own, f"{folder} as {kind.__name__}: ignored: {sorted(set(weights) - own)}")
    for name, t in model.state_dict().items():
        if plain(name) in weights:
            check(torch.equal(t, weights[plain(name)].float()),
                  f"{folder} as {kind.__name__}: {name} is not the file's")
    return model.eval()


def outputs_of(models, there, tokens, types, mask):
    """What the folder's parts make of a batch, by the names that dumps have."""
    inputs = dict(input_ids=tokens.long(), attention_mask=mask.long())
    if not any(kind.config_class.model_type == "distilbert" for kind in models):
        inputs["token_type_ids"] = types.long()

    def of(end):
        return next(model for kind, model in models.items() if kind.__name__.endswith(end))

    with torch.no_grad():
        base = of("Model")(**inputs)
        out = {f"x.{of('Model').config.num_hidden_layers}": base.last_hidden_state}
        if "pooler" in there:
            out["pooled"] = base.pooler_output
        if "classifier" in there:
            out["logits"] = of(LABELS)(**inputs).logits
        elif "predictions" in there:
            out["logits"] = of("ForMaskedLM")(**inputs).logits
        if "next sentence" in there:
            both = of("ForPreTraining")(**inputs)
            out["next_sentence_logits"] = both.seq_relationship_logits
            check(torch.equal(both.prediction_logits, out["logits"]), "BertForPreTraining and BertForMaskedLM differ")
    return out


def compare(models, there, file):
    theirs = load_file(file)
    check("tokens" in theirs, f"{file}: has no tensor 'tokens'")
    tokens = theirs["tokens"]
    mask = theirs.get("mask", torch.ones_like(tokens))
    ours = outputs_of(models, there, tokens, theirs.get("types", torch.zeros_like(tokens)), mask)
    names = [n for n in ours if n in theirs]
    check(names, f"{file}: has none of {sorted(ours)}")
    said = []
    for name in names:
        a, b = ours[name].double(), theirs[name].double()
        check(a.shape == b.shape, f"{file}: {name} is {tuple(b.shape)}, expected {tuple(a.shape)}")
        if a.shape[:2] == mask.shape and a.ndim == 3:
            a, b = a[mask == 1], b[mask == 1]
        error = ((a - b).norm() / a.norm()).item()
        check(error <= BOUND, f"{file}: {name}: {error:.2g} away (relative L2), the bound is {BOUND:.0e}")
        said.append(f"{name} {error:.2g} apart")
    return said


def check_tokenizer(folder, config):
    """The file's own pipeline, and transformers' class around it, say the same; the ids are the model's."""
    fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # Without tokenizer_config.json AutoTokenizer would guess a class from config.json's model_type, and that class
    # brings a pipeline of its own instead of the file's.
    if (folder / "tokenizer_config.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    else:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    kind, size, pad = type(tokenizer).__name__, config["vocab_size"], config.get("pad_token_id", 0)
    check(len(tokenizer) <= size, f"{folder}: the tokenizer has {len(tokenizer)} tokens, vocab_size is {size}")
    check(tokenizer.pad_token_id in (None, pad),
          f"{folder}: pad_token_id is {pad}, {tokenizer.pad_token} is {tokenizer.pad_token_id}")
    for texts in [*((text,) for text in TEXTS), *((text, TEXTS[0]) for text in TEXTS)]:
        ours, theirs = tokenizer(*texts), fast.encode(*texts)
        for what, a, b in (("ids", ours["input_ids"], theirs.ids),
                           ("types", ours.get("token_type_ids", theirs.type_ids), theirs.type_ids)):
            check(a == b, f"{folder}: the {what} of {texts} are {b} in tokenizer.json, {a} in {kind}")
    return f"tokenizer of {len(tokenizer)} ({kind})"


def print_outputs(models, there, ids):
    tokens = torch.tensor([[int(i) for i in ids.split()]])
    for name, t in outputs_of(models, there, tokens, torch.zeros_like(tokens), torch.ones_like(tokens)).items():
        for row, numbers in enumerate(t.flatten(0, -2)):
            print(f"{name}[{row}]", " ".join(f"{x:.6f}" for x in numbers.tolist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--logits", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--ids", metavar="NUMBERS", help="prints what the model makes of these tokens")
    args = parser.parse_args()
    disable_progress_bar()
    set_verbosity_error()  # what is missing by intention is checked here
    check((args.folder / "config.json").is_file(), f"{args.folder}: no config.json")
    config = json.loads((args.folder / "config.json").read_text())
    own = (config.get("architectures") or ["nothing"])[0]
    classes = CLASSES.get(config.get("model_type"), {})
    check(own in {kind.__name__ for kind in classes}, f"{args.folder}: architectures names {own}")
    weights = read_weights(args.folder)
    there = {part_of(n) for n in weights}
    # A classifier of other labels has other shapes, or names: only its own class can load it.
    models = {kind: load_as(kind, args.folder, weights, kind.__name__ == own) for kind in classes
              if kind.__name__ == own or "classifier" not in there or not kind.__name__.endswith(LABELS)}
    said = [f"{own} of {sum(t.numel() for t in weights.values())} parameters ({', '.join(sorted(there))})"]
    if args.logits:
        said += compare(models, there, args.logits)
    if (args.folder / "tokenizer.json").exists():
        said.append(check_tokenizer(args.folder, config))
    if args.ids:
        print_outputs(models, there, args.ids)
    print("ok", ", ".join(said))


if __name__ == "__main__":
    main()
