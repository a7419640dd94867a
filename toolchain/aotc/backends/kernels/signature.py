"""The formal side of a node: version of its schema, and types by type variable and parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from aotc.backends.kernels.table import Kernel
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# Operators of the ONNX standard in another layout; they keep its versions.
_SAME_SCHEMAS = {"ai.onnx": "", "com.ms.internal.nhwc": ""}


@record(kw_only=False)
class Formal:
    """A formal parameter; `kind` is a type variable or a type, and a variadic one is the last.

    `alike`: all values that a variadic parameter stands for have one type.
    """

    name: str
    kind: str
    variadic: bool = False
    alike: bool = True


@record(kw_only=False)
class Signature:
    """What a node's operator takes and gives, at the version that its opset picks."""

    version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]


@cache
def signature_of(domain: str, op: str, opset: int) -> Signature | None:
    """The signature by the onnx package's schema; None where it knows no such operator."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op, opset, _SAME_SCHEMAS.get(domain, domain))
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    return Signature(schema.since_version, _formals(schema.inputs), _formals(schema.outputs))


def signature_of_kernel(kernel: Kernel) -> Signature:
    """The signature as the table states it, for operators that are ONNX Runtime's own."""
    return Signature(
        kernel.since,
        tuple(Formal(*pair) for pair in kernel.inputs),
        tuple(Formal(*pair) for pair in kernel.outputs),
    )


def bind(
    node: onnx.NodeProto, signature: Signature, types: Mapping[str, str]
) -> tuple[dict[str, str], frozenset[str]]:
    """Types of a node by type variable and by parameter; and which variables stay unknown.

    `types`: of values, by name.  The first value that a variable stands for decides, as when ONNX
    Runtime matches types (`MatchKernelDefTypes` in its `core/framework/kernel_registry.cc`).
    """
    bound: dict[str, str] = {}
    missing: set[str] = set()
    for formals, values in ((signature.inputs, node.input), (signature.outputs, node.output)):
        for formal, value in pair(formals, values):
            if not value:
                continue
            found = types.get(value)
            if found is None:
                missing.add(formal.kind)
            else:
                bound.setdefault(formal.kind, found)
                bound.setdefault(formal.name, found)
    return bound, frozenset(kind for kind in missing if "(" not in kind and kind not in bound)


def pair(formals: Sequence[Formal], values: Sequence[str]) -> Iterator[tuple[Formal, str]]:
    """Each value with the parameter it stands for; a variadic parameter takes what is left."""
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
