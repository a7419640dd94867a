"""What a user or a checkout names is opened in one place, which takes plain files alone.

Every other opening for reading is listed here, with what it opens: the program's own files, those
of the system, and those of an artifact that are opened by descriptors below its folder.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from repository import ROOT

PACKAGE = ROOT / "toolchain" / "aotc"

# By module, the calls that may open something else.
OTHERS = {
    # Files of the installed package, of Python's, and of the system.
    "base/files/locks.py": {
        "(_PROC / 'locks').read_text",
        "(_PROC / 'self' / 'fdinfo' / str(descriptor)).read_text",
        "(_PROC / 'self' / 'mountinfo').read_bytes",
        "(_PROC / str(pid) / 'comm').read_text",
    },
    "base/files/ownership.py": {
        "Path('/proc/self/uid_map').read_text",
        "Path('/proc/sys/kernel/overflowuid').read_text",
    },
    "base/files/work_folders.py": {
        "(_PROC / 'sys' / 'kernel' / 'random' / 'boot_id').read_text",
        "(_PROC / str(pid) / 'stat').read_text",
    },
    "graph/kernels.py": {"files(__package__).joinpath(_DATA.format(*minor)).read_text"},
    "host/cpu.py": {"path.read_text"},
    "host/nvidia.py": {"Path('/proc/driver/nvidia/version').read_text"},
    "host/probe.py": {"path.read_text"},
    "pipeline/package.py": {"metadata.distribution(name).read_text", "shutil.copyfile"},
    "sources/user_code.py": {"(entry / 'stat').read_text"},
    "report/html/page.py": {"(files('aotc.report.html') / name).read_text"},
    "runtime/store/system_store.py": {"Path('/proc/self/status').read_text"},
    "tools/kserve.py": {"(data_folder('ci/templates') / 'kserve' / f'{template}.yaml').read_text"},
    "tools/init.py": {"(data_folder('ci/templates') / template).read_text"},
    "fleet/emitted/base.py": {"(data_folder('ci/templates') / 'fleet' / template).read_text"},
    "trust/provenance.py": {
        "Path(str(distribution.locate_file(own[1]))).read_bytes",
        "distribution.read_text",
    },
    # Of a job's own folder, or of one that the same command wrote.
    "host/custom_op_libraries.py": {"mmap.mmap"},
    "cli/commands/keygen.py": {"public.read_text"},
    "pipeline/build.py": {"(artifact.folder / MANIFEST).read_bytes"},
    "sources/python_callable.py": {"(folder / _ARGUMENTS).read_text", "np.load"},
    "tools/debug_framework.py": {"path.read_text"},
    "pipeline/blame.py": {"graph.model.read_bytes"},
    "pipeline/calibration.py": {"index.read_text", "kept.read_text"},
    "pipeline/half.py": {
        "(seen / _LARGEST).read_text",
        "held_file.read_text",
        "kept.read_text",
        "np.memmap",
    },
    "pipeline/integers.py": {
        "(place / MODEL).read_bytes",
        "(specialized.own_weights / REQUEST).read_text",
        "decided.read_text",
        "self._place.read_bytes",
    },
    "pipeline/lower.py": {"model.read_bytes", "shutil.copyfile"},
    "pipeline/optimize.py": {
        "Path(MODEL).read_bytes",
        "graph.read_bytes",
        "specialized.graph.read_bytes",
    },
    "pipeline/reuse.py": {"path.read_bytes"},
    "providers/openvino.py": {"(folder / payload.files[0]).read_bytes"},
    "providers/tensorrt_rtx.py": {"request.model.read_bytes"},
    "report/html/graph_data.py": {"Path('model.onnx').read_bytes"},
    "runtime/qualification.py": {"Path(request_file).read_text", "result.read_text"},
    "session/observed_memory.py": {"Path('/proc/self/smaps_rollup').read_text", "model.read_bytes"},
    "session/worker.py": {
        "(folder / _FILE).read_text",
        "Path('/proc/thread-self/schedstat').read_text",
        "Path(REQUEST).read_text",
        "status.read_text",
    },
    "session/worker_pool.py": {"log.open", "path.read_text"},
    "sizes/trials.py": {
        "(folder / STEP).read_text",
        "(folder / TRIED).read_bytes",
        "path.read_text",
        "tried.read_text",
        "trying.read_text",
    },
    # The log of a job, and the fixtures of an artifact that was built there.
    "fleet/executors/carrying.py": {"path.open"},
    "fleet/check_models.py": {"public.read_text"},
    "fleet/runtimes.py": {"report.read_text", "zipfile.ZipFile"},
    "fleet/upgrade.py": {"(artifact / MANIFEST).read_bytes", "public.read_text"},
    "fleet/checked_models.py": {"shutil.copyfile"},
    "tools/diff/graph_parser.py": {"Path(MODEL).read_bytes"},
    "tools/learn_costs.py": {"onnx.load"},
    "tools/merged_payload.py": {"onnx.load", "shutil.copyfile"},
    "tools/model_sandbox.py": {"(artifact / MANIFEST).read_bytes"},
    # RECORDs of distributions among them.
    "tools/reproduce/recorded_environment.py": {
        "(package / _VERSIONS).read_text",
        "distribution.read_text",
        "each.read_text",
        "found.read_text",
        "report.read_text",
    },
    "tools/smallest_failing.py": {"shutil.copyfile"},
    "trust/sealing.py": {"(folder / MANIFEST).read_bytes"},
    # From a store, whose files were verified; weights, mapped; and the archive in a plain file.
    "graph/values.py": {"zipfile.ZipFile"},
    "graph/weights.py": {"np.memmap", "onnx.load"},
    "runtime/warmup.py": {"open", "path.read_bytes"},
    "trust/policy/host_trust.py": {"document.read_bytes"},
}
# Where graphs are files of the build.
STAGES = ("pipeline/", "precision/", "providers/", "sizes/")
METHODS = {"read_bytes", "read_text"}
LOADERS = {
    *("np.load", "np.memmap", "np.fromfile", "np.loadtxt", "mmap.mmap", "zipfile.ZipFile"),
    *("onnx.load", "onnx.load_model", "tarfile.open", "shutil.copyfile"),
}


def openings(path: Path) -> list[str]:
    """The calls of a module that open a file for reading, as they are written."""
    return [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and opens(node)
    ]


def opens(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name in LOADERS:
        return name != "zipfile.ZipFile" or "w" not in modes(call)
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
        return True
    is_open = name in {"open", "io.open"} or name.endswith(".open")
    if not is_open or name in {"os.open", "webbrowser.open"}:
        return False
    return any((mode.startswith("r") and "b" in mode) or mode == "r" for mode in modes(call))


def modes(call: ast.Call) -> list[str]:
    given = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
    return [
        each.value
        for each in given
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


FOUND = {
    path.relative_to(PACKAGE).as_posix(): openings(path) for path in sorted(PACKAGE.rglob("*.py"))
}


def others(module: str) -> set[str]:
    """The openings of a module but those of graphs that the stages of a build hand on."""
    staged = module.startswith(STAGES) and not module.startswith("sizes/inputs/")
    return set(FOUND[module]) - ({"onnx.load"} if staged else set())


@pytest.mark.parametrize("module", FOUND)
def test_no_other_opening(module: str) -> None:
    """Use `aotc.base.files.reading`: `open_plain`, `read_at_most` or `file_sha256`."""
    assert others(module) <= OTHERS.get(module, set())


def test_nothing_is_listed_in_vain() -> None:
    assert {module: others(module) for module in OTHERS} == OTHERS
