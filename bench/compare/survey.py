"""The models of survey.cpp in PyTorch, with the same layers: same shapes and biases. `MODELS` is as in models.py."""
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from models import Gpt, Model, adam, sgd, text

relu, batch_norm, chain = nn.ReLU, nn.BatchNorm2d, nn.Sequential


class Do(nn.Module):
    """A function as a layer, with the modules and parameters that it uses."""

    def __init__(self, f, *parts):
        super().__init__()
        self.f = f
        for i, part in enumerate(parts):
            setattr(self, f"part{i}", part)

    def forward(self, *x):
        return self.f(*x)


def residual(f, shortcut=None):
    return Do((lambda x: F.relu(f(x) + shortcut(x))) if shortcut else (lambda x: x + f(x)), f, shortcut)


def join(*parts):
    return Do(lambda x: torch.cat([part(x) for part in parts], 1), *parts)


def permute(*dims):
    return Do(lambda x: x.permute(dims))


def conv(inputs, outputs, kernel, stride=1, padding=None, dilation=1, groups=1, bias=False):
    padding = dilation * (kernel // 2) if padding is None else padding
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias)


def conv_norm(inputs, outputs, kernel, *after, norm=batch_norm, **window):
    return chain(conv(inputs, outputs, kernel, **window), norm(outputs), *after)


def mlp(width, hidden):
    return chain(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def dense(*sizes, before=lambda width: nn.Identity(), after=nn.Identity):
    return [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), before(b), relu(), after())]


def head(width, classes, *norm):
    return chain(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *norm, nn.Linear(width, classes))


def excite(channels, narrow, f):
    scale = chain(nn.Linear(channels, narrow), f, nn.Linear(narrow, channels), nn.Sigmoid())
    return Do(lambda x: x * scale(x.mean((2, 3)))[:, :, None, None], scale)


def attention(width, causal=False):
    """Four heads, of x to y, or to itself."""
    qkv, out = [nn.Linear(width, width) for _ in range(3)], nn.Linear(width, width)

    def forward(x, mask=None, y=None):
        y = x if y is None else y
        q, k, v = (part(z).unflatten(2, (4, -1)).transpose(1, 2) for part, z in zip(qkv, (x, y, y)))
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1, is_causal=causal)
        return out(z.transpose(1, 2).flatten(2))
    return Do(forward, *qkv, out)


def inverted(widths, counts, kernels, f, squeeze=False):
    layers, inputs = [conv_norm(3, 32, 3, f(), stride=2)], 32
    for i, (width, count, kernel) in enumerate(zip(widths, counts, kernels)):
        for j in range(count):
            wide, stride = 6 * inputs if i else inputs, 1 if j else (1, 2, 2, 2, 1, 2, 1)[i]
            depthwise = conv_norm(wide, wide, kernel, f(), stride=stride, groups=wide)
            block = chain(*[conv_norm(inputs, wide, 1, f())] * (i > 0), depthwise, *[excite(wide, inputs // 4, f())] * squeeze,
                          conv_norm(wide, width, 1))
            layers.append(residual(block) if stride == 1 and inputs == width else block)
            inputs = width
    return chain(*layers, conv_norm(inputs, 1280, 1, f()), head(1280, 1000))


def convnext():
    layers = [conv(3, 64, 4, 4, 0, bias=True)]
    for width in (64, 128, 256, 512):
        layers += [permute(0, 2, 3, 1), nn.LayerNorm(max(64, width // 2)), permute(0, 3, 1, 2)]
        layers += [conv(width // 2, width, 2, 2, 0, bias=True)] * (width > 64)
        for _ in range(4 if width == 256 else 2):
            scale = nn.Parameter(torch.full((width,), 1e-6))
            layers.append(residual(chain(
                conv(width, width, 7, groups=width, bias=True), permute(0, 2, 3, 1), nn.LayerNorm(width), mlp(width, 4 * width),
                Do(lambda x, scale=scale: x * scale, scale), permute(0, 3, 1, 2))))
    return chain(*layers, head(512, 1000, nn.LayerNorm(512)))


def convmixer():
    layers = [conv(3, 256, 7, 7, 0, bias=True), nn.GELU(), batch_norm(256)]
    for _ in range(6):
        layers += [residual(chain(conv(256, 256, 9, groups=256, bias=True), nn.GELU(), batch_norm(256))),
                   conv(256, 256, 1, bias=True), nn.GELU(), batch_norm(256)]
    return chain(*layers, head(256, 1000))


def unet():
    def twice(inputs, outputs):
        return chain(conv_norm(inputs, outputs, 3, relu()), conv_norm(outputs, outputs, 3, relu()))
    net = twice(256, 512)
    for c in (256, 128, 64, 32):  # from the inside
        inside = chain(nn.MaxPool2d(2), net, nn.ConvTranspose2d(2 * c, c, 2, 2))
        net = chain(twice(3 if c == 32 else c // 2, c), join(nn.Identity(), inside), twice(2 * c, c))
    return chain(net, conv(32, 3, 1, bias=True))


def densenet():
    layers, c = [conv_norm(3, 64, 7, relu(), stride=2), nn.MaxPool2d(3, 2, 1)], 64
    for count in (6, 8, 8, 6):
        if c > 64:
            layers += [batch_norm(c), relu(), conv(c, c // 2, 1), nn.AvgPool2d(2)]
            c //= 2
        for _ in range(count):
            f = chain(batch_norm(c), relu(), conv(c, 128, 1), batch_norm(128), relu(), conv(128, 32, 3))
            layers.append(join(nn.Identity(), f))
            c += 32
    return chain(*layers, batch_norm(c), relu(), head(c, 1000))


def resnext():
    layers, inputs = [conv_norm(3, 64, 7, relu(), stride=2), nn.MaxPool2d(3, 2, 1)], 64
    for i in range(8):
        width, stride = 128 << i // 2, 2 if i and i % 2 == 0 else 1
        f = chain(conv_norm(inputs, width, 1, relu()), conv_norm(width, width, 3, relu(), stride=stride, groups=32),
                  conv_norm(width, 2 * width, 1), excite(2 * width, width // 8, relu()))
        layers.append(residual(f, nn.Identity() if inputs == 2 * width else conv_norm(inputs, 2 * width, 1, stride=stride)))
        inputs = 2 * width
    return chain(*layers, head(inputs, 1000))


def group_norm():
    part = partial(conv_norm, norm=lambda channels: nn.GroupNorm(32, channels))
    layers, inputs = [conv(3, 64, 3)], 64
    for i in range(8):
        outputs, stride = 64 << i // 2, 2 if i and i % 2 == 0 else 1
        layers.append(residual(chain(part(inputs, outputs, 3, relu(), stride=stride), part(outputs, outputs, 3)),
                               nn.Identity() if stride == 1 else part(inputs, outputs, 1, stride=stride)))
        inputs = outputs
    return chain(*layers, head(inputs, 10))


def vgg():
    layers, inputs = [], 3
    for c in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [conv(inputs, c, 3, bias=True), relu()] if c else [nn.MaxPool2d(2)]
        inputs = c or inputs
    return chain(*layers, nn.Flatten(), *dense(2048, 4096, 4096, after=nn.Dropout), nn.Linear(4096, 1000))


def mixer():
    layers = [conv(3, 256, 16, 16, 0, bias=True), nn.Flatten(2), permute(0, 2, 1)]
    for _ in range(6):
        layers += [residual(chain(nn.LayerNorm(256), permute(0, 2, 1), mlp(196, 128), permute(0, 2, 1))),
                   residual(chain(nn.LayerNorm(256), mlp(256, 1024)))]
    return chain(*layers, nn.LayerNorm(256), Do(lambda x: x.mean(1)), nn.Linear(256, 1000))


def generator():
    part, pad = partial(conv_norm, norm=nn.InstanceNorm2d), nn.ReflectionPad2d
    layers = [pad(3), part(3, 32, 7, relu(), padding=0), part(32, 64, 3, relu(), stride=2), part(64, 128, 3, relu(), stride=2)]
    for _ in range(3):
        layers.append(residual(chain(pad(1), part(128, 128, 3, relu(), padding=0), pad(1), part(128, 128, 3, padding=0))))
    layers += [nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), nn.InstanceNorm2d(64), relu(),
               nn.ConvTranspose2d(64, 32, 3, 2, 1, 1), nn.InstanceNorm2d(32), relu()]
    return chain(*layers, pad(3), conv(32, 3, 7, padding=0, bias=True), nn.Tanh())


def deeplab():
    layers = [conv_norm(3, 64, 7, relu(), stride=2), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs, stride, d in ((64, 64, 1, 1), (64, 128, 2, 1), (128, 256, 1, 2), (256, 256, 1, 4)):
        f = chain(conv_norm(inputs, outputs, 3, relu(), stride=stride, dilation=d), conv_norm(outputs, outputs, 3, dilation=d))
        layers.append(residual(f, nn.Identity() if inputs == outputs else conv_norm(inputs, outputs, 1, stride=stride)))
    views = join(conv_norm(256, 128, 1, relu()), *(conv_norm(256, 128, 3, relu(), dilation=d) for d in (6, 12, 18)))
    return chain(*layers, views, conv_norm(512, 128, 1, relu()), conv(128, 21, 1, bias=True),
                 nn.Upsample(scale_factor=8, mode="bilinear"))


def block(across=False):
    """A layer of BERT's kind; with `across` a decoder's, which attends to y."""
    attend, cross, f = attention(256, across), attention(256) if across else None, mlp(256, 1024)
    norms = [nn.LayerNorm(256) for _ in range(3 if across else 2)]

    def forward(x, mask=None, y=None):
        x = norms[0](x + F.dropout(attend(x, mask), 0.1))
        x = norms[1](x + F.dropout(cross(x, None, y), 0.1)) if across else x
        return norms[-1](x + F.dropout(f(x), 0.1))
    return Do(forward, attend, cross, f, *norms)


def bert():
    words = nn.Embedding.from_pretrained(0.02 * torch.randn(30522, 256), freeze=False)
    places, bias = nn.Parameter(torch.zeros(128, 256)), nn.Parameter(torch.zeros(30522))
    start, one, two, last = nn.LayerNorm(256), block(), block(), chain(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))

    def forward(ids, length):
        mask, x = torch.arange(128) < length + 64, F.dropout(start(words(ids) + places), 0.1)
        return F.linear(last(two(one(x, mask), mask)), words.weight, bias).flatten(0, 1)
    return Do(forward, words, places, bias, start, one, two, last)


def dropout_gpt():
    places, layers = nn.Parameter(torch.zeros(1024, 256)), []
    for _ in range(2):
        layers += [residual(chain(nn.LayerNorm(256), attention(256, True), nn.Dropout(0.1))),
                   residual(chain(nn.LayerNorm(256), mlp(256, 1024), nn.Dropout(0.1)))]
    words, rest = nn.Embedding(256, 256), chain(nn.Dropout(0.1), *layers, nn.LayerNorm(256), nn.Linear(256, 256), nn.Flatten(0, 1))
    return Do(lambda ids: rest(words(ids) + places), words, places, rest)


def translation():
    a, b, head = nn.Embedding(8000, 256), nn.Embedding(8000, 256), nn.Linear(256, 8000)
    places, blocks = nn.Parameter(torch.zeros(2, 128, 256)), (block(), block(), block(True), block(True))

    def forward(x, y, length):
        mask = torch.arange(128) < length + 64
        x = blocks[1](blocks[0](F.dropout(a(x) + places[0], 0.1), mask), mask)
        return head(blocks[3](blocks[2](F.dropout(b(y) + places[1], 0.1), None, x), None, x)).flatten(0, 1)
    return Do(forward, a, b, head, places, *blocks)


def wavenet():
    levels, layers = nn.Embedding(256, 64), [[nn.Conv1d(64, 64, size, dilation=(1 << i) if size == 2 else 1)
                                              for size in (2, 2, 1, 1)] for i in range(8)]
    last = chain(relu(), nn.Conv1d(64, 64, 1), relu(), nn.Conv1d(64, 256, 1), permute(0, 2, 1), nn.Flatten(0, 1))

    def forward(ids):
        x, total = levels(ids).transpose(1, 2), 0
        for i, (content, gate, skip, following) in enumerate(layers):
            y = F.pad(x, (1 << i, 0))
            z = torch.tanh(content(y)) * torch.sigmoid(gate(y))
            x, total = x + following(z), total + skip(z)
        return last(total)
    return Do(forward, levels, *sum(layers, []), last)


def conformer():
    def half():
        return residual(chain(nn.LayerNorm(144), mlp(144, 576), nn.Dropout(0.1), Do(lambda x: x * 0.5)))
    layers = [nn.Linear(80, 144)]
    for _ in range(2):
        layers += [half(), residual(chain(nn.LayerNorm(144), attention(144), nn.Dropout(0.1))),
                   residual(chain(nn.LayerNorm(144), permute(0, 2, 1), nn.Conv1d(144, 288, 1), nn.GLU(1),
                                  nn.Conv1d(144, 144, 31, padding=15, groups=144), nn.BatchNorm1d(144), nn.SiLU(),
                                  nn.Conv1d(144, 144, 1), permute(0, 2, 1), nn.Dropout(0.1))), half(), nn.LayerNorm(144)]
    return chain(*layers, nn.Linear(144, 32), nn.Flatten(0, 1))


def dlrm():
    bottom, tables = chain(*dense(13, 512, 256, 64)), [nn.Embedding(10000, 64) for _ in range(26)]
    top = chain(*dense(64 + 27 * 27, 512, 256), nn.Linear(256, 1))

    def forward(x, ids):
        x = bottom(x)
        rows = torch.stack([x, *(table(ids[:, i]).to(x.dtype) for i, table in enumerate(tables))], 1)
        return top(torch.cat((x, (rows @ rows.transpose(1, 2)).flatten(1)), 1)).squeeze(1)
    return Do(forward, bottom, top, *tables)


def pictures(make, batch, size, classes=1000, labels=()):
    """A model that classifies pictures, or their pixels; without classes it makes pictures."""
    def data():
        y = torch.randint(classes, (batch, *labels)) if classes else torch.rand(batch, 3, size, size)
        return torch.rand(batch, 3, size, size), y
    return Model(make, data, adam(torch.optim.Adam), F.cross_entropy if classes else F.mse_loss)


def other(make, batch, labels, *inputs):
    """Shapes without the batch, each with the limit of its integers, or 0 for real numbers."""
    def fill(shape, limit):
        return torch.randint(limit, (batch, *shape)) if limit else torch.rand(batch, *shape)
    return Model(make, lambda: (tuple(fill(*i) for i in inputs), fill(*labels).flatten()), adam(torch.optim.Adam))


MODELS = {
    "mobilenet": pictures(lambda: inverted((16, 24, 32, 64, 96, 160, 320), (1, 2, 3, 4, 3, 3, 1), (3,) * 7, nn.ReLU6), 16, 128),
    "efficientnet": pictures(lambda: inverted((16, 24, 40, 80, 112, 192, 320), (1, 2, 2, 3, 3, 4, 1), (3, 3, 5, 3, 5, 5, 3),
                                              nn.SiLU, squeeze=True), 16, 128),
    "convnext": pictures(convnext, 8, 128), "convmixer": pictures(convmixer, 8, 112), "unet": pictures(unet, 4, 128, 0),
    "densenet": pictures(densenet, 8, 128), "resnext": pictures(resnext, 8, 128), "group-norm": pictures(group_norm, 32, 32, 10),
    "vgg": pictures(vgg, 16, 64), "mixer": pictures(mixer, 8, 224), "generator": pictures(generator, 4, 96, 0),
    "deeplab": pictures(deeplab, 4, 192, 21, (192, 192)),
    "bert": other(bert, 4, ((128,), 30522), ((128,), 30522), ((1, 1, 1), 65)),
    "gpt-50257": Model(lambda: Gpt(2, 256, 4, 128, 50257), lambda: text(4, 128, 50257), adam(torch.optim.AdamW)),
    "gpt-1024": Model(lambda: Gpt(2, 256, 4, 1024, 256), lambda: text(2, 1024, 256), adam(torch.optim.AdamW)),
    "gpt-dropout": other(dropout_gpt, 2, ((1024,), 256), ((1024,), 256)),
    "translation": other(translation, 8, ((128,), 8000), ((128,), 8000), ((128,), 8000), ((1, 1, 1), 65)),
    "bigru": other(lambda: chain(nn.Embedding(5000, 128), nn.GRU(128, 256, 2, batch_first=True, bidirectional=True),
                                 Do(lambda result: result[0].mean(1)), nn.Linear(512, 10)), 32, ((), 10), ((64,), 5000)),
    "wavenet": other(wavenet, 4, ((1024,), 256), ((1024,), 256)), "conformer": other(conformer, 8, ((256,), 32), ((256, 80), 0)),
    "text-cnn": other(lambda: chain(nn.Embedding(20000, 128), permute(0, 2, 1), join(*(
        chain(nn.Conv1d(128, 100, size), relu(), Do(lambda x: x.amax(2))) for size in (3, 4, 5))), nn.Dropout(),
        nn.Linear(300, 10)), 64, ((), 10), ((128,), 20000)),
    "dlrm": Model(dlrm, lambda: ((torch.rand(2048, 13), torch.randint(10000, (2048, 26))), torch.rand(2048)),
                  sgd(lr=0.001, momentum=0), F.binary_cross_entropy_with_logits),
    "wide-mlp": other(lambda: chain(*dense(256, 1024, 1024, 512, before=nn.BatchNorm1d, after=lambda: nn.Dropout(0.3)),
                                    nn.Linear(512, 10)), 2048, ((), 10), ((256,), 0)),
}
