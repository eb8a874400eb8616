"""Texts for each line of HLO's grammar, with variations, and whether XLA's parser takes them: what it said is stored with them.

`REFUSED_HERE` and `TAKEN_HERE` say where this package reads them otherwise, and why. What XLA does not survive is not among them.
"""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

REGIONS = """HloModule rows
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
add2 { x = f32[] parameter(0)
  y = f32[] parameter(1)
  v = f32[] parameter(2)
  w = f32[] parameter(3)
  s = f32[] add(x, v)
  t = f32[] add(y, w)
  ROOT r = (f32[], f32[]) tuple(s, t) }
lt { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=LT }
step { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = (f32[], f32[]) tuple(x, y) }
id { ROOT x = f32[2] parameter(0) }
small { x = f32[2] parameter(0)
  ROOT c = pred[] constant(true) }
"""
OPERANDS = """ENTRY main {
  f = f32[2] parameter(0)
  g = f32[2,3] parameter(1)
  i = s32[] parameter(2)
  z = f32[] parameter(3)
  c = c64[2] parameter(4)
  a = f32[3,3] parameter(5)
  h = f32[1,4,4,2] parameter(6)
  k = f32[3,3,2,5] parameter(7)
  idx = s32[2] parameter(8)
  u = s32[2] parameter(9)
  b = pred[] parameter(10)
  st = u64[2] parameter(11)
  d = f32[<=6] parameter(12)
  tk = token[] after-all()
"""
PREFIX = REGIONS + OPERANDS
"""What most of the texts begin with; in the file one byte stands for it."""

_STORED = Path(__file__).parents[1] / "data" / "texts_as_xla.jsonl.xz"


def rows() -> list[tuple[str, str]]:
    """``taken`` or ``refused``, and the text."""
    lines = lzma.decompress(_STORED.read_bytes()).decode().splitlines()
    return [(messages, PREFIX + text[1:] if text.startswith("\x01") else text) for messages, text in map(json.loads, lines)]


REFUSED_HERE = {  # XLA's parser takes these; its verifier or compiler refuses most of them
    r"\{0:(T\((\)|0|\*|-|2,\*)|E\(-|S\(-)": "layouts in which nothing can lie",
    r"f32\[2\]\{(1|-1|0,0)\}": "no permutation",
    r"constant\((\{1,\.\.\.\}|18446744073709551615)\)": "an elision in the middle; a number out of the type's range",
    r"\(f32\[2\],s32\[\]\) constant": "a tuple without its comma",
    r"TRANSPOSE_INVALID|\), (left_side|lower)=true\n": "no kind of transposition, which XLA does not compile",
    r"aliasing=\{\{\}: \(0, \{\}\),\}|\),? \}|,\)->": "a comma behind the last entry",
    r"rhs_reversal=0x0x0": "as many reversals as the window has dimensions",
    r"dim_labels=b01f_01io->b01\n": "a label is missing",
    r"slice=\{\[(-1:1|0:1:-1)\]": "negative bounds",
    r"maximal device=0 device=1|replicated (manual|replicated)\}": "said twice",
    r"devices=\[(2\]0,1,2|4\]<=\[2,2\]T\(1,1\)|2\]<=\[3\]|0\]<=)": "devices that are not those of the tiles",
    r"last_tile_dims=\{maximal\}": "no kind of subgroup",
    r"mesh\['a'=2\] \[|mesh\['a'=0\]|mesh\['a'=2\], \{'a'\}": "a mesh without size, or without its comma",
    r"=\[(2,2\]<=\[3|2,2\]<=\[2,2\]T\(1|0,2\]<=|-1,2\]<=)": "groups that do not hold all ids",
    r"FileNames\n-1": "a negative number in a table",
}
TAKEN_HERE = {
    r"f32\[\]\{\}": "the documents write a scalar's layout so",
    r":P\(f32": "a physical shape is kept, though only sparse layouts have one",
    r"(?i)packed_nibble": "a precision of StableHLO and of newer versions",
    r"padding=\n": "as XLA prints the padding of a scalar",
    r"f6e[23]m[23]fn": "where types of 6 bits are not known, their names are names",
    r"literal=\(s32": "XLA wants no blank there",
    r"constant\(-?[0-9]{19,}\)": "a float's number is what is written, beyond 64 bits too",
    r"metadata=\{(bogus|preserve_layout|size_of|profile_info|creation_pass|logical_creation|original_value)":
        "fields of other versions of XLA are kept",
    r"frontend_attributes=\{(\"|a =|a/b)": "keys in quotes, which newer versions print",
    r"^(negate|add|reduce)\(|^a = f32\[2\] negate\(f32\[2\] a\)": "one instruction needs neither name nor shape",
    r"FileLocations\n1 \{|StackFrames\n1 \{": "rows of tables are kept as text",
    r"branch_computations=\{\{": "computations in place, as XLA reads them elsewhere",
}


def excused(text: str, taken: bool) -> bool:
    """Whether a difference is stated; `taken`: that we take what XLA refuses."""
    return any(re.search(pattern, text.removeprefix(PREFIX)) for pattern in (TAKEN_HERE if taken else REFUSED_HERE))
