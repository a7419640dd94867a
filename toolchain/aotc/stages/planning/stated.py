"""What the profile states of dims and inputs, checked against the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aotc.contract.codec.spelling import nearest
from aotc.contract.manifest.interface import Value
from aotc.contract.shapes.dim_range import DimRange
from aotc.errors import AotcError
from aotc.graphs.symbols import Symbols, ambiguous_name, example_equality
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import SourceModel


def stated_ranges(source: SourceModel, options: BuildOptions) -> Mapping[str, DimRange]:
    """The profile's ranges, by the names of dims after import.

    The profile may use any name of a dim, or a position `INPUT.AXIS`.
    Raises AOTC-S002, S004, and S011 if two names of one dim have different ranges.
    """
    _check_inputs(source, options)
    _check_output_types(source, options)
    dims = {d for value in source.inputs for d in value.shape or () if isinstance(d, str)}
    rankless = {f"{value.name}.0" for value in source.inputs if value.shape is None}
    dims |= rankless
    fixed = {
        f"{value.name}.{index}": size
        for value in source.inputs
        for index, size in enumerate(value.shape or ())
        if isinstance(size, int)
    }
    ranges: dict[str, DimRange] = {}
    called: dict[str, str] = {}
    for name, spec in options.profile.dims.items():
        dim = name if name in dims else source.symbols.dim(name)
        if dim is not None:
            if ranges.setdefault(dim, spec) != spec:
                raise _conflicting_ranges(called[dim], name, ranges[dim], spec)
            called[dim] = name
            if dim in rankless and (spec.buckets or spec.pads):
                raise AotcError(
                    "AOTC-S002",
                    "an input of unknown rank has neither buckets nor padding",
                    where=f"dims.{name}",
                    expected="a range, or one size",
                    found=range_text(spec),
                )
        elif several := source.symbols.dims_of_anonymous(name):
            raise _ambiguous_name(f"dims.{name}", name, several)
        elif name not in fixed:
            raise AotcError(
                "AOTC-S002",
                f"the model has no dim {name!r}",
                where=f"dims.{name}",
                expected=", ".join(sorted(dims)) or "no free dim",
                found=_nearest(name, dims),
            )
        elif not (spec.is_fixed() and spec.min == fixed[name]):
            raise AotcError(
                "AOTC-S004", "the model fixes this dim", where=name, found=f"size {fixed[name]}"
            )
    return ranges


def stated_crops(
    source: SourceModel, options: BuildOptions
) -> Mapping[str, Mapping[str, str] | None]:
    """How the profile crops outputs, by the names of dims after import.

    Raises AOTC-S002 if a name is ambiguous because several dims have it.
    """
    crops: dict[str, Mapping[str, str] | None] = {}
    for name, spec in options.profile.outputs.items():
        for dim in (spec.crop or {}).values():
            several = source.symbols.dims_of_anonymous(dim)
            if source.symbols.dim(dim) is None and several:
                raise _ambiguous_name(f"outputs.{name}.crop", dim, several)
        crops[name] = spec.crop and {
            axis: source.symbols.dim(dim) or dim for axis, dim in spec.crop.items()
        }
    return crops


def _check_inputs(source: SourceModel, options: BuildOptions) -> None:
    by_name = {value.name: value for value in source.inputs}
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
            raise _other_dtype("input", value, stated.dtype)
        if stated.shape is not None and not _matches_shape(
            stated.shape, value.shape, source.symbols
        ):
            raise AotcError(
                "AOTC-S002",
                "the input has another shape",
                where=f"inputs.{name}.shape",
                expected=_shape(value.shape),
                found=_shape(stated.shape),
                fix="Write the model's shape; sizes of its dims are stated under dims.",
            )


def _check_output_types(source: SourceModel, options: BuildOptions) -> None:
    by_name = {value.name: value for value in source.outputs}
    for name, stated in options.profile.outputs.items():
        value = by_name.get(name)
        if value is None and stated.dtype is not None:
            raise AotcError(
                "AOTC-S002",
                f"the model has no output {name!r}",
                where=f"outputs.{name}",
                expected=", ".join(by_name),
                found=_nearest(name, by_name),
            )
        if value is not None and stated.dtype not in (None, value.dtype):
            raise _other_dtype("output", value, stated.dtype)


def _other_dtype(kind: str, value: Value, stated: str | None) -> AotcError:
    return AotcError(
        "AOTC-S002",
        f"the {kind} has another dtype",
        where=f"{kind}s.{value.name}.dtype",
        expected=value.dtype,
        found=stated or "",
        fix="State the model's own dtype. A tensor of float32 may also be float16 or bfloat16.",
    )


def _matches_shape(
    stated: tuple[int | str, ...], shape: tuple[int | str, ...] | None, symbols: Symbols
) -> bool:
    """Whether `stated` is the `shape` of an input, with dims under any of their names."""
    return (
        shape is not None
        and len(stated) == len(shape)
        and all(
            mine == theirs
            or (
                isinstance(mine, str)
                and theirs in (symbols.dim(mine), *symbols.dims_of_anonymous(mine))
            )
            for mine, theirs in zip(stated, shape, strict=True)
        )
    )


def _ambiguous_name(where: str, name: str, dims: tuple[str, ...]) -> AotcError:
    return AotcError(
        "AOTC-S002",
        ambiguous_name(name, dims),
        where=where,
        expected=", ".join(dims),
        fix="Name each dim by its position, or state under relations which of them are equal: "
        f"{example_equality(dims)}.",
    )


def _conflicting_ranges(first: str, second: str, one: DimRange, other: DimRange) -> AotcError:
    return AotcError(
        "AOTC-S011",
        f"{first!r} and {second!r} are one dim, and have two ranges",
        where=f"dims.{second}",
        expected=range_text(one),
        found=range_text(other),
        fix="State the range once.",
    )


def range_text(spec: DimRange) -> str:
    """A stated range in words."""
    sizes = ", ".join(str(size) for size in spec.buckets)
    if not spec.bounded:
        return f"multiples of {spec.multiple_of}"
    bounds = str(spec.min) if spec.min == spec.max else f"{spec.min}..{spec.max}"
    steps = f" in steps of {spec.multiple_of}" if spec.multiple_of > 1 else ""
    return f"{sizes} within {bounds}" if sizes else bounds + steps


def _nearest(name: str, known: Iterable[str]) -> str:
    close = nearest(name, tuple(known))
    return f"nearest: {close}" if close else ""


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "any" if shape is None else f"[{', '.join(str(size) for size in shape)}]"
