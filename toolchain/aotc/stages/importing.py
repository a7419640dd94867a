"""Import: from a file or bytes to a captured model and a staged graph without its weights."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotc.contract.manifest import Capture, Finding, PassRecord, Value
from aotc.contract.parsing import Json, decode, encode
from aotc.contract.symbols import Symbols, symbols_of
from aotc.engine.model_file import require_model_file
from aotc.stages.types import BuildOptions, SourceModel

_GRAPH = "graph.onnx"
_WEIGHTS = "source.bin"


def import_model(model: str | Path | bytes, options: BuildOptions) -> SourceModel:
    """Read, check and stage `model`: a path, or the bytes of a self-contained model.

    Dims that the profile states to be equal have one name from here on.
    Raises AOTC-I001 to I007, I010, I011, I013 to I015, and S004 and S015 (relations).
    """
    if isinstance(model, bytes):
        path = options.work / "given.onnx"
        path.write_bytes(model)
        name = "model"
    else:
        require_model_file(Path(model))
        path = Path(model).resolve()
        # The name in a manifest holds no control characters.
        name = re.sub(r"[\x00-\x1f\x7f]", "_", Path(model).stem)
    folder = options.work / "import"
    result = options.workers.run(
        "aotc.stages.importing:import_job",
        {"path": str(path), "relations": list(options.profile.relations)},
        folder=folder,
        where=path.name,
    ).value
    captured = decode(Capture, result["capture"])
    symbols = decode(Symbols, result["symbols"])
    return SourceModel(
        path=path,
        name=name,
        graph=folder / _GRAPH,
        weights=path.parent if captured.external_data else folder,
        capture=captured,
        inputs=symbols.inputs(),
        symbols=symbols,
        outputs=tuple(decode(Value, item) for item in result["outputs"]),
        hints=result["hints"],
        passes=tuple(decode(PassRecord, item) for item in result["passes"]),
    )


def import_job(request: Json) -> Json:
    """In the worker: capture, clean, name, and move the weights out of the graph."""
    from aotc.engine.capture import capture, graph_inputs, read_model, value_of
    from aotc.engine.file_digest import file_sha256
    from aotc.engine.fixtures import hints_of
    from aotc.engine.weights import externalize
    from aotc.passes.base import Pass, run_passes
    from aotc.passes.constant_inputs import ConstantInputs
    from aotc.passes.name_dims import NameDims
    from aotc.passes.name_nodes import NameNodes
    from aotc.passes.strip_metadata import StripMetadata

    path = Path(request["path"])
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(file_sha256, path) if path.is_file() else None
        model = read_model(path)
        captured = capture(model, path, digest.result() if digest else None)
    symbols = symbols_of(request["relations"], [value_of(info) for info in graph_inputs(model)])
    passes: list[Pass] = [StripMetadata(), NameNodes(), ConstantInputs()]
    if symbols.names:
        passes.append(NameDims(names=symbols.names))
    records = run_passes(model, passes)
    outputs = [value_of(info) for info in model.graph.output]
    try:
        hints = hints_of(model)
    except (ValueError, IndexError, TypeError):
        # A malformed constant or node: ONNX Runtime will say what is wrong with it.
        hints = {}
    if not captured.external_data:
        externalize(model, Path(), _WEIGHTS)
    Path(_GRAPH).write_bytes(model.SerializeToString(deterministic=True))
    findings = [*captured.findings, *_checker(path if captured.external_data else Path(_GRAPH))]
    data = encode(captured)
    data["findings"] = encode(tuple(findings))
    return {
        "capture": data,
        "symbols": encode(symbols),
        "outputs": [encode(value) for value in outputs],
        "hints": hints,
        "passes": [encode(record) for record in records],
    }


def _checker(path: Path) -> list[Finding]:
    """onnx.checker's verdict is evidence: it rejects files that ONNX Runtime runs."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        return [Finding(code="AOTC-I030", what=first.replace(str(path), path.name)[:300])]
    return []
