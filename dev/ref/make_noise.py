"""What becomes of a text when it is damaged (task/text_noise.h), given what is drawn: data/ref/noise.jsonl, a case per
line, for test_denoising.cu.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_noise.py data/ref/noise.jsonl

Written from the papers and from what their authors' code does (T5: Raffel et al. 2020, section 3.1.4; BART: Lewis et
al. 2019, section 2.2), with masks over whole texts in place of spans one after another.
"""
import json
import math
import sys

import numpy as np

rng = np.random.default_rng(20261129)
cases = []


def put(kind, **values):
    cases.append({"kind": kind, **{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}})


# ---- spans (T5): how long a text is so that its source, with </s>, has `source` tokens
def counts(length, density, mean):
    noise = min(max(int(np.round(length * density)), 1), length - 1)
    return noise, max(int(np.round(min(noise, length - noise) / mean)), 1)


for density, mean, sources in ((0.15, 3.0, [3, 4, 5, 8, 10, 13, 16, 32, 64, 100, 128, 256, 512, 1024]),
                               (0.5, 1.0, [3, 7, 20, 64]), (0.5, 3.0, [10, 33, 128]), (0.3, 10.0, [16, 50, 512]),
                               (0.01, 3.0, [3, 20, 300]), (0.8, 2.0, [5, 9, 40])):
    for source in sources:
        fits = []
        for length in range(2, 12 * source):
            noise, spans = counts(length, density, mean)
            if length - noise + spans + 1 <= source:
                fits.append((length, noise, spans))
        length, noise, spans = fits[-1]
        put("counts", source=source, density=density, mean=mean, tokens=length, noise=noise, spans=spans)


def first_of_runs(mask):
    return mask & ~np.concatenate([[False], mask[:-1]])


def collapse(text, hidden, sentinels):
    """The text with each run of hidden tokens replaced by the next sentinel."""
    first = first_of_runs(hidden)
    shown = np.where(first, sentinels[np.cumsum(first) - 1], text)
    return shown[~hidden | first]


for length, density, mean in ((2, 0.15, 3), (3, 0.5, 1), (12, 0.15, 3), (29, 0.3, 2), (40, 0.5, 1), (141, 0.15, 3),
                              (60, 0.8, 3)):
    noise, spans = counts(length, density, mean)
    kept, hidden = (np.diff(np.concatenate([[0], np.sort(rng.permutation(n - 1)[:spans - 1]) + 1, [n]]))
                    for n in (length - noise, noise))
    mask = np.repeat(np.tile([False, True], spans), np.stack([kept, hidden], 1).ravel())
    assert mask.sum() == noise and len(mask) == length
    text = rng.integers(10, 900, size=length)
    sentinels = 999 - np.arange(spans)
    # the target hides what the source shows: the text begins with that, and each run of it becomes a sentinel, too
    put("spans", text=text, kept=kept, noise=hidden, sentinels=sentinels, source=collapse(text, mask, sentinels),
        target=collapse(text, ~mask, sentinels))

# ---- sentences (BART)
STOP = 4
for length, share in ((1, 0), (2, 0.5), (9, 0.3), (20, 0.25), (20, 0.7), (30, 0), (31, 1), (60, 0.15), (60, 0.15)):
    text = np.where(rng.random(length) < share, STOP, rng.integers(10, 900, size=length))
    stop = text == STOP
    stop[-1] = True
    ends = np.flatnonzero(first_of_runs(stop)) + 1
    order = rng.permutation(len(ends))
    parts = np.split(text, ends)  # the last part is behind the last end
    put("sentences", text=text, full_stop=STOP, ends=ends, order=order,
        reordered=np.concatenate([parts[i] for i in order] + [parts[-1]]).astype(int))

# ---- masks (BART)
MASK = 3
for length, ratio, mean in ((1, 0.3, 3), (2, 1.0, 3), (5, 0.3, 1), (20, 0.3, 3), (20, 1.0, 2), (50, 0.3, 3.5),
                            (50, 0.6, 8), (64, 0.15, 1), (64, 0.3, 3)):
    masked = math.ceil(np.float32(ratio) * np.float32(length))
    drawn = []
    while sum(drawn) < masked:
        drawn.append(int(rng.poisson(mean)))
    drawn[-1] -= sum(drawn) - masked
    lengths = np.array([l for l in drawn if l])
    starts = rng.permutation(length)[:len(lengths)]
    text = rng.integers(10, 900, size=length)
    place = np.arange(length)
    lost = ((place > starts[:, None]) & (place < (starts + lengths)[:, None])).any(0)
    left = np.where(np.isin(place, starts), MASK, text)[~lost]
    inserted = min(drawn.count(0) + 1, length - len(left))  # one more than were drawn, so that most cases have some
    places = rng.permutation(len(left) + inserted)[:inserted]
    result = np.full(len(left) + inserted, MASK)
    result[np.setdiff1d(np.arange(len(result)), places)] = left
    put("masks", ratio=ratio, masked=masked, text=text, mask=MASK, starts=starts, lengths=lengths, left=left,
        places=places, result=result)

# ---- how many are masked, in fp32
for length in (1, 2, 3, 7, 10, 20, 30, 50, 100, 101, 1000):
    for ratio in (0.0, 0.1, 0.15, 0.3, 0.7, 1.0):
        put("masked", n=length, ratio=ratio, masked=math.ceil(np.float32(ratio) * np.float32(length)))

# ---- lengths of spans: a Poisson distribution that ends with the first length less likely than 1e-7
for mean in (1.0, 3.0, 3.5, 8.0, 16.0):
    p = [math.exp(-mean)]
    while p[-1] >= 1e-7:
        p.append(math.exp(-mean + len(p) * math.log(mean) - math.lgamma(len(p) + 1)))
    below = np.cumsum(p) / np.sum(p)
    put("lengths", mean=mean, below=[float(f"{x:.14g}") for x in below])

with open(sys.argv[1], "w") as f:
    for case in cases:
        f.write(json.dumps(case, separators=(",", ":")) + "\n")
