"""The page of an artifact: what is on it, read back by a reader of HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from drawn_artifacts import DIGITS, built, read_page, text_of
from third_party_models import MODELS, needs_models

from aotc.base.errors import AotcError, Place
from aotc.report.html.artifact_page import artifact_page, run_page, write_page
from aotc.spec.bench_reports import BenchReport, NodesReport, NodeTime
from aotc.spec.codec import encode
from aotc.spec.reports import LoadReport, Refusal
from aotc.spec.run_report import Gate, Measurement, RunReport

LOOSE = """\
schema: aotc.profile/1
name: loose
providers: [cuda, cpu]
variants:
  - {name: portable, isa: baseline}
unproven: allow
fallback: {policy: cpu}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("digits"), DIGITS, "--dim", "batch=1..8")


@pytest.fixture(scope="module")
def text(artifact: Path) -> str:
    return artifact_page(artifact)


@pytest.fixture(scope="module")
def page(text: str) -> Element:
    return read_page(text)


def part(page: Element, anchor: str) -> Element:
    found = page.find(f".//section[@id='{anchor}']")
    assert found is not None
    return found


def test_only_style_and_script_of_ours_are_allowed(page: Element) -> None:
    policy = page.find(".//meta[@http-equiv='Content-Security-Policy']")
    scripts, styles = list(page.iter("script")), list(page.iter("style"))
    assert policy is not None
    assert len(scripts) == len(styles) == 1
    rules = dict(rule.split(" ", 1) for rule in policy.get("content", "").split("; "))
    for element, rule in ((scripts[0], "script-src"), (styles[0], "style-src")):
        digest = hashlib.sha256((element.text or "").encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert rules["default-src"] == "'none'"
    assert not any("style" in e.attrib or "src" in e.attrib for e in page.iter())
    handlers = [name for e in page.iter() for name in e.attrib if name.startswith("on")]
    assert handlers == []


def test_claims_are_told_as_claims(page: Element, artifact: Path) -> None:
    said = text_of(page)
    assert "No signature and no digest was checked when it was written" in said
    claims = text_of(part(page, "claims"))
    digest = hashlib.sha256((artifact / "payload/aotc.json").read_bytes()).hexdigest()
    assert digest in claims
    assert "It claims that 1 of 1 variants gave the model's answers" in claims
    assert "None of these signatures was checked." in claims
    for name in ("oms", "evidence", "provenance", "sbom"):
        assert name in claims


def test_every_node_is_drawn_once_and_in_the_table(page: Element, artifact: Path) -> None:
    manifest = json.loads((artifact / "payload/aotc.json").read_text("utf-8"))
    (variant,) = manifest["variants"]
    names = {node["name"] for node in variant["placement"]["nodes"]}
    graph = part(page, "graph")
    drawn = [e for e in graph.iter("g") if e.get("class", "").startswith("node")]
    assert len(drawn) == len(names)
    table = next(e for e in graph.iter("table") if e.get("class") == "nodes")
    rows = list(table.iter("tr"))[1:]
    assert {text_of(row[0]) for row in rows} == names
    assert all(text_of(row[3]) == "CPU" for row in rows)
    assert {e.get("id", "").replace("-n", "-r") for e in drawn} == {row.get("id") for row in rows}


def test_times_that_nobody_measured_are_said_to_be_missing(page: Element) -> None:
    assert "were not measured" in text_of(part(page, "graph"))


def timed(artifact: Path, file: Path, **change: object) -> Path:
    """A document like those of `aotc bench --nodes --json`, with a time for every node."""
    content = (artifact / "payload/aotc.json").read_bytes()
    placed = json.loads(content)["variants"][0]["placement"]["nodes"]
    nodes = [
        NodeTime(
            name=each["name"],
            op=each["op"],
            provider=each["provider"],
            calls=1.0,
            seconds=(index + 1) * 1e-3,
            share=0.1,
        )
        for index, each in enumerate(placed)
    ]
    report = BenchReport(
        artifact=str(artifact),
        variant="portable",
        sizes={},
        runs=1,
        load=LoadReport(
            artifact_id=hashlib.sha256(content).hexdigest(),
            variant="portable",
            verdict="optimal",
            from_store=False,
            verify_seconds=0.0,
            session_seconds=0.0,
            warmup_seconds=0.0,
            fixtures=0,
        ),
        timings=(),
        nodes=NodesReport(
            variant="portable",
            profiled_runs=1,
            runs=1,
            run_seconds=1.0,
            node_seconds=1.0,
            providers=(),
            nodes=tuple(nodes),
        ),
    )
    file.write_text(json.dumps({**encode(report, full=True), **change}))
    return file


def test_measured_times_and_their_shares(artifact: Path, tmp_path: Path) -> None:
    file = timed(artifact, tmp_path / "times.json")
    stated = json.loads(file.read_text())["nodes"]["nodes"]
    times = {node["name"]: node["seconds"] for node in stated}
    measured = read_page(artifact_page(artifact, times=file))
    table = next(e for e in measured.iter("table") if e.get("class") == "nodes")
    total = sum(times.values())
    for row in list(table.iter("tr"))[1:]:
        seconds = times[text_of(row[0])]
        assert text_of(row[-2]) == f"{seconds * 1e3:#.3g} ms"
        assert text_of(row[-1]) == f"{seconds / total:.1%}"
    assert "The slowest of" in text_of(part(measured, "graph"))


def test_times_that_are_all_0_have_no_shares(artifact: Path, tmp_path: Path) -> None:
    file = timed(artifact, tmp_path / "times.json")
    document = json.loads(file.read_text())
    for node in document["nodes"]["nodes"]:
        node["seconds"] = 0.0
    file.write_text(json.dumps(document))
    measured = read_page(artifact_page(artifact, times=file))
    assert "The slowest of" in text_of(part(measured, "graph"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"schema": "aotc.inspect/1"}, "the document is not of 'aotc bench'"),
        ({"nodes": None}, "the document has no times of nodes"),
        ({"nodes": {"nodes": [{"name": 1}]}}, "the document is not of 'aotc bench'"),
    ],
)
def test_other_documents_are_no_times(
    artifact: Path, tmp_path: Path, change: dict[str, object], what: str
) -> None:
    with pytest.raises(AotcError) as refused:
        artifact_page(artifact, times=timed(artifact, tmp_path / "times.json", **change))
    assert (refused.value.code, refused.value.what) == ("AOTC-I058", what)


def test_times_of_another_artifact(artifact: Path, tmp_path: Path) -> None:
    file = timed(artifact, tmp_path / "times.json")
    document = json.loads(file.read_text())
    document["load"]["artifact_id"] = "0" * 64
    file.write_text(json.dumps(document))
    with pytest.raises(AotcError) as refused:
        artifact_page(artifact, times=file)
    assert refused.value.what == "the document is about another artifact"


def test_memory_has_the_node_at_the_peak(page: Element, artifact: Path) -> None:
    charts = [e for e in part(page, "memory").iter("svg") if e.get("class") == "chart"]
    assert len(charts) == 2
    # Of 8 images of 8 x 8: the largest live values are two of 16 channels in float32.
    said = charts[1].get("aria-label", "")
    assert "the peak is" in said
    assert "at node" in said


def test_sizes_exactness_passes_and_manifest_are_there(page: Element, artifact: Path) -> None:
    rows = [[text_of(cell) for cell in row] for row in part(page, "shapes").iter("tr")]
    assert ["batch", "1..8, optimal 3"] in [row[:2] for row in rows]
    assert "No traffic is known" in text_of(part(page, "shapes"))
    exact = text_of(part(page, "exactness"))
    assert "logits passed" in exact
    assert "Errors of single nodes were not measured" in exact
    manifest = json.loads((artifact / "payload/aotc.json").read_text("utf-8"))
    passes = text_of(part(page, "passes"))
    for ran in manifest["variants"][0]["passes"]:
        assert f"{ran['name']}" in passes
    shown = {}
    for details in part(page, "manifest").iter("details"):
        summary, block = details
        shown[text_of(summary).split(" ")[0]] = json.loads(block.text or "")
    assert shown == manifest


def test_traffic_is_shown_where_it_is_known(artifact: Path, tmp_path: Path) -> None:
    traffic = tmp_path / "traffic.jsonl"
    traffic.write_text('{"batch": 2, "count": 3}\n{"batch": 99}\n')
    shapes = text_of(part(read_page(artifact_page(artifact, traffic=traffic)), "shapes"))
    assert "4, 75.0% accepted" in shapes
    assert "refused: " in shapes


def test_a_model_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(AotcError) as refused:
        write_page(DIGITS, tmp_path / "x.html")
    assert refused.value.code == "AOTC-I057"
    assert not (tmp_path / "x.html").exists()


def test_a_graph_that_cannot_be_read_leaves_the_rest(artifact: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken.aotc"
    shutil.copytree(artifact, broken)
    for model in broken.glob("payload/*/*/model.onnx"):
        model.chmod(0o644)
        model.write_bytes(b"\x0a\xff not a model")
    page = read_page(artifact_page(broken))
    assert "Not drawn: AOTC-I056" in text_of(part(page, "graph"))
    assert "logits passed" in text_of(part(page, "exactness"))


def test_a_run_that_built_nothing_has_a_page(tmp_path: Path) -> None:
    place = Place(file="profiles/edge.yaml", line=7, column=3)
    run = RunReport(
        tool_version="0",
        exit_status=1,
        command="build",
        outcome="failed",
        gates=(
            Gate(
                name="budgets.cpu_share",
                subject="portable",
                limit="0.1",
                measured="0.4",
                status="failed",
                place=place,
            ),
        ),
        refusals=(
            Refusal(
                code="AOTC-P005",
                what="too much <b>runs</b> on the CPU",
                where="portable",
                expected="at most 10%",
                found="40%",
                fix="Raise it.",
                place=place,
            ),
        ),
        findings=(),
    )
    page = read_page(run_page(None, run))
    said = text_of(page)
    assert "aotc build: failed" in said
    assert "too much <b>runs</b> on the CPU" in said
    assert "profiles/edge.yaml:7:3" in said
    assert "nothing was built" in said
    # Of an artifact that was refused, as `verify` may have it.
    said = text_of(read_page(run_page(tmp_path / "none.aotc", run)))
    assert "The artifact could not be read: AOTC-I001" in said
    assert "profiles/edge.yaml:7:3" in said


def test_a_run_and_its_artifact_are_on_one_page(artifact: Path, tmp_path: Path) -> None:
    run = RunReport(
        tool_version="0",
        exit_status=1,
        command="build",
        outcome="passed",
        gates=(),
        refusals=(),
        findings=(),
        measurements=(Measurement(name="payload", subject="", value=1e6, unit="bytes"),),
        stages={"optimize": 1.5},
    )
    page = read_page(run_page(artifact, run))
    assert "aotc build passed" in text_of(part(page, "run"))
    assert "1.0 MB" in text_of(part(page, "run"))
    assert part(page, "graph") is not None


@needs_models
def test_boundaries_and_refusals_of_two_providers(tmp_path: Path) -> None:
    profile = tmp_path / "loose.yaml"
    profile.write_text(LOOSE)
    model = MODELS / "mobilenet_qdq_int8.onnx"
    artifact = built(tmp_path, model, "--profile", str(profile))
    graph = part(read_page(artifact_page(artifact)), "graph")
    manifest = json.loads((artifact / "payload/aotc.json").read_text("utf-8"))
    stated = manifest["variants"][0]["partitioning"]
    boxes = [e for e in graph.iter("g") if e.get("class") == "group partition"]
    labels = [box.get("aria-label", "") for box in boxes]
    for division in stated["partitions"]:
        assert any(label.startswith(f"partition {division['name']}, ") for label in labels)
    assert len(boxes) == len(stated["partitions"]) > 1
    crossing = [t for t in stated["transfers"] if t["source"] and t["target"]]
    assert f"{len(crossing)} values from one provider to another" in text_of(graph)
    marked = [e for e in graph.iter("path") if e.get("class") == "edge boundary"]
    assert marked
    for refused in stated["refusals"]:
        assert refused["reason"] in text_of(graph)
    assert stated["refusals"]
    assert "NOT PROVEN" in text_of(part(read_page(artifact_page(artifact)), "exactness"))
