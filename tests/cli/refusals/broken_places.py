"""Places in which no command can do its work, each made really, and every command run in them.

A place is made in a process of its own, with mounts of its own where it has any; each command runs
in a fork of that, so that nothing is imported twice.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NoReturn

# Owns what the command must not touch, and runs the command: neither is root or in use.
OWNER, STRANGER = 54321, 54322
_SECONDS = 120
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_OF_USERS = ("HOME", "TMPDIR", "AOTC_CACHE", "AOTC_STORE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")

# Where the registry is, which has an artifact at `shop/made:1`.
REGISTRY = ""
# What each command is given: `in` holds all that it reads, and `out` what it changes and writes.
ROWS: Mapping[str, str] = {
    "build": "{in}/model.onnx -o {out}/new.aotc --key {in}/key.pem",
    "verify": "{in}/made.aotc --key {in}/key.pub",
    "inspect": "{in}/made.aotc",
    "debug parity": "{in}/made.aotc --model {in}/model.onnx",
    "reproduce": "{in}/made.aotc --model {in}/model.onnx --trust {in}/key.pub --here "
    "-o {out}/new-rebuilt.aotc",
    "diff": "{in}/made.aotc {in}/made.aotc --html {out}/new.html",
    "run": "{in}/made.aotc --key {in}/key.pub --output-dir {out}/newdir --metrics {out}/newer.json",
    "bench": "{in}/made.aotc --key {in}/key.pub --runs 2",
    "check-models": "{in}/models --output {out}/new.json",
    "fleet build": "{out}/fleet.yaml --key {in}/key.pem --state {out}/newstate",
    "fleet verify": "{in}/made.aotc --key {in}/key.pub --targets linux-x86-64",
    "fleet merge-reports": "{in}/shard.json",
    "fleet emit": "{out}/fleet.yaml --form kubernetes --shards 2 -o {out}/newjobs",
    "fleet upgrade": f"{{in}}/models --to {metadata.version('onnxruntime')} --no-latency",
    "profile list": "",
    "profile show": "{in}/profile.yaml",
    "profile check": "{in}/profile.yaml",
    "profile learn": "{in}/shapes.jsonl --costs {in}/costs.json -o {out}/new.yaml",
    "target list": "",
    "target show": "{in}/target.yaml",
    "target probe": "",
    "cache list": "",
    "cache prune": "",
    "cache clear": "",
    "install": "{in}/made.aotc --key {in}/key.pub --store {out}/newstore",
    "store list": "--store {in}/store",
    "store prune": "--store {out}/store --limit 0",
    "store remove": "{id} --store {out}/other-store",
    "pack": "{in}/made.aotc -o {out}/new.zip",
    "unpack": "{in}/made.zip -o {out}/new-unpacked.aotc",
    "merge": "{in}/made.aotc {in}/again.aotc -o {out}/new-merged.aotc --key {in}/key.pem",
    "push": "{in}/made.aotc oci://{registry}/shop/pushed:1",
    "pull": "oci://{registry}/shop/made:1 -o {out}/new-pulled.aotc --key {in}/key.pub",
    "export": "{in}/made.aotc -o {out}/new-export --key {in}/key.pub",
    "sign": "{out}/made.aotc --key {in}/other.pem --trust {in}/key.pub",
    "attest": "{out}/made.aotc --approve --channel prod --expires 2090-01-01 --key {in}/key.pem",
    "trust init": "-o {out}/new-policy.yaml --name shop --signer ci={in}/key.pub",
    "trust root": "-o {out}/new-root.yaml --key {in}/key.pub --threshold 1 --policy shop",
    "trust add": "{out}/trust.yaml --id other --key {in}/other.pub --usage oms",
    "trust check": "{in}/trust.yaml",
    "trust explain": "{in}/trust.yaml {in}/made.aotc",
    "trust sign": "{out}/trust.yaml --key {in}/other.pem",
    "keygen": "-o {out}/new.pem",
    "explain": "AOTC-I018",
    "config": "",
    "completion": "bash",
    "doctor": "",
}

# They write into the working directory alone, which is no place of these: `test_init_command`.
ELSEWHERE = frozenset({"init"})


class CannotMakeError(Exception):
    """This machine does not let such a place be made, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a command ended in a place, and what it said."""

    name: str
    status: int
    stdout: str
    stderr: str

    def tells_a_code(self) -> bool:
        """Whether it says what was refused, where it is read: of a bad end, or of a bad check."""
        told = self.stdout if self.stdout.startswith("{") else self.stderr
        return self.name == "doctor" or re.search(r"\bAOTC-[A-Z]\d{3}\b", told) is not None


@dataclass(slots=True)
class Scene:
    """Where commands run: what is given to them, and a folder and a home of this place alone."""

    given: Path
    here: Path
    artifact_id: str
    read: Path = field(init=False)
    written: Path = field(init=False)
    home: Path = field(init=False)
    environment: dict[str, str] = field(default_factory=dict)
    before: list[Callable[[], None]] = field(default_factory=list)
    longest: bool = False
    json: bool = True

    def __post_init__(self) -> None:
        self.read, self.home = self.given, self.here / "home"
        self.written = self.copy("out")
        self.home.mkdir()

    def copy(self, name: str) -> Path:
        """A copy of what is given, for commands that change it."""
        target = self.here / name
        shutil.copytree(self.given, target, symlinks=True)
        return target

    def words(self, name: str) -> list[str]:
        """The words of a command here."""
        found = name.split()
        for word in ROWS[name].split():
            place = word
            if self.longest and "/new" in word:
                folder, _, last = word.rpartition("/")
                limit = os.pathconf(self.here, "PC_NAME_MAX")
                place = f"{folder}/{last.rjust(limit, 'n')}"
            found.append(
                place.replace("{in}", str(self.read))
                .replace("{out}", str(self.written))
                .replace("{id}", self.artifact_id)
                .replace("{registry}", REGISTRY)
            )
        # A script for a shell is no document.
        return [*found, "--json"] if self.json and name != "completion" else found


def walk(
    given: Path, here: Path, artifact_id: str, make: Callable[[Scene], None], names: Iterable[str]
) -> list[Result]:
    """Run commands in a place that `make` makes; raises CannotMakeError."""
    here.mkdir()
    here.chmod(0o755)
    said = here / "said"

    def job() -> None:
        scene = Scene(given, here, artifact_id)
        make(scene)
        found = [_run(scene, name) for name in names]
        said.write_text(json.dumps([[each.status, each.stdout, each.stderr] for each in found]))

    status = _forked(job, here / "trouble")
    trouble = (here / "trouble").read_text()
    if trouble.startswith("cannot: "):
        raise CannotMakeError(trouble.removeprefix("cannot: "))
    assert status == 0, trouble
    rows = json.loads(said.read_text())
    return [
        Result(name=name, status=row[0], stdout=row[1], stderr=row[2])
        for name, row in zip(names, rows, strict=True)
    ]


def _run(scene: Scene, name: str) -> Result:
    """One command in a fork, with its streams in files; 120 where what is left fails at exit."""
    # Pipes, as files may be what is limited; nothing that a command says here fills one.
    pipes = [os.pipe() for _ in range(2)]
    for reader, _ in pipes:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)

    def job() -> NoReturn:
        from aotc.cli.main import main

        for number, (reader, writer) in enumerate(pipes, 1):
            os.dup2(writer, number)
            os.close(reader)
            os.close(writer)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["HOME"] = str(scene.home)
        for variable in _OF_USERS[1:]:
            os.environ.pop(variable, None)
        os.environ.update(scene.environment)
        for each in scene.before:
            each()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", write_through=True)
        status = main(scene.words(name))
        try:
            sys.stdout.flush()
        except OSError:
            status = 120
        os._exit(status)

    status = _forked(job, scene.here / "trouble")
    said = []
    for reader, writer in pipes:
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            said.append(file.read().decode(errors="replace"))
    return Result(name=name, status=status, stdout=said[0], stderr=said[1])


def _forked(job: Callable[[], object], trouble: Path) -> int:
    """The exit status of a function in a fork; what it raises is written to `trouble`."""
    file = trouble.open("w")
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_SECONDS)
            job()
            os._exit(0)
        except CannotMakeError as error:
            file.write(f"cannot: {error}")
        except BaseException:
            file.write(traceback.format_exc())
            os.write(2, traceback.format_exc().encode())
        finally:
            file.flush()
            os._exit(99)
    file.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- what places are made of
def own_mounts() -> None:
    """Mounts of this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise CannotMakeError(f"no mounts of one's own here: {os.strerror(ctypes.get_errno())}")
    mount("none", Path("/"), flags=_MS_REC | _MS_PRIVATE)


def mount(
    source: str | Path, target: Path, *, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    """mount(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [os.fsencode(each) if each else None for each in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) if data else None) != 0:
        number = ctypes.get_errno()
        raise CannotMakeError(f"cannot mount {kind or source} here: {os.strerror(number)}")


def read_only(folder: Path) -> None:
    """Have a folder read-only from now on."""
    mount(folder, folder, flags=_MS_BIND)
    mount("none", folder, flags=_MS_BIND | _MS_REMOUNT | _MS_RDONLY)


def bind(path: Path) -> None:
    """Make a file or folder a mount point."""
    mount(path, path, flags=_MS_BIND)


def fill(folder: Path) -> None:
    """Leave no room on the file system of a folder."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def tiny(folder: Path, size: str) -> None:
    """Have a folder on a file system of `size`, with what is in it."""
    aside = folder.with_name(f"{folder.name}-aside")
    folder.rename(aside)
    folder.mkdir()
    mount("none", folder, kind="tmpfs", data=f"size={size}")
    shutil.copytree(aside, folder, dirs_exist_ok=True)


def limit(what: int, number: int) -> Callable[[], None]:
    """A limit of the process, to be set before a command."""

    def set_limit() -> None:
        resource.setrlimit(what, (number, resource.getrlimit(what)[1]))

    return set_limit


def own(path: Path, user: int, mode: int) -> None:
    """Give a file or folder to a user who is neither root nor who runs the command."""
    if os.geteuid() != 0:
        raise CannotMakeError("only root gives files to other users")
    os.chown(path, user, user)
    path.chmod(mode)


def become(user: int) -> Callable[[], None]:
    """Be another user from now on."""

    def set_user() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    return set_user


def stdout_to(path: str) -> Callable[[], None]:
    """Lead standard output elsewhere."""

    def lead() -> None:
        os.dup2(os.open(path, os.O_WRONLY), 1)

    return lead
