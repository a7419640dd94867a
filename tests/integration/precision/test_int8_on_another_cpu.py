"""Models that are quantized here answer the same on a CPU without VNNI, in their portable form."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repository import ROOT
from variant_answers import answers
from workbench import Built, Workbench

from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.host.probe import probe
from aotc.spec.precision import QuantizationSpec
from aotc.spec.profile_files import load_profile

PLAIN_CPU = ("qemu-x86_64", "-cpu", "EPYC-Milan")
needs_emulator = pytest.mark.skipif(
    shutil.which(PLAIN_CPU[0]) is None,
    reason="needs qemu-x86_64 (qemu-user) to run as a CPU without VNNI",
)
needs_exact_cpu = pytest.mark.skipif(
    not exact_feature(probe(gpus=False).isa), reason="this CPU has no VNNI"
)
EXPORTS = ROOT / "tests" / "data" / "exports"
SIZES: dict[str, tuple[dict[str, int], ...]] = {
    "bert": ({"batch": 1, "sequence": 8}, {"batch": 2, "sequence": 5}),
    "resnet50": (
        {"batch": 1, "height": 64, "width": 64},
        {"batch": 1, "height": 96, "width": 64},
    ),
}
# Kernels for float32 add up in another order on another CPU.
ROUNDING = 1e-6


def inputs_of(name: str) -> list[dict[str, Any]]:
    chance = np.random.default_rng(5)
    if name == "resnet50":
        shapes = ((s["batch"], 3, s["height"], s["width"]) for s in SIZES[name])
        return [{"pixel_values": chance.standard_normal(shape, np.float32)} for shape in shapes]
    found = []
    for sizes in SIZES[name]:
        shape = (sizes["batch"], sizes["sequence"])
        found.append(
            {
                "input_ids": chance.integers(0, 64, shape),
                "attention_mask": np.ones(shape, np.int64),
                "token_type_ids": np.zeros(shape, np.int64),
            }
        )
    return found


def quantized(bench: Workbench, name: str, form: Any, bits: int, folder: Path) -> Built:
    """Built in int8, or int4; on the inputs that are asked, if ranges are observed."""
    spec = QuantizationSpec(form=form, reduce_range=bits == 7)
    loaded = load_profile("edge")
    # Answers of random weights hardly depend on the inputs: what they vary by is soon lost, and at
    # other sizes than those of the samples the error is beyond the gate on some CPUs.
    loose = replace(
        loaded.parity,
        int8=replace(loaded.parity.int8, max_slice=1.0, rtol=0.25),
        int4=replace(loaded.parity.int4, max_slice=1.0),
    )
    precision: Any = "int4" if bits == 4 else "int8"
    profile = replace(loaded, precision=precision, quantization=spec, parity=loose)
    options: dict[str, Any] = {}
    if form == "static":
        data = folder / "samples"
        data.mkdir()
        for number, sample in enumerate(inputs_of(name)):
            np.savez(data / f"{number}.npz", **sample)
        options["calibration"] = data
    return bench.build(
        EXPORTS / f"{name}.onnx", f"{name}-{form}-{bits}", profile=profile, **options
    )


def on_a_plain_cpu(built: Built, name: str, folder: Path) -> dict[str, list[list[Any]]]:
    given, told = folder / "given", folder / "told"
    given.write_bytes(pickle.dumps(inputs_of(name)))
    program = Path(__file__).with_name("variant_answers.py")
    subprocess.run(
        [*PLAIN_CPU, sys.executable, program, built.path, given, told],
        check=True,
        capture_output=True,
        timeout=600,
    )
    found: dict[str, list[list[Any]]] = pickle.loads(told.read_bytes())
    return found


def largest_difference(one: list[list[Any]], other: list[list[Any]]) -> float:
    """Relative to the largest value of an output, over all outputs of all inputs."""
    return max(
        float(np.abs(a - b).max() / np.abs(a).max())
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
    )


@needs_emulator
@pytest.mark.parametrize(
    ("name", "form", "bits"),
    [
        ("bert", "dynamic", 8),
        ("resnet50", "static", 7),
        pytest.param("bert", "dynamic", 7, marks=pytest.mark.slow),
        pytest.param("resnet50", "dynamic", 8, marks=pytest.mark.slow),
        pytest.param("resnet50", "static", 8, marks=pytest.mark.slow),
        pytest.param("bert", "weights", 4, marks=pytest.mark.slow),
        pytest.param("bert", "weights", 8, marks=pytest.mark.slow),
    ],
)
def test_the_portable_form_answers_the_same(
    bench: Workbench, tmp_path: Path, name: str, form: str, bits: int
) -> None:
    built = quantized(bench, name, form, bits, tmp_path)
    here = answers(built.path, inputs_of(name))
    there = on_a_plain_cpu(built, name, tmp_path)
    assert largest_difference(here["portable"], there["portable"]) <= ROUNDING
    if bits == 7:
        assert list(here) == ["portable"]
        return
    # The other form requires VNNI, and is why: without it, it is another model.
    if exact_feature(probe(gpus=False).isa) and form != "weights":
        assert largest_difference(here["portable-vnni"], there["portable-vnni"]) > 100 * ROUNDING
