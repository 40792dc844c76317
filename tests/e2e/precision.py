#!/usr/bin/env python3
"""Half precision late in training: with every sample, level and type the loss becomes small, and gradients there equal fp32's.

A small loss is the hard case for half types: the probabilities in cross-entropy's gradient then differ from the labels by less
than the rounding of the logits. A gradient computed from other logits than the loss would be only error. Standard library only.

precision.py --build BUILD [unittest arguments]
"""
import array, gzip, hashlib, json, math, os, shutil, struct, sys, zlib

import programs
from e2e import Case
from programs import DIGITS

LEVELS = [(kind, level) for kind in ("bf16", "fp16") for level in ("O1", "O2", "O3")]
MOMENTUM, SCALE = 0.9, 1024  # the scale is a power of two, so gradients in f32 do not depend on it


class Checkpoint:
    """Tensors of a checkpoint of one rank: name -> (element type, bytes)."""

    def __init__(self, folder):
        with open(os.path.join(folder, "manifest.json")) as file:
            self.manifest = json.load(file)
        pieces = [entry["pieces"] for entry in self.manifest["tensors"].values()]
        assert len({piece["file"] for [piece] in pieces}) == 1
        self.file = os.path.join(folder, pieces[0][0]["file"])
        self.folder, self.tensors = folder, {}
        with open(self.file, "rb") as file:
            raw = file.read()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                self.tensors[name] = (entry["dtype"], entry["shape"], raw[8 + size + begin:8 + size + end])

    def values(self, name):
        """Values of a tensor. Of a large tensor every n-th value, with n odd."""
        found = array.array("f")
        found.frombytes(self.tensors[name][2])
        return found[::len(found) // 20000 | 1]

    def widen(self):
        """Writes half tensors as f32, with the same values."""
        header, data = {}, b""
        for name, (dtype, shape, old) in self.tensors.items():
            if dtype == "BF16":  # the upper half of an f32
                wide = bytearray(2 * len(old))
                wide[2::4], wide[3::4] = old[0::2], old[1::2]
                old = bytes(wide)
            elif dtype == "F16":
                old = array.array("f", struct.unpack(f"<{len(old) // 2}e", old)).tobytes()
            if dtype in ("BF16", "F16"):
                dtype = self.manifest["tensors"][name]["dtype"] = "F32"
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(old)]}
            data += old
        header["__metadata__"] = {"crc32": f"{zlib.crc32(data):08x}"}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        raw = struct.pack("<Q", len(text)) + text + data
        with open(self.file, "wb") as file:
            file.write(raw)
        self.manifest["files"][os.path.basename(self.file)].update(bytes=len(raw), crc32=zlib.crc32(raw))
        del self.manifest["checksum"]
        said = json.dumps(self.manifest, separators=(",", ":"), ensure_ascii=False).encode()
        self.manifest["checksum"] = "sha256:" + hashlib.sha256(said).hexdigest()
        with open(os.path.join(self.folder, "manifest.json"), "w") as file:
            json.dump(self.manifest, file)


def norm(values):
    return math.sqrt(math.fsum(value * value for value in values))


def few_digits(folder, count):
    """Writes a data set with the first `count` digits of each split."""
    os.mkdir(folder)
    for split in ("train", "t10k"):
        for name, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(os.path.join(DIGITS, f"{split}-{name}-ubyte.gz")) as file:
                raw = file.read()
            with open(os.path.join(folder, f"{split}-{name}-ubyte"), "wb") as file:
                file.write(raw[:4] + struct.pack(">I", count) + raw[8:head] + raw[head:head + size * count])


class Precision(Case):
    """`options`: the program's. `worst`: bounds of the gradient's relative error, of all parameters and of the last weight."""

    def trains(self, program, data, options, steps, worst, compared=LEVELS):
        where = ["--data", data, "--threads", 1]
        common = [*where, "--optimizer", "sgd", "--momentum", MOMENTUM, "--weight-decay", 0, "--seed", 3, "--loss-scale", SCALE,
                  *options]
        single = self.path("single")
        self.small(program, [*common, "--precision", "fp32"], steps, single)
        fp32 = self.gradient(program, where, single, "fp32", "O0")
        for kind, level in LEVELS:
            with self.subTest(program=program, kind=kind, level=level):
                own = self.path(f"{kind}{level}")
                self.small(program, [*common, "--precision", kind, "--opt-level", level], steps, own)
                if (kind, level) not in compared:
                    continue
                if level == "O3":  # parameters have the half type: fp32 must start from the same values
                    half = self.gradient(program, where, own, kind, level)
                    Checkpoint(own).widen()
                    self.near(half, self.gradient(program, where, own, "fp32", "O0"), kind, worst)
                else:
                    self.near(self.gradient(program, where, single, kind, level), fp32, kind, worst)

    def small(self, program, options, steps, checkpoint):
        losses, _ = self.losses(program, *options, "--steps", steps, "--checkpoint", checkpoint)
        self.assertLess(losses[-1], 2e-3, f"{program} {options}: {losses[::max(1, steps // 10)]}")
        self.assertLess(max(losses[-steps // 4:]), 4e-3, f"{program} {options}: {losses[::max(1, steps // 10)]}")

    def gradient(self, program, where, checkpoint, kind, level):
        """Gradients of the step after the checkpoint, by parameter: what that step adds to the momentum."""
        to = self.path("next")
        shutil.copytree(checkpoint, to)
        before = Checkpoint(to)
        self.ok(program, "train", *where, "--resume", "--checkpoint", to, "--steps", before.manifest["step"] + 1, "--quiet",
                "--precision", kind, "--opt-level", level, "--loss-scale", SCALE)
        after, suffix = Checkpoint(to), ".momentum"
        shutil.rmtree(to)
        return {name[:-len(suffix)]: [b - MOMENTUM * a for a, b in zip(before.values(name), after.values(name))]
                for name in after.tensors if name.endswith(suffix)}

    def near(self, found, wanted, kind, worst):
        error = {name: norm(a - b for a, b in zip(found[name], wanted[name])) for name in wanted}
        whole = norm(error.values()) / norm(norm(values) for values in wanted.values())
        last = [name for name in wanted if name.endswith("weight")][-1]
        share = 1 if kind == "bf16" else 0.25  # fp16 has three bits more
        if os.environ.get("CLEAVE_SHOW_ERRORS"):
            print(f"{self.id()} {kind}: all {whole:.4f}, {last} {error[last] / norm(wanted[last]):.4f}", file=sys.stderr)
        self.assertLess(whole, worst[0] * share)
        self.assertLess(error[last] / norm(wanted[last]), worst[1] * share, last)

    def digits(self, count):
        folder = self.path("digits")
        few_digits(folder, count)
        return folder

    def test_mlp(self):
        self.trains("mlp", self.digits(24), ["--batch", 24, "--hidden", "48,32", "--lr", 0.05], 80, (0.3, 0.25))

    def test_convnet(self):
        self.trains("convnet", self.digits(12), ["--batch", 12, "--lr", 0.02], 40, (0.3, 0.25))

    def test_resnet(self):
        self.trains("resnet", self.digits(6), ["--batch", 6, "--stem", "imagenet", "--lr", 0.02], 24, (0.5, 0.25),
                    [("bf16", "O2"), ("fp16", "O2")])  # its kernels take seconds to compile

    def text(self):
        file = self.path("text")
        with open(file, "w") as out:
            out.write("abcdefghijklmnop" * 64)  # every character determines the next
        return file

    def test_vit(self):
        self.trains("vit", self.digits(6), ["--batch", 6, "--layers", 1, "--width", 32, "--heads", 2, "--patch", 14, "--lr", 0.05],
                    36, (0.5, 0.25))

    def test_llama(self):
        self.trains("llama", self.text(), ["--batch", 8, "--layers", 1, "--width", 32, "--heads", 2, "--kv-heads", 1, "--context",
                                           16, "--lr", 0.1], 30, (0.5, 0.25))

    def test_seq(self):
        self.trains("lstm", self.text(), ["--batch", 8, "--width", 32, "--context", 16, "--lr", 1], 40, (0.5, 0.25))

    def test_gpt(self):
        self.trains("gpt", self.text(), ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8, "--lr", 0.2], 150,
                    (0.5, 0.25))


if __name__ == "__main__":
    programs.main()
