"""No command ends as if it were our bug in a place where the operating system refuses.

Every command of the registry has a row in `broken_places.ROWS` and runs in every place here.
"""

from __future__ import annotations

import codecs
import json
import os
import pkgutil
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from broken_places import (
    OWNER,
    ROWS,
    STRANGER,
    CannotMakeError,
    Result,
    Scene,
    become,
    bind,
    command_names,
    fill,
    limit,
    own,
    own_mounts,
    read_only,
    stdout_to,
    tiny,
    walk,
)
from made_models import linear, save

import aotc

# They start other processes, or time something.
HEAVY = ("build", "bench", "run", "check-models", "install")
# What removes may find nothing, and needs no room.
WRITES = tuple(
    name for name, row in ROWS.items() if "{out}" in row and not name.startswith("store ")
)
TOO_LONG = "n" * 256


@pytest.fixture(scope="module")
def given() -> Iterator[tuple[Path, str]]:
    """All that any command reads, made by the commands themselves, and readable to anybody."""
    # Another user may not be able to read what the interpreter would import only then.
    for name in ("ascii", "latin-1", "utf-16be", "idna"):
        codecs.lookup(name)
    for each in pkgutil.walk_packages(aotc.__path__, "aotc."):
        if not each.name.startswith(("aotc.backends.", "aotc.engine.")):
            import_module(each.name)
    base = Path(tempfile.mkdtemp(prefix="aotc-places-"))
    base.chmod(0o755)
    made = base / "given"
    made.mkdir()
    (made / "models").mkdir()
    save(linear(), made / "model.onnx")
    save(linear(), made / "models" / "model.onnx")
    (made / "shapes.jsonl").write_text('{"batch": 1}\n{"batch": 3}\n')

    def make(scene: Scene) -> None:
        scene.read = scene.written = made
        scene.environment["XDG_CONFIG_HOME"] = str(made)

    rows = {
        "keygen": "-o {out}/key.pem",
        "keygen ": "-o {out}/other.pem",
        "build": "{in}/model.onnx -o {out}/made.aotc --key {in}/key.pem",
        "pack": "{in}/made.aotc -o {out}/made.zip",
        "install": "{in}/made.aotc --key {in}/key.pub --store {out}/store",
        "trust init": "-o {out}/trust.yaml --name shop --signer ci={in}/key.pub",
        "trust root": "-o {out}/root.yaml --key {in}/key.pub --threshold 1",
        "profile show": "edge",
        "target show": "host",
        "profile learn": "{in}/shapes.jsonl --model {in}/model.onnx --seconds 1 "
        "--save-costs {out}/costs.json",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broken_places.ROWS", rows)
        results = walk(made, base / "making", "", make, list(rows))
    for each in results:
        assert each.status == 0, each
    said = {each.name: json.loads(each.stdout) for each in results}
    # JSON is YAML as well.
    for name in ("profile", "target"):
        shown = said[f"{name} show"]
        (made / f"{name}.yaml").write_text(json.dumps(shown.get(name, shown)))
    shutil.copytree(made / "store", made / "other-store")
    (made / "key.pem").chmod(0o644)
    (made / "other.pem").chmod(0o644)
    yield made, said["build"]["artifact_id"]
    for folder, _, _ in os.walk(base):
        Path(folder).chmod(0o700)
    shutil.rmtree(base)


# -- places; what is in the second column must fail there, the rest may
def sound(scene: Scene) -> None:
    """Where nothing is wrong: the rows themselves are right."""


def read_only_folder(scene: Scene) -> None:
    own_mounts()
    scene.read = scene.written
    read_only(scene.written)


def read_only_home(scene: Scene) -> None:
    own_mounts()
    read_only(scene.home)


def full_disk(scene: Scene) -> None:
    own_mounts()
    for store in ("store", "other-store"):
        shutil.rmtree(scene.written / store)  # To remove from them would make room.
    tiny(scene.written, "1m")
    fill(scene.written)


def small_disk(scene: Scene) -> None:
    own_mounts()
    scene.written = scene.here / "small"
    scene.written.mkdir()
    tiny(scene.written, "4k")


def full_home(scene: Scene) -> None:
    own_mounts()
    tiny(scene.home, "64k")
    fill(scene.home)


def no_files_may_grow(scene: Scene) -> None:
    scene.before.append(limit(resource.RLIMIT_FSIZE, 0))
    scene.environment["TMPDIR"] = str(scene.here)


def small_files_only(scene: Scene) -> None:
    scene.before.append(limit(resource.RLIMIT_FSIZE, 512))


def few_open_files(scene: Scene) -> None:
    scene.before.append(limit(resource.RLIMIT_NOFILE, 8))


def too_long_to_write(scene: Scene) -> None:
    scene.written = scene.here / TOO_LONG


def too_long_to_read(scene: Scene) -> None:
    scene.read = scene.written = scene.here / TOO_LONG


def too_deep(scene: Scene) -> None:
    scene.written = scene.here / "/".join(["deep"] * 1000)


def longest_names(scene: Scene) -> None:
    """Names that a file system takes; what is derived of them may be too long."""
    scene.longest = True


def links_in_a_circle(scene: Scene) -> None:
    circle = scene.here / "circle"
    circle.symlink_to("circle")
    scene.read = scene.written = circle


def output_circle(scene: Scene) -> None:
    circle = scene.here / "circle"
    circle.symlink_to("circle")
    scene.written = circle


def below_a_file(scene: Scene) -> None:
    scene.read = scene.written = scene.given / "model.onnx"


def output_below_a_file(scene: Scene) -> None:
    scene.written = scene.given / "model.onnx"


def folders_for_files(scene: Scene) -> None:
    """Every file that is read is a folder."""
    scene.read = scene.here / "folders"
    for each in scene.given.iterdir():
        (scene.read / each.name).mkdir(parents=True)


def files_that_fail(scene: Scene) -> None:
    """Reading fails, as it does from a bad disk."""
    scene.read = scene.here / "failing"
    scene.read.mkdir()
    for each in scene.given.iterdir():
        (scene.read / each.name).symlink_to("/proc/self/mem")


def nul_bytes(scene: Scene) -> None:
    scene.read = scene.written = scene.here / "a\0b"


def output_nul_bytes(scene: Scene) -> None:
    scene.written = scene.here / "a\0b"


def half_characters(scene: Scene) -> None:
    scene.read = scene.written = scene.here / "a\ud800b"


def bytes_of_no_encoding(scene: Scene) -> None:
    """A name that is no UTF-8 is one all the same."""
    folder = scene.here / os.fsdecode(b"latin-\xff")
    scene.written.rename(folder)
    scene.read = scene.written = folder


def folder_is_gone(scene: Scene) -> None:
    gone = scene.here / "gone"
    gone.mkdir()
    scene.before += [lambda: os.chdir(gone), gone.rmdir]


def relative_to_a_folder_that_is_gone(scene: Scene) -> None:
    folder_is_gone(scene)
    scene.before.append(lambda: scene.here.joinpath("gone").mkdir())
    scene.before.append(lambda: scene.here.joinpath("gone").rmdir())
    scene.read = scene.written = Path()


def gone_again(scene: Scene) -> None:
    """Each command's own current folder is gone."""
    folder_is_gone(scene)
    scene.before.insert(0, lambda: scene.here.joinpath("gone").mkdir(exist_ok=True))


def no_temporary_folder(scene: Scene) -> None:
    scene.environment["TMPDIR"] = str(scene.here / "missing")


def read_only_temporary_folders(scene: Scene) -> None:
    own_mounts()
    scene.environment["TMPDIR"] = str(scene.here / "missing")
    for folder in ("/tmp", "/var/tmp"):  # noqa: S108 - they are what is broken
        read_only(Path(folder))


def home_of_another(scene: Scene) -> None:
    own(scene.home, OWNER, 0o700)
    scene.written = scene.here / "open"
    shutil.copytree(scene.given, scene.written)
    for folder, _, names in os.walk(scene.written):
        os.chown(folder, STRANGER, STRANGER)
        for name in names:
            os.chown(Path(folder, name), STRANGER, STRANGER)
    scene.before.append(become(STRANGER))


def folder_of_another(scene: Scene) -> None:
    """What is read and written is somebody else's, and closed."""
    home_of_another(scene)
    own(scene.home, STRANGER, 0o700)
    closed = scene.copy("closed")
    own(closed, OWNER, 0o700)
    scene.read = scene.written = closed


def output_folder_of_another(scene: Scene) -> None:
    folder_of_another(scene)
    scene.read = scene.given
    own(scene.written, OWNER, 0o755)


def home_is_a_file(scene: Scene) -> None:
    scene.home = scene.given / "model.onnx"


def home_is_too_long(scene: Scene) -> None:
    scene.home = scene.here / TOO_LONG


def home_is_a_circle(scene: Scene) -> None:
    scene.home = scene.here / "circle"
    scene.home.symlink_to("circle")


def full_stdout(scene: Scene) -> None:
    scene.before.append(stdout_to("/dev/full"))


def full_stdout_in_words(scene: Scene) -> None:
    scene.json = False
    full_stdout(scene)


def stdout_of_limited_size(scene: Scene) -> None:
    scene.before.append(limit(resource.RLIMIT_FSIZE, 16))


def mounted_outputs(scene: Scene) -> None:
    """Every file and folder that is changed or written over is a mount point."""
    own_mounts()
    for each in scene.written.iterdir():
        bind(each)


ALL = tuple(ROWS)
READS = tuple(
    name
    for name, row in ROWS.items()
    if ("{in}" in row or "{out}" in row) and not name.startswith("store ")
)
PLACES: tuple[tuple[Callable[[Scene], None], tuple[str, ...]], ...] = (
    (sound, ()),
    (read_only_folder, WRITES),
    (read_only_home, ()),
    (full_disk, WRITES),
    (small_disk, ()),
    (full_home, ()),
    (no_files_may_grow, WRITES),
    (small_files_only, ()),
    (few_open_files, ()),
    (too_long_to_write, WRITES),
    (too_long_to_read, READS),
    (too_deep, WRITES),
    (longest_names, ()),
    (links_in_a_circle, READS),
    (output_circle, WRITES),
    (below_a_file, READS),
    (output_below_a_file, WRITES),
    (folders_for_files, ()),
    (files_that_fail, ()),
    (nul_bytes, READS),
    (output_nul_bytes, WRITES),
    (half_characters, READS),
    (bytes_of_no_encoding, ()),
    (gone_again, ()),
    (no_temporary_folder, ()),
    (home_of_another, ()),
    (folder_of_another, READS),
    (output_folder_of_another, WRITES),
    (home_is_a_file, ()),
    (home_is_too_long, ()),
    (home_is_a_circle, ()),
    (full_stdout, ALL),
    (full_stdout_in_words, ALL),
    (mounted_outputs, ()),
)


def test_every_command_has_a_row() -> None:
    assert sorted(ROWS) == sorted(command_names())


def wrong(each: Result, must_fail: bool) -> str:
    """What is wrong with how a command ended; empty where it ended as it should."""
    if "Traceback" in each.stdout + each.stderr:
        return "a traceback"
    if each.status == 0:
        return "it should have failed" if must_fail else ""
    if each.status not in (1, 2, 3):
        return f"exit status {each.status}"
    if not each.code().startswith("AOTC-") and each.name != "doctor":
        return "no code"
    return ""


@pytest.mark.parametrize("make", [make for make, _ in PLACES], ids=lambda make: make.__name__)
def test_commands_end_well_in(make: Callable[[Scene], None], given: tuple[Path, str]) -> None:
    made, artifact_id = given
    must = dict(PLACES)[make]
    here = made.parent / make.__name__
    try:
        results = walk(made, here, artifact_id, make, list(ROWS))
    except CannotMakeError as error:
        pytest.skip(f"no such place can be made here: {error}")
    if "AOTC_DUMP" in os.environ:
        for each in results:
            with open(os.environ["AOTC_DUMP"], "a") as f:
                doc = json.loads(each.stdout) if each.stdout.startswith("{") else {}
                e = (doc.get("errors") or doc.get("refusals") or [{}])[0]
                f.write(f"{make.__name__:28} {each.name:15} {each.status} {e.get('code','')} {e.get('what','')!r} @{e.get('where','')[-60:]!r} F:{e.get('found','')!r} M:{e.get('mend','')!r} ERR:{each.stderr[:300]!r}\n")
    found = [f"{why}: {each}" for each in results if (why := wrong(each, each.name in must))]
    if make is sound:
        found += [f"it should be well: {each}" for each in results if each.status]
    assert not found, "\n".join(found)
