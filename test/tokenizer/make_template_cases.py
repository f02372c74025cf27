#!/usr/bin/env python3
"""make_template_cases.py - jinja2's results for templates: one JSON object a line, for test_template.c.

usage: make_template_cases.py

Writes test/data/templates/cases.jsonl from the templates in cases.txt beside it, and sweeps.jsonl.gz from those
of template_sweeps.py. Each line has one and what it gives with VARIABLES (the first line): `rendered`, or the `error`
that raise_exception() raises, or `fails` with Python's exception where anything else goes wrong. The reference is
jinja2 3.1.6 as transformers 5.23 sets it up, taken from transformers itself; the day is 26 July 2024. The
cases leave out what auk refuses by name (integers beyond 64 bits, tags that read other templates), and what Python
prints with an address."""

import datetime
import gzip
import json
import pathlib
import re

import jinja2
import template_sweeps
import transformers.utils.chat_template_utils as chat_template_utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"

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
    "given": [0, -0.0, 1e16, 1.5, 123456789012345680.0, 5e-324, 1e-5, -7, 9223372036854775807, -9223372036854775808,
              1e22, 0.1, 100000.0, 1e308],
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
            return {"error": str(error.message)}
        return {"fails": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is the reference
        return {"fails": f"{type(error).__name__}: {error}"}


def templates():
    whole = False
    for line in (FOLDER / "cases.txt").read_text(encoding="utf-8").strip("\n").split("\n"):
        if line.startswith(("# expressions", "# templates")):
            whole = line.startswith("# templates")
        else:
            text = line.replace("⏎", "\n")
            yield text if whole else "{{ " + text + " }}"


def is_refused_by_name(text, result):
    """Integers beyond 64 bits, complex numbers, and what Python prints with an address."""
    shown = str(result.get("rendered", ""))
    integers = re.findall(r"(?<![\w.])-?\d{19,}+(?![.e])", shown) if "'" not in text else []
    beyond = any(not -(2**63) <= int(integer) < 2**63 for integer in integers)
    address = re.search(r"0x[0-9a-f]{12}\b", str(result), re.IGNORECASE)
    return beyond or address or ("**" in text and re.search(r"\dj\)", shown))


def write_cases(name, texts, brief):
    lines = [json.dumps({"variables": VARIABLES})]
    for text in dict.fromkeys(texts):
        result = render(text)
        if is_refused_by_name(text, result):
            continue
        if brief and "fails" in result:
            result["fails"] = result["fails"].split(":")[0]
        lines.append(json.dumps({"template": text, **result}, ensure_ascii=not brief))
    text = ("\n".join(lines) + "\n").encode()
    (FOLDER / name).write_bytes(gzip.compress(text, 9, mtime=0) if name.endswith(".gz") else text)


def main():
    write_cases("cases.jsonl", templates(), False)
    write_cases("sweeps.jsonl.gz", template_sweeps.templates(), True)


if __name__ == "__main__":
    main()
