#!/usr/bin/env python3
"""Goldens of pictures: files of every kind that is decoded, the pixels that Pillow makes of them, and resized ones.

Needs Pillow 13.0.0 and numpy; resize() of earlier versions resizes rows before columns whatever the size, so 30x7 and 50x7 differ.
Writes goldens/pictures: NAME.jpg or NAME.png, NAME.rgb (the bytes of convert("RGB")), for `plain`
NAME-WxH-FILTER.rgb, the result of resize() with this filter, and NAME-CHANGE-FACTOR.rgb, that of ImageEnhance or, for the hue, of
adding to H of convert("HSV"), as torchvision does. plain.tar and plain.rec hold three pictures with labels 2, 0 and 1, the tar with
a long name and members that are no pictures, the record file (MXNet's) with a record in parts.
"""
import io
import os
import struct
import tarfile

import numpy as np
from PIL import Image, ImageEnhance

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "goldens", "pictures")
WIDTH, HEIGHT = 37, 23


def drawn():
    """A gradient with edges and a little noise, [height, width, 4]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = np.random.default_rng(1).integers(0, 40, (HEIGHT, WIDTH, 4))
    base = np.stack([255 * x / WIDTH, 255 * y / HEIGHT, 200 * ((x // 6 + y // 5) % 2), 60 + 3 * x], axis=2)
    return np.clip(base + noise, 0, 255).astype(np.uint8)


def tar(files):
    """A tar as WebDataset writes it."""
    with tarfile.open(os.path.join(FOLDER, "plain.tar"), "w", format=tarfile.PAX_FORMAT) as out:
        for key, suffix, label, data in files:
            for name, content in ((f"{key}.{suffix}", data), (f"{key}.json", b"{}"), (f"{key}.cls", f"{label}\n".encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                out.addfile(member, io.BytesIO(content))


def records(files):
    """MXNet's recordio.h: a magic number, a word with kind and length, the bytes, filled up to four; a record with the magic number
    at a multiple of four is cut there. Each begins with image_recordio.h's header."""
    magic = struct.pack("<I", 0xced7230a)
    with open(os.path.join(FOLDER, "plain.rec"), "wb") as out:
        for i, (_, _, label, data) in enumerate(files):
            # The second way to store a label: after the header.
            head = struct.pack("<IfQQ", 1, 0, i, 0) + struct.pack("<f", label) if i == 1 else struct.pack("<IfQQ", 0, label, i, 0)
            body, cuts = head + data, []
            for at in range(0, len(body) - 3, 4):
                if body[at:at + 4] == magic:
                    cuts.append(at)
            parts = [body[a:b] for a, b in zip([0] + [c + 4 for c in cuts], cuts + [len(body)])]
            for k, part in enumerate(parts):
                kind = 0 if len(parts) == 1 else 1 if k == 0 else 3 if k + 1 == len(parts) else 2
                out.write(magic + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    pixels = drawn()
    rgba = Image.fromarray(pixels)
    rgb = rgba.convert("RGB")
    deep = Image.fromarray((np.mgrid[0:HEIGHT, 0:WIDTH][1] * 11).astype(np.uint16))
    pictures = {
        "plain.png": (rgb, {}), "alpha.png": (rgba, {}), "grey.png": (rgb.convert("L"), {}), "palette.png": (rgb.quantize(16), {}),
        "bits.png": (rgb.convert("1"), {}), "grey-alpha.png": (rgba.convert("LA"), {}), "deep-grey.png": (deep, {}),
        "clear-palette.png": (rgb.quantize(4), {"transparency": 1}),
        "plain.jpg": (rgb, {"quality": 85}), "grey.jpg": (rgb.convert("L"), {"quality": 85}), "cmyk.jpg": (rgb.convert("CMYK"), {"quality": 85}),
        "progressive.jpg": (rgb, {"quality": 85, "progressive": True}), "full-colours.jpg": (rgb, {"quality": 95, "subsampling": 0}),
        "restarts.jpg": (rgb, {"quality": 70, "restart_marker_blocks": 2}),
    }
    for name, (picture, options) in pictures.items():
        path = os.path.join(FOLDER, name)
        picture.save(path, **options)
        with open(path + ".rgb", "wb") as out:
            out.write(Image.open(path).convert("RGB").tobytes())
    # Larger ones, of which parts are decoded: colours of half the resolution, and several passes.
    y, x = np.mgrid[0:211, 0:317]
    wave = [127 + 90 * np.sin(x / a + y / b) + 30 * ((x // 40 + y // 30) % 2) for a, b in ((17, 29), (31, -23), (11, 53))]
    large = Image.fromarray(np.clip(np.stack(wave, axis=2), 0, 255).astype(np.uint8))
    large.save(os.path.join(FOLDER, "large.jpg"), quality=85)
    large.save(os.path.join(FOLDER, "large-progressive.jpg"), quality=85, progressive=True)
    large.convert("CMYK").save(os.path.join(FOLDER, "large-cmyk.jpg"), quality=60)
    for width, height in ((11, 7), (50, 31), (37, 5), (9, 23), (1, 1), (74, 46), (29, 7), (30, 7), (50, 7)):
        for word, kind in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
            with open(os.path.join(FOLDER, f"plain-{width}x{height}-{word}.rgb"), "wb") as out:
                out.write(rgb.resize((width, height), kind).tobytes())
    for word, enhance in (("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)):
        for factor in (0.4, 1.7):
            with open(os.path.join(FOLDER, f"plain-{word}-{factor}.rgb"), "wb") as out:
                out.write(enhance(rgb).enhance(factor).tobytes())
    for turn in (0.1, -0.3):
        h, s, v = rgb.convert("HSV").split()
        turned = (np.array(h, dtype=np.int64) + int(turn * 255)) % 256
        with open(os.path.join(FOLDER, f"plain-hue-{turn}.rgb"), "wb") as out:
            out.write(Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8), "L"), s, v)).convert("RGB").tobytes())
    read = lambda name: open(os.path.join(FOLDER, name), "rb").read()
    jpeg, png = read("plain.jpg"), read("grey.png")
    # Bytes after the end of a JPEG are not read; here they hold the magic number of records where it cuts them.
    marked = jpeg + bytes(-(len(jpeg) + 24) % 4) + struct.pack("<II", 0xced7230a, 0xced7230a) + b"end"
    files = [("a/first", "jpg", 2, jpeg), ("a/" + "long" * 40, "png", 0, png), ("b/last", "jpeg", 1, marked)]
    tar(files)
    records(files)


if __name__ == "__main__":
    main()
