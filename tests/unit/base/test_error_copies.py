"""An error leaves its process complete: pools pickle what their workers raise."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from aotc.base.errors import AotcError

FIELDS = ("code", "title", "exit_status", "what", "where", "expected", "found", "fix", "rows")


def refusal() -> AotcError:
    further = AotcError("AOTC-I017", "further", where="there")
    error = AotcError(
        "AOTC-I001", "no file", where="here", expected="one", found="none", also=(further,)
    )
    error.fix, error.rows = "Make one.", ({"file": "here"},)
    return error


def refuse() -> None:
    raise refusal()


@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_a_copy_says_the_same(through: Callable[[AotcError], AotcError]) -> None:
    before, after = refusal(), through(refusal())
    assert [getattr(after, name) for name in FIELDS] == [getattr(before, name) for name in FIELDS]
    assert str(after) == str(before)
    assert [each.line() for each in after.also] == [each.line() for each in before.also]


def test_a_pool_hands_it_back() -> None:
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, fork) as pool, pytest.raises(AotcError) as caught:
        pool.submit(refuse).result(60)
    assert (caught.value.code, caught.value.also[0].where) == ("AOTC-I001", "there")
