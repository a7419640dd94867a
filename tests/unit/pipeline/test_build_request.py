"""One record defines the options of a build for the library, the command and the pipeline."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest

import aotc
from aotc.base.errors import AotcError
from aotc.cli.commands.build import build
from aotc.pipeline.request import BuildRequest

FIELDS = {field.name: field for field in dataclasses.fields(BuildRequest)}


def test_the_library_takes_the_fields_and_their_defaults() -> None:
    found = inspect.signature(aotc.build)
    assert list(found.parameters) == list(FIELDS)
    kinds = {name: parameter.kind for name, parameter in found.parameters.items()}
    # A module in memory is given with its example inputs, as torch.export takes them.
    for name in ("model", "example_inputs"):
        assert kinds.pop(name) is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}
    assert found.parameters["profile"].default == "edge"
    assert found.parameters["cache"].default is True
    assert found.return_annotation == "BuildReport"
    assert "tuned_from" in (inspect.getdoc(aotc.build) or "")


def test_the_command_line_sets_only_fields_of_the_request() -> None:
    # How the command answers and reports is its own; an identity, or an expired one, is a
    # `key` of the library.
    own = {"json", "reports", "beside", "form", "summary"}
    own |= {"keyless", "identity_token", "trust_config", "allow_expired"}
    asked = set(inspect.signature(build).parameters) - own
    in_memory = {"example_inputs", "dynamic_shapes", "source_options"}
    assert asked == FIELDS.keys() - {"progress", "journal", "workers"} - in_memory


def test_an_argument_that_there_is_not_is_the_callers_fault() -> None:
    untyped: typing.Any = aotc.build
    with pytest.raises(TypeError, match=r"^build\(\) got an unexpected .* 'sign_with'"):
        untyped("model.onnx", sign_with="key.pem")
    with pytest.raises(TypeError, match=r"^build\(\) missing .* 'model'"):
        untyped()
    with pytest.raises(AotcError):
        aotc.build("there-is-no-such-model.onnx", cache=False)
