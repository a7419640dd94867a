"""Which inputs and outputs of a node may change from float32 to a half-precision type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aotc.backends.kernels.signature import pair_values, signature_of, signature_of_kernel
from aotc.backends.kernels.table import KernelTable
from aotc.contract.operator_domains import STANDARD
from aotc.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

# The type of their output is an attribute.
_TYPED_BY_ATTRIBUTE: Final = {"Cast": "to", "ConstantOfShape": "value"}
# Sums over whole axes and counted positions need more digits than half precision has; what is
# random differs by type.
ALWAYS_KEPT: Final = frozenset(
    {
        "Bernoulli",
        "CumSum",
        "EyeLike",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Range",
    }
)
FLOAT: Final = "tensor(float)"


@record(kw_only=False)
class Slots:
    """Positions of a node's float32 inputs and outputs that change if the node does."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


def slots_of(
    node: onnx.NodeProto, types: Mapping[str, str], opsets: Mapping[str, int], half: str, ep: str
) -> Slots:
    """The slots of `node` for the type `half`, in ONNX's spelling; empty if it cannot change.

    `types` are those of values by name.  A parameter that its operator only has in float32, such as
    the scales of `Resize`, is no slot, and neither are results whose type no input decides.
    """
    standard = node.domain in STANDARD
    inputs = frozenset(i for i, name in enumerate(node.input) if types.get(name) == FLOAT)
    outputs = frozenset(i for i, name in enumerate(node.output) if types.get(name) == FLOAT)
    if not inputs and not outputs:
        return Slots()
    if standard and node.op_type in _TYPED_BY_ATTRIBUTE:
        return Slots(inputs, outputs)
    domain = "" if standard else node.domain
    opset = opsets.get(domain, 1)
    variables = _half_variables(domain, node.op_type, opset, half, ep)
    signature = signature_of(domain, node.op_type, opset)
    if signature is None:
        registered = KernelTable.load().registered(ep, domain, node.op_type)
        if not registered:
            return Slots()
        signature = signature_of_kernel(registered[-1])
    given = [formal.kind for formal, _ in pair_values(signature.inputs, node.input)]
    made = [formal.kind for formal, _ in pair_values(signature.outputs, node.output)]
    changing = {given[i] for i in inputs if i < len(given)} & variables
    return Slots(
        frozenset(i for i in inputs if i < len(given) and given[i] in changing),
        frozenset(i for i in outputs if i < len(made) and made[i] in changing),
    )


@cache
def _half_variables(domain: str, op: str, opset: int, half: str, ep: str) -> frozenset[str]:
    """The type variables of an operator that may be `half`."""
    import onnx

    try:
        # The stubs of onnx lack the constraints of schemas.
        schema: Any = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return frozenset(
            variable
            for kernel in KernelTable.load().registered(ep, domain, op)
            for variable, allowed in kernel.types.items()
            if half in allowed
        )
    return frozenset(
        one.type_param_str for one in schema.type_constraints if half in one.allowed_type_strs
    )
