"""One case per function of the DSL: its inputs and the equivalent PyTorch function.

functions.cpp has the C++ side of each case under the same name. There every float input is a trained parameter, and the loss is
sum(result * c) for a given tensor c, so that the gradient of every operand is compared under a cotangent that is not uniform.
Results that are not floats are cast. Values come from Philox, see philox.py.
"""
import math

import torch
import torch.nn.functional as F
from philox import fnv1a64, uniform

CASES = []


class Case:
    """floats: name -> shape (values in [-2, 2)), (shape, low, high), (shape, "spread"): distinct values, or a tensor;
    ints: name -> (shape, low, high), low <= value < high."""

    def __init__(self, name, floats, fn, ints=None):
        self.name, self.fn = name, fn
        self.floats = {key: self.values(key, spec) for key, spec in floats.items()}
        self.ints = {key: self.draw(key, *spec).floor().to(torch.int32) for key, spec in (ints or {}).items()}
        CASES.append(self)

    def values(self, key, spec):
        if isinstance(spec, torch.Tensor):
            return spec
        if isinstance(spec, list):
            spec = (spec, -2.0, 2.0)
        if spec[1] == "spread":
            drawn = self.draw(key, spec[0], 0.0, 1.0).reshape(-1)
            return (2 * drawn.argsort().argsort().float() / len(drawn) - 1).reshape(spec[0])
        return self.draw(key, *spec)

    def draw(self, key, shape, low, high):
        values = uniform(fnv1a64(f"{self.name}.{key}"), 0, math.prod(shape))
        return torch.from_numpy((low + (high - low) * values).astype("float32").reshape(shape))

    def expected(self):
        """(result, cotangent, {name: gradient}), computed in double from inputs rounded to f32."""
        floats = {key: value.double().requires_grad_() for key, value in self.floats.items()}
        result = self.fn(**floats, **{key: value.long() for key, value in self.ints.items()})
        result = result.double()
        cotangent = self.draw("c", list(result.shape), -1.0, 1.0)
        if result.requires_grad:
            (result * cotangent.double()).sum().backward()
        gradients = {k: v.grad if v.grad is not None else torch.zeros_like(v) for k, v in floats.items()}
        return result.detach(), cotangent, gradients


INF, NAN = math.inf, math.nan
X = [3, 5]
POSITIVE = (X, 0.2, 2.0)
ODD = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 2.0], [NAN, 1.0, -1.0, INF, -INF]])  # compared, not differentiated


def pointwise():
    for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
        Case(name, {"x": torch.tensor([1.0, 2.0, 3.0, NAN]), "y": torch.tensor([[2.0], [3.0], [NAN]])},
             lambda x, y, fn=getattr(torch, name): fn(x, y))
    Case("operators", {"x": X}, lambda x: (x < 0.5).double() + 2 * (x <= 1).double() + 4 * (x > -1) + 8 * (0 >= x))
    Case("logical", {"x": X, "y": X},
         lambda x, y: ((x > 0) & (y > 0)).double() + 2 * ((x > 0) | (y > 0)).double() + 4 * ((x > 0) ^ (y > 0)).double()
         + 8 * (~(x > 0)).double())
    Case("isnan", {"x": ODD}, lambda x: torch.isnan(x))
    Case("where", {"x": X, "y": [5]}, lambda x, y: torch.where(x > y, x * y, 2 * y))
    Case("where_numbers", {"x": X}, lambda x: torch.where(x > 0, 1.0, -2.0) * x + torch.where(x > 1, x, 3.0))
    Case("maskedFill", {"x": [2, 3, 5]}, lambda x: x.masked_fill(x[0] > 0.5, -7.0))
    Case("clamp", {"x": X}, lambda x: x.clamp(-0.5, 1.0))
    Case("clamp_at_bounds", {"x": torch.tensor([-1.0, -0.5, 0.0, 1.0, 1.5])}, lambda x: x.clamp(-0.5, 1.0))
    Case("clamp_tensors_at_bounds", {"x": torch.tensor([-1.0, -0.5, 0.0, 1.0, 1.5]), "y": torch.full([5], -0.5),
                                     "z": torch.ones(5)}, lambda x, y, z: torch.clamp(x, y, z))
    Case("clamp_one_side", {"x": X}, lambda x: x.clamp(min=0.25) - x.clamp(max=-0.25))
    Case("clamp_tensors", {"x": X, "y": ([5], -1.0, -0.2), "z": ([5], 0.2, 1.0)}, lambda x, y, z: torch.clamp(x, y, z))
    Case("detach", {"x": X}, lambda x: x * x.detach())
    Case("sin", {"x": (X, -40.0, 40.0)}, lambda x: torch.sin(x))
    Case("cos", {"x": (X, -40.0, 40.0)}, lambda x: torch.cos(x))
    Case("tan", {"x": (X, -1.4, 1.4)}, lambda x: torch.tan(x))
    for name in ["sinh", "expm1"]:
        Case(name, {"x": X}, lambda x, fn=getattr(torch, name): fn(x))
    Case("log1p", {"x": (X, -0.9, 3.0)}, lambda x: torch.log1p(x))
    Case("sinh_wide", {"x": torch.tensor([-80.0, -3.0, -1e-4, 1e-6, 0.5, 9.0, 80.0])}, lambda x: torch.sinh(x))
    Case("log1p_wide", {"x": torch.tensor([-0.999, -1e-4, 1e-6, 0.5, 9.0, 1e10])}, lambda x: torch.log1p(x))
    Case("expm1_wide", {"x": torch.tensor([-80.0, -3.0, -1e-4, 1e-6, 0.5, 9.0, 80.0])}, lambda x: torch.expm1(x))
    halves = torch.tensor([-2.5, -1.5, -0.75, -0.5, 0.0, 0.5, 1.5, 2.5, 8388609.0])
    for name in ["floor", "ceil", "round"]:
        Case(name, {"x": halves}, lambda x, fn=getattr(torch, name): fn(x))
    Case("remainder", {"x": ([4, 5], -4.0, 4.0), "y": ([5], 0.9, 2.0)}, lambda x, y: torch.remainder(x, y))
    Case("remainder_signs", {"x": torch.tensor([7.0, 7.0, -7.0, -7.0, 6.0, -6.0, 1e9]),
                             "y": torch.tensor([3.0, -3.0, 3.0, -3.0, 3.0, -3.0, 0.7])}, lambda x, y: torch.remainder(x, y))
    Case("atan2", {"y": [4, 5], "x": [5]}, lambda x, y: torch.atan2(y, x))
    Case("isinf", {"x": ODD}, lambda x: torch.isinf(x))
    Case("isfinite", {"x": ODD}, lambda x: torch.isfinite(x))
    Case("sign", {"x": torch.tensor([-2.0, -0.0, 0.0, 1e-30, 3.0])}, lambda x: torch.sign(x) + 0 * x)
    Case("softplus", {"x": torch.tensor([-90.0, -20.0, -3.0, -0.5, 0.0, 1e-4, 2.0, 15.0, 90.0])}, lambda x: F.softplus(x))
    Case("softplus_beta", {"x": X}, lambda x: F.softplus(x, beta=2.5))
    Case("leakyRelu", {"x": X}, lambda x: F.leaky_relu(x, 0.2))
    Case("leakyRelu_at_zero", {"x": torch.tensor([-1.0, 0.0, 2.0])}, lambda x: F.leaky_relu(x))
    Case("elu", {"x": torch.tensor([-60.0, -3.0, -1e-4, 0.0, 1e-4, 2.0, 60.0])}, lambda x: F.elu(x))
    wide = torch.tensor([-90.0, -20.0, -3.0, -1.5, -1e-4, 0.0, 1e-4, 1.5, 3.0, 6.0, 90.0])
    for name, fn in [("selu", F.selu), ("relu6", F.relu6), ("hardSwish", F.hardswish)]:
        Case(name, {"x": (X, -5.0, 8.0)}, lambda x, fn=fn: fn(x))
        Case(f"{name}_wide", {"x": wide}, lambda x, fn=fn: fn(x))
    Case("mish", {"x": wide}, lambda x: F.mish(x))
    Case("logSigmoid", {"x": wide}, lambda x: F.logsigmoid(x))
    Case("prelu", {"x": [2, 3, 4], "y": [3]}, lambda x, y: F.prelu(x, y))
    Case("prelu_one", {"x": [2, 3, 4], "y": [1]}, lambda x, y: F.prelu(x, y))
    Case("elu_alpha", {"x": X}, lambda x: F.elu(x, 0.5))


def create():
    table = torch.tensor([[1.0, -2.5, 3.0], [0.5, 0.0, 7.0]], dtype=torch.double)
    Case("constant", {"x": [2, 3]}, lambda x: x * table)
    Case("constant_i32", {"x": [4]}, lambda x: x * torch.tensor([3, 1, -4, 1]))
    Case("constant_outside_kernels", {"x": [4, 2]}, lambda x: x @ table)
    Case("arange", {"x": [7]}, lambda x: x * torch.arange(-1.0, 2.3, 0.5, dtype=torch.double))
    Case("arange_down", {"x": [4]}, lambda x: x * torch.arange(3, -1, -1))
    Case("oneHot", {"x": [2, 3, 4]}, lambda x, ids: x * F.one_hot(ids, 4), ints={"ids": ([2, 3], 0, 4)})
    for d in [-2, 0, 1]:
        Case(f"tril_{d}", {"x": [2, 4, 5]}, lambda x, d=d: x.tril(d))
        Case(f"triu_{d}", {"x": [5, 4]}, lambda x, d=d: x.triu(d))


def reductions():
    Case("var", {"x": [3, 4, 5]}, lambda x: x.var((0, 2)))
    Case("var_all", {"x": (X, 900.0, 904.0)}, lambda x: x.var(correction=0))
    Case("stddev", {"x": [3, 4, 5]}, lambda x: x.std(1, keepdim=True))
    Case("stddev_of_equal", {"x": torch.ones(2, 3)}, lambda x: x.std(1))
    Case("norm", {"x": [3, 4, 5]}, lambda x: torch.linalg.vector_norm(x, 2, (1, 2)))
    for p in [0.5, 1, 3, 0, INF, -INF]:
        Case(f"norm_{p}", {"x": ([4, 5], "spread")}, lambda x, p=p: torch.linalg.vector_norm(x + 0.013, p, 1, keepdim=True))
    Case("norm_of_zero", {"x": torch.zeros(2, 3)}, lambda x: torch.norm(x, dim=1))
    Case("logsumexp", {"x": [3, 4, 5]}, lambda x: x.logsumexp((0, 2)))
    Case("logsumexp_large", {"x": (X, 300.0, 304.0)}, lambda x: x.logsumexp(1, keepdim=True))
    Case("prod", {"x": [2, 3, 2]}, lambda x: x.prod())
    Case("prod_dim", {"x": [3, 7]}, lambda x: x.prod(1))
    Case("prod_with_zeros", {"x": torch.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 3.0]])},
         lambda x: x.prod(1, keepdim=True))
    Case("cumsum", {"x": [3, 7]}, lambda x: x.cumsum(1))
    Case("cumsum_first", {"x": [5, 2]}, lambda x: x.cumsum(0))
    ties = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, INF, 2.0, INF], [1.0, NAN, 5.0, 2.0]])
    Case("cumprod", {"x": [3, 7]}, lambda x: x.cumprod(1))
    Case("cumprod_with_zeros", {"x": torch.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 3.0]])},
         lambda x: x.cumprod(0))
    mixed = torch.tensor([[1.0, 0.0, NAN], [0.0, 0.0, 0.0], [-1.0, 2.0, 5.0]])
    Case("any", {"x": mixed}, lambda x: x.any(1))
    Case("any_of_mask", {"x": [3, 4, 2]}, lambda x: (x > 1).any(dim=2, keepdim=True).any(dim=0, keepdim=True))
    Case("all", {"x": mixed}, lambda x: x.all(1))
    Case("all_of_all", {"x": [3, 4]}, lambda x: (x > -3).all())
    Case("maxWithIndices", {"x": ([3, 4, 5], "spread")}, lambda x: x.max(1)[0] * (1 + x.max(1)[1]))
    Case("minWithIndices", {"x": ([3, 5], "spread")}, lambda x: x.min(-1, keepdim=True)[0])
    Case("maxWithIndices_ties", {"x": torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])}, lambda x: x.max(1)[0])
    # PyTorch does not define which of several equal maxima argmax returns, so the expected result is written here.
    Case("argmax", {"x": ties}, lambda x: torch.tensor([1, 0, 1, 1]))
    Case("argmax_all", {"x": [3, 4]}, lambda x: x.argmax())
    Case("argmin", {"x": [3, 4]}, lambda x: x.argmin(0, keepdim=True))
    Case("sort", {"x": ([3, 6], "spread")}, lambda x: x.sort(1)[0])
    Case("sort_places", {"x": ([5, 3], "spread")}, lambda x: x.sort(0, descending=True)[1])
    Case("sort_stable", {"x": torch.tensor([[2.0, 1.0, 2.0, 1.0, NAN, 7.0, -INF]])},
         lambda x: x.sort(dim=1, stable=True)[1] * 1.0)
    Case("sort_ties", {"x": torch.tensor([[2.0, 1.0, 2.0, 1.0]])}, lambda x: x.sort(dim=1, stable=True, descending=True)[0])
    Case("topk", {"x": ([2, 20], "spread")}, lambda x: x.topk(3)[0])
    Case("topk_places", {"x": ([20, 2], "spread")}, lambda x: x.topk(4, dim=0, largest=False)[1])
    Case("topk_many", {"x": ([2, 9], "spread")}, lambda x: x.topk(7)[0])


def rearrange():
    Case("expand", {"x": [3, 1]}, lambda x: x.expand(2, -1, 4))
    Case("repeat", {"x": [3, 1, 2]}, lambda x: x.repeat(2, 1, 3, 2))
    Case("stack", {"x": X, "y": X}, lambda x, y: torch.stack([x, y, x], 1))
    Case("split", {"x": [7, 2]}, lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.split(3))], 0))
    Case("split_sizes", {"x": [2, 7]}, lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.split([1, 4, 2], 1))], 1))
    Case("chunk", {"x": [2, 7]}, lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.chunk(3, -1))], 1))
    Case("pad", {"x": [2, 3, 4]}, lambda x: F.pad(x, (1, 2, 0, 1)))
    Case("pad_value", {"x": [2, 3, 4]}, lambda x: F.pad(x, (2, -1, -1, 1), value=2.5))
    Case("pad_reflect", {"x": [2, 3, 4]}, lambda x: F.pad(x, (3, 1, 2, 2), "reflect"))
    Case("pad_replicate", {"x": [2, 3, 4]}, lambda x: F.pad(x, (5, 0, 1, 2), "replicate"))
    Case("pad_circular", {"x": [2, 3, 4]}, lambda x: F.pad(x[None], (4, 1, 0, 3), "circular")[0])
    Case("roll", {"x": [2, 3, 4]}, lambda x: x.roll((-1, 6, 1), (0, 2, 1)))
    Case("indexSelect", {"x": [3, 4, 2]}, lambda x, ids: x.index_select(1, ids), ints={"ids": ([6], 0, 4)})
    Case("scatterAdd", {"x": [3, 4], "y": [3, 6]}, lambda x, y, ids: x.scatter_add(1, ids, y), ints={"ids": ([3, 6], 0, 4)})
    Case("indexAdd", {"x": [4, 3, 2], "y": [6, 3, 2]}, lambda x, y, ids: x.index_add(0, ids, y), ints={"ids": ([6], 0, 4)})
    Case("flip", {"x": [2, 3, 4]}, lambda x: x.flip(0, -1))
    Case("einsum_batched", {"x": [2, 3, 4], "y": [2, 4, 5]}, lambda x, y: torch.einsum("bij,bjk->bik", x, y))
    Case("einsum_heads", {"x": [2, 3, 2, 4], "y": [2, 5, 2, 4]}, lambda x, y: torch.einsum("bqhd,bkhd->bhqk", x, y))
    Case("einsum_three", {"x": [3, 4], "y": [4, 5], "z": [5]}, lambda x, y, z: torch.einsum("ij,jk,k", x, y, z))
    Case("einsum_outer", {"x": [3], "y": [4]}, lambda x, y: torch.einsum("i,j->ji", x, y))
    Case("einsum_elementwise", {"x": X, "y": X}, lambda x, y: torch.einsum("ij,ij->i", x, y))
    Case("einsum_dots", {"x": [2, 3, 4], "y": [1, 4, 5]}, lambda x, y: torch.einsum("...ij,...jk->...ki", x, y))
    Case("einsum_trace", {"x": [4, 4, 3]}, lambda x: torch.einsum("iij->j", x))
    Case("einsum_diagonal", {"x": [4, 3, 4]}, lambda x: torch.einsum("iji->ij", x))
    Case("einsum_sums", {"x": [3, 4, 2]}, lambda x: torch.einsum("ijk->k", x))
    Case("einsum_implicit", {"x": [3, 4], "y": [3, 2]}, lambda x, y: torch.einsum("ba,bc", x, y))


def pictures():
    Case("conv1d", {"x": [2, 4, 9], "w": [6, 2, 3], "b": [6]},
         lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2, groups=2))
    Case("convTranspose2d", {"x": [2, 3, 4, 3], "w": [3, 2, 3, 3], "b": [2]},
         lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1))
    Case("convTranspose2d_groups", {"x": [2, 4, 3, 4], "w": [4, 3, 2, 3]},
         lambda x, w: F.conv_transpose2d(x, w, stride=(3, 2), padding=(0, 1), output_padding=(2, 0), dilation=(2, 1), groups=2))
    image = {"x": ([2, 2, 7, 6], "spread")}
    Case("maxPool2d_ceil", image, lambda x: F.max_pool2d(x, (2, 3), (2, 4), (0, 1), ceil_mode=True))
    Case("maxPool2d_dilated", image,
         lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), dilation=(3, 2), ceil_mode=True))
    Case("avgPool2d_ceil", image, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True))
    Case("avgPool2d_without_pad", image, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    Case("avgPool2d_both", image, lambda x: F.avg_pool2d(x, (2, 3), (3, 2), 1, ceil_mode=True, count_include_pad=False))
    Case("maxPool1d", {"x": ([2, 3, 9], "spread")}, lambda x: F.max_pool1d(x, 3, 2, 1, dilation=2, ceil_mode=True))
    Case("avgPool1d", {"x": [2, 3, 9]}, lambda x: F.avg_pool1d(x, 4, padding=2, ceil_mode=True, count_include_pad=False))
    for size in [(6, 8), (3, 2), (5, 3), (2, 7)]:
        name = "x".join(map(str, size))
        Case(f"nearest_{name}", {"x": [2, 2, 3, 4]}, lambda x, size=size: F.interpolate(x, size=size))
        Case(f"bilinear_{name}", {"x": [2, 2, 3, 4]}, lambda x, size=size: F.interpolate(x, size=size, mode="bilinear"))
        Case(f"corners_{name}", {"x": [2, 2, 3, 4]},
             lambda x, size=size: F.interpolate(x, size=size, mode="bilinear", align_corners=True))
        Case(f"adaptiveAvg_{name}", {"x": [2, 2, 6, 7]}, lambda x, size=size: F.adaptive_avg_pool2d(x, size))
        Case(f"adaptiveMax_{name}", {"x": ([1, 2, 6, 7], "spread")}, lambda x, size=size: F.adaptive_max_pool2d(x, size))
    Case("nearest_scale", {"x": [1, 2, 5, 4]}, lambda x: F.interpolate(x, scale_factor=1.7))
    Case("bilinear_scale", {"x": [1, 2, 5, 4]}, lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"))
    Case("adaptiveAvg_1x1", {"x": [2, 2, 6, 7]}, lambda x: F.adaptive_avg_pool2d(x, 1))


def losses():
    labels = {"labels": ([6], 0, 4)}
    weights = torch.tensor([0.25, 1.0, 0.0, 0.5], dtype=torch.double)
    Case("crossEntropy_smoothed", {"x": [6, 4]}, lambda x, labels: F.cross_entropy(x, labels, label_smoothing=0.1), labels)
    Case("crossEntropy_weighted", {"x": [6, 4]}, lambda x, labels: F.cross_entropy(x, labels, weights), labels)
    Case("crossEntropy_both", {"x": [6, 4]},
         lambda x, labels: F.cross_entropy(x, labels, weights, label_smoothing=0.2, ignore_index=1), labels)
    Case("crossEntropy_ignored", {"x": [2, 6, 4]},
         lambda x, labels: F.cross_entropy(x.reshape(12, 4), labels.reshape(12), ignore_index=3), {"labels": ([2, 6], 0, 4)})
    Case("nllLoss", {"x": [6, 4]}, lambda x, labels: F.nll_loss(x, labels, weights, ignore_index=0), labels)
    Case("l1Loss", {"x": X, "t": X}, lambda x, t: F.l1_loss(x, t))
    Case("huberLoss", {"x": X, "t": X}, lambda x, t: F.huber_loss(x, t, delta=0.7))
    Case("bceWithLogits", {"x": (X, -6.0, 6.0), "t": (X, 0.0, 1.0)}, lambda x, t: F.binary_cross_entropy_with_logits(x, t))
    Case("bceWithLogits_weighted", {"x": torch.tensor([-60.0, -2.0, 0.0, 3.0, 60.0]), "t": ([5], 0.0, 1.0)},
         lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2.5, dtype=torch.double)))
    zeros = torch.tensor([[0.5, 0.5, 0.0], [0.125, 0.25, 0.625]])
    Case("klDivLoss", {"x": [2, 3]}, lambda x: F.kl_div(x, zeros.double()))
    Case("klDivLoss_batch", {"x": [2, 3], "t": [2, 3]}, lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True))
    soft = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]], dtype=torch.double)
    Case("crossEntropy_soft", {"x": [3, 4]}, lambda x: F.cross_entropy(x, soft))
    Case("crossEntropy_soft_options", {"x": [3, 4], "t": ([3, 4], 0.0, 1.0)},
         lambda x, t: F.cross_entropy(x, t, weights, label_smoothing=0.2))
    Case("crossEntropy_sum", {"x": [6, 4]},
         lambda x, labels: F.cross_entropy(x, labels, weights, ignore_index=1, reduction="sum"), labels)
    Case("crossEntropy_soft_sum", {"x": [3, 4]}, lambda x: F.cross_entropy(x, soft, reduction="sum"))
    Case("nllLoss_sum", {"x": [6, 4]}, lambda x, labels: F.nll_loss(x, labels, reduction="sum"), labels)
    Case("mseLoss_sum", {"x": X, "t": X}, lambda x, t: F.mse_loss(x, t, reduction="sum"))
    Case("l1Loss_sum", {"x": X, "t": X}, lambda x, t: F.l1_loss(x, t, reduction="sum"))
    Case("huberLoss_sum", {"x": X, "t": X}, lambda x, t: F.huber_loss(x, t, delta=0.7, reduction="sum"))
    Case("bceWithLogits_sum", {"x": X, "t": (X, 0.0, 1.0)},
         lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum"))
    Case("klDivLoss_sum", {"x": [2, 3], "t": [2, 3]}, lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True))
    unit = (X, 0.05, 0.95)
    Case("bceLoss", {"x": unit, "t": (X, 0.0, 1.0)}, lambda x, t: F.binary_cross_entropy(x, t))
    Case("bceLoss_sum", {"x": unit, "t": (X, 0.0, 1.0)}, lambda x, t: F.binary_cross_entropy(x, t, reduction="sum"))
    Case("cosineSimilarity", {"x": [3, 5], "y": [2, 3, 5]}, lambda x, y: F.cosine_similarity(x, y, dim=-1))
    sides = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.0, -1.0], dtype=torch.double)
    Case("cosineEmbeddingLoss", {"x": [6, 3], "y": [6, 3]},
         lambda x, y: F.cosine_embedding_loss(x, y, sides, margin=-0.3))
    Case("cosineEmbeddingLoss_sum", {"x": [6, 3], "y": [6, 3]},
         lambda x, y: F.cosine_embedding_loss(x, y, sides, reduction="sum"))
    def ctc(x, labels, numbers, lengths=None, **options):
        lengths = lengths or [x.shape[1]] * len(labels)
        return F.ctc_loss(x.log_softmax(-1).transpose(0, 1), torch.tensor(labels), lengths, numbers, **options)

    words = [[1, 1, 2], [3, 2, 0], [2, 0, 0]]
    Case("ctcLoss", {"x": [3, 6, 4]}, lambda x: ctc(x, words, [3, 2, 1]))
    Case("ctcLoss_options", {"x": [3, 6, 4]},
         lambda x: ctc(x, [[1, 1, 2], [0, 2, 0], [2, 0, 0]], [3, 2, 0], [6, 5, 3], blank=3, reduction="sum"))
    Case("ctcLoss_impossible", {"x": [3, 3, 4]}, lambda x: ctc(x, words, [3, 2, 1], zero_infinity=True))
    three = {"x": [4, 5], "y": [4, 5], "z": [4, 5]}
    Case("tripletMarginLoss", three, lambda x, y, z: F.triplet_margin_loss(x, y, z))
    Case("tripletMarginLoss_options", three,
         lambda x, y, z: F.triplet_margin_loss(x, y, z, margin=0.5, p=3, swap=True, reduction="sum"))


pointwise(), create(), reductions(), rearrange(), pictures(), losses()
