"""One of two graphs that are compared node by node: how it runs, and runs that show its values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.session import create_session, import_onnxruntime, ort_errors, session_options
from aotc.engine.values import Data
from aotc.graphs.shown_values import outputs_of, with_outputs
from aotc.records import field, record, replace

_PLAIN: Final = SessionSpec(optimization="disable")
_OPTIMIZED: Final = "as_loaded.onnx"
_OPTIMIZED_DATA: Final = "as_loaded.bin"
# Packing weights for kernels takes time and memory, and where nothing is computed it is of no use.
_UNPACKED: Final = {"session.disable_prepacking": "1"}


@record
class Side:
    """A graph with the folder of its external data, and how its session is created.

    `providers` and `libraries` are by ORT's names; compiled parts lie beside `model`.
    """

    model: Path
    weights: Path
    session: SessionSpec = _PLAIN
    providers: tuple[str, ...] = (CPU,)
    libraries: Mapping[str, Path] = field(default_factory=dict)

    def read(self) -> onnx.ModelProto:
        """The graph, without its external data."""
        return onnx.load(str(self.model), load_external_data=False)

    def opened(
        self, model: onnx.ModelProto, *, computes: bool = True, records_placement: bool = False
    ) -> Any:
        """A session of `model`, a changed copy of the graph; without `computes`, none to run."""
        spec = self.session
        if not computes:
            spec = replace(spec, config={**spec.config, **_UNPACKED})
        return create_session(
            model.SerializeToString(),
            spec,
            providers=self.providers,
            weights_folder=self.weights,
            context_path=self.model,
            libraries=self.libraries,
            compiles=True,
            record_placement=records_placement,
        )

    def values(
        self, model: onnx.ModelProto, inputs: Mapping[str, Data], names: Collection[str]
    ) -> dict[str, Any]:
        """Values of one run of `model`, by name."""
        session = self.opened(with_outputs(model, names))
        return outputs_of(session, inputs, names)


def as_loaded(side: Side, folder: Path) -> Side:
    """The graph as ONNX Runtime runs it, with what it fuses at load written out.

    A value that becomes an output is not fused away: at its own level the graph with more outputs
    would be another one, and could hide what is wrong.  So the optimizer's work is kept, and the
    result runs without.  Where several providers divide a graph, ONNX Runtime cannot write
    it, and the side is as it was.
    """
    if side.session.optimization == "disable" or side.providers != (CPU,):
        return side
    config = {
        **side.session.config,
        "session.optimized_model_external_initializers_file_name": _OPTIMIZED_DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        "session.model_external_initializers_file_folder_path": str(side.weights.resolve()),
    }
    try:
        options = session_options(replace(side.session, config=config))
        options.optimized_model_filepath = str(folder / _OPTIMIZED)
        import_onnxruntime().InferenceSession(str(side.model), options, providers=[CPU])
    except ort_errors():
        return side
    return replace(
        side,
        model=folder / _OPTIMIZED,
        weights=folder,
        session=replace(side.session, optimization="disable"),
    )


def tensor_shapes(
    side: Side, model: onnx.ModelProto, inputs: Mapping[str, Data], names: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """Shapes of those of `names` that are tensors, at these inputs, by a run that keeps none."""
    asked = set(names)
    described = {
        value.name: value
        for value in side.opened(with_outputs(model, asked), computes=False).get_outputs()
        if value.name in asked and value.type.startswith("tensor(")
    }
    found: dict[str, tuple[int, ...]] = {}
    measured = onnx.ModelProto()
    measured.CopyFrom(model)
    wanted: dict[str, str] = {}
    for name, value in described.items():
        # An empty list means a scalar or an unknown rank.
        if value.shape and all(isinstance(size, int) and size >= 0 for size in value.shape):
            found[name] = tuple(value.shape)
            continue
        wanted[name] = f"{name}/aotc.shape"
        measured.graph.node.append(onnx.helper.make_node("Shape", [name], [wanted[name]]))
        measured.graph.output.append(onnx.ValueInfoProto(name=wanted[name]))
    if wanted:
        seen = outputs_of(side.opened(measured), inputs, wanted.values())
        found |= {name: tuple(map(int, seen[place])) for name, place in wanted.items()}
    return {name: found[name] for name in described}
