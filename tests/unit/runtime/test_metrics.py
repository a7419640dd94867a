"""Metrics of loads and calls, parsed by Prometheus' own parser."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotc.base.errors import AotcError, install_extra
from aotc.runtime import reporting
from aotc.runtime.listener import LATENCY_BUCKETS, Call, Listener, LoadedModel, LoadedVariant
from aotc.runtime.prometheus import PrometheusMetrics
from aotc.runtime.reporting import Load
from aotc.runtime.telemetry import Telemetry

client = pytest.importorskip("prometheus_client")
ARTIFACT = "ab" * 32


def loaded_model(name: str = "toy", buckets: tuple[float, ...] = ()) -> LoadedModel:
    small = LoadedVariant("small", "NimbusExecutionProvider", "float16", {"Nimbus": 5}, 0, ())
    nodes = {"CPUExecutionProvider": 3, "Nimbus": 2}
    large = LoadedVariant("large", "NimbusExecutionProvider", "keep", nodes, 3, ("placement",))
    return LoadedModel(name, ARTIFACT, "1.4.0", "degraded", [small, large], buckets)


@pytest.fixture
def metrics() -> Iterator[PrometheusMetrics]:
    made = PrometheusMetrics(registry=None)
    yield made
    made.close()


@pytest.fixture
def telemetry(metrics: PrometheusMetrics) -> Telemetry:
    made = Telemetry(["small", "large"])
    made.begin(loaded_model())
    return made


def samples(text: str) -> dict[tuple[object, ...], float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def sample(name: str, **labels: str) -> tuple[object, ...]:
    return (name, *sorted({"model": "toy", **labels}.items()))


def test_every_metric_is_there(metrics: PrometheusMetrics, telemetry: Telemetry) -> None:
    with Load("toy.aotc", None) as load:
        with load.stage("verify"):
            pass
        load.done(loaded_model())
    with pytest.raises(AotcError), Load("folder/toy.aotc", None):
        raise AotcError("AOTC-G005", "changed")
    telemetry.change(ready=True)
    telemetry.call(0.25, variant="small", cause="padded", given=6, added=2)
    telemetry.call(0.5, ("seq",), variant="small", cause="outside", given=10, missed_graph=True)
    telemetry.call(1.0, variant="large", cause="exact", given=30, copied=(120, 40))
    telemetry.time_copies("large", 160, 0.125)
    telemetry.lack_memory("AOTC-R057", "large")
    telemetry.reject("AOTC-R004", 'dim "seq"')
    telemetry.capture("small")
    found = samples(metrics.text())
    info = {"artifact": ARTIFACT, "version": "1.4.0", "verdict": "degraded"}
    nimbus = "NimbusExecutionProvider"
    wanted = {
        sample("aotc_calls_total", variant="small", route="padded"): 1,
        sample("aotc_calls_total", variant="small", route="outside"): 1,
        sample("aotc_calls_total", variant="large", route="exact"): 1,
        sample("aotc_refusals_total", code="AOTC-R004", where='dim "seq"'): 1,
        sample("aotc_out_of_domain_total", dim="seq"): 1,
        sample("aotc_input_elements_total", variant="small"): 16,
        sample("aotc_input_elements_total", variant="large"): 30,
        sample("aotc_padding_elements_total", variant="small"): 2,
        sample("aotc_padding_elements_total", variant="large"): 0,
        sample("aotc_fallbacks_total", variant="small", reason="graph"): 1,
        sample("aotc_fallbacks_total", variant="large", reason="placement"): 1,
        sample("aotc_captures_total", variant="small"): 1,
        sample("aotc_memory_failures_total", variant="large", code="AOTC-R057"): 1,
        sample("aotc_transfer_bytes_total", variant="large", direction="to"): 120,
        sample("aotc_transfer_bytes_total", variant="large", direction="from"): 40,
        sample("aotc_timed_transfer_bytes_total", variant="large"): 160,
        sample("aotc_timed_transfer_seconds_total", variant="large"): 0.125,
        sample("aotc_loads_total"): 1,
        sample("aotc_load_failures_total", code="AOTC-G005"): 1,
        sample("aotc_models_loaded"): 1,
        sample("aotc_models_ready"): 1,
        sample("aotc_nodes", variant="small", provider="Nimbus"): 5,
        sample("aotc_nodes", variant="large", provider="Nimbus"): 2,
        sample("aotc_nodes", variant="large", provider="CPUExecutionProvider"): 3,
        sample("aotc_nodes_misplaced", variant="small"): 0,
        sample("aotc_nodes_misplaced", variant="large"): 3,
        sample("aotc_first_call_seconds", variant="small"): 0.25,
        sample("aotc_first_call_seconds", variant="large"): 1,
        sample("aotc_model_info", variant="small", provider=nimbus, precision="float16", **info): 1,
        sample("aotc_model_info", variant="large", provider=nimbus, precision="keep", **info): 1,
        sample("aotc_call_duration_seconds_count", variant="small"): 2,
        sample("aotc_call_duration_seconds_sum", variant="small"): 0.75,
        sample("aotc_call_duration_seconds_count", variant="large"): 1,
        sample("aotc_call_duration_seconds_sum", variant="large"): 1,
    }
    buckets = {
        sample("aotc_call_duration_seconds_bucket", variant=variant, le=le): sum(
            seconds <= float(le) for seconds in taken
        )
        for variant, taken in (("small", (0.25, 0.5)), ("large", (1.0,)))
        for le in (*map(str, LATENCY_BUCKETS), "+Inf")
    }
    duration = found.pop(sample("aotc_load_duration_seconds", stage="verify"))
    assert 0 <= duration < 60
    assert found == {**wanted, **buckets}


def test_each_model_has_the_buckets_of_its_profile(metrics: PrometheusMetrics) -> None:
    for name, buckets in (("toy", ()), ("fast", (0.001, 0.002)), ("slow", (1.0,))):
        made = Telemetry(["small", "large"])
        made.begin(loaded_model(name, buckets))
        made.call(0.0015, variant="small")
    found = {
        (labels["model"], labels["le"]): value
        for (name, *pairs), value in samples(metrics.text()).items()
        if name == "aotc_call_duration_seconds_bucket" and (labels := dict(pairs))  # type: ignore[arg-type, call-overload]
        if labels["model"] != "toy"
    }
    assert found == {
        ("fast", "0.001"): 0,
        ("fast", "0.002"): 1,
        ("fast", "+Inf"): 1,
        ("slow", "1.0"): 1,
        ("slow", "+Inf"): 1,
    }


def test_what_is_closed_is_not_there(metrics: PrometheusMetrics, telemetry: Telemetry) -> None:
    telemetry.change(ready=True)
    telemetry.end()
    telemetry.change(ready=True)
    found = samples(metrics.text())
    assert found[sample("aotc_models_loaded")] == found[sample("aotc_models_ready")] == 0
    assert not [name for name, *_ in found if name == "aotc_model_info"]


def test_what_was_dropped_or_left_by_a_fork_is_not_there(metrics: PrometheusMetrics) -> None:
    made = Telemetry(["small", "large"])
    made.begin(loaded_model())
    made.change(ready=True)
    assert samples(metrics.text())[sample("aotc_models_ready")] == 1
    made.leave_to_parent()
    kept = Telemetry(["small", "large"])
    kept.begin(loaded_model())
    del kept
    gc.collect()
    found = samples(metrics.text())
    assert found == {sample("aotc_models_loaded"): 0, sample("aotc_models_ready"): 0}


def test_where_another_takes_its_place_nodes_are_of_that_one(metrics: PrometheusMetrics) -> None:
    before, after = Telemetry(["small", "large"]), Telemetry(["tiny"])
    before.begin(loaded_model())
    tiny = LoadedVariant("tiny", "CPUExecutionProvider", "keep", {"CPUExecutionProvider": 5}, 0, ())
    after.begin(LoadedModel("toy", "cd" * 32, "", "optimal", [tiny]))
    before.end()
    nodes = {at: value for at, value in samples(metrics.text()).items() if "nodes" in str(at[0])}
    assert nodes == {
        sample("aotc_nodes", variant="tiny", provider="CPUExecutionProvider"): 5,
        sample("aotc_nodes_misplaced", variant="tiny"): 0,
    }


def test_a_folder_of_workers_that_is_not_there_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "absent")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", folder)
    with pytest.raises(AotcError) as caught:
        PrometheusMetrics(registry=None)
    assert caught.value.line() == (f"AOTC-I001 PROMETHEUS_MULTIPROC_DIR is not a folder [{folder}]")
    assert caught.value.fix == "Create it empty before Python starts."


def test_a_model_that_was_loaded_before_is_there(telemetry: Telemetry) -> None:
    registry = client.CollectorRegistry()
    made = PrometheusMetrics(registry)
    telemetry.call(1.0, variant="large")
    assert registry.get_sample_value("aotc_models_loaded", {"model": "toy"}) == 1
    labels = {"model": "toy", "variant": "large", "route": "exact"}
    assert registry.get_sample_value("aotc_calls_total", labels) == 1
    made.close()
    telemetry.call(1.0, variant="large")
    assert registry.get_sample_value("aotc_calls_total", labels) is None
    assert samples(made.text())[sample("aotc_calls_total", variant="large", route="exact")] == 1


def test_who_listens_cannot_break_a_call(telemetry: Telemetry) -> None:
    class Broken(Listener):
        def call(self, model: LoadedModel, call: Call) -> None:
            raise OSError("no space left on device")

    broken = Broken()
    reporting.listen(broken)
    try:
        telemetry.call(1.0, variant="large")
    finally:
        reporting.leave(broken)
    assert telemetry.calls == 1


def test_without_the_extra_the_mend_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(AotcError) as caught:
        PrometheusMetrics()
    assert (caught.value.code, caught.value.fix) == ("AOTC-I019", install_extra("metrics"))
