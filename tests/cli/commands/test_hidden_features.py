"""What was built for a CPU some of whose features were hidden runs nowhere else."""

from __future__ import annotations

from pathlib import Path

from command import Command
from made_models import linear, save


def test_a_native_variant_is_for_hosts_with_the_same_hidden(tmp_path: Path) -> None:
    """ONNX Runtime looks at the CPU itself: the variant may use what the probe did not report."""
    save(linear(), tmp_path / "linear.onnx")
    hiding = Command(tmp_path, {"AOTC_HOST_ISA": ""})
    assert hiding("build", "linear.onnx", "-o", "out.aotc", "--profile", "server-cpu").status == 0
    variants = hiding("inspect", "out.aotc").document["artifact"]["variants"]
    native = next(each["name"] for each in variants if each["requirements"]["isa"])
    there = hiding("verify", "out.aotc")
    assert (there.status, there.document["verdict"]) == (0, "optimal")
    here = Command(tmp_path)("verify", "out.aotc")
    assert (here.status, here.document["verdict"]) == (0, "degraded")
    (refused,) = (each for each in here.document["variants"] if each["name"] == native)
    assert [each["code"] for each in refused["reasons"]] == ["AOTC-C004"]
    assert "lesser" in refused["reasons"][0]["expected"]
