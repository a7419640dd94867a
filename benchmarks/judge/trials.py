"""Honest variants and faults of one network, judged: what is missed, and what is refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from benchmarks.judge.answers import Answers, Subject
from benchmarks.judge.faults import DROWNED, KINDS, NOISE, Target, fault
from benchmarks.judge.judging import Answer, Case, judged
from benchmarks.judge.networks import Network, all_networks
from benchmarks.judge.slices import Scales, fill_of
from benchmarks.judge.variants import Variant

if TYPE_CHECKING:
    from aotc.spec.precision import Arithmetic

# Neither judged nor tuned on.
_OTHER_SEEDS: Final = (900, 901, 902)

# A variant that is off by a fault's size on slices like these is none to ship.
_GOOD_ELEMENTS: Final = 32
_GOOD_SCALE: Final = 0.1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was judged of one network in one arithmetic, over variants and seeds."""

    network: str
    arithmetic: Arithmetic
    faults: int = 0
    missed: int = 0
    honest: int = 0
    refused: int = 0
    poor: int = 0
    """Variants that are off by a fault's size themselves; either verdict is right."""
    poor_refused: int = 0
    slices: int = 0
    drowned: int = 0
    """Slices that the arithmetic's own error leaves too little of."""
    noise: int = 0
    """Slices of the original's rounding noise."""
    kinds: dict[str, list[int]] = field(default_factory=dict)
    """By kind of fault: how many were judged, and how many of these missed."""
    lines: list[str] = field(default_factory=list)
    """What was missed or refused."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def measured(
    names: Sequence[str],
    folder: Path,
    seeds: Sequence[int],
    jobs: int,
    say: Callable[[str], None],
) -> list[Outcome]:
    """What was judged of networks, in their order; models and variants lie below `folder`."""
    if jobs < 2:
        return [outcome for name in names for outcome in _measured(name, folder, seeds)]
    found: dict[str, list[Outcome]] = {}
    # Networks at a time are enough; threads of one would wait for those of others.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        pending = {pool.submit(_measured, name, folder, seeds): name for name in names}
        for done in as_completed(pending):
            found[pending[done]] = done.result()
            say(pending[done])
    return [outcome for name in names for outcome in found[name]]


def _measured(name: str, folder: Path, seeds: Sequence[int]) -> list[Outcome]:
    # The quantizers of ONNX Runtime warn of what has no effect here.
    warnings.simplefilter("ignore")
    network = all_networks()[name]
    return tried(network, folder, list(seeds)[:1] if network.large else seeds)


def tried(network: Network, folder: Path, seeds: Sequence[int]) -> list[Outcome]:
    """All that is judged of one network."""
    subject = Subject(network, folder)
    found: dict[str, Outcome] = {}
    usual: dict[str, list[list[Scales]]] = {}
    for seed in seeds:
        reference = subject.reference(seed)
        exact = _exact(subject, seed)
        noise = exact or subject.answers(subject.variants[0], seed)
        for variant in subject.variants:
            try:
                got = subject.answers(variant, seed)
            except ValueError:
                # The model has no such variant.
                continue
            arithmetic = _arithmetic(subject, variant)
            outcome = found.setdefault(
                arithmetic, Outcome(network=network.name, arithmetic=arithmetic)
            )
            if variant.name not in usual:
                usual[variant.name] = _usual(subject, variant)
            trial = _Trial(
                subject,
                variant,
                arithmetic,
                seed,
                reference,
                got,
                noise,
                exact,
                usual[variant.name],
            )
            trial.judge(outcome)
    return list(found.values())


def _usual(subject: Subject, variant: Variant) -> list[list[Scales]]:
    """By output, what a variant is off by at other seeds."""
    found: list[list[Scales]] = [[] for _ in subject.outputs]
    for seed in _OTHER_SEEDS if variant.faulty and not subject.network.large else ():
        reference, got = subject.reference(seed), subject.answers(variant, seed)
        for at, scales in enumerate(found):
            one = [values[at] for values in reference]
            scales.append(Scales(one, [values[at] for values in got], fill_of(one)))
    return found


def _exact(subject: Subject, seed: int) -> Answers | None:
    if subject.network.large or _is_quantized(subject):
        return None
    try:
        return subject.exact(seed)
    except ValueError:
        return None


def _is_quantized(subject: Subject) -> bool:
    return any("QuantizeLinear" in node.op_type for node in subject.model.graph.node)


def _arithmetic(subject: Subject, variant: Variant) -> Arithmetic:
    return "quantized" if _is_quantized(subject) else variant.arithmetic


@dataclass(slots=True)
class _Trial:
    """One variant at one seed."""

    subject: Subject
    variant: Variant
    arithmetic: Arithmetic
    seed: int
    reference: Answers
    got: Answers
    noise: Answers
    exact: Answers | None
    usual: list[list[Scales]]

    def judge(self, outcome: Outcome) -> None:
        """Judge the honest answers, then a fault of every kind."""
        targets = [
            Target(
                [values[at] for values in self.reference],
                [values[at] for values in self.got],
                [values[at] for values in self.noise],
                self.arithmetic,
                self.subject.network.parts.get(name, ()),
                self.usual[at],
            )
            for at, name in enumerate(self.subject.outputs)
            if self.reference[0][at].ndim
        ]
        names = [name for at, name in enumerate(self.subject.outputs) if self.reference[0][at].ndim]
        self._judge_honest(outcome, targets)
        for states in (each for target in targets for each in target.states):
            if self.variant.faulty:
                outcome.slices += len(states)
                outcome.drowned += int((states == DROWNED).sum())
                outcome.noise += int((states == NOISE).sum())
        if self.variant.faulty:
            for number, kind in enumerate(KINDS):
                self._judge_fault(outcome, kind, number, names, targets)

    def _judge_honest(self, outcome: Outcome, targets: list[Target]) -> None:
        answers = [
            (self._named(one), self._named(two))
            for one, two in zip(self.reference, self.got, strict=True)
        ]
        why = judged(self._case(None), answers)
        if not self.variant.good or any(map(_is_poor, targets)):
            outcome.poor += 1
            outcome.poor_refused += bool(why)
            if not self.variant.good and not why:
                outcome.missed += 1
                outcome.faults += 1
                outcome.lines.append(f"{self._title}: destroyed, and passed")
            return
        outcome.honest += 1
        if why:
            outcome.refused += 1
            outcome.lines.append(f"{self._title}: honest, and refused: {why}")

    def _judge_fault(
        self,
        outcome: Outcome,
        kind: str,
        number: int,
        names: list[str],
        targets: list[Target],
    ) -> None:
        rng = np.random.default_rng((self.seed, number, crc32(self.variant.name.encode())))
        for at in rng.permutation(len(targets)):
            made = fault(kind, targets[at], rng)
            if made is None:
                continue
            answers = [
                ({names[at]: one}, {names[at]: two})
                for one, two in zip(targets[at].reference, made.answers, strict=True)
            ]
            why = judged(self._case(names[at]), answers)
            outcome.faults += 1
            counts = outcome.kinds.setdefault(kind, [0, 0])
            counts[0] += 1
            if not why:
                counts[1] += 1
                outcome.missed += 1
                outcome.lines.append(
                    f"{self._title}: {kind} and passed: {names[at]}{made.where}, "
                    f"{made.elements} elements of scale {made.scale:.3g}, "
                    f"off by {made.error:.2f} of it"
                )
            return

    @property
    def _title(self) -> str:
        return f"{self.subject.network.name} {self.variant.name} seed {self.seed}"

    def _named(self, values: Sequence[Any]) -> Answer:
        return dict(zip(self.subject.outputs, values, strict=True))

    def _case(self, only: str | None) -> Case:
        exact = None
        if self.exact is not None:
            named = map(self._named, self.exact)
            exact = [each if only is None else {only: each[only]} for each in named]
        return Case(
            model=self.subject.path,
            arithmetic=self.arithmetic,
            inputs=self.subject.inputs(self.seed),
            seed=self.seed,
            exact=exact,
        )


def _is_poor(target: Target) -> bool:
    """Whether an honest output is off by a fault's size as a whole, or on slices of some size."""
    for counts, scales, errors in target.scales.axes:
        total = max(float(counts.sum()), 1.0)
        scale = float(np.sqrt((counts * scales**2).sum() / total))
        if float(np.sqrt((counts * errors**2).sum() / total)) >= target.bar * scale > 0:
            return True
        large = (counts >= _GOOD_ELEMENTS) & (scales >= _GOOD_SCALE * scale)
        if bool((errors[large] >= target.bar * scales[large]).any()):
            return True
    return False
