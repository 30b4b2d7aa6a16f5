# Nuscope in a container, for CPU and CUDA from this one file.
#   docker build -t nuscope .                                   torch with CUDA (the Linux default of its package)
#   docker build -t nuscope --build-arg TORCH=torch==2.13.0+cpu .   CPU only: put that wheel into wheels/, or name a page with
#                                                               --build-arg WHEELS=… that lists it
#   docker build -t nuscope --build-arg TORCH=none .            without torch: the app opens, models do not; for checks of the image
#   docker run --init -p 127.0.0.1:8501:8501 -v nuscope:/data nuscope            (CUDA: with --gpus all)

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
ARG TORCH=torch==2.13.0
ARG WHEELS=
WORKDIR /build
COPY requirements.txt wheel[s]/*.whl ./
RUN python3 -m venv /opt/venv \
    && grep -v '^torch==' requirements.txt > pins.txt \
    && if [ "${TORCH}" != none ]; then echo "${TORCH}" >> pins.txt; fi \
    && /opt/venv/bin/python -m pip install --no-cache-dir --find-links . ${WHEELS:+--find-links "${WHEELS}"} -r pins.txt

FROM ${BASE}
LABEL org.opencontainers.image.title="Nuscope" \
      org.opencontainers.image.description="Calibrated probabilistic forecasts from frozen scientific transformers" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 nuscope \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin nuscope \
    && install -d -o 10001 -g 10001 -m 0750 /data
COPY --from=packages /opt/venv /opt/venv
WORKDIR /app
COPY app.py LICENSE ./
COPY .streamlit .streamlit
COPY assets assets
COPY engine engine
COPY pages pages
# Everyone may read the code and nobody but root may write it, whatever the modes of the checkout were.
RUN chmod -R u=rwX,go=rX /app && /opt/venv/bin/python -m compileall -q engine pages app.py

ENV PATH=/opt/venv/bin:$PATH \
    HOME=/data \
    NUSCOPE_HOME=/data \
    MPLCONFIGDIR=/tmp/matplotlib \
    HF_HUB_OFFLINE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "from urllib.request import urlopen; assert urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).status == 200"]
CMD ["streamlit", "run", "app.py", "--server.address=0.0.0.0", "--server.port=8501"]
