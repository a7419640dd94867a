"""What the profile states of dims and inputs, checked against the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aotc.contract.parsing import nearest
from aotc.contract.shapes import DimRange
from aotc.errors import AotcError
from aotc.stages.types import BuildOptions, SourceModel


def stated_ranges(source: SourceModel, options: BuildOptions) -> Mapping[str, DimRange]:
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
