"""absl shell: python -m parity.torch_impl --help"""

if __name__ == "__main__":
    from parity.import_path import leave_working_folder

    leave_working_folder(in_children=True)

    from parity.common.execution import shell

    shell.run("torch")
