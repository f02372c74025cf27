"""scripts/bench_gpu.sh on the CPU and a model of some weights: every part makes its rows. No figure is measured."""
import json
import os
import shlex
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def table(root, auk, tmp_path_factory):
    """table(part, ...): exit status and the cells of each row after the head."""
    folder = tmp_path_factory.mktemp("bench")
    config = json.loads((root / "test" / "data" / "miniatures" / "qwen3-awq" / "config.json").read_text())
    (folder / "configs" / "tiny").mkdir(parents=True)
    (folder / "configs" / "tiny" / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    settings = {"AUK": shlex.join(auk), "PYTHON": sys.executable, "DEVICE": "cpu", "MODEL": "tiny",
                "CONFIGS": str(folder / "configs"), "PROMPTS": "8,64", "TOKENS": "8", "DEPTHS": "0,16",
                "ROWS": "1,2,8", "STREAM": "16", "REPETITIONS": "1", "OUT": str(folder / "out"),
                "CHECKPOINTS": str(folder / "checkpoints"), "LIMIT": "60"}

    def run(*parts, **more):
        done = subprocess.run(["sh", root / "scripts" / "bench_gpu.sh", *parts], capture_output=True, text=True,
                              timeout=120, stdin=subprocess.DEVNULL, check=False,
                              env={**os.environ, **settings, **more})
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
        assert lines[0] == ["model", "test", "tokens/s", "GB/s", "of wall", "goal"]
        assert all(len(line) == 6 for line in lines)
        return done.returncode, lines[2:]

    return run


def test_rates_stand_beside_their_wall(table):
    status, rows = table("sizes", "contexts")
    assert status == 0
    assert [row[:2] for row in rows] == [["tiny", test] for test in ("pp8", "pp64", "tg8", "tg8", "tg8 @ d16")]
    for row in rows:
        assert float(row[2].split(" ± ")[0].replace(",", "")) > 0
        assert (float(row[4]) > 0) if "tg" in row[1] else row[4] == ""


def test_rows_and_sampling_are_held_against_one(table):
    status, rows = table("rows", "sampling")
    assert status == 0
    assert rows[0][1] == "a step of 1: 1.00 times that of one" and rows[0][5] == ""
    assert rows[2][1].startswith("a step of 8: ") and rows[2][5].startswith("1.35 times at most: ")
    assert rows[3][1] == "a step of 1 @ d16: 1.00 times that of one"
    assert rows[6][1] == "tg8 (greedy)"
    assert all("% of greedy" in row[1] and row[5].startswith("98% at least: ") for row in rows[7:9])


def test_a_file_is_streamed_and_started(table):
    status, rows = table("memory", "streaming", "start")
    assert status == 0
    assert rows[0][1].startswith("memory: weights 0.1 MB, KV cache 0.0, everything else ")
    assert rows[1][1].startswith("tg16 @ d") and rows[1][1].endswith(", from a file")
    assert rows[2][1].startswith("text of 16 tokens into a pipe: ") and rows[2][5].startswith("97% at least: ")
    assert rows[3][1].startswith("first byte after the start: ") and rows[3][5].startswith("1500 ms at most: ")


def test_a_part_that_fails_is_named_and_the_others_go_on(table):
    status, rows = table("kernels", "nonsense", "contexts")
    assert status == 1
    assert rows[0][1].startswith("kernels: ended with status 1: auk: --kernels compares the kernels of a GPU")
    assert rows[1][1].startswith("nonsense: ended with status 1")
    assert rows[2][1] == "tg8"


def test_time_may_be_short(table):
    status, rows = table("contexts", "rows", TOTAL="0")
    assert status == 1
    assert [row[1] for row in rows] == ["contexts: no time was left", "rows: no time was left"]
    status, rows = table("sizes", TOKENS="400", REPETITIONS="100000", LIMIT="1")
    assert status == 1
    assert rows[-1][1] == "sizes: ended with status 124: no end after 1 s"
