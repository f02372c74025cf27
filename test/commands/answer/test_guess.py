"""--guess and --draft: the same answers in fewer steps; draft models that do not fit are refused by name."""
import json

import pytest

LIST = "one two three one two three one two three one two three one two"


@pytest.fixture
def answer(run):
    """answer(model, *flags): the object of --json."""

    def make(model, *flags):
        done = run("-m", model, "--raw", "-t", 1, "--json", "--ids", "-n", 60, "-p", LIST, *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return make


def same(found, want):
    return found["ids"] == want["ids"] and found["finish_reason"] == want["finish_reason"]


@pytest.mark.parametrize("name", ["stories260K-awq", "miniatures/qwen3_5-awq", "miniatures/lfm2-bf16",
                                  "miniatures/gpt-oss-bf16", "miniatures/gemma3-awq",
                                  "miniatures/qwen4-exp-bf16"])
@pytest.mark.parametrize("flags", [["--temp", 0], ["--temp", 0.3, "-s", 5, "--repeat-penalty", 1.01],
                                   ["--temp", 1.5, "-s", 6, "--frequency-penalty", 0.1, "--logprobs", 2]])
def test_answers_are_those_without_guesses(answer, root, name, flags):
    model = root / "test" / "data" / name
    plain = answer(model, *flags, "--guess", 0)
    assert "guessed_tokens" not in plain["usage"]
    guessed = answer(model, *flags)
    assert same(guessed, plain) and guessed.get("logprobs") == plain.get("logprobs")
    assert guessed["usage"]["accepted_tokens"] <= guessed["usage"]["guessed_tokens"]
    drafted = answer(model, *flags, "--draft", model)
    assert same(drafted, plain) and drafted["usage"]["tokens_per_step"] >= 1


def test_a_text_that_repeats_takes_fewer_steps(answer, stories, run):
    flags = ["--temp", 0, "--frequency-penalty", -100]  # the model repeats itself
    # How many tokens are guessed at once depends on measured times: any number above 0 is right here (39 on an idle
    # machine, 12 on a busy one). test_guessing.c has the numbers for given times.
    usage = answer(stories, *flags)["usage"]
    assert usage["accepted_tokens"] > 0 and usage["tokens_per_step"] > 1
    shown = run("-m", stories, "--raw", "-t", 1, "-n", 60, "-p", LIST, "-u", *flags).stderr.decode()
    assert " tokens guessed, " in shown and " a step; end: " in shown
    shown = run("-m", stories, "--raw", "-t", 1, "-n", 60, "-p", LIST, "-u", *flags, "--guess", 0).stderr.decode()
    assert "guessed" not in shown


def test_many_at_once_bring_their_guesses_along(run, root, stories):
    def answers(*flags):
        repeats = ["--temp", 0, "--frequency-penalty", -100]
        done = run("-m", stories, "--raw", "-t", 1, "--json", "--ids", "-n", 60, *repeats, "--map", "-", *flags,
                   input=b"Once upon a time\nOne day\nThe dog and the cat\nA girl\n")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    plain = answers("--guess", 0)
    for flags in (["--parallel", 3], ["--parallel", 1], ["--parallel", 2, "--guess", 4], ["--draft", stories],
                  ["--draft", stories, "--parallel", 2]):
        found = answers(*flags)
        assert [one["ids"] for one in found] == [one["ids"] for one in plain]
        # The first text that repeats is guessed by the costs as they are given; later ones by measured times, which
        # on a busy machine may say that guesses do not pay.
        assert any(one["usage"]["guessed_tokens"] > 0 for one in found) or "--draft" in flags
    hybrid = root / "test" / "data" / "miniatures" / "qwen3_5-awq"
    flags = ["-m", hybrid, "--raw", "-n", 4, "--draft", hybrid, "--map", "-", "--parallel"]
    refused = run(*flags, 2, input=b"A\n")
    assert refused.returncode == 2
    assert b"--parallel 2: with --draft a model with recurrent states answers one at a time" in refused.stderr
    assert run(*flags, 0, input=b"A\n").returncode == 0


def test_a_draft_model_has_to_fit(run, root, stories, variant):
    def refused(*flags):
        done = run("-m", stories, "--raw", "-p", "Once", "-n", 4, *flags)
        assert done.stdout == b""
        return done.returncode, done.stderr.decode()

    other = root / "test" / "data" / "miniatures" / "qwen3_5-awq"
    status, message = refused("--draft", other)
    assert status == 3 and "auk: --draft qwen3_5-awq has another vocabulary: " in message

    def renamed(tokenizer):
        vocab = tokenizer["model"]["vocab"]
        first, second = list(vocab)[300:302]
        vocab[first], vocab[second] = vocab[second], vocab[first]
        return tokenizer

    status, message = refused("--draft", variant(tokenizer=renamed))
    assert status == 3 and "--draft variant has another vocabulary: its token " in message
    assert refused("--draft", "nowhere/at-all")[0] != 0
    assert refused("--draft", stories, "--guess", 0) == (2, "auk: --draft does not go with --guess 0\n")
    assert refused("--guess", 16)[0] == 2
