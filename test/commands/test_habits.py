"""Lines that people type who know other programs, or that come from a script whose variable is unset: they work, or a
message says what to type instead; nothing that was given is dropped silently."""
import json
import os
import re
import subprocess

import pytest

PROMPT = "Once upon a time"
USAGE = 2


def refused(process, message, status=USAGE):
    assert (process.returncode, process.stdout, process.stderr.decode()) == (status, b"", f"auk: {message}\n")


# --- flags without effect


def test_a_gpu_that_this_build_has_not_is_told_whatever_its_number(run, stories):
    without = b"this build has no CUDA" in run("-m", stories, "--device", "cuda", "-p", "x").stderr
    for number in (0, 1):
        asked = ["-m", stories, "--raw", "-p", PROMPT, "-n", "2", "--gpu", number]
        refused(run(*asked, "--device", "cpu"), "--gpu is for GPUs, but this would compute on the CPU")
        if without:
            assert run(*asked).stderr.decode() == f"auk: --gpu {number}: this build has no CUDA: computing on the CPU\n"
    if without:
        several = run("-m", stories, "--raw", "--map", "-", "--gpu", "0,1", input=b"x")
        refused(several, "--gpu 0,1: this build has no CUDA", 1)
    kinds = "CPU only" if without else "CUDA and CPU"
    assert re.fullmatch(rf"auk [0-9.]+, {kinds}\n", run("--version").stdout.decode())


def test_a_driver_that_this_build_does_not_use_is_told(auk, run, stories, tmp_path):
    """On a machine with an NVIDIA driver: one with a /dev of its own, which has the driver's file."""
    if b"CUDA and" in run("--version").stdout:
        pytest.skip("this build has CUDA")
    for name in ("null", "zero", "urandom", "nvidiactl"):
        (tmp_path / name).touch()
    beside = "".join(f"mount --bind /dev/{name} {tmp_path}/{name}; " for name in ("null", "zero", "urandom"))
    script = f'{beside}mount --rbind {tmp_path} /dev && echo made >&2 && exec "$@"'
    line = ["unshare", "-m", "sh", "-c", script, "sh", *auk, "-m", stories, "--raw", "-p", PROMPT, "-n", "2"]

    def told(*flags):
        done = subprocess.run([*map(str, line), *flags], stdin=subprocess.DEVNULL, capture_output=True)
        if not done.stderr.startswith(b"made\n"):
            pytest.skip("no /dev can be made here")
        assert done.returncode == 0
        return done.stderr.removeprefix(b"made\n")

    assert told() == b"auk: this build has no CUDA: computing on the CPU\n"
    assert told("--device", "cpu") == b""


# --- prompts


# --- operands


def test_the_model_may_stand_alone(run, stories, tmp_path):
    (tmp_path / "ids").write_text("1 403 407")
    messages = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    answer = ["--raw", "-p", PROMPT, "-n", "4"]
    template = ["--chat-template", "chatml"]
    for command, flags, given in (("run", answer, b""), ("eval", ["--ids-file", tmp_path / "ids"], b""),
                                  ("template", template, messages), ("chat", [*template, "-n", "2"], b"/set temp\n")):
        want = run(command, "-m", stories, *flags, input=given)
        assert want.returncode == 0, want.stderr
        for order in ([stories, *flags], [*flags, stories]):
            process = run(command, *order, input=given)
            assert (process.returncode, process.stdout, process.stderr) == (0, want.stdout, want.stderr), command
        refused(run(command, "-m", "other", stories, *flags, input=given), f"two models: other and {stories}")
    process = run("bench", stories, "-p", "4", "-n", "0", "-r", "1")
    assert process.returncode == 0 and b"pp4" in process.stdout


def test_a_prompt_needs_no_flag_whatever_it_is(run, stories, tmp_path):
    """The last word of auk run, as of ollama; without `run` words that could be commands need -p."""
    for prompt in PROMPT, "hi", "why?", "天空为什么是蓝色的？", "bench":
        want = run("-m", stories, "--raw", "-n", "4", "-p", prompt)
        for command in (["run", stories, prompt], ["run", prompt, stories], ["run", "-m", stories, prompt],
                        ["-m", stories, prompt]):
            if prompt != "bench" or command[0] == "run":
                process = run(*command, "--raw", "-n", "4")
                assert (process.returncode, process.stdout, process.stderr) == (0, want.stdout, b""), command
    want = run("-m", stories, "--raw", "-n", "4", "-p", PROMPT).stdout
    assert run(PROMPT, "-m", stories, "--raw", "-n", "4").stdout == want
    assert run("run", stories, "hi", "--raw", "-n", "4", "-f", "-", input=b"Lily").stdout == \
        run("-m", stories, "--raw", "-n", "4", "-p", "hi", input=b"Lily").stdout
    (tmp_path / "dir").mkdir()
    folder = run("run", stories, tmp_path / "dir", "--raw", "-n", "4")  # as a model it would be the second one
    assert folder.stdout == run("-m", stories, "--raw", "-n", "4", "-p", tmp_path / "dir").stdout
    assert folder.stderr.decode() == \
        f'auk: the prompt is "{tmp_path / "dir"}" (-f reads the file of this name)\n'


def test_a_word_that_may_be_meant_as_a_model_is_told(run, stories):
    """ollama run NAME, where nothing has this name."""
    environment = {key: value for key, value in os.environ.items() if key != "AUK_MODEL"}
    for name in "llama3", "qwen3:8b", "Qwen/Qwen3-8B-AWQ":
        note = f'auk: the prompt is "{name}" (no model of this name is here)\n'
        for without in environment, {**environment, "AUK_MODEL": ""}:
            done = run("run", name, env=without)
            assert done.returncode == USAGE and done.stderr.decode().startswith(f"{note}auk: no model: give -m MODEL")
        done = run("run", name, "--raw", "-n", "2", env={**environment, "AUK_MODEL": str(stories)})
        assert done.returncode == 0 and done.stderr.decode() == (note if name != "llama3" else "")


def test_a_chat_without_a_message_says_so(run, stories):
    done = run("chat", "-m", stories, "--chat-template", "chatml")
    assert done.returncode == 0 and done.stderr.endswith(b"auk: standard input is empty\n")


# --- words of others


def test_flags_of_other_programs_say_what_to_type(run, stories):
    for flag, hint in (("--max-model-len", "-c N sets the context"), ("-tp", "--gpu and --split say which GPUs share"),
                       ("--port", "there is no server"), ("--mirostat", "--temp, --top-k")):
        done = run("-m", stories, "-p", PROMPT, flag, "2")
        assert done.returncode == USAGE and f"auk: unknown flag {flag}: {hint}" in done.stderr.decode()


def test_no_word_of_others_is_one_of_ours(root, run):
    """The table would hide it."""
    text = (root / "src" / "commands" / "foreign_words.c").read_text()
    before, rest = text.split("other_chat_words[] = {")
    of_chats, after = rest.split("};", 1)
    text = before + after
    words_of_chats = {word for entry in of_chats.split('{"')[1:] for word in entry.split('"')[0].split(", ")}
    ours = set(re.findall(r"/(\w+)", run("chat", "-m", root / "test/data/stories260K-awq", "--chat-template", "chatml",
                                        input=b"/help\n").stderr.decode()))
    assert "regen" in ours and len(words_of_chats) > 20 and not words_of_chats & ours
    words = {word for entry in text.split('{"')[1:] for word in entry.split('"')[0].split(", ")}
    idle = re.search(r"idle_flags\[\] = \{(.*?)\n\};", text, re.S)[1]
    words |= {word for entry in re.findall(r'"(.*?)"', idle) for word in entry.split(", ")}
    assert {"-ngl", "--jinja", "-fa"} <= words
    commands = run("--help").stdout.decode().split("Commands:\n")[1].split("\n\n")[0]
    names = {line.split()[0] for line in commands.splitlines()}
    assert names and len(words) > 60 and not words & names
    for name in names:
        help_text = run(name, "--help", "all").stdout.decode().replace(",", " ")
        flags = {word for line in help_text.splitlines() if line.startswith("  -") for word in line.split()}
        own = {"--format"} if name == "quantize" else set()  # the table is asked for what a command lacks
        assert not words & {word for word in flags if word.startswith("-")} - own, name
