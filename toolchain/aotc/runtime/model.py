"""From a verified artifact to a model that answers: `load` and `ReadyModel`."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from aotc.contract.answers import CallRoute
from aotc.contract.manifest import Finding, Manifest, Value, Variant
from aotc.contract.parsing import nearest
from aotc.contract.report import LoadReport, VariantLoad
from aotc.contract.target import Target
from aotc.engine import session, values
from aotc.engine.ortvalue import needs_ortvalues
from aotc.engine.padding import Padder
from aotc.errors import AotcError
from aotc.runtime.guards import Guard
from aotc.runtime.promises import check_compatibility_strings, check_placement
from aotc.runtime.recorder import ShapeRecorder
from aotc.runtime.routing import Router, choose, spec_of
from aotc.runtime.store import Store
from aotc.runtime.telemetry import Telemetry
from aotc.runtime.warmup import open_variant, warm
from aotc.signing.keys import resolve_trust
from aotc.verification.compatibility import judge
from aotc.verification.gate import check_compatibility
from aotc.verification.host import probe

if TYPE_CHECKING:
    import onnxruntime as ort

# Refusals that speak of sizes: such calls are what coverage is about.
_OF_SIZES = frozenset({"AOTC-R004", "AOTC-R010", "AOTC-S010"})


class ReadyModel:
    """A model that was verified, loaded, placed as promised and accepted.

    `run` may be called from many threads.  Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        manifest: Manifest,
        variants: Sequence[Variant],
        opened: Sequence[ort.InferenceSession],
        report: LoadReport,
        *,
        payload: Path,
        recorder: ShapeRecorder | None = None,
    ) -> None:
        """`opened` are the sessions of `variants`, from the folder `payload`; `load` makes all."""
        self.manifest = manifest
        self.variants = tuple(variants)
        self.payload = payload
        self.telemetry = Telemetry([each.name for each in variants])
        self._sessions: Sequence[ort.InferenceSession] = tuple(opened)
        self._report = report
        self._recorder = recorder
        self._warming = threading.Lock()
        self._guard = Guard(manifest)
        self._router = Router(manifest, self.variants)
        self._padder = Padder(manifest.inputs, manifest.padding)
        self._outputs = tuple(value.name for value in manifest.outputs)
        self._ortvalues = needs_ortvalues(opened[0])

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The model's inputs."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The model's outputs."""
        return self.manifest.outputs

    @property
    def variant(self) -> Variant:
        """The first of the loaded variants."""
        return self.variants[0]

    @property
    def ready(self) -> bool:
        """Whether every loaded variant was warmed up, and the model is not closed."""
        return bool(self._sessions) and all(each.warmed for each in self._report.variants)

    @property
    def report(self) -> LoadReport:
        """What loading cost, and the first request once there was one."""
        first = self.telemetry.first_request_seconds
        return dataclasses.replace(self._report, first_request_seconds=first)

    def findings(self) -> tuple[Finding, ...]:
        """What was noticed at load, and in calls so far.

        These are dims that left the proven range, and requests that could not be recorded.
        """
        dims = self.manifest.domain.dims
        return (
            *self._report.findings,
            *self._unrecorded(),
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

    def _unrecorded(self) -> tuple[Finding, ...]:
        recorder = self._recorder
        if recorder is None or not recorder.lost:
            return ()
        what = f"{recorder.lost} requests could not be recorded"
        return (Finding(code="AOTC-R012", what=what, where=str(recorder.path)),)

    def warm(self, names: Sequence[str] | None = None) -> None:
        """Warm up the loaded variants called `names` (None: all that are not warm yet).

        Raises AOTC-I027 (no such variant is loaded), N003 and R005.
        """
        loaded = [each.name for each in self.variants]
        names = (names,) if isinstance(names, str) else names
        for name in names or ():
            if name not in loaded:
                raise _no_variant(name, loaded)
        with self._warming:
            for index, variant in enumerate(self.variants):
                done = self._report.variants[index]
                if done.warmed if names is None else variant.name not in names:
                    continue
                opened = self._opened(index)
                self._note(index, warm(opened, variant, self.manifest, self.payload))

    def _note(self, index: int, warmed: VariantLoad) -> None:
        loads = list(self._report.variants)
        before = loads[index]
        loads[index] = dataclasses.replace(
            warmed,
            session_seconds=before.session_seconds,
            warmup_seconds=before.warmup_seconds + warmed.warmup_seconds,
        )
        self._report = dataclasses.replace(
            self._report,
            variants=tuple(loads),
            warmup_seconds=sum(each.warmup_seconds for each in loads),
            fixtures=sum(each.accepted for each in loads),
        )

    def run(
        self, inputs: Mapping[str, values.Data], outputs: Sequence[str] | None = None
    ) -> dict[str, values.Data]:
        """The named outputs (None: all) for `inputs`, which are arrays of the model's own types.

        The call goes to the smallest loaded variant that takes it, padded where the profile says
        so, and what padding added to the outputs is cut off again.
        Raises AOTC-R001 to R004, R010, R011 and S010 before anything runs, I027 on an unknown
        output, and R005 where ONNX Runtime fails or the model is closed.
        """
        started = time.perf_counter()
        try:
            names = self._output_names(outputs)
            checked = self._guard.check(inputs)
            route = self._router.route(checked.sizes, checked.outside)
            opened = self._opened(route.variant)
            given, added = 0, 0
            if route.pads:
                arrays, given, added = self._padder.pad(checked.inputs, checked.sizes, route.wanted)
                found = session.run(opened, arrays, names, ortvalues=self._ortvalues)
                found = self._padder.crop(names, found, checked.sizes)
            else:
                given = self._padder.elements(checked.inputs)
                found = session.run(opened, checked.inputs, names, ortvalues=self._ortvalues)
        except AotcError as error:
            self.telemetry.reject(error.code, error.where)
            if self._recorder is not None and error.code in _OF_SIZES:
                meant = self._guard.meant(inputs)
                if meant is not None:
                    self._recorder.record(meant)
            raise
        if self._recorder is not None:
            self._recorder.record({name: checked.inputs[name] for name in self._guard.tensors})
        self.telemetry.call(
            time.perf_counter() - started,
            checked.outside,
            variant=self.variants[route.variant].name,
            cause=route.cause,
            given=given,
            added=added,
        )
        return dict(zip(names, found, strict=True))

    def route(self, inputs: Mapping[str, values.Data]) -> CallRoute:
        """Which variant would take a call, and why; nothing runs and nothing is counted.

        Raises AOTC-R001 to R004, R010, R011 and S010, as `run` does.
        """
        checked = self._guard.check(inputs)
        found = self._router.route(checked.sizes, checked.outside)
        return CallRoute(
            variant=self.variants[found.variant].name,
            cause=found.cause,
            sizes=checked.sizes,
            padded_to=dict(found.wanted) if found.pads else {},
        )

    def _opened(self, index: int) -> ort.InferenceSession:
        opened = self._sessions
        if not opened:
            raise AotcError("AOTC-R005", "the model is closed", mend="Load it again.")
        return opened[index]

    def _output_names(self, wanted: Sequence[str] | None) -> Sequence[str]:
        if wanted is None:
            return self._outputs
        if not wanted:
            raise AotcError(
                "AOTC-I027",
                "no output is asked for",
                expected=", ".join(self._outputs),
                found="an empty list",
                mend="Name some, or pass None for all.",
            )
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
        """Free the sessions and end the record; calls that are under way still answer."""
        self._sessions = ()
        if self._recorder is not None:
            self._recorder.close()

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
    variant: str | Sequence[str] | None = None,
    threads: int | None = None,
    store: str | Path | None = None,
    warm_up: bool | Sequence[str] = True,
    record: str | Path | None = None,
    record_bytes: int = 16 << 20,
    plugins: Mapping[str, str | Path] | None = None,
) -> ReadyModel:
    """Load a signed artifact; what was verified is what is loaded.

    1. Verify the artifact while it is copied into the store, or verify the store's copy again.
    2. Check the requirements of its variants against this host, and choose those to load.
    3. Create their sessions from the store's files, side by side.
    4. Compare the observed placements with the promised ones.
    5. Run the fixtures: they warm the sessions up, and must match the golden outputs.

    `variant` names one of the profile's variants, for all of its buckets, or some buckets.
    `threads` of one operator (None: one for each core); `store` is the store's folder.
    `warm_up` may name the variants for step 5; `ready` is true once all are warm.
    `record` is a file to which the shapes of requests are appended, up to `record_bytes`; else
    $AOTC_RECORD_SHAPES.
    `plugins` are libraries of execution providers of your own, by the name that ONNX Runtime gives
    the provider; else $AOTC_PLUGINS (`NAME=PATH`, separated as in PATH).
    Raises the gate's refusals (AOTC-G, AOTC-C), AOTC-I019, I020, I027, R006, R007, R008,
    C013, P001 to P004 and N003.
    """
    libraries = {name: Path(path) for name, path in (plugins or {}).items()}
    # The import is no part of the load times.
    session.import_onnxruntime()
    # 1.
    stored = Store(store).install(
        Path(path),
        resolve_trust(trust, key),
        reads=lambda promised: _files_read(promised, variant, libraries),
    )
    manifest = stored.authentic.manifest
    # 2.
    compatible = check_compatibility(stored.authentic, _host(manifest, libraries))
    chosen = choose(manifest, compatible.variants, variant)
    noticed = [
        finding
        for each in chosen
        for finding in check_compatibility_strings(manifest, each, libraries)
    ]
    # 3.
    started = time.perf_counter()
    opened, seconds = _open_all(stored.folder, chosen, threads, libraries)
    created = time.perf_counter()
    # 4.
    placed = []
    for each, session_of in zip(chosen, opened, strict=True):
        placing = time.perf_counter()
        noticed += check_placement(session_of, manifest, each)
        placed.append(time.perf_counter() - placing)
    stated = record or os.environ.get("AOTC_RECORD_SHAPES")
    ready = ReadyModel(
        manifest,
        chosen,
        opened,
        LoadReport(
            artifact_id=stored.authentic.id,
            variant=spec_of(chosen[0]) if len(chosen) > 1 else chosen[0].name,
            verdict=compatible.verdict,
            from_store=stored.from_store,
            verify_seconds=stored.seconds,
            session_seconds=created - started,
            warmup_seconds=sum(placed),
            variants=tuple(
                VariantLoad(name=each.name, session_seconds=one, warmup_seconds=other)
                for each, one, other in zip(chosen, seconds, placed, strict=True)
            ),
            findings=(*compatible.findings, *noticed),
        ),
        payload=stored.folder,
        recorder=ShapeRecorder(stated, limit=record_bytes) if stated else None,
    )
    # 5.
    if warm_up:
        ready.warm(None if warm_up is True else warm_up)
    return ready


def _open_all(
    payload: Path,
    variants: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
) -> tuple[list[ort.InferenceSession], list[float]]:
    """Sessions of all variants, and the seconds that each took."""

    def timed(variant: Variant) -> tuple[ort.InferenceSession, float]:
        started = time.perf_counter()
        opened = open_variant(payload, variant, threads=threads, libraries=libraries)
        return opened, time.perf_counter() - started

    if len(variants) == 1:
        done = [timed(variants[0])]
    else:
        with ThreadPoolExecutor(min(len(variants), os.cpu_count() or 1)) as pool:
            done = list(pool.map(timed, variants))
    return [opened for opened, _ in done], [seconds for _, seconds in done]


def _no_variant(name: str, loaded: Sequence[str]) -> AotcError:
    close = nearest(name, tuple(loaded))
    return AotcError(
        "AOTC-I027",
        f"no variant {name!r} is loaded" + (f"; did you mean {close!r}?" if close else ""),
        expected=" or ".join(loaded),
        found=name,
    )


def _host(manifest: Manifest, plugins: Mapping[str, Path]) -> Target:
    return probe(
        gpus=any(each.device != "cpu" for each in manifest.variants),
        digests=any(each.requirements.plugins for each in manifest.variants),
        libraries=tuple(sorted(plugins.items())),
    )


def _files_read(
    manifest: Manifest, wanted: str | Sequence[str] | None, plugins: Mapping[str, Path]
) -> frozenset[str]:
    """Payload files that loading on this host reads; none where no variant runs."""
    try:
        chosen = choose(manifest, judge(manifest, _host(manifest, plugins)).variants, wanted)
    except AotcError:
        return frozenset()
    tensors = (each for f in manifest.fixtures for each in (*f.inputs, *f.outputs))
    files = (path for each in chosen for path in each.files)
    return frozenset((*files, *(tensor.path for tensor in tensors)))
