#!/usr/bin/env python3
"""train_drafter.py - trains an EAGLE-3 drafter for a small model of Llama's kind, from text that the model writes.

    python3 scripts/train_drafter.py MODEL OUT [--auk build/auk] [--prompts 600] [--tokens 120] [--vocab 8192]
                                     [--minutes 15] [--threads 2] [--text FILE]

MODEL is a Hugging Face directory (the demo model: models/smollm2-135m-awq), OUT a new folder for the drafter, which
`auk -m MODEL --draft OUT` takes. First auk answers prompts made of phrases below (half of them with --temp 0), with
--text that many lines of JSON are read in place of this (`auk --map ... --json`); then transformers computes the
hidden states of the texts in fp32, and for --minutes one layer is trained with Adam to give the model's own
probabilities of the --vocab commonest tokens: of the next token, and twice more from its own state, as EAGLE-3's
authors do (arXiv 2503.01840, "training-time test"). At the end it prints how often the layer's likeliest token was the
model's, over texts held back from training. Needs numpy, torch and transformers 5; seeded, but not to the bit the same
on other machines.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch.nn import functional

import checkpoint
import reference

TASKS = ["Explain {} in a few sentences.", "Write a short story about {}.", "What are the advantages of {}?",
         "Give me three facts about {}.", "Write an email about {} to a colleague.", "How does {} work?",
         "Make a list of things to know about {}.", "Summarise what you know about {}.", "Compare {} with {}.",
         "Write a poem about {}.", "What is the history of {}?", "Plan a day with {}.", "Why do people like {}?",
         "Describe {} to a child.", "Write a Python function that has to do with {}."]
TOPICS = ["the sea", "bicycles", "photosynthesis", "a lost dog", "cheese", "the Roman Empire", "sorting numbers",
          "rain", "chess", "a train journey", "gardens", "the moon", "electric cars", "bread", "libraries", "whales",
          "a birthday party", "mathematics", "mountains", "coffee", "friendship", "the human heart", "volcanoes",
          "music", "computers", "winter", "a small village", "exercise", "honey bees", "money", "sleep", "islands",
          "painting", "prime numbers", "text files", "football", "tea", "a wise old man", "robots", "languages"]
STEPS = 3  # guesses in a row that are trained
LENGTH = 192  # tokens of a text


def prompts(n):
    rng = random.Random(1)
    pairs = list(itertools.product(TASKS, TOPICS))
    rng.shuffle(pairs)
    return [task.format(topic, rng.choice(TOPICS)) for task, topic in itertools.islice(itertools.cycle(pairs), n)]


def write_texts(args):
    """[n] lists of ids: prompt in the chat template, then the model's answer."""
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        for half, flags in enumerate((["--temp", "0"], ["--temp", "0.7", "-s", "1"])):
            path = os.path.join(folder, "prompts")
            mine = prompts(args.prompts)[half::2]
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(mine) + "\n")
            lines = subprocess.run([args.auk, "-m", args.model, "--map", path, "-p", "{}", "--json", "-n",
                                    str(args.tokens), "-t", str(args.threads), "--device", "cpu", *flags],
                                   check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
            texts += list(zip(mine, (json.loads(line)["text"] for line in lines)))
    return texts


def lines_of(args, command, objects, key):
    """Member `key` of the line of JSON with which `auk COMMAND` answers each object."""
    text = "".join(json.dumps(each) + "\n" for each in objects)
    out = subprocess.run([args.auk, *command, "-m", args.model], input=text.encode(), check=True,
                         stdout=subprocess.PIPE).stdout
    return [json.loads(line)[key] for line in out.splitlines()]


def encode(args, texts):
    turns = [{"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]}
             for prompt, answer in texts]
    rendered = lines_of(args, ["template"], turns, "rendered")
    ids = lines_of(args, ["tokenize", "--jsonl"], [{"text": text, "add_special": False} for text in rendered], "ids")
    return [each[:LENGTH] for each in ids]


class Layer(torch.nn.Module):
    """EAGLE-3's: names as in its checkpoints."""

    def __init__(self, config, vocab):
        super().__init__()
        hidden, dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.heads, self.kv_heads, self.dim, self.eps = heads, kv_heads, dim, config.rms_norm_eps

        def linear(n_in, n_out):
            return torch.nn.Linear(n_in, n_out, bias=False)
        self.fc, self.lm_head = linear(3 * hidden, hidden), linear(hidden, vocab)
        self.q, self.k, self.v = (linear(2 * hidden, n * dim) for n in (heads, kv_heads, kv_heads))
        self.o, self.gate = linear(heads * dim, hidden), linear(hidden, config.intermediate_size)
        self.up, self.down = linear(hidden, config.intermediate_size), linear(config.intermediate_size, hidden)
        self.norms = torch.nn.ParameterDict({name: torch.ones(hidden) for name in
                                             ("input_layernorm", "hidden_norm", "post_attention_layernorm", "norm")})
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        self.frequencies = theta ** (-torch.arange(0, dim, 2).float() / dim)
        self.theta = float(theta)

    def normed(self, name, x):
        return functional.rms_norm(x, x.shape[-1:], self.norms[name], self.eps)

    def turned(self, x, positions):
        angles = positions[:, None].float() * self.frequencies
        cosines, sines = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
        half = x.shape[-1] // 2
        return x * cosines + torch.cat([-x[..., half:], x[..., :half]], -1) * sines

    def forward(self, embeddings, states, step, cache):
        """One step of all rows [batch][n][hidden]. cache: keys and values of the steps before. A row sees all rows
        of the first step up to its own, and of later steps only its own chain."""
        batch, n, _ = states.shape
        x = torch.cat([self.normed("input_layernorm", embeddings), self.normed("hidden_norm", states)], -1)
        positions = torch.arange(n) + step
        group = self.heads // self.kv_heads
        q = self.turned(self.q(x).view(batch, n, self.heads, self.dim), positions)
        k = self.turned(self.k(x).view(batch, n, self.kv_heads, self.dim), positions).repeat_interleave(group, 2)
        v = self.v(x).view(batch, n, self.kv_heads, self.dim).repeat_interleave(group, 2)
        cache.append((k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, cache[0][0]) / self.dim**0.5
        scores = scores + torch.full((n, n), -torch.inf).triu(1)
        own = [torch.einsum("bihd,bihd->bhi", q, key)[..., None] / self.dim**0.5 for key, _ in cache[1:]]
        p = torch.cat([scores, *own], -1).softmax(-1)
        out = torch.einsum("bhij,bjhd->bihd", p[..., :n], cache[0][1])
        for i, (_, value) in enumerate(cache[1:]):
            out = out + p[..., n + i].transpose(1, 2)[..., None] * value
        x = states + self.o(out.reshape(batch, n, -1))
        h = self.normed("post_attention_layernorm", x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


def states_of(model, texts, layers):
    """For each text: states after these layers side by side, and the last normed one, as fp16."""
    made = []
    with torch.no_grad():
        for ids in texts:
            hidden = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True,
                           logits_to_keep=1).hidden_states
            made.append((torch.cat([hidden[i][0] for i in layers], -1).half(), hidden[-1][0].half()))
    return made


def losses(layer, model_embedding, model_head, ids, aux, last):
    """The loss of each step, and how often the likeliest token is the model's. ids [batch][n], aux and last of the
    same tokens; rows are those with STEPS + 1 tokens after them."""
    n = ids.shape[1] - STEPS - 1
    states, cache, made = layer.fc(aux[:, :n]), [], []
    for step in range(STEPS):
        states = layer(model_embedding[ids[:, step + 1:step + 1 + n]], states, step, cache)
        logits = layer.lm_head(layer.normed("norm", states))
        with torch.no_grad():
            wanted = (last[:, step + 1:step + 1 + n] @ model_head.T).softmax(-1)
        made.append((-(wanted * logits.log_softmax(-1)).sum(-1).mean(),
                     (logits.argmax(-1) == wanted.argmax(-1)).float().mean().item()))
    return made


def train(args, layer, embedding, head, texts, states):
    rng = np.random.default_rng(2)
    held, batch = max(8, len(texts) // 20), 8
    order = np.argsort([len(ids) for ids in texts])
    longest = [i for i in order if len(texts[i]) >= 48]
    rng.shuffle(longest)
    test, mine = longest[:held], longest[held:]
    if len(mine) < batch:
        sys.exit(f"{len(texts)} texts are too few: {held} are held back, and a step takes {batch} of at least 48 "
                 "tokens")
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    start, steps = time.process_time(), 0

    def some(indices):
        n = min(len(texts[i]) for i in indices)
        return (torch.tensor([texts[i][:n] for i in indices]), torch.stack([states[i][0][:n] for i in indices]).float(),
                torch.stack([states[i][1][:n] for i in indices]).float())
    while (used := (time.process_time() - start) / 60 / args.threads) < args.minutes:
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1, (steps + 1) / 20) * (1 - used / args.minutes)
        made = losses(layer, embedding, head, *some(rng.choice(mine, batch, replace=False)))
        loss = sum(0.8**i * one for i, (one, _) in enumerate(made))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimiser.step()
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps}, {used:.1f} minutes: loss {loss.item():.2f}, right {[round(r, 2) for _, r in made]}",
                  flush=True)
    with torch.no_grad():
        right = np.mean([[r for _, r in losses(layer, embedding, head, *some([i]))] for i in test], axis=0)
    print(f"{steps} steps; of texts held back, the likeliest token is the model's: "
          + ", ".join(f"guess {i + 1} {r:.0%}" for i, r in enumerate(right)))


def save(args, layer, config, chosen, vocab):
    hidden = config.hidden_size
    made = {"fc.weight": layer.fc, "lm_head.weight": layer.lm_head}
    made.update({f"midlayer.self_attn.{name}_proj.weight": getattr(layer, name) for name in "qkvo"})
    made.update({f"midlayer.mlp.{name}_proj.weight": getattr(layer, name) for name in ("gate", "up", "down")})
    tensors = {name: linear.weight.detach().numpy().astype(np.float16) for name, linear in made.items()}
    for name, weight in layer.norms.items():
        whole = "norm.weight" if name == "norm" else f"midlayer.{name}.weight"
        tensors[whole] = weight.detach().numpy().astype(np.float16)
    tensors["d2t"] = (chosen - np.arange(len(chosen))).astype(np.int64)
    tensors["t2d"] = np.isin(np.arange(vocab), chosen)
    os.makedirs(args.out, exist_ok=True)
    checkpoint.write_safetensors(os.path.join(args.out, "model.safetensors"), tensors)
    checkpoint.write_json(os.path.join(args.out, "config.json"), {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": config.intermediate_size, "num_hidden_layers": 1,
        "num_attention_heads": layer.heads, "num_key_value_heads": layer.kv_heads, "head_dim": layer.dim,
        "vocab_size": vocab, "draft_vocab_size": len(chosen), "rms_norm_eps": layer.eps, "rope_theta": layer.theta,
        "max_position_embeddings": config.max_position_embeddings, "tie_word_embeddings": False,
        "torch_dtype": "float16"})


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--auk", default="build/auk")
    parser.add_argument("--text")
    for name, value in (("prompts", 600), ("tokens", 120), ("vocab", 8192), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--minutes", type=float, default=15)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            texts = [tuple(json.loads(line)) for line in file]
    else:
        texts = write_texts(args)
    texts = encode(args, texts)
    print(f"{len(texts)} texts of {sum(map(len, texts))} tokens", flush=True)
    model = reference.load(args.model)
    config, depth = model.config, model.config.num_hidden_layers
    states = states_of(model, texts, (2, depth // 2, depth - 3))
    embedding = model.get_input_embeddings().weight.detach()
    vocab = embedding.shape[0]
    counts = np.bincount(np.concatenate(texts), minlength=vocab)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:args.vocab])
    print(f"{args.vocab} tokens are {counts[chosen].sum() / counts.sum():.2%} of the texts", flush=True)
    head = model.get_output_embeddings().weight.detach()[torch.from_numpy(chosen)]
    layer = Layer(config, args.vocab)
    with torch.no_grad():
        layer.lm_head.weight.copy_(head)
        hidden = config.hidden_size  # begins as the last of the states
        layer.fc.weight.zero_()
        layer.fc.weight[:, 2 * hidden:] = torch.eye(hidden)
    train(args, layer, embedding, head, texts, states)
    save(args, layer, config, chosen, vocab)


if __name__ == "__main__":
    sys.exit(main())
