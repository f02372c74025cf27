"""Lines that people type who know other programs, or that come from a script whose variable is unset: they work, or a
message says what to type instead; nothing that was given is dropped silently."""
import json
import re
import subprocess

import pytest

PROMPT = "Once upon a time"
USAGE = 2


def refused(process, message, status=USAGE):
    assert (process.returncode, process.stdout, process.stderr.decode()) == (status, b"", f"auk: {message}\n")


# --- flags without effect


@pytest.mark.parametrize("command", [["-n", "2", "--raw", "-p", PROMPT], ["bench", "-p", "4", "-n", "2", "-r", "1"]],
                         ids=["run", "bench"])
def test_what_cannot_matter_at_temperature_0_is_taken_with_one_note(run, stories, command):
    """Scripts that are shared give all of them."""
    want = run(*command, "-m", stories, "--temp", 0)
    for flags, told in ((["-s", 42], "-s has"), (["--top-k", 5], "--top-k has"), (["--top-p", 0.5], "--top-p has"),
                        (["--min-p", 0.1, "-s", 1], "--min-p and -s have"),
                        (["--top-k", 5, "--top-p", 1, "--min-p", 0, "-s", 1], "--top-k, --top-p, --min-p and -s have")):
        process = run(*command, "-m", stories, "--temp", 0, *flags)
        assert process.returncode == 0 and (command[0] == "bench" or process.stdout == want.stdout)
        assert process.stderr.decode() == f"auk: {told} no effect with --temp 0 (it always takes the likeliest token)\n"


def test_several_answers_at_temperature_0_are_refused(run, stories):
    refused(run("-m", stories, "--raw", "-p", PROMPT, "--n-best", 2, "--temp", 0),
            "--n-best 2 with temperature 0 gives the same answer 2 times: --temp X above 0 gives others")


@pytest.mark.parametrize("flag", [["--top-k", "5"], ["--top-p", "0.5"], ["--min-p", "0.1"], ["-s", "1"]], ids=str)
def test_what_the_model_makes_idle_is_told(run, stories, variant, flag):
    """Its generation_config.json says nothing of sampling: greedy."""
    command = ["--raw", "-p", PROMPT, "-n", "2"]
    process = run("-m", stories, *command, *flag)
    assert process.returncode == 0 and process.stdout == b", there\n"
    told = f"auk: the model's temperature is 0: {flag[0]} has no effect (--temp X sets another)\n"
    assert process.stderr.decode() == told
    assert run("-m", stories, *command, *flag, "--temp", "0.1").stderr == b""
    sampling = variant(generation={"do_sample": True, "temperature": 0.1})
    assert run("-m", sampling, *command, *flag).stderr == b""


def test_all_that_is_idle_is_told_in_one_line(run, stories):
    process = run("-m", stories, "--raw", "-p", PROMPT, "-n", "2", "-s", "1", "--top-k", "5", "--min-p", "0.1")
    told = "auk: the model's temperature is 0: --top-k, --min-p and -s have no effect (--temp X sets another)\n"
    assert (process.returncode, process.stderr.decode()) == (0, told)


def test_penalties_matter_at_temperature_0(run, stories):
    process = run("-m", stories, "--raw", "-p", PROMPT, "-n", "2", "--temp", "0", "--repeat-penalty", "1.5")
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_setting_without_effect_is_told(run, stories, tmp_path):
    (tmp_path / "template").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    lines = b"/set top-k 5\n/set repeat-penalty 1.5\n/set temp 1\n/set top-k 6\n/set temp 0\n/set seed 3\n"
    process = run("chat", "-m", stories, "--chat-template", tmp_path / "template", input=lines)
    assert process.returncode == 0
    assert process.stderr.decode().count("has no effect") == 2
    assert "temp is 0: top-k has no effect" in process.stderr.decode()
    assert "temp is 0: seed has no effect" in process.stderr.decode()


def test_a_gpu_that_this_build_has_not_is_told_whatever_its_number(run, stories):
    without = b"this build has no CUDA" in run("-m", stories, "--device", "cuda", "-p", "x").stderr
    for number in (0, 1):
        asked = ["-m", stories, "--raw", "-p", PROMPT, "-n", "2", "--gpu", number]
        refused(run(*asked, "--device", "cpu"), "--gpu is for GPUs, but this would compute on the CPU")
        if without:
            assert run(*asked).stderr.decode() == f"auk: --gpu {number}: this build has no CUDA: computing on the CPU\n"
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


@pytest.mark.parametrize("name", ["-p", "--prompt"])
def test_a_second_text_to_tokenize_is_refused(run, name):
    refused(run("tokenize", "-m", "x", "-p", "hi", name, "ho"), f"{name} is given twice, expected one")


def test_an_empty_prompt_alone_is_refused(run, stories):
    message = "-p is empty, and there is no other text (is a variable unset?)"
    for flags in ([], ["--choose", "a,b"]):
        refused(run("-m", stories, "--raw", "-p", "", *flags), message)
        said = f"standard input is empty\nauk: {message}"
        refused(run("-m", stories, "--raw", "-p", "", *flags, input=b""), said)
    process = run("-m", stories, "--raw", "-p", "", "-n", "2", input=PROMPT.encode())
    assert (process.returncode, process.stderr) == (0, b"")


def test_an_empty_file_is_told_beside_a_prompt(run, stories, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    call = ["-m", stories, "--raw", "-n", "2"]
    want = run(*call, "-p", PROMPT)
    process = run(*call, "-p", PROMPT, "-f", empty)
    assert (process.returncode, process.stdout) == (0, want.stdout)
    assert process.stderr.decode() == f"auk: {empty} is empty\n"
    for flags in (["-f", empty], ["-f", empty, "-f", empty], ["-f", empty, "--choose", "a,b"]):
        process = run(*call[:3], *flags)
        assert (process.returncode, process.stdout) == (2, b"")
        assert b"\nauk: no prompt: " in process.stderr and process.stderr.endswith(b"(--help lists more)\n")
    assert run(*call, "-f", empty, "-p", "").returncode == run(*call, input=b"\n").returncode == 2
    process = run(*call, "--map", "-", "-f", empty, input=PROMPT.encode())
    assert process.returncode == 0 and process.stderr.decode().startswith(f"auk: {empty} is empty\n")
    assert run(*call, "--map", "-", "-p", "{}", input=PROMPT.encode()).stderr.decode().count("is empty") == 0


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


def test_a_word_that_can_be_no_prompt_is_told(run, stories):
    message = 'unexpected argument "{}" (a model is given with -m, a prompt with -p)'
    refused(run(PROMPT, "-m", stories, "-p", "Hi"), message.format(PROMPT))
    refused(run("run", "hi", "-m", stories, "-p", "Hi"), message.format("hi"))
    refused(run(PROMPT, "-m", stories, "--messages", "x"), message.format(PROMPT))
    for first, second in ((PROMPT, PROMPT), ("no/such-model", "hi"), ("why", "not")):
        refused(run("run", first, second, "-m", stories),
                f'"{first}" is no model that is here, and a prompt of several words stands in quotes '
                '(auk models lists the models, auk get OWNER/NAME fetches one)')
    refused(run("hello", "there"),
            'unknown command "hello" (auk --help lists them; a prompt of several words stands in quotes)')
    refused(run("-m", stories, "chat"),
            'unexpected argument "chat" (a command comes first, a prompt of one word needs -p)')
    refused(run("run", stories, ""), "-p is empty, and there is no other text (is a variable unset?)")
    refused(run("why?"), 'unknown command "why?" (auk --help lists them; a prompt of one word needs -p)')


def test_a_word_too_many_is_told_with_how_to_call_the_command(run):
    for words, usage in ((["prompts", "list"], "auk prompts [--names]"), (["man", "run"], "auk man"),
                         (["cache", "clear"], "auk cache [--clear] [FLAGS]"),
                         (["get", "a/b", "c/d"], "auk get NAME[@REVISION]"),
                         (["schema", "a", "b", "c"], "auk schema SCHEMA [TEXT]")):
        refused(run(*words), f'unexpected argument "{words[-1]}" ({usage}; --help says more)')


def test_ids_need_no_quotes(run, stories):
    want = run("tokenize", "-m", stories, "--decode", "403 407 261").stdout
    assert want and run("tokenize", "-m", stories, "--decode", "403", "407", "261").stdout == want
    refused(run("tokenize", "-m", stories, "one", "two"),
            'unexpected argument "two" (a text of several words stands in quotes)')


# --- words of others


@pytest.mark.parametrize("word, instead", [
    ("version", "auk --version says which this is"),
    ("list", "auk models lists the models that are here"),
    ("ls", "auk models lists the models that are here"),
    ("ps", "auk keep shows the models that stay in memory, auk keep --stop ends them"),
    ("logs", "auk chats lists the chats that were kept, auk chats show NAME shows one"),
    ("pull", "auk get NAME fetches a model, auk models lists those that are here"),
    ("show", "auk inspect MODEL says what is in a model"),
    ("serve", "there is no server; --map FILE answers many prompts at once"),
    ("generate", "auk -m MODEL -p TEXT answers a prompt"),
])
def test_commands_of_other_programs_have_their_word_here(run, word, instead):
    refused(run(word), f'unknown command "{word}": {instead}')


@pytest.mark.parametrize("flag, instead", [
    ("-hf", "auk get NAME fetches a model, -m NAME takes it from there"),
    ("-q", "standard output has the answer alone; 2>/dev/null drops the rest"),
    ("--format", "--json-schema FILE and --json-object give the answer a form, --json wraps it in an object"),
    ("-ctk", "f16, f32 and q8_0 are known, as of --kv f16|f32|q8"),
])
def test_flags_of_other_programs_have_their_word_here(run, flag, instead):
    refused(run("-m", "x", flag, "1"), f"unknown flag {flag}: {instead}")
    refused(run("-m", "x", f"{flag}=1"), f"unknown flag {flag}: {instead}") if flag.startswith("--") else None


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
        assert not words & {word for word in flags if word.startswith("-")}, name


def test_a_line_of_llama_cli_is_taken_with_one_note(run, stories):
    line = ["-m", stories, "--raw", "-p", PROMPT, "-n", 4, "-ngl", 99, "-fa", "on", "-b", 512, "--mlock", "--no-mmap",
            "-st", "-no-cnv", "--no-display-prompt", "--no-warmup", "--simple-io", "-dev", "CUDA0", "-ctk", "q8_0"]
    process = run(*line)
    assert process.returncode == 0
    assert process.stdout == run("-m", stories, "--raw", "-p", PROMPT, "-n", 4, "--kv", "q8").stdout
    assert process.stderr.decode() == (
        "auk: left out, since nothing is needed for it here: -ngl, -fa, -b, --mlock, --no-mmap, -st, "
        "--no-display-prompt, --no-warmup, --simple-io, -dev\n")
    refused(run(*line, "--mirostat", 2, "--no-warmpu", "--typical", 0.5, "-n5"),
            "unknown flag --mirostat (--help lists what there is); unknown flag --no-warmpu (--help lists what there "
            "is); unknown flag --typical (--help lists what there is); unknown flag -n5: did you mean \"-n 5\"?")
    assert run("tokenize", "-m", stories, "-ngl", 99, "x").returncode == 2
    for glued, said in (("-ngl99", ': did you mean "-ngl 99"?'), ("-fa=1", ': did you mean "-fa 1"?'),
                        ("-c4096", ': did you mean "-c 4096"?'), ("-st1", " (--help lists what there is)"),
                        ("-v5", " (--help lists what there is)")):
        refused(run("-m", stories, "-p", PROMPT, glued), f"unknown flag {glued}{said}")


def test_a_url_is_no_file(run, stories, tmp_path):
    url = "https://example.org/a.txt"
    message = f"{url}: URLs are not fetched: curl -sL URL | auk ... gives one to a pipe"
    call = ["-m", stories, "--raw", "-p", "Hi", "-n", "2"]
    for command in ([*call, "-f", url], [*call, "--map", url], ["tokenize", "-m", stories, "--jsonl", "-f", url],
                    [*call, "--json-schema", url], ["tokenize", "-m", stories, "-f", url]):
        refused(run(*command), message)
    refused(run("-m", url, "-p", "Hi"), f"{url}: no URL is a model: a directory is, a file or a name, such as "
            "Qwen/Qwen3-8B-AWQ", status=3)
    (tmp_path / "a:").mkdir()
    (tmp_path / "a:" / "b").write_text("Once")
    assert run(*call, "-f", "a://b", cwd=tmp_path).returncode == 0


def test_a_file_without_a_name_is_told(run, stories):
    """Such as -f "$FILE" where there is no such variable."""
    call = ["-m", stories, "-p", "x", "--raw"]
    for flags in (["-f", ""], ["--map", ""], ["--map", "-", "--resume", ""], ["-o", ""], ["--output="], ["-j", ""],
                  ["--grammar", ""], ["--chat-template", ""], ["--cache-dir", ""], ["--messages", ""]):
        refused(run(*call, *flags), f"{flags[-2] if flags[-1] == '' else '--output'} is empty (is a variable unset?)")
    for command in (["schema", ""], ["merge", ""], ["models", ""]):
        refused(run(*command), "an argument is empty (is a variable unset?)")


def test_a_line_that_is_no_json_shows_what_a_line_is(run, stories):
    for command, line in ((["tokenize", "-m", stories, "--jsonl"], '{"text": "..."} or {"ids": [...]}'),
                          (["schema", "-m", stories, "--jsonl"], '{"schema": {...}, "tests": ["..."]}'),
                          (["template", "--chat-template", "chatml"], '{"messages": [...]}')):
        for given in ("hello there", "[1]", '"x"'):
            said = json.loads(run(*command, input=given.encode()).stdout)["error"]
            assert said.endswith(f" (a line is {line})"), said
        assert "a line is" not in run(*command, input=b'{"texts": 1}').stdout.decode()


def test_a_grammar_may_be_text(run, stories):
    """As llama.cpp takes it."""
    flags = ["-m", stories, "--raw", "-p", PROMPT, "--grammar"]
    assert run(*flags, 'root ::= "ab" | "cd"').stdout in (b"ab\n", b"cd\n")
    assert b'--grammar:1:10: ' in run(*flags, "root ::= )").stderr
    assert b"no-such.gbnf" in run(*flags, "no-such.gbnf").stderr


def test_the_system_prompt_has_its_short_name(run, stories):
    template = ["--chat-template", "chatml", "-p", "Hi", "-n", "2"]
    want = run("-m", stories, "-sys", "Be brief.", *template)
    assert want.returncode == 0 and run("-m", stories, "--system", "Be brief.", *template).stdout == want.stdout


@pytest.mark.parametrize("flag", ["-p", "--json", "--map"])
def test_a_flag_of_one_answer_in_a_chat_says_where_it_belongs(run, flag):
    refused(run("chat", flag, "Hi"), f"unknown flag {flag}: it is for one answer (auk run)")


def test_a_file_before_a_prompt_is_named_as_what_it_is(run, stories, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(99))
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99))
    (tmp_path / "notes").write_text("Notes.\n")
    gguf = f"{tmp_path}/x.gguf is a GGUF file, which auk does not read; take the Hugging Face checkpoint, such as: " \
           "auk get OWNER/NAME"
    for how in (["run", tmp_path / "x.gguf", "hi"], ["-m", tmp_path / "x.gguf", "-p", "hi"]):
        refused(run(*how), gguf, status=3)
    for how in (["run", tmp_path / "p.png", "hi"], ["-m", tmp_path / "p.png", "-p", "hi"]):
        refused(run(*how), f"{tmp_path}/p.png is a PNG image, and no model", status=3)
    refused(run("run", tmp_path / "notes", "hi"),
            f"{tmp_path}/notes is no model (-f {tmp_path}/notes gives its text to the prompt)")
    assert "(a safetensors file? give the directory that it lies in)" in run(
        "-m", stories / "model.safetensors", "-p", "hi").stderr.decode()
    told = run("-m", "gpt2", "-p", "hi").stderr.decode()
    assert "(auk models lists what is there, auk get OWNER/NAME fetches a model)" in told


@pytest.mark.parametrize("flags, hint", [
    (["--chat-template-kwargs", '{"enable_thinking": false}'], "--no-think"), (["-sm", "row"], "--split"),
    (["-ts", "1,1"], "--split"), (["--log-file", "x"], "2>FILE"), (["--reasoning-format", "none"], "--hide-thinking"),
    (["-if"], "auk chat"), (["--nowordwrap"], "--no-wrap"), (["--keepalive", "5m"], "--keep TIME")])
def test_more_flags_of_other_programs_lead_to_those_of_auk(run, stories, flags, hint):
    told = run("-m", stories, "-p", "Hi", *flags)
    assert told.returncode == USAGE and hint in told.stderr.decode() and flags[0] in told.stderr.decode()


def test_more_flags_of_llama_that_need_nothing(run, stories):
    done = run("-m", stories, "--raw", "-n", 1, "-fit", "on",
               "--no-kv-offload", "-nkvo", "--cache-reuse", 256, "-p", PROMPT)
    assert done.returncode == 0
    assert "nothing is needed for it here: -fit, --no-kv-offload, -nkvo, --cache-reuse" in done.stderr.decode()
