"""Libraries of custom operators in a profile, in a manifest, and in what a host must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plain_manifest import manifest, variant

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.spec.attestations import target_digest
from aotc.spec.manifest import Manifest, custom_op_problems
from aotc.spec.payload import FileEntry, Finding, Role
from aotc.spec.profile_files import load_profile, without_folders
from aotc.spec.reports import Refusal
from aotc.spec.target import CustomOps, Target
from aotc.spec.variant import Requirements
from aotc.trust.checks import checks

DIGEST, OTHER = "a" * 64, "b" * 64
PATH = f"custom_ops/sha256-{DIGEST}/own.so"
SHIPPED = CustomOps(name="own.so", sha256=DIGEST, size=7, path=PATH, python="cpython-311")
REQUIRED = replace(SHIPPED, path=None)
NEEDS = Requirements(
    os="linux",
    architecture="x86_64",
    onnxruntime_min="1.31.0",
    onnxruntime_below="1.32",
    providers=("CPUExecutionProvider",),
)
HOST = Target(schema="aotc.target/1", name="box", probed=True)


def profile(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: mine\n{text}\n", encoding="utf-8")
    return path


def test_a_relative_path_is_below_the_profiles_folder(tmp_path: Path) -> None:
    made = load_profile(profile(tmp_path, "custom_ops: [{library: libs/own.so, ship: false}]"))
    (spec,) = made.custom_ops
    assert (Path(spec.library), spec.ship, spec.sha256) == (tmp_path / "libs/own.so", False, None)
    assert without_folders(made).custom_ops[0].library == "own.so"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("custom_ops: [{library: x.so, sha256: abc}]", "custom_ops[0].sha256"),
        ("custom_ops: [{path: x.so}]", "custom_ops[0]"),
        ("custom_ops: x.so", "custom_ops"),
        (f"custom_ops: [{', '.join(['{library: x.so}'] * 17)}]", "custom_ops"),
    ],
)
def test_a_profile_that_states_them_wrongly(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(AotcError) as caught:
        load_profile(profile(tmp_path, text))
    assert caught.value.code == "AOTC-I022"
    assert where in caught.value.where


def entry(path: str = PATH, role: Role = "custom-ops", **fields: Any) -> FileEntry:
    return FileEntry(**{"path": path, "size": 7, "sha256": DIGEST, "role": role, **fields})


def shipping(*entries: FileEntry, listed: bool = True) -> Manifest:
    made = variant("portable")
    needs = replace(made.requirements, custom_ops=(SHIPPED,))
    files = (*made.files, PATH) if listed else made.files
    return replace(
        manifest(variants=(replace(made, requirements=needs, files=files),)), files=entries
    )


def test_a_manifest_names_the_file_that_it_ships() -> None:
    made = shipping(entry())
    assert list(custom_op_problems(made.variants, made.files)) == []
    assert made.custom_ops == (SHIPPED,)


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (shipping(), "not among the files"),
        (shipping(entry(role="model")), "not among the files"),
        (shipping(entry(), listed=False), "not among the files"),
        (shipping(entry(sha256=OTHER)), "another file"),
        (shipping(entry(size=8)), "another file"),
        (shipping(entry(), entry("custom_ops/more.so")), "no variant registers"),
    ],
)
def test_one_that_names_another_is_refused(made: Manifest, what: str) -> None:
    assert [what in each.what for each in custom_op_problems(made.variants, made.files)] == [True]
    assert any(what in each.what for each in made.problems())


def results(code: str, library: CustomOps, **host: Any) -> list[tuple[str, str]]:
    found = checks()[code]().run(replace(NEEDS, custom_ops=(library,)), replace(HOST, **host))
    return [
        (each.code, each.found if isinstance(each, Refusal) else each.what)
        for each in found
        if isinstance(each, Refusal | Finding)
    ]


def test_the_python_that_a_library_is_for() -> None:
    assert results("AOTC-C022", SHIPPED, python="cpython-311") == []
    assert results("AOTC-C022", SHIPPED, python="cpython-312") == [("AOTC-C022", "cpython-312")]
    assert results("AOTC-C022", replace(SHIPPED, python=""), python="cpython-312") == []
    unknown = [("AOTC-C011", "the Python that own.so is for is not checked")]
    assert results("AOTC-C022", SHIPPED) == unknown


def test_the_digest_that_a_library_has_to_have() -> None:
    assert results("AOTC-C023", SHIPPED) == []
    assert results("AOTC-C023", REQUIRED, custom_ops={DIGEST: "x.so"}) == []
    assert results("AOTC-C023", REQUIRED) == [("AOTC-C023", "none named")]
    assert results("AOTC-C023", REQUIRED, custom_ops={OTHER: "x.so"}) == [
        ("AOTC-C023", f"x.so {OTHER[:16]}")
    ]
    assert results("AOTC-C023", REQUIRED, probed=False) == [
        ("AOTC-C011", "library of custom operators own.so is not checked")
    ]


def test_what_is_probed_for_a_library_alone_makes_no_other_host() -> None:
    probed = replace(HOST, python="cpython-311", custom_ops={DIGEST: "x.so"})
    assert target_digest(probed) == target_digest(HOST)
