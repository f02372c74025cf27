"""make_fuzz_seeds.py - writes the seeds of the fuzz targets that are made from committed checkpoints and templates.

usage: make_fuzz_seeds.py      from anywhere; writes test/fuzz/corpus/fuzz_{checkpoint,chat,...}
"""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "test" / "fuzz" / "corpus"
LAYOUTS = ["awq-symmetric", "awq-head", "gptq-symmetric", "gptq-8-v2", "gptq-phi3", "autoround-awq", "packed-4-128",
           "packed-8-channel", "packed-mixed", "int8-activations", "int8-weights", "nvfp4-packed",
           "modelopt-mixed", "mxfp4-packed", "fp8-blocks", "fp8-channel"]
MINIATURES = ["gemma3-layer-types", "gemma4-e", "granite-biases", "lfm2-awq", "llama-bf16", "qwen3_5"]

HI = '{"role": "user", "content": "Hi"}'
REGEXES = [r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
           r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t)?", r"(?:a|b){2,5}?(c++|d*+)(?=e)(?<!f)\b",
           r"[[:alpha:]&&[^a-f]]+|\x{41}|\h\R\X", r"(?<n>a)(?>b|bc)\Ac\z", "a|"]
TEXT = "It's 12 o'clock,\n\n  \u00c9t\u00e9 \u4e2d\u6587 abcabc \U0001f600"


def put(target, name, *parts):
    """Writes a seed: the parts, with NULs between them."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts))


def checkpoint(folder):
    """Config, header, and the sizes that compressed-tensors keeps as numbers."""
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = {name: it for name, it in json.loads(data[8:start]).items() if name != "__metadata__"}
    numbers = b""
    for it in header.values():
        begin, end = it["data_offsets"]
        if it["dtype"] == "I64":
            for at in range(begin, end, 8):
                numbers += struct.pack("<IH", at, struct.unpack_from("<q", data, start + at)[0])
    config = json.loads((folder / "config.json").read_text())
    put("fuzz_checkpoint", folder.name, json.dumps(config), json.dumps(header, separators=(",", ":")), numbers)


def main():
    for name in LAYOUTS:
        checkpoint(ROOT / "test" / "data" / "layouts" / name)
    for name in MINIATURES:
        checkpoint(ROOT / "test" / "data" / "miniatures" / name)
    for i, regex in enumerate(REGEXES):
        put("fuzz_regex", f"regex-{i}", regex, TEXT)

    template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}{% endfor %}"
    listed = {"bos_token": "<s>", "eos_token": {"content": "</s>"},
              "chat_template": [{"name": "default", "template": template},
                                {"name": "rag", "template": "R{{ messages }}"}]}
    put("fuzz_chat", "config", json.dumps({"eos_token": "</s>", "chat_template": template}), "", "", "", "")
    put("fuzz_chat", "list", json.dumps(listed), '{"eos_token": "</x>"}', "", "", "rag")
    put("fuzz_chat", "own-file", "", "", json.dumps({"chat_template": template}), "", "")
    put("fuzz_chat", "jinja", json.dumps({"eos_token": "</s>"}), "", "", template + "{{ raise_exception('x') }}", "")
    put("fuzz_chat", "built-in", "{}", "", "", "", "chatml")

    put("fuzz_conversation", "saved", json.dumps({"model": "m", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "reasoning_content": "So", "content": "Hello\n\u00e9"},
        {"role": "tool", "content": None}]}))
    put("fuzz_conversation", "list", f"[{HI}]")
    put("fuzz_npy", "shape", b"\x03\x05" + bytes(range(60)))

    put("fuzz_map", "lines", b"\x60<{}> {{}}", "one\r\ntwo\n\nthree\\n\n")
    put("fuzz_map", "texts", b"\x62{}", b"one\0two\n\0")
    put("fuzz_map", "members", b"\x01{a} {b.c} {}", '{"a": "x\\ny", "b.c": [1, "z"]}\n\n{"a": 1}\n"text"\n')
    put("fuzz_map", "itself", b"\x05", '{"prompt": "Hi", "id": 7}\n{"messages": [' + HI + ']}\n"Hi"\n')
    put("fuzz_map", "results", b"\x71{}", '{"index": 0, "input": "0123456789abcdef", "text": "x"}\n'
        '{"index": 1, "input": "0123456789abcdef", "error": "y"}\n{"index": 2, "in')
    put("fuzz_map", "limited", b"\x08{}", "a line that is longer than sixteen bytes\nshort\n")


if __name__ == "__main__":
    main()
