"""`aotc build` for providers, cache and tuning: options, refusals in words, tables of breaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from command import Command, Outcome
from onnx import TensorProto, helper, numpy_helper

OPENVINO = "OpenVINOExecutionProvider"
SIZE = 16


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a folder with `model.onnx`: dense, an operator of ORT's own, dense."""

    def weight(name: str) -> onnx.TensorProto:
        values = np.random.default_rng(len(name)).standard_normal((SIZE, SIZE)) / 4
        return numpy_helper.from_array(values.astype(np.float32), name)

    shape = [2, 4, SIZE]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
            helper.make_node("Trilu", ["a"], ["b"], name="odd", domain="com.microsoft"),
            helper.make_node("MatMul", ["b", "other"], ["y"], name="last"),
        ],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weight("w"), weight("other")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    return Command(tmp_path)


def profile(aotc: Command, name: str = "p", **fields: Any) -> Path:
    """A profile file, its partitions kept however small, proven on few sizes."""
    stated = {
        "schema": "aotc.profile/1",
        "name": name,
        "partitioning": {"weigh_boundaries": False},
        "parity": {"random_shapes": 0},
        **fields,
    }
    path = aotc.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(stated))
    return path


def refused(aotc: Command, code: str, status: int, *words: str | Path) -> dict[str, Any]:
    """The first refusal of `aotc build model.onnx`; it says how to fix it, and leaves nothing."""
    before = {each.name for each in aotc.folder.iterdir()}
    first = aotc("build", "model.onnx", "-o", "out.aotc", *words).refused(code, status)
    assert first["fix"]
    assert {each.name for each in aotc.folder.iterdir()} <= before | {"home", "tmp"}
    assert aotc.leftovers() == []
    return first


def told(aotc: Command, code: str, status: int, *words: str | Path) -> str:
    """The same for a person: on standard error alone, after the stages that ran."""
    shown = aotc.plain("build", "model.onnx", "-o", "out.aotc", *words)
    assert (shown.status, shown.stdout) == (status, "")
    assert f"\nerror: {code} " in f"\n{shown.stderr}"
    assert "fix: " in shown.stderr
    return shown.stderr


def built(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status == 0, outcome
    return outcome.document


# The cache.


def test_the_second_build_is_taken_from_the_cache(aotc: Command) -> None:
    first = built(aotc("build", "model.onnx", "-o", "one.aotc"))
    again = built(aotc("build", "model.onnx", "-o", "two.aotc"))
    assert (first.get("cached", False), again["cached"]) == (False, True)
    assert again["artifact_id"] == first["artifact_id"]
    assert aotc("verify", "two.aotc").document["verdict"] == "optimal"
    listed = aotc("cache", "list").document
    assert [each["kind"] for each in listed["entries"]] == ["artifact"]
    assert Path(listed["folder"]).is_relative_to(aotc.folder)


def test_no_cache(aotc: Command) -> None:
    built(aotc("build", "model.onnx", "-o", "one.aotc", "--no-cache"))
    assert aotc("cache", "list").document["entries"] == []
    built(aotc("build", "model.onnx", "-o", "two.aotc"))
    anew = built(aotc("build", "model.onnx", "-o", "three.aotc", "--no-cache"))
    assert not anew.get("cached", False)


def test_a_cache_that_cannot_be_used_is_a_finding(aotc: Command) -> None:
    file = aotc.folder / "file"
    file.write_text("no folder")
    told = built(Command(aotc.folder, {"AOTC_CACHE": str(file)})("build", "model.onnx"))
    assert "AOTC-R014" in [each["code"] for each in told["findings"]]


# Tuning.


def test_tuned_and_repeated(aotc: Command) -> None:
    path = profile(aotc, tune={"threads": [1, 2], "rounds": 3})
    tuned = built(aotc("build", "model.onnx", "--profile", path, "-o", "one.aotc", "--tune"))
    assert [each.get("threads") for each in tuned["tuning"]] == [None, 1, 2]
    (winner,) = (each for each in tuned["tuning"] if each.get("chosen"))
    assert winner["median_seconds"] == min(each["median_seconds"] for each in tuned["tuning"])
    words = ("build", "model.onnx", "--profile", path, "--tuned-from")
    again = built(aotc(*words, "one.aotc", "-o", "two.aotc"))
    assert again["artifact_id"] == tuned["artifact_id"]
    assert "tune" not in again["stages"]
    evidence = Path("one.aotc") / "attestations" / "evidence.sigstore.json"
    third = built(aotc(*words, evidence, "-o", "three.aotc"))
    assert third["artifact_id"] == tuned["artifact_id"]
    first = refused(aotc, "AOTC-O006", 3, "--tuned-from", "one.aotc")
    assert "do not match this profile's candidates" in first["what"]


def test_the_table_is_shown(aotc: Command) -> None:
    path = profile(aotc, tune={"threads": [1], "rounds": 3})
    words = ("build", "model.onnx", "--profile", path, "-o", "one.aotc", "--tune")
    shown = aotc.plain(*words)
    assert shown.status == 0, shown
    assert "tuning" not in shown.stdout
    full = aotc.plain(*words, "-v", "--force")
    for text in (full.stdout, aotc.plain("inspect", "one.aotc").stdout):
        for word in ("tuning", "median", "chosen"):
            assert word in text, text


def test_tune_and_tuned_from_exclude_each_other(aotc: Command) -> None:
    shown = aotc.plain("build", "model.onnx", "--tune", "--tuned-from", "one.aotc")
    assert (shown.status, shown.stdout) == (2, "")
    assert "not allowed with argument --tune" in shown.stderr
    assert "See 'aotc build --help'" in shown.stderr


def test_tuned_from_wants_a_path(aotc: Command) -> None:
    shown = aotc.plain("build", "model.onnx", "--tuned-from")
    assert shown.status == 2
    assert "--tuned-from: expected one argument" in shown.stderr


def test_the_help_names_them(aotc: Command) -> None:
    shown = aotc.plain("build", "--help")
    assert shown.status == 0
    for word in ("--tune", "--tuned-from EVIDENCE", "--no-cache"):
        assert word in shown.stdout


def test_evidence_that_does_not_fit(aotc: Command) -> None:
    built(aotc("build", "model.onnx", "-o", "plain.aotc"))
    first = refused(aotc, "AOTC-O006", 3, "--tuned-from", "plain.aotc")
    assert "without --tune" in first["what"]
    (aotc.folder / "text.json").write_text("no evidence")
    refused(aotc, "AOTC-O006", 3, "--tuned-from", "text.json")
    refused(aotc, "AOTC-I001", 3, "--tuned-from", "nothing.json")


# Providers that cannot be had.


def test_an_unknown_provider(aotc: Command) -> None:
    path = profile(aotc, providers=["openvinno", "cpu"])
    first = refused(aotc, "AOTC-P007", 3, "--profile", path)
    assert "openvinno" in first["what"] + first["found"]
    for name in ("cpu", "cuda", "openvino", "tensorrt", "tensorrt_rtx"):
        assert name in first["expected"]
    assert "openvinno" in told(aotc, "AOTC-P007", 3, "--profile", path)


def test_tensorrt_without_nvidias_library(aotc: Command) -> None:
    """Before the model is read, and before a session is created."""
    from aotc.providers.tensorrt import TensorRtBackend

    if TensorRtBackend().probe().available:
        pytest.skip("NVIDIA's TensorRT library is here")
    first = refused(aotc, "AOTC-P004", 3, "--profile", "server-tensorrt")
    assert "libnvinfer.so.10" in first["found"]
    assert "tensorrt-cu13-libs" in first["fix"]
    assert "allback" not in str(first)


def test_a_plugin_that_is_not_there(aotc: Command) -> None:
    spec = {"provider": "AcmeExecutionProvider", "library": "/nowhere/libacme_ep.so"}
    path = profile(aotc, providers=["acme", "cpu"], plugins={"acme": spec})
    first = refused(aotc, "AOTC-P004", 3, "--profile", path)
    assert "/nowhere/libacme_ep.so" in f"{first['what']} {first['where']} {first['found']}"


def test_a_library_that_is_no_plugin(aotc: Command) -> None:
    library = aotc.folder / "libacme_ep.so"
    library.write_bytes(b"\x7fELF no library")
    spec = {"provider": "AcmeExecutionProvider", "library": str(library)}
    path = profile(aotc, providers=["acme", "cpu"], plugins={"acme": spec})
    refused(aotc, "AOTC-P004", 3, "--profile", path)


@pytest.mark.openvino
def test_a_precision_that_no_provider_has(aotc: Command) -> None:
    path = profile(aotc, providers=["openvino", "cpu"], precision="tf32")
    first = refused(aotc, "AOTC-N008", 3, "--profile", path)
    assert (first["where"], first["found"]) == ("precision", "tf32")
    assert "bfloat16" in first["expected"]


@pytest.mark.rtx
@pytest.mark.parametrize("stated", [["7.7"], []])
def test_an_unknown_compute_capability(aotc: Command, stated: list[str]) -> None:
    path = profile(
        aotc,
        providers=["tensorrt_rtx", "cpu"],
        unproven="allow",
        compute_capabilities=stated,
    )
    first = refused(aotc, "AOTC-P010", 3, "--profile", path)
    assert first["where"] == "compute_capabilities"
    assert {"8.6", "8.9", "12.0"} <= set(first["expected"].split(", "))
    assert first["found"] == "".join(stated)


@pytest.mark.parametrize("stated", ["ada", "89", "8.9.1"])
def test_a_capability_that_is_none(aotc: Command, stated: str) -> None:
    path = profile(aotc, compute_capabilities=[stated])
    outcome = aotc("build", "model.onnx", "--profile", path)
    assert outcome.status == 3
    assert "compute_capabilities" in outcome.first["where"]


def test_what_this_machine_cannot_run_is_not_promised(aotc: Command) -> None:
    """CUDA without a GPU, and no word in the profile that this is meant."""
    from aotc.providers.cuda import CudaBackend

    if CudaBackend().probe().runs:
        pytest.skip("this machine runs CUDA")
    path = profile(aotc, providers=["cuda", "cpu"])
    first = refused(aotc, "AOTC-N002", 1, "--profile", path)
    assert "cuda: " in first["what"]


# Budgets and their tables.


@pytest.mark.openvino
@pytest.mark.parametrize(
    ("budgets", "what", "expected"),
    [
        ({"partitions": 2}, "partitions exceed budgets.partitions", "<= 2"),
        ({"transfer_bytes": 100}, "budgets.transfer_bytes", "<= 100"),
        ({"cpu_share": 0.001}, "budgets.cpu_share", "<= 0.001"),
        (
            {"providers": {"openvino": {"min_node_share": 0.9}}},
            "share of nodes on openvino",
            "0.9..1",
        ),
    ],
)
def test_a_budget_that_is_exceeded_is_told_with_a_table(
    aotc: Command, budgets: dict[str, Any], what: str, expected: str
) -> None:
    path = profile(aotc, providers=["openvino", "cpu"], budgets=budgets)
    first = refused(aotc, "AOTC-P002", 1, "--profile", path)
    assert what in first["what"]
    assert first["expected"] == expected
    (row,) = first["rows"]
    assert list(row) == ["node", "op", "domain", "refused by", "reason", "fix"]
    assert (row["node"], row["op"], row["domain"]) == ("odd", "Trilu", "com.microsoft")
    assert row["refused by"] == OPENVINO
    assert "Trilu" in row["reason"]


@pytest.mark.openvino
def test_all_breaches_are_told_with_one_table(aotc: Command) -> None:
    budgets = {"partitions": 2, "transfer_bytes": 100}
    path = profile(aotc, providers=["openvino", "cpu"], budgets=budgets)
    outcome = aotc("build", "model.onnx", "--profile", path)
    assert outcome.codes == ["AOTC-P002", "AOTC-P002"]
    assert outcome.status == outcome.document["exit_status"] == 1
    text = told(aotc, "AOTC-P002", 1, "--profile", path)
    assert "and 1 more:" in text
    assert text.count("refused by") == 1
    for word in (
        "node",
        "op",
        "domain",
        "reason",
        "fix",
        "odd",
        "Trilu",
        "com.microsoft",
        "OpenVINO",
    ):
        assert word in text


@pytest.mark.openvino
def test_a_node_without_a_provider_is_named(aotc: Command) -> None:
    path = profile(aotc, providers=["openvino"])
    first = refused(aotc, "AOTC-P001", 1, "--profile", path)
    assert "odd" in first["what"] and "Trilu" in first["what"]
    assert "openvino" in first["expected"]
    assert "Add cpu to the profile's providers" in first["fix"]


@pytest.mark.openvino
def test_partitions_and_borders_are_shown(aotc: Command) -> None:
    path = profile(aotc, providers=["openvino", "cpu"])
    shown = aotc.plain("build", "model.onnx", "--profile", path, "-o", "out.aotc", "-v")
    assert shown.status == 0, shown
    again = aotc.plain("inspect", "out.aotc")
    for text in (shown.stdout, again.stdout):
        for word in ("OpenVINO", "transfers", "odd", "Trilu"):
            assert word in text, text
    document = json.loads(aotc.plain("inspect", "out.aotc", "--json").stdout)
    (variant,) = document["artifact"]["variants"]
    assert len(variant["partitioning"]["partitions"]) == 3


def test_precision_of_the_command_line_goes_before_the_profile(aotc: Command) -> None:
    told = refused(aotc, "AOTC-N008", 3, "--profile", profile(aotc), "--precision", "tf32")
    assert told["found"] == "tf32"
    told = refused(aotc, "AOTC-I027", 2, "--profile", profile(aotc), "--precision", "half")
    assert (told["where"], told["expected"]) == (
        "--precision half",
        "keep, tf32, float16, bfloat16, int8, int4, auto",
    )
