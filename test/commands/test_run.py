"""`auk run` on the tiny trained model: prompts from everywhere, sampling, stops, chat formats, terminals."""
import json
import os
import pty
import re
import subprocess

import pytest
from terminals import read_all

PROMPT = "Once upon a time"

# The greedy answer of transformers with the same weights in fp32, and its first five tokens.
STORY = (", there was a little girl named Lily. She loved to play outside in the sunshine. One day, she saw a big, red "
         "ball in the sky. It was a big, red ball. She")
STORY_IDS = [432, 383, 286, 261, 376]


def statistics(process):
    """(tokens of the prompt, tokens of the answer, why it ended) from what -v prints."""
    found = re.search(rb"prompt (\d+) tokens.*answer (\d+) tokens.*end: (\w+)", process.stderr)
    assert found, process.stderr
    return int(found[1]), int(found[2]), found[3].decode()


@pytest.fixture
def answer(run, stories):
    """answer(*flags): the answer of a run that must succeed."""

    def get(*flags, model=stories, **options):
        process = run("-m", model, "--raw", *flags, **options)
        assert process.returncode == 0, process.stderr
        return process.stdout

    return get


# --- where a prompt comes from


def test_a_story_goes_on_as_transformers_has_it(answer):
    assert answer("-p", PROMPT, "-n", 60).decode() == STORY + "\n"


@pytest.mark.parametrize("flags", [["--no-stream"], ["--truncate=start"], ["-o", "/dev/null"], ["--json"], ["-x"],
                                   ["--jsonl-stream"], ["--require-stop"], ["--raw"], ["--choose", "a,b"]], ids=str)
def test_what_is_for_an_answer_makes_no_chat(auk, stories, flags):
    main, terminal = pty.openpty()
    process = subprocess.run([*auk, "-m", stories, *flags], stdin=terminal, stdout=terminal, stderr=subprocess.PIPE,
                             timeout=60, check=False)
    os.close(main)
    os.close(terminal)
    assert process.returncode == 2 and b"no prompt" in process.stderr


def test_no_prompt_is_a_mistake_that_waits_for_nobody(run, stories):
    assert run("-m", stories).returncode == 2  # standard input is /dev/null
    main, terminal = pty.openpty()
    process = run("-m", stories, stdin=terminal)
    os.close(main)
    os.close(terminal)
    assert process.returncode == 2
    assert b"no prompt" in process.stderr
    assert process.stdout == b""


def test_a_terminal_is_not_read_beside_a_prompt(run, stories, answer):
    main, terminal = pty.openpty()
    process = run("-m", stories, "--raw", "-p", PROMPT, "-n", 10, stdin=terminal)
    os.close(main)
    os.close(terminal)
    assert process.stdout == answer("-p", PROMPT, "-n", 10)


# --- how long an answer is


def test_answers_have_the_length_asked_for(run, stories):
    for n in (0, 1, 7):
        process = run("-m", stories, "--raw", "-p", PROMPT, "-n", n, "-v")
        assert statistics(process)[1:] == (n, "length")
        assert (process.stdout == b"") == (n == 0)


def test_the_context_ends_an_answer(run, stories):
    process = run("-m", stories, "--raw", "-p", PROMPT, "-c", 40, "--ignore-eos", "-v")
    n_prompt, n_answer, reason = statistics(process)
    assert reason == "context"
    assert n_prompt + n_answer == 41  # the last token's own place is not needed
    assert b"context 40," in process.stderr
    assert b"context 512," in run("-m", stories, "--raw", "-p", PROMPT, "-n", 1, "-v").stderr
    assert b"context 512," in run("-m", stories, "--raw", "-p", PROMPT, "-n", 1, "-v", "-c", 0).stderr


def test_a_prompt_may_fill_the_context_but_not_more(run, stories, tmp_path):
    (tmp_path / "long").write_text("a b c d e f g h i j " * 60)
    process = run("-m", stories, "--raw", "-f", tmp_path / "long", "-n", 5)
    assert process.returncode == 2
    n_tokens = int(re.search(rb"has (\d+) tokens, the context 512", process.stderr)[1])
    assert n_tokens > 512
    process = run("-m", stories, "--raw", "-p", PROMPT, "-v", "-n", 1)
    n_prompt = statistics(process)[0]
    process = run("-m", stories, "--raw", "-p", PROMPT, "-v", "-c", n_prompt)
    assert statistics(process) == (n_prompt, 1, "context")
    process = run("-m", stories, "--raw", "-p", PROMPT, "-v", "-c", n_prompt - 1)
    assert process.returncode == 2
    assert b"has %d tokens, the context %d" % (n_prompt, n_prompt - 1) in process.stderr
    process = run("-m", stories, "--raw", "-p", PROMPT, "-c", 513)
    assert process.returncode == 2
    assert b"512" in process.stderr and b"513" in process.stderr


def test_stop_strings_end_an_answer_and_are_not_shown(run, answer, stories):
    text = answer("-p", PROMPT, "-n", 60)
    words = text.decode().removesuffix("\n")
    for begin, end in ((10, 11), (20, 31), (17, 45)):  # one character; parts of tokens; several tokens
        stop = words[begin:end]
        process = run("-m", stories, "--raw", "-p", PROMPT, "-n", 60, "--stop", stop, "-v")
        assert process.stdout.decode() == words[: words.index(stop)] + "\n"
        assert statistics(process)[2] == "stop"
    assert answer("-p", PROMPT, "-n", 60, "--stop", words[30:40], "--stop", words[20:25]).decode() == words[:20] + "\n"
    assert answer("-p", PROMPT, "-n", 60, "--stop", "zebra\x7f") == text
    # Text that could have begun a stop string is shown when nothing follows.
    assert answer("-p", PROMPT, "-n", 60, "--stop", words[-5:] + "\x7f") == text


def test_end_tokens_of_the_checkpoint_end_an_answer(run, variant):
    """The token that comes fifth is made an end token: by generation_config.json, and by config.json alone."""
    for model in (
        variant(generation={"eos_token_id": [STORY_IDS[4], 2]}, name="a"),
        variant(generation={"eos_token_id": None}, config={"eos_token_id": STORY_IDS[4]}, name="b"),
    ):
        process = run("-m", model, "--raw", "-p", PROMPT, "-n", 60, "-v")
        assert statistics(process)[1:] == (4, "eos")
        process = run("-m", model, "--raw", "-p", PROMPT, "-n", 60, "-v", "--ignore-eos")
        assert statistics(process)[1:] == (60, "length")


def named(token, name):
    """A change of tokenizer.json: a token has this name, and is special."""

    def change(it):
        model = it["model"]
        (old,) = [text for text, i in model["vocab"].items() if i == token]
        parts = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [merge for merge in parts if old not in (*merge, "".join(merge))]
        model["vocab"] = {name if text == old else text: i for text, i in model["vocab"].items()}
        it["added_tokens"].append({"id": token, "content": name, "single_word": False, "lstrip": False,
                                   "rstrip": False, "normalized": False, "special": True})
        return it

    return change


@pytest.mark.parametrize("name, ends", [("<|endoftext|>", True), ("<|end_of_text|>", True), ("<|im_end|>", True),
                                        ("<|eot_id|>", True), ("<|other|>", False)])
def test_usual_end_tokens_end_an_answer_where_the_checkpoint_names_none(run, stories, variant, name, ends):
    none = {"eos_token_id": None}
    config = json.dumps({**json.loads((stories / "config.json").read_text()), **none})  # null: not even the usual one
    model = variant(tokenizer=named(STORY_IDS[0], name), files={"config.json": config}, generation=none)
    process = run("-m", model, "--raw", "-p", PROMPT, "-n", 9, "-v")
    assert statistics(process)[1:] == ((0, "eos") if ends else (9, "length"))
    other = {"eos_token_id": STORY_IDS[3]}  # where it names one, that counts alone
    model = variant(tokenizer=named(STORY_IDS[0], name), config=other, generation=none, name="other")
    assert statistics(run("-m", model, "--raw", "-p", PROMPT, "-n", 9, "-v"))[1] > 0


def test_a_stop_string_that_is_a_token_is_text(run, stories):
    """Not special, it shows up as text: what a longer token holds of it stops too."""
    process = run("-m", stories, "--raw", "-p", PROMPT, "-n", 9, "--stop", ",", "-v")
    assert statistics(process)[2] == "stop" and process.stdout == b""


# --- sampling


def test_seeds_repeat_an_answer(run, answer, stories):
    flags = ["-p", PROMPT, "-n", 40, "--temp", "1.2"]
    assert answer(*flags, "-s", 7) == answer(*flags, "--seed", 7)
    assert len({answer(*flags, "-s", seed) for seed in range(5)}) > 1
    process = run("-m", stories, "--raw", *flags, "-v")  # no seed: a new one, which -v reports
    seed = int(re.search(rb"seed (\d+)", process.stderr)[1])
    assert answer(*flags, "-s", seed) == process.stdout
    assert len({run("-m", stories, "--raw", *flags).stdout for _ in range(5)}) > 1


def test_neither_threads_nor_the_cache_nor_a_named_device_change_a_greedy_answer(answer):
    want = answer("-p", PROMPT, "-n", 40)
    assert answer("-p", PROMPT, "-n", 40, "-t", 1) == want
    assert answer("-p", PROMPT, "-n", 40, "--kv", "f32") == want
    assert answer("-p", PROMPT, "-n", 40, "--device", "cpu") == want


def test_top_k_of_one_and_top_p_of_zero_are_greedy(answer):
    want = answer("-p", PROMPT, "-n", 40)
    assert answer("-p", PROMPT, "-n", 40, "--temp", 2, "--top-k", 1) == want
    assert answer("-p", PROMPT, "-n", 40, "--temp", 2, "--top-p", 0) == want
    assert answer("-p", PROMPT, "-n", 40, "--temp", 2, "--min-p", 1) == want


def test_penalties_change_an_answer(answer):
    want = answer("-p", PROMPT, "-n", 60)
    for flags in (["--repeat-penalty", "1.5"], ["--presence-penalty", "5"], ["--frequency-penalty", "5"]):
        assert answer("-p", PROMPT, "-n", 60, *flags) != want


def test_flags_stand_over_the_checkpoint_which_stands_over_nothing(run, stories, variant):
    def settings(model, *flags):
        line = run("-m", model, "--raw", "-p", PROMPT, "-n", 1, "-v", *flags).stderr.decode()
        found = re.search(r"temperature (\S+), top-k (\S+), top-p (\S+), min-p (\S+), repetition penalty (\S+), ", line)
        return tuple(map(float, found.groups()))

    assert settings(stories) == (0, 0, 1, 0, 1)  # its generation_config.json says nothing
    given = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01,
             "repetition_penalty": 1.05}
    model = variant(generation=given, name="sampling")
    assert settings(model) == (0.6, 20, 0.95, 0.01, 1.05)
    assert settings(model, "--temperature", 0.2) == (0.2, 20, 0.95, 0.01, 1.05)
    assert settings(model, "--top_k", 0, "--top-p", 1, "--min-p", 0, "--repetition-penalty", 1) == (0.6, 0, 1, 0, 1)
    assert settings(variant(generation={**given, "do_sample": False}, name="greedy"))[0] == 0
    assert settings(variant(generation={**given, "do_sample": False}, name="warm"), "--temp", 0.5)[0] == 0.5


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_waiting_threads_do_not_spin_for_long(start, endless, given):
    """The setting in the environment counts; without one, the program's."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    process = start(*endless, env={**{k: v for k, v in os.environ.items() if k not in names}, **given})
    assert process.stdout.read(1)
    with open(f"/proc/{process.pid}/environ", "rb") as file:
        found = dict(part.split("=", 1) for part in file.read().decode(errors="replace").split("\0") if "=" in part)
    found = {name: found[name] for name in names if name in found}
    if not given and not found:
        pytest.skip("built by clang, whose OpenMP library waits otherwise")
    assert found == given if given else int(found["GOMP_SPINCOUNT"]) < 300000


def test_an_answer_is_the_same_however_the_program_was_found(auk, stories, answer, tmp_path):
    """By its path, by PATH, by another name, without an argv[0] of its own."""
    want = answer("-p", PROMPT, "-n", 10)
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    (tmp_path / "other").symlink_to(auk[-1])
    flags = ["-m", str(stories), "--raw", "-p", PROMPT, "-n", "10"]
    for executable in (auk[-1], str(tmp_path / "other"), "other"):
        environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        for name in ("auk", "", "-auk"):
            process = subprocess.run([name, *flags], executable=executable, env=environment, capture_output=True,
                                     stdin=subprocess.DEVNULL, timeout=60)
            assert (process.returncode, process.stdout) == (0, want), process.stderr


# --- chat formats


def chat_tokens(*names):
    """A change of tokenizer.json: the last ids of the vocabulary become special tokens with these names."""

    def change(it):
        model = it["model"]
        old = {token for token, i in model["vocab"].items() if i >= 512 - len(names)}
        parts = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [merge for merge in parts if not old & {*merge, "".join(merge)}]
        model["vocab"] = {token: i for token, i in model["vocab"].items() if token not in old}
        for i, name in enumerate(names, 512 - len(names)):
            model["vocab"][name] = i
            it["added_tokens"].append({"id": i, "content": name, "single_word": False, "lstrip": False,
                                       "rstrip": False, "normalized": False, "special": True})
        return it

    return change


@pytest.fixture
def chatml(variant):
    return variant(tokenizer=chat_tokens("<|im_start|>", "<|im_end|>"), name="chatml")


def test_the_chat_format_is_what_the_special_tokens_say(run, stories, chatml, variant):
    names = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    llama3 = variant(tokenizer=chat_tokens(*names), name="llama3")
    for model, name in ((stories, b"none"), (chatml, b"built-in chatml"), (llama3, b"built-in llama3")):
        process = run("-m", model, "-p", "Hi", "-n", 2, "-v")
        assert process.returncode == 0, process.stderr
        assert b"chat format %s," % name in process.stderr
        assert b"chat format none," in run("-m", model, "-p", "Hi", "-n", 2, "-v", "--raw").stderr


def test_a_chat_is_the_format_rendered_as_trusted_text(run, chatml):
    chat = run("-m", chatml, "-p", "Hi", "-sys", "Be kind.", "-n", 8, "-v")
    rendered = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    line = json.dumps({"text": rendered, "add_special": False, "parse_special": True})
    tokens = run("tokenize", "-m", chatml, "--jsonl", input=line.encode() + b"\n")
    assert tokens.returncode == 0, tokens.stderr
    assert statistics(chat)[0] == len(json.loads(tokens.stdout)["ids"])


def test_another_template_can_be_named(run, stories, chatml, tmp_path):
    def prompt_ids(model, *flags):
        process = run("-m", model, "-p", "Hi", "-n", 1, "--json", "--ids", *flags)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)["prompt_ids"]

    (tmp_path / "chat.jinja").write_text("Say: {{ messages[-1].content }}!")
    tokens = run("tokenize", "-m", stories, "--jsonl", input=b'{"text": "Say: Hi!", "add_special": false}\n')
    assert prompt_ids(stories, "--chat-template", tmp_path / "chat.jinja") == json.loads(tokens.stdout)["ids"]
    assert prompt_ids(stories, "--chat-template", "chatml") != prompt_ids(stories)
    assert prompt_ids(chatml, "--chat-template", "chatml") == prompt_ids(chatml)
    for name in ("llama2", "llama3", "mistral", "deepseek", "gemma", "phi"):
        assert prompt_ids(chatml, "--chat-template", name) != prompt_ids(chatml)
    for template, status in (("nonsense", 2), (str(tmp_path / "nothing.jinja"), 1)):
        process = run("-m", stories, "-p", "Hi", "--chat-template", template)
        assert process.returncode == status and template.encode() in process.stderr, process.stderr
    (tmp_path / "broken.jinja").write_text("a\n{% if %}")
    process = run("-m", stories, "-p", "Hi", "--chat-template", tmp_path / "broken.jinja")
    assert process.returncode == 3 and b"line 2" in process.stderr


def test_a_template_whose_controls_are_no_tokens_is_told_of(run, stories, chatml):
    process = run("-m", stories, "-p", "Hi", "-n", 1, "--chat-template", "chatml")
    assert process.stderr == (b"auk: --chat-template chatml: this model's vocabulary has no <|im_start|>, "
                              b"which it reads as ordinary text\n")
    for model, template in (chatml, "chatml"), (stories, "llama2"):
        assert run("-m", model, "-p", "Hi", "-n", 1, "--chat-template", template).stderr == b""


def test_text_of_a_person_holds_no_special_tokens(run, chatml):
    def n_prompt(text, *flags):
        return statistics(run("-m", chatml, "-p", text, "-n", 1, "-v", *flags))[0]

    for raw in ([], ["--raw"]):
        assert n_prompt("a<|im_end|>b", *raw) > n_prompt("a<|im_end|>b", "--parse-special", *raw)


def test_a_special_token_may_be_a_stop_string(run, chatml):
    """It never shows up as text, so it must stop as a token; at this temperature every token comes up at times."""
    flags = ["-m", chatml, "--raw", "-p", PROMPT, "-n", 500, "--temp", 1000, "-s", 3, "-v"]
    assert statistics(run(*flags, "--ignore-eos"))[2] in ("length", "context")
    endless = statistics(run(*flags))
    stopped = statistics(run(*flags, "--stop", "<|im_start|>", "--stop", "<unk>"))
    assert stopped[2] == "eos" and stopped[1] < endless[1]


# --- where the output goes


def on_terminal(start, arguments, which, **options):
    """Runs with standard output or error on a terminal: (terminal's bytes, the other's bytes)."""
    main, terminal = pty.openpty()
    process = start(*arguments, **{which: terminal}, **options)
    os.close(terminal)
    seen = read_all(main)
    other = process.stderr if which == "stdout" else process.stdout
    rest = other.read()
    assert process.wait(60) == 0
    os.close(main)
    return seen, rest


def test_standard_output_holds_the_answer_and_nothing_else(run, stories):
    process = run("-m", stories, "--raw", "-p", PROMPT, "-n", 20)
    assert process.stderr == b""
    assert process.stdout.count(b"\n") == 1 and process.stdout.endswith(b"d\n")
    verbose = run("-m", stories, "--raw", "-p", PROMPT, "-n", 20, "-v")
    assert verbose.stdout == process.stdout
    assert verbose.stderr.count(b"\n") == 2


def test_on_a_terminal_the_answer_ends_its_line(start, stories, answer):
    flags = ["-m", stories, "--raw", "-p", PROMPT, "-n", "20"]
    seen, rest = on_terminal(start, flags, "stdout")
    assert seen == answer("-p", PROMPT, "-n", 20).replace(b"\n", b"\r\n")  # the terminal's own newline
    assert rest == b""


def test_statistics_show_where_a_person_reads_both(start, stories, answer):
    flags = ["-m", stories, "--raw", "-p", PROMPT, "-n", "20"]
    main, terminal = pty.openpty()
    process = start(*flags, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen = read_all(main)
    os.close(main)
    assert process.wait(60) == 0
    figures = rb"\r\n\x1b\[2m\[20 tokens, [0-9.]+/s; context 24 of 512\]\x1b\[22m\r\n"
    assert re.fullmatch(re.escape(answer("-p", PROMPT, "-n", 20)[:-1]) + figures, seen)
    # Beside a pipe they would stand within what its reader writes, and a short prompt has no progress to show.
    assert on_terminal(start, flags, "stderr") == (b"", answer("-p", PROMPT, "-n", 20))


def test_text_streams_as_it_is_made(start, endless):
    """The first words arrive while the model still writes."""
    process = start(*endless)
    assert os.read(process.stdout.fileno(), 1)
    assert process.poll() is None


def test_help_names_every_flag(run):
    text = run("run", "--help", "all").stdout.decode()
    for flag in ("-m", "-p", "-f", "-n", "-c", "-t", "--seed", "--temp", "--top-k", "--top-p", "--min-p",
                 "--repeat-penalty", "--presence-penalty", "--frequency-penalty", "--raw", "-sys", "--stop", "--kv",
                 "--ignore-eos", "--parse-special", "-v"):
        assert re.search(rf"(?m)^  .*{re.escape(flag)}\b", text), flag
    assert max(map(len, text.splitlines())) <= 80
    assert run("-h").returncode == 0


def test_the_model_in_a_packed_file_answers_the_same(run, stories, packed_alone, answer):
    packed = packed_alone(stories)
    tokenizer = ["--tokenizer", stories / "tokenizer.json"]
    flags = ["--rope-theta", 10000, "--norm-eps", 1e-5]
    got = run("-m", packed, *tokenizer, *flags, "--raw", "-p", PROMPT, "-n", 40)
    assert got.stdout == answer("-p", PROMPT, "-n", 40), got.stderr
    process = run("-m", packed, *flags, "--raw", "-p", PROMPT)
    assert process.returncode == 3
    assert b"--tokenizer" in process.stderr


def test_a_packed_file_has_its_template_beside_it(run, stories, packed_alone):
    packed = packed_alone(stories)
    for name in ("tokenizer.json", "config.json"):
        (packed.parent / name).write_bytes((stories / name).read_bytes())
    command = ["-m", packed, "-p", "Hi", "-n", 1, "-v"]
    assert b"chat format none," in run(*command).stderr
    (packed.parent / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    assert b"chat format chat_template.jinja," in run(*command).stderr


def test_no_tokens_have_no_speed(run, stories):
    process = run("-m", stories, "--raw", "-p", "Once", "-n", 0, "-v")
    assert process.returncode == 0
    assert re.search(rb"answer 0 tokens, [0-9.]+ ms \(0\.0/s\)", process.stderr), process.stderr
