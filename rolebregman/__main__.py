"""`python -m rolebregman` is the command."""
from rolebregman.cli.app import app

app(prog_name="rolebregman")
