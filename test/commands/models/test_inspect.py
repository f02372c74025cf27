"""`auk inspect`: what it says of a checkpoint is what the checkpoint's own files say."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

from transcripts import compare_text, transcript_fixture  # noqa: E402  (from test/commands/)
import checkpoint  # noqa: E402  (from scripts/)

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
DRAFTERS = DATA / "drafters"  # are no models, but for two (test/commands/models/test_drafts.py)
DIRECTORIES = sorted(path.parent for path in DATA.glob("**/config.json")
                     if any(path.parent.glob("*.safetensors"))
                     and (path.parent.parent != DRAFTERS or path.parent.name in ("target", "qwen3_5-mtp")))


def inspect(run, path, *flags):
    done = run("inspect", path, "--json", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return json.loads(done.stdout)


def refused(run, status, *arguments, **options):
    """The one line on standard error of a command that fails so and prints nothing else."""
    done = run(*arguments, **options)
    assert done.returncode == status, done.stderr
    assert not done.stdout
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("auk: "), lines
    return lines[0]


def stored_tensors(directory):
    """Name -> (dtype, shape, bytes) of all .safetensors of a directory."""
    tensors = {}
    for path in directory.glob("*.safetensors"):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = (entry["dtype"], entry["shape"], end - begin)
    return tensors


# Members of the config that GPT-2 calls otherwise, and families whose head is tied though the config does not say so.
GPT2_MEMBERS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                "max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}
TIED = ("falcon", "gpt2", "gpt_bigcode")


def mlp_width(text):
    """As LFM2 makes it of its own members; other models just have it."""
    if text["model_type"] == "granitemoehybrid":
        return text["shared_intermediate_size"]
    if "prefix_dense_intermediate_size" in text:  # Command A+
        return text["prefix_dense_intermediate_size"]
    if "intermediate_size_mlp" in text:  # Llama 4
        return text["intermediate_size_mlp"]
    if text["model_type"] in ("falcon", "gpt_bigcode"):
        return text.get("ffn_hidden_size", 4 * text["hidden_size"])
    width, multiple = text.get("block_ff_dim", text.get("intermediate_size")), text.get("block_multiple_of")
    return -(-(2 * width // 3) // multiple) * multiple if text.get("block_auto_adjust_ff_dim") else width


def kv_heads(text):
    """The number in families whose configs do not have num_key_value_heads."""
    one = text.get("multi_query") and not text.get("new_decoder_architecture")
    return 1 if one else text.get("num_kv_heads", text.get("num_attention_groups", text["num_attention_heads"]))


def of_experts(report):
    """The matrices of all experts and routers, less those that are not beside them."""
    return sum(3 * layer["n_experts"] + 1 + report["experts"]["shared_gate"] - 3 * (layer["intermediate_size"] == 0)
               for layer in report["layers"] if layer["n_experts"])


def of_blocks(report, stored):
    """The matrices of a model whose layers have one block each; Mamba-2 has two."""
    if any(name.endswith(".sqk") for name in stored):  # Dory, whose layers in loops share matrices
        return sum(name.endswith("_proj.weight") for name in stored)
    kinds, n_experts = report["layer_kinds"], [layer["n_experts"] for layer in report["layers"]]
    n = 4 * kinds.count("attention") + 2 * kinds.count("delta") + 2 * kinds.count("mlp")
    latent = sum("fc1_latent_proj" in name for name in {name.rsplit(".", 1)[0] for name in stored})
    return n + sum(2 * e + (e > 0) for e in n_experts) + 2 * latent


def one_by_one(stored):
    """The tensors of all experts of gpt-oss as those of each."""
    ends, apart = {"_blocks": ".weight_packed", "_scales": ".weight_scale", "_bias": ".bias"}, {}
    for name, (dtype, shape, size) in stored.items():
        before, end = name.rpartition("_")[0], "_" + name.rpartition("_")[2]
        if ".experts." not in name or end not in ends or "correction_bias" in name:
            apart[name] = dtype, shape, size
            continue
        for matrix in ("gate_proj", "up_proj") if before.endswith("gate_up_proj") else ("down_proj",):
            for expert in range(shape[0]):
                apart[f"{before}.{expert}.{matrix}{ends[end]}"] = dtype, shape[1:], 0
    return apart


@pytest.mark.bulk(4)
@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_says_what_the_files_say(run, directory):
    config = json.loads((directory / "config.json").read_text())
    stored = stored_tensors(directory)
    report = inspect(run, directory, "--tensors")
    assert report["layout"] == "huggingface"
    assert report["architecture"] == config["architectures"][0]
    whole = config.get("thinker_config", config)  # of models that also speak
    if "llm_config" in whole:
        whole = {**whole, "text_config": whole["llm_config"]}
    several = "text_config" in whole
    text = whole["text_config"] if several else config
    for usual, own in GPT2_MEMBERS.items():
        text = {usual: text[own], **text} if own in text else text
    eps = (text[key] for key in ("norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon") if key in text)
    spelt = {"rms_norm_eps": next(eps, 1e-5), "num_hidden_layers": text.get("num_layers"),
             "num_key_value_heads": kv_heads(text), **text,
             "intermediate_size": mlp_width(text), "vocab_size": text.get("output_vocab_size", text["vocab_size"])}
    if isinstance(spelt["intermediate_size"], list):
        assert [layer["intermediate_size"] for layer in report["layers"]] == spelt["intermediate_size"]
        spelt["intermediate_size"] = spelt["intermediate_size"][0]
    latent = report["latent_attention"]
    if latent:  # one row of the cache for all heads
        spelt["num_key_value_heads"] = 1
        given = {"v_head_dim": text["hidden_size"] // text["num_attention_heads"], "q_lora_rank": None, **text}
        assert latent == {key: given[key] or 0 for key in latent}
    assert bool(latent) == ("kv_lora_rank" in text)
    if not spelt["intermediate_size"]:  # all layers have experts
        spelt["intermediate_size"] = report["intermediate_size"]
    spelt["max_position_embeddings"] = text.get("model_max_length", text.get("max_position_embeddings"))
    if (text.get("rope_scaling") or {}).get("type") == "linear" and "rope_local_base_freq" not in text:
        spelt["max_position_embeddings"] = int(text["rope_scaling"]["factor"] * spelt["max_position_embeddings"])
    if "n_recurrent_loops" in text:
        spelt["num_hidden_layers"] += (text["n_recurrent_loops"] - 1) * text["n_recurrent_layers"]
        spelt["rms_norm_eps"] = 1e-6  # as in transformers, whatever the member says
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps"):
        assert report[key] == spelt[key], key
    own_head = any(name.endswith(("lm_head.weight", "embed_out.weight")) for name in stored)
    assert report["tie_word_embeddings"] == (not own_head if several else config.get(
        "tie_embedding", config.get("tie_word_embeddings", text["model_type"] in TIED)))
    layers = report["layers"]
    turns = any(kind.startswith("attention") and rope != "none"
                for kind, rope in zip(report["layer_kinds"], report["layer_ropes"]))
    assert report["rms_norm_eps_source"] == "config.json"
    assert report["rope_theta_source"] == ("config.json" if turns else None)
    assert (report["rope_theta"] is not None) == turns
    assert len(layers) == len(report["layer_kinds"]) == report["num_hidden_layers"]
    with_gate = 2 if report["attn_gate"] == "in q" else 1
    for index, layer in enumerate(layers):
        for part, size in (("q", with_gate * layer["num_attention_heads"]), ("k", layer["num_key_value_heads"])):
            shapes = [stored[name][1] for name in stored
                      if name.endswith(f"layers.{index}.self_attn.{part}_proj.weight")]
            assert not shapes or latent or shapes[0][0] == size * layer["head_dim"]
    index_heads = bool(report["streams"] and report["streams"]["indexer_compress_ratio"])  # one more KV head
    assert report["kv_bytes_per_token"]["f16"] == sum(
        4 * (layer["num_key_value_heads"] + index_heads) * layer["head_dim"] for index, layer in enumerate(layers)
        if layer["kv_layer"] == index and report["layer_kinds"][index].startswith("attention"))
    assert report["kv_bytes_full_context"]["f32"] == (
        report["kv_bytes_per_token"]["f32"] * report["max_position_embeddings"])

    assert {tensor["name"]: (tensor["dtype"], tensor["shape"], tensor["bytes"])
            for tensor in report["tensors"]} == stored
    assert report["n_tensors"] == len(stored)
    used = [tensor for tensor in report["tensors"] if tensor["used"]]
    assert report["weight_bytes"] == sum(tensor["bytes"] for tensor in used)
    assert sorted(report["unused_tensors"]) == sorted({*stored} - {tensor["name"] for tensor in used})
    generation = json.loads((directory / "generation_config.json").read_text()) if (
        directory / "generation_config.json").exists() else {}
    tokens = {**config, **text, **{key: whole[key] for key in ("eos_token_id", "bos_token_id") if key in whole},
              **generation}
    eos = tokens.get("eos_token_id")
    assert report["eos_token_id"] == (eos if isinstance(eos, list) else [] if eos is None else [eos])
    assert report["bos_token_id"] == tokens.get("bos_token_id")
    given = {key: value for key, value in generation.items() if key in report["generation"]}
    assert {key: report["generation"][key] for key in given} == given
    scaling = text.get("rope_scaling") or {}
    known = {key: value for key, value in scaling.items() if key in report["rope_scaling"] and key != "rope_type"}
    for key, value in known.items():  # lists are kept as fp32
        assert report["rope_scaling"][key] == (pytest.approx(value, rel=1e-7) if isinstance(value, list) else value)
    assert len(report["sliding_windows"]) == len(report["layer_ropes"]) == report["num_hidden_layers"]
    before = text.get("sliding_window_size")  # MiMo counts the position itself elsewhere
    assert {*report["sliding_windows"]} <= {0, before + 1 if before else text.get("sliding_window")}
    assert {*report["attention_chunks"]} <= {0, text.get("attention_chunk_size")}
    linear = report["linear_layers"]
    own_gate = report["attn_gate"] in ("numbers", "heads")
    as_one = report["fused_qkv"] or report["fused_qkv_by_head"]
    matrices = 8 if own_gate else 7 - 3 * report["fused"] - report["fused_gate_up"] - 2 * as_one
    matrices += 2 if report["hidden_size_per_layer_input"] else 0
    missing = [2 if layer["kv_layer"] != index else layer["k_as_v"] for index, layer in enumerate(layers)]
    delta = report["delta"]
    of_states = -2 if delta and delta["rule"] == "mamba2" else 1  # matrices more than with attention
    n_delta, n_conv = report["layer_kinds"].count("delta"), report["layer_kinds"].count("conv")
    expected = (matrices * (len(layers) - n_conv) + 5 * n_conv + of_states * n_delta - sum(missing) + of_experts(report)
                - 2 * sum(name.endswith("in_proj_ba.weight") for name in stored))
    expected -= len(layers) * (not report["mlp_gate"])
    expected += 2 * sum(name.endswith("linear_attn.k_proj.weight") for name in stored)  # no matrix of q, k and v
    expected += 2 * sum(name.endswith((".k_conv1d.weight", ".f_a_proj.weight")) for name in stored)
    expected -= own_gate * n_delta + 3 * report["fused_delta"] * n_delta
    n_beside = report["layer_kinds"].count("attention and delta")
    expected += 2 * n_beside
    if latent:  # q, perhaps of its own latent, two matrices in place of k and v, o
        expected += len(layers) * (latent["q_lora_rank"] > 0)
    if report["streams"]:  # two mixes and factors of each, an index, keys and values of n-grams
        expected += 6 * len(layers) + (len(layers) - n_delta) + 2 * len(text["ple_layer_ids"])
    if altup := report["altup"]:  # a router, two matrices of coefficients, and LAuReL's two
        expected += 5 * len(layers)
        assert altup == {"altup_num_inputs": text["altup_num_inputs"], "laurel_rank": text["laurel_rank"],
                         "activation_sparsity": text["activation_sparsity_pattern"]}
    if "mlp" in report["layer_kinds"]:
        expected = of_blocks(report, stored)
    assert linear["quantised"] + linear["dense"] == expected
    assert (delta is None) == (n_delta + n_beside == 0) and (report["short_conv"] == 0) == (n_conv == 0)
    if not delta:
        assert report["recurrent_bytes"] == 4 * n_conv * max(0, int(report["short_conv"]) - 1) * report["hidden_size"]
    if n_conv:
        assert report["short_conv"] == text["conv_L_cache"]
    if delta:
        mamba = delta["rule"] == "mamba2"
        own = text.get("linear_attn_config")
        by_channel = bool(own) or "kda_safe_gate" in text
        if by_channel:
            own = own or {"num_heads": text["num_attention_heads"], **text}
            text.update(linear_num_key_heads=own["num_heads"], linear_num_value_heads=own["num_heads"],
                        linear_key_head_dim=own["head_dim"], linear_value_head_dim=own["head_dim"],
                        linear_conv_kernel_dim=own["short_conv_kernel_size"])
        keys = (("n_groups", "mamba_num_heads", "ssm_state_size", "conv_kernel") if "ssm_state_size" in text else
                ("mamba_n_groups", "mamba_n_heads", "mamba_d_state", "mamba_d_conv") if mamba else
                ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_conv_kernel_dim"))
        head = (text["mamba_head_dim"] if "ssm_state_size" in text
                else (text.get("mamba_d_ssm") or text["mamba_expand"] * text["hidden_size"]) // text["mamba_n_heads"]
                if mamba
                else text["linear_value_head_dim"])
        members = ("n_key_heads", "n_value_heads", "key_dim", "conv")
        assert delta == {"rule": "mamba2" if mamba else "gated_delta", "value_dim": head,
                         "normalised": text.get("mamba_rms_norm", True), "by_channel": by_channel,
                         **{member: text[key] for member, key in zip(members, keys)}}
        channels = sum(shape[0] for name, (_, shape, _) in stored.items()
                       if name.endswith("conv1d.weight") and ".ple." not in name) // (n_delta + n_beside)
        state = delta["n_value_heads"] * delta["key_dim"] * delta["value_dim"]
        kept = 0  # of n-grams: inputs of the convolution, and tokens
        if text.get("ple_layer_ids"):
            taps, size = text["ple_conv_kernel_size"], text["ngram_size"]
            kept = (taps - 1) * size * text["hc_count"] * text["hidden_size"] + size - 1
        assert report["recurrent_bytes"] == 4 * ((n_delta + n_beside) * ((delta["conv"] - 1) * channels + state)
                                                 + len(text.get("ple_layer_ids", [])) * kept)
    stored = one_by_one(stored)
    quantised = {name.rsplit(".", 1)[0] for name in stored
                 if name.endswith((".qweight", ".weight_packed"))
                 or (name.endswith(".weight") and stored[name][0] in ("I8", "U8", "F8_E4M3"))} - {"lm_head"}
    assert linear["quantised"] == len(quantised)
    in_fp8 = {name for name in stored if stored[name][0] == "F8_E4M3" and name.endswith(".weight")}
    in_fp4 = {name for name in stored if stored[name][0] == "U8" and name.endswith((".weight", ".weight_packed"))}
    if quantised:
        assert (linear["in_fp8"], linear["in_fp4"]) == (len(in_fp8), len(in_fp4 - {"lm_head.weight"}))
    assert linear["dense"] == len(linear["dense_layers"])
    assert linear["with_bias"] == sum(name.endswith(".bias") for name in stored
                                      if not any(part in name for part in (
                                              "vision", "visual", "conv.conv", "conv1d", "norm.bias", "ln_",
                                              "lm_head")))


# --- the report for people, and members of the one for programs, against a transcript

REPORTS = DATA / "transcripts" / "inspect" / "reports.txt"
# Members that are compared with the model's own files above, and lines that only the first model has here.
FROM_FILES = {"path", "architecture", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
              "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
              "eos_token_id", "bos_token_id", "generation", "tensors", "tokenizer", "unused_tensors", "n_tensors",
              "weight_bytes", "loaded_bytes", "pools", "kv_bytes_per_token", "kv_bytes_full_context", "recurrent_bytes"}
SIZES = ("weights", "kv cache", "many on")


def runs_of(values):
    """Equal ones that follow each other as one, with their number."""
    runs = []
    for text in map(json.dumps, values):
        if runs and runs[-1][0] == text:
            runs[-1][1] += 1
        else:
            runs.append([text, 1])
    return ", ".join(f"{n} x {text}" if n > 1 else text for text, n in runs)


def report_of(run, name):
    """The lines for people, and each member of the JSON report, whose numbers are as it has them."""
    (model,) = [path for path in DIRECTORIES if path.name == name]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    text, report = (run("inspect", model, *flags, env=environment).stdout.decode().replace(str(model), "DIR")
                    for flags in ((), ("--json",)))
    members = {key: value for key, value in json.loads(report, parse_float=str).items() if key not in FROM_FILES}
    del members["linear_layers"]["dense_layers"]
    for index, layer in enumerate(members["layers"]):
        layer["kv_layer"] -= index
    members["layers"] = [" ".join(map(str, layer.values())) for layer in members["layers"]]
    for part in ("linear_layers", "experts", "delta"):
        members[part] = members[part] and " ".join(map(str, members[part].values()))
    return text.splitlines() + [f"{key}: {runs_of(value) if isinstance(value, list) else json.dumps(value)}"
                                for key, value in members.items()]


reports = transcript_fixture(REPORTS)
FIRST, *OTHERS = [line for line in REPORTS.read_text().splitlines() if line[:1] not in ("", " ")]


@pytest.mark.parametrize("name", [FIRST, *OTHERS])
def test_a_report_is_that_of_the_transcript(run, reports, name):
    """All models but the first have the lines there that the first has not. Each kind of line is some model's."""
    first = report_of(run, FIRST) if name != FIRST else []
    own = [line for line in report_of(run, name) if not first or not line.startswith(SIZES) and line not in first]
    compare_text("\n".join(own), reports, name)


@pytest.mark.parametrize("name", ["llama-sharded", "gemma3-text-part"])
def test_tensors_are_listed(run, name):
    model = DATA / "miniatures" / name
    tensors = [f"{it['dtype']:8} {str(it['shape']):18} {it['bytes']:12}  {it['name']}  {it['file'].rsplit('/', 1)[-1]}"
               + "  unused" * (not it["used"]) for it in inspect(run, model, "--tensors")["tensors"]]
    lines = run("inspect", "-m", model, "--tensors").stdout.decode().splitlines()
    assert lines[-len(tensors) - 1:] == ["", *tensors]


@pytest.mark.parametrize("n_dense", [8, 9, 10])
def test_eight_layers_that_are_not_quantised_are_named(run, tmp_path, n_dense):
    stored = {name: array.copy() for name, array in checkpoint.read_safetensors(
        DATA / "stories260K-awq" / "model.safetensors").items()}
    names = sorted(name.removesuffix(".qweight") for name in stored if name.endswith(".qweight"))
    for name in names[:n_dense]:
        n_in, n_out = stored[name + ".qweight"].shape[0], stored[name + ".scales"].shape[1]
        for part in ("qweight", "qzeros", "scales"):
            del stored[f"{name}.{part}"]
        stored[name + ".weight"] = np.zeros((n_out, n_in), np.float16)
    shutil.copy(DATA / "stories260K-awq" / "config.json", tmp_path)
    checkpoint.write_safetensors(str(tmp_path / "model.safetensors"), stored)
    linear = inspect(run, tmp_path)["linear_layers"]
    assert linear["dense"] == n_dense
    named = ", ".join([f"{name} ({dtype})" for name, dtype in linear["dense_layers"].items()][:8])
    lines = run("inspect", tmp_path).stdout.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("linear layers")]
    assert line.endswith(f"; dense: {named}" + f" and {n_dense - 8} more" * (n_dense > 8))


def large_checkpoint(folder):
    """Qwen3-8B in AutoAWQ's layout, with biases: 1,047 tensors in two files that are holes, all of them zero."""
    hidden, inner, layers, vocab, group = 4096, 12288, 36, 151936, 128
    tensors = {"model.embed_tokens.weight": ("F16", [vocab, hidden])}
    linears = {"self_attn.q_proj": (hidden, 4096), "self_attn.k_proj": (hidden, 1024),
               "self_attn.v_proj": (hidden, 1024), "self_attn.o_proj": (4096, hidden),
               "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner), "mlp.down_proj": (inner, hidden)}
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden, "self_attn.q_norm": 128,
             "self_attn.k_norm": 128}
    for layer in range(layers):
        for name, (n_in, n_out) in linears.items():
            base = f"model.layers.{layer}.{name}"
            tensors[base + ".qweight"] = ("I32", [n_in, n_out // 8])
            tensors[base + ".qzeros"] = ("I32", [n_in // group, n_out // 8])
            tensors[base + ".scales"] = ("F16", [n_in // group, n_out])
            if name.startswith("self_attn"):
                tensors[base + ".bias"] = ("F16", [n_out])
        for name, width in norms.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = ("F16", [width])
    tensors["model.norm.weight"] = ("F16", [hidden])
    tensors["lm_head.weight"] = ("F16", [vocab, hidden])
    names, weight_map = list(tensors), {}
    for half, mine in enumerate((names[:len(names) // 2], names[len(names) // 2:])):
        file, header, at = f"model-{half + 1:05d}-of-00002.safetensors", {}, 0
        for name in mine:
            dtype, shape = tensors[name]
            end = at + {"I32": 4, "F16": 2}[dtype] * math.prod(shape)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            weight_map[name], at = file, end
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": vocab, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
        "attention_bias": True, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group}}))
    return len(tensors)


def processor_seconds(command):
    """Processor time of a process, which is waited for: the same however busy the machine is."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_a_thousand_tensors_open_in_30_ms(auk, sanitized, tmp_path):
    """Processor time beyond that of a program that opens nothing; the best of some runs."""
    assert large_checkpoint(tmp_path) == 1047
    start = min(processor_seconds([*auk, "inspect", "--help"]) for _ in range(5))
    opened = min(processor_seconds([*auk, "inspect", tmp_path]) for _ in range(5))
    print(f"{1000 * (opened - start):.1f} ms")
    assert opened - start < (0.3 if sanitized else 0.03)


def test_takes_the_model_of_the_environment(run):
    environment = {**os.environ, "AUK_MODEL": str(DATA / "stories260K-awq")}
    done = run("inspect", env=environment)
    assert done.returncode == 0 and b"LlamaForCausalLM" in done.stdout


def test_help(run):
    done = run("inspect", "--help")
    assert done.returncode == 0 and done.stderr == b""
    assert b"--json" in done.stdout and b"--tensors" in done.stdout and b"--rope-theta" in done.stdout


def test_mistakes_of_usage(run):
    environment = {name: value for name, value in os.environ.items() if name != "AUK_MODEL"}
    assert "no model" in refused(run, 2, "inspect", env=environment)
    assert "two models: a and b" in refused(run, 2, "inspect", "b", "-m", "a")
    assert "--nothing" in refused(run, 2, "inspect", "--nothing")
    assert "--rope-theta" in refused(run, 2, "inspect", DATA / "stories260K-awq", "--rope-theta", "5")


def test_refusals(run, tmp_path):
    assert "no-such-path" in refused(run, 3, "inspect", tmp_path / "no-such-path")
    assert "config.json" in refused(run, 3, "inspect", tmp_path)
    assert "/dev/null is a device" in refused(run, 3, "inspect", "/dev/null")
    (tmp_path / "model.gguf").write_bytes(b"GGUF\3\0\0\0")
    assert "a GGUF file" in refused(run, 3, "inspect", tmp_path / "model.gguf")
    shutil.copytree(DATA / "stories260K-awq", tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "model.safetensors: tensor" in refused(run, 3, "inspect", tmp_path / "cut")


def test_a_terminal_need_not_obey_names(run, tmp_path):
    """Names of tensors and paths come from strangers; escape sequences in them are shown, not sent."""
    directory = tmp_path / "with\x1b[31mred"
    shutil.copytree(DATA / "stories260K-awq", directory)
    path = directory / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    end = len(raw) - 8 - size
    header["x\x1b]0;title\x07\x9b\n"] = {"dtype": "U8", "shape": [1], "data_offsets": [end, end + 1]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size:] + b"x")
    done = run("inspect", directory, "--tensors")
    assert done.returncode == 0
    assert "unused         1 of" in done.stdout.decode()
    assert not any(ord(letter) < 32 and letter != "\n" or 127 <= ord(letter) < 160 for letter in done.stdout.decode())
    report = inspect(run, directory)
    assert report["unused_tensors"] == ["x\x1b]0;title\x07\x9b\n"]
    assert report["path"] == str(directory)


def test_writes_that_fail(run):
    model = DATA / "stories260K-awq"
    with open("/dev/full", "wb") as full:
        assert "standard output" in refused(run, 1, "inspect", model, stdout=full)
    reader, writer = os.pipe()
    os.close(reader)
    done = run("inspect", model, stdout=writer)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""


def test_pools_are_those_of_map(run, stories):
    """Without a flag about memory, --map opens the pool that inspect describes."""
    pool = inspect(run, stories)["pools"]["cpu"]
    assert pool["pages"] * pool["page_tokens"] == pool["sequences"] * 512  # a whole context for each
    kv = inspect(run, stories)["kv_bytes_per_token"]["f16"]
    assert pool["page_bytes"] >= kv * pool["page_tokens"] and pool["other_bytes"] > 0
    done = run("-m", stories, "--raw", "--map", "-", "-n", 1, "-v", "--device", "cpu", input=b"a\n")
    told = (f"auk: {pool['sequences']} sequences at once, in {pool['pages']} pages of {pool['page_tokens']} tokens; "
            "each answer is as it is alone")
    assert done.stderr.decode().splitlines()[0] == told


def test_a_pool_that_holds_no_context_has_no_count_of_pages(auk, variant, sanitized):
    """A context of a million positions takes 960 MB."""
    if sanitized:
        pytest.skip("sanitizers take addresses of their own")
    model = variant(config={"max_position_embeddings": 1_000_000})
    for limit, n_pages in (("unlimited", 1), ("150000", None)):
        done = subprocess.run(["sh", "-c", f'ulimit -v {limit} && exec "$@"', "sh", *auk, "inspect", model, "--json"],
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        pages = json.loads(done.stdout)["pools"]["cpu"]["pages"]
        assert pages is None if n_pages is None else pages >= 1_000_000 // 32
