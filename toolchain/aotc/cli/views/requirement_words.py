"""What a host must have to run a variant, for the terminal."""

from __future__ import annotations

from typing import Final

from aotc.cli.render import listed
from aotc.contract.codec.parsing import encode
from aotc.contract.manifest.requirements import Requirements

# Fields that have words of their own, or are shown with providers; others go by their names.
_WORDED: Final = frozenset(
    {
        *("os", "architecture", "libc", "isa", "isa_exact", "onnxruntime_min", "onnxruntime_below"),
        *("providers", "plugins", "compatibility"),
        *("nvidia_driver_min", "cuda_major", "compute_capabilities"),
    }
)


def requirements_in_words(needs: Requirements) -> str:
    """What is required, one after the other."""
    parts = [f"{needs.os} {needs.architecture}"]
    if needs.libc is not None:
        parts.append(f"{needs.libc.name} >= {needs.libc.version}")
    parts.append(f"ONNX Runtime >= {needs.onnxruntime_min}, < {needs.onnxruntime_below}")
    if needs.isa:
        exactly = "exactly " if needs.isa_exact else ""
        parts.append(f"a CPU with {exactly}{listed(needs.isa)}")
    elif needs.isa_exact:
        parts.append("a CPU of the baseline")
    parts += [f"{plugin.name} {plugin.version}" for plugin in needs.plugins]
    if needs.nvidia_driver_min:
        parts.append(f"NVIDIA driver >= {needs.nvidia_driver_min}")
    if needs.compute_capabilities:
        parts.append(f"compute capability {' or '.join(needs.compute_capabilities)}")
    for name, value in encode(needs).items():
        if name not in _WORDED:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)
