"""Metrics of texts by rouge_score and sacrebleu, and stems by NLTK, for test_text_metrics.cu: a case per line.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_text_metrics.py data/ref/text_metrics.jsonl

A case "stems" has words and their stems; a case "texts" has a corpus of written texts and targets, of each pair
precision, recall and F of ROUGE-1, -2 and -L with the stemmer and without, and BLEU and chrF2 of the corpus.
"""
import json
import logging
import sys

import numpy as np
import sacrebleu
from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer

logging.disable(logging.CRITICAL)  # about texts that look tokenized
rng = np.random.default_rng(20260611)
cases = []

# ---- stems: every suffix behind stems of several measures, pairs of suffixes, irregular words, noise
suffixes = """s es ies sses ss ed ied eed ing ying y ly ally alli abli bli logi logy fully fulli ational tional enci anci
izer entli eli ousli ization ation ator alism iveness fulness ousness aliti iviti biliti icate ative alize iciti ical
ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll lle
at bl iz ated bled ized tting ssing lling zzing owing boxed""".split()
stems = """ a e y b ca tr by tree oat ivy trouble priv or hop fail fil fall hiss roll contr sk d fl pl syzyg toy enjoy
conform radic vile ge archaeo ana vietnam sensib electr adopt replac homolog bowdl prob ceas 7 x2 be yy""".split()
words = {stem + suffix for stem in stems for suffix in suffixes}
words |= {stem + a + b for stem in ("tr", "contr", "ana", "oat") for a in suffixes for b in ("s", "ed", "ing", "ly")}
words = {str(w) for w in rng.choice(sorted(words), size=2200, replace=False)}
words |= set("""sky skies die dies died dying lie lying tie tied tying news inning innings outing outings canning cannings
howe proceed exceed succeed proceeds howes to ten ox i feed agreed plastered bled motoring sing conflated troubled sized
hopping tanned falling hissing fizzed failing filing happy enjoy enjoyment spy fly try geology theology
generalizations oscillators yyyyyy yyyying yed ying s ss sss ies ied eed ed ing""".split())
letters = list("aeiouylstzbdgrnmk")
words |= {"".join(rng.choice(letters, size=rng.integers(1, 9))) for _ in range(300)}
words = sorted(w for w in words if w)
stem = PorterStemmer().stem
cases.append({"kind": "stems", "words": " ".join(words), "stems": " ".join(stem(w) for w in words)})

# ---- texts
scorers = [rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=s) for s in (True, False)]


def texts(what, pairs):
    written, target = [p[0] for p in pairs], [p[1] for p in pairs]
    rouge = []
    for a, b in pairs:
        of = [scorer.score(b, a) for scorer in scorers]
        rouge.append([float(x) for s in of for k in ("rouge1", "rouge2", "rougeL") for x in s[k]])
    cases.append({"kind": "texts", "what": what, "written": written, "target": target, "rouge": rouge,
                  "bleu": float(sacrebleu.corpus_bleu(written, [target]).score),
                  "chrf": float(sacrebleu.corpus_chrf(written, [target]).score)})


vocabulary = """the a cat cats sat sitting on of mats running runs ran quickly nationalization 3.14 1,000 U.S. e-mail
1990-2000 don't "quoted" (so) end. yes, &quot;x&quot; &amp; &lt;b&gt; <skipped> Größe naïve 東京 東 🙂 a_b C++ x=y 50% …
well-\nknown two\nlines tab\there İstanbul K .. ... .,. 1. .5 -1 5- 2-3 $9.99 #tag @me [x] a/b""".split(" ")


def sentence(n):
    return " ".join(rng.choice(vocabulary, size=n))


def changed(text):
    words = text.split(" ")
    for _ in range(int(rng.integers(0, 5))):
        i = int(rng.integers(len(words)))
        action = rng.integers(4)
        if action == 0:
            words[i] = str(rng.choice(vocabulary))
        elif action == 1 and len(words) > 1:
            del words[i]
        elif action == 2:
            words.insert(i, str(rng.choice(vocabulary)))
        else:
            j = int(rng.integers(len(words)))
            words[i], words[j] = words[j], words[i]
    return " ".join(words)


for n, longest in ((8, 6), (8, 12), (5, 40)):
    pairs = [(changed(t), t) for t in (sentence(int(rng.integers(1, longest + 1))) for _ in range(n))]
    texts(f"{n} changed texts of up to {longest} words", pairs)
    texts(f"{n} unrelated texts of up to {longest} words",
          [(sentence(int(rng.integers(1, longest))), t) for _, t in pairs])
    texts(f"{n} equal texts of up to {longest} words", [(t, t) for _, t in pairs])
texts("nothing", [("", "")])
texts("nothing was written", [("", "the cat sat on the mat")])
texts("there is no target", [("the cat sat on the mat", "")])
texts("one of two is empty", [("", "the cat sat on the mat"), ("a dog is in the old house", "a dog is in the house")])
texts("only marks", [("... !!! ,,, ;;", "... !!! ,,, ;;"), ("?!", "...")])
texts("only white space", [(" \t\n\u3000 ", "\u00a0\u2003"), ("\x1c", "a")])
texts("one letter", [("a", "a")])
texts("two words", [("the cat", "the cat")])
texts("repeated words", [("the the the the the the the", "the cat is on the mat"), ("a a a a a", "a a a b")])
texts("no pair of words is right", [("mat the on sat cat the", "the cat sat on the mat")])
texts("no run of four is right", [("the cat sat by the mat", "the cat sat on the mat")])
texts("fewer characters than orders", [("abc", "abcdefgh")])
texts("and fewer in the target", [("abcdefgh", "abc")])
texts("other case", [("The Cat SAT On The Mat.", "the cat sat on the mat.")])
texts("other scripts", [("東京に行きます。今日は晴れ", "東京へ行きました。今日は晴れ"), ("Größe ändern", "Grösse ändern"),
                        ("привет мир", "привет, мир"), ("e\u0301te\u0301", "été"), ("👨‍👩‍👧 family", "👨‍👩‍👦 family")])
texts("a corpus is no mean", [("the cat sat on the mat today", "the cat sat on the mat today"),
                              ("no", "a longer target that is not met at all by what was written here")])
texts("marks between digits", [("1,234.5 - 6-7 8.- .9 10.", "1,234.5 -6 -7 8. -.9 10")])
texts("long words", [("y" * 300 + "ing", "y" * 300), ("ab" * 200 + " x", "ab" * 200 + " y")])
texts("marks alone take most room", [("." * 41, "$." * 20 + " ." * 21), ("-.1-." * 9, "...,,,...")])

with open(sys.argv[1], "w") as f:
    for case in cases:
        f.write(json.dumps(case, separators=(",", ":"), ensure_ascii=False) + "\n")
print(f"{sys.argv[1]}: {len(cases)} cases, {len(words)} words")
