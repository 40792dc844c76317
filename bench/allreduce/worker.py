"""torch.distributed's all-reduce over gloo, started with torchrun's environment. usage: worker.py BYTES CALLS"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
data = torch.ones(int(sys.argv[1]) // 4)
dist.all_reduce(data)
assert bool((data == dist.get_world_size()).all())
data.zero_()
took = []
for _ in range(5):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(int(sys.argv[2])):
        dist.all_reduce(data)
    took.append((time.perf_counter() - began) / int(sys.argv[2]))
if dist.get_rank() == 0:
    print(f"{statistics.median(took):.9f}")
dist.destroy_process_group()
