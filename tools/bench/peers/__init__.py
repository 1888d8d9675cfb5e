"""`fleet bench peers`: the fleet beside what users would take instead, each in its own pinned environment.

`faststream`, `quix` and `faust` drain the same backlog through Kafka; `ray`, `bentoml`, `litserve` and `mosec` serve
the same model behind HTTP. One short file each shows how; they run in processes of their environment, never in ours.
"""
