"""Which nodes of a model are quantized, in which form each, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from aotc.contract.manifest.toolchain import KEPT
from aotc.contract.precision.quantization import QuantizedForm
from aotc.passes.quantize import Chosen
from aotc.passes.quantize.islands import Weighing
from aotc.passes.quantize.observed import Observed
from aotc.passes.quantize.operators import (
    BY_FORM,
    CARRIERS,
    NOT_FINITE,
    is_standard,
    looks_up,
    why_not,
)
from aotc.passes.quantize.scoped_constants import scopes_of
from aotc.passes.quantize.static_form import FLOAT_OUTPUTS
from aotc.records import record

if TYPE_CHECKING:
    import onnx

PROFILE: Final = f"{KEPT}profile"
ISLAND: Final = f"{KEPT}island"
NOT_OBSERVED: Final = f"{KEPT}not observed"
NOT_WRITTEN: Final = f"{KEPT}passed over by the quantizer"
_FLOAT: Final = 1


@record(kw_only=False)
class Choice:
    """What is quantized; `reasons` says by name why each other node that could be is left.

    `boundaries` is the number of values that are converted for the static form.
    """

    chosen: Chosen
    reasons: Mapping[str, str]
    boundaries: int

    def limited(self, written: Chosen) -> Choice:
        """The choice if only `written` nodes of it were quantized; the others have a reason."""
        missed = self.chosen.names() - written.names()
        reasons = {**self.reasons, **dict.fromkeys(sorted(missed), NOT_WRITTEN)}
        return Choice(written, reasons, self.boundaries)

    def matched(self) -> dict[str, int]:
        """The counts that stand in the record of the pass."""
        counts = Counter(self.reasons.values())
        found = {"quantized": len(self.chosen), "boundaries": self.boundaries, **counts}
        for word, names in (
            ("in each call", self.chosen.dynamic),
            ("tables", self.chosen.tables),
        ):
            if names:
                found[word] = len(names)
        return dict(sorted(found.items()))


def choose(
    model: onnx.ModelProto,
    form: QuantizedForm,
    operators: Collection[str],
    kept: Collection[str],
    observed: Mapping[str, Observed],
) -> Choice:
    """Choose among the nodes of `model`, whose weights are in memory and whose values have types.

    `operators` limits them, if there are any.  `kept` are names of nodes that stay in float32,
    `observed` is what calibration showed of activations, for the static form.
    """
    wanted = BY_FORM[form].intersection(operators or BY_FORM[form])
    reasons: dict[str, str] = {}
    static: list[str] = []
    found: dict[str, set[str]] = {"dynamic": set(), "weights": set(), "tables": set()}
    activations = _activations(model)
    integers: set[str] = set()
    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            if not is_standard(node, wanted):
                continue
            carrier = node.op_type in CARRIERS
            if carrier and scope.inner:
                continue
            if node.op_type == "Gather" and not looks_up(node, scope):
                continue
            if node.name in kept:
                reasons[node.name] = PROFILE
            elif not carrier and (why := why_not(node, scope, form)):
                reasons[node.name] = f"{KEPT}{why}"
            elif node.op_type == "Gather":
                found["tables"].add(node.name)
            elif form == "weights":
                found["weights"].add(node.name)
            elif form == "dynamic" or node.op_type == "LSTM":
                found["dynamic"].add(node.name)
            elif scope.inner:
                # What is computed in a body is not observed.
                if node.op_type == "Conv":
                    reasons[node.name] = f"{KEPT}body"
                else:
                    found["dynamic"].add(node.name)
            elif carrier and not _takes_integers(node, activations, integers):
                continue
            elif why := _why_not_static(node, activations, observed):
                if not carrier:
                    reasons[node.name] = why
            else:
                static.append(node.name)
                if node.op_type not in FLOAT_OUTPUTS:
                    integers.update(node.output)
    worth = Weighing(model, observed).worth(static)
    carriers = {node.name for node in model.graph.node if node.op_type in CARRIERS}
    for name in static:
        if name not in worth.nodes and name not in carriers:
            reasons[name] = ISLAND
    chosen = Chosen(
        worth.nodes,
        frozenset(found["dynamic"]),
        frozenset(found["weights"]),
        frozenset(found["tables"]),
    )
    return Choice(chosen, reasons, worth.boundaries)


def observable(model: onnx.ModelProto, operators: Collection[str]) -> tuple[str, ...]:
    """The activations of the main graph whose ranges the static form may need, in order."""
    wanted = BY_FORM["static"].intersection(operators or BY_FORM["static"])
    activations = _activations(model)
    found: dict[str, None] = {}
    for node in model.graph.node:
        if is_standard(node, wanted):
            found.update(dict.fromkeys(n for n in (*node.input, *node.output) if n in activations))
    return tuple(found)


def _takes_integers(
    node: onnx.NodeProto, activations: Collection[str], integers: Collection[str]
) -> bool:
    """Whether all that a carrier reads may be integers: sums of products are exact in float32."""
    read = [name for name in node.input if name in activations]
    return bool(read) and all(name in integers for name in read)


def _why_not_static(
    node: onnx.NodeProto,
    activations: Collection[str],
    observed: Mapping[str, Observed],
) -> str:
    values = [name for name in (*node.input, *node.output) if name in activations]
    if any(name not in observed for name in values) or node.output[0] not in activations:
        return NOT_OBSERVED
    if any(observed[name].bounds is None for name in values):
        return f"{KEPT}{NOT_FINITE}"
    return ""


def _activations(model: onnx.ModelProto) -> frozenset[str]:
    """Values of the main graph that are float32 tensors and no constants."""
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    values = (*graph.input, *graph.value_info, *graph.output)
    constants = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    return frozenset(
        value.name
        for value in values
        if value.type.tensor_type.elem_type == _FLOAT and value.name not in known | constants
    )
