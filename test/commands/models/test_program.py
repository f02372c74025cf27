"""`auk inspect --program`: the operations of a step. test/data/transcripts/programs.txt has those of every miniature;
every tensor that a model uses is one operation's."""
import json
import pathlib
import re
import struct

import pytest
from transcripts import compare_text, transcript_fixture

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
MINIATURES = sorted(path.parent for path in (DATA / "miniatures").glob("*/config.json"))
OPERATION = re.compile(r"  (\w+) +([\w, ]+ -> [\w, ]+?)(?:  .*)?$")


FORMS = "forms, as far as arithmetic goes"


def whole(run, model):
    done = run("inspect", "--program", model)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def printed(run, model):
    """The operations alone."""
    lines = whole(run, model)
    return lines[:lines.index(FORMS)]


def summary(lines):
    """The layers and the names of their operations."""
    names = [line.split()[0] if line.startswith("  ") else f"| {line}:" for line in lines if line[:4] != "    "]
    return " ".join(names)


programs = transcript_fixture(DATA / "transcripts" / "programs.txt")


@pytest.mark.bulk(4)
@pytest.mark.parametrize("model", MINIATURES, ids=lambda path: path.name)
def test_a_miniatures_program_is_that_of_the_transcript(run, programs, model):
    compare_text(summary(printed(run, model)), programs, model.name)


def tensors(path):
    with open(path / "model.safetensors", "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


@pytest.mark.parametrize("name", ["qwen3-awq", "gemma3n-bf16", "falcon-h1-bf16", "qwen4-exp-bf16", "olmo-hybrid-bf16",
                                  "nemotron-h-moe-bf16", "gemma4-e", "deepseek-v3-bf16", "lfm2-bf16"])
def test_every_tensor_of_a_layer_is_read_by_an_operation(run, name):
    lines = printed(run, DATA / "miniatures" / name)
    named = {line.split()[0] for line in lines if line.startswith("    ")}
    stored = {re.sub(r".*layers\.\d+\.", "", tensor) for tensor in tensors(DATA / "miniatures" / name)
              if re.search(r"layers\.\d+\.", tensor)}
    for tensor in stored:
        tensor = re.sub(r"experts\.\d+\.", "experts.0.", tensor)
        whole = re.sub(r"\.(weight|qweight|qzeros|scales|bias)$", "", tensor)
        assert {tensor, whole} & named or "experts" in tensor or "ngram_embedding" in tensor, tensor


@pytest.mark.parametrize("name", ["qwen3-awq", "qwen4-exp-bf16", "falcon-h1-bf16", "gemma3n-bf16", "cohere2-bf16"])
def test_what_an_operation_reads_was_written_before(run, name):
    """An earlier step has written recurrent states and the cache. All that an operation writes is read, but logits."""
    written, made, read = {"ids", "state", "cache"}, set(), set()
    for line in printed(run, DATA / "miniatures" / name):
        match = OPERATION.match(line)
        if match:
            reads, writes = (set(part.strip().split(", ")) for part in match[2].split("->"))
            assert reads <= written, line
            written |= writes
            made |= writes
            read |= reads
    assert made - read == {"logits"}


def test_drafters_and_other_forms_of_the_report_are_refused(run):
    done = run("inspect", "--program", "--json", MINIATURES[0])
    said = b"auk: --program does not go with --json (a program is printed as lines)\n"
    assert (done.returncode, done.stderr) == (2, said)
    done = run("inspect", "--program", sorted((DATA / "drafters").glob("*eagle3*"))[0])
    assert done.returncode == 2 and b"is a drafter: --program is for models" in done.stderr


# The first operation that a form does not take, and how it differs; "": it takes all.
@pytest.mark.parametrize("name, form, words", [
    ("qwen3-awq", "several GPUs", ""),
    ("qwen3-awq", "one kernel a step", ""),
    ("qwen3-awq", "five kernels a layer", ""),
    ("qwen3-awq", "heads made by their matmul", ""),
    ("gemma2-awq", "one kernel a step", "scores capped at 5 (attention of layer 0)"),
    ("cohere2-bf16", "several GPUs", "norms that subtract the mean (embed)"),
    ("deepseek-v3-bf16", "several GPUs", "latent attention (norm_qkv_rope_append of layer 0)"),
    ("deepseek-v3-bf16", "five kernels a layer", "latent attention (norm_qkv_rope_append of layer 0)"),
    ("lfm2-bf16", "one kernel a step", "norm_short_conv of layer 0"),
    ("lfm2-bf16", "several GPUs", ""),
    ("nemotron-h-moe-bf16", "several GPUs", "Mamba-2 layers (norm_delta_rule of layer 0)"),
    ("gpt-oss-bf16", "one kernel a step", "a sink for each head of attention (attention of layer 0)"),
    ("gpt-oss-mxfp4", "one kernel a step, like gpt-oss", ""),
])
def test_a_form_says_what_it_does_not_take(run, name, form, words):
    lines = whole(run, DATA / "miniatures" / name)
    says = dict(line.strip().split("  ", 1) for line in lines[lines.index(FORMS) + 1:])
    assert says[form].strip() == (f"no: {words}" if words else "yes")
