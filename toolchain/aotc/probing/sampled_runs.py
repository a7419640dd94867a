"""Runs of the original model on real data: the samples as they are, and tiled to further sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.manifest.interface import Value
from aotc.engine import values
from aotc.engine.session import run
from aotc.errors import AotcError
from aotc.graphs.original import open_original
from aotc.probing.inputs.tiled_samples import tiled


def sampled_job(request: Json) -> Json:
    """In the worker: inputs and outputs of each run, as value files below the working directory.

    `points` are names and sizes at which the samples are tiled; one that the model does not run at
    is left out.  Raises AOTC-I075 if it does not run on a sample itself.
    """
    inputs = [decode(Value, item) for item in request["inputs"]]
    samples = [
        {name: values.load(Path(path)) for name, path in sample["inputs"].items()}
        for sample in request["samples"]
    ]
    _, session = open_original(Path(request["model"]), Path(request["weights"]))
    runs: list[Json] = []
    for name, sizes, given in _asked(inputs, samples, request["points"]):
        try:
            outputs = run(session, given)
        except AotcError as error:
            if not name.endswith("-sampled"):
                raise AotcError(
                    "AOTC-I075",
                    "the model does not run on a sample",
                    where=name,
                    found=error.found,
                ) from None
            continue
        place = Path(str(len(runs)))
        place.mkdir()
        runs.append(
            {
                "name": name,
                "sizes": dict(sizes),
                "inputs": {
                    each: str(values.save(value, place / f"input_{number}"))
                    for number, (each, value) in enumerate(given.items())
                },
                "outputs": {
                    each: str(values.save(value, place / f"output_{number}"))
                    for number, (each, value) in enumerate(
                        zip(request["outputs"], outputs, strict=True)
                    )
                },
                "finite": all(values.is_finite(value) for value in outputs),
            }
        )
    return runs


def _asked(
    inputs: list[Value], samples: list[dict[str, Any]], points: Json
) -> Iterator[tuple[str, Mapping[str, int], dict[str, Any]]]:
    for number, sample in enumerate(samples):
        given = {value.name: sample[value.name] for value in inputs}
        yield f"sample{number}", _sizes(inputs, given), given
    for first, (name, sizes) in enumerate(points):
        yield name, sizes, tiled(samples, inputs, sizes, first)


def _sizes(inputs: list[Value], given: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in inputs:
        shape = getattr(given[value.name], "shape", None)
        if shape is None or value.shape is None:
            continue
        found |= {
            dim: size for dim, size in zip(value.shape, shape, strict=True) if isinstance(dim, str)
        }
    return found
