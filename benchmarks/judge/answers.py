"""Answers of the original and of its variants on the same inputs, as a build compares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx

from benchmarks.judge.networks import Network, written
from benchmarks.judge.variants import Variant, inside, session, variants_of, write

Array = np.ndarray[Any, Any]
# By fixture, then by output.
Answers = list[list[Array]]
# Of calibration data: no seed that is judged is near.
_OTHER_SEED: Final = 7_000_001
_KEPT_SEEDS: Final = 4


class Subject:
    """One network below a folder: its file, its inputs and its answers."""

    def __init__(self, network: Network, folder: Path) -> None:
        from aotc.graph.values import ort_type_to_value
        from aotc.sizes.inputs.hints import hints_of

        self.network = network
        self.folder = folder / network.name
        self.path = written(network, self.folder)
        self.model = onnx.load(self.path, load_external_data=False)
        self._hints = hints_of(onnx.load(self.path))
        self._session = session(self.path)
        self._values = [ort_type_to_value(each) for each in self._session.get_inputs()]
        self.outputs = [each.name for each in self._session.get_outputs()]
        self._sessions: dict[str, Any] = {}
        self._references: dict[int, Answers] = {}

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All that may be made of it."""
        return variants_of(self.model)

    def inputs(self, seed: int) -> list[dict[str, Any]]:
        """The inputs of each fixture."""
        return [
            self.network.inputs(self._values, self._hints, seed, fixture)
            for fixture in range(self.network.fixtures)
        ]

    def reference(self, seed: int) -> Answers:
        """What the original answers on one thread, without optimization."""
        if seed not in self._references:
            while len(self._references) >= _KEPT_SEEDS:
                del self._references[next(iter(self._references))]
            self._references[seed] = _run(self._session, self.inputs(seed))
        return self._references[seed]

    def answers(self, variant: Variant, seed: int) -> Answers:
        """What a variant answers; raises ValueError if there is no such variant."""
        if variant.name not in self._sessions:
            path = write(
                variant,
                self.path,
                self.folder / f"{variant.name}.onnx",
                lambda: self.inputs(_OTHER_SEED)[: self.network.calibration],
            )
            self._sessions[variant.name] = session(
                path, optimized=variant.optimized, threads=variant.threads
            )
        return _run(self._sessions[variant.name], self.inputs(seed))

    def exact(self, seed: int) -> Answers:
        """What the original answers in float64, rounded to the types of its outputs.

        Raises ValueError, with the reason, where ONNX Runtime has no such kernels.
        """
        from aotc.graph import values
        from aotc.sizes.float64_reference import float64_job

        references = []
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for at, (given, answered) in enumerate(
                zip(self.inputs(seed), self.reference(seed), strict=True)
            ):
                place = folder / f"fixture{at}"
                place.mkdir()
                sides = {"inputs": given, "outputs": dict(zip(self.outputs, answered, strict=True))}
                references.append(
                    {
                        side: {
                            name: str(values.save(value, place / f"{side}_{number}"))
                            for number, (name, value) in enumerate(items.items())
                        }
                        for side, items in sides.items()
                    }
                )
            request = {
                "model": str(self.path),
                "weights": str(self.folder),
                "tolerances": {},
                "gates": {},
                "keys": {},
                "references": references,
            }
            with inside(folder):
                found = float64_job(request)
                if not found["outputs"]:
                    raise ValueError(found["findings"][0]["what"])
                return [
                    [np.asarray(values.load(Path(each[name]))) for name in self.outputs]
                    for each in found["outputs"]
                ]


def _run(opened: Any, inputs: Sequence[dict[str, Any]]) -> Answers:
    return [[np.asarray(value) for value in opened.run(None, each)] for each in inputs]


# Answers on disk, with which a rule is tuned.


def write_answers(
    subjects: Sequence[Subject], folder: Path, seeds: Sequence[int], say: Callable[[str], None]
) -> None:
    """Write a .npz file for each variant and seed, and `index.json`, which lists them.

    Keys are `ref_FIXTURE_OUTPUT` and `got_FIXTURE_OUTPUT`.
    """
    entries: list[dict[str, Any]] = []
    for subject in subjects:
        for variant in subject.variants:
            why, size = "", 0
            for seed in seeds:
                try:
                    got = subject.answers(variant, seed)
                except ValueError as error:
                    why = str(error)
                    break
                place = subject.folder / f"{variant.name}.seed{seed}.npz"
                sides = (("ref", subject.reference(seed)), ("got", got))
                arrays: dict[str, Any] = {
                    f"{side}_{fixture}_{output}": value
                    for side, answers in sides
                    for fixture, values in enumerate(answers)
                    for output, value in zip(subject.outputs, values, strict=True)
                }
                np.savez(place, **arrays)
                size += place.stat().st_size
                entries.append(
                    {
                        "network": subject.network.name,
                        "variant": variant.name,
                        "arithmetic": variant.arithmetic,
                        "good": variant.good,
                        "seed": seed,
                        "fixtures": len(got),
                        "outputs": subject.outputs,
                        "file": str(place),
                        "model": str(subject.path),
                    }
                )
            say(f"{subject.network.name} {variant.name}: {why or f'{size / 1e6:.1f} MB'}")
        (folder / "index.json").write_text(json.dumps(entries, indent=1) + "\n")
