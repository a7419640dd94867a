"""Guards: checks of every call before anything runs, prepared once for an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aotc.base.errors import AotcError, with_others
from aotc.base.text import did_you_mean
from aotc.graph.allowed_arrays import require_allowed
from aotc.graph.values import Data, describe, numpy_dtype
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Value
from aotc.spec.shapes import Domain
from aotc.spec.traffic import MAX_SIZE

# How many inputs one message names.
_MAX_NAMES = 5
_STATED_FIX = (
    "Rebuild with a profile that allows it: a larger max, or outside: pad or route for this dim."
)


class CheckedCall(NamedTuple):
    """A call that may run: its inputs as arrays, the sizes of its dims, the dims out of range.

    `copied` are the inputs whose elements were brought into C order.
    """

    inputs: dict[str, Data]
    sizes: dict[str, int]
    outside: tuple[str, ...]
    copied: tuple[str, ...] = ()


class _Plan(NamedTuple):
    """The checks of one input, as plain tuples, so that a check is fast."""

    value: Value
    name: str
    tensor: bool
    dtype: np.dtype[Any]
    text: bool
    rank: int
    fixed: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, str], ...]


class Guard:
    """Checks calls against a manifest; thread-safe."""

    def __init__(self, manifest: Manifest, domain: Domain | None = None) -> None:
        """`domain` replaces the manifest's if a variant has a narrower one."""
        self._plans = tuple(_plan(value) for value in manifest.inputs)
        self._names = frozenset(plan.name for plan in self._plans)
        self.tensors = tuple(plan.name for plan in self._plans if plan.tensor)
        """Names of the inputs that are tensors."""
        domain = manifest.domain if domain is None else domain
        self._dims = tuple(domain.dims.items())
        self._relations = domain.relations
        self._stated_ranges = _stated_ranges(domain)
        # The build wrote these sizes into the graph: others cannot run.
        self._static = tuple(
            (name, dim.min)
            for name, dim in domain.dims.items()
            if dim.origin == "stated" and dim.min == dim.max and dim.pad_from is None
        )
        self._vectors = {
            plan.name for plan in self._plans if plan.rank < 0 and f"{plan.name}.0" in domain.dims
        }
        self.limited = tuple(value for value in manifest.inputs if value.allowed is not None)
        """The inputs whose values the profile states."""
        random = manifest.random
        self._drawn = {n.input: n.drawn() for n in random.nodes} if random is not None else {}
        self._strict = manifest.strict
        self._domain = domain
        # Outside the range of a routed dim without buckets, the dynamic variant runs unproven.
        self._stated = frozenset(
            name
            for name, dim in domain.dims.items()
            if dim.origin == "stated" and (dim.buckets or "route" not in dim.outside)
        )

    def check(self, inputs: Mapping[str, Data]) -> CheckedCall:
        """Check one call.  Array-likes are accepted if their element type is already the model's.

        Raises AOTC-R001 (names), R002 (types), R003 (ranks), R004 (sizes, relations), and AOTC-S010
        if a size is outside the range that the profile states or, if the artifact is strict,
        outside the proven one; R010 (size 0, where the model was seen to fail), and R027 (values).
        """
        checked = self.check_shapes(inputs)
        if self.limited:
            self.check_values(checked.inputs, checked.sizes)
        return checked

    def check_values(self, arrays: Mapping[str, Data], sizes: Mapping[str, int]) -> None:
        """Raise AOTC-R027 if a value of a call of `sizes` is not among those that are stated.

        Only inputs with a statement are read, each of them once for each of its ends.
        """
        require_allowed(arrays, self.limited, sizes, code="AOTC-R027")

    def check_shapes(self, inputs: Mapping[str, Data]) -> CheckedCall:
        """`check` without a look at any element."""
        if inputs.keys() != self._names:
            inputs = self._with_optionals(inputs)
        arrays: dict[str, Data] = {}
        sizes: dict[str, int] = {}
        not_vectors: list[str] = []
        contiguous = True
        for plan in self._plans:
            value = inputs[plan.name]
            if not plan.tensor:
                arrays[plan.name] = _checked_container(plan, value)
                continue
            if plan.text or type(value) is not np.ndarray or value.dtype is not plan.dtype:
                value = _as_array(plan, value)
            arrays[plan.name] = value
            shape = value.shape
            contiguous = contiguous and value.flags.c_contiguous
            if plan.rank < 0:
                # The build proves an input of unknown rank as a vector with `NAME.0` elements.
                if len(shape) == 1:
                    sizes[f"{plan.name}.0"] = shape[0]
                elif plan.name in self._vectors:
                    not_vectors.append(f"{plan.name}.0")
                continue
            if len(shape) != plan.rank:
                _refuse_rank(plan, shape)
            for axis, size in plan.fixed:
                if shape[axis] != size:
                    _refuse_size(plan, axis, shape)
            for axis, dim in plan.named:
                if sizes.setdefault(dim, shape[axis]) != shape[axis]:
                    self._refuse_dim(plan, dim, sizes[dim], shape[axis])
        broken: tuple[str, ...] = ()
        unstated: tuple[str, ...] = ()
        for relation in self._relations:
            if not relation.is_broken(sizes):
                continue
            if not relation.enforced:
                broken += (relation.dim,)
                stated_range = self._stated_ranges.get(relation.dim)
                if stated_range is not None and sizes[relation.dim] not in stated_range:
                    unstated += (relation.dim,)
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
        outside = (
            *not_vectors,
            *broken,
            *(name for name, dim in self._dims if name in sizes and not dim.accepts(sizes[name])),
        )
        if outside and self._domain.also and not not_vectors and not broken:
            outside = () if self._domain.accepts(sizes) else outside
        if outside:
            refused = (
                outside if self._strict else self._stated.intersection(outside).union(unstated)
            )
            if refused:
                self._refuse_outside(tuple(n for n in outside if n in refused), sizes)
        return CheckedCall(arrays, sizes, outside, () if contiguous else self._in_order(arrays))

    def intended_tensors(self, inputs: Mapping[str, Data]) -> dict[str, Data] | None:
        """Tensors of a refused call, if the model can have such shapes.

        None if an input has the wrong rank or type, or dims disagree: this is a mistake of the
        caller, which says nothing about the sizes that production needs.
        """
        arrays: dict[str, Data] = {}
        sizes: dict[str, int] = {}
        for plan in self._plans:
            if not plan.tensor:
                continue
            try:
                array = _as_array(plan, inputs.get(plan.name))
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
        """`inputs` with None for omitted optional ones; raises AOTC-R001 for all other faults."""
        problems: list[str] = []
        missing = [plan for plan in self._plans if plan.name not in inputs]
        for name in inputs:
            if name not in self._names:
                is_shown = len(problems) < _MAX_NAMES
                hint = did_you_mean(name, (plan.name for plan in missing)) if is_shown else ""
                problems.append(f"the model has no input {name!r}{hint}")
        for plan in missing:
            if plan.value.kind != "optional":
                drawn = self._drawn.get(plan.name)
                told = f": pass random numbers ({drawn})" if drawn else ""
                problems.append(f"input {plan.name!r} is missing{told}")
        if problems:
            more = len(problems) - _MAX_NAMES
            if more > 0:
                problems[_MAX_NAMES:] = [f"{more} more names do not fit"]
            raise with_others(
                AotcError(
                    "AOTC-R001",
                    problem,
                    where="inputs",
                    expected=_first_names(plan.name for plan in self._plans),
                    found=_first_names(str(name) for name in inputs) or "no inputs",
                )
                for problem in problems
            )
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
        """Raise AOTC-R010 if the model was seen to fail where these dims have size 0."""
        failing = self._domain.empty_where_it_fails(sizes)
        if not failing:
            return
        dims = self._domain.dims
        least = {name: dims[name].least if name in dims else 1 for name in sorted(failing)}
        raise AotcError(
            "AOTC-R010",
            "no elements, where the model needs some",
            where=f"dim {', '.join(least)}",
            expected=" or ".join(f"{name} >= {size}" for name, size in least.items()),
            found="0",
        )

    def _in_order(self, arrays: dict[str, Any]) -> tuple[str, ...]:
        """Bring all tensors into C order, as ONNX Runtime would do; the names of those copied."""
        copied = tuple(name for name in self.tensors if not arrays[name].flags.c_contiguous)
        # Not by numpy.ascontiguousarray, which makes a scalar a vector.
        arrays.update((name, np.asarray(arrays[name], order="C")) for name in copied)
        return copied

    def _refuse_outside(self, outside: tuple[str, ...], sizes: Mapping[str, int]) -> NoReturn:
        wanted = {name: dim.text() for name, dim in self._dims}
        wanted |= {relation.dim: str(relation) for relation in self._relations}
        if not self._strict:
            wanted |= {
                name: f"{stated_range[0]}..{stated_range[-1]}"
                for name, stated_range in self._stated_ranges.items()
            }
        raise with_others(
            AotcError(
                "AOTC-S010",
                f"dim {name!r} is outside the proven range",
                where=f"dim {name}",
                expected=wanted[name],
                found=str(sizes.get(name, "an input that is not a vector")),
                fix=_STATED_FIX if name in self._stated else "",
            )
            for name in outside
        )


def _stated_ranges(domain: Domain) -> dict[str, range]:
    """Stated sizes of dims that derive from relations that are not enforced."""
    broken = [item.dim for item in domain.relations if item.stated and not item.enforced]
    low, high = (domain.corner("min"), domain.corner("max")) if broken else ({}, {})
    return {dim: range(low[dim], high[dim] + 1) for dim in broken}


def _first_names(names: Iterable[str]) -> str:
    """The first names, and the number of the others."""
    all_names = tuple(names)
    further = len(all_names) - _MAX_NAMES
    text = ", ".join(all_names[:_MAX_NAMES])
    return f"{text} and {further} more" if further > 0 else text


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


def _as_array(plan: _Plan, value: Data) -> np.ndarray[Any, Any]:
    """`value` as an array of the model's element type; never cast, as that would change values."""
    if value is None or isinstance(value, dict):
        _refuse_type(plan, describe(value))
    try:
        array = np.asarray(value)
    except ValueError:
        _refuse_type(plan, "a ragged list")
    if plan.text:
        # ONNX Runtime would convert any object to text.
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
        is_list = isinstance(value, list | tuple)
        return _checked_list(plan, value) if is_list else _as_array(plan, value)
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
    arrays = [_as_array(plan, item) for item in value]
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
        f"input {plan.name!r} has the wrong type",
        where=f"input {plan.name}",
        expected=expected,
        found=found,
    )


def _refuse_rank(plan: _Plan, shape: tuple[int, ...]) -> NoReturn:
    raise AotcError(
        "AOTC-R003",
        f"input {plan.name!r} has the wrong number of dims",
        where=f"input {plan.name}",
        expected=f"{plan.rank}: {_shape(plan.value.shape or ())}",
        found=f"{len(shape)}: {_shape(shape)}",
    )


def _refuse_size(plan: _Plan, axis: int, shape: tuple[int, ...]) -> NoReturn:
    raise AotcError(
        "AOTC-R004",
        f"dim {axis} of input {plan.name!r} has the wrong size",
        where=f"input {plan.name}",
        expected=f"{dict(plan.fixed)[axis]}: {_shape(plan.value.shape or ())}",
        found=f"{shape[axis]}: {_shape(shape)}",
    )


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"
