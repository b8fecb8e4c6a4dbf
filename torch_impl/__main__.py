"""Command line of a training: python -m parity.torch_impl --help

Its flags are the fields of common/spec/placement.py and common/spec/run_options.py.
"""

if __name__ == "__main__":
    from parity.import_path import importing, leave_working_folder

    leave_working_folder(in_children=True)
    with importing("parity.torch_impl"):
        from parity.common.execution import training_cli

    training_cli.run("torch")
