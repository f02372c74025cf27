#!/usr/bin/env python3
"""Prints parts of models.md from what the program is made of, each between two marks of its name:

  architectures   the lines of `auk inspect --architectures` (AUK, else build/auk, is the program)
  formulas        the comments of src/model/operations.def
  tensors         the rows of src/model/tensors.def

  scripts/models_page.py           writes them into models.md
  scripts/models_page.py --check   fails if models.md has others
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "src/model"


def architectures():
    program = shlex.split(os.environ.get("AUK", str(ROOT / "build/auk")))
    lines = subprocess.run([*program, "inspect", "--architectures"], check=True, capture_output=True, text=True).stdout
    rows = [re.split(r"  +", line) for line in lines.splitlines()[1:]]
    texts = [f"| `{name}` | `{kind}` | {models} |" for name, kind, part, models in rows if part == "-"]
    parts = [f"| `{name}` | {part if ' ' in part else f'`{part}`'} | {models} |"
             for name, _, part, models in rows if part != "-"]
    return ["| `architectures` | `model_type` | models |", "|---|---|---|", *texts, "",
            "Models of several parts, whose text alone is computed:", "",
            "| `architectures` | text part | models |", "|---|---|---|", *parts]


def formulas():
    """Each operation's name, what it reads and writes, and its comment."""
    text = (MODEL / "operations.def").read_text().split("/* clang-format off */")[1]
    out = ["```"]
    names = dict(re.findall(r"^OPERATION\((\w+), (\w+),", text, re.M))
    row = r"/\*((?:(?!\*/).)*)\*/\s*OPERATION\(\w+, (\w+), ([^,]*), ([^)]*)\)"
    for comment, name, reads, writes in re.findall(row, text, re.S):
        sets = [", ".join(registers.lower().split(" | ")) for registers in (reads, writes)]
        out += [f"{name:<24}{sets[0]} -> {sets[1]}"]
        comment = re.sub(r"\b[A-Z_]+\b", lambda word: names.get(word[0], word[0]), comment.strip())
        out += [re.sub(r"^ \*", "   ", line).rstrip() for line in (" * " + comment).split("\n")]
    return out + ["```"]


def arguments(text):
    """The arguments of a row, whose strings may hold commas."""
    return [a.strip() for a in re.findall(r'"[^"]*"|[^,"]+(?:\([^)]*\))?[^,"]*', text) if a.strip()]


def rows(macro):
    """The arguments of each row of a macro of tensors.def."""
    text = (MODEL / "tensors.def").read_text().split("/* clang-format off */")[1]
    return [arguments(row) for row in re.findall(rf'^{macro}\(((?:"[^"]*"|\((?:[^()]*)\)|[^()"])*)\)', text, re.M)]


def size(width):
    return width.lower().replace("_", " ")


def line(name, suffix, shape, words):
    return f"| `{name.strip(chr(34))}{suffix}` | {shape} | {words.strip(chr(34))} |"


def tensors():
    head = ["| tensor | size | |", "|---|---|---|"]
    out = ["Names of a layer's tensors follow `model.layers.L.`:", "", *head]
    for _, _, name, words, _, n_out, n_in, *_ in rows("LINEAR"):
        out.append(line(name, "", f"{size(n_in)} → {size(n_out)}", words))
    for _, _, name, words, kind, _, n, taps, *_ in rows("VECTOR"):
        shape = f"[{size(n)}]" if taps == "ONE" else f"[{size(n)}, 1, {size(taps)}]"
        out.append(line(name, ".weight" if kind == "NORM" else "", shape, words))
    out += ["", "Beside the layers, names follow `model.`; `lm_head` stands alone:", "", *head]
    for _, _, count, name, words, n_out, n_in, *_ in rows("MODEL_LINEAR"):
        out.append(line(name, "" if count == "ONE" else ".I", f"{size(n_in)} → {size(n_out)}", words))
    for _, _, count, name, words, kind, n, *_ in rows("MODEL_VECTOR"):
        suffix = ("" if count == "ONE" else ".I") + (".weight" if kind == "NORM" else "")
        out.append(line(name, suffix, f"[{size(n)}]", words))
    return out


def main():
    path = ROOT / "models.md"
    made = text = path.read_text()
    for part in (architectures, formulas, tensors):
        begin, end = f"<!-- {part.__name__}: scripts/models_page.py -->", f"<!-- end of {part.__name__} -->"
        before, _, rest = made.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            sys.exit(f"models.md has no {begin} with {end}")
        made = before + "\n".join([begin, "", *part(), "", end]) + after
    if sys.argv[1:] != ["--check"]:
        path.write_text(made)
    elif made != text:
        sys.exit("models.md is not what the program and src/model's tables say: run scripts/models_page.py")


if __name__ == "__main__":
    main()
