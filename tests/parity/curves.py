"""Losses of the first 20 steps of the samples, trained by PyTorch in double from Cleave's own initial parameters and order
of samples (both from Philox, see philox.py). Each entry has the arguments with which the sample trains in the same way.

The digits come from samples/data/digits; the text is the LICENSE file.
"""
import gzip
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from philox import fnv1a64, normal, uniform, words

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED, STEPS = 1, 20


def shuffled_order(count, seed, epoch):
    """The same order as runtime/data/Shuffle.cpp."""
    block = words(seed ^ fnv1a64("cleave.data.order"), epoch, 4 * count).reshape(-1, 4)
    bits = [(int(w[1]) << 32) | int(w[0]) for w in block]
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = bits[i] * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return np.array(order)


class Parameters:
    """Draws each parameter by its Cleave name. `all` is for the optimizer."""

    def __init__(self):
        self.all = {}

    def make(self, name, shape, values):
        tensor = torch.from_numpy(np.asarray(values, dtype=np.float32).reshape(shape)).double()
        self.all[name] = torch.nn.Parameter(tensor)
        return self.all[name]

    def uniform(self, name, shape, bound):
        u = uniform(SEED ^ fnv1a64(name), 0, math.prod(shape))
        return self.make(name, shape, -bound + 2 * bound * u)

    def normal(self, name, shape, deviation):
        return self.make(name, shape, deviation * normal(SEED ^ fnv1a64(name), 1, math.prod(shape)))

    def constant(self, name, shape, value):
        return self.make(name, shape, np.full(shape, value))

    def linear(self, name, n_in, n_out):
        bound = 1 / math.sqrt(n_in)
        return self.uniform(name + ".weight", [n_out, n_in], bound), self.uniform(name + ".bias", [n_out], bound)


def digits():
    def idx(name, header):
        raw = gzip.open(ROOT / "samples/data/digits" / f"{name}.gz").read()
        return np.frombuffer(raw, np.uint8, offset=header)

    images = idx("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    x = (images.astype(np.float32) / np.float32(255)).astype(np.float64)
    return torch.from_numpy(x), torch.from_numpy(idx("train-labels-idx1-ubyte", 8).astype(np.int64))


def windows(context):
    text = np.frombuffer((ROOT / "LICENSE").read_bytes(), np.uint8)
    train = text[: len(text) * 9 // 10].astype(np.int64)
    count = (len(train) - 1) // context
    starts = np.arange(count)[:, None] * context + np.arange(context)[None, :]
    return torch.from_numpy(train[starts]), torch.from_numpy(train[starts + 1])


def clip(parameters, most):
    """Scales gradients so that their norm is at most `most`."""
    norm = math.sqrt(sum((p.grad**2).sum().item() for p in parameters))
    for p in parameters:
        p.grad *= min(1.0, most / norm)


def train(parameters, forward, optimizer, x, y, batch, microbatches, most=None):
    order = shuffled_order(len(x), SEED, 1)
    losses = []
    for step in range(STEPS):
        rows = order[step * batch : (step + 1) * batch]
        optimizer.zero_grad()
        total = 0.0
        for part in np.split(rows, microbatches):
            logits, labels = forward(x[part]), y[part]
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="sum")
            loss = loss / y[rows].numel()
            loss.backward()
            total += loss.item()
        if most:
            clip(parameters.all.values(), most)
        optimizer.step()
        losses.append(float(f"{total:.9g}"))
    return losses


def mlp():
    p = Parameters()
    widths = [784, 512, 512, 10]
    layers = [p.linear(f"layers.{i}", widths[i], widths[i + 1]) for i in range(3)]

    def forward(image):
        x = image.flatten(1)
        for i, (weight, bias) in enumerate(layers):
            x = F.linear(x.relu() if i else x, weight, bias)
        return x

    optimizer = torch.optim.SGD(p.all.values(), 0.05, momentum=0.9)
    return {"program": "mlp", "data": "digits", "arguments": ["--batch", "48", "--seed", str(SEED)],
            "losses": train(p, forward, optimizer, *digits(), 48, 1)}


def margin(x):
    """How far values [n, c, h, w] are from another decision of a ReLU or of max-pooling behind it. Equal values of a
    window are no decision."""
    windows = F.unfold(x.detach().flatten(0, 1).unsqueeze(1), 2, stride=2)
    first, second = windows.topk(2, dim=1).values.unbind(1)
    gaps = (first - second)[first > 0]
    return min(first.abs().min(), gaps[gaps > 1e-12].min()).item()


def convnet():
    p = Parameters()
    margins = []

    def block(name, n_in, n_out):
        bound = 1 / math.sqrt(n_in * 25)
        weight = p.uniform(f"{name}.conv.weight", [n_out, n_in, 5, 5], bound)
        bias = p.uniform(f"{name}.conv.bias", [n_out], bound)
        scale, shift = p.constant(f"{name}.norm.weight", [n_out], 1.0), p.constant(f"{name}.norm.bias", [n_out], 0.0)

        def forward(x):
            x = F.batch_norm(F.conv2d(x, weight, bias, padding=2), None, None, scale, shift, True, 0.1, 1e-5)
            margins.append(margin(x))
            return F.max_pool2d(x.relu(), 2)

        return forward

    block1, block2, fc = block("block1", 1, 16), block("block2", 16, 32), p.linear("fc", 32 * 7 * 7, 10)
    optimizer = torch.optim.Adam(p.all.values(), 0.001)
    arguments = ["--batch", "48", "--microbatches", "2", "--seed", str(SEED)]
    forward = lambda image: F.linear(block2(block1(image)).flatten(1), *fc)
    losses = train(p, forward, optimizer, *digits(), 48, 2)
    # Adam divides a gradient by its size: one decision that rounding changes in the first step can change the second loss
    # by 1e-5. compare_curves.py tolerates that only in later steps.
    assert min(margins[:4]) > 1e-5, "another seed is needed: a decision of the first step is close"
    return {"program": "convnet", "data": "digits", "arguments": arguments, "losses": losses}


def gpt():
    layers, width, heads, context, vocab = 4, 64, 4, 32, 128
    p = Parameters()

    def linear(name, n_in, n_out, scale=1.0):
        return p.normal(name + ".weight", [n_out, n_in], 0.02 * scale), p.constant(name + ".bias", [n_out], 0.0)

    def norm(name):
        weight, bias = p.constant(name + ".weight", [width], 1.0), p.constant(name + ".bias", [width], 0.0)
        return lambda x: F.layer_norm(x, (width,), weight, bias, 1e-5)

    def block(name):
        residual = 1 / math.sqrt(2 * layers)
        norm1, norm2 = norm(name + ".norm1"), norm(name + ".norm2")
        qkv = linear(name + ".attention.qkv", width, 3 * width)
        projection = linear(name + ".attention.projection", width, width, residual)
        up, down = linear(name + ".mlp.up", width, 4 * width), linear(name + ".mlp.down", 4 * width, width, residual)

        def attention(x):
            b, t, _ = x.shape
            q, k, v = F.linear(x, *qkv).reshape(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return F.linear(mixed.transpose(1, 2).reshape(b, t, width), *projection)

        def forward(x):
            x = x + attention(norm1(x))
            return x + F.linear(F.gelu(F.linear(norm2(x), *up), approximate="tanh"), *down)

        return forward

    embed, positions = p.normal("embed.weight", [vocab, width], 0.02), p.normal("positions.weight", [context, width], 0.02)
    blocks, last = [block(f"blocks.{i}") for i in range(layers)], norm("norm")

    def forward(tokens):
        x = F.embedding(tokens, embed) + positions
        for one in blocks:
            x = one(x)
        return F.linear(last(x), embed)

    optimizer = torch.optim.AdamW(p.all.values(), 0.001, weight_decay=0.01)
    arguments = ["--layers", "4", "--width", "64", "--heads", "4", "--context", "32", "--batch", "12", "--seed", str(SEED)]
    return {"program": "gpt", "data": "text", "arguments": arguments,
            "losses": train(p, forward, optimizer, *windows(context), 12, 1)}


def layer_norm(p, name, width):
    weight, bias = p.constant(name + ".weight", [width], 1.0), p.constant(name + ".bias", [width], 0.0)
    return lambda x: F.layer_norm(x, (width,), weight, bias, 1e-5)


def vit():
    layers, width, heads, patch = 2, 32, 2, 7
    across = 28 // patch
    p = Parameters()

    def block(name):
        norm1 = layer_norm(p, name + ".norm1", width)
        w_in = p.uniform(name + ".attention.in_proj_weight", [3 * width, width], math.sqrt(6 / (4 * width)))
        w_out = p.uniform(name + ".attention.out_proj.weight", [width, width], 1 / math.sqrt(width))
        b_out = p.constant(name + ".attention.out_proj.bias", [width], 0.0)
        b_in = p.constant(name + ".attention.in_proj_bias", [3 * width], 0.0)
        norm2 = layer_norm(p, name + ".norm2", width)
        up, down = p.linear(name + ".mlp.0", width, 4 * width), p.linear(name + ".mlp.2", 4 * width, width)

        def attention(x):
            return F.multi_head_attention_forward(
                *[x.transpose(0, 1)] * 3, width, heads, w_in, b_in, None, None, False, 0.0, w_out, b_out,
                need_weights=False)[0].transpose(0, 1)

        def forward(x):
            x = x + attention(norm1(x))
            return x + F.linear(F.gelu(F.linear(norm2(x), *up)), *down)

        return forward

    embed, positions = p.linear("embed", patch**2, width), p.normal("positions", [across**2, width], 0.02)
    blocks, last, head = [block(f"blocks.{i}") for i in range(layers)], layer_norm(p, "norm", width), p.linear("head", width, 10)

    def forward(image):
        rows = image.reshape(-1, across, patch, across, patch).permute(0, 1, 3, 2, 4)
        x = F.linear(rows.reshape(-1, across**2, patch**2), *embed) + positions
        for one in blocks:
            x = one(x)
        return F.linear(last(x).mean(1), *head)

    optimizer = torch.optim.AdamW(p.all.values(), 0.001, weight_decay=0.05)
    arguments = ["--width", "32", "--heads", "2", "--batch", "24", "--microbatches", "2", "--seed", str(SEED)]
    return {"program": "vit", "data": "digits", "arguments": arguments,
            "losses": train(p, forward, optimizer, *digits(), 24, 2)}


def llama():
    layers, width, heads, shared, context, vocab = 2, 32, 4, 2, 16, 128
    size = width // heads
    p = Parameters()
    plain = lambda name, n_in, n_out: p.normal(name + ".weight", [n_out, n_in], 0.02)

    def norm(name):
        weight = p.constant(name + ".weight", [width], 1.0)
        return lambda x: F.rms_norm(x, (width,), weight, 1e-5)

    angles = torch.arange(context, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.cat([angles, angles], -1)

    def turn(x):
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def block(name):
        norm1 = norm(name + ".input_layernorm")
        q, k = plain(name + ".self_attn.q_proj", width, width), plain(name + ".self_attn.k_proj", width, shared * size)
        v, o = plain(name + ".self_attn.v_proj", width, shared * size), plain(name + ".self_attn.o_proj", width, width)
        norm2 = norm(name + ".post_attention_layernorm")
        gate, up = plain(name + ".mlp.gate_proj", width, 3 * width), plain(name + ".mlp.up_proj", width, 3 * width)
        down = plain(name + ".mlp.down_proj", 3 * width, width)

        def attention(x):
            split = lambda w: F.linear(x, w).reshape(*x.shape[:2], -1, size).transpose(1, 2)
            repeat = lambda t: t.repeat_interleave(heads // shared, 1)
            mixed = F.scaled_dot_product_attention(turn(split(q)), repeat(turn(split(k))), repeat(split(v)), is_causal=True)
            return F.linear(mixed.transpose(1, 2).flatten(2), o)

        def forward(x):
            x = x + attention(norm1(x))
            y = norm2(x)
            return x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)

        return forward

    embed = p.normal("embed_tokens.weight", [vocab, width], 0.02)
    blocks, last, head = [block(f"layers.{i}") for i in range(layers)], norm("norm"), plain("lm_head", width, vocab)

    def forward(tokens):
        x = F.embedding(tokens, embed)
        for one in blocks:
            x = one(x)
        return F.linear(last(x), head)

    optimizer = torch.optim.AdamW(p.all.values(), 0.002, weight_decay=0.01)
    arguments = ["--width", "32", "--context", "16", "--batch", "12", "--seed", str(SEED)]
    return {"program": "llama", "data": "text", "arguments": arguments,
            "losses": train(p, forward, optimizer, *windows(context), 12, 1, most=1.0)}


def lstm():
    layers, width, context, vocab = 2, 24, 12, 128
    p = Parameters()
    embed = p.normal("embed.weight", [vocab, width], 1.0)
    bound = 1 / math.sqrt(width)
    lstm = torch.nn.LSTM(width, width, layers, batch_first=True).double()
    weights = {name: p.uniform("lstm." + name, list(value.shape), bound) for name, value in lstm.named_parameters()}
    head = p.linear("head", width, vocab)
    forward = lambda tokens: F.linear(torch.func.functional_call(lstm, weights, (F.embedding(tokens, embed),))[0], *head)
    optimizer = torch.optim.Adam(p.all.values(), 0.005)
    arguments = ["--layers", "2", "--width", "24", "--context", "12", "--batch", "12", "--seed", str(SEED)]
    return {"program": "lstm", "data": "text", "arguments": arguments,
            "losses": train(p, forward, optimizer, *windows(context), 12, 1, most=1.0)}


CURVES = {"mlp": mlp, "convnet": convnet, "gpt": gpt, "vit": vit, "llama": llama, "lstm": lstm}
