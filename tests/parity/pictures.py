#!/usr/bin/env python3
"""Goldens of pictures: files of every kind that is decoded, the pixels that Pillow makes of them, and resized ones.

Needs Pillow and numpy. Writes goldens/pictures: NAME.jpg or NAME.png, NAME.rgb (the bytes of convert("RGB")), and for `plain`
NAME-WxH-FILTER.rgb, the result of resize() with this filter.
"""
import os

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "goldens", "pictures")
WIDTH, HEIGHT = 37, 23


def drawn():
    """A gradient with edges and a little noise, [height, width, 4]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = np.random.default_rng(1).integers(0, 40, (HEIGHT, WIDTH, 4))
    base = np.stack([255 * x / WIDTH, 255 * y / HEIGHT, 200 * ((x // 6 + y // 5) % 2), 60 + 3 * x], axis=2)
    return np.clip(base + noise, 0, 255).astype(np.uint8)


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
    for width, height in ((11, 7), (50, 31), (37, 5), (9, 23), (1, 1), (74, 46)):
        for word, kind in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
            with open(os.path.join(FOLDER, f"plain-{width}x{height}-{word}.rgb"), "wb") as out:
                out.write(rgb.resize((width, height), kind).tobytes())


if __name__ == "__main__":
    main()
