"""A checkout of a stranger's: `aotc.yaml`, a zero byte, and a profile `p.yaml` beside it.

The checkout has links out of it of every kind, a pipe, and a file that is no report.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from edited_artifact import make_place
from fuzz_target import Target
from reported_runs import failed_build
from structured import mutated, words_of

from aotc.base.errors import AotcError
from aotc.base.files.names import data_files
from aotc.base.files.reading import open_plain
from aotc.cli.configuration import read_settings
from aotc.report.report_forms import is_standard_output, write_report
from aotc.spec.config import Config
from aotc.spec.profile import Profile
from aotc.spec.profile_files import builtin_profiles, builtin_targets, load_profile, load_target
from aotc.trust.signers import load_signer

PLACE = make_place()
CHECKOUT, VICTIM, COPY = PLACE / "checkout", PLACE / "victim", PLACE / "copy"
SECRET = "secret-of-the-victim"
PRECIOUS = {
    "settings.json": '{"precious": 1}\n',
    "p.yaml": f"schema: aotc.profile/1\nname: {SECRET}\n",
    "t.yaml": f"schema: aotc.target/1\nname: {SECRET}\narch: x86_64\n",
    "data.npz": SECRET,
}
LINKS = {
    "folder": "../victim",
    "sub/deep": "../../victim",
    "within": "sub",
    "chain": "folder",
    "up": "..",
    "file.json": "../victim/settings.json",
    "new.json": "../victim/new.json",
    "q.yaml": "../victim/p.yaml",
    "given/data.npz": "../../victim/data.npz",
}
REPORT = failed_build(PLACE)
os.environ.pop("AOTC_CONFIG", None)


def _make() -> None:
    for folder in (VICTIM, COPY / "sub", COPY / "given"):
        folder.mkdir(parents=True)
    for name, text in PRECIOUS.items():
        (VICTIM / name).write_text(text)
    for name, target in LINKS.items():
        (COPY / name).symlink_to(target)
    (COPY / "mine.json").write_text(PRECIOUS["settings.json"])
    (COPY / "sub" / "t.yaml").write_text("schema: aotc.target/1\nname: own\narch: x86_64\n")
    (COPY / "sub" / "x.npz").write_bytes(b"1")


_make()


def check(data: bytes) -> bool:
    """Whether it is taken; nothing of the victim's is then read or changed, and no file lost."""
    shutil.rmtree(CHECKOUT, ignore_errors=True)
    shutil.copytree(COPY, CHECKOUT, symlinks=True)
    os.mkfifo(CHECKOUT / "pipe.json")
    configuration, _, profile = data.partition(b"\0")
    (CHECKOUT / "aotc.yaml").write_bytes(configuration)
    (CHECKOUT / "p.yaml").write_bytes(profile)
    with contextlib.chdir(CHECKOUT):
        return _check_here()


def _check_here() -> bool:
    try:
        settings = read_settings()
    except AotcError as error:
        assert {each.code for each in (error, *error.also)} <= {"AOTC-I052", "AOTC-I046"}
        return False
    finally:
        _look()
    for values in settings.values():
        for name, setting in values.items():
            for value in setting.value if isinstance(setting.value, tuple) else (setting.value,):
                try:
                    _use(name, value)
                except (AotcError, OSError) as error:
                    # Taken by nobody, and so not confined, would be refused with other words.
                    assert SECRET not in str(error)
    _look()
    return True


def _use(name: str, value: str | bool) -> None:
    if isinstance(value, bool):
        return
    if name == "report":
        if not is_standard_output(value):
            write_report(REPORT, value)
    elif name == "profile":
        made = load_profile(value)
        assert made.name != SECRET
        assert not made.plugins
        for data in (made.calibration.data, made.gates.task.data if made.gates.task else ""):
            _read(Path(data))
        if made.target != "host":
            assert load_target(made.target).name != SECRET
    elif name == "target":
        assert value == "host" or load_target(value).name != SECRET
    elif name == "key":
        load_signer(value)
    else:
        assert name == "calibration"
        _read(Path(value))


def _read(place: Path) -> None:
    if str(place) in ("", "."):
        return
    for file in data_files(place):
        with open_plain(file) as opened:
            assert SECRET.encode() not in opened.read()


def _look() -> None:
    assert {path.name: path.read_text() for path in VICTIM.iterdir()} == PRECIOUS
    assert sorted(path.name for path in PLACE.iterdir()) == ["checkout", "copy", "p.yaml", "victim"]
    assert (CHECKOUT / "mine.json").read_text() == PRECIOUS["settings.json"]
    for name, target in LINKS.items():
        assert os.readlink(CHECKOUT / name) == target  # noqa: PTH115


NAMES = (
    *("r.json", "sub/r.md", "mine.json", "pipe.json", "file.json", "new.json", "up/r.json"),
    *("folder/new.json", "sub/deep/settings.json", "within/r.xml", "chain/r.html"),
    *("p.yaml", "q.yaml", "folder/p.yaml", "sub/../p.yaml", "../victim/p.yaml"),
    *("sub/t.yaml", "folder/t.yaml", "given", "sub", "folder", ".", "..", "folder/data.npz"),
    *(str(VICTIM / "settings.json"), str(CHECKOUT / "r.sarif"), "aotc.yaml", "~/x.json"),
)
OF_SETTINGS = (
    '{{"report": "{0}"}}',
    '{{"bench": {{"report": ["a.json", "{0}"]}}}}',
    '{{"profile": "{0}"}}',
    '{{"target": "{0}"}}',
    '{{"key": "{0}"}}',
    '{{"build": {{"calibration": "{0}"}}}}',
)


def seeds() -> Iterator[bytes]:
    """Every way out by every setting, and by a profile of the checkout."""
    stated: dict[str, object] = {"schema": "aotc.profile/1", "name": "own"}
    for name in NAMES:
        for text in OF_SETTINGS:
            yield text.format(name).encode() + b"\0" + json.dumps(stated).encode()
        for more in (
            {"calibration": {"data": name}},
            {"target": name},
            {"gates": {"task": {"data": name, "metric": "accuracy"}}},
            {"plugins": {"x": {"provider": "XProvider", "library": name}}},
        ):
            yield b'{"profile": "p.yaml"}\0' + json.dumps({**stated, **more}).encode()


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """One of the two documents is changed."""
    configuration, _, profile = data.partition(b"\0")
    changed = mutated(profile if seed % 2 else configuration, size // 2, seed >> 1)
    if changed is None:
        return None
    return configuration + b"\0" + changed if seed % 2 else changed + b"\0" + profile


WORDS = words_of(Config, Profile) | {*NAMES, *builtin_profiles(), *builtin_targets()}
TARGET = Target("configuration", check, seeds, WORDS, 4096, _mutate)
