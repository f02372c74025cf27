#!/usr/bin/env python3
"""Prints parts of models.md from what the program is made of, each between two marks of its name:

  architectures   the lines of `auk inspect --architectures` (AUK, else build/auk, is the program): of each architecture
                  its name, a model_type that does not follow from it, and the models
  formulas        the first paragraphs of the comments of src/model/operations.def
  tensors         the rows of src/model/tensors.def
                  Of both without OPERATIONS_LEFT_OUT and LEFT_OUT, which one family has, or drafters.

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
OPERATIONS_LEFT_OUT = {"draft_embed", "add_ngrams", "mix_for_attention", "mix_for_mlp", "inject_streams",
                       "predict_streams", "correct_streams", "add_laurel", "begin_loop"}
LEFT_OUT = re.compile(r"ple\.|altup|laurel\.|.*hyper_connection|self_attn\.indexer\.|mlp\.act_fn\.|"
                      r"mlp\.suv_|self_attn\.(sqk|s_gate)|.*logit_scale|"
                      r"fc$|fc_norm|hidden_norm|post_projection|pre_fc_norm")


def architectures():
    program = shlex.split(os.environ.get("AUK", str(ROOT / "build/auk")))
    lines = subprocess.run([*program, "inspect", "--architectures"], check=True, capture_output=True, text=True).stdout
    rows = [re.split(r"  +", line) for line in lines.splitlines()[1:]]
    names = [name for name, *_ in rows]
    texts = [(f"{name} ({kind})" if names.index(name) != i else name, models)
             for i, (name, kind, part, models) in enumerate(rows) if part == "-"]
    own = [(name, models) for name, _, part, models in rows if part != "-" and " " not in part]
    any_text = [(name, models) for name, _, part, models in rows if " " in part]
    return [*columns(texts), "", "Models of several parts, with a text part of their own:", "", *columns(own), "",
            "Models of several parts, whose text part is any of the first list:", "", *columns(any_text)]


def columns(rows):
    """Rows of two or three texts, one below the other; neighbours whose last texts are alike become one."""
    for i in range(len(rows) - 1, 0, -1):
        if rows[i][1:] == rows[i - 1][1:]:
            rows[i - 1:i + 1] = [(f"{rows[i - 1][0]}, {rows[i][0]}", *rows[i][1:])]
    widths = [max(len(text) for text in texts) for texts in zip(*rows)]
    return ["```", *("  ".join(text.ljust(n) for text, n in zip(row, widths)).rstrip() for row in rows), "```"]


def formulas():
    """Each operation's name, what it reads and writes, and what its comment begins with."""
    text = (MODEL / "operations.def").read_text().split("/* clang-format off */")[1]
    out = ["```"]
    names = dict(re.findall(r"^OPERATION\((\w+), (\w+),", text, re.M))
    row = r"/\*((?:(?!\*/).)*)\*/\s*OPERATION\(\w+, (\w+), ([^,]*), ([^)]*)\)"
    for comment, name, reads, writes in re.findall(row, text, re.S):
        if name in OPERATIONS_LEFT_OUT:
            continue
        sets = [", ".join(registers.lower().split(" | ")) for registers in (reads, writes)]
        out += [f"{name:<24}{sets[0]} -> {sets[1]}"]
        comment = re.sub(r"\b[A-Z_]+\b", lambda word: names.get(word[0], word[0]), comment.split("\n *\n")[0].strip())
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
    return name.strip('"') + suffix, shape, words.strip('"')


def tensors():
    layer, model = [], []
    for _, _, name, words, _, n_out, n_in, *_ in rows("LINEAR"):
        layer.append(line(name, "", f"{size(n_in)} → {size(n_out)}", words))
    for _, member, words, n_out, n_in, _ in rows("EXPERT_LINEAR"):
        layer.append(line(f"mlp.experts.E.{member}_proj", "", f"{size(n_in)} → {size(n_out)}", words))
    for _, _, name, words, kind, _, n, taps, *_ in rows("VECTOR"):
        shape = f"[{size(n)}]" if taps == "ONE" else f"[{size(n)}, 1, {size(taps)}]"
        layer.append(line(name, ".weight" if kind == "NORM" else "", shape, words))
    for _, _, count, name, words, n_out, n_in, *_ in rows("MODEL_LINEAR"):
        model.append(line(name, "" if count == "ONE" else ".I", f"{size(n_in)} → {size(n_out)}", words))
    for _, _, name, _, words, n_rows, n_columns in rows("MODEL_TABLE"):
        model.append(line(name, ".weight", f"[{size(n_rows)}, {size(n_columns)}]", words))
    for _, _, count, name, words, kind, n, *_ in rows("MODEL_VECTOR"):
        suffix = ("" if count == "ONE" else ".I") + (".weight" if kind == "NORM" else "")
        model.append(line(name, suffix, f"[{size(n)}]", words))
    layer, model = ([row for row in rows if not LEFT_OUT.match(row[0])] for rows in (layer, model))
    return ["Names of a layer's tensors follow `model.layers.L.`:", "", *columns(layer), "",
            "Beside the layers, names follow `model.`; `lm_head` stands alone:", "", *columns(model)]


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
