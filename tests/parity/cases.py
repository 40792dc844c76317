"""One case per op: its IR, its inputs and the equivalent PyTorch function.

A case becomes a module whose @forward has every float input as a trainable parameter. It returns loss = sum(result * c), for a
given tensor c, and the result itself (kind "buffer"). So the gradient of every operand is compared under a cotangent that is
not uniform. Values come from Philox, see philox.py.
"""
import torch
import torch.nn.functional as F
from philox import fnv1a64, uniform

CASES = []


def tensor_type(shape, element="f32"):
    return "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"


class Case:
    """params: name -> shape (values in [-1, 1)), (shape, low, high), or (shape, "spread"): values so far apart that small steps
    never reorder them; ints: name -> (shape, low, high), low <= value < high."""

    def __init__(self, name, params, body, result, fn, ints=None, weight=None):
        self.name, self.body, self.fn, self.result_shape = name, body, fn, list(result)
        self.floats, self.ints = {}, {}
        for key, spec in params.items():
            if isinstance(spec, tuple) and spec[1] == "spread":
                drawn = self.draw(key, spec[0], 0.0, 1.0).reshape(-1)
                ranks = drawn.argsort().argsort().float()
                self.floats[key] = (2 * ranks / len(drawn) - 1).reshape(spec[0])
                continue
            shape, low, high = spec if isinstance(spec, tuple) else (spec, -1.0, 1.0)
            self.floats[key] = self.draw(key, shape, low, high)
        for key, (shape, low, high) in (ints or {}).items():
            self.ints[key] = self.draw(key, shape, low, high).floor().to(torch.int32)
        if result:
            self.cotangent = self.draw("c", result, -1.0, 1.0)
        else:
            self.cotangent = torch.tensor(0.75)
        CASES.append(self)

    def draw(self, key, shape, low, high):
        count = 1
        for size in shape:
            count *= size
        values = uniform(fnv1a64(f"{self.name}.{key}"), 0, count)
        return torch.from_numpy((low + (high - low) * values).astype("float32").reshape(shape))

    def ir(self):
        def arg(name, shape, element, kind):
            trainable = ", cleave.trainable = true" if kind == "parameter" else ""
            return f'%{name}: {tensor_type(shape, element)} {{cleave.kind = "{kind}", cleave.name = "{name}"{trainable}}}'

        args = [arg(k, v.shape, "f32", "parameter") for k, v in self.floats.items()]
        args += [arg(k, v.shape, "i32", "input") for k, v in self.ints.items()]
        args.append(arg("c", self.result_shape, "f32", "input"))
        out = tensor_type(self.result_shape)
        dims = ", ".join(str(i) for i in range(len(self.result_shape)))
        lines = [
            "module {",
            f"func.func @forward({', '.join(args)}) -> (tensor<f32> {{cleave.kind = \"loss\"}}, "
            f'{out} {{cleave.kind = "buffer", cleave.name = "result"}}) attributes {{cleave.static_weight = 1 : i64}} {{',
            *["  " + line.strip() for line in self.body.strip().splitlines()],
            f"  %weighted = cleave.mul %result, %c : {out}",
            f"  %loss = cleave.reduce sum %weighted dims [{dims}] : {out} -> tensor<f32>"
            if self.result_shape
            else "  %loss = cleave.reshape %weighted : tensor<f32> -> tensor<f32>",
            f"  return %loss, %result : tensor<f32>, {out}",
            "}",
            "}",
        ]
        return "\n".join(lines)

    def expected(self):
        """(result, {name: gradient}), computed in double from inputs rounded to f32."""
        floats = {k: v.double().requires_grad_() for k, v in self.floats.items()}
        result = self.fn(**floats, **{k: v.long() for k, v in self.ints.items()})
        loss = (result * self.cotangent.double()).sum()
        loss.backward()
        return result.detach(), {k: (v.grad if v.grad is not None else torch.zeros_like(v)) for k, v in floats.items()}


T = tensor_type
POSITIVE = ([3, 5], 0.2, 2.0)


def unary(op, fn, spec=((3, 5), -2.0, 2.0), attributes="", name=None):
    t = T(spec[0])
    Case(name or op, {"x": spec}, f"%result = cleave.{op} %x {attributes} : {t}", spec[0], fn)


def binary(op, fn, x=((3, 5), -2.0, 2.0), y=((3, 5), -2.0, 2.0), name=None):
    Case(name or op, {"x": x, "y": y}, f"%result = cleave.{op} %x, %y : {T(x[0])}", x[0], fn)


def elementwise():
    unary("neg", lambda x: -x)
    unary("abs", lambda x: x.abs())
    unary("exp", lambda x: x.exp())
    unary("log", lambda x: x.log(), POSITIVE)
    unary("sqrt", lambda x: x.sqrt(), POSITIVE)
    unary("rsqrt", lambda x: x.rsqrt(), POSITIVE)
    unary("tanh", lambda x: x.tanh())
    unary("erf", lambda x: x.erf())
    unary("sin", lambda x: x.sin(), ((3, 5), -7.0, 7.0))
    unary("cos", lambda x: x.cos(), ((3, 5), -7.0, 7.0))
    unary("sigmoid", lambda x: x.sigmoid())
    unary("relu", lambda x: x.relu())
    unary("log1p", lambda x: x.log1p(), ((3, 5), -0.9, 3.0))
    unary("expm1", lambda x: x.expm1())
    unary("sinh", lambda x: x.sinh())
    unary("tan", lambda x: x.tan(), ((3, 5), -1.4, 1.4))
    unary("floor", lambda x: x.floor())
    unary("ceil", lambda x: x.ceil())
    unary("round", lambda x: x.round(), ((3, 5), 0.6, 1.4))
    unary("silu", lambda x: F.silu(x))
    unary("gelu", lambda x: F.gelu(x))
    unary("gelu", lambda x: F.gelu(x, approximate="tanh"), attributes="{tanh}", name="gelu_tanh")
    binary("add", lambda x, y: x + y)
    binary("sub", lambda x, y: x - y)
    binary("mul", lambda x, y: x * y)
    binary("div", lambda x, y: x / y, y=((3, 5), 0.5, 2.0))
    binary("max", lambda x, y: torch.maximum(x, y))
    binary("min", lambda x, y: torch.minimum(x, y))
    binary("pow", lambda x, y: x**y, x=POSITIVE)
    binary("remainder", lambda x, y: torch.remainder(x, y), ((3, 5), 4.5, 6.2), ((3, 5), 2.1, 2.2))
    binary("atan2", lambda x, y: torch.atan2(x, y))
    t = T([3, 5])
    Case("mul_same_operand", {"x": [3, 5]}, f"%result = cleave.mul %x, %x : {t}", [3, 5], lambda x: x * x)
    Case(
        "select", {"x": [3, 5], "y": [3, 5]},
        f"""%p = cleave.compare gt %x, %y : {t} -> {T([3, 5], "i1")}
            %n = cleave.neg %y : {t}
            %result = cleave.select %p, %x, %n : {T([3, 5], "i1")}, {t}""",
        [3, 5], lambda x, y: torch.where(x > y, x, -y))


def shapes():
    Case("broadcast", {"x": [3, 4]}, f"%result = cleave.broadcast %x dims [0, 2] : {T([3, 4])} -> {T([3, 2, 4, 2])}",
         [3, 2, 4, 2], lambda x: x[:, None, :, None].expand(3, 2, 4, 2))
    for kind, fn in {"sum": lambda x: x.sum((0, 2)), "max": lambda x: x.amax((0, 2)), "min": lambda x: x.amin((0, 2))}.items():
        Case(f"reduce_{kind}", {"x": ([3, 4, 5], "spread")},
             f"%result = cleave.reduce {kind} %x dims [0, 2] : {T([3, 4, 5])} -> {T([4])}", [4], fn)
    Case("reshape", {"x": [3, 4, 5]}, f"%result = cleave.reshape %x : {T([3, 4, 5])} -> {T([6, 10])}", [6, 10],
         lambda x: x.reshape(6, 10))
    Case("transpose", {"x": [3, 4, 5]},
         f"%result = cleave.transpose %x permutation [2, 0, 1] : {T([3, 4, 5])} -> {T([5, 3, 4])}", [5, 3, 4],
         lambda x: x.permute(2, 0, 1))
    Case("slice", {"x": [4, 6]}, f"%result = cleave.slice %x starts [1, 2] sizes [2, 3] : {T([4, 6])} -> {T([2, 3])}",
         [2, 3], lambda x: x[1:3, 2:5])
    Case("pad", {"x": [2, 3]}, f"%result = cleave.pad %x low [1, 0] high [2, 1] : {T([2, 3])} -> {T([5, 4])}", [5, 4],
         lambda x: F.pad(x, (0, 1, 1, 2)))
    Case("concat", {"x": [2, 3], "y": [2, 1], "z": [2, 2]},
         f"%result = cleave.concat %x, %y, %z {{dim = 1 : i64}} : ({T([2, 3])}, {T([2, 1])}, {T([2, 2])}) -> {T([2, 6])}",
         [2, 6], lambda x, y, z: torch.cat([x, y, z], 1))
    Case("gather", {"x": [3, 5]},
         f"%result = cleave.gather %x, %index {{dim = 1 : i64}} : ({T([3, 5])}, {T([3, 4], 'i32')}) -> {T([3, 4])}", [3, 4],
         lambda x, index: x.gather(1, index), ints={"index": ([3, 4], 0, 5)})
    Case("scatter_add", {"x": [3, 4]},
         f"%result = cleave.scatter_add %x, %index {{dim = 1 : i64}} : ({T([3, 4])}, {T([3, 4], 'i32')}) -> {T([3, 5])}", [3, 5],
         lambda x, index: torch.zeros(3, 5, dtype=x.dtype).scatter_add(1, index, x), ints={"index": ([3, 4], 0, 5)})
    Case("embedding", {"table": [7, 4]},
         f"%result = cleave.embedding %table, %ids : ({T([7, 4])}, {T([2, 5], 'i32')}) -> {T([2, 5, 4])}", [2, 5, 4],
         lambda table, ids: F.embedding(ids, table), ints={"ids": ([2, 5], 0, 7)})
    Case("two_uses", {"x": [3, 4]},
         f"""%e = cleave.exp %x : {T([3, 4])}
             %r = cleave.reduce sum %e dims [1] : {T([3, 4])} -> {T([3])}
             %b = cleave.broadcast %r dims [0] : {T([3])} -> {T([3, 4])}
             %d = cleave.div %e, %b : {T([3, 4])}
             %result = cleave.add %d, %x : {T([3, 4])}""",
         [3, 4], lambda x: x.softmax(1) + x)


def products():
    def matmul(name, a, b, result, trans_a=False, trans_b=False):
        flags = ", ".join(n for n, on in (("transA", trans_a), ("transB", trans_b)) if on)
        Case(name, {"a": a, "b": b},
             f"%result = cleave.matmul %a, %b {{{flags}}} : ({T(a)}, {T(b)}) -> {T(result)}", result,
             lambda a, b: (a.mT if trans_a else a) @ (b.mT if trans_b else b))

    matmul("matmul", [3, 4], [4, 5], [3, 5])
    matmul("matmul_ta", [4, 3], [4, 5], [3, 5], trans_a=True)
    matmul("matmul_tb", [3, 4], [5, 4], [3, 5], trans_b=True)
    matmul("matmul_ta_tb", [4, 3], [5, 4], [3, 5], trans_a=True, trans_b=True)
    matmul("matmul_batched", [2, 3, 4], [2, 4, 5], [2, 3, 5])
    matmul("matmul_batched_ta", [2, 4, 3], [2, 4, 5], [2, 3, 5], trans_a=True)
    matmul("matmul_batched_tb", [2, 2, 3, 4], [2, 2, 5, 4], [2, 2, 3, 5], trans_b=True)
    matmul("matmul_batched_ta_tb", [2, 4, 3], [2, 5, 4], [2, 3, 5], trans_a=True, trans_b=True)
    matmul("matmul_shared", [2, 3, 4], [4, 5], [2, 3, 5])
    matmul("matmul_shared_tb", [2, 2, 3, 4], [5, 4], [2, 2, 3, 5], trans_b=True)

    def conv(name, x, w, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
        def fn(input, weight):
            top, left, bottom, right = padding
            return F.conv2d(F.pad(input, (left, right, top, bottom)), weight, None, stride, 0, dilation, groups)

        result = list(fn(torch.zeros(x), torch.zeros(w)).shape)
        ints = lambda values: "array<i64: " + ", ".join(map(str, values)) + ">"
        Case(name, {"input": x, "weight": w},
             f"%result = cleave.conv2d %input, %weight {{stride = {ints(stride)}, padding = {ints(padding)}, "
             f"dilation = {ints(dilation)}, groups = {groups} : i64}} : ({T(x)}, {T(w)}) -> {T(result)}", result, fn)

    conv("conv2d", [2, 3, 5, 6], [4, 3, 3, 3])
    conv("conv2d_stride_padding", [2, 2, 6, 7], [3, 2, 3, 3], (2, 2), (1, 1, 1, 1))
    conv("conv2d_uneven_padding", [1, 2, 5, 4], [2, 2, 2, 3], (1, 2), (0, 1, 2, 0))
    conv("conv2d_dilation", [1, 2, 7, 7], [2, 2, 3, 3], (1, 1), (2, 2, 2, 2), (2, 2))
    conv("conv2d_groups", [2, 4, 4, 4], [6, 2, 3, 3], (1, 1), (1, 1, 1, 1), (1, 1), 2)
    conv("conv2d_depthwise", [1, 3, 5, 5], [3, 1, 3, 3], (1, 1), (1, 1, 1, 1), (1, 1), 3)
    conv("conv2d_1x1", [2, 3, 3, 3], [5, 3, 1, 1])

    def pool(kind, name, x, kernel, stride, padding, fn):
        result = list(fn(torch.zeros(x)).shape)
        ints = lambda values: "array<i64: " + ", ".join(map(str, values)) + ">"
        second = ", %workspace" if kind == "max" else ""
        types = f"({T(result)}, {T(result, 'i32')})" if kind == "max" else T(result)
        Case(name, {"x": (x, "spread")},
             f"%result{second} = cleave.{kind}_pool2d %x {{kernel = {ints(kernel)}, stride = {ints(stride)}, "
             f"padding = {ints(padding)}}} : ({T(x)}) -> {types}", result, fn)

    pool("max", "max_pool2d", [2, 2, 4, 6], (2, 2), (2, 2), (0, 0, 0, 0), lambda x: F.max_pool2d(x, 2))
    pool("max", "max_pool2d_overlap", [1, 2, 5, 5], (3, 3), (2, 2), (1, 1, 1, 1), lambda x: F.max_pool2d(x, 3, 2, 1))
    pool("avg", "avg_pool2d", [2, 2, 4, 6], (2, 2), (2, 2), (0, 0, 0, 0), lambda x: F.avg_pool2d(x, 2))
    pool("avg", "avg_pool2d_overlap", [1, 2, 5, 5], (3, 3), (2, 2), (1, 1, 1, 1), lambda x: F.avg_pool2d(x, 3, 2, 1))

    def attention(name, t, s, causal):
        q, k, scale = [2, 2, t, 4], [2, 2, s, 4], 0.4

        def fn(q, k, v):
            scores = scale * q @ k.mT
            if causal:
                hidden = torch.arange(s)[None, :] > torch.arange(t)[:, None] + s - t
                scores = scores.masked_fill(hidden, float("-inf"))
            return scores.softmax(-1) @ v

        Case(name, {"q": q, "k": k, "v": k},
             f"%result, %lse = cleave.attention %q, %k, %v {{scale = {scale} : f64{', causal' if causal else ''}}} : "
             f"({T(q)}, {T(k)}, {T(k)}) -> ({T(q)}, {T(q[:3])})", q, fn)

    attention("attention", 3, 5, False)
    attention("attention_causal", 4, 4, True)
    attention("attention_causal_longer", 2, 5, True)

    q, k, scores = [2, 2, 3, 4], [2, 2, 5, 4], [2, 2, 3, 5]

    def whole(q, k, v, b, m):
        b = b.masked_fill(torch.arange(5) == 1, float("-inf"))
        hidden = torch.arange(5)[None, :] > torch.arange(3)[:, None] + 2
        probabilities = (0.4 * q @ k.mT + b).masked_fill(hidden, float("-inf")).softmax(-1)
        return (m >= 0).float() * probabilities / 0.75 @ v

    Case("attention_bias_dropout", {"q": q, "k": k, "v": k, "b": scores, "m": scores},
         f"""%i = cleave.iota {{dim = 3 : i64}} : () -> {T(scores, "i32")}
         %one = cleave.constant dense<1> : {T(scores, "i32")} : {T(scores, "i32")}
         %first = cleave.compare eq %i, %one : {T(scores, "i32")} -> {T(scores, "i1")}
         %hidden = cleave.constant dense<0xFF800000> : {T(scores)} : {T(scores)}
         %bias = cleave.select %first, %hidden, %b : {T(scores, "i1")}, {T(scores)}
         %zero = cleave.constant dense<0.0> : {T(scores)} : {T(scores)}
         %keep = cleave.compare ge %m, %zero : {T(scores)} -> {T(scores, "i1")}
         %result, %lse = cleave.attention %q, %k, %v bias %bias keep %keep {{scale = 0.4 : f64, causal, dropout = 0.25 : f64}} :
             ({T(q)}, {T(k)}, {T(k)}, {T(scores)}, {T(scores, "i1")}) -> ({T(q)}, {T(q[:3])})""", q, whole)


def norms_and_losses():
    for dim in (0, 2):
        t = T([3, 4, 5])
        Case(f"softmax_{dim}", {"x": [3, 4, 5]}, f"%result = cleave.softmax %x {{dim = {dim} : i64}} : ({t}) -> {t}",
             [3, 4, 5], lambda x, dim=dim: x.softmax(dim))
        Case(f"log_softmax_{dim}", {"x": [3, 4, 5]}, f"%result = cleave.log_softmax %x {{dim = {dim} : i64}} : ({t}) -> {t}",
             [3, 4, 5], lambda x, dim=dim: x.log_softmax(dim))
    x, v = T([2, 3, 6]), T([6])
    Case("layer_norm", {"x": ([2, 3, 6], -1.0, 3.0), "weight": ([6], 0.5, 1.5), "bias": [6]},
         f"%result, %mean, %rstd = cleave.layer_norm %x, %weight, %bias {{eps = 1.0e-05 : f64}} : ({x}, {v}, {v}) -> "
         f"({x}, {T([2, 3])}, {T([2, 3])})", [2, 3, 6], lambda x, weight, bias: F.layer_norm(x, (6,), weight, bias, 1e-5))
    x, v = T([4, 3, 2, 2]), T([3])
    params = {"x": ([4, 3, 2, 2], -1.0, 3.0), "weight": ([3], 0.5, 1.5), "bias": [3]}
    Case("batch_norm", params,
         f"%result, %mean, %variance = cleave.batch_norm %x, %weight, %bias {{eps = 1.0e-05 : f64}} : ({x}, {v}, {v}) -> "
         f"({x}, {v}, {v})", [4, 3, 2, 2],
         lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-5))
    Case("batch_norm_group", params,
         f"%result, %mean, %variance = cleave.batch_norm %x, %weight, %bias {{eps = 1.0e-05 : f64, group = 2 : i64}} : "
         f"({x}, {v}, {v}) -> ({x}, {T([2, 3])}, {T([2, 3])})", [4, 3, 2, 2],
         lambda x, weight, bias: torch.cat(
             [F.batch_norm(part, None, None, weight, bias, True, 0.1, 1e-5) for part in x.split(2)]))
    x, v = T([6, 4]), T([4])
    Case("batch_norm_rank2", {"x": ([6, 4], -1.0, 3.0), "weight": ([4], 0.5, 1.5), "bias": [4]},
         f"%result, %mean, %variance = cleave.batch_norm %x, %weight, %bias {{eps = 1.0e-03 : f64}} : ({x}, {v}, {v}) -> "
         f"({x}, {v}, {v})", [6, 4], lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-3))

    def cross_entropy(name, logits, low):
        rows = logits[:-1]

        def fn(x, labels):
            return F.cross_entropy(x.reshape(-1, logits[-1]), labels.reshape(-1).clamp(min=-1), ignore_index=-1, reduction="sum")

        Case(name, {"x": (logits, -3.0, 3.0)},
             f"%result, %weight, %lse = cleave.cross_entropy %x, %labels : ({T(logits)}, {T(rows, 'i32')}) -> "
             f"(tensor<f32>, tensor<f32>, {T(rows)})", [], fn, ints={"labels": (rows, low, logits[-1])})

    cross_entropy("cross_entropy", [5, 4], 0)
    cross_entropy("cross_entropy_ignored", [3, 4, 5], -3)
    Case("top_correct", {"x": ([8, 3], -3.0, 3.0)},
         f"%result = cleave.top_correct %x, %labels : ({T([8, 3])}, {T([8], 'i32')}) -> tensor<f32>", [],
         lambda x, labels: ((x.argmax(1) == labels).double().sum() + 0 * x.sum()), ints={"labels": ([8], -1, 3)})


for group in (elementwise, shapes, products, norms_and_losses):
    group()
