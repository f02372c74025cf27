"""Forms that are large or hard: they are taken, or refused with the reason before an answer begins, by each command
alike and in little time; what becomes too hard within an answer cuts it."""
import itertools
import json
import os
import resource

import pytest

NOISE = ["--temp", 4, "-s", 1, "-n", 40]


def listed(n, make):
    return [make(i) for i in range(n)]


def tagged(i):
    return {"type": "object", "properties": {"tag": {"const": f"k{i}"}, "v": {"type": "integer"}},
            "required": ["tag", "v"], "additionalProperties": False}


def with_own_key(i):
    return {"type": "object", "properties": {f"k{i}": {"type": "integer"}}, "required": [f"k{i}"]}


def needs(i):
    return {"if": {"properties": {"tag": {"const": f"v{i}"}}}, "then": {"required": [f"p{i}"]}}


def chain(n):
    """Definitions that need the one before them."""
    defs = {f"d{i}": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": f"#/$defs/d{i - 1}"}}}
            for i in range(1, n)}
    return {"type": "object", "properties": {f"p{i}": {"$ref": f"#/$defs/d{i}"} for i in range(n)},
            "$defs": {"d0": {"type": "integer"}, **defs}}


def halves(n):
    """Alternatives that double at each reference."""
    defs = {f"d{i}": {"oneOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"type": "object", "required": [f"k{i}"]}]}
            for i in range(n)}
    return {"$defs": {**defs, f"d{n}": {"type": "object"}}}


def fans(n):
    """Alternatives that each refer to all later ones."""
    defs = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{j}"} for j in range(i + 1, n)]
                      + [{"type": "object", "required": [f"k{i}"]}]} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def pigeons(n):
    """n keys with n - 1 values, no two of them equal: no text fits, which only a long search would show."""
    keys = [f"p{i}" for i in range(n)]
    return {"type": "object", "properties": {key: {"enum": list(range(n - 1))} for key in keys}, "required": keys,
            "additionalProperties": False,
            "allOf": [{"not": {"properties": {a: {"const": i}, b: {"const": i}}}}
                      for a, b in itertools.combinations(keys, 2) for i in range(n - 1)]}


JUDGES = "over 4,096 subschemas judge one value"
LONG = "it takes too long"
STEPS = "over 800,000 steps of automata at once"
# name: (schema, why it is refused or a text that fits it)
FORMS = {
    "arrays": ({"enum": listed(2000, lambda i: [i])}, [1999]),
    "more arrays": ({"enum": listed(5000, lambda i: [i])}, f"#: {JUDGES}"),
    "arrays of a member": ({"properties": {"a": {"enum": listed(5000, lambda i: [i])}}}, f"#/properties/a: {JUDGES}"),
    "objects": ({"enum": listed(5000, lambda i: {"a": i})}, f"#: {JUDGES}"),
    "arrays of items": ({"anyOf": listed(5000, lambda i: {"type": "array", "items": {"const": i}})}, f"#: {JUDGES}"),
    "contains": ({"allOf": listed(5000, lambda i: {"contains": {"const": i}})}, f"#: {JUDGES}"),
    "some contains": ({"type": "array", "allOf": listed(50, lambda i: {"contains": {"const": i}})}, list(range(50))),
    "own keys": ({"anyOf": listed(500, with_own_key)}, {"k499": 1}),
    "own keys, one": ({"oneOf": listed(300, with_own_key)}, {"k299": 1}),
    "tags": ({"oneOf": listed(1000, tagged)}, {"tag": "k999", "v": 1}),
    "conditions": ({"type": "object", "allOf": listed(300, needs)}, {"tag": "v299", "p299": 1}),
    "more conditions": ({"type": "object", "allOf": listed(5000, needs)}, JUDGES),
    "names": ({"type": "object", "propertyNames": {"anyOf": listed(20000, lambda i: {"pattern": f"x{i}"})}}, STEPS),
    "chain": (chain(3000), {"p2": {"a": {"a": 1}}}),
    "halves": ({"$ref": "#/$defs/d0", **halves(400)}, f"#: {LONG}"),
    "halves of items": ({"type": "array", "items": {"$ref": "#/$defs/d0"}, "minItems": 1, **halves(400)}, LONG),
    "fans": (fans(240), {"k239": 1}),
    "required": ({"type": "object", "required": listed(30000, lambda i: f"k{i}")}, None),
    "properties": ({"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(9000)},
                    "required": listed(9000, lambda i: f"k{i}"), "additionalProperties": False}, None),
    "patterns": ({"type": "object", "patternProperties": {f"k{i}": {"type": "integer"} for i in range(9000)},
                  "additionalProperties": False}, {"k8999": 1}),
    "dependencies": ({"type": "object", "dependentRequired": {f"k{i}": [f"q{i}"] for i in range(9000)}},
                     {"k8999": 1, "q8999": 1}),
    "items": ({"prefixItems": listed(9000, lambda i: {"const": i})}, [0, 1, 2]),
    "distinct": ({"type": "array", "uniqueItems": True, "minItems": 9000, "items": {"enum": list(range(9000))}}, None),
    "constant": ({"const": {f"k{i}": i for i in range(9000)}}, None),
    "beginnings": ({"enum": listed(1000, lambda i: "a" * 200 + str(i))}, "a" * 200 + "999"),
    "assertions": ({"type": "string", "pattern": "^" + "".join(f"(?!w{i}$)" for i in range(20000)) + "w\\d+$"},
                   "w20000"),
    "more assertions": ({"type": "string", "pattern": "^" + "".join(f"(?=.*w{i})" for i in range(60000))}, STEPS),
    "expression": ({"type": "string", "pattern": f"^(?:{'ab' * 90000})c$"}, "ab" * 90000 + "c"),
}


@pytest.mark.bulk(4)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_taken_or_refused_in_little_time(run, stories, tmp_path, sanitized, name):
    schema, wanted = FORMS[name]
    file = tmp_path / "form.json"
    file.write_text(json.dumps(schema))
    refused = type(wanted) is str and " " in wanted
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    judged = run("schema", file, input=json.dumps(wanted).encode())
    written = run("-m", stories, "--raw", "-t", 1, "-p", "Once", "--json-schema", file, *NOISE)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start < (90 if sanitized else 5)
    if refused:
        for done in (judged, written):
            assert (done.returncode, done.stdout) == (2, b"")
            assert done.stderr.decode().startswith(f"auk: {file}: ") and wanted in done.stderr.decode()
    else:
        assert written.returncode in (0, 4), written.stderr
        assert wanted is None or judged.stdout == b"valid\n", judged.stderr


def test_a_hard_form_of_a_record_is_its_error(run, stories):
    forms = [{"const": 1}, FORMS["objects"][0], {"const": 2}, pigeons(7)]
    records = "".join(json.dumps({"q": "Once", "form": form}) + "\n" for form in forms)
    done = run("-m", stories, "--raw", "-t", 1, "--map", "-", "--map-json", "-p", "{q}", "--json-schema", "{form}",
               "--json", "--temp", 0, "-n", 300, input=records.encode())
    found = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert done.returncode == 1 and [result.get("value") for result in found] == [1, None, 2, None]
    assert found[1]["error"] == f"the record's form: #: {JUDGES}"
    assert found[3]["error"] == DEAD_END.format("--json-schema")


DEAD_END = "{}: the answer is at a point from which no token of this model leads to its form"


def test_a_chat_goes_on_after_an_answer_without_a_way_on(auk, stories):
    terminal_of = pytest.importorskip("chat_terminal").Terminal
    terminal = terminal_of([*auk, "chat", "-m", str(stories), "-t", "1", "--chat-template", "chatml", "--temp", "0",
                            "-n", "300", "--no-history", "--json-schema", json.dumps(pigeons(7))],
                           {**os.environ, "TERM": "dumb"})
    for line in ("Once", "Twice"):
        terminal.wait("> ")
        terminal.type(line + "\r")
        terminal.wait(f"\n{DEAD_END.format('--json-schema')}: the message is taken back\r\n")
    terminal.wait("> ")
    terminal.type("/exit\r")
    assert terminal.end() == 0


def test_an_answer_without_a_way_on_is_cut(run, stories):
    """The form was taken, since only a long search shows that no text fits, or that a part is too hard."""
    ask = ["-m", stories, "--raw", "-t", 1, "-p", "Once", "--temp", 0, "-n", 300]
    done = run(*ask, "--json-schema", json.dumps(pigeons(7)))
    assert (done.returncode, done.stderr.decode()) == (4, f"auk: {DEAD_END.format('--json-schema')}\n")
    inner = {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/d0"}}, **halves(400)}
    done = run(*ask, "--json-schema", json.dumps(inner))
    assert done.returncode == 4
    assert done.stderr.decode().startswith("auk: --json-schema: the answer is at a point from which its form is too "
                                           f"hard: {LONG}")
