"""miniature_names.py - names of tensors that differ from those of transformers' Llama. Used by: make_miniatures.py,
miniature_experts.py."""

# Names where those of Llama are others, in checkpoints and in transformers, and in checkpoints alone.
FC = {"mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
NAMES = {"phi": {"self_attn.o_proj": "self_attn.dense", "model.norm.": "model.final_layernorm.", **FC}, "nanochat": FC,
         "starcoder2": {"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}}
PUBLISHED = {"exaone": {
    "model.embed_tokens.": "transformer.wte.", "model.layers.": "transformer.h.", "model.norm.": "transformer.ln_f.",
    "self_attn.o_proj": "self_attn.out_proj", "self_attn.": "attn.attention.", "input_layernorm.": "ln_1.",
    "post_attention_layernorm.": "ln_2.", "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1",
    "mlp.down_proj": "mlp.c_proj"}, "lara_mini": {"linear_attn.norm.": "linear_attn.out_norm."}, "sarvam_moe": {
        "model.embed_tokens.": "model.word_embeddings.", "self_attn.o_proj": "self_attn.dense",
        "self_attn.q_norm": "self_attn.query_layernorm", "self_attn.k_norm": "self_attn.key_layernorm",
        "self_attn.": "attention.", "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias"}}


def renamed(tensors, names):
    """The tensors with parts of their names replaced, in the order of `names`."""
    def new(name):
        for old, other in names.items():
            name = name.replace(old, other)
        return name

    return {new(name): array for name, array in tensors.items()}


def published_names(kind):
    return {**NAMES.get(kind, {}), **PUBLISHED.get(kind, {})}
