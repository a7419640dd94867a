"""Documents by nobody that are made to take long, or to end in a list that nobody reads.

Counted are the problems that are told and the words that are looked for, never time.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact

from aotc.checking.outcomes import read_report
from aotc.contract.builtin import load_profile, load_target
from aotc.contract.codec.parsing import MAX_PROBLEMS, ParseError, decode
from aotc.contract.codec.spelling import nearest
from aotc.contract.codec.strict_yaml import MAX_YAML_VALUES
from aotc.contract.manifest.interface import Value
from aotc.contract.traffic import read_traffic
from aotc.errors import AotcError
from aotc.inspection.summary import inspect
from aotc.records import record
from aotc.signing.keys.key_files import generate
from aotc.signing.keys.key_loading import load_private
from aotc.signing.keys.signer_command import load_command
from aotc.stages.tuning.tuned_evidence import read_tuning
from aotc.verification.container.base import MAX_BUNDLES
from aotc.verification.policy.policy_document import read_policy, read_roots

MOST_LOOKED_FOR = 25
READERS: dict[str, Callable[[Path], object]] = {
    "profile.yaml": load_profile,
    "target.yaml": load_target,
    "trust.yaml": read_policy,
    "root.yaml": read_roots,
    "signer.yaml": load_command,
    "signer.json": load_command,
    "against.json": read_report,
}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words whose nearest known one was looked for, which takes long."""
    made: list[str] = []
    plain = difflib.get_close_matches

    def noting(word: str, *rest: Any, **more: Any) -> list[str]:
        made.append(word)
        return plain(word, *rest, **more)

    monkeypatch.setattr(difflib, "get_close_matches", noting)
    return made


def refused(reader: Callable[[Path], object], path: Path) -> AotcError:
    with pytest.raises(AotcError) as caught:
        reader(path)
    assert caught.value.code != "AOTC-R999"
    return caught.value


@pytest.mark.parametrize(
    ("name", "count"), [*((name, 5_000) for name in READERS), ("profile.yaml", 60_000)]
)
def test_a_crowd_of_unknown_fields(
    name: str, count: int, tmp_path: Path, searches: list[str]
) -> None:
    path = tmp_path / name
    fields = {f"f{number:x}": 0 for number in range(count)}
    if name.endswith(".json"):
        path.write_text(json.dumps(fields))
    else:
        path.write_text("".join(f"{field}: 0\n" for field in fields))
    error = refused(READERS[name], path)
    assert len(error.also) <= MAX_PROBLEMS
    assert len(searches) <= MOST_LOOKED_FOR
    if count > MAX_YAML_VALUES and not name.endswith(".json"):
        assert f"more than {MAX_YAML_VALUES} values" in f"{error.what} {error.found}"


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".yaml")])
@pytest.mark.parametrize(
    "text",
    [
        b"a: &a [1]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n",
        b"[" * 100_000,
        b"{a: " * 100_000,
        b"- " * 100_000,
        b"a: !!int 1" + b":59" * 100_000,
        b"a: !!int 0x" + b"f" * 100_000,
        b"sequence: " + b"9" * 100_000,
        b"a: 1\na: 2\n",
        b"a: 1\n" * 300_000,
    ],
    ids=["bomb", "deep", "deeper", "deepest", "sexagesimal", "hex", "digits", "twice", "large"],
)
def test_yaml_that_grows_when_it_is_read(name: str, text: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    refused(READERS[name], path)


@pytest.mark.parametrize("name", ["against.json", "evidence.json", "costs.json"])
def test_endless_files_are_not_read_to_their_end(name: str, tmp_path: Path) -> None:
    """Zeros that no disk holds: whoever read them all would need the memory for it."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(1 << 40)
    refused(read_tuning if name == "evidence.json" else read_report, path)


@record
class Nested:
    """Places for problems."""

    items: tuple[int, ...] = ()
    one: int | tuple[int, ...] = 0


def test_problems_are_counted_and_the_rest_is_not_searched_for() -> None:
    with pytest.raises(ParseError) as caught:
        decode(Nested, {"items": ["x"] * 1000})
    assert len(caught.value.problems) == MAX_PROBLEMS + 1
    assert caught.value.problems[-1].what == f"there are more than these {MAX_PROBLEMS} problems"
    with pytest.raises(ParseError) as caught:
        decode(Nested, {"items": ["x"] * MAX_PROBLEMS})
    assert len(caught.value.problems) == MAX_PROBLEMS
    # Of choices that do not fit, problems of their own are not told.
    with pytest.raises(ParseError) as caught:
        decode(Nested, {"one": ["x"] * 1000})
    assert len(caught.value.problems) == 1


def test_long_words_and_many_are_not_compared(searches: list[str]) -> None:
    assert nearest("n" * 1000, ("name",)) == ""
    assert searches == []
    assert nearest("nama", (*(f"x{number}" for number in range(5000)), "name")) == ""
    assert nearest("nama", ("n" * 1000, "name")) == "name"


def test_traffic_of_unknown_names(tmp_path: Path, searches: list[str]) -> None:
    inputs = [Value(name="ids", dtype="int64", shape=("batch", "seq"))]
    lines = [json.dumps({f"{number:x}" * 2000: [1, 2]}) for number in range(1000)]
    lines += [json.dumps({f"id{number}": [1, 2] for number in range(50_000)})]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    error = refused(lambda place: read_traffic(place, inputs), path)
    assert len(error.also) < 20
    assert len(searches) <= MOST_LOOKED_FOR


def test_inspect_reads_no_more_attestations_than_verify(tmp_path: Path) -> None:
    private, _ = generate(tmp_path / "k.pem")
    artifact = build_artifact(tmp_path / "a.aotc", load_private(private))
    bundle = (artifact / "attestations" / "oms.sigstore.json").read_bytes()
    for number in range(MAX_BUNDLES):
        (artifact / "attestations" / f"x{number}.sigstore.json").write_bytes(bundle)
    found = inspect(artifact)
    assert [problem.code for problem in found.problems] == ["AOTC-G012"]
    assert found.artifact is not None
    assert found.artifact.claims == ()


def test_very_many_relations(tmp_path: Path) -> None:
    """Each is looked at a few times, whatever their number; by pairs it would take minutes."""
    chain = [f"a{number} = a{number + 1} + 1" for number in range(1_500)]
    equal = [f"b{number} = c{number}" for number in range(1_500)]
    path = tmp_path / "p.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: x\nrelations: {json.dumps(chain + equal)}\n")
    seen = 0

    def counting(frame: Any, event: str, argument: object) -> Any:
        nonlocal seen
        seen += frame.f_code.co_filename.endswith("relations.py")
        return counting

    sys.settrace(counting)
    try:
        load_profile(path)
    finally:
        sys.settrace(None)
    assert 3_000 < seen < 3_000 * 300
