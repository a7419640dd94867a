"""What the terminal shows of gates of outputs and of a task: limits, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.cli.render import count, section
from aotc.cli.result_styles import failed, passed
from aotc.contract.results.build_evidence import TaskResult
from aotc.contract.results.reports import VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


def gates_view(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section with every limit and task; none if the profile states none."""
    rows: list[tuple[str, ...]] = []
    for variant in variants:
        own: list[tuple[str, ...]] = []
        for each in variant.limits:
            state = passed("passed") if each.passed else failed("FAILED")
            measured = each.measured or "no evidence says how far"
            own.append((each.output, state, measured, each.limit))
        if (task := variant.task) is not None:
            state = passed("passed") if task.passed else failed("FAILED")
            limit_text = f"drops by <= {task.max_drop:g}"
            own.append((task.output, state, task_text(task), limit_text))
        rows += [(variant.name if not index else "", *row) for index, row in enumerate(own)]
    return [section("gates", ("output", "", "measured", "limit"), rows)] if rows else []


def task_text(task: TaskResult) -> str:
    """A metric of a variant beside the original's."""
    said = f"{task.metric} of {count(task.samples, 'sample')}: {task.variant:.6g}"
    return f"{said}, the original {task.original:.6g}"


def gates_text(variants: Sequence[VariantSummary]) -> str:
    """The same in a few words: how many limits there are, and the task of the first variant."""
    limits = sum(len(variant.limits) for variant in variants)
    tasks = [variant.task for variant in variants if variant.task is not None]
    words = [f"{count(limits, 'limit')} of outputs"] if limits else []
    return "; ".join([*words, *(task_text(task) for task in tasks[:1])])
