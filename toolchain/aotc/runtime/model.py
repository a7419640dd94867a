"""A loaded model that answers calls: guarded, routed, padded, counted."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from aotc.base.errors import AotcError
from aotc.base.interruptions import uninterrupted
from aotc.base.records import replace
from aotc.base.registry import Deferred
from aotc.base.text import did_you_mean, printable
from aotc.graph import values
from aotc.graph.values import describe
from aotc.providers.ort import OUT_OF_MEMORY
from aotc.runtime.guards import CheckedCall, Guard
from aotc.runtime.routing import Route, Router
from aotc.runtime.runners import Runner, close_all, closed_error
from aotc.runtime.store.entries import Hold
from aotc.runtime.telemetry import Telemetry
from aotc.runtime.warmup import (
    AcceptedFixtures,
    capture_behind,
    captured_behind,
    rehearse_calls,
    require_captured,
    warm,
)
from aotc.session.padding import Padder
from aotc.session.sessions import go_on, start_anew
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import LoadReport, VariantLoad
from aotc.spec.variant import Variant

if TYPE_CHECKING:
    from aotc.runtime import binding, recorder
    from aotc.spec import command_reports
else:
    binding = Deferred("aotc.runtime.binding")
    recorder = Deferred("aotc.runtime.recorder")
    command_reports = Deferred("aotc.spec.command_reports")


# Refusals about sizes: such calls are relevant for coverage.
_SIZE_REFUSALS = frozenset({"AOTC-R004", "AOTC-R010", "AOTC-R013", "AOTC-S010"})


class Model:
    """A model that was verified, loaded, placed as promised and accepted.

    `run` is thread-safe.  Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        manifest: Manifest,
        variants: Sequence[Variant],
        runners: Sequence[Runner],
        report: LoadReport,
        *,
        payload: Path,
        recorder: recorder.ShapeRecorder | None = None,
        hold: Hold | None = None,
        known: AcceptedFixtures | None = None,
        taken: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`runners` run the sessions of `variants`, from the folder `payload`; `load` creates all.

        While `hold` is open, the folder is not removed from its store.  `known` tells which
        fixtures matched in an earlier load (None: nothing is known), and `taken` the bytes of the
        device that the load took so far.
        """
        self.manifest = manifest
        self.variants = tuple(variants)
        self.payload = payload
        self.telemetry = Telemetry([variant.name for variant in variants])
        self._runners: Sequence[Runner] = tuple(runners)
        self._bound: weakref.WeakSet[binding.BoundCall] = weakref.WeakSet()
        self._bound_lock = threading.Lock()
        self._report = report
        self._recorder = recorder
        self._hold = hold
        self._known = known
        self._taken = taken
        self._closed = False
        self._left = False
        """Whether it is the parent's, and this process a child that was forked."""
        self._warm_lock = threading.Lock()
        self._guard = Guard(manifest)
        self._router = Router(manifest, self.variants)
        self._padder = Padder(manifest.inputs, manifest.padding)
        self._copied: set[str] = set()
        self._outputs = tuple(value.name for value in manifest.outputs)
        for variant, runner in zip(self.variants, self._runners, strict=True):
            runner.on_capture = partial(self.telemetry.capture, variant.name)
            runner.on_copies = partial(self.telemetry.time_copies, variant.name)
        _note(self)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The model's inputs."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The model's outputs."""
        return self.manifest.outputs

    @property
    def variant(self) -> Variant:
        """The first of the loaded variants."""
        return self.variants[0]

    @property
    def ready(self) -> bool:
        """Whether every loaded variant was warmed up, and the model is not closed."""
        return not self._closed and all(load.warmed for load in self._report.variants)

    @property
    def report(self) -> LoadReport:
        """What loading cost, the first request once there was one, and which sizes are captured.

        The latter is of now, and nothing of a closed model.
        """
        captures = [runner.captures for runner in self._runners] or [None] * len(self.variants)
        return replace(
            self._report,
            first_call_seconds=self.telemetry.first_call_seconds,
            variants=tuple(
                replace(load, captures=found)
                for load, found in zip(self._report.variants, captures, strict=True)
            ),
        )

    def findings(self) -> tuple[Finding, ...]:
        """What was noticed at load, and in calls so far.

        The latter are dims outside the proven range, inputs that were copied, and requests that
        could not be recorded.
        """
        dims = self.manifest.domain.dims
        return (
            *self._report.findings,
            *(finding for runner in self._runners for finding in runner.findings),
            *self._lost_requests(),
            *(
                Finding(
                    code="AOTC-I095",
                    what="calls pass elements in another order than C, and each copies them",
                    where=f"input {name}",
                )
                for name in sorted(self._copied)
            ),
            *(
                Finding(
                    code="AOTC-S010",
                    what=f"{count} of {self.telemetry.calls} calls outside of the proven "
                    f"{dims[name].text() if name in dims else 'rank'}",
                    where=name,
                )
                for name, count in self.telemetry.outside().items()
            ),
        )

    def _lost_requests(self) -> tuple[Finding, ...]:
        recorder = self._recorder
        if recorder is None or not recorder.lost:
            return ()
        what = f"{recorder.lost} requests could not be recorded"
        return (Finding(code="AOTC-R012", what=what, where=str(recorder.path)),)

    @uninterrupted
    def warm(
        self,
        names: Sequence[str] | None = None,
        *,
        capture_first: Sequence[Mapping[str, int]] | None = None,
    ) -> None:
        """Warm up the loaded variants called `names` (None: all that are not warm yet).

        Of the sizes that they capture, those that `capture_first` names are captured now (None:
        all), and the others behind, as `load` says.

        Raises AOTC-I027 (no such variant is loaded, or no size of these is captured), N003, R024
        and M004 (a size cannot be captured), and R005 if the model is closed.
        """
        self._refuse_closed()
        loaded = [variant.name for variant in self.variants]
        names = (names,) if isinstance(names, str) else names
        for name in names or ():
            if name not in loaded:
                raise _no_variant(name, loaded)
        require_captured(self.variants, capture_first)
        # Of calls that nobody made.
        unseen = Telemetry(loaded)
        random, later = self.manifest.random, []
        # Fixtures of sizes that are captured later would not be answered by the first draws.
        first = None if random is not None and random.policy == "free" else capture_first
        with self._warm_lock:
            for index, variant in enumerate(self.variants):
                done = self._report.variants[index]
                if done.warmed if names is None else variant.name not in names:
                    continue
                # Golden answers are those of first draws.
                self._let_draw(index, anew=True)
                behind = captured_behind(variant, first)
                warmed = warm(
                    self._runner(index), variant, self.manifest, self.payload, self._known, behind
                )
                self._update_report(index, warmed)
                rehearse_calls(
                    lambda inputs: self._run(inputs, None, unseen, None),
                    variant,
                    self.manifest,
                    self.payload,
                    warmed.first_run_seconds,
                    share=1 / len(self.variants),
                    behind=behind,
                )
                later.append((self._runner(index), variant, behind))
            for index, load in enumerate(self._report.variants):
                if load.warmed:
                    self._let_draw(index, anew=False)
            for runner, variant, behind in later:
                capture_behind(runner, variant, self.manifest, self.payload, behind)
        self.telemetry.change(ready=self.ready)

    def _let_draw(self, index: int, *, anew: bool) -> None:
        """Each run of a variant draws anew, or goes on, if that is the artifact's policy."""
        session, random = self._runner(index).session, self.manifest.random
        if random is None or random.policy != "free":
            return
        (start_anew if anew else go_on)(session)

    def _update_report(self, index: int, warmed: VariantLoad) -> None:
        loads = list(self._report.variants)
        before = loads[index]
        loads[index] = replace(
            warmed,
            session_seconds=before.session_seconds,
            warmup_seconds=before.warmup_seconds + warmed.warmup_seconds,
            nodes=before.nodes,
            misplaced_nodes=before.misplaced_nodes,
        )
        self._report = replace(
            self._report,
            variants=tuple(loads),
            warmup_seconds=sum(load.warmup_seconds for load in loads),
            fixtures=sum(load.fixtures for load in loads),
            fixtures_before=sum(load.fixtures_before for load in loads),
            device_bytes=self._taken(),
        )

    def run(
        self, inputs: Mapping[str, values.Data], outputs: Sequence[str] | None = None
    ) -> dict[str, values.Data]:
        """The named outputs (None: all) for `inputs`, which are arrays of the model's own types.

        The call goes to the smallest loaded variant that accepts it, padded if the profile says so,
        and what padding added to the outputs is cropped.  An array in another order than C, such as
        a transposed one, is copied, which `findings` tells.  Raises AOTC-R001 to R004, R010,
        R021, R027 and S010 before anything runs, I027 for an unknown output, M004 if the device has
        too little memory, R057 if the host has, R058 if the artifact's limit is reached, R024 if a
        graph cannot be captured, and R005 if ONNX Runtime fails or the model is closed.
        """
        return self._run(inputs, outputs, self.telemetry, self._recorder)

    def _run(
        self,
        inputs: Mapping[str, values.Data],
        outputs: Sequence[str] | None,
        telemetry: Telemetry,
        recorder: recorder.ShapeRecorder | None,
    ) -> dict[str, values.Data]:
        """`run`, counted in `telemetry` and recorded by `recorder`."""
        started = time.perf_counter()
        try:
            answer = self._answer(inputs, outputs, telemetry)
            names, checked, route, found, given, added, missed, copied = answer
        except AotcError as error:
            telemetry.reject(error.code, error.where)
            if recorder is not None and error.code in _SIZE_REFUSALS:
                intended_tensors = self._guard.intended_tensors(inputs)
                if intended_tensors is not None:
                    recorder.record(intended_tensors)
            raise
        if recorder is not None:
            recorder.record({name: checked.inputs[name] for name in self._guard.tensors})
        telemetry.call(
            time.perf_counter() - started,
            checked.outside,
            variant=self.variants[route.variant].name,
            cause=route.cause,
            given=given,
            added=added,
            missed_graph=missed,
            copied=copied,
        )
        return dict(zip(names, found, strict=True))

    def _answer(
        self,
        inputs: Mapping[str, values.Data],
        outputs: Sequence[str] | None,
        telemetry: Telemetry,
    ) -> tuple[
        Sequence[str], CheckedCall, Route, list[values.Data], int, int, bool, tuple[int, int]
    ]:
        """The answer of a call, and how it came to be; only a lack of memory is counted."""
        self._refuse_closed()
        refuse_other_forms(inputs, outputs, self.inputs)
        names = self._output_names(outputs)
        checked = self._guard.check(inputs)
        if checked.copied:
            self._copied.update(checked.copied)
        route = self._router.route(checked.sizes, checked.outside)
        runner = self._runner(route.variant)
        sizes, added, part_of = checked.sizes, 0, None
        arrays: Mapping[str, values.Data] = checked.inputs
        if route.pads:
            arrays, given, added = self._padder.pad(arrays, sizes, route.wanted)
            part_of = partial(self._padder.crop_slices, sizes=sizes)
        else:
            given = self._padder.elements(arrays)
        try:
            found = runner.run(arrays, names, route.wanted, part_of)
        except AotcError as error:
            if error.code in OUT_OF_MEMORY:
                telemetry.lack_memory(error.code, self.variants[route.variant].name)
            raise
        copied = (_bytes(arrays.values()), _bytes(found)) if runner.copies else (0, 0)
        if route.pads:
            found = self._padder.crop(names, found, sizes)
        missed = runner.missed_graph(route.wanted)
        return names, checked, route, found, given, added, missed, copied

    def route(self, inputs: Mapping[str, values.Data]) -> command_reports.CallRoute:
        """The variant that would take a call, and why; nothing runs and nothing is counted.

        Raises AOTC-R001 to R005, R010, R021, R027 and S010, as `run` does.
        """
        self._refuse_closed()
        refuse_other_forms(inputs, None, self.inputs)
        checked = self._guard.check(inputs)
        found = self._router.route(checked.sizes, checked.outside)
        return command_reports.CallRoute(
            variant=self.variants[found.variant].name,
            cause=found.cause,
            sizes=checked.sizes,
            padded_to=dict(found.wanted) if found.pads else {},
        )

    def bind(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        stream: Any = None,
        carry: Mapping[str, str] | None = None,
    ) -> binding.BoundCall:
        """A call with these inputs and outputs in fixed memory, which is made once and run often.

        `inputs` are tensors with DLPack (torch, CuPy, JAX) on the device of the model, whose memory
        every call reads anew, or host arrays, which are copied there.  Outputs stay on the device.
        The sizes are those of the inputs, padded and routed as `run` does; if the variant captures
        graphs, this call has one of its own.  `stream` is where the caller writes inputs on the
        device: each call waits for it (None: the default stream).  `carry` names, by input, the
        output whose values that input reads in the next call, without a copy.

        Raises what `run` raises, AOTC-R022 for a tensor of another device, R024 if a graph cannot
        be captured, R050 for an output that cannot be carried, and N064 if each call is to draw
        random numbers anew.
        """
        # Before the check: closing leaves none.
        runners = self._runners
        try:
            self._refuse_closed()
            refuse_other_forms(inputs, outputs, self.inputs)
            self._refuse_draws()
            call = binding.bind_call(
                inputs,
                self._output_names(outputs),
                self._guard,
                self._router,
                runners,
                self._padder,
                stream,
                carry or {},
                [variant.in_place for variant in self.variants],
                self._counted,
                self,
            )
        except AotcError as error:
            self.telemetry.reject(error.code, error.where)
            if error.code in OUT_OF_MEMORY:
                self.telemetry.lack_memory(error.code)
            raise
        # On one line, as the locks of telemetry.
        with self._bound_lock: self._bound.add(call)  # fmt: skip # noqa: E701
        return call

    def _refuse_draws(self) -> None:
        random = self.manifest.random
        if random is None or random.policy != "seed" or not random.draws:
            return
        raise AotcError(
            "AOTC-N064",
            "a bound call does not draw random numbers anew",
            where=", ".join(f"node {each.node}" for each in random.nodes[:_MAX_SHOWN]),
        )

    def _counted(self, route: Route, outside: tuple[str, ...]) -> binding.Counted:
        """What counts a bound call of such a route."""
        name = self.variants[route.variant].name
        return partial(self.telemetry.call, outside=outside, variant=name, cause=route.cause)

    def _runner(self, index: int) -> Runner:
        runners = self._runners
        self._refuse_closed()
        return runners[index]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed_error(left=self._left)

    def _output_names(self, wanted: Sequence[str] | None) -> Sequence[str]:
        if wanted is None:
            return self._outputs
        if not wanted:
            raise AotcError(
                "AOTC-I027",
                "no output is requested",
                expected=", ".join(self._outputs),
                found="an empty list",
                fix="Name some, or pass None for all.",
            )
        for name in wanted:
            if name not in self._outputs:
                raise AotcError(
                    "AOTC-I027",
                    f"the model has no output {name!r}{did_you_mean(name, self._outputs)}",
                    expected=", ".join(self._outputs),
                    found=name,
                )
        return wanted

    @uninterrupted
    def close(self) -> None:
        """Free the sessions and end the recording; calls that are running still answer.

        A closed model cannot be reopened; closing it again does nothing.
        """
        self._closed = True
        self.telemetry.end()
        runners, self._runners = self._runners, ()
        with self._bound_lock:
            bound = tuple(self._bound)
        for call in bound:
            call.close()
        close_all(runners)
        if self._recorder is not None:
            self._recorder.close()
        if self._hold is not None:
            self._hold.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: refuse calls from now on, and change nothing that is the parent's.

        ONNX Runtime would end threads that the child does not have, which crashes it: its objects
        are kept for as long as the process lives.
        """
        from ctypes import py_object, pythonapi

        bound = tuple(self._bound)
        pythonapi.Py_IncRef(py_object((self._runners, bound)))
        for call in bound:
            call.leave_to_parent()
        self._left = not self._closed
        self._closed = True
        self._runners = ()
        # Threads that are not in the child may have held these.
        self._bound_lock, self._warm_lock = threading.Lock(), threading.Lock()
        self.telemetry.leave_to_parent()
        if self._recorder is not None:
            self._recorder.leave_to_parent()
        if self._hold is not None:
            # The parent has the same lock by its own descriptor.
            self._hold.close()

    def __enter__(self) -> Model:
        """The model; raises AOTC-R005 if it is closed."""
        self._refuse_closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(f"{item.name} on {'+'.join(item.providers)}" for item in self.variants)
        state = "closed" if self._closed else "ready" if self.ready else "open, not all warm"
        if self._left:
            state = "left to the parent process"
        text = f"{self.manifest.name!r}, sha256-{self._report.artifact_id[:12]}, {names}, {state}"
        return f"<aotc model {printable(text)}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Sessions, locks and the hold on the store belong to this process; raises AOTC-R020."""
        raise AotcError("AOTC-R020", "a loaded model cannot be copied or pickled", where=repr(self))


# Models of this process, for what it forks.  Not a WeakSet, which has Python code run where the
# last reference to a model is dropped: an interruption there would be lost.
_models: dict[int, weakref.ref[Model]] = {}
_numbers = count()


def _bytes(arrays: Iterable[values.Data]) -> int:
    return sum(map(values.nbytes, arrays))


def _note(model: Model) -> None:
    for number, known in list(_models.items()):
        if known() is None:
            _models.pop(number, None)
    _models[next(_numbers)] = weakref.ref(model)


def _leave_all_to_parent() -> None:
    for known in list(_models.values()):
        model = known()
        if model is not None:
            model._leave_to_parent()
    _models.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def _no_variant(name: str, loaded: Sequence[str]) -> AotcError:
    return AotcError(
        "AOTC-I027",
        f"no variant {name!r} is loaded{did_you_mean(name, loaded)}",
        expected=" or ".join(loaded),
        found=name,
    )


# The form of a call: inputs by name and names of outputs; other forms are explained.


# How many inputs an example shows.
_MAX_SHOWN = 3


def refuse_other_forms(inputs: object, outputs: object, wanted: Sequence[Value]) -> None:
    """Raise AOTC-R021 if a call is not `run({NAME: array, ...}, [NAME, ...])`.

    `wanted` are the model's inputs.  ONNX Runtime takes the outputs first, and other runtimes take
    only arrays.
    """
    if type(inputs) is dict and outputs is None:
        return
    if not isinstance(inputs, Mapping):
        swapped = isinstance(outputs, Mapping)
        raise AotcError(
            "AOTC-R021",
            "the inputs come first, and the names of outputs after them"
            if swapped
            else "the inputs are not given by name",
            where="inputs",
            expected=_example(wanted),
            found=f"run({_form_of(inputs)}, {_form_of(outputs)})" if swapped else _form_of(inputs),
        )
    are_names = isinstance(outputs, Sequence) and all(isinstance(name, str) for name in outputs)
    if outputs is not None and (isinstance(outputs, str) or not are_names):
        raise AotcError(
            "AOTC-R021",
            "the outputs are not a list of names",
            where="outputs",
            expected="a list of names, or None for all",
            found=repr(outputs) if isinstance(outputs, str) else _form_of(outputs),
        )


def _example(wanted: Sequence[Value]) -> str:
    named = [f"{value.name!r}: array" for value in wanted[:_MAX_SHOWN]]
    return f"run({{{', '.join([*named, *(['...'] if len(wanted) > _MAX_SHOWN else [])])}}})"


def _form_of(given: Any) -> str:
    if given is None:
        return "None"
    if isinstance(given, Mapping):
        return "a mapping"
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        return "a list of names"
    return describe(given)
