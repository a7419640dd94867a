"""Statically quantized variants are judged by the user's data, and so are their loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from repository import ROOT
from workbench import Built, Workbench

import aotc
from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.pipeline.integers import may_be_static
from aotc.runtime.qualification import AcceptanceRequest, accept
from aotc.spec.precision import CalibrationSpec, QuantizationSpec
from aotc.spec.profile import FixtureSpec, Profile, TuneSpec, VariantSpec
from aotc.trust.key_loading import load_public

DIGITS = ROOT / "examples" / "digits"


def profile(calibration: Path | None, **fields: object) -> Profile:
    return Profile(
        schema="aotc.profile/1",
        name="judged",
        precision="int8",
        quantization=QuantizationSpec(form="static"),
        calibration=CalibrationSpec(data=str(calibration or "")),
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Half of the images for calibration, one of the others as a fixture."""
    folder = tmp_path_factory.mktemp("halves")
    with np.load(DIGITS / "heldout.npz") as held:
        images = held["image"]
    np.savez(folder / "calibration.npz", image=images[:200])
    np.savez(folder / "one.npz", image=images[300:301])
    return folder / "calibration.npz", folder / "one.npz"


@pytest.fixture(scope="module")
def static(bench: Workbench, halves: tuple[Path, Path]) -> Built:
    return bench.build(DIGITS / "digits.onnx", "static", profile=profile(halves[0]))


def test_it_is_compared_on_the_users_data_at_all_sizes(static: Built) -> None:
    for variant in static.report.variants:
        names = {comparison.fixture for comparison in variant.comparisons}
        assert {f"sample{number}" for number in range(8)} <= names
        # The sizes of the generated ones, at which samples are repeated.
        assert {"opt-sampled", "max-sampled"} <= names
        assert all(error.passed for each in variant.comparisons for error in each.outputs)


def test_generated_inputs_say_nothing_of_it(static: Built) -> None:
    """So none is shipped; the user's data is not, as nobody consented."""
    assert static.manifest.fixtures == ()
    told = [each for each in static.report.findings if each.code == "AOTC-N006"]
    assert [each.where for each in told] == [f"variant {v.name}" for v in static.manifest.variants]
    assert all("--embed-fixtures" in each.what for each in told)


def test_ranges_that_do_not_hold_are_a_breach(bench: Workbench, halves: tuple[Path, Path]) -> None:
    """Calibrated on one dark image, and judged on it and on a fixture of the user."""
    with np.load(halves[0]) as held:
        dark = held["image"][:1] * np.float32(0.01)
    np.savez(bench.folder / "dark.npz", image=dark)
    with pytest.raises(AotcError) as caught:
        bench.build(
            DIGITS / "digits.onnx",
            "dark",
            profile=profile(bench.folder / "dark.npz"),
            fixtures=halves[1],
        )
    failed = [error for error in caught.value.every() if error.code == "AOTC-N001"]
    assert failed
    assert all(error.where.endswith("fixture user0") for error in failed)


def test_a_load_does_not_judge_by_them(static: Built, bench: Workbench) -> None:
    with aotc.load(static.path, key=bench.public) as model:
        with np.load(DIGITS / "heldout.npz") as held:
            images, labels = held["image"][200:], held["label"][200:]
        answers = model.run({"image": images})["logits"].argmax(axis=1)
    assert float((answers == labels).mean()) >= 0.985


def test_an_embedded_fixture_of_the_user_judges_it(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    built = bench.build(
        DIGITS / "digits.onnx",
        "embedded",
        profile=profile(halves[0]),
        fixtures=halves[1],
        embed_fixtures=True,
    )
    user, _ = built.manifest.fixtures
    assert (user.name, user.excluded_variants) == ("user0", ())
    assert "AOTC-N006" not in built.codes()
    excused = any(fixture.excluded_variants for fixture in built.manifest.fixtures)
    assert ("fixture-variants" in built.manifest.required_features) == excused


def acceptance(built: Built, bench: Workbench, variant: str) -> AcceptanceRequest:
    return AcceptanceRequest(
        artifact=str(built.path),
        keys=load_public(bench.public),
        variant=(variant,),
        threads=None,
        runs=1,
    )


def test_embedded_samples_judge_it_at_load(bench: Workbench, halves: tuple[Path, Path]) -> None:
    """The user's consent to ship their data holds for calibration data too."""
    both = profile(
        halves[0],
        variants=(VariantSpec(name="exact", precision="keep"), VariantSpec(name="small")),
    )
    built = bench.build(DIGITS / "digits.onnx", "samples", profile=both, embed_fixtures=True)
    sample, generated = built.manifest.fixtures
    assert (sample.origin, sample.excluded_variants) == ("user", ("exact",))
    assert (generated.name, generated.excluded_variants) == ("opt", ("small",))
    # A reader that does not know so would judge by them: it must refuse.
    assert "fixture-variants" in built.manifest.required_features
    assert "AOTC-N006" not in built.codes()
    for name in ("exact", "small"):
        with aotc.load(built.path, key=bench.public, variant=name) as model:
            assert [load.fixtures for load in model.report.variants] == [1]
        (timed,) = accept(acceptance(built, bench, name)).latency
        assert (timed.variant, timed.fixture) == (name, sample.name if name == "small" else "opt")


def test_samples_that_do_not_fit_are_told(bench: Workbench, halves: tuple[Path, Path]) -> None:
    built = bench.build(
        DIGITS / "digits.onnx",
        "unfit",
        profile=profile(halves[0], fixtures=FixtureSpec(max_bytes=1)),
        embed_fixtures=True,
    )
    (told,) = (each for each in built.report.findings if each.code == "AOTC-N006")
    assert (told.where, built.manifest.fixtures) == ("", ())
    assert "fixtures.max_bytes (1 bytes)" in told.what


def test_other_precisions_are_judged_by_generated_inputs(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    both = Profile(
        schema="aotc.profile/1",
        name="both",
        calibration=CalibrationSpec(data=str(halves[0])),
        variants=(VariantSpec(name="exact"), VariantSpec(name="small", precision="int8")),
    )
    built = bench.build(DIGITS / "digits.onnx", "both", profile=both)
    for fixture in built.manifest.fixtures:
        assert "exact" not in fixture.excluded_variants
        assert "small" in fixture.excluded_variants
        # Nor do these inputs keep to the range of the user's data, which are images in 0..1.
        (image,) = fixture.inputs
        assert float(values.load(built.payload / image.path).min()) < -1
    assert accept(acceptance(built, bench, "exact")).latency
    with pytest.raises(AotcError) as caught:
        accept(acceptance(built, bench, "small"))
    assert (caught.value.code, caught.value.found) == ("AOTC-N009", "variant small")
    assert "--embed-fixtures" in caught.value.fix


def test_trials_judge_it_by_the_users_data(bench: Workbench, halves: tuple[Path, Path]) -> None:
    """Also where only `--tune` asks for it, and where a build repeats the choice."""
    asked = Profile(
        schema="aotc.profile/1",
        name="tuned",
        calibration=CalibrationSpec(data=str(halves[0])),
        quantization=QuantizationSpec(form="static"),
        tune=TuneSpec(precision=("int8",), rounds=3),
    )
    model = DIGITS / "digits.onnx"
    built = bench.build(model, "tuned", profile=asked, tune=True)
    (static,) = (row for row in built.report.tuning if row.precision == "int8")
    assert (static.passed, static.reason) == (True, "")
    again = bench.build(model, "again", profile=asked, tuned_from=built.path)
    assert again.report.artifact_id == built.report.artifact_id
    untuned = bench.build(model, "untuned", profile=asked)
    assert "AOTC-N019" in untuned.codes()
    assert "AOTC-N019" not in built.codes()


def test_integers_of_weights_alone_are_judged_by_generated_inputs(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    """CUDA runs no other form, so `auto` observes nothing there, and the data is not read."""
    asked = Profile(
        schema="aotc.profile/1",
        name="weights",
        precision="int8",
        providers=("cuda", "cpu"),
        unproven="allow",
        calibration=CalibrationSpec(data=str(halves[0])),
    )
    built = bench.build(DIGITS / "digits.onnx", "weights", profile=asked)
    assert "AOTC-N019" in built.codes()
    for variant in built.report.variants:
        # Without a GPU, the whole graph is compared on the CPU.
        compared = variant.comparisons or variant.unpartitioned
        assert compared and not any("sample" in each.fixture for each in compared)


def test_candidates_that_may_be_static_are_those_that_are_tried() -> None:
    def asked(form: str, precision: str = "keep", providers: tuple[str, ...] = ("cpu",)) -> Profile:
        return Profile(
            providers=providers,
            schema="aotc.profile/1",
            name="asked",
            precision=precision,  # type: ignore[arg-type]
            quantization=QuantizationSpec(form=form),  # type: ignore[arg-type]
            tune=TuneSpec(precision=("int8",)),
        )

    assert may_be_static(asked("auto"), tune=True)
    assert not may_be_static(asked("auto"), tune=False)
    assert not may_be_static(asked("dynamic"), tune=True)
    assert may_be_static(asked("auto", "auto"), tune=False)
    assert may_be_static(asked("auto", "int8"), tune=False)
    assert not may_be_static(asked("auto", "int8", ("cuda", "cpu")), tune=False)
    assert may_be_static(asked("static", "int8", ("cuda", "cpu")), tune=False)
