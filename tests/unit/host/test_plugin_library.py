"""Plugin libraries: their digests, the user's paths of them, and the checks of both."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.host.plugin_libraries import libraries_digest, libraries_in, stated_libraries
from aotc.spec.payload import Finding
from aotc.spec.target import Plugin, Target
from aotc.spec.variant import Requirements
from aotc.trust.checks import checks

CPU = "CPUExecutionProvider"
MINE = "MyExecutionProvider"
DIGEST, OTHER = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "plugin" / "libplugin.so"
    path.parent.mkdir()
    path.write_bytes(b"first bytes")
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_elsewhere(*paths: Path) -> str:
    """The digest that another process finds, with the same cache of file digests."""
    code = (
        "import sys; from pathlib import Path\n"
        "from aotc.host.plugin_libraries import libraries_digest\n"
        "print(libraries_digest([Path(path) for path in sys.argv[1:]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_of_one_file_it_is_its_sha256(library: Path) -> None:
    assert libraries_digest([library]) == sha256(b"first bytes")


def test_of_several_it_is_that_of_their_lines_in_order_of_names(library: Path) -> None:
    second = library.with_name("liba.so.1")
    second.write_bytes(b"second")
    lines = f"{sha256(b'second')}  liba.so.1\n{sha256(b'first bytes')}  libplugin.so\n"
    assert libraries_digest([library, second]) == sha256(lines.encode())
    assert libraries_digest([second, library]) == libraries_digest([library, second])


def test_a_folders_libraries_are_those_and_no_other_files(library: Path) -> None:
    folder = library.parent
    for name in ("libb.so.3.1", "old.dll", "cache.json", "libc.so.txt", "readme.so-called"):
        (folder / name).write_bytes(b"x")
    (folder / "plugin.sox").write_bytes(b"x")
    names = [path.name for path in libraries_in(folder)]
    assert names == sorted(names)
    assert {"libplugin.so", "libb.so.3.1", "old.dll"} <= set(names)
    assert not {"cache.json", "readme.so-called", "plugin.sox"} & set(names)


@pytest.mark.parametrize("replace", ["written-over", "renamed-over"])
def test_a_replaced_file_of_the_same_size_and_time_is_noticed(library: Path, replace: str) -> None:
    before = library.stat()
    assert digest_elsewhere(library) == sha256(b"first bytes")
    if replace == "written-over":
        library.write_bytes(b"other bytes")
    else:
        other = library.with_name("other.so")
        other.write_bytes(b"other bytes")
        other.replace(library)
    os.utime(library, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = library.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert digest_elsewhere(library) == sha256(b"other bytes")


def test_this_process_notices_as_well(library: Path) -> None:
    assert libraries_digest([library]) == sha256(b"first bytes")
    library.write_bytes(b"other bytes")
    assert libraries_digest([library]) == sha256(b"other bytes")


def cache_file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "aotc" / "library-digests.json"


def test_digests_are_kept_for_the_next_process(library: Path, tmp_path: Path) -> None:
    """Shown with a forged cache: its entries are used as long as the file is unchanged."""
    digest_elsewhere(library)
    place = cache_file(tmp_path)
    known = json.loads(place.read_text())
    assert known[str(library)][-1] == sha256(b"first bytes")
    assert place.parent.stat().st_mode & 0o077 == 0
    assert place.stat().st_mode & 0o022 == 0
    known[str(library)][-1] = OTHER
    place.write_text(json.dumps(known))
    assert digest_elsewhere(library) == OTHER
    library.touch()
    assert digest_elsewhere(library) == sha256(b"first bytes")


def spoil_text(place: Path, _: Path) -> None:
    place.write_text("{not json")


def spoil_list(place: Path, _: Path) -> None:
    place.write_text("[1, 2]")


def spoil_entry(place: Path, library: Path) -> None:
    place.write_text(json.dumps({str(library): "abc", "other": [1, 2, 3, 4, 5, 6]}))


def spoil_bytes(place: Path, _: Path) -> None:
    place.write_bytes(b"\xff\xfe\x00")


def spoil_folder(place: Path, _: Path) -> None:
    place.unlink()
    place.mkdir()


@pytest.mark.parametrize("spoil", [spoil_text, spoil_list, spoil_entry, spoil_bytes, spoil_folder])
def test_a_damaged_cache_is_ignored(
    library: Path, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    digest_elsewhere(library)
    spoil(cache_file(tmp_path), library)
    assert digest_elsewhere(library) == sha256(b"first bytes")


def test_a_cache_that_cannot_be_written_is_ignored(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing/here")
    assert digest_elsewhere(library) == sha256(b"first bytes")


def test_a_relative_cache_folder_is_ignored(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert digest_elsewhere(library) == sha256(b"first bytes")
    assert not (tmp_path / "relative").exists()
    assert (tmp_path / "home" / ".cache" / "aotc" / "library-digests.json").exists()


def test_a_library_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        libraries_digest([tmp_path / "missing.so"])


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("", {}),
        ("A=/a.so", {"A": "/a.so"}),
        ("A=/a.so:B=/b.so", {"A": "/a.so", "B": "/b.so"}),
        ("A=/with=sign.so", {"A": "/with=sign.so"}),
        ("A=/first.so:A=/last.so", {"A": "/last.so"}),
        (":A=/a.so::", {"A": "/a.so"}),
        ("A=relative/a.so", {"A": "relative/a.so"}),
    ],
)
def test_what_the_environment_states(
    monkeypatch: pytest.MonkeyPatch, text: str, stated: dict[str, str]
) -> None:
    monkeypatch.setenv("AOTC_PLUGINS", text)
    assert stated_libraries() == {name: Path(path) for name, path in stated.items()}
    monkeypatch.delenv("AOTC_PLUGINS")
    assert stated_libraries() == {}


@pytest.mark.parametrize("text", ["nothing", "=/a.so", "A=", "A=/a.so:B"])
def test_an_entry_that_does_not_name_a_plugin_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("AOTC_PLUGINS", text)
    with pytest.raises(AotcError) as caught:
        stated_libraries()
    assert (caught.value.code, caught.value.where) == ("AOTC-I027", "$AOTC_PLUGINS")


def test_a_probe_finds_stated_libraries(library: Path) -> None:
    """In a new process, since the probe's answer is cached for the life of a process."""
    code = (
        "from aotc.host.probe import probe\n"
        "host = probe(gpus=False, digests=True)\n"
        f"print([(p.name, p.sha256) for p in host.plugins if p.provider == '{MINE}'])\n"
        f"print('{MINE}' in host.providers)\n"
    )
    absent = library.with_name("absent.so")
    for path, expected in ((library, sha256(b"first bytes")), (absent, None)):
        environment = {**os.environ, "AOTC_PLUGINS": f"{MINE}={path}"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        found = [("libplugin.so", expected)] if expected else []
        assert done.stdout.splitlines() == [repr(found), repr(bool(expected))], done.stderr


BASE = Requirements(
    os="linux",
    architecture="x86_64",
    onnxruntime_min="1.31.0",
    onnxruntime_below="1.32",
    providers=(MINE, CPU),
)
HOST = Target(
    schema="aotc.target/1",
    name="box",
    onnxruntime="1.31.1",
    providers=(MINE, CPU),
    probed=True,
)
SILENT = Target(schema="aotc.target/1", name="box")


def plugin(version: str = "1.0", sha: str | None = DIGEST, name: str = "my-ep") -> Plugin:
    return Plugin(name=name, version=version, sha256=sha, provider=MINE)


def codes(code: str, wanted: Plugin, *have: Plugin, host: Target = HOST) -> list[tuple[str, bool]]:
    """Code and severity (whether it refuses) of each result of a check."""
    requirements = dataclasses.replace(BASE, plugins=(wanted,))
    results = checks()[code]().run(requirements, dataclasses.replace(host, plugins=have))
    return [(result.code, not isinstance(result, Finding)) for result in results]


@pytest.mark.parametrize(
    ("wanted", "have", "digest", "presence"),
    [
        (plugin(), [plugin()], [], []),
        (plugin(), [plugin(sha=OTHER)], [("AOTC-C012", True)], []),
        (plugin(), [plugin(sha=None)], [("AOTC-C011", False)], []),
        (plugin(sha=None), [plugin(sha=OTHER)], [], []),
        (plugin(), [], [], [("AOTC-C006", True)]),
        (plugin(), [plugin("1.1")], [], [("AOTC-C006", True)]),
        (plugin(), [plugin("1.1", OTHER)], [], [("AOTC-C006", True)]),
        (plugin(), [plugin(name="other-ep")], [], [("AOTC-C006", True)]),
        # A user's own library has no version: only its digest distinguishes it from another.
        (plugin(""), [plugin("")], [], []),
        (plugin(""), [plugin("", OTHER)], [("AOTC-C012", True)], []),
        (plugin(""), [], [], [("AOTC-C006", True)]),
    ],
)
def test_the_checks_of_a_plugin(
    wanted: Plugin,
    have: list[Plugin],
    digest: list[tuple[str, bool]],
    presence: list[tuple[str, bool]],
) -> None:
    assert codes("AOTC-C012", wanted, *have) == digest
    assert codes("AOTC-C006", wanted, *have) == presence


def test_a_described_target_may_be_silent() -> None:
    assert codes("AOTC-C012", plugin(), host=SILENT) == []
    assert set(codes("AOTC-C006", plugin(), host=SILENT)) == {("AOTC-C011", False)}


def test_the_fix_for_a_missing_plugin() -> None:
    """A distribution gets installed; the user's own library is named in the environment."""
    check = checks()["AOTC-C006"]()
    mends = []
    for wanted in (plugin(), plugin("", name="libmine.so")):
        (refusal,) = check.run(dataclasses.replace(BASE, plugins=(wanted,)), HOST)
        assert not isinstance(refusal, Finding)
        mends.append(refusal.fix)
    assert mends == [
        'pip install "my-ep==1.0"',
        f"Set AOTC_PLUGINS={MINE}=PATH to the plugin's library.",
    ]
