"""How a variant multiplies 8-bit integers, and whether its answers depend on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.records import field, record

ProductForm = Literal["rewritten", "seven-bits", "exact-signs", "not-fused", "feature", "same-cpu"]
Operands = Literal["exact signs", "weights in 7 bits", "saturating signs"]

_SAME_EVERYWHERE = "the same on every CPU"


@record
class IntegerProducts:
    """How a variant on an x86-64 CPU multiplies 8-bit integers.

    Sums of products of an unsigned and a signed operand saturate on CPUs without VNNI; those of
    operands of one sign, or with weights in 7 bits, do not.
    """

    form: Annotated[
        ProductForm,
        "rewritten: weights are written in the sign of the activations; seven-bits: weights are "
        "small enough as they are; exact-signs: sums of operands of these signs do not saturate; "
        "not-fused: the graph computes in floating point; feature: sums are exact with a CPU "
        "feature, which is required; same-cpu: as proven on CPUs with just the required features",
    ]
    feature: Annotated[str, "CPU feature that makes all sums exact; empty: none is needed"] = ""
    products: Annotated[
        Mapping[Operands, Annotated[int, Bounds(1)]], "nodes of the loaded graph, by operands"
    ] = field(default_factory=dict)

    @property
    def portable(self) -> bool:
        """Whether the sums are the same on every x86-64 CPU."""
        return self.form not in ("feature", "same-cpu")

    def in_words(self) -> tuple[str, str]:
        """On which CPUs the sums are the same, and why."""
        if self.form == "feature":
            return f"exact with {self.feature}", "weights are as in the model"
        if self.form == "same-cpu":
            return "exact on CPUs like this", "some products could not be rewritten"
        why = {
            "rewritten": "weights are written in the sign of the activations",
            "seven-bits": "weights are within 7 bits as they are",
            "exact-signs": "operands have signs whose sums do not saturate",
            "not-fused": "nothing is fused: it computes in floating point",
        }
        return _SAME_EVERYWHERE, why[self.form]
