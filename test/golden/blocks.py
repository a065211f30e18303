"""Golden blocks: random and extreme rows of every block layout, decoded by a program of its own.

Writes blocks.json beside this file; blocks.test.ts compares the engine's decoders with it. Needs numpy:

    python3 test/golden/blocks.py

Written from the descriptions of the formats, one value at a time, with Python's own unpacking of float16 and
numpy's float32 arithmetic. When the packages `gguf` or `ml_dtypes` are importable their decoders are asked, too,
and must give the same numbers; the file says which were.
"""

import base64
import json
import pathlib
import random
import struct

import numpy as np

F = np.float32
np.seterr(all="ignore")
RANDOM = random.Random(20261130)

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
KVALUES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def f16(b):
    return F(struct.unpack("<e", bytes(b))[0])


def f32(b):
    return F(struct.unpack("<f", bytes(b))[0])


def i8(b):
    return b - 256 if b > 127 else b


def e2m1(code):
    return F(-E2M1[code & 7] if code & 8 else E2M1[code & 7])


def e4m3(code):
    sign, exponent, mantissa = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return F("nan")
    if exponent == 0:
        return F(sign * mantissa / 8.0 * 2.0**-6)
    return F(sign * (1.0 + mantissa / 8.0) * 2.0 ** (exponent - 7))


def e8m0(code):
    return F("nan") if code == 255 else F(2.0 ** (code - 127))


def fp8(row, columns):
    blocks = -(-columns // 128)
    scales = [f32(row[4 * i : 4 * i + 4]) for i in range(blocks)]
    codes = row[4 * blocks :]
    return [F(e4m3(codes[c]) * scales[c // 128]) for c in range(columns)]


def mxfp4(row, columns):
    out = []
    for c in range(columns):
        byte = row[c // 2]
        code = byte >> 4 if c % 2 else byte % 16
        out.append(F(e2m1(code) * e8m0(row[columns // 2 + c // 32])))
    return out


def nvfp4(row, columns):
    whole, scales, codes = f32(row[:4]), row[4 : 4 + columns // 16], row[4 + columns // 16 :]
    out = []
    for c in range(columns):
        code = codes[c // 2] >> 4 if c % 2 else codes[c // 2] % 16
        out.append(F(F(e2m1(code) * e4m3(scales[c // 16])) * whole))
    return out


def halves(q):
    """Codes of 16 bytes: the low nibbles, then the high ones."""
    return [b % 16 for b in q] + [b // 16 for b in q]


def q4_0(b):
    return [F(F(n - 8) * f16(b[:2])) for n in halves(b[2:18])]


def with_fifth(h, q):
    word = struct.unpack("<I", bytes(h))[0]
    return [n + 16 * (word >> i & 1) for i, n in enumerate(halves(q))]


def q5_0(b):
    return [F(F(n - 16) * f16(b[:2])) for n in with_fifth(b[2:6], b[6:22])]


def q5_1(b):
    return [F(F(F(n) * f16(b[:2])) + f16(b[2:4])) for n in with_fifth(b[4:8], b[8:24])]


def q8_0(b):
    return [F(F(i8(c)) * f16(b[:2])) for c in b[2:34]]


def iq4_nl(b):
    return [F(f16(b[:2]) * F(KVALUES[n])) for n in halves(b[2:18])]


def mxfp4_gguf(b):
    return [F(e2m1(n) * e8m0(b[0])) for n in halves(b[1:17])]


def six_bit_pairs(s):
    """Scales and minima of eight sub-blocks from 12 bytes."""
    scales = [s[j] & 63 for j in range(4)] + [(s[j + 8] & 15) + (s[j] >> 6) * 16 for j in range(4)]
    minima = [s[j + 4] & 63 for j in range(4)] + [(s[j + 8] >> 4) + (s[j + 4] >> 6) * 16 for j in range(4)]
    return scales, minima


def k_values(b, codes):
    d, least = f16(b[:2]), f16(b[2:4])
    scales, minima = six_bit_pairs(b[4:16])
    steps = [F(d * F(s)) for s in scales]
    offsets = [F(least * F(m)) for m in minima]
    return [F(F(steps[i // 32] * F(n)) - offsets[i // 32]) for i, n in enumerate(codes)]


def k_codes(q):
    codes = []
    for g in range(4):
        quarter = q[32 * g : 32 * g + 32]
        codes += [x % 16 for x in quarter] + [x // 16 for x in quarter]
    return codes


def q4_k(b):
    return k_values(b, k_codes(b[16:144]))


def q5_k(b):
    fifth = b[16:48]
    codes = [n + 16 * (fifth[i % 32] >> i // 32 & 1) for i, n in enumerate(k_codes(b[48:176]))]
    return k_values(b, codes)


def q6_k(b):
    low, high, scales, d = b[:128], b[128:192], b[192:208], f16(b[208:210])
    codes = [0] * 256
    for n in range(2):
        for l in range(32):
            h = high[32 * n + l]
            first, second = low[64 * n + l], low[64 * n + 32 + l]
            at = 128 * n + l
            codes[at] = (first & 15) + (h & 3) * 16
            codes[at + 32] = (second & 15) + (h >> 2 & 3) * 16
            codes[at + 64] = (first >> 4) + (h >> 4 & 3) * 16
            codes[at + 96] = (second >> 4) + (h >> 6) * 16
    return [F(F(d * F(i8(scales[i // 16]))) * F(c - 32)) for i, c in enumerate(codes)]


def q4_1(b):
    return [F(F(F(n) * f16(b[:2])) + f16(b[2:4])) for n in halves(b[4:20])]


def two_bit_codes(q):
    """64 bytes: bits 0-1 of 32 bytes, then their bits 2-3, 4-5 and 6-7; then the other 32 bytes."""
    return [byte >> shift & 3 for part in (q[:32], q[32:]) for shift in (0, 2, 4, 6) for byte in part]


def q2_k(b):
    pairs, d, least = b[:16], f16(b[80:82]), f16(b[82:84])
    steps = [F(d * F(p & 15)) for p in pairs]
    offsets = [F(least * F(p >> 4)) for p in pairs]
    return [F(F(steps[i // 16] * F(n)) - offsets[i // 16]) for i, n in enumerate(two_bit_codes(b[16:80]))]


def q3_k(b):
    third, s, d = b[:32], b[96:108], f16(b[108:110])
    low = [x & 15 for x in s[:8]] + [x >> 4 for x in s[:8]]
    high = [x >> shift & 3 for shift in (0, 2, 4, 6) for x in s[8:12]]
    steps = [F(d * F(l + 16 * h - 32)) for l, h in zip(low, high)]
    codes = [n - (0 if third[i % 32] >> i // 32 & 1 else 4) for i, n in enumerate(two_bit_codes(b[32:96]))]
    return [F(steps[i // 16] * F(n)) for i, n in enumerate(codes)]


def iq4_xs(b):
    d, high, out = f16(b[:2]), struct.unpack("<H", bytes(b[2:4]))[0], []
    for i in range(8):
        low = b[4 + i // 2] >> (4 if i % 2 else 0) & 15
        step = F(d * F(low + 16 * (high >> 2 * i & 3) - 32))
        out += [F(step * F(KVALUES[n])) for n in halves(b[8 + 16 * i : 24 + 16 * i])]
    return out


def in_blocks(decode, columns_of_block, bytes_of_block):
    def row_of(row, columns):
        out = []
        for i in range(columns // columns_of_block):
            out += decode(row[i * bytes_of_block : (i + 1) * bytes_of_block])
        return out

    return row_of


# name: (row decoder, columns of a block, bytes of a block, where its float16 numbers are)
BLOCKS = {
    "q4_0": (q4_0, 32, 18, [0]),
    "q5_0": (q5_0, 32, 22, [0]),
    "q5_1": (q5_1, 32, 24, [0, 2]),
    "q8_0": (q8_0, 32, 34, [0]),
    "q4_k": (q4_k, 256, 144, [0, 2]),
    "q5_k": (q5_k, 256, 176, [0, 2]),
    "q6_k": (q6_k, 256, 210, [208]),
    "iq4_nl": (iq4_nl, 32, 18, [0]),
}
# as above; written after the others, so that their random rows stay what they were
LATER_BLOCKS = {
    "q4_1": (q4_1, 32, 20, [0, 2]),
    "q2_k": (q2_k, 256, 84, [80, 82]),
    "q3_k": (q3_k, 256, 110, [108]),
    "iq4_xs": (iq4_xs, 256, 136, [0]),
}
# zeros, denormals, the largest, one, infinity, NaN, ordinary ones of both signs
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 0x2E66, 0xA1CD]
EXTREME_F32 = [0.0, -0.0, 1.0, -0.0123, 1e-45, 2.0**-126, 3.4e38, float("inf"), float("nan"), 0.000321, 1.0 / 3.0]


def noise(count):
    return bytearray(RANDOM.randbytes(count))


def ordinary_f16():
    return struct.pack("<e", RANDOM.uniform(-0.05, 0.05))


def gguf_rows(name):
    """Rows with random codes: ordinary scales, random scales, and each extreme one."""
    _, columns, size, at = {**BLOCKS, **LATER_BLOCKS}[name]
    blocks = []
    for i in range(4 if columns == 256 else 16):
        b = noise(size)
        for j in at:
            if i % 2 == 0:
                b[j : j + 2] = ordinary_f16()
        blocks.append(b)
    for i, bits in enumerate(EXTREME_F16):
        b = noise(size)
        for k, j in enumerate(at):
            b[j : j + 2] = struct.pack("<H", EXTREME_F16[(i + 5 * k) % len(EXTREME_F16)])
        blocks.append(b)
    # all bits of the codes and of the packed scales set, and none
    for fill in (0, 255):
        b = bytearray([fill]) * size
        for j in at:
            b[j : j + 2] = ordinary_f16()
        blocks.append(b)
    half = len(blocks) // 2
    return [(b"".join(part), len(part) * columns) for part in (blocks[:half], blocks[half:])]


def fp8_rows():
    rows = []
    for columns in (1, 127, 128, 129, 300):
        scales = b"".join(struct.pack("<f", RANDOM.uniform(-0.01, 0.01)) for _ in range(-(-columns // 128)))
        rows.append((scales + noise(columns), columns))
    # every code with every kind of scale
    scales = b"".join(struct.pack("<f", s) for s in EXTREME_F32 for _ in range(2))
    rows.append((scales + bytes(range(256)) * len(EXTREME_F32), 256 * len(EXTREME_F32)))
    return rows


def mxfp4_scales():
    return [0, 1, 2, 22, 23, 24, 110, 120, 127, 130, 200, 252, 253, 254, 255, 119]


def all_nibbles():
    """16 bytes that hold every code twice, in a random order."""
    codes = list(range(16)) * 2
    RANDOM.shuffle(codes)
    return bytes(codes[2 * i] | codes[2 * i + 1] << 4 for i in range(16))


def mxfp4_rows():
    scales = mxfp4_scales()
    return [
        (b"".join(all_nibbles() for _ in scales) + bytes(scales), 32 * len(scales)),
        (noise(16) + bytes([121]), 32),
    ]


def mxfp4_gguf_rows():
    scales = mxfp4_scales()
    return [(b"".join(bytes([s]) + all_nibbles() for s in scales), 32 * len(scales))]


def nvfp4_rows():
    rows = [(struct.pack("<f", RANDOM.uniform(-0.01, 0.01)) + noise(3) + noise(24), 48)]
    for whole in EXTREME_F32:
        scales = bytes([0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0x7F, 0xFE, 0xFF, 0x80, 0x55, 0x2A])
        rows.append((struct.pack("<f", whole) + scales + b"".join(all_nibbles()[:8] for _ in scales), 16 * len(scales)))
    return rows


def layouts():
    yield "fp8", fp8, fp8_rows()
    yield "mxfp4", mxfp4, mxfp4_rows()
    yield "nvfp4", nvfp4, nvfp4_rows()
    for name, (decode, columns, size, _) in BLOCKS.items():
        yield name, in_blocks(decode, columns, size), gguf_rows(name)
    yield "mxfp4-gguf", in_blocks(mxfp4_gguf, 32, 17), mxfp4_gguf_rows()
    for name, (decode, columns, size, _) in LATER_BLOCKS.items():
        yield name, in_blocks(decode, columns, size), gguf_rows(name)


def ask_gguf(name, row, values):
    """Whether gguf decodes the row to the same numbers; None when it does not know the layout or is not there."""
    try:
        import gguf
    except ImportError:
        return None
    kind = "MXFP4" if name == "mxfp4-gguf" else name.upper()
    if name not in {**BLOCKS, **LATER_BLOCKS, "mxfp4-gguf": None}:
        return None
    got = gguf.quants.dequantize(np.frombuffer(bytes(row), np.uint8), gguf.GGMLQuantizationType[kind])
    same = (got == values) | (np.isnan(got) & np.isnan(values))
    if name == "mxfp4-gguf":
        # The specification's NaN scale is a number there.
        same |= np.repeat(np.frombuffer(bytes(row), np.uint8)[::17] == 255, 32)
    return bool(same.all())


def ask_ml_dtypes():
    try:
        import ml_dtypes
    except ImportError:
        return None
    every = np.arange(256, dtype=np.uint8)
    wide = every.view(ml_dtypes.float8_e4m3fn).astype(F)
    mine = np.array([e4m3(int(c)) for c in every])
    scale = every.view(ml_dtypes.float8_e8m0fnu).astype(F)
    four = every[:16].view(ml_dtypes.float4_e2m1fn).astype(F)
    return (
        np.array_equal(wide, mine, equal_nan=True)
        and np.array_equal(scale, np.array([e8m0(int(c)) for c in every]), equal_nan=True)
        and np.array_equal(four, np.array([e2m1(c) for c in range(16)]))
    )


def text(data):
    return base64.b64encode(bytes(data)).decode("ascii")


def main():
    witnesses, result = [], {}
    for name, decode, rows in layouts():
        result[name] = []
        for row, columns in rows:
            values = np.array(decode(row, columns), dtype=F)
            assert len(values) == columns
            asked = ask_gguf(name, row, values)
            assert asked is not False, f"gguf disagrees about {name}"
            if asked:
                witnesses.append("gguf")
            # of a NaN only that it is one
            values[np.isnan(values)] = F("nan")
            result[name].append({"columns": columns, "row": text(row), "values": text(values.astype("<f4").tobytes())})
    asked = ask_ml_dtypes()
    assert asked is not False, "ml_dtypes disagrees"
    if asked:
        witnesses.append("ml_dtypes")
    versions = [f"{w} {__import__('importlib.metadata').metadata.version(w)}" for w in sorted(set(witnesses))]
    file = pathlib.Path(__file__).with_name("blocks.json")
    file.write_text(json.dumps({"witnesses": versions, "layouts": result}, indent=2) + "\n")
    print(f"{file}: {file.stat().st_size} bytes; also asked: {', '.join(versions) or 'nobody'}")


main()
