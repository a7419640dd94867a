"""Claims on a whole graph by the kernel table: predictions, without asking a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aotc.backends.kernels.signature import (
    bind_types,
    pair_values,
    signature_of,
    signature_of_kernel,
)
from aotc.backends.kernels.table import KernelTable
from aotc.backends.kernels.type_names import (
    constant_type,
    lacks_types,
    stated_types,
    subgraphs,
    type_proto,
)
from aotc.contract.known_providers import CPU
from aotc.contract.operator_domains import STANDARD
from aotc.records import field, record

if TYPE_CHECKING:
    import onnx

    Rule = Callable[[onnx.NodeProto], str]

# ONNX Runtime turns it into an initializer before it places nodes.
_CONSTANT = "Constant"
_MAX_NAMED = 5


@record
class Prediction:
    """Names of the nodes that a provider would run, reasons for the others, and uncertainties."""

    nodes: frozenset[str]
    refusals: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@record(frozen=False, kw_only=False)
class _Claiming:
    """One pass over a model, and its findings so far."""

    table: KernelTable
    ep: str
    rule: Rule
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    claimed: set[str] = field(default_factory=set)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)

    def graph(
        self, graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, str]
    ) -> None:
        types = {**outer, **stated_types(graph)}
        for node in graph.node:
            reason = self.reason(node, opsets, types)
            if reason:
                self.refusals.append((node.name, reason))
            else:
                self.claimed.add(node.name)
            for _, subgraph in subgraphs(node):
                self.graph(subgraph, opsets, types)

    def reason(self, node: onnx.NodeProto, opsets: Mapping[str, int], types: dict[str, str]) -> str:
        """Why `node` would be refused, or "".  Adds the types of its outputs to `types`."""
        if node.domain in STANDARD and node.op_type == _CONSTANT:
            types.update(constant_type(node))
            return ""
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self._function_reason(function, node, types)
        reason = self._kernel_reason(node, opsets, types) or self.rule(node)
        if reason and (expanded := self._expansion_reason(node, opsets, types)) is not None:
            return expanded
        return reason

    def _kernel_reason(
        self, node: onnx.NodeProto, opsets: Mapping[str, int], types: dict[str, str]
    ) -> str:
        standard = node.domain in STANDARD
        opset = opsets.get("" if standard else node.domain, 1)
        signature = signature_of("" if standard else node.domain, node.op_type, opset)
        if signature is None:
            registered = self.table.registered(self.ep, node.domain, node.op_type)
            if not registered:
                return self.table.kernel(self.ep, node.domain, node.op_type, opset).reason
            signature = signature_of_kernel(registered[-1])
        bound, unknown = bind_types(node, signature, types)
        found = self.table.kernel(self.ep, node.domain, node.op_type, signature.version, bound)
        for formal, name in pair_values(signature.outputs, node.output):
            known = formal.kind if "(" in formal.kind else bound.get(formal.kind)
            if name and known and formal.same_type:
                types.setdefault(name, known)
        if found.kernel is None:
            return found.reason
        if unknown & found.kernel.types.keys():
            self.untyped.append(node.name)
        return ""

    def _function_reason(
        self, function: onnx.FunctionProto, call: onnx.NodeProto, outer: Mapping[str, str]
    ) -> str:
        """A call of a function is replaced by its nodes, all of which need kernels."""
        opsets = {entry.domain: entry.version for entry in function.opset_import}
        given = [
            *zip(function.input, call.input, strict=False),
            *zip(function.output, call.output, strict=False),
        ]
        types = {inner: outer[name] for inner, name in given if name in outer}
        typed = len(self.untyped)
        for node in function.node:
            if reason := self.reason(node, opsets, types):
                del self.untyped[typed:]
                return f"within {function.name or call.op_type}: {reason}"
        self.untyped[typed:] = [call.name] if len(self.untyped) > typed else []
        return ""

    def _expansion_reason(
        self, node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, str]
    ) -> str | None:
        """The reason if ONNX Runtime replaces the node by others ("": none); None if it does not.

        It does for an operator that ONNX defines as a function if no provider has a kernel for it.
        """
        if node.domain not in STANDARD:
            return None
        opset = opsets.get("", 1)
        signature = signature_of("", node.op_type, opset)
        if signature is None:
            return None
        bound, _ = bind_types(node, signature, types)
        if self.table.kernel(CPU, "", node.op_type, signature.version, bound).kernel is not None:
            return None
        function = _function_of(node, opset, types)
        return self._function_reason(function, node, types) if function is not None else None


def _function_of(
    node: onnx.NodeProto, opset: int, types: Mapping[str, str]
) -> onnx.FunctionProto | None:
    """The function by which ONNX defines an operator; None if there is none.

    Some definitions depend on the types of the inputs, which must be known then.
    """
    import onnx

    # The stubs of onnx lack the function attributes of schemas.
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    function: onnx.FunctionProto
    if schema.function_opset_versions:
        function = schema.function_body
    elif schema.has_context_dependent_function:
        kinds = [type_proto(types.get(name, "")) for name in node.input]
        if any(name and kind is None for name, kind in zip(node.input, kinds, strict=True)):
            return None
        serialized = [(kind or onnx.TypeProto()).SerializeToString() for kind in kinds]
        serialized_function = schema.get_context_dependent_function(
            node.SerializeToString(), serialized
        )
        function = onnx.FunctionProto.FromString(serialized_function)
    else:
        return None
    if not function.opset_import:
        function.opset_import.add(domain="", version=opset)
    return function


def claim_by_kernels(model: onnx.ModelProto, ep: str, table: KernelTable, rule: Rule) -> Prediction:
    """What `ep` would run of `model`, by `table` and `rule`, in the main graph and subgraphs.

    `rule` returns the provider's own reason against a node that has a kernel, or "".  A node is
    only refused if the table refuses it for all possible unknown types; a note names nodes with
    unknown types.  External data is not read.
    """
    notes = []
    if lacks_types(model.graph, {}):
        model, note = _inferred(model)
        notes += [note] if note else []
    functions = {(item.domain, item.name): item for item in model.functions}
    opsets = {
        "" if entry.domain in STANDARD else entry.domain: entry.version
        for entry in model.opset_import
    }
    claiming = _Claiming(table, ep, rule, functions)
    claiming.graph(model.graph, opsets, {})
    if claiming.untyped:
        notes.append(
            f"types are unknown at {_names_text(claiming.untyped)}: assumed to have a kernel"
        )
    return Prediction(
        nodes=frozenset(claiming.claimed), refusals=tuple(claiming.refusals), notes=tuple(notes)
    )


def _inferred(model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """The model with types by ONNX's inference and ""; or unchanged, and why."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model), ""
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        line = str(error).strip().partition("\n")[0]
        return model, f"types could not be inferred: {line}"


def _names_text(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    return shown if len(names) <= _MAX_NAMED else f"{shown} and {len(names) - _MAX_NAMED} more"
