"""Build ten small models, and compare their artifact ids with those that are kept.

An id is the digest of aotc.json, which lists the digest of every file of the payload: where it is
equal, so is every byte.  It also says which packages built and on which CPU answers were computed;
so ids are kept in tests/data/artifact_ids.json for each host that kept its own (`--keep`), and a
host of which there are none is told so (exit status 2).  What differs, by name, is exit status 1.

`--against REVISION` needs nothing that is kept: it builds the models with this checkout and with
the toolchain of another revision, and compares all files of the payloads and the bills of
materials.
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

# What a build imports of others, and aotc.json or its bytes depend on.
_PACKAGES: Final = ("numpy", "onnx", "protobuf", "ml_dtypes", "tensorrt-rtx-cu13-bindings")
# Of what the probe says of this host: what says nothing of it.
_NOT_THE_HOST: Final = ("schema", "name", "description", "probed", "extra")
# What is signed beside the payload, and says neither when nor by what source it was built.
_TIMELESS: Final = ("attestations/oms.sigstore.json", "attestations/sbom.sigstore.json")
_SHOWN_LINES: Final = 24
# Run with one toolchain on the path, which it says first: JSON lines of builds, and of answers.
_BUILDER: Final = """\
import json, sys
import aotc
from aotc.errors import AotcError
print(json.dumps({"from": aotc.__file__, "version": aotc.__version__}), flush=True)
for line in sys.stdin:
    wanted = json.loads(line)
    try:
        told = {"id": aotc.build(**wanted).artifact_id}
    except AotcError as error:
        told = {"refused": error.line()}
    print(json.dumps(told), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What one toolchain made of one model: an id, or the line of a refusal."""

    folder: Path
    id: str = ""
    refused: str = ""

    def __str__(self) -> str:
        return self.refused or self.id

    def digests(self) -> dict[str, str]:
        """By file: the payload, and the attestations that do not say when."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and (name.startswith("payload/") or name in _TIMELESS):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def manifest(self) -> list[str]:
        """Lines of aotc.json."""
        path = self.folder / "payload" / "aotc.json"
        return json.dumps(json.loads(path.read_bytes()), indent=1, sort_keys=True).splitlines()


class Unusable(Exception):
    """What was to be compared cannot be built."""


def environment(toolchain: Path, home: Path) -> dict[str, str]:
    """Of a user who has nothing but this toolchain; what hides features of the host stays."""
    kept = ("AOTC_HOST_ISA", "AOTC_HOST_WITHOUT")
    plain = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("AOTC_", "XDG_", "PYTHON", "ORT_"))
    }
    home.mkdir(parents=True, exist_ok=True)
    return {**plain, "PYTHONPATH": str(toolchain), "HOME": str(home), "AOTC_CACHE": "off"}


def command(*words: str | Path, home: Path) -> str:
    """What this checkout's `aotc` prints."""
    done = subprocess.run(
        [Path(sys.executable).with_name("aotc"), *words],
        env=environment(ROOT / "toolchain", home),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unusable(done.stderr or done.stdout)
    return done.stdout


def host_key(home: Path) -> dict[str, Any]:
    """All that the ids depend on beside the toolchain's source and the models."""
    probed = json.loads(command("target", "probe", "--json", home=home))
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "aotc": command("--version", home=home).split()[-1],
        "python": platform.python_version(),
        "packages": {name: found for name, found in versions.items() if found},
        "cpu": _cpu(),
        **{name: value for name, value in probed.items() if name not in _NOT_THE_HOST and value},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    """Vendor, family and model: kernels and their rounding are chosen by more than the ISA."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    found = {name: re.search(rf"^{name}\s*: *(.*)$", text, re.MULTILINE) for name in names}
    return ", ".join(f"{name} {each[1]}" for name, each in found.items() if each)


def in_words(key: Mapping[str, Any]) -> str:
    """A host in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in key["packages"].items())
    return (
        f"aotc {key['aotc']}, Python {key['python']}, onnxruntime {key.get('onnxruntime')},"
        f" {packages}; {key['cpu']}: {' '.join(key.get('isa', ()))};"
        f" {', '.join(key.get('providers', ()))}"
    )


def buildable(key: Mapping[str, Any]) -> tuple[list[Identified], list[str]]:
    """The models that this host builds, and why it does not build the others."""
    lacking = {}
    if OPENVINO not in key.get("providers", ()):
        lacking[OPENVINO] = "OpenVINO offers no device on this host"
    if util.find_spec("tensorrt_rtx_bindings") is None:
        lacking[RTX] = "tensorrt-rtx-cu13-bindings is not installed"
    models = [each for each in IDENTIFIED if each.needs not in lacking]
    absent = [f"{each.name}: {lacking[each.needs]}" for each in IDENTIFIED if each not in models]
    return models, absent


def build_all(models: Sequence[Identified], toolchain: Path, folder: Path) -> dict[str, Made]:
    """Build all of them by one toolchain, in a process, a home and a folder of their own.

    Model files and the key are shared by the toolchains: they lie in the folder above.
    """
    shared = folder.parent / "models"
    shared.mkdir(exist_ok=True)
    key = folder.parent / "release.pem"
    if not key.exists():
        command("keygen", "-o", key, home=folder.parent / "home")
    folder.mkdir()
    made = {}
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
        told = json.loads(builder.stdout.readline() or "null")
        if told is None or not Path(told["from"]).is_relative_to(toolchain):
            raise Unusable(f"{toolchain} is not what builds: {told}")
        for each in models:
            output = folder / f"{each.name}.aotc"
            builder.stdin.write(json.dumps(_wanted(each, shared, output, key)) + "\n")
            builder.stdin.flush()
            answer = json.loads(builder.stdout.readline() or "null")
            if answer is None:
                raise Unusable(f"{each.name}: the process that builds ended")
            made[each.name] = Made(folder=output, **answer)
            print(f"… {each.name}", file=sys.stderr, flush=True)
    return made


def _wanted(model: Identified, shared: Path, output: Path, key: Path) -> dict[str, Any]:
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
    """What is kept: hosts and their ids."""
    if not KEPT.exists():
        return []
    hosts: list[dict[str, Any]] = json.loads(KEPT.read_bytes())["hosts"]
    return hosts


def kept_of(key: Mapping[str, Any]) -> dict[str, str] | None:
    """The ids that are kept for a host; None where there are none."""
    return next((dict(each["ids"]) for each in read_kept() if each["host"] == key), None)


def keep(key: Mapping[str, Any], ids: Mapping[str, str]) -> list[str]:
    """Keep the ids of this host, and drop those of others where they are of another source.

    The lines say what was dropped: where an id that was kept here is another now, a build was
    changed on purpose, and what other hosts kept is of before.
    """
    before, hosts = kept_of(key), [each for each in read_kept() if each["host"] != key]
    dropped = hosts if before and differences(before, ids) else []
    hosts = [each for each in hosts if each not in dropped] + [{"host": key, "ids": dict(ids)}]
    text = json.dumps({"hosts": sorted(hosts, key=lambda each: json.dumps(each["host"]))}, indent=1)
    KEPT.write_text(text + "\n", encoding="utf-8")
    return [f"dropped, as builds are others now: {in_words(each['host'])}" for each in dropped]


def differences(kept: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """A line for each model whose id is not what is kept."""
    return [
        f"{name}: kept {kept.get(name, 'nothing')}, built {ids.get(name, 'not')}"
        for name in sorted({*kept, *ids})
        if kept.get(name) != ids.get(name)
    ]


def write_revision(name: str, folder: Path) -> Path:
    """The toolchain of a revision, written into `folder` with what lies beside it."""
    words = ("git", "archive", "--format=tar", name, "toolchain", "profiles", "manifests")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise Unusable(done.stderr.decode(errors="replace"))
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "toolchain"


def compare(here: Mapping[str, Made], there: Mapping[str, Made], name: str) -> int:
    """Print a table of what both made; how many models differ."""
    print(f"{'model':<11} {'this checkout':<13} {name[:13]:<13} files")
    differing = 0
    for model, mine in here.items():
        other = there[model]
        ours, theirs = mine.digests(), other.digests()
        same = str(mine) == str(other) and ours == theirs
        files = f"{len(ours)}, all equal" if same else "DIFFERENT"
        print(f"{model:<11} {str(mine)[:12]:<13} {str(other)[:12]:<13} {files}")
        if same:
            continue
        differing += 1
        for made in (mine, other):
            if made.refused:
                print(f"    {made.refused}")
        for file in sorted({*ours, *theirs}):
            if ours.get(file) != theirs.get(file):
                sides = (ours.get(file, "none")[:12], theirs.get(file, "none")[:12])
                print(f"    {file}: {sides[0]} here, {sides[1]} there")
        if mine.id and other.id:
            lines = difflib.unified_diff(
                other.manifest(), mine.manifest(), name, "this checkout", n=1, lineterm=""
            )
            print("\n".join(f"    {line}" for line in list(lines)[:_SHOWN_LINES]))
    return differing


def main(arguments: Sequence[str]) -> int:
    """Compare or keep; 1 where something differs, 2 where nothing is kept for this host."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--keep", action="store_true", help="keep the ids of this host")
    what.add_argument("--against", metavar="REVISION", help="compare with what it builds")
    parser.add_argument("--folder", type=Path, help="build in this new folder, and leave all there")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="aotc-ids-") as temporary:
        work = Path(temporary)
        if asked.folder is not None:
            asked.folder.mkdir(parents=True)
            work = asked.folder.resolve()
        try:
            return _run(work, keeps=asked.keep, against=asked.against)
        except Unusable as error:
            print(error, file=sys.stderr)
            return 1


def _run(work: Path, *, keeps: bool, against: str | None) -> int:
    key = host_key(work / "home")
    models, absent = buildable(key)
    for line in absent:
        print(f"not built, {line}")
    kept = kept_of(key)
    if not keeps and not against and kept is None:
        print(f"no ids are kept for this host: {in_words(key)}")
        print("'make ids KEEP=1' keeps them; 'make ids AGAINST=REVISION' needs none.")
        return UNKNOWN_HOST
    other = write_revision(against, work / "revision") if against else None
    made = build_all(models, ROOT / "toolchain", work / "here")
    if against and other:
        there = build_all(models, other, work / "there")
        differing = compare(made, there, against)
        print(f"{differing} of {len(made)} differ" if differing else f"all {len(made)} are equal")
        return 1 if differing else 0
    ids = {name: str(each) for name, each in made.items()}
    refused = [f"{name}: {each.refused}" for name, each in made.items() if each.refused]
    if keeps and not refused:
        for line in keep(key, ids):
            print(line)
        print(f"{len(ids)} ids are kept for {in_words(key)}")
        return 0
    wrong = refused if keeps else differences(kept or {}, ids)
    for line in wrong or [f"{name:<11} {value}" for name, value in ids.items()]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
