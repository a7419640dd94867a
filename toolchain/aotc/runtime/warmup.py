"""Opens the session of a variant, and runs it before the first call: fixtures, captured sizes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.files.ownership import can_check_owners
from aotc.base.interruptions import stop_if_interrupted
from aotc.base.text import MAX_LISTED
from aotc.graph import values
from aotc.graph.allowed_arrays import cut_to_allowed
from aotc.graph.values import Data
from aotc.host.cpu import processor_identity, usable_cores
from aotc.host.probe import probe
from aotc.providers.ort import import_onnxruntime
from aotc.runtime import value_files
from aotc.runtime.runners import Runner
from aotc.runtime.store.entries import acceptance_path
from aotc.session.decisions import Judge
from aotc.session.device.capture_gate import capture_refused
from aotc.session.padding import Padder
from aotc.session.parity import Beside, compare
from aotc.session.sessions import create_session
from aotc.spec.buckets import largest_first, served_buckets, sizes_in_graph
from aotc.spec.codec import Json, ParseError, encode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Fixture
from aotc.spec.precision import ParitySpec
from aotc.spec.providers import CPU
from aotc.spec.reports import VariantLoad
from aotc.spec.shapes import REPEATED, raised_to_buckets, sizes_in_words
from aotc.spec.variant import Variant
from aotc.spec.versions import VERSION

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.session.device.capturing_runner import CapturingRunner


def open_variant(
    payload: Path,
    variant: Variant,
    *,
    threads: int | None = None,
    libraries: Mapping[str, Path] | None = None,
    parallel_packing: bool = False,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    profile: Path | None = None,
    custom_ops: Sequence[Path] = (),
) -> ort.InferenceSession:
    """The session of one variant, with model and weights in the folder `payload`.

    `parallel_packing` packs the weights on all threads of an operator, which is quicker if no other
    session is created at the same time.  `settings` are options of providers for this process, and
    `profile` begins the path of a profile of its runs.  `custom_ops` are libraries to register.
    Raises AOTC-R008, AOTC-R028 and AOTC-P004.
    """
    path = payload / variant.model
    return create_session(
        # Providers find compiled parts next to a model's file; with bytes, not all do.
        path if has_contexts(variant) else path.read_bytes(),
        variant.session,
        providers=variant.providers,
        # Also stated for the model's own folder: with bytes, ONNX Runtime would use the working
        # directory.
        weights_folder=payload / variant.weights if variant.weights else path.parent,
        context_path=path,
        libraries=libraries,
        threads=threads,
        record_placement=True,
        parallel_packing=parallel_packing,
        settings=settings,
        profile=profile,
        custom_ops=custom_ops,
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
    known: AcceptedFixtures | None = None,
    behind: Sequence[Mapping[str, int]] = (),
) -> VariantLoad:
    """Run the fixtures that the variant accepts, padded if necessary, and compare the outputs.

    The dynamic variant runs all of them once; a static one the largest that fits.  If several
    are `known` to have matched under the conditions of this load, only the one with the smallest
    inputs is run.  If none fits, a fixture is resized to the variant's sizes and run, or zeros if
    there is no fixture, and nothing is compared.
    Sizes that the variant captures are captured first, and those `behind` are left, with their
    fixtures, to `capture_behind`; but one fixture is run.
    Raises AOTC-N003 and AOTC-G014, AOTC-R005 if a fixture fails, and AOTC-R024 and M004 if a size
    cannot be captured.
    """
    padder = Padder(manifest.inputs, manifest.padding)
    started = time.perf_counter()
    first: float | None = None
    capture_sizes(runner, variant, manifest, payload, behind)
    every = warmup_fixtures(manifest, variant)
    fitting = [item for item in every if not _is_among(item[1], behind)]
    if every and not fitting:
        fitting = [_smallest(every, manifest)]
    names = [fixture.name for fixture, _ in fitting]
    # One is run in any case, as a warm-up.
    memory = known if len(fitting) > 1 else None
    matched_before = memory is not None and memory.covers(variant, names)
    for fixture, wanted in [_smallest(fitting, manifest)] if matched_before else fitting:
        stop_if_interrupted()
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
        fixtures=len(fitting),
        fixtures_before=len(fitting) - 1 if matched_before else 0,
    )


def warmup_fixtures(
    manifest: Manifest, variant: Variant
) -> list[tuple[Fixture, Mapping[str, int]]]:
    """The fixtures that warm up a variant, each with the sizes to which it is padded."""
    domain = manifest.domain
    fixtures = [each for each in manifest.fixtures if variant.name not in each.excluded_variants]
    routed = any(dim.buckets or dim.pad_from is not None for dim in domain.dims.values())
    if not routed:
        return [(fixture, fixture.sizes) for fixture in fixtures]
    if not variant.buckets:
        served = served_buckets(manifest, variant)
        fitted = [(fixture, sizes_in_graph(domain, served, fixture.sizes)) for fixture in fixtures]
        return [(fixture, wanted) for fixture, wanted in fitted if wanted is not None]
    ordered = sorted(fixtures, key=lambda fixture: -sum(fixture.sizes.values()))
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
    inputs = value_files.read_fixture(payload, fixture)
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
        judged = tensor.name in parity.slices and not fixture.name.endswith(REPEATED)
        beside = Beside(slices=judged)
        decided = parity.decided.get(tensor.name)
        judge = Judge(decided) if decided is not None else None
        error = compare(golden, actual, tolerance, tensor.name, gate, beside, judge)
        if not error.passed:
            raise AotcError(
                "AOTC-N003",
                f"output {tensor.name!r} differs from the golden output: {error.reason}",
                where=f"fixture {fixture.name}, variant {variant.name}",
                expected="what its gate states"
                if gate is not None
                else error.rule or f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}",
                found=error.reason if error.rule else f"max abs error {error.max_abs:.3g}",
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


# Captures the sizes that a variant promises, before its first call.


def captured_behind(
    variant: Variant, first: Sequence[Mapping[str, int]] | None
) -> tuple[Mapping[str, int], ...]:
    """The sizes that a variant captures, the largest first, without those that `first` names.

    One of `first` names all sizes in which its dims are as stated; None names all.
    """
    graphs = variant.cuda_graphs
    if graphs is None or first is None:
        return ()
    return tuple(
        size
        for size in largest_first(graphs.sizes)
        if not any(stated.items() <= size.items() for stated in first)
    )


def require_captured(
    variants: Sequence[Variant], first: Sequence[Mapping[str, int]] | None
) -> None:
    """Raise AOTC-I027 if `first` are no sizes, if one of them names no captured one, or none is.

    Where no variant captures any, as on a host without a GPU, other sizes are not wrong.
    """
    if first is not None and not _are_sizes(first):
        raise AotcError(
            "AOTC-I027",
            "the sizes to capture first are not a list of sizes",
            where="capture_first",
            expected='a list such as [{"batch": 8}]',
            found=repr(first)[:200],
            fix="Pass capture_first=[{DIM: SIZE}].",
        )
    sizes = [size for each in variants if each.cuda_graphs for size in each.cuda_graphs.sizes]
    if first is None or not sizes:
        return
    wrong = [stated for stated in first if not any(stated.items() <= s.items() for s in sizes)]
    if first and not wrong:
        return
    named = "; ".join(map(sizes_in_words, sizes[:MAX_LISTED]))
    raise AotcError(
        "AOTC-I027",
        "no captured size is named",
        where="capture_first",
        expected=named + "; ..." * (len(sizes) > MAX_LISTED),
        found="; ".join(map(sizes_in_words, wrong)) or "an empty list",
        fix="Name sizes that the loaded variants capture.",
    )


def _are_sizes(first: object) -> bool:
    return isinstance(first, Sequence) and all(isinstance(each, Mapping) for each in first)


def _is_among(wanted: Mapping[str, int], sizes: Sequence[Mapping[str, int]]) -> bool:
    """Whether a call that is run at `wanted` sizes replays the graph of one of `sizes`."""
    return any(all(wanted.get(dim, 0) == at for dim, at in size.items()) for size in sizes)


def capture_sizes(
    runner: Runner,
    variant: Variant,
    manifest: Manifest,
    payload: Path,
    behind: Sequence[Mapping[str, int]] = (),
) -> None:
    """Capture each promised size that is neither captured yet nor `behind`, the largest first.

    Inputs are those of a fixture, repeated or cut to the size.  Raises AOTC-R024 and M004, and R005
    if no inputs could be made.
    """
    graphs = variant.cuda_graphs
    if graphs is None or (capturing := _capturing(runner)) is None:
        return
    for sizes in largest_first(graphs.sizes):
        if not capturing.has_captured(sizes) and sizes not in behind:
            stop_if_interrupted()
            capturing.capture(_inputs_to_capture(variant, manifest, sizes, payload), sizes)


def capture_behind(
    runner: Runner,
    variant: Variant,
    manifest: Manifest,
    payload: Path,
    behind: Sequence[Mapping[str, int]],
) -> None:
    """Have the sizes `behind` captured when no call waits, and their fixtures compared then.

    What fails is a finding of the runner's.
    """
    if not behind or (capturing := _capturing(runner)) is None:
        return
    padder = Padder(manifest.inputs, manifest.padding)
    fitting = warmup_fixtures(manifest, variant)

    def capture(runner: CapturingRunner, sizes: Mapping[str, int]) -> None:
        if not runner.has_captured(sizes):
            runner.capture(_inputs_to_capture(variant, manifest, sizes, payload), sizes)
        for fixture, wanted in fitting:
            if _is_among(wanted, (sizes,)):
                _accept_fixture(runner, payload, fixture, variant, wanted, padder, manifest)

    capturing.capture_behind(behind, capture)


def _capturing(runner: Runner) -> CapturingRunner | None:
    from aotc.session.device.capturing_runner import CapturingRunner

    return runner if isinstance(runner, CapturingRunner) else None


def _inputs_to_capture(
    variant: Variant, manifest: Manifest, sizes: Mapping[str, int], payload: Path
) -> dict[str, values.Data]:
    """Raises AOTC-R024 if there are none."""
    inputs = inputs_at(manifest, manifest.domain.complete(sizes), payload)
    if inputs is None:
        raise capture_refused("no inputs of its sizes could be made", f"variant {variant.name}")
    return inputs


# Inputs of wanted sizes, to run a model before its first call.


# Larger inputs are not generated for a warm-up.
_MAX_ELEMENTS: Final = 1 << 27


def inputs_at(
    manifest: Manifest, sizes: Mapping[str, int], payload: Path
) -> dict[str, values.Data] | None:
    """Inputs of `sizes`: a resized fixture, or zeros; None if neither is possible.

    Where the profile states values, they are cut to these.
    """
    shapes = {
        value.name: [
            size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape or ()
        ]
        for value in manifest.inputs
    }
    if any(math.prod(each) > _MAX_ELEMENTS or min(each, default=1) < 0 for each in shapes.values()):
        return None
    if manifest.fixtures:
        given = value_files.read_fixture(payload, manifest.fixtures[0])
        return value_files.resize(given, manifest.inputs, sizes)
    zeros: dict[str, values.Data] = {}
    for value in manifest.inputs:
        if value.kind != "tensor" or value.shape is None or value.dtype == "string":
            return None
        made = np.zeros(shapes[value.name], values.numpy_dtype(value.dtype))
        zeros[value.name] = cut_to_allowed(made, value, sizes)
    return zeros


# Calls before the first one: what a call passes through is then not met for the first time.


# Python specializes code in its first executions, and replays of milliseconds get quicker in their
# first ten.
_LEAST: Final = 3
_MOST: Final = 10
# A load makes no more than the least number of calls once it rehearsed for that long, in equal
# shares for its sizes.
_SETTLING_SECONDS: Final = 0.1
# A run that takes longer hides what its first call costs beyond it, and would delay the load.
_SHORT_SECONDS: Final = 0.01
# The same for runs without a graph: the first call of the shortest takes twice as long as others.
_SHORTEST_SETTLING_SECONDS: Final = 0.005


def rehearse_calls(
    answer: Callable[[Mapping[str, Data]], object],
    variant: Variant,
    manifest: Manifest,
    payload: Path,
    run_seconds: float | None,
    *,
    share: float = 1.0,
    behind: Sequence[Mapping[str, int]] = (),
) -> None:
    """Answer calls as `run` does, whose answers nobody wants: of each captured size, or one.

    Each comes in arrays of its own, and the answer before it is kept, as with requests, so that the
    memory which they take and free is not met for the first time either; the largest sizes come
    first, as they take the caches from the others.  `run_seconds` is what a run of the variant took
    at its warm-up (None: it was not run), and `share` is the part of a load's rehearsals that it
    may take.  Sizes that are captured `behind` the load are left out.  The variant is proven at
    this point: a refusal, such as of values that a fixture has after it was resized, is left to a
    request that gives cause for it.
    """
    if variant.cuda_graphs is not None:
        now = (size for size in variant.cuda_graphs.sizes if size not in behind)
        wanted = largest_first([manifest.domain.complete(size) for size in now])
        least, settling = _LEAST, _SETTLING_SECONDS
    elif run_seconds is not None and run_seconds < _SHORT_SECONDS:
        wanted = [(variant.domain or manifest.domain).corner("opt")]
        least, settling = 1, _SHORTEST_SETTLING_SECONDS
    else:
        return
    for sizes in wanted:
        settled = time.perf_counter() + settling * share / len(wanted)
        # A sequence, such as of tensors, has no other sizes.
        with suppress(AotcError):
            inputs = inputs_at(manifest, sizes, payload)
            if inputs is None:
                continue
            kept: deque[object] = deque(maxlen=1)
            for turn in range(_MOST):
                if turn >= least and time.perf_counter() > settled:
                    break
                given = {
                    name: data.copy() if isinstance(data, np.ndarray) else data
                    for name, data in inputs.items()
                }
                kept.append(answer(given))


# Fixtures that matched in an earlier load by this user on this host.
#
# A golden answer shows that this host computes what the build host computed. That depends on the
# artifact, on ONNX Runtime and numpy, on the processor, the kernel, the C library and the number of
# threads. While all of these are the same, running every fixture again shows nothing new. What
# matched is recorded beside the entries of this user's own store:
#
#     <store>/accepted-<artifact id>.json    by variant: fixtures, and the sha256 of the conditions
#
# Only runs of fixtures are saved. Every load checks signatures, digests and the placement, and runs
# one fixture of each variant. Whoever can write the file can also change the store's entries.


_SCHEMA: Final = "aotc.accepted/1"
_MAX_BYTES: Final = 1 << 20
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
# Variables of ONNX Runtime, of libraries that it may be built with, and of the dynamic linker.
_VARIABLES: Final = ("ORT_", "MLAS_", "OMP_", "KMP_", "MKL_", "LD_", "GLIBC_TUNABLES")


class AcceptedFixtures:
    """What is recorded about the artifact `artifact_id` in the store `root`.

    `threads` is the number per operator that the load asked for (None: the variant's, or one per
    core).  A record that cannot be read, or that others could have written, is ignored; one that
    cannot be written is lost.
    """

    def __init__(self, root: Path, artifact_id: str, threads: int | None = None) -> None:
        self._path = acceptance_path(root, artifact_id)
        self._threads = threads

    def covers(self, variant: Variant, fixtures: Collection[str]) -> bool:
        """Whether all these fixtures of a variant matched under the conditions of this load."""
        conditions = self._conditions(variant)
        if conditions is None:
            return False
        kept = self._kept().get(variant.name)
        return (
            isinstance(kept, dict)
            and kept.get("conditions") == conditions
            and isinstance(known := kept.get("fixtures"), list)
            and all(name in known for name in fixtures)
        )

    def record(self, variant: Variant, fixtures: Collection[str]) -> None:
        """Record that these fixtures of a variant ran in this load, and matched."""
        conditions = self._conditions(variant)
        if conditions is None:
            return
        from aotc.base.files.writing import write_atomically

        entry: Json = {"conditions": conditions, "fixtures": sorted(fixtures)}
        kept = {**self._kept(), variant.name: entry}
        document = json.dumps({"schema": _SCHEMA, "variants": kept}, sort_keys=True)
        try:
            if self._path.parent.stat().st_uid == os.geteuid():
                try:
                    _own_bytes(self._path)
                except FileNotFoundError:
                    pass
                except OSError:
                    # Somebody else's, or not a plain file.
                    self._path.unlink()
                write_atomically(self._path, document.encode(), mode=0o600)
        except OSError:
            return

    def _kept(self) -> dict[str, Json]:
        """The records by variant; empty if there is no usable file."""
        try:
            document = strict_json(_own_bytes(self._path))
        except (OSError, ParseError):
            return {}
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            return {}
        variants = document.get("variants")
        return variants if isinstance(variants, dict) else {}

    def _conditions(self, variant: Variant) -> str | None:
        """The sha256 of everything but the artifact that answers depend on; None if unknown.

        It is known for the CPU provider alone: others depend on drivers and devices as well.  It is
        unknown if ONNX Runtime's library is no longer where it was loaded from.
        """
        processors = processor_identity()
        if variant.providers != (CPU,) or not processors or not can_check_owners():
            return None
        try:
            runtime = _onnxruntime()
        except OSError:
            return None
        threads = variant.session.threads if self._threads is None else self._threads
        known = {
            "aotc": VERSION,
            "numpy": np.__version__,
            "onnxruntime": runtime,
            "processors": processors,
            "system": list(os.uname())[2:],
            "libc": encode(probe(gpus=False).libc),
            "threads": usable_cores() if threads is None else threads,
            "variables": {
                name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)
            },
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _onnxruntime() -> list[object]:
    """Version and build of ONNX Runtime, and the state of the library that is loaded."""
    runtime = import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    library = Path(native.__file__).stat()
    # Unlike the modification time, the change time cannot be set.
    state = [library.st_size, library.st_mtime_ns, library.st_ctime_ns]
    return [runtime.__version__, runtime.get_build_info(), *state]


def _own_bytes(path: Path) -> bytes:
    """The bytes of a small, plain file that only this user can write; raises OSError."""
    descriptor = os.open(path, _READ)
    try:
        found = os.fstat(descriptor)
        plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if not plain or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_BYTES)
    finally:
        os.close(descriptor)
