"""run_tests.py - runs every test there is and says in one line how many passed.

usage: run_tests.py BUILD [--only-c | --plain] PROGRAM...

Called by `make test`. With --only-c no pytest runs, with --plain those that test/conftest.py marks so.
PROGRAMs are cmocka programs, read in their TAP form. As many run at a time as there are cores,
and half as many more. Then as many pytests run over test/ with AUK=BUILD/auk (unless AUK already names
another program): tests of terminals and signals mostly wait. The pytests take the tests in turns (pytest_turns.py), so
that all are done at about the same time. Skipped tests are named,
failed ones shown whole. The last lines are one "N skipped: REASON" for each reason and "N passed, N failed, N skipped".
A program that crashes, that runs fewer tests than it announced, or that leaves a sanitizer's report (see
Reports) is a failure even where every test in it passed, and so is a run in which no test passed.
"""
import ast
import collections
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

TAP_PLAN = re.compile(r"^1\.\.(\d+)")
# LeakSanitizer says so of a thread that ends while it looks for leaks; it then searches the whole stack: no finding.
THREAD_HAS_ENDED = re.compile(r"^==\d+==Unable to get registers from thread \d+\.\n", re.MULTILINE)
TAP_RESULT = re.compile(r"^(not )?ok (\d+)(?: -)? ?(.*)$")
SECONDS_EACH = 300  # a C test program that takes longer hangs
HERE = pathlib.Path(__file__).resolve().parent


class Totals:
    def __init__(self):
        self.passed = self.failed = 0
        self.reasons = collections.Counter()  # of skipped tests

    @property
    def skipped(self):
        return sum(self.reasons.values())

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.reasons += other.reasons

    def why_skipped(self):
        counted = sorted(self.reasons.items(), key=lambda pair: (-pair[1], pair[0]))
        return "".join(f"{n} skipped: {reason}\n" for reason, n in counted)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class Progress:
    """On a terminal: how much is done, in a line that the next one overwrites. Passed programs and skipped tests are
    not listed then; the reasons are counted at the end in any case."""

    def __init__(self, turns, n_programs):
        self.on = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.turns, self.n_programs, self.n_done = pathlib.Path(turns), n_programs, 0
        self.lock, self.end = threading.Lock(), threading.Event()
        self.started = time.monotonic()
        self.thread = threading.Thread(target=self.show, daemon=True)
        if self.on:
            self.thread.start()

    def show(self):
        while not self.end.wait(0.2):
            n = sum(1 for _ in self.turns.iterdir())
            with self.lock:
                print(f"\r\033[K  {self.n_done} of {self.n_programs} programs and {n} other tests, "
                      f"{time.monotonic() - self.started:.0f} s", end="", flush=True)

    def say(self, text, matters=True):
        """Prints at once, as others print too."""
        with self.lock:
            if self.on and not matters:
                return
            print(("\r\033[K" if self.on else "") + text, end="", flush=True)

    def close(self):
        self.end.set()
        if self.on:
            self.thread.join()
            print("\r\033[K", end="", flush=True)


class Reports:
    """Sanitizers write to files here, so that no report is lost in a test that expects its program to fail."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()

    def environment(self):
        return dict(
            os.environ,
            ASAN_OPTIONS=f"detect_leaks=1:handle_sigill=1:exitcode=99:log_path={self.folder.resolve()}/report",
            CMOCKA_MESSAGE_OUTPUT="TAP",
        )

    def show(self, totals):
        for report in sorted(self.folder.iterdir()):
            text = report.read_text(errors="replace")
            report.unlink()
            if text and not THREAD_HAS_ENDED.sub("", text):
                continue
            print(f"FAILED: a sanitizer reports, {report.name}:\n{text}")
            totals.failed += 1


def run_c(program, environment, progress):
    # Threads that wait asleep: those that spin take the core from the program beside this one.
    environment = {"OMP_WAIT_POLICY": "passive", **environment}
    started = time.monotonic()
    try:
        done = subprocess.run([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS_EACH, check=False)
        output, status = done.stdout, f"exit status {done.returncode}"
        good_exit = done.returncode == 0
    except subprocess.TimeoutExpired as late:
        output, status, good_exit = late.stdout or b"", f"no end after {SECONDS_EACH} s", False
    text = output.decode(errors="replace")

    planned, totals, skipped = 0, Totals(), []
    for line in text.splitlines():
        if plan := TAP_PLAN.match(line):
            planned += int(plan[1])
        elif result := TAP_RESULT.match(line):
            if "# SKIP" in result[0]:  # which cmocka 1.1.5 writes as "not ok 2 # SKIP name"
                skipped.append(result[3].removeprefix("# SKIP "))
            elif result[1]:
                totals.failed += 1
            else:
                totals.passed += 1
    totals.reasons.update(f"{pathlib.Path(program).name}: {name}" for name in skipped)
    if totals.failed == 0 and (not good_exit or planned == 0 or totals.passed + totals.skipped != planned):
        totals.failed = max(1, planned - totals.passed - totals.skipped)
    said = [f"{program}: {totals} ({time.monotonic() - started:.1f} s)", *(f"  skipped: {name}" for name in skipped)]
    if totals.failed:
        said.append(f"{text}FAILED: {program} ({status}, {planned} tests announced)")
    progress.n_done += 1
    progress.say("\n".join(said) + "\n", matters=totals.failed)
    return totals


def why_skipped(element):
    """The reason. If a file is skipped as a whole, the text has it: "('FILE', LINE, 'Skipped: REASON')"."""
    message = element.get("message", "")
    if message == "collection skipped":
        message = ast.literal_eval(element.text)[2].removeprefix("Skipped: ")
    return message.strip().split("\n")[0]


def run_pytest(build, environment, turns, i, which, progress):
    """One of several pytests, whose turns are kept in the folder `turns`."""
    environment = {"AUK": shlex.quote(str(build / "auk")), **environment, "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
                   "PYTEST_TURNS": str(turns),
                   # It would take a quarter of the time of C tests, whose code runs here as well.
                   "ASAN_OPTIONS": environment["ASAN_OPTIONS"] + ":detect_stack_use_after_return=1"}
    report, totals = build / f"pytest-{i}.xml", Totals()
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "pytest_turns", "-o", "console_output_style=classic",
               f"--junitxml={report}", *which, "test"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    progress.say(done.stdout.decode(errors="replace"), matters=done.returncode)
    if report.exists():
        for suite in xml.etree.ElementTree.parse(report).iter("testsuite"):
            count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
            totals.failed += count["failures"] + count["errors"]
            for test in suite.iter("testcase"):
                # A file that is skipped as a whole, and has no class, takes no turn: each pytest counts it.
                if i == 0 or test.get("classname"):
                    totals.reasons.update(why_skipped(element) for element in test.iter("skipped"))
            totals.passed += count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    if done.returncode and not totals.failed:
        progress.say(f"FAILED: pytest, exit status {done.returncode}\n")
        totals.failed = 1
    return totals


def main():
    build, programs = pathlib.Path(sys.argv[1]), sys.argv[2:]
    form = programs.pop(0) if programs[:1] in (["--only-c"], ["--plain"]) else ""
    totals, reports = Totals(), Reports(build / "reports")
    environment, n_at_a_time = reports.environment(), (3 * len(os.sched_getaffinity(0)) + 1) // 2
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as turns, concurrent.futures.ThreadPoolExecutor(n_at_a_time) as pool:
        progress = Progress(turns, len(programs))
        runs = [pool.submit(run_c, program, environment, progress) for program in programs]
        which = ["-m", "plain"] if form == "--plain" else []
        runs += [pool.submit(run_pytest, build, environment, turns, i, which, progress)
                 for i in range(0 if form == "--only-c" else n_at_a_time)]
        for run in runs:
            totals.add(run.result())
        progress.close()
    reports.show(totals)
    if not totals.passed and not totals.failed:
        print("FAILED: no test passed")
        totals.failed = 1
    print(f"{totals.why_skipped()}{totals}")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
