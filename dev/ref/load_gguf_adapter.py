"""Lets llama.cpp run GGUF files of a model and of a LoRA adapter, and compares it with peft and with Galaxy.

    pip install --target DIR --no-deps xllamacpp==2026.10.11549
    PYTHONPATH=DIR python dev/ref/load_gguf_adapter.py --programs FOLDER [--count 40] [--seed 1]

FOLDER has train_llama, generate_llama, merge_adapter and convert_gguf. Of tiny models that train_llama makes (LLaMA with a head of its own and with a tied
one, Qwen2, Qwen3; bytes are their tokens) peft makes adapters with random values, rsLoRA, rank_pattern and alpha_pattern. convert_gguf converts the model and
the adapter, and the model that merge_adapter makes of both. llama.cpp has to give, of random prompts, the log-probabilities of peft with the first two files
and with the third, and the text of `generate_llama --adapter --temperature 0`. Where convert_gguf refuses, the adapter is on one of two tied matrices, or
trains a module whole. Not a part of `make refs`: xllamacpp is there for few platforms.
Prints one line that begins with "ok", or says what is wrong and exits with 1.
"""
import argparse
import collections
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import torch

# Relative L2 of log-probabilities: fp32 sums in another order; factors that are rounded to a type, with scales up to 8.
BOUND = {"f32": 2e-6, "f16": 2e-3, "bf16": 1e-2}
VOCAB = 256
NAMES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ENDS = 11  # the token at which llama.cpp ends a text of bytes
SMALL = "--max_steps 20 --seq_len 64 --micro_batch_size 4 --hidden_size 64 --num_hidden_layers 3 --num_attention_heads 4 --num_key_value_heads 2 --intermediate_size 96 --learning_rate 3e-3"
BASES = {"llama": "llama", "llama_tied": "llama --tie_word_embeddings true", "qwen2": "qwen2", "qwen3": "qwen3 --head_dim 24"}


def check(ok, message):
    if not ok:
        sys.exit(f"load_gguf_adapter.py: {message}")


def ask(model, adapter):
    """In a process of its own: llama.cpp's answers to the prompts of the standard input."""
    import xllamacpp as x

    p = x.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers, p.warmup, p.verbosity, p.cpuparams.n_threads = model, 64, 1, 0, False, 0, 1
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F32
    if adapter:
        p.lora_adapters = [x.CommonAdapterLoraInfo(adapter, 1.0)]
    server = x.Server(p)
    answers = []
    for prompt in json.load(sys.stdin):

        def tokens(**more):
            got = server.handle_completions(dict(prompt=prompt, temperature=0, cache_prompt=False, **more))
            got = json.loads(got) if isinstance(got, str) else got
            return (got["choices"][0]["logprobs"] or dict(content=[]))["content"]

        first = [0.0] * VOCAB
        # it goes on with a space, since it tells nothing of the bytes of a longer character; the log-probabilities are those before that
        for one in tokens(n_predict=1, n_probs=VOCAB, logit_bias=[[32, 1000.0]])[0]["top_logprobs"]:
            first[one["id"]] = one["logprob"]
        answers.append(dict(first=first, ids=[c["id"] for c in tokens(n_predict=12, n_probs=1)]))
    print("ANSWERS" + json.dumps(answers))


def of_llama_cpp(prompts, model, adapter=""):
    done = subprocess.run([sys.executable, __file__, "--ask", model, adapter], input=json.dumps(prompts), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    check(lines, f"llama.cpp does not run {model} {adapter}: {(done.stdout + done.stderr)[-1500:]}")
    return json.loads(lines[0].removeprefix("ANSWERS"))


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr.strip()


def need(*command):
    code, out, said = run(*command)
    check(code == 0, f"{' '.join(map(str, command))}: {said}")
    return out


def draw(r, is_tied):
    o = dict(r=r.choice([1, 2, 4, 8]), lora_alpha=r.choice([1, 4, 8]), use_rslora=r.random() < 0.4, task_type="CAUSAL_LM")
    o["target_modules"] = r.sample(NAMES, r.randint(1, 7))
    if r.random() < 0.35:
        o["target_modules"].append(r.choice(["embed_tokens", "lm_head"]))
    if r.random() < 0.1:
        o["modules_to_save"] = [r.choice(["norm", "embed_tokens", "lm_head"])]
    keys = [*o["target_modules"], r"layers\.[01]\..*", r".*\.2\..*", "self_attn.q_proj", f"model.layers.1.self_attn.{r.choice(NAMES[:4])}"]
    if r.random() < 0.5:
        o["rank_pattern"] = {k: r.randint(1, 9) for k in sorted(r.sample(keys, 2))}
    if r.random() < 0.5:
        o["alpha_pattern"] = {k: r.choice([1, 2.5, 0.3, 6]) for k in sorted(r.sample(keys, 2))}
    if r.random() < 0.3:
        o["layers_to_transform"] = [0, 2]
    if r.random() < 0.3:
        o["exclude_modules"] = [r.choice(["layers.1.self_attn.q_proj", "o_proj"])]
    named = {*o["target_modules"], *o.get("modules_to_save", [])}
    refuses = "modules_to_save" in o or (is_tied and named & {"embed_tokens", "lm_head"} and ("lm_head" in named or "layers_to_transform" not in o))
    return o, bool(refuses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    disable_progress_bar(), set_verbosity_error()
    torch.set_num_threads(1)
    r, worst, counts = random.Random(args.seed), collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        bases = {}
        for name, flags in BASES.items():
            need(args.programs / "train_llama", "--model_type", *flags.split(), "--tokenizer", "bytes", "--train_data", "docs/tuning.md", *SMALL.split(), "--sample_tokens", 0, "--output_dir", folder / name)
            bases[name] = folder / name / "checkpoint-20"
            need(args.programs / "convert_gguf", "--model", bases[name], "--output_file", folder / f"{name}.gguf", "--outtype", "f32")
        while counts["same"] + counts["refused"] < args.count:
            name = r.choice(list(BASES))
            options, refuses = draw(r, name == "llama_tied")
            adapter, file, merged = folder / "adapter", folder / "adapter.gguf", folder / "merged"
            for path in (file, folder / "merged.gguf"):
                path.unlink(missing_ok=True)
            run("rm", "-rf", adapter, merged)

            def load():
                return AutoModelForCausalLM.from_pretrained(bases[name], dtype=torch.float32, attn_implementation="eager")

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(r.randrange(10**6))
                try:
                    model = get_peft_model(load(), LoraConfig(**options))
                except ValueError:  # nothing is left of the targets
                    continue
                for p in model.parameters():
                    if p.requires_grad:
                        p.data += 0.2 * torch.randn_like(p)
                model.save_pretrained(adapter)
                model = PeftModel.from_pretrained(load(), adapter).eval()
            outtype = r.choice(["f32", "f32", "f16", "bf16"])
            code, out, said = run(args.programs / "convert_gguf", "--adapter", adapter, "--output_file", file, "--outtype", outtype)
            if refuses or code:
                check(refuses and code and ("trained whole" in said or "ties its head" in said), f"{name} {options}: refused: {refuses}, and convert_gguf: {out}{said}")
                counts["refused"] += 1
                continue
            need(args.programs / "merge_adapter", "--adapter", adapter, "--output_dir", merged)
            need(args.programs / "convert_gguf", "--model", merged, "--output_file", folder / "merged.gguf", "--outtype", "f32")
            texts = ["".join(r.choice("abcdefghij klmnop ") for _ in range(r.randint(3, 20))) for _ in range(3)]
            prompts = [list(text.encode()) for text in texts]
            with torch.no_grad():
                right = [model(input_ids=torch.tensor([p]), use_cache=False).logits[0, -1].double().log_softmax(-1) for p in prompts]
                with model.disable_adapter():
                    plain = model(input_ids=torch.tensor([prompts[0]]), use_cache=False).logits[0, -1].double().log_softmax(-1)
            check((plain - right[0]).norm() > 1e-4 * right[0].norm(), f"{name} {options}: without the adapter it is the same")
            for kind, of, answers in ((outtype, "with the adapter", of_llama_cpp(prompts, str(folder / f"{name}.gguf"), str(file))), ("f32", "merged", of_llama_cpp(prompts, str(folder / "merged.gguf")))):
                for answer, want, text in zip(answers, right, texts):
                    off = ((torch.tensor(answer["first"]).double() - want).norm() / want.norm()).item()
                    worst[kind] = max(worst[kind], off)
                    check(off <= BOUND[kind], f"{name} {options}: {of}, {kind}: log-probabilities are {off:.2g} away")
                    if kind != "f32" or not answer["ids"]:
                        continue
                    ours = json.loads(need(args.programs / "generate_llama", "--adapter", adapter, "--prompt", text, "--max_new_tokens", 12, "--temperature", 0, "--json"))
                    ids = list(itertools.takewhile(lambda i: i < 128 and i != ENDS, ours["ids"]))
                    check(ids == answer["ids"][: len(ids)], f"{name} {options}: {of}: llama.cpp goes on with {answer['ids']}, generate_llama with {ours['ids']}")
                    counts["texts"] += 1
            counts["same"] += 1
            counts["folded"] += "lora_b of" in out
    off = ", ".join(f"{kind} {worst[kind]:.1g}" for kind in BOUND)
    print(f"ok: {counts['same']} adapters in llama.cpp are peft's (log-probabilities {off} apart), of {counts['folded']} an alpha is in lora_b; {counts['texts']} texts are generate_llama's; {counts['refused']} are refused")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(*sys.argv[2:])
    else:
        main()
