"""docs/asyncapi.yaml says what the code does: names, fields, headers, limits, and the very bytes that are written."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker

from tests.workers.build import record, request
from topics import headers
from topics.columns import ActionColumns, encode_states
from topics.errors import DecodeError, InputError, RecordError
from topics.names import LANES, FleetNames
from topics.observations import Observations
from topics.records import OUTCOMES, Action, Origin, State, Timing
from topics.settings import FleetSettings
from topics.specs import specs_of
from topics.tensors import DTYPES, MAX_RANK, TENSOR_EXT, TensorSpec
from topics.wire import DEFAULT_LIMITS, VERSION, decode_action, decode_state, encode_action, encode_state
from workers.admit import MAX_AGENT_BYTES
from workers.dead_letters import MAX_REASON_BYTES, DeadLetters
from workers.reply import Encoder
from workers.requests import Batch, Predicted, Refusal
from workers.worker import Down

ROOT = Path(__file__).parent.parent
CONTRACT: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "asyncapi.yaml").read_text())
SCHEMAS = CONTRACT["components"]["schemas"]
MESSAGES = CONTRACT["components"]["messages"]
GOLDEN = ROOT / "tests" / "topics" / "golden"
CARTPOLE = ROOT / "tools" / "demo" / "models" / "cartpole"

SPEC = TensorSpec("observation", "float32", (4,))
OUTPUTS = (TensorSpec("action", "int64", ()), TensorSpec("logits", "float32", (2,)))
FULL_STATE = State([0.0] * 4, 3, "e-1", "urgent", 1_764_539_000_020_000, 1_764_539_000_000_000, {"greedy": True})


class Binary(str):
    """Raw bytes as a JSON Schema may see them: a string of its own kind."""


_FORMATS = FormatChecker(formats=())
_FORMATS.checks("binary")(lambda value: not isinstance(value, str) or isinstance(value, Binary))


def as_json(found: Any) -> Any:
    """Unpacked MessagePack with raw bytes as `Binary`."""
    if isinstance(found, bytes):
        return Binary(found.decode("latin-1"))
    if isinstance(found, dict):
        return {str(as_json(key)): as_json(value) for key, value in found.items()}
    return [as_json(value) for value in found] if isinstance(found, list | tuple) else found


def unpacked(value: bytes) -> Any:
    """A record's fields; a tensor is its extension's payload."""
    return as_json(msgpack.unpackb(value, ext_hook=lambda _code, data: data, strict_map_key=False))


def mistakes(schema: str, found: Any) -> list[str]:
    """What `found` has that the schema of this name does not allow."""
    whole = {"allOf": [{"$ref": f"#/components/schemas/{schema}"}], "components": CONTRACT["components"]}
    return [error.message for error in Draft7Validator(whole, format_checker=_FORMATS).iter_errors(found)]


def at(pointer: str) -> Any:
    """What a reference points to; KeyError where there is nothing."""
    found: Any = CONTRACT
    for part in pointer.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def references(found: Any) -> Iterator[str]:
    """Every `$ref` below `found`."""
    if isinstance(found, Mapping):
        if isinstance(found.get("$ref"), str):
            yield found["$ref"]
        for value in found.values():
            yield from references(value)
    elif isinstance(found, list):
        for value in found:
            yield from references(value)


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    """No dead ends, nothing left over."""
    used = set(references(CONTRACT))
    for pointer in used:
        assert isinstance(at(pointer), dict), pointer
    for kind, named in CONTRACT["components"].items():
        assert {f"#/components/{kind}/{name}" for name in named} <= used


def test_operations_use_their_channels_messages() -> None:
    """The shape of an AsyncAPI 3.0 document, as its own JSON Schema has it."""
    assert CONTRACT["asyncapi"] == "3.0.0" and {"title", "version"} <= CONTRACT["info"].keys()
    for operation in CONTRACT["operations"].values():
        assert operation["action"] in ("send", "receive")
        for part in (operation, operation.get("reply", operation)):
            channel = part["channel"]["$ref"]
            assert all(message["$ref"].startswith(f"{channel}/messages/") for message in part["messages"])
    replies = CONTRACT["operations"]["decideHigh"]["reply"]
    assert at(replies["channel"]["$ref"])["address"] is None, "the address comes from the header"
    assert replies["address"]["location"] == f"$message.header#/{headers.REPLY_TOPIC}"


def test_channels_are_the_fleets_topics() -> None:
    """Names as FleetNames gives them, partitions and configurations as `fleet topics apply` makes them."""
    channels = {channel["address"]: channel for channel in CONTRACT["channels"].values() if channel["address"]}
    specs = {spec.name: spec for spec in specs_of(FleetSettings(name="f"))}
    assert [address.format(fleet="f") for address in channels] == list(FleetNames("f").all_topics())
    for address, channel in channels.items():
        spec, kafka = specs[address.format(fleet="f")], channel["bindings"]["kafka"]
        assert list(channel["parameters"]) == ["fleet"]
        assert (kafka["partitions"], kafka["replicas"]) == (spec.partitions, spec.replication_factor)
        for name, value in kafka["topicConfiguration"].items():
            assert spec.configs[name] == (",".join(value) if isinstance(value, list) else str(value))


def test_lanes_have_their_topics_and_groups() -> None:
    """Three operations receive, each in the group of its lane; and the word for it is the same in every action."""
    names = FleetNames("f")
    received = [operation for operation in CONTRACT["operations"].values() if operation["action"] == "receive"]
    for lane, operation in zip(LANES, received, strict=True):
        assert at(operation["channel"]["$ref"])["address"].format(fleet="f") == names.states(lane)
        assert operation["bindings"]["kafka"]["groupId"]["description"].format(fleet="f") == names.group(lane)
    assert SCHEMAS["Lane"]["enum"] == list(LANES)


def test_a_state_has_the_fields_that_are_written_and_read() -> None:
    """Nothing is written that is not described, nothing described that is not read."""
    described = SCHEMAS["State"]["properties"].keys()
    assert described == unpacked(encode_state(FULL_STATE)).keys()
    assert described == {"v", *(field.name for field in fields(State))}
    assert decode_state(encode_state(FULL_STATE)) == FULL_STATE


@pytest.mark.parametrize("name", SCHEMAS["State"]["properties"])
def test_a_state_may_leave_out_what_is_not_required(name: str) -> None:
    """And nothing else."""
    found = unpacked(encode_state(FULL_STATE))
    del found[name]
    assert bool(mistakes("State", found)) == (name in SCHEMAS["State"]["required"]) == _is_refused(found)


@pytest.mark.parametrize("value", [None, -1, 0, 1, 2, 1.5, "text", "", [], [1], {}, {"a": 1}, True], ids=repr)
@pytest.mark.parametrize("name", SCHEMAS["State"]["properties"].keys() - {"v", "observation"})
def test_decoder_and_schema_agree_on_every_field(name: str, value: Any) -> None:
    """What one refuses, the other refuses."""
    found = {"v": VERSION, "observation": [0.0], name: value}
    assert _is_refused(found) == bool(mistakes("State", found))


def _is_refused(found: dict[str, Any]) -> bool:
    try:
        decode_state(msgpack.packb(found))
    except DecodeError:
        return True
    return False


ROW = np.array([1, 2, 3, 4], np.float32)
OBSERVATIONS: dict[str, tuple[Any, bool]] = {
    "tensor": (ROW, True),
    "numbers": ([1, 2.5, 3, 4], True),
    "by name": ({"observation": ROW}, True),
    "msgpack-numpy": ({b"nd": True, b"type": "<f4", b"shape": [4], b"data": ROW.tobytes()}, True),
    "older msgpack-numpy": ({"__ndarray__": True, "dtype": "<f4", "shape": [4], "data": ROW.tobytes()}, True),
    "dtype, shape, data": ({"dtype": "float32", "shape": [4], "data": ROW.tobytes()}, True),
    "text": ("abcd", False),
    "nothing": (None, False),
    "a list of text": (["a", "b", "c", "d"], False),
    "an empty map": ({}, False),
    "a negative shape": ({"dtype": "float32", "shape": [-4], "data": ROW.tobytes()}, False),
    "data as text": ({"dtype": "float32", "shape": [4], "data": "1234"}, False),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_are_taken_in_every_form_described(name: str) -> None:
    """And in no other."""
    observation, fits = OBSERVATIONS[name]
    value = encode_state(State(observation))
    assert (not mistakes("State", unpacked(value))) == fits
    if fits:
        (row,) = Observations([SPEC]).rows(decode_state(value).observation)
        assert bytes(row)[:4] == ROW[:1].tobytes()
    else:
        with pytest.raises((DecodeError, InputError)):
            Observations([SPEC]).rows(decode_state(value).observation)


def test_an_action_has_the_fields_that_are_written_and_read() -> None:
    """Also inside timing and origin."""
    described, timing = SCHEMAS["Action"]["properties"], SCHEMAS["Action"]["properties"]["timing"]
    action = Action("action", 3, 1, "why", "m v1", "low", "w", Timing(1, 2, 3), {"value": 0.5}, Origin("t", 0, 7), 1)
    assert described.keys() == unpacked(encode_action(action)).keys()
    assert described.keys() == {"v", *(field.name for field in fields(Action))}
    assert decode_action(encode_action(action)) == action
    assert list(timing["properties"]) == timing["required"] == [field.name for field in fields(Timing)]
    assert described["origin"]["minItems"] == described["origin"]["maxItems"] == len(fields(Origin))


def test_an_action_always_has_what_is_required() -> None:
    """Whatever the outcome; and the columns that whole batches are written in have the same fields."""
    for outcome in OUTCOMES:
        reason = None if outcome == "action" else "because"
        found = unpacked(encode_action(Action(outcome, None, 1, reason, lane="high")))
        assert mistakes("Action", found) == []
        assert found.keys() - {"action", "reason"} == set(SCHEMAS["Action"]["required"])
        assert mistakes("Action", {**found, "outcome": "done"})
    assert mistakes("Action", unpacked(encode_action(Action("action", 0, 1, "because", lane="high"))))
    assert mistakes("Action", unpacked(encode_action(Action("expired", 0, lane="high"))))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.msgpack")), ids=lambda path: path.stem)
def test_golden_bytes_are_described(path: Path) -> None:
    """Every record that was ever written; those of no model have empty names."""
    schema = "State" if path.stem.startswith("state") else "Action"
    assert mistakes(schema, unpacked(path.read_bytes())) == []


def test_what_a_client_sends_in_columns_is_described() -> None:
    """The states of `decide_many`."""
    for value in encode_states(np.stack([ROW, ROW]), [0, 1], FULL_STATE, episodes=[7, "e-2"]):
        assert mistakes("State", unpacked(value)) == []


def test_what_a_worker_answers_is_described() -> None:
    """Tensors for tensors, plain numbers for plain numbers, the origin for who sent no correlation ID; refusals."""
    requests = [request("tensor"), request("plain"), request("uncorrelated")]
    requests[1].plain, requests[2].correlated = True, False
    columns = ActionColumns(OUTPUTS, "m v1", "w")
    encoder = Encoder(columns, [spec.name for spec in OUTPUTS], "m v1", "w", np.int64(1))
    outputs = {"action": np.arange(3), "logits": np.zeros((3, 2), np.float32)}
    ran = Predicted(Batch(0, requests, 0), outputs, 100, 180)
    tensor, plain, uncorrelated = [unpacked(value) for _, value in encoder.actions(ran)]
    refused = unpacked(encoder.refusal(Refusal(requests[2], "rejected", "bad", dead="wrong_input")))
    late = unpacked(encoder.refusal(Refusal(requests[1], "expired", "late")))
    assert mistakes("Action", late) == [] and late["action"] == 1 and mistakes("Action", {**late, "extras": {}})
    assert mistakes("Action", {**late, "outcome": "failed"})
    assert [mistakes("Action", found) for found in (tensor, plain, uncorrelated, refused)] == [[], [], [], []]
    assert isinstance(tensor["action"], Binary) and isinstance(tensor["extras"]["logits"], Binary)
    assert plain["action"] == 1 and plain["extras"] == {"logits": [0.0, 0.0]}
    assert [("origin" in found) for found in (tensor, plain, uncorrelated, refused)] == [False, False, True, True]


def test_words_and_numbers_are_the_codes() -> None:
    """Outcomes, dtypes, the tensor's extension and header, limits."""
    assert SCHEMAS["Outcome"]["enum"] == list(OUTCOMES)
    assert sorted(SCHEMAS["Dtype"]["enum"]) == sorted(DTYPES)
    assert SCHEMAS["Tensor"]["x-messagepack-extension"] == TENSOR_EXT
    assert SCHEMAS["State"]["properties"]["v"]["const"] == SCHEMAS["Action"]["properties"]["v"]["const"] == VERSION
    assert mistakes("TensorHeader", msgpack.unpackb(SPEC.header)) == []
    assert SCHEMAS["TensorHeader"]["items"][1]["maxItems"] == MAX_RANK
    assert SCHEMAS["ArrayMap"]["properties"]["shape"]["maxItems"] == MAX_RANK
    assert CONTRACT["info"]["x-limits"] == {
        "value_bytes": DEFAULT_LIMITS.max_bytes,
        "entries_of_all_lists_and_maps": DEFAULT_LIMITS.max_elements,
        "string_bytes": DEFAULT_LIMITS.max_string,
        "levels_of_nesting": DEFAULT_LIMITS.max_depth,
        "axes_of_a_tensor": MAX_RANK,
        "agent_id_bytes": MAX_AGENT_BYTES,
    }
    assert MESSAGES["State"]["bindings"]["kafka"]["key"]["maxLength"] == MAX_AGENT_BYTES


def test_headers_are_those_that_are_read_and_echoed() -> None:
    """By name; the bytes of a reply partition; the one content type."""
    described = SCHEMAS["StateHeaders"]["properties"]
    ours = dict.fromkeys(described, b"\x00\x00\x00\x07") | {headers.CONTENT_TYPE: headers.MSGPACK}
    routing = headers.read(list(ours.items()))
    names = headers.CORRELATION_ID, headers.REPLY_TOPIC, headers.REPLY_PARTITION, headers.TRACEPARENT
    assert set(described) == {*names, headers.CONTENT_TYPE}
    assert {name for name, _ in routing.echoed} == SCHEMAS["ActionHeaders"]["properties"].keys()
    assert described[headers.REPLY_PARTITION]["minLength"] == described[headers.REPLY_PARTITION]["maxLength"] == 4
    assert routing.reply_partition == 7 and routing.correlated
    assert described[headers.CONTENT_TYPE]["const"].encode() == headers.MSGPACK
    with pytest.raises(DecodeError, match="content-type"):
        headers.read([(headers.CONTENT_TYPE, b"application/json")])
    location = CONTRACT["components"]["correlationIds"]["state"]["location"]
    assert location == f"$message.header#/{headers.CORRELATION_ID}"


class Outbox(list[Any]):
    """Keeps what is added."""

    def add(self, *found: Any) -> None:
        self.append(found)

    async def flush(self, within_s: float) -> None: ...


async def test_dead_letters_have_the_headers_described() -> None:
    """The state's own first, each of ours as short text."""
    outbox, described = Outbox(), SCHEMAS["DeadLetterHeaders"]
    bad = request()
    bad.record = record(41, headers=[("traceparent", b"00-1")])
    again = request()
    brought = [(f"fleet_dead-{name}", b"[]") for name in ("history", "letter", "run")]
    again.record = record(42, headers=[("traceparent", b"00-1"), *brought])
    letters = DeadLetters(outbox, "f.dead", 1, "w", "m v1", 1.0)  # type: ignore[arg-type]
    await letters.write([Refusal(one, "rejected", "x" * 5000, dead="wrong_input") for one in (bad, again)])
    (topic, _, key, value, found), (*_, redriven) = outbox
    assert (topic, key, value) == ("f.dead", bad.record.key, bad.record.value)
    assert found[0] == ("traceparent", b"00-1")
    assert [name for name, _ in found[1:]] == described["required"]
    assert [name for name, _ in redriven[1:]] == list(described["properties"])
    assert all(len(text.decode()) <= MAX_REASON_BYTES for _, text in found)
    assert f"at most {MAX_REASON_BYTES} bytes" in described["description"]


def labels_in_code() -> set[str]:
    """What workers write as a dead letter's reason: `dead` of a Refusal, `label` of a Fault."""
    found: set[str] = set()
    for path in (ROOT / "workers").rglob("*.py"):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("Refusal", "Fault"):
                named = [keyword.value for keyword in call.keywords if keyword.arg in ("dead", "label")]
                for value in named or (call.args[1:2] if getattr(call.func, "id", "") == "Fault" else []):
                    found |= labels(value, module)
    return found


def labels(value: ast.expr, module: ModuleType) -> set[str]:
    """A text, a constant of the module, or `down`; an attribute passes on what another call has named."""
    if isinstance(value, ast.Name):
        return set(get_args(Down)) if value.id == "down" else {getattr(module, value.id)}
    return set() if isinstance(value, ast.Attribute) else {ast.literal_eval(value)}


def test_dead_letters_have_the_reasons_described() -> None:
    """Those of bad records and those that workers name; there are no others."""
    reasons = {cls.reason for cls in RecordError.__subclasses__()} | labels_in_code()
    assert set(SCHEMAS["DeadReason"]["enum"]) == reasons
    table = (ROOT / "docs" / "dead-letters.md").read_text()
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))) >= reasons


@pytest.mark.parametrize("example", MESSAGES["State"]["examples"], ids=lambda example: example["name"])
def test_examples_of_states_are_served(example: dict[str, Any]) -> None:
    """Whoever copies one gets an action."""
    state = decode_state(msgpack.packb(example["payload"]))
    assert mistakes("State", example["payload"]) == []
    assert len(Observations([SPEC]).rows(state.observation)[0]) == 4


@pytest.mark.parametrize("example", MESSAGES["Action"]["examples"], ids=lambda example: example["name"])
def test_examples_of_actions_are_written_like_that(example: dict[str, Any]) -> None:
    """Field by field, in this order."""
    payload = example["payload"]
    written = unpacked(encode_action(decode_action(msgpack.packb(payload))))
    assert list(written.items()) == list(payload.items())
    assert mistakes("Action", payload) == []
