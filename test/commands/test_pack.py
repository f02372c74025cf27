"""`auk pack`: a packed file says and holds what its directory does, or is not there."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
STORIES = DATA / "stories260K-awq"
# Other layouts than AutoAWQ's are repacked before: test_layouts.py.
DIRECTORIES = sorted(path.parent for path in DATA.glob("**/config.json")
                     if any(path.parent.glob("*.safetensors")) and path.parent.parent.name != "layouts")


def inspect(run, path, *flags):
    done = run("inspect", path, "--json", "--tensors", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pack(run, model, output):
    done = run("pack", model, "-o", output)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    return done.stderr.decode()


def can_be_packed(report):
    """As models.md, "ak48", has it; all the miniatures' numbers are fp16 numbers where they are quantised."""
    linear = report["linear_layers"]
    return (linear["dense"] == linear["with_bias"] == 0 and linear["group_size"] > 0
            and report["rope_scaling"]["rope_type"] == "default" and not report["fused"]
            and report["norms"] == "before" and report["activation"] == "silu" and report["qk_norm"] != "whole"
            and report["embedding_scale"] == 1 and "language_model" not in report["tensors"][0]["name"]
            and "none" not in report["layer_ropes"]
            and not any(0 < window < report["max_position_embeddings"] for window in report["sliding_windows"]))


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_a_directory_is_packed_or_refused(run, directory, tmp_path):
    before, output = inspect(run, directory), tmp_path / "model.ak48"
    if not can_be_packed(before):
        done = run("pack", directory, "-o", output)
        assert done.returncode == 3 and done.stdout == b""
        assert done.stderr.startswith(f"auk: {directory}".encode()) and done.stderr.count(b"\n") == 1
        assert "packed file" in done.stderr.decode()
        assert os.listdir(tmp_path) == []
        return
    pack(run, directory, output)
    assert os.listdir(tmp_path) == ["model.ak48"]
    assert output.stat().st_size == 256 + before["weight_bytes"]

    # Beside its config.json it is the same model, but for the order of its tensors and where they lie.
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        if (directory / name).exists():
            shutil.copy(directory / name, tmp_path)
    after = inspect(run, output)
    assert after["rope_theta_source"] == "config.json beside the file"
    assert after["tokenizer"] == str(tmp_path / "tokenizer.json")
    tensors = [{tensor["name"]: (tensor["dtype"], tensor["shape"]) for tensor in report["tensors"] if tensor["used"]}
               for report in (before, after)]
    assert tensors[0] == tensors[1]
    differ = {"path", "layout", "tokenizer", "rope_theta_source", "rms_norm_eps_source", "tensors", "n_tensors",
              "unused_tensors"}
    assert {key: after[key] for key in after if key not in differ} == (
        {key: before[key] for key in before if key not in differ})

    # And packing it again changes nothing.
    again = tmp_path / "again.ak48"
    assert pack(run, output, again) == ""
    assert again.read_bytes() == output.read_bytes()


def test_says_what_the_file_does_not_hold(run, tmp_path):
    alone = tmp_path / "alone.ak48"
    note = pack(run, STORIES, alone)
    assert "alone.ak48 does not hold rope_theta and epsilon" in note
    assert "--rope-theta 10000 --norm-eps 1e-05" in note
    assert inspect(run, alone)["rope_theta_source"] == "Qwen3's published value"
    lines = run("inspect", alone).stdout.decode()
    assert "theta 1000000 (Qwen3's published value)" in lines
    assert "without q and k norms this is no Qwen3" in lines
    report = inspect(run, alone, "--rope-theta", "10000", "--norm-eps", "1e-05", "--tokenizer", "t.json")
    assert report["rope_theta"] == 10000 and report["rms_norm_eps"] == 1e-5
    assert report["rope_theta_source"] == report["rms_norm_eps_source"] == "flag"
    assert report["tokenizer"] == "t.json"

    shutil.copy(STORIES / "config.json", tmp_path)
    assert pack(run, STORIES, tmp_path / "beside.ak48") == ""


def test_says_where_it_would_be_refused(run, tmp_path):
    config = json.loads((STORIES / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    note = pack(run, STORIES, tmp_path / "model.ak48")
    assert "is written, but cannot be opened where it lies" in note and "num_hidden_layers is 6" in note


def test_verbose_says_how_much(run, tmp_path):
    done = run("pack", STORIES, "-o", tmp_path / "a.ak48", "-v")
    assert done.returncode == 0 and b"a.ak48 is written: 218400 bytes" in done.stderr


def test_mistakes_of_usage(run, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "AUK_MODEL"}
    for arguments, part in ((["-o", tmp_path / "x"], b"no model"), ([STORIES], b"give -o FILE"),
                            ([STORIES, "-m", STORIES, "-o", tmp_path / "x"], b"two models")):
        done = run("pack", *arguments, env=environment)
        assert done.returncode == 2 and done.stdout == b"" and part in done.stderr
    assert os.listdir(tmp_path) == []
    done = run("pack", "--help")
    assert done.returncode == 0 and b"-o, --output FILE" in done.stdout and done.stderr == b""


def test_writes_that_fail_leave_what_was_there(run, auk, tmp_path):
    output = tmp_path / "model.ak48"
    output.write_bytes(b"what was there")
    limited = ["sh", "-c", 'ulimit -f 32; trap "" XFSZ; exec "$@"', "sh", *auk, "pack", STORIES, "-o", output]
    done = subprocess.run([str(part) for part in limited], capture_output=True, timeout=60)
    assert done.returncode == 1 and b"File too large" in done.stderr
    assert output.read_bytes() == b"what was there" and os.listdir(tmp_path) == ["model.ak48"]
    done = run("pack", STORIES, "-o", "/dev/full")
    assert done.returncode == 1 and b"/dev/full" in done.stderr
    done = run("pack", STORIES, "-o", tmp_path / "no" / "model.ak48")
    assert done.returncode == 1 and b"no/model.ak48" in done.stderr
