"""The signature of a node's operator: schema version, and types by type variable and parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from aotc.backends.kernels.table import Kernel
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# Operators that ONNX Runtime adds to the standard's domain: the table has none of their parameters.
_UNSTATED: Final[Mapping[str, tuple[tuple[tuple[str, str], ...], ...]]] = {
    "SimplifiedLayerNormalization": (
        (("X", "T"), ("scale", "V")),
        (("Y", "V"), ("inv_std_var", "U")),
    ),
}
# Domains of ONNX's own operators in another layout, with the same versions.
_SAME_SCHEMAS = {"ai.onnx": "", "com.ms.internal.nhwc": ""}


@record(kw_only=False)
class Formal:
    """A formal parameter; `kind` is a type variable or a type.  Only the last can be variadic.

    `same_type`: all values of a variadic parameter have one type.
    """

    name: str
    kind: str
    variadic: bool = False
    same_type: bool = True


@record(kw_only=False)
class Signature:
    """The parameters and results of an operator, at the version that the opset selects."""

    version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]


@cache
def signature_of(domain: str, op: str, opset: int) -> Signature | None:
    """The signature from the onnx package's schema; None if it does not know the operator."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op, opset, _SAME_SCHEMAS.get(domain, domain))
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    return Signature(schema.since_version, _formals(schema.inputs), _formals(schema.outputs))


def signature_of_kernel(kernel: Kernel) -> Signature:
    """The signature from the table, for operators of ONNX Runtime's own."""
    inputs, outputs = kernel.inputs, kernel.outputs
    if not inputs and not outputs:
        inputs, outputs = _UNSTATED.get(kernel.op, ((), ()))
    return Signature(
        kernel.since,
        tuple(Formal(*pair) for pair in inputs),
        tuple(Formal(*pair) for pair in outputs),
    )


def bind_types(
    node: onnx.NodeProto, signature: Signature, types: Mapping[str, str]
) -> tuple[dict[str, str], frozenset[str]]:
    """A node's types by type variable and by parameter; and the variables that stay unknown.

    `types` are those of values, by name.  The first value of a variable decides, as when ONNX
    Runtime matches types (`MatchKernelDefTypes` in its `core/framework/kernel_registry.cc`).
    """
    bound: dict[str, str] = {}
    missing: set[str] = set()
    for formals, values in ((signature.inputs, node.input), (signature.outputs, node.output)):
        for formal, value in pair_values(formals, values):
            if not value:
                continue
            found = types.get(value)
            if found is None:
                missing.add(formal.kind)
            else:
                bound.setdefault(formal.kind, found)
                bound.setdefault(formal.name, found)
    return bound, frozenset(kind for kind in missing if "(" not in kind and kind not in bound)


def pair_values(formals: Sequence[Formal], values: Sequence[str]) -> Iterator[tuple[Formal, str]]:
    """Each value with its parameter; a variadic parameter takes all remaining values."""
    for index, value in enumerate(values):
        if index < len(formals):
            yield formals[index], value
        elif formals and formals[-1].variadic:
            yield formals[-1], value


def _formals(parameters: Sequence[onnx.defs.OpSchema.FormalParameter]) -> tuple[Formal, ...]:
    return tuple(
        Formal(
            parameter.name,
            parameter.type_str,
            parameter.option == parameter.option.Variadic,
            parameter.is_homogeneous,
        )
        for parameter in parameters
    )
