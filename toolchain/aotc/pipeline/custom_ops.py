"""Libraries of custom operators in a build: judged, copied, and asked which operators they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError
from aotc.base.files.failures import fix_for, system_message
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
        library = _staged(spec, folder / f"{index}.so", (host, target))
        staged.setdefault(library.described.sha256, library)
    return tuple(staged.values())


def _staged(spec: CustomOpsSpec, copy: Path, machines: Sequence[Target]) -> StagedLibrary:
    path = Path(spec.library)
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
    # Control characters would spoil what names it.
    name = path.name.encode("utf-8", "backslashreplace").decode()
    abi = _required_abi(facts, name)
    _require_fit(facts, abi, machines, str(path))
    return StagedLibrary(
        described=CustomOps(
            name="".join(letter if letter.isprintable() else "_" for letter in name),
            sha256=digest,
            size=size,
            path=f"custom_ops/sha256-{digest}.so" if spec.ship else None,
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
    import onnx

    from aotc.graph.view import every_node, op_of
    from aotc.providers.ort import new_session_options
    from aotc.session.sessions import import_onnxruntime, ort_errors, ort_text

    runtime = import_onnxruntime()
    native = runtime.capi.onnxruntime_pybind11_state
    known = {(schema.domain, schema.name) for schema in native.get_all_operator_schema()}
    known |= {(function.domain, function.name) for function in model.functions}
    wanted = {
        op_of(node): (node.domain, node.op_type)
        for node in every_node(model)
        if (node.domain, node.op_type) not in known
    }
    versions = {each.domain: each.version for each in model.opset_import}

    def has(library: Path, domain: str, op: str) -> bool:
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(op, [], ["out"], domain=domain)],
            "asked",
            [],
            [onnx.ValueInfoProto(name="out")],
        )
        opsets = {"": 18, domain: versions.get(domain, 1)}
        asked = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid(*each) for each in opsets.items()],
            ir_version=9,
        )
        try:
            options = new_session_options([library])
            runtime.InferenceSession(
                asked.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except ort_errors() as error:
            return "is not a registered function/op" not in ort_text(error)
        return True

    found = {
        name: sorted(word for word, (domain, op) in wanted.items() if has(library, domain, op))
        for name, library in libraries.items()
    }
    new_session_options(list(libraries.values()), refusal="AOTC-I106")
    return found


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
