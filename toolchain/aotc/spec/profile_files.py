"""Profiles and targets by name or from a file, and the paths that a profile states."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

from aotc.base.errors import AotcError, with_others
from aotc.base.files.reading import read_at_most
from aotc.base.records import replace
from aotc.base.text import did_you_mean
from aotc.spec.codec import Json, ParseError, Problem, decode, encode
from aotc.spec.precision import precision_meant
from aotc.spec.profile import Profile, TelemetrySpec
from aotc.spec.providers import CAPTURING, ArenaOptions
from aotc.spec.target import Target
from aotc.spec.yaml import MAX_YAML_BYTES, DocumentPlaces, located, place_of, strict_yaml

# A word for what no profile is named by.
_DEVICES = {"gpu": "server-cuda"}
T = TypeVar("T", Profile, Target)


def data_folder(name: str) -> Path:
    """The path of `profiles` or `manifests`, in the installed package or in a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / f"_{name}"
    return shipped if shipped.is_dir() else package.parent.parent / name


@cache
def builtin_profiles() -> tuple[str, ...]:
    """Names of the built-in profiles."""
    return tuple(sorted(path.stem for path in data_folder("profiles").glob("*.yaml")))


@cache
def builtin_targets() -> tuple[str, ...]:
    """Names of the built-in targets; `host` is not among them, as it is probed."""
    return tuple(sorted(path.stem for path in (data_folder("profiles") / "targets").glob("*.yaml")))


def load_profile(name_or_path: str | Path) -> Profile:
    """A built-in profile by its name, or the profile in a YAML file.

    Raises AOTC-I021 (there is no such profile), I022 (it is not valid), I046 (it is of a newer
    aotc) or I001 (the file cannot be read).
    """
    return load_profile_file(name_or_path)[0]


def load_profile_file(name_or_path: str | Path) -> tuple[Profile, DocumentPlaces]:
    """The same, with the places of its settings."""
    builtin = builtin_profiles()
    folder = data_folder("profiles")
    profile, places = _load_document(name_or_path, Profile, "profile", folder, builtin)
    if str(name_or_path) not in builtin:
        profile = with_absolute_paths(profile, Path(name_or_path).parent)
    return profile, places


def load_target(name_or_path: str | Path) -> Target:
    """A built-in target by its name, or the target in a YAML file.

    The target `host` is not loaded but probed (`aotc.host.probe`).  Raises AOTC-I021 (there is no
    such target), I022 (it is not valid), I046 (it is of a newer aotc) or I001 (the file cannot be
    read).
    """
    folder = data_folder("profiles") / "targets"
    return _load_document(name_or_path, Target, "target", folder, builtin_targets())[0]


def _load_document(
    name_or_path: str | Path, record: type[T], kind: str, folder: Path, builtin: tuple[str, ...]
) -> tuple[T, DocumentPlaces]:
    text = str(name_or_path)
    path = Path(text)
    if text in builtin:
        path = folder / f"{text}.yaml"
    elif not path.is_file():
        # The host is probed, and not in a file.
        known = ("host", *builtin) if kind == "target" else builtin
        raise AotcError(
            "AOTC-I021",
            f"no such {kind}: {text!r}{_meant(text) or did_you_mean(text, known)}",
            expected=f"a YAML file, or one of: {', '.join(known)}",
        )
    data = b""
    try:
        data = read_at_most(path, MAX_YAML_BYTES)
        document = strict_yaml(data)
        schema = document.get("schema") if isinstance(document, dict) else None
        if isinstance(schema, str) and not schema.startswith(f"aotc.{kind}/"):
            raise ParseError([Problem("schema", f"this is not a {kind}: its schema is {schema}")])
        return decode(record, document), DocumentPlaces(file=str(path), data=data)
    except ParseError as error:
        raise with_others(
            AotcError(
                problem.code or "AOTC-I022",
                problem.what,
                where=f"{path}: {problem.path or '(top)'}",
                place=place_of(problem, str(path)),
            )
            for problem in located(error.problems, data)
        ) from None
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"cannot read the {kind}", where=str(path), found=str(error.strerror)
        ) from None


def with_absolute_paths(profile: Profile, folder: Path) -> Profile:
    """`profile` with absolute paths of libraries and data; relative ones start at `folder`.

    Raises AOTC-I022 if a path starts with `~` and there is no such home folder.
    """
    base = folder.resolve()
    plugins = {
        name: replace(spec, library=_absolute(spec.library, base, f"plugins.{name}.library"))
        for name, spec in profile.plugins.items()
    }
    custom_ops = tuple(
        replace(spec, library=_absolute(spec.library, base, f"custom_ops[{index}].library"))
        for index, spec in enumerate(profile.custom_ops)
    )
    calibration, gates = profile.calibration, profile.gates
    if calibration.data:
        data = _absolute(calibration.data, base, "calibration.data")
        calibration = replace(calibration, data=data)
    if gates.task is not None:
        data = _absolute(gates.task.data, base, "gates.task.data")
        gates = replace(gates, task=replace(gates.task, data=data))
    return replace(
        profile, plugins=plugins, custom_ops=custom_ops, calibration=calibration, gates=gates
    )


def without_folders(profile: Profile) -> Profile:
    """`profile` with names of its libraries and data alone: builds in two folders are equal."""
    plugins = {
        name: replace(spec, library=Path(spec.library).name)
        for name, spec in profile.plugins.items()
    }
    custom_ops = tuple(
        replace(spec, library=Path(spec.library).name) for spec in profile.custom_ops
    )
    calibration, gates = profile.calibration, profile.gates
    if calibration.data:
        calibration = replace(calibration, data=Path(calibration.data).name)
    if gates.task is not None:
        gates = replace(gates, task=replace(gates.task, data=Path(gates.task.data).name))
    return replace(
        profile, plugins=plugins, custom_ops=custom_ops, calibration=calibration, gates=gates
    )


def stated_profile(profile: Profile) -> Json:
    """`profile` as a manifest states it: all fields, but those that came later and say nothing.

    Ids of what was built before there were these fields stay.
    """
    stated = encode(without_folders(profile), full=True)
    if profile.telemetry == TelemetrySpec():
        del stated["telemetry"]
    if profile.gates.dims is None:
        del stated["gates"]["dims"]
    if profile.budgets.concurrency == 1:
        del stated["budgets"]["concurrency"]
    if profile.budgets.device_memory_bytes is None:
        del stated["budgets"]["device_memory_bytes"]
    for each in (stated, *stated["variants"]):
        options = each[CAPTURING.name]
        if options is not None and options["graphs"]["sessions"] == "auto":
            del options["graphs"]["sessions"]
        if options is not None and options["memory"] == encode(ArenaOptions(), full=True):
            del options["memory"]
    return stated


def _absolute(path: str, base: Path, field: str) -> str:
    try:
        return str(base / Path(path).expanduser())
    except RuntimeError:
        kind = "library" if field.endswith("library") else "data"
        raise AotcError(
            "AOTC-I022",
            f"the path of the {kind} starts with a home folder that does not exist",
            where=field,
            found=path,
        ) from None


def _meant(name: str) -> str:
    """The end of a message on a name that is a word of another kind, or an empty string."""
    if precision := precision_meant(name):
        return f"; did you mean '--precision {precision}'?"
    word = name.lower()
    named = [each for each in builtin_profiles() if each.rpartition("-")[2] == word]
    found = next(iter(named), _DEVICES.get(word, ""))
    return f"; did you mean '--profile {found}'?" if found and found != name else ""
