"""The environment that an artifact records: this one, or one made anew by pip or uv, with hashes.

An environment is made in three steps: what the recorded versions are in the index, with the sha256
of each file, becomes a lock; the lock is installed, wheels alone, so that nothing of it runs; and
each installed file is compared with what the artifact records of its package.  Only then is a
program of it started.  The artifact itself records no digests of wheels, since nobody who installs
keeps them, but those of the files in them, which are the same whoever installed them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_use
from aotc.base.files.locks import locked
from aotc.base.files.reading import file_sha256, open_plain, read_at_most
from aotc.base.files.replacing import erase
from aotc.base.files.writing import write_atomically
from aotc.base.records import record, replace
from aotc.pipeline.reuse import source_digest, sources_digest
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.json import canonical_json, canonical_sha256, strict_json
from aotc.spec.profile_files import data_folder
from aotc.spec.reproduction import BuildEnvironment, NotReproduced, PackageUsed
from aotc.spec.versions import VERSION
from aotc.tools.environments import (
    MAKE_SECONDS,
    PYTHON,
    UNREACHED,
    environments_folder,
    run_program,
)
from aotc.tools.reproduce.recorded import RecordedBuild, RecordedPackage, same_interpreter
from aotc.trust.provenance import OF_INSTALLERS, contents_digest

Installer = Literal["pip", "uv"]
_DONE: Final = "environment.json"
_LOCK: Final = "requirements.lock"
_VERSIONS: Final = Path("spec", "versions.py")
_MAX_TEXT: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9.!+_-]{1,100}")
_UV: Final = ("uv", "pip", "install", "--quiet", "--python")
# What Python imports before a module of the same name.
_LIBRARIES: Final = (".so", ".pyd", ".dylib")
_WHEELS_ALONE: Final = "--only-binary=:all:"
# What pip and uv say of a version that no index has for this machine.
_GONE: Final = (
    *("No matching distribution found", "No solution found", "not found in the package registry"),
    "no version of",
)


@record
class MadeEnvironment:
    """An environment to build in: what it is, its interpreter, and what of the record it lacks."""

    about: BuildEnvironment
    python: str
    lacking: tuple[NotReproduced, ...] = ()


def environment_of(
    recorded: RecordedBuild,
    *,
    here: bool = False,
    anew: bool = False,
    installer: Installer | None = None,
    aotc: Path | None = None,
) -> MadeEnvironment:
    """This environment where it is the recorded one, else that one, made unless it was before.

    With `here` it is this one, and `lacking` of the answer says what differs; with `anew` it is
    always made.  `installer` is by default pip where this interpreter has it, else uv.  `aotc` is a
    checkout or a wheel of the recorded aotc, by default this one or the release in the index.

    Raises AOTC-I231 (a wheel is gone), I236 (a package has other files), I237 (no such Python),
    I238 (no such aotc) and I191 (it cannot be made).
    """
    this = _this(recorded)
    if here or (not this.lacking and not anew):
        return this
    try:
        return _made(recorded, _installer(installer), aotc)
    except OSError as error:
        raise cannot_use(
            error, "the environment", str(error.filename or ""), "AOTC-I191",
            when_full="the disk is full", further_fix="Or point XDG_CACHE_HOME elsewhere.",
        ) from None  # fmt: skip


def _this(recorded: RecordedBuild) -> MadeEnvironment:
    """This environment, and in which way it is not the recorded one."""
    used = [_installed_here(each) for each in recorded.packages]
    lacking = []
    here = f"{platform.python_implementation()} {platform.python_version()}"
    if not same_interpreter(recorded):
        why = f"{recorded.implementation} {recorded.python} built it; this is {here}"
        lacking.append(NotReproduced(what="Python", why=why))
    if source_digest() != recorded.aotc_sha256:
        why = f"{_aotc_text(recorded)} built it; this is aotc {VERSION} of other sources"
        lacking.append(NotReproduced(what="aotc", why=why))
    for each in used:
        if each.used != each.recorded:
            found = f"this environment has {each.used}" if each.used else "it is not installed"
            why = f"{each.recorded} was used; {found}"
        elif not each.same:
            why = "its files are others, or are not recorded"
        else:
            continue
        lacking.append(NotReproduced(what=f"package {each.name}", why=why))
    about = BuildEnvironment(
        how="this",
        python=platform.python_version(),
        aotc=VERSION,
        aotc_sha256=source_digest(),
        aotc_form=recorded.aotc_form,
        aotc_from="this aotc",
        packages=tuple(used),
    )
    return MadeEnvironment(about=about, python=sys.executable, lacking=tuple(lacking))


def _aotc_text(recorded: RecordedBuild) -> str:
    form = "a checkout of " if recorded.aotc_form == "checkout" else ""
    return f"{form}aotc {recorded.aotc} with sources {recorded.aotc_sha256[:12]}"


def _installed_here(package: RecordedPackage) -> PackageUsed:
    try:
        found = metadata.distribution(package.name)
    except metadata.PackageNotFoundError:
        return PackageUsed(name=package.name, recorded=package.version)
    contents = contents_digest(found.read_text("RECORD") or "")
    return PackageUsed(
        name=package.name,
        recorded=package.version,
        used=found.version,
        same=contents == package.contents if package.contents and contents else None,
    )


def _installer(wanted: Installer | None) -> Installer:
    if wanted != "uv" and find_spec("pip") is not None:
        return "pip"
    if wanted != "pip" and shutil.which("uv") is not None:
        return "uv"
    places = {"pip": "pip in this environment", "uv": "uv among the programs"}
    raise AotcError(
        "AOTC-I191",
        "there is nothing to make the recorded environment with",
        expected=", or ".join(place for name, place in places.items() if wanted in (None, name)),
        fix="Install one of them, or build in this environment as it is: --here.",
    )


def _made(recorded: RecordedBuild, installer: Installer, aotc: Path | None) -> MadeEnvironment:
    """The environment of `recorded`: one that was made before, or a new one."""
    for each in recorded.packages:
        # They become words of another program's command.
        if not _NAME.fullmatch(each.name) or not _VERSION.fullmatch(each.version):
            raise AotcError(
                "AOTC-I231", "a recorded package has no name or version", where=each.name[:100]
            )
    # Told before anything is downloaded.
    checkout = _checkout(recorded, aotc)
    interpreter = _interpreter(recorded, installer)
    what = [encode(each, full=True) for each in recorded.packages]
    key = canonical_sha256(
        {"form": 1, "packages": what, "python": interpreter, "aotc": recorded.aotc_sha256}
        | {"installer": installer}
    )
    root = environments_folder()
    folder = root / f"reproduce-{key[:24]}"
    with locked(root / f"{folder.name}.lock", seconds=MAKE_SECONDS):
        known = _known(folder)
        if known is None:
            erase(folder)
            known = _installed(folder, recorded, installer, interpreter, checkout, aotc)
        else:
            known = replace(known, reused=True)
        try:
            known = replace(
                known, packages=_compared(_packages_of(folder), known.packages, recorded)
            )
            _require_aotc(_packages_of(folder) / "aotc", recorded)
        except AotcError:
            erase(folder)
            raise
        if not known.reused:
            write_atomically(folder / _DONE, canonical_json(encode(known)))
    why = "no digest of its files is recorded, so what the index has is taken"
    lacking = tuple(
        NotReproduced(what=f"package {each.name}", why=why)
        for each in known.packages
        if each.same is None
    )
    return MadeEnvironment(about=known, python=str(folder / PYTHON), lacking=lacking)


def _known(folder: Path) -> BuildEnvironment | None:
    """What an environment that was made says of itself; None: it is not there, or was cut off."""
    try:
        return decode(BuildEnvironment, strict_json(read_at_most(folder / _DONE, _MAX_TEXT)))
    except (OSError, ParseError):
        return None


def _interpreter(recorded: RecordedBuild, installer: Installer) -> str:
    """An interpreter of the recorded version; raises AOTC-I237."""
    if same_interpreter(recorded):
        return sys.executable
    if installer == "uv":
        # uv finds those that it installed, too, and downloads none for this.
        wanted = f"{recorded.implementation}@{recorded.python}"
        found = subprocess.run(
            ["uv", "python", "find", "--no-python-downloads", "--no-project", wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if not found.returncode:
            return found.stdout.strip()
    minor = ".".join(recorded.python.split(".")[:2])
    for name in (f"python{minor}", "python3", "python"):
        program = shutil.which(name)
        if program is not None and _version_of(program) == recorded.python:
            return program
    raise AotcError(
        "AOTC-I237",
        "the Python that built the artifact is not on this host",
        expected=f"{recorded.implementation} {recorded.python}",
        found=f"{platform.python_implementation().lower()} {platform.python_version()}",
        fix=f"Install it, such as by 'uv python install {recorded.python}' and --installer uv; or "
        "build with this one, which is told as a difference: --here.",
    )


def _version_of(program: str) -> str:
    asked = subprocess.run(
        [program, "-I", "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()


def _packages_of(folder: Path) -> Path:
    """The folder of packages of an environment, without running anything of it."""
    return next((folder / "lib").glob("python*/site-packages"))


# Installing: the lock, then what it names.


def _installed(
    folder: Path,
    recorded: RecordedBuild,
    installer: Installer,
    interpreter: str,
    checkout: Path | None,
    aotc: Path | None,
) -> BuildEnvironment:
    """A new environment, in which nothing but recorded files can run.

    Installers start its interpreter, so what is in it was compared before the next one is started.
    """
    try:
        if installer == "uv":
            _run(["uv", "venv", "--quiet", "--no-project", "--python", interpreter, str(folder)])
        else:
            _run([interpreter, "-m", "venv", "--without-pip", str(folder)])
        packages = _packages_of(folder)
        sha256 = _lock(folder, recorded, installer)
        before = {path: _content(path) for path in _files(folder)}
        lock_sha256 = file_sha256(folder / _LOCK)
        python = folder / PYTHON
        arguments = [*_UV, str(python)] if installer == "uv" else _pip(python)
        hashed = ("--require-hashes", _WHEELS_ALONE, "-r", str(folder / _LOCK))
        _run([*arguments, "--no-deps", *hashed])
        used = _used(recorded, sha256)
        _require_only(folder, packages, before, recorded)
        _compared(packages, used, recorded)
        if checkout is not None:
            _copy_aotc(checkout, packages)
            source = f"the checkout {aotc.name}" if aotc else "this aotc, whose sources are equal"
        else:
            source = _install_aotc(recorded, arguments, aotc)
        _require_only(folder, packages, before, recorded)
    except BaseException:
        erase(folder)
        raise
    return BuildEnvironment(
        how="made",
        installer=f"{installer} {_installer_version(installer)}",
        python=recorded.python,
        aotc=recorded.aotc,
        aotc_sha256=recorded.aotc_sha256,
        aotc_form=recorded.aotc_form,
        aotc_from=source,
        packages=used,
        lock_sha256=lock_sha256,
    )


def _lock(folder: Path, recorded: RecordedBuild, installer: Installer) -> dict[str, str]:
    """Write the lock; the sha256 of each package's file, of uv none; raises AOTC-I231 and I191."""
    stated = [f"{each.name}=={each.version}" for each in recorded.packages]
    (folder / "recorded.txt").write_text("".join(f"{each}\n" for each in stated), "ascii")
    if installer == "pip":
        return _resolve_by_pip(folder, stated)
    _resolve_by_uv(folder, stated)
    return {}


def _used(recorded: RecordedBuild, sha256: Mapping[str, str]) -> tuple[PackageUsed, ...]:
    """The recorded packages, not yet compared."""
    return tuple(
        PackageUsed(
            name=each.name, recorded=each.version, sha256=sha256.get(_normalized(each.name), "")
        )
        for each in recorded.packages
    )


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip(python: Path) -> list[str]:
    """This interpreter's pip, installing into another environment, which has none."""
    return [
        *(sys.executable, "-m", "pip", "--python", str(python), "install"),
        *("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"),
    ]


def _installer_version(installer: Installer) -> str:
    if installer == "pip":
        return metadata.version("pip")
    said = run_program(["uv", "--version"], "uv").split()
    return said[1] if len(said) > 1 else ""


def _resolve_by_pip(folder: Path, stated: Sequence[str]) -> dict[str, str]:
    """Write the lock; the sha256 of each package's file by its normalized name."""
    report = folder / "resolved.json"
    words = ("--no-deps", "--ignore-installed", _WHEELS_ALONE, "--dry-run", f"--report={report}")
    _resolved([*_pip(folder / PYTHON), *words, "-r", str(folder / "recorded.txt")], stated)
    document: Any = json.loads(report.read_text("utf-8"))
    found, lines = {}, []
    for each in document["install"]:
        name, version = each["metadata"]["name"], each["metadata"]["version"]
        archive = each["download_info"].get("archive_info", {})
        given = archive.get("hash", "").partition("sha256=")[2]
        digest = archive.get("hashes", {}).get("sha256", given)
        found[_normalized(name)] = digest
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    (folder / _LOCK).write_text("".join(sorted(lines)), "ascii")
    return found


def _resolve_by_uv(folder: Path, stated: Sequence[str]) -> None:
    """Write the lock, which has the sha256 of every wheel of each version in the index."""
    arguments = [
        *("uv", "pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--no-annotate"),
        *("--no-header", _WHEELS_ALONE, "--python", str(folder / PYTHON)),
        *("-o", str(folder / _LOCK), str(folder / "recorded.txt")),
    ]
    _resolved(arguments, stated)


def _resolved(arguments: list[str], stated: Sequence[str]) -> None:
    """Run what looks for packages; raises AOTC-I231 where it does not find one."""
    try:
        _run(arguments)
    except AotcError as error:
        if UNREACHED in error.found or not any(said in error.found for said in _GONE):
            raise
        # Both name the requirement that they looked for in vain.
        gone = [each for each in stated if re.search(rf"{re.escape(each)}(?![\w.])", error.found)]
        raise AotcError(
            "AOTC-I231",
            "a package that the artifact records is not to be had as a wheel for this host",
            where=", ".join(gone) or "the recorded environment",
            found=error.found,
        ) from None


def _run(arguments: list[str]) -> str:
    return run_program(arguments, "the recorded environment")


# Comparing: what is installed with what is recorded, before any of it runs.


def _compared(
    packages: Path, used: Sequence[PackageUsed], recorded: RecordedBuild
) -> tuple[PackageUsed, ...]:
    """What is installed, each file hashed; raises AOTC-I236 for files that are not the recorded."""
    wanted = {each.name: each for each in recorded.packages}
    installed = {
        _normalized(each.metadata["Name"]): each
        for each in metadata.distributions(path=[str(packages)])
    }
    found = []
    for each in used:
        distribution = installed.get(_normalized(each.name))
        text = (distribution.read_text("RECORD") or "") if distribution is not None else ""
        changed = _changed_file(packages, text)
        contents = contents_digest(text)
        expected = wanted[each.name].contents
        if distribution is None or changed or (expected and contents != expected):
            raise AotcError(
                "AOTC-I236",
                "an installed package is not the one that the artifact records",
                where=f"{each.name}=={each.recorded}",
                expected=f"files of digest {expected}" if expected else "the files of its RECORD",
                found=f"{changed} is another file" if changed else contents or "no files",
            )
        same = True if expected else None
        found.append(replace(each, used=distribution.version, same=same))
    return tuple(found)


def _files(folder: Path) -> set[Path]:
    """Files and links, and not what links lead to."""
    return {path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def _content(path: Path) -> str:
    """Where a link leads, else the sha256 of a file."""
    return str(path.readlink()) if path.is_symlink() else file_sha256(path)


def _require_only(
    folder: Path, packages: Path, before: Mapping[Path, str], recorded: RecordedBuild
) -> None:
    """Remove what runs without being compared, and raise AOTC-I236 for what has no place here.

    A recorded package has the files of its RECORD, aotc those of its own folder.  `before` has what
    was there without any, such as the interpreter, which no wheel may change.  Scripts, other files
    beside the packages and compiled files are removed.
    """
    for path, content in before.items():
        if _content(path) != content:
            raise _no_place(path.relative_to(folder), "a package replaced a file of no package")
    for path in _files(folder):
        # A compiled file would run instead of one that is compared.
        if path not in before and (not path.is_relative_to(packages) or path.suffix == ".pyc"):
            path.unlink()
    listed, names = set(before), [_normalized(each.name) for each in recorded.packages]
    for each in metadata.distributions(path=[str(packages)]):
        name = _normalized(each.metadata["Name"] or "")
        if name == "aotc":
            continue
        if name not in names:
            raise _no_place(Path(name), "a package was installed that is not recorded, or twice")
        names.remove(name)
        listed |= {
            packages / row[0] for row in csv.reader((each.read_text("RECORD") or "").splitlines())
        }
    for file in sorted(packages.rglob("*")):
        place = file.relative_to(packages)
        made = file.parent.suffix == ".dist-info" and file.name in OF_INSTALLERS
        # Of aotc its sources are compared, before which a library of the same name would come.
        made |= place.parts[0] == "aotc" and file.suffix not in _LIBRARIES
        made |= re.fullmatch(r"aotc-[^-]+\.dist-info", place.parts[0]) is not None
        if file.is_file() and file not in listed and not made:
            raise _no_place(place, "a file was installed that its package does not list")


def _no_place(path: Path, what: str) -> AotcError:
    return AotcError("AOTC-I236", what, where=str(path))


def _changed_file(packages: Path, text: str) -> str:
    """The first file of a RECORD that has not the digest there; empty: none."""
    for path, digest, *_ in csv.reader(text.splitlines()):
        if not digest or path.startswith("../"):
            continue
        try:
            with open_plain(packages / path) as file:
                hashed = hashlib.file_digest(file, "sha256").digest()
        except OSError:
            return path
        if digest != f"sha256={urlsafe_b64encode(hashed).rstrip(b'=').decode()}":
            return path
    return ""


# aotc itself, in the environment.


def _checkout(recorded: RecordedBuild, given: Path | None) -> Path | None:
    """The folder of the recorded aotc's package: this one, or in a checkout that was given.

    None where it is to be installed.  Raises AOTC-I238 where it is of other sources.
    """
    if given is None:
        own = Path(__file__).resolve().parents[2]
        if source_digest() == recorded.aotc_sha256 or recorded.aotc_form == "checkout":
            _require_aotc(own, recorded)
            return own
        return None
    if not given.is_dir():
        return None
    places = (given / "toolchain" / "aotc", given / "aotc", given)
    root = next((each for each in places if (each / _VERSIONS).is_file()), given)
    _require_aotc(root, recorded)
    return root


def _install_aotc(recorded: RecordedBuild, arguments: Sequence[str], given: Path | None) -> str:
    """Install a release: the file that was given, or that of the index, which is told."""
    what = str(given.absolute()) if given is not None else f"aotc=={recorded.aotc}"
    _resolved([*arguments, "--no-deps", _WHEELS_ALONE, what], (what,))
    return given.name if given is not None else f"{what} of the index"


def _copy_aotc(root: Path, packages: Path) -> None:
    """Copy the package in `root`, with the profiles and schemas that a wheel of it has."""
    target = packages / "aotc"
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("profiles", "manifests"):
        if not (target / f"_{name}").is_dir():
            beside = root.parent.parent / name
            shutil.copytree(beside if beside.is_dir() else data_folder(name), target / f"_{name}")


def _require_aotc(package: Path, recorded: RecordedBuild) -> None:
    """Raise AOTC-I238 unless the aotc in the folder `package` has the recorded sources."""
    try:
        text = (package / _VERSIONS).read_text("utf-8")
    except OSError:
        raise _no_aotc(recorded, f"none in {package.name}") from None
    stated = {
        name: found[1] if (found := re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)) else ""
        for name in ("VERSION", "MANIFEST_SCHEMA")
    }
    digest = sources_digest(package, stated["VERSION"], stated["MANIFEST_SCHEMA"])
    if digest != recorded.aotc_sha256:
        raise _no_aotc(recorded, f"aotc {stated['VERSION']} with sources {digest[:12]}")


def _no_aotc(recorded: RecordedBuild, found: str) -> AotcError:
    fix = ""
    if recorded.aotc_form == "release":
        fix = f"Name a wheel of aotc {recorded.aotc} with --aotc."
    return AotcError(
        "AOTC-I238",
        "the aotc that built the artifact is not here",
        expected=_aotc_text(recorded),
        found=found,
        fix=fix,
    )


def started(
    environment: MadeEnvironment, words: Sequence[str], folder: Path
) -> tuple[int, str, str]:
    """Run aotc there, in `folder`: its exit status, standard output and standard error.

    Settings of this user's are left out, but for what this host is said to be.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AOTC_") or name in ("AOTC_HOST_ISA", "AOTC_HOST_WITHOUT")
    }
    if environment.about.how == "made":
        from aotc.session.worker_pool import for_interpreter

        variables = for_interpreter(variables)
    ended = subprocess.run(
        [environment.python, "-P", "-m", "aotc.cli.main", *words],
        cwd=folder,
        env={**variables, "AOTC_CONFIG": "off", "AOTC_CACHE": "off"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr
