"""Two plain models compared, or an artifact and a model such as the one that it was built from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.spec.codec import Json
from aotc.spec.diff_report import Change
from aotc.spec.shapes import sizes_in_words
from aotc.tools.diff.model_side import is_model, source_digest
from aotc.tools.diff.opened_artifact import Pair, change, changes_of
from aotc.tools.inspect import ArtifactContents

# At which sizes of all free dims models are run of which nothing else is known.
_SIZES: Final = (1, 2, 8, 32)
_MAX_ELEMENTS: Final = 1 << 24


def built_from(a: ArtifactContents, b: ArtifactContents) -> bool | None:
    """Whether an artifact says that it was built from the very bytes of a model; None: of others.

    Those are the bytes of the model's file, and of its external data.
    """
    if is_model(a) == is_model(b):
        return None
    return source_digest(a.manifest.source) == source_digest(b.manifest.source)


def pairs_with(a: ArtifactContents, b: ArtifactContents) -> tuple[Pair, ...]:
    """A model with each variant of an artifact, or with the other model."""
    return tuple(
        Pair(one, other, "alone") for one in a.manifest.variants for other in b.manifest.variants
    )


def source_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """What the files of both models hold; of an artifact, that of the one it was built from."""
    return changes_of(a.manifest.source, b.manifest.source, "source", without=("findings",))


def shape_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Inputs and outputs: names, types and shapes; values of inputs only a build states."""
    one, other, stated = a.manifest, b.manifest, ("allowed",)
    return (
        *changes_of(one.inputs, other.inputs, "inputs", without=stated),
        *changes_of(one.outputs, other.outputs, "outputs", without=stated),
    )


def precision_changes(pairs: Sequence[Pair]) -> tuple[Change, ...]:
    """The variants that were built to compute in another precision than the model."""
    return tuple(
        change("precision", pair.a.precision, pair.b.precision, pair.label)
        for pair in pairs
        if pair.a.precision != pair.b.precision
    )


def made_calls(a: ArtifactContents, b: ArtifactContents, folder: Path) -> tuple[Json, ...]:
    """Inputs of both, made in files, where neither has fixtures: at some sizes of all free dims.

    A call at sizes at which one of them does not run is left out later.  Raises AOTC-I113 for
    inputs that cannot be made.
    """
    from aotc.graph import values
    from aotc.tools.example_inputs import made_example

    built = next((each.manifest for each in (a, b) if not is_model(each)), None)
    manifest = built or a.manifest
    shapes = [value.shape or () for value in manifest.inputs]
    dims = dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str))
    tried = [built.domain.corner("opt")] if built is not None else []
    # Without a build nobody knows at which sizes a model runs.
    tried += [dict.fromkeys(dims, size) for size in _SIZES if built is None and (dims or size == 1)]
    found: list[Json] = []
    for sizes in tried:
        elements = (math.prod(each.shape_at(sizes)) for each in manifest.inputs)
        if max(elements, default=0) > _MAX_ELEMENTS:
            continue
        name = "made " + sizes_in_words(sizes)
        place = folder / f"made-{len(found)}"
        place.mkdir(parents=True)
        inputs = made_example(manifest, sizes).inputs
        files = {
            each: str(values.save(value, place / str(index)))
            for index, (each, value) in enumerate(inputs.items())
        }
        found.append(
            {
                "name": name.strip(),
                "sizes": dict(sizes),
                "inputs": files,
                "outputs": {},
                "golden": False,
                "excluded": [],
            }
        )
    return tuple(found)
