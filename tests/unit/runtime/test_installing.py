"""Installing and pruning: nothing is left half-written, nothing in use is removed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artifact_builder import build_artifact, payload_digests, sign_artifact
from file_bytes import contents_of, flip_bit

from aotc.base.errors import AotcError
from aotc.cli import main as cli
from aotc.runtime.store import pruning
from aotc.runtime.store.entries import hold
from aotc.runtime.store.installing import install
from aotc.runtime.store.publication import Draft, remove_leftovers
from aotc.runtime.store.user_store import Store
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust import statements
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private

Trust = tuple[TrustedKey, ...]


@pytest.fixture
def artifact(tmp_path: Path, key: PrivateKey) -> Path:
    return build_artifact(tmp_path / "linear.aotc", key)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    # Read-only folders are more than pytest removes.
    for place in (tmp_path / "store").rglob("*"):
        if place.is_dir():
            place.chmod(0o700)


def evidence(artifact: Path, key: PrivateKey, seconds: float) -> bytes:
    subject = {"aotc.json": payload_digests(artifact)["aotc.json"]}
    return statements.sign(KINDS["evidence"].predicate_type, {"seconds": seconds}, subject, key)


def several(tmp_path: Path, key: PrivateKey, root: Path, count: int) -> list[str]:
    """Ids of artifacts of 10 kB and more in a store, installed in turn, a day apart."""
    ids = []
    for number in range(count):
        artifact = build_artifact(tmp_path / f"{number}.aotc", key, change={"name": f"n{number}"})
        ids.append(install(artifact, (key.trusted(),), store=root).artifact_id)
        set_used(root, ids[-1], time.time() - (count - number) * 86_400)
    return ids


def set_used(root: Path, artifact_id: str, moment: float) -> None:
    entry = root / f"sha256-{artifact_id}"
    for path in (entry / "payload" / "aotc.json", entry):
        os.utime(path, (moment, moment))


def test_installing_twice_changes_nothing(artifact: Path, root: Path, trust: Trust) -> None:
    first = install(artifact, trust, store=root)
    assert (first.installed, first.attestations) == (True, ())
    assert (first.name, first.artifact) == ("linear", str(artifact))
    assert first.bytes == sum(
        len(data) for path, data in contents_of(artifact / "payload").items() if path != "aotc.json"
    )
    entry = Path(first.folder)
    assert entry == root / f"sha256-{first.artifact_id}"
    before = {path: path.stat().st_ino for path in entry.rglob("*")}
    second = install(artifact, trust, store=root)
    assert (second.installed, second.attestations) == (False, ())
    assert {path: path.stat().st_ino for path in entry.rglob("*")} == before
    assert contents_of(entry) == contents_of(artifact)


def test_others_may_read_and_none_write_whatever_the_umask(
    artifact: Path, tmp_path: Path, trust: Trust
) -> None:
    for number, mask in enumerate((0o077, 0o000)):
        root = tmp_path / f"{number}" / "var" / "store"
        before = os.umask(mask)
        try:
            install(artifact, trust, store=root)
        finally:
            os.umask(before)
        for path in (root.parents[1], root.parent, root):
            assert path.stat().st_mode & 0o777 == 0o755
        for path in root.glob("sha256-*/**/*"):
            assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)


def test_a_damaged_copy_is_replaced(artifact: Path, root: Path, trust: Trust) -> None:
    """Also in files that no load of this host would read: all of it is hashed."""
    entry = Path(install(artifact, trust, store=root).folder)
    for path in sorted(entry.glob("payload/*/*/model.onnx")):
        path.chmod(0o644)
        flip_bit(path, 0)
        assert install(artifact, trust, store=root).installed
        assert contents_of(entry) == contents_of(artifact)


def test_new_attestations_are_added_and_nothing_is_changed(
    artifact: Path, root: Path, key: PrivateKey, trust: Trust
) -> None:
    entry = Path(install(artifact, trust, store=root).folder)
    before = contents_of(entry)
    attestations = artifact / "attestations"
    (attestations / "approval-prod.sigstore.json").write_bytes(evidence(artifact, key, 3.0))
    # Another one of a name that is taken, and one that is there under another name.
    (attestations / "copy.sigstore.json").write_bytes(
        (attestations / "evidence.sigstore.json").read_bytes()
    )
    (attestations / "evidence.sigstore.json").write_bytes(evidence(artifact, key, 2.0))
    report = install(artifact, trust, store=root)
    assert not report.installed
    approval, other = report.attestations
    assert approval == "approval-prod.sigstore.json"
    assert other.startswith("evidence-")
    assert other.endswith(".sigstore.json")
    after = contents_of(entry)
    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {f"attestations/{approval}", f"attestations/{other}"}
    assert after[f"attestations/{other}"] == evidence(artifact, key, 2.0)
    for path in (entry / "attestations").rglob("*"):
        assert path.stat().st_mode & 0o777 == 0o444
    assert (entry / "attestations").stat().st_mode & 0o777 == 0o555
    assert install(artifact, trust, store=root).attestations == ()
    assert install(entry, trust, store=root).attestations == ()


def test_a_signature_that_was_added_vouches_by_itself(
    artifact: Path, root: Path, trust: Trust, tmp_path: Path
) -> None:
    entry = Path(install(artifact, trust, store=root).folder)
    other = load_private(generate(tmp_path / "b.pem")[0])
    sign_artifact(artifact, other)
    report = install(artifact, (other.trusted(),), store=root)
    assert len(report.attestations) == 2
    with FolderContainer(entry) as stored:
        assert authenticate(stored, (other.trusted(),)).keys == (other.trusted(),)
        assert authenticate(stored, trust).keys == trust


def test_a_bad_attestation_is_not_added(
    artifact: Path, root: Path, key: PrivateKey, trust: Trust
) -> None:
    entry = Path(install(artifact, trust, store=root).folder)
    before = contents_of(entry)
    bad = bytearray(evidence(artifact, key, 2.0))
    bad[bad.index(b'"sig":"') + 20] ^= 1
    (artifact / "attestations" / "more.sigstore.json").write_bytes(bad)
    with pytest.raises(AotcError):
        install(artifact, trust, store=root)
    assert contents_of(entry) == before
    assert [path.name for path in root.iterdir() if path != entry] == [".lock"]


def test_attestations_beyond_the_limit_are_not_added(
    artifact: Path, root: Path, key: PrivateKey, trust: Trust
) -> None:
    entry = Path(install(artifact, trust, store=root).folder)
    for batch in range(3):
        for path in (artifact / "attestations").glob("more-*"):
            path.unlink()
        for number in range(30):
            name = f"more-{batch}-{number}.sigstore.json"
            data = evidence(artifact, key, 100.0 * batch + number + 5)
            (artifact / "attestations" / name).write_bytes(data)
        if batch < 2:
            assert len(install(artifact, trust, store=root).attestations) == 30
    with pytest.raises(AotcError) as caught:
        install(artifact, trust, store=root)
    assert caught.value.code == "AOTC-G012"
    assert len(list((entry / "attestations").iterdir())) == 62


def test_a_bad_artifact_leaves_nothing(artifact: Path, root: Path, trust: Trust) -> None:
    flip_bit(next(artifact.rglob("weights.bin")), 0)
    with pytest.raises(AotcError) as caught:
        install(artifact, trust, store=root)
    assert caught.value.code == "AOTC-G005"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("obstacle", ["file", "link", "closed"])
def test_what_is_no_entry_makes_room(
    obstacle: str, artifact: Path, root: Path, trust: Trust, tmp_path: Path
) -> None:
    entry = Path(install(artifact, trust, store=root).folder)
    pruning.prune(root, limit=0)
    if obstacle == "file":
        entry.write_bytes(b"")
    elif obstacle == "link":
        entry.symlink_to(tmp_path)
    else:
        (entry / "payload").mkdir(parents=True)
        entry.chmod(0)
    assert install(artifact, trust, store=root).installed
    assert contents_of(entry) == contents_of(artifact)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, key: PrivateKey, root: Path) -> None:
    ids = several(tmp_path, key, root, 4)
    listed = pruning.list_store(root)
    assert [item.artifact_id for item in listed.entries] == ids[::-1]
    assert [item.name for item in listed.entries] == ["n3", "n2", "n1", "n0"]
    assert not any(item.in_use for item in listed.entries)
    assert pruning.prune(root).removed == ()
    report = pruning.prune(root, limit=listed.bytes - 1)
    assert report.removed == (ids[0],)
    assert (report.kept, report.kept_bytes) == (3, listed.bytes - report.removed_bytes)
    with_use = hold(root / f"sha256-{ids[1]}")
    assert with_use is not None
    with_use.touch()
    with_use.close()
    assert pruning.prune(root, limit=report.kept_bytes - 1).removed == (ids[2],)
    assert {item.artifact_id for item in pruning.list_store(root).entries} == {ids[1], ids[3]}


def test_what_was_not_used_for_long_goes(tmp_path: Path, key: PrivateKey, root: Path) -> None:
    ids = several(tmp_path, key, root, 4)
    assert pruning.prune(root, age=2.5 * 86_400).removed == tuple(ids[:2])
    assert pruning.prune(root, age=2.5 * 86_400).removed == ()


def test_what_is_in_use_stays(tmp_path: Path, key: PrivateKey, root: Path, trust: Trust) -> None:
    first, second = several(tmp_path, key, root, 2)
    used = Store(root).install(tmp_path / "0.aotc", trust)
    assert [item.in_use for item in pruning.list_store(root).entries] == [True, False]
    report = pruning.prune(root, limit=0)
    assert (report.removed, report.in_use, report.kept) == ((second,), (first,), 1)
    with pytest.raises(AotcError) as caught:
        pruning.remove_entry(root, first)
    assert caught.value.code == "AOTC-R017"
    assert used.folder.is_dir()
    used.hold.close()
    assert pruning.remove_entry(root, first[:8]).removed == (first,)
    assert [path.name for path in root.iterdir()] == [".lock"]


def test_ids_that_name_none_or_several(tmp_path: Path, key: PrivateKey, root: Path) -> None:
    several(tmp_path, key, root, 17)
    for digits, code in (("", "AOTC-I001"), ("x", "AOTC-I001"), ("sha256-", "AOTC-I001")):
        with pytest.raises(AotcError) as caught:
            pruning.remove_entry(root, digits)
        assert caught.value.code == code
    first = [item.artifact_id[0] for item in pruning.list_store(root).entries]
    double = next(digit for digit in first if first.count(digit) > 1)
    with pytest.raises(AotcError) as caught:
        pruning.remove_entry(root, double)
    assert caught.value.code == "AOTC-I027"
    assert len(pruning.list_store(root).entries) == 17


def test_the_command_line(
    artifact: Path, root: Path, key: PrivateKey, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    public = tmp_path / "a.pub"
    public.write_text(key.public_pem)

    def answer(*words: str) -> dict[str, object]:
        assert cli.main([*words, "--store", str(root), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert isinstance(document, dict)
        return document

    assert answer("store", "list")["entries"] == []
    installed = answer("install", str(artifact), "--key", str(public))
    assert (installed["schema"], installed["installed"]) == ("aotc.install/1", True)
    entries = answer("store", "list")["entries"]
    assert isinstance(entries, list)
    assert [item["artifact_id"] for item in entries] == [installed["artifact_id"]]
    assert answer("store", "prune", "--older-than", "1")["kept"] == 1
    assert answer("store", "remove", str(installed["artifact_id"]))["kept"] == 0
    assert cli.main(["install", str(artifact), "--key", str(public), "--store", str(root)]) == 0
    assert cli.main(["store", "list", "--store", str(root)]) == 0
    assert cli.main(["store", "prune", "--limit", "0", "--store", str(root)]) == 0
    assert "linear" in capsys.readouterr().out
    assert cli.main(["store", "list", "--system", "--store", str(root)]) == 2


def in_child(work: Callable[[], object]) -> int:
    """Start `work` in a child process; returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def count_complete_entries(root: Path, trust: Trust) -> int:
    """How many entries there are; each of them is a whole artifact."""
    entries = [path for path in root.iterdir() if path.name.startswith("sha256-")]
    for entry in entries:
        with FolderContainer(entry) as stored:
            assert f"sha256-{authenticate(stored, trust).id}" == entry.name
    return len(entries)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_moment_leaves_no_half_entry(
    tmp_path: Path, root: Path, key: PrivateKey, trust: Trust
) -> None:
    plain = build_artifact(tmp_path / "plain.aotc", key, padding=100_000)
    more = tmp_path / "more.aotc"
    shutil.copytree(plain, more)
    (more / "attestations" / "approval.sigstore.json").write_bytes(evidence(plain, key, 2.0))
    jobs: list[Callable[[], object]] = [
        lambda: install(plain, trust, store=root),
        lambda: install(more, trust, store=root),
        lambda: pruning.prune(root, limit=0),
    ]
    started = time.perf_counter()
    install(more, trust, store=root)
    longest = 2 * (time.perf_counter() - started)
    chance = random.Random(7)
    killed = 0
    for number in range(600):
        child = in_child(jobs[number % 3])
        time.sleep(chance.random() * longest)
        os.kill(child, signal.SIGKILL)
        was_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        killed += was_killed
        # How long a job takes changes with what else the machine does.
        longest *= 1.2 if was_killed else 0.9
        count_complete_entries(root, trust)
        if number >= 45 and killed > 4:
            break
    assert killed > 4
    # The next command removes what is left, at once.
    install(more, trust, store=root)
    assert count_complete_entries(root, trust) == 1
    assert list(root.glob(".new-*")) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("by", ["install", "prune"])
def test_what_the_dead_left_goes_at_once_and_what_lives_stays(
    by: str, artifact: Path, root: Path, trust: Trust
) -> None:
    install(artifact, trust, store=root)
    living = Draft(root)

    def die() -> None:
        Draft(root).open("payload/x").close()
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        assert os.WIFSIGNALED(os.waitpid(in_child(die), 0)[1])
    # As earlier releases named them.
    (root / ".new-0123456789abcdef").mkdir()
    assert len(list(root.glob(".new-*"))) == 5
    if by == "prune":
        assert pruning.prune(root).leftovers == 4
    else:
        assert not install(artifact, trust, store=root).installed
    assert list(root.glob(".new-*")) == [living.folder]
    living.discard()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_draft_that_is_taken_for_a_dead_ones_is_made_anew(root: Path) -> None:
    """Who tidies up may come between a folder and its lock, as often as it likes."""
    root.mkdir()
    tidying = in_child(lambda: [remove_leftovers(root) for _ in range(10**9)])
    try:
        for _ in range(300):
            draft = Draft(root)
            draft.open("payload/x").close()
            draft.seal()
            assert (draft.folder / "payload" / "x").is_file()
            draft.discard()
    finally:
        os.kill(tidying, signal.SIGKILL)
        os.waitpid(tidying, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_many_processes_install_load_and_prune(
    tmp_path: Path, root: Path, key: PrivateKey, trust: Trust
) -> None:
    artifacts = [
        build_artifact(tmp_path / f"{name}.aotc", key, change={"name": name}, padding=20_000)
        for name in ("one", "two")
    ]
    install(artifacts[0], trust, store=root)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(25):
            artifact = chance.choice(artifacts)
            job = chance.randrange(4)
            if job == 0:
                pruning.prune(root, limit=0)
            elif job == 1:
                install(artifact, trust, store=root)
            else:
                stored = Store(root).install(artifact, trust)
                # Whoever prunes meanwhile leaves it where it is.
                with FolderContainer(stored.folder.parent) as entry:
                    assert authenticate(entry, trust).id == stored.authentic.id
                    time.sleep(chance.random() * 0.005)
                    assert authenticate(entry, trust).id == stored.authentic.id
                stored.hold.close()

    children = [in_child(lambda seed=seed: work(seed)) for seed in range(6)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    count_complete_entries(root, trust)
    assert list(root.glob(".new-*")) == []
