"""The commands on a real artifact, and their documents against the committed schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from made_models import linear, save
from repository import ROOT
from schemas import path_of

from aotc.cli.main import main
from aotc.host.nvidia import missing_gpu

DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "digits.onnx"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("AOTC_STORE", str(home / "store"))
    monkeypatch.delenv("AOTC_SIGNING_KEY", raising=False)


@pytest.fixture(scope="module")
def artifact(home: Path) -> Path:
    """Built by the command itself, signed with a key of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_SIGNING_KEY", str(home / "release.pem"))
        assert main(["keygen", "-o", str(home / "release.pem")]) == 0
        words = ["build", str(MODEL), "--dim", "batch=1..32", "-o", str(home / "digits.aotc")]
        assert main(words) == 0
    return home / "digits.aotc"


@pytest.fixture
def trusted(artifact: Path, home: Path) -> list[str]:
    return [str(artifact), "--key", str(home / "release.pub")]


def document(capsys: pytest.CaptureFixture[str], schema: str) -> dict[str, Any]:
    shown = capsys.readouterr()
    assert shown.err == ""
    data: dict[str, Any] = json.loads(shown.out)
    folder, name = ("profiles", "profile") if schema == "profile" else ("manifests", schema)
    Draft202012Validator(json.loads(path_of(folder, name).read_text("utf-8"))).validate(data)
    assert data["schema"] == f"aotc.{schema}/1"
    return data


def test_build_answers_with_data(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["build", str(MODEL), "--dim", "batch=2", "-o", str(home / "two.aotc"), "--json"]
    assert main(words) == 0
    built = document(capsys, "build")
    assert built["development_key"] is True
    assert [each["name"] for each in built["variants"]] == ["portable"]
    # An artifact of the same model is replaced; of another model it is not, unless by force.
    assert main(words) == 0
    other = home / "other.onnx"
    save(linear(), other)
    capsys.readouterr()
    assert main(["build", str(other), *words[4:]]) == 3
    assert document(capsys, "error")["errors"][0]["code"] == "AOTC-I017"
    assert main(["build", str(other), *words[4:], "--force"]) == 0


def test_inspect(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(artifact), "--json"]) == 0
    said = document(capsys, "inspect")
    assert said["status"] == "UNVERIFIED"
    assert said["domain"]["dims"]["batch"]["origin"] == "stated"
    assert said["problems"] == []
    assert said["artifact"]["variants"][0]["worst"][0]["passed"] is True
    assert main(["inspect", str(MODEL), "--json"]) == 0
    plain = document(capsys, "inspect")
    assert (plain["kind"], plain["artifact"]) == ("model", None)
    assert plain["source"]["sha256"] == said["source"]["sha256"]
    assert main(["inspect", str(artifact)]) == 0
    assert "UNVERIFIED" in capsys.readouterr().out.splitlines()[0]


def test_verify(artifact: Path, trusted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *trusted, "--json"]) == 0
    said = document(capsys, "verify")
    assert (said["authentic"], said["verdict"]) == (True, "optimal")
    assert main(["verify", str(artifact), "--json"]) == 1
    unknown = document(capsys, "verify")
    assert (unknown["authentic"], unknown["verdict"]) == (False, "unverified")
    assert unknown["refusals"][0]["code"] == "AOTC-G002"
    other = "linux-arm64" if said["steps"] and _x86() else "linux-x86-64"
    assert main(["verify", *trusted, "--target", other]) == 1
    shown = capsys.readouterr()
    assert "INCOMPATIBLE" in shown.out.splitlines()[0]
    assert shown.err == ""


def _x86() -> bool:
    import platform

    return platform.machine().lower() in ("x86_64", "amd64")


def test_run_on_fixtures_and_on_files(
    trusted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *trusted, "--json"]) == 0
    runs = document(capsys, "run")["runs"]
    assert runs
    assert all(each["outputs"][0]["name"] == "logits" for each in runs)
    images = np.load(DIGITS / "heldout.npz")["image"][:3]
    np.savez(tmp_path / "three.npz", image=images, label=np.arange(3))
    np.save(tmp_path / "three.npy", images)
    for word in (str(tmp_path / "three.npz"), f"image={tmp_path / 'three.npy'}"):
        words = ["run", *trusted, "--input", word, "--output-dir", str(tmp_path / "out"), "--json"]
        assert main(words) == 0
        [case] = document(capsys, "run")["runs"]
        assert case["outputs"][0]["value"] == "float32[3, 10]"
        logits = np.load(case["outputs"][0]["file"])
        assert float(logits.max()) == case["outputs"][0]["maximum"]


@pytest.mark.parametrize(
    ("word", "status", "code", "what"),
    [
        ("imge=a.npy", 2, "AOTC-I027", "the model has no input 'imge'; did you mean 'image'?"),
        ("a.npy", 2, "AOTC-I027", "the input is not of a usable form"),
        ("image=none.npy", 3, "AOTC-I001", "no such input file"),
        ("none.npz", 3, "AOTC-I001", "no such input file"),
        (f"image={MODEL}", 2, "AOTC-I027", "a value cannot be read"),
    ],
)
def test_inputs_that_cannot_be_used(
    word: str,
    status: int,
    code: str,
    what: str,
    trusted: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", *trusted, "--input", word, "--json"]) == status
    error = document(capsys, "error")["errors"][0]
    assert (error["code"], error["what"]) == (code, what)


def test_run_writes_shapes_and_counters(
    trusted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    shapes = tmp_path / "shapes.jsonl"
    for name in ("counters.json", "counters.prom"):
        words = ["--record", str(shapes), "--metrics", str(tmp_path / name)]
        assert main(["run", *trusted, *words, "--json"]) == 0
        runs = len(document(capsys, "run")["runs"])
    counters = json.loads((tmp_path / "counters.json").read_text())
    schema = json.loads(path_of("manifests", "telemetry").read_text("utf-8"))
    Draft202012Validator(schema).validate(counters)
    assert counters["calls"] == runs > 0
    families = parser.text_string_to_metric_families((tmp_path / "counters.prom").read_text())
    samples = [each for family in families for each in family.samples]
    assert sum(each.value for each in samples if each.name == "aotc_calls_total") == runs
    lines = [json.loads(line) for line in shapes.read_text().splitlines()]
    assert [list(line) for line in lines] == [["image"]] * (2 * runs)

    words = ["--metrics", str(tmp_path / "counters.txt")]
    assert main(["run", *trusted, *words, "--json"]) != 0
    assert document(capsys, "error")["errors"][0]["code"] == "AOTC-I027"


def test_bench(trusted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", *trusted, "--runs", "3", "--dim", "batch=7", "--json"]
    assert main([*words, "--against", str(MODEL)]) == 0
    both = document(capsys, "bench")
    assert both["sizes"] == {"batch": 7}
    assert [each["name"] for each in both["timings"]] == ["artifact", "model"]
    first, second = (each["median_seconds"] for each in both["timings"])
    assert both["latency_ratio"] == first / second
    assert main(words) == 0
    alone = document(capsys, "bench")
    assert [each["name"] for each in alone["timings"]] == ["artifact"]
    assert alone["latency_ratio"] is None
    assert main([*words[:-3], "--dim", "bath=7", "--json"]) == 2
    error = document(capsys, "error")["errors"][0]
    assert error["what"] == "the artifact has no free dim 'bath'; did you mean 'batch'?"


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_store_of_ones_own(
    command: str,
    artifact: Path,
    trusted: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = [] if command == "run" else ["--runs", "1"]
    store = ["--store", str(tmp_path / "store")]
    assert main([command, *trusted, *more, *store, "--json"]) == 0
    found = document(capsys, command)["load"]
    name = f"sha256-{found['artifact_id']}"
    assert [each.name for each in (tmp_path / "store").glob("sha256-*")] == [name]
    # The name of an entry will do, in that store alone.
    by_name = [name, *trusted[1:], *more, "--json"]
    assert main([command, *by_name, *store]) == 0
    assert document(capsys, command)["load"]["from_store"] is True
    assert main([command, *by_name, "--store", str(tmp_path / "other")]) == 3
    assert document(capsys, "error")["errors"][0]["code"] == "AOTC-I001"


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_policy_judges_for_a_channel(
    command: str,
    artifact: Path,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    policy = str(tmp_path / "trust.yaml")
    signer = f"release={home / 'release.pub'}"
    assert main(["trust", "init", "--name", "p", "--signer", signer, "-o", policy]) == 0
    words = ["--rule", "default", "--match-channel", "prod", "--require", "oms:release"]
    assert main(["trust", "add", policy, *words]) == 0
    capsys.readouterr()
    more = [] if command == "run" else ["--runs", "1"]
    words = [command, str(artifact), "--trust", policy, *more, "--json"]
    assert main([*words, "--channel", "prod"]) == 0
    document(capsys, command)
    assert main([*words, "--channel", "lab"]) == 1
    assert document(capsys, "error")["errors"][0]["code"] == "AOTC-G023"


def test_other_documents(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) in (0, 1)
    names = [each["name"] for each in document(capsys, "doctor")["checks"]]
    assert {"Python", "ONNX Runtime", "store", "development key"} <= set(names)
    assert main(["profile", "show", "edge", "--json"]) == 0
    document(capsys, "profile")
    assert main(["profile", "list", "--json"]) == 0
    document(capsys, "list")
    assert main(["explain", "I001", "--json"]) == 0
    document(capsys, "explain")
    assert main(["keygen", "-o", str(home / "other.pem"), "--json"]) == 0
    document(capsys, "keygen")


def test_doctor_says_what_gpus_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, that is a note, and no library of CUDA is asked for."""
    if not missing_gpu():
        pytest.skip("this machine has an NVIDIA GPU; tests/gpu looks at it")
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["doctor", "--json"])
    found = document(capsys, "doctor")
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["GPU"]["status"] == "note"
    assert checks["GPU"]["found"] == "no NVIDIA GPU found"
    assert "CUDA libraries" not in checks
    assert found["nvidia"].get("gpus", []) == []


def test_doctor_names_a_key_that_others_can_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "open.pem"
    assert main(["keygen", "-o", str(path)]) == 0
    path.chmod(0o644)
    monkeypatch.setenv("AOTC_SIGNING_KEY", str(path))
    capsys.readouterr()
    assert main(["doctor", "--json"]) == 1
    [check] = [
        each for each in document(capsys, "doctor")["checks"] if each["name"] == "AOTC_SIGNING_KEY"
    ]
    assert (check["status"], check["fix"]) == ("failed", f"chmod 600 {path}")
