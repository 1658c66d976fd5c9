"""The command `rolebregman`: `cli.app` puts its sub-commands together, `cli.command` holds what they share."""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["app", "command"])
