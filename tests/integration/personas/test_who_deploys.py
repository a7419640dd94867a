"""Those who take artifacts: a deployer whose host has no ONNX Runtime, and who runs a service."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from built_wheel import base_install, build_wheel
from command import Command
from repository import ROOT
from typist import DIGITS, Typist, free_port


def flipped(artifact: str) -> str:
    """What is typed to change one byte of an artifact's weights."""
    weights = f"$(ls {artifact}/payload/shared_assets/*/weights.bin)"
    return f"printf '\\001' | dd of={weights} bs=1 seek=1000 conv=notrunc 2>/dev/null"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a builder publishes: an artifact, packed, and the public key."""
    builder = Command(tmp_path_factory.mktemp("builder"))
    shutil.copy(DIGITS / "digits.onnx", builder.folder)
    for words in (
        "keygen -o release.pem",
        "build digits.onnx --key release.pem -o digits.aotc",
        "pack digits.aotc",
    ):
        assert builder.plain(*words.split()).status == 0
    return builder.folder


def test_a_deployer_without_onnx_says_yes_and_no(release: Path, tmp_path: Path) -> None:
    python = base_install(tmp_path / "base", build_wheel(tmp_path))
    command = python.with_name("aotc")
    command.write_text(f"#!{python}\nfrom aotc.cli.main import main\nraise SystemExit(main())\n")
    command.chmod(0o755)
    typist = Typist(tmp_path / "deployer", python.parent, toolchain="")
    typist.types("python -c 'import onnxruntime' 2>&1 | grep ModuleNotFoundError")
    typist.types(f"cp {release}/digits.aotc.zip {release}/release.pub .")
    verify = "aotc verify digits.aotc.zip --key release.pub"
    assert "AUTHENTIC" in typist.types(verify).upper()
    assert "VERIFIED" in typist.types(f"{verify} --target linux-x86-64")
    # Whoever else signs is not trusted, and the development key is nobody's here.
    assert "AOTC-G" in typist.types("aotc verify digits.aotc.zip --target linux-x86-64", status=1)
    assert "portable" in typist.types("aotc inspect digits.aotc.zip")
    typist.types("aotc unpack digits.aotc.zip")
    typist.types(flipped("digits.aotc"))
    said = typist.types("aotc verify digits.aotc --key release.pub --target linux-x86-64", status=1)
    assert "REFUSED" in said
    assert "AOTC-G005" in said
    assert "signed" in typist.types("aotc explain AOTC-G005")
    # What it cannot do here, it says with what to install.
    assert "onnxruntime" in typist.types("aotc run digits.aotc.zip --key release.pub", status=3)


def test_an_operator_installs_serves_and_replaces(release: Path, tmp_path: Path) -> None:
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(module) is None:
            pytest.skip(f"nothing is served: there is no {module}")
    typist = Typist(tmp_path)
    typist.types(f"cp {release}/digits.aotc.zip {release}/release.pub .")
    typist.types(f"cp {ROOT}/examples/serve/app.py .")
    typist.types("aotc verify digits.aotc.zip --key release.pub")
    found = json.loads(typist.types("aotc install digits.aotc.zip --key release.pub --json"))
    entry = f"sha256-{found['artifact_id']}"
    assert found["artifact_id"][:12] in typist.types("aotc store list")
    assert "optimal" in typist.types(f"aotc run {entry} --key release.pub --metrics run.prom")
    assert "aotc_" in typist.text("run.prom")
    # A server on the artifact behind a link: ready, measured, and replaced without a restart.
    typist.types("aotc unpack digits.aotc.zip -o 1.aotc && ln -s 1.aotc live.aotc")
    base = f"http://127.0.0.1:{free_port()}"
    serve = f"python -m uvicorn app:app --port {base.rpartition(':')[2]}"
    told = {"AOTC_ARTIFACT": "live.aotc", "AOTC_TRUST": "release.pub"}
    with typist.starts(serve, f"{base}/healthz/live", **told):
        ready = typist.waits_for(f"{base}/healthz/ready", said=found["artifact_id"][:12])
        assert json.loads(ready)
        assert "aotc_" in typist.waits_for(f"{base}/metrics", said="aotc_")
        # One that somebody else signed is refused, and the one before goes on answering.
        typist.types(f"aotc build {DIGITS}/digits.onnx -o 2.aotc && ln -sfn 2.aotc live.aotc")
        refused = typist.waits_for(f"{base}/healthz/ready", said="AOTC-G")
        assert found["artifact_id"][:12] in refused
    typist.types("aotc store prune --limit 1GB")
    typist.types(f"aotc store remove {found['artifact_id'][:12]}")
    assert found["artifact_id"][:12] not in typist.types("aotc store list")
