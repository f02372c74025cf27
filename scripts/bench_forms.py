"""bench_forms.py - what a form of answers costs: decode under forms against free decode, and records that validate.

usage: bench_forms.py MODEL [RECORDS]          `make demo` first; AUK names another program

The rates are medians of three runs, all forms in turn. With RECORDS, so many prompts of --map are answered under a
schema, and each answer is checked with the package jsonschema.
"""
import json
import os
import statistics
import subprocess
import sys

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
FORMS = {"free": None,
         "objects with any keys": {"type": "array", "minItems": 100,
                                   "items": {"type": "object", "minProperties": 2, "additionalProperties": ANY}},
         "records": {"type": "array", "minItems": 100, "items": PERSON},
         "one of two sentences": {"type": "array", "minItems": 100, "items": {"enum": SENTENCES}}}
RECORD = {"type": "object", "required": ["name", "age", "job", "tags", "born"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 30},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "job": {"enum": ["baker", "engineer", "farmer", "nurse", "teacher"]},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
                         "born": {"type": "string", "format": "date"}}}


def answer(model, schema, *flags, text=None):
    form = ["--ignore-eos"] if schema is None else ["--json-schema", json.dumps(schema)]
    done = subprocess.run([AUK, "-m", model, "--json", *form, *flags], input=text, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def measure_rates(model):
    rates, forced = {name: [] for name in FORMS}, {}
    for _ in range(3):
        for name, schema in FORMS.items():
            result, = answer(model, schema, "-p", "Write a long list of people.", "-n", "200", "--temp", "0")
            rates[name].append(result["timings"]["decode_per_second"])
            forced[name] = result["usage"].get("forced_tokens", 0)
    free = statistics.median(rates["free"])
    for name in FORMS:
        rate = statistics.median(rates[name])
        print(f"{name}: {rate:.1f} tokens/s, {rate / free:.3f} of free, {forced[name]} of 200 tokens forced",
              flush=True)


def check_records(model, n):
    import jsonschema
    checker = jsonschema.Draft202012Validator(RECORD, format_checker=jsonschema.FormatChecker())
    text = "".join(f"Person number {i}, from town {i * 7 % 91}\n" for i in range(n)).encode()
    results = answer(model, RECORD, "--map", "-", "-p", "Invent a person: {}", "-s", "1", "-n", "200", "--require-stop",
                     text=text)
    valid = sum(checker.is_valid(json.loads(result["text"])) for result in results)
    print(f"{valid} of {n} answers parse and validate")


measure_rates(sys.argv[1])
if len(sys.argv) > 2:
    check_records(sys.argv[1], int(sys.argv[2]))
