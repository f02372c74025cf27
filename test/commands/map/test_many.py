"""`auk --map --parallel N`: many records at once are answered as they are one by one, byte for byte, in their order."""
import json
import signal
import time

import pytest

from map_records import NAMES, TOO_LONG, stable

LINES = [f"{NAMES[i % 6]} and {NAMES[i // 6 % 6]}" + " went out" * (i % 5) for i in range(70)]
LINES[7] = LINES[50] = TOO_LONG


@pytest.fixture
def many(run, stories):
    """many(n, *flags): the finished run over LINES, n records at once."""

    def go(n, *flags, model=stories, lines=LINES, status=1):
        process = run("-m", model, "--raw", "-t", 1, "--map", "-", "--parallel", n, *flags,
                      input="".join(line + "\n" for line in lines).encode())
        assert process.returncode == status, process.stderr
        return process

    return go


DRAWN = ["--temp", "1", "-s", "3", "--repeat-penalty", "1.2", "--presence-penalty", "0.3"]


@pytest.mark.parametrize("flags", [["-n", "30"], ["-n", "30", *DRAWN], ["-n", "40", "--stop", "the", "--stop", "."],
                                   ["-c", "60"], ["-n", "30", "--kv", "q8"]],
                         ids=["plain", "drawn", "stopped", "to-the-end", "8-bits"])
def test_records_are_answered_as_one_by_one(many, flags, sanitized):
    lines = LINES[::3] + [TOO_LONG] if sanitized else LINES
    one_by_one = many(1, *flags, lines=lines)
    assert len(one_by_one.stdout.splitlines()) == len(lines)
    for n in (7,) if sanitized else (2, 7, 64):
        together = many(n, *flags, lines=lines)
        assert together.stdout == one_by_one.stdout
        assert together.stderr == one_by_one.stderr


def test_answers_that_were_cut_within_their_form_are_counted_once(many):
    for n in (1, 2, 7):
        cut = many(n, "-n", 2, "--json-object", lines=LINES[8:20], status=4)
        assert b"12 of 12 answers were cut before their form was complete" in cut.stderr


def test_objects_are_those_of_one_by_one(many):
    flags = ["-n", 12, "--json", "--ids", "-p", "One day, {} went to", *DRAWN]
    one_by_one, together = many(1, *flags), many(7, *flags)
    assert stable(together.stdout) == stable(one_by_one.stdout)
    used = [json.loads(line).get("usage", {}) for line in together.stdout.splitlines()]
    assert sum(usage.get("reused_tokens", 0) for usage in used) > 0  # the beginning of -p is computed once


@pytest.mark.parametrize("name", ["qwen3-next-awq", "kimi-linear-bf16", "granite4-h-awq"])
@pytest.mark.parametrize("states", ["bf16", "f16"])
def test_states_of_16_bits_round_alike_beside_other_records(many, root, name, states):
    def answers(n, *flags):
        done = many(n, "--json", "-n", 12, "--temp", 0, "-s", 1, "--ids", "--logprobs", 1, "--ignore-eos", *flags,
                    status=0, model=root / "test" / "data" / "miniatures" / name, lines=LINES[10:20])
        return stable(done.stdout), [json.loads(line)["logprobs"] for line in done.stdout.splitlines()]

    alone, exact = answers(1, "--states", states), answers(1, "--states", "f32")
    assert answers(7, "--states", states) == alone
    assert exact == answers(7)
    firsts = [[record[0]["logprob"] for record in logprobs] for logprobs in (alone[1], exact[1])]
    assert firsts[0] != firsts[1]
    assert firsts[0] == pytest.approx(firsts[1], abs=0.5)


def test_results_with_other_states_are_not_mixed(run, root, tmp_path):
    (tmp_path / "in").write_text("Tim\nLily\n")
    job = ["-m", root / "test" / "data" / "miniatures" / "qwen3-next-awq", "--raw", "-n", 2, "--map", tmp_path / "in",
           "--resume", tmp_path / "out"]
    for states, others in (("bf16", {"f16": "made with --states bf16, now it is f16",
                                     None: "made with --states bf16, now it is not given"}),
                           (None, {"f16": "made without --states, now it is f16"})):
        flags = {None: [], "bf16": ["--states", "bf16"], "f16": ["--states", "f16"]}
        assert run(*job, *flags[states]).returncode == 0
        for other, words in others.items():
            refused = run(*job, *flags[other])
            assert (refused.returncode, words in refused.stderr.decode()) == (2, True), refused.stderr
        assert run(*job, *flags[states]).returncode == 0
        (tmp_path / "out").unlink()


def test_models_of_every_architecture_answer_as_one_by_one(many, root, sanitized):
    models = sorted((root / "test" / "data" / "miniatures").iterdir())
    answered = 0
    for model in models[::6] if sanitized else models:
        if not (model / "tokenizer.json").exists():
            continue
        flags = ["-n", 6, "--temp", 0, "--ignore-eos"]
        lines = [" ".join(["a word"] * (1 + i * 5 % 7)) + str(i) for i in range(12)]
        one_by_one = many(1, *flags, model=model, lines=lines, status=0)
        together = many(5, *flags, model=model, lines=lines, status=0)
        assert together.stdout == one_by_one.stdout, model.name
        answered += 1
    assert answered > 5


def test_choices_are_those_of_one_by_one(many, sanitized):
    flags = ["-p", "Then {} saw", "--choose", "the park,bed, a big red ball,him", "--json"]
    one_by_one = stable(many(1, *flags).stdout)
    assert len({record.get("choice") for record in one_by_one}) > 2
    for n in (7,) if sanitized else (2, 7, 64):
        assert stable(many(n, *flags).stdout) == one_by_one


def test_results_come_as_they_are_there_if_asked(many):
    flags = ["-n", 40, "--stop", "the", "--json", "-s", 3]
    ordered, unordered = stable(many(1, *flags).stdout), stable(many(16, *flags, "--unordered").stdout)
    assert unordered != ordered
    assert sorted(unordered, key=lambda record: record["index"]) == ordered


def test_an_interruption_leaves_the_first_results_whole(start, many, stories, tmp_path):
    want = many(1, "-n", 60, "--ignore-eos", "--temp", 0).stdout
    lines, out = tmp_path / "in", tmp_path / "out"
    lines.write_text("".join(line + "\n" for line in LINES))
    process = start("-m", stories, "--raw", "-t", 1, "--map", lines, "--parallel", "8", "-n", "60", "--ignore-eos",
                    "--temp", "0", "-o", out)
    while not out.exists() or out.read_bytes().count(b"\n") < 10:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait() in (130, 1)
    got = out.read_bytes()
    assert got.endswith(b"\n") and want.startswith(got)


def test_memory_is_bounded_where_the_first_record_takes_longest(many):
    """Results after it wait for it, and it waits for no other."""
    lines = ["Once upon a time"] + ["Tim"] * 100
    got = many(4, "-n", 100, "--temp", 0, "--stop", ".", lines=lines, status=0).stdout.splitlines()
    assert len(got) == 101 and len(set(got[1:])) == 1
