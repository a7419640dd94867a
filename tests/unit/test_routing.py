"""Which variant is loaded, and why none is."""

from __future__ import annotations

import pytest
from plain_manifest import manifest, variant

from aotc.contract.report import Refusal, VariantVerdict
from aotc.errors import AotcError
from aotc.runtime.routing import choose

RUNS = VariantVerdict(name="portable", runs=True)
NATIVE = VariantVerdict(name="native", runs=True)
OTHER_ISA = VariantVerdict(
    name="native", runs=False, reasons=(Refusal(code="AOTC-C004", what="the ISA differs"),)
)


def test_the_variant_for_this_isa_comes_first() -> None:
    made = manifest()
    assert choose(made, (RUNS, NATIVE)).name == "native"
    assert choose(made, (RUNS, OTHER_ISA)).name == "portable"
    assert choose(made, (RUNS, NATIVE), "portable").name == "portable"


def test_equals_keep_the_order_of_the_manifest() -> None:
    both = manifest(variants=(variant("b"), variant("a")))
    verdicts = [VariantVerdict(name=name, runs=True) for name in ("a", "b")]
    assert choose(both, verdicts).name == "b"


@pytest.mark.parametrize(
    ("verdicts", "wanted", "lines"),
    [
        (
            (RUNS, NATIVE),
            "nativ",
            [
                "AOTC-I027 the artifact has no variant 'nativ'; did you mean 'native'?"
                " (expected portable or native; found nativ)"
            ],
        ),
        (
            (RUNS, OTHER_ISA),
            "native",
            [
                "AOTC-C009 variant 'native' does not run on this host",
                "AOTC-C004 the ISA differs",
            ],
        ),
        (
            (OTHER_ISA,),
            None,
            ["AOTC-C009 no variant runs on this host", "AOTC-C004 the ISA differs"],
        ),
    ],
)
def test_a_refusal_names_the_reasons(
    verdicts: tuple[VariantVerdict, ...], wanted: str | None, lines: list[str]
) -> None:
    with pytest.raises(AotcError) as caught:
        choose(manifest(), verdicts, wanted)
    assert [error.line() for error in (caught.value, *caught.value.also)] == lines
