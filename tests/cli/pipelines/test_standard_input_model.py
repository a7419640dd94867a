"""`-` as a model is standard input, and as a file standard output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import onnx
import pytest
from command import SCRIPT, Command, Outcome
from made_models import linear, save, save_external
from terminal import on_a_terminal


def given(aotc: Command, data: bytes, *words: str) -> Outcome:
    done = subprocess.run(
        [str(SCRIPT), *words],
        input=data,
        cwd=aotc.folder,
        env=aotc.environment(),
        capture_output=True,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err
    return Outcome(status=done.returncode, stdout=out, stderr=err)


def test_a_build_of_what_comes_in(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    data = (aotc.folder / "model.onnx").read_bytes()
    piped = given(aotc, data, "build", "-", "-o", "piped.aotc", "--json")
    assert piped.status == 0, piped
    filed = aotc("build", "model.onnx", "--json")
    assert piped.document["artifact_id"] == filed.document["artifact_id"]
    # It is the same model as the file's, so its artifact is replaced.
    again = given(aotc, data, "build", "-", "-q")
    assert (again.stdout, again.stderr) == (f"{filed.document['artifact_id']}\n", "")
    assert aotc.leftovers() == []


def test_an_inspection_of_what_comes_in(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    data = (aotc.folder / "model.onnx").read_bytes()
    shown = given(aotc, data, "inspect", "-", "--json").document
    assert (shown["kind"], shown["path"], shown["name"]) == ("model", "-", "model")
    assert given(aotc, data, "inspect", "-").stdout.startswith("-  UNVERIFIED")
    assert aotc.leftovers() == []


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_a_model_with_external_data_is_refused(aotc: Command, command: str) -> None:
    path, _ = save_external(aotc.folder)
    refused = given(aotc, path.read_bytes(), command, "-", "--json")
    first = refused.refused("AOTC-I054", 3)
    assert first["where"] == "standard input"
    assert str(aotc.folder / "tmp") not in refused.stdout
    outside = onnx.load(path, load_external_data=False)
    for entry in outside.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../../etc/passwd"
    data = outside.SerializeToString()
    assert given(aotc, data, command, "-", "--json").refused("AOTC-I054", 3)
    assert aotc.leftovers() == []


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_what_is_no_model_is_refused(aotc: Command, command: str) -> None:
    assert given(aotc, b"", command, "-", "--json").refused("AOTC-I053", 3)
    broken = given(aotc, b"no model", command, "-", "--json")
    assert broken.refused("AOTC-I002", 3)["where"] == "standard input"


def test_a_model_larger_than_any_is_refused(aotc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gibibytes are not written in a test: the limit is lowered."""
    import io
    import sys

    from aotc.base.errors import AotcError
    from aotc.cli import output

    monkeypatch.setenv("TMPDIR", str(aotc.folder))
    monkeypatch.setattr(output, "_MAX_BYTES", 1000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1001)))
    with pytest.raises(AotcError) as refused, output.model_given(Path("-")):
        pass
    assert refused.value.code == "AOTC-I053"
    assert refused.value.found == "more than 1000 bytes"


def test_a_terminal_is_not_waited_for(aotc: Command) -> None:
    status, sent, _ = on_a_terminal(aotc, "build", "-", from_terminal=True)
    assert status == 3
    assert "AOTC-I053" in sent


def test_counters_on_standard_output(aotc: Command) -> None:
    save(linear(), aotc.folder / "model.onnx")
    assert aotc.plain("build", "model.onnx", "-q").status == 0
    done = aotc.plain("run", "model.aotc", "--metrics", "-")
    assert json.loads(done.stdout)["schema"] == "aotc.telemetry/1"
    assert done.stderr.startswith("model.aotc  loaded, ")
    assert aotc.plain("run", "model.aotc", "--metrics", "-", "-q").stderr == ""
    assert aotc("run", "model.aotc", "--metrics", "-").refused("AOTC-I055", 3)
    assert not (aotc.folder / "-").exists()


def test_a_target_to_a_file_or_standard_output(aotc: Command) -> None:
    shown = aotc.plain("target", "probe", "-").stdout
    assert shown == aotc.plain("target", "probe").stdout
    assert aotc.plain("target", "probe", "host.yaml").stdout == ""
    assert (aotc.folder / "host.yaml").read_text() == shown
    assert aotc("target", "probe", "host.yaml").refused("AOTC-I017", 3)
    both = aotc("target", "probe", "host.yaml", "--force")
    assert both.document["schema"] == "aotc.target/1"
    assert not (aotc.folder / "-").exists()
