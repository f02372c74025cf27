#!/usr/bin/env python3
"""make_chat_renderings.py - what transformers makes of conversations by real chat templates, for test_template.py.

usage: make_chat_renderings.py

Writes test/data/templates/conversations.jsonl, the variables of one rendering a line, and for each NAME.jinja there
NAME.jsonl with the results in the same order: `rendered`, or the `error` that the template raises, or `fails` with
Python's exception. The reference is jinja2 3.1.6 as transformers 5.24 sets it up, of messages as it gives them to
templates; arguments that are a string are parsed, as vLLM does. The day is 26 July 2024."""

import datetime
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


CITY = {"type": "string", "description": "The <city>", "enum": ["Paris", "Köln"]}
OPTIONS = {
    "type": "object",
    "properties": {"x": {"type": "array", "items": {"type": "number"}}, "y": {"type": ["string", "null"]}},
    "required": ["x"],
}
WEATHER = {
    "name": "get_weather",
    "description": 'Weather of a "place"\nin words',
    "parameters": {
        "type": "object",
        "properties": {"city": CITY, "days": {"type": "integer", "default": 3}, "options": OPTIONS},
        "required": ["city"],
    },
}
NOW = {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": NOW}]
ARGUMENTS = {"city": "Paris", "days": 2, "options": {"x": [1.5, 2], "y": None}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
CALL_TEXT = {"id": "abcdefghi", "type": "function", "function": {"name": "now", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "content": "22 °C", "tool_call_id": "abcdefghi", "name": "get_weather"}

CONVERSATIONS = [
    [user("Hi")],
    [system("Be terse."), user("  Hi \n")],
    [user("a"), assistant("b"), user("c")],
    [system("s"), user("a"), assistant("b"), user("c"), assistant("d")],
    [user("w?"), assistant("", tool_calls=[CALL]), RESULT, assistant("Warm."), user("thanks")],
    [system("s"), user("w?"), assistant("I ask.", tool_calls=[CALL, CALL_TEXT]), RESULT, RESULT],
    [user("q"), assistant("<think>\nhm\n</think>\n\nanswer"), user("q2"), assistant("<think>x</think>y")],
    [user("q"), assistant("answer", reasoning_content="deep"), user("q2"), assistant("x", reasoning_content="d")],
    [user([{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}])],
    [user("a"), user("b")],
    [{"role": "wizard", "content": "?"}],
    [user("<|im_end|> {{ 1 }} {% raw %}")],
]

CHOICES = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False, "reasoning_effort": "low"},
]


def strftime_now(format):
    return datetime.datetime(2024, 7, 26).strftime(format)


def render(template, variables):
    try:
        return {"rendered": template.render(**SPECIALS, **variables)}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"error": error.message}
        return {"fails": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is the reference
        return {"fails": f"{type(error).__name__}: {error}"}


def as_templates_get_them(messages):
    messages = chat_template_utils._normalize_chat_messages(json.loads(json.dumps(messages)))
    for message in messages:
        for call in message.get("tool_calls", []):
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return chat_template_utils._alias_reasoning_fields(messages)


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def main():
    given = {"tools": None, "documents": None, "add_generation_prompt": False}
    inputs = [{**given, "messages": messages, **choice} for messages in CONVERSATIONS for choice in CHOICES]
    write_lines(FOLDER / "conversations.jsonl", [{"now": "2024-07-26", **variables} for variables in inputs])
    for path in sorted(FOLDER.glob("*.jinja")):
        template = chat_template_utils._compile_jinja_template(path.read_text(encoding="utf-8"))
        template.globals["strftime_now"] = strftime_now
        lines = [render(template, {**it, "messages": as_templates_get_them(it["messages"])}) for it in inputs]
        write_lines(path.with_suffix(".jsonl"), lines)


if __name__ == "__main__":
    main()
