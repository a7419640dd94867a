"""A page with errors by node: the switch colours the graph, without a script of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from chromium import Browser, chromium, needs_chromium
from drawn_artifacts import DIGITS, built, read_page, text_of
from onnx import numpy_helper
from replaced_payload import with_model

from aotc.report.html.artifact_page import artifact_page
from aotc.report.html.graph_data import error_class
from aotc.spec.evidence import NodeErrors
from aotc.tools.debug_parity import measure_nodes

FILLS = """
return Array.from(document.querySelectorAll('.variant:not([hidden]) svg.graph .node'))
  .map((e) => [e.className.baseVal, getComputedStyle(e.querySelector('.box')).fill,
    e.getAttribute('aria-label')]);
"""


def scaled(model: onnx.ModelProto) -> None:
    """A pass that adds a tenth to the last weight that the model itself holds."""
    for tensor in reversed(model.graph.initializer):
        if tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.data_type == 1:
            values = numpy_helper.to_array(tensor) + 0.1
            tensor.CopyFrom(numpy_helper.from_array(values.astype("float32"), tensor.name))
            return
    raise AssertionError("no weight is in the model itself")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, NodeErrors]:
    folder = tmp_path_factory.mktemp("errors")
    artifact = built(folder, DIGITS, "--dim", "batch=1..8")
    spoiled = with_model(artifact, folder / "spoiled.aotc", scaled)
    spoiled = (
        with_model(spoiled, folder / "both.aotc", scaled, "native")
        if (spoiled / "payload" / "model.native").exists()
        else spoiled
    )
    variant, errors = measure_nodes(spoiled, DIGITS)
    file = folder / "page.html"
    file.write_text(artifact_page(spoiled, errors={variant: errors}), "ascii")
    return file, variant, errors


def test_the_section_names_the_first_and_the_worst_node(
    measured: tuple[Path, str, NodeErrors],
) -> None:
    file, _, errors = measured
    assert errors.first
    text = text_of(read_page(file.read_text("ascii")))
    assert f"first node{errors.first}" in text.replace("\n", "")
    assert "Errors of single nodes were not measured" not in text
    assert f"All {len(errors.nodes)} compared values" in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@needs_chromium
def test_colours_follow_the_errors_and_the_switch(
    browser: Browser, measured: tuple[Path, str, NodeErrors]
) -> None:
    file, _, errors = measured
    browser.open(file)
    assert browser.errors() == []
    browser.run("document.querySelector('[data-do=open]').click()")
    by_error = browser.run(FILLS)
    wrong = [each for each in by_error if "e4" in each[0].split()]
    assert 0 < len(wrong) < len(by_error)
    assert all("out of tolerance" in label for _, _, label in wrong)
    colours = {classes.split()[-1]: fill for classes, fill, _ in by_error}
    assert len(set(colours.values())) == len(colours)
    assert {error_class(error) for error in errors.nodes} >= colours.keys() - {"node"}
    browser.run("document.getElementById('graph').scrollIntoView()")
    assert browser.driver.save_screenshot(str(file.with_name("by-error.png")))
    browser.run("document.querySelector('.variant:not([hidden]) .by-error').click()")
    by_provider = browser.run(FILLS)
    assert len({fill for _, fill, _ in by_provider}) == 1
    assert by_provider != by_error
    assert browser.errors() == []
