"""Analyze: prove for which shapes the original model runs, and record the reference's answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from aotc.contract.manifest import Finding
from aotc.contract.parsing import Json, decode, encode, nearest
from aotc.contract.shapes import DimRange, Domain
from aotc.errors import AotcError
from aotc.stages.types import AnalyzedModel, BuildOptions, ReferenceRun, SourceModel

_MOST_CRASHES = 12


def analyze(source: SourceModel, options: BuildOptions) -> AnalyzedModel:
    """Domain, golden outputs and findings of `source`.

    Raises AOTC-I008, I009, I012 to I016 (ONNX Runtime refuses), I024 (fixtures), S001 to S005,
    S011.
    """
    profile = options.profile
    stated = _stated(source, options)
    folder = options.work / "reference"
    result, deadly = _run(
        folder,
        {
            "model": str(source.path),
            "inputs": [encode(value) for value in source.inputs],
            "outputs": [encode(value) for value in source.outputs],
            "hints": source.hints,
            "stated": {name: encode(spec) for name, spec in stated.items()},
            "probe": encode(profile.probe),
            "parity": encode(profile.parity),
            "given": _given(source, options, options.work / "given"),
        },
        source,
        options,
    )
    return AnalyzedModel(
        source=source,
        domain=decode(Domain, result["domain"]),
        references=tuple(_reference(item, folder) for item in result["references"]),
        activation_bytes=result["activation_bytes"],
        findings=(*(decode(Finding, item) for item in result["findings"]), *deadly),
    )


def _run(
    folder: Path, request: dict[str, Json], source: SourceModel, options: BuildOptions
) -> tuple[Json, tuple[Finding, ...]]:
    """Run the job; where a trial kills it, start again without those sizes, and say so."""
    deadly: list[Json] = []
    findings: list[Finding] = []
    trying = folder / "trying.json"
    while True:
        try:
            result = options.workers.run(
                "aotc.engine.reference:analyze_job",
                {**request, "deadly": deadly},
                folder=folder,
                where=source.path.name,
            )
            return result.value, tuple(findings)
        except AotcError as error:
            died = error.code in ("AOTC-I013", "AOTC-I014") and " ended by " in error.what
            text = trying.read_text() if died and trying.exists() else ""
            sizes = json.loads(text or "{}")
            if not sizes or sizes in deadly or len(deadly) == _MOST_CRASHES:
                raise
            deadly.append(sizes)
            text = ", ".join(f"{name}={size}" for name, size in sizes.items())
            cause = error.what.partition(" ended by ")[2]
            # Nobody asked for size 0: the range merely starts above it.
            if 0 not in sizes.values():
                findings.append(Finding(code="AOTC-S012", what=f"ended by {cause}", where=text))
            shutil.rmtree(folder)


def _reference(item: Json, folder: Path) -> ReferenceRun:
    return ReferenceRun(
        name=item["name"],
        origin=item["origin"],
        sizes=item["sizes"],
        inputs={name: folder / path for name, path in item["inputs"].items()},
        outputs={name: folder / path for name, path in item["outputs"].items()},
        finite=item["finite"],
    )


def _stated(source: SourceModel, options: BuildOptions) -> Mapping[str, DimRange]:
    """The profile's ranges, checked against the model; raises AOTC-S002, S004 and I007."""
    dims = {d for value in source.inputs for d in value.shape or () if isinstance(d, str)}
    dims |= {f"{value.name}.0" for value in source.inputs if value.shape is None}
    fixed = {
        f"{value.name}.{index}": size
        for value in source.inputs
        for index, size in enumerate(value.shape or ())
        if isinstance(size, int)
    }
    by_name = {value.name: value for value in source.inputs}
    for name, spec in options.profile.dims.items():
        if name in fixed and not (spec.fixed() and spec.min == fixed[name]):
            raise AotcError(
                "AOTC-S004", "the model fixes this dim", where=name, found=f"size {fixed[name]}"
            )
        if name not in dims and name not in fixed:
            raise AotcError(
                "AOTC-S002",
                f"the model has no dim {name!r}",
                where=f"dims.{name}",
                expected=", ".join(sorted(dims)) or "no free dim",
                found=_nearest(name, dims),
            )
    for name, stated in options.profile.inputs.items():
        value = by_name.get(name)
        if value is None:
            raise AotcError(
                "AOTC-S002",
                f"the model has no input {name!r}",
                where=f"inputs.{name}",
                expected=", ".join(by_name) or "no input",
                found=_nearest(name, by_name),
            )
        if stated.dtype is not None and stated.dtype != value.dtype:
            raise AotcError(
                "AOTC-S002",
                "the input has another dtype",
                where=f"inputs.{name}.dtype",
                expected=value.dtype,
                found=stated.dtype,
            )
        if stated.shape is not None and stated.shape != value.shape:
            raise AotcError(
                "AOTC-S002",
                "the input has another shape",
                where=f"inputs.{name}.shape",
                expected=_shape(value.shape),
                found=_shape(stated.shape),
                mend="Write the model's shape; sizes of its dims are stated under dims.",
            )
    return {name: spec for name, spec in options.profile.dims.items() if name in dims}


def _nearest(name: str, known: Iterable[str]) -> str:
    close = nearest(name, tuple(known))
    return f"nearest: {close}" if close else ""


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "any" if shape is None else f"[{', '.join(str(size) for size in shape)}]"


def _given(source: SourceModel, options: BuildOptions, folder: Path) -> list[Json]:
    """The user's fixtures as value files; raises AOTC-I024."""
    if options.fixtures is None:
        return []
    from aotc.engine.user_fixtures import read_fixtures

    return read_fixtures(options.fixtures, source.inputs, folder)
