"""The kept inputs of fuzzing and the seeds, read again without the fuzzer."""

from __future__ import annotations

import hashlib

import pytest
from fuzz_target import CORPUS, NAMES, load


@pytest.mark.parametrize("name", NAMES)
def test_every_kept_input_and_seed(name: str) -> None:
    if name == "keyless":
        pytest.importorskip("sigstore")
    target = load(name)
    kept = [path.read_bytes() for path in target.kept()]
    assert kept
    verdicts = {target.check(data) for data in (*kept, *target.seeds())}
    # What holds of accepted inputs alone was tried too.
    assert verdicts == {True, False}


def test_the_corpus_is_small_and_its_files_are_named_by_their_bytes() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(NAMES)
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    for path in files:
        assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        assert path.stat().st_size < 64 << 10
    assert sum(path.stat().st_size for path in files) < 1 << 20
