"""Running variants until they pass, or until no form is left to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from aotc.contract.codec.parsing import Json
from aotc.errors import AotcError
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.retrying.other_forms import Attempt, first_refusal, next_attempts
from aotc.stages.types import (
    ProvenVariants,
)
from aotc.stages.variant_plan import VariantPlan

# Results of the optimizer that were started earlier, by variant.
Ahead = Mapping[str, Future[Json]]


@record
class Settled:
    """Variants that finally passed or failed, and the last attempt of each, by name."""

    variants: ProvenVariants
    attempts: Mapping[str, Attempt]


def settle(
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    ahead: Ahead,
    run: Callable[[Sequence[Attempt], BuildOptions, Ahead], ProvenVariants],
    *,
    others: bool = True,
) -> Settled:
    """`run` all variants; those that fail are run in other forms until nothing is left to try.

    `ahead` is used for the first form only, and without `others` there is no other.  Raises what
    `run` raises, after the first refusal if other forms were tried.
    """
    attempts = {plan.name: Attempt(plan=plan) for plan in plans}
    with_subfolder, number = options, 0
    while True:
        try:
            made = run(list(attempts.values()), with_subfolder, ahead)
            following = next_attempts(attempts, made.failed, with_subfolder) if others else {}
        except AotcError as error:
            raise first_refusal(attempts, error) from None
        if not following:
            return Settled(variants=made, attempts=attempts)
        attempts, ahead, number = {**attempts, **following}, {}, number + 1
        with_subfolder = options.with_subfolder(f"again-{number}")
