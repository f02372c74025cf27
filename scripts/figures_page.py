#!/usr/bin/env python3
"""Prints the tables of FIGURES.md, and README.md's table and plot of speeds, from scripts/figures/*.csv.

  scripts/figures_page.py           writes them into the pages, between the marks, and figures/speed.svg
  scripts/figures_page.py --check   fails if a page or the plot has others

A file is one table; a row has what was measured, the date, a commit (FIGURES.md says which), the
card, the command, and the values. A command of several rows stands once below the table. The marks:

  <!-- figures: NAME -->                     all rows, and the date, card and command
  <!-- figures: NAME: one row; another -->   these rows alone, without that
  <!-- end of figures -->
"""
import csv
import pathlib
import re
import string
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ["README.md", "scripts/FIGURES.md"]
PLOT, COLOURS = "scripts/figures/speed.svg", ["#2f6f9f", "#b8b8b8"]
HOW = ["date", "commit", "card", "command"]
MARKS = re.compile(r"(<!-- figures: ([\w-]+)(?:: ([^>]*?))? -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def read(name):
    """The columns of a table but HOW, and its rows as dictionaries."""
    with open(ROOT / "scripts/figures" / f"{name}.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values() or not row["date"] or not row["command"]:
            sys.exit(f"scripts/figures/{name}.csv:{number}: expected a value in each column, a date and a command")
    return [column for column in rows[0] if column not in HOW], rows


def how(row):
    command = row["command"] if row["command"].startswith("(") else f"`{row['command']}`"
    return ", ".join(part for part in (row["date"], row["card"], command) if part)


def table(name, only):
    columns, rows = read(name)
    if only:
        by_name = {row[columns[0]]: row for row in rows}
        missing = [one for one in only if one not in by_name]
        if missing:
            sys.exit(f"scripts/figures/{name}.csv has no row {missing[0]}")
        rows = [by_name[one] for one in only]
    hows = [] if only else list(dict.fromkeys(map(how, rows)))
    letters = dict(zip(hows, string.ascii_letters)) if len(hows) > 1 else {}
    right = [all(re.fullmatch(r"[-\d.,e%\\*]*", row[column]) for row in rows) for column in columns]
    cells = [["" if columns[0] == "what" else columns[0], *columns[1:]], ["---:" if it else "---" for it in right]]
    cells += [[row[column] for column in columns] for row in rows]
    if letters:
        for line, letter in zip(cells, ["", "---"] + [letters[how(row)] for row in rows]):
            line.append(letter)
    lines = ["| " + " | ".join(line) + " |" for line in cells] + [""] * bool(hows)
    return "\n".join(lines + [f"- {letters[one]}: {one}" if letters else f"Repeated by: {one}" for one in hows]) + "\n"


def plot():
    """The rows of speed.csv that have two numbers, as pairs of bars: as long as each is of the larger."""
    columns, rows = read("speed")
    pairs = [(row["what"], *(row[column].strip("*\\") for column in columns[1:])) for row in rows if row[columns[2]]]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{44 * len(pairs) + 40}" '
           'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="#fff"/>']
    for i, label in enumerate(columns[1:]):
        out += [f'<rect x="{270 + 90 * i}" y="12" width="12" height="12" fill="{COLOURS[i]}"/>',
                f'<text x="{288 + 90 * i}" y="23">{label}</text>']
    for line, (what, *texts) in enumerate(pairs):
        values = [float(text.replace(",", "")) for text in texts]
        out.append(f'<text x="258" y="{62 + 44 * line}" text-anchor="end">{what}</text>')
        for i, (text, value) in enumerate(zip(texts, values)):
            width, y = round(400 * value / max(values)), 40 + 44 * line + 16 * i
            out += [f'<rect x="270" y="{y}" width="{width}" height="14" fill="{COLOURS[i]}"/>',
                    f'<text x="{276 + width}" y="{y + 12}">{text}</text>']
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    printed = {match[2] for text in pages.values() for match in MARKS.finditer(text)}
    for path in sorted((ROOT / "scripts/figures").glob("*.csv")):
        if path.stem not in printed:
            sys.exit(f"scripts/figures/{path.name}: no page prints it")
    made = {name: MARKS.sub(lambda m: m[1] + table(m[2], m[3].split("; ") if m[3] else None) + m[4], text)
            for name, text in pages.items()}
    made[PLOT] = plot()
    for name, text in made.items():
        path = ROOT / name
        if sys.argv[1:] != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is not what scripts/figures give: run scripts/figures_page.py")


if __name__ == "__main__":
    main()
