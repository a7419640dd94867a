"""Manifests that a stranger, or a registry, wrote for what somebody else signed.

All referrers are there as well, so that the signature is good: what is refused is refused for what
the manifest says, with a code of its own, and nothing is in the store.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shops import Shop, as_before, shop

import aotc
from aotc.base.errors import AotcError

Json = Any
FILEPATH, TITLE = "org.cncf.model.filepath", "org.opencontainers.image.title"
RAW = "application/vnd.cncf.model.weight.v1.raw"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture
def made(opened: Shop, tmp_path: Path) -> Iterator[Shop]:
    with as_before(opened, tmp_path) as restored:
        yield restored


def raw(manifest: Json) -> Json:
    """The layer that is one file."""
    return next(layer for layer in manifest["layers"] if layer["mediaType"].endswith(".raw"))


def tarred(manifest: Json) -> Json:
    """The layer of small files."""
    return next(layer for layer in manifest["layers"] if layer["mediaType"].endswith(".tar"))


def path_of(path: str) -> Callable[[Json], object]:
    return lambda manifest: raw(manifest).update(annotations={FILEPATH: path, TITLE: path})


def of_layer(**fields: Any) -> Callable[[Json], object]:
    return lambda manifest: raw(manifest).update(fields)


# Of each: what is changed, and the code that says so.
ROWS: dict[str, tuple[Callable[[Json], object], str]] = {
    "a foreign layer": (
        lambda manifest: raw(manifest).update(
            mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
            urls=["http://127.0.0.1:1/elsewhere"],
        ),
        "AOTC-I211",
    ),
    "a layer that is fetched elsewhere": (
        of_layer(urls=["http://127.0.0.1:1/elsewhere"]),
        "AOTC-I211",
    ),
    "a layer of an unknown type": (of_layer(mediaType="application/x-new"), "AOTC-I211"),
    "a layer compressed by zstd": (
        of_layer(mediaType="application/vnd.cncf.model.weight.v1.tar+zstd"),
        "AOTC-I211",
    ),
    "a layer compressed by gzip": (
        of_layer(mediaType="application/vnd.oci.image.layer.v1.tar+gzip"),
        "AOTC-I211",
    ),
    "twenty thousand layers": (
        lambda manifest: manifest["layers"].extend(
            {**raw(manifest), "annotations": {FILEPATH: f"p/{number}"}} for number in range(20_000)
        ),
        "AOTC-I206",
    ),
    "two layers of one path": (
        lambda manifest: manifest["layers"].append(dict(raw(manifest))),
        "AOTC-I213",
    ),
    "two paths that differ by case": (
        lambda manifest: manifest["layers"].append(
            {
                **raw(manifest),
                "annotations": {
                    FILEPATH: raw(manifest)["annotations"][FILEPATH].replace("weights", "Weights")
                },
            }
        ),
        "AOTC-I213",
    ),
    "a path out of the folder": (path_of("../../outside.bin"), "AOTC-I213"),
    "a path from the root": (path_of("/etc/outside.bin"), "AOTC-I213"),
    "a path out of the folder, later": (path_of("payload/../../outside.bin"), "AOTC-I213"),
    "a path that Windows reads otherwise": (path_of("payload\\..\\..\\outside.bin"), "AOTC-I213"),
    "an empty path": (path_of(""), "AOTC-I213"),
    "a path with a NUL": (path_of("payload/a\0b"), "AOTC-I213"),
    "a path of many levels": (path_of("/".join(["payload", *"abcdefghijklmnop"])), "AOTC-G012"),
    "a layer without a path": (lambda manifest: raw(manifest).pop("annotations"), "AOTC-I213"),
    "annotations that are no texts": (of_layer(annotations={FILEPATH: 1}), "AOTC-I207"),
    "a size that is too large": (lambda m: raw(m).update(size=raw(m)["size"] + 1), "AOTC-I205"),
    "a size that is too small": (lambda m: raw(m).update(size=raw(m)["size"] - 1), "AOTC-I205"),
    "a size of petabytes": (of_layer(size=1 << 60), "AOTC-I207"),
    "a negative size": (of_layer(size=-1), "AOTC-I207"),
    "a size that is text": (of_layer(size="300000"), "AOTC-I207"),
    "another digest": (lambda m: raw(m).update(digest=tarred(m)["digest"]), "AOTC-I205"),
    "a digest of nothing": (of_layer(digest="sha256:" + "0" * 64), "AOTC-I201"),
    "a digest of a weak hash": (of_layer(digest="md5:" + "0" * 32), "AOTC-I207"),
    "a digest that is a path": (of_layer(digest="sha256:../../../blobs/x"), "AOTC-I207"),
    "no layers": (lambda manifest: manifest.update(layers=[]), "AOTC-G015"),
    "a file too few": (lambda manifest: manifest["layers"].remove(raw(manifest)), "AOTC-G006"),
    "a file too many": (
        lambda manifest: manifest["layers"].append(
            {**raw(manifest), "annotations": {FILEPATH: "payload/more.bin"}}
        ),
        "AOTC-G007",
    ),
    "another artifact type": (
        lambda manifest: manifest.update(artifactType="application/vnd.example+json"),
        "AOTC-I210",
    ),
    "an index": (
        lambda manifest: json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [],
            }
        ).encode(),
        "AOTC-I210",
    ),
    "no JSON": (lambda manifest: b"<html>", "AOTC-I207"),
    "a list": (lambda manifest: b"[]", "AOTC-I207"),
    "nested without end": (lambda manifest: b'{"layers":' * 50_000, "AOTC-I207"),
    "one name twice": (
        lambda manifest: json.dumps(manifest).encode()[:-1] + b',"layers":[]}',
        "AOTC-I207",
    ),
    "more than 4 MiB": (
        lambda manifest: manifest.update(annotations={"a": "x" * 5_000_000}),
        "AOTC-I206",
    ),
}


def verified(made: Shop) -> set[str]:
    """The codes with which verify refuses, or that with which it gives up."""
    try:
        report = aotc.verify(made.reference("bad"), key=made.public)
    except AotcError as error:
        return {error.code}
    assert not report.authentic
    return {refusal.code for refusal in report.refusals}


@pytest.mark.parametrize("row", ROWS)
def test_a_manifest_is_refused(made: Shop, row: str) -> None:
    change, code = ROWS[row]
    made.rewritten(change)
    error = made.refused()
    assert error.code == code, error
    assert code in verified(made)


# Of each: the members of the tar of small files in place of its own, and the code.
def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def retarred(made: Shop, *more: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The tar of small files with some more members."""
    old = made.registry.blobs[tarred(made.manifest())["digest"]]
    written = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(old)) as source,
        tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for info in source:
            target.addfile(info, source.extractfile(info) if info.isfile() else None)
        for info, content in more:
            target.addfile(info, io.BytesIO(content))
    return written.getvalue()


TARS: dict[str, tuple[tuple[tarfile.TarInfo, bytes], str]] = {
    "a path out of the folder": (member("../../outside", b"x"), "AOTC-I214"),
    "a path from the root": (member("/etc/outside", b"x"), "AOTC-I214"),
    "a symbolic link": (
        member("payload/l", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "AOTC-I214",
    ),
    "a hard link": (
        member("payload/l", type=tarfile.LNKTYPE, linkname="payload/aotc.json"),
        "AOTC-I214",
    ),
    "a device": (member("payload/d", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "AOTC-I214"),
    "a pipe": (member("payload/p", type=tarfile.FIFOTYPE), "AOTC-I214"),
    "a file twice": (member("payload/aotc.json", b"{}"), "AOTC-I214"),
    "a file that nobody signed": (member("payload/more.json", b"{}"), "AOTC-I214"),
}


@pytest.mark.parametrize("row", TARS)
def test_a_tar_is_refused(made: Shop, row: str) -> None:
    entry, code = TARS[row]
    blob = made.add_blob(retarred(made, entry))
    made.rewritten(lambda manifest: tarred(manifest).update(blob))
    assert made.refused().code == code


@pytest.mark.parametrize("cut", [1, 512, 1024, -1])
def test_a_tar_that_ends_early_is_refused(made: Shop, cut: int) -> None:
    blob = made.add_blob(made.registry.blobs[tarred(made.manifest())["digest"]][:cut])
    made.rewritten(lambda manifest: tarred(manifest).update(blob))
    assert made.refused().code == "AOTC-I214"


@pytest.mark.parametrize(("kind", "code"), [(raw, "AOTC-G005"), (tarred, "AOTC-I214")])
def test_a_bomb_is_not_opened(made: Shop, kind: Callable[[Json], Json], code: str) -> None:
    """10 MB of zeros in 10 kB, under a type that says that it is compressed, or does not."""
    blob = made.add_blob(gzip.compress(bytes(10_000_000)))
    made.rewritten(lambda manifest: kind(manifest).update(blob))
    assert made.refused().code == code
