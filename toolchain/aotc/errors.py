"""The error that every refusal is, for those who import it from a module of this name."""

from __future__ import annotations

from aotc.base.errors import AotcError

__all__ = ["AotcError"]
