"""Commands, one a file and one row here; the row's help is shown without importing the command."""

from __future__ import annotations

from typing import Final

from aotc.base.registry import Registry

_ROWS: Final = (
    ("init", "init", "Write a profile, a CI job and a .gitignore for a model."),
    ("build", "build", "Build a signed artifact from an ONNX model, and prove it."),
    ("verify", "verify", "Check an artifact's signature, digests and fit to a host."),
    ("inspect", "inspect", "Show what an artifact or a model contains, unverified."),
    ("diff", "diff", "Show what changed from one artifact to another."),
    ("run", "run", "Load an artifact and run it on files, or on its fixtures."),
    ("bench", "bench", "Measure an artifact, alone or against the plain model or a baseline."),
    ("debug", "debug", "Find where an artifact differs from the model that it was built from."),
    (
        "check-models",
        "check_models",
        "Build every model of a folder, and report each outcome.",
    ),
    ("profile", "profile", "List, show, check and learn build profiles."),
    ("target", "target", "List and show targets; describe this host."),
    ("cache", "cache", "List, prune and clear the build cache."),
    ("install", "install", "Verify an artifact into a store, for later loads."),
    ("store", "store", "List, prune and remove what is in a store."),
    ("pack", "pack", "Pack an artifact into one file."),
    ("unpack", "unpack", "Unpack an artifact into a folder."),
    ("sign", "sign", "Add a further signature to an artifact."),
    ("attest", "attest", "Approve an artifact for a channel, or qualify it on this host."),
    ("trust", "trust", "Make, sign, check and explain trust policies."),
    ("keygen", "keygen", "Make a signing key."),
    ("explain", "explain", "Explain a reason code."),
    ("config", "config", "Show the defaults that aotc.yaml sets, and where each comes from."),
    ("completion", "completion", "Print the script that completes aotc in a shell."),
    ("doctor", "doctor", "Check this installation and this host."),
)

COMMANDS: Final = Registry(
    "command", tuple((name, f"aotc.cli.commands.{module}:app") for name, module, _ in _ROWS)
)
HELP: Final = {name: text for name, _, text in _ROWS}
