"""Where two runs diverge, and why: observe -> isolate -> explain; `parity.common.report` shows the result.

core.py     the flow that all sources of observations share
result.py   what every diagnosis says
limits.py   every limit, with its reason
replays     the source that replays runs of specs (`replayed.py`); live models of users and recorded scripts
            are sources in `parity.common.external`
"""
