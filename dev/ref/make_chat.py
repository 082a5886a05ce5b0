"""Makes the references of conversations: templates of our own in the usual formats, and what transformers' apply_chat_template makes
of some conversations with them.

    python dev/ref/make_chat.py OUT.jsonl

A line for each format: its name, the template, and cases: turns, whether the model is to think, and the text up to where it answers.
"""
import json
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

CHATML = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN25 = """{%- if messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}""" + CHATML

QWEN3 = """{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"""

LLAMA3 = """{{- bos_token }}{% for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA31 = """{{- bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' + system + '<|eot_id|>' }}
{%- for m in rest %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA2 = """{%- set ns = namespace(system='') %}
{%- if messages[0].role == 'system' %}{% set ns.system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{- bos_token + '[INST] ' + (ns.system + m.content) | trim + ' [/INST]' }}{% set ns.system = '' %}
{%- elif m.role == 'assistant' %}{{- ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"""


def mistral(begin, end, before_answer, last, trim=""):
    """The system's text stands before the first user's text, or the last one."""
    return ("{%- set ns = namespace(system='', left=messages | selectattr('role', 'equalto', 'user') | list | length) %}"
            "{%- if messages[0].role == 'system' %}{% set ns.system = messages[0].content + '\\n\\n' %}{% endif %}"
            "{{- bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
            "{{- '" + begin + "' }}{% set ns.left = ns.left - 1 %}"
            "{%- if " + ("ns.left == 0" if last else "true") + " %}{{- ns.system }}{% set ns.system = '' %}{% endif %}"
            "{{- m.content + '" + end + "' }}"
            "{%- elif m.role == 'assistant' %}{{- '" + before_answer + "' + m.content" + trim + " + eos_token }}{% endif %}{% endfor %}")


TEMPLATES = {"chatml": CHATML, "qwen2.5": QWEN25, "qwen3": QWEN3, "llama3": LLAMA3, "llama3.1": LLAMA31, "llama2": LLAMA2,
             "mistral": mistral("[INST] ", " [/INST]", "", False), "mistral-v1": mistral(" [INST] ", " [/INST]", " ", False),
             "mistral-v3": mistral("[INST] ", "[/INST]", " ", True, " | trim"), "mistral-tekken": mistral("[INST]", "[/INST]", "", True)}

LONG = [("user", "What is a ship? "), ("assistant", "\n<think>\nThey ask\nof ships.\n</think>\n\nIt swims. "), ("user", "  And \u00e9t\u00e9?\n")]
CASES = [LONG[:1], LONG, [("system", "Be short.")] + LONG[:1], [("system", "Be short.")] + LONG,
         [("system", "S")] + LONG + [("assistant", "Summer."), ("user", "Thanks")],
         [("system", " Be. \n"), ("user", "\n\u00a0 Hi\u3000\n")]]


def main(path):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    with open(path, "w") as out:
        for name, template in TEMPLATES.items():
            tokenizer.bos_token = "<|begin_of_text|>" if name.startswith("llama3") else "<s>"
            tokenizer.eos_token = "</s>"
            cases = []
            for thinking in (True, False) if name == "qwen3" else (True,):
                for turns in CASES:
                    messages = [{"role": role, "content": text} for role, text in turns]
                    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True,
                                                         **({"enable_thinking": False} if not thinking else {}))
                    cases.append({"turns": turns, "thinking": thinking, "text": text})
            out.write(json.dumps({"name": name, "template": template, "cases": cases}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
