"""Programs with dynamic sizes, for tests: what they all begin with, and the arguments that they take."""

from __future__ import annotations

import numpy as np

REGIONS = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
mul {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] multiply(a, b)
}
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
tilted {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  h = f32[] constant(0.5)
  x = f32[] multiply(a, h)
  y = f32[] sine(b)
  ROOT r = f32[] add(x, y)
}
lt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
neg {
  a = f32[] parameter(0)
  ROOT r = f32[] negate(a)
}
add_two {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  t = f32[] add(b, d)
  ROOT r = (f32[], f32[]) tuple(s, t)
}
gt_first {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
double {
  a = f32[<=8] parameter(0)
  ROOT r = f32[<=8] add(a, a)
}
minus {
  a = f32[<=8] parameter(0)
  ROOT r = f32[<=8] negate(a)
}
under_three {
  a = (s32[], f32[<=8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
step {
  a = (s32[], f32[<=8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  x = f32[<=8] get-tuple-element(a), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[<=8] add(x, x)
  ROOT r = (s32[], f32[<=8]) tuple(j, y)
}
static_step {
  a = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  x = f32[8] get-tuple-element(a), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] add(x, x)
  ROOT r = (s32[], f32[8]) tuple(j, y)
}
static_under_three {
  a = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""

HEAD = """p = f32[8] parameter(0)
q = f32[4,6] parameter(1)
n = s32[] parameter(2)
k = s32[] parameter(3)
d = f32[<=8] set-dimension-size(p, n), dimensions={0}
e = f32[<=4,6] set-dimension-size(q, k), dimensions={0}
f = f32[4,<=6] set-dimension-size(q, k), dimensions={1}
g = f32[<=4,<=6] set-dimension-size(e, k), dimensions={1}
z = f32[] constant(0)
one = f32[] constant(1)
i0 = s32[] constant(0)
i1 = s32[] constant(1)
i2 = s32[] constant(2)
i4 = s32[] constant(4)
w = f32[6] slice(p), slice={[0:6]}
p2 = f32[2] slice(p), slice={[0:2]}
p3 = f32[3] slice(p), slice={[0:3]}
p4 = f32[4] slice(p), slice={[0:4]}
q2 = f32[4,2] slice(q), slice={[0:4], [0:2]}
q4 = f32[4,4] slice(q), slice={[0:4], [0:4]}
r2 = f32[2,6] slice(q), slice={[0:2], [0:6]}
x3 = s32[3] constant({0,1,7})
y3 = s32[3] constant({0,1,3})
d1 = f32[<=8] set-dimension-size(p, i1), dimensions={0}
d4 = f32[<=4] set-dimension-size(p4, i2), dimensions={0}
dx3 = s32[<=3] set-dimension-size(x3, i2), dimensions={0}
dy3 = s32[<=3] set-dimension-size(y3, i2), dimensions={0}"""
"""d has 5 of 8 elements, e and f 3 of 4 rows and of 6 columns, g both."""

MORE = HEAD + """
i8 = s32[] constant(8)
y2 = s32[2] constant({4,7})
u = f32[<=3] set-dimension-size(p3, i2), dimensions={0}"""

P, Q = np.arange(1, 9, dtype=np.float32), (np.arange(24, dtype=np.float32) - 7).reshape(4, 6)
ARGUMENTS = P, Q, np.int32(5), np.int32(3)


def hlo(row: str, head: str = HEAD) -> str:
    """A program whose root is the last instruction of the row; instructions are divided by ``;``."""
    *lines, root = [line.strip() for line in row.split(";")]
    body = [*head.splitlines(), *lines, f"ROOT root = {root}"]
    return "\n".join(["HloModule dynamic", REGIONS + "ENTRY entry {", *(f"  {line}" for line in body), "}"])
