# syntax=docker/dockerfile:1
# A worker's image, and that of every other `fleet` command.
#
#   docker build -t decision-fleet .                                     torch as PyPI has it: with CUDA, pinned by hash
#   docker build -t decision-fleet --build-arg TORCH_INDEX=URL .         torch of another index, such as the one for CPUs
#   docker build -t decision-fleet --build-arg PYTHON=python@sha256:… .  a base that never changes
#
# x86-64 and Python 3.11: for them docker/*.txt has versions and hashes; `python -m tools.lock docker` writes them anew.
# With TORCH_INDEX, torch and what it needs are as that index has them: the version is pinned, hashes are not.

ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/build
ENV PATH=/opt/build/bin:$PATH
COPY docker/build.txt /tmp/
RUN pip install --require-hashes --only-binary :all: -r /tmp/build.txt
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY topics topics
COPY workers workers
COPY tools tools
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
ARG TORCH="torch==2.15.0"
ARG TORCH_INDEX=""
COPY docker/torch.txt /tmp/
RUN if [ -n "$TORCH_INDEX" ]; then pip install --index-url "$TORCH_INDEX" "$TORCH"; \
    else pip install --require-hashes --only-binary :all: -r /tmp/torch.txt; fi
COPY docker/requirements.txt /tmp/
RUN pip install --require-hashes --only-binary :all: -r /tmp/requirements.txt
COPY --from=wheel /wheel /wheel
# Compiled now, as nobody may write there later; by the sources' hashes, so that the same sources give the same bytes.
# Some files of torch are for later Pythons only: they do not compile, and nobody imports them.
RUN pip install --no-deps /wheel/*.whl && pip check \
    && { python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib || true; }

FROM ${PYTHON}
ARG REVISION=""
LABEL org.opencontainers.image.title="decision-fleet" \
      org.opencontainers.image.description="Decisions for hundreds of agents through Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/venv /opt/venv
COPY tools/demo/models /opt/fleet/models
# Numbers, so that Kubernetes can see that it is not root; nothing has to be writable but what is mounted.
USER 10001:10001
WORKDIR /opt/fleet
# The container is the border: its probes answer on all of its addresses.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    FLEET_HTTP__HOST=0.0.0.0 \
    FLEET_HTTP__PORT=9464 \
    FLEET_MODEL__PATH=/opt/fleet/models/cartpole
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['FLEET_HTTP__PORT'] + '/livez', timeout=2)"]
# Exec form: `fleet` is process 1 and gets SIGTERM itself.
ENTRYPOINT ["fleet"]
CMD ["worker"]
