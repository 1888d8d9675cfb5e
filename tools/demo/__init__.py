"""The demo: real Gymnasium agents that get their decisions through Kafka."""
