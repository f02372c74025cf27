"""make torture: every allocation, open, read, mmap, write, fsync and rename of short runs fails once, each in a run of
its own, and every such run must end as the program promises.

    torture.py PROGRAM [--cuda] [--every N] [--only WORD] [--jobs N]

PROGRAM is an auk that test/torture/faults.c is linked into, built with sanitizers. For each scenario below and each
kind of call the script runs PROGRAM with the 1st, 2nd, 3rd ... call failing until there is none left. --every N: only
each Nth allocation or call of CUDA, and each (N/4)th of the other calls, which are few. The first one differs by
scenario and kind, since nearly all scenarios share the calls of loading. All of it takes minutes; CI takes a sample.
These must hold:

  - the exit status is a documented one, and not that of a signal or a sanitizer;
  - a failure gives one line on standard error that begins with "auk: ", beside those that a run without it has;
    standard output is as it is without the fault, or shorter (text that streams cannot be taken back), never
    other bytes;
  - a file that was to be written is whole or not there, and nothing else is left beside it;
  - the same command without a fault then gives what it always gave.

--cuda is for a PROGRAM on the emulated GPU (make torture EMULATE=1) or a real one (make torture-gpu): calls of CUDA
fail there, the Nth and all after it, as on a device that is lost.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "test" / "data" / "stories260K-awq"
LAYOUTS = ROOT / "test" / "data" / "layouts"
HYBRID = ROOT / "test" / "data" / "miniatures" / "qwen3_5-awq"
KINDS = ("alloc", "open", "read", "map", "write", "sync", "rename")
SANITIZER = 99  # exit status of a sanitizer's finding, which is no status of ours
DOCUMENTED = {1, 2, 3, 4, 130, 141}
LIMIT_S = 60

# name, arguments ({out}: a path to write, {dir}: a folder of the run's own, {home}: that of all runs), standard input.
# A name that ends with "again": each run finds in {dir}/kept what a run without a fault left there.
CACHE = ["-m", "{home}/hybrid", "--cache-dir", "{dir}/kept", "--raw", "-p", "Once upon a time, " * 16, "-n", "2",
         "--ignore-eos", "--seed", "1"]
SCENARIOS = [
    ("run", ["-m", MODEL, "-p", "Once upon a time", "-n", "4", "--seed", "1"], None),
    ("pipe", ["-m", MODEL, "-n", "3", "--raw", "-"], "One day"),
    ("map", ["-m", MODEL, "--raw", "--map", "-", "-p", "Once {{}}", "-n", "2", "--seed", "1"], "Tim\nLily\n"),
    ("map json", ["-m", MODEL, "--chat-template", "chatml", "--map", "-", "--map-json", "--choose", "a,b"],
     '{"prompt": "Tim"}\n{"messages": [{"role": "user", "content": "Lily"}]}\n'),
    ("choose", ["-m", MODEL, "-p", "Once", "--choose", "a,the dog"], None),
    ("tokenize", ["tokenize", "-m", MODEL, "-p", "Once upon a time"], None),
    ("schema", ["schema", '{{"uniqueItems": true, "items": {{"enum": [1, "x"]}}, "pattern": "a"}}'], '[1, "x"]'),
    ("eval", ["eval", "-m", MODEL, "-f", "{dir}/text", "--logits-out", "{out}"], None),
    ("pack", ["pack", MODEL, "-o", "{out}"], None),
    ("rules", ["eval", "-m", LAYOUTS / "packed-mixed", "-f", "{dir}/text", "--logits-out", "{out}"], None),
    ("repack", ["pack", LAYOUTS / "gptq-asymmetric", "-o", "{out}"], None),
    ("floats", ["eval", "-m", LAYOUTS / "modelopt-mixed", "-f", "{dir}/text", "--logits-out", "{out}"], None),
    ("cache", CACHE, None),
    ("cache again", CACHE, None),
    ("inspect", ["inspect", MODEL, "--json"], None),
    ("name", ["tokenize", "-m", "auk/stories", "-p", "Once upon a time"], None),
    ("models", ["models", "--names", MODEL], None),
    ("completions", ["completions", "zsh"], None),
    ("man", ["man"], None),
]
CUDA_SCENARIOS = [
    ("gpu", ["-m", MODEL, "--device", "cuda", "-p", "Once upon", "-n", "3", "--temp", "0.7", "--seed", "1"], None),
    ("gpu eval", ["eval", "-m", MODEL, "--device", "cuda", "-f", "{dir}/text", "--logits-out", "{out}"], None),
]


def command_of(scenario, folder):
    return [str(a).format(out=folder / "out" / "file", dir=folder, home=folder.parent) if isinstance(a, str) else str(a)
            for a in scenario[1]]


def make_hybrid(folder):
    """A model with recurrent states, for texts that are long enough to be kept."""
    shutil.copytree(HYBRID, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))


def prepare(folder, kept=None):
    (folder / "out").mkdir(parents=True)
    if kept:
        shutil.copytree(kept, folder / "kept")
    (folder / "text").write_text("Once upon a time there was a dog.")
    snapshot = folder / "cache" / "huggingface" / "hub" / "models--auk--stories" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(MODEL)
    return folder


def run(program, scenario, folder, fault=None):
    """The finished process, and whether the fault came about."""
    told = folder / "told"
    told.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HOME": str(folder),
                   "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state"),
                   "ASAN_OPTIONS": f"exitcode={SANITIZER}:allocator_may_return_null=1:detect_leaks=1:"
                                   "handle_sigill=1",
                   "AUK_FAULT_TOLD": str(told)}
    if fault:
        environment["AUK_FAULT"] = fault
    process = subprocess.run([program, *command_of(scenario, folder)], input=(scenario[2] or "").encode(),
                             capture_output=True, timeout=LIMIT_S, env=environment)
    return process, told.exists()


def written(folder):
    out = folder / "out"
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def cached(folder):
    return {p.name: p.read_bytes() for pattern in ("*.kv", "*.rs") for p in (folder / "kept").glob(pattern)}


def complaint(process, files, whole, whole_files):
    """A text that says what is wrong with a run that had a fault, or None."""
    notes = whole.stderr.decode(errors="replace").splitlines()  # what the run says of itself in any case
    lines = process.stderr.decode(errors="replace").splitlines()
    told = [line for line in lines if line.startswith("auk: ") and line not in notes]
    if process.returncode == SANITIZER or process.returncode < 0:
        return "crash or sanitizer"
    if not whole.stdout.startswith(process.stdout):
        return "other output"
    if process.returncode == 0:  # the fault did not matter, and then all is there
        if process.stdout != whole.stdout:
            return "success with output cut"
        return None if files == whole_files else "success with files missing"
    if process.returncode not in DOCUMENTED:
        return f"status {process.returncode}"
    if process.returncode not in (130, 141) and len(told) != 1:
        return f"{len(told)} messages"
    if files not in ({}, whole_files):
        return f"files left: {', '.join(files)}"
    return None


def one(program, scenario, kind, n, expected, home):
    """A run with one fault: (whether it came about, what is wrong or None, its standard error)."""
    whole, whole_files, kept, whole_cache = expected
    folder = prepare(pathlib.Path(tempfile.mkdtemp(dir=home)), kept)
    try:
        process, came = run(program, scenario, folder, f"{kind}:{n}")
        wrong = complaint(process, written(folder), whole, whole_files)
        if any(whole_cache.get(name) != data for name, data in cached(folder).items()):
            wrong = wrong or "cached files differ"
        if not came and process.returncode != 0:
            wrong = wrong or f"status {process.returncode} without a fault"
        return came, wrong, process.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return True, "hangs", ""
    finally:
        shutil.rmtree(folder)


def torture(program, scenario, kinds, first, every, jobs, home):
    """Runs all faults of one scenario, from number `first` on: how many came about, and what was wrong."""
    folder = prepare(pathlib.Path(tempfile.mkdtemp(dir=home)))
    whole, _ = run(program, scenario, folder)
    kept = folder / "kept" if scenario[0].endswith("again") else None
    expected = whole, written(folder), kept, cached(folder)
    if whole.returncode != 0:
        sys.exit(f"{scenario[0]}: fails without any fault: {whole.stderr.decode()}")
    total, wrong, counts = 0, [], {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for index, kind in enumerate(kinds):
            step = every if kind in ("alloc", "cuda") else max(1, every // 4)
            n, more = 1 + (first + index) % step, True
            while more:
                batch = range(n, n + step * jobs, step)
                results = pool.map(lambda i: (i, *one(program, scenario, kind, i, expected, home)), batch)
                for i, came, what, errors in results:
                    if came:
                        total += 1
                        counts[kind] = counts.get(kind, 0) + 1
                    more = more and came
                    if what:
                        wrong.append((kind, i, what, errors))
                n = batch[-1] + step
    again = prepare(pathlib.Path(tempfile.mkdtemp(dir=home)), kept)
    process, _ = run(program, scenario, again)
    if process.stdout != whole.stdout or (written(again), cached(again)) != (expected[1], expected[3]):
        wrong.append(("after all", 0, "a later run differs", process.stderr.decode()))
    return total, counts, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as home:
        make_hybrid(pathlib.Path(home) / "hybrid")
        for first, scenario in enumerate(CUDA_SCENARIOS if options.cuda else SCENARIOS):
            if options.only and options.only not in scenario[0]:
                continue
            kinds = ("cuda",) if options.cuda else KINDS
            total, counts, wrong = torture(options.program, scenario, kinds, first, options.every, options.jobs,
                                           pathlib.Path(home))
            print(f"{scenario[0]}: {total} faults {json.dumps(counts)}, {len(wrong)} wrong", flush=True)
            for kind, n, what, errors in wrong[:20]:
                print(f"  {kind}:{n}: {what}\n    " + "\n    ".join(errors.splitlines()[:30]))
            passed += total - len(wrong)
            failed += len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
