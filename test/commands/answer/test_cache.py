"""auk --cache: what comes from the disk changes no byte of an answer, and whatever happens to it never costs one."""
import fcntl
import json
import os
import re
import resource
import shutil
import struct
import time

import pytest

PREFIX_MIN_NEW = 64
WORDS = ("One day, a little girl named Lily went to the park with her mom. They saw a big red ball. "
         "The ball was very pretty. Lily wanted to play with it. ")


def story(n_repeats, end=""):
    return WORDS * n_repeats + end


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "auk"


@pytest.fixture
def ask(run, stories, cache):
    """ask(prompt, *flags): the answer's bytes, how many tokens came from the cache and were saved, all of standard
    error. The tiny model has 512 positions, and a story of 6 repeats about 330 tokens."""

    def ask_it(prompt, *flags, model=stories, check=True, directory=cache, **options):
        done = run("-m", model, "--raw", "-p", prompt, "-n", "24", "--temp", "1", "-s", "7", "--ignore-eos", "-v",
                   *(["--cache-dir", directory] if directory else []), *flags, **options)
        errors = done.stderr.decode()
        if check:
            assert done.returncode == 0, errors
        hit = re.search(r"cache: (\d+) of \d+ tokens in", errors)
        saved = re.search(r"cache: (\d+) tokens saved in", errors)
        return done.stdout, int(hit[1]) if hit else 0, int(saved[1]) if saved else 0, errors

    return ask_it


def blocks(directory):
    return sorted(directory.glob("*.kv"))


def test_a_hit_gives_the_same_bytes(ask, cache):
    plain, hit, saved, _ = ask(story(6), directory=None)
    assert hit == saved == 0
    first, hit, saved, errors = ask(story(6))
    assert (first, hit) == (plain, 0) and saved >= 256, errors
    again, hit, saved, errors = ask(story(6))
    assert again == plain and hit >= 256 and saved == 0, errors
    assert re.search(r"prompt \d+ tokens \(%d known\)" % hit, errors)


@pytest.fixture(params=["qwen3_5-awq", "granite4-h-moe-bf16", "falcon-h1-bf16", "lfm2-awq", "lfm3-bf16", "ling-bf16",
                        "olmo-hybrid-bf16", "qwen4-exp-bf16"])
def hybrid(request, root, tmp_path):
    """A model with recurrent states, for texts of 512 tokens."""
    folder = tmp_path / request.param
    shutil.copytree(root / "test" / "data" / "miniatures" / request.param, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    return folder


def test_a_hybrids_states_come_back_with_the_same_bytes(run, ask, hybrid, cache):
    """The second of three texts that begin alike finds a state before they part, the third one just there."""
    text = "One day, a little girl named Lily went to the park with her mom. " * 6
    plain = [ask(text + end, directory=None, model=hybrid)[0] for end in ("What?", "A dog was where?", "Bye.")]
    first, hit, saved, errors = ask(text + "What?", model=hybrid)
    assert (first, hit) == (plain[0], 0) and saved >= 256, errors
    again, hit, saved, errors = ask(text + "What?", "-t", 1, model=hybrid)
    assert (again, saved) == (plain[0], 0) and hit >= 256, errors
    second, before, saved, errors = ask(text + "A dog was where?", model=hybrid)
    assert (second, before) == (plain[1], 256) and saved >= PREFIX_MIN_NEW, errors
    third, hit, _, errors = ask(text + "Bye.", model=hybrid)
    assert third == plain[2] and hit == before + saved - len("A dog was where?") + 1, errors
    states = sorted(cache.glob("*.rs"))
    assert len(states) >= 2 and {path.stat().st_mode & 0o777 for path in states} == {0o600}
    listed = int(run("cache", "--cache-dir", cache).stdout.split(b"\n")[1].split()[0])
    assert listed == sum(struct.unpack("<i", path.read_bytes()[12:16])[0] for path in blocks(cache))  # states not again
    for path in states:
        damage(path, -1)
    answer, hit, _, errors = ask(text + "Bye.", model=hybrid)
    assert (answer, hit) == (plain[2], 0) and "checksum of layer" in errors
    assert run("cache", "--clear", "--cache-dir", cache).returncode == 0
    assert not list(cache.glob("*.rs")) and not blocks(cache)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_another_question_behind_the_same_text(ask, threads, kv):
    flags = ("-t", threads, "--kv", kv)
    ask(story(6, "What did Tom see?"), *flags)
    other = story(6, "Where was the dog in the end?")
    plain, *_ = ask(other, *flags, directory=None)
    answer, hit, _, errors = ask(other, *flags)
    assert answer == plain and hit >= 256, errors


def test_what_changes_the_numbers_changes_the_key(ask):
    ask(story(6))
    assert ask(story(6))[1] >= 256
    assert ask(story(6), "--kv", "f32")[1] == 0


def test_short_prompts_are_not_kept(ask, cache):
    assert ask(story(2))[2] == 0
    assert not cache.exists() or not blocks(cache)


def test_the_limit_is_kept(ask, cache):
    _, _, saved, _ = ask(story(6))
    size = sum(path.stat().st_size for path in blocks(cache))
    for i in range(4):
        _, _, saved, errors = ask("Tom %d. " % i + story(6), "--cache-limit", "%d" % (size * 2))
        assert saved >= 256, errors
    assert sum(path.stat().st_size for path in blocks(cache)) <= size * 2
    assert re.search(r"old files? removed", errors)


def test_flags(run, ask, cache, stories):
    for limit in ("", "x", "5X", "-1", "1e400", "10GG", "nan", "M"):
        done = run("-m", stories, "--raw", "-p", "x", "-n", "1", "--cache-dir", cache, "--cache-limit", limit)
        assert done.returncode == 2 and b"--cache-limit" in done.stderr, limit
    for limit in ("0", "500M", "1.5g", "2GiB", "10KB", "3T"):
        assert run("-m", stories, "--raw", "-p", "x", "-n", "1", "--cache-dir", cache,
                   "--cache-limit", limit).returncode == 0, limit
    done = run("-m", stories, "--raw", "-p", "x", "-n", "1", "--cache-dir", "")
    assert done.returncode == 2 and b"--cache-dir is empty" in done.stderr
    assert ask(story(6), "--no-cache")[2] == 0
    assert not blocks(cache)


def test_a_limit_is_in_the_unit_that_it_names(ask, cache):
    """A file of some bytes stays within a limit of one byte more and goes with one of a byte less."""
    ask(story(6), "-n", 1)
    size = sum(path.stat().st_size for path in blocks(cache))
    for unit, factor in (("", 1), ("B", 1), ("k", 2**10), ("MB", 2**20), ("GiB", 2**30), ("T", 2**40)):
        for limit, kept in ((size + 1, True), (size - 1, False)):
            shutil.rmtree(cache)
            size_text = str(limit) if factor == 1 else f"{limit / factor:.20f}"
            ask(story(6), "-n", 1, "--cache-limit", size_text + unit)
            assert bool(blocks(cache)) == kept, (unit, limit)


def test_without_a_limit_it_is_10_gib(ask, cache):
    """The oldest file goes if it and the new one are larger together. It is sparse: it takes no room on the disk."""
    old = cache / ("-".join(["0" * 16] * 3) + ".kv")
    for size, kept in (((10 << 30) - (4 << 20), True), (10 << 30, False)):
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        with open(old, "wb") as file:
            file.truncate(size)
        os.utime(old, (1, 1))
        assert ask(story(6), "-n", 1)[2] >= 256
        assert old.exists() == kept
        assert len(blocks(cache)) == 1 + kept


def test_what_two_prompts_begin_with_is_kept_where_64_tokens_go(run, ask, cache, stories, tmp_path):
    """Fewer, and it is kept in the end as the last one's: a chat that grows is not written each time."""
    (tmp_path / "template").write_text("{{ messages[-1].content }}")
    ask(story(6))  # a program of over 16 MB, as with sanitizers, is known by its hash only from its second start on
    for n_gone, at_once in ((63, False), (64, True)):
        for path in blocks(cache):
            path.unlink()
        first, second = story(6, "Tom" + " the" * (n_gone - 2)), story(6, "Sam")  # of "Tom" two tokens are others
        done = run("chat", "-m", stories, "--chat-template", tmp_path / "template", "-n", 1, "--temp", 0, "-v", "-t", 1,
                   "--cache-dir", cache, input=f"{first}\n/stats\n/clear\n{second}\n/stats\n".encode())
        told = re.findall(r"tokens saved|prompt: (\d+) tokens, (\d+) of them known", done.stderr.decode())
        assert len(told) == 3 and int(told[0][0]) - max(int(known) for _, known in told if known) == n_gone, told
        assert told[1 if at_once else 2] == ("", "")


def test_prompts_of_256_tokens_are_kept(ask, cache):
    for words, kept in ((254, False), (255, True)):
        _, _, saved, errors = ask("Once" + " the" * (words - 1), "-n", 1)
        assert f"prompt {words + 1} tokens" in errors
        assert bool(saved) == kept == bool(cache.exists() and blocks(cache))


def test_where_it_lies(ask, tmp_path):
    def environment(**changes):
        base = {key: value for key, value in os.environ.items() if key not in ("XDG_CACHE_HOME", "HOME")}
        return {**base, **changes}

    home, xdg = tmp_path / "home", tmp_path / "xdg"
    assert ask(story(6), "--cache", directory=None, env=environment(HOME=str(home), XDG_CACHE_HOME=str(xdg)))[2]
    assert blocks(xdg / "auk") and not home.exists()
    assert (xdg / "auk").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in blocks(xdg / "auk")} == {0o600}
    assert ask(story(6), "--cache", directory=None, env=environment(HOME=str(home), XDG_CACHE_HOME="relative"))[2]
    assert blocks(home / ".cache" / "auk")
    *_, errors = ask(story(6), "--cache", directory=None, env=environment(), check=False)
    assert "neither XDG_CACHE_HOME nor HOME" in errors


def damage(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_damaged_file_is_noted_and_replaced(ask, cache):
    plain, *_ = ask(story(6))
    path = next(path for path in blocks(cache) if struct.unpack("<i", path.read_bytes()[8:12])[0] == 0)
    for at in (3, 50, 120, 2000, -1):
        damage(path, at)
        answer, hit, saved, errors = ask(story(6))
        assert (answer, hit) == (plain, 0)
        assert str(path) in errors, errors
        assert saved >= 256, errors  # and is written anew
        assert ask(story(6))[:2] == (plain, ask(story(6))[1])
        assert ask(story(6))[1] >= 256
    assert "checksum" in errors


def test_nothing_is_said_without_v(run, stories, cache):
    for _ in range(2):
        done = run("-m", stories, "--raw", "-p", story(6), "-n", "4", "--cache-dir", cache)
        assert done.returncode == 0 and done.stderr == b""
        for path in blocks(cache):
            damage(path, -1)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_something_else_in_its_place(ask, run, stories, cache, what):
    plain, *_ = ask(story(6), directory=None)
    ask(story(6))
    names = [path.name for path in blocks(cache)]
    shutil.rmtree(cache)
    if what == "file":
        cache.write_text("no directory")
    else:
        cache.mkdir()
        for name in names:
            os.mkfifo(cache / name)
        (cache / "lock").mkdir()
    answer, hit, saved, errors = ask(story(6))
    assert (answer, hit, saved) == (plain, 0, 0)
    assert "auk: cache: " in errors
    brief = run("-m", stories, "--raw", "-p", story(6), "-n", "1", "--cache-dir", cache)  # without -v: one line
    assert brief.returncode == 0 and brief.stderr.startswith(b"auk: cache: ") and brief.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(ask, cache):
    plain, *_ = ask(story(6), directory=None)
    cache.mkdir(parents=True)
    cache.chmod(0o500)
    answer, _, saved, errors = ask(story(6))
    cache.chmod(0o700)
    assert (answer, saved) == (plain, 0) and "cannot" in errors


def test_a_full_disk_costs_nothing_but_the_file(ask, cache):
    """Files of at most 20,000 bytes stand for a disk that fills up within one."""
    plain, *_ = ask(story(6), directory=None)
    answer, _, saved, errors = ask(
        story(6), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert (answer, saved) == (plain, 0)
    assert "File too large" in errors
    left = [path.name for path in cache.iterdir() if not path.name.startswith("known-")]  # small: what a file holds
    assert left in ([], ["lock"])


def test_a_killed_process_leaves_no_half_file(start, ask, stories, cache):
    plain, *_ = ask(story(6), directory=None)
    for delay in (0.02, 0.04, 0.06, 0.08):
        process = start("-m", stories, "--raw", "-p", story(6), "-n", "1", "--cache-dir", cache)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert ask(story(6), "--cache-limit", "0")[0] == plain


def test_many_processes_at_once(start, ask, stories, cache):
    """All save and read the same and different texts under a limit that holds two of them."""
    prompts = ["Tom %d. " % (i % 3) + story(6) for i in range(9)]
    plain = [ask(prompt, directory=None)[0] for prompt in prompts[:3]]
    ask(prompts[0])
    limit = 2 * sum(path.stat().st_size for path in blocks(cache))
    for _ in range(2):
        processes = [start("-m", stories, "--raw", "-p", prompt, "-n", "24", "--temp", "1", "-s", "7", "--ignore-eos",
                           "-v", "-t", "1", "--cache-dir", cache, "--cache-limit", limit) for prompt in prompts]
        for i, process in enumerate(processes):
            out, errors = process.communicate()
            assert process.returncode == 0 and out == plain[i % 3]
            assert b"checksum" not in errors and b"bytes, expected" not in errors


def enlarged(stories, folder):
    """The tiny model with 17 MB of numbers that it does not use: weights that are too large to be read each time."""
    shutil.copytree(stories, folder)
    weights = (stories / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", weights[:8])[0]
    header = json.loads(weights[8:8 + size])
    end = len(weights) - 8 - size
    header["padding"] = {"dtype": "U8", "shape": [17 << 20], "data_offsets": [end, end + (17 << 20)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + weights[8 + size:] + bytes(17 << 20))
    return path, 8 + len(text)


def test_large_weights_are_read_once_and_known_by_their_content(ask, stories, cache, tmp_path):
    model = tmp_path / "large"
    path, data = enlarged(stories, model)
    # A file that changed less than two seconds ago might change again without another time: it is not remembered.
    # A time in the future is "less than two seconds ago" for as long as the machine needs for the next two lines.
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    *_, saved, errors = ask(story(6), model=model)
    assert saved >= 256 and "the weights were read once" in errors
    assert ask(story(6), model=model)[1] == 0
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    time.sleep(2.1)  # when the times were set counts too, and cannot be set
    plain, _, _, errors = ask(story(6), model=model)
    assert "the weights were read once" in errors
    answer, hit, _, errors = ask(story(6), model=model)
    assert answer == plain and hit >= 256 and "read once" not in errors
    moved = tmp_path / "moved"
    model.rename(moved)
    assert ask(story(6), model=moved)[1] >= 256
    # Another content of the same size, and the time of its change put back.
    before = path.stat() if path.exists() else (moved / "model.safetensors").stat()
    with open(moved / "model.safetensors", "r+b") as file:
        file.seek(data + 4000)
        file.write(bytes(64))
    os.utime(moved / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
    plain, *_ = ask(story(6), model=moved, directory=None)
    answer, hit, _, errors = ask(story(6), model=moved)
    assert answer == plain and hit == 0
    assert "the weights were read once" in errors


def test_a_checkpoint_that_changes_meanwhile_keeps_nothing(start, variant, cache):
    """Keys and values that were computed with some of the old and some of the new bytes are kept for neither model."""
    model = variant()
    process = start("-m", model, "--raw", "-p", story(6), "-n", "200", "--ignore-eos", "-v", "--cache-dir", cache)
    assert process.stdout.read(1)
    weights = model / "model.safetensors"
    replaced = weights.with_suffix(".new")
    shutil.copy(weights, replaced)
    replaced.rename(weights)
    _, errors = process.communicate()
    assert process.returncode == 0 and b"has changed since it was opened" in errors
    assert not blocks(cache)


def test_a_config_is_part_of_the_key_and_sampling_defaults_are_not(ask, variant):
    assert ask(story(6), model=variant(name="one"))[2] >= 256
    assert ask(story(6), model=variant(name="two", generation={"temperature": 0.5}))[1] >= 256
    other = variant(name="three", config={"rope_theta": 10001.0})
    plain, *_ = ask(story(6), model=other, directory=None)
    answer, hit, saved, _ = ask(story(6), model=other)
    assert (answer, hit) == (plain, 0) and saved >= 256


def test_map_keeps_what_its_records_begin_with(run, stories, cache, tmp_path):
    """Once, and nothing of the records themselves, which may be many and long."""
    records = tmp_path / "records"
    records.write_text("".join("Tom saw %d dogs and %d cats and %d cows.\n" % (i, i * 7, i * 31) for i in range(12)))

    def answer(*flags):
        done = run("-m", stories, "--raw", "-p", story(6) + "{}", "--map", records, "-n", "8", "--temp", "0", "-v",
                   *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout, re.findall(r"cache: (\d+) .*", done.stderr.decode())

    plain, _ = answer()
    first, told = answer("--cache-dir", cache)
    assert first == plain and len(told) == 1
    again, told = answer("--cache-dir", cache)
    assert again == plain and told == ["256"]
    assert len(blocks(cache)) == 1


def test_choose_takes_its_prompt_from_the_cache(run, stories, cache):
    def choose(*flags):
        done = run("-m", stories, "--raw", "-p", story(6, "They saw a big"), "--choose", " dog, cat, ball", "--json",
                   "-v", *flags)
        assert done.returncode == 0, done.stderr
        scores = [choice["sum"] for choice in json.loads(done.stdout)["scores"]]
        return scores, re.findall(r"cache: (\d+) of", done.stderr.decode())

    plain, _ = choose()
    assert choose("--cache-dir", cache) == (plain, [])
    scores, hits = choose("--cache-dir", cache)
    assert scores == plain and int(hits[0]) >= 256


def test_list_and_clear(run, ask, cache, stories):
    done = run("cache", "--cache-dir", cache)
    assert done.returncode == 0 and done.stdout == b""
    _, _, saved, _ = ask(story(6))
    done = run("cache", "--cache-dir", cache)
    assert done.returncode == 0
    header, line = done.stdout.decode().splitlines()
    assert header.split() == ["TOKENS", "SIZE", "LAST", "USED", "MODEL"]
    assert line.split()[0] == str(saved) and line.endswith(str(stories)[-20:])
    (cache / "mine.txt").write_text("mine")
    done = run("cache", "--clear", "--cache-dir", cache)
    assert done.returncode == 0 and not blocks(cache) and (cache / "mine.txt").exists()
    assert run("cache", "--cache-dir", cache).stdout == b""


def test_what_was_used_last_is_listed_first(run, ask, cache, variant):
    """A line is for all files of one checkpoint."""
    models = [variant(name=name, config={"rope_theta": 10000.0 + i}) for i, name in enumerate(("one", "two", "three"))]
    saved, sizes, known, hours = [], [], set(), (-2, -4, -3)
    for i, model in enumerate(models):
        saved.append(0)
        for end in ("", "Tom ran. " * 20)[:1 + (i == 1)]:
            saved[-1] += ask(end + story(6), "-n", 1, model=model)[2]
        new = set(blocks(cache)) - known
        known |= new
        sizes.append(sum(path.stat().st_size for path in new))
        for k, path in enumerate(sorted(new)):
            used = 1_700_000_000 + 3600 * hours[i] - 60 * k
            os.utime(path, (used, used))
    done = run("cache", "--cache-dir", cache, env={**os.environ, "TZ": "UTC"})
    lines = [line.split() for line in done.stdout.decode().splitlines()[1:]]
    order = [0, 2, 1]
    assert [line[-1].rpartition("/")[2] for line in lines] == [("one", "two", "three")[i] for i in order]
    assert [int(line[0]) for line in lines] == [saved[i] for i in order]
    for i, line in zip(order, lines):
        assert line[1:3] == [f"{sizes[i] / 1024:.1f}", "KiB"]
        assert line[3:5] == ["2023-11-14", f"{22 + hours[i]}:13"]


def test_a_label_is_as_much_of_the_path_as_fits(ask, cache, stories, tmp_path):
    for length in (62, 63, 64):
        name = "./" + "m" * (length - 2)
        (tmp_path / name).symlink_to(stories)
        ask(story(6), "-n", 1, model=name, cwd=tmp_path)
        (block,) = blocks(cache)
        assert block.read_bytes()[48:112].rstrip(b"\0").decode() == name[-63:]
        shutil.rmtree(cache)


def test_a_label_is_not_cut_within_a_character(run, ask, cache, stories, tmp_path):
    """It is the end of the model's path in 63 bytes: of two bytes a character, 31 characters."""
    model = tmp_path / ("é" * 40)
    model.symlink_to(stories)
    ask(story(6), model=model)
    for block in blocks(cache):
        assert block.read_bytes()[48:112] == ("é" * 31).encode() + b"\0\0"
    assert run("cache", "--cache-dir", cache).stdout.decode().splitlines()[-1].endswith("  " + "é" * 31)


def test_clear_does_not_wait(run, ask, cache):
    ask(story(6))
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("cache", "--clear", "--cache-dir", cache)
    assert done.returncode == 1 and b"are left" in done.stderr
