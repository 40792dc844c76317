"""The sample models in PyTorch, with the same layers as in samples/: same shapes, biases, initial learning rates.

`MODELS[name]`: the module, its synthetic batch and its optimizer.
"""
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    """784-512-512-10 with ReLU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def convnet():
    """Two blocks of 5x5 convolution with padding 2, batch norm, ReLU and 2x2 max-pool; one linear layer."""
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(block(1, 16), block(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected without bias where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    """ResNet-18 with the small stem: 3x3, stride 1, no max-pool; 28x28 images with one channel, 10 classes."""
    layers, inputs = [nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(BasicBlock(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Block(nn.Module):
    """Pre-norm transformer block: attention with fused qkv, then an MLP four times as wide. GPT: causal, with tanh-GELU."""

    def __init__(self, width, heads, gpt):
        super().__init__()
        self.heads, self.gpt = heads, gpt
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.gpt)
        x = x + self.out(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh" if self.gpt else "none"))


class Gpt(nn.Module):
    """Learned positions, no dropout, head tied to the embedding."""

    def __init__(self, layers, width, heads, context, vocab=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, gpt=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for weight in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight).flatten(0, 1)


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride (v1.5), 1x1 with four times as many channels, and a shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Sequential() if stride == 1 and inputs == 4 * width else nn.Sequential(
            nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def resnet50():
    layers, inputs = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Vit(nn.Module):
    """The mean of all positions is classified."""

    def __init__(self, layers, width, heads, patch, size, classes):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch)**2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, gpt=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


def rotated(x):
    """Rotary positions, halves of each head."""
    rows, size = x.shape[-2:]
    angles = torch.outer(torch.arange(rows), 10000.0**(-torch.arange(0, size, 2) / size))
    sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv):
        super().__init__()
        self.size = width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, n * self.size, bias=False) for n in (heads, kv, kv, heads))
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, kv, vocab=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, kv) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embed(ids)))).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self, width, vocab=128):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(vocab, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0]).flatten(0, 1)


def pictures(batch, channels=1, size=28, classes=10):
    return torch.rand(batch, channels, size, size), torch.randint(classes, (batch,))


def text(batch, context, vocab=128):
    return torch.randint(vocab, (batch, context)), torch.randint(vocab, (batch * context,))


@dataclass
class Model:
    make: Callable
    batch: Callable
    optimizer: Callable
    loss: Callable = F.cross_entropy


def sgd(weight_decay=0.0, lr=0.05, momentum=0.9):
    return lambda p, **o: torch.optim.SGD(p, lr=lr, momentum=momentum, weight_decay=weight_decay, **o)


def adam(kind):
    return lambda p, **o: kind(p, lr=0.001, **o)


MODELS = {
    "mlp": Model(mlp, lambda: pictures(128), sgd()),
    "convnet": Model(convnet, lambda: pictures(100), adam(torch.optim.Adam)),
    "gpt-4x128": Model(lambda: Gpt(4, 128, 4, 64), lambda: text(12, 64), adam(torch.optim.AdamW)),
    "resnet-18": Model(resnet18, lambda: pictures(64), sgd(weight_decay=0.0005)),
    "gpt-6x384": Model(lambda: Gpt(6, 384, 6, 256), lambda: text(8, 256), adam(torch.optim.AdamW)),
    "resnet-50": Model(resnet50, lambda: pictures(8, 3, 224, 1000), sgd(weight_decay=0.0005)),
    "vit-s16": Model(lambda: Vit(12, 384, 6, 16, 224, 1000), lambda: pictures(8, 3, 224, 1000), adam(torch.optim.AdamW)),
    "llama-6x384": Model(lambda: Llama(6, 384, 6, 2), lambda: text(8, 256), adam(torch.optim.AdamW)),
    "lstm-256": Model(lambda: Lstm(256), lambda: text(32, 64), adam(torch.optim.Adam)),
}
