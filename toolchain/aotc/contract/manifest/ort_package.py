"""What ORT's manifest.json must say of a variant: written by the build, demanded by the gate."""

from __future__ import annotations

from aotc.contract.manifest.variant import Variant

LEVEL_OPTION = "session.graph_optimization_level"
WEIGHTS_OPTION = "session.model_external_initializers_file_folder_path"
# Session config values of ONNX Runtime's model packages for our names of the levels.
_LEVELS = {
    "disable": "disable_all",
    "basic": "enable_basic",
    "extended": "enable_extended",
    "layout": "enable_layout",
    "all": "enable_all",
}


def provider_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.provider_options`, of the variant's first provider.

    Empty where an option names the folder of the weights, which ORT's manifest cannot: such a
    variant is for `aotc.load`, and an ORT application fails to load its compiled parts.
    """
    first = variant.providers[0] if variant.providers else ""
    stated = variant.session.provider_options.get(first, {})
    return {} if any("${" in value for value in stated.values()) else dict(stated)


def session_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.session_options`: level, config, and the shared weights by their URI."""
    options = {LEVEL_OPTION: _LEVELS[variant.session.optimization], **variant.session.config}
    if variant.weights is not None:
        options[WEIGHTS_OPTION] = variant.weights.rpartition("/")[2].replace(
            "sha256-", "sha256:", 1
        )
    return options
