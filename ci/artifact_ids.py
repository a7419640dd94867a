"""Build ten small models, and compare their artifact ids with the stored ones.

An id is the digest of aotc.json, which lists the digest of every payload file: equal ids mean equal
bytes.  aotc.json also states the packages of the build and the CPU that computed the
reference.  Ids are therefore stored in tests/data/artifact_ids.json per host (`--keep`), with the
version of manifests and the digest of the profiles that they were built with: once these change on
any host, the ids of all are older.  On a host without stored ids the exit status is 2.  Differing
ids are listed, with exit status 1.

`--against REVISION` needs no stored ids: it builds the models with this checkout and with the
toolchain of another revision, and compares all files of the payloads and the bills of materials.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

from identified_models import IDENTIFIED, OPENVINO, RTX, Identified

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "tests" / "data" / "artifact_ids.json"
UNKNOWN_HOST: Final = 2

# The packages of a build on which aotc.json or its bytes depend.
_PACKAGES: Final = ("numpy", "onnx", "protobuf", "ml_dtypes", "tensorrt-rtx-cu13-bindings")
# Fields of the probed target that do not describe the host.
_IGNORED_FIELDS: Final = ("schema", "name", "description", "probed", "extra")
# Attestations that state neither the time nor the source of the build.
_REPRODUCIBLE: Final = ("attestations/oms.sigstore.json", "attestations/sbom.sigstore.json")
_MAX_SHOWN_LINES: Final = 24
# Run with one toolchain on the path, which it prints first; then JSON lines: a build, an outcome.
_BUILDER: Final = """\
import json, sys
import aotc
print(json.dumps({"from": aotc.__file__, "version": aotc.__version__}), flush=True)
for line in sys.stdin:
    wanted = json.loads(line)
    try:
        outcome = {"id": aotc.build(**wanted).artifact_id}
    except Exception as error:
        # The error of either toolchain, wherever its class stands.
        if not hasattr(error, "line"):
            raise
        outcome = {"refused": error.line()}
    print(json.dumps(outcome), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    """The result of building one model with one toolchain: an id, or the line of a refusal."""

    folder: Path
    id: str = ""
    refused: str = ""

    def __str__(self) -> str:
        return self.refused or self.id

    def digests(self) -> dict[str, str]:
        """Digests by file, of the payload and of attestations that do not depend on the time."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and (name.startswith("payload/") or name in _REPRODUCIBLE):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def manifest(self) -> list[str]:
        """The lines of aotc.json."""
        path = self.folder / "payload" / "aotc.json"
        return json.dumps(json.loads(path.read_bytes()), indent=1, sort_keys=True).splitlines()


class CannotBuildError(Exception):
    """What should be compared cannot be built."""


def environment(toolchain: Path, home: Path) -> dict[str, str]:
    """The environment of a user with only this toolchain; what hides host features stays."""
    kept = ("AOTC_HOST_ISA", "AOTC_HOST_WITHOUT")
    plain = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("AOTC_", "XDG_", "PYTHON", "ORT_"))
    }
    home.mkdir(parents=True, exist_ok=True)
    return {**plain, "PYTHONPATH": str(toolchain), "HOME": str(home), "AOTC_CACHE": "off"}


def command(*words: str | Path, home: Path) -> str:
    """The output of this checkout's `aotc`."""
    done = subprocess.run(
        [Path(sys.executable).with_name("aotc"), *words],
        env=environment(ROOT / "toolchain", home),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(done.stderr or done.stdout)
    return done.stdout


def host_key(home: Path) -> dict[str, Any]:
    """All that the ids depend on, apart from the toolchain's source and the models."""
    probed = json.loads(command("target", "probe", "--json", home=home))
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "aotc": command("--version", home=home).split()[-1],
        "python": platform.python_version(),
        "packages": {name: found for name, found in versions.items() if found},
        "cpu": _cpu(),
        "formats": _formats(home),
        **{name: value for name, value in probed.items() if name not in _IGNORED_FIELDS and value},
    }


def _formats(home: Path) -> str:
    """The version of manifests, and a digest of the built-in profiles with all their defaults.

    Both are the same on every host.
    """
    from aotc.spec.versions import MANIFEST_SCHEMA

    names = sorted({each.profile for each in IDENTIFIED if isinstance(each.profile, str)})
    profiles = [json.loads(command("profile", "show", name, "--json", home=home)) for name in names]
    text = json.dumps(profiles, sort_keys=True)
    return f"{MANIFEST_SCHEMA}, profiles {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    """Vendor, family and model: kernels and their rounding depend on more than the ISA."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    found = {name: re.search(rf"^{name}\s*: *(.*)$", text, re.MULTILINE) for name in names}
    return ", ".join(f"{name} {match[1]}" for name, match in found.items() if match)


def host_text(key: Mapping[str, Any]) -> str:
    """A host in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in key["packages"].items())
    return (
        f"aotc {key['aotc']}, Python {key['python']}, onnxruntime {key.get('onnxruntime')},"
        f" {packages}; {key['cpu']}: {' '.join(key.get('isa', ()))};"
        f" {', '.join(key.get('providers', ()))}"
    )


def buildable_models(key: Mapping[str, Any]) -> tuple[list[Identified], list[str]]:
    """The models that this host can build, and why it cannot build the others."""
    lacking = {}
    if OPENVINO not in key.get("providers", ()):
        lacking[OPENVINO] = "OpenVINO offers no device on this host"
    if util.find_spec("tensorrt_rtx_bindings") is None:
        lacking[RTX] = "tensorrt-rtx-cu13-bindings is not installed"
    models = [model for model in IDENTIFIED if model.needs not in lacking]
    absent = [
        f"{model.name}: {lacking[model.needs]}" for model in IDENTIFIED if model not in models
    ]
    return models, absent


def build_all(
    models: Sequence[Identified], toolchain: Path, folder: Path
) -> dict[str, BuildOutcome]:
    """Build all models with one toolchain, in its own process, home and folder.

    Model files and the key are in the folder above, shared by the toolchains.
    """
    shared = folder.parent / "models"
    shared.mkdir(exist_ok=True)
    key = folder.parent / "release.pem"
    if not key.exists():
        command("keygen", "-o", key, home=folder.parent / "home")
    folder.mkdir()
    outcomes = {}
    with subprocess.Popen(
        [sys.executable, "-c", _BUILDER],
        cwd=folder,
        env=environment(toolchain, folder / "home"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as builder:
        assert builder.stdin is not None
        assert builder.stdout is not None
        reply = json.loads(builder.stdout.readline() or "null")
        if reply is None or not Path(reply["from"]).is_relative_to(toolchain):
            raise CannotBuildError(f"{toolchain} is not the toolchain that builds: {reply}")
        for model in models:
            output = folder / f"{model.name}.aotc"
            builder.stdin.write(json.dumps(_build_arguments(model, shared, output, key)) + "\n")
            builder.stdin.flush()
            answer = json.loads(builder.stdout.readline() or "null")
            if answer is None:
                raise CannotBuildError(f"{model.name}: the building process ended")
            outcomes[model.name] = BuildOutcome(folder=output, **answer)
            print(f"… {model.name}", file=sys.stderr, flush=True)
    return outcomes


def _build_arguments(model: Identified, shared: Path, output: Path, key: Path) -> dict[str, Any]:
    profile = model.profile
    if not isinstance(profile, str):
        file = shared / f"{model.name}.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(profile), encoding="utf-8")
        profile = str(file)
    return {
        "model": str(model.written(shared)),
        "profile": profile,
        "target": model.target or None,
        "dims": dict(model.dims),
        "output": str(output),
        "key": str(key),
    }


def read_kept() -> list[dict[str, Any]]:
    """The stored hosts and their ids."""
    if not KEPT.exists():
        return []
    hosts: list[dict[str, Any]] = json.loads(KEPT.read_bytes())["hosts"]
    return hosts


def kept_ids(key: Mapping[str, Any]) -> dict[str, str] | None:
    """The ids stored for a host; None if there are none."""
    return next((dict(host["ids"]) for host in read_kept() if host["host"] == key), None)


def keep_ids(key: Mapping[str, Any], ids: Mapping[str, str]) -> list[str]:
    """Store the ids of this host, and drop those of other hosts that belong to another source.

    Returns a line for each dropped host: if an id of this host has changed, or what all builds
    depend on, a build was changed on purpose, and the ids of other hosts are older.
    """
    earlier, hosts = kept_ids(key), [host for host in read_kept() if host["host"] != key]
    changed = earlier is not None and differences(earlier, ids) != []
    formats = key.get("formats")
    dropped = [host for host in hosts if changed or host["host"].get("formats") != formats]
    hosts = [host for host in hosts if host not in dropped] + [{"host": key, "ids": dict(ids)}]
    text = json.dumps({"hosts": sorted(hosts, key=lambda host: json.dumps(host["host"]))}, indent=1)
    KEPT.write_text(text + "\n", encoding="utf-8")
    return [f"dropped, because builds have changed: {host_text(host['host'])}" for host in dropped]


def differences(kept: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """A line for each model whose id differs from the stored one."""
    return [
        f"{name}: kept {kept.get(name, 'nothing')}, built {ids.get(name, 'not')}"
        for name in sorted({*kept, *ids})
        if kept.get(name) != ids.get(name)
    ]


def write_revision(name: str, folder: Path) -> Path:
    """Write the toolchain of a revision, with its profiles and manifests, into `folder`."""
    arguments = ("git", "archive", "--format=tar", name, "toolchain", "profiles", "manifests")
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise CannotBuildError(done.stderr.decode(errors="replace"))
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "toolchain"


def compare(here: Mapping[str, BuildOutcome], there: Mapping[str, BuildOutcome], name: str) -> int:
    """Print a table of the outcomes of both toolchains; the number of differing models."""
    print(f"{'model':<11} {'this checkout':<13} {name[:13]:<13} files")
    differing = 0
    for model, here_outcome in here.items():
        there_outcome = there[model]
        ours, theirs = here_outcome.digests(), there_outcome.digests()
        same = str(here_outcome) == str(there_outcome) and ours == theirs
        files = f"{len(ours)}, all equal" if same else "DIFFERENT"
        print(f"{model:<11} {str(here_outcome)[:12]:<13} {str(there_outcome)[:12]:<13} {files}")
        if same:
            continue
        differing += 1
        for made in (here_outcome, there_outcome):
            if made.refused:
                print(f"    {made.refused}")
        for file in sorted({*ours, *theirs}):
            if ours.get(file) != theirs.get(file):
                sides = (ours.get(file, "none")[:12], theirs.get(file, "none")[:12])
                print(f"    {file}: {sides[0]} here, {sides[1]} there")
        if here_outcome.id and there_outcome.id:
            lines = difflib.unified_diff(
                there_outcome.manifest(),
                here_outcome.manifest(),
                name,
                "this checkout",
                n=1,
                lineterm="",
            )
            print("\n".join(f"    {line}" for line in list(lines)[:_MAX_SHOWN_LINES]))
    return differing


def main(arguments: Sequence[str]) -> int:
    """Compare or store ids; 1 if something differs, 2 if nothing is stored for this host."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--keep", action="store_true", help="store the ids of this host")
    what.add_argument("--against", metavar="REVISION", help="compare with what it builds")
    parser.add_argument("--folder", type=Path, help="build in this new folder, and keep it")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="aotc-ids-") as temporary:
        work = Path(temporary)
        if options.folder is not None:
            options.folder.mkdir(parents=True)
            work = options.folder.resolve()
        try:
            return _run_comparison(work, keeps=options.keep, against=options.against)
        except CannotBuildError as error:
            print(error, file=sys.stderr)
            return 1


def _run_comparison(work: Path, *, keeps: bool, against: str | None) -> int:
    key = host_key(work / "home")
    models, absent = buildable_models(key)
    for line in absent:
        print(f"not built, {line}")
    kept = kept_ids(key)
    if not keeps and not against and kept is None:
        print(f"no ids are kept for this host: {host_text(key)}")
        print("'make ids KEEP=1' keeps them; 'make ids AGAINST=REVISION' needs none.")
        return UNKNOWN_HOST
    other = write_revision(against, work / "revision") if against else None
    outcomes = build_all(models, ROOT / "toolchain", work / "here")
    if against and other:
        there = build_all(models, other, work / "there")
        differing = compare(outcomes, there, against)
        print(
            f"{differing} of {len(outcomes)} differ"
            if differing
            else f"all {len(outcomes)} are equal"
        )
        return 1 if differing else 0
    ids = {name: str(outcome) for name, outcome in outcomes.items()}
    refused = [
        f"{name}: {outcome.refused}" for name, outcome in outcomes.items() if outcome.refused
    ]
    if keeps and not refused:
        for line in keep_ids(key, ids):
            print(line)
        print(f"{len(ids)} ids are kept for {host_text(key)}")
        return 0
    wrong = refused if keeps else differences(kept or {}, ids)
    for line in wrong or [f"{name:<11} {value}" for name, value in ids.items()]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
