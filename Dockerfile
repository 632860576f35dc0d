# syntax=docker/dockerfile:1
# The image of Headrace: the Python package and the command line, without a compiler. `make image` builds it;
# `docker run --rm headrace:latest ls s3://bucket` runs it.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
# .venv keeps the path that it is made under.
WORKDIR /opt/headrace
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# What setup installs changes less often than the sources: a layer of its own.
COPY tools/setup tools/setup
COPY tools/lock tools/lock
# Versions are those of the base image's distribution. This stage is thrown away, the package lists with it.
# hadolint ignore=DL3008,DL3009
RUN apt-get update -q && apt-get install -y -q --no-install-recommends make && tools/setup build
COPY . .
RUN make install && tools/runtime_packages .venv/lib/python3*/site-packages/headrace/_native*.so >runtime-packages.txt

# The C++ library with its headers, and what compiling against it takes: `make image-cpp`.
FROM build AS cpp
RUN make library PREFIX=/usr/local && ldconfig
WORKDIR /work

FROM ${BASE} AS run
COPY --from=build /opt/headrace/runtime-packages.txt /tmp/runtime-packages.txt
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# The list of packages has one word a line.
# hadolint ignore=DL3008,SC2046
RUN apt-get update -q && \
    apt-get install -y -q --no-install-recommends ca-certificates python3 $(cat /tmp/runtime-packages.txt) && \
    rm -rf /var/lib/apt/lists/* /tmp/runtime-packages.txt && \
    useradd --create-home --uid 1000 headrace
COPY --from=build /opt/headrace/.venv /opt/headrace/.venv
ENV PATH=/opt/headrace/.venv/bin:$PATH
USER 1000
WORKDIR /home/headrace
ENTRYPOINT ["headrace"]
CMD ["--help"]
