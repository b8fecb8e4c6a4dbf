# The toolkit with both frameworks, for `parity manifest --image` and for machines without Python.
#
#   docker build -t parity .
#   docker run --rm parity parity doctor
#
# TORCH and TENSORFLOW are what pip is given, of one word or several: another version, 'tensorflow[and-cuda]>=2.21,<3',
# or torch with an --index-url of smaller builds for CPUs.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS built
WORKDIR /source
COPY pyproject.toml README.md LICENSE parity_pytest.py ./
COPY parity parity
COPY common common
COPY tf_impl tf_impl
COPY torch_impl torch_impl
COPY slurm slurm
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG TORCH="torch>=2.4,<3"
ARG TENSORFLOW="tensorflow>=2.16,<3"
ARG EXTRAS=tf,torch,report,data
COPY --from=built /wheels /wheels
# Unquoted and without patterns: several words, of which none names files.
RUN set -f && pip install --no-cache-dir $TORCH && pip install --no-cache-dir $TENSORFLOW \
    && set +f && pip install --no-cache-dir "$(ls /wheels/*.whl)[$EXTRAS]"
WORKDIR /work
CMD ["parity", "--help"]
