"""No command writes over a file that it reads: it is refused before anything is touched, whatever leads to the file."""
import os
import shutil
import subprocess

import pytest

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture
def model(stories, tmp_path):
    """The tiny model with every file that auk reads beside weights."""
    folder = tmp_path / "model"
    shutil.copytree(stories, folder)
    (folder / "reference.npz").unlink()
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "special_tokens_map.json").write_text("{}")
    return folder


@pytest.fixture
def kept(tmp_path):
    """Fails the test where a file that was there when it was called has changed in the end."""
    before = {}

    def keep():
        before.update({path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()})

    yield keep
    assert before
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path} has changed"


def refused(process, flag, output, what):
    assert (process.returncode, process.stdout) == (2, b"")
    assert process.stderr.decode() == f"auk: {flag} {output} is {what}, which would be lost\n"


def writers(folder):
    """Commands that write a file: the arguments, the flag that names it."""
    (folder / "text").write_text("Once upon a time")
    prompt = ["-p", "Once", "-n", "2"]
    return [(prompt, "-o"), ([*prompt, "--json"], "-o"), (["-p", "Once", "--choose", "a,the"], "-o"),
            (["--map", folder / "text", "-n", "2"], "-o"), (["--map", folder / "text", "-n", "2"], "--resume"),
            (["eval", "-f", folder / "text"], "--logits-out")]


def test_no_answer_goes_over_a_file_of_the_model(run, model, kept, tmp_path):
    commands = writers(tmp_path)
    hard, soft = tmp_path / "hard", tmp_path / "soft"
    os.link(model / "model.safetensors", hard)
    soft.symlink_to("model/generation_config.json")
    kept()
    files = [*sorted(model.iterdir()), hard, soft, model / ".." / "model" / "config.json"]
    for number, (command, flag) in enumerate(commands):
        for output in files if number == 0 else (model / "model.safetensors", model / "tokenizer.json", hard, soft):
            refused(run(*command, "-m", model, flag, output), flag, output, "a file of the model itself")


def test_no_answer_goes_over_a_shard_or_the_index(run, root, kept, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(root / "test" / "data" / "miniatures" / "llama-sharded", model)
    kept()
    shards = sorted(model.glob("model*"))
    assert len(shards) > 2
    for output in shards:
        refused(run("-m", model, "-p", "a", "-o", output), "-o", output, "a file of the model itself")


def test_no_answer_goes_over_a_packed_file_or_what_lies_beside_it(run, model, kept, tmp_path):
    packed = tmp_path / "packed" / "model.ak48"
    packed.parent.mkdir()
    assert run("pack", model, "-o", packed).returncode == 0
    kept()
    for output in sorted(packed.parent.iterdir()):
        refused(run("-m", packed, "-p", "a", "-o", output), "-o", output, "a file of the model itself")


def test_no_answer_goes_over_a_model_of_the_cache(run, model, kept, tmp_path):
    """There a checkpoint's files are links to blobs."""
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "main"
    blobs = tmp_path / "hub" / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in model.iterdir():
        shutil.copy(path, blobs)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    kept()
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}
    for output in (blobs / "model.safetensors", snapshot / "tokenizer.json"):
        refused(run("-m", "a/b", "-p", "x", "-o", output, env=environment), "-o", output, "a file of the model itself")


@pytest.mark.parametrize("flag, text", [("-f", "Once"), ("-sysf", "Be brief."), ("--chat-template", TEMPLATE),
                                        ("--tokenizer", None), ("--json-schema", "true"),
                                        ("--grammar", 'root ::= "x"'), ("--tools", "[{\"name\": \"now\"}]")])
def test_no_answer_goes_over_what_a_flag_reads(run, model, kept, tmp_path, flag, text):
    read, link = tmp_path / "read", tmp_path / "link"
    if text:
        read.write_text(text)
    else:
        shutil.copy(model / "tokenizer.json", read)
    if flag == "--tools":
        mark = "{{ tools }}{{ '{\"name\": function name, \"parameters\"' }}"
        (model / "chat_template.jinja").write_text(TEMPLATE + mark)
    link.symlink_to("read")
    (tmp_path / "lines").write_text("Once\n")
    kept()
    what = f"the file that {flag} {read} reads" if text else "a file of the model itself"
    prompt = [] if flag == "-f" else ["-p", "Once"]
    for output in (read, link):
        refused(run("-m", model, *prompt, flag, read, "-n", "2", "-o", output), "-o", output, what)
        if flag in ("-f", "-sysf", "--chat-template", "--tokenizer"):
            refused(run("-m", model, *prompt, flag, read, "--choose", "a,the", "-o", output), "-o", output, what)
        for out in ("-o", "--resume"):
            refused(run("-m", model, *prompt, flag, read, "--map", tmp_path / "lines", "-n", "2", out, output), out,
                    output, what)


def test_no_answer_goes_over_a_file_of_a_drafter(run, model, kept, tmp_path):
    drafter = shutil.copytree(model, tmp_path / "drafter")
    kept()
    for output in (drafter / "config.json", drafter / "model.safetensors", drafter / "tokenizer.json"):
        refused(run("-m", model, "-p", "Once", "-n", "2", "--draft", drafter, "-o", output), "-o", output,
                "a file of the model itself")


def test_logits_go_over_no_text(run, model, kept, tmp_path):
    ids, text = tmp_path / "ids", tmp_path / "text"
    ids.write_text("1 2 3")
    text.write_text("Once upon a time")
    os.link(ids, tmp_path / "hard")
    kept()
    for flag, read, output in (("--ids-file", ids, ids), ("--ids-file", ids, tmp_path / "hard"), ("-f", text, text)):
        refused(run("eval", "-m", model, flag, read, "--logits-out", output), "--logits-out", output,
                f"the file that {flag} {read} reads")
    with open(text) as file:
        refused(run("eval", "-m", model, "-f", "-", "--logits-out", text, stdin=file), "--logits-out", text,
                "the file on standard input")


def test_results_go_over_no_records(run, model, kept, tmp_path):
    records, link = tmp_path / "records", tmp_path / "link"
    records.write_text("Once\nTwice\n")
    link.symlink_to(records)
    kept()
    for flag in ("-o", "--resume"):
        for output in (records, link):
            refused(run("-m", model, "--map", records, "-n", "2", flag, output), flag, output,
                    f"the file that --map {records} reads")
        with open(records) as file:
            refused(run("-m", model, "--map", "-", "-n", "2", flag, records, stdin=file), flag, records,
                    "the file on standard input")


def test_a_conversation_is_saved_over_no_file_of_the_model(run, model, kept, tmp_path):
    """Even where it looks as a conversation does, which may be written anew."""
    config = model / "tokenizer_config.json"
    config.write_text('{"messages": []}')
    rules = tmp_path / "rules"
    rules.write_text('{"messages": []}')
    kept()
    chat = ["chat", "-m", model, "-n", "2", "-sysf", rules]
    for output, what in ((config, "a file of the model itself"), (rules, f"the file that -sysf {rules} reads")):
        refused(run(*chat, input=f"/save {output}\n".encode()), "/save", output, what)
    assert run(*chat, input=f"/save {tmp_path / 'new'}\n".encode()).returncode == 0
    assert (tmp_path / "new").exists()


def test_other_outputs_are_written_as_before(run, model, tmp_path):
    """Devices and pipes, which have no content; a new file in the model's own folder; a result written anew."""
    flags = ["-m", model, "-p", "Once", "-n", "3", "--temp", "0"]
    answer = run(*flags).stdout
    assert answer
    new, fifo = model / "answer.txt", tmp_path / "fifo"
    for _ in range(2):
        assert run(*flags, "-o", new).returncode == 0 and new.read_bytes() == answer
    assert run(*flags, "-o", "/dev/null").returncode == 0
    assert run(*flags, "-o", "/dev/stdout").stdout == answer
    assert run(*flags, "-o", "/dev/full").returncode == 1
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        assert run(*flags, "-o", fifo).returncode == 0 and reader.stdout.read() == answer
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    process = run(*flags, "-o", loop)
    assert process.returncode == 1 and b"Too many levels" in process.stderr
    process = run("pack", model, "-o", loop)
    assert process.returncode == 1 and b"Too many levels" in process.stderr


def test_standard_output_by_its_name_is_a_file_as_others(run, model, kept):
    kept()
    with open(model / "config.json", "ab") as file:
        process = run("-m", model, "-p", "Once", "-o", "/dev/stdout", stdout=file)
    assert process.returncode == 2 and b"-o /dev/stdout is a file of the model itself" in process.stderr
