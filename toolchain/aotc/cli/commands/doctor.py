"""`aotc doctor`: whether this installation and this host can do what the commands need."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from aotc.base.errors import EXIT_NO, EXIT_YES, AotcError, install_extra
from aotc.base.files.failures import system_message
from aotc.base.records import replace
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json
from aotc.host.probe import ISA_VARIABLE, WITHOUT_VARIABLE, probe
from aotc.spec.command_reports import DoctorCheck, DoctorReport, DoctorTrust
from aotc.spec.providers import RUNTIME_WHEELS, RUNTIMES
from aotc.spec.target import Target
from aotc.spec.versions import VERSION

_BASE = ("typer", "rich", "cryptography", "PyYAML", "rfc8785")
_CPU = ("onnx", "numpy")
_TO_BUILD = f"To build: {install_extra('cpu')}"
_TO_RUN = f"To load and run: pip install onnxruntime. {_TO_BUILD}"


app = new_app()


@app.command(cls=Command)
@examples("aotc doctor", "aotc doctor --json")
def doctor(json: Json = False) -> int:
    """Check this installation and this host.

    Versions, packages that conflict, keys, trust and folders are checked. The exit status is 1 if
    one of them is bad.
    """
    from aotc.host.nvidia_facts import nvidia_state
    from aotc.report.sheets.measurements import doctor_view
    from aotc.tools.doctor import gpu_checks, gpu_packages

    host = probe()
    nvidia = nvidia_state()
    has_gpu_wheel = _has_gpu_wheel()
    trust, trust_checks = _trust()
    checks = (
        _ok("aotc", f"{VERSION} in {Path(__file__).parents[2]}"),
        _python(),
        *(_package(name, f"pip install {name}", needed=True) for name in _BASE),
        *(_package(name, _TO_BUILD) for name in _CPU),
        _runtime(),
        *_providers(),
        _platform(host),
        *gpu_checks(nvidia, needed=has_gpu_wheel),
        *_visible_gpus(),
        *(gpu_packages(nvidia) if has_gpu_wheel else ()),
        *_lesser(),
        _development_key(),
        _signing_key(),
        *trust_checks,
        _store(),
        *_system_store(),
        _cache(),
        _temporary(),
    )
    healthy = all(check.status != "failed" for check in checks)
    answer = DoctorReport(healthy=healthy, checks=checks, trust=trust, nvidia=nvidia, host=host)
    status = EXIT_YES if healthy else EXIT_NO
    respond(answer, doctor_view, json=json, status=status)
    return status


def _ok(name: str, found: str) -> DoctorCheck:
    return DoctorCheck(name=name, status="ok", found=found)


def _note(name: str, found: str, fix: str = "") -> DoctorCheck:
    return DoctorCheck(name=name, status="note", found=found, fix=fix)


def _failed(name: str, found: str, fix: str) -> DoctorCheck:
    return DoctorCheck(name=name, status="failed", found=found, fix=fix)


def _refused(name: str, error: AotcError) -> DoctorCheck:
    return _failed(name, error.line(), error.fix)


def _python() -> DoctorCheck:
    good = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} at {sys.executable}"
    return _ok("Python", found) if good else _failed("Python", found, "Use Python 3.11 or newer.")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, fix: str, *, needed: bool = False) -> DoctorCheck:
    version = _version(name)
    if version is not None:
        return _ok(name, version)
    return (_failed if needed else _note)(name, "not installed", fix)


def _runtime() -> DoctorCheck:
    found = {name: version for name in RUNTIMES if (version := _version(name)) is not None}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        # The catalogue's words, as the first import says them too.
        error = AotcError("AOTC-I020", "both are installed")
        return _failed("ONNX Runtime", f"{error.code} {text}", error.fix)
    if not found:
        return _note("ONNX Runtime", "not installed", _TO_RUN)
    return _ok("ONNX Runtime", text)


def _has_gpu_wheel() -> bool:
    """Whether an ONNX Runtime with more providers than the CPU's is installed."""
    return any(len(w.providers) > 1 and _version(w.distribution) for w in RUNTIME_WHEELS)


def _visible_gpus() -> list[DoctorCheck]:
    """That CUDA may show fewer GPUs than there are."""
    from aotc.host.nvidia_facts import VISIBLE_VARIABLE

    stated = os.environ.get(VISIBLE_VARIABLE)
    if stated is None:
        return []
    found = f"{stated or 'empty'}: CUDA shows the GPUs that it names, and numbers them in its order"
    return [_note(VISIBLE_VARIABLE, found)]


def _providers() -> list[DoctorCheck]:
    """What a profile may name in `providers`; none where there is no ONNX Runtime."""
    installed = [name for name in RUNTIMES if _version(name) is not None]
    if len(installed) != 1:
        return []
    from aotc.tools.doctor import capabilities

    checks = []
    for offered in capabilities():
        found = f"{offered.ort_name} {offered.version}".strip()
        if not offered.available:
            found = offered.reason
        elif not offered.runs:
            found += f"; builds here, does not run: {offered.why_not}"
        good = offered.available and offered.runs
        checks.append(_ok(offered.name, found) if good else _note(offered.name, found, offered.fix))
    return checks


def _platform(host: Target) -> DoctorCheck:
    libc = f", {host.libc.name} {host.libc.version or ''}".rstrip() if host.libc else ""
    gpus = f", {', '.join(gpu.name for gpu in host.gpus)}" if host.gpus else ""
    found = f"{host.os} {host.architecture}{libc}{gpus}"
    if host.os == "linux" and host.architecture in ("x86_64", "aarch64"):
        return _ok("host", found)
    return _note("host", found, "Build and run on Linux, x86-64 or arm64; verifying works here.")


def _lesser() -> list[DoctorCheck]:
    """Variables that show this machine as less than it is."""
    return [
        _note(
            name,
            f"{stated or 'empty'}; this machine is shown as less than it is, for tests",
            f"unset {name}",
        )
        for name in (ISA_VARIABLE, WITHOUT_VARIABLE)
        if (stated := os.environ.get(name)) is not None
    ]


def _development_key() -> DoctorCheck:
    from aotc.spec.trust_anchors import key_id
    from aotc.trust.development_key import default_trust, require_own_folder

    try:
        require_own_folder()
        trusted = default_trust()
    except AotcError as error:
        return _refused("development key", error)
    if not trusted:
        return _note("development key", "none yet; the first build makes it")
    return _ok("development key", key_id(trusted[0].pem))


def _signing_key() -> DoctorCheck:
    from aotc.trust.signers import is_signer_file, load_signer

    name = "AOTC_SIGNING_KEY"
    stated = os.environ.get(name)
    if not stated:
        return _note(name, "not set")
    try:
        found = load_signer(stated).key_id
    except AotcError as error:
        return _refused(name, error)
    mode = Path(stated).stat().st_mode
    if os.name == "posix" and mode & 0o077 and not is_signer_file(stated):
        found += f"; others can read it, mode {mode & 0o777:04o}"
        return _failed(name, found, f"chmod 600 {stated}")
    return _ok(name, found)


def _trust() -> tuple[DoctorTrust, list[DoctorCheck]]:
    """Root keys, the policy that is used where none is named, and what this user has seen."""
    from aotc.trust.policy.roots import host_roots
    from aotc.trust.policy.state import user_state

    files = DoctorTrust()
    checks = []
    try:
        roots = host_roots()
        if roots is None:
            found = "none: a policy is taken as it is, and the development key vouches too"
            checks.append(_note("root keys", found))
        else:
            files = replace(files, roots=str(roots.path), policy=str(roots.policy_path))
            found = f"{roots.path}, {roots.record.threshold} of {len(roots.record.keys)} must sign"
            checks.append(_roots_check(found, roots.record.policy))
    except AotcError as error:
        return files, [_refused("root keys", error)]
    try:
        state = user_state()
        files = replace(files, state=str(state.path))
        seen = state.read()
        # What 'verify --trust' would ask for before it looks at anything.
        state.require_writable()
        found = f"{state.path}, policies: {len(seen.policies)}, artifacts: {len(seen.artifacts)}"
        checks.append(_ok("trust state", found))
    except AotcError as error:
        checks.append(_refused("trust state", error))
    if roots is not None:
        checks.append(_policy(roots.policy_path))
    return files, checks


def _roots_check(found: str, policy: str | None) -> DoctorCheck:
    if policy is not None:
        return _ok("root keys", f"{found} policy {policy}")
    return _note(
        "root keys",
        f"{found}; no policy is named, so the first that is seen counts",
        "Write the file anew with 'aotc trust root --name NAME'.",
    )


def _policy(path: Path) -> DoctorCheck:
    from aotc.trust.policy.host_trust import EXPIRES_SOON, resolve

    if not path.exists():
        return _note("trust policy", f"none at {path}: commands need --trust")
    try:
        trust = resolve(remember=False)
    except AotcError as error:
        return _refused("trust policy", error)
    applied = trust.policy
    found = f"{path}, usable"
    if applied is not None:
        found = f"{path}, sequence {applied.policy.sequence}, until {applied.policy.expires}"
    soon = [finding for finding in trust.findings if finding.code == EXPIRES_SOON]
    if soon:
        fix = "Get the next one from whoever signs it."
        return _note("trust policy", f"{found}: {soon[0].code} {soon[0].what}", fix)
    return _ok("trust policy", found)


def _store() -> DoctorCheck:
    from aotc.trust.stores import default_root, require_safe

    fix = "Point AOTC_STORE at a folder of yours."
    try:
        root = default_root().absolute()
        require_safe(root)
    except AotcError as error:
        return _refused("store", error)
    except OSError as error:
        return _failed("store", f"{root}: {error.strerror}", fix)
    return _writable("store", root, "Make it writable." if os.environ.get("AOTC_STORE") else fix)


def _system_store() -> list[DoctorCheck]:
    """Whether the system-wide store is taken as it is; none where there is none."""
    from aotc.base.files.ownership import Unsafe, can_check_owners, open_folder
    from aotc.trust.stores import system_owner, system_root

    root = system_root()
    if root is None or not can_check_owners():
        return []
    stated = "AOTC_SYSTEM_STORE" in os.environ
    name = "system-wide store"
    bad = _failed if stated else _note
    try:
        os.close(open_folder(root, (system_owner(),)))
    except FileNotFoundError:
        if not stated:
            return []
        return [_note(name, f"{root} is not there")]
    except OSError as error:
        return [bad(name, f"{root}: {error.strerror}", "")]
    except AotcError as error:
        return [_refused(name, error)]
    except Unsafe as error:
        refused = error.refusal("AOTC-R016", "the system-wide store")
        return [bad(name, refused.line(), refused.fix)]
    return [_ok(name, f"{root}, safe from others")]


def _cache() -> DoctorCheck:
    from aotc.pipeline.cache_folder import default_folder, is_usable

    if os.environ.get("AOTC_CACHE") == "off":
        return _note("build cache", "off, by AOTC_CACHE")
    try:
        folder = default_folder()
        is_usable(folder)
    except AotcError as error:
        return _refused("build cache", error)
    return _writable("build cache", folder, "Point AOTC_CACHE at a folder of yours.")


def _temporary() -> DoctorCheck:
    import tempfile

    name, fix = "temporary files", "Point TMPDIR at a folder of yours."
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return _failed(name, system_message(error), fix)
    return _writable(name, folder, fix)


def _writable(name: str, folder: Path, fix: str) -> DoctorCheck:
    """Whether the folder, or the nearest one above it that exists, may be written."""
    import shutil
    import tempfile

    try:
        there = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
        # Rights alone say little: some folders take no file whoever asks.
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        return _failed(name, f"{folder} cannot be written: {system_message(error)}", fix)
    return _ok(name, f"{folder}, {shutil.disk_usage(there).free / 1e9:.1f} GB free")
