"""The same artifact, input and host give the same bytes, alone and under load."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from equal_calls import alone, under_load
from racing_scatter import THREADS, WIDTH, racing_scatter
from repository import ROOT
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench

from aotc import inspect, load
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.cli import terminal as render
from aotc.providers.cpu import CpuBackend
from aotc.report.html.artifact_page import artifact_page
from aotc.report.sheets.artifact import inspect_view
from aotc.spec.precision import RepeatSpec
from aotc.spec.profile import Profile, VariantSpec
from aotc.spec.profile_files import load_profile
from aotc.spec.variant import SessionSpec

# Any positions do, but for a cache of a fixed capacity.
EXPORTS = sorted(
    path
    for path in (ROOT / "tests" / "data" / "exports").glob("*.onnx")
    if path.stem != "llama_static"
)
THIRD_PARTY = sorted(MODELS.glob("*.onnx"))
# So often that a difference is nearly always seen; a busy host may run the threads one by one.
RUNS = 20
ATTEMPTS = 5


def differences(bench: Workbench, built: Built, runs: int) -> Iterator[str]:
    """What differs between equal calls of each variant, loaded as a server loads it."""
    sizes = built.manifest.domain.corner("opt")
    inputs = built.inputs(sizes)
    for variant in built.manifest.variants:
        store = bench.folder / "store"
        with load(built.path, key=bench.public, store=store, variant=variant.name) as model:
            found = alone(model, inputs, runs)
            loaded = under_load(model, inputs, runs, model.run(inputs))
        assert (found.runs, loaded.runs) == (runs, runs)
        yield from (f"{variant.name}: {each}" for each in (*found.outputs, *loaded.outputs))


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("bert", {"batch": 2, "sequence": 16}),
        ("resnet50", {"batch": 1, "height": 224, "width": 224}),
        ("gpt2", {}),
    ],
)
def test_equal_calls_have_equal_bytes(bench: Workbench, name: str, dims: dict[str, int]) -> None:
    built = bench.build(ROOT / "tests" / "data" / "exports" / f"{name}.onnx", name, dims=dims)
    assert list(differences(bench, built, 10)) == []


def racing_profile(runs: int) -> Profile:
    """Threads that race for one row, and calls enough to see it."""
    return replace(
        load_profile("edge"),
        variants=(VariantSpec(name="portable", threads=THREADS),),
        repeatability=RepeatSpec(runs=runs),
    )


def raced(bench: Workbench, name: str, *, cache: bool = True) -> Built:
    """A build that saw its threads race; skips where other work leaves them no core to race on."""
    for attempt in range(ATTEMPTS):
        profile = racing_profile(RUNS + attempt)
        built = bench.build(racing_scatter(), f"{name}-{attempt}", profile=profile, cache=cache)
        if "AOTC-N040" in [each.code for each in built.report.findings]:
            return built
    pytest.skip(f"in {ATTEMPTS} builds no call differed from the first: the threads did not race")


@pytest.fixture(scope="module")
def racing(bench: Workbench) -> Built:
    return raced(bench, "racing")


def test_other_bytes_are_a_finding_that_names_the_setting(racing: Built) -> None:
    (found,) = (each for each in racing.report.findings if each.code == "AOTC-N040")
    assert found.where == "variant portable"
    assert re.search(r"of \d+ equal calls had other bytes than the first", found.what)
    assert "values of 'y' by up to" in found.what
    assert "with 'threads: 1' in the profile, all calls had the same bytes" in found.what
    (evidence,) = racing.report.variants
    assert evidence.repeats is not None
    assert 0 < evidence.repeats.differing_runs <= evidence.repeats.runs
    assert RUNS <= evidence.repeats.runs < RUNS + ATTEMPTS
    (output,) = evidence.repeats.outputs
    assert (output.output, output.total_values) == ("y", WIDTH)
    assert 0 < (output.max_abs or 0) < 1e-3


def test_the_payload_does_not_say_so(racing: Built) -> None:
    """It is the same for equal inputs, and how many calls differ is not."""
    assert "AOTC-N040" not in racing.codes()


def test_the_terminal_and_the_page_tell(racing: Built) -> None:
    seen = inspect(racing.path)
    assert seen.artifact is not None
    shown = io.StringIO()
    render.show_sheet(inspect_view(seen), file=shown)
    terminal = shown.getvalue()
    assert "differ in y" in terminal
    assert "threads: 1" in terminal
    page = artifact_page(racing.path)
    assert "differ in y" in page
    assert re.search(r"\d+ calls", page)


def test_the_named_setting_gives_equal_bytes(bench: Workbench) -> None:
    spec = VariantSpec(name="portable", threads=1)
    profile = replace(racing_profile(RUNS), variants=(spec,))
    built = bench.build(racing_scatter(), "in-turn", profile=profile)
    assert "AOTC-N040" not in [each.code for each in built.report.findings]
    assert list(differences(bench, built, 20)) == []


def broken(session: SessionSpec) -> SessionSpec:
    """With an option that ONNX Runtime refuses."""
    return replace(
        session, config={**session.config, "session.graph_optimizations_loop_level": "x"}
    )


@pytest.mark.parametrize("rescued", [True, False])
def test_a_setting_that_does_not_open_is_no_end(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, rescued: bool
) -> None:
    known = CpuBackend.steadier

    def steadier(backend: CpuBackend, session: SessionSpec) -> dict[str, SessionSpec]:
        others = known(backend, session) if rescued else {}
        return {"broken: true": broken(session), **others, "broken: again": broken(session)}

    monkeypatch.setattr(CpuBackend, "steadier", steadier)
    name = f"broken-{rescued}"
    built = raced(bench, name, cache=False)
    (evidence,) = built.report.variants
    assert evidence.repeats is not None
    last = "threads: 1" if rescued else "broken: again"
    assert evidence.repeats.tried == ("broken: true", last)
    assert evidence.repeats.setting == ("threads: 1" if rescued else "")
    (found,) = (each for each in built.report.findings if each.code == "AOTC-N040")
    none = "; no setting that was tried makes them equal: broken: true, broken: again"
    assert found.what.endswith("all calls had the same bytes" if rescued else none)


def test_where_there_is_no_setting_none_was_tried(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "steadier", lambda *_: {})
    built = raced(bench, "helpless", cache=False)
    (found,) = (each for each in built.report.findings if each.code == "AOTC-N040")
    assert found.what.endswith("; no setting is known that could make them equal")


def test_no_call_is_repeated_where_the_profile_says_so(bench: Workbench) -> None:
    built = bench.build(racing_scatter(), "never", profile=racing_profile(0))
    (evidence,) = built.report.variants
    assert evidence.repeats is None
    assert "AOTC-N040" not in [each.code for each in built.report.findings]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_a_hundred_calls_of_an_export(bench: Workbench, path: Path) -> None:
    built = bench.build(path, f"hundred-{path.stem}", profile="server-cpu")
    assert list(differences(bench, built, 100)) == []


@pytest.mark.slow
@needs_models
@pytest.mark.parametrize("path", THIRD_PARTY, ids=lambda path: path.stem)
def test_a_hundred_calls_of_a_foreign_model(bench: Workbench, path: Path) -> None:
    built = bench.build(path, f"hundred-{path.stem}", profile="server-cpu")
    assert list(differences(bench, built, 100)) == []


@pytest.mark.slow
@pytest.mark.openvino
@pytest.mark.parametrize("path", [*EXPORTS, *THIRD_PARTY], ids=lambda path: path.stem)
def test_a_hundred_calls_on_openvino(bench: Workbench, path: Path) -> None:
    try:
        built = bench.build(path, f"openvino-{path.stem}", profile="edge-openvino")
    except AotcError as error:
        pytest.skip(f"OpenVINO's variant is not built: {error.line()}")
    assert list(differences(bench, built, 100)) == []
