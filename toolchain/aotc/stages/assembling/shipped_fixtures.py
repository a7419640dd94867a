"""The fixtures that are shipped in an artifact, within the limits of the profile."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aotc.contract.manifest.payload_files import Fixture, FixtureTensor
from aotc.files.names import file_name
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import AnalyzedModel, ReferenceRun
from aotc.stages.variant_plan import VariantPlan


def ship_fixtures(
    analyzed: AnalyzedModel, plans: Sequence[VariantPlan], payload: Path, options: BuildOptions
) -> tuple[Fixture, ...]:
    """Copy small golden fixtures into the payload; the user's own data only if requested.

    That is their fixtures and, for statically quantized variants, samples of the calibration data.
    A run that no variant was compared with is left out.  `plans` are of the variants in the
    artifact.
    """
    spec = options.profile.fixtures
    kept: list[Fixture] = []
    total = 0
    for reference in _in_order(analyzed):
        if reference.origin == "user" and not options.embed_fixtures:
            continue
        without = tuple(
            plan.name for plan in plans if reference not in analyzed.references_of(plan)
        )
        files = (*reference.inputs.values(), *reference.outputs.values())
        size = sum(path.stat().st_size for path in files)
        too_large = len(kept) == spec.max_count or total + size > spec.max_bytes
        if too_large or len(without) == len(plans):
            continue
        total += size
        kept.append(
            Fixture(
                name=reference.name,
                origin="user" if reference.origin == "user" else "generated",
                sizes=reference.sizes,
                without=without,
                inputs=_copied(reference.inputs, reference.name, payload),
                outputs=_copied(reference.outputs, reference.name, payload),
            )
        )
    return tuple(kept)


def _in_order(analyzed: AnalyzedModel) -> Iterator[ReferenceRun]:
    """The user's fixtures first, which speak of all variants; samples are last then.

    Without them a sample and a generated one in turn, as no variant is compared with both.  The
    optimal shape is the first of the generated ones, the others are by size: every load runs
    embedded fixtures.
    """
    ordered = sorted(analyzed.references, key=lambda run: (run.name != "opt", _input_bytes(run)))
    given = [run for run in ordered if run.origin == "user"]
    generated = [run for run in ordered if run.origin != "user"]
    samples = sorted(analyzed.sampled, key=_input_bytes)
    if given:
        yield from (*given, *generated, *samples)
        return
    for pair in itertools.zip_longest(samples, generated):
        yield from (run for run in pair if run is not None)


def _input_bytes(reference: ReferenceRun) -> int:
    return sum(path.stat().st_size for path in reference.inputs.values())


def _copied(files: Mapping[str, Path], name: str, payload: Path) -> tuple[FixtureTensor, ...]:
    result = []
    for value, source in files.items():
        path = f"fixtures/{file_name(name)}/{source.name}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, payload / path)
        result.append(FixtureTensor(name=value, path=path))
    return tuple(result)
