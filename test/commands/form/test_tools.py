"""--tools and --messages with the tiny model, which at a high temperature writes noise: its calls have the form of
their functions all the same. Templates are small ones with the words by which formats are known."""
import json
import re

import pytest

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"$ref": "#/$defs/unit"}},
        "required": ["city", "unit"], "additionalProperties": False,
        "$defs": {"unit": {"enum": ["celsius", "kelvin"]}}}}},
         {"type": "function", "function": {"name": "now"}}]
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
           "llama": LIST + "{{ 'as {\"name\": function name, \"parameters\": dictionary}' }}" + TURNS}
BEGINS = {name: "<|python_tag|>" if name == "llama" else "[TOOL_CALLS]" if "mistral" in name else "<tool_call>"
          for name in FORMATS}
MARKS = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
         "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"]
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

    def go(name, *flags, status=0, prompt=("-p", "Once"), **options):
        if name not in models:
            models[name] = variant(tokenizer=with_marks, name=name,
                                   files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS[name]})
        done = run("-m", models[name], "-t", 1, "--tools", tmp_path / "tools.json", *prompt, *flags, **options)
        assert done.returncode == status, done.stderr
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
def test_calls_have_the_form_of_their_functions(talk, format):
    n, several = 0, False
    for seed in range(8):
        done = talk(format, "--tool-choice", "required", *NOISE, "-s", seed)
        lines = done.stdout.decode().splitlines()
        assert all(fits(json.loads(line)) for line in lines), lines
        if not lines:
            assert b"the end came within a call" in done.stderr
        n += len(lines)
        several |= len(lines) > 1
        result = json.loads(talk(format, "--tool-choice", "required", *NOISE, "-s", seed, "--json").stdout)
        assert [call["function"] for call in result.get("tool_calls", [])] == [json.loads(line) for line in lines]
        assert all(call["type"] == "function" and re.fullmatch("[a-z0-9]{9}", call["id"])
                   for call in result.get("tool_calls", []))
        assert result["text"] == "" and "value" not in result
    assert n >= 4 and several == (format != "llama")


@pytest.mark.parametrize("format", FORMATS)
def test_text_is_free_before_calls(talk, format):
    """In noise some answers are text, some calls, some both; nothing of a call or a mark is in the text."""
    texts = calls = 0
    for seed in range(12):
        result = json.loads(talk(format, *NOISE, "-n", 60, "-s", seed, "--json").stdout)
        texts += bool(result["text"].strip())
        calls += "tool_calls" in result
        assert BEGINS[format] not in result["text"]
        assert all(fits(call["function"]) for call in result.get("tool_calls", []))
    assert texts > 5


ARGUMENTS = {"type": "object", "required": ["text", "n", "maybe", "list"], "additionalProperties": False,
             "properties": {
    "text": {"type": "string", "maxLength": 12, "pattern": "^[^q]*$"}, "n": {"type": "integer", "minimum": 7},
    "mode": {"enum": ["fast", "<b>"]}, "maybe": {"type": ["null", "string"], "maxLength": 4}, "never": False,
    "list": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/point"}}, "on/~ %": {"type": "boolean"}},
    "$defs": {"point": {"type": "object", "required": ["x"], "additionalProperties": False,
                        "properties": {"x": {"type": "boolean"}}}}}


@pytest.mark.parametrize("format", ["coder", "glm", "glm-tight", "mistral-args", "mistral-ids"])
@pytest.mark.parametrize("order", ["schema", "any"])
def test_arguments_in_parts_fit_their_schemas(talk, tmp_path, format, order):
    """Arguments one by one: strings as they are, others as JSON. The rules are written out here once more."""
    (tmp_path / "f.json").write_text(json.dumps([{"name": "f", "parameters": ARGUMENTS}]))
    calls = []
    for seed in range(14):
        done = talk(format, "--tools", tmp_path / "f.json", "--tool-choice", "required", "--key-order", order, *NOISE,
                    "-s", seed, "--json")
        calls += json.loads(done.stdout).get("tool_calls", [])
    assert len(calls) >= 5
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
    assert len(orders) > 1 + (order == "any")


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
    ('[{"name": "f", "parameters": []}]', 'the parameters of tool 1, "f", are no JSON Schema'),
    ('[{"name": "f", "parameters": {"properties": {"a": {"type": "x"}}}}]',
     'parameters of "f": #/properties/a/type is "x", expected'),
])
def test_what_is_no_list_of_functions_is_refused(talk, tmp_path, tools, message):
    (tmp_path / "bad.json").write_text(tools)
    done = talk("qwen", "--tools", tmp_path / "bad.json", status=2)
    assert message in done.stderr.decode() and done.stdout == b""


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
    assert b"takes no tools" in talk("qwen", "--chat-template", "chatml", status=2).stderr
    (tmp_path / "xml.jinja").write_text(LIST + "{{ '<call><f arguments>' }}" + TURNS)
    assert b"in a format that is not known" in talk("qwen", "--chat-template", tmp_path / "xml.jinja", status=2).stderr
    bare = variant(name="bare", files={"tokenizer_config.json": "{}", "chat_template.jinja": FORMATS["qwen"]})
    tokens = variant(name="tokens", files={"tokenizer_config.json": "{}",
                                           "chat_template.jinja": FORMATS["mistral-args"]})
    done = run("-m", tokens, "-p", "Once", "--tools", tmp_path / "tools.json")
    assert done.returncode == 2 and b"the tokenizer has no token [TOOL_CALLS]" in done.stderr
    done = run("-m", bare, "-p", "Once", "--tools", tmp_path / "tools.json")
    assert done.returncode == 2 and b"the tokenizer has no token <tool_call>" in done.stderr
