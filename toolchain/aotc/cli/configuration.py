"""Defaults that `aotc.yaml` in the working directory sets, or the file that AOTC_CONFIG names.

Only commands that build or measure read it, and `aotc config`.  What decides whether an artifact is
trusted never does: whoever may write into a folder must not choose whom a command there believes,
nor what program runs there.  So a file that nobody named may set less than one that was named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError, Place
from aotc.base.records import record
from aotc.report.report_forms import is_standard_output
from aotc.spec.codec import ParseError, Problem, decode
from aotc.spec.config import OPTIONS, OWN_ONLY, Config
from aotc.spec.profile_files import StatedProfile, builtin_profiles, builtin_targets, load_profile
from aotc.spec.yaml import (
    MAX_YAML_BYTES,
    located,
    nearest_position,
    place_of,
    positions,
    strict_yaml,
)

NAME: Final = "aotc.yaml"
VARIABLE: Final = "AOTC_CONFIG"
# Value of the variable with which no file is read.
OFF: Final = "off"


@record
class Setting:
    """A default that a file sets: the value as the command line would have it, and its place."""

    value: Any
    field: str
    place: Place


Settings = Mapping[str, Mapping[str, Setting]]


def config_path() -> Path | None:
    """The file to read; None where there is none."""
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named) if named != OFF else None
    return Path(NAME) if os.path.lexists(NAME) else None


def read_settings() -> Settings:
    """What the configuration sets, by command and option; empty where there is none.

    Raises AOTC-I052 if it cannot be read, is not valid or sets what a file that nobody named may
    not, and I046 if it is of a newer aotc.
    """
    path = config_path()
    if path is None:
        return {}
    data = _content(path)
    try:
        document = strict_yaml(data)
        # An empty file sets nothing.
        config = decode(Config, {} if document is None else document)
    except ParseError as error:
        raise _invalid(path, data, error.problems) from None
    settings = _settings(path, data, config)
    if not os.environ.get(VARIABLE):
        _refuse_unnamed(settings)
    return settings


def _refuse_unnamed(settings: Settings) -> None:
    """Raise AOTC-I052 with every setting that takes a file which somebody named."""
    refused = {}
    for command, values in settings.items():
        for name, setting in values.items():
            if what := _takes_naming(command, name, setting.value):
                refused[setting.place] = AotcError(
                    "AOTC-I052",
                    f"the configuration in the working directory must not set {what}",
                    where=f"{NAME}: {setting.field}",
                    found=str(setting.value),
                    fix="Take it out of the file and name it on the command line, or have "
                    f"{VARIABLE} name the file.",
                    place=setting.place,
                )
    if refused:
        first, *others = refused.values()
        first.also = tuple(others)
        raise first


def _takes_naming(command: str, name: str, value: Any) -> str:
    """What a setting would be obeyed in that runs a program or decides trust; empty if neither."""
    if name == "key":
        from aotc.trust.signers import is_signer_file

        if command == "bench":
            return "a key to trust"
        return "a signer file, which runs a program" if is_signer_file(value) else ""
    if name == "profile" and value not in builtin_profiles():
        try:
            profile = load_profile(value)
        except AotcError:
            # Who uses it is told why it cannot be loaded.
            return ""
        if profile.plugins:
            return "a profile that loads plugin libraries"
        task = profile.gates.task
        return "a profile whose task runs a function" if task and task.runs_code else ""
    return ""


def _content(path: Path) -> bytes:
    try:
        # A pipe of that name would have every command wait for it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise AotcError("AOTC-I052", "the configuration is not a plain file", where=str(path))
        with path.open("rb") as file:
            return file.read(MAX_YAML_BYTES + 1)
    except OSError as error:
        raise AotcError(
            "AOTC-I052",
            "cannot read the configuration",
            where=str(path),
            found=str(error.strerror),
            fix=f"Fix the file, or have {VARIABLE} name another; '{OFF}' for none.",
        ) from None


def _invalid(path: Path, data: bytes, problems: tuple[Problem, ...]) -> AotcError:
    first, *others = [
        AotcError(
            problem.code or "AOTC-I052",
            problem.what,
            where=f"{path}: {problem.path}" if problem.path else str(path),
            place=place_of(problem, str(path)),
        )
        for problem in located(problems, data)
    ]
    first.also = tuple(others)
    return first


def _settings(path: Path, data: bytes, config: Config) -> Settings:
    found: dict[str, dict[str, Setting]] = {}
    known = positions(data)
    for command, names in OPTIONS.items():
        section = command.replace("-", "_")
        own = getattr(config, section)
        for name in names:
            stated, field = getattr(own, name), f"{section}.{name}"
            if stated is None and name not in OWN_ONLY.get(command, ()):
                stated, field = getattr(config, name), name
            if stated is not None:
                line, column = nearest_position(known, field)
                value = _from_file(name, stated, path.parent)
                place = Place(file=str(path), line=line, column=column)
                setting = Setting(value=value, field=field, place=place)
                found.setdefault(command, {})[name] = setting
    return found


def _from_file(name: str, stated: Any, folder: Path) -> Any:
    """A value as the command line would have it in the working directory."""
    if isinstance(stated, bool):
        return stated
    if isinstance(stated, tuple):
        return tuple(_from_file(name, item, folder) for item in stated)
    if name == "profile" and stated in builtin_profiles():
        return stated
    if name == "target" and stated in ("host", *builtin_targets()):
        return stated
    if name == "report" and is_standard_output(stated):
        return stated
    path = str(folder / stated)
    return StatedProfile(path) if name == "profile" else path
