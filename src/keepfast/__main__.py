"""`python -m keepfast`: the same as the command `keepfast`."""

from keepfast.cli import main

if __name__ == "__main__":
    main(prog_name="keepfast")
