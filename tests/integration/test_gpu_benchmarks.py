"""What the GPU's benchmarks keep, merge and show; nothing is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.byte_code import compile_packages
from benchmarks.gpu import page, results, tables
from benchmarks.gpu.building import builds
from benchmarks.gpu.cases import JUDGED, NETWORKS, PRECISIONS, Only, Settings
from benchmarks.gpu.rows.pauses import PAUSES, label
from benchmarks.gpu.run import Run
from benchmarks.gpu.stages import STAGES
from benchmarks.gpu.stages import label as stage_label
from benchmarks.gpu.timing import blocks_by_turns, by_turns

MACHINE = {"gpu": "A GPU", "driver": "1.2", "aotc": "0.1"}


def latency(case: str, row: str = "latency", **milliseconds: float) -> dict[str, Any]:
    sides = {
        "ours": "aotc",
        "copying": "aotc, with new inputs",
        "torch": "torch.compile",
        "plain": "plain session",
    }
    samples = {sides[name]: [ms / 1e3] * 3 for name, ms in milliseconds.items()}
    return record(row, case, samples=samples)


def record(row: str, case: str, **fields: Any) -> dict[str, Any]:
    return {
        "row": row, "case": case, "at": "2026-11-23", "machine": MACHINE, "sources": "s", **fields
    }  # fmt: skip


def test_ratios_are_of_one_run_and_the_better_of_both_compilers_counts() -> None:
    (case,) = tables.cases(
        [
            latency("bert/float16/8", ours=1.0, torch=2.0, plain=4.0),
            # Another run, on a machine twice as slow.
            latency("bert/float16/8", "autotune", ours=2.0, torch=2.5, plain=8.0),
        ]
    )
    assert (case.to_torch, case.to_better, case.to_plain) == (0.5, 0.8, 0.25)
    assert (case.ours, case.autotuned) == (1.0, 2.5)


def test_limits_are_judged_on_the_eighteen_cases_only() -> None:
    records = [
        latency(f"{name}/{precision}/{batch}", ours=0.8, torch=1.0, plain=2.0)
        for name in JUDGED
        for precision in PRECISIONS
        for batch in NETWORKS[name].batches
    ]
    assert len(records) == 18
    records.append(latency("gpt2/float16/1", ours=9.0, torch=1.0, plain=1.0))
    mean, worst, plain = tables.summary(records)
    assert mean == (
        "to torch.compile, geometric mean of 18 of 18 cases", "≤ 0.9", "0.800", "yes"
    )  # fmt: skip
    assert worst[2:] == ("0.800", "yes")
    assert plain[2:] == ("0.400", "yes")
    records[3] = latency(records[3]["case"], ours=1.2, torch=1.0, plain=2.0)
    assert tables.summary(records)[1][2:] == ("1.200", "**no**")


def test_static_variants_are_compared_with_the_dynamic_one() -> None:
    samples = {"dynamic": [2e-3, 3e-3, 4e-3], "static": [1.5e-3] * 3}
    (row,) = tables.statics([record("static", "bert/float16/8", samples=samples)])
    assert row == ("BERT-base, fp16, batch 8", "3.000", "1.500", "0.50")


def test_there_is_no_verdict_on_some_of_the_cases() -> None:
    rows = tables.summary([latency("bert/tf32/8", ours=0.1, torch=1.0, plain=2.0)])
    assert rows[0][0].endswith("1 of 18 cases")
    assert [row[3] for row in rows] == ["not judged"] * 3


@pytest.mark.parametrize(
    ("case", "fields", "why"),
    [
        ("vit/float16/1", {"difference": 0.03}, "more than 0.02"),
        ("vit/float16/1", {"difference": float("nan")}, "more than 0.02"),
        ("vit/tf32/1", {"difference": 0.06}, "more than 0.05"),
        ("vit/tf32/1", {"captured": False}, "no captured graph"),
        ("vit/tf32/1", {"difference": 0.04, "captured": True}, ""),
        ("without graphs", {"captured": False}, ""),
    ],
)
def test_wrong_answers_and_calls_without_a_graph_do_not_count(
    case: str, fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    good = latency("bert/tf32/8", ours=0.1, torch=1.0, plain=2.0)
    samples = {"aotc": [1.0], "torch.compile": [1.0], "plain session": [1.0]}
    found = record("latency", case, samples=samples, **fields)
    assert why in results.why_failed(found) and bool(why) == bool(results.why_failed(found))
    if why:
        assert [one.network.name for one in tables.cases([good, found])] == ["bert"]
        assert results.done([found], "s") == set()
        assert f"| latency {case} | " in page.text([good, found])
    run = Run(
        settings=Settings(folder=tmp_path),
        out=tmp_path / "out",
        networks=(),
        machine=MACHINE,
        sources="s",
    )
    run.keep("latency", {"case": case, "samples": samples, **fields})
    assert bool(run.failed) == bool(why)


def test_a_row_of_older_sources_says_so() -> None:
    old = {**latency("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0), "sources": "old"}
    new = {**latency("bert/tf32/1", ours=1.0, torch=1.0, plain=1.0), "at": "2026-11-24T01:02:03Z"}
    text = page.text([old, new])
    assert "| ViT-B, float32 with TF32, batch 1 (sources old, 2026-11-23) |" in text
    assert "| BERT-base, float32 with TF32, batch 1 |" in text


def test_a_row_of_another_gpu_says_so() -> None:
    usual = [latency(f"{name}/tf32/1", ours=1.0, torch=1.0, plain=1.0) for name in ("bert", "vit")]
    other = latency("resnet50/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    other |= {"machine": {"gpu": "Another"}, "sources": "old"}
    newest = latency("vit/tf32/8", ours=1.0, torch=1.0, plain=1.0) | {"at": "2026-11-24T01:02:03Z"}
    text = page.text([*usual, other, newest])
    assert "| ResNet-50, float32 with TF32, batch 1 (sources old, 2026-11-23, Another) |" in text
    assert "| BERT-base, float32 with TF32, batch 1 |" in text


def test_a_failure_does_not_replace_a_result(tmp_path: Path) -> None:
    good = latency("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    failed = record("latency", "vit/tf32/1", failed="out of memory")
    assert list(results.merged([good, failed]).values()) == [good]
    assert list(results.merged([failed, good]).values()) == [good]
    assert results.done([failed], "s") == set()
    assert results.done([good, failed], "s") == {("latency", "vit/tf32/1")}
    assert results.done([good], "other sources") == set()
    assert "| latency vit/tf32/1 | out of memory |" in page.text([failed])


def test_results_of_several_runs_are_merged(tmp_path: Path) -> None:
    first, second, kept = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "kept.jsonl"))
    old = latency("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    new = latency("vit/tf32/1", ours=2.0, torch=1.0, plain=1.0)
    other = latency("bert/tf32/1", ours=3.0, torch=1.0, plain=1.0)
    results.append(first, old)
    results.append(first, other)
    results.append(second, new)
    with second.open("a") as file:
        file.write('{"row": "laten')  # a process that was killed
    assert results.keep([first, second], kept) == [other, new]
    assert results.read(kept) == [other, new]
    # The next merge adds to what is kept.
    assert results.keep([], kept) == [other, new]


def test_the_page_tells_all_rows() -> None:
    seconds = {"aotc": [0.5], "plain session": [1.0], "torch.compile": [10.0]}
    records = [
        latency("resnet50/float16/64", ours=3.0, copying=3.2, torch=3.0, plain=5.0),
        record("first_answer", "bert/float16", samples={**seconds, "torch.compile, cached": [7.0]}),
        record(
            "first_answer",
            "vit/float16",
            samples={
                **seconds,
                "torch.compile, cached": [7.0],
                **{stage_label(stage): [0.07] for stage in STAGES},
            },
        ),
        record("overhead", "with graphs", samples={"bind": [3e-5], "I/O binding": [2.5e-5]}),
        record("first_request", "bert/float16", samples={"first": [0.0011], "steady": [0.001]}),
        record(
            "pauses",
            "bert/float16",
            samples={
                label(side, pause): [milliseconds / 1e3]
                for side, times in {"aotc": (1, 2, 3, 4), "plain session": (4, 5, 6, 7)}.items()
                for pause, milliseconds in zip(PAUSES, times, strict=True)
            },
        ),
        record("memory", "bert/float16", bytes={"eight sizes": 130 << 20, "one size": 100 << 20}),
        record(
            "lengths",
            "batch 1, host",
            samples=seconds,
            requests=100,
            dims={"batch": 1, "sequence": {"buckets": [64, 512]}},
            how="learned",
        ),
    ]
    text = page.text(records, "## By hand")
    for line in (
        "- 2026-11-23: gpu A GPU, driver 1.2, aotc 0.1",
        "| ResNet-50, fp16, batch 64 | 3.000 | 3.200 | 3.000 |  | 5.000 | 1.00 | 1.00 | 0.60 |",
        "| process start to the first answer, BERT-base, fp16, to torch.compile"
        " | ≤ 0.1 | 0.050 | yes |",
        "| ViT-B, fp16 | 70 | 70 | 70 | 70 | 70 | 70 | 70 |",
        "| bind beyond ONNX Runtime's I/O binding, with graphs, µs | ≤ 10 | 5.00 | yes |",
        "| first request to later ones, BERT-base, fp16 | ≤ 1.2 | 1.100 | yes |",
        "| BERT-base, fp16 | 1.00 / 4.00 | 2.00 / 5.00 | 3.00 / 6.00 | 4.00 / 7.00 |",
        "| device memory, 8 sizes to one, BERT-base, fp16 | ≤ 1.3 | 1.300 | yes |",
        "| log-normal lengths, throughput to a plain session, batch 1, host | ≥ 1.5 | 2.00 | yes |",
        "| batch 1, host | 200 | 100 | [64, 512] | learned |",
        "## By hand",
    ):
        assert line in text.splitlines(), line


@pytest.mark.parametrize("turns", [by_turns, blocks_by_turns])
def test_sides_take_turns(turns: Any) -> None:
    called: list[str] = []
    sides = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    samples = turns(sides, 3, 2)
    assert {name: len(found) for name, found in samples.items()} == {"a": 3, "b": 3}
    for at in range(0, len(called), 4 if turns is blocks_by_turns else 2):
        size = 2 if turns is by_turns else 4
        assert {*called[at : at + size]} == {"a", "b"}


def test_small_settings_are_passed_to_processes(tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path, small=True, cpu=True, opset=23)
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.batches(NETWORKS["bert"]) == (1, 3)
    assert settings.model("bert").name == "bert-small-23.onnx"


def test_what_rows_do_not_need_is_not_built(tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path)

    def labels(rows: tuple[str, ...], *precisions: str) -> list[str]:
        only = Only(precisions=precisions)
        return [label for _, label, _ in builds(settings, ["resnet50"], rows, only)]

    assert labels(("latency",)) == labels(("autotune",)) == ["float16", "tf32"]
    assert labels(("autotune",), "tf32") == ["tf32"]
    # The other rows are of one precision, whatever the latencies are of.
    assert labels(("first_request", "first_answer"), "tf32") == [
        "float16", "float16-1-size"
    ]  # fmt: skip
    assert labels(("pauses",)) == ["float16"]
    assert labels(("memory", "static")) == [
        "float16-8-sizes", "float16-1-sizes", "float16-dynamic", "float16-static"
    ]  # fmt: skip


def test_choices_that_were_timed_beside_other_work_are_kept_apart(tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path)
    row, ahead = settings.compiled(), settings.compiled(ahead=True)
    assert [name for name in row if row[name] == ahead[name]] == ["TRITON_CACHE_DIR"]
    assert row.keys() == ahead.keys() == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    # One within the other would be found with it.
    folders = {Path(folder) for folder in (*row.values(), *ahead.values())}
    assert len(folders) == 3 and {folder.parent for folder in folders} == {tmp_path}


def test_fresh_processes_find_byte_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "with_byte_code"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    compile_packages("with_byte_code", "a_package_that_is_not_installed")
    compiled = {path.name.partition(".")[0] for path in package.glob("__pycache__/*.pyc")}
    assert compiled == {"__init__", "part"}
