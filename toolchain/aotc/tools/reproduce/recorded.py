"""What an artifact records of its build, what of that this host has, and what it cannot repeat."""

from __future__ import annotations

import copy
import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.files.reading import file_sha256
from aotc.base.records import field, record
from aotc.graph.external_data import path_with_data
from aotc.graph.model import model_bytes
from aotc.host.probe import probe
from aotc.pipeline.package import traits_sha256
from aotc.pipeline.reuse import folder_digest
from aotc.providers.named_backends import backend_of
from aotc.sources.registry import importer_of
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import BUILD_TYPE
from aotc.spec.codec import Json, ParseError, decode
from aotc.spec.manifest import Manifest
from aotc.spec.profile import Profile, profile_of
from aotc.spec.profile_files import builtin_targets, load_target
from aotc.spec.providers import ARENA_LIMIT, CAPTURING
from aotc.spec.reproduction import NotReproduced
from aotc.spec.target import Target
from aotc.spec.variant import Variant
from aotc.spec.versions import artifact_name
from aotc.trust import dsse, statements
from aotc.trust.container import Container
from aotc.trust.gate import AuthenticArtifact
from aotc.trust.opening import copy_files
from aotc.trust.provenance import given_digests

_PROVENANCE: Final = KINDS["provenance"]
# Where the place of what is given is stated, by the purpose that provenance calls it.
_OPTIONS: Final = {"fixtures": "--fixtures", "calibration": "--calibration"}
MEASURED: Final = NotReproduced(
    what="times, latencies and memory of the evidence, and who signed",
    why="they are measured and signed anew, and are no part of the artifact's id",
)
"""What of no artifact is compared."""


@record
class RecordedPackage:
    """A distribution of the environment that built; `contents` is the digest of its files."""

    name: str
    version: str
    contents: str = ""


@record
class RecordedBuild:
    """What an artifact and its provenance state of its build.

    `given` has the sha256 of data by purpose and name; `host` is that of the build.
    """

    artifact_id: str
    manifest: Manifest
    target: Target
    options: Mapping[str, Json] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    python: str
    implementation: str
    aotc: str
    aotc_sha256: str
    aotc_form: Literal["release", "checkout"]
    packages: tuple[RecordedPackage, ...]

    @property
    def is_tuned(self) -> bool:
        """Whether it was chosen by time what is built."""
        stated: Any = self.manifest.profile
        return (
            bool(self.options.get("tune"))
            or stated.get("precision") == "auto"
            or any(name.startswith("tuning/") for name in self.given)
        )


def read_recorded(container: Container, authentic: AuthenticArtifact, path: Path) -> RecordedBuild:
    """What is recorded of the build of an artifact that was verified.

    Raises AOTC-I232 where no provenance by one of its signers tells enough.
    """
    try:
        bundle = container.read(_PROVENANCE.path, dsse.MAX_BUNDLE_BYTES)
        found = statements.verify(bundle, authentic.keys, predicate_type=_PROVENANCE.predicate_type)
    except AotcError as error:
        raise _untold(path, f"its provenance: {error.what}") from None
    if authentic.id not in found.subjects.values():
        raise _untold(path, "its provenance is about another artifact")
    try:
        return _recorded(found.predicate, authentic, path)
    except ParseError as error:
        raise _untold(path, f"its provenance: {error.problems[0]}") from None
    except (LookupError, TypeError, AttributeError, StopIteration) as error:
        name = error.args[0] if isinstance(error, KeyError) else ""
        told = f"its provenance lacks {name!r}" if name else "its provenance has another form"
        raise _untold(path, f"{told}, so that an earlier aotc may have made it") from None


def _untold(path: Path, why: str) -> AotcError:
    return AotcError(
        "AOTC-I232",
        "the artifact does not record all that building it again needs",
        where=artifact_name(path),
        found=why,
    )


def _recorded(predicate: Json, authentic: AuthenticArtifact, path: Path) -> RecordedBuild:
    definition = predicate["buildDefinition"]
    if definition["buildType"] != BUILD_TYPE:
        raise _untold(path, "it was merged from others, which can be built again one by one")
    stated, internal = definition["externalParameters"], definition["internalParameters"]
    environment, options = internal["environment"], stated["options"]
    if not isinstance(options, dict) or not isinstance(internal["host"], dict):
        raise TypeError
    if "source" in options:
        raise _untold(path, "its model was a module in the memory of a program")
    manifest = authentic.manifest
    profile = profile_of(manifest)
    if profile.gates.task is not None and profile.gates.task.runs_code:
        raise _untold(path, "its gates run a function of the user's")
    known = {each.name for each in manifest.custom_ops}
    for spec in profile.custom_ops:
        if spec.library not in known or Path(spec.library).name != spec.library:
            raise _untold(path, f"it has no digest of the custom operators {spec.library!r}")
    dependencies = definition["resolvedDependencies"]
    aotc = next(each for each in dependencies if each["annotations"]["role"] == "toolchain")
    return RecordedBuild(
        artifact_id=authentic.id,
        manifest=manifest,
        target=_target(stated["target"].get("described"), manifest, path),
        options=options,
        given={
            each["name"]: each["digest"]["sha256"]
            for each in dependencies
            if each["annotations"]["role"] == "given"
        },
        host=internal["host"],
        python=_word(internal["python"]),
        implementation=_word(environment["implementation"]),
        aotc=_word(aotc["annotations"]["version"]),
        aotc_sha256=_word(aotc["digest"]["sha256"]),
        aotc_form="release" if environment["aotc"] == "release" else "checkout",
        packages=tuple(
            decode(RecordedPackage, each, path=f"packages[{index}]")
            for index, each in enumerate(environment["packages"])
        ),
    )


def _word(value: Json) -> str:
    """A text that may be a word of a command, or in the name of a program; raises TypeError."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}", value):
        return value
    raise TypeError


def _target(described: Json, manifest: Manifest, path: Path) -> Target:
    """The target that the manifest has the digest of."""
    if described is not None:
        found = decode(Target, described, path="target.described", allow_unknown=True)
        if traits_sha256(found) == manifest.target_sha256:
            return found
    known = [probe(), *(load_target(name) for name in builtin_targets())]
    for each in known:
        if each.name == manifest.target and traits_sha256(each) == manifest.target_sha256:
            return each
    raise _untold(path, f"its target {manifest.target!r} is not described, and no such one is here")


# What this host cannot make again, which is told before anything is built.


@record
class Foreseen:
    """What cannot be made again here: variants by name, golden outputs, and all of it in words."""

    rows: tuple[NotReproduced, ...]
    variants: frozenset[str] = frozenset()
    golden: bool = False


def foresee(recorded: RecordedBuild) -> Foreseen:
    """What cannot be the same on this host; raises AOTC-I235 where no variant can."""
    host, target, manifest = probe(), recorded.target, recorded.manifest
    here = f"this one has {' '.join(host.isa or ()) or 'none of these'}"
    built_on = (recorded.host.get("os"), recorded.host.get("architecture"))
    if built_on != (host.os, host.architecture):
        raise AotcError(
            "AOTC-I235",
            "the artifact was built on another platform",
            where=manifest.name,
            expected=" ".join(filter(None, built_on)),
            found=f"{host.os} {host.architecture}",
        )
    rows = [MEASURED]
    profile = profile_of(manifest)
    native: list[str] = []
    if set(host.isa or ()) != set(target.isa or ()):
        by_name = {each.name: each for each in profile.variants}
        for variant in manifest.variants:
            spec = by_name.get(variant.spec or variant.name)
            backends = (backend_of(name, profile.plugins) for name in _named(variant.providers))
            if (spec is not None and spec.isa == "host") or any(each.native for each in backends):
                native.append(variant.name)
    wanted = " ".join(target.isa or ())
    if len(native) == len(manifest.variants):
        raise AotcError(
            "AOTC-I235",
            "every variant is for CPUs with other features than this one",
            where=", ".join(native),
            expected=wanted,
            found=" ".join(host.isa or ()),
        )
    rows += [
        NotReproduced(
            what=f"variant {name}",
            why=f"it is compiled for CPUs with {wanted}; {here}, so it is not built",
        )
        for name in native
    ]
    built_with = str(recorded.host.get("isa", ""))
    golden = set(built_with.split()) != set(host.isa or ()) and bool(manifest.fixtures)
    if golden:
        why = f"a CPU with {built_with} computed them; {here}, so last bits may differ"
        rows.append(NotReproduced(what="golden outputs of fixtures", why=why))
    if recorded.is_tuned:
        why = "it was measured; the recorded profile states what was chosen, which is built"
        what = "the choice of --tune or precision auto"
        rows.append(NotReproduced(what=what, why=why))
    rows += [
        NotReproduced(
            what=f"the arena's limit of variant {each.name}",
            why="it was planned on a GPU by what was observed there, so another build may differ",
        )
        for each in manifest.variants
        if _has_planned_limit(each, profile)
    ]
    why = "it ships with the artifact, from which it is taken: where it comes from is not shown"
    rows += [
        NotReproduced(what=f"library of custom operators {each.name}", why=why)
        for each in manifest.custom_ops
        if each.path is not None
    ]
    return Foreseen(rows=tuple(rows), variants=frozenset(native), golden=golden)


def _has_planned_limit(variant: Variant, profile: Profile) -> bool:
    specs = {each.name: each for each in profile.variants}
    spec = specs.get(variant.spec or variant.name)
    options = profile.cuda if spec is None else profile.cuda_of(spec)
    stated = variant.session.provider_options.get(CAPTURING.ort_name, {})
    return options.memory.limit_bytes == "plan" and ARENA_LIMIT in stated


def _named(ort_names: tuple[str, ...]) -> Iterator[str]:
    """Our names of execution providers."""
    from aotc.spec.providers import BY_ORT_NAME

    return (BY_ORT_NAME[name].name for name in ort_names if name in BY_ORT_NAME)


# What the user gives again: the model, and data that the build read.


@record
class GivenAgain:
    """Paths for a second build, which have the recorded digests.

    `profile` is the recorded one with the paths of its files; `libraries` are those of plugins by
    provider, and `custom_ops` those of operators.
    """

    model: Path
    profile: Mapping[str, Json]
    fixtures: Path | None = None
    calibration: Path | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    custom_ops: tuple[str, ...] = ()


def give_again(
    recorded: RecordedBuild,
    container: Container,
    model: Path,
    *,
    fixtures: Path | None,
    calibration: Path | None,
    data: Path | None,
    work: Path,
) -> GivenAgain:
    """The model and the data of a second build, each compared with what is recorded.

    What a profile names by its file's name is looked for in `data`, by default the folder of the
    model.  `work` is for files of the artifact, and for the model under its recorded name.

    Raises AOTC-I233 for another model, I234 for data that is missing or other, and what reading a
    model does.
    """
    place = data if data is not None else model.absolute().parent
    profile: Any = copy.deepcopy(recorded.manifest.profile)
    staged = _same_model(recorded, model, work)
    found: dict[str, Path] = {}
    for purpose, given in (("fixtures", fixtures), ("calibration", calibration), ("task", None)):
        wanted = {n: d for n, d in recorded.given.items() if n.partition("/")[0] == purpose}
        if wanted:
            found[purpose] = _same_data(purpose, wanted, given, place, profile)
    if "task" in found:
        profile["gates"]["task"]["data"] = str(found["task"])
    libraries = {}
    digests = {each.provider: each.sha256 for each in recorded.manifest.toolchain.plugins}
    for name, spec in profile.get("plugins", {}).items():
        library = _same_library(spec["library"], digests.get(name) or "", place)
        libraries[name] = spec["library"] = str(library)
    shipped = {each.name: each for each in recorded.manifest.custom_ops}
    custom_ops = []
    for spec in profile.get("custom_ops", ()):
        each = shipped[spec["library"]]
        if each.path is not None:
            copy_files(container, recorded.manifest, (each.path,), work / "shipped")
            library = work / "shipped" / each.path
            if library.name != each.name:
                library = library.rename(library.with_name(each.name))
        else:
            library = _same_library(spec["library"], each.sha256, place)
        spec["library"] = str(library)
        custom_ops.append(str(library))
    return GivenAgain(
        model=staged,
        profile=profile,
        fixtures=found.get("fixtures"),
        calibration=found.get("calibration"),
        libraries=libraries,
        custom_ops=tuple(custom_ops),
    )


def _same_model(recorded: RecordedBuild, model: Path, work: Path) -> Path:
    """The model, under the name that the artifact has; raises AOTC-I233."""
    source = recorded.manifest.source
    importer = importer_of(model)
    if importer is not None or source.framework is not None:
        held = (
            {each.name: each.sha256 for each in source.framework.files} if source.framework else {}
        )
        files = importer.files(str(model)) if importer is not None else ()
        found = {file.name: file_sha256(file) for file in files}
        for name in sorted({*held, *found}):
            if held.get(name) != found.get(name):
                raise _other_model(model, f"{name} {held.get(name, '')}", found.get(name, ""))
        return model.absolute()
    digest = hashlib.sha256(model_bytes(model)).hexdigest()
    if digest != source.sha256:
        raise _other_model(model, f"sha256 {source.sha256}", digest)
    names = [each.location for each in source.external_data]
    lies = path_with_data(names, model) if names else model
    for each in source.external_data:
        file = lies.parent / each.location
        try:
            digest = file_sha256(file)
        except OSError as error:
            digest = str(error.strerror)
        if digest != each.sha256:
            raise _other_model(file, f"sha256 {each.sha256}", digest)
    if model.stem == recorded.manifest.name:
        return model.absolute()
    # The name is in the manifest.
    folder = work / "model"
    folder.mkdir()
    link = folder / f"{recorded.manifest.name}{model.suffix}"
    link.symlink_to(lies.resolve() if names else model.absolute())
    return link


def _other_model(path: Path, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I233",
        "this is not the model that the artifact was built from",
        where=str(path),
        expected=expected,
        found=found,
    )


def _same_data(
    purpose: str, wanted: Mapping[str, str], given: Path | None, place: Path, profile: Any
) -> Path:
    """The data of one purpose; raises AOTC-I234."""
    named = _stated_name(purpose, wanted, profile)
    path = given if given is not None else place / Path(named).name if named else None
    option = _OPTIONS.get(purpose, "--data")
    if path is None or not path.exists():
        raise AotcError(
            "AOTC-I234",
            f"the {purpose} data that the build read is not here",
            where=str(path) if path is not None else option,
            expected=", ".join(f"{name} sha256 {digest}" for name, digest in wanted.items())[:500],
            fix=f"Give it again with {option}.",
        )
    if purpose == "fixtures":
        found = given_digests(path, None)
    else:
        is_file = path.is_file()
        name = f"{purpose}/{path.name}" if is_file else purpose
        found = {name: file_sha256(path) if is_file else folder_digest(path)}
    if sorted(found.values()) != sorted(wanted.values()):
        raise _other_file(path, purpose, wanted, found)
    return path.absolute()


def _stated_name(purpose: str, wanted: Mapping[str, str], profile: Any) -> str:
    """The name of a file or folder that is recorded; empty for a folder without one."""
    if purpose == "task":
        return str(profile["gates"]["task"]["data"])
    if purpose == "calibration" and profile["calibration"]["data"]:
        return str(profile["calibration"]["data"])
    (first, *more) = wanted
    name = first.partition("/")[2]
    return "" if more or "/" in name else name


def _other_file(
    path: Path, purpose: str, wanted: Mapping[str, str], found: Mapping[str, str]
) -> AotcError:
    return AotcError(
        "AOTC-I234",
        f"the {purpose} data is not what the build read",
        where=str(path),
        expected=", ".join(f"{name} {digest[:12]}" for name, digest in wanted.items())[:500],
        found=", ".join(f"{name} {digest[:12]}" for name, digest in found.items())[:500],
    )


def _same_library(name: str, digest: str, place: Path) -> Path:
    """A library that the profile names; raises AOTC-I234."""
    path = place / Path(name).name
    if not path.is_file():
        raise AotcError(
            "AOTC-I234",
            "the profile names a library that is not here",
            where=str(path),
            expected=f"sha256 {digest}" if digest else name,
            fix="Give the folder that has it with --data.",
        )
    if digest and (found := file_sha256(path)) != digest:
        raise _other_file(path, "library", {name: digest}, {path.name: found})
    return path.absolute()


def written_profile(given: GivenAgain, folder: Path) -> Path:
    """The recorded profile as a file, which is YAML as JSON is."""
    path = folder / "profile.yaml"
    path.write_text(json.dumps(given.profile), "utf-8")
    return path


def same_interpreter(recorded: RecordedBuild) -> bool:
    """Whether this interpreter is of the recorded version."""
    here = (platform.python_version(), platform.python_implementation().lower())
    return here == (recorded.python, recorded.implementation)
