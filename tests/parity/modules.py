"""Modules and composed functions: PyTorch's results for the same parameters and inputs.

modules.cpp has each case under the same name, written with the DSL. Every tensor is trained, so that all gradients are
compared under a cotangent that is not uniform.
"""
import torch
import torch.nn.functional as F
from philox import fnv1a64, uniform
from torch.func import functional_call

CASES = []


class Case:
    """tensors: name -> shape (values in [-1, 1)), or (shape, low, high). fn takes a dictionary of the tensors; names contain
    the dots of module paths."""

    def __init__(self, name, tensors, fn):
        self.name, self.fn = name, fn
        self.tensors = {key: self.draw(key, *(spec if isinstance(spec, tuple) else (spec, -1.0, 1.0)))
                        for key, spec in tensors.items()}
        with torch.no_grad():
            self.cotangent = self.draw("c", list(fn({k: v.double() for k, v in self.tensors.items()}).shape), -1.0, 1.0)
        CASES.append(self)

    def draw(self, key, shape, low, high):
        values = uniform(fnv1a64(f"{self.name}.{key}"), 0, torch.Size(shape).numel())
        return torch.from_numpy((low + (high - low) * values).astype("float32").reshape(shape))

    def expected(self):
        tensors = {k: v.double().requires_grad_() for k, v in self.tensors.items()}
        result = self.fn(tensors)
        (result * self.cotangent.double()).sum().backward()
        return result.detach(), {k: v.grad if v.grad is not None else torch.zeros_like(v) for k, v in tensors.items()}


def norms():
    Case("rms_norm", {"x": [2, 3, 6], "norm.weight": ([6], 0.5, 1.5)},
         lambda t: F.rms_norm(t["x"], (6,), t["norm.weight"], 1e-5))
    affine = {"x": ([2, 4, 2, 3], -1.0, 3.0), "norm.weight": ([4], 0.5, 1.5), "norm.bias": [4]}
    Case("group_norm", affine, lambda t: F.group_norm(t["x"], 2, t["norm.weight"], t["norm.bias"], 1e-5))
    Case("instance_norm", affine,
         lambda t: F.instance_norm(t["x"], None, None, t["norm.weight"], t["norm.bias"], True, 0.1, 1e-5))
    Case("instance_norm_plain", {"x": ([2, 4, 2, 3], -1.0, 3.0)}, lambda t: F.instance_norm(t["x"]))
    Case("prelu", {"x": [2, 4, 3], "prelu.weight": ([4], 0.1, 0.6)}, lambda t: F.prelu(t["x"], t["prelu.weight"]))


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rotary(x, base, start):
    """Rotary embedding as in Llama: both halves of the features have the same angles."""
    t, d = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(start, start + t, dtype=torch.float64)[:, None] * frequencies
    angles = torch.cat([angles, angles], -1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


def attention():
    q, k = [2, 4, 3, 4], [2, 4, 5, 4]
    attend = F.scaled_dot_product_attention
    Case("attention_float_mask", {"q": q, "k": k, "v": k, "m": [3, 5]},
         lambda t: attend(t["q"], t["k"], t["v"], attn_mask=t["m"]))
    Case("attention_bool_mask", {"q": q, "k": k, "v": k, "m": ([2, 1, 3, 5], -0.4, 1.0)},
         lambda t: attend(t["q"], t["k"], t["v"], attn_mask=t["m"] > 0))

    Case("attention_hidden_rows", {"q": q, "k": k, "v": k, "m": [2, 1, 3, 1]},
         lambda t: attend(t["q"], t["k"], t["v"], attn_mask=(t["m"] > 0).expand(2, 4, 3, 5)))

    def causal(t):
        seen = torch.arange(5)[None, :] <= torch.arange(3)[:, None] + 2
        hidden = torch.zeros(3, 5, dtype=torch.float64).masked_fill(~seen, float("-inf"))
        return attend(t["q"], t["k"], t["v"], attn_mask=t["m"] + hidden, scale=0.3)

    Case("attention_causal_mask", {"q": q, "k": k, "v": k, "m": [2, 4, 3, 5]}, causal)
    shared = [2, 2, 5, 4]
    Case("attention_grouped", {"q": q, "k": shared, "v": shared},
         lambda t: attend(t["q"], t["k"].repeat_interleave(2, 1), t["v"].repeat_interleave(2, 1)))
    Case("attention_grouped_mask", {"q": q, "k": shared, "v": shared, "m": [3, 1]},
         lambda t: attend(t["q"], t["k"].repeat_interleave(2, 1), t["v"].repeat_interleave(2, 1),
                          attn_mask=t["m"].expand(3, 5)))
    Case("rotary", {"x": [2, 2, 5, 6]}, lambda t: rotary(t["x"], 10000.0, 0))
    Case("rotary_start", {"x": [5, 4]}, lambda t: rotary(t["x"], 100.0, 3))


def inside(prefix, module, tensors):
    return {k[len(prefix) + 1:]: v for k, v in tensors.items() if k.startswith(prefix + ".")}


def module_case(name, prefix, module, inputs, call):
    """Adds a case for a torch module. `call(run, tensors)` returns the result; run(*args, **kw) calls the module with the
    case's parameters."""
    module = module.double()
    tensors = {**inputs, **{f"{prefix}.{k}": (list(v.shape), -0.6, 0.6) for k, v in module.named_parameters()}}

    def fn(t):
        def run(*args, **kw):
            return functional_call(module, inside(prefix, module, t), args, kw)

        return call(run, t)

    Case(name, tensors, fn)


def flat(*tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def modules():
    mha = torch.nn.MultiheadAttention
    module_case("multihead_attention", "mha", mha(6, 2, batch_first=True), {"x": [2, 3, 6]},
                lambda run, t: run(t["x"], t["x"], t["x"], need_weights=False)[0])
    module_case("multihead_attention_cross", "mha", mha(6, 3, bias=False, batch_first=True),
                {"q": [2, 3, 6], "k": [2, 4, 6], "v": [2, 4, 6], "m": [3, 4]},
                lambda run, t: run(t["q"], t["k"], t["v"], attn_mask=t["m"], need_weights=False)[0])

    def lstm(run, t):
        y, (h, c) = run(t["x"], (t["h"], t["c0"]))
        return flat(y, h, c)

    state = {"h": [2, 2, 4], "c0": [2, 2, 4]}
    module_case("lstm", "lstm", torch.nn.LSTM(3, 4, 2, batch_first=True), {"x": [2, 5, 3], **state}, lstm)
    module_case("lstm_plain", "lstm", torch.nn.LSTM(3, 4, bias=False, batch_first=True), {"x": [2, 3, 3]},
                lambda run, t: run(t["x"])[0])
    module_case("gru", "gru", torch.nn.GRU(3, 4, 2, batch_first=True), {"x": [2, 5, 3], "h": [2, 2, 4]},
                lambda run, t: flat(*run(t["x"], t["h"])))
    module_case("gru_plain", "gru", torch.nn.GRU(3, 4, batch_first=True), {"x": [2, 3, 3]}, lambda run, t: run(t["x"])[0])
    both = [4, 2, 4]  # two layers, two directions
    module_case("lstm_bidirectional", "lstm", torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
                {"x": [2, 5, 3], "h": both, "c0": both}, lstm)
    module_case("gru_bidirectional", "gru", torch.nn.GRU(3, 4, 2, batch_first=True, bidirectional=True),
                {"x": [2, 5, 3], "h": both}, lambda run, t: flat(*run(t["x"], t["h"])))
    module_case("gru_bidirectional_plain", "gru", torch.nn.GRU(3, 4, bias=False, batch_first=True, bidirectional=True),
                {"x": [2, 3, 3]}, lambda run, t: run(t["x"])[0])
    row = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module_case("sequential", "row", row, {"x": [2, 3]}, lambda run, t: run(t["x"]))


for group in (norms, attention, modules):
    group()
