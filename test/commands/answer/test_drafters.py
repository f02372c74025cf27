"""Drafters that are trained for a model: --draft finds and takes them, changes no text, and refuses in one line those
that do not fit. Their arithmetic is tested in test/engine/drafters/test_published.c."""
import shutil

import numpy as np
import pytest

MODEL, USAGE = 3, 2
KINDS = {"eagle3": "target", "eagle3-speculators": "target", "eagle3-norm-before-fc": "target", "dflash": "target",
         "dflash-speculators": "target", "gemma4-assistant": "../miniatures/gemma4-bf16"}


@pytest.fixture
def drafters(root):
    return root / "test" / "data" / "drafters"


@pytest.fixture
def changed(drafters, changed_checkpoint):
    return lambda drafter, *change, **members: changed_checkpoint(drafters / drafter, *change, **members)


def ask(run, model, *flags):
    return run("-m", model, "--raw", "-p", "Once upon", "--device", "cpu", "-n", "40", "--ignore-eos", "-t", "1",
               *flags)


@pytest.mark.parametrize("temperature", ["0", "1"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_changes_no_text(run, drafters, kind, temperature):
    flags = ["--temp", temperature, "-s", "7"]
    model = drafters / KINDS[kind]
    done = ask(run, model, "--draft", drafters / kind, *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ask(run, model, "--guess", "0", *flags).stdout


def test_the_layer_for_several_tokens(run, drafters):
    model = drafters / "qwen3_5-mtp"
    done = ask(run, model, "--draft", "mtp", "--temp", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ask(run, model, "--guess", "0", "--temp", "0").stdout
    refused(ask(run, drafters / "target", "--draft", "mtp"), "has no layer that predicts several tokens (mtp.layers.0)")


def test_a_drafter_is_found_by_its_name(run, drafters, tmp_path):
    """In Hugging Face's cache, as a model is."""
    snapshot = tmp_path / "models--AngelSlim--Tiny_eagle3" / "snapshots" / ("0" * 40)
    shutil.copytree(drafters / "eagle3", snapshot)
    (tmp_path / "models--AngelSlim--Tiny_eagle3" / "refs").mkdir()
    (tmp_path / "models--AngelSlim--Tiny_eagle3" / "refs" / "main").write_text("0" * 40)
    done = run("-m", drafters / "target", "--raw", "-p", "Once", "-n", "3", "--draft", "AngelSlim/Tiny_eagle3",
               env={"HF_HUB_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def refused(done, *parts, status=MODEL):
    assert done.returncode == status and done.stdout == b"" and done.stderr.count(b"\n") == 1, done.stderr
    for part in parts:
        assert part.encode() in done.stderr, (part, done.stderr)


def test_a_drafter_of_another_model(run, drafters, root):
    miniatures = root / "test" / "data" / "miniatures"
    refused(ask(run, miniatures / "llama-head-80", "--draft", drafters / "eagle3"),
            "config.json: it drafts for another model: one with a hidden_size of 32, while this one has 64")
    refused(ask(run, miniatures / "cohere2-bf16", "--draft", drafters / "eagle3"),
            "it takes states of Cohere2ForCausalLM, whose norms subtract the mean, which is not supported")
    refused(ask(run, miniatures / "qwen3_5-tied", "--draft", drafters / "dflash"),
            "it drafts for another model: one with layers: 8, while this one has 4")
    refused(ask(run, miniatures / "qwen3_5-tied", "--draft", drafters / "eagle3-speculators"),
            "it takes the state after 4 layers, while this one has 4 layers in all")
    refused(ask(run, drafters / "target", "--draft", drafters / "gemma4-assistant"),
            "its layer 0 attends with heads of 16 numbers and a window of 16 to keys of the target, which has no such "
            "layer")
    refused(ask(run, miniatures / "gemma3n-bf16", "--draft", drafters / "eagle3"),
            "drafters that read a model's states are not supported with AltUp, which Gemma3nForCausalLM has")


def test_another_vocabulary(run, drafters, changed):
    refused(ask(run, drafters / "target", "--draft", changed("eagle3", vocab_size=105)),
            "it drafts for another model: one with a vocab_size of 105, while this one has 104")


CHANGES = [
    ("eagle3", {}, lambda t: t.pop("fc.weight"), "tensor fc.weight is missing"),
    ("eagle3", {}, lambda t: t.pop("midlayer.hidden_norm.weight"), "tensor midlayer.hidden_norm.weight is missing"),
    ("eagle3", {}, lambda t: t.pop("midlayer.self_attn.o_proj.weight"),
     "tensor midlayer.self_attn.o_proj.weight is missing"),
    ("eagle3", {}, lambda t: t.pop("d2t"), "tensor d2t is missing: it says which tokens the drafter knows"),
    ("eagle3", {}, lambda t: t.pop("lm_head.weight"), "tensor lm_head.weight is missing"),
    ("eagle3", {}, lambda t: t["d2t"].__setitem__(39, 65),
     "tensor d2t: element 39 is 65, expected a token of the target"),
    ("eagle3", {}, lambda t: t["d2t"].__setitem__(1, -2), "tensor d2t: element 1 is -2"),
    ("eagle3", {}, lambda t: t["midlayer.hidden_norm.weight"].__setitem__(3, np.inf), "element 3 is inf"),
    ("eagle3", {}, lambda t: t.update({"gate.weight": t["fc.weight"]}),
     "tensor gate.weight is not known in a drafter of the kind EAGLE-3"),
    ("eagle3", {"draft_vocab_size": 200}, None, "draft_vocab_size is 200"),
    ("eagle3", {"model_type": "mistral"}, None, "expected llama or qwen3"),
    ("eagle3", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}, None,
     "tensor fc.weight is [32, 96], expected [32, 64]"),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}, None, "eagle_aux_hidden_state_layer_ids is 0"),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}, None, "it takes the state after 8 layers"),
    ("eagle3-speculators", {"norm_before_fc": True}, None, "norm_before_fc and fc_norm are both true"),
    ("eagle3-speculators", {"speculators_model_type": "dspark"}, None,
     "speculators_model_type dspark is not supported, expected eagle3 or dflash"),
    ("dflash", {"block_size": "absent"}, None, "block_size is missing"),
    ("dflash", {"block_size": 1}, None, "block_size is 1"),
    ("dflash", {"dflash_config": {"target_layer_ids": [1, 3, 5, 6]}}, None, "mask_token_id is missing"),
    ("dflash", {"dflash_config": {"target_layer_ids": [1, 3, 5, 6], "mask_token_id": 104}}, None,
     "mask_token_id is 104, expected at most 103"),
    ("dflash", {"dflash_config": {"mask_token_id": 1}}, None, "target_layer_ids of dflash_config are missing"),
    ("dflash", {"dflash_config": {"target_layer_ids": [7], "mask_token_id": 1}}, None,
     "it takes the state after 8 layers"),
    ("dflash", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, None,
     "has a sliding window, which is not supported in DFlash"),
    ("dflash", {}, lambda t: t.update({"markov.weight": t["fc.weight"]}),
     "tensor markov.weight is not known in a drafter of the kind DFlash"),
]


@pytest.mark.parametrize("drafter, members, change, message", CHANGES, ids=[change[3][:40] for change in CHANGES])
def test_what_is_wrong_is_named(run, drafters, changed, drafter, members, change, message):
    refused(ask(run, drafters / KINDS[drafter], "--draft", changed(drafter, change, **members)), message)


def test_a_wrong_assistant(run, drafters, changed):
    target = drafters / KINDS["gemma4-assistant"]
    refused(ask(run, target, "--draft", changed("gemma4-assistant", lambda t: t.pop("post_projection.weight"))),
            "tensor post_projection.weight is missing")


def test_clusters_of_tokens_are_refused(run, drafters, changed):
    refused(ask(run, drafters / KINDS["gemma4-assistant"], "--draft",
                changed("gemma4-assistant", use_ordered_embeddings=True)), "use_ordered_embeddings is not supported")


def test_a_drafter_is_no_model(run, drafters):
    refused(run("-m", drafters / "dflash", "-p", "Hi"),
            "this is a drafter (DFlash): name the model that it drafts for with -m, and it with --draft")
    refused(ask(run, drafters / "target", "--draft", drafters / "target", "--guess", "0"),
            "--draft does not go with --guess 0", status=USAGE)
