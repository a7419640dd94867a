"""What a bound call costs beyond ONNX Runtime's own I/O binding, on a network of one Relu.

With captured CUDA graphs and without; both sides have the same options of the CUDA provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, profile_fields
from benchmarks.gpu.cases import Settings
from benchmarks.gpu.child import one_record
from benchmarks.gpu.results import WITHOUT_GRAPHS
from benchmarks.gpu.run import Run

SECONDS = 180
BLOCKS, SIZE = 15, 1000
BATCH = 8
OURS, COPYING, THEIRS = "bind", "bind, with new inputs", "I/O binding"
CASES = {WITHOUT_GRAPHS: False, "with graphs": True}


def run(run: Run) -> None:
    """Measure both."""
    settings = run.settings
    for case, capture in CASES.items():
        if not run.wants("overhead", case):
            continue
        with run.guarded("overhead", [case]):
            model = settings.folder / "models" / "relu.onnx"
            if not model.exists():
                one_record("tiny:write", {"path": str(model)}, seconds=60)
            label = case.replace(" ", "-")
            dims = {"batch": BATCH}
            fields = profile_fields(settings, "keep", dims, capture=capture)
            request = {
                "settings": settings.to_json(),
                "model": str(model),
                "artifact": str(artifact(settings, model, label, fields)),
                "capture": capture and not settings.cpu,
                "case": case,
            }
            run.keep_records("overhead", "rows.overhead:time_calls", request, SECONDS)


def time_calls(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: blocks of calls, by turns."""
    import aotc
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import inputs_at
    from benchmarks.gpu.timing import blocks_by_turns

    settings, capture = Settings.from_json(request["settings"]), request["capture"]
    path = Path(request["model"])
    model = aotc.load(request["artifact"], store=settings.store)
    inputs = inputs_at(path, {"batch": BATCH})
    tensors = contenders.on_device(settings, inputs)
    # The provider's other options are those of the artifact.
    options = {"enable_cuda_graph": "1", "use_tf32": "0"} if capture else {"use_tf32": "0"}
    session = contenders.plain_session(settings, path, **options)
    plain, _ = contenders.plain(settings, session, tensors, graph="1" if capture else None)
    ours = contenders.ours(settings, model, [inputs])
    calls = {OURS: ours.bound, THEIRS: plain}
    if hasattr(model, "bind"):
        call = model.bind(tensors)

        def copying() -> None:
            call(tensors)
            contenders.wait(settings)

        calls[COPYING] = copying
    samples = blocks_by_turns(calls, settings.rounds(BLOCKS), 20 if settings.small else SIZE)
    yield {"case": request["case"], "samples": samples, "captured": ours.captured}
