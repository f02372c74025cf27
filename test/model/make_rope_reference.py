"""make_rope_reference.py - writes rope_reference.h: transformers' rotary frequencies for each kind.

usage: make_rope_reference.py > rope_reference.h

Needs transformers (5.23) and torch. Each case is the text of a config.json; its frequencies are those of the
architecture's own rotary embedding on a CPU, in fp32, written as hexadecimal floats: exact.
"""
import json

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
# As Phi-4-mini has it: three quarters of each head are turned.
PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 96, "num_attention_heads": 6,
        "num_key_value_heads": 2, "partial_rotary_factor": 0.75, "max_position_embeddings": 131072, "pad_token_id": 0,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.05, 1.3, 1.9, 2.0, 2.2],
                         "long_factor": [1.0, 1.1182, 4.7, 18.6, 31.1, 47.77]}}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}

CASES = [
    {**LLAMA, "head_dim": 2},
    {**LLAMA, "hidden_size": 2048},
    {**LLAMA, "head_dim": 80, "rope_theta": 12345.678},
    {**QWEN3, "rope_theta": 1000000},
    {**QWEN3, "head_dim": 256, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0}},
    {**LLAMA, "head_dim": 64, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {**LLAMA, "head_dim": 96, "rope_scaling": {"rope_type": "linear", "factor": 2.7}, "rope_theta": 500000.0},
    # Llama 3.2 1B and Llama 3.1 8B
    {**LLAMA, "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 500000.0,
     "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 8192, "rope_type": "llama3"}},
    {**LLAMA, "head_dim": 128, "max_position_embeddings": 131072,
     "rope_parameters": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "rope_type": "llama3", "original_max_position_embeddings": 8192,
                         "rope_theta": 500000.0}},
    # Qwen's yarn, in the spellings of old and new transformers
    {**QWEN3, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
     "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    {**QWEN3, "head_dim": 64, "max_position_embeddings": 32768,
     "rope_parameters": {"rope_type": "yarn", "factor": 3.5, "rope_theta": 1000000.0}},
    {**QWEN3, "head_dim": 64, "max_position_embeddings": 4096, "original_max_position_embeddings": 1024,
     "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}},
    {**LLAMA, "head_dim": 64, "rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 0.707,
     "mscale_all_dim": 0.5, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}},
    {**LLAMA, "head_dim": 96, "rope_scaling": {"rope_type": "yarn", "factor": 10.5, "truncate": False,
     "attention_factor": 1.3, "original_max_position_embeddings": 2000, "beta_fast": 24.5, "beta_slow": 2}},
    # ramps of no width, and of a negative one
    {**LLAMA, "head_dim": 16, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
     "original_max_position_embeddings": 6}},
    {**LLAMA, "head_dim": 16, "rope_scaling": {"rope_type": "yarn", "factor": 0.5, "beta_fast": 1,
     "beta_slow": 64, "original_max_position_embeddings": 2048}},
    # a ramp that ends beyond the last pair that there could be: beta_slow's is the 18th of 16
    {**LLAMA, "head_dim": 16, "rope_theta": 100.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
     "beta_fast": 2000, "beta_slow": 1, "original_max_position_embeddings": 131072}},
    PHI3,
    {**PHI3, "long_text": True},
    {**PHI3, "rope_theta": 250000.0, "original_max_position_embeddings": 8192, "long_text": True,
     "rope_scaling": {**PHI3["rope_scaling"], "type": "su", "factor": 7.5,
                      "original_max_position_embeddings": 8192}},
    {**PHI3, "partial_rotary_factor": None, "hidden_size": 72,
     "rope_scaling": {**PHI3["rope_scaling"], "rope_type": "longrope", "attention_factor": 1.19}},
    {**PHI3, "rope_scaling": {}},
    {**LLAMA, "head_dim": 4, "max_position_embeddings": 65536, "long_text": True, "rope_parameters": {
        "rope_type": "longrope", "original_max_position_embeddings": 2048, "short_factor": [1, 2],
        "long_factor": [3, 4.5], "rope_theta": 500000.0}},
]


def frequencies(case):
    rotary = {"LlamaForCausalLM": LlamaRotaryEmbedding, "Qwen3ForCausalLM": Qwen3RotaryEmbedding,
              "Phi3ForCausalLM": Phi3RotaryEmbedding}
    case = {key: value for key, value in case.items() if value is not None}
    long_text = case.pop("long_text", False)
    # transformers takes parts of its argument over and changes them
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(case)))
    if long_text:
        length = config.rope_parameters["original_max_position_embeddings"] + 1
        values, attention = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=length)
        return values.tolist(), attention
    embedding = rotary[case["architectures"][0]](config)
    assert embedding.inv_freq.dtype == torch.float32
    return embedding.inv_freq.tolist(), embedding.attention_scaling


def main():
    versions = f"transformers {transformers.__version__} and torch {torch.__version__.split('+')[0]}"
    print(f"/* rope_reference.h - rotary frequencies by {versions};")
    print(" * written by make_rope_reference.py. */")
    print("/* clang-format off */")
    print("static const struct {\n  const char *config;\n  int long_text;\n  float attention_factor;\n  int n;")
    print("  float frequencies[128];\n} rope_references[] = {")
    for case in CASES:
        values, attention = frequencies(case)
        text = json.dumps({key: value for key, value in case.items() if key != "long_text"}).replace('"', '\\"')
        lines = [text[i:i + 100] for i in range(0, len(text), 100)]
        for i in range(len(lines) - 1):  # an escape stays whole
            if lines[i].endswith("\\"):
                lines[i], lines[i + 1] = lines[i][:-1], "\\" + lines[i + 1]
        print("  {" + "\n   ".join(f'"{line}"' for line in lines) + ",")
        print(f"   {int(case.get('long_text', False))}, {float(attention).hex()}, {len(values)},")
        hexes = [value.hex().replace("0000000p", "p") for value in values]
        for i in range(0, len(hexes), 5):
            begin, end = "{" if i == 0 else " ", "}}," if i + 5 >= len(hexes) else ","
            print("   " + begin + ", ".join(hexes[i:i + 5]) + end)
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
