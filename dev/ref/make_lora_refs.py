"""Makes the reference dumps of LoRA from PEFT, on the models that make_refs.py has made.

    python dev/ref/make_lora_refs.py [--out data/ref]

Writes folders lora_NAME/{adapter_config.json, adapter_model.safetensors} as PEFT saves them, with factors B that are not 0, and
lora_NAME/ref.safetensors, in float32:

    tokens, labels  [B,T]   as in make_refs.py
    loss, logits            of the base with LoRA; logits [B,T,V]
    grad.NAME               of each factor, and of what is trained whole: NAME is PEFT's in adapter_model.safetensors; but the
                            B of a Phi-3's qkv_proj and gate_up_proj and of a GPT-2's c_attn is cut as Galaxy has these matrices
    grad_norm       [1]     of all of them
    sgd.losses      [10]    ten steps of SGD of lr 0.1 on the batch: the loss before each, and the factors after all
    sgd.NAME

lora_dropout* drop parts of what factors read. PEFT is handed the masks of galaxy/base/random.h and galaxy/ops/dropout.h, as make_bert_refs.py hands
transformers those of a BERT's own dropout, which the second of them has, too: step k of SGD draws with step + k.

    seed, step, first_sample  [1]
    site.NAME       [1]     whose masks the factor NAME, an A, has: the number of its row in the model's table, in which the tensors of the embedding, of each
                            layer and of the head stand one unit after the other, those of the base before the unit's factors

lora_ranks and lora_layers have keys of adapter_config.json that choose modules, ranks and alphas. lora_embed* have LoRA on the embedding of tokens, too: of a LLaMA, of one whose head is tied to it, and of a BERT, whose batch is that of its base's
dump, bert_mlm, but for its third tokens, which are the one that has no gradient (labels are not here again). lora_head* have it on heads: of a LLaMA, of
one whose head is tied, of that and its embedding; and, on the batches of their bases' dumps, of which nothing is here again, a BERT's of masked tokens, that with
the one of pairs of texts, and heads for labels of a BERT, whose pooler is trained whole, and of a LLaMA. PEFT's files have a copy of a LLaMA's embedding, or of lm_head, besides,
….base_layer.weight. lora_phi3, lora_gpt2 and lora_dropout_gpt2 have it on matrices that are several in Galaxy, the last two on the batch of
gpt2_odd's dump. lora_whole_* have one of two matrices that are tied in the base trained whole, and all of an MLP.
"""
import json
import re
import warnings

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForPreTraining, AutoModelForSequenceClassification

from make_bert_refs import SITE_LORA, Dropout, Site, put_sites
from make_refs import loss_of, save, seed
from tuned_refs import gradients_of, out_folder, steps_of, text_of

CASES = {  # name: base, batch, length, configuration
    "gqa": ("gqa", 3, 10, dict(r=4, lora_alpha=6, target_modules="all-linear")),
    "odd": ("odd", 2, 7, dict(r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    "qwen2": ("qwen2", 2, 9, dict(r=1, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "model.layers.1.mlp.up_proj"])),
    "ranks": ("gqa", 3, 10, dict(r=4, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "k_proj", "v_proj", "down_proj", "embed_tokens", "lm_head"],
                                 exclude_modules=["layers.1.self_attn.k_proj"], rank_pattern={"q_proj": 2, "layers.0.mlp.down_proj": 7, "lm_head": 1, "embed_tokens": 3},
                                 alpha_pattern={"model.layers.1.self_attn.q_proj": 3, "q_proj": 0.5, "v_proj": 1, "embed_tokens": 0.7})),
    "layers": ("gqa", 2, 9, dict(r=3, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "model.layers.0.mlp.down_proj"], layers_to_transform=[1], layers_pattern="layers",
                                 rank_pattern={"v_proj": 5})),
    "embed": ("gqa", 2, 9, dict(r=3, lora_alpha=4, target_modules=["embed_tokens", "q_proj"])),
    "embed_tied": ("odd", 3, 8, dict(r=2, lora_alpha=5, use_rslora=True, target_modules=["embed_tokens", "v_proj"])),
    "gemma3": ("gemma3", 2, 9, dict(r=3, lora_alpha=4, target_modules=["embed_tokens", "q_proj", "v_proj", "down_proj"])),
    "head": ("gqa", 2, 9, dict(r=3, lora_alpha=4, target_modules=["lm_head", "q_proj"])),
    "head_tied": ("odd", 3, 8, dict(r=2, lora_alpha=5, use_rslora=True, target_modules=["lm_head", "v_proj"])),
    "head_both": ("odd", 2, 7, dict(r=5, lora_alpha=3, target_modules=["lm_head", "embed_tokens"])),
    "whole_embed": ("odd", 2, 7, dict(r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    "whole_head": ("odd", 3, 6, dict(r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["lm_head", "layers.1.mlp"])),
    "dropout": ("gqa", 3, 10, dict(r=4, lora_alpha=6, lora_dropout=0.25, target_modules=[
        "embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"])),
}
CASES["phi3"] = ("phi3", 2, 9, dict(r=3, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj", "o_proj"], rank_pattern={"layers.1.self_attn.qkv_proj": 5}))
GPT2 = {"gpt2": dict(r=3, lora_alpha=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
        "dropout_gpt2": dict(r=4, lora_alpha=3, lora_dropout=0.3, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)}
BERT = dict(r=3, lora_alpha=4, target_modules=["word_embeddings", "query"])
HEADS = {  # on the batches of the bases' dumps: base, class, configuration
    "head_bert": ("bert_mlm", AutoModelForMaskedLM, dict(r=3, lora_alpha=4, target_modules=["decoder", "query"])),
    "head_pairs": ("bert_pretrain", AutoModelForPreTraining, dict(r=2, lora_alpha=3, target_modules=["decoder", "seq_relationship"], modules_to_save=["pooler.dense"])),
    "head_cls": ("bert_cls3", AutoModelForSequenceClassification, dict(r=2, lora_alpha=5, target_modules=["classifier", "value"], modules_to_save=["pooler.dense"])),
    "dropout_bert": ("bert_mlm_dropout", AutoModelForMaskedLM, dict(r=3, lora_alpha=4, lora_dropout=0.4, target_modules=["word_embeddings", "query", "dense", "decoder"])),
    "head_score": ("llama_score", AutoModelForSequenceClassification, dict(r=3, lora_alpha=2, target_modules=["score", "q_proj"])),
}
NAMES = {"tokens": "input_ids", "types": "token_type_ids", "mask": "attention_mask", "labels": "labels", "next_sentence": "next_sentence_label"}  # transformers' of a dump's


def trained(model):
    """The factors, and what is trained whole, by the names that PEFT's files have."""
    return {n.removesuffix(".default").replace(".default.", ".").replace(".modules_to_save.", "."): p for n, p in model.named_parameters() if p.requires_grad}


STACKS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"), "c_attn": ("c_attn.q", "c_attn.k", "c_attn.v")}


def stack_of(name):
    return next((s for s in STACKS if f".{s}." in name), None)


def apart(tensors, config):
    """The B of matrices that are several in Galaxy, cut into those of each."""
    out = {}
    for name, t in tensors.items():
        stack = stack_of(name)
        if not stack or ".lora_B." not in name:
            out[name] = t
            continue
        sizes = [t.shape[0] // len(STACKS[stack])] * len(STACKS[stack])
        if stack == "qkv_proj":
            head = config.hidden_size // config.num_attention_heads
            sizes = [config.num_attention_heads * head] + 2 * [config.num_key_value_heads * head]
        out |= {name.replace(stack, part): rows.contiguous() for part, rows in zip(STACKS[stack], t.split(sizes))}
    return out


def adapt(out, name, base, kind, config):
    """The base with factors that are not 0, saved as PEFT saves it."""
    seed("lora_" + name)
    attention = "eager_with_sites" if base == "bert_mlm_dropout" else "eager"  # make_bert_refs.py
    model = kind.from_pretrained(out / base, attn_implementation=attention, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ties, and of copies of embeddings
        model = get_peft_model(model, LoraConfig(**config))
        with torch.no_grad():
            for p in trained(model).values():
                p.copy_(0.2 * torch.randn_like(p))
        folder = out / f"lora_{name}"
        model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    said = json.loads((folder / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = f"data/ref/{base}"  # wherever the dumps are made
    if isinstance(said["target_modules"], list):
        said["target_modules"].sort()  # a set, whose order changes
    (folder / "adapter_config.json").write_text(json.dumps(said, indent=2) + "\n")
    return model, folder


def units_of(names):
    """The tensors of the base, unit by unit."""
    embedding = [n for n in names if ".embed" in n or n.split(".")[1] in ("wte", "wpe")]
    layers = [n for n in names if re.search(r"\.(layers?|h)\.\d+\.", n)]
    depth = 1 + max(int(re.search(r"\.(layers?|h)\.(\d+)\.", n).group(2)) for n in layers)
    return [embedding, *([n for n in layers if re.search(rf"\.(layers?|h)\.{l}\.", n)] for l in range(depth)), [n for n in names if n not in embedding and n not in layers]]


def drop(model, dropout):
    """Hands PEFT the masks of each factor A, whose sites are returned by its name."""
    base, p = model.get_base_model(), next(iter(model.peft_config.values())).lora_dropout
    names = [n.replace(".base_layer", "") for n in base.state_dict() if ".lora_" not in n]
    sites, row = {}, 0
    for unit in units_of(names):
        row += sum(len(STACKS.get(stack_of(n), "1")) for n in unit)
        for name in unit:
            module = base.get_submodule(name.rpartition(".")[0])
            if name.endswith(".weight") and hasattr(module, "lora_dropout"):
                kind = "lora_A.weight" if module.lora_A else "lora_embedding_A"
                module.lora_dropout["default"] = Site(dropout, SITE_LORA | row, p)
                sites[f"site.base_model.model.{name.removesuffix('weight')}{kind}"] = torch.tensor(row)
                row += 1 + len(STACKS.get(stack_of(name), "1"))
    return dict(seed=dropout.seed, step=dropout.step, first_sample=dropout.first_sample, **sites)


def dump_of(model, loss_and_logits, dropout=None):
    loss, logits = loss_and_logits()
    loss.backward()
    grads = {n: p.grad.clone() for n, p in trained(model).items()}
    said = gradients_of(grads)
    dump = dict(loss=loss, logits=logits, grad_norm=said.pop("grad_norm"), **apart(said, model.config))
    first = dropout.step if dropout else 0

    def before(k):
        if dropout:
            dropout.step = first + k

    dump.update(apart(steps_of(trained(model), lambda: loss_and_logits()[0], before), model.config))
    return dump


def make(out, name):
    base, B, T, config = CASES[name]
    model, folder = adapt(out, name, f"llama_{base}", AutoModelForCausalLM, dict(task_type="CAUSAL_LM", **config))
    tokens, labels = text_of(model.config.vocab_size, B, T)
    dropout = Dropout(20261123, 4, 9, T) if "lora_dropout" in config else None
    said = drop(model.train(), dropout) if dropout else {}
    save(folder / "ref.safetensors", dict(tokens=tokens, labels=labels, **said, **dump_of(model, lambda: loss_of(model, tokens, labels), dropout)))


def make_bert(out):
    model, folder = adapt(out, "embed_bert", "bert_mlm", AutoModelForMaskedLM, BERT)
    batch = {n: t.long() for n, t in load_file(out / "bert_mlm/ref.safetensors").items() if n in ("tokens", "types", "mask", "labels")}
    batch["tokens"][:, 2] = model.config.pad_token_id

    def loss_and_logits():
        got = model(input_ids=batch["tokens"], token_type_ids=batch["types"], attention_mask=batch["mask"], labels=batch["labels"])
        return got.loss, got.logits

    save(folder / "ref.safetensors", dict(tokens=batch["tokens"], **dump_of(model, loss_and_logits)))


def make_gpt2(out, name):
    model, folder = adapt(out, name, "gpt2_odd", AutoModelForCausalLM, dict(task_type="CAUSAL_LM", **GPT2[name]))
    dump = load_file(out / "gpt2_odd/ref.safetensors")
    tokens, labels = dump["tokens"].long(), dump["labels"].long()
    dropout = Dropout(20261123, 4, 9, tokens.shape[1]) if "lora_dropout" in GPT2[name] else None
    said = drop(model.train(), dropout) if dropout else {}

    def loss_and_logits():
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)), logits

    save(folder / "ref.safetensors", dict(**said, **dump_of(model, loss_and_logits, dropout)))


def make_head(out, name):
    base, kind, config = HEADS[name]
    model, folder = adapt(out, name, base, kind, config)
    dump = load_file(out / base / "ref.safetensors")
    batch = {NAMES[n]: t.long() for n, t in dump.items() if n in NAMES}

    def loss_and_logits():
        got = model(**batch)
        return got.loss, got.prediction_logits if "next_sentence_label" in batch else got.logits

    dropout, said = None, {}
    if "lora_dropout" in config:
        dropout = Dropout(*(int(dump[n]) for n in ("seed", "step", "first_sample")), dump["tokens"].shape[1])
        said = drop(model.train(), dropout)
        put_sites(model.get_base_model(), dropout)
    save(folder / "ref.safetensors", dict(**said, **dump_of(model, loss_and_logits, dropout)))


if __name__ == "__main__":
    folder = out_folder(__doc__)
    for name in CASES:
        make(folder, name)
    make_bert(folder)
    for name in HEADS:
        make_head(folder, name)
    for name in GPT2:
        make_gpt2(folder, name)
