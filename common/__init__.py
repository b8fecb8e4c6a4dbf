"""Framework-free half of the parity toolkit: specs, batch plans, records, comparison, reports.

Importing anything below this package loads neither tensorflow nor torch.
"""

from parity.import_path import refuse_hidden

refuse_hidden("numpy", "pydantic")
