"""ctypes mirrors of src/kern/args.h, src/dev/dev.h and the sampling records, and the shim's entry points.
`load` checks the size of every record, so that a field added on the C side is noticed here."""

import ctypes as C

import numpy as np

P, U32, I32, F32 = C.c_void_p, C.c_uint32, C.c_int32, C.c_float


def record(name, *fields):
    return type(name, (C.Structure,), {"_fields_": [(n, t) for names, t in fields for n in names.split()]})


Act = record("Act", ("x q d s s16", P), ("ld", U32))
Weight = record("Weight", ("w bias scale", P), ("type n_row n_col", U32))
RowRun = record("RowRun", ("row0 n_row", U32), ("seq", I32), ("n_commit window bank", U32))
RowInfo = record("RowInfo", ("tok seq pos out", I32))
Kv = record("Kv", ("k v k_scale v_scale index", P), ("type", I32))
Pages = record("Pages", ("table", P), ("n_slot", U32))
LinearOut = record("LinearOut", ("y", P), ("w", Weight), ("ld_y add", U32))
RECORDS = {
    "embed": record("embed", ("x", P), ("table", Weight), ("rows", P), ("n_row", U32), ("scale", F32)),
    "norm": record(
        "norm", ("y", Act), ("x w row_of", P), ("ld_x n_row n_col", U32), ("eps", F32), ("want_q", U32)
    ),
    "add_norm": record("add_norm", ("x y w", P), ("n_row n_col", U32), ("eps", F32)),
    "linear": record("linear", ("out", LinearOut * 6), ("a", Act), ("n_out n_row n_prompt", U32)),
    "rope_table": record("rope_table", ("cs inv_freq rows", P), ("n_row n_pair", U32), ("mscale", F32)),
    "rope_kv": record(
        "rope_kv",
        ("q k v", P),
        ("kv", Kv),
        ("pages", Pages),
        ("rows q_norm k_norm cs", P),
        ("ld_q head_ld_q ld_kv n_row n_head n_head_kv d_k d_v n_rot", U32),
        ("rope", I32),
        ("v_norm", U32),
        ("eps", F32),
    ),
    "attn": record(
        "attn",
        ("o", Act),
        ("q gate", P),
        ("kv", Kv),
        ("pages", Pages),
        ("rows sel", P),
        ("ld_q head_ld_q ld_sel n_row n_head n_head_kv d_k d_v window", U32),
        ("scale", F32),
        ("want_q", U32),
    ),
    "glu": record("glu", ("h", Act), ("gate up", P), ("ld n_row n_col", U32), ("kind", I32), ("want_q", U32)),
    "router": record("router", ("ids weights logits", P), ("n_row n_expert n_used", U32), ("scale", F32)),
    "experts": record(
        "experts",
        ("y", P),
        ("a", Act),
        ("ids weights", P),
        ("gate up down", Weight),
        ("layer n_row n_prompt n_expert n_used", U32),
        ("kind", I32),
        ("add", U32),
    ),
    "group_norm": record(
        "group_norm",
        ("y", Act),
        ("x w row_of", P),
        ("ld_x ld_group n_row n_group n_col", U32),
        ("eps", F32),
        ("want_q", U32),
    ),
    "silu": record("silu", ("h", Act), ("x", P), ("n_row n_col", U32), ("div", F32), ("want_q", U32)),
    "hyper_read": record(
        "hyper_read", ("m", Act), ("xn gate", P), ("ld_xn n_row n_stream n_col want_q", U32)
    ),
    "hyper_write": record("hyper_write", ("x y inject", P), ("n_row n_stream n_col", U32)),
    "add": record("add", ("x a b", P), ("n", C.c_uint64)),
    "conv": record(
        "conv",
        ("y u w ring", P),
        ("ld_seq", C.c_uint64),
        ("runs rows", P),
        ("n_run n_row n_col n_tap step", U32),
    ),
    "index_keys": record(
        "index_keys",
        ("index k w ring", P),
        ("ld_seq", C.c_uint64),
        ("inv_freq", P),
        ("pages", Pages),
        ("runs rows", P),
        ("n_run n_row d n_rot ratio", U32),
        ("eps mscale", F32),
    ),
    "index_select": record(
        "index_select",
        ("sel q index", P),
        ("pages", Pages),
        ("rows", P),
        ("ld_sel n_row n_head d ratio n_keep", U32),
    ),
    "ngram": record(
        "ngram",
        ("e", Act),
        ("table", Weight),
        ("mult n_of first ring", P),
        ("ld_seq", C.c_uint64),
        ("runs rows", P),
        ("n_run n_row n_gram n_head", U32),
        ("end", I32),
        ("want_q", U32),
    ),
    "ngram_gate": record("ngram_gate", ("gv key query v", P), ("ld n_row n_stream n_col", U32)),
    "softcap": record("softcap", ("y", P), ("n", C.c_uint64), ("cap", F32)),
    "scale": record("scale", ("x s", P), ("n", C.c_uint64)),
    "limits": record(
        "limits",
        ("n_row n_col n_out n_head d_head n_expert n_expert_used n_embd n_ff_expert n_index_keep", U32),
    ),
    "sampling": record(
        "sampling",
        ("temperature", F32),
        ("top_k", I32),
        ("top_p min_p repeat_penalty presence_penalty frequency_penalty", F32),
        ("penalty_last_n", I32),
        ("seed", C.c_uint64),
        ("bias", P),
        ("n_bias", C.c_size_t),
        ("grammar", P),
    ),
    "sample": record(
        "sample", ("logits p history", P), ("n_history", C.c_size_t), ("pos", C.c_uint64), ("allowed", P)
    ),
}
Dims = record("Dims", ("isa type", C.c_int), ("n_act n_row n_col", U32))
Bias = record("Bias", ("id", I32), ("bias", F32))
Source = record(
    "Source", ("acquire release will_need gate up down", P), ("gate_bytes up_bytes down_bytes", C.c_size_t)
)


def load(path):
    lib = C.CDLL(path)
    lib.shim_sizeof.restype = C.c_size_t
    lib.shim_open.restype = P
    lib.shim_uniform.restype = F32
    for name, cls in RECORDS.items():
        want = lib.shim_sizeof(name.encode())
        if want != C.sizeof(cls):
            raise RuntimeError(f"record {name}: {want} bytes in C, {C.sizeof(cls)} in seam.py")
    return lib


def ptr(a):
    """Address of a contiguous array (None: NULL). The caller keeps the array alive."""
    if a is None:
        return None
    assert a.flags["C_CONTIGUOUS"]
    return a.ctypes.data


class Acts:
    """The arrays behind a quant_act: x [n, ld] is given, the int8 form is room for it."""

    def __init__(self, x, n_col=None):
        n_col = x.shape[1] if n_col is None else n_col
        ld = -(-n_col // 64) * 64
        self.x = np.zeros((len(x), ld), np.float32)
        self.x[:, : x.shape[1]] = x
        self.q = np.zeros((len(x), ld), np.int8)
        self.d, self.s = np.zeros((2, len(x), ld // 32), np.float32)
        self.s16 = np.zeros((len(x), ld // 16), np.float32)
        self.act = Act(ptr(self.x), ptr(self.q), ptr(self.d), ptr(self.s), ptr(self.s16), ld)


class Device:
    """One device of the seam. call(op, **fields) fills the record and runs it."""

    def __init__(self, lib, kind=0, source=None, **limits):
        base = dict(n_row=2048, n_col=8192, n_out=8192, n_head=64, d_head=512)
        base.update(limits)
        self.lib, self.source = lib, source
        limits_rec = RECORDS["limits"](**base)
        self.handle = C.c_void_p(
            lib.shim_open(kind, C.byref(limits_rec), C.byref(source) if source else None)
        )
        assert self.handle.value, "dev_open failed"

    def call(self, op, **fields):
        rec = RECORDS[op]()
        for name, value in fields.items():
            setattr(rec, name, ptr(value) if isinstance(value, np.ndarray) else value)
        return getattr(self.lib, "shim_" + op)(self.handle, C.byref(rec))

    def close(self):
        self.lib.shim_close(self.handle)
