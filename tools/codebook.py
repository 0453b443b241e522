#!/usr/bin/env python3
"""Writes the codebooks of the i-quants from the PyPI package `gguf`.

    tools/codebook.py > src/quant/codebook_data.h

A code is what the package stores for one table entry: eight 2-bit slots (iq2*, iq1s) or four 4-bit slots
(iq3*), the first element in the lowest bits. codebook.c turns codes into values when it is compiled;
tests/quant/t_codebook.c holds the SHA-256 of the result.
"""

import sys

from gguf import quants

TABLES = [
    ("iq2xxs", quants.IQ2_XXS),
    ("iq2xs", quants.IQ2_XS),
    ("iq2s", quants.IQ2_S),
    ("iq3xxs", quants.IQ3_XXS),
    ("iq3s", quants.IQ3_S),
    ("iq1s", quants.IQ1_S),
]
HEAD = """/* Codes of the i-quant codebooks: a list macro per table, one X(code) an entry, in table order.
 * Made by tools/codebook.py; codebook.c says what a code means. Data only: not edited by hand. */
#ifndef MICA_QUANT_CODEBOOK_DATA_H
#define MICA_QUANT_CODEBOOK_DATA_H
"""


def codes(cls):
    raw = bytes.fromhex(cls.grid_hex.decode())
    words = [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
    assert len(words) == cls.grid_shape[0], (len(words), cls.grid_shape)
    return words


def main():
    out = sys.stdout
    out.write(HEAD)
    for name, cls in TABLES:
        words = codes(cls)
        out.write(f"\n#define QUANT_CODES_{name.upper()}(X) \\\n")
        lines = [" ".join(f"X(0x{w:04x})" for w in words[i : i + 9]) for i in range(0, len(words), 9)]
        out.write(" \\\n".join("    " + line for line in lines) + "\n")
    out.write("\n#endif\n")


main()
