"""compare.py - how far two sets of logits are apart. numpy alone.

Used by: make_miniatures.py, compare_logits.py, test/commands/measure/test_logits.py.
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


# --- reference logits on disk: an .npz of `ids` [n], `rows` [r] (the positions that are kept; absent: all)
# and either `logits` fp32 [r][vocab], or for large vocabularies `high` and `low`, the two bytes of (row's
# maximum - logit) in units of 2^-10, one plane each since that compresses better. The latter is off by at
# most 2^-11: errors are uniform, of variance 2^-20 / 12, and add half of that, 4e-8, to a KL divergence.

UNIT = 2.0**-10


def save_reference(path, ids, rows, logits, packed=False, **more):
    arrays = {"ids": np.asarray(ids, np.int32), "rows": np.asarray(rows, np.int32), **more}
    if packed:
        below = np.rint((logits.max(axis=-1, keepdims=True) - logits.astype(np.float64)) / UNIT)
        if below.max() > 0xFFFF:
            raise ValueError(f"logits span {below.max() * UNIT:.0f}, expected less than {0x10000 * UNIT:.0f}")
        arrays["high"], arrays["low"] = (below // 256).astype(np.uint8), (below % 256).astype(np.uint8)
    else:
        arrays["logits"] = np.asarray(logits, np.float32)
    np.savez_compressed(path, **arrays)


def load_reference(path):
    """-> ids, rows, logits up to a constant in each row, and everything that is in the file"""
    with np.load(path) as file:
        arrays = dict(file)
    if "logits" in arrays:
        logits = arrays["logits"]
    else:
        logits = -UNIT * (arrays["high"].astype(np.float64) * 256 + arrays["low"])
    return arrays["ids"], arrays.get("rows", np.arange(len(arrays["ids"]))), logits, arrays


def report(reference, logits):
    """mean KL, largest KL, agreeing top tokens, decided rows"""
    distances = kl(reference, logits)
    return (float(distances.mean()), float(distances.max())) + top_agreement(reference, logits)
