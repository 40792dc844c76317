"""Trains a model of models.py or survey.py with PyTorch and prints one JSON object: every step's time, the peak memory,
and the memory that importing PyTorch alone takes.

A separate process, so that its memory and threads are measured separately. Called by compare.
"""
import argparse
import json
import time

import torch

import models
import survey

MODELS = models.MODELS | survey.MODELS


def peak_kib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--mode", choices=["eager", "channels-last", "compile"], required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()

    imported = peak_kib()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    spec = MODELS[a.model]
    model = spec.make()
    # Eager is typical user code, channels last helps convolutions; compiled is PyTorch's fastest mode, with its fused optimizer.
    optimizer = spec.optimizer(model.parameters(), **({"fused": True} if a.mode == "compile" else {}))
    x, y = spec.batch()
    if a.mode == "channels-last":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    inputs = x if isinstance(x, tuple) else (x,)

    def loss_of(inputs, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            return spec.loss(model(*inputs), y)

    forward = torch.compile(loss_of) if a.mode == "compile" else loss_of
    times = []
    for _ in range(a.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = forward(inputs, y)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append((time.perf_counter() - start) * 1000)
    print(json.dumps({"step_ms": times, "peak_kib": peak_kib(), "import_kib": imported, "loss": loss.item(),
                      "torch": torch.__version__, "parameters": sum(p.numel() for p in model.parameters())}))


main()
