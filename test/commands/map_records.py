"""Shared by tests of `auk --map`: short records, one of them an error, and results without their times."""
import json

NAMES = ["Lily", "Tim", "the dog", "a big red ball", "Mom and Dad", "Sam"]
PATTERN = "One day, {} went to"
DRAWN = ["-n", "4", "--temp", "1"]
TOO_LONG = "so " * 1000  # longer than the context of the tiny model: an error


def short_records(n, *errors):
    """n lines that differ; those with these indices are TOO_LONG."""
    return [TOO_LONG if i in errors else f"{NAMES[i % 6]} and {NAMES[i // 6 % 6]} {i}" for i in range(n)]


def short_job(folder, model, n):
    """The flags of a job of n short records; the eighth is an error."""
    (folder / "in").write_text("".join(line + "\n" for line in short_records(n, 7)))
    return ["-m", str(model), "--raw", "-t", "1", "-p", PATTERN, "--map", str(folder / "in"), "-s", "9"]


def stable(results):
    """JSON results, one in each line, without times and counts of shared tokens."""
    return [{key: value for key, value in json.loads(line).items() if key not in ("timings", "usage")}
            for line in results.splitlines()]
