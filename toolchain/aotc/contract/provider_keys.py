"""Provider options that an artifact may ask for: they change how a provider computes.

Some options of ONNX Runtime's providers name libraries to load, or files to write.  So for a
provider with a backend, an artifact may have the options that the backend writes, and for a plugin
of the user, any option whose value does not name another file.
"""

from __future__ import annotations

import re

from aotc.contract.codec.parsing import Json, ParseError
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.known_providers import BY_ORT_NAME, DeviceProperties

# The folder of the variant's weights, or a file in it.
_IN_WEIGHTS = re.compile(r"\$\{weights\}(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_PATH_PART = re.compile(r"[/\\\x00]|\$\{|\A\.{1,2}\Z")


def option_problem(provider: str, key: str, value: str, *, plugin: bool) -> str:
    """Why an artifact must not have a provider option, as a phrase; empty if it may.

    `plugin` says that the variant gets the provider from a plugin.
    """
    known = BY_ORT_NAME.get(provider)
    if known is None and not plugin:
        return f"is an option of {provider}, which is neither known nor a plugin"
    if known is None:
        return _value_problem(value)
    if key not in known.options:
        return "is an option that an artifact must not have"
    form = known.options[key]
    return _value_problem(value) if form is None else _config_problem(value, form)


def _value_problem(value: str) -> str:
    if _IN_WEIGHTS.fullmatch(value) or not _PATH_PART.search(value):
        return ""
    return "names a path outside ${weights}/, which an option must not do"


def _config_problem(text: str, form: DeviceProperties) -> str:
    try:
        config: Json = strict_json(text.encode("utf-8"), limit=1 << 16)
    except ParseError as error:
        return f"is not a configuration of {form.software}: {error.problems[0]}"
    if (
        not isinstance(config, dict)
        or set(config) != {form.device}
        or not isinstance(config[form.device], dict)
    ):
        return f"is not a configuration of {form.software}'s {form.device} device only"
    for name, value in config[form.device].items():
        if name not in form.properties:
            return f"holds {name!r}, a property that an artifact must not have"
        if not isinstance(value, str | int):
            return f"holds {name!r}, which is neither text nor an integer"
        if isinstance(value, str) and (problem := _value_problem(value)):
            return f"holds {name!r}, which {problem}"
    return ""
