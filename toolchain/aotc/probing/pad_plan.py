"""How inputs are padded and outputs cropped, from the profile and from observed runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from aotc.contract.manifest.interface import Value
from aotc.contract.shapes.domain import Domain
from aotc.contract.shapes.padding_rules import Crop, Padding, PadSpec, Side
from aotc.engine.values import numpy_dtype
from aotc.errors import AotcError
from aotc.probing.produced import Axis


def padded_dims(domain: Domain) -> frozenset[str]:
    """Dims that padding enlarges, with those derived from them."""
    found = {name for name, dim in domain.dims.items() if dim.pad_from is not None}
    for relation in domain.relations:
        if found & set(relation.terms):
            found.add(relation.dim)
    return frozenset(found)


def plan_padding(
    domain: Domain,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    axes: Sequence[tuple[Axis | None, ...] | None],
    pads: Mapping[str, PadSpec],
    crops: Mapping[str, Mapping[str, str] | None],
) -> Padding | None:
    """The padding of all inputs that have a padded dim, and the crops of all outputs.

    `axes` are the rules of each output's axes; `crops` are those of the profile, by output and
    axis, and take precedence.  None if nothing is padded.  Raises AOTC-S002 (a pad value of the
    wrong type, an unknown output) and S018.
    """
    dims = padded_dims(domain)
    if not dims:
        return None
    pads_by_input = {}
    for value in inputs:
        if dims & set(value.shape or ()):
            pads_by_input[value.name] = _checked_pad(pads.get(value.name, PadSpec()), value)
    _require_outputs(crops, outputs)
    found: list[Crop] = []
    for value, axis_rules in zip(outputs, axes, strict=True):
        stated = crops.get(value.name)
        if stated is not None:
            found += _stated_crops(
                stated, value, axis_rules, domain, _pad_side(stated.values(), inputs, pads_by_input)
            )
            continue
        for axis, rule in enumerate(axis_rules or ()):
            if rule is None or not rule.is_croppable(dims):
                raise _uncroppable(value, axis, rule)
            if dims & set(rule.dims):
                side = _pad_side(rule.dims, inputs, pads_by_input)
                found.append(
                    Crop(
                        output=value.name,
                        axis=axis,
                        dims=rule.dims,
                        constant=rule.constant,
                        side=side,
                    )
                )
        if axis_rules is None:
            raise _uncroppable(value, None, None)
    return Padding(inputs=pads_by_input, crops=tuple(found))


def _checked_pad(spec: PadSpec, value: Value) -> PadSpec:
    if value.dtype == "string":
        return spec if isinstance(spec.value, str) else PadSpec(value="", side=spec.side)
    dtype = numpy_dtype(value.dtype)
    try:
        with np.errstate(all="ignore"):
            exact = not isinstance(spec.value, str) and bool(
                np.asarray(spec.value).astype(dtype) == spec.value
            )
    except (OverflowError, ValueError):
        exact = False
    # The -1e9 of a mask would become minus infinity in float16.
    with np.errstate(all="ignore"):
        representable = isinstance(spec.value, str) or bool(
            np.isfinite(spec.value)
            == np.isfinite(np.asarray(spec.value).astype(dtype).astype(np.float64))
        )
    if not representable or (not exact and (isinstance(spec.value, str) or dtype.kind in "biu")):
        raise AotcError(
            "AOTC-S002",
            "the pad value is not of the input's type",
            where=f"inputs.{value.name}.pad.value",
            expected=value.dtype,
            found=repr(spec.value),
        )
    return spec


def _require_outputs(
    crops: Mapping[str, Mapping[str, str] | None], outputs: Sequence[Value]
) -> None:
    names = [value.name for value in outputs]
    for name in crops:
        if name not in names:
            raise AotcError(
                "AOTC-S002",
                f"the model has no output {name!r}",
                where=f"outputs.{name}",
                expected=", ".join(names),
            )


def _stated_crops(
    stated: Mapping[str, str],
    value: Value,
    axis_rules: tuple[Axis | None, ...] | None,
    domain: Domain,
    side: Side,
) -> list[Crop]:
    known_dims = {*domain.dims, *(relation.dim for relation in domain.relations)}
    rank = len(axis_rules) if axis_rules is not None else len(value.shape or ()) or None
    found = []
    for axis, dim in stated.items():
        number = int(axis) if axis.isascii() and axis.isdigit() and len(axis) < 4 else -1
        if number < 0 or (rank is not None and number >= rank) or dim not in known_dims:
            raise AotcError(
                "AOTC-S002",
                "the crop names an unknown axis or dim",
                where=f"outputs.{value.name}.crop",
                expected=f"an axis below {rank if rank is not None else 'its rank'}: one of "
                + ", ".join(sorted(known_dims)),
                found=f"{axis}: {dim}",
            )
        found.append(
            Crop(
                output=value.name,
                axis=number,
                dims=(dim,),
                side=side,
            )
        )
    return found


def _pad_side(dims: Iterable[str], inputs: Sequence[Value], pads: Mapping[str, PadSpec]) -> Side:
    """`left` if every input with one of `dims` is padded on the left, else `right`."""
    names = set(dims)
    sides = {pads[v.name].side for v in inputs if v.name in pads and names & set(v.shape or ())}
    return "left" if sides == {"left"} else "right"


def _uncroppable(value: Value, axis: int | None, rule: Axis | None) -> AotcError:
    return AotcError(
        "AOTC-S018",
        f"output {value.name!r} cannot be cropped",
        where=f"output {value.name}" + (f", axis {axis}" if axis is not None else ""),
        expected="a size that is a sum of dims",
        found="not a tensor of fixed rank"
        if axis is None
        else str(rule.text())
        if rule is not None
        else "a size that follows no simple rule",
    )
