"""The environment that an artifact records, made of real wheels, and what it is not made of."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from artifact_builder import build_artifact
from made_models import linear, save
from other_runtimes import made_wheel

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.pipeline.reuse import source_digest, sources_digest
from aotc.spec.answers import SameCalls
from aotc.spec.codec import decode
from aotc.spec.evidence import Comparison, OutputError
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.profile import Profile
from aotc.spec.providers import ARENA_LIMIT, CAPTURING
from aotc.spec.target import CustomOps, Target
from aotc.tools.reproduce.rebuilding import _are_same, _rebuilt
from aotc.tools.reproduce.recorded import (
    MEASURED,
    GivenAgain,
    RecordedBuild,
    RecordedPackage,
    foresee,
)
from aotc.tools.reproduce.recorded_environment import MadeEnvironment, environment_of, started
from aotc.trust import key_files
from aotc.trust.container import FolderContainer
from aotc.trust.key_loading import load_private
from aotc.trust.provenance import contents_digest

_WANTED: dict[Literal["pip", "uv"] | None, str] = {
    None: "pip in this environment, or uv among the programs",
    "pip": "pip in this environment",
    "uv": "uv among the programs",
}
CODE = "ANSWER = 42\n"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip finds."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(wheels)),
        ("PIP_CONFIG_FILE", os.devnull),
        ("XDG_CACHE_HOME", str(tmp_path / "cache")),
    ):
        monkeypatch.setenv(name, value)
    return wheels


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("artifact")
    private, _ = key_files.generate(folder / "key.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private))
    return decode(Manifest, strict_json((artifact / "payload" / "aotc.json").read_bytes()))


def contents_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith("RECORD"))
        return contents_digest(archive.read(record).decode())


@pytest.fixture
def recorded(manifest: Manifest) -> Callable[..., RecordedBuild]:
    def make(*packages: RecordedPackage, **changes: Any) -> RecordedBuild:
        return RecordedBuild(
            artifact_id="0" * 64,
            manifest=manifest,
            target=Target(schema="aotc.target/1", name="host"),
            python=platform.python_version(),
            implementation=platform.python_implementation().lower(),
            aotc="0.1.0",
            aotc_sha256=source_digest(),
            aotc_form="checkout",
            packages=packages,
            **changes,
        )

    return make


def refused(code: str, call: Callable[[], object]) -> AotcError:
    with pytest.raises(AotcError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def kept(tmp_path: Path) -> list[Path]:
    root = tmp_path / "cache" / "aotc" / "environments"
    return [path for path in root.glob("reproduce-*") if path.is_dir()]


def made(build: RecordedBuild, **options: Any) -> MadeEnvironment:
    return environment_of(build, anew=True, installer="pip", **options)


def test_it_is_made_of_wheels_with_their_digests(
    offline: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    """And once made it is taken again, after all of its files were compared."""
    wheel = made_wheel(offline, "telluride", code=CODE)
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    first = made(recorded(package))
    (used,) = first.about.packages
    assert (used.used, used.same) == ("1.32.99", True)
    assert used.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    root = Path(first.python).parents[1]
    lock = (root / "requirements.lock").read_text()
    assert lock == f"telluride==1.32.99 --hash=sha256:{used.sha256}\n"
    assert first.about.lock_sha256 == hashlib.sha256(lock.encode()).hexdigest()
    assert first.about.aotc_from == "this aotc, whose sources are equal"
    assert not list(root.rglob("*.pyc"))
    # It has nothing of this environment, as aotc says there.
    status, _, errors = started(first, ["--version"], root)
    assert status != 0
    assert "No module named 'typer'" in errors
    again = made(recorded(package))
    assert again.about == replace(first.about, reused=True)
    module = next(root.glob("lib/*/site-packages/telluride/__init__.py"))
    module.write_text("ANSWER = 41\n")
    error = refused("AOTC-I236", lambda: made(recorded(package)))
    assert error.found == "telluride/__init__.py is another file"
    assert not root.exists()


def test_uv_makes_it_of_an_index(
    offline: Path, recorded: Callable[..., RecordedBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index states digests, of which uv makes the lock; a folder of wheels has none for it."""
    programs = Path(sys.executable).parent
    if not (programs / "uv").is_file():
        pytest.skip("uv is not installed in this environment")
    wheel = made_wheel(offline, "telluride", code=CODE)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    folder = offline / "simple" / "telluride"
    folder.mkdir(parents=True)
    link = f'<a href="../../{wheel.name}#sha256={digest}">{wheel.name}</a>'
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("UV_DEFAULT_INDEX", (offline / "simple").as_uri())
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    found = environment_of(recorded(package), anew=True, installer="uv").about
    assert found.installer.startswith("uv ")
    assert [(each.used, each.same) for each in found.packages] == [("1.32.99", True)]
    gone = replace(package, version="1.32.98")
    error = refused("AOTC-I231", lambda: environment_of(recorded(gone), anew=True, installer="uv"))
    assert error.where == "telluride==1.32.98"


def test_a_wheel_that_is_gone(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    package = RecordedPackage(name="telluride", version="1.32.99")
    error = refused("AOTC-I231", lambda: made(recorded(package)))
    assert error.where == "telluride==1.32.99"
    assert "No matching distribution found" in error.found
    assert kept(tmp_path) == []
    words = RecordedPackage(name="--pre", version="1")
    refused("AOTC-I231", lambda: made(recorded(words)))


@pytest.mark.slow
def test_a_package_without_a_recorded_digest_is_told(
    offline: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    made_wheel(offline, "telluride", code=CODE)
    found = made(recorded(RecordedPackage(name="telluride", version="1.32.99")))
    assert [each.what for each in found.lacking] == ["package telluride"]
    assert [each.same for each in found.about.packages] == [None]


def test_other_files_under_the_recorded_version(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    wheel = made_wheel(offline, "telluride", code=CODE)
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    made_wheel(offline, "telluride", code="ANSWER = 41\n")
    error = refused("AOTC-I236", lambda: made(recorded(package)))
    assert error.where == "telluride==1.32.99"
    assert error.expected == f"files of digest {package.contents}"
    assert kept(tmp_path) == []


def test_a_file_that_the_wheel_does_not_list(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    """A path file would run at the start of Python."""
    wheel = made_wheel(offline, "telluride", code=CODE)
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("telluride.pth", "import telluride\n")
        archive.writestr("sitecustomize.pyc", b"no code")
    refused("AOTC-I236", lambda: made(recorded(package)))
    assert kept(tmp_path) == []


@pytest.mark.slow
def test_a_wheel_that_replaces_the_interpreter(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    """Files beside the packages are in no digest, as scripts of installers are not."""
    wheel = made_wheel(offline, "telluride", code=CODE)
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    data = "telluride-1.32.99.data/data"
    made_wheel(offline, "telluride", code=CODE, further={f"{data}/bin/python": "#!/bin/true\n"})
    error = refused("AOTC-I236", lambda: made(recorded(package)))
    assert error.where == "bin/python"
    assert kept(tmp_path) == []
    # Python looks for it beside the interpreter first.
    made_wheel(offline, "telluride", code=CODE, further={f"{data}/bin/pyvenv.cfg": "home = /x\n"})
    root = Path(made(recorded(package)).python).parents[1]
    assert not (root / "bin" / "pyvenv.cfg").exists()
    assert (root / "pyvenv.cfg").is_file()


@pytest.mark.slow
def test_nothing_runs_before_it_was_compared(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    """Nor when a release of aotc is installed next, by an installer that starts Python."""
    wheel = made_wheel(offline, "telluride", code=CODE)
    package = RecordedPackage(name="telluride", version="1.32.99", contents=contents_of(wheel))
    ran = tmp_path / "ran"
    path_file = {"telluride.pth": f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"}
    made_wheel(offline, "telluride", code=CODE, further=path_file)
    release = replace(recorded(package), aotc_sha256="f" * 64, aotc_form="release", aotc="1.32.99")
    made_wheel(offline, "aotc")
    error = refused("AOTC-I236", lambda: made(release))
    assert error.where == "telluride==1.32.99"
    assert not ran.exists()


@pytest.mark.slow
@pytest.mark.parametrize("further", ["aotc.pth", "aotc/spec/versions.abi3.so"])
def test_a_release_of_aotc_has_its_own_sources_alone(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild], further: str
) -> None:
    """The digest of its sources says nothing of other files."""
    versions = {"aotc/spec/versions.py": 'VERSION = "1.32.99"\nMANIFEST_SCHEMA = "m"\n'}
    with zipfile.ZipFile(made_wheel(tmp_path, "aotc", further=versions)) as archive:
        archive.extractall(tmp_path / "sources")
    digest = sources_digest(tmp_path / "sources" / "aotc", "1.32.99", "m")
    release = replace(recorded(), aotc_sha256=digest, aotc_form="release", aotc="1.32.99")
    made_wheel(offline, "aotc", further={**versions, further: "# no code\n"})
    error = refused("AOTC-I236", lambda: made(release))
    assert error.where == further
    assert kept(tmp_path) == []


def test_what_is_cut_off_is_removed(
    offline: Path,
    tmp_path: Path,
    recorded: Callable[..., RecordedBuild],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as by Ctrl-C."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aotc.tools.reproduce.recorded_environment._resolved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(recorded(RecordedPackage(name="telluride", version="1.32.99")))
    assert kept(tmp_path) == []


def test_an_index_that_cannot_be_reached(
    offline: Path, recorded: Callable[..., RecordedBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip says in the end that it found no such version, which is not why."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    package = RecordedPackage(name="telluride", version="1.32.99")
    error = refused("AOTC-I191", lambda: made(recorded(package)))
    assert "refused" in error.found


def test_a_python_that_is_not_here(
    offline: Path, recorded: Callable[..., RecordedBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = replace(recorded(), python="3.11.99")
    error = refused("AOTC-I237", lambda: made(build))
    assert error.expected == f"{build.implementation} 3.11.99"
    here = environment_of(build, here=True)
    assert [each.what for each in here.lacking] == ["Python"]


def test_another_aotc(
    offline: Path, tmp_path: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    """A checkout has no release; and one that is named must be the recorded one."""
    build = replace(recorded(), aotc_sha256="f" * 64)
    error = refused("AOTC-I238", lambda: made(build))
    assert error.expected == f"a checkout of aotc 0.1.0 with sources {'f' * 12}"
    (tmp_path / "other" / "aotc" / "spec").mkdir(parents=True)
    (tmp_path / "other" / "aotc" / "spec" / "versions.py").write_text('VERSION = "0.0.9"\n')
    error = refused("AOTC-I238", lambda: made(build, aotc=tmp_path / "other"))
    assert error.found.startswith("aotc 0.0.9 with sources ")
    error = refused("AOTC-I238", lambda: made(build, aotc=tmp_path))
    assert error.found == f"none in {tmp_path.name}"


@pytest.mark.slow
def test_a_release_of_aotc_that_is_gone(
    offline: Path, recorded: Callable[..., RecordedBuild]
) -> None:
    released = replace(recorded(), aotc_sha256="f" * 64, aotc_form="release")
    error = refused("AOTC-I231", lambda: made(released))
    assert error.where == "aotc==0.1.0"


def test_nothing_to_make_it_with(
    recorded: Callable[..., RecordedBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aotc.tools.reproduce.recorded_environment.find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    package = RecordedPackage(name="telluride", version="1.32.99")
    for installer, wanted in _WANTED.items():
        found = partial(environment_of, recorded(package), installer=installer)
        error = refused("AOTC-I191", found)
        assert error.what == "there is nothing to make the recorded environment with"
        assert error.expected == wanted


def test_what_this_environment_lacks(recorded: Callable[..., RecordedBuild]) -> None:
    build = recorded(
        RecordedPackage(name="telluride", version="1.32.99"),
        RecordedPackage(name="numpy", version="0.0.1"),
    )
    found = environment_of(replace(build, aotc_sha256="f" * 64), here=True)
    assert [each.what for each in found.lacking] == ["aotc", "package telluride", "package numpy"]
    assert [each.same for each in found.about.packages] == [None, None]


# What a host cannot make again.


def test_another_platform(recorded: Callable[..., RecordedBuild]) -> None:
    host = {"os": "linux", "architecture": "riscv64", "isa": ""}
    error = refused("AOTC-I235", lambda: foresee(recorded(host=host)))
    assert error.expected == "linux riscv64"


def test_variants_for_other_cpus_alone(recorded: Callable[..., RecordedBuild]) -> None:
    """`isa: host` of the profile says which."""
    here = probe(gpus=False)
    host = {"os": here.os, "architecture": here.architecture, "isa": " ".join(here.isa or ())}
    build = recorded(host=host)
    build = replace(build, target=replace(here, isa=("avx9",)))
    profile = Profile(schema="aotc.profile/1", name="p")
    stated = [
        {"name": each.name, "isa": "host" if each.name == "native" else "baseline"}
        for each in build.manifest.variants
    ]
    written = {"schema": profile.schema, "name": "p", "target": "host", "variants": stated}
    build = replace(build, manifest=replace(build.manifest, profile=written))
    found = foresee(build)
    assert [each.what for each in found.rows] == [MEASURED.what, "variant native"]
    assert found.variants == {"native"}
    only = tuple(each for each in build.manifest.variants if each.name == "native")
    error = refused(
        "AOTC-I235",
        lambda: foresee(replace(build, manifest=replace(build.manifest, variants=only))),
    )
    assert (error.where, error.expected) == ("native", "avx9")


@pytest.mark.parametrize(("stated", "told"), [("plan", True), (1 << 30, False)])
def test_a_limit_that_was_planned_on_a_gpu_is_told(
    recorded: Callable[..., RecordedBuild], stated: object, *, told: bool
) -> None:
    here = probe(gpus=False)
    host = {"os": here.os, "architecture": here.architecture, "isa": " ".join(here.isa or ())}
    build = replace(recorded(host=host), target=here)
    written = {"schema": "aotc.profile/1", "name": "p", "cuda": {"memory": {"limit_bytes": stated}}}
    first, *others = build.manifest.variants
    options = {CAPTURING.ort_name: {ARENA_LIMIT: str(1 << 30)}}
    limited = replace(first, session=replace(first.session, provider_options=options))
    manifest = replace(build.manifest, profile=written, variants=(limited, *others))
    found = [each.what for each in foresee(replace(build, manifest=manifest)).rows]
    assert [each for each in found if "limit" in each] == (
        [f"the arena's limit of variant {first.name}"] if told else []
    )


def test_a_library_out_of_the_artifact_is_told(recorded: Callable[..., RecordedBuild]) -> None:
    """That it is the same says nothing, as it is the artifact's own."""
    here = probe(gpus=False)
    host = {"os": here.os, "architecture": here.architecture, "isa": " ".join(here.isa or ())}
    build = replace(recorded(host=host), target=here)
    library = CustomOps(name="ops.so", sha256="0" * 64, size=1, path="custom_ops/ops.so")
    variants = tuple(
        replace(each, requirements=replace(each.requirements, custom_ops=(library,)))
        for each in build.manifest.variants
    )
    build = replace(build, manifest=replace(build.manifest, variants=variants))
    assert "library of custom operators ops.so" in [each.what for each in foresee(build).rows]


def test_answers_that_were_not_compared_are_not_the_same() -> None:
    assert not _are_same(SameCalls(how="ran"))
    error = OutputError(output="o", max_abs=0.0, max_rel=0.0)
    calls = (Comparison(fixture="f", sizes={}, outputs=(error,)),)
    assert _are_same(SameCalls(how="ran", calls=calls))
    assert not _are_same(SameCalls(how="ran", calls=calls, left_out=("g: refused",)))


def test_a_build_that_is_refused(recorded: Callable[..., RecordedBuild], tmp_path: Path) -> None:
    """Its own words are told; here a profile's budget, which the first build cannot have had."""
    model = save(linear(), tmp_path / "linear.onnx")
    variants = [{"name": "portable", "isa": "baseline"}]
    profile = {"schema": "aotc.profile/1", "name": "p", "target": "host", "variants": variants}
    given = GivenAgain(model=model, profile={**profile, "budgets": {"artifact_bytes": 1}})
    here = environment_of(recorded(), here=True)
    with FolderContainer(tmp_path) as container:
        error = refused(
            "AOTC-I239",
            lambda: _rebuilt(recorded(), container, given, here, tmp_path, trust_source=False),
        )
    assert error.found.startswith("AOTC-M0")
