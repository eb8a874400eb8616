"""Constants that decide when and how much, and never what: a program gives the same results whatever they are.

Each says what it was weighed against, and which benchmark of `tests/benchmarks` shows it. Milliseconds are those of one thread
of a server's CPU with other load on it: their ratios count.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def environment(name: str, read: Callable[[str], _T], default: _T, expected: str) -> _T:
    """What a variable of the environment says: the default where it is not set, is empty, or, with a warning, where `read` raises
    ValueError for it."""
    text = os.environ.get(name, "")
    try:
        return read(text) if text.strip() else default
    except ValueError:
        warnings.warn(f"{name}={text[:80]!r} in the environment is not {expected}, and is left out of account", RuntimeWarning,
                      stacklevel=3)
        return default


@contextlib.contextmanager
def unless_set(name: str, text: str) -> Iterator[None]:
    """A variable of the environment for as long as this lasts, unless it is set."""
    is_set = name in os.environ
    os.environ.setdefault(name, text)
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]


def _seconds(text: str) -> float:
    seconds = float(text)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(text)
    return seconds


def _flag(text: str) -> bool:
    if text.strip() not in ("0", "1"):
        raise ValueError(text)
    return text.strip() == "1"


# ------------------------------------------------------------------------------------------- exchanges between participants

EXCHANGE_TIMEOUT = 60.0
"""Seconds that a participant waits for the others of its group, and a program and its host for each other, unless users say
otherwise. Chosen, not measured: members may still be compiling, and nobody watches a hang for longer."""

POLL_INTERVAL = 0.2
"""Seconds after which a thread that waits for other processes looks whether anybody has failed. Errors come as much later."""

ANSWER_TIMEOUT = 3.0
"""Seconds in which a process says that it is there, before an error names it as silent. Those that wait for an exchange look
every `POLL_INTERVAL`."""

INLINE_BYTES = 1 << 13
"""Bytes up to which data travel with the message that announces them, and cost no operation of gloo (`collectives.py`: 4 KiB
against 64 KiB between two processes)."""

DIRECT_BYTES = 1 << 20
"""Bytes of all members' data up to which they are swapped in one go. What counts then is how often members wait, and above it
how often data are copied (`collectives.py`: 1 MiB)."""

CHUNK_BYTES = 1 << 22
"""Bytes that travel between two members at once: small enough for one chunk to be reduced while others travel, and large
enough that beginning one costs nothing beside it (`collectives.py`: 64 MiB)."""

CHUNKS_AHEAD = 3
"""Chunks on their way at once: gloo works on two things at a time, and a third is ready when one of them ends."""

AHEAD_BYTES = 1 << 24
"""Bytes that an exchange may bring before it is needed, begun as soon as what it gives is there: a weight, gathered beside what
uses the one before. Together such exchanges bring as much as the largest of them (`meshes.py --without overlap,buckets`, with all
of this ahead: of a step of 3.2 s a process waits 0.1 to 0.2 s for exchanges and not 1.6 to 1.8)."""

JOINED_BYTES = 1 << 22
"""Bytes of whole arrays up to which exchanges of one kind become one (`collectives.py`: 8 AllReduces between 4 processes take as
one 0.24 of what they take one by one at 16 KiB each, 0.39 at 256 KiB, 0.58 at 1 MiB). Joined ones are copied, and kept together.
"""

COPIED_AT_ONCE = 1 << 14
"""Elements up to which results for all members are made in one call and not one for each (`collectives.py`: 8 threads)."""

REDUCED_AT_ONCE = 1 << 15
"""Elements that are reduced and then copied to each result while they are in the processor's cache; too few for torch to wake
its threads (`collectives.py`: 8 threads, 16 MiB)."""

POOLED_BYTES = 1 << 20
"""Bytes from which memory is used again: smaller memory comes from the allocator's own stores, which has pages already."""

POOL_KEEPS = 2
"""Unused memory that is kept, as a multiple of the largest block: an array and the parts that it was reduced of. More would stand
beside what a training holds where that is most, as exchanges of many sizes leave blocks of many sizes behind (`meshes.py`)."""

# ------------------------------------------------------------------------------------------- memory

LARGE = 1 << 15
"""Elements from which an array costs more to write and to read back than to compute again: from here an elementwise result is
written over an operand that dies, and arithmetic is done again on the way back instead of being kept (`constants.py`: four ops
take 0.05 ms either way at 32 Ki elements, and 0.04 to 0.06 instead of 0.085 at 64 Ki)."""

ACCUMULATED_FROM = 1 << 12
"""Elements from which a sum that a loop carries is added to in place (`constants.py`: 200 sums take 0.63 ms instead of 0.51 at
4 Ki elements, 0.59 instead of 0.94 at 16 Ki, 2.1 instead of 3.6 at 64 Ki)."""

CONSTANT_UP_TO = 1 << 16
"""Elements up to which what needs no operands (iota) is made once, with the program, and kept; larger ones are made in each run.
Chosen, not measured: it weighs memory for as long as the program is kept against microseconds."""

# ------------------------------------------------------------------------------------------- elementwise chains on the CPU

BLOCKED_FROM = 1 << 19
"""Elements of an array from which a chain of elementwise ops on it runs block by block (`constants.py`: ten ops take 2.3 ms whole
and 2.9 in blocks at 512 Ki elements, 4.8 and 5.0 at 1 Mi, 30 and 20 at 4 Mi)."""

BLOCK = 1 << 17
"""Elements of a block: half of it for each of two cores fits a private cache together with a few intermediates (`constants.py`:
ten ops on 16 Mi elements take 110 to 140 ms with blocks of 2^14 to 2^20, the differences within what other load makes)."""

PRODUCT_BLOCKED_FROM = 1 << 23
"""Elements of a product from which it is made block by block with what follows up to the next product, where nothing else reads
it (`constants.py`)."""

NATIVE_PRODUCT_FROM = 1 << 18
"""Elements of a product from which it is native code, tile by tile, with what follows up to the next product."""

TILE = 1 << 16
"""Elements of a product that native code makes at a time between two products."""

FACTOR_OF_BLOCKS = 1 << 18
"""Elements up to which a factor, read again for each block, is taken to stay in the cache. Chosen: 1 MiB of float32."""

LARGE_PAGES_FROM = 1 << 23
"""Bytes of a result in blocks from which its memory is asked for in large pages: filling 64 MiB takes 11 ms then, and 26 in pages
of 4 KiB, most of it until the system has given them."""

# ------------------------------------------------------------------------------------------- regions on whole arrays

COMBINED_AT_ONCE = 1 << 18
"""Elements that a reduction by any combiner works on at a time on the CPU: what it writes then stays in the cache
(`constants.py`: 4 Mi pairs of floats take 23 ms, 36 all at once, 32 by 2^17, 12 to 18 by 2^19 and 2^20)."""

REDUCED_NATIVELY_FROM = 1 << 14
"""Elements from which a reduction by an associative region is native code, for which the first run waits 20 to 40 ms once. One
thread, logarithms of sums of exponentials as pairs: 16 Ki elements by rows 0.18 ms, in torch 0.45, 512 Ki 1.5 and 7.9; 512 Ki by
columns 0.9 and 3.4. Fewer elements are no slower (1 Ki 0.15 and 0.31), but what that saves takes long to be worth the wait."""

MET_BY_COLUMNS_FROM = 1 << 19
"""Elements from which sums scaled to a maximum are such a reduction where columns are reduced. Below it, and for rows always,
torch takes the maximum first. One thread, pairs by columns: 64 x 64 0.20 ms and 0.02 with the maximum first, 256 x 256 0.12 and
0.08, 512 x 512 0.27 to 0.30 and 0.25 to 0.31, 1024 x 512 0.42 to 0.46 and 0.48 to 0.49, 2048 x 1024 1.5 to 1.9 and 2.4, 65536
x 16 0.9 and 3.7; by rows 1024 x 512 0.44 and 0.38. Two threads: by columns 512 x 512 0.27 and 0.18, 1024 x 512 0.44 and 0.36,
2048 x 2048 2.0 to 2.6 and 3.0 to 4.2; by rows 1024 x 512 0.27 and 0.20."""

SHORT_WINDOW = 8
"""Size of a window's side up to which its elements are combined one after another, and from which windows are put together of
halves (`constants.py`: 0.6 to 1 ms at size 4 either way, 1.3 to 1.9 at 6; at 16, 4.1 against 1.3)."""

MANY_UPDATES = 16
"""Updates of one element from which a scatter by an associative combiner combines updates with each other first (`constants.py`:
on the CPU the two ways cost the same, 6 ms for 16 updates of 4096 elements each. On an accelerator, each of the rounds that are
saved waits for the device)."""

SORTED_BY_NETWORK = 32
"""Elements up to which an exchange network sorts them by any comparator, and above which partitions do (`constants.py`: 1000 rows
of 32 take 13 ms against 25, of 128 55 against 113; for few long rows the network's n log^2 n elements count)."""

RADIX_SORTED_IN_TORCH = 1 << 15
"""Elements of a vector from which torch sorts floats as integers on the CPU, where there is no native code: it then has a radix
sort (`constants.py`: 1.5 ms against 1.1 at 16 Ki elements, 2.9 against 0.5 at 32 Ki, 121 against 28 at 1 Mi)."""

RADIX_SORTED_FROM = 1 << 12
"""Elements from which native code sorts them by their digits on the CPU. A call takes 10 us more than one of torch's (one thread,
float32 with places: 1 Ki 25 us against 20, 4 Ki 52 against 68, 8 Ki 88 against 435, 1 Mi 11.2 ms against 17; numbers of 16 bits
with a value each, 1 Mi: 6.9 ms against 27.8)."""

RADIX_SORTED_ROW = 128
"""Elements of a row from which they are: each byte of the keys has 256 counters (one thread, float32 with places: 10,000 rows of
32 take 12.6 ms against 7.8 in torch, of 64 15 against 20, of 100 18 against 34, 256 rows of 512 1.4 against 6. Float64: of 64 30
against 20, of 128 41 against 47)."""

COUNTERS_AT_ONCE = 1 << 15
"""Counters that a random generator works on at a time on a CPU, so that its many passes stay in the cache (`constants.py`: 4 Mi
words of Threefry take 75 ms, 98 by 2^14, 51 by 2^16 and 2^17, 133 all at once)."""

# ------------------------------------------------------------------------------------------- programs of gradients

BOUNDED_ROWS_BYTES = 1 << 20
"""Bytes up to which what a loop keeps of its iterations stands in arrays where its condition only says how many there are at
most; above it is kept on stacks, as long as they must be. Chosen, not measured: what may be reserved in vain."""

SEGMENT = 32
"""Iterations of which all rows are kept at once where a loop of unknown length is walked back in plain HLO. Chosen: about as many
as there are snapshots, so that neither takes more memory than the other."""

COMPARED_CONSTANTS = 64
"""Elements up to which constants are compared by value when equal ops are made one. Chosen, not measured."""

CONSTANT_OPERANDS = 16
"""Instructions up to which rules look at an operand that is made of constants. Chosen, not measured."""

SEARCHED_FOR_SYMMETRY = 256
"""Instructions up to which it is looked whether a value depends on |x| only. Chosen, not measured."""

# ------------------------------------------------------------------------------------------- how large programs may become

OPENED_INSTRUCTIONS = 1 << 19
"""Instructions that a program may have once its calls are opened. Chosen: ten times the largest training steps, and a minute of
lowering. Calls of calls grow exponentially with the text, and what takes longer than anybody waits must say so."""

MADE_INSTRUCTIONS = 1 << 21
"""Instructions that are made in one piece of work: one gradient, one lowering. Chosen: several times the above."""

COLLECTED_FROM = 100_000
"""Objects that making a program leaves from which Python searches them for garbage at once (`large_programs.py`: 100,000
instructions on larger arrays leave 3.3 million, two searches of which took 5 of the first call's 9 seconds). Chosen: to search so
many takes 0.05 seconds."""

NATIVE_INSTRUCTIONS = 1 << 12
"""Instructions of a loop's body, with all loops and branches inside, up to which it may become native code. Chosen: the C
compiler
takes seconds from here."""

TUPLE_LEAVES = 1 << 16
"""Arrays in a tuple. Chosen: tuples of tuples grow exponentially with the text, and arguments of large models are thousands."""

TUPLE_DEPTH = 100
"""Tuples in tuples. Chosen: far from where Python ends recursion."""

# ------------------------------------------------------------------------------------------- functions of rows

ROW_FUNCTIONS = True
"""Whether softmax, its logarithm, layer norm and logarithms of sums of exponentials are calls of torch's where a program spells
them out (`rivals.py`: rows of 1,024 in 1.2 ms and not 4.8; "Sinkhorn", 80 sums of 200 by 200, 3.3 ms and not 7.3)."""

# ------------------------------------------------------------------------------------------- products

NARROW_PRODUCTS_FROM = 1 << 13
"""Multiplications from which a product of bfloat16 or float16 is made in float32 where the processor has no units for them; with
units the way that is faster is measured (`measured_matmul`). One thread, float16 without them: 64 x 64 x 64 in 0.010 ms and not
0.084, 256 in 0.33 and not 17, 1024 in 28 and not 5,374; at 16 two conversions cost more (0.005, 0.003)."""

ONEDNN_FROM = 1 << 23
"""Multiplications from which it is, with AVX-512, of which MKL makes no use there: nearly twice as fast. With AVX2 (2026-11-27;
one thread and two, 13 shapes, each factor as it lies or turned) oneDNN takes 0.7 to 1.7 of MKL's time, 1.1 in the middle, and
for several at once 1.6 to 2.5."""

ONEDNN_BATCHED_FROM = 1 << 22
"""Multiplications of each of several products from which they are oneDNN's, one after another. On a processor with AVX-512, of
which MKL makes no use: 8 of 256 x 64 x 256 155 GFLOP/s and 93 by MKL on one thread, 220 and 210 on two; 4 of 512 x 64 x 512 200
and 101; 8 of 128 x 128 x 128 (2^21) 131 and 106, 146 and 199 on two threads; 32 of 64 x 64 x 64 34 and 95."""

ONEDNN_FEW_COLUMNS = 2, 15
"""Columns, from and to, with which MKL is slow: 9 GFLOP/s for ten of them, 35 by oneDNN, with AVX2 6 and 21; for one and for 16
it is faster."""

ONEDNN_FEW_COLUMNS_FROM = 1 << 19
"""Multiplications with so few columns from which the product is oneDNN's."""

# ------------------------------------------------------------------------------------------- passes

WITHOUT_PASSES = environment("XLA_TORCH_WITHOUT_PASSES", lambda text: frozenset(part.strip() for part in text.split(",")),
                             frozenset[str](), "names of passes with commas between them")
"""Passes over lowered graphs that are left out (`passes/passes.py`): to find which one a difference comes from."""

# ------------------------------------------------------------------------------------------- native loops

NATIVE_AFTER = environment("XLA_TORCH_NATIVE_AFTER", _seconds, 0.005, "a number of seconds, 0 or more (or inf)")
"""Seconds that a loop's steps take in torch, or will by their number, before it is compiled beside them; ``inf`` keeps loops in
torch, and with ``0`` they wait for their code before the first step. A tenth of what compiling takes of another core (38 ms for
Newton's method on a vector, 64 for a Kalman filter, 30 of them whatever the source is): whoever runs a loop so long once is
likely to do it again, and less would not be noticed, as the loop has to wait for its code."""

NATIVE_AGAIN = 0.1
"""Of that, what one of them takes in a program's first call for the second call to have it compiled, and to wait for all that is
being compiled: who calls twice will call again, and calls from there on do the same. (17
programs with nothing on disk, 11 calls of each: 0.56 of XLA's time and not 0.70 to 0.83, 1,000 steps 0.9 and not 15, layer norms
0.5 and not 1.7.)"""

NATIVE_WAITED = 1 << 15
"""Bytes of sources that the second call waits for, all together. 45 kinds of programs have 25,000 at most, which take 0.1 to
0.6 s; compiling a thousand instructions takes some seconds, which calls of a millisecond do not soon win back."""

NATIVE_WAIT = 1.0
"""Seconds that it waits at most."""

NATIVE_WAITED_CALLS = 16
"""Calls like the first for whose time it waits at most: they could run in torch meanwhile. Fourteen quantum gates take 1 ms in
torch and 0.2 s to compile."""

NATIVE_TEXT = 1 << 13
"""Bytes of a source up to which its length hardly shows in what compiling takes. One of five times as many is worth it from five
times `NATIVE_AFTER` on."""

DRAFTED_PLAN = 1 << 18
"""Bytes of C in a plan from which on its functions are compiled without optimisation first, which takes a sixth of the time
(MJX's step with contacts and its gradient, 850,000 bytes: 1.9 s and then 0.7 ms a call, 10.8 s and then 0.07; torch's calls take
31 ms). Below, compilation ends before much is gained."""

NATIVE_CALL = 2e-6
"""Seconds that an op of a loop's body takes in torch at least."""

NATIVE_UNDER = 2000.0
"""Nanoseconds of work for each op of a loop's body up to which native code is faster: torch needs about 4 us for a call, and then
computes several elements at once."""

NATIVE_ELEMENTS = 1 << 21
"""Elements of an array, for each thread of torch's, up to which the elementwise ops of a loop take no longer in native code on
one thread, which makes one pass of many. A step of 3.7 x (1 - x) on 2^20 elements: 0.12 ms, and torch's blocks 0.50 on one thread
and 0.32 on two; of nine ops with neighbours 0.8, and 1.3 and 0.95; with an exponential, which is vector code in torch too, 0.30,
and 0.42 and 0.26. On 2^21 with two threads: 0.36 and 0.91, 3.4 and 2.5, 0.63 and 0.60."""

PRODUCT_ALONE = 1 << 18
"""Multiplications of a product within native code up to which MKL computes it on one thread: with two it shares whatever it is
given, and one thread then waits for what the other has in its cache. A step of a loop with two products, on two threads: of
16 x 64 x 64 7.9 us and 4.7 on one, 32 x 64 x 64 11.6 and 9.5, 64 x 64 x 64 18 and 16, 64 x 128 x 64 27 and 28, 128 x 128 x 64 48
and 54."""

NATIVE_MATRIX = 64
"""Rows and columns of a matrix up to which factors and triangular systems are plain loops in native code. One step of a loop,
against torch's call of LAPACK, on one thread: LU of float32 0.2 and 2.4 us for 8 rows, 2.9 and 7.1 for 32, 13 and 19 for 64, 115
and 58 for 128; of float64 15 and 20 for 64, 48 and 38 for 96; QR 4.7 and 8.6 for 32, 29 and 25 for 64, 208 and 136 for 128."""

SELECTED_FROM = 16
"""Elements of a row from which native code selects the largest or smallest in two passes of vector code (argmin, argmax) and not
one by one. 2,000 rows of float32, one thread: 16 elements take 9 us and not 19, 15 take 19 and 18 (vectors, and then seven one by
one), 31 take 27 and 37, 100 take 41 and 163; of int32 16 elements take 5 and 42."""

SELECTED_DOUBLES_FROM = 64
"""The same for rows of float64: 16 elements take 21 us and not 20, 33 take 39 and 38, 64 take 72 and 128."""

SEARCHED_FROM = 1 << 16
"""Elements of an array from which a native function of its own searches for the largest or smallest of each row (argmax)."""

SEARCHED_ROW = 128
"""And those of a row. Against torch.max with AVX-512 on one thread (2026-11-29), 4,096 rows of 1,024: float32 0.24, float64
0.57, bfloat16 0.26, int32 0.32; 2,048 rows of 100: 1.02, 1.34, 0.91, 0.63."""

APART_ROW = 8
"""Elements of a row from which fusions read slices where they lie. Five calls on three slices of a million elements, of the time
with copies of them (AVX-512, one thread, 2026-11-29): rows of 4 0.88, 8 0.67, 16 0.47, 32 0.28, 256 0.25."""

RUNNING_FROM = 1 << 14
"""Elements of an array from which a native function of its own forms running sums and their like along a dimension that is not
the last."""

RUNNING_COLUMNS = 8
"""And elements behind that dimension. Against torch with AVX-512 on one thread (2026-11-29): 1,024 x 1,024 along the first
dimension 0.05 for sums, 0.07 for products, 0.18 for maxima; 64 x 512 x 16 0.2, x 8 0.58, 0.35 and 0.35, x 4 1.2, 0.9 and 0.7,
x 2 2.0, 1.1 and 0.9; 16 x 8 x 128 0.8, 0.9 and 0.2."""

NATIVE_TRANSFORM = 1 << 14
"""Numbers along an axis up to which native code transforms them (Fourier). There and back in a loop, against torch's calls and
XLA's, on one thread: 256 of complex64 take 0.9 us, 7.0 and 2.9, 4096 7.5, 82 and 39, 16384 41, 149 and 71, 65536 253, 637 and
485; 4096 of complex128 19, 56 and 22, 16384 92, 226 and 90. Chosen: roots of unity are made first, which takes 7
ms for 16384."""

NATIVE_SORT = 128
"""Elements of a row up to which native code sorts it, by insertion. Keys of float32 with their places, in a loop: 64 take 0.6 us
and torch 12, 128 take 3 and 13, 512 take 38 and 18; in the worst order twice that."""

NATIVE_MERGE = 1 << 9
"""Elements of a row up to which native code sorts it at all, above `NATIVE_SORT` by merging. A sort by one key and one by
two in a program with some arithmetic, against torch's calls: of 200 elements 29 us and 224, of 512 51 and 71, of four rows of 512
224 and 192, of 1024 109 and 100. What stands around such a sort is native only if it is."""

BUNDLED_UP_TO = 1 << 14
"""Elements of an array up to which what is computed of it is bundled with others in one native call (`bundles.py`, 20 layers of
dots, means and choices on one thread: 0.80 ms for 64 elements and 0.21 in bundles, 0.91 and 0.28 for 1 Ki, 1.1 and 0.52 for 4 Ki,
1.7 and 1.2 for 8 Ki, 3.3 and 3.0 for 16 Ki)."""

BUNDLED_BY_ONE = 8
"""As many times that, by torch's threads, are bundled where one pass of native code over arrays takes the place of several of
torch's: elementwise ops, moves and reductions (11 chains of 8 to 20 of them on 128 Ki elements, in a bundle to torch and blocks:
0.24 to 0.97 on one thread, 0.31 to 1.35 on two; on 64 Ki 0.24 to 1.2 on both), but not gathers (1.5 and 1.9)."""

BUNDLED_PRODUCTS = 1 << 18
"""Products of a dot up to which it is bundled with what stands around it: from there on a call is nothing beside it."""

BUNDLE_LEAST = 8
"""Ops from which a bundle is worth its call, which takes about as long as three of torch's (`bundles.py`)."""

BUNDLED_LOOP = 0.1
"""Seconds that a loop's steps take in torch, by their number, up to which it is bundled with others. What is around a longer one
is nothing beside it, and by itself it becomes native in the middle of its first run. Two loops of 300 steps over numbers take 70
us by themselves, of which 8 are the steps', and 30 in a bundle; the gradient of a Kalman filter of 200 steps 0.12 ms and 0.06,
and its first ten calls 0.7 s and 1.1."""

SMALL_COMPOSITE = 512
"""Elements of operands and results up to which a composite runs by its decomposition, if that sorts nothing: a call of torch
within native code takes 5 to 10 us. Layer norms of 512 elements take 20 us by the kernel and 22 by their ops, of 2,048 23 and 39;
grid samples 14 and 19, 15 and 26; an LSTM of 16 steps 149 and 82."""

BUNDLED_STEPS = 64
"""Steps of a loop up to which it is bundled however long each of them takes: native code that takes over in the middle of its
first run spares few of them. Five steps of MJX over 39 arrays take 0.16 ms by themselves, of which 0.1 are Python's checks of the
arrays."""

BUNDLE_MOST = 256
"""Ops of a bundle at most: the C compiler takes longer than in proportion for a thousand (`bundles.py`)."""

ENDS_OF_A_RESULT = 32
"""Elementwise ops for each result up to which more than `BUNDLE_MOST` of them at a program's end are left to one native call on
many arrays: an optimizer's update has 3 to 20 for each. A chain of 325 ops on 64 elements takes 0.03 ms in bundles and 9 so."""

FUSIONS_FROM = 1 << 13
"""Elements of an array from which arithmetic on it becomes native code, in one block with what stands around it. Torch needs 2 us
for a call, and then as long again for 16 Ki elements."""

SELECT_COST = 8
"""Plain calls that a select counts for: torch goes by its mask element by element, and each one that was not foreseen costs as
much as 30 additions (128 Ki elements: 430 us with a mask of no order, 140 us of long runs; a comparison 15 us)."""

COMPARISON_COST = 4
"""Plain calls that a comparison counts for (AVX-512, 2026-11-29: 256 Ki elements of float32 0.17 ms, of int32 0.13, a sum of two
arrays 0.03 in the cache; native code 0.02)."""

FUSION_ELEMENT = 5e-10
"""Seconds that a call of a fusion takes in torch for an element, roughly. What will take `NATIVE_AFTER` in one run is compiled
while the program is still being lowered."""

GRAPH_FROM = 8
"""Operators that compute, in a program, from which it is recorded as a CUDA graph. To copy arguments and results and to begin a
graph takes as long as five to ten of them (H200: a softmax of rows 0.09 ms call by call and 0.21 as a graph, a sort of seven
operators 0.54 and 0.28)."""

GRAPHS = environment("XLA_TORCH_CUDA_GRAPHS", _flag, True, "0 or 1")
"""Whether programs on CUDA devices are recorded by themselves (`runtime/automatic_graphs.py`)."""

GRAPHS_LIMIT = environment("XLA_TORCH_CUDA_GRAPHS_LIMIT", int, 1 << 30, "a number of bytes")
"""Bytes of device memory that the recordings hold that programs make by themselves, all together; the least recently used are
freed. A program that needs more for one run is never recorded. Chosen, not measured: a hundredth of an H200's memory."""

GRAPH_UP_TO = 1 << 16
"""Operators of a program up to which it is recorded by itself: a graph keeps a node for each, in the memory of host and device.
Chosen, not measured; 200 steps of a Kalman filter are 10,000."""

GRAPH_TIMES = 4
"""How often a program is recorded by itself at most, where arguments move or its recording was freed. The last recording copies
all arguments, so that it fits wherever they are. Chosen, not measured."""

FOREACH_CALLS = 24
"""Calls on small arrays, for results of a program alone, from which they become one native call. It takes about as long as ten.
"""

FOREACH_UP_TO = 1 << 20
"""Elements of an array up to which it is bundled with others (Adam on 40 arrays of 16 Ki elements takes 1.0 ms, 15 in a block for
each; on 20 of 256 Ki 15 and 25). Larger ones gain nothing, and what a foreach waits for is kept until then."""

WAITED_FOR_FROM = 1 << 18
"""Elements of an array from which the first run waits for native code of exponentials and their like, 0.05 to 0.1 seconds: what
works on so many is trained for hours, and its numbers are to be had again. Chosen. (64 Ki exponentials take 30 us instead of 54,
tanh 73 instead of 165. Where half of the numbers are masked, -1e9 say, torch's exponential takes ten times as long, native code
no longer.)"""

TOP_OF_A_HEAP = 1 << 10
"""Elements of each row up to which the largest are found by native code, which keeps them in a heap on its stack (`rivals.py`,
one thread: the 16 largest of 1024 in 10.5 ms, 17.5 in torch, and 38.6 by sorting elements with their places behind)."""

# ------------------------------------------------------------------------------------------- loops of a few steps

UNROLLED_STEPS = 8
"""Steps up to which a loop of elementwise ops is written out, so that its ops run in blocks with those around it."""

UNROLLED_OPS = 512
"""Ops of all its steps up to which it is."""

FOLDED_BY_A_LOOP_FROM = 1 << 12
"""Elements from which several arrays are reduced to scalars by a loop, if the reducer is not associative: native code takes over
a loop. Chosen, not measured: torch takes 30 us for each of them, and compiling about as long as 4 Ki of them."""

# ------------------------------------------------------------------------------------------- what leaves loops

INVARIANT_UP_TO = 1 << 18
"""Elements up to which what each step of a loop would compute again is computed before it, though it is larger than what it is
computed from. Native steps, one thread, each with a product by exp of an outer product: 4 Ki elements take 0.09 of the time
without, 64 Ki 0.27, 256 Ki 0.5, 1 Mi 0.87."""

INVARIANT_ARITHMETIC_UP_TO = 1 << 12
"""The same for additions and their like, which cost native code less than to read their results: an outer sum of 4 Ki elements
takes 0.8 of the time without, of 16 Ki 1.16, of 64 Ki 1.2."""
