"""Attention as linalg text, for the problems of attention_sample.py: heads of K and V are read by groups of heads of Q."""

from math import sqrt
from typing import Any


def _generic(name: str, maps: str, ins: str, out: str, body: str) -> str:
    """`name` = a generic over letters ("mk,nk->mn"); letters that the result lacks are reduced. `ins`, `out`: "%a, %b : types"."""
    read, written = maps.split("->")
    letters = written + "".join(sorted(set(read) - set(written) - {","}))
    attributes = ", ".join(f"affine_map<({', '.join(letters)}) -> ({', '.join(one)})>" for one in (*read.split(","), written))
    kinds = ", ".join('"parallel"' if letter in written else '"reduction"' for letter in letters)
    traits = f"{{indexing_maps = [{attributes}], iterator_types = [{kinds}]}}"
    return f" {name} = linalg.generic {traits} ins({ins}) outs({out}) {{\n {body}\n }} -> {out.split(' : ')[1]}\n"


def attention_text(sizes: Any) -> str:
    """softmax(Q K^T / sqrt(D)) V for q [batch, shared, group, queries, D], k and v [batch, shared, keys, D], causal or not."""
    e = sizes.dtype
    extents = {
        "b": sizes.batch,
        "h": sizes.shared,
        "g": sizes.group,
        "m": sizes.queries,
        "n": sizes.keys,
        "k": sizes.width,
        "e": sizes.width,
    }

    def kind(letters: str, element: str) -> str:
        return f"tensor<{''.join(f'{extents[letter]}x' for letter in letters)}{element}>"

    q, k, v, p = kind("bhgmk", e), kind("bhnk", e), kind("bhne", e), kind("bhgmn", e)
    s, w, o = kind("bhgmn", "f32"), kind("bhgme", "f32"), kind("bhgme", e)
    product = (
        f"^bb0(%x: {e}, %y: {e}, %o: f32):\n %xw = arith.extf %x : {e} to f32\n %yw = arith.extf %y : {e} to f32\n"
        " %prod = arith.mulf %xw, %yw : f32\n %total = arith.addf %o, %prod : f32\n linalg.yield %total : f32"
    )
    scaled = "^bb0(%x: f32, %o: f32):\n %t = arith.mulf %x, %scale : f32\n"
    if sizes.causal:
        scaled += " %i = linalg.index 3 : index\n %j = linalg.index 4 : index\n %seen = arith.cmpi sle, %j, %i : index\n"
        scaled += " %u = arith.select %seen, %t, %low : f32\n linalg.yield %u : f32"
    else:
        scaled += " linalg.yield %t : f32"
    rounded = f"^bb0(%x: f32, %o: {e}):\n %t = arith.truncf %x : f32 to {e}\n linalg.yield %t : {e}"
    return (
        f"func.func @attention(%q: {q}, %k: {k}, %v: {v}) -> {o} {{\n"
        " %zero = arith.constant 0.0 : f32\n %low = arith.constant 0xFF800000 : f32\n"
        f" %scale = arith.constant {1 / sqrt(sizes.width)!r} : f32\n"
        f" %es = tensor.empty() : {s}\n %ep = tensor.empty() : {p}\n %ew = tensor.empty() : {w}\n %eo = tensor.empty() : {o}\n"
        f" %fs = linalg.fill ins(%zero : f32) outs(%es : {s}) -> {s}\n %fw = linalg.fill ins(%zero : f32) outs(%ew : {w}) -> {w}\n"
        + _generic("%s0", "bhgmk,bhnk->bhgmn", f"%q, %k : {q}, {k}", f"%fs : {s}", product)
        + _generic("%s1", "bhgmn->bhgmn", f"%s0 : {s}", f"%es : {s}", scaled)
        + f" %p0 = linalg.softmax dimension(4) ins(%s1 : {s}) outs(%es : {s}) -> {s}\n"
        + _generic("%p1", "bhgmn->bhgmn", f"%p0 : {s}", f"%ep : {p}", rounded)
        + _generic("%r0", "bhgmn,bhne->bhgme", f"%p1, %v : {p}, {v}", f"%fw : {w}", product)
        + _generic("%r1", "bhgme->bhgme", f"%r0 : {w}", f"%eo : {o}", rounded)
        + f" return %r1 : {o}\n}}\n"
    )
