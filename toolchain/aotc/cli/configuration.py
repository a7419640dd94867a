"""Defaults that `aotc.yaml` in the working directory sets, or the file that AOTC_CONFIG names.

Only commands that build or measure read it, and `aotc config`.  What decides whether an artifact is
trusted never does: whoever may write into a folder must not choose whom a command there believes,
nor what program runs there, nor reach beyond the folder.  So a file that nobody named may set less
than one that was named, and name files in its own folder alone (`aotc.base.files.confined`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError, Place, with_others
from aotc.base.files import confined
from aotc.base.files.reading import open_plain, read_at_most
from aotc.base.records import record
from aotc.report.report_forms import is_standard_output, require_replaceable
from aotc.spec.codec import ParseError, Problem, decode
from aotc.spec.config import OPTIONS, OWN_ONLY, Config
from aotc.spec.profile_files import builtin_profiles, builtin_targets, load_profile
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
    confined.release()
    path = config_path()
    if path is None:
        return {}
    is_named = bool(os.environ.get(VARIABLE))
    if not is_named:
        _require_own_file()
    data = _content(path)
    try:
        document = strict_yaml(data)
        # An empty file sets nothing.
        config = decode(Config, {} if document is None else document)
    except ParseError as error:
        raise _invalid(path, data, error.problems) from None
    settings = _settings(path, data, config)
    if not is_named:
        _refuse_unnamed(settings)
    return settings


def _require_own_file() -> None:
    try:
        confined.confine(NAME)
    except AotcError:
        raise AotcError(
            "AOTC-I052",
            "the configuration in the working directory is a link, or no plain file",
            where=NAME,
            fix=f"Have {VARIABLE} name the file that is meant, or '{OFF}' for none.",
        ) from None


def _refuse_unnamed(settings: Settings) -> None:
    """Raise AOTC-I052 with every setting that takes a file which somebody named."""
    refused = {}
    for command, values in settings.items():
        for name, setting in values.items():
            for value in setting.value if isinstance(setting.value, tuple) else (setting.value,):
                what = _takes_naming(command, name, value)
                if what is not None:
                    refused[setting.place, value] = AotcError(
                        "AOTC-I052",
                        what.what,
                        where=f"{NAME}: {setting.field}",
                        found=str(value),
                        fix=what.fix,
                        place=setting.place,
                    )
    if refused:
        raise with_others(refused.values())


def _takes_naming(command: str, name: str, value: Any) -> AotcError | None:
    """Why a setting would be obeyed in a file alone that somebody named; None where in any."""
    try:
        if name == "key" and command == "bench":
            raise _must_not_set("a key to trust")
        if not isinstance(value, str) or _is_no_path(name, value):
            return None
        confined.confine(value)
        if name == "report":
            require_replaceable(value)
        elif name == "key":
            from aotc.trust.signers import is_signer_file

            if is_signer_file(value):
                raise _must_not_set("a signer file, which runs a program")
        elif name == "profile":
            _require_tame(value)
    except AotcError as error:
        return error
    return None


def _require_tame(name: str) -> None:
    """Raise AOTC-I052 for a profile that runs code, or reads files elsewhere."""
    with suppress(OSError):
        # A file that appears only later was judged by nobody.
        read_at_most(name, MAX_YAML_BYTES)
    try:
        profile = load_profile(name)
    except AotcError as error:
        if error.code == "AOTC-I052":
            raise
        # Who uses it is told why it cannot be loaded.
        return
    if profile.plugins:
        raise _must_not_set("a profile that loads plugin libraries")
    if profile.custom_ops:
        raise _must_not_set("a profile that loads libraries of custom operators")
    task = profile.gates.task
    if task is not None and task.runs_code:
        raise _must_not_set("a profile whose task runs a function")
    if not _is_no_path("target", profile.target):
        confined.confine(profile.target)
    for data in (profile.calibration.data, task.data if task is not None else ""):
        if data:
            confined.confine(data)


def _must_not_set(what: str) -> AotcError:
    return AotcError(
        "AOTC-I052",
        f"the configuration in the working directory must not set {what}",
        fix=confined.FIX,
    )


def _content(path: Path) -> bytes:
    try:
        # A pipe of that name would have every command wait for it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise AotcError("AOTC-I052", "the configuration is not a plain file", where=str(path))
        with open_plain(path) as file:
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
    return with_others(
        AotcError(
            problem.code or "AOTC-I052",
            problem.what,
            where=f"{path}: {problem.path}" if problem.path else str(path),
            place=place_of(problem, str(path)),
        )
        for problem in located(problems, data)
    )


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
    if _is_no_path(name, stated):
        return stated
    return str(folder / stated)


def _is_no_path(name: str, value: str) -> bool:
    """Whether a text is the name of what is built in, or of standard output, and not of a file."""
    if name == "profile":
        return value in builtin_profiles()
    if name == "target":
        return value in ("host", *builtin_targets())
    return name == "report" and is_standard_output(value)
