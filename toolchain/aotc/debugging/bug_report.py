"""A failing part as files that need only ONNX Runtime and numpy, ready for a report of a bug."""

from __future__ import annotations

import json
import runpy
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from aotc.blaming.graph_side import Side
from aotc.contract.codec.parsing import Json
from aotc.contract.known_providers import CPU
from aotc.engine.session import level_name, ort_errors
from aotc.engine.values import Data, dtype_name

SUBMODEL: Final = "submodel.onnx"
REFERENCE: Final = "reference.onnx"
# Beyond it, protobuf cannot hold a model, and weights go to a file beside it.
MOST_BYTES: Final = 2_000_000_000
FILES: Final = (
    SUBMODEL,
    REFERENCE,
    "inputs.npz",
    "expected.npz",
    "found.npz",
    "report.json",
    "reproduce.py",
)

_SCRIPT: Final = '''\
"""Exits with 1 while submodel.onnx differs from reference.onnx by more than the tolerance."""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).parent
REPORT = json.loads((HERE / "report.json").read_text())
INPUTS = dict(np.load(HERE / "inputs.npz"))
# numpy has no bfloat16: the file has its bits.
BFLOAT16 = 16


def add(options, name, settings):
    """Add a provider of ONNX Runtime, or of a plugin library, which is this script's argument."""
    if name in ort.get_available_providers():
        options.add_provider(name, settings)
        return
    if name not in {device.ep_name for device in ort.get_ep_devices()}:
        for library in sys.argv[1:]:
            ort.register_execution_provider_library(name, library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == name]
    if not devices:
        sys.exit(f"name the plugin library that has {name} as the argument")
    options.add_provider_for_devices(devices[:1], settings)


def answer(name, settings):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, settings["optimization"]
    )
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    for key, value in settings["config"].items():
        options.add_session_config_entry(key, value)
    for provider, stated in settings["providers"].items():
        # ONNX Runtime adds the CPU itself.
        if provider != "CPU_PROVIDER":
            add(options, provider, stated)
    session = ort.InferenceSession(str(HERE / name), options)
    given = {value.name: tensor(value) for value in session.get_inputs()}
    if session.get_outputs()[0].type != "tensor(bfloat16)":
        return session.run(None, given)[0].astype(np.float64)
    values = {
        name: ort.OrtValue.ortvalue_from_numpy(data) if isinstance(data, np.ndarray) else data
        for name, data in given.items()
    }
    return numbers(session.run_with_ort_values(None, values)[0])


def tensor(value):
    data = INPUTS[value.name]
    if value.type == "tensor(bfloat16)":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(data, BFLOAT16)
    return data


def numbers(value):
    size = int(np.prod(value.shape(), dtype=np.int64)) * 2
    bits = np.frombuffer((ctypes.c_char * size).from_address(value.data_ptr()), np.uint16)
    wide = bits.astype(np.uint32) << 16
    return wide.view(np.float32).astype(np.float64).reshape(value.shape())


expected = answer("reference.onnx", REPORT["reference_session"])
found = answer("submodel.onnx", REPORT["session"])
usual = np.isfinite(expected) & np.isfinite(found)
misplaced = int(np.sum((expected != found) & ~usual & ~(np.isnan(expected) & np.isnan(found))))
error = float(np.max(np.abs(expected - found)[usual], initial=0.0))
scale = float(np.max(np.abs(expected)[np.isfinite(expected)], initial=0.0))
bound = REPORT["tolerance"]["atol"] + REPORT["tolerance"]["rtol"] * scale
one, other = expected[usual].ravel(), found[usual].ravel()
norms = float(np.linalg.norm(one) * np.linalg.norm(other))
cosine = float(one @ other) / norms if norms else 1.0
turned = (
    one.size > 1
    and error > REPORT["tolerance"]["atol"]
    and cosine < REPORT["tolerance"]["min_cosine"]
)
print(f"onnxruntime {ort.__version__}: largest error {error:.3g}, allowed {bound:.3g};")
print(f"cosine {cosine:.6f}; {misplaced} NaN or infinite values differ")
sys.exit(1 if error > bound or misplaced or turned else 0)
'''


def write_report(
    folder: Path,
    part: onnx.ModelProto,
    reference: onnx.ModelProto,
    arrays: Mapping[str, Mapping[str, Data]],
    report: Json,
    *,
    most_bytes: int = MOST_BYTES,
) -> tuple[str, ...]:
    """Write a part, the source's nodes, `arrays` (by file's stem and name) and the report.

    Returns the names of the files.  Nothing in them names a host or a path.  Arrays in bfloat16,
    which numpy has not, are written as their bits, in uint16.
    """
    written = list(FILES)
    for name, model in ((SUBMODEL, part), (REFERENCE, reference)):
        data = f"{Path(name).stem}.bin"
        if model.ByteSize() > most_bytes:
            onnx.save(model, folder / name, save_as_external_data=True, location=data)
            written.append(data)
        else:
            (folder / name).write_bytes(model.SerializeToString(deterministic=True))
    for stem, values in arrays.items():
        _write_npz(folder / f"{stem}.npz", values)
    (folder / "report.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    (folder / "reproduce.py").write_text(_SCRIPT.replace("CPU_PROVIDER", CPU))
    return tuple(written)


def session_of(side: Side) -> Json:
    """How the script creates a session like that of `side`."""
    session = side.session
    return {
        "optimization": level_name(session.optimization),
        "threads": session.threads,
        "config": dict(session.config),
        "providers": {
            name: dict(session.provider_options.get(name, {})) for name in side.providers
        },
    }


def fails(folder: Path) -> bool:
    """Whether the script of the report in `folder` says so itself, in this process."""
    unusable: tuple[type[Exception], ...] = (OSError, KeyError, TypeError, ValueError)
    try:
        with redirect_stdout(StringIO()):
            runpy.run_path(str(folder / "reproduce.py"))
    except SystemExit as done:
        return done.code == 1
    except (*ort_errors(), *unusable):
        return False
    return False


def _write_npz(path: Path, values: Mapping[str, Data]) -> None:
    """Like `numpy.savez`, for any names: its own parameters may not be names of arrays."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in values.items():
            array: Any = np.asarray(value)
            if array.dtype.kind == "O":
                array = array.astype(str)
            elif dtype_name(array.dtype) == "bfloat16":
                array = array.view(np.uint16)
            # A fixed time: equal values give equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def copy_report(made: Path, folder: Path) -> None:
    """Copy the files of a report into `folder`."""
    for file in sorted(made.iterdir()):
        shutil.copyfile(file, folder / file.name)
