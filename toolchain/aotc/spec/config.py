"""Configuration: defaults of commands that build or measure.  YAML, schema `aotc.config/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from aotc.base.records import record
from aotc.spec.codec import Pattern

# Names of options in a configuration, by command.  `verify`, `run` and `aotc.load` have none.
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "build": ("profile", "target", "key", "cache", "report", "calibration"),
    "check-models": ("profile", "cache", "report"),
    "bench": ("key", "report"),
}
# Those that a value outside the commands' own sections does not set: a key that signs is not one
# to trust, and data that only builds use.
OWN_ONLY: Final[Mapping[str, tuple[str, ...]]] = {"bench": ("key",), "build": ("calibration",)}

_Text = Annotated[str, Pattern(r"[^\x00-\x1f\x7f]{1,4096}")]
_ProfileText = Annotated[_Text | None, "built-in profile, or file"]
_TargetText = Annotated[_Text | None, "built-in target, host, or file"]
_SigningKey = Annotated[_Text | None, "signing key (.pem) or signer file (.yaml)"]
_Report = Annotated[_Text | tuple[_Text, ...] | None, "file, or files, for the report of the run"]


@record
class BuildDefaults:
    """Defaults of `aotc build`."""

    profile: _ProfileText = None
    target: _TargetText = None
    key: _SigningKey = None
    cache: Annotated[bool | None, "false: --no-cache"] = None
    report: _Report = None
    calibration: Annotated[_Text | None, "samples to quantize with: a file, or a folder"] = None


@record
class CheckModelsDefaults:
    """Defaults of `aotc check-models`."""

    profile: _ProfileText = None
    cache: Annotated[bool | None, "true: --cache"] = None
    report: _Report = None


@record
class BenchDefaults:
    """Defaults of `aotc bench`."""

    key: Annotated[_Text | None, "public key to trust"] = None
    report: _Report = None


@record
class Config:
    """Defaults for all commands that have the option, and those of one command, which go before.

    Paths are relative to the file.  A file that nobody named (`aotc.yaml` in the working directory)
    may set neither a signer file nor a profile that loads libraries or whose task runs a function,
    nor `bench.key`, and name files below its folder alone, without a link on the way.
    """

    schema: Annotated[Literal["aotc.config/1"], "version of this schema"] = "aotc.config/1"
    profile: _ProfileText = None
    target: _TargetText = None
    key: _SigningKey = None
    cache: Annotated[bool | None, "whether builds are taken from the user's cache and kept"] = None
    report: _Report = None
    build: BuildDefaults = BuildDefaults()
    check_models: CheckModelsDefaults = CheckModelsDefaults()
    bench: BenchDefaults = BenchDefaults()
