"""Attempts of a build whose stages are replaced by what they answer."""

from __future__ import annotations

from collections.abc import Callable

from aotc.pipeline.attempts import Attempt, Attempts, Result, Steps
from aotc.pipeline.types import ProvenVariants


def answered(steps: Steps[Result], stages: Callable[[Attempt], ProvenVariants]) -> Result:
    """What `steps` come to if `stages` answers each attempt, or refuses it."""
    attempts = Attempts(steps)
    for attempt in attempts:
        with attempts.refusals_answer():
            attempts.answer(stages(attempt))
    return attempts.result
