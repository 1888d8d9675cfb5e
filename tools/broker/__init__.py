"""A real Apache Kafka on this machine, without Docker or a system Java.

cluster = start_broker()            # free port, temporary data, ends with this process
cluster.bootstrap_servers           # "127.0.0.1:23456"
cluster.nodes[0].kill()             # for fault tests: kill, pause, resume, stop, start
cluster.stop()
"""

from tools.broker.cluster import Cluster, Node
from tools.broker.errors import (
    AlreadyRunning,
    BrokerDied,
    BrokerFault,
    DiskFull,
    JarsUnavailable,
    JavaUnusable,
    PortTaken,
)
from tools.broker.security import BrokerSecurity
from tools.broker.start import DEFAULT_PORT, find_broker, start_broker

__all__ = [
    "DEFAULT_PORT",
    "AlreadyRunning",
    "BrokerDied",
    "BrokerFault",
    "BrokerSecurity",
    "Cluster",
    "DiskFull",
    "JarsUnavailable",
    "JavaUnusable",
    "Node",
    "PortTaken",
    "find_broker",
    "start_broker",
]
