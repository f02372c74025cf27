"""`auk schema`: valid texts and others, refusals, and tests as lines of JSON.

The tokenizer is the tiny model's (512 tokens, byte fallback)."""
import json


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
          "required": ["name"], "additionalProperties": False}


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
