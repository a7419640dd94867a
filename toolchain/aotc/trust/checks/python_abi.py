"""AOTC-C022."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class PythonAbi(Check):
    """A library of custom operators that calls Python needs the Python that it was built for.

    Another one may lay its objects out otherwise, and the process would crash or compute nonsense.
    """

    code = "AOTC-C022"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the names of the ABI."""
        results: Results = ()
        for library in requirements.custom_ops:
            if not library.python or library.python == host.python:
                continue
            if host.python is None:
                results += self.unchecked(f"the Python that {library.name} is for", host)
                continue
            results += self.refuse(
                f"the library of custom operators {library.name} is for another Python",
                expected=library.python,
                found=host.python,
            )
        return results
