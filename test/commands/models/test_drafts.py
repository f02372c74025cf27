"""`auk models` and `auk inspect` on drafters: what they are, and which models they fit."""
import json

import pytest


@pytest.fixture
def drafters(root):
    return root / "test" / "data" / "drafters"


def test_models_says_which_drafter_fits_which(run, drafters, tmp_path):
    done = run("models", drafters, "--json", env={"HF_HUB_CACHE": str(tmp_path)}, cwd=tmp_path)
    found = {each["name"].rsplit("/", 1)[-1]: each for each in json.loads(done.stdout)}
    target = str(drafters / "target")
    for name in ("eagle3", "eagle3-speculators", "eagle3-norm-before-fc", "dflash", "dflash-speculators"):
        assert found[name]["drafter"] and not found[name]["runs"]
        assert found[name]["drafts_for"] == [target], name
        assert found[name]["reason"].startswith("a drafter (--draft) for models of hidden_size 32 with 104 tokens")
    assert found["gemma4-assistant"]["reason"].startswith("a drafter (--draft) for models of")
    assert found["gemma4-assistant"]["drafts_for"] == []  # sizes alike, but no layers whose keys it could use
    assert found["target"]["runs"] and not found["target"]["drafter"] and found["target"]["drafts_for"] == []
    lines = run("models", drafters, env={"HF_HUB_CACHE": str(tmp_path)}, cwd=tmp_path).stdout.decode()
    assert f"\n    fits {target}\n" in lines


def test_inspect_says_what_a_drafter_is(run, drafters):
    lines = run("inspect", drafters / "dflash").stdout.decode()
    assert lines == ("drafter        DFlash\n"
                     "for            models of hidden_size 32 with 104 tokens and 8 layers\n"
                     "reads          the target's hidden states after 2, 4, 6, 7 layers\n"
                     "layers         2, hidden_size 32, 4 heads of 16\n"
                     "guesses        104 of 104 tokens, up to 4 at once\n"
                     "runs on        CPUs and GPUs\n")
    assert json.loads(run("inspect", drafters / "eagle3", "--json").stdout) == {
        "drafter": "EAGLE-3", "target": "", "target_hidden_size": 32, "target_vocab_size": 104, "target_layers": 0,
        "states": [], "num_hidden_layers": 1, "hidden_size": 32, "vocab_size": 40, "block_size": 0,
        "gpu": True}
    assert b"after 2, L / 2 and L - 3 of its L layers" in run("inspect", drafters / "eagle3").stdout
    lines = run("inspect", drafters / "gemma4-assistant").stdout
    assert b"its keys and values" in lines and lines.endswith(b"\nruns on        CPUs and GPUs\n")


def test_inspect_refuses_tensors_of_a_drafter(run, drafters):
    done = run("inspect", drafters / "eagle3", "--tensors")
    assert done.returncode == 2 and b"is a drafter: --tensors is for models" in done.stderr
