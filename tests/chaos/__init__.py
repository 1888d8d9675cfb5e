"""Chaos: real workers and brokers are killed, paused and flooded; then the ledger is checked. `make chaos`."""
