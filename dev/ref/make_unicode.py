#!/usr/bin/env python3
"""Writes galaxy/text/unicode_tables.h: what characters are to Hugging Face's `tokenizers`, asked of the library itself,
one code point after the other. Its parts follow different versions of Unicode (BERT's categories: 8, decompositions:
12, those of regular expressions: 16, lower case, digits and graphemes: the newest), so no Unicode library has the same answers.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_unicode.py galaxy/text/unicode_tables.h
"""
import base64
import json
import struct
import sys
import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

EVERY = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def bert(**on):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **on}).normalize_str


def ranges(points, bridge=lambda c: False):
    """Of sorted code points; gaps whose code points all satisfy `bridge` do not divide."""
    out = []
    for c in sorted(points):
        if out and all(bridge(b) for b in range(out[-1][1] + 1, c)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def runs(lower):
    """(first, last, step, what is added): letters that alternate have the step 2."""
    out = []
    for c, d in sorted(lower.items()):
        if out and out[-1][3] == d - c:
            first, last, step, _ = out[-1]
            if c - last == step or (first == last and c - last == 2):
                out[-1][1:3] = [c, c - last]
                continue
        out.append([c, c, 1, d - c])
    return out


def steps(points):
    """[first, last, step]: letters that alternate have the step 2."""
    out = []
    for c in sorted(points):
        if out and c - out[-1][1] in ((1, 2) if out[-1][0] == out[-1][1] else (out[-1][2],)):
            out[-1][1:] = [c, c - out[-1][1]]
        else:
            out.append([c, c, 1])
    return out


def table(out, name, row, what, rows, cell):
    print(f"\n// {what}\nstatic const {row} gx__unicode_{name}[] = {{", file=out)
    line = "   "
    for r in rows:
        text = " " + cell(r) + ","
        if len(line) + len(text) > 120:
            print(line, file=out)
            line = "   "
        line += text
    print(line.rstrip(",") + "};", file=out)


def matching(regex):
    """The code points that a class of a regular expression has."""
    split = pre_tokenizers.Split(Regex(regex + "+"), "removed", invert=True)
    return sorted(ord(c) for word, _ in split.pre_tokenize_str("".join(map(chr, EVERY))) for c in word)


CLASSES = [("letters", "L", "Letters"), ("any_marks", "M", "Marks, nonspacing and others"),
           ("numbers", "N", "Digits and other numbers"), ("signs", "P", "Punctuation"),
           ("symbols", "S", "Symbols")]
LETTERS = [("capitals", "Lu", "Upper-case letters"), ("small_letters", "Ll", "Lower-case letters"),
           ("title_letters", "Lt", "Letters of which the first of two is upper-case"),
           ("modifiers", "Lm", "Modifiers, counted as letters"), ("other_letters", "Lo", "Letters without case")]


# ---- graphemes -------------------------------------------------------------------------------------------------------

def counting():
    """A normalizer that makes '|' of each grapheme of fewer than 6 bytes, and of each character of others: a charsmap
    that knows every first byte. U+0000 stays."""
    units = [0] * 1024
    units[0] = 256 << 10  # the root's children are at 256 ^ byte; their values at 768 ^ byte, and all are 0
    for byte in range(1, 256):
        units[256 ^ byte] = 512 << 10 | 1 << 8 | byte
    blob = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"|\0"
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
                "pre_tokenizer": None, "post_processor": None, "decoder": None,
                "model": {"type": "Unigram", "unk_id": 0, "vocab": [["|", 0.0]], "byte_fallback": False}}
    normalize = tokenizers.Tokenizer.from_str(json.dumps(document)).normalizer.normalize_str
    return lambda text: len(normalize(text))


KINDS = {"control": "C", "prepend": "P", "extend": "E", "unjoined": "U", "linker": "I", "spacing": "S", "pictogram": "X",
         "consonant": "K", "vowel": "V", "trailer": "T"}


def grapheme_classes():
    """What a character is to the rules of Unicode Standard Annex 29, each told by a text that only one class cuts so.
    What Hangul has formulas for is left to them. An unjoined one extends, but is no part of a conjunct."""
    n, mark, zwj, virama, ka = counting(), "\u0301", "\u200d", "\u094d", "\u0915"
    out = {name: set() for name in KINDS}
    for code in EVERY:
        c = chr(code)
        if code == 0 or c == zwj:
            continue
        after, before = n("a" + c) == 1, n(c + "a") == 1
        hangul = tuple(n(c + of + mark) == 3 for of in "\u1100\u1161\u11a8")
        if n(c + mark + mark) == 2:
            out["control"].add(code)
        elif after:
            of_pict = n("\u00a9" + c + zwj + "\u00a9" + mark) == 5
            linker = n(ka + c + ka + mark) == 4
            between = n(ka + c + virama + ka + mark) == 5
            assert of_pict or not (linker or between), hex(code)
            out["linker" if linker else "extend" if between else "unjoined" if of_pict else "spacing"].add(code)
        elif before:
            out["prepend"].add(code)
        elif n(c + zwj + "\u00a9" + mark) == 4:
            out["pictogram"].add(code)
        elif n(c + virama + ka + mark) == 4:
            out["consonant"].add(code)
        elif any(hangul):
            is_syllable = 0xAC00 <= code <= 0xD7A3
            if hangul == (True, True, False):
                assert 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C, hex(code)
            elif hangul == (False, True, True):
                assert not is_syllable or (code - 0xAC00) % 28 == 0, hex(code)
                if not is_syllable:
                    out["vowel"].add(code)
            else:
                assert hangul == (False, False, True) and (not is_syllable or (code - 0xAC00) % 28), (hex(code), hangul)
                if not is_syllable:
                    out["trailer"].add(code)
    return out


def main(path):
    clean, strip, lower = bert(clean_text=True), bert(strip_accents=True), bert(lowercase=True)
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    other = [c for c in EVERY if clean(chr(c)) == "" and c not in (0, 0xFFFD)]
    marks = [c for c in EVERY if strip(chr(c)) == ""]
    punctuation = [c for c in EVERY if len(words("a" + chr(c) + "a")) == 3]
    lowers = {c: lower(chr(c)) for c in EVERY if lower(chr(c)) != chr(c)}
    assert {c for c, t in lowers.items() if len(t) > 1} == {0x130} and lowers.pop(0x130) == "i\u0307"
    parts = {c for c in EVERY if nfd(chr(c)) != chr(c)}
    ordered = {c for c in EVERY if c not in parts and
               (nfd("\u0301" + chr(c)) != "\u0301" + chr(c) or nfd(chr(c) + "\u0334") != chr(c) + "\u0334")}
    # What decomposes stays so for ever, and how: of the rest of Unicode, only what is newer has to be left out.
    assert all(unicodedata2.normalize("NFD", chr(c)) == nfd(chr(c)) for c in parts)
    assert all(unicodedata2.combining(chr(c)) for c in ordered)
    classes = {name: matching(r"\p{%s}" % of) for name, of, _ in CLASSES}
    letters = {name: matching(r"\p{%s}" % of) for name, of, _ in LETTERS}
    assert sorted(sum(letters.values(), [])) == classes["letters"]
    digits = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    numeric = {c for c in EVERY if len(digits("a" + chr(c) + "a")) == 3}
    assert matching(r"\s") == [c for c in EVERY if chr(c).isspace() and not 0x1C <= c <= 0x1F]
    assert numeric > set(classes["numbers"])
    plain = lambda c: (unicodedata2.category(chr(c)) != "Cn" and not unicodedata2.decomposition(chr(c)) and
                       not unicodedata2.combining(chr(c)))
    old = ranges(parts | ordered, plain)
    alike = {c for c in EVERY if nfkd(chr(c)) != chr(c)}
    assert all(unicodedata2.normalize("NFKD", chr(c)) == nfkd(chr(c)) for c in alike)
    graphemes = grapheme_classes()
    joins = sorted([*r, KINDS[name]] for name in graphemes for r in ranges(graphemes[name]))
    pair = lambda r: "{0x%X, 0x%X}" % tuple(r)
    with open(path, "w") as out:
        print(f"""// unicode_tables.h: GENERATED DATA, not to be edited: what each character is to Hugging Face's `tokenizers` {tokenizers.__version__}
// (letter, number, mark, white space, lower case), as ranges of code points. unicode.h looks them up.
// Made by dev/ref/make_unicode.py, which asks the library itself.
#ifndef GX_UNICODE_TABLES_H
#define GX_UNICODE_TABLES_H
#include <stdint.h>

typedef struct {{
    uint32_t first, last;
}} gx__UnicodeRange;
typedef struct {{
    uint32_t first, last, step; // every step-th from first to last
}} gx__UnicodeSteps;
typedef struct {{
    uint32_t first, last, step; // every step-th from first to last
    int32_t add;                // to its code point gives the lower-case letter's
}} gx__UnicodeRun;
typedef struct {{
    uint32_t first, last;
    char kind; // {", ".join(f"{letter} {name}" for name, letter in KINDS.items())}
}} gx__UnicodeJoin;""", file=out)
        table(out, "other", "gx__UnicodeRange", "Control, format and private characters.", ranges(other), pair)
        table(out, "marks", "gx__UnicodeRange", "Nonspacing marks.", ranges(marks), pair)
        table(out, "punctuation", "gx__UnicodeRange", "Punctuation, and what else ASCII has of signs.",
              ranges(punctuation), pair)
        table(out, "old", "gx__UnicodeRange",
              "Where characters that decompose, or are put into an order, are as old as the decomposition. What other\n"
              "// characters lie between them does neither.", old, pair)
        table(out, "old_alike", "gx__UnicodeRange", "The same of compatible decomposition: ligatures, wide letters, "
              "fractions.", ranges(alike, plain), pair)
        table(out, "joins", "gx__UnicodeJoin", "What makes graphemes of more than one character (Unicode Standard Annex "
              "29), as far as there are no formulas for it.", joins,
              lambda r: "{0x%X, 0x%X, '%s'}" % tuple(r))
        for name, of, what in CLASSES:
            table(out, name, "gx__UnicodeRange", what + f" to regular expressions: \\p{{{of}}}.",
                  ranges(classes[name]), pair)
        for name, of, what in LETTERS:
            table(out, name, "gx__UnicodeSteps", what + f": \\p{{{of}}}.", steps(letters[name]),
                  lambda r: "{0x%X, 0x%X, %d}" % tuple(r))
        table(out, "newer_numbers", "gx__UnicodeRange", "And those that the pre-tokenizer Digits knows besides.",
              ranges(numeric - set(classes["numbers"])), pair)
        table(out, "lower", "gx__UnicodeRun", "Letters with one lower-case letter.", runs(
            {c: ord(t) for c, t in lowers.items()}), lambda r: "{0x%X, 0x%X, %d, %d}" % tuple(r))
        print("#endif", file=out)
    print(len(ranges(other)), len(ranges(marks)), len(ranges(punctuation)), len(old), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
