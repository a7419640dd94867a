"""Samples to calibrate with: how files are cut into them, where they come from, what is refused."""

from __future__ import annotations

import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph import values
from aotc.host.probe import probe
from aotc.pipeline.analyze import analyze
from aotc.pipeline.calibration import calibration_samples, require_calibration
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.import_model import import_model
from aotc.pipeline.integers import quantize_request
from aotc.pipeline.plan import stated_ranges, wanted_variants
from aotc.pipeline.specialize import specialize
from aotc.pipeline.types import AnalyzedModel
from aotc.session.worker_pool import Workers
from aotc.spec.precision import CalibrationSpec, QuantizationSpec
from aotc.spec.profile_files import load_profile
from aotc.spec.shapes import DimRange

DIGITS = ROOT / "examples" / "digits"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BASE = replace(load_profile("edge"), dims={"batch": DimRange.from_json("1..64")})


def context_of(**changed: Any) -> BuildContext:
    host = probe()
    return BuildContext(**{"profile": BASE, "target": host, "host": host, **changed})


def state_of(folder: Path, jobs: Workers, **changed: Any) -> BuildState:
    return BuildState(context=context_of(**changed), work=folder, workers=jobs)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Workers]:
    with Workers(BASE.limits) as workers:
        yield workers


def analyzed_model(model: Path, folder: Path, jobs: Workers, **changed: Any) -> AnalyzedModel:
    """The model as a build analyzes it."""
    state = state_of(folder, jobs, **changed)
    source = import_model(model, state)
    return analyze(source, stated_ranges(source, state.context), state)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, jobs: Workers) -> AnalyzedModel:
    return analyzed_model(DIGITS / "digits.onnx", tmp_path_factory.mktemp("digits"), jobs)


def two_inputs() -> onnx.ModelProto:
    """Rows of free number, a table of a fixed number of rows, and a scalar."""
    return model_of(
        [
            helper.make_node("MatMul", ["x", "table"], ["product"]),
            helper.make_node("Mul", ["product", "scale"], ["y"]),
        ],
        inputs=[
            helper.make_tensor_value_info("x", FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("table", FLOAT, [4, 3]),
            helper.make_tensor_value_info("scale", FLOAT, []),
        ],
        outputs=[helper.make_tensor_value_info("y", FLOAT, ["batch", 3])],
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, jobs: Workers) -> AnalyzedModel:
    folder = tmp_path_factory.mktemp("tables")
    onnx.save(two_inputs(), folder / "tables.onnx")
    (folder / "work").mkdir()
    return analyzed_model(folder / "tables.onnx", folder / "work", jobs)


@pytest.fixture
def samples_at(tmp_path: Path, jobs: Workers) -> Callable[..., list[dict[str, Any]]]:
    """What the samples of a path hold, each read back from its files."""

    def read(model: AnalyzedModel, path: Path | None, **spec: Any) -> list[dict[str, Any]]:
        profile = replace(BASE, calibration=CalibrationSpec(**spec))
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        state = state_of(work, jobs, profile=profile, calibration=path)
        found = calibration_samples(model, state)
        # Asked again, for another variant, they are the same files.
        assert calibration_samples(model, state) == found
        assert calibration_samples(model, state.below(uuid.uuid4().hex)) == found
        return [
            {name: values.load(Path(file)) for name, file in item["inputs"].items()}
            for item in found
        ]

    return read


# How files are cut.


def test_a_set_of_images_is_cut_along_the_free_batch(
    digits: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    images = np.load(DIGITS / "heldout.npz")["image"]
    samples = samples_at(digits, DIGITS / "heldout.npz")
    assert len(samples) == len(images) == 450
    for sample, image in zip(samples, images, strict=True):
        # The labels are no input.
        assert list(sample) == ["image"]
        np.testing.assert_array_equal(sample["image"], image[None])


def test_only_the_first_samples_are_read(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    images = np.arange(6 * 64, dtype=np.float32).reshape(6, 1, 8, 8)
    images[4] = np.nan
    np.savez(tmp_path / "set.npz", image=images)
    samples = samples_at(digits, tmp_path / "set.npz", max_samples=4)
    assert [float(sample["image"].flat[0]) for sample in samples] == [0, 64, 128, 192]


def test_an_array_in_columns_is_cut_alike(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    images = np.random.default_rng(1).standard_normal((3, 1, 8, 8)).astype(np.float32)
    np.savez_compressed(tmp_path / "set.npz", image=np.asfortranarray(images))
    samples = samples_at(digits, tmp_path / "set.npz")
    np.testing.assert_array_equal(np.concatenate([s["image"] for s in samples]), images)


def test_a_fixed_first_dim_is_the_size_of_a_sample(
    tmp_path: Path, tables: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    table = np.arange(27, dtype=np.float32).reshape(9, 3)
    np.savez(tmp_path / "set.npz", x=rows, table=table, scale=np.float32(2))
    samples = samples_at(tables, tmp_path / "set.npz")
    # The ninth row of the table is too little for a sample.
    assert len(samples) == 2
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(sample["x"], rows[number : number + 1])
        np.testing.assert_array_equal(sample["table"], table[4 * number : 4 * number + 4])
        assert sample["scale"] == np.float32(2)


def test_what_has_one_sample_is_the_same_in_all(
    tmp_path: Path, tables: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    table = np.ones((4, 3), np.float32)
    np.savez(tmp_path / "set.npz", x=np.eye(4, dtype="float32"), table=table, scale=np.float32(1))
    samples = samples_at(tables, tmp_path / "set.npz")
    assert len(samples) == 4
    assert all(np.array_equal(sample["table"], table) for sample in samples)


def test_a_folder_holds_files_and_test_data(
    tmp_path: Path, tables: AnalyzedModel, samples_at: Callable[..., list[dict[str, Any]]]
) -> None:
    folder = tmp_path / "data"
    table, scale = np.ones((4, 3), np.float32), np.float32(1)
    for number in range(2):
        rows = np.full((2, 4), number, np.float32)
        folder.mkdir(exist_ok=True)
        np.savez(folder / f"{number}.npz", x=rows, table=table, scale=scale)
    write_test_data(folder / "set_0", np.full((3, 4), 7, np.float32), table, np.array(scale))
    (folder / "notes.txt").write_text("not data")
    samples = samples_at(tables, folder)
    # Test data is one sample, whatever its first dim.
    assert [len(sample["x"]) for sample in samples] == [1, 1, 1, 1, 3]
    assert [float(sample["x"][0, 0]) for sample in samples] == [0, 0, 1, 1, 7]


def write_test_data(folder: Path, *arrays: np.ndarray[Any, Any]) -> None:
    folder.mkdir()
    for number, array in enumerate(arrays):
        data = numpy_helper.from_array(array).SerializeToString()
        (folder / f"input_{number}.pb").write_bytes(data)


# Where samples come from.


def test_without_data_the_users_fixtures_are_the_samples(tmp_path: Path, jobs: Workers) -> None:
    images = np.load(DIGITS / "heldout.npz")["image"][:3]
    np.savez(tmp_path / "given.npz", image=images)
    work = tmp_path / "work"
    work.mkdir()
    given = {"fixtures": tmp_path / "given.npz"}
    model = analyzed_model(DIGITS / "digits.onnx", work, jobs, **given)
    (sample,) = calibration_samples(model, state_of(work, jobs, **given))
    np.testing.assert_array_equal(values.load(Path(sample["inputs"]["image"])), images)


def test_with_neither_there_are_none(tmp_path: Path, digits: AnalyzedModel, jobs: Workers) -> None:
    assert calibration_samples(digits, state_of(tmp_path, jobs)) == ()


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_static_quantization_needs_data(
    tmp_path: Path, digits: AnalyzedModel, jobs: Workers, precision: str
) -> None:
    static = QuantizationSpec(form="static")
    profile = replace(BASE, precision=precision, quantization=static)
    state = state_of(tmp_path, jobs)
    for ask in (
        require_calibration,
        lambda asked: calibration_samples(digits, state.asking(asked)),
    ):
        with pytest.raises(AotcError) as caught:
            ask(context_of(profile=profile))
        assert (caught.value.code, caught.value.exit_status) == ("AOTC-I072", 3)
        assert caught.value.where == "variant portable: quantization.form: static"
    require_calibration(context_of(profile=replace(profile, precision="keep")))
    own = replace(BASE.variants[0], precision="int8", quantization=QuantizationSpec())
    require_calibration(context_of(profile=replace(profile, variants=(own,), precision="keep")))


# What is refused.


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "set.npz", **arrays)
    return folder / "set.npz"


IMAGE = np.zeros((2, 1, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("arrays", "code", "where", "expected", "found"),
    [
        ({"picture": IMAGE}, "AOTC-I074", "set.npz", "image", "picture"),
        ({"image": IMAGE.astype("f8")}, "AOTC-I074", "set.npz: image", "float32", "float64"),
        (
            {"image": IMAGE[0, 0]},
            "AOTC-I075",
            "set.npz: image",
            "[batch, 1, 8, 8]",
            "[8, 8]",
        ),
        (
            {"image": np.zeros((2, 3, 8, 8), np.float32)},
            "AOTC-I075",
            "set.npz: image",
            "[batch, 1, 8, 8]",
            "[2, 3, 8, 8]",
        ),
        ({"image": IMAGE[:0]}, "AOTC-I072", "set.npz", None, "no sample"),
        (
            {"image": np.array([{}, {}], object)},
            "AOTC-I077",
            "set.npz: image",
            "float32",
            "a pickle, which can run any program when it is read",
        ),
        (
            {"image": np.stack([IMAGE[0], IMAGE[0] + np.inf])},
            "AOTC-I076",
            "set.npz, sample 1: image",
            "finite numbers",
            "64 of 64 elements are not finite",
        ),
    ],
    ids=["name", "dtype", "rank", "size", "none", "pickle", "infinite"],
)
def test_data_that_does_not_fit(
    tmp_path: Path,
    digits: AnalyzedModel,
    samples_at: Callable[..., Any],
    arrays: dict[str, Any],
    code: str,
    where: str,
    expected: str | None,
    found: str,
) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises(AotcError) as caught:
        samples_at(digits, path)
    error = caught.value
    assert (error.code, error.exit_status) == (code, 3), error
    assert error.where == f"{tmp_path / where}"
    assert expected is None or error.expected == expected
    assert error.found == found
    assert error.fix


def test_one_nan_in_a_later_file_is_found(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "a.npz", image=IMAGE)
    bad = np.zeros((7, 1, 8, 8), np.float32)
    bad[5, 0, 3, 3] = np.nan
    np.savez(tmp_path / "data" / "b.npz", image=bad)
    with pytest.raises(AotcError) as caught:
        samples_at(digits, tmp_path / "data")
    assert caught.value.code == "AOTC-I076"
    assert caught.value.where == f"{tmp_path / 'data' / 'b.npz'}, sample 5: image"
    assert caught.value.found == "1 of 64 elements are not finite"


def test_sizes_outside_of_the_range(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    write_test_data(tmp_path / "set", np.zeros((65, 1, 8, 8), np.float32))
    with pytest.raises(AotcError) as caught:
        samples_at(digits, tmp_path / "set")
    assert caught.value.code == "AOTC-I075"
    assert (caught.value.expected, caught.value.found) == ("1..64", "65")


def test_unequal_numbers_of_samples(
    tmp_path: Path, tables: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    arrays = {"x": np.ones((3, 4), np.float32), "table": np.ones((8, 3), np.float32)}
    path = saved(tmp_path, **arrays, scale=np.float32(1))
    with pytest.raises(AotcError) as caught:
        samples_at(tables, path)
    assert (caught.value.code, caught.value.found) == ("AOTC-I075", "x: 3, table: 2")


def test_an_empty_folder_and_none(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    (tmp_path / "empty").mkdir()
    for path, code in ((tmp_path / "empty", "AOTC-I072"), (tmp_path / "none", "AOTC-I001")):
        with pytest.raises(AotcError) as caught:
            samples_at(digits, path)
        assert (caught.value.code, caught.value.where) == (code, str(path))


@pytest.mark.parametrize("keep", [0, 10, 200, -200, -30, -1])
def test_a_damaged_file(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any], keep: int
) -> None:
    path = saved(tmp_path, image=IMAGE)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(AotcError) as caught:
        samples_at(digits, path)
    assert (caught.value.code, caught.value.where) == ("AOTC-I073", str(path))


def test_an_array_that_ends_early_in_an_intact_archive(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    np.save(tmp_path / "image.npy", IMAGE)
    content = (tmp_path / "image.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("image.npy", content[:-64])
    with pytest.raises(AotcError) as caught:
        samples_at(digits, tmp_path / "set.npz")
    assert caught.value.code == "AOTC-I073"


def test_damaged_test_data(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    write_test_data(tmp_path / "set", IMAGE)
    (tmp_path / "set" / "input_0.pb").write_bytes(b"\xff\xff not a tensor")
    with pytest.raises(AotcError) as caught:
        samples_at(digits, tmp_path / "set")
    assert caught.value.code == "AOTC-I073"


def test_a_large_set_is_never_held(
    tmp_path: Path, digits: AnalyzedModel, samples_at: Callable[..., Any]
) -> None:
    """The array that the header states is more than memory holds, and 3 samples are wanted."""
    rows = 3_000_000_000
    with zipfile.ZipFile(tmp_path / "set.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("image.npy", "w", force_zip64=True) as member:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, 1, 8, 8)}
            np.lib.format.write_array_header_1_0(member, header)
            member.write(np.ones(64 * 5, "<f4").tobytes())
        # The size that a reader checks is the one which the archive's directory states.
        archive.getinfo("image.npy").file_size = 4 * 64 * rows + 1024
    assert len(samples_at(digits, tmp_path / "set.npz", max_samples=3)) == 3


def test_trials_observe_ranges_once(tmp_path: Path, digits: AnalyzedModel, jobs: Workers) -> None:
    """What is observed is kept by the samples' paths, which are the same in every trial."""
    static = replace(BASE, precision="int8", quantization=QuantizationSpec(form="static"))
    given = {"profile": static, "calibration": DIGITS / "heldout.npz"}
    state = state_of(tmp_path, jobs, **given)
    asked = []
    for trial in ("tune-0", "tune-1"):
        at_trial = state.trial(trial, state.context).below("kept-0")
        (plan, *_), _ = wanted_variants(digits.ranges, state.context)
        specialized = specialize(digits, plan, state.context)
        asked.append(quantize_request(specialized, at_trial))
    assert asked[0] == asked[1]
