"""`aotc profile learn`: from recorded shapes to a profile that builds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command import SCRIPT, Command
from made_models import FEATURES, linear, save

from aotc.spec.profile_files import load_profile


@pytest.fixture
def learner(aotc: Command) -> Command:
    """A model with a free batch, requests, and a table in which the batch costs in steps."""
    save(linear(), aotc.folder / "linear.onnx")
    sizes = [3] * 50 + [4] * 10 + [13] * 20 + [30] * 20
    lines = (json.dumps({"x": [size, FEATURES]}) for size in sizes)
    (aotc.folder / "shapes.jsonl").write_text("\n".join(lines))
    costs = {
        "schema": "aotc.costs/1",
        "dims": ["batch"],
        "sizes": {"batch": [4, 8, 16, 32]},
        "static": [1.0, 2.0, 3.0, 9.0],
        "dynamic": [4.0, 8.0, 16.0, 32.0],
    }
    (aotc.folder / "costs.json").write_text(json.dumps(costs))
    return aotc


def learn(learner: Command, *words: str) -> list[str]:
    return ["profile", "learn", "shapes.jsonl", "--model", "linear.onnx", *words]


def shown(learner: Command, *words: str) -> str:
    """What a command shows to people."""
    done = subprocess.run(
        [str(SCRIPT), *words],
        cwd=learner.folder,
        env=learner.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_profile_is_learned_and_builds(learner: Command) -> None:
    words = learn(learner, "--costs", "costs.json", "--max-variants", "3", "-o", "learned.yaml")
    done = learner(*words, "--json")
    assert done.status == 0
    document = done.document
    assert document["schema"] == "aotc.profile-learn/1"
    (chosen,) = [plan for plan in document["plans"] if plan["chosen"]]
    assert chosen["buckets"] == {"batch": [4, 16, 32]}
    assert chosen["seconds"] == pytest.approx((60 * 1 + 20 * 3 + 20 * 9) / 100)
    assert document["padding"] == pytest.approx((50 + 20 * 3 + 20 * 2) / (190 + 20 * 13 + 20 * 30))
    assert (document["coverage"], document["requests"]) == (1.0, 100)
    assert document["sizes"]["batch"][0] == {"size": 3, "requests": 50}
    profile = load_profile(learner.folder / "learned.yaml")
    assert profile.dims["batch"].buckets == (4, 16, 32)
    assert profile.traffic is not None
    assert profile.traffic.requests == 100
    built = learner("build", "linear.onnx", "--profile", "learned.yaml", "-o", "a.aotc", "--json")
    assert [each["name"] for each in built.document["variants"]] == [
        "portable.batch4",
        "portable.batch16",
        "portable.batch32",
    ]
    covered = learner("inspect", "a.aotc", "--traffic", "shapes.jsonl", "--json").document
    traffic = covered["artifact"]["shapes"]["traffic"]
    assert traffic["variants"] == {
        "portable.batch4": 60,
        "portable.batch16": 20,
        "portable.batch32": 20,
    }
    assert (traffic["accepted"], traffic["exact"], traffic["padded"]) == (1.0, 0.1, 0.9)
    assert traffic["padding"] == pytest.approx(document["padding"])


def test_costs_are_measured_and_kept(learner: Command) -> None:
    words = learn(learner, "--seconds", "1", "--threads", "1", "--save-costs", "measured.json")
    assert learner(*words).status == 0
    table = json.loads((learner.folder / "measured.json").read_bytes())
    assert table["sizes"] == {"batch": [3, 4, 8, 13, 16, 30]}
    assert len(table["static"]) == 6
    assert all(seconds > 0 for seconds in table["static"] + table["dynamic"])
    again = learner(*learn(learner, "--costs", "measured.json", "--json"))
    assert again.document["backend"] == table["backend"]


def test_a_page(learner: Command) -> None:
    done = learner(*learn(learner, "--costs", "costs.json", "--html", "page.html"))
    assert done.status == 0
    page = (learner.folder / "page.html").read_text()
    assert "sizes of batch" in page
    assert "<script" not in page
    assert "://" not in page, "the page needs another"


def test_a_page_on_standard_output(learner: Command) -> None:
    """The page alone, and no file of that name."""
    done = learner.plain(*learn(learner, "--costs", "costs.json", "--html", "-"))
    assert done.status == 0
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>\n")
    assert not (learner.folder / "-").exists()
    refused = learner(*learn(learner, "--costs", "costs.json", "--html", "-"))
    assert refused.status == 2
    assert [each["code"] for each in refused.document["errors"]] == ["AOTC-I027"]


def test_the_distribution_is_drawn(learner: Command) -> None:
    text = shown(learner, *learn(learner, "--costs", "costs.json", "--max-variants", "2"))
    assert "to the best" in text
    rows = {words[0]: words for line in text.splitlines() if (words := line.split())}
    assert rows["3"][1] == "50"
    assert (rows["4..5"][1], rows["4..5"][-1], rows["32"][-1]) == ("10", "4", "32")
    assert "\n    buckets: [4, 32]\n" in text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "AOTC-S023"),
        ('{"x": [1, 16]}\n{"x": [1]}', "AOTC-S021"),
        ('{"x": [-1, 16]}', "AOTC-S022"),
        ('{"x": [99999999999, 16]}', "AOTC-S022"),
        ("x", "AOTC-S020"),
    ],
    ids=["empty", "rank", "negative", "huge", "text"],
)
def test_bad_traffic(learner: Command, text: str, code: str) -> None:
    (learner.folder / "shapes.jsonl").write_text(text)
    words = learn(learner, "--costs", "costs.json", "-o", "learned.yaml", "--json")
    learner(*words).refused(code, 3)
    assert not (learner.folder / "learned.yaml").exists()


def test_bad_calls(learner: Command) -> None:
    def refused(code: str, status: int, *words: str) -> None:
        learner("profile", "learn", *words, "--json").refused(code, status)

    model = ("--model", "linear.onnx")
    refused("AOTC-I027", 2, "shapes.jsonl")
    refused("AOTC-I001", 3, "none.jsonl", *model)
    refused("AOTC-I001", 3, "shapes.jsonl", "--model", "none.onnx")
    refused("AOTC-I001", 3, "shapes.jsonl", *model, "--costs", "none.json")
    refused("AOTC-I021", 3, "shapes.jsonl", *model, "--profile", "edgy")
    refused("AOTC-I027", 2, "shapes.jsonl", *model, "--dim-names", "bath")
    refused("AOTC-I027", 2, "shapes.jsonl", *model, "--max-variants", "0")
    (learner.folder / "bad.json").write_text("{}")
    refused("AOTC-S026", 3, "shapes.jsonl", *model, "--costs", "bad.json")
    costs = json.loads((learner.folder / "costs.json").read_bytes())
    for change in ({"dims": ["seq"], "sizes": {"seq": [4, 8, 16, 32]}}, {"model_sha256": "0" * 64}):
        (learner.folder / "bad.json").write_text(json.dumps({**costs, **change}))
        refused("AOTC-S026", 3, "shapes.jsonl", *model, "--costs", "bad.json")
    (learner.folder / "big.csv").write_text("batch\n33\n1\n")
    refused("AOTC-S026", 3, "big.csv", *model, "--costs", "costs.json")
    (learner.folder / "kept.yaml").write_text("mine")
    refused("AOTC-I017", 3, "shapes.jsonl", *model, "--costs", "costs.json", "-o", "kept.yaml")
    assert (learner.folder / "kept.yaml").read_text() == "mine"
    refused("AOTC-I026", 3, "shapes.jsonl", *model, "-o", "none/kept.yaml")


def test_a_model_that_is_not_to_be_padded(learner: Command) -> None:
    words = learn(learner, "--costs", "costs.json", "--no-padding", "--json")
    document = learner(*words).document
    (chosen,) = [plan for plan in document["plans"] if plan["chosen"]]
    assert chosen["name"] == "popular sizes, and a dynamic variant"
    assert (chosen["buckets"], document["padding"]) == ({"batch": [4]}, 0.0)
    assert document["profile"]["dims"]["batch"]["outside"] == ["route"]
    assert {plan["coverage"] for plan in document["plans"] if plan["name"] == "buckets"} == {0, 0.1}
    text = shown(learner, *words[:-1])
    assert "refuses 90.0%" in text


def test_sizes_of_zero_are_served(learner: Command) -> None:
    (learner.folder / "shapes.jsonl").write_text('{"batch": 0}\n' + '{"batch": 13}\n' * 3)
    answer = learner(*learn(learner, "--costs", "costs.json", "--json")).document
    assert answer["coverage"] == 1.0
    assert answer["verdict"] == (
        "one dynamic variant, as others refuse requests that cannot be padded"
    )
    assert answer["profile"]["dims"]["batch"]["min"] == 0


def test_three_dims_that_vary(aotc: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "\n".join(",".join(map(str, rng.integers(1, 99, 3))) for _ in range(20))
    (aotc.folder / "three.csv").write_text(f"a,b,c\n{rows}\n")
    costs = {"dims": ["a"], "sizes": {"a": [10, 99]}, "static": [1, 2], "dynamic": [1, 2]}
    (aotc.folder / "costs.json").write_text(json.dumps({"schema": "aotc.costs/1", **costs}))
    words = ("profile", "learn", "three.csv", "--costs", "costs.json", "--json")
    found = aotc(*words).refused("AOTC-S024", 3)
    assert found["found"] == "a, b, c"
    answer = aotc(*words, "--dim-names", "a").document
    assert set(answer["ranges"]) == {"b", "c"}
    # A dim that is the sum of two others is none to plan for.
    rows = "\n".join(f"{a},{b},{a + b}" for a, b in rng.integers(1, 49, (20, 2)))
    (aotc.folder / "sum.csv").write_text(f"a,b,c\n{rows}\n")
    answer = aotc("profile", "learn", "sum.csv", *words[3:], "--dim-names", "a").document
    assert answer["follows"] == {"c": ["a", "b"]}


def test_costs_of_more_sizes_than_traffic_has(learner: Command) -> None:
    (learner.folder / "high.csv").write_text("batch\n13\n15\n16\n16\n")
    words = ("profile", "learn", "high.csv", "--costs", "costs.json", "--max-variants", "300")
    answer = learner(*words, "--json").document
    assert all(min(plan["buckets"].get("batch", [16])) >= 13 for plan in answer["plans"])
    (chosen,) = [plan for plan in answer["plans"] if plan["chosen"]]
    assert chosen["buckets"] == {"batch": [16]}


def test_traffic_that_says_too_little_of_an_artifact(learner: Command) -> None:
    assert learner("build", "linear.onnx", "-o", "a.aotc", "--json").status == 0
    (learner.folder / "other.jsonl").write_text('{"x.1": 16}')
    learner("inspect", "a.aotc", "--traffic", "other.jsonl", "--json").refused("AOTC-S020", 3)
    words = ("inspect", "linear.onnx", "--traffic", "shapes.jsonl", "--json")
    learner(*words).refused("AOTC-I027", 2)


@pytest.mark.parametrize(
    "words",
    [
        ["--html", "shapes.jsonl"],
        ["--html", "linear.onnx"],
        ["--html", "costs.json"],
        ["--html", "new", "-o", "new"],
    ],
    ids=" ".join,
)
def test_a_page_overwrites_nothing_that_it_is_made_of(words: list[str], learner: Command) -> None:
    """Not with --force either, which is for earlier outputs."""
    before = {path: path.read_bytes() for path in learner.folder.iterdir() if path.is_file()}
    learner(*learn(learner, "--costs", "costs.json", "--force", *words)).refused("AOTC-I027", 2)
    after = {path: path.read_bytes() for path in learner.folder.iterdir() if path.is_file()}
    assert after == before
