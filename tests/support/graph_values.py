"""Inputs and outputs of graphs, as manifests state them."""

from __future__ import annotations

from aotc.spec.payload import Kind, Value


def value(name: str, *shape: int | str, dtype: str = "float32", kind: Kind = "tensor") -> Value:
    """A value of sizes and named dims."""
    return Value(name=name, kind=kind, dtype=dtype, shape=shape)
