"""scripts/demo.sh and demo_convert.py: what the demo says at its end, and the settings that it gives its model."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("numpy", reason="needs numpy")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import demo_convert  # noqa: E402  (from scripts/)

KINDS = {"bos": 1, "eos": 2, "padding": 2}
METADATA = {"llama.embedding_length": 576, "llama.attention.head_count": 9, "llama.feed_forward_length": 1536,
            "llama.block_count": 30, "llama.attention.head_count_kv": 3, "llama.context_length": 8192,
            "llama.vocab_size": 3, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e5,
            "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "tokenizer.chat_template": "",
            **{f"tokenizer.ggml.{kind}_token_id": token for kind, token in KINDS.items()}}


@pytest.fixture
def demo(tmp_path):
    """A repository in a folder with a blank in its name, whose model is there: demo(): the finished demo.sh. Its
    program answers a prompt with the words that it was called with, or without one with its model's place."""
    folder = tmp_path / "a place"
    (folder / "scripts").mkdir(parents=True)
    for name in ("demo.sh", "demo_convert.py", "demo_importance.npz", "checkpoint.py", "gguf_file.py"):
        shutil.copy2(ROOT / "scripts" / name, folder / "scripts")
    for name in ("smollm2-135m-awq", "smollm2-135m-f16"):
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / "model.safetensors").touch()
    (folder / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
    (folder / "build").mkdir()
    program = folder / "build" / "auk"
    program.write_text('#!/bin/sh\n[ $# = 0 ] && ls -d "$AUK_MODEL" && exit\nprintf %s "$*"\n')
    program.chmod(0o755)

    def run(auk="build/auk"):
        environment = {**os.environ, "AUK": auk, "PYTHON": "false"}
        return subprocess.run(["sh", folder / "scripts" / "demo.sh"], env=environment, cwd=tmp_path, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    run.folder = folder
    return run


@pytest.mark.parametrize("absolute", [False, True])
def test_the_demo_ends_with_lines_that_work_as_they_are(demo, tmp_path, absolute):
    done = demo(str(demo.folder / "build" / "auk") if absolute else "build/auk")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "-m models/smollm2-135m-awq --temp 0 -n 160 -p Explain photosynthesis in one sentence."
    *_, head, export, chat = done.stderr.splitlines()
    assert head.startswith("demo: what next") and export.startswith("  export AUK_MODEL=") and chat.startswith("  auk ")
    typed = subprocess.run(["sh", "-c", f"{export}\n{chat}"], cwd=tmp_path, text=True, capture_output=True, timeout=60)
    assert typed.stdout == f"{demo.folder}/models/smollm2-135m-awq\n" and typed.stderr == ""


def test_a_demo_whose_answer_fails_says_nothing_of_what_next(demo):
    (demo.folder / "build" / "auk").write_text("#!/bin/sh\nexit 3\n")
    done = demo()
    assert done.returncode == 3 and "what next" not in done.stderr


def test_the_demos_model_samples_as_its_makers_publish(tmp_path):
    directory = tmp_path / "model"
    demo_convert.write_directory(str(directory), {}, METADATA, "{}")
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
                          "do_sample": True, "temperature": 0.2, "top_p": 0.9}
