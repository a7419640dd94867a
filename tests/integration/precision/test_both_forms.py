"""Both forms of a quantized model are measured, and the manifest says which is which, and why."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest
from integer_models import PLAIN_ISA, activations_product, dynamic, static
from repository import ROOT
from workbench import Built, Workbench

from aotc import inspect
from aotc.cli import terminal as render
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.host.probe import probe
from aotc.report.html.artifact_page import artifact_page
from aotc.report.sheets.artifact import inspect_view
from aotc.spec.profile import VariantSpec
from aotc.spec.profile_files import load_profile
from aotc.spec.variant import IntegerProducts

FEATURE = exact_feature(probe(gpus=False).isa)
needs_exact_cpu = pytest.mark.skipif(not FEATURE, reason="this CPU has no VNNI")
needs_x86 = pytest.mark.skipif(
    probe(gpus=False).architecture != "x86_64", reason="no product saturates on this architecture"
)


@pytest.fixture
def plain_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a CPU with AVX2 and without VNNI, where decisions alone matter."""
    monkeypatch.setenv("AOTC_HOST_ISA", PLAIN_ISA)
    probe.cache_clear()
    yield
    monkeypatch.undo()
    probe.cache_clear()


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    return bench.build(static(), "both-forms")


def products(built: Built, variant: str = "portable") -> IntegerProducts:
    (found,) = (each for each in built.manifest.variants if each.name == variant)
    assert found.integer_products is not None
    return found.integer_products


@needs_x86
def test_the_portable_form_is_rewritten(built: Built) -> None:
    found = products(built)
    assert (found.form, found.feature, found.portable) == ("rewritten", "", True)
    assert found.products == {"exact-signs": 1}


@needs_exact_cpu
def test_the_other_form_requires_the_feature(built: Built) -> None:
    found = products(built, "portable-vnni")
    assert (found.form, found.feature, found.portable) == ("feature", FEATURE, False)
    assert found.products == {"saturating-signs": 1}


@needs_exact_cpu
def test_both_are_timed_in_the_same_process(built: Built) -> None:
    portable, quick = built.report.variants
    assert portable.timed_against is None
    timed = quick.timed_against
    assert timed is not None
    assert (timed.other, timed.fixture) == ("portable", "opt")
    assert timed.same_bytes
    assert min(timed.seconds, timed.other_seconds) > 0
    (found,) = (f for f in built.report.findings if f.code in ("AOTC-O017", "AOTC-O018"))
    assert found.code == ("AOTC-O017" if timed.ratio < 0.97 else "AOTC-O018")
    # Times are not reproducible, so that no payload holds them.
    assert not {"AOTC-O017", "AOTC-O018"} & set(built.codes())


@needs_exact_cpu
def test_the_terminal_and_the_page_say_which_and_why(built: Built) -> None:
    seen = inspect(built.path)
    shown = io.StringIO()
    render.show_sheet(inspect_view(seen), file=shown)
    terminal = " ".join(shown.getvalue().split())
    # Cells are cut into lines at this width.
    for words in ("8-bit integers", "the same on every", "exact with", FEATURE):
        assert words in terminal
    page = artifact_page(built.path)
    for words in (
        "the same on every CPU",
        "weights are written in the sign of the activations",
        f"exact with {FEATURE}",
        "weights are as in the model",
    ):
        assert words in page


@needs_exact_cpu
def test_a_profile_may_do_without_the_second_form(bench: Workbench) -> None:
    profile = replace(load_profile("edge"), vnni_variants="none")
    made = bench.build(static(), "one-form", profile=profile)
    assert [variant.name for variant in made.manifest.variants] == ["portable"]
    assert products(made).form == "rewritten"
    assert not {"AOTC-O009", "AOTC-O017", "AOTC-O018"} & {f.code for f in made.report.findings}


@needs_x86
def test_weights_of_seven_bits_are_portable_as_they_are(bench: Workbench) -> None:
    made = bench.build(dynamic(largest=63), "within-seven-bits")
    found = products(made)
    assert (found.form, found.products) == ("seven-bits", {"seven-bits": 1})
    assert [variant.name for variant in made.manifest.variants] == ["portable"]


@needs_x86
def test_weights_in_the_sign_of_the_activations_are_portable(bench: Workbench) -> None:
    made = bench.build(dynamic(unsigned=True), "of-one-sign")
    assert (products(made).form, products(made).products) == ("exact-signs", {"exact-signs": 1})


@needs_x86
def test_a_level_that_fuses_nothing_is_portable(bench: Workbench) -> None:
    spec = VariantSpec(name="portable", optimization="basic")
    profile = replace(load_profile("edge"), variants=(spec,))
    made = bench.build(static(), "not-fused", profile=profile)
    assert (products(made).form, products(made).products) == ("not-fused", {})


@needs_exact_cpu
def test_a_native_variant_is_exact_with_the_feature(bench: Workbench) -> None:
    made = bench.build(static(), "native-form", profile="server-cpu")
    assert products(made, "native").form == "feature"
    assert products(made, "portable").form == "rewritten"


@needs_x86
@pytest.mark.usefixtures("plain_host")
def test_products_that_cannot_be_rewritten_hold_for_such_cpus(bench: Workbench) -> None:
    made = bench.build(activations_product(), "such-cpus")
    assert (products(made).form, products(made).portable) == ("same-cpu", False)
    (portable,) = made.manifest.variants
    assert portable.requirements.isa_exact


def test_a_model_in_floating_point_has_none(bench: Workbench) -> None:
    made = bench.build(ROOT / "tests" / "data" / "exports" / "outer.onnx", "no-integers")
    assert made.manifest.variants[0].integer_products is None


def test_equal_builds_have_equal_payloads(bench: Workbench, built: Built) -> None:
    """Whatever the times of both forms are."""
    again = bench.build(static(), "both-forms-again")
    assert again.manifest.variants == built.manifest.variants
