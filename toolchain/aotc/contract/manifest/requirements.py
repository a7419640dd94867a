"""What a host must have to run a variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from aotc.contract.codec.parsing import Bounds, record
from aotc.contract.target import Libc, Plugin


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
