"""Inputs of runs and benches: given, those of fixtures, or made where an artifact holds none.

Made are values within the ranges that the manifest records of the proof's inputs, as neither the
user's data nor large fixtures ship.  Nothing here needs onnx, but for a folder of ONNX test data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from aotc.base.errors import AotcError, missing_package
from aotc.base.records import record, replace
from aotc.base.text import did_you_mean
from aotc.graph import values
from aotc.graph.allowed_arrays import cut_to_allowed, draw
from aotc.runtime import value_files
from aotc.runtime.model import Model
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding, Value
from aotc.spec.shapes import sizes_in_words

SEED: Final = 1729
# What is drawn where nothing is recorded: valid as a number, a mask and an index.
_PLAIN: Final = AllowedValues(min=0, max=1)
_TRUTHS: Final = AllowedValues(values=(0, 1))
Inputs = dict[str, values.Data]


@record(kw_only=False)
class Example:
    """Inputs of one run, by name; `finding` is AOTC-I114 if they were made.

    `sizes` are those of dims, None where they are those of given inputs.
    """

    name: str
    inputs: Inputs
    sizes: Mapping[str, int] | None = None
    finding: Finding | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the first run: AOTC-I113 if made inputs are none that the model runs with."""
        try:
            yield
        except AotcError as error:
            if self.finding is None or error.code != "AOTC-R005":
                raise
            what = "the model does not run with the inputs that were made"
            raise AotcError("AOTC-I113", what, found=error.found or error.what) from None

    def findings(self) -> tuple[Finding, ...]:
        """That inputs were made, if they were."""
        return () if self.finding is None else (self.finding,)


def examples(
    model: Model, given: Mapping[str, values.Data] | Sequence[str | Path]
) -> Iterator[Example]:
    """The inputs that are `given`, else those of each fixture, else made ones at optimal sizes.

    `given` are arrays by name, or words: `NAME=FILE`, `FILE.npz` or folders of ONNX test data.
    Raises AOTC-I001, I019, I027 and, where inputs cannot be made, I113.
    """
    manifest = model.manifest
    if given:
        read = dict(given) if isinstance(given, Mapping) else _read(given, model.inputs)
        yield Example("inputs", read)
        return
    for fixture in manifest.fixtures:
        yield Example(fixture.name, value_files.read_fixture(model.payload, fixture), fixture.sizes)
    if not manifest.fixtures:
        yield made_example(manifest, manifest.domain.corner("opt"))


def example_at(
    model: Model, given: Mapping[str, values.Data] | Sequence[str | Path], sizes: Mapping[str, int]
) -> tuple[Example, dict[str, int]]:
    """The first of the `examples` with the dims in `sizes` resized, and the sizes of all dims.

    Raises as `examples` does, and AOTC-I027 if there is no such dim.
    """
    domain = model.manifest.domain
    known = tuple(domain.dims)
    for name in sizes:
        if name not in known:
            raise AotcError(
                "AOTC-I027",
                f"the artifact has no free dim {name!r}{did_you_mean(name, known)}",
                expected=", ".join(known),
                found=name,
            )
    example = next(examples(model, given))
    found = dict(model.route(example.inputs).sizes if example.sizes is None else example.sizes)
    if not sizes:
        return example, found
    used = domain.complete({**{name: found[name] for name in known if name in found}, **sizes})
    if example.finding is not None:
        return made_example(model.manifest, used), used
    resized = value_files.resize(example.inputs, model.inputs, used)
    return replace(example, inputs=resized), used


def _read(words: Sequence[str | Path], inputs: Sequence[Value]) -> Inputs:
    texts = [str(word) for word in words]
    folders = [text for text in texts if Path(text).is_dir()]
    if not folders:
        return value_files.read_inputs(texts, inputs)
    if len(texts) > 1:
        what = "a folder of test data holds all inputs, and nothing can be given beside it"
        raise AotcError("AOTC-I027", what, where=f"--input {folders[0]}", found=" ".join(texts))
    from aotc.sizes.inputs.fixtures import read_test_data

    try:
        return read_test_data(Path(texts[0]), inputs, refusal="AOTC-I027")
    except ModuleNotFoundError as error:
        raise missing_package(error, "a folder of ONNX test data") from None


def made_example(manifest: Manifest, sizes: Mapping[str, int]) -> Example:
    """Inputs drawn at `sizes` from a seed: equal calls give equal values.

    They are within what the manifest records of an input, else within what it is held to, else from
    0 to 1.  Raises AOTC-I113 for an input that is no tensor, or text of which nothing is known.
    """
    inputs: Inputs = {}
    for position, value in enumerate(manifest.inputs):
        seen, allowed = manifest.input_ranges.get(value.name), value.allowed
        if allowed is not None and (allowed.values or seen is None):
            seen = allowed
        if value.kind != "tensor" or (value.dtype == "string" and seen is None):
            raise AotcError(
                "AOTC-I113",
                "the artifact holds no fixture, no input was given, and this one cannot be made",
                where=f"input {value.name}",
                expected="a tensor of numbers or truth values",
                found=f"a {value.kind} of {value.dtype}",
            )
        plain = _TRUTHS if value.dtype == "bool" else _PLAIN
        drawn = draw(
            replace(value, allowed=seen or plain),
            value.shape_at(sizes),
            sizes,
            (0, 1),
            np.random.default_rng((SEED, position)),
        )
        inputs[value.name] = cut_to_allowed(drawn, value, sizes)
    return Example("made", inputs, sizes, _finding(manifest, sizes))


def _finding(manifest: Manifest, sizes: Mapping[str, int]) -> Finding:
    within = "values within the ranges of the proof" if manifest.input_ranges else "values 0 to 1"
    stated = sizes_in_words(sizes)
    at = f"sizes {stated}" if stated else "fixed sizes"
    return Finding(code="AOTC-I114", what=f"inputs were made: seed {SEED}, {at}, {within}")
