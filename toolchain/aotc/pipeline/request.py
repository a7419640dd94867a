"""The request of one build as one record, and what it changes in its profile."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, get_args

from aotc.base.errors import AotcError
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import field, record, replace
from aotc.session.worker_pool import Workers
from aotc.sources.registry import importer_of
from aotc.spec.allowed_values import read_allowed
from aotc.spec.codec import Json, ParseError
from aotc.spec.precision import PRECISION_ALIASES, WantedPrecision, precision_meant
from aotc.spec.profile import CustomOpsSpec, InputSpec, Profile, RandomPolicy
from aotc.spec.profile_files import load_profile_file, load_target, with_absolute_paths
from aotc.spec.run_report import Journal
from aotc.spec.shapes import DimRange
from aotc.spec.target import Target
from aotc.spec.trust_policy import Sealer, Signer
from aotc.spec.yaml import NO_PLACES, DocumentPlaces

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class FrameworkModel(Protocol):
    """A module or an exported program of PyTorch, in memory."""

    @property
    def state_dict(self) -> Any:
        """Its weights, or what gives them."""


@record
class BuildRequest:
    """The request of one build; see `aotc.build` for the meaning of each field."""

    model: str | Path | bytes | FrameworkModel = field(kw_only=False)
    example_inputs: Any = field(default=None, kw_only=False)
    dynamic_shapes: Any = None
    trust_source: bool = False
    source_options: Mapping[str, Json] = field(default_factory=dict)
    profile: str | Path | Profile = "edge"
    target: str | Path | None = None
    precision: str | None = None
    random: str | None = None
    allow_unproven: bool = False
    output: str | Path | None = None
    key: str | Path | Signer | Sealer | None = None
    force: bool = False
    dims: Mapping[str, str | int] | None = None
    values: Mapping[str, str] | None = None
    fixtures: str | Path | None = None
    embed_fixtures: bool = False
    calibration: str | Path | None = None
    custom_ops: Sequence[str | Path] = ()
    cache: bool = True
    tune: bool = False
    tuned_from: str | Path | None = None
    against: str | Path | None = None
    builder_id: str | None = None
    invocation_id: str = ""
    release: str = ""
    licence: str = ""
    progress: Callable[[str], None] | None = None
    journal: Journal | None = None
    workers: Workers | None = None

    @property
    def source(self) -> str | Path | bytes:
        """The model, once no module in memory is left: see `in_files`."""
        assert isinstance(self.model, str | Path | bytes)
        return self.model

    @property
    def name(self) -> str:
        """The model's name: that of its file without the suffix."""
        source = self.source
        if isinstance(source, bytes):
            return "model"
        importer = importer_of(source)
        return Path(source).stem if importer is None else importer.model_name(str(source))

    @property
    def output_path(self) -> Path:
        """The path for the artifact."""
        return Path(self.output) if self.output is not None else Path(f"{self.name}.aotc")

    @property
    def is_tuned(self) -> bool:
        """Whether its variants are chosen among the profile's candidates, now or earlier."""
        return self.tune or self.tuned_from is not None

    def calibration_of(self, profile: Profile) -> Path | None:
        """The calibration data of this call, else that of `profile`."""
        path = self.calibration if self.calibration is not None else profile.calibration.data
        return Path(path) if path else None

    def stated_options(self) -> dict[str, Json]:
        """Options that the provenance states."""
        stated: dict[str, Json] = {"embed_fixtures": self.embed_fixtures, "tune": self.tune}
        if self.precision is not None:
            stated["precision"] = PRECISION_ALIASES.get(self.precision, self.precision)
        if self.random is not None:
            stated["random"] = self.random
        if self.allow_unproven:
            stated["allow_unproven"] = True
        if self.trust_source:
            stated["trust_source"] = True
        told = {key: value for key, value in self.source_options.items() if key != "asked"}
        if told:
            stated["source"] = told
        return stated


@contextmanager
def in_files(request: BuildRequest) -> Iterator[BuildRequest]:
    """The request, with a module in memory saved to a file for as long as the context lasts.

    Raises AOTC-I027 for a model that is none, and for example inputs of one in a file; I121.
    """
    from aotc.sources.torch_module import is_torch_module, module_name, save_module

    model = request.model
    if isinstance(model, str | Path | bytes):
        if request.example_inputs is not None or request.dynamic_shapes is not None:
            raise AotcError(
                "AOTC-I027",
                "example inputs and dynamic shapes are those of a module in memory",
                where="aotc.build",
                found=f"a model in {'bytes' if isinstance(model, bytes) else 'a file'}",
            )
        yield request
        return
    if not is_torch_module(model):
        raise AotcError(
            "AOTC-I027",
            "this cannot be built",
            where="aotc.build",
            expected="a path, bytes of an ONNX model, a torch.nn.Module, or an ExportedProgram",
            found=f"{type(model).__module__}.{type(model).__qualname__}",
        )
    with temporary_folder("module") as folder:
        path, options = save_module(model, request.example_inputs, request.dynamic_shapes, folder)
        output = request.output if request.output is not None else f"{module_name(model)}.aotc"
        yield replace(
            request,
            model=path,
            example_inputs=None,
            dynamic_shapes=None,
            source_options={**request.source_options, **options},
            output=output,
        )


def called_with(
    record: Callable[P, R],
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Make a function of one record callable with the record's fields, with their signature."""

    def decorated(function: Callable[[R], T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> T:
            try:
                request = record(*arguments, **named)
            except TypeError as error:
                # Callers know the function, not the record.
                text = str(error).replace(f"{record.__qualname__}.__init__()", f"{call.__name__}()")
                raise TypeError(text) from None
            return function(request)

        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(record).replace(return_annotation=returned)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorated


def requested_profile(request: BuildRequest) -> tuple[Profile, DocumentPlaces]:
    """The requested profile, with what the request states of its settings.

    Variants that state a precision of their own keep it.  The second result tells where the
    profile's file states its settings.  Raises AOTC-I021, I022, S003 and I027.
    """
    profile = request.profile
    found, places = (
        (with_absolute_paths(profile, Path()), NO_PLACES)
        if isinstance(profile, Profile)
        else load_profile_file(profile)
    )
    found = with_dims(found, request.dims or {})
    found = with_values(found, request.values or {})
    if request.precision is not None:
        found = replace(found, precision=_precision(request.precision))
    if request.random is not None:
        found = replace(found, random=_random(request.random))
    if request.custom_ops:
        named = tuple(
            CustomOpsSpec(library=str(Path(each).absolute())) for each in request.custom_ops
        )
        found = replace(found, custom_ops=(*found.custom_ops, *named))
    overridden = set()
    if request.allow_unproven:
        found = replace(found, unproven="allow")
        overridden.add("unproven")
    if request.target is not None:
        found = replace(found, target=str(request.target))
        overridden.add("target")
    # A target of the request is not one that the profile names.
    return found, replace(places, overridden=frozenset(overridden))


def with_dims(profile: Profile, dims: Mapping[str, str | int]) -> Profile:
    """`profile` with ranges from the command line; raises AOTC-S003 and I027."""
    ranges = dict(profile.dims)
    for name, text in dims.items():
        if name in ranges and ranges[name].buckets:
            raise AotcError(
                "AOTC-I027",
                "the profile has buckets for this dim, which --dim would replace",
                where=f"--dim {name}={text}",
                fix="Change the dim in the profile.",
            )
        try:
            ranges[name] = DimRange.from_json(text)
        except ParseError as error:
            problem = error.problems[0]
            raise AotcError(
                problem.code or "AOTC-I027",
                problem.what,
                where=f"--dim {name}={text}",
                expected="NAME=SIZE, NAME=MIN..MAX or NAME=MIN..MAX:STEP",
            ) from None
    return replace(profile, dims=ranges)


def with_values(profile: Profile, values: Mapping[str, str]) -> Profile:
    """`profile` with values of inputs from the command line; raises AOTC-I110."""
    inputs = dict(profile.inputs)
    for name, text in values.items():
        try:
            read = read_allowed(text)
        except ParseError as error:
            problem = error.problems[0]
            raise AotcError(
                problem.code,
                f"{problem.path}: {problem.what}" if problem.path else problem.what,
                where=f"--value {name}={text}",
                expected="NAME=MIN..MAX, NAME=MIN.., NAME=..MAX or NAME=VALUE,VALUE",
            ) from None
        spec = inputs.get(name, InputSpec())
        inputs[name] = replace(spec, min=read.min, max=read.max, values=read.values)
    return replace(profile, inputs=inputs)


def _precision(word: str) -> WantedPrecision:
    word = PRECISION_ALIASES.get(word, word)
    for known in get_args(WantedPrecision):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise _not_among(get_args(WantedPrecision), "precision", word, meant=precision_meant(word))


def _random(word: str) -> RandomPolicy:
    for known in get_args(RandomPolicy):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise _not_among(get_args(RandomPolicy), "policy for random numbers", word, "--random")


def _not_among(
    known: Sequence[str], what: str, word: str, option: str = "", meant: str = ""
) -> AotcError:
    return AotcError(
        "AOTC-I027",
        f"this is not a valid {what}" + (f"; did you mean {meant!r}?" if meant else ""),
        where=f"{option or f'--{what}'} {word}",
        expected=", ".join(known),
    )


def target_of(profile: Profile, host: Target, places: DocumentPlaces = NO_PLACES) -> Target:
    """The target that the profile names, with the profile's GPUs; `host` is this machine.

    Raises AOTC-I049 for a target that the profile's own file names, at its line there, with what
    is wrong with it in `also`; and as `load_target` does for one of the request.
    """
    try:
        found = host if profile.target == "host" else load_target(profile.target)
    except AotcError as error:
        place = places.of("target")
        if place is None:
            raise
        raise AotcError(
            "AOTC-I049",
            "the profile names a target that cannot be used",
            where=f"{place.file}: target",
            found=profile.target,
            fix=error.fix,
            place=place,
            also=(error,),
        ) from None
    if profile.compute_capabilities:
        found = replace(found, compute_capabilities=profile.compute_capabilities)
    return found


def refuse_artifact(model: str | Path | bytes) -> None:
    """Raise AOTC-I002 if `model` is the folder of an artifact."""
    # Unlike Path.is_file, this treats a name that is too long as missing.
    manifest = "" if isinstance(model, bytes) else os.path.join(model, "payload", "aotc.json")  # noqa: PTH118
    if os.path.isfile(manifest):  # noqa: PTH113
        raise AotcError(
            "AOTC-I002",
            "this is an artifact already, not a model",
            where=str(model),
            fix="Build from the .onnx file; 'aotc inspect' shows which one it was.",
        )
