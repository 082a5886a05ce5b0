#!/usr/bin/env python3
"""Checks that `tokenizers` and transformers' AutoTokenizer load a BPE that ./tokenize trained, that the library trains
the same one, and that all of them have the ids of ./tokenize for each line of a text.

    ./tokenize --train TEXT --type bpe --vocab_size 3000 --output_dir FOLDER
    ./tokenize --tokenizer FOLDER --file TEXT > IDS
    $(dev/ref/venv.sh | tail -n 1) dev/ref/load_bpe.py FOLDER --text TEXT --ids IDS
"""
import argparse
import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer


def trained(text, size):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor, t.decoder = processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
    t.train([text], trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"],
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("folder")
    a.add_argument("--text", required=True)
    a.add_argument("--ids", required=True)
    a = a.parse_args()
    path = os.path.join(a.folder, "tokenizer.json")
    library, ours, auto = Tokenizer.from_file(path), json.load(open(path)), AutoTokenizer.from_pretrained(a.folder)
    theirs = json.loads(trained(a.text, len(ours["model"]["vocab"])).to_str())
    assert list(ours["model"]["vocab"].items()) == list(theirs["model"]["vocab"].items()), "another vocabulary"
    assert ours == theirs, "other merges, or another document"
    assert {auto.eos_token_id, auto.bos_token_id, auto.pad_token_id, auto.unk_token_id} == {0}, "other special tokens"
    lines = open(a.text, encoding="utf-8", newline="\n").read().removesuffix("\n").split("\n")
    rows = [json.loads(row)["ids"] for row in open(a.ids)]
    assert len(rows) == len(lines), f"{len(rows)} rows of ids, {len(lines)} lines"
    for i, (line, ids) in enumerate(zip(lines, rows), 1):
        assert ids == library.encode(line).ids == auto(line).input_ids, f"line {i} has other ids"
        assert auto.decode(ids) == line, f"line {i} comes back as another"
    print(f"{len(theirs['model']['merges'])} merges as tokenizers trains them; {len(lines)} lines have the same ids")


if __name__ == "__main__":
    main()
