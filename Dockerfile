# syntax=docker/dockerfile:1
# The image of the admitq processes: docker build -t admitq:dev .
# A release names the base by digest: docker build --build-arg BASE=python@sha256:… .
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_CACHE_DIR=/var/cache/build/uv \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# What changes seldom comes first, so that a change of our source alone installs nothing anew.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN --mount=type=cache,target=/var/cache/build \
    pip install --no-cache-dir --require-hashes -r requirements/build.txt && \
    python -m venv --without-pip /opt/admitq && \
    uv pip install --python /opt/admitq/bin/python --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY admitq admitq
COPY api api
COPY webhooks webhooks
# The time of the last change makes two builds of one commit alike.
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=cache,target=/var/cache/build \
    python -m hatchling build -t wheel -d /tmp/dist && \
    uv pip install --python /opt/admitq/bin/python --no-deps --no-index /tmp/dist/*.whl && \
    /opt/admitq/bin/admitq --help > /dev/null

FROM ${BASE}
LABEL org.opencontainers.image.title="admitq" \
      org.opencontainers.image.description="A job queue manager for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing is written at run time: the root file system may be read-only. One arena of malloc's keeps many
# threads from holding many times the memory.
ENV MALLOC_ARENA_MAX=2 \
    PATH="/opt/admitq/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/admitq /opt/admitq
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/opt/admitq/bin/admitq"]
