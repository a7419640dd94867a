"""The command line's own promises: exit statuses, one document, no traceback, quick starts."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from repository import ROOT

from aotc.base.errors import INSTALL_RUNTIME, AotcError, install_extra
from aotc.cli import main as cli
from aotc.cli.commands import COMMANDS, HELP
from aotc.cli.grammar import Command, new_app
from aotc.cli.options import Json
from aotc.cli.output import error_lines

TOOLCHAIN = ROOT / "toolchain"
START = "import sys; from aotc.cli.main import main; sys.exit(main())"


class Standing:
    """A command that does what a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def does(self, action: Callable[[], int]) -> None:
        app = new_app()

        @app.command(cls=Command)
        def run(json: Json = False) -> int:
            return action()

        self._monkeypatch.setattr(COMMANDS, "load", lambda name: app)

    def fails(self, error: BaseException) -> None:
        def action() -> int:
            raise error

        self.does(action)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Standing:
    return Standing(monkeypatch)


def error() -> AotcError:
    also = (
        AotcError("AOTC-G006", "a file is missing", where="b"),
        AotcError("AOTC-G005", "another", also=(AotcError("AOTC-G007", "a third"),)),
    )
    return AotcError(
        "AOTC-G005",
        "bytes differ",
        where="payload/\x1b[2Ja",
        expected="one\ntwo",
        found="three",
        also=also,
    )


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in HELP if f"  {name} " in shown] == list(COMMANDS)
    assert cli.main([]) == 2
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"usage: aotc {name} ")
    assert shown.err == ""


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["-V", "-x"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    assert re.fullmatch(r"aotc \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "what", "where"),
    [
        (["bild"], "there is no command 'bild'; did you mean 'build'?", "aotc"),
        (
            ["--jsn"],
            "there is no option '--jsn'; options of a command stand after its name",
            "aotc",
        ),
        (["profile", "lst"], "there is no command 'lst'; did you mean 'list'?", "aotc profile"),
        (["build"], "the following arguments are required: MODEL", "aotc build"),
        (
            ["build", "m", "--profil", "x"],
            "there is no argument '--profil'; did you mean '--profile'?",
            "aotc build",
        ),
        (["verify", "a", "b"], "there is no argument 'b'", "aotc verify"),
        (
            ["bench", "a", "--runs", "0"],
            "argument --runs: '0' is not a positive number",
            "aotc bench",
        ),
        (["build", "m", "--dim", "batch"], "--dim takes NAME=VALUE", "--dim"),
        (["build", "m", "--dim", "a=1", "--dim", "a=2"], "'a' is given twice", "--dim"),
        (["explain"], "give a code, or --list", ""),
    ],
)
def test_wrong_usage(
    words: list[str], what: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[:2] == ["error: AOTC-I027 argument is not valid", f"  what:     {what}"]
    assert (f"  where:    {where}" in lines) == bool(where)
    assert lines[-1].startswith("  fix:      See ")


def test_a_refusal_in_text(command: Standing, capsys: pytest.CaptureFixture[str]) -> None:
    command.fails(error())
    assert cli.main(["verify"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    fix = error().fix
    assert shown.err == (
        "error: AOTC-G005 digest mismatch\n"
        "  what:     bytes differ\n"
        "  where:    payload/\\x1b[2Ja\n"
        "  expected: one\\ntwo\n"
        "  found:    three\n"
        f"  fix:      {fix}\n"
        "and 3 more:\n"
        "  AOTC-G006 a file is missing [b]\n"
        f"    fix: {AotcError('AOTC-G006', '').fix}\n"
        "  AOTC-G005 another\n"
        "  AOTC-G007 a third\n"
        f"    fix: {AotcError('AOTC-G007', '').fix}\n"
    )


def test_a_warning_and_a_traceback_are_no_lines_of_ours(
    command: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    def action() -> int:
        warnings.simplefilter("always")
        warnings.warn("odd\nerror: OK\x1b[2K", stacklevel=1)
        raise ZeroDivisionError("oh\nerror: OK\x1b[2K")

    command.does(action)
    assert cli.main(["verify", "--debug"]) == 70
    said = capsys.readouterr().err
    assert "UserWarning: odd\\nerror: OK\\x1b[2K\n" in said
    assert "  ZeroDivisionError: oh\n  error: OK\\x1b[2K\n" in said
    assert "\x1b" not in said
    assert "\nerror: OK" not in said


def test_a_terminal_breaks_no_line_of_foreign_text() -> None:
    """What is to be copied stays in one piece."""
    told = AotcError("AOTC-G005", "x", found="word " * 30, fix="pip install " + "y " * 60)
    lines = error_lines(told, 60)
    assert max(map(len, lines[:-1])) <= 60
    assert all(line.startswith(" " * 12) for line in lines[3:-1])
    assert lines[-1].endswith("y y")


def test_a_refusal_as_data(command: Standing, capsys: pytest.CaptureFixture[str]) -> None:
    command.fails(error())
    assert cli.main(["verify", "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    document = json.loads(shown.out)
    assert document["schema"] == "aotc.error/1"
    assert document["exit_status"] == 1
    assert [each["code"] for each in document["errors"]] == [
        "AOTC-G005",
        "AOTC-G006",
        "AOTC-G005",
        "AOTC-G007",
    ]
    assert document["errors"][0]["expected"] == "one\ntwo"


def test_a_bug_shows_no_traceback_unless_asked(
    command: Standing, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command.fails(ZeroDivisionError("oh"))
    assert cli.main(["verify"]) == 70
    plain = capsys.readouterr().err
    assert plain.startswith(
        "error: AOTC-R999 internal error\n"
        "  what:     ZeroDivisionError: oh\n"
        "  where:    test_main.py:"
    )
    assert "Traceback" not in plain
    assert cli.main(["verify", "--debug"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    monkeypatch.setenv("AOTC_DEBUG", "1")
    assert cli.main(["verify"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 3, "AOTC-I018"),
        (KeyboardInterrupt(), 130, "AOTC-I025"),
        (OSError(errno.EIO, "Input/output error"), 3, "AOTC-I043"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 3, "AOTC-I043"),
        (OSError("a library's own words"), 3, "AOTC-I043"),
        (ValueError("embedded null byte"), 2, "AOTC-I027"),
        (ValueError("of ours"), 70, "AOTC-R999"),
        (io.UnsupportedOperation("of ours"), 70, "AOTC-R999"),
    ],
)
def test_failures_of_the_machine(
    failure: BaseException,
    status: int,
    code: str,
    command: Standing,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command.fails(failure)
    assert cli.main(["verify", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == code


def test_a_termination_signal_ends_as_an_interrupt_does(
    command: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    def action() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    command.does(action)
    assert cli.main(["verify"]) == 130
    assert capsys.readouterr().err.startswith("error: AOTC-I025 interrupted\n")
    assert signal.getsignal(signal.SIGTERM) == before


def test_text_that_the_terminal_cannot_show_is_escaped(
    command: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    command.does(lambda: stream.write("\u2265 \udcff") and 0)
    assert cli.main(["verify"]) == 0
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u2265 \\udcff"


def started(*words: str, code: str = START) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "explain", "--list"],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.parametrize(
    ("words", "imported"),
    [(["--help"], "['rich']"), (["--version"], "[]"), (["bild"], "[]")],
)
def test_help_imports_no_command_and_nothing_heavy(words: list[str], imported: str) -> None:
    """Help is laid out by rich, which nothing else needs that the group of all commands does."""
    code = (
        "import sys; from aotc.cli.main import main; main();"
        "print(sorted(name for name in sys.modules if name.startswith('aotc.cli.commands.')"
        " or name in ('rich', 'yaml', 'cryptography', 'rfc8785', 'numpy', 'onnx', 'onnxruntime')))"
    )
    shown = started(*words, code=code)
    assert shown.stdout.splitlines()[-1] == imported


def test_lists_and_help_say_the_same_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in HELP.items():
        assert cli.main([name, "--help"]) == 0
        assert capsys.readouterr().out.splitlines()[2] == text


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "g005"]) == 0
    assert capsys.readouterr().out.startswith("AOTC-G005: digest mismatch\n\n(exit status 1)\n\n")
    assert cli.main(["explain", "--list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aotc.explain/1"
    assert {each["code"] for each in document["reasons"]} >= {"AOTC-I001", "AOTC-R999"}


def test_profile_and_target(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["profile", "list"]) == 0
    assert "server-cpu       CPU, a portable variant" in capsys.readouterr().out
    assert cli.main(["profile", "show", "edge"]) == 0
    mine = tmp_path / "mine.yaml"
    mine.write_text(capsys.readouterr().out, encoding="utf-8")
    assert cli.main(["profile", "check", str(mine)]) == 0
    assert capsys.readouterr().out == f"{mine}: profile 'edge' is valid\n"
    mine.write_text("schema: aotc.profile/1\nname: mine\nvariant: []\n", encoding="utf-8")
    assert cli.main(["profile", "check", str(mine)]) == 3
    assert capsys.readouterr().err == (
        "error: AOTC-I022 profile or target is invalid\n"
        "  what:     unknown field; did you mean 'variants'?\n"
        f"  where:    {mine}: variant\n"
        f"  at:       {mine}:3:1\n"
        f"  fix:      {AotcError('AOTC-I022', '').fix}\n"
    )
    assert cli.main(["target", "probe", "--json"]) == 0
    probed = json.loads(capsys.readouterr().out)
    assert (probed["schema"], probed["name"], probed["probed"]) == ("aotc.target/1", "host", True)
    assert cli.main(["target", "list", "--json"]) == 0
    assert "host" in json.loads(capsys.readouterr().out)["items"]


def test_keygen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "release.pem"
    assert cli.main(["keygen", "-o", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"[0-9a-f]{64}", document["key_id"])
    assert Path(document["public_key"]) == path.with_suffix(".pub")
    assert path.stat().st_mode & 0o777 == 0o600
    assert cli.main(["keygen", "-o", str(path)]) == 3
    assert capsys.readouterr().err.startswith("error: AOTC-I017 output already exists\n")


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (("build", "x.onnx"), "'aotc build' needs the package numpy", install_extra("cpu")),
        (
            ("merge", "x.aotc", "y.aotc", "-o", "z.aotc"),
            "'aotc merge' needs the package onnx",
            install_extra("cpu"),
        ),
        (("run", "x.aotc"), "'aotc run' needs the package numpy", INSTALL_RUNTIME),
        (("bench", "x.aotc"), "'aotc bench' needs the package numpy", INSTALL_RUNTIME),
        (
            ("inspect", str(TOOLCHAIN / "aotc" / "base/errors.py")),
            "inspecting a model needs onnx",
            install_extra("cpu"),
        ),
    ],
)
def test_an_extra_that_is_not_installed(words: tuple[str, ...], what: str, fix: str) -> None:
    """The base install is acted: what the extras bring cannot be found."""
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('onnx', 'onnxruntime', 'numpy', 'google'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n" + START
    )
    shown = started(*words, code=code)
    assert shown.returncode == 3
    assert shown.stdout == ""
    assert shown.stderr.startswith(
        f"error: AOTC-I019 an extra is not installed\n  what:     {what}\n"
    )
    assert shown.stderr.endswith(f"  fix:      {fix}\n")


def test_an_attached_value_may_hold_a_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", "none.onnx", "-omy out.aotc"]) == 3
    assert "none.onnx" in capsys.readouterr().err
