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
    libc: Annotated[Libc | None, "name and minimum version"] = None
    isa: Annotated[tuple[str, ...], "CPU features that the host must have"] = ()
    isa_exact: Annotated[bool, "the host must have no other features that matter"] = False
    onnxruntime_min: str
    onnxruntime_below: Annotated[str, "first version that was not proven"]
    providers: Annotated[tuple[str, ...], Bounds(1)]
    plugins: tuple[Plugin, ...] = ()
    compatibility: Annotated[Mapping[str, str], "the provider's own compatibility string"] = field(
        default_factory=dict
    )
    nvidia_driver_min: str | None = None
    cuda_major: int | None = None
    compute_capabilities: tuple[str, ...] = ()

    def merged(self, others: Iterable[Requirements]) -> Requirements:
        """These requirements with those that `others` state in optional fields.

        Lists are joined, and CPU features sorted by name; the greatest number and version applies.
        """
        requirements = (self, *others)
        merged = {}
        for field_ in fields(self):
            optional = field_.default is not MISSING or field_.default_factory is not MISSING
            stated = [value for one in requirements if (value := getattr(one, field_.name))]
            if optional and stated:
                merged[field_.name] = _merged(stated)
        if "isa" in merged:
            merged["isa"] = tuple(sorted(set(merged["isa"])))
        return replace(self, **merged)


# For a part of a variant, which states some fields; `merged` adds them to the variant's.
NO_REQUIREMENTS: Final = Requirements(
    os="", architecture="", onnxruntime_min="", onnxruntime_below="", providers=()
)


def _merged(stated: list[Any]) -> Any:
    if isinstance(stated[0], tuple):
        return tuple(chain.from_iterable(stated))
    if isinstance(stated[0], Mapping):
        return {key: value for mapping in stated for key, value in mapping.items()}
    return max(stated, key=_sort_key)


def _sort_key(value: str | int | Libc) -> tuple[int, ...] | int:
    if isinstance(value, Libc):
        return release(value.version or "")
    return release(value) if isinstance(value, str) else value
