"""Runs that will be asked for where all sizes are stated, side by side before the search asks.

The search runs one size after the other, as each decides on the next.  Where all sizes are stated,
none does: what will run is known before, and the largest runs, of which there are several, take
most of an analysis.  A size or a value that fails here counts for nothing, and is asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.session.worker import peak_memory_bytes
from aotc.sizes.inputs.fixtures import FixtureInputs, plan_fixtures
from aotc.sizes.runs import answers, input_bytes, runs_at_once
from aotc.sizes.search import stated_dim
from aotc.spec.shapes import DimRange, Domain

if TYPE_CHECKING:
    from aotc.sizes.reference import Reference
    from aotc.spec.precision import ParitySpec

# Of all outputs that wait until they are asked for.
_MAX_BYTES: Final = 1 << 30


def run_ahead(
    reference: Reference, stated: Mapping[str, DimRange], parity: ParitySpec
) -> dict[str, tuple[FixtureInputs, list[values.Data]]]:
    """The answers of fixtures by name, as far as all sizes of the model's dims are stated.

    Raises TooManyAtOnceError.
    """
    spec = {name: stated[name] for name in reference.dims if name in stated}
    bounded = len(spec) == len(reference.dims) and all(each.bounded for each in spec.values())
    if not spec or not bounded or reference.symbols.relations:
        return {}
    domain = Domain(dims={name: stated_dim(each) for name, each in spec.items()})
    base = domain.corner("opt")
    planned = [
        fixture
        for fixture in (
            *plan_fixtures(domain, parity, reference.inputs_at, ()),
            *reference.planned_paddings(domain),
        )
        if 0 not in fixture.sizes.values()
    ]
    if len(planned) < 2:
        return {}
    bytes_at = {fixture.name: input_bytes(reference.inputs, fixture.sizes) for fixture in planned}
    # The longest first, so that none of them is left over at the end.
    planned.sort(key=lambda fixture: (not _is_at(fixture, base), -bytes_at[fixture.name]))
    found: dict[str, tuple[FixtureInputs, list[values.Data]]] = {}
    room = _MAX_BYTES

    def keep(fixture: FixtureInputs, outputs: list[values.Data]) -> None:
        nonlocal room
        reference.note_ahead(fixture, outputs)
        room -= sum(values.nbytes(value) for value in outputs)
        if room >= 0:
            found[fixture.name] = fixture, outputs

    def at_once_after(sizes: Mapping[str, int], before: int) -> int:
        after = peak_memory_bytes()
        largest = max((bytes_at[fixture.name] for fixture in planned), default=0)
        times = largest / max(input_bytes(reference.inputs, sizes), 1)
        return runs_at_once(len(planned), peak=after + math.ceil((after - before) * times))

    # One run tells what others take.  The smallest is soon over.
    smallest, ran = planned.pop(), None
    before = peak_memory_bytes()
    with suppress(AotcError), reference.trying(smallest.sizes, 0):
        ran = reference.run(smallest.inputs)
    at_once = at_once_after(smallest.sizes, before) if ran is not None else 1
    if at_once == 1:
        # Where memory is scarce, what does not grow with sizes counts.
        before = peak_memory_bytes()
        if not reference.trial(base).ok:
            return {}
        planned = [fixture for fixture in planned if not _is_at(fixture, base)]
        at_once = at_once_after(base, before)
    if at_once > 1:
        with reference.several(at_once) as finished:
            made = answers(planned, lambda each: reference.run(each.inputs), at_once, finished)
            for fixture, outputs in zip(planned, made, strict=True):
                if not isinstance(outputs, AotcError):
                    keep(fixture, outputs)
    if ran is not None:
        keep(smallest, ran)
    return found


def _is_at(fixture: FixtureInputs, sizes: Mapping[str, int]) -> bool:
    """Whether it has the values that are generated first at `sizes`."""
    return fixture.sizes == sizes and "-" not in fixture.name
