#!/usr/bin/env python3
"""Writes data/ref/bpe: two small BPE tokenizers as tokenizer.json has them (byte_level.json, byte_fallback.json), what
stands around them in the files of GPT-2, LLaMA-2 and 3, Mistral (also with Tekken), Qwen, SmolLM2, DeepSeek (pipelines.json), and what
Hugging Face's `tokenizers` makes of 10,000 strings and of every code point in each of these (expected.txt), which
test_bpe.cu compares with; a tokenizer like RoBERTa's and BART's (roberta.json), with the ids of texts and pairs in its
frame (roberta_expected.json), for the same test; and the merges that the library's own trainer finds in these strings (trained.txt), which
test_bpe_train.cu compares with.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_bpe.py --lines data/ref/wordpiece/expected.txt --out data/ref/bpe

The strings are those of make_tokenizers.py, with other traps. The merges of the two tokenizers are made by the trainer
below, which is a plain one.
"""
import argparse
import json
import multiprocessing
import os
import tempfile
from collections import Counter

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import make_tokenizers as common
from make_tokenizers import Numbers, Pairs, bytes_of_ids, fnv, fnv_of_rows, of_ids, short

STRINGS, PAIRS, TRAINED = common.STRINGS, 300, 500
MERGES, LETTERS = 900, 300
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
          r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r""" ?[\p{P}\p{S}]+[""" + "\r\n" + r"""]*|\s*[""" + "\r\n" + r"""]+|\s+(?!\S)|\s+""")
TEKKEN = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"""
          r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"""
          r""" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
TRAPS = common.TRAPS + [
    "<|end|>", " <|end|> ", "<|end|><|end|>", "<|end", "<|im_start|>user\n", "<tool>", "  <tool>  ", "<toolbox>", "<s>", "</s>",
    "<s> a", " <s>", "<unk>", "<pad>", "e\u0301nd", "\u00e9nd", "▁", "▁▁ a", " ▁", "a▁b", "<0x41>", "<0xE2><0x82>", "\u0120", "\u0120the",
    "I'm", "we'LL", "it'\u017f", "DON'T", "they\u2019re", "'S'd", "12", "1234567", "٣٤٥", "½²Ⅷ", "\U00011de1\U00011de2", "\U00016ff4",
    "     ", "  \n  ", "\n\n\n", "\r\n\r\n", " \t x", "\u3000\u3000x", "\u180e x", "\u0085\u0085", "!!!\n\n", "...\r\n", "#include <a.h>",
    "\u0344\u0301", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0958", "\u2126\u212b", "a\u0327\u0301", "\u0938\u093c", "\U00011935\U00011930",
    "\U00016d63\U00016d67\U00016d67", "\U0002f800", "x" * 300, "ab" * 200, " " * 70, "\u4e2d" * 40, "\U0001f468\u200d\U0001f469\u200d\U0001f467"]


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(what, *members):
    return {"type": "Sequence", what: list(members)}


def special(name, kind=0):
    return {"SpecialToken": {"id": name, "type_id": kind}}


def text(name, kind=0):
    return {"Sequence": {"id": name, "type_id": kind}}


def template(single, pair, **tokens):
    return {"type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {k: {"id": k, "ids": [v], "tokens": [k]} for k, v in tokens.items()}}


SPM_DECODER = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                       {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
BOS = template([special("<s>"), text("A")], [special("<s>"), text("A"), special("<s>", 1), text("B", 1)], **{"<s>": 1})
BOS_EOS = template([special("<s>"), text("A"), special("</s>")],
                   [special("<s>"), text("A"), special("</s>"), special("<s>", 1), text("B", 1), special("</s>", 1)],
                   **{"<s>": 1, "</s>": 2})
BYTES = dict(base="byte_level", decoder=byte_level(), post_processor=byte_level())
SPM = dict(base="byte_fallback", decoder=SPM_DECODER, post_processor=BOS)


def metaspace(scheme, **more):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, **more}


PIPELINES = [  # `model`: members of it; `replace`: in the text of the file; `points`: every code point goes through it
    dict(name="gpt2", **BYTES, pre_tokenizer=byte_level()),
    dict(name="gpt2 prefix", **BYTES, pre_tokenizer=byte_level(prefix=True)),
    dict(name="llama3", **{**BYTES, "post_processor": sequence("processors", byte_level(), template(
        [special("<|end|>"), text("A")], [special("<|end|>"), text("A"), special("<|end|>", 1), text("B", 1)], **{"<|end|>": 0}))},
         pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level(regex=False)), model={"ignore_merges": True},
         points=True),
    dict(name="qwen", **BYTES, normalizer={"type": "NFC"}, points=True,
         pre_tokenizer=sequence("pretokenizers", split(LLAMA3.replace("{1,3}", "")), byte_level(regex=False))),
    dict(name="tekken", **BYTES, points=True,
         pre_tokenizer=sequence("pretokenizers", split(TEKKEN), byte_level(regex=False))),
    dict(name="smollm", **BYTES, points=True,
         pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level())),
    dict(name="deepseek", **BYTES, normalizer=sequence("normalizers"), points=True,
         pre_tokenizer=sequence("pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK),
                                byte_level(regex=False))),
    dict(name="removed", **BYTES, pre_tokenizer=sequence(
        "pretokenizers", split(GPT2, "Removed", True), {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"String": "."}, "behavior": "Removed", "invert": False}, byte_level(prefix=True, regex=False))),
    dict(name="negated", **BYTES, points=True, pre_tokenizer=sequence(
        "pretokenizers", split(r"\S+|[^\S\n]+$|\P{L}"), split(r"[\P{L}]+"), byte_level(regex=False))),
    dict(name="llama2", **{**SPM, "post_processor": BOS_EOS}, normalizer=sequence(
        "normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})),
    dict(name="gemma3", **{**SPM, "decoder": sequence("decoders", *SPM_DECODER["decoders"][:3])},
         normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
         pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}),
    dict(name="joined", **BYTES, pre_tokenizer=sequence(
        "pretokenizers", split(r"\s+|[aeiou]|,", "MergedWithPrevious"), byte_level(regex=False))),
    dict(name="mistral", **SPM, pre_tokenizer=metaspace("first", split=False)),
    dict(name="metaspace", **{**SPM, "decoder": metaspace("always")}, pre_tokenizer={
        "type": "Metaspace", "replacement": "▁", "add_prefix_space": True}),
    dict(name="nfc first", **{**SPM, "decoder": metaspace("never")}, pre_tokenizer=metaspace("first"), normalizer={"type": "NFC"}),
    dict(name="unknown", **{**SPM, "decoder": None}, pre_tokenizer=metaspace("never"),
         model={"byte_fallback": False, "fuse_unk": True}),
    dict(name="unfused", **{**SPM, "decoder": {"type": "ByteFallback"}}, model={"fuse_unk": False},
         replace=['"<0xCC>"', '"<0xcc>"']),
    dict(name="dropped", **{**SPM, "decoder": sequence("decoders", {"type": "Fuse"}, metaspace("first"))},
         model={"byte_fallback": False, "unk_token": None}),
]


# ---- the trainer -----------------------------------------------------------------------------------------------------

def train(words, merges, letters):
    """The alphabet and the merges."""
    counts = Counter()
    for w, n in words.items():
        for c in w:
            counts[c] += n
    del counts["\0"]  # JSON has it, what reads JSON in C may not
    alphabet = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:letters])
    pieces = list(alphabet)
    ids = {p: i for i, p in enumerate(pieces)}
    pairs, out = Pairs([([ids[c] for c in w if c in ids], n) for w, n in words.items()]), []
    while len(out) < merges:
        (a, b), _ = pairs.most()
        out.append((pieces[a], pieces[b]))
        new = pieces[a] + pieces[b]
        if new not in ids:
            ids[new] = len(pieces)
            pieces.append(new)
        pairs.merge((a, b), ids[new])
    return alphabet, out


def words_of(strings, pre_tokenizer):
    words = Counter()
    for s in strings:
        for w, _ in pre_tokenizer.pre_tokenize_str(s):
            words[w] += 1
    return words


# ---- the tokenizers --------------------------------------------------------------------------------------------------

def added(tokens):
    default = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [{"id": i, "content": content, **default, **more} for i, content, more in tokens]


def vocabulary(first, alphabet, merges, without=()):
    vocab = {}
    for piece in [*first, *alphabet, *(a + b for a, b in merges)]:
        vocab.setdefault(piece, len(vocab))
    return vocab, [m for i, m in enumerate(merges) if i not in without]


def document(model, tokens):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(tokens), "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model}}


def leaves(merges):
    """Merges whose piece no other merge needs."""
    used = {p for m in merges for p in m}
    return [i for i, (a, b) in enumerate(merges) if a + b not in used]


def byte_level_file(strings):
    words = words_of(strings, pre_tokenizers.ByteLevel(add_prefix_space=False))
    _, merges = train(words, MERGES, 256)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # some pieces that no merge makes: with ignore_merges they are found all the same; and one pair twice
    vocab, kept = vocabulary(["<|end|>"], alphabet, merges, set(leaves(merges)[::5]))
    n = len(vocab)
    return document({"vocab": vocab, "merges": [f"{a} {b}" for a, b in [*kept, kept[3]]]}, [
        (0, "<|end|>", {}), (n, "<|im_start|>", {}), (n + 1, "<tool>", dict(lstrip=True, rstrip=True, special=False)),
        (n + 2, "<toolbox>", dict(special=False)), (n + 3, "e\u0301nd", dict(normalized=True, special=False)),
        (n + 4, "and the", dict(normalized=True, special=False))])


def byte_fallback_file(strings):
    words = words_of(strings, pre_tokenizers.Metaspace())
    alphabet, merges = train(words, MERGES, LETTERS)
    vocab, kept = vocabulary(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))], alphabet, merges)
    n = len(vocab)
    return document({"vocab": vocab, "merges": [list(m) for m in [*kept, ["▁", "▁"], ["<unk>", "<unk>"]]
                                                if "".join(m) in vocab or vocab.setdefault("".join(m), len(vocab))],
                     "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}, [
        (0, "<unk>", {}), (1, "<s>", {}), (2, "</s>", dict(normalized=True)),
        (n + 2, "<tool>", dict(lstrip=True, rstrip=True, special=False)),
        (n + 3, "and the", dict(normalized=True, special=False))])


def with_pipeline(base, pipeline):
    source = json.dumps(base, ensure_ascii=False, separators=(",", ":"))
    if "replace" in pipeline:
        assert source.count(pipeline["replace"][0]) == 1
        source = source.replace(*pipeline["replace"])
    out = json.loads(source)
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        out[key] = pipeline.get(key)
    out["model"].update(pipeline.get("model", {}))
    return out


# ---- what is expected ------------------------------------------------------------------------------------------------

def random_ids(i, size):
    r = Numbers(i)
    return [r.below(size) for _ in range(1 + r.below(20))]


def hashes_of_strings(t, strings, out):
    size = t.get_vocab_size()
    for i, s in enumerate(strings):
        h = out[i]
        for as_text in (False, True):
            t.encode_special_tokens = as_text
            ids = t.encode(s, add_special_tokens=False).ids
            h = of_ids(ids, h)
        for row in (ids, random_ids(i, size)):
            for skip in (False, True):
                h = fnv(t.decode(row, skip_special_tokens=skip).encode(), h)
        out[i] = h
    t.encode_special_tokens = False


def hash_of_pairs(t, strings):
    h = 0xCBF29CE484222325
    for i in range(PAIRS):
        r = Numbers(i)
        a, b = strings[r.below(len(strings))], strings[r.below(len(strings))]
        t.enable_truncation(6 + r.below(40), strategy="longest_first")
        for e in (t.encode(a, b), t.encode(a)):
            h = of_ids(e.type_ids, of_ids(e.ids, h))
    t.no_truncation()
    return h


def hashes_of_points(tokenizer):
    """Of each 4096 code points."""
    t, firsts, rows = Tokenizer.from_str(tokenizer), range(0, 0x110000, 4096), []
    for first in firsts:
        row = b""
        for block in range(first, first + 4096, 256):
            chars = [chr(c) for c in range(block, block + 256) if not 0xD800 <= c <= 0xDFFF]
            row += bytes_of_ids(t.encode("".join(f"a{c}1{c} {c}!" for c in chars), add_special_tokens=False).ids)
        rows.append(row)
    return list(zip(firsts, fnv_of_rows(rows)))


def write_pipelines(out, pipelines, bases, strings):
    """A line for each pipeline, with hashes of the ids of all strings so far and of pairs; its hashes of code points, where
    it asks for them; then a line for each string, with its hash over all pipelines."""
    files = {p["name"]: json.dumps(with_pipeline(bases[p["base"]], p)) for p in pipelines}
    with_points = [p["name"] for p in pipelines if p.get("points")]
    with multiprocessing.Pool() as pool:
        points = dict(zip(with_points, pool.map(hashes_of_points, map(files.get, with_points), chunksize=1)))
    hashes = [0xCBF29CE484222325] * len(strings)
    for name, file in files.items():
        t = Tokenizer.from_str(file)
        hashes_of_strings(t, strings, hashes)
        print(f"pipeline {fnv(b''.join(h.to_bytes(8, 'little') for h in hashes)):016x} {hash_of_pairs(t, strings):016x} "
              f"{t.get_vocab_size()} {name}", file=out)
        for first, h in points.get(name, ()):
            print(f"points {first:x} {short(h):08x} {name}", file=out)
    for h in hashes:
        print(f"string {short(h):08x}", file=out)


# ---- RoBERTa's frame -------------------------------------------------------------------------------------------------

ROBERTA_MERGES, ROBERTA_TEXTS, ROBERTA_PAIRS = 200, 240, 120
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
ROBERTA_TRAPS = [
    "", " ", "  ", "\n", "<mask>", " <mask>", "<mask> ", "  <mask>  ", "\t\n<mask>", "\u00a0<mask>", "\u3000 <mask>", "\u200b<mask>",
    "\u180e<mask>", "\x85<mask>", "a<mask>b", "a <mask> b", "a  <mask>  b", "<mask><mask>", "<mask> <mask>", " <mask>  <mask> ",
    "<mask", "mask>", "< mask>", "<MASK>", "<<mask>>", "<s>", "</s>", "<s> a </s>", "a</s>b", "a </s></s> b", "</s> <mask>", "<mask> </s>",
    "<pad><pad>", "<unk>", " <unk> <mask>.", "</s", "<s", "the <mask> of the LORD", "And God said, Let there be <mask>:", "I'm we'll",
    "\U0001f600", " \U0001f600 <mask> \U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea<mask>",
    "e\u0301 \u00e9", "\u4e2d\u6587 <mask>\u3002", "\u0120<mask>", "12345", "3.14 <mask>%", "a\r\n<mask>\r\nb"]
ROBERTA_PARTS = ["<mask>", "<mask>", " <mask>", "<s>", "</s>", "<pad>", "<unk>", "<mask", "mask>", " ", " ", "  ", "\n", "\t", "\u00a0",
                 "\u2003", "\u200b", "the", " the", " and", "God", " LORD", "'s", ",", " .", "!", "42", "\u00e9", "e\u0301", "\u4e2d",
                 "\U0001f600", "\U0001f44d\U0001f3fd"]


def roberta_file(strings):
    """As the files of roberta-base and bart-base: four special tokens first, and <mask> last, which takes the spaces before it."""
    words = words_of(strings, pre_tokenizers.ByteLevel(add_prefix_space=False))
    _, merges = train(words, ROBERTA_MERGES, 256)
    vocab, kept = vocabulary(ROBERTA_SPECIAL, sorted(pre_tokenizers.ByteLevel.alphabet()), merges)
    vocab["<mask>"] = len(vocab)
    out = document({"vocab": vocab, "merges": [f"{a} {b}" for a, b in kept], "continuing_subword_prefix": "", "end_of_word_suffix": ""}, [
        *((i, name, dict(normalized=True)) for i, name in enumerate(ROBERTA_SPECIAL)), (vocab["<mask>"], "<mask>", dict(lstrip=True))])
    return {**out, "pre_tokenizer": byte_level(), "decoder": byte_level(prefix=True), "post_processor": {
        "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}}


def roberta_text(i):
    r = Numbers(i)
    return ROBERTA_TRAPS[i] if i < len(ROBERTA_TRAPS) else "".join(ROBERTA_PARTS[r.below(len(ROBERTA_PARTS))] for _ in range(1 + r.below(9)))


def framed(t, *texts):
    e = t.encode(*texts)
    assert set(e.type_ids) <= {0}
    return e.ids


def write_roberta(out, base):
    """texts: the text; its ids in the frame; those with special tokens as characters; those where add_prefix_space is true.
    pairs: the numbers of both texts, -1 for none; the most tokens, 0 for all; the ids."""
    prefixed = {**base, "pre_tokenizer": byte_level(prefix=True)}
    plain, spaced = Tokenizer.from_str(json.dumps(base)), Tokenizer.from_str(json.dumps(prefixed))
    texts, pairs = [], []
    for i in range(ROBERTA_TEXTS):
        row = [roberta_text(i), framed(plain, roberta_text(i))]
        plain.encode_special_tokens = True
        row.append(framed(plain, row[0]))
        plain.encode_special_tokens = False
        texts.append([*row, framed(spaced, row[0])])
    for i in range(ROBERTA_PAIRS):
        r = Numbers(i)
        a, b, most = r.below(ROBERTA_TEXTS), r.below(ROBERTA_TEXTS + 40), r.below(3) and 4 + r.below(16)
        b = b if b < ROBERTA_TEXTS else -1
        if most:
            plain.enable_truncation(most, strategy="longest_first")
        pairs.append([a, b, most, framed(plain, *(roberta_text(k) for k in (a, b) if k >= 0))])
        plain.no_truncation()
    rows = {name: ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in list)
            for name, list in (("texts", texts), ("pairs", pairs))}
    print(f'{{"made by": "dev/ref/make_bpe.py with tokenizers {tokenizers.__version__}",\n"texts": [\n{rows["texts"]}\n],\n"pairs": [\n'
          f'{rows["pairs"]}\n]}}', file=out)


# ---- the library's trainer -------------------------------------------------------------------------------------------

TRAININGS = [(600, 2, True, TRAINED), (1200, 2, True, TRAINED), (4000, 2, False, 200), (100000, 40, True, 0)]


def trained_by_library(strings, size, frequency):
    """One string after the other, each with a line feed behind it, in a file: the library reads it line by line."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor, t.decoder = processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
    with tempfile.NamedTemporaryFile() as file:
        file.write("".join(s.replace("\0", "") + "\n" for s in strings).encode())
        file.flush()
        t.train([file.name], trainers.BpeTrainer(
            vocab_size=size, min_frequency=frequency, special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def write_trained(out, strings, lines):
    """For each training: what stands around the merges; the alphabet by ids; the merges, whose pieces have the next
    ids; and a hash of the ids of all strings."""
    print(f"made by dev/ref/make_bpe.py with tokenizers {tokenizers.__version__}", file=out)
    for size, frequency, has_lines, others in TRAININGS:
        texts = [*(strings[:lines] if has_lines else []), *strings[len(strings) - others:]]
        t = trained_by_library(texts, size, frequency)
        root = json.loads(t.to_str())
        pieces, merges = list(root["model"]["vocab"].items()), root["model"]["merges"]
        assert [i for _, i in pieces] == list(range(len(pieces)))
        assert [p for p, _ in pieces[257:]] == [a + b for a, b in merges]
        root["model"]["vocab"], root["model"]["merges"] = {}, []
        h = 0xCBF29CE484222325
        for s in strings:
            h = of_ids(t.encode(s, add_special_tokens=False).ids, h)
        print(f"training {size} {frequency} {int(has_lines)} {others} {h:016x}", file=out)
        print("document " + json.dumps(root), file=out)
        print("alphabet " + " ".join(p for p, _ in pieces[:257]), file=out)
        for pair in merges:
            print("merge " + " ".join(pair), file=out)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--lines", default="data/ref/wordpiece/expected.txt", help="the lines of text that it holds are taken")
    a.add_argument("--out", default="data/ref/bpe")
    a = a.parse_args()
    lines = [line[5:-1] for line in open(a.lines, encoding="utf-8", newline="\n") if line.startswith("line ")]
    common.TRAPS = TRAPS  # of its strings
    strings = [common.text_of(common.string(i, lines)) for i in range(STRINGS)]
    trained = [*strings[:len(lines)], *strings[-TRAINED:]]
    bases = {"byte_level": byte_level_file(trained), "byte_fallback": byte_fallback_file(trained)}
    os.makedirs(a.out, exist_ok=True)
    for name, base in bases.items():
        with open(os.path.join(a.out, name + ".json"), "w") as out:
            json.dump(base, out, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(a.out, "pipelines.json"), "w") as out:
        json.dump(PIPELINES, out, ensure_ascii=False, indent=1)
    with open(os.path.join(a.out, "expected.txt"), "w") as out:
        print(f"made by dev/ref/make_bpe.py with tokenizers {tokenizers.__version__}", file=out)
        for trap in TRAPS:
            print("trap " + trap.encode().hex(), file=out)
        for first, last in common.RANGES:
            print(f"range {first:x} {last:x}", file=out)
        write_pipelines(out, PIPELINES, bases, strings)
    roberta = roberta_file(trained)
    with open(os.path.join(a.out, "roberta.json"), "w", encoding="utf-8") as out:
        json.dump(roberta, out, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(a.out, "roberta_expected.json"), "w", encoding="utf-8") as out:
        write_roberta(out, roberta)
    with open(os.path.join(a.out, "trained.txt"), "w", encoding="utf-8") as out:
        write_trained(out, strings, len(lines))


if __name__ == "__main__":
    main()
