"""auk template renders conversations as Hugging Face's libraries do, and finds the template where they do.

Real templates with jinja2's renderings are committed (test/tokenizer/make_chat_renderings.py); those of five more
models are larger than what is committed: they are looked for in a folder `shared` beside the repository, or skipped.
"""
import datetime
import json
import random

import pytest

HI = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
GOLDENS = ["llama3", "mistral_nemo", "qwen2_5", "qwen3", "smollm2"]


def json_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]  # not at U+2028


@pytest.fixture
def ask(run):
    """ask(requests, *flags): the answers; the process has to end well unless `status` says otherwise."""

    def ask_it(requests, *flags, status=0):
        lines = "".join((request if isinstance(request, str) else json.dumps(request)) + "\n" for request in requests)
        process = run("template", *flags, input=lines.encode())
        assert process.returncode == status, process.stderr
        answers = [json.loads(line) for line in process.stdout.decode().split("\n") if line]
        assert len(answers) == len(requests)
        return answers

    return ask_it


@pytest.fixture
def checkpoint(tmp_path):
    """checkpoint({file name: text or object}): a directory with these files."""

    def make(files):
        for name, content in files.items():
            path = tmp_path / "checkpoint" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return tmp_path / "checkpoint"

    return make


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens_of_real_models(ask, shared, name):
    goldens = json_lines(shared / "goldens" / "chat" / f"{name}.jsonl")
    assert len(goldens) > 30
    requests = [{"messages": golden["messages"], **golden["options"]} for golden in goldens]
    for golden, answer in zip(goldens, ask(requests, "-m", shared / "tokenizers" / name)):
        expected = {key: golden[key] for key in ("rendered", "error") if key in golden}
        assert answer == expected, golden["messages"]


@pytest.mark.parametrize("name", ["deepseek_r1_distill", "glm4moe", "gptoss", "mistral_v3_tekken", "qwen2_5", "qwen3",
                                  "qwen3_training"])
def test_real_templates(ask, root, checkpoint, name):
    folder = root / "test" / "data" / "templates"
    specials = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}
    model = checkpoint({"tokenizer_config.json": specials})
    requests, expected = json_lines(folder / "conversations.jsonl"), json_lines(folder / f"{name}.jsonl")
    answers = ask(requests, "-m", model, "--chat-template", folder / f"{name}.jinja")
    assert len(expected) == len(requests) == 36
    for request, answer, wanted in zip(requests, answers, expected):
        if "fails" in wanted:
            assert f"{name}.jinja: line " in answer["error"]
        else:
            assert answer == wanted, request


# --- where the template and the special tokens are found


# --- lines


def test_every_day_of_the_calendar_is_known_and_no_other(ask, tmp_path):
    (tmp_path / "day.jinja").write_text("{{ strftime_now('%m-%d %j %A %H:%M:%S') }}")
    some = random.Random(1)
    days = [datetime.date(year, month, day) for year in (1, 4, 1600, 1900, 1970, 2000, 2023, 2024, 2100, 9999)
            for month, day in ((1, 1), (1, 31), (2, 28), (3, 1), (4, 30), (12, 31))]
    days += [datetime.date(year, 2, 29) for year in (4, 1600, 2000, 2024, 2400, 9996)]
    days += [datetime.date.fromordinal(some.randrange(1, 3652060)) for _ in range(100)]
    want = [f"{day.isoformat()[5:]} {day.timetuple().tm_yday:03} {day:%A} 00:00:00" for day in days]
    answers = ask([{**HI, "now": day.isoformat()} for day in days], "--chat-template", tmp_path / "day.jinja")
    assert [answer.get("rendered") for answer in answers] == want
    none = ["2023-02-29", "1900-02-29", "2100-02-29", "2000-02-30", "2024-04-31", "2024-06-31", "2024-09-31",
            "2024-11-31", "2024-01-32", "2024-12-32", "2024-13-01", "2024-00-10", "2024-01-00", "0000-01-01",
            "", "2024-1-01", "2024-01-1", "2024-01-01x", "2024-01-01\0", " 024-01-01", "+024-01-01", "2024-+1-01",
            "2024- 1-01", "2024-01-+1", "20240101", "2024/01/01", "12024-01-01"]
    answers = ask([{**HI, "now": day} for day in none], "--chat-template", tmp_path / "day.jinja", status=1)
    for number, (day, answer) in enumerate(zip(none, answers), 1):
        said = f'standard input: line {number}: now is expected to be a day, "YYYY-MM-DD"'
        assert answer == {"error": said}, day
