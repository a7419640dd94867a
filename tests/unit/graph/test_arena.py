"""The simulated arena, by the rules of ONNX Runtime's."""

from __future__ import annotations

from aotc.graph.arena import ALIGNMENT, FIRST_REGION, Arena, rounded

MIB = 1 << 20


def test_requests_are_rounded_up() -> None:
    assert [rounded(size) for size in (1, 256, 257)] == [256, 256, 512]
    arena = Arena()
    arena.allocate(1)
    assert (arena.in_use, arena.held) == (ALIGNMENT, FIRST_REGION)


def test_nothing_is_taken_for_nothing() -> None:
    arena = Arena()
    assert arena.allocate(0) is None
    arena.release(None)
    assert (arena.in_use, arena.held, arena.extensions) == (0, 0, 0)


def test_a_chunk_is_split_if_it_is_twice_as_large_or_leaves_128_mib() -> None:
    arena = Arena()
    arena.allocate(MIB // 2)
    assert arena.in_use == MIB // 2
    larger = Arena()
    larger.allocate(MIB // 2 + ALIGNMENT)
    assert larger.in_use == MIB
    huge = Arena()
    huge.allocate(300 * MIB)
    assert (huge.in_use, huge.held) == (300 * MIB, 512 * MIB)


def test_regions_double_as_those_of_onnx_runtime_do() -> None:
    arena = Arena()
    for _ in range(3):
        arena.allocate(MIB)
    # 1, then 2 of which one half is left for the third.
    assert (arena.held, arena.extensions) == (3 * MIB, 2)
    arena.allocate(MIB)
    assert arena.held == 7 * MIB
    one = Arena()
    one.allocate(3 * MIB)
    # As large as was needed; the next is not larger for it.
    one.allocate(3 * MIB)
    assert one.held == 8 * MIB


def test_an_arena_that_does_not_grow_takes_what_is_asked_for() -> None:
    arena = Arena(grows=False)
    arena.allocate(3 * MIB)
    arena.allocate(5 * MIB)
    assert arena.held == 8 * MIB


def test_free_neighbors_are_joined_and_used_again() -> None:
    arena = Arena()
    places = [arena.allocate(MIB // 4) for _ in range(4)]
    for place in places:
        arena.release(place)
    assert arena.in_use == 0
    arena.allocate(MIB)
    assert (arena.held, arena.extensions) == (MIB, 1)


def test_the_smallest_free_chunk_is_taken() -> None:
    arena = Arena()
    large, keep, small, end = (arena.allocate(k << 10) for k in (64, 1, 16, 1))
    assert keep is not None
    assert end is not None
    arena.release(large)
    arena.release(small)
    assert arena.allocate(12 << 10) == small


def test_the_peak_is_of_what_was_in_use_at_once() -> None:
    arena = Arena()
    one = arena.allocate(1024)
    arena.release(one)
    arena.allocate(512)
    assert arena.peak == 1024
    arena.start_peak()
    assert arena.peak == 512
