"""Guards: what is checked of every call before anything runs, compiled once for an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aotc.contract.codec.spelling import nearest
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.interface import Value
from aotc.contract.shapes.domain import Domain
from aotc.contract.traffic import MAX_SIZE
from aotc.engine.values import Data, describe, numpy_dtype
from aotc.errors import AotcError

# Of inputs, in one message.
_MOST_NAMES = 5
_STATED_MEND = (
    "Rebuild with a profile that allows it: a larger max, or outside: pad or route for this dim."
)


class Checked(NamedTuple):
    """A call that may run: its inputs as arrays, the sizes of its dims, the dims out of bounds."""

    inputs: dict[str, Data]
    sizes: dict[str, int]
    outside: tuple[str, ...]

    @property
    def in_domain(self) -> bool:
        """Whether all sizes lie where something was proven."""
        return not self.outside


class _Plan(NamedTuple):
    """One input, taken apart so that a check touches plain tuples only."""

    value: Value
    name: str
    tensor: bool
    dtype: np.dtype[Any]
    text: bool
    rank: int
    fixed: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, str], ...]


class Guard:
    """Checks calls against a manifest; safe from many threads."""

    def __init__(self, manifest: Manifest, domain: Domain | None = None) -> None:
        """`domain` replaces the manifest's where a variant has a narrower one."""
        self._plans = tuple(_plan(value) for value in manifest.inputs)
        self._names = frozenset(plan.name for plan in self._plans)
        self.tensors = tuple(plan.name for plan in self._plans if plan.tensor)
        """Names of the inputs that are tensors."""
        domain = manifest.domain if domain is None else domain
        self._dims = tuple(domain.dims.items())
        self._relations = domain.relations
        self._held = _held(domain)
        # The build wrote these sizes into the graph: another cannot run.
        self._static = tuple(
            (name, dim.min)
            for name, dim in domain.dims.items()
            if dim.origin == "stated" and dim.min == dim.max and dim.pad_from is None
        )
        self._vectors = {
            plan.name for plan in self._plans if plan.rank < 0 and f"{plan.name}.0" in domain.dims
        }
        self._strict = manifest.strict
        # Beyond the range of a routed dim without buckets the dynamic variant runs, unproven.
        self._stated = frozenset(
            name
            for name, dim in domain.dims.items()
            if dim.origin == "stated" and (dim.buckets or "route" not in dim.outside)
        )
        self._emptiable = frozenset(name for name, dim in domain.dims.items() if dim.min == 0)

    def check(self, inputs: Mapping[str, Data]) -> Checked:
        """Check one call.  Array-likes are taken where their element type is the model's already.

        Raises AOTC-R001 (names), R002 (types), R003 (ranks), R004 (sizes, relations), and
        AOTC-S010 where a size lies outside of what the profile states, or, if the artifact is
        strict, of what was proven; R010 (a dim without elements) and R011 (not contiguous).
        """
        if inputs.keys() != self._names:
            inputs = self._with_optionals(inputs)
        arrays: dict[str, Data] = {}
        sizes: dict[str, int] = {}
        odd: list[str] = []
        tight = True
        for plan in self._plans:
            value = inputs[plan.name]
            if not plan.tensor:
                arrays[plan.name] = _checked_container(plan, value)
                continue
            if plan.text or type(value) is not np.ndarray or value.dtype is not plan.dtype:
                value = _array(plan, value)
            arrays[plan.name] = value
            shape = value.shape
            tight = tight and value.flags.c_contiguous
            if plan.rank < 0:
                # The build proves an input of unknown rank as a vector of `NAME.0` elements.
                if len(shape) == 1:
                    sizes[f"{plan.name}.0"] = shape[0]
                elif plan.name in self._vectors:
                    odd.append(f"{plan.name}.0")
                continue
            if len(shape) != plan.rank:
                _refuse_rank(plan, shape)
            for axis, size in plan.fixed:
                if shape[axis] != size:
                    _refuse_size(plan, axis, shape)
            for axis, dim in plan.named:
                if sizes.setdefault(dim, shape[axis]) != shape[axis]:
                    self._refuse_dim(plan, dim, sizes[dim], shape[axis])
        loose: tuple[str, ...] = ()
        beyond: tuple[str, ...] = ()
        for relation in self._relations:
            if not relation.is_broken(sizes):
                continue
            if not relation.enforced:
                loose += (relation.dim,)
                held = self._held.get(relation.dim)
                if held is not None and sizes[relation.dim] not in held:
                    beyond += (relation.dim,)
            else:
                raise AotcError(
                    "AOTC-R004",
                    f"dims disagree: {relation}",
                    where=f"dim {relation.dim}",
                    expected=str(relation.value(sizes)),
                    found=str(sizes[relation.dim]),
                )
        for name, size in self._static:
            if sizes.get(name, size) != size:
                raise AotcError(
                    "AOTC-R004",
                    f"dim {name} was fixed when the artifact was built",
                    where=f"dim {name}",
                    expected=str(size),
                    found=str(sizes[name]),
                )
        if 0 in sizes.values():
            self._refuse_empty(sizes)
        if not tight:
            self._refuse_strides(arrays)
        outside = (
            *odd,
            *loose,
            *(name for name, dim in self._dims if name in sizes and not dim.accepts(sizes[name])),
        )
        if outside:
            refused = outside if self._strict else self._stated.intersection(outside).union(beyond)
            if refused:
                self._refuse_outside(tuple(n for n in outside if n in refused), sizes)
        return Checked(arrays, sizes, outside)

    def meant(self, inputs: Mapping[str, Data]) -> dict[str, Data] | None:
        """Tensors of a call that was refused, where its shapes are ones that the model can have.

        None where an input has another rank or type, or dims disagree: a mistake of the caller,
        which says nothing of the sizes that production needs.
        """
        arrays: dict[str, Data] = {}
        sizes: dict[str, int] = {}
        for plan in self._plans:
            if not plan.tensor:
                continue
            try:
                array = _array(plan, inputs.get(plan.name))
            except AotcError:
                return None
            shape = array.shape
            if (
                len(shape) != (plan.rank if plan.rank >= 0 else 1)
                or max(shape, default=0) > MAX_SIZE
            ):
                return None
            named = plan.named if plan.rank >= 0 else ((0, f"{plan.name}.0"),)
            if any(shape[axis] != size for axis, size in plan.fixed) or any(
                sizes.setdefault(dim, shape[axis]) != shape[axis] for axis, dim in named
            ):
                return None
            arrays[plan.name] = array
        return None if any(r.enforced and r.is_broken(sizes) for r in self._relations) else arrays

    def _with_optionals(self, inputs: Mapping[str, Data]) -> Mapping[str, Data]:
        """`inputs` with None for optional ones left out; raises AOTC-R001 for all other faults."""
        errors: list[str] = []
        missing = [plan for plan in self._plans if plan.name not in inputs]
        for name in inputs:
            if name not in self._names:
                told = len(errors) < _MOST_NAMES
                close = nearest(str(name), tuple(plan.name for plan in missing)) if told else ""
                hint = f"; did you mean {close!r}?" if close else ""
                errors.append(f"the model has no input {name!r}{hint}")
        for plan in missing:
            if plan.value.kind != "optional":
                errors.append(f"input {plan.name!r} is missing")
        if errors:
            more = len(errors) - _MOST_NAMES
            if more > 0:
                errors[_MOST_NAMES:] = [f"{more} more names do not fit"]
            made = [
                AotcError(
                    "AOTC-R001",
                    error,
                    where="inputs",
                    expected=_few(plan.name for plan in self._plans),
                    found=_few(str(name) for name in inputs) or "no inputs",
                )
                for error in errors
            ]
            made[0].also = tuple(made[1:])
            raise made[0]
        return {plan.name: inputs.get(plan.name) for plan in self._plans}

    def _refuse_dim(self, plan: _Plan, dim: str, before: int, size: int) -> NoReturn:
        first = next(other.name for other in self._plans if (dim in dict(other.named).values()))
        raise AotcError(
            "AOTC-R004",
            f"dim {dim!r} has two sizes in one call",
            where=f"input {plan.name}",
            expected=f"{before}, as in input {first!r}",
            found=str(size),
        )

    def _refuse_empty(self, sizes: Mapping[str, int]) -> None:
        """Refuse a dim of size zero, unless it may be empty, or follows from dims that may."""
        derived = {each.dim for each in self._relations if not each.is_broken(sizes)}
        for name, size in sizes.items():
            if size == 0 and name not in self._emptiable and name not in derived:
                raise AotcError(
                    "AOTC-R010",
                    f"dim {name!r} has no elements",
                    where=f"dim {name}",
                    expected=dict(self._dims)[name].text() if name in dict(self._dims) else ">= 1",
                    found="0",
                )

    def _refuse_strides(self, arrays: Mapping[str, Any]) -> NoReturn:
        plan = next(p for p in self._plans if p.tensor and not arrays[p.name].flags.c_contiguous)
        array = arrays[plan.name]
        raise AotcError(
            "AOTC-R011",
            f"input {plan.name!r} is not contiguous",
            where=f"input {plan.name}",
            expected="elements in C order, one after the other",
            found=f"shape {_shape(array.shape)} with strides of {_shape(array.strides)} bytes",
        )

    def _refuse_outside(self, outside: tuple[str, ...], sizes: Mapping[str, int]) -> NoReturn:
        wanted = {name: dim.text() for name, dim in self._dims}
        wanted |= {each.dim: str(each) for each in self._relations}
        if not self._strict:
            wanted |= {name: f"{held[0]}..{held[-1]}" for name, held in self._held.items()}
        made = [
            AotcError(
                "AOTC-S010",
                f"dim {name!r} is outside of the proven range",
                where=f"dim {name}",
                expected=wanted[name],
                found=str(sizes.get(name, "an input that is no vector")),
                fix=_STATED_MEND if name in self._stated else "",
            )
            for name in outside
        ]
        made[0].also = tuple(made[1:])
        raise made[0]


def _held(domain: Domain) -> dict[str, range]:
    """Sizes of dims that the profile bounds, and that follow by what is no law."""
    loose = [each.dim for each in domain.relations if each.stated and not each.enforced]
    low, high = (domain.corner("min"), domain.corner("max")) if loose else ({}, {})
    return {dim: range(low[dim], high[dim] + 1) for dim in loose}


def _few(names: Iterable[str]) -> str:
    """The first names, and how many there are beside them."""
    every = tuple(names)
    more = len(every) - _MOST_NAMES
    text = ", ".join(every[:_MOST_NAMES])
    return f"{text} and {more} more" if more > 0 else text


def _plan(value: Value) -> _Plan:
    shape = value.shape if value.shape is not None else ()
    return _Plan(
        value=value,
        name=value.name,
        tensor=value.kind == "tensor",
        dtype=numpy_dtype(value.dtype),
        text=value.dtype == "string",
        rank=-1 if value.shape is None else len(shape),
        fixed=tuple((axis, size) for axis, size in enumerate(shape) if isinstance(size, int)),
        named=tuple((axis, dim) for axis, dim in enumerate(shape) if isinstance(dim, str)),
    )


def _array(plan: _Plan, value: Data) -> np.ndarray[Any, Any]:
    """`value` as an array of the model's element type; no cast, as that would change values."""
    if value is None or isinstance(value, dict):
        _refuse_type(plan, describe(value))
    try:
        array = np.asarray(value)
    except ValueError:
        _refuse_type(plan, "a ragged list")
    if plan.text:
        # ONNX Runtime would turn any object into text.
        if array.dtype.kind not in "OUT" or not all(isinstance(t, str) for t in array.flat):
            _refuse_type(plan, "other objects" if array.dtype.kind == "O" else describe(array))
        return array
    if array.dtype != plan.dtype:
        _refuse_type(plan, describe(array) if array.dtype.isnative else f"{array.dtype.str} array")
    return array


def _checked_container(plan: _Plan, value: Data) -> Data:
    """Check an optional, a sequence or a map; raises AOTC-R002 and R003."""
    kind = plan.value.kind
    if kind == "optional":
        if value is None:
            return None
        return (
            _checked_list(plan, value) if isinstance(value, list | tuple) else _array(plan, value)
        )
    if kind == "sequence":
        if not isinstance(value, list | tuple):
            _refuse_type(plan, describe(value))
        return _checked_list(plan, value)
    if kind == "map":
        maps = value if isinstance(value, list | tuple) else [value]
        wanted = str if plan.text else int
        for item in maps:
            if not isinstance(item, dict) or not all(isinstance(key, wanted) for key in item):
                _refuse_type(plan, describe(value))
    return value


def _checked_list(plan: _Plan, value: list[Data] | tuple[Data, ...]) -> list[Data]:
    arrays = [_array(plan, item) for item in value]
    for array in arrays:
        if plan.rank >= 0 and array.ndim != plan.rank:
            _refuse_rank(plan, array.shape)
        for axis, size in plan.fixed:
            if array.shape[axis] != size:
                _refuse_size(plan, axis, array.shape)
    return arrays


def _refuse_type(plan: _Plan, found: str) -> NoReturn:
    kind, dtype = plan.value.kind, plan.value.dtype
    expected = {
        "tensor": f"{dtype} array",
        "sequence": f"list of {dtype} arrays",
        "optional": f"{dtype} array, list of them, or None",
        "map": f"dict with {'str' if plan.text else 'int'} keys",
    }.get(kind, kind)
    raise AotcError(
        "AOTC-R002",
        f"input {plan.name!r} has another type",
        where=f"input {plan.name}",
        expected=expected,
        found=found,
    )


def _refuse_rank(plan: _Plan, shape: tuple[int, ...]) -> NoReturn:
    raise AotcError(
        "AOTC-R003",
        f"input {plan.name!r} has another number of dims",
        where=f"input {plan.name}",
        expected=f"{plan.rank}: {_shape(plan.value.shape or ())}",
        found=f"{len(shape)}: {_shape(shape)}",
    )


def _refuse_size(plan: _Plan, axis: int, shape: tuple[int, ...]) -> NoReturn:
    raise AotcError(
        "AOTC-R004",
        f"dim {axis} of input {plan.name!r} has another size",
        where=f"input {plan.name}",
        expected=f"{dict(plan.fixed)[axis]}: {_shape(plan.value.shape or ())}",
        found=f"{shape[axis]}: {_shape(shape)}",
    )


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"
