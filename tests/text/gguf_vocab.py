"""Metadata of a GGUF file, read and written: enough for vocabulary-only files to compare tokenizers with."""

import mmap
import struct

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9


def read(path):
    """{key: (vtype, value)}; an array's value is (element vtype, list); strings are bytes. Tensors
    are not read, so a file that ends inside them will do."""
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    magic, version, _, n_kv = struct.unpack_from("<4sIQQ", m, 0)
    assert magic == b"GGUF" and version in (2, 3), path
    at = 24

    def string():
        nonlocal at
        (n,) = struct.unpack_from("<Q", m, at)
        at += 8 + n
        return m[at - n : at]

    def scalar(vtype):
        nonlocal at
        if vtype == STR:
            return string()
        (x,) = struct.unpack_from("<" + SCALAR[vtype], m, at)
        at += struct.calcsize(SCALAR[vtype])
        return x

    out = {}
    for _ in range(n_kv):
        key = string().decode()
        vtype = scalar(U32)
        if vtype != ARRAY:
            out[key] = (vtype, scalar(vtype))
            continue
        elem, n = scalar(U32), scalar(10)
        if elem == STR:
            out[key] = (ARRAY, (elem, [string() for _ in range(n)]))
        else:
            out[key] = (ARRAY, (elem, list(struct.unpack_from("<%d%s" % (n, SCALAR[elem]), m, at))))
            at += n * struct.calcsize(SCALAR[elem])
    return out


def write(path, kv):
    """kv as read gives it; no tensors."""

    def string(b):
        return struct.pack("<Q", len(b)) + b

    out = [struct.pack("<4sIQQ", b"GGUF", 3, 0, len(kv))]
    for key, (vtype, value) in kv.items():
        out += [string(key.encode()), struct.pack("<I", vtype)]
        if vtype == STR:
            out.append(string(value))
        elif vtype == ARRAY:
            elem, items = value
            out.append(struct.pack("<IQ", elem, len(items)))
            if elem == STR:
                out += [string(x) for x in items]
            else:
                out.append(struct.pack("<%d%s" % (len(items), SCALAR[elem]), *items))
        else:
            out.append(struct.pack("<" + SCALAR[vtype], value))
    with open(path, "wb") as f:
        f.write(b"".join(out))


def vocabulary(kv):
    """The keys that make a vocabulary-only file."""
    keep = ("tokenizer.", "general.architecture", "general.name")
    return {k: v for k, v in kv.items() if k.startswith(keep)}
