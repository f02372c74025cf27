"""--json-schema, --json-object, --regex and --grammar with the tiny model, which at a high temperature writes noise:
its answer has the form all the same, or is cut and says so."""
import json
import re

import pytest

RECORD = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 12},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
                         "at": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}},
          "required": ["name", "age", "tags", "at"], "additionalProperties": False}
NOISE = ["--temp", 100, "-s", 3]
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 4000}


@pytest.fixture
def answer(run, stories):
    """answer(*flags): the finished process of one prompt in noise."""

    def go(*flags, status=0, model=stories, noise=NOISE, **options):
        done = run("-m", model, "--raw", "-t", 1, "-p", "Once", *noise, *flags, **options)
        assert status is None or done.returncode == status, done.stderr
        return done

    return go


def fits_record(value):
    return (sorted(value) == ["age", "at", "name", "tags"] and len(value["name"]) <= 12
            and type(value["age"]) is int and 0 <= value["age"] <= 150
            and len(value["tags"]) <= 3 and set(value["tags"]) <= {"red", "green", "blue"}
            and (value["at"] is None or re.fullmatch(r"\d{4}-\d\d-\d\d", value["at"]) is not None))


def test_noise_under_a_schema_parses_and_fits(run, stories, tmp_path, sanitized):
    (tmp_path / "schema.json").write_text(json.dumps(RECORD, indent=1))
    n = 10 if sanitized else 50
    lines = "".join(f"Record {i}\n" for i in range(n))
    done = run("-m", stories, "--raw", "-t", 1, "--map", "-", "--json-schema", tmp_path / "schema.json", *NOISE,
               "--json", "--require-stop", input=lines.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    results = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(results) == n and len({result["text"] for result in results}) == n
    for result in results:
        assert result["value"] == json.loads(result["text"]) and result["finish_reason"] == "eos"
        assert fits_record(result["value"]), result["text"]
    alone = run("-m", stories, "--raw", "-t", 1, "--map", "-", "--json-schema", tmp_path / "schema.json", *NOISE,
                "--parallel", 1, input="".join(lines.splitlines(True)[:4]).encode())
    escaped = [result["text"].replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for result in results]
    assert alone.stdout.decode().splitlines() == escaped[:4]
    jsonschema = pytest.importorskip("jsonschema")
    for result in results:
        jsonschema.validate(result["value"], RECORD)


def test_a_number_ends_without_white_space_and_counts_where_it_is_cut(run, stories):
    for limit in ("1", "40"):
        done = run("-m", stories, "--raw", "-t", 1, "--map", "-", "--json-schema", '{"type": "integer"}', *NOISE, "-n",
                   limit, "--json", input=b"".join(b"Record %d\n" % i for i in range(40)), check=False)
        results = [json.loads(line) for line in done.stdout.decode().splitlines()]
        whole = [result for result in results if re.fullmatch(r"-?\d+", result["text"])]
        assert len(results) == 40 and whole and [result for result in results if "value" in result] == whole
        assert all(result["value"] == int(result["text"]) for result in whole)
        assert {result["finish_reason"] for result in whole} >= ({"length"} if limit == "1" else {"eos"})


def test_keys_come_in_the_order_of_the_schema_or_in_any(answer):
    orders = {flag: {tuple(json.loads(answer("--json-schema", json.dumps(RECORD), *flag,
                                             noise=["--temp", 100, "-s", seed]).stdout)) for seed in range(6)}
              for flag in ((), ("--key-order", "schema"), ("--key-order", "any"))}
    assert orders[()] == orders["--key-order", "schema"] == {("name", "age", "tags", "at")}
    assert len(orders["--key-order", "any"]) > 1


def test_what_cannot_be_held_to_is_let_go_if_asked(answer):
    schema = json.dumps({"type": "string", "pattern": r"^\bab$", "maxLength": 2, "minLength": 2})
    assert b"word boundaries" in answer("--json-schema", schema, status=2).stderr
    done = answer("--json-schema", schema, "--schema-lenient")
    assert len(json.loads(done.stdout)) == 2
    assert done.stderr.startswith(b"auk: --json-schema: let go: #/pattern: at byte 2 of the expression: word")


def test_each_record_has_its_schema(run, stories):
    records = [{"text": "a", "form": {"const": {"a": [1, "x y"]}}}, {"text": "b", "form": {"enum": ["x"]}},
               {"text": "c", "form": {"type": "strin"}}, {"text": "d"}, {"text": "e", "form": {"enum": ["x"]}}]
    done = run("-m", stories, "--raw", "--map", "-", "--map-json", "-p", "{text}", "--json-schema", "{form}", "--json",
               *NOISE, input="".join(json.dumps(record) + "\n" for record in records).encode())
    found = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert done.returncode == 1
    assert [result.get("value") for result in found] == [{"a": [1, "x y"]}, "x", None, None, "x"]
    assert found[2]["error"].startswith("the record's form: #/type is \"strin\", expected")
    assert found[3]["error"] == "the record has no member form (--json-schema)"


def test_the_value_stands_on_one_line(answer):
    for seed in range(5):
        line = answer("--json-schema", json.dumps({"const": {"a b": ["\n", '"\\ ', 1.5], "c": {}}}), "--json",
                      noise=["--temp", 100, "-s", seed]).stdout.decode()
        assert line.count("\n") == 1
        assert json.loads(line)["value"] == {"a b": ["\n", '"\\ ', 1.5], "c": {}}
        value = line[line.index('"value"'):line.index('"finish_reason"')]
        assert re.sub(r'\d+\.\d+', "1.5", value) == '"value": {"a b":["\\n","\\"\\\\ ",1.5],"c":{}}, '


def test_an_object(answer):
    for seed in range(5):
        done = answer("--json-object", noise=["--temp", 1, "-s", seed], status=None)
        assert done.returncode == (4 if b"within the answer" in done.stderr else 0)
        text = done.stdout.decode()
        assert text.lstrip().startswith("{")
        if done.returncode == 0:
            assert type(json.loads(text)) is dict


def test_an_expression(answer):
    for seed in range(5):
        text = answer("--regex", r"\d{3}-[A-C]{2,4}( é)?", noise=["--temp", 100, "-s", seed]).stdout.decode()
        assert re.fullmatch(r"\d{3}-[A-C]{2,4}( é)?\n", text), text


def test_a_grammar(answer, tmp_path):
    (tmp_path / "list.gbnf").write_text('root ::= list # ends\nlist ::= "[" (list ("," list)*)? "]" | [0-9]{1,2}\n')
    for seed in range(5):
        text = answer("--grammar", tmp_path / "list.gbnf", noise=["--temp", 100, "-s", seed]).stdout.decode()
        assert re.fullmatch(r"[\[\],0-9]+\n", text)
        json.loads(re.sub(r"\b0(?=\d)", "", text))


def test_a_grammar_names_tokens(answer, tmp_path):
    """Tokens as such, by id and by text; the end token is none of them."""
    def ids(grammar, **options):
        (tmp_path / "it.gbnf").write_text(grammar)
        done = answer("--grammar", tmp_path / "it.gbnf", "--json", "--ids", **options)
        return json.loads(done.stdout)["ids"] if done.returncode == 0 else done.stderr.decode()

    assert ids("root ::= <[300]> \"x\" <[400]>")[::2] == [300, 400]
    found = ids("root ::= !<[300]>{20} <[300]>")
    assert len(found) == 21 and found.index(300) == 20
    found = ids("root ::= <unk> .{3}")
    assert found[0] == 0
    assert "the token </s> ends the answer" in ids("root ::= <unk> </s>", status=2)


def test_the_answer_ends_where_it_is_complete(answer, variant):
    """At once where nothing may follow, else where the model ends it."""
    done = answer("--regex", "ab", "--json")
    assert json.loads(done.stdout)["text"] == "ab" and json.loads(done.stdout)["finish_reason"] == "eos"
    assert "value" not in json.loads(done.stdout)
    texts = {answer("--regex", "a{0,9}", noise=["--temp", 100, "-s", seed]).stdout.decode() for seed in range(9)}
    assert len(texts) > 3 and all(re.fullmatch("(a{1,9}\n)?", text) for text in texts)
    no_end = variant(config={"eos_token_id": None}, tokenizer=lambda it: without_end(it), name="no-end")
    assert re.fullmatch(b"a{2,9}\n", answer("--regex", "a{2,9}", model=no_end).stdout)


def without_end(tokenizer):
    text = json.dumps(tokenizer).replace('"</s>"', '"<unused>"')
    return json.loads(text)


def test_an_answer_that_is_cut_before_it_fits_is_told(answer, stories, run):
    told = "auk: the end came within the answer (length), which does not fit --json-schema\n"
    flags = ("--json-schema", json.dumps(RECORD), "-n", 4)
    for form in ([], ["--json"], ["--jsonl-stream"], ["--no-newline"], ["--require-stop"]):
        assert answer(*flags, *form, status=4).stderr.decode() == told
    assert answer("--regex", "[a-z]*", "-n", 4).stderr == b""  # it fits wherever it ends
    many = run("-m", stories, "--raw", "--map", "-", *flags, *NOISE, input=b"One\n")
    assert many.returncode == 4 and many.stderr.decode().splitlines() == [
        told.replace("auk: ", "auk: standard input:1: ").rstrip(),
        "auk: 1 of 1 answers were cut before their form was complete"]


def test_a_cut_answer_says_so(answer):
    done = answer("--json-schema", json.dumps(NUMBERS), "-n", 20, "--json", "--require-stop", status=4)
    result = json.loads(done.stdout)
    assert result["finish_reason"] == "length" and "value" not in result
    assert done.stderr == b"auk: the end came within the answer (length), which does not fit --json-schema\n"
    done = answer("--json-schema", json.dumps(NUMBERS), "-c", 40, "--require-stop", status=4)
    assert b"the context of 40 tokens is full" in done.stderr


CONSTANT = {"type": "object", "properties": {"sentence": {"const": "Once upon a time, there was a little girl."}},
            "required": ["sentence"], "additionalProperties": False}


def test_what_follows_by_force_is_appended_unasked(run, stories, answer):
    """In the tokens of the tokenizer, alone and at once with others; -n and the context cut within it."""
    flags = ["--json-schema", json.dumps(CONSTANT), "--json", "--ids"]
    whole = json.loads(answer(*flags).stdout)
    n = whole["usage"]["completion_tokens"]
    assert whole["value"] == {"sentence": "Once upon a time, there was a little girl."}
    assert n / 2 < whole["usage"]["forced_tokens"] < n
    text = run("tokenize", "-m", stories, "--decode", input=" ".join(map(str, whole["ids"])).encode()).stdout.decode()
    assert json.loads(text) == whole["value"]
    ids = run("tokenize", "-m", stories, "--no-add-special", "there was a little").stdout.decode().strip()
    assert " ".join(map(str, whole["ids"])).count(ids) == 1
    for cut in range(1, n, 3):
        part = json.loads(answer(*flags, "-n", cut, "--require-stop", status=4).stdout)
        assert part["finish_reason"] == "length" and part["ids"] == whole["ids"][:cut]
    part = json.loads(answer(*flags, "-c", 20, "--require-stop", status=4).stdout)
    assert part["finish_reason"] == "context" and part["ids"] == whole["ids"][:len(part["ids"])]
    many = run("-m", stories, "--raw", "-t", 1, "--map", "-", *NOISE, *flags, "--parallel", 3, input=b"Once\n" * 7)
    for line in many.stdout.decode().splitlines():
        assert json.loads(line)["value"] == whole["value"]
        assert json.loads(line)["usage"]["forced_tokens"] > n / 2


MARKS = {"files": {"tokenizer_config.json": "{}", "chat_template.jinja":
                   "{% for m in messages %}{{ m.content }}{% endfor %}"
                   "{% if add_generation_prompt %}<think>"
                   "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}{% endif %}"}}


def with_marks(tokenizer):
    at = len(tokenizer["model"]["vocab"])
    for content in ("<think>", "</think>"):
        tokenizer["added_tokens"].append({"id": at - 2, "content": content, "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
        at += 1
    vocab = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {token: id for token, id in vocab.items() if id < len(vocab) - 2}
    tokenizer["model"]["merges"] = [merge for merge in tokenizer["model"]["merges"]
                                    if "".join(merge.split(" ") if isinstance(merge, str) else merge)
                                    in tokenizer["model"]["vocab"]]
    return tokenizer


def test_a_thought_is_free_and_the_answer_bound(run, variant):
    model = variant(tokenizer=with_marks, **MARKS)
    for seed in range(4):
        done = run("-m", model, "-t", 1, "-p", "Once", "--think-budget", 12, "--json", "--regex", "[xy]{4}",
                   "--temp", 100, "-s", seed)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert re.fullmatch("[xy]{4}", result["text"]) and result["usage"]["thinking_tokens"] == 12
        assert result["thinking"] and not re.fullmatch("[xy]*", result["thinking"])
    done = run("-m", model, "-t", 1, "-p", "Once", "--no-think", "--regex", "[xy]{4}", *NOISE)
    assert re.fullmatch(b"[xy]{4}\n", done.stdout), done.stderr


def test_each_answer_of_a_chat_has_the_form(run, talker):
    done = run("chat", "-m", talker(), "-t", 1, "--regex", "yes|no", *NOISE, input=b"One\nTwo\nThree\n")
    assert done.returncode == 0 and re.fullmatch(b"((yes|no)\n){3}", done.stdout)


def test_results_are_of_one_form(run, stories, tmp_path):
    flags = ["-m", stories, "--raw", "-t", 1, "--map", "-", "--resume", tmp_path / "out", *NOISE]
    assert run(*flags, "--regex", "[ab]{3}", input=b"One\n").returncode == 0
    assert run(*flags, "--regex", "[ab]{3}", input=b"One\nTwo\n").returncode == 0
    assert re.fullmatch("[ab]{3}\n[ab]{3}\n", (tmp_path / "out").read_text())
    done = run(*flags, "--regex", "[ab]{4}", input=b"One\nTwo\nThree\n")
    assert done.returncode == 2 and b"answer-form" in done.stderr


def test_a_form_that_is_cut_in_one_of_several_answers_is_status_4(run, stories, tmp_path):
    """The results are written; a run that goes on with them has nothing to do."""
    (tmp_path / "lines").write_text("One\nTwo\nThree\n")
    ask = [str(flag) for flag in ("-m", stories, "--raw", "-t", 1, "-n", 5, "--temp", 1, "-s", 1, "--json")]
    form = ["--regex", "[a-z ]{9,40}9"]
    for several in (["-p", "A", "-p", "B", "-p", "C"], ["-p", "A", "--n-best", "3"], ["--map", tmp_path / "lines"],
                    ["--map", tmp_path / "lines", "--parallel", 1]):
        done = run(*ask, *form, *several)
        assert done.returncode == 4
        assert done.stderr.splitlines()[-1] == b"auk: 3 of 3 answers were cut before their form was complete"
        assert [json.loads(line)["finish_reason"] for line in done.stdout.splitlines()] == ["length"] * 3
    assert run(*ask, "--regex", "a{2}", "-p", "A", "-p", "B").returncode == 0
    assert run(*ask, "-p", "A", "-p", "B").returncode == 0
    to = ["--map", tmp_path / "lines", "--resume", tmp_path / "out", *form]
    assert run(*ask, *to).returncode == 4
    before = (tmp_path / "out").read_bytes()
    assert run(*ask, *to, "--retry-errors").returncode == 0
    assert (tmp_path / "out").read_bytes() == before
