"""Memory that is left, of the machine and of its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.host.cpu import available_bytes

MIB = 1 << 20


def files(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    files(tmp_path / "proc", meminfo="MemTotal: 9000 kB\nMemAvailable:    4096 kB\n")
    files(tmp_path / "proc" / "self", cgroup="0::/outer/inner\n")
    return tmp_path / "proc"


def test_without_limits_it_is_the_machines(proc: Path, tmp_path: Path) -> None:
    files(tmp_path / "groups" / "outer" / "inner", memory__max="max\n", memory__current="7\n")
    assert available_bytes(proc, tmp_path / "groups") == 4 * MIB


def test_the_tightest_group_counts_and_files_that_were_read_are_free(
    proc: Path, tmp_path: Path
) -> None:
    outer = tmp_path / "groups" / "outer"
    files(outer, memory__max=f"{3 * MIB}\n", memory__current=f"{2 * MIB}\n")
    files(outer / "inner", memory__max=f"{8 * MIB}\n", memory__current=f"{MIB}\n")
    assert available_bytes(proc, tmp_path / "groups") == MIB
    files(outer, memory__stat=f"anon 5\ninactive_file {MIB // 2}\n")
    assert available_bytes(proc, tmp_path / "groups") == MIB * 3 // 2
    files(outer, memory__current=f"{5 * MIB}\n")
    assert available_bytes(proc, tmp_path / "groups") == 0


def test_an_unknown_amount_is_none(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path) == 0


def test_this_machine_has_some() -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("this system has no /proc/meminfo")
    assert available_bytes() > 0
