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


def load(directory, **changes):
    """The model in fp32, attention written out ("eager"). `changes` replace members of config.json."""
    config = {**checkpoint.read_json(os.path.join(directory, "config.json")), **copy.deepcopy(changes)}
    config.pop("quantization_config", None)
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    config = kind.from_dict(config, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tensors = checkpoint.dequantised(checkpoint.read_checkpoint(directory))
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()})
    return model.eval()


def logits(model, ids):
    """Teacher-forced: fp32 [n_tokens][vocab]."""
    with torch.no_grad():
        return model(torch.tensor([[int(i) for i in ids]]), use_cache=False).logits[0].numpy()
