"""What is pushed is what is pulled: the id and every byte, from a real registry, in both forms.

And the digests of what is pushed depend on the artifact alone.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from registries import Registry, docker_registry
from repository import TOOLCHAIN

import aotc
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

FORMS = ("modelpack", "image")
# Around the limit of what is put together with other small files, and of a chunk that is signed.
SIZES = (0, 65_536 - 81, 65_536 - 80, 100_001, (1 << 24) + 1)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as opened:
        yield opened


def _round_trip(registry: Registry, folder: Path, number: int, padding: int) -> None:
    private, public = generate(folder / "release.pem")
    artifact = build_artifact(folder / "a.aotc", load_private(private), padding=padding)
    form = FORMS[number % 2]
    reference = f"oci://{registry.host}/round/trips:{number}"
    pushed = aotc.push(artifact, reference, form=form)
    how = number % 3
    if how == 0:
        pulled = aotc.pull(reference, key=public, store=folder / "store")
        (place,) = (folder / "store").glob("sha256-*")
        assert contents_of(place / "payload") == contents_of(artifact / "payload")
    elif how == 1:
        pulled = aotc.pull(reference, key=public, output=folder / "again.aotc")
        assert contents_of(folder / "again.aotc") == contents_of(artifact)
    else:
        # By its digest, into one file.
        by_digest = f"oci://{registry.host}/round/trips@{pushed.digest}"
        pulled = aotc.pull(by_digest, key=public, output=folder / "again.aotc.zip")
        aotc_unpack(folder / "again.aotc.zip", folder / "unpacked.aotc")
        assert contents_of(folder / "unpacked.aotc") == contents_of(artifact)
    ids = {pushed.artifact_id, pulled.artifact_id, aotc.verify(artifact, key=public).artifact_id}
    assert len(ids) == 1


def aotc_unpack(path: Path, output: Path) -> None:
    from aotc.trust.packing import unpack

    unpack(path, output)


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_round_trip(registry: Registry, tmp_path: Path, number: int) -> None:
    _round_trip(registry, tmp_path, number, SIZES[number])


@pytest.mark.slow
def test_a_hundred_round_trips(registry: Registry, tmp_path: Path) -> None:
    drawn = random.Random(45)
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        _round_trip(registry, folder, number, drawn.randrange(2_000_000))


def test_the_digest_is_that_of_the_artifact_alone(registry: Registry, tmp_path: Path) -> None:
    """From other folders, homes, times, modes, orders, umasks, zones and seeds of hashes."""
    private, _ = generate(tmp_path / "release.pem")
    first = build_artifact(tmp_path / "a.aotc", load_private(private), padding=100_000)
    second = tmp_path / "other" / "named.aotc"
    for path in sorted(first.rglob("*"), reverse=True):
        if path.is_file():
            target = second / path.relative_to(first)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (0, 1_000_000_000))
            target.chmod(0o400)
    code = (
        "import aotc, sys, os; os.umask(int(sys.argv[3]))\n"
        "for form in sys.argv[4:]:\n"
        "    print(aotc.push(sys.argv[1], sys.argv[2] + form, form=form).digest)"
    )
    found = []
    sides = ((first, "UTC", 0o022, "C"), (second, "Asia/Tokyo", 0o077, "C.UTF-8"))
    for number, (artifact, zone, mask, locale) in enumerate(sides):
        home = tmp_path / f"home-{number}"
        home.mkdir()
        repository = f"oci://{registry.host}/digests-{number}:"
        ended = subprocess.run(
            [sys.executable, "-c", code, artifact, repository, str(mask), *FORMS],
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(TOOLCHAIN),
                "PYTHONHASHSEED": str(number),
                "HOME": str(home),
                "TZ": zone,
                "LC_ALL": locale,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        found.append(ended.stdout.split())
    assert len(set(found[0])) == 2
    assert found[0] == found[1]
