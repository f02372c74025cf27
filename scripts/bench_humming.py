"""bench_humming.py - times Humming's 4-bit matrix products (the package humming-kernels) on the layers of Qwen3-8B.

usage: bench_humming.py [ROWS,ROWS,...]      prints {"layer", "rows", "us"}, a JSON object a line, for rows_graph.py

Weights are random AWQ ones in groups of 128 and x is fp16, as in `auk bench --kernels`. Enough copies of the weights
are taken in turn that none of them is in L2. A time is the median of five replays of a graph of all copies, divided by
their number. Needs a GPU, PyTorch and humming-kernels.
"""
import json
import statistics
import sys

import torch
from humming.layer import HummingLayer

SHAPES = {"qkv": (4096, 6144), "o": (4096, 4096), "gate_up": (4096, 24576), "down": (12288, 4096)}  # inputs, outputs
GROUP, TURNED_BYTES = 128, 300_000_000
COUNTS = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096"


def random_layer(n_in, n_out):
    def words(*shape):
        return torch.randint(-2**31, 2**31 - 1, shape, dtype=torch.int32, device="cuda")

    layer = HummingLayer(shape_n=n_out, shape_k=n_in, torch_dtype=torch.float16, input_config=None, weight_config={
        "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}).cuda()
    layer.load_from_tensors({"qweight": words(n_in, n_out // 8), "qzeros": words(n_in // GROUP, n_out // 8),
                             "scales": (torch.rand(n_in // GROUP, n_out, device="cuda") * 0.01 + 0.001).half()})
    layer.transform()
    return layer


def microseconds(layers, x):
    for layer in layers[:2]:
        layer(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in layers:
            layer(x)
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(layers))
    return statistics.median(times[2:])  # the first two warm up


def main(counts=COUNTS):
    for name, (n_in, n_out) in SHAPES.items():
        layers = [random_layer(n_in, n_out) for _ in range(max(2, min(40, TURNED_BYTES * 2 // (n_in * n_out))))]
        for rows in map(int, counts.split(",")):
            x = torch.randn(rows, n_in, device="cuda").half()
            print(json.dumps({"layer": name, "rows": rows, "us": round(microseconds(layers, x), 2)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
