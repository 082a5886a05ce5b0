"""Tables and what Python's csv module reads in them, for test_csv.cu: data/ref/csv.jsonl, a case per line.

    dev/ref/make_csv.py data/ref/csv.jsonl [--n 40] [--seed 1]

Each case has the text, "kind" (csv or tsv), and "records" with the "lines" in which they begin. Kinds of cases, "by":
  writer    csv.writer wrote it, with each kind of quotes, separator and end of line: records are the table
  lines     fields between tabs with quotation marks anywhere, and no quotes: records are the fields
  damaged   the text of a writer with bytes changed: records are what csv.reader reads in it, strictly; null: it
            refuses. It takes quotation marks in the middle of a field, which galaxy/data/csv.h does not.
Nothing but Python's own library is needed; --n and --seed make others, as many and as random as one likes.
"""
import argparse
import csv
import io
import json
import random

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("output")
parser.add_argument("--n", type=int, default=40, help="cases of each kind")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
rng = random.Random(args.seed)
out = open(args.output, "w", encoding="utf-8")

PARTS = ["a", "word", "two words", "é", "→", "0", " ", ".", "'", ";", ","]
QUOTES = {"minimal": csv.QUOTE_MINIMAL, "all": csv.QUOTE_ALL, "nonnumeric": csv.QUOTE_NONNUMERIC}


def field(more):
    return "".join(rng.choice(PARTS + more) for _ in range(rng.choice([0, 1, 1, 2, 3, 5])))


def table(more):
    columns = rng.randint(1, 4)
    names = [f"column {i}" for i in range(columns)]
    rows = [[field(more) for _ in range(columns)] for _ in range(rng.randint(1, 6))]
    for row in rows:
        if not any(row):
            row[0] = "x"  # no empty lines
    return [names] + rows


def write(rows, separator, quotes, end):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=QUOTES[quotes], lineterminator=end).writerows(rows)
    return text.getvalue()


def read(text, separator):  # records, and the lines in which they begin
    lines, records, begins = text.split("\n"), [], []
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        while True:
            begin = reader.line_num + 1
            records.append(next(reader))
            begins.append(begin)
    except StopIteration:
        return records, begins
    except csv.Error:
        return None, None


def put(by, kind, text, records, lines, **more):
    json.dump({"by": by, "kind": kind, "text": text, "records": records, "lines": lines, **more}, out,
              ensure_ascii=False)
    out.write("\n")


for i in range(args.n):
    for kind, separators in (("csv", ",;\t"), ("tsv", "\t")):
        separator, quotes, end = rng.choice(separators), rng.choice(list(QUOTES)), rng.choice(["\n", "\r\n"])
        returns = ["\r\n", "\r"] if quotes == "all" or end == "\r\n" else []  # else older versions do not quote them
        rows = table(['"', '""', "\n", "\t"] + returns)
        if kind == "csv" and len(rows[0]) == 1:
            separator = ","  # which one the first line does not say
        text = rng.choice(["", "\ufeff"]) + write(rows, separator, quotes, end)
        if rng.random() < 0.3:
            text = text[:-len(end)]  # the last line without an end
        back, lines = read(text.lstrip("\ufeff"), separator)
        assert back == rows
        put("writer", kind, text, rows, lines, quotes=quotes)
    rows = table(['"', '"', '""'])
    text = "".join("\t".join(row) + "\n" for row in rows)
    put("lines", "tsv", text, rows, list(range(1, len(rows) + 1)))
    damaged = list(write(table(['"', '""', "\n"]), ",", rng.choice(list(QUOTES)), "\n"))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(damaged.index("\n") + 1, len(damaged) + 1)
        change = rng.choice(['"', '"', ",", "a", "\n", "\r", ""])
        damaged[at:at + rng.randint(0, 1)] = [change] if change else []
    text = "".join(damaged)
    put("damaged", "csv", text, *read(text, ","))
