"""scripts/thresholds.py on figures that are made up: two shapes, three kernels and one for int8 activations."""
import json
import subprocess
import sys

import pytest

COUNTS = [1, 2, 4, 8, 16, 32]


def row(layer, n_in, n_out, n_tokens, kernel, us, chosen):
    return {"model": "made up", "device": "none", "layer": layer, "n_in": n_in, "n_out": n_out, "weights": "4-bit",
            "group": 128, "n_tokens": n_tokens, "kernel": kernel, "chosen": chosen, "us": us, "gbps": 1, "tflops": 1,
            "of_ceiling": 0.5}


def made_up():
    """`few` takes 10 us to 4 rows and then 5 a row; `many` always 30; `plain` 50 a row. The choice goes over to
    `many` at 4 rows, which is too early. 4096 x 4096 is small, 4096 x 24576 is not."""
    rows = [{**row("machine", 0, 0, 0, "streaming read", 100, False), "weights": "any"}]
    for layer, n_out in (("o", 4096), ("gate_up", 24576)):
        for n in COUNTS:
            few = 10 if n <= 4 else 5 * n
            rows += [row(layer, 4096, n_out, n, "few", few, n < 4), row(layer, 4096, n_out, n, "many", 30, n >= 4),
                     row(layer, 4096, n_out, n, "plain", 50 * n, False),
                     row(layer, 4096, n_out, n, "int8_mma", 20, True),
                     row(layer, 4096, n_out, n, "cublas fp16", 1, False)]
    return rows


@pytest.fixture
def told(root, tmp_path):
    """The function returns the output of the script for a file of the rows, without its last `cut` bytes."""

    def tell(rows, cut=0):
        text = "[\n" + ",\n".join("  " + json.dumps(it) for it in rows) + "\n]\n"
        (tmp_path / "kernels.json").write_text(text[:len(text) - cut])
        return subprocess.run([sys.executable, root / "scripts" / "thresholds.py", tmp_path / "kernels.json"],
                              capture_output=True, text=True, check=False)

    return tell


def cells(out, heading):
    part = out.split(f"## {heading}")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_choices_that_are_not_the_fastest_are_named(told):
    done = told(made_up())
    assert done.returncode == 0, done.stderr
    assert "2 of 24 choices." in done.stdout  # of int8 activations 12
    wrong = cells(done.stdout, "Where the chosen kernel")
    assert [line[0] for line in wrong] == ["o", "gate_up"]
    assert all(line[5:] == ["4", "many", "30.00", "few", "10.00", "3.00"] for line in wrong)


def test_the_best_thresholds_are_told_by_class(told):
    best = cells(told(made_up()).stdout, "The best thresholds")
    # At 8 rows few takes 40 and many 30: they part between 4 and 8. Today 4 rows take three times the best.
    fp16 = ["few 1 to 4, many 8 to 32", "0.0%", "20.1%"]
    int8 = ["int8_mma 1 to 32", "0.0%", "0.0%"]
    assert best == [["4-bit", "fp16", "20 Mi and more", *fp16], ["4-bit", "fp16", "below 20 Mi", *fp16],
                    ["4-bit", "int8", "20 Mi and more", *int8], ["4-bit", "int8", "below 20 Mi", *int8]]


def test_noise_moves_no_threshold(told):
    """A kernel that leads by 1% at one count is not worth two changes."""
    rows = made_up()
    for it in rows:
        if it["kernel"] == "plain" and it["n_tokens"] == 16:
            it["us"] = 29.7
    best = cells(told(rows).stdout, "The best thresholds")
    assert best[0][3] == "few 1 to 4, many 8 to 32"


def test_kernels_that_are_never_near_are_marked(told):
    families = {line[0]: line for line in cells(told(made_up()).stdout, "How near each kernel")}
    assert families["few"][3] == families["many"][3] == families["int8_mma"][3] == "1.00"
    assert families["plain"][3:6] == ["5.00", "4096 → 4096, 1 rows", "**far**"]
    assert families["few"][5:] == ["", "6 of 12"] and families["plain"][6] == "0 of 12"
    assert "cublas fp16" not in families


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(told):
    done = told(made_up(), cut=30)
    assert done.returncode == 0
    assert "of 24 choices" in done.stdout  # the library's last line is lost
    assert told(made_up()[:1]).returncode == 1
