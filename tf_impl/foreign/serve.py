"""python -m tf_impl.foreign.serve: the process of a ForeignWorker."""

from common.foreign.process import serving

if __name__ == "__main__":
    serving.serve("tensorflow")
