"""`auk --map --claim`: processes share blocks of records by a directory; those of one that dies are taken over, and no
result is there twice, whatever happens."""
import os
import random
import signal
import time

from map_records import DRAWN, stable
from test_shards import job  # noqa: F401 (a fixture)

LEASE = ["--lease", "1"]


def test_processes_share_the_records(run, start, job, tmp_path, sanitized):  # noqa: F811
    for flags in ([*DRAWN, "--parallel", "8"], [*DRAWN, "--json", "--n-best", "2"])[sanitized:]:
        claims = tmp_path / f"claims-{len(flags)}"
        whole = run(*job, *flags).stdout
        processes = [start(*job, *flags, "--claim", claims) for _ in range(3)]
        statuses = sorted(process.wait() for process in processes)
        assert statuses == [0, 0, 1]  # one of them has answered the record that is an error
        merged = run("merge", claims)
        assert merged.returncode == 1
        assert stable(merged.stdout) == stable(whole) if "--json" in flags else merged.stdout == whole
        assert not list((claims / "taken").iterdir()) and not list((claims / "alive").iterdir())
        assert not list(claims.glob("ready.*"))
        # All is done: another process has nothing to do, and loads no weights for it.
        again = run(*job, *flags, "--claim", claims, "-u")
        assert again.returncode == 0 and b"0 records answered" in again.stderr


def test_processes_that_are_killed_lose_nothing(run, start, job, tmp_path, sanitized):  # noqa: F811
    lines = "".join(f"{'so ' * (i % 7)}dog {i}\n" for i in range(301))  # blocks of two records, the last of one
    (tmp_path / "in").write_text(lines)
    flags = ["-n", "12", "--temp", "1", "--ignore-eos", *LEASE]
    whole = run(*job, *flags[:-2]).stdout
    claims, chance = tmp_path / "claims", random.Random(4)
    processes = [start(*job, *flags, "--claim", claims) for _ in range(3)]
    for _ in range(2 if sanitized else 4):
        time.sleep(chance.uniform(0.05, 0.3))
        processes[chance.randrange(3)].kill()
        processes[chance.randrange(3)] = start(*job, *flags, "--claim", claims)
    last = start(*job, *flags, "--claim", claims)
    assert last.wait() == 0, last.stderr.read()
    merged = run("merge", claims)
    assert merged.returncode == 0 and merged.stdout == whole


def test_a_process_that_was_stopped_finds_its_records_taken_over(run, start, job, tmp_path, sanitized):  # noqa: F811
    flags = ["-n", "100" if sanitized else "300", "--ignore-eos", "--temp", "1", *LEASE]
    claims = tmp_path / "claims"
    whole = run(*job, *flags[:-2]).stdout
    slow = start(*job, *flags, "--claim", claims)
    while not (claims / "taken").exists() or not list((claims / "taken").iterdir()):
        time.sleep(0.005)
    slow.send_signal(signal.SIGSTOP)
    taken = list((claims / "taken").iterdir())
    missing = run("merge", claims)
    assert missing.returncode == 1 and b"has taken them" in missing.stderr
    assert f"-{slow.pid}-".encode() in missing.stderr
    assert run(*job, *flags, "--claim", claims).returncode in (0, 1)
    done = {path.name: path.stat().st_mtime_ns for path in (claims / "done").iterdir()}
    assert len(done) == 40 and all(path.name in done for path in taken)
    slow.send_signal(signal.SIGCONT)
    slow.wait()
    assert b"was taken over by another process" in slow.stderr.read()
    assert {path.name: path.stat().st_mtime_ns for path in (claims / "done").iterdir()} == done
    assert run("merge", claims).stdout == whole


def test_an_interrupted_process_gives_its_records_back(run, start, job, tmp_path, sanitized):  # noqa: F811
    claims, flags = tmp_path / "claims", ["-n", "50" if sanitized else "150", "--ignore-eos"]
    process = start(*job, *flags, "--parallel", "2", "--claim", claims)  # 19 of 20 pairs of records are left then
    while not (claims / "done").exists() or not list((claims / "done").iterdir()):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert not list((claims / "taken").iterdir()) and not list((claims / "alive").iterdir())
    missing = run("merge", claims)
    assert missing.returncode == 1 and b"are missing: run the command again" in missing.stderr
    began = time.monotonic()
    run(*job, *flags, "--claim", claims)
    assert time.monotonic() - began < 50  # the lease is 60 s: it was not waited for
    assert run("merge", claims).stdout == run(*job, *flags).stdout


def test_other_settings_inputs_and_directories_are_refused(run, job, tmp_path):  # noqa: F811
    claims = tmp_path / "claims"
    run(*job, *DRAWN, "--claim", claims)
    (tmp_path / "file").write_text("a text before it")
    for flags, message in ((["-n", "5"], b"-n 4, now it is 5"), (["--json"], b"another form"),
                           (["-f", tmp_path / "file"], b"another prompt than this one (One day, {} went to)")):
        refused = run(*job, *DRAWN, *flags, "--claim", claims)
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    with open(tmp_path / "in", "a") as file:
        file.write("one more\n")
    refused = run(*job, *DRAWN, "--claim", claims)
    assert refused.returncode == 2 and b"input 40 records, now it is 41 records" in refused.stderr
    refused = run(*job, *DRAWN, "--claim", tmp_path)
    assert refused.returncode == 2 and b"has other files in it" in refused.stderr
    assert not (tmp_path / "job").exists()
    assert run(*job, *DRAWN, "--claim", tmp_path / "in").returncode == 1
    assert run(*job, *DRAWN, "--claim", "").returncode == 2
    (claims / "job" / "settings").write_text("auk --map lines 2:\nnonsense\n\n")
    assert b"not what --claim writes" in run(*job, *DRAWN, "--claim", claims).stderr
    assert b"not what --claim writes" in run("merge", claims).stderr


def test_an_input_that_changes_meanwhile_is_noticed(start, job, tmp_path):  # noqa: F811
    given, claims = tmp_path / "in", tmp_path / "claims"
    process = start(*job, "-n", "400", "--ignore-eos", "--parallel", "1", "--claim", claims)
    while not (claims / "done").exists() or not list((claims / "done").iterdir()):
        time.sleep(0.005)
    with open(given, "r+b") as file:
        file.write(given.read_bytes().replace(b"and", b"but"))
    assert process.wait() == 1
    assert b"has changed since this run began" in process.stderr.read()


def test_results_of_a_block_that_were_changed_are_refused(run, job, tmp_path):  # noqa: F811
    claims = tmp_path / "claims"
    run(*job, *DRAWN, "--json", "--claim", claims)
    block = claims / "done" / "00000003"
    whole = block.read_bytes()
    for changed in (whole.replace(b'"index": 3', b'"index": 4'), whole + whole):
        block.write_bytes(changed)
        assert run("merge", claims).returncode == 2
    block.unlink()
    run(*job, *DRAWN, "--json", "--claim", claims)
    assert run("merge", claims).returncode == 1


def test_a_block_ends_in_a_hash_by_which_any_change_is_noticed(run, job, tmp_path):  # noqa: F811
    for flags in ([], ["--n-best", 2], ["--json"], ["-0"]):
        if "-0" in flags:
            (tmp_path / "in").write_bytes((tmp_path / "in").read_bytes().replace(b"\n", b"\0"))
        claims = tmp_path / "".join(["claims", *map(str, flags)])
        run(*job, *DRAWN, *flags, "--claim", claims)
        merged = run("merge", claims).stdout
        block, other = claims / "done" / "00000003", claims / "done" / "00000005"
        whole = block.read_bytes()
        # As many results as before: a letter is another, an answer is empty, or they are another block's.
        changes = [whole[:-1], whole[:-16], whole[:-1] + b"g", b"", bytes([whole[0] ^ 1]) + whole[1:], b"x" + whole,
                   other.read_bytes()]
        if not flags:
            changes += [b"\n" + whole[-16:], whole[:-17] + b"\r" + whole[-17:]]
        for changed in changes:
            block.write_bytes(changed)
            refused = run("merge", claims)
            assert refused.returncode == 2 and not refused.stdout and b"done/00000003: " in refused.stderr, changed
            if not flags:
                assert b"this is not what --claim wrote there" in refused.stderr
                assert b"remove it, and run the command again" in refused.stderr
        block.unlink()
        assert b"records 4 to 4 are missing: run the command again" in run("merge", claims).stderr
        run(*job, *DRAWN, *flags, "--claim", claims)
        if not flags:
            assert run("merge", claims).stdout == merged


def test_a_directory_that_was_damaged_gives_no_results(run, job, tmp_path):  # noqa: F811
    claims = tmp_path / "claims"
    run(*job, *DRAWN, "--claim", claims)
    settings = claims / "job" / "settings"
    whole = settings.read_bytes()
    for was, becomes in ((b"of 1 records", b"of -5 records"), (b"of 1 records", b"of 2 records"),
                         (b"input 40", b"input 39"), (b"input 40", b"input 0"), (b"input 40", b"input -1")):
        settings.write_bytes(whole.replace(was, becomes))
        for command in (["merge", claims], [*job, *DRAWN, "--claim", claims]):
            refused = run(*command)
            assert (refused.returncode, refused.stdout) == (2, b"")
            assert b"not what --claim writes there, or it was changed since" in refused.stderr
    settings.write_bytes(whole)
    beyond = claims / "done" / "00000040"
    beyond.write_bytes((claims / "done" / "00000039").read_bytes())
    refused = run("merge", claims)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"done/00000040: the job has 40 blocks: these results are not its own" in refused.stderr
    beyond.unlink()
    (claims / "done" / ".nfs1").touch()  # no block's name
    assert run("merge", claims).returncode == 1  # one record is an error
    settings.unlink()
    os.mkfifo(settings)
    for command in (["merge", claims], [*job, *DRAWN, "--claim", claims]):
        assert b"is a fifo, expected a regular file" in run(*command).stderr


def test_merge_names_what_is_in_the_place_of_results(run, job, tmp_path):  # noqa: F811
    claims = tmp_path / "claims"
    run(*job, *DRAWN, "--claim", claims)
    last, whole = claims / "done" / "00000039", run("merge", claims).stdout
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("nothing"), lambda path: path.symlink_to(path.name)):
        last.unlink()
        make(last)
        for command in (["merge", claims], [*job, *DRAWN, "--claim", claims]):
            refused = run(*command)
            assert refused.returncode == 1 and refused.stdout == b""
            assert f"{last} is a ".encode() in refused.stderr
            assert b", expected the results of a block: remove it, and run the command again" in refused.stderr
        last.rmdir() if last.is_dir() else last.unlink()
        (claims / "taken" / "00000039").touch()  # nor does this stop the block
        assert run(*job, *DRAWN, "--claim", claims).returncode == 0
        assert run("merge", claims).stdout == whole
    (claims / "done").rename(claims / "elsewhere")
    (claims / "done").touch()
    assert b"/done is a regular file, expected a directory: remove it, and" in run("merge", claims).stderr


def record_hash(data, start=0xcbf29ce484222325):
    for byte in data:
        start = (start ^ byte) * 0x100000001b3 % 2**64
    return start


def test_a_block_that_changes_while_it_is_merged_is_noticed(run, start, job, tmp_path):  # noqa: F811
    claims = tmp_path / "claims"
    run(*job, *DRAWN, "--claim", claims)
    blocks = sorted((claims / "done").iterdir())
    for block in blocks:
        results = b"x" * 9999 + b"\n"
        block.write_bytes(results + f"{record_hash(results, record_hash(block.name.encode())):016x}".encode())
    assert run("merge", claims).stdout == (b"x" * 9999 + b"\n") * 40
    merge = start("merge", claims)
    assert merge.stdout.read(1) == b"x"  # all are counted, and the pipe takes 64 KiB
    with open(blocks[39], "r+b") as file:
        file.write(b"y")
    merge.stdout.read()
    assert merge.wait() == 2
    assert b"done/00000039: this is not what --claim wrote there" in merge.stderr.read()
