"""Clean roots of Debian 12, made with debootstrap, and Containerfiles whose steps are run in them.

Changing the root takes this machine's administrator; a reason says what is missing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUITE = "bookworm"
# The interpreter and its libraries, as distroless images of Debian's Python hold them.
_PYTHON = "usr/bin/python3.11"


def missing() -> str:
    """Why no clean root can be made here; empty if it can."""
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if os.geteuid() != 0:
        return "changing the root takes the administrator"
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/proc", "/mnt"],
        capture_output=True,
        check=False,
    )
    return "" if tried.returncode == 0 else "nothing may be mounted here"


def bootstrap(folder: Path) -> str:
    """Make a minimal Debian with Python in `folder`; returns why it failed, or nothing."""
    done = subprocess.run(
        [
            *("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"),
            *(SUITE, str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return f"debootstrap {SUITE}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}"


@dataclass
class Root:
    """A root folder with the settings of an image: variables, working folder, entry point."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: tuple[str, ...] = ()

    def run(self, *words: str, read_only: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the root, with the image's variables and no others, and with /proc."""
        (self.folder / "proc").mkdir(exist_ok=True)
        locked = 'mount -o remount,bind,ro "$1"; ' if read_only else ""
        script = (
            f'mount --bind "$1" "$1"; mount --bind /proc "$1/proc"; {locked}'
            'root=$1 user=$2; shift 2; exec chroot --userspec="$user" "$root" "$@"'
        )
        return subprocess.run(
            [
                # What is mounted is seen by this process alone, and gone with it.
                *("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh"),
                *(str(self.folder), self.user, *self._in_workdir(words)),
            ],
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *arguments: str, read_only: bool = False) -> subprocess.CompletedProcess[str]:
        """Start it as a container: the entry point with these arguments."""
        return self.run(*self.entrypoint, *arguments, read_only=read_only)

    def _in_workdir(self, words: tuple[str, ...]) -> tuple[str, ...]:
        # A root without a shell has no `env` either, and stays at /.
        if self.workdir == "/" or not (self.folder / "usr/bin/env").exists():
            return words
        return ("/usr/bin/env", f"--chdir={self.workdir}", *words)


@dataclass
class Bases:
    """Folders in which the stages of a Containerfile run, by the beginning of a base's name."""

    place: Path
    debian: Path
    offline: Mapping[str, str]

    def new(self, image: str) -> Root:
        """A root for a stage that begins with this image."""
        folder = self.place / f"stage-{len(list(self.place.iterdir()))}"
        if image.startswith("gcr.io/distroless/python3"):
            python_alone(self.debian, folder)
            return Root(folder=folder, user="65532:65532")
        assert re.match(r"python:3\.\d+-slim-bookworm$", image), image
        subprocess.run(["cp", "-a", str(self.debian), str(folder)], check=True)
        return Root(folder=folder)

    def build(self, file: Path, context: Path, **arguments: str) -> Root:
        """Run every step of a Containerfile; returns the root of its last stage."""
        stages: dict[str, Root] = {}
        root = Root(folder=Path())
        stated: dict[str, str] = {}
        for word, text in instructions(file.read_text()):
            if word == "FROM":
                image, _, name = text.partition(" AS ")
                root, stated = self.new(image), {}
                stages[name] = root
            elif word == "ARG":
                name, _, default = text.partition("=")
                stated[name] = arguments.get(name, default)
            elif word == "WORKDIR":
                (root.folder / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
                root.workdir = text
            elif word == "USER":
                root.user = text
            elif word == "ENV":
                root.environment |= dict(pair.split("=", 1) for pair in shlex.split(text))
            elif word == "COPY":
                _copy(text, context, root, stages)
            elif word == "RUN":
                self._run(root, text, stated)
            elif word == "ENTRYPOINT":
                root.entrypoint = tuple(json.loads(text))
            else:
                assert word == "CMD", word
        return root

    def _run(self, root: Root, text: str, stated: Mapping[str, str]) -> None:
        wheels = root.folder / "wheels"
        shutil.copytree(self.offline["PIP_FIND_LINKS"], wheels)
        inside = {**self.offline, "PIP_FIND_LINKS": "/wheels", **stated}
        settled = Root(root.folder, {**root.environment, **inside}, root.workdir, root.user)
        done = settled.run("/bin/sh", "-c", text)
        shutil.rmtree(wheels)
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Containerfile with their arguments, without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for statement in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if statement.strip():
            word, _, rest = statement.strip().partition(" ")
            yield word, rest.strip()


def _copy(text: str, context: Path, root: Root, stages: Mapping[str, Root]) -> None:
    words = text.split()
    source = context
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].folder
    *names, target = words
    place = root.folder / (target if target.startswith("/") else f"{root.workdir}/{target}").lstrip(
        "/"
    )
    for name in names:
        item = source / name.lstrip("/")
        if item.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(item, place, dirs_exist_ok=True, symlinks=True, ignore=ignored)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(item, place)


def python_alone(debian: Path, folder: Path) -> None:
    """Make a root that holds Debian's Python and the libraries it loads: no shell, no program."""
    kept = {_PYTHON, "usr/lib/python3.11"}
    inside = Root(folder=debian)
    modules = [
        f"/{path.relative_to(debian)}"
        for path in (debian / "usr/lib/python3.11/lib-dynload").glob("*.so")
    ]
    found = inside.run("/usr/bin/ldd", f"/{_PYTHON}", *modules).stdout
    libraries = sorted(set(re.findall(r"(/\S+\.so\S*)", found)) - {f"{each}:" for each in modules})
    kept |= {each.lstrip("/").rstrip(":") for each in libraries}
    # Such images have these packages of Debian, which compiled packages of pip load.
    listed = inside.run("/usr/bin/dpkg", "-L", "libc6", "libgcc-s1").stdout.splitlines()
    kept |= {each.lstrip("/") for each in listed if re.search(r"\.so[.\d]*$", each)}
    for name in ("bin", "lib", "lib64", "sbin"):
        if (debian / name).is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to((debian / name).readlink())
    for name in kept:
        real = _within(debian, debian / name)
        target = folder / real.relative_to(debian)
        target.parent.mkdir(parents=True, exist_ok=True)
        if real.is_dir():
            shutil.copytree(real, target, symlinks=True, dirs_exist_ok=True)
            continue
        if not target.exists():
            shutil.copy2(real, target)
        # The loader looks for a library by the name of a link.
        linked = folder / _within(debian, (debian / name).parent).relative_to(debian)
        linked.mkdir(parents=True, exist_ok=True)
        if not (linked / Path(name).name).exists():
            (linked / Path(name).name).symlink_to(os.path.relpath(target, linked))
    (folder / "usr/bin/python3").symlink_to("python3.11")
    (folder / "tmp").mkdir(mode=0o1777)


def _within(root: Path, path: Path) -> Path:
    """What a path in a root refers to there: an absolute link begins at the root."""
    parts = list(path.relative_to(root).parts)
    found = root
    while parts:
        found /= parts.pop(0)
        if found.is_symlink():
            link = found.readlink()
            found = root if link.is_absolute() else found.parent
            parts = [*link.parts[1 if link.is_absolute() else 0 :], *parts]
    return Path(os.path.normpath(found))
