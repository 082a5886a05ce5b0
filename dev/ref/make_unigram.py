#!/usr/bin/env python3
"""Writes data/ref/unigram: three small Unigram tokenizers as tokenizer.json has them (likely.json, bytes.json,
positive.json), what stands around them in the files of T5, XLM-R, ALBERT and in some that nobody has (pipelines.json),
and what Hugging Face's `tokenizers` makes of 10,000 strings and of every code point in each of these (expected.txt),
which test_unigram.cu compares with.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_unigram.py --lines data/ref/wordpiece/expected.txt --out data/ref/unigram

The strings are those of make_tokenizers.py, with other traps and ranges; the pieces are what the trainer of make_bpe.py
merges, their scores the logarithms of how often they stand in the text. The charsmap is made here: some of NFKC, and
what nobody has.
"""
import argparse
import base64
import json
import math
import os
import struct

import tokenizers
import unicodedata2
from tokenizers import Tokenizer, pre_tokenizers

import make_bpe as bpe
import make_tokenizers as common
from make_bpe import metaspace, sequence, special, template, text
from make_tokenizers import STRINGS, fnv, short

MERGES, LETTERS = 900, 300
# Of what graphemes are made, so that they meet often.
RANGES = common.RANGES + [(0xD, 0xD), (0xA, 0xA), (0xA9, 0xA9), (0xAE, 0xAE), (0x200C, 0x200D), (0x300, 0x303), (0x300, 0x303),
                          (0x600, 0x605), (0x6DD, 0x6DD), (0x903, 0x903), (0x915, 0x918), (0x93C, 0x93F), (0x94D, 0x94D),
                          (0xE31, 0xE33), (0x1100, 0x1102), (0x1161, 0x1163), (0x11A8, 0x11AA), (0xAC00, 0xAC03), (0xAC1C, 0xAC1C),
                          (0x2122, 0x2122), (0xFE0F, 0xFE0F), (0x1F1E6, 0x1F1E9), (0x1F3FB, 0x1F3FF), (0x1F468, 0x1F469)]
TRAPS = common.TRAPS + [
    "<pad>", "</s>", "<unk>", " <unk> ", "a<unk>b", "<unk><unk>", "\u00a7<unk>\u00b6", "\u00a7\u00b6", "\u00a7\u00b6\u00a7\u00b6", "x\u00a7\u00b6x", "\u00a7x\u00b6",
    "<extra_id_0>", " <extra_id_0> ", "<extra_id_0><extra_id_1>", "<extra_id_", "and the", "AND THE", "e\u0301nd", "\u00e9nd",
    "▁", "▁▁ a", " ▁", "a▁b", "<0x41>", "<0xE2><0x82>", "     ", "  \n  ", "\n\n\n", "\r\n\r\n", " \t x", "\u3000\u3000x", "\u0085\u0085", "  a", "a  ", " a ",
    "\x01a", "\x01\x02", "a\x01", "a\x01\u0301", "\u212b\u0301", "A\u030a\u0301", "e\u0301\u0301", "\u0301e", "\u0301\u0301", "\ufb03\u0301", "\uff21\u0301", "\ufdfa",
    "\u2460\u20dd", "\u00bd\u0338", "\u00a8", " \u00a8", "\u1e9b\u0323", "\uff76\uff9e", "\u0600a", "\u0600\uff21", "\u06dd\u2460", "\U000110bda", "\uff21\u200d", "\u200da",
    "\u00a9\u200d\u00a9\u0301", "\u00a9\u0301\u200d\u00a9\u0301", "\u00a9\u200d\u200d\u00a9\u0301", "\u00a9\u0903\u200d\u00a9\u0301", "\u0915\u094d\u0915\u0301",
    "\u0915\u0301\u094d\u0301\u0915\u0301", "\u0915\u200c\u094d\u0915\u0301", "\u0915\u094d\u200d\u0915\u0301", "\u1100\u1161\u0301", "\u1161\u11a8\u0301", "\uac00\u11a8\u0301",
    "\uac01\u1161\u0301", "\u1100\uac00\u0301", "\U0001f1e9\U0001f1ea\U0001f1eb", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u263a\ufe0f", "#\ufe0f\u20e3", "\r\u0301", "\r\n\u0301",
    "x" * 300, "ab" * 200, "a" * 400, "the" * 100, " " * 70, "\u4e2d" * 40, "\u0301" * 50, "\u2126\u212b", "\u0132", "\u01c6\u0301", "\u0130", "\u1e9e", "\u023a"]


# ---- the charsmap ----------------------------------------------------------------------------------------------------

def charsmap(rules):
    """A precompiled_charsmap: the length of the trie, its units, and the texts, each with a 0 behind it. A node's
    children are at its own base ^ byte, and no two nodes have one base; where a key ends, the base holds its text."""
    trie, texts = {}, b""
    for key, value in sorted(rules.items()):
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts)
        texts += value.encode() + b"\0"
    units, free, bases = {}, 1, set()
    waiting = [(trie, 0, 0)]
    while waiting:
        node, place, label = waiting.pop()
        while free in units:
            free += 1
        base = free
        while base in bases or any(base ^ byte in units or base ^ byte == 0 for byte in node):
            base += 1
        bases.add(base)
        units[place] = (place ^ base) << 10 | (0 in node) << 8 | label
        for byte, child in node.items():
            units[base ^ byte] = 1 << 31 | child if byte == 0 else 0
        waiting += [(child, base ^ byte, byte) for byte, child in node.items() if byte]
    n = (max(*units, *bases) | 255) + 1
    blob = struct.pack("<I", 4 * n) + struct.pack(f"<{n}I", *(units.get(i, 0) for i in range(n)))
    return base64.b64encode(blob + texts).decode()


def rules():
    plain = lambda c: unicodedata2.normalize("NFKC", c)
    out = {}
    for first, last in ((0xA0, 0x24F), (0x1E00, 0x1E9F), (0x2000, 0x215F), (0x2460, 0x24FF), (0xFB00, 0xFB06), (0xFDF0, 0xFDFB),
                        (0xFF01, 0xFFA0), (0x1D400, 0x1D420), (0x2F800, 0x2F810)):
        for c in map(chr, range(first, last + 1)):
            if plain(c) != c:
                out[c] = plain(c)
    for c in "aeiouAEIOUnN\u1100":
        for mark in "\u0300\u0301\u0303\u0308\u0327\u1161":
            if len(plain(c + mark)) == 1:
                out[c + mark] = plain(c + mark)
    for c in [*range(1, 9), *range(0xE, 0x20), 0x7F, 0x200B, 0x200E, 0xFEFF]:
        out[chr(c)] = ""  # dropped, as SentencePiece's nmt_nfkc does it
    for c in "\t\n\r\u0085\u00a0\u2028\u3000":
        out[c] = " "
    return {**out, "\u212b\u0301": "no shorter key", "ffi": "\ufb03", "zz": "", "\u0600": "\u0600!", "\U0001f600": "\U0001f642\U0001f642", "\ufffd": "?"}


MAP = {"type": "Precompiled", "precompiled_charsmap": charsmap(rules())}


# ---- pipelines -------------------------------------------------------------------------------------------------------

EOS = template([text("A"), special("</s>")], [text("A"), special("</s>"), text("B"), special("</s>")], **{"</s>": 1})
T5 = dict(base="likely", post_processor=EOS, decoder=metaspace("always", split=True))
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
PIPELINES = [
    dict(name="t5", **T5, normalizer=MAP, points=True,
         pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always", split=True))),
    dict(name="t5 by transformers 5", **T5, pre_tokenizer=metaspace("always", split=True), normalizer=sequence(
        "normalizers", MAP, {"type": "Strip", "strip_left": False, "strip_right": True}, SPACES)),
    dict(name="t5 not legacy", **{**T5, "decoder": sequence("decoders", metaspace("first"))}, pre_tokenizer=metaspace("first"),
         normalizer=sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, MAP, SPACES)),
    dict(name="xlm-r", **T5, pre_tokenizer=metaspace("always"), normalizer=sequence(
        "normalizers", MAP, {**SPACES, "content": " "})),
    dict(name="albert", **T5, pre_tokenizer=metaspace("always"), points=True, normalizer=sequence(
        "normalizers", {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"}, {"type": "Lowercase"}, MAP)),
    dict(name="nfkc", base="likely", points=True, normalizer=sequence("normalizers", {"type": "NFKC"}, {
        "type": "Strip", "strip_left": True, "strip_right": False}), pre_tokenizer={"type": "WhitespaceSplit"}),
    dict(name="nfd first", **{**T5, "decoder": metaspace("never")}, normalizer={"type": "NFD"},
         pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first", split=False))),
    dict(name="one word", **T5, pre_tokenizer=metaspace("never", split=False)),
    dict(name="bytes", base="bytes", normalizer={"type": "NFC"}, pre_tokenizer=metaspace("always"), decoder=bpe.SPM_DECODER,
         post_processor=bpe.BOS_EOS),
    dict(name="bytes in one word", base="bytes", pre_tokenizer=metaspace("first", split=False), decoder=bpe.SPM_DECODER),
    dict(name="bytes not all", base="bytes", replace=['"<0xCC>"', '"<0xcc>"'], pre_tokenizer=metaspace("always")),
    dict(name="byte level", base="bytes", pre_tokenizer=bpe.byte_level(), decoder=bpe.byte_level()),
    dict(name="positive", base="positive", decoder=metaspace("always"), pre_tokenizer=metaspace("always")),
]


# ---- the tokenizers --------------------------------------------------------------------------------------------------

def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def scored(words, merges, letters):
    """Pieces and the logarithm of their share, in single precision, as SentencePiece has them."""
    alphabet, pairs = bpe.train(words, merges, letters)
    pieces = list(dict.fromkeys([*alphabet, *(a + b for a, b in pairs)]))
    counts = {p: sum(n * w.count(p) for w, n in words.items()) for p in pieces}
    total = sum(counts.values())
    return [[p, single(math.log(counts[p] / total))] for p in sorted(pieces, key=lambda p: (-counts[p], p))]


def document(vocab, unk, byte_fallback, tokens):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": bpe.added(tokens), "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": {
                "type": "Unigram", "unk_id": unk, "vocab": vocab, "byte_fallback": byte_fallback}}


def bases(strings):
    words = bpe.words_of(strings, pre_tokenizers.Metaspace())
    pieces = scored(words, MERGES, LETTERS)
    few = scored(words, 150, 100)
    first = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]
    marks = [["<unk>", 0], ["<s>", 0], ["</s>", 0], *([f"<0x{b:02X}>", 0.0] for b in range(256))]
    pieces = [[p, s] for p, s in pieces if p not in {q for q, _ in first + marks}]
    likely = [*first, *pieces, ["", -1.5], ["<extra_id_1>", 0.0], ["<extra_id_0>", 0.0]]
    n = len(likely)
    # a tenth of a score: many ways are equally likely, and the last bits of sums decide
    tied = [[p, round(s, 1)] for p, s in pieces] + [["aa", -9.3], ["aaa", -9.3], ["aaaa", -18.6]]
    tied = [[p, s] for p, s in dict(map(tuple, tied)).items()]
    # unknown characters that are likelier than the piece that they are together
    high = [["<unk>", 40.0], *([p, s + 40] for p, s in few if p not in "\u00a7\u00b6"), ["\u00a7\u00b6", 30.5]]
    return {"likely": document(likely, 2, False, [
                (0, "<pad>", {}), (1, "</s>", {}), (2, "<unk>", dict(normalized=True)), (n - 1, "<extra_id_0>", {}),
                (n - 2, "<extra_id_1>", dict(lstrip=True, rstrip=True)), (n, "and the", dict(normalized=True, special=False)),
                (n + 1, "\uff21\uff22", dict(normalized=True, special=False))]),
            "bytes": document(marks + tied, 0, True, [(0, "<unk>", {}), (1, "<s>", {}), (2, "</s>", {})]),
            "positive": document(high, 0, False, [])}


# ---- what is expected ------------------------------------------------------------------------------------------------

def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--lines", default="data/ref/wordpiece/expected.txt", help="the lines of text that it holds are taken")
    a.add_argument("--out", default="data/ref/unigram")
    a = a.parse_args()
    lines = [line[5:-1] for line in open(a.lines, encoding="utf-8", newline="\n") if line.startswith("line ")]
    common.TRAPS, common.RANGES = TRAPS, RANGES  # of its strings
    strings = [common.text_of(common.string(i, lines)) for i in range(STRINGS)]
    of = bases([s.replace("\0", "") for s in [*strings[:len(lines)], *strings[-bpe.TRAINED:]]])
    os.makedirs(a.out, exist_ok=True)
    for name, base in of.items():
        with open(os.path.join(a.out, name + ".json"), "w") as out:
            json.dump(base, out, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(a.out, "pipelines.json"), "w") as out:
        json.dump(PIPELINES, out, ensure_ascii=False, indent=1)
    with open(os.path.join(a.out, "expected.txt"), "w") as out:
        print(f"made by dev/ref/make_unigram.py with tokenizers {tokenizers.__version__}", file=out)
        for trap in TRAPS:
            print("trap " + trap.encode().hex(), file=out)
        for first, last in RANGES:
            print(f"range {first:x} {last:x}", file=out)
        bpe.write_pipelines(out, PIPELINES, of, strings)


if __name__ == "__main__":
    main()
