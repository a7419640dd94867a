"""MatMulNBits, the product with weights in blocks, saturates on no CPU: it needs no rewrite."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from block_models import CASES, Case, answers, model

from aotc.graph.passes.same_sign_weights import count_products

# Products are added up in float32, in another order on another CPU.
ROUNDING = 2e-6


@pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None,
    reason="needs qemu-x86_64 (qemu-user) to run as a CPU without VNNI",
)
def test_a_plain_cpu_agrees_but_for_rounding(tmp_path: Path) -> None:
    program = Path(__file__).with_name("block_models.py")
    told = tmp_path / "told"
    subprocess.run(
        ["qemu-x86_64", "-cpu", "EPYC-Milan", sys.executable, program, told],
        check=True,
        capture_output=True,
        timeout=300,
    )
    plain = pickle.loads(told.read_bytes())
    here = answers()
    assert set(plain) == set(here) == set(CASES)
    for case, answer in here.items():
        assert np.abs(plain[case] - answer).max() <= ROUNDING * np.abs(answer).max(), case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_no_product_that_the_table_counts(case: Case) -> None:
    assert not count_products(model(*case))


def test_activations_in_integers_change_the_answer_little() -> None:
    found = answers()
    for (bits, level, block, zeros), exact in found.items():
        integers = found[bits, 4, block, zeros]
        assert level or np.abs(exact - integers).max() <= 1e-4 * np.abs(exact).max()
