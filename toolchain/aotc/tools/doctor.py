"""What this machine has of each provider, and what is wrong with NVIDIA's side of it."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Final, Literal

from aotc.base.errors import install_extra, missing_package
from aotc.base.records import record
from aotc.host.nvidia import DRIVER_MIN
from aotc.host.plugin_libraries import stated_libraries
from aotc.providers.base import BACKENDS, Backend, Capability, installed_version
from aotc.providers.named_backends import backend_of
from aotc.providers.ort import import_onnxruntime
from aotc.spec.answers import ToolVersions
from aotc.spec.command_reports import DoctorCheck, GpuState, NvidiaState
from aotc.spec.profile import Profile
from aotc.spec.providers import RUNTIME_WHEELS
from aotc.spec.versions import VERSION
from aotc.trust.checks.base import at_least

_Problem = Literal["failed", "note"]
_WHEEL: Final = next(w.distribution for w in RUNTIME_WHEELS if len(w.providers) > 1)
# The CUDA version for which that wheel is built.
_CUDA_MAJOR: Final = max(DRIVER_MIN)
_FIX_LIBRARIES: Final = f"pip install '{_WHEEL}[cuda,cudnn]'"


def gpu_checks(state: NvidiaState, *, needed: bool) -> tuple[DoctorCheck, ...]:
    """The GPUs, the driver, cuDNN and torch as doctor's checks.

    `needed` says that ONNX Runtime for GPUs is installed: a problem is then `bad`, else a `note`.
    """
    problem: _Problem = "failed" if needed else "note"
    if not state.gpus and state.driver is None:
        return (DoctorCheck(name="GPU", status="note", found="no NVIDIA GPU found"),)
    return (
        *(map(_gpu, state.gpus) if state.gpus else [_no_gpu(problem)]),
        _driver(state, problem),
        *_libraries(state, problem, needed=needed),
        *_torch(state, problem),
    )


def _gpu(gpu: GpuState) -> DoctorCheck:
    words = [gpu.name, f"compute capability {gpu.compute_capability}"]
    if gpu.memory_bytes is not None:
        words.append(f"{gpu.memory_bytes / 1e9:.1f} GB")
    if gpu.free_bytes is not None:
        words.append(f"{gpu.free_bytes / 1e9:.1f} GB free")
    return DoctorCheck(name=f"GPU {gpu.index}", status="ok", found=", ".join(words))


def _no_gpu(problem: _Problem) -> DoctorCheck:
    """With a driver, but without a GPU that it lists."""
    return DoctorCheck(
        name="GPU",
        status=problem,
        found=_coded("AOTC-R025", "NVIDIA's driver is installed, but lists no GPU"),
        fix="Run nvidia-smi: it must list a GPU, also in a container or a virtual machine, and "
        "CUDA_VISIBLE_DEVICES must not hide it.",
    )


def _driver(state: NvidiaState, problem: _Problem) -> DoctorCheck:
    name, minimum = "NVIDIA driver", DRIVER_MIN[_CUDA_MAJOR]
    if state.driver is None:
        return DoctorCheck(
            name=name,
            status=problem,
            found="its version cannot be read",
            fix="Install NVIDIA's driver again; nvidia-smi must list the GPUs.",
        )
    found = state.driver + (f", CUDA {state.cuda}" if state.cuda else "")
    if at_least(state.driver, minimum):
        return DoctorCheck(name=name, status="ok", found=found)
    what = f"{found}: too old for CUDA {_CUDA_MAJOR}"
    fix = f"Install NVIDIA driver {minimum} or newer."
    return DoctorCheck(name=name, status=problem, found=_coded("AOTC-C007", what), fix=fix)


def _coded(code: str, what: str) -> str:
    return f"{code} {what}"


def _libraries(state: NvidiaState, problem: _Problem, *, needed: bool) -> Iterator[DoctorCheck]:
    if state.cudnn_file:
        version = state.cudnn or "does not load"
        status = "ok" if state.cudnn else problem
        fix = "" if state.cudnn else _FIX_LIBRARIES
        yield DoctorCheck(
            name="cuDNN", status=status, found=f"{version}, {state.cudnn_file}", fix=fix
        )
    if needed and state.missing_libraries:
        names = ", ".join(state.missing_libraries)
        yield DoctorCheck(
            name="CUDA libraries",
            status="failed",
            found=_coded("AOTC-C020", f"not found: {names}"),
            fix=_FIX_LIBRARIES,
        )


def _torch(state: NvidiaState, problem: _Problem) -> Iterator[DoctorCheck]:
    torch = state.torch
    if torch is None:
        return
    wanted = f"{torch.distribution}{'==' if torch.version else ''}{torch.version}"
    installed = ", ".join(state.cudnn_packages) or "no package of cuDNN"
    fixes = f"pip install '{wanted}', or keep torch in another environment."
    others = [name for name in state.cudnn_packages if not name.startswith(torch.distribution)]
    # A distribution's version (9.19.0.56) says more than the library's (9.19.0).
    wanted_release, release = torch.version.split("."), (state.cudnn or "").split(".")
    differs = torch.version and wanted_release[:3] != release[:3]
    if others or (state.cudnn and differs):
        loaded = ", and is imported in this process" if torch.loaded else ""
        what = (
            f"torch {torch.torch} wants {wanted}{loaded}; found: {installed}; "
            f"a session would load cuDNN {state.cudnn or 'of an unknown version'}"
        )
        yield DoctorCheck(name="torch", status=problem, found=_coded("AOTC-C021", what), fix=fixes)
        return
    yield DoctorCheck(name="torch", status="ok", found=f"{torch.torch}, {wanted}")


# Packages without which a load for CUDA, or a build, is refused later.


@record
class GpuPackage:
    """A package of the extra `gpu`: what it is tried by, and the range that the extra declares."""

    name: str
    trial: str
    least: str
    below: str
    use: str
    loads: bool


GPU_PACKAGES: Final = (
    GpuPackage(
        name=_WHEEL,
        trial="from aotc.providers.cuda import load_libraries; load_libraries()",
        least="1.31",
        below="1.32",
        use="To load variants for CUDA",
        loads=True,
    ),
    GpuPackage(
        name="cuda-bindings",
        trial="from cuda.bindings import runtime",
        least="13",
        below="14",
        use="To load variants with captured graphs, and to bind calls",
        loads=True,
    ),
    GpuPackage(
        name="onnxscript",
        trial="import aotc.graph.passes.fuse_for_cuda",
        least="0.7",
        below="0.8",
        use="To fuse graphs in a build",
        loads=False,
    ),
)
_TRIAL_SECONDS: Final = 120


def gpu_packages(state: NvidiaState) -> tuple[DoctorCheck, ...]:
    """The packages of the extra `gpu`: their versions, and whether they load.

    Each is loaded in a process of its own, which a library may end.  What a load needs is `failed`
    on a host with a GPU; elsewhere nothing runs on CUDA, so that it is noted.
    """
    here = bool(state.gpus or state.driver)
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda package: _gpu_package(package, here=here), GPU_PACKAGES))


def _gpu_package(package: GpuPackage, *, here: bool) -> DoctorCheck:
    version = installed_version(package.name)
    needed: _Problem = "failed" if here else "note"
    fix = f"{package.use}: {install_extra('gpu')}"
    if not version:
        status: _Problem = needed if package.loads else "note"
        return DoctorCheck(name=package.name, status=status, found="not installed", fix=fix)
    if not at_least(version, package.least) or at_least(version, package.below):
        found = f"{version}; aotc takes {package.least} and later, before {package.below}"
        return DoctorCheck(name=package.name, status=needed, found=found, fix=fix)
    # The provider is linked with the driver.
    if (here or package.name != _WHEEL) and (why_not := _not_loaded(package.trial)):
        found = f"{version} does not load: {why_not}"
        return DoctorCheck(name=package.name, status=needed, found=found, fix=fix)
    return DoctorCheck(name=package.name, status="ok", found=version)


def _not_loaded(trial: str) -> str:
    """Why the program `trial` fails in a process of its own; "" if it does not."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", trial],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    lines = done.stderr.strip().splitlines()
    return "" if not done.returncode else lines[-1][:500] if lines else "the process failed"


# What this machine has of each execution provider that a profile can name.


def capabilities() -> tuple[Capability, ...]:
    """The capability of every backend, and of the libraries that the environment states."""
    found = []
    for name in BACKENDS.names():
        backend: Backend = BACKENDS.load(name)()
        found.append(backend.probe())
    for ort_name, library in stated_libraries().items():
        from aotc.providers.plugin import PluginBackend

        found.append(PluginBackend(library.name, ort_name, library, {}).probe())
    return tuple(found)


def tool_versions(command: str) -> ToolVersions:
    """The versions of the packages that build here; raises AOTC-I019, for `command`, and I020."""
    runtime = import_onnxruntime()
    try:
        onnx, numpy = metadata.version("onnx"), metadata.version("numpy")
    except metadata.PackageNotFoundError as error:
        raise missing_package(ModuleNotFoundError(name=error.name), f"'{command}'") from None
    return ToolVersions(
        aotc=VERSION,
        python=platform.python_version(),
        onnx=onnx,
        onnxruntime=runtime.__version__,
        numpy=numpy,
        providers={item.name: item.version for item in capabilities() if item.available},
    )


def check_names(profile: Profile) -> None:
    """Raise AOTC-P007 for a provider that is neither built in nor one of the profile's plugins."""
    orders = (profile.providers, *(spec.providers or () for spec in profile.variants))
    for name in (name for order in (*orders, *profile.tune.providers) for name in order):
        backend_of(name, profile.plugins)
