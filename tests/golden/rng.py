"""The counter-based generator of src/base/rng.h, from its formula, on whole arrays of counters."""

import numpy as np

MASK64 = (1 << 64) - 1


def mix(seed, value):
    z = (seed + 0x9E3779B97F4A7C15 * (value + 1)) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def stable_hash(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def philox4x32(key, index):
    """Philox4x32-10 at counters (index, 0): four arrays of 32-bit words held as uint64."""
    low32 = np.uint64(0xFFFFFFFF)
    c = [index & low32, index >> np.uint64(32), np.zeros_like(index), np.zeros_like(index)]
    k = [np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)]
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low32,
             (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low32]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low32, (k[1] + np.uint64(0xBB67AE85)) & low32]
    return c


def unit_interval(high, low):
    bits = (high << np.uint64(32)) | low
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(key, count):
    block = philox4x32(key, np.arange(count, dtype=np.uint64))
    return unit_interval(block[0], block[1])


def normal(key, count):
    block = philox4x32(key, np.arange(count, dtype=np.uint64))
    radius = np.sqrt(-2.0 * np.log(1.0 - unit_interval(block[0], block[1])))
    return radius * np.cos(2.0 * np.pi * unit_interval(block[2], block[3]))
