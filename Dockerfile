# syntax=docker/dockerfile:1
# Image of the admitq processes: docker build -t admitq:dev .
# For a release, name the base image by digest: docker build --build-arg BASE=python@sha256:… .
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_CACHE_DIR=/var/cache/build/uv \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# Dependencies come first: a change of the source alone does not install them again.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN --mount=type=cache,target=/var/cache/build \
    pip install --no-cache-dir --require-hashes -r requirements/build.txt && \
    python -m venv --without-pip /opt/admitq && \
    uv pip install --python /opt/admitq/bin/python --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY admitq admitq
COPY api api
COPY webhooks webhooks
# With the time of the last commit, two builds of one commit are equal.
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=cache,target=/var/cache/build \
    python -m hatchling build -t wheel -d /tmp/dist && \
    uv pip install --python /opt/admitq/bin/python --no-deps --no-index /tmp/dist/*.whl && \
    /opt/admitq/bin/admitq --help > /dev/null

FROM ${BASE}
LABEL org.opencontainers.image.title="admitq" \
      org.opencontainers.image.description="A job queue manager for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# The processes write no files, so the root file system can be read-only. Few malloc arenas keep the memory of many threads
# small.
ENV MALLOC_ARENA_MAX=2 \
    PATH="/opt/admitq/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/admitq /opt/admitq
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/opt/admitq/bin/admitq"]
