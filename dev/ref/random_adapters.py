"""Draws adapters that peft saves, and compares what Galaxy makes of their folders with what peft makes of them.

    python dev/ref/random_adapters.py --programs DIR --logits PROGRAM [--count 100] [--seed 1] [--keep DIR]

DIR has train_bert, train_llama and merge_adapter; PROGRAM is dev/ref/llama_logits.cu, compiled. Of tiny random models (LLaMA and Qwen2, tied and not,
BERT with heads for masked tokens and labels) adapters are drawn with the options of LoraConfig, all their values random, and saved. peft loads each
onto its base anew: these are the right logits. Galaxy merges it (merge_adapter), and its merged model has to give the same; so have the adapter
itself on its base (llama_logits, train_bert --predict). What Galaxy refuses has to be refused by the name of a key or a tensor.

Keys first: every field of the configurations of peft that Galaxy reads stands in a table of galaxy/run/peft.h.
Prints a line for each adapter that is refused, and one that begins with "ok", or says what differs and exits with 1.
"""
import argparse
import collections
import dataclasses
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from peft import AdaptionPromptConfig, IA3Config, LoHaConfig, LoraConfig, PeftModel, PrefixTuningConfig, PromptTuningConfig, VeraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, Qwen2Config, Qwen2ForCausalLM

BOUND = 2e-5  # relative L2 of logits in fp32 in another order; merging adds what it changes in peft's own logits, a few times
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad fine poor film plot the a is was very not".split()
TEXTS = ["good film", "bad plot was not fine", "the film is very poor"]
LAYERS = 3
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BERT = ["query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense", "dense"]


def check(ok, message):
    if not ok:
        sys.exit(f"random_adapters.py: {message}")


def check_keys():
    header = pathlib.Path(__file__).parents[2] / "galaxy/run/peft.h"
    known = set(re.findall(r'"([a-z_0-9]+)(?:=[^{}]*?)?",\s*GX_KEY_', header.read_text()))
    for config in (LoraConfig, AdaptionPromptConfig):
        fields = {f.name for f in dataclasses.fields(config)}
        check(fields <= known, f"{config.__name__} has keys that galaxy/run/peft.h does not know: {sorted(fields - known)}")


def make_bases(folder):
    torch.manual_seed(1)
    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, max_position_embeddings=64)
    llama = dict(vocab_size=80, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.2, **small)
    bert = BertConfig(vocab_size=len(WORDS), initializer_range=0.2, **small)
    bases = {
        "llama": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **llama)),
        "llama_tied": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=False, **llama)),
        "bert_bare": BertModel(bert),
        "bert_masked": BertForMaskedLM(bert),
    }
    bases["llama_bf16"] = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama))
    for name, model in bases.items():
        for parameter in model.parameters():
            parameter.data += 0.02 * torch.randn_like(parameter)
        if name.endswith("bf16"):
            model.to(torch.bfloat16)
        model.save_pretrained(folder / name)
        if name.startswith("bert"):
            (folder / name / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def kind_of(base, labels):
    if base.startswith("bert"):
        return BertForSequenceClassification if labels else BertForMaskedLM
    if labels:
        return LlamaForSequenceClassification
    return Qwen2ForCausalLM if base == "qwen2" else LlamaForCausalLM


OTHERS = [IA3Config, LoHaConfig, VeraConfig, PromptTuningConfig, PrefixTuningConfig]


def draw(r):
    """A base, how many labels its head has (0: it has another), and a configuration."""
    if r.random() < 0.08:
        return r.choice(["llama", "llama_tied"]), 0, AdaptionPromptConfig, dict(adapter_len=r.randint(1, 5), adapter_layers=r.randint(1, LAYERS), task_type="CAUSAL_LM")
    if r.random() < 0.04:
        kind = r.choice(OTHERS)
        more = dict(num_virtual_tokens=3) if kind in (PromptTuningConfig, PrefixTuningConfig) else dict(target_modules=["v_proj", "down_proj"])
        return "llama", 0, kind, dict(task_type="CAUSAL_LM", **(dict(feedforward_modules=["down_proj"]) if kind is IA3Config else {}), **more)
    base, labels, options = draw_lora(r)
    return base, labels, LoraConfig, options


def draw_pattern(r, names, layer, number):
    """Some keys: names, ends of names, whole names, regular expressions, and what matches nothing."""
    inner = "attention.self" if layer == "layer" else "self_attn"
    some = r.choice(names)
    keys = [some, r.choice(names), "embed_tokens", "lm_head", "classifier", rf".*\.{layer}\.1\..*", rf"{layer}\.[02]\..*", rf"{layer}\.\d+\.{inner}\..*", f"{inner}.{some}",
            rf"({some}|{r.choice(names)})", f"^{some}", f"model.{layer}s.1.{inner}.{some}", rf"^(model|bert\.encoder|encoder)\.{layer}s?\.0\..*", "_proj", f"{some}$"]
    return {key: number() for key in r.sample(keys, r.randint(1, 4))}


def draw_lora(r):
    labels = r.choice([0, 0, 0, 0, 3, 2, 1])
    base = r.choice(["bert_bare", "bert_bare", "llama"]) if labels else r.choice(["llama", "llama", "llama_tied", "llama_tied", "llama_bf16", "qwen2", "bert_masked"])
    is_bert = base.startswith("bert")
    names, norms = (BERT, ["LayerNorm"]) if is_bert else (LLAMA, ["norm", "input_layernorm", "model.norm"])
    layer = "layer" if is_bert else "layers"
    o = dict(r=r.choice([1, 2, 3, 4, 8]), lora_alpha=r.choice([1, 4, 8, 16, 32]), use_rslora=r.random() < 0.3, lora_dropout=r.choice([0.0, 0.1]))
    o["task_type"] = "SEQ_CLS" if labels else None if is_bert or r.random() < 0.2 else "CAUSAL_LM"
    o["target_modules"] = r.sample(names, r.randint(1, len(names)))
    if r.random() < 0.2:
        o["target_modules"] = "all-linear"
    elif r.random() < 0.25:
        o["target_modules"] = r.choice([rf".*\.{layer}\.[01]\..*(query|value|q_proj|v_proj)", rf".*{layer}\.\d+\..*(key|k_proj|down_proj)", r".*(query|o_proj)$"])
    is_list = isinstance(o["target_modules"], list)
    if is_list and r.random() < 0.15:
        o["target_modules"].append("word_embeddings" if is_bert else "embed_tokens")
    if is_list and not is_bert and not labels and r.random() < 0.1:
        o["target_modules"].append("lm_head")
    if r.random() < 0.25:
        o["modules_to_save"] = r.choice([norms[:1], norms[-1:], ["word_embeddings"] if is_bert else ["embed_tokens"], ["lm_head"], ["lm_head", "embed_tokens"], ["mlp"], [f"{layer}.1"]])
    special = {
        "bias": lambda: r.choice(["all", "lora_only"]),
        "rank_pattern": lambda: draw_pattern(r, names, layer, lambda: r.randint(1, 9)),
        "alpha_pattern": lambda: draw_pattern(r, names, layer, lambda: r.choice([1, 3, 16, 0.5, 2.25])),
        "layers_to_transform": lambda: r.choice([[0], [1, 2], 2, [0, 2]]),
        "exclude_modules": lambda: r.choice([[r.choice(names)], rf".*\.{layer}\.1\..*", [f"{layer}.0.{'attention.self.query' if is_bert else 'self_attn.q_proj'}"]]),
        "init_lora_weights": lambda: r.choice([False, "gaussian", "orthogonal", "mica", "eva", "olora", "pissa", "pissa_niter_4", "loftq"]),
        "use_dora": lambda: True,
        "lora_bias": lambda: True,
        "fan_in_fan_out": lambda: True,
        "trainable_token_indices": lambda: [3, 5],
        "ensure_weight_tying": lambda: True,
        "layer_replication": lambda: [[0, 2], [1, 3]],
        "velora_config": lambda: {"num_groups": 4},
        "target_parameters": lambda: ["q_proj.weight"],
    }
    taken = ["exclude_modules", "fan_in_fan_out", "init_lora_weights", "layers_to_transform", "velora_config", "ensure_weight_tying", "rank_pattern", "alpha_pattern"]
    for key in r.sample(taken, r.choice([0, 1, 1, 2, 3])) + r.sample(sorted(set(special) - set(taken)), r.random() < 0.15):
        o[key] = special[key]()
    if "layers_to_transform" in o and r.random() < 0.4:
        o["layers_pattern"] = r.choice([layer, [layer], "h"])
    if o.get("init_lora_weights") == "loftq":
        o["loftq_config"] = {"loftq_bits": 4, "loftq_iter": 1}
    return base, labels, o


def logits(model, is_bert):
    """Of the texts, one by one, so that padding is no matter."""
    if is_bert:
        rows = [[2, *(WORDS.index(w) for w in t.split()), 3] for t in TEXTS]
    else:
        rows = torch.randint(3, 80, (3, 9), generator=torch.Generator().manual_seed(3)).tolist()
    with torch.no_grad():
        return torch.cat([model(input_ids=torch.tensor([row])).logits.flatten() for row in rows]).double()


def make_adapter(r, base, labels, kind, options, folder):
    """Of random values, in a random type; False: peft does not take these options."""
    more = dict(num_labels=labels) if labels else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.manual_seed(r.randrange(10**6))
            model = get_peft_model(kind_of(base.name, labels).from_pretrained(base, dtype=torch.float32, **more), kind(**options))
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data += 0.2 * torch.randn_like(parameter) if parameter.ndim > 1 else 0.1 * torch.randn_like(parameter)
            model.save_pretrained(folder)
        except (ValueError, TypeError, RuntimeError, NotImplementedError, AttributeError, KeyError, IndexError, ImportError, AssertionError):
            return False
    dtype = r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    file = folder / "adapter_model.safetensors"
    # copies of the base's matrices stay: of rounded ones Galaxy warns, and goes on with the base's
    cast = {name: t.contiguous() if ".base_layer." in name else t.to(dtype).contiguous() for name, t in load_file(file).items()}
    save_file(cast, file, metadata={"format": "pt"})
    return True


def of_peft(base, labels, folder):
    more = dict(num_labels=labels) if labels else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PeftModel.from_pretrained(kind_of(base.name, labels).from_pretrained(base, dtype=torch.float32, **more), folder).eval()


def rounding(base, labels, adapter, is_bert, right):
    """What merging changes of peft's own logits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return min(1e-3, apart(logits(of_peft(base, labels, adapter).merge_and_unload(), is_bert), right))
        except Exception:  # what peft does not merge, Galaxy refuses
            return 0


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


def apart(a, b):
    return ((a - b).norm() / b.norm()).item() if a.shape == b.shape else float("inf")


def predictions(args, folder, adapter):
    texts, out = folder / "texts.tsv", folder / "predictions.jsonl"
    texts.write_text("text\n" + "\n".join(TEXTS) + "\n")
    code, said = run(args.programs / "train_bert", "--task", "classification", "--adapter", adapter, "--seq_len", 64, "--threads", 1, "--predict", texts, "--predictions", out)
    if code:
        return None, said
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    out.unlink()
    return torch.tensor([list(line["scores"].values()) if "scores" in line else [line["score"]] for line in lines]).double().flatten(), said


def compare_itself(args, base, labels, folder, adapter):
    code, said = run(args.logits, adapter, folder / "logits.safetensors")
    if code:
        return f"it is not computed with: {said}"
    dump = load_file(folder / "logits.safetensors")
    model, tokens = of_peft(base, labels, adapter), dump["tokens"].long()
    with torch.no_grad():
        theirs = model(input_ids=tokens, use_cache=False).logits.double()
        exact = model.double()(input_ids=tokens, use_cache=False).logits
    off = apart(dump["logits"].double(), theirs)
    return f"its logits are {off:.3g} off" if off > BOUND + 4 * apart(theirs, exact) else "same"


def compare(args, base, labels, kind, folder, adapter):
    """"same", or "refused: WHY", or what differs."""
    is_bert = base.name.startswith("bert")
    if kind is AdaptionPromptConfig:
        return compare_itself(args, base, labels, folder, adapter)
    merged = folder / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    code, said = run(args.programs / "merge_adapter", "--adapter", adapter, "--output_dir", merged)
    if code and ": tensor base_model" in said:  # peft sorts a pattern's keys when it saves them, and then the first that matches may be another
        of_peft(base, labels, adapter)  # has to refuse it, too
        return f"peft loads it, and merge_adapter says: {said}"
    if code:
        return f"refused: {said}"
    right = logits(of_peft(base, labels, adapter), is_bert)
    bound = BOUND + 4 * rounding(base, labels, adapter, is_bert, right)
    # the embedding may have become another's than the head's
    model, info = kind_of(base.name, labels).from_pretrained(merged, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        return f"merged, it has missing or unexpected tensors: {info}"
    off = apart(logits(model.eval(), is_bert), right)
    if off > bound:
        return f"merged, its logits are {off:.3g} off; it said: {said}"
    if not is_bert and not labels:
        return compare_itself(args, base, labels, folder, adapter)
    if is_bert and labels > 1:
        scores, said = predictions(args, folder, adapter)
        if scores is None:
            return f"merged, but it does not predict: {said}"
        with torch.no_grad():
            off = (scores - torch.softmax(right.reshape(len(TEXTS), labels), -1).flatten()).abs().max().item()
        if off > 2e-5:
            return f"its predictions are {off:.3g} off"
    return "same"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--logits", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="where folders that differ go")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    check_keys()
    r = random.Random(args.seed)
    counts, wrong, tried, drawn = collections.Counter(), [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_bases(folder)
        while tried < args.count:
            base, labels, kind, options = draw(r)
            drawn += 1
            adapter = folder / f"adapter{drawn}"
            try:
                if not make_adapter(r, folder / base, labels, kind, options, adapter):
                    continue
                result = compare(args, folder / base, labels, kind, folder, adapter)
            except Exception as e:  # peft does not load what it has saved
                print(f"-- {base} {options}: peft: {type(e).__name__}: {str(e)[:200]}")
                continue
            tried += 1
            short = {k: v for k, v in options.items() if k not in ("r", "lora_alpha", "lora_dropout", "use_rslora")}
            if result.startswith("refused"):
                why = result.split("adapter_config.json: ")[-1] if "adapter_config.json: " in result else result
                print(f"{base}, {labels} labels, {short}: {why[:260]}")
                counts["refused"] += 1
            elif result != "same":
                wrong.append(f"{base}, {labels} labels, {options}: {result}")
                print("DIFFERS", wrong[-1])
                if args.keep:
                    shutil.copytree(adapter, args.keep / adapter.name, dirs_exist_ok=True)
                    shutil.copytree(folder / base, args.keep / base, dirs_exist_ok=True)
            else:
                counts["same"] += 1
            shutil.rmtree(adapter)
    check(not wrong, f"{len(wrong)} of {tried} adapters differ from peft's")
    print(f"ok: of {tried} adapters {counts['same']} are peft's, {counts['refused']} are refused by name ({drawn - tried} of {drawn} that were drawn peft did not take)")


if __name__ == "__main__":
    main()
