"""Special values for every function of the DSL: NaN, infinities, zeros, large and tiny numbers, ties.

special.cpp has the C++ side under the same name. A name is that of the function in docs/dsl.md; what follows a colon tells
variants apart. All results are PyTorch's in float32, and gradients those of sum(result * c), c = 1, 2, 3, 1, 2, 3, ...
"""
import itertools
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

INF, NAN = math.inf, math.nan
CASES = []
VALUES = {"NaN": NAN, "inf": INF, "-inf": -INF, "0": 0.0, "-0": -0.0, "1e30": 1e30, "-1e30": -1e30, "1e-40": 1e-40,
          "-20": -20.0, "-10": -10.0, "1": 1.0, "123457": 123457.0, "-3e38": -3e38}
PAIRED = ["NaN", "inf", "-inf", "0", "-0", "1e30", "1e-40", "-2", "1"]


def base(count, shift=0):
    return [((37 * (i + shift) + 11) % 23) / 8 - 1.3125 for i in range(count)]


def rows(count):
    """Kinds of inputs with several elements."""
    b = base(count)
    one = lambda value: [value if i == 1 else x for i, x in enumerate(b)]
    return {"NaN": one(NAN), "all NaN": [NAN] * count, "inf": one(INF), "-inf": one(-INF), "all inf": [INF] * count,
            "all -inf": [-INF] * count, "zeros": [0.0 if i % 2 else -0.0 for i in range(count)],
            "1e30": [x * 1e30 for x in b], "1e-40": [x * 1e-40 for x in b],
            "ties": [1.0 if i % 3 else 0.5 for i in range(count)], "opposites": [1.0 if i % 2 else -1.0 for i in range(count)],
            "NaN and infinities": [[INF, NAN, -INF, x, NAN][i % 5] for i, x in enumerate(b)],
            "infinities": [[-INF, x, INF][i % 3] for i, x in enumerate(b)]}


class Case:
    """shapes: of x, which gets the special values, and of other operands, which get ordinary ones; kinds: name -> values
    by operand."""

    def __init__(self, name, fn, shapes, kinds=None, ints=None):
        self.name, self.fn, self.shapes = name, fn, shapes
        self.ints = {k: torch.tensor(v, dtype=torch.int32) for k, v in (ints or {}).items()}
        if kinds is None:
            kinds = {kind: {"x": values} for kind, values in rows(math.prod(shapes["x"])).items()}
        self.others = {k: base(math.prod(shape), 5 + i) for i, (k, shape) in enumerate(shapes.items()) if k != "x"}
        self.kinds = kinds
        CASES.append(self)

    def expected(self, values):
        """(result, {operand: gradient})"""
        values = {**self.others, **values}
        given = {k: torch.tensor(values[k]).reshape(shape).requires_grad_() for k, shape in self.shapes.items()}
        result = self.fn(*given.values(), *[v.long() for v in self.ints.values()])
        cotangent = (torch.arange(result.numel()) % 3 + 1.0).reshape(result.shape)
        if result.requires_grad:
            (result * cotangent).sum().backward()
        gradients = {k: v.grad if v.grad is not None else torch.zeros_like(v) for k, v in given.items()}
        return result.detach().float(), gradients


def unary(name, fn):
    Case(name, fn, {"x": [1]}, {kind: {"x": [value]} for kind, value in VALUES.items()})


def binary(name, fn, kinds=PAIRED):
    value = lambda kind: VALUES.get(kind, -2.0)
    Case(name, fn, {"x": [1], "y": [1]},
         {f"{a} and {b}": {"x": [value(a)], "y": [value(b)]} for a in kinds for b in kinds})


def ternary(name, fn, values):
    """All combinations of three of the values, in one kind."""
    x, y, z = zip(*itertools.product(values, repeat=3))
    Case(name, fn, {"x": [len(x)], "y": [len(x)], "z": [len(x)]}, {"combinations": {"x": x, "y": y, "z": z}})


def over(name, fn, x, ints=None, **others):
    Case(name, fn, {"x": x, **others}, ints=ints)


def moving(name, fn, x, ints=None, **others):
    """A function that only moves elements."""
    over(name, fn, x, ints, **others)
    CASES[-1].kinds = {kind: CASES[-1].kinds[kind] for kind in ["NaN", "-inf", "1e-40"]}


def elementwise():
    binary("operator+", lambda x, y: x + y)
    binary("operator-", lambda x, y: x - y)
    binary("operator*", lambda x, y: x * y)
    binary("operator/", lambda x, y: x / y)
    binary("pow", lambda x, y: torch.pow(x, y))
    for p in [0.5, -0.5, 2, -1, 0]:
        unary(f"pow:{p:g}", lambda x, p=p: x**p)
    binary("maximum", torch.maximum)
    binary("minimum", torch.minimum)
    for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
        binary(name, getattr(torch, name), PAIRED[:5])
    binary("operator<", lambda x, y: x < y, PAIRED[:4])
    binary("operator<=", lambda x, y: x <= y, PAIRED[:4])
    binary("operator>", lambda x, y: x > y, PAIRED[:4])
    binary("operator>=", lambda x, y: x >= y, PAIRED[:4])
    binary("operator+=", lambda x, y: x + y, PAIRED[:4])
    binary("operator-=", lambda x, y: x - y, PAIRED[:4])
    binary("operator*=", lambda x, y: x * y, PAIRED[:4])
    binary("operator/=", lambda x, y: x / y, PAIRED[:4])
    binary("logicalAnd", lambda x, y: (x > 0) & (y > 0), PAIRED[:4])
    binary("logicalOr", lambda x, y: (x > 0) | (y > 0), PAIRED[:4])
    binary("logicalXor", lambda x, y: (x > 0) ^ (y > 0), PAIRED[:4])
    unary("logicalNot", lambda x: ~(x > 0))
    unary("isnan", torch.isnan)
    binary("where", lambda x, y: torch.where(x > y, x, y))
    unary("maskedFill", lambda x: x.masked_fill(x > 0, -7.0))
    unary("clamp", lambda x: x.clamp(-0.5, 1.0))
    unary("clamp:lower", lambda x: x.clamp(min=0.0))
    binary("clamp:tensor", lambda x, y: torch.clamp(x, min=y))
    ternary("clamp:tensors", torch.clamp, [0.0, 1.0, 2.0, INF, -INF])
    ternary("clamp:NaN", lambda x, y, z: torch.clamp(x, torch.minimum(y, z), z), [1.0, 2.0, NAN])
    unary("detach", lambda x: x * x.detach())
    binary("remainder", torch.remainder)
    binary("atan2", torch.atan2)
    unary("isinf", torch.isinf)
    unary("isfinite", torch.isfinite)
    for name in ["exp", "log", "sqrt", "rsqrt", "abs", "erf", "sin", "cos", "tan", "sinh", "log1p", "expm1", "floor", "ceil",
                 "round", "relu", "tanh", "sigmoid"]:
        unary(name, getattr(torch, name))
    unary("rsqrt:sign", lambda x: (torch.rsqrt(x) < 0) + 0 * x.detach().nan_to_num(0, 0, 0))
    unary("sign", torch.sign)
    unary("gelu", F.gelu)
    unary("gelu:tanh", lambda x: F.gelu(x, approximate="tanh"))
    unary("silu", F.silu)
    unary("softplus", F.softplus)
    unary("leakyRelu", F.leaky_relu)
    unary("elu", F.elu)
    unary("selu", F.selu)
    unary("relu6", F.relu6)
    unary("hardSwish", F.hardswish)
    unary("mish", F.mish)
    unary("logSigmoid", F.logsigmoid)
    over("prelu", F.prelu, [2, 4], y=[4])
    unary("cast", lambda x: x.to(torch.bfloat16).to(torch.float32))
    over("softmax", lambda x: x.softmax(-1), [2, 4])
    over("logSoftmax", lambda x: x.log_softmax(-1), [2, 4])
    over("oneHot", lambda x, ids: x * F.one_hot(ids, 3), [2, 3], ints={"ids": [2, 0]})
    over("tril", torch.tril, [3, 3])
    over("triu", torch.triu, [3, 3])


def reductions():
    over("sum", lambda x: x.sum(1), [2, 4])
    over("mean", lambda x: x.mean(1), [2, 4])
    over("max", lambda x: x.amax(1), [2, 4])
    over("min", lambda x: x.amin(1), [2, 4])
    over("var", lambda x: x.var(1), [2, 4])
    over("stddev", lambda x: x.std(1), [2, 4])
    for p in [0, 0.5, 1, 2, 3, -1, INF, -INF]:
        over(f"norm:{p:g}", lambda x, p=p: torch.linalg.vector_norm(x, p, 1), [2, 4])
    over("logsumexp", lambda x: x.logsumexp(1), [2, 4])
    over("prod", lambda x: x.prod(1), [2, 4])
    over("cumsum", lambda x: x.cumsum(1), [2, 4])
    over("cumprod", lambda x: x.cumprod(1), [2, 4])
    over("any", lambda x: x.any(1), [2, 4])
    over("all", lambda x: x.all(1), [2, 4])
    over("maxWithIndices", lambda x: x.max(1)[0], [2, 4])
    over("maxWithIndices:places", lambda x: x.max(1)[1], [2, 4])
    over("minWithIndices", lambda x: x.min(1)[0], [2, 4])
    over("argmax", lambda x: x.argmax(1), [2, 4])
    over("argmin", lambda x: x.argmin(1), [2, 4])
    over("sort", lambda x: x.sort(dim=1, stable=True)[0], [2, 4])
    over("sort:places", lambda x: x.sort(dim=1, stable=True)[1], [2, 4])
    over("sort:descending", lambda x: x.sort(dim=1, stable=True, descending=True)[0], [2, 5])
    over("sort:descending places", lambda x: x.sort(dim=1, stable=True, descending=True)[1], [2, 5])
    over("topk", lambda x: x.topk(3, 1)[0], [2, 4])
    over("topk:smallest", lambda x: x.topk(3, 1, largest=False)[0], [2, 4])
    over("topk:few smallest", lambda x: x.topk(2, 1, largest=False)[0], [2, 9])
    over("topk:few", lambda x: x.topk(1, 1)[0], [2, 6])


    one = [2, 1]  # a dimension with one element
    over("argmax:one", lambda x: x.argmax(1), one)
    over("sort:one", lambda x: x.sort(dim=1, stable=True)[0], one)
    over("topk:one", lambda x: x.topk(1, 1)[0], one)
    over("norm:one", lambda x: torch.linalg.vector_norm(x, INF, 1), one)
    over("logsumexp:one", lambda x: x.logsumexp(1), one)
    over("cumprod:one", lambda x: x.cumprod(1), one)
    over("softmax:one", lambda x: x.softmax(1), one)


def shapes():
    moving("reshape", lambda x: x.reshape(2, 6), [3, 4])
    moving("flatten", lambda x: x.flatten(), [3, 4])
    moving("transpose", lambda x: x.transpose(0, 1), [3, 4])
    moving("permute", lambda x: x.permute(2, 0, 1), [2, 3, 2])
    moving("unsqueeze", lambda x: x.unsqueeze(1), [3, 2])
    moving("squeeze", lambda x: x.squeeze(1), [3, 1, 2])
    moving("slice", lambda x: x[:, 1:3], [3, 4])
    moving("select", lambda x: x[:, 1], [3, 4])
    moving("split", lambda x: x.split([1, 3], 1)[1], [3, 4])
    moving("chunk", lambda x: x.chunk(2, 1)[0], [3, 4])
    moving("concat", lambda x, y: torch.cat([x, y], 1), [2, 3], y=[2, 2])
    moving("stack", lambda x, y: torch.stack([x, y], 1), [2, 3], y=[2, 3])
    moving("expand", lambda x: x.expand(2, 3), [2, 1])
    moving("repeat", lambda x: x.repeat(2, 2), [2, 3])
    moving("pad", lambda x: F.pad(x, (1, 2), value=0.5), [2, 3])
    moving("pad:reflect", lambda x: F.pad(x, (1, 2), "reflect"), [2, 3])
    moving("roll", lambda x: x.roll(1, 1), [2, 3])
    moving("indexSelect", lambda x, ids: x.index_select(1, ids), [2, 3], ints={"ids": [2, 0, 2]})
    moving("gather:fewer indices", lambda x, ids: x.gather(1, ids), [3, 3, 2], ints={"ids": [[[2], [0], [1], [1]]]})
    over("scatterAdd:fewer indices", lambda x, y, ids: x.scatter_add(1, ids, y[:, :2]), [3, 3], y=[2, 3],
         ints={"ids": [[2, 0], [1, 1]]})
    over("scatterAdd", lambda x, y, ids: x.scatter_add(1, ids, y), [2, 3], y=[2, 2], ints={"ids": [[2, 0], [1, 1]]})
    over("scatterAdd:source", lambda x, y, ids: y.scatter_add(1, ids, x), [2, 2], y=[2, 3], ints={"ids": [[2, 0], [1, 1]]})
    over("indexAdd", lambda x, y, ids: y.index_add(1, ids, x), [2, 4], y=[2, 3], ints={"ids": [2, 0, 2, 0]})
    moving("flip", lambda x: x.flip(1), [2, 3])
    moving("gather", lambda x, ids: x.gather(1, ids), [2, 3], ints={"ids": [[2, 0], [1, 1]]})


def products():
    over("matmul", lambda x, y: x @ y, [3, 4], y=[4, 2])
    over("einsum", lambda x, y: torch.einsum("ij,jk->ki", x, y), [3, 4], y=[4, 2])
    over("einsum:trace", lambda x: torch.einsum("ii->i", x), [3, 3])
    over("linear", lambda x, w, b: F.linear(x, w, b), [3, 4], w=[2, 4], b=[2])
    over("cosineSimilarity", lambda x, y: F.cosine_similarity(x, y), [2, 4], y=[2, 4])
    over("embedding", lambda x, ids: F.embedding(ids, x), [3, 4], ints={"ids": [2, 0, 2]})
    def attention(*values, **options):
        with sdpa_kernel(SDPBackend.MATH):  # PyTorch's fused kernel for CPUs gives 0 for a row of NaN
            return F.scaled_dot_product_attention(*values, **options)

    heads = dict(y=[1, 1, 3, 2], z=[1, 1, 3, 2])
    over("scaledDotProductAttention", lambda x, y, z: attention(x, y, z), [1, 1, 3, 2], **heads)
    causal = lambda x, y, z: attention(x, y, z, is_causal=True)
    over("scaledDotProductAttention:fewer queries", causal, [1, 1, 2, 2], **heads)
    over("scaledDotProductAttention:more queries", causal, [1, 1, 5, 2], **heads)
    last = torch.ones(2, 3, dtype=torch.bool).tril(1)
    over("scaledDotProductAttention:lower right",
         lambda x, y, z: attention(x, y, z, attn_mask=last), [1, 1, 2, 2], **heads)
    first = torch.tensor([[True, True, False], [False, False, False]])
    over("scaledDotProductAttention:no key",
         lambda x, y, z: attention(x, y, z, attn_mask=first), [1, 1, 2, 2], **heads)

    def rotated(x):
        angle = torch.outer(torch.arange(3.0), 10000 ** (-torch.arange(2.0) / 2))
        a, b = x[..., :2], x[..., 2:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    over("rotaryEmbedding", rotated, [3, 4])


def pictures():
    over("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [1, 1, 3, 3], w=[1, 1, 3, 3], b=[1])
    over("conv1d", lambda x, w: F.conv1d(x, w), [1, 1, 6], w=[2, 1, 3])
    over("convTranspose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), [1, 1, 2, 2], w=[1, 1, 2, 2])
    over("maxPool2d", lambda x: F.max_pool2d(x, 2), [1, 1, 4, 4])
    over("maxPool2d:overlapping", lambda x: F.max_pool2d(x, 3, stride=1, padding=1), [1, 1, 3, 3])
    over("avgPool2d", lambda x: F.avg_pool2d(x, 2), [1, 1, 4, 4])
    over("maxPool2d:dilated", lambda x: F.max_pool2d(x, 2, stride=1, dilation=2), [1, 1, 4, 4])
    over("avgPool2d:corrected",
         lambda x: F.avg_pool2d(x, 2, padding=1, ceil_mode=True, count_include_pad=False), [1, 1, 3, 4])
    over("maxPool1d", lambda x: F.max_pool1d(x, 2, 1, ceil_mode=True), [1, 2, 4])
    over("avgPool1d", lambda x: F.avg_pool1d(x, 2, padding=1), [1, 2, 4])
    over("globalAvgPool", lambda x: x.mean((2, 3)), [1, 2, 2, 2])
    over("adaptiveAvgPool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [1, 1, 3, 4])
    over("adaptiveMaxPool2d", lambda x: F.adaptive_max_pool2d(x, (2, 3)), [1, 1, 3, 4])
    over("interpolate", lambda x: F.interpolate(x, size=(4, 3)), [1, 1, 2, 3])
    over("interpolate:bilinear", lambda x: F.interpolate(x, size=(4, 3), mode="bilinear"), [1, 1, 2, 4])


def norms():
    over("batchNorm2d", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [2, 2, 2, 2], w=[2], b=[2])
    over("layerNorm", lambda x, w, b: F.layer_norm(x, [4], w, b), [2, 4], w=[4], b=[4])
    over("rmsNorm", lambda x, w: F.rms_norm(x, [4], w, eps=1e-5), [2, 4], w=[4])
    over("groupNorm", lambda x, w, b: F.group_norm(x, 2, w, b), [1, 4, 2], w=[4], b=[4])
    over("instanceNorm", lambda x: F.instance_norm(x), [1, 2, 4])


def losses():
    labels = {"labels": [2, 0, 1]}
    over("crossEntropy", lambda x, labels: F.cross_entropy(x, labels), [3, 4], ints=labels)
    over("crossEntropy:ignored", lambda x, labels: F.cross_entropy(x, labels), [3, 4], ints={"labels": [-100] * 3})
    over("crossEntropy:smoothed", lambda x, labels: F.cross_entropy(x, labels, label_smoothing=0.1), [3, 4], ints=labels)
    first = lambda x: x.argsort(stable=True, dim=1, descending=True)[:, :2]  # of equal elements; NaN is the largest
    right = lambda x, labels: (first(x) == labels[:, None]).any(1) & ~x.gather(1, labels.long()[:, None])[:, 0].isnan()
    over("topCorrect", lambda x, labels: x * right(x, labels).sum(), [3, 4], ints=labels)
    over("nllLoss", lambda x, labels: F.nll_loss(x, labels), [3, 4], ints=labels)
    for name, fn in [("mseLoss", F.mse_loss), ("l1Loss", F.l1_loss), ("huberLoss", F.huber_loss),
                     ("bceWithLogits", F.binary_cross_entropy_with_logits),
                     ("klDivLoss", lambda x, t: F.kl_div(x, t, reduction="mean"))]:
        b = [0.25, 0.5, 0.375, 0.125, 1.0, 0.75]
        Case(name, fn, {"x": [2, 3], "t": [2, 3]}, {kind: {"x": values, "t": b} for kind, values in rows(6).items()})
        CASES[-1].kinds["target 0"] = {"x": base(6), "t": [0.0] + b[1:]}
        if name == "mseLoss":
            CASES[-1].kinds["NaN target"] = {"x": base(6), "t": [NAN] + b[1:]}
    over("crossEntropy:soft", lambda x, t: F.cross_entropy(x, t), [2, 3], t=[2, 3])
    CASES[-1].others["t"] = b
    low, high = [0.0, 1.0, 0.0, 1.0, 1e-40, 0.5], [0.0, 1.0, 1.0, 0.0, 0.25, 1.0]
    Case("bceLoss", F.binary_cross_entropy, {"x": [2, 3], "t": [2, 3]},
         {"bounds": {"x": low, "t": high}, "soft": {"x": low, "t": b}})
    sides = torch.tensor([1.0, -1.0])
    over("cosineEmbeddingLoss", lambda x, y: F.cosine_embedding_loss(x, y, sides), [2, 3], y=[2, 3])
    over("tripletMarginLoss", lambda x, y, z: F.triplet_margin_loss(x, y, z), [2, 3], y=[2, 3], z=[2, 3])
    over("ctcLoss", lambda x: F.ctc_loss(x.log_softmax(-1).transpose(0, 1), torch.tensor([[1, 2]]), [3], [2]), [1, 3, 3])
    over("weightedSum", lambda x, labels: F.cross_entropy(x, labels) + 0.5 * F.cross_entropy(x, labels), [3, 4], ints=labels)


elementwise(), reductions(), shapes(), products(), pictures(), norms(), losses()
