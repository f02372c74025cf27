#!/usr/bin/env python3
"""make_template_cases.py - what jinja2 makes of templates: one JSON object a line for test_template.c.

usage: make_template_cases.py > test/data/templates/cases.jsonl

The templates are in cases.txt beside it. Each line has one and what it gives with VARIABLES (the first line):
`rendered`, or the `error` that raise_exception() raises, or `fails` with Python's exception where anything else
goes wrong. The reference is jinja2 3.1.6 as transformers 5.23 sets it up, taken from transformers itself; the day is
26 July 2024. What auk refuses by name (integers beyond 64 bits, tags that read other templates) is not among them,
nor what Python prints with an address."""

import datetime
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

CASES = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates" / "cases.txt"

VARIABLES = {
    "messages": [
        {"role": "user", "content": "Hi <b>"},
        {"role": "assistant", "content": "Yo é中ß"},
        {"role": "tool", "content": None, "n": 3},
    ],
    "n": 5,
    "f": 2.5,
    "s": "Hello World",
    "l": [3, 1, 2],
    "d": {"b": 1, "a": [1, {"x": None}], "items": 7},
    "none": None,
    "t": True,
    "e": "",
    "u": "straße ǆ ﬁ ΣΑΣ İ",
    "huge": 18446744073709551615,
}

def strftime_now(format):
    return datetime.datetime(2024, 7, 26).strftime(format)


def render(text):
    try:
        template = chat_template_utils._cached_compile_jinja_template(text)
        template.globals["strftime_now"] = strftime_now
        return {"rendered": template.render(**VARIABLES)}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"error": error.message}
        return {"fails": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is the reference
        return {"fails": f"{type(error).__name__}: {error}"}


def templates():
    whole = False
    for line in CASES.read_text(encoding="utf-8").strip("\n").split("\n"):
        if line.startswith(("# expressions", "# templates")):
            whole = line.startswith("# templates")
        else:
            text = line.replace("⏎", "\n")
            yield text if whole else "{{ " + text + " }}"


def main():
    print(json.dumps({"variables": VARIABLES}))
    for text in templates():
        result = render(text)
        assert " at 0x" not in str(result), text
        print(json.dumps({"template": text, **result}))


if __name__ == "__main__":
    main()
