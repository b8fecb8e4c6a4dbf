"""python -m parity.torch_impl.external.serve: the process of a ExternalWorker."""

from parity.common.external.process import serving

if __name__ == "__main__":
    serving.serve("torch")
