"""SIGKILL at random moments: `auk --map --resume` in each form of results, and `auk pack`. Continued, or done again,
they give what they give without kills: nothing is lost, nothing is there twice, and no other file is left, but for
the one that base/file.h allows (AtomicFile): a kill in the instant in which an older file is replaced leaves the new
one under its temporary name.

AUK_KILLS=200 makes so many kills in all (default 12), AUK_KILLS_SEED=N draws other moments; a failure prints its seed.
"""
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from map_records import short_records, stable

N_KILLS = int(os.environ.get("AUK_KILLS", "12")) // 4  # of each form
SEED = int(os.environ.get("AUK_KILLS_SEED", "20261121"))
FORMS = {"lines": ([], b"\n"), "texts": (["-0"], b"\0"), "objects": (["--json"], b"\n")}


class Killer:
    """Runs commands and kills most of them."""

    def __init__(self, auk, folder):
        self.auk, self.folder, self.random = auk, folder, random.Random(SEED)
        self.n_kills = 0

    def run(self, *arguments, after_s=None, records=(), begun=None):
        """Feeds the process records by and by, and kills it after some time; whether it came to its end before. With
        begun(), it gets no end of the records, and the time begins when that is true."""
        process = subprocess.Popen([*self.auk, *map(str, arguments)], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, cwd=self.folder)
        feeder = threading.Thread(target=self.feed, args=(process, records, begun is not None))
        feeder.start()
        while begun and not begun() and process.poll() is None:
            time.sleep(0.001)
        try:
            process.wait(60 if after_s is None else after_s)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        feeder.join()
        said = process.stderr.read().decode()
        process.stderr.close()
        killed = process.returncode == -signal.SIGKILL
        assert killed or process.returncode in (0, 1), said  # 1: a record is an error
        self.n_kills += killed
        return not killed

    @staticmethod
    def feed(process, records, endless):
        stream = process.stdin
        try:
            for i, record in enumerate(records):
                stream.write(record)
                stream.flush()
                if i % 8 == 7:
                    time.sleep(0.005)
        except BrokenPipeError:
            pass
        if endless:
            process.wait()
        try:
            stream.close()
        except BrokenPipeError:
            pass


@pytest.fixture
def killer(auk, tmp_path):
    return Killer(auk, tmp_path)


def results(form, data):
    """The whole results in the file, without the times in those that are JSON."""
    end = FORMS[form][1]
    whole = data[:data.rfind(end) + 1].split(end)[:-1]
    if form != "objects":
        return whole
    return stable(b"\n".join(whole))


def take_left(folder):
    """Removes the files with temporary names; what was in each."""
    contents = []
    for path in folder.glob(".auk-*.tmp"):
        contents.append(path.read_bytes())
        path.unlink()
    return contents


@pytest.mark.parametrize("form", FORMS)
def test_a_map_that_is_killed_goes_on_to_the_same(killer, stories, tmp_path, form):
    flags, end = FORMS[form]
    lines = short_records(120, 7, 90)  # --retry-errors makes the two errors again in their places
    records = [line.encode() + end for line in lines]
    job = ["-m", stories, "--raw", "-t", 1, "-n", 4, "--temp", 1, "-s", 9, "--map", "-", *flags]
    start = time.monotonic()
    assert killer.run(*job, "--parallel", 1, "--resume", "undisturbed", records=records)
    whole_s = time.monotonic() - start
    want = results(form, (tmp_path / "undisturbed").read_bytes())
    assert len(want) == len(records)
    out, n_inside = tmp_path / "out", 0
    while killer.n_kills < N_KILLS:
        retry = ["--retry-errors"] if killer.random.random() < 0.4 else []
        go_on = [*job, "--parallel", killer.random.choice([1, 64]), "--resume", "out"]
        if not out.exists() and n_inside == 0:  # one is certain to come between the first result and the last
            ended = killer.run(*go_on, records=records[:killer.random.randrange(10, len(records))],
                               begun=lambda: out.exists() and results(form, out.read_bytes()),
                               after_s=killer.random.uniform(0, 0.05))
        else:
            ended = killer.run(*go_on, *retry, records=records, after_s=killer.random.uniform(0, whole_s))
        got = results(form, out.read_bytes()) if out.exists() else []
        assert got == want[:len(got)], f"AUK_KILLS_SEED={SEED}, kill {killer.n_kills}"
        for left in take_left(tmp_path):  # --retry-errors replaces the file when the errors are done again
            assert retry and not ended and left.endswith(end), f"AUK_KILLS_SEED={SEED}, kill {killer.n_kills}"
            assert results(form, left) == want[:len(results(form, left))], f"AUK_KILLS_SEED={SEED}"
        n_inside += not ended and 0 < len(got) < len(want)
        if ended:
            assert got == want, f"AUK_KILLS_SEED={SEED}, after kill {killer.n_kills}"
            out.unlink()
    assert killer.run(*job, "--parallel", 64, "--resume", "out", records=records)
    assert results(form, out.read_bytes()) == want, f"AUK_KILLS_SEED={SEED}"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.resume", "undisturbed", "undisturbed.resume"}
    assert n_inside > 0, "no kill came while records were answered"
    print(f"{form}: {killer.n_kills} kills, {n_inside} of them between the first result and the last one; seed {SEED}")


def test_a_pack_that_is_killed_leaves_the_old_file_or_the_new_one(killer, stories, tmp_path):
    folder, whole = tmp_path / "killed", tmp_path / "undisturbed" / "packed"
    folder.mkdir()
    whole.parent.mkdir()
    packed = folder / "packed"
    start = time.monotonic()
    assert killer.run("pack", stories, "-o", whole)
    whole_s = time.monotonic() - start
    n_new = n_left = 0
    while killer.n_kills < N_KILLS:
        old = killer.random.choice([None, b"what was there before"])
        packed.unlink(missing_ok=True)
        if old is not None:
            packed.write_bytes(old)
        ended = killer.run("pack", stories, "-o", packed, after_s=killer.random.uniform(0, whole_s))
        for left in take_left(folder):
            assert old is not None and not ended and packed.read_bytes() == old, f"AUK_KILLS_SEED={SEED}"
            assert left == whole.read_bytes(), f"AUK_KILLS_SEED={SEED}, kill {killer.n_kills}"
            n_left += 1
        now = packed.read_bytes() if packed.exists() else None
        assert now == whole.read_bytes() or (now == old and not ended), f"AUK_KILLS_SEED={SEED}, kill {killer.n_kills}"
        for path in folder.iterdir():  # what belongs beside the packed file comes first, each file whole
            assert path == packed or path.read_bytes() == (whole.parent / path.name).read_bytes()
            if killer.random.random() < 0.5 and path != packed:
                path.unlink()
        n_new += now != old and not ended
    assert killer.run("pack", stories, "-o", packed)
    assert ({path.name: path.read_bytes() for path in folder.iterdir()}
            == {path.name: path.read_bytes() for path in whole.parent.iterdir()})
    print(f"pack: {killer.n_kills} kills, {n_new} of them after the new file was there, {n_left} just before; "
          f"seed {SEED}")
