"""The `fleet` command: broker, topics, model, settings, worker, demo, bench."""
