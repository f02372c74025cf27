#!/usr/bin/env python3
"""make_logits.py - the last logits of each miniature's reference.npz as text, for test/cpu/test_miniatures.c.

    python3 scripts/make_logits.py > test/data/logits.txt

For each miniature a line `NAME N_TOKENS VOCAB_SIZE`, a line with the ids, and one with the logits after the last of
them. Needs numpy.
"""

import os

import compare

MINIATURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "data", "miniatures")

for name in sorted(os.listdir(MINIATURES)):
    ids, _, logits, _ = compare.load_reference(os.path.join(MINIATURES, name, "reference.npz"))
    assert logits.shape[0] == len(ids), f"{name} has logits of some positions only"
    print(name, *logits.shape)
    print(*ids)
    print(*(f"{logit:.5g}" for logit in logits[-1]))
