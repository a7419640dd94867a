"""AOTC-C012."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class PluginLibrary(Check):
    """The host's plugin libraries must be those that the variant was compiled and proven with.

    A plugin library is the native code that computes the answers.  A library of the same name and
    version may have been replaced, so digests are compared.
    """

    code = "AOTC-C012"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the digests of plugins that the host has in the required version."""
        have = {(plugin.name, plugin.version): plugin for plugin in host.plugins}
        results: Results = ()
        for plugin in requirements.plugins:
            found = have.get((plugin.name, plugin.version))
            if plugin.sha256 is None or found is None:
                continue  # AOTC-C006 reports it.
            if found.sha256 is None:
                results += self.unchecked(f"the digest of plugin {plugin.name}", host)
            elif found.sha256 != plugin.sha256:
                results += self.refuse(
                    "the libraries of an execution provider plugin are not those of the build",
                    expected=f"{plugin.name} {plugin.sha256[:16]}",
                    found=found.sha256[:16],
                )
        return results
