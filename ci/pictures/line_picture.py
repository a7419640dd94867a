"""From a model to answers: what a build host does, what travels, what a deploy host does."""

from __future__ import annotations

from canvas import Canvas

from aotc.base.codes import REASONS

_REFUSAL = "AOTC-G005"


def draw() -> str:
    """The picture as SVG."""
    refused = REASONS[_REFUSAL].title
    canvas = Canvas(
        1000,
        330,
        "From an ONNX model to answers, by way of a signed artifact",
        "On the build host, aotc build imports a model, finds the sizes at which it runs, "
        "optimizes and compiles it, compares its answers with the original's, and signs the "
        "result. The signed artifact travels. On the deploy host, aotc verify checks signature, "
        "digests, policy and host, and aotc.load checks placement and golden answers before "
        f"anything runs. What fails is refused with a code, such as {_REFUSAL}: {refused}.",
    )
    canvas.box("lane", (16, 16, 400, 298))
    canvas.box("lane", (576, 16, 408, 298))
    canvas.text((32, 40), "Build host")
    canvas.text((592, 40), "Deploy host: no compiler, no onnx")

    model = canvas.box("thing", (32, 60, 138, 64), "Model", ("model.onnx",), code=True)
    build = canvas.box(
        "step",
        (206, 60, 194, 176),
        "aotc build",
        (
            "import, in a sandbox",
            "find the sizes that run",
            "optimize and compile",
            "compare the answers",
            "package, byte for byte",
            "sign",
        ),
    )
    profile = canvas.box("thing", (32, 152, 138, 84), "Profile", ("variants, sizes,", "budgets"))
    artifact = canvas.box(
        "signed",
        (440, 60, 112, 176),
        "Artifact",
        ("graphs", "weights", "golden data", "signature", "provenance", "evidence"),
    )
    verify = canvas.box(
        "step",
        (592, 60, 176, 130),
        "aotc verify",
        ("who signed it", "every byte", "the trust policy", "fit to this host"),
    )
    load = canvas.box(
        "step",
        (808, 60, 160, 130),
        "aotc.load",
        ("from its own store", "placement as built", "golden answers", "guards each call"),
    )
    refusal = canvas.box(
        "refused",
        (592, 238, 376, 62),
        "",
        (f"{_REFUSAL}: {refused}", "what, where, expected, found, and how to fix it"),
    )
    canvas.arrow(model.right, (build.x, model.right[1]))
    canvas.arrow(profile.right, (build.x, profile.right[1]))
    middle = verify.left[1]
    canvas.arrow((build.right[0], middle), (artifact.x, middle))
    canvas.arrow((artifact.right[0], middle), verify.left)
    canvas.arrow(verify.right, load.left, label="yes", style="good")
    for box in (verify, load):
        canvas.arrow(box.bottom, (box.bottom[0], refusal.y), label="no", style="bad")
    return canvas.svg()
