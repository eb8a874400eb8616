"""What SECURITY.md says: to read and run a program of somebody else opens no file, socket or process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

import numpy as np

import xla_torch

TEXT = '''HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] sine(x)
  ROOT t = (s32[], f32[4]) tuple(next, y)
}
more {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4] parameter(0), metadata={op_name="__import__('os').system('true')" source_file="/etc/passwd"}
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(t), condition=more, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}'''
MLIR = 'func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {%0 = stablehlo.add %a, %a : tensor<4xf32> return %0 : tensor<4xf32>}'


def every(text, mlir):
    program = xla_torch.parse_hlo(text)
    loaded = [program, xla_torch.from_hlo_proto(program.to_hlo_proto()), xla_torch.from_stablehlo(mlir)]
    for each in loaded:
        each.run_numpy(np.ones(4, 'f4'))
        each.to_hlo_text()


every(TEXT, MLIR)  # what is imported at its first use is there now
seen, watching = [], False


def hook(event, arguments):
    if watching and event.split('.')[0] in ('open', 'socket', 'subprocess', 'os', 'ctypes', 'import', 'exec', 'pickle', 'shutil'):
        code = arguments[0] if event == 'exec' else None
        if code is None or not code.co_filename.startswith(('<eval_with_key>', '<string>')):
            seen.append((event, str(arguments)[:200]))


sys.addaudithook(hook)
watching = True
every(TEXT.replace('constant(3)', 'constant(2)').replace('sine', 'cosine'), MLIR.replace('add', 'multiply'))
with open('/dev/null'):  # that the hook sees it
    pass
watching = False
print([event for event, _ in seen if event != 'open'], [arguments for event, arguments in seen if event == 'open'])
"""


def test_programs_of_others_open_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("[] [\"('/dev/null'"), ran.stdout
    assert ran.stdout.count("(") == 1, ran.stdout
