"""Run the command line: `python -m hypergrid`."""

from hypergrid.cli.main import main

if __name__ == "__main__":
    main()
