"""How a native function runs on several threads: on those of the OpenMP library that torch itself computes with."""

from __future__ import annotations


def shared(first: int, kept_bytes: int, name: str = "run") -> str:
    """The source of ``run(rows, places)``, or of another name, which has ``part(from, to, places, n, kept)`` called by several
    threads, each for some of the rows.

    The first places are the function's own. Then follow the address of memory, `kept_bytes` for each thread and element of a
    row, the elements of a row, the number of threads, and three functions of OpenMP: start threads, a thread's number, how many
    there are.
    """
    return _RUN.replace("FIRST", str(first)).replace("KEPT", str(kept_bytes)).replace("run(", f"{name}(")


_RUN = """typedef struct { s64 rows, n, threads; char **places; } job;
static void share(void *given) {
    job *of = given;
    int (*number)(void) = (int (*)(void))of->places[FIRST + 4], (*team)(void) = (int (*)(void))of->places[FIRST + 5];
    s64 each = (of->rows + of->threads - 1) / of->threads;
    if (of->n == 1) each = (each + 63) / 64 * 64; /* elements, in lines of the cache */
    for (s64 k = number(); k * each < of->rows; k += team())
        part(k * each, k * each + each < of->rows ? k * each + each : of->rows, of->places, of->n,
             of->places[FIRST] + k * KEPT * of->n);
}
int run(s64 rows, char **places) {
    job whole = { rows, (s64)places[FIRST + 1], (s64)places[FIRST + 2], places };
    if (whole.threads < 2) part(0, rows, places, whole.n, places[FIRST]);
    else ((void (*)(void (*)(void *), void *, unsigned, unsigned))places[FIRST + 3])(share, &whole, whole.threads, 0);
    return 0;
}
"""
