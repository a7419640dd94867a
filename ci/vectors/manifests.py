"""Variants of aotc.json with the other files of a payload, all of them signed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vectors.collection import Vectors
from vectors.payloads import (
    MODEL_FILE,
    PACKAGE,
    manifest_of,
    on_device,
    package_of,
    part_outside,
    weights_outside,
)
from vectors.signing import MODEL
from vectors.values import Json, changed, json_text, put, sha256


def manifests(out: Vectors) -> None:
    """Variants of aotc.json for the other files of `payload`."""
    good = _payload(out, "payload", MODEL, {})

    def newer(manifest: Json) -> None:
        manifest.update(schema="aotc.manifest/1.9", colour="red")

    out.add("valid", "manifest", "manifest", "", "the minimal manifest", json_text(good))
    out.add(
        "valid",
        "manifest-newer-minor",
        "manifest",
        "AOTC-G017",
        "a newer minor version: unknown fields are ignored, and that is a finding",
        json_text(changed(good, newer)),
    )
    for name, code, why, change in _BAD_MANIFESTS:
        data = json_text(changed(good, change))
        out.add("invalid-payload", name, "manifest", f"AOTC-{code}", why, data)
    text = json_text(good)
    size = f'"size": {len(MODEL)}'.encode()
    for name, why, data in (
        ("manifest-nan", "NaN is not JSON", text.replace(size, b'"size": NaN', 1)),
        (
            "manifest-huge-integer",
            "beyond 2^53 - 1",
            text.replace(size, b'"size": 9007199254740993', 1),
        ),
        ("manifest-duplicate-key", "ambiguous", b'{"name": "other",' + text[1:]),
        ("manifest-cut", "the end is missing", text[:-3]),
        (
            "manifest-lone-surrogate",
            "half of a surrogate pair: readers differ in what they make of it",
            text.replace(b'"vector"', b'"vector\\ud800"', 1),
        ),
    ):
        out.add("invalid-payload", name, "manifest", "AOTC-G009", why, data)


def other_payloads(out: Vectors) -> None:
    """A correct aotc.json with a bad payload."""
    for name, why, model, options in (
        (
            "weights-outside",
            "the model's weights lie in a file that was not signed",
            weights_outside(),
            {},
        ),
        (
            "part-outside",
            "a compiled part of the model lies in a file that was not signed",
            part_outside(),
            {},
        ),
        (
            "session-option",
            "a session option that names a folder, which no artifact may have",
            MODEL,
            {"session.model_external_initializers_file_folder_path": "/tmp"},
        ),
        (
            "context-option",
            "a session option that has ONNX Runtime write a compiled model",
            MODEL,
            {"ep.context_enable": "1"},
        ),
    ):
        folder = f"payload-{name}"
        data = json_text(_payload(out, folder, model, options))
        file = f"manifest-{name}"
        out.add("invalid-payload", file, "manifest", "AOTC-G014", why, data, payload=folder)
    folder = "payload-other-device"
    good = _payload(out, folder, MODEL, {})
    package = out.files[f"{folder}/{PACKAGE}"] = on_device(out.files[f"{folder}/{PACKAGE}"], "gpu")
    put(good, "files", 0, "sha256", to=sha256(package))
    put(good, "files", 0, "size", to=len(package))
    out.add(
        "invalid-payload",
        "manifest-other-device",
        "manifest",
        "AOTC-G014",
        "manifest.json is for another device than aotc.json",
        json_text(good),
        payload=folder,
    )


def _payload(
    out: Vectors, folder: str, model: bytes, options: Mapping[str, str]
) -> dict[str, Json]:
    """Add a payload in its own folder; its aotc.json."""
    out.files[f"{folder}/{PACKAGE}"] = package_of(options)
    out.files[f"{folder}/{MODEL_FILE}"] = model
    return manifest_of(model, options)


def _fixture(name: str, manifest: Json) -> Json:
    """A fixture that is correct except for its name."""
    tensors = [{"name": "x", "path": manifest["files"][1]["path"]}]
    return {"name": name, "origin": "generated", "inputs": tensors, "outputs": tensors}


_BAD_MANIFESTS: tuple[tuple[str, str, str, Callable[[Json], object]], ...] = (
    (
        "manifest-unknown-feature",
        "G011",
        "a reader must understand it, and this one does not",
        lambda m: m.update(required_features=["shape-routing", "from-the-future"]),
    ),
    (
        "manifest-newer-minor-unknown-feature",
        "G011",
        "a newer minor version does not excuse it",
        lambda m: m.update(schema="aotc.manifest/1.9", required_features=["from-the-future"]),
    ),
    (
        "manifest-other-major",
        "G010",
        "another major version",
        lambda m: m.update(schema="aotc.manifest/2.0"),
    ),
    (
        "manifest-major-alone",
        "G010",
        "another major version, which may have no minor one",
        lambda m: m.update(schema="aotc.manifest/2"),
    ),
    (
        "manifest-newer-in-every-way",
        "G010",
        "a later major version may have any fields: only its version is reported",
        lambda m: (m.clear(), m.update(schema="aotc.manifest/2.0", variants="elsewhere")),
    ),
    (
        "manifest-other-schema",
        "G009",
        "not a manifest",
        lambda m: m.update(schema="aotc.profile/1"),
    ),
    ("manifest-unknown-field", "G009", "unknown in this version", lambda m: m.update(colour="red")),
    (
        "manifest-negative-size",
        "G009",
        "a size below 0",
        lambda m: put(m, "files", 1, "size", to=-1),
    ),
    (
        "manifest-size-true",
        "G009",
        "true is not a number",
        lambda m: put(m, "files", 1, "size", to=True),
    ),
    (
        "manifest-parent-path",
        "G009",
        "a file outside of the payload",
        lambda m: put(m, "files", 1, "path", to="model/../../model.onnx"),
    ),
    (
        "manifest-absolute-path",
        "G009",
        "a file outside of the payload",
        lambda m: put(m, "files", 1, "path", to="/model/portable/model.onnx"),
    ),
    (
        "manifest-control-character",
        "G009",
        "a path with a NUL",
        lambda m: put(m, "files", 1, "path", to="model/portable/model.onnx\0"),
    ),
    (
        "manifest-model-outside",
        "G009",
        "a variant's model outside of the payload",
        lambda m: put(m, "variants", 0, "model", to="../model.onnx"),
    ),
    *(
        (
            f"manifest-fixture-{which}",
            "G009",
            f"the name of a fixture, {why}: it may name a folder",
            lambda m, name=name: m.update(fixtures=[_fixture(name, m)]),
        )
        for which, name, why in (
            ("outside", "../../../etc", "a path outward"),
            ("absolute", "/etc", "an absolute path"),
            ("hidden", ".ssh", "with a dot"),
            ("line-break", "opt\nVERIFIED, optimal", "with a line break"),
        )
    ),
    (
        "manifest-fixture-twice",
        "G009",
        "two fixtures of one name",
        lambda m: m.update(fixtures=[_fixture("opt", m)] * 2),
    ),
    ("manifest-not-sorted", "G009", "files have one order", lambda m: m["files"].reverse()),
    (
        "manifest-file-twice",
        "G009",
        "a file is listed twice",
        lambda m: m["files"].append(dict(m["files"][1])),
    ),
    ("manifest-no-variants", "G009", "nothing that could be run", lambda m: m.update(variants=[])),
    (
        "manifest-short-digest",
        "G009",
        "a digest of 63 digits",
        lambda m: put(m, "files", 1, "sha256", to=m["files"][1]["sha256"][1:]),
    ),
    (
        "manifest-other-digest",
        "G014",
        "another digest than the signature's",
        lambda m: put(m, "files", 1, "sha256", to=sha256(b"")),
    ),
    (
        "manifest-more-optimization",
        "G014",
        "manifest.json would run it otherwise",
        lambda m: put(m, "variants", 0, "session", "optimization", to="basic"),
    ),
)
