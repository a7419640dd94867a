"""Compute with integers of 8 bits, or store weights in 8 or 4, where a float32 model gains by it.

Forms: `static` writes QuantizeLinear and DequantizeLinear with ranges that were observed,
`dynamic` has ONNX Runtime find the ranges of activations in each call, `weights` quantizes
weights alone, in blocks.  Tables of embeddings have 8 bits in each of them.  Inputs and outputs
keep their types.  Which nodes are quantized is decided before, in `chosen_nodes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from aotc.contract.precision.quantization import QuantizedForm
from aotc.passes.base import Pass
from aotc.passes.quantize.block_weights import quantize_blocks
from aotc.passes.quantize.distinct_names import stand_ins
from aotc.passes.quantize.dynamic_form import quantize_dynamic
from aotc.passes.quantize.integers import Scheme
from aotc.passes.quantize.lookup_tables import quantize_tables
from aotc.passes.quantize.static_form import quantize_static
from aotc.passes.quantize.weighted_products import split_gemms
from aotc.records import field, record

if TYPE_CHECKING:
    import onnx


@record(kw_only=False)
class Chosen:
    """Names of the nodes that are quantized.

    `static` are those with observed ranges, `dynamic` those whose activations are quantized in
    each call, `weights` products whose weights alone are, and `tables` lookups of embeddings.
    """

    static: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """All of them."""
        return self.static | self.dynamic | self.weights | self.tables

    def __len__(self) -> int:
        return len(self.names())


@record
class Quantize(Pass):
    """Quantize the `chosen` nodes of a model whose weights are in memory.

    `ranges` are the smallest and the largest value of activations, by name; `method` is how they
    were found.  Of `block_size` weights, each of `bits` bits, a scale is shared in the form
    `weights`.
    """

    name = "quantize"

    form: QuantizedForm
    bits: Literal[4, 8]
    scheme: Scheme
    block_size: int
    method: str = ""
    chosen: Chosen = field(default_factory=Chosen)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """What decides the numbers, in this form."""
        found: dict[str, object] = {"form": self.form, "bits": self.bits}
        if self.form == "weights":
            return {**found, "block_size": self.block_size}
        found |= {
            "activations": self.scheme.activations,
            "weights": self.scheme.weights,
            "per_channel": self.scheme.per_channel,
            "reduce_range": self.scheme.reduce_range,
        }
        return {**found, "method": self.method} if self.form == "static" else found

    def apply(self, model: onnx.ModelProto) -> None:
        chosen = self.chosen
        with stand_ins(model) as names:
            ranges = {names.value(name): bounds for name, bounds in self.ranges.items()}
            quantize_static(model, names.nodes(chosen.static), ranges, self.scheme)
        # Constants of several forms differ, also where they are made of the same.
        with stand_ins(model) as names:
            quantize_tables(model, names.nodes(chosen.tables))
            split_gemms(model, names.nodes(chosen.dynamic | chosen.weights))
            quantize_dynamic(model, names.nodes(chosen.dynamic), self.scheme)
            quantize_blocks(model, names.nodes(chosen.weights), self.bits, self.block_size)
