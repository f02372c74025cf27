"""Fixtures of all pytest files: the program, the repository, and the larger data where it is.

`make test` names the program it built in AUK; a bare `python3 -m pytest test` takes build/auk.
"""
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Files of the user that a test keeps or reads lie in a folder of the tests, never in the home of the real user.
HOMES = tempfile.TemporaryDirectory(prefix="auk-tests-")
for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
    os.environ[variable] = os.path.join(HOMES.name, variable)

# The tests may run under nohup, or under a shell that ignores interrupts: programs that they start must not ignore
# them.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No test uses a process of this user that keeps a model, but those about such processes (test_keep.py).
os.environ["AUK_KEEP"] = "0"


def program():
    return shlex.split(os.environ.get("AUK", str(ROOT / "build" / "auk")))


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def auk():
    """The program under test as the beginning of an argv list: subprocess.run([*auk, "--version"])."""
    command = program()
    path = pathlib.Path(command[-1])
    assert path.exists(), f"{path} is not built: make"
    return command[:-1] + [str(path.resolve())]


def holds(path, text):
    return path.exists() and text in path.read_bytes()


def has_sanitizers(program):
    return holds(program, b"__asan_init")


def pytest_ignore_collect(collection_path, config):
    """Tests of scripts/ run only with the program without sanitizers, which see nothing of the scripts; those of
    CUDA, a third of all, not with a program without it."""
    if collection_path == ROOT / "test" / "scripts":
        return has_sanitizers(pathlib.Path(program()[-1])) or None
    if collection_path == ROOT / "test" / "cuda":
        return holds(pathlib.Path(program()[-1]), b"this build has no CUDA") or None


def pytest_collection_modifyitems(config, items):
    """With sanitizers, of each test of bulk one case in n runs. The tests of a file begin with different cases, so that
    together they have all models."""
    next_case, left_out = {}, []  # by file and test
    for item in items:
        bulk = item.get_closest_marker("bulk")
        if "sanitized" in item.fixturenames or bulk or ROOT / "test" / "scripts" in item.path.parents:
            item.add_marker("plain")
        if bulk and not bulk.args:
            left_out.append(item)
        elif bulk and hasattr(item, "callspec"):
            of_file = next_case.setdefault(item.path, {})
            case = of_file.setdefault(item.originalname, len(of_file))
            if case % bulk.args[0]:
                left_out.append(item)
            of_file[item.originalname] = case + 1
    if left_out and has_sanitizers(pathlib.Path(program()[-1])):
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def sanitized(auk):
    """True if the program has sanitizers in it, which make it start and run several times as long. Tests that repeat
    something, or do much of it to see time or memory, do less of it then."""
    return has_sanitizers(pathlib.Path(auk[-1]))


@pytest.fixture(scope="session")
def shared():
    """The folder of larger data beside the repository; tests over it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs larger data, which is not committed")
    return folder


@pytest.fixture
def latent_checkpoint(tmp_path):
    """latent_checkpoint(group=0, **sizes): a checkpoint of latent attention with random weights in fp16, or AWQ's in
    groups; sizes are members of config.json."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import checkpoint
    import miniature_shapes
    import numpy as np

    youtu = ROOT / "test" / "data" / "miniatures" / "youtu-f16"

    def make(group=0, **sizes):
        config = {**checkpoint.read_json(youtu / "config.json"), "num_key_value_heads": sizes["num_attention_heads"],
                  **sizes}
        numbers = np.random.default_rng(1)
        hidden = config["hidden_size"]  # the embedding is the head, too: logits of a standard deviation of 2
        tensors = {"model.norm.weight": np.ones(hidden), "model.embed_tokens.weight": numbers.normal(
            size=(config["vocab_size"], hidden), scale=2 / hidden**0.5)}
        tensors = {name: array.astype(np.float16) for name, array in tensors.items()}
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            for name, width in miniature_shapes.norm_widths(config, layer).items():
                tensors[prefix + name + ".weight"] = numbers.uniform(0.5, 1.5, width).astype(np.float16)
            for name, (_, n_out, n_in) in miniature_shapes.linear_shapes(config, layer).items():
                weight = numbers.normal(size=(n_out, n_in), scale=n_in**-0.5).astype(np.float32)
                if group:
                    quantised = checkpoint.awq_quantise(weight, group, search=False)
                    tensors.update(checkpoint.awq_tensors(prefix + name, *quantised))
                else:
                    tensors[prefix + name + ".weight"] = weight.astype(np.float16)
        if group:
            config["quantization_config"] = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": group,
                                             "zero_point": True, "modules_to_not_convert": None}
        folder = tmp_path / "latent"
        folder.mkdir()
        shutil.copy(youtu / "tokenizer.json", folder)
        checkpoint.write_json(str(folder / "config.json"), config)
        checkpoint.write_safetensors(str(folder / "model.safetensors"), tensors)
        return folder

    return make
