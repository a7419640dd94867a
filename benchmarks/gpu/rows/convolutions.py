"""What the options of convolutions cost and bring: first runs, captured calls, and kernels alone.

Each form is the session of the artifact's own variant with other options.  The first run of a size,
in which cuDNN plans a kernel for each convolution, is timed in a process of its own; captured calls
of all forms take turns in one; their kernels are recorded in another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import ChildFailedError, one_record
from benchmarks.gpu.rows.calls import missing, request_of
from benchmarks.gpu.run import Run

SECONDS = 240
CUDA = "CUDAExecutionProvider"
FORMS: dict[str, dict[str, str]] = {
    "as built": {},
    "bias apart": {"fuse_conv_bias": "0"},
    "channels first": {"prefer_nhwc": "0", "fuse_conv_bias": "0"},
    "searched": {"cudnn_conv_algo_search": "EXHAUSTIVE"},
}


def run(run: Run) -> None:
    """Measure the wanted networks, which have convolutions."""
    for name, precision, wanted in missing(run, "convolutions"):
        for case, batch in wanted.items():
            with run.guarded("convolutions", [case]):
                request = {**request_of(run, name, precision, wanted), "batch": batch}
                run.keep("convolutions", {"case": case, **_compared(request)})


def _compared(request: dict[str, Any]) -> dict[str, Any]:
    """The forms at a batch; what a form that fails did not tell is `refused`."""
    found: dict[str, Any] = {"first": {}, "refused": {}}
    for form in FORMS:
        try:
            asked = {**request, "forms": [form]}
            found["first"] |= one_record("rows.convolutions:first_run", asked, seconds=SECONDS)
        except ChildFailedError as error:
            found["refused"][form] = str(error)
    asked = {**request, "forms": list(found["first"])}
    for function in ("time_calls", "record_kernels"):
        found |= one_record(f"rows.convolutions:{function}", asked, seconds=SECONDS)
    return found


def first_run(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: seconds of a session's creation, and of its first run."""
    from benchmarks.gpu import contenders

    opened, settings = _Sessions(request), Settings.from_json(request["settings"])
    (form,) = request["forms"]
    # The device's context is there by then.
    tensors = contenders.on_device(settings, opened.inputs)
    started = time.perf_counter()
    session = opened.session(form)
    created = time.perf_counter()
    contenders.plain(settings, session, tensors, graph=_graph(settings))
    contenders.wait(settings)
    yield {form: [created - started, time.perf_counter() - created]}


def time_calls(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: seconds of captured calls, by turns."""
    from benchmarks.gpu.timing import by_turns, enough_rounds

    settings, calls = Settings.from_json(request["settings"]), _captured(request)
    started = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - started
    yield {"samples": by_turns(calls, settings.rounds(enough_rounds(once, budget=2.0)))}


def record_kernels(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: kernels of captured calls, which are captured while CUPTI records."""
    from benchmarks.gpu.rows.kernels import CALLS, of_calls, recording

    with recording():
        pass
    calls = Settings.from_json(request["settings"]).rounds(CALLS)
    yield {"kernels": {form: of_calls(call, calls) for form, call in _captured(request).items()}}


def _captured(request: dict[str, Any]) -> dict[str, Any]:
    """Calls of each form, which were captured if there is a GPU."""
    from benchmarks.gpu import contenders

    opened, settings = _Sessions(request), Settings.from_json(request["settings"])
    found = {}
    for form in request["forms"]:
        tensors = contenders.on_device(settings, opened.inputs)
        session = opened.session(form)
        call, _ = contenders.plain(settings, session, tensors, graph=_graph(settings))
        call()
        found[form] = call
    return found


def _graph(settings: Settings) -> str | None:
    """The name of the only graph that a session captures, if there is a GPU."""
    return None if settings.cpu else "1"


class _Sessions:
    """Sessions of the artifact's variant for a batch with other options, and inputs for them."""

    def __init__(self, request: dict[str, Any]) -> None:
        from aotc.trust.opening import read_manifest
        from benchmarks.gpu import contenders
        from benchmarks.gpu.inputs import as_taken, inputs_at

        contenders.prepare_torch()
        settings, network = Settings.from_json(request["settings"]), NETWORKS[request["network"]]
        self._payload = Path(request["artifact"]) / "payload"
        manifest = read_manifest((self._payload / "aotc.json").read_bytes())
        sizes = network.sizes(request["batch"])
        self._variant = next(
            variant for variant in manifest.variants if variant.buckets.items() <= sizes.items()
        )
        self.inputs = as_taken(manifest, inputs_at(settings.model(network.name), sizes))

    def session(self, form: str) -> Any:
        """A session of a form."""
        from aotc.base.records import replace
        from aotc.runtime.warmup import open_variant

        spec = self._variant.session
        options = dict(spec.provider_options)
        if CUDA in options:
            options[CUDA] = {**options[CUDA], **FORMS[form]}
        changed = replace(self._variant, session=replace(spec, provider_options=options))
        return open_variant(self._payload, changed)
