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
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from broken_places import (
    ELSEWHERE,
    OWNER,
    ROWS,
    STRANGER,
    CannotMakeError,
    Result,
    Scene,
    become,
    bind,
    fill,
    limit,
    own,
    own_mounts,
    read_only,
    stdout_to,
    tiny,
    walk,
)
from made_fleets import cells_of, report_of
from made_models import linear, save
from referrers_registry import referrers_registry

import aotc
from aotc.cli.commands import every_command
from aotc.spec.codec import encode
from aotc.spec.json import document
from aotc.trust.attesting import approve
from aotc.trust.signers import load_signer

TOO_LONG = "n" * 256
# Variables that commands read and may take any bytes of.
FOREIGN = (
    *("GITHUB_WORKSPACE", "GITHUB_REF_NAME", "GITHUB_ACTIONS", "CI_PROJECT_DIR", "CI_COMMIT_TAG"),
    *("CI_COMMIT_BRANCH", "SIGSTORE_ID_TOKEN", "AOTC_KEY_PASSWORD", "CUDA_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "ORT_THING", "OMP_THING", "FORCE_COLOR", "TERM", "LANG", "NO_COLOR"),
)


@pytest.fixture(scope="module")
def given() -> Iterator[tuple[Path, str]]:
    """All that any command reads, made by the commands themselves, and readable to anybody."""
    # Another user may not be able to read what the interpreter would import only then.
    for name in ("ascii", "latin-1", "utf-16be", "idna"):
        codecs.lookup(name)
    for each in pkgutil.walk_packages(aotc.__path__, "aotc."):
        if not each.name.startswith("aotc.providers."):
            import_module(each.name)
    import_module("onnxruntime")
    # In memory where there is such a place: a thousand commands wait long for a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="aotc-places-", dir=memory))
    base.chmod(0o755)
    made = base / "given"
    made.mkdir()
    (made / "models").mkdir()
    save(linear(), made / "model.onnx")
    save(linear(), made / "models" / "model.onnx")
    fleet = {"schema": "aotc.fleet/1", "name": "shop", "models": ["models/*"]}
    (made / "fleet.yaml").write_text(json.dumps({**fleet, "output": "new-fleet/{model}.aotc"}))
    (made / "shard.json").write_text(document(encode(report_of(cells_of()))))
    (made / "shapes.jsonl").write_text('{"batch": 1}\n{"batch": 3}\n')

    def make(scene: Scene) -> None:
        scene.read = scene.written = made
        scene.environment["XDG_CONFIG_HOME"] = str(made)

    rows = {
        "keygen": "-o {out}/key.pem",
        "keygen ": "-o {out}/other.pem",
        "build": "{in}/model.onnx -o {out}/made.aotc --key {in}/key.pem",
        "build ": "{in}/model.onnx -o {out}/again.aotc --key {in}/key.pem",
        "pack": "{in}/made.aotc -o {out}/made.zip",
        "install": "{in}/made.aotc --key {in}/key.pub --store {out}/store",
        "trust init": "-o {out}/trust.yaml --name shop --signer ci={in}/key.pub",
        "trust root": "-o {out}/root.yaml --key {in}/key.pub --threshold 1 --policy shop",
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
    with referrers_registry() as registry, pytest.MonkeyPatch.context() as patched:
        patched.setattr("broken_places.REGISTRY", registry.host)
        aotc.push(made / "made.aotc", f"oci://{registry.host}/shop/made:1")
        yield made, said["build"]["artifact_id"]
    # Python removes no folders that are as deep as one here.
    subprocess.run(["chmod", "-R", "u+rwx", base], check=True)
    subprocess.run(["rm", "-rf", base], check=True)


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


def line_breaks(scene: Scene) -> None:
    """A name may hold what would forge a line, steer a terminal, or end a line for others."""
    folder = scene.here / "a\nb\r\x1b[31m\u2028\u202e"
    scene.written.rename(folder)
    scene.read = scene.written = folder


def names_like_options(scene: Scene) -> None:
    folder = scene.here / "-h"
    scene.written.rename(folder)
    scene.before.append(lambda: os.chdir(scene.here))
    scene.read = scene.written = Path("./-h")


def foreign_variables(scene: Scene) -> None:
    """Bytes of no encoding, and a text that is no number, in what a job of a CI has set."""
    odd = dict.fromkeys(FOREIGN, os.fsdecode(b"\xff"))
    scene.environment.update(odd, COLUMNS="\u00b2", LINES="9" * 5000, AOTC_HEARTBEAT="nan")


def current_folder_is_gone(scene: Scene) -> None:
    """The current folder is gone, and all paths are absolute."""
    gone = scene.here / "gone"
    scene.before += [gone.mkdir, lambda: os.chdir(gone), gone.rmdir]


def relative_to_what_is_gone(scene: Scene) -> None:
    current_folder_is_gone(scene)
    scene.read = scene.written = Path("here")


def no_temporary_folder(scene: Scene) -> None:
    scene.environment["TMPDIR"] = str(scene.here / "missing")


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


def nobody_listens(scene: Scene) -> None:
    """Standard output is a pipe whose reader has gone, as after `| head`."""

    def close() -> None:
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)

    scene.before.append(close)


def all_streams_full(scene: Scene) -> None:
    full_stdout_in_words(scene)
    scene.before.append(lambda: os.dup2(1, 2))


def mounted_outputs(scene: Scene) -> None:
    """Every file and folder that is changed or written over is a mount point."""
    own_mounts()
    for each in scene.written.iterdir():
        bind(each)


def read_only_input(scene: Scene) -> None:
    """Keys, models and artifacts in folders that only may be read."""
    own_mounts()
    scene.read = scene.copy("kept")
    read_only(scene.read)


ALL = tuple(ROWS)
# What removes may find nothing, and needs no room.
WRITES = tuple(
    name for name, row in ROWS.items() if "{out}" in row and not name.startswith("store ")
)
READS = tuple(
    name
    for name, row in ROWS.items()
    if ("{in}" in row or "{out}" in row) and not name.startswith("store ")
)
# They build or time; what they do otherwise, others do as well.
SLOW = ("check-models", "bench", "fleet build", "fleet upgrade", "reproduce")
# The same for a build, where it ends well or just as in another place.
BUILT = (*SLOW, "build")


@dataclass(frozen=True, slots=True)
class Place:
    """A place, which commands must fail there, and which must work."""

    make: Callable[[Scene], None]
    fail: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    slow: tuple[str, ...] = SLOW
    """Left to the slow test."""
    silent: bool = False
    """Whether nothing that is said there arrives."""
    of_paths: bool = False
    """Whether nothing is wrong there for commands that are given no path."""

    def names(self) -> tuple[str, ...]:
        """Of the commands that run there."""
        return tuple(name for name, row in ROWS.items() if "{" in row or not self.of_paths)


PLACES = (
    Place(sound, work=ALL),
    Place(read_only_input, work=READS, slow=BUILT, of_paths=True),
    Place(read_only_folder, WRITES, of_paths=True),
    Place(read_only_home),
    Place(full_disk, WRITES, of_paths=True),
    Place(small_disk, slow=BUILT, of_paths=True),
    Place(full_home, slow=BUILT),
    Place(no_files_may_grow, WRITES),
    Place(small_files_only),
    Place(few_open_files),
    Place(too_long_to_write, WRITES, of_paths=True),
    Place(too_long_to_read, READS, of_paths=True),
    Place(too_deep, WRITES, of_paths=True),
    Place(longest_names, slow=BUILT, of_paths=True),
    Place(links_in_a_circle, READS, of_paths=True),
    Place(output_circle, WRITES, of_paths=True),
    Place(below_a_file, READS, of_paths=True),
    Place(output_below_a_file, WRITES, of_paths=True),
    Place(folders_for_files, of_paths=True),
    Place(files_that_fail, of_paths=True),
    Place(nul_bytes, READS, of_paths=True),
    Place(output_nul_bytes, WRITES, of_paths=True),
    Place(half_characters, READS, of_paths=True),
    Place(bytes_of_no_encoding, of_paths=True),
    Place(line_breaks, work=ALL, slow=BUILT, of_paths=True),
    Place(names_like_options, slow=BUILT, of_paths=True),
    Place(foreign_variables, slow=BUILT),
    Place(current_folder_is_gone),
    Place(relative_to_what_is_gone, READS),
    Place(no_temporary_folder, slow=BUILT),
    Place(home_of_another),
    Place(folder_of_another, READS, of_paths=True),
    Place(output_folder_of_another, WRITES, of_paths=True),
    Place(home_is_a_file, slow=BUILT),
    Place(home_is_too_long, slow=BUILT),
    Place(home_is_a_circle, slow=BUILT),
    Place(full_stdout, ALL),
    Place(nobody_listens, ALL, silent=True, slow=BUILT),
    Place(all_streams_full, ALL, silent=True, slow=BUILT),
    Place(full_stdout_in_words, ALL, slow=BUILT),
    Place(mounted_outputs, work=("sign", "attest"), slow=BUILT, of_paths=True),
)


def test_every_command_has_a_row() -> None:
    assert sorted({*ROWS, *ELSEWHERE}) == sorted(every_command())


def wrong(each: Result, place: Place) -> str:
    """What is wrong with how a command ended; empty where it ended as it should."""
    if "Traceback" in each.stdout + each.stderr:
        return "a traceback"
    if each.status == 0:
        return "it should have failed" if each.name in place.fail else ""
    if each.status not in (1, 2, 3):
        return f"exit status {each.status}"
    if each.name in place.work:
        return "it should have worked"
    return "" if place.silent or each.tells_a_code() else "no code"


def check(place: Place, given: tuple[Path, str], names: tuple[str, ...], folder: str) -> None:
    made, artifact_id = given
    try:
        results = walk(made, made.parent / folder, artifact_id, place.make, names)
    except CannotMakeError as error:
        pytest.skip(f"no such place can be made here: {error}")
    found = [f"{why}: {each}" for each in results if (why := wrong(each, place))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.make.__name__)
def test_commands_end_well_in(place: Place, given: tuple[Path, str]) -> None:
    names = tuple(name for name in place.names() if name not in place.slow)
    check(place, given, names, place.make.__name__)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.make.__name__)
def test_slow_commands_end_well_in(place: Place, given: tuple[Path, str]) -> None:
    check(place, given, tuple(set(place.slow) & set(place.names())), f"{place.make.__name__}-slow")


def test_who_reads_a_mounted_artifact_meets_no_draft(given: tuple[Path, str]) -> None:
    """An attestation cannot be renamed into a mount point, and is never half there."""
    made, artifact_id = given

    def make(scene: Scene) -> None:
        own_mounts()
        artifact, key = scene.written / "made.aotc", scene.given / "key.pem"
        bind(artifact)
        draft = scene.written / "draft"
        draft.touch()
        with pytest.raises(OSError, match="cross-device"):
            draft.rename(artifact / "attestations" / "draft")
        writer = os.fork()
        if writer == 0:
            signer = load_signer(key)
            for number in range(200):
                words = {"channel": f"channel-{number % 3}", "expires": "2090-01-01"}
                approve(artifact, signer, trust=key.with_suffix(".pub"), force=True, **words)
            os._exit(0)
        seen = set()
        while (ended := os.waitpid(writer, os.WNOHANG)) == (0, 0):
            report = aotc.verify(artifact, key=key.with_suffix(".pub"))
            assert report.authentic, report
            names = {each.name for each in (artifact / "attestations").iterdir()}
            assert all(name.endswith(".sigstore.json") for name in names)
            seen |= names
        assert ended == (writer, 0)
        assert {f"approval-channel-{number}-" for number in range(3)} <= {
            name.partition(".")[0][: len("approval-channel-0-")] for name in seen
        }
        left = {each.name for each in (artifact / "attestations").iterdir()}
        assert len(left) == 4 + 3, left

    try:
        walk(made, made.parent / "readers", artifact_id, make, ())
    except CannotMakeError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
