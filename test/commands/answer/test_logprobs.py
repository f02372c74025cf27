"""--logprobs N against the logits of `auk eval`: alone and at once with others, of tokens that are drawn and of tokens
that are forced."""
import json
import math
import struct

import pytest

FORM = ["--json-schema", json.dumps({"const": {"sentence": "Once upon a time, there was a girl."}})]


@pytest.fixture
def logits(run, stories, tmp_path):
    """logits(ids): a row for each."""

    def rows(ids):
        (tmp_path / "ids.txt").write_text(" ".join(map(str, ids)))
        done = run("eval", "-m", stories, "-t", 1, "--kv", "f16", "--ids-file", tmp_path / "ids.txt", "--logits-out",
                   tmp_path / "it.npy")
        assert done.returncode == 0, done.stderr
        data = (tmp_path / "it.npy").read_bytes()
        data = data[10 + struct.unpack_from("<H", data, 8)[0]:]
        n = len(data) // 4 // len(ids)
        return [struct.unpack_from(f"<{n}f", data, 4 * n * i) for i in range(len(ids))]

    return rows


def check(result, logits, n):
    prompt, ids, tokens = result["prompt_ids"], result["ids"], result["logprobs"]
    assert [token["id"] for token in tokens] == ids and len(ids) > 5
    rows = logits(prompt + ids)[len(prompt) - 1:]
    for token, row in zip(tokens, rows):
        top = max(row)
        every = top + math.log(sum(math.exp(x - top) for x in row))
        best = sorted(range(len(row)), key=lambda id: (-row[id], id))[:n]
        assert token["logprob"] == pytest.approx(row[token["id"]] - every, abs=5e-6)
        assert [one["logprob"] for one in token["top"]] == pytest.approx([row[id] - every for id in best], abs=5e-6)
        assert len({one["id"] for one in token["top"]}) == n


@pytest.mark.parametrize("form", [[], FORM])
def test_they_are_those_of_the_models_logits(run, stories, logits, form):
    flags = ["-m", stories, "--raw", "-t", 1, "--json", "--ids", "--logprobs", 3, "--temp", 2, "-s", 1, "-n", 12, *form]
    alone = run(*flags, "-p", "Once upon a time")
    assert alone.returncode == (4 if form else 0), alone.stderr  # -n cuts the form
    check(json.loads(alone.stdout), logits, 3)
    for n_at_once in (1, 3):
        many = run(*flags, "--map", "-", "--parallel", n_at_once, input=b"Once upon a time\nThe dog\nA girl\n")
        found = [json.loads(line) for line in many.stdout.decode().splitlines()]
        assert len(found) == 3 and found[0]["logprobs"] == json.loads(alone.stdout)["logprobs"]
        for result in found:
            check(result, logits, 3)


def test_forced_text_is_the_same_with_them(run, stories):
    flags = ["-m", stories, "--raw", "-t", 1, "-p", "Once", "--json", "--ids", "--temp", 1, "-s", 1, *FORM]
    plain, scored = json.loads(run(*flags).stdout), json.loads(run(*flags, "--logprobs", 2).stdout)
    assert plain["ids"] == scored["ids"]
    assert plain["usage"]["completion_tokens"] == scored["usage"]["completion_tokens"]  # computed in other steps
    assert len(scored["logprobs"]) == len(scored["ids"]) and "logprobs" not in plain


def test_they_need_json(run, stories):
    done = run("-m", stories, "--raw", "-p", "Once", "--logprobs", 2)
    assert done.returncode == 2 and b"--logprobs needs --json or --jsonl-stream" in done.stderr
