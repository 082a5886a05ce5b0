"""Makes the references of conversations that a model is trained on: their texts, ids and which tokens are learned, as transformers
has them.

    python dev/ref/make_chat_refs.py [--out data/ref/chat_train]

Writes  byte_level.json, metaspace.json   two small BPE tokenizers, as Qwen, LLaMA-3 and as LLaMA-2, Mistral have them
        first.json                        the second one, but a space before the first word of a text alone (LLaMA-2's, not legacy)
        expected.jsonl                    a line for each format, tokenizer and conversation: what Galaxy reads, and the documents that
                                          it should make of it: text, ids, learned (a list of [begin, end) of tokens)
        variants.jsonl                    a line for each template of make_chat_variants.py: conversations, the texts of their prompts, and
                                          their documents: text, learned (of bytes), and of two tokenizers ids, learned (of tokens)

Masks are those of apply_chat_template(..., return_assistant_tokens_mask=True): the templates of make_chat.py with {% generation %}
around what the assistant says and the token that ends it. Where a format writes earlier turns otherwise than the last one, each
answer is a document, of which the last answer alone is learned. Alpaca's text is tokenized as transformers tokenizes any text, and
its mask follows from the places of characters.
"""
import argparse
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import make_chat
import make_chat_variants
from make_bpe import LLAMA3

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
INSTRUCTION = ["[INST]", "[/INST]"]  # tokens of Mistral's v3 and Tekken, characters before

G, E = "{% generation %}", "{% endgeneration %}"
CHATML = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}""" + G + """{{- m.content + '<|im_end|>' }}""" + E + """{{- '\\n' }}
{%- else %}{{- m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"""
QWEN25 = make_chat.QWEN25.split("{%- endif %}")[0] + "{%- endif %}" + CHATML
QWEN3 = """{%- for m in messages %}
{%- set ns = namespace(text=m.content, thoughts='') %}
{%- if m.role == 'assistant' and '</think>' in m.content %}
{%- set ns.text = m.content.split('</think>')[-1].lstrip('\\n') %}
{%- set ns.thoughts = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and loop.last %}""" + G + """{{- '<think>\\n' + ns.thoughts.strip('\\n') + '\\n</think>\\n\\n' + ns.text.lstrip('\\n') + '<|im_end|>' }}""" + E + """{{- '\\n' }}
{%- else %}{{- ns.text + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}"""


def llama3(template):
    """The turns of the template, an assistant's marked."""
    turn = "'<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    marked = ("'<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}{% if m.role == 'assistant' %}" + G +
              "{{- m.content | trim + '<|eot_id|>' }}" + E + "{% else %}{{- m.content | trim + '<|eot_id|>' }}{% endif %}")
    assert template.count(turn) == 1
    return template.replace(turn, marked)


def instructions(template):
    """Those with [INST]: the assistant's branch is marked."""
    head, tail = template.split("{%- elif m.role == 'assistant' %}")
    at = tail.index("{% endif %}")
    return head + "{%- elif m.role == 'assistant' %}" + G + tail[:at] + E + tail[at:]


TEMPLATES = {"chatml": CHATML, "qwen2.5": QWEN25, "qwen3": QWEN3, "llama3": llama3(make_chat.LLAMA3), "llama3.1": llama3(make_chat.LLAMA31)}
TEMPLATES.update({name: instructions(make_chat.TEMPLATES[name]) for name in ("llama2", "mistral", "mistral-v1", "mistral-v3", "mistral-tekken")})

SYSTEM = {"role": "system", "content": "Be short, and kind."}
TURNS = [{"role": "user", "content": "What is a ship? "}, {"role": "assistant", "content": "\n<think>\nThey ask\nof ships.\n</think>\n\nIt swims. "},
         {"role": "user", "content": "  And \u00e9t\u00e9?\n"}, {"role": "assistant", "content": "\nSummer, (12) in French\u2026"},
         {"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "<think>\n\n</think>\n\nYou're welcome!"}]
CONVERSATIONS = [TURNS[:2], [SYSTEM] + TURNS[:2], TURNS[:4], [SYSTEM] + TURNS[:4], [SYSTEM] + TURNS, TURNS[2:]]
INSTRUCTIONS = [{"instruction": "Add the numbers.", "input": "1 and 2", "output": "3"}, {"instruction": "Sing a song", "input": "", "output": " La\nla"},
                {"instruction": "Say it: (a)", "output": "(a) :)"}]


# Formats whose earlier turns change: each answer has a text of its own.
def rewrites(name, messages):
    return name == "qwen3" or (name in ("mistral-v3", "mistral-tekken") and messages[0]["role"] == "system")


def texts():
    for messages in CONVERSATIONS:
        yield from (m["content"] for m in messages)
    for record in INSTRUCTIONS:
        yield alpaca(record)[0]
    yield "user assistant system Cutting Knowledge Date: December 2023 Today Date: 26 Jul 2024 [INST] [/INST] <<SYS>>\n\n<</SYS>>\n\n"


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(__import__("tokenizers").Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL + INSTRUCTION, show_progress=False,
                                                       initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])
    return t


def metaspace():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=["<unk>"] + SPECIAL + [f"<0x{b:02X}>" for b in range(256)], show_progress=False)
    t.train_from_iterator(texts(), trainer)
    # bytes are pieces, not special tokens
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(state))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def first():
    state = json.loads(metaspace().to_str())
    state["normalizer"] = None
    t = Tokenizer.from_str(json.dumps(state))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    return t


def spans(mask):
    out = []
    for i, bit in enumerate(mask):
        if bit and (i == 0 or not mask[i - 1]):
            out.append([i, i + 1])
        elif bit:
            out[-1][1] = i + 1
    return out


def document(tokenizer, template, messages):
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    both = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    learned = spans(both["assistant_masks"])
    assert learned, text
    return {"text": text, "ids": both["input_ids"], "learned": learned}


def documents(tokenizer, name, messages):
    first = messages[0]["role"] == "system"
    if not rewrites(name, messages):
        return [document(tokenizer, TEMPLATES[name], messages)]
    made = [document(tokenizer, TEMPLATES[name], messages[:n]) for n in range(first + 2, len(messages) + 1, 2)]
    for d in made:
        d["learned"] = d["learned"][-1:]
    return made


def alpaca(record):
    """The text, and where the answer begins."""
    paired = ", paired with an input that provides further context" if record.get("input") else ""
    prompt = (f"Below is an instruction that describes a task{paired}. Write a response that appropriately completes the request.\n\n"
              f"### Instruction:\n{record['instruction']}\n\n")
    prompt += f"### Input:\n{record['input']}\n\n" if record.get("input") else ""
    prompt += "### Response:"
    return prompt + record["output"], len(prompt)


def alpaca_document(tokenizer, record):
    text, begin = alpaca(record)
    both = tokenizer(text, return_offsets_mapping=True)
    mask = [end > begin and end > start for start, end in both["offset_mapping"]]
    return {"text": text, "ids": both["input_ids"] + [tokenizer.eos_token_id], "learned": spans(mask + [True])}


def made_tokenizer(made):
    return lambda tokens: PreTrainedTokenizerFast(tokenizer_object=made, **tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/ref/chat_train"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "variants.jsonl", "w") as variants:
        for line in make_chat_variants.lines([(kind, made_tokenizer(make())) for kind, make in (("byte_level", byte_level), ("metaspace", metaspace))]):
            variants.write(json.dumps(line) + "\n")
    with open(out / "expected.jsonl", "w") as expected:
        for kind, make in (("byte_level", byte_level), ("metaspace", metaspace), ("first", first)):
            made = make()
            (out / f"{kind}.json").write_text(json.dumps(json.loads(made.to_str()), ensure_ascii=False, separators=(",", ":")))
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")
            for name, template in TEMPLATES.items():
                tokenizer.bos_token = "<|begin_of_text|>" if name.startswith("llama3") else "<s>"
                for messages in CONVERSATIONS:
                    expected.write(json.dumps({"format": name, "tokenizer": kind, "record": {"messages": messages},
                                               "documents": documents(tokenizer, name, messages)}) + "\n")
            tokenizer.bos_token = "<s>"
            for record in INSTRUCTIONS:
                expected.write(json.dumps({"format": "", "tokenizer": kind, "record": record, "documents": [alpaca_document(tokenizer, record)]}) + "\n")


if __name__ == "__main__":
    main()
