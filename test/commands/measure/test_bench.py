"""`auk bench` on the tiny trained model: the rows it promises, in every form. No figure here is a measurement."""
import csv
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from unittest.mock import ANY

import pytest
from terminals import read_all

FLAGS = ["-p", "16,32", "-n", "8", "-d", "0,20", "-r", "2", "-t", "1", "--device", "cpu"]
TIMES = ["avg_ts", "stddev_ts", "load_ms", "first_token_ms", "gbps", "of_wall", "machine_gbps"]
TESTS = ["pp16", "pp32", "tg8", "pp16 @ d20", "pp32 @ d20", "tg8 @ d20"]


def cells_of(stdout):
    """The head of a Markdown table and its rows, as lists of cells."""
    lines = stdout.decode().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == len(cells[0]) for row in cells)
    return cells[0], cells[2:]


def test_markdown_has_a_row_a_test(run, stories):
    process = run("bench", "-m", stories, *FLAGS)
    assert (process.returncode, process.stderr) == (0, b"")
    head, rows = cells_of(process.stdout)
    assert [row[head.index("test")] for row in rows] == TESTS
    for row in rows:
        assert float(re.fullmatch(r"(\S+) ± (\S+)", row[head.index("t/s")])[1]) > 0
        assert row[head.index("threads")] == "1" and row[head.index("device")]
        assert 0 < float(row[head.index("load ms")]) <= float(row[head.index("first token ms")])
        # A CPU's arithmetic is not measured: what bounds many rows is not known.
        assert bool(row[head.index("of wall")]) == ("tg" in row[head.index("test")])


def check(rows):
    assert [row["test"] for row in rows] == TESTS
    for row, (n_prompt, n_gen) in zip(rows, [(16, 0), (32, 0), (0, 8)] * 2):
        assert (int(row["n_prompt"]), int(row["n_gen"])) == (n_prompt, n_gen)
        assert int(row["n_depth"]) == (20 if "@" in row["test"] else 0)
        assert int(row["repetitions"]) == 2
        assert float(row["avg_ts"]) > 0 and float(row["stddev_ts"]) >= 0
        assert 0 < float(row["load_ms"]) < float(row["first_token_ms"])
        assert row["model"] == "stories260K-awq" and row["device"]
        assert int(row["first_token_prompt"]) == 16


def test_csv_and_json_say_the_same(run, stories):
    table = run("bench", "-m", stories, *FLAGS, "-o", "csv").stdout.decode()
    check(list(csv.DictReader(io.StringIO(table))))
    check(json.loads(run("bench", "-m", stories, *FLAGS, "-o", "json").stdout))
    check(json.loads(run("bench", "-m", stories, *FLAGS, "--json").stdout))
    assert run("bench", "-m", stories, *FLAGS, "--json", "-o", "csv").returncode == 2


@pytest.mark.parametrize("flags, says", [
    (["-p", "16", "-n", "8"], ["the first token, after 16 of a prompt", "what this machine can do",
                              "pp16: a run that does not count", "pp16: run 1 of 2", "tg8: run 2 of 2"]),
    (["--parallel", "2", "-p", "16", "-n", "8"], ["2 sequences of 16 and 8 tokens: a run that does not count",
                                                  "2 sequences of 16 and 8 tokens: run 2 of 2"]),
    (["--accept", "0.5", "-n", "8"], ["3 guesses a step, 8 tokens after 0: run 1 of 2"]),
])
def test_a_terminal_shows_what_is_measured(auk, stories, flags, says):
    """On standard error; the line is gone before a row, and in the end."""
    mine, theirs = os.openpty()
    variables = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen([*auk, "bench", "-m", stories, *flags, "-r", "2", "-t", "1", "--device", "cpu"],
                               stdout=subprocess.PIPE, stderr=theirs, env=variables)
    os.close(theirs)
    said = read_all(mine).decode()
    rows = process.communicate()[0].decode().splitlines()
    assert process.returncode == 0 and len(rows) > 2 and not any("\x1b" in row for row in rows)
    for text in says:
        assert f"\r\x1b[K{text}\r" in said
    assert said.endswith("\r\x1b[K")
    os.close(mine)


def test_the_columns_and_what_is_in_them(run, stories):
    flags = ["-m", stories, *FLAGS]
    stdout = run("bench", *flags).stdout
    head, rows = cells_of(stdout)
    assert head == ["model", "size MiB", "backend", "device", "threads", "kv", "test", "t/s", "MB/step", "GB/s",
                    "of wall", "load ms", "first token ms"]
    right = [cell.strip() == "---:" for cell in stdout.decode().splitlines()[1].strip("|").split("|")]
    assert [title for title, is_right in zip(head, right) if is_right] == [
        "size MiB", "threads", "t/s", "MB/step", "GB/s", "of wall", "load ms", "first token ms"]
    told = json.loads(run("bench", *flags, "-o", "json").stdout)
    table = run("bench", *flags, "-o", "csv").stdout.decode()
    assert next(csv.reader(io.StringIO(table))) == list(told[0]) == [
        "model", "weight_bytes", "backend", "device", "threads", "kv", "test", "sampling", "n_prompt", "n_gen",
        "n_depth", "repetitions", "avg_ts", "stddev_ts", "steps", "bytes", "gbps", "of_wall", "machine_gbps",
        "machine_tflops", "load_ms", "first_token_ms", "first_token_prompt"]
    assert len(rows) == len(told)
    for cells, it in zip(rows, told):
        row = dict(zip(head, cells))
        assert row["size MiB"] == f"{it['weight_bytes'] / 2**20:.2f}" and row["MB/step"] == f"{it['bytes'] / 1e6:.1f}"
        assert (row["model"], row["backend"], row["kv"]) == (it["model"], it["backend"], it["kv"]) == (
            "stories260K-awq", "cpu", "f16")
        assert (row["device"], row["threads"]) == (it["device"], str(it["threads"]))
        assert it["machine_tflops"] is None and it["machine_gbps"] > 0
        for title, decimals in (("GB/s", 1), ("load ms", 1), ("first token ms", 1)):
            assert re.fullmatch(rf"\d+\.\d{{{decimals}}}", row[title])
        assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row["t/s"])
        assert re.fullmatch(r"\d+\.\d\d\d" if it["n_gen"] else "", row["of wall"])


def test_what_is_measured_where_nothing_is_asked(run, stories):
    """512 tokens prefilled and 128 generated, five times each; one run of a test has no deviation."""
    rows = bench_json(run, "-m", stories, "-p", 1, "-n", 1, "-d", 0)
    assert [(row["test"], row["repetitions"], row["n_depth"]) for row in rows] == [("pp1", 5, 0), ("tg1", 5, 0)]
    rows = bench_json(run, "-m", stories, "-r", 1)
    assert [(row["test"], row["stddev_ts"]) for row in rows] == [("pp512", 0), ("tg128", 0)]
    assert rows[0]["first_token_prompt"] == 512
    rows = bench_json(run, "-m", stories, "-r", 1, "-p", 0, "-n", 3, "--kv", "f32")
    assert [(row["test"], row["first_token_prompt"], row["kv"]) for row in rows] == [("tg3", 1, "f32")]


@pytest.mark.parametrize("flags, needed", [
    (["-p", 500, "-n", 499, "-d", 12], 512),
    (["-p", 513, "-n", 0], 513), (["-p", 1, "-n", 512], 513), (["-p", 501, "-n", 0, "-d", "3,12,4"], 513),
    (["-p", "7,490,8", "-n", "1,500,2", "-d", 12], 513)])
def test_the_longest_test_must_fit_the_context(run, stories, flags, needed):
    process = run("bench", "-m", stories, *flags, "-r", 1, "-t", 1, "--device", "cpu")
    assert process.returncode == (2 if needed > 512 else 0)
    told = f"auk: the longest test takes {needed} positions, {stories} has 512\n" if needed > 512 else ""
    assert process.stderr.decode() == told


def test_times_count_from_the_start_of_the_process(auk, stories):
    """Also what went before the program began: here a shell, whose process it takes over."""
    flags = ["bench", "-m", str(stories), "-p", "1", "-n", "0", "-r", "1", "-t", "1", "--device", "cpu", "-o", "json"]
    start = time.monotonic()
    shell = ["sh", "-c", 'sleep 0.3; exec "$@"', "sh", *auk, *flags]
    row, = json.loads(subprocess.run(shell, capture_output=True, check=True, timeout=60).stdout)
    took = 1000 * (time.monotonic() - start)
    assert 280 < row["load_ms"] < row["first_token_ms"] < took + 20  # the system counts in ticks of 10 ms


def test_a_model_is_called_by_its_last_part(run, stories, tmp_path):
    name = "stories260K-awq"
    assert run("pack", stories, "-o", tmp_path / "small.ak48").returncode == 0
    flags = ["-p", 1, "-n", 0, "-r", 1, "-t", 1, "-o", "json", "--device", "cpu"]
    for path, named, more in (
            (f"{stories}//", name, []), (tmp_path / "small.ak48", "small.ak48", []),
            ("config.json", "config.json (random weights)", ["--dummy-weights"]),
            (f"{stories}/config.json", f"{name} (random weights)", ["--dummy-weights"])):
        process = run("bench", "-m", path, *flags, *more, cwd=stories)
        assert json.loads(process.stdout)[0]["model"] == named


def bench_json(run, *flags):
    process = run("bench", *flags, "-o", "json", "--device", "cpu")
    assert (process.returncode, process.stderr) == (0, b"")
    return json.loads(process.stdout)


def test_the_bytes_of_a_step_are_those_that_it_must_read(run, stories):
    """The bytes of a step: all weights (the head is the embedding), a row of the embedding for each token, and the keys
    and values in the cache: on average those before the middle of an answer."""
    said = json.loads(run("inspect", stories, "--json").stdout)
    weights, row, kv = said["weight_bytes"], 64 * 2, said["kv_bytes_per_token"]["f16"]
    flags = ["-m", stories, "-p", "1,4,400", "-n", 9, "-d", "0,20", "-r", 2]
    rows = {row["test"]: row for row in bench_json(run, *flags)}
    assert {name: row["steps"] for name, row in rows.items()} == {
        "pp1": 1, "pp4": 1, "pp400": 2, "tg9": 9, "pp1 @ d20": 1, "pp4 @ d20": 1, "pp400 @ d20": 2, "tg9 @ d20": 9}
    assert rows["pp4"]["bytes"] == weights + 4 * row
    assert rows["pp4 @ d20"]["bytes"] == weights + 4 * row + 20 * kv
    assert rows["tg9"]["bytes"] == weights + row + (1 + 4) * kv
    assert rows["tg9 @ d20"]["bytes"] == weights + row + (20 + 4) * kv
    assert bench_json(run, *flags, "--kv", "f32")[-1]["bytes"] == weights + row + (20 + 4) * 2 * kv
    for row in rows.values():
        rate = row["bytes"] * row["steps"] * row["avg_ts"] / (row["n_prompt"] + row["n_gen"])
        assert abs(row["gbps"] * 1e9 / rate - 1) < 1e-3
        if row["n_gen"]:
            assert abs(row["of_wall"] / (row["gbps"] / row["machine_gbps"]) - 1) < 1e-3


def test_what_is_sampled_is_said(run, stories):
    flags = ["-m", stories, "-p", 4, "-n", 4, "-r", 1]
    assert [row["sampling"] for row in bench_json(run, *flags)] == ["none", "greedy"]
    # The checkpoint's own settings are not asked.
    sampled = [*flags, "--temp", "0.7", "--top-k", "20", "--top-p", "0.95", "--repeat-penalty", "1.1"]
    rows = bench_json(run, *sampled)
    assert [(row["test"], row["sampling"]) for row in rows] == [
        ("pp4", "none"), ("tg4", "temp 0.7, top-k 20, top-p 0.95, repeat-penalty 1.1")]
    assert "| tg4 (temp 0.7, top-k 20, top-p 0.95, repeat-penalty 1.1) |" in run("bench", *sampled).stdout.decode()
    assert bench_json(run, *flags, "--presence-penalty", 1)[1]["sampling"] == "greedy, presence-penalty 1"
    others = ["--temp", 1, "--min-p", "0.05", "--frequency-penalty", "-0.5", "--top-p", 1, "--top-k", 0,
              "--repeat-penalty", 1]
    assert bench_json(run, *flags, *others)[1]["sampling"] == "temp 1, min-p 0.05, frequency-penalty -0.5"
    assert run("bench", *flags, "--top-p", "1.5").returncode == 2


def test_verbose_says_what_memory_is_taken(run, stories):
    said = json.loads(run("inspect", stories, "--json").stdout)
    process = run("bench", "-m", stories, "-p", 4, "-n", 40, "-r", 1, "-v", "--device", "cpu")
    assert process.returncode == 0 and process.stdout and process.stderr.count(b"\n") == 1
    found = re.fullmatch(r"auk: memory in MB: weights (\S+) as stored, KV cache (\S+), everything else (\S+); "
                         r"(\S+) resident at most\n", process.stderr.decode())
    weights, cache, other, resident = map(float, found.groups())
    assert weights == round(said["weight_bytes"] / 1e6, 1)
    assert cache == round(41 * said["kv_bytes_per_token"]["f16"] / 1e6, 1)
    assert 0 < resident and abs(weights + cache + other - resident) < 0.2


def test_a_zero_is_no_test(run, stories):
    process = run("bench", "-m", stories, "-p", 0, "-n", 4, "-r", 1, "-o", "json")
    assert [row["test"] for row in json.loads(process.stdout)] == ["tg4"]
    for zeros in ([0, 0], ["0,0", 0]):
        process = run("bench", "-m", stories, "-p", zeros[0], "-n", zeros[1])
        assert (process.returncode, process.stdout) == (2, b"")
        assert process.stderr == b"auk: -p 0 and -n 0 leave nothing to measure\n"


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


# --- without weights

DUMMY = ["-p", 8, "-n", 4, "-r", 1, "-t", 1, "-o", "json", "--dummy-weights", "--device", "cpu"]


def bench_dummy(run, path):
    process = run("bench", "-m", path, *DUMMY)
    assert (process.returncode, process.stderr) == (0, b"")
    rows = json.loads(process.stdout)
    assert [row["test"] for row in rows] == ["pp8", "tg4"]
    assert all(row["avg_ts"] > 0 for row in rows)
    return rows[0]


def test_a_config_is_enough(run, stories, tmp_path):
    folder = tmp_path / "Tiny"
    folder.mkdir()
    shutil.copy(stories / "config.json", folder)
    row = bench_dummy(run, folder)
    assert row["model"] == "Tiny (random weights)"
    assert bench_dummy(run, folder / "config.json") == {**row, **{key: ANY for key in TIMES}}
    real = json.loads(run("bench", "-m", stories, "-p", 8, "-n", 0, "-r", 1, "-o", "json").stdout)[0]
    assert row["weight_bytes"] == real["weight_bytes"]


def one_of_each_architecture():
    """A miniature of each architecture with its weights as trained, and one with quantised weights; likewise with
    Mamba-2 layers."""
    found = {}
    for path in sorted((pathlib.Path(__file__).resolve().parents[2] / "data" / "miniatures").glob("*/config.json")):
        config = json.loads(path.read_text())
        mamba = "mamba" in (config.get("layer_types") or [])
        found.setdefault((config["architectures"][0], "quantization_config" in config, mamba), path)
    return list(found.values())


def file_has_hash_numbers(directory):
    return any(b"layer_multipliers" in file.read_bytes() for file in directory.glob("*.safetensors"))


@pytest.mark.parametrize("config", one_of_each_architecture(), ids=lambda config: config.parent.name)
def test_every_architecture_goes_without_weights(run, config):
    row = bench_dummy(run, config.parent)
    report = json.loads(run("inspect", config.parent, "--json").stdout)
    if report["embedding_dtype"] != "F32":  # all that is not quantised has two bytes, as in random weights
        tables = 1024 * report["linear_layers"].get("in_fp4", 0)  # of what scales are, which files do not have
        if report["streams"]:  # and files, unlike random weights, may have the whole numbers that hash n-grams
            n, heads = report["streams"]["ngram_size"], report["streams"]["heads_per_ngram"]
            tables -= 8 * (n + 2 * heads * (n - 1)) * file_has_hash_numbers(config.parent)
        if config.parent.name == "ernie-vl-bf16":
            tables -= 4 * 6  # the bias of six experts of images, in one tensor with that of text's
        assert row["weight_bytes"] == report["weight_bytes"] + tables


# The sizes that the authors publish: layers, hidden, heads and kv heads times head_dim, intermediate, vocabulary, tied
# head, numbers in a layer's norms of q and k, numbers in its biases.
REAL = {
    "Qwen3-0.6B-AWQ": (28, 1024, 16 * 128, 8 * 128, 3072, 151936, True, 2 * 128, 0),
    "Qwen3-1.7B-AWQ": (28, 2048, 16 * 128, 8 * 128, 6144, 151936, True, 2 * 128, 0),
    "Qwen3-4B-AWQ": (36, 2560, 32 * 128, 8 * 128, 9728, 151936, True, 2 * 128, 0),
    "Qwen3-8B-AWQ": (36, 4096, 32 * 128, 8 * 128, 12288, 151936, False, 2 * 128, 0),
    "Qwen3-14B-AWQ": (40, 5120, 40 * 128, 8 * 128, 17408, 151936, False, 2 * 128, 0),
    "Qwen3-32B-AWQ": (64, 5120, 64 * 128, 8 * 128, 25600, 151936, False, 2 * 128, 0),
    "Qwen2.5-7B-Instruct-AWQ": (28, 3584, 28 * 128, 4 * 128, 18944, 152064, False, 0, 28 * 128 + 8 * 128),
    "Llama-3.1-8B-Instruct-AWQ": (32, 4096, 32 * 128, 8 * 128, 14336, 128256, False, 0, 0),
    "Llama-3.2-1B-Instruct-AWQ": (16, 2048, 32 * 64, 8 * 64, 8192, 128256, True, 0, 0),
}


def int4(weights, group):
    """4 bits each, and in each group an fp16 scale and 4 bits of zero point."""
    return weights // 2 + weights // group * 5 // 2


def expected_bytes(layers, hidden, heads, kv_heads, intermediate, vocab, tied, qk_norms, biases,
                   stored=lambda weights: int4(weights, 128)):
    """fp16 embedding, head, norms and biases; a layer's matrices as `stored` says."""
    weights = hidden * (heads + 2 * kv_heads) + heads * hidden + 3 * hidden * intermediate
    layer = stored(weights) + 2 * (2 * hidden + qk_norms + biases)
    return layers * layer + 2 * hidden + 2 * vocab * hidden * (1 if tied else 2)


def expected_bytes_of_qwen3_8(stored):
    return expected_bytes(36, 4096, 32 * 128, 8 * 128, 12288, 151936, False, 2 * 128, 0, stored)


def with_long_context(config):
    longer = {"max_position_embeddings": 1 << 30}
    if "text_config" in config:
        return {**config, "text_config": {**config["text_config"], **longer}}
    return {**config, **longer}


def expected_bytes_of_gemma_4():
    """31B: 50 layers with a window, and 10 with heads of 512 and keys for values; groups of 32; four
    norms, those of q and k, and a scalar; a tied head."""
    hidden, total = 5376, 2 * (5376 + 262144 * 5376)
    for layers, heads, keys_and_values, head in ((50, 32 * 256, 2 * 16 * 256, 256), (10, 32 * 512, 4 * 512, 512)):
        weights = hidden * (heads + keys_and_values) + heads * hidden + 3 * hidden * 21504
        total += layers * (int4(weights, 32) + 2 * (4 * hidden + 2 * head + 1))
    return total


def expected_bytes_of_qwen3_5():
    """27B: 48 layers with the gated delta rule, whose b and a are dense and whose A_log and norm fp32; 16 with
    attention and its gate; groups of 32."""
    hidden, mlp = 5120, 3 * 5120 * 17408
    delta = int4(hidden * (2 * 16 * 128 + 3 * 48 * 128) + mlp, 32) + 2 * 2 * 48 * hidden
    delta += 2 * (10240 * 4 + 48 + 2 * hidden) + 4 * (48 + 128)
    attention = int4(hidden * (3 * 24 * 256 + 2 * 4 * 256) + mlp, 32) + 2 * (2 * 256 + 2 * hidden)
    return 48 * delta + 16 * attention + 2 * hidden + 2 * 2 * 248320 * hidden


def expected_bytes_of_qwen3_moe():
    """30B-A3B: 128 experts of 768, routers dense."""
    hidden = 2048
    layer = int4(hidden * (2 * 4096 + 2 * 512) + 128 * 3 * hidden * 768, 128) + 2 * (128 * hidden + 2 * hidden + 256)
    return 48 * layer + 2 * hidden + 2 * 2 * 151936 * hidden


def expected_bytes_of_qwen3_5_moe():
    """35B-A3B: 30 layers with the gated delta rule, 10 with attention; 256 experts and one for all tokens."""
    hidden, mlp = 2048, 257 * 3 * 2048 * 512
    dense = 2 * (256 * hidden + hidden) + 2 * 2 * hidden
    delta = int4(hidden * (2 * 16 * 128 + 3 * 32 * 128) + mlp, 32) + 2 * 2 * 32 * hidden + dense
    delta += 2 * (8192 * 4 + 32) + 4 * (32 + 128)
    attention = int4(hidden * (3 * 16 * 256 + 2 * 2 * 256) + mlp, 32) + 2 * 2 * 256 + dense
    return 30 * delta + 10 * attention + 2 * hidden + 2 * 2 * 248320 * hidden


def expected_bytes_of_flash_next():
    """36 layers with the gated delta rule, 12 with attention and an index; four streams, whose mixes, n-grams of one
    layer and index are dense; 512 experts and one for all tokens. The table of n-grams does not count."""
    hidden, streams, mlp = 2560, 4 * 2560, 513 * 3 * 2560 * 640
    mix = 2 * streams * 320
    dense = 2 * (512 * hidden + hidden) + 2 * 2 * (mix + 4 * streams + streams)
    delta = int4(hidden * (2 * 16 * 128 + 3 * 48 * 128) + mlp, 128) + 2 * 2 * 48 * hidden + dense
    delta += 2 * (10240 * 4 + 48) + 4 * (48 + 128)
    attention = int4(hidden * (3 * 24 * 256 + 2 * 2 * 256) + mlp, 128) + 2 * (2 * 256 + 2 * 128 + 5 * 128 * hidden)
    ngrams = 2 * (hidden * (streams + hidden) + (4 + 3) * streams)
    return 36 * delta + 12 * (attention + dense) + ngrams + 2 * (mix + streams) + 2 * 2 * 248320 * hidden


def expected_bytes_of_gpt_oss():
    """20b: 32 experts in MXFP4, each matrix with a table of what its scales are; all else fp16 with biases."""
    hidden, experts = 2880, 32 * 3 * 2880 * 2880
    attention = hidden * (2 * 4096 + 2 * 512) + 4096 + 2 * 512 + hidden + 64
    layer = experts // 2 + experts // 32 + 32 * 3 * 1024
    layer += 2 * (attention + 32 * hidden + 32 + 32 * 3 * hidden + 2 * hidden)
    return 24 * layer + 2 * hidden + 2 * 2 * 201088 * hidden


def expected_bytes_of_lfm2():
    """1.2B, all fp16: ten layers with a convolution of three taps, six with attention; a tied head."""
    hidden, mlp, norms = 2048, 3 * 2048 * 8192, 2 * 2048
    convolution = 4 * hidden * hidden + 3 * hidden + mlp + norms
    attention = 2 * hidden * hidden + 2 * hidden * 512 + 2 * 64 + mlp + norms
    return 2 * (10 * convolution + 6 * attention + hidden + 65536 * hidden)


def expected_bytes_of_nemotron_h():
    """3 Nano 30B-A3B: 23 layers with Mamba-2, six of them dense, six with dense attention, 23 with experts."""
    def nvfp4(weights, n=1):  # n matrices, each with a table of what the 256 scales are for
        return weights // 2 + weights // 16 + n * 1024

    hidden, channels = 2688, 4096 + 2 * 8 * 128
    inputs, outputs = (4096 + channels + 64) * hidden, 4096 * hidden
    vectors = 2 * (5 * channels + 3 * 64 + 4096)
    mamba = 17 * nvfp4(inputs + outputs, 2) + 6 * 2 * (inputs + outputs) + 23 * vectors
    attention = 6 * 2 * (2 * 4096 + 2 * 256) * hidden
    experts = nvfp4(2 * (128 * 1856 + 3712) * hidden, 2 * 129) + 2 * 128 * hidden + 4 * 128
    return mamba + attention + 23 * experts + 2 * 53 * hidden + 2 * 2 * 131072 * hidden


def expected_bytes_of_glm_flash():
    """4.7-Flash: latent attention, whose keys' part of kv_b_proj is also kept in fp16, transposed; the first layer has
    an MLP, the others 64 experts of 1536 and one for all tokens."""
    hidden, heads = 2048, 20
    latents = hidden * (768 + 512 + 64) + 768 * heads * 256 + 512 * heads * (192 + 256) + heads * 256 * hidden
    attention = int4(latents, 128) + 2 * heads * 512 * 192 + 2 * (2 * hidden + 768 + 512)
    experts = int4(65 * 3 * hidden * 1536, 128) + 2 * 64 * hidden + 4 * 64
    mlp = int4(3 * hidden * 10240, 128)
    return 47 * attention + mlp + 46 * experts + 2 * hidden + 2 * 2 * 154880 * hidden


def test_the_configurations_of_real_models_are_theirs(run, root, tmp_path):
    """None is run: a context of a billion tokens fits no memory, and the refusal says what the weights would take."""
    folders = sorted((root / "test" / "data" / "configs").iterdir())
    expected = {**{name: expected_bytes(*sizes) for name, sizes in REAL.items()},
                "GLM-4.7-Flash-AWQ": expected_bytes_of_glm_flash(),
                "LFM2-1.2B": expected_bytes_of_lfm2(),
                "Qwen3-8B-W4A16-G32": expected_bytes_of_qwen3_8(lambda weights: int4(weights, 32)),
                "Qwen3-8B-FP8": expected_bytes_of_qwen3_8(lambda weights: weights + weights // 128 ** 2 * 4),
                # an fp32 scale for each output of qkv, o, gate and up, down
                "Qwen3-8B-W8A8": expected_bytes_of_qwen3_8(lambda weights: weights + 4 * (6144 + 4096 + 24576 + 4096)),
                # with a table of what the 256 scales are for each of the seven matrices
                "Qwen3-8B-NVFP4": expected_bytes_of_qwen3_8(lambda weights: weights // 2 + weights // 16 + 7 * 1024),
                "Qwen3.8-27B-INT4": expected_bytes_of_qwen3_5(),
                "Qwen3-30B-A3B-AWQ": expected_bytes_of_qwen3_moe(),
                "Qwen3.6-35B-A3B-INT4": expected_bytes_of_qwen3_5_moe(),
                "Qwen3.8-Flash-Next-INT4": expected_bytes_of_flash_next(),
                "gpt-oss-20b": expected_bytes_of_gpt_oss(),
                "Nemotron-3-Nano-30B-A3B-NVFP4": expected_bytes_of_nemotron_h(),
                "gemma-4-31B-it-qat-w4a16-ct": expected_bytes_of_gemma_4()}
    assert [folder.name for folder in folders] == sorted(expected)
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(with_long_context(config)))
        process = run("bench", "-m", tmp_path, "--dummy-weights", "-p", 1000000000, "--device", "cpu")
        assert (process.returncode, process.stdout) == (1, b"")
        assert process.stderr.startswith(b"auk: not enough memory: ") and process.stderr.count(b"\n") == 1
        assert f"weights {expected[folder.name]},".encode() in process.stderr


def test_what_is_no_config_is_refused(run, stories, tmp_path):
    missing = run("bench", "-m", tmp_path, "--dummy-weights")
    assert missing.returncode == 3 and b"config.json" in missing.stderr
    other = run("bench", "-m", stories / "model.safetensors", "--dummy-weights")
    assert other.returncode == 3 and b"model.safetensors" in other.stderr
    flag = run("bench", "-m", stories, "--dummy-weights", "--rope-theta", 10000)
    assert flag.returncode == 2 and b"--rope-theta" in flag.stderr


# --- kernels

def test_kernels_need_a_gpu(run, stories):
    process = run("bench", "-m", stories, "--kernels", "--device", "cpu")
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr.count(b"\n") == 1 and b"GPU" in process.stderr


def test_kernels_take_rows_alone(run, stories):
    for flags, word in ((["-n", 4], b"-n"), (["-d", 4], b"-d"), (["-p", "4,0"], b"-p 0")):
        process = run("bench", "-m", stories, "--kernels", *flags)
        assert process.returncode == 2 and word in process.stderr


# --- many sequences at once

def test_sequences_at_once_have_a_row_a_count(run, stories):
    flags = ["-m", stories, "--parallel", "1,4", "-p", 16, "-n", 8, "-r", 1, "-t", 1, "--device", "cpu"]
    rows = json.loads(run("bench", *flags, "-o", "json").stdout)
    assert [(row["parallel"], row["n_prompt"], row["n_gen"]) for row in rows] == [(1, 16, 8), (4, 16, 8)]
    assert all(row[rate] > 0 for row in rows for rate in ("prompt_ts", "answer_ts", "total_ts", "step_ms", "of_wall"))
    alone, together = rows
    assert together["step_flop"] == 4 * alone["step_flop"]
    assert alone["step_bytes"] < together["step_bytes"] < 4 * alone["step_bytes"]  # the weights are read once
    head, cells = cells_of(run("bench", *flags).stdout)
    assert [row[head.index("parallel")] for row in cells] == ["1", "4"]


@pytest.mark.parametrize("flags, words", [
    (["-d", 3], b"-d does not go with --parallel"),
    (["-p", 16, "-n", 8000], b"take 8016 positions, stories260K-awq has 512"),
    (["-p", 0], b"each is at least 1"),
    (["--kernels"], b"--parallel is for whole models"),
])
def test_sequences_at_once_need_prompts_and_answers_that_fit(run, stories, flags, words):
    process = run("bench", "-m", stories, "--parallel", 4, "--device", "cpu", *flags)
    assert (process.returncode, process.stdout) == (2, b"") and words in process.stderr
