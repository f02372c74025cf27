"""bench_forms.py - what a form of answers costs: decode under forms against free decode, and records that validate.

usage: bench_forms.py MODEL [RECORDS] [--tokens N]          `make demo` first; AUK names another program

The rates are medians of three runs, all forms in turn, without guesses from the text, which gain the more the more a
form repeats itself. With RECORDS, so many prompts of --map are answered under a
schema, and each answer is checked with the package jsonschema.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

AUK = os.environ.get("AUK", "build/auk")
TEXT = {"type": "string", "maxLength": 20}
PERSON = {"type": "object", "required": ["first_name", "family_name", "age", "occupation"],
          "additionalProperties": False,
          "properties": {"first_name": TEXT, "family_name": TEXT,
                         "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "occupation": {"enum": ["engineer", "astronomer", "baker of bread", "astronaut"]}}}
ANY = {"anyOf": [{"type": "string", "minLength": 3}, {"type": "array", "items": {"type": "string"}},
                 {"type": "number"}]}
SENTENCES = ["the quick brown fox jumps over the lazy dog", "a journey of a thousand miles begins with a single step"]


def many(items):
    """A schema of a list that does not end within a measurement."""
    return {"type": "array", "minItems": 100, "items": items}


def large_schema(n=50):
    """So many kinds of objects, each with members of many types and with objects of other kinds: 0.9 MB."""
    kinds = {}
    for i in range(n):
        refs = {f"part_{j}": {"$ref": f"#/$defs/kind_{(7 * i + j) % n}"} for j in range(5)}
        texts = {f"text_{i}_{j}": {"type": "string", "minLength": 3, "maxLength": 40 + j} for j in range(20)}
        codes = {f"code_{i}_{j}": {"type": "string", "pattern": f"^[A-Z]{{2,{j + 3}}}-[0-9]+( [a-z]+)*$"}
                 for j in range(20)}
        words = {f"word_{i}_{j}": {"enum": [f"value {k} of {j}" for k in range(40)]} for j in range(20)}
        sizes = {f"size_{i}_{j}": {"type": "integer", "minimum": j, "maximum": 1000 * i + j} for j in range(20)}
        days = {f"day_{i}": {"type": "string", "format": "date-time"}, "more": {"oneOf": [ANY, {"type": "boolean"}]}}
        kinds[f"kind_{i}"] = {"type": "object", "additionalProperties": False, "minProperties": 4,
                              "properties": {**texts, **codes, **refs, **words, **sizes, **days}}
    return {**many({"anyOf": [{"$ref": f"#/$defs/kind_{i}"} for i in range(0, n, 9)]}), "$defs": kinds}


FORMS = {"free": ["--ignore-eos"],
         "objects with any keys": many({"type": "object", "minProperties": 2, "additionalProperties": ANY}),
         "records": many(PERSON),
         "one of two sentences": many({"enum": SENTENCES}),
         "large schema": large_schema(),
         "--regex [a-z ]{4000}": ["--regex", "[a-z ]{4000}"]}
RECORD = {"type": "object", "required": ["name", "age", "job", "tags", "born"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 30},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "job": {"enum": ["baker", "engineer", "farmer", "nurse", "teacher"]},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
                         "born": {"type": "string", "format": "date"}}}


def answer(model, *flags, text=None):
    done = subprocess.run([AUK, "-m", model, "--json", *flags], input=text, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def measure_rates(model, n):
    rates, forced = {name: [] for name in FORMS}, {}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, form) in enumerate(FORMS.items()):
            path = os.path.join(folder, str(i))
            if isinstance(form, dict):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(form, file)
                FORMS[name] = ["--json-schema", path]
        for _ in range(3):
            for name, flags in FORMS.items():
                result, = answer(model, *flags, "-p", "Write a long list of people.", "-n", str(n), "--temp", "0",
                                 "--guess", "0")
                rates[name].append(result["timings"]["decode_per_second"])
                forced[name] = result["usage"].get("forced_tokens", 0)
    free = statistics.median(rates["free"])
    for name in FORMS:
        rate = statistics.median(rates[name])
        print(f"{name}: {rate:.1f} tokens/s, {rate / free:.3f} of free, {forced[name]} of {n} tokens forced",
              flush=True)


def check_records(model, n):
    import jsonschema
    checker = jsonschema.Draft202012Validator(RECORD, format_checker=jsonschema.FormatChecker())
    text = "".join(f"Person number {i}, from town {i * 7 % 91}\n" for i in range(n)).encode()
    results = answer(model, "--json-schema", json.dumps(RECORD), "--map", "-", "-p", "Invent a person: {}", "-s", "1",
                     "-n", "200", "--require-stop", text=text)
    valid = sum(checker.is_valid(json.loads(result["text"])) for result in results)
    print(f"{valid} of {n} answers parse and validate")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("records", type=int, nargs="?", default=0)
parser.add_argument("--tokens", type=int, default=200)
options = parser.parse_args()
measure_rates(options.model, options.tokens)
if options.records:
    check_records(options.model, options.records)
