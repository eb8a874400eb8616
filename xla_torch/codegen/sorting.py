"""Source of a stable sort of rows by one key each, which carries other arrays along.

A radix sort: elements are moved by one byte of their keys after another, the lowest first, and not at all where a byte is the
same in all of them. A long row is sorted by several threads, each of which has a part of it in each pass; of several rows each is
one thread's.
"""

from __future__ import annotations

from .loops import TYPES
from .threads import shared

INFINITIES = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
"""The bits of what is above all numbers of a type of floats, and below all NaNs."""


def sort_rows(name: str, bits: int, carries: bool) -> str:
    """A function that sorts rows by keys of a type of integers (``s16``) or floats (``bf16``), of which zeros are equal and NaNs
    above all. It may carry other arrays along.

    A record is the key as it is, and if it `carries` something, either the element's place or the element of the only other
    array that is carried; there, keys of 64 bits are sorted by one half after the other. The places are those of the keys and of
    the result (0 if there is none), then a mask that turns the order round where it is -1, memory for a row's records twice (0
    where each thread has its own) and for what threads count, whether records have elements for places, how many arrays are
    carried and where there is of each: the array (0 for places), the result, the bytes of an element.
    """
    high = f"((KEY)1 << {bits - 1})"
    if name in INFINITIES:
        magnitude = f"(b & (KEY)~{high})"
        number = f"(KEY)(b ^ (b & {high} ? (KEY)~0 : {high}))"
        key = f"!{magnitude} ? {high} : {magnitude} > (KEY){INFINITIES[name]}ULL ? (KEY)~0 : {number}"
    else:
        key = "b" if name.startswith("u") else f"(KEY)(b ^ {high})"
    halves = carries and bits > 32
    digits = "typedef u32 DIGITS;" if halves else "typedef KEY DIGITS;"
    record = f"typedef u{bits} KEY; {digits} typedef struct {{ DIGITS key; {'u32 beside;' if carries else ''} }} record;"
    run_rows = shared(8, 2 * record_bytes(bits, carries), "run_rows")
    text = _SORT.replace("RUN", run_rows).replace("ORDERED", key)
    text = text.replace("CARRIES", str(int(carries))).replace("HALVES", str(int(halves)))
    return "\n".join([TYPES, record, text])


def record_bytes(bits: int, carries: bool) -> int:
    """How much memory a record takes."""
    return 8 if carries else bits // 8


_SORT = """typedef struct { u64 low, high; } u128;
enum { BYTES = sizeof(DIGITS) };
typedef struct { u32 of[BYTES][256], differ; } counts;
typedef struct {
    const KEY *keys; KEY *sorted; KEY turn; s64 n, threads, given, carried; char **arrays;
    counts *counted; record *source, *target;
    int step, digit, half, loaded;
} task;
enum { LOAD, COUNT, MOVE, STORE };
static inline KEY ordered(KEY b, KEY turn) { return (KEY)((ORDERED) ^ turn); }

static inline DIGITS digits(DIGITS key, KEY turn) { return HALVES ? key : (DIGITS)ordered(key, turn); }
static inline void counted(counts *own, DIGITS key) { for (int d = 0; d < BYTES; d++) own->of[d][key >> 8 * d & 255]++; }

static void load(const task *of, s64 from, s64 to, counts *own) {
    const KEY *keys = of->keys, turn = of->turn;
    __builtin_memset(own, 0, sizeof(counts));
#if HALVES
    record *records = of->source;
    const KEY first = ordered(keys[0], turn);
    KEY differ = 0;
    if (of->half) { /* loads by themselves are many at a time */
        for (s64 i = from; i < to; i++) records[i].key = ordered(keys[records[i].beside], turn) >> 32;
        for (s64 i = from; i < to; i++) counted(own, records[i].key);
    }
    else for (s64 i = from; i < to; i++) {
        const KEY key = ordered(keys[i], turn);
        differ |= key ^ first;
        counted(own, key);
    }
    own->differ = differ >> 32 != 0;
#else
    for (s64 i = from; i < to; i++) counted(own, ordered(keys[i], turn));
#endif
}
static void count(const task *of, s64 from, s64 to, u32 *own) {
    const int shift = 8 * of->digit;
    const KEY turn = of->turn;
    __builtin_memset(own, 0, 256 * sizeof(u32));
    for (s64 i = from; i < to; i++) own[digits(of->source[i].key, turn) >> shift & 255]++;
}
#define MOVED(...) \\
    for (s64 i = from; i < to; i++) { \\
        const record r = __VA_ARGS__; \\
        target[own[digits(r.key, turn) >> shift & 255]++] = r; \\
    }
static void move(const task *of, s64 from, s64 to, u32 *own) {
    const int shift = 8 * of->digit;
    const KEY turn = of->turn;
    const record *restrict source = of->source;
    record *restrict target = of->target;
    if (of->loaded) MOVED(source[i])
    else {
        const KEY *restrict keys = of->keys;
#if CARRIES
        const char *restrict array = of->given ? of->arrays[0] : 0;
        if (!array) MOVED({ HALVES ? ordered(keys[i], turn) : keys[i], i })
        else switch ((s64)of->arrays[2]) {
            case 1: MOVED({ keys[i], ((u8 *)array)[i] }) break;
            case 2: MOVED({ keys[i], ((u16 *)array)[i] }) break;
            default: MOVED({ keys[i], ((u32 *)array)[i] })
        }
#else
        MOVED({ keys[i] })
#endif
    }
}
#define STORED(type) { \\
    type *result = (type *)out; \\
    if (of->given) for (s64 i = from; i < to; i++) result[i] = (type)records[i].beside; \\
    else if (!in) for (s64 i = from; i < to; i++) result[i] = (type)records[i].beside; \\
    else for (s64 i = from; i < to; i++) result[i] = ((type *)in)[records[i].beside]; }
static void store(const task *of, s64 from, s64 to) {
    const record *records = of->source;
#if HALVES
    if (of->sorted) for (s64 i = from; i < to; i++) of->sorted[i] = of->keys[records[i].beside];
#else
    if (of->sorted) for (s64 i = from; i < to; i++) of->sorted[i] = records[i].key;
#endif
#if CARRIES
    for (s64 k = 0; k < of->carried; k++) {
        const char *in = of->arrays[3 * k];
        char *out = of->arrays[3 * k + 1];
        switch ((s64)of->arrays[3 * k + 2]) {
            case 1: STORED(u8) break;
            case 2: STORED(u16) break;
            case 4: STORED(u32) break;
            case 8: STORED(u64) break;
            default: for (s64 i = from; i < to; i++) ((u128 *)out)[i] = ((u128 *)in)[records[i].beside];
        }
    }
#endif
}
static void do_step(const task *of, s64 k) {
    const s64 each = ((of->n + of->threads - 1) / of->threads + 63) / 64 * 64;
    const s64 from = k * each < of->n ? k * each : of->n, to = from + each < of->n ? from + each : of->n;
    if (of->step == LOAD) load(of, from, to, of->counted + k);
    else if (of->step == COUNT) count(of, from, to, of->counted[k].of[of->digit]);
    else if (of->step == MOVE) move(of, from, to, of->counted[k].of[of->digit]);
    else store(of, from, to);
}
typedef struct { task *of; char **team; } steps;
static void share_step(void *given) {
    const steps *shared = given;
    int (*number)(void) = (int (*)(void))shared->team[1], (*team)(void) = (int (*)(void))shared->team[2];
    for (s64 k = number(); k < shared->of->threads; k += team()) do_step(shared->of, k);
}
static void together(task *of, int step, char **team) {
    steps shared = { of, team };
    of->step = step;
    if (of->threads < 2) do_step(of, 0);
    else ((void (*)(void (*)(void *), void *, unsigned, unsigned))team[0])(share_step, &shared, of->threads, 0);
}
static int is_same(const task *of, int digit) {
    const u8 one = (of->half ? of->source[0].key : (DIGITS)ordered(of->keys[0], of->turn)) >> 8 * digit & 255;
    s64 found = 0;
    for (s64 k = 0; k < of->threads; k++) found += of->counted[k].of[digit][one];
    return found == of->n;
}
static void sort_digits(task *of, char **team) {
    int same[BYTES], is_counted = 1;
    together(of, LOAD, team);
    for (int d = 0; d < BYTES; d++) same[d] = is_same(of, d);
    for (int d = 0; d < BYTES; d++) {
        if (same[d] && (of->loaded || d + 1 < BYTES)) continue;
        of->digit = d;
        if (!is_counted && of->threads > 1) together(of, COUNT, team);
        u32 sum = 0;
        for (int b = 0; b < 256; b++)
            for (s64 k = 0; k < of->threads; k++) {
                const u32 here = of->counted[k].of[d][b];
                of->counted[k].of[d][b] = sum;
                sum += here;
            }
        together(of, MOVE, team);
        record *free = of->source;
        of->source = of->target;
        of->target = free;
        of->loaded = 1, is_counted = 0;
    }
}
static void sort(task *of, char **team) {
    u32 differ = 0;
    sort_digits(of, team);
    if (HALVES) for (s64 k = 0; k < of->threads; k++) differ |= of->counted[k].differ;
    of->half = 1;
    if (differ) sort_digits(of, team);
    together(of, STORE, team);
}
static task of_row(char **places, s64 r, s64 n, char **arrays) {
    for (s64 k = 0; k < (s64)places[6]; k++) {
        char **array = (char **)places[7] + 3 * k;
        const s64 begin = r * n * (s64)array[2];
        arrays[3 * k] = array[0] ? array[0] + begin : 0;
        arrays[3 * k + 1] = array[1] + begin;
        arrays[3 * k + 2] = array[2];
    }
    task of = { (KEY *)places[0] + r * n, places[1] ? (KEY *)places[1] + r * n : 0, (KEY)(s64)places[2], n, 1, (s64)places[5],
               (s64)places[6], arrays };
    return of;
}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    char *arrays[3 * (s64)places[6] + 1];
    counts counted;
    for (s64 r = from; r < to; r++) {
        task of = of_row(places, r, n, arrays);
        of.counted = &counted, of.source = (record *)kept, of.target = of.source + n;
        sort(&of, 0);
    }
}
RUN
int run(s64 rows, char **places) {
    if (!places[3]) return run_rows(rows, places);
    const s64 n = (s64)places[9];
    char *arrays[3 * (s64)places[6] + 1];
    for (s64 r = 0; r < rows; r++) {
        task of = of_row(places, r, n, arrays);
        of.threads = (s64)places[10], of.counted = (counts *)places[4], of.source = (record *)places[3];
        of.target = of.source + n;
        sort(&of, places + 11);
    }
    return 0;
}"""
