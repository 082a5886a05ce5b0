#!/usr/bin/env python3
"""Writes data/ref/wordpiece: a WordPiece tokenizer as Hugging Face's `tokenizers` saves it (tokenizer.json), and what
the library makes of 10,000 strings and of every code point (expected.txt), which test_tokenizer.cu compares with.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_tokenizers.py --bible data/text.txt --out data/ref/wordpiece
    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_tokenizers.py --lines data/ref/wordpiece/expected.txt --out OTHER

A quarter of the strings are lines of texts (Debian's bible-kjv-text and wordnet-base), which expected.txt holds. The
others are put together from these, from traps and from ranges of characters by an algorithm that test_tokenizer.cu has,
too; of their ids expected.txt has a hash each. The vocabulary is made by the trainer below, which is a plain one:
wordpiece_train.h is compared with it; how it differs from the library's is printed.
"""
import argparse
import os
import random
import re
from collections import Counter, defaultdict

import numpy as np
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES, STRINGS, TRAINED, PAIRS = 2500, 10000, 1000, 500
VOCAB, FREQUENCY, LETTERS = 2500, 2, 500
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x41, 0x5A), (0, 0x1F), (0x7F, 0xFF), (0xC0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
          (0x400, 0x52F), (0x590, 0x6FF), (0x900, 0xD7F), (0xE00, 0xEFF), (0x1100, 0x11FF), (0x1AB0, 0x1AFF),
          (0x1C80, 0x1CFF), (0x1DC0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20D0, 0x2150), (0x3000, 0x312F),
          (0x4E00, 0x4E40), (0xA640, 0xA7FF), (0xA8E0, 0xA9CF), (0xAC00, 0xAC80), (0xF900, 0xFB4F), (0xFE00, 0xFFFF),
          (0x10400, 0x1044F), (0x10D40, 0x10D90), (0x110B0, 0x11238), (0x11300, 0x1137F), (0x1D15E, 0x1D1AD),
          (0x1E000, 0x1E02A), (0x1E900, 0x1E95F), (0x1F600, 0x1F64F), (0x2A6D0, 0x2A710), (0x2B730, 0x2B930),
          (0x2CEA0, 0x2CEB0), (0x2F800, 0x2FA20), (0xE0000, 0xE01EF)]
TRAPS = ["\U0002b820", "\u0378", "a\u0085b", "ΟΔΥΣΣΕΥΣ", "Σ", "\u1112\u1161\u11ab", "한", "ﬁ", "①", "'ſ", "ẞ", "\u180e",
         "İstanbul", "I\u0307", "\u00ad", "\u200b", "\u200d", "\ufeff", "\ufffd", "\0", "\u2028", "\u3000", "\u00a0",
         "\u0344", "\u0958", "\U0001d15e", "\u302e\u0301", "a\u302e\u1abf", "a\u302e\u1dfab", "a\u0315\u0300\u05ae\u0316b", "\u0301\u0334\u0345", "é",
         "e\u0301", "Å", "\u1e9b\u0323", "ǅ", "Ⅷ", "\U00010400", "\u0149", "Ǆ", "日本語", "中文字", "ｶﾞ", "가각", "\U0001f468\u200d\U0001f469",
         "👍🏽", "[SEP]", "[MASK]", "[CLS]", "[PAD]", "[UNK]", "[sep]", "[SEP", "[[SEP]]", "[S\u0301E\u00adP]", "[MASK][MASK]", " [MASK] ",
         "<keep>", " <keep> ", "<keep>[SEP]", "Foo Bär", "foo bar", "FOO BAR", "Foo Bär Baz", "foo bar baz", "Foo", "[", "##", "##ing", "don't", "...",
         "$5.00", "a_b", "x" * 99, "y" * 100, "Z" * 101, "é" * 100, "é" * 101, "日" * 101, "\t", "\r\n", "\n", "\x1c", "\x7f",
         "\ue000", "\U000f0000", "\U0010ffff", "\ufffe", "naïve café", "Straße", "ПРИВЕТ", "\u0622\u0653", "שָׁלוֹם", "नमस्ते", "ไทย",
         "\u00b4\u0301", "`^~", "«»", "—", "¿", "\u3001", "\u30fb", "\u2e3a", "\u1039", "\U00011235\u0301", "\ua953\u0301\u0334"]


# ---- strings: test_tokenizer.cu has the same -------------------------------------------------------------------------

class Numbers:
    """splitmix64 (Steele et al. 2014)"""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        m = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & m
        x = self.state
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & m
        x = (x ^ x >> 27) * 0x94D049BB133111EB & m
        return (x ^ x >> 31) % n


def part(r, lines):
    kind = r.below(8)
    if kind < 2:
        line = lines[r.below(len(lines))]
        at = r.below(len(line))
        return line[at:at + 1 + r.below(12)].encode()
    if kind == 2:
        return TRAPS[r.below(len(TRAPS))].encode()
    if kind < 6:
        first, last = RANGES[r.below(len(RANGES))]
        return chr(first + r.below(last - first + 1)).encode()
    if kind == 6:
        return b" "
    c = r.below(0x110000 - 0x800)
    return chr(c if c < 0xD800 else c + 0x800).encode()


def string(i, lines):
    """The bytes of string number i."""
    if i < len(lines):
        return lines[i].encode()
    r = Numbers(i)
    n = 1 + r.below(24)
    if i % 50 == 0:
        return bytes(r.below(256) for _ in range(n))
    return b"".join(part(r, lines) for _ in range(n))


def text_of(b):
    return b.decode("utf-8", errors="replace")


# ---- hashes ----------------------------------------------------------------------------------------------------------

def fnv(data, h=0xCBF29CE484222325):
    for b in data:
        h = (h ^ b) * 0x100000001B3 & ((1 << 64) - 1)
    return h


def fnv_of_rows(rows):
    """The same of each of many rows, side by side."""
    lengths = np.array([len(row) for row in rows])
    data = np.zeros((lengths.max(), len(rows)), np.uint8)
    for i, row in enumerate(rows):
        data[:len(row), i] = np.frombuffer(row, np.uint8)
    h, prime = np.full(len(rows), 0xCBF29CE484222325, np.uint64), np.uint64(0x100000001B3)
    for k in range(len(data)):
        h = np.where(k < lengths, (h ^ data[k]) * prime, h)
    return [int(x) for x in h]


def bytes_of_ids(ids):
    return np.array([len(ids), *ids], "<u4").tobytes()


def of_ids(ids, h):
    return fnv(bytes_of_ids(ids), h)


def short(h):
    return (h ^ h >> 32) & 0xFFFFFFFF


# ---- the trainer -----------------------------------------------------------------------------------------------------

class Pairs:
    """How often each pair of neighbours is there in rows of ids: rows[i] = (ids, how often that row is there)."""

    def __init__(self, rows):
        self.rows, self.counts, self.where = rows, Counter(), defaultdict(set)
        for i in range(len(rows)):
            self.count(i, 1)

    def count(self, i, sign):
        ids, n = self.rows[i]
        for p in zip(ids, ids[1:]):
            self.counts[p] += sign * n
            self.where[p].add(i)

    def most(self):
        """The most frequent pair, and how often it is there; of equally frequent ones the one with the smaller ids."""
        return max(self.counts.items(), key=lambda p: (p[1], -p[0][0], -p[0][1]), default=(None, 0))

    def merge(self, pair, new):
        """Puts the id `new` in the pair's place, from left to right, in the rows that have it."""
        for i in self.where.pop(pair):
            self.count(i, -1)
            ids = self.rows[i][0]
            for k in range(len(ids)):
                if tuple(ids[k:k + 2]) == pair:
                    ids[k:k + 2] = [new]
            self.count(i, 1)


def train(words, size, frequency, letters):
    """Pieces by id."""
    counts = Counter()
    for w, n in words.items():
        for c in w:
            counts[c] += n
    kept = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:letters])
    inside = {c for w in words for c in w[1:]}
    pieces = SPECIAL + kept + ["##" + c for c in kept if c in inside]
    ids = {p: i for i, p in enumerate(pieces)}
    pairs = Pairs([([ids["##" + c if k else c] for k, c in enumerate(w) if c in kept], n) for w, n in words.items()])
    while len(pieces) < size:
        pair, n = pairs.most()
        if n < frequency:
            break
        new = pieces[pair[0]] + pieces[pair[1]].removeprefix("##")
        if new not in ids:
            ids[new] = len(pieces)
            pieces.append(new)
        pairs.merge(pair, ids[new])
    return pieces


def count_words(strings, t):
    words = Counter()
    for s in strings:
        for w, _ in t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(s)):
            words[w] += 1
    return words


def their_pieces(strings, letters):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(strings, trainers.WordPieceTrainer(
        vocab_size=VOCAB, min_frequency=FREQUENCY, limit_alphabet=letters, special_tokens=SPECIAL, show_progress=False))
    return set(t.get_vocab())


# ---- what is expected ------------------------------------------------------------------------------------------------

def tokenizer_of(pieces):
    t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_special_tokens(SPECIAL)
    t.add_special_tokens([AddedToken("<keep>", lstrip=True, rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("Foo Bär", normalized=True), AddedToken("Foo Bär Baz", normalized=True)])
    return t


SETTINGS = [  # clean_text, handle_chinese_chars, strip_accents, lowercase
    (True, True, None, True), (True, True, None, False), (True, True, False, True), (True, False, True, False),
    (False, True, None, True), (False, False, False, False)]


def normalizer_of(setting):
    clean, chinese, strip, lower = setting
    return normalizers.BertNormalizer(clean_text=clean, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower)


def hashes_of_strings(t, strings):
    out = [0xCBF29CE484222325] * len(strings)
    for setting in SETTINGS:
        t.normalizer = normalizer_of(setting)
        u = Tokenizer.from_str(t.to_str())  # the added tokens are normalised when it is loaded
        for as_text in (False, True):
            u.encode_special_tokens = as_text
            for i, s in enumerate(strings):
                out[i] = of_ids(u.encode(s, add_special_tokens=False).ids, out[i])
    t.normalizer = normalizer_of(SETTINGS[0])
    t = Tokenizer.from_str(t.to_str())
    for i, s in enumerate(strings):
        ids = t.encode(s, add_special_tokens=False).ids
        for skip in (False, True):
            out[i] = fnv(t.decode(ids, skip_special_tokens=skip).encode(), out[i])
    return out


def hash_of_pairs(t, strings):
    h = 0xCBF29CE484222325
    for i in range(PAIRS):
        r = Numbers(i)
        a, b = strings[r.below(len(strings))], strings[r.below(len(strings))]
        t.enable_truncation(3 + r.below(40), strategy="longest_first")
        for e in (t.encode(a, b), t.encode(a)):
            h = of_ids(e.type_ids, of_ids(e.ids, h))
    t.no_truncation()
    return h


def rules():
    """Of each rule of the normaliser, what a character becomes."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    for name in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"):
        yield name, normalizers.BertNormalizer(**{**off, name: True}).normalize_str
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    yield "words", lambda c: "|".join(w for w, _ in words("a" + c + "b"))[1:-1]


def blocks(out):
    """A hash for each block of 256 code points in which a rule changes anything."""
    for name, rule in rules():
        for block in range(0, 0x110000, 256):
            points = [c for c in range(block, block + 256) if not 0xD800 <= c <= 0xDFFF]
            now = [rule(chr(c)) for c in points]
            if now != [chr(c) for c in points]:
                print(f"block {name} {block >> 8:x} {short(fnv(chr(0x110000 - 1).join(now).encode())):08x}", file=out)


def natural(bible, wordnet):
    """Lines of ASCII text, half of each."""
    r = random.Random(1)
    verses = [v.strip() for v in open(bible) if 20 < len(v) < 90]
    glosses = []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in open(os.path.join(wordnet, "data." + kind)):
            gloss = line.rstrip("\n").partition(" | ")[2].strip()
            if 10 < len(gloss) < 60:
                glosses.append(gloss)
    lines = r.sample(verses, LINES // 2) + r.sample(glosses, LINES // 2)
    r.shuffle(lines)
    return [line for line in lines if re.fullmatch(r"[\x20-\x7e]+", line)]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--bible", default="data/text.txt", help="lines are chosen from it, and from WordNet's glosses")
    a.add_argument("--wordnet", default="/usr/share/wordnet")
    a.add_argument("--lines", help="an expected.txt: the lines that it holds, instead of newly chosen ones")
    a.add_argument("--out", default="data/ref/wordpiece")
    a = a.parse_args()
    if a.lines:
        lines = [line[5:-1] for line in open(a.lines, encoding="utf-8", newline="\n") if line.startswith("line ")]
    else:
        lines = natural(a.bible, a.wordnet)
    strings = [text_of(string(i, lines)) for i in range(STRINGS)]
    trained = [*strings[:len(lines)], *strings[-TRAINED:]]
    words = count_words(trained, tokenizer_of(SPECIAL))
    pieces = train(words, VOCAB, FREQUENCY, LETTERS)
    print(f"{len(pieces)} pieces; of those of `tokenizers` {len(set(pieces) - their_pieces(trained, LETTERS))} are others;"
          f" with all characters {len(set(train(words, VOCAB, FREQUENCY, 1 << 20)) - their_pieces(trained, 1 << 20))}")
    t = tokenizer_of(pieces)
    os.makedirs(a.out, exist_ok=True)
    t.save(os.path.join(a.out, "tokenizer.json"), pretty=False)
    with open(os.path.join(a.out, "expected.txt"), "w") as out:
        print(f"made by dev/ref/make_tokenizers.py with tokenizers {tokenizers.__version__}", file=out)
        for line in lines:
            print("line " + line, file=out)
        for trap in TRAPS:
            print("trap " + trap.encode().hex(), file=out)
        for first, last in RANGES:
            print(f"range {first:x} {last:x}", file=out)
        print(f"trained {TRAINED} {VOCAB} {FREQUENCY} {LETTERS}", file=out)
        print(f"pairs {PAIRS} {hash_of_pairs(t, strings):016x}", file=out)
        blocks(out)
        for h in hashes_of_strings(t, strings):
            print(f"string {short(h):08x}", file=out)


if __name__ == "__main__":
    main()
