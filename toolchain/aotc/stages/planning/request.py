"""The request of one build as one record: the keyword arguments of `aotc.build`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

from aotc.contract.codec.parsing import Json
from aotc.contract.profile import Profile
from aotc.contract.results.journal import Journal
from aotc.contract.trust.signer import Sealer, Signer
from aotc.engine.worker_pool import Workers
from aotc.records import field, record

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@record
class BuildRequest:
    """The request of one build; see `aotc.build` for the meaning of each field."""

    model: str | Path | bytes = field(kw_only=False)
    profile: str | Path | Profile = "edge"
    target: str | Path | None = None
    precision: str | None = None
    output: str | Path | None = None
    key: str | Path | Signer | Sealer | None = None
    force: bool = False
    dims: Mapping[str, str | int] | None = None
    fixtures: str | Path | None = None
    embed_fixtures: bool = False
    calibration: str | Path | None = None
    cache: bool = True
    tune: bool = False
    tuned_from: str | Path | None = None
    builder_id: str | None = None
    invocation_id: str = ""
    release: str = ""
    licence: str = ""
    progress: Callable[[str], None] | None = None
    journal: Journal | None = None
    workers: Workers | None = None

    @property
    def name(self) -> str:
        """The model's name: that of its file without the suffix."""
        return "model" if isinstance(self.model, bytes) else Path(self.model).stem

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
        return stated if self.precision is None else {**stated, "precision": self.precision}


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
