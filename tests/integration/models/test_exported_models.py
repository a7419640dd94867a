"""Exported models, built without stating dims: what the artifact claims about shapes is true.

Plain ONNX Runtime answers the calls that users of these graphs make; so must their artifacts, and
claimed ranges and relations must hold in ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from exported_models import CALLS, USUAL_IMAGES, exported, inputs_for
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.runtime.model import Model
from aotc.spec.profile import ProbeLimits, Profile, WorkerLimits
from aotc.spec.shapes import Dim

NAMES = tuple(CALLS)
WITH_PAST = ("gpt2", "gpt2_loose", "llama_eager", "llama_sdpa")
DETECTORS = ("detector", "text")
# Maximum elements of all inputs at random sizes, so that a run is short.
MOST_ELEMENTS = 1 << 19
DRAWN = 6

# Sizes by dim that a user of each model expects to be within the default range.
WANTED: dict[str, dict[str, tuple[int, ...]]] = {
    "gpt2": {"batch": (1, 8), "sequence": (1, 128)},
    "llama_eager": {"batch": (1, 8), "sequence": (1, 128)},
    "llama_sdpa": {"batch": (1, 8), "sequence": (1, 128)},
    "decoder": {"batch": (1, 8), "sequence": (1, 128)},
    "bert": {"batch": (1, 8), "sequence": (1, 128)},
    "whisper_fixed": {"batch": (1, 8)},
    "vit": {"batch": (1, 8)},
    "resnet50": {"batch": (1, 8), "height": (224,), "width": (224,)},
    "unet": {"height": tuple(range(224, 641, 32)), "width": tuple(range(224, 641, 32))},
    "detector": {"height": tuple(range(224, 641, 32)), "width": tuple(range(224, 641, 32))},
    "text": {"height": tuple(range(224, 641, 32)), "width": tuple(range(224, 641, 32))},
    "style": {"image.0": (1,), "image.2": (224,), "image.3": (224,)},
}
IMAGES = {
    "resnet50": ("height", "width"),
    "unet": ("height", "width"),
    "detector": ("height", "width"),
    "text": ("height", "width"),
    "style": ("image.2", "image.3"),
}


class Opened:
    """One export, built and loaded, and its plain session."""

    def __init__(self, bench: Workbench, built: Built) -> None:
        self.built = built
        self.plain = plain_session(built.source)
        self._bench = bench
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """The loaded artifact."""
        if self._model is None:
            self._model = self._bench.load(self.built)
        return self._model

    def assert_answers(self, inputs: Mapping[str, Any], where: str) -> None:
        """The artifact answers `inputs` as the plain session does."""
        expected = plain_answer(self.plain, inputs)
        found = self.model.run(inputs)
        assert_agree(expected, found, tolerance_of(self.built), where)


@pytest.fixture(scope="module")
def every(bench: Workbench) -> dict[str, Opened]:
    """Exports that are already built."""
    return {}


@pytest.fixture
def opened(request: pytest.FixtureRequest, bench: Workbench, every: dict[str, Opened]) -> Opened:
    """One export without stated dims, built once for all tests that read it."""
    name: str = request.param
    if name not in every:
        every[name] = Opened(bench, bench.build(exported(name), name))
    return every[name]


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("opened", names, indirect=True)


def runs(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> bool:
    """Whether the plain session runs these inputs."""
    try:
        session.run(None, dict(inputs))
    except Exception:
        return False
    return True


@of(*NAMES)
def test_calls_that_users_make_are_answered(opened: Opened) -> None:
    for sizes in CALLS[opened.built.manifest.name]:
        opened.assert_answers(inputs_for(opened.plain, sizes), str(dict(sizes)))


@of(*NAMES)
def test_answers_within_the_range_are_the_plain_sessions(opened: Opened) -> None:
    domain, rng = opened.built.manifest.domain, np.random.default_rng(1729)
    corners = [domain.corner("least"), domain.corner("opt"), *domain.empty_corners()]
    random_sizes = [
        domain.complete({name: _random_size(dim, rng) for name, dim in domain.dims.items()})
        for _ in range(DRAWN)
    ]
    for sizes in [*corners, *random_sizes]:
        inputs = opened.built.inputs(sizes)
        if sum(np.asarray(value).size for value in inputs.values()) <= MOST_ELEMENTS:
            opened.assert_answers(inputs, str(sizes))


def _random_size(dim: Dim, rng: np.random.Generator) -> int:
    """A random size of the range, small ones as often as large ones."""
    step = dim.multiple_of
    low, high = -(-dim.min // step), dim.max // step
    size = round(np.exp(rng.uniform(np.log(max(low, 1)), np.log(max(high, 1))))) * step
    return int(min(max(size, dim.least), dim.max)) if size not in dim.gaps else dim.opt


@of(*WANTED)
def test_the_range_is_one_that_users_would_choose(opened: Opened) -> None:
    domain = opened.built.manifest.domain
    for name, wanted in WANTED[opened.built.manifest.name].items():
        boxes = (domain.dims, *domain.also)
        missed = [size for size in wanted if not any(dims[name].accepts(size) for dims in boxes)]
        assert not missed, f"{name}: {domain.dims[name].text()} lacks {missed}"


@of(*IMAGES)
def test_images_are_square_first_and_best_at_a_usual_size(opened: Opened) -> None:
    dims = opened.built.manifest.domain.dims
    height, width = (dims[name] for name in IMAGES[opened.built.manifest.name])
    assert (height.min, height.max) == (width.min, width.max)
    assert height.opt == width.opt
    assert height.opt in USUAL_IMAGES


@of(*NAMES)
def test_what_is_said_to_fail_above_fails(opened: Opened) -> None:
    domain = opened.built.manifest.domain
    for name, dim in domain.dims.items():
        if dim.stopped_by != "error":
            continue
        for size in _above(dim):
            sizes = domain.complete({**_largest(domain.dims), name: size})
            inputs = opened.built.inputs(sizes)
            assert not runs(opened.plain, inputs), f"{name}: {dim.text()}, and {sizes} runs"


def _largest(dims: Mapping[str, Dim]) -> dict[str, int]:
    return {name: dim.max for name, dim in dims.items()}


def _above(dim: Dim) -> list[int]:
    """Sizes above the range, on its grid: neighbours, the double, and usual ones."""
    step = dim.multiple_of
    near = [dim.max + step, dim.max + 2 * step, 2 * dim.max // step * step]
    usual = [size for size in USUAL_IMAGES if size > dim.max and size % step == 0]
    return sorted({size for size in [*near, *usual] if dim.max < size <= 2048})


@of(*DETECTORS, "unet")
def test_a_batch_of_one_that_the_graph_states_is_not_a_failing_dim(opened: Opened) -> None:
    assert set(opened.built.manifest.domain.dims) == {"height", "width"}
    assert "AOTC-S006" not in opened.built.codes()


@of(*WITH_PAST)
def test_calls_that_no_relation_may_refuse(opened: Opened) -> None:
    """A mask that is longer than all tokens runs: only a shorter one fails."""
    for spare in (1, 3, 64):
        sizes = {"batch": 2, "sequence": 5, "past": 7, "total": 12 + spare}
        opened.assert_answers(inputs_for(opened.plain, sizes), str(sizes))


@of("gpt2_loose")
def test_a_mask_of_more_rows_is_answered(opened: Opened) -> None:
    sizes = {"batch": 2, "sequence": 5, "past": 7, "mask_batch": 3}
    opened.assert_answers(inputs_for(opened.plain, sizes), str(sizes))


@pytest.mark.parametrize(
    "wrong",
    [{"past_of_last": 8}, {"past_batch": 3}, {"total": 11}],
    ids=["pasts-differ", "batches-differ", "mask-is-short"],
)
@of(*WITH_PAST)
def test_calls_that_break_what_holds_are_refused(opened: Opened, wrong: dict[str, int]) -> None:
    sizes = {"batch": 2, "sequence": 5, "past": 7, **wrong}
    inputs = inputs_for(opened.plain, sizes)
    assert not runs(opened.plain, inputs)
    with pytest.raises(AotcError):
        opened.model.run(inputs)


@of("style")
def test_dims_named_none_are_three(opened: Opened) -> None:
    (image,) = opened.built.manifest.inputs
    assert image.shape == ("image.0", 3, "image.2", "image.3")
    assert set(opened.built.manifest.domain.dims) == {"image.0", "image.2", "image.3"}


def test_dims_named_none_are_stated_by_their_places(bench: Workbench) -> None:
    stated = {"image.0": "1..4", "image.2": "32..128", "image.3": 96}
    built = bench.build(exported("style"), "stated-style", dims=stated)
    dims = built.manifest.domain.dims
    assert {name: (dim.min, dim.max) for name, dim in dims.items()} == {
        "image.0": (1, 4),
        "image.2": (32, 128),
        "image.3": (96, 96),
    }
    opened = Opened(bench, built)
    sizes = {"batch": 3, "height": 100, "width": 96}
    opened.assert_answers(inputs_for(opened.plain, sizes), str(sizes))


def test_an_encoder_of_only_3000_frames_is_built_if_they_are_stated(bench: Workbench) -> None:
    built = bench.build(exported("whisper"), "whisper", dims={"frames": 3000})
    dims = built.manifest.domain.dims
    assert (dims["frames"].min, dims["frames"].max) == (3000, 3000)
    assert dims["batch"].accepts(1)
    assert dims["batch"].accepts(8)
    opened = Opened(bench, built)
    sizes = {"batch": 2, "frames": 3000}
    opened.assert_answers(inputs_for(opened.plain, sizes), str(sizes))


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("whisper_fixed", 0.001), ("detector", 0.001), ("bert", 0.001), ("bert", 0.5)],
)
def test_a_slow_host_finds_the_same_or_says_that_time_ended_it(
    bench: Workbench, every: dict[str, Opened], name: str, seconds: float
) -> None:
    if name not in every:
        every[name] = Opened(bench, bench.build(exported(name), name))
    usual = every[name].built.manifest.domain
    profile = Profile(schema="aotc.profile/1", name="slow", probe=ProbeLimits(seconds=seconds))
    try:
        built = bench.build(exported(name), f"slow-{name}-{seconds}", profile=profile)
    except AotcError as error:
        # Nothing has run, and the message says why nothing more was tried.
        assert error.code == "AOTC-S001"
        assert "probe.seconds" in str(error)
        return
    found = built.manifest.domain
    if found.dims == usual.dims and found.relations == usual.relations:
        return
    ended = {name for name, dim in found.dims.items() if dim.stopped_by == "time"}
    assert ended, built.codes()
    findings = [f for f in built.manifest.findings if f.code == "AOTC-S008" and f.where in ended]
    assert all("probe.seconds" in finding.what for finding in findings)
    assert {finding.where for finding in findings} == ended
    assert not {"AOTC-S006", "AOTC-S007"} & set(built.codes())


def test_a_small_model_that_makes_much_stays_within_its_bytes(
    bench: Workbench,
) -> None:
    limits = WorkerLimits(memory_bytes=3 << 30)
    profile = Profile(schema="aotc.profile/1", name="bounded", limits=limits)
    built = bench.build(exported("outer"), "bounded", profile=profile)
    sizes = built.manifest.domain.corner("max")
    assert sizes["n"] * sizes["m"] * sizes["k"] * 4 <= ProbeLimits().max_activation_bytes
    assert min(sizes.values()) >= 64


# The same with all of their layers and weights.
FULL = Path(os.environ.get("AOTC_EXPORTS", ""))
FULL_WANTED = {
    name: {dim: (sizes[0], sizes[-1]) for dim, sizes in wanted.items()}
    for name, wanted in WANTED.items()
}


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("AOTC_EXPORTS"),
    reason="AOTC_EXPORTS is not set: a folder that benchmarks/networks/exports.py wrote",
)
@pytest.mark.parametrize("name", sorted(WANTED))
def test_full_exports(bench: Workbench, name: str) -> None:
    opened = Opened(bench, bench.build(exported(name, FULL), f"full-{name}"))
    for sizes in CALLS[name]:
        opened.assert_answers(inputs_for(opened.plain, sizes), str(dict(sizes)))
    dims = opened.built.manifest.domain.dims
    for dim, wanted in FULL_WANTED[name].items():
        for size in wanted:
            assert dims[dim].accepts(size), f"{dim}: {dims[dim].text()} lacks {size}"
