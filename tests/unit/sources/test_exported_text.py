"""Texts of exported programs: those that PyTorch writes are read, and others are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import refusal, refusal_code

from aotc.sources.exported_text import ProgramText, expression_in_words

S0 = "Symbol('s0', positive=True, integer=True)"
U0 = "Symbol('u0', integer=True)"
CPU = {"type": "cpu", "index": None}
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def program(**changed: Any) -> dict[str, Any]:
    """The smallest program: it returns its input."""
    meta = {
        **{"dtype": 7, "sizes": [], "requires_grad": False, "device": CPU, "strides": []},
        **{"storage_offset": {"as_int": 0}, "layout": 7},
    }
    x = {"as_tensor": {"name": "x"}}
    spec = {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF]}
    none = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    both = {"type": "builtins.tuple", "context": "null", "children_spec": [spec, none]}
    graph = {
        **{"inputs": [x], "outputs": [x], "nodes": [], "tensor_values": {"x": meta}},
        **{"sym_int_values": {}, "sym_bool_values": {}},
    }
    signature = {
        **{"inputs": [], "outputs": [], "in_spec": json.dumps([1, both])},
        "out_spec": json.dumps([1, changed.pop("tree", LEAF)]),
    }
    for kind, name in (("int", "sym_int_values"), ("bool", "sym_bool_values")):
        if kind in changed:
            graph[name] = {"n": {"as_expr": {"expr_str": changed.pop(kind), "hint": None}}}
    return {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": [{"user_input": {"arg": x}}],
                "output_specs": [{"user_output": {"arg": x}}],
            },
            "module_call_graph": [{"fqn": "", "signature": signature}],
            "metadata": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": {"major": 8, "minor": 20},
        **changed,
    }


def read(**changed: Any) -> ProgramText:
    return ProgramText(json.dumps(program(**changed)).encode(), "ExportedProgram", "model.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (S0, "s0"),
        ("Integer(-1)", "-1"),
        (f"Mul(Integer(2), {S0})", "2*s0"),
        (f"Add({S0}, Integer(-1))", "s0 + -1"),
        (f"Mul(Integer(2), Add({S0}, {U0}))", "2*(s0 + u0)"),
        (f"FloorDiv({S0}, Integer(2))", "s0//2"),
        (f"Max(Integer(2), Mod({S0}, Integer(4)))", "Max(2, s0 % 4)"),
        (f"Pow({S0}, Integer(2))", "Pow(s0, 2)"),
        (f"Pow({S0}, Rational(1, 2))", "Pow(s0, Rational(1, 2))"),
        ("Float('0.5', precision=53)", "0.5"),
    ],
)
def test_sizes_are_read_and_told(text: str, words: str) -> None:
    read(int=text)
    assert expression_in_words(text) == words


@pytest.mark.parametrize(
    "text",
    [
        f"GreaterThan({U0}, Integer(1))",
        f"And(Equality({S0}, Integer(4)), StrictLessThan({U0}, {S0}))",
        "true",
    ],
)
def test_conditions_are_read(text: str) -> None:
    read(bool=text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "s0", "s0 + 1", "[]", "Integer", "Integer()", "Integer('1')", "Integer(1.5)"),
        *("Integer(True)", "Integer(1, 2)", "Integer(10000000000000000000)", "Symbol(s0)"),
        *("Symbol('__import__')", "Symbol('s0', integer=1)", "Symbol('s0', evil=True)"),
        *("Symbol('s0', **{})", "Symbol('Integer')", "Symbol('a b')", "Symbol(*'a')"),
        *("print(Integer(1))", "Add(Integer(1), evaluate=False)", "Integer(1).real"),
        *("Lambda(Symbol('x'), Integer(1))", "Function('f')(Integer(1))", "sympify('1')"),
        *("(lambda: 1)()", "Integer(1) if Integer(1) else Integer(2)", "f'{1}'", "Add[0]"),
        *(
            "Integer(1)\n",
            "Integer(1) # x",
            "Integer(1);Integer(2)",
            "Integer(\\\n1)",
            "\u2160nteger(1)",
        ),
        *("Pow(Integer(2), Integer(65))", f"Pow(Integer(2), Mul({S0}, {S0}))", "Rational(1, 0)"),
        *("Float('1e99999')", "Float('nan')", "Symbol('u100001')", "factorial(Integer(9))"),
    ],
)
def test_no_other_text_is_a_size(text: str) -> None:
    assert refusal_code(read, int=text) in ("AOTC-I134", "AOTC-I135")


@pytest.mark.parametrize(
    "guard",
    [
        "L['x'].size()[0] == L['mask'].size()[0]",
        "max(2, (-1) + L['x'].size()[1]) <= L['x'].size()[1]",
        "((4*L['y']['u'].size()[0]) % (2*L['x'].size()[0])) == 0",
        "not (L['args'][0].size()[0] // 2 < 3 and L['n'] >= 0)",
        "math.trunc(L['x'].size()[0] / 2) > 1",
    ],
)
def test_guards_are_told_and_left_out(guard: str) -> None:
    found = read(guards_code=[guard])
    assert found.guards == [guard]
    assert found.content["guards_code"] == []


@pytest.mark.parametrize(
    "guard",
    [
        *("open('x')", "().__class__ == 1", "L['x'].tolist() == []", "print == 1", "(lambda: 1)()"),
        *("[i for i in L]", "torch.load('x')", "math.__loader__", "max(1, key=print)", "f'{L}'"),
        *("a == 1; b == 2", "x := 1", "L['x'].size()[0] == 1\nimport os"),
    ],
)
def test_no_other_text_is_a_guard(guard: str) -> None:
    assert refusal_code(read, guards_code=[guard]) == "AOTC-I135"


def tree(kind: str, context: Any, count: int = 2) -> dict[str, Any]:
    return {"type": kind, "context": context, "children_spec": [LEAF] * count}


@pytest.mark.parametrize(
    ("given", "kind", "context", "replaced"),
    [
        (tree("builtins.list", "null"), "builtins.list", "null", set()),
        (tree("collections.OrderedDict", '["a", 1]'), "builtins.dict", '["a", 1]', set()),
        (
            tree("transformers.modeling_outputs.BaseModelOutput", '["a", "b"]'),
            *("builtins.dict", '["a", "b"]', {"transformers.modeling_outputs.BaseModelOutput"}),
        ),
        (tree("m.Data", '[["a", "b"], ["c"]]'), "builtins.dict", '["a", "b"]', {"m.Data"}),
        (tree("m.Point", '"m.Point"'), "builtins.tuple", "null", {"m.Point"}),
    ],
)
def test_trees_are_of_plain_containers(
    given: Any, kind: str, context: str, replaced: set[str]
) -> None:
    found = read(tree=given)
    (call,) = found.content["graph_module"]["module_call_graph"]
    assert json.loads(call["signature"]["out_spec"]) == [1, tree(kind, context)]
    assert found.replaced_types == replaced


def test_the_place_is_named() -> None:
    error = refusal(read, range_constraints={"s0": {"min_val": 2, "max_val": "64"}})
    assert error.line() == (
        "AOTC-I134 the program's description is not of its form "
        "[model.json: range_constraints['s0'].max_val] (expected an integer; found '64')"
    )


def test_integers_of_64_bits_are_read() -> None:
    bounds = {"min_val": -(2**63), "max_val": 2**63 - 1}
    assert read(range_constraints={"s0": bounds}).content["range_constraints"]["s0"] == bounds
