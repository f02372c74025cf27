"""reference.py - logits of Hugging Face transformers in fp32, on a checkpoint's own numbers.

Used by: make_miniatures.py, make_goldens.py, compare_logits.py. Needs torch and transformers: for developers,
no test runs it. Quantised layers are expanded by checkpoint.py first, so that the same weights are compared;
the config goes through transformers' own reading of config.json, so that our reading of it is compared as
well.
"""

import copy
import os

import numpy as np
import torch
import transformers

import checkpoint
import miniature_experts
import miniature_names
import miniature_shapes
import miniature_streams


GATES = {".self_attn.gate_proj.": ".self_attn.g_proj."}
OMNI = {".backbone.": ".model."}
DORY = {".self_attn.g_proj.": ".self_attn.gate_proj.", ".embeddings.": ".embed_tokens."}


def load(directory, **changes):
    """The model in fp32, attention written out ("eager"). `changes` replace members of config.json."""
    config = {**checkpoint.read_json(os.path.join(directory, "config.json")), **copy.deepcopy(changes)}
    config.pop("quantization_config", None)
    given = config = config.get("thinker_config", config)
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    several = "vision_config" in config
    config = kind.from_dict(copy.deepcopy(config), attn_implementation="eager")
    renamed = {"lfm3": GATES, "dory": DORY, "nemotron_h_omni": OMNI, "gpt_neox": {"embed_out.": "lm_head."}}.get(
        config.model_type, {})
    tensors = checkpoint.dequantised(checkpoint.read_checkpoint(directory))
    if config.model_type == "ernie4_5_vl_moe":
        tensors = miniature_experts.of_text(tensors, config.get_text_config().moe_num_experts)
    tensors = miniature_experts.merged(miniature_streams.joined(tensors), config.get_text_config().model_type)
    tensors = {text_name(name, several, renamed): array
               for name, array in miniature_shapes.split(tensors, given.get("text_config", given)).items()}
    for name in [name for name in tensors if name.endswith("wte.new_embedding")]:  # Molmo 2: tokens beyond the head's
        embedding = "model.language_model.embed_tokens.weight"
        tensors[embedding] = np.concatenate([tensors[embedding], tensors.pop(name)])
    if config.model_type == "qwen3_vl_moe":  # published with inputs first
        tensors = {name: array.transpose(0, 2, 1) if ".mlp.experts." in name else array
                   for name, array in tensors.items()}
    if several and "lm_head.weight" in tensors:
        config.tie_word_embeddings = False  # as from_pretrained() decides where both are there
    elif getattr(config, "tie_word_embeddings", False):
        body = "model.language_model." if several else "model."
        names = miniature_names.NAMES.get(config.model_type, {})
        tensors["lm_head.weight"] = tensors[miniature_names.named(body + "embed_tokens.weight", names)]
    auto = transformers.AutoModelForMultimodalLM if several else transformers.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32)
    state = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items() if not is_other_part(name)}
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not is_other_part(name) and not miniature_streams.is_hash_buffer(name)]
    assert not missing and not unexpected, (missing, unexpected)
    return model.eval()


def is_other_part(name):
    """True for tensors that text does not need: those of other parts of a multimodal model, and of draft layers."""
    return name.startswith("mtp.") or any(part in name for part in (
        "vision_tower.", "multi_modal_projector.", "vision_adapter.", "vision_projection.", "visual.", "vision_model.",
        "connector.", "audio_tower.", "vision_moe.", "resampler_model.", "image_newline", "model.projector."))


def text_name(name, several, renamed):
    """As the newest transformers calls what transformers 4.51 saved; `renamed`: parts of names."""
    if renamed is DORY:
        name = transformers.core_model_loading.LayerPairCollapse().rename_source_key(name)[0]
    name = name.removeprefix("thinker.")
    for old, new in renamed.items():
        name = name.replace(old, new)
    if renamed is OMNI:  # whose text part is a whole model, with its head
        return name
    for old, new in (("backbone.", "model."), ("language_model.model.", "model.language_model."),
                     ("language_model.lm_head.", "lm_head.")):
        if name.startswith(old):
            return new + name[len(old):]
    named = ("model.language_model.", "model.text_model.", "model.visual.")
    if several and name.startswith("model.") and not name.startswith(named):  # Qwen2-VL
        return "model.language_model." + name[len("model."):]
    return name


def least_margin(model, ids):
    """By how much the least decided choice of a block is decided, in sparse attention; infinity where none is made."""
    topk, margins = torch.Tensor.topk, [float("inf")]

    def noting(scores, k, *arguments, **named):
        if scores.dim() == 1 and k < len(scores):  # the blocks of one query: nothing else has one dimension
            best = scores.sort(descending=True).values
            margins.append(float(best[k - 1] - best[k]))
        return topk(scores, k, *arguments, **named)

    torch.Tensor.topk = noting
    try:
        logits(model, ids)
    finally:
        torch.Tensor.topk = topk
    return min(margins)


def logits(model, ids):
    """Teacher-forced: fp32 [n_tokens][vocab]."""
    with torch.no_grad():
        return model(torch.tensor([[int(i) for i in ids]]), use_cache=False).logits[0].numpy()
