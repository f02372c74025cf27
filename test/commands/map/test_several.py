"""Several -p and --n-best: the answers that each prompt gets alone, in order, from one call."""
import json

import pytest

PROMPTS = ["One day, Lily", "The dog", "Tim and Sam\nwent"]
DRAWN = ["-n", "12", "--temp", "1"]


@pytest.fixture
def several(run, stories):
    """several(*flags): standard output of a run that gives this status."""

    def go(*flags, input=b"", status=0):
        process = run("-m", stories, "--raw", "-t", 1, *flags, input=input)
        assert process.returncode == status, process.stderr
        return process.stdout if status == 0 else process.stderr.decode()

    return go


def asked(prompts):
    return [flag for prompt in prompts for flag in ("-p", prompt)]


def alone(several, prompt, seed, **more):
    return several("-p", prompt, *DRAWN, "-s", seed, "--no-stream", "--no-newline", **more)


def test_each_prompt_is_answered_as_alone(several):
    each = [alone(several, prompt, 5 + i) for i, prompt in enumerate(PROMPTS)]
    assert several(*asked(PROMPTS), *DRAWN, "-s", 5, "-0") == b"".join(answer + b"\0" for answer in each)
    lines = [answer if answer.endswith(b"\n") else answer + b"\n" for answer in each]
    for together in (1, 2, 64):
        assert several(*asked(PROMPTS), *DRAWN, "-s", 5, "--parallel", together) == b"\n".join(lines)


def test_the_best_of_several_have_seeds_of_their_own(several):
    objects = [json.loads(line) for line in several(*asked(PROMPTS[:2]), "--n-best", 3, *DRAWN, "-s", 5,
                                                    "--json").splitlines()]
    assert [(o["index"], o["prompt"], o["answer"], o["seed"]) for o in objects] == \
        [(i, i // 3, i % 3, 5 + i) for i in range(6)]
    for i, o in enumerate(objects):
        assert o["text"].encode() == alone(several, PROMPTS[i // 3], 5 + i)


def test_input_comes_before_each_prompt(several, tmp_path):
    file = tmp_path / "text"
    file.write_text("Tim had a ball.")
    together = several("-f", file, *asked(["So {} Then", "He"]), *DRAWN, "-s", 5, "-0", input=b"Lily ran.")
    each = [alone(several, prompt, 5 + i, input=b"Lily ran.\nTim had a ball.")
            for i, prompt in enumerate(["So {} Then", "He"])]
    assert together == b"".join(answer + b"\0" for answer in each)


def test_records_may_have_several_answers(several):
    lines = several("--map", "-", "--n-best", 2, *DRAWN, "-s", 5, "--json", input=b"Lily\nTim\n").splitlines()
    assert [json.loads(line)["text"].encode() for line in lines] == \
        [alone(several, prompt, 5 + i) for i, prompt in enumerate(["Lily", "Lily", "Tim", "Tim"])]


def test_results_of_several_answers_go_on(several, tmp_path):
    out = tmp_path / "out"
    flags = ["--map", "-", "--n-best", 3, *DRAWN, "-s", 5, "--resume", out]
    several(*flags, input=b"Lily\nTim\n")
    whole = out.read_bytes()
    assert len(whole.splitlines()) == 6
    for n in (1, 4):
        out.write_bytes(b"".join(whole.splitlines(keepends=True)[:n]))
        several(*flags, input=b"Lily\nTim\n")
        assert out.read_bytes() == whole
    flags[3] = 2
    assert "--n-best" in several(*flags, input=b"Lily\nTim\n", status=2)


def test_a_choice_for_each_prompt(several):
    assert several(*asked(PROMPTS[:2]), "--choose", "ran,sat", "-0").count(b"\0") == 2


def test_an_error_stays_in_its_place(several):
    prompts = ["Lily", "so " * 1000, "Tim"]
    errors = several(*asked(prompts), *DRAWN, "-c", 100, status=1)
    assert "prompt:2: the prompt has" in errors and "1 of 3 answers are errors" in errors


@pytest.mark.parametrize("flags, message", [
    (["-p", "a", "-p", ""], "-p is empty"),
    (["-p", "a", "-p", "b", "--jsonl-stream"], "--jsonl-stream does not go with several -p"),
    (["-p", "a", "-p", "b", "--truncate", "start"], "--truncate does not go with several prompts"),
    (["-p", "a", "-p", "b", "--choose", "x,y", "--exit-choice"], "--exit-choice does not go with several -p"),
    (["-p", "a", "-p", "b", "--map", "/dev/null"], "-p is given 2 times, expected one with --map"),
    (["-p", "a", "--n-best", "3", "--temp", "0"], "gives the same answer 3 times"),
    (["-p", "a", "--n-best", "0"], "--n-best"),
    (["-p", "a", "-0"], "-0 needs --map, --n-best or several -p"),
    (["-p", "a", "--parallel", "2"], "--parallel needs --map, --n-best or several -p"),
], ids=str)
def test_what_makes_no_sense_is_refused(several, flags, message):
    assert message in several(*flags, status=2)
