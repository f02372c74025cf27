"""Answers as JSON: --json, --jsonl-stream, --ids."""
import json
import signal

import pytest

PROMPT = "Once upon a time"
STORY = (", there was a little girl named Lily. She loved to play outside in the sunshine. One day, she saw a big, red "
         "ball in the sky. It was a big, red ball. She")


@pytest.fixture
def ask(run, stories):
    def get(*flags, model=stories, **options):
        return run("-m", model, "--raw", "-p", PROMPT, *flags, **options)

    return get


@pytest.fixture
def objects(ask):
    """objects(*flags): what each line of an answer says."""

    def get(*flags, status=0, **options):
        process = ask(*flags, **options)
        assert (process.returncode, process.stderr) == (status, b""), process.stderr
        assert process.stdout.endswith(b"}\n")
        return [json.loads(line) for line in process.stdout.splitlines()]

    return get


def test_an_answer_is_one_object(objects):
    (it,) = objects("-n", 60, "--json", "--temp", 1, "--top-k", 1, "-s", 7)
    assert it["text"] == STORY
    assert it["finish_reason"] == "length"
    counts = {"prompt_tokens": 5, "reused_tokens": 0, "completion_tokens": 60, "thinking_tokens": 0}
    assert {name: it["usage"][name] for name in counts} == counts
    assert set(it["usage"]) - set(counts) == {"guessed_tokens", "accepted_tokens", "tokens_per_step"}
    assert it["seed"] == 7
    assert set(it["timings"]) == {"prompt_ms", "first_token_ms", "decode_ms", "prompt_per_second",
                                  "decode_per_second"}
    assert it["timings"]["decode_ms"] > 0
    assert it["model"] == "stories260K-awq"
    assert set(it) == {"text", "finish_reason", "usage", "timings", "seed", "model"}


def test_the_first_token_comes_after_the_prompt(objects):
    """Both times are from the beginning of the prompt. A fast machine picks a token in half a microsecond, which
    three decimals may not show; five answers in a row without a difference are a clock that is read once."""
    for _ in range(5):
        times = objects("-n", 1, "--json")[0]["timings"]
        assert 0 < times["prompt_ms"] <= times["first_token_ms"]
        if times["prompt_ms"] < times["first_token_ms"]:
            return
    pytest.fail("the first token takes no time")


def test_ids_are_those_of_prompt_and_answer(objects, run, stories):
    (it,) = objects("-n", 60, "--json", "--ids")
    told = run("tokenize", "-m", stories, PROMPT).stdout.split()
    assert it["prompt_ids"] == [int(word) for word in told]
    assert len(it["ids"]) == 60 and it["ids"][:5] == [432, 383, 286, 261, 376]
    text = run("tokenize", "-m", stories, "--decode", input=" ".join(map(str, it["prompt_ids"] + it["ids"])).encode())
    assert text.stdout.decode().endswith(STORY), text.stderr


def test_every_end_has_its_name(objects, variant):
    assert objects("-n", 60, "--json", "--stop", "Lily")[0]["finish_reason"] == "stop"
    assert objects("-n", 60, "--json", "--stop", "Lily")[0]["text"] == STORY[:STORY.index("Lily")]
    ends = variant(generation={"eos_token_id": 376}, name="ends")
    (it,) = objects("--json", "--ids", model=ends)
    assert it["finish_reason"] == "eos" and it["ids"] == [432, 383, 286, 261]  # an end token is no part of it


def test_the_context_that_is_full_is_an_end_too(ask):
    process = ask("--json", "-c", 30, "--ignore-eos")
    assert json.loads(process.stdout)["finish_reason"] == "context"


def test_an_answer_in_circles_goes_on_where_its_length_or_its_end_is_given(run, variant):
    model = variant(config={"max_position_embeddings": 20000}, generation={"eos_token_id": None}, name="circles")
    flags = ["-m", model, "--raw", "-t", 1, "-p", PROMPT, "--json", "-c", 900, "--repeat-penalty", "0.01"]

    def end(*more):
        it = json.loads(run(*flags, *more).stdout)
        return it["finish_reason"], it["usage"]["completion_tokens"]

    reason, n = end()
    assert reason == "repetition" and n < 700
    assert end("-n", 700) == ("length", 700)
    reason, n = end("--ignore-eos")
    assert reason == "context" and n > 890


def test_a_seed_of_its_own_is_one_that_json_keeps(objects):
    (first,) = objects("-n", 40, "--temp", 1.2, "--json")
    assert first["seed"] < 2**53
    (again,) = objects("-n", 40, "--temp", 1.2, "--json", "-s", first["seed"])
    assert again["text"] == first["text"]


def test_a_stream_gives_the_pieces_and_then_the_object(objects):
    *pieces, whole = objects("-n", 60, "--jsonl-stream", "--ids")
    assert len(pieces) > 30 and all(set(piece) == {"text"} for piece in pieces)
    assert "".join(piece["text"] for piece in pieces) == whole["text"] == STORY
    assert len(whole["ids"]) == 60


def test_an_object_goes_to_a_file_too(ask, tmp_path):
    assert ask("-n", 10, "--json", "-o", tmp_path / "out").stdout == b""
    assert json.loads((tmp_path / "out").read_text())["text"] == STORY[:36]


def test_an_interrupted_answer_is_an_object_still(start, endless):
    process = start(*endless, "--jsonl-stream")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    *pieces, whole = [json.loads(line) for line in process.stdout]
    assert process.wait(60) == 130
    assert whole["finish_reason"] == "interrupted"
    assert whole["text"].endswith("".join(piece["text"] for piece in pieces))


def test_a_broken_character_is_valid_json_still(ask):
    """At this temperature tokens of single bytes come, which are no characters."""
    process = ask("-n", 300, "--temp", 1000, "-s", 5, "--json", "--ignore-eos")
    assert "\ufffd" in json.loads(process.stdout.decode())["text"]
