"""The chart's README: its values with the comments of values.yaml. `python -m tools.chart_readme helm` writes it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HEAD: Final = """\
# The chart decision-fleet

Workers that answer agents' states from Kafka. The guide is [docs/kubernetes.md](../docs/kubernetes.md).

    helm install fleet ./helm --set kafka.bootstrapServers=kafka:9092
    helm test fleet

Helm 3.14 and later, and Helm 4; Kubernetes 1.28 and later. KEDA, the Prometheus operator, Grafana and Strimzi are used
where the values say so, and never installed. `ci/` has a values file for each usual case, `examples/` two clusters from
the start.

## Upgrading
- The topics' Job runs before each upgrade. It creates and alters, and never deletes or shrinks.
- `topics.partitions` of a live fleet stays as it is: agents would move to other partitions, and their order would
  break.
- From a fixed number of replicas to autoscaling under Helm 3: the Deployment falls to 1 for a moment, as the chart no
  longer names a number. `kubectl scale` it afterwards, or take Helm 4, which leaves it.
- From HPA to KEDA: name the old HPA in `autoscaling.transferHpaOwnership`.
- `fleet.delivery` changes with all workers stopped.

## Values
`workers.pools.<name>` takes everything of `workers.defaults`.

| value | default | |
|---|---|---|
"""


def rows(text: str) -> Iterator[tuple[str, str]]:
    """(key, comment) of everything that has a comment `# -- `."""
    path: list[tuple[int, str]] = []
    comment = ""
    for line in text.splitlines():
        if found := re.match(r"\s*# -- (.*)", line):
            comment = found[1]
        elif found := re.match(r"( *)([\w.-]+):", line):
            indent, key = len(found[1]), found[2]
            path = [*(one for one in path if one[0] < indent), (indent, key)]
            if comment:
                yield ".".join(name for _, name in path), comment
                comment = ""


def readme(chart: Path) -> str:
    """The whole file, with the defaults that a parser sees. Needs PyYAML, of the extra dev."""
    import yaml

    text = (chart / "values.yaml").read_text()
    lines = []
    for key, comment in rows(text):
        value: Any = yaml.safe_load(text)
        for name in key.split("."):
            value = value[name]
        lines.append(f"| `{key}` | `{json.dumps(value)}` | {comment} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "README.md").write_text(readme(folder))
