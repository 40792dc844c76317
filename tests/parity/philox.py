"""Philox4x32-10 as in runtime/device/Philox.h, in numpy: the same numbers from the same keys."""
import numpy as np


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def words(key, stream, count):
    """The first `count` 32-bit words of a stream."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    constant = lambda value: np.full_like(blocks, value)
    c = [blocks & mask, blocks >> shift, constant(stream & 0xFFFFFFFF), constant(stream >> 32)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & mask, (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, 1).reshape(-1)[:count].astype(np.uint32)


def uniform(key, stream, count):
    """Numbers in [0, 1), multiples of 2^-24, as float64."""
    return (words(key, stream, count) >> np.uint32(8)).astype(np.float64) * 2.0**-24


def normal(key, stream, count):
    """Standard normal numbers: number i by Box-Muller from elements 2i and 2i + 1 of `uniform`."""
    u = uniform(key, stream, 2 * count).reshape(-1, 2)
    return np.sqrt(-2 * np.log(1 - u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
