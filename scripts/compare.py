"""compare.py - how far two sets of logits are apart. numpy alone.

Used by: make_miniatures.py, compare_logits.py, test/commands/test_logits.py.
"""

import numpy as np

MARGIN = 0.05  # where the reference's two best are closer than this, either may be the top token


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def kl(reference, logits):
    """KL(reference || logits) of each row, in nats. Rounding can leave it a little below zero."""
    p, q = log_softmax(reference), log_softmax(logits)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def top_agreement(reference, logits):
    """(rows where the reference is decided and both have the same top token, decided rows)"""
    two = np.partition(reference, -2, axis=-1)[:, -2:]
    decided = two[:, 1] - two[:, 0] >= MARGIN
    same = reference.argmax(axis=-1) == np.asarray(logits).argmax(axis=-1)
    return int((same & decided).sum()), int(decided.sum())
