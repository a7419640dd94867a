"""Static variants, one for each batch, to one dynamic variant that captured the same batches.

Both are captured; bound calls take turns in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.run import Run

SECONDS = 180
# The largest costs a build minutes for each static variant.
BATCHES = 2
DYNAMIC, STATIC = "dynamic", "static"


def run(run: Run) -> None:
    """Measure each wanted network in the first precision, at its smaller batches."""
    settings = run.settings
    precision = settings.precisions[0]
    for name in run.networks:
        network, model = NETWORKS[name], settings.model(name)
        batches = settings.batches(network)[:BATCHES]
        cases = {f"{name}/{precision}/{batch}": batch for batch in batches}
        wanted = {case: batch for case, batch in cases.items() if run.wants("static", case)}
        if not wanted or settings.cpu:
            continue
        with run.guarded("static", wanted):
            dims = batch_dims(batches, network.dims)
            artifacts = {
                form: str(
                    artifact(
                        settings,
                        model,
                        f"{precision}-{form}",
                        profile_fields(settings, precision, dims, static=form == STATIC),
                    )
                )
                for form in (DYNAMIC, STATIC)
            }
            request = {
                "settings": settings.to_json(),
                "network": name,
                "artifacts": artifacts,
                "cases": wanted,
            }
            run.keep_records("static", "rows.static:time_cases", request, SECONDS)


def time_cases(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a record for each batch."""
    import aotc
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import inputs_at
    from benchmarks.gpu.timing import by_turns

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    models = {
        form: aotc.load(path, store=settings.store) for form, path in request["artifacts"].items()
    }
    for case, batch in request["cases"].items():
        inputs = inputs_at(settings.model(network.name), network.sizes(batch))
        tensors = contenders.on_device(settings, inputs)
        calls, captured, variants = {}, [], {}
        for form, model in models.items():
            calls[form], replays = contenders.bound(settings, model, tensors)
            captured.append(replays)
            variants[form] = model.route(inputs).variant
        yield {
            "case": case,
            "samples": by_turns(calls, settings.rounds(100), warm_up=settings.rounds(10)),
            "captured": all(captured),
            "variants": variants,
        }
