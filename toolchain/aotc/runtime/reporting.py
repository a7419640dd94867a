"""Tells of loads and calls, once, to all who listen: logs, OpenTelemetry, Prometheus.

`Load` tells of a load, and `aotc.runtime.telemetry.Telemetry` of the calls of its model.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from aotc.base import logs
from aotc.base.errors import AotcError
from aotc.runtime.listener import Call, Listener, LoadedModel, Stage, TimedLoad
from aotc.runtime.otel import OpenTelemetry


class Load(TimedLoad):
    """A load that is told as it goes; entered as a context, it tells of its failure."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One of its stages, one after the other."""
        began, started = time.time_ns(), time.perf_counter()
        try:
            yield
        finally:
            stage = Stage(name, began, began + int((time.perf_counter() - started) * 1e9))
            self.stages.append(stage)
            tell(lambda listener: listener.stage(self, stage))

    def done(self, model: LoadedModel) -> None:
        """It has ended well."""
        self.ended = time.time_ns()
        tell(lambda listener: listener.loaded(self, model))
        for variant in model.variants:
            for reason in variant.fallbacks:
                tell_once(model, variant.name, reason)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self.ended = time.time_ns()
        code, where = type(error).__name__, ""
        if isinstance(error, AotcError):
            code, where = error.code, error.where
        tell(lambda listener: listener.failed(self, code, where))


# Loads and calls as lines of logs.


class _Logs(Listener):
    def awake(self) -> bool:
        return logs.heard("run", logs.DEBUG) is not None

    def stage(self, load: TimedLoad, stage: Stage) -> None:
        text = f"{load.path}: {stage.name} took {stage.seconds * 1e3:.1f} ms"
        logs.log("load", logs.DEBUG, text, path=load.path, stage=stage.name, seconds=stage.seconds)

    def loaded(self, load: TimedLoad, model: LoadedModel) -> None:
        names = ", ".join(f"{each.name} on {each.provider}" for each in model.variants)
        text = f"{load.path}: loaded {model.name}, {model.verdict}, {names} in {load.seconds:.3f} s"
        fields = {**_of(model), "path": load.path, "verdict": model.verdict}
        logs.log("load", logs.INFO, text, **fields, version=model.version, seconds=load.seconds)

    def failed(self, load: TimedLoad, code: str, where: str) -> None:
        text = f"{load.path}: not loaded: {code}" + (f" [{where}]" if where else "")
        fields = {"path": load.path, "code": code, "where": where, "seconds": load.seconds}
        logs.log("load", logs.WARNING, text, **fields)

    def call(self, model: LoadedModel, call: Call) -> None:
        text = f"{model.name}: {call.route} to {call.variant} in {call.seconds * 1e3:.3f} ms"
        fields = {**_of(model), "variant": call.variant, "route": call.route}
        logs.log("run", logs.DEBUG, text, **fields, seconds=call.seconds, padding=call.added)

    def refused(self, model: LoadedModel, code: str, where: str) -> None:
        text = f"{model.name}: refused: {code}" + (f" [{where}]" if where else "")
        logs.log("run", logs.DEBUG, text, **_of(model), code=code, where=where)

    def captured(self, model: LoadedModel, variant: str) -> None:
        text = f"{model.name}: captured a graph of {variant}"
        logs.log("run", logs.DEBUG, text, **_of(model), variant=variant)

    def fell_back(self, model: LoadedModel, variant: str, reason: str) -> None:
        text = f"{model.name}: {_FALLBACKS[reason].format(variant=variant)}"
        logs.log("run", logs.WARNING, text, **_of(model), variant=variant, reason=reason)


_FALLBACKS: Final = {
    "variant": "{variant} takes the place of a preferred variant",
    "placement": "nodes of {variant} are not where the artifact promises",
    "graph": "a call of {variant} ran without a captured graph",
}


def _of(model: LoadedModel) -> dict[str, object]:
    return {"model": model.name, "artifact": model.artifact}


# Who listens in this process.


_listeners: tuple[Listener, ...] = (_Logs(), OpenTelemetry())
_models: list[weakref.ref[LoadedModel]] = []


def listen(listener: Listener) -> None:
    """Tell it too, from now on."""
    global _listeners
    if listener not in _listeners:
        _listeners = (*_listeners, listener)


def leave(listener: Listener) -> None:
    """Tell it no more."""
    global _listeners
    _listeners = tuple(each for each in _listeners if each is not listener)


def awake() -> list[Listener]:
    """Those that are told of calls now: mostly none, which must not take a microsecond."""
    return [listener for listener in _listeners if listener.awake()]


def tell(what: Callable[[Listener], None], to: Sequence[Listener] | None = None) -> None:
    """Tell all of them (or those `to` which it goes) of something that has happened.

    One that fails has no say in a load or a call that did not.
    """
    for listener in _listeners if to is None else to:
        try:
            what(listener)
        except Exception as error:
            text = f"{type(listener).__name__} cannot take what it is told: {error!r}"
            logs.log("run", logs.WARNING, text)


def tell_change(model: LoadedModel) -> None:
    """It is open, or ready, or is so no more."""
    tell(lambda listener: listener.changed(model))


def tell_once(model: LoadedModel, variant: str, reason: str) -> None:
    """A call of the variant did not run as the artifact prefers."""
    if (variant, reason) not in model.fell_back:
        model.fell_back.add((variant, reason))
        tell(lambda listener: listener.fell_back(model, variant, reason))


def add(model: LoadedModel) -> None:
    """From now on it is one of `open_models`, as long as it is open."""
    global _models
    _models = [*(known for known in _models if known() is not None), weakref.ref(model)]


def open_models() -> list[LoadedModel]:
    """The models that this process has loaded, and not closed."""
    return [model for known in _models if (model := known()) is not None and model.open]
