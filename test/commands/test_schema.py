"""`auk schema`: valid texts and others, refusals, and tests as lines of JSON.

The tokenizer is the tiny model's (512 tokens, byte fallback)."""
import json

import pytest

PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
          "required": ["name"], "additionalProperties": False}


@pytest.fixture
def person(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON))
    return path


def test_a_valid_text(run, person):
    done = run("schema", person, input=b'{"age": 3, "name": "A"}\n')
    assert (done.returncode, done.stdout, done.stderr) == (0, b"valid\n", b"")


def test_schema_and_text_may_be_json_themselves(run, tmp_path):
    """As for --json-schema; a file of that name comes first."""
    schema = '{"type": "integer", "maximum": 9}'
    for text in ("5", " 5"):
        done = run("schema", schema, text) if text != " 5" else run("schema", "--json-schema", schema, input=b" 5")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"valid\n", b"")
    for text, said in (("10", b"10 is above the maximum 9"), ("true", b"expected integer, found true"),
                       ('{"a": 1}', b"expected integer, found {")):
        done = run("schema", schema, text)
        assert done.returncode == 1 and done.stderr.startswith(b"auk: the text: ") and said in done.stderr, done.stderr
    (tmp_path / "5").write_text("10")
    assert b"auk: 5: 10 is above" in run("schema", schema, "5", cwd=tmp_path).stderr
    refused = run("schema", '{"type": "whole"}', "5")
    assert refused.returncode == 2 and refused.stderr.startswith(b"auk: the schema")
    assert b"each a file or JSON" in run("schema").stderr


def test_files_may_begin_with_a_byte_order_mark(run, tmp_path):
    (tmp_path / "schema").write_text('\ufeff{"type": "integer"}')
    (tmp_path / "text").write_text("\ufeff5")
    done = run("schema", tmp_path / "schema", tmp_path / "text")
    assert (done.returncode, done.stdout) == (0, b"valid\n"), done.stderr


@pytest.mark.parametrize("text, place", [
    (b'{"name": "A",\n "x', b'standard input:2:3: does not fit the schema: "x"'),
    (b'{"name": "A"', b"standard input: the text ends too early, after byte 12"),
    ('{"name": "\u00e4", \'a'.encode(), b"standard input:1:15: expected a key in quotes, found '"),
    (b'{"name": "A", "name": "B"}', b'standard input:1:16: duplicate key "name"'),
])
def test_the_place_of_what_is_no_json(run, person, text, place):
    done = run("schema", "--schema", person, input=text)
    assert done.returncode == 1 and done.stdout == b"" and place in done.stderr


def test_a_key_that_comes_twice_is_named(run, tmp_path):
    (tmp_path / "object.json").write_text('{"type": "object"}')
    done = run("schema", tmp_path / "object.json", input=b'{"ab": 1, "ab": 2}')
    assert (done.returncode, done.stderr) == (1, b'auk: standard input:1:12: duplicate key "ab"\n')


def test_each_rule_that_fails_is_named_with_its_place(run, person, tmp_path):
    (tmp_path / "answer.json").write_text('{"age": -1, "nam": 1}')
    done = run("schema", person, "answer.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines() == [
        'auk: answer.json: "name" is required', "auk: answer.json: /age: -1 is below the minimum 0",
        'auk: answer.json: "nam" is not allowed (additionalProperties)']
    assert run("schema", person, "-f", "answer.json", cwd=tmp_path).stderr == done.stderr
    twice = run("schema", person, "answer.json", "-f", "answer.json", cwd=tmp_path)
    assert twice.returncode == 2 and b"answer.json cannot stand beside --file" in twice.stderr


def test_what_no_rule_refuses_keeps_its_place(run, person):
    """The order of keys is none of the schema's rules."""
    done = run("schema", person, "--key-order", "schema", input=b'{"age": 1, "name": "A"}')
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"auk: standard input:1:") and b"does not fit the schema" in done.stderr


def test_a_schema_is_named_once(run, person):
    for flags in ([person, "--schema", person], [person, "--jsonl", "-m", "x"], []):
        done = run("schema", *flags, input=b"1")
        assert (done.returncode, done.stdout) == (2, b"") and b"schema" in done.stderr
    assert run("schema", "--schema", person, input=b"{}").stderr == run("schema", person, input=b"{}").stderr


def test_a_refused_schema_names_its_keyword(run, tmp_path):
    (tmp_path / "bad.json").write_text('{"items": {"minimum": "1"}}')
    done = run("schema", "--schema", tmp_path / "bad.json", input=b"1")
    assert done.returncode == 2 and b'#/items/minimum is "1", expected a number' in done.stderr


LENIENT = {"properties": {"a": {"pattern": r"\bx"}, "b": {"not": {"pattern": "(?<=x)y"}},
                          "c": {"oneOf": [{"format": "regex"}, {"maxLength": 3}]},
                          "d": {"if": {"$ref": "http://example.org/d"}, "then": {"const": 1}},
                          "e": {"contains": {"pattern": r"(a)\1"}, "maxContains": 1}},
           "patternProperties": {r"(f)\1": True}, "additionalProperties": False, "unevaluatedProperties": False}
LET_GO = ["#/properties/a/pattern", "#/properties/b/not/pattern", "#/properties/b/not", "#/properties/c/oneOf/0/format",
          "#/properties/c/oneOf", "#/properties/d/if/$ref", "#/properties/d/if", "#/properties/e/contains/pattern",
          "#/properties/e/maxContains", "#/patternProperties", "#/additionalProperties", "#/unevaluatedProperties"]


def test_a_lenient_schema_allows_no_less_than_it_says(run, tmp_path):
    """Keywords that auk cannot hold to, and those that depend on them, are let go, each with a note."""
    (tmp_path / "lenient.json").write_text(json.dumps(LENIENT))
    refused = run("schema", "--schema", tmp_path / "lenient.json", input=b"1")
    assert refused.returncode == 2 and b"not supported" in refused.stderr
    for text in (b'{"a": "y", "b": "zy", "c": "x", "d": 2, "e": ["aa", "aa"], "ff": 1}', b"[]", b'{"c": ""}'):
        done = run("schema", "--schema", tmp_path / "lenient.json", "--schema-lenient", input=text)
        assert done.returncode == 0, done.stderr
        notes = [line.split("let go: ")[1] for line in done.stderr.decode().splitlines()]
        assert sorted(note.split(": ")[0] for note in notes) == sorted(LET_GO)


def test_what_is_no_schema_is_refused_also_leniently(run, tmp_path):
    for schema in ({"pattern": "a("}, {"type": "strin"}, {"$ref": "#/nowhere"}, {"minimum": "1"}):
        (tmp_path / "bad.json").write_text(json.dumps(schema))
        assert run("schema", "--schema", tmp_path / "bad.json", "--schema-lenient", input=b"1").returncode == 2


def lines(run, stories, tests, *flags):
    text = "".join(json.dumps(test) + "\n" for test in tests)
    done = run("schema", "-m", stories / "tokenizer.json", "--jsonl", *flags, input=text.encode())
    assert done.stderr == b"" and done.returncode == 0
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_lines_say_what_was_compiled_and_accepted(run, stories):
    good, bad = lines(run, stories, [{"name": "p", "schema": PERSON, "tests": ['{"name": "A"}', "{}", '{"name": "A'] },
                                     {"name": "q", "schema": {"$ref": "#/x"}, "tests": ["1"]}])
    assert good["compiled"] and good["error"] is None and good["accepted"] == [True, False, False]
    assert good["reasons"][:2] == [[], ['"name" is required']] and good["reasons"][2][0].startswith("text:1:")
    assert good["masks"] > 0 and good["mask_us_max"] >= good["mask_us_p99"] >= 0 and "mask_us" not in good
    assert not bad["compiled"] and "leads nowhere" in bad["error"]
    again, = lines(run, stories, [{"schema": PERSON, "tests": ['{"name": "A"}']}], "--times")
    times = again["mask_us"]
    assert len(times) == again["masks"] and times == sorted(times) and times[-1] == again["mask_us_max"]
