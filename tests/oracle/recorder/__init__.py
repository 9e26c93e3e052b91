"""Records what real systems do in a step for tests/data/recorded_orders: their own Python runs on a
small model, on streams, events and process groups that only write down what is asked of them.

events.py has what is written down, packages.py reads a system's Python from a folder, blocks.py is
FSDP's model. Each system has `..._hooks.py`, which stands in for what is below the system and
listens to its functions, and `..._record.py` with `prepare`, `record`, and `questions`. No logic of
a system is changed. tests/oracle/record.py runs the package.
"""
