"""From an untrusted artifact to a model that runs: verify, check, open, place, warm up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError, missing_package
from aotc.base.interruptions import Interrupted, stop_if_interrupted, uninterrupted
from aotc.base.records import replace
from aotc.base.registry import Deferred
from aotc.host.nvidia import missing_gpu
from aotc.runtime.listener import LoadedModel, LoadedVariant
from aotc.runtime.reporting import Load
from aotc.runtime.routing import choose, spec_of
from aotc.runtime.store.system_store import take
from aotc.runtime.store.user_store import StoredArtifact
from aotc.session.device.cuda_place import CudaPlace
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.profile import profile_of
from aotc.spec.providers import CAPTURING
from aotc.spec.reports import VariantVerdict
from aotc.spec.variant import Variant
from aotc.trust.compatibility import judge, probe_host
from aotc.trust.gate import CompatibleArtifact, check_compatibility, remember_release
from aotc.trust.policy.host_trust import Trust, resolve

if TYPE_CHECKING:
    from aotc.runtime import model as models
else:
    # With numpy, which loads beside the hashing.
    models = Deferred("aotc.runtime.model")


if missing_gpu():
    # First: its BLAS starts threads that spin for some 50 ms, while what follows leaves cores idle.
    # Where there is a GPU, its context takes longer than all imports, and is begun before this one.
    import numpy as np  # noqa: F401


# Refusals of a variant on this host that may not concern another variant.
_VARIANT_REFUSALS: Final = frozenset({"AOTC-P001", "AOTC-P002", "AOTC-P003", "AOTC-C013"})


@uninterrupted
def load(
    path: str | Path,
    *,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    variant: str | Sequence[str] | None = None,
    threads: int | None = None,
    store: str | Path | None = None,
    trust_store: bool = False,
    warm_up: bool | Sequence[str] = True,
    capture_first: Sequence[Mapping[str, int]] | None = None,
    record: str | Path | None = None,
    record_bytes: int = 16 << 20,
    plugins: Mapping[str, str | Path] | None = None,
    custom_ops: Sequence[str | Path] | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    rerun_fixtures: bool = False,
    device: int = 0,
    stream: int | None = None,
    name: str | None = None,
) -> models.Model:
    """Load a signed artifact; what was verified is what is loaded.

    1. Verify the artifact while it is copied into the store, or verify the store's copy again; in a
       system-wide store, which this process cannot change, everything but the digests.
    2. Check the requirements of its variants against this host, and choose those to load.
    3. Create their sessions from the store's files, in parallel.
    4. Compare the observed placements with the promised ones.
    5. Run the fixtures: they warm up the sessions, and must match the golden outputs.

    `path` is a folder, a packed file, `sha256-<id>` of an artifact in a store, or `oci://…` of one
    in a registry, which is pulled into the store unless that has it; a tag is asked for each time,
    and a digest that the store has loads where the registry does not answer, too.  `trust` is a
    trust policy or a file of public keys, `key` one public key, and `channel` what a policy is
    evaluated for.  `unsafe_no_trust_state` remembers nothing of what a policy accepts, for hosts
    where no file can be kept, so that older policies and releases may be accepted later.

    `variant` names one of the profile's variants, for all of its buckets, or some buckets.
    `threads` is the number per operator (None: one per core).  `store` is the store's folder
    (None: a system-wide one that has the artifact, else this user's), and `trust_store` accepts a
    copy in a system-wide store as it was verified at install, even if this process could change it.
    `warm_up` may name the variants for step 5; `ready` is true once all are warm.  `rerun_fixtures`
    runs all fixtures in step 5; by default one is enough of those that matched when this user
    loaded the artifact before.  `capture_first` names sizes, as `[{"batch": 8}]` does: CUDA graphs
    of other sizes are captured behind the load, one at a time between calls, and their calls run
    without one until then (None: all are captured before `load` returns, and no call waits for
    one).  `report` tells which are captured, and `findings` what failed.  `device` is the index of
    the GPU that CUDA uses, and `stream` the handle of a stream of it on which all is to run (None:
    one of the model's own).

    `record` is a file to which the shapes of requests are appended, up to `record_bytes`; by
    default $AOTC_RECORD_SHAPES.  `plugins` are libraries of your own execution providers, by ONNX
    Runtime's name of the provider; by default $AOTC_PLUGINS (`NAME=PATH`, separated as in PATH).
    `custom_ops` are the libraries of custom operators that the artifact requires and does not ship;
    by default $AOTC_CUSTOM_OPS (paths, separated as in PATH).  `name` is what logs, spans and
    metrics call the model (None: the name in its manifest).

    Raises the gate's refusals (AOTC-G, AOTC-C), AOTC-I019, I020, I027, R006, R007, R008, R016,
    R028, C013, P001 to P004 and N003; R024, R025 and M004 about captured graphs and the device.
    """
    libraries = {name: Path(path) for name, path in (plugins or {}).items()}
    operators = tuple(Path(path) for path in custom_ops or ())
    imports, placed = EngineImports(), CudaPlace(index=device, stream=stream)

    def take_stored(reads: Callable[[Manifest], Collection[str]]) -> StoredArtifact:
        return take(path, trusted, reads=reads, store=store, trust_store=trust_store)

    def reads(promised: Manifest) -> Collection[str]:
        verdicts, likely = _judged(promised, variant, libraries, operators)
        imports.begin(likely, placed.begin, plugins=libraries)
        # The next step hashes these files.
        return _files_of(promised, _may_load(promised, verdicts, likely, variant)) if likely else ()

    with Load(path, name) as told, ExitStack() as opened:
        opened.push(imports.end_if_interrupted)
        # 1.
        with told.stage("verify"):
            trusted = resolve(
                trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state
            )
            stored = take_stored(reads)
        opened.callback(stored.hold.close)
        # 2.
        with told.stage("choose"):
            compatible, chosen = _choose_variants(stored, variant, libraries, operators)
            if not _all_hashed(stored, compatible, chosen, variant):
                # A policy, or another probe of this host, led to another choice than expected.
                stored.hold.close()
                stored = take_stored(lambda promised: [entry.path for entry in promised.files])
                opened.callback(stored.hold.close)
                compatible, chosen = _choose_variants(stored, variant, libraries, operators)
            manifest = stored.authentic.manifest
            # Budgets and fallback are in it; a malformed profile must be refused here.
            profile_of(manifest)
        with told.stage("import"):
            # A load that has no ONNX Runtime must not change the trust state.
            open_model = imports.end().open_model
        remember_release(stored.authentic)
        earlier_findings: list[Finding] = []
        while True:
            stop_if_interrupted()
            try:
                ready: models.Model = open_model(
                    stored,
                    compatible,
                    chosen,
                    threads,
                    libraries,
                    operators,
                    earlier_findings,
                    record,
                    record_bytes,
                    told=told,
                    rerun_fixtures=rerun_fixtures,
                    placed=placed,
                )
                break
            except AotcError as error:
                other = None if variant is not None else _without_kind(manifest, compatible, chosen)
                if error.code not in _VARIANT_REFUSALS or other is None:
                    raise
                names = ", ".join(kind.name for kind in chosen)
                earlier_findings.append(
                    Finding(code="AOTC-P009", what=error.line(), where=f"variant {names}")
                )
                compatible = other
                chosen = choose(manifest, compatible.variants, None)
                # The runners that were closed have closed their device.
                placed = CudaPlace(index=device, stream=stream)
        # 5.
        opened.callback(ready.close)
        loaded = _loaded(told, stored, compatible, ready, stands_in=variant is None)
        ready.telemetry.begin(loaded)
        if warm_up:
            stop_if_interrupted()
            with told.stage("warm-up"):
                ready.warm(None if warm_up is True else warm_up, capture_first=capture_first)
        told.done(loaded)
        # What is open is the model's from here on.
        opened.pop_all()
    return ready


# Of a variant that does not fit this host, or failed there, in whose place another was loaded.
_STANDS_IN: Final = frozenset({"AOTC-C010", "AOTC-P009"})


def _loaded(
    told: Load,
    stored: StoredArtifact,
    compatible: CompatibleArtifact,
    model: models.Model,
    *,
    stands_in: bool,
) -> LoadedModel:
    """What is told of a model; `stands_in`: whether another variant than the best is a fallback."""
    report, decision = model.report, stored.authentic.decision
    other = stands_in and any(finding.code in _STANDS_IN for finding in report.findings)
    release = decision.release if decision is not None else None
    return LoadedModel(
        told.name or model.manifest.name,
        report.artifact_id,
        release.value if release is not None else "",
        compatible.verdict,
        [
            LoadedVariant(
                variant.name,
                variant.providers[0],
                variant.precision,
                load.nodes,
                load.misplaced_nodes,
                ("variant",) * other + ("placement",) * bool(load.misplaced_nodes),
            )
            for variant, load in zip(model.variants, report.variants, strict=True)
        ],
        profile_of(model.manifest).telemetry.latency_buckets,
    )


def open_stored(
    stored: StoredArtifact,
    variant: Sequence[str] | None,
    libraries: Mapping[str, Path],
    custom_ops: Sequence[Path],
) -> models.Model:
    """Steps 2 to 4 for variants of one kind, of an artifact that was verified in place.

    With `variant` None the variants that suit this host best are chosen.  `libraries` are those of
    plugins, by ONNX Runtime's name of the provider, and `custom_ops` those of operators that are
    not shipped.  Raises as these steps of `load` do.
    """
    compatible, chosen = _choose_variants(stored, variant, libraries, custom_ops)
    open_model = EngineImports().end().open_model
    opened: models.Model = open_model(
        stored,
        compatible,
        chosen,
        None,
        libraries,
        custom_ops,
        (),
        None,
        0,
        told=Load(stored.folder, None),
    )
    return opened


def _without_kind(
    manifest: Manifest, compatible: CompatibleArtifact, chosen: Sequence[Variant]
) -> CompatibleArtifact | None:
    """What remains without the kind of `chosen`; None if nothing can take its place.

    Only the fallback policy alternate-variant allows it.
    """
    if not _allows_alternates(manifest):
        return None
    kinds = {spec_of(variant) for variant in chosen}
    names = {variant.name for variant in manifest.variants if spec_of(variant) not in kinds}
    others = tuple(verdict for verdict in compatible.variants if verdict.name in names)
    if not any(verdict.runs for verdict in others):
        return None
    return replace(compatible, variants=others, verdict="degraded")


def _allows_alternates(manifest: Manifest) -> bool:
    return profile_of(manifest).fallback.policy == "alternate-variant"


def _choose_variants(
    stored: StoredArtifact,
    wanted: str | Sequence[str] | None,
    libraries: Mapping[str, Path],
    custom_ops: Sequence[Path],
) -> tuple[CompatibleArtifact, tuple[Variant, ...]]:
    """Step 2: what runs on this host, and which of it to load."""
    manifest = stored.authentic.manifest
    compatible = check_compatibility(stored.authentic, probe_host(manifest, libraries, custom_ops))
    return compatible, choose(manifest, compatible.variants, wanted)


def _all_hashed(
    stored: StoredArtifact,
    compatible: CompatibleArtifact,
    chosen: Sequence[Variant],
    wanted: str | Sequence[str] | None,
) -> bool:
    """Whether all files that may be read were hashed, or need not be."""
    checked, manifest = stored.authentic.hashed_files, stored.authentic.manifest
    if checked is None or not stored.hashed:
        return True
    return checked.issuperset(
        _files_of(manifest, _may_load(manifest, compatible.variants, chosen, wanted))
    )


def _may_load(
    manifest: Manifest,
    verdicts: Sequence[VariantVerdict],
    chosen: Sequence[Variant],
    wanted: str | Sequence[str] | None,
) -> Sequence[Variant]:
    """`chosen`, or all that run if another kind may take their place."""
    if not _allows_alternates(manifest) or wanted is not None:
        return chosen
    runs = {verdict.name for verdict in verdicts if verdict.runs}
    return [variant for variant in manifest.variants if variant.name in runs]


def _files_of(manifest: Manifest, chosen: Sequence[Variant]) -> frozenset[str]:
    tensors = (tensor for f in manifest.fixtures for tensor in (*f.inputs, *f.outputs))
    files = (path for variant in chosen for path in variant.files)
    return frozenset((*files, *(tensor.path for tensor in tensors)))


def _judged(
    manifest: Manifest,
    wanted: str | Sequence[str] | None,
    plugins: Mapping[str, Path],
    custom_ops: Sequence[Path],
) -> tuple[Sequence[VariantVerdict], Sequence[Variant]]:
    """The verdicts of all variants, and those that this host loads; nothing if none runs."""
    try:
        verdicts = judge(manifest, probe_host(manifest, plugins, custom_ops)).variants
        return verdicts, choose(manifest, verdicts, wanted)
    except AotcError:
        return (), ()


# Imports what a session needs in a separate thread, while a load hashes files.
#
# Importing numpy and ONNX Runtime takes longer than verifying an artifact, and hashing releases the
# interpreter's lock. So does CUDA, which takes as long to make its context, in a thread of its own.


_OPENING = "aotc.runtime.session_opening"


class EngineImports:
    """The imports of one load: call `begin` at any time, and `end` before creating a session."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._error: Exception | None = None

    def begin(
        self,
        variants: Sequence[Variant] = (),
        begin_device: Callable[[], object] | None = None,
        *,
        plugins: Collection[str] = (),
    ) -> None:
        """Import in another thread, once; does nothing if everything is imported already.

        `variants` are those that will be loaded: if CUDA runs one, its libraries are loaded as
        well, unless it is among the user's own `plugins`, and `begin_device` is called in a third
        thread if one captures graphs.  What fails there is tried again, and refused, where it is
        needed.
        """
        if self._threads or _OPENING in sys.modules:
            return
        name = CAPTURING.ort_name
        on_cuda = name not in plugins and any(name in variant.providers for variant in variants)
        if begin_device is not None and any(
            variant.cuda_graphs is not None for variant in variants
        ):
            # First: imports would keep the interpreter from it.
            beside = Thread(target=_without_errors, args=(begin_device,), name="aotc-device")
            self._threads.append(beside)
        self._threads.append(Thread(target=self._run, args=(on_cuda,), name="aotc-imports"))
        for thread in self._threads:
            thread.start()

    def end_if_interrupted(self, kind: type[BaseException] | None, *_: object) -> None:
        """At the end of a load: an interrupted one leaves no thread behind."""
        if kind is Interrupted:
            for thread in self._threads:
                thread.join()

    def end(self) -> ModuleType:
        """The module `aotc.runtime.session_opening`, once ONNX Runtime is imported as well.

        Raises AOTC-I019 if a package is not installed, and I020 if two that exclude each other are.
        """
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return _import()

    def _run(self, on_cuda: bool) -> None:
        try:
            _import()
        except Exception as error:
            self._error = error
            return
        if on_cuda:
            _without_errors(_load_libraries)


def _load_libraries() -> None:
    from aotc.providers.named_backends import library_of, prepare

    if library_of(CAPTURING.ort_name) is None:
        prepare(CAPTURING.ort_name)


def _without_errors(function: Callable[[], object]) -> None:
    with suppress(Exception):
        function()


def _import() -> ModuleType:
    try:
        # Before ONNX Runtime, which enters it by one of its parts: a thread that imports numpy at
        # that moment would find half of it.
        import numpy as np  # noqa: F401

        from aotc.providers.ort import import_onnxruntime

        import_onnxruntime()
        from aotc.runtime import session_opening
    except ModuleNotFoundError as error:
        raise missing_package(error, "aotc.load", only_loads=True) from None
    return session_opening
