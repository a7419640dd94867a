"""Commands that are killed at any step on files: nothing half, and nothing left after the next.

`make test-sweeps` kills each at some of its steps, `make test-slow` at every one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from kill_sweep import Home, sweep
from made_models import linear, save

from aotc.base.files import replacing
from aotc.cli.commands import COMMANDS
from aotc.pipeline.cache import BuildCache
from aotc.trust.gate import verify
from aotc.trust.key_loading import load_private, load_public

# So that no fork imports them.
for _name in COMMANDS:
    COMMANDS.load(_name)
for _name in (
    *("pipeline.build", "trust.packing", "trust.policy.authoring"),
    *("runtime.store.installing", "runtime.store.pruning"),
    *("report.sheets.summary", "report.sheets.trust"),
    *("cli.terminal", "cli.output"),
):
    import_module(f"aotc.{_name}")

KEY = ("--key", "release.pem")
BUILD = ("build", "linear.onnx", "-o", "out.aotc", *KEY)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a key, two artifacts and what is made of them."""
    home = Home(tmp_path_factory.mktemp("kills") / "start")
    home.folder.mkdir()
    save(linear(), home.folder / "linear.onnx")
    for words in (
        ("keygen", "-o", "release.pem"),
        ("keygen", "-o", "other.pem"),
        ("build", "linear.onnx", "-o", "other.aotc", *KEY, "--no-cache"),
        ("build", "linear.onnx", "-o", "old.aotc", *KEY, "--dim", "batch=2", "--no-cache"),
        ("pack", "old.aotc", "-o", "old.zip"),
        ("trust", "init", "--name", "shop", "--signer", "release=release.pub"),
    ):
        ended = home.run(*words)
        assert ended.status == 0, ended
    assert home.leftovers() == []
    return home.folder


def verifies(home: Home, *places: str | Path) -> None:
    for place in places:
        report = verify(home.folder / place, key=home.folder / "release.pub")
        assert report.authentic, (place, report)


def whole_or_absent(*names: str) -> Callable[[Home], None]:
    def look(home: Home) -> None:
        verifies(home, *(name for name in names if (home.folder / name).exists()))

    return look


def whole(*names: str) -> Callable[[Home], None]:
    def look(home: Home) -> None:
        verifies(home, *names)

    return look


def keys_are_whole(home: Home) -> None:
    private, public = home.folder / "new.pem", home.folder / "new.pub"
    if private.exists():
        load_private(private)
    if public.exists():
        (trusted,) = load_public(public)
        assert trusted.pem == load_private(private).public_pem


def policy_is_whole(home: Home) -> None:
    ended = home.run("trust", "check", "trust.yaml")
    assert ended.status == 0, ended


def stored_are_whole(home: Home) -> None:
    store = home.folder / "store"
    for entry in store.glob("sha256-*"):
        verifies(home, entry)


def entries_are_whole(home: Home) -> None:
    cache = BuildCache(home.folder / "home" / "cache" / "build")
    for number, entry in enumerate(cache.entries()):
        into = home.folder / "tmp" / str(number)
        into.mkdir()
        assert cache.get(entry.key, into) is not None, entry
        shutil.rmtree(into)
    assert cache.findings() == ()


@dataclass(frozen=True, slots=True)
class Case:
    """A command that is killed, what holds then, and the next of its kind."""

    words: tuple[str, ...]
    holds: Callable[[Home], None]
    again: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    samples: int = 5


APPROVE = (
    *("attest", "old.aotc", "--approve", "--channel", "prod", "--expires", "2999-01-01"),
    *KEY,
)
TRUST_ADD = (
    *("trust", "add", "trust.yaml"),
    *("--id", "other", "--key", "other.pub", "--usage", "approval"),
)
CASES = {
    "build": Case(BUILD, whole_or_absent("out.aotc"), (*BUILD, "--force")),
    "build --force": Case(
        (*BUILD[:3], "old.aotc", *KEY, "--force"),
        whole("old.aotc"),
        (*BUILD[:3], "old.aotc", *KEY, "--force"),
        samples=2,
    ),
    "build from the cache": Case(
        (*BUILD[:3], "old.aotc", *KEY, "--force"),
        whole("old.aotc"),
        (*BUILD[:3], "old.aotc", *KEY, "--force"),
        before=((*BUILD[:3], "1", *KEY),),
    ),
    "pack": Case(
        ("pack", "other.aotc", "-o", "new.zip"),
        whole_or_absent("new.zip"),
        ("pack", "other.aotc", "-o", "new.zip", "--force"),
    ),
    "pack --force": Case(
        ("pack", "other.aotc", "-o", "old.zip", "--force"),
        whole("old.zip"),
        ("pack", "other.aotc", "-o", "old.zip", "--force"),
    ),
    "unpack": Case(
        ("unpack", "old.zip", "-o", "new.aotc"),
        whole_or_absent("new.aotc"),
        ("unpack", "old.zip", "-o", "new.aotc", "--force"),
    ),
    "unpack --force": Case(
        ("unpack", "old.zip", "-o", "other.aotc", "--force"),
        whole("other.aotc"),
        ("unpack", "old.zip", "-o", "other.aotc", "--force"),
    ),
    "keygen": Case(("keygen", "-o", "new.pem"), keys_are_whole, ("keygen", "-o", "newer.pem")),
    "sign": Case(
        ("sign", "old.aotc", "--trust", "release.pub", "--key", "other.pem"),
        whole("old.aotc"),
        ("sign", "old.aotc", "--trust", "release.pub", "--key", "other.pem", "--force"),
    ),
    "attest": Case(APPROVE, whole("old.aotc"), (*APPROVE, "--force")),
    "trust init --force": Case(
        ("trust", "init", "--name", "shop", "--signer", "release=release.pub", "--force"),
        policy_is_whole,
        ("trust", "init", "--name", "shop", "--signer", "release=release.pub", "--force"),
    ),
    "trust add": Case(TRUST_ADD, policy_is_whole, TRUST_ADD),
    "cache prune": Case(
        ("cache", "prune", "--limit", "1"),
        entries_are_whole,
        ("cache", "prune", "--limit", "1"),
        before=(BUILD,),
    ),
    "install": Case(
        ("install", "old.aotc", "--key", "release.pub"),
        stored_are_whole,
        ("install", "old.aotc", "--key", "release.pub"),
    ),
    "store prune": Case(
        ("store", "prune", "--limit", "1"),
        stored_are_whole,
        ("store", "prune", "--limit", "1"),
        before=(("install", "old.aotc", "--key", "release.pub"),),
    ),
}
# Files that stay: of locks.
_ALLOWED = (".lock",)


def without_exchange() -> None:
    """As on a file system that knows no way to rename but the old one."""
    replacing._NOREPLACE = replacing._EXCHANGE = 1 << 20  # type: ignore[misc]


def check(
    name: str,
    start: Path,
    folder: Path,
    *,
    every: bool,
    samples: int | None = None,
    first: Callable[[], None] | None = None,
) -> None:
    case = CASES[name]
    if case.before:
        template = folder / "before"
        shutil.copytree(start, template)
        for words in case.before:
            ended = Home(template).run(*words)
            assert ended.status == 0, ended
        start = template
    kills = 0
    killed = sweep(
        start,
        folder / "home",
        case.words,
        every=every,
        samples=samples or case.samples,
        first=first,
    )
    for number, home in killed:
        kills += 1
        try:
            if first is not None:
                # What was moved aside is put back by any command that writes in that folder.
                assert home.run("pack", "old.aotc", "-o", "tidy.zip").status == 0
            case.holds(home)
            again = home.run(*case.again, first=first)
            assert again.status == 0, again
            assert home.leftovers(_ALLOWED) == []
            case.holds(home)
        except AssertionError as error:
            raise AssertionError(f"killed at step {number} of {case.words}") from error
    assert kills


# A build takes seconds.
_BUILDS = ("build", "build --force", "build from the cache")
# They compile anew each time; all other steps are those of a build from the cache.
_COSTLY = ("build", "build --force")
_REPLACING = ("build from the cache", "unpack --force", "pack --force", "unpack", "pack", "keygen")


@pytest.mark.parametrize("name", [*(each for each in CASES if each not in _BUILDS)])
def test_killed_at_some_steps(name: str, start: Path, tmp_path: Path) -> None:
    check(name, start, tmp_path, every=False)


def test_killed_where_no_names_are_exchanged(start: Path, tmp_path: Path) -> None:
    check("unpack --force", start, tmp_path, every=False, first=without_exchange)


def test_a_build_that_is_killed_at_some_steps(start: Path, tmp_path: Path) -> None:
    check("build --force", start, tmp_path, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in CASES if each not in _COSTLY])
def test_killed_at_every_step(name: str, start: Path, tmp_path: Path) -> None:
    check(name, start, tmp_path, every=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", _COSTLY)
def test_killed_at_many_steps(name: str, start: Path, tmp_path: Path) -> None:
    check(name, start, tmp_path, every=False, samples=40)


@pytest.mark.slow
@pytest.mark.parametrize("name", _REPLACING)
def test_killed_at_every_step_where_no_names_are_exchanged(
    name: str, start: Path, tmp_path: Path
) -> None:
    check(name, start, tmp_path, every=True, first=without_exchange)
