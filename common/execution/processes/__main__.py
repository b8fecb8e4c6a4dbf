"""`parity.common.execution.processes`, run by `child.command`: what a `Child` starts; see `service.serve`."""

import sys

from parity.common.execution.processes.service import serve

if __name__ == "__main__":
    serve(*sys.argv[1:])
