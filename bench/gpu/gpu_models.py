"""The models of the GPU benchmark in PyTorch, with the same layers as scripts/gpu-bundle's BENCH has in Cleave.

`MODELS[name]`: the module, its batch on the device, its optimizer, and its element types. MLP, ConvNet and GPT are
those of bench/compare (in a bundle: compare_models.py in this folder); ResNet-50 is defined here.
"""
import importlib.util
import os
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


def load_compare():
    beside = os.path.join(HERE, "compare_models.py")
    path = beside if os.path.exists(beside) else os.path.join(HERE, "..", "compare", "models.py")
    spec = importlib.util.spec_from_file_location("compare_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compare = load_compare()


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride: v1.5), 1x1 with four times the channels, and a shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def resnet50(classes=1000, channels=3):
    """With the stem of ImageNet: 7x7, stride 2, then a 3x3 max-pool of stride 2."""
    layers = [nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not block else 1))
            inputs = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


@dataclass
class GpuModel:
    make: Callable
    batch: Callable
    optimizer: Callable
    half: bool           # autocast to bf16 over fp32 parameters; otherwise fp32 with TF32 products
    channels_last: bool = False


def of_compare(name, **more):
    model = compare.MODELS[name]
    return GpuModel(model.make, model.batch, model.optimizer, False, **more)


def gpt2(batch):
    return GpuModel(lambda: compare.Gpt(12, 768, 12, 1024, 50304), lambda: compare.text(batch, 1024, 50304),
                    compare.adam(torch.optim.AdamW), True)


MODELS = {
    **{f"gpt2-b{batch}": gpt2(batch) for batch in (8, 16, 32)},
    "resnet50-b256": GpuModel(resnet50, lambda: (torch.rand(256, 3, 224, 224), torch.randint(1000, (256,))),
                              compare.sgd(weight_decay=0.0005), True, True),
    "convnet": of_compare("convnet", channels_last=True),
    "mlp": of_compare("mlp"),
}
