"""`auk pack`: a packed file says and holds what its directory does, or is not there."""
import json
import os
import pathlib
import shutil

import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
STORIES = DATA / "stories260K-awq"
# Files that auk reads beside weights, and copies with them.
COMPANIONS = ("config.json", "quant_config.json", "quantize_config.json", "hf_quant_config.json",
              "generation_config.json", "tokenizer.json",
              "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
              "added_tokens.json")
# Other layouts than AutoAWQ's are repacked before: test_layouts.py.
DIRECTORIES = sorted(path.parent for path in DATA.glob("**/config.json")
                     if any(path.parent.glob("*.safetensors"))
                     and path.parent.parent.name not in ("layouts", "drafters"))


def inspect(run, path, *flags):
    done = run("inspect", path, "--json", "--tensors", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pack(run, model, output):
    """Packs, and returns the notes before the last line, which says what was written."""
    done = run("pack", model, "-o", output)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    *notes, written = done.stderr.decode().splitlines(keepends=True)
    assert written.startswith(f"auk: {output} is written: ")
    return "".join(notes)


def can_be_packed(report):
    """As models.md, "ak48", has it; all the miniatures' numbers are fp16 numbers where they are quantised."""
    linear = report["linear_layers"]
    return (linear["dense"] == linear["with_bias"] == 0 and linear["group_size"] > 0
            and report["rope_scaling"]["rope_type"] == "default" and not report["fused"]
            and report["norms"] == "before" and report["activation"] == "silu" and report["qk_norm"] != "whole"
            and report["embedding_scale"] == 1 and "language_model" not in report["tensors"][0]["name"]
            and "none" not in report["layer_ropes"] and not report["rope_neighbours"]
            and not report["qk_norm_after_rope"] and not report["attn_gate"] and report["query_scale_beta"] == 0
            and not any(0 < window < report["max_position_embeddings"] for window in report["sliding_windows"]))


@pytest.mark.bulk(3)
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
    assert pack(run, directory, output) == ""
    assert output.stat().st_size == 256 + before["weight_bytes"]

    # The files that belong beside it are there, and it is the same model, but for the order and place of its tensors.
    copies = sorted(name for name in COMPANIONS if (directory / name).exists())
    assert sorted(os.listdir(tmp_path)) == sorted(["model.ak48", *copies])
    for name in copies:
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes()
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


def test_a_packed_file_answers_as_its_directory_does(run, variant, tmp_path):
    """Whatever of the directory shapes an answer goes with it: here a chat template, its tokens, and sampling."""
    template = "{% for m in messages %}{{ bos_token }}A story: {{ m['content'] }}{% endfor %}"
    model = variant(generation={"do_sample": True, "temperature": 0.7, "top_k": 5},
                    files={"chat_template.jinja": template, "special_tokens_map.json": '{"bos_token": "<s>"}',
                           "tokenizer_config.json": "{}", "chat_template.json": "{}"})
    flags = ["-p", "Once upon a time", "-n", "30", "-s", "1", "--json", "--ids"]
    members = ("text", "prompt_ids", "ids")

    def answer(path):
        done = run("-m", path, *flags)
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        return [json.loads(done.stdout)[member] for member in members]

    expected = answer(model)
    output = tmp_path / "packed" / "model.ak48"
    output.parent.mkdir()
    assert pack(run, model, output) == ""
    assert sorted(os.listdir(output.parent)) == sorted(["model.ak48", *(set(COMPANIONS) & set(os.listdir(model)))])
    shutil.copytree(model, tmp_path / "kept")
    assert pack(run, model, model / "model.ak48") == ""  # and in the checkpoint's own folder
    for name in os.listdir(tmp_path / "kept"):
        assert (model / name).read_bytes() == (tmp_path / "kept" / name).read_bytes()
    own = answer(model / "model.ak48")
    shutil.rmtree(model)
    assert answer(output) == own == expected


COMMANDS = [["-p", "Once", "-n", "2"], ["-p", "Once", "--choose", "a,the"], ["--map", "-", "-n", "2"],
            ["chat", "-n", "2", "--chat-template", "chatml"], ["eval", "-f", "-"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0].strip("-") + command[-1])
def test_a_packed_file_alone_is_not_computed_as_another_model(run, packed_alone, command):
    """Without q and k norms it is no Qwen3, whose rope_theta and epsilon would give other answers."""
    alone = packed_alone(STORIES)
    flags = [*command, "-m", alone, "--tokenizer", STORIES / "tokenizer.json"]
    theta, epsilon = ["--rope-theta", "10000"], ["--norm-eps", "1e-5"]
    for given in ([], theta, epsilon):
        done = run(*flags, *given, input=b"Once upon a time\n")
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.decode() == (f"auk: {alone} does not say rope_theta and epsilon: put the model's "
                                        "config.json beside it, or give --rope-theta and --norm-eps\n")
    done = run(*flags, *theta, *epsilon, input=b"Once upon a time\n")
    assert done.returncode == 0 and done.stdout, done.stderr
    assert b"published" not in done.stderr
    shutil.copy(STORIES / "config.json", alone.parent)
    done = run(*flags, input=b"Once upon a time\n")
    assert done.returncode == 0 and b"published" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0].strip("-") + command[-1])
def test_a_packed_file_alone_that_may_be_qwen3_says_what_is_assumed(run, packed_alone, command):
    model = DATA / "miniatures" / "qwen3-awq"
    alone = packed_alone(model)
    text = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    command = [{"Once": min(text), "a,the": ",".join(sorted(text)[:2])}.get(word, word) for word in command]
    flags = [*command, "-m", alone, "--tokenizer", model / "tokenizer.json"]
    records = min(text).encode() * 3 + b"\n"
    note = (f"auk: {alone}: no config.json beside it: rope_theta 1000000 (Qwen3's published value) and epsilon 1e-06 "
            "(Qwen3's published value); --rope-theta and --norm-eps set them\n")
    done = run(*flags, input=records)
    assert done.returncode == 0 and done.stderr.decode().count(note) == 1, done.stderr
    assert done.stderr.count(b"published") == 2
    done = run(*flags, "--rope-theta", "10000", "--norm-eps", "1e-6", input=records)
    assert done.returncode == 0 and b"published" not in done.stderr


@pytest.mark.parametrize("theta, epsilon", [(1000000.0, 1e-6), (20000.0, 1e-6), (1000000.0, 1e-5)])
def test_numbers_that_the_folder_of_a_packed_file_says_otherwise_are_told(run, packed_alone, tmp_path, theta, epsilon):
    """A packed file alone has Qwen3's; one beside a config.json has those of the config.json."""
    model = DATA / "miniatures" / "qwen3-awq"
    alone = packed_alone(model)
    shutil.copy(model / "tokenizer.json", alone.parent)
    config = {**json.loads((model / "config.json").read_text()), "rope_theta": theta, "rms_norm_eps": epsilon}
    (tmp_path / "config.json").write_text(json.dumps(config))
    output = tmp_path / "model.ak48"
    first, *rest = pack(run, alone, output).splitlines()
    assert first == (f"auk: {tmp_path}/config.json was there already and will be read with the packed file, although "
                     f"{alone.parent} has no config.json")
    assert rest == ([] if (theta, epsilon) == (1000000.0, 1e-6) else [
        f"auk: {output} will run with rope_theta {theta:.0f} and epsilon {epsilon:g}, of the config.json beside it; "
        f"{alone} has 1000000 and 1e-06"])


def test_a_packed_file_that_does_not_say_its_numbers_takes_those_of_its_folder(run, packed_alone, tmp_path):
    alone = packed_alone(STORIES)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(STORIES / name, tmp_path)
    assert pack(run, alone, tmp_path / "model.ak48").count("will be read with the packed file") == 2
    assert "rope_theta" not in pack(run, alone, tmp_path / "model.ak48")
