"""Libraries of custom operators in a build: judged, copied, and asked which operators they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from aotc.spec.providers import CPU
from aotc.spec.target import CustomOps, Target

if TYPE_CHECKING:
    import onnx


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


# In the worker.


def operators_by_library(
    model: onnx.ModelProto, libraries: Mapping[str, Path]
) -> dict[str, list[str]]:
    """By a library's name, the operators of `model` that are its own, as `domain::op_type`.

    Each library is asked by graphs of one node.  Raises AOTC-I106 if one cannot be registered, or
    if they cannot be registered together.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    from aotc.graph.view import every_node, op_of
    from aotc.providers.ort import ort_errors, ort_message, ort_text

    known = {(schema.domain, schema.name) for schema in native.get_all_operator_schema()}
    known |= {(function.domain, function.name) for function in model.functions}
    wanted = {
        op_of(node): (node.domain, node.op_type)
        for node in every_node(model)
        if (node.domain, node.op_type) not in known
    }
    versions = {each.domain: each.version for each in model.opset_import}

    def has(library: Path, domain: str, op: str) -> bool:
        try:
            _open_node(domain, op, versions.get(domain, 1), [library])
        except ort_errors() as error:
            return "is not a registered function/op" not in ort_text(error)
        return True

    found = {
        name: sorted(word for word, (domain, op) in wanted.items() if has(library, domain, op))
        for name, library in libraries.items()
    }
    try:
        _open_node("", "RandomNormal", 18, list(libraries.values()), shape=[1])
    except ort_errors() as error:
        raise AotcError(
            "AOTC-I106",
            "ONNX Runtime cannot register these libraries of custom operators together",
            where=", ".join(library.name for library in libraries.values()),
            found=ort_message(error),
        ) from None
    return found


def _open_node(
    domain: str, op: str, version: int, libraries: Sequence[Path], **attributes: Any
) -> None:
    """Create a session of one node without inputs, with `libraries` alone."""
    import onnx

    from aotc.providers.ort import import_onnxruntime, new_session_options

    node = onnx.helper.make_node(op, [], ["out"], domain=domain, **attributes)
    graph = onnx.helper.make_graph([node], "asked", [], [onnx.ValueInfoProto(name="out")])
    opsets = {"": 18, domain: version}
    asked = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*each) for each in opsets.items()],
        ir_version=9,
    )
    options = new_session_options(libraries, refusal="AOTC-I106")
    import_onnxruntime().InferenceSession(asked.SerializeToString(), options, providers=[CPU])


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
