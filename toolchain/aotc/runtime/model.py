"""From a verified artifact to a model that answers: `load` and `ReadyModel`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from aotc.contract.manifest import Finding, Fixture, Manifest, Value, Variant
from aotc.contract.parsing import nearest
from aotc.contract.profile import ParitySpec
from aotc.contract.report import LoadReport
from aotc.contract.target import Target
from aotc.engine import placement, session, values
from aotc.engine.ortvalue import needs_ortvalues
from aotc.engine.parity import compare
from aotc.errors import AotcError
from aotc.runtime.guards import Guard
from aotc.runtime.routing import choose
from aotc.runtime.store import Store
from aotc.runtime.telemetry import Telemetry
from aotc.signing.keys import resolve_trust
from aotc.verification.compatibility import judge
from aotc.verification.gate import check_compatibility
from aotc.verification.host import probe

if TYPE_CHECKING:
    import onnxruntime as ort


class ReadyModel:
    """A model that was verified, loaded, placed as promised and accepted.

    `run` may be called from many threads.  Use it as a context manager, or call `close`.
    """

    def __init__(
        self, manifest: Manifest, variant: Variant, opened: ort.InferenceSession, report: LoadReport
    ) -> None:
        """`opened` is the session of `variant`; `load` makes all four."""
        self.manifest = manifest
        self.variant = variant
        self.telemetry = Telemetry()
        self._session: ort.InferenceSession | None = opened
        self._report = report
        self._guard = Guard(manifest, variant.domain)
        self._outputs = tuple(value.name for value in manifest.outputs)
        self._ortvalues = needs_ortvalues(opened)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The model's inputs."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The model's outputs."""
        return self.manifest.outputs

    @property
    def report(self) -> LoadReport:
        """What loading cost, and the first request once there was one."""
        first = self.telemetry.first_request_seconds
        return dataclasses.replace(self._report, first_request_seconds=first)

    def findings(self) -> tuple[Finding, ...]:
        """What was noticed at load, and the dims that left the proven range in calls so far."""
        dims = self.manifest.domain.dims
        return (
            *self._report.findings,
            *(
                Finding(
                    code="AOTC-S010",
                    what=f"{count} of {self.telemetry.calls} calls outside of the proven "
                    f"{dims[name].text() if name in dims else 'rank'}",
                    where=name,
                )
                for name, count in self.telemetry.outside().items()
            ),
        )

    def run(
        self, inputs: Mapping[str, values.Data], outputs: Sequence[str] | None = None
    ) -> dict[str, values.Data]:
        """The named outputs (None: all) for `inputs`, which are arrays of the model's own types.

        Raises AOTC-R001 to R004 and S010 before anything runs, I027 on an unknown output,
        and R005 where ONNX Runtime fails or the model is closed.
        """
        started = time.perf_counter()
        try:
            names = self._output_names(outputs)
            checked = self._guard.check(inputs)
            opened = self._session
            if opened is None:
                raise AotcError("AOTC-R005", "the model is closed", mend="Load it again.")
            found = session.run(opened, checked.inputs, names, ortvalues=self._ortvalues)
        except AotcError as error:
            self.telemetry.reject(error.code)
            raise
        self.telemetry.call(time.perf_counter() - started, checked.outside)
        return dict(zip(names, found, strict=True))

    def _output_names(self, wanted: Sequence[str] | None) -> Sequence[str]:
        if wanted is None:
            return self._outputs
        for name in wanted:
            if name not in self._outputs:
                close = nearest(name, self._outputs)
                raise AotcError(
                    "AOTC-I027",
                    f"the model has no output {name!r}"
                    + (f"; did you mean {close!r}?" if close else ""),
                    expected=", ".join(self._outputs),
                    found=name,
                )
        return wanted

    def close(self) -> None:
        """Free the session; calls that are under way still answer."""
        self._session = None

    def __enter__(self) -> ReadyModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load(
    path: str | Path,
    *,
    trust: str | Path | None = None,
    key: str | Path | None = None,
    variant: str | None = None,
    threads: int | None = None,
    store: str | Path | None = None,
    warm_up: bool = True,
) -> ReadyModel:
    """Load a signed artifact; what was verified is what is loaded.

    1. Verify the artifact while it is copied into the store, or verify the store's copy again.
    2. Check the requirements of its variants against this host, and choose one.
    3. Create the session from the store's files.
    4. Compare the observed placement with the promised one.
    5. Run the fixtures, each once: they warm the session up, and must match the golden outputs.

    `threads` of one operator (None: one for each core); `store` is the store's folder.
    `warm_up=False` leaves step 5 out, and the report then says that no fixture ran.
    Raises the gate's refusals (AOTC-G, AOTC-C), AOTC-I019, I020, I027, R006, R007, R008,
    P003, P004 and N003.
    """
    # The import is no part of the load times.
    session.import_onnxruntime()
    # 1.
    stored = Store(store).install(
        Path(path),
        resolve_trust(trust, key),
        reads=lambda promised: _files_read(promised, variant),
    )
    manifest = stored.authentic.manifest
    # 2.
    host = _host(manifest)
    compatible = check_compatibility(stored.authentic, host)
    chosen = choose(manifest, compatible.variants, variant)
    # 3.
    started = time.perf_counter()
    opened = open_variant(stored.folder, chosen, threads=threads)
    created = time.perf_counter()
    # 4.
    check_placement(opened, chosen)
    # 5.
    if warm_up:
        for fixture in manifest.fixtures:
            accept(opened, stored.folder, fixture, chosen)
    report = LoadReport(
        artifact_id=stored.authentic.id,
        variant=chosen.name,
        verdict=compatible.verdict,
        from_store=stored.from_store,
        verify_seconds=stored.seconds,
        session_seconds=created - started,
        warmup_seconds=time.perf_counter() - created,
        fixtures=len(manifest.fixtures) if warm_up else 0,
        findings=compatible.findings,
    )
    return ReadyModel(manifest, chosen, opened, report)


def open_variant(
    payload: Path, variant: Variant, *, threads: int | None = None
) -> ort.InferenceSession:
    """The session of one variant, its model and weights in the folder `payload`.

    Raises AOTC-G014 where the manifest asks for session options that it may not have,
    AOTC-R008 and AOTC-P004.
    """
    unknown = sorted(set(variant.session.config) - session.MANIFEST_KEYS)
    if unknown:
        raise AotcError(
            "AOTC-G014",
            "the manifest has session options that no artifact may have",
            where=f"variant {variant.name}",
            expected="known session config keys",
            found=", ".join(unknown),
        )
    return session.create_session(
        (payload / variant.model).read_bytes(),
        variant.session,
        providers=variant.providers,
        weights_folder=payload / variant.weights if variant.weights else None,
        threads=threads,
        record_placement=True,
    )


def _host(manifest: Manifest) -> Target:
    return probe(gpus=any(each.device != "cpu" for each in manifest.variants))


def _files_read(manifest: Manifest, wanted: str | None) -> frozenset[str]:
    """Payload files that loading on this host reads; none where no variant runs."""
    try:
        chosen = choose(manifest, judge(manifest, _host(manifest)).variants, wanted)
    except AotcError:
        return frozenset()
    tensors = (each for f in manifest.fixtures for each in (*f.inputs, *f.outputs))
    return frozenset((*chosen.files, *(tensor.path for tensor in tensors)))


def check_placement(opened: ort.InferenceSession, variant: Variant) -> None:
    """Raise AOTC-P003 where an observed promise is not kept."""
    if variant.placement.how != "observed":
        return
    lines = placement.differences(variant.placement, placement.observe(opened))
    if lines:
        raise AotcError(
            "AOTC-P003",
            f"{len(lines)} nodes are placed otherwise than promised",
            where=f"variant {variant.name}",
            expected="the placement observed at build",
            found=placement.summary(lines),
        )


def accept(opened: ort.InferenceSession, payload: Path, fixture: Fixture, variant: Variant) -> None:
    """Run one fixture and compare it with its golden outputs; raises AOTC-N003."""
    inputs = {
        tensor.name: values.load(payload / tensor.path, refusal="AOTC-G014")
        for tensor in fixture.inputs
    }
    names = [tensor.name for tensor in fixture.outputs]
    found = session.run(opened, inputs, names)
    parity = variant.parity
    tolerance = parity.tolerance or getattr(ParitySpec(), parity.arithmetic)
    for tensor, actual in zip(fixture.outputs, found, strict=True):
        golden = values.load(payload / tensor.path, refusal="AOTC-G014")
        error = compare(golden, actual, tolerance, tensor.name)
        if not error.passed:
            raise AotcError(
                "AOTC-N003",
                f"output {tensor.name!r} is not the golden one: {error.reason}",
                where=f"fixture {fixture.name}, variant {variant.name}",
                expected=f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}",
                found=f"max abs error {error.max_abs:.3g}",
            )
