"""Compares which matrices peft and Galaxy train for the same target_modules: lists, regular expressions, all-linear.

    python dev/ref/lora_targets.py --llama DIR --bert DIR --texts FILE --pairs FILE

The folders hold models that Galaxy saved (of a causal language model, and of masked tokens); FILEs are what `train_bert` takes for masked_lm and
embedding. ./train_llama and ./train_bert train one step of each case and save their adapters, whose names are those of peft's own; and peft's
adapters of the same cases are read by Galaxy, which saves them again, to the bit. Prints one line that begins with "ok", or says what is wrong and
exits with 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils.logging import disable_progress_bar

LLAMA = [["q_proj", "v_proj"], r".*\.1\..*[qv]_proj", r"model\.layers\.\d+\.mlp\.(up|down)_proj$", r"(?!.*\.0\.)model.*(k|o)_proj", r".*layers\.[^0]\D*proj", "all-linear", ["embed_tokens", "q_proj"], r".*(embed_tokens|v_proj)", ["lm_head", "q_proj"], r"lm_head|.*v_proj", ["lm_head", "embed_tokens"]]
BERT = [["query", "value"], r".*\.0\..*(key|query)", r".*layer\.\d\.output\.dense", "all-linear", ["word_embeddings", "query"]]
MASKED = [["decoder", "query"], ["cls.predictions.decoder", "word_embeddings"], r".*decoder"]


def check(ok, message):
    if not ok:
        sys.exit(f"lora_targets.py: {message}")


def galaxy(program, *flags):
    done = subprocess.run([program, "--threads", "1", "--seq_len", "32", "--max_steps", "1", "--overwrite_output_dir", "true", *map(str, flags)], capture_output=True, text=True)
    check(done.returncode == 0, f"{program} {flags}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("llama", "bert", "texts", "pairs"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    args = parser.parse_args()
    disable_progress_bar()
    llama = ["./train_llama", "--sample_tokens", "0"]
    masked = ["./train_bert", "--task", "masked_lm", "--train_data", args.texts]
    vectors = ["./train_bert", "--task", "embedding", "--train_data", args.pairs]
    cases = [(AutoModelForCausalLM, args.llama, llama, t) for t in LLAMA]
    cases += [(AutoModelForMaskedLM, args.bert, masked, t) for t in BERT + MASKED] + [(AutoModel, args.bert, vectors, t) for t in BERT]
    tensors = 0
    for kind, base, command, targets in cases:
        model = get_peft_model(kind.from_pretrained(base), LoraConfig(r=3, target_modules=targets))
        with torch.no_grad():
            for p in model.parameters():
                if p.requires_grad:
                    p.copy_(0.1 * torch.randn_like(p))
        theirs = {n: t for n, t in get_peft_model_state_dict(model, save_embedding_layers=False).items() if kind is not AutoModel or ".pooler." not in n}
        with tempfile.TemporaryDirectory() as folder:
            folder, said = pathlib.Path(folder), ",".join(targets) if isinstance(targets, list) else targets
            galaxy(*command, "--model", base, "--tuning", "lora", "--r", 3, "--target_modules", said, "--output_dir", folder / "own")
            own = load_file(folder / "own/checkpoint-1/adapter_model.safetensors")
            check(set(own) == set(theirs), f"{kind.__name__}, {targets}: {sorted(set(own) ^ set(theirs))} are one's alone")
            model.save_pretrained(folder / "peft")
            config = folder / "peft/adapter_config.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | {"target_modules": targets}))
            galaxy(*command, "--adapter", folder / "peft", "--learning_rate", 0, "--output_dir", folder / "read")
            read = load_file(folder / "read/checkpoint-1/adapter_model.safetensors")
            check(set(read) == set(theirs) and all(torch.equal(read[n], theirs[n]) for n in read), f"{kind.__name__}, {targets}: not read as it was")
        tensors += len(own)
    print(f"ok: {len(cases)} target_modules, {tensors} tensors of the same names")


if __name__ == "__main__":
    main()
