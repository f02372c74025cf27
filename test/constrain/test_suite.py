"""JSON-Schema-Test-Suite's required tests, by `auk schema --jsonl`.

The tokenizer is the tiny model's (512 tokens, byte fallback)."""
import collections
import gzip
import json
import subprocess

# Formats are annotations there. Refused: remote references, $dynamicRef with several targets, unknown metaschemas, and
# schemas that no text satisfies (`false`).
REFUSED = {"2020-12": 44, "7": 23}


def test_no_required_test_of_the_suite_is_wrong(auk, root):
    with gzip.open(root / "test" / "data" / "schemas" / "suite.jsonl.gz", "rt", encoding="utf-8") as file:
        suite = [json.loads(line) for line in file]
    refused = collections.Counter()
    text = "".join(json.dumps(group) + "\n" for group in suite)
    tokenizer = root / "test" / "data" / "stories260K-awq" / "tokenizer.json"
    done = subprocess.run([*auk, "schema", "-m", tokenizer, "--jsonl", "--ignore-formats", "--key-order", "any"],
                          input=text.encode(), capture_output=True, timeout=60)
    assert done.stderr == b"" and done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    for group, answer in zip(suite, answers, strict=True):
        if answer["compiled"]:
            assert answer["accepted"] == [test["valid"] for test in group["tests"]], group["name"]
        else:
            refused[group["draft"]] += 1
    assert refused == REFUSED
