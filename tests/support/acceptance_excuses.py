"""Where xla_torch and real XLA may disagree about a mutant (`hlo/test_acceptance.py`), and why.

An excuse names the opcodes, what was said, what stands in the mutant's text, and a reason; it is for what occurs and for nothing
else. `STRICTER` are mutants that we refuse and XLA accepts: what was said is our error. `LOOSER` are those that XLA refuses: what
was said is XLA's message. Where XLA reads text, its import to StableHLO stands in front of its verifier, and much of what is
excused is lost or refused there.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Excuse:
    """One reason to disagree. Opcodes are separated by blanks; what was said and the text are searched for."""

    opcodes: str
    messages: str
    text: str
    reason: str

    def __post_init__(self) -> None:
        assert all((self.opcodes, self.messages, self.text, self.reason)), self
        assert all(re.fullmatch(r"[a-z][a-z0-9-]*", opcode) for opcode in self.opcodes.split()), self

    def excuses(self, opcode: str, messages: str, text: str) -> bool:
        return opcode in self.opcodes.split() and bool(re.search(self.messages, messages) and re.search(self.text, text))


STRICTER = [
    Excuse("send send-done recv recv-done infeed", r"declared shape contradicts the inferred shape", r"token\[\]\)? \w[\w-]*\(",
           "the import makes the shape of a transfer anew from its operands and its other half"),
    Excuse("recv recv-done", r"the result is no triple", r"u32\[\](, \w+\[\])?\) recv\(",
           "the import makes the triple anew"),
    Excuse("add-dependency", r"declared shape contradicts the inferred shape|minor_to_major is not a permutation|is not a token",
           r" add-dependency\(p0, p1\)", "the import drops add-dependency: what is wrong with it goes with it"),
    Excuse("after-all", r"declared shape contradicts the inferred shape|operand \d is not a token", r" after-all\(p0",
           "the import makes a token of whatever is waited for"),
    Excuse("bitcast", r"another size than the operand", r" bitcast\(p0\)",
           "the import keeps a bitcast without looking at sizes"),
    Excuse("conditional", r"operand 0 does not fit parameter 0 of branch 2", r"branch_computations=",
           "the import casts the operand of a branch"),
    Excuse("reduce-window select-and-scatter convolution", r"window's rhs_reversal (is malformed|has \d entries)",
           r"rhs_reversal=", "XLA overlooks reversals of a wrong number or sign"),
    Excuse("map", r"map works on all dimensions in order", r" map\(.*dimensions=\{",
           "XLA's verifier overlooks the list that its shape inference refuses"),
    Excuse("ragged-dot", r"group sizes are not integers", r" ragged-dot\(p0, p1, p2\)",
           "XLA overlooks that counts are whole numbers"),
    Excuse("ragged-all-to-all", r"operand and output do not fit", r" ragged-all-to-all\(",
           "XLA overlooks element type and sizes"),
    Excuse("dot", r"dot expects 2 operands, but has 3", r" dot\(p0, p1, p\d\)", "what is left of sparse dots in XLA"),
    Excuse("reduce-scatter", r"a collective has one dimension", r"dimensions=\{\d,\d",
           "XLA reads the first of several dimensions"),
    Excuse("set-dimension-size", r"dimension is out of range", r"dimensions=\{\d,\d",
           "XLA reads the first of several dimensions"),
    Excuse("fft", r"does not fit the fft_length of I?FFT|a length is negative", r"fft_type=I?FFT",
           "XLA overlooks the lengths of complex transforms"),
    Excuse("complex", r"incompatible shapes", r"<=\d",
           "XLA's inference stretches 1 to a bounded size, and then refuses the operation"),
    Excuse("all-gather reduce-scatter", r"not of as many shards as a group has members", r"replica_groups=\{\{\d+\}\}",
           "XLA overlooks a dimension that does not grow or shrink with a group of one"),
    Excuse("dynamic-reshape", r"a size is not an s32 scalar", r" dynamic-reshape\(p0, p1, p2\)",
           "XLA overlooks the sizes' shapes"),
    Excuse("exponential tanh", r"expects an integer", r"ulps=\d+\.\d", "XLA drops the fraction of an integer"),
    Excuse("topk", r"topk of a complex type", r"c(64|128)\[", "XLA overlooks that complex numbers are in no order"),
]

LOOSER = [
    Excuse("atan collective-reduce", r"Unknown opcode", r" (atan|collective-reduce)\(", "opcodes of a newer XLA"),
    Excuse("topk", r'unexpected attribute "is_stable"', r" topk\(.*is_stable=", "an attribute of a newer XLA"),
    Excuse("mulhi scaled-dot", r"unregistered operation 'mhlo\.unknown'", r" (mulhi|scaled-dot)\(",
           "the import does not know the opcode"),
    Excuse("async-start async-update async-done add-start negate-start negate-done",
           r"async-done expects the shape of output to match|component #\d of async bundle|async_start' op type mismatch"
           r"|AsyncUpdate expects", r"-(start|update|done)\(", "the import does not keep the shapes of asynchronous operations"),
    Excuse("stochastic-convert", r"all of \{operand, random, result\} have same shape", r"<=\d",
           "of bounded sizes the import asks for equal bounds everywhere"),
    Excuse("broadcast", r"is not equal to 1 or size of result dim", r"<=\d", "the import compares a size with a bound"),
    Excuse("scan", r"Mismatching scan dimension sizes", r"<=\d", "the import compares a size with a bound"),
    Excuse("rng-bit-generator", r"must be statically shaped", r"<=\d",
           "StableHLO has no random bits of a bounded size"),
    Excuse("get-tuple-element conditional while all-gather-start all-gather-done all-reduce-done collective-permute-start"
           " collective-permute-done", r"type of return operand \d+ .* doesn't match function result type", r"<=\d",
           "the import takes the bound from one of the two shapes, and its functions want equal ones"),
    Excuse("call", r"operand type mismatch", r"<=\d", "the import's functions want equal bounds"),
    Excuse("all-gather", r"operands/results must have static shapes", r"<=\d", "StableHLO gathers no bounded sizes"),
    Excuse("all-gather-done", r"can't be translated to XLA HLO", r"<=\d",
           "of bounded sizes the import loses the other half"),
    Excuse("reduce-window", r"Reduction function must take", r" reduce-window\(p0, p1, p2, p3\)",
           "XLA's parser infers the shape of one array only"),
    Excuse("custom-call", r"CompatibleIgnoringFpPrecision", r'"Sharding"',
           "what the partitioner checks of its own custom calls"),
    Excuse("constant", r"Unsupported type: TUPLE", r"\) constant\(\(", "XLA's CPU compiler has no tuple constants"),
    Excuse("domain", r"must be ranked tensor", r" domain\(p0\)", "the import knows domains of arrays only"),
    Excuse("dynamic-slice", r"must be variadic of 0D tensor", r"\[1\]",
           "start indices as one vector, which StableHLO has not"),
    Excuse("dynamic-slice", r"expected 'sizes'", r"dynamic_slice_sizes=\{\}",
           "the import loses the empty list of sizes"),
    Excuse("all-to-all", r"non-empty replica groups", r"replica_groups=\{\}",
           "no groups are one of all, however many there are"),
    Excuse("reduce-scatter", r"must be ranked tensor", r"= \(\w+\[[\d,]*\]\) reduce-scatter\(",
           "one operand's result as a tuple of one, which StableHLO has not"),
    Excuse("collective-broadcast", r"was given -1", r"\{\d\},\{\d,\d\}",
           "groups of different sizes, which StableHLO cannot write"),
    Excuse("fusion", r"Non-root instruction", r" fusion\(p0, p1\)",
           "XLA wants fused computations without dead instructions"),
    Excuse("tuple", r"Expected 1 results but got 0", r"tuple\(\), sharding=",
           "the import of an empty tuple with a sharding"),
]


def excuse(opcode: str, messages: str, text: str, looser: bool) -> Excuse | None:
    """The first that holds."""
    return next((e for e in (LOOSER if looser else STRICTER) if e.excuses(opcode, messages, text)), None)


def as_xla_reads(text: str) -> str:
    """A scalar's layout may be written ``{}``, as the documents say; XLA's parser takes none."""
    return re.sub(r"(?<!token)\[\]\{\}", "[]", text)
