"""Reports of fleets as builds would have them, without building anything."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.base.records import replace
from aotc.fleet.shards import plan_digest, shards
from aotc.spec.fleet import (
    Cell,
    CellOutcome,
    CellResult,
    FleetReport,
    Needs,
    WorkerDescription,
)
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.run_report import LATENCY, SIZE, Measurement

GPU = Needs(num_gpus=1.0, accelerator_type="H100")
WORKER = WorkerDescription(
    name="worker-1",
    cpu="x86_64 Xeon",
    gpus=("H100",),
    versions={"onnxruntime": "1.31.1", "python": "3.12.3"},
)
REFUSAL = Refusal(
    code="AOTC-N001",
    what="the largest error is above the limit",
    where="variant edge, output 'y'",
    expected="<= 0.001",
    found="0.02",
    fix="Loosen the tolerance.",
)
UNSERVED = Refusal(code="AOTC-I164", what="no worker has a GPU", expected="1 GPU", found="none")


def cell(model: str, profile: str = "edge", target: str = "linux-x86-64") -> Cell:
    """A cell whose artifact is below `artifacts`; those of CUDA ask for a GPU."""
    return Cell(
        model=model,
        profile=profile,
        target=target,
        source=f"models/{model}.onnx",
        output=f"artifacts/{model}/{profile}/{target}.aotc",
        needs=GPU if "cuda" in profile else Needs(),
    )


def cells_of(
    models: Sequence[str] = ("resnet", "bert", "tiny"),
    profiles: Sequence[str] = ("edge", "server-cuda"),
    targets: Sequence[str] = ("linux-x86-64", "linux-arm64"),
) -> list[Cell]:
    """Every model with every profile for every target."""
    return [cell(m, p, t) for m in models for p in profiles for t in targets]


def result(of: Cell, outcome: CellOutcome = "built", seconds: float = 2.5) -> CellResult:
    """What became of a cell, with figures or with a reason."""
    if outcome in ("built", "reused"):
        return CellResult(
            cell=of,
            outcome=outcome,
            artifact_id=f"{len(of.name):064x}",
            seconds=seconds if outcome == "built" else 0.01,
            peak_memory_bytes=180_000_000,
            worker=WORKER,
            findings=(Finding(code="AOTC-S027", what="dim N"),) if outcome == "built" else (),
            measurements=(
                Measurement(name=SIZE, subject="payload", value=4_200_000.0, unit="B"),
                Measurement(name=LATENCY, subject="variant edge", value=0.00125, unit="s"),
            ),
        )
    reasons = {"failed": (REFUSAL,), "impossible": (UNSERVED,)}.get(outcome, ())
    took = seconds if outcome == "failed" else 0.0
    return CellResult(cell=of, outcome=outcome, refusals=reasons, seconds=took)


def report_of(
    cells: Sequence[Cell], outcomes: Sequence[CellOutcome] = ("built",), fleet: str = "zoo"
) -> FleetReport:
    """A report of all cells, whose outcomes are these in turn."""
    return FleetReport(
        fleet=fleet,
        executor="local",
        plan=plan_digest(cells),
        cells=tuple(result(each, outcomes[n % len(outcomes)]) for n, each in enumerate(cells)),
        workers=(WORKER,),
        seconds=12.5,
    )


def in_shards(report: FleetReport, count: int) -> list[FleetReport]:
    """The same as `count` reports of shards."""
    by_name = {each.cell.name: each for each in report.cells}
    parts = shards([each.cell for each in report.cells], count)
    return [
        replace(
            report,
            shard=f"{number}/{count}",
            cells=tuple(by_name[each.name] for each in part),
        )
        for number, part in enumerate(parts, 1)
    ]
