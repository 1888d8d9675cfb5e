"""Agent → partition, as every Kafka client computes it, remembered per agent.

Takes a record key (the agent ID's bytes), gives a partition number. The Java client, librdkafka with
`murmur2_random` and aiokafka agree on it, so an agent stays where it is whatever client publishes its states.
Keys are hashed in pure Python (2–5 µs each), which is why the answer is remembered.
"""

from __future__ import annotations

from aiokafka.partitioner import murmur2

# An entry costs about 150 bytes, so the table stays below 15 MB however many agents come and go.
MAX_REMEMBERED_KEYS = 100_000
# A hostile client's keys may be as large as its records.
MAX_REMEMBERED_KEY_BYTES = 256


class Partitioner:
    """Callable `key → partition` for a fixed number of partitions.

    When `max_remembered` keys are held, all are forgotten and computed anew: agents that are still there
    pay one hash each, and no bookkeeping is spent on every record.
    """

    __slots__ = ("_known", "_max_remembered", "partitions")

    def __init__(self, partitions: int, *, max_remembered: int = MAX_REMEMBERED_KEYS) -> None:
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self.partitions = partitions
        self._max_remembered = max_remembered
        self._known: dict[bytes, int] = {}

    def __call__(self, key: bytes) -> int:
        """Partition of `key`, 0 ≤ partition < `partitions`."""
        partition = self._known.get(key)
        if partition is None:
            partition = self._remember(key)
        return partition

    def _remember(self, key: bytes) -> int:
        if len(self._known) >= self._max_remembered:
            self._known.clear()
        # Java's Utils.toPositive: the sign bit is dropped, not negated.
        partition = (int(murmur2(key)) & 0x7FFFFFFF) % self.partitions
        if len(key) <= MAX_REMEMBERED_KEY_BYTES:
            self._known[key] = partition
        return partition

    def __repr__(self) -> str:
        return f"<Partitioner {self.partitions} partitions, {len(self._known)} keys known>"
