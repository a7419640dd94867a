"""The glossary has the words that a newcomer to ONNX meets first, in order."""

from __future__ import annotations

import re

import pytest
from repository import ROOT

TERMS = [
    line.split("|")[1].strip()
    for line in (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines()
    if line.startswith("| ")
][1:]
WORDS = {word for term in TERMS for word in (term, *re.split(r", ", term))}
# Of the README, the tutorial, and what the commands print by themselves.
MET = """
activation, ahead of time, approval, artifact, attestation, breach, bucket, budget, build cache,
calibration data, channel, degraded, development key, digest, dim, domain, EP, EPContext,
evidence, execution provider, finding, fixture, fold, fuse, gate, golden inputs, golden output,
guard, host, initializer, int8, IR, isa, kernel, manifest, model package, node, ONNX, ONNX
Runtime, operator, opset, ORT, parity, partition, pass, payload, placement, portable, precision,
probe, profile, proven, provenance, quantize, reason code, reference, refusal, requirement, route,
SBOM, signature, signer, SLSA, store, target, task, tolerance, transfer, trust policy, variant,
verdict, waiver, warm-up, weights
"""


@pytest.mark.parametrize("word", MET.replace("\n", " ").strip().split(", "))
def test_a_word_that_is_met_is_told(word: str) -> None:
    assert word.strip() in WORDS


def test_terms_are_in_order_and_told_once() -> None:
    assert sorted(set(TERMS), key=str.lower) == TERMS


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "ci/site/index.md"])
def test_pages_that_are_read_first_lead_there(page: str) -> None:
    assert "glossary.md" in (ROOT / page).read_text("utf-8")
