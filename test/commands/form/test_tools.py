"""--tools and --messages with the tiny model, which at a high temperature writes noise: its calls have the form of
their functions all the same. Templates are small ones with the words by which formats are known."""
import json
import pathlib
import re
import signal
import time

import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"$ref": "#/$defs/unit"}},
        "required": ["city", "unit"], "additionalProperties": False,
        "$defs": {"unit": {"enum": ["celsius", "kelvin"]}}}}},
         {"type": "function", "function": {"name": "now", "description": "The time"}}]
NAMES = "{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}"
LIST = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
TURNS = ("{% for m in messages %}{{ m.role }}: {{ m.content }}"
         "{% for c in m.tool_calls or [] %}CALL {{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}")
FORMATS = {"qwen": LIST + '{{ "<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <args>}\\n</tool_call>" }}' + TURNS,
           "mistral": LIST + '{{ "[TOOL_CALLS]" }}' + TURNS,
           "coder": NAMES + '{{ "<tool_call>\n<function=f>\n<parameter=p>\nvalue\n</parameter>" }}' + TURNS,
           "glm": NAMES + '{{ "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n" }}' + TURNS,
           "glm-tight": NAMES + '{{ "<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>" }}' + TURNS,
           "mistral-args": NAMES + '{{ "[TOOL_CALLS]f[ARGS]{}" }}' + TURNS,
           "mistral-ids": NAMES + '{{ "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}" }}' + TURNS,
           "channels": (DATA / "templates" / "gptoss.jinja").read_text(),
           "llama": LIST + "{{ 'as {\"name\": function name, \"parameters\": dictionary}' }}" + TURNS}
BEGINS = {name: "<|python_tag|>" if name == "llama" else "[TOOL_CALLS]" if "mistral" in name
          else "<|channel|>" if name == "channels" else "<tool_call>" for name in FORMATS}
MARKS = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
         "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|start|>", "<|end|>", "<|message|>",
         "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]
NOISE = ["--temp", 100, "-n", 300]


def with_marks(tokenizer):
    """The marks in place of the last tokens of the vocabulary."""
    vocab, model = tokenizer["model"]["vocab"], tokenizer["model"]
    first = len(vocab) - len(MARKS)
    model["vocab"] = {token: id for token, id in vocab.items() if id < first}
    model["merges"] = [merge for merge in model["merges"]
                       if "".join(merge.split(" ") if isinstance(merge, str) else merge) in model["vocab"]]
    for i, content in enumerate(MARKS):
        tokenizer["added_tokens"].append({"id": first + i, "content": content, "special": i > 5, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
    return tokenizer


@pytest.fixture
def talk(run, variant, tmp_path):
    """talk(format, *flags): the finished process, with TOOLS."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    models = {}

    def go(name, *flags, status=0, prompt=("-p", "Once"), command=(), **options):
        if name not in models:
            models[name] = variant(tokenizer=with_marks, name=name,
                                   files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS[name]})
        done = run(*command, "-m", models[name], "-t", 1, "--tools", tmp_path / "tools.json", *prompt, *flags,
                   **options)
        assert status is None or done.returncode == status, done.stderr
        return done

    return go


def fits(call):
    name, arguments = call["name"], call["arguments"]
    assert sorted(call) == ["arguments", "name"]
    if name == "now":
        return arguments == {}
    return (name == "get_weather" and sorted(arguments) == ["city", "unit"] and len(arguments["city"]) <= 8
            and arguments["unit"] in ("celsius", "kelvin"))


@pytest.mark.parametrize("format", FORMATS)
def test_calls_have_the_form_of_their_functions(talk, format, sanitized):
    n, several = 0, False
    for seed in range(1 if sanitized else 8):
        done = talk(format, "--tool-choice", "required", *NOISE, "-s", seed, status=None)
        lines = [line for line in done.stdout.decode().splitlines() if line]
        assert all(fits(json.loads(line)) for line in lines), lines
        assert done.returncode == (4 if b"the end came within" in done.stderr else 0)
        if not lines:
            assert b"the end came within a call" in done.stderr or (
                format == "channels" and b"the end came within the thought" in done.stderr)
        n += len(lines)
        several |= len(lines) > 1
        result = json.loads(talk(format, "--tool-choice", "required", *NOISE, "-s", seed, "--json", status=None).stdout)
        assert [call["function"] for call in result.get("tool_calls", [])] == [json.loads(line) for line in lines]
        assert all(call["type"] == "function" and re.fullmatch("[a-z0-9]{9}", call["id"])
                   for call in result.get("tool_calls", []))
        assert result["text"] == "" and "value" not in result
    assert sanitized or (n >= 4 and several == (format not in ("llama", "channels")))


def test_a_name_may_begin_like_another(talk, tmp_path, sanitized):
    """In channels the name stands in the header, and no mark ends it."""
    (tmp_path / "names.json").write_text(json.dumps([{"name": name, "description": name}
                                                          for name in ("now_utc", "now", "no")]))
    names = set()
    for seed in range(3 if sanitized else 16):
        done = talk("channels", "--tools", tmp_path / "names.json", "--tool-choice", "required", *NOISE, "-s", seed,
                    "--json", status=None)
        names |= {call["function"]["name"] for call in json.loads(done.stdout).get("tool_calls", [])}
    assert names == {"now_utc", "now", "no"} or sanitized and names


@pytest.mark.parametrize("format", FORMATS)
def test_text_is_free_before_calls(talk, format, sanitized):
    """In noise some answers are text, some calls, some both; nothing of a call or a mark is in the text."""
    texts = calls = 0
    for seed in range(1 if sanitized else 12):
        done = talk(format, *NOISE, "-n", 60, "-s", seed, "--json", status=None)
        result = json.loads(done.stdout)
        assert done.returncode == (4 if b"the end came within a call" in done.stderr else 0)
        texts += bool(result["text"].strip())
        calls += "tool_calls" in result
        assert BEGINS[format] not in result["text"]
        assert all(fits(call["function"]) for call in result.get("tool_calls", []))
    assert sanitized or texts > (2 if format == "channels" else 5)


def test_thoughts_and_answers_have_channels_of_their_own(talk, run):
    """A thought is free and closed by its budget, the answer is bound; headers are in neither."""
    model = re.search(r"-m', '([^']*)'", str(talk("channels", "-n", 1).args)).group(1)
    flags = ["-m", model, "-t", 1, "-p", "Once", "--temp", 100, "--json", "-n", 80]
    thoughts = 0
    for seed in range(6):
        bound = json.loads(run(*flags, "-s", seed, "--regex", "[a-c]{3}", "--think-budget", 5).stdout)
        assert re.fullmatch("[a-c]{3}", bound["text"]) and bound["finish_reason"] == "eos"
        n_thought = bound["usage"]["thinking_tokens"]
        assert n_thought in (0, 5) and ("thinking" in bound) <= n_thought
        thoughts += n_thought == 5
        free = json.loads(run(*flags, "-s", seed, "--no-think").stdout)
        assert free["usage"]["thinking_tokens"] == 0 and "thinking" not in free and free["text"]
        assert not re.search("final|<.(channel|message|start).>", free["text"])
        record = json.loads(run(*flags, "-s", seed, "--no-think", "--json-schema", '{"enum": [1, [true]]}').stdout)
        assert record["value"] in (1, [True])
    assert 0 < thoughts < 6


ONE = {"properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": False}
PARIS = {"city": "Paris"}


@pytest.mark.parametrize("format", ["qwen", "coder", "mistral-args", "llama"])
@pytest.mark.parametrize("parameters, expected", [
    ({}, {}), (None, {}), (ONE, PARIS), ({"type": ["null", "object"], **ONE}, PARIS),
    ({"type": ["object", "null"], **ONE}, PARIS),
    ({"$id": "urn:x", "$ref": "#/$defs/a", "$defs": {"a": ONE}}, PARIS), ({"type": "object", **ONE}, PARIS)])
def test_arguments_are_an_object(talk, tmp_path, format, parameters, expected):
    if format == "coder" and "$ref" in (parameters or {}):
        pytest.skip("arguments are written one by one")
    talk(format, "-n", 1, status=None)
    for seed in range(3):
        (tmp_path / "tools.json").write_text(json.dumps([{"name": "f", "parameters": parameters}]))
        done = talk(format, "--tool-choice", "required", *NOISE, "-s", seed, "--json", status=None)
        calls = json.loads(done.stdout).get("tool_calls", [])
        assert all(call["function"]["arguments"] == expected for call in calls)
        if calls:
            return
    raise AssertionError("no call")


@pytest.mark.parametrize("key, more", [("inputSchema", {"annotations": {}}), ("input_schema", {"type": "custom"})])
def test_tools_of_mcp_and_anthropic(talk, run, tmp_path, key, more):
    model = re.search(r"-m', '([^']*)'", str(talk("qwen", "-n", 1, status=None).args)).group(1)

    def shown(*tools):
        (tmp_path / "tools.json").write_text(json.dumps(tools))
        ids = json.loads(talk("qwen", "-n", 1, "--json", "--ids", status=None).stdout)["prompt_ids"]
        text = run("tokenize", "-m", model, "--decode", *ids).stdout.decode()
        return [json.loads(line) for line in text.replace("<s>", "").splitlines()[:len(tools)]]

    described = {"name": "f", "description": "d", key: ONE, **more}
    assert shown(described, {"name": "g", key: None}) == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": ONE}},
        {"type": "function", "function": {"name": "g", "description": "", "parameters": {}}}]
    assert shown({"name": "f", "parameters": {}, key: ONE})[0]["function"] == {"name": "f", "parameters": {}, key: ONE}
    (tmp_path / "tools.json").write_text(json.dumps([described]))
    done = talk("qwen", "--tool-choice", "required", *NOISE, status=None)
    assert json.loads(done.stdout.decode().splitlines()[0]) == {"name": "f", "arguments": PARIS}


LISTED = json.dumps({"chat_template": [{"name": "default", "template": TURNS},
                                       {"name": "tool_use", "template": FORMATS["qwen"]}]})


@pytest.mark.parametrize("files, listed", [
    ({"tokenizer_config.json": LISTED}, True), ({"tokenizer_config.json": "{}", "chat_template.json": LISTED}, True),
    ({"chat_template.jinja": TURNS, "tokenizer_config.json": "{}"}, False)])
def test_tool_use_is_named_where_it_is(run, variant, tmp_path, files, listed):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    model = variant(tokenizer=with_marks, name="m", files=files)
    ask = ["-m", model, "-t", 1, "-p", "x", "-n", 1, "--tools", tmp_path / "tools.json"]
    for _ in range(2):
        named = listed or (pathlib.Path(model) / "additional_chat_templates").is_dir()
        done = run(*ask)
        assert done.returncode == 2 and b"takes no tools" in done.stderr
        assert (b"--chat-template tool_use may" in done.stderr) == named
        if named:
            assert run(*ask, "--chat-template", "tool_use").returncode in (0, 4)
        else:
            (pathlib.Path(model) / "additional_chat_templates").mkdir()
            (pathlib.Path(model) / "additional_chat_templates" / "tool_use.jinja").write_text(FORMATS["qwen"])


def test_arguments_of_another_type_are_refused(talk, tmp_path):
    for type in ("string", ["null", "array"], [], None):
        (tmp_path / "x.json").write_text(json.dumps([{"name": "f", "parameters": {"type": type}}]))
        done = talk("qwen", "--tools", tmp_path / "x.json", status=2)
        assert f'tool 1, "f", have the type {json.dumps(type)}, expected "object"' in done.stderr.decode()


ARGUMENTS = {"type": "object", "required": ["text", "n", "maybe", "list"], "additionalProperties": False,
             "properties": {
    "text": {"type": "string", "maxLength": 12, "pattern": "^[^q]*$"}, "n": {"type": "integer", "minimum": 7},
    "mode": {"enum": ["fast", "<b>"]}, "maybe": {"type": ["null", "string"], "maxLength": 4}, "never": False,
    "list": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/point"}}, "on/~ %": {"type": "boolean"}},
    "$defs": {"point": {"type": "object", "required": ["x"], "additionalProperties": False,
                        "properties": {"x": {"type": "boolean"}}}}}


@pytest.mark.parametrize("format", ["coder", "glm", "glm-tight", "mistral-args", "mistral-ids"])
@pytest.mark.parametrize("order", ["schema", "any"])
def test_arguments_in_parts_fit_their_schemas(talk, tmp_path, sanitized, format, order):
    """Arguments one by one: strings as they are, others as JSON. The rules are written out here once more."""
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": ARGUMENTS}]))
    calls = []
    for seed in range(2 if sanitized else 14):
        done = talk(format, "--tools", tmp_path / "f.json", "--tool-choice", "required", "--key-order", order, *NOISE,
                    "-s", seed, "--json", status=None)
        calls += json.loads(done.stdout).get("tool_calls", [])
    assert sanitized or len(calls) >= 5
    orders = set()
    for call in calls:
        it = call["function"]["arguments"]
        orders.add(tuple(it))
        assert len(it["text"]) <= 12 and "q" not in it["text"] and it["n"] >= 7 and isinstance(it["n"], int)
        assert it.get("mode", "fast") in ("fast", "<b>") and it.get("on/~ %", True) in (True, False)
        assert it["maybe"] is None or len(it["maybe"]) <= 4
        assert len(it["list"]) <= 2 and all(list(p) == ["x"] and isinstance(p["x"], bool) for p in it["list"])
        assert set(it) <= set(ARGUMENTS["properties"]) - {"never"}
        keys = [key for key in ARGUMENTS["properties"] if key in it]
        assert order == "any" or list(it) == keys
    assert sanitized or len(orders) > 1 + (order == "any")


MIXED = {"type": "object", "additionalProperties": False, "required": ["level", "day", "mark"], "properties": {
    "level": {"enum": [1, 2.5, "auto", None, True]},
    "day": {"anyOf": [{"type": "string", "pattern": "^[0-9]$"}, {"type": "integer", "minimum": 10, "maximum": 12}]},
    "mark": {"const": "a\n</parameter></arg_value>b"},
    "none": {"not": {}},
    "below": {"type": "integer", "minimum": 3, "maximum": 2}}}


@pytest.mark.parametrize("format", ["coder", "glm", "glm-tight"])
def test_arguments_in_parts_have_every_type_of_their_schemas(talk, tmp_path, format, sanitized):
    """Where the strings of a schema are few, its other values are written too; a string with the mark that ends an
    argument is written as JSON; and an argument that no value fits is never begun."""
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": MIXED}]))
    n = 10 if sanitized else 30
    (tmp_path / "records").write_text("Once\n" * n)
    done = talk(format, "--tools", tmp_path / "f.json", "--tool-choice", "required", "--map", tmp_path / "records",
                *NOISE, "-s", 1, "--json", prompt=(), status=None)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == n and not any("error" in result for result in results)
    calls = [call["function"]["arguments"] for result in results for call in result.get("tool_calls", [])]
    assert len(calls) >= 2 / 3 * n and all(list(call) == ["level", "day", "mark"] for call in calls)
    levels, days = {json.dumps(call["level"]) for call in calls}, {call["day"] for call in calls}
    assert levels <= {"1", "2.5", '"auto"', "null", "true"} and days <= {*"0123456789", 10, 11, 12}
    assert sanitized or (len(levels) == 5 and {type(day) for day in days} == {str, int})
    assert {call["mark"] for call in calls} == {MIXED["properties"]["mark"]["const"]}


def test_what_cannot_be_written_in_parts_is_refused(talk, tmp_path):
    def refused(parameters, message, name="f"):
        (tmp_path / "f.json").write_text(json.dumps([{"name": name, "parameters": parameters}]))
        assert message in talk("coder", "--tools", tmp_path / "f.json", status=2).stderr.decode()
        if parameters:
            talk("mistral-args", "--tools", tmp_path / "f.json", "-n", 1)

    refused({"minProperties": 1}, 'parameters of "f": #/minProperties: this model writes arguments one by one')
    refused({"properties": {"a>b": {}}}, "the name of an argument is empty or has <, > or a line end")
    refused({"required": ["a"]}, "#/required has an argument that `properties` has not")
    refused({}, "the name of tool 1 has <, > or a line end", name="a<b")


def test_arguments_that_are_too_hard_in_parts_are_refused(talk, tmp_path):
    """Strings of the schema are found, but not those without the mark that ends an argument. A required argument is
    refused, as the other formats take it; an optional one is never written."""
    hard = {"type": "string", "pattern": "^" + "".join(f"(?=.*w{i})" for i in range(11))}
    form = {"properties": {"hard": hard, "easy": {"const": 1}}, "required": ["hard", "easy"]}
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": form}]))
    talk("qwen", "--tools", tmp_path / "f.json", "-n", 1)
    done = talk("glm", "--tools", tmp_path / "f.json", "-n", 1, status=2)
    assert (f'auk: {tmp_path}/f.json: parameters of "f": hard: an intersection or complement has over 32,768 states'
            in done.stderr.decode())
    form["required"].remove("hard")
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": form}]))
    done = talk("glm", "--tools", tmp_path / "f.json", "--tool-choice", "required", *NOISE, "-s", 1)
    assert all(json.loads(line) == {"name": "f", "arguments": {"easy": 1}} for line in done.stdout.splitlines())


def test_records_call_at_once_as_alone(talk):
    flags = ["--map", "-", "--json", "--tool-choice", "required", *NOISE, "-s", 5]
    records = b"One\nTwo\nThree\nFour\nFive\n"
    found = [[json.loads(line).get("tool_calls") for line in talk("qwen", *flags, "--parallel", n, prompt=(),
                                                                  input=records).stdout.decode().splitlines()]
             for n in (1, 4)]
    assert found[0] == found[1] and any(found[0])


def test_results_of_other_functions_are_not_resumed(talk, tmp_path):
    flags = ["--map", "-", "--resume", tmp_path / "out", "--tool-choice", "required", *NOISE, "-s", 5]
    assert talk("qwen", *flags, prompt=(), input=b"One\n").stdout == b""
    assert talk("qwen", *flags, prompt=(), input=b"One\nTwo\n").stdout == b""
    (tmp_path / "tools.json").write_text('[{"name": "other"}]')
    assert b"answer-form" in talk("qwen", *flags, prompt=(), input=b"One\nTwo\n", status=2).stderr


def test_a_conversation_goes_on_after_the_results(talk, tmp_path):
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "now", "arguments": {"x": [1, "é"]}}}
    messages = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "abcdefghi", "name": "now", "content": "noon"}]
    (tmp_path / "it.json").write_text(json.dumps(messages))
    done = talk("mistral", "--json", "--ids", "--temp", 0, "-n", 3, prompt=("--messages", tmp_path / "it.json"))
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 3
    same = talk("mistral", "--json", "--ids", "--temp", 0, "-n", 3, "--map", "-", "--map-json", prompt=(),
                input=json.dumps({"messages": messages}).encode() + b"\n")
    assert json.loads(same.stdout)["prompt_ids"] == json.loads(done.stdout)["prompt_ids"]
    ids = " ".join(map(str, json.loads(done.stdout)["prompt_ids"]))
    text = talk("mistral", "--json", prompt=("--messages", tmp_path / "it.json"), status=0)
    assert text.returncode == 0 and ids


@pytest.mark.parametrize("tools, message", [
    ("[", "expected a value"),
    ("{}", "no list of tools, expected [{"),
    ("[]", "the list of tools is empty"),
    ("[1]", "tool 1 is no object"),
    ('[{"function": {"name": ""}}]', "tool 1 has no name (function.name, a string)"),
    ('[{"name": "f"}, {"name": "f"}]', 'tool 2 has the name of one before, "f"'),
    ('[{"name": "f", "parameters": {"type": "string"}}]', 'have the type "string", expected "object"'),
    ('[{"name": "f", "parameters": {"type": ["string", "null"]}}]', 'have the type ["string", "null"], expected'),
    ('[{"name": "f", "parameters": []}]', 'the parameters of tool 1, "f", are no JSON Schema'),
    ('[{"name": "f", "parameters": {"properties": {"a": {"type": "x"}}}}]',
     'parameters of "f": #/properties/a/type is "x", expected'),
])
def test_what_is_no_list_of_functions_is_refused(talk, tmp_path, tools, message):
    (tmp_path / "bad.json").write_text(tools)
    for given in [tmp_path / "bad.json", *[tools] * tools.startswith(("[", "{"))]:
        done = talk("qwen", "--tools", given, status=2)
        assert message in done.stderr.decode() and done.stdout == b""


def test_functions_may_stand_in_the_place_of_their_file(talk, tmp_path):
    asked = ["--tool-choice", "required", *NOISE, "-s", 3]
    inline = (tmp_path / "tools.json").read_text()
    wanted = talk("qwen", *asked)
    assert talk("qwen", "--tools", f" {inline}", *asked).stdout == wanted.stdout


def test_what_parameters_cannot_be_held_to_is_let_go_with_a_note(talk, tmp_path):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^\bab$"}}}
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": schema}]))
    assert b"word boundaries" in talk("qwen", "--tools", tmp_path / "f.json", status=2).stderr
    note = talk("qwen", "--tools", tmp_path / "f.json", "--schema-lenient", "-n", 1).stderr.decode()
    assert 'f.json: parameters of "f": let go: #/properties/a/pattern: ' in note


@pytest.mark.parametrize("messages, message", [
    ("{}", "no list of messages"), ("3", "no list of messages"), ("[]", "messages is empty"), ("[", "expected a value"),
    ('[{"role": "user"}]', "message 0 has no content"),
    ('[{"role": "assistant", "tool_calls": {}}]', "message 0 has tool_calls that is no list"),
])
def test_what_is_no_conversation_is_refused(talk, tmp_path, messages, message):
    (tmp_path / "bad.json").write_text(messages)
    done = talk("qwen", prompt=("--messages", tmp_path / "bad.json"), status=2)
    assert message in done.stderr.decode()


def test_templates_without_known_calls_are_refused(run, talk, variant, tmp_path):
    assert b"takes no tools: take a model whose" in talk("qwen", "--chat-template", "chatml", status=2).stderr
    (tmp_path / "xml.jinja").write_text(LIST + "{{ '<call><f arguments>' }}" + TURNS)
    assert b"in a format that is not known" in talk("qwen", "--chat-template", tmp_path / "xml.jinja", status=2).stderr
    bare = variant(name="bare", files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS["qwen"]})
    tokens = variant(name="tokens", files={"tokenizer_config.json": "{}",
                                           "chat_template.jinja": FORMATS["mistral-args"]})
    done = run("-m", tokens, "-p", "Once", "--tools", tmp_path / "tools.json")
    assert done.returncode == 2 and b"the tokenizer has no token [TOOL_CALLS]" in done.stderr
    done = run("-m", bare, "-p", "Once", "--tools", tmp_path / "tools.json")
    assert done.returncode == 2 and b"the tokenizer has no token <tool_call>" in done.stderr


# --- in a chat


def in_chat(talk, tmp_path, lines, *flags, status=0, format="qwen"):
    """The finished process, and the messages that were saved at its end."""
    path = tmp_path / "talk.json"
    path.unlink(missing_ok=True)
    text = "".join(line + "\n" for line in [*lines, f"/save {path}"])
    done = talk(format, *NOISE, "-n", 150, *flags, command=("chat",), prompt=(), input=text.encode(), status=status)
    return done, json.loads(path.read_text())["messages"] if path.exists() else None


def test_results_of_calls_are_given_in_a_chat(talk, tmp_path):
    """The model answers once each call has its result; a saved chat goes on with what still waits."""
    for seed in range(20):
        done, messages = in_chat(talk, tmp_path, ["Now?", "/tool"], "--tool-choice", "required", "-s", seed)
        calls = messages[-1].get("tool_calls", [])
        if len(calls) > 1:
            break
    lines = done.stdout.decode().splitlines()
    assert [json.loads(line) for line in lines] == [call["function"] for call in calls]
    assert all(fits(call["function"]) for call in calls)
    (tmp_path / "before.json").write_text(json.dumps(messages))
    results = [f"/tool result {i}" for i in range(len(calls))]
    _, messages = in_chat(talk, tmp_path, [f"/load {tmp_path}/before.json", *results])
    assert [m["role"] for m in messages] == ["user", "assistant", *["tool"] * len(calls), "assistant"]
    told = [(m["content"], m["tool_call_id"], m["name"]) for m in messages if m["role"] == "tool"]
    assert told == [(f"result {i}", call["id"], call["function"]["name"]) for i, call in enumerate(calls)]
    done, messages = in_chat(talk, tmp_path, [f"/load {tmp_path}/before.json", '/tool ""', "/tool"])
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"] and messages[2]["content"] == ""
    done, _ = in_chat(talk, tmp_path, ["/tool 3"], status=2)
    assert b"no call of a function waits for a result" in done.stderr


def test_a_command_gives_results_in_a_chat(talk, tmp_path):
    command = 'printf "%s got " "$AUK_TOOL"; cat; test "$AUK_TOOL" != now || exit 3'
    seen = set()
    for seed in [3, 24, *range(30)]:  # the first two call one function each
        _, messages = in_chat(talk, tmp_path, ["Now?"], "--tool-command", command, "-s", seed, format="coder")
        waiting = []
        for message in messages[1:]:
            if message["role"] == "tool":
                call = waiting.pop(0)["function"]
                found = re.fullmatch(r"(\w+) got (.*?)(\n\(exit status 3\))?", message["content"])
                assert found[1] == call["name"] and json.loads(found[2]) == call
                assert bool(found[3]) == (call["name"] == "now")
                seen.add(call["name"])
            else:
                assert message["role"] == "assistant" and not waiting
                waiting = message.get("tool_calls", [])
        assert not waiting and "tool_calls" not in messages[-1]
        if len(seen) == 2:
            return
    pytest.fail(f"no calls of both functions: {seen}")


@pytest.mark.parametrize("command, message", [("kill -9 $$", "ended by signal 9"),
                                              ("printf '\\377'", "not valid UTF-8"),
                                              ("cat /dev/zero | head -c 3000000", "writes over 1048576 bytes")])
def test_a_command_that_gives_no_result_ends_a_script(talk, tmp_path, command, message):
    for seed in range(20):
        done, _ = in_chat(talk, tmp_path, ["Now?"], "--tool-choice", "required", "--tool-command", command, "-s", seed,
                          status=None)
        if done.returncode:
            break
    assert done.returncode == 1 and message in done.stderr.decode()


def test_a_command_needs_tools_and_a_chat(talk, run, stories):
    assert b"--tool-command is for a chat" in talk("qwen", "--tool-command", "true", status=2).stderr
    assert run("chat", "-m", stories, "--tool-command", "true").returncode == 2


@pytest.mark.parametrize("format", ["qwen", "channels"])
def test_an_interrupted_call_has_the_status_of_an_interruption(variant, start, tmp_path, format):
    long = {"type": "object", "properties": {"x": {"type": "string", "minLength": 100000}}, "required": ["x"]}
    (tmp_path / "long.json").write_text(json.dumps([{"name": "get_long", "description": "", "parameters": long}]))
    model = variant(tokenizer=with_marks, config={"max_position_embeddings": 200000},
                    files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS[format]})
    for wait_s in (0.1, 0.3):
        process = start("-m", model, "-t", 1, "-p", "Once", "--tools", tmp_path / "long.json", "--tool-choice",
                        "required", "--temp", 4, "-s", 1)
        time.sleep(wait_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (130, b"", b"")


def test_arguments_without_a_way_on_are_cut(talk, tmp_path):
    """Seven keys with six values, no two of them equal: no text fits, which only a long search shows."""
    keys = [f"p{i}" for i in range(7)]
    apart = [{"not": {"properties": {a: {"const": i}, b: {"const": i}}}}
             for n, a in enumerate(keys) for b in keys[:n] for i in range(6)]
    form = {"type": "object", "properties": {key: {"enum": list(range(6))} for key in keys}, "required": keys,
            "additionalProperties": False, "allOf": apart}
    (tmp_path / "hard.json").write_text(json.dumps([{"name": "f", "description": "f", "parameters": form}]))
    for format in ("mistral-args", "mistral-ids"):
        done = talk(format, "--tools", tmp_path / "hard.json", "--tool-choice", "required", "--temp", 0, "-n", 300,
                    status=4)
        assert b"no token of this model leads to its form" in done.stderr


def test_an_answer_in_circles_ends_as_soon_with_tools_as_without(run, variant, tmp_path):
    """Each token of text counts once, although a call may begin at any of them."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    model = variant(tokenizer=with_marks, name="circles", config={"max_position_embeddings": 20000},
                    generation={"eos_token_id": None},
                    files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS["glm"]})
    flags = ["--tools", tmp_path / "tools.json", "-c", 1500, "--temp", 0, "--repeat-penalty", "0.01"]
    answer = json.loads(run("-m", model, "-t", 1, "-p", "Once", "--json", "--ids", *flags).stdout)
    ids = answer["ids"]

    def circles(ids):  # repetition.h, for passages of up to 16 tokens
        return any(ids[-256:] == ids[-256 - n:-n] for n in range(1, 17) if len(ids) >= 256 + n)

    assert answer["finish_reason"] == "repetition" and "tool_calls" not in answer
    assert circles(ids) and not circles(ids[:-1])
