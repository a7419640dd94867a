"""Jobs in a fresh process on an artifact that is about to be published: judge it, load it, run it.

The folder is the build's own, which no other user may write, so it is loaded from there and not
from a copy in the store.  Everything else is as in `verify` and `load`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.graph import values
from aotc.runtime.loading import load as load_artifact
from aotc.runtime.loading import open_stored
from aotc.runtime.model import Model
from aotc.runtime.store.entries import hold
from aotc.runtime.store.user_store import StoredArtifact
from aotc.session.parity import compare
from aotc.session.sessions import create_session, run
from aotc.spec.answers import SameCalls
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison
from aotc.spec.precision import OutputGate, ParitySpec, Tolerance
from aotc.spec.providers import CPU
from aotc.spec.target import Target
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, TrustedKey
from aotc.spec.variant import Optimization, SessionSpec, Variant
from aotc.trust.compatibility import error_of, judge, probe_host
from aotc.trust.container import FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate
from aotc.trust.policy.host_trust import Trust

# At which a plain model is run, the first that has kernels for it.
_LEVELS: Final[tuple[Optimization, ...]] = ("disable", "basic", "extended")


def gate(request: Json) -> Json:
    """Steps 1 to 9 of the gate, reading every byte; returns refusals as data.

    At least one variant must fit a described target.  On this host, each variant in `ran` must fit;
    others were not run, as their manifest says.
    """
    try:
        authentic = _authenticate(request, every_byte=True)
    except AotcError as error:
        return _refusals(error)
    manifest = authentic.manifest
    if request["target"] is not None:
        judgement = judge(manifest, decode(Target, request["target"]))
        reasons = [error_of(refusal) for refusal in judgement.refusals]
        return {"refusals": [reason.to_dict() for reason in reasons]}
    verdicts = judge(manifest, probe_host(manifest, *_libraries(request))).variants
    return {
        "refusals": [
            error_of(reason).to_dict()
            for verdict in verdicts
            if verdict.name in request["ran"]
            for reason in verdict.reasons
        ]
    }


def load(request: Json) -> Json:
    """Load the `variants`, which are of one kind, and run the fixtures; refusals as data."""
    try:
        model = open_staged(request, request["variants"])
        model.warm()
    except AotcError as error:
        return _refusals(error)
    return {"refusals": [], "fixtures": model.report.fixtures}


def open_staged(request: Json, variants: Sequence[str] | None) -> Model:
    """The `variants` loaded from the staged folder as `load` does; None: those that suit this host.

    The build has read every byte, so digests are not checked.  Otherwise raises as `load` does.
    """
    started = time.perf_counter()
    authentic = _authenticate(request, every_byte=False)
    folder = Path(request["artifact"])
    entry_hold = hold(folder)
    if entry_hold is None:
        raise AotcError("AOTC-R999", "the staged artifact no longer exists", where=str(folder))
    stored = StoredArtifact(
        folder=folder / PAYLOAD,
        authentic=authentic,
        from_store=False,
        seconds=time.perf_counter() - started,
        hold=entry_hold,
        hashed=False,
    )
    return open_stored(stored, variants, *_libraries(request))


def answer_both(request: Json) -> Json:
    """Load A and B, run both on every call, and compare; A may be None, and each a plain model.

    Unless `strict`, B is compared with the outputs in the calls as well, where no variant that is
    loaded was left out of what is judged by them.
    """
    calls: list[Comparison] = []
    golden: list[Comparison] = []
    left_out: list[str] = []
    with ExitStack() as stack:
        opened: list[Model | _Original | None] = []
        for name in ("a", "b"):
            try:
                side = request[name]
                opened.append(None if side is None else _entered(stack, side))
            except AotcError as error:
                reason = f"{name.upper()} cannot be run here: {error.code} {error.what}"
                return encode(SameCalls(how="none", reason=reason))
        one, other = opened
        assert other is not None
        loaded = [each for each in opened if each is not None]
        known = decode(Tolerance, request["of_originals"])
        tolerance, gates = _judge_of(loaded, known, strict=request["strict"])

        def compared(call: Json, expected: Mapping[str, values.Data]) -> Comparison:
            errors = tuple(
                compare(value, found[output], tolerance, output, gates.get(output))
                for output, value in expected.items()
            )
            return Comparison(fixture=call["name"], sizes=call["sizes"], outputs=errors)

        for call in request["calls"]:
            inputs = {name: values.load(Path(path)) for name, path in call["inputs"].items()}
            name = "B"
            try:
                found = other.run(inputs)
                name = "A"
                expected = one.run(inputs) if one is not None else None
            except AotcError as error:
                left_out.append(f"{call['name']}: {name} refuses it, {error.code} {error.what}")
                continue
            if expected is not None:
                calls.append(compared(call, expected))
            names = {variant.name for each in loaded for variant in each.variants}
            if not request["strict"] and call["golden"] and names.isdisjoint(call["excluded"]):
                outputs = {
                    name: values.load(Path(path), refusal="AOTC-G014")
                    for name, path in call["outputs"].items()
                }
                golden.append(compared(call, outputs))
    reason = "" if calls or golden else f"no input was judged for both: {'; '.join(left_out)}"
    return encode(
        SameCalls(
            how="ran" if calls else "ran-b" if golden else "none",
            reason=reason,
            calls=tuple(calls),
            golden=tuple(golden),
            left_out=tuple(left_out),
        )
    )


class _Original:
    """A plain model: as references run, without optimizations if there are kernels, on a thread."""

    variants: tuple[Variant, ...] = ()

    def __init__(self, model: Path) -> None:
        refusals: list[AotcError] = []
        for level in _LEVELS:
            spec = SessionSpec(optimization=level, threads=1)
            try:
                self._session = create_session(model, spec, providers=(CPU,), weights_folder=None)
                return
            except AotcError as error:
                refusals.append(error)
        raise refusals[0]

    def run(self, inputs: Mapping[str, values.Data]) -> dict[str, values.Data]:
        """Its outputs by name; raises AOTC-R005."""
        names = [each.name for each in self._session.get_outputs()]
        return dict(zip(names, run(self._session, inputs, names), strict=True))


def _entered(stack: ExitStack, side: Json) -> Model | _Original:
    """One of the two, open until the stack is left."""
    if "model" in side:
        return _Original(Path(side["model"]))
    return stack.enter_context(_opened(side))


def _opened(side: Json) -> Model:
    if side["staged"] is not None:
        return open_staged(side["staged"], None)
    anchors: tuple[Anchor, ...] = (
        *decode(tuple[TrustedKey, ...], side["keys"]),
        *decode(tuple[TrustedIdentity, ...], side["identities"]),
    )
    try:
        if anchors:
            return _loaded(side["artifact"], Trust.of(anchors))
    except AotcError as error:
        if not error.code.startswith("AOTC-G"):
            raise
    return _loaded(side["artifact"], None)


def _loaded(artifact: str, trust: Trust | None) -> Model:
    return load_artifact(artifact, trust=trust, warm_up=False, unsafe_no_trust_state=True)


def _judge_of(
    models: Sequence[Model | _Original], of_originals: Tolerance, *, strict: bool
) -> tuple[Tolerance, Mapping[str, OutputGate]]:
    """The narrowest or widest tolerance of the loaded variants, and the gates beside it."""
    parities = [variant.parity for model in models for variant in model.variants]
    judged = [
        (each.tolerance or getattr(ParitySpec(), each.arithmetic), each.gates) for each in parities
    ]
    if not judged:
        return of_originals, {}
    chosen = min if strict else max
    return chosen(judged, key=lambda each: (each[0].rtol, each[0].atol))


def _authenticate(request: Json, *, every_byte: bool) -> AuthenticArtifact:
    anchors: tuple[Anchor, ...] = (
        *decode(tuple[TrustedKey, ...], request["keys"]),
        *decode(tuple[TrustedIdentity, ...], request.get("identities", [])),
    )
    with FolderContainer(Path(request["artifact"])) as container:
        return authenticate(container, anchors, files_to_read=None if every_byte else lambda _: ())


def _libraries(request: Json) -> tuple[dict[str, Path], tuple[Path, ...]]:
    """Those of plugins, and those of custom operators."""
    plugins = {name: Path(path) for name, path in request["libraries"].items()}
    return plugins, tuple(Path(path) for path in request["custom_ops"])


def _refusals(error: AotcError) -> Json:
    return {"refusals": [refusal.to_dict() for refusal in (error, *error.also)]}
