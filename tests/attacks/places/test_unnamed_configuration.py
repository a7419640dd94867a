"""An `aotc.yaml` that lies in a checkout of somebody else's reaches nothing outside of it.

What it names to read or to write is in its own folder, no link is followed on the way, and what its
report replaces is a report.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command import Command
from made_models import linear, save
from refusals import refusal
from reported_runs import HOSTILE, failed_build

from aotc.base.errors import AotcError
from aotc.base.files.reading import open_plain
from aotc.base.records import replace
from aotc.cli.configuration import read_settings
from aotc.report.html.artifact_page import run_page
from aotc.report.report_forms import TEXTS, is_replaceable, report_text, write_report
from aotc.spec.profile_files import load_profile
from aotc.spec.run_report import RunReport

PRECIOUS = '{"precious": 1}\n'
PROFILE = "schema: aotc.profile/1\nname: mine\nproviders: [cpu]\n"
COMMANDS = (
    ("build", "model.onnx", "--no-cache", "--force"),
    ("build", "missing.onnx"),
    ("check-models", "."),
    ("bench", "missing.aotc"),
    ("config",),
)


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a checkout, beside the folder of a victim."""
    checkout, victim = tmp_path / "checkout", tmp_path / "victim"
    checkout.mkdir()
    victim.mkdir()
    (victim / "settings.json").write_text(PRECIOUS)
    save(linear(), checkout / "model.onnx")
    return Command(checkout)


def victim_of(aotc: Command) -> Path:
    return aotc.folder.parent / "victim"


def write(aotc: Command, text: str) -> None:
    (aotc.folder / "aotc.yaml").write_text(text)


def untouched(aotc: Command) -> bool:
    victim = victim_of(aotc)
    return {path.name: path.read_text() for path in victim.iterdir()} == {"settings.json": PRECIOUS}


def links(aotc: Command) -> None:
    """Every way out of a checkout that a link can be."""
    folder = aotc.folder
    (folder / "real").mkdir()
    (folder / "file.json").symlink_to("../victim/settings.json")
    (folder / "dangling.json").symlink_to("../victim/new.json")
    (folder / "folder").symlink_to("../victim")
    (folder / "real" / "deep").symlink_to("../../victim")
    (folder / "within").symlink_to("real")
    (folder / "chain").symlink_to("folder")


WAYS_OUT = (
    "../victim/settings.json",
    "../victim/new.json",
    "real/../../victim/settings.json",
    "{victim}/settings.json",
    "{victim}/new.json",
    "file.json",
    "dangling.json",
    "folder/settings.json",
    "folder/new.json",
    "real/deep/settings.json",
    "chain/settings.json",
    "within/new.json",
    "folder/../victim/settings.json",
    "within/../r.json",
    "../checkout/r.json",
    "./folder/./settings.json",
    "..",
    ".",
    "~/settings.json/../../../victim/settings.json",
)
SETTINGS = (
    "report: '{}'\n",
    "report: [r.md, '{}']\n",
    "build: {{report: '{}'}}\n",
    "check_models: {{report: '{}'}}\n",
    "bench: {{report: '{}'}}\n",
    "profile: '{}'\n",
    "check_models: {{profile: '{}'}}\n",
    "target: '{}'\n",
    "key: '{}'\n",
    "build: {{calibration: '{}'}}\n",
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_setting_leads_out_of_the_folder(
    aotc: Command, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links(aotc)
    monkeypatch.chdir(aotc.folder)
    monkeypatch.delenv("AOTC_CONFIG", raising=False)
    for way in WAYS_OUT[:-1]:
        write(aotc, setting.format(way.format(victim=victim_of(aotc))))
        error = refusal(read_settings)
        assert (error.code, error.where.partition(":")[0]) == ("AOTC-I052", "aotc.yaml"), way
        assert error.place is not None and error.place.line == 1
        assert "must not name" in error.what
        assert "AOTC_CONFIG" in error.fix
    # A shell's word for a home is a name of a folder like any other here.
    write(aotc, setting.format(WAYS_OUT[-1]))
    assert refusal(read_settings).code == "AOTC-I052"
    assert untouched(aotc)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words))
def test_every_command_that_reads_it_refuses(aotc: Command, words: tuple[str, ...]) -> None:
    links(aotc)
    for way in ("../victim/settings.json", "file.json", "folder/new.json"):
        write(aotc, f"report: {way}\n")
        first = aotc(*words).refused("AOTC-I052", 3)
        assert first["where"] == "aotc.yaml: report"
        assert first["found"] == way
        assert untouched(aotc)


@pytest.mark.parametrize("name", ["bench: {history: x}", "bench: {trace: x}", "log_file: x"])
def test_other_files_cannot_be_named(aotc: Command, name: str) -> None:
    write(aotc, f"{name}\n")
    assert "unknown field" in aotc("config").refused("AOTC-I052", 3)["what"]


def test_what_is_in_the_folder_may_be_named(aotc: Command) -> None:
    (aotc.folder / "ci").mkdir()
    (aotc.folder / "ci" / "mine.yaml").write_text(PROFILE)
    reports = ["ci/r.json", f"{aotc.folder}/ci/r.xml", "ci/../r.md", "./r.sarif"]
    write(aotc, f"profile: ci/mine.yaml\nreport: {reports}\n")
    for again in range(2):
        done = aotc("build", "model.onnx", "--no-cache", "--force")
        assert done.status == 0, (again, done)
    names = sorted(str(path.relative_to(aotc.folder)) for path in aotc.folder.rglob("*r.*"))
    assert names == ["ci/r.json", "ci/r.xml", "r.md", "r.sarif"]
    # A folder that is not there is no reason to look elsewhere.
    write(aotc, "report: none/r.json\n")
    assert aotc("build", "missing.onnx").codes == ["AOTC-I001", "AOTC-I047"]


def test_the_file_itself_is_no_link(aotc: Command) -> None:
    (victim_of(aotc) / "settings.json").write_text("profile: edge\n")
    (aotc.folder / "aotc.yaml").symlink_to("../victim/settings.json")
    first = aotc("config").refused("AOTC-I052", 3)
    assert first["what"] == "the configuration in the working directory is a link, or no plain file"
    named = Command(aotc.folder, {"AOTC_CONFIG": "aotc.yaml"})
    assert named("config").status == 0


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_pipe_or_a_device_is_not_waited_for(aotc: Command, setting: str) -> None:
    os.mkfifo(aotc.folder / "pipe.json")
    write(aotc, setting.format("pipe.json"))
    first = aotc("config").refused("AOTC-I052", 3)
    assert "neither a file nor a folder" in first["what"]


@pytest.mark.parametrize(
    "text",
    [
        "calibration: {{data: {}}}\n",
        "gates: {{task: {{data: {}, metric: accuracy}}}}\n",
        "target: {}\n",
    ],
)
def test_a_profile_of_the_folder_names_nothing_outside_either(aotc: Command, text: str) -> None:
    links(aotc)
    (aotc.folder / "real" / "data.npz").write_bytes(b"")
    profile = aotc.folder / "mine.yaml"
    write(aotc, "profile: mine.yaml\n")
    for way in ("../victim", "file.json", "real/deep/data.npz", f"{victim_of(aotc)}/settings.json"):
        profile.write_text(PROFILE + text.format(way))
        first = aotc("config").refused("AOTC-I052", 3)
        assert first["where"] == "aotc.yaml: profile"
        assert "must not name" in first["what"]
    profile.write_text(PROFILE + text.format("real/data.npz"))
    assert aotc("config").status == 0
    # Who names the profile has chosen what it names.
    profile.write_text(PROFILE + text.format("../victim"))
    named = Command(aotc.folder, {"AOTC_CONFIG": "aotc.yaml"})
    assert named("config").status == 0


def test_samples_behind_a_link_are_not_read(aotc: Command) -> None:
    given = aotc.folder / "given"
    given.mkdir()
    np.savez(victim_of(aotc) / "secret.npz", x=np.zeros((1, 4), np.float32))
    (given / "a.npz").symlink_to("../../victim/secret.npz")
    write(aotc, "build: {calibration: given}\n")
    first = aotc("build", "model.onnx", "--no-cache", "--precision", "int8").refused("AOTC-I052", 3)
    assert first["what"].endswith("must not name a file behind a link")


# A report takes the place of nothing but a report.


@pytest.fixture(params=["y", HOSTILE], ids=["ordinary", "hostile"])
def report(request: pytest.FixtureRequest, tmp_path: Path) -> RunReport:
    """A failed build."""
    return failed_build(tmp_path, request.param)


def forms(report: RunReport) -> dict[str, bytes]:
    texts = {suffix: report_text(report, f"r{suffix}") for suffix in TEXTS.names()}
    return {suffix: text.encode("utf-8") for suffix, text in texts.items()} | {
        ".html": run_page(None, report).encode()
    }


def test_reports_of_every_form_are_known_as_reports(tmp_path: Path, report: RunReport) -> None:
    file = tmp_path / "r"
    passed = replace(report, outcome="passed", refusals=(), findings=(), gates=())
    for made in (report, passed, replace(report, command="check-models", outcome="error")):
        for suffix, data in forms(made).items():
            file.write_bytes(data)
            assert is_replaceable(str(file)), suffix
    file.write_bytes(b"")
    assert is_replaceable(str(file))
    assert is_replaceable(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    "text",
    [
        PRECIOUS,
        "\n",
        "{}",
        "[1]",
        "[]",
        '[{"description": "mine"}]',
        '{"schema": "aotc.config/1"}',
        '{"precious": {"schema": "aotc.report/1"}}',
        '{"$schema": "sarif", "version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}}]}',
        '<!doctype html>\n<html lang="en"><head><title>aotc</title></head></html>',
        '<?xml version="1.0"?>\n<testsuites name="pytest tests"></testsuites>\n',
        "# Notes\n\n### ✅ `aotc build` passed\n\naotc 1.0, 1.0 s\n",
        "### ✅ `aotc build` passed\n\naotc 1.0, 1.0 s\n\nand what I think of it\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "schema: aotc.report/1\n",
        "\x00\x01",
    ],
)
def test_what_is_no_report_stays(aotc: Command, text: str) -> None:
    for name in ("r.json", "r.md", "r.html"):
        file = aotc.folder / name
        file.write_text(text)
        write(aotc, f"report: {name}\n")
        first = aotc("build", "missing.onnx").refused("AOTC-I052", 3)
        assert "that is no report" in first["what"]
        assert file.read_text() == text
        file.unlink()


def test_who_names_a_file_is_told_what_is_replaced(aotc: Command) -> None:
    file = aotc.folder / "mine.json"
    said = "--report mine.json: replaces a file that is not a report of aotc\n"
    file.write_text(PRECIOUS)
    done = aotc.plain("build", "missing.onnx", "--report", "mine.json")
    assert done.status == 3
    assert said in done.stderr
    assert '"aotc.report/1"' in file.read_text()
    # A report is replaced as ever.
    assert said not in aotc.plain("build", "missing.onnx", "--report", "mine.json").stderr
    file.write_text(PRECIOUS)
    write(aotc, "report: mine.json\n")
    named = Command(aotc.folder, {"AOTC_CONFIG": "aotc.yaml"})
    assert said in named.plain("build", "missing.onnx").stderr
    assert '"aotc.report/1"' in file.read_text()


# Between the reading of the configuration and the use of what it names.


@pytest.fixture
def checkout(aotc: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout as working directory, with a folder of its own."""
    monkeypatch.chdir(aotc.folder)
    monkeypatch.delenv("AOTC_CONFIG", raising=False)
    monkeypatch.setenv("_AOTC_CONFINED", "")
    monkeypatch.delenv("_AOTC_CONFINED")
    (aotc.folder / "sub").mkdir()
    return aotc.folder


def swapped(checkout: Path) -> None:
    """Put a link to the victim where the folder was."""
    (checkout / "sub").rename(checkout / "aside")
    (checkout / "sub").symlink_to("../victim")


@pytest.mark.parametrize("suffix", [*TEXTS.names(), ".html"])
def test_a_folder_that_becomes_a_link_is_not_written_through(
    aotc: Command, checkout: Path, tmp_path: Path, suffix: str
) -> None:
    write(aotc, f"report: sub/r{suffix}\n")
    read_settings()
    file, made = f"sub/r{suffix}", failed_build(tmp_path)
    write_report(made, file)
    assert (checkout / "sub" / f"r{suffix}").is_file()
    swapped(checkout)
    error = refusal(write_report, made, file)
    assert (error.code, error.what) == (
        "AOTC-I052",
        "the configuration in the working directory must not name a file behind a link",
    )
    assert untouched(aotc)


def test_a_file_that_appears_later_stays(aotc: Command, checkout: Path, tmp_path: Path) -> None:
    write(aotc, "report: [a.json, b.json, c.json]\n")
    read_settings()
    (checkout / "a.json").write_text(PRECIOUS)
    (checkout / "b.json").symlink_to("../victim/settings.json")
    os.mkfifo(checkout / "c.json")
    for name in ("a.json", "b.json", "c.json"):
        assert refusal(write_report, failed_build(tmp_path), name).code == "AOTC-I052"
    assert (checkout / "a.json").read_text() == PRECIOUS
    assert untouched(aotc)


def test_another_folder_of_the_same_path_is_not_the_one(
    aotc: Command, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(aotc, "report: r.json\n")
    read_settings()
    file = checkout / "r.json"
    monkeypatch.chdir(tmp_path)
    write_report(failed_build(tmp_path), str(file))
    assert file.is_file()
    checkout.rename(tmp_path / "moved")
    checkout.symlink_to("victim")
    with pytest.raises((AotcError, OSError)):
        open_plain(file)
    assert refusal(write_report, failed_build(tmp_path), str(file)).code in (
        "AOTC-I047",
        "AOTC-I052",
    )
    assert untouched(aotc)


def test_a_profile_is_what_it_was_when_it_was_judged(aotc: Command, checkout: Path) -> None:
    profile = checkout / "sub" / "mine.yaml"
    profile.write_text(PROFILE)
    write(aotc, "profile: sub/mine.yaml\n")
    read_settings()
    profile.write_text(f"{PROFILE}plugins: {{x: {{provider: XProvider, library: ./x.so}}}}\n")
    assert not load_profile("sub/mine.yaml").plugins
    # One that was not there was not judged, and is not there later.
    profile.unlink()
    read_settings()
    profile.write_text(f"{PROFILE}plugins: {{x: {{provider: XProvider, library: ./x.so}}}}\n")
    assert refusal(load_profile, "sub/mine.yaml").code == "AOTC-I001"
    # The next command reads it anew.
    assert "plugin" in refusal(read_settings).what


def test_no_moment_of_a_swap_lets_anything_out(
    aotc: Command, checkout: Path, tmp_path: Path
) -> None:
    """A process exchanges the folder and a link to the victim's, as fast as it can."""
    (checkout / "link").symlink_to("../victim")
    (victim_of(aotc) / "r.json").write_text(PRECIOUS)
    write(aotc, "report: sub/r.json\n")
    read_settings()
    swap = (
        "import ctypes\nlibrary = ctypes.CDLL(None)\n"
        "while True: library.renameat2(-100, b'sub', -100, b'link', 2)\n"
    )
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("the C library has no renameat2, by which names are exchanged")
    ends, made = {"written": 0, "refused": 0}, failed_build(tmp_path)
    with subprocess.Popen([sys.executable, "-c", swap], cwd=checkout) as other:
        try:
            stop = time.monotonic() + 20
            while min(ends.values()) < 50 and time.monotonic() < stop:
                try:
                    write_report(made, "sub/r.json")
                except AotcError as error:
                    # A link that was a folder again by the next look is an error of the system.
                    assert error.code in ("AOTC-I052", "AOTC-I047")
                    ends["refused"] += 1
                else:
                    ends["written"] += 1
        finally:
            other.kill()
    assert min(ends.values()) >= 5, ends
    assert (victim_of(aotc) / "r.json").read_text() == PRECIOUS
    assert sorted(path.name for path in victim_of(aotc).iterdir()) == ["r.json", "settings.json"]


def test_processes_that_a_build_starts_are_held_to_it(aotc: Command, checkout: Path) -> None:
    (checkout / "sub" / "x.npz").write_bytes(b"1")
    write(aotc, "build: {calibration: sub}\n")
    read_settings()
    swapped(checkout)
    (victim_of(aotc) / "x.npz").write_text(PRECIOUS)
    code = "import sys\nfrom aotc.base.files.reading import open_plain\nopen_plain(sys.argv[1])\n"
    words = [sys.executable, "-c", code, str(checkout / "sub" / "x.npz")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=checkout.parent)
    assert "AOTC-I052" in done.stderr


def test_the_folder_of_a_report_has_no_leftovers(
    aotc: Command, checkout: Path, tmp_path: Path
) -> None:
    write(aotc, "report: sub/r.json\n")
    read_settings()
    leftover = checkout / "sub" / ".aotc-new-0123"
    leftover.write_text("of a process that was killed")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        write_report(failed_build(tmp_path), "sub/r.json")
    assert [path.name for path in (checkout / "sub").iterdir()] == ["r.json"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    shutil.rmtree(checkout / "sub")
    assert refusal(write_report, failed_build(tmp_path), "sub/r.json").code == "AOTC-I047"
