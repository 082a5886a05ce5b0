"""What llama.cpp writes, greedily, with the weights of `make demo-chat` as F32: the tokens that the demo is held against.

    pip install llama-cpp-python==0.3.36
    ./convert_gguf --gguf build/demo-chat/*.gguf --output_dir FOLDER; ./convert_gguf --model FOLDER --output_file F32.gguf --outtype f32
    python dev/ref/make_demo_chat.py FOLDER F32.gguf > data/demo_chat.jsonl

A line of JSON for each prompt: "prompt", its ids by `tokenizers`, and the new ones, "ids". Fails where two tokens are so
near to each other that rounding might decide. Not a part of `make refs`: llama.cpp takes some ten minutes to compile.
"""
import json
import sys

import numpy as np
from llama_cpp import Llama
from tokenizers import Tokenizer

PROMPTS = ["<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
           "<|im_start|>user\nName three animals that can fly.<|im_end|>\n<|im_start|>assistant\n",
           "In the beginning God created"]
NEW, MARGIN = 24, 1e-3  # tokens; between the two largest logits, at least

folder, file = sys.argv[1:]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
end = json.load(open(f"{folder}/generation_config.json"))["eos_token_id"]
ends = end if isinstance(end, list) else [end]
for prompt in PROMPTS:
    # fp32 throughout: no flash attention, a cache of fp32
    model = Llama(file, n_ctx=128, n_batch=128, logits_all=True, verbose=False, flash_attn_type=0, type_k=0, type_v=0)
    before, ids = tokenizer.encode(prompt, add_special_tokens=False).ids, []
    model.eval(before)
    while len(ids) < NEW and not (ids and ids[-1] in ends):
        logits = np.array(model.scores[len(before) + len(ids) - 1], np.float64)
        second, first = np.sort(logits)[-2:]
        if first - second < MARGIN:
            sys.exit(f"make_demo_chat.py: {prompt!r}: the logits of token {len(ids)} are {first - second:.2g} apart")
        ids.append(int(logits.argmax()))
        model.eval(ids[-1:])
    print(json.dumps({"prompt": prompt, "prompt_ids": before, "ids": ids}))
