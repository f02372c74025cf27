"""scripts/rows_graph.py on figures that are made up: what it sums, what it draws, which cliffs it finds."""
import json
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

LAYERS = ("qkv", "o", "gate_up", "down")


def row(layer, rows, kernel, us, chosen):
    return {"layer": layer, "n_in": 64, "n_out": 64, "n_tokens": rows, "kernel": kernel, "chosen": chosen, "us": us}


def kernels(times):
    """A layer's four matrices; times[rows] is the sum of the chosen kernels'."""
    rows = [{"layer": "machine", "kernel": "cublas fp16", "us": 1, "n_tokens": 1}]
    for count, us in times.items():
        for layer in LAYERS:
            rows += [row(layer, count, "awq_planes", us / 4, True), row(layer, count, "awq_plain", 9 * us, False),
                     row(layer, count, "int8_mma", 1, True), row(layer, count, "cublas fp16", us, False)]
    return rows


@pytest.fixture
def graph(root, tmp_path):
    def run(rows, *flags):
        path = tmp_path / "kernels.json"
        path.write_text("[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]\n")
        return subprocess.run([sys.executable, root / "scripts" / "rows_graph.py", path, "-o", tmp_path / "rows.svg",
                               *flags], capture_output=True, text=True)

    return run


def test_times_are_summed_over_the_chosen_kernels(graph, tmp_path):
    peer = tmp_path / "peer"
    peer.write_text("".join(json.dumps({"layer": layer, "rows": 16, "us": 5}) + "\n" for layer in LAYERS))
    done = graph(kernels({1: 40, 16: 60}), "--peer", f"Humming={peer}")
    assert done.returncode == 0 and "cliff" not in done.stdout
    assert "| rows | auk, us | cuBLAS fp16, us | Humming, us |" in done.stdout
    assert "| 1 | 40.0 | 160.0 |  |" in done.stdout and "| 16 | 60.0 | 240.0 | 20.0 |" in done.stdout
    drawn = xml.parse(tmp_path / "rows.svg").getroot()
    assert len(drawn.findall("{*}polyline")) == 3 and len(drawn.findall("{*}circle")) == 5


@pytest.mark.parametrize("us, found", [(61.7, 0), (61.9, 1)])
def test_a_count_that_a_larger_one_beats_by_over_3_percent_is_a_cliff(graph, us, found):
    done = graph(kernels({8: us, 9: 60, 16: 70}))
    assert done.stdout.count("cliff: 8 rows take") == found and done.stdout.count("cliff") == found


def test_figures_without_a_layer_are_refused(graph):
    done = graph([it for it in kernels({1: 40}) if it["layer"] != "o"])
    assert done.returncode == 1 and "no count of rows" in done.stderr
    done = graph(kernels({1: 40}), "--peer", "Humming")
    assert done.returncode == 2 and "NAME=FILE" in done.stderr
