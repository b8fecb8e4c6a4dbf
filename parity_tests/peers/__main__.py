"""python -m parity_tests.peers FRAMEWORK"""

import sys

from parity_tests.peers import serve

serve(sys.argv[1])
