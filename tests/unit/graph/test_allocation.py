"""Which buffers values get, and what they take: the rules, on graphs small enough to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.graph.allocation import Buffers, Frame, Node, Values, plan_buffers, simulate

KIB = 1024


def node(op: str, reads: str, makes: str) -> Node:
    inputs = tuple(reads.split())
    return Node(f"{op} {makes}", op, inputs, tuple(makes.split()), len(inputs))


def planned(
    nodes: Sequence[Node],
    shapes: Mapping[str, Sequence[int | str | None]],
    outputs: str = "y",
) -> Buffers:
    made = {name for each in nodes for name in each.makes}
    given = {name for each in nodes for name in each.reads} - made
    names = made | given
    known = Values(shapes, dict.fromkeys(names, 4), frozenset(given), frozenset(outputs.split()))
    return plan_buffers(nodes, known)


def chain(*ops: str) -> list[Node]:
    """x -> v1 -> v2 ... -> y, one node after the other."""
    names = ["x", *(f"v{at}" for at in range(1, len(ops))), "y"]
    return [node(op, names[at], names[at + 1]) for at, op in enumerate(ops)]


def all_of(shape: Sequence[int | str | None], names: str) -> dict[str, Sequence[int | str | None]]:
    return dict.fromkeys(names.split(), shape)


def test_an_activation_is_written_over_its_input() -> None:
    found = planned(chain("Transpose", "Relu", "Neg"), all_of([2, 3], "x v1 v2 y"))
    assert found.root["v2"] == "v1"
    assert found.root["y"] == "y"


def test_a_sum_is_not_written_over_an_input() -> None:
    nodes = [node("Neg", "x", "a"), node("Add", "a x", "b"), node("Neg", "b", "y")]
    found = planned(nodes, all_of([4], "x a b y"))
    assert found.root["b"] == "b"


def test_what_is_read_later_or_was_given_is_not_written_over() -> None:
    nodes = [node("Neg", "x", "a"), node("Relu", "a", "b"), node("Add", "a b", "y")]
    assert planned(nodes, all_of([4], "x a b y")).root["b"] == "b"
    assert planned(chain("Relu", "Neg"), all_of([4], "x v1 y")).root["v1"] == "v1"


def test_a_view_is_its_input_whatever_the_dims() -> None:
    found = planned(chain("Neg", "Reshape", "Neg"), {})
    assert found.root["v2"] == "v1"
    # Buffers of what was given are not the session's.
    of_input = planned(chain("Reshape", "Neg"), {})
    assert of_input.root["v1"] == "x"
    assert "x" not in of_input.ends


def test_a_free_buffer_of_equal_axes_is_taken_again_the_last_freed_first() -> None:
    nodes = [
        node("Neg", "x", "a"),
        node("Neg", "x", "b"),
        node("Neg", "a", "c"),
        node("Neg", "b", "d"),
        node("Neg", "d c", "e"),
        node("Neg", "e", "y"),
    ]
    found = planned(nodes, all_of(["n", 3], "x a b c d e y"))
    assert found.root["d"] == "a"
    assert found.root["e"] == "b"


def test_axes_that_nobody_can_name_are_not_known_to_be_equal() -> None:
    ops = chain("Neg", "Neg", "Neg", "Neg")
    assert planned(ops, all_of([None, 3], "x v1 v2 v3 y")).root["v3"] == "v3"
    assert planned(ops, all_of(["n", 3], "x v1 v2 v3 y")).root["v3"] == "v1"
    assert planned(ops, {}).root["v3"] == "v3"


def test_outputs_have_buffers_of_their_own_and_are_kept() -> None:
    found = planned(chain("Neg", "Relu"), all_of([4], "x v1 y"))
    assert found.root["y"] == "y"
    assert "y" not in found.ends


def sizes(found: Buffers, bytes_of: Mapping[str, int], **workspace: int) -> Frame:
    by_index = {int(key.removeprefix("at")): [size] for key, size in workspace.items()}
    return Frame(found, bytes_of, by_index)


def test_the_peak_names_its_node_and_what_is_alive() -> None:
    found = planned(chain("Transpose", "Transpose", "Transpose"), {})
    run = simulate(sizes(found, {"v1": 4 * KIB, "v2": 2 * KIB, "y": KIB}, at1=3 * KIB))
    assert (run.live, run.node, run.workspace) == (9 * KIB, "Transpose v2", 3 * KIB)
    assert [each.value for each in run.alive] == ["v1", "v2"]
    assert (run.asked, run.buffers, run.outputs) == (7 * KIB, 7 * KIB, KIB)


def test_later_runs_ask_for_one_block_in_which_buffers_share_places() -> None:
    found = planned(chain("Transpose", "Transpose", "Transpose", "Transpose"), {})
    run = simulate(sizes(found, {"v1": 4 * KIB, "v2": 2 * KIB, "v3": 3 * KIB, "y": KIB}))
    # v3 takes the place of v1, which is free then.
    assert run.block == 6 * KIB
    assert run.first == 6 * KIB
    # The output stands beside the block to the end.
    assert run.later == 7 * KIB


def test_room_at_the_end_of_the_block_is_a_gap_as_well() -> None:
    nodes = [
        node("Neg", "x", "a"),
        node("Neg", "a", "b"),
        node("Neg", "b", "c"),
        node("Neg", "c", "d"),
        node("Neg", "d", "e"),
        node("Neg", "a", "f"),
        node("Neg", "x", "g"),
        node("Neg", "x", "h"),
        node("Neg", "e f g h", "y"),
    ]
    units = {"a": 2, "b": 1, "c": 2, "d": 2, "e": 3, "f": 1, "g": 1, "h": 3, "y": 1}
    found = planned(nodes, {})
    # The block reaches to 7 when g comes: it fits at 6 exactly, and at 0 with room to spare.
    run = simulate(sizes(found, {name: count * KIB for name, count in units.items()}))
    assert (run.live, run.block) == (9 * KIB, 10 * KIB)


def test_a_chunk_that_is_not_worth_splitting_counts_as_a_whole() -> None:
    found = planned(chain("Transpose", "Transpose"), {})
    run = simulate(sizes(found, {"v1": 600 * KIB, "y": KIB}))
    assert run.live == 601 * KIB
    assert run.first == 1024 * KIB + KIB
    assert run.extensions == 2


def test_graphs_of_control_flow_run_within_their_node() -> None:
    inner = planned(chain("Transpose", "Transpose"), {})
    outer = planned([node("Neg", "x", "a"), node("If", "a", "y")], {})
    body = sizes(inner, {"v1": 8 * KIB, "y": KIB})
    run = simulate(Frame(outer, {"a": 2 * KIB, "y": KIB}, {}, {1: [body]}))
    assert run.live == 11 * KIB
    assert run.node == "Transpose y"
    assert run.first == 11 * KIB
