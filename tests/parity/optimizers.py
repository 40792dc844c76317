"""Five steps of PyTorch's optimizers in double on two parameters with given gradients.

Each case has a Cleave optimizer dictionary, as MLIR text, and the equivalent torch optimizer. The gradients are those of a loss
that was divided by a static count of 8 although only `weight` samples count, so Cleave multiplies them by 8 / weight.
"""
import torch
from philox import fnv1a64, uniform

SHAPES = {"a.weight": [3, 4], "a.bias": [4]}
STEPS, STATIC_COUNT, WEIGHTS = 5, 8, [8, 6, 8, 3, 8]


def draw(key, shape, scale):
    count = 1
    for size in shape:
        count *= size
    return torch.from_numpy((scale * (2 * uniform(fnv1a64(key), 0, count) - 1)).astype("float32").reshape(shape))


def array(tensor):
    return {"shape": list(tensor.shape), "data": [float(f"{v:.9g}") for v in tensor.reshape(-1).tolist()]}


def case(name, attributes, make, lr=0.1, clip=None, bias_attributes="", group=None, ema=None):
    """group: torch options for a.bias, with the same meaning as bias_attributes. ema: the decay of averages."""

    def run():
        initial = {k: draw(f"{name}.{k}", shape, 1.0) for k, shape in SHAPES.items()}
        parameters = {k: torch.nn.Parameter(v.double()) for k, v in initial.items()}
        optimizer = make([{"params": [parameters["a.weight"]]}, {"params": [parameters["a.bias"]], **(group or {})}], lr)
        gradients, steps, averages = [], [], []
        averaged = torch.optim.swa_utils.AveragedModel(
            torch.nn.ParameterList(parameters.values()), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(ema)) if ema else None
        for step in range(STEPS):
            grads = {k: draw(f"{name}.{k}.{step}", shape, 0.5) for k, shape in SHAPES.items()}
            for k, p in parameters.items():
                p.grad = grads[k].double() * STATIC_COUNT / WEIGHTS[step]
            if clip:
                torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
            optimizer.step()
            gradients.append({k: array(v) for k, v in grads.items()})
            steps.append({k: array(v.detach()) for k, v in parameters.items()})
            if averaged:
                averaged.update_parameters(torch.nn.ParameterList(parameters.values()))
                averages.append({k: array(v.detach()) for k, v in zip(parameters, averaged.module)})
        return {
            "name": name, "optimizer": attributes, "lr": lr, "bias_attributes": bias_attributes,
            "static_count": STATIC_COUNT, "weights": WEIGHTS,
            "initial": {k: array(v) for k, v in initial.items()}, "gradients": gradients, "parameters": steps,
            **({"averages": averages} if ema else {}),
        }

    return run


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
CASES = [
    case("sgd", '{name = "sgd"}', lambda p, lr: SGD(p, lr)),
    case("sgd_momentum", '{name = "sgd", momentum = 0.9 : f64}', lambda p, lr: SGD(p, lr, momentum=0.9)),
    case("sgd_nesterov_decay", '{name = "sgd", momentum = 0.9 : f64, nesterov = true, weight_decay = 0.05 : f64}',
         lambda p, lr: SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=0.05)),
    case("sgd_clip", '{name = "sgd", momentum = 0.5 : f64, clip_norm = 0.3 : f64}',
         lambda p, lr: SGD(p, lr, momentum=0.5), clip=0.3),
    case("sgd_groups", '{name = "sgd", weight_decay = 0.1 : f64}', lambda p, lr: SGD(p, lr, weight_decay=0.1),
         bias_attributes=", cleave.weight_decay = 0.0 : f64, cleave.lr_scale = 2.0 : f64",
         group={"weight_decay": 0.0, "lr": 0.2}),
    case("sgd_ema", '{name = "sgd", momentum = 0.9 : f64, ema = 0.7 : f64}', lambda p, lr: SGD(p, lr, momentum=0.9), ema=0.7),
    case("adamw_ema", '{name = "adamw", weight_decay = 0.1 : f64, ema = 0.99 : f64}',
         lambda p, lr: ADAMW(p, lr, weight_decay=0.1), lr=0.01, ema=0.99),
    case("adam", '{name = "adam", beta1 = 0.8 : f64, beta2 = 0.99 : f64, eps = 1.0e-6 : f64, weight_decay = 0.1 : f64}',
         lambda p, lr: ADAM(p, lr, (0.8, 0.99), 1e-6, 0.1), lr=0.01),
    case("adam_defaults", '{name = "adam"}', lambda p, lr: ADAM(p, lr), lr=0.01),
    case("adamw", '{name = "adamw", weight_decay = 0.1 : f64}', lambda p, lr: ADAMW(p, lr, weight_decay=0.1), lr=0.01),
    case("adamw_clip_groups", '{name = "adamw", weight_decay = 0.1 : f64, clip_norm = 0.5 : f64}',
         lambda p, lr: ADAMW(p, lr, weight_decay=0.1), lr=0.01, clip=0.5,
         bias_attributes=", cleave.weight_decay = 0.0 : f64, cleave.lr_scale = 0.5 : f64",
         group={"weight_decay": 0.0, "lr": 0.005}),
]
