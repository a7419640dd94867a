"""From a fleet's file to its cells: models found, profiles and targets read, rows applied."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, with_others
from aotc.base.files.reading import read_at_most
from aotc.base.records import record, replace
from aotc.base.text import did_you_mean
from aotc.fleet.shards import MOST_SHARDS, shards
from aotc.pipeline.request import BuildRequest
from aotc.sources.registry import importer_of
from aotc.spec.codec import ParseError, decode
from aotc.spec.fleet import Cell, CellMatch, CellSettings, Fleet, FleetModel, Needs
from aotc.spec.precision import Name
from aotc.spec.profile import Profile
from aotc.spec.profile_files import (
    builtin_profiles,
    builtin_targets,
    load_profile_file,
    load_target,
)
from aotc.spec.yaml import MAX_YAML_BYTES, DocumentPlaces, located, place_of, strict_yaml

HOST: Final = "host"
_SUFFIX: Final = ".onnx"
# A file of this name is known by its folder's, as in collections of models.
_PLAIN: Final = "model"
_MAX_NAME: Final = 64
_BRACES: Final = re.compile(r"\{(\w*)\}")
_OF_CELLS: Final = frozenset({"fleet", "model", "profile", "target"})
_OF_MERGED: Final = _OF_CELLS - {"target"}


@record
class Task:
    """A cell, and all that its build is asked for.

    `model` is the name that the build gives the model, which is part of its key.
    """

    cell: Cell
    model: str
    source: str
    profile: Profile
    places: DocumentPlaces
    target: str
    settings: CellSettings
    fixtures: Path | None = None
    calibration: Path | None = None
    trust_source: bool = False


@record
class FleetFile:
    """A fleet as its file states it; `excluded` are cells with the reason why.

    `tasks` may be a share of `whole`, which are all cells that are not excluded.
    """

    fleet: Fleet
    path: Path
    tasks: tuple[Task, ...]
    whole: tuple[Cell, ...]
    excluded: tuple[tuple[Cell, str], ...] = ()

    def merged_output(self, model: str, profile: str) -> Path:
        """Where the artifact of all cells of a model with one profile is."""
        names = {"fleet": self.fleet.name, "model": model, "profile": profile}
        return self.path.parent / _filled(self.fleet.merged_output, names)

    def share(self, shard: str) -> FleetFile:
        """The cells of one share, `I/N`; empty: all.  Raises AOTC-I027.

        A share of a fleet that has fewer cells than shares may have none.
        """
        if not shard:
            return self
        index, _, count = shard.partition("/")
        known = index.isdecimal() and count.isdecimal() and len(shard) < 12
        if not known or not 0 < int(index) <= int(count) <= MOST_SHARDS:
            raise AotcError(
                "AOTC-I027",
                f"a share of a fleet is I/N, from 1/N to N/N, and N is at most {MOST_SHARDS}",
                where=f"--shard {shard}",
                expected="such as 2/5",
            )
        names = {cell.name for cell in shards(self.whole, int(count))[int(index) - 1]}
        tasks = tuple(task for task in self.tasks if task.cell.name in names)
        # Excluded cells are told once.
        return replace(self, tasks=tasks, excluded=self.excluded if int(index) == 1 else ())

    def only(self, globs: Sequence[str]) -> FleetFile:
        """The cells whose names match one of `globs`; without any, all.

        Raises AOTC-I166 where nothing is left to build.
        """
        named = self.tasks
        if globs:
            named = tuple(
                task
                for task in self.tasks
                if any(fnmatch.fnmatchcase(task.cell.name, each) for each in globs)
            )
        if not named:
            what = (
                "no cell of the fleet matches" if globs else "all cells of the fleet are excluded"
            )
            where = f"--only {' '.join(globs)}" if globs else str(self.path)
            some = self.tasks[0].cell.name if self.tasks else ""
            expected = f"one of {len(self.tasks)}, such as {some}" if some else ""
            raise AotcError("AOTC-I166", what, where=where, expected=expected)
        return replace(self, tasks=named, excluded=() if globs else self.excluded)


def read_fleet(path: Path) -> FleetFile:
    """The fleet in a YAML file, with all that is wrong with it told at once, each at its line.

    Raises AOTC-I001 (cannot be read), I160 (not valid), I046 (of a newer aotc), I161 (no such
    model), I162 (a profile or target that cannot be used), I163 (two cells with one output), I165
    (a template) and I167 (a row without a cell).
    """
    data = b""
    try:
        data = read_at_most(path, MAX_YAML_BYTES)
        fleet = decode(Fleet, strict_yaml(data))
    except OSError as error:
        raise AotcError(
            "AOTC-I001", "cannot read the fleet", where=str(path), found=str(error.strerror)
        ) from None
    except ParseError as error:
        raise with_others(
            AotcError(
                problem.code or "AOTC-I160",
                problem.what,
                where=f"{path}: {problem.path or '(top)'}",
                place=place_of(problem, str(path)),
            )
            for problem in located(error.problems, data)
        ) from None
    return _Reading(fleet, path, DocumentPlaces(file=str(path), data=data)).result()


class _Reading:
    """What is found of a file, and all that is wrong with it so far."""

    def __init__(self, fleet: Fleet, path: Path, places: DocumentPlaces) -> None:
        self.fleet, self.path, self.places = fleet, path, places
        self.folder = path.parent
        self.errors: list[AotcError] = []

    def result(self) -> FleetFile:
        """The fleet; raises everything that is wrong."""
        self._check_template("output", self.fleet.output, _OF_CELLS)
        self._check_template("merged_output", self.fleet.merged_output, _OF_MERGED)
        models, profiles, targets = self._models(), self._profiles(), self._targets()
        self._stop()
        tasks, excluded = [], []
        used: set[str] = set()
        for task, reason in self._tasks(models, profiles, targets, used):
            if reason is None:
                tasks.append(task)
            else:
                excluded.append((task.cell, reason))
        self._check_used(used)
        self._stop()
        found = FleetFile(
            fleet=self.fleet,
            path=self.path,
            tasks=tuple(tasks),
            whole=tuple(task.cell for task in tasks),
            excluded=tuple(excluded),
        )
        self._check_outputs(found)
        self._stop()
        return found

    def _stop(self) -> None:
        if self.errors:
            raise with_others(self.errors)

    def _wrong(
        self,
        code: str,
        what: str,
        setting: str,
        *,
        expected: str = "",
        found: str = "",
        also: tuple[AotcError, ...] = (),
    ) -> None:
        self.errors.append(
            AotcError(
                code,
                what,
                where=f"{self.path}: {setting}",
                expected=expected,
                found=found,
                place=self.places.of(setting),
                also=also,
            )
        )

    # Models.

    def _models(self) -> list[tuple[str, FleetModel, str]]:
        """Each model's name, with what the file states of it, and its source."""
        found: dict[tuple[Name | None, str], FleetModel] = {}
        for index, model in enumerate(self.fleet.models):
            setting = f"models[{index}]"
            sources = self._sources(model.path)
            if not sources:
                self._no_model(model.path, setting)
            if model.name is not None and len(sources) > 1:
                what = f"the name {model.name!r} is for one model"
                number = f"{len(sources)} files"
                self._wrong("AOTC-I160", what, f"{setting}.name", found=number)
            for name in ("fixtures", "calibration"):
                stated = getattr(model, name)
                if stated and not (self.folder / stated).exists():
                    what = f"there are no such {name}: {stated!r}"
                    self._wrong("AOTC-I161", what, f"{setting}.{name}")
            # A file is one model: a path says more of it than a glob, and a later one than others.
            for key in ((model.name, source) for source in sources):
                known = found.setdefault(key, model)
                if glob.has_magic(known.path) or not glob.has_magic(model.path):
                    found[key] = model
        given = [model.name for model in self.fleet.models if model.name is not None]
        for index, model in enumerate(self.fleet.models):
            if model.name is not None and given.count(model.name) > 1:
                what = f"two models have the name {model.name!r}"
                self._wrong("AOTC-I160", what, f"models[{index}].name")
        parts = [
            (name,) if name is not None else _path_parts(source, self.folder)
            for name, source in found
        ]
        stated = frozenset(index for index, (name, _) in enumerate(found) if name is not None)
        names = _unique(parts, stated)
        return [
            (name, model, source)
            for name, ((_, source), model) in zip(names, found.items(), strict=True)
        ]

    def _sources(self, text: str) -> list[str]:
        """The sources that a path or glob names, in the order of their paths."""
        path = self.folder / text
        if os.path.lexists(path):
            return [str(path)]
        if not glob.has_magic(text):
            return [text] if importer_of(text) is not None else []
        # Unlike Path.glob, this takes absolute patterns too.
        matched = glob.glob(text, root_dir=self.folder, recursive=True)  # noqa: PTH207
        found = [str(self.folder / each) for each in matched]
        return sorted(each for each in found if _is_model(each))

    def _no_model(self, text: str, setting: str) -> None:
        if glob.has_magic(text):
            what = f"no model matches {text!r}"
            self._wrong("AOTC-I161", what, setting, expected=f"*{_SUFFIX}, or another source")
            return
        parent = (self.folder / text).parent
        known = sorted(each.name for each in parent.iterdir()) if parent.is_dir() else []
        what = f"there is no such model: {text!r}{did_you_mean(Path(text).name, known)}"
        self._wrong("AOTC-I161", what, setting)

    # Profiles and targets.

    def _profiles(self) -> list[tuple[str, Profile, DocumentPlaces]]:
        found = []
        for index, text in enumerate(self.fleet.profiles):
            given = self._named(text, builtin_profiles())
            try:
                found.append((given, *load_profile_file(given)))
            except AotcError as error:
                self._unusable(error, f"profiles[{index}]", text)
        names = _unique([(Path(given).stem,) for given, _, _ in found])
        return [(name, *each[1:]) for name, each in zip(names, found, strict=True)]

    def _targets(self) -> list[tuple[str, str]]:
        """Names of targets, and what a build is asked for."""
        found = []
        for index, text in enumerate(self.fleet.targets):
            given = self._named(text, (HOST, *builtin_targets()))
            try:
                if given != HOST:
                    load_target(given)
                found.append(given)
            except AotcError as error:
                self._unusable(error, f"targets[{index}]", text)
        return list(zip(_unique([(Path(each).stem,) for each in found]), found, strict=True))

    def _named(self, text: str, known: Sequence[str]) -> str:
        return text if text in known else str(self.folder / text)

    def _unusable(self, error: AotcError, setting: str, text: str) -> None:
        code = error.code if error.code != "AOTC-I021" else "AOTC-I162"
        kind = setting.partition("s[")[0]
        if code == "AOTC-I162":
            known = builtin_profiles() if kind == "profile" else (HOST, *builtin_targets())
            what = f"no such {kind}: {text!r}{did_you_mean(text, known)}"
            expected = f"a YAML file, or one of: {', '.join(known)}"
            self._wrong(code, what, setting, expected=expected)
            return
        what = f"the {kind} {text!r} cannot be used"
        self._wrong("AOTC-I162", what, setting, also=(error,))

    # Cells.

    def _tasks(
        self,
        models: Sequence[tuple[str, FleetModel, str]],
        profiles: Sequence[tuple[str, Profile, DocumentPlaces]],
        targets: Sequence[tuple[str, str]],
        used: set[str],
    ) -> Iterator[tuple[Task, str | None]]:
        """Every cell in the order of the file, with the reason why it is excluded."""
        for model_name, model, source in models:
            name = BuildRequest(model=source).name
            for profile_name, profile, places in profiles:
                own = ((_clean(Path(profile.target).stem), profile.target),)
                for target_name, target in targets or own:
                    names = {"model": model_name, "profile": profile_name, "target": target_name}
                    settings = self._settings(names, used)
                    template = settings.output or self.fleet.output
                    output = _filled(template, {"fleet": self.fleet.name, **names})
                    cell = Cell(
                        **names,
                        source=source,
                        output=str(self.folder / output),
                        needs=settings.needs or Needs(),
                        required=settings.required is not False,
                        timeout_seconds=settings.timeout_seconds or 3600.0,
                    )
                    task = Task(
                        cell=cell,
                        model=name,
                        source=source,
                        profile=profile,
                        places=places,
                        target=target,
                        settings=settings,
                        fixtures=self.folder / model.fixtures if model.fixtures else None,
                        calibration=self.folder / model.calibration if model.calibration else None,
                        trust_source=model.trust_source,
                    )
                    yield task, self._excluded(names, used)

    def _settings(self, names: Mapping[str, str], used: set[str]) -> CellSettings:
        found = CellSettings()
        for index, row in enumerate(self.fleet.rows):
            if not _matches(row.match, names):
                continue
            used.add(f"rows[{index}]")
            stated = {
                field: value
                for field in CellSettings.__annotations__
                if (value := getattr(row.settings, field)) not in (None, {})
            }
            for field in ("dims", "values"):
                if field in stated:
                    stated[field] = {**getattr(found, field), **stated[field]}
            found = replace(found, **stated)
        return found

    def _excluded(self, names: Mapping[str, str], used: set[str]) -> str | None:
        reason = None
        for index, exclusion in enumerate(self.fleet.exclude):
            if _matches(exclusion.match, names):
                used.add(f"exclude[{index}]")
                reason = reason or exclusion.reason or "excluded by the file"
        return reason

    # What is checked.

    def _check_template(self, setting: str, template: str, known: frozenset[str]) -> None:
        named = _BRACES.findall(template)
        rest = _BRACES.sub("", template)
        wrong = [f"{{{name}}}" for name in named if name not in known]
        wrong += [brace for brace in "{}" if brace in rest]
        if wrong or "\0" in template:
            expected = ", ".join(f"{{{name}}}" for name in sorted(known))
            found = wrong[0] if wrong else "a null character"
            what = "the template of an output cannot be filled"
            self._wrong("AOTC-I165", what, setting, expected=expected, found=found)

    def _check_used(self, used: set[str]) -> None:
        for index, row in enumerate(self.fleet.rows):
            setting = f"rows[{index}].settings.output"
            if row.settings.output:
                self._check_template(setting, row.settings.output, _OF_CELLS)
            self._check_match(f"rows[{index}]", row.match, used)
        for index, exclusion in enumerate(self.fleet.exclude):
            self._check_match(f"exclude[{index}]", exclusion.match, used)

    def _check_match(self, setting: str, match: CellMatch, used: set[str]) -> None:
        if setting not in used:
            kind = "row" if setting.startswith("rows") else "exclusion"
            found = "/".join((match.model or "*", match.profile or "*", match.target or "*"))
            self._wrong("AOTC-I167", f"the {kind} matches no cell", setting, found=found)

    def _check_outputs(self, found: FleetFile) -> None:
        """No two artifacts in one place, and none within another."""
        wanted: dict[str, str] = {}
        merged = {}
        if self.fleet.merge == "by-model":
            pairs = dict.fromkeys((t.cell.model, t.cell.profile) for t in found.tasks)
            merged = {
                f"the merged {model}/{profile}": found.merged_output(model, profile)
                for model, profile in pairs
            }
        outputs = {task.cell.name: Path(task.cell.output) for task in found.tasks} | merged
        for name, output in outputs.items():
            place = os.path.abspath(output)  # noqa: PTH100 - links may be made until then
            other = wanted.setdefault(place, name)
            if other != name:
                self._collision(name, other, str(output))
        for place, name in wanted.items():
            for above in Path(place).parents:
                if (other := wanted.get(str(above), name)) != name:
                    self._collision(name, other, place)

    def _collision(self, name: str, other: str, output: str) -> None:
        rows = self.fleet.rows
        stating = [index for index, row in enumerate(rows) if row.settings.output]
        setting = f"rows[{stating[-1]}].settings.output" if stating else "output"
        what = f"{other} and {name} have one output"
        self._wrong("AOTC-I163", what, setting, found=output)


def _is_model(path: str) -> bool:
    if path.lower().endswith(_SUFFIX):
        return os.path.isfile(path)  # noqa: PTH113 - of what cannot be looked at, False
    return importer_of(path) is not None


def _matches(match: CellMatch, names: Mapping[str, str]) -> bool:
    return all(
        fnmatch.fnmatchcase(name, getattr(match, kind) or "*") for kind, name in names.items()
    )


def _filled(template: str, names: Mapping[str, str]) -> str:
    return _BRACES.sub(lambda found: names.get(found[1], ""), template)


# Names: short, of letters that paths and globs take as they are, and none twice.


def _path_parts(source: str, folder: Path) -> tuple[str, ...]:
    """Words by which a model may be called, the last being the most telling.

    They are those of its path from the fleet's folder, so that names are the same on all machines.
    """
    name = BuildRequest(model=source).name
    if not os.path.lexists(source):
        return (name,)
    parts = Path(os.path.relpath(source, folder)).parent.parts
    above = tuple(part for part in parts if part != os.pardir)
    return (*above, name) if name != _PLAIN or not above else above


def _unique(parts: Sequence[tuple[str, ...]], stated: Collection[int] = frozenset()) -> list[str]:
    """A name for each: the last of its parts, with as many before it as tell it from others.

    Those whose indices are `stated` have their names, whatever others there are.
    """
    taken = [1] * len(parts)
    while True:
        names = [_clean("-".join(each[-n:])) for each, n in zip(parts, taken, strict=True)]
        count = Counter(names)
        longer = [
            index
            for index, name in enumerate(names)
            if count[name] > 1 and taken[index] < len(parts[index])
        ]
        if not longer:
            break
        for index in longer:
            taken[index] += 1
    used = {names[index] for index in stated}
    unique: list[str] = []
    for index, name in enumerate(names):
        found, number = name, 1
        while found in used and index not in stated:
            number += 1
            found = f"{name[: _MAX_NAME - 6]}-{number}"
        used.add(found)
        unique.append(found)
    return unique


def _clean(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name[-_MAX_NAME:].lstrip("-._") or _PLAIN
