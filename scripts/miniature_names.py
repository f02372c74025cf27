"""miniature_names.py - names of tensors that differ from those of transformers' Llama. Used by: make_miniatures.py,
miniature_experts.py."""

# Names where those of Llama are others, in checkpoints and in transformers, and in checkpoints alone.
BIG = {"mlp.up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h"}
FC = {"mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
GPT2 = {"model.": "transformer.", "embed_tokens.": "wte.", "transformer.norm.": "transformer.ln_f.", ".layers.": ".h.",
        "self_attn.query_key_value": "attn.c_attn", "self_attn.o_proj": "attn.c_proj", "input_layernorm.": "ln_1.",
        "post_attention_layernorm.": "ln_2.", "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}
NAMES = {"phi": {"self_attn.o_proj": "self_attn.dense", "model.norm.": "model.final_layernorm.", **FC}, "nanochat": FC,
         "gpt_neox": {
             "model.": "gpt_neox.", "embed_tokens.": "embed_in.", "gpt_neox.norm.": "gpt_neox.final_layer_norm.",
             "self_attn.o_proj": "attention.dense", "self_attn.": "attention.", **BIG},
         "falcon": {
             "model.": "transformer.", "embed_tokens.": "word_embeddings.", "transformer.norm.": "transformer.ln_f.",
             ".layers.": ".h.", "self_attn.o_proj": "self_attention.dense", "self_attn.": "self_attention.", **BIG},
         "gpt2": GPT2, "gpt_bigcode": GPT2,
         "starcoder2": {"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}}
PUBLISHED = {"gpt_neox": {"lm_head.": "embed_out."},
             "gpt2": {f"transformer.{part}.": f"{part}." for part in ("wte", "wpe", "h", "ln_f")}, "exaone": {
    "model.embed_tokens.": "transformer.wte.", "model.layers.": "transformer.h.", "model.norm.": "transformer.ln_f.",
    "self_attn.o_proj": "self_attn.out_proj", "self_attn.": "attn.attention.", "input_layernorm.": "ln_1.",
    "post_attention_layernorm.": "ln_2.", "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1",
    "mlp.down_proj": "mlp.c_proj"}, "molmo2_text": {
    "model.embed_tokens.weight": "model.transformer.wte.embedding", "model.layers.": "model.transformer.blocks.",
    "model.norm.": "model.transformer.ln_f.", "self_attn.o_proj": "self_attn.attn_out",
    "input_layernorm.": "attn_norm.", "post_attention_layernorm.": "ff_norm.", "mlp.down_proj": "mlp.ff_out"},
             "lara_mini": {"linear_attn.norm.": "linear_attn.out_norm."}, "sarvam_moe": {
        "model.embed_tokens.": "model.word_embeddings.", "self_attn.o_proj": "self_attn.dense",
        "self_attn.q_norm": "self_attn.query_layernorm", "self_attn.k_norm": "self_attn.key_layernorm",
        "self_attn.": "attention.", "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias"}}


def named(name, names):
    """The name with parts of it replaced, in the order of `names`."""
    for old, other in names.items():
        name = name.replace(old, other)
    return name


def renamed(tensors, names):
    return {named(name, names): array for name, array in tensors.items()}


def published_names(kind):
    return {**NAMES.get(kind, {}), **PUBLISHED.get(kind, {})}
