"""Provider options that an artifact may ask for: they change how a provider computes.

Some options of ONNX Runtime's providers name libraries, which are then loaded, or places to write
to.  So of the providers that have a backend here an artifact may have what the backend writes, and
of a plugin of the user's own whatever leads to no other file.
"""

from __future__ import annotations

import re

from aotc.contract.codec.parsing import Json, ParseError
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.known_providers import BY_ORT_NAME, DeviceProperties

# The folder of the variant's weights, or a file of it.
_IN_WEIGHTS = re.compile(r"\$\{weights\}(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_ELSEWHERE = re.compile(r"[/\\\x00]|\$\{|\A\.{1,2}\Z")


def option_problem(provider: str, key: str, value: str, *, plugin: bool) -> str:
    """Why no artifact may have a provider option; empty where one may.

    `plugin`: the provider is one that the variant needs a plugin for.
    """
    known = BY_ORT_NAME.get(provider)
    if known is None and not plugin:
        return f"is an option of {provider}, which is neither known nor a plugin"
    if known is None:
        return _value_problem(value)
    if key not in known.options:
        return "is an option that no artifact may have"
    form = known.options[key]
    return _value_problem(value) if form is None else _config_problem(value, form)


def _value_problem(value: str) -> str:
    if _IN_WEIGHTS.fullmatch(value) or not _ELSEWHERE.search(value):
        return ""
    return "names a path, which an option may do in ${weights}/ alone"


def _config_problem(text: str, form: DeviceProperties) -> str:
    try:
        config: Json = strict_json(text.encode("utf-8"), limit=1 << 16)
    except ParseError as error:
        return f"is no configuration of {form.software}: {error.problems[0]}"
    if (
        not isinstance(config, dict)
        or set(config) != {form.device}
        or not isinstance(config[form.device], dict)
    ):
        return f"is no configuration of {form.software}'s {form.device} device alone"
    for name, value in config[form.device].items():
        if name not in form.properties:
            return f"holds {name!r}, a property that no artifact may have"
        if not isinstance(value, str | int):
            return f"holds {name!r}, which is neither text nor a whole number"
        if isinstance(value, str) and (problem := _value_problem(value)):
            return f"holds {name!r}, which {problem}"
    return ""
