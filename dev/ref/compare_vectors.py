"""Holds --embed against sentence-transformers: random tiny models with modules of every kind that is built, vectors of
the same texts by both, the largest difference.

    python dev/ref/compare_vectors.py [--train_bert ./train_bert] [--n 24]

Needs sentence-transformers. Also what is saved after a training of one step is loaded and compared.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from transformers import BertConfig, BertModel, BertTokenizerFast
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

WORDS = "where is here grows some much query passage red blue green fish tree run runs".split()
LETTERS = [chr(97 + i) for i in range(26)]
TEXTS = ["where is the red fish", "Blue tree", "   ", "a", "[SEP] run [MASK]", "some much " * 20, "query: runs.",
         "héllo, wörld!", "green\tfish  grows"]
BOUND = 1e-5


def make(folder, seed):
    """A folder of sentence-transformers, and what is in it."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    base = folder / "base"
    base.mkdir(parents=True)
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, *("##" + c for c in LETTERS), *".,:!?[]"]
    (base / "vocab.txt").write_text("\n".join(vocab) + "\n")
    BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
    config = BertConfig(vocab_size=len(vocab), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                        num_attention_heads=4, max_position_embeddings=64, initializer_range=0.3)
    BertModel(config).save_pretrained(base)
    most, pooling = r.choice([8, 16, 32, 64]), r.choice(["mean", "cls"])
    chain = [models.Transformer(str(base), max_seq_length=most), models.Pooling(32, pooling_mode=pooling)]
    width, said = 32, [f"{pooling}, {most} tokens"]
    for _ in range(r.choice([0, 1, 1, 2])):
        out, activation = r.choice([8, 24, 40]), r.choice([torch.nn.Tanh(), torch.nn.Identity()])
        chain.append(models.Dense(width, out, bias=r.random() < 0.7, activation_function=activation))
        width = out
        said.append(f"Dense {out} {type(activation).__name__}")
    if r.random() < 0.6:
        chain.append(models.Normalize())
        said.append("Normalize")
    name = r.choice([None, "query", "passage"])
    prompts = {"query": "query: ", "passage": "passage: "}
    s = SentenceTransformer(modules=chain, prompts=prompts, default_prompt_name=name, device="cpu")
    s.save(str(folder / "model"))
    if r.random() < 0.5:  # as earlier versions have it
        said_here = {"max_seq_length": most, "do_lower_case": False}
        (folder / "model/sentence_bert_config.json").write_text(json.dumps(said_here))
    return folder / "model", ", ".join(said) + f", prompt {name}"


def run(*line):
    done = subprocess.run([str(x) for x in line], capture_output=True, text=True)
    assert done.returncode == 0, " ".join(map(str, line)) + "\n" + done.stderr + done.stdout


def compare(train_bert, model, folder, name):
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    run(train_bert, "--task", "embedding", "--model", model, "--embed", texts, "--embed_output", folder / name,
        "--threads", 1)
    ours, theirs = np.load(folder / name), SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    assert ours.shape == theirs.shape, f"{ours.shape} and {theirs.shape}"
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_bert", default="./train_bert")
    parser.add_argument("--n", type=int, default=24)
    args = parser.parse_args()
    set_verbosity_error(), disable_progress_bar()
    worst = 0
    for seed in range(args.n):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model, said = make(folder, seed)
            off = [compare(args.train_bert, model, folder, "ours.npy")]
            (folder / "pairs.tsv").write_text("anchor\tpositive\nred fish\tfish\nblue tree\ttree\nrun here\truns\n"
                                              "green\ta\n")
            run(args.train_bert, "--task", "embedding", "--model", model, "--train_data", folder / "pairs.tsv",
                "--seq_len", 64, "--validation_fraction", 0, "--micro_batch_size", 2, "--max_steps", 1,
                "--learning_rate", 1e-3, "--threads", 1, "--output_dir", folder / "out")
            off.append(compare(args.train_bert, folder / "out/checkpoint-1", folder, "trained.npy"))
            a, b = (SentenceTransformer(str(m), device="cpu") for m in (model, folder / "out/checkpoint-1"))
            kept = {key: (getattr(a, key), getattr(b, key)) for key in
                    ("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name")}
            lost = {key: two for key, two in kept.items() if two[0] != two[1]}
            assert not lost, f"{said}: {lost}"
            print(f"{seed}: {said}: {off[0]:.1e}, trained {off[1]:.1e}")
            worst = max(worst, *off)
    print(f"{'ok' if worst < BOUND else 'WRONG'}: {args.n} models, at most {worst:.1e} apart")
    return int(worst >= BOUND)


if __name__ == "__main__":
    raise SystemExit(main())
