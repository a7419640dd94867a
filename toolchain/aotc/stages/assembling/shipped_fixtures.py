"""The fixtures that are shipped in an artifact, within the limits of the profile."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
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

    `plans` are of the variants in the artifact.
    """
    spec = options.profile.fixtures
    kept: list[Fixture] = []
    total = 0
    for reference in sorted(analyzed.references, key=_embedding_order):
        if reference.origin == "user" and not options.embed_fixtures:
            continue
        files = (*reference.inputs.values(), *reference.outputs.values())
        size = sum(path.stat().st_size for path in files)
        if len(kept) == spec.max_count or total + size > spec.max_bytes:
            continue
        total += size
        kept.append(
            Fixture(
                name=reference.name,
                origin="user" if reference.origin == "user" else "generated",
                sizes=reference.sizes,
                without=tuple(
                    plan.name for plan in plans if reference not in analyzed.references_of(plan)
                ),
                inputs=_copied(reference.inputs, reference.name, payload),
                outputs=_copied(reference.outputs, reference.name, payload),
            )
        )
    return tuple(kept)


def _embedding_order(reference: ReferenceRun) -> tuple[bool, bool, int]:
    """The user's first, then the optimal shape, then by size: every load runs embedded fixtures."""
    size = sum(path.stat().st_size for path in reference.inputs.values())
    return reference.origin != "user", reference.name != "opt", size


def _copied(files: Mapping[str, Path], name: str, payload: Path) -> tuple[FixtureTensor, ...]:
    result = []
    for value, source in files.items():
        path = f"fixtures/{file_name(name)}/{source.name}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, payload / path)
        result.append(FixtureTensor(name=value, path=path))
    return tuple(result)
