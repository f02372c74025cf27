#!/usr/bin/env python3
"""Prints the tables of FIGURES.md, README.md's table and the plots of speeds, and the times by which matmuls choose
their tiles, from scripts/figures/*.csv; and README.md's screens from scripts/figures/*.txt.

  scripts/figures_page.py           writes them into the pages, between the marks, figures/*.svg and tile_times.h
  scripts/figures_page.py --check   fails if a page or the plot has others

A file is one table; a row has what was measured, the date, a commit (FIGURES.md says which), the
card, the command, and the values. The marks:

  <!-- figures: NAME -->                     all rows, and below them the dates, the cards, and the
                                             command, or where rows have different ones a link to the file
  <!-- figures: NAME: one row; another -->   these rows alone, without that
  <!-- end of figures -->

A file that no page prints is named by one: [NAME.csv](figures/NAME.csv).
"""
import csv
import html
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ["README.md", "scripts/FIGURES.md"]
PLOT, CURVES = "scripts/figures/speed.svg", "scripts/figures/in-flight.svg"
COLOURS = ["#2f6f9f", "#b8b8b8", "#c8553d", "#588157", "#8e6c8a"]
TILES = "cuda/kernels/linear/tile_times.h"
HOW = ["date", "commit", "card", "command"]
MARKS = re.compile(r"(<!-- figures: ([\w-]+)(?:: ([^>]*?))? -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def read(name):
    """The columns of a table but HOW, and its rows as dictionaries."""
    with open(ROOT / "scripts/figures" / f"{name}.csv", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values() or not row["date"] or not row["command"]:
            sys.exit(f"scripts/figures/{name}.csv:{number}: expected a value in each column, a date and a command")
    return [column for column in reader.fieldnames if column not in HOW], rows


def how(name, rows):
    """When and where rows were measured, and their command, or where rows have different ones the file with them."""
    dates, cards, commands = (list(dict.fromkeys(row[it] for row in rows if row[it])) for it in HOW if it != "commit")
    when = min(dates) if len(dates) == 1 else f"{min(dates)} to {max(dates)}"
    if len(commands) > 1:
        return f"{'; '.join([when, *cards])}. Commands: [{name}.csv](figures/{name}.csv)."
    command = commands[0] if commands[0].startswith("(") else f"`{commands[0]}`"
    return f"Repeated by: {', '.join([when, *cards, command])}"


def table(name, only):
    columns, rows = read(name)
    if only:
        by_name = {row[columns[0]]: row for row in rows}
        missing = [one for one in only if one not in by_name]
        if missing:
            sys.exit(f"scripts/figures/{name}.csv has no row {missing[0]}")
        rows = [by_name[one] for one in only]
    right = [all(re.fullmatch(r"[-\d.,e%\\*]*", row[column]) for row in rows) for column in columns]
    cells = [["" if columns[0] == "what" else columns[0], *columns[1:]], ["---:" if it else "---" for it in right]]
    cells += [[row[column] for column in columns] for row in rows]
    lines = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join(lines + ([] if only else ["", how(name, rows)])) + "\n"


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


def curves():
    """The rows of in-flight.csv as lines over the numbers of the header; both axes are logarithmic."""
    columns, rows = read("in-flight")
    number = lambda text: math.log2(float(text.replace(",", "")))
    xs, top, bottom = [number(column) for column in columns[1:]], number("32,768"), number("128")
    across = lambda x: round(70 + 470 * (x - xs[0]) / (xs[-1] - xs[0]))
    up = lambda y: round(340 - 310 * (y - bottom) / (top - bottom))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="390" font-family="sans-serif" font-size="13">',
           '<rect width="100%" height="100%" fill="#fff"/>',
           '<text x="305" y="380" text-anchor="middle">answers at once</text>',
           '<text x="10" y="18">answer tokens a second</text>']
    for column, x in zip(columns[1:], xs):
        out.append(f'<text x="{across(x)}" y="360" text-anchor="middle">{column}</text>')
    for power in range(round(bottom), round(top) + 1, 2):
        out += [f'<path d="M70 {up(power)}h470" stroke="#ddd"/>',
                f'<text x="62" y="{up(power) + 4}" text-anchor="end">{2 ** power:,}</text>']
    ends = sorted(rows, key=lambda row: -number(row[columns[-1]]))
    for row, colour in zip(rows, COLOURS):
        points = " ".join(f"{across(x)},{up(number(row[column]))}" for x, column in zip(xs, columns[1:]))
        label = 45 + 20 * ends.index(row)
        out += [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
                f'<text x="560" y="{label}" fill="{colour}">{row[columns[0]]} {row[columns[-1]]}</text>']
    return "\n".join([*out, "</svg>"]) + "\n"


def screen(name):
    """A terminal with the lines of NAME.txt, as they were typed after "$ " and "> " and answered in a real run
    (test_readme.py repeats it)."""
    lines = (ROOT / f"scripts/figures/{name}.txt").read_text(encoding="utf-8").splitlines()
    width, typed = round(max(map(len, lines)) * 7.9) + 32, re.compile("[$>] ")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{19 * len(lines) + 54}" font-size="13" '
           'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">',
           '<rect width="100%" height="100%" rx="8" fill="#1d2228"/>']
    out += [f'<circle cx="{20 + 18 * i}" cy="18" r="5" fill="{colour}"/>' for i, colour in enumerate(COLOURS[2:])]
    for i, line in enumerate(lines):
        colour = "#9fd28f" if typed.match(line) else "#8b949e" if line.startswith("[") else "#e6e6e6"
        out.append(f'<text x="16" y="{52 + 19 * i}" fill="{colour}" xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def tile_times():
    """The rows of tiles.csv as macros, for each kernel a list of TILE(...) with the columns as arguments."""
    columns, rows = read("tiles")
    lists = {}
    for row in rows:
        lists.setdefault(row["kernel"], []).append([row[column] or "0" for column in columns[1:]])
    cards, dates = sorted({row["card"] for row in rows}), sorted({row["date"] for row in rows})
    out = ["/* tile_times.h - the shapes of tiles and what they cost, by which a kernel chooses. Written by",
           " * scripts/figures_page.py from scripts/figures/tiles.csv: change that, with how it was measured.",
           f" * {', '.join(cards)}, {' to '.join(sorted({dates[0], dates[-1]}))}.",
           " *",
           " *   TILE(" + "; ".join(columns[1:4]) + ";", " *        " + "; ".join(columns[4:]) + ") */",
           "#pragma once", "", "/* clang-format off */"]
    for kernel, tiles in lists.items():
        out.append(f"#define {kernel.upper()}_TILES(TILE) \\")
        out.append(" \\\n".join(f"  TILE({', '.join(tile)})" for tile in tiles))
    return "\n".join([*out, "/* clang-format on */"]) + "\n"


def main():
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    shown = {match[2] for text in pages.values() for match in MARKS.finditer(text)}
    shown |= {name for text in pages.values() for name in re.findall(r"\(figures/([\w-]+)\.csv\)", text)}
    for path in sorted((ROOT / "scripts/figures").glob("*.csv")):
        if path.stem not in shown:
            sys.exit(f"scripts/figures/{path.name}: no page prints or names it")
        read(path.stem)
    made = {name: MARKS.sub(lambda m: m[1] + table(m[2], m[3].split("; ") if m[3] else None) + m[4], text)
            for name, text in pages.items()}
    made[PLOT], made[CURVES], made[TILES] = plot(), curves(), tile_times()
    made |= {f"scripts/figures/{path.stem}.svg": screen(path.stem) for path in (ROOT / "scripts/figures").glob("*.txt")}
    for name, text in made.items():
        path = ROOT / name
        if sys.argv[1:] != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is not what scripts/figures give: run scripts/figures_page.py")


if __name__ == "__main__":
    main()
