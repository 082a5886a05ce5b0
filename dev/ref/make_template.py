"""Makes the references of chat templates: what transformers renders of the templates in dev/ref/chat_templates (our own, in the usual formats)
with generated conversations, and what its Jinja2 makes of short snippets.

    python dev/ref/make_template.py OUT_FOLDER

rendered.jsonl: a line for each template; for each conversation (the template's variables: messages, tools, …); then for each template a line
of what it gives for each conversation: bytes and FNV-1a hash of the text, the text itself where it is short, the spans of {% generation %}
(in bytes), or the exception. snippets.jsonl: the variables of all, then a line each: the snippet, and its text, or null where Jinja2 fails.
The clock stands at 2025-07-26 12:00:00 UTC.
"""
import json
import os
import pathlib
import random
import sys
import time
from datetime import datetime

os.environ["TZ"] = "UTC"
time.tzset()
NOW = 1753531200
CONVERSATIONS, SHORT = 60, 60

from transformers.utils import chat_template_utils as hf  # noqa: E402


class Clock(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW)


hf.datetime = Clock
here = pathlib.Path(__file__).parent
rng = random.Random(20260521)

# ---- conversations
TEXTS = ["", " ", "\n", "Hello", "  What is a ship? ", "It swims.\n", "\n\nlines\n\nand lines\n", "été, naïve façade", "日本語のテキスト", "emoji 😀👩‍🚀 and ñ",
         'He said "no" & <b>left</b>', "it's a back\\slash \\n", "a\ttab", "{{ not.a.template }} {% if %}", "<think>\nThey ask.\n</think>\n\nA ship floats.",
         "<think></think>nothing", "half a thought</think> then", "/no_think please", "/think about it", "1 < 2 > 0", "\u00a0no-break\u00a0", "zero\u200bwidth",
         "<tool_response>x</tool_response>", "long " * 30, "Ünïcödé " * 8, "</s> [INST] <|im_end|>", "trailing   ", "\r\nwindows\r\n", "\x7f\x01 control"]
SCHEMAS = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string", "description": "Which city, e.g. \"Köln\""}}, "required": ["city"]},
    {"type": "object", "required": ["where", "days"], "properties": {
        "where": {"type": "object", "description": "A place", "properties": {"lat": {"type": "number", "description": "N"}, "lon": {"type": "number", "description": "E"}},
                  "required": ["lat"], "additionalProperties": {"type": "string"}},
        "days": {"type": ["integer", "null"], "description": "How many <days> & 'nights'"},
        "units": {"type": "string", "enum": ["°C", "°F", None], "description": "Units"},
        "tags": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "boolean", "description": "b"}}}, "description": "Tags"},
        "Zeta": {"type": "array", "items": {"type": "string"}, "description": "last"}}},
]
ARGUMENTS = [{}, {"city": "Köln"}, {"where": {"lat": 50.94, "lon": 6.96}, "days": 3, "units": None}, {"x": [1, 2.5, True, None, "\"quoted\"", {"y": []}]},
             {"big": 123456789012, "small": 1e-7, "large": 1e22, "neg": -0.0}, '{"already": "text"}']


def text():
    return rng.choice(TEXTS) if rng.random() < 0.8 else rng.choice(TEXTS) + rng.choice(TEXTS)


def tool(i):
    f = {"name": rng.choice(["get_weather", "search", "f"]) + str(i), "description": rng.choice(["", "Gets it.", "Sucht \"alles\"\nund mehr"]), "parameters": SCHEMAS[i % 3]}
    return {"type": "function", "function": f}


def parts():
    return [rng.choice([{"type": "text", "text": text()}, {"type": "image", "url": "x"}, {"type": "text", "text": text()}]) for _ in range(rng.randint(0, 3))] + [{"type": "text", "text": text()}]


def calls():
    return [{"id": rng.choice(["abcdefghi", "123456789", "short"]), "type": "function", "function": {"name": "get_weather%d" % i, "arguments": rng.choice(ARGUMENTS)}}
            for i in range(rng.choice([1, 1, 2]))]


def conversation(i):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": text()})
    for turn in range(rng.choice([1, 1, 2, 3, 4])):
        messages.append({"role": "user", "content": parts() if i % 8 == 5 else text()})
        if i % 6 == 3 and turn == 0:
            messages.append({"role": "assistant", "content": rng.choice(["", None, text()]), "tool_calls": calls()})
            for call in messages[-1]["tool_calls"]:
                messages.append({"role": "tool", "content": rng.choice(["21 °C", '{"t": 21}', text()]), "name": "get_weather", "tool_call_id": call["id"]})
        answer = {"role": "assistant", "content": text()}
        if i % 7 == 6:
            answer["reasoning_content"] = text()
        messages.append(answer)
    if rng.random() < 0.5:
        messages.pop()
    if i % 15 == 4:  # an order that many templates refuse
        rng.shuffle(messages)
    if i % 20 == 11:
        messages = messages[-1:]
    v = {"messages": hf._alias_reasoning_fields(messages), "tools": [tool(k) for k in range(rng.randint(1, 3))] if i % 3 == 0 else None, "documents": None,
         "add_generation_prompt": rng.random() < 0.5}
    if i % 4 != 1:
        v["bos_token"] = rng.choice(["<s>", "<|begin_of_text|>"])
    v["eos_token"] = rng.choice(["</s>", "<|eot_id|>"])
    if i % 5 == 2:
        v["enable_thinking"] = rng.random() < 0.3
    if i % 9 == 7:
        v["builtin_tools"] = ["code_interpreter", "get_weather0"]
        v["tools_in_user_message"] = False
    if i % 10 == 8:
        v["date_string"] = "1 Jan 1970"
        v["controls"] = {"length": "short", "originality": None}
        v["documents"] = [{"title": "t", "text": "x"}]
    return v


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return "%016x" % h


def render(template, variables):
    """(text, spans in bytes), or (None, the exception)"""
    try:
        compiled = hf._cached_compile_jinja_template(template)
        v = hf._plain_template_data(variables)
        result, spans = hf._render_with_assistant_indices(compiled_template=compiled, messages=v.pop("messages", None), tools=v.pop("tools", None),
                                                          documents=v.pop("documents", None), add_generation_prompt=v.pop("add_generation_prompt", False), **v)
    except Exception as e:
        return None, e
    return result, [len(result[:at].encode()) for span in spans for at in span]


def dump(value):
    return json.dumps(value, ensure_ascii=False) + "\n"


def write_rendered(path):
    templates = [(p.stem, p.read_text()) for p in sorted((here / "chat_templates").glob("*.jinja"))]
    conversations = [conversation(i) for i in range(CONVERSATIONS)]
    with open(path, "w") as out:
        for name, template in templates:
            out.write(dump({"template": name, "text": template}))
        for v in conversations:
            out.write(dump({"variables": v}))
        for name, template in templates:
            results = []
            for v in conversations:
                got, more = render(template, v)
                if got is None:  # what a template raises; of others the words are Python's
                    results.append({"raises": str(more)} if type(more).__name__ == "TemplateError" else {"fails": type(more).__name__})
                    continue
                result = {"hash": fnv(got.encode()), "bytes": len(got.encode())}
                if result["bytes"] <= SHORT:
                    result["text"] = got
                if more:
                    result["spans"] = more
                results.append(result)
            out.write(dump({"rendered": name, "results": results}))


# ---- snippets
VARIABLES = {"a": 1, "b": 2.5, "s": "Hello wörld", "l": [1, 2, 3], "d": {"x": 1, "y": [1, "é", None, True, 1.5e20], "items": 7}, "n": None, "t": True, "f": False,
             "e": "", "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo\n"}]}


def write_snippets(path):
    """Each line of expressions.txt is an expression, each part of statements.txt between lines of === a template."""
    expressions = (here / "chat_templates" / "expressions.txt").read_text().splitlines()
    statements = (here / "chat_templates" / "statements.txt").read_text().split("\n===\n")
    statements.append("a\r\nb\r{% if t %}\r\n  {{ '\r\n' }}c\r{% endif %}\r\n")  # which a text file would not keep
    with open(path, "w") as out:
        out.write(dump({"variables": VARIABLES}))
        for snippet in ["{{ %s }}" % e for e in expressions if e] + statements:
            got, more = render(snippet, VARIABLES)
            out.write(dump({"snippet": snippet, "text": got, **({"spans": more} if got is not None and more else {})}))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_rendered(folder / "rendered.jsonl")
    write_snippets(folder / "snippets.jsonl")
