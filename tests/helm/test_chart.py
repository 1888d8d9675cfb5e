"""What the chart renders is what Kubernetes, KEDA, the settings and the command line take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from tests.helm.conftest import FIRST_RUN, HELM, Object, Render, helm, merged
from tools.cli import application
from topics.names import LANES, FleetNames
from topics.settings import FleetSettings, describe, load_settings
from workers.settings import Settings

CUSTOM = {
    "ScaledObject": "keda.sh",
    "TriggerAuthentication": "keda.sh",
    "PodMonitor": "monitoring.coreos.com",
    "PrometheusRule": "monitoring.coreos.com",
    "KafkaTopic": "kafka.strimzi.io",
}
OLDEST, NEWEST = "1.28", "1.37"
BETWEEN = [f"1.{minor}" for minor in range(29, 37)]
IMAGE_VOLUMES_SINCE = 33


def pods(objects: list[Object]) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Objects that start pods, with the pod's spec."""
    for found in objects:
        if found["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield found, found["spec"]["template"]["spec"]
        elif found["kind"] == "Pod":
            yield found, found["spec"]


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Ours; what users add by hand is theirs to secure."""
    return [one for one in (*spec.get("initContainers", ()), *spec["containers"]) if "decision-fleet" in one["image"]]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "from elsewhere") for entry in container["env"]}


@pytest.mark.parametrize("version", [OLDEST, *(pytest.param(one, marks=pytest.mark.slow) for one in BETWEEN), NEWEST])
def test_every_scenario_is_valid_in_every_kubernetes(version: str, scenarios: dict[str, list[Object]]) -> None:
    """Strictly: no field that the version does not know."""
    for name, objects in scenarios.items():
        if name == "own-model-image" and int(version[2:]) < IMAGE_VOLUMES_SINCE:
            continue
        for found in objects:
            if found["kind"] in CUSTOM:
                assert found["apiVersion"].split("/")[0] in CUSTOM[found["kind"]]
            else:
                kubernetes_validate.validate(found, version, strict=True)


def test_helm_lint_finds_nothing() -> None:
    """Not even a warning."""
    report = helm.chart.lint(HELM, FIRST_RUN, strict=True)
    assert [found for found in report["messages"] if found["severity"] > 1] == []


def test_names_are_unique_short_and_labelled(scenarios: dict[str, list[Object]]) -> None:
    """Every object can be found by its release, and none replaces another."""
    for objects in scenarios.values():
        names = [(found["kind"], found["metadata"]["name"]) for found in objects]
        assert len(names) == len(set(names))
        for found in objects:
            assert len(found["metadata"]["name"]) <= 63
            if not found["metadata"]["name"].endswith(("-extra", "more")):
                assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "fleet"
                assert found["metadata"]["namespace"] in ("ns", "kafka")


def test_every_pod_is_restricted(scenarios: dict[str, list[Object]]) -> None:
    """Pod security `restricted`, for hooks too: no root, no capability, nothing written but to mounts, no token."""
    for objects in scenarios.values():
        for _, spec in pods(objects):
            assert spec["automountServiceAccountToken"] is False
            assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in containers(spec):
                secured = container["securityContext"]
                assert secured["capabilities"] == {"drop": ["ALL"]}
                assert secured["allowPrivilegeEscalation"] is False and secured["readOnlyRootFilesystem"] is True
                mounted = {mount["name"] for mount in container["volumeMounts"]}
                assert mounted <= {volume["name"] for volume in spec["volumes"]}
                assert "tmp" in mounted and container["resources"]["requests"]


def test_the_settings_take_every_variable(scenarios: dict[str, list[Object]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing mistake in a variable's name or value would only show in the cluster."""
    for objects in scenarios.values():
        for found, spec in pods(objects):
            for container in containers(spec):
                if "env" not in container or "args" not in container:
                    continue
                worker = container["args"][0] == "worker"
                with monkeypatch.context() as patch:
                    given = {key: value for key, value in environment(container).items() if key.startswith("FLEET_")}
                    for key, value in given.items():
                        if key.endswith("_FILE"):
                            key, value = key.removesuffix("_FILE"), "read from a mounted secret"
                        patch.setenv(key, value)
                    settings = load_settings(Settings if worker else FleetSettings)
                    known = {variable_of(shown.key) for shown in describe(settings)}
                unknown = {key.removesuffix("_FILE") for key in given} - known
                assert not unknown, f"{found['metadata']['name']}: {unknown}"


def variable_of(key: str) -> str:
    return "FLEET_" + key.upper().replace(".", "__")


def test_the_command_line_takes_the_arguments(scenarios: dict[str, list[Object]]) -> None:
    """Each distinct command and each of its flags."""
    seen = set()
    for objects in scenarios.values():
        for _, spec in pods(objects):
            for container in containers(spec):
                if "args" in container:
                    words = [word for word in container["args"] if not re.match(r"/|\d", word)]
                    seen.add(tuple(words))
    for words in seen:
        command = words[:2] if words[0] == "topics" else words[:1]
        told = CliRunner(env={"COLUMNS": "200"}).invoke(application(command), [*command, "--help"])
        assert told.exit_code == 0
        for word in words:
            assert not word.startswith("--") or word in told.output, shlex.join(words)


def test_a_pod_may_drain_before_it_is_killed(scenarios: dict[str, list[Object]]) -> None:
    """Grace is longer than the drain that the worker is given."""
    for objects in scenarios.values():
        for found, spec in pods(objects):
            if found["metadata"]["labels"].get("app.kubernetes.io/component") == "worker":
                drain_s = float(environment(containers(spec)[-1])["FLEET_DRAIN__TIMEOUT_S"])
                assert spec["terminationGracePeriodSeconds"] > drain_s


def test_what_scales_has_no_replicas_of_its_own(scenarios: dict[str, list[Object]]) -> None:
    """Two owners of one number: Helm 4 refuses, Helm 3 silently resets it."""
    for objects in scenarios.values():
        scaled = {
            found["spec"]["scaleTargetRef"]["name"]
            for found in objects
            if found["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")
        }
        for found in of_kind(objects, "Deployment"):
            assert ("replicas" in found["spec"]) != (found["metadata"]["name"] in scaled)


def test_keda_looks_at_the_lag_of_each_lane_of_its_pool(scenarios: dict[str, list[Object]]) -> None:
    """With the fleet's own names of groups and topics, and the workers' credentials."""
    names = FleetNames("fleet")
    by_pool = {found["metadata"]["name"]: found for found in of_kind(scenarios["lanes-apart"], "ScaledObject")}
    assert set(by_pool) == {"fleet-decision-fleet-high", "fleet-decision-fleet-normal", "fleet-decision-fleet-low"}
    for lane in LANES:
        (trigger,) = by_pool[f"fleet-decision-fleet-{lane}"]["spec"]["triggers"]
        assert trigger["metadata"]["topic"] == names.states(lane)
        assert trigger["metadata"]["consumerGroup"] == names.group(lane)
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert "excludePersistentLag" not in trigger["metadata"]
    (secured,) = of_kind(scenarios["secured"], "ScaledObject")
    (authentication,) = of_kind(scenarios["secured"], "TriggerAuthentication")
    for trigger in secured["spec"]["triggers"]:
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
        assert (trigger["metadata"]["sasl"], trigger["metadata"]["tls"]) == ("scram_sha512", "enable")
    secrets = {(ref["parameter"], ref["name"]) for ref in authentication["spec"]["secretTargetRef"]}
    assert secrets >= {("username", "kafka-user"), ("password", "kafka-user"), ("ca", "kafka-ca")}


def test_a_pool_serves_its_lanes(scenarios: dict[str, list[Object]]) -> None:
    """And the GPUs that it asks for have a predictor each."""
    (low,) = [one for one in of_kind(scenarios["lanes-apart"], "Deployment") if one["metadata"]["name"].endswith("low")]
    assert environment(low["spec"]["template"]["spec"]["containers"][0])["FLEET_SERVE"] == '["low"]'
    (gpu,) = of_kind(scenarios["gpu-pool"], "Deployment")
    worker = gpu["spec"]["template"]["spec"]["containers"][0]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert yaml.safe_load(environment(worker)["FLEET_PREDICTORS"]) == [
        {"device": "cuda:0"},
        {"device": "cpu", "standby": True},
    ]


def test_strimzi_makes_the_topics_that_the_settings_want(scenarios: dict[str, list[Object]]) -> None:
    """The same partitions and retention as `fleet topics apply`, kept on uninstall, no hooks."""
    from topics.specs import specs_of

    topics = {
        "partitions": 12, "replication_factor": 3, "min_insync_replicas": 2, "retention_low_h": 48,
    }  # fmt: skip
    wanted = {
        spec.name: spec
        for spec in specs_of(load_settings(FleetSettings, overrides={"name": "arena.eu", "topics": topics}))
    }
    found = {one["spec"]["topicName"]: one for one in of_kind(scenarios["strimzi"], "KafkaTopic")}
    assert set(found) == set(wanted)
    for name, spec in wanted.items():
        ours = found[name]["spec"]
        assert (ours["partitions"], ours["replicas"]) == (spec.partitions, spec.replication_factor)
        assert {key: str(value) for key, value in ours["config"].items()} == dict(spec.configs)
        annotations = found[name]["metadata"]["annotations"]
        assert annotations == {"helm.sh/resource-policy": "keep"}


def test_hooks_need_nothing_that_the_release_brings_later(scenarios: dict[str, list[Object]]) -> None:
    """Secrets of users aside, a Job before the install must not wait for objects that come after it."""
    for objects in scenarios.values():
        later = {
            one["metadata"]["name"] for one in objects if not one["metadata"].get("annotations", {}).get("helm.sh/hook")
        }
        for found, spec in pods(objects):
            hook = found["metadata"].get("annotations", {}).get("helm.sh/hook", "")
            if hook.startswith("pre-"):
                assert spec.get("serviceAccountName", "default") not in later
                named = [volume.get("configMap", {}).get("name") for volume in spec["volumes"]]
                assert not later & {name for name in named if name}


def test_a_closed_network_lets_through_what_is_needed(scenarios: dict[str, list[Object]]) -> None:
    """DNS, the brokers' ports, the model's download; metrics for those who may."""
    policies = {
        one["metadata"]["name"].rsplit("-", 1)[1]: one["spec"] for one in of_kind(scenarios["secured"], "NetworkPolicy")
    }
    assert set(policies) == {"worker", "topics", "test"}
    ports = {port["port"] for rule in policies["worker"]["egress"] for port in rule["ports"]}
    assert ports == {53, 9093}
    assert policies["worker"]["ingress"][0]["from"][0]["namespaceSelector"]
    assert policies["topics"]["ingress"] == []
    downloading = {
        one["metadata"]["name"].rsplit("-", 1)[1]: one["spec"]
        for one in of_kind(scenarios["own-model-download"], "NetworkPolicy")
    }
    assert 443 in {port["port"] for rule in downloading["worker"]["egress"] for port in rule["ports"]}


def test_the_schema_knows_every_value_and_nothing_else(chart: Any) -> None:
    """Each key of values.yaml, and `additionalProperties: false` wherever keys are fixed."""
    schema = chart.schema

    def walk(values: dict[str, Any], node: dict[str, Any], path: str) -> None:
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]]
        if "properties" not in node:
            return
        assert node["additionalProperties"] is False, path
        assert set(values) == set(node["properties"]), path
        for key, value in values.items():
            if isinstance(value, dict):
                walk(value, node["properties"][key], f"{path}.{key}")

    walk(chart.values, schema, "")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"kafka": {"bootstrapServer": "kafka:9092"}}, "bootstrapServer"),
        ({"kafka": {"bootstrapServers": "kafka"}}, "bootstrapServers"),
        ({"workers": {"pools": {"main": {"lane": ["high"]}}}}, "lane"),
        ({"workers": {"pools": {"main": {"lanes": ["urgent"]}}}}, "lanes"),
        ({"workers": {"pools": {"Main": {}}}}, "Main"),
        ({"workers": {"pools": {"main": {"replicas": -1}}}}, "replicas"),
        ({"topics": {"provision": "yes"}}, "provision"),
        ({"image": {"digest": "abc"}}, "digest"),
        ({"monitoring": {"port": 80}}, "port"),
    ],
)
def test_the_schema_refuses(values: dict[str, Any], says: str, chart: Any) -> None:
    """Typing mistakes, by name."""
    with pytest.raises(helm.HelmError, match=says):
        chart.validate_schema(merged(FIRST_RUN, values))


def pool(**values: Any) -> dict[str, Any]:
    return {"workers": {"pools": {"main": values}}}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"kafka": {"bootstrapServers": ""}}, "say where Kafka is"),
        ({"kafka": {"securityProtocol": "SASL_SSL"}}, "needs kafka.existingSecret.name"),
        ({"kafka": {"tls": {"caSecret": "ca"}}}, "has no TLS"),
        ({"topics": {"minInsyncReplicas": 2}}, "must be at most topics.replicationFactor=1"),
        ({"topics": {"provision": "strimzi"}}, "needs topics.strimzi.cluster"),
        ({"model": {"source": "pvc"}}, "needs model.pvc.claimName"),
        ({"model": {"source": "image"}}, "needs model.image.reference"),
        ({"model": {"source": "download"}}, "needs model.download.url"),
        (pool(enabled=False), "no enabled pool"),
        (pool(terminationGracePeriodSeconds=20), "must be above drainSeconds=20"),
        (pool(kind="StatefulSet", autoscaling={"type": "keda"}), "fixed size"),
        (pool(replicas=13), "more than topics.partitions=12"),
        (pool(autoscaling={"type": "hpa", "minReplicas": 5, "maxReplicas": 3}), "above maxReplicas=3"),
        (pool(autoscaling={"type": "keda", "maxReplicas": 13}), "above topics.partitions=12"),
        (pool(autoscaling={"type": "hpa", "minReplicas": 0}), "cannot scale to zero"),
        (pool(autoscaling={"type": "keda", "minReplicas": 0}), "waiting for a cold start"),
        (pool(autoscaling={"type": "hpa"}, resources={"requests": {"cpu": None}}), "needs resources.requests.cpu"),
        (pool(device="cuda"), "needs gpus"),
        (pool(gpus=1), "would hold GPUs"),
        (pool(maxSurge=0), "a rollout could not begin"),
        (pool(lanes=["high", "normal"]), "no pool of workers.pools serves lane low"),
    ],
)
def test_guards_refuse_what_would_not_work(values: dict[str, Any], says: str, render: Render) -> None:
    """In one line that names the value."""
    with pytest.raises(helm.HelmError, match=re.escape(says)):
        render(merged(FIRST_RUN, values))
