"""Files that are no library of custom operators, or not this one: a code each, nothing left."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Command
from custom_operators import REGISTERS, compiled, other_architecture, text_model
from made_models import save

from aotc.host.custom_op_libraries import python_abi


def refused(aotc: Command, library: Path, code: str, *words: str) -> dict[str, str]:
    save(text_model(), aotc.folder / "m.onnx")
    found = aotc("build", "m.onnx", "-o", "out.aotc", "--custom-ops", library, *words).refused(
        code, 3
    )
    assert not (aotc.folder / "out.aotc").exists()
    assert aotc.leftovers() == []
    return found


def _loop(path: Path) -> None:
    path.symlink_to(path.with_name("other.so"))
    path.with_name("other.so").symlink_to(path)


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "a link to nothing": lambda path: path.symlink_to("none.so"),
    "a circle of links": _loop,
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read(aotc: Command, kind: str) -> None:
    library = aotc.folder / "lib.so"
    UNREADABLE[kind](library)
    assert refused(aotc, library, "AOTC-I100")["where"] == str(library)


def test_text_and_nothing_are_no_libraries(aotc: Command) -> None:
    library = aotc.folder / "lib.so"
    for data in (b"", b"int main(void);\n" * 10):
        library.write_bytes(data)
        refused(aotc, library, "AOTC-I101")


def test_a_cut_library(aotc: Command) -> None:
    library = compiled(aotc.folder / "lib.so")
    library.write_bytes(library.read_bytes()[:-1000])
    refused(aotc, library, "AOTC-I101")


def test_another_architecture(aotc: Command) -> None:
    found = refused(aotc, other_architecture(compiled(aotc.folder / "lib.so")), "AOTC-I102")
    assert found["found"] != found["expected"].partition(",")[0] == os.uname().machine


def test_another_python(aotc: Command) -> None:
    library = compiled(aotc.folder / "_lib.cpython-39-x86_64-linux-gnu.so")
    found = refused(aotc, library, "AOTC-I102")
    assert (found["expected"], found["found"]) == (python_abi(), "cpython-39")


def test_a_target_of_another_architecture(aotc: Command) -> None:
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    (aotc.folder / "t.yaml").write_text(
        f"schema: aotc.target/1\nname: other\narchitecture: {other}\n"
    )
    words = ("--target", "t.yaml", "--allow-unproven")
    found = refused(aotc, compiled(aotc.folder / "lib.so"), "AOTC-I102", *words)
    assert found["expected"] == f"{other}, of other"


def test_without_the_symbol(aotc: Command) -> None:
    library = compiled(aotc.folder / "lib.so", "int other(void) { return 0; }")
    assert "RegisterCustomOps" in refused(aotc, library, "AOTC-I103")["what"]


def test_one_that_needs_further_files(aotc: Command) -> None:
    library = compiled(aotc.folder / "lib.so", REGISTERS, "-Wl,-rpath,/opt/none")
    assert refused(aotc, library, "AOTC-I104")["found"] == "/opt/none"


def profile(folder: Path, library: Path, digest: str) -> str:
    (folder / "p.yaml").write_text(
        "schema: aotc.profile/1\nname: p\n"
        f"custom_ops: [{{library: {library.name}, sha256: {digest}}}]\n"
    )
    return "p.yaml"


def test_another_digest_than_the_profile_states(aotc: Command) -> None:
    library = compiled(aotc.folder / "lib.so")
    named = profile(aotc.folder, library, hashlib.sha256(b"before").hexdigest())
    save(text_model(), aotc.folder / "m.onnx")
    found = aotc("build", "m.onnx", "--profile", named).refused("AOTC-I105", 3)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    assert found["found"] == f"sha256 {digest}"
    # Of the right digest it is registered; the operator is not its own.
    named = profile(aotc.folder, library, digest)
    assert aotc("build", "m.onnx", "--profile", named).refused("AOTC-I009", 3)
    assert aotc.leftovers() == []


def test_one_that_fails_as_it_registers(aotc: Command) -> None:
    """It answers with a status that is no status, and the process that asked it dies of it."""
    crashes = "int RegisterCustomOps(void *a, void *b) { return *(volatile int *)0; }"
    refused(aotc, compiled(aotc.folder / "lib.so", crashes), "AOTC-I013")


def test_one_that_ends_the_process_as_it_registers(aotc: Command) -> None:
    ends = "void exit(int); int RegisterCustomOps(void *a, void *b) { exit(1); return 1; }"
    refused(aotc, compiled(aotc.folder / "lib.so", ends), "AOTC-I013")


def test_one_whose_functions_are_missing(aotc: Command) -> None:
    wants = f"extern int nowhere(void); {REGISTERS} int (*f)(void) = nowhere;"
    found = refused(aotc, compiled(aotc.folder / "lib.so", wants), "AOTC-I106")
    assert "nowhere" in found["found"]


def test_what_is_missing_is_told_with_the_option(aotc: Command) -> None:
    save(text_model(), aotc.folder / "m.onnx")
    found = aotc("build", "m.onnx").refused("AOTC-I009", 3)
    assert "BertTokenizer" in found["what"]
    assert "ai.onnx.contrib" in found["what"]
    assert "--custom-ops" in found["fix"]
