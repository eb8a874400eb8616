"""A pytest plugin: which opcodes the tests execute, counted where the evaluator evaluates an instruction.

A whole run (`make test`) prints what it executed, and fails where an opcode is left that `UNEXECUTED` gives no reason for, or
where one of `UNEXECUTED` was executed after all. `--opcodes` prints how often each was evaluated, in any run.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest

from support.oracle import HAS_XLA
from xla_torch.lowering.evaluator import Evaluator
from xla_torch.opcodes import OPS

UNEXECUTED: dict[str, str] = {
    "parameter": "its value is the argument: a computation's evaluation begins with it",
}
"""Opcodes that no evaluator is asked for, and why."""

_executed: pytest.StashKey[Counter[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--opcodes", action="store_true", help="print how often each opcode was evaluated")


def pytest_configure(config: pytest.Config) -> None:
    executed = config.stash[_executed] = Counter()
    evaluate = Evaluator.instruction

    @functools.wraps(evaluate)
    def counting(self: Evaluator, instruction: Any, operands: Any) -> Any:
        value = evaluate(self, instruction, operands)
        executed[instruction.opcode] += 1
        return value

    Evaluator.instruction = counting
    config.add_cleanup(lambda: setattr(Evaluator, "instruction", evaluate))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker of xdist has executed."""
    node.config.stash[_executed].update(getattr(node, "workeroutput", {}).get("opcodes", {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config: Any = session.config
    if hasattr(config, "workeroutput"):  # a worker of xdist
        config.workeroutput["opcodes"] = dict(config.stash[_executed])
    elif session.exitstatus == pytest.ExitCode.OK and is_whole(config) and wrong(config.stash[_executed]):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests ran, but for slow ones: `--part` and `--oracle=xla` leave out others, too."""
    option = config.option
    chosen = (option.keyword or option.deselect or option.markexpr not in ("", "not slow") or getattr(option, "lf", False)
              or option.part or option.oracle == "xla")
    return HAS_XLA and config.args_source is config.ArgsSource.TESTPATHS and not chosen and not option.collectonly


def wrong(executed: Counter[str]) -> list[str]:
    """What a whole run must not leave."""
    return [f"{opcode} was executed by no test" for opcode in sorted(OPS.keys() - executed.keys() - UNEXECUTED.keys())] + [
        f"{opcode} was executed, so UNEXECUTED need not excuse it" for opcode in sorted(UNEXECUTED.keys() & executed.keys())]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    executed = config.stash[_executed]
    if not (is_whole(config) or config.option.opcodes):
        return
    terminalreporter.section(f"{len(executed)} of {len(OPS)} opcodes executed")
    if config.option.opcodes:
        terminalreporter.write_line("  ".join(f"{opcode} {executed[opcode]}" for opcode in sorted(executed)))
    for opcode in sorted(OPS.keys() - executed.keys()):
        terminalreporter.write_line(f"not executed: {opcode}: {UNEXECUTED.get(opcode, 'NO TEST EXECUTES IT')}")
    if is_whole(config):
        for line in wrong(executed):
            terminalreporter.write_line(f"FAILED {line}", red=True)
