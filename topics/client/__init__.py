"""What an agent's author imports: `from topics.client import AgentClient`."""

from topics.client.blocking import SyncAgentClient
from topics.client.client import AgentClient
from topics.client.errors import ClientClosed, NoAction, NotSent, ReplyTimeout
from topics.client.replies import Replies, Reply
from topics.client.stats import ClientStats

__all__ = [
    "AgentClient",
    "ClientClosed",
    "ClientStats",
    "NoAction",
    "NotSent",
    "Replies",
    "Reply",
    "ReplyTimeout",
    "SyncAgentClient",
]
