"""What `precision: auto` tries, which of it is taken, and what is said of it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from answered import answered
from made_profiles import profile_with

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.pipeline import attempts, auto
from aotc.pipeline import tune as candidate_trials
from aotc.pipeline import tune as kept_trials
from aotc.pipeline.attempts import Attempt
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.tune import (
    candidate_spec,
    candidates,
    choose,
    passing_form,
    precision_findings,
    profile_with_choices,
    try_candidates,
    wants_auto,
)
from aotc.pipeline.types import AnalyzedModel, ProvenVariants, VariantPlan
from aotc.providers.base import BACKENDS, SessionUse
from aotc.spec.evidence import Blamed, Evidence, TuningCandidate
from aotc.spec.payload import Finding
from aotc.spec.profile import Profile

CPU_FORMS = [("keep", "auto"), ("int8", "static"), ("int8", "dynamic")]
AUTO_FORMS = [
    *CPU_FORMS,
    ("int8", "mixed"),
    *[("int8", "weights")] * 2,
    ("int4", "mixed"),
    *[("int4", "weights")] * 5,
]
CUDA_FORMS = [("keep", "auto"), ("float16", "auto"), ("bfloat16", "auto"), ("tf32", "auto")]


def profile(**fields: Any) -> Profile:
    """The built-in profile `edge` in `auto`, with other fields."""
    return profile_with("edge", **{"precision": "auto", **fields})


def forms(asked: Profile, *, tune: bool = False, variant: str = "") -> list[tuple[str, str]]:
    """The precisions and forms that are tried."""
    return [
        (row.precision, row.form)
        for row in candidates(asked, tune=tune)
        if variant in ("", row.variant)
    ]


def row(precision: str, **fields: Any) -> TuningCandidate:
    """A row of the table for the variant of `edge`."""
    stated: dict[str, Any] = {"variant": "portable", "providers": ("cpu",), **fields}
    return TuningCandidate(precision=precision, **stated)  # type: ignore[arg-type]


# What is tried.


def test_every_backend_has_the_precisions_that_it_is_quicker_in() -> None:
    for name in BACKENDS.names():
        backend = BACKENDS.load(name)()
        assert "keep" not in backend.quicker_precisions, name
        gained = backend.may_gain_by()
        assert set(gained) <= {*backend.precisions, *backend.quantized}, name
        assert len(set(gained)) == len(gained), name


def test_on_the_cpu_the_forms_of_int8_are_tried_and_half_precision_is_not() -> None:
    assert forms(profile()) == AUTO_FORMS


def test_on_cuda_what_its_tensor_cores_compute_in_is_tried() -> None:
    assert forms(profile(providers=["cuda", "cpu"])) == CUDA_FORMS


def test_a_form_that_the_profile_states_is_the_only_one_tried() -> None:
    stated = profile(quantization={"form": "weights"})
    assert forms(stated) == [
        ("keep", "auto"),
        *[("int8", "weights")] * 2,
        *[("int4", "weights")] * 5,
    ]
    assert len({each.blocks for each in candidates(stated, tune=False)}) == 6


def test_what_saves_space_alone_is_tried_where_the_profile_lists_it() -> None:
    stated = profile(tune={"precision": ["int4", "float16"]})
    assert forms(stated) == [*AUTO_FORMS, ("float16", "auto")]
    assert forms(stated, tune=True) == [*CPU_FORMS, ("int4", "auto"), ("float16", "auto")]


def test_a_precision_that_no_provider_has_is_not_tried() -> None:
    stated = profile(tune={"precision": ["tf32"]})
    assert forms(stated) == AUTO_FORMS


def test_only_variants_in_auto_have_candidates_without_tune() -> None:
    stated = profile(
        precision="keep",
        variants=[{"name": "plain"}, {"name": "quick", "precision": "auto"}],
    )
    assert wants_auto(stated)
    assert {tried.variant for tried in candidates(stated, tune=False)} == {"quick"}
    assert forms(stated, variant="quick") == AUTO_FORMS
    # With --tune all variants have some.
    assert forms(stated, tune=True, variant="plain") == [("keep", "auto")]
    assert not wants_auto(profile(precision="int8"))


def test_with_tune_the_forms_are_combined_with_what_it_lists() -> None:
    stated = profile(tune={"threads": [1]})
    tried = candidates(stated, tune=True)
    assert [(each.precision, each.form, each.threads) for each in tried] == [
        (precision, form, threads) for precision, form in CPU_FORMS for threads in (None, 1)
    ]
    # Without it `auto` changes the precision alone.
    assert {each.threads for each in candidates(stated, tune=False)} == {None}


def test_tune_may_list_int8_for_a_variant_that_is_not_in_auto() -> None:
    stated = profile(precision="keep", tune={"precision": ["int8"]})
    assert forms(stated, tune=True) == CPU_FORMS
    assert forms(stated, tune=False) == []


def test_the_profiles_own_precision_is_tried_in_the_form_that_it_states() -> None:
    stated = profile(precision="int8", tune={"precision": ["keep"]})
    assert forms(stated, tune=True) == [("int8", "auto"), ("keep", "auto")]


# What becomes of a candidate.


def test_a_candidate_states_precision_form_and_nodes() -> None:
    stated = profile(keep_float32=["head"], quantization={"block_size": 64})
    tried = row("int8", form="static", keep_float32=("a", "b"))
    spec = candidate_spec(tried, stated)
    assert (spec.precision, spec.keep_float32) == ("int8", ("head", "a", "b"))
    assert spec.quantization is not None
    assert (spec.quantization.form, spec.quantization.block_size) == ("static", 64)
    kept = candidate_spec(row("keep"), stated)
    assert (kept.precision, kept.quantization, kept.keep_float32) == ("keep", None, None)


def test_a_choice_is_repeated_from_the_table_alone() -> None:
    stated = profile()
    table = choose(
        [
            row("keep", passed=True, median_seconds=3.0),
            row("int8", form="static", reason="AOTC-Q001: no calibration data"),
            row(
                "int8",
                form="dynamic",
                passed=True,
                median_seconds=2.0,
                keep_float32=("a",),
                trials=7,
            ),
        ]
    )
    assert [each.chosen for each in table] == [False, False, True]
    chosen = profile_with_choices(stated, table)
    (spec,) = chosen.variants
    assert (spec.precision, spec.keep_float32) == ("int8", ("a",))
    assert spec.quantization is not None and spec.quantization.form == "dynamic"
    assert chosen == profile_with_choices(stated, choose(table))


def test_a_table_of_other_forms_is_refused() -> None:
    table = choose([row("int8", form="static", passed=True, median_seconds=1.0)])
    with pytest.raises(AotcError) as caught:
        profile_with_choices(profile(quantization={"form": "dynamic"}), table)
    assert caught.value.code == "AOTC-O006"
    assert "portable on cpu (int8 static, baseline, auto, all threads)" in caught.value.found


def test_variants_with_a_precision_of_their_own_stay_as_they_are() -> None:
    stated = profile(variants=[{"name": "portable"}, {"name": "own", "precision": "float16"}])
    table = choose([row("int8", form="dynamic", passed=True, median_seconds=1.0)])
    first, second = profile_with_choices(stated, table).variants
    assert (first.precision, second) == ("int8", stated.variants[1])


def test_what_is_not_timed_is_chosen_by_the_order_of_the_provider() -> None:
    table = [row("keep", passed=True), row("float16", reason="x"), row("bfloat16", passed=True)]
    assert [each.chosen for each in choose(table)] == [False, False, True]
    assert [each.chosen for each in choose(table[:2])] == [True, False]
    # One time is worth more than any order.
    timed = [row("keep", passed=True, median_seconds=9.0), *table[1:]]
    assert [each.chosen for each in choose(timed)] == [True, False, False]


# What is said of it.


def said(*table: TuningCandidate, asked: Profile | None = None) -> list[Finding]:
    evidence = Evidence(built_at="", stages={}, variants=(), host={}, tuning=table)
    return list(precision_findings(evidence, asked or profile()))


def test_kept_nodes_and_a_choice_without_a_time_are_told() -> None:
    kept = row("float16", passed=True, keep_float32=("a", "b"), chosen=True)
    order, nodes = said(row("keep", passed=True), kept)
    assert (order.code, order.where) == ("AOTC-N035", "variant portable")
    assert order.what.startswith("float16 is the first of those that pass")
    assert (nodes.code, nodes.what) == (
        "AOTC-N036",
        "float16 passes with 2 nodes in float32: a, b",
    )


def test_nodes_that_depend_on_how_quick_the_host_is_are_told_as_such() -> None:
    kept = row("float16", passed=True, keep_float32=("a",), chosen=True, median_seconds=1.0)
    (finding,) = said(replace(kept, search_ended="time"))
    assert "a faster host may keep fewer" in finding.what
    (finding,) = said(replace(kept, search_ended="trials"))
    assert "faster host" not in finding.what


def test_why_nothing_else_was_taken_is_told() -> None:
    (finding,) = said(
        row("keep", passed=True, median_seconds=1.0, chosen=True),
        row("int8", form="static", reason="AOTC-N001: too far"),
        row("int8", form="dynamic", passed=True, median_seconds=2.0),
    )
    assert (finding.code, finding.what) == (
        "AOTC-O019",
        "the model's own precision is kept; int8 static is not taken: AOTC-N001: too far; "
        "int8 dynamic is not faster",
    )
    (alone,) = said(row("keep", passed=True, median_seconds=1.0, chosen=True))
    assert "has no faster one" in alone.what


def test_what_was_taken_by_its_time_needs_no_words() -> None:
    assert said(row("int8", form="static", passed=True, median_seconds=1.0, chosen=True)) == []


def test_of_a_variant_that_states_its_precision_nothing_is_said() -> None:
    own = row("keep", passed=True, chosen=True)
    assert said(own, asked=profile(precision="keep")) == []


# Trials: stages and the search are replaced by what they answer.


class Stages:
    """All stages: a plan passes in these precisions if these of its nodes are kept."""

    def __init__(self, needed: dict[str, set[str]], *, here: bool = True) -> None:
        self.needed = needed
        self.here = here
        self.plans: list[VariantPlan] = []
        self.folders: list[str] = []

    def __call__(self, attempt: Attempt) -> ProvenVariants:
        self.folders.append(attempt.state.work.name)
        proven: list[Any] = []
        failed: list[Any] = []
        for form in attempt.forms:
            plan = form.plan
            self.plans.append(plan)
            if self.needed.get(plan.precision, set()) <= set(plan.keep_float32):
                proven.append(Mock(plan=plan, parity=Mock(status=self.status)))
            else:
                lowered = Mock(plan=plan, contexts=(), use=SessionUse())
                failed.append((lowered, AotcError("AOTC-N001", "too far")))
        return ProvenVariants(
            proven=tuple(proven), failed=tuple(failed), left_out=(), findings=(), weights=()
        )

    @property
    def status(self) -> str:
        return "passed" if self.here else "not-run"


def state_of(asked: Profile, folder: Path) -> BuildState:
    host = probe(gpus=False)
    context = BuildContext(profile=asked, target=host, host=host)
    return BuildState(context=context, work=folder, workers=Mock())


@pytest.fixture(autouse=True)
def no_lower_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """What precision makes inexact stays so at every level of the optimizer."""
    monkeypatch.setattr(attempts, "precision_is_to_blame", lambda *_: True)


def blames(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, ...]) -> list[Any]:
    """The search answers these sets one after the other, then nothing; what it was asked."""
    asked: list[Any] = []
    answers = iter(found)

    def blame(lowered: Any, error: AotcError, state: BuildState) -> Blamed | None:
        asked.append(lowered.plan)
        kept = next(answers, None)
        if kept is None:
            return None
        ended: Any = "time" if "b" in kept else "trials"
        found = Blamed(
            variant="v",
            precision="int8",
            keep_float32=kept,
            candidates=9,
            trials=4,
            search_ended=ended,
        )
        state.blames["v int8", Path(str(len(asked)))] = found
        return found

    monkeypatch.setattr(kept_trials, "blame", blame)
    return asked


PLAN = VariantPlan(name="v", spec="v", isa="baseline", precision="int8")


def form_of(stages: Stages, folder: Path, *plans: VariantPlan) -> Any:
    return answered(passing_form(plans or (PLAN,), state_of(profile(), folder)), stages)


def test_the_search_is_given_what_a_stage_makes() -> None:
    """The signature that the doubles here stand in for."""
    from aotc.pipeline.blame import blame

    assert list(inspect.signature(blame).parameters) == ["lowered", "error", "state"]


def test_a_form_that_passes_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = blames(monkeypatch, ("a",))
    found = form_of(Stages({}), tmp_path)
    assert (found.kept, asked) == ((), [])


def test_a_breach_is_searched_and_tried_again_with_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages({"int8": {"a", "b"}})
    blames(monkeypatch, ("a",), ("b",))
    found = form_of(stages, tmp_path)
    assert found.kept == ("a", "b")
    assert [plan.keep_float32 for plan in stages.plans] == [(), ("a",), ("a", "b")]
    # Another level of the optimizer does not make a precision more exact.
    assert stages.folders == ["kept-0", "kept-1", "kept-2"]


def test_all_plans_must_pass_with_the_same_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages({"int8": {"a"}})
    blames(monkeypatch, ("a",))
    small = VariantPlan(name="v.8", spec="v", isa="baseline", precision="int8", buckets={"n": 8})
    found = form_of(stages, tmp_path, PLAN, small)
    assert found.proven.plan.name == "v"
    assert {plan.keep_float32 for plan in stages.plans[2:]} == {("a",)}


@pytest.mark.parametrize(
    "found", [(), (tuple("abcdefghi"),)], ids=["nothing found", "nothing but all nodes"]
)
def test_what_no_few_nodes_explain_is_tried_in_other_forms_and_refused(
    found: tuple[tuple[str, ...], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages({"int8": {"never"}})
    blames(monkeypatch, *found)
    with pytest.raises(AotcError, match="too far"):
        form_of(stages, tmp_path)
    assert stages.folders == ["kept-0", "other-forms"]


def test_the_search_ends_though_every_round_finds_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages({"int8": {"never"}})
    asked = blames(monkeypatch, *((str(number),) for number in range(50)))
    with pytest.raises(AotcError):
        form_of(stages, tmp_path)
    assert len(asked) == 3


def test_a_model_that_is_left_as_it_is_did_not_pass(tmp_path: Path) -> None:
    def left(attempt: Attempt) -> ProvenVariants:
        keep = VariantPlan(name="v", spec="v", isa="baseline")
        noticed = Finding(code="AOTC-N011", what="the model is quantized, and is left unchanged")
        item: Any = Mock(plan=keep)
        return ProvenVariants(
            proven=(item,), failed=(), left_out=(), findings=(noticed,), weights=()
        )

    with pytest.raises(AotcError, match="the model is quantized") as caught:
        answered(passing_form((PLAN,), state_of(profile(), tmp_path)), left)
    assert caught.value.code == "AOTC-N008"


def table_of(
    asked: Profile, stages: Stages, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[TuningCandidate, ...]:
    forms = {"int8": ("static", "dynamic"), "int4": ()}
    monkeypatch.setattr(candidate_trials, "_FORMS", forms)
    monkeypatch.setattr(candidate_trials, "accepts_run", lambda *_: True)
    monkeypatch.setattr(
        candidate_trials, "first_equals", lambda made: {each: each for each in made}
    )
    monkeypatch.setattr(
        candidate_trials,
        "time_alternately",
        lambda made, *_, **__: ([(1.0 / (2 + at), 0.1) for at in range(len(made))], True),
    )
    reference: Any = Mock(sizes={})
    reference.name = "opt"
    analyzed: Any = Mock(spec=AnalyzedModel, references=(reference,), ranges={}, traits=())
    analyzed.lacks_of.return_value = {}
    steps = try_candidates(analyzed, state_of(asked, folder), tune=False)
    return answered(steps, stages)


def test_the_quickest_that_passes_is_taken_with_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blames(monkeypatch, ("a",), ("a",))
    table = table_of(profile(), Stages({"int8": {"a"}}), tmp_path, monkeypatch)
    assert [(each.precision, each.form, each.keep_float32, each.trials) for each in table] == [
        ("keep", "auto", (), 0),
        ("int8", "static", ("a",), 4),
        ("int8", "dynamic", ("a",), 4),
    ]
    assert [each.chosen for each in table] == [False, False, True]


def test_trials_of_all_searches_count_also_where_a_candidate_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blames(monkeypatch, ("a",), ("b",), ("c",), ("d",))
    stages = Stages({"int8": {"a", "b", "c", "d"}})
    static, dynamic = table_of(profile(), stages, tmp_path, monkeypatch)[1:]
    assert (static.passed, static.trials) == (False, 12)
    assert (dynamic.passed, dynamic.trials) == (False, 4)
    assert (static.search_ended, dynamic.search_ended) == ("time", "trials")


def test_searches_for_one_candidate_share_the_trials_of_the_profile(tmp_path: Path) -> None:
    found = Blamed(variant="v", precision="int8", trials=9)
    state = state_of(profile(), tmp_path)
    state.blames.update({("v int8", Path("a")): found, ("v int8", Path("b")): None})
    left = state.trials_left
    assert (left("v int8"), left("v.8 int8")) == (6, 15)
    shared = replace(state, shared_trials=True)
    assert shared.trials_left("v.8 int8") == 6
    shared.blames["v.8 int8", Path("a")] = found
    assert shared.trials_left("v int8") == 0


def test_where_nothing_can_be_timed_the_first_that_passes_ends_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blames(monkeypatch)
    stages = Stages({"float16": {"never"}}, here=False)
    asked = profile(providers=["cuda", "cpu"], unproven="allow")
    table = table_of(asked, stages, tmp_path, monkeypatch)
    found = {each.precision: each for each in table}
    assert found["float16"].reason.startswith("AOTC-N001")
    assert found["bfloat16"].chosen and found["bfloat16"].median_seconds is None
    assert found["tf32"].reason.startswith("not tried")
    assert "tf32" not in {plan.precision for plan in stages.plans}


def test_a_form_whose_graph_is_refused_when_it_is_timed_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `on_refusal: fail` on CUDA: the others are chosen among, and the build goes on."""
    keep, half = row("keep"), row("float16")
    refusal = AotcError("AOTC-R024", "the graph is refused")
    monkeypatch.setattr(auto, "first_equals", lambda made: {each: each for each in made})
    monkeypatch.setattr(auto, "seconds_by_turns", lambda *_, **__: [[2.0, 1.0, 3.0], refusal])
    reference: Any = Mock(sizes={"n": 4})
    lowered: Any = {each: Mock() for each in (keep, half)}
    rows = auto._timed(lowered, reference, state_of(profile(), tmp_path))
    assert (rows[keep].median_seconds, rows[keep].rounds, rows[keep].reason) == (2.0, 3, "")
    assert rows[half].median_seconds is None
    assert rows[half].reason.startswith("AOTC-R024")
