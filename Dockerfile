# syntax=docker/dockerfile:1
# A worker's image, and that of every other `fleet` command.
#
#   docker build -t decision-fleet .                                        torch as PyPI has it (CUDA on x86-64)
#   docker build -t decision-fleet --build-arg TORCH_INDEX=URL .            another build of torch, such as the one for CPUs
#   docker build -t decision-fleet --build-arg TORCH=torch==2.15.0 .        another version
#
# x86-64 and Python 3.11, for which docker/requirements.txt has the hashes.

ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
ARG TORCH="torch>=2.6,<3"
ARG TORCH_INDEX=""
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH"
COPY docker/requirements.txt /tmp/requirements.txt
RUN pip install --require-hashes --only-binary :all: -r /tmp/requirements.txt
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY topics topics
COPY workers workers
COPY tools tools
RUN pip install "hatchling>=1.26" && pip install --no-deps --no-build-isolation . && pip uninstall --yes hatchling \
    && pip check && python -m compileall -q /opt/venv/lib

FROM ${PYTHON}
LABEL org.opencontainers.image.title="decision-fleet" \
      org.opencontainers.image.description="Decisions for hundreds of agents through Kafka" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/venv /opt/venv
COPY tools/demo/models /opt/fleet/models
# Numbers, so that Kubernetes can see that it is not root; nothing has to be writable but what is mounted.
USER 10001:10001
WORKDIR /opt/fleet
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    FLEET_MODEL__PATH=/opt/fleet/models/cartpole
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/livez', timeout=2)"]
# Exec form: `fleet` is process 1 and gets SIGTERM itself.
ENTRYPOINT ["fleet"]
CMD ["worker"]
