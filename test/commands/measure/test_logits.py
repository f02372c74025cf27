"""Logits against Hugging Face transformers in fp32, and against themselves where nothing may change them.

References (scripts/make_miniatures.py, scripts/make_goldens.py) are whole for the miniatures, at some
positions for the two real models. The bounds are the project's own: mean KL 1e-6 with an fp32 KV cache and
1e-4 with fp16; the same top token in 99.9 % of the rows where the reference's two best differ by 0.05 or
more, which for less than 1000 rows means all of them. A wrongly read config or weight moves the mean KL by
1e-3 at least (make_miniatures.py checks it).
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.bulk(6)

LIMIT_S = 120  # the demo model's 512 tokens on one thread take some seconds
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import compare  # noqa: E402  (from scripts/)

MINIATURES = ROOT / "test" / "data" / "miniatures"
DEMO = ROOT / "models" / "smollm2-135m-awq"
DATA = ROOT / "test" / "data"
REFERENCES = {path.parent.name: (path.parent, path)
              for path in [*MINIATURES.glob("*/reference.npz"), *DATA.glob("stories*/reference.npz")]}
REFERENCES["smollm2-135m-awq"] = (DEMO, DATA / "smollm2-135m" / "reference.npz")
MODELS = sorted(REFERENCES)

# Models that a packed file can hold: AWQ everywhere, no bias, no rope scaling, no window. The rest is refused.
PACKABLE = ["internlm3-awq", "iquestcoder-awq", "llama-head-256", "llama-head-80", "mistral-awq-128", "mistral-nemo",
            "qwen3-awq", "smollm2-135m-awq", "stories260K-awq"]
# The refusal of models whose arithmetic the packed file cannot describe.
UNSAYABLE = {"llama-gelu": "gelu_pytorch_tanh (norm_gate_up of layer 0)",
             "smollm3-awq": "another rope than the model's", "phi3-awq": "q, k and v stored as one matrix",
             "gemma2-awq": "embedding times 5.65685", "gemma3-text-part": "the text part of a larger model",
             "granite-awq": "embedding times 2", "olmo2-awq": "a norm over all heads of q and of k",
             "ministral3-awq": "queries scaled by position", "exaone4-awq": "norms after attention",
             "ernie-awq": "neighbouring numbers turned together", "granite-swa-awq": "embedding times 2",
             "muse-glimmer-text-part": "the text part of a larger model", "granite4-awq": "embedding times 2",
             "glm-awq": "neighbouring numbers turned together", "hunyuan-awq": "q and k norms after their rope",
             "olmo3-yarn": "a norm over all heads of q and of k", "qwen3-moe-awq": "experts"}

SHORT = ["--max-tokens", "130"]  # two chunks of 64 and a rest


class Checkpoint:
    """A model directory, its reference, and what `auk eval` says of it."""

    def __init__(self, name, auk, folder):
        self.directory, path = REFERENCES[name]
        self.auk, self.folder = auk, folder
        if not self.directory.is_dir():
            pytest.skip(f"needs {self.directory.relative_to(ROOT)}: make demo")
        self.ids, self.rows, self.expected, arrays = compare.load_reference(path)
        if "sha256" in arrays:
            digest = hashlib.sha256((self.directory / "model.safetensors").read_bytes()).digest()
            assert digest == arrays["sha256"].tobytes(), (
                f"{self.directory.relative_to(ROOT)} is not the conversion that the reference is for: make demo, or "
                "where the converter has changed, scripts/make_goldens.py demo")
        (folder / "ids").write_text(" ".join(map(str, self.ids)))

    def logits(self, *flags, model=None, threads=1):
        """One thread unless it is threads that are tested: small steps are slow where others use the cores."""
        out = self.folder / "logits.npy"
        subprocess.run([*self.auk, "eval", "-m", model or self.directory, "--ids-file", self.folder / "ids",
                        "--logits-out", out, "--device", "cpu", "-t", str(threads), *flags], check=True,
                       stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        return np.load(out)


@pytest.fixture
def checkpoint(request, auk, tmp_path):
    return Checkpoint(request.param, auk, tmp_path)


def over(models):
    return pytest.mark.parametrize("checkpoint", models, indirect=True)


def test_every_miniature_runs_on_both(run):
    for path in MINIATURES.iterdir():
        assert json.loads(run("inspect", path, "--json").stdout)["runs_on"] == ["cpu", "cuda"], path.name


def test_every_miniature_has_a_reference():
    """So that none is left out silently."""
    directories = {path.name for path in MINIATURES.iterdir()}
    assert directories == {name for name, (directory, _) in REFERENCES.items() if directory.parent == MINIATURES}
    assert len(directories) >= 20


@over(MODELS)
@pytest.mark.parametrize("kv, bound", [("f32", 1e-6), ("f16", 1e-4)])
def test_equals_transformers(checkpoint, kv, bound):
    logits = checkpoint.logits("--kv", kv)[checkpoint.rows]
    mean, largest, agreeing, decided = compare.report(checkpoint.expected, logits)
    print(f"mean KL {mean:.1e}, largest {largest:.1e}, top token {agreeing} of {decided}")
    assert mean <= bound
    assert decided >= len(checkpoint.rows) / 2, "a reference that decides nothing tests nothing"
    assert agreeing >= 0.999 * decided


@over(MODELS)
def test_a_cache_of_8_bits_is_near(checkpoint):
    """Random weights magnify what rounding changes, most where attention is sharp (Gemma 3 and 4: 1.3e-2 at most) and
    where a router takes another of two experts that are nearly as likely (7.9e-2 at most, and other tokens win);
    scripts/FIGURES.md has a real model's figure. A scale of another key moves the mean KL by far more."""
    logits = checkpoint.logits("--kv", "q8")[checkpoint.rows]
    mean, largest, agreeing, decided = compare.report(checkpoint.expected, logits)
    print(f"mean KL {mean:.1e}, largest {largest:.1e}, top token {agreeing} of {decided}")
    name = checkpoint.directory.name
    config = (checkpoint.directory / "config.json").read_text()
    routed = re.search(r'"(num_experts_per_tok|moe_k|moe_topk|top_k_experts)": *[1-9[]', config)
    assert mean <= (0.15 if routed else 3e-2 if name.startswith("gemma") else 5e-3)
    assert agreeing >= (0.8 if routed else 0.93) * decided  # a token is 1.7% of them


@over(MODELS)
def test_chunks_agree_with_8_bits(checkpoint):
    whole = checkpoint.logits("--kv", "q8", *SHORT, "--chunk", "130")
    assert np.array_equal(checkpoint.logits("--kv", "q8", *SHORT, "--chunk", "7"), whole)


@over(MODELS)
def test_chunks_agree(checkpoint, sanitized):
    """A row has the same bits whatever rows are beside it (src/cpu/backend.c)."""
    whole = checkpoint.logits("--kv", "f32", *SHORT, "--chunk", "130")
    for chunk in (7,) if sanitized else (1, 7, 64):  # test_threads_change_no_bit has chunks of 1 and 64, too
        assert np.array_equal(checkpoint.logits("--kv", "f32", *SHORT, "--chunk", str(chunk)), whole), f"chunk {chunk}"


@over(MODELS)
@pytest.mark.parametrize("kv", ["f32", "f16"])
@pytest.mark.parametrize("step", [SHORT, ["--chunk", "1", "--max-tokens", "5"]], ids=["prefill", "decode"])
def test_threads_change_no_bit(checkpoint, sanitized, kv, step):
    if sanitized and kv == "f32":
        pytest.skip("which rows a thread computes does not depend on the cache")
    one = checkpoint.logits("--kv", kv, *step)
    for threads in (3,) if sanitized else (2, 3):
        assert np.array_equal(checkpoint.logits("--kv", kv, *step, threads=threads), one), f"-t {threads}"


@over(PACKABLE)
def test_packed_file_changes_no_bit(checkpoint, run, tmp_path):
    """The header says neither rope_theta nor epsilon: once from the config.json beside the file, once from
    flags."""
    packed = tmp_path / "beside" / "model.ak48"
    packed.parent.mkdir()
    assert run("pack", checkpoint.directory, "-o", packed).returncode == 0
    expected = checkpoint.logits(*SHORT)
    config = (checkpoint.directory / "config.json").read_text()
    theta, eps = (config.split(f'"{key}": ')[1].split(",")[0].strip() for key in ("rope_theta", "rms_norm_eps"))
    assert np.array_equal(checkpoint.logits("--rope-theta", theta, "--norm-eps", eps, *SHORT, model=packed), expected)
    (packed.parent / "config.json").write_text(config)
    assert np.array_equal(checkpoint.logits(*SHORT, model=packed), expected)


@over([name for name in MODELS if name not in PACKABLE])
def test_what_a_packed_file_cannot_hold_is_refused(checkpoint, run, tmp_path):
    packed = tmp_path / "model.ak48"
    result = run("pack", checkpoint.directory, "-o", packed)
    assert result.returncode == 3
    assert result.stderr.count(b"\n") == 1 and str(checkpoint.directory).encode() in result.stderr
    assert UNSAYABLE.get(checkpoint.directory.name, "") in result.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["ids"]  # the test's own
