"""Static int8 is compared on what the user gives: its ranges say nothing of random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_profiles import small_profile
from workbench import Built, Workbench

from aotc.errors import AotcError

DIGITS = Path("examples/digits").resolve()
PROFILE: dict[str, Any] = {"precision": "int8", "dims": {"batch": "1..16"}}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Digits to observe activations on, and other ones."""
    folder = tmp_path_factory.mktemp("digits")
    with np.load(DIGITS / "heldout.npz") as held:
        images = held["image"]
    seen, unseen = folder / "seen.npz", folder / "unseen.npz"
    np.savez(seen, image=images[:200])
    np.savez(unseen, image=images[200:216])
    return seen, unseen


def built(bench: Workbench, name: str, halves: tuple[Path, Path], **options: Any) -> Built:
    seen, unseen = halves
    return bench.build(
        DIGITS / "digits.onnx",
        name,
        profile=small_profile("edge", **PROFILE),
        calibration=seen,
        fixtures=unseen,
        **options,
    )


def test_random_numbers_are_outside_of_what_was_observed(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(
            DIGITS / "digits.onnx",
            "random",
            profile=small_profile("edge", blame={"trials": 0}, **PROFILE),
            calibration=halves[0],
        )
    assert caught.value.code == "AOTC-N001"


def test_the_users_inputs_alone_are_compared_and_generated_ones_do_not_ship(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    found = built(bench, "observed", halves)
    for variant in found.report.variants:
        assert [each.fixture for each in variant.comparisons] == ["user0"]
        (output,) = variant.comparisons[0].outputs
        assert output.max_rel < 0.1
    assert found.manifest.fixtures == ()
    assert "which are not embedded" in found.finding("AOTC-N006")
    with bench.load(found) as model:
        assert model.report.fixtures == 0


def test_with_embed_fixtures_a_load_is_checked_on_them(
    bench: Workbench, halves: tuple[Path, Path]
) -> None:
    found = built(bench, "embedded", halves, embed_fixtures=True)
    assert [each.origin for each in found.manifest.fixtures] == ["user"]
    assert "AOTC-N006" not in found.codes()
    with bench.load(found) as model:
        assert model.report.fixtures == 1
