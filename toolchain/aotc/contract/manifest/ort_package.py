"""What ORT's manifest.json states about a variant: the build writes it, the gate requires it."""

from __future__ import annotations

from aotc.contract.known_providers import GRAPH_OPTION
from aotc.contract.manifest.variant import Variant

LEVEL_OPTION = "session.graph_optimization_level"
WEIGHTS_OPTION = "session.model_external_initializers_file_folder_path"
# Our names of the optimization levels, and those of ONNX Runtime's model packages.
_LEVELS = {
    "disable": "disable_all",
    "basic": "enable_basic",
    "extended": "enable_extended",
    "layout": "enable_layout",
    "all": "enable_all",
}


def provider_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.provider_options`: the options of the variant's first provider.

    Empty if an option names the folder of the weights, which ORT's manifest cannot express.  Only
    `aotc.load` can load such a variant; other applications of ORT fail to load its compiled parts.
    Without captured CUDA graphs: an application that does not name one for each size would get the
    answers of another size.
    """
    first = variant.providers[0] if variant.providers else ""
    stated = variant.session.provider_options.get(first, {})
    if any("${" in value for value in stated.values()):
        return {}
    return {key: value for key, value in stated.items() if key != GRAPH_OPTION}


def session_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.session_options`: level, config, and the URI of the shared weights."""
    options = {LEVEL_OPTION: _LEVELS[variant.session.optimization], **variant.session.config}
    if variant.weights is not None:
        options[WEIGHTS_OPTION] = variant.weights.rpartition("/")[2].replace(
            "sha256-", "sha256:", 1
        )
    return options
