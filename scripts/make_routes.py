#!/usr/bin/env python3
"""make_routes.py - the experts that transformers chooses in the miniatures with experts, for test/cpu/test_routes.c.

    python3 scripts/make_routes.py [NAME...]

Writes test/data/routes.txt, with NAMEs only their rows of it. For each miniature a line `NAME N_TOKENS N_CHOSEN
N_LAYERS`, a line with the ids of its reference.npz, and for each layer with experts a line with its number and the
experts of each token, ascending; -1 in place of all of a token's where what decides, a router's logit or with a bias of
the choice a score, is within 1e-4 of the next one's, so that rounding may choose either. Needs numpy, torch,
transformers 5.
"""

import io
import os
import sys

import numpy as np
import torch

import checkpoint
import compare
import miniature_shapes
import reference

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "data")
MINIATURES = os.path.join(DATA, "miniatures")
ROUTES = os.path.join(DATA, "routes.txt")
NEAR = 1e-4
ROUTERS = ("TopKRouter", "TopkRouter", "TextRouter", "TokenChoiceRouter", "MoEV1Gate", "Llama4Router")


def scores_of(router, outputs, arguments):
    """The numbers by which experts are chosen, larger is better: logits, or scores with the bias of the choice."""
    logits = outputs[0].double()
    if (logits >= 0).all() and torch.allclose(logits.sum(dim=-1), torch.ones(1).double(), atol=1e-5):
        logits = logits.log()
    biases = [value for name, value in [*router.named_buffers(), *router.named_parameters()]
              if "correction_bias" in name]
    biases += [value for value in arguments[1:] if isinstance(value, torch.Tensor)]
    kind = type(router).__name__
    if kind.startswith("Mistral4"):  # scores of a group are added
        return logits.softmax(dim=-1)
    if not biases:
        return logits
    scores = (logits.softmax(dim=-1) if kind.startswith("Ernie") else logits if kind.startswith("Kolibri") else
              logits.sigmoid())
    return scores + biases[0].reshape(-1).double()


def margins(scores, config, n_chosen):
    """By how much each token's choice is decided, and the experts that these scores choose."""
    n_groups = getattr(config, "n_group", None) or 1
    if getattr(config, "topk_method", None) == "greedy":
        n_groups = 1
    groups = scores.reshape(len(scores), n_groups, -1)
    margin = torch.full((len(scores),), np.inf, dtype=torch.float64)
    if n_groups > 1:
        # DeepSeek-V2's groups are as good as their best score, and log() keeps the order of scores.
        best = groups.topk(1 if config.model_type == "deepseek_v2" else 2, dim=-1).values.sum(dim=-1)
        order = best.sort(dim=-1, descending=True)
        margin = order.values[:, config.topk_group - 1] - order.values[:, config.topk_group]
        dropped = torch.ones_like(best, dtype=torch.bool).scatter(1, order.indices[:, :config.topk_group], False)
        scores = groups.masked_fill(dropped[..., None], -np.inf).reshape(scores.shape)
    order = scores.sort(dim=-1, descending=True)
    return (torch.minimum(margin, order.values[:, n_chosen - 1] - order.values[:, n_chosen]),
            order.indices[:, :n_chosen].sort(dim=-1).values)


def routes(model, ids):
    """layer -> (ids of the experts [n_tokens][n_chosen], margins [n_tokens])"""
    config, found = model.config.get_text_config(), {}

    def note(layer):
        def hook(router, arguments, outputs):
            if len(outputs) == 2:  # Llama 4: scores, 0 of what is not chosen, and logits
                outputs = (outputs[1], None, outputs[0].topk(router.top_k).indices)
            chosen = outputs[2].sort(dim=-1).values
            margin, expected = margins(scores_of(router, outputs, arguments), config, chosen.shape[-1])
            decided = margin > NEAR
            assert (chosen == expected)[decided].all(), (layer, type(router).__name__)
            found[layer] = chosen, margin
        return hook

    for name, module in model.named_modules():
        if type(module).__name__.endswith(ROUTERS):
            layer = int(name.split("layers.")[1].split(".")[0])
            module.register_forward_hook(note(layer))
    reference.logits(model, ids)
    return found


def rows_of(name):
    """The lines of a miniature; none if it has no experts."""
    directory, out = os.path.join(MINIATURES, name), io.StringIO()
    config = miniature_shapes.text_of(checkpoint.read_json(os.path.join(directory, "config.json")))
    if not any(miniature_shapes.has_experts(config, layer) for layer in range(config["num_hidden_layers"])):
        return ""
    ids = compare.load_reference(os.path.join(directory, "reference.npz"))[0]
    found = routes(reference.load(directory), ids)
    print(name, len(ids), next(iter(found.values()))[0].shape[-1], len(found), file=out)
    print(*ids, file=out)
    for layer, (chosen, margin) in sorted(found.items()):
        chosen[margin <= NEAR] = -1
        print(layer, *chosen.flatten().tolist(), file=out)
    return out.getvalue()


def stored_rows():
    """name -> the lines of the file"""
    stored = {}
    with open(ROUTES, encoding="ascii") as file:
        for line in file:
            name = line.split()[0] if line[0].isalpha() else name
            stored[name] = stored.get(name, "") + line
    return stored


def main(*names):
    rows = stored_rows() if names else {}
    rows.update({name: rows_of(name) for name in names or os.listdir(MINIATURES)})
    with open(ROUTES, "w", encoding="ascii") as file:
        file.writelines(rows[name] for name in sorted(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
