"""Folders of --xla_dump_to on the command line: what is in them, and snapshots that run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xla_torch import cli, parse_hlo
from xla_torch.proto.schema import message_class

HLO = "HloModule m\n\nENTRY e {\n  a = f32[4] parameter(0)\n  ROOT b = f32[4] negate(a)\n}\n"


def snapshot(result: list[float]) -> bytes:
    module = message_class("HloModuleProto").FromString(parse_hlo(HLO).to_hlo_proto())
    proto = message_class("HloSnapshot")(execution_platform="cpu")
    proto.hlo.hlo_module.CopyFrom(module)
    for literal, values in ((proto.arguments.add(), [1, 2, 3, 4]), (proto.result, result)):
        literal.shape.CopyFrom(module.computations[0].instructions[0].shape)
        literal.f32s.extend(values)
    return proto.SerializeToString()


def test_show_lists_modules_and_stages_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("module_0001.jit_f.cpu_after_optimizations.txt", "module_0001.jit_f.before_optimizations.txt",
                 "module_0001.jit_f.0002.simplification.after_dce.before_cse.txt", "module_0003.jit_g.before_optimizations.txt"):
        (tmp_path / name).write_text(HLO)
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text("BufferAssignment:\nallocation 0")
    (tmp_path / "module_0004.jit_h.before_optimizations.hlo.pb").write_bytes(parse_hlo(HLO).to_hlo_proto())
    assert cli.main(["show", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] if line.startswith(" ") else line for line in lines] == [
        "module 0001 jit_f", "before_optimizations", "0002.simplification.after_dce.before_cse", "cpu_after_optimizations",
        "module 0003 jit_g", "before_optimizations", "module 0004 jit_h", "before_optimizations"]
    assert "an HLO proto" in lines[-1]


def test_an_empty_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["show", str(tmp_path)]) == 2
    assert "no program is in this folder" in capsys.readouterr().err


@pytest.mark.parametrize(("result", "messages"), [([-1, -2, -3, -4], "the same bits"), ([-1, -2, -3, -4.5], "at most 0.5")])
def test_run_replays_a_snapshot(result: list[float], messages: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "snapshot.pb"
    path.write_bytes(snapshot(result))
    assert cli.main(["run", str(path), "--save", str(tmp_path / "out.npz")]) == 0
    assert messages in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["out0"], [-1, -2, -3, -4])


def test_diff_compares_two_programs_and_the_stages_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, second = tmp_path / "module_0001.f.before_optimizations.txt", tmp_path / "module_0001.f.after_optimizations.txt"
    first.write_text(HLO)
    second.write_text(HLO.replace("negate", "abs"))
    assert cli.main(["diff", str(first), str(first)]) == 0
    assert "the same bits as module_0001.f.before" in capsys.readouterr().out
    assert cli.main(["diff", str(tmp_path)]) == 1
    messages = capsys.readouterr().out
    assert "before_optimizations -> after_optimizations" in messages
    assert "out0  at most" in messages
    assert cli.main(["diff", str(first)]) == 2


BEFORE, AFTER = "before_optimizations", "cpu_after_optimizations"
ABS, TWO = HLO.replace("negate", "abs"), HLO.replace("f32[4]", "f32[2]")
FOLDERS = {  # the files of both folders, the exit status, what is said
    "equal, of other numbers": ({f"1.f.{BEFORE}": HLO, f"1.f.{AFTER}": HLO}, {f"7.f.{BEFORE}": HLO, f"7.f.{AFTER}": HLO}, 0,
                                [f"f {BEFORE}: equal: 2 and 2 instructions", f"f {AFTER}: equal"]),
    "one stage differs": ({f"1.f.{BEFORE}": HLO, f"1.f.{AFTER}": HLO}, {f"1.f.{BEFORE}": HLO, f"1.f.{AFTER}": ABS}, 1,
                          [f"f {BEFORE}: equal", f"f {AFTER}: differs: 2 and 2 instructions", "%b = f32[4] abs"]),
    "twice a module of this name": ({f"1.f.{BEFORE}": HLO, f"2.f.{BEFORE}": ABS}, {f"3.f.{BEFORE}": HLO, f"9.f.{BEFORE}": ABS}, 0,
                                    [f"f {BEFORE}: equal", f"f (2) {BEFORE}: equal"]),
    "only in one": ({f"1.f.{BEFORE}": HLO, f"2.g.{BEFORE}": HLO}, {f"1.f.{BEFORE}": HLO, f"2.h.{BEFORE}": HLO}, 1,
                    [f"g {BEFORE}: only in", f"h {BEFORE}: only in"]),
    "other parameters": ({f"1.f.{BEFORE}": HLO}, {f"1.f.{BEFORE}": TWO}, 1, ["the parameters are"]),
    "broken": ({f"1.f.{BEFORE}": HLO}, {f"1.f.{BEFORE}": HLO.replace("(a)", "(z)")}, 2, ["not compared"]),
    "empty": ({f"1.f.{BEFORE}": HLO}, {}, 2, ["no program is in this folder"]),
}


@pytest.mark.parametrize(("a", "b", "status", "messages"), FOLDERS.values(), ids=FOLDERS.keys())
def test_diff_of_two_folders(a: dict[str, str], b: dict[str, str], status: int, messages: list[str], tmp_path: Path,
                             capsys: pytest.CaptureFixture[str]):
    for folder, files in (("a", a), ("b", b)):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / f"module_000{name}.txt").write_text(text)
    assert cli.main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == status
    found = "".join(capsys.readouterr())
    assert all(words in found for words in messages), found


def test_diff_of_files_exits_as_diff_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, text in (("a", HLO), ("b", ABS), ("c", HLO.replace("negate(a)", "multiply(a, a)")), ("d", "nothing")):
        (tmp_path / name).write_text(text)
    paths = {name: str(tmp_path / name) for name in "abcd"}
    wide = ["--tolerance", "1e6"]
    for first, second, more, status in (("a", "a", [], 0), ("a", "b", [], 1), ("b", "c", wide, 0), ("a", "d", [], 2)):
        assert cli.main(["diff", paths[first], paths[second], *more]) == status, (first, second)
    capsys.readouterr()
    assert cli.main(["diff", paths["a"], str(tmp_path)]) == 2
    assert "diff cannot compare a folder and a file" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["show", "code", "grad"])
def test_other_verbs_take_snapshots(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "snapshot.pb").write_bytes(snapshot([0, 0, 0, 0]))
    assert cli.main([verb, str(tmp_path / "snapshot.pb")]) == 0
    assert capsys.readouterr().out
