"""This machine described as a target, without importing what is looked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.host.nvidia import cuda_version, driver_version, nvidia_smi
from aotc.spec.providers import KNOWN_PROVIDERS, PLUGIN_PACKAGES, RUNTIME_WHEELS, RUNTIMES
from aotc.spec.target import ISA_FEATURES, Gpu, Libc, Plugin, System, Target

_CPUINFO = Path("/proc/cpuinfo")
_OS: dict[str, System] = {
    "linux": "linux",
    "darwin": "darwin",
    "win32": "windows",
}
_ARCHITECTURE = {"amd64": "x86_64", "arm64": "aarch64"}

# Names of CPU features; all others are hidden.
ISA_VARIABLE: Final = "AOTC_HOST_ISA"
# Execution providers, by their ORT names, that offer no device.
WITHOUT_VARIABLE: Final = "AOTC_HOST_WITHOUT"
# Added to the features if some are hidden.  Providers look at the CPU themselves, so what is
# compiled for this CPU may use the hidden features all the same.  It therefore requires this name
# too, which no CPU has, and runs only under the same variable.
LESSER: Final = "lesser"


@cache
def probe(
    *,
    gpus: bool = True,
    driver: bool = False,
    digests: bool = False,
    libraries: tuple[tuple[str, Path], ...] = (),
) -> Target:
    """Describe this machine; what is absent is None or empty, and `probed` is set.

    With `gpus=False` the GPUs are not listed, which starts a program and may take seconds; their
    driver, which /proc names on Linux, is asked only with `driver`.  With `digests` plugins have
    the digests of their libraries.  `libraries` are the user's own plugins: pairs of the provider's
    ORT name and its library.
    The result is cached for the life of the process.  Raises AOTC-I027 if an environment variable
    (those below, and `host.plugin_libraries`) cannot be read.
    """
    version, providers, plugins = _onnxruntime(digests, libraries)
    machine = _machine().lower()
    architecture = _ARCHITECTURE.get(machine, machine)
    return Target(
        schema="aotc.target/1",
        name="host",
        # A target has no name for other operating systems: C001 then refuses every artifact.
        os=_OS.get(sys.platform, sys.platform),  # type: ignore[arg-type]
        architecture=architecture,
        libc=_libc(),
        isa=_isa(architecture),
        onnxruntime=version,
        providers=providers,
        plugins=plugins,
        nvidia_driver=driver_version() if gpus or driver else None,
        cuda_major=_cuda_major() if gpus or driver else None,
        gpus=parse_gpus(nvidia_smi("name,compute_cap,memory.total")) if gpus else (),
        probed=True,
    )


def parse_isa(cpuinfo: str, architecture: str) -> tuple[str, ...]:
    """The features that ONNX Runtime selects by, of the first CPU in a /proc/cpuinfo text."""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    have = frozenset(line[1].split()) if line else frozenset()
    return tuple(name for name in ISA_FEATURES.get(architecture, ()) if name in have)


def parse_vendor(cpuinfo: str) -> str | None:
    """The vendor of the first CPU in a /proc/cpuinfo text; None if it states none."""
    line = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    return line[1] if line else None


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """GPUs from the CSV of `nvidia-smi --query-gpu=name,compute_cap,memory.total` (in MiB)."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and re.fullmatch(r"\d+\.\d+", fields[1]):
            memory = int(fields[2]) << 20 if fields[2].isdigit() else None
            found.append(Gpu(name=fields[0], compute_capability=fields[1], memory_bytes=memory))
    return tuple(found)


def _machine() -> str:
    """The architecture by the name that the system has for it."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


def _libc() -> Libc | None:
    if sys.platform != "linux":
        return None
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        text = ""
    name, _, version = text.partition(" ")
    if name == "glibc" and version:
        return Libc(name="glibc", version=version)
    if any(Path("/lib").glob("ld-musl-*.so.1")):
        return Libc(name="musl")
    return Libc(name="other")


def _isa(architecture: str) -> tuple[str, ...] | None:
    text = _read_text(_CPUINFO)
    return None if text is None else visible_isa(parse_isa(text, architecture))


def _onnxruntime(
    digests: bool, libraries: tuple[tuple[str, Path], ...]
) -> tuple[str | None, tuple[str, ...], tuple[Plugin, ...]]:
    found = installed_versions((*RUNTIMES, *PLUGIN_PACKAGES))
    version: str | None = None
    providers: tuple[str, ...] = ()
    for wheel in RUNTIME_WHEELS:
        if wheel.distribution in found:
            version, providers = found[wheel.distribution], wheel.providers
    if version is None:
        return None, (), ()
    plugins = [
        Plugin(
            name=row.plugin.distribution,
            version=found[row.plugin.distribution],
            provider=row.ort_name,
            sha256=_package_digest(row.plugin.package) if digests else None,
        )
        for row in KNOWN_PROVIDERS
        if row.plugin and row.plugin.distribution in found
    ]
    stated = _stated_plugins(digests, libraries, plugins)
    # A session loads the stated library instead of the package's.
    replaced = {plugin.provider for plugin in stated}
    plugins = [plugin for plugin in plugins if plugin.provider not in replaced] + stated
    served = [
        plugin.provider
        for plugin in plugins
        if _may_offer_device(plugin) and _is_registered(plugin)
    ]
    hidden = hidden_providers()
    names = tuple(name for name in (*served, *providers) if name not in hidden)
    return version, names, tuple(plugins)


def _may_offer_device(plugin: Plugin) -> bool:
    """Whether a plugin may offer a device here, as far as is known without loading it."""
    package = PLUGIN_PACKAGES.get(plugin.name)
    wanted = package.cpu_vendor if package else ""
    vendor = parse_vendor(_read_text(_CPUINFO) or "") if wanted else None
    return vendor is None or vendor == wanted


def _is_registered(plugin: Plugin) -> bool:
    """Whether a plugin brings its provider; others only hold what one of ORT's wheel needs."""
    package = PLUGIN_PACKAGES.get(plugin.name)
    return package is None or package.registered


def _stated_plugins(
    digests: bool, libraries: tuple[tuple[str, Path], ...], installed: list[Plugin]
) -> list[Plugin]:
    """Plugins of the environment or the caller; one inside an installed package is that package."""
    if not libraries and "AOTC_PLUGINS" not in os.environ:
        return []
    from aotc.host.plugin_libraries import libraries_digest, stated_libraries

    found = []
    for provider, library in {**stated_libraries(), **dict(libraries)}.items():
        own = [plugin for plugin in installed if plugin.provider == provider]
        if own and _is_of_package(library, own[0].name):
            found += own
        elif library.is_file():
            digest = libraries_digest([library]) if digests else None
            found.append(Plugin(name=library.name, provider=provider, sha256=digest))
    return found


def _is_of_package(library: Path, distribution: str) -> bool:
    """Whether a library is in the folder of an installed package, with those that it loads."""
    place = _package_folder(PLUGIN_PACKAGES[distribution].package)
    return place is not None and library.parent.resolve() == place.resolve()


def _package_folder(package: str) -> Path | None:
    places = (Path(folder) / package for folder in sys.path)
    return next((place for place in places if place.is_dir()), None)


def _package_digest(package: str) -> str | None:
    """The digest of an installed package's libraries; None if the package is not found."""
    from aotc.host.plugin_libraries import libraries_digest, libraries_in

    place = _package_folder(package)
    return libraries_digest(libraries_in(place)) if place is not None else None


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions by name, of those distributions that are installed.

    They are read from the names of `.dist-info` folders (Python packaging specification "recording
    installed projects"): importing `importlib.metadata` would cost more than the rest of the probe.
    """
    spelled = {name.replace("-", "_"): name for name in names}
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as listed:
                entries = [entry.name for entry in listed]
        except OSError:
            continue
        for entry in entries:
            stem, dot, kind = entry.rpartition(".")
            name, dash, version = stem.rpartition("-")
            if dot and dash and kind == "dist-info" and name in spelled:
                found.setdefault(spelled[name], version)
    return found


def _cuda_major() -> int | None:
    version = cuda_version()
    return version[0] if version else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return None


# This machine with less than it has, to show what another machine would do.
#
# Two environment variables, for tests. They only take away: naming a CPU feature cannot make it
# run, and no variable may let a gate pass that this machine fails.


def unhidden_isa() -> frozenset[str] | None:
    """The features that are not hidden; None if none is hidden.

    Raises AOTC-I027 if a name is not a known feature.
    """
    text = os.environ.get(ISA_VARIABLE)
    if text is None:
        return None
    names = frozenset(text.replace(",", " ").split())
    known = {name for features in ISA_FEATURES.values() for name in features}
    if names - known:
        raise AotcError(
            "AOTC-I027",
            "these are not CPU features by which ONNX Runtime chooses kernels",
            where=f"${ISA_VARIABLE}",
            expected=", ".join(sorted(known)),
            found=", ".join(sorted(names - known)),
        )
    return names


def visible_isa(features: Iterable[str]) -> tuple[str, ...]:
    """`features` without the hidden ones; raises AOTC-I027."""
    present, allowed = tuple(features), unhidden_isa()
    if allowed is None or allowed.issuperset(present):
        return present
    return (*(name for name in present if name in allowed), LESSER)


def hidden_providers() -> frozenset[str]:
    """Execution providers that offer no device here, by their ORT names."""
    return frozenset(os.environ.get(WITHOUT_VARIABLE, "").replace(",", " ").split())
