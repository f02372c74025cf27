#!/usr/bin/env python3
"""make_drafters.py - tiny random drafters in the layouts of published ones, with the logits of their drafts, for
test/engine/drafters/test_published.c.

    python3 scripts/make_drafters.py test/data/drafters [NAME...]

Each directory is a drafter as it is published (config.json, model.safetensors; of multi-token prediction the whole
checkpoint), and references/NAME.safetensors has `ids` [N], `rounds` [R], and `logits` fp32 [R][K][draft vocabulary].
In a round with n the target has computed ids[0..n), ids[n] is the newest token, and the drafter guesses K tokens after
it, each the likeliest after those before it. `target` is what most of them draft for, qwen3_5-mtp drafts for itself.
The logits are those of the public implementations in fp32: layers of speculators 0.9 (EAGLE-3, multi-token
prediction), the DFlash authors' model.py (github.com/z-lab/dflash), transformers 5.23 (Gemma 4's assistants). Needs
numpy, torch and these packages.
"""

import os
import shutil
import sys
import zlib

import numpy as np
import torch
import transformers

import checkpoint
import reference
from make_miniatures import QWEN3_5, make_tensors, tokenizer
from miniature_configs import VOCAB, gemma4, llama, qwen3

N_TOKENS, GUESSES = 40, 4
ROUNDS = (12, 13, 16, 31)
MINIATURES = os.path.join(os.path.dirname(__file__), "..", "test", "data", "miniatures")

TARGET = llama(hidden_size=32, intermediate_size=48, num_hidden_layers=8, tie_word_embeddings=False, head_dim=16,
               num_attention_heads=2, num_key_value_heads=1, torch_dtype="bfloat16")
EAGLE_LAYER = llama(hidden_size=32, intermediate_size=40, num_hidden_layers=1, head_dim=16, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=False)
QWEN_LAYERS = qwen3(hidden_size=32, intermediate_size=40, num_hidden_layers=2, head_dim=16, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=False, torch_dtype="bfloat16")
ASSISTANT = gemma4(hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4,
                   torch_dtype="bfloat16", layer_types=["sliding_attention"] * 3 + ["full_attention"], head_dim=16,
                   sliding_window=16, final_logit_softcapping=None, num_kv_shared_layers=4,
                   vocab_size_per_layer_input=0)


class Store:
    """Tensors of a seeded generator, in a dtype of safetensors."""

    def __init__(self, name, dtype):
        self.rng, self.dtype, self.tensors = np.random.default_rng(zlib.crc32(name.encode())), dtype, {}

    def put(self, name, *shape, std=None, middle=0.0):
        values = self.rng.standard_normal(shape).astype(np.float32)
        values = middle + values * (std if std else shape[-1]**-0.5)
        stored = {"float16": np.float16, "float32": np.float32}.get(self.dtype)
        self.tensors[name] = values.astype(stored) if stored else checkpoint.to_bf16(values.astype(np.float32))

    def norm(self, name, width, middle=1.0):
        self.put(name + ".weight", width, std=0.25, middle=middle)

    def layer(self, prefix, config, inputs=None, qk_norm=False, middle=1.0, gated=False):
        """A layer with attention; `inputs`: those of q, k and v where they are more than hidden."""
        hidden, dim = config["hidden_size"], config["head_dim"]
        inputs = inputs or hidden
        heads, kv_heads = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
        self.put(prefix + "self_attn.q_proj.weight", heads * (2 if gated else 1), inputs, std=1.6 / inputs**0.5)
        self.put(prefix + "self_attn.k_proj.weight", kv_heads, inputs, std=1.6 / inputs**0.5)
        self.put(prefix + "self_attn.v_proj.weight", kv_heads, inputs)
        self.put(prefix + "self_attn.o_proj.weight", hidden, heads)
        for name in ("gate", "up"):
            self.put(prefix + f"mlp.{name}_proj.weight", config["intermediate_size"], hidden)
        self.put(prefix + "mlp.down_proj.weight", hidden, config["intermediate_size"])
        self.norm(prefix + "input_layernorm", hidden, middle)
        self.norm(prefix + "post_attention_layernorm", hidden, middle)
        if qk_norm:
            self.norm(prefix + "self_attn.q_norm", dim, middle)
            self.norm(prefix + "self_attn.k_norm", dim, middle)


def reduced_vocabulary(store, n):
    """d2t: what is added to a draft's id for the target's; t2d: the target's ids that there are."""
    chosen = np.sort(store.rng.choice(VOCAB, n, replace=False))
    store.tensors["d2t"] = (chosen - np.arange(n)).astype(np.int64)
    store.tensors["t2d"] = np.isin(np.arange(VOCAB), chosen)


# --- what there is: config.json and tensors of each


def eagle3(name, config, n_vocab, body, qk_norm=False, embedding=False, before_fc=None):
    layers = config.get("transformer_layer_config", config)
    hidden = layers["hidden_size"]
    store = Store(name, layers["torch_dtype"])
    store.put("fc.weight", hidden, 3 * hidden)
    if before_fc == "norm_before_fc":
        store.norm("input_norm", 3 * hidden)
    for i in range(3 if before_fc == "fc_norm" else 0):
        store.norm(f"fc_norm.{i}", hidden)
    for i in range(layers["num_hidden_layers"]):
        prefix = body if body == "midlayer." else f"layers.{i}."
        store.layer(prefix, layers, inputs=None if i else 2 * hidden, qk_norm=qk_norm)
        if i == 0:
            store.norm(prefix + "hidden_norm", hidden)
    store.norm("norm", hidden)
    store.put("lm_head.weight", n_vocab, hidden, std=3 / hidden**0.5)
    if n_vocab < VOCAB:
        reduced_vocabulary(store, n_vocab)
    if embedding:
        store.put("embed_tokens.weight", VOCAB, hidden, std=0.5)
    return config, store.tensors


def dflash(name, config, n_states, n_vocab=0):
    layers = config.get("transformer_layer_config", config)
    hidden = layers["hidden_size"]
    store = Store(name, layers["torch_dtype"])
    store.put("fc.weight", hidden, n_states * hidden)
    store.norm("hidden_norm", hidden)
    for i in range(layers["num_hidden_layers"]):
        store.layer(f"layers.{i}.", layers, qk_norm=True)
    store.norm("norm", hidden)
    if n_vocab:
        store.put("lm_head.weight", n_vocab, hidden, std=3 / hidden**0.5)
        store.put("embed_tokens.weight", VOCAB, hidden, std=0.5)
        reduced_vocabulary(store, n_vocab)
    return config, store.tensors


def speculators(kind, layers, **config):
    """As speculators saves it."""
    layers = {key: value for key, value in layers.items() if key != "architectures"}
    return {"architectures": [{"eagle3": "Eagle3DraftModel", "dflash": "DFlashDraftModel"}[kind]],
            "speculators_model_type": kind, "speculators_version": "0.9.0", "transformer_layer_config": layers,
            "tie_word_embeddings": False, "torch_dtype": layers["torch_dtype"], **config}


def assistant(name, backbone):
    store, text = Store(name, "bfloat16"), ASSISTANT
    hidden = text["hidden_size"]
    config = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
              "backbone_hidden_size": backbone, "text_config": {k: v for k, v in text.items() if k != "architectures"},
              "torch_dtype": "bfloat16", "tie_word_embeddings": True}
    store.put("model.embed_tokens.weight", VOCAB, hidden, std=3 / hidden**0.5)
    store.put("pre_projection.weight", hidden, 2 * backbone, std=1 / backbone**0.5)
    store.put("post_projection.weight", backbone, hidden)
    for i, kind in enumerate(text["layer_types"]):
        prefix, dim = f"model.layers.{i}.", 32 if kind == "full_attention" else text["head_dim"]
        store.put(prefix + "self_attn.q_proj.weight", text["num_attention_heads"] * dim, hidden)
        store.norm(prefix + "self_attn.q_norm", dim, 0.7)
        store.put(prefix + "self_attn.o_proj.weight", hidden, text["num_attention_heads"] * dim)
        for linear in ("gate", "up"):
            store.put(prefix + f"mlp.{linear}_proj.weight", text["intermediate_size"], hidden)
        store.put(prefix + "mlp.down_proj.weight", hidden, text["intermediate_size"])
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            store.norm(prefix + norm + "_layernorm", hidden)
        store.put(prefix + "layer_scalar", 1, std=0.1, middle=0.7)
    store.norm("model.norm", hidden)
    return config, store.tensors


def multi_token(name):
    config = {**QWEN3_5, "text_config": {**QWEN3_5["text_config"], "mtp_num_hidden_layers": 1,
                                         "mtp_use_dedicated_embeddings": False}}
    text = config["text_config"]
    hidden = text["hidden_size"]
    store = Store(name, "bfloat16")
    store.put("mtp.fc.weight", hidden, 2 * hidden)
    store.norm("mtp.pre_fc_norm_hidden", hidden, 0.0)
    store.norm("mtp.pre_fc_norm_embedding", hidden, 0.0)
    store.layer("mtp.layers.0.", text, qk_norm=True, middle=0.0, gated=True)
    store.norm("mtp.norm", hidden, 0.0)
    return config, {**make_tensors(name, config, names=("model.language_model.", "lm_head")), **store.tensors}


# --- references


def as_torch(tensors):
    return {name: torch.from_numpy(np.array(array if array.dtype in (np.int64, bool) else checkpoint.to_f32(array)))
            for name, array in tensors.items()}


def filled(module, state):
    """The module in fp32 with these parameters, all of them."""
    module.load_state_dict(state, strict=True)
    return module.float().eval()


def part(state, prefix):
    return {name[len(prefix):]: value for name, value in state.items() if name.startswith(prefix)}


def causal(n):
    return torch.full((n, n), -torch.inf).triu(1)[None, None]


def target_of(directory):
    """The target's states [L + 1][N][hidden] of ids, its embedding and its output head."""
    model = reference.load(directory)

    def states(ids):
        return [state[0] for state in model(torch.tensor([ids]), use_cache=False,
                                            output_hidden_states=True).hidden_states]
    return model, states


def chain(logits_of, first, n_guesses, to_target):
    """The logits of each guess. logits_of(guesses so far) -> logits of the next."""
    guesses, rows = [], []
    for _ in range(n_guesses):
        logits = logits_of(first, guesses)
        rows.append(logits.numpy())
        guesses.append(to_target(int(logits.argmax())))
    return rows


def eagle3_logits(directory, config, tensors, target, ids, n):
    from speculators.models.eagle3.model_definitions import model_classes
    model, states = target
    state = as_torch(tensors)
    layers_config = dict(config.get("transformer_layer_config", config))
    kind = layers_config["model_type"]
    layers_config = transformers.CONFIG_MAPPING[kind].from_dict(layers_config, attn_implementation="eager")
    parts = model_classes[kind]
    body = [name for name in ("midlayer.", "layers.0.") if name + "mlp.up_proj.weight" in state][0]
    layers = [filled(parts.first_layer_class(layers_config, 0, config.get("norm_before_residual", False)),
                     part(state, body))]
    layers += [filled(parts.decoder_layer_class(layers_config, i), part(state, f"layers.{i}."))
               for i in range(1, layers_config.num_hidden_layers)]
    eps = layers_config.rms_norm_eps

    def norm(name, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], state[name + ".weight"], eps)
    embedding = state.get("embed_tokens.weight", model.get_input_embeddings().weight)
    depth = len(states(ids[:2])) - 1
    which = config.get("eagle_aux_hidden_state_layer_ids") or [2, depth // 2, depth - 3]
    aux = torch.cat([states(ids[:n])[i] for i in which], -1)
    if config.get("norm_before_fc"):
        aux = norm("input_norm", aux)
    if config.get("fc_norm"):
        aux = torch.cat([norm(f"fc_norm.{i}", x) for i, x in enumerate(aux.chunk(3, -1))], -1)
    hidden = [aux @ state["fc.weight"].T]
    d2t = state.get("d2t")

    def logits(first, guesses):
        tokens = torch.tensor(first + guesses)
        x = torch.cat([embedding[tokens], torch.cat(hidden)], -1)[None]
        positions = torch.arange(len(tokens))[None]
        rotary = parts.rotary_emb_class(layers_config)(x, positions)
        for layer in layers:
            x = layer(x, attention_mask=causal(len(tokens)), position_embeddings=rotary, position_ids=positions)
        last = norm("norm", x[0, -1:])
        hidden.append(last if config.get("norm_output") else x[0, -1:])
        return (last @ state["lm_head.weight"].T)[0]
    return chain(logits, list(ids[1:n + 1]), GUESSES, lambda i: i + int(d2t[i]) if d2t is not None else i)


def dflash_logits(directory, config, tensors, target, ids, n):
    from dflash.model import DFlashDraftModel
    model, states = target
    state = as_torch(tensors)
    layers = dict(config.get("transformer_layer_config", config))
    inner = config.get("dflash_config", {})
    # speculators counts states of layers from the embedding on, the authors from the first layer's output on
    which = inner.get("target_layer_ids") or [i - 1 for i in config["aux_hidden_state_layer_ids"]]
    block = config.get("block_size") or inner["block_size"]
    mask = inner.get("mask_token_id", config.get("mask_token_id"))
    layers_config = transformers.Qwen3Config.from_dict(
        {**layers, "block_size": block, "num_target_layers": 0,
         "dflash_config": {"target_layer_ids": which, "mask_token_id": mask}}, attn_implementation="eager")
    head = state.pop("lm_head.weight", model.get_output_embeddings().weight)
    embedding = state.pop("embed_tokens.weight", model.get_input_embeddings().weight)
    for name in ("d2t", "t2d"):
        state.pop(name, None)
    drafter = filled(DFlashDraftModel(layers_config), state)
    context = torch.cat([states(ids[:n])[i + 1] for i in which], -1)[None]
    tokens = torch.tensor([ids[n]] + [mask] * (block - 1))
    out = drafter(position_ids=torch.arange(n + block)[None], noise_embedding=embedding[tokens][None],
                  target_hidden=context)
    return list((out[0, 1:] @ head.T).numpy())


def multi_token_logits(directory, config, tensors, target, ids, n):
    from speculators.models.mtp.model_definitions import mtp_model_classes
    from speculators.convert.mtp.converter import MTPConverter
    model, states = target
    text = model.config.get_text_config()
    parts = mtp_model_classes[text.model_type]
    state = {name.replace("mtp_layers.0.", ""): value.float()
             for name, value in MTPConverter().convert_to_state_dict(directory).items()}
    layer = filled(parts.first_layer_class(text, 0), state)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    hidden = [states(ids[:n])[-1]]

    def logits(first, guesses):
        tokens = torch.tensor(first + guesses)
        x = torch.cat(hidden)[None]
        positions = torch.arange(len(tokens))[None]
        rotary = parts.rotary_emb_class(text)(x, positions)
        out = layer(hidden_states=x, token_embeddings=embedding[tokens][None], attention_mask=causal(len(tokens)),
                    position_ids=positions, position_embeddings=rotary)
        hidden.append(out[0, -1:])
        return out[0, -1] @ head.T
    return chain(logits, list(ids[1:n + 1]), GUESSES, lambda i: i)


def sharing_modes(self):
    """How layers share keys and values; transformers 5.23 refuses to say it if all of them do, or none."""
    if self.num_kv_shared_layers == self.num_hidden_layers:
        return ["reuse"] * self.num_hidden_layers
    last = {kind: i for i, kind in enumerate(self.layer_types)}
    return ["store" if last[kind] == i else None for i, kind in enumerate(self.layer_types)]


def assistant_logits(directory, config, tensors, target, ids, n):
    transformers.Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)
    model = reference.load(os.path.join(MINIATURES, "gemma4-bf16"))
    drafter_config = transformers.Gemma4AssistantConfig.from_dict(config)
    drafter_config._attn_implementation = drafter_config.text_config._attn_implementation = "eager"
    drafter = transformers.Gemma4AssistantForCausalLM(drafter_config)
    state = as_torch(tensors)
    drafter = filled(drafter, {**state, "lm_head.weight": state["model.embed_tokens.weight"]})
    out = model(torch.tensor([ids[:n]]), use_cache=False, output_hidden_states=True, return_shared_kv_states=True)
    hidden = [out.hidden_states[-1][:, -1:]]

    def logits(first, guesses):
        embedding = model.get_input_embeddings()(torch.tensor([[(first + guesses)[-1]]]))
        step = drafter(inputs_embeds=torch.cat([embedding, hidden[-1]], -1), position_ids=torch.tensor([[n]]),
                       shared_kv_states=out.shared_kv_states)
        hidden.append(step.last_hidden_state)
        return step.logits[0, 0]
    return chain(logits, [ids[n]], GUESSES, lambda i: i)


# --- the table: how each is made, whose logits they are, and for which target

DRAFTERS = {
    "eagle3": (lambda name: eagle3(name, {**EAGLE_LAYER, "architectures": ["LlamaForCausalLMEagle3"],
                                          "draft_vocab_size": 40}, 40, "midlayer."), eagle3_logits, "target"),
    "eagle3-speculators": (lambda name: eagle3(name, speculators(
        "eagle3", QWEN_LAYERS, draft_vocab_size=VOCAB, norm_before_residual=True, norm_output=True, fc_norm=True,
        eagle_aux_hidden_state_layer_ids=[1, 4, 7]), VOCAB, "layers.", qk_norm=True, embedding=True,
        before_fc="fc_norm"), eagle3_logits, "target"),
    "eagle3-norm-before-fc": (lambda name: eagle3(name, speculators(
        "eagle3", EAGLE_LAYER, draft_vocab_size=40, norm_before_residual=False, norm_before_fc=True,
        eagle_aux_hidden_state_layer_ids=[3, 5, 7]), 40, "layers.", before_fc="norm_before_fc"),
        eagle3_logits, "target"),
    "dflash": (lambda name: dflash(name, {
        **QWEN_LAYERS, "architectures": ["DFlashDraftModel"], "block_size": 5, "num_target_layers": 8,
        "dflash_config": {"target_layer_ids": [1, 3, 5, 6], "mask_token_id": 100}}, 4), dflash_logits, "target"),
    "dflash-speculators": (lambda name: dflash(name, speculators(
        "dflash", QWEN_LAYERS, draft_vocab_size=40, block_size=5, mask_token_id=101,
        aux_hidden_state_layer_ids=[2, 5]), 2, 40), dflash_logits, "target"),
    "gemma4-assistant": (lambda name: assistant(name, 32), assistant_logits,
                         os.path.join("..", "miniatures", "gemma4-bf16")),
    "qwen3_5-mtp": (multi_token, multi_token_logits, "qwen3_5-mtp"),
}


def make_target(directory):
    os.makedirs(directory, exist_ok=True)
    checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), make_tensors("target", TARGET))
    checkpoint.write_json(os.path.join(directory, "config.json"), TARGET)
    checkpoint.write_json(os.path.join(directory, "tokenizer.json"), tokenizer(), indent=None)


def make(out, name):
    tensors_of, logits_of, target_name = DRAFTERS[name]
    directory = os.path.join(out, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    config, tensors = tensors_of(name)
    checkpoint.write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    checkpoint.write_json(os.path.join(directory, "config.json"), config)
    if target_name == name:
        checkpoint.write_json(os.path.join(directory, "tokenizer.json"), tokenizer(), indent=None)
    target = target_of(os.path.join(out, target_name))
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    ids = [int(i) for i in rng.integers(0, 96, N_TOKENS)]
    with torch.no_grad():
        logits = np.array([logits_of(directory, config, tensors, target, ids, n) for n in ROUNDS], np.float32)
    os.makedirs(os.path.join(out, "references"), exist_ok=True)
    checkpoint.write_safetensors(os.path.join(out, "references", name + ".safetensors"), {
        "ids": np.array(ids, np.int32), "rounds": np.array(ROUNDS, np.int32), "logits": logits})
    print(f"{name}: logits {logits.shape} of standard deviation {logits.std():.1f}")


def main(out, *names):
    os.makedirs(out, exist_ok=True)
    make_target(os.path.join(out, "target"))
    for name in names or DRAFTERS:
        make(out, name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
