"""AOTC-C006."""

from __future__ import annotations

from aotc.spec.providers import BY_ORT_NAME
from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results

_FIX_NO_DEVICE = (
    "Load it on a machine that the plugin supports, or build it for this one without it."
)


class ExecutionProviders(Check):
    """The host's ONNX Runtime must have every execution provider and plugin of the variant.

    ONNX Runtime replaces a missing provider by the CPU with only a warning, so this is checked
    before a session is created.  A plugin must have the version that was proven.
    """

    code = "AOTC-C006"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Look up providers, then plugins by name and version."""
        if host.onnxruntime is None and host.probed:
            return ()  # AOTC-C005 reports it.
        results: Results = ()
        if host.providers is None:
            results += self.unchecked(
                f"execution providers {', '.join(requirements.providers)}", host
            )
        else:
            # For a provider of a missing plugin, the plugin is reported, with what installs it.
            have = {(plugin.name, plugin.version) for plugin in host.plugins}
            reported = {p.provider for p in requirements.plugins if (p.name, p.version) not in have}
            reported = reported if host.probed or host.plugins else set()
            for name in requirements.providers:
                idle = [plugin for plugin in host.plugins if plugin.provider == name]
                known = BY_ORT_NAME.get(name)
                if name not in host.providers and name not in reported and idle:
                    results += self.refuse(
                        "a plugin is installed, but offers no device on this machine",
                        expected=name,
                        found=" ".join(filter(None, (idle[0].name, idle[0].version))),
                        fix=(known.fix_idle if known else "") or _FIX_NO_DEVICE,
                    )
                elif name not in host.providers and name not in reported:
                    results += self.refuse(
                        "an execution provider is missing",
                        expected=name,
                        found=", ".join(host.providers) or "none",
                        fix=known.fix_missing if known else "",
                    )
        versions = {plugin.name: plugin.version for plugin in host.plugins}
        for plugin in requirements.plugins:
            version = versions.get(plugin.name)
            if version is None and not host.probed and not host.plugins:
                results += self.unchecked(f"plugin {plugin.name} {plugin.version}", host)
            elif version != plugin.version:
                results += self.refuse(
                    "an execution provider plugin is missing or of another version",
                    expected=f"{plugin.name} {plugin.version}",
                    found=f"{plugin.name} {version}" if version else "none",
                    fix=f'pip install "{plugin.name}=={plugin.version}"'
                    if plugin.version
                    else f"Set AOTC_PLUGINS={plugin.provider}=PATH to the plugin's library.",
                )
        return results
