"""Finds tensors with the same bytes in two graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.graphs.weights import external_tensors, keep_tensors, packed_forms

if TYPE_CHECKING:
    import onnx

_BLOCK = 1 << 22


def remove_shared(
    model: onnx.ModelProto, data: Path, base: onnx.ModelProto, base_data: Path
) -> list[int | None]:
    """Remove the external tensors from `data` that `base_data` holds as well.

    `data` and `base_data` are the external files of `model` and `base`.  Returns for each external
    tensor of `model` the index of its twin among those of `base`, or None.  `data` is deleted if
    nothing remains; entries in `model` of removed tensors are no longer valid.
    """
    if not data.exists():
        return []
    twins: list[int | None] = []
    with _mapped(data) as own_data, _mapped(base_data) as base_mapped:
        known: dict[tuple[int, tuple[str, ...]], list[tuple[str, int, int]]] = {}
        for index, (tensor, offset, length) in enumerate(external_tensors(base)):
            known.setdefault(_sharing_key(tensor, length), []).append((tensor.name, index, offset))
        for tensor, offset, length in external_tensors(model):
            own = own_data[offset : offset + length]
            # Usually twins have the same name.
            same = known.get(_sharing_key(tensor, length), ())
            likely = sorted(same, key=lambda entry: entry[0] != tensor.name)
            twins.append(
                next((i for _, i, at in likely if _equal(own, base_mapped[at : at + length])), None)
            )
    keep_tensors(model, data, [twin is None for twin in twins])
    return twins


def _sharing_key(tensor: onnx.TensorProto, length: int) -> tuple[int, tuple[str, ...]]:
    """Twins have the same length, and the same kernels packed them."""
    return length, tuple(packed.name for packed in packed_forms(tensor))


@contextmanager
def _mapped(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    yield np.memmap(path, dtype=np.uint8, mode="r") if path.exists() else np.empty(0, np.uint8)


def _equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    for start in range(0, len(one), _BLOCK):
        if not np.array_equal(one[start : start + _BLOCK], other[start : start + _BLOCK]):
            return False
    return True
