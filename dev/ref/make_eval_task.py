"""Makes two tasks of lm-evaluation-harness from a text, without a download: which words come next, and perplexity.

    python dev/ref/make_eval_task.py --text data/text.txt --out build/eval_task
    ... --include_path build/eval_task --tasks galaxy_next_words,galaxy_perplexity
"""
import argparse
import json
import pathlib
import random

NEXT_WORDS = """task: galaxy_next_words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/next_words.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
PERPLEXITY = """task: galaxy_perplexity
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/texts.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: bits_per_byte
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--text", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--questions", type=int, default=50)
    p.add_argument("--texts", type=int, default=4)
    p.add_argument("--words", type=int, default=900, help="of a text")
    o = p.parse_args()
    words, dice = o.text.read_text().split(), random.Random(7)
    o.out.mkdir(parents=True, exist_ok=True)
    some = lambda n: (lambda at: words[at:at + n])(dice.randrange(len(words) - n))
    questions, texts = [], []
    for _ in range(o.questions):
        found = some(30)
        choices = [" " + " ".join(found[24:])] + [" " + " ".join(some(6)) for _ in range(3)]
        label = dice.randrange(4)
        choices[0], choices[label] = choices[label], choices[0]
        questions.append({"context": " ".join(found[:24]), "choices": choices, "label": label})
    texts = [{"text": " ".join(some(o.words))} for _ in range(o.texts)]
    for name, records in (("next_words", questions), ("texts", texts)):
        (o.out / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    folder = o.out.resolve()
    (o.out / "next_words.yaml").write_text(NEXT_WORDS.format(folder=folder))
    (o.out / "perplexity.yaml").write_text(PERPLEXITY.format(folder=folder))
    print(f"{o.out}: {len(questions)} questions, {len(texts)} texts")


if __name__ == "__main__":
    main()
