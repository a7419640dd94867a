"""The first files of a project: a profile with the dims of its model, and jobs for its CI."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, Literal

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import repository_of
from aotc.base.files.reading import read_at_most
from aotc.base.files.replacing import check_output
from aotc.base.files.writing import write_atomically
from aotc.base.text import printable
from aotc.spec.codec import decode
from aotc.spec.command_reports import FileAction, InitFile, InitReport
from aotc.spec.payload import Value
from aotc.spec.profile import InputSpec, Profile
from aotc.spec.profile_files import data_folder
from aotc.spec.yaml import strict_yaml, yaml_text

CiSystem = Literal["github", "gitlab", "none"]
_IGNORED: Final = (".aotc-cache/", "*.aotc/", "*.aotc.zip", "*.pem")
_IGNORE_FILE: Final = PurePosixPath(".gitignore")
# What neither a shell, nor YAML, nor the expressions of a CI system read as anything else.
_PATH: Final = re.compile(r"(?!-)[\w./+@=,-]+( +[\w./+@=,-]+)*")
_PIPELINE: Final = PurePosixPath(".gitlab-ci.yml")
# From the template, which is next to the others, to the place in the project.
_TEMPLATES: Final[Mapping[str, Mapping[str, str]]] = {
    "github": {
        "github/build.yml": ".github/workflows/aotc.yml",
        "github/release.yml": ".github/workflows/aotc-release.yml",
        "github/deploy.yml": ".github/workflows/aotc-deploy.yml",
    },
    "gitlab": {
        "gitlab/aotc.gitlab-ci.yml": ".gitlab/aotc.gitlab-ci.yml",
        "gitlab/pipeline.yml": ".gitlab-ci.yml",
    },
    "none": {},
}
# What aotc wrote and users do not edit; all else is theirs once it is there.
_OWN: Final = "gitlab/aotc.gitlab-ci.yml"
# How templates name a model.
_NAMED: Final = {"@FOLDER@": "'@FOLDER@'", "@MODEL@": "'@MODEL@'", "@ARTIFACT@": "@ARTIFACT@"}
# How a file begins that aotc wrote.
_MARK: Final = b"# Written by 'aotc init'"


def start_project(
    model: Path, inputs: tuple[Value, ...], *, folder: Path, ci: CiSystem, force: bool
) -> InitReport:
    """Write profile, CI jobs and .gitignore for a model into `folder`, which holds the model.

    What a CI reads goes to the top of the git repository, if the folder is in one.  A file that
    exists stays, but for these: with `force`, what aotc wrote for the CI and this model is brought
    up to date, and .gitignore gets the lines that it lacks.  What a pipeline that stays would have
    to be given, and which files that stay are about other models, is in the answer.
    Raises AOTC-I071 if the CI could not name the model or its folder, I017 if another file of
    aotc's own exists, unless `force`, or something that is not a file, and I018 and I026 if one
    cannot be written; all but the last two before anything is written.
    """
    place = _path_in(model, folder)
    profile = proposed_profile(model.stem, inputs)
    file = PurePosixPath(f"{profile.name}.profile.yaml")
    texts = {file: profile_text(profile, inputs, place, file)}
    artifact = f"{place.stem}.aotc"
    actions: dict[PurePosixPath, FileAction] = {file: _action(folder / file)}
    top = repository_of(folder) if ci != "none" else None
    words = {
        "@FOLDER@": _below(top, folder),
        "@MODEL@": str(place),
        "@PROFILE@": str(file),
        "@ARTIFACT@": artifact,
    }
    above = PurePosixPath(os.path.relpath(top, folder.resolve()) if top is not None else ".")
    of_others = []
    for template, path in _TEMPLATES[ci].items():
        text, target = _filled(template, words), folder / above / path
        is_marked, is_about = _found(target, template, words)
        own = template == _OWN or (force and is_marked and is_about)
        texts[above / path] = text
        actions[above / path] = _action(target, text if own else "")
        if actions[above / path] == "kept" and not is_about:
            of_others.append(str(above / path))
    _refuse_replacing(folder, actions, force)
    to_add = _to_add(folder / above / _PIPELINE, texts.get(above / _PIPELINE, ""))
    texts[_IGNORE_FILE], actions[_IGNORE_FILE] = _ignored(folder / _IGNORE_FILE)
    for written, text in texts.items():
        if actions[written] != "kept":
            target = folder / written
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(target, text.encode("utf-8"))
            except OSError as error:
                raise cannot_write(error, "cannot write the file", str(target)) from None
    return InitReport(
        model=str(place),
        profile=str(file),
        ci=ci,
        repository="" if top is None else str(top),
        dims=free_dims(inputs),
        files=tuple(InitFile(path=str(each), action=actions[each]) for each in texts),
        to_add={str(above / _PIPELINE): to_add} if to_add else {},
        of_others=() if to_add else tuple(of_others),
    )


def _path_in(model: Path, folder: Path) -> PurePosixPath:
    """The path of the model from the folder; raises AOTC-I071 if a CI job could not use it."""
    path = Path(os.path.relpath(model.absolute(), folder.absolute()))
    if ".." in path.parts:
        raise AotcError(
            "AOTC-I071",
            "the model is not in the folder of the project",
            where=str(model),
            expected=f"a file in {folder.absolute()}",
        )
    if not _PATH.fullmatch(path.as_posix()):
        raise AotcError(
            "AOTC-I071",
            "the path of the model has characters with a special meaning in a CI system",
            where=str(model),
            expected="letters, digits, spaces and ./_+@=,-",
        )
    return PurePosixPath(path.as_posix())


def _below(top: Path | None, folder: Path) -> str:
    """The path of the folder in its repository; raises AOTC-I071 if a CI job could not use it."""
    path = folder.resolve().relative_to(top).as_posix() if top is not None else "."
    if not _PATH.fullmatch(path):
        raise AotcError(
            "AOTC-I071",
            "the path of the folder in its git repository has characters with a special meaning "
            "in a CI system",
            where=str(folder.resolve()),
            expected="letters, digits, spaces and ./_+@=,-",
        )
    return path


def _filled(template: str, words: Mapping[str, str]) -> str:
    text = (data_folder("ci/templates") / template).read_text("utf-8")
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


def _found(path: Path, template: str, words: Mapping[str, str]) -> tuple[bool, bool]:
    """Of the file at `path`: whether aotc wrote it, and whether it is about this model.

    It is if it names all that its template would: another model may have the same name elsewhere.
    """
    try:
        found = read_at_most(path, _MAX_BYTES)
    except OSError:
        return False, False
    stated = (data_folder("ci/templates") / template).read_text("utf-8")
    # Within quotes, as most words are in a template, a name is not a part of another.
    named = [text.replace(mark, words[mark]) for mark, text in _NAMED.items() if text in stated]
    return found.startswith(_MARK), all(name.encode("utf-8") in found for name in named)


def _action(path: Path, text: str = "") -> FileAction:
    """What happens to a file, of which only one with a `text` is replaced.

    What is not a file is replaced, that is refused.
    """
    if not path.exists() and not path.is_symlink():
        return "written"
    if not text:
        return "kept" if path.is_file() else "replaced"
    try:
        return "kept" if read_at_most(path, _MAX_BYTES) == text.encode("utf-8") else "replaced"
    except OSError:
        return "replaced"


def _refuse_replacing(folder: Path, actions: Mapping[PurePosixPath, str], force: bool) -> None:
    """Raise AOTC-I017 with every file that would be replaced and may not be."""
    refused = []
    for path, action in actions.items():
        if action == "replaced":
            try:
                check_output(folder / path, force=force)
            except AotcError as error:
                refused.append(error)
    if refused:
        raise with_others(refused)


def _to_add(path: Path, text: str) -> str:
    """What a pipeline of the user's lacks of the one that aotc would write; empty if nothing."""
    if not text or not path.is_file():
        return ""
    try:
        if b".gitlab/aotc.gitlab-ci.yml" in read_at_most(path, _MAX_BYTES):
            return ""
    except OSError as error:
        raise AotcError(
            "AOTC-I026", "the pipeline cannot be read", where=str(path), found=str(error.strerror)
        ) from None
    # When pipelines run is the user's to say.
    sections = text.split("\n\n")
    kept = "\n\n".join(each for each in sections if not each.startswith("workflow:"))
    return "".join(line for line in kept.splitlines(keepends=True) if not line.startswith("#"))


def _ignored(path: Path) -> tuple[str, FileAction]:
    """The text of .gitignore with the lines that it needs, and what happens to the file."""
    try:
        data = read_at_most(path, _MAX_BYTES)
        if len(data) > _MAX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        known = data.decode("utf-8")
    except FileNotFoundError:
        return "".join(f"{line}\n" for line in _IGNORED), "written"
    except (OSError, UnicodeDecodeError) as error:
        raise AotcError(
            "AOTC-I026", "the file cannot be extended", where=str(path), found=str(error)
        ) from None
    missing = [line for line in _IGNORED if line not in known.splitlines()]
    if not missing:
        return known, "kept"
    end = "" if not known or known.endswith("\n") else "\n"
    return known + end + "".join(f"{line}\n" for line in missing), "extended"


# A first profile for a model: its inputs as they are, and its free dims for the user to bound.


_SCHEMA: Final = "aotc.profile/1"
_MAX_NAME: Final = 64
_MAX_BYTES: Final = 1 << 20
# Positions of a dim that its comment lists.
_MAX_POSITIONS: Final = 4


def proposed_profile(name: str, inputs: Sequence[Value]) -> Profile:
    """The profile that states dtype and shape of every tensor input, and nothing else.

    `name` is that of the model's file; what a profile's name cannot hold becomes `-`.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:_MAX_NAME]
    return Profile(
        schema=_SCHEMA,
        name=plain or "model",
        inputs={
            value.name: InputSpec(shape=value.shape, dtype=value.dtype)
            for value in inputs
            if value.kind == "tensor"
        },
    )


def free_dims(inputs: Sequence[Value]) -> dict[str, tuple[str, ...]]:
    """The positions `INPUT.AXIS` of every dim that the model leaves free, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for value in inputs:
        # An input of unknown rank is taken as a vector.
        shape = (f"{value.name}.0",) if value.shape is None else value.shape
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and value.kind == "tensor":
                found[dim] = (*found.get(dim, ()), f"{value.name}.{axis}")
    return found


def profile_text(profile: Profile, inputs: Sequence[Value], model: PurePath, file: PurePath) -> str:
    """The profile as YAML, with what may be stated of its dims in comments.

    Names are the model's and may hold anything: each is one quoted word, or printable in a comment.
    """
    lines = [
        f"# What 'aotc build {printable(str(model))} --profile {printable(str(file))}' builds.",
        "# 'aotc profile show edge' prints every field; 'aotc profile check FILE' checks a file.",
        yaml_text(profile, full=False).rstrip("\n"),
        *_dim_lines(inputs),
    ]
    text = "\n".join(lines) + "\n"
    # A comment that a name could end would be read as something else.
    assert decode(Profile, strict_yaml(text.encode("utf-8"))) == profile
    return text


def _dim_lines(inputs: Sequence[Value]) -> list[str]:
    dims = free_dims(inputs)
    if not dims:
        return ["", "# No dim is free: the inputs have exactly these sizes."]
    rows = [(f"#   {_word(name)}: 1..8", positions) for name, positions in dims.items()]
    width = max(len(row) for row, _ in rows)
    return [
        "",
        "# Free dims. A build finds by running at which sizes the model works, and counts calls",
        "# outside of them. A size (8) or a range (1..8) that stands here is proven and promised,",
        "# and any other size is refused: remove the '# ' and correct the sizes.",
        "# dims:",
        *(f"{row:<{width}}  # {_listed(positions)}" for row, positions in rows),
    ]


def _listed(positions: Sequence[str]) -> str:
    shown = ", ".join(printable(each) for each in positions[:_MAX_POSITIONS])
    more = len(positions) - _MAX_POSITIONS
    return f"{shown} and {more} more" if more > 0 else shown


def _word(name: str) -> str:
    """A name as a key of YAML on one line; plain where that reads back as the same text."""
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name)
    if is_plain and name.lower() not in ("null", "true", "false"):
        return name
    import yaml

    quoted = yaml.safe_dump(name, default_style='"', width=float("inf"), allow_unicode=False)
    return str(quoted).rstrip("\n")
