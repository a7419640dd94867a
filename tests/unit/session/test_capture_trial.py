"""What a trial of captured graphs does in which order, and what it calls a difference."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from aotc.session.device.capture_trial import Case, _compared, planned_steps, what_is_wrong


def case(batch: int, *, captured: bool = True, flops: float = 1e9, moved: float = 1e6) -> Case:
    return Case(sizes={"batch": batch}, inputs={}, captured=captured, flops=flops, bytes=moved)


def test_all_sizes_are_captured_first_and_then_replayed_in_random_order() -> None:
    steps = planned_steps([case(8), case(2), case(5, captured=False)])
    assert [(step.captures, step.case) for step in steps[:2]] == [(True, 0), (True, 1)]
    replays = steps[2:]
    assert len(replays) == 200 and not any(step.captures for step in replays)
    counted = Counter(step.case for step in replays)
    assert counted[0] > 50 and counted[1] > 50 and 5 < counted[2] < 50
    assert {(step.case, step.turn) for step in replays} >= {
        (c, t) for c in (0, 1) for t in range(3)
    }
    changes = sum(a.case != b.case for a, b in itertools.pairwise(replays))
    assert changes > 50
    assert planned_steps([case(8), case(2), case(5, captured=False)]) == steps


@pytest.mark.parametrize(
    ("work", "replays"),
    [({"flops": 2e13}, 100), ({"moved": float(1 << 26)}, 32), ({"flops": 1e18}, 8)],
    ids=["many products", "large answers", "at least some of each size"],
)
def test_slow_models_are_replayed_less_often(work: dict[str, float], replays: int) -> None:
    steps = planned_steps([case(8, **work), case(2, **work)])
    assert len(steps) == 2 + replays


class Output:
    name = "y"


class Session:
    """Of which only the output's name is asked."""

    def get_outputs(self) -> list[Output]:
        return [Output()]


class Runner:
    """Answers with what it is given, in turn."""

    session = Session()

    def __init__(self, replayed: list[float], computed: list[float]) -> None:
        self._replayed, self._computed = replayed, computed

    def run(self, *_: Any) -> list[Any]:
        return [np.full(4, self._replayed.pop(0), np.float32)]

    def run_without_graph(self, *_: Any) -> list[Any]:
        value = self._computed.pop(0) if len(self._computed) > 1 else self._computed[0]
        return [np.full(4, value, np.float32)]


def verdicts(replayed: list[float], computed: list[float]) -> list[str]:
    runner: Any = Runner(list(replayed), list(computed))
    first, found = None, []
    for _ in replayed:
        wrong, first = _compared(runner, {}, {}, first)
        found.append(wrong)
    return found


NEAR = float(np.nextafter(np.float32(1), np.float32(2)))


def test_equal_bits_are_right() -> None:
    assert verdicts([1.0, 1.0, 1.0], [1.0]) == ["", "", ""]


def test_the_first_replay_is_compared_with_a_run_without_a_graph() -> None:
    assert verdicts([2.0], [1.0]) == ["output 'y' is not what a run without a graph computes"]
    assert verdicts([float("nan")], [1.0]) != [""]
    assert verdicts([NEAR], [1.0]) == [""]


def test_later_ones_have_the_bits_of_the_first() -> None:
    assert verdicts([1.0, NEAR], [1.0]) == [
        "",
        "output 'y' differs in bits from the first replay of these inputs",
    ]
    assert verdicts([1.0, 3.0], [1.0])[1] == "output 'y' is not what a run without a graph computes"


def test_a_model_that_never_repeats_its_bits_need_not_do_so_in_a_graph() -> None:
    assert verdicts([1.0, NEAR, 1.0], [1.0, 1.0, 1.0, NEAR]) == ["", "", ""]


class Ordered(Runner):
    """Notes the sizes of its runs; "<" are captures, and numbers below 0 run without a graph."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.calls: list[Any] = []

    def capture(self, inputs: Any, sizes: Any) -> None:
        self.calls.append("<")

    def run(self, inputs: Any, names: Any, sizes: Any) -> list[Any]:
        self.calls.append(sizes["batch"])
        return [inputs["x"] * 2]

    def run_without_graph(self, inputs: Any, sizes: Any = None) -> list[Any]:
        self.calls.append(-len(inputs["x"]))
        return [inputs["x"] * 2]


def test_runs_without_a_graph_come_first_and_change_sizes_least() -> None:
    """Of a network of convolutions, a change of sizes plans each kernel anew."""
    runner: Any = Ordered()
    cases = [case(8), case(2)]
    steps = planned_steps(cases)

    def inputs_of(each: Case) -> dict[str, Any]:
        return {"x": np.arange(each.sizes["batch"], dtype=np.float32)}

    assert not what_is_wrong(runner, cases, steps, inputs_of)
    before, _, after = "".join(map(str, runner.calls)).partition("<<")
    assert before == "-8-8-8-2-2-2" and "-" not in after and len(after) == 200


# What a runner does, before and after the trial.
WATCHED = """
import time
from aotc.session.device import capture_trial as trial

class Slow:
    class session:
        get_outputs = list

    def capture(self, inputs, sizes):
        pass

    def run(self, inputs, names, sizes):
        RUN

    def run_without_graph(self, inputs, sizes):
        time.sleep(1.0)
        return []

trial._HUNG_SECONDS = 0.2
trial.tell_steps = lambda done, steps: None
cases = [
    trial.Case(sizes={"batch": each}, inputs={}, captured=each == 2, flops=1e9, bytes=1e6)
    for each in (2, 4)
]
steps = [trial.Step(captures=True, case=0), trial.Step(captures=False, case=CASE)]
try:
    found = trial.what_is_wrong(Slow(), cases, steps, lambda case: {}) or "right"
except RuntimeError as error:
    found = str(error)
time.sleep(1.0)
print(found)
"""


@pytest.mark.parametrize(
    ("case", "run", "said"),
    [
        (0, "time.sleep(600)", ""),
        # What is planned for sizes without a graph takes its time.
        (1, "time.sleep(1.0); return []", "right"),
        (0, "return []", "right"),
        # Nothing is ended later.
        (0, "raise RuntimeError('refused')", "refused"),
    ],
    ids=["hangs", "without a graph", "replayed", "refused"],
)
def test_a_replay_that_hangs_ends_the_process_and_nothing_else_does(
    case: int, run: str, said: str
) -> None:
    program = WATCHED.replace("RUN", run).replace("CASE", str(case))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == said
    assert done.returncode == (0 if said else 1), done.stderr
    assert bool(said) or (done.stderr.startswith("Timeout") and "in run" in done.stderr)
