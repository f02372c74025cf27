"""thresholds.py - what one measured run of every kernel says of the table in cuda/kernels/linear/dispatch.c.

usage: thresholds.py FILE ...      each made by `auk bench -m MODEL --kernels -o json -p 1,2,3,4,6,8,...,4096`

Three tables: where the kernel that is chosen is not the fastest, by more than 3%; for each class of matrices the
thresholds that would be best; and how near each kernel ever comes to the fastest. Kernels compete within a class, as in
the dispatch table: the same weights, the same activations, and a matrix below or above DISPATCH_SMALL weights. Files
that were cut (a run that had no more time) are read as far as they go.
"""
import collections
import itertools
import json
import math
import pathlib
import re
import statistics
import sys

NOISE = 1.03  # what clocks and caches make of the same kernel from run to run
FAR = 2.0  # a kernel that is never nearer to the best than this says why it is kept (LOG.md, "Kernels kept
# although others win")
LIBRARY = "cublas fp16"  # stands beside quantised layers and is no row of their table
SMALL_MI = int(re.search(r"#define DISPATCH_SMALL \((\d+)L << 20\)", (
    pathlib.Path(__file__).resolve().parent.parent / "cuda" / "kernels" / "linear" / "dispatch.h").read_text())[1])

Class = collections.namedtuple("Class", "weights act small")


def read(path):
    """The rows of a JSON list with an object a line, of a file that may end in the midst of one."""
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith("  {"):
            try:
                rows.append(json.loads(line.rstrip(",")))
            except json.JSONDecodeError:
                break
    return rows


def class_of(row):
    act = "int8" if row["kernel"].startswith("int8") else "fp16"
    return Class(row["weights"], act, row["n_in"] * row["n_out"] < SMALL_MI << 20)


def title(which):
    size = f"below {SMALL_MI} Mi" if which.small else f"{SMALL_MI} Mi and more"
    return f"{which.weights} | {which.act} | {size}"


def shape(row):
    return row["n_in"], row["n_out"], row["group"]


def contests(rows):
    """{class: {shape: {n_tokens: {kernel: row}}}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(dict)))
    for row in rows:
        if row["layer"] != "machine" and row["kernel"] != LIBRARY:
            found[class_of(row)][shape(row)][row["n_tokens"]][row["kernel"]] = row
    return found


def fastest(kernels):
    return min(kernels.values(), key=lambda row: row["us"])


def chosen(kernels):
    return next((row for row in kernels.values() if row["chosen"]), None)


# --- where the choice is wrong


def wrong_choices(found):
    for which, shapes in found.items():
        for counts in shapes.values():
            for n, kernels in sorted(counts.items()):
                taken, best = chosen(kernels), fastest(kernels)
                if taken and taken["us"] > NOISE * best["us"]:
                    yield which, taken, best, n


def print_wrong_choices(found):
    print("## Where the chosen kernel is not the fastest, by more than 3%\n")
    wrong = sorted(wrong_choices(found), key=lambda it: it[1]["us"] / it[2]["us"], reverse=True)
    n = sum(chosen(kernels) is not None for shapes in found.values() for counts in shapes.values()
            for kernels in counts.values())
    print(f"{len(wrong)} of {n} choices.\n")
    if not wrong:
        return
    print("| layer | in | out | group | weights | rows | chosen | µs | fastest | µs | times |")
    print("|---|---:|---:|---:|---|---:|---|---:|---|---:|---:|")
    for _, taken, best, n in wrong:
        print(f"| {taken['layer']} | {taken['n_in']} | {taken['n_out']} | {taken['group']} | {taken['weights']} | "
              f"{n} | {taken['kernel']} | {taken['us']:.2f} | {best['kernel']} | {best['us']:.2f} | "
              f"{taken['us'] / best['us']:.2f} |")
    print()


# --- the thresholds that would be best


def losses(shapes):
    """{n_tokens: {kernel: mean over the shapes of ln(its time / the best time)}}, of kernels that run all shapes."""
    result = {}
    for n in sorted(set(itertools.chain.from_iterable(shapes.values()))):
        measured = [counts[n] for counts in shapes.values() if n in counts]
        common = set.intersection(*(set(kernels) for kernels in measured))
        result[n] = {name: statistics.mean(math.log(kernels[name]["us"] / fastest(kernels)["us"])
                                           for kernels in measured) for name in common}
    return {n: kernels for n, kernels in result.items() if kernels}


def best_sequence(loss):
    """[(n_tokens, kernel)] of least loss in all, where a change of kernels has to bring more than noise."""
    change = math.log(NOISE)
    paths = {None: (0.0, [])}
    for n, kernels in loss.items():
        paths = {name: min(((total + lost + (change if last not in (None, name) else 0), [*path, (n, name)])
                            for last, (total, path) in paths.items()), key=lambda it: it[0])
                 for name, lost in kernels.items()}
    return min(paths.values(), key=lambda it: it[0])[1]


def ranges(sequence):
    """[(kernel, first, last)]"""
    groups = [(name, list(steps)) for name, steps in itertools.groupby(sequence, key=lambda it: it[1])]
    return [(name, steps[0][0], steps[-1][0]) for name, steps in groups]


def today(shapes):
    """Mean over shapes and counts of ln(chosen time / best time)."""
    lost = [math.log(chosen(kernels)["us"] / fastest(kernels)["us"]) for counts in shapes.values()
            for kernels in counts.values() if chosen(kernels)]
    return sum(lost) / len(lost) if lost else math.nan


def percent(loss):
    return f"{math.expm1(loss) * 100:.1f}%"


def print_thresholds(found):
    print("## The best thresholds\n\nRows of x that each kernel would serve, and by how much the choices are slower "
          "on average than the fastest\nkernel of each shape and count.\n")
    print("| weights | activations | matrix | kernels | would cost | costs today |")
    print("|---|---|---|---|---:|---:|")
    for which, shapes in sorted(found.items()):
        loss = losses(shapes)
        sequence = best_sequence(loss)
        served = ", ".join(f"{name} {first} to {last}" for name, first, last in ranges(sequence))
        would = sum(loss[n][name] for n, name in sequence) / len(sequence)
        print(f"| {title(which)} | {served} | {percent(would)} | {percent(today(shapes))} |")
    print()


# --- which kernels are worth their place


def print_families(found):
    print(f"## How near each kernel comes to the fastest\n\nAt its best shape and count. Never within {FAR:g} times: "
          "marked.\n")
    print("| kernel | weights | activations | times the fastest | at | | fastest in |")
    print("|---|---|---|---:|---|---|---:|")
    nearest, wins, tries = {}, collections.Counter(), collections.Counter()
    for which, shapes in found.items():
        for counts in shapes.values():
            for kernels in counts.values():
                best = fastest(kernels)
                for name, row in kernels.items():
                    key = (name, which.weights, which.act)
                    tries[key] += 1
                    wins[key] += row is best
                    nearest[key] = min(nearest.get(key, (math.inf, None)), (row["us"] / best["us"], row),
                                       key=lambda it: it[0])
    for key, (times, row) in sorted(nearest.items(), key=lambda it: (it[0][1:], it[1][0])):
        far = "**far**" if times > FAR else ""
        print(f"| {' | '.join(key)} | {times:.2f} | {row['n_in']} → {row['n_out']}, {row['n_tokens']} rows | {far} | "
              f"{wins[key]} of {tries[key]} |")
    print()


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    rows = [row for path in sys.argv[1:] for row in read(path)]
    found = contests(rows)
    if not found:
        sys.exit("thresholds.py: there are no kernels in these files")
    for part in (print_wrong_choices, print_thresholds, print_families):
        part(found)


if __name__ == "__main__":
    main()
