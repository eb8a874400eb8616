"""The first call of a function of MKL's vector mathematics is made by one thread, before several can make it at once."""

from __future__ import annotations

import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from xla_torch.storage import vector_math

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
OF_TORCH = {"Ln": "log"}
"""The functions that torch calls otherwise than MKL does."""

NAMES = [function.__name__ for function in vector_math.FUNCTIONS]

FORKS = f"""
import os, torch
import xla_torch.runtime.computation
array = torch.rand(512, 512)
for name in {NAMES!r} * 30:
    function = getattr(torch, name)
    if os.fork() == 0:
        torch.set_num_threads(4)
        os._exit(not torch.equal(function(array), function(array)))
    assert os.wait()[1] == 0, name
"""


@pytest.mark.skipif(not torch.backends.mkl.is_available() or not LIBRARY.exists(), reason="torch has no MKL here")
def test_every_function_that_torch_takes_from_mkl_is_called_first():
    with LIBRARY.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
        found = {name.decode() for name in re.findall(rb"\0vm[sd]([A-Z][A-Za-z0-9]*)(?=\0)", library)}
    assert {OF_TORCH.get(name, name.lower()) for name in found} == set(NAMES)


@pytest.mark.slow
def test_the_first_call_on_four_threads_is_as_exact_as_the_second():
    """Without the calls at import one process of 300 differs here, by up to 4,000 ulp."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
