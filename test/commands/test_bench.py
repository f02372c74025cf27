"""`auk bench` on the tiny trained model: the rows it promises, in every form. No figure here is a measurement."""
import csv
import io
import json
import re
import subprocess

FLAGS = ["-p", "16,32", "-n", "8", "-d", "0,20", "-r", "2", "-t", "1"]
TESTS = ["pp16", "pp32", "tg8", "pp16 @ d20", "pp32 @ d20", "tg8 @ d20"]


def test_markdown_has_a_row_a_test(run, stories):
    process = run("bench", "-m", stories, *FLAGS)
    assert (process.returncode, process.stderr) == (0, b"")
    lines = process.stdout.decode().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head, rows = cells[0], cells[2:]
    assert all(len(row) == len(head) for row in cells)
    assert [row[head.index("test")] for row in rows] == TESTS
    for row in rows:
        assert float(re.fullmatch(r"(\S+) ± (\S+)", row[head.index("t/s")])[1]) > 0
        assert row[head.index("threads")] == "1"
    assert re.fullmatch(r"load \S+ ms, first token \S+ ms after the start \(prompt of 16 tokens\)", lines[-1])


def check(rows):
    assert [row["test"] for row in rows] == TESTS
    for row, (n_prompt, n_gen) in zip(rows, [(16, 0), (32, 0), (0, 8)] * 2):
        assert (int(row["n_prompt"]), int(row["n_gen"])) == (n_prompt, n_gen)
        assert int(row["n_depth"]) == (20 if "@" in row["test"] else 0)
        assert int(row["repetitions"]) == 2
        assert float(row["avg_ts"]) > 0 and float(row["stddev_ts"]) >= 0
        assert 0 < float(row["load_ms"]) < float(row["first_token_ms"])
        assert row["model"] == "stories260K-awq"


def test_csv_and_json_say_the_same(run, stories):
    table = run("bench", "-m", stories, *FLAGS, "-o", "csv").stdout.decode()
    check(list(csv.DictReader(io.StringIO(table))))
    check(json.loads(run("bench", "-m", stories, *FLAGS, "-o", "json").stdout))


def test_a_zero_is_no_test(run, stories):
    process = run("bench", "-m", stories, "-p", 0, "-n", 4, "-r", 1, "-o", "json")
    assert [row["test"] for row in json.loads(process.stdout)] == ["tg4"]
    assert json.loads(run("bench", "-m", stories, "-p", 0, "-n", 0, "-o", "json").stdout) == []


def test_tests_longer_than_the_model_are_refused(run, stories):
    process = run("bench", "-m", stories, "-p", 512, "-n", 0, "-d", 1)
    assert process.returncode == 2
    assert b"513" in process.stderr and b"512" in process.stderr
    assert run("bench", "-m", stories, "-p", 512, "-n", 0, "-r", 1).returncode == 0


def test_the_reader_may_go_away(auk, stories):
    command = 'trap "" PIPE; "$@" | exec 0<&-; exit ${PIPESTATUS[0]}'
    process = subprocess.run(["bash", "-c", command, "bash", *auk, "bench", "-m", stories, *FLAGS], capture_output=True,
                             timeout=60, stdin=subprocess.DEVNULL)
    assert (process.returncode, process.stderr) == (141, b"")
