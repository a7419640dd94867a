"""Opens the session of a variant, and runs it before the first call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.payload_files import Fixture
from aotc.contract.manifest.served_sizes import served_buckets
from aotc.contract.manifest.variant import Variant
from aotc.contract.precision.parity import ParitySpec
from aotc.contract.results.reports import VariantLoad
from aotc.contract.shapes.bucket_choice import sizes_in_graph
from aotc.contract.shapes.domain import raised_to_buckets
from aotc.engine import session, values
from aotc.engine.padding import Padder
from aotc.engine.parity import compare
from aotc.errors import AotcError
from aotc.runtime import arrays
from aotc.runtime.runners import Runner
from aotc.runtime.warming.capture_sizes import capture_sizes
from aotc.runtime.warming.sized_inputs import inputs_at

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.runtime.accepted_before import AcceptedBefore


def open_variant(
    payload: Path,
    variant: Variant,
    *,
    threads: int | None = None,
    libraries: Mapping[str, Path] | None = None,
    parallel_packing: bool = False,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    profile: Path | None = None,
) -> ort.InferenceSession:
    """The session of one variant, with model and weights in the folder `payload`.

    `parallel_packing` packs the weights on all threads of an operator, which is quicker if no other
    session is created at the same time.  `settings` are options of providers for this process, and
    `profile` begins the path of a profile of its runs.
    Raises AOTC-R008 and AOTC-P004.
    """
    path = payload / variant.model
    return session.create_session(
        # Providers find compiled parts next to a model's file; with bytes, not all do.
        path if has_contexts(variant) else path.read_bytes(),
        variant.session,
        providers=variant.providers,
        # Also stated for the model's own folder: with bytes, ONNX Runtime would use the working
        # directory.
        weights_folder=payload / variant.weights if variant.weights else path.parent,
        context_path=payload / variant.model,
        libraries=libraries,
        threads=threads,
        record_placement=True,
        parallel_packing=parallel_packing,
        settings=settings,
        profile=profile,
    )


def has_contexts(variant: Variant) -> bool:
    """Whether the variant has compiled parts in files next to its model."""
    report = variant.partitioning
    return report is not None and any(part.compiled for part in report.partitions)


def warm(
    runner: Runner,
    variant: Variant,
    manifest: Manifest,
    payload: Path,
    known: AcceptedBefore | None = None,
) -> VariantLoad:
    """Run the fixtures that the variant accepts, padded if necessary, and compare the outputs.

    The dynamic variant runs all of them once; a static one the largest that fits.  If several
    are `known` to have matched under the conditions of this load, only the one with the smallest
    inputs is run.  If none fits, a fixture is resized to the variant's sizes and run, or zeros if
    there is no fixture, and nothing is compared.
    Sizes that the variant captures are captured first.
    Raises AOTC-N003 and AOTC-G014, AOTC-R005 if a fixture fails, and AOTC-R024 and M004 if a size
    cannot be captured.
    """
    padder = Padder(manifest.inputs, manifest.padding)
    started = time.perf_counter()
    first: float | None = None
    capture_sizes(runner, variant, manifest, payload)
    fitting = warmup_fixtures(manifest, variant)
    names = [fixture.name for fixture, _ in fitting]
    # One is run in any case, as a warm-up.
    memory = known if len(fitting) > 1 else None
    matched_before = memory is not None and memory.covers(variant, names)
    for fixture, wanted in [_smallest(fitting, manifest)] if matched_before else fitting:
        seconds = _accept_fixture(runner, payload, fixture, variant, wanted, padder, manifest)
        first = seconds if first is None else first
    if memory is not None and not matched_before:
        memory.record(variant, names)
    if not fitting:
        first = _run_unchecked(runner, manifest, variant, payload)
    return VariantLoad(
        name=variant.name,
        session_seconds=0.0,
        warmup_seconds=time.perf_counter() - started,
        first_run_seconds=first,
        warmed=True,
        accepted=len(fitting),
        accepted_before=len(fitting) - 1 if matched_before else 0,
    )


def warmup_fixtures(
    manifest: Manifest, variant: Variant
) -> list[tuple[Fixture, Mapping[str, int]]]:
    """The fixtures that warm up a variant, each with the sizes to which it is padded."""
    domain = manifest.domain
    routed = any(dim.buckets or dim.pad_from is not None for dim in domain.dims.values())
    if not routed:
        return [(fixture, fixture.sizes) for fixture in manifest.fixtures]
    if not variant.buckets:
        served = served_buckets(manifest, variant)
        fitted = [
            (fixture, sizes_in_graph(domain, served, fixture.sizes))
            for fixture in manifest.fixtures
        ]
        return [(fixture, wanted) for fixture, wanted in fitted if wanted is not None]
    ordered = sorted(manifest.fixtures, key=lambda fixture: -sum(fixture.sizes.values()))
    for fixture in ordered:
        wanted = raised_to_buckets(domain, variant.buckets, fixture.sizes)
        if wanted is not None:
            return [(fixture, wanted)]
    return []


def _smallest(
    fixtures: Sequence[tuple[Fixture, Mapping[str, int]]], manifest: Manifest
) -> tuple[Fixture, Mapping[str, int]]:
    """The fixture whose inputs have the fewest bytes, with the sizes that it is padded to."""
    sizes = {entry.path: entry.size for entry in manifest.files}
    return min(fixtures, key=lambda item: sum(sizes[tensor.path] for tensor in item[0].inputs))


def _accept_fixture(
    runner: Runner,
    payload: Path,
    fixture: Fixture,
    variant: Variant,
    wanted: Mapping[str, int],
    padder: Padder,
    manifest: Manifest,
) -> float:
    """Run one fixture and compare it with its golden outputs; returns the seconds of the run."""
    inputs = arrays.read_fixture(payload, fixture)
    _check_sizes(inputs, fixture, manifest)
    if wanted != fixture.sizes:
        inputs = padder.pad(inputs, fixture.sizes, wanted).inputs
    names = [tensor.name for tensor in fixture.outputs]
    started = time.perf_counter()
    found = runner.run(inputs, names, wanted)
    seconds = time.perf_counter() - started
    if wanted != fixture.sizes:
        found = padder.crop(names, found, fixture.sizes)
    parity = variant.parity
    tolerance = parity.tolerance or getattr(ParitySpec(), parity.arithmetic)
    for tensor, actual in zip(fixture.outputs, found, strict=True):
        golden = values.load(payload / tensor.path, refusal="AOTC-G014")
        gate = parity.gates.get(tensor.name)
        error = compare(golden, actual, tolerance, tensor.name, gate)
        if not error.passed:
            raise AotcError(
                "AOTC-N003",
                f"output {tensor.name!r} differs from the golden output: {error.reason}",
                where=f"fixture {fixture.name}, variant {variant.name}",
                expected=f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"
                if gate is None
                else "what its gate states",
                found=f"max abs error {error.max_abs:.3g}",
            )
    return seconds


def _check_sizes(inputs: Mapping[str, Any], fixture: Fixture, manifest: Manifest) -> None:
    """Raise AOTC-G014 if a fixture's arrays do not have the sizes that it states."""
    for value in manifest.inputs:
        shape = getattr(inputs.get(value.name), "shape", None)
        if value.kind != "tensor" or value.shape is None or shape is None:
            continue
        wanted = tuple(d if isinstance(d, int) else fixture.sizes.get(d) for d in value.shape)
        if len(wanted) != len(shape) or any(
            wanted_size not in (None, size) for wanted_size, size in zip(wanted, shape, strict=True)
        ):
            raise AotcError(
                "AOTC-G014",
                "a fixture's arrays do not have the sizes that it states",
                where=f"fixture {fixture.name}, input {value.name}",
                expected=str(wanted),
                found=str(shape),
            )


def _run_unchecked(
    runner: Runner, manifest: Manifest, variant: Variant, payload: Path
) -> float | None:
    """Seconds of a run whose outputs are not compared; None if nothing could be run."""
    sizes = (variant.domain or manifest.domain).corner("opt")
    inputs = inputs_at(manifest, sizes, payload)
    if inputs is None:
        return None
    started = time.perf_counter()
    try:
        runner.run(inputs, None, sizes)
    except AotcError as error:
        # A model may not accept zeros.
        if error.code != "AOTC-R005" or manifest.fixtures:
            raise
        return None
    return time.perf_counter() - started
