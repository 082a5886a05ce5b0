"""Scores of predictions by scikit-learn and SciPy, for test_scores.cu: data/ref/scores.jsonl, a case per line.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_scores.py data/ref/scores.jsonl

Numbers are multiples of 1/64, so that they are exact in fp32 and short; null is NaN. Where equal scores are
in a ranking, the references get them with what is sought just below its equals: the order that task/scores.h promises.
"""
import json
import sys
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

warnings.simplefilter("ignore")  # about the degenerate cases that this is about
rng = np.random.default_rng(20260521)
cases = []


def put(kind, what, **values):
    def plain(v):
        if isinstance(v, np.ndarray):
            return [plain(x) for x in v.tolist()]
        if isinstance(v, (float, np.floating)):
            return None if np.isnan(v) else int(v) if float(v).is_integer() and abs(v) < 2**53 else float(v)
        return int(v) if isinstance(v, (np.integer, np.bool_)) else v
    cases.append({"kind": kind, "what": what, **{k: plain(v) for k, v in values.items()}})


# ---- one class per record
def classes(what, n_classes, truth, prediction):
    truth, prediction = np.asarray(truth), np.asarray(prediction)
    put("classes", what, classes=n_classes, truth=truth, prediction=prediction,
        accuracy=metrics.accuracy_score(truth, prediction),
        macro_f1=metrics.f1_score(truth, prediction, average="macro"),
        matthews=metrics.matthews_corrcoef(truth, prediction))


for n_classes, n in ((2, 50), (3, 100), (4, 200), (7, 60), (40, 150)):
    truth = rng.integers(n_classes, size=n)
    right = rng.random(n) < 0.7
    classes(f"{n_classes} classes", n_classes, truth, np.where(right, truth, rng.integers(n_classes, size=n)))
    classes(f"{n_classes} classes at random", n_classes, truth, rng.integers(n_classes, size=n))
unbalanced = (rng.random(200) < 0.03).astype(int)
classes("unbalanced", 2, unbalanced, np.where(rng.random(200) < 0.05, 1 - unbalanced, unbalanced))
classes("unbalanced, always the frequent one", 2, unbalanced, np.zeros(200, int))
classes("one class in truth and prediction", 3, [1] * 9, [1] * 9)
classes("one class in truth, another in prediction", 3, [1] * 9, [2] * 9)
classes("one class in truth", 3, [1] * 6, [0, 1, 2, 1, 1, 0])
classes("one class in prediction", 3, [0, 1, 2, 1, 1, 0], [1] * 6)
classes("all right", 3, [0, 1, 2, 2], [0, 1, 2, 2])
classes("all wrong", 2, [0, 1, 0, 1], [1, 0, 1, 0])
classes("one record, right", 4, [3], [3])
classes("one record, wrong", 4, [3], [0])
classes("a class that is only predicted", 5, [0, 1, 0, 1], [0, 1, 4, 1])
classes("a class that is never hit", 3, [0, 0, 1, 2], [0, 0, 2, 1])


# ---- several labels per record: predicted where the logit is above 0
def several(what, truth, logits):
    truth, logits = np.asarray(truth), np.asarray(logits, dtype=float)
    prediction = (logits > 0).astype(int)
    put("several", what, labels=truth.shape[1], truth=truth.ravel(), logits=logits.ravel(),
        exact=np.mean((truth == prediction).all(axis=1)),
        accuracy=1 - metrics.hamming_loss(truth, prediction),
        micro_f1=metrics.f1_score(truth, prediction, average="micro"),
        macro_f1=metrics.f1_score(truth, prediction, average="macro"))


for n, labels, share in ((40, 3, 0.5), (60, 5, 0.2), (10, 9, 0.1)):
    truth = (rng.random((n, labels)) < share).astype(int)
    several(f"{labels} labels", truth, np.round((truth - 0.5 + rng.normal(size=truth.shape)) * 64) / 64)
several("nothing is there, nothing is predicted", np.zeros((4, 3), int), -np.ones((4, 3)))
several("nothing is there, all is predicted", np.zeros((4, 3), int), np.ones((4, 3)))
several("all is there, nothing is predicted", np.ones((4, 3), int), -np.ones((4, 3)))
several("all right", np.eye(3, dtype=int), 2 * np.eye(3) - 1)
several("a logit of 0 predicts nothing", np.array([[1, 0], [1, 1]]), np.array([[0, 0], [1, 0]]))
several("one record", np.array([[1, 0, 1]]), np.array([[0.5, 0.25, -1]]))


# ---- numbers
def numbers(what, truth, prediction):
    truth, prediction = np.asarray(truth, dtype=float), np.asarray(prediction, dtype=float)
    few = len(truth) < 2  # SciPy refuses these
    put("numbers", what, truth=truth, prediction=prediction,
        pearson=np.nan if few else stats.pearsonr(truth, prediction)[0],
        spearman=np.nan if few else stats.spearmanr(truth, prediction)[0])


def sixtyfourths(x):
    return np.round(np.asarray(x) * 64) / 64


for n, noise, offset in ((30, 0.5, 0), (100, 3, 0), (100, 0.1, 1000), (3, 1, 0), (2, 1, 0)):
    truth = sixtyfourths(rng.normal(size=n))
    prediction = offset + sixtyfourths(truth + noise * rng.normal(size=n))
    numbers(f"{n} numbers, noise {noise}, offset {offset}", truth, prediction)
numbers("many ties", rng.integers(4, size=80), rng.integers(3, size=80))
numbers("ties in pairs", [1, 1, 2, 2, 3, 3], [1, 2, 2, 3, 3, 9])
numbers("falling", np.arange(20), -np.arange(20) ** 3)
numbers("the same", np.arange(20), np.arange(20))
numbers("a constant prediction", np.arange(9), np.full(9, 3.125))
numbers("a constant truth", np.full(9, 3.125), np.arange(9))
numbers("both constant", np.full(9, 1), np.full(9, 2))
numbers("one pair", [1], [2])
numbers("no pair", [], [])
numbers("two pairs, falling", [1, 2], [2, 1])
numbers("two pairs, a tie", [1, 2], [2, 2])


# ---- yes or no
def auc(what, truth, prediction):
    truth, prediction = np.asarray(truth), np.asarray(prediction, dtype=float)
    put("auc", what, truth=truth, prediction=prediction,
        auc=np.nan if len(set(truth.tolist())) < 2 else metrics.roc_auc_score(truth, prediction))


for n, share in ((60, 0.5), (150, 0.05), (20, 0.9)):
    truth = (rng.random(n) < share).astype(int)
    truth[:2] = 0, 1
    auc(f"{n} records, {share} true", truth, sixtyfourths(truth + rng.normal(size=n)))
    auc(f"{n} records, {share} true, ties", truth, rng.integers(4, size=n))
auc("all equal", [0, 1, 0, 1, 1], [2] * 5)
auc("all right", [0, 0, 1, 1], [1, 2, 3, 4])
auc("all wrong", [1, 1, 0, 0], [1, 2, 3, 4])
auc("all true", [1, 1, 1], [1, 2, 3])
auc("all false", [0, 0], [1, 2])
auc("one record", [1], [1])


# ---- rankings
def untied(prediction, gain):
    """Equal scores apart, what is worse first: 2^-30 is below every difference of what is not equal."""
    return np.asarray(prediction, dtype=float) - np.asarray(gain) * 2.0**-30


def ranking(what, prediction, gain, k):
    prediction, gain = np.asarray(prediction, dtype=float), np.asarray(gain, dtype=float)
    order = np.argsort(-untied(prediction, gain), kind="stable")
    sought = gain[order] > 0
    mrr = 1 / (1 + np.argmax(sought)) if sought.any() else 0
    if (gain > 0).sum() == 1:  # then that is scikit-learn's, whose ties are the worst rank, too
        mrr = metrics.label_ranking_average_precision_score([gain > 0], [prediction])
    put("ranking", what, prediction=prediction, gain=gain, k=k, mrr=mrr,
        ndcg=metrics.ndcg_score([gain], [untied(prediction, gain)], k=k) if len(gain) > 1 else float(gain[0] > 0),
        recall=sought[:k].sum() / sought.sum() if sought.any() else 0)


for n, k in ((10, 3), (10, 10), (50, 10), (5, 20)):
    one = np.zeros(n)
    one[rng.integers(n)] = 1
    ranking(f"one of {n}, k {k}", sixtyfourths(rng.normal(size=n)), one, k)
    ranking(f"one of {n}, k {k}, ties", rng.integers(3, size=n), one, k)
    graded = rng.integers(4, size=n) * (rng.random(n) < 0.5)
    graded[0] = 2
    ranking(f"graded {n}, k {k}", sixtyfourths(rng.normal(size=n)), graded, k)
    ranking(f"graded {n}, k {k}, ties", rng.integers(3, size=n), graded, k)
ranking("all equal", [1] * 6, [0, 0, 1, 0, 0, 0], 3)
ranking("nothing is sought", [1, 2, 3], [0, 0, 0], 2)
ranking("all is sought", [1, 2, 3], [1, 1, 1], 2)
ranking("one candidate", [1], [1], 1)
ranking("the best is last", [1, 2, 3, 4], [1, 0, 0, 0], 3)


# ---- embeddings: integers, so that products are exact and equal directions give equal cosines
def cosine(what, anchor, candidate, k):
    anchor, candidate = np.asarray(anchor, dtype=float), np.asarray(candidate, dtype=float)
    length = np.sqrt((candidate**2).sum(axis=1))
    scores = anchor @ candidate.T / np.where(length > 0, length, 1)
    own = np.eye(len(anchor), len(candidate))
    rank = stats.rankdata(-scores, method="max", axis=1)[own > 0].astype(int)
    few = len(candidate) < 2
    put("cosine", what, width=anchor.shape[1], anchor=anchor.ravel(), candidate=candidate.ravel(), k=k, rank=rank,
        mrr=metrics.label_ranking_average_precision_score(own, scores),
        ndcg=1.0 if few else metrics.ndcg_score(own, untied(scores, own), k=k),
        recall=np.mean(rank <= k))


for n, m, width, spread in ((12, 12, 5, 3), (20, 30, 8, 6), (8, 8, 16, 2)):
    candidate = rng.integers(-4, 5, size=(m, width))
    anchor = candidate[:n] + rng.integers(-spread, spread + 1, size=(n, width))
    candidate[m // 2] = candidate[0]  # the same text twice
    candidate[1] = 2 * candidate[2]   # the same direction, another length: to the last bit
    candidate[3] = 0
    cosine(f"{n} anchors, {m} candidates", anchor, candidate, 3)
cosine("all the same: a collapsed model", np.ones((5, 4)), np.ones((5, 4)), 3)
cosine("one pair", [[1, 2]], [[2, 1]], 1)
cosine("each its own", np.eye(4), np.eye(4), 1)

with open(sys.argv[1], "w") as f:
    for case in cases:
        f.write(json.dumps(case, separators=(",", ":")) + "\n")
print(f"{sys.argv[1]}: {len(cases)} cases")
