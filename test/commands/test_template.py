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


def test_messages_of_openai_clients(ask, checkpoint):
    template = ("{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{{ m.reasoning }}"
                "{{ m.content is defined }}{% for c in m.tool_calls or [] %}{{ c.function.arguments.items()|list }}"
                "{% endfor %}{% endfor %}")
    model = checkpoint({"chat_template.jinja": template})

    def line(arguments):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return {"messages": [{"role": "assistant", "content": None, "reasoning": "x", "tool_calls": [call]}]}

    assert ask([line('{"a": 1}'), line({"a": 1})], "-m", model) == [{"rendered": "xxxFalse[('a', 1)]"}] * 2
    error, = ask([line("a")], "-m", model, status=1)
    assert error["error"] == ("standard input: line 1: message 0 has a call 0, of \"f\", whose arguments are a string "
                              "without a JSON object")


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


@pytest.mark.parametrize("files, flags, rendered", [
    ({"chat_template.jinja": "J"}, [], "J"),
    ({"chat_template.jinja": "J\n", "tokenizer_config.json": {"chat_template": "C"}}, [], "J"),
    ({"tokenizer_config.json": {"chat_template": "C"}, "chat_template.json": {"chat_template": "O"}}, [], "C"),
    ({"chat_template.json": {"chat_template": "O"}}, [], "O"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "T"},
                                                  {"name": "default", "template": "D"}]}}, [], "D"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "T"}]}},
     ["--chat-template", "tool_use"], "T"),
    ({"chat_template.jinja": "J", "additional_chat_templates/rag.jinja": "R"}, ["--chat-template", "rag"], "R"),
    ({"chat_template.jinja": "J"}, ["--chat-template", "phi"], "<|user|>\nHi<|end|>\n<|assistant|>\n"),
    ({"tokenizer_config.json": {"chat_template": 5}}, ["--chat-template", "phi"],
     "<|user|>\nHi<|end|>\n<|assistant|>\n"),
    ({"tokenizer_config.json": {"chat_template": [1]}}, ["--chat-template", "phi"],
     "<|user|>\nHi<|end|>\n<|assistant|>\n"),
    ({"chat_template.jinja": "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}",
      "tokenizer_config.json": {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": None}}, [],
     "<s></s>False"),
    ({"chat_template.jinja": "{{ bos_token }}{{ pad_token }}", "tokenizer_config.json": {"bos_token": "<a>"},
      "special_tokens_map.json": {"bos_token": "<b>", "pad_token": {"content": "<p>"}}}, [], "<b><p>"),
    ({"chat_template.jinja": "{{ bos_token }}{{ pad_token }}",
      "tokenizer_config.json": {"bos_token": "<a>", "added_tokens_decoder": {}},
      "special_tokens_map.json": {"bos_token": "<b>", "pad_token": {"content": "<p>"}}}, [], "<a><p>"),
    ({"chat_template.jinja": "{{ tools is none }}{{ documents is none }}{{ tools is defined }}"}, [], "TrueTrueTrue"),
])
def test_which_template_is_taken(ask, checkpoint, files, flags, rendered):
    assert ask([HI], "-m", checkpoint(files), *flags) == [{"rendered": rendered}]


def test_no_checkpoint_is_needed_with_a_name_or_a_file(ask, tmp_path):
    (tmp_path / "mine.jinja").write_text("{{ messages|length }}")
    assert ask([HI], "--chat-template", tmp_path / "mine.jinja") == [{"rendered": "1"}]
    assert ask([HI], "--chat-template", "gemma") == [
        {"rendered": "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"}]


@pytest.mark.parametrize("files, flags, status, says", [
    ({"tokenizer_config.json": {}}, [], 3, b"has no chat template"),
    ({"tokenizer_config.json": "[]"}, [], 3, b"tokenizer_config.json: its JSON is an array, expected an object"),
    ({"tokenizer_config.json": '{"chat_template": "a'}, [], 3, b"tokenizer_config.json"),
    ({"chat_template.jinja": "a\n{% for %}"}, [], 3, b"chat_template.jinja: line 2: "),
    ({"tokenizer_config.json": {"chat_template": "{{ x|nosuch }}"}}, [], 3, b"there is no filter \"nosuch\""),
    ({"tokenizer_config.json": {"chat_template": [1]}}, [], 3,
     b"tokenizer_config.json: chat_template[0] is 1, expected an object with a name"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "D"}, {"template": "T"}]}}, [], 3,
     b"tokenizer_config.json: chat_template[1] is an object, expected an object with a name"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "R"}]}}, [], 3,
     b'none of this model\'s chat templates is named "default": choose one with --chat-template: rag\n'),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "R"}]},
      "chat_template.json": {"chat_template": [{"name": "b", "template": "B"}]}}, [], 3,
     b"choose one with --chat-template: rag, b\n"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "R"}]},
      "additional_chat_templates/tool_use.jinja": "T", "additional_chat_templates/b.jinja": "B",
      "additional_chat_templates/readme.txt": "", "additional_chat_templates/.jinja": ""}, [], 3,
     b"choose one with --chat-template: rag, b, tool_use\n"),
    ({"additional_chat_templates/tool_use.jinja": "T"}, [], 3, b"choose one with --chat-template: tool_use\n"),
    ({"chat_template.jinja": "J", "additional_chat_templates/b.jinja": "B"}, ["--chat-template", "x"], 2,
     b"mistral, llama2, b\n"),
    ({"tokenizer_config.json": {"chat_template": {"default": "D"}}}, [], 3,
     b"tokenizer_config.json: chat_template is an object, expected a string or an array"),
    ({"tokenizer_config.json": {"chat_template": None}}, [], 3, b"has no chat template"),
    ({"tokenizer_config.json": {"chat_template": []}}, [], 3, b"has no chat template"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "R"}]}}, ["--chat-template", "x"], 2,
     b"chatml, llama3, gemma, phi, deepseek, mistral, llama2, rag"),
])
def test_what_cannot_be_a_template_is_refused(run, checkpoint, files, flags, status, says):
    process = run("template", "-m", checkpoint(files), *flags, input=b"{}\n")
    assert process.returncode == status and says in process.stderr, process.stderr
    assert process.stdout == b""


# --- lines


def test_a_line_that_cannot_be_taken_gets_its_error_and_stops_nothing(ask):
    requests = [HI, "{", "[]", "", '{"messages": 1, "messages": 2}', {**HI, "now": "2024-02-30"}, {**HI, "now": 5}, HI]
    answers = ask(requests, "--chat-template", "chatml", status=1)
    assert answers[0] == answers[-1] and "rendered" in answers[0]
    for number, answer in enumerate(answers[1:-1], 2):
        assert answer["error"].startswith(f"standard input: line {number}: ") or f"line {number}:" in answer["error"]


def test_what_a_template_refuses_is_an_answer(ask, checkpoint):
    model = checkpoint({"chat_template.jinja": "{{ messages[0].role }}{% if x %}{{ raise_exception('no\n' ~ x) }}"
                                               "{% endif %}{{ y.z.z if y is defined }}"})
    assert ask([HI, {**HI, "x": "é\u2028"}, {**HI, "y": {}}], "-m", model) == [
        {"rendered": "user"},
        {"error": "no\né\u2028"},
        {"error": "chat_template.jinja: line 2: y.z.z: 'dict object' has no attribute 'z'"},
    ]


@pytest.mark.parametrize("now, rendered", [
    ("2024-07-26", "26 Jul 2024 Friday 00:00"),
    ("2000-02-29", "29 Feb 2000 Tuesday 00:00"),
    ("1969-12-31", "31 Dec 1969 Wednesday 00:00"),
    ("0001-01-01", None),
    ("9999-12-31", "31 Dec 9999 Friday 00:00"),
])
def test_the_day_can_be_given(ask, tmp_path, now, rendered):
    (tmp_path / "day.jinja").write_text("{{ strftime_now('%d %b %Y %A %H:%M') }}")
    answer = ask([{**HI, "now": now}], "--chat-template", tmp_path / "day.jinja")[0]
    assert "rendered" in answer if rendered is None else answer == {"rendered": rendered}


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


def test_lines_can_come_from_a_file(run, tmp_path):
    (tmp_path / "lines").write_text(json.dumps(HI) + "\n" + json.dumps(HI))
    process = run("template", "--chat-template", "phi", "-f", tmp_path / "lines")
    assert process.returncode == 0 and process.stdout.count(b"<|user|>") == 2
    process = run("template", "--chat-template", "phi", "-f", tmp_path / "nothing")
    assert process.returncode == 1 and b"nothing" in process.stderr


def test_text_comes_through_as_it_is(ask):
    content = "\x00\x01\x7f\u2028\ufeff é😀 \\ \" <|im_end|> {{ x }} {% raw %}\r\n"
    message = {"role": "user", "content": content}
    assert ask([{"messages": [message]}], "--chat-template", "chatml") == [
        {"rendered": f"<|im_start|>user\n{content}<|im_end|>\n"}]


def test_a_packed_file_has_its_template_beside_it(ask, checkpoint):
    model = checkpoint({"chat_template.jinja": "J", "model.ak48": ""})
    assert ask([HI], "-m", model / "model.ak48") == [{"rendered": "J"}]


def test_a_model_is_needed(run, tmp_path):
    process = run("template", "-m", tmp_path / "nothing", input=b"")
    assert process.returncode != 0 and b"nothing" in process.stderr
    process = run("template", input=b"")
    assert process.returncode == 2 and b"-m" in process.stderr
