"""Documents without a signer, made to take long or to be answered by an endless list of problems.

The tests count the reported problems and the words that were searched for, never time.
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
from refusals import refusal

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.base.text import nearest
from aotc.pipeline.tune import read_tuning
from aotc.spec.codec import MAX_PROBLEMS, ParseError, decode
from aotc.spec.payload import Value
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.traffic import read_traffic
from aotc.spec.yaml import MAX_YAML_VALUES
from aotc.tools.check_outcomes import read_report
from aotc.tools.inspect import inspect
from aotc.trust.container import MAX_BUNDLES
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.signers import load_command

MAX_SEARCHES = 25
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
    """Words whose nearest known word was searched for, which takes long."""
    made: list[str] = []
    plain = difflib.get_close_matches

    def noting(word: str, *rest: Any, **more: Any) -> list[str]:
        made.append(word)
        return plain(word, *rest, **more)

    monkeypatch.setattr(difflib, "get_close_matches", noting)
    return made


def refused(reader: Callable[[Path], object], path: Path) -> AotcError:
    error = refusal(reader, path)
    assert error.code != "AOTC-R999"
    return error


@pytest.mark.parametrize(
    ("name", "count"), [*((name, 5_000) for name in READERS), ("profile.yaml", 60_000)]
)
def test_very_many_unknown_fields(
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
    assert len(searches) <= MAX_SEARCHES
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
    """A sparse file of zeros: reading all of it would need as much memory."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(1 << 40)
    refused(read_tuning if name == "evidence.json" else read_report, path)


@record
class Nested:
    """A record with places for problems."""

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
    # If no alternative of a union fits, the problems of the alternatives are not reported.
    with pytest.raises(ParseError) as caught:
        decode(Nested, {"one": ["x"] * 1000})
    assert len(caught.value.problems) == 1


def test_long_words_and_very_many_words_are_not_compared(searches: list[str]) -> None:
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
    assert len(searches) <= MAX_SEARCHES


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
    """Each is read a few times, whatever their number; by pairs it would take minutes."""
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
