"""Relations of a profile: how they are parsed, how they rename dims, and how runs check them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameDims
from aotc.graph.symbols import Symbols, symbols_of
from aotc.sizes.inputs.fixtures import FixtureInputs
from aotc.sizes.stated_relations import RelationCheck, refuse_contradictions
from aotc.sizes.trials import Trial
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.payload import Value
from aotc.spec.profile import ProbeLimits, Profile
from aotc.spec.profile_files import load_profile
from aotc.spec.relations import Equality, in_dependency_order, read_relation, read_relations
from aotc.spec.shapes import Dim, DimRange, Domain, Relation

Sizes = Mapping[str, int]


def float_value(name: str, *shape: int | str) -> Value:
    return Value(name=name, dtype="float32", shape=shape)


IDS, MASK = float_value("ids", "b", "s"), float_value("mask", "mask.0", "mask.1")
PAST = float_value("past", "b", 4, "p")
RANKLESS = Value(name="any", dtype="float32")


# -- reading
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = b", ("a", "b")),
        ("batch=ids.0 =mask.0", ("batch", "ids.0", "mask.0")),
        ('"s15 + s70" = t', ("s15 + s70", "t")),
        ('a = "5"', ("a", "5")),
        ("serving_default:0.1 = a/b.0", ("serving_default:0.1", "a/b.0")),
    ],
)
def test_an_equality(text: str, names: tuple[str, ...]) -> None:
    assert read_relation(text) == Equality(names=names)


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("x = a + b - 2", ("a", "b"), -2),
        ("x=a+b+3", ("a", "b"), 3),
        ("a + b = x", ("a", "b"), 0),
        ("x = 2*a", ("a", "a"), 0),
        ("x = a * 2 + 1", ("a", "a"), 1),
        ("x = 2*3 + a - 1", ("a",), 5),
        ("x = a + a", ("a", "a"), 0),
        ('x = "my-dim" - 1', ("my-dim",), -1),
    ],
)
def test_a_sum(text: str, terms: tuple[str, ...], constant: int) -> None:
    assert read_relation(text) == Relation(dim="x", terms=terms, constant=constant)


@given(
    st.lists(st.sampled_from(["a", "b.0", "past_len", "é"]), min_size=1, max_size=5),
    st.integers(-1000, 1000),
)
def test_what_a_relation_prints_reads_back(terms: list[str], constant: int) -> None:
    relation = Relation(dim="x", terms=tuple(terms), constant=constant)
    plain = len(terms) == 1 and not constant
    wanted = Equality(names=("x", terms[0])) if plain else relation
    assert read_relation(str(relation)) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is neither NAME = NAME nor NAME = SUM"),
        ("a", "is neither NAME = NAME nor NAME = SUM"),
        ("a =", "is neither NAME = NAME nor NAME = SUM"),
        ("a = = b", "is neither NAME = NAME nor NAME = SUM"),
        ("a = a", "names a dim twice"),
        ("a = b = c + 1", "has a sum, and more than one '='"),
        ("a + 1 = b + 2", "does not have a side that is a single name"),
        ("x = 5", "states a single size; state sizes under dims"),
        ("x = a b", "has 'b' where '+ TERM' is expected"),
        ("x = a +", "has '+' where '+ TERM' is expected"),
        ("x = + a", "has '+' where a name or a number is expected"),
        ("x = a *", "has '*' where a name or a number is expected"),
        ("x = a * b", "multiplies dims; only sums are supported"),
        ("x = a - b", "subtracts 'b'; write it as a sum on the other side"),
        ("x = 0 * a", "has 'a' 0 times; 1 to 16 times are supported"),
        ("x = 99 * a", "has 'a' 99 times; 1 to 16 times are supported"),
        ("x = x + 1", "derives 'x' from itself"),
        ('x = "a', "cannot be read at '\"a'"),
        ("x = a + 99999999999", "has '99999999999' where a name or a number is expected"),
        ("x = a + 9999999999", "has more than 16 terms, or too large a number"),
        ("x = 9*a + 9*b", "has more than 16 terms, or too large a number"),
    ],
)
def test_a_relation_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_relation(text)
    (problem,) = caught.value.problems
    assert problem.what == f"{text!r} {why}"
    assert problem.code == "AOTC-S015"


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (("x = a + 1", "x = b + 1"), "'x' is derived twice: x = a + 1; x = b + 1"),
        (("x = a + 1", "a = x + 1"), "the relations are circular: x = a + 1; a = x + 1"),
        (("x = a + 1", "y = b + 1", "x = y"), "'x' is derived twice: x = a + 1; x = b + 1"),
        (("x = a + 1", "x = a"), "the relations are circular: x = x + 1"),
    ],
)
def test_relations_that_contradict_each_other(texts: tuple[str, ...], what: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_relations(texts)
    (problem,) = caught.value.problems
    assert (problem.path, problem.what, problem.code) == ("", what, "AOTC-S015")


@given(st.permutations(["c = a + b", "d = c + a", "e = d + c", "f = e + 1"]))
def test_relations_are_followed_in_the_order_of_their_terms(texts: list[str]) -> None:
    read = [item for item in read_relations(texts) if isinstance(item, Relation)]
    assert [relation.dim for relation in in_dependency_order(read)] == ["c", "d", "e", "f"]


def test_a_profile_with_unreadable_relations_is_refused_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("schema: aotc.profile/1\nname: p\nrelations: ['a = b', 'x = a - b', 'y = 3']\n")
    with pytest.raises(AotcError) as caught:
        load_profile(path)
    error = caught.value
    assert (error.code, error.where) == ("AOTC-S015", f"{path}: relations[1]")
    assert [(other.code, other.where) for other in error.also] == [
        ("AOTC-S015", f"{path}: relations[2]")
    ]


def test_a_profile_with_circular_relations_is_refused() -> None:
    document = {"schema": "aotc.profile/1", "name": "p", "relations": ["a = b + 1", "b = a + 1"]}
    with pytest.raises(ParseError, match="relations: the relations are circular"):
        decode(Profile, document)


# -- names
def test_equal_dims_get_the_new_name_everywhere() -> None:
    symbols = symbols_of(["batch = ids.0 = mask.0", "s = mask.1"], [IDS, MASK, PAST])
    assert symbols.names == {"b": "batch", "mask.0": "batch", "mask.1": "s"}
    assert [value.shape for value in symbols.inputs()] == [
        ("batch", "s"),
        ("batch", "s"),
        ("batch", 4, "p"),
    ]
    for name in ("batch", "b", "ids.0", "mask.0", "past.0"):
        assert symbols.dim(name) == "batch"
    assert symbols.dim("past.1") is None
    assert symbols.dim("nothing") is None
    assert symbols.relations == ()


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["mask.0 = b"], {"mask.0": "b"}),
        (["mask.0 = mask.1"], {"mask.1": "mask.0"}),
        (["b = s"], {"s": "b"}),
        (["mask.0 = ids.0", "ids.0 = past.2"], {"mask.0": "b", "p": "b"}),
        (["n = ids.0", "n = mask.0"], {"b": "n", "mask.0": "n"}),
        (["mask.0 = n", "b = mask.1", "n = b"], {"mask.0": "n", "b": "n", "mask.1": "n"}),
        (["rows = b"], {"b": "rows"}),
    ],
)
def test_which_name_is_kept(texts: list[str], names: dict[str, str]) -> None:
    assert symbols_of(texts, [IDS, MASK, PAST]).names == names


def test_sums_are_told_by_the_new_names_in_order() -> None:
    texts = ["z = mask.1", "batch = ids.0", "z = y + 1", "y = ids.1 + past.2", "y = mask.0"]
    symbols = symbols_of(texts, [IDS, MASK, PAST])
    assert [str(relation) for relation in symbols.relations] == ["y = s + p", "z = y + 1"]
    assert decode(Symbols, encode(symbols)) == symbols


def test_statements_are_told_of_declared_dims() -> None:
    symbols = symbols_of(["n = b = mask.0", "t = mask.1", "t = p + s"], [IDS, MASK, PAST])
    told = [
        (statement.text, [str(r) for r in statement.relations]) for statement in symbols.statements
    ]
    assert told == [("n = b = mask.0", ["mask.0 = b"]), ("t = p + s", ["mask.1 = p + s"])]


def test_an_input_of_unknown_rank_follows_the_name() -> None:
    symbols = symbols_of(["n = any.0 = b"], [IDS, RANKLESS])
    assert symbols.names == {"b": "n"}
    assert [str(relation) for relation in symbols.relations] == ["any.0 = n"]


def test_a_model_without_relations_keeps_its_names() -> None:
    symbols = symbols_of([], [IDS, MASK])
    assert symbols.inputs() == (IDS, MASK)
    assert (symbols.names, symbols.relations, symbols.statements) == ({}, (), ())
    assert symbols.dim("ids.1") == "s"


@pytest.mark.parametrize(
    ("texts", "code", "what", "found"),
    [
        (["b = past.1"], "AOTC-S004", "the model fixes 'past.1'", "size 4"),
        (["b = idz.0"], "AOTC-S015", "the model has no dim 'idz.0'", "nearest: ids.0"),
        (["b = ids.9"], "AOTC-S015", "the model has no dim 'ids.9'", "nearest: ids.1"),
        (["s = p + bb"], "AOTC-S015", "the model has no dim 'bb'", "nearest: b"),
        (["total = p + s"], "AOTC-S015", "the model has no dim 'total'", ""),
        (["one = two"], "AOTC-S015", "the model has no dim 'two'", ""),
        (
            ["one = two = b"],
            "AOTC-S015",
            "the model has no dim 'two', and one new name is enough: 'one'",
            "",
        ),
        (["n = any.0"], "AOTC-S015", "'n' names an input of unknown rank alone", ""),
        (
            ["p = s + 1", "past.2 = b + 1"],
            "AOTC-S015",
            "'p' is derived twice: p = s + 1; p = b + 1",
            "",
        ),
        (
            ["p = ids.1 + 1", "s = past.2 + 1"],
            "AOTC-S015",
            "the relations are circular: p = s + 1; s = p + 1",
            "",
        ),
        (["p = ids.0 + 1", "b = past.2"], "AOTC-S015", "the relations are circular: b = b + 1", ""),
        (["a - "], "AOTC-S015", "'a - ' is neither NAME = NAME nor NAME = SUM", ""),
    ],
)
def test_relations_that_do_not_fit_the_model(
    texts: list[str], code: str, what: str, found: str
) -> None:
    with pytest.raises(AotcError) as caught:
        symbols_of(texts, [IDS, MASK, PAST, RANKLESS])
    assert (caught.value.code, caught.value.what, caught.value.found) == (code, what, found)


# -- the graph
def graph_of(inputs: Mapping[str, Sequence[str | None]], output: Sequence[str]) -> onnx.ModelProto:
    def info(name: str, shape: Sequence[str | None]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    graph = helper.make_graph(
        [helper.make_node("Sum", list(inputs), ["y"], name="sum")],
        "graph",
        [info(*entry) for entry in inputs.items()],
        [info("y", output)],
    )
    return helper.make_model(graph)


def params(value: onnx.ValueInfoProto) -> list[str]:
    return [dim.dim_param for dim in value.type.tensor_type.shape.dim]


def test_dims_of_the_graph_get_their_new_names() -> None:
    model = graph_of({"a": ["b", None], "c": [None, "s"]}, ["b", "s"])
    (record,) = run_passes(model, [NameDims(names={"b": "n", "c.0": "n", "a.1": "s"})])
    assert [params(value) for value in model.graph.input] == [["n", "s"], ["n", "s"]]
    assert params(model.graph.output[0]) == ["n", "s"]
    assert record.options == {"names": {"b": "n", "c.0": "n", "a.1": "s"}, "clashing": {}}


def test_an_output_that_has_the_new_name_by_accident_loses_it() -> None:
    model = graph_of({"a": ["b"]}, ["n"])
    run_passes(model, [NameDims(names={"b": "n"})])
    assert params(model.graph.input[0]) == ["n"]
    assert params(model.graph.output[0]) == [""]


def test_dims_in_bodies_are_renamed_as_well() -> None:
    body = graph_of({}, ["b"]).graph
    model = graph_of({"a": ["b"]}, ["b"])
    model.graph.node.append(
        helper.make_node("If", ["k"], ["z"], name="if", then_branch=body, else_branch=body)
    )
    run_passes(model, [NameDims(names={"b": "n"})])
    for attribute in model.graph.node[1].attribute:
        assert params(attribute.g.output[0]) == ["n"]


# -- held against runs
def check_of(symbols: Symbols, runs: Callable[[Sizes], bool]) -> RelationCheck:
    return RelationCheck(
        symbols=symbols,
        trial=lambda sizes: Trial(ok=runs(sizes), error="no"),
        limits=ProbeLimits(max_size=1024),
        late=lambda: False,
    )


def test_a_relation_without_which_the_model_runs_is_wrong() -> None:
    symbols = symbols_of(
        ["t = p + s + 1"],
        [float_value("x", "b", "s"), float_value("y", "p"), float_value("z", "t")],
    )
    check = check_of(symbols, lambda s: s["t"] == s["p"] + s["s"] and s["s"] > 0)
    with pytest.raises(AotcError) as caught:
        check.refuse_wrong({})
    error = caught.value
    assert (error.code, error.where) == ("AOTC-S014", "t = p + s + 1")
    assert error.what == "the model runs only where t = s + p"
    assert error.found == "it runs at s=3, p=5, t=8"


def test_an_equality_that_is_wrong_names_sizes_that_run() -> None:
    symbols = symbols_of(["n = x.0 = y.0"], [float_value("x", "x.0"), float_value("y", "y.0")])
    check = check_of(symbols, lambda s: s["y.0"] == 2 * s["x.0"])
    with pytest.raises(AotcError) as caught:
        check.refuse_wrong({"n": DimRange(min=1, max=8)})
    assert caught.value.code == "AOTC-S014"
    assert caught.value.found == "it runs at x.0=3, y.0=6"


def test_only_the_wrong_one_of_two_relations_is_named() -> None:
    inputs = [
        float_value("x", "a"),
        float_value("y", "b"),
        float_value("z", "c"),
        float_value("w", "d"),
    ]
    symbols = symbols_of(["a = b", "c = d + 2"], inputs)
    check = check_of(symbols, lambda s: s["a"] == s["b"] and s["c"] == s["d"])
    with pytest.raises(AotcError) as caught:
        check.refuse_wrong({})
    assert caught.value.where == "c = d + 2"
    assert caught.value.what == "the model runs only where d = c"


def test_a_relation_is_not_blamed_where_nothing_runs_without_it_either() -> None:
    symbols = symbols_of(["a = b"], [float_value("x", "a"), float_value("y", "b")])
    check_of(symbols, lambda s: False).refuse_wrong({})


def box(**dims: tuple[int, ...]) -> Domain:
    return Domain(
        dims={
            name: Dim(min=tested[0], max=tested[-1], opt=tested[0], tested=tested)
            for name, tested in dims.items()
        }
    )


def test_a_relation_that_the_model_does_not_need_is_told() -> None:
    symbols = symbols_of(["n = x.0 = y.0"], [float_value("x", "x.0"), float_value("y", "y.0")])
    found = check_of(symbols, lambda s: True).unneeded_findings(box(n=(1, 4, 16)))
    (finding,) = found
    assert finding.code == "AOTC-S025"
    assert (finding.what, finding.where) == ("the model also runs at x.0=4, y.0=5", "n = x.0 = y.0")
    needed = check_of(symbols, lambda s: s["x.0"] == s["y.0"])
    assert needed.unneeded_findings(box(n=(1, 4, 16))) == []


def test_sizes_that_break_one_relation_keep_to_the_others() -> None:
    symbols = symbols_of(
        ["t = p + s", "u = t + 2"],
        [float_value("x", "s"), float_value("y", "p"), float_value("z", "t", "u")],
    )
    domain = Domain(dims=box(s=(1, 8), p=(0, 8)).dims, relations=symbols.relations)
    check = check_of(symbols, lambda sizes: sizes["u"] == sizes["t"] + 2)
    (finding,) = check.unneeded_findings(domain)
    assert (finding.what, finding.where) == ("the model also runs at p=8, s=8, t=17", "t = p + s")


def test_broadcasting_a_size_of_one_counts_for_nothing() -> None:
    symbols = symbols_of(["n = x.0 = y.0"], [float_value("x", "x.0"), float_value("y", "y.0")])
    check = check_of(symbols, lambda s: s["x.0"] == s["y.0"] or 1 in s.values())
    assert check.unneeded_findings(box(n=(1, 2))) == []
    assert check.unneeded_findings(box(n=(1,))) == []


def test_a_relation_that_is_not_needed_costs_at_most_two_runs() -> None:
    runs: list[Sizes] = []

    def never(sizes: Sizes) -> bool:
        runs.append(sizes)
        return False

    symbols = symbols_of(
        ["t = p + s"], [float_value("x", "s"), float_value("y", "p"), float_value("z", "t")]
    )
    domain = box(s=(1, 8), p=(0, 8))
    domain = Domain(dims=domain.dims, relations=symbols.relations)
    assert check_of(symbols, never).unneeded_findings(domain) == []
    assert runs == [{"s": 8, "p": 8, "t": 17}, {"s": 8, "p": 8, "t": 15}]


def test_a_fixture_that_contradicts_a_relation_is_refused() -> None:
    given = FixtureInputs("one", {}, {"t": 4, "p": 1, "s": 2})
    refuse_contradictions([given], (), (Relation(dim="t", terms=("p", "s"), constant=1),))
    with pytest.raises(AotcError) as caught:
        refuse_contradictions([given], (), (Relation(dim="t", terms=("p", "s")),))
    error = caught.value
    assert error.code == "AOTC-I024"
    assert (error.where, error.expected, error.found) == ("one: t", "3", "4")
