#!/usr/bin/env python3
"""quant_decode against the dequantisers of the PyPI package `gguf`: the same bits on random blocks.

tests/quant/decode_gguf.py build/tests/arith/arith_shim.so [SEED]
"""

import ctypes
import sys

try:
    import numpy as np
    from gguf import quants
except ImportError as e:
    print(f"skip: decode_gguf: {e}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

BLOCKS = 200
# Where a block keeps its f16 numbers: made ordinary in half of the blocks, left as random bits in the others.
SCALE_AT = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}


def random_blocks(rng, name, block_bytes):
    b = rng.integers(0, 256, (BLOCKS, block_bytes), dtype=np.uint8)
    for at in SCALE_AT.get(name, [0] if name.startswith(("IQ2", "IQ3", "IQ1_S")) else []):
        d = rng.uniform(-2, 2, BLOCKS // 2).astype(np.float16)
        b[: BLOCKS // 2, at : at + 2] = d.view(np.uint8).reshape(-1, 2)
    return b


def main():
    lib = ctypes.CDLL(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20240607
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    passed = failed = 0
    for qtype in sorted(quants._type_traits, key=int):
        block, size = ctypes.c_int(), ctypes.c_int()
        if not lib.shim_type_block(int(qtype), ctypes.byref(block), ctypes.byref(size)):
            continue
        n_per = block.value if block.value > 1 else 256  # the package reads BF16 by the row
        blocks = random_blocks(rng, qtype.name, size.value * (n_per // block.value))
        with np.errstate(all="ignore"):
            want = quants.dequantize(blocks, qtype).reshape(-1).astype(np.float32)
        got = np.empty(BLOCKS * n_per, np.float32)
        lib.shim_decode(
            got.ctypes.data_as(ctypes.c_void_p),
            blocks.ctypes.data_as(ctypes.c_void_p),
            int(qtype),
            ctypes.c_size_t(got.size),
        )
        same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
        same |= (got == 0) & (want == 0)  # a codebook's -0 of the package is our +0 and the reverse
        if same.all():
            passed += 1
            print(f"ok decode {qtype.name}")
        else:
            failed += 1
            i = int(np.argmin(same))
            print(
                f"FAILED decode {qtype.name}: {int((~same).sum())} of {got.size} differ, "
                f"first at {i}: {got[i]} is not {want[i]}"
            )
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
