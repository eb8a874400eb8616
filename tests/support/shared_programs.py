"""Programs of n computations, each of which runs the one before twice: their text is linear in n, and copies would be 2^n."""

from __future__ import annotations

SQUARE = "%f0 (x: f32[4]) -> f32[4] {\n  %x = f32[4] parameter(0)\n  ROOT %r = f32[4] sine(%x)\n}"


def _program(first: str, computations: list[str], last: str) -> str:
    main = f"ENTRY %main (x: f32[4]) -> f32[4] {{\n  %x = f32[4] parameter(0)\n  ROOT %r = f32[4] {last}\n}}"
    return "\n".join(["HloModule shared", first, *computations, main])


def _twice(number: int, op: str) -> str:
    """f_number, which runs f_(number - 1) by this op, and once more on the result."""
    a, b = (op.format(x=x, f=number - 1) for x in ("%x", "%a"))
    return f"%f{number} (x: f32[4]) -> f32[4] {{\n  %x = f32[4] parameter(0)\n  %a = f32[4] {a}\n  ROOT %r = f32[4] {b}\n}}"


def calls(n: int, op: str = "call({x}), to_apply=%f{f}") -> str:
    return _program(SQUARE, [_twice(k, op) for k in range(1, n + 1)], op.format(x="%x", f=n))


def fusions(n: int) -> str:
    return calls(n, "fusion({x}), kind=kLoop, calls=%f{f}")


def chain(n: int) -> str:
    """n computations, each of which calls the one before once."""
    deeper = [f"%f{k} (x: f32[4]) -> f32[4] {{\n  %x = f32[4] parameter(0)\n  ROOT %r = f32[4] call(%x), to_apply=%f{k - 1}\n}}"
              for k in range(1, n + 1)]
    return _program(SQUARE, deeper, f"call(%x), to_apply=%f{n}")


def conditionals(n: int) -> str:
    """Each chooses by an element of its own between the one before for x, and the one before for x * x."""
    choosing = [f"""%f{k} (x: f32[4]) -> f32[4] {{
  %x = f32[4] parameter(0)
  %one = f32[1] slice(%x), slice={{[{k % 4}:{k % 4 + 1}]}}
  %number = f32[] reshape(%one)
  %zero = f32[] constant(0)
  %p = pred[] compare(%number, %zero), direction=GT
  %y = f32[4] multiply(%x, %x)
  ROOT %r = f32[4] conditional(%p, %x, %y), true_computation=%f{k - 1}, false_computation=%f{k - 1}
}}""" for k in range(1, n + 1)]
    return _program(SQUARE, choosing, f"call(%x), to_apply=%f{n}")


WHILE = """%goes_on (x: f32[4]) -> pred[] {
  %x = f32[4] parameter(0)
  %one = f32[1] slice(%x), slice={[0:1]}
  %number = f32[] reshape(%one)
  %zero = f32[] constant(0)
  ROOT %p = pred[] compare(%number, %zero), direction=GT
}
%f0 (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %r = f32[4] negate(%x)
}"""


def loops(n: int) -> str:
    """Loops in loops, which run until the first element is negative."""
    op = "while({x}), condition=%goes_on, body=%f{f}"
    return _program(WHILE, [_twice(k, op) for k in range(1, n + 1)], f"call(%x), to_apply=%f{n}")


def nested_loops(n: int) -> str:
    """One loop in each other."""
    deeper = [f"%f{k} (x: f32[4]) -> f32[4] {{\n  %x = f32[4] parameter(0)\n"
              f"  ROOT %r = f32[4] while(%x), condition=%goes_on, body=%f{k - 1}\n}}" for k in range(1, n + 1)]
    return _program(WHILE, deeper, f"call(%x), to_apply=%f{n}")


def reductions(n: int) -> str:
    """One reduction, whose combiner calls combiners."""
    head = "(x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n"
    combiners = [f"%f0 {head}  ROOT %r = f32[] add(%x, %y)\n}}"]
    combiners += [f"%f{k} {head}  %a = f32[] call(%x, %y), to_apply=%f{k - 1}\n"
                  f"  ROOT %r = f32[] call(%a, %x), to_apply=%f{k - 1}\n}}" for k in range(1, n + 1)]
    main = (f"ENTRY %main (x: f32[4]) -> f32[] {{\n  %x = f32[4] parameter(0)\n  %zero = f32[] constant(0)\n"
            f"  ROOT %r = f32[] reduce(%x, %zero), dimensions={{0}}, to_apply=%f{n}\n}}")
    return "\n".join(["HloModule shared", *combiners, main])


def maps(n: int) -> str:
    return calls(n, "map({x}), dimensions={{}}, to_apply=%f{f}").replace("f32[4]", "f32[]")


def tuples(n: int) -> str:
    """A tuple of twice the tuple before, down to an array."""
    nested = [f"t{k} = tuple(t{k - 1}, t{k - 1})" for k in range(1, n + 1)]
    return "\n".join(["HloModule shared", "ENTRY main {", "x = f32[4] parameter(0)", "t0 = tuple(x, x)", *nested,
                      f"ROOT r = get-tuple-element(t{n}), index=0", "}"])
