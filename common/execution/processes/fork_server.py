"""Imported last by the process that ranks are forked from, so that it ends with its run; elsewhere it does nothing.

An interpreter that has loaded a framework takes a second to shut down, on a busy machine ten, in which nobody needs it any
more and the memory of the framework is held. Ranks leave by `os._exit` themselves, so that this is of their parent alone.
"""

import atexit
import os
import sys

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    atexit.register(os._exit, 0)
