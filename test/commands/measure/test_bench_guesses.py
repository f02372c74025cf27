"""auk bench --accept: tokens a step are those that the acceptance makes likely, with and without a draft model."""
import json


def rows(run, *flags):
    done = run("bench", "-t", 1, "-r", 1, "-o", "json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tokens_a_step_follow_from_the_acceptance(run, stories):
    found = rows(run, "-m", stories, "--accept", 1, "--guess", "0,3,7", "-n", 64, "-d", "0,10")
    assert [(row["n_guesses"], row["n_depth"]) for row in found] == [(0, 0), (3, 0), (7, 0), (0, 10), (3, 10), (7, 10)]
    assert [row["tokens_per_step"] for row in found[:3]] == [1, 4, 8]
    half = rows(run, "-m", stories, "--accept", 0.5, "--guess", 3, "-n", 400)[0]
    assert 1.6 < half["tokens_per_step"] < 2.15  # 1 + 1/2 + 1/4 + 1/8
    never = rows(run, "-m", stories, "--accept", 0, "--guess", 3, "-n", 20)[0]
    assert never["tokens_per_step"] == 1 and never["draft_ms"] < never["verify_ms"]


def test_a_draft_model_has_its_own_time(run, stories):
    row = rows(run, "-m", stories, "--accept", 1, "--guess", 3, "--draft", stories, "-n", 40)[0]
    assert row["tokens_per_step"] == 4 and row["draft_ms"] > 0 and row["draft"].endswith("stories260K-awq")
    assert abs(row["step_ms"] - row["draft_ms"] - row["verify_ms"]) < 1e-6


def test_what_leaves_nothing_to_measure_is_refused(run, stories):
    for flags, message in ((["--guess", 3], "--guess needs --accept"), (["--accept", 2], "--accept is \"2\""),
                           (["--accept", 1, "-n", 100000], "take more than the"),
                           (["--accept", 1, "-p", 5], "--accept does not go with -p")):
        done = run("bench", "-m", stories, *flags)
        assert done.returncode == 2 and message in done.stderr.decode(), done.stderr
