"""Environments that differ from this one in their ONNX Runtime: made, kept, and described.

Such an environment is a venv that finds the packages of this one, aotc itself among them, and has
its own ONNX Runtime before them.  So a difference between the two is ONNX Runtime's, or that of a
package which it needs in another version, and what is installed is told with its digest.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read, cannot_use
from aotc.base.files.locks import locked
from aotc.base.files.reading import file_sha256, open_plain, read_at_most
from aotc.base.files.replacing import erase
from aotc.base.files.writing import write_atomically
from aotc.base.records import record, replace
from aotc.host.probe import installed_versions
from aotc.session.worker_pool import for_interpreter
from aotc.spec.answers import ToolVersions
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.json import canonical_json, canonical_sha256, strict_json
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU, RUNTIME_MINORS, RUNTIMES
from aotc.spec.upgrade import InstalledPackage, RuntimeEnvironment
from aotc.spec.versions import VERSION, release
from aotc.tools.environments import MAKE_SECONDS, PYTHON, environments_folder, run_program

_VERSION: Final = re.compile(r"\d{1,4}(\.\d{1,8}){1,3}((a|b|rc)\d+)?(\.(post|dev)\d+)?")
_ASKING: Final = (
    "import json; from aotc.fleet.runtimes import describe; print(json.dumps(describe()))"
)
_DONE: Final = "environment.json"
_MAX_TEXT: Final = 1 << 20
_ASK_SECONDS: Final = 300.0
# Another call may be downloading.
_WAIT_SECONDS: Final = MAKE_SECONDS
_WHEEL_FIX: Final = (
    "Name the file of a wheel of {0} for Python {1} on this machine, or a version of it."
)


@record
class Runtime:
    """An environment, and its interpreter; None: this process's own.

    `stamp` is another where ONNX Runtime was installed anew, if only with the same version.
    """

    about: RuntimeEnvironment
    python: str | None = None
    stamp: str = ""

    @property
    def version(self) -> str:
        """That of its ONNX Runtime."""
        return self.about.versions.onnxruntime


@record
class _Wanted:
    """What is to be installed: arguments of pip, and what tells it from anything else."""

    arguments: tuple[str, ...]
    identity: str


def runtime_of(stated: str, *, force: bool = False) -> tuple[Runtime, tuple[Finding, ...]]:
    """The environment that `stated` names, made unless it is there; with what is to be said of it.

    `stated` is a version of ONNX Runtime (`1.33` is the newest 1.33.x), the file of a wheel or of
    requirements, the folder of an environment that has aotc, or empty for this one; so is the
    version that is installed here.  With `force`, one of a minor version that aotc was not tried
    with is taken, which is told as AOTC-I194.

    Raises AOTC-I190 (none of these), I191 (it cannot be made), I192 (no wheel for here), I193 (its
    ONNX Runtime cannot be used), I194, I001 and I026.
    """
    if _VERSION.fullmatch(stated):
        # Told before anything is downloaded.
        _judge_minor(stated, force=force)
    place = Path(stated)
    if not stated or stated == installed_versions((_distribution(),)).get(_distribution()):
        versions, stamp = _described(None)
        runtime = Runtime(about=RuntimeEnvironment(versions=versions), stamp=stamp)
    elif (place / PYTHON).exists():
        python = str((place / PYTHON).absolute())
        versions, stamp = _described(python)
        about = RuntimeEnvironment(stated=stated, versions=versions, reused=True)
        runtime = Runtime(about=about, python=python, stamp=stamp)
    else:
        runtime = _made(stated, _wanted(stated))
    return runtime, _judge_minor(runtime.version, force=force)


def _judge_minor(version: str, *, force: bool) -> tuple[Finding, ...]:
    """AOTC-I194 as a finding, or raised, for a version that aotc was not tried with."""
    minor = release(version)[:2]
    if minor in RUNTIME_MINORS:
        return ()
    known = " or ".join(".".join(map(str, each)) for each in RUNTIME_MINORS)
    what = f"aotc {VERSION} was tried with ONNX Runtime {known}"
    if not force:
        raise AotcError("AOTC-I194", what, expected=known, found=version)
    return (Finding(code="AOTC-I194", what=what, where=f"ONNX Runtime {version}"),)


def _distribution() -> str:
    """The distribution of ONNX Runtime that is installed here; the plain one where none is."""
    return next(iter(installed_versions(RUNTIMES)), "onnxruntime")


def _wanted(stated: str) -> _Wanted:
    """What pip is to install; raises AOTC-I190, I192, I001 and I026."""
    if _VERSION.fullmatch(stated):
        numbers = release(stated)
        pinned = f"{stated}.*" if stated == ".".join(map(str, numbers[:2])) else stated
        requirement = f"{_distribution()}=={pinned}"
        return _Wanted(arguments=(requirement,), identity=requirement)
    place = Path(stated)
    if not place.is_file():
        raise AotcError(
            "AOTC-I190",
            "this is no version of ONNX Runtime, and no such file or environment is there",
            where=stated,
            expected="such as 1.32 or 1.32.0, a *.whl, a file of requirements, or a folder that "
            "has bin/python",
        )
    try:
        digest = file_sha256(place)
        if place.suffix == ".whl":
            _require_wheel(place)
            return _Wanted(arguments=(str(place.absolute()),), identity=f"wheel {digest}")
        text = read_at_most(place, _MAX_TEXT).decode("utf-8", "replace")
    except OSError as error:
        raise cannot_read(error, "the file cannot be read", stated) from None
    named = {
        re.sub(r"[-_.]+", "-", found[0]).lower()
        for line in text.splitlines()
        if (found := re.match(r"[A-Za-z0-9][\w.-]*", line.strip()))
    }
    if not named & set(RUNTIMES):
        raise AotcError(
            "AOTC-I190",
            "the file of requirements names no ONNX Runtime",
            where=stated,
            expected=f"a line such as {_distribution()}==1.32.0",
        )
    try:
        beside = sorted(file_sha256(each) for each in _files_in(text, place.parent))
    except OSError as error:
        raise cannot_read(error, "the file cannot be read", str(error.filename)) from None
    identity = " ".join(["requirements", digest, *beside])
    return _Wanted(arguments=("-r", str(place.absolute())), identity=identity)


def _files_in(requirements: str, folder: Path) -> set[Path]:
    """The files that a file of requirements in `folder` names, such as wheels and constraints.

    Paths of wheels are relative to the working directory, and those of other such files to it.
    """
    words = {word.removeprefix("file://") for word in re.split(r"[\s=@]+", requirements) if word}
    places = {place for word in words for place in (Path(word), folder / word)}
    # Unlike Path.is_file, this returns False for what cannot be a path.
    return {place.absolute() for place in places if os.path.isfile(place)}  # noqa: PTH113


def _require_wheel(place: Path) -> None:
    """Raise AOTC-I192 unless the file is a wheel of ONNX Runtime, as it is installed here."""
    wanted = _distribution()
    fix = _WHEEL_FIX.format(wanted, platform.python_version())
    try:
        with open_plain(place) as file, zipfile.ZipFile(file) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            about = HeaderParser().parsestr(wheel.read(name).decode("utf-8", "replace"))
    except (zipfile.BadZipFile, StopIteration, RuntimeError, NotImplementedError) as error:
        found = str(error) or "a zip without METADATA"
        raise AotcError(
            "AOTC-I192", "the file is not a wheel", where=str(place), found=found, fix=fix
        ) from None
    found = re.sub(r"[-_.]+", "-", about.get("Name", "")).lower()
    if found != wanted:
        raise AotcError(
            "AOTC-I192",
            "the wheel is not one of the ONNX Runtime that is installed here",
            where=str(place),
            expected=wanted,
            found=found,
            fix=fix,
        )


def _made(stated: str, wanted: _Wanted) -> Runtime:
    """The environment for what is wanted: one that was made before, or a new one."""
    visible = _visible_paths()
    key = canonical_sha256(
        {
            "form": 1,
            "wanted": wanted.identity,
            "python": f"{os.path.realpath(sys.executable)} {sys.version}",
            "visible": list(visible),
        }
    )
    root = environments_folder()
    folder = root / key[:24]
    python = str(folder / PYTHON)
    try:
        with locked(root / f"{key[:24]}.lock", seconds=_WAIT_SECONDS):
            known = _known(folder)
            if known is not None:
                try:
                    versions, stamp = _described(python, own=folder)
                except AotcError:
                    # This environment's own packages may have moved since then, and what removes
                    # old files of caches may have been here.
                    known = None
            if known is None:
                erase(folder)
                installed = _install(folder, wanted, stated, visible)
                versions, stamp = _described(python, own=folder)
                known = RuntimeEnvironment(installed=installed)
                write_atomically(folder / _DONE, canonical_json(encode(known)))
            else:
                known = replace(known, reused=True)
    except OSError as error:
        raise cannot_use(
            error, "the environment", str(error.filename or folder), "AOTC-I191",
            when_full="the disk is full", further_fix="Or point XDG_CACHE_HOME elsewhere.",
        ) from None  # fmt: skip
    about = replace(known, stated=stated, versions=versions)
    return Runtime(about=about, python=python, stamp=stamp)


def _known(folder: Path) -> RuntimeEnvironment | None:
    """What an environment that was made says of itself; None: it is not there, or was cut off."""
    try:
        return decode(RuntimeEnvironment, strict_json(read_at_most(folder / _DONE, _MAX_TEXT)))
    except (OSError, ParseError):
        return None


def _visible_paths() -> tuple[str, ...]:
    """Where this process finds packages other than the standard ones, aotc's own place first."""
    named = ("stdlib", "platstdlib", "scripts")
    standard = [os.path.realpath(sysconfig.get_path(name)) for name in named]
    own = str(Path(__file__).resolve().parents[2])
    found = [own]
    for each in sys.path:
        path = os.path.realpath(each) if each else ""
        is_standard = path in standard or Path(path).name == "lib-dynload"
        if os.path.isdir(path) and not is_standard and path not in found:  # noqa: PTH112
            found.append(path)
    return tuple(found)


def _install(
    folder: Path, wanted: _Wanted, stated: str, visible: tuple[str, ...]
) -> tuple[InstalledPackage, ...]:
    """Make the environment; what was installed into it.  Raises AOTC-I191 and I192."""
    python = str(folder / PYTHON)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], stated)
    packages = Path(
        _run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], stated
        ).strip()
    )
    (packages / "aotc-around.pth").write_text("".join(f"{path}\n" for path in visible), "utf-8")
    if subprocess.run(
        [python, "-c", "import pip"],
        env=for_interpreter(os.environ),
        capture_output=True,
        check=False,
    ).returncode:
        _run([python, "-m", "ensurepip"], stated)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    reports = [folder / "first.json", folder / "second.json"]
    # First what is asked for, though another version can be seen; then what that lacks.
    _run(
        [*pip, "--no-deps", "--ignore-installed", f"--report={reports[0]}", *wanted.arguments],
        stated,
    )
    _run([*pip, f"--report={reports[1]}", _distribution()], stated)
    found = {each.name: each for report in reports for each in _installed(report)}
    return tuple(found[name] for name in sorted(found))


def _installed(report: Path) -> list[InstalledPackage]:
    """The packages in a report of pip."""
    document: Any = json.loads(report.read_text("utf-8"))
    found = []
    for each in document["install"]:
        archive = each.get("download_info", {}).get("archive_info", {})
        given = archive.get("hash", "").partition("sha256=")[2]
        found.append(
            InstalledPackage(
                name=each["metadata"]["name"],
                version=each["metadata"]["version"],
                sha256=archive.get("hashes", {}).get("sha256", given),
            )
        )
    return found


def _run(arguments: list[str], stated: str) -> str:
    """As `run_program`; raises I192, too, where pip says that a wheel is not for here."""
    try:
        return run_program(arguments, stated)
    except AotcError as error:
        if "is not a supported wheel on this platform" not in error.found:
            raise
        raise AotcError(
            "AOTC-I192",
            "the wheel is for another platform",
            where=stated,
            found=error.found,
            fix=_WHEEL_FIX.format(_distribution(), platform.python_version()),
        ) from None


def _described(python: str | None, own: Path | None = None) -> tuple[ToolVersions, str]:
    """The versions in an environment, and its stamp; raises AOTC-I193 where nothing can be built.

    ONNX Runtime must be in `own`, where that is given.
    """
    place = python or sys.executable
    try:
        ended = subprocess.run(
            [place, "-P", "-c", _ASKING],
            env=for_interpreter(os.environ) if python is not None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(place, str(error)) from None
    try:
        found: Any = json.loads(ended.stdout)
        problem, versions = found["problem"], decode(ToolVersions, found["versions"])
        stamp = str(found.get("stamp", ""))
    except (ValueError, ParseError, KeyError, TypeError):
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise _unusable(place, lines[-1][:500]) from None
    if problem:
        raise _unusable(place, problem)
    if versions.aotc != VERSION:
        raise _unusable(place, f"aotc {versions.aotc}", f"aotc {VERSION}, as here")
    if own is not None and not Path(found["file"]).resolve().is_relative_to(own.resolve()):
        raise _unusable(place, f"the ONNX Runtime in {found['file']}", f"one in {own}")
    return versions, stamp


def _unusable(place: str, found: str, expected: str = "") -> AotcError:
    return AotcError(
        "AOTC-I193",
        "models cannot be built and run in the environment",
        where=place,
        expected=expected,
        found=found,
    )


def describe() -> Json:
    """In an environment: why nothing can be built there, or the versions of what builds."""
    from aotc.providers.ort import import_onnxruntime
    from aotc.tools.doctor import tool_versions

    try:
        runtime = import_onnxruntime()
        providers = runtime.get_available_providers()
        if CPU in providers:
            versions = encode(tool_versions("aotc fleet upgrade"), full=True)
            place = str(runtime.__file__)
            return {"problem": "", "file": place, "versions": versions, "stamp": _stamp(place)}
        problem = f"ONNX Runtime {runtime.__version__} has {', '.join(providers) or 'no provider'}"
    except AotcError as error:
        problem = error.line()
    return {"problem": problem, "versions": {}, "stamp": ""}


def _stamp(file: str) -> str:
    """Of the files of a package by their sizes and times; `file` is its first."""
    return canonical_sha256(
        [
            f"{path} {state.st_size} {state.st_mtime_ns}"
            for path in sorted(Path(file).parent.rglob("*"))
            if path.suffix in (".py", ".so") and (state := path.stat())
        ]
    )
