"""Whether a text is the one that was written down: word by word, numbers up to rounding, anything at all where ``...`` stands."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w])")
"""What rounding changes: numbers with a point or an exponent. Others are counts, sizes and names."""

_ANY_NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf))"


def fits(messages: str, expected: str, *, relative: float = 0.0, absolute: float = 0.0) -> bool:
    """Whether a text is the expected one, in which ``...`` stands for anything. With a tolerance, numbers that have a point or an
    exponent may differ by it, and the white space between words does not count."""
    if not relative and not absolute:
        return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), messages, re.S) is not None
    messages, expected = " ".join(messages.split()), " ".join(expected.split())
    parts = _NUMBER.split(expected)
    pattern = _ANY_NUMBER.join(".*".join(map(re.escape, part.split("..."))) for part in parts)
    found = re.fullmatch(pattern, messages, re.S)
    return found is not None and all(
        math.isclose(float(number), float(wanted), rel_tol=relative, abs_tol=absolute)
        for number, wanted in zip(found.groups(), _NUMBER.findall(expected), strict=True))
