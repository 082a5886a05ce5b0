#!/usr/bin/env python3
"""Writes data/ref/gguf: small.gguf, by the package `gguf`, with a key of every kind and a tensor of every type that
Galaxy decodes, and expected.safetensors: what the package makes of these tensors (a name as in the file), and of floats
that it encodes (TYPE.floats, TYPE.bytes), which test_gguf.cu compares with, bit for bit.

    $(dev/ref/venv.sh | tail -n 1) dev/ref/make_gguf.py --out data/ref/gguf
"""
import argparse
import os

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFValueType as Kind, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES
from safetensors.numpy import save_file

BLOCKS = 24
SCALES = {Type.F16: [0], Type.BF16: [0], Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q4_K: [0, 2], Type.Q6_K: [208]}
FLOATS = [0.0, -0.0, 1.0, -1.5, 65504.0, 65519.0, -65519.9, 2.0 ** -14, 2.0 ** -24, 2.0 ** -25, 3 * 2.0 ** -25, -2.0 ** -26, 1e-30, 1e-45,
          1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 3.3895e38, -3.0, 0.1, 1 / 3]


def scales(draw, n):
    """fp16 of all sizes, no infinities and no NaN: those of a block reach all its values."""
    bits = draw.integers(0, 0x7C00, n).astype(np.uint16) | (draw.integers(0, 2, n) << 15).astype(np.uint16)
    bits[:4] = [0, 0x8000, 1, 0x7BFF]
    return bits.view(np.uint8).reshape(n, 2)


def raw(type, draw):
    """[2, BLOCKS / 2 * bytes of a block]: two rows."""
    _, size = GGML_QUANT_SIZES[type]
    blocks = draw.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES[type]:
        if type is not Type.BF16:
            blocks[:, at:at + 2] = scales(draw, BLOCKS)
    if type is Type.BF16:
        blocks[:, 1] &= 0x7E
    return blocks.reshape(2, -1)


def floats(type, draw):
    """Rows that are encoded: what rounds up, down, to even, and next to nothing."""
    if type is Type.Q8_0:
        x = (draw.standard_normal((BLOCKS, 32)) * 10.0 ** draw.integers(-9, 5, (BLOCKS, 1))).astype(np.float32)
        x[0] = 0
        x[1] = np.arange(32) * 0.5          # ties: d is 15.5 / 127
        x[2] = np.float32(127) * np.linspace(-1, 1, 32, dtype=np.float32)
        x[3] = x[4].astype(np.float16)
        x[5] = np.arange(32) - 15.5
        x[5, 0] = 127                       # d is 1: ties exactly
        x[6] = np.float32(127 * 65519.0)
        x[7] = 1e-8 * draw.standard_normal(32)
        bf16 = draw.standard_normal((400, 32)).astype(np.float32)
        return np.concatenate([x, (bf16.view(np.uint32) & 0xFFFF0000).view(np.float32)])
    many = (draw.standard_normal(1024 - len(FLOATS)) * 10.0 ** draw.integers(-9, 5, 1024 - len(FLOATS))).astype(np.float32)
    x = np.concatenate([np.array(FLOATS, np.float32), many])
    return np.where(np.abs(x) < 65520, x, 7) if type is Type.F16 else x


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--out", default="data/ref/gguf")
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, "small.gguf")
    w = GGUFWriter(path, "llama")
    w.add_uint8("a.uint8", 200), w.add_int8("a.int8", -100), w.add_uint16("a.uint16", 50000), w.add_int16("a.int16", -30000)
    w.add_uint32("a.uint32", 4000000000), w.add_int32("a.int32", -2000000000), w.add_float32("a.float32", 1e-5)
    w.add_bool("a.bool", True), w.add_string("a.string", "Größe"), w.add_uint64("a.uint64", 1 << 62)
    w.add_int64("a.int64", -(1 << 62)), w.add_float64("a.float64", 0.1)
    w.add_array("a.strings", ["", "a", "two words", "ß"])
    w.add_key_value("a.ints", [3, -1, 2], Kind.ARRAY, sub_type=Kind.INT32)
    w.add_key_value("a.floats", [0.5, -2.0], Kind.ARRAY, sub_type=Kind.FLOAT32)
    w.add_key_value("a.bytes", [1, 255], Kind.ARRAY, sub_type=Kind.UINT8)
    draw = np.random.default_rng(7)
    expected = {}
    w.add_tensor("f32.weight", draw.standard_normal((3, 5)).astype(np.float32))
    w.add_tensor("one.bias", np.array([1, 2, 3], np.float32))
    for type in SCALES:
        w.add_tensor(f"{type.name.lower()}.weight", raw(type, draw), raw_dtype=type)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    for t in GGUFReader(path).tensors:
        values = quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        assert np.isfinite(values).all() and not np.isnan(values).any(), t.name
        expected[t.name] = np.ascontiguousarray(values.reshape([int(n) for n in reversed(t.shape)]))
    for type in (Type.F16, Type.BF16, Type.Q8_0):
        x = floats(type, draw)
        expected[f"{type.name}.floats"] = x
        expected[f"{type.name}.bytes"] = np.ascontiguousarray(quants.quantize(x, type)).view(np.uint8).ravel()
    save_file(expected, os.path.join(a.out, "expected.safetensors"))


if __name__ == "__main__":
    main()
