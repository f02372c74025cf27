"""`auk --map --shard`, and `auk merge`: many processes answer each record once, and what they wrote is put together as
one run over all records would have written it."""
import os
import random
import resource
import signal
import time

import pytest

from map_records import DRAWN, short_job, stable


@pytest.fixture
def job(tmp_path, stories):
    """The flags of a job of 40 short records; one of them is an error."""
    return short_job(tmp_path, stories, 40)


def parts(folder, name="out"):
    return sorted(folder.glob(f"{name}.*"))


@pytest.mark.parametrize("flags, n", [(DRAWN, 3), ([*DRAWN, "-0"], 7), ([*DRAWN, "--json", "--n-best", "2"], 4),
                                      (["--choose", "a,the"], 2), ([*DRAWN, "--parallel", "4"], 1),
                                      ([*DRAWN, "--parallel", "1"], 45)],
                         ids=["lines", "texts", "objects", "choices", "one", "more-than-records"])
def test_shards_are_merged_to_what_one_run_writes(run, job, tmp_path, sanitized, flags, n):
    if sanitized and n not in (1, 3, 4):
        pytest.skip("starts the program too often for one with sanitizers")
    one = tmp_path / "one"
    assert run(*job, *flags, "--resume", one).returncode == 1  # there is an error
    statuses = [run(*job, *flags, "--resume", tmp_path / "out", "--shard", f"{i + 1}/{n}").returncode
                for i in random.Random(n).sample(range(n), n)]
    assert sorted(statuses) == [0] * (n - 1) + [1]
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 100))  # noqa: E731 (all shards are open at once)
    merged = run("merge", *parts(tmp_path), preexec_fn=few)
    assert merged.returncode == 1 and b"are errors" in merged.stderr
    if "--json" in flags:
        assert stable(merged.stdout) == stable(one.read_bytes())
    else:
        assert merged.stdout == one.read_bytes()
    assert run("merge", *parts(tmp_path), "-o", tmp_path / "all").returncode == 1
    assert (tmp_path / "all").read_bytes() == merged.stdout


def test_shards_with_and_without_invariant_are_not_merged(run, job, tmp_path):
    out = tmp_path / "out"
    run(*job, "-n", 1, "--resume", out, "--shard", "1/2")
    run(*job, "-n", 1, "--resume", out, "--shard", "2/2", "--invariant")
    refused = run("merge", *parts(tmp_path))
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.decode() == (f"auk: {out}.2-of-2: its results were made with --invariant, those of "
                                       f"{out}.1-of-2 without it\n")


def test_shards_of_other_contexts_are_merged(run, job, tmp_path):
    """A context that is chosen by the free memory differs from machine to machine."""
    for i in (1, 2):
        run(*job, "-n", 1, "-c", 200 + i, "--resume", tmp_path / "out", "--shard", f"{i}/2")
    assert run("merge", *parts(tmp_path)).stdout.count(b"\n") == 40


def test_a_shard_that_was_cut_or_lost_is_named_and_made_by_the_same_line(run, job, tmp_path):
    out = tmp_path / "out"
    one = run(*job, *DRAWN).stdout
    for i in (1, 2, 3):
        run(*job, *DRAWN, "--resume", out, "--shard", f"{i}/3")
    second = tmp_path / "out.2-of-3"
    second.write_bytes(second.read_bytes()[:50])
    (tmp_path / "out.3-of-3").unlink()
    refused = run("merge", *parts(tmp_path), "-o", tmp_path / "all")
    assert refused.returncode == 1 and not (tmp_path / "all").exists() and refused.stdout == b""
    assert b"results: run the command again with --shard 2/3" in refused.stderr
    assert b"shard 3 of 3 is missing: run the command with --shard 3/3" in refused.stderr
    for i in (2, 3):
        run(*job, *DRAWN, "--resume", out, "--shard", f"{i}/3")
    assert run("merge", *parts(tmp_path)).stdout == one
    # A last result without its end is torn, however whole it looks.
    second.write_bytes(second.read_bytes()[:-1])
    assert b"12 of 13 results" in run("merge", *parts(tmp_path)).stderr


def test_errors_are_answered_again_in_their_shard(run, job, tmp_path):
    out = tmp_path / "out"
    small = [*DRAWN, "-c", "24"]
    for i in (1, 2):
        run(*job, *small, "--resume", out, "--shard", f"{i}/2")
    assert b"records are errors" in run("merge", *parts(tmp_path)).stderr
    assert run(*job, *DRAWN, "-c", "512", "--resume", out, "--shard", "1/2", "--retry-errors").returncode == 0
    merged = run("merge", *parts(tmp_path))  # one shard with another -c than the other
    assert merged.returncode == 1 and merged.stdout.count(b"\n") == 40


def test_a_head_that_was_changed_is_refused(run, job, tmp_path):
    for i in (1, 2):
        run(*job, *DRAWN, "--resume", tmp_path / "out", "--shard", f"{i}/2")
    heads = [tmp_path / f"out.{i}-of-2.resume" for i in (1, 2)]
    wholes = [head.read_bytes() for head in heads]
    for was, becomes in ((b"input 40 records", b"input 39 records"), (b"shard 1 of 2", b"shard 2 of 2"),
                         (b" -n 4\n", b" -n 5\n")):
        for head, whole in zip(heads, wholes):
            head.write_bytes(whole.replace(was, becomes))
        refused = run("merge", *parts(tmp_path))
        assert (refused.returncode, refused.stdout) == (2, b""), becomes
        assert b"this is not what --shard wrote there: the file was changed since" in refused.stderr
    # More results than the shard has records, in a head that is whole: it is another input's.
    for head, whole in zip(heads, wholes):
        head.write_bytes(whole)
    (tmp_path / "in").write_text("".join((tmp_path / "in").read_text().splitlines(True)[:10]))
    for i in (1, 2):
        run(*job, *DRAWN, "--resume", tmp_path / "small", "--shard", f"{i}/2")
    for i, whole in zip((1, 2), wholes):
        head = tmp_path / f"small.{i}-of-2.resume"
        head.write_bytes(head.read_bytes().split(b"\n\n")[0] + b"\n\n" + whole.split(b"\n\n", 1)[1])
        (tmp_path / f"small.{i}-of-2").write_bytes((tmp_path / f"out.{i}-of-2").read_bytes())
    refused = run("merge", *parts(tmp_path, "small"))
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"small.1-of-2 has 20 results, expected 5" in refused.stderr


def test_parts_of_different_runs_are_refused(run, job, tmp_path):
    out = tmp_path / "out"
    job += DRAWN
    run(*job, "--resume", out, "--shard", "1/2")

    def merge(*flags, shard="2/2"):
        name = tmp_path / f"out.{shard.replace('/', '-of-')}"
        assert run(*job, *flags, "--resume", out, "--shard", shard).returncode in (0, 1)
        refused = run("merge", tmp_path / "out.1-of-2", name)
        assert refused.returncode == 2 and refused.stdout == b""
        name.unlink()
        (tmp_path / (name.name + ".resume")).unlink()
        return refused.stderr.decode()

    assert "-n 5, those of" in merge("-n", "5")
    assert "results of different forms" in merge("--json")
    run(*job, "--json", "--resume", tmp_path / "objects", "--shard", "2/2")
    for pair in (("out.1-of-2", "objects.2-of-2"), ("objects.2-of-2", "out.1-of-2")):
        refused = run("merge", *(tmp_path / name for name in pair))
        assert refused.returncode == 2 and b"results of different forms" in refused.stderr
    (tmp_path / "file").write_text("a text before it")
    assert "another prompt than" in merge("-f", tmp_path / "file")
    assert "is shard 2 of 3" in merge(shard="2/3")
    given = tmp_path / "in"
    before = given.read_bytes()
    given.write_bytes(before + b"one more\n")
    assert "input 41 records, those of" in merge()
    given.write_bytes(before.replace(b"Sam", b"Pam"))
    assert "another input than" in merge()
    refused = run(*job, "--resume", out, "--shard", "1/2")  # a shard itself, too, is of one input
    assert refused.returncode == 2 and b"another input than this one (40 records)" in refused.stderr
    given.write_bytes(before)
    # Values that name no part.
    run(*job, "--resume", tmp_path / "whole")
    for path, message in ((tmp_path / "whole", b"not the results of a shard"), (given, b"this is not what --shard"),
                          (tmp_path / "none", b"there is no such file"), (tmp_path, b"no directory of --claim")):
        refused = run("merge", path)
        assert refused.returncode in (1, 2) and message in refused.stderr, refused.stderr
    copy = tmp_path / "copy"
    copy.write_bytes((tmp_path / "out.1-of-2").read_bytes())
    (tmp_path / "copy.resume").write_bytes((tmp_path / "out.1-of-2.resume").read_bytes())
    assert b"are both shard 1 of 2" in run("merge", tmp_path / "out.1-of-2", copy).stderr
    copy.write_bytes(copy.read_bytes().replace(b" ", b"_", 1))
    assert b"the file was changed since" in run("merge", copy).stderr
    assert b"which would be lost" in run("merge", tmp_path / "out.1-of-2", "-o", tmp_path / "out.1-of-2").stderr
    assert run("merge").returncode == 2


def test_a_shard_that_is_being_written_is_not_merged(run, start, job, tmp_path):
    alone = ["-n", "200", "--ignore-eos", "--parallel", "1"]
    process = start(*job, *alone, "--resume", tmp_path / "out", "--shard", "1/1")
    part = tmp_path / "out.1-of-1"
    while not part.exists() or not part.read_bytes():
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)  # it has most records still to answer, and must not end before the look at it
    refused = run("merge", part)
    assert refused.returncode == 1 and b"another process is writing it" in refused.stderr
    process.kill()


STARTERS = {
    "slurm": ({"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}, "2-of-3"),
    "slurm-script": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, b"not one of its 3 tasks: srun starts them"),
    "slurm-script-of-one": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, "1-of-1"),
    "open-mpi": ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
                 "3-of-4"),
    "torchrun": ({"RANK": "1", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none", "OMPI_COMM_WORLD_RANK": "0",
                  "OMPI_COMM_WORLD_SIZE": "1"}, "2-of-3"),
    "no-torchrun": ({"RANK": "1", "WORLD_SIZE": "3"}, b"TORCHELASTIC_RUN_ID are not set"),
    "pmi": ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "1-of-2"),
    "none": ({}, b"neither srun, mpirun nor torchrun has started this"),
    "no-size": ({"SLURM_PROCID": "1"}, b"neither srun, mpirun nor torchrun has started this"),
    "rank": ({"PMI_RANK": "2", "PMI_SIZE": "2"}, b"PMI_RANK=2, PMI_SIZE=2: expected"),
    "word": ({"PMI_RANK": "x", "PMI_SIZE": "2"}, b"PMI_RANK=x, PMI_SIZE=2: expected two numbers"),
}


@pytest.mark.parametrize("variables, part", STARTERS.values(), ids=STARTERS)
def test_which_shard_it_is_may_be_said_by_what_started_it(run, job, tmp_path, variables, part):
    starters = ("SLURM", "OMPI", "PMI", "TORCHELASTIC")
    others = {key: value for key, value in os.environ.items() if not key.startswith(starters)}
    process = run(*job, *DRAWN, "--resume", tmp_path / "out", "--shard", "auto", env={**others, **variables})
    if isinstance(part, str):
        assert [path.name for path in parts(tmp_path)] == [f"out.{part}", f"out.{part}.resume"]
    else:
        assert process.returncode == 2 and part in process.stderr and not parts(tmp_path)


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1/0", "1", "/", "1/", "/2", "1/2/3", "-1/2", "1/2x", "", "1/65537",
                                   "a/b", "99999999999999999999/2"])
def test_shards_that_are_none_are_refused(run, job, tmp_path, shard):
    refused = run(*job, *DRAWN, "--resume", tmp_path / "out", "--shard", shard)
    assert refused.returncode == 2 and b"expected" in refused.stderr and not parts(tmp_path)


def test_shards_need_a_file_that_can_be_read_again(run, job, tmp_path):
    job[job.index("--map") + 1] = "-"
    refused = run(*job, *DRAWN, "--resume", tmp_path / "out", "--shard", "1/2", input=b"a\nb\n")
    assert refused.returncode == 2 and b"--shard needs a file for --map" in refused.stderr
    refused = run(*job, *DRAWN, "--claim", tmp_path / "claims", input=b"a\nb\n")
    assert refused.returncode == 2 and b"--claim needs a file for --map" in refused.stderr
    assert not (tmp_path / "claims").exists()


def test_no_more_than_twenty_missing_shards_are_named(run, job, tmp_path):
    for n in (21, 22):
        run(*job, "-n", 1, "--resume", tmp_path / f"o{n}", "--shard", f"1/{n}")
        said = run("merge", *parts(tmp_path, f"o{n}")).stderr.decode()
        assert said.count(" is missing: ") == 20 and said.count("auk: and 1 more\n") == n - 21, said
        assert said.count(" more\n") == n - 21
