"""The kernels of ONNX Runtime's own providers as a table, and the nodes that they would claim.

There is a table for each minor version, made by `ci/kernel_tables.py` from wheels for x86-64; those
for other CPUs have these and more.  If a kernel is registered once per type, the table combines the
types: for an operator with several type variables it may accept a pair that no kernel has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from aotc.base.records import field, record
from aotc.graph.types import constant_type, lacks_types, stated_types, type_proto
from aotc.graph.view import subgraphs
from aotc.host.probe import installed_versions
from aotc.spec.providers import BY_ORT_NAME, CPU, RUNTIME_MINORS, RUNTIMES, STANDARD
from aotc.spec.versions import release

if TYPE_CHECKING:
    import onnx

    Rule = Callable[[onnx.NodeProto], str]


_DATA = "ort_kernels_{}.{}.json"
_SUFFIX = "ExecutionProvider"
# Domains of ONNX's own operators in another layout, with the same versions.
_SAME_SCHEMAS = {"ai.onnx": "", "com.ms.internal.nhwc": ""}
# ONNX Runtime turns it into an initializer before it places nodes.
_CONSTANT = "Constant"
_MAX_NAMED = 5
# Operators whose outputs the GPU's own kernel writes to CPU memory.
_OUTPUTS_ON_CPU = frozenset({"Shape", "Size"})
# Indices of inputs that the GPU's own kernel reads from CPU memory.
_INPUTS_ON_CPU: Mapping[str, frozenset[int]] = {
    "ConstantOfShape": frozenset({0}),
    "Expand": frozenset({1}),
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "OneHot": frozenset({1}),
    "Pad": frozenset({1, 2}),
    "Range": frozenset({0, 1, 2}),
    "Reshape": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Tile": frozenset({1}),
    "TopK": frozenset({1}),
    "Unsqueeze": frozenset({1}),
}
# Elements of a constant that may be in either memory.
_MAX_CONSTANT = 100
_NARROW_FLOATS = ("tensor(float16)", "tensor(bfloat16)", "tensor(float8")


@record
class Kernel:
    """One registration: schema versions `since` to `until`, or only `since` if `until` is None.

    `types`: the types allowed for each type variable, or each formal parameter with its own
    constraint, in ONNX's spelling: `tensor(float)`.  `inputs` and `outputs`: name and type of the
    formal parameters, if the onnx package has no schema.
    """

    ep: str
    domain: str
    op: str
    since: int
    until: int | None
    types: Mapping[str, frozenset[str]]
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()

    def serves(self, version: int) -> bool:
        """Whether it runs nodes whose schema has this version.

        A registration without an end is only valid for one version: the operator may have changed
        since (`VerifyVersion` in ONNX Runtime's `core/framework/kernel_registry.cc`).
        """
        if self.until is None:
            return self.since == version
        return self.since <= version <= self.until

    def versions(self) -> str:
        """The range in words: `13`, `1..10`."""
        if self.until in (None, self.since):
            return str(self.since)
        return f"{self.since}..{self.until}"


@record
class Lookup:
    """The kernel, or the reason why there is none."""

    kernel: Kernel | None = None
    reason: str = ""


@record(kw_only=False)
class KernelTable:
    """All kernels by provider, domain and operator; `version` is that of ONNX Runtime."""

    version: str
    source: str
    kernels: Mapping[tuple[str, str, str], tuple[Kernel, ...]]

    @staticmethod
    @cache
    def load(ep: str = CPU) -> KernelTable:
        """The table of the ONNX Runtime that is to run nodes on `ep`.

        It is the installed one, or where that is not among those that `ep` was tried with, the
        newest before it; before all of them, the first.
        """
        installed = release((*installed_versions(RUNTIMES).values(), "")[0])
        minors = (row.runtimes if (row := BY_ORT_NAME.get(ep)) else ()) or RUNTIME_MINORS
        return _table(max((minor for minor in minors if minor <= installed), default=minors[0]))

    def registered(self, ep: str, domain: str, op: str) -> tuple[Kernel, ...]:
        """Every registration of one operator, oldest first; empty if the provider lacks it."""
        return self.kernels.get((ep, "" if domain in STANDARD else domain, op), ())

    def kernel(
        self, ep: str, domain: str, op: str, version: int, types: Mapping[str, str] | None = None
    ) -> Lookup:
        """The kernel of `ep` for a node, or why it has none.

        `version` is the since-version of the node's schema, not the model's opset.  `types` are by
        type variable or formal parameter; an omitted one is unknown, and never refused.
        """
        provider = ep.removesuffix(_SUFFIX)
        op_name = op if domain in STANDARD else f"{domain}::{op}"
        registered = self.registered(ep, domain, op)
        if not registered:
            return Lookup(reason=f"{provider} has no kernel of {op_name}")
        serving = [kernel for kernel in registered if kernel.serves(version)]
        if not serving:
            available = ", ".join(kernel.versions() for kernel in registered)
            return Lookup(
                reason=f"{provider} has no kernel of {op_name}-{version} (it has: {available})"
            )
        for kernel in serving:
            refused = _refused_type(kernel, types or {})
            if refused is None:
                return Lookup(kernel=kernel)
        assert refused is not None
        name, found = refused
        available = ", ".join(sorted(_short_name(one) for one in serving[-1].types[name]))
        kind = f"{_short_name(found)} as {name}"
        return Lookup(
            reason=f"{provider} has no kernel of {op_name}-{version} for {kind} "
            f"(it has: {available})"
        )


@cache
def _table(minor: tuple[int, int]) -> KernelTable:
    data = json.loads(files(__package__).joinpath(_DATA.format(*minor)).read_text("utf-8"))
    types = [frozenset(map(_onnx_spelling, text.split())) for text in data["types"]]
    kernels = {}
    for ep, domains in data["kernels"].items():
        for domain, operators in domains.items():
            stated = data["parameters"].get(domain, {})
            for op, registered in operators.items():
                inputs, outputs = map(_parameters, stated.get(op, ((), ())))
                kernels[ep, domain, op] = tuple(
                    Kernel(
                        ep=ep,
                        domain=domain,
                        op=op,
                        since=since,
                        until=until or None,
                        types={name: types[index] for name, index in allowed.items()},
                        inputs=inputs,
                        outputs=outputs,
                    )
                    for since, until, allowed in registered
                )
    return KernelTable(data["onnxruntime"], data["source"], kernels)


def _refused_type(kernel: Kernel, types: Mapping[str, str]) -> tuple[str, str] | None:
    for name, allowed in kernel.types.items():
        found = types.get(name)
        if found is not None and found not in allowed:
            return name, found
    return None


def _parameters(row: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = (text.partition(":") for text in row)
    return tuple((name, kind) for name, _, kind in pairs)


def _onnx_spelling(name: str) -> str:
    return name if "(" in name else f"tensor({name})"


def _short_name(name: str) -> str:
    return name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name


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


def signature_of_node(
    node: onnx.NodeProto, opsets: Mapping[str, int], ep: str, table: KernelTable
) -> Signature | None:
    """The signature of a node's operator, from its schema or else from a kernel that `ep` has."""
    domain = "" if node.domain in STANDARD else node.domain
    found = signature_of(domain, node.op_type, opsets.get(domain, 1))
    if found is None and (registered := table.registered(ep, domain, node.op_type)):
        return _signature_of_kernel(registered[-1])
    return found


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The imported versions by domain; that of ONNX's own operators by ""."""
    return {
        "" if entry.domain in STANDARD else entry.domain: entry.version
        for entry in model.opset_import
    }


def _signature_of_kernel(kernel: Kernel) -> Signature:
    """The signature from the table, for operators of ONNX Runtime's own."""
    return Signature(
        kernel.since,
        tuple(Formal(*pair) for pair in kernel.inputs),
        tuple(Formal(*pair) for pair in kernel.outputs),
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


@record
class Prediction:
    """Names of the nodes that a provider would run, reasons for the others, and uncertainties."""

    nodes: frozenset[str]
    refusals: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


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
    claiming = _Claiming(table, ep, rule, functions)
    claiming.graph(model.graph, opsets_of(model), {})
    if claiming.untyped:
        notes.append(
            f"types are unknown at {_names_text(claiming.untyped)}: assumed to have a kernel"
        )
    return Prediction(
        nodes=frozenset(claiming.claimed), refusals=tuple(claiming.refusals), notes=tuple(notes)
    )


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
            for subgraph in subgraphs(node):
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
        signature = signature_of_node(node, opsets, self.ep, self.table)
        if signature is None:
            return self.table.kernel(self.ep, node.domain, node.op_type, 0).reason
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


# Nodes that ONNX Runtime keeps on the CPU although the GPU has kernels: they compute shapes.
#
# For nodes that only read values in CPU memory, small constants and graph inputs, the CPU is
# cheaper than a copy and a launch. The rule is that of `GetCpuPreferredNodes` in ONNX Runtime's
# `core/framework/fallback_cpu_capability.cc`; which inputs and outputs of CUDA kernels are in CPU
# memory is not in the kernel table and is listed here, as far as known.


def prefers_cpu(graph: onnx.GraphProto, claimed: Collection[str]) -> tuple[str, ...]:
    """Names of `claimed` nodes, also in subgraphs, that are likely to run on the CPU."""
    return tuple(_preferred_nodes(graph, claimed, frozenset()))


def _preferred_nodes(
    graph: onnx.GraphProto, claimed: Collection[str], outer: frozenset[str]
) -> list[str]:
    types = stated_types(graph)
    anywhere = outer | {value.name for value in graph.input} | set(_small_constants(graph))
    on_cpu: set[str] = set()
    found: list[str] = []
    for node in graph.node:
        for subgraph in subgraphs(node):
            found += _preferred_nodes(subgraph, claimed, outer | set(_small_constants(graph)))
        # A refused node runs on the CPU: its outputs from such values stay there.
        refused = node.name not in claimed and not on_cpu.isdisjoint(node.input)
        if refused or (node.name in claimed and node.op_type in _OUTPUTS_ON_CPU):
            on_cpu.update(name for name in node.output if name)
        elif node.name in claimed and _reads_only_cpu(node, on_cpu, anywhere, types):
            found.append(node.name)
            on_cpu.update(name for name in node.output if name)
    return found


def _reads_only_cpu(
    node: onnx.NodeProto,
    on_cpu: Collection[str],
    anywhere: Collection[str],
    types: Mapping[str, str],
) -> bool:
    wanted = _INPUTS_ON_CPU.get(node.op_type, frozenset())
    reads = False
    for index, name in enumerate(node.input):
        if types.get(name, "").startswith(_NARROW_FLOATS):
            return False
        if not name or name in anywhere:
            continue
        if name not in on_cpu or index in wanted:
            return False
        reads = True
    return reads


def _small_constants(graph: onnx.GraphProto) -> list[str]:
    small = [tensor.name for tensor in graph.initializer if math.prod(tensor.dims) <= _MAX_CONSTANT]
    for node in graph.node:
        if node.op_type == "Constant":
            dims = [attribute.t.dims for attribute in node.attribute if attribute.HasField("t")]
            if not dims or math.prod(dims[0]) <= _MAX_CONSTANT:
                small.append(node.output[0])
    return small
