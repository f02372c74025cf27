"""bench_gpu.py - one part of scripts/bench_gpu.sh: rows of its table, as they come.

usage: bench_gpu.py PART       PART: a function below of that name, measure_PART

Environment, in brackets what is taken without it: AUK [build/auk]; DEVICE [cuda]; CONFIGS [test/data/configs], folders
with a config.json; MODEL [Qwen3-8B-AWQ], the one among them of all parts but sizes; PROMPTS [512,2048], TOKENS [128],
DEPTHS [0,8192,32768], ROWS [1,2,4,8,16,64], COUNTS [rows of the kernels], STREAM [512] tokens; STEPS [auto], the kinds
of --decode-step that rows are measured with, against one row of the first; REPETITIONS [3]; LIMIT [540] seconds; OUT
[build/bench_gpu] for what programs read; CHECKPOINTS [build/bench_gpu], where one of random weights is made once.
"""
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

import first_byte

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLING = {"temp 0.7, top-k 20, top-p 0.95": ["--temp", "0.7", "--top-k", "20", "--top-p", "0.95"]}
SAMPLING["the same, repeat-penalty 1.1"] = [*SAMPLING["temp 0.7, top-k 20, top-p 0.95"], "--repeat-penalty", "1.1"]

# On an NVIDIA H200: least fractions of the wall of decode, least tokens/s, and most times the step of one row.
WALL_GOALS = {"Qwen3-0.6B-AWQ": 0.25, "Qwen3-1.7B-AWQ": 0.4, "Qwen3-4B-AWQ": 0.6, "Qwen3-8B-AWQ": 0.7,
              "Qwen3-14B-AWQ": 0.75, "Qwen3-32B-AWQ": 0.8, "Llama-3.1-8B-Instruct-AWQ": 0.68,
              "Qwen2.5-7B-Instruct-AWQ": 0.68}
RATE_GOALS = {("Qwen3-8B-AWQ", "pp512"): 25000, ("Qwen3-8B-AWQ", "pp2048"): 25000, ("Qwen3-8B-AWQ", "tg128"): 670,
              ("Qwen3-8B-AWQ", "tg128 @ d8192"): 540, ("Qwen3-8B-AWQ", "tg128 @ d32768"): 340}
ROWS_GOALS = {2: 1.1, 4: 1.2, 8: 1.35}
SAMPLING_GOAL, STREAMING_GOAL, START_GOAL_MS, MEMORY_GOAL_MB = 0.98, 0.97, 1500, 600


def setting(name, otherwise):
    return os.environ.get(name, otherwise)


AUK, DEVICE = shlex.split(setting("AUK", "build/auk")), setting("DEVICE", "cuda")
CONFIGS, MODEL = ROOT / setting("CONFIGS", "test/data/configs"), setting("MODEL", "Qwen3-8B-AWQ")
PROMPTS, TOKENS, STREAM = setting("PROMPTS", "512,2048"), setting("TOKENS", "128"), setting("STREAM", "512")
DEPTHS, ROWS = setting("DEPTHS", "0,8192,32768"), setting("ROWS", "1,2,4,8,16,64")
COUNTS = setting("COUNTS", "1,2,3,4,6,8,12,16,24,32,48,64,96,128,192,256,384,512,768,1024,1536,2048,3072,4096")
STEPS = setting("STEPS", "auto")
REPETITIONS, OUT = setting("REPETITIONS", "3"), pathlib.Path(setting("OUT", "build/bench_gpu"))
CHECKPOINTS = pathlib.Path(setting("CHECKPOINTS", "build/bench_gpu"))
LIMIT_S = int(setting("LIMIT", "540"))


# --- measuring and printing


def auk(*arguments, **options):
    command = [*AUK, *map(str, arguments), "--device", DEVICE]
    print(*command, file=sys.stderr)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, **options)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    done.check_returncode()
    return done


def bench(model, *flags, dummy=True, repetitions=REPETITIONS):
    """The rows of `auk bench`."""
    weights = ["--dummy-weights"] if dummy else []
    return json.loads(auk("bench", "-m", model, *weights, "-r", repetitions, "-o", "json", *flags).stdout)


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def against(value, goal, least=True, unit=""):
    """"0.7 at least: met"."""
    met = value >= goal if least else value <= goal
    return f"{goal:g}{unit} at {'least' if least else 'most'}: {'met' if met else 'missed'}"


def show(name, row, test=None, goal=""):
    rate = f"{number(row['avg_ts'])} ± {number(row['stddev_ts'])}"
    wall = "" if row["of_wall"] is None else f"{row['of_wall']:.3f}"
    print(f"| {name} | {test or row['test']} | {rate} | {number(row['gbps'])} | {wall} | {goal} |")


def note(name, test, figure, goal):
    print(f"| {name} | {test}: {figure} | | | | {goal} |")


def goal_of(name, row):
    """That of the rate, where there is one, else that of the wall."""
    if (name, row["test"]) in RATE_GOALS:
        return against(row["avg_ts"], RATE_GOALS[name, row["test"]])
    if row["n_gen"] and not row["n_depth"] and name in WALL_GOALS and row["of_wall"] is not None:
        return against(row["of_wall"], WALL_GOALS[name], unit=" of the wall")
    return ""


# --- the parts


def measure_sizes():
    for folder in sorted(CONFIGS.iterdir()):
        for row in bench(folder, "-p", PROMPTS, "-n", TOKENS):
            show(folder.name, row, goal=goal_of(folder.name, row))


def measure_contexts():
    for row in bench(CONFIGS / MODEL, "-p", 0, "-n", TOKENS, "-d", DEPTHS):
        show(MODEL, row, goal=goal_of(MODEL, row))


def measure_rows():
    """One step of n rows is one test of n tokens of prefill."""
    for depth in DEPTHS.split(",")[:2]:
        one = None
        for kind in STEPS.split(","):
            for row in bench(CONFIGS / MODEL, "-p", ROWS, "-n", 0, "-d", depth, "--decode-step", kind, repetitions=100):
                n = row["n_prompt"]
                step = n / row["avg_ts"]
                one = one or step
                times = step / one
                goal = against(times, ROWS_GOALS[n], least=False, unit=" times") if n in ROWS_GOALS else ""
                named = row["test"].removeprefix("pp") + (f" ({kind})" if "," in STEPS else "")
                show(MODEL, row, f"a step of {named}: {times:.2f} times that of one", goal)


def measure_sampling():
    greedy = bench(CONFIGS / MODEL, "-p", 0, "-n", TOKENS)[0]
    show(MODEL, greedy, f"{greedy['test']} (greedy)")
    for words, flags in SAMPLING.items():
        row = bench(CONFIGS / MODEL, "-p", 0, "-n", TOKENS, *flags)[0]
        share = row["avg_ts"] / greedy["avg_ts"]
        show(MODEL, row, f"{row['test']} ({words}): {share:.1%} of greedy",
             against(share * 100, SAMPLING_GOAL * 100, unit="%"))


def measure_memory():
    longest = PROMPTS.split(",")[-1]
    told = auk("bench", "-m", CONFIGS / MODEL, "--dummy-weights", "-p", longest, "-n", 1, "-r", 1, "-v").stderr.decode()
    found = re.search(r"weights (\S+) as stored, KV cache (\S+), everything else (\S+);", told)
    weights, cache, other = map(float, found.groups())
    note(MODEL, "memory", f"weights {weights:.1f} MB, KV cache {cache:.1f}, everything else {other:.1f}",
         against(other, MEMORY_GOAL_MB, least=False, unit=" MB"))


def checkpoint():
    """A directory with random weights of MODEL's shape."""
    folder = CHECKPOINTS / MODEL
    if not (folder / "model.safetensors").exists():
        subprocess.run([sys.executable, ROOT / "scripts" / "make_random_checkpoint.py", CONFIGS / MODEL, folder],
                       check=True)
    return folder


TEXT = ["--raw", "-p", "a few words of which nothing follows", "--temp", "0", "--ignore-eos"]


def measure_streaming():
    folder, rates, n_prompt = checkpoint(), [], 0
    for _ in range(int(REPETITIONS)):
        told = auk("-m", folder, *TEXT, "-n", STREAM, "-u").stderr.decode()
        found = re.search(r"prompt (\d+) tokens.*answer (\d+) tokens[^;]*\(([0-9.]+)/s\);.* end: length", told)
        n_prompt = int(found[1])
        rates.append(float(found[3]))
    row = bench(folder, "-p", 0, "-n", STREAM, "-d", n_prompt, dummy=False)[0]
    share = statistics.median(rates) / row["avg_ts"]
    show(MODEL, row, f"{row['test']}, from a file")
    note(MODEL, f"text of {STREAM} tokens into a pipe",
         f"{number(statistics.median(rates))} tokens/s, {share:.1%} of that",
         against(share * 100, STREAMING_GOAL * 100, unit="%"))


def measure_start():
    folder = checkpoint()
    command = [*AUK, "-m", folder, *TEXT, "-n", "2", "--device", DEVICE]
    first_byte.measure(command)
    times = [first_byte.measure(command) for _ in range(int(REPETITIONS))]
    size = (folder / "model.safetensors").stat().st_size
    note(MODEL, "first byte after the start",
         f"{statistics.median(times):.0f} ms, a file of {size / 1e9:.2f} GB in the page cache",
         against(statistics.median(times), START_GOAL_MS, least=False, unit=" ms"))


def measure_kernels():
    """Its rows are in the file also where time runs out."""
    file, cut = OUT / "kernels.json", ""
    command = [*AUK, "bench", "-m", CONFIGS / MODEL, "--dummy-weights", "--kernels", "-o", "json", "-p", COUNTS, "-r",
               REPETITIONS, "--device", DEVICE]
    with open(file, "w", encoding="utf-8") as out:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, check=True, timeout=max(LIMIT_S - 10, 1))
        except subprocess.TimeoutExpired:
            cut = ", of those that there was time for"
    told = subprocess.run([sys.executable, ROOT / "scripts" / "thresholds.py", file], capture_output=True, text=True,
                          check=True).stdout
    (OUT / "thresholds.md").write_text(told, encoding="utf-8")
    wrong = re.search(r"(\d+ of \d+) choices", told)[1]
    note(MODEL, "choice of kernels", f"{wrong} are not the fastest{cut}", "")


def main():
    if len(sys.argv) != 2 or f"measure_{sys.argv[1]}" not in globals():
        sys.exit(__doc__)
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        globals()[f"measure_{sys.argv[1]}"]()
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)  # what it said is on standard error


if __name__ == "__main__":
    main()
