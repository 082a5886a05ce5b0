"""Labels of words, for test_token_classification.cu: data/ref/words.jsonl, a case per line.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_words.py data/ref/words.jsonl

    {"kind": "entities", "labels": [...], "truth": [[...]], "predicted": [[...]], "right", "found", "true", "precision", "recall",
     "f1"}       numbers of labels by sentence, and how many entities there are; the scores of load_ner.py, which follows conlleval,
                 and, where the package seqeval is installed, compares itself with that
    {"kind": "tokens", "tokenizer": FILE, "words": [...], "ids": [...], "word": [...]}
                 what `tokenizers` makes of words (is_pretokenized), with the frame; the word of each token, -1: of the frame. A
                 byte-level BPE has add_prefix_space, which transformers asks for then
"""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

from load_ner import entities, scores

random.seed(20030527)
ref = pathlib.Path(__file__).resolve().parents[2] / "data" / "ref"
cases = []

LISTS = {
    "IOB2": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
    "IOBES": ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B"],
    "odd": ["O", "B", "I", "B-", "I-X-Y", "B-X-Y", "E", "S-_", "I-_", "."],
    "parts of speech": ["NN", "VB", "IN", "Bx", "."],
    "not ASCII": ["O", "ÄB-Ü", "B-Ü", "I-Ü", "I-ü"],
}
for name, labels in LISTS.items():
    for n in (1, 2, 7, 20):
        truth = [[random.randrange(len(labels)) for _ in range(random.randint(1, 12))] for _ in range(n)]
        predicted = [[t if random.random() < 0.7 else random.randrange(len(labels)) for t in row] for row in truth]
        named = [[[labels[i] for i in row] for row in rows] for rows in (truth, predicted)]
        found, _ = scores(*named)
        both = [(entities(t), entities(p)) for t, p in zip(*named)]
        cases.append(dict(kind="entities", labels=labels, truth=truth, predicted=predicted,
                          right=sum(len(t & p) for t, p in both), found=sum(len(p) for _, p in both),
                          true=sum(len(t) for t, _ in both), **{k: found[k] for k in ("precision", "recall", "f1")}))

SENTENCES = [["In", "the", "beginning"], ["Ada", "don't", "know", "unbelievable", "3.14", "."], ["Crème", "brûlée", "北京", "e\u0301"],
             [" leading", "New York", "", "x"], ["[SEP]", "<mask>", "a<mask>b", "</s>"], ["\u200b", "\u00a0", "😀"]]
for file in ("wordpiece/tokenizer.json", "bpe/roberta.json"):
    root = json.loads((ref / file).read_text())
    if (root["pre_tokenizer"] or {}).get("type") == "ByteLevel":
        root["pre_tokenizer"]["add_prefix_space"] = True
    tokenizer = Tokenizer.from_str(json.dumps(root))
    for words in SENTENCES:
        e = tokenizer.encode(words, is_pretokenized=True)
        cases.append(dict(kind="tokens", tokenizer=f"data/ref/{file}", words=words, ids=e.ids,
                          word=[-1 if w is None else w for w in e.word_ids]))

pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in cases))
print(f"{len(cases)} cases in {sys.argv[1]}")
