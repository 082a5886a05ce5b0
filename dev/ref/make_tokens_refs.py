"""Makes the references of tokens that are added: to tokenizers, by `tokenizers`, and to models, by transformers and PEFT.

    python dev/ref/make_tokens_refs.py [--out data/ref]

Writes, on the models that make_refs.py has made and the tokenizers that are committed:

    new_tokens/tokens.json      a list that has each form of a token
    new_tokens/expected.jsonl   {"tokenizer", "text", "ids"}: what add_tokens(list) makes of texts that have them
    lora_grown_NAME/            LoRA on a model whose vocabulary transformers has resized, as PEFT saves it: of one with a head of its own, whose matrices
                                adapter_config.json does not name (save_embedding_layers="auto"), and of one whose head is tied, with modules_to_save
        ref.safetensors         tokens [B,T], new ones among them, and logits [B,T,V], in float32
"""
import json
import random
import warnings

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import AddedToken, Tokenizer
from transformers import AutoModelForCausalLM

from make_refs import save, seed
from tuned_refs import out_folder

NEW = ["<q1>", {"content": "<|q2|>", "special": True}, {"content": "<LL>", "lstrip": True, "special": True}, {"content": "<RR>", "rstrip": True}, "qq word",
       {"content": "ÉQ", "normalized": True}, {"content": "<NN>", "special": True, "normalized": True},
       {"content": "<ln>", "lstrip": True, "rstrip": True, "normalized": False}, "Zürich Qk", "<q1>x"]
TOKENIZERS = ["bpe/byte_level.json", "bpe/byte_fallback.json", "wordpiece/tokenizer.json", "unigram/likely.json", "bpe/roberta.json"]
PARTS = ["<q1>", "<|q2|>", "<LL>", "<RR>", "qq word", "QQ word", "ÉQ", "éq", "<NN>", "<ln>", "Zürich Qk", "<q1>x", " ", "  ", "the ", "beginning God", "x", "42",
         ", ", "ZÜRICH QK", "été"]
ADAPTERS = {  # base, new tokens, configuration
    "plain": ("llama_gqa", 3, dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"])),
    "tied": ("llama_odd", 4, dict(r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
}


def write_tokens(folder):
    draw = random.Random(7)
    texts = ["<q1>", "a<LL>b", "the <LL> <ln>  of", "<RR>  x <q1>x"]
    texts += ["".join(draw.choice(PARTS) for _ in range(draw.randint(2, 10))) for _ in range(36)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.json").write_text(json.dumps(NEW, ensure_ascii=False, indent=1) + "\n")
    with open(folder / "expected.jsonl", "w") as out:
        for name in TOKENIZERS:
            tokenizer = Tokenizer.from_file(f"data/ref/{name}")
            tokenizer.add_tokens([AddedToken(t) if isinstance(t, str) else AddedToken(**t) for t in NEW])
            for text in texts:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                out.write(json.dumps({"tokenizer": f"data/ref/{name}", "text": text, "ids": ids}, ensure_ascii=False) + "\n")


def write_adapter(out, name, base, more, config):
    seed("lora_grown_" + name)
    model = AutoModelForCausalLM.from_pretrained(out / base, attn_implementation="eager", dtype=torch.float32)
    rows = model.config.vocab_size
    model.resize_token_embeddings(rows + more)
    with torch.no_grad():
        for part in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
            part[rows:] = 0.2 * torch.randn_like(part[rows:])
    model = get_peft_model(model, LoraConfig(**config))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.copy_(0.2 * torch.randn_like(p))
    model.eval()
    folder = out / f"lora_grown_{name}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    said = json.loads((folder / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = f"data/ref/{base}"  # wherever the dumps are made
    said["target_modules"].sort()  # a set, whose order changes
    (folder / "adapter_config.json").write_text(json.dumps(said, indent=2) + "\n")
    tokens = torch.randint(0, rows + more, (2, 6))
    tokens[0, :more] = torch.arange(rows, rows + more)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    save(folder / "ref.safetensors", {"tokens": tokens.int(), "logits": logits})


def main():
    out = out_folder(__doc__)
    warnings.simplefilter("ignore")  # of ties
    write_tokens(out / "new_tokens")
    for name, (base, more, config) in ADAPTERS.items():
        write_adapter(out, name, base, more, config)


if __name__ == "__main__":
    main()
