"""Models by the names of Hugging Face's site, out of its cache, and the list that `auk models` makes."""
import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import termios

import pytest
from terminals import read_all

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"
NAME = "karpathy/stories"
HUB_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "AUK_MODEL")


class Hub:
    """A cache as huggingface_hub lays it out: what it downloads is a blob, a snapshot holds links to blobs."""

    def __init__(self, folder):
        self.folder = folder

    def repository(self, name):
        return self.folder / ("models--" + name.replace("/", "--"))

    def add(self, source, name=NAME, commit=COMMIT, ref="main", leave_out=()):
        repository = self.repository(name)
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (repository / "blobs").mkdir(exist_ok=True)
        for file in sorted(source.iterdir()):
            if file.name in leave_out:
                continue
            blob = repository / "blobs" / f"{commit[:4]}{file.name}"
            shutil.copy(file, blob)
            (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
        if ref:
            path = repository / "refs" / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit)
        return snapshot


@pytest.fixture
def hub(tmp_path):
    (tmp_path / "hub").mkdir()
    return Hub(tmp_path / "hub")


@pytest.fixture
def clean(tmp_path):
    """An environment that knows of no cache but the test's."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    return {**{k: v for k, v in os.environ.items() if k not in HUB_VARIABLES},
            "HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "hub")}


@pytest.fixture
def call(run, clean, tmp_path):
    """call(*arguments, VARIABLE=value): run in an empty directory and that environment; a value of None removes."""

    def call_it(*arguments, **changes):
        environment = {k: str(v) for k, v in {**clean, **changes}.items() if v is not None}
        return run(*arguments, cwd=tmp_path / "here", env=environment)

    return call_it


def path_of(process):
    """The path that `auk inspect --json` opened."""
    assert process.returncode == 0, process.stderr.decode()
    return json.loads(process.stdout)["path"]


def refused(process, *texts, status=3):
    assert process.returncode == status and process.stdout == b""
    said = process.stderr.decode()
    for text in texts:
        assert str(text) in said, said
    assert len(said.splitlines()) == 1


# --- names


def test_a_name_is_found_in_the_cache_and_answers(hub, call, stories):
    hub.add(stories)
    answer = call("-m", NAME, "--raw", "-p", "Once upon a time", "-n", "8", "--temp", "0")
    direct = call("-m", stories, "--raw", "-p", "Once upon a time", "-n", "8", "--temp", "0")
    assert answer.returncode == 0 and answer.stdout and answer.stdout == direct.stdout


def test_every_command_that_takes_a_model_takes_a_name(hub, call, stories, tmp_path):
    snapshot = hub.add(stories)
    assert path_of(call("inspect", "--json", NAME)) == str(snapshot)
    assert call("tokenize", "-m", NAME, "Once").stdout == call("tokenize", "-m", stories, "Once").stdout
    assert call("pack", NAME, "-o", tmp_path / "packed.ak48").returncode == 0
    assert call("bench", "-m", NAME, "-p", "1", "-n", "1", "-r", "1").returncode == 0
    (tmp_path / "text").write_text("Once upon a time")
    assert b"ppl=" in call("eval", "-m", NAME, "-f", tmp_path / "text").stdout


def test_the_environment_names_the_model(hub, call, stories):
    snapshot = hub.add(stories)
    assert path_of(call("inspect", "--json", AUK_MODEL=NAME)) == str(snapshot)


PLACES = [  # in the order in which huggingface_hub looks
    ("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub"),
    ("HOME", ".cache/huggingface/hub"),
]


@pytest.mark.parametrize("first", range(len(PLACES)))
def test_the_cache_lies_where_the_environment_says(call, stories, tmp_path, first):
    settings = dict.fromkeys(HUB_VARIABLES)
    for index, (variable, below) in enumerate(PLACES[first:]):
        settings[variable] = tmp_path / f"place{index}"
        if index == 0:
            snapshot = Hub(settings[variable] / below).add(stories)
        else:
            Hub(settings[variable] / below).add(stories, commit=OTHER)
    assert path_of(call("inspect", "--json", NAME, **settings)) == str(snapshot)
    for variable, _ in PLACES[:first]:  # set to nothing is not set
        settings[variable] = ""
    assert path_of(call("inspect", "--json", NAME, **settings)) == str(snapshot)


def test_a_tilde_in_the_environment_is_the_home(call, stories, tmp_path):
    snapshot = Hub(tmp_path / "home" / "models").add(stories)
    assert path_of(call("inspect", "--json", NAME, HF_HUB_CACHE="~/models")) == str(snapshot)


def test_a_path_wins_over_a_name(hub, call, stories, tmp_path):
    hub.add(stories)
    here = tmp_path / "here" / NAME
    shutil.copytree(stories, here)
    assert path_of(call("inspect", "--json", NAME)) == NAME


def test_a_name_without_an_organisation(hub, call, stories):
    snapshot = hub.add(stories, name="gpt2")
    assert path_of(call("inspect", "--json", "gpt2")) == str(snapshot)


def test_revisions(hub, call, stories):
    main = hub.add(stories)
    tagged = hub.add(stories, commit=OTHER, ref="v1.0")
    (hub.repository(NAME) / "refs" / "refs" / "pr").mkdir(parents=True)
    (hub.repository(NAME) / "refs" / "refs" / "pr" / "7").write_text(OTHER + "\n")
    assert path_of(call("inspect", "--json", NAME)) == str(main)
    assert path_of(call("inspect", "--json", NAME + "@main")) == str(main)
    assert path_of(call("inspect", "--json", NAME + "@v1.0")) == str(tagged)
    assert path_of(call("inspect", "--json", NAME + "@refs/pr/7")) == str(tagged)
    assert path_of(call("inspect", "--json", f"{NAME}@{OTHER}")) == str(tagged)
    refused(call("inspect", NAME + "@v2"), "not revision v2", f"auk get {NAME}@v2")


def test_without_a_ref_the_newest_complete_snapshot_counts(hub, call, stories):
    old, new, newest = (hub.add(stories, commit=c * 40, ref=None, leave_out=without)
                        for c, without in (("a", ()), ("b", ()), ("c", ("model.safetensors", "config.json"))))
    for age, snapshot in enumerate((newest, new, old)):
        os.utime(snapshot, (1e9 - age, 1e9 - age))
    assert path_of(call("inspect", "--json", NAME)) == str(new)
    os.utime(old, (1e9 + 1, 1e9 + 1))
    assert path_of(call("inspect", "--json", NAME)) == str(old)


def test_a_name_that_is_nowhere_says_where_it_looked_and_how_to_fetch_it(hub, call):
    refused(call("-m", "Qwen/Qwen3-8B-AWQ", "-p", "x"), "no such file or directory", hub.folder,
            "auk get Qwen/Qwen3-8B-AWQ")
    for arguments in (["tokenize", "-m", "Qwen/Qwen3-8B-AWQ", "x"], ["template", "-m", "Qwen/Qwen3-8B-AWQ"],
                      ["chat", "-m", "Qwen/Qwen3-8B-AWQ"], ["pack", "Qwen/Qwen3-8B-AWQ", "-o", "x"]):
        refused(call(*arguments), hub.folder, "auk get Qwen/Qwen3-8B-AWQ")
    process = call("-m", "a-folder", "-p", "x")  # one does not fetch this name
    refused(process, hub.folder, "auk models lists")
    assert b"auk get OWNER/NAME" in process.stderr and b"auk get a-folder" not in process.stderr
    refused(call("inspect", "a/b", HOME=None, HF_HUB_CACHE=None), "no such file or directory", "HOME is not set")


@pytest.mark.parametrize("text", ["./a", "/a/b", "a/b/c", "../b", "a/..", "a/b@../../c", "a/b@", "a b/c", "a/b.",
                                  "a" * 200, "a/b@" + "c" * 200, "-/-", "a/", "/"])
def test_what_is_no_name_is_a_path(hub, call, stories, text):
    hub.add(stories, name="a/b")
    process = call("inspect", "-m", text)
    assert process.returncode == 3 and b"auk get" not in process.stderr


# --- downloads that are not complete


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(hub, call, stories, file):
    hub.add(stories, leave_out=(file,))
    (hub.repository(NAME) / "blobs" / "5a.incomplete").write_bytes(b"half")
    refused(call("-m", NAME, "-p", "x"), "the download is not complete", f"{file} is missing", f"auk get {NAME}")


def test_a_shard_that_is_missing_is_named(hub, call, root):
    sharded = root / "test" / "data" / "miniatures" / "llama-sharded"
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) > 1
    snapshot = hub.add(sharded)
    assert path_of(call("inspect", "--json", NAME)) == str(snapshot)
    (hub.repository(NAME) / "blobs" / (COMMIT[:4] + shards[-1])).unlink()  # the link stays
    refused(call("inspect", NAME), "the download is not complete", f"{shards[-1]} is missing")


def test_a_snapshot_of_a_tokenizer_alone_serves_tokenize(hub, call, stories):
    hub.add(stories, leave_out=("config.json", "model.safetensors"))
    assert call("tokenize", "-m", NAME, "Once").stdout == call("tokenize", "-m", stories, "Once").stdout


@pytest.mark.parametrize("ref", [b"", b"../../..", b"\xff\xfe", b"x" * 5000, OTHER.encode(), b"a\nb"])
def test_a_ref_that_means_nothing_is_refused_or_passed_over(hub, call, stories, ref):
    snapshot = hub.add(stories)
    (hub.repository(NAME) / "refs" / "main").write_bytes(ref)
    process = call("inspect", "--json", NAME)
    assert process.returncode in (0, 2, 3)
    if process.returncode == 0:
        assert path_of(process) == str(snapshot)
    else:
        assert len(process.stderr.splitlines()) == 1


def test_a_ref_that_is_a_fifo_is_refused(hub, call, stories):
    hub.add(stories, ref=None)
    (hub.repository(NAME) / "refs").mkdir()
    os.mkfifo(hub.repository(NAME) / "refs" / "main")
    refused(call("inspect", NAME), "refs/main is a fifo")


@pytest.mark.parametrize("index", [b"", b"{", b"[]", b'{"weight_map": 7}', b'{"weight_map": {"a": 7}}',
                                   b'{"weight_map": {"a": "../../x"}}', b'{"weight_map": {"a": "\\u0000"}}'])
def test_an_index_that_is_damaged_is_refused(hub, call, stories, index):
    snapshot = hub.add(stories, leave_out=("model.safetensors",))
    (snapshot / "model.safetensors.index.json").write_bytes(index)
    process = call("inspect", NAME)
    assert process.returncode == 3 and len(process.stderr.splitlines()) == 1


def weigh(folder, files):
    """Files of that many bytes, all of them zero."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in files.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
ONE = {"model.safetensors": 1}
LONG = "A" * 63
# config.json, further files (of a size, or holding this JSON), and what the list then says: architecture, method, bits,
# group, dtype, context, bytes; and the size in words.
FACTS = {
    "nothing": ({}, {"model.safetensors": 0}, (None, None, None, None, None, None, None), "-"),
    "plain": ({"architectures": ["A", "B"], "model_type": "t", "max_position_embeddings": 77, "torch_dtype": "f",
               "dtype": "g"}, {"model.safetensors": 1023}, ("A", None, None, None, "f", 77, 1023), "1023 B"),
    "type": ({"model_type": "t", "dtype": "g"}, {"model.safetensors": 1024},
             ("t", None, None, None, "g", None, 1024), "1.0 KiB"),
    "awq": ({"quantization_config": AWQ}, {"model.safetensors": 10239},
            (None, "awq", 4, 128, None, None, 10239), "10.0 KiB"),
    "whole": ({"quantization_config": {**AWQ, "group_size": -1}}, {"model.safetensors": 10240},
              (None, "awq", 4, -1, None, None, 10240), "10 KiB"),
    "odd": ({"quantization_config": {"quant_method": "x", "bits": -2, "group_size": 0}, "max_position_embeddings": 1.5},
            {"model.safetensors": 3 << 20}, (None, "x", None, None, None, None, 3 << 20), "3.0 MiB"),
    "no method": ({"quantization_config": {"bits": 3}}, ONE, (None, None, None, None, None, None, 1), "1 B"),
    "w_bit": ({"quantization_config": {"w_bit": 3, "q_group_size": 64}}, ONE,
              (None, "awq", 3, 64, None, None, 1), "1 B"),
    "nvfp4": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, {"model.safetensors": 1},
              (None, "modelopt", 4, None, None, None, 1), "1 B"),
    "fp8": ({}, {"model.safetensors": 1, "hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}},
            (None, "modelopt", 8, None, None, None, 1), "1 B"),
    "groups": ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "group_size": 32}}, "group_1": {"weights": {"num_bits": 4}}}}}, ONE,
        (None, "compressed-tensors", 8, 32, None, None, 1), "1 B"),
    "text part": ({"text_config": {"max_position_embeddings": 9, "quantization_config": AWQ}}, ONE,
                  (None, "awq", 4, 128, None, 9, 1), "1 B"),
    "text part beside": ({"max_position_embeddings": 5, "quantization_config": {**AWQ, "bits": 8},
                          "text_config": {"max_position_embeddings": 9, "quantization_config": AWQ}}, ONE,
                         (None, "awq", 8, 128, None, 5, 1), "1 B"),
    "older": ({"quantization_config": {"bits": 8}}, {**ONE, "quantize_config.json": {"bits": 4, "group_size": 32},
                                                     "quant_config.json": {"q_group_size": 64}},
              (None, "awq", 8, 64, None, None, 1), "1 B"),
    "long": ({"architectures": [LONG], "model_type": "t"}, ONE, (LONG, None, None, None, None, None, 1), "1 B"),
    "too long": ({"architectures": [LONG + "A"], "model_type": "t"}, ONE, ("t",) + (None,) * 5 + (1,), "1 B"),
    "shards": ({}, {"model-1.safetensors": 10, "model-2.safetensors": 20, "other.safetensors": 400, "x.bin": 8000},
               (None, None, None, None, None, None, 30), "30 B"),
    "others": ({}, {"other.safetensors": 7, "x.bin": 9}, (None, None, None, None, None, None, 7), "7 B"),
    "pickles": ({}, {"a.bin": 1, "b.pt": 2, "c.pth": 4, "d.gguf": 99}, (None,) * 6 + (7,), "7 B"),
    "a pickle's name": ({}, {"model.bin": 5, "other.safetensors": 9}, (None,) * 6 + (9,), "9 B"),
    "a gguf's name": ({}, {"model.gguf": 3, "x.bin": 4}, (None,) * 6 + (4,), "4 B"),
    "gguf": ({}, {"d.gguf": 99, "model.txt": 3}, (None,) * 6 + (99,), "99 B"),
    "n" * 61: ({}, ONE, (None,) * 6 + (1,), "1 B"),
}


def test_what_a_refused_checkpoint_says_of_itself_is_told(call, tmp_path):
    tree = tmp_path / "here" / "t"
    for name, (config, files, *_) in FACTS.items():
        weigh(tree / name, {file: size for file, size in files.items() if isinstance(size, int)})
        for file, content in {"config.json": config, **files}.items():
            if isinstance(content, dict):
                (tree / name / file).write_text(json.dumps(content))
    entries = listed(call("models", "--json", "t"))
    keys = ("architecture", "quantisation", "bits", "group", "dtype", "context", "bytes")
    assert {it["name"][2:]: tuple(it[key] for key in keys) for it in entries} == {
        name: facts for name, (_, _, facts, _) in FACTS.items()}
    assert not any(it["runs"] for it in entries) and all(it["path"] == it["name"] for it in entries)

    def words(it):
        method = it["quantisation"]
        return (method or it["dtype"] or "") + (f", {it['bits']} bits" if method and it["bits"] else "") + (
            f", groups of {it['group']}" if method and (it["group"] or 0) > 0 else "")

    width = max(len(it["name"]) for it in entries if len(it["name"]) < 60)
    want = [f"{'NAME':{width}}  RUNS      SIZE  CONTEXT  {'ARCHITECTURE':22}  QUANTISATION"]
    for it in entries:
        size = FACTS[it["name"][2:]][3]
        want += [f"{it['name']:{width}}  no    {size:>8}  {it['context'] or '-':>7}  {it['architecture'] or '-':22}  "
                 f"{words(it)}", f"    {it['reason']}"]
    assert call("models", "t").stdout.decode().splitlines() == want


def test_names_are_as_long_as_the_site_allows(hub, call, stories):
    name = "a" * 40 + "/" + "b" * 55
    snapshot = hub.add(stories, name=name)
    assert path_of(call("inspect", "--json", name)) == str(snapshot)
    hub.add(stories, name=name + "b")
    assert b"auk get" not in call("inspect", name + "b").stderr
    assert [it["name"] for it in listed(call("models", "--json"))] == [name]
    revision = "v" * 128
    tagged = hub.add(stories, commit=OTHER, name=NAME, ref=revision)
    assert path_of(call("inspect", "--json", f"{NAME}@{revision}")) == str(tagged)
    assert b"auk get" not in call("inspect", f"{NAME}@{revision}v").stderr


@pytest.mark.parametrize("text, is_name", [
    ("a-b/c_d.e", True), ("Z9/0a", True), ("a/b--c", True), ("a/b@x/y.z", True), ("-a/b", False), ("a/-b", False),
    (".a/b", False), ("a/.b", False), ("a./b", False), ("a/b.", False), ("a/b@-x", False), ("a/b@x.", False),
    ("a/b@x//y", False), ("a+b/c", False), ("a/b~", False), ("/a@x", False)])
def test_what_can_be_a_name(call, text, is_name):
    process = call("inspect", "-m", text)
    assert process.returncode == 3 and (b"auk get" in process.stderr) == is_name


def test_among_snapshots_as_new_as_each_other_the_first_name_counts(hub, call, stories):
    one, two, three = (hub.add(stories, commit=c * 40, ref=None) for c in "bac")
    for snapshot in (one, two, three):
        os.utime(snapshot, ns=(10**18, 10**18))
    assert path_of(call("inspect", "--json", NAME)) == str(two)
    os.utime(three, ns=(10**18, 10**18 + 1))
    assert path_of(call("inspect", "--json", NAME)) == str(three)


def test_only_what_is_being_downloaded_is_on_its_way(hub, call, stories):
    """Without it, the weights are of another kind, which the loader refuses."""
    hub.add(stories, leave_out=("model.safetensors",))
    blobs = hub.repository(NAME) / "blobs"
    for name, downloading in (("x.incomplete.lock", False), ("incomplete", False), ("x.incomplete", True)):
        (blobs / name).write_bytes(b"")
        process = call("inspect", NAME)
        assert process.returncode == 3 and (b"the download is not complete" in process.stderr) == downloading, name


def test_the_cache_is_listed_by_name(hub, call, stories):
    """Folders that hold no model are passed over, and so are those without a snapshot."""
    for name in ("b/z", "b/a", "a", "B/x--y"):
        hub.add(stories, name=name)
    for other in ("datasets--a--b", "models--a b", "models--", "models--c--empty", "models--d--file"):
        (hub.folder / other).mkdir()
    (hub.folder / "models--e").write_text("")
    shutil.copytree(hub.repository("a"), hub.folder / "datasets--c", symlinks=True)
    assert call("models", "--names").stdout.decode().splitlines() == ["B/x--y", "a", "b/a", "b/z"]


@pytest.mark.parametrize("levels", [12, 13])
def test_twelve_levels_are_looked_into(call, tmp_path, levels):
    deep = tmp_path / "tree" / "/".join("abcdefghijklm"[:levels])
    weigh(deep, {"config.json": 2, "model.safetensors": 2})
    process = call("models", "--names", tmp_path / "tree")
    found = [str(deep)] if levels == 12 else []
    assert process.stdout.decode().splitlines() == found
    assert process.stderr.decode() == ("" if found else "auk: the search stopped at 12 levels or 10000 directories: "
                                       "there may be more\n")


def test_hidden_folders_and_what_lies_in_a_checkpoint_are_passed_over(call, tmp_path):
    files = {"config.json": 2, "model.safetensors": 2}
    for path in ("a", "a/inner", ".hidden", "b/.hidden", "b/c"):
        weigh(tmp_path / "tree" / path, files)
    for path, lacking in (("no config", "config.json"), ("no weights", "model.safetensors")):
        weigh(tmp_path / "tree" / path, {file: 2 for file in files if file != lacking})
    names = call("models", "--names", tmp_path / "tree").stdout.decode().splitlines()
    assert names == [f"{tmp_path}/tree/a", f"{tmp_path}/tree/b/c"]
    assert call("models", "--names", tmp_path / "tree" / "a").stdout.decode().splitlines() == [f"{tmp_path}/tree/a"]


# --- the list


def listed(process):
    assert process.returncode == 0, process.stderr.decode()
    return json.loads(process.stdout)


def test_the_list_has_the_cache_and_what_lies_below(hub, call, stories, tmp_path):
    snapshot = hub.add(stories)
    below = tmp_path / "below" / "a" / "b"
    shutil.copytree(stories, below / "awq")
    assert call("pack", stories, "-o", below / "packed").returncode == 0
    shutil.copy(stories / "tokenizer.json", below)
    (below / "other").mkdir()
    (below / "other" / "config.json").write_text("{}")  # no checkpoint: no weights
    cache, directory, packed = listed(call("models", "--json", tmp_path / "below"))
    expected = {"runs": True, "reason": None, "architecture": "LlamaForCausalLM", "quantisation": "awq", "bits": 4,
                "context": 512}
    for entry in (cache, directory, packed):
        assert {key: entry[key] for key in expected} == expected
        assert entry["bytes"] > 100_000 and entry["group"] == 16
    assert (cache["name"], cache["path"], cache["from_hub"]) == (NAME, str(snapshot), True)
    assert (directory["name"], directory["path"], directory["from_hub"]) == (str(below / "awq"),) * 2 + (False,)
    assert packed["name"] == str(below / "packed")


@pytest.mark.parametrize("file, method", [("quant_config.json", "awq"), ("quantize_config.json", "gptq")])
def test_older_files_say_the_quantisation_too(call, variant, file, method):
    model = variant(config={"quantization_config": None})
    bits = {"w_bit": 4, "q_group_size": 16, "version": "GEMM"} if method == "awq" else {"bits": 4, "group_size": 16}
    (model / file).write_text(json.dumps(bits))
    entry, = listed(call("models", "--json", model.parent))
    assert (entry["quantisation"], entry["bits"], entry["group"]) == (method, 4, 16)


def test_the_list_as_lines(hub, call, stories):
    hub.add(stories)
    head, line = call("models").stdout.decode().splitlines()
    assert head.split() == ["NAME", "RUNS", "SIZE", "CONTEXT", "ARCHITECTURE", "QUANTISATION"]
    assert line.split() == [NAME, "yes", "213", "KiB", "512", "LlamaForCausalLM", "awq,", "4", "bits,", "groups",
                            "of", "16"]
    assert line.index("yes") == head.index("RUNS")


def test_names_are_what_m_takes(hub, call, stories, tmp_path):
    hub.add(stories)
    shutil.copytree(stories, tmp_path / "here" / "models" / "mine")  # ./models is looked at where none is named
    names = call("models", "--names").stdout.decode().splitlines()
    assert names == [NAME, "models/mine"]
    assert call("models", "--names", "--json").returncode == 2
    for name in names:
        assert call("inspect", name).returncode == 0


def test_why_one_will_not_run_is_said_in_the_loaders_words(hub, call, variant, stories):
    method = {"quantization_config": {"quant_method": "hqq", "bits": 3, "group_size": 8}}
    model = variant(config=method)
    loader = call("inspect", model)
    assert loader.returncode == 3
    entry, = listed(call("models", "--json", model))
    assert entry["runs"] is False and f"auk: {entry['reason']}\n" == loader.stderr.decode()
    assert (entry["architecture"], entry["quantisation"], entry["bits"]) == ("LlamaForCausalLM", "hqq", 3)
    assert entry["context"] == 512 and entry["bytes"] > 100_000
    lines = call("models", model).stdout.decode().splitlines()
    assert " no " in lines[1] and lines[2] == "    " + entry["reason"]
    hub.add(stories, leave_out=("config.json",))
    entry, = listed(call("models", "--json"))
    assert not entry["runs"] and "config.json is missing" in entry["reason"]


def test_a_model_without_its_tokenizer_will_not_run(call, variant):
    entry, = listed(call("models", "--json", variant(tokenizer=None)))
    assert not entry["runs"] and "tokenizer" in entry["reason"]


def test_links_in_circles_end(call, stories, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(stories, tree / "one" / "model")
    (tree / "one" / "up").symlink_to("..")
    (tree / "self").symlink_to("self")
    (tree / "again").symlink_to("one/model")
    (tree / "gone").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    entry, = listed(call("models", "--json", tree))
    assert entry["path"] == str(tree / "again")


def test_limits_of_depth_are_said(call, stories, tmp_path):
    deep = tmp_path / "tree" / "/".join("abcdefghijklmnop")
    shutil.copytree(stories, deep)
    process = call("models", "--json", tmp_path / "tree")
    assert listed(process) == [] and b"there may be more" in process.stderr
    assert len(listed(call("models", "--json", deep.parent))) == 1


def test_a_directory_inside_the_cache_is_listed_once(hub, call, stories):
    hub.add(stories)
    assert len(listed(call("models", "--json", hub.folder))) == 1


def test_nothing_found_is_no_failure(hub, call, tmp_path):
    """It says where it looked, and how to get one."""
    assert listed(call("models", "--json", HF_HUB_CACHE=tmp_path / "none")) == []
    process = call("models")
    assert process.returncode == 0 and process.stdout == b""
    assert process.stderr.decode() == (f"auk: no checkpoint found: looked in the Hugging Face cache {hub.folder}, "
                                       "below ./models; fetch one with:  auk get Qwen/Qwen3-8B-AWQ\n")
    (tmp_path / "empty").mkdir()
    process = call("models", tmp_path / "empty", HF_HUB_CACHE=None, HOME=None)
    assert process.returncode == 0 and f"looked below {tmp_path / 'empty'}; fetch" in process.stderr.decode()
    refused(call("models", tmp_path / "none"), "none", "No such file", status=1)


def test_the_model_of_the_environment_is_the_default(hub, call, stories, tmp_path):
    """It is listed wherever it lies, once, and marked."""
    hub.add(stories)
    mine = tmp_path / "elsewhere" / "mine"
    shutil.copytree(stories, mine)
    assert [entry["default"] for entry in listed(call("models", "--json"))] == [False]
    cached, default = listed(call("models", "--json", AUK_MODEL=mine))
    assert (cached["default"], default["default"], default["name"], default["runs"]) == (False, True, str(mine), True)
    only, = listed(call("models", "--json", AUK_MODEL=NAME))
    assert only["default"] and only["name"] == NAME
    both = listed(call("models", "--json", mine, AUK_MODEL=mine / ".." / "mine"))
    assert [(entry["name"], entry["default"]) for entry in both] == [(NAME, False), (str(mine), True)]
    lines = call("models", AUK_MODEL=mine).stdout.decode().splitlines()
    assert [line.endswith("(default: AUK_MODEL)") for line in lines] == [False, False, True]
    assert call("models", "--names", AUK_MODEL=mine).stdout.decode().splitlines() == [NAME, str(mine)]


def test_a_default_that_is_nowhere_is_said(hub, call):
    process = call("models", AUK_MODEL="Qwen/Qwen3-8B-AWQ")
    assert process.returncode == 0 and process.stdout == b""
    first, second = process.stderr.decode().splitlines()
    assert first.startswith("auk: AUK_MODEL: Qwen/Qwen3-8B-AWQ: no such file or directory") and "auk get" in first
    assert second.startswith("auk: no checkpoint found")


def test_no_model_says_how_to_get_one(call):
    refused(call("-p", "x"), "no model: give -m MODEL or set AUK_MODEL", "auk models", "auk get Qwen/Qwen3-8B-AWQ",
            status=2)


# --- short names


@pytest.fixture
def local(stories, tmp_path):
    """local(path): a model in ./models."""

    def make(path):
        shutil.copytree(stories, tmp_path / "here" / "models" / path)

    return make


def test_the_last_part_of_a_name_is_enough(hub, call, stories, local):
    snapshot = hub.add(stories, name="Qwen/Qwen3-8B-AWQ")
    local("tiny-awq")
    assert path_of(call("inspect", "--json", "tiny-awq")) == "models/tiny-awq"
    assert path_of(call("inspect", "--json", "Qwen3-8B-AWQ")) == str(snapshot)
    assert path_of(call("inspect", "--json", AUK_MODEL="tiny-awq")) == "models/tiny-awq"
    assert call("tokenize", "-m", "tiny-awq", "Once").stdout == call("tokenize", "-m", stories, "Once").stdout
    answer = call("-m", "tiny-awq", "--raw", "-p", "Once", "-n", "3", "--temp", "0")
    assert answer.returncode == 0 and answer.stdout
    assert [entry["default"] for entry in listed(call("models", "--json", AUK_MODEL="tiny-awq"))] == [False, True]


def test_a_last_part_that_several_have_is_refused_with_all_of_them(hub, call, stories, local):
    hub.add(stories, name="Qwen/same")
    local("same")
    local("deeper/same")
    refused(call("-m", "same", "-p", "x"), "same is the last part of several names: Qwen/same, models/deeper/same, "
            "models/same; give a whole one", status=2)
    local("two/alike")
    hub.add(stories, name="Qwen/alike")
    refused(call("-m", "alike", "-p", "x"), "alike is the last part of several names: Qwen/alike, models/two/alike; "
            "give a whole one", status=2)
    assert path_of(call("inspect", "--json", "models/same")) == "models/same"


def test_a_whole_name_goes_before_a_last_part(hub, call, stories, local, tmp_path):
    snapshot = hub.add(stories, name="gpt2")
    local("gpt2")
    assert path_of(call("inspect", "--json", "gpt2")) == str(snapshot)
    shutil.copytree(stories, tmp_path / "here" / "gpt2")
    assert path_of(call("inspect", "--json", "gpt2")) == "gpt2"


@pytest.mark.parametrize("text", ["models/smollm2", "./models/smollm2", "models/smollm2-135m-awk", "smollm2",
                                  "smollm2-135m-awk", "SmolLM2-135M-AWQ"])
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(call, local, text):
    local("smollm2-135m-awq")
    process = call("-m", text, "-p", "x")
    dot = "./" if text.startswith("./") else ""
    refused(process, f"auk: {text}: no such file or directory; did you mean {dot}models/smollm2-135m-awq?")
    assert b"auk get" not in process.stderr


def test_a_packed_file_and_a_folder_elsewhere_are_suggested_too(call, stories, tmp_path):
    shutil.copytree(stories, tmp_path / "llms" / "tiny-awq")
    (tmp_path / "llms" / "small.ak48").write_bytes(b"")
    (tmp_path / "llms" / "smart.txt").write_bytes(b"")
    refused(call("-m", tmp_path / "llms" / "tiny", "-p", "x"), f"did you mean {tmp_path}/llms/tiny-awq?")
    refused(call("-m", tmp_path / "llms" / "small", "-p", "x"), f"did you mean {tmp_path}/llms/small.ak48?")
    assert b"did you mean" not in call("-m", tmp_path / "llms" / "smart", "-p", "x").stderr


def test_fetching_is_suggested_where_no_folder_has_the_first_part(hub, call, local):
    local("smollm2-135m-awq")
    process = call("-m", "models/qwen", "-p", "x")
    refused(process, "models/qwen: no such file or directory", "auk models lists")
    assert b"auk get" not in process.stderr
    refused(call("-m", "HuggingFaceTB/SmolLM2-135M-AWQ", "-p", "x"), "auk get HuggingFaceTB/SmolLM2-135M-AWQ")


def test_a_folder_above_names_what_is_in_it(call, local):
    local("one")
    local("two")
    refused(call("-m", "models", "-p", "x"), "models is no checkpoint, but a folder with models/one, models/two\n")


def test_lines_fit_a_narrow_terminal(clean, auk, local, tmp_path):
    local("one")
    mine, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    done = subprocess.run([*auk, "models"], env={**clean, "AUK_MODEL": "models/one"}, cwd=tmp_path / "here",
                          stdout=its, timeout=60)
    os.close(its)
    lines = read_all(mine).decode().splitlines()
    os.close(mine)
    assert done.returncode == 0 and max(map(len, lines)) < 80 and "ARCHITECTURE" not in lines[0]
    assert lines[1].startswith("models/one  yes ") and lines[2] == "    (default: AUK_MODEL)"


def test_control_bytes_in_names_do_not_reach_a_terminal(call, stories, tmp_path):
    shutil.copytree(stories, tmp_path / "tree" / "a\x1b[2Jb")
    out = call("models", tmp_path / "tree").stdout
    assert b"\x1b" not in out and b"\\u001b[2Jb" in out


def test_directories_that_cannot_be_read_are_named(call, clean, stories, auk):
    """Root reads everything, so the program runs as another user there, who needs a folder that lets him through."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        tree.parent.chmod(0o755)
        shutil.copytree(stories, tree / "fine")
        (tree / "locked").mkdir()
        (tree / "locked").chmod(0o600 if user else 0)
        environment = {**clean, "HF_HUB_CACHE": str(tree / "locked"), "HOME": folder}

        def models(*arguments):
            return subprocess.run([*auk, "models", *map(str, arguments)], env=environment, cwd=folder, timeout=60,
                                  capture_output=True, **user)

        try:
            if subprocess.run([*auk, "--version"], capture_output=True, **user).returncode != 0:
                pytest.skip("another user cannot run the program where it lies")
        except PermissionError:
            pytest.skip("another user cannot run the program where it lies")
        process = models("--json", tree)
        assert [entry["path"] for entry in listed(process)] == [str(tree / "fine")]
        # Once as the cache, once below the folder.
        assert process.stderr.decode() == f"auk: {tree}/locked: cannot look there: Permission denied\n" * 2
        environment["HF_HUB_CACHE"] = str(tree / "none")
        for number in range(20):
            (tree / f"locked{number:02}").mkdir(mode=0o700)
            (tree / f"locked{number:02}").chmod(0o700 if user else 0)
        lines = models("--names", tree).stderr.decode().splitlines()
        assert len(lines) == 9 and lines[-1] == "auk: ... and 13 more that cannot be looked into"
        process = models(tree / "locked")
        assert process.returncode == 1 and b"Permission denied" in process.stderr
        for path in tree.iterdir():
            path.chmod(0o700)
