"""The fixtures that are shipped in an artifact, within the limits of the profile."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from aotc.contract.manifest.payload_files import Fixture, FixtureTensor
from aotc.files.names import file_name
from aotc.stages.build_options import BuildOptions
from aotc.stages.proving.compared_runs import is_judged_on_data
from aotc.stages.types import ProvenModel, ReferenceRun


def ship_fixtures(
    proven: Sequence[ProvenModel], payload: Path, options: BuildOptions
) -> tuple[Fixture, ...]:
    """Copy small golden fixtures into the payload; the user's own data only if requested.

    Generated ones only where all variants were compared on them: each load runs them.
    """
    analyzed = proven[0].lowered.analyzed
    on_data = any(is_judged_on_data(analyzed, item.plan) for item in proven)
    spec = options.profile.fixtures
    kept: list[Fixture] = []
    total = 0
    for reference in sorted(analyzed.references, key=_embedding_order):
        if on_data if reference.origin != "user" else not options.embed_fixtures:
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
                inputs=_copied(reference.inputs, reference.name, payload),
                outputs=_copied(reference.outputs, reference.name, payload),
            )
        )
    return tuple(kept)


def why_none(proven: Sequence[ProvenModel], options: BuildOptions) -> str:
    """Why no fixture is shipped."""
    analyzed = proven[0].lowered.analyzed
    if not options.embed_fixtures and any(
        is_judged_on_data(analyzed, item.plan) for item in proven
    ):
        return "static int8 is compared on the user's fixtures alone, which are not embedded"
    return f"none fits fixtures.max_bytes ({options.profile.fixtures.max_bytes} bytes)"


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
