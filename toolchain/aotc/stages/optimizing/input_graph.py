"""The graph that is optimized for a variant: the source's, or one made from it."""

from __future__ import annotations

from pathlib import Path

import onnx

from aotc.passes.base import walk_nodes
from aotc.passes.same_sign_weights.products import may_have_products
from aotc.records import record
from aotc.stages.optimizing.integer_products import has_integer_products
from aotc.stages.types import SourceModel, SpecializedModel


@record(kw_only=False)
class InputGraph:
    """A graph, the folder of its external data, and whether it may have integer products."""

    source: SourceModel
    graph: Path
    weights: Path
    has_products: bool
    quantized: bool = False

    @classmethod
    def of_source(cls, source: SourceModel) -> InputGraph:
        """The graph as imported."""
        products = has_integer_products(source.capture)
        return cls(source, source.graph, source.weights, products)

    @classmethod
    def of(cls, specialized: SpecializedModel) -> InputGraph:
        """That of a variant."""
        source = specialized.analyzed.source
        products = has_integer_products(source.capture)
        if specialized.quantized:
            model = onnx.load(specialized.graph, load_external_data=False)
            products = may_have_products((node.domain, node.op_type) for node in walk_nodes(model))
        return cls(source, specialized.graph, specialized.weights, products, specialized.quantized)

    @property
    def is_source(self) -> bool:
        """Whether it is the graph as imported."""
        return self.graph == self.source.graph
