"""Letters for tests, with as little written down as possible."""

from __future__ import annotations

from aiokafka.structs import ConsumerRecord

from topics.headers import Headers
from topics.letters import PREFIX, DeadLetter, read_letter


def letter(
    agent: str | None = "a",
    value: bytes = b"v",
    *,
    partition: int = 0,
    offset: int = 0,
    headers: Headers = (),
    reason: str = "model_error",
    topic: str = "f.states.normal",
    time_us: int = 1,
    message: str = "boom",
) -> DeadLetter:
    """A letter as a worker writes it."""
    texts = {"reason": reason, "topic": topic, "partition": "3", "offset": "9", "time_us": str(time_us)}
    ours = [(PREFIX + name, text.encode()) for name, text in (texts | {"message": message}).items()]
    key = None if agent is None else agent.encode()
    record = ConsumerRecord("f.dead", partition, offset, 1_000, 0, key, value, None, 1, 1, (*headers, *ours))
    return read_letter(record)
