"""Files, folders, links, modes and names that were not signed, in an artifact that was built.

Each attack spoils a copy; verify names its code, and load refuses before any session is created.
Mode bits are not signed and say nothing: an artifact with others is accepted, as long as its files
can be read, and what the store holds of it can be written and executed by nobody.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attacked_artifact import Attacked, built_artifact, forbid_sessions

from aotc import load

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs links and any names")

CHANGED, MISSING, UNLISTED, SPECIAL = "AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G008"
LIMITS, CONTRADICTION, NO_ARTIFACT = "AOTC-G012", "AOTC-G014", "AOTC-G015"
Attack = Callable[[Attacked], object]
Case = tuple[Attack, tuple[str, ...]]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attacked:
    copy = built_artifact().copy(tmp_path)
    forbid_sessions(monkeypatch)
    return copy


def add(name: str | bytes, data: bytes = b"evil") -> Attack:
    """A file more, below the artifact's folder."""

    def attack(target: Attacked) -> None:
        path = Path(os.fsdecode(os.fsencode(target.path) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return attack


def folder(name: str) -> Attack:
    """An empty folder more."""
    return lambda target: (target.path / name).mkdir(parents=True)


def _counterpart(target: Attacked) -> Path:
    """The same model file, in the other artifact."""
    return target.other / "payload/model/portable/model.onnx"


def _rename(target: Attacked) -> None:
    target.model.rename(target.model.with_name("other.onnx"))


def _rename_folder(target: Attacked) -> None:
    target.model.parent.rename(target.model.parent.with_name("other"))


def _swap_within(target: Attacked) -> None:
    away = target.path.with_name("away")
    target.model.rename(away)
    target.unread.rename(target.model)
    away.rename(target.unread)


def _swap_payload(target: Attacked) -> None:
    shutil.rmtree(target.payload)
    (target.other / "payload").rename(target.payload)


def _swap_manifest(target: Attacked) -> None:
    shutil.copy(target.other / "payload/aotc.json", target.payload / "aotc.json")


def _foreign_attestation(target: Attacked) -> None:
    name = "attestations/evidence.sigstore.json"
    shutil.copy(target.other / name, target.path / name)


def _many_folders(target: Attacked) -> None:
    (target.payload / "a/b/c/d/e/f/g/h/i").mkdir(parents=True)


FILES: dict[str, Case] = {
    "added to payload": (add("payload/evil.bin"), (UNLISTED,)),
    "added beside a model": (add("payload/model/portable/evil.bin"), (UNLISTED,)),
    "added beside payload": (add("README.md"), (UNLISTED,)),
    "added empty": (add("payload/evil.bin", b""), (UNLISTED,)),
    "added to attestations": (add("attestations/evil.txt"), (UNLISTED,)),
    "added below attestations": (add("attestations/a/b.sigstore.json"), (UNLISTED, "AOTC-G004")),
    "added bundle that is none": (add("attestations/evil.sigstore.json"), ("AOTC-G004",)),
    "removed": (lambda t: t.model.unlink(), (MISSING,)),
    "removed, unread": (lambda t: t.unread.unlink(), (MISSING,)),
    "removed with its folder": (lambda t: shutil.rmtree(t.model.parent), (MISSING,)),
    "manifest.json removed": (lambda t: (t.payload / "manifest.json").unlink(), (MISSING,)),
    "aotc.json removed": (lambda t: (t.payload / "aotc.json").unlink(), (MISSING,)),
    "payload removed": (lambda t: shutil.rmtree(t.payload), (NO_ARTIFACT,)),
    "renamed": (_rename, (MISSING, UNLISTED)),
    "folder renamed": (_rename_folder, (MISSING, UNLISTED)),
    "truncated": (lambda t: os.truncate(t.model, 10), (CHANGED,)),
    "emptied": (lambda t: os.truncate(t.model, 0), (CHANGED,)),
    "one byte more": (lambda t: os.truncate(t.model, t.model.stat().st_size + 1), (CHANGED,)),
    "swapped with another of its own": (_swap_within, (CHANGED,)),
    "swapped between artifacts": (
        lambda t: shutil.copy(_counterpart(t), t.model),
        (CHANGED,),
    ),
    "manifest of another artifact": (_swap_manifest, (CHANGED,)),
    "payload of another artifact": (_swap_payload, (CHANGED, MISSING, UNLISTED)),
    "attestation of another artifact": (_foreign_attestation, (CONTRADICTION,)),
    "sparse huge file": (lambda t: os.truncate(t.model, 1 << 42), (CHANGED,)),
    "sparse huge file more": (
        lambda t: (add("payload/evil.bin")(t), os.truncate(t.payload / "evil.bin", 1 << 42)),
        (UNLISTED,),
    ),
    "empty folder": (folder("payload/empty"), (UNLISTED,)),
    "empty folder outside": (folder("empty"), (UNLISTED,)),
    "empty folder of attestations": (folder("attestations/empty"), (UNLISTED,)),
    "hidden empty folder": (folder("payload/.git"), (UNLISTED,)),
    "deep folders": (_many_folders, (LIMITS,)),
    "one for each limit": (
        lambda t: [folder(f"payload/d/{number}")(t) for number in range(10_001)],
        (LIMITS,),
    ),
}

# Names that other signers leave out of account.
IGNORED = (
    ".git/config",
    ".gitignore",
    ".gitattributes",
    ".github/workflows/a.yml",
    ".DS_Store",
    "__pycache__/a.pyc",
    "Thumbs.db",
    "model.sig",
    "oms.sigstore.json",
    "claims.jsonl",
    ".aotcignore",
    "lost+found/a",
)

# Names that some system takes for one that is there, or that no statement can list.
NAMES: dict[str, bytes] = {
    "NFD": "payload/mode\u0301l.onnx".encode(),
    "NFC": "payload/mod\u00e9l.onnx".encode(),
    "full width": "payload/\uff41otc.json".encode(),
    "zero width": "payload/aotc\u200b.json".encode(),
    "right to left": "payload/aotc\u202enosj".encode(),
    "case": b"payload/AOTC.JSON",
    "case of a folder": b"PAYLOAD/aotc.json",
    "case of attestations": b"Attestations/oms.sigstore.json",
    "trailing dot": b"payload/aotc.json.",
    "trailing space": b"payload/aotc.json ",
    "stream": b"payload/aotc.json::$DATA",
    "device name": b"payload/CON",
    "backslash": b"payload\\aotc.json",
    "backslash below": b"payload/model\\portable\\model.onnx",
    "drive": b"payload/C:aotc.json",
    "not UTF-8": b"payload/\xff\xfe.json",
    "overlong": b"payload/\xc0\xae\xc0\xae.json",
    "surrogate": b"payload/\xed\xa0\x80.json",
    "newline": b"payload/aotc.json\n",
    "carriage return": b"payload/\raotc.json",
    "escape": b"payload/\x1b[2Jaotc.json",
    "delete": b"payload/aotc\x7f.json",
    "three dots": b"payload/...",
    "percent": b"payload/%2e%2e",
    "long": b"payload/" + b"a" * 255,
}


def _link(target: Attacked, *, relative: bool = False) -> None:
    away = target.model.with_name("away.onnx") if relative else target.path.with_name("away")
    target.model.rename(away)
    target.model.symlink_to("away.onnx" if relative else away)


def _link_folder(path: Path, away: Path) -> None:
    path.rename(away)
    path.symlink_to(away)


def _replaced(make: Callable[[Path], object]) -> Attack:
    def attack(target: Attacked) -> None:
        target.model.unlink()
        make(target.model)

    return attack


def _socket(path: Path) -> None:
    # The name of a socket is short: it is made from within its folder.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


SPECIALS: dict[str, Case] = {
    "link to a file": (_link, (SPECIAL,)),
    "link within": (lambda t: _link(t, relative=True), (SPECIAL, UNLISTED)),
    "link more": (lambda t: (t.payload / "evil").symlink_to("aotc.json"), (SPECIAL,)),
    "link to nothing": (_replaced(lambda p: p.symlink_to("nothing")), (SPECIAL,)),
    "link to itself": (_replaced(lambda p: p.symlink_to(p.name)), (SPECIAL,)),
    "link to a device": (_replaced(lambda p: p.symlink_to("/dev/zero")), (SPECIAL,)),
    "link to a parent": (lambda t: (t.payload / "up").symlink_to(".."), (SPECIAL,)),
    "folder is a link": (
        lambda t: _link_folder(t.model.parent, t.path.with_name("away")),
        (SPECIAL, MISSING),
    ),
    "payload is a link": (
        lambda t: _link_folder(t.payload, t.path.with_name("away")),
        (SPECIAL, NO_ARTIFACT),
    ),
    "attestations are a link": (
        lambda t: _link_folder(t.bundle.parent, t.path.with_name("away")),
        (SPECIAL, "AOTC-G001"),
    ),
    "bundle is a link": (
        lambda t: _link_folder(t.bundle, t.path.with_name("away")),
        (SPECIAL,),
    ),
    "hard link": (lambda t: t.path.with_name("second").hardlink_to(t.model), (SPECIAL,)),
    "hard link within": (lambda t: (t.payload / "b").hardlink_to(t.model), (SPECIAL,)),
    "hard link of the bundle": (
        lambda t: t.path.with_name("second").hardlink_to(t.bundle),
        (SPECIAL,),
    ),
    "FIFO": (_replaced(os.mkfifo), (SPECIAL,)),
    "FIFO more": (lambda t: os.mkfifo(t.payload / "evil"), (SPECIAL,)),
    "socket": (_replaced(_socket), (SPECIAL,)),
    "folder in place of a file": (_replaced(Path.mkdir), (MISSING, UNLISTED)),
}


@pytest.mark.parametrize("attack", FILES)
def test_files(attack: str, target: Attacked) -> None:
    make, codes = FILES[attack]
    make(target)
    target.refused(*codes)


@pytest.mark.parametrize("place", ["", "payload/", "payload/model/"])
@pytest.mark.parametrize("name", IGNORED)
def test_no_name_is_ignored(name: str, place: str, target: Attacked) -> None:
    add(place + name)(target)
    target.refused(UNLISTED)


@pytest.mark.parametrize("name", NAMES)
def test_name(name: str, target: Attacked) -> None:
    try:
        add(NAMES[name])(target)
    except OSError:
        pytest.skip("this file system has no such name")
    target.refused(UNLISTED)


@pytest.mark.parametrize("attack", SPECIALS)
def test_links_and_special_files(attack: str, target: Attacked) -> None:
    make, codes = SPECIALS[attack]
    make(target)
    target.refused(*codes)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices(kind: int, target: Attacked) -> None:
    try:
        _replaced(lambda path: os.mknod(path, kind | 0o600, os.makedev(1, 5)))(target)
    except PermissionError:
        pytest.skip("needs the right to make devices")
    target.refused(
        SPECIAL,
    )


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o755, 0o777, 0o4755, 0o2755, 0o1777])
def test_mode_bits_are_not_trusted(
    mode: int, target: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted: nothing depends on them, and none of them comes into the store."""
    for path in target.payload.rglob("*"):
        if path.is_file():
            path.chmod(mode)
    if not os.access(target.model, os.R_OK):
        pytest.skip("cannot read such a file")
    assert target.verified() == []
    monkeypatch.undo()
    store = target.path.with_name("store")
    with load(target.path, key=target.public, store=store, warm_up=False) as model:
        kept = [path for path in model.payload.rglob("*") if path.is_file()]
        assert kept
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o444}


def test_what_a_load_does_not_need_is_refused_as_well(target: Attacked) -> None:
    """A variant that this load would leave alone: a copy is of all that was signed."""
    target.unread.write_bytes(target.unread.read_bytes() + b"evil")
    last = target.manifest["variants"][-1]["name"]
    assert target.verified() == [CHANGED]
    assert target.loaded(variant=last) == CHANGED
