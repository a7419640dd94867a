"""The onnx package's backend suite: its recorded outcomes, its page, and a sample of its cases.

All of them are checked by `make test-conformance`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from repository import ROOT

from aotc.spec.command_reports import CheckModelsReport
from aotc.tools.check_outcomes import in_words, rank, read_report

KEPT = ROOT / "docs" / "conformance.json"
# Some of each kind of case, and of each outcome.
SOME = (
    "node/test_abs",
    "node/test_bernoulli",
    "node/test_castlike_FLOAT_to_BFLOAT16",
    "node/test_dropout_default_mask",
    "node/test_identity_opt",
    "node/test_if_seq",
    "node/test_loop13_seq",
    "node/test_nonmaxsuppression_two_classes",
    "node/test_optional_has_element_empty_optional_input",
    "node/test_range_int32_type_negative_delta_expanded",
    "node/test_reduce_max_empty_set_bool",
    "node/test_resize_upsample_sizes_cubic",
    "node/test_scatter_elements_with_negative_indices",
    "node/test_sequence_map_extract_shapes",
    "node/test_slice",
    "node/test_strnormalizer_export_monday_casesensintive_lower",
    "pytorch-converted/test_Conv2d_strided",
    "pytorch-operator/test_operator_repeat",
    "real/test_squeezenet",
    "simple/test_sequence_model4",
)


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    """The script that writes the cases, records the outcomes and generates the page."""
    spec = spec_from_file_location("conformance_suite", ROOT / "ci" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept() -> CheckModelsReport:
    return read_report(KEPT)


@pytest.fixture(scope="module")
def checked(suite: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command reports for a sample of cases."""
    folder = tmp_path_factory.mktemp("suite")
    assert suite.write_cases(folder / "cases", lambda name: name in SOME) == len(SOME)
    words = ("check-models", "cases", "--against", str(KEPT), "--json")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("aotc")), *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "toolchain"),
            "HOME": str(folder),
            "LOCPATH": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_the_page_is_of_what_is_kept(suite: ModuleType, kept: CheckModelsReport) -> None:
    page = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    assert page == suite.page_text(kept), "run make docs"


def test_the_kept_results_are_short_and_contain_only_outcomes(
    suite: ModuleType, kept: CheckModelsReport
) -> None:
    text = KEPT.read_text("utf-8")
    assert text == suite.kept_text(kept)
    assert len(text) < 200_000
    assert len({model.model for model in kept.models}) == len(kept.models)


def test_every_case_is_kept(suite: ModuleType, kept: CheckModelsReport) -> None:
    if kept.versions.onnx != metadata.version("onnx"):
        pytest.skip(f"the cases are kept of onnx {kept.versions.onnx}")
    assert {model.model for model in kept.models} == {name for name, _ in suite.cases()}


def test_no_case_is_a_bug_or_answers_wrongly(kept: CheckModelsReport) -> None:
    assert [model.model for model in kept.models if in_words(model).startswith("bug")] == []
    assert [model.model for model in kept.models if model.answers == "differ"] == []


def test_some_cases_are_as_they_are_kept(checked: dict[str, Any], kept: CheckModelsReport) -> None:
    assert checked["unchecked"] == []
    assert {model["model"] for model in checked["models"]} == set(SOME)
    against = checked["against"]
    assert (against["worse"], against["better"], against["changed"], against["added"]) == ([],) * 4
    # Also cases with other outcomes than success.
    assert len({rank(model) for model in kept.models if model.model in SOME}) > 2
