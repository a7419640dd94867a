"""Counters in Prometheus' text format, parsed by Prometheus' own parser."""

from __future__ import annotations

import sys

import pytest

from aotc.base.errors import AotcError, install_extra
from aotc.runtime.telemetry import Telemetry, TelemetryCollector, prometheus_text


@pytest.fixture
def telemetry() -> Telemetry:
    made = Telemetry(["small", "large"])
    made.call(0.25, variant="small", cause="padded", given=6, added=2)
    made.call(0.5, ("seq",), variant="small", cause="outside", given=10)
    made.call(1.0, variant="large", cause="exact", given=30)
    made.reject("AOTC-R004", 'dim "seq"')
    return made


def test_every_counter_is_there(telemetry: Telemetry) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = prometheus_text({"toy": telemetry})
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }

    def value(name: str, **labels: str) -> float:
        return float(found[(name, *sorted({"model": "toy", **labels}.items()))])

    assert value("aotc_calls_total", variant="small", route="padded") == 1
    assert value("aotc_calls_total", variant="small", route="outside") == 1
    assert value("aotc_calls_total", variant="large", route="exact") == 1
    assert value("aotc_input_elements_total", variant="small") == 16
    assert value("aotc_padding_elements_total", variant="small") == 2
    assert value("aotc_padding_elements_total", variant="large") == 0
    assert value("aotc_call_seconds_count", variant="small") == 2
    assert value("aotc_call_seconds_sum", variant="small") == 0.75
    assert value("aotc_first_call_seconds", variant="small") == 0.25
    assert value("aotc_out_of_domain_total", dim="seq") == 1
    assert value("aotc_refusals_total", code="AOTC-R004", where='dim "seq"') == 1
    assert len(found) == 15


def test_it_can_be_registered(telemetry: Telemetry) -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    registry.register(TelemetryCollector({"toy": telemetry}))
    telemetry.call(1.0, variant="large")
    labels = {"model": "toy", "variant": "large", "route": "exact"}
    assert registry.get_sample_value("aotc_calls_total", labels) == 2


def test_without_the_extra_the_mend_is_told(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(AotcError) as caught:
        prometheus_text({"toy": telemetry})
    assert (caught.value.code, caught.value.fix) == ("AOTC-I019", install_extra("metrics"))
