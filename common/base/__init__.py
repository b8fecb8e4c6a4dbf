"""What everything stands on: errors, whole files, amounts of memory, keyed random numbers, being asked to stop."""

from parity.import_path import refuse_hidden

refuse_hidden("numpy", "pydantic")
