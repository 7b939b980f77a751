"""Runs the program of a module beside it: `run.py MODULE`. Workers import the same module by the same name."""

import importlib
import sys

importlib.import_module(sys.argv[1]).main()
