"""`auk --map --resume`: results that go on after being cut and interrupted, or where the disk is full; files that are
refused because they are of another input, another model or other settings; what other programs do to them."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest

from map_records import DRAWN, PATTERN, short_job, stable


@pytest.fixture
def job(tmp_path, stories):
    """A job of many short records: its flags, and what becomes of it."""
    return [*short_job(tmp_path, stories, 150), *DRAWN]


def test_a_file_that_is_complete_is_left_alone(run, job, tmp_path):
    out = tmp_path / "out"
    assert run(*job, "--json", "--resume", out).returncode == 1  # there is an error
    whole = out.read_bytes()
    assert len(whole.splitlines()) == 150
    again = run(*job, "--json", "--resume", out, "-u")
    assert again.returncode == 1  # and there still is
    assert out.read_bytes() == whole
    assert b"0 records answered" in again.stderr and b"150 were there" in again.stderr
    assert again.stdout == b""


def test_cut_anywhere_it_goes_on_with_the_next(run, job, sanitized, tmp_path):
    out, told = tmp_path / "out", tmp_path / "out.resume"
    for flags in (["--json"], [], ["--choose", "a,the"]):
        if "--choose" in flags:
            job = job[:-len(DRAWN)]
        out.unlink(missing_ok=True)
        told.unlink(missing_ok=True)
        run(*job, *flags, "--resume", out)
        whole, inputs = out.read_bytes(), told.read_bytes() if told.exists() else None
        for size in random.Random(1).sample(range(len(whole)), 1 if sanitized else 4):
            out.write_bytes(whole[:size])
            assert run(*job, *flags, "--resume", out).returncode == 1
            if "--json" in flags:
                assert stable(out.read_bytes()) == stable(whole)
            else:
                assert out.read_bytes() == whole
                assert told.read_bytes() == inputs


def test_an_interrupted_run_goes_on(start, run, job, tmp_path):
    out = tmp_path / "out"
    process = start(*job, "--json", "--resume", str(out))
    while not out.exists() or out.read_bytes().count(b"\n") < 5:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait() in (130, 1)
    assert out.read_bytes().endswith(b"\n")
    run(*job, "--json", "--resume", out)
    assert stable(out.read_bytes()) == stable(run(*job, "--json").stdout)


def test_a_disk_that_is_full_leaves_whole_results(run, job, tmp_path):
    """A limit on the size of files takes a part of a write, as a full disk does."""
    out = tmp_path / "out"

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    for flags in (["--json"], []):
        want = run(*job, *flags).stdout
        process = run(*job, *flags, "--resume", out, preexec_fn=limit)
        assert process.returncode == 1 and b": cannot write: File too large" in process.stderr
        kept = out.read_bytes()
        assert 300 < len(kept) <= 3000 and kept.endswith(b"\n")
        assert run(*job, *flags, "--resume", out).returncode == 1  # one record is an error
        assert out.read_bytes().startswith(kept)
        assert stable(out.read_bytes()) == stable(want) if flags else out.read_bytes() == want
        out.unlink()


def test_results_that_went_to_standard_output_can_be_gone_on_with(run, job, tmp_path):
    """Their file was made by the shell: as JSON they say themselves what they belong to."""
    out = tmp_path / "out"
    whole = run(*job, "--json").stdout
    out.write_bytes(whole[:len(whole) // 2])
    run(*job, "--json", "--resume", out)
    assert stable(out.read_bytes()) == stable(whole)
    out.write_bytes(run(*job).stdout)
    refused = run(*job, "--resume", out)
    assert refused.returncode == 2
    assert b"out.resume" in refused.stderr


def test_another_input_or_prompt_is_refused(run, job, tmp_path):
    out, given = tmp_path / "out", tmp_path / "in"
    for flags in (["--json"], []):
        run(*job, *flags, "--resume", out)
        before, lines = out.read_bytes(), given.read_text().splitlines(keepends=True)
        for changed in (lines[:100], ["another\n"] + lines, lines[:149] + ["another\n"], []):
            given.write_text("".join(changed))
            refused = run(*job, *flags, "--resume", out)
            assert refused.returncode == 2, refused.stderr
            assert out.read_bytes() == before
        given.write_text("".join(lines) + "one more\n")
        assert run(*job, *flags, "--resume", out).returncode == 1
        assert out.read_bytes().startswith(before) and out.read_bytes().count(b"\n") == 151
        before = out.read_bytes()
        other = [flag.replace("One day", "One night") for flag in job]
        (tmp_path / "file").write_text("a text before it")
        for changed in (other, [*job, "-f", str(tmp_path / "file")]):
            refused = run(*changed, *flags, "--resume", out)
            assert refused.returncode == 2 and b"another prompt" in refused.stderr
            assert out.read_bytes() == before
        given.write_text("".join(lines))
        out.unlink()


SETTINGS = {
    "-n": (["-n", "8"], "-n 4, now it is 8"),
    "--temp": (["--temp", "0.25"], "--temp 0.5, now it is 0.25"),
    "--top-k": (["--top-k", "5"], "--top-k 0, now it is 5"),
    "--top-p": (["--top-p", "0.5"], "--top-p 1, now it is 0.5"),
    "--min-p": (["--min-p", "0.5"], "--min-p 0, now it is 0.5"),
    "--repeat-penalty": (["--repeat-penalty", "2"], "--repeat-penalty 1, now it is 2"),
    "--presence-penalty": (["--presence-penalty", "2"], "--presence-penalty 0, now it is 2"),
    "--frequency-penalty": (["--frequency-penalty", "2"], "--frequency-penalty 0, now it is 2"),
    "-s": (["-s", "10"], "-s 9, now it is 10"),
    "no -s": (["-s", "-1"], "-s 9, now it is -1"),
    "--stop": (["--stop", "a", "--stop", "b"], '--stop none, now it is "a", "b"'),
    "--ignore-eos": (["--ignore-eos"], "--ignore-eos off, now it is on"),
    "-sys": (["-sys", "Be kind."], "-sys none, now it is Be kind."),
    "empty -sys": (["-sys", ""], "-sys none, now it is empty"),  # which is a message
    "--chat-template": (["--chat-template", "chatml"],
                        "--chat-template chat_template.jinja, now it is built-in chatml"),
    "--raw": (["--raw"], "--chat-template chat_template.jinja, now it is none"),
    "--think": (["--think"], "--think unsaid, now it is on"),
    "--think-budget": (["--think-budget", "3"], "--think-budget -1, now it is 3"),
    "--show-thinking": (["--show-thinking"], "--show-thinking off, now it is on"),
    "--hide-thinking": (["--hide-thinking"], "--hide-thinking off, now it is on"),
    "--parse-special": (["--parse-special"], "--parse-special off, now it is on"),
    "--truncate": (["--truncate", "middle"], "--truncate none, now it is middle"),
    "-x": (["-x"], "-x off, now it is on"),
    "--kv": (["--kv", "f32"], "--kv f16, now it is f32"),
    "-c": (["-c", "300"], "-c not given, now it is 300"),
}


@pytest.fixture
def kept(run, talker, tmp_path):
    """kept(form): the flags of a short job in a chat, whose results are in tmp_path / "out" already."""
    (tmp_path / "in").write_text("Tim\nLily\n")
    job = ["-m", talker(), "-t", 1, "-n", 4, "-s", 9, "--temp", "0.5", "-p", "Who saw {}?", "--map", tmp_path / "in"]

    def make(form):
        process = run(*job, *form, "--resume", tmp_path / "out")
        assert process.returncode == 0, process.stderr
        return [*job, *form, "--resume", tmp_path / "out"]

    return make


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_refused_by_name(run, kept, tmp_path, name):
    """The results in the file and those to be added must be of one model and one set of settings."""
    flags, words = SETTINGS[name]
    for form in ([], ["--json"]):
        job = kept(form)
        before = (tmp_path / "out").read_bytes()
        refused = run(*job, *flags)
        assert refused.returncode == 2
        assert f"out: its results were made with {words}\n" in refused.stderr.decode()
        assert (tmp_path / "out").read_bytes() == before
        if name == "-c":  # only where errors may come of it can another context be what is wanted
            assert run(*job, *flags, "--retry-errors").returncode == 0
        assert run(*job).returncode == 0
        assert (tmp_path / "out").read_bytes() == before
        if form and name != "-c":  # the results say it, too, though not what it is
            (tmp_path / "out.resume").unlink()
            refused = run(*job, *flags)
            assert refused.returncode == 2
            assert b"out: line 1 was made with another model or other settings" in refused.stderr
            assert not (tmp_path / "out.resume").exists()
        (tmp_path / "out").unlink()


def test_results_with_and_without_invariant_are_not_mixed(run, kept, tmp_path):
    """The default depends on the device, so the message says which flag goes on."""
    for form in ([], ["--json"]):
        job = kept(form)
        before = (tmp_path / "out").read_bytes()
        refused = run(*job, "--invariant")
        assert (refused.returncode, (tmp_path / "out").read_bytes()) == (2, before)
        assert refused.stderr.decode().endswith("out: its results were made without --invariant, now it is on: give "
                                                "--no-invariant to go on\n")
        assert run(*job, "--no-invariant").returncode == 0
        (tmp_path / "out").unlink()
        job = kept([*form, "--invariant"])
        job.remove("--invariant")
        for flags in ([], ["--no-invariant"]):
            refused = run(*job, *flags)
            assert refused.returncode == 2
            assert refused.stderr.decode().endswith("out: its results were made with --invariant, now it is off: give "
                                                    "--invariant to go on\n")
        assert run(*job, "--invariant").returncode == 0
        (tmp_path / "out").unlink()


def test_other_choices_are_refused_by_name(run, stories, tmp_path):
    (tmp_path / "in").write_text("Tim\nLily\n")
    job = ["-m", stories, "--raw", "--map", tmp_path / "in", "--resume", tmp_path / "out"]
    assert run(*job, "--choose", "a,the").returncode == 0
    for flags, words in [(["--choose", "a,an"], "--choose a,the, now it is a,an"),
                         (["--choose", "a", "--choice", "the,"], "--choose a,the, now it is a,the,"),
                         (["--choose", "a,the", "--choose-by", "mean"], "--choose-by sum, now it is mean"),
                         (["-n", "4"], "-n -1, now it is 4")]:
        refused = run(*job, *flags)
        assert refused.returncode == 2 and words in refused.stderr.decode(), refused.stderr


def test_other_forms_are_refused(run, talker, tmp_path):
    """Each form differs from the one before it by one thing that decides what an answer may be or holds."""
    a, b = ('{"type": "object", "properties": {"%s": {"const": 1}}, "required": ["%s"]}' % (key, key) for key in "ab")
    (tmp_path / "in").write_text(f'{{"x": {a}, "y": {a}}}\n' * 2)
    f, g = (tmp_path / f"{name}.json" for name in "fg")
    for path in (f, g):
        path.write_text('[{"name": "%s", "parameters": {"type": "object"}}]' % path.stem)
    forms = [[], ["--json-schema", a], ["--json-schema", b], ["--json-schema", b, "--key-order", "any"],
             ["--json-schema", b, "--key-order", "any", "--schema-lenient"], ["--regex", "nul"],
             ["--regex", "nul+"], ["--map-json", "--json-schema", "{x}"], ["--map-json", "--json-schema", "{y}"],
             ["--tools", f], ["--tools", g], ["--tools", g, "--tool-choice", "required"]]
    forms += [["--json", *flags] for flags in ([], ["--logprobs", 1], ["--logprobs", 2], ["--ids"], ["--n-best", 2],
                                               ["--n-best", 3])]
    calls = """{{ tools | tojson if tools }}{{ 'as {"name": function name, "parameters": dictionary}' if tools }}"""
    job = ["-m", talker(calls), "-t", 1, "-n", 30, "-s", 9, "--temp", 0.5, "-p", "A {}", "--map", tmp_path / "in",
           "--resume", tmp_path / "out"]
    for before, now in zip(forms, forms[1:]):
        run(*job, *before)
        kept = (tmp_path / "out").read_bytes()
        refused = run(*job, *now)
        assert refused.returncode == 2 and b"/out" in refused.stderr, (before, now, refused.stderr)
        assert (tmp_path / "out").read_bytes() == kept and kept.count(b"\n") >= 2
        for path in tmp_path.glob("out*"):
            path.unlink()


def test_texts_that_join_to_the_same_bytes_are_other_settings(run, stories, tmp_path):
    (tmp_path / "in").write_text("Tim\nLily\n")
    job = ["-m", stories, "--raw", "-t", 1, "--map", tmp_path / "in", "--resume", tmp_path / "out"]
    stops = '--stop "a", "b"', 'it is "ab"'
    choices = "--choose a,bc", "it is ab,c"
    for made, now, (was, told) in [(["-n", 4, "--stop", "a", "--stop", "b"], ["-n", 4, "--stop", "ab"], stops),
                                   (["--choose", "a,bc"], ["--choose", "ab,c"], choices)]:
        for form in ([], ["--json"]):
            assert run(*job, *made, *form).returncode == 0
            before = (tmp_path / "out").read_bytes()
            refused = run(*job, *now, *form)
            assert refused.returncode == 2
            assert f"made with {was}, now {told}\n" in refused.stderr.decode()
            assert (tmp_path / "out").read_bytes() == before
            (tmp_path / "out").unlink()


def test_another_model_is_refused_by_name(run, kept, tmp_path):
    """Wherever it lies: a copy is the same model, one other byte of its weights makes it another."""
    for form in ([], ["--json"]):
        job = kept(form)
        model, before = job[1], (tmp_path / "out").read_bytes()
        shutil.copytree(model, tmp_path / "copy")
        assert run(*job, "-m", tmp_path / "copy").returncode == 0
        for file, words in [("model.safetensors", b"made with model talker, now it is copy"),
                            ("tokenizer.json", b"made with another --tokenizer than this one (tokenizer.json)"),
                            ("chat_template.jinja", b"made with another --chat-template"),
                            ("tokenizer_config.json", b"made with another --tokenizer"),  # it declares tokens
                            ("config.json", b"made with model talker, now it is copy")]:
            data = (tmp_path / "copy" / file).read_bytes()
            changed = {"model.safetensors": data[:-1] + bytes([data[-1] ^ 1]), "tokenizer.json": data + b"\n",
                       "chat_template.jinja": b"{# #}" + data, "config.json": data + b"\n",
                       "tokenizer_config.json": data.replace(b"<s>", b"</s>")}[file]
            assert changed != data
            (tmp_path / "copy" / file).write_bytes(changed)
            refused = run(*job, "-m", tmp_path / "copy")
            assert refused.returncode == 2 and words in refused.stderr, refused.stderr
            (tmp_path / "copy" / file).write_bytes(data)
        assert (tmp_path / "out").read_bytes() == before
        shutil.rmtree(tmp_path / "copy")
        (tmp_path / "out").unlink()


def test_results_name_their_model_and_not_where_it_lies(run, stories, tmp_path):
    cache = tmp_path / "hub" / "models--some--stories" / "snapshots" / ("0" * 40)
    cache.parent.mkdir(parents=True)
    cache.symlink_to(stories)
    (tmp_path / "link").symlink_to(stories)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}
    for given, name in [(stories, "stories260K-awq"), (f"{stories}/", "stories260K-awq"), (".", "stories260K-awq"),
                        (tmp_path / "link", "stories260K-awq"), ("some/stories", "some/stories")]:
        for flags in (["-p", "Tim"], ["--map", "-"], ["-p", "Tim", "--choose", "a,the"]):
            n = [] if "--choose" in flags else ["-n", 1]
            process = run("-m", given, "--raw", *n, *flags, "--json", input=b"Tim\n", cwd=stories, env=environment)
            assert process.returncode == 0, process.stderr
            assert json.loads(process.stdout)["model"] == name


# --- other programs


@pytest.fixture
def begun(start, stories, tmp_path):
    """begun(*flags): a job that has written two results to tmp_path / "out" and waits for the third record, and what
    gives it one."""

    def begin(*flags, model=stories):
        process = start("-m", model, "--raw", "-t", "1", "-n", "4", "--map", "-", *flags, stdin=subprocess.PIPE)

        def give(*records):
            process.stdin.write("".join(record + "\n" for record in records).encode())
            process.stdin.flush()

        give("Tim", "Lily")
        out, end = tmp_path / "out", b"\0" if "-0" in flags else b"\n"
        while not out.exists() or out.read_bytes().count(end) < 2:
            time.sleep(0.001)
            assert process.poll() is None, process.stderr.read()
        return process, give

    return begin


def test_a_file_that_others_change_gets_no_more_results(begun, run, stories, tmp_path):
    """Once emptied, it was gone on with at its beginning, with results of later records."""
    out, told = tmp_path / "out", tmp_path / "out.resume"
    deeds = {"emptied": lambda: out.write_bytes(b""), "grown": lambda: out.open("ab").write(b"x"),
             "moved": lambda: out.rename(tmp_path / "elsewhere"), "removed": out.unlink,
             "replaced": lambda: shutil.copy(out, tmp_path / "new") and (tmp_path / "new").rename(out)}
    want = run("-m", stories, "--raw", "-n", 4, "--map", "-", input=b"Tim\nLily\nSam\n").stdout
    for name, deed in deeds.items():
        for flags in (["--resume", str(out)], ["--json", "--resume", str(out)], ["-o", str(out)]):
            out.unlink(missing_ok=True)
            told.unlink(missing_ok=True)
            process, give = begun(*flags)
            deed()
            before = out.read_bytes() if out.exists() else None
            give("Sam")
            assert process.wait() == 1
            assert f"{out}" in (said := process.stderr.read().decode()) and "another program" in said
            assert (out.read_bytes() if out.exists() else None) == before
            if name in ("emptied", "moved", "removed") and flags[0] == "--resume":
                again = run("-m", stories, "--raw", "-n", 4, "--map", "-", *flags, input=b"Tim\nLily\nSam\n")
                assert again.returncode == 0 and b"2 of the 2 results that were written are gone" in again.stderr
                assert out.read_bytes() == want


def test_results_that_are_gone_are_told_of(run, kept, tmp_path):
    """A kill between the two writes leaves a result that is announced and not there."""
    job, out = kept([]), tmp_path / "out"
    whole = out.read_bytes()
    for n_left, said in ((1, b""), (0, b"auk: %s: 2 of the 2 results that were written are gone: they are made again\n"
                                   % str(out).encode())):
        out.write_bytes(b"".join(whole.splitlines(keepends=True)[:n_left]))
        again = run(*job)
        assert (again.returncode, again.stderr) == (0, said)
        assert out.read_bytes() == whole


def test_files_of_others_are_not_touched(run, job, tmp_path):
    out = tmp_path / "thesis"
    for text in ("my thesis\n", "my thesis"):
        for flags in (["--json"], []):
            out.write_text(text)
            refused = run(*job, *flags, "--resume", out)
            assert refused.returncode == 2, refused.stderr
            assert out.read_text() == text
    refused = run(*job, "--resume", tmp_path / "in")
    assert refused.returncode == 2 and b"is the file that --map" in refused.stderr
    refused = run(*job, "-o", tmp_path / "in")
    assert refused.returncode == 2 and b"is the file that --map" in refused.stderr
    assert (tmp_path / "in").read_text().count("\n") == 150
    os.mkfifo(tmp_path / "other.resume")
    refused = run(*job, "--resume", tmp_path / "other")
    assert refused.returncode == 2 and b"other.resume is a fifo, expected a regular file" in refused.stderr


def test_one_process_has_the_file(start, run, stories, job, tmp_path):
    out = tmp_path / "out"
    first = start("-m", stories, "--raw", "-n", "4", "--map", "-", "--json", "--resume", str(out),
                  stdin=subprocess.PIPE)
    first.stdin.write(b"Tim\n")
    first.stdin.flush()
    while not out.exists() or not out.read_bytes():
        time.sleep(0.001)
    before = out.read_bytes()
    for flag in ("--resume", "-o"):
        second = run(*job, "--json", flag, out)
        assert second.returncode == 1 and b"another process" in second.stderr
    assert out.read_bytes() == before
    first.stdin.close()
    assert first.wait() == 0


@pytest.mark.parametrize("together", [1, 64])
def test_errors_count_as_done_unless_they_are_wanted_again(run, stories, tmp_path, together):
    out = tmp_path / "out"
    lines = ["Tim", "a longer one, " * 10, "Lily", "another longer one, " * 10]
    given = "".join(line + "\n" for line in lines).encode()
    for flags in (["--json"], []):
        flags = ["-m", stories, "--raw", "-n", 4, "-s", 1, "-p", PATTERN, "--map", "-", "--parallel", together, *flags]
        short = run(*flags, "-c", 20, "--resume", out, input=given)
        assert short.returncode == 1 and short.stderr.count(b"the context 20") == 2
        before = out.read_bytes()
        again = run(*flags, "-c", 20, "--resume", out, input=given)
        assert again.returncode == 1 and b"2 of 4" in again.stderr
        assert out.read_bytes() == before
        given_more = given + b"Sam\n"
        whole = run(*flags, input=given_more).stdout
        retried = run(*flags, "--resume", out, "--retry-errors", input=given_more)
        assert retried.returncode == 0, retried.stderr
        got = out.read_bytes()
        assert stable(got) == stable(whole) if "--json" in flags else got == whole
        assert run(*flags, "--resume", out, "--retry-errors", input=given_more).returncode == 0
        assert out.read_bytes() == got
        out.unlink()


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["lines", "objects"])
@pytest.mark.parametrize("given", [b"Tim\n" + b"so " * 20 + b"\nLily\n", b"Tim\n"], ids=["remade", "added"])
def test_a_context_that_was_changed_is_gone_on_with(run, stories, tmp_path, form, given):
    """Where errors were made again with another -c, or records were added with it."""
    out = tmp_path / "out"
    job = ["-m", stories, "--raw", "-n", 4, "-s", 1, "-p", PATTERN, "--map", "-", *form, "--resume", out]
    run(*job, "-c", 20, input=given)
    more = given + b"Sam\n"
    retried = run(*job, "-c", 100, "--retry-errors", input=more)
    assert retried.returncode == 0, retried.stderr
    third = run(*job, "-c", 100, "-u", input=more + b"Max\n")
    assert third.returncode == 0, third.stderr
    assert b"1 records answered in" in third.stderr
    whole = run(*job[:-2], "-c", 100, input=more + b"Max\n").stdout
    assert (stable(out.read_bytes()) == stable(whole)) if form else (out.read_bytes() == whole)
    refused = run(*job, "-c", 20, input=more)
    assert refused.returncode == 2 and b"made with -c 100, now it is 20" in refused.stderr


def test_results_go_where_o_says(run, job, tmp_path):
    out = tmp_path / "out"
    out.write_text("what was there before, and is longer than nothing\n" * 1000)
    process = run(*job, "-o", out)
    assert process.stdout == b""
    assert out.read_bytes() == run(*job).stdout == run(*job, "-o", "-").stdout


def test_results_do_not_go_behind_their_own_input(auk, stories, tmp_path):
    """Each would be a record in turn, for ever."""
    records = tmp_path / "in"
    for source in (str(records), "-"):
        records.write_text("Once\nTwice\n")
        process = subprocess.run([*auk, "-m", stories, "--raw", "-n", "2", "--map", source], stdin=open(records),
                                 stdout=open(records, "a"), stderr=subprocess.PIPE, timeout=60)
        assert process.returncode == 2
        assert b"auk: standard output is the file " in process.stderr and b"grow for ever" in process.stderr
        assert records.read_text() == "Once\nTwice\n"


def test_an_interrupted_run_says_what_is_there_and_how_to_go_on(run, start, job, tmp_path):
    out, claims = tmp_path / "out", tmp_path / "claims"
    slow = [*job, "-n", "100", "--ignore-eos", "-u"]
    for flags, begun in ((["--resume", out], out), (["--claim", claims], claims / "done")):
        process = start(*slow, *flags)
        while not begun.exists() or (begun.is_file() and not begun.read_bytes()):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        said = process.stderr.read().decode()
        if "--resume" in flags:
            n, n_errors = out.read_bytes().count(b"\n"), out.read_bytes().count(b"\\!")
            assert f"auk: {n} records answered in " in said or f"auk: {n - n_errors} records answered in " in said
            assert f"auk: interrupted: {out} has {n} of 150 results: the same command goes on\n" in said
        else:
            assert f"auk: interrupted: the same command goes on with what is missing in {claims}\n" in said


def test_a_result_of_another_record_is_refused_with_a_way_out(run, job, tmp_path):
    out = tmp_path / "out"
    given = tmp_path / "in"
    run(*job, "--resume", out)
    lines = given.read_text().splitlines(True)
    given.write_text("".join(["another\n", *lines[1:]]))
    refused = run(*job, "--resume", out).stderr.decode()
    assert refused == (f"auk: {out}: result 1 is of another record than {given}:1, or of another prompt (-p, -f): give "
                       "another file to --resume, or remove this one\n")
    given.write_text("".join(lines[:20]))
    assert "has more results than" in run(*job, "--resume", out).stderr.decode()
