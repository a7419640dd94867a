"""Libraries of custom operators in a build: read, judged and copied, before one is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.failures import fix_for, system_message
from aotc.base.files.names import file_name
from aotc.base.records import record
from aotc.host.custom_op_libraries import (
    CANNOT_READ,
    ENTRY_POINT,
    LibraryFacts,
    NotALibrary,
    abi_of,
    copy_library,
    python_abi,
    read_facts,
)
from aotc.spec.payload import Finding
from aotc.spec.profile import CustomOpsSpec, Profile
from aotc.spec.target import CustomOps, Target


@record
class StagedLibrary:
    """A library that was judged: what the artifact says of it, and the build's own copy.

    `glibc` is the version that it needs ("": any).
    """

    described: CustomOps
    file: Path
    glibc: str


StagedLibraries = tuple[StagedLibrary, ...]


def stage_custom_ops(
    profile: Profile, target: Target, host: Target, folder: Path
) -> StagedLibraries:
    """The profile's libraries, copied to `folder`, which is made; of equal ones the first.

    Nothing of a library runs here.  Raises AOTC-I100 (cannot be read), I101 (no shared library),
    I102 (for another machine or Python), I103 (no such symbol), I104 (needs further files), I105
    (other digest than the profile states).
    """
    if not profile.custom_ops:
        return ()
    folder.mkdir()
    staged: dict[str, StagedLibrary] = {}
    for index, spec in enumerate(profile.custom_ops):
        library = _staged(spec, folder / str(index), (host, target))
        staged.setdefault(library.described.sha256, library)
    return tuple(staged.values())


def _staged(spec: CustomOpsSpec, folder: Path, machines: Sequence[Target]) -> StagedLibrary:
    path = Path(spec.library)
    name = file_name(path.name)
    folder.mkdir()
    copy = folder / name
    try:
        digest, size = copy_library(path, copy)
        facts = read_facts(copy)
    except OSError as error:
        raise AotcError(
            "AOTC-I100",
            f"{CANNOT_READ}: {system_message(error)}",
            where=str(path),
            fix=fix_for(error),
        ) from None
    except NotALibrary as error:
        raise AotcError(
            "AOTC-I101",
            "this is no shared library of Linux",
            where=str(path),
            expected="an ELF file of type DYN with its table of symbols",
            found=str(error),
        ) from None
    if spec.sha256 is not None and spec.sha256 != digest:
        raise AotcError(
            "AOTC-I105",
            "the library of custom operators is another one than the profile states",
            where=str(path),
            expected=f"sha256 {spec.sha256}",
            found=f"sha256 {digest}",
        )
    abi = _required_abi(facts, path.name)
    _require_fit(facts, abi, machines, str(path))
    return StagedLibrary(
        described=CustomOps(
            name=name,
            sha256=digest,
            size=size,
            path=f"custom_ops/sha256-{digest}/{name}" if spec.ship else None,
            python=abi,
        ),
        file=copy,
        glibc=facts.glibc,
    )


def _required_abi(facts: LibraryFacts, name: str) -> str:
    """The ABI in the file's name; without one this Python's, if the library calls Python."""
    stated = abi_of(name)
    if stated == "abi3":
        return ""
    return stated or (python_abi() if facts.needs_python else "")


def _require_fit(facts: LibraryFacts, abi: str, machines: Sequence[Target], where: str) -> None:
    for machine in machines:
        if facts.architecture != machine.architecture:
            raise AotcError(
                "AOTC-I102",
                "the library of custom operators is for another architecture",
                where=where,
                expected=f"{machine.architecture}, of {machine.name}",
                found=facts.architecture,
            )
    if abi and abi != python_abi():
        raise AotcError(
            "AOTC-I102",
            "the library of custom operators is for another Python",
            where=where,
            expected=python_abi(),
            found=abi,
        )
    if not facts.registers:
        raise AotcError(
            "AOTC-I103",
            f"the library does not export {ENTRY_POINT}",
            where=where,
            expected=f"a function {ENTRY_POINT} in the table of dynamic symbols",
        )
    if further := (*facts.needed, *facts.folders):
        raise AotcError(
            "AOTC-I104",
            "the library would have the loader look for files that nobody named",
            where=where,
            expected="what every process with ONNX Runtime has: the libraries of C and C++",
            found=", ".join(further)[:300],
        )


def unused_libraries(
    staged: StagedLibraries, operators: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    """AOTC-I107 for each library that none of the model's operators is from."""
    return tuple(
        Finding(
            code="AOTC-I107", what="no operator of the model is its own", where=each.described.name
        )
        for each in staged
        if not operators.get(each.described.sha256)
    )
