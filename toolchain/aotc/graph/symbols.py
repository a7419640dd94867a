"""The names of a model's dims after the profile's relations: one name for each dim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.base.text import nearest
from aotc.spec.codec import ParseError
from aotc.spec.payload import Value
from aotc.spec.relations import (
    CODE,
    Equality,
    in_dependency_order,
    ordering_problem,
    quoted,
    read_relations,
    renamed,
    representatives,
)
from aotc.spec.shapes import Relation


@record
class Statement:
    """One relation that the profile states, as relations among the dims that the model declares."""

    text: str
    relations: tuple[Relation, ...]


@record
class Symbols:
    """The dims of the inputs: their declared names, and their names from here on."""

    declared: Annotated[tuple[Value, ...], "inputs as the model declares them"] = ()
    names: Annotated[Mapping[str, str], "new name by declared dim, if they differ"] = field(
        default_factory=dict
    )
    relations: Annotated[tuple[Relation, ...], "sums, by new names, each after its terms"] = ()
    statements: tuple[Statement, ...] = ()
    anonymous: Annotated[Mapping[str, tuple[str, ...]], "positions by anonymous name"] = field(
        default_factory=dict
    )

    def dim(self, name: str) -> str | None:
        """The dim that `name` refers to: by its name, a declared one, or a position `INPUT.AXIS`.

        An anonymous name, such as `unk__12`, refers to the one dim that has it.  None if the model
        has no such free dim, or several.
        """
        dims = free_dims(self.declared)
        if name in self.names.values():
            return name
        found = name if name in dims else sizes_by_position(self.declared).get(name)
        if found is None:
            candidates = self.dims_of_anonymous(name)
            return candidates[0] if len(candidates) == 1 else None
        return self.names.get(found, found) if isinstance(found, str) else None

    def dims_of_anonymous(self, name: str) -> tuple[str, ...]:
        """The dims with this anonymous name; empty for any other name."""
        positions = self.anonymous.get(name, ())
        return tuple(dict.fromkeys(self.names.get(position, position) for position in positions))

    def shape(self, shape: tuple[int | str, ...] | None) -> tuple[int | str, ...] | None:
        """`shape` with the new names of its dims."""
        if shape is None:
            return None
        return tuple(self.names.get(d, d) if isinstance(d, str) else d for d in shape)

    def inputs(self) -> tuple[Value, ...]:
        """The inputs with the new names of their dims."""

        def renamed_value(value: Value) -> Value:
            allowed = value.allowed
            if allowed is not None:
                allowed = allowed.with_dims(lambda dim: self.names.get(dim, dim))
            return replace(value, shape=self.shape(value.shape), allowed=allowed)

        return tuple(renamed_value(value) for value in self.declared)


def symbols_of(
    texts: Sequence[str],
    inputs: Sequence[Value],
    anonymous: Mapping[str, tuple[str, ...]] | None = None,
) -> Symbols:
    """Apply the relations `texts` of a profile to the dims of `inputs`.

    `anonymous` are the positions of dims by their anonymous name in the model.  Raises AOTC-S015 if
    a relation cannot be parsed, names a dim that the model lacks or is circular, and AOTC-S004 if
    it names a position with a fixed size.
    """
    try:
        read = read_relations(texts)
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(CODE, first.what, where=f"relations{first.path}") from None
    anonymous = anonymous or {}
    naming = _Naming(texts, read, inputs, anonymous)
    names = naming.names()
    sums = naming.sums()
    ordered = in_dependency_order(sums)
    if what := ordering_problem(sums):
        raise AotcError(CODE, what, where="relations")
    return Symbols(
        declared=tuple(inputs),
        names={old: new for old, new in names.items() if old != new},
        relations=ordered,
        statements=naming.statements(),
        anonymous=anonymous,
    )


class _Naming:
    """Resolves each name in the relations, and picks one name for each class of equal dims."""

    def __init__(
        self,
        texts: Sequence[str],
        read: Sequence[Equality | Relation],
        inputs: Sequence[Value],
        anonymous: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._anonymous = anonymous
        self._texts = texts
        self._read = read
        self._dims = free_dims(inputs)
        self._positions = sizes_by_position(inputs)
        self._rankless = {f"{v.name}.0" for v in inputs if v.shape is None and v.kind == "tensor"}
        self._new: dict[str, None] = {}
        self._equal = [
            (
                index,
                Equality(names=tuple(self._resolve(name, index, new=True) for name in item.names)),
            )
            for index, item in enumerate(read)
            if isinstance(item, Equality)
        ]
        roots = representatives(equality for _, equality in self._equal)
        self._classes: dict[str, list[str]] = {}
        for name, root in roots.items():
            self._classes.setdefault(root, []).append(name)
        self._require_known_names()

    def names(self) -> dict[str, str]:
        """The name of its class, by declared dim; inputs of unknown rank keep their names."""
        result: dict[str, str] = {}
        for members in self._classes.values():
            name = self._class_name(members)
            result |= {
                dim: name for dim in members if dim in self._dims and dim not in self._rankless
            }
        return result

    def sums(self) -> list[Relation]:
        """Relations of unified dims: those stated, and inputs of unknown rank that equal others."""
        found = [renamed(relation, self._names_by_alias()) for _, relation in self._stated_sums()]
        for members in self._classes.values():
            name = self._class_name(members)
            found += [
                Relation(dim=dim, terms=(name,))
                for dim in members
                if dim in self._rankless and dim != name
            ]
        return found

    def statements(self) -> tuple[Statement, ...]:
        """The statements among declared dims, where relations make equal dims equal."""
        found = []
        first: dict[str, str] = {}
        for members in self._classes.values():
            known = [dim for dim in members if dim in self._dims]
            first |= dict.fromkeys([*members, self._class_name(members)], known[0])
            relations = tuple(Relation(dim=dim, terms=(known[0],)) for dim in known[1:])
            texts = [self._texts[i] for i, item in self._equal if set(item.names) & set(members)]
            if relations:
                found.append(Statement(text="; ".join(texts), relations=relations))
        for index, relation in self._stated_sums():
            declared = (renamed(relation, first),)
            found.append(Statement(text=self._texts[index], relations=declared))
        return tuple(found)

    def _stated_sums(self) -> Iterable[tuple[int, Relation]]:
        for index, item in enumerate(self._read):
            if isinstance(item, Relation):
                used = {item.dim, *item.terms}
                yield index, renamed(item, {name: self._resolve(name, index) for name in used})

    def _names_by_alias(self) -> dict[str, str]:
        return {
            dim: self._class_name(members) for members in self._classes.values() for dim in members
        }

    def _class_name(self, members: Sequence[str]) -> str:
        """A new name if there is one, else the first declared name, else the first position."""
        ranked = [dim for dim in members if dim not in self._rankless] or list(members)
        new = [name for name in members if name in self._new]
        named = [dim for dim in ranked if dim not in self._positions]
        return (new or named or ranked)[0]

    def _resolve(self, name: str, index: int, *, new: bool = False) -> str:
        if name in self._dims:
            return name
        found = self._positions.get(name)
        if isinstance(found, str):
            return found
        if found is not None:
            raise AotcError(
                "AOTC-S004",
                f"the model fixes {name!r}",
                where=f"relations[{index}]",
                found=f"size {found}",
                fix="Leave it out of the relation, and state the size of the others under dims.",
            )
        candidates = self._anonymous.get(name, ())
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise AotcError(
                CODE,
                ambiguous_name(name, candidates),
                where=f"relations[{index}]",
                expected=", ".join(candidates),
                fix=f"Name the dims by their positions, as in: {example_equality(candidates)}.",
            )
        stem, _, axis = name.rpartition(".")
        if new and not (stem and axis.isdecimal()):
            self._new[name] = None
            return name
        if name in self._new:
            return name
        known = (*self._dims, *self._new, *self._positions)
        close = nearest(name, known)
        raise AotcError(
            CODE,
            f"the model has no dim {name!r}",
            where=f"relations[{index}]",
            expected=", ".join((*self._dims, *self._new)) or "no free dim",
            found=f"nearest: {close}" if close else "",
        )

    def _require_known_names(self) -> None:
        for members in self._classes.values():
            new = [name for name in members if name in self._new]
            known = [name for name in members if name in self._dims]
            ranked = [name for name in known if name not in self._rankless]
            if (len(new) < 2 and ranked) or (known and not new):
                continue
            close = nearest(new[-1], (*self._dims, *self._positions))
            what = f"the model has no dim {new[-1]!r}"
            if known and len(new) == 1:
                what = f"{new[0]!r} names an input of unknown rank alone"
            elif known:
                what += f", and one new name is enough: {new[0]!r}"
            raise AotcError(
                CODE,
                what,
                where=f"relations: {' = '.join(members)}",
                expected=", ".join(self._dims) or "no free dim",
                found=f"nearest: {close}" if close else "",
            )


def example_equality(dims: Sequence[str]) -> str:
    """A relation in a profile's notation that makes the last two of `dims` equal."""
    return f"size = {' = '.join(quoted(dim) for dim in dims[-2:])}"


def ambiguous_name(name: str, dims: Sequence[str]) -> str:
    """The message about `name`, an anonymous name that several `dims` have."""
    return f"{name!r} is the name of {len(dims)} different dims"


def free_dims(inputs: Iterable[Value]) -> tuple[str, ...]:
    """Free dims of the tensors among `inputs`, in order; `NAME.0` for one of unknown rank."""
    found: dict[str, None] = {}
    for value in inputs:
        if value.kind == "tensor":
            shape = value.shape if value.shape is not None else (f"{value.name}.0",)
            found |= dict.fromkeys(d for d in shape if isinstance(d, str))
    return tuple(found)


def sizes_by_position(inputs: Iterable[Value]) -> dict[str, int | str]:
    """By position `INPUT.AXIS`: its size or the name of its dim."""
    return {
        f"{value.name}.{axis}": size
        for value in inputs
        if value.kind == "tensor"
        for axis, size in enumerate(value.shape or ())
    }
