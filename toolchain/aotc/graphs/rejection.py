"""Maps ONNX Runtime's messages to reason codes.

ONNX Runtime has one exception class per status; the rest is English text.  The phrases here were
seen with 1.31.  Any other message is kept under the code that the caller gives.
"""

from __future__ import annotations

import re

from aotc.engine.session import TEXT_NOT_UTF8, ort_message, ort_text
from aotc.errors import AotcError

_MEMORY = r"bad_alloc|Failed to allocate memory|bad allocation|out of memory"
_KERNEL_FIX = (
    "Answers to compare with come from that provider. If the model computes in bfloat16 or float16,"
    " export it in float32, and let `precision` of the profile say in which to build."
)
# A pattern, the code, what is wrong, and the fix where it is not the code's own.
_RULES: tuple[tuple[str, str, str, str], ...] = (
    (r"Unsupported model IR version", "AOTC-I016",
     "the IR version is newer than ONNX Runtime's", ""),
    (r"is under development and support for this is limited|only \*guarantees\* support for models",
     "AOTC-I008", "the opset is newer than ONNX Runtime supports", ""),
    (r"Could not find an implementation for|Failed to find kernel", "AOTC-I009",
     "ONNX Runtime's CPU provider has no kernel of an operator, or none for these types",
     _KERNEL_FIX),
    (r"is not a registered function/op|No Op registered for|NOT_IMPLEMENTED|NotImplemented|"
     r"No opset registered|No opset import for domain",
     "AOTC-I009", "ONNX Runtime has no such operator or kernel", ""),
    (_MEMORY, "AOTC-I015", "ONNX Runtime could not allocate memory", ""),
    (r"No space left on device", "AOTC-I018", "ONNX Runtime could not write a file", ""),
)  # fmt: skip


def out_of_memory(message: str) -> bool:
    """Whether ONNX Runtime's message says that it could not allocate memory."""
    return re.search(_MEMORY, message) is not None


def refuse_text(error: AotcError, where: str) -> None:
    """Raise AOTC-I002 if a run failed because of text in an output, which no size can fix."""
    if error.what == TEXT_NOT_UTF8:
        raise AotcError(
            "AOTC-I002",
            error.what,
            where=where,
            found=error.found,
            fix="Export the model with its text values in UTF-8.",
        ) from None


def rejection(error: Exception, default_code: str, what: str, *, where: str = "") -> AotcError:
    """The refusal for an exception of ONNX Runtime; `default_code` is for unknown messages."""
    text = ort_text(error)
    for pattern, code, phrase, fix in _RULES:
        if re.search(pattern, text):
            return AotcError(code, phrase, where=where, found=ort_message(error), fix=fix)
    return AotcError(default_code, what, where=where, found=ort_message(error))
