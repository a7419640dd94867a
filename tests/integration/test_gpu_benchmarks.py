"""What the GPU's benchmarks keep, merge and show; nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aotc.base.records import replace
from aotc.spec.evidence import ArenaStatistics, MemoryAtSizes, MixedCalls, ObservedMemory
from aotc.spec.memory import PlannedDevice, PlannedMemory, PlannedRun
from benchmarks.byte_code import compile_packages
from benchmarks.gpu import page, results, tables
from benchmarks.gpu.building import builds
from benchmarks.gpu.cases import GROUPS, NETWORKS, ROWS, Only, Settings, case_name
from benchmarks.gpu.child import ChildFailedError, OutOfTimeError
from benchmarks.gpu.rows import chains, memory_plan
from benchmarks.gpu.run import Run
from benchmarks.gpu.stages import STAGES
from benchmarks.gpu.stages import label as stage_label
from benchmarks.gpu.timing import blocks_by_turns, by_turns

MACHINE = {"gpu": "A GPU", "driver": "1.2", "aotc": "0.1"}


def calls(case: str, **milliseconds: float) -> dict[str, Any]:
    """Of the sides `ours`, `torch`, `eager` (slower) and `plain`; `new_` are with new inputs."""
    sides = {
        "ours": "aotc",
        "new_ours": "aotc, new inputs",
        "torch": "torch.compile",
        "new_torch": "torch.compile, new inputs",
        "eager": "eager",
        "new_eager": "eager, new inputs",
        "plain": "plain session",
    }
    found = {**{"eager": 1e3, "new_ours": 9.0, "new_torch": 10.0, "new_eager": 1e3}, **milliseconds}
    samples = {sides[name]: [ms / 1e3] * 3 for name, ms in found.items()}
    return record("calls", case, samples=samples, captured=True)


def kernels(case: str, ours: float, torch: float) -> dict[str, Any]:
    """Milliseconds of kernels by side."""
    found = {
        side: {"seconds": ms / 1e3, "longest": [["kernel<float|half>", ms / 2e3, 3.0]]}
        for side, ms in {"aotc": ours, "torch.compile": torch}.items()
    }
    return record("kernels", case, kernels=found)


def record(row: str, case: str, **fields: Any) -> dict[str, Any]:
    return {
        "row": row, "case": case, "at": "2026-11-23", "machine": MACHINE, "sources": "s", **fields
    }  # fmt: skip


def every_case() -> list[str]:
    return [
        case_name(network.name, precision, batch)
        for network in NETWORKS.values()
        for precision in network.precisions
        for batch in network.batches
    ]


def test_the_better_of_torch_counts_and_kernels_are_of_inductor() -> None:
    name = "bert/float16/8"
    (case,) = tables.cases(
        [
            calls(name, ours=1.0, torch=2.0, eager=1.6, new_ours=2.0, new_torch=2.5, plain=4.0),
            kernels(name, 0.9, 0.6),
        ]
    )
    assert (case.bound, case.new, case.to_plain) == (0.625, 0.8, 0.25)
    assert case.alone == pytest.approx(1.5)
    # There is no plain session where ONNX Runtime's tool makes no half of a model.
    (case,) = tables.cases([calls(name, ours=1.0, torch=2.0)])
    assert (case.to_plain, case.alone) == (None, None)


def test_each_group_and_all_cases_are_judged() -> None:
    names = every_case()
    assert sum(name.split("/")[0] in ("resnet50", "bert", "vit") for name in names) == 18
    assert sum(network.group == "untouched" for network in NETWORKS.values()) >= 10
    records = [
        measured
        for name in names
        for measured in (
            calls(name, ours=0.7, torch=1.0, new_ours=0.8, new_torch=1.0, plain=2.0),
            kernels(name, 1.0, 1.0),
        )
    ]
    rows = {row[0]: row[1:] for row in tables.summary(records)}
    count = len(names)
    mean = f"geometric mean of {count} of {count}"
    assert rows[f"to the better of torch.compile and eager, all: {mean}"] == (
        "≤ 0.8", "0.700 (0.700 to 0.700)", "yes"
    )  # fmt: skip
    assert rows[f"the same with new inputs, all: {mean}"][2] == "yes"
    assert rows[f"kernels alone, to Inductor's, all: {mean}"][:2] == (
        "≤ 1.05", "1.000 (1.000 to 1.000)"
    )  # fmt: skip
    for group in GROUPS:
        assert sum(f", {group}: " in title for title in rows) >= 3
    # One that is slower is the worst; a group of which one is missing has no verdict.
    records[0] = calls(names[0], ours=1.3, torch=1.0, plain=2.0)
    found = tables.summary(records[:-2])
    (worst,) = [row for row in found if row[0].startswith("the worst: ")]
    assert worst[1:] == ("≤ 1.25", "1.300", "**no**")
    verdicts = {row[3] for row in found if ", untouched: " in row[0]}
    assert verdicts == {"not judged"}


def test_an_interval_holds_the_mean_and_widens_with_what_differs() -> None:
    low, high = tables.interval([0.5, 0.7, 0.9, 1.4])
    assert 0.5 <= low < (0.5 * 0.7 * 0.9 * 1.4) ** 0.25 < high <= 1.4
    assert tables.interval([0.5, 0.7, 0.9, 1.4]) == (low, high)
    assert tables.interval([0.8]) == pytest.approx((0.8, 0.8))


@pytest.mark.parametrize(
    ("case", "fields", "why"),
    [
        ("vit/float16/1", {"difference": 0.03}, "more than 0.02"),
        ("vit/float16/1", {"difference": float("nan")}, "more than 0.02"),
        ("vit/tf32/1", {"difference": 0.06}, "more than 0.05"),
        ("vit/tf32/1", {"difference": 0.04, "captured": True}, ""),
        # A network without a graph is measured as it is served.
        ("vit/tf32/1", {"captured": False}, ""),
        ("with graphs", {"captured": False}, "no captured graph"),
    ],
)
def test_wrong_answers_and_calls_without_a_graph_do_not_count(
    case: str, fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    good = calls("bert/tf32/8", ours=0.1, torch=1.0, plain=2.0)
    found = {**calls(case, ours=1.0, torch=1.0), **fields}
    if case == "with graphs":
        found["row"] = "overhead"
    assert why in results.why_failed(found) and bool(why) == bool(results.why_failed(found))
    if why:
        assert [one.network.name for one in tables.cases([good, found])] == ["bert"]
        assert results.done([found], "s") == set()
        assert f"| {found['row']} {case} | " in page.text([good, found])
    run = Run(
        settings=Settings(folder=tmp_path),
        out=tmp_path / "out",
        networks=(),
        machine=MACHINE,
        sources="s",
    )
    run.keep(found["row"], {"case": case, "samples": found["samples"], **fields})
    assert bool(run.failed) == bool(why)


def test_a_row_of_older_sources_says_so() -> None:
    old = {**calls("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0), "sources": "old"}
    new = {**calls("bert/tf32/1", ours=1.0, torch=1.0, plain=1.0), "at": "2026-11-24T01:02:03Z"}
    text = page.text([old, new])
    assert "| ViT-B, float32 with TF32, batch 1 (sources old, 2026-11-23) |" in text
    assert "| BERT-base, float32 with TF32, batch 1 |" in text


def test_a_row_of_another_gpu_says_so() -> None:
    usual = [calls(f"{name}/tf32/1", ours=1.0, torch=1.0, plain=1.0) for name in ("bert", "vit")]
    other = calls("resnet50/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    other |= {"machine": {"gpu": "Another"}, "sources": "old"}
    newest = calls("vit/tf32/8", ours=1.0, torch=1.0, plain=1.0) | {"at": "2026-11-24T01:02:03Z"}
    text = page.text([*usual, other, newest])
    assert "| ResNet-50, float32 with TF32, batch 1 (sources old, 2026-11-23, Another) |" in text
    assert "| BERT-base, float32 with TF32, batch 1 |" in text


def test_a_failure_does_not_replace_a_result(tmp_path: Path) -> None:
    good = calls("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    failed = record("calls", "vit/tf32/1", failed="out of memory")
    assert list(results.merged([good, failed]).values()) == [good]
    assert list(results.merged([failed, good]).values()) == [good]
    assert results.done([failed], "s") == set()
    assert results.done([good, failed], "s") == {("calls", "vit/tf32/1")}
    assert results.done([good], "other sources") == set()
    assert "| calls vit/tf32/1 | out of memory |" in page.text([failed])


def test_results_of_several_runs_are_merged(tmp_path: Path) -> None:
    first, second, kept = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "kept.jsonl"))
    old = calls("vit/tf32/1", ours=1.0, torch=1.0, plain=1.0)
    new = calls("vit/tf32/1", ours=2.0, torch=1.0, plain=1.0)
    other = calls("bert/tf32/1", ours=3.0, torch=1.0, plain=1.0)
    results.append(first, old)
    results.append(first, other)
    results.append(second, new)
    with second.open("a") as file:
        file.write('{"row": "laten')  # a process that was killed
    assert results.keep([first, second], kept) == [other, new]
    assert results.read(kept) == [other, new]
    # Of a row that is there no more.
    results.append(first, {**old, "row": "static"})
    assert results.keep([first, second], kept) == [other, new]
    # The next merge adds to what is kept.
    assert results.keep([], kept) == [other, new]


def test_the_page_tells_all_rows() -> None:
    seconds = {"aotc": [0.5], "plain session": [1.0], "torch.compile": [10.0]}
    records = [
        calls("resnet50/float16/64", ours=3.0, new_ours=3.2, torch=3.0, plain=5.0),
        kernels("resnet50/float16/64", 2.4, 2.0),
        record(
            "load",
            "unet/float16",
            samples={"aotc": [1.5], "plain session": [1.0]},
            bytes={"aotc": 300 << 20, "plain session": None},
            build={"seconds": 40.2, "stages": {"analyze": 30.0, "prove": 9.0}, "at_once": 1},
        ),
        record(
            "behind",
            "segformer/float16",
            samples={
                "all sizes": [4.0],
                "one size first": [1.2],
                "plain session": [1.0],
                "until all are captured": [4.1],
                "longest call meanwhile": [0.9],
            },
        ),
        record(
            "weights",
            "bert/float16",
            samples={
                "float16, batch 1": [0.001],
                "float16, batch 8": [0.002],
                "int4, rest float16, batch 1": [0.0008],
                "int4, rest float16, batch 8": [0.003],
            },
            errors={"int4, rest float16, batch 1": 0.05, "int4, rest float16, batch 8": 0.061},
            bytes={"float16": 300 << 20, "int4, rest float16": 150 << 20},
            refused={"int8, rest float16": "AOTC-N001", "int4, rest float32": "AOTC-N001"},
        ),
        record(
            "convolutions",
            "resnet50/float16/64",
            samples={"as built": [0.003], "bias apart": [0.0034]},
            first={"as built": [0.1, 3.0], "bias apart": [0.1, 0.5], "searched": [0.1, 4.0]},
            kernels={"as built": {"seconds": 0.0029}, "bias apart": {"seconds": 0.0033}},
        ),
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
        "| ResNet-50, fp16, batch 64 | 3.000 / 3.200 | 3.000 / 10.000 | 1000.000 / 1000.000"
        " | 5.000 | 1.00 / 0.32 | 2.400 / 2.000 | 1.20 |",
        "| ResNet-50, fp16, batch 64 | 1.20 | 1200 µs in 3 `kernel` |",
        "| builds, alone, of 1 networks: the longest, U-Net of diffusion, 64, fp16, s | ≤ 60 | 40"
        " | yes |",
        "| loads of 1 networks to a plain session's first run: the worst, U-Net of diffusion, 64,"
        " fp16 | ≤ 2 | 1.500 | yes |",
        "| U-Net of diffusion, 64, fp16 | 40 | 1 | analyze 30.0, prove 9.0 |",
        "| U-Net of diffusion, 64, fp16 | 1.50 | 1.00 | 300 |  |",
        "| ready after one size, SegFormer-B0, 512, fp16, to a plain session's first run | ≤ 2"
        " | 1.200 | yes |",
        "| SegFormer-B0, 512, fp16 | 4.00 | 1.20 | 1.00 | 4.10 | 0.90 |",
        "| BERT-base, fp16 | float16 | 1.000 / 2.000 | 300 |  |",
        "| BERT-base, fp16 | int4, rest float16 | 0.800 / 3.000 | 150 | 0.061 |",
        "| BERT-base, fp16 | int8, rest float16 | AOTC-N001 |  |  |",
        "| ResNet-50, fp16, batch 64 | as built | 3000 | 3.000 | 2.900 |",
        "| ResNet-50, fp16, batch 64 | bias apart | 500 | 3.400 | 3.300 |",
        "| process start to the first answer, BERT-base, fp16, to torch.compile"
        " | ≤ 0.1 | 0.050 | yes |",
        "| ViT-B, fp16 | 70 | 70 | 70 | 70 | 70 | 70 | 70 |",
        "| bind beyond ONNX Runtime's I/O binding, with graphs, µs | ≤ 10 | 5.00 | yes |",
        "| first request to later ones, BERT-base, fp16 | ≤ 1.2 | 1.100 | yes |",
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
    assert settings.batches(NETWORKS["swin_t"]) == (2,)
    assert settings.model("bert").name == "bert-small-23.onnx"


def test_what_rows_do_not_need_is_not_built(tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path)

    def labels(rows: tuple[str, ...], *precisions: str) -> list[str]:
        only = Only(precisions=precisions)
        return [label for _, label, _ in builds(settings, ["resnet50"], rows, only)]

    assert labels(("calls",)) == labels(("kernels",)) == ["float16", "tf32"]
    assert labels(("kernels",), "tf32") == ["tf32"]
    # The other rows are of one precision, whatever the calls are of.
    assert labels(("first_request", "first_answer"), "tf32") == [
        "float16", "float16-1-size"
    ]  # fmt: skip
    assert labels(("load",)) == ["float16"]
    assert labels(("memory",)) == ["float16-8-sizes", "float16-1-sizes"]
    untuned = [label for _, label, _ in builds(settings, ["unet"], ROWS, Only())]
    assert untuned == ["float16"]


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


def node(op: str, inputs: str, output: str, microseconds: float) -> chains.Node:
    return chains.Node(
        name=output,
        op=op,
        inputs=tuple(inputs.split()),
        outputs=(output,),
        seconds=microseconds * 1e-6,
    )


def test_a_chain_has_no_other_node_between_its_own() -> None:
    """A rotary embedding, a product, and a residual that is added to what the product made."""
    nodes = [
        node("Neg", "x", "negative", 4.0),
        node("Reshape", "negative", "shaped", 0.0),
        node("Mul", "shaped sine", "one", 4.0),
        node("Mul", "x cosine", "other", 4.0),
        node("Add", "one other", "rotated", 4.0),
        node("MatMul", "rotated weights", "product", 20.0),
        node("Add", "product rotated", "sum", 4.0),
        node("Softmax", "sum", "y", 5.0),
    ]
    found = [[each.name for each in chain] for chain in chains.chains(nodes)]
    assert sorted(map(sorted, found)) == [
        ["negative", "one", "other", "rotated", "shaped"],
        ["sum"],
    ]
    sizes = dict.fromkeys(("x", "sine", "cosine", "rotated", "one", "other", "negative"), 1000)
    (first,) = [chain for chain in chains.chains(nodes) if len(chain) > 1]
    # x, both tables, and the result.
    assert chains.moved_bytes(first, nodes, sizes) == 4000
    told = chains.estimate(nodes, sizes, speed=1e9, least=1e-6)
    assert told["nodes_seconds"] == pytest.approx(45e-6)
    assert told["single_seconds"] == pytest.approx(4e-6)
    assert (told["chains"], told["chained_nodes"]) == (1, 4)
    assert told["chains_seconds"] == pytest.approx(16e-6)
    assert told["floor_seconds"] == pytest.approx(4e-6)
    assert told["gain_seconds"] == pytest.approx(12e-6)
    (row,) = tables.chains([record("chains", "bert/float16/8", **told)])
    assert row == ("BERT-base, fp16, batch 8", "45", "4", "16", "4", "1 of 4", "27%")


def test_two_chains_that_a_node_joins_are_one() -> None:
    nodes = [
        node("Exp", "a", "b", 1.0),
        node("MatMul", "w v", "c", 1.0),
        node("Tanh", "c", "d", 1.0),
        node("Sin", "c", "e", 1.0),
        node("Add", "d e", "f", 1.0),
        # What is before the product stays apart.
        node("Add", "f b", "g", 1.0),
    ]
    found = sorted(sorted(each.name for each in chain) for chain in chains.chains(nodes))
    assert found == [["b"], ["d", "e", "f", "g"]]


def test_arenas_are_told_as_planned_and_observed() -> None:
    mib = 1 << 20
    arena = ArenaStatistics(
        in_use=90 * mib, max_in_use=0, allocated=99 * mib, largest=0, allocations=0, reserves=0,
        extensions=0,
    )  # fmt: skip
    at = MemoryAtSizes(
        fixture="batch 4", sizes={"batch": 4}, activation_bytes=3, first_bytes=3, output_bytes=1,
        loaded=arena, arena=arena, device=arena, device_activation_bytes=7 * mib,
    )  # fmt: skip
    mixed = MixedCalls(
        calls=9, sizes=3, planned_calls=9, first_allocated=0, last_allocated=0, first_in_use=0,
        last_in_use=0, last_device_allocated=102 * mib,
    )  # fmt: skip
    seen = ObservedMemory(at=(at,), mixed=mixed)
    run = PlannedRun(
        sizes={"batch": 4}, fixture="batch 4", live_bytes=0, asked_bytes=0, buffer_bytes=0,
        first_bytes=5 * mib, later_bytes=6 * mib, arena_bytes=8 * mib,
    )  # fmt: skip
    device = PlannedDevice(
        weights_bytes=89 * mib, at=(run,), exact_bytes=10 * mib, doubling_bytes=16 * mib
    )
    plan = PlannedMemory(at=(run,), device=device)
    kept = record(
        "memory_plan",
        "bert/tf32",
        **memory_plan.figures(plan, seen),
        **memory_plan.totals(plan, seen, "doubling"),
    )
    limited = record(
        "memory_plan",
        "bert/tf32/limited",
        growth=memory_plan.totals(plan, replace(seen, mixed=None), "exact")["growth"],
    )
    assert kept["sizes"]["batch 4"]["arena"] == [8 * mib, 9 * mib]
    assert [row[1:] for row in tables.memory_plans([kept, limited])] == [
        ("weights", "89.0", "90.0"),
        ("batch 4", "6.0", "7.0"),
        ("arena of all sizes, doubling", "16.0", "12.0"),
        ("arena of all sizes, exact", "10.0", ""),
    ]
    assert "## Arenas on the GPU, MiB" in page.text([kept])


def test_records_of_plans_stay_when_the_time_ends_for_another_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def records(_: str, request: dict[str, Any], **__: Any) -> Iterator[dict[str, Any]]:
        network, precision = request["network"], request["precision"]
        yield {"case": case_name(network, precision, 1), "sizes": {}}
        if network == "resnet50":
            raise OutOfTimeError
        if network == "opt_step":
            raise ChildFailedError("no memory")
        yield {"case": f"{network}/{precision}/limited", "limit": 1}

    monkeypatch.setattr(f"{Run.__module__}.records", records)
    run = Run(
        settings=Settings(folder=tmp_path),
        out=tmp_path / "out",
        networks=("resnet50", "bert", "opt_step"),
        machine=MACHINE,
        sources="s",
        only=Only(precisions=("tf32",)),
    )
    with pytest.raises(OutOfTimeError):
        memory_plan.run(run)
    kept = results.read(run.files[-1])
    assert results.done(kept, "s") == {
        ("memory_plan", "resnet50/tf32/1"),
        ("memory_plan", "bert/tf32/1"),
        ("memory_plan", "bert/tf32/limited"),
        ("memory_plan", "opt_step/tf32/1"),
    }
    failed = {record["case"] for record in kept if "failed" in record}
    assert failed == {"opt_step/tf32/16", "opt_step/tf32", "opt_step/tf32/limited"}
    assert not run.wants("memory_plan", "bert/tf32/limited")
