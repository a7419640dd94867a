"""An execution provider plugin: a library that ONNX Runtime registers, and the provider's name.

Any plugin that a user installed works with these two.  Its claims come from ONNX Runtime's record
of which provider took which node, and it compiles through `ModelCompiler`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.plugin_libraries import libraries_digest
from aotc.host.probe import hidden_providers
from aotc.providers.base import (
    ANY_USE,
    Backend,
    Capability,
    ClaimRequest,
    Claims,
    CompileRequest,
    Payload,
    Refusal,
    SessionUse,
    names_in_message,
)
from aotc.providers.ort import (
    import_onnxruntime,
    new_session_options,
    ort_errors,
    ort_message,
)
from aotc.spec.manifest import WEIGHTS_OPTION
from aotc.spec.precision import Precision
from aotc.spec.providers import EP_CONTEXT, Rates
from aotc.spec.target import Plugin, Target
from aotc.spec.variant import NO_REQUIREMENTS, Optimization, Requirements, SessionSpec

if TYPE_CHECKING:
    import onnx


_registered: dict[str, str] = {}
_registering = threading.Lock()
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


def _renew_lock() -> None:
    global _registering
    _registering = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Another thread may hold it while this process is forked.
    os.register_at_fork(after_in_child=_renew_lock)


def registered_devices(ort_name: str, library: Path) -> list[Any]:
    """ORT's devices of the provider, possibly none; registers its library if needed.

    Raises AOTC-P004 if the library cannot be loaded.
    """
    runtime = import_onnxruntime()
    with _registering:
        known = ort_name in _registered
        if _registered.setdefault(ort_name, str(library)) != str(library):
            raise AotcError(
                "AOTC-P004",
                f"{ort_name} is already registered with another library in this process",
                where=str(library),
                found=_registered[ort_name],
            )
        found = _devices_of(ort_name)
        if not found and not known:
            try:
                # Some plugins name their provider after the name of the registration.
                runtime.register_execution_provider_library(ort_name, str(library))
            except ort_errors() as error:
                del _registered[ort_name]
                raise AotcError(
                    "AOTC-P004",
                    "ONNX Runtime cannot load the plugin library",
                    where=str(library),
                    found=" ".join(str(error).split())[:500],
                    fix=f"Correct the library's path in the profile, or that of {ort_name} in "
                    "AOTC_PLUGINS or plugins=.",
                ) from None
            found = _devices_of(ort_name)
    return found


def _devices_of(ort_name: str) -> list[Any]:
    if ort_name in hidden_providers():
        return []
    return [
        device for device in import_onnxruntime().get_ep_devices() if device.ep_name == ort_name
    ]


def devices(ort_name: str, library: Path) -> list[Any]:
    """ORT's devices of the provider, at least one; registers its library if needed.

    Raises AOTC-P004 if the library cannot be loaded or has no such provider.
    """
    found = registered_devices(ort_name, library)
    if not found:
        present = import_onnxruntime().get_ep_devices()
        raise AotcError(
            "AOTC-P004",
            "the plugin library has no such execution provider for this machine",
            where=str(library),
            expected=ort_name,
            found=", ".join(dict.fromkeys(device.ep_name for device in present)),
        )
    return found


class PluginBackend(Backend):
    """A plugin by its library's path and its provider's name."""

    compiles: ClassVar[bool] = True
    native: ClassVar[bool] = True
    # Unknown; assumed to be a CPU, somewhat faster than ONNX Runtime's own provider.
    rates: ClassVar[Rates] = Rates(
        flops=2e11, bytes=1e10, transfer_bytes=2e10, transfer_seconds=1e-5
    )

    def __init__(
        self, name: str, ort_name: str, library: Path | None, options: Mapping[str, str]
    ) -> None:
        self.name = name
        self.ort_name = ort_name
        self._library = library
        self._options = dict(options)

    def probe(self) -> Capability:
        """Whether the library is a file and ONNX Runtime can be imported."""
        library = self.library()
        reason = ""
        if library is None:
            reason = f"no plugin of {self.ort_name} is installed"
        elif not library.is_file():
            reason = f"no library at {library}"
        else:
            try:
                import_onnxruntime()
            except AotcError as error:
                reason = error.line()
        return self.capability(reason=reason, version="" if reason else self.version())

    def version(self) -> str:
        """The plugin's version; "" for a user's own plugin, which is identified by its digest."""
        return ""

    def library(self) -> Path | None:
        """The plugin's library."""
        return self._library

    def digest(self) -> str:
        """The digest of the library, as defined in `host.plugin_libraries`."""
        library = self.library()
        return libraries_digest([library]) if library is not None else ""

    def claim(self, request: ClaimRequest) -> Claims:
        """Ask ONNX Runtime with a session of the whole graph; on failure see `_guess_claims`."""
        import onnx

        from aotc.graph.view import every_node

        runtime = import_onnxruntime()
        graph = onnx.load(request.model, load_external_data=False).graph
        # By name, the node of the main graph whose subgraph has it ("": none), and the operator.
        nodes = {
            node.name: ("" if node is owner else owner.name, node.op_type)
            for owner in graph.node
            for node in every_node(owner)
        }
        options = self._session_options(request.precision)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.add_session_config_entry(WEIGHTS_OPTION, str(request.weights))
        try:
            session = runtime.InferenceSession(str(request.model), options, enable_fallback=0)
        except ort_errors() as error:
            return _guess_claims(graph, nodes, self.name, ort_message(error))
        taken = {
            node.name
            for device in session.get_provider_graph_assignment_info()
            if device.ep_name == self.ort_name
            for node in device.get_nodes()
        }
        # Level-1 rewrites may fuse or fold nodes of the graph: then they belong to no provider.
        claimed = frozenset(nodes) & taken
        for name, (owner, _) in nodes.items():
            if owner in claimed:
                claimed |= {name}
        return Claims(
            nodes=claimed,
            refusals=tuple(
                Refusal(node=name, reason=f"{self.name} did not claim the operator {op}")
                for name, (_, op) in nodes.items()
                if name not in claimed
            ),
        )

    def compile(self, request: CompileRequest) -> Payload:
        """Compile with ORT's `ModelCompiler`; one EPContext node must replace all nodes.

        Raises AOTC-P005 with the provider's message, or the names of the nodes that remained.
        """
        context = self._compile_model(request, self._session_options(request.precision))
        return self._payload(request, context)

    def _payload(self, request: CompileRequest, context: onnx.ModelProto) -> Payload:
        import onnx

        others = [node for node in context.graph.node if node.op_type != EP_CONTEXT]
        if others or len(context.graph.node) != 1:
            raise AotcError(
                "AOTC-P005",
                f"{self.name} compiled a partition into {len(context.graph.node) - len(others)} "
                f"parts instead of one",
                where=request.stem,
                found="left out: " + ", ".join(repr(node.name) for node in others),
            )
        (node,) = context.graph.node
        embedded = [a.i for a in node.attribute if a.name == "embed_mode"]
        if embedded != [0]:
            raise AotcError(
                "AOTC-P005",
                f"{self.name} embedded the compiled part in the graph instead of a file",
                where=request.stem,
            )
        attributes: dict[str, str | int] = {}
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            attributes[attribute.name] = value.decode() if isinstance(value, bytes) else value
        key = f"ep_compatibility_info.{self.ort_name}"
        found = {pair.key: pair.value for pair in context.metadata_props}
        return Payload(
            attributes=attributes,
            files=(str(attributes["ep_cache_context"]),),
            compatibility=found.get(key, ""),
        )

    def _compile_model(self, request: CompileRequest, options: Any) -> onnx.ModelProto:
        import onnx

        runtime = import_onnxruntime()
        options.add_session_config_entry(WEIGHTS_OPTION, str(request.weights))
        output = Path(f"{request.stem}_ctx.onnx")
        output.unlink(missing_ok=True)
        try:
            compiler = runtime.ModelCompiler(
                options, str(request.model), embed_compiled_data_into_model=False
            )
            compiler.compile_to_file(str(output))
        except ort_errors() as error:
            raise AotcError(
                "AOTC-P005",
                f"{self.name} could not compile a partition",
                where=request.stem,
                found=ort_message(error)[:2000],
            ) from None
        return onnx.load(output, load_external_data=False)

    def _session_options(self, precision: Precision) -> Any:
        spec = self.session("disable", precision)
        return self._options_with(spec.provider_options.get(self.ort_name, {}))

    def _options_with(self, provider_options: Mapping[str, str]) -> Any:
        """Options of a session with this provider, without ONNX Runtime's optimizer."""
        options = unoptimized_options()
        library = self.library()
        if library is None:
            raise AotcError("AOTC-P004", f"no library is known for {self.name}")
        options.add_provider_for_devices(self.devices(library), dict(provider_options))
        return options

    def devices(self, library: Path) -> list[Any]:
        """The devices for a session: the first that ONNX Runtime lists."""
        return devices(self.ort_name, library)[:1]

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """The options that the user stated."""
        options = {self.ort_name: self._options} if self._options else {}
        return SessionSpec(optimization=optimization, provider_options=options)

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """The library itself, by its digest, and all features of the CPU that it compiles for."""
        library = self.library()
        if library is None:
            return NO_REQUIREMENTS
        plugin = Plugin(
            name=library.name,
            version=self.version(),
            sha256=self.digest(),
            provider=self.ort_name,
        )
        return replace(NO_REQUIREMENTS, plugins=(plugin,), isa=tuple(sorted(target.isa or ())))

    def fingerprint(self) -> str:
        """Version and digest of the library, and version of ONNX Runtime."""
        digest = self.digest()
        return (
            f"{self.name} {self.version()} {digest}; onnxruntime {import_onnxruntime().__version__}"
        )


def unoptimized_options() -> Any:
    """Options of a session without ONNX Runtime's optimizer."""
    runtime = import_onnxruntime()
    options = new_session_options()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _guess_claims(
    graph: onnx.GraphProto, nodes: Mapping[str, tuple[str, str]], provider: str, message: str
) -> Claims:
    """Claims if the provider failed on the whole graph: all nodes that its message does not name.

    Control flow is left out too, as providers fail on subgraphs with nodes that they cannot take.
    Claimed nodes are compiled partition by partition, which shows whether the guess is right.
    """
    from aotc.graph.view import NodeLinks

    # A provider may name a node by its output.
    links = NodeLinks(graph.node)
    words = names_in_message(message, {**nodes, **links.producers})
    named = {maker.name if (maker := links.maker(word)) is not None else word for word in words}
    refused = {name: f"{provider} failed on it: {message[:300]}" for name in nodes if name in named}
    for name, (owner, op) in nodes.items():
        if owner or op in _CONTROL_FLOW:
            refused.setdefault(name, f"{provider} failed on the graph with its control flow")
    return Claims(
        nodes=frozenset(nodes) - refused.keys(),
        refusals=tuple(Refusal(node=name, reason=why) for name, why in refused.items()),
        failed=f"{provider} failed on the whole graph: {message[:600]}",
    )
