# The service in an image: docker build -t dialore . ; compose.yaml runs it. docs/operations.md tells how.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN python -m venv /opt/dialore
RUN /opt/dialore/bin/pip install --no-cache-dir '.[serve,postgres,documents,telemetry]'

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --create-home --home-dir /data dialore
COPY --from=build /opt/dialore /opt/dialore
ENV PATH=/opt/dialore/bin:$PATH PYTHONUNBUFFERED=1 DIALORE_CACHE=/data/cache
USER dialore
WORKDIR /data
VOLUME /data
EXPOSE 8017
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8017, 2); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["dialore"]
CMD ["serve", "/etc/dialore/dialore.toml", "--host", "0.0.0.0"]
