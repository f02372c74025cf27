"""run_tests.py - runs every test there is and says in one line how many passed.

usage: run_tests.py BUILD [--only-c] PROGRAM...

Called by `make test`. PROGRAMs are cmocka programs, run one after the other and read in their TAP form; then
pytest runs over test/, on every core, with AUK=BUILD/auk (unless AUK already names another program). Skipped tests are
named, failed ones shown whole, and the last line is "N passed, N failed, N skipped". A program that crashes, that runs
fewer tests than it announced, or that leaves a sanitizer's report behind (see Reports) is a failure even where
every test in it passed.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

TAP_PLAN = re.compile(r"^1\.\.(\d+)")
TAP_RESULT = re.compile(r"^(not )?ok (\d+)(?: -)? ?(.*)$")
SECONDS_EACH = 300  # a C test program that takes longer hangs


class Totals:
    passed = failed = skipped = 0

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class Reports:
    """Sanitizers write to files here, so that no report is lost in a test that expects its program to fail."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()

    def environment(self):
        common = f"exitcode=99:log_path={self.folder.resolve()}/report"
        return dict(
            os.environ,
            ASAN_OPTIONS=f"detect_leaks=1:detect_stack_use_after_return=1:{common}",
            UBSAN_OPTIONS=f"print_stacktrace=1:{common}",
            CMOCKA_MESSAGE_OUTPUT="TAP",
        )

    def show(self, totals):
        for report in sorted(self.folder.iterdir()):
            print(f"FAILED: a sanitizer reports, {report.name}:\n{report.read_text(errors='replace')}")
            totals.failed += 1
            report.unlink()


def run_c(program, environment, totals):
    started = time.monotonic()
    try:
        done = subprocess.run([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS_EACH, check=False)
        output, status = done.stdout, f"exit status {done.returncode}"
        good_exit = done.returncode == 0
    except subprocess.TimeoutExpired as late:
        output, status, good_exit = late.stdout or b"", f"no end after {SECONDS_EACH} s", False
    text = output.decode(errors="replace")

    planned = passed = failed = 0
    skipped = []
    for line in text.splitlines():
        if plan := TAP_PLAN.match(line):
            planned += int(plan[1])
        elif result := TAP_RESULT.match(line):
            if "# SKIP" in result[0]:  # which cmocka 1.1.5 writes as "not ok 2 # SKIP name"
                skipped.append(result[3].removeprefix("# SKIP "))
            elif result[1]:
                failed += 1
            else:
                passed += 1
    if failed == 0 and (not good_exit or planned == 0 or passed + len(skipped) != planned):
        failed = max(1, planned - passed - len(skipped))
    seconds = time.monotonic() - started
    print(f"{program}: {passed} passed, {failed} failed, {len(skipped)} skipped ({seconds:.1f} s)")
    for name in skipped:
        print(f"  skipped: {name}")
    if failed:
        print(f"{text}FAILED: {program} ({status}, {planned} tests announced)")
    totals.passed += passed
    totals.failed += failed
    totals.skipped += len(skipped)


def shares_of(files, n):
    """The files in n shares of about the same size, which is about how long they take."""
    shares = [[0, []] for _ in range(n)]
    for file in sorted(files, key=lambda file: -file.stat().st_size):
        least = min(shares, key=lambda share: share[0])
        least[0] += file.stat().st_size
        least[1].append(str(file))
    return [sorted(share) for _, share in shares if share]


def run_pytest(build, environment, totals):
    """One pytest for each core, each over its share of the files; what they say is shown one after the other."""
    environment = {"AUK": shlex.quote(str(build / "auk"))} | environment | {"PYTHONDONTWRITEBYTECODE": "1"}
    runs = []
    for i, files in enumerate(shares_of(pathlib.Path("test").rglob("test_*.py"), os.cpu_count() or 1)):
        report, log = build / f"pytest-{i}.xml", tempfile.TemporaryFile()
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={report}", *files]
        runs.append((report, log, subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=subprocess.STDOUT)))
    for report, log, process in runs:
        status, failed = process.wait(), 0
        log.seek(0)
        print(log.read().decode(errors="replace"), end="")
        if report.exists():
            for suite in xml.etree.ElementTree.parse(report).iter("testsuite"):
                count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
                failed += count["failures"] + count["errors"]
                totals.skipped += count["skipped"]
                totals.passed += count["tests"] - count["failures"] - count["errors"] - count["skipped"]
        if status and not failed:
            print(f"FAILED: pytest, exit status {status}")
            failed = 1
        totals.failed += failed


def main():
    build, programs = pathlib.Path(sys.argv[1]), sys.argv[2:]
    only_c = programs[:1] == ["--only-c"]
    totals, reports = Totals(), Reports(build / "reports")
    sys.stdout.reconfigure(line_buffering=True)
    for program in programs[only_c:]:
        run_c(program, reports.environment(), totals)
    if not only_c:
        run_pytest(build, reports.environment(), totals)
    reports.show(totals)
    print(totals)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
