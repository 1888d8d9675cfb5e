"""A real Apache Kafka on this machine, without Docker or a system Java."""
