"""Every code is explained with the texts of the catalogue and of its check."""

from __future__ import annotations

import pytest

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.tools.explanation import CODE_GROUPS, explain, explain_all


def test_every_code_is_explained() -> None:
    assert [explanation.code for explanation in explain_all()] == list(REASONS)
    assert {code[5] for code in REASONS} == set(CODE_GROUPS)


@pytest.mark.parametrize("spelling", ["AOTC-C004", "aotc-c004", "c004", " C004 "])
def test_a_code_may_be_spelt_short(spelling: str) -> None:
    found = explain(spelling)
    assert found.code == "AOTC-C004"
    assert found.detail.startswith("The host's CPU must have the features")


def test_an_unknown_code() -> None:
    with pytest.raises(AotcError) as caught:
        explain("G0005")
    assert caught.value.line() == "AOTC-I027 there is no code 'G0005'; did you mean AOTC-G005?"
