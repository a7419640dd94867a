"""What a host must have to run a variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any, Final

from aotc.contract.codec.parsing import Bounds
from aotc.contract.target import Libc, Plugin
from aotc.contract.versions import release
from aotc.records import MISSING, field, fields, record, replace


@record
class Requirements:
    """What a host must have to run a variant."""

    os: str
    architecture: str
    libc: Annotated[Libc | None, "name, and the least version"] = None
    isa: Annotated[tuple[str, ...], "features the host must have"] = ()
    isa_exact: Annotated[bool, "and no other of those that matter"] = False
    onnxruntime_min: str
    onnxruntime_below: Annotated[str, "first version that is not proven"]
    providers: Annotated[tuple[str, ...], Bounds(1)]
    plugins: tuple[Plugin, ...] = ()
    compatibility: Annotated[Mapping[str, str], "the provider's own compatibility string"] = field(
        default_factory=dict
    )
    nvidia_driver_min: str | None = None
    cuda_major: int | None = None
    compute_capabilities: tuple[str, ...] = ()

    def joined(self, others: Iterable[Requirements]) -> Requirements:
        """These, with all that `others` state in fields that may be left out.

        Lists follow each other, CPU features in order of names; of numbers and versions the
        greatest holds.
        """
        every = (self, *others)
        found = {}
        for each in fields(self):
            optional = each.default is not MISSING or each.default_factory is not MISSING
            stated = [value for one in every if (value := getattr(one, each.name))]
            if optional and stated:
                found[each.name] = _joined(stated)
        if "isa" in found:
            found["isa"] = tuple(sorted(set(found["isa"])))
        return replace(self, **found)


# What a part of a variant states is put over it; `joined` adds that to the whole's.
NO_REQUIREMENTS: Final = Requirements(
    os="", architecture="", onnxruntime_min="", onnxruntime_below="", providers=()
)


def _joined(stated: list[Any]) -> Any:
    if isinstance(stated[0], tuple):
        return tuple(chain.from_iterable(stated))
    if isinstance(stated[0], Mapping):
        return {key: value for each in stated for key, value in each.items()}
    return max(stated, key=_rank)


def _rank(value: str | int | Libc) -> tuple[int, ...] | int:
    if isinstance(value, Libc):
        return release(value.version or "")
    return release(value) if isinstance(value, str) else value
