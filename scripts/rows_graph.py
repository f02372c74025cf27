"""rows_graph.py - draws how fast the linear layers of a model are for each count of rows, and looks for cliffs.

usage: rows_graph.py KERNELS [--peer NAME=FILE] ... [-o build/rows.svg]

KERNELS is what `auk bench -m MODEL --kernels -o json -p 1,2,...,4096` prints. A peer's FILE has a JSON object a line:
{"layer": "qkv", "rows": 16, "us": 12.2}, as scripts/bench_humming.py prints them. cuBLAS in fp16 is in KERNELS.

A point is the rows that pass through the four matrices of a layer in a second, in thousands, from the sum of their
times. Both axes are logarithmic. The script prints the same figures as a table, and each cliff: a count of rows that
takes more than CLIFF times as long as a larger one.
"""
import argparse
import collections
import json
import math
import pathlib
import sys

import thresholds

LAYERS = ("qkv", "o", "gate_up", "down")
CLIFF = 1.03
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 560, 70, 150, 30, 50


def sums(times):
    """{rows: us} of the counts that all four matrices have, from {(layer, rows): us}."""
    counts = sorted({rows for _, rows in times})
    return {rows: sum(times[layer, rows] for layer in LAYERS) for rows in counts
            if all((layer, rows) in times for layer in LAYERS)}


def own_curves(path):
    chosen, library = {}, {}
    for row in thresholds.read(path):
        at = row["layer"], row.get("n_tokens")
        if row["kernel"] == thresholds.LIBRARY:
            library[at] = row["us"]
        elif row.get("chosen") and not row["kernel"].startswith("int8"):
            chosen[at] = row["us"]
    return {"auk": sums(chosen), "cuBLAS fp16": sums(library)}


def peer_curve(path):
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.startswith("{")]
    return sums({(row["layer"], row["rows"]): row["us"] for row in rows})


def cliffs(curve):
    """(rows, us, more rows, their us) for each count that a larger one beats by more than CLIFF."""
    counts = sorted(curve)
    found = []
    for i, rows in enumerate(counts[:-1]):
        best = min(counts[i + 1:], key=curve.get)
        if curve[rows] > CLIFF * curve[best]:
            found.append((rows, curve[rows], best, curve[best]))
    return found


def rate(rows, us):
    return rows / us * 1e3  # thousands of rows a second


def ticks(low, high):
    """1, 2 and 5 times powers of ten from low to high."""
    return [m * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)
            if low <= m * 10.0**e <= high]


def draw(curves, title):
    counts = sorted({rows for curve in curves.values() for rows in curve})
    rates = [rate(rows, us) for curve in curves.values() for rows, us in curve.items()]
    low, high = min(rates) / 1.2, max(rates) * 1.2

    def x(rows):
        span = math.log(counts[-1] / counts[0]) or 1
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(rows / counts[0]) / span

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log(high / value) / math.log(high / low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-size="14">{title}</text>']
    for rows in (2**i for i in range(13)):
        if counts[0] <= rows <= counts[-1]:
            out.append(f'<path d="M{x(rows):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
                       f'<text x="{x(rows):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{rows}</text>')
    for value in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">rows</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        points = [(x(rows), y(rate(rows, curve[rows]))) for rows in sorted(curve)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="' +
                   " ".join(f"{px:.1f},{py:.1f}" for px, py in points) + '"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{colour}"/>' for px, py in points]
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 20 + 18 * i}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>\n"])


def table(curves):
    names = list(curves)
    lines = ["| rows | " + " | ".join(f"{name}, us" for name in names) + " |", "|---:" * (len(names) + 1) + "|"]
    for rows in sorted({rows for curve in curves.values() for rows in curve}):
        cells = [f"{curve[rows]:.1f}" if rows in curve else "" for curve in curves.values()]
        lines.append(f"| {rows} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("-o", "--output", default="build/rows.svg")
    options = parser.parse_args(arguments)
    curves = own_curves(options.kernels)
    for peer in options.peer:
        name, separator, path = peer.partition("=")
        if not separator:
            parser.error(f"--peer {peer}: NAME=FILE is wanted")
        curves[name] = peer_curve(path)
    curves = collections.OrderedDict((name, curve) for name, curve in curves.items() if curve)
    if "auk" not in curves:
        sys.exit(f"{options.kernels}: no count of rows has a chosen kernel for each of {', '.join(LAYERS)}")
    pathlib.Path(options.output).write_text(draw(curves, "Thousands of rows a second through a layer's matrices"))
    print(table(curves))
    for rows, us, more, less in cliffs(curves["auk"]):
        print(f"cliff: {rows} rows take {us:.1f} us, {more} rows {less:.1f}")
    print(f"drawn: {options.output}")


if __name__ == "__main__":
    main(sys.argv[1:])
