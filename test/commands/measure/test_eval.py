"""`auk eval` on the tiny trained model: what it prints against what it writes, windows, ids of all kinds."""
import json
import os
import re
import resource
import subprocess

import numpy as np
import pytest
from terminals import read_all

LINE = re.compile(rb"tokens=(\d+) scored=(\d+) nll=(\S+) ppl=(\S+)\n")


@pytest.fixture
def ids(tmp_path):
    """Some ids and their file: not text, but nothing here needs any."""
    values = [1] + [(i * i * 7 + i * 3) % 509 + 3 for i in range(199)]
    path = tmp_path / "ids"
    path.write_text(" ".join(map(str, values)))
    return values, path


@pytest.fixture
def evaluate(run, stories, tmp_path):
    """evaluate(*flags): (tokens, scored, nll, ppl, logits)."""

    def get(*flags, model=stories, **options):
        out = tmp_path / "logits.npy"
        process = run("eval", "-m", model, "--logits-out", out, *flags, **options)
        assert (process.returncode, process.stderr) == (0, b"")
        found = LINE.fullmatch(process.stdout)
        return int(found[1]), int(found[2]), float(found[3]), float(found[4]), np.load(out)

    return get


def test_json_says_the_same(run, stories, ids):
    flags = ["eval", "-m", stories, "--ids-file", ids[1]]
    line = LINE.fullmatch(run(*flags).stdout)
    assert json.loads(run(*flags, "--json").stdout) == {
        "tokens": int(line[1]), "scored": int(line[2]), "nll": float(line[3]), "ppl": float(line[4])}
    ids[1].write_text("1")
    one = run(*flags, "--json", "--logits-out", ids[1].parent / "one.npy")
    assert json.loads(one.stdout) == {"tokens": 1, "scored": 0, "nll": None, "ppl": None}


def mean_nll(logits, ids, window):
    logits = logits.astype(np.float64)
    top = logits.max(axis=1)
    log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
    scored = [log_sum[i] - logits[i, ids[i + 1]] for i in range(len(ids) - 1) if (i + 1) % window]
    return len(scored), float(np.mean(scored))


@pytest.mark.parametrize("window", [0, 200, 64, 50, 2])
def test_the_line_says_what_the_logits_say(evaluate, ids, window):
    values, path = ids
    n, scored, nll, ppl, logits = evaluate("--ids-file", path, "--window", window)
    assert (n, logits.shape, logits.dtype) == (200, (200, 512), np.dtype("<f4"))
    want_scored, want = mean_nll(logits, values, window or 200)
    assert scored == want_scored
    # Nine decimals are printed; double sums of 200 numbers near 10 differ by 1e-12 at most.
    assert abs(nll - want) < 1e-9
    assert ppl == pytest.approx(np.exp(want), rel=1e-7)


def test_what_scores_no_token_is_refused(run, stories, ids, tmp_path):
    (tmp_path / "one").write_text("5")
    some, one = ["--ids-file", ids[1]], ["--ids-file", tmp_path / "one"]
    for flags, why in (([*some, "--window", 1], b"--window 1"), ([*some, "--max-tokens", 1], b"one token"),
                       (one, b"one token")):
        process = run("eval", "-m", stories, *flags)
        assert (process.returncode, process.stdout) == (2, b"")
        assert process.stderr.startswith(b"auk: " + why + b", and the first token of a window is not scored")


def test_windows_are_evaluations_of_their_own(evaluate, ids, tmp_path):
    values, path = ids
    *_, logits = evaluate("--ids-file", path, "--window", 64)
    for begin in range(0, 200, 64):
        part = tmp_path / "part"
        part.write_text(" ".join(map(str, values[begin : begin + 64])))
        assert np.array_equal(evaluate("--ids-file", part)[-1], logits[begin : begin + 64])


def test_chunks_agree(evaluate, ids):
    """On the CPU a row has the same bits whatever rows are beside it."""
    flags = ("--ids-file", ids[1], "--kv", "f32", "--device", "cpu")
    *_, whole = evaluate(*flags)
    for chunk in (1, 7, 64, 65, 300):
        *_, logits = evaluate(*flags, "--chunk", chunk)
        assert np.array_equal(logits, whole), chunk


def test_ids_may_be_separated_by_any_white_space(evaluate, ids, tmp_path):
    values, path = ids
    *_, want = evaluate("--ids-file", path)
    odd = tmp_path / "odd"
    odd.write_text("\n  " + "\r\n\t ".join(f"{it:05d}" for it in values) + "\n")
    assert np.array_equal(evaluate("--ids-file", odd)[-1], want)
    assert np.array_equal(evaluate("--ids-file", "-", input=path.read_bytes())[-1], want)


def test_fewer_tokens_and_one_token(evaluate, ids):
    n, scored, nll, _, logits = evaluate("--ids-file", ids[1], "--max-tokens", 10)
    assert (n, scored, len(logits)) == (10, 9, 10)
    n, scored, nll, ppl, logits = evaluate("--ids-file", ids[1], "--max-tokens", 1)
    assert (n, scored, len(logits)) == (1, 0, 1)
    assert np.isnan(nll) and np.isnan(ppl)


def test_a_text_is_its_ids(evaluate, run, stories, tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time, there was a little girl named Lily.\nShe loved to play outside.")
    n, _, nll, _, logits = evaluate("-f", text)
    line = json.dumps({"text": text.read_text(), "add_special": True, "parse_special": False})
    tokens = run("tokenize", "-m", stories, "--jsonl", input=line.encode() + b"\n").stdout
    (tmp_path / "ids").write_text(" ".join(map(str, json.loads(tokens)["ids"])))
    again = evaluate("--ids-file", tmp_path / "ids")
    assert (n, nll) == (again[0], again[2])
    assert np.array_equal(logits, again[-1])
    assert nll < 2  # it was trained on such stories; chance is ln 512 = 6.2
    assert evaluate("-f", "-", input=text.read_bytes())[2] == nll


@pytest.mark.parametrize("text, message", [
    ("1 2 x 4", rb'token 2, at byte 4, is "x", expected'),
    ("1 2 3.0", rb"token 2"),
    ("1 -2", rb"token 1"),
    ("1 512", rb"token 1 has id 512, expected one below 512"),
    ("1 4294967297", rb"token 1"),
    ("1 99999999999999999999999", rb"token 1"),
    ("1; 2", rb"token 0"),
    ("", rb"no tokens"),
    (" \n", rb"no tokens"),
])
def test_ids_that_are_none_are_refused(run, stories, tmp_path, text, message):
    (tmp_path / "ids").write_text(text)
    process = run("eval", "-m", stories, "--ids-file", tmp_path / "ids", "--logits-out", tmp_path / "out.npy")
    assert process.returncode == 2
    assert message in process.stderr and process.stderr.count(b"\n") == 1
    assert process.stdout == b""
    assert not (tmp_path / "out.npy").exists()


def test_standard_input_is_called_so(run, stories):
    for text, message in (("", "no tokens"), ("1 x\n", 'token 1, at byte 2, is "x"'), ("512", "token 0 has id 512")):
        process = run("eval", "-m", stories, "--ids-file", "-", input=text.encode())
        assert process.returncode == 2 and process.stderr.decode().startswith(f"auk: standard input: {message}")


def test_one_source_of_tokens_is_needed(run, stories, ids):
    assert run("eval", "-m", stories).returncode == 2
    assert run("eval", "-m", stories, "--ids-file", ids[1], "-f", ids[1]).returncode == 2
    assert run("eval", "-m", stories, "--ids-file", ids[1], "--parse-special").returncode == 2


def test_more_tokens_than_positions_need_windows(run, stories, tmp_path, evaluate):
    path = tmp_path / "many"
    path.write_text(" ".join(["5"] * 600))
    process = run("eval", "-m", stories, "--ids-file", path)
    assert process.returncode == 2
    assert b"600" in process.stderr and b"512" in process.stderr and b"--window" in process.stderr
    assert run("eval", "-m", stories, "--ids-file", path, "--window", 513).returncode == 2
    assert evaluate("--ids-file", path, "--window", 512)[:2] == (600, 598)


def test_a_directory_needs_its_tokenizer_and_a_packed_file_does_not(run, variant, stories, ids, packed_alone):
    bare = variant(tokenizer=None, name="bare")
    process = run("eval", "-m", bare, "--ids-file", ids[1])
    assert process.returncode == 3
    assert b"tokenizer.json" in process.stderr
    given = run("eval", "-m", bare, "--ids-file", ids[1], "--tokenizer", stories / "tokenizer.json")
    assert given.returncode == 0
    flags = ["eval", "-m", packed_alone(stories), "--rope-theta", 10000, "--norm-eps", 1e-5]
    assert run(*flags, "--ids-file", ids[1]).stdout == given.stdout
    process = run(*flags, "-f", ids[1])
    assert process.returncode == 3
    assert b"tokenizer" in process.stderr


def leftovers(folder):
    return sorted(it.name for it in folder.iterdir())


def test_a_file_that_cannot_be_written_leaves_what_was_there(auk, stories, ids, tmp_path):
    """The limit of a process on file sizes stands for a full disk: 200 rows of 2 KB do not go into 100 KB."""
    out = tmp_path / "out" / "logits.npy"
    out.parent.mkdir()
    out.write_bytes(b"old")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [*auk, "eval", "-m", stories, "--ids-file", ids[1], "--logits-out", out]
    process = subprocess.run(command, capture_output=True, timeout=60, preexec_fn=small_files,
                             restore_signals=False)  # SIGXFSZ stays ignored
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1 and b"logits.npy" in process.stderr
    assert process.stdout == b""
    assert out.read_bytes() == b"old"
    assert leftovers(out.parent) == ["logits.npy"]


def test_the_logits_begin_at_a_multiple_of_64(run, stories, ids, tmp_path):
    """A NumPy file of version 1.0, whose header fills 128 bytes."""
    out = tmp_path / "x.npy"
    assert run("eval", "-m", stories, "--ids-file", ids[1], "--max-tokens", 7, "--logits-out", out).returncode == 0
    raw = out.read_bytes()
    assert raw[:10] == b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") and raw[127:128] == b"\n"
    assert raw[10:127].rstrip() == b"{'descr': '<f4', 'fortran_order': False, 'shape': (7, 512), }"
    assert len(raw) == 128 + 7 * 512 * 4


def test_the_line_has_nine_digits(run, stories, ids):
    process = run("eval", "-m", stories, "--ids-file", ids[1], "--window", 3, "--max-tokens", 7)
    found = re.fullmatch(r"tokens=7 scored=4 nll=(\d+\.\d{9}) ppl=(\S+)\n", process.stdout.decode())
    assert found and found[2] == f"{float(found[2]):.9g}" and len(found[2].replace(".", "")) > 6


def test_progress_is_told_on_a_terminal_and_taken_off_it(auk, stories, ids):
    """A line for each 64 tokens of a window, with the number of tokens before it."""
    parent, child = os.openpty()
    command = [*auk, "eval", "-m", str(stories), "--ids-file", str(ids[1]), "--window", "150", "-t", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, stdin=subprocess.DEVNULL)
    os.close(child)
    out = process.stdout.read()
    seen = read_all(parent).decode()
    os.close(parent)
    assert process.wait(60) == 0 and LINE.fullmatch(out)
    assert seen == "".join(f"\r\x1b[K{n} of 200 tokens" for n in (0, 64, 128, 150)) + "\r\x1b[K"


def test_ids_may_stand_in_brackets(evaluate, ids, tmp_path):
    values, path = ids
    (tmp_path / "list").write_text(str(values))
    assert evaluate("--ids-file", tmp_path / "list")[:4] == evaluate("--ids-file", path)[:4]


def test_devices_are_written_directly(run, stories, ids):
    process = run("eval", "-m", stories, "--ids-file", ids[1], "--logits-out", "/dev/full")
    assert process.returncode == 1
    assert b"/dev/full" in process.stderr
    assert run("eval", "-m", stories, "--ids-file", ids[1], "--logits-out", "/dev/null").returncode == 0


def test_a_folder_that_is_not_there_is_named(run, stories, ids, tmp_path):
    process = run("eval", "-m", stories, "--ids-file", ids[1], "--logits-out", tmp_path / "no" / "logits.npy")
    assert process.returncode == 1
    assert b"logits.npy" in process.stderr
