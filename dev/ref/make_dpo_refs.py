"""Makes the references of direct preference optimisation: tokens of preference pairs, losses, rewards, gradients and ten steps of SGD,
in PyTorch, of a whole model and of PEFT's LoRA.

    python dev/ref/make_dpo_refs.py [--out data/ref]

Reads   chat_train/byte_level.json    the tokenizer (make_chat_refs.py), in --out
Writes  dpo/{config.json, model.safetensors, tokenizer.json, ...}     a small LLaMA, as transformers saves it
        dpo/adapter/                                                 LoRA for it, as PEFT saves it, with factors B that are 0
        dpo/pairs.jsonl, dpo/expected.jsonl                          records; for each the ids of both texts, and which token is the
                                                                     first that is learned
        dpo/ref.safetensors                                          for NAME full and lora:
            NAME.losses, NAME.chosen, NAME.rejected, NAME.accuracy [10]    before each step of SGD, over all pairs, beta 0.4
            NAME.logps [2 pairs]                                     at the start, chosen and rejected in turn
            NAME.grad.TENSOR, NAME.sgd.TENSOR                        at the third step; after all

The formula is that of Rafailov et al. 2023: h = (logp - logp_ref)(chosen) - (logp - logp_ref)(rejected), loss = mean of
-log sigmoid(beta h); logp sums the tokens behind the prompt, the end included. The reference is the model at the start; with LoRA,
whose B is 0 there, it is computed with adapters off.
"""
import json
import shutil

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from make_refs import STEPS, save, seed
from tuned_refs import out_folder

BETA, RATE = 0.4, {"full": 0.3, "lora": 0.5}
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
USER, SAYS = (lambda text: {"role": "user", "content": text}), (lambda text: {"role": "assistant", "content": text})
PAIRS = [
    {"prompt": "What is a ship?", "chosen": " It swims.", "rejected": " A song, in French\u2026"},
    {"prompt": "They as", "chosen": "k of ships.", "rejected": "king, and kind."},  # a token across the start of one completion
    {"chosen": "Be short, and kind.", "rejected": "Be short, and sing (12)."},
    {"prompt": "", "chosen": "Summer", "rejected": "\u00e9t\u00e9"},
    {"prompt": [USER("What is a ship?")], "chosen": [SAYS("It swims.")], "rejected": [SAYS("Thanks")]},
    {"chosen": [{"role": "system", "content": "Be kind."}, USER("And \u00e9t\u00e9?"), SAYS("Summer"), USER("Thanks"), SAYS("You're welcome!")],
     "rejected": [{"role": "system", "content": "Be kind."}, USER("And \u00e9t\u00e9?"), SAYS("Summer"), USER("Thanks"), SAYS("Sing a song")]},
    {"prompt": [USER("Say it: (a)")], "chosen": [SAYS("(a) :)")], "rejected": [SAYS("(b)")]},
]


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def split(record):
    """Prompt, chosen and rejected; without a prompt it is what both begin with."""
    chosen, rejected = record["chosen"], record["rejected"]
    if "prompt" in record:
        return record["prompt"], chosen, rejected
    n = common(chosen, rejected)
    if isinstance(chosen, str) and n and chosen[n - 1] == " ":
        n -= 1
    return chosen[:n], chosen[n:], rejected[n:]


def tokenized(tokenizer, record):
    prompt, chosen, rejected = split(record)
    if isinstance(prompt, str):
        ids = [tokenizer(prompt + c)["input_ids"] + [tokenizer.eos_token_id] for c in (chosen, rejected)]
        first = tokenizer(prompt)["input_ids"]
    else:
        def encode(messages, **more):
            return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False, **more), add_special_tokens=False)["input_ids"]
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        ids = []
        for c in (chosen, rejected):
            text = encode(prompt + c)
            ids.append(text[:len(text) - text[::-1].index(end)])
        first = encode(prompt, add_generation_prompt=True)
    return ids[0], ids[1], max(1, min(common(first, ids[0]), common(first, ids[1])))


def logps(model, pairs):
    """[2 pairs]: chosen, rejected, ..."""
    out = []
    for chosen, rejected, begin in pairs:
        for ids in (chosen, rejected):
            x = torch.tensor([ids])
            p = model(input_ids=x[:, :-1]).logits[0].log_softmax(-1)
            out.append(p[torch.arange(begin - 1, len(ids) - 1), x[0, begin:]].sum())
    return torch.stack(out)


def trained(model, name):
    return {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}


def run(dump, model, pairs, name):
    with torch.no_grad():
        if name == "lora":
            with model.disable_adapter():
                reference = logps(model, pairs)
        else:
            reference = logps(model, pairs)
    optimizer = torch.optim.SGD(trained(model, name).values(), lr=RATE[name])
    rows = {k: [] for k in ("losses", "chosen", "rejected", "accuracy")}
    for step in range(STEPS):
        optimizer.zero_grad()
        now = logps(model, pairs)
        if step == 0:
            dump[f"{name}.logps"] = now
        rewards = BETA * (now - reference)
        h = rewards[0::2] - rewards[1::2]
        loss = -F.logsigmoid(h).mean()
        loss.backward()
        if step == 2:
            dump.update({f"{name}.grad.{n}": p.grad.clone() for n, p in trained(model, name).items()})
        optimizer.step()
        for key, value in (("losses", loss), ("chosen", rewards[0::2].mean()), ("rejected", rewards[1::2].mean()), ("accuracy", (h > 0).float().mean())):
            rows[key].append(value.detach())
    dump.update({f"{name}.{k}": torch.stack(v) for k, v in rows.items()})
    dump.update({f"{name}.sgd.{n}": p.detach() for n, p in trained(model, name).items()})


def main():
    out = out_folder(__doc__)
    folder = out / "dpo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed("dpo")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(out / "chat_train" / "byte_level.json"), bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHATML
    pairs = [tokenized(tokenizer, r) for r in PAIRS]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in PAIRS))
    (folder / "expected.jsonl").write_text("".join(json.dumps({"chosen": c, "rejected": r, "learned_from": n}) + "\n" for c, r, n in pairs))
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=18, num_attention_heads=3, num_key_value_heads=1, head_dim=6, intermediate_size=22,
                         num_hidden_layers=2, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.2, bos_token_id=0, eos_token_id=1)
    LlamaForCausalLM(config).save_pretrained(folder)
    shutil.copy(out / "chat_train" / "byte_level.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}) + "\n")

    def base():
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    dump = {}
    run(dump, base(), pairs, "full")
    seed("dpo_lora")
    model = get_peft_model(base(), LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"]))
    model.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    path = folder / "adapter" / "adapter_config.json"
    said = json.loads(path.read_text())
    said["base_model_name_or_path"] = "data/ref/dpo"  # wherever the dumps are made
    said["target_modules"].sort()  # a set, whose order changes
    path.write_text(json.dumps(said, indent=2) + "\n")
    run(dump, model, pairs, "lora")
    save(folder / "ref.safetensors", dump)


if __name__ == "__main__":
    main()
