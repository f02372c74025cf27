#!/usr/bin/env python3
"""Prints models.md's list of tensors from the tables of src/model: tensors.def, names.c, architectures.c.

  scripts/tensors_page.py           writes it into models.md, between the two marks
  scripts/tensors_page.py --check   fails if models.md has another one
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "src/model"
BEGIN, END = "<!-- printed by scripts/tensors_page.py -->", "<!-- end of what is printed -->"


def arguments(text):
    """The arguments of a row, whose strings may hold commas."""
    return [a.strip() for a in re.findall(r'"[^"]*"|[^,"]+(?:\([^)]*\))?[^,"]*', text) if a.strip()]


def rows(macro):
    """The arguments of each row of a macro of tensors.def."""
    text = (MODEL / "tensors.def").read_text().split("/* clang-format off */")[1]
    return [arguments(row) for row in re.findall(rf'^{macro}\(((?:"[^"]*"|\((?:[^()]*)\)|[^()"])*)\)', text, re.M)]


def other_names():
    """Names of families that differ: by slot, in the order of the tables."""
    found = collections.defaultdict(list)
    names = (MODEL / "names.c").read_text()
    shared = re.findall(r'\{ LAYER_(\w+), +OF_SHARED \+ \(as\), 0, prefix "([^"]+)"', names)
    prefixes = re.findall(r'SHARED\(SHARED_\w+, +"([^"]+)"\)', names)
    for slot, end in shared:
        found[slot] += [prefix + end for prefix in prefixes]
    members = dict((m, s) for s, m in re.findall(r"\{ (?:LAYER|MODEL)_(\w+), +\w+, +OWN\((\w+)\)", names))
    for slot, name in re.findall(r'\{ (?:LAYER|MODEL)_(\w+), +\w+, +0, "([^"]+)"', names):
        found[slot].append(name)
    architectures = (MODEL / "config/architectures.c").read_text()
    for member, name in re.findall(r'\.(\w+) = "([^"]+)"', architectures):
        if member in members and ("." in name or member.endswith("norm")):  # experts' own names have no dot
            found[members[member]].append(name)
    return found


def size(width):
    return width.lower().replace("_", " ")


def page():
    others = other_names()

    def line(slot, name, shape, words, suffix=""):
        name = name.strip('"')
        more = [n for n in dict.fromkeys(others[slot]) if n != name]
        also = ", ".join(f"`{n}`" for n in more)
        return f"| `{name}{suffix}` | {shape} | {words.strip(chr(34))} | {also} |"

    head = ["| tensor | size | | in other families |", "|---|---|---|---|"]
    out = [BEGIN, "", "Names of a layer's tensors follow `model.layers.L.`:", ""] + head
    for slot, _, name, words, _, n_out, n_in, *_ in rows("LINEAR"):
        out.append(line(slot, name, f"{size(n_in)} → {size(n_out)}", words))
    for slot, _, name, words, kind, _, n, taps, *_ in rows("VECTOR"):
        shape = f"[{size(n)}]" if taps == "ONE" else f"[{size(n)}, 1, {size(taps)}]"
        out.append(line(slot, name, shape, words, ".weight" if kind == "NORM" else ""))
    out += ["", "Beside the layers, names follow `model.`; `lm_head` stands alone:", ""] + head
    for slot, _, count, name, words, n_out, n_in, *_ in rows("MODEL_LINEAR"):
        out.append(line(slot, name, f"{size(n_in)} → {size(n_out)}", words, "" if count == "ONE" else ".I"))
    for slot, _, count, name, words, kind, n, *_ in rows("MODEL_VECTOR"):
        suffix = ("" if count == "ONE" else ".I") + (".weight" if kind == "NORM" else "")
        out.append(line(slot, name, f"[{size(n)}]", words, suffix))
    return "\n".join(out + ["", END])


def main():
    path = ROOT / "models.md"
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = before + page() + after
    if sys.argv[1:] == ["--check"]:
        if made != text:
            sys.exit("models.md's list of tensors is not that of src/model: run scripts/tensors_page.py")
        return
    path.write_text(made)


if __name__ == "__main__":
    main()
