"""Loops of tiny bodies as native code: from HLO to the source of a function in C. No torch in here.

A loop whose body is a few numbers or short vectors costs torch a call for each op and step, hundreds of times what it computes.
Such a loop becomes one function of its carry (`loops.py`), written by rules for elements (`elements.py`) and for arrays
(`arrays.py`, `indexed.py`, `linalg.py`), with names that are all our own: nothing of a program's text stands in it.
`functions.py` has what XLA defines where C would stop or differ, and `compiled.py` hands the source to the system's compiler,
where there is one.
"""
