"""`aotc debug parity`: where a variant leaves its model, and the smallest part that does."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.base.files.reading import file_sha256, require_model_file
from aotc.base.files.replacing import put_in_place
from aotc.base.files.work_folders import draft_path, prepare_output, temporary_folder
from aotc.base.records import replace
from aotc.graph import values
from aotc.graph.values import Data
from aotc.graph.view import every_node, op_of
from aotc.host.probe import probe
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.import_model import import_model
from aotc.pipeline.margins import original_margins
from aotc.pipeline.types import SourceModel
from aotc.precision.node_comparison import Side, as_loaded, node_errors
from aotc.runtime.custom_ops import files_of, registrable
from aotc.runtime.routing import choose
from aotc.runtime.warmup import warmup_fixtures
from aotc.session.inference import open_original, outputs_of
from aotc.session.limits import FORM, stated_limits
from aotc.session.margins import OriginalMargins
from aotc.session.padding import Padder
from aotc.session.parity import SLICE, TOLERANCE, compare
from aotc.session.sessions import import_onnxruntime
from aotc.session.slices import SliceLimits
from aotc.session.worker_pool import Workers
from aotc.sizes.inputs.fixtures import read_fixtures
from aotc.sources.base import Taken
from aotc.sources.capturing import UNTRUSTED, SourceTrust
from aotc.sources.registry import importer_of
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import NodeErrors, OutputError
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding, Fixture
from aotc.spec.precision import OutputGate, ParitySpec, Tolerance
from aotc.spec.profile import Profile, profile_of
from aotc.spec.reports import FailingSubmodel, ParityDebugReport, Refusal
from aotc.spec.shapes import sizes_in_words
from aotc.spec.variant import SessionSpec, Variant
from aotc.spec.versions import artifact_path
from aotc.tools.debug_framework import captured_again, framework_errors, with_modules
from aotc.tools.example_inputs import made_example
from aotc.tools.inspect import ArtifactContents, read_artifact
from aotc.tools.smallest_failing import (
    FailingPart,
    SmallestFailing,
    copy_report,
    fails,
    session_of,
    write_report,
)
from aotc.trust.compatibility import judge, probe_host
from aotc.trust.opening import copy_files, open_container

_BREACH: Final = "AOTC-N037"
_ACCUMULATED: Final = "AOTC-N038"
_CHANGED: Final = "AOTC-N039"
_JOBS: Final = "aotc.tools.debug_parity"


def debug_parity(
    artifact: str | Path,
    model: Path,
    *,
    fixtures: Path | None = None,
    variant: str | None = None,
    output: Path | None = None,
    trust_source: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ParityDebugReport:
    """Compare a variant of `artifact` with the model that it was built from, node by node.

    Outputs are compared on all `fixtures` (default: the artifact's), nodes on those whose outputs
    are worst.  If an output is out of tolerance or breaches its gate, the smallest part that is out
    of tolerance by itself is searched and written to the new folder `output`.  Signatures are not
    looked at; digests of the files that are read are.  A framework's source is captured again
    (`trust_source`: though that runs code of it): errors have the module of each node, and the
    exported model is compared with the framework in the same way.  Libraries of custom operators
    are those that $AOTC_CUSTOM_OPS names, of the digests that the artifact states.

    Raises AOTC-I083 (another model), I084 (no inputs), I085 (the variant takes none of them), C009
    (the variant does not run here), C023 (a library is not named), I027 (no such variant), I017 and
    I026 (the folder), G005, G014, I001 and I024 (fixtures), and what importing a model and the
    sandbox raise.
    """
    if output is not None:
        prepare_output(output, folder=True)
    allowed = SourceTrust(trusted=trust_source)
    with _Comparison(artifact, model, fixtures, variant, progress, allowed) as comparison:
        comparison.announce("compare")
        answer = comparison.run("parity_job", isolate=True)
        submodel = None
        if answer["submodel"] is not None:
            submodel = decode(FailingSubmodel, answer["submodel"])
            if output is None:
                submodel = replace(submodel, files=())
            else:
                with draft_path(output) as draft:
                    draft.mkdir()
                    copy_report(comparison.work / "job" / REPORT_FOLDER, draft)
                    put_in_place(draft, output)
        report = ParityDebugReport(
            artifact=str(comparison.given.path),
            artifact_id=comparison.given.artifact_id,
            model=str(model),
            variant=comparison.variant.name,
            fixture=answer["fixture"],
            compared=tuple(comparison.inputs),
            tolerance=comparison.tolerance,
            gates=comparison.gates,
            outputs=tuple(decode(OutputError, error) for error in answer["outputs"]),
            errors=comparison.by_module(decode(NodeErrors, answer["errors"])),
            exported=comparison.beside_framework(answer["fixture"]),
            submodel=submodel,
        )
        made = comparison.made
    judged = _judged(report)
    return replace(judged, findings=(*made, *judged.findings))


def measure_nodes(
    artifact: str | Path,
    model: Path,
    *,
    fixtures: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[str, NodeErrors]:
    """The variant that this host prefers, and its errors by node; raises as `debug_parity` does."""
    with _Comparison(artifact, model, fixtures, None, progress) as comparison:
        comparison.announce("compare")
        found = decode(NodeErrors, comparison.run("nodes_job", isolate=False))
        return comparison.variant.name, found


def _judged(report: ParityDebugReport) -> ParityDebugReport:
    """The report with what follows from it."""
    findings: list[Finding] = []
    where = f"variant {report.variant}"
    if report.errors.outputs_changed:
        findings.append(
            Finding(
                code=_CHANGED,
                what="the variant gives other bits when its inner values are outputs",
                where=where,
            )
        )
    failed = []
    for error in report.outputs:
        if not error.passed:
            gate = report.gates.get(error.output)
            by_gate = gate is not None and not {FORM, TOLERANCE, SLICE} & {*error.breached}
            failed.append(
                Refusal(
                    code=_BREACH,
                    what=f"output {error.output!r} "
                    + ("is out of tolerance" if not by_gate else "breaches its gate"),
                    where=f"{where}, fixture {report.fixture}",
                    expected=_limits(report.tolerance, gate, error.rule),
                    found=error.reason,
                    fix=REASONS[_BREACH].fix,
                )
            )
    if failed and (report.submodel is None or report.submodel.accumulated):
        findings.append(
            Finding(
                code=_ACCUMULATED,
                what="no single node is out of tolerance by itself"
                + (
                    "; the smallest range of nodes that is was found"
                    if report.submodel
                    else ", nor is a range of nodes that can run alone"
                ),
                where=where,
            )
        )
    return replace(report, findings=tuple(findings), failed=tuple(failed))


def _limits(tolerance: Tolerance, gate: OutputGate | None, rule: str) -> str:
    """What an output is judged by: its gate, and unless that takes its place the tolerance."""
    stated = stated_limits(gate) if gate is not None else ()
    if gate is not None and gate.replaces_tolerance:
        return ", ".join(stated)
    if rule:
        return ", ".join((rule, *stated))
    bound = f"error <= {tolerance.atol:g} + {tolerance.rtol:g} * max|reference|"
    slices = f"rms error of every slice <= {SliceLimits.of(tolerance).share:g} * its scale"
    return ", ".join((bound, f"cosine >= {tolerance.min_cosine:g}", slices, *stated))


class _Comparison:
    """An artifact, its model and inputs, ready for jobs; a context manager that removes its files.

    `inputs` are files by name of the fixture and of the input.
    """

    def __init__(
        self,
        artifact: str | Path,
        model: Path,
        fixtures: Path | None,
        variant: str | None,
        progress: Callable[[str], None] | None,
        allowed: SourceTrust = UNTRUSTED,
    ) -> None:
        self.announce = progress or (lambda text: None)
        self._stack = ExitStack()
        self.inputs: dict[str, dict[str, str]] = {}
        with ExitStack() as stack:
            self.work = stack.enter_context(temporary_folder("debugging"))
            opened = stack.enter_context(open_given(artifact, model, allowed))
            self.given, model, self._taken = opened
            manifest = self.given.manifest
            self._profile = profile_of(manifest)
            self.variant = _chosen(manifest, variant, self._profile)
            parity = self.variant.parity
            self.gates = parity.gates
            self.tolerance: Tolerance = parity.tolerance or getattr(ParitySpec(), parity.arithmetic)
            self.made: tuple[Finding, ...] = ()
            if fixtures is None and not manifest.fixtures:
                fixtures = self._made_inputs()
            workers = stack.enter_context(Workers(self._profile.limits, (_JOBS,)))
            # Nobody vouched for the artifact here, so nothing that it ships may run.
            libraries = stack.enter_context(registrable(None, [self.variant]))
            self._libraries = files_of(self.variant, libraries)
            self._workers = workers.registering(self._libraries)
            self.announce("import")
            self._source = self._imported(model)
            self.announce("copy the variant")
            self._payload = self.work / "payload"
            self._payload.mkdir()
            copy_files(self.given.container, manifest, self.variant.files, self._payload)
            self._read_inputs(fixtures)
            self._stack = stack.pop_all()

    def __enter__(self) -> _Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def by_module(self, errors: NodeErrors) -> NodeErrors:
        """The errors with the modules of the nodes, if the model was captured."""
        return errors if self._taken is None else with_modules(errors, self._taken)

    def beside_framework(self, fixture: str) -> NodeErrors | None:
        """The errors of the exported model beside the framework; None: it was not captured."""
        taken = self._taken
        if taken is None:
            return None
        self.announce("compare with the framework")
        given = self.inputs[fixture]
        return framework_errors(taken, given, self.tolerance, fixture, self.work, self._workers)

    def run(self, job: str, *, isolate: bool) -> Any:
        """The answer of a job of `parity_job`."""
        variant = self.variant
        folder = posixpath.dirname(variant.model) if variant.weights is None else variant.weights
        source = self._source
        graph, weights = (
            (source.reference, source.reference.parent)
            if source.reference is not None
            else (source.graph, source.weights)
        )
        return self._workers.run(
            f"{_JOBS}:{job}",
            {
                "source": {"model": str(graph), "weights": str(weights)},
                "variant": {
                    "model": str(self._payload / variant.model),
                    "weights": str(self._payload / folder),
                    "session": encode(variant.session),
                    "providers": list(variant.providers),
                    "custom_ops": [
                        {**encode(library), "file": str(file)}
                        for library, file in zip(
                            variant.requirements.custom_ops, self._libraries, strict=True
                        )
                    ],
                    "libraries": {
                        spec.provider: spec.library for spec in self._profile.plugins.values()
                    },
                },
                "tolerance": encode(self.tolerance),
                "gates": {name: encode(gate) for name, gate in self.gates.items()},
                "original": {
                    "model": str(graph),
                    "weights": str(weights),
                    "decided": encode(self.variant.parity.decided),
                },
                "inputs": self.inputs,
                "isolate": isolate,
            },
            folder=self.work / "job",
            where=f"variant {variant.name}",
        ).value

    def _imported(self, model: Path) -> SourceModel:
        work = self.work / "source"
        work.mkdir()
        host = probe(gpus=False)
        context = BuildContext(profile=self._profile, target=host, host=host)
        source = import_model(model, BuildState(context=context, work=work, workers=self._workers))
        if source.capture.external_data != self.given.manifest.source.external_data:
            raise AotcError(
                "AOTC-I083",
                "the model's external data is not what the artifact was built from",
                where=str(model),
            )
        return source

    def _read_inputs(self, fixtures: Path | None) -> None:
        """The inputs that the variant takes, padded if it needs that."""
        manifest = self.given.manifest
        folder = self.work / "inputs"
        given = _given(manifest, fixtures, folder / "given")
        known = {fixture.name: fixture for fixture, _ in given}
        fitting = warmup_fixtures(replace(manifest, fixtures=tuple(known.values())), self.variant)
        if fixtures is None:
            paths = [each.path for fixture, _ in fitting for each in fixture.inputs]
            copy_files(self.given.container, manifest, paths, folder / "given")
        files = {fixture.name: paths for fixture, paths in given}
        padder = Padder(manifest.inputs, manifest.padding)
        for fixture, wanted in fitting:
            if not self._takes(wanted):
                continue
            own = files[fixture.name]
            if dict(wanted) != dict(fixture.sizes):
                loaded = {name: values.load(Path(path)) for name, path in own.items()}
                padded = padder.pad(loaded, fixture.sizes, wanted).inputs
                place = folder / "padded" / str(len(self.inputs))
                place.mkdir(parents=True)
                own = {
                    name: str(values.save(value, place / f"input_{index}"))
                    for index, (name, value) in enumerate(padded.items())
                }
            self.inputs[fixture.name] = own
        if not self.inputs:
            raise AotcError(
                "AOTC-I085",
                "the variant accepts none of the inputs",
                where=f"variant {self.variant.name}",
                found="; ".join(
                    sizes_in_words(fixture.sizes) for fixture in list(known.values())[:5]
                ),
            )

    def _made_inputs(self) -> Path:
        """A file of inputs as runs of the artifact make them; raises AOTC-I084."""
        manifest = self.given.manifest
        if any("samples" in made.options for made in self.variant.passes):
            raise AotcError(
                "AOTC-I084",
                "the variant was proven on the user's samples, which the artifact does not hold",
                where=f"variant {self.variant.name}",
                found="other inputs say nothing of it: its ranges were observed on the samples",
                fix="Give samples with --fixtures, or build with --embed-fixtures.",
            )
        try:
            example = made_example(manifest, manifest.domain.corner("opt"))
        except AotcError as error:
            raise AotcError(
                "AOTC-I084",
                "there are no inputs for the comparison, and none can be made",
                where=str(self.given.path),
                found=error.found or error.what,
            ) from None
        place = self.work / "made.npz"
        arrays: dict[str, Any] = {name: np.asarray(each) for name, each in example.inputs.items()}
        np.savez(place, **arrays)
        self.made = example.findings()
        return place

    def _takes(self, sizes: Mapping[str, int]) -> bool:
        domain = self.variant.domain or self.given.manifest.domain
        known = {name: size for name, size in sizes.items() if name in domain.dims}
        return domain.accepts(domain.complete(known)) if known else True


def _chosen(manifest: Manifest, name: str | None, profile: Profile) -> Variant:
    """The variant of that name, or the one that this host prefers; raises C009 and I027."""
    plugins = {spec.provider: Path(spec.library) for spec in profile.plugins.values()}
    result = judge(manifest, probe_host(manifest, plugins))
    chosen = choose(manifest, result.variants, name)
    return next((each for each in chosen if each.name == (name or result.best)), chosen[0])


def _given(
    manifest: Manifest, fixtures: Path | None, folder: Path
) -> list[tuple[Fixture, dict[str, str]]]:
    """Fixtures with their files of inputs: the artifact's own, or those at a path."""
    if fixtures is None:
        return [
            (fixture, {each.name: str(folder / each.path) for each in fixture.inputs})
            for fixture in manifest.fixtures
        ]
    found = []
    for item in read_fixtures(fixtures, manifest.inputs, folder):
        loaded = {name: values.load(Path(path)) for name, path in item["inputs"].items()}
        sizes = {
            dim: int(size)
            for value in manifest.inputs
            for dim, size in zip(
                value.shape or (), getattr(loaded[value.name], "shape", ()), strict=False
            )
            if isinstance(dim, str)
        }
        fixture = Fixture(name=item["name"], origin="user", sizes=sizes, inputs=(), outputs=())
        found.append((fixture, item["inputs"]))
    return found


# An artifact that is opened beside the model that it says it was built from.


@contextmanager
def open_given(
    artifact: str | Path, model: Path, allowed: SourceTrust = UNTRUSTED
) -> Iterator[tuple[ArtifactContents, Path, Taken | None]]:
    """Open an artifact whose source is `model`, byte for byte, with the ONNX file and its capture.

    Raises AOTC-I083 for another model, I001 if there is nothing at either path, and what
    `aotc.inspect` does for an artifact that cannot be read.
    """
    path = artifact_path(artifact)
    importer = importer_of(model)
    importer.require(str(model)) if importer is not None else require_model_file(model)
    with ExitStack() as stack:
        container = stack.enter_context(open_container(path))
        opened = read_artifact(path, container)
        again = captured_again(model, opened.manifest, allowed)
        given, taken = stack.enter_context(again)
        wanted, digest = opened.manifest.source.sha256, file_sha256(given)
        if digest != wanted:
            raise AotcError(
                "AOTC-I083",
                "the artifact was built from another model",
                where=str(model),
                expected=f"sha256 {wanted}",
                found=f"sha256 {digest}",
            )
        yield opened, given, taken


# In a worker: a variant against its model, on the outputs, inside, and part by part.


# The folder of the report of a bug, in the folder of the job.
REPORT_FOLDER: Final = "report"


def parity_job(request: Json) -> Json:
    """Compare outputs on all inputs, then nodes on those with the largest error.

    Outputs are judged by their gates, nodes by the tolerance.  Where an output fails, and
    `isolate` is true, the smallest failing part is searched, and written to the folder `report`.
    """
    source, variant = _source(request["source"]), _variant(request["variant"])
    tolerance = decode(Tolerance, request["tolerance"])
    place = Path("loaded")
    place.mkdir()
    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    margins = original_margins(request["original"])
    compared = _compared_outputs(source, variant, request["inputs"], tolerance, gates, margins)
    chosen = max(compared, key=lambda name: _rank(compared[name]))
    given = _read(request["inputs"][chosen])
    variant = as_loaded(variant, place)
    errors = node_errors(source, variant, given, tolerance, fixture=chosen)
    failed = any(not error.passed for error in compared[chosen])
    submodel = None
    if failed and request["isolate"]:
        search = SmallestFailing(source, variant, given, tolerance)
        found = search.search(errors)
        if found is not None:
            libraries = _libraries_of(found, request["variant"]["custom_ops"])
            files = _written(found, source, tolerance, libraries)
            # What the script does not show is no report of a bug.
            if fails(Path(REPORT_FOLDER), [library["file"] for library in libraries]):
                submodel = FailingSubmodel(
                    value=found.value.name,
                    nodes=found.covers,
                    variant_nodes=tuple(node.name for node in found.nodes),
                    ops=tuple(op_of(node) for node in found.nodes),
                    inputs=tuple(found.inputs),
                    error=found.error,
                    accumulated=found.accumulated,
                    trials=search.trials,
                    files=files,
                )
    return {
        "fixture": chosen,
        "outputs": encode(compared[chosen]),
        "errors": encode(errors),
        "submodel": None if submodel is None else encode(submodel),
    }


def nodes_job(request: Json) -> Json:
    """The errors by node alone, on the first inputs."""
    source, variant = _source(request["source"]), _variant(request["variant"])
    name = next(iter(request["inputs"]))
    found: NodeErrors = node_errors(
        source,
        variant,
        _read(request["inputs"][name]),
        decode(Tolerance, request["tolerance"]),
        fixture=name,
        work=Path(),
    )
    return encode(found)


def _source(request: Json) -> Side:
    model, weights = Path(request["model"]), Path(request["weights"])
    level, _ = open_original(model, weights)
    return Side(model=model, weights=weights, session=SessionSpec(optimization=level, threads=1))


def _variant(request: Json) -> Side:
    return Side(
        model=Path(request["model"]),
        weights=Path(request["weights"]),
        session=decode(SessionSpec, request["session"]),
        providers=tuple(request["providers"]),
        libraries={name: Path(path) for name, path in request["libraries"].items()},
    )


def _read(files: Mapping[str, str]) -> dict[str, Any]:
    return {name: values.load(Path(path)) for name, path in files.items()}


def _compared_outputs(
    source: Side,
    variant: Side,
    inputs: Mapping[str, Mapping[str, str]],
    tolerance: Tolerance,
    gates: Mapping[str, OutputGate],
    margins: OriginalMargins,
) -> dict[str, tuple[OutputError, ...]]:
    """Errors of the outputs, by the name of the inputs."""
    reference, session = source.opened(source.read()), variant.opened(variant.read())
    found: dict[str, tuple[OutputError, ...]] = {}
    for name, files in inputs.items():
        given = _read(files)
        expected = outputs_of(reference, given)
        actual = outputs_of(session, given)
        found[name] = tuple(
            compare(
                expected[output],
                actual.get(output),
                tolerance,
                output,
                gates.get(output),
                decided=margins.judge(output, name, partial(_read, files), tolerance),
            )
            for output in expected
        )
    return found


def _rank(errors: tuple[OutputError, ...]) -> tuple[bool, float]:
    """What orders inputs: whether an output fails, then the largest error."""
    return any(not error.passed for error in errors), max(error.max_rel for error in errors)


def _libraries_of(found: FailingPart, libraries: Sequence[Json]) -> list[Json]:
    """Those of the `libraries` that have operators of the part."""
    made = {op_of(node) for model in (found.part, found.reference) for node in every_node(model)}
    return [each for each in libraries if not made.isdisjoint(each.get("operators", ()))]


def _written(
    found: FailingPart, source: Side, tolerance: Tolerance, libraries: Sequence[Json]
) -> tuple[str, ...]:
    folder = Path(REPORT_FOLDER)
    folder.mkdir()
    arrays: dict[str, Mapping[str, Data]] = {
        "inputs": found.inputs,
        "expected": {found.value.name: found.expected},
        "found": {found.value.name: found.found},
    }
    report = {
        "what": "submodel.onnx and reference.onnx give different answers on inputs.npz",
        "value": found.value.name,
        "nodes": list(found.covers),
        "submodel_nodes": [{"name": node.name, "op": op_of(node)} for node in found.nodes],
        "error": encode(found.error),
        "tolerance": encode(tolerance),
        "accumulated": found.accumulated,
        "session": session_of(found.side),
        "custom_ops": {library["sha256"]: library["name"] for library in libraries},
        "reference_session": session_of(source),
        "versions": {"onnxruntime": str(import_onnxruntime().__version__)},
    }
    return write_report(folder, found.part, found.reference, arrays, report)
