"""The command `rolebregman`: its sub-commands are in `cli.app`, what they share in `cli.command`."""
