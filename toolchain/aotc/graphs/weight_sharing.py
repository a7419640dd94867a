"""Which tensors of one graph another graph has as well, told by their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.graphs.weights import external_tensors, keep, packed_of

if TYPE_CHECKING:
    import onnx

_BLOCK = 1 << 22


def share(
    model: onnx.ModelProto, data: Path, base: onnx.ModelProto, base_data: Path
) -> list[int | None]:
    """The place of each external tensor of `model` among those of `base`; None: it has no twin.

    `data` and `base_data` are their external files.  Tensors with a twin are taken out of `data`,
    which is gone where none is left; their entries in `model` no longer lead anywhere.
    """
    if not data.exists():
        return []
    twins: list[int | None] = []
    with _mapped(data) as mine, _mapped(base_data) as theirs:
        known: dict[tuple[int, tuple[str, ...]], list[tuple[str, int, int]]] = {}
        for index, (tensor, offset, length) in enumerate(external_tensors(base)):
            known.setdefault(_kind(tensor, length), []).append((tensor.name, index, offset))
        for tensor, offset, length in external_tensors(model):
            own = mine[offset : offset + length]
            # Most twins have the same name.
            same = known.get(_kind(tensor, length), ())
            likely = sorted(same, key=lambda entry: entry[0] != tensor.name)
            twins.append(
                next((i for _, i, at in likely if _equal(own, theirs[at : at + length])), None)
            )
    keep(model, data, [twin is None for twin in twins])
    return twins


def _kind(tensor: onnx.TensorProto, length: int) -> tuple[int, tuple[str, ...]]:
    """Twins have one length, and are packed by the same kernels into the same bytes."""
    return length, tuple(packed.name for packed in packed_of(tensor))


@contextmanager
def _mapped(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    yield np.memmap(path, dtype=np.uint8, mode="r") if path.exists() else np.empty(0, np.uint8)


def _equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    for start in range(0, len(one), _BLOCK):
        if not np.array_equal(one[start : start + _BLOCK], other[start : start + _BLOCK]):
            return False
    return True
