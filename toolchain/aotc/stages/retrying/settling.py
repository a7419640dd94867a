"""Variants in the form in which they pass, or for which nothing is left to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from aotc.contract.codec.parsing import Json
from aotc.errors import AotcError
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.retrying.other_forms import Attempt, first_refusal, next_attempts
from aotc.stages.types import ProvenVariants, VariantPlan

# Results of the optimizer that were begun earlier, by variant.
Ahead = Mapping[str, Future[Json]]


@record
class Settled:
    """Variants as they passed or failed at last, and what was tried of each, by name."""

    variants: ProvenVariants
    attempts: Mapping[str, Attempt]


def settle(
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    ahead: Ahead,
    run: Callable[[Sequence[Attempt], BuildOptions, Ahead], ProvenVariants],
) -> Settled:
    """`run` all variants; those that fail are run in other forms until nothing is left to try.

    What was begun `ahead` is for the first form alone.  Raises what `run` does, after the first
    refusal where other forms were tried.
    """
    attempts = {plan.name: Attempt(plan=plan) for plan in plans}
    apart, number = options, 0
    while True:
        try:
            made = run(list(attempts.values()), apart, ahead)
            stepped = next_attempts(attempts, made.failed, apart)
        except AotcError as error:
            raise first_refusal(attempts, error) from None
        if not stepped:
            return Settled(variants=made, attempts=attempts)
        attempts, ahead, number = {**attempts, **stepped}, {}, number + 1
        apart = options.apart(f"again-{number}")
