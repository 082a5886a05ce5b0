"""Makes the reference of `generate_llama --score` from transformers: log-likelihoods under tiny models.

    python dev/ref/make_likelihood.py [--models data/ref] [--out data/ref/likelihood.jsonl]

Models are those of make_generate.py; the tokenizer has a token for each letter, one for ~~, and two special tokens, as
test_writer.cu writes it. A line of the output: {"model", "frame": whether the tokenizer puts <|im_start|> before a text,
"max_length", "request": {...}, "loglikelihood", "tokens", "is_greedy"}. Requests and windows are those of
lm-evaluation-harness 0.4.13 (loglikelihood, loglikelihood_rolling of its model hf), written down here by their rules.
Every greedy choice is clear: the largest logit of a scored row is well above the second.
"""
import argparse
import json
import pathlib
import random

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!~"
BOS, EOS = "<|im_start|>", "<|im_end|>"
MODELS = ("llama", "mistral_window", "qwen2", "qwen3")
MARGIN = 1e-3


def make_tokenizer(has_frame):
    vocab = {c: i for i, c in enumerate(LETTERS[:-1])} | {"~": 56, "~~": 57, "\n": 58}
    t = Tokenizer(models.BPE(vocab, [("~", "~")]))
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in (BOS, EOS)])
    t.decoder = decoders.Fuse()
    if has_frame:
        t.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, t.token_to_id(BOS))])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=BOS, eos_token=EOS)


def windows_of(t, request, most):
    """[(tokens, how many of the last ones are scored)]"""
    def encode(text):
        return t.encode(text, **({"add_special_tokens": False} if text.startswith(BOS) else {}))

    if "text" in request:
        ids, windows, done = encode(request["text"]), [], 0
        while done < len(ids):
            n = min(len(ids) - done, most)
            first = done + n - most - 1
            windows.append(([t.bos_token_id] + ids[:n] if done == 0 else ids[first:done + n], n))
            done += n
        return windows
    prompt = request.get("prompt", request.get("context"))
    completion = request.get("completion", request.get("continuation"))
    if not prompt:
        own = t.encode(completion, add_special_tokens=False)
        given, own = ([t.bos_token_id], own) if own[0] != t.bos_token_id else (own[:1], own[1:])
    else:
        bare = prompt.rstrip()
        whole, given = encode(prompt + completion), encode(bare)
        own, given = whole[len(given):], given
    assert given and own and len(own) <= most, request
    return [((given + own)[-(most + 1):], len(own))]


@torch.no_grad()
def score(model, windows):
    total, tokens, is_greedy = 0.0, 0, True
    for ids, scored in windows:
        logits = model(torch.tensor([ids[:-1]])).logits[0, -scored:].double()
        own = torch.tensor(ids[-scored:])
        top = logits.topk(2, dim=-1)
        if bool(((top.values[:, 0] - top.values[:, 1]) < MARGIN).any()):
            return None
        total += logits.log_softmax(-1).gather(1, own[:, None]).sum().item()
        is_greedy &= bool((top.indices[:, 0] == own).all())
        tokens += scored
    return total, tokens, is_greedy


def requests_of(model, t, dice):
    word = lambda most: "".join(dice.choice(LETTERS) for _ in range(dice.randint(1, most)))
    yield {"prompt": "", "completion": "Hello"}
    yield {"prompt": "", "completion": BOS + "Hello"}
    yield {"prompt": "a~", "completion": "~b"}  # one token of both
    yield {"context": "Two  ", "continuation": "words"}
    yield {"context": "A line\n", "continuation": "and another"}
    yield {"prompt": "a " + BOS, "completion": "b" + EOS}
    yield {"prompt": BOS + "user", "completion": " says"}
    yield {"text": "The quick brown fox, and all that it jumps over. Once more!"}
    yield {"text": BOS + "told"}
    yield {"text": ""}
    yield {"text": "x"}
    for _ in range(10):
        yield {"prompt": word(30), "completion": word(8), "label": 3}
        yield {"text": word(50)}
    for _ in range(6):  # what the model says itself
        prompt = word(12).strip() or "a"
        ids = t.encode(prompt)
        for _ in range(dice.randint(1, 4)):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        yield {"prompt": prompt, "completion": t.decode(ids[len(t.encode(prompt)):], clean_up_tokenization_spaces=False)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--models", type=pathlib.Path, default="data/ref")
    p.add_argument("--out", type=pathlib.Path, default="data/ref/likelihood.jsonl")
    o = p.parse_args()
    disable_progress_bar()
    torch.manual_seed(0)
    dice, lines = random.Random(1), []
    for name in MODELS:
        model = AutoModelForCausalLM.from_pretrained(o.models / f"generate_{name}", dtype=torch.float32,
                                                     attn_implementation="eager").eval()
        for has_frame, most in ((False, 64), (True, 64), (False, 9)):
            t = make_tokenizer(has_frame)
            for request in requests_of(model, t, dice):
                try:
                    windows = windows_of(t, request, most)
                except AssertionError:
                    continue
                found = score(model, windows)
                if found is None:
                    continue
                lines.append({"model": name, "frame": has_frame, "max_length": most, "request": request,
                              "loglikelihood": found[0], "tokens": found[1], "is_greedy": found[2]})
    o.out.write_text("".join(json.dumps(x) + "\n" for x in lines))
    print(o.out, len(lines), "requests,", sum(x["is_greedy"] for x in lines), "of them greedy")


if __name__ == "__main__":
    main()
