"""Chat templates that differ from the usual formats in one thing each, and others after public models' formats: what transformers makes
of conversations with them (make_chat_refs.py writes it down).

Each template has {% generation %} around what the assistant says and the token that ends it; without these two words it is the template
of a folder. What is learned is the same for both.
"""
import datetime
import re

from transformers.utils import chat_template_utils

G, E = "{% generation %}", "{% endgeneration %}"
TODAY = datetime.datetime(2026, 3, 5, 12)  # of strftime_now
PROMPT = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"


def chatml(before="", text="m['content']", names="m['role']", foot="'\\n'", end="'<|im_end|>'", prompt=PROMPT, glue="'\\n'", system=None):
    """One of ChatML's kin; `system` stands for the head of a system's turn, where it has another."""
    head = f"'<|im_start|>' + {names} + {glue}"
    if system is not None:
        head = f"({system} if m['role'] == 'system' else {head})"
    return (before + "{%- for m in messages %}{{- " + head + " }}{%- if m['role'] == 'assistant' %}" + G + "{{- " + text + " + " + end + " }}" + E +
            "{{- " + foot + " }}{%- else %}{{- " + text + " + " + end + " + " + foot + " }}{%- endif %}{%- endfor %}" + prompt)


def default_system(text):
    return "{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\\n" + text + "<|im_end|>\\n' }}{%- endif %}"


def llama3(before, text):
    return (before + "{%- for m in rest | default(messages) %}{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
            "{%- if m['role'] == 'assistant' %}" + G + "{{- " + text + " + '<|eot_id|>' }}" + E + "{%- else %}{{- " + text + " + '<|eot_id|>' }}{%- endif %}"
            "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}")


LLAMA32 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}
{%- for m in rest %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}{% else %}{% set content = m['content'] %}{% endif %}
{%- if m['role'] == 'user' %}{{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif m['role'] == 'assistant' %}""" + G + """{{- ' ' + content.strip() + ' ' + eos_token }}""" + E + """{% endif %}{% endfor %}"""

MISTRAL1 = """{{- bos_token }}{% for m in messages %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- if m['role'] == 'user' %}{{- '[INST] ' + m['content'] + ' [/INST]' }}
{%- elif m['role'] == 'assistant' %}""" + G + """{{- m['content'] + eos_token }}""" + E + """{{- ' ' }}
{%- else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""

MISTRAL3 = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        """ + G + """{{- " " + message["content"]|trim + eos_token }}""" + E + """
    {%- endif %}
{%- endfor %}
"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' }}""" + G + """{{ message['content'] + eos_token }}""" + E + """{{ '\\n' }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' }}{% if role == 'model' %}""" + G + """{{ message['content'] | trim + '<end_of_turn>' }}""" + E + """{{ '\\n' }}{% else %}{{ message['content'] | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

PHI3 = """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n'}}""" + G + """{{ message['content'] + '<|end|>' }}""" + E + """{{ '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

# A prompt that begins the thoughts, which earlier answers stand without.
DEEPSEEK = """{% set ns = namespace(system='') %}{%- for m in messages %}{%- if m['role'] == 'system' %}{% set ns.system = m['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}
{%- for m in messages %}{%- if m['role'] == 'user' %}{{ '<User>' + m['content'] }}
{%- elif m['role'] == 'assistant' %}{% set content = m['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<Assistant>' }}""" + G + """{{ content + '<end>' }}""" + E + """{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<Assistant><think>\\n' }}{% endif %}"""

QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' }}""" + G + """
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<|im_end|>' }}""" + E + """
        {{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

VICUNA = """{%- for m in messages %}{%- if m['role'] == 'system' %}{{- m['content'] + ' ' }}{%- elif m['role'] == 'user' %}{{- 'USER: ' + m['content'].strip() + ' ' }}
{%- else %}{{- 'ASSISTANT:' }}""" + G + """{{- ' ' + m['content'].strip() + eos_token }}""" + E + """{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}"""

LLAMA = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
# name: the template, the special tokens, and whether their tokenizer has all that ends a turn
VARIANTS = {
    "chatml, bos in front": (chatml(before="{{- bos_token }}"), {"bos_token": "<s>", "eos_token": "<|im_end|>"}, True),
    "chatml, trim": (chatml(text="m['content'] | trim"), {}, True),
    "chatml, strip": (chatml(text="m['content'].strip()"), {"eos_token": "</s>"}, True),
    "chatml, no newline behind": (chatml(foot="''"), {}, True),
    "chatml, other roles": (chatml(names="{'system': 'system', 'user': 'human', 'assistant': 'gpt'}[m['role']]",
                                   prompt=PROMPT.replace("assistant", "gpt")), {}, True),
    "chatml, bare system": (chatml(system="''"), {}, True),
    "chatml, eos_token": (chatml(end="eos_token"), {"eos_token": "</s>"}, True),
    "chatml, prompt without its newline": (chatml(glue="''", text="'\\n' + m['content']", prompt=PROMPT.replace("\\n", "")), {}, True),
    "chatml, <|im_sep|>": (chatml(glue="'<|im_sep|>'", foot="''", prompt=PROMPT.replace("\\n", "<|im_sep|>")), {}, True),
    "chatml, two newlines": (chatml(foot="'\\n\\n'"), {}, True),
    "smollm2": (chatml(before=default_system("You are a helpful AI assistant named SmolLM, trained by Hugging Face")), {}, True),
    "qwen2": (chatml(before=default_system("You are a helpful assistant.")), {}, True),
    "qwen3": (QWEN3, {"eos_token": "<|im_end|>"}, True),
    "llama3, without bos": (llama3("", "m['content'] | trim"), LLAMA, True),
    "llama3, without trim": (llama3("{{- bos_token }}", "m['content']"), LLAMA, True),
    "llama3.2": (llama3(LLAMA32, "m['content'] | trim"), LLAMA, True),
    "llama2": (LLAMA2, {"bos_token": "<s>", "eos_token": "</s>"}, True),
    "mistral v0.1": (MISTRAL1, {"bos_token": "<s>", "eos_token": "</s>"}, True),
    "mistral v0.3": (MISTRAL3, {"bos_token": "<s>", "eos_token": "</s>"}, True),
    "zephyr": (ZEPHYR, {"bos_token": "<s>", "eos_token": "</s>"}, True),
    "vicuna": (VICUNA, {"bos_token": "<s>", "eos_token": "</s>"}, True),
    "gemma": (GEMMA, {"bos_token": "<bos>", "eos_token": "<eos>"}, False),
    "phi3": (PHI3, {"bos_token": "<s>", "eos_token": "<|endoftext|>"}, False),
    "deepseek": (DEEPSEEK, {"bos_token": "<bos>", "eos_token": "<end>"}, False),
}

USER = [{"role": "user", "content": " What is a ship?\n"}, {"role": "user", "content": "And \u00e9t\u00e9? "}]
SAYS = [{"role": "assistant", "content": "<think>\nThey ask.\n</think>\n\nIt swims. "}, {"role": "assistant", "content": " Summer, (12) in French\u2026"}]
SYSTEM = {"role": "system", "content": " Be short. "}
CONVERSATIONS = [[USER[0], SAYS[0]], [USER[0], SAYS[0], USER[1], SAYS[1]], [SYSTEM, USER[1], SAYS[1]], [SYSTEM, USER[0], SAYS[1], USER[1], SAYS[0]]]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return TODAY


chat_template_utils.datetime = Clock


def plain(template):
    return template.replace(G, "").replace(E, "")


def render(template, tokens, messages, prompt=False, **more):
    """The text, and the bytes of the generation blocks."""
    texts, blocks = chat_template_utils.render_jinja_template([messages], chat_template=template, add_generation_prompt=prompt,
                                                              return_assistant_tokens_mask=not prompt, **tokens, **more)
    chars = blocks[0] if blocks else []
    return texts[0], [[len(texts[0][:i].encode()) for i in span] for span in chars]


def documents(template, tokens, messages):
    """Texts with what is learned: the whole, or one for each answer, the last one learned, if the whole has not each as it stood."""
    first = messages[0]["role"] == "system"
    assert render(template, tokens, messages)[0] == render(plain(template), tokens, messages)[0]
    parts = [render(template, tokens, messages[:n]) for n in range(first + 2, len(messages) + 1, 2)]
    whole, spans = parts[-1]
    for text, blocks in parts:
        end = blocks[-1][1]
        if whole.encode()[:end] != text.encode()[:end] or blocks[-1] not in spans:
            return [{"text": text, "learned": blocks[-1:]} for text, blocks in parts]
    return [{"text": whole, "learned": spans}]


def prompt_keeps(template, tokens, messages):
    """What is before the answer is as in the prompt."""
    for n in range((messages[0]["role"] == "system") + 2, len(messages) + 1, 2):
        prompt = render(plain(template), tokens, messages[:n - 1], True)[0]
        text, blocks = render(template, tokens, messages[:n])
        if not prompt.encode().startswith(text.encode()[:blocks[-1][0]]):
            return False
    return True


def lines(tokenizers):
    """What is written down; tokenizers: name, and one of transformers with these special tokens."""
    for name, (template, tokens, has_tokens) in VARIANTS.items():
        assert plain(template) == re.sub(r"\{% (end)?generation %\}", "", template)
        out = {"name": name, "template": template, "variables": tokens, "has_tokens": has_tokens, "conversations": []}
        for messages in CONVERSATIONS:
            case = {"messages": messages}
            try:
                case["prompts"] = [render(template, tokens, messages[:n], True)[0] for n in range(1, len(messages)) if messages[n - 1]["role"] == "user"]
                case["documents"] = documents(template, tokens, messages)
                case["keeps"] = prompt_keeps(template, tokens, messages)
            except Exception as e:  # raise_exception
                case = {"messages": messages, "refused": str(e)}
            for kind, make in tokenizers if has_tokens and "documents" in case else ():
                tokenizer = make(tokens)
                for d in case["documents"]:
                    both = tokenizer(d["text"], add_special_tokens=False, return_offsets_mapping=True)
                    learned = []
                    for begin, end in d["learned"]:
                        chars = [len(d["text"].encode()[:i].decode()) for i in (begin, end)]
                        learned.append([both.char_to_token(chars[0]), both.char_to_token(chars[1] - 1) + 1])
                    d[kind] = {"ids": both["input_ids"], "learned": learned}
            out["conversations"].append(case)
        yield out
