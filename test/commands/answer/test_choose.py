"""`auk --choose` on the tiny trained model: scores against the logits of `auk eval` over prompt and answer as one
text."""
import json
import os
import pty
import re

import numpy as np
import pytest

PROMPT = "One day, Lily saw a"
ANSWERS = [" big red ball", " dog", " cat.", " little girl named Lily who loved to play"]


@pytest.fixture
def choose(run, stories):
    """choose(*flags): the object that --json prints."""

    def get(*flags, model=stories, prompt=PROMPT):
        process = run("-m", model, "--raw", "-p", prompt, "--json", *flags)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return get


@pytest.fixture
def reference(run, stories, tmp_path):
    """reference(prompt, answers): {answer: log-probabilities of its tokens}, by `auk eval` and `auk tokenize`."""

    def get(prompt, answers, *flags):
        def ids_of(text):
            return [int(word) for word in run("tokenize", "-m", stories, "-p", text, *flags).stdout.split()]

        encoded = [ids_of(prompt)] + [ids_of(prompt + answer) for answer in answers]
        common = len(os.path.commonprefix(encoded))
        scores = {}
        for answer, ids in zip(answers, encoded[1:]):
            (tmp_path / "ids").write_text(" ".join(map(str, ids)))
            process = run("eval", "-m", stories, "--ids-file", tmp_path / "ids", "--logits-out",
                          tmp_path / "logits.npy")
            assert process.returncode == 0, process.stderr
            logits = np.load(tmp_path / "logits.npy").astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            scores[answer] = [log_p[i - 1, ids[i]] for i in range(common, len(ids))]
        return scores

    return get


def choices(answers):
    return [word for answer in answers for word in ("--choice", answer)]


def assert_scores(found, want):
    """The same logits in double, printed with nine digits: an error of 5e-9 of a sum; the exponentials differ by
    less."""
    assert [score["text"] for score in found["scores"]] == list(want)
    for score, log_p in zip(found["scores"], want.values()):
        assert score["tokens"] == len(log_p)
        assert score["sum"] == pytest.approx(sum(log_p), rel=1e-8)
        assert score["mean"] == pytest.approx(sum(log_p) / len(log_p), rel=1e-8)
    total = sum(np.exp(sum(log_p)) for log_p in want.values())
    for score, log_p in zip(found["scores"], want.values()):
        assert score["probability"] == pytest.approx(np.exp(sum(log_p)) / total, rel=1e-6)


def test_scores_are_those_of_the_logits(choose, reference):
    want = reference(PROMPT, ANSWERS)
    found = choose(*choices(ANSWERS))
    assert_scores(found, want)
    best = max(want, key=lambda answer: sum(want[answer]))
    assert found["choice"] == best and found["choice_index"] == ANSWERS.index(best)
    by_mean = choose(*choices(ANSWERS), "--choose-by", "mean")
    best_mean = max(want, key=lambda answer: np.mean(want[answer]))
    assert by_mean["choice"] == best_mean != best, "both agree: the test looks at nothing"
    assert by_mean["scores"] == found["scores"]


def test_many_tokens_are_scored_in_steps(choose, reference):
    """More than the rows of logits that are held at a time, and than one step of the session."""
    answers = [" ball. " + "She was happy. " * 30, " dog"]
    assert_scores(choose(*choices(answers)), reference(PROMPT, answers))


def test_what_meets_at_the_border_is_one_text(choose, reference):
    """The tokenizer joins the end of the prompt with the beginning of an answer, and not of every one."""
    prompt, answers = "One day, Lily s", ["aw a dog", "aid, Hi", "."]
    found = choose(*choices(answers), prompt=prompt)
    assert_scores(found, reference(prompt, answers))
    assert found["usage"]["prompt_tokens"] < choose("--choice", ".", prompt=prompt)["usage"]["prompt_tokens"]


def test_lists_are_split_at_commas_and_blanks_around_them_dropped(choose):
    found = choose("--choose", "yes, no ,\tmaybe not", "--choose", "or,so", "--choice", " a, b ")
    assert [score["text"] for score in found["scores"]] == ["yes", "no", "maybe not", "or", "so", " a, b "]


def test_the_best_alone_is_printed_as_a_line(run, stories, tmp_path):
    """Wherever it goes: lines of several calls are read as lines."""
    flags = ["-m", stories, "--raw", "-p", PROMPT, *choices(ANSWERS)]
    process = run(*flags)
    assert (process.returncode, process.stdout, process.stderr) == (0, b" dog\n", b"")
    assert run(*flags, "-u").stderr.startswith(b"auk: prompt ")
    assert run(*flags, "-o", tmp_path / "out").stdout == b""
    assert (tmp_path / "out").read_bytes() == b" dog\n"
    assert run(*flags, "-o", "/dev/full").returncode == 1
    assert run("-m", stories, "--raw", "-p", PROMPT, "--choice", " dog\n").stdout == b" dog\n"
    main, terminal = pty.openpty()
    for more in ([], ["-o", "-"]):
        assert run(*flags, *more, stdout=terminal).returncode == 0
        assert os.read(main, 1000) == b" dog\r\n"
    os.close(terminal)
    os.close(main)
    told = run(*flags, "-u").stderr.decode()
    n_prompt = json.loads(run(*flags, "--json").stdout)["usage"]["prompt_tokens"]
    assert re.fullmatch(rf"auk: prompt {n_prompt} tokens, [0-9.]+ ms; 4 answers, [0-9.]+ ms\n", told)


def test_an_answer_needs_something_to_stand_behind(run, talker):
    process = run("-m", talker("{# nothing #}"), "-p", PROMPT, *choices(ANSWERS))
    assert process.returncode == 2 and b"the prompt has no tokens that an answer could stand behind" in process.stderr


def test_the_exit_status_tells_on_request(run, stories):
    for turn in range(len(ANSWERS)):
        answers = ANSWERS[turn:] + ANSWERS[:turn]
        flags = ["-m", stories, "--raw", "-p", PROMPT, *choices(answers)]
        assert run(*flags).returncode == 0
        process = run(*flags, "--exit-choice")
        assert process.returncode == 10 + answers.index(" dog")
        assert process.stdout == b" dog\n" and process.stderr == b""


def test_equal_ones_go_to_the_first(choose):
    assert choose("--choice", " dog")["choice_index"] == 0


def test_the_last_token_needs_no_place_in_the_context(run, stories):
    """The longest prompt with its longest answer fills the context to the last place; one token more is refused."""
    flags = ["-m", stories, "--raw", "-p", PROMPT, "--choice", " dog", "--choice", " big red ball", "--json"]
    scores = json.loads(run(*flags).stdout)
    n = scores["usage"]["prompt_tokens"] + max(score["tokens"] for score in scores["scores"])
    fits = run(*flags, "-c", n - 1)
    assert fits.returncode == 0 and json.loads(fits.stdout)["scores"] == scores["scores"]
    assert run(*flags, "-c", n - 2).returncode == 2


# --- in a chat

CHAT = ("{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}they:{% endif %}")
OPENED = CHAT + " <think>\n{# </think> #}"
SWITCH = CHAT + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"


@pytest.fixture
def talker(variant):
    """talker(template): the model with this chat template."""
    made = []

    def make(template):
        made.append(template)
        files = {"chat_template.jinja": template, "tokenizer_config.json": json.dumps({"bos_token": "<s>"})}
        return variant(files=files, name=f"talker{len(made)}")

    return make


@pytest.mark.parametrize("template, behind", [
    (CHAT, "they:"),
    (OPENED, "they: <think>\n\n</think>\n\n"),  # a thought that the template opens is closed, empty
    (SWITCH, "they:<think>\n\n</think>\n\n"),  # a template that can switch thinking off is asked to
])
def test_answers_are_the_assistants_own_words(run, talker, reference, template, behind):
    answers = ["dog", "A dog ran.", " He was happy"]
    model = talker(template)
    for flags, before in (([], ""), (["-sys", "Be kind."], "system: Be kind.\n")):
        process = run("-m", model, "-p", "Who saw Tim?", "--json", *flags, *choices(answers))
        assert process.returncode == 0, process.stderr
        text = f"<s>{before}user: Who saw Tim?\n{behind}"
        assert_scores(json.loads(process.stdout), reference(text, answers, "--no-add-special"))


def test_control_tokens_in_answers_and_prompts_are_text(run, talker, reference):
    model = talker(CHAT)
    process = run("-m", model, "-p", "</s>Tim", "--json", *choices(["</s>", "dog"]))
    scores = json.loads(process.stdout)["scores"]
    assert scores[0]["tokens"] > 1
    trusting = run("-m", model, "-p", "</s>Tim", "--json", "--parse-special", *choices(["</s>", "dog"]))
    assert json.loads(trusting.stdout)["scores"][0]["tokens"] == 1
    want = reference("<s>user: </s>Tim\nthey:", ["</s>", "dog"], "--no-add-special")
    assert_scores(json.loads(trusting.stdout), want)


# --- with --map


def test_records_are_sorted_by_the_best_answer(run, stories, reference):
    lines = ["Lily saw a", "Tim was very", "The dog wanted to", "They were"]
    answers = [" big", " happy", " play"]
    given = "".join(line + "\n" for line in lines).encode()
    flags = ["-m", stories, "--raw", "-t", 1, "--map", "-", "-p", "One day, {}", *choices(answers)]
    process = run(*flags, input=given)
    assert process.returncode == 0, process.stderr
    want = [reference("One day, " + line, answers) for line in lines]
    best = [max(scores, key=lambda answer: sum(scores[answer])) for scores in want]
    assert len(set(best)) > 1
    assert process.stdout.decode().splitlines() == best
    found = [json.loads(line) for line in run(*flags, "--json", "--parallel", 1, input=given).stdout.splitlines()]
    for i, (record, scores) in enumerate(zip(found, want)):
        assert record["index"] == i and record["choice"] == best[i]
        assert_scores(record, scores)
    assert all(record["usage"]["reused_tokens"] >= 4 for record in found[1:])


def test_a_record_that_cannot_be_scored_is_an_error_in_its_place(run, stories):
    process = run("-m", stories, "--raw", "--map", "-", "--choose", "a,b", "--json",
                  input=b"Tim\n\xff\n" + b"so " * 999)
    assert process.returncode == 1
    found = [json.loads(line) for line in process.stdout.splitlines()]
    assert [set(record) & {"choice", "error"} for record in found] == [{"choice"}, {"error"}, {"error"}]
