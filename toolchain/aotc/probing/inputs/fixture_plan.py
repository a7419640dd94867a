"""The fixtures that prove a domain: the user's, the corners, and random sizes between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.contract.precision.parity import ParitySpec
from aotc.contract.shapes.bucket_choice import bucket_combinations
from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Dim, Domain
from aotc.engine import values
from aotc.errors import AotcError

# The end of names of fixtures whose values are those of the user's samples.
SAMPLED: Final = "-sampled"


class FixtureInputs:
    """Values by input name, and the sizes of the free dims that they imply."""

    def __init__(self, name: str, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
        self.name = name
        self.inputs = inputs
        self.sizes = sizes

    @property
    def is_users(self) -> bool:
        """Whether it holds data of the user's."""
        return self.name.startswith("user") or self.name.endswith(SAMPLED)

    @classmethod
    def read(cls, item: Json, declared: Sequence[Value]) -> FixtureInputs:
        """Load a user's fixture from its value files.

        The sizes follow from the `declared` shapes.  Raises AOTC-I024 if a value has another rank
        or another fixed size than declared.
        """
        inputs = {name: values.load(Path(path)) for name, path in item["inputs"].items()}
        sizes: dict[str, int] = {}
        for value in declared:
            array = inputs.get(value.name)
            shape = getattr(array, "shape", None)
            if shape is None or value.shape is None:
                continue
            same_rank = len(shape) == len(value.shape)
            if not same_rank or any(
                isinstance(d, int) and d != s for d, s in zip(value.shape, shape, strict=True)
            ):
                raise AotcError(
                    "AOTC-I024",
                    f"the fixture's {'size' if same_rank else 'rank'} differs from the input's",
                    where=f"{item['name']}: {value.name}",
                    expected=str(value.shape),
                    found=str(tuple(shape)),
                )
            sizes |= {d: s for d, s in zip(value.shape, shape, strict=True) if isinstance(d, str)}
        return cls(item["name"], inputs, sizes)


# Sizes that are drawn may be known already; then they are drawn again, up to this often.
_MAX_DRAWS = 16


def refuse_out_of_range(given: Sequence[FixtureInputs], stated: Mapping[str, DimRange]) -> None:
    """Raise AOTC-I024 if a user's fixture has a size outside the range that is stated for it."""
    for item in given:
        for name, spec in stated.items():
            if name in item.sizes and not spec.allows(item.sizes[name]):
                raise AotcError(
                    "AOTC-I024",
                    "the fixture's size is outside the stated range",
                    where=f"{item.name}: {name}",
                    expected=f"{spec.min}..{spec.max}" if spec.min < spec.max else str(spec.min),
                    found=str(item.sizes[name]),
                )


def plan_fixtures(
    domain: Domain,
    parity: ParitySpec,
    inputs_at: Callable[[Mapping[str, int]], dict[str, Any]],
    given: Sequence[FixtureInputs],
) -> list[FixtureInputs]:
    """The user's fixtures, the corners of the domain, and random sizes between the corners.

    `inputs_at` generates the inputs for given sizes.
    """
    plan = [FixtureInputs(f"user{i}", item.inputs, item.sizes) for i, item in enumerate(given)]
    if given and not domain.dims:
        return plan
    seen: list[dict[str, int]] = []
    for name, sizes in _points(domain, parity):
        if sizes not in seen:
            seen.append(sizes)
            plan.append(FixtureInputs(name, inputs_at(sizes), sizes))
    return plan


def _points(domain: Domain, parity: ParitySpec) -> Iterator[tuple[str, dict[str, int]]]:
    """Names and sizes: the corners, every combination of buckets, then random sizes."""
    corners: tuple[Literal["opt", "min", "max"], ...] = ("opt", "min", "max")
    known = [domain.corner(which) for which in corners]
    yield from zip(corners, known, strict=True)
    optimal = {name: dim.opt for name, dim in domain.dims.items()}
    for index, buckets in enumerate(bucket_combinations(domain)):
        known.append(domain.complete({**optimal, **buckets}))
        yield f"bucket{index}", known[-1]
    rng = np.random.default_rng(parity.seed)
    for index in range(
        parity.random_shapes if any(d.min < d.max for d in domain.dims.values()) else 0
    ):
        for _ in range(_MAX_DRAWS):
            sizes = domain.complete({name: _draw(dim, rng) for name, dim in domain.dims.items()})
            if sizes not in known:
                known.append(sizes)
                yield f"random{index}", sizes
                break


def lower_edge(domain: Domain, buckets: Mapping[str, int]) -> dict[str, int]:
    """The smallest sizes that are padded to `buckets`, for each dim that can be padded.

    A dim without buckets is padded to its grid; for it, this is its smallest size that is padded.
    """
    edge = {}
    for name, dim in domain.dims.items():
        if dim.pad_from is None:
            continue
        minimum = max(dim.pad_from, 1)
        full = buckets.get(name)
        if full is not None:
            below = [size for size in dim.buckets if size < full]
            minimum = max(minimum, below[-1] + 1 if below else 1)
        elif dim.buckets:
            continue
        else:
            # The smallest size may itself be on the grid.
            minimum = next(
                (s for s in (minimum, minimum + 1) if dim.padded_size(s) not in (s, None)), minimum
            )
            full = dim.padded_size(minimum)
        if full is not None and minimum < full:
            edge[name] = minimum
    return edge


def padded_points(domain: Domain, buckets: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes that are padded to `buckets`, the most telling first.

    First the lower edge, where padding is largest; then the middle, one less than the bucket, and
    multiples of 32 down to 2, for models that accept no other sizes.
    """
    edge = lower_edge(domain, buckets)
    if not edge:
        return []
    optimal = {name: dim.opt for name, dim in domain.dims.items()}
    full = {name: domain.dims[name].padded_size(size) or size for name, size in edge.items()}
    positions: list[Callable[[int, int], int]] = [
        lambda low, high: low,
        lambda low, high: (low + high) // 2,
        lambda low, high: high - 1,
        *((lambda low, high, grid=grid: (high - 1) // grid * grid) for grid in (32, 16, 8, 4, 2)),
    ]
    points: list[dict[str, int]] = []
    for position in positions:
        sizes = {name: position(low, full[name]) for name, low in edge.items()}
        if all(edge[name] <= size < full[name] for name, size in sizes.items()):
            point = domain.complete({**optimal, **buckets, **sizes})
            if point not in points:
                points.append(point)
    return points


def _draw(dim: Dim, rng: np.random.Generator) -> int:
    """A size of the dim, drawn log-uniformly, so that small sizes are tried as well."""
    if dim.buckets and "route" not in dim.outside:
        return int(rng.choice(dim.buckets))
    if dim.min >= dim.max:
        return dim.min
    low, high = max(dim.min, 1), dim.max
    size = round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
    return min(high, max(dim.min, size // dim.multiple_of * dim.multiple_of))


def domain_of_fixtures(dims: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> Domain:
    """The domain that the user's fixtures alone prove: for each dim the sizes that they have."""
    result = {}
    for name in dims:
        seen = sorted({item[name] for item in sizes if name in item})
        if seen:
            result[name] = Dim(min=seen[0], max=seen[-1], opt=seen[0], tested=tuple(seen))
    return Domain(dims=result)
