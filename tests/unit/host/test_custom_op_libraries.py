"""Libraries of custom operators: what their bytes say, copies of them, and those that are named."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest
from custom_operators import REGISTERS, compiled, other_architecture, real_library

from aotc.base.errors import AotcError
from aotc.host import custom_op_libraries
from aotc.host.custom_op_libraries import (
    NotALibrary,
    abi_of,
    copy_library,
    digests_of,
    python_abi,
    read_facts,
    stated_custom_ops,
)

CALLS_PYTHON = f"extern void Py_DecRef(void *); {REGISTERS} void f(void) {{ Py_DecRef(0); }}"
HIDDEN = f'__attribute__((visibility("hidden"))) {REGISTERS}'


def test_a_library_that_registers(tmp_path: Path) -> None:
    facts = read_facts(compiled(tmp_path / "good.so"))
    assert facts.architecture == os.uname().machine
    assert facts.registers
    assert (facts.needs_python, facts.needed, facts.folders) == (False, (), ())


@pytest.mark.parametrize("source", ["int other(void) { return 0; }", HIDDEN])
def test_without_the_symbol(tmp_path: Path, source: str) -> None:
    assert not read_facts(compiled(tmp_path / "none.so", source)).registers


def test_a_symbol_that_it_lacks_itself_is_not_its_own(tmp_path: Path) -> None:
    wants = "extern int RegisterCustomOps(int); int f(void) { return RegisterCustomOps(0); }"
    assert not read_facts(compiled(tmp_path / "wants.so", wants)).registers


def test_who_calls_python(tmp_path: Path) -> None:
    assert read_facts(compiled(tmp_path / "python.so", CALLS_PYTHON)).needs_python


def test_what_the_loader_would_look_for(tmp_path: Path) -> None:
    compiled(tmp_path / "libother.so", "int other(void) { return 0; }")
    words = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-lother", "-Wl,-rpath,/opt/none")
    facts = read_facts(compiled(tmp_path / "needs.so", REGISTERS, *words))
    assert facts.needed == ("libother.so",)
    assert facts.folders == ("/opt/none",)


@pytest.mark.parametrize("option", ["--auxiliary", "--filter", "--audit", "--depaudit"])
def test_other_ways_to_name_a_library(tmp_path: Path, option: str) -> None:
    made = compiled(tmp_path / "x.so", REGISTERS, f"-Wl,{option},libaux.so")
    assert read_facts(made).needed == ("libaux.so",)


def test_the_c_library_that_it_needs(tmp_path: Path) -> None:
    source = f'#include <stdio.h>\n{REGISTERS} void f(void) {{ puts("x"); }}'
    assert read_facts(compiled(tmp_path / "puts.so", source)).glibc.startswith("2.")


def test_another_architecture(tmp_path: Path) -> None:
    facts = read_facts(other_architecture(compiled(tmp_path / "other.so")))
    assert facts.architecture in {"x86_64", "aarch64"} - {os.uname().machine}
    data = bytearray((tmp_path / "other.so").read_bytes())
    data[4] = 1
    (tmp_path / "short.so").write_bytes(data)
    assert "32 bits" in read_facts(tmp_path / "short.so").architecture


@pytest.mark.parametrize("data", [b"", b"hello\n", b"\x7fELF", b"PK\x03\x04" * 100])
def test_what_is_no_library(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(NotALibrary):
        read_facts(tmp_path / "x.so")


def test_an_object_file_is_no_library(tmp_path: Path) -> None:
    made = compiled(tmp_path / "x.so", REGISTERS)
    data = bytearray(made.read_bytes())
    data[16] = 1
    made.write_bytes(data)
    with pytest.raises(NotALibrary, match="no shared object"):
        read_facts(made)


def test_a_damaged_library_is_read_or_refused(tmp_path: Path) -> None:
    """Each of its parts cut off, and bytes changed by chance: no other error, and no hang."""
    good = compiled(tmp_path / "good.so").read_bytes()
    chance, place = random.Random(0), tmp_path / "bad.so"
    for number in range(400):
        data = bytearray(good)
        if number % 4 == 0:
            del data[chance.randrange(len(data)) :]
        else:
            # Where the tables are told from, or anywhere.
            end = 64 if number % 4 == 1 else len(data)
            for _ in range(chance.choice((1, 4, 64))):
                data[chance.randrange(end)] = chance.randrange(256)
        place.write_bytes(data)
        try:
            read_facts(place)
        except NotALibrary:
            continue


def test_the_real_library() -> None:
    library = real_library()
    facts = read_facts(library)
    assert (facts.registers, facts.needs_python, facts.needed) == (True, True, ())
    assert abi_of(library.name) == python_abi()


@pytest.mark.parametrize(
    ("name", "abi"),
    [
        ("_x.cpython-311-x86_64-linux-gnu.so", "cpython-311"),
        ("_x.cpython-313t-x86_64-linux-gnu.so", "cpython-313t"),
        ("_x.abi3.so", "abi3"),
        ("libx.so", ""),
        ("libx.so.1", ""),
        ("cpython-311.so", ""),
    ],
)
def test_the_python_in_a_name(name: str, abi: str) -> None:
    assert abi_of(name) == abi


def test_a_copy_is_what_was_hashed(tmp_path: Path) -> None:
    source = tmp_path / "x.so"
    source.write_bytes(b"some bytes")
    (tmp_path / "link.so").symlink_to(source)
    assert copy_library(tmp_path / "link.so", tmp_path / "copy.so") == (
        hashlib.sha256(b"some bytes").hexdigest(),
        10,
    )
    source.write_bytes(b"others")
    assert (tmp_path / "copy.so").read_bytes() == b"some bytes"


def test_what_is_too_large_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_op_libraries, "MOST_BYTES", 9)
    (tmp_path / "x.so").write_bytes(b"some bytes")
    with pytest.raises(NotALibrary):
        copy_library(tmp_path / "x.so", tmp_path / "copy.so")


def test_named_ones_go_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CUSTOM_OPS", f"/a.so{os.pathsep}{os.pathsep}/b.so")
    assert stated_custom_ops() == (Path("/a.so"), Path("/b.so"))
    assert stated_custom_ops([tmp_path / "c.so"]) == (tmp_path / "c.so",)
    monkeypatch.delenv("AOTC_CUSTOM_OPS")
    assert stated_custom_ops() == ()


def test_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    for name in ("pipe.so", "none.so", "."):
        with pytest.raises(AotcError) as caught:
            digests_of([tmp_path / name])
        assert caught.value.code == "AOTC-I001"
