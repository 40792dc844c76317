"""PyTorch's side of the benchmark: a process that keeps its model, so that torch.compile compiles only once, and answers
each input line with a line of JSON. Started by run.py.

  run STEPS   trains; the time of a step and the peak memory
  matmul      the rate of a plain 8192^3 bf16 product
  copy        bytes per second, read and written, of a copy within device memory
"""
import argparse
import json
import sys
import time

import torch

from gpu_models import MODELS


class Trainer:
    def __init__(self, name, mode):
        spec = MODELS[name]
        torch.manual_seed(1)
        self.half = spec.half
        layout = {"memory_format": torch.channels_last} if spec.channels_last else {}
        self.model = spec.make().cuda().to(**layout)
        x, y = spec.batch()
        self.x, self.y = x.cuda().to(**(layout if x.dim() == 4 else {})), y.cuda()
        self.optimizer = spec.optimizer(self.model.parameters(), fused=True)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.forward = torch.compile(self.loss) if mode == "compile" else self.loss

    def loss(self, x, y):
        return self.criterion(self.model(x), y)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.half):
            loss = self.forward(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, steps):
        """The host waits for the device every eighth step, as Cleave's loop does."""
        for _ in range(max(3, steps // 8)):
            self.step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        for index in range(steps):
            loss = self.step()
            if index % 8 == 7:
                loss.item()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        said = {"step_ms": seconds / steps * 1000, "peak_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.max_memory_reserved(), "loss": loss.item(),
                "parameters": sum(p.numel() for p in self.model.parameters())}
        self.optimizer.zero_grad(set_to_none=True)
        del loss
        torch.cuda.empty_cache() # the other sides run on the same device
        return said


def seconds_of(work, times):
    """Median seconds of `times` calls, each measured between two CUDA events."""
    work(), work()
    found = []
    for _ in range(times):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1000)
    return sorted(found)[len(found) // 2]


def matmul():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return {"flops": 2 * 8192**3 / seconds_of(lambda: a @ b, 20)}


def copy():
    a = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    b = torch.empty_like(a)
    return {"bytes_per_s": 2 * a.numel() / seconds_of(lambda: b.copy_(a), 20)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    answers, sys.stdout = sys.stdout, sys.stderr # PyTorch's own output must not be taken for an answer
    trainer = Trainer(a.model, a.mode) if a.model else None
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}),
          file=answers, flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        said = trainer.run(int(rest[0])) if word == "run" else matmul() if word == "matmul" else copy()
        print(json.dumps(said), file=answers, flush=True)


main()
