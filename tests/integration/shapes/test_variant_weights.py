"""Weights of variants by bucket: their files, packed or not, and equal bytes in every build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from bucketed_models import (
    FLOAT,
    build_bucketed,
    encoder,
    model_of,
    profile,
    random_values,
    seq,
    words,
)
from model_parts import node
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


# -- files


def names_of_files(built: Built) -> dict[str, set[str]]:
    """Names of the weights' files that each variant reads."""
    return {
        variant.name: {Path(path).name for path in variant.files[1:]}
        for variant in built.manifest.variants
    }


def test_weights_of_only_one_bucket_have_their_own_file(bench: Workbench) -> None:
    """The positions of the words are folded to a constant of another size for each bucket."""
    model = model_of(
        [
            node("Shape", "x", "length", start=1, end=2),
            node("Squeeze", "length", "count"),
            node("Range", "zero count one", "numbers"),
            node("Cast", "numbers", "row", to=FLOAT),
            node("Unsqueeze", "row last", "column"),
            node("Add", "x column", "numbered"),
            node("MatMul", "numbered table", "y"),
        ],
        {"x": ["batch", "seq", 8]},
        {"y": ["batch", "seq", 512]},
        {
            "zero": np.array(0),
            "one": np.array(1),
            "last": np.array([1]),
            "table": random_values(8, 512),
        },
    )
    built = build_bucketed(bench, model, seq("buckets: [512, 768, 1024]"))
    assert names_of_files(built) == {
        "portable.seq512": {"weights.bin"},
        "portable.seq768": {"weights.bin", "portable.seq768.bin"},
        "portable.seq1024": {"weights.bin", "portable.seq1024.bin"},
    }


def test_what_one_of_the_profiles_variants_needs_is_shared_by_its_buckets(
    bench: Workbench,
) -> None:
    """For this CPU the optimizer reorders a convolution's weights; its bias stays."""
    model = model_of(
        [
            node("Conv", "x kernel", "inner", pads=[1, 1, 1, 1]),
            node("MatMul", "inner table", "y"),
        ],
        {"x": ["batch", 16, "seq", 16]},
        {"y": ["batch", 32, "seq", 64]},
        {"kernel": random_values(32, 16, 3, 3), "table": random_values(16, 64)},
    )
    text = "variants: [{name: portable}, {name: native, isa: host}]\n" + seq("buckets: [8, 16]")
    built = build_bucketed(bench, model, text)
    assert names_of_files(built) == {
        "portable.seq8": {"weights.bin", "portable.bin"},
        "portable.seq16": {"weights.bin", "portable.bin"},
        "native.seq8": {"weights.bin", "native.bin"},
        "native.seq16": {"weights.bin", "native.bin"},
    }


# -- packed weights


@pytest.mark.parametrize("prepack", ["saved", "off"])
def test_variants_answer_alike_however_weights_are_packed(bench: Workbench, prepack: str) -> None:
    text = f"variants: [{{name: portable}}, {{name: native, isa: host, prepack: {prepack}}}]\n"
    built = build_bucketed(bench, encoder(), text + seq("buckets: [8, 16], outside: pad"))
    native = [variant for variant in built.manifest.variants if variant.spec == "native"]
    entries = {
        pair.key.rstrip("0123456789")
        for variant in native
        for tensor in onnx.load(
            built.payload / variant.model, load_external_data=False
        ).graph.initializer
        for pair in tensor.external_data
    }
    assert ("prepacked_" in entries) == (prepack == "saved")
    off = {"session.disable_prepacking": "1"}.items()
    for variant in native:
        assert (off <= variant.session.config.items()) == (prepack == "off")
    plain = plain_session(built.source)
    model = bench.load(built, "native")
    for length in (1, 8, 13, 16):
        feeds = words(2, length, length)
        assert native[0].parity.tolerance is not None
        found = dict(model.run(feeds))
        assert_agree(plain_answer(plain, feeds), found, native[0].parity.tolerance)


# -- equal inputs give equal bytes

BUILD = """
import sys, aotc
model, profile, output, key = sys.argv[1:]
aotc.build(model, profile=profile, output=output, key=key)
"""


def test_builds_with_buckets_are_the_same_bytes(bench: Workbench) -> None:
    text = "variants: [{name: portable}, {name: native, isa: host, prepack: saved}]\n"
    wanted = profile(bench, text + seq("buckets: [8, 16], max: 32, outside: [pad, route]"))
    source = bench.save(encoder(), "source")
    payloads = []
    for seed, place in enumerate((bench.folder / "here", bench.folder / "far" / "away")):
        place.mkdir(parents=True)
        for path in (source, wanted):
            shutil.copy(path, place)
        files = [str(place / path.name) for path in (source, wanted)]
        output = place / f"out{seed}.aotc"
        subprocess.run(
            [sys.executable, "-c", BUILD, *files, str(output), str(bench.private)],
            cwd=place,
            env={**os.environ, "HOME": str(place), "PYTHONHASHSEED": str(seed)},
            check=True,
            timeout=600,
        )
        payload = output / "payload"
        payloads.append(
            {
                path.relative_to(payload).as_posix(): path.read_bytes()
                for path in payload.rglob("*")
                if path.is_file()
            }
        )
    one, other = payloads
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    assert sum(name.endswith("model.onnx") for name in one) == 6
