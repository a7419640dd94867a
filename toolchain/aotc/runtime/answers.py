"""Answers of two artifacts to the same inputs: both are run, or what ships with them is compared.

An artifact is run only if it verifies, as it is loaded.  Golden outputs are data: of any artifact
they are read, each with the digest that its manifest states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.session.worker_pool import Workers
from aotc.spec.answers import SameCalls
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison, OutputError
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Fixture, Value
from aotc.spec.precision import ParitySpec, Tolerance
from aotc.spec.profile import profile_of
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, TrustedKey
from aotc.spec.versions import stated_id
from aotc.trust.container import Container
from aotc.trust.opening import copy_files

if TYPE_CHECKING:
    pass

_JOBS: Final = "aotc.runtime.rehearsal_jobs"
_NEEDED: Final = ("numpy", "onnxruntime")


@record(kw_only=False)
class Side:
    """One of two artifacts: open, and how it is loaded.

    `staged` is the request of `open_staged` for one that was just built, None for any other, which
    must be signed as this host trusts by default, or by one of `signers`.  A plain `model` is run
    as it is; its manifest says no more than its file.
    """

    path: Path
    container: Container
    manifest: Manifest
    artifact_id: str
    staged: Json = None
    signers: tuple[Anchor, ...] = ()
    model: Path | None = None


def interface_difference(
    inputs: Sequence[Value], outputs: Sequence[Value], earlier: Manifest
) -> str:
    """In words, an input or output that is not as in `earlier`: by name, type or rank; else ""."""
    kinds = (("input", inputs, earlier.inputs), ("output", outputs, earlier.outputs))
    for kind, now, then in kinds:
        known = {value.name: value for value in then}
        for name in sorted({value.name for value in now} ^ known.keys()):
            return f"{kind} {name!r} is {'new' if name not in known else 'gone'}"
        for value in now:
            here, there = _form(value), _form(known[value.name])
            if here != there:
                return f"{kind} {value.name!r} is {here}, and was {there}"
    return ""


def _form(value: Value) -> str:
    rank = "" if value.shape is None else f" of rank {len(value.shape)}"
    return f"{value.kind} {value.dtype}{rank}"


def same_calls(
    a: Side,
    b: Side,
    start: Callable[[], Workers] | None,
    work: Path,
    *,
    strict: bool,
    made: Callable[[Path], Sequence[Json]] | None = None,
) -> SameCalls:
    """Both artifacts on the inputs of A's fixtures, or of B's if A has none.

    With `strict` by the narrower tolerance of the two, else by the wider one; without it, B is also
    compared with A's golden outputs, which is all where A cannot be run.  Where nothing can be run,
    golden outputs to equal inputs are compared.  `work` is a folder for files, and `start` gives
    workers, once something is run (None: nothing is).  Where neither has a fixture, `made` writes
    inputs into a folder.
    """
    if a.artifact_id == b.artifact_id:
        return SameCalls(how="one-id")
    source = a if a.manifest.fixtures else b
    if not source.manifest.fixtures and made is None:
        return SameCalls(how="none", reason="neither has a fixture")
    why = _why_nothing_runs() if start is not None else "nothing is run"
    if start is not None and not why:
        why = _why_not_verified(a, b) if strict else ""
        attempts = [(_loading(a), _loading(b))] if not why else []
        if not strict and source is a:
            attempts.append((None, _loading(b)))
        calls: Sequence[Json] = ()
        if attempts and source.manifest.fixtures:
            calls = _copied(a, b, work / "fixtures")
        elif attempts and made is not None:
            calls = made(work / "fixtures")
        workers = start() if attempts else None
        for number, sides in enumerate(attempts):
            tolerance = original_tolerance(a.manifest, ParitySpec())
            place = work / f"run-{number}"
            found = _run(sides, calls, workers, place, tolerance, strict=strict)
            if found.how == "ran" and not source.manifest.fixtures:
                return replace(found, reason="neither has a fixture, so inputs were made")
            if found.how != "none":
                return found if found.how == "ran" else replace(found, reason=why)
            why = found.reason
    if a.model is not None or b.model is not None:
        # A model has no golden outputs.
        return SameCalls(how="none", reason=why)
    return _golden(a, b, why, work)


def _why_nothing_runs() -> str:
    missing = [name for name in _NEEDED if not _is_installed(name)]
    return f"nothing is run without the extra cpu ({' and '.join(missing)})" if missing else ""


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _why_not_verified(a: Side, b: Side) -> str:
    """Which of two artifacts is not run, as nobody whom this user trusts signed it; "" for none."""
    # A build imports nothing that judges what it makes.
    from aotc.trust.gate import require_signer
    from aotc.trust.policy.host_trust import resolve

    for name, side in (("A", a), ("B", b)):
        if side.model is not None:
            continue
        try:
            require_signer(side.container, resolve(remember=False))
        except AotcError as error:
            return f"{name} is not run, as it does not verify: {error.code} {error.what}"
    return ""


def _loading(side: Side) -> Json:
    # A job has a working directory of its own.
    if side.model is not None:
        return {"model": str(side.model.absolute())}
    path = side.path if stated_id(side.path) is not None else side.path.absolute()
    return {
        # By the digest that a tag had when it was opened.
        "artifact": side.container.place if side.container.origin else str(path),
        "staged": side.staged,
        "keys": [encode(each) for each in side.signers if isinstance(each, TrustedKey)],
        "identities": [encode(each) for each in side.signers if isinstance(each, TrustedIdentity)],
    }


def _copied(a: Side, b: Side, folder: Path) -> list[Json]:
    """The fixtures of A in files, or of B if A has none; raises as `copy_files` does."""
    side = a if a.manifest.fixtures else b
    copy_files(side.container, side.manifest, _paths(side.manifest.fixtures), folder)
    excluded: dict[str, list[str]] = {}
    for fixture in (*a.manifest.fixtures, *b.manifest.fixtures):
        excluded.setdefault(fixture.name, []).extend(fixture.excluded_variants)
    return [
        {
            "name": fixture.name,
            "sizes": dict(fixture.sizes),
            "inputs": {each.name: str(folder / each.path) for each in fixture.inputs},
            "outputs": {each.name: str(folder / each.path) for each in fixture.outputs},
            "golden": side is a,
            "excluded": excluded[fixture.name],
        }
        for fixture in side.manifest.fixtures
    ]


def _paths(fixtures: Iterable[Fixture]) -> list[str]:
    return [each.path for fixture in fixtures for each in (*fixture.inputs, *fixture.outputs)]


def _run(
    sides: tuple[Json, Json],
    calls: Sequence[Json],
    workers: Workers | None,
    work: Path,
    tolerance: Tolerance,
    *,
    strict: bool,
) -> SameCalls:
    assert workers is not None
    request = {
        "a": sides[0],
        "b": sides[1],
        "calls": list(calls),
        "strict": strict,
        "of_originals": encode(tolerance),
    }
    try:
        found = workers.run(f"{_JOBS}:answer_both", request, folder=work, where="the answers").value
    except AotcError as error:
        return SameCalls(how="none", reason=error.line())
    return decode(SameCalls, found)


# Golden outputs: what the original models answered when the artifacts were built.


def original_tolerance(manifest: Manifest, parity: ParitySpec) -> Tolerance:
    """How far two runtimes may be apart on the original model, whatever a variant computes in."""
    source = manifest.source
    if source.quantized:
        return parity.quantized
    halves = {value.dtype for value in (*manifest.inputs, *manifest.outputs)}
    is_half = source.half_precision or halves & {"float16", "bfloat16"}
    return parity.float16 if is_half else parity.float32


def _golden(a: Side, b: Side, why: str, work: Path) -> SameCalls:
    """Golden outputs to the same inputs; `why` both were not run."""
    digests = [{each.path: each.sha256 for each in side.manifest.files} for side in (a, b)]
    there = {_inputs_of(fixture, digests[1]): fixture for fixture in b.manifest.fixtures}
    pairs = [
        (fixture, there[inputs])
        for fixture in a.manifest.fixtures
        if (inputs := _inputs_of(fixture, digests[0])) in there
    ]
    if not pairs:
        more = "" if why.startswith("neither") else "; their golden outputs are to other inputs"
        return SameCalls(how="none", reason=f"{why}{more}")
    different = [
        (one, other)
        for one, other in pairs
        if _digests_of(one, digests[0]) != _digests_of(other, digests[1])
    ]
    same = tuple(
        Comparison(
            fixture=one.name,
            sizes=dict(one.sizes),
            outputs=tuple(
                OutputError(output=each.name, max_abs=0.0, max_rel=0.0) for each in one.outputs
            ),
        )
        for one, other in pairs
        if (one, other) not in different
    )
    if different and not _is_installed("numpy"):
        reason = "their golden outputs have other bytes, and comparing them needs the extra cpu"
        return SameCalls(how="none", reason=reason)
    try:
        compared = _golden_comparisons(a, b, different, work) if different else ()
    except AotcError as error:
        return SameCalls(how="none", reason=f"{why}; {error.line()}")
    return SameCalls(how="golden", reason=why, calls=(*same, *compared))


def _golden_comparisons(
    a: Side, b: Side, pairs: Sequence[tuple[Fixture, Fixture]], work: Path
) -> tuple[Comparison, ...]:
    from aotc.graph import values
    from aotc.session.parity import compare

    folders = work / "a", work / "b"
    for side, folder, fixtures in zip((a, b), folders, zip(*pairs, strict=True), strict=True):
        copy_files(side.container, side.manifest, _paths(fixtures), folder)
    tolerance = original_tolerance(a.manifest, profile_of(a.manifest).parity)

    def read(folder: Path, fixture: Fixture) -> dict[str, object]:
        return {
            each.name: values.load(folder / each.path, refusal="AOTC-G014")
            for each in fixture.outputs
        }

    found = []
    for one, other in pairs:
        expected, actual = read(folders[0], one), read(folders[1], other)
        errors = tuple(
            compare(value, actual.get(name), tolerance, name) for name, value in expected.items()
        )
        found.append(Comparison(fixture=one.name, sizes=dict(one.sizes), outputs=errors))
    return tuple(found)


def _inputs_of(fixture: Fixture, digests: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((each.name, digests[each.path]) for each in fixture.inputs)


def _digests_of(fixture: Fixture, digests: Mapping[str, str]) -> dict[str, str]:
    return {each.name: digests[each.path] for each in fixture.outputs}
